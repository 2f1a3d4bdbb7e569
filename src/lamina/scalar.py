"""Scalar autograd: numbers that remember how they were made.

Exported from chapters/07_scalar.ipynb by `course export`; edit the chapter,
not this file.
"""

import math
from numbers import Real

__all__ = ["depth_first_order", "kahn_order", "Value", "Dual"]


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
    """exp(x), which is its own derivative."""
    try:
        return math.exp(x)
    except OverflowError:
        raise OverflowError(f"exp({x}) is too large for a float: expected "
                            "less than about 709.78") from None


def _log(x):
    """log(x) and its derivative."""
    if x <= 0:
        raise ValueError(f"log({x}): expected a positive number")
    return math.log(x), 1 / x


def _power(x, exponent):
    """x ** exponent and its derivative, for a plain number exponent."""
    if not isinstance(exponent, Real):
        raise TypeError(f"the exponent must be a number, got {exponent!r}: "
                        "use (y * x.log()).exp()")
    exponent = float(exponent)
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


class Value:
    """A number that remembers how it was made, and so has a gradient.

    data: a float. grad: None, or the derivative of the last root with
    respect to this value. parents and locals: what it was made from, and
    its derivative with respect to each of them. op and label: for people.
    """

    __slots__ = ("data", "grad", "parents", "locals", "op", "label",
                 "__weakref__")

    def __init__(self, data, parents=(), locals=(), op="", label=""):
        # an operator's result is a float: only other things need a look
        self.data = data if type(data) is float else _number(data)
        self.grad = None
        self.parents = parents
        self.locals = locals
        self.op = op
        self.label = label

    def __repr__(self):
        grad = "" if self.grad is None else f", grad={self.grad}"
        return f"Value({self.data}{grad})"

    def backward(self, grad=1.0):
        """Add the derivative of self to the grad of every leaf behind it.

        Values in between get this walk's gradient alone. grad is the
        gradient to start from, one number.
        """
        grad = _number(grad)
        order = depth_first_order(self)
        for value in order:
            # what an earlier walk left in between must not be added to
            if value.parents or value.grad is None:
                value.grad = 0.0
        self.grad += grad
        for value in order:
            grad = value.grad
            for parent, local in zip(value.parents, value.locals):
                parent.grad += local * grad

    def __add__(self, other):
        other = _value(other)
        if other is None:
            return NotImplemented
        return Value(self.data + other.data, (self, other), (1.0, 1.0),
                     "+")

    def __sub__(self, other):
        other = _value(other)
        if other is None:
            return NotImplemented
        return Value(self.data - other.data, (self, other), (1.0, -1.0),
                     "-")

    def __mul__(self, other):
        other = _value(other)
        if other is None:
            return NotImplemented
        x, y = self.data, other.data
        return Value(x * y, (self, other), (y, x), "*")

    def __truediv__(self, other):
        other = _value(other)
        if other is None:
            return NotImplemented
        y = other.data
        ratio = self.data / y
        # not -x / (y * y): the square of a tiny y is zero
        return Value(ratio, (self, other), (1 / y, -ratio / y), "/")

    def __pow__(self, exponent):
        data, local = _power(self.data, exponent)
        return Value(data, (self,), (local,), f"** {exponent}")

    def __neg__(self):
        return Value(-self.data, (self,), (-1.0,), "neg")

    def __radd__(self, other):
        other = _value(other)
        return NotImplemented if other is None else other + self

    def __rsub__(self, other):
        other = _value(other)
        return NotImplemented if other is None else other - self

    def __rmul__(self, other):
        other = _value(other)
        return NotImplemented if other is None else other * self

    def __rtruediv__(self, other):
        other = _value(other)
        return NotImplemented if other is None else other / self

    def exp(self):
        """e to the power of self; its derivative is itself."""
        y = _exp(self.data)
        return Value(y, (self,), (y,), "exp")

    def log(self):
        """Natural logarithm; ValueError where self is not positive."""
        y, local = _log(self.data)
        return Value(y, (self,), (local,), "log")

    def tanh(self):
        """Hyperbolic tangent; its derivative is 1 - tanh squared."""
        y = math.tanh(self.data)
        return Value(y, (self,), (1.0 - y * y,), "tanh")

    def relu(self):
        """self where it is positive, else 0; the derivative at 0 is 0."""
        x = self.data
        return Value(max(x, 0.0), (self,), (1.0 if x > 0 else 0.0,),
                     "relu")


def _value(x):
    """x as a Value, or None if it is no real number."""
    if isinstance(x, Value):
        return x
    return Value(x) if isinstance(x, Real) else None


class Dual:
    """A number with its derivative along one direction: forward mode.

    data and tangent are floats; an input's tangent is 1 if the derivative
    is taken with respect to it, else 0. Source: Wengert, A simple
    automatic derivative evaluation program, 1964.
    """

    __slots__ = ("data", "tangent")

    def __init__(self, data, tangent=0.0):
        self.data = data if type(data) is float else _number(data)
        self.tangent = (tangent if type(tangent) is float
                        else _number(tangent))

    def __repr__(self):
        return f"Dual({self.data}, tangent={self.tangent})"

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
        data, local = _power(self.data, exponent)
        return Dual(data, local * self.tangent)

    def __neg__(self):
        return Dual(-self.data, -self.tangent)

    def __sub__(self, other):
        other = _dual(other)
        return NotImplemented if other is None else self + -other

    def __rsub__(self, other):
        other = _dual(other)
        return NotImplemented if other is None else other + -self

    def __rtruediv__(self, other):
        other = _dual(other)
        return NotImplemented if other is None else other / self

    __radd__ = __add__      # the order does not matter here
    __rmul__ = __mul__

    def exp(self):
        """e to the power of self."""
        y = _exp(self.data)
        return Dual(y, y * self.tangent)

    def log(self):
        """Natural logarithm; ValueError where self is not positive."""
        y, local = _log(self.data)
        return Dual(y, local * self.tangent)

    def tanh(self):
        """Hyperbolic tangent."""
        y = math.tanh(self.data)
        return Dual(y, (1.0 - y * y) * self.tangent)

    def relu(self):
        """self where it is positive, else 0; the derivative at 0 is 0."""
        x = self.data
        return Dual(max(x, 0.0), self.tangent if x > 0 else 0.0)


def _dual(x):
    """x as a Dual, or None if it is no real number."""
    if isinstance(x, Dual):
        return x
    return Dual(x) if isinstance(x, Real) else None
