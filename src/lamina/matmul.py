"""Matmul: three loops, and who runs them.

Exported from chapters/06_matmul.ipynb by `course export`; edit the chapter,
not this file.
"""

import itertools
import math
from string import ascii_letters

from lamina.broadcasting import (
    broadcast_shapes, ieee_log, quiet, result_type, run_quiet,
)
from lamina.dispatch import (
    Namespace, array, build_call, define, from_array, from_outside, functions,
    impl, np, operators, own, sparse_coo,
)
from lamina.storage import int64, wrap
from lamina.strides import (
    Tensor, empty, flat, meshgrid, number_dtype, numel, select, stack, tensor,
    wrap_dim, write_values,
)

__all__ = ["matmul_loops", "sparse"]


def check_matrices(name, a, b, ndim):
    """Refuse what cannot be multiplied; give the product's shape."""
    if len(a.shape) != ndim or len(b.shape) != ndim:
        raise RuntimeError(f"{name}() takes tensors of {ndim} dimensions; "
                           f"got {list(a.shape)} and {list(b.shape)}")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}() takes two tensors of one dtype; got "
                           f"{a.dtype} and {b.dtype}: convert one with .to()")
    if a.dtype.category == 0 and a.numel() and b.numel():
        raise NotImplementedError(f"{name}() is not implemented for "
                                  f"{a.dtype}; convert to a number dtype")
    if a.shape[:-2] != b.shape[:-2]:
        raise RuntimeError(f"{name}(): {list(a.shape)} and {list(b.shape)}: "
                           f"the batches must be of one size")
    check_inner(name, a.shape, b.shape, b.shape[-2])
    return a.shape[:-1] + b.shape[-1:]


def check_inner(name, left, right, rows):
    """Refuse two shapes whose sizes inside differ."""
    if left[-1] != rows:
        raise RuntimeError(
            f"{name}(): {list(left)} times {list(right)}: the last size of "
            f"the first, {left[-1]}, must be the number of rows of the "
            f"second, {rows}")


def matmul_loops(a, b, out):
    """out = a @ b on matrices: three loops over strides, nothing else."""
    x, y, z = (t.storage.elements(t.dtype) for t in (a, b, out))
    (n, k), m = a.shape, b.shape[1]
    (x0, x1), (y0, y1), (z0, z1) = a.stride(), b.stride(), out.stride()
    xo, yo, zo = (t.storage_offset() for t in (a, b, out))
    for i in range(n):
        for j in range(m):
            total = 0
            for p in range(k):
                total += x[xo + i * x0 + p * x1] * y[yo + p * y0 + j * y1]
            z[zo + i * z0 + j * z1] = wrap(out.dtype, total)
    return out


define("mm(Tensor self, Tensor mat2) -> Tensor",
       "The product of two matrices: (n, k) times (k, m) is (n, m).")


@impl("mm", "python")
def python_mm(self, mat2):
    shape = check_matrices("mm", self, mat2, 2)
    return matmul_loops(self, mat2, empty(shape, dtype=self.dtype,
                                          device="python"))


@impl("mm", "meta")
def meta_mm(self, mat2):
    return empty(check_matrices("mm", self, mat2, 2), dtype=self.dtype,
                 device="meta")


@impl("mm", "cpu")
def cpu_mm(self, mat2):
    a, b, dtype = self.array, mat2.array, self.dtype
    a, b = array(self) if a is None else a, array(mat2) if b is None else b
    if a.ndim == b.ndim == 2 and dtype is mat2.dtype and dtype.category:
        try:
            return own(run_quiet(a.dot, b), dtype)
        except (RuntimeError, ValueError):
            pass        # another thread is in the context, or they differ
    check_matrices("mm", self, mat2, 2)
    return own(quiet(a.dot, b), dtype)


define("bmm(Tensor self, Tensor mat2) -> Tensor",
       "The products of two batches of matrices: (b, n, k) times (b, k, m).")


@impl("bmm", "python")
def python_bmm(self, mat2):
    out = empty(check_matrices("bmm", self, mat2, 3), dtype=self.dtype,
                device="python")
    for i in range(out.shape[0]):
        matmul_loops(select(self, 0, i), select(mat2, 0, i),
                     select(out, 0, i))
    return out


@impl("bmm", "meta")
def meta_bmm(self, mat2):
    return empty(check_matrices("bmm", self, mat2, 3), dtype=self.dtype,
                 device="meta")


@impl("bmm", "cpu")
def cpu_bmm(self, mat2):
    check_matrices("bmm", self, mat2, 3)
    return from_array(quiet(np.matmul, array(self), array(mat2)))


def dot(self, tensor):
    if self.dim() != 1 or tensor.dim() != 1 or self.shape != tensor.shape:
        raise RuntimeError(f"dot() takes two vectors of one length; got "
                           f"{list(self.shape)} and {list(tensor.shape)}")
    if self.dtype.category == 0:
        raise NotImplementedError("dot() is not implemented for bool; "
                                  "(a & b).any() is its counterpart")
    return self.unsqueeze(0).mm(tensor.unsqueeze(1)).squeeze()


define("dot(Tensor self, Tensor tensor) -> Tensor",
       "The sum of the products of two vectors' elements.", composite=dot)
define("vdot(Tensor self, Tensor other) -> Tensor",
       "dot(), for numbers that are not complex.", composite=dot)


def matmul(self, other):
    a, b = len(self.shape), len(other.shape)
    if a == 2 and b == 2:
        return self.mm(other)
    if not a or not b:
        raise RuntimeError(f"matmul() takes tensors of at least 1 dimension; "
                           f"got {list(self.shape)} and {list(other.shape)}:"
                           f" for a number use *")
    check_inner("matmul", self.shape, other.shape, other.shape[-min(b, 2)])
    if a == 1 and b == 1:
        return self.dot(other)
    if a == 1:
        return matmul(self.unsqueeze(0), other).squeeze(-2)
    if b == 1:
        return matmul(self, other.unsqueeze(1)).squeeze(-1)
    if b == 2:
        rows = self.reshape(numel(self.shape[:-1]), self.shape[-1])
        return rows.mm(other).reshape(*self.shape[:-1], other.shape[-1])
    return batched(self, other)


def batched(self, other):
    """The product of two tensors whose batches broadcast."""
    if len(self.shape) == 3 and self.shape[:1] == other.shape[:-2]:
        return self.bmm(other)
    batch = broadcast_shapes(self.shape[:-2], other.shape[:-2])
    both = [x.expand(*batch, *x.shape[-2:]).reshape(
        numel(batch), *x.shape[-2:]) for x in (self, other)]
    return both[0].bmm(both[1]).reshape(
        *batch, self.shape[-2], other.shape[-1])


define("matmul(Tensor self, Tensor other) -> Tensor",
       "The product of vectors, matrices, and batches of them: a vector "
       "counts as a row on the left and a column on the right, and batches "
       "broadcast.", composite=matmul)


def reflected_matmul(self, *others):
    other = others[0] if len(others) == 1 else None
    if not isinstance(other, Tensor):
        other = from_outside(other)
    if not isinstance(other, Tensor):
        return NotImplemented
    return functions["matmul"](other, self)


mm = functions["mm"]
any_matmul = build_call(operators["matmul"], "__matmul__", guard="other")


def matmul_sign(self, other):
    """self @ other."""
    if type(self) is type(other) is Tensor:
        a, b = self.array, other.array
        if a is not None and b is not None and a.ndim == b.ndim == 2:
            return mm(self, other)      # the short way
    return any_matmul(self, other)


matmul_sign.operator = operators["matmul"]      # as build_call's have it
Tensor.__matmul__ = matmul_sign
Tensor.__rmatmul__ = reflected_matmul


def mv(self, vec):
    if self.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(f"mv() takes a matrix and a vector; got "
                           f"{list(self.shape)} and {list(vec.shape)}")
    return self.matmul(vec)


def linear(input, weight, bias):
    out = input.matmul(weight.t())
    return out if bias is None else out + bias


define("mv(Tensor self, Tensor vec) -> Tensor",
       "The product of a matrix and a vector.", composite=mv)
define("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
       "input @ weight.T + bias: weight has a row for each output.",
       composite=linear)


@impl("mm", layout=sparse_coo)
def sparse_mm(self, mat2):
    """sparse @ strided; of the layout strided."""
    check_matrices("mm", self, mat2, 2)
    if not self.is_sparse or mat2.is_sparse:
        raise NotImplementedError(
            "mm() of the layout sparse_coo takes a sparse matrix, then a "
            "strided one; for the rest use x.to_dense()")
    rows = [[0] * mat2.shape[1] for _ in range(self.shape[0])]
    other, (places, columns) = mat2.tolist(), self.places.tolist()
    for i, p, a in zip(places, columns, self.entries.tolist()):
        rows[i] = [old + a * b for old, b in zip(rows[i], other[p])]
    return write_values(
        empty((len(rows), mat2.shape[1]), dtype=self.dtype,
              device=self.device), [x for row in rows for x in row])


@impl("mm", "cpu", layout=sparse_coo)
def cpu_sparse_mm(self, mat2):
    if not self.is_sparse or mat2.is_sparse:
        return sparse_mm(self, mat2)
    shape = check_matrices("mm", self, mat2, 2)
    out = np.zeros(shape, array(mat2).dtype)
    places, columns = array(self.places)
    np.add.at(out, places,
              array(self.entries)[:, None] * array(mat2)[columns])
    return from_array(out)


define("sparse_mm(Tensor mat1, Tensor mat2) -> Tensor",
       "The product of a sparse matrix and a strided one.",
       composite=lambda mat1, mat2: functions["mm"](mat1, mat2))
sparse = Namespace("sparse")


def blend(name, self, product, beta, alpha):
    """beta * self + alpha * product, in the product's shape and dtype."""
    if product.dtype.category == 0:
        raise NotImplementedError(f"{name}() is not implemented for bool")
    if self.dtype is not product.dtype:
        raise RuntimeError(f"{name}() takes tensors of one dtype; got "
                           f"{self.dtype} and a product of {product.dtype}")
    self.expand(product.shape)          # refuses what does not fit
    if product.dtype.category < 2:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (self if beta == 1 else self * beta)


def rows_of_batches(name, batch1, batch2):
    """The sum of a batch's products, as one product of long rows."""
    check_matrices(name, batch1, batch2, 3)
    b, n, k = batch1.shape
    return batch1.transpose(0, 1).reshape(n, b * k).mm(
        batch2.reshape(b * k, batch2.shape[2]))


def addmm(self, mat1, mat2, beta, alpha):
    return blend("addmm", self, mat1.mm(mat2), beta, alpha)


def addmv(self, mat, vec, beta, alpha):
    return blend("addmv", self, mat.mv(vec), beta, alpha)


def baddbmm(self, batch1, batch2, beta, alpha):
    return blend("baddbmm", self, batch1.bmm(batch2), beta, alpha)


def addbmm(self, batch1, batch2, beta, alpha):
    product = rows_of_batches("addbmm", batch1, batch2)
    return blend("addbmm", self, product, beta, alpha)


for function, names, doc in [
        (addmm, "mat1 mat2", "mat1 @ mat2"), (addmv, "mat vec", "mat @ vec"),
        (baddbmm, "batch1 batch2", "batch1 @ batch2"),
        (addbmm, "batch1 batch2", "(batch1 @ batch2).sum(0)")]:
    first, second = names.split()
    define(f"{function.__name__}(Tensor self, Tensor {first}, Tensor "
           f"{second}, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
           f"beta * self + alpha * {doc}.", composite=function,
           inplace=True)


def outer(self, vec2):
    if self.dim() != 1 or vec2.dim() != 1:
        raise RuntimeError(f"outer() takes two vectors; got "
                           f"{list(self.shape)} and {list(vec2.shape)}")
    return self.unsqueeze(1) * vec2


def kron(self, other):
    ndim = max(self.dim(), other.dim())
    blocks, inside = ((1,) * (ndim - x.dim()) + x.shape
                      for x in (self, other))
    big = self.reshape([s for size in blocks for s in (size, 1)])
    small = other.reshape([s for size in inside for s in (1, size)])
    return (big * small).reshape([a * b for a, b in zip(blocks, inside)])


define("outer(Tensor self, Tensor vec2) -> Tensor",
       "The products of each element with each.", composite=outer)
define("ger(Tensor self, Tensor vec2) -> Tensor", "outer().",
       composite=outer)
define("kron(Tensor self, Tensor other) -> Tensor",
       "A block for each element: it, times all of other.",
       composite=kron)


def addr(self, vec1, vec2, beta, alpha):
    dtype = result_type(self, vec1, vec2)
    for name, factor in (("beta", beta), ("alpha", alpha)):
        kind = number_dtype(factor).category
        if kind == 2 > dtype.category or kind == 0 < dtype.category:
            raise RuntimeError(f"addr(): {name} is {factor!r}, and the "
                               f"result is {dtype}: give a factor of its "
                               f"kind")
    if dtype.category == 0:
        beta, alpha = bool(beta), bool(alpha)
    product = vec1.outer(vec2)
    self.expand(product.shape)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product.to(dtype)
    return product + (self if beta == 1 else self * beta)


define("addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, "
       "Scalar alpha=1) -> Tensor", "beta * self + alpha * outer(vec1, "
       "vec2).", composite=addr, inplace=True)


def cartesian_prod(tensors):
    if any(x.dim() != 1 for x in tensors):
        raise RuntimeError(f"cartesian_prod() takes vectors; got shapes "
                           f"{[list(x.shape) for x in tensors]}")
    if len(tensors) == 1:
        return tensors[0]
    return stack(meshgrid(*tensors), -1).reshape(
        -1, len(tensors))


def combinations(self, r, with_replacement):
    if self.dim() != 1 or r < 0:
        raise RuntimeError(f"combinations() takes a vector and a number of "
                           f"0 or more; got {list(self.shape)} and {r}")
    if r == 0:
        return self[:0]
    choose = (itertools.combinations_with_replacement if with_replacement
              else itertools.combinations)
    places = list(itertools.chain(*choose(range(self.numel()), r)))
    return self.index_select(0, tensor(
        places, dtype=int64, device=self.device)).reshape(-1, r)


def block_diag(tensors):
    if any(x.dim() > 2 for x in tensors):
        raise RuntimeError(f"block_diag() takes matrices, vectors and "
                           f"numbers; got shapes "
                           f"{[list(x.shape) for x in tensors]}")
    if not tensors:
        return empty(1, 0)
    blocks = [x.reshape((1,) * (2 - x.dim()) + x.shape).to(
        result_type(*tensors)) for x in tensors]
    width, left, bands = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        right = width - left - x.shape[1]
        bands.append(functions["cat"](
            [x.new_zeros(x.shape[0], left), x,
             x.new_zeros(x.shape[0], right)], 1))
        left += x.shape[1]
    return functions["cat"](bands)


def of_tensors(name):
    """A function of tensors one by one, where the operator takes a list."""
    def call(*tensors):
        return operators[name].call(tensors)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = operators[name].call.__doc__
    functions[name] = call


define("cartesian_prod(Tensor[] tensors) -> Tensor",
       "All tuples of one element of each vector.", composite=cartesian_prod)
define("block_diag(Tensor[] tensors) -> Tensor",
       "A matrix with the tensors along its diagonal.",
       composite=block_diag)
define("combinations(Tensor self, int r=2, bool with_replacement=False) "
       "-> Tensor", "All choices of r elements.", composite=combinations)
of_tensors("cartesian_prod")
of_tensors("block_diag")


def tensordot(self, other, dims_self, dims_other):
    if len(dims_self) != len(dims_other):
        raise RuntimeError(f"tensordot(): as many dimensions of one as of "
                           f"the other; got {list(dims_self)} and "
                           f"{list(dims_other)}")
    xs = [wrap_dim(d, self.dim()) for d in dims_self]
    ys = [wrap_dim(d, other.dim()) for d in dims_other]
    if len(set(xs)) < len(xs) or len(set(ys)) < len(ys):
        raise RuntimeError(f"tensordot(): a dimension is there twice in "
                           f"{list(dims_self)} or {list(dims_other)}")
    for d, e in zip(xs, ys):
        if self.shape[d] != other.shape[e]:
            if 1 not in (self.shape[d], other.shape[e]):
                raise RuntimeError(
                    f"tensordot(): dimension {d} of {list(self.shape)} and "
                    f"{e} of {list(other.shape)} differ")
            # a size of 1 meets the sum of the others
            self = self.sum(d, keepdim=True, dtype=self.dtype)
            other = other.sum(e, keepdim=True, dtype=other.dtype)
    left = [d for d in range(self.dim()) if d not in xs]
    right = [e for e in range(other.dim()) if e not in ys]
    rows, columns = ([x.shape[d] for d in dims] for x, dims in
                     ((self, left), (other, right)))
    summed = numel(self.shape[d] for d in xs)
    return self.permute(left + xs).reshape(numel(rows), summed).mm(
        other.permute(ys + right).reshape(summed, numel(columns))).reshape(
        rows + columns)


define("tensordot(Tensor self, Tensor other, int[] dims_self, "
       "int[] dims_other) -> Tensor",
       "The sum of products over some dimensions of each.",
       composite=tensordot)


def tensordot_of(a, b, dims=2, out=None):
    """The sum of products over dimensions: `dims` of them, or two lists.

    RuntimeError if the sizes differ.
    """
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int) and not isinstance(dims, bool):
        if not 0 <= dims <= min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot(): dims is {dims}; expected 0 to "
                               f"{min(a.dim(), b.dim())} for tensors of "
                               f"{a.dim()} and {b.dim()} dimensions")
        dims = range(a.dim() - dims, a.dim()), range(dims)
    elif not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise RuntimeError(f"tensordot(): dims is a number, or a list of "
                           f"dimensions for each tensor; got {dims!r}")
    xs, ys = ([d] if isinstance(d, int) else list(d) for d in dims)
    return operators["tensordot"].call(a, b, xs, ys, out=out)


def inner(self, other):
    if not self.dim() or not other.dim():
        return self * other
    if self.shape[-1] != other.shape[-1]:
        raise RuntimeError(f"inner(): the last sizes of {list(self.shape)} "
                           f"and {list(other.shape)} differ")
    return operators["tensordot"].call(self, other, [-1], [-1])


tensordot_of.__name__ = tensordot_of.__qualname__ = "tensordot"
functions["tensordot"] = tensordot_of
define("inner(Tensor self, Tensor other) -> Tensor",
       "The products of all rows with all rows.", composite=inner)


def labels_of(term, ndim, place):
    """A label for each dimension: a letter, or a number for one of an
    ellipsis, counted from the right."""
    front, dots, back = term.partition("...")
    for letter in front + back:
        if not (letter.isascii() and letter.isalpha()):
            raise RuntimeError(f"einsum(): {letter!r} in {term!r} is no "
                               f"letter, nor part of one ellipsis")
    rest = ndim - len(front + back)
    if rest < 0 or rest and not dots:
        raise RuntimeError(f"einsum(): {term!r} names {len(front + back)} "
                           f"dimensions, and operand {place} has {ndim}")
    return [*front, *reversed(range(rest)), *back]


def result_labels(term, used):
    """The labels of the result; without an arrow, those used once, in
    alphabetical order."""
    dots = sorted({label for label in used if isinstance(label, int)})[::-1]
    letters = [label for label in used if isinstance(label, str)]
    if term is None:
        return dots + sorted(x for x in letters if letters.count(x) == 1)
    front, _, back = term.partition("...")
    for letter in front + back:
        if letter not in letters or (front + back).count(letter) > 1:
            raise RuntimeError(f"einsum(): {letter!r} in the result "
                               f"{term!r} must be in an operand, and once "
                               f"in the result")
    return [*front, *(dots if "..." in term else ()), *back]


def take_diagonals(x, labels, place):
    """x with one dimension for each label, and the labels once each."""
    sizes, steps = {}, {}
    for label, size, step in zip(labels, x.shape, x.stride()):
        if sizes.setdefault(label, size) != size:
            raise RuntimeError(f"einsum(): {label!r} is {sizes[label]} and "
                               f"{size} in operand {place}, of "
                               f"{list(x.shape)}")
        steps[label] = steps.get(label, 0) + step
    if len(sizes) < len(labels):
        x = x.as_strided(list(sizes.values()), list(steps.values()),
                         x.storage_offset())
    return x, list(sizes)


def contract(x, xs, y, ys, keep):
    """The product of x and y, and its labels: summed over those that both
    have and `keep` has not."""
    both = [label for label in xs if label in ys]
    batch = [label for label in both if label in keep]
    inner = [label for label in both if label not in keep]
    left = [label for label in xs if label not in both]
    right = [label for label in ys if label not in both]
    sizes = dict(zip(xs + ys, x.shape + y.shape))
    shape = [sizes[label] for label in batch + left + right]
    b, m, k, n = (numel(sizes[label] for label in kind)
                  for kind in (batch, left, inner, right))
    x = x.permute([xs.index(label) for label in batch + left + inner])
    y = y.permute([ys.index(label) for label in batch + inner + right])
    if inner:
        found = x.reshape(b, m, k).bmm(y.reshape(b, k, n))
    else:
        found = x.reshape(b, m, 1) * y.reshape(b, 1, n)
    return found.reshape(shape), batch + left + right


def sum_lonely(x, labels, keep):
    """x summed over the labels that nobody else needs."""
    dims = [d for d, label in enumerate(labels) if label not in keep]
    kept = [label for label in labels if label in keep]
    return (x.sum(dims) if dims else x), kept


def drop_ones(operands):
    """Take out each dimension of size 1 that another operand widens."""
    sizes = {}
    for x, labels in operands:
        for label, size in zip(labels, x.shape):
            known = sizes.get(label, 1)
            if size != 1 and known not in (1, size):
                raise RuntimeError(f"einsum(): {label!r} has size {known} "
                                   f"in one operand and {size} in another")
            sizes[label] = size if known == 1 else known
    for x, labels in operands:
        narrow = [d for d, label in enumerate(labels)
                  if x.shape[d] != sizes[label]]
        yield (x.squeeze(narrow) if narrow else x,
               [s for d, s in enumerate(labels) if d not in narrow])


def einsum(equation, tensors):
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise RuntimeError(f"einsum(): {equation!r} names {len(terms)} "
                           f"operands; got {len(tensors)}")
    labels = [labels_of(term, x.dim(), i)
              for i, (term, x) in enumerate(zip(terms, tensors))]
    result = result_labels(right if arrow else None, sum(labels, []))
    operands = list(drop_ones(
        [take_diagonals(x, xs, i)
         for i, (x, xs) in enumerate(zip(tensors, labels))]))
    x, xs = operands.pop(0)
    while operands:
        y, ys = operands.pop(0)
        later = {*result, *(s for _, labels in operands for s in labels)}
        x, xs = sum_lonely(x, xs, later | set(ys))
        y, ys = sum_lonely(y, ys, later | set(xs))
        x, xs = contract(x, xs, y, ys, later)
    x, xs = sum_lonely(x, xs, result)
    return x.permute([xs.index(label) for label in result])


define("einsum(str equation, Tensor[] tensors) -> Tensor",
       "Products summed over the indices that the result has not.",
       composite=einsum)


def einsum_of(*args):
    """einsum("ij,jk->ik", a, b): products, summed over indices.

    A letter for each dimension; `...` for those without; a letter twice
    in an operand is its diagonal. Without `->` the result has the letters
    that are used once, in order. einsum(a, [0, 1], b, [1, 2], [0, 2]) is
    the same in numbers. RuntimeError if letters and shapes do not fit.
    """
    if len(args) < 2:
        raise ValueError("einsum() takes an equation and its operands: "
                         "einsum('ij,jk->ik', a, b)")
    if not isinstance(args[0], Tensor):
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = operands[0]
        return operators["einsum"].call(equation, operands)
    terms = ["".join("..." if i is ... else letter(i) for i in term)
             for term in args[1::2] + args[-1:] * (len(args) % 2)]
    count = len(args) // 2
    equation = ",".join(terms[:count]) + "".join(
        "->" + term for term in terms[count:])
    return operators["einsum"].call(equation, args[:2 * count:2])


def letter(i):
    if not 0 <= i < 52:
        raise ValueError(f"einsum(): index {i} is not from 0 to 51")
    return ascii_letters[i]


einsum_of.__name__ = einsum_of.__qualname__ = "einsum"
functions["einsum"] = einsum_of


def chain_cuts(sizes):
    """For each part (i, j) of a chain, after which matrix to cut it.

    Matrix i is sizes[i] by sizes[i + 1]. Source: Cormen and others,
    Introduction to Algorithms, "Matrix-chain multiplication".
    """
    count = len(sizes) - 1
    cost, cuts = {(i, i): 0 for i in range(count)}, {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (cost[i, k] + cost[k + 1, j]
                 + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j))
    return cuts


def multi_dot(tensors):
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot() takes at least two tensors; got "
                           f"{len(tensors)}")
    first, last = tensors[0], tensors[-1]
    for i, x in enumerate(tensors):
        if x.dim() != 2 and not (x.dim() == 1 and (x is first or x is last)):
            raise RuntimeError(f"multi_dot() takes matrices, and a vector at "
                               f"either end; number {i} is {list(x.shape)}")
    chain = [x if x.dim() == 2 else x.unsqueeze(0 if i == 0 else 1)
             for i, x in enumerate(tensors)]
    for a, b in zip(chain, chain[1:]):
        check_matrices("multi_dot", a, b, 2)
    cuts = chain_cuts([x.shape[0] for x in chain] + [chain[-1].shape[1]])

    def product(i, j):
        if i == j:
            return chain[i]
        return product(i, cuts[i, j]).mm(product(cuts[i, j] + 1, j))

    return product(0, len(chain) - 1).reshape(
        first.shape[:first.dim() - 1] + last.shape[1:])


define("linalg_multi_dot(Tensor[] tensors) -> Tensor",
       "The product of a chain of matrices, in the cheapest order.",
       composite=multi_dot)


def eliminate(rows, size):
    """Gauss and Jordan: rows of a | b become a^-1 b; also a's pivots.

    The pivots carry the sign of the exchanges. They end at the first 0.
    """
    rows, pivots = [list(row) for row in rows], []
    for p in range(size):
        best = max(range(p, size), key=lambda i: abs(rows[i][p]))
        pivots.append(rows[best][p] if best == p else -rows[best][p])
        rows[p], rows[best] = rows[best], rows[p]
        if pivots[-1] == 0:
            break
        rows[p] = [value / rows[p][p] for value in rows[p]]
        for i in range(size):
            if i != p and rows[i][p]:
                rows[i] = [value - rows[i][p] * pivot
                           for value, pivot in zip(rows[i], rows[p])]
    return [row[size:] for row in rows], pivots


def check_square(name, x):
    if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        raise RuntimeError(f"{name}() takes square matrices; got "
                           f"{list(x.shape)}")
    if x.dtype.category < 2 and name != "matrix_power":
        raise RuntimeError(f"{name}() takes floats; got {x.dtype}: "
                           f"x.to(lamina.float32)")


def matrices(x):
    """The matrices of a batch, each as a list of its rows."""
    values, (n, m) = flat(x), x.shape[-2:]
    return [[values[(b * n + i) * m:(b * n + i + 1) * m] for i in range(n)]
            for b in range(numel(x.shape[:-2]))]


define("_solve(Tensor A, Tensor B) -> Tensor",
       "The X of A X = B, for batches of one shape.")


@impl("_solve", "meta")
def meta_solve(A, B):
    return empty(B.shape, dtype=B.dtype, device="meta")


@impl("_solve", "python")
def python_solve(A, B):
    found = []
    for a, b in zip(matrices(A), matrices(B)):
        rows, pivots = eliminate([x + y for x, y in zip(a, b)], len(a))
        if 0 in pivots:
            raise RuntimeError("solve(): a matrix is singular: no number to "
                               f"divide by in column {len(pivots) - 1}")
        found += sum(rows, [])
    return write_values(empty(B.shape, dtype=B.dtype, device="python"),
                        found)


@impl("_solve", "cpu")
def cpu_solve(A, B):
    try:
        return from_array(np.linalg.solve(array(A), array(B)))
    except np.linalg.LinAlgError:
        raise RuntimeError("solve(): a matrix is singular") from None


def solve(A, B, left):
    check_square("solve", A)
    if B.dtype is not A.dtype:
        raise RuntimeError(f"solve() takes two tensors of one dtype; got "
                           f"{A.dtype} and {B.dtype}")
    if B.dim() == 1 or B.shape == A.shape[:-1]:
        if not left:
            raise RuntimeError("solve(): with left=False, B must be a "
                               f"matrix; got {list(B.shape)}")
        return solve(A, B.unsqueeze(-1), True).squeeze(-1)
    if not left:
        return solve(A.transpose(-1, -2), B.transpose(-1, -2),
                     True).transpose(-1, -2)
    check_inner("solve", A.shape, B.shape, B.shape[-2])
    batch = broadcast_shapes(A.shape[:-2], B.shape[:-2])
    return functions["_solve"](A.expand(*batch, *A.shape[-2:]),
                               B.expand(*batch, *B.shape[-2:]))


def identity(x):
    """Identity matrices of the shape of x, and of its dtype."""
    size = x.shape[-1]
    one = x.new_zeros(size, size)
    one.as_strided((size,), (size + 1,)).fill_(1)
    return one.expand(x.shape)


def inv(A):
    check_square("inv", A)
    return functions["_solve"](A, identity(A))


define("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor",
       "The X of A X = B, or with left=False of X A = B.", composite=solve)
define("linalg_inv(Tensor A) -> Tensor", "The inverse of each matrix.",
       composite=inv)


slogdet = define(
    "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
    "The sign and the logarithm of the size of the determinant.")


@impl("linalg_slogdet", "python")
def python_slogdet(A):
    check_square("slogdet", A)
    signs, logs = [], []
    for rows in matrices(A):
        _, pivots = eliminate(rows, len(rows))
        signs.append(math.prod((p > 0) - (p < 0) if p == p else p
                               for p in pivots))
        logs.append(sum(ieee_log(abs(p)) for p in pivots))
    out = [empty(A.shape[:-2], dtype=A.dtype, device="python")
           for _ in range(2)]
    return slogdet.result(write_values(out[0], signs),
                          write_values(out[1], logs))


@impl("linalg_slogdet", "cpu")
def cpu_slogdet(A):
    check_square("slogdet", A)
    sign, log = quiet(np.linalg.slogdet, array(A))
    return slogdet.result(from_array(sign), from_array(log))


@impl("linalg_slogdet", "meta")
def meta_slogdet(A):
    check_square("slogdet", A)
    return slogdet.result(*[empty(A.shape[:-2], dtype=A.dtype,
                                  device="meta") for _ in range(2)])


def det(A):
    check_square("det", A)
    sign, logabsdet = functions["linalg_slogdet"](A)
    return sign * logabsdet.exp()


def logdet(A):
    sign, logabsdet = functions["linalg_slogdet"](A)
    return (sign / sign.abs()).log() + logabsdet    # nan for a negative one


for name, argument in (("linalg_det", "A"), ("det", "self")):
    define(f"{name}(Tensor {argument}) -> Tensor", "The determinant.",
           composite=det)
define("logdet(Tensor self) -> Tensor", "The determinant's logarithm.",
       composite=logdet)


def solve_triangular(A, B, upper, left, unitriangular):
    if A.dim() < 2 or B.dim() < 2:
        raise RuntimeError(f"solve_triangular() takes matrices; got "
                           f"{list(A.shape)} and {list(B.shape)}")
    start = int(unitriangular)
    A = A.triu(start) if upper else A.tril(-start)
    if unitriangular:
        A = A + identity(A)
    if B.shape == A.shape[:-1]:         # a matrix, even so
        return solve(A, B.unsqueeze(0), left).squeeze(0)
    return solve(A, B, left)


define("linalg_solve_triangular(Tensor A, Tensor B, *, bool upper, "
       "bool left=True, bool unitriangular=False) -> Tensor",
       "The X of A X = B, where A is triangular.",
       composite=solve_triangular)


define("_cholesky(Tensor A) -> Tensor", "The lower triangle of each.")


def cholesky_rows(a):
    """The lower triangle whose product with itself, turned, is a."""
    size = len(a)
    rows = [[0.0] * size for _ in a]
    for i in range(size):
        for j in range(i + 1):
            rest = a[i][j] - sum(x * y for x, y in zip(
                rows[i][:j], rows[j][:j]))
            if i == j and not rest > 0:
                raise RuntimeError(f"cholesky(): the matrix is not positive "
                                   f"definite: {rest} at ({i}, {i})")
            rows[i][j] = math.sqrt(rest) if i == j else rest / rows[j][j]
    return rows


@impl("_cholesky", "python")
def python_cholesky(A):
    found = [sum(cholesky_rows(rows), []) for rows in matrices(A)]
    return write_values(empty(A.shape, dtype=A.dtype, device="python"),
                        sum(found, []))


@impl("_cholesky", "cpu")
def cpu_cholesky(A):
    try:
        return from_array(np.linalg.cholesky(array(A)))
    except np.linalg.LinAlgError:
        raise RuntimeError("cholesky(): a matrix is not positive "
                           "definite") from None


@impl("_cholesky", "meta")
def meta_cholesky(A):
    return empty(A.shape, dtype=A.dtype, device="meta")


def cholesky(A, upper):
    check_square("cholesky", A)
    if upper:
        return cholesky(A.transpose(-1, -2), False).transpose(-1, -2)
    return functions["_cholesky"](A)


define("linalg_cholesky(Tensor A, *, bool upper=False) -> Tensor",
       "The lower triangle L of A = L @ L.T; only that half of A is read.",
       composite=cholesky)


def matrix_power(input, n):
    check_square("matrix_power", input)
    if n < 0:
        return matrix_power(functions["linalg_inv"](input), -n)
    if n == 0:
        return input.clone().copy_(identity(input))
    result = None
    while n:
        if n % 2:
            result = input if result is None else result @ input
        n //= 2
        if n:
            input = input @ input
    return result


for name in ("linalg_matrix_power(Tensor input", "matrix_power(Tensor self"):
    define(f"{name}, int n) -> Tensor", "A matrix times itself, n times; "
           "0 times is the identity.", composite=matrix_power)


def vecdot(x, y, dim):
    if x.dtype is not y.dtype or x.dtype.category < 2:
        raise RuntimeError(f"vecdot() takes two tensors of one float dtype; "
                           f"got {x.dtype} and {y.dtype}")
    return (x * y).sum(dim)


def linalg_cross(input, other, dim):
    if input.dim() != other.dim() or input.dtype is not other.dtype:
        raise RuntimeError(
            f"cross() takes tensors of as many dimensions and one dtype; "
            f"got {input.dtype} {list(input.shape)} and {other.dtype} "
            f"{list(other.shape)}")
    if input.dtype.category == 0:
        raise NotImplementedError("cross() is not implemented for bool")
    d = wrap_dim(dim, input.dim())
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(f"cross(): dimension {dim} must have size 3; got "
                           f"{list(input.shape)} and {list(other.shape)}")
    one, two = (tensor(order, device=input.device)
                for order in ([1, 2, 0], [2, 0, 1]))

    def turned(x, order):
        return x.index_select(d, order)

    return (turned(input, one) * turned(other, two)
            - turned(input, two) * turned(other, one))


def cross(self, other, dim):
    if dim is None:
        if 3 not in self.shape:
            raise RuntimeError(f"cross(): no dimension of {list(self.shape)} "
                               f"has size 3")
        dim = self.shape.index(3)
    return linalg_cross(self, other, dim)


define("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
       "The dot products of vectors along a dimension.", composite=vecdot)
define("linalg_cross(Tensor input, Tensor other, *, int dim=-1) -> Tensor",
       "The cross products of vectors of 3.", composite=linalg_cross)
define("cross(Tensor self, Tensor other, int? dim=None) -> Tensor",
       "The cross products along the first dimension of size 3.",
       composite=cross)


USE_MM = "use_mm_for_euclid_dist"       # PyTorch's modes: one way, here
COMPUTE_MODES = (USE_MM, USE_MM + "_if_necessary", f"donot_{USE_MM}")


def cdist(x1, x2, p, compute_mode):
    if x1.dim() < 2 or x2.dim() < 2 or x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"cdist() takes matrices with rows of one length; "
                           f"got {list(x1.shape)} and {list(x2.shape)}")
    if x1.dtype.category < 2 or x2.dtype.category < 2 or p < 0:
        raise RuntimeError(f"cdist() takes floats and a p of 0 or more; got "
                           f"{x1.dtype}, {x2.dtype} and {p}")
    if compute_mode not in COMPUTE_MODES:
        raise ValueError(f"cdist(): compute_mode is {compute_mode!r}; "
                         f"expected one of {', '.join(COMPUTE_MODES)}")
    return functions["linalg_vector_norm"](
        x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


define("cdist(Tensor x1, Tensor x2, float p=2.0, str compute_mode="
       f"{COMPUTE_MODES[1]!r}) -> Tensor",
       "The distance of each row of one to each row of the other.",
       composite=cdist)
