"""Reductions: many elements to one.

Exported from chapters/05_reductions.ipynb by `course export`; edit the
chapter, not this file.
"""

import warnings

from lamina.broadcasting import functions, quiet
from lamina.dispatch import array, define, from_array, impl, np, operators
from lamina.storage import bool_, get_default_dtype, int32, int64, uint8, wrap
from lamina.strides import (
    clone, empty, empty_like, flat, numel, offsets, permute, wrap_dim,
    write_values,
)

__all__ = ["pairwise_sum", "reduction"]


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


def plan_reduction(name, x, dim, keepdim, empty_ok):
    """The dimensions to reduce and the shape of the result, or an error
    where there is nothing to choose from."""
    dims = reduced_dims(dim, len(x.shape))
    if not empty_ok and not numel(x.shape[d] for d in dims):
        error = IndexError          # the classes that PyTorch raises
        if dim in (None, ()) and not name.startswith("arg"):
            error = RuntimeError
        raise error(f"{name}(): no elements to choose from: reducing "
                    f"dimensions {list(dims)} of shape {list(x.shape)}; "
                    f"each must have at least one element")
    return dims, reduced_shape(x.shape, dims, keepdim)


def reduction(schema, doc, python, numpy, dtype=lambda d: d, empty_ok=True):
    """Declare an operator that reduces dimensions.

    `python` turns a list of numbers into one, `numpy` takes an array,
    `axis`, `keepdims` and `dtype`; `dtype` gives the result's dtype from
    the input's. Without `empty_ok` no elements have no answer.
    """
    op = define(schema, doc)
    name = op.schema.name

    def python_kernel(self, dim, keepdim, wanted=None):
        dims, shape = plan_reduction(name, self, dim, keepdim, empty_ok)
        rows = reduced_rows(self, dims)
        if wanted:          # convert, then reduce: not the other way round
            rows = [[wrap(wanted, value) for value in row] for row in rows]
        out = empty(shape, dtype=wanted or dtype(self.dtype),
                    device="python")
        return write_values(out, [python(row) for row in rows])

    def cpu_kernel(self, dim, keepdim, wanted=None):
        dims, _ = plan_reduction(name, self, dim, keepdim, empty_ok)
        out_dtype = wanted or dtype(self.dtype)
        return from_array(quiet(numpy, array(self), axis=dims,
                                keepdims=keepdim, dtype=out_dtype.name))

    def meta_kernel(self, dim, keepdim, wanted=None):
        _, shape = plan_reduction(name, self, dim, keepdim, empty_ok)
        return empty(shape, dtype=wanted or dtype(self.dtype),
                     device="meta")

    impl(op.schema.full_name, "python")(python_kernel)
    impl(op.schema.full_name, "cpu")(cpu_kernel)
    impl(op.schema.full_name, "meta")(meta_kernel)
    return op


def numpy_sum(x, axis, keepdims, dtype):
    """np.add.reduce, in halves where NumPy would add row after row.

    NumPy adds pairwise along the dimension that lies closest in memory,
    and from first to last along the others.
    """
    wide = [d for d in range(x.ndim) if x.shape[d] > 1]
    closest = min(wide, key=lambda d: abs(x.strides[d]), default=None)
    longest = max(axis, key=lambda d: x.shape[d], default=None)
    if (closest is None or closest in axis or x.shape[longest] <= 128
            or np.dtype(dtype).kind != "f"):
        return np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=dtype)
    half = x.shape[longest] // 2
    before = (slice(None),) * longest
    return (numpy_sum(x[*before, :half], axis, keepdims, dtype)
            + numpy_sum(x[*before, half:], axis, keepdims, dtype))


def sum_dtype(dtype):
    """The dtype of a sum: integers and bools are counted in int64."""
    return dtype if dtype.is_floating_point else int64


reduction("sum.dim_IntList(Tensor self, int[]? dim=None, bool keepdim=False,"
          " *, ScalarType? dtype=None) -> Tensor",
          "The sum over dimensions, or over all. Integers are summed in "
          "int64.", pairwise_sum, np and numpy_sum, sum_dtype)


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
          lambda row: row[largest(row)], np and untyped(np.max),
          empty_ok=False)
reduction("amin(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
          "The smallest element over dimensions; nan if there is one.",
          lambda row: row[smallest(row)], np and untyped(np.min),
          empty_ok=False)


def flat_axis(function):
    """NumPy's argmax over one axis, or over all elements in order."""
    def reduce(x, axis, keepdims, dtype):
        if len(axis) == 1:
            return function(x, axis=axis[0], keepdims=keepdims)
        found = np.asarray(function(x))
        return found.reshape((1,) * x.ndim) if keepdims else found
    return reduce


reduction("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
          "The index of the largest element along a dimension (the first "
          "of equals), or in the flattened tensor.", largest,
          np and flat_axis(np.argmax), lambda dtype: int64, empty_ok=False)
reduction("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
          "The index of the smallest element along a dimension (the first "
          "of equals), or in the flattened tensor.", smallest,
          np and flat_axis(np.argmin), lambda dtype: int64, empty_ok=False)


define("gather(Tensor self, int dim, Tensor index) -> Tensor",
       "Elements chosen along a dimension: out[i][j] = "
       "self[index[i][j]][j] for dim 0, self[i][index[i][j]] for dim 1.")
define("scatter_add(Tensor self, int dim, Tensor index, Tensor src) "
       "-> Tensor", "self with src added at the places that gather would "
       "read; a place named twice gets both.", inplace=True)


def check_index_fits(name, index, x, free=None):
    """Refuse an index that is larger than x, but along dimension free."""
    if index.dtype not in (int32, int64):
        raise RuntimeError(f"{name}(): index must be int64 or int32, not "
                           f"{index.dtype}")
    if len(index.shape) != len(x.shape) or any(
            n > m for d, (n, m) in enumerate(zip(index.shape, x.shape))
            if d != free):
        raise RuntimeError(
            f"{name}(): an index of shape {list(index.shape)} does not fit "
            f"{list(x.shape)}: expected as many dimensions, and no size "
            f"larger" + ("" if free is None else f" but in dimension {free}"))


def check_scatter(self, dim, index, src):
    """Refuse what cannot be scattered; give the dimension's number."""
    d = wrap_dim(dim, len(self.shape))
    check_index_fits("scatter_add", index, self, d)
    check_index_fits("scatter_add", index, src)
    if src.dtype is not self.dtype:
        raise RuntimeError(f"scatter_add(): src is {src.dtype}, self is "
                           f"{self.dtype}: convert one with .to()")
    return d


def check_range(name, low, high, d, size):
    if low < 0 or high >= size:
        raise RuntimeError(f"{name}(): index {low if low < 0 else high} is "
                           f"out of range: dimension {d} has size {size}, "
                           f"so expected 0 to {size - 1}")


def places(name, self, d, index):
    """The stored element of `self` that each element of `index` names."""
    chosen = flat(index)
    size, step = (self.shape[d], self.stride(d)) if self.shape else (1, 0)
    if chosen:
        check_range(name, min(chosen), max(chosen), d, size)
    start = self.geometry._replace(shape=index.shape, strides=tuple(
        0 if k == d else s for k, s in enumerate(self.stride())))
    return [o + i * step for o, i in zip(offsets(start), chosen)]


@impl("gather", "python")
def python_gather(self, dim, index):
    d = wrap_dim(dim, len(self.shape))
    check_index_fits("gather", index, self, d)
    memory = self.storage.elements(self.dtype)
    values = [memory[p] for p in places("gather", self, d, index)]
    return write_values(
        empty(index.shape, dtype=self.dtype, device="python"), values)


@impl("scatter_add", "python")
def python_scatter_add(self, dim, index, src):
    d = check_scatter(self, dim, index, src)
    out = clone(self)
    memory, source = (t.storage.elements(t.dtype) for t in (out, src))
    part = src.geometry._replace(shape=index.shape)
    for p, o in zip(places("scatter_add", out, d, index), offsets(part)):
        memory[p] = wrap(out.dtype, memory[p] + source[o])
    return out


def numpy_places(name, self, d, index):
    """An index for NumPy: open ranges, and `index` along dimension d."""
    chosen = array(index)
    if chosen.size:
        check_range(name, chosen.min(), chosen.max(), d,
                    self.shape[d] if self.shape else 1)
    if not self.shape:
        return ()
    grid = list(np.ogrid[tuple(map(slice, index.shape))])
    grid[d] = chosen
    return tuple(grid)


@impl("gather", "cpu")
def cpu_gather(self, dim, index):
    d = wrap_dim(dim, len(self.shape))
    check_index_fits("gather", index, self, d)
    return from_array(array(self)[numpy_places("gather", self, d, index)])


@impl("scatter_add", "cpu")
def cpu_scatter_add(self, dim, index, src):
    d = check_scatter(self, dim, index, src)
    out = array(self).copy(order="C")
    np.add.at(out, numpy_places("scatter_add", self, d, index),
              array(src)[tuple(map(slice, index.shape))])
    return from_array(out)


@impl("gather", "meta")
def meta_gather(self, dim, index):
    check_index_fits("gather", index, self,
                     wrap_dim(dim, len(self.shape)))
    return empty(index.shape, dtype=self.dtype, device="meta")


@impl("scatter_add", "meta")
def meta_scatter_add(self, dim, index, src):
    check_scatter(self, dim, index, src)
    return empty_like(self)


def index_select(self, dim, index):
    d = wrap_dim(dim, len(self.shape))
    if len(index.shape) != 1:
        raise IndexError(f"index_select() takes a vector of indices; got "
                         f"one of shape {list(index.shape)}")
    if not self.shape:          # one element, as often as it is named
        return self.gather(0, index.reshape(()))
    shape = list(self.shape)
    shape[d] = index.shape[0]
    column = [1] * len(shape)
    column[d] = index.shape[0]
    return self.gather(d, index.reshape(column).expand(shape))


define("index_select(Tensor self, int dim, Tensor index) -> Tensor",
       "The indices of a dimension that a vector names, in its order.",
       composite=index_select)


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


def extreme(name):
    """Define max or min: over all, and over a dimension with the places."""
    def over_all(self):
        if not self.numel():
            raise RuntimeError(f"{name}() of no elements: there is none to "
                               f"choose in shape {list(self.shape)}")
        return getattr(self, "a" + name)()

    def along(self, dim, keepdim):
        result = operators[name + ".dim"].result
        d = wrap_dim(dim, len(self.shape))
        where = getattr(self, "arg" + name)(dim, keepdim=True)
        if not self.shape:
            return result(self.clone(), where)
        values = self.gather(d, where)
        return result(values, where) if keepdim else result(
            values.squeeze(d), where.squeeze(d))

    define(f"{name}(Tensor self) -> Tensor",
           f"The {name}imum of all elements; nan if there is one.",
           composite=over_all)
    define(f"{name}.dim(Tensor self, int dim, bool keepdim=False) "
           f"-> (Tensor values, Tensor indices)",
           f"Over a dimension: the {name}imum, and its first index.",
           composite=along)


extreme("max")
extreme("min")


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


def centred(name, self, dim, dtype):
    """self minus its largest element along dim, in the dtype wanted."""
    self = self.to(dtype or self.dtype)
    if not self.dtype.is_floating_point:
        raise NotImplementedError(
            f"{name}() is not implemented for {self.dtype}; give a "
            f"floating-point dtype: {name}(dim, dtype=lamina.float32)")
    if not self.numel():
        return self             # there is no largest element
    return self - self.detach().amax(dim, keepdim=True)


def softmax(self, dim, dtype):
    top = centred("softmax", self, dim, dtype).exp()
    return top / top.sum(dim, keepdim=True)


def log_softmax(self, dim, dtype):
    low = centred("log_softmax", self, dim, dtype)
    return low - low.exp().sum(dim, keepdim=True).log()


define("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
       "exp(self) over its sum along a dimension.", composite=softmax)
define("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) "
       "-> Tensor", "The logarithm of softmax, computed without it.",
       composite=log_softmax)


def mse_loss(input, target, reduction):
    if input.shape != target.shape:
        warnings.warn(f"mse_loss(): shapes {list(input.shape)} and "
                      f"{list(target.shape)} differ and are broadcast; that "
                      f"is seldom meant", stacklevel=3)
    return reduced((input - target) ** 2, reduction)


def reduced(loss, reduction):
    """A loss for each element as its mean, its sum, or as it is."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none'; got "
                         f"{reduction!r}")
    return loss if reduction == "none" else getattr(loss, reduction)()


define("mse_loss(Tensor input, Tensor target, str reduction='mean') "
       "-> Tensor", "The mean of the squared differences.",
       composite=mse_loss)
