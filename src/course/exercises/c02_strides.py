"""Exercises of chapter 2: which element is where, and which views there are."""

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


CONTIGUOUS = Exercise(
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
)


# 02.2: a slice of one dimension

SLICED = """\
**Exercise 02.2.** One dimension of a tensor has `size` indices, `stride`
elements apart, and the tensor begins at element `offset`. Write
`sliced(size, stride, offset, start, stop, step)`: what
`x[start:stop:step]` makes of it, as a tuple `(size, stride, offset)`. As
with Python's lists, a negative `start` or `stop` counts from the end, and
one that lies outside is moved to the nearest end. `step` is 1 or more. A
slice that takes nothing still begins at its `start`."""

SLICED_STUB = '''\
def sliced(size: int, stride: int, offset: int,
           start: int, stop: int, step: int) -> tuple:
    """(size, stride, offset) of x[start:stop:step]."""
    raise NotImplementedError("exercise 02.2")'''


def sliced(size, stride, offset, start, stop, step):
    if start < 0:
        start += size
    if stop < 0:
        stop += size
    start = min(max(start, 0), size)
    stop = min(max(stop, 0), size)
    length = max(0, (stop - start + step - 1) // step)
    return length, stride * step, offset + start * stride


def stride_kept(size, stride, offset, start, stop, step):
    n, _, begin = sliced(size, stride, offset, start, stop, step)
    return n, stride, begin


def offset_in_indices(size, stride, offset, start, stop, step):
    first, stop, step = slice(start, stop, step).indices(size)
    return len(range(first, stop, step)), stride * step, offset + first


def offset_in_steps(size, stride, offset, start, stop, step):
    first, stop, step = slice(start, stop, step).indices(size)
    return (len(range(first, stop, step)), stride * step,
            offset + first * stride * step)


def offset_forgotten(size, stride, offset, start, stop, step):
    n, by, _ = sliced(size, stride, offset, start, stop, step)
    return n, by, slice(start, stop, step).indices(size)[0] * stride


def rounded_down(size, stride, offset, start, stop, step):
    first, stop, step = slice(start, stop, step).indices(size)
    return (max(0, (stop - first) // step), stride * step,
            offset + first * stride)


def step_ignored_in_size(size, stride, offset, start, stop, step):
    first, stop, step = slice(start, stop, step).indices(size)
    return max(0, stop - first), stride * step, offset + first * stride


def negative_is_zero(size, stride, offset, start, stop, step):
    first, stop = min(max(start, 0), size), min(max(stop, 0), size)
    return (max(0, -(-(stop - first) // step)), stride * step,
            offset + first * stride)


def not_clipped(size, stride, offset, start, stop, step):
    first = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    return (max(0, -(-(stop - first) // step)), stride * step,
            offset + first * stride)


def below_nothing(size, stride, offset, start, stop, step):
    first, stop, step = slice(start, stop, step).indices(size)
    return (-(-(stop - first) // step), stride * step,
            offset + first * stride)


def by_range(size, stride, offset, start, stop, step):
    taken = range(size)[start:stop:step]
    return len(taken), stride * step, offset + taken.start * stride


def by_indices(size, stride, offset, start, stop, step):
    first, stop, step = slice(start, stop, step).indices(size)
    return (len(range(first, stop, step)), stride * step,
            offset + first * stride)


def sliced_inputs(st):
    end = st.integers(-6, 6)
    return st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 9),
                     end, end, st.integers(1, 3))


SLICE = Exercise(
    id="02.2",
    title="A slice is arithmetic",
    name="sliced",
    statement=SLICED,
    stub=SLICED_STUB,
    reference=sliced,
    inputs=sliced_inputs,
    examples=((4, 1, 0, 0, 4, 1), (4, 1, 0, 0, 4, 2), (4, 2, 0, 1, 4, 1),
              (4, 2, 3, 0, 4, 1), (4, 2, 0, 1, 4, 2), (4, 1, 0, 0, 4, 3),
              (4, 1, 0, -2, 4, 1), (4, 1, 0, 0, -1, 1), (4, 1, 0, 0, 9, 1),
              (4, 1, 0, 3, 1, 1), (4, 1, 0, -9, 2, 1), (0, 1, 0, 0, 3, 1)),
    wrong=(
        Wrong(stride_kept, "The stride is as before. From one index of the "
              "slice to the next you pass over `step` indices of x: how many "
              "elements of memory is that?"),
        Wrong(offset_in_indices, "This adds `start` to the offset. The offset "
              "counts elements of memory, and `start` counts indices. How "
              "many elements of memory lie before index `start`?"),
        Wrong(offset_in_steps, "The first element that is taken is "
              "`x[start]`, whatever the step is. Does the step have a part "
              "in where that lies?"),
        Wrong(offset_forgotten, "This begins to count at the start of the "
              "storage. Where does x itself begin?"),
        Wrong(rounded_down, "This drops the last element where the step does "
              "not come out even. `[0, 1, 2, 3][0:4:3]` has how many?"),
        Wrong(step_ignored_in_size, "This counts all indices from start to "
              "stop. Of these, how many does a step of 2 take?"),
        Wrong(negative_is_zero, "This moves a negative start or stop to 0. "
              "`x[-2:]` is the last two elements: from which end does -2 "
              "count?"),
        Wrong(not_clipped, "This believes any start and stop. `[1, 2][0:9]` "
              "has two elements: what has Python made of the 9?"),
        Wrong(below_nothing, "Where stop comes before start this gives a "
              "negative size. How many elements are in `[1, 2, 3][2:1]`?"),
    ),
    right=(by_range, by_indices),
    hints=(
        "Settle start and stop first: add `size` to a negative one, then "
        "move both into 0 to `size`.",
        "The new tensor begins at x[start], which lies `start * stride` "
        "elements after the old beginning. One new step is `step` old ones.",
        "Of `stop - start` indices every `step`-th is taken, the first one "
        "included: that is a division that is rounded up, and never less "
        "than 0.",
    ),
    after="PyTorch does the same in `slice`, of "
    "aten/src/ATen/native/TensorShape.cpp. Python can do the first part for "
    "you: `slice(start, stop, step).indices(size)`.")


# 02.3: dimensions that act as one

RUNS = """\
**Exercise 02.3.** Write `runs(shape, strides)`: the dimensions of a
tensor, joined where neighbours act as one long dimension. The answer is a
list of pairs `(size, stride)`, the outermost first, and as short as
possible. Two neighbours act as one if a step of the outer one is as long as
the whole inner one, that is its size times its stride. A dimension of size
1 is never stepped along, so leave it out. No size is 0."""

RUNS_STUB = '''\
def runs(shape: tuple, strides: tuple) -> list:
    """[(size, stride), ...]: neighbours joined where they act as one."""
    raise NotImplementedError("exercise 02.3")'''


def runs(shape, strides):
    found = []
    for size, stride in zip(shape, strides):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found


def joined_where(fits, made, ones=False):
    """runs() with another rule for what is joined, and what it gives."""
    def answer(shape, strides):
        found = []
        for size, stride in zip(shape, strides):
            if size == 1 and not ones:
                continue
            if found and fits(*found[-1], size, stride):
                found[-1] = made(*found[-1], size, stride)
            else:
                found.append((size, stride))
        return found
    return answer


def follows(outer, step, size, stride):
    return step == size * stride


def product(outer, step, size, stride):
    return outer * size, stride


def ones_kept(shape, strides):
    return joined_where(follows, product, ones=True)(shape, strides)


def equal_strides(shape, strides):
    return joined_where(lambda outer, step, size, stride: step == stride,
                        product)(shape, strides)


def outer_size(shape, strides):
    return joined_where(
        lambda outer, step, size, stride: step == outer * stride,
        product)(shape, strides)


def stride_of_the_outer(shape, strides):
    return joined_where(
        follows, lambda outer, step, size, stride: (outer * size, step))(
            shape, strides)


def sizes_added(shape, strides):
    return joined_where(
        follows, lambda outer, step, size, stride: (outer + size, stride))(
            shape, strides)


def any_fall(shape, strides):
    return joined_where(
        lambda outer, step, size, stride: step >= size * stride,
        product)(shape, strides)


def innermost_first(shape, strides):
    return runs(shape, strides)[::-1]


def joins_once(shape, strides):
    pairs = [p for p in zip(shape, strides) if p[0] != 1]
    found = []
    while pairs:
        size, stride = pairs.pop(0)
        if pairs and stride == pairs[0][0] * pairs[0][1]:
            inner = pairs.pop(0)
            size, stride = size * inner[0], inner[1]
        found.append((size, stride))
    return found


def from_the_right(shape, strides):
    found = []
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size == 1:
            continue
        if found and stride == found[0][0] * found[0][1]:
            found[0] = (size * found[0][0], found[0][1])
        else:
            found.insert(0, (size, stride))
    return found


def by_recursion(shape, strides):
    pairs = [p for p in zip(shape, strides) if p[0] != 1]
    for k in range(len(pairs) - 1):
        (a, s), (b, r) = pairs[k:k + 2]
        if s == b * r:
            pairs[k:k + 2] = [(a * b, r)]
            return by_recursion(*zip(*pairs))
    return pairs


def runs_inputs(st):
    def strides(shape):
        due = row_major(shape)
        near = st.tuples(*(st.sampled_from([d, d, d, d + 1, 2 * d])
                           for d in due))
        mixed = st.permutations(due).map(tuple)
        return st.tuples(st.just(shape), st.one_of(
            st.just(due), near, mixed))

    size = st.sampled_from([2, 3, 1, 2])
    return st.lists(size, max_size=4).map(tuple).flatmap(strides)


JOIN = Exercise(
    id="02.3",
    title="Dimensions that act as one",
    name="runs",
    statement=RUNS,
    stub=RUNS_STUB,
    reference=runs,
    inputs=runs_inputs,
    examples=(((2, 3), (3, 1)), ((3, 2), (1, 3)), ((4, 2), (3, 1)),
              ((2, 3, 2), (6, 2, 1)), ((2, 1, 3), (3, 9, 1)), ((), ()),
              ((2, 3, 4), (24, 4, 1)), ((2, 3, 4), (12, 4, 2)),
              ((1,), (5,)), ((2, 2), (1, 1)), ((3, 3), (0, 0)),
              ((2, 3), (2, 1)), ((3, 2), (1, 2)), ((2, 2, 2), (4, 2, 1)),
              ((2, 2, 2), (9, 2, 1))),
    wrong=(
        Wrong(ones_kept, "There are dimensions of size 1 in your answer, or "
              "one that kept two others apart. How often is a dimension of "
              "size 1 stepped along?"),
        Wrong(equal_strides, "This joins dimensions of equal strides. Where "
              "the inner dimension ends, how far are you from where it "
              "began?"),
        Wrong(outer_size, "This compares with the size of the outer "
              "dimension. One outer step passes over a whole inner "
              "dimension: whose size says how long that is?"),
        Wrong(stride_of_the_outer, "The joined dimension has the stride of "
              "the outer one here. From one of its elements to the next, "
              "which of the two is stepped along?"),
        Wrong(sizes_added, "This adds the sizes. How many elements do 2 rows "
              "of 3 have?"),
        Wrong(any_fall, "This joins wherever the outer step is long enough. "
              "If it is longer than the inner dimension there is a gap: can "
              "one stride step over it now and then?"),
        Wrong(innermost_first, "The runs are right, and in the wrong order. "
              "Which dimension is the outermost, the first or the last?"),
        Wrong(joins_once, "This joins pairs and goes on behind them. After a "
              "join there is one longer dimension: may it not be joined to "
              "its next neighbour too?"),
    ),
    right=(from_the_right, by_recursion),
    hints=(
        "Go through the dimensions from the first to the last, and keep a "
        "list of the runs so far.",
        "A dimension joins the last run if that run's stride is the "
        "dimension's size times its stride.",
        "The joined run has the product of the sizes and the stride of the "
        "inner one.",
    ),
    after="A tensor with one run can be viewed in every shape. With more, "
    "each run must be cut by itself: that is `computeStride` in "
    "aten/src/ATen/TensorUtils.cpp. The loops of PyTorch's elementwise "
    "operators join dimensions in the same way, to have fewer of them: "
    "`coalesce_dimensions` in aten/src/ATen/TensorIterator.cpp.")


# 02.4: inside the storage

FITS = """\
**Exercise 02.4.** Write `fits(shape, strides, offset, count)`: `True` if
every element of that geometry lies inside a storage of `count` elements.
The strides may be negative here, as NumPy's may. A tensor without elements
reads nothing, and fits. Do not go through the elements: there may be
billions of them."""

FITS_STUB = '''\
def fits(shape: tuple, strides: tuple, offset: int, count: int) -> bool:
    """Does the geometry stay inside a storage of `count` elements?"""
    raise NotImplementedError("exercise 02.4")'''


def fits(shape, strides, offset, count):
    if 0 in shape:
        return True
    low = high = offset
    for size, stride in zip(shape, strides):
        reach = (size - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return low >= 0 and high < count


def as_many_as(shape, strides, offset, count):
    return 0 in shape or 0 <= offset and offset + math.prod(shape) <= count


def whole_steps(shape, strides, offset, count):
    high = offset + sum(n * s for n, s in zip(shape, strides) if s > 0)
    low = offset + sum(n * s for n, s in zip(shape, strides) if s < 0)
    return 0 in shape or 0 <= low and high < count


def offset_left_out(shape, strides, offset, count):
    return fits(shape, strides, 0, count)


def one_too_far(shape, strides, offset, count):
    return 0 in shape or fits(shape, strides, offset, count + 1)


def empty_reads(shape, strides, offset, count):
    return fits(tuple(max(n, 1) for n in shape), strides, offset, count)


def upper_end_only(shape, strides, offset, count):
    return 0 in shape or offset + sum(
        (n - 1) * s for n, s in zip(shape, strides) if s > 0) < count


def last_index_only(shape, strides, offset, count):
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides))
    return 0 in shape or 0 <= last < count


def corners_of_signs(shape, strides, offset, count):
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides))
    return 0 in shape or 0 <= offset < count and 0 <= last < count


def by_sums(shape, strides, offset, count):
    if 0 in shape:
        return True
    reach = [(n - 1) * s for n, s in zip(shape, strides)]
    return (offset + sum(r for r in reach if r < 0) >= 0
            and offset + sum(r for r in reach if r > 0) < count)


def by_corners(shape, strides, offset, count):
    if 0 in shape:
        return True
    ends = {offset}
    for n, s in zip(shape, strides):
        ends |= {end + (n - 1) * s for end in ends}
    return 0 <= min(ends) and max(ends) < count


def fits_inputs(st):
    dimension = st.tuples(st.sampled_from([2, 3, 1, 2, 0]),
                          st.integers(-3, 4))
    return st.tuples(st.lists(dimension, max_size=3), st.integers(0, 8),
                     st.integers(0, 12)).map(lambda t: (
                         tuple(n for n, _ in t[0]),
                         tuple(s for _, s in t[0]), t[1], t[2]))


INSIDE = Exercise(
    id="02.4",
    title="Inside the storage",
    name="fits",
    statement=FITS,
    stub=FITS_STUB,
    reference=fits,
    inputs=fits_inputs,
    examples=(((2, 3), (3, 1), 0, 6), ((2, 3), (3, 1), 0, 5),
              ((2, 3), (3, 1), 1, 6), ((2,), (4,), 0, 4), ((3,), (0,), 0, 1),
              ((0,), (1,), 9, 1), ((3,), (-1,), 2, 3), ((3,), (-1,), 1, 3),
              ((2, 2), (-2, 1), 2, 4), ((2, 2), (-1, 3), 0, 9),
              ((2, 2), (-3, 4), 1, 9), ((2, 2), (2, -2), 1, 4),
              ((), (), 0, 1), ((), (), 1, 1), ((4,), (2,), 0, 7),
              ((2, 2), (3, -2), 2, 5)),
    wrong=(
        Wrong(as_many_as, "This counts the elements. With a stride of 2, how "
              "far apart are the first and the third one?"),
        Wrong(whole_steps, "This takes `size` steps along each dimension. "
              "From the first to the last of 3 indices there are how many "
              "steps?"),
        Wrong(offset_left_out, "This leaves the offset out. Where does the "
              "tensor begin?"),
        Wrong(one_too_far, "This allows one element more than there are. "
              "What is the number of the last of 6 elements?"),
        Wrong(empty_reads, "This refuses a tensor without elements. Which "
              "element of it lies outside?"),
        Wrong(upper_end_only, "This looks at the upper end alone. Where does "
              "a negative stride lead?"),
        Wrong(last_index_only, "This looks at one corner, where every index "
              "is the last. With a positive and a negative stride, is that "
              "the lowest place or the highest?"),
        Wrong(corners_of_signs, "This looks at the first and the last "
              "element. With one positive and one negative stride, which "
              "corner lies highest, and which lowest?"),
    ),
    right=(by_sums, by_corners),
    hints=(
        "Each dimension moves the end by `(size - 1) * stride`, whatever the "
        "others do.",
        "Keep two numbers, the lowest and the highest place so far. Both "
        "begin at the offset. A negative reach moves one, a positive one "
        "the other.",
        "The storage has the elements 0 to `count - 1`. A size of 0 settles "
        "the answer at once.",
    ),
    after="PyTorch checks the upper end in `checkInBoundsForStorage`, of "
    "aten/src/ATen/native/Resize.h, and refuses negative strides before "
    "that. NumPy's `as_strided` checks nothing: a wrong geometry reads "
    "whatever lies there.")


# 02.5: the shape of an index by tensors

INDEXED = """\
**Exercise 02.5.** Write `indexed_shape(shape, indices)`: the shape of `x`
indexed by tensors. `indices` has one item for each dimension: None, which
takes all of it (as `:` does), or the shape of an index tensor. At least one
is a tensor. The index tensors are expanded to one shape together. That
shape comes in the place of the dimensions that are indexed, if these stand
side by side, and otherwise in front of all others."""

INDEXED_STUB = '''\
def indexed_shape(shape: tuple, indices: list) -> tuple:
    """The shape of x[indices], for indices of these shapes or None."""
    raise NotImplementedError("exercise 02.5")'''


def indexed_shape(shape, indices):
    named = [d for d, index in enumerate(indices) if index is not None]
    rest = [size for d, size in enumerate(shape) if d not in named]
    longest = max(len(indices[d]) for d in named)
    common = [1] * longest
    for d in named:
        for i, size in enumerate(reversed(indices[d]), 1):
            if size != 1:
                common[-i] = size
    side_by_side = named[-1] - named[0] + 1 == len(named)
    at = named[0] if side_by_side else 0
    return (*rest[:at], *common, *rest[at:])


def taken_apart(shape, indices):
    """(dimensions that are indexed, the other sizes, the common shape)."""
    named = [d for d, index in enumerate(indices) if index is not None]
    rest = [n for d, n in enumerate(shape) if d not in named]
    whole = indexed_shape(shape, indices)
    near = named[-1] - named[0] + 1 == len(named)
    at = named[0] if near else 0
    return named, rest, list(whole[at:at + len(whole) - len(rest)])


def always_in_front(shape, indices):
    _, rest, common = taken_apart(shape, indices)
    return (*common, *rest)


def always_in_place(shape, indices):
    named, rest, common = taken_apart(shape, indices)
    at = named[0]
    return (*rest[:at], *common, *rest[at:])


def always_at_the_end(shape, indices):
    _, rest, common = taken_apart(shape, indices)
    return (*rest, *common)


def every_pair(shape, indices):
    named, rest, _ = taken_apart(shape, indices)
    near = named[-1] - named[0] + 1 == len(named)
    at = named[0] if near else 0
    return (*rest[:at], *[n for d in named for n in indices[d]], *rest[at:])


def first_shape(shape, indices):
    named, rest, _ = taken_apart(shape, indices)
    near = named[-1] - named[0] + 1 == len(named)
    at = named[0] if near else 0
    return (*rest[:at], *indices[named[0]], *rest[at:])


def each_in_its_place(shape, indices):
    found = []
    for size, index in zip(shape, indices):
        found += [size] if index is None else list(index)
    return tuple(found)


def counted(shape, indices):
    named, rest, common = taken_apart(shape, indices)
    near = named[-1] - named[0] + 1 == len(named)
    at = named[0] if near else 0
    return (*rest[:at], math.prod(common), *rest[at:])


def by_numpy_rule(shape, indices):
    columns = [index for index in indices if index is not None]
    width = max(map(len, columns))
    padded = [(1,) * (width - len(c)) + tuple(c) for c in columns]
    common = [next((n for n in sizes if n != 1), 1)
              for sizes in zip(*padded)]
    marks = "".join(" " if index is None else "x" for index in indices)
    front, back = [], []
    if " " in marks.strip():
        back = [n for n, index in zip(shape, indices) if index is None]
    else:
        at = marks.index("x")
        front = list(shape[:at])
        back = list(shape[at + marks.count("x"):])
    return tuple(front + common + back)


def with_a_mark(shape, indices):
    """One mark where the common shape goes, then the mark is replaced."""
    named, rest, common = [], [], []
    for d, (size, index) in enumerate(zip(shape, indices)):
        if index is None:
            rest.append(size)
            continue
        named.append(d)
        wide, low = ([*common], [*index]) if len(common) >= len(index) else (
            [*index], [*common])
        gap = len(wide) - len(low)
        common = wide[:gap] + [max(a, b) if 0 not in (a, b) else 0
                               for a, b in zip(wide[gap:], low)]
    if named != list(range(named[0], named[0] + len(named))):
        return tuple(common + rest)
    return tuple(rest[:named[0]] + common + rest[named[0]:])


def indexed_inputs(st):
    def indices(parts):
        shape, common, picks, ones, cuts = parts
        made = []
        for d in range(len(shape)):
            if not picks[d]:
                made.append(None)
                continue
            index = tuple(1 if one else n for n, one in zip(common, ones[d]))
            made.append(index[cuts[d] % (len(index) + 1):])
        first = picks.index(True) if True in picks else 0
        made[first] = tuple(common)
        return tuple(shape), made

    def sized(n):
        flags = st.lists(st.booleans(), min_size=n, max_size=n)
        return st.tuples(
            st.lists(st.sampled_from([5, 6, 7]), min_size=n, max_size=n),
            st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=2),
            flags, st.lists(st.lists(st.booleans(), min_size=2, max_size=2),
                            min_size=n, max_size=n),
            st.lists(st.integers(0, 2), min_size=n, max_size=n))

    return st.integers(1, 4).flatmap(sized).map(indices)


INDEX = Exercise(
    id="02.5",
    title="Where the indexed dimensions go",
    name="indexed_shape",
    statement=INDEXED,
    stub=INDEXED_STUB,
    reference=indexed_shape,
    inputs=indexed_inputs,
    examples=(((5,), [(1,)]), ((5, 6), [(1,), (1, 1)]),
              ((5,), [(2,)]), ((5, 6), [(2,), None]), ((5, 6), [None, (2,)]),
              ((5, 6), [(2,), (2,)]), ((5, 6), [(2, 1), (3,)]),
              ((5, 6, 7), [None, (2,), (2,)]), ((5, 6, 7), [(2,), None, (2,)]),
              ((5, 6, 7), [(1,), None, (3,)]), ((5, 6), [None, (2, 3)]),
              ((5, 6), [(1,), (4,)]), ((5, 6, 7), [None, (2,), None]),
              ((5, 6, 7), [None, (2, 1), (3,)]),
              ((5, 6, 7, 5), [None, (2,), None, (2,)])),
    wrong=(
        Wrong(always_in_front, "This puts the index tensors' shape in front "
              "of all others. `x[:, i]` keeps its first dimension first: "
              "where do the indexed dimensions stand there?"),
        Wrong(always_in_place, "This puts it where the first indexed "
              "dimension was, even if another one stands apart. `x[i, :, "
              "j]` has two places it could go to: which does the rule "
              "choose, and would it be so for `x[:, i, :, j]`?"),
        Wrong(always_at_the_end, "This puts it behind all others. In "
              "`x[i]` of a matrix, which are the rows of the result?"),
        Wrong(every_pair, "This takes each index of one tensor with each of "
              "the other. The tensors are read in step: `x[[0, 1], [0, 1]]` "
              "has how many elements?"),
        Wrong(first_shape, "This takes the first index tensor's shape for "
              "all. What do the shapes (2, 1) and (3,) expand to together?"),
        Wrong(each_in_its_place, "This puts each index tensor's shape in the "
              "place of its own dimension. There is one result for each "
              "group of indices that are read in step: how often should "
              "their shape appear?"),
        Wrong(counted, "This flattens the index. `x[i]` with an index of "
              "shape (2, 3) has how many dimensions more than `x[0]`?"),
    ),
    right=(by_numpy_rule, with_a_mark),
    hints=(
        "Three lists help: which dimensions are indexed, the sizes of the "
        "others, and the shape that the index tensors expand to together.",
        "To expand shapes together, compare them from the last dimension "
        "backwards. A size that is not 1 wins.",
        "The dimensions stand side by side if the last is as far from the "
        "first as their number says. As many sizes as stand before the "
        "first of them go in front.",
    ),
    after="PyTorch finds the place in `AdvancedIndex` and "
    "`transposeToFront`, of aten/src/ATen/native/TensorAdvancedIndexing.cpp "
    "and IndexingUtils.h. NumPy has the same rule, with one difference: "
    "an int beside index tensors counts as one of them there.")

exercises = (CONTIGUOUS, SLICE, JOIN, INSIDE, INDEX)
