"""NN: modules that know their parameters.

Exported from chapters/09_nn.ipynb by `course export`; edit the chapter, not
this file.
"""

import math
import struct
from collections import namedtuple
from collections.abc import Mapping

from lamina.autograd import is_grad_enabled, no_grad
from lamina.dispatch import array, functions, np
from lamina.matmul import linear
from lamina.reductions import reduced
from lamina.storage import float64, int64, uint8
from lamina.strides import (
    Tensor, empty, method, nearest, refuse_overlap, tensor, write_values,
)

__all__ = [
    "Generator",
    "default_generator",
    "manual_seed",
    "rand",
    "randn",
    "randint",
    "randperm",
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
    if str(x.device) == "cpu":
        values = np.asarray(draw(), x.dtype.name)
        array(x)[...] = values.reshape(x.shape)
        x.storage.version += 1
    elif str(x.device) == "python":
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
    return uniform_(x, generator=generator).requires_grad_(requires_grad)


def randn(*size, generator=None, dtype=None, device=None,
          requires_grad=False):
    """A tensor of numbers from the normal distribution of mean 0 and
    standard deviation 1."""
    x = empty(*size, dtype=dtype, device=device)
    return normal_(x, generator=generator).requires_grad_(requires_grad)


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
        """(name, module) of the modules set in this one."""
        return ((name, module) for name, module in self._modules.items()
                if module is not None)

    def named_modules(self, prefix="", seen=None):
        """(path, module) of this one and of all below it, each once."""
        seen = set() if seen is None else seen
        if self not in seen:
            seen.add(self)
            yield prefix, self
            for name, module in self.named_children():
                yield from module.named_modules(joined(prefix, name), seen)

    def named_parameters(self, prefix="", recurse=True):
        """(path, parameter), each parameter once, even if shared."""
        return members(self, "_parameters", prefix, recurse)

    def named_buffers(self, prefix="", recurse=True):
        """(path, buffer), each buffer once."""
        return members(self, "_buffers", prefix, recurse)

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


def members(module, kind, prefix, recurse):
    """What stands in one table of a module, and of those below it."""
    seen = set()
    found = module.named_modules(prefix) if recurse else [(prefix, module)]
    for path, owner in found:
        for name, x in getattr(owner, kind).items():
            if x is not None and id(x) not in seen:
                seen.add(id(x))
                yield joined(path, name), x


Keys = namedtuple("IncompatibleKeys", "missing_keys unexpected_keys")


class Stateful(Tree):
    """A tree whose tensors can be taken out and put back by path."""

    def state_dict(self, prefix=""):
        """{path: tensor} of all parameters and buffers, sharing memory.
        A tensor that two modules share stands under both paths."""
        state = {}
        for kind in ("_parameters", "_buffers"):
            for name, x in getattr(self, kind).items():
                if x is not None:
                    state[joined(prefix, name)] = x.detach()
        for name, module in self.named_children():
            state.update(module.state_dict(joined(prefix, name)))
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

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def forward(self, *args, **kwargs):
        """What the module computes."""
        raise NotImplementedError(f"module {type(self).__name__} has no "
                                  f"forward(): define what it computes")

    def train(self, mode=True):
        """Set this module and all below it to training, or with False to
        evaluation; the module is returned."""
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

    def register_parameter(self, name, param):
        """Register a parameter; None keeps the place of one."""
        register(self, "_parameters", Parameter, name, param)

    def register_buffer(self, name, tensor):
        """Register a tensor that is state and is not learned."""
        register(self, "_buffers", Tensor, name, tensor)

    def add_module(self, name, module):
        """Register a child."""
        register(self, "_modules", Module, name, module)

    def extra_repr(self):
        """What the module's own line says in brackets."""
        return ""

    def __repr__(self):
        lines = [self.extra_repr()] if self.extra_repr() else []
        for name, module in self._modules.items():
            lines += f"({name}): {module!r}".split("\n")
        if not self._modules:
            return f"{type(self).__name__}({''.join(lines)})"
        return "\n".join([f"{type(self).__name__}(",
                          *("  " + line for line in lines), ")"])


def clear_grad(p, set_to_none):
    """Forget one gradient; or keep its memory, filled with zeros."""
    if set_to_none or p.grad is None:
        p.grad = None
    else:
        p.grad = p.grad.detach().zero_()


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


class ReLU(Module):
    """Each element, or 0 where it is negative."""

    def forward(self, input):
        return input.relu()


class Tanh(Module):
    """The hyperbolic tangent of each element."""

    def forward(self, input):
        return input.tanh()


class Flatten(Module):
    """Join the dimensions from start_dim to end_dim into one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Sequential(Module):
    """Modules in a row: each takes what the one before it gives.

    Takes modules, or one dict of them by name.
    """

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            named = args[0].items()
        else:
            named = ((str(i), module) for i, module in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input):
        for module in self:
            input = module(input)
        return input

    def append(self, module):
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, index):
        found = list(self._modules.items())
        if isinstance(index, slice):
            return type(self)(dict(found[index]))
        if not -len(found) <= index < len(found):
            raise IndexError(f"module {index} of a Sequential of "
                             f"{len(found)}")
        return found[index][1]


where = functions["where"]


def nll_loss(input, target, reduction="mean", ignore_index=-100):
    """Minus the log-probability of the right class.

    input: (N, C) log-probabilities; target: (N,), the classes as int64.
    Rows whose target is ignore_index are left out of the sum and the mean.
    """
    target, left_out = check_classes(input, target, ignore_index)
    losses = -input.gather(1, target.unsqueeze(1)).squeeze(1)
    if left_out is None:
        return reduced(losses, reduction)
    losses = where(left_out, 0.0, losses)
    if reduction == "mean":
        return losses.sum() / (1 - left_out.long()).sum()
    return reduced(losses, reduction)


def cross_entropy(input, target, reduction="mean", ignore_index=-100):
    """Minus the logarithm of the probability that softmax gives to the
    right class: log_softmax, then nll_loss.

    input: (N, C) logits; target: (N,), the classes as int64. IndexError
    for a class that is not there. Rows whose target is ignore_index are
    left out of the sum and the mean.
    """
    check_classes(input, target, ignore_index)
    return nll_loss(input.log_softmax(1), target, reduction, ignore_index)


def check_classes(input, target, ignore_index=-100):
    """Refuse logits and targets that do not fit each other.

    The result: the targets, 0 for the rows to leave out, and which rows
    those are, or None if there are none.
    """
    for name, x in ("input", input), ("target", target):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a Tensor; got "
                            f"{type(x).__name__}")
    shapes = f"got {list(input.shape)} and {list(target.shape)}"
    if input.ndim != 2 or target.ndim != 1:
        raise ValueError(f"expected logits of shape (N, C) and targets of "
                         f"shape (N,), the class of each row; {shapes}")
    if input.shape[0] != target.shape[0]:
        raise ValueError(f"expected one target for each row of logits; "
                         f"{shapes}")
    if target.dtype is not int64:
        raise RuntimeError(f"targets are classes, of dtype int64; got "
                           f"{target.dtype}: use target.long()")
    left_out = None
    if target.numel() and str(target.device) != "meta":
        ignored = target == ignore_index
        if ignored.any().item():
            left_out, target = ignored, where(ignored, 0, target)
        for found in (target.amin().item(), target.amax().item()):
            if not 0 <= found < input.shape[1]:
                raise IndexError(f"target {found} is out of range: there are "
                                 f"{input.shape[1]} classes, from 0 to "
                                 f"{input.shape[1] - 1}")
    return target, left_out


class CrossEntropyLoss(Module):
    """cross_entropy as a module."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, input, target):
        return cross_entropy(input, target, self.reduction)


class MSELoss(Module):
    """The mean of the squared differences, as a module."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, input, target):
        return functions["mse_loss"](input, target, self.reduction)
