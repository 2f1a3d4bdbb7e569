"""A failing input as a picture: numbers as memory cells, a graph as a graph.

Exercises take plain data, so what is drawn is made from it here: cells
that hold a list's numbers, or that count from 0 where an exercise gives a
shape and strides alone. What cannot be drawn has no picture.
"""

import inspect
import math
from collections import namedtuple
from html import escape

from course import figures

Geometry = namedtuple("Geometry", "shape strides offset")
Kind = namedtuple("Kind", "name itemsize")
MOST = 48  # cells of one value


class Cells:
    """Enough of a tensor for figures.memory."""

    def __init__(self, values, geometry, kind):
        self.values, self.geometry = values, geometry
        self.dtype = Kind(kind, 1)
        self.storage = self

    def nbytes(self):
        return len(self.values)

    def read(self, dtype, i):
        return self.values[i]


def html(text, drawn):
    """A verdict for a notebook: its text, and the picture below."""
    svg = drawn.svg if isinstance(drawn, figures.Drawing) else drawn.svg()
    return f"<pre>{escape(text)}</pre>\n{svg}"


def picture(exercise, args, expected=None, answer=None):
    """The drawing of an input, with what was due and what came; or None."""
    try:
        return drawn(exercise, args, expected, answer)
    except Exception:  # a picture is never worth a verdict
        return None


def drawn(exercise, args, expected, answer):
    names = list(inspect.signature(exercise.reference).parameters)
    given = dict(zip(names, exercise.prepare(*args), strict=True))
    if isinstance(given.get("parents"), dict):
        return graph(**{k: given.get(k) for k in ("parents", "locals")})
    found = []
    if "shape" in given and "strides" in given:
        found.append(("x", geometry(given)))
    else:
        found += [(name, cells(value)) for name, value in given.items()]
    found += [("due", cells(expected)), ("yours", cells(answer))]
    found = [(name, x) for name, x in found if x is not None]
    if not found or all(name in ("due", "yours") for name, _ in found):
        return None
    return figures.memory(*(t for _, t in found),
                          names=[name for name, _ in found],
                          title="The smallest failing input")


def geometry(given):
    """A shape and strides, on as many cells as they reach."""
    shape, strides = tuple(given["shape"]), given["strides"]
    if strides is None:
        strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    strides = tuple(strides)
    ways = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = sum(min(0, way) for way in ways)
    offset = given.get("offset")
    offset = -low if offset is None else offset
    count = given.get("count")
    if 0 in shape or offset + low < 0 or math.prod(shape) > 512:
        return None
    last = offset + sum(max(0, way) for way in ways)
    return Cells(range(max(last + 1, count or 0)),
                 Geometry(shape, strides, offset), "numbered")


def cells(value):
    """A value's numbers as cells, or None if it is not made of numbers."""
    if hasattr(value, "tolist"):
        if all(hasattr(value, p) for p in ("storage", "geometry", "dtype")):
            return value
        value = value.tolist()
    if isinstance(value, bytes):
        value, kind = list(value), "byte"
    elif isinstance(value, list):
        kind = "number"
    else:           # a tuple is a shape, or so
        return None
    shape = shape_of(value)
    if not shape or not 0 < math.prod(shape) <= MOST:
        return None
    flat = value
    for _ in shape[1:]:
        flat = [v for row in flat for v in row]
    if any(type(v) not in (int, float, bool) for v in flat):
        return None
    steps = tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))
    return Cells(flat, Geometry(shape, steps, 0), kind)


def shape_of(value):
    """The shape of a regular nested list; () for what is none."""
    if not isinstance(value, list | tuple):
        return ()
    inner = {shape_of(v) for v in value}
    if len(inner) > 1:
        raise ValueError("rows of different lengths")
    return (len(value), *(inner.pop() if inner else ()))


def graph(parents, locals):
    """{node: its parents}, arrows the way the numbers go."""
    dot = figures._flow()
    number = {node: f"n{i}" for i, node in enumerate(parents)}
    for node, name in number.items():
        dot.node(name, figures._ascii(node), fillcolor=(
            figures.RESULT if parents[node] else figures.LEAF))
    for node, name in number.items():
        for k, parent in enumerate(parents[node]):
            label = locals and figures._short(locals[node][k])
            dot.edge(number[parent], name, label=label)
    dot.words = f"graph: {len(parents)} nodes"
    return dot
