"""Exercise of chapter 11: who is taken for whom."""

import collections

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 11.1.** Write `confusion_matrix(target, predicted, classes)`: a
list of `classes` rows of `classes` integers. The number in row i, column j
counts the examples whose right class is i and whose predicted class is j.
A class that never occurs has its row and its column all the same."""

STUB = '''\
def confusion_matrix(target: list[int], predicted: list[int],
                     classes: int) -> list[list[int]]:
    """counts[i][j]: examples of class i that were taken for class j."""
    raise NotImplementedError("exercise 11.1")'''


def confusion_matrix(target, predicted, classes):
    counts = [[0] * classes for _ in range(classes)]
    for i, j in zip(target, predicted):
        counts[i][j] += 1
    return counts


# Known wrong answers


def transposed(target, predicted, classes):
    return confusion_matrix(predicted, target, classes)


def one_row(target, predicted, classes):
    counts = [[0] * classes] * classes
    for i, j in zip(target, predicted):
        counts[i][j] += 1
    return counts


def shares(target, predicted, classes):
    counts = confusion_matrix(target, predicted, classes)
    return [[n / max(1, sum(row)) for n in row] for row in counts]


def only_right(target, predicted, classes):
    right = [t for t, p in zip(target, predicted) if t == p]
    return confusion_matrix(right, right, classes)


def only_mistakes(target, predicted, classes):
    counts = confusion_matrix(target, predicted, classes)
    for i in range(classes):
        counts[i][i] = 0
    return counts


def only_seen(target, predicted, classes):
    return confusion_matrix(
        target, predicted, max([*target, *predicted], default=-1) + 1)


def marks(target, predicted, classes):
    counts = confusion_matrix(target, predicted, classes)
    return [[min(n, 1) for n in row] for row in counts]


# Other right answers


def by_counter(target, predicted, classes):
    counts = collections.Counter(zip(target, predicted))
    return [[counts[i, j] for j in range(classes)] for i in range(classes)]


def by_counting(target, predicted, classes):
    pairs = list(zip(target, predicted))
    return [[pairs.count((i, j)) for j in range(classes)]
            for i in range(classes)]


def inputs(st):
    def pairs(classes):
        label = st.integers(0, classes - 1)
        return st.lists(st.tuples(label, label), max_size=6).map(
            lambda found: ([t for t, _ in found], [p for _, p in found],
                           classes))

    return st.integers(1, 4).flatmap(pairs)


exercises = (Exercise(
    id="11.1",
    title="Who is taken for whom",
    name="confusion_matrix",
    statement=STATEMENT,
    stub=STUB,
    reference=confusion_matrix,
    inputs=inputs,
    examples=(([0, 1, 1], [0, 1, 0], 2), ([], [], 2), ([0, 0], [1, 1], 3),
              ([2, 2, 2], [2, 2, 1], 3)),
    wrong=(
        Wrong(transposed, "Rows and columns are exchanged. In row i stand "
              "the examples that are class i: should a row add up to what "
              "there is, or to what was predicted?"),
        Wrong(one_row, "All rows are one list: [row] * classes repeats a "
              "reference, not the list. What does counts[0] is counts[1] "
              "say?"),
        Wrong(shares, "These are shares of each row, as floats. Counts are "
              "asked for. How many examples stand behind a share of 1.0?"),
        Wrong(only_right, "This counts the right answers alone. What was an "
              "example taken for when the answer was wrong?"),
        Wrong(only_mistakes, "This counts the mistakes alone. Where do the "
              "examples stand that were recognised?"),
        Wrong(only_seen, "This makes as many rows as there are classes in "
              "the lists. Can the matrices of two batches be added, if one "
              "of them has no 9 in it?"),
        Wrong(marks, "This marks that a pair occurs, and does not count it. "
              "What happens at the second example of one pair?"),
    ),
    right=(by_counter, by_counting),
    hints=(
        "Begin with a matrix of zeros. Make each row a list of its own.",
        "Go through both lists together, with zip.",
        "Row: the right class. Column: the prediction. Add 1 there.",
    ),
    after="PyTorch leaves this to others: sklearn.metrics.confusion_matrix "
    "has the same rows and columns. With tensors, "
    "torch.bincount(target * classes + predicted) counts all pairs at once.",
),)
