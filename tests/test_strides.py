"""Chapter 2: geometry, views, copies, writing, printing. NumPy is the oracle.

All of it holds in every later checkpoint, too, where these functions have
become operators.
"""

import copy
import pickle
import gc
import itertools
import math
import weakref

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided as np_as_strided

import lamina
from lamina.storage import dtypes
from lamina.strides import (Geometry, dense, element, infer_size,
                            is_row_major, nearest, numel, offsets, overlaps,
                            row_major, view_strides, wrap_dim)
from strategies import (any_dtypes, int_dtypes, layouts, number_dtypes, same,
                        shapes)

DEVICES = ['python', 'cpu']
quick = settings(max_examples=60, deadline=None)


def steps(array):
    """NumPy's strides, in elements."""
    return tuple(s // array.itemsize for s in array.strides)


def agrees(x, array):
    """Shape, elements and, where they mean something, strides."""
    return (x.shape == array.shape and same(x.tolist(), array.tolist())
            and (array.size == 0 or all(
                n == 1 or ours == theirs for n, ours, theirs
                in zip(x.shape, x.stride(), steps(array)))))


# --- geometry ---------------------------------------------------------

@quick
@given(shapes())
def test_row_major_agrees_with_numpy(shape):
    geometry = row_major(shape)
    assert geometry is row_major(shape)
    if 0 not in shape:
        assert geometry.strides == steps(np.empty(shape))
    assert geometry.offset == 0 and numel(shape) == np.empty(shape).size


@pytest.mark.parametrize('shape, strides', [
    ((), ()), ((3,), (1,)), ((2, 3), (3, 1)), ((0, 3), (3, 1)),
    ((2, 0), (1, 1)), ((2, 0, 3), (3, 3, 1)), ((1, 1), (1, 1))])
def test_row_major_strides(shape, strides):
    assert row_major(shape).strides == strides       # PyTorch's


def test_a_geometry_never_changes():
    geometry = Geometry((2, 3), (3, 1))
    with pytest.raises(AttributeError):
        geometry.offset = 1
    assert geometry == Geometry((2, 3), (3, 1), 0) and hash(geometry)


@quick
@given(layouts())
def test_offsets_are_the_rule(layout):
    shape, strides, offset = layout.geometry
    assert offsets(layout.geometry) == [
        offset + sum(i * s for i, s in zip(index, strides))
        for index in itertools.product(*map(range, shape))]


@quick
@given(layouts())
def test_is_row_major_agrees_with_numpy(layout):
    assert is_row_major(layout.geometry) == (
        layout.array().flags.c_contiguous)
    assert layout.on('python').is_contiguous() == (
        layout.array().flags.c_contiguous)


@pytest.mark.parametrize('shape, strides, answer', [
    ((2, 3), (0, 1), True), ((2, 3), (3, 1), False), ((1, 3), (0, 1), False),
    ((2, 0), (0, 0), False), ((), (), False), ((3,), (0,), True)])
def test_overlaps(shape, strides, answer):
    assert overlaps(Geometry(shape, strides)) is answer


# --- tensors that report ----------------------------------------------

@quick
@given(layouts(), st.sampled_from([*DEVICES, 'meta']))
def test_reports(layout, where):
    x, array = layout.on(where), layout.array()
    assert x.shape == x.size() == array.shape and x.ndim == x.dim()
    assert x.ndim == array.ndim and x.numel() == x.nelement() == array.size
    assert x.stride() == layout.geometry.strides
    assert x.storage_offset() == layout.geometry.offset
    assert x.element_size() == array.itemsize and x.dtype is layout.dtype
    assert str(x.device) == where and x.untyped_storage() is x.storage
    for d in range(-x.ndim, x.ndim):
        assert x.size(d) == array.shape[d]
        assert x.stride(d) == layout.geometry.strides[d]


@quick
@given(layouts(special=True), st.sampled_from(DEVICES))
def test_reading_agrees_with_numpy(layout, where):
    x, array = layout.on(where), layout.array()
    assert same(x.tolist(), array.tolist())
    if x.numel() == 1:
        assert same(x.item(), array.item())
    else:
        with pytest.raises(RuntimeError, match=f'has {x.numel()}'):
            x.item()


@pytest.mark.parametrize('shape, lists', [
    ((2, 0, 2), [[], []]), ((0, 2), []), ((2, 0), [[], []]),
    ((1, 0, 0), [[]]), ((0,), [])])
def test_lists_without_elements(shape, lists):
    assert lamina.zeros(shape).tolist() == lists


def test_an_attribute_that_is_not_there():
    x = lamina.zeros(2)
    with pytest.raises(AttributeError, match="no attribute 'shap'"):
        x.shap
    assert not hasattr(x, 'nothing_like_it')


def test_python_reads_a_tensors_attributes_the_short_way():
    for name in ('__getattr__', '__getattribute__'):
        assert (getattr(lamina.Tensor, name, None)
                is getattr(object, name, None))


def test_a_name_that_is_like_no_other():
    assert nearest('xyzzy', ['shape']) == ''


def test_a_tensor_is_a_key():
    x, y = lamina.zeros(2), lamina.zeros(2)
    assert {x: 1, y: 2}[x] == 1


@pytest.mark.parametrize('dim', [3, -4, 100])
def test_a_dimension_out_of_range(dim):
    x = lamina.zeros(2, 3, 4)
    for use in (x.size, x.stride, lambda d: x.select(d, 0), x.squeeze,
                lambda d: x.transpose(0, d), lambda d: x.narrow(d, 0, 1),
                lambda d: x.permute(0, 1, d), lambda d: x.flatten(0, d)):
        with pytest.raises(IndexError, match=f'{dim}.*-3 to 2'):
            use(dim)
    assert wrap_dim(-1, 3) == 2 and wrap_dim(0, 0) == 0 == wrap_dim(-1, 0)


# --- new tensors ------------------------------------------------------

@pytest.mark.parametrize('where', [*DEVICES, 'meta'])
@pytest.mark.parametrize('make', [lamina.empty, lamina.zeros, lamina.ones])
def test_new_tensors(make, where):
    for x in (make(2, 3, device=where), make((2, 3), device=where),
              make([2, 3], device=where)):
        assert x.shape == (2, 3) and x.stride() == (3, 1)
        assert x.dtype is lamina.float32 and str(x.device) == where
        assert x.storage.nbytes() == 24
    x = make(0, 3, dtype=lamina.int64, device=where)
    assert x.shape == (0, 3) and x.dtype is lamina.int64
    assert make((), device=where).shape == ()
    if where != 'meta':
        number = make(2, dtype=lamina.uint8, device=where).tolist()
        assert number == ([1, 1] if make is lamina.ones else [0, 0])


@pytest.mark.parametrize('where', DEVICES)
def test_full(where):
    def numbers(*args, **more):
        x = lamina.full(*args, device=where, **more)
        return x.dtype.name, x.tolist()

    assert numbers((2,), 3) == ('int64', [3, 3])
    assert numbers([1, 2], 0.5) == ('float32', [[0.5, 0.5]])
    assert numbers((2,), True) == ('bool', [True, True])
    assert numbers((), 7, dtype=lamina.float64) == ('float64', 7.0)
    assert numbers((2, 0), 1) == ('int64', [[], []])
    assert numbers((1,), np.float32(2.5)) == ('float32', [2.5])
    assert lamina.ones(2, 2, device=where).new_zeros(3).tolist() == [0] * 3
    for size in (3, 'a'):
        with pytest.raises(TypeError, match=r'full\(\)'):
            lamina.full(size, 1)


@pytest.mark.parametrize('size, error, says', [
    ((-1,), RuntimeError, 'negative'), ((2, -3), RuntimeError, 'negative'),
    ((2, 2, 1, 2 ** 61), RuntimeError, 'more than any memory'),
    ((2 ** 40, 2 ** 40), RuntimeError, '1208925819614629174706176'),
    ((2.5,), TypeError, '2.5'), (('a',), TypeError, "'a'"),
    ((), TypeError, 'expected ints'), (((1,), 2), TypeError, 'expected int')])
def test_sizes_that_are_none(size, error, says):
    for make in (lamina.empty, lamina.zeros, lamina.ones):
        with pytest.raises(error, match=says):
            make(*size)


@pytest.mark.parametrize('data, dtype', [
    (3, 'int64'), (3.0, 'float32'), (True, 'bool'), ([], 'float32'),
    ([[]], 'float32'), ([1, 2], 'int64'), ([True, 2], 'int64'),
    ([True, 2.5], 'float32'), ([[1, 2], [3, 4.5]], 'float32'),
    ((1, (2)), 'int64'), ([(), ()], 'float32'), (range(4), 'int64'),
    ([np.float64(1), 2], 'float64'), ([math.inf, math.nan], 'float32')])
@pytest.mark.parametrize('where', DEVICES)
def test_tensor(data, dtype, where):
    x = lamina.tensor(data, device=where)
    assert x.dtype.name == dtype
    assert agrees(x, np.array(data, dtype))


@quick
@given(layouts(special=True), any_dtypes(), st.sampled_from(DEVICES))
def test_tensor_of_an_array_converts_it(layout, dtype, where):
    array = layout.array()
    assume(dtype.category != 1 or np.isfinite(array).all())
    assume(abs(array.astype(float)).max(initial=0) < 2 ** 31)
    x = lamina.tensor(array, device=where)
    assert x.dtype is layout.dtype and agrees(x.contiguous(), array.copy())
    for source in (array, x):
        y = lamina.tensor(source, dtype=dtype, device=where)
        expected = array.astype(np.int64) if (
            dtype.category == 1) else array
        assert same(y.tolist(), expected.astype(dtype.name).tolist())
        assert y.storage is not x.storage


def test_tensor_of_tensors():
    one, two = lamina.tensor(1), lamina.tensor([[2.5]])
    assert lamina.tensor([one, 2]).tolist() == [1, 2]
    assert lamina.tensor([one, two]).tolist() == [1.0, 2.5]
    with pytest.raises(ValueError, match='has 2'):
        lamina.tensor([lamina.ones(2), lamina.ones(2)])


@pytest.mark.parametrize('data, error, says', [
    ([[1, 2], [3]], ValueError, 'expected a list of 2.*got a list of 1'),
    ([[1], [2, 3]], ValueError, 'expected a list of 1.*got a list of 2'),
    ([[1, 2], 3], TypeError, 'expected a list of 2.*got 3'),
    ([1, [2]], TypeError, r'1 levels deep.*got \[2\]'),
    ('a', TypeError, "str: 'a'"), ([1, 'a'], TypeError, "str: 'a'"),
    (None, TypeError, 'NoneType'), ({1: 2}, TypeError, 'dict'),
    ([1j], TypeError, 'complex'),
    (np.zeros(2, np.complex128), TypeError, 'complex128')])
def test_data_that_is_no_tensor(data, error, says):
    with pytest.raises(error, match=says):
        lamina.tensor(data)


@pytest.mark.parametrize('dtype, value, kept', [
    ('uint8', 255, 255), ('uint8', -1, 255), ('uint8', -255, 1),
    ('uint8', 2.7, 2), ('int32', -2 ** 31, -2 ** 31), ('bool', 300, True),
    ('float32', 16777217, 16777216.0), ('float32', math.inf, math.inf),
    ('float64', 1e39, 1e39), ('float32', 2 ** 70, 2.0 ** 70)])
def test_numbers_that_fit(dtype, value, kept):
    dtype = dtypes[dtype]
    assert element(dtype, value) == kept
    assert lamina.full((1,), value, dtype=dtype).item() == kept
    assert lamina.tensor([value], dtype=dtype).item() == kept
    assert lamina.zeros(1, dtype=dtype).fill_(value).item() == kept \
        or value < 0 or isinstance(value, float)


@pytest.mark.parametrize('dtype, value', [
    ('uint8', 300), ('uint8', 256), ('uint8', -256), ('uint8', 255.7),
    ('int32', 2 ** 31), ('int64', 2 ** 63), ('int64', -2 ** 63 - 1),
    ('int64', math.nan), ('int32', math.inf), ('float32', 1e39)])
def test_numbers_that_do_not_fit(dtype, value):
    dtype = dtypes[dtype]
    with pytest.raises(RuntimeError, match='does not fit') as error:
        element(dtype, value)
    assert str(value) in str(error.value) and dtype.name in str(error.value)
    with pytest.raises(RuntimeError, match='does not fit'):
        lamina.full((2,), value, dtype=dtype)
    if dtype.category == 1:
        with pytest.raises(RuntimeError, match='does not fit'):
            lamina.tensor([value], dtype=dtype)
    else:                               # as torch.tensor(1e39)
        assert lamina.tensor([value], dtype=dtype).item() == math.inf


@pytest.mark.parametrize('args', [
    (5,), (0,), (2, 5), (5, 0, -2), (0, 1, 0.25), (1.5, 4), (0, 1, 0.1),
    (-3, 3, 2), (5.0,), (True,), (0, -5, -1)])
def test_arange_agrees_with_numpy(args):
    x = lamina.arange(*args)
    expected = np.arange(*args)
    if expected.dtype.kind == 'f':
        expected = expected.astype(np.float32)
    assert x.dtype.name == expected.dtype.name
    assert x.tolist() == expected.tolist()


def test_arange_of_a_dtype():
    x = lamina.arange(0, 300, 100, dtype=lamina.uint8)
    assert x.tolist() == [0, 100, 200] and x.dtype is lamina.uint8
    assert lamina.arange(300, dtype=lamina.uint8)[299].item() == 43
    assert lamina.arange(3, device='meta').shape == (3,)


@pytest.mark.parametrize('args, error, says', [
    ((0, 1, 0), RuntimeError, 'step'), ((0, -1), RuntimeError, 'from 0 to'),
    ((1, 2, -1), RuntimeError, '-1 never'), ((math.inf,), RuntimeError, 'inf'),
    ((math.nan,), RuntimeError, 'nan'), (('a',), TypeError, 'str')])
def test_ranges_that_are_none(args, error, says):
    with pytest.raises(error, match=says):
        lamina.arange(*args)


def test_a_dtype_is_a_dtype():
    for use in (lambda: lamina.zeros(2, dtype='float32'),
                lambda: lamina.tensor([1], dtype=float),
                lambda: lamina.empty_like(lamina.zeros(2), dtype='int64')):
        with pytest.raises(TypeError, match='lamina.float32'):
            use()
    with pytest.raises(NotImplementedError, match='bool'):
        lamina.arange(2, dtype=lamina.bool_)
    with pytest.raises(RuntimeError, match='gpu'):
        lamina.zeros(2, device='gpu')


# --- views ------------------------------------------------------------

@quick
@given(layouts(shape=shapes(min_dims=1)), st.data(),
       st.sampled_from(DEVICES))
def test_views_agree_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    n = array.ndim
    dims = st.integers(-n, n - 1)
    a, b = data.draw(dims), data.draw(dims)
    order = data.draw(st.permutations(range(n)))
    at = data.draw(st.integers(-n - 1, n))
    pairs = [(x.transpose(a, b), array.swapaxes(a, b)),
             (x.permute(order), array.transpose(order)),
             (x.permute(*order), array.transpose(order)),
             (x.numpy_T(), array.T), (x.T, array.T),
             (x.unsqueeze(at), np.expand_dims(array, at)),
             (x.squeeze(), array.squeeze())]
    if n <= 2:
        pairs.append((x.t(), array.T))
    if n >= 2:
        pairs.append((x.mT, array.swapaxes(-1, -2)))
    if array.shape[a]:
        i = data.draw(st.integers(-array.shape[a], array.shape[a] - 1))
        pairs.append((x.select(a, i), np.take(array, i, a)))
        start = i % array.shape[a]
        length = data.draw(st.integers(0, array.shape[a] - start))
        part = [slice(None)] * n
        part[a] = slice(start, start + length)
        pairs.append((x.narrow(a, i, length), array[tuple(part)]))
    for y, expected in pairs:
        assert y.shape == expected.shape
        assert same(y.tolist(), expected.tolist())
        assert y.storage is x.storage and y.dtype is x.dtype
        assert y._base is x
    y = x.detach()
    assert y.storage is x.storage and y.geometry == x.geometry
    assert y._base is None and same(y.tolist(), array.tolist())


@quick
@given(layouts(), st.data(), st.sampled_from([*DEVICES, 'meta']))
def test_indexing_agrees_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    bound = st.none() | st.integers(-6, 6)
    items = []
    for size in data.draw(st.just(array.shape)):
        kinds = [st.builds(slice, bound, bound,
                           st.none() | st.integers(1, 3))]
        if size:
            kinds.append(st.integers(-size, size - 1))
        items.append(data.draw(st.one_of(kinds)))
    front = data.draw(st.integers(0, len(items)))
    back = data.draw(st.none() | st.integers(front, len(items)))
    items = items[:front] + ([] if back is None else [..., *items[back:]])
    for _ in range(data.draw(st.integers(0, 2))):
        items.insert(data.draw(st.integers(0, len(items))), None)
    index = items[0] if len(items) == 1 else tuple(items)
    y, expected = x[index], array[index]
    assert y.shape == expected.shape and y.storage is x.storage
    if where != 'meta':
        assert same(y.tolist(), expected.tolist())
    if expected.size:
        assert all(n == 1 or a == b for n, a, b in zip(
            y.shape, y.stride(), steps(np.asarray(expected))))


# (shape, index) -> (strides, offset): what PyTorch answers where NumPy's
# strides are its own affair: sizes of 0 and 1.
@pytest.mark.parametrize('shape, index, strides, offset', [
    ((2, 3), (slice(None), None), (3, 3, 1), 0),
    ((2, 3), (..., None), (3, 1, 1), 0), ((2,), None, (2, 1), 0),
    ((2, 3), slice(5, None), (3, 1), 6), ((4, 3), slice(3, 1), (3, 1), 9),
    ((4, 3), (slice(None), slice(5, 7)), (3, 1), 3),
    ((2, 2, 2), (0, None, 0), (4, 1), 0),
    ((0, 3), None, (0, 3, 1), 0)])
def test_index_geometry(shape, index, strides, offset):
    x = lamina.zeros(shape)[index]
    assert (x.stride(), x.storage_offset()) == (strides, offset)


def test_an_integer_tensor_is_an_index():
    x = lamina.arange(6).view(2, 3)
    assert x[lamina.tensor(1)].tolist() == [3, 4, 5]
    assert x[np.int64(1), lamina.tensor(2, dtype=lamina.uint8)].item() == 5


@pytest.mark.parametrize('index, error, says', [
    (2, IndexError, 'index 2 .* dimension 0 of size 2'),
    ((0, -4), IndexError, 'index -4 .* dimension 1 of size 3'),
    ((0, 0, 0), IndexError, 'too many indices: 3 .* 2 dimensions'),
    (1.0, IndexError, 'float'),
    ('a', IndexError, 'str'),
    (slice(None, None, -1), ValueError, 'got -1'),
    (slice(None, None, 0), ValueError, 'zero'),
    (slice(0.5, None), TypeError, 'slice indices')])
def test_what_is_no_index(index, error, says):
    with pytest.raises(error, match=says):
        lamina.zeros(2, 3)[index]


def test_a_number_has_no_rows():
    x = lamina.tensor(3.0)
    for use in (lambda: x[0], lambda: x.select(0, 0)):
        with pytest.raises(IndexError, match='item'):
            use()
    with pytest.raises(RuntimeError, match='at least 1 dimension'):
        x.narrow(0, 0, 1)
    assert x[()].item() == x[...].item() == 3 and x[None].shape == (1,)
    assert x.transpose(0, -1).shape == x.t().shape == x.T.shape == ()
    assert x.unsqueeze(-1).shape == x.flatten().shape == (1,)
    assert x.squeeze(0).shape == ()


@pytest.mark.parametrize('use, error, says', [
    (lambda x: x.permute(0), RuntimeError, r'2 dimensions.*\[0\]'),
    (lambda x: x.permute(0, 0), RuntimeError, r'twice in \[0, 0\]'),
    (lambda x: x.permute(0, 'a'), TypeError, 'permute'),
    (lambda x: x.unsqueeze(3), IndexError, '3 .*-3 to 2'),
    (lambda x: x.select(0, 2), IndexError, r'2 .*size 2, shape \[2, 3\]'),
    (lambda x: x.narrow(0, 0, 3), RuntimeError, '3 indices from 0'),
    (lambda x: x.narrow(0, 3, 1), IndexError, 'start 3 .*size 2'),
    (lambda x: x.narrow(0, 0, -1), RuntimeError, '-1 indices'),
    (lambda x: x[None].t(), RuntimeError, 'has 3'),
    (lambda x: x[0].mT, RuntimeError, '1 dimension'),
    (lambda x: x.squeeze((0, 0)), RuntimeError, 'twice'),
    (lambda x: x.flatten(1, 0), RuntimeError, 'start_dim 1 .*end_dim 0')])
def test_refused_views(use, error, says):
    with pytest.raises(error, match=says):
        use(lamina.zeros(2, 3))


def test_squeeze_leaves_what_is_larger():
    x = lamina.zeros(2, 1, 3, 1)
    assert x.squeeze().shape == (2, 3) and x.squeeze(1).shape == (2, 3, 1)
    assert x.squeeze(0).shape == x.shape
    assert x.squeeze((1, -1)).shape == (2, 3)
    assert x.squeeze(1).stride() == (3, 1, 1)


# --- expand -----------------------------------------------------------

@quick
@given(layouts(), st.data(), st.sampled_from([*DEVICES, 'meta']))
def test_expand_agrees_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    size = [data.draw(st.integers(0, 3)) if n == 1 else n
            for n in array.shape]
    front = data.draw(st.lists(st.integers(0, 3), max_size=2))
    expected = np.broadcast_to(array, (*front, *size))
    asked = [*front, *(-1 if n == m else m
                       for n, m in zip(array.shape, size))]
    for y in ([x.expand(asked), x.expand(*asked)] if asked
              else [x.expand(())]):
        assert y.shape == expected.shape and y.storage is x.storage
        if where != 'meta':
            assert same(y.tolist(), expected.tolist())


@pytest.mark.parametrize('shape, size, strides', [
    ((2,), (1, 2), (2, 1)), ((), (1,), (0,)), ((), (2, 3), (0, 0)),
    ((3,), (2, 3), (0, 1)), ((2, 1), (2, 4), (1, 0)),
    ((3,), (0, 3), (0, 1)), ((1, 3), (0, -1), (0, 1)),
    ((2,), (1, 3, 2), (0, 0, 1)), ((2, 3), (1, 2, -1), (6, 3, 1))])
def test_expand_strides(shape, size, strides):
    assert lamina.zeros(shape).expand(size).stride() == strides  # PyTorch's


@pytest.mark.parametrize('size, says', [
    ((3, 3), r'\[2, 3\] cannot expand to \[3, 3\]: dimension 0 has 2'),
    ((3,), r'\[3\] has fewer dimensions'), ((-1, 2, 3), 'dimension 0'),
    ((-2, 3), 'not -2'), ((2, 0), 'dimension 1 has 3, not 0')])
def test_refused_expand(size, says):
    with pytest.raises(RuntimeError, match=says):
        lamina.zeros(2, 3).expand(size)


# --- view -------------------------------------------------------------

def cuts(count):
    """All shapes of up to 4 dimensions with so many elements, 1s too."""
    def grow(count, left):
        if left == 0:
            return [()] if count == 1 else []
        return [(n, *rest) for n in range(1, count + 1) if count % n == 0
                for rest in grow(count // n, left - 1)]
    return [shape for k in range(5) for shape in grow(count, k)]


@quick
@given(layouts(shape=shapes(max_dims=3, min_size=1), dtype=lamina.uint8),
       st.data())
def test_view_works_exactly_where_strides_can_say_it(layout, data):
    """A view exists if the elements' places, cut to the new shape, are
    steps of equal length along each dimension: tried by brute force."""
    geometry = layout.geometry
    shape = data.draw(st.sampled_from(cuts(numel(geometry.shape))))
    places = np.array(offsets(geometry)).reshape(shape)
    found = []
    for d, n in enumerate(shape):
        jumps = np.diff(places, axis=d).ravel()
        if len(set(jumps.tolist())) > 1:
            found = None
            break
        found.append(int(jumps[0]) if n > 1 else None)
    strides = view_strides(geometry, shape)
    assert (strides is None) == (found is None)
    x = layout.on('python')
    if found is None:
        with pytest.raises(RuntimeError, match='use reshape'):
            x.view(shape)
        assert x.reshape(shape).storage is not x.storage
    else:
        assert all(s == f for s, f in zip(strides, found) if f is not None)
        assert x.view(shape).storage is x.storage
        assert x.reshape(shape).storage is x.storage
    assert same(x.reshape(shape).tolist(),
                layout.array().reshape(shape).tolist())


@quick
@given(layouts(), st.data(), st.sampled_from([*DEVICES, 'meta']))
def test_reshape_and_flatten_agree_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    n = max(array.ndim, 1)
    a, b = sorted([data.draw(st.integers(0, n - 1)),
                   data.draw(st.integers(0, n - 1))])
    shape = array.shape[:a] + (math.prod(array.shape[a:b + 1]),) + (
        array.shape[b + 1:])
    pairs = [(x.flatten(a, b), shape), (x.flatten(), (array.size,)),
             (x.reshape(-1), (array.size,)), (x.reshape(shape), shape)]
    for y, shape in pairs:
        assert y.shape == shape
        if where != 'meta':
            assert same(y.tolist(), array.reshape(shape).tolist())


def test_inferred_sizes():
    assert infer_size((2, -1), 6) == (2, 3)
    assert infer_size((-1,), 0) == (0,) and infer_size((), 1) == ()
    x = lamina.zeros(2, 0)
    assert x.view(2, -1).shape == x.reshape(2, -1).shape == (2, 0)
    assert lamina.zeros(2, 3).view(3, -1).shape == (3, 2)


@pytest.mark.parametrize('name', ['view', 'reshape'])
@pytest.mark.parametrize('shape, size, says', [
    ((2, 3), (7,), r'\[7\] is invalid for a tensor of 6'),
    ((2, 3), (-1, -1), 'one may be -1'), ((2, 3), (-2, 3), 'no shape'),
    ((2, 0), (-1, 0), 'can be anything'), ((2, 3), (4, -1), 'invalid')])
def test_shapes_that_are_none(name, shape, size, says):
    with pytest.raises(RuntimeError, match=says) as error:
        getattr(lamina.zeros(shape), name)(size)
    assert name in str(error.value)


# --- as_strided -------------------------------------------------------

@quick
@given(layouts(overlap=False), st.data(), st.sampled_from(DEVICES))
def test_as_strided_agrees_with_numpy(layout, data, where):
    x = layout.on(where)
    size = data.draw(shapes(max_dims=3, max_size=3))
    stride = tuple(data.draw(st.integers(0, 4)) for _ in size)
    offset = data.draw(st.integers(0, 4))
    memory = np.array(layout.values, layout.dtype.name)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if 0 not in size and last >= len(memory):
        with pytest.raises(RuntimeError, match=f'reach element {last}'):
            x.as_strided(size, stride, offset)
        return
    y = x.as_strided(size, stride, offset)
    assert y.geometry == Geometry(size, stride, offset)
    if 0 not in size:
        expected = np_as_strided(memory[offset:], size, [
            s * memory.itemsize for s in stride])
        assert same(y.tolist(), expected.tolist())


def test_as_strided_takes_the_offset_of_the_tensor():
    x = lamina.arange(6)[2:]
    assert x.as_strided((2,), (2,)).tolist() == [2, 4]
    assert x.as_strided((2,), (2,), 0).tolist() == [0, 2]


@pytest.mark.parametrize('size, stride, offset', [
    ((2, 2), (1,), 0), ((2,), (-1,), 1), ((2,), (1,), -1)])
def test_refused_as_strided(size, stride, offset):
    with pytest.raises(RuntimeError, match=r'as_strided\(\)'):
        lamina.zeros(6).as_strided(size, stride, offset)


# --- writing ----------------------------------------------------------

@quick
@given(layouts(overlap=False), st.data(), st.sampled_from(DEVICES))
def test_writing_agrees_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    new = data.draw(layouts(dtype=layout.dtype, shape=layout.geometry.shape))
    version = x.storage.version
    assert x.copy_(new.on(where)) is x
    assert x.storage.version > version
    assert same(x.tolist(), new.array().tolist())
    # what lies between the elements is untouched
    written = set(offsets(layout.geometry))
    elements = x.storage.elements(x.dtype)
    assert all(same(elements[i], value) for i, value
               in enumerate(layout.values) if i not in written)
    array[...] = 1
    assert x.fill_(1) is x and same(x.tolist(), array.tolist())
    assert x.zero_() is x and not any(np.ravel(x.tolist()))


@quick
@given(layouts(shape=shapes(min_dims=1, min_size=1), overlap=False),
       st.data(), st.sampled_from(DEVICES))
def test_assignment_agrees_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    items = tuple(data.draw(st.one_of(
        st.integers(-n, n - 1),
        st.builds(slice, st.integers(-n, n), st.none(),
                  st.integers(1, 2)))) for n in array.shape)
    items = items[:data.draw(st.integers(0, len(items)))]
    value = data.draw(layouts(dtype=layout.dtype, shape=np.shape(
        array[items])))
    x[items] = value.on(where)
    array[items] = value.array()
    assert same(x.tolist(), array.tolist())
    x[items] = 3
    array[items] = 3
    assert same(x.tolist(), array.tolist())


@pytest.mark.parametrize('where', DEVICES)
def test_writing_through_views_is_seen(where):
    x = lamina.zeros(2, 3, device=where)
    x.t()[0] = 7
    x.view(6)[-1] = 5
    x[:, 1:2].copy_(lamina.tensor([[1.0], [2.0]], device=where))
    assert x.tolist() == [[7, 1, 0], [7, 2, 5]]


@pytest.mark.parametrize('where', DEVICES)
def test_a_shift_in_place_reads_first(where):
    x = lamina.tensor([1, 2, 3, 4, 5], device=where)
    x[1:] = x[:-1]
    assert x.tolist() == [1, 1, 2, 3, 4]


@pytest.mark.parametrize('where', DEVICES)
def test_values_are_expanded_and_converted(where):
    x = lamina.zeros(2, 3, device=where)
    x[0] = lamina.tensor([[[1, 2, 3]]], device=where)   # 1s in front
    x[1, 1] = lamina.tensor([9.5], device=where)
    assert x.tolist() == [[1, 2, 3], [0, 9.5, 0]]
    x.copy_(lamina.tensor([True, False, True], device=where))
    assert x.tolist() == [[1, 0, 1], [1, 0, 1]]
    y = lamina.zeros(2, dtype=lamina.uint8, device=where)
    y[...] = lamina.tensor([300, 2], device=where)      # converted: wraps
    assert y.tolist() == [44, 2]


@pytest.mark.parametrize('where', DEVICES)
def test_an_expanded_tensor_is_not_written_to(where):
    x = lamina.ones(1, 1, device=where)
    y = x.expand(4, 5)
    with pytest.raises(RuntimeError, match=r'\[4, 5\].*\[0, 0\].*clone'):
        y.copy_(lamina.zeros(4, 5, device=where))
    with pytest.raises(RuntimeError, match='clone'):
        y[:, 1] = lamina.zeros(4, device=where)
    assert x.item() == 1
    z = y.clone()
    z[0, 0] = 3
    assert x.item() == 1 and z[0, 0].item() == 3


@pytest.mark.parametrize('where', DEVICES)
def test_only_fill_writes_one_number_where_elements_coincide(where):
    y = lamina.zeros(3, device=where).expand(2, 3)
    for write in (lambda: y.__setitem__(..., 1),
                  lambda: y.__setitem__((slice(None), 0), 1)):
        with pytest.raises(RuntimeError, match='clone'):
            write()
    assert y.tolist() == [[0, 0, 0]] * 2
    y[0] = 4                    # one row alone is not repeated
    assert y.tolist() == [[4, 4, 4]] * 2


def test_writing_on_meta():
    x = lamina.zeros(2, 3, device='meta')
    y = lamina.ones(3, device='meta')
    assert x.fill_(2) is x and x.copy_(y) is x and x.zero_() is x
    x[0] = y
    assert x.t().clone().shape == x.t().contiguous().shape == (3, 2)
    with pytest.raises(RuntimeError):
        x.copy_(lamina.ones(2, device='meta'))
    with pytest.raises(NotImplementedError):
        x.tolist()


def test_fill_with_a_tensor():
    x = lamina.zeros(2, dtype=lamina.uint8)
    with pytest.raises(RuntimeError):
        x.fill_(lamina.ones(2))
    assert x.fill_(lamina.tensor(3)).tolist() == [3, 3]


@pytest.mark.parametrize('value', [[1, 2, 3], 'a', None, 1j])
def test_what_cannot_be_assigned(value):
    x = lamina.zeros(2, 3)
    with pytest.raises(TypeError, match=type(value).__name__):
        x[0] = value


def test_shapes_that_do_not_fit():
    x = lamina.zeros(2, 3)
    for value in (lamina.zeros(2), lamina.zeros(3, 2), lamina.zeros(2, 2, 3)):
        with pytest.raises(RuntimeError):
            x[...] = value
        with pytest.raises(RuntimeError):
            x.copy_(value)


# --- copies -----------------------------------------------------------

@quick
@given(layouts(special=True), st.sampled_from(DEVICES))
def test_copies(layout, where):
    x = layout.on(where)
    for y in (x.clone(), x.contiguous()):
        assert same(y.tolist(), x.tolist()) and y.dtype is x.dtype
        assert y.shape == x.shape and y.device is x.device
    assert x.clone().storage is not x.storage
    assert x.contiguous().is_contiguous()
    assert (x.contiguous() is x) == x.is_contiguous()
    # a copy of a view holds the view's elements and no more
    unread = 0 if x.numel() == 0 else x.numel() * x.element_size()
    assert x.clone().storage.nbytes() == unread


@pytest.mark.parametrize('shape, order, strides', [
    ((2, 3, 4), (2, 0, 1), (1, 12, 4)), ((2, 3), (1, 0), (1, 3)),
    ((2, 0, 3), (2, 1, 0), (1, 3, 3)), ((0, 3), (1, 0), (1, 3))])
def test_a_copy_keeps_the_order_of_strides(shape, order, strides):
    x = lamina.zeros(shape).permute(order)
    assert lamina.empty_like(x).stride() == strides       # PyTorch's


@pytest.mark.parametrize('shape, old, new', [
    ((4, 2, 3), (1, 16, 4), (1, 12, 4)), ((2, 3), (0, 1), (3, 1)),
    ((2, 3), (1, 0), (3, 1)), ((2, 4), (2, 4), (1, 2)), ((3,), (5,), (1,)),
    ((), (), ()), ((2, 3), (0, 0), (3, 1))])
def test_dense(shape, old, new):
    assert dense(Geometry(shape, old)) == Geometry(shape, new)  # PyTorch's


def test_empty_like():
    x = lamina.zeros(2, 3, dtype=lamina.int32)
    assert lamina.empty_like(x).dtype is lamina.int32
    y = lamina.empty_like(x, dtype=lamina.bool_, device='meta')
    assert y.dtype is lamina.bool_ and str(y.device) == 'meta'


# --- who keeps what alive ---------------------------------------------

def test_a_small_view_keeps_the_whole_storage():
    gc.disable()
    try:
        x = lamina.zeros(100, 100)
        watch = weakref.ref(x.storage)
        row = x[1, :]
        assert row.storage is x.storage
        del x
        assert row.untyped_storage().nbytes() == 40000
        row = row.clone()
        assert watch() is None and row.storage.nbytes() == 400
    finally:
        gc.enable()


def test_eight_gigabytes_on_meta():
    x = lamina.zeros(1000, 2_000_000, device='meta')
    row = x[1, :]
    assert row.numel() == 2_000_000
    assert row.untyped_storage().nbytes() == 8 * 10 ** 9
    assert row.storage_offset() == 2_000_000


def test_views_of_views_have_one_base():
    x = lamina.zeros(2, 3)
    assert x._base is None and x.t()._base is x
    assert x.t()[0]._base is x and x.clone()._base is None


# --- Python's protocols -----------------------------------------------

def test_length_and_rows():
    x = lamina.arange(6).view(2, 3)
    assert len(x) == 2 and [row.tolist() for row in x] == x.tolist()
    a, b = x
    assert b[2].item() == 5 and b.storage is x.storage
    for use in (len, iter):
        with pytest.raises(TypeError, match='no dimensions'):
            use(lamina.tensor(1))


def test_truth():
    assert bool(lamina.tensor([[2]])) and not lamina.tensor(0.0)
    assert bool(lamina.tensor(math.nan))
    for shape in ((2,), (0,)):
        with pytest.raises(RuntimeError, match=f'{shape[0]} elements'):
            bool(lamina.zeros(shape))


def test_numbers():
    assert int(lamina.tensor([2.9])) == 2 and float(lamina.tensor(3)) == 3.0
    assert [10, 20][lamina.tensor(1)] == 20
    assert list(range(lamina.tensor([2]))) == [0, 1]
    for use in (int, float):
        with pytest.raises(ValueError, match='has 2'):
            use(lamina.zeros(2))
    with pytest.raises(TypeError, match='float32'):
        range(lamina.tensor(1.0))
    with pytest.raises(TypeError, match=r'\[2\]'):
        range(lamina.tensor([1, 2]))


# --- printing ---------------------------------------------------------

# What PyTorch 2.13 prints for the same, with torch. instead of lamina.
PRINTED = [
    (lambda: lamina.tensor(3), 'tensor(3)'),
    (lambda: lamina.tensor(3.0), 'tensor(3.)'),
    (lambda: lamina.tensor(0.1), 'tensor(0.1000)'),
    (lambda: lamina.tensor(True), 'tensor(True)'),
    (lambda: lamina.tensor([1.0, math.nan, -math.inf]),
     'tensor([1., nan, -inf])'),
    (lambda: lamina.tensor([1.5, math.nan]), 'tensor([1.5000,    nan])'),
    (lambda: lamina.tensor([-0.0, 0.0]), 'tensor([-0., 0.])'),
    (lambda: lamina.tensor([1, -20, 300]), 'tensor([  1, -20, 300])'),
    (lambda: lamina.tensor([True, False]), 'tensor([ True, False])'),
    (lambda: lamina.tensor([1.0, 1001.0]),
     'tensor([1.0000e+00, 1.0010e+03])'),
    (lambda: lamina.tensor([1.0, 1000.0]), 'tensor([   1., 1000.])'),
    (lambda: lamina.tensor([1e-5]), 'tensor([1.0000e-05])'),
    (lambda: lamina.tensor([2e8]), 'tensor([2.0000e+08])'),
    (lambda: lamina.tensor([]), 'tensor([])'),
    (lambda: lamina.zeros(2, 0), 'tensor([], size=(2, 0))'),
    (lambda: lamina.arange(0), 'tensor([], dtype=lamina.int64)'),
    (lambda: lamina.zeros(2, dtype=lamina.float64),
     'tensor([0., 0.], dtype=lamina.float64)'),
    (lambda: lamina.zeros(2, device='meta'),
     "tensor(..., device='meta', size=(2,))"),
    (lambda: lamina.zeros(2, dtype=lamina.int32, device='meta'),
     "tensor(..., device='meta', size=(2,), dtype=lamina.int32)"),
    (lambda: lamina.zeros(2, device='python'),
     "tensor([0., 0.], device='python')"),
    (lambda: lamina.arange(6).view(2, 3).t(),
     'tensor([[0, 3],\n        [1, 4],\n        [2, 5]])'),
    (lambda: lamina.arange(4).view(1, 2, 2),
     'tensor([[[0, 1],\n         [2, 3]]])'),
    (lambda: lamina.arange(4).view(2, 1, 2),
     'tensor([[[0, 1]],\n\n        [[2, 3]]])'),
    (lambda: lamina.arange(1001),
     'tensor([   0,    1,    2,  ...,  998,  999, 1000])'),
    (lambda: lamina.arange(30),
     'tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, '
     '15, 16, 17,\n        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])'),
]


@pytest.mark.parametrize('make, text', PRINTED,
                         ids=[text[:30] for _, text in PRINTED])
def test_printing(make, text):
    assert repr(make()) == text == str(make())


def test_printing_the_edges_of_a_large_tensor():
    x = lamina.arange(20000).view(100, 4, 50)
    text = repr(x)
    assert text.startswith('tensor([[[    0,     1,     2,  ...,    47,')
    assert text.count('\n        ...,\n') == 1 and '19999]]])' in text
    assert text.count('...') == 6 * 4 + 1


@pytest.mark.parametrize('device', DEVICES)
def test_copies_and_pickles_have_memory_of_their_own(device):
    x = lamina.tensor([1.0, 2.0], device=device)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        y.fill_(5)
        assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [5.0, 5.0])
        assert y.device is x.device and y.dtype is x.dtype
    y = copy.copy(x)
    assert y is not x and y.storage is x.storage
    pair = copy.deepcopy([x, x[1:]])
    pair[1].fill_(7)
    assert pair[0].tolist() == [1.0, 7.0] and x.tolist() == [1.0, 2.0]


def test_a_bool_is_no_size_and_no_dimension():
    for call in (lambda: lamina.zeros(True, 2),
                 lambda: lamina.zeros(2).view(True, 2)):
        with pytest.raises(TypeError):
            call()


def test_data_ptr_is_the_first_element_s():
    x = lamina.zeros(3, 4, dtype=lamina.int16)
    assert x.data_ptr() == x.untyped_storage().data_ptr()
    assert x[1, 2:].data_ptr() == x.data_ptr() + 12
    assert x[:0].data_ptr() == 0


# --- memory formats ----------------------------------------------------

def test_memory_formats():
    for shape, format, strides in [
            ((2, 3, 4, 5), lamina.channels_last, (60, 1, 15, 3)),
            ((2, 3, 4, 5, 6), lamina.channels_last_3d, (360, 1, 90, 18, 3)),
            ((2, 3), lamina.contiguous_format, (3, 1))]:
        x = lamina.empty(shape, memory_format=format)
        assert x.stride() == strides and x.is_contiguous(format)
    image = lamina.arange(24).view(2, 3, 2, 2)
    for pixels in (image.clone(memory_format=lamina.channels_last),
                   image.contiguous(memory_format=lamina.channels_last)):
        assert pixels.stride() == (12, 1, 6, 3)
        assert pixels.tolist() == image.tolist()
        assert not pixels.is_contiguous()
        assert pixels.contiguous(lamina.channels_last) is pixels
    assert lamina.zeros_like(
        image, memory_format=lamina.channels_last).stride() == (12, 1, 6, 3)
    assert not image.is_contiguous(lamina.channels_last)
    assert lamina.empty(2, 1, 4, 5).is_contiguous(lamina.channels_last)
    assert not lamina.empty(2, 3).is_contiguous(lamina.channels_last)
    x = lamina.zeros(2, 3).t()
    assert x.clone(memory_format=lamina.contiguous_format).stride() == (2, 1)
    assert x.clone(memory_format=lamina.preserve_format).stride() == (1, 3)
    assert repr(lamina.channels_last) == 'lamina.channels_last'
    assert pickle.loads(pickle.dumps(lamina.channels_last)) is (
        lamina.channels_last)
    with pytest.raises(RuntimeError, match='4 dimensions.*has 2'):
        lamina.empty(2, 3, memory_format=lamina.channels_last)
    with pytest.raises(RuntimeError, match='preserve_format'):
        lamina.empty(2, 3, memory_format=lamina.preserve_format)


# --- new tensors ---------------------------------------------------------

@pytest.mark.parametrize('args, options, values', [
    ((3,), {}, [0, 1, 2]), ((1, 4), {}, [1, 2, 3]),
    ((0, 1, 0.25), {}, [0, 0.25, 0.5, 0.75]), ((5, 0, -2), {}, [5, 3, 1]),
    ((0.0, -8.000001, -4.0), {'dtype': lamina.int64}, [0, -4]),
    ((0.5, 4.5), {'dtype': lamina.int64}, [0, 1, 2, 3]),
    ((254, 258), {'dtype': lamina.uint8}, [254, 255, 0, 1]),
    ((0, 1, 0.25), {'dtype': lamina.float16}, [0, 0.25, 0.5, 0.75]),
    ((), {'end': 2}, [0, 1]), ((), {'start': 1, 'end': 3}, [1, 2]),
    ((True,), {}, [0]), ((2, 2), {}, [])])
def test_arange_as_pytorch(args, options, values):
    assert lamina.arange(*args, **options).tolist() == values


def test_arange_counts_in_double_precision():
    assert lamina.arange(0, 1, 0.1).numel() == 10
    assert lamina.arange(1, 1.3, 0.1).numel() == 4
    assert lamina.arange(lamina.tensor(3.0)).dtype is lamina.float32


@pytest.mark.parametrize('args, options, values', [
    ((0, 1, 5), {}, [0, 0.25, 0.5, 0.75, 1]), ((3, 9, 1), {}, [3]),
    ((3, 9, 0), {}, []), ((0, 10, 5), {'dtype': lamina.int64},
                          [0, 2, 5, 7, 10]),
    ((0, 9, 4), {'dtype': lamina.int32}, [0, 3, 6, 9]),
    ((lamina.tensor(0.0), 1, 3), {}, [0, 0.5, 1])])
def test_linspace(args, options, values):
    assert lamina.linspace(*args, **options).tolist() == values


def test_linspace_ends_on_its_end():
    for end in (0.1, 1.3, 7e9):
        assert lamina.linspace(0, end, 7, dtype=lamina.float64).tolist()[-1] == end


def test_logspace():
    assert lamina.logspace(0, 2, 3).tolist() == [1, 10, 100]
    assert lamina.logspace(0, 3, 4, base=2).tolist() == [1, 2, 4, 8]
    assert lamina.logspace(0, 2, 3, dtype=lamina.int64).tolist() == [
        1, 10, 100]
    assert lamina.logspace(400, 401, 2).tolist() == [math.inf, math.inf]


@given(st.integers(0, 4), st.none() | st.integers(0, 4),
       st.integers(-4, 4), st.sampled_from(DEVICES))
@quick
def test_patterns(n, m, offset, where):
    x = lamina.eye(n, m, dtype=lamina.int64, device=where)
    assert x.tolist() == np.eye(n, m, dtype=int).tolist()
    m = n if m is None else m
    for ours, theirs in [(lamina.tril_indices, np.tril_indices),
                         (lamina.triu_indices, np.triu_indices)]:
        x = ours(n, m, offset, device=where)
        assert x.tolist() == [i.tolist() for i in theirs(n, offset, m)]
        assert x.dtype is lamina.int64


def test_like_and_new():
    x = lamina.arange(6, dtype=lamina.int32).view(2, 3).t()
    for y, value in [(lamina.zeros_like(x), 0), (lamina.ones_like(x), 1),
                     (lamina.full_like(x, 7), 7)]:
        assert y.dtype is lamina.int32 and y.stride() == (1, 3)
        assert y.tolist() == [[value] * 2] * 3
    for y, value in [(x.new_zeros(2), 0), (x.new_ones((2,)), 1),
                     (x.new_full((2,), 2.5), 2), (x.new_tensor([3, 3]), 3)]:
        assert y.dtype is lamina.int32 and y.tolist() == [value] * 2
    assert x.new_empty(2, 0).shape == (2, 0)
    assert x.new_zeros(2, dtype=lamina.bool_).dtype is lamina.bool_
    assert x.new_zeros(2, device='meta').device.type == 'meta'
    assert x.new_empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    y = lamina.empty_strided((2, 3), (1, 2), dtype=lamina.uint8)
    assert y.stride() == (1, 2) and y.storage.nbytes() == 6


@pytest.mark.parametrize('call, error, says', [
    (lambda: lamina.arange(2, dtype=lamina.bool_), NotImplementedError,
     'bool'),
    (lambda: lamina.arange(0, 2, 0), RuntimeError, 'step must not be 0'),
    (lambda: lamina.arange(0, 2, 0.5, dtype=lamina.int64), RuntimeError,
     'got 0.5, which is 0'),
    (lambda: lamina.linspace(0, 1, -1), RuntimeError, 'got -1'),
    (lambda: lamina.linspace(0, 1, 3, dtype=lamina.bool_),
     NotImplementedError, 'bool'),
    (lambda: lamina.eye(-1), RuntimeError, 'negative'),
    (lambda: lamina.tril_indices(-1, 2), RuntimeError, 'got -1 rows'),
    (lambda: lamina.zeros(2, pin_memory=True), RuntimeError, 'pin_memory'),
    (lambda: lamina.zeros(2, layout='dense'), RuntimeError, 'dense'),
    (lambda: lamina.zeros(2, what=1), TypeError, 'what'),
    (lambda: lamina.full(2, 1.0), TypeError, 'got 2'),
    (lambda: lamina.empty_strided((2,), (1, 1)), RuntimeError, r'\[1, 1\]'),
])
def test_what_is_no_new_tensor(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_reporting():
    x = lamina.zeros(2, 3)[:, 0]
    assert (x.nbytes, x.itemsize, x.element_size()) == (8, 4, 4)
    assert x.is_same_size(lamina.zeros(2)) and not x.is_same_size(
        lamina.zeros(3))
    y = lamina.zeros(2, 3)
    assert y.is_set_to(y.view(2, 3)) and not y.is_set_to(y.t())
    assert not y.is_set_to(lamina.zeros(2, 3))


# --- further views -------------------------------------------------------

@quick
@given(layouts(shape=shapes(min_dims=2)), st.data())
def test_diagonals(layout, data):
    x, array = layout.on('cpu'), layout.array()
    a, b = data.draw(st.permutations(range(-x.ndim, 0)))[:2]
    offset = data.draw(st.integers(-4, 4))
    assert agrees(x.diagonal(offset, a, b), array.diagonal(offset, a, b))
    assert x.diagonal(offset, a, b).storage is x.storage


@quick
@given(layouts(shape=shapes(min_dims=1)), st.data())
def test_windows(layout, data):
    x, array = layout.on('cpu'), layout.array()
    d = data.draw(st.integers(-x.ndim, x.ndim - 1))
    size = data.draw(st.integers(1, max(x.shape[d], 1)))
    step = data.draw(st.integers(1, 3))
    assume(size <= x.shape[d])
    every = np.lib.stride_tricks.sliding_window_view(array, size, d)
    due = np.moveaxis(np.moveaxis(every, d % x.ndim, 0)[::step], 0,
                      d % x.ndim)
    assert agrees(x.unfold(d, size, step), due)


@quick
@given(layouts(shape=shapes(min_dims=1)), st.data())
def test_moved_dimensions(layout, data):
    x, array = layout.on('cpu'), layout.array()
    k = data.draw(st.integers(0, x.ndim))
    a, b = [tuple(data.draw(st.permutations(range(x.ndim)))[:k])
            for _ in range(2)]
    assert agrees(x.movedim(a, b), np.moveaxis(array, a, b))
    assert agrees(lamina.moveaxis(x, a, b), np.moveaxis(array, a, b))
    i, j = [data.draw(st.integers(-x.ndim, x.ndim - 1)) for _ in range(2)]
    for y in (x.swapaxes(i, j), x.swapdims(i, j)):
        assert agrees(y, array.swapaxes(i, j))


@quick
@given(layouts(shape=shapes(min_dims=1)), st.data())
def test_pieces(layout, data):
    x, array = layout.on('cpu'), layout.array()
    d = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n, count = x.shape[d], data.draw(st.integers(1, 5))
    cuts = data.draw(st.lists(st.integers(-6, 6), max_size=3))

    def all_agree(ours, theirs):
        assert type(ours) is tuple and len(ours) == len(theirs)
        assert all(map(agrees, ours, theirs))
        assert all(piece.storage is x.storage for piece in ours)

    all_agree(x.tensor_split(count, d), np.array_split(array, count, d))
    all_agree(x.tensor_split(cuts, d), np.array_split(array, cuts, d))
    ends = [*range(count, n, count)]
    all_agree(x.split(count, d), np.array_split(array, ends, d))
    if n:
        step = -(-n // count)
        all_agree(x.chunk(count, d),
                  np.array_split(array, [*range(step, n, step)], d))
    all_agree(x.unbind(d), [np.moveaxis(array, d, 0)[i] for i in range(n)])
    sizes = [min(1, n), 0, n - min(1, n)]
    all_agree(x.split(sizes, d), np.array_split(
        array, np.cumsum(sizes)[:-1].tolist(), d))


def test_pieces_by_name():
    x = lamina.arange(24).view(2, 3, 4)
    assert [p.shape for p in x.hsplit(3)] == [(2, 1, 4)] * 3
    assert [p.shape for p in x.vsplit([1])] == [(1, 3, 4)] * 2
    assert [p.shape for p in x.dsplit(2)] == [(2, 3, 2)] * 2
    assert [p.tolist() for p in lamina.arange(3).hsplit([1])] == [[0], [1, 2]]
    cut = lamina.tensor([1, 3])
    assert [p.numel() for p in lamina.arange(5).tensor_split(cut)] == [1, 2, 2]
    assert [p.numel() for p in lamina.zeros(0).chunk(3)] == [0, 0, 0]
    assert [p.numel() for p in lamina.zeros(0).split(0)] == [0]
    assert len(lamina.zeros(5).chunk(4)) == 3


@pytest.mark.parametrize('call, error, says', [
    (lambda x: x.diagonal(0, 1, -1), RuntimeError, 'same'),
    (lambda x: x.unfold(0, 3, 1), RuntimeError, 'windows of 3'),
    (lambda x: x.unfold(0, 1, 0), RuntimeError, 'every 0'),
    (lambda x: x.movedim((0, 0), (0, 1)), RuntimeError, r'\[0, 0\]'),
    (lambda x: x.split(0), RuntimeError, 'pieces of 0'),
    (lambda x: x.split([1, 2]), RuntimeError, r'\[1, 2\]'),
    (lambda x: x.chunk(0), RuntimeError, 'got 0'),
    (lambda x: x.tensor_split(0), RuntimeError, 'got 0'),
    (lambda x: x[0, 0].unbind(), IndexError, 'no dimensions'),
    (lambda x: x[0, 0].split(1), RuntimeError, 'no dimensions'),
    (lambda x: x.hsplit(2), RuntimeError, '3 indices are not 2'),
    (lambda x: x[0].vsplit(1), RuntimeError, 'at least 2'),
    (lambda x: x.unflatten(1, (2, 2)), RuntimeError, r'\[2, 2\]'),
    (lambda x: x.unflatten(1, ()), RuntimeError, 'one size'),
    (lambda x: x[0].adjoint(), RuntimeError, '1 dimension'),
    (lambda x: x[0].H, RuntimeError, '1 dim'),
    (lambda x: x.t().view(lamina.uint8), RuntimeError, 'stride 1'),
    (lambda x: x.view(lamina.float64), RuntimeError, 'multiples of 2'),
    (lambda x: x[0, 0].view(lamina.float64), RuntimeError, 'shape'),
    (lambda x: lamina.broadcast_tensors(x, lamina.zeros(2)), RuntimeError,
     r'\[2, 3\], \[2\]'),
    (lambda x: lamina.meshgrid(x), RuntimeError, 'vectors'),
    (lambda x: lamina.meshgrid(x[0], indexing='yx'), RuntimeError, 'yx'),
])
def test_what_is_no_view(call, error, says):
    with pytest.raises(error, match=says):
        call(lamina.zeros(2, 3))


def test_views_by_name():
    x = lamina.arange(6).view(2, 3)
    assert x.view_as(lamina.zeros(3, 2)).shape == (3, 2)
    assert x.reshape_as(lamina.zeros(6)).storage is x.storage
    assert x[:1].expand_as(x).stride() == (0, 1)
    assert x[0].broadcast_to((4, 3)).stride() == (0, 1)
    assert x.unflatten(1, (-1, 1)).shape == (2, 3, 1)
    assert x.ravel().storage is x.storage
    assert x.t().ravel().tolist() == [0, 3, 1, 4, 2, 5]
    for y in (x.mT, x.mH, x.H, x.adjoint(), x.T):
        assert y.tolist() == x.t().tolist()
    assert x.squeeze((0, 1)).shape == (2, 3)
    assert lamina.zeros(1, 2, 1).squeeze((0, -1)).shape == (2,)


def test_at_least():
    for ndim, shapes_due in [
            (1, [(1,), (2,), (2, 3), (2, 3, 4)]),
            (2, [(1, 1), (1, 2), (2, 3), (2, 3, 4)]),
            (3, [(1, 1, 1), (1, 2, 1), (2, 3, 1), (2, 3, 4)])]:
        call = getattr(lamina, f'atleast_{ndim}d')
        given_shapes = [(), (2,), (2, 3), (2, 3, 4)]
        found = call([lamina.zeros(s) for s in given_shapes])
        assert [x.shape for x in found] == shapes_due
        assert [x.shape for x in call(*found)] == shapes_due
        assert call(lamina.zeros(())).shape == shapes_due[0]


def test_grids():
    a, b = lamina.arange(2), lamina.arange(3)
    for how in ('ij', 'xy'):
        for x, y in zip(lamina.meshgrid(a, b, indexing=how),
                        np.meshgrid([0, 1], [0, 1, 2], indexing=how)):
            assert x.tolist() == y.tolist() and 0 in x.stride()
    p, q = lamina.broadcast_tensors(a.view(2, 1), b)
    assert p.shape == q.shape == (2, 3) and p.stride() == (1, 0)


@quick
@given(layouts(shape=shapes(min_dims=1)), any_dtypes(half=True))
def test_another_dtype_on_the_same_bytes(layout, dtype):
    x, array = layout.on('cpu'), layout.array()
    name = 'uint16' if dtype is lamina.bfloat16 else dtype.name
    bits = f'uint{8 * dtype.itemsize}'
    try:
        due = array.view(name)
    except ValueError:
        due = None
    last = x.stride(-1)
    if dtype.itemsize != x.itemsize and last != 1 or due is None:
        return              # NumPy and PyTorch differ in what they refuse
    if dtype.itemsize > x.itemsize and any(
            n % (dtype.itemsize // x.itemsize)
            for n in (*x.stride()[:-1], x.storage_offset())):
        return
    y = x.view(dtype)
    assert y.shape == due.shape and y.storage is x.storage
    unsigned = {1: lamina.uint8, 2: lamina.int16, 4: lamina.int32,
                8: lamina.int64}[dtype.itemsize]
    assert y.view(unsigned).tolist() == due.view(
        bits.replace('uint', 'int') if dtype.itemsize > 1 else bits).tolist()


def test_the_same_tensor_with_another_geometry():
    x = lamina.arange(6).view(2, 3)
    assert x.t_() is x and x.shape == (3, 2)
    assert x.storage.version == 1       # a write, to whoever has kept x
    assert x.transpose_(0, 1).shape == (2, 3)
    assert x.unsqueeze_(0).shape == (1, 2, 3)
    assert x.squeeze_(0).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.swapaxes_(0, 1).swapdims_(0, 1).shape == (2, 3)
    assert x.as_strided_((2,), (3,), 1).tolist() == [1, 4]
    with pytest.raises(RuntimeError, match='reach element'):
        x.as_strided_((9,), (1,))
    assert x.tolist() == [1, 4]


# --- joining and rearranging ----------------------------------------------

@pytest.mark.parametrize('where', DEVICES)
def test_joining(where):
    def make(*shape):
        array = np.arange(math.prod(shape), dtype='float32').reshape(shape)
        return lamina.tensor(array, device=where), array

    (a, p), (b, q), (c, r) = make(2, 3), make(2, 3), make(4, 3)
    (v, s), (w, u) = make(3), make(3)
    for ours, theirs in [
            (lamina.cat([a, c]), np.concatenate([p, r])),
            (lamina.cat((a, b), -1), np.concatenate((p, q), -1)),
            (lamina.concat([a.t(), b.t()], 1), np.concatenate([p.T, q.T], 1)),
            (lamina.concatenate([a, b]), np.concatenate([p, q])),
            (lamina.stack([a, b]), np.stack([p, q])),
            (lamina.stack([a, b], -1), np.stack([p, q], -1)),
            (lamina.hstack([a, b]), np.hstack([p, q])),
            (lamina.hstack([v, w]), np.hstack([s, u])),
            (lamina.vstack([v, a]), np.vstack([s, p])),
            (lamina.dstack([a, b]), np.dstack([p, q])),
            (lamina.column_stack([v, w]), np.column_stack([s, u])),
            (lamina.column_stack([a, b]), np.column_stack([p, q]))]:
        assert ours.tolist() == theirs.tolist() and ours.is_contiguous()
        assert ours.storage is not a.storage
        assert ours.device.type == where
    empty = lamina.zeros(0, device=where)
    assert lamina.cat([empty, a]).shape == (2, 3)       # as in PyTorch
    assert lamina.cat([empty, empty]).shape == (0,)


@pytest.mark.parametrize('call, error, says', [
    (lambda x: lamina.cat([]), (ValueError, TypeError), 'one'),
    (lambda x: lamina.cat([x, 1]), TypeError, 'tensor'),
    (lambda x: lamina.cat(x), TypeError, 'tensor'),
    (lambda x: lamina.cat([x[0, 0]]), RuntimeError, 'tensor 0'),
    (lambda x: lamina.cat([x, lamina.zeros(2, 4)]), RuntimeError,
     r'tensor 1 has shape \[2, 4\]'),
    (lambda x: lamina.cat([x, x[0]]), RuntimeError, r'\[3\]'),
    (lambda x: lamina.stack([x, x[0]]), RuntimeError, r'\[3\]'),
    (lambda x: lamina.stack([]), RuntimeError, r'\[\]'),
    (lambda x: lamina.hstack([]), RuntimeError, 'got none'),
    (lambda x: x.flip(0, 0), RuntimeError, 'twice'),
    (lambda x: x.roll((1, 1), 0), RuntimeError, r'\[1, 1\]'),
    (lambda x: x.roll([]), RuntimeError, 'shift'),
    (lambda x: x.rot90(1, (0, 0)), RuntimeError, r'\[0, 0\]'),
    (lambda x: x.repeat(2), RuntimeError, r'\[2\]'),
    (lambda x: x.repeat(1, -1), RuntimeError, '-1'),
    (lambda x: x[0].fliplr(), RuntimeError, '2 dimensions'),
    (lambda x: x[0, 0].flipud(), RuntimeError, '1 dimension'),
    (lambda x: x[0, 0].diag_embed(), IndexError, 'out of range'),
    (lambda x: x.select_scatter(lamina.zeros(2), 0, 1), RuntimeError,
     r'\[3\].*got \[2\]'),
    (lambda x: x.slice_scatter(x, step=0), RuntimeError, 'got 0'),
])
def test_what_cannot_be_joined(call, error, says):
    with pytest.raises(error, match=says):
        call(lamina.zeros(2, 3))


@quick
@given(layouts(shape=shapes(max_dims=3), special=True), st.data(),
       st.sampled_from(DEVICES))
def test_rearranging(layout, data, where):
    x, array = layout.on(where), layout.array()
    dims = data.draw(st.lists(st.integers(0, x.ndim - 1), unique=True)
                     if x.ndim else st.just([]))
    assert same(x.flip(dims).tolist(), np.flip(array, dims).tolist())
    shift = data.draw(st.integers(-4, 4))
    assert same(x.roll(shift).tolist(), np.roll(array, shift).tolist())
    if dims:
        shifts = [shift + k for k in range(len(dims))]
        assert same(x.roll(shifts, dims).tolist(),
                    np.roll(array, shifts, dims).tolist())
    often = data.draw(st.lists(st.integers(0, 2), max_size=3))
    assert same(x.tile(often).tolist(), np.tile(array, often).tolist())
    whole = [1] * max(x.ndim - len(often), 0) + often
    assert same(x.repeat(whole).tolist(), np.tile(array, whole).tolist())
    assert x.repeat([1] * x.ndim).storage is not x.storage
    if x.ndim > 1:
        assert same(x.rot90(shift).tolist(), np.rot90(array, shift).tolist())
        assert same(x.fliplr().tolist(), np.fliplr(array).tolist())
        assert same(x.flipud().tolist(), np.flipud(array).tolist())
    assert same(x.tolist(), array.tolist())


def test_written_into_zeros_or_a_copy():
    v = lamina.tensor([1, 2])
    assert v.diag_embed().tolist() == [[1, 0], [0, 2]]
    assert v.diag_embed(-1).tolist() == [[0, 0, 0], [1, 0, 0], [0, 2, 0]]
    assert v.view(2, 1).diagflat().tolist() == [[1, 0], [0, 2]]
    assert lamina.zeros(2, 3).diag_embed(0, 0, 2).shape == (3, 2, 3)
    x = lamina.zeros(2, 2, dtype=lamina.int64)
    assert x.select_scatter(v, 1, 0).tolist() == [[1, 0], [2, 0]]
    assert x.diagonal_scatter(v).tolist() == [[1, 0], [0, 2]]
    assert x.slice_scatter(v.view(1, 2), 0, 1).tolist() == [[0, 0], [1, 2]]
    assert x.fill(3).tolist() == [[3, 3], [3, 3]]
    assert x.tolist() == [[0, 0], [0, 0]]


# --- index tensors ---------------------------------------------------------

@st.composite
def index_items(draw, shape):
    """Items for ours and for NumPy: slices, None, `...`, lists, masks.

    No ints: beside lists, NumPy counts them as lists.
    """
    ours, theirs, d, common = [], [], 0, draw(st.integers(1, 3))
    dots = False
    while d < len(shape) and draw(st.integers(0, 6)):
        kind = draw(st.sampled_from(
            ['list', 'tensor', 'mask', 'slice', 'none', 'dots']))
        n = shape[d]
        if kind in ('list', 'tensor') and n:
            size = draw(st.sampled_from([common, 1]))
            index = draw(st.lists(st.integers(-n, n - 1), min_size=size,
                                  max_size=size))
            ours.append(index if kind == 'list' else lamina.tensor(index))
            theirs.append(index)
            d += 1
        elif kind == 'mask':
            k = draw(st.integers(1, len(shape) - d))
            if math.prod(shape[d:d + k]) < common:
                continue
            flags = [True] * common + [False] * (
                math.prod(shape[d:d + k]) - common)
            flags = draw(st.permutations(flags))
            mask = np.array(flags, bool).reshape(shape[d:d + k])
            ours.append(lamina.tensor(mask))
            theirs.append(mask)
            d += k
        elif kind == 'slice':
            item = slice(draw(st.none() | st.integers(-3, 3)), None,
                         draw(st.none() | st.integers(1, 2)))
            ours.append(item)
            theirs.append(item)
            d += 1
        elif kind == 'none':
            ours.append(None)
            theirs.append(None)
        elif kind == 'dots' and not dots:
            dots = True
            ours.append(...)
            theirs.append(...)
            d += draw(st.integers(0, len(shape) - d))
    return tuple(ours), tuple(theirs)


@settings(max_examples=150, deadline=None)
@given(layouts(shape=shapes(min_dims=1), overlap=False), st.data(),
       st.sampled_from(DEVICES))
def test_indexing_agrees_with_numpy(layout, data, where):
    x, array = layout.on(where), layout.array()
    ours, theirs = data.draw(index_items(x.shape))
    try:
        due = array[theirs]
    except IndexError:          # dots that left too little for a mask
        with pytest.raises(IndexError):
            x[ours]
        return
    found = x[ours]
    assert found.shape == due.shape
    assert same(found.tolist(), due.tolist())
    if x.device.type == 'python':
        meta = layout.on('meta')
        assert meta[ours].shape == due.shape
    x[ours] = 1
    array[theirs] = 1
    assert same(x.tolist(), array.tolist())
    x[ours] = found
    array[theirs] = due
    assert same(x.tolist(), array.tolist())


Y = (2, 3, 4)


@pytest.mark.parametrize('items, shape', [      # as PyTorch answers
    ([0, 1], Y), ([[0, 1], [1, 0]], (2, 4)), ([0, slice(None)], (3, 4)),
    ([None, 0], (1, 3, 4)), (((0, 1),), Y), (range(2), Y), (True, (1, *Y)),
    (False, (0, *Y)), ((True, 0), (1, 3, 4)), ((None, True), (1, 1, *Y)),
    ((0, slice(None), [0, 1]), (3, 2)), (([0, 1], slice(None), [0, 1]), (2, 3)),
    ((slice(None), [0, 1], [0, 1]), (2, 2)),
    ((None, [0, 1], [0, 1]), (1, 2, 4)),
    (([0, 1], None, [0, 1]), (2, 1, 4)), ([], (0, 3, 4)), ((), Y),
    ((..., [0, 1]), (2, 3, 2)), ([True, False], (1, 3, 4)),
    (([[0], [1]], [[0, 1, 2]]), (2, 3, 4))])
@pytest.mark.parametrize('where', [*DEVICES, 'meta'])
def test_the_shape_of_an_index(items, shape, where):
    x = lamina.zeros(Y, device=where)
    assert x[items].shape == shape


def test_index_tensors_of_one_number_are_ints():
    x = lamina.arange(24).view(Y)
    one = lamina.tensor(1)
    assert x[one].storage is x.storage and x[one].shape == (3, 4)
    assert x[:, one].stride() == (12, 1)
    assert x[np.int64(1)].storage is x.storage
    assert x[one:].shape == (1, 3, 4)
    assert x[lamina.tensor([1])].storage is not x.storage
    assert x[lamina.tensor(True)].shape == (1, *Y)
    number = lamina.tensor(5)
    assert number[True].tolist() == [5] and number[False].tolist() == []
    assert number[lamina.tensor(True)].tolist() == [5]
    assert x[np.array([1, 0])].tolist() == x.flip(0).tolist()
    assert x[np.array([False, True])].tolist() == x[1:].tolist()
    assert x[lamina.tensor([0, 1], dtype=lamina.uint8)].shape == (1, 3, 4)
    assert x[lamina.tensor([0, 1], dtype=lamina.int32)].shape == Y


@pytest.mark.parametrize('items, error, says', [
    (lamina.tensor([0.0]), IndexError, 'float32'),
    (lamina.tensor([0], dtype=lamina.int16), IndexError, 'int16'),
    ([0, 5], IndexError, '5'), ([-3], IndexError, '-3'),
    (([0], [0], [0], [0]), IndexError, 'many'),
    (([0, 1], [0, 1, 2]), IndexError, 'shape'),
    (lamina.tensor([True, False, True]), IndexError, '3'),
])
@pytest.mark.parametrize('where', DEVICES)
def test_what_index_tensors_cannot_be(items, error, says, where):
    x = lamina.zeros(Y, device=where)
    if isinstance(items, lamina.Tensor):
        items = lamina.tensor(items, device=where)
    with pytest.raises(error, match=says):
        x[items]


@pytest.mark.parametrize('where', DEVICES)
def test_assigning_through_index_tensors(where):
    def fresh():
        return lamina.zeros(2, 3, device=where)

    def of(*values):
        return lamina.tensor(values, device=where)

    x = fresh()
    x[[0, 0], [1, 1]] = of(7.0, 8.0)
    assert x.tolist() == [[0, 8, 0], [0, 0, 0]]
    x = fresh()
    x[of([True, False, True], [False, True, False])] = of(7.0, 8.0, 9.0)
    assert x.tolist() == [[7, 0, 8], [0, 9, 0]]
    x[x.new_tensor([True, False], dtype=lamina.bool_)] = lamina.tensor(
        5, device=where)            # one number, of another dtype
    assert x.tolist() == [[5, 5, 5], [0, 9, 0]]
    x[:, [0, 2]] = of([1.0], [2.0])
    assert x.tolist() == [[1, 5, 1], [2, 9, 2]]
    x[[1]] = of([[[4.0, 4.0, 4.0]]])        # sizes of 1 in front are no matter
    assert x.tolist() == [[1, 5, 1], [4, 4, 4]]
    x[False] = 3
    x[True] = x.flip(0)
    assert x.tolist() == [[4, 4, 4], [1, 5, 1]]
    before = x.storage.version
    x[[0]] = 0
    assert x.storage.version > before
    for items, value, error, says in [
            ([0], of(1.0, 2.0), RuntimeError, r'\[2\].*\[1, 3\]'),
            ([0], of(1, 2, 3), RuntimeError, 'int64.*float32'),
            ([5], 0, IndexError, '5'), ([0], [1, 2, 3], TypeError, 'list')]:
        with pytest.raises(error, match=says):
            x[items] = value
    wide = of(1.0, 2.0, 3.0).expand(2, 3)
    with pytest.raises(RuntimeError, match='writing is refused'):
        wide[[0]] = 1


@pytest.mark.parametrize('where', DEVICES)
def test_index_put(where):
    x = lamina.tensor([1.0, 2.0, 3.0], device=where)
    i = lamina.tensor([0, 2, 0], device=where)
    v = lamina.tensor([10.0, 20.0, 30.0], device=where)
    y = lamina.index_put(x, (i,), v, accumulate=True)
    assert y.tolist() == [41, 2, 23] and x.tolist() == [1, 2, 3]
    assert x.index_put_([i], v) is x and x.tolist() == [30, 2, 20]
    flags = lamina.tensor([False, True], device=where)
    once = flags.clone().index_put_((i[:1],), flags[1], accumulate=True)
    assert once.tolist() == [True, True]


@pytest.mark.parametrize('where', DEVICES)
def test_taking(where):
    x = lamina.arange(6, device=where).view(2, 3)
    assert x.take(lamina.tensor([[0, -1]], device=where)).tolist() == [[0, 5]]
    assert lamina.take(x, lamina.tensor(4, device=where)).item() == 4
    mask = lamina.tensor([True, False, True], device=where)
    assert x.masked_select(mask).tolist() == [0, 2, 3, 5]
    assert x[0, 1].masked_select(mask[0]).tolist() == [1]
    assert x.nonzero().tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert x.nonzero().stride() == (1, 5)               # as PyTorch's
    rows, columns = x.nonzero(as_tuple=True)
    assert rows.tolist() == [0, 0, 1, 1, 1]
    assert columns.tolist() == [1, 2, 0, 1, 2]
    assert lamina.argwhere(x).tolist() == x.nonzero().tolist()
    assert x[0, 1].nonzero().shape == (1, 0)
    assert x[0, 1].nonzero(as_tuple=True)[0].tolist() == [0]
    for call, error, says in [
            (lambda: x.take(mask), RuntimeError, 'bool'),
            (lambda: x.take(lamina.tensor([6], device=where)), IndexError,
             '6'),
            (lambda: x.masked_select(x), RuntimeError, 'int64'),
            (lambda: lamina.zeros(2, device='meta').nonzero(),
             NotImplementedError, 'depends on the data')]:
        with pytest.raises(error, match=says):
            call()


def test_a_number_is_formatted():
    x = lamina.tensor([1.5, 2.25])
    assert f'{x[1]:.1f} {x[0]}' == '2.2 1.5' and f'{x}' == str(x)
    with pytest.raises(TypeError):
        f'{x:.1f}'


def test_a_number_of_numpy_is_assigned():
    np = pytest.importorskip("numpy")
    x = lamina.zeros(3)
    x[0], x[1:] = np.int64(3), np.float64(.5)
    x[[True, False, False]] = np.float32(2)
    assert x.tolist() == [2, .5, .5]


def test_numbers_bring_their_dtype():
    np = pytest.importorskip("numpy")
    for numbers, dtype in [
            ([np.float64(2)], lamina.float64), ([1., np.float64(2)],
                                                lamina.float64),
            ([np.int16(2)], lamina.int16), ([np.uint8(2), 1.], lamina.float32),
            ([[lamina.tensor(1., dtype=lamina.float16)]], lamina.float16),
            ([1, 2.5, True], lamina.float32), ([True], lamina.bool)]:
        assert lamina.tensor(numbers).dtype is dtype
