"""NN: modules that know their parameters.

Exported from chapters/09_nn.ipynb by `course export`; edit the chapter, not
this file.
"""

import functools
import inspect
import itertools
import math
import struct
import warnings
from bisect import bisect_left, bisect_right
from collections import namedtuple
from collections.abc import Mapping
from itertools import accumulate
from statistics import NormalDist

from lamina.autograd import (
    AccumulateGrad, Node, RemovableHandle, derivative, edge_of,
    is_grad_enabled, missing, no_grad, part_of, random_states, set_history,
    submodule as module_in, wants_grad,
)
from lamina.broadcasting import broadcast_shapes, quiet
from lamina.dispatch import (
    FIRST_LAYER, array, define, functions, impl, np, own,
)
from lamina.matmul import linear
from lamina.reductions import (
    check_reduction, pairwise_sum, reduced, reduced_rows,
)
from lamina.storage import (
    bool_, dtypes, finfo, float32, float64, iinfo, int64, uint8,
)
from lamina.strides import (
    Tensor, arange, element, empty, flat, full, full_like, method, nearest,
    numel, ones_like, permute, refuse_overlap, row_major, tensor, write_values,
    zeros,
)

__all__ = [
    "Generator",
    "default_generator",
    "manual_seed",
    "initial_seed",
    "get_rng_state",
    "set_rng_state",
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    "normal",
    "bernoulli",
    "multinomial",
    "Parameter",
    "Module",
    "Linear",
    "ReLU",
    "Tanh",
    "Flatten",
    "Sequential",
    "nll_loss",
    "cross_entropy",
    "CrossEntropyLoss",
    "MSELoss",
]


WORD = 0xFFFFFFFF           # 32 bits


def philox(counter, key):
    """Philox4x32-10: four random 32-bit words from a counter and a key.

    counter: four 32-bit words, key: two. Python ints, or NumPy arrays of
    uint64 for many counters at once. J. Salmon and others, "Parallel
    random numbers: as easy as 1, 2, 3", SC 2011.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((b >> 32) ^ c1 ^ k0, b & WORD,
                          (a >> 32) ^ c3 ^ k1, a & WORD)
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return c0, c1, c2, c3


class Generator:
    """A stream of random numbers: a seed, and how far it has been read.

    The position counts blocks of four words. Seed and position are the
    whole state.
    """

    def __init__(self, seed=0):
        self.manual_seed(seed)

    def manual_seed(self, seed):
        """Begin the stream of that seed; the generator is returned."""
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"a seed is an int; got {seed!r}")
        if not -2 ** 63 <= seed < 2 ** 64:
            raise ValueError(f"a seed has 64 bits, from -2**63 to 2**64 - 1; "
                             f"got {seed}")
        self.seed = seed % 2 ** 64
        self.position = 0
        return self

    def initial_seed(self):
        """The seed that the stream began with."""
        return self.seed

    def get_state(self):
        """Seed and position as a tensor of 16 bytes, which can be saved."""
        state = struct.pack("<QQ", self.seed, self.position)
        return tensor(list(state), dtype=uint8)

    def set_state(self, new_state):
        """Go on from a state that get_state() gave."""
        if (not isinstance(new_state, Tensor) or new_state.shape != (16,)
                or new_state.dtype is not uint8):
            raise RuntimeError("a generator's state is a uint8 tensor of 16 "
                               "bytes, as get_state() gives it")
        state = bytes(new_state.tolist())
        self.seed, self.position = struct.unpack("<QQ", state)
        return self

    def __repr__(self):
        return f"Generator(seed={self.seed}, position={self.position})"


default_generator = Generator(67280421310721)   # PyTorch's default seed


def manual_seed(seed):
    """Seed the generator that is used where none is given."""
    return default_generator.manual_seed(seed)


def random_words(generator, count):
    """The next `count` words of 32 bits: a list, or with NumPy an array
    of uint64. Both hold the same numbers."""
    blocks = -(-count // 4)
    start = generator.position
    generator.position += blocks
    key = generator.seed & WORD, generator.seed >> 32
    if np is None:
        return [word for i in range(start, start + blocks)
                for word in philox((i & WORD, i >> 32, 0, 0), key)][:count]
    i = np.arange(start, start + blocks, dtype=np.uint64)
    zero = np.zeros_like(i)
    found = philox((i & WORD, i >> 32, zero, zero), key)
    return np.stack(found, 1).reshape(-1)[:count]


def random_pairs(generator, count):
    """The next `count` numbers of 64 bits, each of two words."""
    found = random_words(generator, 2 * count)
    if np is None:
        return [high << 32 | low
                for high, low in zip(found[::2], found[1::2])]
    return found[::2] << 32 | found[1::2]


def uniform_values(generator, count, dtype, low=0.0, high=1.0):
    """`count` numbers, evenly spread from low to high.

    From 0 to 1 they are multiples of 2**-24 for float32, of 2**-53 for
    float64, and 1 is never reached.
    """
    if dtype is float64:
        bits, drop, unit = random_pairs(generator, count), 11, 2.0 ** -53
    else:
        bits, drop, unit = random_words(generator, count), 8, 2.0 ** -24
    span = high - low
    if np is None:
        return [low + span * ((b >> drop) * unit) for b in bits]
    return low + span * ((bits >> drop) * unit)


def normal_values(generator, count, mean=0.0, std=1.0):
    """`count` numbers from the normal distribution, by the method of Box
    and Muller: a distance and an angle give two."""
    u = uniform_values(generator, count + count % 2, float64)
    values = []
    for a, b in zip(u[::2], u[1::2]):
        radius = std * math.sqrt(-2 * math.log(1 - a))  # 1 - a is not 0
        values += [mean + radius * math.cos(math.tau * b),
                   mean + radius * math.sin(math.tau * b)]
    return values[:count]


def write_draws(name, x, draw):
    """Fill a tensor with what draw() gives, in row-major order."""
    refuse_overlap(x)
    if x.requires_grad and is_grad_enabled():
        raise RuntimeError(f"{name}() writes to a tensor that requires "
                           f"grad; do it inside no_grad()")
    if x.dtype.category != 2:
        raise NotImplementedError(f"{name}() draws floats, and this is "
                                  f"{x.dtype}: use float32 or float64")
    if x.dtype.itemsize < 4:
        wide = empty(x.shape, dtype=float32, device=x.device)
        with no_grad():
            return x.copy_(write_draws(name, wide, draw))
    if x.device.type == "cpu":
        values = np.asarray(draw(), x.dtype.name)
        array(x)[...] = values.reshape(x.shape)
        x.storage.version += 1
    elif x.device.type == "python":
        write_values(x, map(float, draw()))
    return x


@method
def uniform_(self, low=0.0, high=1.0, *, generator=None):
    """Set the elements to numbers drawn evenly from low to high."""
    if not low <= high:
        raise RuntimeError(f"uniform_() draws from low to high; got "
                           f"low={low}, high={high}")
    source = generator or default_generator
    return write_draws("uniform_", self, lambda: uniform_values(
        source, self.numel(), self.dtype, low, high))


@method
def normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Set the elements to numbers drawn from a normal distribution."""
    if not std >= 0:
        raise RuntimeError(f"normal_() takes a std of 0 or more; got {std}")
    source = generator or default_generator
    return write_draws("normal_", self, lambda: normal_values(
        source, self.numel(), mean, std))


def rand(*size, generator=None, dtype=None, device=None,
         requires_grad=False):
    """A tensor of numbers drawn evenly from [0, 1)."""
    x = empty(*size, dtype=dtype, device=device)
    return x.uniform_(generator=generator).requires_grad_(requires_grad)


def randn(*size, generator=None, dtype=None, device=None,
          requires_grad=False):
    """A tensor of numbers from the normal distribution of mean 0 and
    standard deviation 1."""
    x = empty(*size, dtype=dtype, device=device)
    return x.normal_(generator=generator).requires_grad_(requires_grad)


def randint(low, high=None, size=None, *, generator=None, dtype=int64,
            device=None):
    """Whole numbers: low, ..., high - 1, each with the same chance.
    randint(high, size) begins at 0."""
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise RuntimeError(f"randint() draws from low up to high - 1; got "
                           f"low={low}, high={high}")
    x = empty(size, dtype=dtype, device=device)
    if str(x.device) == "meta":
        return x
    draws = random_pairs(generator or default_generator, x.numel())
    span = high - low
    return write_values(x, [low + int(n) % span for n in draws])


def randperm(n, *, generator=None, dtype=int64, device=None):
    """0, ..., n - 1 in a random order, each order with the same chance.

    R. Durstenfeld, "Algorithm 235: random permutation", CACM 1964.
    """
    if n < 0:
        raise RuntimeError(f"randperm({n}): expected 0 or more")
    order = list(range(n))
    draws = random_pairs(generator or default_generator, n)
    for i in range(n - 1, 0, -1):
        j = int(draws[i]) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return tensor(order, dtype=dtype, device=device)


def rand_like(input, *, dtype=None, device=None, requires_grad=False):
    """rand() with the shape, dtype and device of a tensor."""
    return rand(input.shape, dtype=dtype or input.dtype,
                device=device or input.device,
                requires_grad=requires_grad)


def randn_like(input, *, dtype=None, device=None, requires_grad=False):
    """randn() with the shape, dtype and device of a tensor."""
    return randn(input.shape, dtype=dtype or input.dtype,
                 device=device or input.device,
                 requires_grad=requires_grad)


def randint_like(input, low, high=None, *, dtype=None, device=None):
    """randint() with the shape, dtype and device of a tensor."""
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, input.shape, dtype=dtype or input.dtype,
                   device=device or input.device)


def normal(mean=0.0, std=1.0, size=None, *, generator=None):
    """Normal numbers around each element of mean, with the spread of each
    element of std; `size` where both are numbers."""
    if size is None:
        where_to = mean if isinstance(mean, Tensor) else std
        if not isinstance(where_to, Tensor):
            raise TypeError(f"normal() of two numbers, mean={mean} and "
                            f"std={std}, needs a size")
        size = broadcast_shapes(*[x.shape for x in (mean, std)
                                  if isinstance(x, Tensor)])
        dtype, device = where_to.dtype, where_to.device
    else:
        dtype = device = None
    draw = randn(size, generator=generator, dtype=dtype, device=device)
    return draw * std + mean


@method
def bernoulli_(self, p=0.5, *, generator=None):
    """Set each element to 1 with the chance p, else to 0. p is a number,
    or a tensor that broadcasts to this one."""
    low, high = (p, p) if not isinstance(p, Tensor) else (
        p.min().item(), p.max().item())
    if not 0 <= low <= high <= 1:
        raise RuntimeError(f"bernoulli_() takes chances from 0 to 1; got "
                           f"{low if not 0 <= low <= 1 else high}")
    u = rand(self.shape, generator=generator, device=self.device)
    return self.copy_(u < p)


@method
def bernoulli(input, p=None, *, generator=None):
    """1 with the chance that each element of input says, else 0; with a
    number p, each with that chance. The dtype stays."""
    if p is None and input.dtype.category != 2:
        raise NotImplementedError(f"bernoulli() takes chances, which are "
                                  f"floats; got {input.dtype}")
    with no_grad():
        out = empty(input.shape, dtype=input.dtype, device=input.device)
        return out.bernoulli_(input if p is None else p,
                              generator=generator)


def draw_places(weights, count, replacement, generator):
    """`count` indices, each with a chance in proportion to its weight."""
    weights, found = list(weights), []
    sums = list(accumulate(weights))
    for u in uniform_values(generator, count, float64):
        last = bisect_left(sums, sums[-1])      # u * sum may round up
        place = min(bisect_right(sums, float(u) * sums[-1]), last)
        found.append(place)
        if not replacement:
            weights[place] = 0.0
            sums = list(accumulate(weights))
    return found


@method
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Indices drawn with the chances that a row of weights gives.

    input: (n,) or (rows, n), from 0 on, not all 0. The result is
    (num_samples,) or (rows, num_samples), of int64.
    """
    if input.dim() not in (1, 2) or input.dtype.category != 2:
        raise RuntimeError(f"multinomial() takes one or two dimensions of "
                           f"floats; got {list(input.shape)} of "
                           f"{input.dtype}")
    shape = (*input.shape[:-1], num_samples)
    if input.device.type == "meta":
        return empty(shape, dtype=int64, device="meta")
    rows = input.tolist() if input.dim() == 2 else [input.tolist()]
    check_weights(rows, num_samples, replacement)
    source = generator or default_generator
    found = [draw_places(row, num_samples, replacement, source)
             for row in rows]
    return tensor(found, dtype=int64, device=input.device).reshape(shape)


def check_weights(rows, num_samples, replacement):
    """RuntimeError for weights that cannot be drawn from."""
    for row in rows:
        if not all(0 <= w < math.inf for w in row) or not any(row):
            raise RuntimeError(f"multinomial() takes finite weights from 0 "
                               f"on, not all 0; got {row[:8]}")
        if num_samples <= 0:
            raise RuntimeError(f"multinomial() draws 1 or more; got "
                               f"num_samples={num_samples}")
        full = sum(w > 0 for w in row)
        if not replacement and num_samples > full:
            raise RuntimeError(
                f"multinomial(): {num_samples} draws from {full} weights "
                f"above 0: draw fewer, or with replacement=True")


def initial_seed():
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of the default generator, to be saved."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Put the default generator where it was."""
    default_generator.set_state(new_state)


# what checkpoint() puts back before it computes a part again
random_states.append((get_rng_state, set_rng_state))


class Parameter(Tensor):
    """A tensor that a module learns: it registers itself where it is set,
    and requires grad unless you say. It shares the memory of `data`."""

    __slots__ = ()

    def __init__(self, data, requires_grad=True):
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter() takes a tensor; got "
                            f"{type(data).__name__}")
        super().__init__(data.storage, data.geometry, data.dtype)
        self.requires_grad_(requires_grad)

    def __repr__(self):
        return f"Parameter containing:\n{super().__repr__()}"


TABLES = {"_parameters": "a Parameter", "_buffers": "a Tensor",
          "_modules": "a Module"}


class Registry:
    """An object whose attributes register in a table of their kind."""

    def __init__(self):
        self.__dict__.update({kind: {} for kind in TABLES})

    def __setattr__(self, name, value):
        kind = table_of(value)
        tables = self.__dict__
        if kind is None:
            if not replace_registered(self, name, value):
                object.__setattr__(self, name, value)
            return
        if kind not in tables:
            raise AttributeError(
                f"cannot assign {kind[1:]} before Module.__init__() call: "
                f"{type(self).__name__}.__init__ must call "
                f"super().__init__() before it sets {name!r}")
        for table in (tables, *map(tables.get, TABLES)):
            if table is not tables[kind]:       # a name has one place
                table.pop(name, None)
        tables[kind][name] = value

    def __getattr__(self, name):
        for kind in TABLES:
            table = self.__dict__.get(kind, ())
            if name in table:
                return table[name]
        raise AttributeError(f"{type(self).__name__!r} object has no "
                             f"attribute {name!r}" + nearest(name, dir(self)))

    def __delattr__(self, name):
        for kind in TABLES:
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                return
        object.__delattr__(self, name)

    def __dir__(self):
        tables = [self.__dict__.get(kind, ()) for kind in TABLES]
        return sorted({*super().__dir__(), *tables[0], *tables[1],
                       *tables[2]})


def table_of(value):
    """The table that a value registers in; None for other values."""
    if isinstance(value, Parameter):
        return "_parameters"
    return "_modules" if isinstance(value, Registry) else None


def replace_registered(owner, name, value):
    """Set a registered name to None, or a buffer to another tensor; False
    for a name that is not registered."""
    for kind, expected in TABLES.items():
        table = owner.__dict__.get(kind, ())
        if name not in table:
            continue
        fits = kind == "_buffers" and isinstance(value, Tensor)
        if value is not None and not fits:
            raise TypeError(
                f"cannot assign {type(value).__name__} as {kind[1:-1]} "
                f"{name!r}: expected {expected} or None")
        table[name] = value
        return True
    return False


class Tree(Registry):
    """Modules in modules: walks over all that is registered."""

    def named_children(self):
        """(name, module) of the modules set in this one, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """(path, module) of this one and of all below it, each once."""
        memo = set() if memo is None else memo
        if self not in memo:
            if remove_duplicate:
                memo.add(self)
            yield prefix, self
            for name, module in self._modules.items():
                if module is not None:
                    yield from module.named_modules(
                        memo, joined(prefix, name), remove_duplicate)

    def named_parameters(self, prefix="", recurse=True,
                         remove_duplicate=True):
        """(path, parameter), each parameter once, even if shared."""
        return members(self, "_parameters", prefix, recurse,
                       remove_duplicate)

    def named_buffers(self, prefix="", recurse=True,
                      remove_duplicate=True):
        """(path, buffer), each buffer once."""
        return members(self, "_buffers", prefix, recurse, remove_duplicate)

    def children(self):
        return (module for _, module in self.named_children())

    def modules(self):
        return (module for _, module in self.named_modules())

    def parameters(self, recurse=True):
        return (p for _, p in self.named_parameters(recurse=recurse))

    def buffers(self, recurse=True):
        return (b for _, b in self.named_buffers(recurse=recurse))


def joined(prefix, name):
    """The path of a name below a prefix."""
    return f"{prefix}.{name}" if prefix else name


def members(module, kind, prefix, recurse, once):
    """What stands in one table of a module, and of those below it."""
    seen = set()
    found = (module.named_modules(None, prefix, once) if recurse
             else [(prefix, module)])
    for path, owner in found:
        for name, x in getattr(owner, kind).items():
            if x is None or once and id(x) in seen:
                continue
            seen.add(id(x))
            yield joined(path, name), x


class Pathways(Tree):
    """A tree that finds what stands at a path."""

    def get_submodule(self, target):
        """The module at a path; this one for the empty path."""
        module = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name)
            if found is None:
                raise AttributeError(
                    f"{type(module).__name__} has no module {name!r}, on "
                    f"the way to {target!r}"
                    + nearest(name, module._modules))
            module = found
        return module

    def get_parameter(self, target):
        """The parameter at a path."""
        return find_member(self, "_parameters", target)

    def get_buffer(self, target):
        """The buffer at a path."""
        return find_member(self, "_buffers", target)


def find_member(module, kind, target):
    """What one table holds at a path."""
    path, _, name = target.rpartition(".")
    owner = module.get_submodule(path)
    found = getattr(owner, kind).get(name)
    if found is None:
        raise AttributeError(f"{type(owner).__name__} has no {kind[1:-1]} "
                             f"{name!r}"
                             + nearest(name, getattr(owner, kind)))
    return found


Keys = namedtuple("IncompatibleKeys", "missing_keys unexpected_keys")


class Stateful(Pathways):
    """A tree whose tensors can be taken out and put back by path."""

    def state_dict(self, *, prefix="", keep_vars=False):
        """{path: tensor} of all parameters and buffers, sharing memory.

        A tensor that two modules share stands under both paths, and a
        buffer that was registered with persistent=False under none.
        keep_vars gives the tensors themselves, not detached.
        """
        state = {}
        for kind in ("_parameters", "_buffers"):
            for name, x in getattr(self, kind).items():
                if x is None or name in self._non_persistent_buffers_set:
                    continue
                state[prefix + name] = x if keep_vars else x.detach()
        for name, module in self._modules.items():
            if module is not None:
                state.update(module.state_dict(
                    prefix=f"{prefix}{name}.", keep_vars=keep_vars))
        return state

    def load_state_dict(self, state_dict, strict=True):
        """Copy a state into the parameters and buffers.

        RuntimeError lists all that does not fit; then nothing has been
        copied. With strict=False, missing and unexpected names are no
        error. Both lists are returned.
        """
        if (not isinstance(state_dict, Mapping)
                or not all(isinstance(name, str) for name in state_dict)):
            raise TypeError(f"load_state_dict() takes a dict of str to "
                            f"tensors, as state_dict() gives; got "
                            f"{type(state_dict).__name__}")
        own = self.state_dict()
        keys = Keys([name for name in own if name not in state_dict],
                    [name for name in state_dict if name not in own])
        problems = misfits(own, state_dict, keys if strict else ((), ()))
        if problems:
            raise RuntimeError(f"load_state_dict(): this state does not "
                               f"fit {type(self).__name__}:\n  "
                               + "\n  ".join(problems))
        with no_grad():
            for name, x in own.items():
                if name in state_dict:
                    x.copy_(state_dict[name].to(x.device))
        return keys


def misfits(own, given, keys):
    """What keeps a state from being loaded, one line each."""
    missing, unexpected = keys
    lines = [f"missing: {name!r}, of shape {list(own[name].shape)}"
             for name in missing]
    lines += [f"unexpected: {name!r}{nearest(name, missing)}"
              for name in unexpected]
    for name in own.keys() & given.keys():
        x = given[name]
        if not isinstance(x, Tensor):
            lines.append(f"no tensor: {name!r} is of type "
                         f"{type(x).__name__}")
        elif x.shape != own[name].shape:
            lines.append(f"shape: {name!r} is {list(x.shape)} in the state, "
                         f"and {list(own[name].shape)} in the module")
        elif str(x.device) == "meta" != str(own[name].device):
            lines.append(f"no data: {name!r} is on 'meta' in the state, and "
                         f"on '{own[name].device}' in the module")
    return sorted(lines)


class Module(Stateful):
    """A part of a network: parameters, buffers, other modules, forward().

    What is set as an attribute is registered by its kind, so that
    parameters() and all the rest can find it. Write __init__, which
    calls super().__init__() first, and forward().
    """

    def __init__(self):
        super().__init__()
        self.training = True
        self._non_persistent_buffers_set = set()
        self._hooks = {}

    def __call__(self, *args, **kwargs):
        if self._hooks:
            return call_with_hooks(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args, **kwargs):
        """What the module computes."""
        raise NotImplementedError(f"module {type(self).__name__} has no "
                                  f"forward(): define what it computes")

    def train(self, mode=True):
        """Set this module and all below it to training, or with False to
        evaluation; the module is returned."""
        if not isinstance(mode, bool):
            raise ValueError(f"train() takes True or False; got {mode!r}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self):
        """The same as train(False)."""
        return self.train(False)

    def apply(self, fn):
        """Call fn on each module below this one, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros."""
        for p in self.parameters():
            clear_grad(p, set_to_none)

    def requires_grad_(self, requires_grad=True):
        """Want the gradients of all parameters, or of none."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self


def clear_grad(p, set_to_none):
    """Forget one gradient; or keep its memory, filled with zeros."""
    if set_to_none and type(p.autograd) is AccumulateGrad:
        p.autograd.grad = None          # of a leaf, as nearly always
    elif p.grad is not None:
        p.grad = None if set_to_none else p.grad.detach().zero_()


def module_method(function):
    """Make a function a method of Module."""
    setattr(Module, function.__name__, function)
    return function


@module_method
def register_parameter(self, name, param):
    """Register a parameter; None keeps the place of one."""
    register(self, "_parameters", Parameter, name, param)


@module_method
def register_buffer(self, name, tensor, persistent=True):
    """Register a tensor that is state and is not learned."""
    register(self, "_buffers", Tensor, name, tensor)
    self._non_persistent_buffers_set.discard(name)
    if not persistent:
        self._non_persistent_buffers_set.add(name)


@module_method
def add_module(self, name, module):
    """Register a child."""
    register(self, "_modules", Module, name, module)


Module.register_module = add_module


def register(module, kind, wanted, name, value):
    """Put a value into a table under a name that is free."""
    if value is not None and not isinstance(value, wanted):
        raise TypeError(f"{kind[1:-1]} {name!r} must be {TABLES[kind]} or "
                        f"None; got {type(value).__name__}")
    if not isinstance(name, str) or "." in name or not name:
        raise KeyError(f"{name!r} cannot be a name in a module: expected "
                       f"some letters, and no '.', which paths use")
    table = getattr(module, kind)
    if name not in table and hasattr(module, name):
        raise KeyError(f"attribute {name!r} already exists")
    table[name] = value


@module_method
def extra_repr(self):
    """What the module's own line says in brackets."""
    return ""


@module_method
def __repr__(self):
    extra = self.extra_repr()
    lines = extra.split("\n") if extra else []
    for name, module in self._modules.items():
        lines += f"({name}): {module!r}".split("\n")
    if not self._modules and len(lines) < 2:
        return f"{type(self).__name__}({''.join(lines)})"
    return "\n".join([f"{type(self).__name__}(",
                      *("  " + line for line in lines), ")"])


def replace_memory(x, new):
    """Let a tensor stand on the memory of another."""
    if new.storage is x.storage and new.geometry == x.geometry:
        return
    layers = x.keys & -FIRST_LAYER & ~x.dtype.bit
    x._storage, x._geometry, x.dtype = new.storage, new.geometry, new.dtype
    x.array, x.keys = None, layers | new.keys
    if x.autograd is not None:
        x.autograd = AccumulateGrad(x)  # the old one noted shape and dtype


@module_method
def _apply(self, fn):
    """Replace each parameter, gradient and buffer x by fn(x)."""
    with no_grad():
        for p in self.parameters():
            grad = p.grad
            p.grad = None
            replace_memory(p, fn(p.detach()))
            p.grad = None if grad is None else fn(grad)
        for module in self.modules():
            for name, x in module._buffers.items():
                if x is not None:
                    module._buffers[name] = fn(x)
    return self


@module_method
def to(self, *args, dtype=None, device=None):
    """Move the module to a device, its floats to a dtype, or both; a
    tensor stands for its device and dtype. The module is returned."""
    for arg in args:
        if isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, type(float32)):
            dtype = arg
        else:
            device = arg
    if dtype is not None and dtype.category != 2:
        raise TypeError(f"a module's dtype is one of the floats; got "
                        f"{dtype}")
    return self._apply(lambda x: x.to(
        dtype=dtype if x.dtype.category == 2 else None, device=device))


def add_cast(name, dtype):
    """Give Module a method that converts its floats."""
    def cast(self):
        return self.to(dtype)
    cast.__doc__ = f"Convert the floats to {dtype}."
    cast.__name__ = name
    module_method(cast)


for name, target in {"float": "float32", "double": "float64",
                     "half": "float16", "bfloat16": "bfloat16"}.items():
    if target in dtypes:
        add_cast(name, dtypes[target])


@module_method
def cpu(self):
    """The same as to("cpu")."""
    return self.to("cpu")


def add_hook(module, kind, hook):
    if not callable(hook):
        raise TypeError(f"a hook is a function; got {type(hook).__name__}")
    handle = RemovableHandle(module._hooks)
    module._hooks[handle.id] = kind, hook
    return handle


@module_method
def register_forward_pre_hook(self, hook):
    """Call hook(module, args) before each forward()."""
    return add_hook(self, "forward_pre", hook)


@module_method
def register_forward_hook(self, hook):
    """Call hook(module, args, output) after each forward()."""
    return add_hook(self, "forward", hook)


@module_method
def register_full_backward_pre_hook(self, hook):
    """Call hook(module, grad_output) before the module's backward."""
    return add_hook(self, "backward_pre", hook)


@module_method
def register_full_backward_hook(self, hook):
    """Call hook(module, grad_input, grad_output) after the module's
    backward."""
    return add_hook(self, "backward", hook)


def hooks_of(module, kind):
    """The module's hooks of one kind, in the order of registration."""
    return [hook for k, hook in list(module._hooks.values()) if k == kind]


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def call_with_hooks(module, args, kwargs):
    """forward(), and around it the module's hooks."""
    for hook in hooks_of(module, "forward_pre"):
        found = hook(module, args)
        args = args if found is None else as_tuple(found)
    border = None
    if hooks_of(module, "backward") or hooks_of(module, "backward_pre"):
        border = Border(module)
        args = border.around(args, border.leave)
    output = module.forward(*args, **kwargs)
    for hook in hooks_of(module, "forward"):
        found = hook(module, args, output)
        output = output if found is None else found
    if border is None:
        return output
    found = border.around(as_tuple(output), border.enter)
    return found if isinstance(output, tuple) else found[0]


class Gate(Node):
    """Passes gradients on, and shows them to a function on the way."""

    __slots__ = ("show",)

    def __init__(self, tensors, show):
        self.lead_to([edge_of(x) if wants_grad(x) else (None, 0)
                      for x in tensors])
        self.shape = [x.shape for x in tensors]
        self.dtype = [x.dtype for x in tensors]
        self.hooks = None
        self.show = show

    def name(self):
        return "BackwardHookFunctionBackward"

    def apply(self, grads):
        return self.show(tuple(grads))


class Border:
    """The gates on both sides of one call of a module."""

    def __init__(self, module):
        self.module = module
        self.grad_output = ()
        self.has_entry = False

    def around(self, args, show):
        """The arguments, with a gate behind those that want a gradient."""
        tensors = [x for x in args if isinstance(x, Tensor)]
        if not is_grad_enabled() or not any(map(wants_grad, tensors)):
            return args
        self.has_entry |= show == self.leave
        gate = Gate(tensors, show)
        behind = []
        for nr, x in enumerate(tensors):
            if wants_grad(x):
                x = x.detach()
                set_history(x, gate, nr)
            behind.append(x)
        rest = iter(behind)
        return tuple([next(rest) if isinstance(x, Tensor) else x
                      for x in args])

    def enter(self, grads):
        """At the output: the gradients come in."""
        for hook in hooks_of(self.module, "backward_pre"):
            found = hook(self.module, grads)
            grads = grads if found is None else as_tuple(found)
        self.grad_output = grads
        if not self.has_entry:      # no input wants one: this is the end
            self.leave((None,))
        return grads

    def leave(self, grads):
        """At the inputs: they leave."""
        for hook in hooks_of(self.module, "backward"):
            found = hook(self.module, grads, self.grad_output)
            grads = grads if found is None else as_tuple(found)
        return grads


class Linear(Module):
    """x @ weight.T + bias, over the last dimension.

    weight is (out_features, in_features). Both begin evenly spread from
    -1 / sqrt(in_features) to 1 / sqrt(in_features).
    """

    def __init__(self, in_features, out_features, bias=True, device=None,
                 dtype=None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features,
                                      dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty(
            out_features, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias anew."""
        bound = 1 / math.sqrt(max(self.in_features, 1))
        with no_grad():
            for p in self.parameters():
                p.uniform_(-bound, bound)

    def forward(self, input):
        if input.shape[-1:] != (self.in_features,):
            raise RuntimeError(
                f"{self!r} takes inputs of shape [..., {self.in_features}]; "
                f"got {list(input.shape)}")
        return linear(input, self.weight, self.bias)

    def extra_repr(self):
        return (f"in_features={self.in_features}, "
                f"out_features={self.out_features}, "
                f"bias={self.bias is not None}")


submodule = functools.partial(module_in, parent="lamina.nn")


init = submodule("init", "Numbers for weights to begin with.")


@part_of(init)
@no_grad()
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Fill with numbers drawn evenly from a to b."""
    return tensor.uniform_(a, b, generator=generator)


@part_of(init)
@no_grad()
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Fill with numbers drawn from a normal distribution."""
    return tensor.normal_(mean, std, generator=generator)


@part_of(init)
@no_grad()
def constant_(tensor, val):
    """Fill with one number."""
    return tensor.fill_(val)


@part_of(init)
def ones_(tensor):
    """Fill with ones."""
    return constant_(tensor, 1.0)


@part_of(init)
def zeros_(tensor):
    """Fill with zeros."""
    return constant_(tensor, 0.0)


@part_of(init)
@no_grad()
def eye_(tensor):
    """Fill a matrix with ones on its diagonal, and zeros."""
    rows, columns = need_matrix("eye_", tensor).shape
    return tensor.copy_(arange(rows, device=tensor.device).unsqueeze(1)
                        == arange(columns, device=tensor.device))


def need_matrix(name, tensor):
    if tensor.dim() != 2:
        raise ValueError(f"{name}() fills a matrix; got a tensor of shape "
                         f"{list(tensor.shape)}")
    return tensor


GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3,
         "relu": math.sqrt(2.0), "selu": 0.75,
         **{f"conv{d}d": 1.0 for d in (1, 2, 3)},
         **{f"conv_transpose{d}d": 1.0 for d in (1, 2, 3)}}


@part_of(init)
def calculate_gain(nonlinearity, param=None):
    """The factor that makes up for a nonlinearity. param: the slope of
    leaky_relu, 0.01 if it is not given."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"the slope is a number; got {slope!r}")
        return math.sqrt(2 / (1 + slope ** 2))
    if nonlinearity not in GAINS:
        raise ValueError(f"no gain is known for {nonlinearity!r}"
                         + nearest(str(nonlinearity), [*GAINS, "leaky_relu"]))
    return GAINS[nonlinearity]


def fans(tensor):
    """(fan_in, fan_out): how many numbers go into one output, and into
    one input's gradient."""
    if tensor.dim() < 2:
        raise ValueError(f"a fan-in needs a weight of two dimensions or "
                         f"more, (out, in, ...); got shape "
                         f"{list(tensor.shape)}")
    window = numel(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


@part_of(init)
def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Even, with a standard deviation of gain * sqrt(2 / (in + out))."""
    bound = gain * math.sqrt(3.0) * math.sqrt(2.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


@part_of(init)
def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal, with a standard deviation of gain * sqrt(2 / (in + out))."""
    std = gain * math.sqrt(2.0 / sum(fans(tensor)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_std(tensor, a, mode, nonlinearity):
    """The gain over the root of a fan."""
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out'; got {mode!r}")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


@part_of(init)
def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu",
                     generator=None):
    """Even, with a standard deviation of gain / sqrt(fan). a is the slope
    of leaky_relu."""
    bound = math.sqrt(3.0) * kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@part_of(init)
def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu",
                    generator=None):
    """Normal, with a standard deviation of gain / sqrt(fan)."""
    std = kaiming_std(tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator)


@part_of(init)
@no_grad()
def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0,
                  generator=None):
    """Fill with normal numbers, none of them outside of a to b."""
    curve = NormalDist(mean, std)
    low, high = curve.cdf(a), curve.cdf(b)
    if not low < high:
        raise ValueError(f"trunc_normal_(): nearly nothing of the normal "
                         f"distribution with mean {mean} and std {std} lies "
                         f"between {a} and {b}")
    source = generator or default_generator

    def draw():
        heights = uniform_values(source, tensor.numel(), float64, low, high)
        return [min(max(curve.inv_cdf(float(h)) if h > 0 else a, a), b)
                for h in heights]
    return write_draws("trunc_normal_", tensor, draw)


@part_of(init)
@no_grad()
def orthogonal_(tensor, gain=1, generator=None):
    """Fill with orthogonal rows of length `gain`; with more rows than
    columns, the columns are. Dimensions from the second on count as one.
    """
    if tensor.dim() < 2:
        raise ValueError(f"orthogonal_() fills two dimensions or more; got "
                         f"{list(tensor.shape)}")
    rows, columns = tensor.shape[0], numel(tensor.shape[1:])
    shape = sorted((rows, columns))
    q = randn(*shape, generator=generator, dtype=float64,
              device=tensor.device)
    for i in range(shape[0]):
        for _ in range(2):
            above = q[:i]
            q[i] -= (above @ q[i]) @ above
        q[i] /= (q[i] * q[i]).sum().sqrt()
    q = q if rows <= columns else q.t()
    return tensor.copy_((q * gain).reshape(tensor.shape))


functional = submodule("functional", "What modules do, as functions.")


def function(plain):
    """Put a function of tensors into nn.functional."""
    first = next(iter(inspect.signature(plain).parameters))

    @part_of(functional)
    @functools.wraps(plain)
    def checked(*args, **kwargs):
        x = args[0] if args else kwargs.get(first)
        if not isinstance(x, Tensor):
            need_tensor(plain.__name__, first, x)
        return plain(*args, **kwargs)
    return checked


def need_tensor(name, argument, x):
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument {argument!r} must be a Tensor, "
                        f"not {type(x).__name__}")


def need_floats(name, x):
    if x.dtype.category != 2:
        raise NotImplementedError(f"{name}() is not implemented for "
                                  f"{x.dtype}; convert to a float: "
                                  f"x.to(lamina.float32)")


def refuse_bool(name, x):
    if x.dtype.category == 0:
        raise NotImplementedError(f"{name}() is not implemented for "
                                  f"{x.dtype}")


def float_function(plain):
    """The same, for a function that has no meaning for integers."""
    @functools.wraps(plain)
    def of_floats(input, *args, **kwargs):
        if isinstance(input, Tensor):
            need_floats(plain.__name__, input)
        return plain(input, *args, **kwargs)
    return function(of_floats)


where = functions["where"]


@function
def relu(input, inplace=False):
    """Each element, or 0 where it is negative."""
    return input.relu_() if inplace else input.relu()


def or_inplace(plain):
    """A function of one float tensor that takes `inplace` as well, last."""
    parameters = list(inspect.signature(plain).parameters.values())

    @functools.wraps(plain)
    def either(input, *args, inplace=False, **kwargs):
        if len(args) == len(parameters):
            *args, inplace = args
        if not inplace:
            return plain(input, *args, **kwargs)
        return input.copy_(plain(input.clone(), *args, **kwargs))
    either.__signature__ = inspect.Signature(
        [*parameters, inspect.Parameter(
            "inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=False)])
    return float_function(either)


@or_inplace
def elu(input, alpha=1.0):
    """x above 0, alpha * (exp(x) - 1) below. D.-A. Clevert and others,
    2015."""
    return where(input > 0, input, alpha * input.clamp(max=0).expm1())


@or_inplace
def leaky_relu(input, negative_slope=0.01):
    """x above 0, negative_slope * x below."""
    return where(input > 0, input, input * negative_slope)


@or_inplace
def selu(input):
    """ELU with two constants that keep mean 0 and variance 1 in a deep
    row of layers. G. Klambauer and others, 2017."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return scale * elu(input, alpha)


@or_inplace
def celu(input, alpha=1.0):
    """x above 0, alpha * (exp(x / alpha) - 1) below."""
    if alpha == 0:
        raise RuntimeError("celu() divides by alpha, and alpha is 0")
    low = (input / alpha).clamp(max=0) if alpha > 0 else (
        input / alpha).clamp(min=0)
    return where(input > 0, input, alpha * low.expm1())


@float_function
def gelu(input, approximate="none"):
    """x times the chance that a normal number lies below x; "tanh" is a
    close formula without erf. D. Hendrycks and K. Gimpel, 2016."""
    if approximate == "tanh":
        cube = input * input * input
        slope = math.sqrt(2 / math.pi) * (input + 0.044715 * cube)
        return 0.5 * input * (1 + slope.tanh())
    if approximate != "none":
        raise RuntimeError(f"approximate must be 'none' or 'tanh'; got "
                           f"{approximate!r}")
    return input * 0.5 * (1 + (input * math.sqrt(0.5)).erf())


@or_inplace
def silu(input):
    """x * sigmoid(x), also called swish."""
    return input * input.sigmoid()


@float_function
def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * x)) / beta, and x itself above the threshold,
    where the two are the same."""
    scaled = input * beta
    low = scaled.clamp(max=threshold).exp().log1p() / beta
    return where(scaled > threshold, input, low)


@or_inplace
def mish(input):
    """x * tanh(softplus(x))."""
    return input * softplus(input).tanh()


@function
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """x, cut off at both ends."""
    if min_val > max_val:
        raise ValueError(f"hardtanh(): min_val={min_val} is above "
                         f"max_val={max_val}")
    refuse_bool("hardtanh", input)
    kind = int if input.dtype.category == 1 else float
    cut = where(input <= min_val, kind(min_val),
                where(input >= max_val, kind(max_val), input))
    return input.copy_(cut) if inplace else cut


@function
def relu6(input, inplace=False):
    """x, from 0 to 6."""
    return hardtanh(input, 0.0, 6.0, inplace)


@or_inplace
def hardsigmoid(input):
    """A sigmoid of three straight lines."""
    return hardtanh(input + 3, 0.0, 6.0) / 6


@or_inplace
def hardswish(input):
    """x * hardsigmoid(x)."""
    return input * hardsigmoid(input)


@float_function
def logsigmoid(input):
    """log(sigmoid(x)), written so that exp never overflows."""
    low = where(input < 0, input, -input)           # -|x|
    return where(input < 0, input, 0.0) - low.exp().log1p()


@function
def softsign(input):
    """x / (1 + |x|)."""
    return input / (1 + input.abs())


@function
def tanhshrink(input):
    """x - tanh(x)."""
    return input - input.tanh()


@float_function
def hardshrink(input, lambd=0.5):
    """0 from -lambd to lambd, x elsewhere."""
    return where((input >= -lambd).logical_and(input <= lambd), 0.0, input)


@float_function
def softshrink(input, lambd=0.5):
    """x, moved towards 0 by lambd, and 0 where that would cross it."""
    if not lambd >= 0:
        raise RuntimeError(f"softshrink(): lambd must be 0 or more; got "
                           f"{lambd}")
    return where(input > lambd, input - lambd,
                 where(input < -lambd, input + lambd, input * 0))


@function
def threshold(input, threshold, value, inplace=False):
    """x above the threshold, `value` elsewhere."""
    refuse_bool("threshold", input)
    if input.dtype.category == 1:
        value = int(value)
    cut = where(input <= threshold, value, input)
    return input.copy_(cut) if inplace else cut


@float_function
def prelu(input, weight):
    """Leaky ReLU with a slope that is learned: one, or one for each
    channel, which is dimension 1. K. He and others, 2015."""
    need_tensor("prelu", "weight", weight)
    if weight.dim() > 1 or input.dtype is not weight.dtype:
        raise RuntimeError(f"prelu(): weight is a number or a vector, of "
                           f"the input's dtype; got shape "
                           f"{list(weight.shape)} of {weight.dtype}")
    if weight.numel() != 1:
        channels = input.shape[1] if input.dim() > 1 else 1
        if weight.numel() != channels:
            raise RuntimeError(f"prelu(): {weight.numel()} weights, and "
                               f"{channels} channels in an input of shape "
                               f"{list(input.shape)}")
        weight = weight.reshape(-1, *[1] * (input.dim() - 2))
    elif weight.dim():
        weight = weight.reshape(())
    return where(input > 0, input, weight * input)


@float_function
def glu(input, dim=-1):
    """The first half along dim, times the sigmoid of the second."""
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"glu() halves dimension {dim}, and its size "
                           f"{size} is odd")
    half = size // 2
    return input.narrow(dim, 0, half) * input.narrow(
        dim, half, half).sigmoid()


def chosen_dim(name, input, dim):
    """The dimension to normalise over, which should be given."""
    if dim is None:
        dim = 0 if input.dim() in (0, 1, 3) else 1
        warnings.warn(f"{name}() without dim: dimension {dim} of "
                      f"{list(input.shape)} is taken, as PyTorch does; "
                      f"give the one that you mean", stacklevel=4)
    return dim


@function
def softmax(input, dim=None, dtype=None):
    """exp(x) over its sum along a dimension."""
    return input.softmax(chosen_dim("softmax", input, dim), dtype)


@function
def log_softmax(input, dim=None, dtype=None):
    """The logarithm of softmax, computed without it."""
    return input.log_softmax(chosen_dim("log_softmax", input, dim), dtype)


@function
def softmin(input, dim=None, dtype=None):
    """softmax of -x."""
    return (-input).softmax(chosen_dim("softmin", input, dim), dtype)


@function
def sigmoid(input):
    """1 / (1 + exp(-x))."""
    return input.sigmoid()


@function
def tanh(input):
    """The hyperbolic tangent."""
    return input.tanh()


def module_of(name, plain, *, given=("input",), tensors=(), last=()):
    """A module class around a function of nn.functional.

    given: the arguments of forward(); all others are options, set when
    the module is made. tensors: options that are buffers; last: those
    that come last here, and not in the function.
    """
    parameters = inspect.signature(plain).parameters
    options = inspect.Signature(sorted(
        [p for key, p in parameters.items() if key not in given],
        key=lambda p: p.name in last))

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        try:
            bound = options.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        bound.apply_defaults()
        for key, value in bound.arguments.items():
            if key in tensors:
                self.register_buffer(key, value)
            else:
                setattr(self, key, value)

    def forward(self, *args, **kwargs):
        return plain(*args, **kwargs, **{
            key: getattr(self, key) for key in options.parameters})

    def extra_repr(self):
        return ", ".join(f"{key}={getattr(self, key)!r}"
                         for key in options.parameters
                         if key not in (*tensors, *UNSAID))

    made = type(name, (Module,), {
        "__init__": __init__, "forward": forward, "extra_repr": extra_repr,
        "__doc__": f"{plain.__doc__}\n\nThe module of {plain.__name__}().",
        "__module__": __name__})
    made.__signature__ = options
    return made


UNSAID = ("inplace", "reduction", "size_average", "reduce",
          "return_indices")             # by a repr


ReLU = module_of("ReLU", relu)
ReLU6 = module_of("ReLU6", relu6)
ELU = module_of("ELU", elu)
LeakyReLU = module_of("LeakyReLU", leaky_relu)
SELU = module_of("SELU", selu)
CELU = module_of("CELU", celu)
GELU = module_of("GELU", gelu)
SiLU = module_of("SiLU", silu)
Mish = module_of("Mish", mish)
Softplus = module_of("Softplus", softplus)
Hardtanh = module_of("Hardtanh", hardtanh)
Hardsigmoid = module_of("Hardsigmoid", hardsigmoid)
Hardswish = module_of("Hardswish", hardswish)
LogSigmoid = module_of("LogSigmoid", logsigmoid)
Softsign = module_of("Softsign", softsign)
Tanhshrink = module_of("Tanhshrink", tanhshrink)
Hardshrink = module_of("Hardshrink", hardshrink)
Softshrink = module_of("Softshrink", softshrink)
Threshold = module_of("Threshold", threshold)
GLU = module_of("GLU", glu)
Sigmoid = module_of("Sigmoid", sigmoid)
Tanh = module_of("Tanh", tanh)
Softmax = module_of("Softmax", softmax, given=("input", "dtype"))
LogSoftmax = module_of("LogSoftmax", log_softmax, given=("input", "dtype"))
Softmin = module_of("Softmin", softmin, given=("input", "dtype"))


class PReLU(Module):
    """Leaky ReLU with a slope that is learned."""

    def __init__(self, num_parameters=1, init=0.25, device=None,
                 dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), float(init),
                                     dtype=dtype, device=device))

    def forward(self, input):
        return prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class Identity(Module):
    """Gives back what it is given; it takes any arguments when made."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Flatten(Module):
    """Join the dimensions from start_dim to end_dim into one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Row(Module):
    """Modules in order, named by their places: what Sequential and
    ModuleList share."""

    def append(self, module):
        """Add a module at the end; the row is returned."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Add modules at the end; the row is returned."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """Put a module before the one at index."""
        modules = list(self)
        modules.insert(index, module)
        renumber(self, modules)
        return self

    def pop(self, index=-1):
        """Take a module out."""
        module = self[index]
        del self[index]
        return module

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, index):
        return list(self)[place_in(self, index)]

    def __setitem__(self, index, module):
        name = list(self._modules)[place_in(self, index)]
        self.add_module(name, module)

    def __delitem__(self, index):
        modules = list(self)
        del modules[index if isinstance(index, slice)
                    else place_in(self, index)]
        renumber(self, modules)


def place_in(container, index):
    """An index, counted from the front, or IndexError."""
    if not -len(container) <= index < len(container):
        raise IndexError(f"index {index} of a {type(container).__name__} of "
                         f"{len(container)}")
    return index % len(container)


def renumber(row, modules):
    """Put these modules into a row, named from 0 on."""
    row._modules.clear()
    row.extend(modules)


class Sequential(Row):
    """Modules in a row: each takes what the one before it gives.

    Takes modules, or one dict of them by name.
    """

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self.extend(args)

    def forward(self, input):
        for module in self:
            input = module(input)
        return input

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)


class ModuleList(Row):
    """A list of modules that registers them; it has no forward()."""

    def __init__(self, modules=None):
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return super().__getitem__(index)


class ModuleDict(Module):
    """A dict of modules that registers them; it has no forward()."""

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def update(self, modules):
        """Add the modules of a dict, or of (name, module) pairs."""
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name, module):
        self.add_module(name, module)

    def __getitem__(self, name):
        return self._modules[name]

    def __delitem__(self, name):
        del self._modules[name]

    def pop(self, name):
        """Take a module out."""
        return self._modules.pop(name)

    def __contains__(self, name):
        return name in self._modules

    def __iter__(self):
        return iter(self._modules)

    def __len__(self):
        return len(self._modules)

    def keys(self):
        return self._modules.keys()

    def values(self):
        return self._modules.values()

    def items(self):
        return self._modules.items()


class ParameterList(Module):
    """A list of parameters that registers them. A tensor that is put in
    becomes a parameter."""

    def __init__(self, values=None):
        super().__init__()
        self.extend(values or ())

    def append(self, value):
        """Add a parameter at the end."""
        name = str(len(self))
        self.register_parameter(name, as_parameter(value))
        return self

    def extend(self, values):
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __iter__(self):
        return iter(self._parameters.values())

    def __len__(self):
        return len(self._parameters)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._parameters[str(place_in(self, index))]

    def __setitem__(self, index, value):
        name = str(place_in(self, index))
        self.register_parameter(name, as_parameter(value))


def as_parameter(value):
    """A tensor as a parameter; anything else as it is."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


@function
def one_hot(tensor, num_classes=-1):
    """A row of zeros for each class, with a 1 at its place: one dimension
    more, of size num_classes, or of the largest class and 1."""
    if tensor.dtype is not int64:
        raise RuntimeError(f"one_hot() takes classes, of dtype int64; got "
                           f"{tensor.dtype}")
    if num_classes == 0 or num_classes < -1:
        raise RuntimeError(f"one_hot() needs a class at least; got "
                           f"num_classes={num_classes}")
    if not tensor.numel():
        if num_classes < 0:
            raise RuntimeError("one_hot() of no elements cannot count the "
                               "classes: give num_classes")
    elif tensor.device.type != "meta":
        low, high = tensor.amin().item(), tensor.amax().item()
        if low < 0 or -1 < num_classes <= high:
            raise RuntimeError(f"one_hot(): class {low if low < 0 else high}"
                               f" is none of the classes from 0 on"
                               f", num_classes={num_classes}")
        num_classes = high + 1 if num_classes < 0 else num_classes
    classes = arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(int64)


@function
def embedding(input, weight, padding_idx=None, max_norm=None,
              norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of weight that input names. max_norm shortens longer rows
    in place first; scale_grad_by_freq divides a row's gradient by how
    often it is named."""
    need_tensor("embedding", "weight", weight)
    if input.dtype.category != 1 or input.dtype.itemsize < 4:
        raise RuntimeError(f"embedding() takes indices of int64 or int32; "
                           f"got {input.dtype}")
    if weight.dim() != 2:
        raise RuntimeError(f"embedding(): the weight has two dimensions; "
                           f"got shape {list(weight.shape)}")
    if sparse:
        raise NotImplementedError("embedding(): gradients are dense here; "
                                  "leave sparse=True out")
    padding_idx = checked_row(padding_idx, weight)
    check_rows(input, weight.shape[0])
    flat_index = input.reshape(-1)
    if max_norm is not None:
        shorten_rows(weight, flat_index, max_norm, norm_type)
    rows = weight.index_select(0, flat_index)
    if scale_grad_by_freq and flat_index.numel():
        same = flat_index.unsqueeze(1) == flat_index
        part = rows / same.to(rows.dtype).sum(1, keepdim=True)
        rows = part + (rows - part).detach()
    if padding_idx is not None:
        rows = where((flat_index == padding_idx).unsqueeze(1),
                     rows.detach(), rows)
    return rows.reshape(*input.shape, weight.shape[1])


def check_rows(index, rows):
    """IndexError for a row that a table does not have."""
    if index.numel() and index.device.type != "meta":
        for found in (index.amin().item(), index.amax().item()):
            if not 0 <= found < rows:
                raise IndexError(f"embedding(): row {found} is out of range:"
                                 f" the table has {rows}, from 0 on")


def checked_row(padding_idx, weight):
    """A row's number, counted from the front; None for None."""
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise RuntimeError(f"padding_idx={padding_idx} is no row of a table "
                           f"of {rows}")
    return padding_idx % rows


def shorten_rows(weight, index, max_norm, norm_type):
    """Scale the rows that are named to a length of max_norm at most."""
    with no_grad():
        named = one_hot(index, weight.shape[0]).amax(0).bool() if (
            index.numel()) else zeros(weight.shape[0], dtype=bool_)
        lengths = lengths_of(weight, norm_type, 1)
        scale = where(named.logical_and(lengths > max_norm),
                      max_norm / (lengths + 1e-7), 1.0)
        weight *= scale.unsqueeze(1)


def lengths_of(x, p, dim, keepdim=False):
    """The p-norm along dim; its gradient at 0 is 0."""
    size = x.abs()
    if p == 1:
        return size.sum(dim, keepdim)
    if p == math.inf:
        return size.amax(dim, keepdim)
    if p == 0:
        return (x != 0).to(x.dtype).sum(dim, keepdim)
    total = (x * x if p == 2 else size ** p).sum(dim, keepdim)
    at_zero = total == 0
    root = where(at_zero, 1.0, total)
    root = root.sqrt() if p == 2 else root ** (1 / p)
    return where(at_zero, 0.0, root)


class Embedding(Module):
    """A table of num_embeddings rows, looked up by number."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None,
                 max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                 device=None, dtype=None):
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.weight = Parameter(empty(num_embeddings, embedding_dim,
                                      dtype=dtype, device=device))
        self.padding_idx = checked_row(padding_idx, self.weight)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the rows anew, from a normal distribution."""
        normal_(self.weight)
        if self.padding_idx is not None:
            zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, input):
        return embedding(input, self.weight, self.padding_idx,
                         self.max_norm, self.norm_type,
                         self.scale_grad_by_freq)

    def extra_repr(self):
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text


@function
def dropout(input, p=0.5, training=True, inplace=False):
    """Each element 0 with the chance p, the others divided by 1 - p; the
    input itself when not training. N. Srivastava and others, 2014."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout() takes a chance from 0 to 1; got p={p}")
    if not training or p == 0:
        return input
    need_floats("dropout", input)
    keep = empty(input.shape, dtype=input.dtype, device=input.device)
    with no_grad():
        keep.bernoulli_(1 - p)
    if p < 1:
        keep = keep / (1 - p)
    return input.mul_(keep) if inplace else input * keep


class Dropout(Module):
    """Sets elements to 0 with the chance p while training."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"Dropout() takes a chance from 0 to 1; got "
                             f"p={p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


def standardised(input, dims, eps):
    """Over dims: minus the mean, over the root of the variance."""
    mean = input.mean(dims, keepdim=True)
    centred = input - mean
    variance = (centred * centred).mean(dims, keepdim=True)
    return centred / (variance + eps).sqrt()


def scaled(x, weight, bias, shape=None):
    """x * weight + bias; either may be None. shape: what they are seen
    in, to stand at the right dimension."""
    if weight is not None:
        x = x * (weight.reshape(shape) if shape else weight)
    if bias is not None:
        x = x + (bias.reshape(shape) if shape else bias)
    return x


def last_dims(name, input, normalized_shape, *others):
    """The dimensions that normalized_shape covers, or RuntimeError."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else (
        tuple(normalized_shape))
    if not shape or input.shape[-len(shape):] != shape:
        raise RuntimeError(f"{name}() over the last dimensions "
                           f"{list(shape)} does not fit an input of shape "
                           f"{list(input.shape)}")
    for x in others:
        if x is not None and x.shape != shape:
            raise RuntimeError(f"{name}(): weight and bias have the shape "
                               f"{list(shape)}; got {list(x.shape)}")
    return tuple(range(-len(shape), 0))


@float_function
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """Over the last dimensions, of shape normalized_shape: mean 0 and
    variance 1. J. Ba and others, 2016."""
    dims = last_dims("layer_norm", input, normalized_shape, weight, bias)
    if not input.numel():
        return input * 1
    return scaled(standardised(input, dims, eps), weight, bias)


@float_function
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Over the last dimensions: a mean square of 1. B. Zhang and
    R. Sennrich, 2019. The default eps is the dtype's own."""
    dims = last_dims("rms_norm", input, normalized_shape, weight)
    if eps is None:
        eps = finfo(input.dtype).eps
    if not input.numel():
        return input * 1
    size = ((input * input).mean(dims, keepdim=True) + eps).sqrt()
    return scaled(input / size, weight, None)


def check_channels(name, input, **vectors):
    """Refuse an input without channels, or vectors that do not fit."""
    if input.dim() < 2:
        raise RuntimeError(f"{name}() takes an input of shape (N, C, ...); "
                           f"got {list(input.shape)}")
    for key, x in vectors.items():
        if x is not None and x.shape != (input.shape[1],):
            raise RuntimeError(f"{name}(): {key} has a number for each of "
                               f"the {input.shape[1]} channels; got shape "
                               f"{list(x.shape)}")
    return 1, input.shape[1], *[1] * (input.dim() - 2)


@float_function
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Over each of num_groups groups of channels: mean 0 and variance 1.
    Y. Wu and K. He, 2018."""
    shape = check_channels("group_norm", input, weight=weight, bias=bias)
    n, channels = input.shape[:2]
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError(f"group_norm(): {channels} channels do not make "
                           f"{num_groups} equal groups")
    if not input.numel():
        return input * 1
    groups = input.reshape(n, num_groups, -1)
    found = standardised(groups, (2,), eps).reshape(input.shape)
    return scaled(found, weight, bias, shape)


@float_function
def batch_norm(input, running_mean, running_var, weight=None, bias=None,
               training=False, momentum=0.1, eps=1e-05):
    """Each channel over all else: mean 0 and variance 1. In training
    those of the batch, and they go into the running ones, of which
    `momentum` is new. S. Ioffe and C. Szegedy, 2015."""
    if not input.numel():
        return input * 1
    shape = check_channels("batch_norm", input, running_mean=running_mean,
                           running_var=running_var, weight=weight,
                           bias=bias)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("batch_norm() outside of training needs "
                               "running_mean and running_var")
        centred = input - running_mean.reshape(shape)
        root = (running_var.reshape(shape) + eps).sqrt()
        return scaled(centred / root, weight, bias, shape)
    count = numel(input.shape) // max(input.shape[1], 1)
    if count == 1:
        raise ValueError(f"batch_norm() in training needs more than one "
                         f"number in each channel; got shape "
                         f"{list(input.shape)}")
    dims = (0, *range(2, input.dim()))
    if running_mean is not None or running_var is not None:
        update_running(input, dims, count, running_mean, running_var,
                       momentum)
    return scaled(standardised(input, dims, eps), weight, bias, shape)


@no_grad()
def update_running(input, dims, count, mean, var, momentum):
    """Move the running mean and variance towards those of the batch."""
    found = input.mean(dims, keepdim=True)
    if mean is not None:
        mean += momentum * (found.reshape(mean.shape) - mean)
    if var is not None:
        square = ((input - found) * (input - found)).sum(dims)
        var += momentum * (square / (count - 1) - var)


@float_function
def instance_norm(input, running_mean=None, running_var=None, weight=None,
                  bias=None, use_input_stats=True, momentum=0.1, eps=1e-05):
    """Each channel of each example: mean 0 and variance 1. D. Ulyanov and
    others, 2016."""
    shape = check_channels("instance_norm", input, weight=weight, bias=bias,
                           running_mean=running_mean,
                           running_var=running_var)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias,
                          eps=eps)
    n, channels = input.shape[:2]
    if numel(input.shape[2:]) == 1:
        raise ValueError(f"instance_norm() needs more than one number in "
                         f"each channel; got shape {list(input.shape)}")
    joined_batch = input.reshape(1, n * channels, *input.shape[2:])
    repeated = [None if x is None else x.unsqueeze(0).expand(
        n, channels).reshape(-1) for x in (running_mean, running_var)]
    found = batch_norm(joined_batch, *repeated, training=True,
                       momentum=momentum, eps=eps)
    with no_grad():
        for own, many in zip((running_mean, running_var), repeated):
            if own is not None:
                own.copy_(many.reshape(n, channels).mean(0))
    return scaled(found.reshape(input.shape), weight, bias, shape)


class Affine(Module):
    """What the modules of normalisation share: a weight, which begins
    with ones, and a bias, which begins with zeros."""

    def __init__(self, shape, eps, affine, bias, device, dtype):
        super().__init__()
        self.eps = eps
        options = {"dtype": dtype, "device": device}
        self.register_parameter("weight", Parameter(
            full(shape, 1.0, **options)) if affine else None)
        self.register_parameter("bias", Parameter(
            full(shape, 0.0, **options)) if affine and bias else None)

    def reset_parameters(self):
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            ones_(self.weight)
        if self.bias is not None:
            zeros_(self.bias)


class LayerNorm(Affine):
    """Mean 0 and variance 1 over the last dimensions."""

    def __init__(self, normalized_shape, eps=1e-05, elementwise_affine=True,
                 bias=True, device=None, dtype=None):
        shape = (normalized_shape,) if isinstance(
            normalized_shape, int) else tuple(normalized_shape)
        super().__init__(shape, eps, elementwise_affine, bias, device, dtype)
        self.normalized_shape = shape
        self.elementwise_affine = elementwise_affine

    def forward(self, input):
        return layer_norm(input, self.normalized_shape, self.weight,
                          self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}")


class GroupNorm(Affine):
    """Mean 0 and variance 1 over each group of channels."""

    def __init__(self, num_groups, num_channels, eps=1e-05, affine=True,
                 device=None, dtype=None):
        if num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not make "
                             f"{num_groups} equal groups")
        super().__init__((num_channels,), eps, affine, True, device, dtype)
        self.num_groups, self.num_channels = num_groups, num_channels
        self.affine = affine

    def forward(self, input):
        return group_norm(input, self.num_groups, self.weight, self.bias,
                          self.eps)

    def extra_repr(self):
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
                f"affine={self.affine}")


class BatchNorm1d(Affine):
    """Mean 0 and variance 1 of each feature over the batch: (N, C) or
    (N, C, L). In eval() the running mean and variance are used."""

    dims = 2, 3

    def __init__(self, num_features, eps=1e-05, momentum=0.1, affine=True,
                 track_running_stats=True, device=None, dtype=None):
        super().__init__((num_features,), eps, affine, True, device, dtype)
        self.num_features = num_features
        self.momentum, self.affine = momentum, affine
        self.track_running_stats = track_running_stats
        options = {"dtype": dtype, "device": device}
        running = [full((num_features,), 0.0, **options),
                   full((num_features,), 1.0, **options),
                   full((), 0, dtype=int64, device=device)]
        for name, x in zip(("running_mean", "running_var",
                            "num_batches_tracked"), running):
            self.register_buffer(name, x if track_running_stats else None)

    def reset_running_stats(self):
        """Forget what was seen."""
        if self.track_running_stats:
            self.running_mean.fill_(0)
            self.running_var.fill_(1)
            self.num_batches_tracked.fill_(0)

    def forward(self, input):
        if input.dim() not in self.dims:
            dims = " or ".join(map(str, self.dims))
            raise ValueError(f"{self!r} takes {dims} dimensions; got "
                             f"{list(input.shape)}")
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if momentum is None:        # the mean of all batches
                momentum = 1 / self.num_batches_tracked.to(float64)
        mean, var = self.running_mean, self.running_var
        return batch_norm(input, mean, var, self.weight, self.bias,
                          self.training or mean is None,
                          0.0 if momentum is None else momentum, self.eps)

    def extra_repr(self):
        return (f"{self.num_features}, eps={self.eps}, "
                f"momentum={self.momentum}, affine={self.affine}, "
                f"track_running_stats={self.track_running_stats}")


class BatchNorm2d(BatchNorm1d):
    """The same for images: (N, C, H, W)."""

    dims = 4,


OLDER = {"size_average": None, "reduce": None}.keys()


def loss_function(plain):
    """Put a loss into nn.functional. It also takes size_average and
    reduce, which PyTorch had before reduction."""
    own = list(inspect.signature(plain).parameters.values())
    fixed = [p.name for p in own if p.kind is not p.KEYWORD_ONLY]
    order = [*fixed, "size_average"]
    for p in own[len(fixed):]:
        order += ["reduce", p.name] if p.name == "reduction" else [p.name]

    @part_of(functional)
    @functools.wraps(plain)
    def loss(*args, **kwargs):
        if not args or not isinstance(args[0], Tensor):
            need_tensor(plain.__name__, fixed[0],
                        args[0] if args else kwargs.get(fixed[0]))
        if len(args) > len(fixed) or kwargs and kwargs.keys() & OLDER:
            kwargs = by_name(plain.__name__, order, args, kwargs)
            args, flags = (), [kwargs.pop(name, None) for name in OLDER]
            if flags != [None, None]:
                mean, each = [flag is None or flag for flag in flags]
                kwargs["reduction"] = ("none" if not each else
                                       "mean" if mean else "sum")
        return plain(*args, **kwargs)
    kinds = {p.name: p for p in own}
    loss.__signature__ = inspect.Signature([inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=kinds[name].default if name in kinds else None)
        for name in order])
    return loss


def by_name(name, order, args, kwargs):
    """Arguments by position as arguments by name."""
    found = dict(zip(order, args))
    if len(args) > len(order) or found.keys() & kwargs.keys():
        raise TypeError(f"{name}() takes {', '.join(order)}; got {len(args)}"
                        f" by position, and {', '.join(kwargs) or 'none'} "
                        f"by name")
    return {**found, **kwargs}


define("_nll_loss(Tensor self, Tensor target, str reduction, "
       "int ignore_index) -> Tensor",
       "Minus the element of the right class, along dimension 1 or the only "
       "one; their mean or sum.")
define("_nll_loss_backward(Tensor grad_output, Tensor target, int[] size, "
       "str reduction, int ignore_index) -> Tensor",
       "The way back through nll_loss: zeros of that size, and what each "
       "right class has lost.")
log_softmax_along = functions["_log_softmax"]
pick_losses = functions["_nll_loss"]
nll_loss_back = functions["_nll_loss_backward"]
derivative("_nll_loss",
           self=lambda grad, target, self_shape, reduction, ignore_index:
           nll_loss_back(grad, target, self_shape, reduction, ignore_index))
derivative("_nll_loss_backward",
           grad_output=lambda grad, target, reduction, ignore_index:
           pick_losses(grad, target, reduction, ignore_index))


def check_range(classes, count):
    """IndexError for a class that is not there."""
    for found in classes:
        if not 0 <= found < count:
            raise IndexError(f"target {found} is out of range: there are "
                             f"{count} classes, from 0 to {count - 1}")


@impl("_nll_loss", "python")
def python_nll_loss(self, target, reduction, ignore_index):
    classes, dim = flat(target), min(1, self.ndim - 1)
    kept = [c for c in classes if c != ignore_index]
    check_range(kept, self.shape[dim])
    losses = [0.0 if c == ignore_index else -row[c]
              for row, c in zip(reduced_rows(self, (dim,)), classes)]
    shape = ()
    if reduction == "none":
        shape = target.shape
    elif reduction == "sum":
        losses = [pairwise_sum(losses)]
    else:
        losses = [pairwise_sum(losses) / len(kept) if kept else math.nan]
    return write_values(
        empty(shape, dtype=self.dtype, device="python"), losses)


@impl("_nll_loss_backward", "python")
def python_nll_loss_backward(grad_output, target, size, reduction,
                             ignore_index):
    out = zeros(size, dtype=grad_output.dtype, device="python")
    classes, dim = flat(target), min(1, len(size) - 1)
    kept, grads = sum(c != ignore_index for c in classes), flat(grad_output)
    if reduction != "none":
        grads = [grads[0] / (kept if reduction == "mean" else 1)
                 if kept else 0.0] * len(classes)
    rows = [[-g if c == place != ignore_index else 0.0
             for place in range(size[dim])] for g, c in zip(grads, classes)]
    order = [d for d in range(len(size)) if d != dim] + [dim]
    write_values(permute(out, order), [g for row in rows for g in row])
    return out


@impl("_nll_loss", "meta")
def meta_nll_loss(self, target, reduction, ignore_index):
    return empty(target.shape if reduction == "none" else (),
                 dtype=self.dtype, device="meta")


@impl("_nll_loss_backward", "meta")
def meta_nll_loss_backward(grad_output, target, size, *others):
    return empty(size, dtype=grad_output.dtype, device="meta")


def left_out(classes, count, ignore_index):
    """Where the class is ignore_index; None if it nowhere is. A class below
    0 is a huge one if its bits are read without a sign."""
    if not classes.size:
        return None
    bits = classes.view(np.uint64)          # argmax is quicker than max
    if bits[bits.argmax()] < count and not 0 <= ignore_index < count:
        return None
    ignored = classes == ignore_index
    check_range(classes[~ignored & ((classes < 0) | (classes >= count))],
                count)
    return ignored


@functools.lru_cache(64)
def row_starts(rows, size):
    return np.arange(rows) * size


@impl("_nll_loss", "cpu")
def cpu_nll_loss(self, target, reduction, ignore_index):
    x, classes = array(self), array(target)
    if x.ndim != 2:             # one row for each class to pick
        dim = min(1, x.ndim - 1)
        x = np.moveaxis(x, dim, -1).reshape(-1, x.shape[dim])
        classes = classes.reshape(-1)
    ignored, count = left_out(classes, x.shape[1], ignore_index), len(classes)
    if ignored is not None:
        classes = np.where(ignored, 0, classes)
        count -= int(ignored.sum())
    picked = x.take(row_starts(*x.shape) + classes)
    if ignored is not None:
        picked[ignored] = 0
    if reduction == "none":
        return own(np.negative(picked).reshape(target.shape), self.dtype)
    total = 0 - quiet(np.add.reduce, picked)
    if reduction == "mean":
        total = total / count if count else x.dtype.type("nan")
    return own(total, self.dtype)


@impl("_nll_loss_backward", "cpu")
def cpu_nll_loss_backward(grad_output, target, size, reduction,
                          ignore_index):
    grad, classes = array(grad_output), array(target)
    dim = min(1, len(size) - 1)
    if len(size) != 2:
        grad, classes = grad.reshape(-1), classes.reshape(-1)
    ignored, count = left_out(classes, size[dim], ignore_index), len(classes)
    if ignored is not None:
        classes = np.where(ignored, 0, classes)
        count -= int(ignored.sum())
    found = np.zeros((len(classes), size[dim]), grad.dtype)
    lost = (grad.item() / -count if reduction == "mean" and count
            else -grad)
    found.put(row_starts(*found.shape) + classes,
              lost if ignored is None else np.where(ignored, 0, lost))
    if len(size) != 2:
        order = size[:dim] + size[dim + 1:] + size[dim:dim + 1]
        found = np.ascontiguousarray(
            np.moveaxis(found.reshape(order), -1, dim))
    return own(found, grad_output.dtype)


@loss_function
def nll_loss(input, target, weight=None, *, ignore_index=-100,
             reduction="mean"):
    """Minus the log-probability of the right class.

    input: (N, C) or (N, C, ...) log-probabilities, or (C,) for one;
    target: the same without C, the classes as int64. weight: a factor for
    each class, by whose sum the mean divides. Where the target is
    ignore_index, nothing is lost, and it does not count in the mean.
    """
    need_floats("nll_loss", input)
    need_tensor("nll_loss", "target", target)
    return lost_at("nll_loss", input, target, weight, ignore_index, reduction)


def lost_at(name, input, target, weight, ignore_index, reduction):
    dim = check_classes(name, input, target, weight)
    if weight is None:
        check_reduction(reduction)
        return pick_losses(input, target, reduction, ignore_index)
    classes, ignored = split_ignored(target, input.shape[dim], ignore_index)
    losses = -input.gather(dim, classes.unsqueeze(dim)).squeeze(dim)
    factors = weight.index_select(
        0, classes.reshape(-1)).reshape(classes.shape)
    losses = where(ignored, 0.0, losses)
    factors = where(ignored, 0.0, factors)
    if reduction == "mean":
        return (losses * factors).sum() / factors.sum()
    return reduced(losses * factors, reduction)


@loss_function
def cross_entropy(input, target, weight=None, *, ignore_index=-100,
                  reduction="mean", label_smoothing=0.0):
    """Minus the logarithm of the probability that softmax gives to the
    right class: log_softmax, then nll_loss.

    input: (N, C) or (N, C, ...) logits, or (C,) for one; target: the same
    without C, the classes as int64, or with C, probabilities. IndexError
    for a class that is not there. label_smoothing: the part of the target
    that is spread over all classes.
    """
    need_floats("cross_entropy", input)
    need_tensor("cross_entropy", "target", target)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing is a part, from 0 to 1; got "
                           f"{label_smoothing}")
    log_p = log_softmax_along(input, 0 if len(input.shape) < 2 else 1)
    if target.dtype.category == 2 and input.shape == target.shape:
        return soft_targets(log_p, target, weight, reduction,
                            label_smoothing)
    loss = lost_at("cross_entropy", log_p, target, weight, ignore_index,
                   reduction)
    if not label_smoothing:
        return loss
    even = spread_evenly(log_p, target, weight, ignore_index, reduction)
    return (1 - label_smoothing) * loss + label_smoothing * even


def check_classes(name, input, target, weight):
    """Refuse logits and targets that do not fit each other; give the
    dimension of the classes."""
    if weight is not None:
        need_tensor(name, "weight", weight)
    shape = input.shape
    dim = 0 if len(shape) == 1 else 1
    if not shape or target.shape != shape[:dim] + shape[dim + 1:]:
        raise ValueError(
            f"{name}() takes logits of shape (N, C) and targets of shape "
            f"(N,), the class of each row, one target for each; got "
            f"{list(shape)} and {list(target.shape)}")
    if target.dtype is not int64:
        raise RuntimeError(f"targets are classes, of dtype int64; got "
                           f"{target.dtype}: use target.long()")
    if weight is not None and weight.shape != (shape[dim],):
        raise RuntimeError(f"{name}(): weight has a number for each of the "
                           f"{shape[dim]} classes; got shape "
                           f"{list(weight.shape)}")
    return dim


def split_ignored(target, count, ignore_index):
    """The targets, 0 at the places to leave out, and which places those
    are; IndexError for a class that is not there."""
    ignored = target == ignore_index
    target = where(ignored, 0, target)
    if target.numel() and target.device.type != "meta":
        for found in (target.amin().item(), target.amax().item()):
            if not 0 <= found < count:
                raise IndexError(f"target {found} is out of range: there "
                                 f"are {count} classes, from 0 to "
                                 f"{count - 1}")
    return target, ignored


def soft_targets(log_p, target, weight, reduction, label_smoothing):
    """Cross entropy of probabilities, of the shape of log_p."""
    dim = 0 if log_p.dim() < 2 else 1
    count = log_p.shape[dim]
    if weight is not None and weight.shape != (count,):
        raise RuntimeError(f"cross_entropy(): weight has a number for each "
                           f"of the {count} classes; got shape "
                           f"{list(weight.shape)}")
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / count
    losses = -(over_classes(log_p, weight, dim) * target).sum(dim)
    if reduction != "mean":
        return reduced(losses, reduction)
    return losses.sum() / max(losses.numel(), 1)


def over_classes(log_p, weight, dim):
    """log_p times the weights of the classes, which are along dim."""
    if weight is None:
        return log_p
    return log_p * weight.reshape(-1, *[1] * (log_p.dim() - dim - 1))


def spread_evenly(log_p, target, weight, ignore_index, reduction):
    """The loss of a target that gives each class the same chance."""
    dim = check_classes("cross_entropy", log_p, target, weight)
    classes, ignored = split_ignored(target, log_p.shape[dim], ignore_index)
    losses = -over_classes(log_p, weight, dim).mean(dim)
    factors = ones_like(losses) if weight is None else (
        weight.index_select(0, classes.reshape(-1)).reshape(classes.shape))
    losses = where(ignored, 0.0, losses)
    factors = where(ignored, 0.0, factors)
    if reduction == "mean":
        return losses.sum() / factors.sum()
    return reduced(losses, reduction)


def check_targets(name, input, target, weight=None):
    """Refuse targets of another shape, or a weight that does not fit."""
    need_floats(name, input)
    need_tensor(name, "target", target)
    if input.shape != target.shape:
        raise ValueError(f"{name}(): input and target have one shape; got "
                         f"{list(input.shape)} and {list(target.shape)}")
    if weight is not None:
        need_tensor(name, "weight", weight)
        broadcast_shapes(weight.shape, input.shape)


@loss_function
def binary_cross_entropy_with_logits(input, target, weight=None, *,
                                     reduction="mean", pos_weight=None):
    """The loss of yes (1) or no (0), of logits. weight: a factor for each
    element; pos_weight: one for the part of the loss that says yes."""
    check_targets("binary_cross_entropy_with_logits", input, target, weight)
    log_yes = logsigmoid(input)
    if pos_weight is not None:
        need_tensor("binary_cross_entropy_with_logits", "pos_weight",
                    pos_weight)
        log_yes = log_yes * ((pos_weight - 1) * target + 1)
        no = (1 - target) * input
        losses = no - log_yes
    else:
        losses = (1 - target) * input - log_yes
    return reduced(losses if weight is None else losses * weight, reduction)


@loss_function
def binary_cross_entropy(input, target, weight=None, *, reduction="mean"):
    """The loss of yes (1) or no (0), of probabilities. Prefer the one of
    logits: these have lost their digits near 1."""
    check_targets("binary_cross_entropy", input, target, weight)
    for key, x in ("input", input), ("target", target):
        if not x.numel() or x.device.type == "meta":
            continue
        low, high = x.amin().item(), x.amax().item()
        if not 0 <= low <= high <= 1:
            raise RuntimeError(f"binary_cross_entropy() takes probabilities "
                               f"from 0 to 1; {key} has {low} to {high}. "
                               f"For logits there is "
                               f"binary_cross_entropy_with_logits")
    losses = -(target * bounded_log(input)
               + (1 - target) * bounded_log(1 - input))
    return reduced(losses if weight is None else losses * weight, reduction)


def bounded_log(p):
    """log(p), and -100 where it would be less."""
    at_zero = p == 0
    return where(at_zero, -100.0, where(at_zero, 1.0, p).log()
                 .clamp(min=-100))


@loss_function
def mse_loss(input, target, *, reduction="mean", weight=None):
    """The mean of the squared differences."""
    need_floats("mse_loss", input)
    need_tensor("mse_loss", "target", target)
    if weight is None:
        return functions["mse_loss"](input, target, reduction)
    return weighted((input - target) ** 2, weight, reduction)


def weighted(losses, weight, reduction):
    """Losses times their weights; the mean divides by the weights."""
    if losses.shape != weight.shape:
        raise ValueError(f"the weights have the losses' shape "
                         f"{list(losses.shape)}; got {list(weight.shape)}")
    if reduction == "mean":
        return (losses * weight).sum() / weight.sum()
    return reduced(losses * weight, reduction)


def distance(name, input, target):
    """|input - target|."""
    need_tensor(name, "target", target)
    if input.shape != target.shape:
        warnings.warn(f"{name}(): shapes {list(input.shape)} and "
                      f"{list(target.shape)} differ and are broadcast; that "
                      f"is seldom meant", stacklevel=5)
    return (input - target).abs()


@loss_function
def l1_loss(input, target, *, reduction="mean", weight=None):
    """The mean of the absolute differences."""
    losses = distance("l1_loss", input, target)
    if weight is not None:
        return weighted(losses, weight, reduction)
    return reduced(losses, reduction)


@loss_function
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """d * d / (2 * beta) for a difference d below beta, else
    d - beta / 2."""
    need_floats("smooth_l1_loss", input)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss(): beta={beta} is below 0")
    d = distance("smooth_l1_loss", input, target)
    if beta:
        d = where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)
    return reduced(d, reduction)


@float_function
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """d * d / 2 for a difference d below delta, else
    delta * (d - delta / 2). P. Huber, 1964."""
    if delta <= 0:
        raise RuntimeError(f"huber_loss(): delta={delta} is not above 0")
    d = distance("huber_loss", input, target)
    losses = where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))
    if weight is not None:
        return weighted(losses, weight, reduction)
    return reduced(losses, reduction)


@loss_function
def kl_div(input, target, *, reduction="mean", log_target=False):
    """The divergence of target from input, which is log-probabilities:
    target * (log(target) - input). "batchmean" divides the sum by the
    size of the batch, as the mathematics has it."""
    need_tensor("kl_div", "target", target)
    need_floats("kl_div", input)
    need_floats("kl_div", target)
    if log_target:
        losses = target.exp() * (target - input)
    else:
        absent = target == 0
        losses = target * where(absent, 1.0, target).log() - target * input
    if reduction == "batchmean":
        return losses.sum() / (input.shape[0] if input.dim() else 1)
    return reduced(losses, reduction)


@loss_function
def poisson_nll_loss(input, target, log_input=True, full=False, *,
                     eps=1e-08, reduction="mean"):
    """Minus the log-probability of a count, from its expected value or
    the logarithm of it. full adds Stirling's formula for log(target!)."""
    need_tensor("poisson_nll_loss", "target", target)
    if log_input:
        losses = input.exp() - target * input
    else:
        losses = input - target * (input + eps).log()
    if full:
        large = where(target > 1, target, 2)
        stirling = large * large.log() - large + 0.5 * (
            2 * math.pi * large).log()
        losses = losses + where(target > 1, stirling, 0)
    return reduced(losses, reduction)


@float_function
def gaussian_nll_loss(input, target, var, full=False, eps=1e-06,
                      reduction="mean"):
    """Minus the log-density of target, normal around input with variance
    var, which is taken as eps at least."""
    need_tensor("gaussian_nll_loss", "target", target)
    if not isinstance(var, Tensor):
        var = full_like(input, var)
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.shape != (*input.shape[:-1], 1) and (
                broadcast_shapes(var.shape, input.shape) != input.shape):
            raise ValueError(f"gaussian_nll_loss(): a variance for each "
                             f"element, or each row, of {list(input.shape)};"
                             f" got {list(var.shape)}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction!r} is no reduction")
    if var.numel() and var.device.type != "meta" and (var < 0).any():
        raise ValueError("gaussian_nll_loss(): a variance is below 0")
    low = var.detach()
    var = var + (low.clamp(min=eps) - low)  # bounded; the gradient is not
    losses = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction)


@loss_function
def soft_margin_loss(input, target, *, reduction="mean"):
    """log(1 + exp(-target * input)), for targets of -1 and 1."""
    need_tensor("soft_margin_loss", "target", target)
    return reduced(-logsigmoid(target * input), reduction)


@loss_function
def hinge_embedding_loss(input, target, margin=1.0, *, reduction="mean"):
    """input where the target is 1, and what it lacks to the margin where
    it is -1."""
    need_tensor("hinge_embedding_loss", "target", target)
    need_floats("hinge_embedding_loss", input)
    lacking = (margin - input).clamp(min=0)
    return reduced(where(target != 1, lacking, 0)
                   + where(target != -1, input, 0), reduction)


@loss_function
def margin_ranking_loss(input1, input2, target, margin=0, *,
                        reduction="mean"):
    """What input1 lacks to be above input2 by the margin, where the
    target is 1; below it, where it is -1."""
    need_tensor("margin_ranking_loss", "input2", input2)
    need_tensor("margin_ranking_loss", "target", target)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            f"margin_ranking_loss() takes tensors of as many dimensions; "
            f"got {list(input1.shape)}, {list(input2.shape)} and "
            f"{list(target.shape)}")
    return reduced((margin - target * (input1 - input2)).clamp(min=0),
                   reduction)


@loss_function
def cosine_embedding_loss(input1, input2, target, margin=0, *,
                          reduction="mean"):
    """1 - cosine where the target is 1; the cosine above the margin where
    it is -1."""
    need_tensor("cosine_embedding_loss", "input2", input2)
    need_tensor("cosine_embedding_loss", "target", target)
    if (target.dim(), input1.dim()) not in ((0, 1), (1, 2)) or (
            input2.dim() != input1.dim()):
        raise RuntimeError(
            f"cosine_embedding_loss() takes (N, D), (N, D) and (N,), or "
            f"(D,), (D,) and (); got {list(input1.shape)}, "
            f"{list(input2.shape)} and {list(target.shape)}")
    squares = [(x * x).sum(-1) + 1e-12 for x in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (squares[0] * squares[1]).sqrt()
    far = (cosine - margin).clamp(min=0)
    return reduced(where(target == 1, 1 - cosine, 0)
                   + where(target == -1, far, 0), reduction)


@loss_function
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0,
                        eps=1e-06, swap=False, *, reduction="mean"):
    """What the negative lacks to be further from the anchor than the
    positive, by the margin."""
    need_tensor("triplet_margin_loss", "positive", positive)
    need_tensor("triplet_margin_loss", "negative", negative)
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            f"triplet_margin_loss() takes tensors of as many dimensions; "
            f"got {list(anchor.shape)}, {list(positive.shape)} and "
            f"{list(negative.shape)}")
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss(): margin={margin} is not "
                         f"above 0")
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((margin + near - far).clamp(min=0), reduction)


@function
def pairwise_distance(x1, x2, p=2.0, eps=1e-06, keepdim=False):
    """The p-norm of x1 - x2 over the last dimension."""
    need_tensor("pairwise_distance", "x2", x2)
    return lengths_of(x1 - x2 + eps, p, -1, keepdim)


@float_function
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """The input over its p-norm along dim, which is taken as eps at
    least."""
    return input / lengths_of(input, p, dim, keepdim=True).clamp(min=eps)


@function
def cosine_similarity(x1, x2, dim=1, eps=1e-08):
    """The cosine of the angle between x1 and x2, along dim; lengths are
    taken as eps at least."""
    need_tensor("cosine_similarity", "x2", x2)
    if x2.dtype.category < 2:
        need_floats("cosine_similarity", x1)
    shape = broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = x1.expand(shape), x2.expand(shape)
    found = [x / lengths_of(x, 2, dim, keepdim=True).clamp(min=eps)
             for x in (x1, x2)]
    return (found[0] * found[1]).sum(dim)


def loss_module(name, plain, *given, tensors=()):
    """The module of a loss."""
    return module_of(name, plain, given=given or ("input", "target"),
                     tensors=tensors)


CrossEntropyLoss = loss_module("CrossEntropyLoss", cross_entropy,
                               tensors=("weight",))
NLLLoss = loss_module("NLLLoss", nll_loss, tensors=("weight",))
BCELoss = loss_module("BCELoss", binary_cross_entropy, tensors=("weight",))
BCEWithLogitsLoss = loss_module(
    "BCEWithLogitsLoss", binary_cross_entropy_with_logits,
    tensors=("weight", "pos_weight"))
MSELoss = loss_module("MSELoss", mse_loss, "input", "target", "weight")
L1Loss = loss_module("L1Loss", l1_loss, "input", "target", "weight")
SmoothL1Loss = loss_module("SmoothL1Loss", smooth_l1_loss)
HuberLoss = loss_module("HuberLoss", huber_loss, "input", "target", "weight")
KLDivLoss = loss_module("KLDivLoss", kl_div)
PoissonNLLLoss = loss_module("PoissonNLLLoss", poisson_nll_loss)
GaussianNLLLoss = loss_module("GaussianNLLLoss", gaussian_nll_loss,
                              "input", "target", "var")
SoftMarginLoss = loss_module("SoftMarginLoss", soft_margin_loss)
HingeEmbeddingLoss = loss_module("HingeEmbeddingLoss", hinge_embedding_loss)
MarginRankingLoss = loss_module("MarginRankingLoss", margin_ranking_loss,
                                "input1", "input2", "target")
CosineEmbeddingLoss = loss_module(
    "CosineEmbeddingLoss", cosine_embedding_loss,
    "input1", "input2", "target")
TripletMarginLoss = loss_module("TripletMarginLoss", triplet_margin_loss,
                                "anchor", "positive", "negative")
CosineSimilarity = loss_module("CosineSimilarity", cosine_similarity,
                               "x1", "x2")
PairwiseDistance = loss_module("PairwiseDistance", pairwise_distance,
                               "x1", "x2")


def pair(x, count):
    """One number for each dimension of a window."""
    sizes = (x,) * count if isinstance(x, int) else tuple(x)
    if len(sizes) == 1:
        sizes *= count
    if len(sizes) != count or any(isinstance(n, bool) or not isinstance(
            n, int) for n in sizes):
        raise RuntimeError(f"expected an int, or {count}; got {x!r}")
    return sizes


def count_windows(size, window, stride, dilation, ceil=False):
    """How many windows stand in a row of `size`."""
    if min(window, stride, dilation) < 1:
        raise RuntimeError(f"a window, its stride and its dilation are 1 or "
                           f"more; got {window}, {stride} and {dilation}")
    room = size - dilation * (window - 1) - 1
    return -(-room // stride) + 1 if ceil else room // stride + 1


def windows(x, kernel, stride, dilation, counts):
    """A view (..., *counts, *kernel): all windows of the last dimensions
    of x, `counts` of them in each."""
    x = x.contiguous()
    split = x.dim() - len(kernel)
    steps = x.stride()[split:]
    return x.as_strided(
        (*x.shape[:split], *counts, *kernel),
        (*x.stride()[:split], *[s * n for s, n in zip(steps, stride)],
         *[s * n for s, n in zip(steps, dilation)]),
        x.storage_offset())


@function
def pad(input, pad, mode="constant", value=None):
    """The input with more at the edges of its last dimensions: pad =
    (before, after) of the last, then of the one before it, and so on.
    Negative sizes cut off. mode: constant, reflect, replicate, circular.
    """
    sizes = tuple(pad)
    if len(sizes) % 2 or len(sizes) > 2 * input.dim():
        raise RuntimeError(f"pad() takes two sizes for each of the last "
                           f"dimensions; got {len(sizes)} for an input of "
                           f"shape {list(input.shape)}")
    edges = [(sizes[i], sizes[i + 1]) for i in range(0, len(sizes), 2)]
    if mode == "constant":
        return pad_constant(input, edges, value or 0)
    if mode not in OUTSIDE:
        raise NotImplementedError(f"pad(): there is no mode {mode!r}"
                                  + nearest(str(mode), OUTSIDE))
    if value:
        raise ValueError(f"pad() takes a value in mode 'constant' only; "
                         f"got {value}")
    if mode != "circular":
        refuse_bool(f"pad() in mode {mode!r}", input)
    dims = len(edges)
    if dims > 3 or not dims or input.dim() not in (dims + 1, dims + 2):
        raise NotImplementedError(
            f"pad() in mode {mode!r} pads the last 1 to 3 dimensions of an "
            f"input with one or two more; got {list(input.shape)} and "
            f"{len(sizes)} sizes")
    for i, (before, after) in enumerate(edges):
        input = pad_from_inside(input, -1 - i, before, after, mode)
    return input


def pad_constant(input, edges, value):
    """A larger tensor of `value`, with the input in its middle."""
    shape, here, there = list(input.shape), [], []
    for i, (before, after) in enumerate(edges):
        size = shape[-1 - i]
        shape[-1 - i] = size + before + after
        if shape[-1 - i] < 0:
            raise RuntimeError(f"pad() of {before} and {after} leaves "
                               f"nothing of a dimension of size {size}")
        here.append(slice(max(-before, 0), size - max(-after, 0)))
        there.append(slice(max(before, 0),
                           shape[-1 - i] - max(after, 0)))
    out = full(shape, element(input.dtype, value), dtype=input.dtype,
               device=input.device)
    place = (..., *reversed(there)) if there else ...
    out[place] = input[(..., *reversed(here))] if here else input
    return out


OUTSIDE = {     # where a place outside of a row of n finds its number
    "reflect": lambda i, n: -i if i < 0 else 2 * n - 2 - i if i >= n else i,
    "replicate": lambda i, n: min(max(i, 0), n - 1),
    "circular": lambda i, n: i % n,
}


def pad_from_inside(input, dim, before, after, mode):
    """One dimension longer by numbers that are in it already."""
    if mode == "circular":          # what is cut off does not come again
        size = input.size(dim) + min(before, 0) + min(after, 0)
        input = input.narrow(dim, max(-before, 0), size)
        before, after = max(before, 0), max(after, 0)
    size = input.size(dim)
    limit = {"reflect": size - 1, "circular": size}.get(mode, math.inf)
    if max(before, after) > limit or not size:
        raise RuntimeError(f"pad() in mode {mode!r}: {before} and {after} "
                           f"are more than a dimension of size {size} has "
                           f"to give")
    if size + before + after < 1:
        raise RuntimeError(f"pad() of {before} and {after} leaves nothing "
                           f"of a dimension of size {size}")
    places = [OUTSIDE[mode](i, size) for i in range(-before, size + after)]
    return input.index_select(dim, tensor(places, device=input.device))


def columns_of(name, x, kernel, stride, dilation):
    """(N, C * window, positions), a column for each window of (N, C, ...),
    and how many windows stand along each dimension."""
    counts = [count_windows(*sizes) for sizes in zip(
        x.shape[2:], kernel, stride, dilation)]
    if min(counts) < 1:
        raise RuntimeError(f"{name}(): a window of {list(kernel)} does not "
                           f"fit into {list(x.shape[2:])}, the input and "
                           f"its padding")
    seen = windows(x, kernel, stride, dilation, counts)
    d = len(kernel)
    seen = seen.permute(0, 1, *range(2 + d, 2 + 2 * d), *range(2, 2 + d))
    return seen.reshape(x.shape[0], x.shape[1] * numel(kernel),
                        numel(counts)), counts


def with_batch(name, input, count):
    """(input with a batch, whether it had one), or RuntimeError."""
    if input.dim() == count + 2:
        return input, True
    if input.dim() != count + 1:
        raise RuntimeError(f"{name}() takes {count + 1} or {count + 2} "
                           f"dimensions, the channels and before them a "
                           f"batch; got {list(input.shape)}")
    return input.unsqueeze(0), False


@function
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """(N, C, H, W) as (N, C * window, positions): a column for each
    window."""
    if input.dtype.category == 1:
        need_floats("unfold", input)
    x, batch = with_batch("unfold", input, 2)
    edges = even_edges("unfold", pair(padding, 2))
    out, _ = columns_of("unfold", pad_constant(x, edges[::-1], 0),
                        pair(kernel_size, 2), pair(stride, 2),
                        pair(dilation, 2))
    return out if batch else out.squeeze(0)


def even_edges(name, padding):
    """The same padding on both sides of each dimension."""
    if min(padding) < 0:
        raise RuntimeError(f"{name}(): padding is 0 or more; got "
                           f"{list(padding)}")
    return [(p, p) for p in padding]


def convolve(name, count, input, weight, bias, stride, padding, dilation,
             groups):
    """A convolution over the last `count` dimensions."""
    refuse_bool(name, input)
    x, batch = with_batch(name, input, count)
    check_convolution(name, count, x, weight, bias, groups)
    stride, dilation = pair(stride, count), pair(dilation, count)
    kernel = weight.shape[2:]
    edges = edges_of(name, padding, kernel, stride, dilation)
    x = pad_constant(x, edges[::-1], 0)
    columns, counts = columns_of(name, x, kernel, stride, dilation)
    n, depth = x.shape[0], numel(weight.shape[1:])
    columns = columns.reshape(n, groups, depth, numel(counts))
    kernels = weight.reshape(groups, weight.shape[0] // groups, depth)
    out = (kernels @ columns).reshape(n, weight.shape[0], *counts)
    if bias is not None:
        out = out + bias.reshape(-1, *[1] * count)
    return out if batch else out.squeeze(0)


def edges_of(name, padding, kernel, stride, dilation):
    """What to add before and after each dimension."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"{name}(): padding is a number, 'same' or "
                               f"'valid'; got {padding!r}")
        if padding == "same" and max(stride) > 1:
            raise RuntimeError(f"{name}(): with padding='same' the stride "
                               f"is 1; got {list(stride)}")
        total = [d * (k - 1) if padding == "same" else 0
                 for d, k in zip(dilation, kernel)]
        return [(t // 2, t - t // 2) for t in total]
    return even_edges(name, pair(padding, len(kernel)))


def check_convolution(name, count, x, weight, bias, groups):
    """Refuse weights that do not fit an input (N, C, ...)."""
    need_tensor(name, "weight", weight)
    if weight.dim() != count + 2 or weight.dtype is not x.dtype:
        raise RuntimeError(f"{name}(): the weight is (out, in / groups, and "
                           f"the window's {count} sizes), of the input's "
                           f"{x.dtype}; got {list(weight.shape)} of "
                           f"{weight.dtype}")
    if groups < 1 or weight.shape[0] % groups or (
            x.shape[1] != weight.shape[1] * groups):
        raise RuntimeError(f"{name}(): {x.shape[1]} channels do not fit a "
                           f"weight of shape {list(weight.shape)} with "
                           f"groups={groups}")
    if bias is not None and (bias.shape != weight.shape[:1]
                             or bias.dtype is not x.dtype):
        raise RuntimeError(f"{name}(): a bias for each of the "
                           f"{weight.shape[0]} outputs, of {x.dtype}; got "
                           f"{list(bias.shape)} of {bias.dtype}")


@function
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1,
           groups=1):
    """Windows of (N, C, L), each times the weights (out, C / groups, k).
    """
    return convolve("conv1d", 1, input, weight, bias, stride, padding,
                    dilation, groups)


@function
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1,
           groups=1):
    """Windows of (N, C, H, W), each times the weights
    (out, C / groups, kh, kw)."""
    return convolve("conv2d", 2, input, weight, bias, stride, padding,
                    dilation, groups)


def pool_windows(name, count, input, kernel_size, stride, padding, dilation,
                 ceil_mode, value):
    """(N, C, positions, window), and what else a pool needs to know."""
    refuse_bool(name, input)
    x, batch = with_batch(name, input, count)
    kernel = pair(kernel_size, count)
    stride = pair(kernel if stride in (None, (), []) else stride, count)
    padding, dilation = pair(padding, count), pair(dilation, count)
    if any(2 * p > k or p < 0 for p, k in zip(padding, kernel)):
        raise RuntimeError(f"{name}(): padding is from 0 to half of the "
                           f"window {list(kernel)}; got {list(padding)}")
    counts, edges = [], []
    for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation):
        many = count_windows(n + 2 * p, k, s, d, ceil_mode)
        if ceil_mode and (many - 1) * s >= n + p:
            many -= 1               # the last must begin inside
        counts.append(many)
        edges.append((p, max((many - 1) * s + d * (k - 1) + 1 - n - p, p)))
    if min(counts) < 1 or 0 in x.shape[1:]:
        raise RuntimeError(f"{name}(): a window of {list(kernel)} does not "
                           f"fit into {list(x.shape[2:])}")
    seen = windows(pad_constant(x, edges[::-1], value), kernel, stride,
                   dilation, counts)
    seen = seen.reshape(*x.shape[:2], *counts, numel(kernel))
    return seen, batch, Pool(x.shape[2:], kernel, stride, padding, dilation,
                             counts)


Pool = namedtuple("Pool", "size kernel stride padding dilation counts")


def max_pool(name, count, input, kernel_size, stride, padding, dilation,
             ceil_mode, return_indices):
    seen, batch, plan = pool_windows(
        name, count, input, kernel_size, stride, padding, dilation,
        ceil_mode, lowest(input.dtype))
    found, at = seen.max(-1)
    if not batch:
        found, at = found.squeeze(0), at.squeeze(0)
    if not return_indices:
        return found
    return found, places_in_input(at, plan)


def lowest(dtype):
    """A number that is the largest of none of that dtype's."""
    return -math.inf if dtype.category == 2 else iinfo(dtype).min


def places_in_input(at, plan):
    """Places in a window as places in the flattened input: where the
    window begins, and how far from there."""
    begin, steps = 0, row_major(plan.size).strides
    for d, step in enumerate(steps):
        first = arange(plan.counts[d], device=at.device) * plan.stride[d]
        begin = begin + (first - plan.padding[d]).reshape(
            -1, *[1] * (len(steps) - 1 - d)) * step
    inside = [sum(i * n * s for i, n, s in zip(place, plan.dilation, steps))
              for place in itertools.product(*map(range, plan.kernel))]
    far = tensor(inside, dtype=int64, device=at.device)
    return begin + far.index_select(0, at.reshape(-1)).reshape(at.shape)


@function
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1,
               ceil_mode=False, return_indices=False):
    """The largest number of each window of (N, C, L)."""
    return max_pool("max_pool1d", 1, input, kernel_size, stride, padding,
                    dilation, ceil_mode, return_indices)


@function
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1,
               ceil_mode=False, return_indices=False):
    """The largest number of each window of (N, C, H, W)."""
    return max_pool("max_pool2d", 2, input, kernel_size, stride, padding,
                    dilation, ceil_mode, return_indices)


def avg_pool(name, count, input, kernel_size, stride, padding, ceil_mode,
             count_include_pad, divisor):
    seen, batch, plan = pool_windows(name, count, input, kernel_size,
                                     stride, padding, 1, ceil_mode, 0)
    if divisor is None:
        divisor = 1
        for d in range(count):
            divisor = divisor * tensor(
                covered(plan, d, count_include_pad), dtype=input.dtype,
                device=input.device).reshape(-1, *[1] * (count - 1 - d))
    elif divisor == 0:
        raise RuntimeError(f"{name}(): divisor_override is 0")
    found = (seen.sum(-1) / divisor).to(input.dtype)
    return found if batch else found.squeeze(0)


def covered(plan, d, count_include_pad):
    """How many places each window along dimension d divides by."""
    size, kernel, stride, padding, _, counts = [part[d] if part else 1
                                                for part in plan]
    found = []
    for i in range(counts):
        begin = i * stride - padding
        end = min(begin + kernel, size + padding)
        if not count_include_pad:
            begin, end = max(begin, 0), min(end, size)
        found.append(end - begin)
    return found


@function
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False,
               count_include_pad=True):
    """The mean of each window of (N, C, L)."""
    return avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding,
                    ceil_mode, count_include_pad, None)


@function
def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False,
               count_include_pad=True, divisor_override=None):
    """The mean of each window of (N, C, H, W)."""
    return avg_pool("avg_pool2d", 2, input, kernel_size, stride, padding,
                    ceil_mode, count_include_pad, divisor_override)


def check_pixels(name, input, factor):
    if input.dim() < 3 or factor < 1:
        raise RuntimeError(f"{name}() takes (..., C, H, W) and a factor of 1 "
                           f"or more; got {list(input.shape)} and {factor}")
    return input.shape[:-3], *input.shape[-3:]


@function
def pixel_shuffle(input, upscale_factor):
    """(..., C * r * r, H, W) as (..., C, H * r, W * r)."""
    r = upscale_factor
    batch, c, h, w = check_pixels("pixel_shuffle", input, r)
    if c % (r * r):
        raise RuntimeError(f"pixel_shuffle(): {c} channels are no multiple "
                           f"of {r} * {r}")
    x = input.reshape(*batch, c // (r * r), r, r, h, w)
    d = len(batch)
    order = *range(d), d, d + 3, d + 1, d + 4, d + 2
    return x.permute(order).reshape(*batch, c // (r * r), h * r, w * r)


@function
def pixel_unshuffle(input, downscale_factor):
    """(..., C, H * r, W * r) as (..., C * r * r, H, W)."""
    r = downscale_factor
    batch, c, h, w = check_pixels("pixel_unshuffle", input, r)
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle(): {h} x {w} pixels do not "
                           f"divide by {r}")
    x = input.reshape(*batch, c, h // r, r, w // r, r)
    d = len(batch)
    order = *range(d), d, d + 2, d + 4, d + 1, d + 3
    return x.permute(order).reshape(*batch, c * r * r, h // r, w // r)


@float_function
def scaled_dot_product_attention(query, key, value, attn_mask=None,
                                 dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """softmax(query @ key.T * scale) @ value. attn_mask: bools, False
    where a query may not look, or numbers to add; is_causal: only at what
    came before. A. Vaswani and others, 2017."""
    need_tensor("scaled_dot_product_attention", "key", key)
    need_tensor("scaled_dot_product_attention", "value", value)
    check_attention(query, key, value)
    if is_causal and attn_mask is not None:
        raise RuntimeError("attn_mask and is_causal=True are two masks: "
                           "give one")
    if enable_gqa:
        key, value = (repeat_heads(x, query) for x in (key, value))
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scores = (query * scale) @ key.transpose(-2, -1)
    if is_causal:
        places = [arange(n, device=query.device) for n in scores.shape[-2:]]
        attn_mask = places[0].unsqueeze(1) >= places[1]
    if attn_mask is not None:
        scores = (where(attn_mask, scores, -math.inf)
                  if attn_mask.dtype is bool_ else scores + attn_mask)
        nobody = (scores == -math.inf).all(-1, True)
        scores = where(nobody, 0.0, scores)
    weights = scores.softmax(-1)
    if attn_mask is not None:
        weights = where(nobody, 0.0, weights)
    return dropout(weights, dropout_p) @ value


def check_attention(query, key, value):
    """Refuse what cannot be asked."""
    for x in (query, key, value):
        if x.dim() < 2 or x.dtype is not query.dtype:
            raise RuntimeError(
                f"scaled_dot_product_attention() takes (..., L, E) of one "
                f"dtype; got {list(x.shape)} of {x.dtype}, and a query of "
                f"{query.dtype}")
    if query.shape[-1] != key.shape[-1] or (
            key.shape[-2] != value.shape[-2]):
        raise RuntimeError(
            f"scaled_dot_product_attention(): query (L, E), key (S, E), "
            f"value (S, V); got {list(query.shape)}, {list(key.shape)}, "
            f"{list(value.shape)}")


def repeat_heads(x, query):
    """The heads of keys or values, as often as there are of queries."""
    heads, own = query.shape[-3], x.shape[-3]
    if heads % own:
        raise RuntimeError(f"{heads} heads of queries are no multiple of "
                           f"{own} heads of keys")
    shape = (*x.shape[:-2], heads // own, *x.shape[-2:])
    return x.unsqueeze(-3).expand(shape).reshape(
        *x.shape[:-3], heads, *x.shape[-2:])


class Convolution(Module):
    """What Conv1d and Conv2d share."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1,
                 padding=0, dilation=1, groups=1, bias=True, device=None,
                 dtype=None):
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{in_channels} and {out_channels} channels do "
                             f"not make {groups} equal groups")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = pair(kernel_size, self.count)
        self.stride = pair(stride, self.count)
        self.padding = (padding if isinstance(padding, str)
                        else pair(padding, self.count))
        self.dilation = pair(dilation, self.count)
        self.groups = groups
        self.weight = Parameter(empty(
            out_channels, in_channels // groups, *self.kernel_size,
            dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty(
            out_channels, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias anew."""
        bound = 1 / math.sqrt(max(fans(self.weight)[0], 1))
        for p in self.parameters():
            uniform_(p, -bound, bound)

    def forward(self, input):
        return convolve(f"conv{self.count}d", self.count, input, self.weight,
                        self.bias, self.stride, self.padding, self.dilation,
                        self.groups)

    def extra_repr(self):
        text = (f"{self.in_channels}, {self.out_channels}, "
                f"kernel_size={self.kernel_size}, stride={self.stride}")
        for name, usual in (("padding", (0,) * self.count),
                            ("dilation", (1,) * self.count), ("groups", 1)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text + (", bias=False" if self.bias is None else "")


class Conv1d(Convolution):
    """A convolution over (N, C, L)."""

    count = 1


class Conv2d(Convolution):
    """A convolution over (N, C, H, W)."""

    count = 2


MaxPool1d = module_of("MaxPool1d", max_pool1d, last=("ceil_mode",))
MaxPool2d = module_of("MaxPool2d", max_pool2d, last=("ceil_mode",))
AvgPool1d = module_of("AvgPool1d", avg_pool1d)
AvgPool2d = module_of("AvgPool2d", avg_pool2d)
Unfold = module_of("Unfold", unfold)
PixelShuffle = module_of("PixelShuffle", pixel_shuffle)
PixelUnshuffle = module_of("PixelUnshuffle", pixel_unshuffle)


part_of(functional)(functions["linear"])


def __getattr__(name):
    missing("lamina.nn", list(globals()), name)
