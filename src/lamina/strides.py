"""Strides: one run of bytes, many shapes.

Exported from chapters/02_strides.ipynb by `course export`; edit the chapter,
not this file.
"""

import array
import difflib
import functools
import itertools
import math
import operator
from typing import NamedTuple

from lamina.storage import (
    Storage, as_device, as_dtype, bool_, dtypes, float32, get_default_device,
    get_default_dtype, int32, int64, uint8, wrap,
)

__all__ = [
    "Geometry",
    "Tensor",
    "tensor",
    "memory_format",
    "contiguous_format",
    "preserve_format",
    "channels_last",
    "channels_last_3d",
    "empty",
    "empty_strided",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "logspace",
    "eye",
    "tril_indices",
    "triu_indices",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "adjoint",
    "movedim",
    "moveaxis",
    "swapaxes",
    "swapdims",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "tensor_split",
    "hsplit",
    "vsplit",
    "dsplit",
    "broadcast_to",
    "broadcast_tensors",
    "meshgrid",
    "unflatten",
    "reshape",
    "flatten",
    "ravel",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "cat",
    "concat",
    "concatenate",
    "stack",
    "hstack",
    "vstack",
    "row_stack",
    "dstack",
    "column_stack",
    "tile",
    "flip",
    "fliplr",
    "flipud",
    "roll",
    "rot90",
    "diag_embed",
    "diagflat",
    "select_scatter",
    "diagonal_scatter",
    "slice_scatter",
    "fill",
    "nonzero",
    "argwhere",
    "index_put",
    "take",
    "masked_select",
    "is_tensor",
]


class Geometry(NamedTuple):
    """Where a tensor's elements lie: a value, never changed.

    Element (i, j, ...) of `shape` is element
    `offset + i * strides[0] + j * strides[1] + ...` of the storage.
    """

    shape: tuple
    strides: tuple
    offset: int = 0


# The same from one tuple of the three, in half the time.
new_geometry = functools.partial(tuple.__new__, Geometry)


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


class memory_format:
    """A name for an order of the dimensions in memory, slowest first."""

    def __init__(self, name, order=None):
        self.name, self.order = name, order

    def __repr__(self):
        return f"lamina.{self.name}"

    def __reduce__(self):
        return self.name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")      # as another has it
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))


def formatted(shape, format):
    """The geometry of a new tensor in a memory format."""
    if format is contiguous_format:
        return row_major(shape)
    if not isinstance(format, memory_format) or format.order is None:
        raise RuntimeError(f"a new tensor cannot have the memory format "
                           f"{format!r}; contiguous_format is the usual one")
    if len(shape) != len(format.order):
        raise RuntimeError(
            f"{format} is for {len(format.order)} dimensions; shape "
            f"{list(shape)} has {len(shape)}")
    strides, step = [0] * len(shape), 1
    for d in reversed(format.order):
        strides[d] = step
        step *= max(shape[d], 1)
    return Geometry(shape, tuple(strides), 0)


def ints(name, values):
    """A tuple of ints from `f(2, 3)` or `f((2, 3))`, or TypeError."""
    given = values
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        given = values[0]
    if values and {int}.issuperset(map(type, given)):
        return tuple(given)             # as nearly always
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
    same memory (chapter 3), `autograd` is the gradient's (chapter 8).
    """

    __slots__ = ("_storage", "_geometry", "dtype", "_base",
                 "keys", "array", "autograd", "__weakref__")

    def __init__(self, storage, geometry, dtype):
        self._storage = storage
        self._geometry = geometry
        self.dtype = dtype
        self._base = None
        self.keys = storage.device.bit | dtype.bit
        self.array = None
        self.autograd = None

    __hash__ = object.__hash__

    @property
    def storage(self):
        """The bytes under it, which its views share; a method in PyTorch."""
        found = self._storage
        return self.late["storage"](self) if found is None else found

    @property
    def geometry(self):
        """Shape, strides and offset: how its elements lie there."""
        found = self._geometry
        return self.late["geometry"](self) if found is None else found

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

    late = {}       # name -> function that makes it when it is asked for


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
    return len(self.shape)


@method
def size(self, dim=None):
    """The shape, or the size of one dimension."""
    shape = self.shape
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
Tensor.itemsize = property(element_size)
Tensor.nbytes = property(lambda self: self.numel() * self.itemsize)
Tensor.is_same_size = lambda self, other: self.shape == other.shape


@method
def is_contiguous(self, memory_format=contiguous_format):
    """Whether the elements lie one after another, in that format."""
    geometry, order = self.geometry, memory_format.order
    if order is None:
        return is_row_major(geometry)
    return len(geometry.shape) == len(order) and all(
        size == 1 or step == due for size, step, due in zip(
            *geometry[:2], formatted(geometry.shape, memory_format).strides))


@method
def is_set_to(self, tensor):
    """Whether both read the same storage with the same geometry."""
    return self.storage is tensor.storage and (
        self.geometry == tensor.geometry)


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


def _plain_memory(layout, pin_memory):
    """Refuse the options that ask for another kind of memory."""
    if layout is not None and getattr(layout, "name", "") != "strided":
        raise RuntimeError(f"new tensors have the layout strided; got "
                           f"{layout!r}: make one, then x.to_sparse()")
    if pin_memory:
        raise RuntimeError("pin_memory=True locks memory for copies to a "
                           "GPU, and there is none")


def _leaf(x, requires_grad):
    """x, marked as one whose gradient is wanted (chapter 8) if it is."""
    return x.requires_grad_() if requires_grad else x


def empty(*sizes, size=None, dtype=None, device=None, layout=None,
          requires_grad=False, memory_format=contiguous_format,
          pin_memory=False):
    """A tensor of that shape; its memory is new (here: zeros)."""
    dtype = as_dtype(dtype) or get_default_dtype()
    device = get_default_device() if device is None else as_device(device)
    _plain_memory(layout, pin_memory)
    shape = _checked_shape("empty", sizes if size is None else (size,))
    x = _new(formatted(shape, memory_format), dtype, device)
    return _leaf(x, requires_grad)


def empty_strided(size, stride, **options):
    """A tensor of that shape with those strides, on new memory."""
    size = _checked_shape("empty_strided", (size,))
    stride = ints("empty_strided", (stride,))
    if len(size) != len(stride) or min(stride, default=0) < 0:
        raise RuntimeError(f"empty_strided(): size {list(size)} takes as "
                           f"many strides, none negative; got "
                           f"{list(stride)}")
    x = empty(0, **options)
    return _leaf(_new(Geometry(size, stride, 0), x.dtype, x.device),
                 options.get("requires_grad"))


def zeros(*size, **options):
    """A tensor of zeros; the options are those of empty()."""
    return empty(*size, **options)


def number_dtype(value):
    """The dtype of a number: bool, int64, or the default of floats."""
    if isinstance(value, bool):
        return bool_
    whole = isinstance(_number(value), int)
    return int64 if whole else get_default_dtype()


def _dtype_of(value):
    """number_dtype, or the dtype that a number brings with it."""
    name = getattr(getattr(value, "dtype", None), "name", None)
    return dtypes.get(name) or number_dtype(value)


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


def _uniform(x, value):
    """A new tensor, every element of it set to a number that fits."""
    kept = element(x.dtype, value)
    if x.device.type != "meta":
        count = x.storage.nbytes() // x.itemsize
        x.storage.bytes[:] = x.dtype.format.pack(kept) * count
    return x


def full(size, fill_value, *, dtype=None, **options):
    """A tensor of that shape, every element `fill_value`."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): expected a shape, as in "
                        f"full((2, 3), 1.0); got {size!r}")
    dtype = as_dtype(dtype) or number_dtype(fill_value)
    return _uniform(empty(size, dtype=dtype, **options), fill_value)


def ones(*size, **options):
    """A tensor of ones; the options are those of empty()."""
    return _uniform(empty(*size, **options), 1)


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
        out.append(data)
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

    The dtype is that of the widest number in it: bool, int64, or float32,
    or what a number of NumPy or a tensor says.
    """
    dtype = as_dtype(dtype)
    keep = element
    if isinstance(data, Tensor) or hasattr(data, "__array_interface__"):
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
            kinds = {_dtype_of(v) for v in values} or {get_default_dtype()}
            dtype = max(kinds, key=lambda d: (d.category, d.itemsize))
        values = [_number(v) for v in values]
    keep = wrap if dtype.category == 2 else keep
    x = _filled(values, shape, dtype, device, keep)
    return _leaf(x, requires_grad)


def _filled(values, shape, dtype, device=None, keep=None):
    """A new tensor of these numbers; `keep` fits each to the dtype."""
    x = empty(shape, dtype=dtype, device=device)
    if x.device.type != "meta":
        if keep:
            values = [keep(dtype, value) for value in values]
        _store(x, values)
    return x


def _store(x, values):
    """Put numbers that fit into a new tensor: one after the other."""
    memory = x.storage.elements(x.dtype)
    if x.dtype.code and x.dtype.code in "BbhiqfdHIQ":
        memory[:] = array.array(x.dtype.code, values)   # all at once
        return
    for i, value in enumerate(values):
        memory[i] = value


def arange(start=None, end=None, step=1, *, dtype=None, device=None,
           layout=None, requires_grad=False):
    """start, start + step, ... up to but not including end."""
    if end is None:
        start, end = 0, start
    start, end, step = map(_number, (start or 0, end, step))
    _plain_memory(layout, False)
    whole = all(isinstance(v, int) for v in (start, end, step))
    dtype = as_dtype(dtype) or (int64 if whole else get_default_dtype())
    if dtype is bool_:
        raise NotImplementedError(
            "arange() is for numbers, not lamina.bool")
    if not (end - start) * step >= 0 or math.isinf(end - start):
        raise RuntimeError(f"arange(): steps of {step} never lead from "
                           f"{start} to {end}")
    first, by = start, step
    if dtype.category == 1:
        first, end, by = int(start), int(end) if dtype is int64 else end, (
            int(step))
    if by == 0:
        raise RuntimeError(f"arange(): step must not be 0; got {step}"
                           + (f", which is 0 in {dtype}" if step else ""))
    count = _steps(first if dtype is int64 else start, end,
                   by if dtype is int64 else step)
    values = (range(first, first + count * by, by) if dtype.category == 1
              else (first + i * by for i in range(count)))
    keep = None if dtype in (int64, float32) else wrap
    return _leaf(_filled(values, (count,), dtype, device, keep),
                 requires_grad)


def _steps(start, end, step):
    """How many steps it takes to reach end; exact for ints."""
    if isinstance(start + end + step, int):
        return -((start - end) // step)
    return math.ceil((end - start) / step)


def _between(name, start, end, steps, dtype, value):
    """`steps` numbers from start to end; `value` makes each element."""
    start, end, steps = _number(start), _number(end), operator.index(steps)
    dtype = as_dtype(dtype) or get_default_dtype()
    if steps < 0:
        raise RuntimeError(f"{name}(): steps must be 0 or more; got {steps}")
    if dtype is bool_:
        raise NotImplementedError(f"{name}() is for numbers, not {dtype}")
    if dtype.category == 1:
        start, end = int(start), int(end)
    step = (end - start) / max(steps - 1, 1)
    # from both ends to the middle, so that the last one is `end`
    places = (start + step * i if i < steps // 2 or steps == 1
              else end - step * (steps - 1 - i) for i in range(steps))
    return [wrap(dtype, value(place)) for place in places], (steps,), dtype


def linspace(start, end, steps, *, dtype=None, device=None, layout=None,
             requires_grad=False):
    """`steps` numbers at equal distances, the first start, the last end."""
    _plain_memory(layout, False)
    x = _filled(*_between("linspace", start, end, steps, dtype,
                          lambda place: place), device)
    return _leaf(x, requires_grad)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None,
             layout=None, requires_grad=False):
    """base to the powers linspace(start, end, steps)."""
    _plain_memory(layout, False)

    def power(place):
        try:
            return math.pow(base, place)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.inf if base == 0 else math.nan

    x = _filled(*_between("logspace", start, end, steps, dtype, power),
                device)
    return _leaf(x, requires_grad)


def eye(n, m=None, *, dtype=None, **options):
    """The identity matrix: n rows, m columns (n, if not given)."""
    n = operator.index(n)
    m = n if m is None else operator.index(m)
    x = empty(n, m, dtype=dtype, **options)
    if x.device.type != "meta" and n and m:
        memory = x.storage.elements(x.dtype)
        for i in range(min(n, m)):
            memory[i * (m + 1)] = wrap(x.dtype, 1)
    return x


def _indices(row, col, keep, dtype, device, layout):
    """The rows and the columns of the places (i, j) that `keep` takes."""
    _plain_memory(layout, False)
    if min(row, col) < 0:
        raise RuntimeError(f"expected sizes of 0 or more; got {row} rows "
                           f"and {col} columns")
    found = [(i, j) for i in range(row) for j in range(col) if keep(j - i)]
    return _filled([i for i, _ in found] + [j for _, j in found],
                   (2, len(found)), as_dtype(dtype), device, wrap)


def tril_indices(row, col, offset=0, *, dtype=int64, device=None,
                 layout=None):
    """Where the lower triangle of a matrix is: a row of i, a row of j."""
    return _indices(row, col, lambda d: d <= offset, dtype, device, layout)


def triu_indices(row, col, offset=0, *, dtype=int64, device=None,
                 layout=None):
    """Where the upper triangle of a matrix is: a row of i, a row of j."""
    return _indices(row, col, lambda d: d >= offset, dtype, device, layout)


def geometric(function):
    """Let a function of a geometry take a tensor too, and be a method.

    The tensor that it gives reads the same storage.
    """
    @functools.wraps(function)
    def lifted(x, *args, **kwargs):
        if type(x) is Geometry:
            return function(x, *args, **kwargs)
        return view_of(x, function(x.geometry, *args, **kwargs))

    lifted.on_geometry = function
    return method(lifted)


_blank = Tensor.__new__


def view_of(x, geometry, dtype=None):
    """A tensor with another geometry on x's storage."""
    view = _blank(Tensor)           # without __init__: it is made often
    view._storage = storage = x.storage
    view._geometry = geometry
    view.dtype = dtype = dtype or x.dtype
    view._base = x if x._base is None else x._base
    view.keys = storage.device.bit | dtype.bit
    view.array = view.autograd = None
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
    shape, strides, offset = x
    return new_geometry((shape[::-1], strides[::-1], offset))


@method
def adjoint(self):
    """Each matrix of a batch transposed. (Of complex numbers, which there
    are none of here, it would take the conjugates too.)"""
    if self.ndim == 1:
        raise RuntimeError("adjoint(), mT and mH take a matrix or a batch of "
                           "matrices; this tensor has 1 dimension")
    return self.transpose(-2, -1) if self.ndim else self


def _hermitian(self):
    """x.H: a matrix transposed."""
    if self.ndim not in (0, 2):
        raise RuntimeError(f"H takes a matrix; this tensor has {self.ndim} "
                           f"dimensions: mH is for batches")
    return self.adjoint()


Tensor.T = property(lambda self: self.numpy_T())
Tensor.mT = Tensor.mH = property(adjoint)
Tensor.H = property(_hermitian)


@method
def movedim(self, source, destination):
    """x with some dimensions moved; the others keep their order."""
    source = ints("movedim", (source,))
    destination = ints("movedim", (destination,))
    n = self.ndim
    moved = {wrap_dim(b, n): wrap_dim(a, n)
             for a, b in zip(source, destination)}
    if not len(moved) == len(source) == len(destination) == len(
            set(moved.values())):
        raise RuntimeError(
            f"movedim(): source {list(source)} and destination "
            f"{list(destination)} must be of one length, with no dimension "
            f"twice")
    rest = (d for d in range(n) if d not in moved.values())
    return self.permute([moved[d] if d in moved else next(rest)
                         for d in range(n)])


@method
def swapaxes(self, axis0, axis1):
    """transpose, by NumPy's name."""
    return self.transpose(axis0, axis1)


@method
def swapdims(self, dim0, dim1):
    """transpose, by another name."""
    return self.transpose(dim0, dim1)


@method
def moveaxis(self, source, destination):
    """movedim, by NumPy's name."""
    return self.movedim(source, destination)


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


def _left_to_dots(items, k, d, ndim):
    """How many dimensions, from d on, the `...` at items[k] stands for."""
    named = sum(item is not None and item is not ...
                for item in items[k + 1:])
    if d + named > ndim:
        _too_many(items, ndim)
    return ndim - d - named


def _too_many(items, ndim):
    named = sum(item is not None and item is not ... for item in items)
    raise IndexError(
        f"too many indices: {named} for a tensor of {ndim} dimensions"
        + ("" if ndim else "; its number is item()"))


def _index(item):
    """An int that may index; IndexError for what cannot."""
    if type(item) is int:
        return item
    whole = not isinstance(item, bool)
    if isinstance(item, Tensor):
        whole = item.dtype.category == 1 and not item.shape
    if whole and hasattr(item, "__index__"):
        return operator.index(item)
    raise IndexError(f"an index is made of ints, slices, None, `...`, "
                     f"tensors and lists; got {type(item).__name__}")


def _place(item, d, size):
    """An int counted from the front; IndexError if there is no such one."""
    index = item if type(item) is int else _index(item)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for dimension {d} "
                         f"of size {size}")
    return index + size if index < 0 else index


@geometric
def getitem(x, items):
    """x[items] for ints, slices with a positive step, None and `...`."""
    (sizes, steps, offset), shape, strides, d = x, [], [], 0
    items = items if type(items) is tuple else (items,)
    for k, item in enumerate(items):
        if type(item) is slice and d < len(sizes):
            start, stop, step = item.indices(sizes[d])
            if step < 0:
                raise ValueError(f"a slice takes a step of 1 or more; got "
                                 f"{step}: storage is read forwards only")
            offset += start * steps[d]
            shape.append((stop - start + step - 1) // step
                         if stop > start else 0)
            strides.append(step * steps[d])
            d += 1
        elif item is None:
            more = sizes[d] * steps[d] if d < len(sizes) else 1
            shape.append(1)
            strides.append(more)
        elif item is ...:
            end = d + _left_to_dots(items, k, d, len(sizes))
            shape += sizes[d:end]
            strides += steps[d:end]
            d = end
        elif d == len(sizes):
            _too_many(items, d)
        else:
            offset += _place(item, d, sizes[d]) * steps[d]
            d += 1
    if d < len(sizes):
        shape += sizes[d:]
        strides += steps[d:]
    return new_geometry((tuple(shape), tuple(strides), offset))


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


@method
def expand_as(self, other):
    """expand to the shape of another tensor."""
    return self.expand(other.shape)


@method
def broadcast_to(self, size):
    """expand, by NumPy's name."""
    return self.expand(size)


def common_shape(shapes, error=RuntimeError):
    """The shape that all of these expand to; chapter 4 explains it."""
    ndim = max(map(len, shapes), default=0)
    columns = zip(*[(1,) * (ndim - len(shape)) + tuple(shape)
                    for shape in shapes])
    found = tuple([next((n for n in sizes if n != 1), 1)
                   for sizes in columns])
    for shape in shapes:
        if any(n not in (1, due) for n, due in zip(shape[::-1],
                                                   found[::-1])):
            raise error(f"shapes {', '.join(str(list(s)) for s in shapes)} "
                        f"do not expand to one shape: sizes that differ "
                        f"must be 1")
    return found


def _several(name, tensors):
    """The tensors of f(x, y) or of f([x, y])."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{name}(): expected a list of tensors, not one "
                        f"tensor")
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tensors[0]
    if not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError(f"{name}(): expected tensors; got "
                        f"{[type(x).__name__ for x in tensors]}")
    return tensors


def broadcast_tensors(*tensors):
    """The tensors, each expanded to the shape that is common to all."""
    tensors = _several("broadcast_tensors", tensors)
    shape = common_shape([x.shape for x in tensors])
    return tuple([x.expand(shape) for x in tensors])


def meshgrid(*tensors, indexing="ij"):
    """Each vector expanded to the grid of all, along its own dimension.

    With indexing="xy" the first two dimensions are exchanged.
    """
    tensors = _several("meshgrid", tensors)
    if not tensors or any(x.ndim > 1 for x in tensors) or len(
            {(x.dtype, x.device) for x in tensors}) > 1:
        raise RuntimeError(
            f"meshgrid(): expected vectors of one dtype on one device; got "
            f"{[(list(x.shape), x.dtype, str(x.device)) for x in tensors]}")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"meshgrid(): indexing is 'ij' or 'xy'; got "
                           f"{indexing!r}")
    if indexing == "xy" and len(tensors) > 1:
        b, a, *rest = meshgrid(tensors[1], tensors[0], *tensors[2:])
        return (a, b, *rest)
    shape = [x.numel() for x in tensors]
    return tuple([
        x.view([-1 if k == d else 1 for k in range(len(shape))]).expand(shape)
        for d, x in enumerate(tensors)])


def infer_size(size, count, name="view"):
    """`size` with its -1 replaced by what `count` elements leave it."""
    if math.prod(size) == count and -1 not in size and (
            min(size, default=0) >= 0):
        return size                     # nothing to infer, or to refuse
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
    if x.strides == row_major(x.shape).strides:
        return row_major(size).strides      # one run: any shape cuts it
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
    due = row_major(size)       # the same object, if it says the same
    return due if due.strides == strides and not x.offset else (
        Geometry(size, strides, x.offset))


@method
def view_as(self, other):
    """view in the shape of another tensor."""
    return self.view(other.shape)


@method
def unflatten(self, dim, sizes):
    """One dimension cut into several; one of their sizes may be -1."""
    if not self.shape:
        raise RuntimeError("unflatten(): a tensor of no dimensions has none "
                           "to cut")
    d, sizes = wrap_dim(dim, self.ndim), ints("unflatten", (sizes,))
    if not sizes:
        raise RuntimeError("unflatten(): expected one size or more; got ()")
    sizes = infer_size(sizes, self.shape[d], "unflatten")
    return self.view(self.shape[:d] + sizes + self.shape[d + 1:])


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


@geometric
def diagonal(x, offset=0, dim1=0, dim2=1):
    """The elements whose index in dim2 is that in dim1 plus `offset`, as
    the last dimension."""
    a, b = wrap_dim(dim1, len(x.shape)), wrap_dim(dim2, len(x.shape))
    if a == b:
        raise RuntimeError(f"diagonal(): dimensions {dim1} and {dim2} are "
                           f"the same; it takes two")
    rows, columns = x.shape[a] + min(offset, 0), x.shape[b] - max(offset, 0)
    size, start = max(min(rows, columns), 0), x.offset
    if size:
        start += max(offset, 0) * x.strides[b] - min(offset, 0) * x.strides[a]
    keep = [d for d in range(len(x.shape)) if d not in (a, b)]
    return Geometry(tuple(x.shape[d] for d in keep) + (size,),
                    tuple(x.strides[d] for d in keep)
                    + (x.strides[a] + x.strides[b],), start)


@geometric
def unfold(x, dimension, size, step):
    """Windows of `size` elements, every `step` elements, along one
    dimension; the last dimension goes through a window."""
    d = wrap_dim(dimension, len(x.shape))
    have, stride = (x.shape[d], x.strides[d]) if x.shape else (1, 1)
    if not 0 <= size <= have or step <= 0:
        raise RuntimeError(
            f"unfold(): windows of {size} elements, every {step}: expected "
            f"0 to {have} elements, the size of dimension {dimension}, and "
            f"a step of 1 or more")
    shape, strides = list(x.shape), list(x.strides)
    if shape:
        shape[d], strides[d] = (have - size) // step + 1, step * stride
    return Geometry((*shape, size), (*strides, stride), x.offset)


@method
def split_with_sizes(self, split_sizes, dim=0):
    """Pieces of these sizes along a dimension, which they fill."""
    sizes = ints("split_with_sizes", (split_sizes,))
    d = wrap_dim(dim, self.ndim)
    if not self.shape or sum(sizes) != self.shape[d] or min(
            sizes, default=0) < 0:
        raise RuntimeError(
            f"split(): sizes {list(sizes)} do not add up to dimension "
            f"{dim} of shape {list(self.shape)}")
    starts = itertools.accumulate(sizes, initial=0)
    return tuple([self.narrow(d, start, size)
                  for start, size in zip(starts, sizes)])


@method
def split(self, split_size, dim=0):
    """Pieces of `split_size` indices of a dimension, the last one perhaps
    smaller; or pieces of the sizes in a list."""
    if isinstance(split_size, (tuple, list)):
        return self.split_with_sizes(split_size, dim)
    d, step = wrap_dim(dim, self.ndim), operator.index(split_size)
    if not self.shape:
        raise RuntimeError("split(): a tensor of no dimensions has none to "
                           "split; it takes at least 1")
    size = self.shape[d]
    if step < 0 or step == 0 < size:
        raise RuntimeError(f"split(): pieces of {step} never fill dimension "
                           f"{dim} of size {size}; expected 1 or more")
    count = max(-(-size // step), 1) if step else 1
    return tuple([self.narrow(d, i * step, min(step, size - i * step))
                  for i in range(count)])


@method
def chunk(self, chunks, dim=0):
    """At most `chunks` pieces, all of one size but perhaps the last."""
    if operator.index(chunks) <= 0:
        raise RuntimeError(f"chunk(): expected 1 chunk or more; got "
                           f"{chunks}")
    size = self.shape[wrap_dim(dim, self.ndim)] if self.shape else 0
    step = -(-size // chunks)
    if self.shape and not step:
        return self.split_with_sizes([0] * chunks, dim)
    return self.split(step, dim)


@method
def unbind(self, dim=0):
    """x at each index of a dimension."""
    if not self.shape:
        raise IndexError("unbind(): a tensor of no dimensions has no index "
                         "to go over")
    d = wrap_dim(dim, self.ndim)
    return tuple([self.select(d, i) for i in range(self.shape[d])])


@method
def tensor_split(self, indices_or_sections=None, dim=0, *, indices=None,
                 sections=None):
    """Pieces as equal as possible, or cut before each index in a list."""
    cuts = next((given for given in (indices_or_sections, indices, sections)
                 if given is not None), None)
    if not self.shape:
        raise RuntimeError("tensor_split(): a tensor of no dimensions has "
                           "none to split; it takes at least 1")
    d = wrap_dim(dim, self.ndim)
    size = self.shape[d]
    if isinstance(cuts, Tensor):
        if cuts.dtype is not int64 or cuts.ndim > 1:
            raise RuntimeError(
                f"tensor_split(): a tensor of places is int64 and has 0 or 1 "
                f"dimensions; got {cuts.dtype}, {list(cuts.shape)}")
        cuts = cuts.tolist()
    if not isinstance(cuts, (tuple, list)):
        count = operator.index(cuts)
        if count <= 0:
            raise RuntimeError(f"tensor_split(): expected 1 section or "
                               f"more; got {count}")
        low, more = divmod(size, count)         # `more` are larger by 1
        cuts = [i * low + min(i, more) for i in range(1, count)]
    ends = [*map(operator.index, cuts), size]
    every = (slice(None),) * d
    return tuple([self[every + (slice(start, end),)]
                  for start, end in zip([0, *ends], ends)])


def _split_along(name, dim, ndim):
    """hsplit, vsplit or dsplit: tensor_split along one dimension."""
    def along(self, indices_or_sections):
        d = 0 if self.ndim == 1 and ndim == 1 else dim
        if self.ndim < ndim:
            raise RuntimeError(f"{name}() takes at least {ndim} dimensions; "
                               f"this tensor has {self.ndim}")
        count = indices_or_sections
        if isinstance(count, int) and (
                count <= 0 or self.shape[d] % count):
            raise RuntimeError(f"{name}(): {self.shape[d]} indices are not "
                               f"{count} equal pieces")
        return self.tensor_split(count, d)
    along.__name__ = along.__qualname__ = name
    along.__doc__ = f"tensor_split along dimension {dim}, in equal pieces."
    return method(along)


hsplit = _split_along("hsplit", 1, 1)
vsplit = _split_along("vsplit", 0, 2)
dsplit = _split_along("dsplit", 2, 3)


def view_dtype(self, dtype):
    """The same bytes, read as another dtype: x.view(dtype)."""
    shape, strides, offset = self.geometry
    old, new = self.itemsize, dtype.itemsize
    if old == new:
        return view_of(self, self.geometry, dtype)
    if not shape or strides[-1] != 1:
        raise RuntimeError(
            f"view(): {self.dtype} as {dtype}, of another size, takes a last "
            f"dimension of stride 1; got shape {list(shape)}, strides "
            f"{list(strides)}")
    if old > new:
        more = old // new
        return view_of(self, Geometry(
            shape[:-1] + (shape[-1] * more,),
            tuple(s * more for s in strides[:-1]) + (1,), offset * more),
            dtype)
    fewer = new // old
    if any(n % fewer for n in (shape[-1], offset, *strides[:-1])):
        raise RuntimeError(
            f"view(): {fewer} elements of {self.dtype} make one of {dtype}; "
            f"the last size, the other strides and the offset must be "
            f"multiples of {fewer}: got shape {list(shape)}, strides "
            f"{list(strides)}, offset {offset}")
    return view_of(self, Geometry(
        shape[:-1] + (shape[-1] // fewer,),
        tuple(s // fewer for s in strides[:-1]) + (1,), offset // fewer),
        dtype)


def viewer(by_size, by_dtype):
    """The method `view`, for sizes and for a dtype."""
    def view(self, *size, dtype=None, **named):
        if dtype is None and size and isinstance(size[0], dtype_class):
            dtype, = size
        return by_size(self, *size, **named) if dtype is None else (
            by_dtype(self, dtype))
    view.__doc__ = view_shape.__doc__
    return view


dtype_class, view_shape = type(int64), view
Tensor.view = viewer(view, view_dtype)


def _in_place(view):
    """The form of a view operator that changes the tensor's geometry."""
    def changed(self, *args, **kwargs):
        if getattr(self, "requires_grad", False):
            raise RuntimeError(
                f"{changed.__name__}() would change the geometry of a "
                f"tensor that requires grad under its history; write "
                f"x = x.{view.__name__}(...)")
        self._geometry = view(self, *args, **kwargs).geometry
        self.array = None
        self.storage.version += 1       # who kept it has other elements now
        return self
    changed.__name__ = changed.__qualname__ = view.__name__ + "_"
    changed.__doc__ = f"{view.__name__}, of the tensor itself."
    return method(changed)


for view_operator in (t, transpose, swapaxes, swapdims, squeeze, unsqueeze,
                      as_strided):
    _in_place(view_operator)


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


def _value(value):
    """A number that may be assigned; TypeError for anything else."""
    if getattr(value, "shape", None) == ():         # NumPy's numbers
        value = value.item()
    if not isinstance(value, (int, float)):
        raise TypeError(f"x[...] = value takes a number or a tensor, not "
                        f"{type(value).__name__}: tensor(...) may make one")
    return value


def _write_to(place, value):
    """place[...] = value: a number, or a tensor that expands to it."""
    if not isinstance(value, Tensor):
        refuse_overlap(place)
        place.fill_(_value(value))
        return
    extra = value.ndim - place.ndim     # sizes of 1 in front are no matter
    if extra > 0 and numel(value.shape[:extra]) == 1:
        value = value[(0,) * extra]
    place.copy_(value)


def _setitem(self, items, value):
    """x[items] = value, through the view x[items]."""
    _write_to(self[items], value)


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


def empty_like(input, *, dtype=None, device=None, layout=None,
               requires_grad=False, memory_format=preserve_format,
               pin_memory=False):
    """A new tensor with the shape, order of strides, dtype and device."""
    _plain_memory(layout, pin_memory)
    geometry = (_keep(input.geometry)
                if memory_format in (None, preserve_format)
                else formatted(input.geometry.shape, memory_format))
    x = _new(geometry, as_dtype(dtype) or input.dtype,
             input.device if device is None else as_device(device))
    return _leaf(x, requires_grad)


def _keep(geometry):
    """The geometry at offset 0 if it has no gaps, else without them."""
    due = row_major(geometry.shape)
    if geometry.strides == due.strides:
        return due
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
def clone(self, memory_format=None):
    """A copy in a storage of its own, in the same order of strides, or in
    a memory format."""
    return copy_(empty_like(self, memory_format=memory_format), self)


def zeros_like(input, **options):
    """Zeros of the same shape, dtype and device."""
    return empty_like(input, **options)


def full_like(input, fill_value, **options):
    """One number everywhere, in the same shape, dtype and device."""
    return _uniform(empty_like(input, **options), fill_value)


def ones_like(input, **options):
    """Ones of the same shape, dtype and device."""
    return full_like(input, 1, **options)


def _as(x, options):
    """Options with the dtype and the device of x where they name none."""
    return {"dtype": x.dtype, "device": x.device} | {
        name: value for name, value in options.items() if value is not None}


@method
def new_empty(self, *size, **options):
    """A new tensor of that shape, with this one's dtype and device."""
    return empty(*size, **_as(self, options))


@method
def new_empty_strided(self, size, stride, **options):
    """empty_strided, with this tensor's dtype and device."""
    return empty_strided(size, stride, **_as(self, options))


@method
def new_zeros(self, *size, **options):
    """Zeros of that shape, with this tensor's dtype and device."""
    return zeros(*size, **_as(self, options))


@method
def new_ones(self, *size, **options):
    """Ones of that shape, with this tensor's dtype and device."""
    return ones(*size, **_as(self, options))


@method
def new_full(self, size, fill_value, **options):
    """One number everywhere, with this tensor's dtype and device."""
    return full(size, fill_value, **_as(self, options))


@method
def new_tensor(self, data, **options):
    """A copy of `data`, with this tensor's dtype and device."""
    return tensor(data, **_as(self, options))


@method
def contiguous(self, memory_format=contiguous_format):
    """The tensor itself if it is contiguous, else a copy that is."""
    if self.is_contiguous(memory_format):
        return self
    return self.clone(memory_format=memory_format)


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


@method
def reshape_as(self, other):
    """reshape to the shape of another tensor."""
    return self.reshape(other.shape)


@method
def ravel(self):
    """All elements in one dimension."""
    return self.contiguous().view(-1)


def _at_least(ndim, places):
    """atleast_1d, atleast_2d or atleast_3d."""
    name = f"atleast_{ndim}d"

    def widened(x):
        for place in places.get(x.ndim, ()):
            x = x.unsqueeze(place)
        return x

    def at_least(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return widened(*tensors)
        return tuple(map(widened, _several(name, tensors)))
    at_least.__name__ = at_least.__qualname__ = name
    at_least.__doc__ = (f"Each tensor with dimensions of size 1 added until "
                        f"it has {ndim}.")
    return method(at_least)


atleast_1d = _at_least(1, {0: (0,)})
atleast_2d = _at_least(2, {0: (0, 0), 1: (0,)})
atleast_3d = _at_least(3, {0: (0, 0, 0), 1: (0, -1), 2: (-1,)})


def common_dtype(a, b):
    """The smallest dtype that holds both: as table PROMOTION, chapter 4."""
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda d: (d.category, d.itemsize))
    if (low.category, low.itemsize) != (high.category, high.itemsize):
        return high
    return min((d for d in dtypes.values() if d.category == low.category
                and d.itemsize > low.itemsize), key=lambda d: d.itemsize)


def _join(tensors, dim):
    """What cat has to do: (parts, dimension, shape, dtype)."""
    if not tensors:
        raise ValueError("cat(): expected one tensor or more; got none")
    parts = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    shape, d = parts[0].shape, wrap_dim(dim, parts[0].ndim)
    for i, x in enumerate(tensors):
        if not x.shape:
            raise RuntimeError(f"cat(): tensor {i} has no dimensions to join "
                               f"along; stack adds one")
        if x.shape != (0,) and (x.ndim != len(shape) or any(
                n != due for k, (n, due) in enumerate(zip(x.shape, shape))
                if k != d)):
            raise RuntimeError(
                f"cat(): all sizes but that of dimension {d} must agree; "
                f"tensor {i} has shape {list(x.shape)}, the first "
                f"{list(shape)}")
    dtype = functools.reduce(common_dtype, [x.dtype for x in tensors])
    size = sum(x.shape[d] for x in parts)
    return parts, d, shape[:d] + (size,) + shape[d + 1:], dtype


def cat(tensors, dim=0, copy=copy_):
    """The tensors one after the other, along a dimension that they have."""
    parts, d, shape, dtype = _join(_several("cat", tensors), dim)
    out = empty(shape, dtype=dtype, device=parts[0].device)
    start = 0
    for x in parts:
        copy(narrow(out, d, start, x.shape[d]), x)
        start += x.shape[d]
    return out


Tensor._cat = staticmethod(cat)     # chapter 3 puts its operator here


def concat(tensors, dim=0):
    """cat, by another name."""
    return Tensor._cat(tensors, dim)


concatenate = concat


def stack(tensors, dim=0):
    """The tensors, all of one shape, along a new dimension."""
    tensors = _several("stack", tensors)
    if len({x.shape for x in tensors}) != 1:
        raise RuntimeError(f"stack(): expected tensors of one shape; got "
                           f"{[list(x.shape) for x in tensors]}")
    return Tensor._cat([x.unsqueeze(dim) for x in tensors],
                       wrap_dim(dim, tensors[0].ndim + 1))


def _stacked(name, prepare, dim):
    """hstack, vstack or dstack: cat of what `prepare` makes of each."""
    def stacked(tensors):
        tensors = [prepare(x) for x in _several(name, tensors)]
        if not tensors:
            raise RuntimeError(f"{name}(): expected one tensor or more; got "
                               f"none")
        return Tensor._cat(tensors, min(dim, tensors[0].ndim - 1))
    stacked.__name__ = stacked.__qualname__ = name
    stacked.__doc__ = f"The tensors one after the other in dimension {dim}."
    return stacked


hstack = _stacked("hstack", atleast_1d, 1)
vstack = row_stack = _stacked("vstack", atleast_2d, 0)
dstack = _stacked("dstack", atleast_3d, 2)
column_stack = _stacked("column_stack", lambda x: x if x.ndim > 1 else (
    x.reshape(-1, 1)), 1)


@method
def repeat(self, *repeats):
    """The tensor's copies side by side, so many along each dimension."""
    repeats = ints("repeat", repeats)
    new = len(repeats) - self.ndim
    if new < 0 or min(repeats, default=0) < 0:
        raise RuntimeError(
            f"repeat(): expected a number, 0 or more, for each of the "
            f"{self.ndim} dimensions, and perhaps for new ones in front; "
            f"got {list(repeats)}")
    shape = (1,) * new + self.shape
    once = [n for size in shape for n in (1, size)]
    often = [n for pair in zip(repeats, shape) for n in pair]
    return self.reshape(once).expand(often).clone(
        memory_format=contiguous_format).view(
            [n * size for n, size in zip(repeats, shape)])


@method
def tile(self, *dims):
    """repeat, with 1 for the dimensions in front that are not named."""
    dims = ints("tile", dims)
    return self.repeat((1,) * (self.ndim - len(dims)) + dims)


@method
def flip(self, *dims, copy=copy_):
    """A copy with the order of some dimensions reversed."""
    dims = ints("flip", dims)
    named = {wrap_dim(d, self.ndim) for d in dims}
    if len(named) < len(dims):
        raise RuntimeError(
            f"flip(): a dimension is named twice in {list(dims)}")
    shape, strides, offset = self.geometry
    if self.shape and 0 not in shape:
        offset += sum((shape[d] - 1) * strides[d] for d in named)
        strides = tuple([-s if d in named else s
                         for d, s in enumerate(strides)])
    out = empty_like(self)
    return copy(out, view_of(self, Geometry(shape, strides, offset)))


@method
def fliplr(self):
    """The columns in reverse order."""
    if self.ndim < 2:
        raise RuntimeError("fliplr() takes 2 dimensions or more")
    return self.flip((1,))


@method
def flipud(self):
    """The rows in reverse order."""
    if self.ndim < 1:
        raise RuntimeError("flipud() takes 1 dimension or more")
    return self.flip((0,))


@method
def roll(self, shifts, dims=()):
    """The elements moved along, those that fall off put in at the other
    end; without dims, along the flat tensor."""
    shifts, dims = ints("roll", (shifts,)), ints("roll", (dims,))
    if not dims and len(shifts) == 1:
        return self.flatten().roll(shifts, 0).view(self.shape)
    if len(shifts) != len(dims) or not shifts:
        raise RuntimeError(
            f"roll(): expected a shift for each dimension; got shifts "
            f"{list(shifts)} and dims {list(dims)}")
    if not self.numel():
        return self.clone()
    if not self.shape:
        raise IndexError(f"roll(): a tensor of no dimensions has no "
                         f"dimension {dims[0]}")
    x = self.clone(memory_format=contiguous_format)
    for shift, dim in zip(shifts, dims):
        d = wrap_dim(dim, x.ndim)
        size = x.shape[d]
        at = -shift % size if size else 0
        x = Tensor._cat([x.narrow(d, at, size - at), x.narrow(d, 0, at)], d)
    return x


@method
def rot90(self, k=1, dims=(0, 1)):
    """Turned by 90 degrees k times, from dims[0] towards dims[1]."""
    if len(dims) != 2 or self.ndim < 2 or wrap_dim(
            dims[0], self.ndim) == wrap_dim(dims[1], self.ndim):
        raise RuntimeError(
            f"rot90(): expected two different dimensions of a tensor of 2 "
            f"or more; got {list(dims)} and shape {list(self.shape)}")
    a, b = dims
    k %= 4
    if k == 2:
        return self.flip((a, b))
    if k:
        return self.flip((b if k == 1 else a,)).transpose(a, b)
    return self.clone()


@method
def diag_embed(self, offset=0, dim1=-2, dim2=-1):
    """The last dimension as the diagonal of new matrices of zeros."""
    n = self.ndim + 1
    a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
    if a == b:
        raise RuntimeError(f"diag_embed(): dimensions {dim1} and {dim2} are "
                           f"the same; it takes two")
    side = self.shape[-1] + abs(offset)
    shape = list(self.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, side)
    out = self.new_zeros(shape)
    out.diagonal(offset, a, b).copy_(self)
    return out


@method
def diagflat(self, offset=0):
    """All elements as the diagonal of a matrix of zeros."""
    return self.reshape(-1).diag_embed(offset)


def _scatter(self, place, src):
    """A copy of self with `src` written to the view that `place` takes."""
    out = self.clone()
    view = place(out)
    if view.shape != src.shape:
        raise RuntimeError(f"expected a src of shape {list(view.shape)}, "
                           f"that of the place; got {list(src.shape)}")
    view.copy_(src)
    return out


@method
def select_scatter(self, src, dim, index):
    """A copy with `src` at one index of a dimension."""
    return _scatter(self, lambda out: out.select(dim, index), src)


@method
def diagonal_scatter(self, src, offset=0, dim1=0, dim2=1):
    """A copy with `src` on a diagonal."""
    return _scatter(self, lambda out: out.diagonal(offset, dim1, dim2), src)


@method
def slice_scatter(self, src, dim=0, start=None, end=None, step=1):
    """A copy with `src` in a slice of a dimension."""
    if step <= 0:
        raise RuntimeError(f"slice_scatter(): a slice takes a step of 1 or "
                           f"more; got {step}")
    items = ((slice(None),) * wrap_dim(dim, self.ndim)
             + (slice(start, end, step),))
    return _scatter(self, lambda out: out[items], src)


@method
def fill(self, value):
    """A tensor like this one with every element that number."""
    return self.clone().fill_(value)


def nonzero_rows(self):
    """Where the elements are not 0: a row of indices for each."""
    if self.device.type == "meta":
        raise NotImplementedError(
            "nonzero(): how many elements are not 0 depends on the data, "
            "and a tensor on 'meta' has none")
    every = itertools.product(*map(range, self.shape))
    found = [place for place, value in zip(every, flat(self)) if value]
    columns = [i for column in zip(*found) for i in column]
    x = _filled(columns, (self.ndim, len(found)), int64, self.device)
    return view_of(x, t(x.geometry))


def with_as_tuple(rows):
    """nonzero, from a function that gives the rows."""
    def nonzero(self, *, as_tuple=False):
        """Where the elements are not 0: a row of indices for each, or with
        as_tuple a tensor of indices for each dimension."""
        if not as_tuple:
            return rows(self)
        return rows(self if self.ndim else self.reshape(1)).unbind(1)
    return method(nonzero)


nonzero = with_as_tuple(nonzero_rows)


@method
def argwhere(self):
    """nonzero, by NumPy's name."""
    return self.nonzero()


MASKS = (bool_, uint8)      # PyTorch still takes a uint8 for a mask


def check_indices(indices):
    """The indices themselves; IndexError for what indexes nothing."""
    for index in indices:
        if index is not None and index.dtype not in (int64, int32, *MASKS):
            raise IndexError(f"an index tensor is int64, int32 or bool; got "
                             f"{index.dtype}")
    return indices


def _columns(shape, indices):
    """One index for each dimension: a tensor, or None for all of it."""
    columns = []
    for index in check_indices(indices):
        if index is None or index.dtype in (int64, int32):
            columns.append(index)
            continue
        d = len(columns)
        if index.shape != shape[d:d + index.ndim]:
            raise IndexError(
                f"a mask of shape {list(index.shape)} at dimension {d} does "
                f"not fit a tensor of shape {list(shape)}")
        places = nonzero_rows(index)
        columns += [select(places, 1, k) for k in range(index.ndim)]
    if len(columns) > len(shape):
        raise IndexError(f"too many indices: {len(columns)} for a tensor of "
                         f"{len(shape)} dimensions")
    return columns + [None] * (len(shape) - len(columns))


def _picked(x, indices):
    """The shape of what indices take of x, and the numbers of the stored
    elements (None on meta)."""
    columns = _columns(x.shape, indices)
    named = [d for d, index in enumerate(columns) if index is not None]
    shape = common_shape([columns[d].shape for d in named], IndexError)
    side_by_side = not named or named[-1] - named[0] + 1 == len(named)
    at = named[0] if named and side_by_side else 0
    rest = [(x.shape[d], x.geometry.strides[d])
            for d in range(x.ndim) if d not in named]
    before, after = [Geometry(tuple(n for n, _ in part),
                              tuple(s for _, s in part), 0)
                     for part in (rest[:at], rest[at:])]
    whole = before.shape + shape + after.shape
    if x.device.type == "meta":
        return whole, None
    places = [x.geometry.offset] * numel(shape)
    for d in named:
        size, stride = x.shape[d], x.geometry.strides[d]
        for k, i in enumerate(flat(expand(columns[d], shape))):
            places[k] += _place(i, d, size) * stride
    return whole, [a + b + c for a in offsets(before) for b in places
                   for c in offsets(after)]


@method
def index(self, indices):
    """The elements that index tensors name; None takes all of a
    dimension."""
    shape, places = _picked(self, indices)
    out = empty(shape, dtype=self.dtype, device=self.device)
    if self.device.type != "meta":
        memory = self.storage.elements(self.dtype)
        _store(out, [memory[i] for i in places])
    return out


def index_put(self, indices, values, accumulate=False, out=None):
    """A copy with `values` written where index tensors name elements; with
    accumulate, added to what is there."""
    if out is None:
        out = clone(self)
    elif out is not self:
        copy_(out, self)
    refuse_overlap(out)
    check_put(out, indices, values)
    shape, places = _picked(out, indices)
    values = expand_to(shape, values)
    if out.device.type == "meta":
        return out
    memory, dtype = out.storage.elements(out.dtype), out.dtype
    for i, value in zip(places, flat(values)):
        memory[i] = wrap(dtype, memory[i] + value) if accumulate else value
    out.storage.version += 1
    return out


def check_put(x, indices, values):
    """Refuse values of another dtype, but one for all that a mask names."""
    masked = values.numel() == 1 and all(
        i is None or i.dtype is bool_ for i in indices)
    if values.dtype is not x.dtype and not masked:
        raise RuntimeError(
            f"index_put(): the values are {values.dtype}, the tensor is "
            f"{x.dtype}; they must agree: values.to({x.dtype})")


def expand_to(shape, values):
    """Values expanded to what the indices take; sizes of 1 in front go."""
    while values.ndim > len(shape) and values.shape[0] == 1:
        values = values[0]
    try:
        return expand(values, shape)
    except RuntimeError:
        raise RuntimeError(
            f"index_put(): values of shape {list(values.shape)} do not "
            f"expand to {list(shape)}, the shape of what the indices take"
            ) from None


@method
def index_put_(self, indices, values, accumulate=False):
    """Write `values` where index tensors name elements."""
    return index_put(self, indices, values, accumulate, self)


index_put = method(index_put)


BASIC = {int, slice, type(None), type(...)}


def _subscript(self, items):
    """x[items]: a view, or a copy if an item is a tensor or a list."""
    if type(items) is tuple:
        for item in items:
            if type(item) not in BASIC:
                break
        else:
            return self.getitem(items)
    elif type(items) in BASIC:
        return self.getitem(items)
    view, indices = _taken_apart(self, items)
    return view.index(indices) if indices else view


Tensor.__getitem__ = _subscript


def _as_index(x, item):
    """A plain item, or a tensor of indices on x's device."""
    if isinstance(item, (list, tuple, range)):
        # a list of nothing is no float
        item = tensor(item, dtype=None if len(item) else int64)
    elif not isinstance(item, Tensor) and (
            isinstance(item, bool) or hasattr(item, "__array_interface__")):
        item = tensor(item)
    if not isinstance(item, Tensor):
        return operator.index(item) if hasattr(item, "__index__") else item
    if not item.shape and item.dtype.category == 1:
        return int(item.item())
    if item.device is x.device or item.dtype in MASKS:
        return item
    return _filled(flat(item), item.shape, item.dtype, x.device)


def _taken_apart(x, items):
    """x under the plain items of an index, and a list of index tensors for
    its dimensions, empty if there are none."""
    if isinstance(items, list) and any(
            isinstance(i, (list, tuple, Tensor, slice, type(None), type(...)))
            for i in items):
        items = tuple(items)            # as PyTorch does, until it changes
    basic, indices = [], []
    for item in items if type(items) is tuple else (items,):
        item = _as_index(x, item)
        if not isinstance(item, Tensor):
            basic.append(item)
            indices += [item] if item is ... else (
                [None] if item is None or isinstance(item, slice) else [])
        elif item.dtype not in MASKS:
            basic.append(slice(None))
            indices.append(item)
        else:                           # a mask; True alone is a new one
            basic += [slice(None)] * item.ndim or [None]
            mask = item if item.shape else item.reshape(1)
            indices += [mask] if mask.device is x.device else [
                _filled(flat(i), i.shape, int64, x.device)
                for i in mask.nonzero(as_tuple=True)]
    view = x.getitem(tuple(basic))
    if not any(isinstance(i, Tensor) for i in indices):
        return view, []
    rest = [i for i in indices if i is not ...]
    if len(rest) < len(indices):        # the dots stand for what is left
        at = next(k for k, i in enumerate(indices) if i is ...)
        width = sum(i.ndim if i is not None and i.dtype in MASKS else 1
                    for i in rest)
        rest[at:at] = [None] * (view.ndim - width)
    return view, rest


@method
def take(self, index):
    """The elements at places of the flat tensor, in the index's shape."""
    if not isinstance(index, Tensor) or index.dtype is not int64:
        raise RuntimeError(f"take(): expected an int64 tensor of places; "
                           f"got {getattr(index, 'dtype', index)}")
    return self.reshape(-1).index([index])


@method
def masked_select(self, mask):
    """The elements where a mask is True, in one dimension."""
    if not isinstance(mask, Tensor) or mask.dtype is not bool_:
        raise RuntimeError(f"masked_select(): expected a bool tensor, as "
                           f"x > 0 is; got {getattr(mask, 'dtype', mask)}")
    shape = common_shape([self.shape, mask.shape]) or (1,)
    return self.expand(shape).index([mask.expand(shape)])


def _set_at(self, items, value):
    """x[items] = value, where an item may be a tensor or a list."""
    view, indices = _taken_apart(self, items)
    if not indices:
        return _write_to(view, value)
    if not isinstance(value, Tensor):
        value = tensor(_value(value), dtype=self.dtype, device=self.device)
    while value.ndim and value.shape[0] == 1:   # they are no matter
        value = value[0]
    view.index_put_(indices, value)


def _set(self, items, value):
    """x[items] = value."""
    if all(type(item) in BASIC for item in (
            items if type(items) is tuple else (items,))):
        _write_to(self.getitem(items), value)
    else:
        _set_at(self, items, value)


Tensor.__setitem__ = _set


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
    if self.dtype.category != 1 or self.numel() != 1:
        raise TypeError(f"only an integer tensor of one element can be an "
                        f"index; this is {self.dtype}, {list(self.shape)}")
    return int(self.item())


def _only(self):
    """The one element, for int() and float()."""
    if self.numel() != 1:
        raise ValueError(f"only a tensor of one element is a number; this "
                         f"has {self.numel()}, shape {list(self.shape)}")
    return self.item()


def is_tensor(obj):
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


def _formatted(self, spec):
    """f"{x:.2f}": a tensor of no dimensions is formatted as its number."""
    if self.ndim or self.device.type == "meta":
        return object.__format__(self, spec)
    return format(self.item(), spec)


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
Tensor.__format__ = _formatted


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
