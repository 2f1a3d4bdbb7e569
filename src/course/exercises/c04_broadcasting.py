"""Exercise of chapter 4: strides that stretch a tensor."""

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 04.1.** Write `broadcast_strides(shape, strides, target)`: the
strides with which the memory of a tensor of `shape` reads as one of shape
`target`. Line the shapes up at their last dimension. A dimension that is
new, and one of size 1 that is stretched, gets the stride 0; every other
dimension keeps its own. Where `shape` cannot be broadcast to `target`,
raise `ValueError`: only a size of 1 stretches, and nothing shrinks."""

STUB = '''\
def broadcast_strides(shape: tuple, strides: tuple,
                      target: tuple) -> tuple:
    """Strides that read a tensor of this shape as one of shape target."""
    raise NotImplementedError("exercise 04.1")'''


def broadcast_strides(shape, strides, target):
    new = len(target) - len(shape)
    if new < 0:
        raise ValueError(f"{shape} has more dimensions than {target}")
    result = [0] * new
    for size, stride, wanted in zip(shape, strides, target[new:]):
        if size == wanted:
            result.append(stride)
        elif size == 1:
            result.append(0)
        else:
            raise ValueError(f"{shape} cannot be broadcast to {target}")
    return tuple(result)


# Known wrong answers


def stretch(pairs, keep=False, check=True):
    result = []
    for size, stride, wanted in pairs:
        if check and size not in (1, wanted):
            raise ValueError
        result.append(stride if size == wanted or keep else 0)
    return tuple(result)


def refuse_more(shape, target):
    if len(shape) > len(target):
        raise ValueError


def from_the_left(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    return stretch(zip(shape, strides, target)) + (0,) * new


def no_check(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    return (0,) * new + stretch(
        zip(shape, strides, target[new:]), check=False)


def keeps_stride(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    return (0,) * new + stretch(zip(shape, strides, target[new:]), keep=True)


def both_ways(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    if any(a != b and 1 not in (a, b) for a, b in zip(shape, target[new:])):
        raise ValueError
    return (0,) * new + stretch(
        zip(shape, strides, target[new:]), check=False)


def new_stride_one(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    return (1,) * new + stretch(zip(shape, strides, target[new:]))


def forgets_new(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    return stretch(zip(shape, strides, target[new:]))


def cuts_off(shape, strides, target):
    pairs = zip(shape[::-1], strides[::-1], target[::-1])
    new = max(0, len(target) - len(shape))
    return (0,) * new + stretch(pairs)[::-1]


# Other right answers


def from_the_right(shape, strides, target):
    if len(shape) > len(target):
        raise ValueError(f"{shape} to {target}")
    result = ()
    for i in range(1, len(target) + 1):
        if i > len(shape):
            result = (0, *result)
        elif shape[-i] == target[-i]:
            result = (strides[-i], *result)
        elif shape[-i] == 1:
            result = (0, *result)
        else:
            raise ValueError(f"{shape} to {target}")
    return result


def zero_for_every_one(shape, strides, target):
    refuse_more(shape, target)
    new = len(target) - len(shape)
    shape, strides = (1,) * new + shape, (0,) * new + strides
    if any(a not in (1, b) for a, b in zip(shape, target)):
        raise ValueError
    return tuple(0 if a == 1 else s for a, s in zip(shape, strides))


def judge(args, answer, expected):
    """The stride of a dimension that stays of size 1 may be 0 as well."""
    _, _, target = args
    if len(answer) != len(expected):
        return (f"length: {len(target)} strides are due, one for each "
                f"dimension of the target; yours has {len(answer)}")
    for i, (due, got) in enumerate(zip(expected, answer)):
        if type(got) is not int:
            return f"stride: an int is due in place {i}, yours is {got!r}"
        if got != due and not (target[i] == 1 and got == 0):
            return f"stride: {due} is due in place {i}, yours is {got}"


def inputs(st):
    def strides(pair):
        shape, target = pair
        return st.tuples(
            st.just(shape),
            st.tuples(*(st.integers(1, 9) for _ in shape)),
            st.just(target))

    size = st.sampled_from([1, 2, 3, 0])
    target = st.lists(size, max_size=3).map(tuple)

    def shapes(target):
        fits = st.tuples(*(st.sampled_from([n, 1]) for n in target))
        cut = st.integers(0, len(target))
        return st.tuples(
            st.builds(lambda s, i: s[i:], fits, cut), st.just(target))

    free = st.tuples(st.lists(size, max_size=3).map(tuple), target)
    return (target.flatmap(shapes) | free).flatmap(strides)


exercises = (Exercise(
    id="04.1",
    title="Strides that stretch",
    name="broadcast_strides",
    statement=STATEMENT,
    stub=STUB,
    reference=broadcast_strides,
    inputs=inputs,
    judge=judge,
    examples=(((2,), (1,), (3, 2)), ((3, 1), (1, 1), (3, 2)),
              ((2,), (1,), (2, 3)), ((3,), (1,), (1,)), ((2, 2), (2, 1), (2,)),
              ((2,), (1,), (2, 2)), ((1, 2), (2, 1), (2,))),
    wrong=(
        Wrong(from_the_left, "This lines the shapes up at their first "
              "dimension. Rows of length 3 are added to a (2, 3) tensor: to "
              "which of its dimensions does the 3 belong?"),
        Wrong(no_check, "This never refuses. Which elements should a tensor "
              "of 2 elements show where 3 are asked for?"),
        Wrong(keeps_stride, "This keeps the stride of a dimension that it "
              "stretches. With that stride, where does index 1 lead in a "
              "dimension that stores one element?"),
        Wrong(both_ways, "This lets a size shrink to 1 too. To broadcast two "
              "tensors goes both ways, but here the target is settled: which "
              "one of three elements would be left?"),
        Wrong(new_stride_one, "This gives a new dimension the stride 1. A "
              "step along it must lead to the same element again: how far is "
              "that?"),
        Wrong(forgets_new, "This answers for the dimensions of shape alone. "
              "How many indices does a reader of the target write?"),
        Wrong(cuts_off, "Where the shape has more dimensions than the target, "
              "zip stops at the shorter one, and the rest is lost. Which rows "
              "of a (2, 2) tensor would a (2,) tensor show?"),
    ),
    right=(from_the_right, zero_for_every_one),
    hints=(
        "The target has `len(target) - len(shape)` dimensions in front that "
        "are new. Fewer than none is an error.",
        "Compare size and target size for the rest, pair by pair: equal, or "
        "1 and anything, or an error.",
        "The stride 0 reads one element again and again: the index is "
        "multiplied by it.",
    ),
    after="PyTorch does this in inferExpandGeometry "
    "(aten/src/ATen/ExpandUtils.cpp), for expand and for every elementwise "
    "operator. Its exception is a RuntimeError.",
),)
