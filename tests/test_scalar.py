"""Chapter 07: derivatives, orders, accumulation, ownership, errors."""

import gc
import math
import random
import subprocess
import sys
import threading
import tracemalloc
import weakref

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lamina.scalar import (
    Dual, Value, creation_order, depth_first_order, kahn_order,
    weighted_sum,
)

ORDERS = [depth_first_order, kahn_order, creation_order]


def worked_example(w, x, b, t):
    prediction = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + b
    return prediction, (prediction - t) ** 2


def test_the_worked_example_is_exact():
    w = [Value(0.5), Value(-1), Value(2)]
    b = Value(0.5)
    prediction, loss = worked_example(w, [4, 3, 2], b, 2.5)
    loss.backward()
    assert prediction.data == 3.5
    assert loss.data == 1.0
    assert b.grad == 2.0
    assert [v.grad for v in w] == [8.0, 6.0, 4.0]


def test_the_worked_example_forward():
    for i, expected in enumerate([8.0, 6.0, 4.0, 2.0]):
        n = [Dual(v, float(i == k)) for k, v in enumerate([0.5, -1, 2, 0.5])]
        _, loss = worked_example(n[:3], [4, 3, 2], n[3], 2.5)
        assert (loss.data, loss.tangent) == (1.0, expected)


# --- each operator against central differences and its own formula -----

UNARY = {
    "neg": (lambda x: -x, (-3.0, 0.0, 2.0)),
    "exp": (lambda x: x.exp(), (-3.0, 0.0, 2.0)),
    "log": (lambda x: x.log(), (0.1, 1.0, 7.0)),
    "tanh": (lambda x: x.tanh(), (-3.0, 0.0, 0.7)),
    "relu": (lambda x: x.relu(), (-3.0, 2.0)),
    "square": (lambda x: x ** 2, (-3.0, 0.0, 2.0)),
    "cube": (lambda x: x ** 3, (-3.0, 0.0, 2.0)),
    "root": (lambda x: x ** 0.5, (0.5, 4.0)),
    "inverse": (lambda x: x ** -1, (-3.0, 2.0)),
    "zeroth": (lambda x: x ** 0, (-3.0, 0.0, 2.0)),
    "2 + x": (lambda x: 2 + x, (-3.0, 2.0)),
    "x + 2": (lambda x: x + 2, (-3.0, 2.0)),
    "2 - x": (lambda x: 2 - x, (-3.0, 2.0)),
    "x - 2": (lambda x: x - 2, (-3.0, 2.0)),
    "2 * x": (lambda x: 2 * x, (-3.0, 2.0)),
    "x * 2": (lambda x: x * 2, (-3.0, 2.0)),
    "2 / x": (lambda x: 2 / x, (-3.0, 2.0)),
    "x / 2": (lambda x: x / 2, (-3.0, 2.0)),
    "2 ** x": (lambda x: 2 ** x, (-3.0, 0.0, 2.0)),
    "x ** x": (lambda x: x ** x, (0.5, 2.0)),
    "+x": (lambda x: +x, (-3.0, 2.0)),
    "abs": (abs, (-3.0, 2.0)),
    "sqrt": (lambda x: x.sqrt(), (0.5, 4.0)),
    "sin": (lambda x: x.sin(), (-3.0, 0.0, 2.0)),
    "cos": (lambda x: x.cos(), (-3.0, 0.0, 2.0)),
    "sigmoid": (lambda x: x.sigmoid(), (-30.0, -3.0, 0.0, 2.0, 30.0)),
}
BINARY = {
    "pow": lambda x, y: (x * x + 1) ** y,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def reverse(f, *point):
    leaves = [Value(x) for x in point]
    root = f(*leaves)
    root.backward()
    return root.data, [leaf.grad or 0.0 for leaf in leaves]


def forward(f, *point):
    slopes = []
    for i in range(len(point)):
        root = f(*[Dual(x, float(i == k)) for k, x in enumerate(point)])
        slopes.append(root.tangent)
    return root.data, slopes


def central(f, *point, step=1e-5):
    """Differences of plain evaluations: no derivative code is used."""
    slopes = []
    for i in range(len(point)):
        there, back = list(point), list(point)
        there[i] += step
        back[i] -= step
        rise = f(*map(Value, there)).data - f(*map(Value, back)).data
        slopes.append(rise / (there[i] - back[i]))
    return slopes


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    f, points = UNARY[name]
    for x in points:
        value, slopes = reverse(f, x)
        assert slopes == pytest.approx(central(f, x), rel=1e-6, abs=1e-6)
        assert forward(f, x) == (value, pytest.approx(slopes, rel=1e-12))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("point", [(3.0, 2.0), (-1.5, 0.25), (0.0, -4.0)])
def test_binary(name, point):
    f = BINARY[name]
    value, slopes = reverse(f, *point)
    assert value == f(*point)       # the same operator on plain floats
    assert slopes == pytest.approx(central(f, *point), rel=1e-6, abs=1e-6)
    assert forward(f, *point) == (value, pytest.approx(slopes, rel=1e-12))


def test_values_match_the_math_module():
    assert Value(2.0).exp().data == math.exp(2.0)
    assert Value(2.0).log().data == math.log(2.0)
    assert Value(2.0).tanh().data == math.tanh(2.0)
    assert Value(2.0).sqrt().data == math.sqrt(2.0)
    assert Value(2.0).sin().data == math.sin(2.0)
    assert Value(2.0).cos().data == math.cos(2.0)
    assert Value(0.0).sigmoid().data == 0.5
    assert (2 ** Value(0.5)).data == 2 ** 0.5
    assert abs(Value(-2.0)).data == 2.0
    assert Value(-2.0).relu().data == 0.0
    assert (Value(2.0) ** -3).data == 0.125


@pytest.mark.parametrize("kind", [Value, Dual])
def test_sigmoid_overflows_nowhere(kind):
    assert kind(-1e6).sigmoid().data == 0.0
    assert kind(1e6).sigmoid().data == 1.0


def test_abs_has_no_slope_at_zero():
    assert reverse(abs, 0.0) == (0.0, [0.0])
    assert forward(abs, 0.0) == (0.0, [0.0])


def test_functions_say_what_they_are():
    for kind in Value, Dual:
        assert kind.exp.__name__ == "exp"
        assert "its slope is itself" in kind.exp.__doc__


def test_a_plain_number_is_no_part_of_the_graph():
    x = Value(3.0)
    for y, op in ((2 * x, "* 2"), (x * 2, "* 2"), (2 - x, "2 -"),
                  (x - 2, "- 2"), (2 / x, "2 /"), (2 ** x, "2 **"),
                  (x ** 2, "** 2"), (x + 0.5, "+ 0.5")):
        assert y.parents == (x,) and len(y.locals) == 1
        assert y.op == op
    y = x * x
    assert y.parents == (x, x) and y.locals == (3.0, 3.0)
    assert x.parents == x.locals == ()


def test_relu_has_no_slope_at_zero():
    assert reverse(lambda x: x.relu(), 0.0) == (0.0, [0.0])
    assert forward(lambda x: x.relu(), 0.0) == (0.0, [0.0])


def test_division_by_a_tiny_number():
    """The square of the divisor would be zero."""
    value, slopes = reverse(BINARY["div"], 1e-200, 1e-200)
    assert (value, slopes) == (1.0, [1e200, -1e200])
    assert forward(BINARY["div"], 1e-200, 1e-200) == (1.0, slopes)


# --- random graphs ------------------------------------------------------

def build(program, leaves):
    """Run a list of (operator, i, j) over numbers of any kind."""
    made = list(leaves)
    for op, i, j in program:
        x, y = made[i % len(made)], made[j % len(made)]
        if op == "add":
            made.append(x + y)
        elif op == "sub":
            made.append(x - y)
        elif op == "mul":
            made.append(x * y)
        elif op == "div":
            made.append(x / (y * y + 1))
        elif op == "tanh":
            made.append(x.tanh())
        elif op == "exp":
            made.append(x.tanh().exp())
        elif op == "log":
            made.append((x * x + 1).log())
        elif op == "pow":
            made.append(x ** 2)
        elif op == "neg":
            made.append(-x)
    return made[-1]


OPERATIONS = ["add", "sub", "mul", "div", "tanh", "exp", "log", "pow", "neg"]
PROGRAMS = st.lists(st.tuples(st.sampled_from(OPERATIONS),
                              st.integers(0, 99), st.integers(0, 99)),
                    min_size=1, max_size=10)
POINTS = st.lists(st.floats(-2, 2), min_size=2, max_size=3)


@settings(deadline=None)
@given(PROGRAMS, POINTS)
def test_random_graphs(program, point):
    def f(*numbers):
        return build(program, numbers)

    value, slopes = reverse(f, *point)
    assume(abs(value) < 1e4 and all(abs(s) < 1e4 for s in slopes))
    ahead, tangents = forward(f, *point)
    assert ahead == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert tangents == pytest.approx(slopes, rel=1e-9, abs=1e-9)
    differences = central(f, *point)
    scale = max(1.0, abs(value), *map(abs, slopes))
    assert slopes == pytest.approx(differences, rel=1e-3, abs=1e-3 * scale)


@settings(deadline=None)
@given(PROGRAMS)
def test_the_orders_are_topological(program):
    root = build(program, [Value(0.5), Value(-0.25)])
    for order in ORDERS:
        values = order(root)
        place = {v: i for i, v in enumerate(values)}
        assert values[0] is root
        assert len(place) == len(values)
        for value in values:
            for parent in value.parents:
                assert place[value] < place[parent]
    assert (set(depth_first_order(root)) == set(kahn_order(root))
            == set(creation_order(root)))


def gradients_in(order, root):
    """The walk, written out over any order."""
    grads = dict.fromkeys(order(root), 0.0)
    grads[root] = 1.0
    for value in grads:
        for parent, local in zip(value.parents, value.locals):
            grads[parent] += local * grads[value]
    return grads


@settings(deadline=None)
@given(PROGRAMS)
def test_the_orders_give_the_same_gradients(program):
    leaves = [Value(0.5), Value(-0.25)]
    root = build(program, leaves)
    root.backward()
    for order in ORDERS:
        grads = gradients_in(order, root)
        for value, grad in grads.items():
            assert grad == pytest.approx(value.grad, rel=1e-9, abs=1e-12)


# --- accumulation ---------------------------------------------------------

def test_a_value_used_twice_gets_both_shares():
    a = Value(3.0)
    (a + a).backward()
    assert a.grad == 2.0


def test_a_shared_value_waits_for_all_its_users():
    a = Value(3.0)
    b = a + a
    (b + b).backward()
    assert a.grad == 4.0

    a = Value(3.0)
    b = a * a
    (b * (b + a)).backward()        # a^4 + a^3
    assert a.grad == 4 * 27 + 3 * 9


def test_many_paths_are_not_walked_one_by_one():
    a = x = Value(1.0)
    for _ in range(200):            # 2**200 paths
        x = x + x
    x.backward()
    assert a.grad == 2.0 ** 200


@pytest.mark.parametrize("cleared", [None, 0.0])
def test_stale_gradients_in_between_do_not_count(cleared):
    x = Value(3.0)
    y = x * x * x
    y.backward()
    assert x.grad == 27.0
    x.grad = cleared
    y.backward()
    assert x.grad == 27.0           # 45 with what the first walk left
    y.backward()
    assert x.grad == 54.0           # leaves add up


def test_two_roots_share_a_value():
    x = Value(2.0)
    shared = x * x
    (3 * shared).backward()
    (5 * shared).backward()
    assert x.grad == 3 * 4 + 5 * 4
    assert shared.grad == 5.0


def test_backward_starts_from_what_it_is_given():
    x = Value(2.0)
    (x * x).backward(0.5)
    assert x.grad == 2.0
    assert Value(1.0).grad is None
    leaf = Value(1.0)
    leaf.backward()
    leaf.backward(2)
    assert leaf.grad == 3.0


def test_what_is_not_behind_the_root_is_left_alone():
    x, y = Value(2.0), Value(3.0)
    later = x * y
    (x * x).backward()
    assert y.grad is None and later.grad is None


# --- long chains and ownership ------------------------------------------

def negated(leaf, times):
    for _ in range(times):
        leaf = -leaf
    return leaf


def test_a_chain_of_a_million_goes_backward():
    leaf = Value(1.0)
    negated(leaf, 1_000_000).backward()
    assert leaf.grad == 1.0


def test_memory_grows_linearly_and_is_free_again():
    peaks = []
    for length in 20_000, 80_000:
        tracemalloc.start()
        root = negated(Value(1.0), length)
        root.backward()
        peaks.append(tracemalloc.get_traced_memory()[1] / length)
        del root
        assert tracemalloc.get_traced_memory()[0] < 100_000
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]        # a set grows in leaps
    assert peaks[1] < 500           # bytes for each value, with the walk


def test_the_orders_do_not_recurse():
    x = Value(1.0)
    for _ in range(50_000):
        x = x * Value(1.0)
    for order in ORDERS:
        assert len(order(x)) == 100_001


def test_a_long_chain_dies_without_a_crash():
    """In a process of its own: a stack overflow would take pytest along."""
    code = ("from lamina.scalar import Value\n"
            "import gc; gc.disable()\n"
            "import threading; threading.stack_size(256 * 1024)\n"
            "def run():\n"
            "    x = Value(1.0)\n"
            "    for _ in range(300_000): x = -x\n"
            "    x.backward()\n"
            "    del x\n"
            "    print('alive')\n"
            "t = threading.Thread(target=run); t.start(); t.join()\n")
    done = subprocess.run([sys.executable, "-c", code], text=True,
                          capture_output=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done


def test_a_graph_dies_by_reference_counting():
    gc.disable()
    try:
        x = Value(0.5)
        y = (x * 2 + x.tanh() / 3 - x ** 2).exp().log().relu()
        y = weighted_sum([x, y], [y, 2.0], y) * y
        y.backward()
        watched = [weakref.ref(v) for v in depth_first_order(y)
                   if v is not x]
        del y
        assert [ref() for ref in watched] == [None] * len(watched)
        assert x.grad is not None
    finally:
        gc.enable()


def test_a_result_is_one_object():
    """For the garbage collector: no tuples, no closures, no dictionary."""
    a, b = Value(1.0), Value(2.0)
    for f in (lambda: a + b, lambda: a * b, lambda: a / b, lambda: 2 - a,
              lambda: a.tanh(), lambda: a ** 2):
        f()
        gc.collect()
        gc.disable()
        grown = []
        try:
            for _ in range(5):          # another thread may make some too
                before = gc.get_objects()
                result = f()
                grown.append(len(gc.get_objects()) - len(before))
                del before, result
        finally:
            gc.enable()
        # the list `before` is new as well
        assert min(grown) <= 2, f()


def test_values_have_no_dictionary():
    assert not hasattr(Value(1.0), "__dict__")
    assert not hasattr(Dual(1.0), "__dict__")


# --- what is refused --------------------------------------------------------

@pytest.mark.parametrize("kind", [Value, Dual])
@pytest.mark.parametrize("wrong", ["a", None, [1.0], 1j, b"1"])
def test_only_real_numbers(kind, wrong):
    with pytest.raises(TypeError, match="real number.*"
                       + type(wrong).__name__):
        kind(wrong)
    x = kind(1.0)
    for f in (lambda: x + wrong, lambda: wrong + x, lambda: x - wrong,
              lambda: wrong - x, lambda: x * wrong, lambda: wrong * x,
              lambda: x / wrong, lambda: wrong / x, lambda: x ** wrong,
              lambda: wrong ** x):
        with pytest.raises(TypeError):
            f()


def test_an_unknown_operand_has_its_turn():
    class Other:
        def __radd__(self, other):
            return "radd"

        def __rtruediv__(self, other):
            return "rtruediv"

    for x in (Value(1.0), Dual(1.0)):
        assert x + Other() == "radd"
        assert x / Other() == "rtruediv"


def test_the_two_kinds_do_not_mix():
    for f in (lambda: Value(1.0) + Dual(1.0), lambda: Dual(1.0) * Value(1.0),
              lambda: Dual(1.0) - Value(1.0)):
        with pytest.raises(TypeError):
            f()


@pytest.mark.parametrize("kind", [Value, Dual])
def test_numbers_that_have_no_derivative(kind):
    for x in (-1.0, 0.0):
        with pytest.raises(ValueError, match="positive"):
            kind(x).log()
    with pytest.raises(ValueError, match="whole exponent"):
        kind(-2.0) ** 0.5
    with pytest.raises(ValueError, match="no finite derivative"):
        kind(0.0) ** 0.5
    with pytest.raises(ValueError, match="sqrt.0.0.*positive"):
        kind(0.0).sqrt()
    with pytest.raises(ValueError, match="base of -2.0 has no derivative"):
        kind(-2.0) ** kind(2.0)
    with pytest.raises(ValueError, match="base of 0.0 has no derivative"):
        0 ** kind(2.0)
    with pytest.raises(ZeroDivisionError):
        kind(1.0) / kind(0.0)
    with pytest.raises(OverflowError, match="exp.1000"):
        kind(1000.0).exp()
    with pytest.raises(OverflowError, match="1e[+]200 [*][*] 2"):
        kind(1e200) ** 2


@pytest.mark.parametrize("wrong", ["1", None, Value(1.0)])
def test_backward_takes_a_number(wrong):
    x = Value(2.0)
    y = x * x
    with pytest.raises(TypeError):
        y.backward(wrong)
    assert x.grad is None and y.grad is None


def test_numbers_of_other_kinds():
    from fractions import Fraction

    assert Value(Fraction(1, 2)).data == 0.5
    assert type(Value(True).data) is float
    assert type((Value(2) ** 2).data) is float
    assert (Fraction(1, 2) * Value(2.0)).data == 1.0


def test_text_forms():
    x = Value(2.0)
    assert repr(x) == "Value(2.0)"
    (x * x).backward()
    assert repr(x) == "Value(2.0, grad=4.0)"
    assert repr(weighted_sum([x], [3.0])) == "Value(6.0)"
    assert repr(Dual(2, 1)) == "Dual(2.0, tangent=1.0)"


# --- one value of many inputs -------------------------------------------

@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), max_size=5),
       st.floats(-5, 5))
def test_weighted_sum_is_the_sum_of_products(pairs, start):
    made = []
    for together in True, False:
        w = [Value(a) for a, _ in pairs]
        x = [Value(b) for _, b in pairs]
        bias = Value(start)
        if together:
            y = weighted_sum(w, x, bias)
            assert len(creation_order(y)) == 2 * len(pairs) + 2
        else:
            y = sum((a * b for a, b in zip(w, x)), bias)
        (y * y).backward()
        made.append((y.data, [v.grad for v in (*w, *x, bias)]))
    assert made[0][0] == pytest.approx(made[1][0], rel=1e-12, abs=1e-12)
    assert made[0][1] == pytest.approx(made[1][1], rel=1e-9, abs=1e-9)


def test_weighted_sum_takes_plain_numbers():
    w, b = [Value(0.5), Value(-1), Value(2)], Value(0.5)
    loss = (weighted_sum(w, [4, 3, 2], b) - 2.5) ** 2
    loss.backward()
    assert (loss.data, b.grad) == (1.0, 2.0)
    assert [v.grad for v in w] == [8.0, 6.0, 4.0]
    assert weighted_sum([2.0], [3.0]).data == 6.0
    assert weighted_sum([], [], True).data == 1.0
    x = Value(3.0)
    weighted_sum([x, x], [x, 1.0]).backward()     # x * x + x
    assert x.grad == 7.0


def test_weighted_sum_can_be_walked_again():
    w = Value(2.0)
    y = weighted_sum([w], [w * 1.0])
    y.backward()
    y.backward()
    assert (w.grad, y.grad) == (8.0, 1.0)


def test_weighted_sum_refuses():
    with pytest.raises(ValueError, match="2 weights and 1 inputs"):
        weighted_sum([Value(1.0)] * 2, [Value(1.0)])
    with pytest.raises(TypeError, match="real number.*str"):
        weighted_sum([Value(1.0)], ["a"])


def test_threads_do_not_disturb_each_other():
    found = {}

    def run(start):
        x = Value(start)
        y = x
        for _ in range(3000):
            y = y * 1.0 + x
        y.backward()
        found[start] = x.grad

    threads = [threading.Thread(target=run, args=(float(i),))
               for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {float(i): 3001.0 for i in range(4)}


def test_a_neuron_learns():
    """Gradients are good for what they are for."""
    rng = random.Random(0)
    points = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(20)]
    w = [Value(0.1), Value(0.1), Value(0.0)]

    def loss_of():
        losses = [((w[0] * x + w[1] * y + w[2]).tanh()
                   - (1.0 if x > y else -1.0)) ** 2 for x, y in points]
        return sum(losses) / len(losses)

    first = loss_of().data
    for _ in range(50):
        for v in w:
            v.grad = None
        loss_of().backward()
        for v in w:
            v.data -= 0.5 * v.grad
    assert loss_of().data < 0.3 * first
