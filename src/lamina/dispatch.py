"""Dispatch: from a name to the code that runs.

Exported from chapters/03_dispatch.ipynb by `course export`; edit the chapter,
not this file.
"""

import functools
import operator as builtin
import re
import sys
import threading
import warnings
from collections import namedtuple
from typing import NamedTuple

import lamina.strides as strides
from lamina.storage import (
    DLPACK_CPU, Storage, as_device, bfloat16, bool_, cpu, device, dtypes,
    float16, float32, float64, get_default_device, int16, int32, int64, int8,
    lend_dlpack, meta, take_dlpack, uint8, wrap,
)
from lamina.strides import (
    Geometry, Tensor, as_dtype, element, empty, empty_like, flat,
    memory_format, method, nearest, numel, refuse_overlap, row_major, tensor,
    view_of, write_values,
)

__all__ = [
    "parse_schema",
    "define",
    "impl",
    "operators",
    "functions",
    "add_layer",
    "log_operators",
    "by_dtype",
    "array",
    "from_array",
    "from_numpy",
    "as_tensor",
    "from_dlpack",
    "frombuffer",
    "fallback",
    "layout",
    "strided",
    "sparse_coo",
    "TorchDispatchMode",
    "is_tensor_like",
    "sparse_coo_tensor",
    "can_cast",
    "is_floating_point",
    "linalg",
]


class Argument(NamedTuple):
    """One parameter of a schema."""

    name: str
    type: str
    default: str | None
    kwarg_only: bool


class Schema(NamedTuple):
    """An operator's signature in PyTorch's notation, taken apart."""

    name: str
    overload: str
    arguments: tuple
    returns: str

    def __str__(self):
        parts = [f"{a.type} {a.name}"
                 + ("" if a.default is None else f"={a.default}")
                 for a in self.arguments]
        named = [a.kwarg_only for a in self.arguments]
        if any(named):
            parts.insert(named.index(True), "*")
        return f"{self.full_name}({', '.join(parts)}) -> {self.returns}"

    @property
    def full_name(self):
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def outputs(self):
        """The names of several results: `(Tensor values, Tensor indices)`.
        """
        return re.findall(r"Tensor (\w+)", self.returns)

    @property
    def is_view(self):
        """Whether the result shares memory and is not written to."""
        return re.fullmatch(r"Tensor\(\w\)", self.returns) is not None

    @property
    def is_write(self):
        """Whether an argument is written to."""
        return "!" in self.returns


TYPES = ("Tensor", "Tensor[]", "Tensor?[]", "Scalar", "int", "int[]",
         "float", "bool", "str", "ScalarType",
         "MemoryFormat", "Index")


def parse_schema(text):
    """Read `name.overload(type name=default, *, ...) -> type`.

    The notation is that of PyTorch's native_functions.yaml. A letter in
    brackets says what memory a tensor shares: `Tensor(a)` is a view of
    the other `Tensor(a)`; `Tensor(a!)` is written to.
    """
    match = re.fullmatch(r"(\w+)(?:\.(\w+))?\((.*)\) -> (.+)", text.strip())
    if not match:
        raise ValueError(f"not a schema: {text!r}; expected something like "
                         f"'abs(Tensor self) -> Tensor'")
    name, overload, inside, returns = match.groups()
    arguments, kwarg_only = [], False
    for part in filter(None, re.split(r",\s*(?![^\[]*\])", inside)):
        if part == "*":
            kwarg_only = True
            continue
        field = re.fullmatch(r"(\S+) (\w+)(?:=(\S+))?", part)
        if not field or re.sub(r"\(\w!?\)|\?$", "", field[1]) not in TYPES:
            raise ValueError(f"schema {name!r}: {part!r} is not 'type name' "
                             f"with a type out of {', '.join(TYPES)}, each "
                             f"of which may end in ?")
        arguments.append(Argument(field[2], field[1], field[3], kwarg_only))
    return Schema(name, overload or "", tuple(arguments), returns)


class Operator:
    """A schema, the kernels that do it, and a table of what has been found.

    `kernels` maps a device's bit to a function, and 0 to one that serves
    every device. `composite` is a function written in other operators. A
    derived form (`abs_`, `abs.out`) has `base`, the operator that it is a
    form of. `table` maps a set of keys to the function to call.
    """

    def __init__(self, schema, doc, numbers=False, composite=None,
                 base=None):
        self.schema = schema
        self.doc = doc
        self.numbers = ([a.name for a in schema.arguments]
                        if numbers is True else numbers or ())
        self.composite = composite
        self.base = base
        self.kernels = {}
        self.table = {}
        self.forms = []
        self.result = (namedtuple(schema.name, schema.outputs)
                       if schema.outputs else None)

    def __call__(self, *args, **kwargs):
        return self.call(*args, **kwargs)

    def __repr__(self):
        return f"<operator {self.schema}>"


class layout(NamedTuple):
    """How a tensor keeps its elements; `strided` has no bit of its own."""

    name: str
    bit: int

    def __repr__(self):
        return f"lamina.{self.name}"


FIRST_LAYOUT = 1 << 12      # above the devices
strided = layout("strided", 0)
sparse_coo = layout("sparse_coo", FIRST_LAYOUT)
layouts = {each.bit: each for each in (strided, sparse_coo)}
LAYOUTS = sum(layouts)


layers = {}
FIRST_LAYER = 1 << 16       # above the bits of devices and layouts
FUNCTION = 1 << 41          # above the bits of all layers


def add_layer(wrap, bit=None):
    """Put a layer above the devices, and above the layers so far.

    `wrap(operator, kernel)` gives the function to call in place of
    `kernel` for tensors that have the layer's bit, which is returned. A
    cell that is run again puts its layer where it was. With `bit` it has
    a place of its own: that of modes is above all others.
    """
    bit = bit or FIRST_LAYER << len(layers)
    for known, other in layers.items():
        if "<" not in wrap.__qualname__ and (
                (other.__module__, other.__qualname__)
                == (wrap.__module__, wrap.__qualname__)):
            bit = known
            for operator in operators.values():
                operator.table.clear()
    layers[bit] = wrap
    return bit


watchers = []       # what is asked about each function that is found


def resolve(operator, keys):
    """Find the function for a set of keys, and keep it in the table.

    The highest layer in the set wraps what the rest of the set gives; at
    the bottom stands the kernel of the one device that is left.
    """
    top = 1 << keys.bit_length() - 1 if keys else 0
    if top == FUNCTION:
        found = overridden(operator)
    elif operator.composite:
        found = operator.composite
    elif top >= FIRST_LAYER:
        found = layers[top](operator, lookup(operator, keys ^ top))
    else:
        found = backend_kernel(operator, keys)
    for watch in watchers:
        found = watch(operator, keys, found)
    operator.table[keys] = found
    return found


def lookup(operator, keys):
    """The function for a set of keys: from the table, or resolved."""
    return operator.table.get(keys) or resolve(operator, keys)


fallbacks = {}      # what serves all operators of a device or layout


def backend_kernel(operator, keys):
    """The kernel for the device and layout in `keys`, or an error that
    says why there is none."""
    name = operator.schema.full_name
    devices = [d for d in device.known.values() if d.bit & keys]
    if not devices:
        raise TypeError(f"{name}(): at least one argument must be a Tensor")
    if len(devices) > 1:
        raise RuntimeError(
            f"{name}(): expected all tensors to be on one device; got "
            f"{' and '.join(repr(str(d)) for d in devices)}; move one with "
            f".to(...)")
    kind = keys & LAYOUTS
    kernel = operator.kernels.get(keys) or operator.kernels.get(kind)
    if kernel is None and operator.base and not kind:
        plain = operator.base.composite or backend_kernel(operator.base, keys)
        kernel = writing(operator, plain)
    if kernel is None:
        found = fallbacks.get(keys) or fallbacks.get(kind)
        if found is None:
            raise missing(operator, devices[0], layouts[kind])
        kernel = functools.partial(found, operator)
    return kernel


def named(keys, kind=None):
    """What devices and layouts a set holds, in words; `kind` is for the
    set that holds no layout."""
    words = [str(d) for d in device.known.values() if d.bit & keys]
    kinds = [each.name for each in layouts.values() if each.bit & keys]
    return " ".join((words or ["every device"])
                    + (kinds or ([kind] if kind else [])))


def missing(operator, device, layout):
    """The error for an operator without a kernel for such tensors."""
    name, kind = operator.schema.full_name, layout.bit and "strided"
    have = [named(keys, kind) for keys
            in sorted((operator.base or operator).kernels)]
    where, rest = f"{name!r}, '{device}'", ""
    text = f"{name}(): there is no kernel for device '{device}'"
    if layout.bit:
        text += f" and layout {layout.name}"
        where += f", layout={layout.name}"
        rest = ". Or compute with x.to_dense()"
    text += f"; there is one for {', '.join(have) or 'none'}. "
    if str(device) == "cpu" and not np:
        return NotImplementedError(
            text + "The device 'cpu' needs NumPy, which is not installed")
    return NotImplementedError(text + f"Register one: @impl({where}){rest}")


def as_ints(value):
    if not isinstance(value, (tuple, list)):
        value = (value,)
    elif len(value) == 1 and isinstance(value[0], (tuple, list)):
        value = value[0]                # x.permute((1, 0))
    if any(isinstance(item, bool) for item in value):
        raise TypeError
    return tuple(map(builtin.index, value))


def as_number(value):
    if isinstance(value, (int, float)):
        return value
    if getattr(value, "requires_grad", False):
        raise TypeError                 # its gradient would be lost
    if hasattr(value, "item"):          # one element of a tensor or array
        return value.item()
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError


of_tensors = {Tensor}.issuperset


def as_tensors(value):
    """A sequence of tensors, or of tensors and None, as a tuple."""
    if type(value) is list and of_tensors(map(type, value)):
        return tuple(value)             # as nearly always
    if isinstance(value, Tensor) or not all(
            x is None or is_tensor_like(x) for x in value):
        raise TypeError
    return tuple(value)


def as_bool(value):
    if value is not True and value is not False:
        raise TypeError
    return value


def as_format(value):
    if not isinstance(value, memory_format):
        raise TypeError
    return value


def as_text(value):
    if not isinstance(value, str):
        raise TypeError
    return value


CONVERTERS = {"int": (builtin.index, "an int"),
              "int[]": (as_ints, "ints"),
              "Scalar": (as_number, "a number"),
              "float": (as_number, "a number"),
              "bool": (as_bool, "True or False"),
              "str": (as_text, "a string"),
              "Tensor[]": (as_tensors, "a list or tuple of tensors"),
              "Tensor?[]": (as_tensors, "a list or tuple of tensors"),
              "ScalarType": (as_dtype, "a dtype"),
              "MemoryFormat": (as_format, "a memory format")}


def convert(operator, argument, value):
    """The argument as its schema's type; TypeError names it if it is not."""
    function, expected = CONVERTERS[argument.type.rstrip("?")]
    try:
        if value is None and argument.type[-1] == "?":
            return None
        return function(value)
    except TypeError:
        raise TypeError(
            f"{operator.schema.name}(): argument {argument.name!r} must be "
            f"{expected}, not {value!r}") from None


class Here(threading.local):
    """What is switched on in one thread; each thread has its own."""

    def __init__(self):
        self.logs, self.modes, self.plain = [], [], False


here = Here()


def is_tensor_like(value):
    """A tensor, or an object whose class has `__torch_function__`."""
    return isinstance(value, Tensor) or hasattr(type(value),
                                                "__torch_function__")


def keys_of(operator, argument, value):
    """The keys of an argument that is not exactly a Tensor."""
    if hasattr(type(value), "__torch_function__") and not here.plain:
        return FUNCTION
    if isinstance(value, Tensor):
        return value.keys
    numbers = argument in operator.numbers
    if numbers and isinstance(value, (int, float)):
        return 0
    kind = "a Tensor or a number" if numbers else "a Tensor"
    raise TypeError(f"{operator.schema.name}(): argument {argument!r} must "
                    f"be {kind}, not {type(value).__name__}")


def keys_of_all(tensors):
    """The keys of several tensors, joined."""
    keys = 0
    for x in tensors:
        if x is not None:
            keys |= x.keys if isinstance(x, Tensor) else FUNCTION
    return keys


included = 0

TEMPLATE = """
def make(operator, table, resolve, arguments, out_form):
    def {name}({parameters}):
        {lines}
        keys = {keys} | included
        try:
            kernel = table[keys]
        except KeyError:
            kernel = resolve(operator, keys)
        return kernel({names})
    return {name}
"""


def spreads(arguments):
    """Whether the second argument, the last, may be given as `*ints`."""
    return (len(arguments) > 1 and arguments[0].name == "self"
            and arguments[1].type == "int[]" and not arguments[1].default
            and all(a.kwarg_only for a in arguments[2:]))


def parameter_list(arguments, out):
    """The parameters of the call, as source text."""
    texts = [a.name + ("" if a.default is None else f"={a.default}")
             for a in arguments]
    if out:
        texts.append("out=None")
    positional = sum(not a.kwarg_only for a in arguments)
    if spreads(arguments):
        name = arguments[1].name
        texts[1:2] = [f"*{name}_", f"{name}=None"]
    elif positional < len(texts):
        texts.insert(positional, "*")
    return ", ".join(texts)


QUICK = {"int": "type({0}) is int",
         "bool": "{0} is True or {0} is False",
         "float": "type({0}) is float",
         "str": "type({0}) is str",
         "Scalar": "type({0}) is int or type({0}) is float",
         "int[]": "type({0}) is tuple and of_ints(map(type, {0}))",
         "int?": "{0} is None",
         "int[]?": "{0} is None or type({0}) is tuple and "
                   "of_ints(map(type, {0}))",
         "Scalar?": "{0} is None", "ScalarType?": "{0} is None",
         "MemoryFormat?": "{0} is None"}


of_ints = {int}.issuperset


def check_lines(arguments):
    """The lines that check and convert the arguments."""
    lines = []
    if spreads(arguments):
        name = arguments[1].name
        lines.append(f"{name} = {name}_ or {name}")
    for i, a in enumerate(arguments):
        if a.type.rstrip("?") in CONVERTERS:
            line = f"{a.name} = convert(operator, arguments[{i}], {a.name})"
            if a.type in QUICK:
                test = QUICK[a.type].format(a.name)
                line = f"if not ({test}): {line}"
            lines.append(line)
    return lines


def keys_text(arguments):
    """The expression for the keys of all tensor arguments."""
    texts = []
    for a in arguments:
        if a.type.startswith("Tensor"):
            text = (f"({a.name}.keys if type({a.name}) is Tensor else "
                    f"keys_of(operator, {a.name!r}, {a.name}))")
            if a.type.endswith("[]"):
                text = f"keys_of_all({a.name})"
            elif a.type == "Tensor?":
                text = f"(0 if {a.name} is None else {text})"
            texts.append(text)
        elif a.type == "ScalarType?":
            texts.append(f"(0 if {a.name} is None else {a.name}.bit)")
    return " | ".join(texts) or "0"


def from_outside(value, otherwise=None):
    """NumPy's numbers and arrays as ours; `otherwise` for what is no
    operand."""
    if hasattr(type(value), "__torch_function__"):
        return value
    if not hasattr(value, "__array_interface__"):
        return otherwise
    return tensor(value) if value.shape else value.item()


def build_call(operator, name=None, guard=None):
    """Write the function that takes an operator's arguments, once.

    All that can be known from the schema is done here, so that a call
    does only this: check each argument, join the keys, look up, go. With
    `guard` it is a sign, such as `__add__`: it takes no named arguments,
    and gives NotImplemented if the one of that name is no operand. The
    text is kept as `source`.
    """
    schema, arguments = operator.schema, operator.schema.arguments
    name, out = name or schema.name, None
    names = ", ".join(a.default if guard and a.kwarg_only else a.name
                      for a in arguments)
    if guard:
        arguments = [a for a in arguments if not a.kwarg_only]
    elif operator.forms and is_out_form(operator.forms[0]):
        out = operator.forms[0]
    several = schema.outputs and not guard
    lines = check_lines(arguments)
    if out:
        passed = ", ".join(f"{a.name}={a.name}" if a.kwarg_only else a.name
                           for a in out.schema.arguments)
        lines.append(f"if out is not None: return out_form({passed})")
    if several:
        lines.append(f"if out is not None: return into_each(operator, "
                     f"({names},), out)")
    outside = ("if type({0}) is not Tensor and not isinstance({0}, (Tensor, "
               "int, float)):\n            {0} = from_outside({0}{1})")
    if guard:
        lines.insert(0, outside.format(guard, "") + "\n            "
                        f"if {guard} is None: return NotImplemented")
    else:
        lines[:0] = [outside.format(a.name, ", " + a.name)
                     for a in arguments if a.name in operator.numbers]
    source = TEMPLATE.format(
        name=name, names=names,
        parameters=parameter_list(arguments, out or several),
        lines="\n        ".join(lines) or "pass", keys=keys_text(arguments))
    space = {}
    exec(compile(source, f"<{schema.full_name}>", "exec"), globals(), space)
    call = space["make"](operator, operator.table, resolve, arguments,
                         out and out.call)
    call.__qualname__ = name
    call.__doc__ = f"{operator.doc}\n\n{schema}"
    call.operator, call.source = operator, source
    return call


operators = {}
functions = {}


def define(schema, doc="", *, kernel=None, composite=None, numbers=False,
           inplace=False):
    """Declare an operator; its function, method and other forms follow.

    `kernel` serves every device; `composite` is a function written in
    other operators, so that it needs no kernel. `numbers` names the tensor
    arguments that may be Python numbers; True is all of them. A
    plain operator that gives one tensor gets an `out=` form, and with
    `inplace` an in-place form. The operator is returned.
    """
    schema = parse_schema(schema)
    module = sys._getframe(1).f_globals.get("__name__")     # who declares it
    known = operators.get(schema.full_name)
    if known and known.module != module:
        raise RuntimeError(f"operator {schema.full_name!r} is there already, "
                           f"from {known.module}: {known.schema}")
    operator = Operator(schema, doc, numbers, composite)
    operator.module = module
    if kernel:
        operator.kernels[0] = kernel
    if schema.returns == "Tensor":
        add_form(operator, schema.name, (schema.overload + "_out").lstrip("_"),
                 schema.arguments
                 + (Argument("out", "Tensor(a!)", None, True),))
        if inplace:
            first = schema.arguments[0]._replace(type="Tensor(a!)")
            add_form(operator, schema.name + "_", schema.overload,
                     (first,) + schema.arguments[1:],
                     composite and rewriting(composite))
    return install(operator)


def add_form(operator, name, overload, arguments, composite=None):
    """Derive a form that writes from an operator."""
    form = Operator(Schema(name, overload, arguments, "Tensor(a!)"),
                    operator.doc, operator.numbers, composite, operator)
    form.module = operator.module
    operator.forms.append(install(form))


def install(operator):
    """Make an operator callable: by name, and as a method of tensors."""
    schema, name = operator.schema, operator.schema.name
    known = operators.get(schema.full_name)
    if known and known.schema == schema:    # a cell that is run again
        operator.kernels = {**known.kernels, **operator.kernels}
    operators[schema.full_name] = operator
    operator.call = build_call(operator)
    if is_out_form(operator):       # reached by the plain form's out=
        return operator
    same = [o for o in operators.values()
            if o.schema.name == name and not is_out_form(o)]
    function = operator.call if len(same) == 1 else overloaded(name, same)
    functions[name] = function
    if schema.arguments and schema.arguments[0].name == "self":
        method(function)
    return operator


def is_out_form(operator):
    return operator.base and not operator.schema.name.endswith("_")


def overloaded(name, choices):
    """One function for several schemas: the first that the call fits. The
    types decide, so it is looked for once for each list of types."""
    chosen = {}

    def choose(args, kwargs):
        for operator in choices:
            if fits(operator, args, kwargs):
                return operator.call
        raise TypeError(f"{name}(): no form of it takes these arguments; "
                        f"there are:\n" + "\n".join(
                            f"  {o.schema}" for o in choices))

    def call(*args, **kwargs):
        types = tuple(map(type, args))
        if kwargs:
            types = (*types, *kwargs, *map(type, kwargs.values()))
        try:
            found = chosen[types]
        except KeyError:
            found = chosen[types] = choose(args, kwargs)
        return found(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "\n\n".join(o.call.__doc__ for o in choices)
    return call


def fits(operator, args, kwargs):
    """Whether a call has the right names, and tensors in their places."""
    params = operator.schema.arguments
    if len(args) > sum(not p.kwarg_only for p in params):
        return False
    given = dict(zip((p.name for p in params), args))
    if given.keys() & kwargs.keys():
        return False
    given.update(kwargs)
    given.pop("out", None)
    types = {p.name: p.type for p in params}
    needed = {p.name for p in params if p.default is None}
    return needed <= given.keys() <= types.keys() and all(
        may_be(types[k], v, k in operator.numbers)
        for k, v in given.items())


def may_be(type, value, number=False):
    """Whether an argument of a schema's type may have that value."""
    if value is None or number:
        return number or type[-1] == "?"
    if type.startswith("Tensor"):
        return (isinstance(value, (list, tuple)) if type.endswith("[]")
                else is_tensor_like(value))
    try:
        CONVERTERS[type.rstrip("?")][0](value)
    except TypeError:
        return False
    return not is_tensor_like(value)


class Namespace:
    """The functions whose names begin alike: linalg.cross."""

    def __init__(self, prefix):
        self.prefix = prefix

    def __getattr__(self, name):
        try:
            return functions[f"{self.prefix}_{name}"]
        except KeyError:
            raise AttributeError(
                f"{self.prefix!r} has no function {name!r}"
                + nearest(name, dir(self))) from None

    def __dir__(self):
        cut = len(self.prefix) + 1
        return [name[cut:] for name in functions
                if name.startswith(f"{self.prefix}_")]


linalg = Namespace("linalg")


def impl(name, *devices, layout=strided):
    """Register a kernel: `@impl("abs", "cpu")` above a function.

    Without a device it serves all of them. The kernel takes the schema's
    arguments in order, and if it can write its result into a given tensor,
    that as `out`.
    """
    if name not in operators:
        raise ValueError(f"no operator {name!r}" + nearest(name, operators)
                         + "; declare it first: define(schema)")

    def register(kernel):
        operator = operators[name]
        for bit in bits_of(devices):
            operator.kernels[bit | layout.bit] = kernel
        for form in (operator, *operator.forms):
            form.table.clear()
        return kernel
    return register


def bits_of(devices):
    """The bits of the devices; 0, which is all of them, if none is named."""
    if not devices:
        return [0]
    return [each.bit for each in map(device, devices)
            if each.type != "cpu" or np]        # cpu is NumPy's


def fallback(*devices, layout=strided):
    """Register a kernel for all operators that have none of their own.

    It is given the operator, then its arguments: `@fallback("mine")`
    above a function `(operator, *args)`.
    """
    def register(kernel):
        for bit in bits_of(devices):
            fallbacks[bit | layout.bit] = kernel
        for operator in operators.values():
            operator.table.clear()
        return kernel
    return register


VIEWS = """
    transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)
    permute(Tensor(a) self, int[] dims) -> Tensor(a)
    t(Tensor(a) self) -> Tensor(a)
    detach(Tensor(a) self) -> Tensor(a)
    numpy_T(Tensor(a) self) -> Tensor(a)
    unsqueeze(Tensor(a) self, int dim) -> Tensor(a)
    squeeze(Tensor(a) self, int[]? dim=None) -> Tensor(a)
    select.int(Tensor(a) self, int dim, int index) -> Tensor(a)
    diagonal(Tensor(a) self, int offset=0, int dim1=0,
             int dim2=1) -> Tensor(a)
    unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)
    narrow(Tensor(a) self, int dim, int start, int length) -> Tensor(a)
    getitem(Tensor(a) self, Index items) -> Tensor(a)
    expand(Tensor(a) self, int[] size) -> Tensor(a)
    view(Tensor(a) self, int[] size) -> Tensor(a)
    as_strided(Tensor(a) self, int[] size, int[] stride,
               int? storage_offset=None) -> Tensor(a)
"""


def view_kernel(plain, count):
    """A function of a tensor, from one of chapter 2 that also takes a
    geometry: the choice is made here, and not at each call."""
    function = getattr(plain, "on_geometry", None)
    if function is None or count > 2:
        return plain
    if count == 1:
        return lambda x: view_of(x, function(x.geometry))
    return lambda x, argument: view_of(x, function(x.geometry, argument))


for text in re.findall(r"\w[^>]*> \S+", re.sub(r"\s+", " ", VIEWS)):
    schema = parse_schema(text)
    plain = getattr(strides, schema.name)
    define(text, plain.__doc__,
           kernel=view_kernel(plain, len(schema.arguments)))
Tensor.T = property(functions["numpy_T"])
define("view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
       strides.view_dtype.__doc__, kernel=strides.view_dtype)
functions["view"] = method(strides.viewer(
    operators["view"].call, operators["view.dtype"].call))


try:
    import numpy as np
except ImportError:
    np = None           # the python device does without

# NumPy has no bfloat16: it sees the raw bits
numpy_dtypes = {d: np.dtype("uint16" if d is bfloat16 else d.name)
                for d in dtypes.values()} if np else {}


def array(x):
    """NumPy's view of a tensor's memory: no copy; made once a tensor."""
    found = x.array
    if found is None:
        if np is None:
            raise RuntimeError("this needs NumPy, which is not installed; "
                               "device='python' works without it")
        step, (shape, steps, offset) = x.dtype.itemsize, x.geometry
        if 0 in shape:      # its strides may lead past the storage
            found = np.empty(shape, numpy_dtypes[x.dtype])
        else:
            found = np.ndarray(shape, numpy_dtypes[x.dtype],
                               x.storage.buffer, offset * step,
                               [s * step for s in steps])
        x.array = found
    return found


CPU = cpu.bit
new_storage, new_tensor = Storage.__new__, Tensor.__new__
ndarray = np.ndarray if np else None
dtype_of = {theirs: ours for ours, theirs in numpy_dtypes.items()
            if ours is not bfloat16}


def from_array(found):
    """A tensor on the cpu over the memory of an array that NumPy made."""
    found = np.asarray(found)
    dtype = dtype_of.get(found.dtype)
    if dtype is None:
        raise TypeError(f"no dtype for NumPy's {found.dtype}: a kernel gives "
                        f"an array of one of {', '.join(map(str, dtype_of))}")
    if not found.flags.forc and not in_memory_order(found).flags.c_contiguous:
        found = found.copy()
    x = own(found, dtype)
    x.keys |= dtype.bit
    return x


def in_memory_order(found):
    """The array with its largest strides first."""
    order = np.argsort(found.strides, kind="stable")[::-1]
    return found.transpose(order)


def own(found, dtype):
    """A tensor of a whole array: nothing is checked, for it is on the way
    of every call."""
    if type(found) is not ndarray:
        found = np.asarray(found)
    x = new_tensor(Tensor)
    x.dtype = dtype
    x.keys = CPU
    x.array = found
    x._storage = x._geometry = x._base = x.autograd = None
    return x


def fill_storage(x):
    """Give a tensor that own() has made its storage."""
    memory = x.array
    if not memory.flags.c_contiguous:
        memory = in_memory_order(memory)
    x._storage = storage = new_storage(Storage)
    storage.buffer = memory
    storage.device = cpu
    storage.version = 0
    return storage


def fill_geometry(x):
    """Give a tensor that own() has made its geometry."""
    found = x.array
    if found.flags.c_contiguous:
        x._geometry = geometry = row_major(found.shape)
    else:
        steps = [s // found.itemsize for s in found.strides]
        x._geometry = geometry = Geometry(found.shape, tuple(steps), 0)
    return geometry


def shape_of(x):
    """The shape, which needs no geometry if there is an array."""
    found = x.array
    return x.geometry.shape if found is None else found.shape


Tensor.late.update(storage=fill_storage, geometry=fill_geometry)
Tensor.shape = property(shape_of)
Tensor.ndim = property(lambda x: len(shape_of(x)))


def widen(bits):
    """The float32 array of bfloat16's raw bits: they are its upper half."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(found):
    """bfloat16's raw bits of an array, rounded as BFloat16.pack does."""
    bits = found.astype(np.float32).view(np.uint32)
    rounded = bits + (0x7fff + (bits >> 16 & 1))
    return (np.where(found != found, bits | 0x400000, rounded)
            >> 16).astype(np.uint16)


@impl("t", "cpu")
def cpu_t(self):
    view = view_of(self, strides.t.on_geometry(self.geometry))
    if self.array is not None:
        view.array = self.array.T
    return view


define("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
       strides.clone.__doc__)
define("copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) "
       "-> Tensor(a!)", strides.copy_.__doc__, numbers=True)
define("fill_(Tensor(a!) self, Scalar value) -> Tensor(a!)",
       strides.fill_.__doc__)
impl("clone", "python")(strides.clone)
impl("fill_", "python")(strides.fill_)


@impl("copy_", "python")
def python_copy_(self, src, non_blocking=False):
    kernel = strides.copy_ if isinstance(src, Tensor) else strides.fill_
    return kernel(self, src)


impl("clone", "meta")(strides.clone)
impl("fill_", "meta")(lambda self, value: self)


@impl("copy_", "meta")
def meta_copy_(self, src, non_blocking=False):
    if isinstance(src, Tensor):
        strides.expand(src, self.shape)     # refuses what does not fit
    return self


@impl("clone", "cpu")
def cpu_clone(self, memory_format=None):
    found = array(self)
    if memory_format is None and self.geometry == row_major(self.shape):
        x = own(found.copy(), self.dtype)
        x.keys |= self.dtype.bit
        return x
    out = empty_like(self, memory_format=memory_format)
    np.copyto(array(out), found)
    return out


@impl("copy_", "cpu")
def cpu_copy_(self, src, non_blocking=False):
    if not isinstance(src, Tensor):
        return cpu_fill_(self, src)
    refuse_overlap(self)
    source = array(strides.expand(src, self.shape))
    with np.errstate(all="ignore"):         # nan to an integer, 1e9 to half
        if bfloat16 in (self.dtype, src.dtype) and self.dtype != src.dtype:
            source = (widen(source) if src.dtype is bfloat16
                      else narrow(source))
        np.copyto(array(self), source, casting="unsafe")
    self.storage.version += 1
    return self


@impl("fill_", "cpu")
def cpu_fill_(self, value):
    kept = element(self.dtype, value)
    array(self)[...] = narrow(np.float32(kept)) if (
        self.dtype is bfloat16) else kept
    self.storage.version += 1
    return self


define("cat(Tensor[] tensors, int dim=0) -> Tensor", strides.cat.__doc__)
define("flip(Tensor self, int[] dims) -> Tensor", strides.flip.__doc__)
for where, copy in [("python", python_copy_), ("cpu", cpu_copy_),
                    ("meta", meta_copy_)]:
    for name in ("cat", "flip"):
        impl(name, where)(functools.partial(getattr(strides, name),
                                            copy=copy))
copies = operators["cat"].kernels[CPU] if np else None


@impl("cat", "cpu")
def cpu_cat(tensors, dim=0):
    dtype = tensors[0].dtype if tensors else None
    if any(x.dtype is not dtype or x.shape in ((), (0,)) for x in tensors):
        return copies(tensors, dim)
    try:
        found = np.concatenate([array(x) for x in tensors], dim)
    except ValueError:
        return copies(tensors, dim)     # which says what does not fit
    x = own(np.ascontiguousarray(found), dtype)
    x.keys |= dtype.bit
    return x


Tensor._cat = staticmethod(functions["cat"])


define("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
       strides.index.__doc__)
impl("index.Tensor", "python", "meta")(strides.index)


def numpy_index(indices):
    """Index tensors as NumPy takes them."""
    return tuple([slice(None) if i is None else
                  array(i) != 0 if i.dtype in strides.MASKS else array(i)
                  for i in strides.check_indices(indices)])


@impl("index.Tensor", "cpu")
def cpu_index(self, indices):
    found = array(self)[numpy_index(indices)]
    if not any(i is not None and i.shape for i in indices):
        found = np.array(found)     # of numbers and slices NumPy makes views
    x = own(np.asarray(found, order="C"), self.dtype)
    x.keys |= self.dtype.bit
    return x


define("index_put(Tensor self, Tensor?[] indices, Tensor values, "
       "bool accumulate=False) -> Tensor", strides.index_put.__doc__,
       inplace=True)
impl("index_put", "python", "meta")(strides.index_put)


@impl("index_put", "cpu")
def cpu_index_put(self, indices, values, accumulate=False, out=None):
    if out is None:
        out = cpu_clone(self)
    elif out is not self:
        cpu_copy_(out, self)
    refuse_overlap(out)
    strides.check_put(out, indices, values)
    place, at, given = array(out), numpy_index(indices), array(values)
    while given.ndim and len(given) == 1:       # NumPy minds a size of 1
        given = given[0]
    try:
        if accumulate:
            add = np.add if out.dtype.category else np.logical_or
            add.at(place, at, given)
        else:
            place[at] = given
    except (TypeError, ValueError):
        shape = place[at].shape
        strides.expand_to(shape, values)    # says what does not fit
        raise
    return out


define("nonzero(Tensor self) -> Tensor", strides.nonzero_rows.__doc__)
impl("nonzero", "python", "meta")(strides.nonzero_rows)


@impl("nonzero", "cpu")
def cpu_nonzero(self):
    columns = from_array(np.argwhere(array(self)).T.copy())
    return strides.t(columns)           # its strides too are PyTorch's


functions["nonzero"] = strides.with_as_tuple(functions["nonzero"])


COMPOSED = """
    stack(Tensor[] tensors, int dim=0) -> Tensor
    hstack(Tensor[] tensors) -> Tensor
    vstack(Tensor[] tensors) -> Tensor
    dstack(Tensor[] tensors) -> Tensor
    column_stack(Tensor[] tensors) -> Tensor
    take(Tensor self, Tensor index) -> Tensor
    masked_select(Tensor self, Tensor mask) -> Tensor
"""
for text in COMPOSED.strip().splitlines():
    plain = getattr(strides, parse_schema(text).name)
    define(text, plain.__doc__, composite=plain)


def can_cast(from_, to):
    """Whether a result of one dtype may be written into a tensor of the
    other: a float not into integers, and nothing but a bool into bools."""
    return as_dtype(from_).category <= as_dtype(to).category


def check_cast(dtype, out_dtype):
    """Refuse a result that loses its kind: float to int, int to bool."""
    if not can_cast(dtype, out_dtype):
        raise RuntimeError(f"the result is {dtype}, which cannot be written "
                           f"into a tensor of {out_dtype}")


def prepare_out(out, shape, dtype, inputs=()):
    """Make `out` fit for a result of that shape and dtype, or refuse.

    An `out` of another shape is resized, with a warning if it was not
    empty; `shape` may be a Geometry, which is then taken over. It is not
    resized if it is one of the inputs (that is what an in-place form is).
    """
    refuse_overlap(out)
    check_cast(dtype, out.dtype)
    geometry = shape if isinstance(shape, Geometry) else row_major(shape)
    if out.shape != geometry.shape:
        if any(out is x for x in inputs):
            raise RuntimeError(
                f"the result has shape {list(geometry.shape)}; it does not "
                f"fit into a tensor of {list(out.shape)}")
        resize_out(out, geometry)
    return out


def resize_out(out, geometry):
    """Give `out` another geometry, and more memory if it has too little."""
    first, size = out.geometry.offset, numel(geometry.shape)
    fits = (first + size) * out.dtype.itemsize <= out.storage.nbytes()
    if not fits and out._base is not None:
        raise RuntimeError("this out= is a view, and too small: its memory "
                           "is its base's; give a tensor of its own, "
                           "empty(0)")
    if out.numel():
        warnings.warn(f"out= of shape {list(out.shape)} is resized to "
                      f"{list(geometry.shape)}; give one of that shape, or "
                      f"an empty one", stacklevel=7)
    if not fits:
        first = 0
        out._storage = Storage(size * out.dtype.itemsize, out.device)
    out._geometry, out.array = geometry._replace(offset=first), None


def writing(operator, kernel):
    """The kernel of a form that writes, from that of the plain form."""
    fill = kernel if takes_out(kernel) else copying(kernel)

    def in_place(self, *args):
        storage = self.storage
        before = storage.version
        fill(self, *args, out=self)
        storage.version = before + 1
        return self

    def into(*args):
        out = args[-1]
        before = out.storage.version
        fill(*args[:-1], out=out)
        out.storage.version = before + 1
        return out

    return into if is_out_form(operator) else in_place


def rewriting(composite):
    """The in-place form of a composite: its result, copied over self."""
    def in_place(self, *args):
        found = composite(self, *args)
        if found.shape != self.shape:
            raise RuntimeError(f"the result has shape {list(found.shape)}; "
                               f"it does not fit into {list(self.shape)}")
        check_cast(found.dtype, self.dtype)
        return functions["copy_"](self, found)
    return in_place


def takes_out(kernel):
    """Whether a kernel has a parameter `out`."""
    code = getattr(kernel, "__code__", None)
    return code is not None and "out" in code.co_varnames[
        :code.co_argcount + code.co_kwonlyargcount]


def copying(kernel):
    """A kernel that takes `out`, from one that does not."""
    def fill(*args, out):
        result = kernel(*args)
        prepare_out(out, result.shape, result.dtype, args)
        backend_kernel(operators["copy_"], out.device.bit)(out, result)
    return fill


def into_each(operator, args, out):
    """Several results, written into as many tensors of `out=`."""
    given = {a.name: value for a, value in
             zip(operator.schema.arguments, args)}
    found = operator.call(**given)
    if not isinstance(out, (tuple, list)) or len(out) != len(found):
        raise TypeError(f"{operator.schema.name}(): out= takes "
                        f"{len(found)} tensors: {operator.schema.returns}")
    for x, y in zip(found, out):
        if x.autograd is not None and x.requires_grad:
            raise RuntimeError(
                f"{operator.schema.name}(out=...) is not recorded, and an "
                f"argument requires grad; leave out= away, or use no_grad()")
        prepare_out(y, x.shape, x.dtype)
        functions["copy_"](y, x)
    return operator.result(*out)


def by_dtype(name, table):
    """A kernel that picks, by its first tensor's dtype, another from `table`
    (a dtype or a tuple of them -> function)."""
    flat_table = {d: kernel for key, kernel in table.items()
                  for d in (key if isinstance(key, tuple) else (key,))}

    def kernel(self, *args, out=None):
        found = flat_table.get(self.dtype)
        if found is None:
            raise NotImplementedError(
                f"{name} is not implemented for {self.dtype}; it is for "
                f"{', '.join(map(repr, flat_table))}")
        return found(self, *args, out=out)

    kernel.__name__ = f"{name}_by_dtype"
    return kernel


define("abs(Tensor self) -> Tensor", "The absolute value, element by "
       "element.", inplace=True)


def python_abs(self, out=None):
    result = [abs(value) for value in flat(self)]
    out = empty_like(self) if out is None else prepare_out(
        out, self.shape, self.dtype, (self,))
    return write_values(out, result)


def cpu_abs(self, out=None):
    if out is None:
        return from_array(np.abs(array(self)))
    prepare_out(out, self.shape, self.dtype, (self,))
    np.copyto(array(out), np.abs(array(self)), casting="unsafe")
    return out


def meta_abs(self, out=None):
    return empty_like(self) if out is None else prepare_out(
        out, self.shape, self.dtype, (self,))


NUMBERS = tuple(d for d in dtypes.values() if d.category > 0)
for kernel in (python_abs, cpu_abs, meta_abs):
    impl("abs", kernel.__name__.split("_")[0])(
        by_dtype("abs", {NUMBERS: kernel}))
Tensor.__abs__ = functions["abs"]


define("_to_copy(Tensor self, ScalarType? dtype=None, *, "
       "MemoryFormat? memory_format=None) -> Tensor",
       "A copy with its elements converted to another dtype.")


@impl("_to_copy", "python", "meta")
def plain_to_copy(self, dtype, memory_format=None):
    out = empty_like(self, dtype=dtype, memory_format=memory_format)
    return write_values(out, flat(self)) if (
        self.device.type == "python") else out


@impl("_to_copy", "cpu")
def cpu_to_copy(self, dtype, memory_format=None):
    return cpu_copy_(plain_to_copy(self, dtype, memory_format), self)


define("_to_device(Tensor self, str device) -> Tensor",
       "A copy on another device: the same bytes, or on meta none.")


@impl("_to_device")
def any_to_device(self, device):
    if device == "meta":
        return empty_like(self, device=device)
    if self.device.type == "meta":
        raise NotImplementedError(f"a tensor on 'meta' has no data to move "
                                  f"to {device!r}; make one with empty_like")
    first, step = self.geometry.offset, self.dtype.itemsize
    last = first + sum((n - 1) * s for n, s in zip(self.shape, self.stride()))
    memory = self.storage.bytes[first * step:(last + 1) * step]
    return Tensor(Storage(bytearray(memory), device),
                  self.geometry._replace(offset=0), self.dtype)


def to_dtype(dtype, non_blocking=False, copy=False):
    return dtype, None, copy


def to_other(other, non_blocking=False, copy=False):
    return other.dtype, other.device, copy


def to_device(device=None, dtype=None, non_blocking=False, copy=False):
    return as_dtype(dtype), device, copy


@method
def to(self, *args, memory_format=None, **kwargs):
    """The tensor on another device or in another dtype, or itself if it is
    there already: `x.to(dtype)`, `x.to(device, dtype)`, `x.to(other)`,
    each with non_blocking (all copies here end before the call does), copy
    and memory_format.
    """
    first = args[0] if args else None
    form = (to_other if isinstance(first, Tensor) else to_dtype
            if isinstance(first, type(self.dtype)) else to_device)
    dtype, device, copy = form(*args, **kwargs)
    dtype, found = dtype or self.dtype, self
    if device is not None and as_device(device) is not self.device:
        found = functions["_to_device"](found, str(device))
    if dtype is not found.dtype or copy and found is self:
        return functions["_to_copy"](found, dtype,
                                     memory_format=memory_format)
    if found is not self and memory_format is not None:
        return found.clone(memory_format=memory_format)
    return found


def shorthand(name, target):
    def converted(self, *, memory_format=None):
        return self.to(target, memory_format=memory_format)
    converted.__name__ = converted.__qualname__ = name
    converted.__doc__ = f"The tensor in {target!r}: to({target!r})."
    return method(converted)


SHORT = {"bool": bool_, "byte": uint8, "char": int8, "short": int16,
         "int": int32, "long": int64, "half": float16, "bfloat16": bfloat16,
         "float": float32, "double": float64}
for name, target in SHORT.items():
    shorthand(name, target)
types = {f"lamina.{'BFloat16' if short == 'bfloat16' else short.title()}"
         "Tensor": dtype for short, dtype in SHORT.items()}


@method
def type_as(self, other):
    """The tensor in the dtype and on the device of another."""
    return self.to(other)


def to_cpu(self, memory_format=None):
    """The tensor on the device `cpu`: to("cpu")."""
    return self.to("cpu", memory_format=memory_format)


Tensor.cpu = to_cpu


def tensor_type(self, dtype=None, non_blocking=False):
    """Without a dtype, the name of the tensor's kind, such as
    'lamina.FloatTensor'; with one, or such a name, the tensor in it."""
    if dtype is None:
        return next(name for name, d in types.items() if d is self.dtype)
    if isinstance(dtype, str):
        if dtype not in types:
            raise ValueError(f"no type {dtype!r}" + nearest(dtype, types))
        dtype = types[dtype]
    return self.to(dtype)


Tensor.type = tensor_type


@method
def is_floating_point(self):
    """Whether the elements are floats."""
    return self.dtype.is_floating_point


lock = threading.RLock()
entered = {}        # how many times a layer's contexts are open


def include(bit, on):
    """Put a layer on the way of every call, or take it off again."""
    global included
    with lock:
        included = included | bit if on else included & ~bit


def enter(bit, step=1):
    """Include a layer for as long as one of its contexts is open, in any
    thread."""
    with lock:
        entered[bit] = entered.get(bit, 0) + step
        include(bit, entered[bit] > 0)


class log_operators:
    """A context: the names of the operators called in it, in order.

        with log_operators() as log: ...

    It sees the calls of its own thread.
    """

    def __enter__(self):
        self.names = []
        here.logs.append(self.names)
        enter(LOG)
        return self.names

    def __exit__(self, *exc):
        # by identity: two logs may hold equal lists
        here.logs[:] = [n for n in here.logs if n is not self.names]
        enter(LOG, -1)


def wrap_log(operator, kernel):
    """A kernel that writes its operator's name into every open log."""
    def logged(*args):
        for names in here.logs:
            names.append(operator.schema.full_name)
        return kernel(*args)
    return logged


LOG = add_layer(wrap_log)


def as_called(operator, args):
    """What a kernel is given, as `args, kwargs` of the operator's call."""
    params, given = operator.schema.arguments, list(args)
    plain = sum(not p.kwarg_only for p in params)
    kwargs = {p.name: v for p, v in zip(params[plain:], given[plain:])
              if not is_default(p, v)}
    given = given[:plain]
    while given and is_default(params[len(given) - 1], given[-1]):
        given.pop()
    return tuple(given), kwargs


def is_default(parameter, value):
    return not isinstance(value, Tensor) and repr(value) == parameter.default


def all_tensors(args):
    """The arguments one by one, those in lists too."""
    for arg in args:
        yield from arg if isinstance(arg, (list, tuple)) else (arg,)


class TorchDispatchMode:
    """A context whose `__torch_dispatch__` answers every call in it.

    It is given the operator `func`, the types of the tensors, and the
    arguments. While it runs its mode is off: `func(*args, **kwargs)` goes
    on to the mode entered before, or to the kernels. A mode is on in the
    thread that entered it.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__} has to define "
                                  f"__torch_dispatch__")

    def __enter__(self):
        here.modes.append(self)
        enter(MODE)
        return self

    def __exit__(self, *exc):
        here.modes.remove(self)
        enter(MODE, -1)


def wrap_mode(operator, kernel):
    """A kernel that asks the mode that this thread entered last."""
    def asked(*values):
        if not here.modes:
            return kernel(*values)
        mode, (args, kwargs) = here.modes.pop(), as_called(operator, values)
        types = tuple({type(x): None for x in all_tensors(values)
                       if isinstance(x, Tensor)})
        try:
            return mode.__torch_dispatch__(operator, types, args, kwargs)
        finally:
            here.modes.append(mode)
    return asked


MODE = add_layer(wrap_mode, 1 << 40)    # above all other layers


HALVES = (float16, bfloat16)
AS_THEY_ARE = ("clone", "copy_", "fill_", "_to_copy", "_to_device", "cat",
               "flip", "index", "nan_to_num", "nan_to_num_")
LISTS = "_foreach_add_",        # which call an operator for each of halves


def on_tensors(function, value):
    """The value, with `function` called on each tensor in it."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) is tuple:
        return tuple([on_tensors(function, item) for item in value])
    return value


def kernel_of(name, x):
    """An operator's kernel for x, below all layers."""
    return lookup(operators[name], x.keys & FIRST_LAYER - 1)


def widened(value):
    """An argument with float32 in place of half precision."""
    if value is float16 or value is bfloat16:
        return float32
    return on_tensors(lambda x: kernel_of("_to_copy", x)(x, float32)
                      if x.dtype in HALVES else x, value)


def planned(operator, args):
    """The dtypes of an operator's results, as `meta` plans them; where the
    sizes depend on values and it cannot, the dtype of what is half."""
    try:
        found = lookup(operator, meta.bit)(*[on_tensors(
            lambda x: empty_like(x, device="meta"), a) for a in args])
    except NotImplementedError:
        halves = []
        on_tensors(halves.append, args)
        found = next(x for x in halves if x.dtype in HALVES)
    return [x.dtype for x in (
        found if isinstance(found, tuple) else (found,))]


EXACT = ("mul", "div", "floor_divide", "lerp")


def rounded(operator, args):
    """The arguments, with numbers as the half precision that they meet has
    them: 0.1 is equal to what was made of it. A factor stays exact."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    met = {x.dtype for x in tensors if x.shape} or {x.dtype for x in tensors}
    if not met < set(HALVES) or not operator.numbers or (
            operator.schema.name.rstrip("_") in EXACT):
        return args
    half, = met
    numbers = [a.name in operator.numbers for a in operator.schema.arguments]
    return [wrap(half, x) if number and isinstance(x, (int, float)) else
            kernel_of("_to_copy", x)(x, half)
            if number and isinstance(x, Tensor) and not x.shape else x
            for x, number in zip(args, numbers)]


def narrowed(results, dtypes):
    """Results rounded to the dtypes that were planned."""
    return [kernel_of("_to_copy", x)(x, dtype)
            if dtype in HALVES and x.dtype is float32 else x
            for x, dtype in zip(results, dtypes)]


def wrap_half(operator, kernel):
    """The layer that computes half precision in float32."""
    schema = operator.schema
    if schema.is_view or schema.name in AS_THEY_ARE + LISTS:
        return kernel

    def computed(*args):
        dtypes = planned(operator, args)
        found = kernel(*map(widened, rounded(operator, args)))
        if operator.result:
            return operator.result(*narrowed(found, dtypes))
        return narrowed([found], dtypes)[0]

    def written(*args):
        target = args[-1 if is_out_form(operator) else 0]
        planned(operator, args)         # refuses what does not fit
        found = kernel(*map(widened, rounded(operator, args)))
        if found is target:
            return target
        if is_out_form(operator):
            prepare_out(target, found.shape, target.dtype)
        return kernel_of("copy_", target)(target, found)

    return written if schema.is_write else computed


HALF = float16.bit = bfloat16.bit = add_layer(wrap_half)


class SparseTensor(Tensor):
    """Elements by their places; everywhere else is zero.

    `places` is int64, with a column for each element of `entries`. If a
    place comes twice, its element is the sum.
    """

    __slots__ = ("places", "entries", "coalesced")

    def __init__(self, places, entries, size, coalesced=False):
        self.places, self.entries = places, entries
        self.coalesced = coalesced      # sorted, and no place comes twice
        self._geometry = Geometry(tuple(size), (0,) * len(size))
        self.dtype = entries.dtype
        self.keys = entries.device.bit | sparse_coo.bit
        self._storage = self._base = self.array = self.autograd = None

    @property
    def device(self):
        return self.entries.device

    @property
    def storage(self):
        raise NotImplementedError(
            "a sparse_coo tensor has no storage, only indices() and "
            "values(); x.to_dense() gives a tensor that has one")

    def requires_grad_(self, requires_grad=True):
        """Refused, unless it is False: gradients (chapter 8) have strides.
        """
        if requires_grad:
            raise NotImplementedError(
                "no gradient flows through a sparse_coo tensor; use "
                "x.to_dense().requires_grad_()")
        return self

    def __reduce_ex__(self, protocol):
        return SparseTensor, (self.places, self.entries, self.shape,
                              self.coalesced)

    def __repr__(self):
        """Its two tensors, the second line of each under the first."""
        places, entries = (
            repr(x).replace("\n", "\n" + " " * len(f"tensor({name}="))
            for name, x in (("indices", self.places),
                            ("values", self.entries)))
        return (f"tensor(indices={places},\n       values={entries},\n"
                f"       size={self.shape}, nnz={self._nnz()}, "
                f"layout={self.layout})")


Tensor.layout = property(lambda self: layouts[self.keys & LAYOUTS])
Tensor.is_sparse = property(lambda self: self.layout is sparse_coo)


def sparse_coo_tensor(indices, values, size=None, *, dtype=None,
                      device=None):
    """A tensor of layout sparse_coo: `values[k]` at `indices[:, k]`.

    Without `size`, the smallest that holds all places. NB: in PyTorch an
    element may be a tensor itself; here it is a number.
    """
    if not isinstance(values, Tensor):
        values = tensor(values, dtype=dtype, device=device)
    values = values.to(device, dtype)
    if values.device.type == "meta":
        raise NotImplementedError("the places of a sparse tensor are data, "
                                  "and a tensor on 'meta' has none")
    if not isinstance(indices, Tensor):
        indices = tensor(indices, device=values.device)
    if indices.is_floating_point() and indices.numel():
        raise TypeError(f"indices are integers, not {indices.dtype}")
    indices = indices.to(values.device, int64)
    if indices.ndim != 2 or values.shape != indices.shape[1:]:
        raise RuntimeError(
            f"expected indices of shape [dimensions, elements] and values "
            f"of shape [elements]; got {list(indices.shape)} and "
            f"{list(values.shape)}")
    if getattr(values, "requires_grad", False):
        raise RuntimeError("no gradient flows into the values of a sparse "
                           "tensor; give values.detach()")
    rows = indices.tolist()
    if size is None:
        size = [max(row, default=-1) + 1 for row in rows]
    if len(size) != len(rows) or any(
            not 0 <= i < n for row, n in zip(rows, size) for i in row):
        raise RuntimeError(f"size {list(size)} does not hold all of the "
                           f"places, which are {rows}")
    return SparseTensor(indices, values, size)


def only_sparse(name, read):
    """A method for the layout sparse_coo, which refuses any other."""
    def reading(self):
        if not self.is_sparse:
            raise RuntimeError(f"{name}() is for the layout sparse_coo, and "
                               f"this tensor is {self.layout.name}; "
                               f"x.to_sparse() gives one")
        if name in ("indices", "values") and not self.coalesced:
            raise RuntimeError(f"{name}(): a place may come twice in this "
                               f"tensor; use x.coalesce().{name}()")
        return read(self)
    reading.__name__ = name
    method(reading)


for name, read in {
        "indices": lambda self: self.places,
        "_indices": lambda self: self.places,
        "values": lambda self: self.entries,
        "_values": lambda self: self.entries,
        "_nnz": lambda self: self.entries.shape[0],
        "is_coalesced": lambda self: self.coalesced}.items():
    only_sparse(name, read)


define("_to_sparse(Tensor self) -> Tensor", "In the layout sparse_coo.")
define("_to_dense(Tensor self) -> Tensor", "In the layout strided.")
define("_coalesce(Tensor self) -> Tensor", "Places in order, none twice.")


@method
def to_sparse(self):
    """The tensor in the layout sparse_coo."""
    return self if self.is_sparse else functions["_to_sparse"](self)


@method
def to_dense(self, dtype=None):
    """The tensor in the layout strided."""
    found = functions["_to_dense"](self) if self.is_sparse else self
    return found.to(dtype=dtype)


@method
def coalesce(self):
    """A sparse tensor with its places in order, none of them twice."""
    return self if self.is_coalesced() else functions["_coalesce"](self)


def numbers_of(x):
    """The row-major number of each place of a sparse tensor."""
    places, count = flat(x.places), x._nnz()
    numbers = [0] * count
    for d, size in enumerate(x.shape):
        row = places[d * count:(d + 1) * count]
        numbers = [n * size + i for n, i in zip(numbers, row)]
    return numbers


def from_numbers(like, numbers, values):
    """A sparse tensor of the shape and dtype of another, in order."""
    columns = [n // step % size for step, size in
               zip(row_major(like.shape).strides, like.shape)
               for n in numbers]
    parts = [write_values(empty(shape, dtype=dtype, device=like.device), new)
             for shape, dtype, new in (
                 ((like.ndim, len(numbers)), int64, columns),
                 ((len(numbers),), like.dtype, values))]
    return SparseTensor(*parts, like.shape, True)


@impl("_coalesce", "python", "cpu", layout=sparse_coo)
def sparse_coalesce(self):
    sums = {}
    for number, value in zip(numbers_of(self), flat(self.entries)):
        sums[number] = sums.get(number, 0) + value
    return from_numbers(self, sorted(sums), [sums[n] for n in sorted(sums)])


@impl("_to_dense", "python", "cpu", layout=sparse_coo)
def sparse_to_dense(self):
    values = [0] * numel(self.shape)
    for number, value in zip(numbers_of(self), flat(self.entries)):
        values[number] += value
    return write_values(
        empty(self.shape, dtype=self.dtype, device=self.device), values)


@impl("_to_sparse", "python", "cpu")
def dense_to_sparse(self):
    values = flat(self)
    found = [n for n, value in enumerate(values) if value != 0]
    return from_numbers(self, found, [values[n] for n in found])


def cpu_numbers(x):
    steps = np.array(row_major(x.shape).strides, np.int64)
    return steps @ array(x.places)


@impl("_to_dense", "cpu", layout=sparse_coo)
def cpu_sparse_to_dense(self):
    if self.dtype is bfloat16:          # NumPy cannot add these
        return sparse_to_dense(self)
    out = np.zeros(numel(self.shape), numpy_dtypes[self.dtype])
    np.add.at(out, cpu_numbers(self), array(self.entries))
    return from_array(out.reshape(self.shape))


@impl("_coalesce", "cpu", layout=sparse_coo)
def cpu_coalesce(self):
    if self.dtype is bfloat16:
        return sparse_coalesce(self)
    numbers, which = np.unique(cpu_numbers(self), return_inverse=True)
    sums = np.zeros(len(numbers), numpy_dtypes[self.dtype])
    np.add.at(sums, which, array(self.entries))
    steps = np.array(row_major(self.shape).strides, np.int64)[:, None]
    sizes = np.array(self.shape, np.int64)[:, None]
    return SparseTensor(from_array(numbers // steps % sizes),
                        from_array(sums), self.shape, True)


def on_entries(name, additive=False):
    """Give an operator that keeps 0 as 0 a kernel for sparse tensors.

    If it is `additive`, the parts of a sum may be done one by one.
    """
    operator = operators[name]

    def sparse(self, *args):
        if not (additive or self.coalesced):
            self = kernel_of("_coalesce", self)(self)
        entries = lookup(operator, self.entries.keys)(self.entries, *args)
        return SparseTensor(self.places, entries, self.shape, self.coalesced)

    return impl(name, layout=sparse_coo)(sparse)


for name, additive in {"abs": False, "detach": True, "_to_copy": True}.items():
    on_entries(name, additive)


def on_both(name):
    """The same for an operator that the places go through as well."""
    def sparse(self, *args):
        kernel = kernel_of(name, self.entries)
        return SparseTensor(kernel(self.places, *args), kernel(
            self.entries, *args), self.shape, self.coalesced)

    return impl(name, layout=sparse_coo)(sparse)


for name in ("clone", "_to_device"):
    on_both(name)


def overridden(operator):
    """A kernel that hands the call to the classes that ask for it."""
    def handed(*values):
        args, kwargs = as_called(operator, values)
        types = asking(values)
        for each in types:
            result = each.__torch_function__(
                functions[operator.schema.name], types, args, kwargs)
            if result is not NotImplemented:
                return result
        raise TypeError(
            f"{operator.schema.name}(): no __torch_function__ takes it, of "
            f"{', '.join(each.__name__ for each in types)}")
    return handed


def asking(values):
    """The classes with `__torch_function__`: left to right, but a subclass
    before what it is derived from."""
    found = []
    for each in map(type, all_tensors(values)):
        if hasattr(each, "__torch_function__") and each not in found:
            at = [i for i, t in enumerate(found) if issubclass(each, t)]
            found.insert(at[0] if at else len(found), each)
    return tuple(found)


class DisableTorchFunctionSubclass:
    """A context in which no `__torch_function__` is asked, in its thread.
    """

    def __enter__(self):
        self.before, here.plain = here.plain, True

    def __exit__(self, *exc):
        here.plain = self.before


def from_numpy(ndarray):
    """A tensor over the memory of a NumPy array: no copy, both see writes.

    ValueError for what a storage cannot say: negative strides, read-only
    memory, another byte order.
    """
    if np is None or not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy() takes a NumPy array, not "
                        f"{type(ndarray).__name__}; for lists: tensor(...)")
    dtype = dtype_of.get(ndarray.dtype.newbyteorder("="))
    step = ndarray.itemsize
    if dtype is None:
        known = ", ".join(d.name for d in dtype_of.values())
        raise TypeError(f"no dtype for a NumPy array of {ndarray.dtype}; "
                        f"one of {known} is needed: "
                        f"array.astype('float32')")
    check_shareable(ndarray)
    steps = tuple(s // step for s in ndarray.strides)
    span = 1 + sum((n - 1) * s for n, s in zip(ndarray.shape, steps))
    memory = np.lib.stride_tricks.as_strided(
        ndarray, (span if ndarray.size else 0,), (step,))
    return Tensor(Storage(memory, cpu), Geometry(ndarray.shape, steps, 0),
                  dtype)


def check_shareable(ndarray):
    """ValueError for an array whose memory a storage cannot stand on."""
    whole = all(s >= 0 and s % ndarray.itemsize == 0
                for s in ndarray.strides)
    native, writeable = ndarray.dtype.isnative, ndarray.flags.writeable
    if not (whole and native and writeable):
        raise ValueError(
            f"this array cannot be shared: strides {ndarray.strides}, "
            f"{'native' if native else 'foreign'} byte order, "
            f"{'writeable' if writeable else 'read-only'}; expected strides "
            f"of whole elements, none negative, in native byte order, and "
            f"writeable: array.astype('{ndarray.dtype.name}') gives a copy "
            f"that is")


def as_tensor(data, dtype=None, device=None):
    """The data as a tensor, without a copy where none is needed: a tensor
    as it is, a NumPy array's memory, lists in a new tensor."""
    if np is not None and isinstance(data, np.ndarray):
        data = from_numpy(data)
    if not isinstance(data, Tensor):
        return tensor(data, dtype=dtype, device=device)
    return data.to(dtype=as_dtype(dtype), device=device)


@method
def numpy(self):
    """A NumPy array over the tensor's memory: no copy, both see writes."""
    if self.autograd is not None and self.requires_grad:
        raise RuntimeError("numpy() of a tensor that requires grad: NumPy "
                           "records no gradient; use x.detach().numpy()")
    if self.device.type == "meta":
        raise TypeError("a tensor on 'meta' has no data for NumPy")
    if self.dtype is bfloat16:
        raise TypeError("NumPy has no bfloat16; use x.float().numpy()")
    return array(self)


Tensor.__array__ = lambda self, dtype=None, copy=None: np.array(
    self.numpy(), dtype, copy=copy)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A tensor of one dimension over memory that an object lends: no copy.

    Skips `offset` bytes; `count` elements, or below 0 all that are there.
    """
    dtype = as_dtype(dtype)
    try:
        memory = memoryview(buffer).cast("B")
    except TypeError as error:          # ValueError, as in PyTorch
        raise ValueError(f"frombuffer(): {error}") from None
    left, size = memory.nbytes - offset, dtype.itemsize
    if offset < 0 or left <= 0 or count == 0:
        raise ValueError(f"nothing to read: {memory.nbytes} bytes, from "
                         f"byte {offset}, {count} elements; expected at "
                         f"least one element (count=-1 for all)")
    if count < 0 and left % size:
        raise ValueError(f"{left} bytes from byte {offset} are no whole "
                         f"number of {dtype.name}, {size} bytes each; "
                         f"count={left // size} leaves the rest")
    count = left // size if count < 0 else count
    if count * size > left:
        raise ValueError(f"{count} of {dtype.name} need {count * size} "
                         f"bytes, and from byte {offset} there are {left}")
    storage = Storage(memory[offset:offset + count * size],
                      get_default_device())
    x = Tensor(storage, row_major((count,)), dtype)
    return x.requires_grad_() if requires_grad else x


@method
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None,
               copy=None):
    """A capsule that lends the tensor's memory; BufferError if it cannot.

    It is DLPack's first kind, which every version can read.
    """
    if stream not in (None, -1):
        raise BufferError(f"stream {stream!r}: memory of the CPU has none")
    if dl_device is not None and dl_device != self.__dlpack_device__():
        raise BufferError(f"dl_device {dl_device}: expected "
                          f"{self.__dlpack_device__()}, or None")
    if self.autograd is not None and self.requires_grad:
        raise BufferError("a tensor that requires grad is not lent: others "
                          "record no gradient; use x.detach()")
    if self.layout is not strided:
        raise BufferError(f"DLPack has no layout {self.layout}; "
                          f"x.to_dense() has one that it knows")
    if copy:
        self = functions["clone"](self)
    return lend_dlpack(self.storage, self.dtype, *self.geometry)


@method
def __dlpack_device__(self):
    """DLPack's (type, number) of the device: the CPU is (1, 0)."""
    if self.device.type == "meta":
        raise ValueError("DLPack has no device 'meta'")
    return DLPACK_CPU, 0


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor over the memory of another library's, or of a capsule: no
    copy, unless copy=True."""
    make = getattr(ext_tensor, "__dlpack__", lambda: ext_tensor)
    storage, dtype, shape, strides = take_dlpack(
        make(), device or get_default_device())
    x = Tensor(storage, Geometry(shape, strides, 0), dtype)
    return functions["clone"](x) if copy else x
