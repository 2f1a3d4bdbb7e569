"""Exercises of chapter 8: gradients of operators, and of the graph."""

import math

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 08.1.** In the forward pass, a tensor of shape `shape` was
broadcast to the shape of `grad`. Write `unbroadcast(grad, shape)`: the
gradient of the tensor before it was broadcast, a tensor of shape `shape`.
An element that was read several times gets the sum of the gradients of all
its copies."""

STUB = '''\
def unbroadcast(grad, shape: tuple):
    """The gradient of a tensor of this shape that was broadcast."""
    raise NotImplementedError("exercise 08.1")'''


def unbroadcast(grad, shape):
    new = len(grad.shape) - len(shape)
    if new:
        grad = grad.sum(tuple(range(new)))
    for dim, size in enumerate(shape):
        if size == 1 and grad.shape[dim] != 1:
            grad = grad.sum(dim, keepdim=True)
    return grad


# Known wrong answers


def only_new(grad, shape):
    new = len(grad.shape) - len(shape)
    return grad.sum(tuple(range(new))) if new else grad


def only_stretched(grad, shape):
    new = len(grad.shape) - len(shape)
    for dim, size in enumerate(shape, new):
        if size == 1 and grad.shape[dim] != 1:
            grad = grad.sum(dim, keepdim=True)
    return grad


def without_keepdim(grad, shape):
    grad = only_new(grad, shape)
    dims = tuple(d for d, n in enumerate(shape)
                 if n == 1 and grad.shape[d] != 1)
    return grad.sum(dims) if dims else grad


def takes_the_mean(grad, shape):
    copies = math.prod(grad.shape) / max(1, math.prod(shape))
    return unbroadcast(grad, shape) / copies


def takes_the_first(grad, shape):
    new = len(grad.shape) - len(shape)
    for _ in range(new):
        grad = grad[0]
    return grad[tuple(slice(0, n) for n in shape)] if shape else grad


def sums_everything(grad, shape):
    if tuple(grad.shape) == tuple(shape):
        return grad
    return grad.sum()


def from_the_left(grad, shape):
    new = len(grad.shape) - len(shape)
    last = tuple(range(len(grad.shape) - new, len(grad.shape)))
    if last:
        grad = grad.sum(last)
    for dim, size in enumerate(shape):
        if size == 1 and grad.shape[dim] != 1:
            grad = grad.sum(dim, keepdim=True)
    return grad


def plain_numbers(grad, shape):
    return unbroadcast(grad, shape).tolist()


# Other right answers


def in_one_sum(grad, shape):
    new = len(grad.shape) - len(shape)
    dims = [*range(new)] + [
        d + new for d, n in enumerate(shape) if n != grad.shape[d + new]]
    return grad.sum(dims).reshape(shape) if dims else grad.reshape(shape)


def one_at_a_time(grad, shape):
    while len(grad.shape) > len(shape):
        grad = grad.sum(0)
    for dim in range(len(shape)):
        if grad.shape[dim] != shape[dim]:
            grad = grad.sum(dim, keepdim=True)
    return grad


def prepare(numbers, grad_shape, shape):
    import lamina

    return lamina.tensor(numbers).reshape(grad_shape), shape


def inputs(st):
    def numbers(shapes):
        grad, shape = shapes
        count = math.prod(grad)
        values = st.lists(st.integers(-4, 4).map(float), min_size=count,
                          max_size=count)
        return st.tuples(values, st.just(grad), st.just(shape))

    def shapes(grad):
        fits = st.tuples(*(st.sampled_from([n, 1]) for n in grad))
        cut = st.integers(0, len(grad))
        return st.tuples(
            st.just(grad), st.builds(lambda s, i: s[i:], fits, cut))

    size = st.integers(1, 3)
    grads = st.lists(size, max_size=3).map(tuple)
    return grads.flatmap(shapes).flatmap(numbers)


broadcast = Exercise(
    id="08.1",
    title="The gradient of a broadcast",
    name="unbroadcast",
    statement=STATEMENT,
    stub=STUB,
    reference=unbroadcast,
    inputs=inputs,
    prepare=prepare,
    call="unbroadcast(lamina.tensor({}).reshape({}), {})",
    examples=(
        ([1.0, 2.0], (2,), (1,)),
        ([1.0, 2.0], (1, 2), (1, 1)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (2,)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (1, 2)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (2, 1)),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), ()),
        ([1.0, 2.0, 3.0, 4.0], (2, 2), (2, 2)),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], (1, 2, 3), (2, 1)),
        ([3.0], (), ())),
    wrong=(
        Wrong(only_new, "This sums over the dimensions that were new, and "
              "leaves those that were stretched from 1. What is the shape of "
              "the gradient of a (2, 1) tensor?"),
        Wrong(only_stretched, "This sums over the dimensions that were "
              "stretched from 1, and leaves the new ones in front. How many "
              "dimensions does a tensor of shape (2,) have?"),
        Wrong(without_keepdim, "The sum over a stretched dimension drops it. "
              "The tensor had it, with size 1. Which argument of sum keeps "
              "it?"),
        Wrong(takes_the_mean, "This takes the mean over the copies. If x is "
              "added to three elements of y, by how much does the sum of y "
              "grow when x grows by 1?"),
        Wrong(takes_the_first, "This takes the gradient of one copy. The "
              "other copies depend on the same number: does their gradient "
              "not count?"),
        Wrong(sums_everything, "This sums over all dimensions. Which ones "
              "were broadcast, and which had their size already?"),
        Wrong(from_the_left, "This lines the shapes up at their first "
              "dimension. Broadcasting lines them up at the last: where do "
              "new dimensions appear?"),
        Wrong(plain_numbers, "The numbers are right, but they are no longer "
              "a tensor. What can the node before this one do with a list?"),
    ),
    right=(in_one_sum, one_at_a_time),
    hints=(
        "Broadcasting did two things: it put new dimensions in front, and it "
        "stretched dimensions of size 1. Undo each by a sum.",
        "There are len(grad.shape) - len(shape) new dimensions, the first "
        "ones. Sum them away. No new ones is a case of its own: "
        "sum(()) sums over all.",
        "Then the dimensions stand in the same places. Where shape has 1 and "
        "grad has more, sum over that dimension with keepdim=True.",
    ),
    after="PyTorch calls this sum_to_size (at::sum_to, in "
    "aten/src/ATen/ExpandUtils.h). Autograd calls it wherever an operand "
    "was broadcast.",
)


# 08.2: which nodes a gradient needs

NEEDED = """\
**Exercise 08.2.** `graph[node]` lists the nodes that a node hands gradients
to. Write `needed(graph, root, target)`: the set of the nodes that have to be
applied so that the gradient from `root` reaches `target`. The target itself
is not applied: its gradient only has to arrive."""

NEEDED_STUB = '''\
def needed(graph: dict, root: str, target: str) -> set:
    """The nodes on a way from root to target, without the target."""
    raise NotImplementedError("exercise 08.2")'''


def needed(graph, root, target):
    reached, stack = {root}, [root]
    while stack:
        for after in graph[stack.pop()]:
            if after not in reached:
                reached.add(after)
                stack.append(after)
    found, stack = set(), [target]
    while stack:
        node = stack.pop()
        for user in reached:
            if node in graph[user] and user not in found:
                found.add(user)
                stack.append(user)
    return found


def all_that_is_reached(graph, root, target):
    found, stack = {root}, [root]
    while stack:
        for after in graph[stack.pop()]:
            if after not in found:
                found.add(after)
                stack.append(after)
    return found


def all_but_the_target(graph, root, target):
    return all_that_is_reached(graph, root, target) - {target}


def with_the_target(graph, root, target):
    return needed(graph, root, target) | {target}


def only_the_last_step(graph, root, target):
    reached = all_that_is_reached(graph, root, target)
    return {node for node in reached if target in graph[node]}


def also_from_elsewhere(graph, root, target):
    found, stack = set(), [target]
    while stack:
        node = stack.pop()
        for user in graph:
            if node in graph[user] and user not in found:
                found.add(user)
                stack.append(user)
    return found


def one_way(graph, root, target):
    """The nodes on the first way that is found."""
    came, stack = {root: None}, [root]
    while stack:
        node = stack.pop()
        for after in graph[node]:
            if after not in came:
                came[after] = node
                stack.append(after)
    found, node = set(), came.get(target)
    while node is not None:
        found.add(node)
        node = came[node]
    return found


def by_reaching(graph, root, target):
    def leads(node):
        return any(after == target or leads(after) for after in graph[node])

    return {node for node in all_that_is_reached(graph, root, target)
            if leads(node)}


def by_rounds(graph, root, target):
    reached = all_that_is_reached(graph, root, target)
    found = set()
    while True:
        more = {n for n in reached - found
                if target in graph[n] or found & set(graph[n])}
        if not more:
            return found
        found |= more


NAMES = "rabcdef"


def graph_inputs(st):
    def edges(i):
        after = st.lists(st.sampled_from(NAMES[i + 1:]), max_size=3)
        return after.map(list) if i < len(NAMES) - 1 else st.just([])

    graphs = st.tuples(*(edges(i) if i < len(NAMES) - 1 else st.just([])
                         for i in range(len(NAMES))))
    return st.tuples(graphs.map(lambda rows: dict(zip(NAMES, rows))),
                     st.just("r"), st.sampled_from(NAMES[1:]))


needs = Exercise(
    id="08.2",
    title="What a gradient needs",
    name="needed",
    statement=NEEDED,
    stub=NEEDED_STUB,
    reference=needed,
    inputs=graph_inputs,
    examples=(
        ({"r": ["a"], "a": []}, "r", "a"),
        ({"r": ["a", "b"], "a": [], "b": []}, "r", "a"),
        ({"r": ["a"], "a": ["b"], "b": ["c"], "c": []}, "r", "b"),
        ({"r": ["a"], "a": ["b"], "b": ["c"], "c": []}, "r", "c"),
        ({"r": ["a", "b"], "a": ["c"], "b": ["c"], "c": []}, "r", "c"),
        ({"r": ["a", "b"], "a": ["c"], "b": ["d"], "c": [], "d": []},
         "r", "c"),
        ({"r": ["a"], "a": [], "z": ["a"]}, "r", "a"),
        ({"r": ["a"], "a": [], "b": []}, "r", "b")),
    wrong=(
        Wrong(all_that_is_reached, "This is everything behind the root, the "
              "target and other leaves too. Which of these nodes can bring a "
              "gradient to the target?"),
        Wrong(all_but_the_target, "These are all nodes behind the root. From "
              "some of them no way leads to the target: must they be "
              "applied?"),
        Wrong(with_the_target, "The target is in the answer. Its gradient "
              "has to arrive there; who would use what it hands on?"),
        Wrong(only_the_last_step, "These are the nodes right before the "
              "target. Where do their own gradients come from?"),
        Wrong(also_from_elsewhere, "There is a node in it that the root does "
              "not lead to. Which gradient could it be applied to?"),
        Wrong(one_way, "This follows one way to the target. If two ways lead "
              "there, is the gradient of one of them the whole gradient?"),
    ),
    right=(by_reaching, by_rounds),
    hints=(
        "A node is needed if two things hold: the root leads to it, and it "
        "leads to the target.",
        "Find all that the root leads to with a stack. Then walk backward "
        "from the target: who hands a gradient to it, and who to them?",
        "The second walk looks only at nodes that the first one has found, "
        "and the target is where it starts, not a part of the answer.",
    ),
    after="PyTorch's engine does this in compute_exec_info "
    "(torch/csrc/autograd/engine.cpp). It is why autograd.grad(loss, x) does "
    "not touch the gradients of your weights.",
)


# 08.3: the gradients of a matrix product

PRODUCT = """\
**Exercise 08.3.** `y = a.mm(b)` for two matrices, and `grad` is the
gradient of `y`. Write `mm_backward(grad, a, b)`: the gradients of `a` and
of `b`, as a tuple."""

PRODUCT_STUB = '''\
def mm_backward(grad, a, b) -> tuple:
    """The gradients of both factors of a matrix product."""
    raise NotImplementedError("exercise 08.3")'''


def mm_backward(grad, a, b):
    return grad.mm(b.t()), a.t().mm(grad)


def elementwise_product(grad, a, b):
    return grad * b, grad * a


def exchanged(grad, a, b):
    return a.t().mm(grad), grad.mm(b.t())


def grad_on_the_left(grad, a, b):
    return grad.mm(b.t()), grad.mm(a)


def transposed_answers(grad, a, b):
    return b.mm(grad.t()), grad.t().mm(a)


def without_transposes(grad, a, b):
    return grad.mm(b), a.mm(grad)


def without_grad(grad, a, b):
    return (grad * 0 + 1).mm(b.t()), a.t().mm(grad * 0 + 1)


def only_of_a(grad, a, b):
    return grad.mm(b.t())


def product_by_sums(grad, a, b):
    by_a = (grad.unsqueeze(1) * b.unsqueeze(0)).sum(2)
    by_b = (a.unsqueeze(2) * grad.unsqueeze(1)).sum(0)
    return by_a, by_b


def transposed_products(grad, a, b):
    return b.mm(grad.t()).t(), grad.t().mm(a).t()


def matrices(grad, a, b, n, k, m):
    import lamina

    def matrix(numbers, rows, columns):
        return lamina.tensor(numbers).reshape(rows, columns)

    return matrix(grad, n, m), matrix(a, n, k), matrix(b, k, m)


def matrix_inputs(st):
    def numbers(count):
        return st.lists(st.integers(-3, 3).map(float), min_size=count,
                        max_size=count)

    sizes = st.tuples(*[st.integers(1, 3)] * 3)
    return sizes.flatmap(lambda s: st.tuples(
        numbers(s[0] * s[2]), numbers(s[0] * s[1]), numbers(s[1] * s[2]),
        *map(st.just, s)))


product = Exercise(
    id="08.3",
    title="The gradients of a matrix product",
    name="mm_backward",
    statement=PRODUCT,
    stub=PRODUCT_STUB,
    reference=mm_backward,
    inputs=matrix_inputs,
    prepare=matrices,
    describe=lambda args: (
        "mm_backward(grad, a, b) with grad, a, b of shapes "
        f"({args[3]}, {args[5]}), ({args[3]}, {args[4]}), "
        f"({args[4]}, {args[5]})"),
    examples=(
        ([2.0], [3.0], [5.0], 1, 1, 1),
        ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [1.0, -1.0, 2.0, 3.0],
         2, 2, 2),
        ([1.0, 2.0], [3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
         1, 3, 2)),
    wrong=(
        Wrong(elementwise_product, "This multiplies element by element, as "
              "if y were a * b. Each element of y is a sum of products: over "
              "which index?"),
        Wrong(exchanged, "The two gradients have changed places. Which one "
              "has the shape of a?"),
        Wrong(grad_on_the_left, "The gradient of a is right. In that of b, "
              "which index of grad has to be summed away: that of rows, or "
              "that of columns?"),
        Wrong(transposed_answers, "Both answers are transposed. What is the "
              "shape of a, and what must that of its gradient be?"),
        Wrong(without_transposes, "Do the shapes fit together if a is no "
              "square? grad is (n, m), b is (k, m): what has to be done to b "
              "so that the product is (n, k)?"),
        Wrong(without_grad, "This is the gradient if every element of grad "
              "is 1. What if a later operator has doubled one of them?"),
        Wrong(only_of_a, "That is the gradient of a alone. The node has two "
              "inputs: what does it hand to b?"),
    ),
    right=(product_by_sums, transposed_products),
    hints=(
        "y[i, j] is the sum over k of a[i, k] * b[k, j]. With which factor "
        "does a[i, k] go into y[i, j]?",
        "So the gradient of a[i, k] is the sum over j of grad[i, j] * "
        "b[k, j]: a matrix product of grad and something of b.",
        "Look at the shapes. grad is (n, m), a is (n, k), b is (k, m). There "
        "is one way to make (n, k) of grad and b, and one to make (k, m) of "
        "a and grad.",
    ),
    after="In derivatives.yaml: self: mm_mat1_backward(grad, mat2, ...) and "
    "mat2: mm_mat2_backward(grad, self, ...). A linear layer's backward is "
    "these two products, twice the work of its forward.",
)


# 08.4: a derivative from the result

SIGMOID = """\
**Exercise 08.4.** `result` is `sigmoid(x)`, that is $1 / (1 + e^{-x})$, and
`x` was not saved. Write `sigmoid_backward(grad, result)`: the gradient of
`x`. For `result = s` the slope is $s (1 - s)$."""

SIGMOID_STUB = '''\
def sigmoid_backward(grad, result):
    """The gradient of x, from that of sigmoid(x) and from sigmoid(x)."""
    raise NotImplementedError("exercise 08.4")'''


def sigmoid_backward(grad, result):
    return grad * result * (1 - result)


def result_was_x(grad, result):
    s = 1 / (1 + (-result).exp())
    return grad * s * (1 - s)


def slope_alone(grad, result):
    return result * (1 - result)


def slope_of_tanh(grad, result):
    return grad * (1 - result * result)


def without_the_brackets(grad, result):
    return grad * result * 1 - result


def grad_added(grad, result):
    return grad + result * (1 - result)


def summed_up(grad, result):
    return (grad * result * (1 - result)).sum()


def slope_of_the_exponential(grad, result):
    return grad * result


def with_a_square(grad, result):
    return grad * (result - result ** 2)


def in_another_order(grad, result):
    return (result - 1) * -result * grad


def two_rows(grad, result):
    import lamina

    return lamina.tensor(grad), lamina.tensor(result)


def sigmoid_inputs(st):
    def numbers(n):
        return st.tuples(
            st.lists(st.integers(-3, 3).map(float), min_size=n, max_size=n),
            st.lists(st.sampled_from([0.5, 0.25, 0.75, 0.125, 1.0, 0.0]),
                     min_size=n, max_size=n))

    return st.integers(1, 4).flatmap(numbers)


sigmoid = Exercise(
    id="08.4",
    title="A derivative from the result",
    name="sigmoid_backward",
    statement=SIGMOID,
    stub=SIGMOID_STUB,
    reference=sigmoid_backward,
    inputs=sigmoid_inputs,
    prepare=two_rows,
    call="sigmoid_backward(lamina.tensor({}), lamina.tensor({}))",
    rtol=1e-6,
    atol=1e-6,
    examples=(([1.0], [0.5]), ([2.0, -1.0], [0.25, 0.75]), ([3.0], [1.0])),
    wrong=(
        Wrong(result_was_x, "This computes the sigmoid of the result. The "
              "result is the sigmoid already: what is s here?"),
        Wrong(slope_alone, "That is the slope of the sigmoid. Where is the "
              "gradient that came from behind?"),
        Wrong(slope_of_tanh, "This is the slope of tanh, 1 - s * s. Which "
              "one is that of the sigmoid?"),
        Wrong(without_the_brackets, "Python multiplies before it subtracts. "
              "What is subtracted from what here?"),
        Wrong(grad_added, "The gradient is added to the slope. Along a path, "
              "what is done with the factors?"),
        Wrong(summed_up, "This adds up all elements. Does an element of x "
              "have to do with the other results?"),
        Wrong(slope_of_the_exponential, "For exp the slope is the result "
              "itself. The sigmoid flattens out near 1: what is missing?"),
    ),
    right=(with_a_square, in_another_order),
    hints=(
        "The chain rule: the gradient of x is that of the result, times the "
        "slope of the result at x.",
        "The slope is s * (1 - s), and s is `result`: an elementwise "
        "product of three tensors.",
    ),
    after="derivatives.yaml says: self: sigmoid_backward(grad, result). The "
    "input need not be kept, so the memory can be that of the next layer.",
)


# 08.5: what is read several times

WINDOWS = """\
**Exercise 08.5.** In the forward pass, windows of `size` elements were cut
out of a row of `length` numbers, one every `step`: window `i` is
`x[i*step : i*step + size]`. `grad[i]` is the gradient of window `i`. Write
`windows_backward(grad, length, size, step)`: the gradient of the row, as a
list of `length` floats."""

WINDOWS_STUB = '''\
def windows_backward(grad: list, length: int, size: int, step: int) -> list:
    """The gradient of a row that was read window by window."""
    raise NotImplementedError("exercise 08.5")'''


def windows_backward(grad, length, size, step):
    found = [0.0] * length
    for i, window in enumerate(grad):
        for j, g in enumerate(window):
            found[i * step + j] += g
    return found


def windows_overwrite(grad, length, size, step):
    found = [0.0] * length
    for i, window in enumerate(grad):
        for j, g in enumerate(window):
            found[i * step + j] = g
    return found


def first_window_wins(grad, length, size, step):
    found = [None] * length
    for i, window in enumerate(grad):
        for j, g in enumerate(window):
            if found[i * step + j] is None:
                found[i * step + j] = g
    return [g or 0.0 for g in found]


def windows_averaged(grad, length, size, step):
    counts = windows_backward([[1.0] * size for _ in grad], length, size,
                              step)
    return [g / max(c, 1.0) for g, c in zip(
        windows_backward(grad, length, size, step), counts)]


def step_is_one(grad, length, size, step):
    found = [0.0] * length
    for i, window in enumerate(grad):
        for j, g in enumerate(window):
            found[i + j] += g
    return found


def laid_end_to_end(grad, length, size, step):
    flat = [g for window in grad for g in window]
    return (flat + [0.0] * length)[:length]


def rest_left_out(grad, length, size, step):
    found = windows_backward(grad, length, size, step)
    return found[:(len(grad) - 1) * step + size]


def element_by_element(grad, length, size, step):
    return [float(sum(window[k - i * step] for i, window in enumerate(grad)
                      if 0 <= k - i * step < size)) for k in range(length)]


def by_slices(grad, length, size, step):
    found = [0.0] * length
    for i, window in enumerate(grad):
        place = slice(i * step, i * step + size)
        found[place] = [a + b for a, b in zip(found[place], window)]
    return found


def window_inputs(st):
    def rows(sizes):
        size, step, count, rest = sizes
        window = st.lists(st.integers(-4, 4).map(float), min_size=size,
                          max_size=size)
        return st.tuples(
            st.lists(window, min_size=count, max_size=count),
            st.just((count - 1) * step + size + rest), st.just(size),
            st.just(step))

    return st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3),
                     st.integers(0, 2)).flatmap(rows)


windows = Exercise(
    id="08.5",
    title="Elements that were read several times",
    name="windows_backward",
    statement=WINDOWS,
    stub=WINDOWS_STUB,
    reference=windows_backward,
    inputs=window_inputs,
    examples=(
        ([[1.0, 2.0]], 2, 2, 1),
        ([[1.0, 2.0], [3.0, 4.0]], 3, 2, 1),
        ([[1.0], [2.0]], 3, 1, 2),
        ([[1.0, 2.0], [3.0, 4.0]], 5, 2, 3),
        ([[1.0, 2.0], [3.0, 4.0]], 4, 2, 2),
        ([[1.0, 2.0]], 4, 2, 1)),
    wrong=(
        Wrong(windows_overwrite, "Where two windows overlap, the later one "
              "replaces the gradient. Two paths lead from that element: what "
              "happens to their gradients?"),
        Wrong(first_window_wins, "Where two windows overlap, the first one "
              "is kept. Does the second window not depend on the element?"),
        Wrong(windows_averaged, "This takes the mean over the windows. If an "
              "element grows by 1, and two windows grow with it, does the "
              "loss hear of it once?"),
        Wrong(step_is_one, "Every window is put one element after the last. "
              "Where does window i begin?"),
        Wrong(laid_end_to_end, "The windows are laid one behind the other. "
              "Is that where their elements had been read?"),
        Wrong(rest_left_out, "The elements behind the last window are "
              "missing. What is the gradient of an element that nobody "
              "read, and how long is the row?"),
    ),
    right=(element_by_element, by_slices),
    hints=(
        "Begin with zeros, as many as the row has elements. Each element of "
        "each window has one place in it.",
        "Element j of window i was read at i * step + j.",
        "Several windows may have read a place: add, do not assign.",
    ),
    after="This is the backward of Tensor.unfold (unfold_backward in "
    "aten/src/ATen/native/UnfoldBackward.cpp), and what a convolution's "
    "gradient adds up.",
)


# 08.6: whose value can be trusted

STALE = """\
**Exercise 08.6.** `events` are what a program did to tensors, in order:
`("save", name)` when a node saved one, `("write", name)` for a write in
place. `storage[name]` tells which storage a tensor reads. Write
`stale(events, storage)`: the list of the names for which a save went stale,
one entry for each such save, in the order of the saves. A save is stale if
its storage was written to later on."""

STALE_STUB = '''\
def stale(events: list, storage: dict) -> list:
    """The names of saved tensors whose storage was written to since."""
    raise NotImplementedError("exercise 08.6")'''


def stale(events, storage):
    version = dict.fromkeys(storage.values(), 0)
    saved = []
    for what, name in events:
        if what == "write":
            version[storage[name]] += 1
        else:
            saved.append((name, version[storage[name]]))
    return [name for name, v in saved if v != version[storage[name]]]


def version_of_the_tensor(events, storage):
    return stale(events, {name: name for name in storage})


def written_at_any_time(events, storage):
    written = {storage[name] for what, name in events if what == "write"}
    return [name for what, name in events
            if what == "save" and storage[name] in written]


def each_name_once(events, storage):
    return list(dict.fromkeys(stale(events, storage)))


def last_save_counts(events, storage):
    saved, version = {}, dict.fromkeys(storage.values(), 0)
    for what, name in events:
        if what == "write":
            version[storage[name]] += 1
        else:
            saved[name] = version[storage[name]]
    return [name for what, name in events
            if what == "save" and saved[name] != version[storage[name]]]


def one_version_for_all(events, storage):
    return stale(events, dict.fromkeys(storage, 0))


def those_to_be_trusted(events, storage):
    version = dict.fromkeys(storage.values(), 0)
    saved = []
    for what, name in events:
        if what == "write":
            version[storage[name]] += 1
        else:
            saved.append((name, version[storage[name]]))
    return [name for name, v in saved if v == version[storage[name]]]


def in_order_of_writes(events, storage):
    waiting, found = [], []
    for what, name in events:
        if what == "save":
            waiting.append(name)
        else:
            hit = [n for n in waiting if storage[n] == storage[name]]
            found += hit
            waiting = [n for n in waiting if storage[n] != storage[name]]
    return found


def look_ahead(events, storage):
    return [name for i, (what, name) in enumerate(events)
            if what == "save" and any(
                w == "write" and storage[n] == storage[name]
                for w, n in events[i + 1:])]


def from_the_end(events, storage):
    written, found = set(), []
    for what, name in reversed(events):
        if what == "write":
            written.add(storage[name])
        elif storage[name] in written:
            found.append(name)
    return found[::-1]


def event_inputs(st):
    storage = st.tuples(*[st.integers(0, 1)] * 3).map(
        lambda s: dict(zip("xyv", s)))
    event = st.tuples(st.sampled_from(["save", "write"]),
                      st.sampled_from("xyv"))
    return st.tuples(st.lists(event, max_size=6), storage)


trust = Exercise(
    id="08.6",
    title="Saved, and written to since",
    name="stale",
    statement=STALE,
    stub=STALE_STUB,
    reference=stale,
    inputs=event_inputs,
    examples=(
        ([("save", "x"), ("write", "x")], {"x": 0, "y": 1, "v": 0}),
        ([("write", "x"), ("save", "x")], {"x": 0, "y": 1, "v": 0}),
        ([("save", "x"), ("write", "v")], {"x": 0, "y": 1, "v": 0}),
        ([("save", "x"), ("write", "y")], {"x": 0, "y": 1, "v": 0}),
        ([("save", "x"), ("save", "x"), ("write", "x")],
         {"x": 0, "y": 1, "v": 0}),
        ([("save", "x"), ("write", "x"), ("save", "x")],
         {"x": 0, "y": 1, "v": 0}),
        ([("save", "x"), ("save", "y"), ("write", "y"), ("write", "x")],
         {"x": 0, "y": 1, "v": 0})),
    wrong=(
        Wrong(version_of_the_tensor, "Each tensor has a counter of its own "
              "here. A write through a view changes the same memory: who "
              "has to count it?"),
        Wrong(written_at_any_time, "This reports a save that came after the "
              "write. What did it save: the value before, or the value that "
              "is still there?"),
        Wrong(each_name_once, "Two nodes had saved the same tensor, and the "
              "answer names it once. How many backward formulas would be "
              "wrong?"),
        Wrong(last_save_counts, "The second save of a tensor has replaced "
              "what the first one noted. Does the first node see another "
              "version because of that?"),
        Wrong(one_version_for_all, "There is one counter for everything. "
              "Does a write to one storage spoil what was saved of "
              "another?"),
        Wrong(those_to_be_trusted, "These are the saves that can be "
              "trusted. Which ones are asked for?"),
        Wrong(in_order_of_writes, "The right saves, but in the order of the "
              "writes. In which order are they asked for?"),
    ),
    right=(look_ahead, from_the_end),
    hints=(
        "Keep a counter for each storage, not for each tensor. A write "
        "counts up that of the tensor's storage.",
        "At a save, note the name and what the counter is now.",
        "At the end, a save is stale if its note differs from the counter.",
    ),
    after="c10::VariableVersion in c10/core/TensorImpl.h is this counter, "
    "shared by all views, and SavedVariable::unpack compares. It cannot know "
    "whether the write touched the elements that were saved.",
)


# 08.7: the gradient of a write

WRITE = """\
**Exercise 08.7.** A row `y` was written to in place: `y[start:stop] =
factor * y[start:stop] + v`, with `v` a row of `stop - start` numbers. `grad`
is the gradient of `y` *after* the write. Write `write_backward(grad, start,
stop, factor)`: a tuple of the gradient of `y` before the write and the
gradient of `v`, two lists."""

WRITE_STUB = '''\
def write_backward(grad: list, start: int, stop: int, factor: float):
    """The gradients of the old row and of what was added to a part."""
    raise NotImplementedError("exercise 08.7")'''


def write_backward(grad, start, stop, factor):
    part = grad[start:stop]
    old = grad[:start] + [g * factor for g in part] + grad[stop:]
    return old, part


def rest_is_lost(grad, start, stop, factor):
    old, part = write_backward(grad, start, stop, factor)
    return [0.0] * start + old[start:stop] + [0.0] * len(grad[stop:]), part


def passes_untouched(grad, start, stop, factor):
    return list(grad), grad[start:stop]


def old_is_overwritten(grad, start, stop, factor):
    zeros = [0.0] * len(grad[start:stop])
    return grad[:start] + zeros + grad[stop:], grad[start:stop]


def factor_everywhere(grad, start, stop, factor):
    return [g * factor for g in grad], grad[start:stop]


def factor_for_v_too(grad, start, stop, factor):
    old, _ = write_backward(grad, start, stop, factor)
    return old, old[start:stop]


def v_gets_everything(grad, start, stop, factor):
    old, _ = write_backward(grad, start, stop, factor)
    return old, list(grad)


def one_place_further(grad, start, stop, factor):
    return write_backward(grad, start, min(stop + 1, len(grad)), factor)


def both_exchanged(grad, start, stop, factor):
    return write_backward(grad, start, stop, factor)[::-1]


def in_a_loop(grad, start, stop, factor):
    old, v = [], []
    for i, g in enumerate(grad):
        inside = start <= i < stop
        old.append(g * factor if inside else g)
        if inside:
            v.append(g)
    return old, v


def on_a_copy(grad, start, stop, factor):
    old = list(grad)
    for i in range(start, stop):
        old[i] = factor * old[i]
    return old, list(grad[start:stop])


def write_inputs(st):
    numbers = st.lists(st.integers(1, 9).map(float), min_size=1, max_size=5)
    return numbers.flatmap(lambda row: st.tuples(
        st.just(row), st.integers(0, len(row)), st.integers(0, len(row)),
        st.sampled_from([2.0, -1.0, 0.5, 0.0, 3.0]))).map(
            lambda a: (a[0], min(a[1:3]), max(a[1:3]), a[3]))


write = Exercise(
    id="08.7",
    title="The gradient of a write",
    name="write_backward",
    statement=WRITE,
    stub=WRITE_STUB,
    reference=write_backward,
    inputs=write_inputs,
    examples=(
        ([5.0], 0, 1, 2.0),
        ([1.0, 2.0, 3.0], 1, 2, 3.0),
        ([1.0, 2.0, 3.0], 0, 2, 0.0),
        ([1.0, 2.0, 3.0, 4.0], 1, 3, -1.0)),
    wrong=(
        Wrong(rest_is_lost, "What was not written to gets no gradient here. "
              "Is it the same number after the write as before?"),
        Wrong(passes_untouched, "The old row gets the gradient as it came. "
              "By how much does y[start] change after the write if it was "
              "larger by 1 before?"),
        Wrong(old_is_overwritten, "The old values of the part get 0, as if "
              "they had been replaced. Do they go into the new ones?"),
        Wrong(factor_everywhere, "The whole gradient is multiplied. Which "
              "elements went through the multiplication?"),
        Wrong(factor_for_v_too, "v was added, after the multiplication. "
              "With which factor does it go into y?"),
        Wrong(v_gets_everything, "v has stop - start elements. Which of the "
              "gradients concern it?"),
        Wrong(one_place_further, "The part reaches one element too far. "
              "Does y[start:stop] hold y[stop]?"),
        Wrong(both_exchanged, "Both lists are right, in the wrong order. "
              "Which one is asked for first?"),
    ),
    right=(in_a_loop, on_a_copy),
    hints=(
        "Three parts of the row have three fates. Before start and from stop "
        "on nothing happened to the numbers.",
        "In the part, new = factor * old + v. What are the slopes of new in "
        "old, and in v?",
        "The gradient of the old row has the length of grad, that of v has "
        "stop - start elements.",
    ),
    after="CopySlices (torch/csrc/autograd/functions/tensor.cpp) is this "
    "node: it runs the backward of the operator that wrote on the part, and "
    "passes the rest.",
)


# 08.8: forward mode out of reverse mode

PUSH = """\
**Exercise 08.8.** A function has `count` outputs. All you are given is its
reverse mode: `vjp(g)` takes a list of `count` gradients and returns the
gradients of the inputs, $g^\\top J$. Write `jvp_from_vjp(vjp, count, v)`:
the list of the `count` slopes of the outputs along the direction `v` of the
inputs, $J v$."""

PUSH_STUB = '''\
def jvp_from_vjp(vjp, count: int, v: list) -> list:
    """The slopes of all outputs along v, by going backward only."""
    raise NotImplementedError("exercise 08.8")'''


def jvp_from_vjp(vjp, count, v):
    found = []
    for i in range(count):
        row = vjp([1.0 if j == i else 0.0 for j in range(count)])
        found.append(sum((a * b for a, b in zip(row, v)), 0.0))
    return found


def vjp_of_v(vjp, count, v):
    return vjp((list(v) + [0.0] * count)[:count])


def all_outputs_at_once(vjp, count, v):
    row = vjp([1.0] * count)
    return [sum((a * b for a, b in zip(row, v)), 0.0)] * count


def without_the_direction(vjp, count, v):
    return [sum(vjp([1.0 if j == i else 0.0 for j in range(count)]), 0.0)
            for i in range(count)]


def only_the_first_output(vjp, count, v):
    return jvp_from_vjp(vjp, count, v)[:1] + [0.0] * (count - 1)


def summed_to_one_number(vjp, count, v):
    return sum(jvp_from_vjp(vjp, count, v), 0.0)


def rows_alone(vjp, count, v):
    return [vjp([1.0 if j == i else 0.0 for j in range(count)])
            for i in range(count)]


def products_not_summed(vjp, count, v):
    return [[a * b for a, b in zip(row, v)]
            for row in rows_alone(vjp, count, v)]


def by_a_difference(vjp, count, v):
    """vjp is linear in g: its change for a step in g_i is row i."""
    def at(g):
        return sum((a * b for a, b in zip(vjp(g), v)), 0.0)

    zero = [0.0] * count
    return [at(zero[:i] + [1.0] + zero[i + 1:]) - at(zero)
            for i in range(count)]


def by_the_matrix(vjp, count, v):
    rows = rows_alone(vjp, count, v)
    return [float(sum(row[k] * v[k] for k in range(len(v)))) for row in rows]


class Vjp:
    """A reverse mode with a repr: the Jacobian, row by row."""

    def __init__(self, rows):
        self.rows = rows

    def __repr__(self):
        return f"vjp of the Jacobian {self.rows}"

    def __call__(self, g):
        if len(g) != len(self.rows):
            raise ValueError(f"vjp takes {len(self.rows)} gradients, one for "
                             f"each output; got {len(g)}")
        return [sum(a * row[k] for a, row in zip(g, self.rows))
                for k in range(len(self.rows[0]))]


def as_vjp(rows, v):
    return Vjp(rows), len(rows), v


def push_inputs(st):
    def numbers(n):
        return st.lists(st.integers(-4, 4).map(float), min_size=n,
                        max_size=n)

    sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))
    return sizes.flatmap(lambda s: st.tuples(
        st.lists(numbers(s[1]), min_size=s[0], max_size=s[0]),
        numbers(s[1])))


push = Exercise(
    id="08.8",
    title="Forward mode out of reverse mode",
    name="jvp_from_vjp",
    statement=PUSH,
    stub=PUSH_STUB,
    reference=jvp_from_vjp,
    inputs=push_inputs,
    prepare=as_vjp,
    describe=lambda args: (f"jvp_from_vjp(vjp, {len(args[0])}, {args[1]}), "
                           f"with the Jacobian {args[0]} in vjp"),
    rtol=1e-9,
    atol=1e-9,
    examples=(
        ([[2.0]], [3.0]),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0]),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, -1.0]),
        ([[1.0, 2.0, 3.0], [0.0, 1.0, 4.0]], [2.0, 1.0, 1.0]),
        ([[1.0], [2.0], [3.0]], [2.0])),
    wrong=(
        Wrong(vjp_of_v, "vjp takes gradients of the outputs, and v is a "
              "direction of the inputs. Which side of J does it multiply?"),
        Wrong(all_outputs_at_once, "A gradient of ones mixes all outputs "
              "into one number. Which gradient asks for output i alone?"),
        Wrong(without_the_direction, "v is not used: this is the slope along "
              "(1, 1, ...). What does row i of J have to be multiplied "
              "with?"),
        Wrong(only_the_first_output, "Only the first output has its slope. "
              "How many walks backward are needed, one for each input or "
              "one for each output?"),
        Wrong(summed_to_one_number, "This is one number. Each output has a "
              "slope of its own: how long is the answer?"),
        Wrong(rows_alone, "These are the rows of J. How does a row become "
              "one slope along v?"),
        Wrong(products_not_summed, "The products of row and direction are "
              "there. A slope along v moves all inputs at once: what is "
              "done with their shares?"),
    ),
    right=(by_a_difference, by_the_matrix),
    hints=(
        "With a gradient of 1 for output i and 0 for all others, vjp gives "
        "row i of the Jacobian.",
        "The slope of output i along v is the dot product of row i and v.",
        "One walk backward for each output. vjp is linear in its argument: "
        "the chapter's trick asks for its derivative, and needs one walk "
        "more and not `count`.",
    ),
    after="torch.autograd.functional.jvp goes backward twice, for the reason "
    "in the last hint. torch.func.jvp has formulas of its own for forward "
    "mode and goes forward once.",
)


exercises = (broadcast, needs, product, sigmoid, windows, trust, write, push)
