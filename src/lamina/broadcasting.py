"""Broadcasting: one rule for every elementwise operator.

Exported from chapters/04_broadcasting.ipynb by `course export`; edit the
chapter, not this file.
"""

import contextvars
import functools
import math
import operator

import lamina.strides as strides
from lamina.dispatch import (
    CPU, SparseTensor, array, build_call, define, from_array, from_outside,
    functions, impl, kernel_of, lookup, new_tensor, np, numpy_dtypes,
    on_entries, operators, own, prepare_out, sparse_coo,
)
from lamina.storage import bool_, dtypes, get_default_dtype, wrap
from lamina.strides import (
    Tensor, element, empty, flat, number_dtype, numel, write_values,
)

__all__ = ["broadcast_shapes", "promote_types", "result_type", "elementwise"]


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


def result_type(*operands):
    """The dtype in which tensors and numbers meet.

    Tensors with dimensions decide; a tensor without, and after it a Python
    number, count only if they are of a higher kind (bool, integer, float)
    than what has been decided.
    """
    ranks = [None, None, None]
    for x in operands:
        if isinstance(x, Tensor):
            rank, dtype = (0 if x.geometry.shape else 1), x.dtype
        else:
            rank, dtype = 2, number_dtype(x)
        known = ranks[rank]
        ranks[rank] = dtype if known is None else promotions[known, dtype]
    result = None
    for dtype in filter(None, ranks):
        if result is None:
            result = dtype
        elif dtype.category > result.category:
            result = promotions[result, dtype]
    return result


def as_float(dtype):
    """The dtype itself if it is a float, else the default one."""
    return dtype if dtype.category == 2 else get_default_dtype()


RULES = {       # where the inputs meet -> (compute in, result)
    "same": lambda met: (met, met),
    "float": lambda met: (as_float(met), as_float(met)),
    "bool": lambda met: (met, bool_),
}


def check_exponent(exponent, dtype):
    """An integer's exponent, if it is a number, must be one of its dtype."""
    if not isinstance(exponent, Tensor):
        if exponent < 0:
            raise RuntimeError(
                f"pow(): integers to the power of {exponent} are fractions; "
                f"make the tensor a float: x.to(lamina.float32)")
        element(dtype, exponent)


def planner(name, count, rule, refuse=()):
    """The function that plans a call: (inputs, alpha, shape, compute
    dtype, result dtype) of a kernel's arguments."""
    def plan(args):
        inputs, alpha = args[:count], args[count] if args[count:] else 1
        meet = result_type(*inputs)
        if meet.name in refuse:
            raise RuntimeError(f"{name}() has no meaning for "
                               f"{', '.join(refuse)} tensors")
        if meet.category < 2 and not isinstance(alpha, int):
            raise RuntimeError(
                f"{name}(): alpha is {alpha}, and the tensors are integers: "
                f"give an integer alpha, or float tensors")
        if name == "pow" and meet.category == 1:
            check_exponent(inputs[1], meet)
        shape = common_shape(*[x.geometry.shape for x in inputs
                               if isinstance(x, Tensor)])
        compute, dtype = RULES[rule](meet)
        if alpha != 1:
            alpha = wrap(compute, alpha)
        return inputs, alpha, shape, compute, dtype
    return plan


# The same few shapes meet again and again.
common_shape = functools.lru_cache(4096)(broadcast_shapes)


def column(x, shape, compute):
    """An input's values, one for each element of the result."""
    if not isinstance(x, Tensor):
        return [wrap(compute, x)] * numel(shape)
    values = flat(strides.expand(x, shape))
    if x.dtype is compute:
        return values
    return [wrap(compute, value) for value in values]


def python_kernel(function, plan):
    """A kernel that calls `function` on the numbers of each element."""
    def kernel(*args, out=None):
        inputs, alpha, shape, compute, dtype = plan(args)
        columns = [column(x, shape, compute) for x in inputs]
        if alpha != 1:
            columns[1] = [wrap(compute, alpha * v) for v in columns[1]]
        values = [function(*row) for row in zip(*columns)]
        if out is None:
            out = empty(shape, dtype=dtype, device="python")
        else:
            prepare_out(out, shape, dtype, inputs)
        return write_values(out, values)
    return kernel


def meta_kernel(plan):
    """A kernel that answers with the result's shape and dtype alone."""
    def kernel(*args, out=None):
        inputs, _, shape, _, dtype = plan(args)
        if out is None:
            return empty(shape, dtype=dtype, device="meta")
        return prepare_out(out, shape, dtype, inputs)
    return kernel


quiet_context = contextvars.Context()
run_quiet = quiet_context.run
if np:
    run_quiet(np.seterr, all="ignore")


def quiet(function, *args, **kwargs):
    """Call a NumPy function whose 1/0 is inf and whose 0/0 is nan, unsaid.

    A context holds one call at a time. If another thread is inside it,
    RuntimeError says so, and NumPy's slower way does the same.
    """
    try:
        return run_quiet(function, *args, **kwargs)
    except RuntimeError:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)


def operand(x, compute):
    """An input as NumPy takes it: an array of the dtype `compute`."""
    if not isinstance(x, Tensor):
        return np.array(wrap(compute, x), numpy_dtypes[compute])
    found = array(x)
    return found if x.dtype is compute else found.astype(
        numpy_dtypes[compute])


def general_kernel(function, plan):
    """A kernel that calls a NumPy function on whole arrays."""
    def kernel(*args, out=None):
        inputs, alpha, shape, compute, dtype = plan(args)
        arrays = [operand(x, compute) for x in inputs]
        if alpha != 1:
            arrays[1] = quiet(np.multiply, arrays[1], alpha)
        if out is None:
            found = np.asarray(quiet(function, *arrays),
                               numpy_dtypes[dtype])
            return from_array(found)
        prepare_out(out, shape, dtype, inputs)
        if out.dtype is dtype and dtype.category:
            quiet(function, *arrays, out=array(out))
        else:
            quiet(np.copyto, array(out), quiet(function, *arrays), "unsafe")
        return out
    return kernel


def result_dtypes(rule, refuse):
    """{dtype: result's dtype} where inputs of one dtype are computed as
    they are. bool is left out: some NumPy functions make integers of it."""
    return {d: RULES[rule](d)[1] for d in dtypes.values() if d.category
            and RULES[rule](d)[0] is d and d.name not in refuse}


def unary_kernel(function, plan, results):
    """The kernel of one input: the short way, or the general one."""
    general = general_kernel(function, plan)

    def kernel(self, out=None):
        if out is None and self.dtype in results:
            a = self.array
            try:
                found = run_quiet(function, array(self) if a is None else a)
                return own(found, results[self.dtype])
            except RuntimeError:        # another thread is in the context
                pass
        return general(self, out=out)
    return kernel


def binary_kernel(function, plan, results):
    """The kernel of two inputs: the short way, or the general one."""
    general, ndarray = general_kernel(function, plan), np.ndarray

    def kernel(self, other, alpha=1, out=None):
        if out is not None or alpha != 1:
            return general(self, other, alpha, out=out)
        try:
            dtype, a = self.dtype, self.array
            result = results[dtype]
            if type(other) is Tensor:
                short, b = dtype is other.dtype, other.array
                b = array(other) if b is None else b
            else:       # NumPy gives a float or an int the array's dtype
                short, b = (dtype.category == 2
                            and type(other) is not bool), other
            if short:
                found = run_quiet(function, array(self) if a is None else a, b)
                if type(found) is not ndarray:
                    return from_array(found)
                x = new_tensor(Tensor)              # own(), without a call
                x.dtype = result
                x._base = None
                x.keys = CPU
                x.array = found
                x.autograd = None
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


def elementwise(schema, doc, python, numpy, rule="same", refuse=()):
    """Declare an operator that works on each element by itself.

    `python` is a function of numbers, `numpy` one of arrays (None without
    NumPy); the rule says what dtype comes out: the `same` as the inputs
    meet in, a `float` one, or `bool`. `refuse` names dtypes that it has no
    meaning for.
    """
    count = schema.count("Tensor ")
    op = define(schema, doc, numbers=count > 1, inplace=True)
    name = op.schema.full_name
    plan = planner(op.schema.name, count, rule, refuse)
    impl(name, "python")(python_kernel(python, plan))
    impl(name, "meta")(meta_kernel(plan))
    if np:
        impl(name, "cpu")(cpu_kernel(numpy, plan, count,
                                     result_dtypes(rule, refuse)))
    return op


elementwise(
    "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "self + alpha * other.", operator.add, np and np.add)
elementwise(
    "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "self - alpha * other.", operator.sub, np and np.subtract,
    refuse=("bool",))
elementwise("mul.Tensor(Tensor self, Tensor other) -> Tensor",
            "self * other.", operator.mul, np and np.multiply)


def ieee_div(a, b):
    """a / b as the hardware divides floats: 1/0 is inf, 0/0 is nan."""
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1, b)


def ieee_exp(a):
    """e to the power of a: inf where it is too large."""
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def ieee_log(a):
    """The natural logarithm: -inf at 0, nan below."""
    return math.log(a) if a > 0 else -math.inf if a == 0 else math.nan


def ieee_pow(a, b):
    """a ** b: floats as the hardware's pow, integers exactly, of which the
    last 64 bits are kept."""
    if isinstance(a, int):
        if b < 0:                       # the whole part of 1 / a ** -b
            return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        return pow(a, b, 1 << 64)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a != 0:
            return math.nan             # a root of a negative number
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def numpy_pow(a, b, out=None):
    if a.dtype.kind != "i" or not np.any(np.less(b, 0)):
        return np.power(a, b, out=out)
    unit = np.where(np.abs(a) == 1, a ** (b % 2), 0)
    found = np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))
    return np.add(found.astype(a.dtype), 0, out=out)


elementwise("div.Tensor(Tensor self, Tensor other) -> Tensor",
            "self / other; integers give floats.", ieee_div,
            np and np.divide, rule="float")
elementwise("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
            "self to the power of exponent.", ieee_pow, numpy_pow)
elementwise("exp(Tensor self) -> Tensor", "e to the power of self.",
            ieee_exp, np and np.exp, rule="float")
elementwise("log(Tensor self) -> Tensor",
            "The natural logarithm: -inf at 0, nan below.", ieee_log,
            np and np.log, rule="float")
elementwise("tanh(Tensor self) -> Tensor", "The hyperbolic tangent.",
            math.tanh, np and np.tanh, rule="float")
elementwise("sqrt(Tensor self) -> Tensor", "The square root: nan below 0.",
            lambda a: math.sqrt(a) if a >= 0 else math.nan,
            np and np.sqrt, rule="float")


def numpy_relu(a, out=None):
    return np.maximum(a, a.dtype.type(0), out=out)


def numpy_sign(a, out=None):
    if a.dtype == bool:
        return np.logical_or(a, a, out=out)
    return np.subtract(a > 0, a < 0, out=out, dtype=a.dtype)


elementwise("neg(Tensor self) -> Tensor", "-self.", operator.neg,
            np and np.negative, refuse=("bool",))
elementwise("relu(Tensor self) -> Tensor",
            "self where it is positive, else 0; nan stays nan.",
            lambda a: 0 if a <= 0 else a, numpy_relu, refuse=("bool",))
elementwise("sign(Tensor self) -> Tensor",
            "-1, 0 or 1: the side of 0 that self is on; 0 for nan.",
            lambda a: (a > 0) - (a < 0),
            numpy_sign)


for name, sign, long in [("eq", "==", "equal"), ("ne", "!=", "not_equal"),
                         ("lt", "<", "less"), ("le", "<=", "less_equal"),
                         ("gt", ">", "greater"),
                         ("ge", ">=", "greater_equal")]:
    elementwise(f"{name}.Tensor(Tensor self, Tensor other) -> Tensor",
                f"self {sign} other: a bool for each element.",
                getattr(operator, name), np and getattr(np, long),
                rule="bool")


def reflected(sign):
    """The operator whose left operand is a number, or NumPy's."""
    def call(self, other):
        ours = (other if isinstance(other, (int, float))
                else from_outside(other))
        return NotImplemented if ours is None else sign(ours, self)
    return call


for name, function in {"add": "add", "sub": "sub", "mul": "mul",
                       "truediv": "div", "pow": "pow"}.items():
    op = functions[function].operator
    second = op.schema.arguments[1].name
    sign = build_call(op, f"__{name}__", guard=second)
    setattr(Tensor, f"__{name}__", sign)
    setattr(Tensor, f"__r{name}__", reflected(sign))
    setattr(Tensor, f"__i{name}__", build_call(
        op.forms[-1], f"__i{name}__", guard=second))
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{name}__", build_call(
        functions[name].operator, f"__{name}__", guard="other"))
Tensor.__neg__ = functions["neg"]


def where_plan(condition, self, other):
    """The shape and the dtype of where(condition, self, other)."""
    if not isinstance(condition, Tensor) or condition.dtype is not bool_:
        given = getattr(condition, "dtype", type(condition).__name__)
        raise (RuntimeError if isinstance(condition, Tensor) else TypeError)(
            f"where(): the condition must be a bool tensor, as x > 0 is; "
            f"got {given}")
    shapes = [x.geometry.shape for x in (condition, self, other)
              if isinstance(x, Tensor)]
    return broadcast_shapes(*shapes), result_type(self, other)


define("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor",
       "self where the condition holds, else other.", numbers=True)


@impl("where.self", "python")
def python_where(condition, self, other):
    shape, dtype = where_plan(condition, self, other)
    rows = zip(column(condition, shape, bool_), column(self, shape, dtype),
               column(other, shape, dtype))
    return write_values(empty(shape, dtype=dtype, device="python"),
                        [a if yes else b for yes, a, b in rows])


@impl("where.self", "meta")
def meta_where(condition, self, other):
    shape, dtype = where_plan(condition, self, other)
    return empty(shape, dtype=dtype, device="meta")


@impl("where.self", "cpu")
def cpu_where(condition, self, other):
    _, dtype = where_plan(condition, self, other)
    return from_array(np.where(array(condition), operand(self, dtype),
                               operand(other, dtype)))


Tensor.where = lambda self, condition, other: functions["where"](
    condition, self, other)


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
