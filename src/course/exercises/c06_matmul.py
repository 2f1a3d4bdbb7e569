"""Exercises of chapter 6: products, what they cost, and their shapes."""

import itertools
import math

from course.exercises import Exercise, Wrong

# 06.1: a product of two strided matrices

STATEMENT = """\
**Exercise 06.1.** Write `matmul(a, a_strides, b, b_strides, n, k, m)`: the
product of an n by k and a k by m matrix. Both lie in flat lists: element
`(i, p)` of the first is `a[i * a_strides[0] + p * a_strides[1]]`, and `b`
is read in the same way. The result is a list of n rows with m floats
each."""

STUB = '''\
def matmul(a: list[float], a_strides: tuple, b: list[float],
           b_strides: tuple, n: int, k: int, m: int):
    """Rows of the product of an n by k and a k by m matrix."""
    raise NotImplementedError("exercise 06.1")'''


def matmul(a, a_strides, b, b_strides, n, k, m):
    rows = []
    for i in range(n):
        row = []
        for j in range(m):
            total = 0.0
            for p in range(k):
                total += (a[i * a_strides[0] + p * a_strides[1]]
                          * b[p * b_strides[0] + j * b_strides[1]])
            row.append(total)
        rows.append(row)
    return rows


# Known wrong answers


def assumes_row_major(a, a_strides, b, b_strides, n, k, m):
    return matmul(a, (k, 1), b, (m, 1), n, k, m)


def b_transposed(a, a_strides, b, b_strides, n, k, m):
    return matmul(a, a_strides, b, b_strides[::-1], n, k, m)


def a_transposed(a, a_strides, b, b_strides, n, k, m):
    return matmul(a, a_strides[::-1], b, b_strides, n, k, m)


def last_product(a, a_strides, b, b_strides, n, k, m):
    rows = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            for p in range(k):
                rows[i][j] = (a[i * a_strides[0] + p * a_strides[1]]
                              * b[p * b_strides[0] + j * b_strides[1]])
    return rows


def one_row(a, a_strides, b, b_strides, n, k, m):
    rows = [[0.0] * m] * n
    for i in range(n):
        for j in range(m):
            for p in range(k):
                rows[i][j] += (a[i * a_strides[0] + p * a_strides[1]]
                               * b[p * b_strides[0] + j * b_strides[1]])
    return rows


def result_transposed(a, a_strides, b, b_strides, n, k, m):
    rows = matmul(a, a_strides, b, b_strides, n, k, m)
    return [[rows[i][j] for i in range(n)] for j in range(m)]


def never_reset(a, a_strides, b, b_strides, n, k, m):
    rows, total = [], 0.0
    for i in range(n):
        rows.append([])
        for j in range(m):
            for p in range(k):
                total += (a[i * a_strides[0] + p * a_strides[1]]
                          * b[p * b_strides[0] + j * b_strides[1]])
            rows[-1].append(total)
    return rows


def flat(a, a_strides, b, b_strides, n, k, m):
    return sum(matmul(a, a_strides, b, b_strides, n, k, m), [])


# Other right answers


def by_comprehension(a, a_strides, b, b_strides, n, k, m):
    (ai, ap), (bp, bj) = a_strides, b_strides
    return [[sum(a[i * ai + p * ap] * b[p * bp + j * bj] for p in range(k))
             for j in range(m)] for i in range(n)]


def row_by_row(a, a_strides, b, b_strides, n, k, m):
    rows = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for p in range(k):
            x = a[i * a_strides[0] + p * a_strides[1]]
            for j in range(m):
                rows[i][j] += x * b[p * b_strides[0] + j * b_strides[1]]
    return rows


def inputs(st):
    def layouts(rows, columns):
        return st.sampled_from([
            (columns, 1), (1, rows), (columns + 1, 1), (0, 1)])

    def matrix(rows, columns):
        """(values, strides), with as many values as the strides reach."""
        def filled(strides):
            last = ((rows - 1) * strides[0] + (columns - 1) * strides[1]
                    if rows and columns else -1)
            values = st.lists(st.integers(-4, 4).map(float),
                              min_size=last + 1, max_size=last + 1)
            return st.tuples(values, st.just(strides))

        return layouts(rows, columns).flatmap(filled)

    def arguments(sizes):
        n, k, m = sizes
        return st.builds(
            lambda a, b: (*a, *b, n, k, m), matrix(n, k), matrix(k, m))

    size = st.sampled_from([1, 2, 3, 0])
    return st.tuples(size, size, size).flatmap(arguments)


product = Exercise(
    id="06.1",
    title="A product over strides",
    name="matmul",
    statement=STATEMENT,
    stub=STUB,
    reference=matmul,
    inputs=inputs,
    examples=(
        ([1.0, 2.0, 3.0, 4.0], (2, 1), [5.0, 6.0, 7.0, 8.0], (2, 1), 2, 2, 2),
        ([1.0, 2.0, 3.0, 4.0], (1, 2), [5.0, 6.0, 7.0, 8.0], (2, 1), 2, 2, 2),
        ([1.0, 2.0, 3.0, 4.0], (2, 1), [5.0, 6.0, 7.0, 8.0], (1, 2), 2, 2, 2),
        ([1.0, 2.0], (1, 1), [3.0, 4.0, 5.0], (3, 1), 2, 1, 3)),
    wrong=(
        Wrong(assumes_row_major, "This computes its own strides, k and m, "
              "and never reads those that it is given. Which of them changes "
              "when a matrix is transposed without a copy?"),
        Wrong(b_transposed, "This reads b with its indices exchanged. Which "
              "index do a's columns and b's rows share?"),
        Wrong(a_transposed, "This reads a with its indices exchanged. Which "
              "stride belongs to the row index i?"),
        Wrong(last_product, "This assigns the product, so that the last one "
              "is left. An element of the result is a sum of k products: "
              "which operator adds to what is there?"),
        Wrong(one_row, "All rows of the result are one list: [row] * n "
              "repeats a reference, not the list. What does "
              "rows[0] is rows[1] say?"),
        Wrong(result_transposed, "The result has its rows where its columns "
              "should be. Which loop must be the outer one, that over i or "
              "that over j?"),
        Wrong(never_reset, "The total goes on from one element to the next. "
              "Where does the sum for a new element begin?"),
        Wrong(flat, "The numbers are right, but they stand in one flat list. "
              "What should len(result) be?"),
    ),
    right=(by_comprehension, row_by_row),
    hints=(
        "Three loops: i over the n rows, j over the m columns, p over the k "
        "products of one element.",
        "Each element begins with total = 0.0, and every step over p adds "
        "the product of element (i, p) of a and element (p, j) of b.",
        "Build each row as a new list, and append it when its m elements are "
        "there. With k = 0 every element is the empty sum.",
    ),
    after="torch.mm hands the strides to a BLAS library, which reads row- "
    "and column-major matrices alike; any other layout is copied first "
    "(aten/src/ATen/native/LinearAlgebra.cpp).",
)


# 06.2: cache lines

LINES_STATEMENT = """\
**Exercise 06.2.** Write `lines_touched(start, n, stride, line)`: how many
cache lines are fetched to read `n` elements, `stride` apart, the first of
them at address `start`. Addresses count elements, and a line holds `line`
of them: addresses 0 to `line - 1` are the first line. The cache is large:
a line that was fetched stays."""

LINES_STUB = '''\
def lines_touched(start: int, n: int, stride: int, line: int) -> int:
    """The number of cache lines under n elements, stride apart."""
    raise NotImplementedError("exercise 06.2")'''


def lines_touched(start, n, stride, line):
    return len({(start + i * stride) // line for i in range(n)})


def one_each(start, n, stride, line):
    return n


def as_if_dense(start, n, stride, line):
    return math.ceil(n / line)


def no_start(start, n, stride, line):
    return len({i * stride // line for i in range(n)})


def whole_span(start, n, stride, line):
    if not n:
        return 0
    last = start + (n - 1) * stride
    return last // line - start // line + 1


def rounded_span(start, n, stride, line):
    return math.ceil(n * stride / line)


def distinct_elements(start, n, stride, line):
    return len({start + i * stride for i in range(n)})


def fetched_again(start, n, stride, line):
    count, last = 0, None
    for i in range(n):
        if (start + i * stride) // line != last or not stride:
            count += 1
            last = (start + i * stride) // line
    return count


def by_walking(start, n, stride, line):
    count, last = 0, -1
    for i in range(n):
        here = (start + i * stride) // line
        if here != last:
            count, last = count + 1, here
    return count


def by_list(start, n, stride, line):
    seen = []
    for address in range(start, start + n * max(stride, 1), max(stride, 1)):
        here = address // line if stride else start // line
        if here not in seen:
            seen.append(here)
    return len(seen)


def line_inputs(st):
    return st.tuples(st.integers(0, 9), st.integers(0, 9),
                     st.integers(0, 12), st.sampled_from([4, 2, 8, 1]))


lines = Exercise(
    id="06.2",
    title="How many cache lines?",
    name="lines_touched",
    statement=LINES_STATEMENT,
    stub=LINES_STUB,
    reference=lines_touched,
    inputs=line_inputs,
    examples=((0, 8, 1, 8), (0, 8, 8, 8), (3, 4, 1, 4), (0, 3, 12, 4),
              (0, 5, 0, 4), (0, 4, 3, 8)),
    wrong=(
        Wrong(one_each, "This fetches a line for every element. With a "
              "stride of 1, what does the fetch of the first element bring "
              "along?"),
        Wrong(as_if_dense, "This counts as if the elements were neighbours. "
              "With a stride of at least a line, how many elements does "
              "one line give you?"),
        Wrong(no_start, "This begins at address 0. Four elements in lines of "
              "four: is it one line if the first is at address 3?"),
        Wrong(whole_span, "This counts every line between the first element "
              "and the last. With a stride of three lines, who reads the "
              "two between?"),
        Wrong(rounded_span, "The span over the length of a line, rounded up, "
              "knows no line borders and no gaps. Where do the lines begin "
              "that the memory is cut into?"),
        Wrong(distinct_elements, "This counts elements that differ, not the "
              "lines that they are in. Which division gives the line of an "
              "address?"),
        Wrong(fetched_again, "A stride of 0 reads one element again and "
              "again. Is its line gone after the first time?"),
    ),
    right=(by_walking, by_list),
    hints=(
        "The line of an address is address // line.",
        "Element i is at start + i * stride. How many different lines are "
        "there among them?",
        "A set keeps each number once: {... for i in range(n)}, and its "
        "len().",
    ),
    after="A profiler counts the same on the real machine: on Linux, perf "
    "stat -e cache-misses. PyTorch's kernels choose the order of their "
    "loops by strides for this reason (reorder_dimensions in "
    "aten/src/ATen/TensorIterator.cpp).",
)


# 06.3: tiles

TILES_STATEMENT = """\
**Exercise 06.3.** Write `tiled_order(n, m, size)`: the order in which two
loops visit the elements (i, j) of an n by m matrix, tile by tile. A list
of pairs. Tiles are `size` by `size`, those at the right and lower edges
may be smaller. Tiles go along the rows, and so do the elements within a
tile."""

TILES_STUB = '''\
def tiled_order(n: int, m: int, size: int) -> list:
    """All (i, j) of an n by m matrix, tile by tile."""
    raise NotImplementedError("exercise 06.3")'''


def tiled_order(n, m, size):
    return [(i, j)
            for i0 in range(0, n, size) for j0 in range(0, m, size)
            for i in range(i0, min(i0 + size, n))
            for j in range(j0, min(j0 + size, m))]


def not_tiled(n, m, size):
    return [(i, j) for i in range(n) for j in range(m)]


def edges_left_out(n, m, size):
    return [(i, j)
            for i0 in range(0, n - size + 1, size)
            for j0 in range(0, m - size + 1, size)
            for i in range(i0, i0 + size) for j in range(j0, j0 + size)]


def over_the_edge(n, m, size):
    return [(i, j)
            for i0 in range(0, n, size) for j0 in range(0, m, size)
            for i in range(i0, i0 + size) for j in range(j0, j0 + size)]


def tiles_down(n, m, size):
    return [(i, j)
            for j0 in range(0, m, size) for i0 in range(0, n, size)
            for i in range(i0, min(i0 + size, n))
            for j in range(j0, min(j0 + size, m))]


def within_down(n, m, size):
    return [(i, j)
            for i0 in range(0, n, size) for j0 in range(0, m, size)
            for j in range(j0, min(j0 + size, m))
            for i in range(i0, min(i0 + size, n))]


def one_from_each(n, m, size):
    return [(i, j)
            for i0 in range(min(size, n)) for j0 in range(min(size, m))
            for i in range(i0, n, size) for j in range(j0, m, size)]


def by_sorting(n, m, size):
    return sorted(((i, j) for i in range(n) for j in range(m)),
                  key=lambda at: (at[0] // size, at[1] // size, at))


def with_loops(n, m, size):
    found = []
    for i0 in range(0, n, size):
        for j0 in range(0, m, size):
            for i in range(i0, i0 + size):
                for j in range(j0, j0 + size):
                    if i < n and j < m:
                        found.append((i, j))
    return found


def tile_inputs(st):
    return st.tuples(st.integers(0, 5), st.integers(0, 5),
                     st.integers(1, 4))


tiles = Exercise(
    id="06.3",
    title="Tile by tile",
    name="tiled_order",
    statement=TILES_STATEMENT,
    stub=TILES_STUB,
    reference=tiled_order,
    inputs=tile_inputs,
    examples=((4, 4, 2), (3, 5, 2), (2, 4, 2), (4, 2, 2), (1, 1, 2)),
    wrong=(
        Wrong(not_tiled, "This goes along whole rows. How many elements of "
              "the first row belong to the first tile?"),
        Wrong(edges_left_out, "Where size does not divide n or m, this "
              "leaves the edges out. Who computes those elements?"),
        Wrong(over_the_edge, "This walks over the edge: the last tiles are "
              "as large as the others. What does index i = n read?"),
        Wrong(tiles_down, "These tiles go down a column. Which loop over "
              "tiles should be the outer one?"),
        Wrong(within_down, "Within a tile, this goes down the columns. In "
              "which direction do the elements lie side by side?"),
        Wrong(one_from_each, "This takes one element out of every tile, then "
              "the next of each. Which two loops should be the inner "
              "ones?"),
    ),
    right=(by_sorting, with_loops),
    hints=(
        "Four loops: i0 and j0 go over the tiles in steps of size, i and j "
        "over the elements of one tile.",
        "range(0, n, size) gives the first rows of the tiles.",
        "A tile's rows are range(i0, min(i0 + size, n)).",
    ),
    after="BLAS libraries cut tiles for each level of cache, and copy each "
    "into one contiguous run before they use it: Goto and van de Geijn, "
    "Anatomy of high-performance matrix multiplication, 2008.",
)


# 06.4: the shape of a product

SHAPE_STATEMENT = """\
**Exercise 06.4.** Write `product_shape(left, right)`: the shape of `a @ b`
for tensors of the shapes `left` and `right`, two tuples. A vector on the
left counts as a row and on the right as a column, and the dimension that
this adds is not in the result. Batches broadcast. Every pair that you are
given can be multiplied, and neither is empty."""

SHAPE_STUB = '''\
def product_shape(left: tuple, right: tuple) -> tuple:
    """The shape of a @ b."""
    raise NotImplementedError("exercise 06.4")'''


def product_shape(left, right):
    a = left if len(left) > 1 else (1, *left)
    b = right if len(right) > 1 else (*right, 1)
    batch = []
    for x, y in itertools.zip_longest(a[-3::-1], b[-3::-1], fillvalue=1):
        batch.append(y if x == 1 else x)
    rows = a[-2:-1] if len(left) > 1 else ()
    columns = b[-1:] if len(right) > 1 else ()
    return (*reversed(batch), *rows, *columns)


def _pieces(left, right):
    batch = []
    for x, y in itertools.zip_longest(left[-3::-1], right[-3::-1],
                                      fillvalue=1):
        batch.append(y if x == 1 else x)
    return (tuple(reversed(batch)), left[-2:-1] if len(left) > 1 else (),
            right[-1:] if len(right) > 1 else ())


def matrices_only(left, right):
    return (*left[:-1], right[-1])


def keeps_ones(left, right):
    batch, rows, columns = _pieces(left, right)
    return (*batch, *(rows or (1,)), *(columns or (1,)))


def left_batch(left, right):
    _, rows, columns = _pieces(left, right)
    return (*left[:-2], *rows, *columns)


def both_batches(left, right):
    _, rows, columns = _pieces(left, right)
    return (*left[:-2], *right[:-2], *rows, *columns)


def vector_is_a_row(left, right):
    batch, rows, columns = _pieces(left, right)
    return (*batch, *rows, *(columns or right[-1:]))


def batches_from_the_front(left, right):
    batch = tuple(y if x == 1 else x for x, y in itertools.zip_longest(
        left[:-2], right[:-2], fillvalue=1))
    _, rows, columns = _pieces(left, right)
    return (*batch, *rows, *columns)


def smaller_batch(left, right):
    batch = [min(x, y) for x, y in itertools.zip_longest(
        left[-3::-1], right[-3::-1], fillvalue=1)]
    _, rows, columns = _pieces(left, right)
    return (*reversed(batch), *rows, *columns)


def by_cases(left, right):
    if len(left) == 1 and len(right) == 1:
        return ()
    if len(left) == 1:
        return right[:-2] + right[-1:]
    if len(right) == 1:
        return left[:-1]
    a, b = left[:-2], right[:-2]
    a = (1,) * (len(b) - len(a)) + a
    b = (1,) * (len(a) - len(b)) + b
    return tuple(max(x, y) for x, y in zip(a, b)) + (left[-2], right[-1])


def by_padding(left, right):
    ndim = max(len(left), len(right), 2)
    a = left if len(left) > 1 else (1, *left)
    b = right if len(right) > 1 else (*right, 1)
    a = (1,) * (ndim - len(a)) + a
    b = (1,) * (ndim - len(b)) + b
    found = [max(x, y) for x, y in zip(a[:-2], b[:-2])]
    if len(left) > 1:
        found.append(a[-2])
    if len(right) > 1:
        found.append(b[-1])
    return tuple(found)


def shape_inputs(st):
    size = st.integers(2, 5)

    @st.composite
    def pair(draw):
        n, k, m = draw(size), draw(size), draw(size)
        batch = tuple(draw(st.lists(size, max_size=2)))

        def some():
            part = batch[draw(st.integers(0, len(batch))):]
            return tuple(draw(st.sampled_from([d, d, 1])) for d in part)

        left = draw(st.sampled_from([(n, k), (k,), None]))
        right = draw(st.sampled_from([(k, m), (k,), None]))
        return (left or (*some(), n, k)), (right or (*some(), k, m))

    return pair()


shapes = Exercise(
    id="06.4",
    title="The shape of a product",
    name="product_shape",
    statement=SHAPE_STATEMENT,
    stub=SHAPE_STUB,
    reference=product_shape,
    inputs=shape_inputs,
    examples=(((2, 3), (3, 4)), ((2, 3), (3,)), ((3,), (3, 4)),
              ((3,), (3,)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
              ((5, 1, 2, 3), (6, 3, 4)), ((3,), (5, 3, 4)),
              ((5, 2, 3), (5, 3, 4)), ((6, 2, 3), (5, 1, 3, 4))),
    wrong=(
        Wrong(matrices_only, "This is right for two matrices. With a vector "
              "of 3 on the right, is there a dimension of 3 left in the "
              "result?"),
        Wrong(keeps_ones, "The row or column that a vector counts as is "
              "still in this result. How many dimensions has the product of "
              "a matrix and a vector?"),
        Wrong(left_batch, "This takes the batch of the left operand alone. "
              "What if only the right one has a batch?"),
        Wrong(both_batches, "This puts one batch behind the other. If both "
              "are 5, is every matrix multiplied with every other, or each "
              "with its partner?"),
        Wrong(vector_is_a_row, "A vector on the right is a column: what "
              "happens to its one size, which is summed over?"),
        Wrong(batches_from_the_front, "Batches are matched here from the "
              "front. From which end does broadcasting count?"),
        Wrong(smaller_batch, "This takes the smaller of two batch sizes. "
              "When 1 meets 5, how many products are there?"),
    ),
    right=(by_cases, by_padding),
    hints=(
        "Three parts: the batch, then the rows of a, then the columns of b. "
        "A vector has no batch, and gives no rows or columns.",
        "The batch of a is left[:-2]. Two batches meet from the right; a "
        "size of 1, or one that is not there, takes the other's.",
        "itertools.zip_longest(left[-3::-1], right[-3::-1], fillvalue=1) "
        "goes through both batches from the right.",
    ),
    imports="import itertools",
    after="torch.matmul does it in these cases too (_matmul_impl in "
    "aten/src/ATen/native/LinearAlgebra.cpp), and folds a batch into rows "
    "where that saves work.",
)


# 06.5: einsum, as it is defined

EINSUM_STATEMENT = """\
**Exercise 06.5.** Write `einsum(inputs, output, sizes, operands)`, slowly
and after its definition. `inputs` is a list of labels for each operand,
such as `["ij", "jk"]`, `output` those of the result, such as `"ik"`, and
`sizes` the size of each label. An operand is a dict from an index, a
tuple, to a number: `operands[0][(1, 2)]`. So is the result: for every
index of the output, the sum of the products over all values of the other
labels. A label may stand twice in one operand."""

EINSUM_STUB = '''\
def einsum(inputs: list, output: str, sizes: dict, operands: list) -> dict:
    """Products of elements, summed over the labels not in output."""
    raise NotImplementedError("exercise 06.5")'''


def einsum(inputs, output, sizes, operands):
    labels = sorted(sizes)
    result = {}
    for values in itertools.product(*[range(sizes[c]) for c in labels]):
        at = dict(zip(labels, values))
        term = 1
        for names, operand in zip(inputs, operands):
            term *= operand[tuple(at[c] for c in names)]
        index = tuple(at[c] for c in output)
        result[index] = result.get(index, 0) + term
    return result


def _loops(inputs, output, sizes, operands, begin, step, put):
    labels = sorted(sizes)
    result = {}
    for values in itertools.product(*[range(sizes[c]) for c in labels]):
        at = dict(zip(labels, values))
        term = begin
        for names, operand in zip(inputs, operands):
            term = step(term, operand[tuple(at[c] for c in names)])
        put(result, tuple(at[c] for c in output), term)
    return result


def _times(a, b):
    return a * b


def _add_to(result, index, term):
    result[index] = result.get(index, 0) + term


def sums_not_products(inputs, output, sizes, operands):
    return _loops(inputs, output, sizes, operands, 0,
                  lambda a, b: a + b, _add_to)


def last_term(inputs, output, sizes, operands):
    return _loops(inputs, output, sizes, operands, 1, _times,
                  lambda result, index, term: result.update({index: term}))


def first_operand(inputs, output, sizes, operands):
    return einsum(inputs[:1] + [""] * (len(inputs) - 1), output, sizes,
                  operands[:1] + [{(): 1}] * (len(inputs) - 1))


def in_order_of_names(inputs, output, sizes, operands):
    return einsum(inputs, "".join(sorted(output)), sizes, operands)


def all_summed(inputs, output, sizes, operands):
    return einsum(inputs, "", sizes, operands)


def diagonal_of_ones(inputs, output, sizes, operands):
    """Where a label is there twice, both of its dimensions are summed."""
    renamed, more = [], dict(sizes)
    for names in inputs:
        seen = ""
        for c in names:
            if c in seen:
                more[c.upper()] = sizes[c]
                c = c.upper()
            seen += c
        renamed.append(seen)
    return einsum(renamed, output, more, operands)


def nothing_summed(inputs, output, sizes, operands):
    return einsum(inputs, "".join(sorted(sizes)), sizes, operands)


def by_output(inputs, output, sizes, operands):
    summed = [c for c in sizes if c not in output]
    result = {}
    for index in itertools.product(*[range(sizes[c]) for c in output]):
        total = 0
        for rest in itertools.product(*[range(sizes[c]) for c in summed]):
            at = dict(zip([*output, *summed], index + rest))
            total += math.prod(operand[tuple(at[c] for c in names)]
                               for names, operand in zip(inputs, operands))
        result[index] = total
    return result


def by_recursion(inputs, output, sizes, operands):
    result = {}

    def go(left, at):
        if left:
            for value in range(sizes[left[0]]):
                go(left[1:], {**at, left[0]: value})
            return
        index = tuple(at[c] for c in output)
        term = 1
        for names, operand in zip(inputs, operands):
            term *= operand[tuple(at[c] for c in names)]
        result[index] = result.setdefault(index, 0) + term

    go(list(sizes), {})
    return result


EQUATIONS = ("ij,jk->ik", "ij->ji", "i,j->ij", "ii->i", "ii->", "ij->i",
             "i,i->", "ij,ij->j", "ij->", "i,i,i->i", "ij,jk->ki")


def einsum_case(equation, size, values):
    left, _, output = equation.partition("->")
    inputs = left.split(",")
    sizes = {c: size for c in sorted(set(left) - {","})}
    values = itertools.cycle(values)
    operands = [{index: next(values) for index in itertools.product(
        *[range(size) for _ in names])} for names in inputs]
    return inputs, output, sizes, operands


def einsum_inputs(st):
    return st.builds(einsum_case, st.sampled_from(EQUATIONS),
                     st.integers(1, 3),
                     st.lists(st.integers(-3, 5), min_size=5, max_size=12))


sentence = Exercise(
    id="06.5",
    title="einsum, after its definition",
    name="einsum",
    statement=EINSUM_STATEMENT,
    stub=EINSUM_STUB,
    reference=einsum,
    inputs=einsum_inputs,
    examples=tuple(einsum_case(equation, 2, [2, 3, 5, 7, 4, 6])
                   for equation in EQUATIONS),
    wrong=(
        Wrong(sums_not_products, "The operands' elements are added up. In "
              "the product of two matrices, what is done with a[i][p] and "
              "b[p][j] before the sum?"),
        Wrong(last_term, "The last term is left, for each one takes the "
              "place of the one before. Which labels should be summed "
              "over?"),
        Wrong(first_operand, "Only the first operand counts here. Where do "
              "the others come into the product?"),
        Wrong(in_order_of_names, "The result's index is in alphabetical "
              "order. What would ij->ji be good for then?"),
        Wrong(all_summed, "Everything is summed into one number. Which "
              "labels are kept apart in the result?"),
        Wrong(diagonal_of_ones, "A label that stands twice in an operand is "
              "one index: with ii, is element (0, 1) ever read?"),
        Wrong(nothing_summed, "The result has every label. What happens to "
              "those that output does not name?"),
    ),
    right=(by_output, by_recursion),
    hints=(
        "One loop for each label, over all its values, no matter in which "
        "operand it is: itertools.product(*[range(sizes[c]) for c in "
        "sizes]).",
        "In the innermost place, at = {label: value} says where you are. An "
        "operand's element is operand[tuple(at[c] for c in names)].",
        "Multiply one element of each operand, and add that to the result "
        "at tuple(at[c] for c in output).",
    ),
    imports="import itertools",
    after="torch.einsum never runs these loops: it permutes and reshapes, "
    "and calls bmm (sumproduct_pair in aten/src/ATen/native/Linear.cpp).",
)


# 06.6: the cheapest order of a chain

CHAIN_STATEMENT = """\
**Exercise 06.6.** Write `chain_cost(sizes)`: the fewest multiplications of
numbers that a chain of matrices takes, over all ways to set the brackets.
Matrix i is `sizes[i]` by `sizes[i + 1]`, so there is one matrix fewer than
sizes. A product of n by k and k by m takes n * k * m. One matrix alone
takes none."""

CHAIN_STUB = '''\
def chain_cost(sizes: list[int]) -> int:
    """The fewest multiplications for a chain of matrices."""
    raise NotImplementedError("exercise 06.6")'''


def chain_cost(sizes):
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j] = min(
                cost[i, k] + cost[k + 1, j]
                + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j))
    return cost[0, count - 1]


def left_to_right(sizes):
    return sum(sizes[0] * sizes[i] * sizes[i + 1]
               for i in range(1, len(sizes) - 1))


def right_to_left(sizes):
    return sum(sizes[i] * sizes[i + 1] * sizes[-1]
               for i in range(len(sizes) - 2))


def better_end(sizes):
    return min(left_to_right(sizes), right_to_left(sizes))


def greedy(sizes):
    sizes, total = list(sizes), 0
    while len(sizes) > 2:
        best = min(range(1, len(sizes) - 1),
                   key=lambda i: sizes[i - 1] * sizes[i] * sizes[i + 1])
        total += sizes[best - 1] * sizes[best] * sizes[best + 1]
        del sizes[best]
    return total


def neighbours(sizes):
    return sum(a * b * c for a, b, c in zip(sizes, sizes[1:], sizes[2:]))


def last_only(sizes):
    return min((sizes[0] * sizes[k] * sizes[-1]
                for k in range(1, len(sizes) - 1)), default=0)


def dearest(sizes):
    if len(sizes) < 3:
        return 0
    return max(dearest(sizes[:k + 1]) + dearest(sizes[k:])
               + sizes[0] * sizes[k] * sizes[-1]
               for k in range(1, len(sizes) - 1))


def by_trying_all(sizes):
    if len(sizes) < 3:
        return 0
    return min(by_trying_all(sizes[:k + 1]) + by_trying_all(sizes[k:])
               + sizes[0] * sizes[k] * sizes[-1]
               for k in range(1, len(sizes) - 1))


def with_memory(sizes):
    known = {}

    def best(i, j):
        if j - i < 2:
            return 0
        if (i, j) not in known:
            known[i, j] = min(best(i, k) + best(k, j)
                              + sizes[i] * sizes[k] * sizes[j]
                              for k in range(i + 1, j))
        return known[i, j]

    return best(0, len(sizes) - 1)


def chain_inputs(st):
    return st.tuples(st.lists(st.integers(1, 9), min_size=2, max_size=7))


chain = Exercise(
    id="06.6",
    title="The cheapest brackets",
    name="chain_cost",
    statement=CHAIN_STATEMENT,
    stub=CHAIN_STUB,
    reference=chain_cost,
    inputs=chain_inputs,
    examples=(([2, 3],), ([2, 3, 4],), ([9, 1, 9, 1],), ([1, 9, 1, 9],),
              ([2, 1, 3, 4, 2],), ([3, 9, 4, 5, 2],), ([5, 4, 6, 2, 7],)),
    wrong=(
        Wrong(left_to_right, "This multiplies from left to right. What does "
              "it cost when the last matrix is a single column?"),
        Wrong(right_to_left, "This multiplies from right to left. What does "
              "it cost when the first matrix is a single row?"),
        Wrong(better_end, "This tries two orders, from either end. How many "
              "are there for four matrices?"),
        Wrong(greedy, "This always does the cheapest product first. May a "
              "dear product now make all later ones cheap?"),
        Wrong(neighbours, "This multiplies each matrix with its neighbour. "
              "How large is the result of the first product, which goes "
              "into the next?"),
        Wrong(last_only, "This counts the last product alone. What did its "
              "two operands cost?"),
        Wrong(dearest, "This is the dearest order. Which of min and max is "
              "asked for?"),
    ),
    right=(by_trying_all, with_memory),
    hints=(
        "The last product cuts the chain in two. Its cost is sizes[0] * "
        "sizes[k] * sizes[-1], plus what both parts cost.",
        "Try every cut k, and take the smallest total. A part of one matrix "
        "costs nothing.",
        "The same parts come up again and again. Keep what they cost, "
        "shortest parts first.",
    ),
    after="torch.linalg.multi_dot does this (matrix_chain_order in "
    "aten/src/ATen/native/LinearAlgebra.cpp).",
)

exercises = (product, lines, tiles, shapes, sentence, chain)
