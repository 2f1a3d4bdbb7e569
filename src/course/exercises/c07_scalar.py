"""Exercise of chapter 7: in which order a graph can be walked."""

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 07.1.** `parents` maps each node of a graph to the tuple of nodes
that it was made from; a leaf has an empty tuple. Write
`topological_order(root, parents)`: the list of `root` and of all that it
was made from, each node once, and each after all its parents, so that
`root` comes last. Nodes that `root` does not depend on do not appear. A
chain of 5000 nodes is no error: do not recurse."""

STUB = '''\
def topological_order(root, parents: dict) -> list:
    """The nodes that root depends on, parents before children."""
    raise NotImplementedError("exercise 07.1")'''


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


def judge(args, answer, expected):
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


def describe(args):
    """A long graph in few words."""
    root, parents = args
    if len(parents) > 20:
        times = "twice" if len(parents[root]) == 2 else "once"
        return (f"topological_order({root}, parents), a chain of "
                f"{len(parents)} nodes: each uses the one before {times}")


def inputs(st):
    def graph(size):
        made = st.tuples(*(
            st.lists(st.integers(0, max(i - 1, 0)),
                     max_size=min(i, 3)).map(tuple)
            for i in range(size)))
        return made.map(lambda p: dict(enumerate(p)))

    graphs = st.integers(1, 6).flatmap(graph)
    return graphs.flatmap(lambda g: st.tuples(
        st.sampled_from(sorted(g, reverse=True)), st.just(g)))


exercises = (Exercise(
    id="07.1",
    title="An order for the graph",
    name="topological_order",
    statement=STATEMENT,
    stub=STUB,
    reference=topological_order,
    inputs=inputs,
    judge=judge,
    describe=describe,
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
),)
