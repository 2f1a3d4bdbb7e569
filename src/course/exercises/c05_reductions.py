"""Exercise of chapter 5: a sum that must not overflow."""

import math

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 05.1.** Write `logsumexp(values)`: the logarithm of the sum of
`exp(v)` over a list of floats. It never overflows, not even for
`[1000.0, 1000.0]`. An infinite value has its limit: `inf` anywhere gives
`inf`, and if all are `-inf`, the result is `-inf`. The sum over no values
is 0, its logarithm `-inf`. A `nan` among the values gives `nan`, whatever
the others are."""

STUB = '''\
def logsumexp(values: list[float]) -> float:
    """log(exp(v0) + exp(v1) + ...), without overflow."""
    raise NotImplementedError("exercise 05.1")'''


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


def inputs(st):
    number = (st.integers(-5, 5) | st.integers(-2000, 2000)).map(float)
    edge = st.sampled_from([math.inf, -math.inf, math.nan, 1e308, -1e308])
    plain = st.lists(number, max_size=4)
    return st.tuples(plain | st.lists(number | edge, max_size=4))


exercises = (Exercise(
    id="05.1",
    title="A sum that does not overflow",
    name="logsumexp",
    statement=STATEMENT,
    stub=STUB,
    reference=logsumexp,
    imports="import math",
    inputs=inputs,
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
),)
