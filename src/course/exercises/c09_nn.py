"""Exercises of chapter 9: drawing, walking, scaling, and losses that hold.
"""

import math

from course.exercises import Exercise, Wrong

# 09.1: one of several, by weight

PICK_STATEMENT = """\
**Exercise 09.1.** Write `pick(weights, u)`. `weights` are numbers from 0
on, not all 0, and they need not add up to 1; `u` is a number from 0 up to
but not including 1. Lay the weights side by side on a line from 0 to their
sum, and return the index of the weight that covers the point at `u` times
the sum. A weight begins where the one before it ends, and that point
belongs to it. A weight of 0 covers nothing, and is never picked."""

PICK_STUB = '''\
def pick(weights: list[int], u: float) -> int:
    """The index of the weight at the point u of their line."""
    raise NotImplementedError("exercise 09.1")'''


def pick(weights, u):
    point = u * sum(weights)
    end = 0
    for i, weight in enumerate(weights):
        end += weight
        if point < end:
            return i


def taken_for_chances(weights, u):
    end = 0
    for i, weight in enumerate(weights):
        end += weight
        if u < end:
            return i
    return len(weights) - 1


def all_alike(weights, u):
    return int(u * len(weights))


def heaviest(weights, u):
    return weights.index(max(weights))


def own_end(weights, u):
    point, end = u * sum(weights), 0
    for i, weight in enumerate(weights):
        end += weight
        if point <= end:
            return i


def not_added_up(weights, u):
    point = u * sum(weights)
    for i, weight in enumerate(weights):
        if point < weight:
            return i
    return len(weights) - 1


def one_behind(weights, u):
    point, begin = u * sum(weights), 0
    for i, weight in enumerate(weights):
        if point < begin:
            return i
        begin += weight
    return len(weights)


def taking_off(weights, u):
    rest = u * sum(weights)
    for i, weight in enumerate(weights):
        if rest < weight:
            return i
        rest -= weight


def by_bisection(weights, u):
    from bisect import bisect_right
    from itertools import accumulate
    return bisect_right(list(accumulate(weights)), u * sum(weights))


def pick_inputs(st):
    weights = st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any)
    return st.tuples(weights, st.integers(0, 15).map(lambda n: n / 16))


PICK = Exercise(
    id="09.1",
    title="Draw by weight",
    name="pick",
    statement=PICK_STATEMENT,
    stub=PICK_STUB,
    reference=pick,
    inputs=pick_inputs,
    examples=(([1, 1], 0.5), ([0, 1], 0.0), ([2, 2, 4], 0.25),
              ([1, 3], 0.5), ([1, 0, 1], 0.5)),
    wrong=(
        Wrong(taken_for_chances, "This takes the weights for chances, which "
              "add up to 1. These add up to something else: how long is the "
              "line, and where on it is u?"),
        Wrong(all_alike, "Every weight is picked as often as any other here. "
              "What should a weight of 3 have that a weight of 1 has not?"),
        Wrong(heaviest, "This always picks the largest weight. What does u "
              "decide?"),
        Wrong(own_end, "A point where one weight ends and the next one "
              "begins is given to the first of the two, and so a weight of 0 "
              "can be picked. Does the comparison include the end?"),
        Wrong(not_added_up, "Each weight is compared by itself. Where does "
              "the second one begin on the line?"),
        Wrong(one_behind, "The answer is one too large: a weight is passed "
              "by its beginning. At which of its ends does the point leave "
              "it?"),
    ),
    right=(taking_off, by_bisection),
    hints=(
        "The point lies at u times the sum of the weights.",
        "Walk along the weights and add them up: the first sum that is "
        "larger than the point has it.",
    ),
    after="torch.multinomial adds up the weights and searches in the sums "
    "(aten/src/ATen/native/cpu/MultinomialKernel.cpp).",
)


# 09.2: the walk over a tree

WALK_STATEMENT = """\
**Exercise 09.2.** Write `named_parameters(tree)`. `tree` is a dict; under
each name it holds a parameter, which is an int here, or a child, which is
another such dict. Return the list of `(path, parameter)` pairs: first a
module's own parameters, in order, then those of its children, in order,
each child with all that is below it. A path joins the names with dots.
The same int is the same parameter: it is listed once, under the path at
which it is met first."""

WALK_STUB = '''\
def named_parameters(tree: dict) -> list[tuple[str, int]]:
    """All (path, parameter) pairs of a tree, each parameter once."""
    raise NotImplementedError("exercise 09.2")'''


def named_parameters(tree):
    found = {}

    def walk(module, prefix):
        for name, value in module.items():
            if not isinstance(value, dict):
                found.setdefault(value, prefix + name)
        for name, value in module.items():
            if isinstance(value, dict):
                walk(value, prefix + name + ".")

    walk(tree, "")
    return [(path, value) for value, path in found.items()]


def every(tree, prefix="", own_first=True, dot="."):
    """All pairs, shared ones too."""
    own = [(prefix + name, value) for name, value in tree.items()
           if not isinstance(value, dict)]
    below = [pair for name, child in tree.items() if isinstance(child, dict)
             for pair in every(child, prefix + name + dot, own_first, dot)]
    return own + below if own_first else below + own


def first_of_each(pairs):
    seen = {}
    for path, value in pairs:
        seen.setdefault(value, path)
    return [(path, value) for value, path in seen.items()]


def shared_twice(tree):
    return every(tree)


def children_first(tree):
    return first_of_each(every(tree, own_first=False))


def as_they_stand(tree):
    found = {}

    def walk(module, prefix):
        for name, value in module.items():
            if isinstance(value, dict):
                walk(value, prefix + name + ".")
            else:
                found.setdefault(value, prefix + name)

    walk(tree, "")
    return [(path, value) for value, path in found.items()]


def without_prefix(tree):
    return [(path.rpartition(".")[2], value)
            for path, value in first_of_each(every(tree))]


def only_its_own(tree):
    return first_of_each([(name, value) for name, value in tree.items()
                          if not isinstance(value, dict)])


def under_the_last(tree):
    found = {}
    for path, value in every(tree):
        found.pop(value, None)
        found[value] = path
    return [(path, value) for value, path in found.items()]


def one_level(tree):
    pairs = []
    for name, value in tree.items():
        if not isinstance(value, dict):
            pairs.append((name, value))
    for name, child in tree.items():
        if isinstance(child, dict):
            pairs += [(f"{name}.{key}", value)
                      for key, value in child.items()
                      if not isinstance(value, dict)]
    return first_of_each(pairs)


def with_a_stack(tree):
    pairs, seen, stack = [], set(), [("", tree)]
    while stack:
        prefix, module = stack.pop()
        children = []
        for name, value in module.items():
            if isinstance(value, dict):
                children.append((f"{prefix}{name}.", value))
            elif value not in seen:
                seen.add(value)
                pairs.append((prefix + name, value))
        stack += reversed(children)
    return pairs


def listed_then_sifted(tree):
    return first_of_each(every(tree))


def walk_inputs(st):
    names = st.sampled_from(["bias", "body", "head", "weight"])
    trees = st.recursive(
        st.integers(1, 5),
        lambda below: st.dictionaries(names, below, max_size=3), max_leaves=7)
    return st.tuples(st.dictionaries(names, trees, max_size=3))


WALK = Exercise(
    id="09.2",
    title="A tree and its paths",
    name="named_parameters",
    statement=WALK_STATEMENT,
    stub=WALK_STUB,
    reference=named_parameters,
    inputs=walk_inputs,
    examples=(({"a": {"w": 1}, "w": 2},), ({"a": {"w": 1}, "b": {"w": 1}},),
              ({"a": {"b": {"w": 1}}},),
              ({"a": {"b": {"w": 1}, "w": 2}, "w": 1},)),
    wrong=(
        Wrong(shared_twice, "A parameter that stands in two places is listed "
              "twice. What would an optimiser do with it, one step each "
              "time?"),
        Wrong(children_first, "The children come first here. Whose "
              "parameters does a module list before it goes down?"),
        Wrong(as_they_stand, "This takes parameters and children in the "
              "order in which they stand. A module lists its own parameters "
              "before it goes down: is one pass over the dict enough?"),
        Wrong(without_prefix, "The names are there, and not the way to them. "
              "Two layers both have a weight: how are they told apart?"),
        Wrong(only_its_own, "Only the module's own parameters are listed. "
              "Who asks its children?"),
        Wrong(under_the_last, "A shared parameter is listed under the last "
              "of its paths. Which of them is met first?"),
        Wrong(one_level, "This goes down one level and no further. What does "
              "a child do with its own children?"),
    ),
    right=(with_a_stack, listed_then_sifted),
    hints=(
        "Two loops over the dict: one for the parameters, one for the "
        "children.",
        "For a child, do the same again, with its name and a dot in front.",
        "Keep what has been seen in one place for the whole walk, not in "
        "each call.",
    ),
    after="torch.nn.Module.named_parameters goes through named_modules and "
    "keeps a set of what it has met (torch/nn/modules/module.py).",
)


# 09.3: what keeps a state from loading

COMPARE_STATEMENT = """\
**Exercise 09.3.** Write `compare(own, given)`. Both are dicts from names to
shapes, the module's own state and one that is to be loaded. Return a tuple
of three lists of names: `missing`, those that the module has and the given
state has not; `unexpected`, those that only the given state has; and
`misfits`, those that both have, in different shapes. `missing` and
`misfits` are in the module's order, `unexpected` in the given one's."""

COMPARE_STUB = '''\
def compare(own: dict[str, tuple], given: dict[str, tuple]) -> tuple:
    """(missing, unexpected, misfits): what keeps a state from loading."""
    raise NotImplementedError("exercise 09.3")'''


def compare(own, given):
    missing = [name for name in own if name not in given]
    unexpected = [name for name in given if name not in own]
    misfits = [name for name in own
               if name in given and own[name] != given[name]]
    return missing, unexpected, misfits


def count(shape):
    return math.prod(shape)


def the_other_way(own, given):
    missing, unexpected, misfits = compare(own, given)
    return unexpected, missing, misfits


def sorted_names(own, given):
    return tuple(map(sorted, compare(own, given)))


def by_place(own, given):
    missing, unexpected, _ = compare(own, given)
    return missing, unexpected, [
        a for (a, x), (b, y) in zip(own.items(), given.items()) if x != y]


def by_size(own, given):
    missing, unexpected, _ = compare(own, given)
    return missing, unexpected, [
        name for name in own
        if name in given and count(own[name]) != count(given[name])]


def missing_misfits(own, given):
    missing = [name for name in own
               if name not in given or own[name] != given[name]]
    return missing, compare(own, given)[1], compare(own, given)[2]


def first_problem(own, given):
    return tuple(names[:1] for names in compare(own, given))


def in_given_order(own, given):
    missing, unexpected, misfits = compare(own, given)
    return missing, unexpected, [name for name in given if name in misfits]


def by_a_loop(own, given):
    missing, misfits = [], []
    rest = dict(given)
    for name, shape in own.items():
        if name not in rest:
            missing.append(name)
        elif rest.pop(name) != shape:
            misfits.append(name)
    return missing, list(rest), misfits


def by_keys(own, given):
    both = own.keys() & given.keys()
    return ([n for n in own if n not in both],
            [n for n in given if n not in both],
            [n for n in own if n in both and given[n] != own[n]])


def compare_inputs(st):
    states = st.dictionaries(
        st.sampled_from(["w", "b", "a.w", "a.b"]),
        st.sampled_from([(2,), (3,), (2, 3), (3, 2), ()]), max_size=4)
    return st.tuples(states, states)


COMPARE = Exercise(
    id="09.3",
    title="Two lists, and a third",
    name="compare",
    statement=COMPARE_STATEMENT,
    stub=COMPARE_STUB,
    reference=compare,
    inputs=compare_inputs,
    examples=(({"w": (2,)}, {}), ({}, {"w": (2,)}),
              ({"w": (2, 3)}, {"w": (3, 2)}),
              ({"w": (2,), "b": (3,)}, {"b": (3,), "w": (2,)}),
              ({"w": (2,), "b": (3,)}, {"b": (2,), "w": (3,)}),
              ({"w": (2,), "b": (3,), "a.w": ()}, {}),
              ({}, {"w": (2,), "b": (3,)})),
    wrong=(
        Wrong(the_other_way, "Missing and unexpected have changed places. "
              "From whose side is a name missing?"),
        Wrong(sorted_names, "The names are right, in the order of the "
              "alphabet. In which order are the layers that they belong "
              "to?"),
        Wrong(by_place, "The shapes are compared place by place, and a state "
              "may stand in another order. What says which two belong "
              "together?"),
        Wrong(by_size, "Two shapes with as many elements count as one here. "
              "Is a matrix of 2 by 3 the same as one of 3 by 2?"),
        Wrong(missing_misfits, "A name with another shape is called missing "
              "as well. Is it there or not?"),
        Wrong(first_problem, "Each list stops after its first name. How "
              "often would somebody have to load a state with ten wrong "
              "names?"),
        Wrong(in_given_order, "The misfits are in the order of the given "
              "state. Whose layers does the reader of the list look for?"),
    ),
    right=(by_a_loop, by_keys),
    hints=(
        "Three loops do: over the names of own, over those of given, and "
        "over those of own again.",
        "`name in given` asks for a key. The shapes are compared only where "
        "both have the name.",
    ),
    after="torch.nn.Module.load_state_dict returns the first two lists; "
    "misfits are an error even with strict=False "
    "(torch/nn/modules/module.py).",
)


# 09.4: the scale of weights

BOUND_STATEMENT = """\
**Exercise 09.4.** Write `kaiming_bound(shape, slope)`. `shape` is that of a
weight, `(out, in)` or `(out, in, ...)` with the sizes of a window behind.
Return the number `b` for which weights spread evenly from `-b` to `b` keep
the mean square of a signal through a layer with leaky ReLU: the gain is
`sqrt(2 / (1 + slope ** 2))`, the standard deviation the gain over the root
of the fan-in."""

BOUND_STUB = '''\
def kaiming_bound(shape: tuple[int, ...], slope: float) -> float:
    """The bound of an even spread that keeps a signal's size."""
    raise NotImplementedError("exercise 09.4")'''


def kaiming_bound(shape, slope):
    fan_in = math.prod(shape[1:])
    gain = math.sqrt(2 / (1 + slope ** 2))
    return math.sqrt(3) * gain / math.sqrt(fan_in)


def gain_of(slope):
    return math.sqrt(2 / (1 + slope ** 2))


def the_std(shape, slope):
    return gain_of(slope) / math.sqrt(math.prod(shape[1:]))


def by_fan_out(shape, slope):
    fan = shape[0] * math.prod(shape[2:])
    return math.sqrt(3 / fan) * gain_of(slope)


def no_window(shape, slope):
    return math.sqrt(3 / shape[1]) * gain_of(slope)


def no_root(shape, slope):
    return math.sqrt(3) * gain_of(slope) / math.prod(shape[1:])


def all_elements(shape, slope):
    return math.sqrt(3 / math.prod(shape)) * gain_of(slope)


def no_slope(shape, slope):
    return math.sqrt(3 / math.prod(shape[1:])) * math.sqrt(2)


def width_not_bound(shape, slope):
    return math.sqrt(12) * the_std(shape, slope)


def from_variance(shape, slope):
    variance = 2 / ((1 + slope * slope) * math.prod(shape[1:]))
    return (3 * variance) ** 0.5


def in_one_root(shape, slope):
    fan_in = 1
    for size in shape[1:]:
        fan_in *= size
    return math.sqrt(6 / ((1 + slope * slope) * fan_in))


def bound_inputs(st):
    shape = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)
    return st.tuples(shape, st.sampled_from([0.0, 0.01, 0.5, 1.0]))


BOUND = Exercise(
    id="09.4",
    title="A scale that keeps the signal",
    name="kaiming_bound",
    statement=BOUND_STATEMENT,
    stub=BOUND_STUB,
    reference=kaiming_bound,
    imports="import math",
    inputs=bound_inputs,
    rtol=1e-9,
    examples=(((1, 1), 0.0), ((2, 3), 0.0), ((1, 2, 3), 0.0),
              ((1, 1), 1.0), ((3, 1), 0.0)),
    wrong=(
        Wrong(the_std, "This is the standard deviation. Numbers spread "
              "evenly from -b to b have one of b over the root of 3: which b "
              "has this one?"),
        Wrong(by_fan_out, "This counts the outputs. The sum in each output "
              "has as many products as there are inputs: which of the sizes "
              "is that?"),
        Wrong(no_window, "A window of weights belongs to each pair of "
              "channels, and is left out here. How many products add up in "
              "one output of a convolution?"),
        Wrong(no_root, "The fan-in stands without its root. The squares add "
              "up, so by what does the spread of a sum of n grow?"),
        Wrong(all_elements, "This divides by the number of all weights. How "
              "many of them go into one output?"),
        Wrong(no_slope, "The slope is not used. Does a leaky ReLU take half "
              "of the mean square, as ReLU does?"),
        Wrong(width_not_bound, "This is the whole width, from -b to b. Where "
              "does it begin if its middle is 0?"),
    ),
    right=(from_variance, in_one_root),
    hints=(
        "The fan-in is the product of all sizes but the first.",
        "The standard deviation is gain / sqrt(fan_in).",
        "An even spread from -b to b has the variance b * b / 3.",
    ),
    after="torch.nn.init.kaiming_uniform_ computes the same bound "
    "(torch/nn/init.py); with a slope of sqrt(5) it is the rule of "
    "nn.Linear.",
)


# 09.5: two variances

NORM_STATEMENT = """\
**Exercise 09.5.** Write `normalised(values, mean, var, momentum)` for one
feature in training. `values` are its numbers in the batch, at least two;
`mean` and `var` the running ones. Return a tuple of three. First, the list of
the values minus their mean, each divided by the root of the sum of their
variance and `1e-5`; this variance is the sum of the squared distances from
the mean, divided by `n`. Second, the new running mean: `momentum` times the
mean of the batch, plus `1 - momentum` times the old one. Third, in the same
way, the new running variance, for which the sum is divided by `n - 1`."""

NORM_STUB = '''\
def normalised(values: list[float], mean: float, var: float,
               momentum: float) -> tuple[list[float], float, float]:
    """(normalised values, new running mean, new running variance)."""
    raise NotImplementedError("exercise 09.5")'''


def normalised(values, mean, var, momentum):
    n = len(values)
    centre = sum(values) / n
    squares = sum((v - centre) ** 2 for v in values)
    root = math.sqrt(squares / n + 1e-5)
    return ([(v - centre) / root for v in values],
            (1 - momentum) * mean + momentum * centre,
            (1 - momentum) * var + momentum * squares / (n - 1))


def parts(values):
    centre = sum(values) / len(values)
    return centre, sum((v - centre) ** 2 for v in values), len(values)


def one_variance(values, mean, var, momentum):
    centre, squares, n = parts(values)
    out, new_mean, _ = normalised(values, mean, var, momentum)
    return out, new_mean, (1 - momentum) * var + momentum * squares / n


def n_minus_one_twice(values, mean, var, momentum):
    centre, squares, n = parts(values)
    root = math.sqrt(squares / (n - 1) + 1e-5)
    return ([(v - centre) / root for v in values],
            *normalised(values, mean, var, momentum)[1:])


def momentum_of_the_old(values, mean, var, momentum):
    return normalised(values, mean, var, 1 - momentum)


def by_the_running(values, mean, var, momentum):
    _, new_mean, new_var = normalised(values, mean, var, momentum)
    return ([(v - new_mean) / math.sqrt(new_var + 1e-5) for v in values],
            new_mean, new_var)


def eps_outside(values, mean, var, momentum):
    centre, squares, n = parts(values)
    root = math.sqrt(squares / n) + 1e-5
    return ([(v - centre) / root for v in values],
            *normalised(values, mean, var, momentum)[1:])


def no_root_taken(values, mean, var, momentum):
    centre, squares, n = parts(values)
    return ([(v - centre) / (squares / n + 1e-5) for v in values],
            *normalised(values, mean, var, momentum)[1:])


def not_running(values, mean, var, momentum):
    centre, squares, n = parts(values)
    return (normalised(values, mean, var, momentum)[0], centre,
            squares / (n - 1))


def by_steps(values, mean, var, momentum):
    centre, squares, n = parts(values)
    scale = 1 / math.sqrt(squares / n + 1e-5)
    mean += momentum * (centre - mean)
    var += momentum * (squares / (n - 1) - var)
    return [(v - centre) * scale for v in values], mean, var


def by_statistics(values, mean, var, momentum):
    from statistics import fmean, pvariance, variance
    centre = fmean(values)
    root = (pvariance(values, centre) + 1e-5) ** 0.5
    return ([(v - centre) / root for v in values],
            mean * (1 - momentum) + centre * momentum,
            var * (1 - momentum) + variance(values, centre) * momentum)


def norm_inputs(st):
    number = st.integers(-6, 6).map(float)
    return st.tuples(st.lists(number, min_size=2, max_size=5), number,
                     st.integers(0, 6).map(float),
                     st.sampled_from([0.1, 0.25, 0.5]))


NORM = Exercise(
    id="09.5",
    title="Two variances",
    name="normalised",
    statement=NORM_STATEMENT,
    stub=NORM_STUB,
    reference=normalised,
    imports="import math",
    inputs=norm_inputs,
    rtol=1e-7,
    atol=1e-9,
    examples=(([0.0, 2.0], 0.0, 1.0, 0.1), ([1.0, 1.0], 0.0, 0.0, 0.1),
              ([0.0, 4.0], 2.0, 8.0, 0.25), ([3.0, 3.0, 0.0], 1.0, 1.0, 0.5)),
    wrong=(
        Wrong(one_variance, "The running variance is that of the batch, "
              "divided by n. It will stand for numbers that were not in the "
              "batch: by what is a guess of their variance divided?"),
        Wrong(n_minus_one_twice, "The values are divided by the root of the "
              "variance with n - 1. What is the mean square of the result "
              "then, for these very values?"),
        Wrong(momentum_of_the_old, "The momentum goes to the old part here. "
              "Of a momentum of 0.1, how much of the new batch is kept?"),
        Wrong(by_the_running, "The running numbers normalise the batch. In "
              "training, whose mean and variance are taken?"),
        Wrong(eps_outside, "1e-5 is added to the root. What does the "
              "statement add it to?"),
        Wrong(no_root_taken, "The values are divided by the variance itself. "
              "In which unit is a variance, if the values are metres?"),
        Wrong(not_running, "The new running numbers forget the old ones. "
              "What is left of the batches before?"),
    ),
    right=(by_steps, by_statistics),
    hints=(
        "Compute the mean first, then the sum of the squares of what is "
        "left. Both variances come from it.",
        "The new running mean is (1 - momentum) * mean + momentum * that of "
        "the batch.",
    ),
    after="torch.nn.functional.batch_norm does so "
    "(aten/src/ATen/native/Normalization.cpp). In Keras momentum is the part "
    "that stays: 0.99 there is 0.01 here.",
)


# 09.6: cross entropy

CE_STATEMENT = """\
**Exercise 09.6.** Write `safe_cross_entropy(logits, target)`. `logits` is a
list of rows, one number for each class; `target` holds the index of the
right class of each row. The loss of a row is minus the logarithm of the
probability that softmax gives to the right class, and the result is the
mean over the rows. It never overflows, and no logarithm of zero is taken:
logits of 1000 and -1000 in one row are fine. A logit of `-inf` rules a
class out; the right class is never ruled out."""

CE_STUB = '''\
def safe_cross_entropy(logits: list[list[float]],
                       target: list[int]) -> float:
    """The mean over the rows of -log(softmax(row)[right class])."""
    raise NotImplementedError("exercise 09.6")'''


def safe_cross_entropy(logits, target):
    total = 0.0
    for row, right in zip(logits, target):
        largest = max(row)
        log_sum = math.log(sum(math.exp(v - largest) for v in row))
        total += log_sum - (row[right] - largest)
    return total / len(target)


# Known wrong answers


def log_sum(row):
    largest = max(row)
    return largest + math.log(sum(math.exp(v - largest) for v in row))


def no_shift(logits, target):
    total = 0.0
    for row, right in zip(logits, target):
        total -= math.log(math.exp(row[right]) / sum(map(math.exp, row)))
    return total / len(target)


def log_of_softmax(logits, target):
    total = 0.0
    for row, right in zip(logits, target):
        exps = [math.exp(v - max(row)) for v in row]
        total -= math.log(exps[right] / sum(exps))
    return total / len(target)


def clipped(logits, target):
    total = 0.0
    for row, right in zip(logits, target):
        exps = [math.exp(v - max(row)) for v in row]
        total -= math.log(exps[right] / sum(exps) + 1e-12)
    return total / len(target)


def takes_the_sum(logits, target):
    return safe_cross_entropy(logits, target) * len(target)


def over_classes(logits, target):
    return safe_cross_entropy(logits, target) / len(logits[0])


def without_minus(logits, target):
    return -safe_cross_entropy(logits, target)


def minus_logit(logits, target):
    return sum(-row[t] for row, t in zip(logits, target)) / len(target)


def best_class(logits, target):
    return sum(log_sum(row) - max(row) for row in logits) / len(target)


# Other right answers


def by_differences(logits, target):
    losses = []
    for row, right in zip(logits, target):
        gaps = [v - row[right] for v in row]
        high = max(gaps)
        losses.append(high + math.log(sum(math.exp(g - high) for g in gaps)))
    return math.fsum(losses) / len(losses)


def by_log_sum(logits, target):
    return sum(log_sum(row) - row[t]
               for row, t in zip(logits, target)) / len(logits)


def ce_inputs(st):
    number = (st.integers(-5, 5) | st.integers(-2000, 2000)).map(float)

    def rows(sizes):
        count, classes = sizes
        row = st.lists(number, min_size=classes, max_size=classes)
        label = st.integers(0, classes - 1)
        out = st.lists(st.sampled_from([False, False, True]),
                       min_size=classes, max_size=classes)

        def build(row, right, out):
            return [-math.inf if gone and i != right else v
                    for i, (v, gone) in enumerate(zip(row, out))], right

        pair = st.builds(build, row, label, out)
        return st.lists(pair, min_size=count, max_size=count)

    sizes = st.tuples(st.integers(1, 3), st.integers(1, 4))
    return sizes.flatmap(rows).map(
        lambda pairs: ([r for r, _ in pairs], [t for _, t in pairs]))


CE = Exercise(
    id="09.6",
    title="A loss that does not overflow",
    name="safe_cross_entropy",
    statement=CE_STATEMENT,
    stub=CE_STUB,
    reference=safe_cross_entropy,
    imports="import math",
    inputs=ce_inputs,
    rtol=1e-9,
    atol=1e-9,
    examples=(([[0.0, 0.0]], [0]), ([[1000.0, -1000.0]], [1]),
              ([[1000.0, 0.0]], [0]), ([[-math.inf, 1.0]], [1]),
              ([[30.0, 0.0]], [1]), ([[1.0, 2.0], [3.0, 1.0]], [0, 1])),
    wrong=(
        Wrong(no_shift, "This takes exp of the logits themselves, which "
              "overflows from 710 on. Softmax stays the same when one number "
              "is taken from all logits of a row: which one?"),
        Wrong(log_of_softmax, "The shift is there, but a small probability "
              "still rounds to 0, and its logarithm does not exist. What is "
              "log(exp(a) / s), written without the division?"),
        Wrong(clipped, "A small number under the logarithm hides the "
              "zero and changes the loss: it cannot exceed 27.6, and its "
              "gradient vanishes where the model is most wrong. What is "
              "log(exp(a) / s), written without the division?"),
        Wrong(takes_the_sum, "This is the sum over the rows. Should the loss "
              "double when a batch is given twice?"),
        Wrong(over_classes, "This also divides by the number of classes. A "
              "row has one right class: over how many numbers is the mean "
              "taken?"),
        Wrong(without_minus, "The sign is missing. A logarithm of a "
              "probability is never positive: can a loss be below zero?"),
        Wrong(minus_logit, "This takes the logit for a logarithm of the "
              "probability. Do the exponentials of a row add up to 1?"),
        Wrong(best_class, "This takes the probability of the class that the "
              "model prefers. What does the loss learn from target?"),
    ),
    right=(by_differences, by_log_sum),
    hints=(
        "-log(exp(a) / s) is log(s) - a, where a is the logit of the right "
        "class and s the sum of the exponentials of the row.",
        "log(s) is the logsumexp of chapter 5: take the largest logit out "
        "of the sum first.",
        "With m = max(row), the loss of a row is "
        "log(sum of exp(v - m)) - (row[right] - m).",
    ),
    after="torch.nn.functional.cross_entropy is log_softmax followed by "
    "nll_loss, for the same reason (aten/src/ATen/native/LossNLL.cpp).",
)


# 09.7: yes or no

BCE_STATEMENT = """\
**Exercise 09.7.** Write `bce_with_logits(z, t, pos_weight)`, for one number.
`z` is the logit, `t` the target from 0 to 1. With
$p = 1 / (1 + e^{-z})$ the loss is
$-w\\, t \\log p - (1 - t) \\log(1 - p)$, where $w$ is `pos_weight`. It never
overflows and keeps its digits, for logits from -1000 to 1000."""

BCE_STUB = '''\
def bce_with_logits(z: float, t: float, pos_weight: float) -> float:
    """-pos_weight * t * log(p) - (1 - t) * log(1 - p), p = sigmoid(z)."""
    raise NotImplementedError("exercise 09.7")'''


def bce_with_logits(z, t, pos_weight):
    rest = math.log1p(math.exp(-abs(z)))
    yes, no = max(-z, 0.0) + rest, max(z, 0.0) + rest
    return pos_weight * t * yes + (1 - t) * no


def soft(z):
    """log(1 + exp(z))."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


def as_it_is_said(z, t, pos_weight):
    p = 1 / (1 + math.exp(-z))
    return -pos_weight * t * math.log(p) - (1 - t) * math.log(1 - p)


def with_a_small_number(z, t, pos_weight):
    p = 1 / (1 + math.exp(-max(min(z, 700.0), -700.0)))
    return (-pos_weight * t * math.log(p + 1e-12)
            - (1 - t) * math.log(1 - p + 1e-12))


def clipped_logit(z, t, pos_weight):
    return bce_with_logits(max(min(z, 30.0), -30.0), t, pos_weight)


def weight_on_all(z, t, pos_weight):
    return pos_weight * bce_with_logits(z, t, 1.0)


def weight_ignored(z, t, pos_weight):
    return bce_with_logits(z, t, 1.0)


def weight_on_no(z, t, pos_weight):
    return t * soft(-z) + pos_weight * (1 - t) * soft(z)


def yes_for_no(z, t, pos_weight):
    return bce_with_logits(-z, t, pos_weight)


def plain_log(z, t, pos_weight):
    rest = math.log(1 + math.exp(-abs(z)))
    return (pos_weight * t * (max(-z, 0.0) + rest)
            + (1 - t) * (max(z, 0.0) + rest))


def by_two_softs(z, t, pos_weight):
    return pos_weight * t * soft(-z) + (1 - t) * soft(z)


def by_cases(z, t, pos_weight):
    if z < 0:
        small = math.log1p(math.exp(z))
        return pos_weight * t * (small - z) + (1 - t) * small
    small = math.log1p(math.exp(-z))
    return pos_weight * t * small + (1 - t) * (z + small)


def bce_inputs(st):
    logit = (st.integers(-6, 6) | st.integers(-1000, 1000)
             | st.sampled_from([-45, -38, 38, 45])).map(float)
    return st.tuples(logit, st.sampled_from([0.0, 1.0, 0.25]),
                     st.sampled_from([1.0, 2.0, 0.5]))


BCE = Exercise(
    id="09.7",
    title="Yes or no, to the last digit",
    name="bce_with_logits",
    statement=BCE_STATEMENT,
    stub=BCE_STUB,
    reference=bce_with_logits,
    imports="import math",
    inputs=bce_inputs,
    rtol=1e-9,
    atol=0.0,
    examples=((0.0, 1.0, 1.0), (1000.0, 0.0, 1.0), (-1000.0, 1.0, 1.0),
              (40.0, 1.0, 1.0), (1.0, 1.0, 2.0), (1.0, 0.0, 2.0),
              (2.0, 0.0, 1.0), (100.0, 0.0, 1.0), (-40.0, 0.0, 1.0)),
    wrong=(
        Wrong(as_it_is_said, "p is computed first, and then its logarithm. "
              "From z = 37 on p is 1 to the last digit: what is "
              "log(1 - p), written with z alone?"),
        Wrong(with_a_small_number, "A small number under the logarithm makes "
              "the loss finite and wrong: it stops at 27.6. What is the "
              "loss of a no at z = 100?"),
        Wrong(clipped_logit, "The logit is cut off. A model that is wrong at "
              "z = 100 then hears the same as at 30: and its gradient?"),
        Wrong(weight_on_all, "The weight multiplies both parts. Which one "
              "says yes?"),
        Wrong(weight_ignored, "pos_weight is not used. What should count "
              "more when a yes is rare?"),
        Wrong(weight_on_no, "The weight is on the part for no. Which part "
              "remains when t is 1?"),
        Wrong(yes_for_no, "The sign of z is turned round. Is a large z a "
              "sure yes or a sure no?"),
        Wrong(plain_log, "Nothing overflows, but where the loss is small its "
              "digits are gone: 1 + 1e-17 is 1. Which function of math "
              "takes the logarithm of 1 + x without forming it?"),
    ),
    right=(by_two_softs, by_cases),
    hints=(
        "log(p) is -log(1 + exp(-z)), and log(1 - p) is -log(1 + exp(z)).",
        "For a negative z, take exp(-z) out: log(1 + exp(-z)) is "
        "-z + log(1 + exp(z)).",
        "math.log1p(x) is log(1 + x), with all its digits for a small x.",
    ),
    after="torch.nn.functional.binary_cross_entropy_with_logits computes "
    "(1 - t) * z - w * logsigmoid(z), which is shorter, and for a small loss "
    "has fewer digits than yours (aten/src/ATen/native/Loss.cpp).",
)


exercises = (PICK, WALK, COMPARE, BOUND, NORM, CE, BCE)
