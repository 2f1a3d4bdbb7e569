"""Autograd: where to keep the graph.

Exported from chapters/08_autograd.ipynb by `course export`; edit the chapter,
not this file.
"""

import collections
import copy
import functools
import inspect
import itertools
import math
import operator as builtin
import random
import sys
import threading
import traceback
import types
import warnings
import weakref

import lamina.dispatch as dispatch
import lamina.strides as strides
from lamina.broadcasting import (
    ZERO, broadcast_shapes, elementwise, quiet, run_quiet, short,
)
from lamina.dispatch import (
    CPU, add_layer, array, define, from_array, functions, impl, include,
    kernel_of, lookup, new_tensor, np, numpy_dtypes, operators, own,
)
from lamina.reductions import (
    in_blocks, pairwise_sum, reduced_dims, reduced_shape, row_of_ones, rowwise,
    short_rows,
)
from lamina.storage import Storage, float32
from lamina.strides import (
    Geometry, Tensor, eye, method, nearest, offsets, ones, repr_notes,
    row_major, stack, tensor, zeros,
)

__all__ = [
    "no_grad",
    "enable_grad",
    "set_grad_enabled",
    "is_grad_enabled",
    "inference_mode",
    "is_inference_mode_enabled",
    "derivative",
    "derivatives",
    "utils",
]


class GradMode(threading.local):
    """Whether operators are recorded; each thread has its own."""

    enabled = True
    inference = False


grad_mode = GradMode()


def is_grad_enabled():
    """Whether this thread records operators."""
    return grad_mode.enabled


class no_grad:
    """Do not record what happens in a block, or in a function."""

    mode = False

    def __new__(cls, function=None):
        self = object.__new__(cls)
        return self if function is None else self(function)     # bare

    def __enter__(self):
        self.before = grad_mode.enabled
        grad_mode.enabled = self.mode

    def __exit__(self, *exc):
        grad_mode.enabled = self.before

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            return wrap_generator(function, self.again)

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self.again():
                return function(*args, **kwargs)
        return wrapped

    def again(self):
        """A fresh context like this one."""
        return set_grad_enabled(self.mode)


def wrap_generator(function, mode):
    """A generator function in a mode: entered anew for each step, so that
    the code between two steps keeps its own."""
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with mode():
            steps = function(*args, **kwargs)
        step, given = steps.send, (None,)
        try:
            while True:
                try:
                    with mode():
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
            with mode():
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


FIRST = itertools.repeat(0)     # the numbers of outputs, as long as all are 0


class Node:
    """One recorded operator, in the graph that backward walks.

    `edges` holds, for each input that wants a gradient, the node that
    made it, and `numbers` which of that node's outputs it was: None, as
    nearly always, if each was the first. `next_functions` gives pairs.
    `shape` and `dtype` are those of a gradient that comes in, lists of
    them if the operator has several outputs. `hooks` is None, or what is
    to be called when the node's turn comes.
    """

    __slots__ = ("edges", "numbers", "shape", "dtype", "hooks",
                 "__weakref__")
    retains_grad = False

    def start(self, edges, output):
        """Fill the slots. (No __init__: most nodes are made in a hurry.)"""
        self.lead_to(edges)
        self.shape, self.dtype = metadata_of(output)
        self.hooks = None

    def lead_to(self, edges):
        """Let the gradients go to these pairs of a node and the number of
        one of its outputs."""
        self.edges = tuple([node for node, _ in edges])
        numbers = tuple([nr for _, nr in edges])
        self.numbers = numbers if any(numbers) else None

    @property
    def next_functions(self):
        """Pairs of a node and the number of one of its outputs."""
        return tuple(zip(self.edges, self.numbers or FIRST))

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

    __slots__ = ("grad", "frozen", "leaf", "parts")

    def __init__(self, variable):
        self.start((), variable)
        self.grad = None
        self.frozen = False         # requires_grad_(False), since
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
        if self.frozen:
            return ()
        if (self.grad is None and not grad_mode.enabled
                and holders(grads) == ALONE):
            self.grad = grads[0]
        else:
            accumulate(self, grads[0])
        return ()


def holders(grads):
    """How many references there are to a gradient and to its array; None
    if it is not all of its memory, row after row, or has a history."""
    grad = grads[0]
    found = grad.array
    if (found is None or type(grad) is not Tensor
            or grad.autograd is not None):
        return None
    flags = found.flags
    if not (flags.owndata and flags.c_contiguous):
        return None
    return sys.getrefcount(grad), sys.getrefcount(found)


ALONE = holders([own(np.empty(1, "f"), float32)]) if np else ()


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
    if not self.is_leaf:
        if not requires_grad:
            raise RuntimeError(
                "only a leaf's requires_grad can be changed, and this tensor "
                "was made by an operator; use .detach()")
    elif not requires_grad:
        self.keys &= ~AUTOGRAD
        if self.autograd is not None:
            self.autograd.frozen = True
    else:
        if not self.dtype.is_floating_point:
            raise RuntimeError(f"only floating-point tensors have gradients; "
                               f"this is {self.dtype}: convert it with "
                               f".to(lamina.float32)")
        if self.autograd is None:
            self.autograd = AccumulateGrad(self)
        self.autograd.frozen = False
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
    grad = meta.grad if type(meta) is AutogradMeta else None
    if grad is None and not meta.retains_grad:
        warnings.warn(".grad of a tensor that is no leaf is not kept; call "
                      ".retain_grad() on it before backward", stacklevel=2)
    return grad


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
    meta_of(self).grad = grad


Tensor.grad = property(get_grad, set_grad,
                       lambda self: set_grad(self, None))
Tensor.output_nr = property(
    lambda self: edge_of(self)[1] if self.autograd else 0)


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
           other=maybe_multiply)
derivative("mul.Tensor",
           self=lambda grad, other: grad * other,
           other=lambda grad, self: grad * self)
derivative("exp", self=lambda grad, result: grad * result)


def version_of(x):
    """How often the memory of x has been written to."""
    storage = x._storage
    return 0 if storage is None else storage.version


Tensor._version = property(version_of)
FREED = object()        # where something was saved, after backward


def save(x):
    """What is saved of a result: its parts. An array that owns its memory
    says what the geometry would; a view's may begin anywhere."""
    storage, geometry = x.storage, x._geometry
    return (x.autograd if x.keys & AUTOGRAD else None, storage.version,
            storage, x.array if geometry is None else geometry, x.dtype)


def unpack(saved, node, name, output_nr=None):
    """The tensor that was saved; RuntimeError if it was written to since.

    With output_nr it was that one of the node's own results. A number, or
    None, is given as it is.
    """
    if saved is FREED:
        raise used_twice(node)
    if isinstance(saved, Tensor):
        saved = saved, getattr(node, f"{name}_version")
    if type(saved) is not tuple:
        return saved
    if len(saved) == 3:
        return unpack_by_hook(saved, node, output_nr)
    if len(saved) == 2:
        x, version = saved
        if version_of(x) != version:
            raise overwritten(x, version, node, name)
        return x
    meta, version, storage, memory, dtype = saved
    if type(memory) is Geometry:
        x = Tensor(storage, memory, dtype)
    else:
        x = new_tensor(Tensor)          # own(), but for the storage
        x._storage, x.array, x.dtype = storage, memory, dtype
        x.keys = storage.device.bit | dtype.bit
        x._geometry = x._base = x.autograd = None
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
    hooks_of(node).retained.append((output_nr, weakref.ref(meta)))


def meta_of(x):
    """What can hold a gradient of x; a bare node cannot."""
    if not isinstance(x.autograd, (AccumulateGrad, AutogradMeta)):
        x.autograd = AutogradMeta(x.autograd)
    return x.autograd


anomaly = types.SimpleNamespace(on=False, nan=True)
recorded_at = weakref.WeakKeyDictionary()       # node: lines of a program


class Hooks:
    """What is called when a node's turn comes, each kind in its order."""

    __slots__ = ("tensor", "retained", "before", "after", "accumulated")

    def __init__(self):
        self.tensor = {}        # (output number, function of a gradient)
        self.retained = []      # (output number, who keeps it)
        self.before = {}        # functions of all the outputs' gradients
        self.after = {}         # and of the inputs' too
        self.accumulated = {}   # functions of a leaf


def hooks_of(node):
    """The hooks of a node, which has a place for them from now on."""
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks


class Recipe:
    """How to save and to go back, for one operator and one set of inputs.

    `positions` says which arguments want a gradient: the number of one,
    or for a list of tensors (number, which of the list). `names` says what
    is saved, results last; `results` has the number of each result that
    is, `tensors` the names of what may be tensors, and `lists` those of
    lists. For each position, `formulas` has the formula, the names of what
    it takes, what it calls the gradient (`grads` for those of all
    results), and which of the list it gives are wanted. `run` asks whether
    those that are `guarded` want a gradient. `sources` keeps the functions
    as text.
    """

    def __init__(self, schema, formulas, positions, guarded=()):
        words = schema.name.rstrip("_").split("_")
        self.name = "".join(w[:1].upper() + w[1:] for w in words
                            ) + "Backward0"
        self.types = {a.name: a.type for a in schema.arguments}
        known = list(self.types)
        self.outputs = outputs = schema.outputs or ["result"]
        self.guarded = guarded
        self.numbers = operators[schema.full_name].numbers
        self.picks = [p if isinstance(p, tuple) else (p, None)
                      for p in positions]
        wanted = [formulas[known[i]] for i, _ in self.picks]
        self.formulas = [(f, parameters(f), f.__code__.co_varnames[0], pick)
                         for f, (_, pick) in zip(wanted, self.picks)]
        self.names = sorted({name for f in wanted for name in parameters(f)},
                            key=lambda name: (name in outputs, name))
        self.results = {name: outputs.index(name) for name in self.names
                        if name in outputs}
        self.tensors = [name for name in self.names if name in outputs
                        or self.types.get(name, "").startswith("Tensor")]
        self.lists = [name for name in self.tensors
                      if self.types.get(name, "").endswith("[]")]
        self.sources = *forward_texts(self), apply_text(self)
        space = {}
        for text in self.sources:
            exec(compile(text, f"<{self.name}>", "exec"), globals(), space)
        self.kind = type(self.name, (OperatorNode,), {
            "__slots__": [f"{name}_" for name in self.names] + [
                f"{name}_version" for name in self.tensors
                if name not in (*outputs, *self.lists)],
            "recipe": self, "apply": space["make_apply"](*wanted),
            "release": space["release"],
            **{f"_saved_{name}": property(functools.partial(saved_of, name))
               for name in self.names}})
        self.prepare = space["make_prepare"](self.kind)
        self.make_run = functools.partial(space["make_run"], self.kind,
                                          grad_mode)


def places_of(schema, formulas):
    """The numbers of the arguments that may want a gradient."""
    return [i for i, a in enumerate(schema.arguments) if a.name in formulas]


PARTS = {
    "shape": "shape_of({x})",
    "shapes": "[shape_of(x) for x in {x}]",
    "dtype": "getattr({x}, 'dtype', None)",
    "geometry": "{x}.geometry",
    "device": "{x}.device",
}


SAVED = """
        node.{x}_ = {text}"""
HELD = SAVED + """
        storage = {x}._storage
        node.{x}_version = 0 if storage is None else storage.version"""
MAYBE = SAVED + """
        node.{x}_version = isinstance({x}, Tensor) and version_of({x})"""


def saved_list(values):
    """What is saved of several tensors: each with its version."""
    return tuple([x if x is None else (x, version_of(x)) for x in values])


def tuple_text(text, places):
    """The text of a tuple, with an item for each of the places."""
    items = [text.format(i=i, x=x) for i, x in enumerate(places)]
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def forward_texts(recipe):
    """`prepare`, which makes the node of a call but for what concerns the
    results, and `run`, which does all, as text."""
    known, places, saved = list(recipe.types), [], ""
    for i, pick in recipe.picks:
        places += [known[i]] if pick is None else [
            f"{known[i]}[{j}]" for j in pick]
    for name in recipe.names[:len(recipe.names) - len(recipe.results)]:
        owner, part = split_name(name, known)
        text = PARTS[part].format(x=owner) if part else (
            f"saved_list({name})" if name in recipe.lists else name)
        kind = SAVED
        if name in recipe.tensors and name not in recipe.lists:
            kind = HELD if name in recipe.guarded or (
                recipe.types[name] == "Tensor"
                and name not in recipe.numbers) else MAYBE
        saved += kind.format(x=name, text=text)
    arguments = ", ".join(known)
    asked = " & ".join([f"{x}.keys" for x in recipe.guarded] + ["AUTOGRAD"])
    if len(recipe.guarded) > 1:         # one of them may be a number
        asked = " is ".join([f"type({x})" for x in recipe.guarded]
                            + [f"Tensor and {asked}"])
    node = NODE.format(
        saved=saved, found="".join(f"\n        node{i} = {x}.autograd"
                                   for i, x in enumerate(places)),
        nodes=tuple_text("node{i}", places),
        types=tuple_text("type(node{i})", places),
        edges=tuple_text("edge_of({x})", places))
    several = recipe.outputs != ["result"]
    return (PREPARE.format(arguments=arguments, node=node),
            RUN.format(
                arguments=arguments, node=node,
                guard=GUARD.format(asked=asked, arguments=arguments)
                if recipe.guarded else "",
                attach=(ATTACH_ALL if several else ATTACH).format(
                    save="node.result_ = save(result)"
                    if recipe.results else "pass")))


NODE = """{found}
        node = kind()
        node.hooks = node.numbers = None
        node.edges = {nodes}
        if AutogradMeta in {types}:
            node.lead_to({edges}){saved}"""
PREPARE = """
def make_prepare(kind):
    def prepare({arguments}):{node}
        return node
    return prepare
"""
GUARD = """
        if not mode.enabled:
            return unrecorded({arguments})
        if not ({asked}):
            return otherwise({arguments})"""
RUN = """
def make_run(kind, mode, kernel, unrecorded=None, otherwise=None):
    def run({arguments}):{guard}{node}
        result = kernel({arguments}){attach}
        return result
    return run
"""
ATTACH = """
        dtype = result.dtype
        if dtype.category == 2:
            {save}
            found = result.array
            node.shape = result.shape if found is None else found.shape
            node.dtype = dtype
            if result._base is result.autograd is None:
                result.autograd = node
                result.keys |= AUTOGRAD
            else:
                set_history(result, node)"""
ATTACH_ALL = """
        attach(node, result)"""


UNPACK = """
        {x} = node.{x}_
        if type({x}) is not Tensor or {x}._storage is not None and (
                {x}._storage.version != node.{x}_version):
            {x} = unpack({x}, node, {x!r})"""
APPLY = """
def make_apply({formulas}):
    def apply(node, grads):
        grad = grads[0]{unpacked}
        return [{found}]
    return apply

def release(node):{freed}
"""
FREE = """
    node.{x}_ = FREED"""
MAYBE_FREE = """
    if type(node.{x}_) not in NUMBERS: node.{x}_ = FREED"""
NUMBERS = {int, float, bool, type(None)}
UNCHANGED = lambda grad: grad         # what it gets is what it gives


def apply_text(recipe):
    """The function that goes back through a node, as text."""
    unpacked, found = "", []
    for name in recipe.names:
        text = f"node.{name}_"
        if name in recipe.results:
            text = f"unpack({text}, node, {name!r}, {recipe.results[name]})"
        elif name in recipe.lists:
            text = f"unpack_list({text}, node, {name!r})"
        unpacked += (UNPACK if text[0] == "n" and name in recipe.tensors else
                     "\n        {x} = {text}").format(x=name, text=text)
    for i, (formula, names, first, pick) in enumerate(recipe.formulas):
        text = f"formula{i}({', '.join([first, *names])})"
        if formula.__code__.co_code == UNCHANGED.__code__.co_code:
            text = first                # there is nothing to call
        elif first == "grad" and recipe.outputs != ["result"]:
            text = f"{text} if grad is not None else None"
        found.append(text if pick is None else f"*chosen({text}, {pick})")
    return APPLY.format(
        formulas=", ".join(f"formula{i}" for i in range(len(found))),
        unpacked=unpacked, found=", ".join(found), freed="".join(
            (FREE if name in recipe.guarded or name in recipe.results
             else MAYBE_FREE).format(x=name)
            for name in recipe.tensors) or " pass")


def unpack_list(saved, node, name):
    """The tensors of a list that was saved."""
    if saved is FREED:
        raise used_twice(node)
    return tuple([x and unpack(x, node, name) for x in saved])


def saved_of(name, node):
    """node._saved_self: what the node saved, as the formulas get it."""
    value, recipe = getattr(node, f"{name}_"), node.recipe
    if name in recipe.lists:
        return unpack_list(value, node, name)
    if name in recipe.tensors:
        return unpack(value, node, name, recipe.results.get(name))
    return value


def chosen(found, pick):
    """Those of a list of gradients that are wanted."""
    return [found and found[i] for i in pick]


def used_twice(node):
    return RuntimeError(
        f"backward through {node.name()} a second time: what it had saved "
        f"is freed after the first; to go through a graph twice, use "
        f"backward(retain_graph=True) the first time")


class OperatorNode(Node):
    """A node whose derivative stands in the table: each recipe has a
    class of these."""

    __slots__ = ()

    def entries(self):
        """What is saved of tensors, by name: a tensor with its version,
        the parts of a result, or what became of them."""
        for name in self.recipe.tensors:
            found = getattr(self, f"{name}_")
            if isinstance(found, Tensor):
                found = found, getattr(self, f"{name}_version")
            yield name, found

    def saved_parts(self):
        """The same for a drawing: name, shape, version then, and now; None
        for a version of what is freed."""
        for name, found in self.entries():
            if found is FREED:
                yield name, (), None, None
            elif name in self.recipe.lists or type(found) is not tuple:
                continue
            elif len(found) == 5:
                shape = getattr(found[3], "shape", None)
                yield name, shape, found[1], found[2].version
            elif len(found) == 2:
                x, version = found
                yield name, x.shape, version, version_of(x)


RECORD = """
def make(kernel, mode, run_for, runs):
    def recorded({arguments}):
        which = mode.enabled and {which}
        if not which:
            return {call}
        try:
            run = runs[which]
        except KeyError:
            run = run_for(which)
        return run({arguments})
    return recorded
"""


def record(schema, kernel, formulas):
    """A function that runs the kernel and points the result at a new node.

    If all that may want a gradient does, it is the recipe's `run` itself.
    """
    places = places_of(schema, formulas)
    if schema.arguments[places[0]].type[-1] == "]":
        return record_some(schema, kernel, formulas)
    unrecorded = otherwise = kernel
    if schema.is_view:
        def unrecorded(*args): return mark_unrecorded(kernel(*args))
        otherwise = unrecorded
    elif len(places) > 1 or sum(
            a.type.startswith("Tensor") for a in schema.arguments) > 1:
        otherwise = record_some(schema, kernel, formulas)
    names = [schema.arguments[i].name for i in places]
    return Recipe(schema, formulas, places, names).make_run(
        kernel, unrecorded, otherwise)


def record_some(schema, kernel, formulas):
    """The same if only some may want one.

    It is written for the operator: which arguments may want a gradient is
    known, so that only those are asked. The answers are bits of `which`,
    one for each argument or tensor in a list, and choose the recipe.
    """
    names = [a.name for a in schema.arguments]
    places = places_of(schema, formulas)
    lists = [i for i in places if schema.arguments[i].type[-1] == "]"]
    runs = {}

    def run_for(which):
        bits = [bit for bit in range(which.bit_length()) if which >> bit & 1]
        positions = [(lists[0], tuple(bits))] if lists else [
            places[bit] for bit in bits]
        runs[which] = Recipe(schema, formulas, positions).make_run(kernel)
        return runs[which]

    which = [f"wanted_of({names[i]})" for i in lists] or [
        f"(({x}.keys & AUTOGRAD if type({x}) is Tensor else "
        f"wants_grad({x})) and {1 << bit})"
        for bit, x in enumerate(names[i] for i in places)]
    space = {}
    exec(compile(RECORD.format(
        arguments=", ".join(names), which=" | ".join(which),
        call=f"kernel({', '.join(names)})"),
        f"<record {schema.name}>", "exec"), globals(), space)
    return space["make"](kernel, grad_mode, run_for, runs)


def wanted_of(tensors):
    """Which of several tensors want a gradient, as bits."""
    return sum([1 << i for i, x in enumerate(tensors) if wants_grad(x)])


def save_results(node, results):
    """Save those of the results that a formula wants."""
    for name, nr in node.recipe.results.items():
        setattr(node, f"{name}_", save(results[nr]))


def attach(node, results):
    """Make each of several results an output of the node."""
    node.shape = [shape_of(x) for x in results]
    node.dtype = [x.dtype for x in results]
    save_results(node, results)
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
    have = grad.shape
    if have == shape:
        return grad
    new = len(have) - len(shape)
    if new > 0 and have[new:] == shape:         # a bias, most often
        return grad.sum((0,) if new == 1 else tuple(range(new)))
    if broadcast_shapes(have, shape) != have:
        raise RuntimeError(f"a gradient of shape {list(have)} is none "
                           f"for a tensor of shape {list(shape)}")
    dims = tuple(range(new)) + tuple(
        d + new for d, size in enumerate(shape)
        if size == 1 and have[d + new] != 1)
    return grad.sum(dims, keepdim=True).reshape(shape) if dims else grad


def fit(grad, shape, dtype):
    """A gradient in the shape and dtype that a node has noted."""
    grad = sum_to(grad, shape)
    return grad if grad.dtype is dtype else grad.to(dtype)


def count_uses(starts):
    """How many gradients each node waits for, over all that the starts
    reach."""
    uses, found = {None: 0}, [starts]
    for nodes in found:                 # which grows on the way
        for node in nodes:
            if node in uses:
                uses[node] += 1
            else:
                uses[node] = 1
                found.append(node.edges)
    del uses[None]
    return uses


def fit_output(grad, node, nr):
    """A gradient as the node's output of that number needs it."""
    if type(node.shape) is list:
        return fit(grad, node.shape[nr], node.dtype[nr])
    return fit(grad, node.shape, node.dtype)


def adder(recorded):
    """The function that adds up what arrives at a place in one walk.

    If nothing is recorded, the kernel is looked up here, once, and from the
    third gradient on NumPy adds into the sum of the first two, which nobody
    else has.
    """
    kernel, ours = np and lookup(operators["add.Tensor"], CPU), set()
    recorded = recorded or dispatch.included

    def add_up(place, before, grad):
        if recorded or not before.keys == grad.keys == CPU:
            return before + grad
        if place in ours:
            quiet(np.add, array(before), array(grad), array(before))
            return before
        ours.add(place)
        return kernel(before, grad, 1)

    return add_up


def run_backward(roots, retain_graph, create_graph, targets=None):
    """Carry gradients from `roots`, ((node, output number), grad), through
    the graph: each node once, after all that use it (Kahn's algorithm).

    With `targets`, {(node, output number): None}, the gradients that
    arrive there are filled in, only nodes on a way to one are walked, and
    no leaf is touched.
    """
    edges = [node for (node, _), _ in roots]
    numbers = [nr for (_, nr), _ in roots]
    found, uses = [grad for _, grad in roots], count_uses(edges)
    if anomaly.on:
        watch(uses)
    if targets is not None:
        walked = on_the_way(targets, uses)
        ends = {node for node, _ in targets}
    arrived, ready, add_up = {}, [], adder(create_graph)
    with set_grad_enabled(create_graph):
        while True:
            for grad, after, nr in zip(found, edges, numbers or FIRST):
                if after is None:
                    continue
                if grad is not None:
                    place, memory = after, grad.array
                    if (memory is None or memory.shape != after.shape
                            or grad.dtype is not after.dtype):
                        grad = fit_output(grad, after, nr)
                        if type(after.shape) is list:
                            place = after, nr
                    if place in arrived:
                        grad = add_up(place, arrived[place], grad)
                    arrived[place] = grad
                if uses[after] == 1:
                    ready.append(after)
                else:
                    uses[after] -= 1
            # from here on only `arrived` holds what is on the way
            found = grad = memory = grads = ()
            if not ready:
                return
            node = ready.pop()
            grads = [arrived.pop(node, None)]
            if grads[0] is not None and node.hooks is targets is None:
                found = node.apply(grads)       # as nearly always
            else:
                if type(node.shape) is list:
                    grads = [arrived.pop((node, nr), None)
                             for nr in range(len(node.shape))]
                if targets is not None and node not in walked:
                    if node in ends:
                        note(node, grads, targets)
                    continue
                note(node, grads, targets)
                found = applied(node, grads)
            edges, numbers = node.edges, node.numbers
            if not retain_graph:
                node.release()


def applied(node, grads):
    """Apply a node that has hooks, or several outputs. Where no gradient
    arrived, none is passed on."""
    if not any(grad is not None for grad in grads):
        return [None] * len(node.edges)
    if node.hooks is None:
        return node.apply(grads)
    return apply_with_hooks(node, grads)


def on_the_way(targets, nodes):
    """Those of the nodes that lead to a target by at least one edge."""
    users = {}
    for node in nodes:
        for after in node.edges:
            users.setdefault(after, []).append(node)
    found, stack = set(), [node for node, _ in targets]
    while stack:
        for user in users.get(stack.pop(), ()):
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


def note(node, grads, targets):
    """Let hooks see the gradients of a node's outputs, and keep those that
    were asked for."""
    if all(grad is None for grad in grads):
        return
    if node.hooks:
        for nr, hook in list(node.hooks.tensor.values()):
            if grads[nr] is not None:
                grads[nr] = replaced(grads[nr], hook(grads[nr]), hook)
        for nr, ref in node.hooks.retained:
            meta = ref()
            if meta is not None and grads[nr] is not None:
                accumulate(meta, grads[nr])
    for nr, grad in enumerate(grads):
        if targets and (node, nr) in targets:
            targets[node, nr] = grad


def replaced(grad, given, hook):
    """What a hook made of a gradient; None is no wish."""
    if given is None:
        return grad
    name = getattr(hook, "__name__", repr(hook))
    if not isinstance(given, Tensor):
        raise TypeError(f"the hook {name!r} returned "
                        f"{type(given).__name__}; a hook returns a tensor, "
                        f"the gradient to go on with, or None")
    if (metadata_of(given) != metadata_of(grad)
            or given.device is not grad.device):
        raise RuntimeError(
            f"the hook {name!r} was given a gradient of shape "
            f"{list(shape_of(grad))}, {grad.dtype}, '{grad.device}', and "
            f"returned {list(shape_of(given))}, {given.dtype}, "
            f"'{given.device}'")
    return given


def replaced_all(grads, given, hook):
    """The same for all gradients of a node."""
    if given is None:
        return grads
    given = as_list(given)
    if len(given) != len(grads):
        raise RuntimeError(f"a hook of a node was given {len(grads)} "
                           f"gradients, and returned {len(given)}")
    return [old if old is None or new is None else replaced(old, new, hook)
            for old, new in zip(grads, given)]


def apply_with_hooks(node, grads):
    """Apply a node that has hooks."""
    hooks = node.hooks
    for hook in list(hooks.before.values()):
        grads = replaced_all(grads, hook(tuple(grads)), hook)
    try:
        found = list(node.apply(grads))
    except Exception as error:
        if node in recorded_at:
            error.add_note(where_recorded(node))
        raise
    for hook in list(hooks.after.values()):
        found = replaced_all(found, hook(tuple(found), tuple(grads)), hook)
    for hook in list(hooks.accumulated.values()):
        if not node.frozen:
            hook(node.variable)
    return found


def one_like(x):
    """Ones of the shape, dtype and device of x."""
    if x.keys & CPU and not x.dtype.bit:        # the shortest way
        found = np.empty(shape_of(x), numpy_dtypes[x.dtype])
        found.fill(1)
        return own(found, x.dtype)
    return ones(x.shape, dtype=x.dtype, device=x.device)


def first_grad(x, gradient):
    """The gradient to start from: 1 for a single number, else given."""
    if not x.requires_grad:
        raise RuntimeError(
            "backward() from something that no recorded operator made: it "
            "does not require grad and has no grad_fn. Was it computed in "
            "no_grad(), detached, or from tensors without requires_grad?")
    if gradient is None:
        if math.prod(shape_of(x)) != 1:
            raise RuntimeError(
                f"backward() starts by itself only from one number; this "
                f"tensor has shape {list(x.shape)}: take .sum() or .mean(), "
                f"or give backward(gradient) a tensor of that shape")
        return one_like(x)
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
    inputs = list(dict.fromkeys(as_list(inputs)))   # each once
    for x in checked_inputs(inputs):
        x.retain_grad()                 # which a leaf does anyway
    targets = {edge_of(x): None for x in inputs}
    run_backward(roots, keep, create_graph, targets)
    with set_grad_enabled(create_graph):
        for x in filter(is_leaf, inputs):
            if targets[edge_of(x)] is None:
                continue
            accumulate(x.autograd, targets[edge_of(x)])
            if x.autograd.hooks:
                for hook in list(x.autograd.hooks.accumulated.values()):
                    hook(x)


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
         create_graph=False, allow_unused=None, is_grads_batched=False,
         materialize_grads=False):
    """The gradients of `outputs` with respect to `inputs`, as a tuple.

    With create_graph the gradients can be differentiated again.
    RuntimeError for an input that the outputs do not depend on, unless
    allow_unused: then its place holds None, or with materialize_grads
    zeros.
    """
    if is_grads_batched:
        raise NotImplementedError(
            "is_grads_batched=True is not there: ask for one gradient after "
            "the other, in a loop with retain_graph=True")
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads=True gives zeros for what is "
                         "unused, and allow_unused=False forbids it")
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


def turned_mm(name, doc, turn_self):
    """Declare mm of two matrices, one of them transposed."""
    def any_kernel(self, mat2):
        a, b = ((strides.t(self), mat2) if turn_self
                else (self, strides.t(mat2)))
        return kernel_of("mm", a)(a, b)

    def cpu_kernel(self, mat2):
        a, b, dtype = self.array, mat2.array, self.dtype
        a = array(self) if a is None else a
        b = array(mat2) if b is None else b
        if a.ndim == b.ndim == 2 and dtype is mat2.dtype and dtype.category:
            a, b = (a.T, b) if turn_self else (a, b.T)
            try:
                return own(run_quiet(a.dot, b), dtype)
            except (RuntimeError, ValueError):
                pass
        return any_kernel(self, mat2)           # says what is wrong

    define(f"{name}(Tensor self, Tensor mat2) -> Tensor", doc,
           kernel=any_kernel)
    impl(name, "cpu")(cpu_kernel)
    return functions[name]


mm_nt = turned_mm("_mm_nt", "self.mm(mat2.t()), with no view.", False)
mm_tn = turned_mm("_mm_tn", "self.t().mm(mat2), with no view.", True)

derivative("mm",
           self=lambda grad, mat2: mm_nt(grad, mat2),
           mat2=lambda grad, self: mm_tn(self, grad))
derivative("_mm_nt",
           self=lambda grad, mat2: grad.mm(mat2),
           mat2=lambda grad, self: mm_tn(grad, self))
derivative("_mm_tn",
           self=lambda grad, mat2: mm_nt(mat2, grad),
           mat2=lambda grad, self: self.mm(grad))
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


INTEGERS = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)} if np else {}


@short
def numpy_relu_backward(grad, y):
    """grad where y, which relu has made, is not 0; nan is not. A choice
    between two numbers costs the machine a guess, wrong half of the time;
    so grad, its bits read as an integer, is multiplied by True or False.
    (As a float, inf * 0 is nan.)
    """
    bits = grad.view(INTEGERS[grad.itemsize])
    return ((y != ZERO[y.dtype]) * bits).view(grad.dtype)


elementwise("_relu_backward(Tensor grad_output, Tensor output) -> Tensor",
            "grad_output, but 0 where the output of relu is 0.",
            lambda grad, y: grad if y != 0 else 0.0,
            np and numpy_relu_backward, numbers=(), inplace=False)
relu_back = functions["_relu_backward"]
derivative("_relu_backward",
           grad_output=lambda grad, output: relu_back(grad, output),
           output=lambda grad: grad.new_zeros(grad.shape))


derivative("div.Tensor",
           self=lambda grad, other: grad / other,
           other=lambda grad, self, other: -grad * ((self / other) / other))
derivative("neg", self=lambda grad: -grad)
derivative("abs", self=lambda grad, self: grad * self.sign())
derivative("log", self=lambda grad, self: grad / self)
derivative("tanh", self=lambda grad, result: grad * (1 - result * result))
derivative("sqrt", self=lambda grad, result: grad / (2 * result))
derivative("relu", self=lambda grad, result: relu_back(grad, result))
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


def softmax_back_row(grads, row):
    total = pairwise_sum([g * y for g, y in zip(grads, row)])
    return [(g - total) * y for g, y in zip(grads, row)]


def log_softmax_back_row(grads, row):
    total = pairwise_sum(grads)
    return [g - math.exp(y) * total for g, y in zip(grads, row)]


def softmax_back_block(grad, y, axis, out):
    np.multiply(grad, y, out)
    total = np.add.reduce(out, axis, None, None, True)
    np.multiply(np.subtract(grad, total, out), y, out)


def log_softmax_back_block(grad, y, axis, out):
    total = np.add.reduce(grad, axis, None, None, True)
    np.multiply(np.exp(y, out), total, out)
    np.subtract(grad, out, out)


def log_softmax_back_short(grad, y):
    total = grad.dot(row_of_ones((y.shape[1], 1), y.dtype))
    out = np.exp(y)
    out *= total
    return np.subtract(grad, out, out)


rowwise("_softmax_backward_data(Tensor grad_output, Tensor output, int dim) "
        "-> Tensor", "The way back through softmax.", softmax_back_row,
        in_blocks(softmax_back_block))
rowwise("_log_softmax_backward_data(Tensor grad_output, Tensor output, "
        "int dim) -> Tensor", "The way back through log_softmax.",
        log_softmax_back_row, in_blocks(log_softmax_back_block))
log_softmax_back_of_any = operators[
    "_log_softmax_backward_data"].kernels.get(CPU)      # None without NumPy


@impl("_log_softmax_backward_data", "cpu")
def cpu_log_softmax_back(grad_output, output, dim):
    grad, y = array(grad_output), array(output)
    if (short_rows(y, dim) and grad.shape == y.shape
            and grad.dtype is y.dtype):
        return own(quiet(log_softmax_back_short, grad, y), output.dtype)
    return log_softmax_back_of_any(grad_output, output, dim)


softmax_back = functions["_softmax_backward_data"]
log_softmax_back = functions["_log_softmax_backward_data"]
derivative("_softmax", self=lambda grad, result, dim:
           softmax_back(grad, result, dim))
derivative("_log_softmax", self=lambda grad, result, dim:
           log_softmax_back(grad, result, dim))
derivative("_softmax_backward_data",
           grad_output=lambda grad, output, dim:
           softmax_back(grad, output, dim),
           output=lambda grad, grad_output, output, dim:
           grad * grad_output - grad_output * (grad * output).sum(
               dim, keepdim=True) - grad * (grad_output * output).sum(
               dim, keepdim=True))
derivative("_log_softmax_backward_data",
           grad_output=lambda grad, output, dim:
           grad - (grad * output.exp()).sum(dim, keepdim=True),
           output=lambda grad, grad_output, output, dim:
           -grad * output.exp() * grad_output.sum(dim, keepdim=True))
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
                  rtol=1e-3, gen_non_contig_grad_outputs=False,
                  raise_exception=True, nondet_tol=0.0,
                  check_undefined_grad=True, check_grad_dtypes=False,
                  fast_mode=False):
    """Compare the gradients of the gradients of func(*inputs), with
    respect to the inputs and to grad_outputs, with central differences.

    grad_outputs: what comes in at the outputs; random numbers if not
    given, with gen_non_contig_grad_outputs in memory that has gaps. The
    rest is gradcheck's.
    """
    inputs = as_list(inputs)
    if grad_outputs is None:
        grad_outputs = [
            directions(y, True, f"start {nr}").reshape(y.shape)
            for nr, y in enumerate(outputs_of(func, inputs))]
        if gen_non_contig_grad_outputs:
            grad_outputs = [stack([x, x], -1).select(-1, 0)
                            for x in grad_outputs]
        for x in grad_outputs:
            x.requires_grad_()
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
        self.start([base_edge, *inner.next_functions[has_self:]], base)
        self.base = base.geometry
        self.view = view.geometry
        self.inner = inner          # the node of the operator that wrote
        self.has_self = has_self    # whether the old values went into it

    def apply(self, grads):
        part = move(grads[0], self.base, self.view)
        # what a formula makes of a saved result leads to this node, and it
        # may be walked after self.inner is released
        found = list(copy.copy(self.inner).apply([part]))
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
        self.start([edge_of(base)], view)
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
    places = places_of(schema, formulas)
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
        edge = edge_of(self) if 0 in positions else None
        node = recipe_for(positions).prepare(*inputs)
        if edge:                        # not to the clone
            node.lead_to([edge, *node.next_functions[1:]])
        kernel(self, *args)
        if not wants_grad(base):
            expect_late_views(base)
        save_results(node, [self])
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
        tensors = [x for x in dispatch.all_tensors(args)
                   if isinstance(x, Tensor)]
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
    meta, self.autograd = self.autograd, None
    self.keys &= ~AUTOGRAD
    if type(meta) is AccumulateGrad:        # a leaf stays one
        self.autograd, meta.frozen = meta, True
    elif type(meta) is AutogradMeta:
        self.grad = meta.grad
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


hook_numbers = itertools.count()


class RemovableHandle:
    """Takes a hook off again: handle.remove(), or a `with` block."""

    def __init__(self, hooks):
        self.hooks = hooks
        self.id = next(hook_numbers)

    def remove(self):
        """Take the hook off; nothing happens if it is off already."""
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def add_hook(hooks, hook, entry=None):
    """Put a hook, or an entry with it, into a dict; its handle."""
    if not callable(hook):
        raise TypeError(f"a hook is a function; got {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = entry or hook
    return handle


@method
def register_hook(self, hook):
    """Call hook(grad) with this tensor's gradient in each backward; what it
    returns, if not None, takes the gradient's place. Gives a handle."""
    if not self.requires_grad:
        raise RuntimeError("a hook waits for a gradient, and this tensor "
                           "does not require grad")
    node, nr = edge_of(self)
    return add_hook(hooks_of(node).tensor, hook, (nr, hook))


@method
def register_post_accumulate_grad_hook(self, hook):
    """Call hook(x) each time backward has added to x.grad; x is a leaf.
    Gives a handle."""
    if not self.requires_grad or not self.is_leaf:
        raise RuntimeError("only a leaf that requires grad has a .grad that "
                           "is added to; for other tensors there is "
                           "register_hook()")
    return add_hook(hooks_of(self.autograd).accumulated, hook)


def register_prehook(self, hook):
    """Call hook(grad_outputs) before the node's turn; it may return others
    in their place."""
    return add_hook(hooks_of(self).before, hook)


def register_node_hook(self, hook):
    """Call hook(grad_inputs, grad_outputs) after the node's turn; it may
    return other grad_inputs."""
    return add_hook(hooks_of(self).after, hook)


Node.register_prehook = register_prehook
Node.register_hook = register_node_hook


def unnoticed(storage, version=0):
    """Another storage of the same bytes, with a version of its own."""
    other = Storage(storage.buffer, storage.device)
    other.version = version
    return other


def get_data(self):
    """The same elements, for writes that no version counter sees."""
    return Tensor(unnoticed(self.storage), self.geometry, self.dtype)


def set_data(self, value):
    """Let this tensor have the memory and the shape of another one."""
    if not isinstance(value, Tensor):
        raise TypeError(f".data is a tensor; got {type(value).__name__}")
    if wants_grad(self) and value.dtype.category != 2:
        raise RuntimeError(f"this tensor requires grad, and {value.dtype} "
                           f"has none; call requires_grad_(False) first")
    if value.storage.buffer is not self.storage.buffer:
        old, self._storage = self.storage, unnoticed(
            value.storage, self.storage.version)
        self.keys ^= old.device.bit ^ self.storage.device.bit
    self.keys ^= self.dtype.bit ^ value.dtype.bit
    self._geometry, self.dtype = value.geometry, value.dtype
    self.array = None
    if type(self.autograd) is AccumulateGrad:
        self.autograd.shape, self.autograd.dtype = metadata_of(self)
        self.autograd.parts = self.storage, self.geometry, self.dtype


Tensor.data = property(get_data, set_data)


class inference_mode(no_grad):
    """Record nothing, and let nothing made here be saved for backward."""

    def __new__(cls, mode=True):
        self = object.__new__(cls)
        self.on = True if callable(mode) else bool(mode)
        return self(mode) if callable(mode) else self

    def __enter__(self):
        self.before = grad_mode.enabled, grad_mode.inference
        grad_mode.enabled = not self.on and grad_mode.enabled
        grad_mode.inference = self.on
        dispatch.enter(INFERENCE)

    def __exit__(self, *exc):
        dispatch.enter(INFERENCE, -1)
        grad_mode.enabled, grad_mode.inference = self.before

    def again(self):
        return type(self)(self.on)


def is_inference_mode_enabled():
    """Whether this thread is in an inference_mode() block."""
    return grad_mode.inference


@method
def is_inference(self):
    """Whether this tensor was made in inference_mode()."""
    return bool(self.keys & INFERENCE)


def wrap_inference(operator, kernel):
    """The layer that marks what inference_mode() makes, and guards it."""
    schema = operator.schema

    def call(*args):
        given = [x for x in dispatch.all_tensors(args)
                 if isinstance(x, Tensor)]
        frozen = [x for x in given if x.keys & INFERENCE]
        inside = grad_mode.inference
        if frozen and schema.is_write and not inside and any(
                x is y for x in frozen for y in dispatch.all_tensors(
                    args[:1] if schema.name.endswith("_") else args[-1:])):
            raise RuntimeError(
                f"{schema.name}() writes to a tensor that was made in "
                f"inference_mode(), outside of it; write to a clone()")
        result = kernel(*args)
        for x in as_list(result):
            if inside and not any(x is y for y in given) or (
                    frozen and schema.is_view):
                x.keys |= INFERENCE
            elif frozen and grad_mode.enabled:
                refuse_saved(x, frozen, schema)
        return result
    return call


def saved_storage(entry):
    """The storage of a tensor that a node has saved."""
    if type(entry) is tuple and len(entry) == 5:
        return entry[2]
    if type(entry) is tuple and len(entry) == 2:
        return entry[0].storage


def nodes_of(result):
    """The nodes that made the tensors in a result; where it is a view that
    was written to, also the one that its base has of that."""
    found = []
    for x in dispatch.all_tensors([result]):
        if isinstance(x, Tensor) and not is_leaf(x):
            found.append(get_grad_fn(x))
            if type(found[-1]) is ViewNode:
                found.append(get_grad_fn(x._base))
    return found


def saved_by(node):
    """The entry of each tensor that a node has saved."""
    node = node.inner if type(node) is CopySlices else node
    if isinstance(node, OperatorNode):
        for name, found in node.entries():
            for part in found if name in node.recipe.lists else [found]:
                yield part


def refuse_saved(x, frozen, schema):
    """Nothing that inference_mode() made is saved for backward."""
    storages = [y.storage for y in frozen]
    saved = [part for node in nodes_of(x) for part in saved_by(node)]
    if any(saved_storage(entry) is s for entry in saved for s in storages):
        raise RuntimeError(
            f"{schema.name}() would save a tensor that was made in "
            f"inference_mode() for backward; make it in no_grad(), or give "
            f"a clone()")


INFERENCE = add_layer(wrap_inference)


forward_mode = types.SimpleNamespace(level=-1)
tangents = {}       # id of a dual tensor: (weak reference to it, tangent)
LINEAR = ("neg", "sum", "mean", "clone", "cumsum", "flip", "cat", "trace",
          "tril", "triu", "_to_copy")


def set_tangent(x, tangent):
    """Make x a dual tensor."""
    key = id(x)
    tangents[key] = (weakref.ref(x, lambda _: tangents.pop(key, None)),
                     tangent)
    x.keys |= FORWARD


def tangent_of(x):
    """The tangent of a tensor; None if it has none."""
    return tangents[id(x)][1] if x.keys & FORWARD else None


def call_again(operator, args):
    """Call an operator by what its arguments are now."""
    keys = functools.reduce(
        builtin.or_, (x.keys for x in dispatch.all_tensors(args)
                      if isinstance(x, Tensor)), dispatch.included)
    return lookup(operator, keys)(*args)


def wrap_forward(operator, kernel):
    """The layer of dual tensors."""
    schema = operator.schema
    formulas = derivatives.get(schema.full_name)
    known = [a.name for a in schema.arguments]
    recipe_for = functools.cache(functools.partial(Recipe, schema, formulas))
    linear = schema.is_view or schema.name in LINEAR

    def call(*args):
        if schema.is_write or formulas is None:
            raise NotImplementedError(
                f"{schema.name}() has no derivative in forward mode, and an "
                f"argument is a dual tensor; " + (
                    "use the operator that makes a new tensor"
                    if schema.is_write else "unpack_dual() it first"))
        result = kernel(*args)
        if not formulas:
            return result
        if linear:
            place, = map(known.index, formulas)
            moved = [*args]
            moved[place] = zeros_for(args[place])
            pushed = [call_again(operator, moved)]
        else:
            pushed = push_forward(recipe_for, formulas, known, args, result)
        for y, tangent in zip(as_list(result), pushed):
            if y.dtype.category == 2:
                set_tangent(y, y.new_zeros(y.shape) if tangent is None
                            else tangent)
        return result
    return call


FORWARD = add_layer(wrap_forward)


def zeros_for(x):
    """The tangent of a tensor, or of each in a list; zeros if none."""
    if not isinstance(x, Tensor):
        return tuple(map(zeros_for, x))
    found = tangent_of(x)
    return x.new_zeros(x.shape) if found is None else found


def positions_of(formulas, known, args):
    """Which arguments are dual, or want a gradient, as a Recipe counts."""
    def counts(x):
        return isinstance(x, Tensor) and bool(x.keys & (FORWARD | AUTOGRAD))

    places = []
    for i, name in enumerate(known):
        if name in formulas and isinstance(args[i], (list, tuple)):
            chosen = [j for j, x in enumerate(args[i]) if counts(x)]
            places += [(i, tuple(chosen))] if chosen else []
        elif name in formulas and counts(args[i]):
            places.append(i)
    return tuple(places)


def primal(x):
    """A dual tensor, or each in a list, without its tangent."""
    if type(x) is tuple:
        return tuple(map(primal, x))
    if isinstance(x, Tensor) and x.keys & FORWARD:
        return unpack(save(x), None, "")
    return x


def push_forward(recipe_for, formulas, known, args, result):
    """The tangents of an operator's results, by going back twice."""
    places = positions_of(formulas, known, args)
    inputs = [x for p in places for x in (
        [args[p[0]][j] for j in p[1]] if isinstance(p, tuple) else
        [args[p]])]
    results = as_list(result)
    with enable_grad():
        node = recipe_for(places).prepare(*map(primal, args))
        single = isinstance(result, Tensor)
        node.shape = shape_of(result) if single else [
            shape_of(y) for y in results]
        node.dtype = result.dtype if single else [y.dtype for y in results]
        save_results(node, results)
        starts = [y.new_zeros(y.shape).requires_grad_()
                  if y.dtype.category == 2 else None for y in results]
        pairs = [(fit(g, shape_of(x), x.dtype), tangent_of(x))
                 for g, x in zip(node.apply(list(starts)), inputs)
                 if g is not None and tangent_of(x) is not None]
    pairs = [(g, t) for g, t in pairs if g.requires_grad]
    if not pairs:
        return [None] * len(results)
    recorded = any(map(wants_grad, [*dispatch.all_tensors(args),
                                    *(t for _, t in pairs)]))
    found = iter(grad([g for g, _ in pairs],
                      [s for s in starts if s is not None],
                      [t for _, t in pairs], allow_unused=True,
                      create_graph=recorded and grad_mode.enabled))
    return [s if s is None else next(found) for s in starts]


def submodule(name, doc, parent="lamina.autograd"):
    """A module inside another one, that functions are put into."""
    made = types.ModuleType(f"{parent}.{name}", doc)
    made.__all__ = []
    made.__getattr__ = functools.partial(missing, made.__name__,
                                         made.__all__)
    sys.modules[made.__name__] = made
    if parent in sys.modules:           # not while its notebook runs
        setattr(sys.modules[parent], name, made)
    return made


def missing(module, names, name):
    """Say that a module has no such name."""
    raise AttributeError(
        f"module {module!r} has no attribute {name!r}"
        + nearest(name, names) + ("" if name.startswith("__") else
        "; what is left out is told on the page 'Where Lamina differs'"))


def part_of(module):
    """Put the function or class below into a module."""
    def put(function):
        setattr(module, function.__name__, function)
        module.__all__.append(function.__name__)
        return function
    return put


forward_ad = submodule("forward_ad", "Forward mode: dual tensors.")


UnpackedDualTensor = collections.namedtuple("UnpackedDualTensor",
                                            "primal tangent")


@part_of(forward_ad)
class dual_level:
    """A block in which tensors may be dual; there is one at a time."""

    def __enter__(self):
        if forward_mode.level >= 0:
            raise RuntimeError("a dual_level() is open already; forward "
                               "mode inside forward mode is not there")
        forward_mode.level = 0
        return forward_mode.level

    def __exit__(self, *exc):
        forward_mode.level = -1
        for ref, _ in list(tangents.values()):
            x = ref()
            if x is not None:
                x.keys &= ~FORWARD
        tangents.clear()


@part_of(forward_ad)
def make_dual(tensor, tangent, *, level=None):
    """A view of the tensor that carries a tangent."""
    if forward_mode.level < 0:
        raise RuntimeError("make_dual() belongs inside `with dual_level():`")
    if tensor.dtype.category != 2 or metadata_of(tensor) != metadata_of(
            tangent):
        raise RuntimeError(
            f"a dual tensor is made of two float tensors alike; got "
            f"{list(tensor.shape)}, {tensor.dtype}, and the tangent "
            f"{list(tangent.shape)}, {tangent.dtype}")
    dual = tensor.view(tensor.shape)
    set_tangent(dual, tangent)
    return dual


@part_of(forward_ad)
def unpack_dual(tensor, *, level=None):
    """The two parts of a dual tensor; the tangent of another is None."""
    if forward_mode.level < 0 or not tensor.keys & FORWARD:
        return UnpackedDualTensor(tensor, None)
    primal = tensor.view(tensor.shape)
    primal.keys &= ~FORWARD
    tangents.pop(id(primal), None)
    return UnpackedDualTensor(primal, tangent_of(tensor))


functional = submodule("functional", "Products with Jacobians and Hessians.")


def fresh(inputs, create_graph):
    """Inputs to differentiate at; those of a graph stay part of it."""
    many = isinstance(inputs, (tuple, list))
    return many, [x.view(x.shape) if create_graph and wants_grad(x)
                  else x.detach().requires_grad_() for x in as_list(inputs)]


def answer(found, many, create_graph):
    """Results in the form of what was given."""
    found = [x if create_graph else x.detach() for x in found]
    return tuple(found) if many else found[0]


def called(func, inputs):
    """What func gives, recorded, and whether it is several tensors."""
    with enable_grad():
        outputs = func(*inputs)
    outputs_list = as_list(outputs)
    for y in outputs_list:
        if not isinstance(y, Tensor):
            raise TypeError(f"the function returned {type(y).__name__}; "
                            f"expected a tensor, or several")
    return isinstance(outputs, (tuple, list)), outputs_list


def slopes_of(outputs, inputs, v, create_graph, strict, keep=None):
    """grad, with zeros where nothing depends on an input; `strict` makes
    that an error."""
    if not strict:
        pairs = [(y, g) for y, g in zip(outputs, v or [None] * len(outputs))
                 if y.requires_grad]
        if not pairs:
            return [x.new_zeros(x.shape) for x in inputs]
        outputs, v = map(list, zip(*pairs))
    with enable_grad():
        return grad(outputs, inputs, v, retain_graph=keep,
                    create_graph=create_graph, allow_unused=not strict,
                    materialize_grads=not strict)


def directions_for(v, tensors, what):
    """v as a list that fits the tensors; ones if one number is enough."""
    if v is None:
        if len(tensors) != 1 or tensors[0].numel() != 1:
            raise RuntimeError(f"v has to be given: the {what} is not a "
                               f"single number")
        return [ones(x.shape, dtype=x.dtype, device=x.device)
                for x in tensors]
    v = as_list(v)
    if [x.shape for x in v] != [x.shape for x in tensors]:
        raise RuntimeError(
            f"v has the shapes {[list(x.shape) for x in v]}; the {what} has "
            f"{[list(x.shape) for x in tensors]}")
    return v


@part_of(functional)
def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), and v times its Jacobian: one walk backward."""
    many, inputs = fresh(inputs, create_graph)
    several, outputs = called(func, inputs)
    v = directions_for(v, outputs, "output")
    found = slopes_of(outputs, inputs, v, create_graph, strict)
    return (answer(outputs, several, create_graph),
            answer(found, many, create_graph))


@part_of(functional)
def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), and its Jacobian times v: two walks backward."""
    _, inputs = fresh(inputs, create_graph)
    several, outputs = called(func, inputs)
    v = directions_for(v, inputs, "input")
    starts = [y.new_zeros(y.shape).requires_grad_() for y in outputs]
    back = slopes_of(outputs, inputs, starts, True, strict)
    found = slopes_of(back, starts, v, create_graph, strict)
    return (answer(outputs, several, create_graph),
            answer(found, several, create_graph))


@part_of(functional)
def jacobian(func, inputs, create_graph=False, strict=False,
             vectorize=False, strategy="reverse-mode"):
    """The slopes of each element of func(*inputs) with respect to each
    element of the inputs: for each output and each input a tensor whose
    shape is the output's and then the input's."""
    if vectorize or strategy != "reverse-mode":
        raise NotImplementedError("jacobian() walks backward once for each "
                                  "element of the output; vectorize and "
                                  "forward-mode are not there")
    many, inputs = fresh(inputs, create_graph)
    several, outputs = called(func, inputs)
    found = []
    for y in outputs:
        rows = []
        for start in eye(y.numel(), dtype=y.dtype, device=y.device):
            rows.append(slopes_of([y], inputs, [start.reshape(y.shape)],
                                  create_graph, strict, keep=True))
        parts = [stack(column).reshape((*y.shape, *x.shape)) if rows else
                 x.new_zeros((*y.shape, *x.shape))
                 for column, x in zip(zip(*rows) if rows else
                                      [()] * len(inputs), inputs)]
        found.append(answer(parts, many, create_graph))
    return tuple(found) if several else found[0]


def slope_function(func, strict):
    """The gradient of func, as a function of the same inputs."""
    def gradient(*inputs):
        _, outputs = called(func, inputs)
        if len(outputs) != 1 or outputs[0].numel() != 1:
            raise RuntimeError(f"a Hessian is that of one number; the "
                               f"function returned shapes "
                               f"{[list(y.shape) for y in outputs]}")
        return tuple(slopes_of(outputs, inputs, None, True, strict))
    return gradient


@part_of(functional)
def hessian(func, inputs, create_graph=False, strict=False,
            vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of func, which returns one number."""
    found = jacobian(slope_function(func, strict), inputs, create_graph,
                     strict, vectorize, outer_jacobian_strategy)
    return found if isinstance(inputs, (tuple, list)) else found[0]


def second_order(product, func, inputs, v, create_graph, strict):
    """func(*inputs), and a product with its Hessian."""
    many, given = fresh(inputs, create_graph)
    outputs = as_list(func(*given))
    _, found = product(slope_function(func, strict), tuple(given),
                       tuple(directions_for(v, given, "input")),
                       create_graph, strict)
    return (answer(outputs, False, create_graph),
            answer(found, many, create_graph))


@part_of(functional)
def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), and v times its Hessian."""
    return second_order(vjp, func, inputs, v, create_graph, strict)


@part_of(functional)
def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), and its Hessian times v."""
    return second_order(jvp, func, inputs, v, create_graph, strict)


def our_own(frame):
    """Whether a frame is the library's, and not of the program."""
    name, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    return (name.startswith("lamina.") or file.startswith("<record ")
            or file == our_own.__code__.co_filename)


def lines_of_the_program():
    """Where the program is, as text; the innermost call last."""
    frame = sys._getframe(1)
    while frame.f_back and our_own(frame):
        frame = frame.f_back
    return "".join(traceback.format_stack(frame, 3))


def wrap_anomaly(operator, kernel):
    """The layer that remembers where operators were called."""
    def call(*args):
        result = kernel(*args)
        for node in nodes_of(result):
            recorded_at.setdefault(node, lines_of_the_program())
        return result
    return call


ANOMALY = add_layer(wrap_anomaly)


class set_detect_anomaly:
    """Look for NaN in backward, from here on or until the block ends."""

    def __init__(self, mode, check_nan=True):
        self.before = anomaly.on, anomaly.nan
        self.switch(mode, check_nan)

    def switch(self, on, nan):
        anomaly.on, anomaly.nan = on, nan
        include(ANOMALY, on)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.switch(*self.before)


class detect_anomaly(set_detect_anomaly):
    """Look for NaN in backward, inside a block."""

    def __init__(self, check_nan=True):
        self.nan = check_nan

    def __enter__(self):
        super().__init__(True, self.nan)
        return self


def is_anomaly_enabled():
    """Whether backward looks for NaN, and knows lines."""
    return anomaly.on


def is_anomaly_check_nan_enabled():
    """Whether NaN is an error in anomaly mode."""
    return anomaly.nan


def watch(nodes):
    """Let every node's answers be looked at."""
    for node in nodes:
        hooks_of(node).after.setdefault("anomaly", NanCheck(node))


class NanCheck:
    """A hook that refuses NaN. It does not hold its node."""

    def __init__(self, node):
        self.name, self.where = node.name(), where_recorded(node)

    @no_grad
    def __call__(self, found, grads):
        for i, g in enumerate(found if anomaly.on and anomaly.nan else ()):
            if g is not None and g.device.type != "meta" and bool(
                    (g != g).any()):
                raise RuntimeError(f"{self.name} gave nan as its gradient "
                                   f"{i}. {self.where}")


def where_recorded(node):
    """What anomaly mode knows of a node's origin."""
    if node in recorded_at:
        return f"It was recorded here:\n{recorded_at[node]}"
    return ("Where it was recorded is not known: anomaly mode was not on "
            "at that time")


class Packing(threading.local):
    """The hooks of this thread, innermost block last."""

    hooks = ()


packing = Packing()
graph_module = submodule("graph", "Nodes, and what they save.")


@part_of(graph_module)
class saved_tensors_hooks:
    """A block: what is saved in it goes through pack_hook, and through
    unpack_hook when it is needed."""

    def __init__(self, pack_hook, unpack_hook):
        self.hooks = pack_hook, unpack_hook

    def __enter__(self):
        self.before = packing.hooks
        packing.hooks = (*self.before, self.hooks)
        dispatch.enter(PACKING)

    def __exit__(self, *exc):
        dispatch.enter(PACKING, -1)
        packing.hooks = self.before


def pack(entry, node, output_nr=None):
    """A saved tensor, by the hooks if there are any."""
    if not packing.hooks or len(entry) == 3:
        return entry
    version = version_of(entry[0]) if len(entry) == 2 else entry[2].version
    if version != entry[1]:
        return entry                    # x *= x: backward will refuse
    pack_hook, unpack_hook = packing.hooks[-1]
    with no_grad():
        x = unpack(entry, node, "saved tensor", output_nr)
        meta = save(x)[0] if len(entry) == 2 else entry[0]
        return meta, unpack_hook, pack_hook(x)


def unpack_by_hook(entry, node, output_nr):
    """The tensor that a hook has packed, where it was in the graph."""
    meta, unpack_hook, packed = entry
    x = unpack_hook(packed)
    if not isinstance(x, Tensor):
        raise TypeError(f"an unpack hook returns a tensor; got "
                        f"{type(x).__name__}")
    if grad_mode.enabled:
        x = x.detach()
        if output_nr is not None:
            set_history(x, node, output_nr)
        elif meta is not None:
            x.autograd = meta
            x.keys |= AUTOGRAD
    return x


def pack_saved(node):
    """Pack all that a node has saved."""
    node = node.inner if type(node) is CopySlices else node
    if not isinstance(node, OperatorNode):
        return
    for name, entry in list(node.entries()):
        if type(entry) is tuple:
            setattr(node, f"{name}_", tuple([x and pack(x, node)
                                             for x in entry])
                    if name in node.recipe.lists else
                    pack(entry, node, node.recipe.results.get(name)))


def wrap_packing(operator, kernel):
    """The layer that gives hooks what was saved."""
    def call(*args):
        result = kernel(*args)
        if packing.hooks and grad_mode.enabled:
            for node in nodes_of(result):
                pack_saved(node)
        return result
    return call


PACKING = add_layer(wrap_packing)


random_states = []      # (get, set) of each generator


class Segment:
    """A part of a model that is computed again when it is needed."""

    def __init__(self, function, args, kwargs, keep_random):
        self.call = functools.partial(function, *args, **kwargs)
        self.given = saved_list([
            x for x in dispatch.all_tensors([*args, *kwargs.values()])
            if isinstance(x, Tensor)])
        self.expected, self.found = [], {}
        self.states = [(put, get()) for get, put in random_states
                       if keep_random]

    def pack(self, x):
        self.expected.append(metadata_of(x))
        return len(self.expected) - 1

    def unpack(self, number):
        if number not in self.found:
            self.run_again()
        return self.found.pop(number)

    def run_again(self):
        for x, version in self.given:
            if version_of(x) != version:
                raise RuntimeError(
                    f"checkpoint(): an argument of shape {list(x.shape)} "
                    f"was written to in place since; the second run would "
                    f"compute with other numbers. Write to a clone()")
        found, now = [], [(put, get()) for get, put in random_states]
        for put, state in self.states:
            put(state)
        with enable_grad(), saved_tensors_hooks(
                lambda x: found.append(x.detach()), lambda packed: packed):
            self.call()
        for put, state in now:
            put(state)
        if list(map(metadata_of, found)) != self.expected:
            raise RuntimeError(
                f"checkpoint(): the second run saved {len(found)} tensors, "
                f"the first {len(self.expected)}, or other shapes; the "
                f"function must do the same each time")
        self.found = dict(enumerate(found))


utils = submodule("utils", "Tools that are not of one chapter.", "lamina")
checkpoint_module = submodule("checkpoint", "Memory for time.",
                              "lamina.utils")


@part_of(checkpoint_module)
def checkpoint(function, *args, use_reentrant=False,
               preserve_rng_state=True, **kwargs):
    """function(*args, **kwargs), of which backward recomputes what it
    needs, so that nothing inside is kept."""
    if use_reentrant:
        raise NotImplementedError("checkpoint() has only the way that "
                                  "PyTorch recommends, use_reentrant=False")
    if not grad_mode.enabled:
        return function(*args, **kwargs)
    segment = Segment(function, args, kwargs, preserve_rng_state)
    with saved_tensors_hooks(segment.pack, segment.unpack):
        return function(*args, **kwargs)


class FunctionNode(Node):
    """The node of a Function's call, and the `ctx` of its two halves."""

    __slots__ = ("__dict__",)       # for whatever the halves want to note

    def __init__(self, function, needs_input_grad):
        self.function = function
        self.hooks = self.saved = None
        self.to_save = self.dirty = self.plain = ()
        self.needs_input_grad = needs_input_grad
        self.materialize = True

    def name(self):
        return f"{self.function.__name__}Backward"

    def save_for_backward(self, *tensors):
        """Keep tensors for backward; None may stand for one."""
        for x in tensors:
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"save_for_backward() keeps tensors; got "
                                f"{type(x).__name__}: note it as an "
                                f"attribute of ctx")
        self.to_save = tensors

    def mark_dirty(self, *tensors):
        """Say which inputs forward has written to; it must return them."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Say which results carry no gradient."""
        self.plain = tensors

    def set_materialize_grads(self, value):
        """Whether a gradient that did not come is given as zeros (it is,
        by default) or as None."""
        self.materialize = value

    @property
    def saved_tensors(self):
        """What save_for_backward() was given; RuntimeError if it was
        written to since, or is freed."""
        if self.saved is None:
            raise used_twice(self)
        return tuple([
            entry and unpack(entry, self, f"saved tensor {i}", nr)
            for i, (entry, nr) in enumerate(self.saved)])

    def release(self):
        if self.saved:
            self.saved = None


def function_apply(self, grads):
    """Call backward; the gradients of the inputs that want one."""
    if self.materialize:
        grads = [zeros(shape, dtype=dtype, device=device)
                 if g is None and dtype else g
                 for g, (shape, dtype, device) in zip(grads, self.outputs)]
    found = self.function.backward(self, *grads)
    found = found if isinstance(found, tuple) else (found,)
    needs = self.needs_input_grad
    extra = found[len(needs):]
    if len(found) < len(needs) or any(g is not None for g in extra):
        raise RuntimeError(
            f"{self.name()} returned {len(found)} gradients; it returns one "
            f"for each argument of forward, and there are {len(needs)}")
    for i, (g, needed) in enumerate(zip(found, needs)):
        if needed and g is not None and not isinstance(g, Tensor):
            raise TypeError(f"{self.name()} returned {type(g).__name__} as "
                            f"gradient {i}; expected a tensor or None")
    return [g for g, needed in zip(found, needs) if needed]


FunctionNode.apply = function_apply


def edges_of(tensors):
    """The edges of a node of those that want a gradient."""
    return [edge_of(x) for x in tensors if wants_grad(x)]


class Function:
    """An operator of your own: subclass it, with static methods
    forward(ctx, *args) and backward(ctx, *grads), and call .apply(*args).

    With setup_context(ctx, inputs, output) forward is written without ctx.
    """

    def __init__(self, *args):
        raise RuntimeError("a Function is not made; call its apply(): "
                           f"{type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args):
        raise NotImplementedError("a Function has to define forward()")

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError("a Function has to define backward() to "
                                  "be gone back through")

    setup_context = None

    @classmethod
    def apply(cls, *args):
        """Call forward, and record it as one node."""
        ctx = FunctionNode(cls, tuple([
            isinstance(x, Tensor) and x.requires_grad for x in args]))
        if any(isinstance(x, Tensor) and x.keys & FORWARD for x in args):
            raise NotImplementedError(f"{cls.__name__} has no forward-mode "
                                      f"derivative: unpack_dual() first")
        edges = edges_of(args)
        with no_grad():
            if cls.setup_context is None:
                given = cls.forward(ctx, *args)
            else:
                given = cls.forward(*args)
                cls.setup_context(ctx, args, given)
        results = list(given) if isinstance(given, tuple) else [given]
        if not (edges and grad_mode.enabled):
            return given
        record_function(ctx, edges, args, results)
        return tuple(results) if isinstance(given, tuple) else results[0]


def record_function(ctx, edges, args, results):
    """Give the results of a Function their history, in place."""
    ctx.lead_to(edges)
    carries = [isinstance(y, Tensor) and y.dtype.category == 2
               and not any(y is x for x in ctx.plain) for y in results]
    for x in ctx.dirty:
        check_leaf(x, x if x._base is None else x._base)
        if x._base is not None or not any(x is y for y in results):
            raise RuntimeError(
                f"{ctx.name()}: an input that is marked dirty has to be "
                f"returned, and cannot be a view")
    for i, y in enumerate(results):
        if any(y is x for x in args) and not any(y is x for x in ctx.dirty):
            results[i] = y.detach()
    ctx.outputs = [(shape_of(y), y.dtype, y.device)
                   if isinstance(y, Tensor) else ((), None, None)
                   for y in results]
    ctx.shape, ctx.dtype = ([o[i] for o in ctx.outputs] for i in (0, 1))
    ctx.saved = []
    for x in ctx.to_save:
        if x is not None and x.keys & INFERENCE:
            raise RuntimeError(
                f"{ctx.name()} would save a tensor that was made in "
                f"inference_mode() for backward; give a clone()")
        nr = next((i for i, y in enumerate(results) if y is x), None)
        ctx.saved.append((x if x is None else pack(save(x), ctx, nr), nr))
    ctx.to_save = ctx.dirty = ctx.plain = ()
    for nr, (y, carried) in enumerate(zip(results, carries)):
        if carried:
            if y._base is not None:
                mark_unrecorded(y)      # a write would not reach its base
            set_history(y, ctx, nr)


class OnceOnly(Node):
    """Stands where a second derivative would begin."""

    def __init__(self, name, edges, output):
        self.start(edges, output)
        self.function = name

    __slots__ = ("function",)

    def apply(self, grads):
        raise RuntimeError(f"{self.function} is marked once_differentiable: "
                           f"its gradient has no gradient")


def once_differentiable(backward):
    """Let a Function's backward be no part of a graph."""
    @functools.wraps(backward)
    def wrapped(ctx, *grads):
        with no_grad():
            found = backward(ctx, *grads)
        edges = [*edges_of(grads), *ctx.next_functions]
        if not grad_mode.enabled:
            return found
        found = list(found) if isinstance(found, tuple) else [found]
        for i, g in enumerate(found):
            if isinstance(g, Tensor):
                found[i] = g = g.detach()
                set_history(g, OnceOnly(ctx.name(), edges, g))
        return tuple(found)
    return wrapped


function_module = submodule("function", "Functions of your own.")
for part in (Function, once_differentiable):
    part_of(function_module)(part)
part_of(graph_module)(Node)
