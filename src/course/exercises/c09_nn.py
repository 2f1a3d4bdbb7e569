"""Exercise of chapter 9: a loss that does not overflow."""

import math

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 09.1.** Write `cross_entropy(logits, target)`. `logits` is a list
of rows, one number for each class; `target` holds the index of the right
class of each row. The loss of a row is minus the logarithm of the
probability that softmax gives to the right class, and the result is the
mean over the rows. It never overflows, and no logarithm of zero is taken:
logits of 1000 and -1000 in one row are fine. A logit of `-inf` rules a
class out; the right class is never ruled out."""

STUB = '''\
def cross_entropy(logits: list[list[float]], target: list[int]) -> float:
    """The mean over the rows of -log(softmax(row)[right class])."""
    raise NotImplementedError("exercise 09.1")'''


def cross_entropy(logits, target):
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
    return cross_entropy(logits, target) * len(target)


def over_classes(logits, target):
    return cross_entropy(logits, target) / len(logits[0])


def without_minus(logits, target):
    return -cross_entropy(logits, target)


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


def inputs(st):
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


exercises = (Exercise(
    id="09.1",
    title="A loss that does not overflow",
    name="cross_entropy",
    statement=STATEMENT,
    stub=STUB,
    reference=cross_entropy,
    imports="import math",
    inputs=inputs,
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
),)
