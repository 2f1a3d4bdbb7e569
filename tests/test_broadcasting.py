"""Chapter 4: shapes, dtypes and values of the elementwise operators."""

import itertools
import math
import operator
import random
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from lamina.broadcasting import (
    PROMOTION, broadcast_shapes, elementwise, promote_types, quiet,
    read_table, result_type,
)
from lamina.dispatch import functions, log_operators, operators
from lamina.storage import dtypes, wrap
from lamina.strides import Tensor, row_major
from strategies import (
    ALL,
    any_dtypes, float_dtypes, int_dtypes, layouts, number_dtypes, numbers,
    same, shapes,
)

quick = settings(max_examples=60, deadline=None)
inf, nan = math.inf, math.nan
DEVICES = ("cpu", "python")
COMPARISONS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
               "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def three(call, *arguments):
    """call's answer on python, after cpu and meta gave the same."""
    def on(name):
        return call(*(a.on(name) if hasattr(a, "on") else a
                      for a in arguments))
    slow, fast, sizes = map(on, ("python", "cpu", "meta"))
    assert slow.shape == fast.shape == sizes.shape
    assert slow.dtype is fast.dtype is sizes.dtype
    assert [str(x.device) for x in (slow, fast, sizes)] == [
        "python", "cpu", "meta"]
    return slow, fast


def close(a, b, rtol):
    """Nested lists that are near to an array; inf and nan are exact."""
    a = np.array(a, float).reshape(b.shape)     # [] has no other sizes
    np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)
    return True


# --- shapes -----------------------------------------------------------

@quick
@given(st.lists(shapes(max_dims=4, max_size=3), max_size=3))
def test_shapes_join_as_numpys(several):
    try:
        expected = np.broadcast_shapes(*several)
    except ValueError:
        with pytest.raises(RuntimeError, match="do not broadcast"):
            broadcast_shapes(*several)
    else:
        assert broadcast_shapes(*several) == expected


def test_the_message_names_shapes_sizes_and_dimension():
    with pytest.raises(RuntimeError) as error:
        lamina.zeros(2, 3) + lamina.zeros(4, 1, 2)
    for part in ("[2, 3]", "[4, 1, 2]", "dimension 2", "3 and 2"):
        assert part in str(error.value)


def test_the_silent_bug():
    prediction = lamina.tensor([1.0, 2.0, 3.0])
    assert (prediction - prediction.view(3, 1)).shape == (3, 3)


# --- dtypes -----------------------------------------------------------

def test_the_table_is_symmetric_and_a_join():
    for a, b, c in itertools.product(dtypes.values(), repeat=3):
        assert promote_types(a, b) is promote_types(b, a)
        assert promote_types(a, a) is a
        assert promote_types(promote_types(a, b), c) is promote_types(
            a, promote_types(b, c))
    assert len(read_table(PROMOTION)) == len(dtypes) ** 2


# torch.promote_types, of PyTorch 2.13
@pytest.mark.parametrize("a, b, expected", [
    ("bool", "uint8", "uint8"), ("uint8", "int32", "int32"),
    ("int64", "float32", "float32"), ("int32", "float64", "float64"),
    ("float32", "float64", "float64"), ("bool", "float32", "float32"),
    ("int32", "int64", "int64"), ("uint8", "float32", "float32"),
])
def test_some_entries_of_the_table(a, b, expected):
    assert promote_types(dtypes[a], dtypes[b]) is dtypes[expected]


# torch.result_type, of PyTorch 2.13: a dtype's name with () is a tensor
# of no dimensions
@pytest.mark.parametrize("operands, expected", [
    (("uint8", 300), "uint8"), (("uint8", 0.5), "float32"),
    (("bool", 1), "int64"), (("bool", True), "bool"),
    (("float64", 1.5), "float64"), (("int32", 2.5), "float32"),
    (("float32", "float64()"), "float32"),
    (("int64", "float64()"), "float64"), (("uint8", "int64()"), "uint8"),
    (("bool", "uint8()"), "uint8"), (("int64()", "uint8()"), "int64"),
    (("uint8()", "uint8"), "uint8"), (("float32()", 1.5), "float32"),
    (("int32()", 1.5), "float32"), (("bool()", 1), "int64"),
    (("int32", "int64()", 1.5), "float32"), ((1, 2), "int64"),
    ((1, 2.5), "float32"), ((True, False), "bool"),
])
def test_ranks_of_operands(operands, expected):
    def made(x):
        if not isinstance(x, str):
            return x
        size = () if x.endswith("()") else (1,)
        return lamina.empty(size, dtype=dtypes[x.rstrip("()")])
    for order in itertools.permutations(operands):
        assert result_type(*map(made, order)) is dtypes[expected]


def test_a_float_rule_takes_the_default_dtype(device):
    x = lamina.tensor([1, 2], device=device)
    assert (x / 2).dtype is x.exp().dtype is lamina.float32
    lamina.set_default_dtype(lamina.float64)
    try:
        assert (x / 2).dtype is x.exp().dtype is lamina.float64
        assert (x + 0.5).dtype is lamina.float64
    finally:
        lamina.set_default_dtype(lamina.float32)


# --- values, against NumPy and across devices -------------------------

@st.composite
def pairs(draw, dtype=number_dtypes(), **more):
    """Two layouts whose shapes broadcast."""
    shape = draw(shapes(max_dims=3))
    sides = []
    for _ in range(2):
        kept = [draw(st.sampled_from([n, n, 1])) for n in shape]
        cut = draw(st.sampled_from([0, 0, len(shape) // 2]))
        sides.append(draw(layouts(dtype=dtype, shape=tuple(kept[cut:]),
                                  **more)))
    return sides


ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@quick
@given(pairs(dtype=number_dtypes()), st.sampled_from(sorted(ARITHMETIC)))
def test_arithmetic(pair, name):
    """In the dtype of the table, exactly: the numbers are small."""
    met = result_type(*(side.on("cpu") for side in pair))
    a, b = (side.array().astype(met.name) for side in pair)
    expected = ARITHMETIC[name](a, b)
    slow, fast = three(lambda x, y: getattr(x, name)(y), *pair)
    assert slow.dtype is met
    assert same(slow.tolist(), expected.tolist())
    assert same(fast.tolist(), expected.tolist())


@quick
@given(pairs(dtype=float_dtypes(), special=True),
       st.sampled_from(["add", "sub", "mul", "div"]))
def test_arithmetic_of_special_floats(pair, name):
    call = {**ARITHMETIC, "div": np.divide}[name]
    met = result_type(*(side.on("cpu") for side in pair))
    a, b = (side.array().astype(met.name) for side in pair)
    with np.errstate(all="ignore"):
        expected = call(a, b)
    for found in three(lambda x, y: getattr(x, name)(y), *pair):
        assert same(found.tolist(), expected.tolist())


@quick
@given(pairs(dtype=any_dtypes(), special=True),
       st.sampled_from(sorted(COMPARISONS)))
def test_comparisons(pair, name):
    met = result_type(*(side.on("cpu") for side in pair))
    a, b = (side.array().astype(met.name) for side in pair)
    expected = COMPARISONS[name](a, b)
    slow, fast = three(lambda x, y: getattr(x, name)(y), *pair)
    assert slow.dtype is lamina.bool
    assert slow.tolist() == fast.tolist() == expected.tolist()


@quick
@given(pairs(dtype=number_dtypes()), st.integers(-3, 3))
def test_alpha(pair, alpha):
    x, y = (side.on("cpu") for side in pair)
    met = result_type(x, y)
    a, b = (side.array().astype(met.name) for side in pair)
    scale = np.array(wrap(met, alpha), met.name)
    for name, sign in (("add", np.add), ("sub", np.subtract)):
        slow, fast = three(
            lambda x, y: getattr(x, name)(y, alpha=alpha), *pair)
        expected = sign(a, b * scale)
        assert same(slow.tolist(), expected.tolist())
        assert same(fast.tolist(), expected.tolist())


@quick
@given(layouts(dtype=int_dtypes(), elements=None, special=True),
       st.integers(0, 5))
def test_integers_wrap_around(layout, number):
    a = layout.array()
    n = np.array(number, a.dtype)
    with np.errstate(all="ignore"):
        for call, expected in ((lambda x: x + number, a + n),
                               (lambda x: x * number, a * n),
                               (lambda x: number - x, n - a),
                               (lambda x: -x, -a),
                               (lambda x: x ** number, a ** n)):
            for found in three(call, layout):
                assert found.tolist() == expected.tolist()


UNARY = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "sqrt": np.sqrt}


@quick
@given(layouts(dtype=any_dtypes(), special=True),
       st.sampled_from(sorted(UNARY)))
def test_functions_that_give_floats(layout, name):
    a = layout.array()
    wide = a if layout.dtype.is_floating_point else a.astype("float32")
    with np.errstate(all="ignore"):
        expected = UNARY[name](wide)
    slow, fast = three(lambda x: getattr(x, name)(), layout)
    assert fast.dtype.name == expected.dtype.name
    assert close(slow.tolist(), expected, 1e-6)
    assert close(fast.tolist(), expected, 1e-12)


@quick
@given(layouts(dtype=number_dtypes(), special=True))
def test_signs(layout):
    a = layout.array()
    with np.errstate(all="ignore"):
        for name, expected in (("neg", -a), ("sign", np.nan_to_num(np.sign(a), nan=0)),
                               ("relu", np.where(a <= 0, 0, a))):
            slow, fast = three(lambda x: getattr(x, name)(), layout)
            assert slow.dtype is layout.dtype
            # (-0.0).relu() may keep its sign in NumPy, and == does not see
            equal = same if name == "neg" else close_exact
            assert equal(slow.tolist(), expected.tolist())
            assert equal(fast.tolist(), expected.tolist())


def close_exact(a, b):
    return np.array_equal(np.array(a), np.array(b), equal_nan=True)


@quick
@given(pairs(dtype=float_dtypes()))
def test_powers_of_floats(pair):
    met = result_type(*(side.on("cpu") for side in pair))
    a, b = (side.array().astype(met.name) for side in pair)
    with np.errstate(all="ignore"):
        expected = a ** b
    slow, fast = three(lambda x, y: x ** y, *pair)
    assert close(slow.tolist(), expected, 1e-5)
    assert close(fast.tolist(), expected, 1e-12)


@quick
@given(layouts(dtype=any_dtypes()), numbers(lamina.float32)
       | st.integers(0, 9) | st.booleans())
def test_numbers_on_either_side(layout, number):
    for call in (lambda x: x + number, lambda x: number + x,
                 lambda x: x * number, lambda x: number * x):
        slow, fast = three(call, layout)
        met = result_type(layout.on("cpu"), number)
        assert slow.dtype is met
        assert same(slow.tolist(), fast.tolist())
    total = (layout.array().astype(met.name)
             + np.array(wrap(met, number), met.name))
    assert same((number + layout.on("cpu")).tolist(), total.tolist())


def test_short_and_general_way_agree(device):
    """The short way of the cpu kernel is taken for one geometry only."""
    for dtype in ALL:
        if dtype is lamina.bool:
            continue
        x = lamina.tensor([[1, 2, 3], [4, 5, 6]], dtype=dtype, device=device)
        for y in (x, x.clone(), x.t().clone().t(), x[:, :1], x[0]):
            expected = (np.array(x.tolist(), dtype.name)
                        + np.array(y.tolist(), dtype.name))
            assert same((x + y).tolist(), expected.tolist())
            assert (x + y).dtype is dtype
        big = lamina.tensor([[0, 1, 2, 3, 4, 5, 6]], dtype=dtype,
                            device=device)[:, 1:].view(2, 3)
        assert same((big + x).tolist(), (x + x).tolist())
        assert same((-big).tolist(), (-x).tolist())
        assert same((big * 2).tolist(), (x + x).tolist())


def test_a_result_is_a_whole_tensor(device):
    x = lamina.ones(3, device=device)
    for y in (x + x, -x, x * 2.0, x + x[:1], x.t() > 0):
        assert y.geometry is row_major((3,))
        assert y.storage is not x.storage
        assert y._base is None and str(y.device) == device
        y.fill_(0)
    assert x.tolist() == [1, 1, 1]


# --- the edge ---------------------------------------------------------

def test_division_as_ieee_754(device):
    a = lamina.tensor([1.0, -1.0, 0.0, 1.0, nan, inf, -0.0], device=device)
    b = lamina.tensor([0.0, 0.0, 0.0, -0.0, 0.0, inf, 5.0], device=device)
    assert same((a / b).tolist(), [inf, -inf, nan, -inf, nan, nan, -0.0])
    whole = lamina.tensor([7, -7, 0], device=device)
    assert same((whole / 0).tolist(), [inf, -inf, nan])
    assert (whole / 2).tolist() == [3.5, -3.5, 0]


def test_exp_log_sqrt_tanh_at_the_edge(device):
    def f(name, *values):
        return getattr(lamina.tensor(list(values), device=device),
                       name)().tolist()
    assert same(f("exp", 89.0, -200.0, inf, -inf, nan, 0.0),
                [inf, 0.0, inf, 0.0, nan, 1.0])
    assert same(f("log", 0.0, -0.0, -1.0, inf, nan, 1.0),
                [-inf, -inf, nan, inf, nan, 0.0])
    assert same(f("sqrt", -1.0, -0.0, 4.0, inf, nan),
                [nan, -0.0, 2.0, inf, nan])
    assert same(f("tanh", inf, -inf, nan, -0.0), [1.0, -1.0, nan, -0.0])
    wide = lamina.tensor([89.0, 710.0], dtype=lamina.float64, device=device)
    assert same(wide.exp().tolist(), [math.exp(89), inf])


# torch.pow, of PyTorch 2.13, float64
@pytest.mark.parametrize("a, b, expected", [
    (0.0, 0.0, 1.0), (nan, 0.0, 1.0), (1.0, nan, 1.0), (0.0, -1.0, inf),
    (-0.0, -1.0, -inf), (-0.0, -2.0, inf), (-8.0, 1 / 3, nan),
    (10.0, 400.0, inf), (-10.0, 401.0, -inf), (-10.0, 400.0, inf),
    (inf, -1.0, 0.0), (-inf, 3.0, -inf), (0.5, inf, 0.0), (2.0, -inf, 0.0),
    (-1.0, inf, 1.0), (2.0, 0.5, math.sqrt(2)),
])
def test_powers_at_the_edge(device, a, b, expected):
    x, y = (lamina.tensor([v], dtype=lamina.float64, device=device)
            for v in (a, b))
    assert same((x ** y).tolist(), [expected])


def test_integer_powers(device):
    x = lamina.tensor([3, -2, 0], device=device)
    assert (x ** 3).tolist() == [27, -8, 0]
    assert (x ** 0).tolist() == [1, 1, 1]
    assert (lamina.tensor([3], device=device) ** 41).tolist() == [
        wrap(lamina.int64, 3 ** 41)]
    assert (lamina.tensor([3], device=device) ** (1 << 40)).tolist() == [
        wrap(lamina.int64, pow(3, 1 << 40, 1 << 64))]
    assert (2 ** x.abs()).tolist() == [8, 4, 1]
    truth = lamina.tensor([True, False], device=device)
    assert (truth ** True).tolist() == [True, False]
    assert (truth ** True).dtype is lamina.bool
    with pytest.raises(NotImplementedError, match="bool"):
        truth ** truth
    for exponent, words in ((-1, "power of -1"), (1 << 70, str(1 << 70))):
        with pytest.raises(RuntimeError, match=words):
            x ** exponent
    small = lamina.tensor([2, 255], dtype=lamina.uint8, device=device)
    with pytest.raises(RuntimeError, match="300"):
        small ** 300
    # torch 2.13: the whole part of the fraction
    base = lamina.tensor([2, 1, -1, 0, -1], device=device)
    negative = lamina.tensor([-1, -1, -1, -1, -2], device=device)
    assert (base ** negative).tolist() == [0, 1, -1, 0, 1]
    assert (2 ** negative).tolist() == [0] * 5


def test_numpy_on_either_side_gives_a_tensor():
    x = lamina.tensor([1.0, 2.0])
    for y in (np.float64(2) * x, x * np.float32(2), np.int64(2) * x):
        assert type(y) is lamina.Tensor and y.dtype is lamina.float32
        assert y.tolist() == [2.0, 4.0]
    for y in (x - np.ones(2), -(np.ones(2) - x)):
        assert type(y) is lamina.Tensor and y.tolist() == [0.0, 1.0]
    y = x.clone()
    y += np.ones(2, "float32")
    assert type(y) is lamina.Tensor and y.tolist() == [2.0, 3.0]
    with pytest.raises(TypeError):
        x + "a"


def test_nan_stays_nan(device):
    x = lamina.tensor([nan, -1.0, 2.0], device=device)
    assert same(x.relu().tolist(), [nan, 0.0, 2.0])
    assert x.sign().tolist() == [0.0, -1.0, 1.0]
    assert (x == x).tolist() == [False, True, True]
    assert (x != x).tolist() == [True, False, False]
    assert (x < 0).tolist() == [False, True, False]


def test_bools(device):
    a = lamina.tensor([True, True, False], device=device)
    b = lamina.tensor([True, False, False], device=device)
    assert (a + b).tolist() == [True, True, False]
    assert (a * b).tolist() == [True, False, False]
    assert (a + b).dtype is a.sign().dtype is lamina.bool
    assert a.add(b, alpha=2).tolist() == [True, True, False]
    assert a.add(b, alpha=2).dtype is lamina.bool
    assert a.sign().tolist() == [True, True, False]
    assert a.sign_().tolist() == [True, True, False]
    assert (a * 2).tolist() == [2, 2, 0]
    assert a.exp().dtype is lamina.float32
    b += a
    assert b.tolist() == [True, True, False] and b.dtype is lamina.bool


@pytest.mark.parametrize("name", ["cpu", "python", "meta"])
@pytest.mark.parametrize("call", ["sub", "neg", "relu"])
def test_what_has_no_meaning_for_bools(name, call):
    x = lamina.empty(2, dtype=lamina.bool, device=name)
    with pytest.raises(RuntimeError) as error:
        getattr(x, call)(*[x] * (call == "sub"))
    assert f"{call}() has no meaning for bool" in str(error.value)


@pytest.mark.parametrize("name", ["cpu", "python", "meta"])
def test_alpha_has_the_kind_of_the_tensors(name):
    x = lamina.empty(2, dtype=lamina.int64, device=name)
    with pytest.raises(RuntimeError, match="alpha is 1.5"):
        x.add(x, alpha=1.5)
    assert x.double().add(x, alpha=1.5).dtype is lamina.float64


def test_numpys_error_state_stays_yours(device):
    x = lamina.tensor([1.0, 0.0], device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(all="raise"):
            assert same((x / 0).tolist(), [inf, nan])
            assert same(x.log().tolist(), [0.0, -inf])
            with pytest.raises(FloatingPointError):
                np.ones(1) / np.zeros(1)


def test_quiet_inside_quiet_and_in_threads():
    def inner():
        return quiet(np.divide, np.ones(2), np.zeros(2))
    assert quiet(inner).tolist() == [inf, inf]
    found, x = [], lamina.ones(50_000)

    def work():
        for _ in range(40):
            found.append(((x + x) / 0.0)[0].item() == inf)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 160 and all(found)


# --- in place and out -------------------------------------------------

@quick
@given(layouts(dtype=number_dtypes(), overlap=False, shape=shapes(3)),
       st.sampled_from(["add_", "sub_", "mul_"]), st.data())
def test_in_place(layout, name, data):
    shape = tuple(data.draw(st.sampled_from([n, 1]))
                  for n in layout.geometry.shape)
    other = data.draw(layouts(dtype=layout.dtype, shape=shape))
    expected = ARITHMETIC[name[:-1]](layout.array(), other.array())
    for device in DEVICES:
        x, y = layout.on(device), other.on(device)
        version = x.storage.version
        assert getattr(x, name)(y) is x
        assert same(x.tolist(), expected.tolist())
        assert x.storage.version == version + 1


def test_signs_that_write(device):
    x = lamina.tensor([1.0, 2.0], device=device)
    y = x
    x += 1
    x -= lamina.tensor([1.0, 0.0], device=device)
    x *= 2
    x /= 4
    x **= 2
    assert x is y and x.tolist() == [0.25, 2.25]


def test_a_tensor_may_write_over_what_it_reads(device):
    x = lamina.tensor([1, 2, 3, 4], device=device)
    x[1:].add_(x[:-1])
    assert x.tolist() == [1, 3, 5, 7]
    y = lamina.tensor([[1, 2], [3, 4]], device=device)
    y.add_(y.t())
    assert y.tolist() == [[2, 5], [5, 8]]


@pytest.mark.parametrize("name", ["cpu", "python", "meta"])
@pytest.mark.parametrize("call, named", [
    (lambda x: x.add_(0.5), "float32.*int64"),
    (lambda x: x.div_(2), "float32.*int64"),
    (lambda x: x.exp_(), "float32.*int64"),
    (lambda x: (x > 0).add_(1), "int64.*bool"),
    (lambda x: x[0].add_(x), r"\[2, 3\].*\[3\]"),
    (lambda x: x[:1].expand(2, 3).add_(1), "one element in memory"),
])
def test_in_place_may_not_change_dtype_or_shape(name, call, named):
    x = lamina.zeros(2, 3, dtype=lamina.int64, device=name)
    with pytest.raises(RuntimeError, match=named):
        call(x)
    if name != "meta":
        assert x.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_comparison_in_place_writes_ones_and_zeros(device):
    x = lamina.tensor([1.0, 2.0, nan], device=device)
    assert x.ge_(2).tolist() == [0, 1, 0] and x.dtype is lamina.float32


def test_out(device):
    a = lamina.tensor([1, 2, 3], device=device)
    for dtype in (lamina.int64, lamina.int32, lamina.float64, lamina.uint8):
        out = lamina.zeros(2, 3, dtype=dtype, device=device)
        row = out[1]
        assert lamina.add(a, a, alpha=2, out=row) is row
        assert out.tolist() == [[0, 0, 0], [3, 6, 9]]
        assert out.dtype is dtype
    empty = lamina.empty(0, device=device)
    lamina.div(a, 2, out=empty)
    assert empty.tolist() == [0.5, 1.0, 1.5]
    assert lamina.lt(a, 2, out=lamina.empty(
        0, dtype=lamina.bool, device=device)).tolist() == [True, False, False]
    assert lamina.where(a > 1, a, 0, out=lamina.empty(
        0, dtype=lamina.int64, device=device)).tolist() == [0, 2, 3]


@pytest.mark.filterwarnings("error")
def test_an_out_of_another_shape_is_resized_with_a_warning(device):
    a = lamina.tensor([1.0, 2.0], device=device)
    out = lamina.zeros(3, 4, device=device)
    with pytest.warns(UserWarning, match=r"\[3, 4\].*\[2\]"):
        assert lamina.add(a, 1, out=out) is out
    assert out.tolist() == [2, 3] and out.stride() == (1,)
    base = lamina.zeros(6, device=device)
    view = base[1:4]
    with pytest.warns(UserWarning):
        lamina.add(a, 1, out=view)          # it stays where it is
    assert base.tolist() == [0, 2, 3, 0, 0, 0]
    assert view.tolist() == [2, 3] and view.storage_offset() == 1
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="view"):
        lamina.add(a.expand(4, 2), 1, out=base[1:4])
    grown = lamina.empty(0, device=device)
    lamina.add(a.view(2, 1).expand(2, 3).T, 1, out=grown)
    assert grown.tolist() == [[2, 3]] * 3


# --- signs ------------------------------------------------------------

def test_every_sign(device):
    x = lamina.tensor([1.0, 2.0], device=device)
    assert (x + 1).tolist() == (1 + x).tolist() == [2, 3]
    assert (x - 1).tolist() == [0, 1] and (1 - x).tolist() == [0, -1]
    assert (x * 3).tolist() == (3 * x).tolist() == [3, 6]
    assert (x / 2).tolist() == [0.5, 1] and (2 / x).tolist() == [2, 1]
    assert (x ** 2).tolist() == [1, 4] and (2 ** x).tolist() == [2, 4]
    assert (-x).tolist() == [-1, -2]
    assert (1 < x).tolist() == (x > 1).tolist() == [False, True]
    assert (2 >= x).tolist() == (x <= 2).tolist() == [True, True]
    assert (1 == x).tolist() == [True, False]
    assert (x != 1).tolist() == [False, True]


def test_what_is_no_number_is_pythons_to_refuse():
    x = lamina.ones(2)
    for call in (lambda: x + "a", lambda: x * None, lambda: x < "a",
                 lambda: "a" - x, lambda: x ** [1]):
        with pytest.raises(TypeError):
            call()
    assert (x == None) is False and (x != "a") is True      # noqa: E711
    with pytest.raises(TypeError, match="must be a Tensor or a number"):
        x.add("a")
    assert x in [x] and {x: 1}[x] == 1          # still hashable


def test_a_sign_asks_the_other_sides_class():
    class Mine:
        def __radd__(self, other):
            return "mine"
    assert lamina.ones(1) + Mine() == "mine"


# --- where ------------------------------------------------------------

@quick
@given(layouts(dtype=lamina.bool, shape=(2, 3)),
       layouts(dtype=any_dtypes(), shape=(3,), special=True),
       layouts(dtype=any_dtypes(), shape=(2, 1), special=True))
def test_where(condition, a, b):
    met = promote_types(a.dtype, b.dtype)
    expected = np.where(condition.array(), a.array().astype(met.name),
                        b.array().astype(met.name))
    slow, fast = three(lambda c, x, y: functions["where"](c, x, y),
                       condition, a, b)
    assert slow.dtype is met
    assert same(slow.tolist(), expected.tolist())
    assert same(fast.tolist(), expected.tolist())


def test_where_with_numbers_and_as_a_method(device):
    x = lamina.tensor([1, -2], device=device)
    assert lamina.where(x > 0, x, 0).tolist() == [1, 0]
    assert lamina.where(x > 0, 1.5, x).dtype is lamina.float32
    assert lamina.where(x > 0, 1, 2).dtype is lamina.int64
    assert x.where(x > 0, x * 10).tolist() == [1, -20]
    # the side that is not chosen may be anything
    assert lamina.where(x > 0, x, nan).tolist()[0] == 1.0


@pytest.mark.parametrize("name", ["cpu", "python", "meta"])
def test_where_takes_a_bool_tensor(name):
    x = lamina.empty(2, dtype=lamina.int64, device=name)
    with pytest.raises(RuntimeError, match="bool tensor.*int64"):
        lamina.where(x, x, x)
    with pytest.raises(TypeError, match="'condition' must be a Tensor"):
        lamina.where(True, x, x)
    with pytest.raises(RuntimeError, match="do not broadcast"):
        lamina.where(lamina.empty(3, dtype=lamina.bool, device=name), x, x)


# --- declared here ----------------------------------------------------

def test_kernels_call_no_operators():
    for name in ("cpu", "python", "meta"):
        x = lamina.empty(2, 3, device=name)
        y = lamina.empty(3, device=name)
        for call, logged in (
                (lambda: x + y, "add.Tensor"), (lambda: x.exp(), "exp"),
                (lambda: lamina.where(x > 0, x, y), "where.self"),
                (lambda: x.mul_(y), "mul_.Tensor"),
                (lambda: lamina.sub(x, y, out=lamina.empty(0, device=name)),
                 "sub.Tensor_out")):
            with log_operators() as log:
                call()
            assert [n for n in log if n != "gt.Tensor"] == [logged]


def test_an_operator_in_one_line():
    names = "t4_mid(Tensor self, Tensor other) -> Tensor"
    try:
        elementwise(names, "The middle.", lambda a, b: (a + b) / 2,
                    lambda a, b, out=None: np.divide(a + b, 2, out=out),
                    rule="float")
        for device in DEVICES:
            x = lamina.tensor([1, 3], device=device)
            y = lamina.tensor([[2.0], [5.0]], device=device)
            assert x.t4_mid(y).tolist() == [[1.5, 2.5], [3, 4]]
            assert y.t4_mid_(1).tolist() == [[1.5], [3]]
        assert lamina.empty(2, 3, device="meta").t4_mid(1).shape == (2, 3)
    finally:
        for name in [n for n in operators if n.startswith("t4_")]:
            del operators[name]
        for name in [n for n in functions if n.startswith("t4_")]:
            del functions[name]
            delattr(Tensor, name)


def test_random_expressions_agree_on_both_devices():
    rng = random.Random(4)
    for _ in range(40):
        shape = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
        values = [rng.randint(-4, 4) for _ in range(math.prod(shape))]
        flat = lamina.tensor(values, dtype=rng.choice(
            [lamina.float32, lamina.float64, lamina.int64]))
        x = flat.view(shape)
        y = x.to("python")
        for name in rng.choices(["add", "mul", "sub", "relu", "sign"], k=4):
            if name in ("relu", "sign"):
                x, y = getattr(x, name)(), getattr(y, name)()
            else:
                n = rng.choice([2, -1, 0.5])
                x, y = getattr(x, name)(n), getattr(y, name)(n)
        assert x.dtype is y.dtype and close_exact(x.tolist(), y.tolist())


def test_without_numpy():
    code = """
        import sys
        sys.modules["numpy"] = None         # import numpy now fails
        import lamina
        x = lamina.tensor([[1.0, -2.0]])
        assert str(x.device) == "python"
        assert (x + x.t()).tolist() == [[2, -1], [-1, -4]]
        assert (x / 0 > 1).tolist() == [[True, False]]
        assert lamina.where(x > 0, x, 0.0).exp_().shape == (1, 2)
        try:
            lamina.ones(1, device="cpu") + 1
        except NotImplementedError as error:
            assert "NumPy" in str(error), error
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- the second layout ------------------------------------------------

@pytest.mark.parametrize("device", ["python", "cpu"])
def test_sums_and_products_of_sparse_tensors(device):
    s = lamina.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], [3, 4, -1], (2, 3),
                                 device=device)
    t = lamina.sparse_coo_tensor([[1, 1], [0, 1]], [0.5, 1.5], (2, 3),
                                 device=device)
    full = lamina.ones(2, 3, device=device)
    for left, right in ((s, t), (t, s), (s, s)):
        a, b = left.to_dense(), right.to_dense()
        for got, expected in ((left + right, a + b), (left - right, a - b),
                              (lamina.add(left, right, alpha=3),
                               lamina.add(a, b, alpha=3))):
            assert got.is_sparse and got.is_coalesced()
            assert got.dtype is expected.dtype
            assert got.to_dense().tolist() == expected.tolist()
        for got, expected in (
                (left * 2, a * 2), (2.5 * left, 2.5 * a), (left / 2, a / 2),
                (left * lamina.tensor(3, device=device), a * 3), (-left, -a),
                (left.sign(), a.sign())):
            assert got.is_sparse and got.dtype is expected.dtype
            assert got.to_dense().tolist() == expected.tolist()
        for got, expected in ((left + full, a + full), (full - left, full - a)):
            assert not got.is_sparse and got.tolist() == expected.tolist()


def test_what_has_no_sparse_kernel_says_so():
    s = lamina.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    for call in (lambda: s + 1, lambda: s * s, lambda: 1 / s, lambda: s.exp(),
                 lambda: s == s, lambda: s.add_(s)):
        with pytest.raises(NotImplementedError, match="sparse_coo.*to_dense"):
            call()
    with pytest.raises(RuntimeError, match=r"\[2, 3\] and \[3\]"):
        s + lamina.ones(3).to_sparse()
