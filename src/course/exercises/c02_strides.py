"""Exercise of chapter 2: when elements lie one after the other."""

import math

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 02.1.** Write `is_contiguous(shape, strides)`: `True` where a
tensor of this geometry holds its elements one after the other, in
row-major order, without a gap. Two cases need care. The stride of a
dimension of size 1 is never used, so it may be any number. A tensor without
elements is contiguous, whatever its strides are."""

STUB = '''\
def is_contiguous(shape: tuple, strides: tuple) -> bool:
    """Do the elements lie in row-major order, without a gap?"""
    raise NotImplementedError("exercise 02.1")'''


def is_contiguous(shape, strides):
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# Known wrong answers


def row_major(shape):
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


def every_stride(shape, strides):
    return 0 in shape or tuple(strides) == row_major(shape)


def empty_not(shape, strides):
    return all(size == 1 or stride == due for size, stride, due
               in zip(shape, strides, row_major(shape)))


def last_stride_is_one(shape, strides):
    if 0 in shape or not shape:
        return True
    return shape[-1] == 1 or strides[-1] == 1


def strides_fall(shape, strides):
    used = [s for n, s in zip(shape, strides) if n != 1]
    return 0 in shape or used == sorted(used, reverse=True)


def column_major(shape, strides):
    return is_contiguous(shape[::-1], strides[::-1])


def from_the_size(shape, strides):
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected = size
    return True


def span_only(shape, strides):
    span = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
    return 0 in shape or span == math.prod(shape)


# Other right answers


def by_row_major(shape, strides):
    return 0 in shape or all(
        size == 1 or stride == due for size, stride, due
        in zip(shape, strides, row_major(shape)))


def by_visiting(shape, strides):
    offsets = [0]
    for size, stride in zip(shape, strides):
        offsets = [o + i * stride for o in offsets for i in range(size)]
    return offsets == list(range(len(offsets)))


def inputs(st):
    def strides(shape):
        due = row_major(shape)
        near = st.tuples(*(st.sampled_from([d, d, d, d + 1, 1])
                           for d in due))
        mixed = st.permutations(due).map(tuple)
        free = st.tuples(*(st.integers(0, 9) for _ in due))
        return st.tuples(st.just(shape), st.one_of(near, mixed, free))

    size = st.sampled_from([1, 2, 3, 0, 1, 2])
    return st.lists(size, max_size=3).map(tuple).flatmap(strides)


exercises = (Exercise(
    id="02.1",
    title="One after the other",
    name="is_contiguous",
    statement=STATEMENT,
    stub=STUB,
    reference=is_contiguous,
    inputs=inputs,
    examples=(((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 1, 3), (3, 7, 1)),
              ((0, 2), (5, 5)), ((2, 2, 2), (4, 2, 1)), ((), ()),
              ((2, 3, 2), (3, 2, 1)), ((2, 2), (3, 0)), ((2, 2), (0, 3)),
              ((3, 3), (3, 1)), ((3, 2), (2, 1)), ((3, 2), (1, 1))),
    wrong=(
        Wrong(every_stride, "This compares the strides of all dimensions. "
              "The only index of a dimension of size 1 is 0: by what is its "
              "stride multiplied?"),
        Wrong(empty_not, "This has no answer of its own for a tensor without "
              "elements. Which two of its elements could be in the wrong "
              "order?"),
        Wrong(last_stride_is_one, "This looks at the last stride alone. "
              "`x[:, :2]` of a (2, 3) tensor has a last stride of 1 too: what "
              "lies between its rows?"),
        Wrong(strides_fall, "Falling strides give the row-major order, but "
              "they leave room for gaps. What lies between the rows where the "
              "shape is (2, 2) and the strides are (3, 1)?"),
        Wrong(column_major, "This lets the first dimension run fastest "
              "(column-major, as in Fortran). In row-major order, which index "
              "changes from one element to the next?"),
        Wrong(from_the_size, "This expects each stride to be the size of the "
              "dimension after it. With three dimensions, how many elements "
              "does one step of the first one pass over?"),
        Wrong(span_only, "The elements fill their range without a gap, but "
              "this does not ask for their order. A transposed matrix fills "
              "its range too: in which order are its elements read?"),
    ),
    right=(by_row_major, by_visiting),
    hints=(
        "Go through the dimensions from the last to the first. One step of "
        "the last dimension must pass over one element.",
        "Keep the stride that is due in a variable. It begins at 1, and each "
        "dimension multiplies it by its size.",
        "A size of 0 anywhere settles the answer at once. A size of 1 skips "
        "the comparison, and multiplying by it changes nothing.",
    ),
    after="PyTorch computes the same once a geometry is made, in "
    "c10/core/Contiguity.h, and keeps the answer in the tensor.",
),)
