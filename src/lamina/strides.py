"""Strides: one run of bytes, many shapes.

Exported from chapters/02_strides.ipynb by `course export`; edit the chapter,
not this file.
"""

import difflib
import functools
import math
import operator
from typing import NamedTuple

from lamina.storage import (
    Storage, as_device, as_dtype, bool_, dtypes, float32, get_default_device,
    get_default_dtype, int64, wrap,
)

__all__ = [
    "Geometry",
    "Tensor",
    "tensor",
    "empty",
    "zeros",
    "ones",
    "full",
    "arange",
    "empty_like",
    "zeros_like",
    "ones_like",
    "reshape",
    "flatten",
]


class Geometry(NamedTuple):
    """Where a tensor's elements lie: a value, never changed.

    Element (i, j, ...) of `shape` is element
    `offset + i * strides[0] + j * strides[1] + ...` of the storage.
    """

    shape: tuple
    strides: tuple
    offset: int = 0


def numel(shape):
    """How many elements a shape has: its product; 1 for ()."""
    return math.prod(shape)


@functools.lru_cache(4096)
def row_major(shape):
    """The geometry of a new tensor: last dimension fastest, offset 0.

    The same shape gives the same object, so that `is` compares quickly.
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Geometry(shape, tuple(reversed(strides)), 0)


def offsets(geometry):
    """The number of each stored element, in the order in which it is read.

    One dimension at a time: each offset so far grows into a row of them.
    """
    found = [geometry.offset]
    for size, stride in zip(geometry.shape, geometry.strides):
        row = range(0, size * stride, stride) if stride else [0] * size
        found = [start + step for start in found for step in row]
    return found


def is_row_major(geometry):
    """Whether the elements lie one after another in row-major order.

    A dimension of size 1 is never stepped along: its stride is free. A
    tensor without elements has none out of order.
    """
    if 0 in geometry.shape:
        return True
    step = 1
    for size, stride in zip(reversed(geometry.shape),
                            reversed(geometry.strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def overlaps(geometry):
    """Whether one stored element is surely read twice: a stride of 0."""
    return 0 not in geometry.shape and any(
        stride == 0 and size > 1
        for size, stride in zip(geometry.shape, geometry.strides))


def ints(name, values):
    """A tuple of ints from `f(2, 3)` or `f((2, 3))`, or TypeError."""
    given = values
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        given = values[0]
    try:
        if not values or any(isinstance(v, bool) for v in given):
            raise TypeError
        return tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(
            f"{name}(): expected ints, as in {name}(2, 3) or "
            f"{name}((2, 3)); got {tuple(given)}") from None


def wrap_dim(dim, ndim):
    """A dimension counted from the front, given it from either end."""
    reach = max(ndim, 1)
    if not -reach <= operator.index(dim) < reach:
        raise IndexError(f"dimension {dim} is out of range: expected "
                         f"{-reach} to {reach - 1}")
    return dim % reach


def nearest(name, names):
    """A hint for a name that is not there: the one most like it."""
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


class Tensor:
    """A geometry over a storage, read as a dtype.

    `_base` is the tensor that a view was made from, None if it is none.
    Three slots stay empty here and belong to later layers: `keys` is what
    the dispatcher looks at (chapter 3), `array` is NumPy's view of the
    same memory (chapter 4), `autograd` is the gradient's (chapter 8).
    """

    __slots__ = ("storage", "geometry", "dtype", "_base",
                 "keys", "array", "autograd", "__weakref__")

    def __init__(self, storage, geometry, dtype):
        self.storage = storage
        self.geometry = geometry
        self.dtype = dtype
        self._base = None
        self.keys = storage.device.bit | dtype.bit
        self.array = None
        self.autograd = None

    __hash__ = object.__hash__

    @property
    def shape(self):
        return self.geometry.shape

    @property
    def device(self):
        return self.storage.device

    @property
    def ndim(self):
        return len(self.geometry.shape)

    __array_priority__ = 1000           # NumPy leaves x * y to us

    def __reduce_ex__(self, protocol):
        """Copies and pickles are made of these parts, not of the slots:
        what NumPy and chapter 8 keep there belongs to this tensor."""
        if not getattr(self, "is_leaf", True):
            raise RuntimeError("only a leaf can be copied or pickled: this "
                               "tensor was made by a recorded operator; "
                               "use x.detach()")
        return _rebuild, (type(self), self.storage, self.geometry,
                          self.dtype, getattr(self, "requires_grad", False),
                          getattr(self, "grad", None))

    late = {}       # slot -> function of x that fills it when it is asked for

    def __getattr__(self, name):
        if name in self.late:
            value = self.late[name](self)
            setattr(self, name, value)
            return value
        raise AttributeError(f"a tensor has no attribute {name!r}"
                             + nearest(name, dir(type(self))))


def _rebuild(kind, storage, geometry, dtype, requires_grad, grad):
    """The tensor that __reduce_ex__ took apart."""
    x = Tensor.__new__(kind)
    Tensor.__init__(x, storage, geometry, dtype)
    if requires_grad:
        x.requires_grad_()
    if grad is not None:
        x.grad = grad
    return x


def method(function):
    """Make a function a method of tensors: the door for new layers."""
    setattr(Tensor, function.__name__, function)
    return function


@method
def dim(self):
    """The number of dimensions."""
    return len(self.geometry.shape)


@method
def size(self, dim=None):
    """The shape, or the size of one dimension."""
    shape = self.geometry.shape
    return shape if dim is None else shape[wrap_dim(dim, len(shape))]


@method
def stride(self, dim=None):
    """The strides in elements, or that of one dimension."""
    strides = self.geometry.strides
    return strides if dim is None else strides[wrap_dim(dim, len(strides))]


@method
def storage_offset(self):
    """The stored element at which the tensor begins."""
    return self.geometry.offset


@method
def data_ptr(self):
    """The address of the first element; 0 if there is none."""
    first = self.geometry.offset * self.dtype.itemsize
    return self.storage.data_ptr() + first if self.numel() else 0


@method
def element_size(self):
    """Bytes an element."""
    return self.dtype.itemsize


@method
def untyped_storage(self):
    """The bytes under the tensor, shared with all its views."""
    return self.storage


Tensor.numel = Tensor.nelement = lambda self: numel(self.geometry.shape)
Tensor.is_contiguous = lambda self: is_row_major(self.geometry)


def flat(x):
    """The elements of a tensor in a flat list."""
    memory = x.storage.elements(x.dtype)
    return [memory[i] for i in offsets(x.geometry)]


@method
def tolist(self):
    """The elements as nested lists; a number if there is no dimension."""
    values = flat(self)
    for d in range(self.ndim - 1, 0, -1):
        size = self.shape[d]
        values = [values[i * size:(i + 1) * size]
                  for i in range(numel(self.shape[:d]))]
    return values if self.shape else values[0]


@method
def item(self):
    """The one element, as a Python number."""
    if self.numel() != 1:
        raise RuntimeError(f"item() takes a tensor of one element; this "
                           f"has {self.numel()}, shape {list(self.shape)}")
    return self.storage.read(self.dtype, self.geometry.offset)


def _checked_shape(name, shape):
    """A shape that memory can hold; RuntimeError for any other."""
    shape = ints(name, shape)
    if any(size < 0 for size in shape):
        raise RuntimeError(
            f"{name}(): a size is negative in {list(shape)}")
    if numel(shape) >= 1 << 60:
        raise RuntimeError(
            f"{name}(): a tensor of shape {list(shape)} has "
            f"{numel(shape)} elements, more than any memory")
    return shape


def _new(geometry, dtype, device):
    """A tensor of that geometry on a new storage."""
    span = 1 + sum((n - 1) * step for n, step
                   in zip(geometry.shape, geometry.strides))
    count = 0 if 0 in geometry.shape else span
    return Tensor(Storage(count * dtype.itemsize, device), geometry, dtype)


def _leaf(x, requires_grad):
    """x, marked as one whose gradient is wanted (chapter 8) if it is."""
    return x.requires_grad_() if requires_grad else x


def empty(*size, dtype=None, device=None, requires_grad=False):
    """A tensor of that shape; its memory is new (here: zeros)."""
    dtype = as_dtype(dtype) or get_default_dtype()
    device = get_default_device() if device is None else as_device(device)
    geometry = row_major(_checked_shape("empty", size))
    return _leaf(_new(geometry, dtype, device), requires_grad)


def zeros(*size, dtype=None, device=None, requires_grad=False):
    """A tensor of zeros."""
    return empty(*size, dtype=dtype, device=device,
                 requires_grad=requires_grad)


@method
def new_zeros(self, *size):
    """Zeros of that shape, with this tensor's dtype and device."""
    return zeros(*size, dtype=self.dtype, device=self.device)


def number_dtype(value):
    """The dtype of a number: bool, int64, or the default of floats."""
    if isinstance(value, bool):
        return bool_
    whole = isinstance(_number(value), int)
    return int64 if whole else get_default_dtype()


def _number(value):
    """A Python number, itself or out of a tensor or a NumPy scalar."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, Tensor):
        return _only(value)
    if getattr(value, "size", None) == 1 and hasattr(value, "__float__"):
        return _number(value.item())
    kind = type(value).__name__
    raise TypeError(f"expected a number, not {kind}: {value!r}")


def element(dtype, value):
    """What `dtype` keeps of a number; RuntimeError if that is another one.

    A fraction may be cut off or rounded. As in PyTorch, an unsigned
    dtype takes a negative number whose opposite it has.
    """
    if not isinstance(value, (int, float)):
        value = _number(value)
    kept = wrap(dtype, value)
    if dtype.category == 1:
        top = (1 << 8 * dtype.itemsize - dtype.is_signed) - 1
        fits = -top - dtype.is_signed <= value <= top
    else:
        fits = abs(kept) != math.inf or abs(value) == math.inf
    if not fits:
        raise RuntimeError(f"{value} does not fit into {dtype}: it would "
                           f"become {kept}; a larger dtype may hold it")
    return kept


def full(size, fill_value, *, dtype=None, device=None,
         requires_grad=False):
    """A tensor of that shape, every element `fill_value`."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): expected a shape, as in "
                        f"full((2, 3), 1.0); got {size!r}")
    dtype = as_dtype(dtype) or number_dtype(fill_value)
    kept = element(dtype, fill_value)
    x = empty(size, dtype=dtype, device=device)
    if x.device.type != "meta":
        x.storage.bytes[:] = dtype.format.pack(kept) * x.numel()
    return _leaf(x, requires_grad)


def ones(*size, dtype=None, device=None, requires_grad=False):
    """A tensor of ones."""
    return full(ints("ones", size), 1, dtype=dtype or get_default_dtype(),
                device=device, requires_grad=requires_grad)


def _nested_shape(data):
    """The shape of nested lists, by the first item at each level."""
    if isinstance(data, (list, tuple, range)):
        return (len(data), *(_nested_shape(data[0]) if data else ()))
    return ()


def _append_numbers(out, data, shape, level=0):
    """Append the numbers of nested lists of that shape to a flat list."""
    nested = isinstance(data, (list, tuple, range))
    if level == len(shape):
        if nested:
            raise TypeError(f"tensor(): expected a number {level} levels "
                            f"deep, as the first is; got {data!r}")
        out.append(_number(data))
        return
    if not nested:
        raise TypeError(f"tensor(): expected a list of {shape[level]} at "
                        f"level {level}, as the first is; got {data!r}")
    if len(data) != shape[level]:
        raise ValueError(
            f"tensor(): the rows at level {level} must be equally long: "
            f"expected a list of {shape[level]}, as the first is; got a "
            f"list of {len(data)}")
    for item in data:
        _append_numbers(out, item, shape, level + 1)


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    """A new tensor with a copy of `data`: a number, lists, an array.

    The dtype is that of the widest number in it: bool, int64, or float32.
    """
    dtype = as_dtype(dtype)
    keep = element
    if hasattr(data, "__array_interface__") or isinstance(data, Tensor):
        name = getattr(data.dtype, "name", None)
        if dtype is None and name not in dtypes:
            raise TypeError(f"tensor(): no dtype for {name}; one of "
                            f"{', '.join(dtypes)} has to be given")
        dtype = dtype or dtypes[name]
        if device is None and isinstance(data, Tensor):
            device = data.device
        shape, values = tuple(data.shape), data.reshape(-1).tolist()
        keep = wrap             # it is a conversion, as with .to(dtype)
    else:
        shape, values = _nested_shape(data), []
        _append_numbers(values, data, shape)
    if dtype is None:
        kinds = {number_dtype(v) for v in values} or {get_default_dtype()}
        dtype = max(kinds, key=lambda kind: kind.category)
    keep = wrap if dtype.category == 2 else keep
    x = _filled(values, shape, dtype, device, keep)
    return _leaf(x, requires_grad)


def _filled(values, shape, dtype, device, keep):
    """A new tensor of these numbers; `keep` fits each to the dtype."""
    x = empty(shape, dtype=dtype, device=device)
    if x.device.type != "meta":
        memory = x.storage.elements(dtype)
        for i, value in enumerate(values):
            memory[i] = keep(dtype, value)
    return x


def arange(start, end=None, step=1, *, dtype=None, device=None,
           requires_grad=False):
    """start, start + step, ... up to but not including end."""
    if end is None:
        start, end = 0, start
    if as_dtype(dtype) is bool_:
        raise NotImplementedError(
            "arange() is for numbers, not lamina.bool")
    if step == 0:
        raise RuntimeError("arange(): step must not be 0")
    if not (end - start) * step >= 0 or math.isinf(end - start):
        raise RuntimeError(f"arange(): steps of {step} never lead from "
                           f"{start} to {end}")
    count = math.ceil((end - start) / step)
    whole = all(isinstance(v, int) for v in (start, end, step))
    dtype = dtype or (int64 if whole else get_default_dtype())
    x = _filled((start + i * step for i in range(count)), (count,), dtype,
                device, wrap)
    return _leaf(x, requires_grad)


def geometric(function):
    """Let a function of a geometry take a tensor too, and be a method.

    The tensor that it gives reads the same storage.
    """
    @functools.wraps(function)
    def lifted(x, *args, **kwargs):
        if isinstance(x, Geometry):
            return function(x, *args, **kwargs)
        return view_of(x, function(x.geometry, *args, **kwargs))
    return method(lifted)


def view_of(x, geometry):
    """A tensor with another geometry on x's storage."""
    view = Tensor(x.storage, geometry, x.dtype)
    view._base = x if x._base is None else x._base
    return view


@geometric
def transpose(x, dim0, dim1):
    """x with two dimensions exchanged."""
    shape, strides = list(x.shape), list(x.strides)
    a, b = wrap_dim(dim0, len(shape)), wrap_dim(dim1, len(shape))
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return Geometry(tuple(shape), tuple(strides), x.offset)


@geometric
def t(x):
    """The transpose of a matrix; a vector or a number as it is."""
    if len(x.shape) > 2:
        raise RuntimeError(f"t() takes at most 2 dimensions; this tensor "
                           f"has {len(x.shape)}: use transpose or permute")
    return Geometry(x.shape[::-1], x.strides[::-1], x.offset)


@geometric
def permute(x, *dims):
    """x with its dimensions in the order `dims`."""
    dims = ints("permute", dims)
    if len(dims) != len(x.shape):
        raise RuntimeError(
            f"permute(): a tensor of {len(x.shape)} dimensions takes an "
            f"order of as many; got {list(dims)}")
    order = [wrap_dim(d, len(x.shape)) for d in dims]
    if len(set(order)) < len(order):
        raise RuntimeError(
            f"permute(): a dimension is named twice in {list(dims)}")
    return Geometry(tuple(x.shape[d] for d in order),
                    tuple(x.strides[d] for d in order), x.offset)


@geometric
def numpy_T(x):
    """x with its dimensions in reverse order: x.T, in NumPy's sense."""
    return Geometry(x.shape[::-1], x.strides[::-1], x.offset)


def _matrix_transpose(self):
    """x.mT: each matrix of a batch transposed."""
    if self.ndim == 1:
        raise RuntimeError("mT takes a matrix or a batch of matrices; "
                           "this tensor has 1 dimension")
    return self.transpose(-2, -1)


Tensor.T = property(lambda self: self.numpy_T())
Tensor.mT = property(_matrix_transpose)


@geometric
def select(x, dim, index):
    """x at one index of a dimension, which is gone."""
    if not x.shape:
        raise IndexError("select(): a tensor of no dimensions has none to "
                         "select from; its number is item()")
    d = wrap_dim(dim, len(x.shape))
    size, index = x.shape[d], operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for dimension "
                         f"{d} of size {size}, shape {list(x.shape)}")
    return Geometry(x.shape[:d] + x.shape[d + 1:],
                    x.strides[:d] + x.strides[d + 1:],
                    x.offset + index % size * x.strides[d])


@geometric
def narrow(x, dim, start, length):
    """The `length` indices of a dimension from `start` on."""
    if not x.shape:
        raise RuntimeError("narrow(): a tensor of no dimensions has none "
                           "to narrow; it takes at least 1 dimension")
    d = wrap_dim(dim, len(x.shape))
    size = x.shape[d]
    start, length = operator.index(start), operator.index(length)
    if not -size <= start <= size:
        raise IndexError(f"narrow(): start {start} is out of range for "
                         f"dimension {d} of size {size}")
    start += size if start < 0 else 0
    if length < 0 or start + length > size:
        raise RuntimeError(f"narrow(): {length} indices from {start} on "
                           f"do not fit dimension {d} of size {size}")
    return Geometry(x.shape[:d] + (length,) + x.shape[d + 1:], x.strides,
                    x.offset + start * x.strides[d])


def _expand_items(items, ndim):
    """The items of an index with its `...` written out as full slices."""
    items = items if type(items) is tuple else (items,)
    named = sum(item is not None and item is not ... for item in items)
    if named > ndim:
        raise IndexError(
            f"too many indices: {named} for a tensor of {ndim} dimensions"
            + ("" if ndim else "; its number is item()"))
    if not any(item is ... for item in items):
        return items
    at = next(k for k, item in enumerate(items) if item is ...)
    fill = (slice(None),) * (ndim - named)
    rest = tuple(i for i in items[at + 1:] if i is not ...)
    return items[:at] + fill + rest


def _slice_steps(item, size):
    """Where a slice starts, how many indices it takes, and its step."""
    try:
        start, stop, step = item.indices(size)
    except ValueError:
        step = 0
    if step <= 0:
        raise ValueError(f"a slice takes a step of 1 or more; got "
                         f"{item.step}: storage is read forwards only")
    return start, max(0, (stop - start + step - 1) // step), step


def _index(item):
    """An int that may index; IndexError for what cannot."""
    whole = not isinstance(item, bool)
    if isinstance(item, Tensor):
        whole = item.dtype.category == 1 and not item.shape
    if whole and hasattr(item, "__index__"):
        return operator.index(item)
    raise IndexError(f"an index is made of ints, slices, None and `...`; "
                     f"got {type(item).__name__}")


@geometric
def getitem(x, items):
    """x[items] for ints, slices with a positive step, None and `...`."""
    shape, strides, offset, d = [], [], x.offset, 0
    for item in _expand_items(items, len(x.shape)):
        if item is None:
            shape.append(1)
            strides.append(x.shape[d] * x.strides[d]
                           if d < len(x.shape) else 1)
            continue
        size, stride = x.shape[d], x.strides[d]
        if isinstance(item, slice):
            start, length, step = _slice_steps(item, size)
            offset += start * stride
            shape.append(length)
            strides.append(step * stride)
        else:
            index = _index(item)
            if not -size <= index < size:
                raise IndexError(f"index {index} is out of range for "
                                 f"dimension {d} of size {size}")
            offset += (index + size if index < 0 else index) * stride
        d += 1
    return Geometry(tuple(shape) + x.shape[d:],
                    tuple(strides) + x.strides[d:], offset)


Tensor.__getitem__ = getitem


@geometric
def unsqueeze(x, dim):
    """x with a new dimension of size 1 at `dim`."""
    d = wrap_dim(dim, len(x.shape) + 1)
    step = x.shape[d] * x.strides[d] if d < len(x.shape) else 1
    return Geometry(x.shape[:d] + (1,) + x.shape[d:],
                    x.strides[:d] + (step,) + x.strides[d:], x.offset)


@geometric
def squeeze(x, dim=None):
    """x without its dimensions of size 1, or without those named."""
    n = len(x.shape)
    named = range(n) if dim is None else [
        wrap_dim(d, n) for d in ints("squeeze", (dim,))]
    if len(set(named)) < len(named):
        raise RuntimeError(
            f"squeeze(): a dimension is named twice in {dim}")
    keep = [d for d in range(n) if d not in named or x.shape[d] != 1]
    return Geometry(tuple(x.shape[d] for d in keep),
                    tuple(x.strides[d] for d in keep), x.offset)


@geometric
def expand(x, *size):
    """x with dimensions of size 1 repeated to `size`, by a stride of 0.

    New dimensions may come in front; -1 keeps a size.
    """
    size = ints("expand", size)
    new = len(size) - len(x.shape)
    if new < 0:
        raise RuntimeError(f"expand(): {list(size)} has fewer dimensions "
                           f"than the tensor, {list(x.shape)}")
    shape, strides = list(size), [0] * len(size)
    step = 1 if x.shape else 0  # what a new dimension of size 1 gets
    for d in reversed(range(len(size))):
        had = 1
        if d >= new:
            had, step = x.shape[d - new], x.strides[d - new]
            if size[d] == -1:
                shape[d] = had
        if shape[d] < 0 or shape[d] != had != 1:
            raise RuntimeError(
                f"expand(): {list(x.shape)} cannot expand to "
                f"{list(size)}: dimension {d} has {had}, not {size[d]}, "
                f"and only a size of 1 can be repeated")
        strides[d] = step if shape[d] == had else 0
        step = shape[d] * strides[d]
    return Geometry(tuple(shape), tuple(strides), x.offset)


def infer_size(size, count, name="view"):
    """`size` with its -1 replaced by what `count` elements leave it."""
    known = numel(s for s in size if s != -1)
    bad = [s for s in size if s < -1]
    if bad or size.count(-1) > 1:
        raise RuntimeError(f"{name}(): {list(size)} is no shape: sizes "
                           f"are 0 or more, and one may be -1")
    if -1 in size:
        if known == 0:
            raise RuntimeError(f"{name}(): in {list(size)} the -1 can be "
                               f"anything, because another size is 0")
        size = tuple(count // known if s == -1 else s for s in size)
    if numel(size) != count:
        raise RuntimeError(f"{name}(): shape {list(size)} is invalid for "
                           f"a tensor of {count} elements")
    return size


def view_strides(x, size):
    """The strides that read x's elements in shape `size`; None if none do.

    Dimensions of x that follow on from each other (the stride of one is
    size times stride of the next) act as one long dimension; each of
    these must be cut into whole dimensions of `size`. This is
    computeStride of PyTorch's aten/src/ATen/TensorUtils.cpp.
    """
    if 0 in x.shape:
        return row_major(size).strides if size != x.shape else x.strides
    if not x.shape:
        return (1,) * len(size)
    strides, last = [0] * len(size), len(size) - 1
    count, step = 1, x.strides[-1]
    for d in range(len(x.shape) - 1, -1, -1):
        count *= x.shape[d]
        if d == 0 or (x.shape[d - 1] != 1
                      and x.strides[d - 1] != count * step):
            taken = 1
            while last >= 0 and (taken < count or size[last] == 1):
                strides[last] = taken * step
                taken *= size[last]
                last -= 1
            if taken != count:
                return None
            if d:
                count, step = 1, x.strides[d - 1]
    return tuple(strides) if last < 0 else None


@geometric
def view(x, *size):
    """The same elements in another shape, if strides can say it."""
    size = infer_size(ints("view", size), numel(x.shape))
    strides = view_strides(x, size)
    if strides is None:
        raise RuntimeError(
            f"view(): no strides read a tensor of shape {list(x.shape)} "
            f"and strides {list(x.strides)} as {list(size)}; use reshape, "
            f"which copies where it must")
    return Geometry(size, strides, x.offset)


@method
def as_strided(self, size, stride, storage_offset=None):
    """Any geometry on the tensor's storage, if it stays inside it."""
    size = _checked_shape("as_strided", (size,))
    stride = ints("as_strided", (stride,))
    offset = (self.geometry.offset if storage_offset is None
              else operator.index(storage_offset))
    if len(size) != len(stride) or min(0, offset, *stride) < 0:
        raise RuntimeError(
            f"as_strided(): size {list(size)}, stride {list(stride)} and "
            f"offset {offset} must be of one length and not negative")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    have = self.storage.nbytes() // self.dtype.itemsize
    if 0 not in size and last >= have:
        raise RuntimeError(
            f"as_strided(): size {list(size)}, stride {list(stride)} and "
            f"offset {offset} reach element {last} of a storage of {have}")
    return view_of(self, Geometry(size, stride, offset))


def refuse_overlap(x):
    """RuntimeError for writing where several indices are one element."""
    if overlaps(x.geometry):
        raise RuntimeError(
            f"several elements of this tensor are one element in memory "
            f"(shape {list(x.shape)}, strides {list(x.stride())}), so "
            f"writing is refused; write to x.clone()")


def write_values(x, values):
    """Write a flat list over a tensor's elements, in row-major order."""
    refuse_overlap(x)
    memory = x.storage.elements(x.dtype)
    for i, value in zip(offsets(x.geometry), values):
        memory[i] = wrap(x.dtype, value)
    x.storage.version += 1
    return x


@method
def copy_(self, src, non_blocking=False):
    """Set the elements to those of `src`, expanded to this shape."""
    if not isinstance(src, Tensor):
        return self.fill_(src)
    src = expand(src, self.shape)
    refuse_overlap(self)
    if self.device.type == "meta":
        return self                     # there is nothing to write to
    return write_values(self, flat(src))


@method
def fill_(self, value):
    """Set every element to a number; RuntimeError if it does not fit."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_() takes a number, or a tensor of no dimensions; "
                f"this one is {list(value.shape)}")
        refuse_overlap(self)
        kept = wrap(self.dtype, value.item())
    else:
        kept = element(self.dtype, value)
    if self.device.type == "meta":
        return self
    memory = self.storage.elements(self.dtype)
    for i in set(offsets(self.geometry)):
        memory[i] = kept
    self.storage.version += 1
    return self


@method
def zero_(self):
    """Set every element to 0."""
    return self.fill_(0)


def _setitem(self, items, value):
    """x[items] = value, through the view x[items]."""
    place = self[items]
    if not isinstance(value, Tensor):
        if not isinstance(value, (int, float)):
            raise TypeError(f"x[...] = value takes a number or a tensor, "
                            f"not {type(value).__name__}: tensor(...) may "
                            f"make one")
        refuse_overlap(place)
        place.fill_(value)
        return
    extra = value.ndim - place.ndim     # sizes of 1 in front are no matter
    if extra > 0 and numel(value.shape[:extra]) == 1:
        value = value[(0,) * extra]
    place.copy_(value)


Tensor.__setitem__ = _setitem


def dense(geometry):
    """The geometry of a copy: the same order of strides, without gaps.

    As PyTorch's infer_dense_strides, of aten/src/ATen/ExpandUtils.cpp: a
    stride of 0 says nothing about the order.
    """
    shape, strides, _ = geometry
    order = []                          # of dimensions, the fastest first
    for d in reversed(range(len(shape))):
        order.append(d)
        at = len(order) - 1
        for k in reversed(range(at)):
            a, b = order[k], order[at]
            if 0 in (strides[a], strides[b]):
                continue
            if (strides[a], shape[a]) > (strides[b], shape[b]):
                order[k], order[at] = b, a
                at = k
            elif strides[a] < strides[b]:
                break
    step, found = 1, [0] * len(shape)
    for d in order:
        found[d] = step
        step *= max(shape[d], 1)
    return Geometry(shape, tuple(found), 0)


def empty_like(input, *, dtype=None, device=None):
    """A new tensor with the shape, order of strides, dtype and device."""
    return _new(_keep(input.geometry), as_dtype(dtype) or input.dtype,
                input.device if device is None else as_device(device))


def _keep(geometry):
    """The geometry at offset 0 if it has no gaps, else without them."""
    if is_row_major(geometry):
        return geometry._replace(offset=0)
    steps = sorted((s, n) for n, s in zip(geometry.shape, geometry.strides)
                   if n > 1)
    step = 1
    for stride, size in steps:
        if stride != step:
            return dense(geometry)
        step *= size
    return geometry._replace(offset=0)


@method
def clone(self):
    """A copy in a storage of its own, in the same order of strides."""
    return copy_(empty_like(self), self)


def zeros_like(input, *, dtype=None, device=None):
    """Zeros of the same shape, dtype and device."""
    return empty_like(input, dtype=dtype, device=device).zero_()


def ones_like(input, *, dtype=None, device=None):
    """Ones of the same shape, dtype and device."""
    return empty_like(input, dtype=dtype, device=device).fill_(1)


@method
def contiguous(self):
    """The tensor itself if it is contiguous, else a copy that is."""
    if self.is_contiguous():
        return self
    return empty(self.shape, dtype=self.dtype,
                 device=self.device).copy_(self)


@method
def reshape(self, *shape):
    """The elements in another shape: a view where strides can say it, else
    a copy."""
    size = infer_size(ints("reshape", shape), self.numel(), "reshape")
    strides = view_strides(self.geometry, size)
    return (self if strides is not None else self.contiguous()).view(size)


@method
def flatten(self, start_dim=0, end_dim=-1):
    """Dimensions start_dim to end_dim as one."""
    a, b = wrap_dim(start_dim, self.ndim), wrap_dim(end_dim, self.ndim)
    if a > b:
        raise RuntimeError(f"flatten(): start_dim {start_dim} comes after "
                           f"end_dim {end_dim}")
    if a == b and self.shape:
        return self
    shape = self.shape
    return self.reshape(*shape[:a], numel(shape[a:b + 1]), *shape[b + 1:])


def _length(self):
    """The size of the first dimension."""
    if not self.shape:
        raise TypeError("len() of a tensor of no dimensions")
    return self.shape[0]


def _rows(self):
    """x[0], x[1], ... along the first dimension."""
    if not self.shape:
        raise TypeError("a tensor of no dimensions has no rows to go over")
    return (self[i] for i in range(self.shape[0]))


def _truth(self):
    """The one element's truth; more than one has none."""
    if self.numel() != 1:
        raise RuntimeError(
            f"the truth of a tensor of {self.numel()} elements is "
            f"ambiguous; use .any() or .all()")
    return self.item() != 0


def _whole(self):
    """The one element as an index, if it is an integer."""
    if self.dtype.category == 2 or self.numel() != 1:
        raise TypeError(f"only an integer tensor of one element can be an "
                        f"index; this is {self.dtype}, {list(self.shape)}")
    return int(self.item())


def _only(self):
    """The one element, for int() and float()."""
    if self.numel() != 1:
        raise ValueError(f"only a tensor of one element is a number; this "
                         f"has {self.numel()}, shape {list(self.shape)}")
    return self.item()


@method
def detach(self):
    """The same elements, in a tensor that is nobody's view; chapter 8 gives
    it its meaning: no gradient flows through it."""
    return Tensor(self.storage, self.geometry, self.dtype)


Tensor.__len__ = _length
Tensor.__iter__ = _rows
Tensor.__bool__ = _truth
Tensor.__index__ = _whole
Tensor.__int__ = lambda self: int(_only(self))
Tensor.__float__ = lambda self: float(_only(self))


_EDGE, _MANY, _COLUMNS = 3, 1000, 80


def _texts(values, floating):
    """Numbers as texts of one width, as PyTorch prints them."""
    if not floating:
        texts = [str(v) for v in values]
        width = max(map(len, texts))
        return [text.rjust(width) for text in texts]
    usual = [v for v in values if v and math.isfinite(v)]
    pattern = "{:.0f}." if all(v == int(v) for v in usual) else "{:.4f}"
    if usual:
        high, low = max(map(abs, usual)), min(map(abs, usual))
        if high / low > 1000 or high > 1e8 or low < 1e-4:
            pattern = "{:.4e}"
    width = max((len(pattern.format(v)) for v in usual), default=1)
    texts = [pattern.format(v) if math.isfinite(v) else str(v)
             for v in values]
    return [text.rjust(width) for text in texts]


def _brackets(shape, shown, texts, indent):
    """Nested brackets around texts; `...` where `shown` is fewer."""
    if not shape:
        return next(texts)
    last = len(shape) == 1
    parts = [_brackets(shape[1:], shown[1:], texts, indent + 1)
             for _ in range(shown[0])]
    line = max(1, (_COLUMNS - indent) // (len(parts[0]) + 2))
    if shown[0] < shape[0]:
        parts.insert(_EDGE, " ..." if last else "...")
    gap = ",\n" + " " * (indent + 1)
    if last:
        parts = [", ".join(parts[i:i + line])
                 for i in range(0, len(parts), line)]
    else:
        gap = gap.replace("\n", "\n" * (len(shape) - 1))
    return f"[{gap.join(parts)}]"


def _body(x):
    """The numbers of a tensor in brackets; of a large one, the edges."""
    shape, strides, offset = x.geometry
    large = numel(shape) > _MANY
    shown, found = [], [offset]
    for size, step in zip(shape, strides):
        picks = range(size)
        if large and size > 2 * _EDGE:
            picks = [*range(_EDGE), *range(size - _EDGE, size)]
        shown.append(len(picks))
        found = [start + i * step for start in found for i in picks]
    memory = x.storage.elements(x.dtype)
    texts = _texts([memory[i] for i in found], x.dtype.is_floating_point)
    return _brackets(shape, shown, iter(texts), len("tensor("))


repr_notes = {}         # later layers add functions that give more notes


def _representation(self):
    """tensor(...) as PyTorch prints it, with what is not the default."""
    usual, notes, body = {get_default_dtype()}, [], "[]"
    if self.device is not get_default_device():
        notes.append(f"device='{self.device}'")
    if self.device.type == "meta" or not self.numel():
        body = "..." if self.device.type == "meta" else body
        if body == "..." or self.ndim != 1:
            notes.append(f"size={self.shape}")
    else:
        usual |= {bool_, int64}
        body = _body(self)
    if self.dtype not in usual:
        notes.append(f"dtype={self.dtype}")
    text = "tensor(" + body
    used = len(text) - text.rfind("\n") + 1
    for extra in repr_notes.values():
        notes += extra(self)
    for note in notes:
        fits = used + len(note) + 2 <= _COLUMNS
        text += ", " + note if fits else ",\n" + " " * 7 + note
        used = used + len(note) + 2 if fits else 7 + len(note)
    return text + ")"


Tensor.__repr__ = _representation
