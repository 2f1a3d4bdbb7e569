"""Chapter 5: reductions and choosing, against NumPy and across devices."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
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
