"""Scalar autograd: numbers that remember how they were made.

Exported from chapters/07_scalar.ipynb by `course export`; edit the chapter,
not this file.
"""

import math
from itertools import count
from numbers import Real
from operator import attrgetter, mul

__all__ = [
    "depth_first_order",
    "kahn_order",
    "creation_order",
    "Value",
    "Dual",
    "weighted_sum",
]


def depth_first_order(root):
    """All values behind root, each one before its parents; root is first.

    Depth first with a stack of its own, so a long chain is no recursion.
    Time and memory grow with the number of values and edges. Source:
    Tarjan, Edge-disjoint spanning trees and depth-first search, 1976.
    """
    order, seen = [], {root}
    stack = [(root, iter(root.parents))]
    while stack:
        value, parents = stack[-1]
        for parent in parents:
            if parent not in seen:
                seen.add(parent)
                stack.append((parent, iter(parent.parents)))
                break
        else:               # every parent is in the order already
            order.append(value)
            stack.pop()
    order.reverse()
    return order


def kahn_order(root):
    """All values behind root, each one before its parents; root is first.

    Counts uses, then takes each value when its last use has been taken.
    Time and memory grow with the number of values and edges. Source:
    Kahn, Topological sorting of large networks, 1962.
    """
    uses, found = {root: 0}, [root]
    for value in found:             # the list grows while it is read
        for parent in value.parents:
            if parent not in uses:
                uses[parent] = 0
                found.append(parent)
            uses[parent] += 1
    order = [root]
    for value in order:             # and so does this one
        for parent in value.parents:
            uses[parent] -= 1
            if uses[parent] == 0:
                order.append(parent)
    return order


def _number(x):
    """x as a float; TypeError for what is no real number."""
    if not isinstance(x, Real):
        raise TypeError(f"expected a real number, got {x!r} of type "
                        f"{type(x).__name__}; float(...) may convert it")
    return float(x)


def _exp(x):
    """e to the power of x; its slope is itself."""
    try:
        y = math.exp(x)
    except OverflowError:
        raise OverflowError(f"exp({x}) is too large for a float: expected "
                            "less than about 709.78") from None
    return y, y


def _log(x):
    """Natural logarithm; ValueError where x is not positive."""
    if x <= 0:
        raise ValueError(f"log({x}): expected a positive number")
    return math.log(x), 1 / x


def _sqrt(x):
    """Square root; ValueError where x is not positive."""
    if x <= 0:
        raise ValueError(f"sqrt({x}) has no finite derivative: expected a "
                         "positive number")
    y = math.sqrt(x)
    return y, 0.5 / y


def _sin(x):
    """Sine of x, in radians."""
    return math.sin(x), math.cos(x)


def _cos(x):
    """Cosine of x, in radians."""
    return math.cos(x), -math.sin(x)


def _tanh(x):
    """Hyperbolic tangent; its slope is 1 - tanh squared."""
    y = math.tanh(x)
    return y, 1.0 - y * y


def _sigmoid(x):
    """1 / (1 + exp(-x)), without overflow for any x."""
    small = math.exp(-abs(x))       # at most 1
    y = (1.0 if x >= 0 else small) / (1.0 + small)
    return y, small / (1.0 + small) ** 2


def _relu(x):
    """x where it is positive, else 0; the slope at 0 is 0."""
    return (x, 1.0) if x > 0 else (0.0, 0.0)


def _abs(x):
    """Absolute value; the slope at 0 is 0, as in PyTorch."""
    return abs(x), float((x > 0) - (x < 0))


def _power(x, exponent):
    """x ** exponent, and its slope in x."""
    if x < 0 and not exponent.is_integer():
        raise ValueError(f"{x} ** {exponent} is not a real number: a "
                         "negative base needs a whole exponent")
    if exponent == 0:
        return 1.0, 0.0
    if x == 0 and exponent < 1:
        raise ValueError(f"{x} ** {exponent} has no finite derivative: "
                         "expected another base, or an exponent >= 1")
    try:
        return x ** exponent, exponent * x ** (exponent - 1)
    except OverflowError:
        raise OverflowError(f"{x} ** {exponent} or its derivative is too "
                            "large for a float") from None


def _exponential(x, y):
    """The slope of y = x ** exponent in the exponent."""
    if x <= 0:
        raise ValueError(f"a base of {x} has no derivative in the "
                         "exponent: expected a positive base, or a plain "
                         "number as the exponent")
    return y * math.log(x)


_ticket = count().__next__      # 0, 1, 2, ...: a number for each value


class _Node:
    """A number, its gradient, and how it was made: without operators."""

    __slots__ = ("data", "grad", "op", "left", "d_left", "right",
                 "d_right", "born", "label", "__weakref__")

    def __init__(self, data, op="", left=None, d_left=0.0, right=None,
                 d_right=0.0, label=""):
        # an operator's result is a float: only other things need a look
        self.data = data if type(data) is float else _number(data)
        self.grad = None
        self.op = op
        self.left, self.d_left = left, d_left
        self.right, self.d_right = right, d_right
        self.born = _ticket()
        self.label = label

    def __repr__(self):
        grad = "" if self.grad is None else f", grad={self.grad}"
        return f"Value({self.data}{grad})"

    @property
    def parents(self):
        """The values that this one was made from: none for a leaf."""
        if self.right is not None:
            return self.left, self.right
        return () if self.left is None else (self.left,)

    @property
    def locals(self):
        """The derivative of this value with respect to each parent."""
        return (self.d_left, self.d_right)[:len(self.parents)]


def creation_order(root):
    """All values behind root, each one before its parents; root is first.

    A value is made after its parents, so newest first is an order. Time
    and memory grow with the number of values, but for the sort.
    """
    order, seen, stack = [], {root, None}, [root]
    while stack:
        value = stack.pop()
        order.append(value)
        left = value.left
        for parent in (value.parents if left is None
                       else (left, value.right)):
            if parent not in seen:      # None, no second parent, is in it
                seen.add(parent)
                stack.append(parent)
    order.sort(key=attrgetter("born"), reverse=True)
    return order


def _walk_back(root, grad):
    """Start from grad at root, and complete every gradient behind it."""
    order = creation_order(root)
    for value in order:
        # what an earlier walk left in between must not be added to
        if value.left is not None or value.grad is None or value.parents:
            value.grad = 0.0
    root.grad += grad
    for value in order:
        grad, left = value.grad, value.left
        if left is not None:
            left.grad += value.d_left * grad
            if value.right is not None:
                value.right.grad += value.d_right * grad
        else:           # a leaf has no parents, a wide value has many
            for parent, local in zip(value.parents, value.locals):
                parent.grad += local * grad


class _Sums(_Node):
    """Sums, differences and products; the first half of Value."""

    __slots__ = ()

    def __add__(self, other):
        if isinstance(other, Value):
            return Value(self.data + other.data, "+",
                         self, 1.0, other, 1.0)
        if isinstance(other, Real):
            other = float(other)
            return Value(self.data + other, f"+ {other:g}", self, 1.0)
        return NotImplemented

    def __sub__(self, other):
        if isinstance(other, Value):
            return Value(self.data - other.data, "-",
                         self, 1.0, other, -1.0)
        if isinstance(other, Real):
            other = float(other)
            return Value(self.data - other, f"- {other:g}", self, 1.0)
        return NotImplemented

    def __mul__(self, other):
        if isinstance(other, Value):
            x, y = self.data, other.data
            return Value(x * y, "*", self, y, other, x)
        if isinstance(other, Real):
            other = float(other)
            return Value(self.data * other, f"* {other:g}", self, other)
        return NotImplemented

    __radd__ = __add__      # the order does not matter here
    __rmul__ = __mul__

    def __rsub__(self, other):
        if not isinstance(other, Real):
            return NotImplemented
        return Value(other - self.data, f"{float(other):g} -", self, -1.0)

    def __neg__(self):
        return Value(-self.data, "neg", self, -1.0)

    def __pos__(self):
        return self


class Value(_Sums):
    """A number that remembers how it was made, and so has a gradient.

    data: a float. grad: None, or the derivative of the last root with
    respect to this value. op and label: for people. parents, locals: what
    it was made from, and its derivative with respect to each of them.
    """

    __slots__ = ()

    def backward(self, grad=1.0):
        """Add the derivative of self to the grad of every leaf behind it.

        Values in between get this walk's gradient alone. grad is the
        gradient to start from, one number.
        """
        _walk_back(self, _number(grad))

    def _chain(self, op, data, local):
        return Value(data, op, self, local)

    def __truediv__(self, other):
        if isinstance(other, Value):
            y = other.data
            ratio = self.data / y
            # not -x / (y * y): the square of a tiny y is zero
            return Value(ratio, "/", self, 1 / y, other, -ratio / y)
        if isinstance(other, Real):
            other = float(other)
            return Value(self.data / other, f"/ {other:g}",
                         self, 1 / other)
        return NotImplemented

    def __pow__(self, exponent):
        if isinstance(exponent, Value):
            y, local = _power(self.data, exponent.data)
            return Value(y, "**", self, local,
                         exponent, _exponential(self.data, y))
        if isinstance(exponent, Real):
            exponent = float(exponent)
            return self._chain(f"** {exponent:g}",
                               *_power(self.data, exponent))
        return NotImplemented

    def __rtruediv__(self, other):
        if not isinstance(other, Real):
            return NotImplemented
        ratio = other / self.data
        return Value(ratio, f"{float(other):g} /",
                     self, -ratio / self.data)

    def __rpow__(self, base):
        if not isinstance(base, Real):
            return NotImplemented
        base = float(base)
        y, _ = _power(base, self.data)
        return Value(y, f"{base:g} **", self, _exponential(base, y))

    def __abs__(self):
        return self.abs()


_RULES = (_exp, _log, _sqrt, _sin, _cos, _tanh, _sigmoid, _relu, _abs)


def _add_rules(cls):
    """Give cls a method for each rule: _exp becomes cls.exp."""
    def method(name, rule):
        def function(self):
            return self._chain(name, *rule(self.data))

        function.__name__, function.__doc__ = name, rule.__doc__
        return function

    for rule in _RULES:
        name = rule.__name__[1:]
        setattr(cls, name, method(name, rule))


_add_rules(Value)


class Dual:
    """A number with its derivative along one direction: forward mode.

    data and tangent are floats; an input's tangent is 1 if the derivative
    is taken with respect to it, else 0. Source: Wengert, A simple
    automatic derivative evaluation program, 1964.
    """

    __slots__ = ("data", "tangent")

    def __init__(self, data, tangent=0.0):
        self.data = _number(data)
        self.tangent = _number(tangent)

    def __repr__(self):
        return f"Dual({self.data}, tangent={self.tangent})"

    def _chain(self, op, data, local):
        return Dual(data, local * self.tangent)

    def __add__(self, other):
        other = _dual(other)
        if other is None:
            return NotImplemented
        return Dual(self.data + other.data, self.tangent + other.tangent)

    def __mul__(self, other):
        other = _dual(other)
        if other is None:
            return NotImplemented
        return Dual(self.data * other.data,
                    self.tangent * other.data + self.data * other.tangent)

    def __truediv__(self, other):
        other = _dual(other)
        if other is None:
            return NotImplemented
        ratio = self.data / other.data
        return Dual(ratio, (self.tangent - ratio * other.tangent)
                    / other.data)

    def __pow__(self, exponent):
        if isinstance(exponent, Real):
            return self._chain("**", *_power(self.data, float(exponent)))
        if not isinstance(exponent, Dual):
            return NotImplemented
        y, local = _power(self.data, exponent.data)
        return Dual(y, local * self.tangent
                    + _exponential(self.data, y) * exponent.tangent)

    def __rpow__(self, base):
        if not isinstance(base, Real):
            return NotImplemented
        base = float(base)
        y, _ = _power(base, self.data)
        return Dual(y, _exponential(base, y) * self.tangent)

    __radd__ = __add__      # the order does not matter here
    __rmul__ = __mul__

    def __sub__(self, other):
        other = _dual(other)
        return NotImplemented if other is None else self + -other

    def __rsub__(self, other):
        other = _dual(other)
        return NotImplemented if other is None else other + -self

    def __rtruediv__(self, other):
        other = _dual(other)
        return NotImplemented if other is None else other / self

    def __neg__(self):
        return Dual(-self.data, -self.tangent)

    def __pos__(self):
        return self

    def __abs__(self):
        return self.abs()


def _dual(x):
    """x as a Dual, or None if it is no real number."""
    if isinstance(x, Dual):
        return x
    return Dual(x) if isinstance(x, Real) else None


_add_rules(Dual)


class _Wide(Value):
    """A value made from any number of parents in one step."""

    __slots__ = ("parents", "locals")


def weighted_sum(weights, inputs, bias=0.0):
    """The sum of weights times inputs, plus bias: one value, not many.

    Each of them may be a Value or a plain number.
    """
    n = len(weights)
    if n != len(inputs):
        raise ValueError(f"got {n} weights and {len(inputs)} inputs: "
                         "expected one weight for each input")
    terms = (*weights, *inputs, bias)
    try:
        numbers = [t.data for t in terms]
        w, x = numbers[:n], numbers[n:-1]
        made = _Wide(sum(map(mul, w, x), numbers[-1]), "dot")
    except (AttributeError, TypeError):     # plain numbers among them
        *terms, bias = [t if isinstance(t, Value) else Value(t)
                        for t in terms]
        return weighted_sum(terms[:n], terms[n:], bias)
    made.parents, made.locals = terms, (*x, *w, 1.0)
    return made
