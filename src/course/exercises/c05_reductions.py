"""Exercises of chapter 5: sums, groups, places, spreads, overflow."""

import math
from fractions import Fraction
from itertools import product

from course.exercises import Exercise, Wrong


COMPENSATED = """\
**Exercise 05.1.** Write `compensated_sum(values)`: the sum of a list of
floats, none of them negative, in one pass from left to right. Each addition
is rounded, and what the rounding took can be computed: if `new = total + x`,
then `(new - total) - x` is what came out too much. Carry it over to the
next number. The result must be right to the last few bits, for ten numbers
and for thousands."""

COMPENSATED_STUB = '''\
def compensated_sum(values: list[float]) -> float:
    """The sum, with the error of each addition carried to the next."""
    raise NotImplementedError("exercise 05.1")'''


def compensated_sum(values):
    total = carry = 0.0
    for value in values:
        step = value - carry
        new = total + step
        carry = (new - total) - step
        total = new
    return total


# Known wrong answers


def loop(values):
    total = 0.0
    for value in values:
        total += value
    return total


def wrong_sign(values):
    total = carry = 0.0
    for value in values:
        step = value + carry
        new = total + step
        carry = (new - total) - step
        total = new
    return total


def error_of_the_value(values):
    total = carry = 0.0
    for value in values:
        new = total + (value - carry)
        carry = (new - total) - value
        total = new
    return total


def carried_for_ever(values):
    total = carry = 0.0
    for value in values:
        step = value - carry
        new = total + step
        carry += (new - total) - step
        total = new
    return total


def order_of_size(values):
    return loop(sorted(values))


def rounded_at_the_end(values):
    return round(math.fsum(values), 6)


def no_values(values):
    total, carry = values[0], 0.0
    for value in values[1:]:
        step = value - carry
        new = total + step
        carry = (new - total) - step
        total = new
    return total


# Other right answers


def carry_at_the_end(values):
    total = lost = 0.0
    for value in values:
        new = total + value
        high, low = max(total, value), min(total, value)
        lost += (high - new) + low
        total = new
    return total + lost


def by_fractions(values):
    return float(sum(map(Fraction, values)))


def compensated_inputs(st):
    value = st.sampled_from([0.1, 1.0, 0.3, 1e-3, 7.7, 1e6, 0.0])
    pattern = st.lists(value, max_size=4)
    return st.tuples(pattern, st.integers(1, 3) | st.integers(1, 700))


def many(pattern, count):
    return (pattern * count,)


compensated = Exercise(
    id="05.1",
    title="What a rounding took",
    name="compensated_sum",
    statement=COMPENSATED,
    stub=COMPENSATED_STUB,
    reference=compensated_sum,
    inputs=compensated_inputs,
    prepare=many,
    call="compensated_sum({0!r} * {1!r})",
    rtol=6e-16,
    examples=(([], 1), ([0.1], 10), ([0.1], 3000), ([1e-9], 7), ([1e6, 0.1], 1500),
              ([1e-3, 7.7], 900), ([0.3, 1.0, 0.1], 800)),
    wrong=(
        Wrong(loop, "This adds from left to right and forgets what each "
              "rounding took. What is (new - total) - x, where x is the "
              "number that was added?"),
        Wrong(wrong_sign, "The carry is what came out too much, and this "
              "adds it once more. Should the next number grow or shrink by "
              "it?"),
        Wrong(error_of_the_value, "This compares the growth of the total "
              "with the number itself. What was added was the number less "
              "the carry: with which of the two must the growth be "
              "compared?"),
        Wrong(carried_for_ever, "This adds the new error to the old one, "
              "which the next step has taken into account already. How often "
              "may one error be made good?"),
        Wrong(order_of_size, "This adds the small numbers first. That helps "
              "where the sizes differ; which order helps where all numbers "
              "are equal?"),
        Wrong(rounded_at_the_end, "This rounds the result to so many "
              "decimal places. Where does the last bit of a float64 lie if "
              "the sum is a million, and where if it is a thousandth?"),
        Wrong(no_values, "This begins with the first number. With what does "
              "the sum of no numbers begin?"),
    ),
    right=(carry_at_the_end, by_fractions),
    hints=(
        "Keep two numbers: the total, and what its last rounding added too "
        "much. Both begin at 0.",
        "Take the carry off the next number before it is added: step = value "
        "- carry, new = total + step.",
        "The new carry is (new - total) - step: exact arithmetic would give "
        "0, and the floats give what was lost.",
    ),
    after="This is Kahan's sum (1965). torch.sum goes another way: several "
    "partial sums side by side, each of few numbers "
    "(aten/src/ATen/native/cpu/SumKernel.cpp), which costs no extra "
    "additions.",
)


GROUPS = """\
**Exercise 05.2.** Write `sum_along(values, shape, dim)`: the sums along one
dimension of a tensor whose elements lie in the flat list `values`, in
row-major order. The result is a flat list too, in the row-major order of the
shape without `dim`. A size may be 0: then `values` is empty, and the result
need not be."""

GROUPS_STUB = '''\
def sum_along(values: list[int], shape: tuple, dim: int) -> list[int]:
    """The sums along dimension dim of a tensor in row-major order."""
    raise NotImplementedError("exercise 05.2")'''


def sum_along(values, shape, dim):
    size = shape[dim]
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1:])
    return [sum(values[(o * size + k) * inner + i] for k in range(size))
            for o in range(outer) for i in range(inner)]


# Known wrong answers


def always_the_last(values, shape, dim):
    size = shape[dim]
    if not size:
        return sum_along(values, shape, dim)
    return [sum(values[i:i + size]) for i in range(0, len(values), size)]


def always_the_first(values, shape, dim):
    count = math.prod(shape[:dim] + shape[dim + 1:])
    return [sum(values[i::count]) for i in range(count)]


def everything(values, shape, dim):
    return [sum(values)]


def inner_first(values, shape, dim):
    size = shape[dim]
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1:])
    return [sum(values[(o * size + k) * inner + i] for k in range(size))
            for i in range(inner) for o in range(outer)]


def only_what_is_there(values, shape, dim):
    return sum_along(values, shape, dim) if values else []


def next_size_only(values, shape, dim):
    size = shape[dim]
    step = shape[dim + 1] if dim + 1 < len(shape) else 1
    count = math.prod(shape[:dim] + shape[dim + 1:])
    return [sum(values[(i // step * size + k) * step + i % step]
                for k in range(size)
                if (i // step * size + k) * step + i % step < len(values))
            if step else 0 for i in range(count)]


def kept_running(values, shape, dim):
    size = shape[dim]
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1:])
    found = []
    for o in range(outer):
        total = 0
        for i in range(inner):
            for k in range(size):
                total += values[(o * size + k) * inner + i]
            found.append(total)
    return found


# Other right answers


def by_position(values, shape, dim):
    strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    rest = shape[:dim] + shape[dim + 1:]
    found = {place: 0 for place in product(*map(range, rest))}
    for place in product(*map(range, shape)):
        at = sum(p * s for p, s in zip(place, strides))
        found[place[:dim] + place[dim + 1:]] += values[at]
    return list(found.values())


def by_blocks(values, shape, dim):
    inner = math.prod(shape[dim + 1:])
    block = inner * shape[dim]
    found = []
    for o in range(math.prod(shape[:dim])):
        part = values[o * block:(o + 1) * block]
        found += [sum(part[i::inner]) for i in range(inner)]
    return found


def groups_inputs(st):
    def rest(shape):
        count = math.prod(shape)
        value = st.integers(-9, 9)
        return st.tuples(
            st.lists(value, min_size=count, max_size=count),
            st.just(shape), st.integers(0, len(shape) - 1))

    size = st.sampled_from([2, 3, 1, 2, 3, 0])
    return st.lists(size, min_size=1, max_size=3).map(tuple).flatmap(rest)


groups = Exercise(
    id="05.2",
    title="Which elements meet",
    name="sum_along",
    statement=GROUPS,
    stub=GROUPS_STUB,
    reference=sum_along,
    imports="import math",
    inputs=groups_inputs,
    examples=(([1, 2, 3, 4, 5, 6], (2, 3), 0),
              ([1, 2, 3, 4, 5, 6], (2, 3), 1), ([], (0, 3), 0),
              ([], (0, 3), 1), ([], (2, 0), 1), ([1, 2, 3], (3,), 0),
              (list(range(12)), (2, 3, 2), 0), (list(range(12)), (2, 3, 2), 1),
              (list(range(12)), (2, 3, 2), 2)),
    wrong=(
        Wrong(always_the_last, "This adds neighbours. They belong together "
              "along the last dimension; how far apart in the list are two "
              "elements that differ by 1 in `dim`?"),
        Wrong(always_the_first, "This takes elements that lie as far apart "
              "as the result is long, which is right along the first "
              "dimension. How many dimensions stand before `dim`?"),
        Wrong(everything, "This adds all elements. How many sums are due if "
              "one dimension of (2, 3) goes?"),
        Wrong(inner_first, "The sums are right, and in the wrong order. In "
              "row-major order, which of the remaining dimensions runs "
              "fastest?"),
        Wrong(only_what_is_there, "This gives nothing where there are no "
              "elements. Three columns of no rows: how many sums are that, "
              "and what is each?"),
        Wrong(next_size_only, "This takes the size of the next dimension for "
              "the step of `dim`. If two dimensions follow, over how many "
              "elements does one step pass?"),
        Wrong(kept_running, "The total goes on from one group to the next. "
              "Where does each group begin?"),
    ),
    right=(by_position, by_blocks),
    hints=(
        "Cut the shape in three: what stands before `dim`, the size of "
        "`dim`, and what stands after it. Multiply each part to one number.",
        "Element k of the group (o, i) lies at (o * size + k) * inner + i.",
        "Loop over o and inside over i, which is the order of the result; "
        "sum over k.",
    ),
    after="The three numbers are how torch.cumsum and softmax see any "
    "tensor: outer_size, dim_size, inner_size "
    "(aten/src/ATen/native/cpu/SoftMaxKernel.cpp).",
)


PLACE = """\
**Exercise 05.3.** Write `argmax(values)`: the position of the largest of a
list of floats. Of equal values the first counts. A `nan` counts as larger
than all else, and of several the first. An empty list is an `IndexError`."""

PLACE_STUB = '''\
def argmax(values: list[float]) -> int:
    """The position of the largest value: the first of equals; nan wins."""
    raise NotImplementedError("exercise 05.3")'''


def argmax(values):
    if not values:
        raise IndexError("argmax of no values")
    best = 0
    for i, value in enumerate(values):
        if value != value:
            return i
        if value > values[best]:
            best = i
    return best


# Known wrong answers


def last_of_equals(values):
    if any(v != v for v in values):
        return argmax(values)
    best = argmax(values)
    return max(i for i, v in enumerate(values) if v == values[best])


def python_max(values):
    if not values:
        raise IndexError
    best = 0
    for i, value in enumerate(values):
        if value > values[best]:
            best = i
    return best


def nan_left_out(values):
    if not values:
        raise IndexError
    known = [v for v in values if v == v]
    return values.index(max(known)) if known else 0


def from_zero(values):
    if not values:
        raise IndexError
    place, best = 0, 0.0
    for i, value in enumerate(values):
        if value != value:
            return i
        if value > best:
            place, best = i, value
    return place


def the_value(values):
    return values[argmax(values)]


def zero_for_none(values):
    return argmax(values) if values else 0


def last_nan(values):
    found = [i for i, v in enumerate(values) if v != v]
    return found[-1] if found else argmax(values)


# Other right answers


def by_key(values):
    if not values:
        raise IndexError
    return max(range(len(values)), key=lambda i: (
        values[i] != values[i], values[i] if values[i] == values[i] else 0,
        -i))


def by_sorting(values):
    order = sorted(range(len(values)), key=lambda i: (
        values[i] == values[i], -values[i] if values[i] == values[i] else 0))
    return order[0]


def place_inputs(st):
    value = st.sampled_from([1.0, 2.0, -1.0, 0.0, -2.0, 3.0, math.nan,
                             math.inf, -math.inf])
    return st.tuples(st.lists(value, max_size=5))


place = Exercise(
    id="05.3",
    title="The place of the largest",
    name="argmax",
    statement=PLACE,
    stub=PLACE_STUB,
    reference=argmax,
    inputs=place_inputs,
    examples=(([],), ([1.0, 1.0],), ([-1.0, -2.0],), ([-2.0, -1.0],),
              ([math.nan, 1.0],), ([1.0, math.nan],),
              ([1.0, math.nan, math.nan],), ([math.nan, math.nan],),
              ([-math.inf, -math.inf],)),
    wrong=(
        Wrong(last_of_equals, "Of several largest values this names the "
              "last. Should `>` or `>=` decide whether a later value takes "
              "over?"),
        Wrong(python_max, "Every comparison with a nan is false, so whether "
              "this sees it depends on where it stands. How can you tell "
              "that a value is a nan, without comparing it to another?"),
        Wrong(nan_left_out, "This passes over nan. If a value is unknown, is "
              "it known which one is the largest?"),
        Wrong(from_zero, "This begins with 0 as the largest so far. What if "
              "all values are negative?"),
        Wrong(the_value, "This gives the largest value. Where does it "
              "stand?"),
        Wrong(zero_for_none, "This names position 0 of an empty list. What "
              "would `values[0]` be?"),
        Wrong(last_nan, "Of several nans this names the last. Which one "
              "counts?"),
    ),
    right=(by_key, by_sorting),
    hints=(
        "Keep the position of the best so far, not its value. It begins at "
        "0, if there is a position 0.",
        "A value takes over where it is greater, and not where it is equal.",
        "`value != value` holds for a nan alone. The first one ends the "
        "search.",
    ),
    after="torch.argmax has the same rule in one comparison: greater, or nan "
    "where the other is not, or equal with a smaller index "
    "(aten/src/ATen/native/SharedReduceOps.h, GreaterOrNan).",
)


SCATTER = """\
**Exercise 05.4.** Write `scatter_add(x, dim, index, src)` for matrices as
lists of rows: a copy of `x` to which each element of `src` is added at the
place that `index` names. For `dim` 1, `src[i][j]` goes to row `i`, column
`index[i][j]`; for `dim` 0, to row `index[i][j]`, column `j`. A place may be
named more than once. `index` may have fewer rows or columns than `x` and
`src`: only what it covers is added."""

SCATTER_STUB = '''\
def scatter_add(x: list, dim: int, index: list, src: list) -> list:
    """x with src added at the places that index names along dim."""
    raise NotImplementedError("exercise 05.4")'''


def scatter_add(x, dim, index, src):
    out = [list(row) for row in x]
    for i, row in enumerate(index):
        for j, place in enumerate(row):
            if dim == 0:
                out[place][j] += src[i][j]
            else:
                out[i][place] += src[i][j]
    return out


# Known wrong answers


def overwrites(x, dim, index, src):
    out = [list(row) for row in x]
    for i, row in enumerate(index):
        for j, place in enumerate(row):
            if dim == 0:
                out[place][j] = src[i][j]
            else:
                out[i][place] = src[i][j]
    return out


def added_once(x, dim, index, src):
    """As `out[index] += src` does in NumPy."""
    out = [list(row) for row in x]
    for i, row in enumerate(index):
        for j, place in enumerate(row):
            if dim == 0:
                out[place][j] = x[place][j] + src[i][j]
            else:
                out[i][place] = x[i][place] + src[i][j]
    return out


def other_dimension(x, dim, index, src):
    return scatter_add(x, 1 - dim, index, src)


def gathers(x, dim, index, src):
    out = [list(row) for row in x]
    for i, row in enumerate(index):
        for j, place in enumerate(row):
            out[i][j] += src[place][j] if dim == 0 else src[i][place]
    return out


def rows_shared(x, dim, index, src):
    x = list(x)
    for i, row in enumerate(index):
        for j, place in enumerate(row):
            if dim == 0:
                x[place][j] += src[i][j]
            else:
                x[i][place] += src[i][j]
    return x


def all_of_src(x, dim, index, src):
    out = [list(row) for row in x]
    for i, row in enumerate(src):
        for j, value in enumerate(row):
            if dim == 0:
                out[index[i][j]][j] += value
            else:
                out[i][index[i][j]] += value
    return out


def from_nothing(x, dim, index, src):
    return scatter_add([[0] * len(row) for row in x], dim, index, src)


# Other right answers


def by_places(x, dim, index, src):
    added = {}
    for i, row in enumerate(index):
        for j, place in enumerate(row):
            at = (place, j) if dim == 0 else (i, place)
            added[at] = added.get(at, 0) + src[i][j]
    return [[value + added.get((i, j), 0) for j, value in enumerate(row)]
            for i, row in enumerate(x)]


def by_transposing(x, dim, index, src):
    if dim == 0:
        count = len(index[0]) if index else 0
        turned = [list(column) for column in zip(*x)]
        done = by_transposing(
            turned, 1, [[row[j] for row in index] for j in range(count)],
            [[row[j] for row in src] for j in range(count)])
        return [list(row) for row in zip(*done)]
    out = [row[:] for row in x]
    for row, places, values in zip(out, index, src):
        for place, value in zip(places, values):
            row[place] += value
    return out


def scatter_inputs(st):
    def matrix(rows, columns, value):
        return st.lists(st.lists(value, min_size=columns, max_size=columns),
                        min_size=rows, max_size=rows)

    @st.composite
    def case(draw):
        small = st.integers(1, 3)
        size, dim = [draw(small), draw(small)], draw(st.integers(0, 1))
        part = [draw(st.integers(1, n)) for n in size]
        part[dim] = draw(st.integers(1, 3))
        larger = [n + draw(st.sampled_from([0, 0, 1])) for n in part]
        value = st.integers(1, 9)
        return (draw(matrix(*size, value)), dim,
                draw(matrix(*part, st.integers(0, size[dim] - 1))),
                draw(matrix(*larger, value)))

    return case()


scatter = Exercise(
    id="05.4",
    title="Added where the index says",
    name="scatter_add",
    statement=SCATTER,
    stub=SCATTER_STUB,
    reference=scatter_add,
    inputs=scatter_inputs,
    examples=(([[1, 2], [3, 4]], 1, [[0, 0], [1, 1]], [[5, 6], [7, 8]]),
              ([[1, 2], [3, 4]], 0, [[0, 1], [0, 0]], [[5, 6], [7, 8]]),
              ([[1, 2, 3]], 1, [[2]], [[5, 6]]),
              ([[1], [2]], 0, [[1]], [[5], [6]])),
    wrong=(
        Wrong(overwrites, "This writes src over what is there. What becomes "
              "of the old element?"),
        Wrong(added_once, "Each element is added to what `x` held at first, "
              "so that of two for one place the last remains. What must the "
              "second one be added to?"),
        Wrong(other_dimension, "The index stands in for the wrong "
              "dimension. With dim 0, is it the row or the column that "
              "`index[i][j]` names?"),
        Wrong(gathers, "This reads from the place that the index names, as "
              "gather does. Which of the two, reading or writing, is done "
              "there?"),
        Wrong(rows_shared, "The rows of the result are those of `x`. Who "
              "else may hold them, and what does `list(x)` copy?"),
        Wrong(all_of_src, "This goes over all of `src`. `index` may be "
              "smaller: whose shape says how much is added?"),
        Wrong(from_nothing, "This begins with zeros. What is already in "
              "`x`?"),
    ),
    right=(by_places, by_transposing),
    hints=(
        "Copy the rows of `x` first, each one.",
        "Loop over the rows and columns of `index`, and of nothing else.",
        "The place is (index[i][j], j) for dim 0, and (i, index[i][j]) for "
        "dim 1. Add with +=.",
    ),
    after="On a GPU many threads add at once, with atomic additions in no "
    "fixed order (aten/src/ATen/native/cuda/ScatterGatherKernel.cu): float "
    "sums may differ in their last bits from run to run.",
)


MOMENTS = """\
**Exercise 05.5.** A list of floats is known by three numbers: how many
there are, their mean, and the sum of their squared distances from that
mean. Write `merge(a, b)`: the three numbers of both lists together, from
those of each. The lists themselves are gone. Nothing may be lost where the
means are large and the distances small. Of no values the mean is 0.0, and so
is the sum."""

MOMENTS_STUB = '''\
def merge(a: tuple, b: tuple) -> tuple:
    """(count, mean, squares) of two lists as one, from those of each."""
    raise NotImplementedError("exercise 05.5")'''


def merge(a, b):
    (n, mean_a, squares_a), (m, mean_b, squares_b) = a, b
    count = n + m
    if not count:
        return 0, 0.0, 0.0
    step = mean_b - mean_a
    return (count, mean_a + step * m / count,
            squares_a + squares_b + step * step * n * m / count)


# Known wrong answers


def mean_of_means(a, b):
    count, mean, squares = merge(a, b)
    return count, (a[1] + b[1]) / 2, squares


def squares_added(a, b):
    count, mean, squares = merge(a, b)
    return count, mean, a[2] + b[2]


def weight_of_all(a, b):
    count, mean, _ = merge(a, b)
    return count, mean, a[2] + b[2] + (b[1] - a[1]) ** 2 * count


def second_moments(a, b):
    count, mean, _ = merge(a, b)
    total = sum(squares + n * m * m for n, m, squares in (a, b))
    return count, mean, total - count * mean * mean


def always_divides(a, b):
    count = a[0] + b[0]
    mean = (a[0] * a[1] + b[0] * b[1]) / count
    return merge(a, b)[:1] + (mean,) + merge(a, b)[2:]


def variances(a, b):
    count, mean, _ = merge(a, b)
    step = b[1] - a[1]
    if not count:
        return 0, 0.0, 0.0
    return count, mean, (a[0] * a[2] + b[0] * b[2]) / count + (
        step * step * a[0] * b[0] / count / count)


def other_count(a, b):
    count, mean, squares = merge(a, b)
    if not count:
        return count, mean, squares
    return count, a[1] + (b[1] - a[1]) * a[0] / count, squares


# Other right answers


def by_distances(a, b):
    count = a[0] + b[0]
    if count == 0:
        return 0, 0.0, 0.0
    mean = (a[0] * a[1] + b[0] * b[1]) / count
    squares = sum(s + n * (m - mean) ** 2 for n, m, s in (a, b))
    return count, mean, squares


def into_the_larger(a, b):
    if a[0] < b[0]:
        a, b = b, a
    if not b[0]:
        return a
    share = b[0] / (a[0] + b[0])
    step = b[1] - a[1]
    return (a[0] + b[0], a[1] + step * share,
            a[2] + b[2] + a[0] * step * step * share)


def moments(values):
    if not values:
        return 0, 0.0, 0.0
    mean = math.fsum(values) / len(values)
    return len(values), mean, math.fsum((v - mean) ** 2 for v in values)


def moments_of_both(first, second, offset):
    return tuple(moments([offset + v for v in values])
                 for values in (first, second))


def moments_inputs(st):
    value = st.integers(-9, 9).map(lambda k: k / 2)
    some = st.lists(value, max_size=4)
    return st.tuples(some, some, st.sampled_from([0.0, 0.0, 1e6]))


spread = Exercise(
    id="05.5",
    title="Two spreads in one",
    name="merge",
    statement=MOMENTS,
    stub=MOMENTS_STUB,
    reference=merge,
    inputs=moments_inputs,
    prepare=moments_of_both,
    describe=lambda args: "merge({!r}, {!r})".format(
        *moments_of_both(*args)),
    rtol=1e-7,
    atol=1e-7,
    examples=(([], [], 0.0), ([1.0], [], 0.0), ([], [1.0], 0.0),
              ([1.0], [2.0, 3.0], 0.0), ([1.0, 2.0], [3.0], 1e6),
              ([0.5, 2.5], [-3.0, 1.0, 4.5], 1e6), ([1.0], [1.0], 0.0)),
    wrong=(
        Wrong(mean_of_means, "This takes the mean of the two means. What if "
              "one list has ten values and the other has one?"),
        Wrong(squares_added, "This adds the two sums of squares. They are "
              "distances from two different means: what is missing where "
              "the means lie apart?"),
        Wrong(weight_of_all, "The distance between the means counts too "
              "much. What should it add if one of the lists is empty?"),
        Wrong(second_moments, "This goes back to the sum of the squared "
              "values and takes the squared mean off. How many digits are "
              "left if the mean is a million and the distances are 1?"),
        Wrong(always_divides, "This divides by the count of both. What if "
              "both lists are empty?"),
        Wrong(variances, "This treats the third number as a variance. Has "
              "it been divided by the count?"),
        Wrong(other_count, "The mean moves towards the wrong list. If `b` "
              "has nearly all values, near which of the two means must it "
              "lie?"),
    ),
    right=(by_distances, into_the_larger),
    hints=(
        "The mean of both lies between the two means, nearer to that of the "
        "longer list.",
        "Of each list, the squared distances from the common mean are those "
        "from its own mean, and count * (own mean - common mean) ** 2 more.",
        "Put together, the two extra terms are (mean_b - mean_a) ** 2 * n * "
        "m / (n + m).",
    ),
    after="This is how torch.var adds up what its threads have found "
    "(aten/src/ATen/native/SharedReduceOps.h, WelfordOps::combine). Source: "
    "Chan, Golub and LeVeque, 1979.",
)


OVERFLOW = """\
**Exercise 05.6.** Write `logsumexp(values)`: the logarithm of the sum of
`exp(v)` over a list of floats. It never overflows, not even for
`[1000.0, 1000.0]`. An infinite value has its limit: `inf` anywhere gives
`inf`, and if all are `-inf`, the result is `-inf`. The sum over no values
is 0, its logarithm `-inf`. A `nan` among the values gives `nan`, whatever
the others are."""

OVERFLOW_STUB = '''\
def logsumexp(values: list[float]) -> float:
    """log(exp(v0) + exp(v1) + ...), without overflow."""
    raise NotImplementedError("exercise 05.6")'''


def logsumexp(values):
    if any(math.isnan(v) for v in values):
        return math.nan
    largest = max(values, default=-math.inf)
    if math.isinf(largest):
        return largest
    return largest + math.log(sum(math.exp(v - largest) for v in values))


# Known wrong answers


def special(values):
    """The cases in which no finite number is the answer."""
    if any(math.isnan(v) for v in values):
        return math.nan
    largest = max(values, default=-math.inf)
    return largest if math.isinf(largest) else None


def exp_first(values):
    found = special(values)
    if found is not None:
        return found
    return math.log(sum(math.exp(v) for v in values))


def nan_for_infinities(values):
    if not values:
        return -math.inf
    if any(math.isnan(v) for v in values):
        return math.nan
    largest = max(values)
    total = sum(math.exp(v - largest) for v in values)
    return largest + math.log(total)


def not_added_back(values):
    found = special(values)
    if found is not None:
        return found
    largest = max(values)
    return math.log(sum(math.exp(v - largest) for v in values))


def only_the_largest(values):
    found = special(values)
    return max(values) if found is None else found


def sum_of_logs(values):
    found = special(values)
    return sum(values) if found is None else found


def no_empty(values):
    max(values)
    return logsumexp(values)


def shifts_by_the_smallest(values):
    found = special(values)
    if found is not None:
        return found
    smallest = min(values)
    if smallest == -math.inf:
        return logsumexp(values)
    return smallest + math.log(sum(math.exp(v - smallest) for v in values))


def infinity_before_nan(values):
    if math.inf in values:
        return math.inf
    return logsumexp(values)


# Other right answers


def two_at_a_time(values):
    total = -math.inf
    for v in values:
        if math.isnan(v) or math.isnan(total):
            total = math.nan
            continue
        high, low = max(total, v), min(total, v)
        if math.isinf(high):
            total = high
        else:
            total = high + math.log1p(math.exp(low - high))
    return total


def by_fsum(values):
    found = special(values)
    if found is not None:
        return found
    largest = max(values)
    return math.log(math.fsum(math.exp(v - largest) for v in values)) + largest


def overflow_inputs(st):
    number = (st.integers(-5, 5) | st.integers(-2000, 2000)).map(float)
    edge = st.sampled_from([math.inf, -math.inf, math.nan, 1e308, -1e308])
    plain = st.lists(number, max_size=4)
    return st.tuples(plain | st.lists(number | edge, max_size=4))


overflow = Exercise(
    id="05.6",
    title="A sum that does not overflow",
    name="logsumexp",
    statement=OVERFLOW,
    stub=OVERFLOW_STUB,
    reference=logsumexp,
    imports="import math",
    inputs=overflow_inputs,
    rtol=1e-9,
    atol=1e-9,
    examples=(([],), ([-math.inf, -math.inf],), ([math.inf, math.inf],),
              ([1000.0, 1000.0],), ([-1000.0, -1000.0],), ([1e308, -1e308],),
              ([math.nan, 1.0],), ([1.0, math.nan],),
              ([math.inf, math.nan],), ([-math.inf, 2.0],), ([0.0, 1000.0],)),
    wrong=(
        Wrong(exp_first, "This takes exp of the values themselves. "
              "exp(710.0) is larger than any float64. What may be taken out "
              "of the sum as a factor first?"),
        Wrong(nan_for_infinities, "The largest value is infinite, and an "
              "infinity minus itself is nan. What is the result when the "
              "largest value is `-inf`, or `inf`?"),
        Wrong(not_added_back, "The largest value went out of the sum and "
              "never came back. What is log(exp(m) * s)?"),
        Wrong(only_the_largest, "This returns the largest value alone. It is "
              "near where the others are small. What is the result for two "
              "equal values?"),
        Wrong(sum_of_logs, "This adds the values: that is the logarithm of "
              "the product. Does exp(a) + exp(b) equal exp(a + b)?"),
        Wrong(no_empty, "This has no answer for an empty list. What is a sum "
              "over nothing, and what is its logarithm?"),
        Wrong(shifts_by_the_smallest, "This takes the smallest value out, "
              "and the differences to it are positive: they overflow. Which "
              "value leaves only differences that are not positive?"),
        Wrong(infinity_before_nan, "This looks for `inf` before it looks for "
              "`nan`. One value is unknown: what can be known of the sum?"),
    ),
    right=(two_at_a_time, by_fsum),
    hints=(
        "Take the largest value m out of the sum: it is exp(m) times the sum "
        "of exp(v - m).",
        "The result is m + log(sum of exp(v - m)). No v - m is above 0, so "
        "exp stays at or below 1, and one term is exactly 1.",
        "First settle the lists for which v - m is no number: those with a "
        "nan, and those whose largest value is infinite. "
        "`max(values, default=-math.inf)` serves the empty list.",
    ),
    after="torch.logsumexp does the same, and replaces an infinite maximum "
    "by 0 before it subtracts (aten/src/ATen/native/ReduceOps.cpp).",
)


exercises = compensated, groups, place, scatter, spread, overflow
