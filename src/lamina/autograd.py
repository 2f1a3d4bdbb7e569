"""Autograd: where to keep the graph.

Exported from chapters/08_autograd.ipynb by `course export`; edit the chapter,
not this file.
"""

import functools
import inspect
import math
import operator as builtin
import random
import threading
import warnings
import weakref

import lamina.dispatch as dispatch
import lamina.strides as strides
from lamina.broadcasting import broadcast_shapes, elementwise
from lamina.dispatch import (
    add_layer, array, define, from_array, functions, impl, include, lookup, np,
    operators, own,
)
from lamina.reductions import reduced_dims, reduced_shape
from lamina.strides import (
    Geometry, Tensor, eye, method, nearest, offsets, ones, repr_notes,
    row_major, stack, tensor, zeros,
)

__all__ = [
    "no_grad",
    "enable_grad",
    "set_grad_enabled",
    "is_grad_enabled",
    "derivative",
    "derivatives",
]


class GradMode(threading.local):
    """Whether operators are recorded; each thread has its own."""

    enabled = True


grad_mode = GradMode()


def is_grad_enabled():
    """Whether this thread records operators."""
    return grad_mode.enabled


class no_grad:
    """Do not record what happens in a block, or in a function."""

    mode = False

    def __new__(cls, function=None):
        self = super().__new__(cls)
        return self if function is None else self(function)     # bare

    def __init__(self, function=None):
        pass

    def __enter__(self):
        self.before = grad_mode.enabled
        grad_mode.enabled = self.mode

    def __exit__(self, *exc):
        grad_mode.enabled = self.before

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            return wrap_generator(function, self.mode)

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with set_grad_enabled(self.mode):
                return function(*args, **kwargs)
        return wrapped


def wrap_generator(function, mode):
    """A generator function in a mode: entered anew for each step, so that
    the code between two steps keeps its own."""
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with set_grad_enabled(mode):
            steps = function(*args, **kwargs)
        step, given = steps.send, (None,)
        try:
            while True:
                try:
                    with set_grad_enabled(mode):
                        item = step(*given)
                except StopIteration as end:
                    return end.value
                try:
                    step, given = steps.send, ((yield item),)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step, given = steps.throw, (error,)
        finally:
            with set_grad_enabled(mode):
                steps.close()
    return wrapped


class enable_grad(no_grad):
    """Record again, inside a no_grad."""

    mode = True


class set_grad_enabled(no_grad):
    """Record or not, from here on, or until the `with` block ends."""

    def __new__(cls, mode):
        return object.__new__(cls)

    def __init__(self, mode):
        self.mode = bool(mode)
        super().__enter__()

    def __enter__(self):
        grad_mode.enabled = self.mode

    def __call__(self, function):
        grad_mode.enabled = self.before     # made only to decorate
        return super().__call__(function)


class AutogradMeta:
    """What a result knows of its gradient, if it is more than its node.

    `edge` is the node of the operator that made it, and as whose output
    number it came. `version` is the storage's when a view's history was
    noted: a view whose base has been written to since has another one.
    `grad` is kept where retain_grad() has asked for it.
    """

    __slots__ = ("edge", "version", "grad", "retains_grad", "__weakref__")

    def __init__(self, node, output_nr=0, version=0):
        self.edge = node, output_nr
        self.version = version
        self.grad = None
        self.retains_grad = False


class Node:
    """One recorded operator, in the graph that backward walks.

    `edges` holds, for each input that wants a gradient, the node that
    made it and which of that node's outputs it was, one after the other;
    `next_functions` gives them as pairs.
    `shape` and `dtype` are those of a gradient that comes in, lists of
    them if the operator has several outputs. `retained` lists outputs
    whose gradient is kept (retain_grad).
    """

    __slots__ = ("edges", "shape", "dtype", "retained", "__weakref__")
    retains_grad = False

    def start(self, edges, output):
        """Fill the slots. (No __init__: most nodes are made in a hurry.)"""
        self.edges = edges
        self.shape, self.dtype = metadata_of(output)
        self.retained = None

    @property
    def next_functions(self):
        """Pairs of a node and the number of one of its outputs."""
        return tuple(zip(self.edges[::2], self.edges[1::2]))

    def name(self):
        return type(self).__name__

    def __repr__(self):
        return f"<{self.name()}>"

    def apply(self, grads):
        """The inputs' gradients, from those of the outputs.

        Of `grads` at least one is no None; the result has one entry for
        each of `next_functions`, None where no gradient flows.
        """
        raise NotImplementedError(f"{self.name()} has no derivative")

    def release(self):
        """Free what the node saved."""


def shape_of(x):
    """The shape of a tensor; () for a number in a tensor's place."""
    if not isinstance(x, Tensor):
        return ()
    return x.shape if x.array is None else x.array.shape


def metadata_of(x):
    """What a gradient of x must look like."""
    return shape_of(x), x.dtype


class AccumulateGrad(Node):
    """The end of the graph: what a leaf knows of its gradient, and the
    node that adds to it."""

    __slots__ = ("grad", "leaf", "parts")

    def __init__(self, variable):
        self.start((), variable)
        self.grad = None
        self.leaf = weakref.ref(variable)
        self.parts = variable.storage, variable.geometry, variable.dtype

    @property
    def variable(self):
        """The leaf; if its last name is gone, another tensor of its
        memory, with the same gradient."""
        x = self.leaf()
        if x is None:
            x = Tensor(*self.parts)
            x.autograd = self
            x.keys |= AUTOGRAD
            self.leaf = weakref.ref(x)
        return x

    def apply(self, grads):
        accumulate(self, grads[0])
        return ()


def accumulate(meta, grad):
    """Add to what a tensor's .grad holds already."""
    if meta.grad is None:
        meta.grad = grad.clone()
    elif grad_mode.enabled:         # the sum is part of a graph
        meta.grad = meta.grad + grad
    else:
        meta.grad.add_(grad)


def edge_of(x):
    """Where the gradient of x goes: a node, and which output it was."""
    meta = x.autograd
    if type(meta) is not AutogradMeta:
        return meta, 0
    if x._base is not None and meta.version != x.storage.version:
        refresh(x)
    return meta.edge


def wrap_autograd(operator, kernel):
    """The layer: a kernel that also notes what it did."""
    schema = operator.schema
    source = operator.base or operator
    formulas = derivatives.get(source.schema.full_name)
    if schema.is_write and not schema.name.endswith("_"):
        return refuse_out(schema, kernel)
    if formulas is None:
        return refuse_unknown(schema, kernel)
    if schema.is_write:
        return record_write(schema, kernel, formulas)
    if not formulas:
        return untracked(kernel)
    return record(schema, kernel, formulas)


AUTOGRAD = add_layer(wrap_autograd)


def wants_grad(x):
    return isinstance(x, Tensor) and bool(x.keys & AUTOGRAD)


def is_leaf(x):
    """Whether x was made by no recorded operator."""
    return get_grad_fn(x) is None


def get_grad_fn(x):
    """The node that made x; None for a leaf."""
    if x.autograd is None or type(x.autograd) is AccumulateGrad:
        return None
    return edge_of(x)[0]


@method
def requires_grad_(self, requires_grad=True):
    """Want the gradient of this leaf, or no longer. Gives the tensor."""
    if not is_leaf(self):
        if not requires_grad:
            raise RuntimeError(
                "only a leaf's requires_grad can be changed, and this tensor "
                "was made by an operator; use .detach()")
    elif not requires_grad:
        self.keys &= ~AUTOGRAD
    else:
        if not self.dtype.is_floating_point:
            raise RuntimeError(f"only floating-point tensors have gradients; "
                               f"this is {self.dtype}: convert it with "
                               f".to(lamina.float32)")
        if self.autograd is None:
            self.autograd = AccumulateGrad(self)
        self.keys |= AUTOGRAD
    return self


Tensor.requires_grad = property(wants_grad, requires_grad_)
Tensor.is_leaf = property(is_leaf)
Tensor.grad_fn = property(get_grad_fn)


def get_grad(self):
    """The gradient that backward has added up for this leaf, or None."""
    meta = self.autograd
    if meta is None or type(meta) is AccumulateGrad:
        return meta and meta.grad
    if not meta.retains_grad:
        warnings.warn(".grad of a tensor that is no leaf is not kept; call "
                      ".retain_grad() on it before backward", stacklevel=2)
        return None
    return meta.grad


def set_grad(self, grad):
    if grad is not None:
        if not isinstance(grad, Tensor):
            raise TypeError(f"a gradient is a tensor or None; got "
                            f"{type(grad).__name__}")
        if (metadata_of(grad) != metadata_of(self)
                or grad.device is not self.device):
            raise RuntimeError(
                f"a gradient has its tensor's shape, dtype and device, "
                f"{list(self.shape)}, {self.dtype}, '{self.device}'; got "
                f"{list(grad.shape)}, {grad.dtype}, '{grad.device}'")
        if grad is self:
            raise RuntimeError("a tensor cannot be its own gradient; give "
                               "x.detach().clone()")
    if self.autograd is None:
        if grad is None:
            return
        self.autograd = AccumulateGrad(self)
    self.autograd.grad = grad


Tensor.grad = property(get_grad, set_grad,
                       lambda self: set_grad(self, None))
Tensor.output_nr = property(
    lambda self: edge_of(self)[1] if self.autograd else 0)
Tensor._version = property(lambda self: self.storage.version)


derivatives = {}


def derivative(name, **formulas):
    """Give an operator its derivative: a formula for each input.

    A formula takes `grad`, the gradient of the result, and any of: the
    operator's arguments by name, `result`, and an argument's shape, dtype,
    geometry or device (`self_shape`). What it names is saved at the call.
    Of several results `grad` is the first one's gradient, `grads` is the
    list of all, and each is saved by its name. For a list of tensors a
    formula gives a list of gradients.
    An input without a formula gets no gradient; with no formulas at all,
    the result carries none.
    """
    schema = operators[name].schema
    known = [a.name for a in schema.arguments]
    results = schema.outputs or ["result"]
    for target, formula in formulas.items():
        if target not in known:
            raise ValueError(f"{schema} has no argument {target!r}"
                             + nearest(target, known))
        for wanted in parameters(formula):
            if wanted not in results and split_name(
                    wanted, known)[0] is None:
                raise ValueError(
                    f"derivative of {schema}: the formula for {target!r} "
                    f"takes {wanted!r}, which is no argument"
                    + nearest(wanted, [*known, *results]))
    derivatives[name] = formulas
    for form in (operators[name], *operators[name].forms):
        form.table.clear()          # what is in it knows no derivative


def parameters(formula):
    """The names of what a formula takes besides grad."""
    code = formula.__code__
    return code.co_varnames[1:code.co_argcount]


def split_name(name, known):
    """"self_shape" as ("self", "shape"), "self" as ("self", None)."""
    owner, _, part = name.rpartition("_")
    if name in known:
        return name, None
    if owner in known and part in ("shape", "shapes", "geometry", "device",
                                   "dtype"):
        return owner, part
    return None, None


def maybe_multiply(grad, alpha):
    """grad * alpha, without the work where alpha is 1."""
    return grad if alpha == 1 else grad * alpha


derivative("add.Tensor",
           self=lambda grad: grad,
           other=lambda grad, alpha: maybe_multiply(grad, alpha))
derivative("mul.Tensor",
           self=lambda grad, other: grad * other,
           other=lambda grad, self: grad * self)
derivative("exp", self=lambda grad, result: grad * result)


SAVE = ("(({x}.autograd, {x}.storage.version)\n            "
        "if type({x}.autograd) is AccumulateGrad else\n            "
        "({x}.autograd, {x}.storage.version, {x}.storage,\n            "
        "{x}.geometry if {x}.array is None else {x}.array, {x}.dtype))")
save = eval(f"lambda x: {SAVE.format(x='x')}")


def unpack(saved, node, name, output_nr=None):
    """The tensor that was saved; RuntimeError if it was written to since.

    With output_nr it was that one of the node's own results.
    """
    if len(saved) == 2:                 # a leaf
        meta, version = saved
        x = meta.leaf()
        if x is None:                   # its last name is gone
            x = meta.variable
        if x.storage.version != version:
            raise overwritten(x, version, node, name)
        return x
    meta, version, storage, memory, dtype = saved
    if type(memory) is Geometry:
        x = Tensor(storage, memory, dtype)
    else:
        x = own(memory, dtype)
        x.storage = storage
        x.keys = storage.device.bit | dtype.bit
    if storage.version != version:
        raise overwritten(x, version, node, name)
    if grad_mode.enabled:               # the gradient may have a gradient
        if output_nr is not None:
            set_history(x, node, output_nr)
        elif meta is not None:
            x.autograd = meta
            x.keys |= AUTOGRAD
    return x


def overwritten(x, version, node, name):
    return RuntimeError(
        f"backward of {node.name()} needs its {name}, a tensor of shape "
        f"{list(shape_of(x))}, as it was at version {version}; it has been "
        f"written to in place since and is at version {x.storage.version}. "
        f"Write to a clone(), or use the operator that makes a new tensor")


def set_history(x, node, output_nr=0):
    """Make x an output of a node."""
    before = x.autograd
    x.keys |= AUTOGRAD
    if x._base is None and type(node.shape) is tuple:
        x.autograd = node
    else:
        x.autograd = AutogradMeta(node, output_nr, x.storage.version)
    if before is not None and before.retains_grad:
        keep_grad(x, before.grad)


def keep_grad(x, grad=None):
    """Let the node of a tensor leave the gradient with it."""
    node, output_nr = edge_of(x)
    meta = meta_of(x)
    meta.retains_grad, meta.grad = True, grad
    node.retained = (node.retained or []) + [(output_nr, weakref.ref(meta))]


def meta_of(x):
    """What can hold a gradient of x; a bare node cannot."""
    if not isinstance(x.autograd, (AccumulateGrad, AutogradMeta)):
        x.autograd = AutogradMeta(x.autograd)
    return x.autograd


class Recipe:
    """How to save and to go back, for one operator and one set of inputs.

    `positions` says which arguments want a gradient: the number of one,
    or for a list of tensors (number, which of the list). `names` says what
    is saved, results last, `results` the numbers of the results saved. For
    each position, `formulas` has the formula, the names of what it takes,
    what it calls the gradient (`grads` for those of all results), and
    which of the list it gives are wanted. `tensors` says which of the
    names may be tensors. `sources` keeps the functions as text.
    """

    def __init__(self, schema, formulas, positions):
        words = schema.name.rstrip("_").split("_")
        self.name = "".join(w[:1].upper() + w[1:] for w in words
                            ) + "Backward0"
        self.types = {a.name: a.type for a in schema.arguments}
        known = list(self.types)
        self.outputs = outputs = schema.outputs or ["result"]
        self.picks = [p if isinstance(p, tuple) else (p, None)
                      for p in positions]
        wanted = [formulas[known[i]] for i, _ in self.picks]
        self.formulas = [(f, parameters(f), f.__code__.co_varnames[0], pick)
                         for f, (_, pick) in zip(wanted, self.picks)]
        self.names = sorted({name for f in wanted for name in parameters(f)},
                            key=lambda name: (name in outputs, name))
        self.results = [outputs.index(name) for name in self.names
                        if name in outputs]
        self.tensors = [
            i for i, name in enumerate(self.names) if name in outputs
            or self.types.get(name, "").startswith("Tensor")]
        self.sources = *forward_texts(self), apply_text(self)
        space = {}
        for text in self.sources:
            exec(compile(text, f"<{self.name}>", "exec"), globals(), space)
        self.prepare = space["make_prepare"](self)
        self.make_run = functools.partial(space["make_run"], self)
        self.apply = space["make_apply"](*wanted)


EDGE = """
        node{i}, nr{i} = {x}.autograd, 0
        if type(node{i}) is AutogradMeta: node{i}, nr{i} = edge_of({x})"""
PARTS = {
    "shape": "shape_of({x})",
    "shapes": "[shape_of(x) for x in {x}]",
    "dtype": "getattr({x}, 'dtype', None)",
    "geometry": "{x}.geometry",
    "device": "{x}.device",
}


def saved_value(value):
    """What is saved of something that may be a tensor, or several."""
    if isinstance(value, Tensor):
        return save(value)
    if type(value) is tuple:
        return tuple(map(saved_value, value))
    return value


def forward_texts(recipe):
    """`prepare`, which makes the node of a call but for what concerns the
    results, and `run`, which does all, as text."""
    known, places, saved = list(recipe.types), [], []
    for i, pick in recipe.picks:
        places += [known[i]] if pick is None else [
            f"{known[i]}[{j}]" for j in pick]
    for name in recipe.names[:len(recipe.names) - len(recipe.results)]:
        owner, part = split_name(name, known)
        if part:
            text = PARTS[part].format(x=owner)
        elif not recipe.types[name].startswith("Tensor"):
            text = name
        elif recipe.types[name].endswith("[]"):
            text = f"saved_value({name})"
        else:
            text = (f"{SAVE.format(x=name)}\n            if "
                    f"type({name}) is Tensor else saved_value({name})")
        saved.append(text)
    joint, arguments = ",\n            ", ", ".join(known)
    node = "".join(EDGE.format(x=x, i=i) for i, x in enumerate(places))
    node += NODE.format(
        edges=", ".join(f"node{i}, nr{i}" for i in range(len(places))),
        saved=joint.join(text + "," * (len(saved) == 1) for text in saved))
    several = recipe.outputs != ["result"]
    return (PREPARE.format(arguments=arguments, node=node),
            RUN.format(arguments=arguments, node=node, attach=(
                ATTACH_ALL if several else ATTACH).format(
                    save=f"node.saved += {SAVE.format(x='result')},"
                    if recipe.results else "pass")))


NODE = """
        node = OperatorNode()
        node.recipe = recipe
        node.retained = None
        node.edges = {edges}
        node.saved = (
            {saved})"""
PREPARE = """
def make_prepare(recipe):
    def prepare({arguments}):{node}
        return node
    return prepare
"""
RUN = """
def make_run(recipe, kernel):
    def run({arguments}):{node}
        result = kernel({arguments}){attach}
        return result
    return run
"""
ATTACH = """
        if result.dtype.category == 2:
            {save}
            found = result.array
            node.shape = (result.geometry.shape if found is None
                          else found.shape)
            node.dtype = result.dtype
            if result._base is None and result.autograd is None:
                result.autograd = node
                result.keys |= AUTOGRAD
            else:
                set_history(result, node)"""
ATTACH_ALL = """
        attach(node, result)"""


APPLY = """
def make_apply({formulas}):
    def apply(node, grads):
        if node.saved is None:
            raise used_twice(node)
        grad = grads[0]
        {names}node.saved
        {unpacked}
        return [{found}]
    return apply
"""


def apply_text(recipe):
    """The function that goes back through a node, as text."""
    unpacked, found = [], []
    first = len(recipe.names) - len(recipe.results)
    for i, name in enumerate(recipe.names):
        kind = recipe.types.get(name, "")
        if i >= first:
            unpacked.append(f"{name} = unpack({name}, node, {name!r}, "
                            f"{recipe.results[i - first]})")
        elif kind.endswith("[]") and kind.startswith("Tensor"):
            unpacked.append(f"{name} = tuple([x and unpack(x, node, "
                            f"{name!r}) for x in {name}])")
        elif kind.startswith("Tensor"):
            unpacked.append(f"if type({name}) is tuple: "
                            f"{name} = unpack({name}, node, {name!r})")
    for i, (_, names, first, pick) in enumerate(recipe.formulas):
        text = f"formula{i}({', '.join([first, *names])})"
        if first == "grad":
            text = f"{text} if grad is not None else None"
        found.append(text if pick is None else f"*chosen({text}, {pick})")
    return APPLY.format(
        formulas=", ".join(f"formula{i}" for i in range(len(found))),
        names="".join(name + ", " for name in recipe.names)
        + "= " * bool(recipe.names),
        unpacked="\n        ".join(unpacked) or "pass",
        found=", ".join(found))


def chosen(found, pick):
    """Those of a list of gradients that are wanted."""
    return [found and found[i] for i in pick]


def used_twice(node):
    return RuntimeError(
        f"backward through {node.name()} a second time: what it had saved "
        f"is freed after the first; to go through a graph twice, use "
        f"backward(retain_graph=True) the first time")


class OperatorNode(Node):
    """A node whose derivative stands in the table: a recipe's `prepare`
    makes it."""

    __slots__ = ("recipe", "saved")

    def name(self):
        return self.recipe.name

    def apply(self, grads):
        return self.recipe.apply(self, grads)

    def release(self):
        saved = self.saved
        if saved:
            for i in self.recipe.tensors:
                if type(saved[i]) is tuple:
                    self.saved = None
                    return


RECORD = """
def make(kernel, mode, run_for, runs):
    def recorded({arguments}):
        if not mode.enabled:
            return {unrecorded}
        which = {which}
        if not which:
            return kernel({arguments})
        try:
            run = runs[which]
        except KeyError:
            run = run_for(which)
        return run({arguments})
    return recorded
"""


def record(schema, kernel, formulas):
    """A function that runs the kernel and points the result at a new node.

    It is written for the operator: which arguments may want a gradient is
    known, so that only those are asked. The answers are bits of `which`,
    one for each argument or tensor in a list, and choose the recipe.
    """
    names = [a.name for a in schema.arguments]
    places = [i for i, a in enumerate(schema.arguments)
              if a.name in formulas]
    lists = [i for i in places if schema.arguments[i].type[-1] == "]"]
    runs = {}

    def run_for(which):
        bits = [bit for bit in range(which.bit_length()) if which >> bit & 1]
        positions = [(lists[0], tuple(bits))] if lists else [
            places[bit] for bit in bits]
        runs[which] = Recipe(schema, formulas, positions).make_run(kernel)
        return runs[which]

    call = f"kernel({', '.join(names)})"
    which = [f"wanted_of({names[i]})" for i in lists] or [
        f"(({x}.keys & AUTOGRAD if type({x}) is Tensor else "
        f"wants_grad({x})) and {1 << bit})"
        for bit, x in enumerate(names[i] for i in places)]
    space = {}
    exec(compile(RECORD.format(
        arguments=", ".join(names), which=" + ".join(which),
        unrecorded=f"mark_unrecorded({call})" if schema.is_view else call),
        f"<record {schema.name}>", "exec"), globals(), space)
    return space["make"](kernel, grad_mode, run_for, runs)


def wanted_of(tensors):
    """Which of several tensors want a gradient, as bits."""
    return sum([1 << i for i, x in enumerate(tensors) if wants_grad(x)])


def attach(node, results):
    """Make each of several results an output of the node."""
    node.shape = [shape_of(x) for x in results]
    node.dtype = [x.dtype for x in results]
    node.saved += tuple([save(results[nr]) for nr in node.recipe.results])
    for nr, x in enumerate(results):
        if x.dtype.category == 2:
            set_history(x, node, nr)


def wrap_unrecorded(operator, kernel):
    """The layer of views that were made inside no_grad."""
    schema = operator.schema

    def write(*args):
        target = args[0] if schema.name.endswith("_") else args[-1]
        if grad_mode.enabled and target.keys & UNRECORDED:
            raise RuntimeError(
                "a view that was made inside no_grad() is written to outside "
                "of it: the history of its base would not change; make the "
                "view outside, or write inside no_grad()")
        return kernel(*args)

    def view(*args):
        return mark_unrecorded(kernel(*args))

    if schema.is_write:
        return write
    return view if schema.is_view and schema.name != "detach" else kernel


UNRECORDED = add_layer(wrap_unrecorded)


def mark_unrecorded(view):
    view.keys |= UNRECORDED
    return view


def untracked(kernel):
    """For results that carry no gradient, not even as views."""
    def call(*args):
        result = kernel(*args)
        result._base = None
        return result
    return call


def refuse_out(schema, kernel):
    """`out=` is not recorded, so nothing in it may want a gradient."""
    def call(*args):
        if grad_mode.enabled:
            raise RuntimeError(
                f"{schema.name}(out=...) is not recorded, and an argument "
                f"requires grad; leave out= away, or use no_grad()")
        return kernel(*args)
    return call


def refuse_unknown(schema, kernel):
    """An operator that the table does not know."""
    def call(*args):
        if grad_mode.enabled:
            raise NotImplementedError(
                f"{schema.name}() has no derivative, and an argument "
                f"requires grad; give it one: derivative("
                f"{schema.full_name!r}, ...), or detach() the argument")
        return kernel(*args)
    return call


def grad_notes(self):
    """What a tensor's repr says of its gradient."""
    node = self.grad_fn
    if node is not None:
        return [f"grad_fn={node!r}"]
    return ["requires_grad=True"] if self.requires_grad else []


repr_notes["autograd"] = grad_notes


def sum_to(grad, shape):
    """Undo broadcasting: sum over what was repeated, so that `grad` has
    `shape`. RuntimeError if `shape` does not broadcast to that of grad."""
    if broadcast_shapes(grad.shape, shape) != grad.shape:
        raise RuntimeError(f"a gradient of shape {list(grad.shape)} is none "
                           f"for a tensor of shape {list(shape)}")
    new = len(grad.shape) - len(shape)
    if new and grad.shape[new:] == shape:
        return grad.sum(tuple(range(new)))
    dims = tuple(range(new)) + tuple(
        d + new for d, size in enumerate(shape)
        if size == 1 and grad.shape[d + new] != 1)
    return grad.sum(dims, keepdim=True).reshape(shape) if dims else grad


def fit(grad, shape, dtype):
    """A gradient in the shape and dtype that a node has noted."""
    if shape_of(grad) != shape:
        grad = sum_to(grad, shape)
    return grad if grad.dtype is dtype else grad.to(dtype)


def count_uses(roots):
    """How many edges lead to each node, over all that the roots reach."""
    uses = dict.fromkeys(roots, 0)
    stack = list(uses)
    while stack:
        for node in stack.pop().edges[::2]:
            if node in uses:
                uses[node] += 1
            elif node is not None:
                uses[node] = 1
                stack.append(node)
    return uses


def receive(arrived, node, nr, grad):
    """Add a gradient to those that have arrived at a node."""
    shape, dtype, found, count = node.shape, node.dtype, grad.array, 1
    if type(shape) is list:
        count, shape, dtype = len(shape), shape[nr], dtype[nr]
    if (grad.dtype is not dtype
            or (grad.shape if found is None else found.shape) != shape):
        grad = fit(grad, shape, dtype)
    grads = arrived.get(node)
    if grads is None:
        arrived[node] = [grad] if count == 1 else [
            grad if i == nr else None for i in range(count)]
        return
    grads[nr] = grad if grads[nr] is None else grads[nr] + grad


def run_backward(roots, retain_graph, create_graph, targets=None):
    """Carry gradients from `roots`, ((node, output number), grad), through
    the graph: each node once, after all that use it (Kahn's algorithm).

    With `targets`, {(node, output number): None}, the gradients that
    arrive there are filled in, only nodes on a way to one are walked, and
    no leaf is touched.
    """
    uses = count_uses([node for (node, _), _ in roots])
    walked = None if targets is None else on_the_way(targets, uses)
    arrived = {}
    for (node, nr), grad in roots:
        receive(arrived, node, nr, grad)
    ready = [node for node in arrived if not uses[node]]
    with set_grad_enabled(create_graph):
        while ready:
            node = ready.pop()
            grads = arrived.pop(node, None)
            if grads is not None and (targets or node.retained):
                note(node, grads, targets)
            if walked is None or node in walked:
                pass_on(node, grads, arrived, uses, ready)
                if not retain_graph:
                    node.release()


def pass_on(node, grads, arrived, uses, ready):
    """Apply a node, and give each input's node its part. Where no gradient
    arrived, none is passed on."""
    edges, place = node.edges, 0
    for grad in node.apply(grads) if grads else [None] * (len(edges) // 2):
        after = edges[place]
        if after is not None:
            if grad is not None:
                receive(arrived, after, edges[place + 1], grad)
            left = uses[after] = uses[after] - 1
            if not left:
                ready.append(after)
        place += 2


def on_the_way(targets, nodes):
    """Those of the nodes that lead to a target by at least one edge."""
    users = {}
    for node in nodes:
        for after in node.edges[::2]:
            users.setdefault(after, []).append(node)
    found, stack = set(), [node for node, _ in targets]
    while stack:
        for user in users.get(stack.pop(), ()):
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


def note(node, grads, targets):
    """Keep the gradients of a node's outputs that were asked for."""
    for nr, grad in enumerate(grads):
        if targets and (node, nr) in targets:
            targets[node, nr] = grad
    for nr, ref in node.retained or ():
        meta = ref()
        if meta is not None and grads[nr] is not None:
            accumulate(meta, grads[nr])


def first_grad(x, gradient):
    """The gradient to start from: 1 for a single number, else given."""
    if not x.requires_grad:
        raise RuntimeError(
            "backward() from something that no recorded operator made: it "
            "does not require grad and has no grad_fn. Was it computed in "
            "no_grad(), detached, or from tensors without requires_grad?")
    if gradient is None:
        if x.numel() != 1:
            raise RuntimeError(
                f"backward() starts by itself only from one number; this "
                f"tensor has shape {list(x.shape)}: take .sum() or .mean(), "
                f"or give backward(gradient) a tensor of that shape")
        return ones(x.shape, dtype=x.dtype, device=x.device)
    if not isinstance(gradient, Tensor):
        raise TypeError(f"gradient must be a tensor or None; got "
                        f"{type(gradient).__name__}")
    if (gradient.shape, gradient.device) != (x.shape, x.device):
        raise RuntimeError(
            f"gradient must have the tensor's shape {list(x.shape)} and "
            f"device '{x.device}'; got {list(gradient.shape)} on "
            f"'{gradient.device}'")
    return gradient


def as_roots(tensors, gradients):
    """Where to start, and with which gradient, for each tensor."""
    gradients = as_list(gradients) or [None] * len(tensors)
    if len(gradients) != len(tensors):
        raise RuntimeError(f"{len(tensors)} tensors to start from, but "
                           f"{len(gradients)} gradients for them")
    gradients = [first_grad(x, g) for x, g in zip(tensors, gradients)]
    return [(edge_of(x), g) for x, g in zip(tensors, gradients)]


def as_list(x):
    if x is None:
        return []
    return list(x) if isinstance(x, (list, tuple)) else [x]


def backward(tensors, grad_tensors=None, retain_graph=None,
             create_graph=False, inputs=None):
    """Add the gradients of `tensors` to `.grad` of the leaves they came
    from, or of `inputs` alone.

    grad_tensors: what to start from, for tensors of more than one element.
    retain_graph: keep what the graph saved, for another walk; the default
    is create_graph. create_graph: record the walk, so that the gradients
    have gradients. RuntimeError where nothing was recorded.
    """
    keep = create_graph if retain_graph is None else retain_graph
    roots = as_roots(as_list(tensors), grad_tensors)
    if inputs is None:
        return run_backward(roots, keep, create_graph)
    inputs = as_list(inputs)
    targets = {edge_of(x): None for x in checked_inputs(inputs)}
    run_backward(roots, keep, create_graph, targets)
    with set_grad_enabled(create_graph):
        for x in inputs:
            if targets[edge_of(x)] is not None:
                accumulate(meta_of(x), targets[edge_of(x)])


def checked_inputs(inputs):
    """The inputs, if gradients with respect to them can be asked for."""
    if not inputs:
        raise RuntimeError("no inputs: gradients with respect to what?")
    for i, x in enumerate(inputs):
        if not wants_grad(x):
            raise RuntimeError(f"input {i} does not require grad: call "
                               f"requires_grad_() before it is used")
    return inputs


def tensor_backward(self, gradient=None, retain_graph=None,
                    create_graph=False, inputs=None):
    """Add this tensor's gradients to `.grad` of the leaves it came from.

    gradient: what to start from, for a tensor of more than one element.
    The other arguments are those of lamina.autograd.backward.
    """
    backward(self, gradient, retain_graph, create_graph, inputs)


Tensor.backward = tensor_backward


def grad(outputs, inputs, grad_outputs=None, retain_graph=None,
         create_graph=False, allow_unused=None, materialize_grads=False):
    """The gradients of `outputs` with respect to `inputs`, as a tuple.

    With create_graph the gradients can be differentiated again.
    RuntimeError for an input that the outputs do not depend on, unless
    allow_unused: then its place holds None, or with materialize_grads
    zeros.
    """
    keep = create_graph if retain_graph is None else retain_graph
    inputs = checked_inputs(as_list(inputs))
    roots = as_roots(as_list(outputs), grad_outputs)
    targets = {edge_of(x): None for x in inputs}
    run_backward(roots, keep, create_graph, targets)
    found = [targets[edge_of(x)] for x in inputs]
    if materialize_grads:
        found = [x.new_zeros(x.shape) if g is None else g
                 for x, g in zip(inputs, found)]
    unused = [i for i, g in enumerate(found) if g is None]
    if unused and not allow_unused:
        raise RuntimeError(
            f"the outputs do not depend on input {unused[0]} of "
            f"{len(inputs)}; allow_unused=True gives None for it")
    return tuple(found)


derivative("mm",
           self=lambda grad, mat2: grad.mm(mat2.t()),
           mat2=lambda grad, self: self.t().mm(grad))
derivative("t", self=lambda grad: grad.t())
derivative("unsqueeze", self=lambda grad, self_shape:
           grad.reshape(self_shape))
derivative("squeeze", self=lambda grad, self_shape: grad.reshape(self_shape))
derivative("view", self=lambda grad, self_shape: grad.reshape(self_shape))
derivative("clone", self=lambda grad: grad)
derivative("sub.Tensor",
           self=lambda grad: grad,
           other=lambda grad, alpha: -maybe_multiply(grad, alpha))


where = functions["where"]


def numpy_threshold_backward(grad, x):
    return np.where(x <= 0, grad.dtype.type(0), grad)


elementwise("threshold_backward(Tensor grad_output, Tensor self) -> Tensor",
            "grad_output, but 0 where self is 0 or less: the way back "
            "through relu, in one operator.",
            lambda grad, x: 0.0 if x <= 0 else grad,
            np and numpy_threshold_backward, numbers=(), inplace=False)
threshold_backward = functions["threshold_backward"]
derivative("threshold_backward", grad_output=lambda grad, self:
           threshold_backward(grad, self))

derivative("div.Tensor",
           self=lambda grad, other: grad / other,
           other=lambda grad, self, other: -grad * ((self / other) / other))
derivative("neg", self=lambda grad: -grad)
derivative("abs", self=lambda grad, self: grad * self.sign())
derivative("log", self=lambda grad, self: grad / self)
derivative("tanh", self=lambda grad, result: grad * (1 - result * result))
derivative("sqrt", self=lambda grad, result: grad / (2 * result))
derivative("relu", self=lambda grad, result:
           threshold_backward(grad, result))
derivative("where.self",
           self=lambda grad, condition: where(condition, grad, 0.0),
           other=lambda grad, condition: where(condition, 0.0, grad))


def pow_self(grad, self, exponent):
    """exponent * self ** (exponent - 1), and 0 where exponent is 0."""
    if not isinstance(exponent, Tensor):
        return grad * 0.0 if exponent == 0 else grad * (
            exponent * self ** (exponent - 1))
    return where(exponent == 0, 0.0,
                 grad * (exponent * self ** (exponent - 1)))


def pow_exponent(grad, self, exponent, result):
    """result * log(self), and 0 at self = 0 for exponents from 0 on."""
    base = self if isinstance(self, Tensor) else (
        exponent.new_zeros(exponent.shape) + self)
    flat = ((base == 0) * (exponent >= 0)).bool()
    return grad * where(flat, 0.0, result * where(flat, 1.0, base).log())


derivative("pow.Tensor_Tensor", self=pow_self, exponent=pow_exponent)


NO_GRADIENT = """
    eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor
    logical_not logical_and logical_or logical_xor bitwise_not
    bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor
    bitwise_left_shift.Tensor bitwise_right_shift.Tensor gcd lcm
    isnan isinf isfinite isposinf isneginf signbit
"""
for name in NO_GRADIENT.split():
    derivative(name)


LN2, LN10 = math.log(2), math.log(10)
ROOT_PI = math.sqrt(math.pi)

derivative("exp2", self=lambda grad, result: grad * result * LN2)
derivative("expm1", self=lambda grad, result: grad * (result + 1))
derivative("log2", self=lambda grad, self: grad / (self * LN2))
derivative("log10", self=lambda grad, self: grad / (self * LN10))
derivative("log1p", self=lambda grad, self: grad / (self + 1))
derivative("reciprocal", self=lambda grad, result: -grad * result * result)
derivative("rsqrt", self=lambda grad, result: -0.5 * grad * result ** 3)
derivative("square", self=lambda grad, self: 2 * grad * self)
derivative("sigmoid",
           self=lambda grad, result: grad * (1 - result) * result)
derivative("erf", self=lambda grad, self:
           grad * (-self * self).exp() * (2 / ROOT_PI))
derivative("erfc", self=lambda grad, self:
           grad * (-self * self).exp() * (-2 / ROOT_PI))
derivative("erfinv", self=lambda grad, result:
           grad * (result * result).exp() * (ROOT_PI / 2))
derivative("lgamma", self=lambda grad, self: grad * self.digamma())
derivative("digamma", self=lambda grad, self: grad * self.polygamma(1))
derivative("_polygamma",
           self=lambda grad, self, n: grad * self.polygamma(n + 1))


derivative("sin", self=lambda grad, self: grad * self.cos())
derivative("cos", self=lambda grad, self: -grad * self.sin())
derivative("tan", self=lambda grad, result: grad * (1 + result * result))
derivative("asin", self=lambda grad, self: grad * (1 - self * self).rsqrt())
derivative("acos", self=lambda grad, self: -grad * (1 - self * self).rsqrt())
derivative("atan", self=lambda grad, self: grad / (1 + self * self))
derivative("sinh", self=lambda grad, self: grad * self.cosh())
derivative("cosh", self=lambda grad, self: grad * self.sinh())
derivative("asinh", self=lambda grad, self: grad * (self * self + 1).rsqrt())
derivative("acosh", self=lambda grad, self: grad * (self * self - 1).rsqrt())
derivative("atanh", self=lambda grad, self: grad / (1 - self * self))
derivative("deg2rad", self=lambda grad: grad.deg2rad())
derivative("rad2deg", self=lambda grad: grad.rad2deg())


def sinc_self(grad, self, result):
    x = where(self == 0, 1.0, self)             # no division by 0
    slope = ((math.pi * x).cos() - result) / x
    return grad * where(self == 0, self * (-math.pi ** 2 / 3), slope)


def logit_self(grad, self, eps):
    """1 / (x (1 - x)) inside; outside 0 if eps has held it there."""
    low, outside = (0.0, math.nan) if eps is None else (eps, 0.0)
    inside = (self >= low) & (self <= 1 - low)
    x = where(inside, self, 0.5)
    return where(inside, grad / (x * (1 - x)), outside)


derivative("sinc", self=sinc_self)
derivative("logit", self=logit_self)


def squares(a, b):
    """a * a + b * b, or 1 where that is 0, to divide by."""
    total = a * a + b * b
    return where(total == 0, 1.0, total)


def xlogy_self(grad, self, other):
    """log(other), and 0 where the result is 0 for want of a factor."""
    return where((self == 0) & (other <= 0), 0.0,
                 functions["xlogy"](grad, other))


derivative("xlogy.Tensor", self=xlogy_self,
           other=lambda grad, self, other: grad * self / other)
derivative("logaddexp",
           self=lambda grad, self, other: grad * (self - other).sigmoid(),
           other=lambda grad, self, other: grad * (other - self).sigmoid())
derivative("logaddexp2",
           self=lambda grad, self, other:
           grad * ((self - other) * LN2).sigmoid(),
           other=lambda grad, self, other:
           grad * ((other - self) * LN2).sigmoid())
derivative("ldexp.Tensor",
           self=lambda grad, other: grad.ldexp(other),
           other=lambda grad, result: grad * result * LN2)
derivative("atan2",
           self=lambda grad, self, other:
           grad * other / squares(self, other),
           other=lambda grad, self, other:
           -grad * self / squares(self, other))
derivative("hypot",
           self=lambda grad, self, result: grad * (self / result),
           other=lambda grad, other, result: grad * (other / result))


div = functions["div"]

derivative("fmod.Tensor", self=lambda grad: grad,
           other=lambda grad, self, other:
           -grad * div(self, other, rounding_mode="trunc"))
derivative("remainder.Tensor", self=lambda grad: grad,
           other=lambda grad, self, other:
           -grad * div(self, other, rounding_mode="floor"))
derivative("lerp.Tensor",
           self=lambda grad, weight: grad * (1 - weight),
           end=lambda grad, weight: grad * weight,
           weight=lambda grad, self, end: grad * (end - self))
derivative("addcmul",
           self=lambda grad: grad,
           tensor1=lambda grad, tensor2, value: grad * (tensor2 * value),
           tensor2=lambda grad, tensor1, value: grad * (tensor1 * value))
derivative("addcdiv",
           self=lambda grad: grad,
           tensor1=lambda grad, tensor2, value: grad * (value / tensor2),
           tensor2=lambda grad, tensor1, tensor2, value:
           -grad * (value * tensor1 / (tensor2 * tensor2)))


derivative("maximum",
           self=lambda grad, self, other: where(
               self == other, grad / 2, where(self < other, 0.0, grad)),
           other=lambda grad, self, other: where(
               self == other, grad / 2, where(self > other, 0.0, grad)))
derivative("minimum",
           self=lambda grad, self, other: where(
               self == other, grad / 2, where(self > other, 0.0, grad)),
           other=lambda grad, self, other: where(
               self == other, grad / 2, where(self < other, 0.0, grad)))
derivative("fmax",
           self=lambda grad, self, other: where(
               (self >= other) | other.isnan(), grad, 0.0),
           other=lambda grad, self, other: where(
               (self >= other) | other.isnan(), 0.0, grad))
derivative("fmin",
           self=lambda grad, self, other: where(
               (self <= other) | other.isnan(), grad, 0.0),
           other=lambda grad, self, other: where(
               (self <= other) | other.isnan(), 0.0, grad))


def within(self, min, max):
    """Where clamp has left an element as it was."""
    if min is None or max is None:
        return self <= max if min is None else self >= min
    return (self >= min) & (self <= max)


derivative("clamp",         # where min > max, the result is max
           self=lambda grad, self, min, max: where(
               within(self, min, max), grad, 0.0),
           min=lambda grad, self, min, max: where(
               (self < min) & (True if max is None else min < max),
               grad, 0.0),
           max=lambda grad, self, min, max: where(
               (self > max) | (False if min is None else max < min),
               grad, 0.0))
derivative("clamp_min",
           self=lambda grad, self, min: where(self >= min, grad, 0.0),
           min=lambda grad, self, min: where(self < min, grad, 0.0))
derivative("clamp_max",
           self=lambda grad, self, max: where(self <= max, grad, 0.0),
           max=lambda grad, self, max: where(self > max, grad, 0.0))
derivative("masked_fill.Tensor",
           self=lambda grad, mask: where(mask, 0.0, grad),
           value=lambda grad, mask: where(mask, grad, 0.0))
derivative("nan_to_num", self=lambda grad, self: where(
    self.isfinite(), grad, 0.0))
derivative("tril", self=lambda grad, diagonal: grad.tril(diagonal))
derivative("triu", self=lambda grad, diagonal: grad.triu(diagonal))


def nothing(grad):
    """A gradient of 0."""
    return grad.new_zeros(grad.shape)


for name in ("sign", "floor", "ceil", "trunc", "round", "round.decimals"):
    derivative(name, self=nothing)
derivative("floor_divide", self=nothing, other=nothing)
derivative("div.Tensor_mode",
           self=lambda grad, other, rounding_mode:
           nothing(grad) if rounding_mode else grad / other,
           other=lambda grad, self, other, rounding_mode:
           nothing(grad) if rounding_mode else
           -grad * ((self / other) / other))
derivative("frac", self=lambda grad: grad)
derivative("copysign.Tensor",           # sign(0) is 0: no side, no slope
           self=lambda grad, self, result:
           grad * self.sign() * result.sign(),
           other=nothing)
derivative("heaviside", self=nothing,
           values=lambda grad, self: where(self == 0, grad, 0.0))


def restore(x, shape, dim, keepdim):
    """A reduction's result with its reduced dimensions back, of size 1."""
    return x if keepdim else x.reshape(
        reduced_shape(shape, reduced_dims(dim, len(shape)), True))


derivative("sum.dim_IntList",
           self=lambda grad, self_shape, dim, keepdim:
           restore(grad, self_shape, dim, keepdim).expand(self_shape))
derivative("expand", self=lambda grad: grad)


def extreme_self(grad, self, result, dim, keepdim):
    """To the elements that were the extreme, in equal parts."""
    result = restore(result, self.shape, dim, keepdim)
    same = (self == result) | ((self != self) & (result != result))
    chosen = same.to(grad.dtype)                # nan is nan's like here
    grad = restore(grad, self.shape, dim, keepdim)
    return grad * (chosen / chosen.sum(dim, keepdim=True))


derivative("amax", self=extreme_self)
derivative("amin", self=extreme_self)
for name in ("argmax", "argmin", "any", "all"):
    derivative(name)
derivative("gather",
           self=lambda grad, self_shape, dim, index:
           grad.new_zeros(self_shape).scatter_add(dim, index, grad))
derivative("scatter_add",
           self=lambda grad: grad,
           src=lambda grad, dim, index: grad.gather(dim, index))
derivative("bmm",
           self=lambda grad, mat2: grad.bmm(mat2.transpose(1, 2)),
           mat2=lambda grad, self: self.transpose(1, 2).bmm(grad))


def solve_A(grad, A, result):
    part = functions["_solve"](A.transpose(-1, -2), grad)
    return -(part @ result.transpose(-1, -2))


def slogdet_A(grads, A):
    """The sign has no slope; the logarithm's is the inverse, turned."""
    if grads[1] is None:
        return None
    return grads[1].unsqueeze(-1).unsqueeze(-1) * functions["linalg_inv"](
        A).transpose(-1, -2)


derivative("_solve", A=solve_A,
           B=lambda grad, A: functions["_solve"](A.transpose(-1, -2), grad))
derivative("linalg_slogdet",
           A=slogdet_A)


def cholesky_A(grad, result):
    """Murray, Differentiation of the Cholesky decomposition, 2016."""
    turned = result.transpose(-1, -2)
    part = (turned @ grad).tril()
    part = part + part.tril(-1).transpose(-1, -2)
    left = functions["_solve"](turned, part)
    return functions["_solve"](turned, left.transpose(-1, -2)).transpose(
        -1, -2) / 2


derivative("_cholesky", A=cholesky_A)
derivative("tril", self=lambda grad, diagonal: grad.tril(diagonal))
derivative("triu", self=lambda grad, diagonal: grad.triu(diagonal))


def softmax_self(grad, result, dim):
    product = grad * result
    return product - result * product.sum(dim, keepdim=True)


derivative("_softmax", self=softmax_self)
derivative("_log_softmax",
           self=lambda grad, result, dim:
           grad - result.exp() * grad.sum(dim, keepdim=True))
for name in ("argsort", "_cummax", "_cummin", "_principal"):
    derivative(name)            # places carry no gradient


def running_back(grad, dim):
    return grad.flip(dim).cumsum(dim).flip(dim)


def product_before(x, dim):
    """The product of all elements before each one, along dim."""
    place = (x.detach() * 0 == 0).cumsum(dim) * 0
    place = (place + 1).cumsum(dim) - 1
    last = where(place > 0, place - 1, 0)
    return where(place > 0, x.cumprod(dim).gather(dim, last), 1.0)


def prod_self(grad, self, dim, keepdim):
    others = product_before(self, dim) * product_before(
        self.flip(dim), dim).flip(dim)
    return restore(grad, self.shape, dim, keepdim) * others


derivative("prod.dim_int", self=prod_self)
derivative("_cumsum", self=lambda grad, dim: running_back(grad, dim))


def cumprod_self(grad, self, result, dim):
    """For each i, the sum over j >= i of grad[j] times the product of all
    elements to j but i. Without a zero that is a quotient."""
    if self.device.type == "meta" or not (self == 0).any().item():
        return running_back(grad * result, dim) / self
    if not self.shape:
        return grad
    grad, x = grad.transpose(dim, -1), self.transpose(dim, -1)
    size = x.shape[-1]
    place = tensor(list(range(size)), device=x.device)
    row, column = place.unsqueeze(1), place.unsqueeze(0)
    # each row leaves one element out
    without = where(row == column, 1.0, x.unsqueeze(-2)).cumprod(-1)
    part = grad.unsqueeze(-2) * where(column >= row, without, 0.0)
    return part.sum(-1).transpose(dim, -1)


def logcumsumexp_self(grad, self, result, dim):
    """grad.exp() may overflow, so its parts stay logarithms. The source is
    PyTorch's FunctionsManual.cpp."""
    def part(sign):
        size = where(sign * grad > 0, (sign * grad).log() - result,
                     -math.inf)
        size = size.flip(dim).logcumsumexp(dim)
        return (size.flip(dim) + self).exp()
    return part(1) - part(-1)


derivative("_cumprod", self=cumprod_self)
derivative("_logcumsumexp", self=logcumsumexp_self)


def norm_self(grad, self, result, dim, keepdim, p):
    grad = restore(grad, self.shape, dim, keepdim)
    result = restore(result, self.shape, dim, keepdim)
    if p in (math.inf, -math.inf):
        chosen = (self.abs() == result).to(grad.dtype)
        return grad * self.sign() * chosen / chosen.sum(dim, keepdim=True)
    if p == 0:
        return nothing(self)
    if p == 1:
        return grad * self.sign()
    length = where(result == 0, 1.0, result)
    if p == 2:
        return grad * where(result == 0, 0.0, self / length)
    size = where(self == 0, 1.0, self.abs())
    slope = self.sign() * (size / length) ** (p - 1)
    return grad * where(result == 0, 0.0, slope)


derivative("_norm", self=norm_self)


derivative("scatter.src",
           self=lambda grad, dim, index: grad.scatter(dim, index, 0),
           src=lambda grad, dim, index: grad.gather(dim, index))


def scatter_extreme_share(grad, self, result, dim, index, src):
    """grad, divided by how many have reached the extreme."""
    winners = (src == result.gather(dim, index)).to(grad.dtype)
    count = (self == result).to(grad.dtype).scatter_add(dim, index, winners)
    return grad / count, winners


def scatter_extreme_self(grad, self, result, dim, index, src):
    share, _ = scatter_extreme_share(grad, self, result, dim, index, src)
    return share * (self == result)


def scatter_extreme_src(grad, self, result, dim, index, src):
    share, winners = scatter_extreme_share(
        grad, self, result, dim, index, src)
    return share.gather(dim, index) * winners


for name in ("_scatter_amax", "_scatter_amin"):
    derivative(name, self=scatter_extreme_self, src=scatter_extreme_src)


def scatter_prod_self(grad, self, dim, index, src):
    one = (self * 0 + 1).detach()
    return grad * functions["_scatter_prod"](one, dim, index, src)


def scatter_prod_src(grad, self, result, dim, index, src):
    """The product of the others of a place: a quotient, but for zeros. The
    only zero of a place sees the product without it."""
    zero = (src == 0).to(src.dtype)
    zeros = (self.detach() * 0).scatter_add(dim, index, zero)
    filled = where(src == 0, 1.0, src)
    without = functions["_scatter_prod"](self, dim, index, filled)
    only = (zeros.gather(dim, index) == 1) * (src == 0)
    return where(only, (grad * without).gather(dim, index),
                 (grad * result).gather(dim, index) / filled)


derivative("_scatter_prod", self=scatter_prod_self, src=scatter_prod_src)


define("embed(Tensor self, int[] input_size, int[] stride, int offset) "
       "-> Tensor",
       "Zeros of shape input_size with self added at the elements that a "
       "view of that stride and offset reads: the way back of a view.")


@impl("embed", "python")
def python_embed(self, input_size, stride, offset):
    out = zeros(input_size, dtype=self.dtype, device="python")
    memory, source = (x.storage.elements(x.dtype) for x in (out, self))
    places = offsets(Geometry(self.shape, stride, offset))
    for place, here in zip(places, offsets(self.geometry)):
        memory[place] += source[here]
    return out


@impl("embed", "meta")
def meta_embed(self, input_size, stride, offset):
    return zeros(input_size, dtype=self.dtype, device="meta")


@impl("embed", "cpu")
def cpu_embed(self, input_size, stride, offset):
    out = np.zeros(input_size, self.dtype.name)
    geometry = Geometry(self.shape, stride, offset)
    if collides(geometry):
        np.add.at(out.reshape(-1), list(offsets(geometry)),
                  array(self).reshape(-1))
    elif array(self).size:
        step = out.itemsize
        np.ndarray(self.shape, out.dtype, out, offset * step,
                   [s * step for s in stride])[...] = array(self)
    return from_array(out)


def collides(geometry):
    """Whether two indices may be one element: sorted by stride, a
    dimension does not step over all that the smaller ones span."""
    span = 0
    for stride, size in sorted(zip(geometry.strides, geometry.shape)):
        if size > 1:
            if stride <= span:
                return True
            span += stride * (size - 1)
    return False


def put_back(grad, shape, view):
    """The gradient of a row-major tensor of that shape, from that of a
    view of it."""
    return grad.embed(shape, view.strides, view.offset)


def read_from(x, view):
    """x's elements where a view of a row-major tensor has its own."""
    x = x.contiguous()
    return x.as_strided(view.shape, view.strides,
                        x.storage_offset() + view.offset)


def move(grad, source, target):
    """The elements of grad, laid out like `source`, as `target` sees the
    same memory; 0 where source has none."""
    if collides(target):
        raise RuntimeError(
            f"no gradient through a view of a tensor whose own elements "
            f"overlap in memory (shape {list(target.shape)}, strides "
            f"{list(target.strides)}): take a clone() before the view")
    first = min(source.offset, target.offset)
    source, target = (g._replace(offset=g.offset - first)
                      for g in (source, target))
    memory = put_back(grad, (max(map(extent, (source, target))),), source)
    return read_from(memory, target)


def extent(geometry):
    """How many elements of memory it takes to hold a geometry."""
    return 1 + geometry.offset + sum(
        (size - 1) * stride
        for size, stride in zip(geometry.shape, geometry.strides) if size)


def as_strided_self(grad, self_geometry, size, stride, storage_offset):
    offset = self_geometry.offset if storage_offset is None else (
        storage_offset)
    return move(grad, Geometry(size, stride, offset), self_geometry)


derivative("as_strided", self=as_strided_self)
derivative("embed", self=lambda grad, self_shape, stride, offset:
           read_from(grad, Geometry(self_shape, stride, offset)))
derivative("select.int", self=lambda grad, self_shape, dim, index:
           put_back(grad, self_shape,
                    strides.select(row_major(self_shape), dim, index)))
derivative("narrow", self=lambda grad, self_shape, dim, start, length:
           put_back(grad, self_shape, strides.narrow(
               row_major(self_shape), dim, start, length)))
derivative("getitem", self=lambda grad, self_shape, items:
           put_back(grad, self_shape,
                    strides.getitem(row_major(self_shape), items)))


derivative("diagonal", self=lambda grad, self_shape, offset, dim1, dim2:
           put_back(grad, self_shape, strides.diagonal(
               row_major(self_shape), offset, dim1, dim2)))
derivative("unfold", self=lambda grad, self_shape, dimension, size, step:
           put_back(grad, self_shape, strides.unfold(
               row_major(self_shape), dimension, size, step)))
derivative("view.dtype")        # other numbers, from the same bytes
derivative("flip", self=lambda grad, dims: grad.flip(dims))


def cat_tensors(grad, tensors_shapes, dim):
    """The part of the gradient that each tensor was joined in at."""
    d = strides.wrap_dim(dim, grad.ndim)
    sizes = [0 if shape == (0,) else shape[d] for shape in tensors_shapes]
    return [part.reshape(shape) for part, shape in zip(
        grad.split(sizes, d), tensors_shapes)]


derivative("cat", tensors=cat_tensors)
derivative("index.Tensor", self=lambda grad, self_shape, indices:
           grad.new_zeros(self_shape).index_put(indices, grad, True))
derivative("index_put",
           self=lambda grad, indices, accumulate: grad if accumulate else
           grad.index_put(indices, grad.new_zeros(())),
           values=lambda grad, indices, values_shape:
           sum_to(grad.index(indices), values_shape))
derivative("nonzero")


def inverse_order(dims):
    """The order that undoes an order of dimensions."""
    back = [0] * len(dims)
    for i, d in enumerate(dims):
        back[d] = i
    return back


derivative("transpose.int",
           self=lambda grad, dim0, dim1: grad.transpose(dim0, dim1))
derivative("permute",
           self=lambda grad, dims: grad.permute(inverse_order(dims)))
derivative("numpy_T", self=lambda grad: grad.numpy_T())
derivative("detach")
derivative("_to_copy", self=lambda grad: grad)
derivative("_to_device",
           self=lambda grad, self_device: grad.to(str(self_device)))


class GradcheckError(RuntimeError):
    """A gradient is not what central differences say."""


def directions(x, fast_mode, seed):
    """Rows to look along: one for each element of x, or one at random, of
    length 1."""
    count = x.numel()
    if not fast_mode:
        return eye(count, dtype=x.dtype, device=x.device)
    draw = random.Random(seed).gauss
    row = [draw(0, 1) for _ in range(count)]
    length = math.hypot(*row) or 1
    return tensor([[a / length for a in row]], dtype=x.dtype,
                  device=x.device).reshape(1, count)


def outputs_of(func, inputs):
    """Those that carry a gradient; if none does, all floats."""
    outputs = [y for y in as_list(func(*inputs))
               if isinstance(y, Tensor) and y.dtype.category == 2]
    return [y for y in outputs if y.requires_grad] or outputs


def numerical(func, inputs, x, rows, eps):
    """By central differences: for each output, its slopes along each of
    the rows, a column for each element of the output."""
    memory, before = x.detach(), x.detach().clone()
    version = x.storage.version

    def at(step):
        memory.copy_(before + step)
        return [y.detach().clone() for y in outputs_of(func, inputs)]

    try:
        found = []
        for row in rows:
            step = eps * row.reshape(x.shape)
            found.append([((high - low) / (2 * eps)).reshape(-1)
                          for high, low in zip(at(step), at(-step))])
    finally:
        memory.copy_(before)
        x.storage.version = version     # nothing has changed
    return [stack(slopes) for slopes in zip(*found)]


def analytical(outputs, nr, inputs, rows, alone):
    """By backward: for each input, its gradient of output `nr` from each
    of the rows. What is not `alone` starts from all outputs, with zeros."""
    y = outputs[nr]
    if not y.requires_grad:
        return [x.new_zeros(len(rows), x.numel()) for x in inputs]
    found = []
    for row in rows:
        roots, grads = [y], [row.reshape(y.shape)]
        if not alone:
            others = [z for z in outputs if z is not y]
            roots += others
            grads += [z.new_zeros(z.shape) for z in others]
        found.append([g.reshape(-1) for g in grad(
            roots, inputs, grads, retain_graph=True, allow_unused=True,
            materialize_grads=True)])
    return [stack(gradients) for gradients in zip(*found)]


def checked(inputs):
    """The numbers of those that want a gradient; a step must be possible
    in each."""
    wanted = [i for i, x in enumerate(inputs) if wants_grad(x)]
    if not wanted:
        raise ValueError(f"none of the {len(inputs)} inputs requires grad: "
                         f"there is no gradient to check")
    for i in wanted:
        if inputs[i].dtype.itemsize < 8:
            warnings.warn(
                f"input {i} is {inputs[i].dtype}: differences of such "
                f"numbers are mostly rounding; use float64", stacklevel=4)
        if collides(inputs[i].geometry):
            raise RuntimeError(
                f"two indices of input {i} may be one element (shape "
                f"{list(inputs[i].shape)}, strides "
                f"{list(inputs[i].stride())}): a step in one would be a "
                f"step in the other; give a clone()")
    return wanted


def mismatch(low, high, atol, rtol):
    """Where two matrices differ most beyond the tolerance, or None. What
    is expected comes first."""
    worst, place = 0.0, None
    for i, (row, other) in enumerate(zip(low.tolist(), high.tolist())):
        for j, (a, b) in enumerate(zip(row, other)):
            gap = 0.0 if a == b else abs(a - b) - atol - rtol * abs(a)
            if not gap <= worst:
                worst, place = (math.inf if gap != gap else gap), (i, j)
    return place


def compare(func, inputs, wanted, eps, atol, rtol, nondet_tol, alone,
            fast_mode):
    """Raise GradcheckError for the first Jacobian that is wrong."""
    xs = [inputs[i] for i in wanted]
    outputs = outputs_of(func, inputs)
    ends = [directions(y, fast_mode, f"output {nr}")
            for nr, y in enumerate(outputs)]
    found = [analytical(outputs, nr, xs, rows, alone) if len(rows) else None
             for nr, rows in enumerate(ends)]
    for k, (i, x) in enumerate(zip(wanted, xs)):
        starts = directions(x, fast_mode, f"input {i}")
        slopes = numerical(func, inputs, x, starts, eps)
        for nr, (y, n, rows) in enumerate(zip(outputs, slopes, ends)):
            if not len(rows):
                continue
            a = found[nr][k].detach().t()
            if fast_mode:
                n, a = n @ rows.t(), starts @ a
            place = mismatch(n, a, atol, rtol)
            if place:
                raise GradcheckError(report(
                    (nr, y), (i, x), place, n, a, fast_mode))
    for nr, rows in enumerate(ends):
        again = analytical(outputs, nr, xs, rows, alone) if len(rows) else ()
        for i, one, two in zip(wanted, found[nr] or (), again):
            if mismatch(one, two, nondet_tol, 0.0):
                raise GradcheckError(
                    f"two walks backward from output {nr} give input {i} "
                    f"two gradients, more than nondet_tol={nondet_tol} "
                    f"apart:\n{one}\n{two}")


def index_of(place, shape):
    """The indices of an element, from its number in row-major order."""
    found = []
    for size in reversed(shape):
        place, i = divmod(place, size)
        found.insert(0, i)
    return found


def report(output, given, place, n, a, fast_mode):
    """What gradcheck says: which input, which output, both answers."""
    (nr, y), (i, x) = output, given
    text = (f"the gradient of output {nr} with respect to input {i} is not "
            f"what central differences say")
    if fast_mode:
        return (f"{text}: along one random direction they give "
                f"{n.item()}, backward {a.item()}")
    row, column = (index_of(p, t.shape) for p, t in zip(place, (x, y)))
    return (f"{text}. Worst: d output{column} / d input{row} is "
            f"{n[place].item():.6g}, backward says {a[place].item():.6g}.\n"
            f"A row for each element of the input, a column for each of the "
            f"output.\nnumerical:\n{n}\nanalytical:\n{a}")


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3,
              raise_exception=True, nondet_tol=0.0,
              check_undefined_grad=True, check_grad_dtypes=False,
              fast_mode=False):
    """Compare the gradients of func(*inputs) with central differences.

    The inputs that require grad are checked; they should be float64. A
    gradient may differ by atol + rtol * |numerical|. The answer is True;
    for a wrong gradient GradcheckError, or False without raise_exception.
    nondet_tol: how far two walks backward may differ.
    check_undefined_grad: go back from one output at a time, so that the
    gradients of the others are None; else they are zeros.
    check_grad_dtypes: is always true, the engine sees to it.
    fast_mode: one random direction, and the whole Jacobian only to report.
    """
    inputs = as_list(inputs)
    settings = eps, atol, rtol, nondet_tol, check_undefined_grad
    wanted = checked(inputs)
    try:
        try:
            compare(func, inputs, wanted, *settings, fast_mode)
        except GradcheckError:
            if fast_mode and raise_exception:   # the slow way says more
                compare(func, inputs, wanted, *settings, False)
            raise
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5,
                  rtol=1e-3, raise_exception=True, nondet_tol=0.0,
                  check_undefined_grad=True, check_grad_dtypes=False,
                  fast_mode=False):
    """Compare the gradients of the gradients of func(*inputs), with
    respect to the inputs and to grad_outputs, with central differences.

    grad_outputs: what comes in at the outputs; random numbers if not
    given. The rest is gradcheck's.
    """
    inputs = as_list(inputs)
    if grad_outputs is None:
        grad_outputs = [
            directions(y, True, f"start {nr}").reshape(
                y.shape).requires_grad_()
            for nr, y in enumerate(outputs_of(func, inputs))]
    grad_outputs, count = as_list(grad_outputs), len(inputs)

    def first(*args):
        ends = outputs_of(func, args[:count])
        starts = [x for x in args[:count] if wants_grad(x)]
        found = grad(ends, starts, args[count:], create_graph=True,
                     allow_unused=True)
        return [g for g in found if g is not None]

    return gradcheck(
        first, [*inputs, *grad_outputs], eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes, fast_mode=fast_mode)


class CopySlices(Node):
    """A write through a view, as the base sees it."""

    __slots__ = ("base", "view", "inner", "has_self")

    def __init__(self, base, base_edge, view, inner, has_self):
        self.start((*base_edge, *inner.edges[2 * has_self:]), base)
        self.base = base.geometry
        self.view = view.geometry
        self.inner = inner          # the node of the operator that wrote
        self.has_self = has_self    # whether the old values went into it

    def apply(self, grads):
        part = move(grads[0], self.base, self.view)
        # what a formula makes of a saved result leads to this node, and it
        # may be walked after self.inner is released
        inner = OperatorNode()
        for name in ("recipe", "edges", "shape", "dtype",
                     "retained", "saved"):
            setattr(inner, name, getattr(self.inner, name))
        found = list(inner.apply([part]))
        rest = grads[0] - move(part, self.view, self.base)
        if self.has_self and found[0] is not None:
            rest = rest + move(found[0], self.view, self.base)
        return [rest] + found[self.has_self:]

    def release(self):
        self.inner.release()


class ViewNode(Node):
    """A view of a base that has been written to, made anew from it."""

    __slots__ = ("base", "view")

    def __init__(self, base, view):
        self.start(edge_of(base), view)
        self.base = base.geometry
        self.view = view.geometry

    def name(self):
        return "AsStridedBackward0"

    def apply(self, grads):
        return [move(grads[0], self.view, self.base)]


def refresh(x):
    """Give a view whose base was written to the base's new history."""
    base = x._base
    if wants_grad(base) and not is_leaf(base):
        x.autograd.edge = ViewNode(base, x), 0
    x.autograd.version = x.storage.version


def record_write(schema, kernel, formulas):
    """Run an in-place kernel; give the tensor its new history."""
    places = [i for i, a in enumerate(schema.arguments)
              if a.name in formulas]
    recipe_for = functools.cache(
        functools.partial(Recipe, schema, formulas))
    needs_old = {i: "self" in Recipe(schema, formulas, (i,)).names
                 for i in places}

    def recorded(self, *args):
        if not grad_mode.enabled or self.dtype.category != 2:
            return kernel(self, *args)
        base = self if self._base is None else self._base
        check_leaf(self, base)
        inputs = (self, *args)
        positions = tuple([i for i in places if wants_grad(inputs[i])])
        base_edge = edge_of(base) if wants_grad(base) else (None, 0)
        if any([needs_old[i] for i in positions]):
            inputs = (self.clone(), *args)
        edges = edge_of(self) if 0 in positions else None
        node = recipe_for(positions).prepare(*inputs)
        if edges:                       # not to the clone
            node.edges = edges + node.edges[2:]
        kernel(self, *args)
        if not wants_grad(base):
            expect_late_views(base)
        if node.recipe.results:
            node.saved += (save(self),)
        node.shape, node.dtype = metadata_of(self)
        if base is self:
            set_history(self, node)
        else:
            set_history(base, CopySlices(base, base_edge, self, node,
                                         positions[:1] == (0,)))
            set_history(self, ViewNode(base, self))
        return self
    return recorded


def check_leaf(self, base):
    """A leaf that wants a gradient cannot become the result of a write."""
    leaf = wants_grad(self) and self.is_leaf
    if leaf or (wants_grad(self) or wants_grad(base)) and is_leaf(base):
        what = "a leaf" if leaf else "a view of a leaf"
        raise RuntimeError(
            f"{what} that requires grad is written to in place: its gradient "
            f"would be that of another value. To update a parameter, write "
            f"inside no_grad(); else use the operator that makes a new "
            f"tensor")


# the old values are lost
derivative("copy_", self=nothing, src=lambda grad: grad)
derivative("fill_", self=nothing)


late_bases = {}


def expect_late_views(base):
    """Stand on the way of every call, as long as this base lives."""
    key = id(base)
    late_bases[key] = weakref.ref(base, lambda _: forget_base(key))
    include(LATE, True)


def forget_base(key):
    late_bases.pop(key, None)
    include(LATE, bool(late_bases))


def catch_up(x):
    """Give a view without history that of its base; whether there was
    one to give."""
    base = x._base
    if (base is None or x.keys & AUTOGRAD or id(base) not in late_bases
            or x.dtype is not base.dtype):
        return False
    set_history(x, ViewNode(base, x))
    return True


def wrap_late(operator, kernel):
    """The layer that looks for views which are behind their base."""
    def late(*args):
        tensors = [x for x in args if isinstance(x, Tensor)]
        if not any([catch_up(x) for x in tensors]):
            return kernel(*args)
        keys = functools.reduce(builtin.or_, (x.keys for x in tensors),
                                dispatch.included & ~LATE)
        return lookup(operator, keys)(*args)
    return late


LATE = add_layer(wrap_late)


def grad_fn_now(x):
    """The node that made x, or that its base has brought it."""
    catch_up(x)
    return get_grad_fn(x)


Tensor.grad_fn = property(grad_fn_now)
Tensor.is_leaf = property(lambda x: grad_fn_now(x) is None)
Tensor.requires_grad = property(
    lambda x: catch_up(x) or wants_grad(x), requires_grad_)


@method
def detach_(self):
    """Cut this tensor off from the graph that made it."""
    if self._base is not None:
        raise RuntimeError("detach_() of a view would cut its base off too; "
                           "use detach()")
    self.autograd = None
    self.keys &= ~AUTOGRAD
    return self


@method
def retain_grad(self):
    """Keep the gradient of a tensor that is no leaf, in .grad."""
    if not self.requires_grad:
        raise RuntimeError("retain_grad() of a tensor that does not require "
                           "grad")
    node = get_grad_fn(self)
    if node is not None and not self.autograd.retains_grad:
        keep_grad(self)


Tensor.retains_grad = property(
    lambda self: self.autograd is not None and self.autograd.retains_grad)
