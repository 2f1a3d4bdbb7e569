"""Reductions: many elements to one.

Exported from chapters/05_reductions.ipynb by `course export`; edit the
chapter, not this file.
"""

import functools
import math
import operator
import warnings
from itertools import accumulate

from lamina.broadcasting import (
    broadcast_shapes, count_inputs, functions, ieee_log, ieee_pow, quiet,
    result_type,
)
from lamina.dispatch import (
    CPU, array, define, from_array, impl, np, numpy_dtypes, operators, own,
)
from lamina.storage import (
    bool_, float32, float64, get_default_dtype, int32, int64, uint8, wrap,
)
from lamina.strides import (
    Tensor, clone, contiguous_format, empty, empty_like, flat, full, method,
    numel, offsets, permute, tensor, wrap_dim, write_values, zeros_like,
)

__all__ = [
    "pairwise_sum",
    "reduction",
    "rowwise",
    "norm",
    "unique",
    "unique_consecutive",
]


def pairwise_sum(values):
    """The sum of the two halves' sums: error grows like log n, not n.

    Short pieces are added left to right. Source: Higham, The accuracy of
    floating point summation, 1993.
    """
    if len(values) <= 8:
        total = 0
        for value in values:
            total += value
        return total
    middle = len(values) // 2
    return pairwise_sum(values[:middle]) + pairwise_sum(values[middle:])


def reduced_dims(dim, ndim):
    """The dimensions to reduce, in order: all of them for None and ().

    IndexError for a dimension that is not there, RuntimeError for one
    that is named twice.
    """
    if dim is None or dim == () or dim == []:
        return tuple(range(ndim))
    if type(dim) is int and ndim:
        return wrap_dim(dim, ndim),
    dims = [wrap_dim(d, ndim)
            for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"a dimension is named twice in {list(dim)}, of "
                           f"a tensor of {ndim} dimensions")
    return tuple(sorted(dims)) if ndim else ()


def reduced_shape(shape, dims, keepdim):
    """The shape that is left when `dims` are reduced."""
    return tuple(1 if d in dims else size for d, size in enumerate(shape)
                 if keepdim or d not in dims)


def reduced_rows(x, dims):
    """For each element of the result, the list of values it comes from."""
    kept = [d for d in range(len(x.shape)) if d not in dims]
    values = flat(permute(x, kept + list(dims)))
    length = numel(x.shape[d] for d in dims)
    count = numel(x.shape[d] for d in kept)
    return [values[i * length:(i + 1) * length] for i in range(count)]


@functools.lru_cache(4096)
def plan_reduction(name, shape, dim, keepdim, empty_ok):
    """The dimensions to reduce and the shape of the result, or an error
    where there is nothing to choose from."""
    every = dim == () and name in ("all", "any")    # each by itself
    dims = () if every else reduced_dims(dim, len(shape))
    if not empty_ok and not numel(shape[d] for d in dims):
        error = IndexError          # the classes that PyTorch raises
        if dim in (None, ()) and not name.startswith("arg"):
            error = RuntimeError
        raise error(f"{name}(): no elements to choose from: reducing "
                    f"dimensions {list(dims)} of shape {list(shape)}; "
                    f"each must have at least one element")
    return dims, reduced_shape(shape, dims, keepdim)


def reduction(schema, doc, python, numpy, dtype=lambda d: d, empty_ok=True):
    """Declare an operator that reduces dimensions.

    The schema's arguments are self, dim and keepdim, and it may have a
    dtype and others after them. `python` turns a list of numbers into
    one, `numpy` takes an array, `axis`, `keepdims` and `dtype`; both take
    the others. `dtype` gives the result's dtype from the input's. Without
    `empty_ok` no elements have no answer.
    """
    op = define(schema, doc)
    name, dtype = op.schema.name, functools.cache(dtype)

    def python_kernel(self, dim, keepdim, wanted=None, *others):
        dims, shape = plan_reduction(
            name, self.shape, dim, keepdim, empty_ok)
        rows = reduced_rows(self, dims)
        if wanted:          # convert, then reduce: not the other way round
            rows = [[wrap(wanted, value) for value in row] for row in rows]
        out = empty(shape, dtype=wanted or dtype(self.dtype),
                    device="python")
        return write_values(out, [python(row, *others) for row in rows])

    def cpu_kernel(self, dim, keepdim, wanted=None, *others):
        x, result = self.array, wanted or dtype(self.dtype)
        x = array(self) if x is None else x
        dims, _ = plan_reduction(name, x.shape, dim, keepdim, empty_ok)
        out_dtype = numpy_dtypes[result]
        found = quiet(numpy, x, dims, keepdim, out_dtype, *others)
        return own(np.asarray(found, out_dtype, order="C"), result)

    def meta_kernel(self, dim, keepdim, wanted=None, *others):
        _, shape = plan_reduction(
            name, self.shape, dim, keepdim, empty_ok)
        return empty(shape, dtype=wanted or dtype(self.dtype),
                     device="meta")

    impl(op.schema.full_name, "python")(python_kernel)
    impl(op.schema.full_name, "cpu")(cpu_kernel)
    impl(op.schema.full_name, "meta")(meta_kernel)
    return op


def adds_pairwise(x, axis):
    """Whether NumPy sums pairwise over these dimensions. It does along the
    one that lies closest in memory, and goes from first to last along the
    others."""
    wide = [d for d in range(x.ndim) if x.shape[d] > 1]
    closest = min(wide, key=lambda d: abs(x.strides[d]), default=None)
    return closest is None or closest in axis


@functools.lru_cache(256)
def row_of_ones(shape, dtype):
    return np.ones(shape, dtype)


def add_rows(x):
    """The sum of a matrix's rows: by BLAS for blocks of 64 of them, then
    for the sums of the blocks in the same way."""
    count = len(x)
    if count <= 128:
        return row_of_ones(count, x.dtype).dot(x)
    whole = count - count % 64
    blocks = x[:whole].reshape(whole // 64, 64, x.shape[1])
    total = add_rows(row_of_ones(64, x.dtype) @ blocks)
    return total if whole == count else total + add_rows(x[whole:])


def reduce_rows(ufunc, x, axis, keepdims, dtype=None):
    """ufunc.reduce; many short rows are made columns first."""
    last = x.ndim - 1
    if (axis != (last,) or x.shape[last] > 16 or x.size < 1024
            or not x.flags.c_contiguous):
        return ufunc.reduce(x, axis, dtype, None, keepdims)
    columns = x.reshape(-1, x.shape[last]).T.copy()
    return ufunc.reduce(columns, 0, dtype).reshape(
        x.shape[:last] + (1,) * keepdims)


def numpy_sum(x, axis, keepdims, dtype):
    """np.add.reduce, in blocks where NumPy would add row after row."""
    ndim, first = x.ndim, len(axis)
    if (0 < first < ndim and axis[-1] == first - 1 and x.dtype is dtype
            and dtype.char in "fd" and x.flags.c_contiguous):
        if ndim == 2 and not keepdims:      # the first ones, row-major
            return add_rows(x)
        kept = x.shape[first:]
        rows = x.reshape(math.prod(x.shape[:first]), math.prod(kept))
        return add_rows(rows).reshape((1,) * first * keepdims + kept)
    size = max([x.shape[d] for d in axis], default=0)
    if size <= 128 or dtype.kind != "f" or adds_pairwise(x, axis):
        return reduce_rows(np.add, x, axis, keepdims, dtype)
    d = next(d for d in axis if x.shape[d] == size)
    count, before = x.shape[d] // 64, (slice(None),) * d
    blocks = x[*before, :count * 64].reshape(
        x.shape[:d] + (count, 64) + x.shape[d + 1:])
    rows = np.add.reduce(blocks, d + 1, dtype)
    rest = x[*before, count * 64:]
    total = numpy_sum(rows, axis, keepdims, dtype)
    return total + numpy_sum(rest, axis, keepdims, dtype)


def sum_dtype(dtype):
    """The dtype of a sum: integers and bools are counted in int64."""
    return dtype if dtype.is_floating_point else int64


reduction("sum.dim_IntList(Tensor self, int[]? dim=None, bool keepdim=False,"
          " *, ScalarType? dtype=None) -> Tensor",
          "The sum over dimensions, or over all. Integers are summed in "
          "int64.", pairwise_sum, np and numpy_sum, sum_dtype)
sum_of_any = operators["sum.dim_IntList"].kernels.get(CPU)


@impl("sum.dim_IntList", "cpu")
def cpu_sum(self, dim, keepdim, dtype):
    x = self.array
    if (dim == (0,) and x is not None and x.ndim == 2 and len(x) <= 128
            and not keepdim and dtype is None and x.dtype.char in "fd"
            and x.flags.c_contiguous):      # a bias's gradient: a short way
        return own(quiet(add_rows, x), self.dtype)
    return sum_of_any(self, dim, keepdim, dtype)


def numpy_prod(x, axis, keepdims, dtype):
    return reduce_rows(np.multiply, x, axis, keepdims, dtype)


reduction("prod.dim_int(Tensor self, int dim, bool keepdim=False, *, "
          "ScalarType? dtype=None) -> Tensor",
          "The product over a dimension. Integers are multiplied in int64.",
          math.prod, numpy_prod, sum_dtype)
define("prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
       "The product of all elements.",
       composite=lambda self, dtype: self.reshape(-1).prod(0, dtype=dtype))


def untyped(function):
    """A NumPy reduction that takes no dtype, as one that does."""
    def reduce(x, axis, keepdims, dtype):
        found = np.asarray(function(x, axis=axis, keepdims=keepdims))
        return found.astype(dtype, copy=False)
    return reduce


def truth_dtype(dtype):
    return uint8 if dtype is uint8 else bool_


reduction("any(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
          "Whether any element is not zero.", any,
          np and untyped(np.any), truth_dtype)
reduction("all(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
          "Whether every element is not zero.", all,
          np and untyped(np.all), truth_dtype)


def contains(self, element):
    """element in self: whether any element is equal to it."""
    if not isinstance(element, (Tensor, int, float)):
        raise RuntimeError(f"a tensor contains numbers; no number: "
                           f"{type(element).__name__}")
    return bool((self == element).any())


Tensor.__contains__ = contains


def first_best(better):
    """The position of the best of a list: the first of equals; nan wins."""
    def position(values):
        best = 0
        for i, value in enumerate(values):
            if value != value:
                return i
            if better(value, values[best]):
                best = i
        return best
    return position


largest = first_best(lambda a, b: a > b)
smallest = first_best(lambda a, b: a < b)


reduction("amax(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
          "The largest element over dimensions; nan if there is one.",
          lambda row: row[largest(row)],
          np and untyped(functools.partial(reduce_rows, np.maximum)),
          empty_ok=False)
reduction("amin(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
          "The smallest element over dimensions; nan if there is one.",
          lambda row: row[smallest(row)],
          np and untyped(functools.partial(reduce_rows, np.minimum)),
          empty_ok=False)


def flat_axis(function):
    """NumPy's argmax over one axis, or over all elements in order."""
    def reduce(x, axis, keepdims, dtype):
        if len(axis) == 1:
            return function(x, axis=axis[0], keepdims=keepdims)
        found = np.asarray(function(x))
        return found.reshape((1,) * x.ndim) if keepdims else found
    return reduce


def place_dtype(dtype):
    if dtype is bool_:
        raise RuntimeError("argmax() and argmin() are not for bool tensors: "
                           "x.to(lamina.uint8).argmax()")
    return int64


reduction("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
          "The index of the largest element along a dimension (the first "
          "of equals), or in the flattened tensor.", largest,
          np and flat_axis(np.argmax), place_dtype, empty_ok=False)
reduction("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
          "The index of the smallest element along a dimension (the first "
          "of equals), or in the flattened tensor.", smallest,
          np and flat_axis(np.argmin), place_dtype, empty_ok=False)


define("gather(Tensor self, int dim, Tensor index, *, "
       "bool sparse_grad=False) -> Tensor",
       "Elements chosen along a dimension: out[i][j] = "
       "self[index[i][j]][j] for dim 0, self[i][index[i][j]] for dim 1.")


def check_index_fits(name, index, x, free=None):
    """Refuse an index that is larger than x, but along dimension free."""
    if not index.numel():
        return
    if index.dtype not in (int32, int64):
        raise RuntimeError(f"{name}(): index must be int64 or int32, not "
                           f"{index.dtype}")
    have, room = index.shape or (1,), x.shape or (1,)
    if len(have) != len(room) or any(
            n > m for d, (n, m) in enumerate(zip(have, room))
            if d != free):
        raise RuntimeError(
            f"{name}(): an index of shape {list(index.shape)} does not fit "
            f"{list(x.shape)}: expected as many dimensions, and no size "
            f"larger" + ("" if free is None else f" but in dimension {free}"))


def check_range(name, low, high, d, size):
    if low < 0 or high >= size:
        raise (RuntimeError if name.startswith(("gather", "scatter", "_"))
               else IndexError)(
            f"{name}(): index {low if low < 0 else high} is out of range: "
            f"dimension {d} has size {size}, so expected 0 to {size - 1}")


def places(name, self, d, index):
    """The stored element of `self` that each element of `index` names."""
    chosen = flat(index)
    size, step = (self.shape[d], self.stride(d)) if self.shape else (1, 0)
    if not chosen:
        return []
    check_range(name, min(chosen), max(chosen), d, size)
    if not self.shape or not index.shape:
        return [self.storage_offset() + i * step for i in chosen]
    start = self.geometry._replace(shape=index.shape, strides=tuple(
        0 if k == d else s for k, s in enumerate(self.stride())))
    return [o + i * step for o, i in zip(offsets(start), chosen)]


@impl("gather", "python")
def python_gather(self, dim, index, sparse_grad=False):
    d = wrap_dim(dim, len(self.shape))
    check_index_fits("gather", index, self, d)
    memory = self.storage.elements(self.dtype)
    values = [memory[p] for p in places("gather", self, d, index)]
    return write_values(
        empty(index.shape, dtype=self.dtype, device="python"), values)


@functools.lru_cache(256)
def open_grid(shape):
    """An arange for each dimension, along it: the place of each element."""
    return np.ogrid[tuple(map(slice, shape))]


def numpy_places(name, self, d, index):
    """An index for NumPy: open ranges, and `index` along dimension d."""
    chosen = array(index)
    if not chosen.size:
        return np.zeros(chosen.shape, "int64"), *[0] * (len(self.shape) - 1)
    check_range(name, chosen.min(), chosen.max(), d,
                self.shape[d] if self.shape else 1)
    if not self.shape or not index.shape:
        return (chosen,)
    grid = open_grid(index.shape)
    return *grid[:d], chosen, *grid[d + 1:]


@impl("gather", "cpu")
def cpu_gather(self, dim, index, sparse_grad=False):
    d = wrap_dim(dim, len(self.shape))
    check_index_fits("gather", index, self, d)
    if not index.numel():
        return empty(index.shape, dtype=self.dtype)
    source = array(self) if self.shape else array(self).reshape(1)
    found = source[numpy_places("gather", self, d, index)]
    return from_array(np.asarray(found, order="C"))


@impl("gather", "meta")
def meta_gather(self, dim, index, sparse_grad=False):
    check_index_fits("gather", index, self,
                     wrap_dim(dim, len(self.shape)))
    return empty(index.shape, dtype=self.dtype, device="meta")


def check_scatter(name, self, dim, index, src):
    """Refuse what cannot be scattered; give the dimension's number."""
    d = wrap_dim(dim, len(self.shape))
    check_index_fits(name, index, self, d)
    check_index_fits(name, index, src)
    if src.dtype is not self.dtype:
        raise RuntimeError(f"{name}(): src is {src.dtype}, self is "
                           f"{self.dtype}: convert one with .to()")
    return d


def part_for(index, x):
    """The part of an array that `index` has a place for."""
    return x[tuple(map(slice, index.shape or x.shape and (1,)))].reshape(
        index.shape)


def scattering(schema, doc, python, numpy):
    """Declare an operator that writes src where index says.

    `python` gives the new element from the old one and src's, `numpy`
    takes an array, the places in it, and the elements of src.
    """
    op = define(schema, doc, inplace=True)
    name = op.schema.name

    def python_kernel(self, dim, index, src):
        d = check_scatter(name, self, dim, index, src)
        out = clone(self, memory_format=contiguous_format)
        memory, source = (t.storage.elements(t.dtype) for t in (out, src))
        part = src.geometry._replace(shape=index.shape)
        for p, o in zip(places(name, out, d, index), offsets(part)):
            memory[p] = wrap(out.dtype, python(memory[p], source[o]))
        return out

    def cpu_kernel(self, dim, index, src):
        d = check_scatter(name, self, dim, index, src)
        out = array(self).copy(order="C")
        if index.numel():
            quiet(numpy, out if out.shape else out.reshape(1),
                  numpy_places(name, self, d, index),
                  part_for(index, array(src)))
        return from_array(out)

    def meta_kernel(self, dim, index, src):
        check_scatter(name, self, dim, index, src)
        return empty(self.shape, dtype=self.dtype, device="meta")

    impl(op.schema.full_name, "python")(python_kernel)
    impl(op.schema.full_name, "cpu")(cpu_kernel)
    impl(op.schema.full_name, "meta")(meta_kernel)


scattering("scatter.src(Tensor self, int dim, Tensor index, Tensor src) "
           "-> Tensor",
           "self with src written to the places that gather would read.",
           lambda old, new: new, operator.setitem)
scattering("scatter_add(Tensor self, int dim, Tensor index, Tensor src) "
           "-> Tensor", "self with src added at the places that gather would "
           "read; a place named twice gets both.", operator.add,
           np and np.add.at)


def better_of(old, new, better):
    """One of two elements; nan wins."""
    return old if old != old or better(old, new) else new


MERGES = {          # reduce=: (kernel, in Python, in NumPy)
    "prod": ("_scatter_prod", operator.mul, np and np.multiply.at),
    "amax": ("_scatter_amax", lambda a, b: better_of(a, b, operator.gt),
             np and np.maximum.at),
    "amin": ("_scatter_amin", lambda a, b: better_of(a, b, operator.lt),
             np and np.minimum.at)}
for name, python, numpy in MERGES.values():
    scattering(f"{name}(Tensor self, int dim, Tensor index, Tensor src) "
               f"-> Tensor", "scatter_reduce, for one reduction.",
               python, numpy)


def neutral(reduce, dtype):
    """The number that a reduction begins with."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.category == 2:
        return -math.inf if reduce == "amax" else math.inf
    bits = 8 * dtype.itemsize - dtype.is_signed if dtype.category else 1
    low = -2 ** bits if dtype.is_signed else 0
    return low if reduce == "amax" else 2 ** bits - 1


def scatter_reduce(self, dim, index, src, reduce, include_self):
    if reduce not in ("sum", "mean", *MERGES):
        raise RuntimeError(f"scatter_reduce(): reduce is one of 'sum', "
                           f"'mean', 'prod', 'amax', 'amin'; got {reduce!r}")
    if reduce == "mean" and self.dtype is bool_:
        raise NotImplementedError("scatter_reduce(): bools have no mean")
    if not include_self:
        self = functions["scatter"](self, dim, index,
                                    neutral(reduce, self.dtype))
    if reduce in MERGES:
        return functions[MERGES[reduce][0]](self, dim, index, src)
    total = self.scatter_add(dim, index, src)
    if reduce == "sum":
        return total
    count = full((), 1, dtype=self.dtype, device=self.device)
    count = count.expand(self.shape)
    if not include_self:
        count = functions["scatter"](count, dim, index, 0)
    count = count.scatter_add(dim, index, full(
        (), 1, dtype=self.dtype, device=self.device).expand(index.shape))
    count = functions["where"](count == 0, 1, count)
    return total / count if self.dtype.category == 2 else (
        functions["div"](total, count, rounding_mode="floor"))


define("scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, "
       "str reduce, *, bool include_self=True) -> Tensor",
       "self with src reduced into the places that gather would read: "
       "'sum', 'prod', 'mean', 'amax' or 'amin'.", composite=scatter_reduce,
       inplace=True)


def scatter_value(self, dim, index, value, reduce=None):
    src = full((), value, dtype=self.dtype, device=self.device)
    src = src.expand(index.shape)
    if reduce is None:
        return self.scatter(dim, index, src)
    return scatter_word(self, dim, index, src, reduce)


def scatter_word(self, dim, index, src, reduce):
    if reduce not in ("add", "multiply"):
        raise RuntimeError(f"scatter(): reduce is 'add' or 'multiply'; got "
                           f"{reduce!r}")
    return self.scatter_add(dim, index, src) if reduce == "add" else (
        functions["_scatter_prod"](self, dim, index, src))


where_read = " at the places that gather would read."
define("scatter.value(Tensor self, int dim, Tensor index, Scalar value) "
       "-> Tensor", "self with a number" + where_read,
       composite=scatter_value, inplace=True)
define("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, "
       "str reduce) -> Tensor", "self with src added or multiplied"
       + where_read, composite=scatter_word, inplace=True)
define("scatter.value_reduce(Tensor self, int dim, Tensor index, "
       "Scalar value, *, str reduce) -> Tensor", "self with a number added "
       "or multiplied" + where_read, composite=scatter_value, inplace=True)


def check_named(name, index, d, size):
    """Refuse indices that are out of range, in the operator's own name."""
    if index.numel() and index.device.type != "meta":
        check_range(name, index.amin().item(), index.amax().item(), d, size)


def index_of_rows(name, self, dim, index, negative=False):
    """The dimension's number, and the vector index expanded: the same for
    every column of self."""
    d = wrap_dim(dim, len(self.shape))
    if len(index.shape) > 1 or index.dtype not in (int32, int64):
        raise IndexError(f"{name}() takes a vector of int64 indices; got "
                         f"{index.dtype} of shape {list(index.shape)}")
    size = self.shape[d] if self.shape else 1
    if negative:
        index = functions["where"](index < 0, index + size, index)
    check_named(name, index, d, size)
    shape = list(self.shape)
    if not shape:
        return d, index.reshape(-1)
    column = [1] * len(shape)
    column[d] = shape[d] = index.numel()
    return d, index.reshape(column).expand(shape)


def index_select(self, dim, index):
    d, rows = index_of_rows("index_select", self, dim, index)
    if not self.shape:
        if index.numel() != 1:
            raise IndexError(f"index_select(): a tensor without dimensions "
                             f"has one element; got {index.numel()} indices")
        return self.reshape(1).gather(0, rows).reshape(())
    return self.gather(d, rows)


define("index_select(Tensor self, int dim, Tensor index) -> Tensor",
       "The indices of a dimension that a vector names, in its order.",
       composite=index_select)


def rows_to_write(name, self, dim, index, source):
    """What index_of_rows gives, where source has the shape that is due."""
    d, rows = index_of_rows(name, self, dim, index)
    due = rows.shape if self.shape else ()
    if source.shape != due and (self.shape or source.numel() != 1):
        raise (IndexError if name == "index_copy" else RuntimeError)(
            f"{name}(): source has shape {list(source.shape)}; to write "
            f"{index.numel()} indices of dimension {d} of "
            f"{list(self.shape)} it must have {list(due)}")
    return d, rows, source.reshape(rows.shape)


def index_add(self, dim, index, source, alpha):
    d, rows, source = rows_to_write("index_add", self, dim, index, source)
    if alpha != 1:
        source = source * alpha
    return self.scatter_add(d, rows, source)


def index_copy(self, dim, index, source):
    d, rows, source = rows_to_write("index_copy", self, dim, index, source)
    return self.scatter(d, rows, source)


def index_fill(self, dim, index, value):
    d, rows = index_of_rows("index_fill", self, dim, index, negative=True)
    if not isinstance(value, Tensor):
        return self.scatter(d, rows, value)
    if value.shape:
        raise RuntimeError(f"index_fill() takes a number, or a tensor "
                           f"without dimensions; got {list(value.shape)}")
    chosen = zeros_like(self, dtype=bool_).scatter(d, rows, True)
    return functions["where"](chosen, value.to(self.dtype), self)


define("index_add(Tensor self, int dim, Tensor index, Tensor source, *, "
       "Scalar alpha=1) -> Tensor", "self with alpha * source added to the "
       "indices that a vector names.", composite=index_add, inplace=True)
define("index_copy(Tensor self, int dim, Tensor index, Tensor source) "
       "-> Tensor", "self with source in place of the indices that a vector "
       "names.", composite=index_copy, inplace=True)
for value in ("Scalar", "Tensor"):
    define(f"index_fill.int_{value}(Tensor self, int dim, Tensor index, "
           f"{value} value) -> Tensor", "self with one number in place of "
           "the indices that a vector names.", composite=index_fill,
           inplace=True)


def flat_index(name, self, index):
    """An index into the flattened tensor; it may count from the end."""
    if index.dtype is not int64:
        raise RuntimeError(f"{name}() takes int64 indices, not "
                           f"{index.dtype}")
    if index.numel() and not self.numel():
        raise IndexError(f"{name}(): there is no element to name in shape "
                         f"{list(self.shape)}")
    index = index.reshape(-1)
    index = functions["where"](index < 0, index + self.numel(), index)
    check_named(name, index, 0, self.numel())
    return index


def put(self, index, source, accumulate):
    if index.numel() != source.numel():
        raise IndexError(f"put(): {index.numel()} indices for "
                         f"{source.numel()} elements of source")
    write = self.reshape(-1).scatter_add if accumulate else (
        self.reshape(-1).scatter)
    return write(0, flat_index("put", self, index),
                 source.reshape(-1)).reshape(self.shape)


def take_along_dim(self, indices, dim):
    if indices.dtype is not int64:
        raise RuntimeError(f"take_along_dim() takes int64 indices, not "
                           f"{indices.dtype}")
    if dim is None:
        return self.reshape(-1).gather(0, indices.reshape(-1))
    if len(self.shape) != len(indices.shape):
        raise RuntimeError(
            f"take_along_dim(): {list(self.shape)} and indices of "
            f"{list(indices.shape)} must have as many dimensions")
    d = wrap_dim(dim, len(self.shape))
    size = self.shape[d] if self.shape else 1
    indices = functions["where"](indices < 0, indices + size, indices)
    both = list(broadcast_shapes(self.shape[:d] + self.shape[d + 1:],
                                 indices.shape[:d] + indices.shape[d + 1:]))
    if self.shape:
        self, indices = (x.expand(both[:d] + [x.shape[d]] + both[d:])
                         for x in (self, indices))
    return self.gather(d, indices)


define("put(Tensor self, Tensor index, Tensor source, "
       "bool accumulate=False) -> Tensor", "self with source in the places "
       "of the flattened tensor that index names.", composite=put,
       inplace=True)
define("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
       "gather, after self and indices are broadcast.",
       composite=take_along_dim)


def repeat_interleave(self, repeats, dim=None, output_size=None):
    if dim is None:
        self, dim = self.reshape(-1), 0
    size = self.shape[wrap_dim(dim, len(self.shape))] if self.shape else 1
    counts = [repeats] * size if isinstance(repeats, int) else repeats
    if isinstance(repeats, Tensor):
        check_repeats(repeats)
        counts = repeats.reshape(-1).tolist()
        counts = counts * size if len(counts) == 1 else counts
    if len(counts) != size or min(counts, default=0) < 0:
        raise RuntimeError(
            f"repeat_interleave(): {len(counts)} repeats for size {size} of "
            f"dimension {dim}; expected one for each, and none below 0")
    rows = [i for i, count in enumerate(counts) for _ in range(count)]
    if output_size not in (None, len(rows)):
        raise RuntimeError(f"repeat_interleave(): output_size is "
                           f"{output_size}, the repeats give {len(rows)}")
    self = self if self.shape else self.reshape(1)
    return self.index_select(dim, tensor(
        rows, dtype=int64, device=self.device))


def check_repeats(repeats):
    if len(repeats.shape) > 1 or repeats.dtype not in (int32, int64):
        raise RuntimeError(f"repeat_interleave(): repeats is a vector of "
                           f"int64; got {repeats.dtype} of shape "
                           f"{list(repeats.shape)}")


def repeated_numbers(repeats, output_size):
    check_repeats(repeats)
    count = tensor(list(range(len(repeats))), dtype=repeats.dtype,
                   device=repeats.device)
    return repeat_interleave(count, repeats, 0, output_size)


define("repeat_interleave.self_int(Tensor self, int repeats, int? dim=None, "
       "*, int? output_size=None) -> Tensor", "Each index of a dimension so "
       "many times.", composite=repeat_interleave)
define("repeat_interleave.self_Tensor(Tensor self, Tensor repeats, "
       "int? dim=None, *, int? output_size=None) -> Tensor", "Each index of "
       "a dimension as often as repeats says.", composite=repeat_interleave)
define("repeat_interleave.Tensor(Tensor repeats, *, int? output_size=None) "
       "-> Tensor", "Each number as often as the element at it says.",
       composite=repeated_numbers)


def mean(self, dim, keepdim, dtype):
    if not (dtype or self.dtype).is_floating_point:
        raise RuntimeError(f"mean() in {dtype or self.dtype} has no room "
                           f"for fractions; give a floating-point dtype: "
                           f"x.mean(dtype=lamina.float32)")
    dims = reduced_dims(dim, len(self.shape))
    total = self.sum(dim, keepdim, dtype=dtype)
    return total / numel(self.shape[d] for d in dims)


define("mean(Tensor self, int[]? dim=None, bool keepdim=False, *, "
       "ScalarType? dtype=None) -> Tensor",
       "The mean over dimensions, or over all.", composite=mean)


def count_nonzero(self, dim):
    return (self != 0).sum(dim)


def nansum(self, dim, keepdim, dtype):
    self = functions["where"](self != self, 0, self)
    return self.sum(dim, keepdim, dtype=dtype)


def nanmean(self, dim, keepdim, dtype):
    if not self.dtype.is_floating_point:
        raise RuntimeError(f"nanmean() takes floats, not {self.dtype}")
    total = nansum(self, dim, keepdim, dtype)
    return total / (self == self).sum(dim, keepdim)


define("count_nonzero(Tensor self, int[]? dim=None) -> Tensor",
       "How many elements are not zero.", composite=count_nonzero)
for function in (nansum, nanmean):
    name = function.__name__
    define(f"{name}(Tensor self, int[]? dim=None, bool keepdim=False, *, "
           f"ScalarType? dtype=None) -> Tensor",
           f"The {name[3:]} of those elements that are not nan.",
           composite=function)


def var(self, dim=None, correction=1, keepdim=False):
    if not self.dtype.is_floating_point:
        raise RuntimeError(f"var() and std() take floats, not {self.dtype}:"
                           f" x.to(lamina.float32).var()")
    count = numel(self.shape[d]
                  for d in reduced_dims(dim, len(self.shape)))
    step = self - self.mean(dim, keepdim=True)
    free = max(0, count - (1 if correction is None else correction))
    return (step * step).sum(dim, keepdim) / free


def std(self, dim=None, correction=1, keepdim=False):
    found = var(self, dim, correction, keepdim)
    none = found == 0       # where the root has no slope, and std's is 0
    return found.masked_fill(none, 1).sqrt().masked_fill(none, 0)


def spread(name, doc, function, returns="Tensor"):
    """Define an operator in the three forms that var has."""
    define(f"{name}(Tensor self, bool unbiased=True) -> {returns}", doc,
           composite=lambda self, unbiased:
           function(self, None, int(unbiased)))
    define(f"{name}.dim(Tensor self, int[]? dim, bool unbiased=True, "
           f"bool keepdim=False) -> {returns}", doc,
           composite=lambda self, dim, unbiased, keepdim:
           function(self, dim, int(unbiased), keepdim))
    define(f"{name}.correction(Tensor self, int[]? dim=None, *, "
           f"Scalar? correction=None, bool keepdim=False) -> {returns}", doc,
           composite=function)


spread("var", "The squared distances from the mean, summed and divided by "
       "n - correction.", var)
spread("std", "The square root of the variance.", std)


def with_mean(function):
    """A spread together with the mean."""
    def both(self, dim=None, correction=1, keepdim=False):
        return (function(self, dim, correction, keepdim),
                self.mean(dim, keepdim))
    return both


for function in (var, std):
    name = function.__name__
    spread(f"{name}_mean", f"{name} and mean.", with_mean(function),
           f"(Tensor {name}, Tensor mean)")


def at_places(name, self, d, where, keepdim=True):
    """(values, indices) as the operator `name` gives them: the elements of
    self at the places `where`, one for each row or several."""
    values = self.gather(d, where) if self.shape else self.clone()
    if not keepdim and self.shape:
        values, where = values.squeeze(d), where.squeeze(d)
    return operators[name].result(values, where)


def extreme(name, long):
    """Define max or min: over all, over a dimension with the places, and
    of two tensors."""
    def over_all(self):
        if not self.numel():
            raise RuntimeError(f"{name}() of no elements: there is none to "
                               f"choose in shape {list(self.shape)}")
        return getattr(self, "a" + name)()

    def along(self, dim, keepdim):
        order = self.to(uint8) if self.dtype is bool_ else self
        where = getattr(order, "arg" + name)(dim, keepdim=True)
        d = wrap_dim(dim, len(self.shape))
        return at_places(name + ".dim", self, d, where, keepdim)

    define(f"{name}(Tensor self) -> Tensor",
           f"The {long} of all elements; nan if there is one.",
           composite=over_all)
    define(f"{name}.dim(Tensor self, int dim, bool keepdim=False) "
           f"-> (Tensor values, Tensor indices)",
           f"Over a dimension: the {long}, and its first index.",
           composite=along)
    define(f"{name}.other(Tensor self, Tensor other) -> Tensor",
           f"The {long} of each pair of elements.",
           composite=lambda self, other: functions[long](self, other))


extreme("max", "maximum")
extreme("min", "minimum")


def aminmax(self, dim, keepdim):
    if not self.numel() and dim is None:
        raise RuntimeError(f"aminmax() of no elements: there is none to "
                           f"choose in shape {list(self.shape)}")
    return operators["aminmax"].result(self.amin(dim, keepdim),
                                       self.amax(dim, keepdim))


define("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) "
       "-> (Tensor min, Tensor max)", "amin and amax.", composite=aminmax)


def rowwise(schema, doc, python, numpy, dtype=lambda d: d, turned=False):
    """Declare an operator that makes of each row along `dim` a new one.

    The schema's arguments are self, perhaps other tensors of its shape,
    dim and others. `python` turns lists of numbers into one of the same
    length, `numpy` takes arrays and an axis; both take the others too.
    `dtype` gives the result's dtype. It lies in rows or, with `turned`,
    as self does.
    """
    op = define(schema, doc)
    count, dtype = count_inputs(op.schema), functools.cache(dtype)

    def result(self):
        like = self if turned else empty(self.shape, device="meta")
        return empty_like(like, dtype=dtype(self.dtype), device=self.device)

    def python_kernel(*args):
        self, dim, others = args[0], args[count], args[count + 1:]
        dims = reduced_dims(dim, len(self.shape))
        rows = zip(*[reduced_rows(x, dims) for x in args[:count]])
        found = [value for row in rows for value in python(*row, *others)]
        out = result(self)
        kept = [d for d in range(len(self.shape)) if d not in dims]
        write_values(permute(out, kept + list(dims)), found)
        return out

    def cpu_kernel(*args):
        self, arrays = args[0], [*map(array, args[:count])]
        x, result_dtype = arrays[0], dtype(self.dtype)
        axis = wrap_dim(args[count], x.ndim)
        if not x.ndim:                  # a number is a row of one
            arrays = [a.reshape(1) for a in arrays]
        found = quiet(numpy, *arrays, axis, *args[count + 1:])
        found = np.asarray(found, numpy_dtypes[result_dtype], order="C")
        if not x.ndim:
            found = found.reshape(())
        if not turned or x.flags.c_contiguous:
            return own(found, result_dtype)
        out = result(self)
        array(out)[...] = found
        return out

    def meta_kernel(*args):
        reduced_dims(args[count], len(args[0].shape))
        return result(args[0])

    impl(op.schema.full_name, "python")(python_kernel)
    impl(op.schema.full_name, "cpu")(cpu_kernel)
    impl(op.schema.full_name, "meta")(meta_kernel)
    return op


def accumulated(ufunc):
    """ufunc.accumulate, with a total of 64 bits."""
    def along(x, axis):
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        return ufunc.accumulate(x, axis, wide)
    return along


def scan(name, what, python, numpy):
    """Define a scan: a kernel without, and a function with a dtype."""
    rowwise(f"_{name}(Tensor self, int dim) -> Tensor", what,
            lambda row: accumulate(row, python), np and accumulated(numpy))
    define(f"{name}(Tensor self, int dim, *, ScalarType? dtype=None) "
           f"-> Tensor", f"{what} Integers are taken as int64.",
           composite=lambda self, dim, dtype: functions["_" + name](
               self.to(dtype or sum_dtype(self.dtype)), dim), inplace=True)


scan("cumsum", "The sum of the elements so far, along a dimension.",
     operator.add, np and np.add)
scan("cumprod", "The product of the elements so far, along a dimension.",
     operator.mul, np and np.multiply)


def record_places(better):
    """The place of the best so far, for each element of a list."""
    def places(row):
        best, found = 0, []
        for i, value in enumerate(row):
            if value != value or better(value, row[best]) or (
                    value == row[best]):
                best = i
            found.append(best)
        return found
    return places


def numpy_records(ufunc):
    def along(x, axis):
        best = ufunc.accumulate(x, axis)
        shape = [1] * x.ndim
        shape[axis] = -1
        place = np.arange(x.shape[axis]).reshape(shape)
        place = np.where((x == best) | (x != x), place, 0)
        return np.maximum.accumulate(place, axis)
    return along


def records(name, better, numpy):
    """Define cummax or cummin."""
    rowwise(f"_{name}(Tensor self, int dim) -> Tensor", "Places only.",
            record_places(better), np and numpy_records(numpy),
            lambda dtype: int64)

    def along(self, dim):
        where = functions["_" + name](self, dim)
        return at_places(name, self, wrap_dim(dim, len(self.shape)), where)

    define(f"{name}(Tensor self, int dim) -> (Tensor values, "
           f"Tensor indices)", f"The {name[3:]}imum of the elements so far, "
           f"and its last place.", composite=along)


records("cummax", operator.gt, np and np.maximum)
records("cummin", operator.lt, np and np.minimum)


def sorted_places(row, descending):
    """The places of a list's elements in their order; nan is the largest."""
    def key(i):
        return (True, 0) if row[i] != row[i] else (False, row[i])
    return sorted(range(len(row)), key=key, reverse=descending)


def numpy_argsort(x, axis, descending):
    if not descending:
        return np.argsort(x, axis, kind="stable")
    order = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - order, axis)


rowwise("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor",
        "The places of the elements along a dimension, in their order; "
        "equal elements keep theirs.", sorted_places, numpy_argsort,
        lambda dtype: int64, turned=True)
define("argsort.stable(Tensor self, *, bool stable, int dim=-1, "
       "bool descending=False) -> Tensor", "argsort is always stable.",
       composite=lambda self, stable, dim, descending:
       self.argsort(dim, descending))


def sort(self, dim=-1, descending=False):
    d, where = wrap_dim(dim, len(self.shape)), self.argsort(dim, descending)
    if where.is_contiguous():
        return at_places("sort", self, d, where)
    steps = where.stride()          # the elements lie as their places do
    order = sorted(range(len(steps)), key=lambda k: -steps[k])
    found = at_places("sort", self.permute(order), order.index(d),
                      where.permute(order))
    back = sorted(range(len(order)), key=order.__getitem__)
    return operators["sort"].result(*[x.permute(back) for x in found])


define("sort(Tensor self, int dim=-1, bool descending=False) "
       "-> (Tensor values, Tensor indices)", "The elements along a "
       "dimension in their order, and where they were.", composite=sort)
define("sort.stable(Tensor self, *, bool? stable, int dim=-1, "
       "bool descending=False) -> (Tensor values, Tensor indices)",
       "sort is always stable.", composite=lambda self, stable, dim,
       descending: sort(self, dim, descending))


def refuse_bool(name, self, error=NotImplementedError):
    if self.dtype is bool_:
        raise error(f"{name}() is not for bool tensors: "
                    f"x.to(lamina.uint8).{name}(...)")


def row_length(self, dim):
    return self.shape[wrap_dim(dim, len(self.shape))] if self.shape else 1


def topk(self, k, dim, largest, sorted):
    d, size = wrap_dim(dim, len(self.shape)), row_length(self, dim)
    refuse_bool("topk", self, RuntimeError)
    if not 0 <= k <= size:
        raise RuntimeError(f"topk(): k is {k}; dimension {d} of "
                           f"{list(self.shape)} has {size} elements")
    where = self.argsort(dim, largest)
    if self.shape:      # a copy, which does not keep the rest in memory
        where = where.narrow(d, 0, k).clone(memory_format=contiguous_format)
    return at_places("topk", self, d, where)


def kthvalue(self, k, dim, keepdim):
    d, size = wrap_dim(dim, len(self.shape)), row_length(self, dim)
    refuse_bool("kthvalue", self)
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): k is {k}; dimension {d} of "
                           f"{list(self.shape)} has {size} elements, and "
                           f"the first is number 1")
    where = self.argsort(dim)
    if self.shape:
        where = where.narrow(d, k - 1, 1)
        where = where.clone(memory_format=contiguous_format)
    return at_places("kthvalue", self, d, where, keepdim)


pair = "(Tensor values, Tensor indices)"
define("topk(Tensor self, int k, int dim=-1, bool largest=True, "
       f"bool sorted=True) -> {pair}", "The k largest or smallest along a "
       "dimension, in their order, and their places.", composite=topk)
define("kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> "
       + pair, "The k-th smallest along a dimension, and its place.",
       composite=kthvalue)


def median_along(ignore_nan):
    """median over a dimension, with or without nan."""
    name = "nanmedian.dim" if ignore_nan else "median.dim"

    def along(self, dim, keepdim):
        d = wrap_dim(dim, len(self.shape))
        refuse_bool(name[:-4], self)
        if not row_length(self, dim):
            raise IndexError(f"{name[:-4]}(): dimension {d} of "
                             f"{list(self.shape)} has no elements")
        order = self.argsort(dim)
        count = (self == self).sum(dim, keepdim=True)
        middle = ((count - 1) * 0.5).to(int64)      # without nan
        if not ignore_nan:
            middle = functions["where"](
                count < row_length(self, dim), count, middle)
        where = order.gather(dim, middle)
        return at_places(name, self, d, where, keepdim)
    return along


def median_of_all(ignore_nan):
    def over_all(self):
        refuse_bool("median", self)
        if not self.numel():
            return full((), math.nan, dtype=self.dtype, device=self.device)
        return median_along(ignore_nan)(self.reshape(-1), 0, False)[0]
    return over_all


for name in ("median", "nanmedian"):
    doc = f"The {name}: of an even number the lower one of two."
    define(f"{name}(Tensor self) -> Tensor", doc,
           composite=median_of_all(name[0] == "n"))
    define(f"{name}.dim(Tensor self, int dim, bool keepdim=False) -> {pair}",
           doc, composite=median_along(name[0] == "n"))


def counting(self, dim=0):
    """0, 1, 2 ... along a dimension, in self's shape."""
    ones = full((), 1, dtype=int64, device=self.device).expand(self.shape)
    return ones.cumsum(dim) - 1


def mode(self, dim, keepdim):
    d, size = wrap_dim(dim, len(self.shape)), row_length(self, dim)
    if not size:
        raise IndexError(f"mode(): dimension {d} of {list(self.shape)} has "
                         f"no elements")
    if not self.shape:
        return at_places("mode", self, d, self.argsort(0), keepdim)
    values, order = self.sort(d)
    place = counting(self, d)
    before = values.gather(d, functions["where"](place > 0, place - 1, 0))
    start = functions["where"](values != before, place, 0).cummax(d).values
    best = (place - start).argmax(d, keepdim=True)     # of the longest run
    return at_places("mode", self, d, order.gather(d, best), keepdim)


define(f"mode(Tensor self, int dim=-1, bool keepdim=False) -> {pair}",
       "The most frequent element along a dimension, the smallest of "
       "several, and its last place.", composite=mode)


def shift(self, dim):
    """The largest element over dim, as a constant that exp can take off;
    0 where it is infinite (inf - inf would be nan)."""
    high = self.detach().amax(dim, keepdim=True)
    return functions["where"](high.abs() == float("inf"), 0.0, high)


def logsumexp(self, dim, keepdim):
    if not self.dtype.is_floating_point:
        self = self.to(get_default_dtype())
    dims = reduced_dims(dim, len(self.shape))
    if not numel(self.shape[d] for d in dims):
        return self.exp().sum(dim, keepdim).log()
    high = shift(self, dims)
    total = (self - high).exp().sum(dim, keepdim=True).log() + high
    return total if keepdim else total.reshape(
        reduced_shape(self.shape, dims, False))


define("logsumexp(Tensor self, int[] dim, bool keepdim=False) -> Tensor",
       "log(sum(exp(self))) over dimensions, with the largest element taken "
       "out first, so that exp never overflows.", composite=logsumexp)


def shifted_row(row):
    """A row less its largest element, and the sum of its exponentials."""
    if not row:
        return row, 1.0
    top = row[largest(row)]
    low = [value - top for value in row]
    return low, pairwise_sum([math.exp(value) for value in low])


def softmax_row(row):
    low, total = shifted_row(row)
    return [math.exp(value) / total for value in low]


def log_softmax_row(row):
    low, total = shifted_row(row)
    return [value - ieee_log(total) for value in low]


BLOCK = 1 << 16         # elements: 256 kB of float32 fit into a cache


def in_blocks(function):
    """A NumPy function of arrays and an axis, from one that also takes
    the array to fill: for blocks of (rows, along the axis, columns) that
    fit into the cache."""
    def whole(*args):
        *arrays, axis = args
        shape, size = arrays[0].shape, arrays[0].shape[axis]
        out = np.empty(shape, arrays[0].dtype)
        if 0 < out.size <= BLOCK:
            function(*arrays, axis, out)
        elif out.size:
            blocks = [x.reshape(math.prod(shape[:axis]), size, -1)
                      for x in (*arrays, out)]
            for part in parts_of(*blocks[0].shape):
                *arrays, target = [x[part] for x in blocks]
                function(*arrays, 1, target)
        return out
    return whole


def parts_of(rows, size, columns):
    """The blocks of an array of (rows, size, columns)."""
    high = max(1, BLOCK // (size * columns))
    wide = max(16, BLOCK // size)
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            yield slice(i, i + high), slice(None), slice(j, j + wide)


SHORT = 32              # elements: a row that NumPy's loops are slow along


def short_rows(x, dim):
    """Whether dim is along the short rows of a contiguous float matrix."""
    shape = x.shape
    return (len(shape) == 2 and (dim == 1 or dim == -1)
            and shape[1] <= SHORT and 0 < x.size <= BLOCK
            and x.dtype.char in "fd" and x.flags.c_contiguous)


def softmax_block(x, axis, out):
    np.exp(x, out)                  # most rows need no shift
    total = reduce_rows(np.add, out, (axis,), True)
    if not (total.min() >= 1 and total.max() < np.inf):
        shift = reduce_rows(np.maximum, x, (axis,), True)
        np.exp(np.subtract(x, shift, out), out)
        total = reduce_rows(np.add, out, (axis,), True)
    np.divide(out, total, out)


def log_softmax_short(x):
    low = x.T.copy()                # columns, as in reduce_rows
    low -= np.maximum.reduce(low, 0)
    total = row_of_ones(len(low), low.dtype).dot(np.exp(low))
    low -= np.log(total)
    return low.T.copy()


def log_softmax_block(x, axis, out):
    size = x.shape[axis]
    if size <= SHORT and size < x.size and math.prod(x.shape[axis + 1:]) == 1:
        out.reshape(-1, size)[...] = log_softmax_short(x.reshape(-1, size))
        return
    shift = np.maximum.reduce(x, axis, None, None, True)
    np.subtract(x, shift, out)
    total = np.add.reduce(np.exp(out), axis, None, None, True)
    np.subtract(out, np.log(total), out)


def check_float(name, self, dtype):
    """The tensor in the dtype wanted, if that is a float."""
    self = self.to(dtype) if dtype else self
    if not self.dtype.is_floating_point:
        raise NotImplementedError(
            f"{name}() is not implemented for {self.dtype}; give a "
            f"floating-point dtype: {name}(dim, dtype=lamina.float32)")
    return self


def exponential(name, doc, python, numpy):
    """Define softmax or its logarithm."""
    rowwise(f"_{name}(Tensor self, int dim) -> Tensor", doc, python, numpy)
    define(f"{name}.int(Tensor self, int dim, ScalarType? dtype=None) "
           f"-> Tensor", doc, composite=lambda self, dim, dtype:
           functions["_" + name](check_float(name, self, dtype), dim))


exponential("softmax", "exp(self) over its sum along a dimension.",
            softmax_row, in_blocks(softmax_block))
exponential("log_softmax", "The logarithm of softmax, computed without it.",
            log_softmax_row, in_blocks(log_softmax_block))
log_softmax_of_any = operators["_log_softmax"].kernels.get(CPU)


@impl("_log_softmax", "cpu")
def cpu_log_softmax(self, dim):
    x = array(self)
    if short_rows(x, dim):
        return own(quiet(log_softmax_short, x), self.dtype)
    return log_softmax_of_any(self, dim)


def log_add(a, b):
    """log(exp(a) + exp(b)); nan if one is."""
    high, low = (b, a) if b > a or b != b else (a, b)
    if math.isinf(high) or high != high or low != low:
        return high if low == low else low
    return high + math.log1p(math.exp(low - high))


rowwise("_logcumsumexp(Tensor self, int dim) -> Tensor", "As its name says.",
        lambda row: accumulate(row, log_add),
        np and accumulated(np.logaddexp))
define("logcumsumexp(Tensor self, int dim) -> Tensor",
       "The logsumexp of the elements so far, along a dimension.",
       composite=lambda self, dim: functions["_logcumsumexp"](
           check_float("logcumsumexp", self, None), dim))


def norm_of(row, p):
    row = [abs(value) for value in row]
    if p in (math.inf, -math.inf):
        return row[(largest if p > 0 else smallest)(row)]
    if p == 0:
        return sum(value != 0 for value in row)
    total = pairwise_sum([ieee_pow(float(v), float(p)) for v in row])
    return ieee_pow(float(total), 1 / p)


def numpy_norm(x, axis, keepdims, dtype, p):
    x = np.abs(x.astype(dtype, copy=False))
    if p in (math.inf, -math.inf):
        return (np.max if p > 0 else np.min)(x, axis, keepdims=keepdims)
    if p == 0:
        return np.asarray((x != 0).sum(axis, dtype, keepdims=keepdims))
    if p == 2:
        return np.sqrt(numpy_sum(x * x, axis, keepdims, dtype))
    if p == 1:
        return numpy_sum(x, axis, keepdims, dtype)
    total = numpy_sum(x ** dtype.type(p), axis, keepdims, dtype)
    return np.asarray(total) ** dtype.type(1 / p)


reduction("_norm(Tensor self, int[]? dim, bool keepdim, ScalarType? dtype, "
          "Scalar p) -> Tensor", "The p-norm.", norm_of, numpy_norm)


def vector_norm(self, ord=2, dim=None, keepdim=False, dtype=None):
    for each in (self.dtype, dtype):
        if each and not each.is_floating_point:
            raise RuntimeError(f"a norm takes and gives floats, not {each}")
    dims = reduced_dims(dim, len(self.shape))
    if (ord < 0 or ord == math.inf) and not numel(
            self.shape[d] for d in dims):
        raise RuntimeError(f"the {ord}-norm of no elements has no value: "
                           f"dimensions {list(dims)} of {list(self.shape)}")
    return functions["_norm"](self.to(dtype or self.dtype), dim, keepdim,
                              None, ord)


define("linalg_vector_norm(Tensor self, Scalar ord=2, int[]? dim=None, "
       "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
       "The norm of vectors: (sum |x|^ord)^(1 / ord).",
       composite=vector_norm)


@method
def norm(self, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The p-norm over dimensions, or over all; "fro" is 2, and "nuc" the
    sum of a matrix's singular values."""
    if p == "nuc":
        return functions["_nuclear_norm"](self, dim, keepdim, out=out,
                                          dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm(): p is a number, 'fro' or 'nuc'; got "
                           f"{p!r}")
    return functions["linalg_vector_norm"](
        self, 2 if p in ("fro", None) else p, dim, keepdim, out=out,
        dtype=dtype)


def dist(self, other, p):
    return vector_norm(self - other, p)


define("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor",
       "The p-norm of the difference.", composite=dist)


def principal(columns):
    """The rotation V, as a list of columns, after which the columns of a
    matrix are orthogonal. Source: Hestenes, Inversion of matrices by
    biorthogonalization, 1958."""
    size = len(columns)
    turned = [[float(i == j) for i in range(size)] for j in range(size)]
    columns, done = [list(c) for c in columns], False
    for _ in range(60):
        done = True
        for i in range(size):
            for j in range(i):
                a, b = columns[i], columns[j]
                ab = sum(map(operator.mul, a, b))
                aa, bb = (sum(map(operator.mul, c, c)) for c in (a, b))
                if abs(ab) <= 1e-15 * math.sqrt(aa * bb) or ab != ab:
                    continue
                done = False
                angle = 0.5 * math.atan2(2 * ab, aa - bb)
                c, s = math.cos(angle), math.sin(angle)
                for rows in (columns, turned):
                    rows[i], rows[j] = (
                        [c * p + s * q for p, q in zip(rows[i], rows[j])],
                        [c * q - s * p for p, q in zip(rows[i], rows[j])])
        if done:
            break
    return turned


define("_principal(Tensor A) -> Tensor", "The rotation V after which the "
       "columns of each matrix are orthogonal.")


@impl("_principal", "python")
def python_principal(A):
    *batch, rows, size = A.shape
    columns = reduced_rows(A, (len(A.shape) - 2,))
    found = [value for i in range(0, len(columns), max(1, size))
             for column in principal(columns[i:i + size])
             for value in column]
    out = empty((*batch, size, size), dtype=A.dtype, device="python")
    write_values(out.transpose(-1, -2), found)
    return out


@impl("_principal", "cpu")
def cpu_principal(A):
    return from_array(np.swapaxes(np.linalg.svd(array(A))[2], -1, -2))


@impl("_principal", "meta")
def meta_principal(A):
    return empty(A.shape[:-2] + A.shape[-1:] * 2, dtype=A.dtype,
                 device="meta")


def nuclear_norm(self, dim, keepdim, dtype):
    rank, dtype = len(self.shape), dtype or self.dtype
    if not (dtype.is_floating_point and self.dtype.is_floating_point):
        raise RuntimeError(f"a norm takes and gives floats, not "
                           f"{self.dtype}")
    dims = tuple(range(rank)) if dim is None else tuple(
        wrap_dim(d, rank) for d in dim)
    if len(set(dims)) != 2:
        raise RuntimeError(f"norm('nuc') is of a matrix: two dimensions; "
                           f"got {list(dims)} of {list(self.shape)}")
    A = self.to(dtype).permute(
        [d for d in range(rank) if d not in dims] + list(dims))
    if A.shape[-2] < A.shape[-1]:       # the fewer columns, the better
        A = A.transpose(-1, -2)
    V = functions["_principal"](A.detach())
    turned = (A.unsqueeze(-1) * V.unsqueeze(-3)).sum(-2)
    length = vector_norm(turned, 2, -2)
    return (length.sum(-1) - bend(turned, length.detach())).reshape(
        reduced_shape(self.shape, dims, keepdim))


def bend(turned, length):
    """0, with the second derivative that the sum of lengths lacks because
    V is held: of pairs of columns, which are no longer orthogonal when
    the matrix moves. Source: second-order perturbation of eigenvalues."""
    product = (turned.unsqueeze(-1) * turned.unsqueeze(-2)).sum(-3)
    a, b = length.unsqueeze(-1), length.unsqueeze(-2)
    size = a * b * (a + b)
    column = counting(product, -1)
    pairs = (column < column.transpose(-1, -2)) * (size > 0)
    size = functions["where"](pairs, size, 1)
    return (functions["where"](pairs, product, 0) ** 2 / size).sum(
        (-1, -2)) * 0.5


define("_nuclear_norm(Tensor self, int[]? dim, bool keepdim, *, "
       "ScalarType? dtype) -> Tensor", "The sum of singular values.",
       composite=nuclear_norm)


def grouped(name, rows, order, shape, inverse, counts):
    """unique's results, from a matrix and the order in which to see it."""
    rows, place = rows.index_select(0, order), counting(order)
    before = functions["where"](place > 0, place - 1, 0)
    differs = (rows != rows.index_select(0, before)).any(1)
    group = differs.cumsum(0) - differs.narrow(0, 0, 1).to(int64)
    size = group.narrow(0, -1, 1).item() + 1
    index, width = group.unsqueeze(1).expand(rows.shape), rows.shape[1]
    found = [rows.new_zeros((size, width)).scatter(0, index, rows)]
    if inverse:
        found.append(place.scatter(0, order, group).reshape(shape))
    if counts:
        found.append(place.new_zeros(size).scatter_add(0, group,
                                                       place * 0 + 1))
    return found


def as_rows(self, dim):
    """A matrix of what unique compares; the shape of one row."""
    if dim is None:
        return self.reshape(self.numel(), 1), ()
    moved = self.movedim(dim, 0) if self.shape else self.reshape(1)
    if 0 in moved.shape[1:]:
        raise RuntimeError(f"unique() along dimension {dim} of "
                           f"{list(self.shape)}: a slice has no elements")
    return moved.reshape(moved.shape[0], numel(moved.shape[1:])), (
        moved.shape[1:])


def find_groups(name, self, ordered, inverse, counts, dim):
    rows, rest = as_rows(self, dim)
    order = counting(rows.select(1, 0))
    shape = self.shape if dim is None else order.shape
    if not len(order):
        empties = order, order.reshape(shape), order
        found = [rows] + [
            x for x, wanted in zip(empties, (0, inverse, counts)) if wanted]
    else:
        if ordered:     # by the last column first: equal ones keep order
            for column in reversed(range(rows.shape[1])):
                key = rows.select(1, column).index_select(0, order)
                order = order.index_select(0, key.argsort())
        found = grouped(name, rows, order, shape, inverse, counts)
    values = found[0].reshape((len(found[0]), *rest))
    found[0] = values if dim is None or not self.shape else (
        values.movedim(0, dim))
    return found[0] if len(found) == 1 else tuple(found)


@method
def unique(input, sorted=True, return_inverse=False, return_counts=False,
           dim=None):
    """The different elements, or along `dim` the different slices, in
    their order; with their places in it and how often each occurs, if
    that is asked for. Source of the result's order: torch.unique."""
    return find_groups("unique", input, True, return_inverse,
                       return_counts, dim)


@method
def unique_consecutive(input, return_inverse=False, return_counts=False,
                       dim=None):
    """unique, of neighbours only."""
    return find_groups("unique_consecutive", input, False, return_inverse,
                       return_counts, dim)


def bincount(self, weights, minlength):
    if len(self.shape) != 1 or self.dtype.category != 1 or minlength < 0:
        raise RuntimeError(f"bincount() takes a vector of integers and a "
                           f"minlength from 0; got {self.dtype} of shape "
                           f"{list(self.shape)} and {minlength}")
    low, high = (self.min().item(), self.max().item()) if len(
        self) else (0, -1)
    if low < 0 or (weights is not None and weights.shape != self.shape):
        raise RuntimeError(f"bincount(): the smallest element is {low}, "
                           f"which must not be below 0, and weights must "
                           f"have the shape {list(self.shape)}")
    if weights is None:
        weights = full((), 1, dtype=int64, device=self.device)
    elif weights.dtype is not float32:
        weights = weights.to(float64)
    start = weights.new_zeros(max(high + 1, minlength))
    return start.scatter_add(0, self.to(int64), weights.expand(self.shape))


def histc(self, bins, min, max):
    if not self.dtype.is_floating_point or bins < 1 or max < min:
        raise RuntimeError(f"histc() takes floats, at least one bin and "
                           f"min <= max; got {self.dtype}, bins={bins}, "
                           f"min={min}, max={max}")
    x = self.reshape(-1)
    if min == max and len(x):
        min, max = x.min().item(), x.max().item()
    if not (math.isfinite(min) and math.isfinite(max)):
        raise RuntimeError(f"histc(): the range from {min} to {max} is not "
                           f"finite")
    if min == max:
        min, max = min - 1, max + 1
    inside = (x >= min) * (x <= max)
    bin = functions["where"](inside, (x - min) * (bins / (max - min)), 0.0)
    bin = bin.to(int64)
    bin = functions["where"](bin >= bins, bins - 1, bin)
    return x.new_zeros(bins).scatter_add(0, bin, inside.to(x.dtype))


define("bincount(Tensor self, Tensor? weights=None, int minlength=0) "
       "-> Tensor", "How often each number from 0 occurs, or the sum of its "
       "weights.", composite=bincount)
define("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) "
       "-> Tensor", "How many elements lie in each of so many equal bins; "
       "min = max is the range of the data.", composite=histc)


def search(rows, values, right):
    """Halve the part of each row in which each value may stand, for all
    values at once."""
    low = counting(values, 1) * 0
    high = low + rows.shape[1]
    for _ in range(rows.shape[1].bit_length()):
        middle = ((low + high) * 0.5).to(int64)
        open = low < high
        here = rows.gather(1, functions["where"](open, middle, 0))
        left_of = here > values if right else here >= values
        high = functions["where"](open * left_of, middle, high)
        low = functions["where"](open * (left_of == False), middle + 1, low)
    return low


def searchsorted(sorted_sequence, self, out_int32=False, right=False,
                 side=None, sorter=None):
    if side not in (None, "left", "right") or (right and side == "left"):
        raise RuntimeError(f"searchsorted(): side is 'left' or 'right', and "
                           f"right={right} must agree; got {side!r}")
    rows = sorted_sequence
    refuse_bool("searchsorted", rows)
    met = result_type(rows, self)
    if not isinstance(self, Tensor):
        self = full((), self, device=rows.device)
    self, rows = self.to(met), rows.to(met)
    shared = len(rows.shape) == 1
    if not rows.shape or not (shared or rows.shape[:-1] == self.shape[:-1]):
        raise RuntimeError(
            f"searchsorted(): rows of shape {list(rows.shape)} for values of "
            f"shape {list(self.shape)}; expected a vector, or equal sizes "
            f"but in the last dimension")
    if sorter is not None:
        if sorter.dtype is not int64 or sorter.shape != rows.shape:
            raise RuntimeError(f"searchsorted(): sorter must be int64 of "
                               f"shape {list(rows.shape)}; got "
                               f"{sorter.dtype} of {list(sorter.shape)}")
        rows = rows.gather(-1, sorter)
    count = 1 if shared else numel(rows.shape[:-1])
    values = self.reshape(count, self.numel() // max(count, 1))
    found = search(rows.reshape(count, rows.shape[-1]), values,
                   right or side == "right").reshape(self.shape)
    return found.to(int32) if out_int32 else found


options = "bool out_int32=False, bool right=False"
for kind, value in (("Tensor", "Tensor"), ("Scalar", "Scalar")):
    define(f"searchsorted.{kind}(Tensor sorted_sequence, {value} self, *, "
           f"{options}, str? side=None, Tensor? sorter=None) -> Tensor",
           "The first place of each row at which a value could stand; with "
           "right, the last one.", composite=searchsorted)
    define(f"bucketize.{kind}({value} self, Tensor boundaries, *, {options})"
           f" -> Tensor", "The number of the bucket between boundaries.",
           composite=lambda self, boundaries, out_int32, right:
           searchsorted(boundaries, self, out_int32, right))


def diff(self, n, dim, prepend, append):
    if not self.shape or n < 0:
        raise RuntimeError(f"diff() takes a tensor with dimensions and an "
                           f"order from 0; got shape {list(self.shape)} "
                           f"and n={n}")
    parts = [x for x in (prepend, self, append) if x is not None]
    if len(parts) > 1 and n:
        self = functions["cat"](parts, dim)
    for _ in range(n):
        size = max(row_length(self, dim) - 1, 0)
        late = self.narrow(dim, min(1, row_length(self, dim)), size)
        early = self.narrow(dim, 0, size)
        self = late != early if self.dtype is bool_ else late - early
    return self


def trapezoid(y, x=None, dx=1, dim=-1):
    d, size = wrap_dim(dim, len(y.shape)), row_length(y, dim)
    refuse_bool("trapezoid", y, RuntimeError)
    if not size:
        return y.sum(d)
    if x is None:
        return (y.sum(d) - (y.select(d, 0) + y.select(d, -1)) * 0.5) * dx
    middle = y.narrow(d, 1, size - 1) + y.narrow(d, 0, size - 1)
    if len(x.shape) == 1 and len(y.shape) > 1:
        if x.shape[0] != size:
            raise RuntimeError(f"trapezoid(): {x.shape[0]} points for "
                               f"{size} values along dimension {d}")
        x = x.reshape([-1 if k == d else 1 for k in range(len(y.shape))])
    return (middle * x.diff(1, d)).sum(d) / 2


define("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, "
       "Tensor? append=None) -> Tensor", "The differences of neighbours "
       "along a dimension, n times.", composite=diff)
define("trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
       "The area under the points (x, y) joined by lines.",
       composite=lambda y, x, dim: trapezoid(y, x, dim=dim))
define("trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
       "The area under values at a distance of dx, joined by lines.",
       composite=lambda y, dx, dim: trapezoid(y, None, dx, dim))


def quantile(self, q, dim, keepdim, interpolation):
    words = "linear", "lower", "higher", "midpoint", "nearest"
    if interpolation not in words or self.dtype.category != 2:
        raise RuntimeError(f"quantile() takes floats and an interpolation "
                           f"out of {', '.join(words)}; got {self.dtype} "
                           f"and {interpolation!r}")
    if not isinstance(q, Tensor):
        q = full((), q, dtype=self.dtype, device=self.device)
    if q.dtype is not self.dtype or len(q.shape) > 1 or not self.numel():
        raise RuntimeError(f"quantile(): q must be a number or a vector of "
                           f"{self.dtype}, and there must be elements; got "
                           f"{q.dtype} of shape {list(q.shape)} for "
                           f"{list(self.shape)}")
    if ((q < 0) + (q > 1)).any().item():
        raise RuntimeError("quantile(): q must lie from 0 to 1")
    rank, d = len(self.shape), wrap_dim(dim or 0, len(self.shape))
    x = self.reshape(-1)
    if dim is not None and rank:
        x = self.permute([k for k in range(rank) if k != d] + [d])
    last = x.shape[-1] - 1
    values = x.sort(-1).values
    nan = (x != x).any(-1, True)
    place = q.reshape(-1) * last * full((), 1, dtype=self.dtype,
                                        device=self.device)
    place = functions["where"](nan, last, place).expand(
        x.shape[:-1] + (q.numel(),))
    low = place.to(int64)
    weight = place - low
    high = low + (weight > 0)
    if interpolation == "nearest":          # of two, the even one
        odd = low * 0.5 != (low * 0.5).to(int64)
        low = functions["where"](
            (weight > 0.5) + (weight == 0.5) * odd, high, low)
    if interpolation in ("lower", "nearest", "higher"):
        found = values.gather(
            -1, high if interpolation == "higher" else low)
    else:
        if interpolation == "midpoint":
            weight = (weight > 0) * 0.5
        below, above = values.gather(-1, low), values.gather(-1, high)
        found = below + (above - below) * weight
    last = len(found.shape) - 1             # to the front with it
    found = found.permute([last, *range(last)])
    if keepdim and dim is None:
        found = found.reshape((-1,) + (1,) * rank)
    elif keepdim and rank:
        found = found.unsqueeze(1 + d)
    return found if q.shape else found.squeeze(0)


for name, kind in (("quantile", "Tensor"), ("quantile.scalar", "float")):
    define(f"{name}(Tensor self, {kind} q, int? dim=None, "
           f"bool keepdim=False, *, str interpolation='linear') -> Tensor",
           "The elements at fractions q of the sorted order.",
           composite=quantile)


def masked_scatter(self, mask, source):
    if mask.dtype is not bool_ or source.dtype is not self.dtype:
        raise RuntimeError(f"masked_scatter() takes a bool mask and a "
                           f"source of {self.dtype}; got {mask.dtype} and "
                           f"{source.dtype}")
    shape = broadcast_shapes(self.shape, mask.shape)
    self, mask = (x.expand(shape).contiguous() for x in (self, mask))
    where = mask.reshape(-1).cumsum(0) - 1
    if mask.any().item() and where.narrow(0, -1, 1).item() >= (
            source.numel()):
        raise RuntimeError(f"masked_scatter(): the mask names more than the "
                           f"{source.numel()} elements of source")
    where = functions["where"](mask.reshape(-1), where, 0)
    if not source.numel():
        return self.clone()
    chosen = source.reshape(-1).gather(0, where).reshape(shape)
    return functions["where"](mask, chosen, self)


define("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
       "self with the elements of source, in their order, where the mask "
       "holds.", composite=masked_scatter, inplace=True)


def sum_to_size(self, size):
    if broadcast_shapes(self.shape, size) != self.shape:
        raise RuntimeError(f"sum_to_size(): {list(size)} does not broadcast "
                           f"to {list(self.shape)}")
    if not size:
        return self.sum()
    new = len(self.shape) - len(size)
    dims = [d for d, n in enumerate(self.shape)
            if d < new or size[d - new] == 1 != n]
    return (self.sum(dims, True) if dims else self).reshape(size)


define("sum_to_size(Tensor self, int[] size) -> Tensor", "The sum over the "
       "dimensions along which that size was broadcast.",
       composite=sum_to_size)


def trace(self):
    if len(self.shape) != 2:
        raise RuntimeError(f"trace() takes a matrix; got shape "
                           f"{list(self.shape)}")
    refuse_bool("trace", self)
    return self.diagonal().sum()


def diag(self, diagonal):
    if len(self.shape) not in (1, 2):
        raise RuntimeError(f"diag() takes a vector or a matrix; got shape "
                           f"{list(self.shape)}")
    if len(self.shape) == 2:
        return self.diagonal(diagonal).clone()
    size = len(self) + abs(diagonal)
    first = diagonal if diagonal > 0 else -diagonal * size
    place = counting(self) * (size + 1) + first
    return self.new_zeros(size * size).scatter(0, place, self).reshape(
        size, size)


define("trace(Tensor self) -> Tensor", "The sum of a matrix's diagonal.",
       composite=trace)
define("diag(Tensor self, int diagonal=0) -> Tensor", "A matrix's diagonal "
       "as a vector, or a matrix with a vector as its diagonal.",
       composite=diag)


def mse_loss(input, target, reduction):
    if input.shape != target.shape:
        warnings.warn(f"mse_loss(): shapes {list(input.shape)} and "
                      f"{list(target.shape)} differ and are broadcast; that "
                      f"is seldom meant", stacklevel=3)
    return reduced((input - target) ** 2, reduction)


def check_reduction(reduction):
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none'; got "
                         f"{reduction!r}")


def reduced(loss, reduction):
    """A loss for each element as its mean, its sum, or as it is."""
    check_reduction(reduction)
    return loss if reduction == "none" else getattr(loss, reduction)()


define("mse_loss(Tensor input, Tensor target, str reduction='mean') "
       "-> Tensor", "The mean of the squared differences.",
       composite=mse_loss)
