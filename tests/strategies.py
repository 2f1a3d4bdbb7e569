"""Hypothesis strategies for tensors: shapes, dtypes, random strided views.

    @given(layouts(dtype=float_dtypes()))
    def test_it(layout):
        x, y = layout.on('cpu'), layout.on('python')    # equal, unrelated
        array = layout.array()                          # NumPy's, the same

Uses chapters 1 and 2 alone, so that the tests of every layer can.
"""

import math
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from lamina.storage import Storage, dtypes, wrap
from lamina.strides import Geometry, Tensor

HALF = tuple(d for d in dtypes.values()
             if d.category == 2 and d.itemsize == 2)
ALL = tuple(d for d in dtypes.values() if d not in HALF)


def any_dtypes(half=False):
    """All dtypes; with half=True also float16 and bfloat16."""
    return st.sampled_from(ALL + HALF if half else ALL)


def number_dtypes():
    """All but bool."""
    return st.sampled_from([d for d in ALL if d.category > 0])


def int_dtypes():
    return st.sampled_from([d for d in ALL if d.category == 1])


def float_dtypes():
    return st.sampled_from([d for d in ALL if d.category == 2])


def shapes(max_dims=4, max_size=4, min_dims=0, min_size=0):
    """Tuples of sizes. Sizes of 1 and 2 are likely, a size of 0 is not."""
    sizes = [n for n in (2, 3, 1, 4, 2, 1, 5, 3, 2, 1, 0)
             if min_size <= n <= max_size]
    return st.lists(st.sampled_from(sizes), min_size=min_dims,
                    max_size=max_dims).map(tuple)


def numbers(dtype, special=False):
    """Python numbers that the dtype keeps as they are.

    Small ones, mostly, and exact in binary; with special=True also the
    ends of the range, infinities, NaN and the negative zero.
    """
    if dtype.category == 0:
        return st.booleans()
    if dtype.category == 1:
        low = 0 if not dtype.is_signed else -9
        small = st.integers(low, 9)
        bits = 8 * dtype.itemsize - dtype.is_signed
        ends = [2 ** bits - 1, -2 ** bits if dtype.is_signed else 0]
        return small | st.sampled_from(ends) if special else small
    small = st.integers(-18, 18).map(lambda k: k / 2)
    if not special:
        return small
    return small | st.sampled_from(
        [math.inf, -math.inf, math.nan, -0.0, 1e30, -1e-30]).map(
            lambda value: wrap(dtype, value))


class Layout(NamedTuple):
    """A dtype, a geometry and all elements of the storage under it."""

    dtype: object
    geometry: Geometry
    values: tuple

    def on(self, device):
        """A new tensor of it, on a storage of its own."""
        size = self.dtype.itemsize
        storage = Storage(len(self.values) * size, device)
        if str(storage.device) != 'meta':
            elements = storage.elements(self.dtype)
            for i, value in enumerate(self.values):
                elements[i] = value
        return Tensor(storage, self.geometry, self.dtype)

    def array(self):
        """The same as an array, on memory of its own. NumPy has no
        bfloat16: of it, the raw bits."""
        memory = (np.frombuffer(b''.join(
            self.dtype.format.pack(v) for v in self.values), np.uint16)
            if self.dtype.name == 'bfloat16'
            else np.array(self.values, self.dtype.name))
        size = self.dtype.itemsize
        return np.ndarray(
            self.geometry.shape, memory.dtype, memory,
            self.geometry.offset * size,
            [step * size for step in self.geometry.strides])

    def __repr__(self):
        shape, strides, offset = self.geometry
        return (f'Layout({self.dtype}, shape={shape}, strides={strides}, '
                f'offset={offset}, values={list(self.values)})')


@st.composite
def layouts(draw, dtype=any_dtypes(), shape=shapes(), elements=None,
            special=False, overlap=True):
    """Random strided views: dimensions permuted, with steps, an offset and
    unread elements at both ends; with overlap also strides of 0.

    dtype and shape: a value or a strategy. elements: a strategy for the
    numbers; the default is numbers(dtype, special).
    """
    if isinstance(dtype, st.SearchStrategy):
        dtype = draw(dtype)
    if isinstance(shape, st.SearchStrategy):
        shape = draw(shape)
    strides, step = [0] * len(shape), 1
    plain = draw(st.booleans())             # half of them contiguous
    order = range(len(shape))
    if not plain and len(shape) > 1:
        order = draw(st.permutations(order))
    for d in reversed(order):
        kind = 'step' if plain else draw(st.sampled_from(
            ['step', 'step', 'skip', 'gap', 'zero']))
        if kind == 'zero' and overlap:
            continue
        # a gap lies between the rows, a skip between their elements
        step *= 2 if kind == 'skip' else 1
        strides[d] = step
        step *= max(shape[d], 1)
        step += kind == 'gap'
    offset = 0 if plain else draw(st.integers(0, 2))
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides) if n)
    count = 0 if 0 in shape and not offset else last + 1
    count += 0 if plain else draw(st.integers(0, 2))
    few = draw(st.lists(elements or numbers(dtype, special),
                        min_size=min(count, 24), max_size=min(count, 24)))
    values = tuple(few[i * 7 % len(few)] if i >= 24 else few[i]
                   for i in range(count))
    return Layout(dtype, Geometry(shape, tuple(strides), offset), values)


def tensors(device='cpu', **options):
    """Random strided views on a device; the options are layouts()'s."""
    return layouts(**options).map(lambda layout: layout.on(device))


def same(a, b):
    """Whether two numbers or nested lists are equal; NaN equals NaN, and
    a negative zero does not equal a positive one."""
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if a != a or b != b:
        return a != a and b != b
    return a == b and math.copysign(1, a) == math.copysign(1, b)
