"""Chapter 5: reductions and choosing, against NumPy and across devices."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from lamina.broadcasting import quiet
from lamina.reductions import (
    first_best, numpy_sum, pairwise_sum, reduced_dims, reduced_rows,
    reduced_shape,
)
from lamina.storage import dtypes
from strategies import (
    any_dtypes, float_dtypes, int_dtypes, layouts, number_dtypes, numbers,
    same, shapes,
)

quick = settings(max_examples=60, deadline=None)
DEVICES = ('cpu', 'python')
inf, nan = math.inf, math.nan


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def dims_of(draw, ndim):
    """None, one dimension or several, some counted from the end."""
    every = range(-ndim, ndim)
    if not ndim:
        return draw(st.sampled_from([None, (), 0, -1]))
    several = st.lists(st.sampled_from(every), min_size=1, max_size=ndim,
                       unique_by=lambda d: d % ndim).map(tuple)
    return draw(st.none() | st.sampled_from(every) | several)


@st.composite
def reductions(draw, dtype=any_dtypes(), special=False, min_size=0):
    layout = draw(layouts(dtype=dtype, special=special,
                          shape=shapes(max_dims=3, min_size=min_size)))
    return (layout, dims_of(draw, len(layout.geometry.shape)),
            draw(st.booleans()))


def values(x):
    """A tensor's elements as an array of its shape."""
    return np.array(x.tolist()).reshape(x.shape)


def agree(call, layout, rtol=1e-6):
    """The python device's answer, after cpu and meta gave the same."""
    slow, fast, sizes = (call(layout.on(d))
                         for d in ('python', 'cpu', 'meta'))
    assert slow.shape == fast.shape == sizes.shape
    assert slow.dtype is fast.dtype is sizes.dtype
    assert str(fast.device) == 'cpu' and str(sizes.device) == 'meta'
    np.testing.assert_allclose(fast.numpy(), values(slow),
                               rtol=rtol, atol=1e-6)
    return slow


def axis_of(dim, ndim):
    if dim is None or dim == () or not ndim:
        return None
    return dim


# --- sums ---------------------------------------------------------------

@quick
@given(reductions())
def test_sum(case):
    layout, dim, keepdim = case
    found = agree(lambda x: x.sum(dim, keepdim), layout)
    array = layout.array()
    wide = array.astype('float64' if array.dtype.kind == 'f' else 'int64')
    expected = wide.sum(axis_of(dim, array.ndim), keepdims=keepdim)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(values(found), expected)
    kept = layout.dtype if layout.dtype.is_floating_point else lamina.int64
    assert found.dtype is kept


@quick
@given(reductions(), any_dtypes())
def test_sum_converts_before_it_adds(case, dtype):
    layout, dim, keepdim = case
    found = agree(lambda x: x.sum(dim, keepdim, dtype=dtype), layout)
    with np.errstate(all='ignore'):
        expected = layout.on('cpu').to(dtype).numpy().sum(
            axis_of(dim, layout.array().ndim), keepdims=keepdim,
            dtype=dtype.name)
    np.testing.assert_array_equal(values(found), expected)
    assert found.dtype is dtype


def test_sum_of_fractions_as_integers(device):
    x = lamina.tensor([1.7, 1.7], device=device)
    assert x.sum(dtype=lamina.int64).item() == 2


def test_small_integers_do_not_wrap(device):
    x = lamina.tensor([200, 100], dtype=lamina.uint8, device=device)
    assert x.sum().item() == 300
    assert x.sum(dtype=lamina.uint8).item() == 44
    assert lamina.tensor([True] * 3, device=device).sum().item() == 3


def test_int64_wraps_as_in_twos_complement(device):
    x = lamina.tensor([2 ** 63 - 1, 1], device=device)
    assert x.sum().item() == -2 ** 63


def test_infinities_in_a_sum(device):
    x = lamina.tensor([[inf, 1.0], [inf, -inf], [3e38, 3e38]],
                      device=device)
    assert same(x.sum(1).tolist(), [inf, nan, inf])


def test_infinities_in_the_sum_of_rows(device):
    x = lamina.tensor([[inf, 1.0, nan, inf], [2.0, 1.0, 1.0, -inf]],
                      device=device)
    assert same(x.sum(0).tolist(), [inf, 2.0, nan, nan])
    assert x.sum((0,), keepdim=True).shape == (1, 4)
    assert x[:0].sum(0).tolist() == [0.0] * 4


@pytest.mark.parametrize('shape', [(40, 3), (2, 20, 16), (1, 1), (0, 5)])
def test_extremes_and_sums_of_short_rows(shape):
    x = np.arange(math.prod(shape), dtype='float32').reshape(shape) % 7
    x.reshape(-1)[3::10] = nan
    for name in ('amax', 'amin', 'sum', 'prod'):
        for keepdim in (False, True):
            fast, slow = (getattr(lamina.from_numpy(x).to(device), name)(
                -1, keepdim) for device in ('cpu', 'python'))
            np.testing.assert_array_equal(
                fast.numpy(), slow.to('cpu').numpy(), strict=True)


@pytest.mark.parametrize('shape, dim', [
    ((40, 3), 1), ((1, 3), 1), ((3,), 0), ((2, 3, 5), 1), ((2, 3, 5), 2),
    ((4, 1), 1), ((4, 5, 1), 1), ((1, 1), 0), ((9000, 10), 1)])
def test_log_softmax_of_short_rows(shape, dim):
    x = np.arange(math.prod(shape), dtype='float64').reshape(shape) * 7 % 11
    x.reshape(-1)[1::20] = -inf
    x.reshape(-1)[2::30] = 1e300
    with np.errstate(invalid='ignore'):     # -inf alone
        wide = x - x.max(dim, keepdims=True)
    expected = wide - np.log(np.exp(wide).sum(dim, keepdims=True))
    for y in (x, np.asfortranarray(x)):
        found = lamina.from_numpy(y).log_softmax(dim)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize('dtype', ['float32', 'float64', 'float16'])
@pytest.mark.parametrize('shape', [
    (32, 10), (1, 1), (1, 32), (5, 33), (0, 5), (5, 0), (7000, 10), (10,),
    (2, 3, 4)])
def test_the_short_way_of_log_softmax_is_the_general_one(shape, dtype):
    from lamina.reductions import log_softmax_of_any
    tolerance = {'float16': 1e-2, 'float32': 2e-6, 'float64': 1e-14}[dtype]
    x = (np.random.default_rng(0).normal(size=shape) * 5).astype(dtype)
    odd = x.copy()
    for i, value in enumerate([inf, -inf, nan, 3e4, -0.0]):
        odd.reshape(-1)[1 + 7 * i::50] = value
    for y in (x, odd, np.asfortranarray(x), np.repeat(x, 2, -1)[..., ::2]):
        y = lamina.from_numpy(y)
        for dim in (-1, len(shape) - 1):
            found = y.log_softmax(dim)
            wanted = log_softmax_of_any(y.to(lamina.float64), dim)
            assert found.dtype is y.dtype
            assert found.stride() == lamina.empty(shape).stride()
            np.testing.assert_allclose(
                found.numpy(), wanted.numpy(), tolerance, tolerance)


def test_pairwise_sum():
    assert pairwise_sum([]) == 0
    assert pairwise_sum(list(range(1000))) == 499500
    tenths = [0.1] * 100_000
    exact = math.fsum(tenths)
    loop = 0.0
    for value in tenths:
        loop += value
    assert abs(loop - exact) > 1e-8 > 1e-10 > abs(
        pairwise_sum(tenths) - exact)


@pytest.mark.parametrize('shape, dim', [
    ((300_000,), 0), ((300_000, 2), 0), ((2, 300_000), 1),
    ((300, 2, 1000), (0, 2)), ((700, 700), (0, 1))])
def test_float32_sums_are_accurate_in_every_direction(shape, dim):
    x = np.full(shape, 0.1, 'float32')
    found = lamina.from_numpy(x).sum(dim).numpy()
    np.testing.assert_allclose(found, x.astype('float64').sum(dim),
                               rtol=1e-6)


@quick
@given(st.lists(st.integers(1, 700), min_size=1, max_size=2), st.data())
def test_numpy_sum_in_blocks(shape, data):
    axis = data.draw(st.sampled_from([(0,), (len(shape) - 1,),
                                      tuple(range(len(shape)))]))
    x = np.arange(math.prod(shape), dtype='float64').reshape(shape) % 11
    for keepdims in (False, True):
        found = numpy_sum(x, axis, keepdims, x.dtype)
        np.testing.assert_array_equal(
            found, x.sum(axis, keepdims=keepdims), strict=True)


def test_results_are_written_into_out(device):
    out = lamina.zeros(2, device=device)
    x = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert lamina.amax(x, 0, out=out) is out
    assert out.tolist() == [3.0, 4.0]
    assert lamina.sum(x, 0, out=out) is out
    assert out.tolist() == [4.0, 6.0]


def test_keepdim_by_position(device):
    x = lamina.ones(2, 3, device=device)
    for name in ('sum', 'mean', 'amax', 'argmax', 'logsumexp', 'any'):
        assert getattr(x, name)(1, True).shape == (2, 1)


# --- dimensions ----------------------------------------------------------

def test_reduced_dims_and_shape():
    assert reduced_dims(None, 3) == reduced_dims((), 3) == (0, 1, 2)
    assert reduced_dims((-1, 0), 3) == (0, 2)
    assert reduced_dims(0, 0) == reduced_dims(-1, 0) == ()
    assert reduced_shape((2, 3, 4), (0, 2), False) == (3,)
    assert reduced_shape((2, 3, 4), (0, 2), True) == (1, 3, 1)


def test_reduced_rows():
    x = lamina.tensor([[1, 2, 3], [4, 5, 6]], device='python')
    assert reduced_rows(x, (0,)) == [[1, 4], [2, 5], [3, 6]]
    assert reduced_rows(x.t(), (0,)) == [[1, 2, 3], [4, 5, 6]]
    assert reduced_rows(x, ()) == [[1], [2], [3], [4], [5], [6]]


@pytest.mark.parametrize('name', ['sum', 'mean', 'any', 'all', 'amax',
                                  'amin', 'argmax', 'argmin', 'max', 'min',
                                  'softmax', 'log_softmax', 'logsumexp'])
def test_a_dimension_that_is_not_there(name, device):
    for x, dim in ((lamina.ones(2, 3, device=device), 2),
                   (lamina.ones(2, 3, device=device), -3),
                   (lamina.ones((), device=device), 1)):
        with pytest.raises(IndexError, match=str(dim)):
            getattr(x, name)(dim)


def test_a_dimension_named_twice(device):
    x = lamina.ones(2, 3, device=device)
    for dims in ((0, 0), (1, -1)):
        with pytest.raises(RuntimeError, match=str(dims[1])):
            x.sum(dims)


def test_arguments_are_checked():
    x = lamina.ones(2)
    with pytest.raises(TypeError, match='dim.*ints.*a'):
        x.sum(dim='a')
    with pytest.raises(TypeError, match='keepdim.*1'):
        x.sum(0, 1)
    with pytest.raises(TypeError, match='list'):
        lamina.sum([1.0])


# --- any, all, amax, argmax ----------------------------------------------

@quick
@given(reductions(special=True))
def test_any_and_all(case):
    layout, dim, keepdim = case
    array = layout.array()
    for name in ('any', 'all'):
        found = agree(lambda x: getattr(x, name)(dim, keepdim), layout)
        expected = getattr(np, name)(array, axis_of(dim, array.ndim),
                                     keepdims=keepdim)
        np.testing.assert_array_equal(values(found), expected)
        byte = layout.dtype is lamina.uint8     # as in PyTorch
        assert found.dtype is (lamina.uint8 if byte
                               else dtypes['bool'])


@quick
@given(reductions(special=True, min_size=1))
def test_amax_and_amin(case):
    layout, dim, keepdim = case
    array = layout.array()
    for name in ('amax', 'amin'):
        found = agree(lambda x: getattr(x, name)(dim, keepdim), layout)
        expected = getattr(np, name)(array, axis_of(dim, array.ndim),
                                     keepdims=keepdim)
        np.testing.assert_array_equal(values(found),
                                      expected.tolist())
        assert found.dtype is layout.dtype


@quick
@given(reductions(dtype=number_dtypes(), special=True, min_size=1))
def test_argmax_and_argmin(case):
    layout, dim, keepdim = case
    array = layout.array()
    if isinstance(dim, tuple):
        dim = dim[0] if dim else None
    axis = dim if array.ndim else None
    for name in ('argmax', 'argmin'):
        found = agree(lambda x: getattr(x, name)(dim, keepdim), layout)
        expected = getattr(np, name)(array, axis, keepdims=keepdim)
        np.testing.assert_array_equal(values(found), expected)
        assert found.dtype is lamina.int64


@quick
@given(reductions(special=True, min_size=1))
def test_max_and_min_with_their_places(case):
    layout, dim, keepdim = case
    array = layout.array()
    if isinstance(dim, tuple):
        dim = dim[0] if dim else None
    for name in ('max', 'min'):
        if dim is None:
            found = agree(lambda x: getattr(x, name)(), layout)
            assert same(found.item(), getattr(array, name)().item())
            continue
        best = agree(lambda x: getattr(x, name)(dim, keepdim).values,
                     layout)
        places = agree(lambda x: getattr(x, name)(dim, keepdim)[1], layout)
        axis = dim if array.ndim else None
        assert same(best.tolist(), getattr(array, name)(
            axis, keepdims=keepdim).tolist())
        assert places.tolist() == getattr(array, 'arg' + name)(
            axis, keepdims=keepdim).tolist()


def test_first_of_equals_and_first_nan(device):
    x = lamina.tensor([[1.0, 3.0, 3.0], [2.0, nan, nan]], device=device)
    assert x.argmax(1).tolist() == [1, 1]
    assert x.argmin(1).tolist() == [0, 1]
    assert same(x.max(0).values.tolist(), [2.0, nan, nan])
    assert x.argmax().item() == 4
    assert x.argmax(keepdim=True).tolist() == [[4]]
    assert first_best(lambda a, b: a > b)([nan, 5.0]) == 0


def test_no_elements(device):
    x = lamina.zeros(0, 3, device=device)
    assert x.sum(0).tolist() == [0.0] * 3
    assert x.any(0).tolist() == [False] * 3
    assert x.all(0).tolist() == [True] * 3
    assert same(x.mean(0).tolist(), [nan] * 3)
    assert x.sum(1).shape == x.amax(1).shape == x.argmax(1).shape == (0,)
    assert x.max(1).values.shape == (0,)
    assert x.softmax(0).shape == x.log_softmax(1).shape == (0, 3)
    assert x.logsumexp(0).tolist() == [-inf] * 3


@pytest.mark.parametrize('device', ['cpu', 'python', 'meta'])
def test_the_best_of_no_elements(device):
    x = lamina.zeros(0, 3, device=device)
    for name in ('amax', 'amin', 'argmax', 'argmin', 'max', 'min'):
        with pytest.raises(IndexError, match=r'\[0, 3\]'):
            getattr(x, name)(0)
    for name in ('amax', 'amin', 'max', 'min'):
        with pytest.raises(RuntimeError, match=r'\[0, 3\]'):
            getattr(x, name)()
    with pytest.raises(IndexError, match='argmax'):
        x.argmax()


# --- mean, exponentials ---------------------------------------------------

@quick
@given(reductions(dtype=float_dtypes(), min_size=1))
def test_mean(case):
    layout, dim, keepdim = case
    found = agree(lambda x: x.mean(dim, keepdim), layout)
    array = layout.array().astype('float64')
    np.testing.assert_allclose(
        values(found),
        array.mean(axis_of(dim, array.ndim), keepdims=keepdim), rtol=1e-6)


def test_mean_of_integers(device):
    x = lamina.tensor([1, 2], device=device)
    with pytest.raises(RuntimeError, match='int64.*float'):
        x.mean()
    assert x.mean(dtype=lamina.float64).item() == 1.5


@quick
@given(reductions(dtype=float_dtypes(), min_size=1))
def test_logsumexp(case):
    layout, dim, keepdim = case
    dim = () if dim is None else dim
    found = agree(lambda x: x.logsumexp(dim, keepdim=keepdim), layout, 1e-5)
    array = layout.array().astype('float64')
    expected = np.log(np.exp(array).sum(axis_of(dim, array.ndim),
                                        keepdims=keepdim))
    np.testing.assert_allclose(values(found), expected,
                               rtol=1e-5, atol=1e-6)


def test_logsumexp_of_what_overflows(device):
    rows = [[1000.0, 1000.0], [-1000.0, -1000.0], [-inf, -inf],
            [inf, 0.0], [nan, inf], [-inf, 2.0]]
    x = lamina.tensor(rows, dtype=lamina.float64, device=device)
    log2 = math.log(2)
    expected = [1000 + log2, -1000 + log2, -inf, inf, nan, 2.0]
    np.testing.assert_allclose(x.logsumexp(1).tolist(), expected)
    assert lamina.tensor([1, 1], device=device).logsumexp(0).item() == (
        pytest.approx(1 + log2))


@quick
@given(reductions(dtype=float_dtypes()))
def test_softmax_and_log_softmax(case):
    layout, dim, _ = case
    dim = dim if isinstance(dim, int) else 0
    soft = agree(lambda x: x.softmax(dim), layout, 1e-5)
    logs = agree(lambda x: x.log_softmax(dim), layout, 1e-5)
    array = layout.array().astype('float64')
    if array.size:
        top = np.exp(array if array.ndim else array.reshape(1))
        axis = dim if array.ndim else 0
        expected = (top / top.sum(axis, keepdims=True)).reshape(array.shape)
        np.testing.assert_allclose(values(soft), expected,
                                   rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(values(logs),
                                   np.log(expected), rtol=1e-4, atol=1e-5)


def test_softmax_of_what_overflows(device):
    x = lamina.tensor([[100.0, 1000.0], [-inf, 0.0]], device=device)
    assert x.softmax(1).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert x.log_softmax(1).tolist() == [[-900.0, 0.0], [-inf, 0.0]]
    for row in ([inf, 1.0], [-inf, -inf], [nan, 1.0]):
        x = lamina.tensor(row, device=device)
        assert same(x.softmax(0).tolist(), [nan, nan])
        assert same(x.log_softmax(0).tolist(), [nan, nan])


def test_softmax_of_integers(device):
    x = lamina.tensor([0, 0], device=device)
    for name in ('softmax', 'log_softmax'):
        with pytest.raises(NotImplementedError, match=f'{name}.*int64'):
            getattr(x, name)(0)
    assert x.softmax(0, dtype=lamina.float64).tolist() == [0.5, 0.5]


# --- choosing --------------------------------------------------------------

@st.composite
def choices(draw, dtype=any_dtypes()):
    """(layout, dim, index as nested lists, its shape) that fit."""
    shape = draw(shapes(min_dims=1, max_dims=3, min_size=1))
    layout = draw(layouts(dtype=dtype, shape=shape))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = [draw(st.integers(1, n)) for n in shape]
    sizes[dim] = draw(st.integers(1, 5))
    index = np.array(draw(st.lists(
        st.integers(0, shape[dim] - 1), min_size=math.prod(sizes),
        max_size=math.prod(sizes))), 'int64').reshape(sizes)
    return layout, dim, index


def on(index, x):
    return lamina.tensor(index.tolist(), dtype=lamina.int64).to(
        str(x.device))


@quick
@given(choices())
def test_gather(case):
    layout, dim, index = case
    found = agree(lambda x: x.gather(dim, on(index, x)), layout)
    array = layout.array()
    expected = np.take_along_axis(
        array[tuple(slice(None) if d == dim % array.ndim else slice(n)
                    for d, n in enumerate(index.shape))], index, dim)
    assert found.tolist() == expected.tolist()
    assert found.dtype is layout.dtype


@quick
@given(choices(dtype=number_dtypes()), st.data())
def test_scatter_add(case, data):
    layout, dim, index = case
    source = data.draw(layouts(dtype=layout.dtype, shape=tuple(
        n + data.draw(st.integers(0, 1)) for n in index.shape)))
    before = layout.array().copy()
    found = agree(lambda x: x.scatter_add(
        dim, on(index, x), source.on(str(x.device))), layout)
    expected, added = before.copy(), source.array()
    for at in np.ndindex(*index.shape):
        place = list(at)
        place[dim] = index[at]
        expected[tuple(place)] += added[at]
    assert found.tolist() == expected.tolist()
    x = layout.on('cpu')
    x.scatter_add(dim, on(index, x), source.on('cpu'))
    assert x.tolist() == before.tolist()


def test_scatter_add_counts_twice_and_writes_in_place(device):
    x = lamina.zeros(3, device=device)
    index = lamina.tensor([2, 2], device=device)
    assert x.scatter_add_(0, index, lamina.ones(2, device=device)) is x
    assert x.tolist() == [0.0, 0.0, 2.0]


def test_no_dimensions_to_choose_in(device):
    x = lamina.tensor(5.0, device=device)
    zero = lamina.tensor(0, device=device)
    assert x.gather(0, zero).item() == 5.0
    assert x.scatter_add(0, zero, x).item() == 10.0
    assert x.index_select(0, zero.reshape(1)).item() == 5.0
    with pytest.raises(RuntimeError, match='index 1'):
        x.gather(0, lamina.tensor(1, device=device))


@quick
@given(choices())
def test_index_select(case):
    layout, dim, index = case
    rows = index.reshape(-1)
    found = agree(lambda x: x.index_select(dim, on(rows, x)), layout)
    assert found.tolist() == layout.array().take(rows, dim).tolist()


def test_an_index_that_is_out_of_range(device):
    x = lamina.ones(2, 3, device=device)
    for wrong in (3, -1):
        index = lamina.tensor([[wrong], [0]], device=device)
        with pytest.raises(RuntimeError, match=f'index {wrong} .*size 3'):
            x.gather(1, index)
        with pytest.raises(RuntimeError, match=f'index {wrong} .*size 3'):
            x.scatter_add(1, index, lamina.ones(2, 1, device=device))


@pytest.mark.parametrize('device', ['cpu', 'python', 'meta'])
def test_an_index_that_does_not_fit(device):
    def index(*shape, dtype=lamina.int64):
        return lamina.zeros(*shape, dtype=dtype, device=device)

    x = lamina.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match=r'\[2\].*\[2, 3\]'):
        x.gather(0, index(2))
    with pytest.raises(RuntimeError, match=r'\[3, 1\].*\[2, 3\]'):
        x.gather(1, index(3, 1))
    with pytest.raises(RuntimeError, match='float32'):
        x.gather(0, index(1, 1, dtype=lamina.float32))
    assert x.gather(0, index(1, 1, dtype=lamina.int32)).shape == (1, 1)
    with pytest.raises(RuntimeError, match=r'\[1, 2\].*\[1, 1\]'):
        x.scatter_add(0, index(1, 2), lamina.ones(1, 1, device=device))
    with pytest.raises(RuntimeError, match=r'\[3, 1\].*\[2, 3\]'):
        x.scatter_add(1, index(3, 1), lamina.ones(3, 1, device=device))
    with pytest.raises(RuntimeError, match='float64.*float32'):
        x.scatter_add(0, index(1, 1), lamina.ones(
            1, 1, dtype=lamina.float64, device=device))
    with pytest.raises(IndexError, match=r'\[1, 1\]'):
        x.index_select(0, index(1, 1))


# --- a loss ------------------------------------------------------------------

@quick
@given(layouts(dtype=float_dtypes(), shape=(2, 3)),
       st.lists(numbers(lamina.float32), min_size=3, max_size=3))
def test_mse_loss(layout, row):
    def loss(x, reduction):
        target = lamina.tensor([row, row], device=str(x.device))
        return lamina.mse_loss(x, target, reduction)

    squares = (layout.array().astype('float64') - np.array([row, row])) ** 2
    for reduction, expected in (('none', squares), ('sum', squares.sum()),
                                ('mean', squares.mean())):
        found = agree(lambda x: loss(x, reduction), layout)
        np.testing.assert_allclose(values(found), expected,
                                   rtol=1e-6)


def test_mse_loss_warns_where_shapes_differ(device):
    column = lamina.tensor([[1.0], [2.0], [3.0]], device=device)
    vector = lamina.tensor([1.0, 2.0, 3.0], device=device)
    with pytest.warns(UserWarning, match=r'\[3, 1\].*\[3\]') as caught:
        assert lamina.mse_loss(column, vector).item() == pytest.approx(4 / 3)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert lamina.mse_loss(column, column).item() == 0.0


def test_mse_loss_refuses():
    x = lamina.ones(3)
    with pytest.raises(ValueError, match="'average'"):
        lamina.mse_loss(x, x, 'average')
    with pytest.warns(UserWarning), pytest.raises(RuntimeError,
                                                  match='2.*3'):
        lamina.mse_loss(lamina.ones(2), x)


@quick
@given(layouts(dtype=int_dtypes(), special=True))
def test_integers_are_summed_exactly(layout):
    total = sum(map(int, layout.array().reshape(-1)))
    wrapped = (total + 2 ** 63) % 2 ** 64 - 2 ** 63
    assert agree(lambda x: x.sum(), layout).item() == wrapped


# --- every operator on three devices, over every dtype -----------------------

def along(x, dim):
    return dim if x.shape else 0


ROWWISE = {     # name: a call with a dimension, for tensors of any dtype
    'sum': lambda x, d: x.sum(d), 'prod': lambda x, d: x.prod(d),
    'any': lambda x, d: x.any(d), 'all': lambda x, d: x.all(d),
    'count_nonzero': lambda x, d: x.count_nonzero(d),
    'nansum': lambda x, d: x.nansum(d),
    'cumsum': lambda x, d: x.cumsum(d),
    'cumprod': lambda x, d: x.cumprod(d),
    'cummax': lambda x, d: x.cummax(d), 'cummin': lambda x, d: x.cummin(d),
    'argsort': lambda x, d: x.argsort(d),
    'argsort down': lambda x, d: x.argsort(d, True),
    'sort': lambda x, d: x.sort(d),
    'mode': lambda x, d: x.mode(d),
    'max': lambda x, d: x.max(d), 'min': lambda x, d: x.min(d),
    'amax': lambda x, d: x.amax(d), 'amin': lambda x, d: x.amin(d),
    'aminmax': lambda x, d: x.aminmax(dim=d),
    'diff': lambda x, d: x.diff(dim=d) if x.shape else x,
    'flat take': lambda x, d: x.take(
        lamina.tensor([[0, -1]], device=x.device)),
    'repeat_interleave': lambda x, d: x.repeat_interleave(2, d),
    'index_fill': lambda x, d: x.index_fill(
        d, lamina.tensor([0, -1], device=x.device), 1),
    'index_select': lambda x, d: x.index_select(
        d, lamina.tensor([0] * (1 + len(x.shape)), device=x.device)),
}
NUMBERS = {     # not for bools
    'argmax': lambda x, d: x.argmax(d), 'argmin': lambda x, d: x.argmin(d),
    'topk': lambda x, d: x.topk(1, d),
    'smallest': lambda x, d: x.topk(1, d, largest=False),
    'kthvalue': lambda x, d: x.kthvalue(1, d),
    'median': lambda x, d: x.median(d),
    'median of all': lambda x, d: x.median(),
    'nanmedian': lambda x, d: x.nanmedian(d, True),
}
FLOATS = {
    'mean': lambda x, d: x.mean(d), 'nanmean': lambda x, d: x.nanmean(d),
    'var': lambda x, d: x.var(d), 'std': lambda x, d: x.std(d, keepdim=True),
    'var_mean': lambda x, d: x.var_mean(d, correction=0),
    'logsumexp': lambda x, d: x.logsumexp(d),
    'softmax': lambda x, d: x.softmax(d),
    'log_softmax': lambda x, d: x.log_softmax(d),
    'logcumsumexp': lambda x, d: x.logcumsumexp(d),
    'norm': lambda x, d: x.norm(2, d), 'norm 1': lambda x, d: x.norm(1, d),
    'norm 3': lambda x, d: x.norm(3.0, d, True),
    'norm 0': lambda x, d: x.norm(0, d),
    'norm inf': lambda x, d: x.norm(inf, d),
    'norm -inf': lambda x, d: x.norm(-inf, d),
    'dist': lambda x, d: x.dist(x * 0),
}


def halves_too(kinds):
    return st.sampled_from([d for d in dtypes.values()
                            if d.category in kinds])


def check_devices(call, layout, dim):
    """cpu against python against meta: values, shapes, dtypes."""
    def results(device):
        x = layout.on(device)
        found = call(x, along(x, dim))
        return found if isinstance(found, tuple) else (found,)

    rtol = 3 * 2.0 ** -{'float16': 10, 'bfloat16': 7}.get(
        layout.dtype.name, 18)
    for slow, fast, sizes in zip(*map(results, ('python', 'cpu', 'meta'))):
        assert slow.shape == fast.shape == sizes.shape
        assert slow.dtype is fast.dtype is sizes.dtype
        np.testing.assert_allclose(
            np.array(fast.tolist(), 'float64'),
            np.array(slow.tolist(), 'float64'), rtol=rtol, atol=rtol)


@st.composite
def some_layouts(draw, kinds, special=False):
    shape = draw(shapes(max_dims=3, min_size=1))
    layout = draw(layouts(dtype=halves_too(kinds), shape=shape,
                          special=special))
    return layout, draw(st.integers(-len(shape), max(len(shape) - 1, 0)))


brief = settings(max_examples=12, deadline=None)


@pytest.mark.parametrize('name', [n for n in ROWWISE if n not in (
    'sum', 'prod', 'cumsum', 'cumprod', 'nansum')])
@brief
@given(some_layouts((0, 1, 2), special=True))
def test_devices_agree(name, case):
    check_devices(ROWWISE[name], *case)


@pytest.mark.parametrize('name', ['sum', 'prod', 'cumsum', 'cumprod',
                                  'nansum'])
@brief
@given(some_layouts((0, 1, 2)))
def test_devices_agree_on_sums(name, case):
    check_devices(ROWWISE[name], *case)


@pytest.mark.parametrize('name', NUMBERS)
@brief
@given(some_layouts((1, 2), special=True))
def test_devices_agree_on_numbers(name, case):
    check_devices(NUMBERS[name], *case)


@pytest.mark.parametrize('name', FLOATS)
@brief
@given(some_layouts((2,)))
def test_devices_agree_on_floats(name, case):
    check_devices(FLOATS[name], *case)


SCATTERS = {
    'scatter': lambda x, d, i, s: x.scatter(d, i, s),
    'scatter a number': lambda x, d, i, s: x.scatter(d, i, 1),
    'scatter multiply': lambda x, d, i, s: x.scatter(d, i, s,
                                                     reduce='multiply'),
    'scatter_add': lambda x, d, i, s: x.scatter_add(d, i, s),
    **{f'{reduce} {own}': lambda x, d, i, s, reduce=reduce, own=own:
       x.scatter_reduce(d, i, s, reduce, include_self=own)
       for reduce in ('sum', 'prod', 'amax', 'amin', 'mean')
       for own in (True, False)},
    'take_along_dim': lambda x, d, i, s: x.take_along_dim(
        i.narrow(0, 0, 1) if len(i.shape) > 1 and d % len(i.shape)
        else i, d) if i.shape == s.shape == x.shape else x,
    'put': lambda x, d, i, s: x.put(i, s),
    'put and add': lambda x, d, i, s: x.put(i, s, True),
}


@pytest.mark.parametrize('name', SCATTERS)
@brief
@given(choices(dtype=halves_too((0, 1, 2))), st.data())
def test_devices_agree_on_scatters(name, case, data):
    layout, dim, index = case
    if (layout.dtype.category == 0 and 'mean' in name) or (
            0 in layout.geometry.strides):
        layout = data.draw(layouts(dtype=lamina.float32, overlap=False,
                                   shape=layout.geometry.shape))
    source = data.draw(layouts(dtype=layout.dtype, shape=index.shape))

    def call(x, d):
        return SCATTERS[name](x, dim, on(index, x),
                              source.on(str(x.device)))

    check_devices(call, layout, dim)


# --- against NumPy ------------------------------------------------------------

@quick
@given(some_layouts((1, 2)))
def test_scans_and_spreads_as_numpy(case):
    layout, dim = case
    if layout.dtype.itemsize == 2 and layout.dtype.category == 2:
        return
    x, array = layout.on('cpu'), layout.array()
    if not array.ndim:
        array = array.reshape(1)
    dim, wide = along(x, dim), array.astype(
        'float64' if array.dtype.kind == 'f' else 'int64')
    for name, expected in (
            ('cumsum', wide.cumsum(dim)), ('cumprod', wide.cumprod(dim)),
            ('prod', wide.prod(dim)),
            ('count_nonzero', np.count_nonzero(array, dim))):
        found = np.array(getattr(x, name)(dim).tolist())
        np.testing.assert_allclose(found.reshape(np.shape(expected)),
                                   expected, rtol=1e-5)
    if array.dtype.kind == 'f':
        for name, free in (('var', 0), ('std', 0), ('var', 1)):
            found = getattr(x, name)(dim, correction=free).tolist()
            with np.errstate(all='ignore'), warnings.catch_warnings():
                warnings.simplefilter('ignore')
                expected = getattr(wide, name)(dim, ddof=free)
            np.testing.assert_allclose(found, expected.reshape(
                np.shape(found)), rtol=1e-5, atol=1e-6)


@quick
@given(some_layouts((0, 1, 2), special=True))
def test_sorting_as_numpy(case):
    layout, dim = case
    if layout.dtype.itemsize == 2 and layout.dtype.category == 2:
        return
    x, array = layout.on('cpu'), layout.array()
    if not array.ndim:
        return
    order = np.argsort(array, dim, kind='stable')
    values, places = x.sort(dim)
    assert places.tolist() == order.tolist()
    assert same(values.tolist(),
                np.take_along_axis(array, order, dim).tolist())
    down = x.argsort(dim, descending=True)
    assert same(x.gather(dim, down).tolist(), np.flip(
        np.take_along_axis(array, order, dim), dim).tolist())
    # equal ones keep their order: their places rise
    picked, down = np.moveaxis(np.array(x.gather(dim, down).tolist()),
                               dim, -1), np.moveaxis(
        np.array(down.tolist()), dim, -1)
    level = picked[..., 1:] == picked[..., :-1]
    assert (down[..., 1:] > down[..., :-1])[level].all()


@quick
@given(layouts(dtype=any_dtypes(), shape=shapes(max_dims=2)), st.booleans())
def test_unique_as_numpy(layout, counts):
    expected = np.unique(layout.array(), return_inverse=True,
                         return_counts=True)
    for device in DEVICES:
        found = layout.on(device).unique(return_inverse=True,
                                         return_counts=counts)
        assert len(found) == 2 + counts
        assert found[0].tolist() == expected[0].tolist()
        assert found[1].tolist() == expected[1].reshape(
            layout.geometry.shape).tolist()
        if counts:
            assert found[2].tolist() == expected[2].tolist()


def test_unique_slices(device):
    x = lamina.tensor([[1, 0, 1], [2, 5, 2]], device=device)
    values, places, counts = lamina.unique(
        x, dim=1, return_inverse=True, return_counts=True)
    assert values.tolist() == [[0, 1], [5, 2]]
    assert places.tolist() == [1, 0, 1]
    assert counts.tolist() == [1, 2]
    runs = lamina.tensor([1, 1, 2, 1], device=device)
    assert lamina.unique_consecutive(runs, return_counts=True)[1].tolist() \
        == [2, 1, 1]
    assert len(lamina.tensor([nan, nan], device=device).unique()) == 2
    assert lamina.zeros(0, device=device).unique().tolist() == []
    with pytest.raises(RuntimeError, match='no elements'):
        lamina.zeros(2, 0, device=device).unique(dim=0)


@quick
@given(st.lists(st.integers(-5, 5).map(float), max_size=6).map(sorted),
       st.lists(st.integers(-6, 6).map(float), max_size=4), st.booleans())
def test_searchsorted_as_numpy(row, wanted, right):
    expected = np.searchsorted(row, wanted, 'right' if right else 'left')
    for device in DEVICES:
        rows, x = (lamina.tensor(v, device=device, dtype=lamina.float32)
                   for v in (row, wanted))
        assert lamina.searchsorted(rows, x, right=right).tolist() == (
            expected.tolist())
        assert lamina.bucketize(x, rows, right=right).tolist() == (
            expected.tolist())


@quick
@given(st.lists(st.integers(0, 6), max_size=8), st.integers(0, 9))
def test_bincount_as_numpy(numbers, minlength):
    expected = np.bincount(np.array(numbers, int), minlength=minlength)
    for device in DEVICES:
        x = lamina.tensor(numbers, dtype=lamina.int64, device=device)
        assert x.bincount(minlength=minlength).tolist() == expected.tolist()


@quick
@given(layouts(dtype=lamina.float64, shape=shapes(max_dims=3, min_size=1)),
       st.sampled_from(['linear', 'lower', 'higher', 'midpoint', 'nearest']),
       st.booleans(), st.data())
def test_quantile_as_numpy(layout, method, keepdim, data):
    array = layout.array()
    dim = data.draw(st.sampled_from([None, *range(array.ndim)]))
    for q in (0.3, [0.0, 0.5, 1.0]):
        expected = np.quantile(array, q, axis=dim, keepdims=keepdim,
                               method=method)
        for device in DEVICES:
            x = layout.on(device)
            wanted = q if q == 0.3 else lamina.tensor(
                q, dtype=lamina.float64, device=device)
            found = x.quantile(wanted, dim, keepdim, interpolation=method)
            np.testing.assert_allclose(values(found), expected, atol=1e-12)


@quick
@given(layouts(dtype=lamina.float64, shape=shapes(max_dims=3, min_dims=1)),
       st.data())
def test_diff_and_trapezoid_as_numpy(layout, data):
    array = layout.array()
    dim = data.draw(st.integers(0, array.ndim - 1))
    for device in DEVICES:
        x = layout.on(device)
        found = x.diff(dim=dim)
        np.testing.assert_array_equal(values(found), np.diff(array, axis=dim)
                                      if array.shape[dim] else array)
        if array.shape[dim]:
            points = np.arange(array.shape[dim]) ** 2.0
            area = lamina.trapezoid(x, lamina.tensor(
                points.tolist(), dtype=lamina.float64, device=device),
                dim=dim)
            steps = np.diff(points).reshape(
                [-1 if k == dim else 1 for k in range(array.ndim)])
            upper, lower = (np.take(array, range(*part), dim) for part in (
                (1, array.shape[dim]), (0, array.shape[dim] - 1)))
            np.testing.assert_allclose(
                values(area), ((upper + lower) * steps / 2).sum(dim))


@pytest.mark.parametrize('p', [2, 1, 0, inf, -inf, 3, 0.5, -1])
def test_norm_as_numpy(p, device):
    rows = [[3.0, -4.0, 1.0], [1.0, 2.0, -2.0]]
    x = lamina.tensor(rows, device=device)
    np.testing.assert_allclose(x.norm(p, 1).tolist(),
                               np.linalg.norm(rows, p, 1), rtol=1e-6)


def test_the_nuclear_norm(device):
    rows = [[3.0, -4.0, 1.0], [1.0, 2.0, -2.0]]
    x = lamina.tensor(rows, dtype=lamina.float64, device=device)
    expected = np.linalg.norm(np.array(rows), 'nuc')
    assert x.norm('nuc').item() == pytest.approx(expected)
    assert x.t().norm('nuc', dim=(0, 1)).item() == pytest.approx(expected)
    assert x.expand(4, 2, 3).norm('nuc', (1, 2), True).shape == (4, 1, 1)
    assert x.to('meta').norm('nuc', (0, 1)).shape == () or (
        device == 'python')
    with pytest.raises(RuntimeError, match='two dimensions'):
        x.norm('nuc', (0,))


# --- values of PyTorch that are easily got wrong -------------------------------

def test_forms_of_var(device):
    x = lamina.tensor([[1.0, 2.0], [3.0, 5.0]], device=device)
    assert x.var().item() == pytest.approx(2.9166667)
    assert x.var(False).item() == pytest.approx(2.1875)
    assert x.var(unbiased=False).item() == pytest.approx(2.1875)
    assert x.var(0).tolist() == x.var(dim=0).tolist() == [2.0, 4.5]
    assert x.var(0, False, True).tolist() == [[1.0, 2.25]]
    assert x.var((0, 1), correction=0, keepdim=True).shape == (1, 1)
    assert same(x[:1].var(0).tolist(), [nan, nan])      # 0 / 0
    assert same(x.var(0, correction=5).tolist(), [inf, inf])
    spread, mean = x.std_mean(1)
    assert mean.tolist() == [1.5, 4.0] and spread.shape == (2,)
    with pytest.raises(RuntimeError, match='float'):
        lamina.ones(2, dtype=lamina.int64, device=device).var()


def test_variance_of_a_large_mean(device):
    x = lamina.tensor([10001.0, 10002.0, 10003.0], device=device)
    assert x.var().item() == 1.0


def test_cumsum_keeps_64_bits():
    x = lamina.from_numpy(np.full(1_000_000, 0.1, 'float32'))
    assert abs(x.cumsum(0)[-1].item() - 100_000) < 0.01


def test_scans_of_integers_and_dtypes(device):
    x = lamina.tensor([200, 100], dtype=lamina.uint8, device=device)
    assert x.cumsum(0).tolist() == [200, 300]
    assert x.cumsum(0, dtype=lamina.uint8).tolist() == [200, 44]
    assert x.cumsum_(0).tolist() == [200, 44]
    assert x.prod(dtype=lamina.float32).item() == 200 * 44
    assert lamina.tensor([True, True], device=device).cumprod(0).dtype is (
        lamina.int64)


def test_cummax_names_the_last_of_equals(device):
    x = lamina.tensor([1.0, 1.0, 0.0, nan, 2.0, nan], device=device)
    values, places = x.cummax(0)
    assert same(values.tolist(), [1.0, 1.0, 1.0, nan, nan, nan])
    assert places.tolist() == [0, 1, 1, 3, 3, 5]
    assert x.cummin(0).indices.tolist() == [0, 1, 2, 3, 3, 5]


def test_order_of_nan(device):
    x = lamina.tensor([2.0, nan, 1.0, 2.0], device=device)
    assert x.argsort().tolist() == [2, 0, 3, 1]
    assert x.argsort(descending=True).tolist() == [1, 0, 3, 2]
    assert x.topk(2).indices.tolist() == [1, 0]
    assert x.sort(stable=True, descending=True).indices.tolist() == [
        1, 0, 3, 2]


def test_medians(device):
    x = lamina.tensor([[4.0, 1.0, 3.0, 2.0], [nan, 1.0, 2.0, nan]],
                      device=device)
    values, places = x.median(1)
    assert same(values.tolist(), [2.0, nan])
    assert places.tolist() == [3, 0]
    assert x.nanmedian(1).values.tolist() == [2.0, 1.0]
    assert x.nanmedian(1).indices.tolist() == [3, 1]
    assert same(x.median().item(), nan) and x.nanmedian().item() == 2.0
    assert same(lamina.zeros(0, device=device).median().item(), nan)


def test_mode_is_the_smallest_of_the_most_frequent(device):
    x = lamina.tensor([2, 1, 2, 1, 3], device=device)
    assert tuple(v.item() for v in x.mode()) == (1, 3)
    assert lamina.tensor(5, device=device).mode().values.item() == 5


def test_the_larger_of_two(device):
    a, b = (lamina.tensor(v, device=device) for v in ([1.0, 5.0],
                                                      [3.0, nan]))
    assert same(a.max(b).tolist(), [3.0, nan])
    assert same(lamina.min(a, b).tolist(), [1.0, nan])


def test_scatter_reduce_without_self(device):
    x = lamina.tensor([10.0, 20.0, 30.0], device=device)
    index = lamina.tensor([0, 0, 1], device=device)
    src = lamina.tensor([1.0, 4.0, 5.0], device=device)
    for reduce, own, others in (('sum', [15, 25, 30], [5, 5, 30]),
                                ('prod', [40, 100, 30], [4, 5, 30]),
                                ('mean', [5, 12.5, 30], [2.5, 5, 30]),
                                ('amax', [10, 20, 30], [4, 5, 30]),
                                ('amin', [1, 5, 30], [1, 5, 30])):
        for include, expected in ((True, own), (False, others)):
            found = x.scatter_reduce(0, index, src, reduce,
                                     include_self=include)
            assert found.tolist() == expected, (reduce, include)
    with pytest.raises(RuntimeError, match="'max'"):
        x.scatter_reduce(0, index, src, 'max')


def test_index_operators_count_from_the_end_where_pytorch_does(device):
    x = lamina.zeros(3, 2, device=device)
    last = lamina.tensor([-1], device=device)
    row = lamina.ones(1, 2, device=device)
    assert x.index_fill(0, last, 4)[2].tolist() == [4.0, 4.0]
    assert x.put(last, lamina.tensor([5.0], device=device))[2, 1].item() == 5
    for name, rest in (('index_select', ()), ('index_copy', (row,)),
                       ('index_add', (row,))):
        with pytest.raises((IndexError, RuntimeError), match='index -1 is'):
            getattr(x, name)(0, last, *rest)


def test_index_add_checks_and_scales(device):
    x = lamina.zeros(3, 2, device=device)
    index = lamina.tensor([1, 1], device=device)
    rows = lamina.ones(2, 2, device=device)
    assert x.index_add(0, index, rows, alpha=3)[1].tolist() == [6.0, 6.0]
    assert x.index_add_(0, index, rows) is x and x[1, 0].item() == 2.0
    with pytest.raises(RuntimeError, match=r'\[2, 2\].*\[2, 3\]'):
        lamina.zeros(3, 3, device=device).index_add(0, index, rows)


def test_an_index_without_elements_fits_anything(device):
    x = lamina.ones(2, 3, device=device)
    none = lamina.zeros(0, dtype=lamina.uint8, device=device)
    assert x.gather(0, none).shape == (0,)
    assert x.scatter(0, none, 5.0).tolist() == x.tolist()


def test_repeats(device):
    x = lamina.tensor([[1, 2], [3, 4]], device=device)
    each = lamina.tensor([0, 2], device=device)
    assert x.repeat_interleave(2).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert x.repeat_interleave(each, 0).tolist() == [[3, 4], [3, 4]]
    assert lamina.repeat_interleave(each).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match='3 repeats.*size 2'):
        x.repeat_interleave(lamina.tensor([1, 1, 1], device=device), 1)


def test_histc(device):
    x = lamina.tensor([0.0, 1.0, 2.5, 4.0, 9.0], device=device)
    assert x.histc(4, 0, 4).tolist() == [1.0, 1.0, 1.0, 1.0]
    assert x.histc(3).tolist() == [3.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match='bins=0'):
        x.histc(0)


def test_traces_and_diagonals(device):
    x = lamina.tensor([[1, 2, 3], [4, 5, 6]], device=device)
    assert x.trace().item() == 6 and x.diag(1).tolist() == [2, 6]
    v = lamina.tensor([1, 2], device=device)
    assert v.diag(-1).tolist() == [[0, 0, 0], [1, 0, 0], [0, 2, 0]]
    assert v.diag(1).tolist() == [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    with pytest.raises(RuntimeError, match='matrix'):
        v.trace()


def test_masked_scatter(device):
    x = lamina.zeros(2, 2, device=device)
    mask = lamina.tensor([[True, False], [True, True]], device=device)
    src = lamina.tensor([1.0, 2.0, 3.0, 4.0], device=device)
    assert x.masked_scatter(mask, src).tolist() == [[1.0, 0.0], [2.0, 3.0]]
    with pytest.raises(RuntimeError, match='more than the 2'):
        x.masked_scatter(mask, src[:2])


def test_sum_to_size(device):
    x = lamina.ones(2, 3, 4, device=device)
    assert x.sum_to_size(3, 1).tolist() == [[8.0]] * 3
    assert x.sum_to_size(()).item() == 24.0
    with pytest.raises(RuntimeError, match=r'\[2, 3, 4\].*\[5\]'):
        x.sum_to_size(5)


def test_softmax_of_rows_that_need_the_shift(device):
    # a sum of exponentials that is finite and large, one that is tiny
    for row in ([80.0, 81.0], [-80.0, -81.0], [-90.0, 3.0], [88.0, 88.7]):
        for name in ('softmax', 'log_softmax'):
            x = lamina.tensor(row, device=device)
            array = np.exp(np.array(row) - max(row))
            expected = array / array.sum()
            found = np.array(getattr(x, name)(0).tolist())
            np.testing.assert_allclose(
                found, expected if name == 'softmax' else np.log(expected),
                rtol=2e-5)


def test_blocks_cover_the_array():
    from lamina.reductions import BLOCK, in_blocks, softmax_block
    softmax = in_blocks(softmax_block)
    rng = np.random.default_rng(0)
    for shape, axis in (((3, BLOCK // 2, 5), 1), ((700, 300), 1),
                        ((2, BLOCK), 0), ((BLOCK + 1,), 0)):
        x = rng.normal(size=shape).astype('float32')
        top = np.exp(x.astype('float64'))
        np.testing.assert_allclose(
            softmax(x, axis), top / top.sum(axis, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize('name', ['argmax', 'argmin', 'topk', 'kthvalue',
                                  'median', 'trace'])
def test_what_bools_refuse(name, device):
    x = lamina.ones(2, 2, dtype=lamina.bool, device=device)
    with pytest.raises((RuntimeError, NotImplementedError), match='bool'):
        getattr(x, name)(*[1] * (name in ('topk', 'kthvalue')))


@pytest.mark.parametrize('k', [-1, 4])
def test_more_than_there_are(k, device):
    x = lamina.ones(2, 3, device=device)
    for name in ('topk', 'kthvalue'):
        with pytest.raises(RuntimeError, match=rf'{k}; dimension 1.*3'):
            getattr(x, name)(k)


def test_results_of_composites_are_written_into_out(device):
    x = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    out = lamina.zeros(2, device=device)
    for name in ('mean', 'var', 'logsumexp', 'prod'):
        assert getattr(lamina, name)(x, 0, out=out) is out
        assert out.tolist() == getattr(x, name)(0).tolist()
    assert lamina.cumsum(out, 0, out=out) is out


@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_in(device):
    x = lamina.tensor([[1.0, 2.0], [3.0, float('nan')]], device=device)
    assert 2.0 in x and 3 in x and x[0, 1] in x
    assert 9.0 not in x and float('nan') not in x
    with pytest.raises(RuntimeError, match='str'):
        'a' in x


def test_several_results_are_written_into_out(device):
    x = lamina.tensor([[3.0, 1.0], [2.0, 5.0]], device=device)
    for name, args in (('max', (1,)), ('sort', ()), ('topk', (1,)),
                       ('median', (0,)), ('cummax', (0,))):
        out = (lamina.zeros(0, device=device),
               lamina.zeros(0, dtype=lamina.int64, device=device))
        found = getattr(lamina, name)(x, *args, out=out)
        plain = getattr(x, name)(*args)
        for a, b, c in zip(found, out, plain):
            assert a is b and a.tolist() == c.tolist()
        assert type(found) is type(plain)
    with pytest.raises(TypeError, match='2 tensors.*indices'):
        lamina.max(x, 1, out=lamina.zeros(2, device=device))


def test_in(device):
    x = lamina.tensor([1.0, 2.0], device=device)
    assert 2 in x and 3 not in x and lamina.tensor(1.0, device=device) in x
    with pytest.raises(RuntimeError, match='str'):
        'a' in x


@pytest.mark.parametrize("device", ["cpu", "python", "meta"])
def test_results_of_turned_tensors_lie_in_rows(device):
    """The strides of torch 2.13."""
    x = lamina.ones(3, 4, 4, device=device).transpose(0, 2)
    for name in ("sum", "prod", "mean", "std", "amax", "all", "argmax",
                 "logsumexp"):
        assert getattr(x, name)(0).stride() == (3, 1), name
    rows = lamina.zeros(3, 2, dtype=lamina.int64, device=device)
    turned = lamina.ones(3, 2, device=device).t()
    assert turned.gather(0, rows.t()).stride() == (3, 1)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_any_and_all_of_no_dimension(device):
    x = lamina.tensor([2, 0], device=device)
    assert x.any(()).tolist() == x.all(()).tolist() == [True, False]
    assert x.any().item() and not x.all().item()


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_an_index_without_dimensions_scatters_one_element(device):
    x, src = (lamina.tensor(v, device=device) for v in ([1, 2], [5, 6]))
    index = lamina.tensor(1, device=device)
    assert x.scatter_add(0, index, src).tolist() == [1, 7]
    assert x.scatter(0, index, src).tolist() == [1, 5]


@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("name, last, error", [
    ("index_add", "source", IndexError), ("index_copy", "source", IndexError),
    ("index_fill", 1., IndexError), ("index_select", None, IndexError),
    ("scatter", "source", RuntimeError), ("gather", None, RuntimeError)])
def test_an_index_that_is_not_there(device, name, last, error):
    x, source = (lamina.ones(n, device=device) for n in (2, 1))
    index = lamina.tensor([5], device=device)
    args = () if last is None else (source if last == "source" else last,)
    with pytest.raises(error, match=name + r"\(\): index 5 is out of range"):
        getattr(x, name)(0, index, *args)
    with pytest.raises(IndexError, match=r"put\(\): index 5"):
        x.put(index, source)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_searchsorted_compares_where_dtypes_meet(device):
    rows = lamina.tensor([0, 1, 2], device=device)
    assert lamina.searchsorted(rows, 1.5).item() == 2
    assert lamina.bucketize(1.5, rows).item() == 2
    half = lamina.tensor([.5, 1.], dtype=lamina.float64, device=device)
    assert lamina.searchsorted(rows, half).tolist() == [1, 1]
    assert lamina.searchsorted(rows.to(lamina.int8), 300).item() == 3


def test_topk_keeps_no_more_than_its_result():
    values, indices = lamina.arange(1000).topk(1)
    assert indices.untyped_storage().nbytes() == 8
    assert lamina.ones(3, 2).topk(1).indices.stride() == (1, 1)


@pytest.mark.parametrize("device", ["cpu", "python", "meta"])
def test_sorted_results_lie_as_the_tensor_does(device):
    """And scattered ones in rows: the strides of torch 2.13."""
    x = (lamina.arange(24., device=device).reshape(3, 4, 2) % 7).transpose(0, 1)
    for found in (*x.sort(1), *x.sort(0, descending=True), x.argsort(2)):
        assert found.stride() == x.stride() == (2, 8, 1)
    assert [y.stride() for y in x.topk(2, 0)] == [(6, 2, 1)] * 2
    if device != "meta":
        values, places = x.sort(1)
        assert x.gather(1, places).tolist() == values.tolist()
    index = lamina.zeros(2, 3, dtype=lamina.int64, device=device)
    turned = lamina.ones(3, 2, device=device).t()
    assert turned.scatter(0, index, 2.).stride() == (3, 1)


def test_a_reduction_inside_quiet_is_the_same():
    """The context of the short way is taken, so the slow way is gone."""
    x = lamina.tensor([[inf, 1.0], [-inf, 3e38]])
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for call in (x.sum, lambda: x.sum(0), lambda: x.sum((0,), True),
                     lambda: x.amax(1), lambda: x.argmin(0),
                     lambda: x.any(), lambda: x.prod(0)):
            assert same(quiet(call).tolist(), call().tolist())
            assert quiet(call).shape == call().shape
    with pytest.raises(RuntimeError, match='no elements to choose from'):
        quiet(lamina.ones(0).amax)


@pytest.mark.parametrize('rows', [0, 1, 5, 128, 129, 300])
@pytest.mark.parametrize('columns', [0, 1, 7])
@pytest.mark.parametrize('dtype', dtypes.values(), ids=str)
def test_the_sum_of_rows_whatever_the_matrix(rows, columns, dtype):
    """The short way agrees with every other way to ask for it."""
    x = (lamina.arange(rows * columns) % 5).view(rows, columns).to(dtype)
    want = x.to('python').sum(0)
    for y in (x, x.t().contiguous().t(), lamina.cat([x, x])[:rows],
              lamina.cat([x, x], 1)[:, :columns]):
        for found in (y.sum(0), y.sum((0,)), y.sum(-2), y.sum([0]),
                      y.sum(0, keepdim=True)[0], y.t().sum(1)):
            assert found.tolist() == want.tolist()
            assert found.dtype is want.dtype and found.shape == want.shape
            assert found.stride() == want.stride()
    assert x.sum(0, dtype=lamina.float64).dtype is lamina.float64


@pytest.mark.parametrize('dtype', [lamina.float32, lamina.float64], ids=str)
def test_the_sum_of_rows_with_infinities_says_nothing(dtype):
    x = lamina.tensor([[inf, nan, inf, 3e38], [1.0, 1.0, -inf, 3e38]],
                      dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert same(x.sum(0).tolist(), x.to('python').sum(0).tolist())
