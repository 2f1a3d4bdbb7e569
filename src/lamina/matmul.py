"""Matmul: three loops, and who runs them.

Exported from chapters/06_matmul.ipynb by `course export`; edit the chapter,
not this file.
"""

from lamina.broadcasting import broadcast_shapes, quiet
from lamina.dispatch import (
    array, build_call, define, from_array, functions, impl, np, operators,
)
from lamina.storage import wrap
from lamina.strides import Tensor, empty, numel, select

__all__ = ["matmul_loops"]


def check_matrices(name, a, b, ndim):
    """Refuse what cannot be multiplied; give the product's shape."""
    if len(a.shape) != ndim or len(b.shape) != ndim:
        raise RuntimeError(f"{name}() takes tensors of {ndim} dimensions; "
                           f"got {list(a.shape)} and {list(b.shape)}")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}() takes two tensors of one dtype; got "
                           f"{a.dtype} and {b.dtype}: convert one with .to()")
    if a.dtype.category == 0:
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
    check_matrices("mm", self, mat2, 2)
    return from_array(quiet(np.matmul, array(self), array(mat2)))


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


def matmul(self, other):
    a, b = self.dim(), other.dim()
    if not a or not b:
        raise RuntimeError(f"matmul() takes tensors of at least 1 dimension; "
                           f"got {list(self.shape)} and {list(other.shape)}:"
                           f" for a number use *")
    check_inner("matmul", self.shape, other.shape, other.shape[-min(b, 2)])
    if a == 2 and b == 2:
        return self.mm(other)
    if a == 1:
        return (self.unsqueeze(0) @ other).squeeze(-2 if b > 1 else 0)
    if b == 1:
        return (self @ other.unsqueeze(1)).squeeze(-1)
    if b == 2:
        rows = self.reshape(numel(self.shape[:-1]), self.shape[-1])
        return rows.mm(other).reshape(*self.shape[:-1], other.shape[-1])
    return batched(self, other)


def batched(self, other):
    """The product of two tensors whose batches broadcast."""
    batch = broadcast_shapes(self.shape[:-2], other.shape[:-2])
    both = [x.expand(*batch, *x.shape[-2:]).reshape(
        numel(batch), *x.shape[-2:]) for x in (self, other)]
    return both[0].bmm(both[1]).reshape(
        *batch, self.shape[-2], other.shape[-1])


define("matmul(Tensor self, Tensor other) -> Tensor",
       "The product of vectors, matrices, and batches of them: a vector "
       "counts as a row on the left and a column on the right, and batches "
       "broadcast.", composite=matmul)

Tensor.__matmul__ = build_call(operators["matmul"], "__matmul__",
                               guard="other")
Tensor.__rmatmul__ = lambda self, other: functions["matmul"](other, self)


def dot(self, tensor):
    if self.dim() != 1 or tensor.dim() != 1 or self.shape != tensor.shape:
        raise RuntimeError(f"dot() takes two vectors of one length; got "
                           f"{list(self.shape)} and {list(tensor.shape)}")
    return self.matmul(tensor)


def mv(self, vec):
    if self.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(f"mv() takes a matrix and a vector; got "
                           f"{list(self.shape)} and {list(vec.shape)}")
    return self.matmul(vec)


def linear(input, weight, bias):
    out = input.matmul(weight.t())
    return out if bias is None else out + bias


define("dot(Tensor self, Tensor tensor) -> Tensor",
       "The sum of the products of two vectors' elements.", composite=dot)
define("mv(Tensor self, Tensor vec) -> Tensor",
       "The product of a matrix and a vector.", composite=mv)
define("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
       "input @ weight.T + bias: weight has a row for each output.",
       composite=linear)
