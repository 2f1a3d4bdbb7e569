"""Chapter 6: products of matrices, vectors and batches."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from lamina.matmul import check_matrices, matmul_loops
from strategies import (
    any_dtypes, float_dtypes, int_dtypes, layouts, number_dtypes, same,
)

quick = settings(max_examples=60, deadline=None)
DEVICES = ('cpu', 'python')
sizes = st.sampled_from([1, 2, 3, 2, 4, 0])
inf, nan = math.inf, math.nan


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def agree(call, left, right):
    """The python device's answer, after cpu and meta gave the same.

    The numbers of the strategies are small and exact in binary, so the
    order of the additions changes nothing.
    """
    slow, fast, shapes = (call(left.on(d), right.on(d))
                          for d in ('python', 'cpu', 'meta'))
    assert slow.shape == fast.shape == shapes.shape
    assert slow.dtype is fast.dtype is shapes.dtype is left.dtype
    assert str(fast.device) == 'cpu' and str(shapes.device) == 'meta'
    assert same(fast.tolist(), slow.tolist())
    return slow


@st.composite
def pairs(draw, left, right, dtype=number_dtypes()):
    """Two layouts of one dtype; shapes are strategies for a pair."""
    dtype = draw(dtype)
    return (draw(layouts(dtype=dtype, shape=left)),
            draw(layouts(dtype=dtype, shape=right)))


@st.composite
def matrices(draw, batch=False, **options):
    n, k, m = draw(st.tuples(sizes, sizes, sizes))
    lead = (draw(st.integers(0, 3)),) if batch else ()
    return draw(pairs((*lead, n, k), (*lead, k, m), **options))


def check(found, left, right):
    expected = left.array() @ right.array()
    assert found.shape == expected.shape
    np.testing.assert_array_equal(
        np.array(found.tolist()).reshape(found.shape), expected)


@quick
@given(matrices())
def test_mm(case):
    check(agree(lambda a, b: a.mm(b), *case), *case)


@quick
@given(matrices(batch=True))
def test_bmm(case):
    check(agree(lambda a, b: a.bmm(b), *case), *case)


@st.composite
def products(draw):
    """Any two tensors that matmul takes; batches broadcast."""
    n, k, m = draw(st.tuples(sizes, sizes, sizes))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))

    def lead():
        some = batch[draw(st.integers(0, len(batch))):]
        return tuple(draw(st.sampled_from([1, size])) for size in some)

    left = draw(st.sampled_from([(k,), (*lead(), n, k)]))
    right = draw(st.sampled_from([(k,), (*lead(), k, m)]))
    return draw(pairs(left, right))


@settings(max_examples=150, deadline=None)
@given(products())
def test_matmul(case):
    check(agree(lambda a, b: a @ b, *case), *case)


@quick
@given(st.data(), sizes, sizes)
def test_mv_and_dot(data, n, k):
    case = data.draw(pairs((n, k), (k,)))
    check(agree(lambda a, b: a.mv(b), *case), *case)
    case = data.draw(pairs((k,), (k,)))
    check(agree(lambda a, b: lamina.dot(a, b), *case), *case)


@quick
@given(st.data(), sizes, sizes, st.sampled_from([(), (2,), (2, 3)]))
def test_linear(data, inputs, outputs, batch):
    case = data.draw(pairs((*batch, inputs), (outputs, inputs),
                           dtype=float_dtypes()))
    bias = data.draw(layouts(dtype=case[0].dtype, shape=(outputs,)))
    expected = case[0].array() @ case[1].array().T
    plain = agree(lambda x, w: lamina.linear(x, w), *case)
    np.testing.assert_array_equal(plain.numpy(), expected)
    full = agree(lambda x, w: lamina.linear(x, w, bias.on(str(x.device))),
                 *case)
    np.testing.assert_array_equal(full.numpy(), expected + bias.array())


@pytest.mark.parametrize('dtype', [lamina.float32, lamina.float64])
def test_rounded_sums_are_close(dtype):
    """Sizes at which BLAS works in tiles."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 300)).astype(dtype.name)
    b = rng.standard_normal((300, 30)).astype(dtype.name)
    exact = np.array([[math.fsum(float(x) * float(y)
                                 for x, y in zip(row, column))
                       for column in b.T] for row in a])
    x, y = lamina.from_numpy(a), lamina.from_numpy(b)
    rtol = 1e-4 if dtype is lamina.float32 else 1e-11
    for found in (x @ y, (y.t() @ x.t()).t(),
                  x.to('python') @ y.to('python'),
                  x.expand(2, 40, 300)[1] @ y):
        np.testing.assert_allclose(found.numpy(), exact, rtol=rtol,
                                   atol=rtol)


def test_the_worked_example(device):
    x = lamina.tensor([4.0, 3.0, 2.0], device=device)
    w = lamina.tensor([[0.5, -1.0, 2.0]], device=device)
    b = lamina.tensor([0.5], device=device)
    assert lamina.linear(x, w, b).tolist() == [3.5]
    assert w[0].dot(x).item() == 3.0


def test_loops_write_into_any_strides():
    a = lamina.tensor([[1, 2], [3, 4]], device='python')
    b = lamina.tensor([[5, 6, 7], [8, 9, 10]], device='python')
    out = lamina.zeros(3, 4, dtype=lamina.int64, device='python')
    matmul_loops(a, b, out.t()[1:3, :])
    assert out.tolist() == [[0, 21, 47, 0], [0, 24, 54, 0], [0, 27, 61, 0]]


@quick
@given(matrices(dtype=int_dtypes()))
def test_operands_are_left_alone(case):
    for device in DEVICES:
        a, b = (layout.on(device) for layout in case)
        before = a.tolist(), b.tolist()
        a @ b
        assert (a.tolist(), b.tolist()) == before


def test_no_products_add_up_to_zero(device):
    x = lamina.ones(2, 0, device=device) @ lamina.ones(0, 3, device=device)
    assert x.tolist() == [[0.0] * 3] * 2
    assert lamina.ones(0, device=device).dot(
        lamina.ones(0, device=device)).item() == 0.0


def test_integers_wrap_in_their_own_dtype(device):
    x = lamina.tensor([[20, 20]], dtype=lamina.uint8, device=device)
    assert (x @ x.t()).tolist() == [[32]]
    big = lamina.tensor([2 ** 62, 2 ** 62], device=device)
    two = lamina.tensor([2, 2], device=device)
    assert big.dot(two).item() == 0


def test_infinities(device):
    x = lamina.tensor([[inf, 1.0], [3e38, 3e38]], device=device)
    y = lamina.tensor([[0.0, 1.0], [1.0, 1.0]], device=device)
    assert same((x @ y).tolist(), [[nan, inf], [float(np.float32(3e38)),
                                               inf]])


def test_results_are_written_into_out(device):
    x = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    out = lamina.zeros(2, 2, device=device)
    assert lamina.mm(x, x, out=out.t()).tolist() == [[7.0, 10.0],
                                                     [15.0, 22.0]]
    assert out.tolist() == [[7.0, 15.0], [10.0, 22.0]]


# --- what is refused ---------------------------------------------------

@pytest.fixture(params=['cpu', 'python', 'meta'])
def ones(request):
    return lambda *shape, **options: lamina.ones(
        *shape, device=request.param, **options)


def test_sizes_that_differ(ones):
    with pytest.raises(RuntimeError, match=r'mm.*\[2, 3\].*\[2, 3\].*3.*2'):
        ones(2, 3).mm(ones(2, 3))
    with pytest.raises(RuntimeError, match=r'\[4, 2, 3\].*\[4, 2, 3\]'):
        ones(4, 2, 3).bmm(ones(4, 2, 3))
    with pytest.raises(RuntimeError, match=r'\[4, 2, 3\].*\[5, 3, 2\]'):
        ones(4, 2, 3).bmm(ones(5, 3, 2))
    for left, right in (((2,), (3,)), ((2, 3), (2,)), ((2,), (3, 2)),
                        ((5, 2, 3), (2, 3)), ((5, 2, 3), (5, 2, 3))):
        with pytest.raises(RuntimeError) as caught:
            ones(*left) @ ones(*right)
        assert f'{list(left)} times {list(right)}' in str(caught.value)
    with pytest.raises(RuntimeError, match=r'\[2\].*\[3\]'):
        ones(2, 1, 1) @ ones(3, 1, 1)


def test_numbers_of_dimensions(ones):
    with pytest.raises(RuntimeError, match=r'mm.*2 dim.*\[3\].*\[3, 2\]'):
        ones(3).mm(ones(3, 2))
    with pytest.raises(RuntimeError, match=r'bmm.*3 dim.*\[2, 3\]'):
        ones(2, 3).bmm(ones(2, 3))
    with pytest.raises(RuntimeError, match=r'matmul.*\[\].*\[2, 3\]'):
        ones(()) @ ones(2, 3)
    with pytest.raises(RuntimeError, match=r'dot.*\[2\].*\[3\]'):
        ones(2).dot(ones(3))
    with pytest.raises(RuntimeError, match=r'dot.*\[2, 2\]'):
        ones(2, 2).dot(ones(2, 2))
    for left, right in (((2, 2), (2, 2)), ((2,), (2,))):
        with pytest.raises(RuntimeError, match='mv.*matrix'):
            ones(*left).mv(ones(*right))
    with pytest.raises(RuntimeError, match=r'\[4\].*\[3, 2\]'):
        lamina.linear(ones(4), ones(2, 3))


def test_dtypes(ones):
    with pytest.raises(RuntimeError, match='float32.*int64'):
        ones(2, 2) @ ones(2, 2, dtype=lamina.int64)
    boolean = ones(2, 2, dtype=lamina.bool_)
    with pytest.raises(NotImplementedError, match='bool'):
        boolean @ boolean


def test_operands_that_are_no_tensors():
    x = lamina.ones(2, 2)
    for attempt in (lambda: x @ 2, lambda: 2 @ x, lambda: x @ 'a',
                    lambda: x @ None, lambda: lamina.mm(x, [[1.0]])):
        with pytest.raises(TypeError):
            attempt()


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match='cpu.*python|python.*cpu'):
        lamina.ones(2, 2, device='cpu') @ lamina.ones(2, 2, device='python')


@quick
@given(any_dtypes())
def test_check_matrices_gives_the_shape(dtype):
    a, b = (lamina.ones(*s, dtype=dtype) for s in ((2, 3), (3, 4)))
    if dtype.category:
        assert check_matrices('mm', a, b, 2) == (2, 4)
    else:
        with pytest.raises(NotImplementedError, match='mm.*bool'):
            check_matrices('mm', a, b, 2)
