"""gradcheck, and by it every operator that has a derivative."""

import math

import pytest

import lamina
from lamina.autograd import (
    GradcheckError, derivative, derivatives, gradcheck, gradgradcheck,
)
from lamina.dispatch import define, functions, operators
from lamina.storage import float32, float64


def leaf(data, device='cpu', dtype=float64):
    return lamina.tensor(data, dtype=dtype, device=device,
                         requires_grad=True)


# --- gradcheck itself --------------------------------------------------------

@pytest.fixture
def bad():
    """An operator, and a way to give it a derivative for a test."""
    define('bad(Tensor self) -> Tensor',
           kernel=lambda self: self.detach() ** 3)

    def give(formula):
        derivative('bad', self=formula)
        return functions['bad']
    yield give
    for table in (operators, functions, derivatives):
        table.pop('bad', None)
    operators.pop('bad.out', None)
    del lamina.Tensor.bad


def right(grad, self):
    return 3 * grad * self * self


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('fast_mode', [False, True])
def test_a_right_gradient(bad, device, fast_mode):
    x = leaf([[1.0, 2.0], [-0.5, 3.0]], device).t().detach()
    before = x.requires_grad_().tolist()
    for check in (gradcheck, gradgradcheck):
        assert check(bad(right), x, fast_mode=fast_mode) is True
        assert check(lambda x, y: (x * y, y.sum()),
                     (x, leaf([2.0, 3.0], device)), fast_mode=fast_mode)
    assert (x.tolist(), x.grad, x._version) == (before, None, 0)


@pytest.mark.parametrize('fast_mode', [False, True])
def test_a_wrong_gradient(bad, fast_mode):
    f = bad(lambda grad, self: grad * self * self)
    x = leaf([[1.0, 2.0]])
    with pytest.raises(GradcheckError) as error:
        gradcheck(lambda y, x: (y * 2, f(x)), [leaf(1.0), x],
                  fast_mode=fast_mode)
    text = str(error.value)
    assert 'output 1 with respect to input 1' in text
    assert 'd output[0, 1] / d input[0, 1] is 12, backward says 4' in text
    assert 'numerical:\ntensor([[ 3.0000,  0.0000]' in text
    assert 'analytical:\ntensor([[1., 0.],' in text
    assert not gradcheck(f, x, raise_exception=False, fast_mode=fast_mode)
    # the first derivative is right, its own is not
    f = bad(lambda grad, self: 3 * grad * self * self.detach())
    assert gradcheck(f, x, fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match='respect to input 0'):
        gradgradcheck(f, x, fast_mode=fast_mode)


def test_the_fast_mode_knows_transposed_slopes():
    """A Jacobian and its transpose differ along two directions."""
    m = lamina.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=float64)

    def turned(x):
        return (m @ x).detach() + m.t() @ x - (m.t() @ x).detach()
    assert not gradcheck(turned, leaf([1.0, 2.0]), fast_mode=True,
                         raise_exception=False)


def test_a_gradient_of_nan_is_wrong(bad):
    f = bad(lambda grad, self: grad * math.nan)
    for fast_mode in (False, True):
        with pytest.raises(GradcheckError, match='backward says nan'):
            gradcheck(f, leaf([1.0, 2.0]), fast_mode=fast_mode)


def test_tolerances(bad):
    f = bad(lambda grad, self: right(grad, self) * 1.01)
    x = leaf([1.0, 2.0])
    assert not gradcheck(f, x, raise_exception=False)
    assert gradcheck(f, x, rtol=0.02) and gradcheck(f, x, atol=0.2)


def test_what_does_not_depend_has_the_gradient_zero():
    x, y = leaf([1.0, 2.0]), leaf([3.0])
    assert gradcheck(lambda x, y: x * 2, [x, y])
    assert gradcheck(lambda x: lamina.ones(2), x)
    with pytest.raises(GradcheckError, match='backward says 0'):
        gradcheck(lambda x: x.detach() * 2, x)      # it does depend
    assert gradcheck(lambda x: (x * 2, x > 0, None), x)     # no floats
    assert gradcheck(lambda x: x[:0] * 2, x)
    assert gradcheck(lambda x, y: x.sum() * y, [leaf([]), y])


def test_two_walks_that_differ(bad):
    scale = iter(range(100))
    f = bad(lambda grad, self: right(grad, self) + 1e-9 * next(scale))
    x = leaf([1.0, 2.0])
    with pytest.raises(GradcheckError, match='two gradients, more than'):
        gradcheck(f, x)
    assert gradcheck(f, x, nondet_tol=1e-6)


def test_gradients_that_are_not_there():
    """check_undefined_grad: some of an operator's results are not used."""
    define('pair(Tensor self) -> (Tensor one, Tensor two)',
           kernel=lambda self: operators['pair'].result(
               self.detach() * 2, self.detach() * 3))
    derivative('pair', self=lambda grads: grads[0] * 2 + grads[1] * 3)
    x = leaf([1.0, 2.0])
    try:
        assert gradcheck(lambda x: tuple(functions['pair'](x)), x,
                         check_undefined_grad=False)
        with pytest.raises(TypeError):
            gradcheck(lambda x: tuple(functions['pair'](x)), x)
    finally:
        for table in (operators, functions, derivatives):
            table.pop('pair', None)
        del lamina.Tensor.pair


def test_what_cannot_be_checked():
    with pytest.raises(ValueError, match='none of the 1 inputs requires'):
        gradcheck(lambda x: x, lamina.ones(2))
    with pytest.raises(RuntimeError, match='indices of input 1 may be one'):
        gradcheck(lambda x, y: y, [1, lamina.ones(
            2, 1, dtype=float64).expand(2, 3).requires_grad_()])
    with pytest.warns(UserWarning, match='input 0 is lamina.float32'):
        assert gradcheck(lambda x: x * 2, leaf([1.0], dtype=float32),
                         eps=0.125)
    with pytest.raises(TypeError, match='check_batched_grad'):
        gradcheck(lambda x: x, leaf([1.0]), check_batched_grad=True)


def test_grad_outputs_can_be_given():
    x, start = leaf([1.0, 2.0]), leaf([5.0, 7.0])
    assert gradgradcheck(lambda x: x * x, x, start)
    assert (x.grad, start.grad) == (None, None)
