"""Where an exercise's answer stands in the library.

In a workbook these functions of the library are the reader's to write: a
part answers the same question as its exercise, so the exercise's inputs
and its known wrong answers check it too. Every other exported cell stays
as it is.
"""

import functools
import inspect
import math
import operator
import re
import struct
import types
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One function of a chapter, as an answer to an exercise.

    function: its name in the exported cells, `Class.name` for a method.
    call: an expression in the parameters of the exercise's function and
    the names of the chapter (and of HELP); it gives the exercise's answer.
    """

    function: str
    call: str


PARTS = {
    "01.3": Part("BFloat16.pack", "upper(BFloat16.pack(float32_of(bits)))"),
    "01.4": Part("wrap", "wrap(integer(bits, signed), value)"),
    "02.1": Part("is_row_major", "is_row_major(Geometry(shape, strides))"),
    "02.2": Part("getitem", "only(getitem(Geometry((size,), (stride,), "
                 "offset), slice(start, stop, step)))"),
    "02.5": Part("_picked", "_picked(empty(shape, device='meta'), [i if i "
                 "is None else empty(i, dtype=int64, device='meta') "
                 "for i in indices])[0]"),
    "03.2": Part("parse_schema", "memory(parse_schema(schema))"),
    "04.3": Part("meet", "meet(*[(rank, dtypes[name]) "
                 "for rank, name in operands]).name"),
    "05.3": Part("first_best", "first_best(greater)(values) "
                 "if values else values[0]"),
    "06.1": Part("matmul_loops", "matmul_loops(strided(a, a_strides, n, k), "
                 "strided(b, b_strides, k, m), matrix(n, m)).tolist()"),
    "06.4": Part("matmul", "tuple(matmul(empty(left, device='meta'), "
                 "empty(right, device='meta')).shape)"),
    "06.6": Part("chain_cuts", "cost(sizes, chain_cuts(sizes))"),
    "07.3": Part("depth_first_order",
                 "labels(depth_first_order(graph(root, parents)))"),
    "08.1": Part("sum_to", "sum_to(grad, shape)"),
    "09.4": Part("kaiming_std", "sqrt(3) * kaiming_std(empty(shape, "
                 "device='meta'), slope, 'fan_in', 'leaky_relu')"),
    "10.1": Part("SGD.direction",
                 "stepped(SGD, p, grad, velocity, lr, momentum)"),
    "11.1": Part("BatchSampler.__iter__",
                 "list(BatchSampler(range(n), size, drop_last))"),
}


# What the calls above use beside the chapter's own names


def float32_of(bits):
    return struct.unpack("=f", struct.pack("=I", bits))[0]


def upper(data):
    return struct.unpack("=H", data)[0]


def integer(bits, signed):
    """What `wrap` asks of an integer's dtype."""
    return types.SimpleNamespace(
        category=1, itemsize=bits // 8, is_signed=signed)


def only(geometry):
    (size,), (stride,), offset = geometry
    return size, stride, offset


def memory(schema):
    """What a parsed schema says of memory: "write", "view" or "new"."""
    if any("!" in argument.type for argument in schema.arguments):
        return "write"
    return "view" if "Tensor(" in schema.returns else "new"


def cost(sizes, cuts, i=0, j=None):
    """The multiplications of a chain that is cut as `cuts` says."""
    j = len(sizes) - 2 if j is None else j
    if i == j:
        return 0
    k = cuts[i, j]
    return (cost(sizes, cuts, i, k) + cost(sizes, cuts, k + 1, j)
            + sizes[i] * sizes[k + 1] * sizes[j + 1])


class Labelled:
    """A node of a graph that has a name and knows its parents."""

    def __init__(self, label):
        self.label, self.parents = label, ()


def graph(root, parents):
    nodes = {name: Labelled(name) for name in parents}
    for name, node in nodes.items():
        node.parents = tuple(nodes[p] for p in parents[name])
    return nodes[root]


def labels(order):
    """The names, parents first, as the exercise asks for them."""
    return [node.label for node in reversed(order)]


def strided(values, strides, *shape):
    import lamina

    x = lamina.tensor(list(values), dtype=lamina.float64)
    return x.as_strided(shape, strides)


def matrix(n, m):
    import lamina

    return lamina.empty(n, m, dtype=lamina.float64)


def stepped(SGD, p, grad, velocity, lr, momentum):
    """One step on a parameter: (p, velocity) after it."""
    import lamina

    p, grad, velocity = (lamina.tensor(v, dtype=lamina.float64)
                         for v in (p, grad, velocity))
    p.requires_grad_()
    optimizer = SGD([p], lr=lr, momentum=momentum)
    optimizer.state[p]["momentum_buffer"] = velocity
    p.grad = grad
    optimizer.step()
    # without momentum the velocity is the gradient, and is not kept
    return p.detach().tolist(), (velocity if momentum else grad).tolist()


HELP = {f.__name__: f for f in (
    float32_of, upper, integer, only, memory, cost, graph, labels, strided,
    matrix, stepped)} | {"greater": operator.gt, "sqrt": math.sqrt}


def answer(exercise, names):
    """The part as a function of the exercise's arguments, or None where
    it is not defined."""
    part = PARTS[exercise.id]
    try:
        place = functools.reduce(getattr, part.function.split(".")[1:],
                                 names[part.function.partition(".")[0]])
    except (KeyError, AttributeError):
        return None
    wanted = list(inspect.signature(exercise.reference).parameters)
    code = compile(part.call, f"<the call of {part.function}>", "eval")
    here = {**names, **HELP}

    def called(*args):
        return eval(code, here | dict(zip(wanted, args, strict=True)))

    called.part = place
    called.__module__ = "__main__"
    return called


def shown(exercise, args):
    """The part's call with the arguments put in."""
    values = dict(zip(inspect.signature(exercise.reference).parameters, args))
    return re.sub(r"(?<![\w.'])([a-z_]\w*)(?!\w*[='(])",
                  lambda m: repr(values[m[1]]) if m[1] in values else m[1],
                  PARTS[exercise.id].call)
