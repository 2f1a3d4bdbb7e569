"""Exercises of chapter 4: strides, loops, dtypes, division, the whole."""

import itertools
import math

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


# 04.2: few loops

STATEMENT_2 = """\
**Exercise 04.2.** Write `join_loops(shape, strides)`: the same walk with
as few loops as possible. `shape` has a size for each dimension, the
outermost first, all at least 2. `strides` has one tuple for each operand.
Two neighbouring dimensions are one where, for *every* operand, the outer
stride is the inner size times the inner stride. Keep the order. Give a
pair: the new shape, and the new strides of every operand."""

STUB_2 = '''\
def join_loops(shape: tuple, strides: tuple) -> tuple:
    """(shape, strides) of the same walk, with as few loops as can be."""
    raise NotImplementedError("exercise 04.2")'''


def join_loops(shape, strides):
    sizes, rows = [], [[] for _ in strides]
    for d, size in enumerate(shape):
        steps = [row[d] for row in strides]
        if sizes and all(row[-1] == size * step
                         for row, step in zip(rows, steps)):
            sizes[-1] *= size
            for row, step in zip(rows, steps):
                row[-1] = step
        else:
            sizes.append(size)
            for row, step in zip(rows, steps):
                row.append(step)
    return tuple(sizes), tuple(map(tuple, rows))


def joined(shape, strides, fits, keep_outer=False, once=False, size=True):
    sizes, rows, done = [], [[] for _ in strides], False
    for d, n in enumerate(shape):
        steps = [row[d] for row in strides]
        pairs = [(row[-1] if row else None, step)
                 for row, step in zip(rows, steps)]
        if sizes and not (once and done) and fits(sizes[-1], n, pairs):
            done = True
            sizes[-1] = sizes[-1] * n if size else n
            if not keep_outer:
                for row, step in zip(rows, steps):
                    row[-1] = step
        else:
            sizes.append(n)
            for row, step in zip(rows, steps):
                row.append(step)
    return tuple(sizes), tuple(map(tuple, rows))


def fit(outer, inner, pairs):
    return all(a == inner * b for a, b in pairs)


def join_any(shape, strides):
    return joined(shape, strides, lambda outer, inner, pairs: any(
        a == inner * b for a, b in pairs))


def join_by_first(shape, strides):
    return joined(shape, strides, lambda outer, inner, pairs:
                  pairs[0][0] == inner * pairs[0][1])


def join_outer_size(shape, strides):
    return joined(shape, strides, lambda outer, inner, pairs: all(
        a == outer * b for a, b in pairs))


def join_zero(shape, strides):
    return joined(shape, strides, lambda outer, inner, pairs: all(
        a == inner * b or 0 in (a, b) for a, b in pairs))


def join_keeps_outer(shape, strides):
    return joined(shape, strides, fit, keep_outer=True)


def join_once(shape, strides):
    return joined(shape, strides, fit, once=True)


def join_loses_size(shape, strides):
    return joined(shape, strides, fit, size=False)


def join_from_the_inside(shape, strides):
    sizes, rows = [], [[] for _ in strides]
    for d in reversed(range(len(shape))):
        if sizes and all(row[d] == sizes[0] * out[0]
                         for row, out in zip(strides, rows)):
            sizes[0] *= shape[d]
            continue
        sizes.insert(0, shape[d])
        for row, out in zip(strides, rows):
            out.insert(0, row[d])
    return tuple(sizes), tuple(map(tuple, rows))


def join_recursively(shape, strides):
    for d in range(len(shape) - 1):
        if all(row[d] == shape[d + 1] * row[d + 1] for row in strides):
            return join_recursively(
                (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2:]),
                tuple((*row[:d], *row[d + 1:]) for row in strides))
    return tuple(shape), tuple(map(tuple, strides))


def loops(st):
    def row(shape):
        step, steps = 1, []
        for size in reversed(shape):
            steps.insert(0, step)
            step *= size
        usual = tuple(steps)
        gap = tuple(s * 2 for s in usual)
        ends = tuple(s * (1 if d else 2) for d, s in enumerate(usual))
        last = (0,) * (len(shape) - 1) + usual[-1:]
        lead = usual[:1] + (0,) * (len(shape) - 1)
        free = st.tuples(*(st.sampled_from([0, s, s * shape[d]])
                           for d, s in enumerate(usual)))
        return st.sampled_from([usual, usual, gap, ends, last, lead]) | free

    return st.lists(st.integers(2, 4), max_size=4).map(tuple).flatmap(
        lambda shape: st.tuples(st.just(shape), st.lists(
            row(shape), min_size=1, max_size=3).map(tuple)))


JOIN = Exercise(
    id="04.2",
    title="Few loops",
    name="join_loops",
    statement=STATEMENT_2,
    stub=STUB_2,
    reference=join_loops,
    inputs=loops,
    examples=(((2, 3), ((3, 1),)), ((2, 3), ((3, 1), (0, 1))),
              ((2, 3), ((0, 1), (3, 1))), ((2, 3, 4), ((12, 4, 1),)),
              ((3, 2), ((2, 1),)), ((2, 2), ((0, 0),)), ((2, 3), ((0, 1),)),
              ((), ((),))),
    wrong=(
        Wrong(join_any, "This joins two loops as soon as one operand allows "
              "it. The other operands walk through the joined loop as well: "
              "where do they land after the first row?"),
        Wrong(join_by_first, "This asks the first operand alone. A row that "
              "is added to a matrix begins again after each row of the "
              "matrix: can one loop do that?"),
        Wrong(join_outer_size, "This multiplies by the outer size. After how "
              "many steps of the inner loop does the outer loop take one?"),
        Wrong(join_zero, "This lets a stride of 0 be joined with anything. "
              "An operand that stands still in one loop and moves in the "
              "other: what would the step of both be?"),
        Wrong(join_keeps_outer, "This gives a joined loop the outer stride. "
              "How far is it from one element to the next in the loop of "
              "both?"),
        Wrong(join_once, "This joins one pair and stops. A row-major tensor "
              "of three dimensions is one loop: which pairs are joined for "
              "that?"),
        Wrong(join_loses_size, "A joined loop here has only the inner size. "
              "How many elements does the walk visit before and after?"),
    ),
    right=(join_from_the_inside, join_recursively),
    hints=(
        "Go through the dimensions from the outside, and keep what you have "
        "so far: a list of sizes, and a list of strides for each operand.",
        "A new dimension can be joined with the last one you kept if that "
        "one's stride is the new size times the new stride, in every list.",
        "The joined loop has the product of both sizes, and the inner "
        "stride.",
    ),
    after="PyTorch does this in TensorIteratorBase::coalesce_dimensions "
    "(aten/src/ATen/TensorIterator.cpp); a dimension of size 1 joins any.",
)


# 04.3: the dtype of a meeting

STATEMENT_3 = """\
**Exercise 04.3.** Write `meeting(operands)`: the name of the dtype in
which operands meet. Each operand is a pair of a rank and a dtype's name.
Rank 0 is a tensor with dimensions, 1 a tensor without, 2 a Python number.
Within one rank, the dtype that comes last in this row wins: bool, uint8,
int32, int64, float32, float64. A later rank changes the result only if it
is of a higher kind: bool, then integers, then floats. There is at least
one operand."""

STUB_3 = '''\
def meeting(operands: tuple) -> str:
    """The dtype's name in which (rank, name) operands meet."""
    raise NotImplementedError("exercise 04.3")'''

LADDER = ("bool", "uint8", "int32", "int64", "float32", "float64")


def meeting(operands):
    def kind(name):
        return (name != "bool") + name.startswith("float")

    result = None
    for rank in range(3):
        names = [name for r, name in operands if r == rank]
        if names:
            widest = max(names, key=LADDER.index)
            if result is None or kind(widest) > kind(result):
                result = widest
    return result


def kind_of_name(name):
    return (name != "bool") + name.startswith("float")


def by_ranks(operands, rank_of=lambda r: r, ranks=range(3),
             higher=lambda name: name):
    result = None
    for rank in ranks:
        names = [name for r, name in operands if rank_of(r) == rank]
        if names:
            widest = max(names, key=LADDER.index)
            if result is None:
                result = widest
            elif kind_of_name(widest) > kind_of_name(result):
                result = higher(widest)
    return result or "bool"


def meeting_widest(operands):
    return max((name for _, name in operands), key=LADDER.index)


def meeting_without_numbers(operands):
    return (by_ranks(operands, ranks=range(2)) if min(operands)[0] < 2
            else by_ranks(operands))


def meeting_dims_only(operands):
    best = min(rank for rank, _ in operands)
    return by_ranks(operands, ranks=[best])


def meeting_two_ranks(operands):
    return by_ranks(operands, rank_of=lambda r: 0 if r == 1 else r)


def meeting_zero_is_number(operands):
    return by_ranks(operands, rank_of=lambda r: 2 if r == 1 else r)


def meeting_first(operands):
    return operands[0][1]


def meeting_default_float(operands):
    return by_ranks(operands, higher=lambda name: "float32"
                    if name.startswith("float") else name)


def meeting_ranks_reversed(operands):
    return by_ranks(operands, ranks=(2, 1, 0))


def meeting_sorted(operands):
    result = ""
    for rank in sorted({rank for rank, _ in operands}):
        widest = max((n for r, n in operands if r == rank),
                     key=LADDER.index)
        if not result or kind_of_name(widest) > kind_of_name(result):
            result = widest
    return result


def meeting_by_kind(operands):
    top = max(kind_of_name(name) for _, name in operands)
    able = [(r, n) for r, n in operands if kind_of_name(n) == top]
    first = min(rank for rank, _ in able)
    return max((n for r, n in able if r == first), key=LADDER.index)


def operands_of_ranks(st):
    number = st.sampled_from([(2, "bool"), (2, "int64"), (2, "float32")])
    tensor = st.tuples(st.integers(0, 1), st.sampled_from(LADDER))
    return st.tuples(st.lists(tensor | tensor | number, min_size=1,
                              max_size=4).map(tuple))


MEETING = Exercise(
    id="04.3",
    title="Where dtypes meet",
    name="meeting",
    statement=STATEMENT_3,
    stub=STUB_3,
    reference=meeting,
    inputs=operands_of_ranks,
    imports='LADDER = ("bool", "uint8", "int32", "int64", "float32", '
    '"float64")',
    examples=((((0, "uint8"), (2, "int64")),),
              (((0, "uint8"), (2, "float32")),),
              (((0, "float32"), (1, "float64")),),
              (((0, "int64"), (1, "float64")),),
              (((1, "int32"), (2, "int64")),),
              (((1, "float64"), (0, "float32")),),
              (((0, "uint8"), (0, "int64")),),
              (((0, "bool"), (2, "int64")),)),
    wrong=(
        Wrong(meeting_widest, "This takes the widest dtype of all, whatever "
              "its rank. What would become of a float32 tensor that is "
              "multiplied by one float64 number in a tensor?"),
        Wrong(meeting_without_numbers, "This never lets a Python number "
              "count. What should an integer tensor plus 0.5 be?"),
        Wrong(meeting_dims_only, "Here the first rank that is there decides "
              "alone. What becomes of the fraction, if a tensor of integers "
              "meets a float without dimensions?"),
        Wrong(meeting_two_ranks, "This treats a tensor without dimensions "
              "like one with dimensions. Which of them should decide, where "
              "both are floats?"),
        Wrong(meeting_zero_is_number, "This treats a tensor without "
              "dimensions like a Python number. If an int32 tensor without "
              "dimensions meets the number 2: which of the two was given "
              "its dtype on purpose?"),
        Wrong(meeting_first, "This takes the dtype of the first operand. "
              "Should a + b and b + a differ?"),
        Wrong(meeting_default_float, "This answers float32 whenever floats "
              "win. An int64 tensor meets a float64 without dimensions: "
              "which of its digits are lost?"),
        Wrong(meeting_ranks_reversed, "This begins with the numbers. Who "
              "decides, and who may only raise the kind?"),
    ),
    right=(meeting_sorted, meeting_by_kind),
    hints=(
        "Go through the ranks 0, 1, 2. For each, collect the names and take "
        "the widest. With the row in a tuple, that is max(names, "
        "key=row.index).",
        "The first rank that has an operand sets the result.",
        "A later rank replaces it only if its kind is higher. The kind is 0 "
        "for bool, 1 for an integer, 2 for a float.",
    ),
    after="PyTorch keeps the three ranks in a ResultTypeState "
    "(aten/src/ATen/native/TypeProperties.cpp) and combines them at the "
    "end.",
)


# 04.4: from one division to the other

STATEMENT_4 = """\
**Exercise 04.4.** The hardware divides integers towards zero: it gives
a quotient and a rest with `a == quotient * b + rest`, and the rest has
the sign of `a`. Write `round_down(quotient, rest, b)`: the pair (quotient,
rest) of the division that rounds down. Then the rest has the sign of `b`,
and `a == quotient * b + rest` still holds."""

STUB_4 = '''\
def round_down(quotient: int, rest: int, b: int) -> tuple:
    """(quotient, rest) rounded down, from those rounded towards zero."""
    raise NotImplementedError("exercise 04.4")'''


def round_down(quotient, rest, b):
    if rest != 0 and (rest < 0) != (b < 0):
        return quotient - 1, rest + b
    return quotient, rest


def down_without_zero(quotient, rest, b):
    if (rest < 0) != (b < 0):
        return quotient - 1, rest + b
    return quotient, rest


def down_by_quotient(quotient, rest, b):
    return (quotient - 1, rest + b) if quotient < 0 else (quotient, rest)


def down_for_positive(quotient, rest, b):
    if rest < 0 < b:
        return quotient - 1, rest + b
    return quotient, rest


def down_quotient_only(quotient, rest, b):
    if rest != 0 and (rest < 0) != (b < 0):
        return quotient - 1, rest
    return quotient, rest


def down_rest_only(quotient, rest, b):
    if rest != 0 and (rest < 0) != (b < 0):
        return quotient, rest + b
    return quotient, rest


def down_absolute(quotient, rest, b):
    if rest != 0 and (rest < 0) != (b < 0):
        return quotient - 1, rest + abs(b)
    return quotient, rest


def down_never_negative(quotient, rest, b):
    if rest < 0:
        return quotient - (1 if b > 0 else -1), rest + abs(b)
    return quotient, rest


def down_up(quotient, rest, b):
    if rest != 0 and (rest < 0) != (b < 0):
        return quotient + 1, rest - b
    return quotient, rest


def down_by_python(quotient, rest, b):
    return divmod(quotient * b + rest, b)


def down_by_product(quotient, rest, b):
    wrong_side = rest * b < 0
    return quotient - wrong_side, rest + wrong_side * b


def c_divisions(st):
    def pair(numbers):
        a, b = numbers
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient, a - quotient * b, b

    return st.tuples(st.integers(-20, 20), st.integers(-7, 7).filter(
        bool)).map(pair)


DOWN = Exercise(
    id="04.4",
    title="From trunc to floor",
    name="round_down",
    statement=STATEMENT_4,
    stub=STUB_4,
    reference=round_down,
    inputs=c_divisions,
    examples=((3, 1, 2), (-3, -1, 2), (-3, 1, -2), (3, -1, -2), (0, -1, 3),
              (-2, 0, -3), (-2, 0, 3), (0, 1, -3)),
    wrong=(
        Wrong(down_without_zero, "A rest of 0 is corrected here, if b is "
              "negative. The division went without a remainder: is there "
              "anything to round?"),
        Wrong(down_by_quotient, "This looks at the sign of the quotient. "
              "-1 / 3 is rounded to 0, and -6 / 3 is exactly -2: which of "
              "the two has to be changed?"),
        Wrong(down_for_positive, "This corrects where b is positive. 7 / -2 "
              "is -3.5 as well: which way is down?"),
        Wrong(down_quotient_only, "The quotient is right, the rest is that "
              "of another division. What is quotient * b + rest now?"),
        Wrong(down_rest_only, "The rest is right, the quotient is still the "
              "one that was rounded towards zero. What is quotient * b + "
              "rest now?"),
        Wrong(down_absolute, "This adds the absolute value of b to the rest. "
              "The quotient has become smaller by 1: by how much has "
              "quotient * b changed, if b is negative?"),
        Wrong(down_never_negative, "The rest here is never negative. Which "
              "sign should it have, if b is negative?"),
        Wrong(down_up, "This steps up where it should step down. Is -3.5 "
              "rounded down -4 or -3, and -3 rounded further -2?"),
    ),
    right=(down_by_python, down_by_product),
    hints=(
        "The two divisions differ only where there is a rest, and it lies "
        "on the wrong side: its sign is not that of b.",
        "One less in the quotient is b more in the rest.",
    ),
    after="PyTorch's remainder does the same step, for floats too: mod = "
    "fmod(a, b), and mod += b where the signs differ "
    "(aten/src/ATen/native/cpu/BinaryOpsKernel.cpp).",
)


# 04.5: an operator without a tensor

STATEMENT_5 = """\
**Exercise 04.5.** Write `subtract(a, a_shape, b, b_shape)`: the operator
`a - b` with broadcasting, from nothing. `a` and `b` are flat lists of
numbers in row-major order. Give a pair: the flat list of differences, and
the shape of the result as a tuple. Where the shapes do not broadcast,
raise `ValueError`."""

STUB_5 = '''\
def subtract(a: list, a_shape: tuple, b: list, b_shape: tuple) -> tuple:
    """(values, shape) of a - b, broadcast; all values row-major."""
    raise NotImplementedError("exercise 04.5")'''


def subtract(a, a_shape, b, b_shape):
    ndim = max(len(a_shape), len(b_shape))
    a_shape = (1,) * (ndim - len(a_shape)) + tuple(a_shape)
    b_shape = (1,) * (ndim - len(b_shape)) + tuple(b_shape)
    shape, places, step_a, step_b = [], [(0, 0)], [], []
    for n, m in zip(a_shape, b_shape):
        if n != m and 1 not in (n, m):
            raise ValueError(f"{a_shape} and {b_shape} do not broadcast")
        shape.append(m if n == 1 else n)
    for sizes, steps in ((a_shape, step_a), (b_shape, step_b)):
        step = 1
        for size in reversed(sizes):
            steps.insert(0, 0 if size == 1 else step)
            step *= size
    for size, s, t in zip(shape, step_a, step_b):
        places = [(i + k * s, j + k * t)
                  for i, j in places for k in range(size)]
    return [a[i] - b[j] for i, j in places], tuple(shape)


def difference(a, a_shape, b, b_shape, size=lambda n, m: m if n == 1 else n,
               check=True, left=False, place=None, order=1, swap=False):
    ndim = max(len(a_shape), len(b_shape))
    ones = [(1,) * (ndim - len(s)) for s in (a_shape, b_shape)]
    shapes = [s + o if left else o + s
              for s, o in zip((tuple(a_shape), tuple(b_shape)), ones)]
    if check and any(n != m and 1 not in (n, m) for n, m in zip(*shapes)):
        raise ValueError
    shape = tuple(size(n, m) for n, m in zip(*shapes))
    ranges = [range(n) for n in shape]
    if order == 1:
        indices = itertools.product(*ranges)
    else:
        indices = [i[::-1] for i in itertools.product(*ranges[::-1])]
    values = []
    for at, index in enumerate(indices):
        found = []
        for sizes, memory in zip(shapes, (a, b)):
            if place:
                found.append(memory[place(at, len(memory))])
                continue
            i = 0
            for k, n in zip(index, sizes):
                i = i * n + (0 if n == 1 else k % n if n else 0)
            found.append(memory[i])
        values.append(found[1] - found[0] if swap else found[0] - found[1])
    return values, shape


def sub_left(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape, left=True)


def sub_cycles(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape,
                      place=lambda at, n: at % n)


def sub_max(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape, size=lambda n, m: max(n, m)
                      ) if 0 not in (*a_shape, *b_shape) else (
        [], tuple(max(n, m) for n, m in itertools.zip_longest(
            a_shape[::-1], b_shape[::-1], fillvalue=1))[::-1])


def sub_unchecked(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape, check=False, size=max)


def sub_columns(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape, order=-1)


def sub_swapped(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape, swap=True)


def sub_shapes_equal(a, a_shape, b, b_shape):
    if a_shape != b_shape:
        raise ValueError
    return [x - y for x, y in zip(a, b)], tuple(a_shape)


def sub_list_shape(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape)[0], tuple(a_shape)


def sub_by_index(a, a_shape, b, b_shape):
    return difference(a, a_shape, b, b_shape)


def sub_recursive(a, a_shape, b, b_shape):
    def rows(values, shape, n):
        if shape[0] == 1:
            return [values] * n
        if shape[0] != n:
            raise ValueError
        step = len(values) // n if n else 0
        return [values[i * step:(i + 1) * step] for i in range(n)]

    ndim = max(len(a_shape), len(b_shape))
    if ndim == 0:
        return [a[0] - b[0]], ()
    a_shape = (1,) * (ndim - len(a_shape)) + tuple(a_shape)
    b_shape = (1,) * (ndim - len(b_shape)) + tuple(b_shape)
    n = b_shape[0] if a_shape[0] == 1 else a_shape[0]
    pairs = zip(rows(a, a_shape, n), rows(b, b_shape, n))
    rest = tuple(m if k == 1 else k for k, m in zip(a_shape[1:],
                                                    b_shape[1:]))
    if any(k != m and 1 not in (k, m) for k, m in zip(a_shape, b_shape)):
        raise ValueError
    found = [sub_recursive(x, a_shape[1:], y, b_shape[1:])[0]
             for x, y in pairs]
    return [v for row in found for v in row], (n, *rest)


def two_operands(st):
    size = st.sampled_from([2, 1, 3, 2, 0])

    def pair(shape):
        def one(keep):
            return tuple(n if yes else 1 for n, yes in zip(shape, keep))
        keep = st.tuples(*(st.sampled_from([True, True, False])
                           for _ in shape)).map(one)
        cut = st.integers(0, len(shape))
        side = st.builds(lambda s, i: s[i:], keep, cut)
        return st.tuples(keep, side) | st.tuples(side, keep)

    def filled(shapes):
        a, b = shapes
        return (list(range(10, 10 + math.prod(a))), a,
                [k * k for k in range(math.prod(b))], b)

    free = st.tuples(*(st.lists(size, max_size=2).map(tuple)
                       for _ in range(2)))
    good = st.lists(size, max_size=3).map(tuple).flatmap(pair)
    return (good | good | free).map(filled)


SUBTRACT = Exercise(
    id="04.5",
    title="An operator without a tensor",
    name="subtract",
    statement=STATEMENT_5,
    stub=STUB_5,
    reference=subtract,
    inputs=two_operands,
    examples=(([1, 2], (2,), [5], ()), ([1, 2], (2,), [10, 20], (2, 1)),
              ([1, 2, 3, 4], (2, 2), [10, 20], (2,)),
              ([1, 2, 3, 4], (2, 2), [10, 20], (2, 1)),
              ([1, 2, 3, 4, 5, 6], (2, 3), [10, 20], (2,)),
              ([1], (1,), [], (0,)), ([1, 2], (2,), [1, 2, 3], (3,)),
              ([1, 2, 3, 4], (4,), [1, 2], (2,))),
    wrong=(
        Wrong(sub_left, "This lines the shapes up at their first dimension. "
              "A vector of 2 meets a matrix of shape (2, 2): does it lie "
              "along a row or along a column?"),
        Wrong(sub_cycles, "This begins a short list again when it is used "
              "up. That is right for a row. In a column of shape (2, 1), "
              "how often is the first number used before the second?"),
        Wrong(sub_max, "This takes the larger of two sizes. A size of 1 is "
              "stretched to any other: to a size of 0 as well. How many "
              "elements are left?"),
        Wrong(sub_unchecked, "This never refuses. What is the difference of "
              "4 numbers and 2 numbers, if no dimension is 1?"),
        Wrong(sub_columns, "The values are right, their order is not. Which "
              "index runs fastest in row-major order?"),
        Wrong(sub_swapped, "This is b - a. For an addition you would not "
              "have noticed: which operand comes first?"),
        Wrong(sub_shapes_equal, "This asks for equal shapes. Which sizes may "
              "differ?"),
        Wrong(sub_list_shape, "The result gets the shape of a here. What if "
              "it is a that is stretched?"),
    ),
    right=(sub_by_index, sub_recursive),
    hints=(
        "Fill the shorter shape up with ones in front, then find each size "
        "of the result: equal, or the one that is not 1.",
        "Give each operand its row-major strides, and 0 where its size is 1.",
        "Walk over the indices of the result, last one fastest, and read "
        "both lists at the sum of index times stride.",
    ),
    after="This is what TensorIterator plans, and what every kernel of this "
    "chapter runs on. NumPy's broadcast and PyTorch's agree on all of it.",
)


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
),
             JOIN, MEETING, DOWN, SUBTRACT)
