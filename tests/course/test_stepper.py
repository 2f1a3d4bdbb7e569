"""Backward step by step: what each step says, and a page that repeats."""

import os
import re
import subprocess
import sys
import urllib.parse
import xml.dom.minidom

import pytest

from course.stepper import SIGNS, stepper


class Value:
    """A stand-in for chapter 7's."""

    grad = None

    def __init__(self, data, op="", parents=(), locals=(), label=""):
        self.data, self.op, self.label = data, op, label
        self.parents, self.locals = parents, locals

    def __add__(self, other):
        return Value(self.data + other.data, "+", (self, other), (1.0, 1.0))

    def __mul__(self, other):
        return Value(self.data * other.data, "*", (self, other),
                     (other.data, self.data))


class Node:
    """A node of the protocol whose gradients are no numbers."""

    def __init__(self, name, *inputs, share=lambda g: g):
        self.name, self.inputs, self.value = name, inputs, "[2, 3]"
        self.share = share

    def contributions(self, grad):
        return [self.share(grad) for _ in self.inputs]


class Shape(tuple):
    """A gradient that can be added, like a tensor."""

    def __add__(self, other):
        return Shape(a + b for a, b in zip(self, other))


def shared():
    """d = b * (b + a) with b = a * a, at 3: a waits for three shares."""
    a = Value(3.0, label="a")
    b = a * a
    b.label = "b"
    c = b + a
    d = b * c
    d.label = "d"
    return d


def words(stepped):
    return [step["words"] for step in stepped.steps]


def test_every_step_says_what_is_handed_to_whom():
    assert words(stepper(shared())) == [
        "Before the first step: d has gradient 1, and nothing else has one.",
        "d (*) has gradient 1. It hands 1 \u00d7 12 = 12 to b; "
        "1 \u00d7 9 = 9 to v1.",
        "v1 (+) has gradient 9. It hands 9 \u00d7 1 = 9 to b, which had 12 "
        "and now has 21; 9 \u00d7 1 = 9 to a.",
        "b (*) has gradient 21. It hands 21 \u00d7 3 = 63 to a, which had 9 "
        "and now has 72; 21 \u00d7 3 = 63 to a, which had 72 and now has "
        "135.",
        "Done. The gradients of the leaves: a 135."]


def test_gradients_appear_where_they_accumulate():
    stepped = stepper(shared())
    place = stepped.names.index("b")
    seen = [(s["grads"][place], s["states"][place]) for s in stepped.steps]
    assert seen == [(None, "none"), ("12", "some"), ("21", "done"),
                    ("21", "now"), ("21", "done")]
    a = stepped.names.index("a")
    assert stepped.steps[2]["edges"].keys() == {"1-0", "1-1"}
    assert [s["grads"][a] for s in stepped.steps] == [
        None, None, "9", "135", "135"]


def test_negative_numbers_and_names():
    x = Value(-2.0)
    y = x * Value(3.0, label="k")
    stepped = stepper(y, names={"x": x, "y": y}, seed=-1.0)
    assert words(stepped)[1] == (
        "y (*) has gradient \u22121. It hands \u22121 \u00d7 3 = \u22123 to "
        "x; \u22121 \u00d7 \u22122 = 2 to k.")


def test_a_name_is_given_once():
    x = Value(1.0, label="v1")
    assert stepper(x + Value(2.0)).names == ["v3", "v2", "v1"]


def test_the_graph_is_left_as_it_is():
    root = shared()
    stepper(root)
    assert root.grad is None


def test_a_leaf_alone():
    stepped = stepper(Value(2.0, label="x"))
    assert words(stepped)[-1] == "Done. The gradients of the leaves: x 1."


def test_any_node_of_the_protocol():
    w, x = Node("w"), Node("x")
    product = Node("product", w, x)
    total = Node("sum", product, w)
    total.seed = Shape((1, 1))
    total.op = "sum"
    total.show = lambda grad: "x".join(map(str, grad))
    product.share = lambda grad: Shape(2 * g for g in grad)
    stepped = stepper(total)
    assert words(stepped)[1:] == [
        "sum (sum) has gradient 1x1. It hands 1x1 to product; 1x1 to w.",
        "product has gradient 1x1. It hands 2x2 to w, which had 1x1 and now "
        "has 3x3; 2x2 to x.",
        "Done. The gradients of the leaves: w 3x3, x 2x2."]
    assert "[2, 3]" in drawn(stepped)


def test_an_input_may_get_nothing():
    index, w = Node("index"), Node("w")
    picked = Node("picked", w, index)
    picked.contributions = lambda grad: [grad, None]
    stepped = stepper(picked)
    assert "1 to w; nothing to index" in words(stepped)[1]
    at = stepped.names.index("index")
    assert {s["states"][at] for s in stepped.steps} == {"none"}


@pytest.mark.parametrize("wrong", [3.0, None, object()])
def test_what_is_no_graph_is_refused(wrong):
    with pytest.raises(TypeError, match=f"{type(wrong).__name__}.*'name'"):
        stepper(wrong)


def test_too_many_values_are_refused():
    x = Value(1.0)
    for _ in range(60):
        x = Value(1.0, "neg", (x,), (-1.0,))
    with pytest.raises(ValueError, match="60 values.*61"):
        stepper(x)


def test_a_circle_is_refused():
    a = Node("a")
    b = Node("b", a)
    a.inputs = (b,)
    with pytest.raises(ValueError, match="circle"):
        stepper(b)


def test_a_long_graph_does_not_recurse():
    x = Value(1.0)
    for _ in range(20_000):
        x = Value(1.0, "neg", (x,), (-1.0,))
    with pytest.raises(ValueError, match="20001"):
        stepper(x)


# --- the page --------------------------------------------------------------

def drawn(stepped):
    """The picture that the page begins with."""
    source = re.search('src="data:image/svg.xml,([^"]*)"', stepped.html)[1]
    return urllib.parse.unquote(source)


def test_the_first_picture_and_a_table_of_all_steps():
    """What is there without a script."""
    stepped = stepper(shared())
    page = stepped.html.split("<script")[0]
    picture = drawn(stepped)
    for said in words(stepped):
        assert said in page
    assert page.count("<tr>") == len(stepped.steps) + 1
    assert picture.count('data-state="none"') == 3
    assert picture.count('data-state="done"') == 1
    for sign in SIGNS.values():
        assert f"<b>{sign}</b>" in page         # the legend
    assert "<button" not in page    # none without effect
    assert "<details open>" in page


def test_the_picture_is_well_formed():
    root = Value(1.0, "<&>", (Value(2.0, label="</script><b>"),), (1.0,))
    stepped = stepper(root)
    page = stepped.html
    xml.dom.minidom.parseString(drawn(stepped))
    assert "</script><b>" not in page
    assert page.count("</script>") == 2


def test_nothing_from_elsewhere_and_no_ids():
    stepped = stepper(shared())
    page = stepped.html + drawn(stepped)
    assert set(re.findall(r"https?://[^\"'% ]+", page)) == {
        "http://www.w3.org/2000/svg"}
    assert " id=" not in page
    assert "import(" not in page and "fetch(" not in page


def test_the_same_graph_gives_the_same_page_everywhere():
    code = ("import sys; sys.path[:0] = sys.argv[1:]\n"
            "from test_stepper import shared, stepper\n"
            "import hashlib\n"
            "page = stepper(shared()).html.encode()\n"
            "print(hashlib.sha256(page).hexdigest())\n")
    folder = os.path.dirname(__file__)
    made = {subprocess.run(
        [sys.executable, "-c", code, folder], text=True, check=True,
        capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}
        ).stdout for seed in ("0", "1")}
    assert len(made) == 1
    assert stepper(shared()).html == stepper(shared()).html
    other = shared()
    other.label = "e"
    name = re.compile(r'data-play="(\w+)"')
    assert name.search(stepper(other).html)[1] not in stepper(shared()).html


def test_it_says_in_plain_text_what_it_is():
    stepped = stepper(shared())
    bundle = stepped._repr_mimebundle_()
    assert bundle["text/plain"] == repr(stepped) == (
        "stepper: 4 values, 3 steps. Done. The gradients of the leaves: "
        "a 135.")
    assert bundle["text/html"] == stepped.html


def test_a_tensor_graph():
    lamina = pytest.importorskip("lamina")
    if not hasattr(lamina, "autograd"):
        pytest.skip("chapter 8 is not there")
    w = lamina.tensor([1.0, 2.0], requires_grad=True)
    b = lamina.tensor([[1.0], [2.0]], requires_grad=True)
    loss = (w * w + b).sum()
    shown = stepper(loss, names={"w": w, "b": b})
    assert set(shown.names) == {"sum", "add", "b", "mul", "w"}
    words = shown.steps[-1]["words"]
    assert "w [4, 8]" in words and "b [[2], [2]]" in words
    assert w.grad is None
    loss.backward()
    assert w.grad.tolist() == [4.0, 8.0]
    with pytest.raises(ValueError, match="operators of one result"):
        stepper(lamina.linalg_slogdet(b @ b.t())[1])
