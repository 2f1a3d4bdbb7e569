"""Drawings: the same everywhere, well-formed, small, and never stuck."""

import collections
import os
import re
import struct
import subprocess
import sys
import time
import types
import xml.dom.minidom
from typing import NamedTuple

import pytest

from course import figures
from course.figures import bits_of, bytes_of, graph, memory, ownership, walk

ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


# --- stand-ins for what the chapters build -----------------------------

class Geometry(NamedTuple):
    shape: tuple
    strides: tuple
    offset: int = 0


class Dtype(NamedTuple):
    name: str
    code: str

    @property
    def itemsize(self):
        return struct.calcsize(self.code)


class Storage:
    def __init__(self, data):
        self.bytes = memoryview(bytearray(data))

    def nbytes(self):
        return len(self.bytes)

    def read(self, dtype, i):
        return struct.unpack_from(dtype.code, self.bytes,
                                  i * dtype.itemsize)[0]


class Tensor:
    grad_fn = grad = None

    def __init__(self, storage, dtype, *geometry):
        self.storage, self.dtype = storage, dtype
        self.geometry = Geometry(*geometry)
        self.shape = self.geometry.shape

    def tolist(self):
        if self.shape == ():
            return self.storage.read(self.dtype, 0)
        return [self.storage.read(self.dtype, i)
                for i in range(self.shape[0])]


class Value:
    def __init__(self, data, parents=(), locals=(), op="", label=""):
        self.data, self.grad, self.op, self.label = data, 0.0, op, label
        self.parents, self.locals = parents, locals


class Node:
    """PyTorch's protocol of graph nodes."""

    def __init__(self, name, *parents):
        self.next_functions = tuple((p, 0) for p in parents)
        self.name = lambda: name


def accumulate(tensor):
    node = Node("AccumulateGrad")
    node.variable = tensor
    return node


float32, int64, uint8 = Dtype("float32", "f"), Dtype("int64", "q"), Dtype(
    "uint8", "B")


def twelve():
    return Storage(struct.pack("12f", *range(12)))


def chain(length):
    value = Value(1.0)
    for _ in range(length):
        value = Value(1.0, (value,), (1.0,), "tanh")
    return value


def tensor_graph(depth=1):
    w = Tensor(twelve(), float32, (3,), (1,))
    w.grad = Tensor(twelve(), float32, (3,), (1,))
    node = accumulate(w)
    for _ in range(depth):
        node = Node("MulBackward0", node, None)
    out = Tensor(twelve(), float32, (), ())
    out.grad_fn = Node("SumBackward0", node)
    return w, out


class Walk:
    """What walk() reads of a TensorIterator: a row against a matrix."""

    Loop = collections.namedtuple("Loop", "dims size")
    loops = [Loop((1, 2), 6), Loop((0,), 2)]
    starts = (0, 3)

    def __iter__(self):
        return ((i, 3 + i % 6) for i in range(12))


def drawings():
    """One of each, as (name, SVG, words)."""
    s = twelve()
    x = Tensor(s, float32, (3, 4), (4, 1))
    a = Value(0.5, label="w₁ <&> é\\n\"")
    square = Value(0.25, (a, a), (0.5, 0.5), "*")
    w, out = tensor_graph()
    made = {
        "memory": memory(x, title="x < y"),
        "shared": memory(x, Tensor(s, float32, (4, 3), (1, 4)),
                         names=["x", "x.T"]),
        "walk": walk(Walk(), names=["a < b", "c"]),
        "bytes": bytes_of(s, float32, uint8),
        "scalar graph": graph(square),
        "tensor graph": graph(out, names={"w é": w}),
    }
    for name, drawing in made.items():
        bundle = getattr(drawing, "_repr_mimebundle_", dict)()
        yield (name, bundle.get("image/svg+xml") or drawing._repr_svg_(),
               repr(drawing))


NAMES = [name for name, _, _ in drawings()]


@pytest.fixture(params=NAMES)
def drawn(request):
    return next(d for d in drawings() if d[0] == request.param)


def texts(svg):
    """What the text elements of a picture say, in order."""
    tree = xml.dom.minidom.parseString(svg)
    return ["".join(n.data for n in t.childNodes)
            for t in tree.getElementsByTagName("text")]


def test_a_walk_labels_cells_with_steps():
    drawing = walk(Walk(), names=["x", "row"])
    found = texts(drawing._repr_svg_())
    assert found[0] == ("innermost loop: 6 steps over dimensions 1 and 2; "
                        "then 2 steps over dimension 0")
    assert found[1:].count("12") == 1           # the last step, in x
    assert [t for t in found if ", " in t and "loop" not in t] == [
        f"{i}, {i + 6}" for i in range(1, 7)]
    assert "row is visited at 3 4 5 6 7 8 3" in repr(drawing)


# --- of every drawing -----------------------------------------------------

def test_well_formed_small_and_plain(drawn):
    name, svg, words = drawn
    tree = xml.dom.minidom.parseString(svg).documentElement
    assert tree.tagName == "svg"
    assert len(svg) < 100_000
    for text in (svg, words):
        assert not ADDRESS.search(text)
        assert os.path.expanduser("~") not in text
    assert not re.search(r"<!--|<\?xml|<!DOCTYPE|graphviz", svg)
    assert not re.search(r'\bid="', svg)      # two on a page would clash
    assert "max-width:100%" in tree.getAttribute("style")


def test_says_in_words_what_it_shows(drawn):
    _, svg, words = drawn
    tree = xml.dom.minidom.parseString(svg)
    assert tree.documentElement.getAttribute("role") == "img"
    assert tree.getElementsByTagName("title")[0].firstChild.data
    assert tree.getElementsByTagName("desc")[0].firstChild.data == words


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
             for p in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a, b):
    a, b = sorted((luminance(a), luminance(b)))
    return (b + 0.05) / (a + 0.05)


def test_stands_on_a_card_of_its_own(drawn):
    """The first rectangle covers the whole picture, whatever the page."""
    _, svg, _ = drawn
    tree = xml.dom.minidom.parseString(svg)
    card = tree.getElementsByTagName("rect")[0]
    box = tree.documentElement.getAttribute("viewBox").split()
    assert [card.getAttribute(k) for k in ("x", "y", "width", "height")] \
        == box
    assert card.getAttribute("fill") == figures.CARD


def test_text_is_legible():
    fills = ["#%02x%02x%02x" % c for c in figures.SCALE]
    fills += [figures.CARD, figures.LEAF, figures.RESULT, figures.OPERATOR]
    for fill in fills:
        assert contrast(figures.INK, fill) >= 7
    assert contrast(figures.SOFT, figures.CARD) >= 4.5
    assert contrast(figures.SOFT, figures.EMPTY) >= 4.5
    for fill in (figures.CARD, figures.LEAF, figures.RESULT):
        assert contrast(figures.GRAD, fill) >= 4.5
    # the order shows without hue: each step is darker
    light = [luminance(f) for f in fills[:len(figures.SCALE)]]
    assert light == sorted(light, reverse=True)


def test_two_processes_draw_the_same_bytes():
    code = ("import sys, hashlib; sys.path[:0] = sys.argv[1:]\n"
            "import test_figures\n"
            "for name, svg, words in test_figures.drawings():\n"
            "    print(name, hashlib.sha256((svg + words)"
            ".encode()).hexdigest())\n")
    path = [os.path.dirname(__file__),
            os.path.dirname(os.path.dirname(figures.__file__))]
    printed = []
    for seed, locale in (("1", "C.UTF-8"), ("2", "C")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale,
               "PYTHONDONTWRITEBYTECODE": "1"}
        printed.append(subprocess.run(
            [sys.executable, "-c", code, *path], env=env, text=True,
            check=True, capture_output=True, timeout=120).stdout)
    assert printed[0].count("\n") == len(NAMES)
    assert printed[0] == printed[1]


# --- memory -----------------------------------------------------------------

def test_memory_labels_each_cell_with_its_index():
    x = Tensor(twelve(), float32, (2, 2), (4, 2), 1)
    drawing = memory(x)
    said = texts(drawing.svg)
    read = {1: "[0, 0]", 3: "[0, 1]", 5: "[1, 0]", 7: "[1, 1]"}
    assert [t for t in said if t.startswith("[")] == list(read.values())
    assert "12 float32 cells" in said
    assert repr(drawing) == ("memory: 12 float32 cells; "
                             "shape [2, 2] reads 1 3 5 7")
    # exactly the cells that nobody reads are dashed
    assert drawing.svg.count("stroke-dasharray") == 12 - len(read)


def test_memory_shows_who_shares():
    s = twelve()
    x = Tensor(s, float32, (3, 4), (4, 1))
    row = Tensor(s, float32, (4,), (1,), 4)
    copy = Tensor(twelve(), float32, (2,), (1,))
    drawing = memory(x, row, copy, names=["x", "row", "copy"])
    assert repr(drawing) == (
        "memory: 12 float32 cells; "
        "x [3, 4] reads 0 1 2 3 4 5 6 7 8 9 10 11; row [4] reads 4 5 6 7; "
        "memory: 12 float32 cells; copy [2] reads 0 1")
    said = texts(drawing.svg)
    assert said.count("12 float32 cells") == 2      # two storages
    assert said.count("[3]") == 1


def test_memory_order_is_the_readers_not_the_storages():
    t = Tensor(twelve(), float32, (4, 3), (1, 4))
    assert repr(memory(t)).endswith("reads 0 4 8 1 5 9 2 6 10 3 7 11")
    backwards = Tensor(twelve(), float32, (3,), (-2,), 5)
    assert repr(memory(backwards)).endswith("reads 5 3 1")


@pytest.mark.parametrize("geometry, reads, label", [
    (((5, 2), (0, 4), 1), "1 5", "[0, 1] ×5"),      # expanded
    (((), (), 3), "3", "[]"),                       # a scalar
    (((0, 4), (4, 1), 0), "none", None),            # empty
    (((4, 3), (1, 1), 0), "0 1 2 3 4 5", "[0, 1] ×2"),      # overlapping
])
def test_memory_of_odd_views(geometry, reads, label):
    drawing = memory(Tensor(twelve(), float32, *geometry))
    assert repr(drawing).endswith(f"reads {reads}")
    assert label is None or label in texts(drawing.svg)


def test_memory_of_nothing():
    drawing = memory(Tensor(Storage(b""), float32, (0,), (1,)))
    xml.dom.minidom.parseString(drawing.svg)
    assert "0 float32 cells" in texts(drawing.svg)


def test_memory_cuts_long_storages():
    s = Storage(bytes(8 * 1000))
    said = texts(memory(Tensor(s, int64, (1000,), (1,))).svg)
    assert "936 cells left out" in said
    # a view further on is shown where it is, cut on both sides
    said = texts(memory(Tensor(s, int64, (4,), (1,), 500)).svg)
    assert [t for t in said if t.endswith("left out")] == [
        "496 cells left out", "440 cells left out"]
    assert [t for t in said if t.startswith("[")] == [
        "[0]", "[1]", "[2]", "[3]"]


def test_memory_of_a_gigabyte_costs_no_more():
    class Huge:
        def nbytes(self):
            return 10 ** 9

        def read(self, dtype, i):
            return 7

    start = time.perf_counter()
    big = memory(Tensor(Huge(), uint8, (10 ** 4, 10 ** 5), (10 ** 5, 1)),
                 Tensor(Huge(), uint8, (10 ** 9,), (0,)))
    assert time.perf_counter() - start < 1
    assert len(big.svg) < 100_000
    assert "[0] ×1000000000" in texts(big.svg)


def test_memory_refuses():
    x = Tensor(twelve(), float32, (3,), (1,))
    with pytest.raises(TypeError, match="this int has no 'storage'"):
        memory(3)
    with pytest.raises(TypeError, match="bytes_of"):
        memory(twelve())
    with pytest.raises(ValueError, match="2 tensors and 1 names"):
        memory(x, x, names=["x"])
    other = Tensor(x.storage, uint8, (3,), (1,))
    with pytest.raises(ValueError, match="float32 .4 bytes. and uint8"):
        memory(x, other)


# --- bytes ------------------------------------------------------------------

def test_bytes_under_elements():
    s = Storage(struct.pack("2f", 1.0, -2.5))
    drawing = bytes_of(s, float32, uint8)
    said = texts(drawing.svg)
    assert said.count("80") == 1 and "3f" in said
    assert "-2.5" in said and "63" in said
    assert repr(drawing) == ("bytes: 00 00 80 3f 00 00 20 c0; float32 1 "
                             "-2.5; uint8 0 0 128 63 0 0 32 192")


def test_bytes_of_a_tensor_and_of_plain_bytes():
    x = Tensor(twelve(), float32, (3, 4), (4, 1))
    assert "float32" in texts(bytes_of(x).svg)
    assert repr(bytes_of(b"\x01\xff")) == "bytes: 01 ff"
    assert "2 bytes" in texts(bytes_of(bytearray(2)).svg)
    assert "9936 bytes left out" in texts(bytes_of(bytes(10_000)).svg)
    # three bytes hold no float
    assert repr(bytes_of(Storage(bytes(3)), float32)) == (
        "bytes: 00 00 00; float32 none")


def test_bytes_of_refuses():
    with pytest.raises(TypeError, match="got list"):
        bytes_of([1, 2])
    with pytest.raises(TypeError, match="bytes has no read"):
        bytes_of(b"1234", float32)


def test_bytes_of_every_dtype():
    storage = pytest.importorskip("lamina.storage")
    s = storage.Storage(bytearray(b"\x80\x3f\x20\xc0\0\x7c\xff\xff"))
    drawing = bytes_of(s, *storage.dtypes.values())
    words = repr(drawing).split("; ")
    assert "bool True True True True False True True True" in words
    assert "int16 16256 -16352 31744 -1" in words
    assert "float16 1.875 -2.062 inf nan" in words
    assert "bfloat16 1 -2.5 2.658e+36 nan" in words
    assert f"int64 {s.read(storage.int64, 0)}" in words
    said = texts(drawing.svg)
    assert set(storage.dtypes) <= set(said)


# --- bits -------------------------------------------------------------------

def test_bits_of_floats_are_cut_into_fields():
    storage = pytest.importorskip("lamina.storage")
    drawing = bits_of(-0.1, storage.float32, storage.bfloat16,
                      storage.float16, storage.float64)
    words = repr(drawing).split("; ")
    assert words[0] == ("float32 sign 1, exponent 01111011, fraction "
                        "10011001100110011001101: -0.10000000149011612")
    assert words[1] == ("bfloat16 sign 1, exponent 01111011, fraction "
                        "1001101: -0.10009765625")
    assert words[2].startswith("float16 sign 1, exponent 01011, fraction "
                               "1001100110:")
    assert words[3].startswith("float64 sign 1, exponent 01111111011, ")
    said = texts(drawing.svg)
    assert said.count("0") + said.count("1") == 32 + 16 + 16 + 64
    assert said.count("exponent") == 4


def test_bits_of_integers():
    storage = pytest.importorskip("lamina.storage")
    assert repr(bits_of(-2, storage.int8)) == "int8 sign 1, digits 1111110: -2"
    assert repr(bits_of(3, storage.uint8)) == "uint8 digits 00000011: 3"
    with pytest.raises(TypeError, match="needs a dtype"):
        bits_of(0.1)


# --- graphs -----------------------------------------------------------------

def test_graph_of_values():
    a, b = Value(0.5, label="a"), Value(4.0)
    product = Value(2.0, (a, b), (4.0, 0.5), "*")
    a.grad = 8.0
    dot = graph(product, names={"b": b})
    said = texts(dot.svg())
    for text in ("a", "b", "data 0.5", "grad 8", "*", "4", "data 2"):
        assert text in said
    assert repr(dot) == "graph: 3 values behind 2"
    assert dot.source.count("->") == 3


def test_a_value_without_a_gradient():
    a = Value(0.5)
    a.grad = None
    assert texts(graph(a).svg()) == ["data 0.5"]


def test_graph_of_tensors():
    w, out = tensor_graph()
    dot = graph(out, names={"w": w})
    said = texts(dot.svg())
    assert said == ["[] float32", "data 0", "Sum", "Backward0",
                    "Mul", "Backward0",
                    "w", "[3] float32", "grad [0, 1, 2]"]
    assert repr(dot) == "graph: 3 nodes behind a tensor of shape []"
    assert dot.source.count("->") == 3


def test_graph_of_a_leaf_tensor():
    w, _ = tensor_graph()
    assert "[3] float32" in texts(graph(w).svg())


def test_two_edges_between_the_same_boxes():
    a = Value(1.0)
    assert graph(Value(2.0, (a, a), (1.0, 1.0), "+")).source.count(
        "n1 -> n0op") == 2


@pytest.mark.parametrize("kind", ["values", "tensors"])
def test_a_long_chain_is_cut(kind):
    start = time.perf_counter()
    if kind == "values":
        root = chain(100_000)
        left = 100_001 - 100
    else:
        _, root = tensor_graph(100_000)
        left = 100_003 - 100
    svg = graph(root).svg()
    assert time.perf_counter() - start < 10
    assert f"{left} nodes left out" in texts(svg)
    assert len(svg) < 100_000
    if kind == "tensors":       # Node has no guard of its own on the way out
        node = root.grad_fn
        while node.next_functions:
            node, node.next_functions = node.next_functions[0][0], ()


def test_the_limit_is_a_limit():
    assert "8 nodes left out" in texts(graph(chain(10), limit=3).svg())
    assert "1 node left out" in texts(graph(chain(3), limit=3).svg())
    assert "left out" not in graph(chain(2), limit=3).svg()
    for wrong in (0, -1, 2.5, "all"):
        with pytest.raises(ValueError, match="limit"):
            graph(chain(3), limit=wrong)


def test_wide_graphs_are_small_enough():
    leaves = tuple(Value(float(i), label=f"w{i}") for i in range(500))
    svg = graph(Value(1.0, leaves, (1.0,) * 500, "sum")).svg()
    assert "401 nodes left out" in texts(svg)
    assert len(svg) < 100_000


def test_many_edges_to_what_is_left_out_become_one():
    leaves = tuple(Value(float(i)) for i in range(500))
    dot = graph(Value(1.0, leaves, (1.0,) * 500, "sum"), limit=5)
    assert dot.source.count("cut ->") == 1


def test_graph_refuses():
    with pytest.raises(TypeError, match="got int"):
        graph(3)


def test_no_dot_on_the_path(monkeypatch):
    monkeypatch.setenv("PATH", "")
    figures._program.cache_clear()
    assert "<svg" in graph(chain(2)).svg()


def test_a_readers_own_digraph_draws_after_ours(monkeypatch):
    import graphviz

    monkeypatch.setenv("PATH", "")
    graph(chain(1)).svg()
    own = graphviz.Digraph()
    own.edge("a", "b")
    assert "<svg" in own.pipe(format="svg", encoding="utf-8")


def test_without_a_renderer_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(figures.sysconfig, "get_path",
                        lambda *a, **k: str(tmp_path))
    monkeypatch.setattr(figures.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    figures._program.cache_clear()
    try:
        with pytest.raises(RuntimeError, match="pip install graphviz-pure"):
            graph(chain(1)).svg()
    finally:
        figures._program.cache_clear()


def test_drawing_is_quiet(capfd):
    graph(Value(1.0, label="∂L/∂w₁ é")).svg()
    assert capfd.readouterr() == ("", "")


def test_labels_survive():
    label = "a\\nb \"q\" <i>&amp; ∂ [x]"
    assert label in texts(graph(Value(1.0, label=label)).svg())
    a = Value(1.0)
    assert "÷ & \\n" in texts(
        graph(Value(1.0, (a,), (1.0,), "÷ & \\n")).svg())


def test_dot_text_is_ascii():
    assert graph(Value(1.0, label="∂é")).source.isascii()


# --- plots --------------------------------------------------------------

PLOT = """
import io, os, sys
sys.path[:0] = sys.argv[1:]
from course.figures import plots, _describe
plt = plots()
plt.switch_backend('svg')
fig, ax = plt.subplots()
ax.plot([1, 2, 3], label='loss')
ax.set(xlabel='step', ylabel='loss', title='A curve')
ax.legend()
out = io.StringIO()
fig.savefig(out, format='svg', metadata={'Date': None, 'Creator': None})
print(_describe(fig))
print(out.getvalue())
"""


def test_plots_repeat():
    source = os.path.dirname(os.path.dirname(figures.__file__))
    printed = [subprocess.run(
        [sys.executable, "-c", PLOT, source], text=True, check=True,
        capture_output=True, timeout=120, encoding="utf-8",
        env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")]
    assert printed[0] == printed[1]
    words, svg = printed[0].split("\n", 1)
    assert words == "figure: A curve (loss against step)"
    assert ">step</text>" in svg
    assert not ADDRESS.search(svg) and "dc:date" not in svg


def test_plots_in_a_kernel():
    """What a notebook stores: one SVG and words, the same twice."""
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    stored = []
    for _ in range(2):
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(
            f"import sys; sys.path[:0] = {sys.path!r}\n"
            "from course.figures import plots\n"
            "plt = plots()\n"
            "plt.plot([1, 2]); plt.title('A curve')\n"
            "plt.show()")])
        NotebookClient(book, timeout=120, kernel_name="python3").execute()
        outputs = [o for o in book.cells[0].outputs
                   if o.output_type == "display_data"]
        assert len(outputs) == 1
        stored.append(outputs[0].data)
    assert stored[0] == stored[1]
    assert set(stored[0]) == {"image/svg+xml", "text/plain"}
    assert stored[0]["text/plain"] == "figure: A curve"
    svg = stored[0]["image/svg+xml"]
    assert svg.startswith("<svg ") and "dc:" not in svg
    assert "<desc>figure: A curve</desc>" in svg


def test_a_plot_keeps_its_words_when_it_is_made_small():
    raw = ('<?xml version="1.0"?>\n<svg width="72.004pt" height="36pt" '
           'viewBox="0 0 72 36">\n <metadata>m</metadata>\n'
           ' <g id="axes_1">\n  <path id="m1" d="M 1.23456 -0.00049 \nL 2 3 \n'
           '" style="fill: none; stroke: #000000"/>\n  <g>\n'
           '   <use xlink:href="#m1" x="1.00049" style="stroke: #0072b2"/>\n'
           '   <use xlink:href="#m1" x="2" style="stroke: #0072b2"/>\n'
           '  </g>\n  <text x="5.55555">step: 0.00125</text>\n </g>\n</svg>\n')
    small = figures._tidy(raw, "a < b")
    assert "<desc>a &lt; b</desc>" in small and "metadata" not in small
    assert 'd="M 1.23 0L 2 3"' in small
    assert '>step: 0.00125</text>' in small         # not a coordinate
    assert 'id="m1"' in small and "axes_1" not in small
    assert small.count("#0072b2") == 1
    assert figures._tidy(small, "again") == small


# --- the module itself --------------------------------------------------

def test_importing_figures_needs_the_standard_library_alone():
    code = ("import sys; sys.path[:0] = sys.argv[1:]\n"
            "import course.figures\n"
            "print(*sorted({'graphviz', 'matplotlib', 'numpy', 'IPython'}"
            " & set(sys.modules)))")
    source = os.path.dirname(os.path.dirname(figures.__file__))
    done = subprocess.run([sys.executable, "-c", code, source], text=True,
                          check=True, capture_output=True)
    assert done.stdout.strip() == ""


def test_drawing_asks_no_more_than_it_says():
    """memory() reads storage, geometry and dtype, and nothing else."""
    s = twelve()
    x = types.SimpleNamespace(storage=s, dtype=float32,
                              geometry=Geometry((2,), (1,)))
    assert "[1]" in texts(memory(x).svg)


# --- dispatch ---------------------------------------------------------

def test_the_way_of_a_call():
    def first(): pass
    def second(): pass
    def wrap(): pass

    class Device(NamedTuple):
        bit: int
        type: str

        def __str__(self):
            return self.type

    operator = types.SimpleNamespace(
        schema=types.SimpleNamespace(name="mul<"), table={17: wrap},
        kernels={1: first, 2: second, 8 | 1: wrap})     # 8: a layout
    devices = {name: Device(bit, name) for bit, name in ((1, "a"), (2, "b"))}
    seen = [figures.dispatch(operator, keys, {16: wrap}, devices)
            for keys in (17, 2)]
    assert [repr(dot) for dot in seen] == [
        "the way of a call: mul<, then wrap, then a: first",
        "the way of a call: mul<, then b: second"]
    through, straight = (dot.source for dot in seen)
    assert "wrap + a" in through and "in the table" in through
    assert "layer16 -> kernel1\n" in through
    assert "layer16 -> kernel2 [" in through        # dashed
    assert "not in the table yet" in straight and "mul&lt;" in straight
    assert "call -> kernel2\n" in straight
    assert "kernel9" not in through + straight
    xml.dom.minidom.parseString(seen[0].svg())


def test_the_table_of_kernels():
    def own(): pass

    def operator(name, kernels, table=(), base=None, composite=None):
        return types.SimpleNamespace(
            schema=types.SimpleNamespace(name=name, full_name=name),
            kernels=kernels, table=dict.fromkeys(table), base=base,
            composite=composite)

    plain = operator("mul", {1: own, 16: own}, [1])
    view = operator("t", {0: own})
    columns = {"here": (1, 0), "there": (2, 0), "thin": (1, 16)}
    drawn = figures.table(
        [plain, view, operator("mul_", {}, base=plain),
         operator("sum", {}, composite=own)], columns, {2: own})
    assert repr(drawn) == (
        "kernels. mul: here: own, looked up; there: fallback; thin: for all "
        "devices. t: here: for all devices; there: for all devices; thin: "
        "none. mul_: here: from mul; there: from mul; thin: none. "
        "sum: here: composite; there: composite; thin: composite")
    assert {"mul", "here", "own", "fallback"} <= set(texts(drawn.svg))


def layers_of_tensors(count):
    lamina = pytest.importorskip("lamina")
    if not hasattr(lamina, "autograd"):
        pytest.skip("chapter 8 is not there")
    h = lamina.ones(2, requires_grad=True)
    for _ in range(count):
        h = (h * h + 1.0).tanh()
    return h


def test_a_node_says_what_it_has_saved():
    h = layers_of_tensors(1)
    said = texts(graph(h).svg())
    assert "saved result [2] v0" in said and "saved self [2] v0" in said
    h.detach().zero_()
    assert "now v1" in " ".join(texts(graph(h).svg()))
    h = layers_of_tensors(1)
    h.sum().backward()
    assert "result freed" in texts(graph(h).svg())


@pytest.mark.parametrize("count", [2, 3, 50, 1000])
def test_repeated_layers_are_folded(count):
    said = texts(graph(layers_of_tensors(count), fold=True).svg())
    folded = f"{count - 1} times more: Tanh, Add, Mul"
    assert (folded in said) == (count > 2)
    assert sum(t == "Tanh" for t in said) == (2 if count == 2 else 1)


def test_who_holds_whom():
    h = layers_of_tensors(1)
    drawn = ownership({"h": h})
    said = texts(drawn.svg())
    assert {"h", "TanhBackward0", "AccumulateGrad"} <= set(said)
    assert "storage, 8 bytes, v0" in said
    assert drawn.source.count("style=dashed") == 1      # the leaf, saved
    h.sum().backward()                  # what is saved goes, and the leaf
    assert "style=dashed" not in ownership({"h": h}).source
    leaf = h.detach().requires_grad_()
    assert ownership({"x": leaf}).source.count("style=dashed") == 1
    assert "TanhBackward0" not in texts(ownership({"h": h.detach()}).svg())
