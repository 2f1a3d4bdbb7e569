"""Broadcasting: one rule for every elementwise operator.

Exported from chapters/04_broadcasting.ipynb by `course export`; edit the
chapter, not this file.
"""

import contextvars
import functools
import itertools
import math
import operator
import re
from typing import NamedTuple

import lamina.strides as strides
from lamina.dispatch import (
    CPU, SparseTensor, array, build_call, cpu_copy_, cpu_to_copy, define,
    from_array, from_outside, functions, impl, kernel_of, lookup, new_tensor,
    np, numpy_dtypes, on_entries, operators, own, prepare_out, sparse_coo,
)
from lamina.storage import (
    Storage, bool_, dtypes, finfo, float32, float64, get_default_dtype, int64,
    uint8, wrap,
)
from lamina.strides import (
    Geometry, Tensor, dense, element, empty, flat, full, is_row_major,
    number_dtype, numel, row_major, write_values,
)

__all__ = [
    "broadcast_shapes",
    "promote_types",
    "result_type",
    "elementwise",
    "TensorIterator",
]


def broadcast_shapes(*shapes):
    """The shape that all of these expand to.

    Sizes are matched from the last dimension backwards; where they
    differ, one of them must be 1. RuntimeError where they do not fit.
    """
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            if result[-i] == 1:
                result[-i] = shape[-i]
            elif shape[-i] not in (1, result[-i]):
                raise RuntimeError(
                    f"shapes {' and '.join(str(list(s)) for s in shapes)} do "
                    f"not broadcast: at dimension {ndim - i} sizes "
                    f"{result[-i]} and {shape[-i]} differ and neither is 1")
    return tuple(result)


def loop_order(shape, strides):
    """The dimensions in the order of the loops, the innermost first.

    `strides` has one tuple for each operand. This is the insertion sort
    of reorder_dimensions, in PyTorch's aten/src/ATen/TensorIterator.cpp.
    """
    order = []
    for d in reversed(range(len(shape))):
        order.append(d)
        at = len(order) - 1
        for k in reversed(range(at)):
            verdict = compare(order[k], order[at], shape, strides)
            if verdict > 0:
                order[k], order[at] = order[at], order[k]
                at = k
            elif verdict < 0:
                break
    return order


def compare(a, b, shape, strides):
    """1 if dimension a belongs outside of b, -1 if inside, 0 if no operand
    can tell."""
    for steps in strides:
        if 0 in (steps[a], steps[b]):
            continue
        if steps[a] != steps[b]:
            return 1 if steps[a] > steps[b] else -1
        if shape[a] > shape[b]:
            return 1
    return 0


class Loop(NamedTuple):
    """One loop of a walk: the dimensions that it goes through, how many
    steps it has, and each operand's step in elements."""

    dims: tuple
    size: int
    steps: tuple


def coalesce(loops):
    """Join neighbouring loops that are one in every operand's memory.

    The innermost loop comes first. A loop of one step joins any other.
    """
    joined = loops[:1]
    for outer in loops[1:]:
        inner = joined[-1]
        if 1 in (inner.size, outer.size) or all(
                inner.size * a == b
                for a, b in zip(inner.steps, outer.steps)):
            joined[-1] = Loop(outer.dims + inner.dims,
                              inner.size * outer.size,
                              (outer if inner.size == 1 else inner).steps)
        else:
            joined.append(outer)
    return joined


class TensorIterator:
    """A walk over several operands that broadcast, each a Geometry.

    `loops` are as few as can be, innermost first. `runs()` goes through
    the outer loops, and gives for each operand the places that the inner
    loop visits. Iterating gives a tuple of places for each element.
    PyTorch's class of the same name also makes the plan of the call.
    """

    def __init__(self, *operands):
        self.shape = broadcast_shapes(*[x.shape for x in operands])
        views = [strides.expand(x, self.shape) for x in operands]
        self.starts = tuple([view.offset for view in views])
        steps = [view.strides for view in views]
        self.loops = coalesce([
            Loop((d,), self.shape[d], tuple([s[d] for s in steps]))
            for d in loop_order(self.shape, steps)])

    def runs(self):
        inner, *outer = self.loops or [Loop((), 1, (0,) * len(self.starts))]
        starts = [self.starts]
        for loop in reversed(outer):
            starts = [tuple([place + i * step for place, step
                             in zip(places, loop.steps)])
                      for places in starts for i in range(loop.size)]
        for places in starts:
            yield [range(place, place + inner.size * step, step) if step
                   else [place] * inner.size
                   for place, step in zip(places, inner.steps)]

    def __iter__(self):
        for run in self.runs():
            yield from zip(*run)


@functools.lru_cache(4096)
def result_geometry(*operands):
    """Where a new result of these operands lies: without gaps, in the order
    of the loops. The same few geometries meet again and again."""
    shape = broadcast_shapes(*[x.shape for x in operands])
    first = operands[0]
    if all(x.shape == shape for x in operands):
        if all(map(is_row_major, operands)):
            return row_major(shape)
        if dense(first).strides == first.strides and all(
                x.strides == first.strides for x in operands):
            return first._replace(offset=0)
    views = [strides.expand(x, shape).strides for x in operands]
    step, found = 1, [0] * len(shape)
    for d in loop_order(shape, views):
        found[d] = step
        step *= max(shape[d], 1)
    usual = row_major(shape)
    return (usual if usual.strides == tuple(found)
            else Geometry(shape, tuple(found), 0))


SHORT = dict(zip("bool u8 i8 i16 i32 i64 f16 bf16 f32 f64".split(),
                 dtypes.values()))
PROMOTION = """
        bool u8   i8   i16  i32  i64  f16  bf16 f32  f64
   bool bool u8   i8   i16  i32  i64  f16  bf16 f32  f64
   u8   u8   u8   i16  i16  i32  i64  f16  bf16 f32  f64
   i8   i8   i16  i8   i16  i32  i64  f16  bf16 f32  f64
   i16  i16  i16  i16  i16  i32  i64  f16  bf16 f32  f64
   i32  i32  i32  i32  i32  i32  i64  f16  bf16 f32  f64
   i64  i64  i64  i64  i64  i64  i64  f16  bf16 f32  f64
   f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64
   bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64
   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""


def read_table(text):
    """{(row, column): entry} of a table of short names of dtypes."""
    columns, *rows = [line.split() for line in text.strip().splitlines()]
    return {(SHORT[row[0]], SHORT[column]): SHORT[entry]
            for row in rows for column, entry in zip(columns, row[1:])}


promotions = read_table(PROMOTION)


def promote_types(type1, type2):
    """The smallest dtype that both fit into, by the table."""
    return promotions[type1, type2]


def rank_of(x):
    """How much an operand counts, 0 most, and its dtype."""
    if isinstance(x, Tensor):
        return (0 if x.geometry.shape else 1), x.dtype
    return 2, number_dtype(x)


@functools.lru_cache(4096)
def meet(*ranked):
    """The dtype in which operands of these ranks and dtypes meet."""
    result = None
    for rank in range(3):
        found = [dtype for r, dtype in ranked if r == rank]
        widest = functools.reduce(promote_types, found) if found else None
        if result is None:
            result = widest
        elif widest and widest.category > result.category:
            result = promotions[result, widest]
    return result


def result_type(*operands):
    """The dtype in which tensors and numbers meet.

    Tensors with dimensions decide; a tensor without, and after it a Python
    number, count only if they are of a higher kind (bool, integer, float)
    than what has been decided.
    """
    return meet(*map(rank_of, operands))


def opmath(dtype):
    """The dtype to compute in: float32 for the half precisions."""
    half = dtype.category == 2 and dtype.itemsize < 4
    return float32 if half else dtype


def as_float(dtype):
    """The dtype itself if it is a float, else the default one."""
    return dtype if dtype.category == 2 else get_default_dtype()


def as_number(dtype):
    """The dtype itself if it can count, int64 for bool."""
    return dtype if dtype.category else int64


RULES = {       # where the inputs meet -> (compute in, result)
    "same": lambda met: (opmath(met), met),
    # of the first input alone: planner leaves the others out
    "first": lambda met: (opmath(met), met),
    "float": lambda met: (opmath(as_float(met)), as_float(met)),
    "number": lambda met: (opmath(as_number(met)), as_number(met)),
    "bool": lambda met: (opmath(met), bool_),
}


class Plan(NamedTuple):
    """What is settled before the first element is computed.

    `inputs` are pairs of a tensor or number and the dtype to read it in.
    """

    inputs: list
    alpha: object
    parameters: list
    geometry: Geometry
    compute: object
    dtype: object


POINT = Geometry((), ())        # where a Python number lies


def count_inputs(schema):
    """How many arguments are tensors, or numbers in their place."""
    return sum(a.type.startswith("Tensor") for a in schema.arguments)


def parameter_reader(schema):
    """The function that reads the parameters: alpha, and the others."""
    kinds = [a.type for a in schema.arguments[count_inputs(schema):]]
    scales = any(a.name == "alpha" for a in schema.arguments)

    def read(given, compute, met):
        if not scales:
            return 1, [wrap(compute, p) if kind == "Scalar" else p
                       for p, kind in zip(given, kinds)]
        alpha = given[0] if given else 1
        if type(alpha) is int and alpha == 1:
            return 1, []
        check_alpha(schema.name, alpha, met)
        return wrap(compute, alpha), []
    return read


def check_alpha(name, alpha, met):
    """alpha is a number of the tensors' kind, or of a lower one."""
    kind = number_dtype(alpha)
    if kind.category > max(met.category, 1) or (
            kind is bool_ is not met):
        raise RuntimeError(f"{name}(): alpha is {alpha}, and the tensors "
                           f"meet in {met}: give an alpha of that kind")


def planner(schema, rule="same", refuse=(), mask=None, check=None):
    """The function that plans a call, from the kernel's arguments.

    `check(inputs, met, parameters)` may refuse what the dtypes alone do
    not tell, or give other parameters.
    """
    name, count = schema.name, count_inputs(schema)
    read_parameters = parameter_reader(schema)

    def plan(args):
        inputs = args[:count]
        counted = [rank_of(x) for i, x in enumerate(inputs)
                   if i != mask and x is not None]
        met = meet(*counted[:1] if rule == "first" else counted)
        if met.name in refuse:
            raise NotImplementedError(
                f"{name}() has no meaning for {met.name} tensors; convert "
                f"them with .to(...)")
        compute, dtype = RULES[rule](met)
        read_in = [compute] * count
        if mask is not None:
            check_mask(name, schema.arguments[mask].name, inputs[mask])
            read_in[mask] = bool_
        alpha, parameters = read_parameters(args[count:], compute, met)
        if check:
            parameters = check(inputs, met, parameters) or parameters
        geometry = result_geometry(*[
            x.geometry if isinstance(x, Tensor) else POINT for x in inputs])
        return Plan(list(zip(inputs, read_in)), alpha, parameters, geometry,
                    compute, dtype)
    return plan


def check_mask(name, argument, mask):
    """A mask is a bool tensor; uint8 did its work before there were any."""
    if mask.dtype not in ((bool_, uint8) if name == "where" else (bool_,)):
        raise RuntimeError(f"{name}(): the {argument} must be a bool tensor, "
                           f"as x > 0 is; got {mask.dtype}")


def operand_of(x, dtype):
    """Where the kernel for `python` finds an input: its geometry, and a
    memory that is read as `dtype`."""
    if not isinstance(x, Tensor):
        return POINT, [x if x is None else wrap(dtype, x)]
    if x.dtype is not dtype:
        x = strides.copy_(strides.empty_like(x, dtype=dtype), x)
    return x.geometry, x.storage.elements(dtype)


def stepwise(function):
    """Mark a function of numbers that rounds in between: it takes, before
    them, the dtype that the steps are rounded to."""
    function.stepwise = True
    return function


def applied(function, plan):
    """The function of an element's numbers and of nothing else."""
    compute, alpha = plan.compute, plan.alpha
    if getattr(function, "stepwise", False):
        function = functools.partial(function, compute)
    if alpha != 1:
        return lambda a, b: function(a, wrap(compute, alpha * b))
    if plan.parameters:
        return lambda *numbers: function(*numbers, *plan.parameters)
    return function


def new_result(plan, device):
    """The tensor that the plan describes."""
    size = numel(plan.geometry.shape) * plan.dtype.itemsize
    return Tensor(Storage(size, device), plan.geometry, plan.dtype)


def python_kernel(function, planned):
    """A kernel that calls `function` on the numbers of each element."""
    def kernel(*args, out=None):
        plan = planned(args)
        call = applied(function, plan)
        places, memories = zip(*[operand_of(*x) for x in plan.inputs])
        if out is None:
            out = new_result(plan, "python")
        else:
            prepare_out(out, plan.geometry, plan.dtype, args)
        walk, values = TensorIterator(out.geometry, *places), []
        for _, *runs in walk.runs():
            values += map(call, *[[memory[i] for i in run]
                                  for memory, run in zip(memories, runs)])
        values, memory = iter(values), out.storage.elements(out.dtype)
        for run, *_ in walk.runs():
            for place, value in zip(run, values):
                memory[place] = wrap(out.dtype, value)
        out.storage.version += 1
        return out
    return kernel


def meta_kernel(planned):
    """A kernel that answers with the result's shape and dtype alone."""
    def kernel(*args, out=None):
        plan = planned(args)
        if out is None:
            return new_result(plan, "meta")
        return prepare_out(out, plan.geometry, plan.dtype, args)
    return kernel


quiet_context = contextvars.Context()
run_quiet = quiet_context.run
if np:
    run_quiet(np.seterr, all="ignore")


def quiet(function, *args):
    """Call a NumPy function whose 1/0 is inf and whose 0/0 is nan, unsaid.

    A context holds one call at a time. If another thread is inside it,
    RuntimeError says so, and NumPy's slower way does the same.
    """
    try:
        return run_quiet(function, *args)
    except RuntimeError:
        with np.errstate(all="ignore"):
            return function(*args)


def operand(x, dtype):
    """An input as NumPy takes it: an array of that dtype."""
    if isinstance(x, Tensor):
        return array(x if x.dtype is dtype else cpu_to_copy(x, dtype))
    if x is not None:
        x = np.array(wrap(dtype, x), numpy_dtypes[dtype])
    return x


def general_kernel(function, planned):
    """A kernel that calls a NumPy function on whole arrays. The function
    gives a new array."""
    direct = isinstance(function, np.ufunc)

    def kernel(*args, out=None):
        plan = planned(args)
        dtype, geometry = plan.dtype, plan.geometry
        arrays = [operand(*x) for x in plan.inputs]
        if plan.alpha != 1:
            arrays[1] = quiet(np.multiply, arrays[1], plan.alpha)
        if out is not None:
            prepare_out(out, geometry, dtype, args)
        elif (geometry is not row_major(geometry.shape)
              or opmath(dtype) is not dtype):
            out = new_result(plan, "cpu")
        if direct and out is not None and dtype.category and (
                out.dtype is dtype is plan.compute):
            quiet(functools.partial(function, out=array(out)), *arrays)
            return out
        found = quiet(function, *arrays, *plan.parameters)
        if out is not None:
            return cpu_copy_(out, from_array(found))
        return from_array(np.asarray(found, numpy_dtypes[dtype], order="C"))
    return kernel


def result_dtypes(rule, refuse):
    """{dtype: result's dtype} where inputs of one dtype are computed as
    they are. bool is left out: some NumPy functions make integers of it."""
    return {d: RULES[rule](d)[1] for d in dtypes.values() if d.category
            and RULES[rule](d)[0] is d and d.name not in refuse}


def unary_kernel(function, plan, results):
    """The kernel of one input: the short way, or the general one."""
    general = general_kernel(function, plan)
    keeps_order = isinstance(function, np.ufunc)

    def kernel(self, out=None):
        if out is None and self.dtype in results:
            a = array(self) if self.array is None else self.array
            if keeps_order or a.flags.c_contiguous:
                try:
                    return own(run_quiet(function, a), results[self.dtype])
                except RuntimeError:    # another thread is in the context
                    pass
        return general(self, out=out)
    return kernel


def short_write(function, results):
    """A function that tries the in-place form of a kernel of two inputs;
    it gives whether it was done."""
    def write(self, other, alpha):
        try:
            dtype, a = self.dtype, array(self)
            if (results[dtype] is not dtype or dtype.category != 2
                    or not a.flags.c_contiguous):
                return False
            if type(alpha) is bool:
                return False
            if isinstance(other, Tensor):
                if other.dtype is not dtype:
                    return False
                other = array(other)
                if alpha != 1:
                    other = run_quiet(np.multiply, other, alpha)
            elif type(other) in (float, int):
                other *= alpha
            else:
                return False
            run_quiet(function, a, other, out=a)
            return True
        except (AttributeError, KeyError, RuntimeError, ValueError,
                OverflowError):
            return False                # the general kernel says why

    return write if isinstance(function, np.ufunc) else (
        lambda *args: False)


ONE = 1                 # the schemas' alpha, as long as nobody gives one


def scaled(self, other, alpha):
    """other * alpha, if all are floats of one kind; else None."""
    if (isinstance(self, Tensor) and isinstance(other, Tensor)
            and self.dtype is other.dtype and self.dtype.category == 2
            and type(alpha) is float):      # an int may be too large for one
        a = array(other)
        if a.flags.c_contiguous:
            return own(quiet(np.multiply, a, alpha), self.dtype)


def binary_kernel(function, plan, results):
    """The kernel of two inputs: the short way, or the general one."""
    general, ndarray = general_kernel(function, plan), np.ndarray
    write = short_write(function, results)

    def kernel(self, other, alpha=1, out=None):
        if out is not None:
            if out is not self or not write(self, other, alpha):
                return general(self, other, alpha, out=out)
            return self
        if alpha is not ONE:
            product = scaled(self, other, alpha)
            return (general(self, other, alpha) if product is None
                    else kernel(self, product))
        try:
            dtype, a = self.dtype, self.array
            result = results[dtype]
            a = array(self) if a is None else a
            if isinstance(other, Tensor):
                short, b = dtype is other.dtype, other.array
                b = array(other) if b is None else b
                if a.ndim > 1 and short:
                    short = (a.flags.c_contiguous and b.flags.c_contiguous
                             or a.strides == b.strides)
            else:       # NumPy gives a float or an int the array's dtype
                short, b = (dtype.category == 2
                            and type(other) in (float, int)), other
            if short:
                found = run_quiet(function, a, b)
                if type(found) is not ndarray:
                    return from_array(found)
                x = new_tensor(Tensor)              # own(), without a call
                x.dtype = result
                x.keys = CPU
                x.array = found
                x._storage = x._geometry = x._base = x.autograd = None
                return x
        except (AttributeError, KeyError, RuntimeError, ValueError,
                OverflowError):
            pass                        # the general kernel says why
        return general(self, other)
    return kernel


def cpu_kernel(function, plan, count, results):
    """The kernel for `count` inputs."""
    if count == 1:
        return unary_kernel(function, plan, results)
    if count == 2:
        return binary_kernel(function, plan, results)
    return general_kernel(function, plan)


def short(function):
    """Mark a function of two arrays that may take the short way: it gives
    the right dtype, also for a float array and a Python number."""
    function.short = True
    return function


def elementwise(schema, doc, python, numpy, rule="same", refuse=(), *,
                numbers=("other",), inplace=True, mask=None, check=None):
    """Declare an operator that works on each element by itself.

    `python` is a function of numbers, `numpy` one of arrays (None without
    NumPy). The rule says what dtype comes out: the `same` as the inputs
    meet in, that of the `first`, a `float` one, a `number`, or `bool`.
    `refuse` names dtypes that it has no meaning for, `numbers` the inputs
    that may be Python numbers; for `mask` and `check` see planner.
    """
    op = define(schema, doc, numbers=numbers, inplace=inplace)
    name, count = op.schema.full_name, count_inputs(op.schema)
    plain = len(op.schema.arguments) == count or "alpha" in str(op.schema)
    plan = planner(op.schema, rule, refuse, mask, check)
    impl(name, "python")(python_kernel(python, plan))
    impl(name, "meta")(meta_kernel(plan))
    if np:
        plain = plain and (count == 1 or (isinstance(numpy, np.ufunc)
                                         or hasattr(numpy, "short")))
        impl(name, "cpu")(cpu_kernel(numpy, plan, count if plain else 0,
                                     result_dtypes(rule, refuse)))
    return op


def check_sub(inputs, met, parameters):
    if bool_ in [x.dtype if isinstance(x, Tensor) else number_dtype(x)
                 for x in inputs]:
        raise RuntimeError("sub() has no meaning for bools: -1 is none; use "
                           "logical_xor, or convert with .to(...)")


elementwise(
    "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "self + alpha * other.", operator.add, np and np.add, numbers=True)
elementwise(
    "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "self - alpha * other.", operator.sub, np and np.subtract,
    numbers=True, check=check_sub)
elementwise("mul.Tensor(Tensor self, Tensor other) -> Tensor",
            "self * other.", operator.mul, np and np.multiply, numbers=True)


inf, nan = math.inf, math.nan


def ieee(function, poles=None):
    """A function of one float, with answers where Python raises."""
    poles = poles or {}

    @functools.wraps(function)
    def answer(a):
        try:
            return function(a)
        except OverflowError:
            return math.copysign(inf, a)
        except ValueError:
            return poles.get(a, nan)
    return answer


ieee_exp = ieee(math.exp)
ieee_log = ieee(math.log, {0.0: -inf})
ieee_sqrt = ieee(math.sqrt)


def ieee_div(a, b):
    """a / b as the hardware divides floats: 1/0 is inf, 0/0 is nan."""
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0 or a != a:
            return nan
        return math.copysign(inf, a) * math.copysign(1, b)


elementwise("div.Tensor(Tensor self, Tensor other) -> Tensor",
            "self / other; integers give floats.", ieee_div,
            np and np.divide, rule="float", numbers=True)


def refuse_zero(b):
    raise RuntimeError("an integer division by zero has no result; floats "
                       "have inf and nan: convert with .to(...)")


def div_floor(a, b):
    """The quotient rounded down, from the exact remainder."""
    if isinstance(a, int):
        return a // b if b else refuse_zero(b)
    if b == 0:
        return ieee_div(a, b)
    rest = c_remainder(a, b)
    quotient = ieee_div(a - rest, b)
    if rest != 0 and (b < 0) != (rest < 0):
        quotient -= 1
    if quotient == 0:
        return math.copysign(0.0, a / b)
    return whole(round)(quotient)


@stepwise
def div_trunc(dtype, a, b):
    """The quotient rounded towards zero."""
    if isinstance(a, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if (
            b) else refuse_zero(b)
    return whole(math.trunc)(wrap(dtype, ieee_div(a, b)))


def whole(function):
    """A rounding that keeps inf, nan, integers and the sign of zero."""
    def answer(a):
        if isinstance(a, int) or not math.isfinite(a):
            return a
        return math.copysign(function(a), a)
    return answer


def c_remainder(a, b):
    """What is left of a; it has the sign of a."""
    if isinstance(a, int):
        return int(math.copysign(1, a)) * (abs(a) % abs(b)) if (
            b) else refuse_zero(b)
    try:
        return math.fmod(a, b)
    except ValueError:                  # by zero, or of infinity
        return nan


def python_remainder(a, b):
    """What is left of a; it has the sign of b."""
    rest = c_remainder(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


def whole_division(function):
    """A NumPy function that refuses integers divided by zero."""
    @short
    def checked(a, b):
        if a.dtype.kind in "iu" and not np.all(b) and np.broadcast(a, b).size:
            refuse_zero(b)
        return function(a, b)
    return checked


def numpy_trunc_div(a, b):
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    down = a // b
    return down + ((down < 0) & (down * b != a)).astype(a.dtype)


def numpy_remainder(a, b):
    if a.dtype.kind != "f":
        return np.remainder(a, b)
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


BOOL = ("bool",)
DIVISIONS = {
    None: (ieee_div, np and np.divide),
    "trunc": (div_trunc, np and whole_division(numpy_trunc_div)),
    "floor": (div_floor, np and whole_division(np.floor_divide))}

elementwise("floor_divide(Tensor self, Tensor other) -> Tensor",
            "self / other, rounded down.", *DIVISIONS["floor"],
            refuse=BOOL, numbers=True)
elementwise("fmod.Tensor(Tensor self, Tensor other) -> Tensor",
            "What trunc leaves: it has the sign of self.", c_remainder,
            np and whole_division(np.fmod), refuse=BOOL)
elementwise("remainder.Tensor(Tensor self, Tensor other) -> Tensor",
            "What floor leaves: it has the sign of other.",
            python_remainder, np and whole_division(numpy_remainder),
            refuse=BOOL, numbers=True)


define("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) "
       "-> Tensor",
       "self / other; rounding_mode is None, 'trunc' or 'floor'.",
       numbers=True, inplace=True)


def by_mode(make):
    """A kernel that chooses among those of the three divisions."""
    schema = operators["div.Tensor"].schema
    kernels = {None: make(DIVISIONS[None], planner(schema, "float"))}
    for mode in ("trunc", "floor"):
        kernels[mode] = make(DIVISIONS[mode],
                             planner(schema, refuse=BOOL))

    def kernel(self, other, rounding_mode, out=None):
        if rounding_mode not in kernels:
            raise RuntimeError(f"div(): rounding_mode must be None, 'trunc' "
                               f"or 'floor'; got {rounding_mode!r}")
        return kernels[rounding_mode](self, other, out=out)
    return kernel


for device, make in {
        "python": lambda pair, plan: python_kernel(pair[0], plan),
        "meta": lambda pair, plan: meta_kernel(plan),
        "cpu": lambda pair, plan: general_kernel(pair[1], plan)}.items():
    if np or device != "cpu":
        impl("div.Tensor_mode", device)(by_mode(make))


def ieee_pow(a, b, root=False):
    """a ** b: floats as the hardware's pow, integers exactly, of which the
    last 64 bits are kept."""
    if root:
        return ieee_sqrt(a)
    if isinstance(a, int):
        if b < 0:                       # the whole part of 1 / a ** -b
            return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        return pow(a, b, 1 << 64)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -inf if a < 0 and b % 2 == 1 else inf
    except ValueError:
        if a != 0:
            return nan                  # a root of a negative number
        return math.copysign(inf, a) if b % 2 == 1 else inf


@short
def numpy_pow(a, b, root=False):
    if root:
        return np.sqrt(a)
    if not isinstance(b, np.ndarray):
        return np.power(a, b)
    if a.dtype.kind == "f" and b.size == 1 and np.all(b == 0.5):
        # NumPy takes the root for any single 0.5, also at -inf and -0.0
        return np.where(a == -inf, inf, np.abs(np.sqrt(a))) + 0 * b
    if a.dtype.kind != "i" or not np.any(np.less(b, 0)):
        return np.power(a, b)
    unit = np.where(np.abs(a) == 1, a ** (b % 2), 0)
    found = np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))
    return found.astype(a.dtype)


def check_pow(inputs, met, parameters):
    """An exponent that is a number must suit the integers, and bools have
    no powers but those that change nothing."""
    exponent = inputs[1]
    if isinstance(exponent, Tensor):
        if met is bool_:
            raise NotImplementedError("pow() has no meaning for bools")
    elif met.category == 1:
        if exponent < 0:
            raise RuntimeError(
                f"pow(): integers to the power of {exponent} are fractions; "
                f"make the tensor a float: x.to(lamina.float32)")
        element(met, exponent)
    # a number 0.5 means the square root, which differs at -inf, -0.0
    return [not isinstance(exponent, Tensor) and exponent == 0.5]


elementwise("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
            "self to the power of exponent.", ieee_pow, numpy_pow,
            numbers=True, check=check_pow)


define("float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
       "pow in float64.", numbers=True, composite=lambda self, exponent:
       functions["pow"](as_double(self), as_double(exponent)))
define("float_power_.Tensor(Tensor(a!) self, Tensor exponent) -> "
       "Tensor(a!)", "pow in float64, in place.", numbers=["exponent"],
       composite=lambda self, exponent: in_double(self).pow_(exponent))


def as_double(x):
    return x.to(float64) if isinstance(x, Tensor) else float(x)


def in_double(x):
    if x.dtype is not float64:
        raise RuntimeError(f"float_power_(): the result is a float64, which "
                           f"a tensor of {x.dtype} is not")
    return x


POLES = {"log": {0.0: -inf}, "log2": {0.0: -inf}, "log10": {0.0: -inf},
         "log1p": {-1.0: -inf}, "atanh": {1.0: inf, -1.0: -inf}}
FLOATS = """
    exp    exp      e to the power of self.
    exp2   exp2     2 to the power of self.
    expm1  expm1    exp(self) - 1, exact near 0.
    log    log      The natural logarithm: -inf at 0, nan below.
    log2   log2     The logarithm to the base 2.
    log10  log10    The logarithm to the base 10.
    log1p  log1p    log(1 + self), exact near 0.
    sqrt   sqrt     The square root: nan below 0.
    sin    sin      The sine of an angle in radians.
    cos    cos      The cosine of an angle in radians.
    tan    tan      The tangent of an angle in radians.
    asin   arcsin   The angle whose sine is self.
    acos   arccos   The angle whose cosine is self.
    atan   arctan   The angle whose tangent is self.
    sinh   sinh     The hyperbolic sine.
    tanh   tanh     The hyperbolic tangent.
    asinh  arcsinh  The inverse of sinh.
    acosh  arccosh  The inverse of cosh: nan below 1.
    atanh  arctanh  The inverse of tanh: inf at 1, nan beyond.
"""
for name, theirs, doc in re.findall(r"(\w+) +(\w+) +(.+)", FLOATS):
    elementwise(f"{name}(Tensor self) -> Tensor", doc,
                ieee(getattr(math, name), POLES.get(name)),
                np and getattr(np, theirs), rule="float")


def sigmoid(a):
    if a >= 0:
        return 1 / (1 + ieee_exp(-a))
    return ieee_exp(a) / (1 + ieee_exp(a))


def sinc(a):
    return 1.0 if a == 0 else math.sin(math.pi * a) / (math.pi * a)


def logit(a, eps=None):
    if eps is not None and a == a:
        a = min(max(a, eps), 1 - eps)
    return ieee_log(ieee_div(a, 1 - a))


def numpy_logit(a, eps=None):
    a = a if eps is None else np.clip(a, eps, 1 - eps)
    return np.log(a / (1 - a))


FORMULAS = {        # the function of a number, the function of an array
    "cosh": ("The hyperbolic cosine.",
             lambda a: ieee(math.cosh)(abs(a)), np and np.cosh),
    "reciprocal": ("1 / self.", lambda a: ieee_div(1.0, a),
                   np and np.reciprocal),
    "rsqrt": ("1 / sqrt(self).", lambda a: ieee_div(1.0, ieee_sqrt(a)),
              lambda a: 1 / np.sqrt(a)),
    "sigmoid": ("1 / (1 + exp(-self)).", sigmoid,
                lambda a: 1 / (1 + np.exp(-a))),
    "sinc": ("sin(pi self) / (pi self), 1 at 0.", ieee(sinc),
             np and np.sinc),
    "deg2rad": ("Degrees in radians.", math.radians, np and np.deg2rad),
    "rad2deg": ("Radians in degrees.", math.degrees, np and np.rad2deg)}
for name, (doc, python, numpy) in FORMULAS.items():
    elementwise(f"{name}(Tensor self) -> Tensor", doc, python, numpy,
                rule="float")
elementwise("logit(Tensor self, float? eps=None) -> Tensor",
            "log(self / (1 - self)); eps keeps self away from 0 and 1.",
            logit, numpy_logit, rule="float")


def per_element(function):
    """A NumPy function that calls a function of numbers: NumPy has none of
    its own, and its values are worth more than its speed."""
    slow = np and np.frompyfunc(function, 1, 1)
    return lambda a: np.asarray(slow(a)).astype(a.dtype)


def lgamma(a):
    """The logarithm of |gamma(a)|: inf at a pole, and where it is large."""
    try:
        return math.lgamma(a)
    except (ValueError, OverflowError):
        return inf


def digamma(x):
    """The derivative of lgamma: by recurrence up to 10, then the
    asymptotic series; below 0 by reflection (Abramowitz and Stegun 6.3)."""
    if x == 0:
        return math.copysign(inf, -x)
    if x < 0:
        if math.isinf(x) or x == math.floor(x):
            return nan
        return digamma(1 - x) - math.pi / math.tan(
            math.pi * math.fmod(x, 1))
    shift = 0.0
    while x < 10:
        shift, x = shift - 1 / x, x + 1
    r, total = 1 / (x * x), 0.0
    for c in (-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120,
              -1 / 12):
        total = total * r + c
    return shift + math.log(x) - 0.5 / x + total * r


def polygamma(x, n):
    """The n-th derivative of digamma: n! times the sum of all
    (x + k) ** -(n + 1), its head added up, its tail by Euler and Maclaurin's
    formula; below 0 by reflection."""
    if n == 0:
        return digamma(x)
    if math.isinf(x):
        return 0.0 if x > 0 else nan
    sign = (-1) ** (n + 1)
    if x <= 0:
        if x == math.floor(x) and (n > 1 or not -1e15 < x < 0):
            return sign * inf                           # a pole
        if n == 1:              # as PyTorch, huge and no pole at -1, -2, ...
            return (math.pi / math.sin(math.pi * x)) ** 2 - polygamma(
                1 - x, 1)
        return -sign * polygamma(1 - x, n) - math.pi ** (n + 1) * (
            cot_derivative(1 / math.tan(math.pi * math.fmod(x, 1)), n))
    power, total = n + 1, 0.0
    while x < 10 + n:
        total, x = total + ieee_pow(x, -power), x + 1
    term = x ** -power
    total += x ** -n / n + term / 2
    for k, c in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600,
                           1 / 47900160, -691 / 1307674368000)):
        term *= (power + 2 * k) / x
        total += c * term
        term *= (power + 2 * k + 1) / x
    return sign * math.factorial(n) * total


def cot_derivative(c, n):
    """The n-th derivative of cot where it is c: a polynomial of c, since
    cot' is -1 - cot ** 2."""
    terms = [0, 1]
    for _ in range(n):
        slopes = [k * a for k, a in enumerate(terms)][1:] + [0, 0, 0]
        terms = [-slopes[k] - (slopes[k - 2] if k > 1 else 0)
                 for k in range(len(terms) + 1)]
    return sum(a * c ** k for k, a in enumerate(terms))


def check_order(inputs, met, parameters):
    if parameters[0] < 0:
        raise RuntimeError(f"polygamma(): the order of a derivative is 0 or "
                           f"more; got {parameters[0]}")


elementwise("_polygamma(Tensor self, int n) -> Tensor", "polygamma(n, self).",
            polygamma, lambda a, n: per_element(
                functools.partial(polygamma, n=n))(a), rule="float",
            check=check_order)
define("polygamma(int n, Tensor self) -> Tensor",
       "The n-th derivative of digamma.",
       composite=lambda n, self: functions["_polygamma"](self, n))
Tensor.polygamma = lambda self, n: functions["polygamma"](n, self)


def erfinv(y):
    """The number whose erf is y: a first guess (Winitzki), then Newton's
    steps with Halley's correction; erfc keeps the digits near 1."""
    if not abs(y) < 1:
        return math.copysign(inf, y) if abs(y) == 1 else nan
    log, t = math.log1p(-y * y), abs(y)
    b = 2 / (math.pi * 0.147) + log / 2
    x = math.sqrt(max(0.0, math.sqrt(b * b - log / 0.147) - b))
    for _ in range(3):
        gap = math.erf(x) - t if t < 0.5 else (1 - t) - math.erfc(x)
        u = gap / (2 / math.sqrt(math.pi) * math.exp(-x * x))
        x -= u / (1 + x * u)
    return math.copysign(x, y)


@functools.cache
def erf_series():
    """Twelve coefficients for each eighth from 0 to 6, highest first."""
    rows = []
    for x in [k / 8 for k in range(49)]:
        c = [math.erf(x), 2 / math.sqrt(math.pi) * math.exp(-x * x)]
        for n in range(10):
            c.append(-2 * (x * (n + 1) * c[n + 1] + n * c[n])
                     / ((n + 1) * (n + 2)))
        rows.append(c[::-1])
    return np.array(rows).T.copy()


def numpy_erf(a):
    """erf of an array, in blocks that stay in the cache."""
    found, highest = np.empty(a.size, a.dtype), erf_series()[0]
    every = a.reshape(-1)
    for start in range(0, a.size, 8192):
        x = every[start:start + 8192].astype(np.float64)
        x = np.minimum(np.abs(x), 6)            # from 6 on it is 1
        near = np.rint(8 * x)
        place, d = np.where(x == x, near, 0).astype(int), x - near / 8
        total = highest[place]
        for c in erf_series()[1:]:
            total = total * d + c[place]
        found[start:start + 8192] = total
    return np.copysign(found.reshape(a.shape), a)


for name, doc, function in [
        ("erf", "The error function.", math.erf),
        ("erfc", "1 - erf(self), exact where erf is near 1.", math.erfc),
        ("erfinv", "The number whose erf is self.", erfinv),
        ("lgamma", "The logarithm of the gamma function's absolute value.",
         lgamma),
        ("digamma", "The derivative of lgamma.", digamma)]:
    elementwise(f"{name}(Tensor self) -> Tensor", doc, function,
                numpy_erf if name == "erf" else per_element(function),
                rule="float")


FLOATING = tuple(d.name for d in dtypes.values() if d.category == 2)
WHOLE = tuple(d.name for d in dtypes.values() if d.category < 2)


def kept(function):
    """A NumPy rounding that leaves integers as they are."""
    return lambda a: function(a) if a.dtype.kind == "f" else a.copy()


for name, doc, function in [
        ("floor", "Rounded down.", math.floor),
        ("ceil", "Rounded up.", math.ceil),
        ("trunc", "Rounded towards 0.", math.trunc),
        ("round", "Rounded; a half to the even neighbour.", round)]:
    elementwise(f"{name}(Tensor self) -> Tensor", doc, whole(function),
                np and kept(getattr(np, "rint" if name == "round"
                                    else name)), refuse=BOOL)


@stepwise
def round_decimals(dtype, a, decimals):
    scale = wrap(dtype, 10.0 ** abs(decimals))
    if decimals < 0:
        return whole(round)(wrap(dtype, a / scale)) * scale
    return whole(round)(wrap(dtype, a * scale)) / scale


def numpy_round(a, decimals):
    scale = a.dtype.type(10.0 ** abs(decimals))
    if decimals < 0:
        return np.rint(a / scale) * scale
    return np.rint(a * scale) / scale


elementwise("round.decimals(Tensor self, *, int decimals) -> Tensor",
            "Rounded to decimals.", round_decimals, numpy_round,
            refuse=WHOLE)
elementwise("frac(Tensor self) -> Tensor", "What trunc cuts off.",
            lambda a: a - whole(math.trunc)(a),
            lambda a: a - np.trunc(a), refuse=WHOLE)


def numpy_sign(a):
    if a.dtype == bool:
        return a.copy()
    return np.subtract(a > 0, a < 0, dtype=a.dtype)


elementwise("neg(Tensor self) -> Tensor", "-self.", operator.neg,
            np and np.negative, refuse=BOOL)
define("resolve_neg(Tensor(a) self) -> Tensor(a)",
       "The tensor itself: no sign waits to be changed later.",
       composite=lambda self: self)
ZERO = {d: np.zeros((), d) for d in numpy_dtypes.values()}  # made once
elementwise("relu(Tensor self) -> Tensor",
            "self where it is positive, else 0; nan stays nan.",
            lambda a: 0 if a < 0 else a,
            lambda a: np.maximum(ZERO[a.dtype], a), refuse=BOOL)
elementwise("sign(Tensor self) -> Tensor",
            "-1, 0 or 1: the side of 0 that self is on; 0 for nan.",
            lambda a: (a > 0) - (a < 0), numpy_sign)


elementwise("square(Tensor self) -> Tensor", "self * self.",
            lambda a: a * a, np and np.square, "number")


def positive(self):
    if self.dtype is bool_:
        raise RuntimeError("positive() has no meaning for bools")
    return self


define("positive(Tensor(a) self) -> Tensor(a)", "self, as it is.",
       composite=positive)


for name, doc, python, numpy in [
        ("isnan", "Whether it is not a number.", lambda a: a != a,
         np and np.isnan),
        ("isinf", "Whether it is inf or -inf.",
         lambda a: a in (inf, -inf), np and np.isinf),
        ("isfinite", "Whether it is neither inf nor nan.",
         lambda a: -inf < a < inf, np and np.isfinite),
        ("isposinf", "Whether it is inf.", lambda a: a == inf,
         lambda a: a == inf),
        ("isneginf", "Whether it is -inf.", lambda a: a == -inf,
         lambda a: a == -inf),
        ("signbit", "Whether the sign is a minus, that of -0.0 too.",
         lambda a: math.copysign(1, a) < 0, np and np.signbit)]:
    elementwise(f"{name}(Tensor self) -> Tensor", doc, python, numpy,
                rule="bool", inplace=False)
elementwise("logical_not(Tensor self) -> Tensor", "Whether it is 0.",
            operator.not_, np and np.logical_not, rule="bool")


def fill_ins(inputs, met, given):
    if met.category < 2:
        return [0, 0, 0]
    usual = 0.0, finfo(met).max, finfo(met).min
    return [u if g is None else g for u, g in zip(usual, given)]


elementwise(
    "nan_to_num(Tensor self, float? nan=None, float? posinf=None, "
    "float? neginf=None) -> Tensor",
    "nan, inf and -inf replaced: by 0 and the dtype's limits.",
    lambda a, *by: (by[0] if a != a else by[1] if a == inf
                    else by[2] if a == -inf else a),
    lambda a, *by: np.nan_to_num(a, True, *by), check=fill_ins)


for name, sign, long in [("eq", "==", "equal"), ("ne", "!=", "not_equal"),
                         ("lt", "<", "less"), ("le", "<=", "less_equal"),
                         ("gt", ">", "greater"),
                         ("ge", ">=", "greater_equal")]:
    elementwise(f"{name}.Tensor(Tensor self, Tensor other) -> Tensor",
                f"self {sign} other: a bool for each element.",
                getattr(operator, name), np and getattr(np, long),
                rule="bool")
for name, python in [("and", lambda a, b: bool(a) and bool(b)),
                     ("or", lambda a, b: bool(a) or bool(b)),
                     ("xor", lambda a, b: bool(a) != bool(b))]:
    elementwise(f"logical_{name}(Tensor self, Tensor other) -> Tensor",
                f"self {name} other, where all but 0 is true.",
                python, np and getattr(np, f"logical_{name}"), rule="bool",
                numbers=())
    elementwise(f"bitwise_{name}.Tensor(Tensor self, Tensor other) -> Tensor",
                f"self {name} other, bit by bit.",
                getattr(operator, f"__{name}__"),
                np and getattr(np, f"bitwise_{name}"), refuse=FLOATING,
                numbers=True)
elementwise("bitwise_not(Tensor self) -> Tensor", "Every bit turned over.",
            lambda a: not a if isinstance(a, bool) else ~a,
            np and np.invert, refuse=FLOATING)


def shift_left(a, b):
    return a << b if 0 <= b < 64 else 0


def shift_right(a, b):
    return a >> (b if 0 <= b < 64 else 63)


def numpy_shift_left(a, b):
    fits = (b >= 0) & (b < 8 * a.itemsize)
    return np.where(fits, a << np.where(fits, b, 0), 0).astype(a.dtype)


def numpy_shift_right(a, b):
    fits = (b >= 0) & (b < 8 * a.itemsize)
    far = 8 * a.itemsize - 1
    found = a >> np.where(fits, b, far).astype(a.dtype)
    return found if a.dtype.kind == "i" else np.where(fits, found, 0).astype(
        a.dtype)


for name, python, numpy in [("left", shift_left, numpy_shift_left),
                            ("right", shift_right, numpy_shift_right)]:
    elementwise(f"bitwise_{name}_shift.Tensor(Tensor self, Tensor other) "
                f"-> Tensor", f"The bits moved {name} by other places.",
                python, numpy, refuse=(*BOOL, *FLOATING), numbers=True)


def maximum(a, b):
    return a if a >= b or a != a else b


def minimum(a, b):
    return a if a <= b or a != a else b


def xlogy(a, b):
    return nan if b != b else 0.0 if a == 0 else a * ieee_log(b)


def numpy_xlogy(a, b):
    return np.where((a == 0) & ~np.isnan(b), 0, a * np.log(b))


def log_sum(log1p, exp):
    """The logarithm of the sum of two powers, by the larger one."""
    def answer(a, b):
        if a == b and math.isinf(a):
            return a
        return maximum(a, b) + log1p(exp(-abs(a - b)))
    return answer


@stepwise
def ldexp(dtype, a, b):
    return a * wrap(dtype, ieee(math.exp2)(b))


def same_dtypes(name):
    """The check of an operator that does not promote."""
    def check(inputs, met, parameters):
        found = {x.dtype for x in inputs
                 if isinstance(x, Tensor) and (x.ndim or x is inputs[0])}
        if len(found) > 1:
            raise RuntimeError(
                f"{name}(): the tensors must have one dtype; got "
                f"{' and '.join(sorted(map(repr, found)))}")
    return check


NOT_INTEGER = (*BOOL, *FLOATING)
PAIRS = {   # name: doc, of numbers, of arrays, rule, refused, in place
    "maximum": ("The larger of two; nan if one is.", maximum,
                np and np.maximum, "same", (), False),
    "minimum": ("The smaller of two; nan if one is.", minimum,
                np and np.minimum, "same", (), False),
    "fmax": ("The larger of two; nan only if both are.",
             lambda a, b: a if a >= b or b != b else b,
             np and np.fmax, "same", (), False),
    "fmin": ("The smaller of two; nan only if both are.",
             lambda a, b: a if a <= b or b != b else b,
             np and np.fmin, "same", (), False),
    "atan2": ("The angle of the point (other, self).", math.atan2,
              np and np.arctan2, "float", (), True),
    "hypot": ("The root of self ** 2 + other ** 2.", math.hypot,
              np and np.hypot, "same", WHOLE, True),
    "heaviside": ("0 below 0, 1 above, values at 0.",
                  lambda a, b: b if a == 0 else a > 0,
                  lambda a, b: np.where(a == 0, b, a > 0), "same", (), True),
    "logaddexp": ("log(exp(self) + exp(other)).",
                  log_sum(math.log1p, math.exp),
                  np and np.logaddexp, "same", WHOLE, False),
    "logaddexp2": ("log2(2 ** self + 2 ** other).",
                   log_sum(lambda p: math.log2(1 + p), math.exp2),
                   np and np.logaddexp2, "same", WHOLE, False),
    "gcd": ("The greatest common divisor.", math.gcd, np and np.gcd,
            "same", NOT_INTEGER, True),
    "lcm": ("The least common multiple.", math.lcm, np and np.lcm,
            "same", NOT_INTEGER, True)}
for name, (doc, python, numpy, rule, refuse, inplace) in PAIRS.items():
    second = "values" if name == "heaviside" else "other"
    elementwise(f"{name}(Tensor self, Tensor {second}) -> Tensor", doc,
                python, numpy, rule, refuse, numbers=(), inplace=inplace,
                check=name == "heaviside" and same_dtypes(name))


for name, doc, python, numpy, numbers in [
        ("copysign", "self with the sign of other.", math.copysign,
         np and np.copysign, ("other",)),
        ("xlogy", "self * log(other), 0 where self is 0.", xlogy,
         numpy_xlogy, True),
        ("ldexp", "self * 2 ** other.", ldexp,
         lambda a, b: a * np.exp2(b), ())]:
    elementwise(f"{name}.Tensor(Tensor self, Tensor other) -> Tensor", doc,
                python, numpy, rule="float", numbers=numbers)
define("rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
       "other - alpha * self.", numbers=["other"],
       composite=lambda self, other, alpha: functions["sub"](
           other, self, alpha=alpha))


elementwise("where.self(Tensor condition, Tensor self, Tensor other) "
            "-> Tensor", "self where the condition holds, else other.",
            lambda yes, a, b: a if yes else b, np and np.where, mask=0,
            numbers=("self", "other"), inplace=False)
define("where(Tensor condition) -> Tensor[]",
       "Where the condition holds: one tensor of indices a dimension.",
       composite=lambda condition: functions["nonzero"](
           condition, as_tuple=True))
Tensor.where = lambda self, condition, other: functions["where"](
    condition, self, other)


def check_value(inputs, met, parameters):
    value = inputs[2]
    if not isinstance(value, Tensor):
        element(met, value)
    elif value.ndim:
        raise RuntimeError(f"masked_fill(): the value must be a number or a "
                           f"tensor of no dimensions; got one of shape "
                           f"{list(value.shape)}")


elementwise("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) "
            "-> Tensor", "self, but value where the mask holds.",
            lambda a, yes, value: value if yes else a,
            lambda a, yes, value: np.where(yes, value, a), "first",
            mask=1, numbers=["value"], check=check_value)


def clamp(a, low, high):
    if low is not None:
        a = maximum(a, low)
    return a if high is None else minimum(a, high)


def numpy_clamp(a, low, high):
    if low is not None:
        a = np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def check_limits(inputs, met, parameters):
    limits = [x for x in inputs[1:] if x is not None]
    if not limits:
        raise RuntimeError("clamp(): at least one of min and max is needed")
    if len({isinstance(x, Tensor) for x in limits}) > 1:
        raise TypeError("clamp(): min and max must be both numbers or both "
                        "tensors")
    numbers = [x for x in limits if not isinstance(x, Tensor)]
    if met is bool_ and (numbers or len(limits) > 1):
        raise NotImplementedError("clamp() of bools takes one limit, a "
                                  "tensor; use logical_and, logical_or")
    for x in numbers:
        element(met, x)


elementwise("clamp(Tensor self, Tensor? min=None, Tensor? max=None) "
            "-> Tensor", "self, but at least min and at most max.",
            clamp, numpy_clamp, numbers=("min", "max"), check=check_limits)
elementwise("clamp_min(Tensor self, Tensor min) -> Tensor",
            "self, but at least min.", maximum, np and np.maximum,
            numbers=["min"], check=check_limits)
elementwise("clamp_max(Tensor self, Tensor max) -> Tensor",
            "self, but at most max.", minimum, np and np.minimum,
            numbers=["max"], check=check_limits)


def lerp(a, b, weight):
    if abs(weight) < 0.5:
        return a + weight * (b - a)
    return b - (b - a) * (1 - weight)


def numpy_lerp(a, b, weight):
    return np.where(np.abs(weight) < 0.5, a + weight * (b - a),
                    b - (b - a) * (1 - weight))


def check_addcdiv(inputs, met, parameters):
    if all(x.dtype.category < 2 for x in inputs[1:]):
        raise RuntimeError("addcdiv(): the quotient of integers is no "
                           "integer; make one of the tensors a float")


elementwise("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
            "self + weight * (end - self).", lerp, numpy_lerp, "first", WHOLE,
            numbers=["weight"], check=same_dtypes("lerp"))
elementwise("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, "
            "Scalar value=1) -> Tensor", "self + value * tensor1 * tensor2.",
            lambda a, b, c, value: a + value * b * c,
            lambda a, b, c, value: a + value * b * c, refuse=BOOL,
            numbers=())
elementwise("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, "
            "Scalar value=1) -> Tensor", "self + value * tensor1 / tensor2.",
            lambda a, b, c, value: a + ieee_div(value * b, c),
            lambda a, b, c, value: a + value * b / c, refuse=BOOL,
            numbers=(), check=check_addcdiv)


def triangle(name, keeps):
    """Declare tril or triu: keeps(row + diagonal, column) chooses."""
    op = define(f"{name}(Tensor self, int diagonal=0) -> Tensor",
                f"The {'lower' if name == 'tril' else 'upper'} triangle of "
                f"each matrix; the rest is 0.", inplace=True)

    def start(self):
        if self.ndim < 2:
            raise RuntimeError(f"{name}(): expected at least 2 dimensions; "
                               f"got shape {list(self.shape)}")
        return empty(self.shape, dtype=self.dtype, device=self.device)

    @impl(name, "python")
    def on_python(self, diagonal):
        out = start(self)
        rows, columns = map(range, self.shape[-2:])
        kept = itertools.cycle([keeps(i + diagonal, j)
                                for i in rows for j in columns])
        return write_values(out, [value if yes else 0
                                  for yes, value in zip(kept, flat(self))])

    @impl(name, "meta")
    def on_meta(self, diagonal):
        return start(self)

    @impl(name, "cpu")
    def on_cpu(self, diagonal):
        out = start(self)
        np.copyto(array(out), getattr(np, name)(array(self), diagonal))
        return out


triangle("tril", operator.ge)
triangle("triu", operator.le)


def reflected(sign):
    """The operator whose left operand is a number, or NumPy's."""
    def call(self, *others):
        if len(others) != 1:            # as PyTorch: not ours to answer
            return NotImplemented
        other, = others
        ours = (other if isinstance(other, (int, float, Tensor))
                else from_outside(other))
        return NotImplemented if ours is None else sign(ours, self)
    return call


SIGNS = """
    add  add.Tensor        truediv   div.Tensor
    sub  sub.Tensor        floordiv  floor_divide
    mul  mul.Tensor        mod       remainder.Tensor
    and  bitwise_and.Tensor    pow     pow.Tensor_Tensor
    or   bitwise_or.Tensor     lshift  bitwise_left_shift.Tensor
    xor  bitwise_xor.Tensor    rshift  bitwise_right_shift.Tensor
"""
for name, full_name in re.findall(r"(\w+) +(\S+)", SIGNS):
    op = operators[full_name]
    second = op.schema.arguments[1].name
    sign = build_call(op, f"__{name}__", guard=second)
    setattr(Tensor, f"__{name}__", sign)
    setattr(Tensor, f"__r{name}__", reflected(sign))
    setattr(Tensor, f"__i{name}__", build_call(
        op.forms[-1], f"__i{name}__", guard=second))
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{name}__", build_call(
        operators[f"{name}.Tensor"], f"__{name}__", guard="other"))


def invert(self):
    if self.dtype.category == 2:
        raise TypeError(f"~ turns bits over, and {self.dtype} has a value, "
                        f"not bits: use 1 - x or logical_not(x)")
    return functions["bitwise_not"](self)


Tensor.__neg__ = functions["neg"]
Tensor.__pos__ = functions["positive"]
Tensor.__invert__ = invert


def isclose(self, other, rtol, atol, equal_nan):
    if self.dtype is not other.dtype:
        raise RuntimeError(f"isclose(): expected tensors of one dtype; got "
                           f"{self.dtype} and {other.dtype}")
    if not (rtol >= 0 and atol >= 0):
        raise RuntimeError(f"isclose(): rtol and atol must be 0 or more; "
                           f"got {rtol} and {atol}")
    close = self == other
    if equal_nan:
        close = close | ((self != self) & (other != other))
    if rtol == 0 == atol:
        return close
    if other.dtype.category < 2:        # the gap of integers may wrap
        self, other = self.float(), other.float()
    allowed, gap = (other * rtol).abs() + atol, (self - other).abs()
    return close | (gap.isfinite() & (gap <= allowed))


def everywhere(x):
    """Whether every element of a bool tensor is True."""
    if x.device.type == "meta":
        raise NotImplementedError("a tensor on 'meta' has no data to compare")
    return bool(array(x).all()) if x.device.type == "cpu" else all(flat(x))


TOLERANCES = "float rtol=1e-05, float atol=1e-08, bool equal_nan=False"
define(f"isclose(Tensor self, Tensor other, {TOLERANCES}) -> Tensor",
       "Whether |self - other| <= atol + rtol * |other|.", composite=isclose)
define(f"allclose(Tensor self, Tensor other, {TOLERANCES}) -> bool",
       "Whether isclose holds everywhere.",
       composite=lambda *args: everywhere(isclose(*args)))
define("equal(Tensor self, Tensor other) -> bool",
       "Whether shape and all elements are the same.",
       composite=lambda self, other: self.shape == other.shape
       and everywhere(self == other))


def check_isin(elements, test_elements):
    """The operands, in the dtype where they meet."""
    met = result_type(elements, test_elements)
    if met is bool_:
        raise RuntimeError("isin() has no meaning for bools")
    devices = [x.device for x in (elements, test_elements)
               if isinstance(x, Tensor)]
    if not devices:
        raise TypeError("isin(): at least one argument must be a Tensor")
    return [x.to(met) if isinstance(x, Tensor) else
            full((), x, dtype=met, device=devices[0])
            for x in (elements, test_elements)]


def isin(elements, test_elements, assume_unique, invert):
    elements, tests = check_isin(elements, test_elements)
    found = empty(elements.shape, dtype=bool_, device=elements.device)
    if elements.device.type == "cpu":
        array(found)[...] = np.isin(array(elements), array(tests),
                                    assume_unique, invert)
    elif elements.device.type == "python":
        known = set(flat(tests))
        write_values(found, [(v == v and v in known) != invert
                             for v in flat(elements)])
    return found


define("isin(Tensor elements, Tensor test_elements, *, bool "
       "assume_unique=False, bool invert=False) -> Tensor",
       "Whether each element is one of test_elements.", composite=isin,
       numbers=True)


ALIASES = """
    abs absolute     acos arccos      acosh arccosh     asin arcsin
    asinh arcsinh    atan arctan      atanh arctanh     atan2 arctan2
    neg negative     mul multiply     sub subtract      div divide
    div true_divide  trunc fix        clamp clip        sign sgn
    ne not_equal     lt less          le less_equal     gt greater
    ge greater_equal
"""
for name, alias in re.findall(r"(\w+) (\w+)", ALIASES):
    for end in "", "_":
        if name + end in functions:
            functions[alias + end] = functions[name + end]
            setattr(Tensor, alias + end, functions[name + end])


for name in ("sign", "sqrt", "tanh", "relu"):
    on_entries(name)
on_entries("neg", additive=True)


def with_number(name, only_left):
    """A kernel for sparse * number: the entries are computed alone."""
    kernel = operators[name]

    def sparse(self, other):
        here = isinstance(self, SparseTensor)
        s, number = (self, other) if here else (other, self)
        if getattr(number, "shape", ()) or (only_left and not here):
            raise NotImplementedError(
                f"{name}() of the layout sparse_coo takes a sparse tensor "
                f"and a number; for the rest use x.to_dense()")
        args = (s.entries, number) if here else (number, s.entries)
        entries = lookup(kernel, s.entries.keys)(*args)
        return SparseTensor(s.places, entries, s.shape, s.coalesced)

    impl(name, layout=sparse_coo)(sparse)


with_number("mul.Tensor", only_left=False)
with_number("div.Tensor", only_left=True)


def joined(x, y, dtype):
    """The elements of x, then those of y, along the last dimension."""
    sizes = x.shape[-1], y.shape[-1]
    out = empty((*x.shape[:-1], sum(sizes)), dtype=dtype, device=x.device)
    for part, first, size in ((x, 0, sizes[0]), (y, *sizes)):
        place = strides.narrow(out, -1, first, size)
        kernel_of("copy_", place)(place, part)
    return out


@impl("add.Tensor", layout=sparse_coo)
def sparse_add(self, other, alpha):
    if not (isinstance(self, Tensor) and isinstance(other, Tensor)):
        raise NotImplementedError(
            "a number would be added to every zero of a tensor of layout "
            "sparse_coo; use x.to_dense() + number")
    if not (self.is_sparse and other.is_sparse):
        one, two = (kernel_of("_to_dense", x)(x) if x.is_sparse else x
                    for x in (self, other))
        return lookup(operators["add.Tensor"], one.keys | two.keys)(
            one, two, alpha)
    if self.shape != other.shape:
        raise RuntimeError(f"add(): sparse tensors have to be of one shape; "
                           f"got {list(self.shape)} and {list(other.shape)}")
    scaled = lookup(operators["mul.Tensor"], other.entries.keys)(
        other.entries, alpha)
    both = SparseTensor(
        joined(self.places, other.places, self.places.dtype),
        joined(self.entries, scaled, result_type(self, other)), self.shape)
    return kernel_of("_coalesce", both)(both)


impl("sub.Tensor", layout=sparse_coo)(
    lambda self, other, alpha: sparse_add(self, other, -alpha))
