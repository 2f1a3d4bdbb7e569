"""Exercises of chapter 11: batches, counts, shares, patience, and files."""

import collections
import math

from course.exercises import Exercise, Wrong

# 11.1: numbers in batches

BATCHES_STATEMENT = """\
**Exercise 11.1.** Write `batches(n, size, drop_last)`: the numbers 0 to
`n` - 1, in their order, as a list of lists of `size` numbers each. What is
left at the end makes a smaller last batch, unless `drop_last` is True: then
it is left out. No batch is empty."""

BATCHES_STUB = '''\
def batches(n: int, size: int, drop_last: bool) -> list[list[int]]:
    """The numbers below n, in lists of `size`."""
    raise NotImplementedError("exercise 11.1")'''


def batches(n, size, drop_last):
    end = n - n % size if drop_last else n
    return [list(range(i, min(i + size, n))) for i in range(0, end, size)]


def beyond_the_end(n, size, drop_last):
    end = n - n % size if drop_last else n
    return [list(range(i, i + size)) for i in range(0, end, size)]


def always_dropped(n, size, drop_last):
    return batches(n, size, True)


def never_dropped(n, size, drop_last):
    return batches(n, size, False)


def last_one_dropped(n, size, drop_last):
    found = batches(n, size, False)
    return found[:-1] if drop_last else found


def an_empty_one(n, size, drop_last):
    count = n // size + (not drop_last)
    return [list(range(n))[i * size:(i + 1) * size] for i in range(count)]


def so_many_batches(n, size, drop_last):
    length = max(1, n // size)
    return batches(n, length, drop_last)


def by_slices(n, size, drop_last):
    numbers = list(range(n))
    found = [numbers[i:i + size] for i in range(0, n, size)]
    if drop_last and found and len(found[-1]) < size:
        found.pop()
    return found


def one_by_one(n, size, drop_last):
    found, batch = [], []
    for i in range(n):
        batch.append(i)
        if len(batch) == size:
            found.append(batch)
            batch = []
    return found + [batch] if batch and not drop_last else found


BATCHES = Exercise(
    id="11.1",
    title="Numbers in batches",
    name="batches",
    statement=BATCHES_STATEMENT,
    stub=BATCHES_STUB,
    reference=batches,
    inputs=lambda st: st.tuples(st.integers(0, 12), st.integers(1, 5),
                                st.booleans()),
    examples=((5, 2, False), (5, 2, True), (4, 2, True), (4, 2, False),
              (0, 3, False), (9, 3, True), (10, 2, False)),
    wrong=(
        Wrong(beyond_the_end, "The last batch goes on beyond n - 1. Which "
              "sample has the number n?"),
        Wrong(always_dropped, "What is left is dropped, whatever drop_last "
              "says. Who asked for that when drop_last is False?"),
        Wrong(never_dropped, "drop_last makes no difference here. Which "
              "batch has fewer numbers than the others?"),
        Wrong(last_one_dropped, "With drop_last the last batch goes, "
              "even if it is full. Is there anything left when size divides "
              "n?"),
        Wrong(an_empty_one, "There is an empty batch where size divides n. "
              "What would its mean loss be?"),
        Wrong(so_many_batches, "Here size is the number of batches. How many "
              "numbers should one of them have?"),
    ),
    right=(by_slices, one_by_one),
    hints=(
        "range(0, n, size) gives the number with which each batch begins.",
        "A batch ends at i + size, or at n if that comes first.",
        "With drop_last, no batch begins after n - n % size.",
    ),
    after="torch.utils.data.BatchSampler does this to any sampler, not only "
    "to 0, 1, 2 (torch/utils/data/sampler.py).",
)


# 11.2: who is taken for whom

STATEMENT = """\
**Exercise 11.2.** Write `confusion_matrix(target, predicted, classes)`: a
list of `classes` rows of `classes` integers. The number in row i, column j
counts the examples whose right class is i and whose predicted class is j.
A class that never occurs has its row and its column all the same."""

STUB = '''\
def confusion_matrix(target: list[int], predicted: list[int],
                     classes: int) -> list[list[int]]:
    """counts[i][j]: examples of class i that were taken for class j."""
    raise NotImplementedError("exercise 11.2")'''


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


CONFUSION = Exercise(
    id="11.2",
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
)


# 11.3: shares of a step

SHARES_STATEMENT = """\
**Exercise 11.3.** Several batches make one step. The loss of each is a
mean over its rows, and the sum of their gradients should be the gradient of
the mean over all rows. Write `shares(sizes)`: by which factor to multiply
the loss of each batch, as a list of floats. `sizes` are the numbers of rows,
1 or more each."""

SHARES_STUB = '''\
def shares(sizes: list[int]) -> list[float]:
    """A factor for the mean loss of each batch of a step."""
    raise NotImplementedError("exercise 11.3")'''


def shares(sizes):
    total = sum(sizes)
    return [size / total for size in sizes]


def all_alike(sizes):
    return [1 / len(sizes) for _ in sizes]


def of_ones(sizes):
    return [1.0 for _ in sizes]


def by_rows(sizes):
    return [1 / sum(sizes) for _ in sizes]


def by_own_rows(sizes):
    return [1 / size for size in sizes]


def sums_of_rows(sizes):
    return [float(size) for size in sizes]


def of_the_largest(sizes):
    return [size / max(sizes) for size in sizes]


def with_fsum(sizes):
    return [size / math.fsum(sizes) for size in sizes]


def in_a_loop(sizes):
    rows = 0
    for size in sizes:
        rows += size
    found = []
    for size in sizes:
        found.append(size / rows)
    return found


SHARES = Exercise(
    id="11.3",
    title="Shares of a step",
    name="shares",
    statement=SHARES_STATEMENT,
    stub=SHARES_STUB,
    reference=shares,
    inputs=lambda st: st.tuples(
        st.lists(st.integers(1, 9), min_size=1, max_size=5)),
    rtol=1e-12,
    examples=(([4, 4, 2],), ([1],), ([3, 1],), ([2, 2],), ([5],)),
    wrong=(
        Wrong(all_alike, "Each batch counts the same here. Rows of a "
              "small last batch then weigh more than others: how much does "
              "one row of [3, 1] weigh in each?"),
        Wrong(of_ones, "The gradients are added and nothing is divided. Two "
              "equal batches give twice the gradient of one: whose rate "
              "would that change?"),
        Wrong(by_rows, "This divides a mean by the number of all rows. What "
              "has the mean been divided by already?"),
        Wrong(by_own_rows, "This divides by the batch's own rows. Its loss "
              "is a mean: how often has that been done then?"),
        Wrong(sums_of_rows, "This makes sums of means again, which is right, "
              "and stops there. What makes a mean of the sum over all rows?"),
        Wrong(of_the_largest, "This compares with the largest batch. To what "
              "do the factors add up, and to what should they?"),
    ),
    right=(with_fsum, in_a_loop),
    hints=(
        "Mean times number of rows: the sum over a batch.",
        "The sums of all batches, divided by the number of all rows, are the "
        "mean over all rows.",
        "So the factor is size / sum(sizes).",
    ),
    after="People write loss / accumulation_steps, in PyTorch too. That is "
    "the same as long as all batches have one size.",
)


# 11.4: when to stop

STOP_STATEMENT = """\
**Exercise 11.4.** Write `epochs_run(losses, patience)`. `losses` are those
that a run would have, epoch after epoch, if nobody stopped it. It is stopped
after the epoch in which the loss has been no lower than the lowest one
before it for `patience` epochs in a row. Return the number of epochs that
are run: all of them if it is never stopped."""

STOP_STUB = '''\
def epochs_run(losses: list[float], patience: int) -> int:
    """After how many epochs early stopping ends this run."""
    raise NotImplementedError("exercise 11.4")'''


def epochs_run(losses, patience):
    best, waited = float("inf"), 0
    for epoch, loss in enumerate(losses, 1):
        if loss < best:
            best, waited = loss, 0
        else:
            waited += 1
        if waited == patience:
            return epoch
    return len(losses)


def against_the_last(losses, patience):
    last, waited = float("inf"), 0
    for epoch, loss in enumerate(losses, 1):
        waited = 0 if loss < last else waited + 1
        last = loss
        if waited == patience:
            return epoch
    return len(losses)


def never_forgiven(losses, patience):
    best, waited = float("inf"), 0
    for epoch, loss in enumerate(losses, 1):
        waited += loss >= best
        best = min(best, loss)
        if waited == patience:
            return epoch
    return len(losses)


def one_late(losses, patience):
    return epochs_run(losses, patience + 1)


def ties_are_better(losses, patience):
    best, waited = float("inf"), 0
    for epoch, loss in enumerate(losses, 1):
        waited = 0 if loss <= best else waited + 1
        best = min(best, loss)
        if waited == patience:
            return epoch
    return len(losses)


def counted_from_zero(losses, patience):
    found = epochs_run(losses, patience)
    best = [min(losses[:i], default=float("inf")) for i in range(found)]
    stopped = found and all(
        losses[i] >= best[i] for i in range(max(0, found - patience), found)
    ) and found >= patience
    return found - 1 if stopped else found


def best_epoch(losses, patience):
    found = losses[:epochs_run(losses, patience)]
    return found.index(min(found)) + 1 if found else 0


def upwards(losses, patience):
    return epochs_run([-loss for loss in losses], patience)


def by_position(losses, patience):
    at = 0
    for i in range(1, len(losses)):
        if losses[i] < losses[at]:
            at = i
        elif i - at == patience:
            return i + 1
    return len(losses)


def by_windows(losses, patience):
    for end in range(patience + 1, len(losses) + 1):
        start = end - patience
        if min(losses[start:end]) >= min(losses[:start]):
            return end
    return len(losses)


STOP = Exercise(
    id="11.4",
    title="When to stop",
    name="epochs_run",
    statement=STOP_STATEMENT,
    stub=STOP_STUB,
    reference=epochs_run,
    inputs=lambda st: st.tuples(
        st.lists(st.integers(0, 6).map(float), max_size=9),
        st.integers(1, 3)),
    examples=(([3.0, 2.0, 2.5, 2.4, 2.3], 2), ([3.0, 2.0, 1.0], 1),
              ([], 1), ([1.0, 1.0, 1.0], 1), ([5.0, 1.0, 4.0, 3.0, 2.0], 2),
              ([3.0, 4.0, 2.0, 4.0, 1.0, 4.0], 2),
              ([1.0, 2.0, 3.0, 4.0, 5.0], 2)),
    wrong=(
        Wrong(against_the_last, "This compares with the epoch before. After "
              "5, 1, 4, 3, 2 it sees three improvements: is any of them "
              "better than 1?"),
        Wrong(never_forgiven, "The count of bad epochs is never set back. "
              "What does an improvement say about those before it?"),
        Wrong(one_late, "This stops one epoch too late. With a patience of "
              "1, how many epochs without improvement are allowed?"),
        Wrong(ties_are_better, "An equal loss counts as an improvement here. "
              "When does a run end whose loss stays the same for ever?"),
        Wrong(counted_from_zero, "This is the index of the last epoch. How "
              "many epochs have been run when that index is 0?"),
        Wrong(best_epoch, "This is the best epoch, and the run goes on for a "
              "while after it. How would anybody know at once that it is the "
              "best?"),
        Wrong(upwards, "This waits for the number to grow. Is a loss better "
              "when it is higher?"),
    ),
    right=(by_position, by_windows),
    hints=(
        "Keep two numbers: the lowest loss so far, and how many epochs have "
        "passed without a lower one.",
        "A lower loss sets the second number to 0; any other adds 1.",
        "When it reaches patience, return the number of this epoch, which is "
        "counted from 1.",
    ),
    after="PyTorch has no early stopping. PyTorch Lightning's and Keras's "
    "callbacks are both called EarlyStopping, and have a patience. "
    "torch.optim.lr_scheduler.ReduceLROnPlateau waits in the same way.",
)


# 11.5: does an entry hold

FITS_STATEMENT = """\
**Exercise 11.5.** A file says of a tensor: its shape is `shape`, and its
bytes are those from `begin` up to but not including `end`. The file has
`length` bytes of tensors, and an element of this dtype takes `itemsize`.
Somebody else wrote the file, and all of it may be wrong. Write
`entry_fits(shape, itemsize, begin, end, length)`: True if such a tensor can
be read from these bytes, and takes exactly all of them; else False. No size
may be negative. A tensor without elements is one, and `[]` is the shape of
a single number."""

FITS_STUB = '''\
def entry_fits(shape: list[int], itemsize: int, begin: int, end: int,
               length: int) -> bool:
    """Whether bytes begin to end, of length, are a tensor of this shape."""
    raise NotImplementedError("exercise 11.5")'''


def entry_fits(shape, itemsize, begin, end, length):
    return (all(n >= 0 for n in shape)
            and 0 <= begin <= end <= length
            and end - begin == math.prod(shape) * itemsize)


def beyond_the_file(shape, itemsize, begin, end, length):
    return entry_fits(shape, itemsize, begin, end, max(end, length))


def negative_sizes(shape, itemsize, begin, end, length):
    return (0 <= begin <= end <= length
            and end - begin == math.prod(shape) * itemsize)


def negative_begin(shape, itemsize, begin, end, length):
    return (all(n >= 0 for n in shape) and begin <= end <= length
            and end - begin == math.prod(shape) * itemsize)


def elements_for_bytes(shape, itemsize, begin, end, length):
    return entry_fits(shape, 1, begin, end, length)


def enough_is_enough(shape, itemsize, begin, end, length):
    return (all(n >= 0 for n in shape) and 0 <= begin <= end <= length
            and end - begin >= math.prod(shape) * itemsize)


def nothing_refused(shape, itemsize, begin, end, length):
    return begin < end and entry_fits(shape, itemsize, begin, end, length)


def sum_of_sizes(shape, itemsize, begin, end, length):
    return (all(n >= 0 for n in shape) and 0 <= begin <= end <= length
            and end - begin == sum(shape) * itemsize)


def step_by_step(shape, itemsize, begin, end, length):
    if begin < 0 or end < begin or end > length:
        return False
    size = itemsize
    for n in shape:
        if n < 0:
            return False
        size *= n
    return size == end - begin


def by_a_slice(shape, itemsize, begin, end, length):
    if min([begin, end, *shape]) < 0:
        return False
    found = range(length)[begin:end]
    return (len(found) == end - begin
            and len(found) == itemsize * math.prod(shape)
            and end <= length)


def fits_inputs(st):
    def entries(case):
        shape, itemsize, begin, wrong, value = case
        end = begin + math.prod(shape) * itemsize
        length = end + 2
        return {
            "": (shape, itemsize, begin, end, length),
            "file": (shape, itemsize, begin, end, end - value),
            "end": (shape, itemsize, begin, end + value, length),
            "begin": (shape, itemsize, begin - value, end, length),
            "moved": (shape, itemsize, -value, end - begin - value, length),
            "signs": ([-n for n in shape], itemsize, begin, end, length),
            "turned": (shape, itemsize, end, begin, length)}[wrong]

    return st.tuples(
        st.lists(st.integers(0, 3), max_size=3), st.sampled_from([1, 2, 4]),
        st.integers(0, 3), st.sampled_from(
            ["", "file", "end", "begin", "moved", "signs", "turned"]),
        st.integers(1, 4)).map(entries)


FITS = Exercise(
    id="11.5",
    title="Does an entry hold",
    name="entry_fits",
    statement=FITS_STATEMENT,
    stub=FITS_STUB,
    imports="import math",
    reference=entry_fits,
    inputs=fits_inputs,
    examples=(([2], 4, 0, 8, 8), ([2], 4, 0, 8, 7), ([-1, -2], 4, 0, 8, 8),
              ([2], 4, -8, 0, 8), ([2], 4, 0, 2, 8), ([2], 4, 0, 9, 9),
              ([0, 5], 4, 3, 3, 8), ([], 2, 0, 2, 2), ([], 2, 0, 0, 2),
              ([3, 2], 1, 0, 5, 6), ([3, 2], 1, 0, 6, 6)),
    wrong=(
        Wrong(beyond_the_file, "end may lie beyond the file here. What is "
              "read there, in a language that does not check?"),
        Wrong(negative_sizes, "Two negative sizes have a positive product. "
              "Which tensor has the shape [-1, -2]?"),
        Wrong(negative_begin, "begin may be negative here. Which bytes does "
              "data[-8:0] give in Python?"),
        Wrong(elements_for_bytes, "This counts elements, and offsets are "
              "bytes. How many bytes do two float32 take?"),
        Wrong(enough_is_enough, "Bytes may be left over here. What could "
              "somebody hide in bytes that belong to no tensor?"),
        Wrong(nothing_refused, "A tensor of shape [0, 5] has no bytes, so "
              "begin and end are one. Is it no tensor?"),
        Wrong(sum_of_sizes, "This adds the sizes up. How many elements has a "
              "matrix of shape [3, 2]?"),
    ),
    right=(step_by_step, by_a_slice),
    hints=(
        "Three things: the sizes, the place in the file, and the number of "
        "bytes.",
        "0 <= begin <= end <= length says all about the place.",
        "math.prod(shape) * itemsize bytes are due; math.prod([]) is 1.",
    ),
    after="The package safetensors checks the same in Rust "
    "(safetensors/src/tensor.rs), and that no overflow hides in the product. "
    "Python's integers have none.",
)


exercises = BATCHES, CONFUSION, SHARES, STOP, FITS
