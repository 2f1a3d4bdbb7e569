"""Exercise of chapter 6: a product of two strided matrices."""

from course.exercises import Exercise, Wrong

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


exercises = (Exercise(
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
),)
