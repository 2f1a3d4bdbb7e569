"""Exercises of chapter 3: from a schema to the code that runs."""

import re

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 03.1.** A table maps `(device, dtype)` to a kernel. An entry
`(device, None)` serves every dtype of its device. Write
`find_kernel(table, device, dtype)`: the exact entry wins; without it, the
entry for the whole device; without both, `NotImplementedError` with a
message that names the device and the dtype."""

STUB = '''\
def find_kernel(table: dict, device: str, dtype: str):
    """The kernel of the table that serves this device and dtype."""
    raise NotImplementedError("exercise 03.1")'''


def find_kernel(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    raise NotImplementedError(f"no kernel for {dtype} on device {device}")


# Known wrong answers


def fail(device, dtype):
    raise NotImplementedError(f"{device} {dtype}")


def device_first(table, device, dtype):
    for key in ((device, None), (device, dtype)):
        if key in table:
            return table[key]
    fail(device, dtype)


def returns_none(table, device, dtype):
    return table.get((device, dtype), table.get((device, None)))


def key_error(table, device, dtype):
    if (device, dtype) in table:
        return table[device, dtype]
    return table[device, None]


def exact_only(table, device, dtype):
    if (device, dtype) in table:
        return table[device, dtype]
    fail(device, dtype)


def other_device(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    for (_, other), kernel in table.items():
        if other in (dtype, None):
            return kernel
    fail(device, dtype)


def other_dtype(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    for (other, _), kernel in table.items():
        if other == device:
            return kernel
    fail(device, dtype)


def silent(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    raise NotImplementedError("no kernel")


def adds_entry(table, device, dtype):
    return table.setdefault(
        (device, dtype), find_kernel(table, device, dtype))


# Other right answers


def by_nested_try(table, device, dtype):
    try:
        return table[device, dtype]
    except KeyError:
        pass
    try:
        return table[device, None]
    except KeyError:
        raise NotImplementedError(
            f"{device!r} has no kernel for {dtype!r}") from None


def by_get(table, device, dtype):
    kernel = table.get((device, dtype)) or table.get((device, None))
    if kernel is None:
        raise NotImplementedError(f"device={device}, dtype={dtype}")
    return kernel


def names_both(args, error):
    _, device, dtype = args
    missing = [word for word in (device, dtype) if word not in str(error)]
    if missing:
        return "The message must name " + " and ".join(map(repr, missing))


def inputs(st):
    devices = st.sampled_from(["cpu", "meta", "python"])
    dtypes = st.sampled_from(["int64", "bool"])

    def table(keys):
        return {(d, t): f"abs_{d}_{t or 'any'}" for d, t in keys}

    keys = st.lists(st.tuples(devices, st.none() | dtypes), max_size=5,
                    unique=True)
    return st.tuples(keys.map(table), devices, dtypes)


FIND_KERNEL = Exercise(
    id="03.1",
    title="Which kernel runs?",
    name="find_kernel",
    statement=STATEMENT,
    stub=STUB,
    reference=find_kernel,
    inputs=inputs,
    judge_error=names_both,
    wrong=(
        Wrong(device_first, "This asks for the whole device before the exact "
              "entry. Who would ever call a kernel that was written for one "
              "dtype?"),
        Wrong(returns_none, "Without a kernel, this returns None, and the "
              "caller fails later: 'NoneType' object is not callable. Where "
              "should a reader of that message begin to look?"),
        Wrong(key_error, "This lets the dictionary's KeyError out. A caller "
              "sees a key, and no word about kernels. Which exception says "
              "that something may be added later?"),
        Wrong(exact_only, "This never asks for (device, None). How many "
              "entries would `meta` need, which treats all dtypes alike?"),
        Wrong(other_device, "Where the device has no kernel, this takes one "
              "of another device. Can a kernel for the memory of `cpu` read "
              "a `meta` tensor, which has none?"),
        Wrong(other_dtype, "This takes a kernel of the right device for "
              "another dtype. What does a kernel for int64 read in eight "
              "bytes that hold a float64?"),
        Wrong(silent, "The exception is right, its message is not enough. "
              "What must a person know who wants to add the kernel?"),
        Wrong(adds_entry, "This writes what it found into the table. If "
              "somebody replaces the entry for the whole device later, which "
              "kernel runs?"),
    ),
    right=(by_nested_try, by_get),
    hints=(
        "There are two keys to ask for, one after the other: which first?",
        "`key in table` tells whether there is an entry. Raise only after "
        "both keys have failed.",
        "Put the values into the message: "
        'f"no kernel for {dtype} on device {device}".',
    ),
    after="PyTorch asks in the same order, first for the device (a dispatch "
    "key, in c10/core/DispatchKeySet.h), then for the dtype (the "
    "AT_DISPATCH macros inside the kernel). It says: Could not run "
    "'aten::abs' with arguments from the 'X' backend.",
)


# 03.2: what an operator does with memory

MEMORY_STATEMENT = """\
**Exercise 03.2.** A schema says in letters what an operator does with
memory. Write `memory_of(schema)`: `"write"` if it writes into an argument,
`"view"` if it writes nothing and its result shares memory with an
argument, `"new"` if neither is so."""

MEMORY_STUB = '''\
def memory_of(schema: str) -> str:
    """What the operator of this schema does with memory."""
    raise NotImplementedError("exercise 03.2")'''


def memory_of(schema):
    arguments, returns = schema.split(" -> ")
    if re.search(r"Tensor\(\w!\)", arguments):
        return "write"
    return "view" if re.search(r"Tensor\(\w\)", returns) else "new"


def by_its_name(schema):
    name = re.split(r"[.(]", schema)[0]
    if name.endswith("_"):
        return "write"
    return "view" if "Tensor(a)" in schema else "new"


def any_mark(schema):
    if "!" in schema:
        return "write"
    return "view" if re.search(r"-> Tensor\(\w\)", schema) else "new"


def first_letter_only(schema):
    if "Tensor(a!)" in schema:
        return "write"
    return "view" if "-> Tensor(a)" in schema else "new"


def returns_only(schema):
    returns = schema.split(" -> ")[1]
    if "!" in returns:
        return "write"
    return "view" if "Tensor(" in returns else "new"


def view_first(schema):
    arguments, returns = schema.split(" -> ")
    if "Tensor(" in returns:
        return "view"
    return "write" if re.search(r"Tensor\(\w!\)", arguments) else "new"


def marked_argument(schema):
    if re.search(r"Tensor\(\w!\)", schema):
        return "write"
    return "view" if re.search(r"Tensor\(\w\)", schema) else "new"


def memory_by_splitting(schema):
    arguments, _, returns = schema.partition(" -> ")
    inside = arguments[arguments.index("(") + 1:-1]
    types = [part.split()[0] for part in inside.split(", ")
             if part not in ("", "*")]
    if any(t.startswith("Tensor(") and t.endswith("!)") for t in types):
        return "write"
    return "view" if returns.startswith("Tensor(") else "new"


def memory_by_finding(schema):
    letters = re.findall(r"Tensor\((\w!?)\)", schema)
    if any(letter.endswith("!") for letter in letters):
        return "write"
    shared = re.search(r"-> Tensor\((\w)\)$", schema)
    return "view" if shared and shared[1] in letters else "new"


def memory_inputs(st):
    name = st.sampled_from(["f", "f_", "view", "clone", "max.dim"])
    plain = st.sampled_from(["Tensor self", "Tensor(a) self",
                             "Tensor(a!) self", "Tensor(b!) self"])
    rest = st.lists(st.sampled_from(
        ["int dim", "str end='!'", "*, Tensor(b!) out", "Tensor other"]),
        max_size=2, unique=True)

    def returned(args):
        letters = re.findall(r"Tensor\((\w!?)\)", ", ".join(args))
        return st.tuples(st.just(", ".join(args)), st.sampled_from(
            ["Tensor", "()", *(f"Tensor({x})" for x in letters)]))

    return st.tuples(name, st.builds(lambda a, b: [a, *b], plain, rest)
                     .flatmap(returned)).map(
        lambda t: (f"{t[0]}({t[1][0]}) -> {t[1][1]}",))


MEMORY_OF = Exercise(
    id="03.2",
    title="What does it do with memory?",
    name="memory_of",
    statement=MEMORY_STATEMENT,
    stub=MEMORY_STUB,
    reference=memory_of,
    inputs=memory_inputs,
    imports="import re",
    examples=(("abs(Tensor self) -> Tensor",),
              ("t(Tensor(a) self) -> Tensor(a)",),
              ("abs_(Tensor(a!) self) -> Tensor(a!)",),
              ("print(Tensor self, str end='!') -> ()",)),
    wrong=(
        Wrong(by_its_name, "This trusts the name. A line under the end is a "
              "custom. Which part of the schema would a machine that moves "
              "operators about look at?"),
        Wrong(any_mark, "This takes any exclamation mark for a letter's. "
              "Where else in a schema may one stand, in a default, say?"),
        Wrong(first_letter_only, "This knows only the letter a. An operator "
              "with an `out` of its own may call it b. What in `(b!)` says "
              "that it is written to?"),
        Wrong(returns_only, "This looks at the result alone. An operator may "
              "write into an argument and return nothing, `-> ()`. Where is "
              "that written?"),
        Wrong(view_first, "This asks for a view before it asks for a write. "
              "`abs_` gives back the tensor that it was given, so its result "
              "shares memory. What does it do to it?"),
        Wrong(marked_argument, "This calls it a view as soon as an argument "
              "has a letter. A view is made of two: who else must have it?"),
    ),
    right=(memory_by_splitting, memory_by_finding),
    hints=(
        "Cut the schema at ` -> `. The arguments tell about writing, the "
        "result about views.",
        "A pattern for a letter with its mark: r\"Tensor\\(\\w!\\)\".",
        "Ask for the write first: what is written to is given back as well.",
    ),
    after="PyTorch reads these letters in torchgen/model.py, where they are "
    "called annotations. Its tracer and its autograd take operators apart "
    "by them, and never by the name.",
)


# 03.3: the layers in a set of keys

LAYERS_STATEMENT = """\
**Exercise 03.3.** A set of keys is an int. Bits below `1 << 16` stand for a
device and a layout, those from `1 << 16` on for layers. Write
`layers_of(keys)`: a list of the layers' bits in the order in which the
call meets them (the highest first), and the rest of the set, as
`(layers, rest)`."""

LAYERS_STUB = '''\
def layers_of(keys: int):
    """The bits of the layers, the highest first, and the other bits."""
    raise NotImplementedError("exercise 03.3")'''


def layers_of(keys):
    layers = []
    while keys >= 1 << 16:
        top = 1 << keys.bit_length() - 1
        layers.append(top)
        keys ^= top
    return layers, keys


def lowest_first(keys):
    layers, rest = layers_of(keys)
    return layers[::-1], rest


def whole_rest(keys):
    return layers_of(keys)[0], keys


def bit_numbers(keys):
    layers, rest = layers_of(keys)
    return [bit.bit_length() - 1 for bit in layers], rest


def one_too_high(keys):
    layers, rest = layers_of(keys)
    return [bit << 1 for bit in layers], rest


def highest_only(keys):
    if keys < 1 << 16:
        return [], keys
    top = 1 << keys.bit_length() - 1
    return [top], keys ^ top


def without_the_first(keys):
    layers = [bit for bit in layers_of(keys)[0] if bit > 1 << 16]
    return layers, keys - sum(layers)


def layers_of_all(keys):
    layers = []
    while keys:
        top = 1 << keys.bit_length() - 1
        layers.append(top)
        keys ^= top
    return layers, 0


def layers_by_range(keys):
    found = [1 << i for i in range(keys.bit_length() - 1, 15, -1)
             if keys >> i & 1]
    return found, keys & 0xffff


def layers_by_text(keys):
    text = bin(keys)[2:]
    ones = [1 << len(text) - 1 - i for i, c in enumerate(text) if c == "1"]
    return [b for b in ones if b >= 65536], keys % 65536


def layers_inputs(st):
    low = st.sampled_from([0, 1, 2, 4, 1 << 12 | 2, 1 << 15])
    high = st.lists(st.sampled_from([16, 17, 18, 20, 40]), max_size=4,
                    unique=True)
    return st.builds(lambda a, b: (a + sum(1 << i for i in b),), low, high)


LAYERS_OF = Exercise(
    id="03.3",
    title="The layers in a set",
    name="layers_of",
    statement=LAYERS_STATEMENT,
    stub=LAYERS_STUB,
    reference=layers_of,
    inputs=layers_inputs,
    examples=((0,), (2,), (1 << 16,), (1 << 17 | 1 << 16 | 2,)),
    describe=lambda args: f"layers_of({args[0]:#b})",
    wrong=(
        Wrong(lowest_first, "The bits are right, the order is not. Which "
              "layer stands above all others, and therefore meets the call "
              "first?"),
        Wrong(whole_rest, "The rest still holds the layers. Under which key "
              "would the kernel be looked up?"),
        Wrong(bit_numbers, "This gives the number of each bit, 16 for the "
              "first layer. With which number can `keys` be masked?"),
        Wrong(one_too_high, "Each bit is twice what it should be. `(4)"
              ".bit_length()` is 3. Which bit is the highest of 4?"),
        Wrong(highest_only, "This takes off one layer and leaves the others "
              "in the rest. How often must it be done?"),
        Wrong(without_the_first, "The first layer has the bit `1 << 16` "
              "itself. On which side of the border is it?"),
        Wrong(layers_of_all, "This takes the device for a layer, too. Where "
              "does the walk down through the bits have to end?"),
    ),
    right=(layers_by_range, layers_by_text),
    hints=(
        "The highest bit of a number is `1 << keys.bit_length() - 1`.",
        "`keys ^ bit` takes a bit away that is there.",
        "Go on as long as `keys >= 1 << 16`; what is left is the rest.",
    ),
    after="PyTorch finds the highest key by counting leading zeros, one "
    "instruction of the processor (DispatchKeySet::highestPriorityTypeId).",
)


# 03.4: one call through its layers

THROUGH_STATEMENT = """\
**Exercise 03.4.** `layers` maps a layer's bit to a function that takes a
kernel and gives another. `kernels` maps what is left of the keys without
layers to a kernel. Write `through(keys, layers, kernels, x)`: call the
right kernel with `x` through those of the layers whose bits are in
`keys`, the highest outermost, and return the result. Without a kernel,
raise `NotImplementedError`."""

THROUGH_STUB = '''\
def through(keys: int, layers: dict, kernels: dict, x):
    """The result of one call, on its way through the layers."""
    raise NotImplementedError("exercise 03.4")'''


def through(keys, layers, kernels, x):
    present = sorted(bit for bit in layers if bit & keys)
    rest = keys & ~sum(present)
    if rest not in kernels:
        raise NotImplementedError(f"no kernel for the keys {rest:b}")
    call = kernels[rest]
    for bit in present:
        call = layers[bit](call)
    return call(x)


def through_with(choose, keys, layers, kernels, x):
    present = sorted(bit for bit in layers if bit & keys)
    rest = keys & ~sum(present)
    if rest not in kernels:
        raise NotImplementedError
    call = kernels[rest]
    for bit in choose(present, layers):
        call = layers[bit](call)
    return call(x)


def highest_inside(keys, layers, kernels, x):
    return through_with(lambda bits, _: bits[::-1], keys, layers, kernels, x)


def in_the_dicts_order(keys, layers, kernels, x):
    return through_with(lambda bits, every: [b for b in every if b in bits],
                        keys, layers, kernels, x)


def every_layer(keys, layers, kernels, x):
    return through_with(lambda _, every: sorted(every),
                        keys, layers, kernels, x)


def the_top_layer_only(keys, layers, kernels, x):
    return through_with(lambda bits, _: bits[-1:], keys, layers, kernels, x)


def no_layers(keys, layers, kernels, x):
    return through_with(lambda bits, _: [], keys, layers, kernels, x)


def lets_key_error_out(keys, layers, kernels, x):
    call = kernels[keys & ~sum(layers)]
    for bit in sorted(layers):
        call = layers[bit](call) if bit & keys else call
    return call(x)


def layers_on_the_result(keys, layers, kernels, x):
    value = through_with(lambda bits, _: [], keys, layers, kernels, x)
    for bit in sorted(bit for bit in layers if bit & keys):
        value = layers[bit](kernels[keys & ~sum(layers)])(value)
    return value


def through_by_recursion(keys, layers, kernels, x):
    def find(keys):
        inside = [bit for bit in layers if bit & keys]
        if inside:
            return layers[max(inside)](find(keys ^ max(inside)))
        if keys in kernels:
            return kernels[keys]
        raise NotImplementedError(keys)

    return find(keys)(x)


def through_by_get(keys, layers, kernels, x):
    call = kernels.get(keys & ~sum(layers))
    if call is None:
        raise NotImplementedError("no kernel")
    for bit, wrap in sorted(layers.items()):
        if keys & bit:
            call = wrap(call)
    return call(x)


def wrapper(name):
    return lambda kernel: lambda x: f"{name}({kernel(x)})"


def through_prepare(keys, layers, kernels, x):
    return (keys, {bit: wrapper(name) for bit, name in layers.items()},
            {bit: lambda x, name=name: f"{name}({x})"
             for bit, name in kernels.items()}, x)


def through_inputs(st):
    names = {1 << 16: "log", 1 << 17: "grad", 1 << 18: "unit"}
    layers = st.permutations(list(names)).flatmap(
        lambda order: st.integers(0, 3).map(
            lambda n: {bit: names[bit] for bit in order[:n]}))
    kernels = st.sampled_from([{1: "python"}, {2: "cpu"},
                               {1: "python", 2: "cpu"}])

    def keys(parts):
        layers, kernels = parts
        return st.tuples(
            st.builds(lambda device, bits: device + sum(bits),
                      st.sampled_from([1, 2]),
                      st.sets(st.sampled_from(list(layers)))
                      if layers else st.just([])),
            st.just(layers), st.just(kernels), st.just("x"))

    return st.tuples(layers, kernels).flatmap(keys)


THROUGH = Exercise(
    id="03.4",
    title="Through the layers",
    name="through",
    statement=THROUGH_STATEMENT,
    stub=THROUGH_STUB,
    reference=through,
    inputs=through_inputs,
    prepare=through_prepare,
    describe=lambda args: f"through({args[0]:#b}, "
    f"{{{', '.join(f'{b:#b}: {n}' for b, n in args[1].items())}}}, "
    f"{{{', '.join(f'{b:#b}: {n}' for b, n in args[2].items())}}}, 'x')",
    wrong=(
        Wrong(highest_inside, "The lowest layer is outermost here. Around "
              "which kernel must the first one that you wrap go, so that the "
              "highest ends up on the outside?"),
        Wrong(in_the_dicts_order, "This wraps in the order in which the "
              "layers stand in the dict, which is that of their making. "
              "What if a low layer is registered last?"),
        Wrong(every_layer, "This goes through each layer there is. Which of "
              "them does a tensor ask for that requires no gradient?"),
        Wrong(the_top_layer_only, "One layer is passed, and the kernel comes "
              "right after it. What if a log is open and a gradient is "
              "wanted as well?"),
        Wrong(no_layers, "The kernel is right, and nothing stands before it. "
              "Who would write the log?"),
        Wrong(lets_key_error_out, "Without a kernel, the dictionary's own "
              "KeyError comes out, with a number. What should a person read "
              "who has to register one?"),
        Wrong(layers_on_the_result, "This calls the kernel, and once more in "
              "each layer. How often does the kernel run in a call through "
              "two layers?"),
    ),
    right=(through_by_recursion, through_by_get),
    hints=(
        "A layer takes a kernel and gives a kernel. Which of the layers in "
        "the set has to be applied last?",
        "Mask the layers out of `keys`; what is left is the key of the "
        "kernel.",
        "Go through the bits from the lowest: `call = layers[bit](call)`.",
    ),
    after="In PyTorch a layer does not hold the kernel below it. It masks "
    "its own key out and calls the operator again, which finds the next one "
    "in its table: redispatch. The order is the same.",
)


# 03.5: arguments to their places

BIND_STATEMENT = """\
**Exercise 03.5.** Each of `parameters` is `(name, default, by_name)`. A
default of `...` means that the argument must be given, and `by_name` that
it may only be given by name, as behind the star of a schema. Write
`bind(parameters, args, kwargs)`: the list of the values in the
parameters' order, or `TypeError` for a call that a Python function with
these parameters would refuse."""

BIND_STUB = '''\
def bind(parameters: list, args: tuple, kwargs: dict) -> list:
    """One value for each parameter."""
    raise NotImplementedError("exercise 03.5")'''


def bind(parameters, args, kwargs):
    places = [name for name, _, by_name in parameters if not by_name]
    if len(args) > len(places):
        raise TypeError(f"takes {len(places)} arguments by place")
    given = dict(zip(places, args))
    for name, value in kwargs.items():
        if name in given or name not in [p[0] for p in parameters]:
            raise TypeError(f"{name!r} is given twice or not known")
        given[name] = value
    for name, default, _ in parameters:
        if given.setdefault(name, default) is ...:
            raise TypeError(f"{name!r} is missing")
    return [given[name] for name, _, _ in parameters]


def star_ignored(parameters, args, kwargs):
    return bind([(n, d, False) for n, d, _ in parameters], args, kwargs)


def unknown_ignored(parameters, args, kwargs):
    known = [p[0] for p in parameters]
    return bind(parameters, args,
                {k: v for k, v in kwargs.items() if k in known})


def twice_overwrites(parameters, args, kwargs):
    places = [p[0] for p in parameters if not p[2]]
    return bind([(n, d, True) for n, d, _ in parameters], (),
                {**dict(zip(places, args)), **kwargs}
                if len(args) <= len(places) else {"?": 0})


def missing_is_none(parameters, args, kwargs):
    return bind([(n, None if d is ... else d, b) for n, d, b in parameters],
                args, kwargs)


def too_many_dropped(parameters, args, kwargs):
    count = sum(not p[2] for p in parameters)
    return bind(parameters, args[:count], kwargs)


def zero_is_nothing(parameters, args, kwargs):
    values = bind(parameters, args, kwargs)
    return [v or (v if d is ... else d)
            for v, (_, d, _) in zip(values, parameters)]


def names_ignored(parameters, args, kwargs):
    bind(parameters, args, kwargs)
    rest = [kwargs.get(n, d) if d is ... else d
            for n, d, _ in parameters[len(args):]]
    return list(args) + rest


def bind_by_signature(parameters, args, kwargs):
    from inspect import Parameter, Signature

    found = Signature([Parameter(
        n, Parameter.KEYWORD_ONLY if b else Parameter.POSITIONAL_OR_KEYWORD,
        default=Parameter.empty if d is ... else d)
        for n, d, b in parameters]).bind(*args, **kwargs)
    found.apply_defaults()
    return list(found.arguments.values())


def bind_by_taking(parameters, args, kwargs):
    args, kwargs, values = list(args), dict(kwargs), []
    for name, default, by_name in parameters:
        if args and not by_name:
            if name in kwargs:
                raise TypeError(name)
            values.append(args.pop(0))
        elif name in kwargs:
            values.append(kwargs.pop(name))
        elif default is ...:
            raise TypeError(name)
        else:
            values.append(default)
    if args or kwargs:
        raise TypeError("too many")
    return values


def bind_inputs(st):
    value = st.integers(0, 3)
    default = st.sampled_from([..., 1, 2])

    def parameters(required, optional, named):
        names = iter("abcde")
        return ([(next(names), ..., False) for _ in range(required)]
                + [(next(names), d, False) for d in optional]
                + [(next(names), d, True) for d in named])

    shapes = st.builds(
        parameters, st.integers(0, 2),
        st.lists(st.integers(1, 2), max_size=1), st.lists(default,
                                                          max_size=2))

    def calls(found):
        names = [p[0] for p in found]
        return st.tuples(
            st.just(found), st.lists(value, max_size=3).map(tuple),
            st.dictionaries(st.sampled_from(names + ["z"]), value,
                            max_size=3))

    def fits(found):
        """Calls that are right, more often than by chance."""
        plain = [p for p in found if not p[2]]

        def call(count, given):
            return (found, tuple(given[:count]),
                    {p[0]: v for p, v in zip(found[count:], given[count:])})

        return st.builds(call, st.integers(0, len(plain)),
                         st.lists(value, min_size=len(found),
                                  max_size=len(found)))

    return shapes.flatmap(lambda s: calls(s) | fits(s))


BIND = Exercise(
    id="03.5",
    title="Arguments to their places",
    name="bind",
    statement=BIND_STATEMENT,
    stub=BIND_STUB,
    reference=bind,
    inputs=bind_inputs,
    examples=(
        ([("a", ..., False), ("b", 1, False)], (5,), {}),
        ([("a", ..., False), ("b", 1, True)], (5,), {"b": 0}),
        ([("a", ..., False), ("b", 1, True)], (5, 0), {}),
        ([("a", ..., False)], (5,), {"a": 6}),
        ([("a", 1, False)], (), {"z": 6}), ([("a", ..., False)], (), {})),
    wrong=(
        Wrong(star_ignored, "This takes an argument by its place that may "
              "only come by name. What would `add(x, y, 2)` mean, if `alpha` "
              "could be given like that?"),
        Wrong(unknown_ignored, "A name that is not known is dropped. What "
              "does somebody see who has written `alhpa=2`?"),
        Wrong(twice_overwrites, "An argument that is given by place and by "
              "name takes the second value. Which of the two did the caller "
              "mean?"),
        Wrong(missing_is_none, "What is missing becomes None, and the kernel "
              "fails on it later. Who knows the argument's name at that "
              "point?"),
        Wrong(too_many_dropped, "Values that are too many are dropped "
              "without a word. How does the caller learn that the last one "
              "was never used?"),
        Wrong(zero_is_nothing, "A value of 0 is replaced by the default. Is "
              "`alpha=0` the same as no alpha?"),
        Wrong(names_ignored, "What is given by name is checked and then not "
              "used, where there is a default. Which of the two goes first?"),
    ),
    right=(bind_by_signature, bind_by_taking),
    hints=(
        "Collect a dict from name to value, first from `args`, then from "
        "`kwargs`. Each step has its own way to fail.",
        "By place, only the parameters whose `by_name` is False are filled; "
        "`zip` pairs them with `args`.",
        "At the end, go through the parameters: given, or the default, or "
        "TypeError where the default is `...`.",
    ),
    after="Lamina leaves this work to Python: the function that build_call "
    "writes has real parameters. PyTorch does it by hand in C++, in "
    "torch/csrc/utils/python_arg_parser.cpp, because it has to try several "
    "schemas of one name.",
)


# 03.6: modes inside each other

MODES_STATEMENT = """\
**Exercise 03.6.** A mode is a function `mode(func, x)`. It may call
`func(x)`, more than once or not at all, and what it returns is the result
of the call. `modes` are those that are on, in the order in which they were
entered. Write `call(modes, kernel, x)`: the mode entered last is asked
first, its `func` goes to the mode before it, and the last `func` to the
kernel."""

MODES_STUB = '''\
def call(modes: list, kernel, x):
    """The result of kernel(x) with these modes on."""
    raise NotImplementedError("exercise 03.6")'''


def call(modes, kernel, x):
    if not modes:
        return kernel(x)
    return modes[-1](lambda y: call(modes[:-1], kernel, y), x)


def first_is_asked_first(modes, kernel, x):
    return call(modes[::-1], kernel, x)


def only_the_last(modes, kernel, x):
    return call(modes[-1:], kernel, x)


def answer_ignored(modes, kernel, x):
    for mode in modes[::-1]:
        mode(kernel, x)
    return kernel(x)


def one_after_another(modes, kernel, x):
    for mode in modes[::-1]:
        x = mode(kernel, x)
    return x if modes else kernel(x)


def popped_for_good(modes, kernel, x):
    left = list(modes)

    def func(y):
        return left.pop()(func, y) if left else kernel(y)

    return func(x)


def old_argument(modes, kernel, x):
    if not modes:
        return kernel(x)
    return modes[-1](lambda y: old_argument(modes[:-1], kernel, x), x)


def call_by_wrapping(modes, kernel, x):
    func = kernel
    for mode in modes:
        func = (lambda inner, mode: lambda y: mode(inner, y))(func, mode)
    return func(x)


def call_by_partial(modes, kernel, x):
    from functools import partial, reduce

    return reduce(lambda func, mode: partial(mode, func), modes, kernel)(x)


MODES = {
    "log": lambda func, x: f"log {func(x)}",
    "twice": lambda func, x: func(func(x)),
    "change": lambda func, x: func(x + "'"),
    "skip": lambda func, x: x,
}


def modes_prepare(modes, kernel, x):
    return [MODES[name] for name in modes], lambda x: f"{kernel}({x})", x


def modes_inputs(st):
    return st.tuples(st.lists(st.sampled_from(list(MODES)), max_size=3),
                     st.just("abs"), st.just("x"))


CALL_MODES = Exercise(
    id="03.6",
    title="Modes inside each other",
    name="call",
    statement=MODES_STATEMENT,
    stub=MODES_STUB,
    reference=call,
    inputs=modes_inputs,
    prepare=modes_prepare,
    describe=lambda args: f"call([{', '.join(args[0])}], abs, 'x')",
    examples=((["log", "twice"], "abs", "x"), (["twice", "log"], "abs", "x"),
              (["change", "twice"], "abs", "x"), (["change"], "abs", "x"),
              (["log", "change"], "abs", "x"), (["skip", "log"], "abs", "x")),
    wrong=(
        Wrong(first_is_asked_first, "The mode entered first is asked first. "
              "Somebody opens a `with` inside another. Which of the two is "
              "nearer to the call?"),
        Wrong(only_the_last, "One mode is asked, and its `func` is the "
              "kernel itself. What becomes of those that were entered "
              "before?"),
        Wrong(answer_ignored, "The modes are asked, and what they return is "
              "thrown away. How could a mode change a result?"),
        Wrong(one_after_another, "Each mode gets the kernel, and the answer "
              "of the one before as `x`. How often does the kernel run with "
              "two modes that call `func` once?"),
        Wrong(popped_for_good, "A mode is taken off the list for good. The "
              "mode `twice` calls its `func` two times. Which modes does the "
              "second call meet?"),
        Wrong(old_argument, "`func` takes an argument and passes on another: "
              "the one that the whole call began with. What if a mode "
              "changes it?"),
    ),
    right=(call_by_wrapping, call_by_partial),
    hints=(
        "With no mode on, the answer is `kernel(x)`. With one, it is "
        "`mode(kernel, x)`.",
        "With several, the last gets a function as `func` that does the same "
        "with the others. The function may call `call` itself.",
        "`lambda y: call(modes[:-1], kernel, y)`",
    ),
    after="PyTorch keeps the modes of a thread on a stack (c10/core/impl/"
    "TorchDispatchModeTLS.h). It takes the top one off while that runs, and "
    "puts it back even after an exception.",
)


# 03.7: are the places in order

ORDER_STATEMENT = """\
**Exercise 03.7.** The places of a sparse tensor are the *columns* of
`indices`, which is given as a list of rows, one for each dimension. They
are coalesced if they are in row-major order and none comes twice. Write
`in_order(indices)`, True or False."""

ORDER_STUB = '''\
def in_order(indices: list) -> bool:
    """Whether the columns are sorted, and each is there once."""
    raise NotImplementedError("exercise 03.7")'''


def in_order(indices):
    places = list(zip(*indices))
    return all(a < b for a, b in zip(places, places[1:]))


def twice_is_fine(indices):
    places = list(zip(*indices))
    return places == sorted(places)


def only_unique(indices):
    places = list(zip(*indices))
    return len(set(places)) == len(places)


def by_rows(indices):
    return all(row == sorted(row) for row in indices)


def first_row_only(indices):
    return all(a < b for a, b in zip(indices[0], indices[0][1:]))


def last_dimension_first(indices):
    places = list(zip(*indices[::-1]))
    return all(a < b for a, b in zip(places, places[1:]))


def rows_as_places(indices):
    return all(a < b for a, b in zip(indices, indices[1:]))


def order_by_sorting(indices):
    places = [tuple(column) for column in zip(*indices)]
    return places == sorted(set(places))


def order_by_loop(indices):
    count = len(indices[0])
    for k in range(count - 1):
        for row in indices:
            if row[k] != row[k + 1]:
                if row[k] > row[k + 1]:
                    return False
                break
        else:
            return False
    return True


def order_inputs(st):
    def rows(shape):
        dims, count = shape
        row = st.lists(st.integers(0, 2), min_size=count, max_size=count)
        some = st.lists(row, min_size=dims, max_size=dims)

        def arranged(found):
            columns = sorted(set(zip(*found)))
            return [list(row) for row in zip(*columns)] or found

        return some | some.map(arranged)

    return st.tuples(st.integers(1, 3), st.integers(0, 4)).flatmap(
        rows).map(lambda found: (found,))


IN_ORDER = Exercise(
    id="03.7",
    title="Are the places in order?",
    name="in_order",
    statement=ORDER_STATEMENT,
    stub=ORDER_STUB,
    reference=in_order,
    inputs=order_inputs,
    examples=(([[0, 0, 1], [1, 2, 0]],), ([[0, 1], [1, 0]],),
              ([[1, 0], [0, 1]],), ([[0, 0], [1, 1]],), ([[]],)),
    wrong=(
        Wrong(twice_is_fine, "Two equal places count as sorted here. How "
              "many values belong to one element then?"),
        Wrong(only_unique, "No place comes twice, but the order is not "
              "looked at. What makes it possible to find a place by halving, "
              "or to merge two lists in one pass?"),
        Wrong(by_rows, "This wants each row sorted by itself. Places (0, 2) "
              "and (1, 0) follow each other. What does the second row look "
              "like?"),
        Wrong(first_row_only, "This compares the first dimension alone, and "
              "wants it to grow. May two elements lie in one row of the "
              "matrix?"),
        Wrong(last_dimension_first, "This orders by the last dimension "
              "first, which is the order of columns. Which dimension moves "
              "slowest in row-major order?"),
        Wrong(rows_as_places, "This compares the rows of `indices` with each "
              "other. A place is a column. How do you get the columns of a "
              "list of rows?"),
    ),
    right=(order_by_sorting, order_by_loop),
    hints=(
        "`zip(*indices)` gives the columns, as tuples.",
        "Python compares tuples from the left, which is row-major order.",
        "Each place has to be less than the next, and not equal to it.",
    ),
    after="PyTorch keeps the answer in a flag of the tensor and does not "
    "look again: is_coalesced() of a tensor that you made yourself is False, "
    "even if its places are in order (SparseTensorImpl.h).",
)


exercises = (FIND_KERNEL, MEMORY_OF, LAYERS_OF, THROUGH, BIND, CALL_MODES,
             IN_ORDER)
