"""Figures of a library's real state: memory cells, bytes, graphs, plots.

    memory(x)       the cells of x's storage, coloured in the order x reads them
    walk(iterator)  the cells of several tensors, at the steps of a TensorIterator
    bytes_of(s, d)  the bytes of a storage, under the elements a dtype sees
    bits_of(v, d)   the bits that a dtype keeps of a number, field by field
    graph(y)        the computation graph behind y, a graphviz.Digraph
    plots()         matplotlib.pyplot, set for small and repeatable SVG
    dispatch(...)   the way of a call from its keys to a kernel
    table(...)      which kernel each operator has for which keys

Each figure is a white card with dark text, so it reads the same on a light
and on a dark page, and each says in words what colour says. The same state
gives the same bytes on every machine.

Nothing here imports a layer of the library. A tensor is anything with
`storage`, `geometry` and `dtype`; a graph is anything with `parents`, or
with PyTorch's `grad_fn`.
"""

import functools
import gc
import math
import pathlib
import re
import shutil
import sys
import sysconfig
import weakref
from xml.sax.saxutils import escape

__all__ = ["memory", "walk", "bytes_of", "bits_of", "graph", "ownership",
           "plots", "dispatch", "table", "Drawing"]

renderer = None     # a page, which runs no program, has one: from DOT to SVG
CELLS = 64          # memory() and bytes_of() draw at most so many cells
BRIEF = 40          # graph() draws more nodes than this in short form
WIDTH = 640         # of a card, in pixels
CARD = "#ffffff"
INK = "#1a1a1a"
SOFT = "#5f5f5f"    # for what is beside the point: 6:1 on the card
EMPTY = "#ececec"   # a cell that nobody reads
# Light to dark in lightness as well as in hue (ColorBrewer's YlGnBu, its
# light half), so that the order survives without colour vision.
SCALE = [(255, 255, 204), (199, 233, 180), (127, 205, 187), (86, 180, 211)]
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS = "Helvetica, Arial, sans-serif"


class Drawing:
    """A finished SVG picture and the words that say the same."""

    def __init__(self, svg, text):
        self.svg = svg
        self.text = text

    def _repr_svg_(self):
        return self.svg

    def __repr__(self):
        return self.text


# --- memory -----------------------------------------------------------

def memory(x, *others, title=None, names=None):
    """Draw the storage of x, cell by cell, and who reads which cell.

    A cell's colour says when x reads it: pale first, dark last. Under the
    cells, one row for each tensor gives the index at which it reads that
    cell. Tensors on the same storage share one picture; another storage
    is drawn below. names labels the rows: names=["x", "x[1, :]"].
    """
    tensors = (x, *others)
    for t in tensors:
        for part in ("storage", "geometry", "dtype"):
            if not hasattr(t, part):
                raise TypeError(
                    f"memory() draws tensors, and this "
                    f"{type(t).__name__} has no {part!r}; for a storage "
                    "use bytes_of(storage, dtype)")
    names = _names(names, len(tensors))
    groups = []
    for name, t in zip(names, tensors):
        for group in groups:
            if group[0][1].storage is t.storage:
                group.append((name, t))
                break
        else:
            groups.append([(name, t)])
    card, words = _Card(title), []
    for group in groups:
        words.append(_draw_storage(card, group))
        card.y += 10
    card.y -= 10
    text = "; ".join(words)
    return Drawing(card.svg(title or "Memory cells", text), text)


def walk(iterator, *, names=None, title=None):
    """Draw the memory of a TensorIterator's operands, and at which steps of
    the walk each cell is visited.

    A cell's colour says when it is visited first: pale early, dark late.
    Above, the loops: which dimensions they go through, in how many steps.
    """
    visits = list(iterator)
    names = _names(names, len(iterator.starts))
    card = _Card(title)
    loops = [f"{loop.size} steps over dimension"
             + f"{'s' if len(loop.dims) > 1 else ''} "
             + " and ".join(map(str, loop.dims)) for loop in iterator.loops]
    loops = loops or ["1 step"]
    card.note(12, "innermost loop: " + "; then ".join(loops))
    left = 20 + max(map(len, names)) * 8
    said = []
    for k, name in enumerate(names):
        steps = {}
        for step, places in enumerate(visits, 1):
            steps.setdefault(places[k], []).append(step)
        labels = {cell: ", ".join(map(str, found[:4]))
                  + (" ..." if len(found) > 4 else "")
                  for cell, found in steps.items()}
        cells = range(min(steps, default=0), max(steps, default=-1) + 1)
        width = max([len(s) for s in labels.values()] + [2]) * 8 + 10
        across = max(1, min(len(cells) or 1, (WIDTH - left - 12) // width))
        for start in range(0, len(cells), across):
            for at, cell in enumerate(cells[start:start + across]):
                x, order = left + at * width, steps.get(cell)
                fill = EMPTY
                if order:
                    fill = _shade((order[0] - 1) / max(len(visits) - 1, 1))
                card.text(x + width / 2, card.y + 9, cell, size=10, fill=SOFT)
                card.cell(x, card.y + 13, width - 3, 24, fill,
                          dashed=not order)
                card.text(x + (width - 3) / 2, card.y + 29,
                          labels.get(cell, ""))
            if start == 0:
                card.text(12, card.y + 29, name, anchor="start",
                          weight="bold")
            card.right = max(card.right, left + across * width + 9)
            card.y += 46
        order = [str(places[k]) for places in visits[:12]]
        said.append(f"{name or 'operand'} is visited at "
                    + " ".join(order) + (" ..." if len(visits) > 12 else ""))
    words = "walk: " + "; then ".join(loops) + "; " + "; ".join(said)
    return Drawing(card.svg(title or "A walk over several tensors", words),
                   words)


def _names(names, n):
    if isinstance(names, str):
        names = [names]
    if names is None:
        names = [""] if n == 1 else [f"tensor {i}" for i in range(1, n + 1)]
    names = list(names)
    if len(names) != n:
        raise ValueError(f"got {n} tensors and {len(names)} names {names}")
    return names


def _draw_storage(card, group):
    """One storage and the tensors that read it; returns it in words."""
    first = group[0][1]
    itemsize = first.dtype.itemsize
    for name, t in group:
        if t.dtype.itemsize != itemsize:
            raise ValueError(
                f"one picture needs cells of one size, got "
                f"{first.dtype.name} ({itemsize} bytes) and {t.dtype.name} "
                f"({t.dtype.itemsize} bytes); use bytes_of(storage, "
                "dtype, dtype) to see the same bytes both ways")
    total = first.storage.nbytes() // itemsize
    start = 0
    if total > CELLS:       # begin where the first tensor begins
        lowest = _lowest(first.geometry)
        start = max(0, min(lowest, total - CELLS)) // 8 * 8
    stop = min(total, start + CELLS)
    reads = [_reads(t.geometry, start, stop) for _, t in group]
    values = [_short(first.storage.read(first.dtype, i))
              for i in range(start, stop)]

    labels = [{cell: _index(index) + (f" \u00d7{times}" if times > 1 else "")
               for cell, (_, index, times) in r.items()} for r in reads]
    longest = max([len(v) for v in values] + [len(str(stop))] +
                  [len(s) for row in labels for s in row.values()] + [3])
    width = longest * 8 + 10
    left = 12 + max(len(name) for name, _ in group) * 8
    left += 8 if left > 12 else 0
    across = max(1, min((WIDTH - left - 12) // width, stop - start or 1))
    inner = first.geometry.shape[-1] if first.geometry.shape else 1
    if 1 < inner < across:      # whole rows of x, where they fit
        across -= across % inner

    caption = f"{total} {first.dtype.name} cells"
    if total == 1:
        caption = f"1 {first.dtype.name} cell"
    card.note(12, caption)
    if start:
        card.note(12, f"{_cells(start)} left out")
    for row in range(start, stop, across):
        cells = range(row, min(row + across, stop))
        for k, cell in enumerate(cells):
            at = left + k * width
            read = reads[0].get(cell)
            anyone = any(cell in r for r in reads)
            card.text(at + width / 2, card.y + 9, cell, size=10, fill=SOFT)
            card.cell(at, card.y + 13, width - 3, 24,
                      _colour(read, first) if read else EMPTY,
                      dashed=not anyone)
            card.text(at + (width - 3) / 2, card.y + 29,
                      values[cell - start], fill=INK if anyone else SOFT)
        y = card.y + 40
        for (name, t), read, label in zip(group, reads, labels):
            if name:
                card.text(12, y + 13, name, anchor="start", weight="bold")
            for k, cell in enumerate(cells):
                if cell in label:
                    at = left + k * width
                    card.cell(at, y, width - 3, 18,
                              _colour(read[cell], t), line="none")
                    card.text(at + (width - 3) / 2, y + 13, label[cell],
                              size=11)
            y += 21
        card.right = max(card.right, left + len(cells) * width + 9)
        card.y = y + 8
    if stop < total:
        card.note(12, f"{_cells(total - stop)} left out")

    words = f"memory: {caption}"
    for (name, t), read in zip(group, reads):
        order = [c for c, _ in sorted(read.items(), key=lambda p: p[1][0])]
        said = " ".join(map(str, order[:12])) or "none"
        if len(order) > 12 or math.prod(t.geometry.shape) > CELLS:
            said += " ..."
        shape = list(t.geometry.shape)
        words += f"; {name or 'shape'} {shape} reads {said}"
    return words


def _lowest(geometry):
    return geometry.offset + sum(min(0, (n - 1) * s) for n, s in
                                 zip(geometry.shape, geometry.strides) if n)


def _reads(geometry, start, stop, most=4096):
    """{cell: (order, index, times)} for the cells in range(start, stop).

    Only indices that can reach the range are visited, so a view of a
    gigabyte costs no more than the picture.
    """
    found = {}
    if 0 in geometry.shape:
        return found
    dims = list(zip(geometry.shape, geometry.strides))
    # how far the dimensions after k can still move the address
    low, high = [0], [0]
    for n, s in reversed(dims):
        low.append(low[-1] + min(0, (n - 1) * s))
        high.append(high[-1] + max(0, (n - 1) * s))
    low, high = low[::-1], high[::-1]
    repeat = math.prod(n for n, s in dims if s == 0)

    def visit(k, address, index, order):
        if len(found) >= most:
            return
        if k == len(dims):
            if start <= address < stop:
                o, i, times = found.get(address, (order, index, 0))
                found[address] = o, i, times + repeat
            return
        n, s = dims[k]
        if s == 0:
            steps = range(1)
        else:
            a, b = start - address - high[k + 1], stop - address - low[k + 1]
            a, b = (a, b - 1) if s > 0 else (b - 1, a)
            steps = range(max(0, -(-a // s)), min(n - 1, b // s) + 1)
        for i in steps:
            visit(k + 1, address + i * s, index + (i,), order * n + i)

    visit(0, geometry.offset, (), 0)
    return found


def _colour(read, tensor):
    last = math.prod(tensor.geometry.shape) - 1
    return _shade(read[0] / last if last > 0 else 0)


def _shade(share):
    """The colour of a place between first (0) and last (1)."""
    at = share * (len(SCALE) - 1)
    k = min(int(at), len(SCALE) - 2)
    return "#" + "".join(f"{round(a + (b - a) * (at - k)):02x}"
                         for a, b in zip(SCALE[k], SCALE[k + 1]))


def _index(index):
    return "[" + ", ".join(map(str, index)) + "]"


def _cells(n):
    return f"{n} cell" if n == 1 else f"{n} cells"


def _short(value):
    """A number in at most about seven characters."""
    if isinstance(value, (bool, int)):
        text = str(value)
        return text if len(text) <= 11 else f"{value:.3e}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


# --- bytes ------------------------------------------------------------

def bytes_of(storage, *dtypes, title=None):
    """Draw the bytes of a storage in hexadecimal, under the elements.

    Each dtype gets one row: the same bytes, read as that dtype. A tensor
    may stand for its storage and, where no dtype is given, its dtype.
    """
    if not dtypes and hasattr(storage, "dtype"):
        dtypes = (storage.dtype,)
    storage = getattr(storage, "storage", storage)
    data = _raw(storage)
    if dtypes and not hasattr(storage, "read"):
        raise TypeError(f"this {type(storage).__name__} has no read(dtype, "
                        "index): give a storage, or no dtype")
    total = len(data)
    shown = bytes(data[:CELLS])
    width = 28
    rows = []           # (name, itemsize, values)
    for d in dtypes:
        count = min(total, CELLS) // d.itemsize
        rows.append((d.name, d.itemsize,
                     [str(value) if isinstance(value, int) else _short(value)
                      for value in (storage.read(d, i)
                                    for i in range(count))]))
        for value in rows[-1][2]:       # room for the longest number
            width = max(width, -(-(len(value) * 8 + 6) // d.itemsize))
    left = 12 + max([len("byte")] + [len(name) for name, _, _ in rows]) * 8
    left += 8
    widest = max([n for _, n, _ in rows] + [1])
    across = max(widest, (WIDTH - left - 12) // width // widest * widest)

    card = _Card(title)
    card.note(12, "1 byte" if total == 1 else f"{total} bytes")
    for row in range(0, len(shown), across):
        part = shown[row:row + across]
        y = card.y
        for k, byte in enumerate(part):
            at = left + k * width
            card.text(at + (width - 3) / 2, y + 9, row + k, size=10,
                      fill=SOFT)
            card.cell(at, y + 13, width - 3, 22, EMPTY)
            card.text(at + (width - 3) / 2, y + 28, f"{byte:02x}")
        card.text(12, y + 28, "byte", anchor="start", weight="bold")
        y += 38
        for name, size, values in rows:
            card.text(12, y + 15, name, anchor="start", weight="bold")
            # across is a multiple of the widest size, all are powers of 2
            for i in range(row // size, (row + len(part)) // size):
                if i < len(values):
                    at = left + (i * size - row) * width
                    fill = SCALE[0] if i % 2 == 0 else SCALE[1]
                    card.cell(at, y, size * width - 3, 22,
                              "#%02x%02x%02x" % fill)
                    card.text(at + (size * width - 3) / 2, y + 15,
                              values[i])
            y += 25
        card.right = max(card.right, left + len(part) * width + 9)
        card.y = y + 8
    if total > len(shown):
        card.note(12, f"{total - len(shown)} bytes left out")
    text = f"bytes: {shown[:16].hex(' ')}" + (" ..." if total > 16 else "")
    for name, _, values in rows:
        text += f"; {name} {' '.join(values[:8]) or 'none'}"
        text += " ..." if len(values) > 8 else ""
    return Drawing(card.svg(title or "Bytes", text), text)


def bits_of(value, *dtypes, title=None):
    """Draw the bits of a number in one or more dtypes, highest bit first.

    The fields of a float are sign, exponent and fraction; those of an
    integer are the sign, if it has one, and the rest. Below the bits of
    each dtype stands the number that they mean.
    """
    if not dtypes:
        raise TypeError("bits_of() needs a dtype: bits_of(0.1, float32)")
    card, words = _Card(title), []
    size, across = 17, 32
    left = 20 + 8 * max(len(d.name) for d in dtypes)
    for d in dtypes:
        pattern = _pattern(d, value)
        kept, = d.format.unpack(d.format.pack(value))
        card.text(12, card.y + 29, d.name, anchor="start", weight="bold")
        at, spoken = 0, []
        for k, (name, width) in enumerate(_fields(d)):
            fill = "#%02x%02x%02x" % SCALE[k]
            for i in range(at, at + width):
                x = left + i % across * size
                y = card.y + 14 + i // across * 40
                card.cell(x, y, size - 2, 22, fill)
                card.text(x + size / 2 - 1, y + 15, pattern[i])
            y = card.y + 10 + at // across * 40
            x = left + at % across * size
            if width == 1:      # too narrow for its name
                card.text(x + size - 2, y, name, anchor="end", size=9,
                          fill=SOFT, family=SANS)
            else:
                card.text(x + 1, y, name, anchor="start", size=9, fill=SOFT,
                          family=SANS)
            spoken.append(f"{name} {pattern[at:at + width]}")
            at += width
        card.right = max(card.right, left + min(at, across) * size + 9)
        card.y += 40 + (at - 1) // across * 40
        card.note(left, f"= {kept!r}")
        card.y += 6
        words.append(f"{d.name} {', '.join(spoken)}: {kept!r}")
    text = "; ".join(words)
    return Drawing(card.svg(title or f"The bits of {value!r}", text), text)


def _pattern(dtype, value):
    """The bits of a number, as a text of 0 and 1."""
    number = int.from_bytes(dtype.format.pack(value), sys.byteorder)
    return f"{number:0{8 * dtype.itemsize}b}"


def _fields(dtype):
    """(name, number of bits) of the parts of an element, in order."""
    bits = 8 * dtype.itemsize
    if dtype.category < 2:
        return ([("sign", 1), ("digits", bits - 1)] if dtype.is_signed
                else [("digits", bits)])
    # 1.0 has the exponent 0, which is stored as 011...1
    exponent = _pattern(dtype, 1.0).count("1") + 1
    return [("sign", 1), ("exponent", exponent),
            ("fraction", bits - 1 - exponent)]


def _raw(storage):
    """The memory behind a storage, or behind any bytes-like object."""
    for part in (storage, getattr(storage, "bytes", None)):
        try:
            view = memoryview(part)
        except TypeError:
            continue
        return view.cast("B") if view.nbytes else memoryview(b"")
    raise TypeError(f"bytes_of() draws a storage or a bytes-like object, "
                    f"got {type(storage).__name__}")


# --- SVG by hand ------------------------------------------------------

class _Card:
    """A white card that grows downwards while things are drawn on it."""

    def __init__(self, title=None):
        self.parts = []
        self.right = 0
        self.y = 10
        if title:
            self.text(12, self.y + 12, title, anchor="start", size=13,
                      weight="bold", family=SANS)
            self.right = 24 + 8 * len(title)
            self.y += 22

    def text(self, x, y, what, *, size=12, fill=INK, anchor="middle",
             weight=None, family=None):
        extra = f' font-weight="{weight}"' if weight else ""
        extra += f' font-family="{family}"' if family else ""
        extra += f' font-size="{size}"' if size != 12 else ""
        extra += f' fill="{fill}"' if fill != INK else ""
        extra += f' text-anchor="{anchor}"' if anchor != "middle" else ""
        self.parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{extra}>'
                          f'{escape(str(what))}</text>')

    def note(self, x, what):
        self.text(x, self.y + 10, what, anchor="start", size=11, fill=SOFT,
                  family=SANS)
        self.right = max(self.right, x + 7 * len(what) + 12)
        self.y += 18

    def cell(self, x, y, width, height, fill, dashed=False, line="#8a8a8a"):
        dash = ' stroke-dasharray="3 2"' if dashed else ""
        self.parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}" rx="2" fill="{fill}" '
            f'stroke="{line}"{dash}/>')

    def svg(self, title, words):
        w, h = math.ceil(self.right), math.ceil(self.y + 4)
        return "\n".join([
            _open_svg(w, h, f"0 0 {w} {h}", title, words),
            f'<g font-family="{MONO}" font-size="12" fill="{INK}" '
            'text-anchor="middle">', *self.parts, "</g>", "</svg>"])


def _open_svg(width, height, box, title, words):
    x, y, w, h = box.split()
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'width="{width}" height="{height}" viewBox="{box}" '
            'style="max-width:100%;height:auto">\n'
            f'<title>{escape(title)}</title>\n<desc>{escape(words)}</desc>\n'
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" '
            f'fill="{CARD}"/>')


def _n(x):
    return f"{x:.1f}".removesuffix(".0")


# --- graphs -----------------------------------------------------------

def graph(root, *, names=None, limit=100, fold=False):
    """Draw the computation graph that ends in root.

    root is a scalar Value, or a tensor that has a grad_fn. Arrows point
    the way the numbers went: from the leaves, on the left, to root. Only
    the limit nodes nearest to root are drawn; one dashed box says how
    many are left out. names, {"w": w, ...}, labels leaves.

    A node of a tensor graph says what it has saved, and at which version.
    With fold, operators that a tensor graph repeats three times or more in
    a row, a layer after a layer, are drawn once; a box counts the others.

    Returns a graphviz.Digraph: .source is its DOT text.
    """
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be a positive number, got {limit!r}")
    labels = {id(t): name for name, t in (names or {}).items()}
    if hasattr(root, "parents"):
        view = _Scalars(labels)
    elif hasattr(root, "grad_fn"):
        view = _Tensors(labels, fold)
    else:
        raise TypeError(f"graph() draws a Value or a tensor, got "
                        f"{type(root).__name__}")
    nodes, number = _nearest(view.start(root), view.parents)
    drawn, left_out = nodes[:limit], max(0, len(nodes) - limit)
    view.brief = len(drawn) > BRIEF
    dot = _flow()
    for node in drawn:
        view.draw(dot, f"n{number[id(node)]}", node)
    for node in drawn:
        me = f"n{number[id(node)]}"
        whole = True
        for k, parent in enumerate(view.parents(node)):
            i = number[id(parent)]
            if i < limit:
                view.edge(dot, f"n{i}", me, node, k)
            whole = whole and i < limit
        if not whole:       # one edge stands for all
            dot.edge("cut", view.entry(me, node))
    if left_out:
        dot.node("cut", f"{left_out} node{'s'[:left_out > 1]} left out",
                 style="dashed", fontcolor=SOFT)
    dot.words = view.words(root, len(nodes), left_out)
    return dot


def _flow():
    """An empty drawing of boxes and arrows, from left to right."""
    return _digraph_class()(
        node_attr={"fontname": "Helvetica", "fontsize": "12",
                   "shape": "box", "style": "filled",
                   "fillcolor": CARD, "color": "#6b6b6b",
                   "margin": "0.05,0.03", "height": "0.3",
                   "width": "0.3"},
        edge_attr={"fontname": "Helvetica", "fontsize": "11",
                   "color": "#6b6b6b", "fontcolor": SOFT,
                   "arrowsize": "0.5"},
        graph_attr={"rankdir": "LR", "nodesep": "0.12", "ranksep": "0.1",
                    "pad": "0.1"})


def _nearest(start, parents):
    """All nodes behind start, nearest first, and each one's number."""
    nodes, number = [start], {id(start): 0}
    for node in nodes:          # the list grows while it is read
        for parent in parents(node):
            if id(parent) not in number:
                number[id(parent)] = len(nodes)
                nodes.append(parent)
    return nodes, number


LEAF, RESULT, OPERATOR = "#fff3c4", "#cfe8ef", "#ececec"
GRAD = "#8a3a00"


def ownership(names, limit=40):
    """Draw who holds whom: tensors, nodes and storages, and the references
    between them as Python has them. A weak one is dashed.

    names, {"y": y, ...}: the tensors to start from, as they are called.
    """
    labels = {id(x): name for name, x in names.items()}
    found, number = [*names.values()], {}
    number.update((id(x), i) for i, x in enumerate(found))
    dot, edges = _flow(), set()
    for x in found:             # the list grows while it is read
        for y, weak in _held(x):
            if id(y) not in number and len(found) < limit:
                number[id(y)] = len(found)
                found.append(y)
            if id(y) in number:
                edges.add((number[id(x)], number[id(y)], weak))
    for i, x in enumerate(found):
        text, fill = _held_box(x, labels.get(id(x)))
        dot.node(f"n{i}", text, fillcolor=fill)
    for i, j, weak in sorted(edges):
        dot.edge(f"n{i}", f"n{j}", style="dashed" if weak else "solid")
    dot.words = (f"who holds whom: {len(found)} objects, {len(edges)} "
                 f"references")
    return dot


def _is_shown(x):
    return not isinstance(x, type) and (
        hasattr(x, "next_functions") or type(x).__name__ in (
            "Tensor", "Storage", "AutogradMeta"))


def _held(x):
    """The objects that are shown and that x refers to, through tuples and
    lists, and whether weakly."""
    found, stack = [], gc.get_referents(x)
    for y in stack:             # grows too
        if isinstance(y, weakref.ref):
            if y() is not None and _is_shown(y()):
                found.append((y(), True))
        elif _is_shown(y):
            found.append((y, False))
        elif isinstance(y, (tuple, list)):
            stack += gc.get_referents(y)
    return found


def _held_box(x, label):
    """The text of an object's box, and its colour."""
    if hasattr(x, "next_functions"):
        return _ascii(x.name()), OPERATOR
    if type(x).__name__ == "Storage":
        return f"storage, {x.nbytes()} bytes, v{x.version}", RESULT
    if type(x).__name__ == "AutogradMeta":
        return "AutogradMeta", CARD
    name = f"<b>{_html(label)}</b><br/>" if label else ""
    return f"<{name}{_html(_shape(x))}>", LEAF



class _Scalars:
    """How a graph of scalar Values is read and drawn."""

    def __init__(self, labels):
        self.labels = labels

    def start(self, root):
        self.root = root
        return root

    def parents(self, value):
        return value.parents

    def draw(self, dot, name, value):
        label = self.labels.get(id(value)) or getattr(value, "label", None)
        lines = [f"<b>{_html(label)}</b>"] if label else []
        op = f"{_html(value.op)}: " if value.parents and self.brief else ""
        lines.append(f"{op}data {_short(value.data)}")
        if value.grad is not None:
            lines.append(f'<font color="{GRAD}">grad '
                         f'{_short(value.grad)}</font>')
        fill = CARD
        if not value.parents:
            fill = LEAF
        elif value is self.root:
            fill = RESULT
        dot.node(name, f"<{'<br/>'.join(lines)}>", fillcolor=fill)
        if value.parents and not self.brief:
            dot.node(name + "op", _ascii(value.op or "?"), shape="circle",
                     fillcolor=OPERATOR, margin="0.02")
            dot.edge(name + "op", name)

    def entry(self, name, value):
        """The box or circle at which the edges to a value end."""
        return name if self.brief else name + "op"

    def edge(self, dot, source, target, value, k):
        factors = getattr(value, "locals", None)
        label = _short(factors[k]) if factors and not self.brief else None
        dot.edge(source, self.entry(target, value), label=label)

    def words(self, root, count, left_out):
        said = f"graph: {count} value{'s'[:count != 1]}"
        said += f" behind {_short(root.data)}"
        return said + (f", {left_out} left out" if left_out else "")


class _Tensors:
    """How a graph of PyTorch's protocol (grad_fn) is read and drawn."""

    def __init__(self, labels, fold=False):
        self.labels = labels
        self.fold = fold
        self.folds = {}     # id of the first node that is hidden: its box
        self.next = {}      # id(node): its parents, so that nodes that
        #                     are made on demand stay the same object

    def start(self, root):
        self.root = _Result(root)
        if self.fold:
            self.folds = _repeats(self.spine())
            self.next.clear()
        return self.root

    def parents(self, node):
        if id(node) not in self.next:
            if node is self.root:
                found = [node.tensor.grad_fn]
            elif isinstance(node, _Fold):
                found = node.behind
            else:
                found = [n for n, _ in getattr(node, "next_functions", ())]
            self.next[id(node)] = [self.folds.get(id(n), n)
                                   for n in found if n is not None]
        return self.next[id(node)]

    def spine(self):
        """From root backward, for as long as there is one way on."""
        found, after = [], self.parents(self.root)
        while len(after) == 1:
            found.append(after[0])
            after = list({id(n): n for n in self.parents(after[0])
                          if not hasattr(n, "variable")}.values())
        return found

    def draw(self, dot, name, node):
        if node is self.root:
            return self.draw_tensor(dot, name, node.tensor, RESULT)
        if hasattr(node, "variable"):
            return self.draw_tensor(dot, name, node.variable, LEAF)
        if isinstance(node, _Fold):
            return dot.node(name, _ascii(node.text), style="dashed",
                            fontcolor=SOFT)
        # on two lines, so that long chains stay legible in a column
        label = node.name().replace("Backward", "\nBackward")
        saved = [] if self.brief or not hasattr(node, "saved_parts") else (
            [_saved_line(*part) for part in node.saved_parts()])
        if saved:
            lines = [_html(line) for line in label.split("\n")] + saved
            return dot.node(name, f"<{'<br/>'.join(lines)}>",
                            fillcolor=OPERATOR)
        dot.node(name, _ascii(label).replace("\n", "\\n"),
                 fillcolor=OPERATOR)

    def draw_tensor(self, dot, name, tensor, fill):
        label = self.labels.get(id(tensor)) or getattr(tensor, "name", None)
        lines = [f"<b>{_html(label)}</b>"] if isinstance(label, str) else []
        lines.append(_html(_shape(tensor)))
        if (fill == RESULT and tensor.shape == ()
                and hasattr(tensor, "tolist")
                and str(getattr(tensor, "device", "")) != "meta"):
            lines.append(f"data {_numbers(tensor)}")
        grad = getattr(tensor, "grad", None) if fill == LEAF else None
        if grad is not None:
            lines.append(f'<font color="{GRAD}">grad '
                         f'{_html(_numbers(grad))}</font>')
        dot.node(name, f"<{'<br/>'.join(lines)}>", fillcolor=fill)

    def entry(self, name, node):
        return name

    def edge(self, dot, source, target, node, k):
        dot.edge(source, target)

    def words(self, root, count, left_out):
        said = f"graph: {count - 1} node{'s'[:count != 2]} behind a tensor "
        said += f"of shape {list(root.shape)}"
        return said + (f", {left_out} left out" if left_out else "")


class _Result:
    """Stands at the end of a tensor graph: the tensor itself."""

    def __init__(self, tensor):
        self.tensor = tensor


class _Fold:
    """Stands for nodes that repeat what is drawn before them."""

    def __init__(self, text, behind):
        self.text, self.behind = text, behind


def _repeats(spine, most=12):
    """What of a row of nodes repeats itself: {id of the first node that is
    hidden: the box for all that are}."""
    kinds = [(n.name(), len(n.next_functions)) for n in spine]
    folds, i = {}, 0
    while i < len(kinds):
        best = (0, 1)
        for period in range(1, most + 1):
            end = i + period
            while end < len(kinds) and kinds[end] == kinds[end - period]:
                end += 1
            times = (end - i) // period
            if times >= 3 and times * period > best[0] * best[1]:
                best = times, period
        times, period = best
        if times >= 3:
            first, end = i + period, i + times * period
            what = ", ".join(kinds[k][0].removesuffix("Backward0")
                             for k in range(i, first))
            folds[id(spine[first])] = _Fold(
                f"{times - 1} times more: {what}", spine[end:end + 1] or [
                    n for n, _ in spine[-1].next_functions])
        i += max(1, times * period)
    return folds


def _saved_line(name, shape, then, now):
    """What a node has saved, as a line of its box."""
    if then is None:
        return f'<font color="{SOFT}">{_html(name)} freed</font>'
    said = f"saved {_html(name)} {list(shape)} v{then}"
    if now != then:
        said += f', <font color="{GRAD}">now v{now}</font>'
    return said


def _shape(tensor):
    dtype = getattr(tensor.dtype, "name", str(tensor.dtype))
    return f"{list(tensor.shape)} {dtype}"


def _numbers(tensor):
    """The values of a tiny tensor, the shape of a larger one."""
    if math.prod(tensor.shape) > 4 or len(tensor.shape) > 1 \
            or not hasattr(tensor, "tolist"):
        return str(list(tensor.shape))
    values = tensor.tolist()
    if isinstance(values, list):
        return "[" + ", ".join(map(_short, values)) + "]"
    return _short(values)


def _ascii(text):
    """DOT text in ASCII: other letters as entities, backslashes kept."""
    text = str(text).replace("\\", "\\\\").replace("&", "&amp;")
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _html(text):
    text = escape(str(text))
    return text.encode("ascii", "xmlcharrefreplace").decode()


@functools.cache
def _digraph_class():
    """A Digraph that draws itself with one renderer, the same everywhere."""
    import graphviz

    class Graph(graphviz.Digraph):
        words = "graph"

        def svg(self):
            return _clean(_render(self), self.words)

        def _repr_mimebundle_(self, include=None, exclude=None, **_):
            return {"image/svg+xml": self.svg(), "text/plain": repr(self)}

        def _repr_image_svg_xml(self):
            return self.svg()

        def __repr__(self):
            return self.words

    return Graph


def _render(digraph):
    if renderer is not None:
        return renderer(digraph.source)
    from graphviz.backend import dot_command

    # graphviz's documented door for a program of another name. It stays
    # open: a reader's own Digraph draws without `dot`, too.
    dot_command.DOT_BINARY = _program()
    return digraph.pipe(format="svg", quiet=True, encoding="utf-8")


@functools.cache
def _program():
    """The renderer beside the running Python, which PATH may not name."""
    name = "graphviz-pure" + (".exe" if sys.platform == "win32" else "")
    folders = [sysconfig.get_path("scripts"),
               pathlib.Path(sys.executable).parent]
    for scheme in sysconfig.get_scheme_names():
        if scheme.endswith("_user"):
            folders.append(sysconfig.get_path("scripts", scheme))
    for folder in folders:
        if (pathlib.Path(folder) / name).is_file():
            return pathlib.Path(folder) / name
    if found := shutil.which(name):
        return pathlib.Path(found)
    raise RuntimeError("graphs are drawn by graphviz-pure, and it is not "
                       "installed; `pip install graphviz-pure` is enough "
                       "(no `dot` is needed)")


def _clean(svg, words):
    """What a page needs of Graphviz's SVG: no prolog, versions, ids."""
    head = re.search(r'<svg width="([\d.]+)pt" height="([\d.]+)pt"\s+'
                     r'viewBox="([^"]+)"[^>]*>', svg)
    width, height = (math.ceil(float(n) * 4 / 3) for n in head.groups()[:2])
    body = svg[head.end():]
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.S)
    body = re.sub(r"<title>.*?</title>\s*", "", body, flags=re.S)
    # Graphviz's own background; the card is drawn below it
    body = re.sub(r'<polygon fill="white" stroke="none"[^>]*/>\s*', "",
                  body, count=1)
    body = re.sub(r' id="[^"]*"| xml:space="preserve"', "", body)
    body = re.sub(r' font-family="Helvetica[^"]*"', "", body)
    body = body.replace("<g ", f'<g font-family="{SANS}" ', 1)
    return _open_svg(width, height, head[3], "Computation graph",
                     words) + body.rstrip()


# --- plots ------------------------------------------------------------

def plots():
    """Return matplotlib.pyplot, set for crisp SVG that repeats exactly."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({
        "svg.hashsalt": "lamina",       # else clip paths get random names
        "svg.fonttype": "none",         # text stays text
        "font.family": "DejaVu Sans",   # comes with matplotlib
        "font.size": 10,
        "figure.figsize": (6.4, 3.2),
        "figure.constrained_layout.use": True,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "axes.edgecolor": "#6b6b6b",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "axes.axisbelow": True,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "image.cmap": "cividis",
        # Okabe and Ito's colours, told apart without colour vision
        "axes.prop_cycle": matplotlib.cycler(color=[
            "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9",
            "#e69f00", "#1a1a1a"]),
    })
    try:
        shell = __import__("IPython").get_ipython()
    except ImportError:
        shell = None
    if shell is not None and hasattr(shell, "kernel"):
        from matplotlib.figure import Figure
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        plt.switch_backend("module://matplotlib_inline.backend_inline")
        set_matplotlib_formats("svg", metadata={"Date": None,
                                                "Creator": None})
        formatters = shell.display_formatter.formatters
        formatters["text/plain"].for_type(
            Figure, lambda f, p, cycle: p.text(_describe(f)))
        svg = formatters["image/svg+xml"].lookup_by_type(Figure)
        formatters["image/svg+xml"].for_type(
            Figure, lambda f: _tidy(svg(f), _describe(f)))
    return plt


def _tidy(svg, words):
    """What a page needs of matplotlib's SVG, in half the letters: numbers to
    a hundredth of a point, ids that something refers to, a description."""
    head = re.search(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"'
                     r'[^>]*>', svg)
    if not head:                            # done before
        return svg
    body = svg[head.end():]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.S)
    wanted = set(re.findall(r'(?:url\(|href=")#([^)"]+)', body))
    body = re.sub(r' id="([^"]*)"',
                  lambda m: m[0] if m[1] in wanted else "", body)
    body = re.sub(r' (?:d|x|y|points)="[^"]*"', lambda m: re.sub(
        r"-?\d+\.\d{3,}", _hundredths, m[0]), body)
    body = body.replace("xlink:href", "href").replace(' type="text/css"', "")
    body = re.sub(r' (?:style|d)="[^"]*"', lambda m: " " + re.sub(
        r"(?<=[:;]) | ?\n", "", m[0][1:]), body)
    body = re.sub(r"\n\s*", "\n", body)
    body = re.sub(r'<g( clip-path="[^"]*")?>\n((?:<use [^>]* style="([^"]*)"/>'
                  r'\n)+)</g>', _one_style, body)
    body = re.sub(r"<g>\s*</g>\n?|<defs/>\n?", "", body)
    width, height = (round(float(n), 2) for n in head.groups())
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'width="{math.ceil(width * 4 / 3)}" '
            f'height="{math.ceil(height * 4 / 3)}" '
            f'viewBox="0 0 {width:g} {height:g}" '
            'style="max-width:100%;height:auto">\n'
            f"<title>Figure</title>\n<desc>{escape(words)}</desc>"
            f"{body.rstrip()}")


def _hundredths(number):
    text = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _one_style(group):
    """A style that all parts of a group have is the group's."""
    styles = set(re.findall(r' style="([^"]*)"/>', group[2]))
    if len(styles) > 1:
        return group[0]
    style = styles.pop()
    return (f'<g{group[1] or ""} style="{style}">\n'
            + group[2].replace(f' style="{style}"', "") + "</g>")


def _describe(figure):
    """A figure in words, in place of its size and address."""
    said = []
    for axes in figure.axes:
        words = axes.get_title() or "axes"
        if axes.get_xlabel() or axes.get_ylabel():
            words += f" ({axes.get_ylabel()} against {axes.get_xlabel()})"
        said.append(" ".join(words.split()))
    return "figure: " + "; ".join(said)


# --- dispatch ---------------------------------------------------------

def dispatch(operator, keys, layers, devices):
    """Draw how an operator finds its function for a set of keys.

    layers maps a bit to the function that wraps kernels, devices a name
    to what has a bit. The way that the call takes is solid: the set,
    its layers from the highest on, the kernel. The operator's other
    kernels are dashed. Returns a graphviz.Digraph.
    """
    names = {d.bit: str(d) for d in devices.values()}
    names |= {bit: _called(wrap) for bit, wrap in layers.items()}
    bits = sorted((b for b in names if b & keys), reverse=True)
    known = keys in operator.table
    dot = _flow()
    dot.node("call", f"<<b>{_html(operator.schema.name)}</b><br/>"
             f"keys: {_html(' + '.join(names[b] for b in bits) or 'none')}"
             f"<br/><font color=\"{SOFT}\">"
             f"{'in the table' if known else 'not in the table yet'}"
             "</font>>", fillcolor=LEAF)
    last, said = "call", [operator.schema.name]
    for bit in bits:
        if bit in layers:
            dot.node(f"layer{bit}", _ascii(names[bit]), fillcolor=OPERATOR)
            dot.edge(last, f"layer{bit}")
            last = f"layer{bit}"
            said.append(names[bit])
    base = keys & ~sum(layers)
    places = sum(d.bit for d in devices.values())
    for bit, kernel in sorted(operator.kernels.items()):
        if (bit ^ base) & ~places:      # of another layout
            continue
        name = f"{names.get(bit & places, 'every device')}: {_called(kernel)}"
        taken = bit == base or not (bit & places or base in operator.kernels)
        style = {} if taken else {"style": "dashed", "fontcolor": SOFT}
        dot.node(f"kernel{bit}", _ascii(name), **(
            style or {"fillcolor": RESULT}))
        dot.edge(last, f"kernel{bit}", **style)
        said += [name] * taken
    dot.words = "the way of a call: " + ", then ".join(said)
    return dot


def _called(function):
    return getattr(function, "__name__", type(function).__name__)


def table(operators, columns, fallbacks=()):
    """Draw which kernel each operator has for which keys.

    columns maps a heading to the two bits (device, layout) of its keys.
    A cell names the kernel that is registered for just these keys, or
    says where else the code comes from; a dark border says that the
    operator has been called with them. Returns a Drawing.
    """
    card, words = _Card(), []
    left = 20 + 8 * max(len(o.schema.full_name) for o in operators)
    rows = [[_source(o, *bits, fallbacks) for bits in columns.values()]
            for o in operators]
    width = 22 + 7 * max(len(said) for row in rows for said, _ in row)
    for k, heading in enumerate(columns):
        card.text(left + k * width + width / 2 - 3, card.y + 12, heading,
                  weight="bold")
    card.y += 20
    for operator, sources in zip(operators, rows):
        card.text(12, card.y + 17, operator.schema.full_name,
                  anchor="start", weight="bold")
        row = []
        for k, (device, layout) in enumerate(columns.values()):
            said, fill = sources[k]
            used = (device | layout) in operator.table
            card.cell(left + k * width, card.y, width - 6, 26, fill,
                      dashed=not said, line=INK if used else "#c8c8c8")
            card.text(left + k * width + width / 2 - 3, card.y + 17,
                      said, size=11)
            row.append((said or "none") + ", looked up" * used)
        words.append(f"{operator.schema.full_name}: " + "; ".join(
            f"{c}: {r}" for c, r in zip(columns, row)))
        card.y += 31
    card.right = left + len(columns) * width + 6
    text = "kernels. " + ". ".join(words)
    return Drawing(card.svg("The table of kernels", text), text)


def _source(operator, device, layout, fallbacks):
    """Where an operator's code for these keys comes from, and a colour."""
    tints = ["#%02x%02x%02x" % c for c in SCALE]
    kernel = operator.kernels.get(device | layout)
    if kernel:
        return _called(kernel), tints[2]
    if layout in operator.kernels:
        return "for all devices", tints[1]
    if operator.composite:
        return "composite", tints[1]
    if operator.base and not layout and _source(
            operator.base, device, layout, fallbacks)[0]:
        return f"from {operator.base.schema.name}", tints[1]
    if device | layout in fallbacks:
        return "fallback", tints[0]
    return "", CARD
