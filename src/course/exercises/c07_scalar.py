"""Exercises of chapter 7: slopes, orders, and what gradients add up to."""

import math

from course.exercises import Exercise, Wrong

# 07.1: a central difference

CENTRAL = """\
**Exercise 07.1.** Write `central_difference(f, x, step)`: the slope of the
function `f` at `x`, from its values at one `step` to the right and one
`step` to the left."""

CENTRAL_STUB = '''\
def central_difference(f, x: float, step: float) -> float:
    """The slope of f at x, from both sides."""
    raise NotImplementedError("exercise 07.1")'''


def central_difference(f, x, step):
    return (f(x + step) - f(x - step)) / (2 * step)


def forward_difference(f, x, step):
    return (f(x + step) - f(x)) / step


def backward_difference(f, x, step):
    return (f(x) - f(x - step)) / step


def one_step_below(f, x, step):
    return (f(x + step) - f(x - step)) / step


def left_minus_right(f, x, step):
    return (f(x - step) - f(x + step)) / (2 * step)


def times_step(f, x, step):
    return (f(x + step) - f(x - step)) / 2 * step


def no_brackets(f, x, step):
    return f(x + step) - f(x - step) / (2 * step)


def relative_step(f, x, step):
    return (f(x * (1 + step)) - f(x * (1 - step))) / (2 * step)


def mean_of_two_slopes(f, x, step):
    right = (f(x + step) - f(x)) / step
    left = (f(x) - f(x - step)) / step
    return (right + left) / 2


def by_the_distance(f, x, step):
    right, left = x + step, x - step
    return (f(right) - f(left)) / (right - left)


class Polynomial:
    """A function with a repr: the coefficients, constant first."""

    def __init__(self, coefficients):
        self.coefficients = coefficients

    def __repr__(self):
        return f"polynomial{tuple(self.coefficients)}"

    def __call__(self, x):
        total = 0.0
        for c in reversed(self.coefficients):
            total = total * x + c
        return total


def as_function(coefficients, x, step):
    return Polynomial(coefficients), x, step


def describe_function(args):
    coefficients, x, step = args
    terms = [str(c) if k == 0 else f"{c}*x" if k == 1 else f"{c}*x**{k}"
             for k, c in enumerate(coefficients)]
    return (f"central_difference(f, {x}, {step}), f(x) = "
            + " + ".join(terms))


def function_inputs(st):
    return st.tuples(st.lists(st.integers(-5, 5), min_size=1, max_size=4),
                     st.sampled_from([0.0, 1.0, 2.0, -3.0, 0.5]),
                     st.sampled_from([1.0, 0.5, 0.25, 2.0]))


central = Exercise(
    id="07.1",
    title="A slope from both sides",
    name="central_difference",
    statement=CENTRAL,
    stub=CENTRAL_STUB,
    reference=central_difference,
    inputs=function_inputs,
    prepare=as_function,
    describe=describe_function,
    rtol=1e-9,
    atol=1e-9,
    examples=(([0, 1], 1.0, 0.5), ([0, 0, 1], 2.0, 0.5),
              ([1, 0, 0, 2], 1.0, 0.25), ([3], 0.0, 2.0)),
    wrong=(
        Wrong(forward_difference, "This is the forward difference: it looks "
              "to the right alone. Where is the value on the left?"),
        Wrong(backward_difference, "This looks to the left alone. Which two "
              "points lie at the same distance from x, on both sides?"),
        Wrong(one_step_below, "The answer is twice too large. How far apart "
              "are the two points?"),
        Wrong(left_minus_right, "The sign is turned round: a function that "
              "rises gets a negative slope. Which value comes first in a "
              "rise, the one on the right or the one on the left?"),
        Wrong(times_step, "a / 2 * step divides by 2, and then multiplies by "
              "step. What do brackets around (2 * step) change?"),
        Wrong(no_brackets, "Only the second value is divided: / binds more "
              "tightly than -. Where do brackets belong?"),
        Wrong(relative_step, "This moves x by a share of itself. What "
              "happens at x = 0, and by how much does `step` say to move?"),
    ),
    right=(mean_of_two_slopes, by_the_distance),
    hints=(
        "A slope is a rise divided by a run. The rise is the difference of "
        "the two values.",
        "From x - step to x + step the run is 2 * step.",
    ),
    after="torch.autograd.gradcheck compares every gradient with differences "
    "of this kind, in float64, with a step of 1e-6.",
)


# 07.2: forward mode through a loop

HORNER = """\
**Exercise 07.2.** A polynomial $c_0 + c_1 x + c_2 x^2 + \\dots$ can be
evaluated in one loop: begin with 0 and, for each coefficient from the last
to the first, multiply by $x$ and add the coefficient. Write
`value_and_slope(coefficients, x)`: the pair of the polynomial's value at
`x` and its derivative there, both from that one loop, by carrying the
slope along with the value. `coefficients` holds $c_0, c_1, \\dots$; it may
be empty."""

HORNER_STUB = '''\
def value_and_slope(coefficients: list, x: float) -> tuple:
    """The polynomial's value and derivative at x, in one pass."""
    raise NotImplementedError("exercise 07.2")'''


def value_and_slope(coefficients, x):
    value = slope = 0.0
    for c in reversed(coefficients):
        value, slope = value * x + c, slope * x + value
    return value, slope


def value_first(coefficients, x):
    value = slope = 0.0
    for c in reversed(coefficients):
        value = value * x + c
        slope = slope * x + value
    return value, slope


def first_to_last(coefficients, x):
    value = slope = 0.0
    for c in coefficients:
        value, slope = value * x + c, slope * x + value
    return value, slope


def slope_not_multiplied(coefficients, x):
    value = slope = 0.0
    for c in reversed(coefficients):
        value, slope = value * x + c, slope + value
    return value, slope


def only_the_first_term(coefficients, x):
    value = slope = 0.0
    for c in reversed(coefficients):
        value, slope = value * x + c, slope * x
    return value, slope


def slope_begins_at_one(coefficients, x):
    value, slope = 0.0, 1.0
    for c in reversed(coefficients):
        value, slope = value * x + c, slope * x + value
    return value, slope


def slope_takes_the_constant(coefficients, x):
    value = slope = 0.0
    for c in reversed(coefficients):
        value, slope = value * x + c, slope * x + value + c
    return value, slope


def slope_before_value(coefficients, x):
    return value_and_slope(coefficients, x)[::-1]


def by_powers(coefficients, x):
    value = sum(c * x ** k for k, c in enumerate(coefficients))
    slope = sum(k * c * x ** (k - 1)
                for k, c in enumerate(coefficients) if k)
    return float(value), float(slope)


def by_a_dual_number(coefficients, x):
    pair = (0.0, 0.0)
    for c in coefficients[::-1]:
        pair = (pair[0] * x + c, pair[1] * x + pair[0] * 1.0)
    return pair


def polynomial_inputs(st):
    return st.tuples(st.lists(st.integers(-4, 4), max_size=5),
                     st.sampled_from([0.0, 1.0, 2.0, -1.0, 3.0, 0.5]))


horner = Exercise(
    id="07.2",
    title="Carry the slope along",
    name="value_and_slope",
    statement=HORNER,
    stub=HORNER_STUB,
    reference=value_and_slope,
    inputs=polynomial_inputs,
    rtol=1e-9,
    atol=1e-9,
    examples=(([], 2.0), ([3], 2.0), ([1, 2], 3.0), ([0, 0, 1], 3.0),
              ([1, 2, 3, 4], 2.0)),
    wrong=(
        Wrong(value_first, "The value is renewed before the slope uses it. "
              "In (value * x)' = value' * x + value, which value is meant, "
              "the one before the step or the one after it?"),
        Wrong(first_to_last, "The coefficients come in the wrong order: this "
              "is the polynomial read backwards. Which coefficient is "
              "multiplied by x the most often?"),
        Wrong(slope_not_multiplied, "The derivative of value * x has two "
              "parts. One is value, because x moves. What is the other, "
              "because value moves?"),
        Wrong(only_the_first_term, "The derivative of value * x has two "
              "parts. One is slope * x, because value moves. What is the "
              "other, because x moves?"),
        Wrong(slope_begins_at_one, "The loop begins with the constant 0. "
              "What is the derivative of a constant?"),
        Wrong(slope_takes_the_constant, "Adding c moves the value. Does it "
              "change the slope?"),
        Wrong(slope_before_value, "Both numbers are right, in the wrong "
              "places. Which one does the statement name first?"),
    ),
    right=(by_powers, by_a_dual_number),
    hints=(
        "One step of the loop is value = value * x + c. What is its "
        "derivative in x, by the product rule?",
        "The new slope is slope * x + value, with the old value. Python can "
        "assign both at once: value, slope = ..., ...",
    ),
    after="This is forward mode by hand. torch.func.jvp does it for any "
    "program, with a dual tensor in the place of the two variables.",
)


# 07.3: an order for the graph

ORDER = """\
**Exercise 07.3.** `parents` maps each node of a graph to the tuple of nodes
that it was made from; a leaf has an empty tuple. Write
`topological_order(root, parents)`: the list of `root` and of all that it
was made from, each node once, and each after all its parents, so that
`root` comes last. Nodes that `root` does not depend on do not appear. A
chain of 5000 nodes is no error: do not recurse."""

ORDER_STUB = '''\
def topological_order(root, parents: dict) -> list:
    """The nodes that root depends on, parents before children."""
    raise NotImplementedError("exercise 07.3")'''


def topological_order(root, parents):
    order, seen = [], set()
    stack = [(root, False)]
    while stack:
        node, parents_done = stack.pop()
        if parents_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(p, False) for p in parents[node]]
    return order


# Known wrong answers


def recursive(root, parents):
    order, seen = [], set()

    def visit(node):
        if node not in seen:
            seen.add(node)
            for parent in parents[node]:
                visit(parent)
            order.append(node)

    visit(root)
    return order


def breadth_first(root, parents):
    order, seen, queue = [], {root}, [root]
    for node in queue:
        order.append(node)
        for parent in parents[node]:
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)
    return order[::-1]


def reversed_preorder(root, parents):
    order, seen, stack = [], set(), [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            stack += parents[node]
    return order[::-1]


def root_first(root, parents):
    return topological_order(root, parents)[::-1]


def not_seen(root, parents):
    order, stack = [], [(root, False)]
    while stack and len(order) < 10_000:
        node, parents_done = stack.pop()
        if parents_done:
            order.append(node)
        else:
            stack.append((node, True))
            stack += [(p, False) for p in parents[node]]
    return order


def whole_graph(root, parents):
    everything = {**parents, "all": tuple(parents)}
    return topological_order("all", everything)[:-1]


def without_root(root, parents):
    return topological_order(root, parents)[:-1]


# Other right answers


def by_counting(root, parents):
    """Kahn's algorithm, from the root: a node is ready when all are done."""
    waiting, stack, seen = {root: 0}, [root], {root}
    while stack:
        for parent in parents[stack.pop()]:
            waiting[parent] = waiting.get(parent, 0) + 1
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    order, ready = [], [root]
    while ready:
        node = ready.pop()
        order.append(node)
        for parent in parents[node]:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    return order[::-1]


def by_iterators(root, parents):
    order, seen = [], {root}
    stack = [(root, iter(parents[root]))]
    while stack:
        node, left = stack[-1]
        for parent in left:
            if parent not in seen:
                seen.add(parent)
                stack.append((parent, iter(parents[parent])))
                break
        else:
            order.append(node)
            stack.pop()
    return order


def judge_order(args, answer, expected):
    root, parents = args
    try:
        place = {node: i for i, node in enumerate(answer)}
    except TypeError:
        return "strange: the list holds something that is no node"
    if len(place) < len(answer):
        node = next(n for i, n in enumerate(answer) if place[n] != i)
        return f"twice: node {node!r} stands in the list more than once"
    due = set(expected)
    for node in answer:
        if node not in due:
            return (f"strange: {node!r} is in the list, but "
                    f"{root!r} does not depend on it")
    for node in expected:
        if node not in place:
            return f"missing: node {node!r} is not in the list"
    for node in answer:
        for parent in parents[node]:
            if place[parent] > place[node]:
                return f"order: {node!r} comes before its parent {parent!r}"


def chain(length):
    return length - 1, {i: (i - 1,) if i else () for i in range(length)}


def ladder(length):
    """Every node uses the one before twice: 2**length paths."""
    return length - 1, {
        i: (i - 1, i - 1) if i else () for i in range(length)}


def describe_order(args):
    """A long graph in few words."""
    root, parents = args
    if len(parents) > 20:
        times = "twice" if len(parents[root]) == 2 else "once"
        return (f"topological_order({root}, parents), a chain of "
                f"{len(parents)} nodes: each uses the one before {times}")


def order_inputs(st):
    def graph(size):
        made = st.tuples(*(
            st.lists(st.integers(0, max(i - 1, 0)),
                     max_size=min(i, 3)).map(tuple)
            for i in range(size)))
        return made.map(lambda p: dict(enumerate(p)))

    graphs = st.integers(1, 6).flatmap(graph)
    return graphs.flatmap(lambda g: st.tuples(
        st.sampled_from(sorted(g, reverse=True)), st.just(g)))


order = Exercise(
    id="07.3",
    title="An order for the graph",
    name="topological_order",
    statement=ORDER,
    stub=ORDER_STUB,
    reference=topological_order,
    inputs=order_inputs,
    judge=judge_order,
    describe=describe_order,
    examples=(
        (0, {0: ()}), (1, {0: (), 1: (0, 0)}), (1, {0: (), 1: (), 2: (0,)}),
        (3, {0: (), 1: (0,), 2: (0,), 3: (1, 2)}),
        (3, {0: (), 1: (0,), 2: (1,), 3: (2, 0)}),
        (3, {0: (), 1: (0,), 2: (1,), 3: (0, 2)}),
        (3, {0: (), 1: (0,), 2: (1,), 3: (1, 2)}),
        (3, {0: (), 1: (0,), 2: (1,), 3: (2, 1)}),
        ladder(40), chain(5000)),
    wrong=(
        Wrong(recursive, "This is right until the graph is deep: every node "
              "of a chain is one call inside another, and Python allows "
              "about a thousand. Which data structure holds the calls that "
              "wait, and could hold the nodes itself?"),
        Wrong(breadth_first, "This sorts by the shortest way from the root. "
              "A node that is reached by a short and by a long way is "
              "emitted too early. Which of its ways counts?"),
        Wrong(reversed_preorder, "This notes a node when it is first met. A "
              "second way to it can lead through nodes that must come after "
              "it. When are all the parents of a node done?"),
        Wrong(root_first, "This is the order in which backward goes: the "
              "root first. The question asks for the forward order. Which of "
              "two nodes is computed first, a parent or its child?"),
        Wrong(not_seen, "This visits a node once for every way that leads to "
              "it. In a chain where each node uses the one before twice, how "
              "many ways are there after 40 steps?"),
        Wrong(whole_graph, "This takes in every node of the table. Should "
              "backward from the loss visit a node that the loss was not "
              "made from?"),
        Wrong(without_root, "The root is missing. It is a node of the graph "
              "too: at which one does backward begin?"),
    ),
    right=(by_counting, by_iterators),
    hints=(
        "A depth-first walk emits a node after all of its parents. Written "
        "with recursion it is four lines: what does each call wait for?",
        "Keep a list as the stack, and put each node on it twice: once to "
        "go to its parents, and once, underneath them, to emit it.",
        "The stack holds pairs (node, parents_done). Pop one: if its parents "
        "are done, emit it. Else, if it is new, push (node, True), then "
        "(parent, False) for each parent.",
    ),
    after="PyTorch does not sort before it starts. Its engine counts how many "
    "nodes wait for each one, and takes what is ready (Kahn's algorithm, in "
    "torch/csrc/autograd/engine.cpp).",
)


# 07.4: counting uses

USES = """\
**Exercise 07.4.** Kahn's algorithm begins by counting. `parents` maps each
node to the tuple of nodes that it was made from. Write
`count_uses(root, parents)`: a dictionary that says, for `root` and every
node that it depends on, how often the node is used as an operand by these
nodes. A node that uses another one twice, as in `a + a`, counts twice.
`root` itself is used 0 times."""

USES_STUB = '''\
def count_uses(root, parents: dict) -> dict:
    """How often each node behind root is used, root included."""
    raise NotImplementedError("exercise 07.4")'''


def count_uses(root, parents):
    uses, found = {root: 0}, [root]
    for node in found:
        for parent in parents[node]:
            if parent not in uses:
                uses[parent] = 0
                found.append(parent)
            uses[parent] += 1
    return uses


def each_user_once(root, parents):
    uses, found = {root: 0}, [root]
    for node in found:
        for parent in set(parents[node]):
            if parent not in uses:
                uses[parent] = 0
                found.append(parent)
            uses[parent] += 1
    return uses


def users_of_the_whole_table(root, parents):
    uses = count_uses(root, parents)
    return {node: sum(p.count(node) for p in parents.values())
            for node in uses}


def table_and_all(root, parents):
    uses = dict.fromkeys(parents, 0)
    for made_from in parents.values():
        for parent in made_from:
            uses[parent] += 1
    return uses


def root_missing(root, parents):
    uses = count_uses(root, parents)
    del uses[root]
    return uses


def root_is_used(root, parents):
    uses = count_uses(root, parents)
    return uses | {root: 1}


def one_for_every_path(root, parents):
    uses, found = {root: 0}, [root]
    for node in found:
        for parent in parents[node]:
            uses[parent] = uses.get(parent, 0) + 1
            if len(found) < 10_000:
                found.append(parent)
    return uses


def count_the_parents(root, parents):
    return {node: len(parents[node]) for node in count_uses(root, parents)}


def first_meeting_is_free(root, parents):
    uses, found = {root: 0}, [root]
    for node in found:
        for parent in parents[node]:
            if parent in uses:
                uses[parent] += 1
            else:
                uses[parent] = 0
                found.append(parent)
    return uses


def with_a_counter(root, parents):
    from collections import Counter

    seen, stack, uses = {root}, [root], Counter()
    while stack:
        made_from = parents[stack.pop()]
        uses.update(made_from)
        stack += set(made_from) - seen
        seen.update(made_from)
    return {node: uses[node] for node in seen}


def in_two_passes(root, parents):
    behind, stack = set(), [root]
    while stack:
        node = stack.pop()
        if node not in behind:
            behind.add(node)
            stack.extend(parents[node])
    uses = dict.fromkeys(behind, 0)
    for node in behind:
        for parent in parents[node]:
            uses[parent] += 1
    return uses


def describe_uses(args):
    words = describe_order(args)
    return words and words.replace("topological_order", "count_uses")


uses = Exercise(
    id="07.4",
    title="Count before you walk",
    name="count_uses",
    statement=USES,
    stub=USES_STUB,
    reference=count_uses,
    inputs=order_inputs,
    describe=describe_uses,
    examples=(
        (0, {0: ()}), (1, {0: (), 1: (0, 0)}), (1, {0: (), 1: (0,), 2: (0,)}),
        (3, {0: (), 1: (0,), 2: (0,), 3: (1, 2)}),
        (3, {0: (), 1: (0, 0), 2: (1, 0), 3: (2, 1)}),
        (2, {0: (), 1: (0,), 2: (1, 0), 3: (2, 2)}),
        ladder(40), chain(5000)),
    wrong=(
        Wrong(each_user_once, "A node that uses another one twice counts "
              "once here. How many shares of gradient does `a + a` hand to "
              "`a`?"),
        Wrong(users_of_the_whole_table, "This counts uses by nodes that the "
              "root does not depend on. They get no gradient, and hand none "
              "on: for how long would a count wait for them?"),
        Wrong(table_and_all, "This takes in every node of the table. Does "
              "the root depend on all of them?"),
        Wrong(root_missing, "The root is missing. It is a node too: how "
              "often is it used?"),
        Wrong(root_is_used, "The root counts as used. By which node that "
              "the root depends on?"),
        Wrong(one_for_every_path, "This visits a node once for every way "
              "that leads to it, and counts its operands each time. When has "
              "a node been looked at often enough?"),
        Wrong(count_the_parents, "This counts what a node was made from. "
              "The question is what was made from it: in which direction "
              "does an arrow have to be read?"),
        Wrong(first_meeting_is_free, "Every count but the root's is one too "
              "low. Is the first meeting with a node not a use of it?"),
    ),
    right=(with_a_counter, in_two_passes),
    hints=(
        "Visit every node behind the root once, in any order. At each visit, "
        "look at its operands.",
        "A list can grow while a for loop reads it: append a parent when you "
        "meet it for the first time, and count it every time.",
    ),
    after="PyTorch's engine does this first, in compute_dependencies "
    "(torch/csrc/autograd/engine.cpp). A node runs when its count has come "
    "down to 0.",
)


# 07.5: the walk

GRADIENTS = """\
**Exercise 07.5.** `order` lists the nodes behind its first one, the root,
each before the nodes that it was made from. `parents[node]` is the tuple
of nodes that it was made from, `locals[node]` the tuple of its derivatives
with respect to them. Write `gradients(order, parents, locals)`: a
dictionary with the gradient of every node in `order`. The root's is 1.0."""

GRADIENTS_STUB = '''\
def gradients(order: list, parents: dict, locals: dict) -> dict:
    """The derivative of order[0] with respect to every node."""
    raise NotImplementedError("exercise 07.5")'''


def gradients(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            grads[parent] += local * grads[node]
    return grads


def assigned(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            grads[parent] = local * grads[node]
    return grads


def locals_alone(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            grads[parent] += local
    return grads


def chain_of_sums(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            grads[parent] += local + grads[node]
    return grads


def from_the_leaves(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order[::-1]:
        for parent, local in zip(parents[node], locals[node], strict=True):
            grads[parent] += local * grads[node]
    return grads


def all_begin_at_one(order, parents, locals):
    grads = dict.fromkeys(order, 1.0)
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            grads[parent] += local * grads[node]
    return grads


def root_begins_at_zero(order, parents, locals):
    return dict.fromkeys(order, 0.0)


def a_parent_once(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order:
        pairs = dict(zip(parents[node], locals[node], strict=True))
        for parent, local in pairs.items():
            grads[parent] += local * grads[node]
    return grads


def the_first_parent_only(order, parents, locals):
    grads = dict.fromkeys(order, 0.0)
    grads[order[0]] = 1.0
    for node in order:
        for parent, local in list(zip(parents[node], locals[node]))[:1]:
            grads[parent] += local * grads[node]
    return grads


def with_get(order, parents, locals):
    grads = {order[0]: 1.0}
    for node in order:
        for k, parent in enumerate(parents[node]):
            grads[parent] = (grads.get(parent, 0.0)
                             + grads[node] * locals[node][k])
    return grads


def by_asking_the_users(order, parents, locals):
    """Pull instead of push: a node sums over those that use it."""
    used_by = {node: [] for node in order}
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            used_by[parent].append((node, local))
    grads = {order[0]: 1.0}
    for node in order[1:]:
        grads[node] = float(sum(grads[u] * w for u, w in used_by[node]))
    return grads


def graph_of(shape):
    """(order, parents, locals) from a tuple of (parents, locals) pairs."""
    parents = {i: p for i, (p, _) in enumerate(shape)}
    locals = {i: w for i, (_, w) in enumerate(shape)}
    root = len(shape) - 1
    return topological_order(root, parents)[::-1], parents, locals


def as_graph(*shape):
    return graph_of(shape)


def describe_graph(args):
    order, parents, locals = graph_of(args)
    return f"gradients({order}, {parents}, {locals})"


def graph_inputs(st):
    def node(i):
        if i == 0:
            return st.just(((), ()))
        edge = st.tuples(st.integers(0, i - 1),
                         st.sampled_from([2.0, 3.0, -1.0, 0.5, 1.0]))
        return st.lists(edge, max_size=3).map(
            lambda edges: (tuple(e[0] for e in edges),
                           tuple(e[1] for e in edges)))

    return st.integers(1, 5).flatmap(
        lambda n: st.tuples(*(node(i) for i in range(n))))


LEAF = ((), ())
walk = Exercise(
    id="07.5",
    title="The walk back",
    name="gradients",
    statement=GRADIENTS,
    stub=GRADIENTS_STUB,
    reference=gradients,
    inputs=graph_inputs,
    prepare=as_graph,
    describe=describe_graph,
    rtol=1e-9,
    atol=1e-9,
    examples=(
        (LEAF,), (LEAF, ((0,), (3.0,))), (LEAF, ((0, 0), (1.0, 1.0))),
        (LEAF, ((0,), (2.0,)), ((1,), (3.0,))),
        (LEAF, LEAF, ((0, 1), (5.0, 3.0))),
        (LEAF, ((0, 0), (1.0, 1.0)), ((1, 1), (1.0, 1.0))),
        (LEAF, ((0,), (2.0,)), ((0, 1), (3.0, 2.0))),
        (LEAF, ((0, 0), (3.0, 3.0)), ((1, 0), (1.0, 1.0)),
         ((1, 2), (12.0, 9.0)))),
    wrong=(
        Wrong(assigned, "This assigns the gradient, so a second path "
              "overwrites the first. What should two paths do: replace each "
              "other, or add up?"),
        Wrong(locals_alone, "This adds the local derivatives alone. Where "
              "does the gradient of the node itself come in, by the chain "
              "rule?"),
        Wrong(chain_of_sums, "Along a path, this adds. What does the chain "
              "rule do with the derivatives along a path?"),
        Wrong(from_the_leaves, "This goes through the order from its end. "
              "When a leaf has its turn, has it heard from anybody yet?"),
        Wrong(all_begin_at_one, "Every node begins with gradient 1 here. "
              "Only one node's derivative with respect to itself is asked "
              "for: which one's?"),
        Wrong(root_begins_at_zero, "All gradients are 0. What is the "
              "derivative of the root with respect to the root?"),
        Wrong(a_parent_once, "A node that uses a parent twice hands it one "
              "share here: a dictionary keeps one entry for each key. How "
              "many shares does `a + a` owe to `a`?"),
        Wrong(the_first_parent_only, "Only the first parent gets its share. "
              "How many operands does a product have?"),
    ),
    right=(with_get, by_asking_the_users),
    hints=(
        "Begin with 0.0 for every node, and 1.0 for the root. Then take the "
        "nodes in their order.",
        "A node hands to each parent its own gradient times the local "
        "derivative, and the parent adds it to what it has.",
    ),
    after="Two nested loops: this is the whole of reverse mode. PyTorch's "
    "Engine::evaluate_function does the same with tensors, and InputBuffer "
    "does the adding.",
)


# 07.6: a second walk

AGAIN = """\
**Exercise 07.6.** A graph is walked again. `order`, `parents` and `locals`
are as before, and `grads` holds what earlier walks have left, a number or
`None` for each node. Write `walk_again(order, parents, locals, grads)`: a
new dictionary with the gradients after this walk. A leaf (a node without
parents) adds this walk's gradient to what it had, and `None` counts as 0.
Every other node holds this walk's gradient alone."""

AGAIN_STUB = '''\
def walk_again(order: list, parents: dict, locals: dict,
               grads: dict) -> dict:
    """The gradients after one more walk; grads is left as it is."""
    raise NotImplementedError("exercise 07.6")'''


def walk_again(order, parents, locals, grads):
    after = {}
    for node in order:
        stale = parents[node] or grads[node] is None
        after[node] = 0.0 if stale else grads[node]
    after[order[0]] += 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            after[parent] += local * after[node]
    return after


def nothing_is_cleared(order, parents, locals, grads):
    after = {node: grads[node] or 0.0 for node in order}
    after[order[0]] += 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            after[parent] += local * after[node]
    return after


def all_is_cleared(order, parents, locals, grads):
    return gradients(order, parents, locals)


def leaves_are_cleared(order, parents, locals, grads):
    after = {node: (grads[node] or 0.0) if parents[node] else 0.0
             for node in order}
    after[order[0]] += 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            after[parent] += local * after[node]
    return after


def only_the_root_is_set(order, parents, locals, grads):
    after = {node: grads[node] or 0.0 for node in order}
    after[order[0]] = 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            after[parent] += local * after[node]
    return after


def all_add_up(order, parents, locals, grads):
    new = gradients(order, parents, locals)
    return {node: (grads[node] or 0.0) + new[node] for node in order}


def none_plus_a_number(order, parents, locals, grads):
    after = {node: 0.0 if parents[node] else grads[node] for node in order}
    after[order[0]] += 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            after[parent] += local * after[node]
    return after


def into_the_old_ones(order, parents, locals, grads):
    grads.update(walk_again(order, parents, locals, grads))
    return grads


def fresh_then_added(order, parents, locals, grads):
    new = dict.fromkeys(order, 0.0)
    new[order[0]] = 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            new[parent] += local * new[node]
    for node in order:
        if not parents[node]:
            new[node] += grads[node] or 0.0
    return new


def cleared_at_the_first_share(order, parents, locals, grads):
    after = {n: g or 0.0 for n, g in grads.items()
             if n in set(order) and not parents[n]}
    after[order[0]] = after.get(order[0], 0.0) + 1.0
    for node in order:
        for parent, local in zip(parents[node], locals[node], strict=True):
            after[parent] = after.get(parent, 0.0) + local * after[node]
    return after


def as_second_walk(*shape):
    order, parents, locals = graph_of([s[:2] for s in shape])
    return order, parents, locals, {i: s[2] for i, s in enumerate(shape)}


def describe_walk(args):
    return "walk_again({}, {}, {}, {})".format(*as_second_walk(*args))


def walk_inputs(st):
    old = st.sampled_from([0.0, None, 1.0, 5.0, -2.0])
    return graph_inputs(st).flatmap(lambda shape: st.tuples(*(
        old.map(lambda g, s=s: (*s, g)) for s in shape)))


again = Exercise(
    id="07.6",
    title="A second walk",
    name="walk_again",
    statement=AGAIN,
    stub=AGAIN_STUB,
    reference=walk_again,
    inputs=walk_inputs,
    prepare=as_second_walk,
    describe=describe_walk,
    rtol=1e-9,
    atol=1e-9,
    examples=(
        (((), (), None),), (((), (), 2.0),),
        (((), (), 5.0), ((0,), (3.0,), 1.0)),
        (((), (), None), ((0,), (3.0,), None)),
        (((), (), 0.0), ((0,), (2.0,), 4.0), ((1,), (3.0,), 1.0)),
        (((), (), 2.0), ((0, 0), (1.0, 1.0), 7.0),
         ((1, 1), (1.0, 1.0), 1.0))),
    wrong=(
        Wrong(nothing_is_cleared, "What the first walk left in the middle is "
              "handed on once more. Which nodes must begin afresh?"),
        Wrong(all_is_cleared, "The leaves have lost what they had. How would "
              "you add up the gradients of a large batch that is walked in "
              "parts?"),
        Wrong(leaves_are_cleared, "It is the other way round: the leaves are "
              "cleared, the nodes in between are not. Which of the two does "
              "the caller have a name for, and can clear?"),
        Wrong(only_the_root_is_set, "The root begins afresh, the other nodes "
              "in between do not. What did the first walk leave in them?"),
        Wrong(all_add_up, "Nodes in between have added up as well. Which "
              "nodes keep what they had, and which hold this walk's gradient "
              "alone?"),
        Wrong(none_plus_a_number, "A leaf that has no gradient yet holds "
              "None. What does it count as, when a number is added?"),
        Wrong(into_the_old_ones, "This writes into the dictionary that it "
              "was given. Who may still need the old gradients?"),
    ),
    right=(fresh_then_added, cleared_at_the_first_share),
    hints=(
        "First decide what each node holds before the walk: 0.0, or what it "
        "had. Then walk as in the exercise before.",
        "A node with parents begins with 0.0. A leaf begins with what it "
        "had, or with 0.0 in place of None.",
    ),
    after="PyTorch lets leaves add up for the same reason (see "
    "torch/csrc/autograd/functions/accumulate_grad.h). Nodes in between have "
    "nothing to clear there: what waits for them lives in the engine, and "
    "only as long as the walk.",
)


# 07.7: what each mode costs

COST = """\
**Exercise 07.7.** A program has several stages. Stage $k$ turns
`sizes[k]` numbers into `sizes[k + 1]`, so `sizes[0]` is the number of
inputs, `sizes[-1]` that of outputs. Every number of a stage depends on
every number of the stage before, so a stage has
`sizes[k] * sizes[k + 1]` local derivatives. A forward pass for one input,
and a walk back from one output, multiply by each local derivative once.
Write `multiplications(sizes)`: the pair of how many multiplications all
derivatives of all outputs cost, by forward mode and by reverse mode."""

COST_STUB = '''\
def multiplications(sizes: list) -> tuple:
    """Multiplications for all derivatives: (forward, reverse)."""
    raise NotImplementedError("exercise 07.7")'''


def multiplications(sizes):
    edges = sum(a * b for a, b in zip(sizes, sizes[1:]))
    return sizes[0] * edges, sizes[-1] * edges


def the_other_way_round(sizes):
    return multiplications(sizes)[::-1]


def one_pass_each(sizes):
    edges = sum(a * b for a, b in zip(sizes, sizes[1:]))
    return edges, edges


def product_of_sizes(sizes):
    edges = 1
    for size in sizes:
        edges *= size
    return sizes[0] * edges, sizes[-1] * edges


def numbers_not_edges(sizes):
    return sizes[0] * sum(sizes), sizes[-1] * sum(sizes)


def last_stage_missing(sizes):
    edges = sum(a * b for a, b in zip(sizes[:-1], sizes[1:-1]))
    return sizes[0] * edges, sizes[-1] * edges


def inputs_times_outputs(sizes):
    edges = sum(a * b for a, b in zip(sizes, sizes[1:]))
    return (sizes[0] * sizes[-1] * edges,) * 2


def evaluation_as_well(sizes):
    edges = sum(a * b for a, b in zip(sizes, sizes[1:]))
    return (sizes[0] + 1) * edges, (sizes[-1] + 1) * edges


def by_index(sizes):
    edges = 0
    for k in range(len(sizes) - 1):
        edges += sizes[k] * sizes[k + 1]
    return edges * sizes[0], edges * sizes[-1]


def pass_by_pass(sizes):
    def one_pass(sizes):
        return sum(sizes[k - 1] * sizes[k] for k in range(1, len(sizes)))

    return (sum(one_pass(sizes) for _ in range(sizes[0])),
            sum(one_pass(sizes[::-1]) for _ in range(sizes[-1])))


def size_inputs(st):
    return st.tuples(st.lists(st.integers(1, 12), min_size=2, max_size=5))


cost = Exercise(
    id="07.7",
    title="Which way is cheaper",
    name="multiplications",
    statement=COST,
    stub=COST_STUB,
    reference=multiplications,
    inputs=size_inputs,
    examples=(([1, 1],), ([3, 1],), ([1, 4],), ([4, 3, 1],), ([2, 5, 3],)),
    wrong=(
        Wrong(the_other_way_round, "The two are exchanged. Which mode takes "
              "one pass for each input?"),
        Wrong(one_pass_each, "This is the price of one pass. How many passes "
              "does forward mode need for `sizes[0]` inputs?"),
        Wrong(product_of_sizes, "This multiplies the stages with each other, "
              "which counts paths. Does a pass that walks in order visit "
              "each path, or each local derivative?"),
        Wrong(numbers_not_edges, "This counts numbers. A multiplication "
              "happens at each local derivative: how many are there between "
              "two stages?"),
        Wrong(last_stage_missing, "One stage is missing. How many stages lie "
              "between n sizes?"),
        Wrong(inputs_times_outputs, "This takes a pass for each input and "
              "each output together. Does one pass from an input not reach "
              "all outputs at once?"),
        Wrong(evaluation_as_well, "One pass too many: the evaluation itself "
              "is counted. Does the statement ask for more than the "
              "multiplications by local derivatives?"),
    ),
    right=(by_index, pass_by_pass),
    hints=(
        "First the price of one pass: add up sizes[k] * sizes[k + 1] over "
        "the stages.",
        "Forward mode takes that price once for each input, reverse mode "
        "once for each output.",
    ),
    after="torch.func offers both: jacfwd runs forward, jacrev backward. For "
    "a loss, one output, and a model of a billion weights, that is a factor "
    "of a billion.",
)


# 07.8: a node of many inputs

SOFT_MAX = """\
**Exercise 07.8.** A node of many inputs needs its result and one local
derivative for each input. Write both for
$\\mathrm{logsumexp}(x) = \\log \\sum_i e^{x_i}$, a smooth maximum:
`logsumexp_and_locals(xs)` returns the pair of the result and the tuple of
derivatives $e^{x_i} / \\sum_k e^{x_k}$. Inputs of 1000 or -1000 are no
error: $\\log \\sum_i e^{x_i} = m + \\log \\sum_i e^{x_i - m}$ for every $m$.
Use `math.exp` and `math.log`."""

SOFT_MAX_STUB = '''\
def logsumexp_and_locals(xs: list) -> tuple:
    """log(sum(exp(x))), and its derivative for each x."""
    raise NotImplementedError("exercise 07.8")'''


def logsumexp_and_locals(xs):
    largest = max(xs)
    terms = [math.exp(x - largest) for x in xs]
    total = sum(terms)
    return largest + math.log(total), tuple(t / total for t in terms)


def overflowing(xs):
    terms = [math.exp(x) for x in xs]
    total = sum(terms)
    return math.log(total), tuple(t / total for t in terms)


def largest_not_added_back(xs):
    largest = max(xs)
    terms = [math.exp(x - largest) for x in xs]
    total = sum(terms)
    return math.log(total), tuple(t / total for t in terms)


def locals_not_divided(xs):
    largest = max(xs)
    terms = [math.exp(x - largest) for x in xs]
    return largest + math.log(sum(terms)), tuple(terms)


def a_hard_maximum(xs):
    largest = max(xs)
    value, _ = logsumexp_and_locals(xs)
    return value, tuple(1.0 if x == largest else 0.0 for x in xs)


def locals_of_the_logarithm(xs):
    largest = max(xs)
    total = sum(math.exp(x - largest) for x in xs)
    return largest + math.log(total), tuple(1 / total for _ in xs)


def the_smallest_taken_off(xs):
    smallest = min(xs)
    terms = [math.exp(x - smallest) for x in xs]
    total = sum(terms)
    return smallest + math.log(total), tuple(t / total for t in terms)


def sum_of_logarithms(xs):
    _, locals = logsumexp_and_locals(xs)
    return float(sum(xs)), locals


def locals_from_the_result(xs):
    largest = max(xs)
    value = largest + math.log(sum(math.exp(x - largest) for x in xs))
    return value, tuple(math.exp(x - value) for x in xs)


def two_at_a_time(xs):
    value = float(xs[0])
    for x in xs[1:]:
        high, low = max(value, x), min(value, x)
        value = high + math.log1p(math.exp(low - high))
    return value, tuple([math.exp(x - value) for x in xs])


def many_inputs(st):
    number = st.one_of(st.integers(-3, 3), st.sampled_from(
        [1000, -1000, 900, -900])).map(float)
    return st.tuples(st.lists(number, min_size=1, max_size=4))


many = Exercise(
    id="07.8",
    title="One node, many inputs",
    name="logsumexp_and_locals",
    statement=SOFT_MAX,
    stub=SOFT_MAX_STUB,
    reference=logsumexp_and_locals,
    inputs=many_inputs,
    imports="import math",
    rtol=1e-9,
    atol=1e-12,
    examples=(([0.0],), ([0.0, 0.0],), ([1.0, 2.0],), ([1000.0],),
              ([1000.0, 999.0],), ([-1000.0, -1000.0],),
              ([-1000.0, 1000.0],)),
    wrong=(
        Wrong(overflowing, "This is right until exp overflows, or all its "
              "values round to 0. Which m makes every exponent x - m at most "
              "0, and one of them exactly 0?"),
        Wrong(largest_not_added_back, "The derivatives are right, the result "
              "is not: the largest was taken off and never put back. What "
              "stands before the logarithm in the rule?"),
        Wrong(locals_not_divided, "The derivatives are not divided by their "
              "sum. By how much does the result rise when all inputs rise by "
              "1, and so what must the derivatives add up to?"),
        Wrong(a_hard_maximum, "These are the derivatives of max. How fast "
              "does the sum of two equal terms grow when one of them does?"),
        Wrong(locals_of_the_logarithm, "1 / total is the derivative of the "
              "logarithm alone. What does the chain rule multiply it by, for "
              "each input?"),
        Wrong(the_smallest_taken_off, "Taking off the smallest leaves large "
              "exponents large. Which input must be taken off for none to "
              "be above 0?"),
        Wrong(sum_of_logarithms, "The logarithm of a sum is not the sum of "
              "the logarithms. What is the result for [0, 0]?"),
    ),
    right=(locals_from_the_result, two_at_a_time),
    hints=(
        "Take m = max(xs). Then every exp(x - m) lies between 0 and 1, and "
        "one of them is 1: nothing overflows, and the sum is no 0.",
        "With terms = [exp(x - m) ...] and their total, the result is "
        "m + log(total), and each derivative is its term / total.",
    ),
    after="The derivatives are the softmax of the inputs. PyTorch's "
    "logsumexp takes off the maximum as well (aten/src/ATen/native/"
    "ReduceOps.cpp), and its formula in derivatives.yaml is "
    "logsumexp_backward, one exp for all inputs.",
)

exercises = (central, horner, order, uses, walk, again, cost, many)
