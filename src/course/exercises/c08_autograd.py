"""Exercise of chapter 8: the gradient of a broadcast."""

import math

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 08.1.** In the forward pass, a tensor of shape `shape` was
broadcast to the shape of `grad`. Write `unbroadcast(grad, shape)`: the
gradient of the tensor before it was broadcast, a tensor of shape `shape`.
An element that was read several times gets the sum of the gradients of all
its copies."""

STUB = '''\
def unbroadcast(grad, shape: tuple):
    """The gradient of a tensor of this shape that was broadcast."""
    raise NotImplementedError("exercise 08.1")'''


def unbroadcast(grad, shape):
    new = len(grad.shape) - len(shape)
    if new:
        grad = grad.sum(tuple(range(new)))
    for dim, size in enumerate(shape):
        if size == 1 and grad.shape[dim] != 1:
            grad = grad.sum(dim, keepdim=True)
    return grad


# Known wrong answers


def only_new(grad, shape):
    new = len(grad.shape) - len(shape)
    return grad.sum(tuple(range(new))) if new else grad


def only_stretched(grad, shape):
    new = len(grad.shape) - len(shape)
    for dim, size in enumerate(shape, new):
        if size == 1 and grad.shape[dim] != 1:
            grad = grad.sum(dim, keepdim=True)
    return grad


def without_keepdim(grad, shape):
    grad = only_new(grad, shape)
    dims = tuple(d for d, n in enumerate(shape)
                 if n == 1 and grad.shape[d] != 1)
    return grad.sum(dims) if dims else grad


def takes_the_mean(grad, shape):
    copies = math.prod(grad.shape) / max(1, math.prod(shape))
    return unbroadcast(grad, shape) / copies


def takes_the_first(grad, shape):
    new = len(grad.shape) - len(shape)
    for _ in range(new):
        grad = grad[0]
    return grad[tuple(slice(0, n) for n in shape)] if shape else grad


def sums_everything(grad, shape):
    if tuple(grad.shape) == tuple(shape):
        return grad
    return grad.sum()


def from_the_left(grad, shape):
    new = len(grad.shape) - len(shape)
    last = tuple(range(len(grad.shape) - new, len(grad.shape)))
    if last:
        grad = grad.sum(last)
    for dim, size in enumerate(shape):
        if size == 1 and grad.shape[dim] != 1:
            grad = grad.sum(dim, keepdim=True)
    return grad


def plain_numbers(grad, shape):
    return unbroadcast(grad, shape).tolist()


# Other right answers


def in_one_sum(grad, shape):
    new = len(grad.shape) - len(shape)
    dims = [*range(new)] + [
        d + new for d, n in enumerate(shape) if n != grad.shape[d + new]]
    return grad.sum(dims).reshape(shape) if dims else grad.reshape(shape)


def one_at_a_time(grad, shape):
    while len(grad.shape) > len(shape):
        grad = grad.sum(0)
    for dim in range(len(shape)):
        if grad.shape[dim] != shape[dim]:
            grad = grad.sum(dim, keepdim=True)
    return grad


def prepare(numbers, grad_shape, shape):
    import lamina

    return lamina.tensor(numbers).reshape(grad_shape), shape


def inputs(st):
    def numbers(shapes):
        grad, shape = shapes
        count = math.prod(grad)
        values = st.lists(st.integers(-4, 4).map(float), min_size=count,
                          max_size=count)
        return st.tuples(values, st.just(grad), st.just(shape))

    def shapes(grad):
        fits = st.tuples(*(st.sampled_from([n, 1]) for n in grad))
        cut = st.integers(0, len(grad))
        return st.tuples(
            st.just(grad), st.builds(lambda s, i: s[i:], fits, cut))

    size = st.integers(1, 3)
    grads = st.lists(size, max_size=3).map(tuple)
    return grads.flatmap(shapes).flatmap(numbers)


exercises = (Exercise(
    id="08.1",
    title="The gradient of a broadcast",
    name="unbroadcast",
    statement=STATEMENT,
    stub=STUB,
    reference=unbroadcast,
    inputs=inputs,
    prepare=prepare,
    call="unbroadcast(lamina.tensor({}).reshape({}), {})",
    examples=(
        ([1.0, 2.0], (2,), (1,)),
        ([1.0, 2.0], (1, 2), (1, 1)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (2,)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (1, 2)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (2, 1)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), ()),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (2, 2)),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], (1, 2, 3), (2, 1)),
        ([3.0], (), ())),
    wrong=(
        Wrong(only_new, "This sums over the dimensions that were new, and "
              "leaves those that were stretched from 1. What is the shape of "
              "the gradient of a (2, 1) tensor?"),
        Wrong(only_stretched, "This sums over the dimensions that were "
              "stretched from 1, and leaves the new ones in front. How many "
              "dimensions does a tensor of shape (2,) have?"),
        Wrong(without_keepdim, "The sum over a stretched dimension drops it. "
              "The tensor had it, with size 1. Which argument of sum keeps "
              "it?"),
        Wrong(takes_the_mean, "This takes the mean over the copies. If x is "
              "added to three elements of y, by how much does the sum of y "
              "grow when x grows by 1?"),
        Wrong(takes_the_first, "This takes the gradient of one copy. The "
              "other copies depend on the same number: does their gradient "
              "not count?"),
        Wrong(sums_everything, "This sums over all dimensions. Which ones "
              "were broadcast, and which had their size already?"),
        Wrong(from_the_left, "This lines the shapes up at their first "
              "dimension. Broadcasting lines them up at the last: where do "
              "new dimensions appear?"),
        Wrong(plain_numbers, "The numbers are right, but they are no longer "
              "a tensor. What can the node before this one do with a list?"),
    ),
    right=(in_one_sum, one_at_a_time),
    hints=(
        "Broadcasting did two things: it put new dimensions in front, and it "
        "stretched dimensions of size 1. Undo each by a sum.",
        "There are len(grad.shape) - len(shape) new dimensions, the first "
        "ones. Sum them away. No new ones is a case of its own: "
        "sum(()) sums over all.",
        "Then the dimensions stand in the same places. Where shape has 1 and "
        "grad has more, sum over that dimension with keepdim=True.",
    ),
    after="PyTorch calls this sum_to_size (at::sum_to, in "
    "aten/src/ATen/ExpandUtils.h). Autograd calls it wherever an operand "
    "was broadcast.",
),)
