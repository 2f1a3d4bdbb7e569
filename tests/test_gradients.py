"""gradcheck, and by it every operator that has a derivative."""

import math

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lamina
from lamina.autograd import (
    GradcheckError, derivative, derivatives, gradcheck, gradgradcheck,
)
from lamina.dispatch import define, functions, operators
from lamina.storage import float32, float64
from strategies import layouts, shapes


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


def test_grad_outputs_with_gaps(bad):
    seen = []

    def noted(grad, self):
        seen.append(grad.is_contiguous())
        return right(grad, self)
    for gaps in (False, True):
        assert gradgradcheck(bad(noted), leaf([1.0, 2.0]),
                             gen_non_contig_grad_outputs=gaps)
        assert seen[0] != gaps
        seen.clear()


def test_grad_outputs_can_be_given():
    x, start = leaf([1.0, 2.0]), leaf([5.0, 7.0])
    assert gradgradcheck(lambda x: x * x, x, start)
    assert (x.grad, start.grad) == (None, None)


# --- every operator ----------------------------------------------------------

DOMAINS = {     # where the numbers of an input lie, away from every kink
    'any': (-3, 3), 'other': (-2.9, 3.1), 'positive': (0.3, 3.3),
    'unit': (-0.9, 0.9), 'share': (0.05, 0.95), 'above': (1.2, 3.2),
    'divisor': (0.71, 0.93),
}


def filled(layout, domain, start):
    """The layout with distinct numbers of a domain."""
    low, high = DOMAINS[domain]
    return layout._replace(values=tuple(
        low + (high - low) * ((41 * i + start) % 96 + 0.5) / 96
        for i in range(len(layout.values))))


ONE = {         # operators of one input of any shape
    'any': """abs neg sign exp exp2 expm1 sin cos atan sinh cosh tanh asinh
              erf erfc sigmoid sinc deg2rad rad2deg reciprocal relu square
              floor ceil trunc round frac nan_to_num clone _to_copy
              positive resolve_neg""",
    'positive': "log log2 log10 log1p sqrt rsqrt lgamma digamma",
    'unit': "asin acos atanh erfinv tan",
    'share': "logit",
    'above': "acosh",
}
ONE = {name: domain for domain, names in ONE.items()
       for name in names.split()}
TWO = {         # operators of two that broadcast
    ('any', 'other'): """add.Tensor sub.Tensor rsub.Tensor mul.Tensor
        div.Tensor maximum minimum max.other min.other fmax fmin atan2 hypot
        heaviside logaddexp logaddexp2 copysign.Tensor ldexp.Tensor
        clamp_min clamp_max dist _relu_backward""",
    ('any', 'divisor'): "floor_divide fmod.Tensor remainder.Tensor",
    ('any', 'positive'): "xlogy.Tensor",
    ('positive', 'any'): "pow.Tensor_Tensor float_power.Tensor_Tensor",
}
TWO = {name: domains for domains, names in TWO.items()
       for name in names.split()}


def ints(x, data):
    return lamina.tensor(data, device=x.device)


def bools(x, data):
    return ints(x, data) > 0


def joined(op, x, y):
    return op([x, y])


def identity(n, x):
    return lamina.eye(n, dtype=x.dtype, device=x.device)


def positive_definite(x):
    return x @ x.t() + 2 * identity(len(x), x)


PLACES = [[2, 0], [1, 1]]
MASK = [[1, 0, 1], [0, 1, 1]]
CASES = [       # an operator, how it is called, its inputs' shapes
    # views and joins
    ('transpose.int', lambda op, x: op(x, 0, -1), (2, 1, 3)),
    ('permute', lambda op, x: op(x, (2, 0, 1)), (2, 1, 3)),
    ('t', lambda op, x: op(x), (2, 3)),
    ('numpy_T', lambda op, x: op(x), (2, 3)),
    ('unsqueeze', lambda op, x: op(x, 1), (2, 3)),
    ('squeeze', lambda op, x: op(x, (1,)), (2, 1, 3)),
    ('select.int', lambda op, x: op(x, 1, -1), (2, 3)),
    ('diagonal', lambda op, x: op(x, 1), (2, 3)),
    ('unfold', lambda op, x: op(x, 1, 2, 1), (2, 4)),
    ('narrow', lambda op, x: op(x, 1, 1, 2), (2, 3)),
    ('getitem', lambda op, x: op(x, (1, None, ..., slice(None, None, 2))),
     (2, 2, 3)),
    ('expand', lambda op, x: op(x, (2, 2, 3)), (2, 1)),
    ('view', lambda op, x: op(x.contiguous(), (3, 2)), (2, 3)),
    ('as_strided', lambda op, x: op(x.clone(), (2, 2), (1, 2), 1), (5,)),
    ('as_strided', lambda op, x: op(x.clone(), (3, 2), (1, 1)), (4,)),
    ('embed', lambda op, x: op(x, (2, 3), (3, 2), 0), (2, 2)),
    ('embed', lambda op, x: op(x, (4,), (1, 1), 0), (2, 3)),
    ('_to_device', lambda op, x: op(x, str(x.device)), (2, 3)),
    ('cat', lambda op, x, y: op([x, y, x], 1), (2, 1), (2, 3)),
    ('stack', lambda op, x, y: op([x, y], -1), (2, 3), (2, 3)),
    *[(name, joined, (2, 2), (2, 2))
      for name in ('hstack', 'vstack', 'dstack', 'column_stack')],
    ('block_diag', joined, (2, 2), (1, 2)),
    ('cartesian_prod', joined, (2,), (3,)),
    ('combinations', lambda op, x: op(x), (3,)),
    ('flip', lambda op, x: op(x, (0, 1)), (2, 3)),
    ('tril', lambda op, x: op(x, 1), (3, 3)),
    ('triu', lambda op, x: op(x, -1), (2, 3)),
    ('diag', lambda op, x: op(x, 1), (3, 3)),
    ('diag', lambda op, x: op(x), (3,)),
    ('trace', lambda op, x: op(x), (2, 3)),
    # three inputs, and numbers among them
    ('where.self', lambda op, x, y: op(x > y, x, y),
     (2, 3), ((3,), 'other')),
    ('masked_fill.Tensor', lambda op, x, y: op(x, bools(x, MASK), y),
     (2, 3), ()),
    ('clamp', lambda op, *args: op(*args),
     (2, 3), ((3,), 'other'), ((2, 1), 'positive')),
    ('clamp', lambda op, x, y: op(x, None, y), (2, 3), ((), 'other')),
    ('clamp', lambda op, x: op(x, -1.0, 2.0), (2, 3)),
    ('lerp.Tensor', lambda op, *args: op(*args), (2, 3), (3,), (2, 1)),
    ('lerp.Tensor', lambda op, x, y: op(x, y, 0.3), (2, 3), (3,)),
    ('addcmul', lambda op, *args: op(*args, value=2.0),
     (2, 3), (3,), (2, 1)),
    ('addcdiv', lambda op, *args: op(*args, value=2.0),
     (2, 3), (3,), ((2, 1), 'other')),
    ('pow.Tensor_Tensor', lambda op, x: op(x, 3), (2, 3)),
    ('pow.Tensor_Tensor', lambda op, x: op(2.0, x), (2, 3)),
    ('div.Tensor_mode', lambda op, x, y: op(x, y, rounding_mode=None),
     (2, 3), ((3,), 'other')),
    ('div.Tensor_mode', lambda op, x, y: op(x, y, rounding_mode='floor'),
     (2, 3), ((3,), 'divisor')),
    ('round.decimals', lambda op, x: op(x, decimals=-1) + x, (2, 3)),
    ('logit', lambda op, x: op(x, 0.2), ((2, 3), 'share')),
    ('_polygamma', lambda op, x: op(x, 2), ((2, 3), 'above')),
    ('polygamma', lambda op, x: op(1, x), (2, 3)),
    # reductions
    ('sum.dim_IntList', lambda op, x: op(x), (2, 3)),
    ('sum.dim_IntList', lambda op, x: op(x, (0, -1), True), (2, 2, 2)),
    ('prod', lambda op, x: op(x), (2, 2)),
    ('prod.dim_int', lambda op, x: op(x, 1), (2, 3)),
    ('mean', lambda op, x: op(x, 0), (2, 3)),
    ('nansum', lambda op, x: op(x, 1), (2, 3)),
    ('nanmean', lambda op, x: op(x, 1), (2, 3)),
    ('amax', lambda op, x: op(x, (0, 2), True), (2, 2, 2)),
    ('amin', lambda op, x: op(x, 1), (2, 3)),
    ('aminmax', lambda op, x: op(x, dim=1), (2, 3)),
    *[(name, lambda op, x: op(x), (2, 3))
      for name in ('max', 'min', 'median', 'nanmedian', 'var', 'std',
                   'var_mean', 'std_mean')],
    *[(name, lambda op, x: op(x, 1), (2, 3))
      for name in ('max.dim', 'min.dim', 'median.dim', 'nanmedian.dim',
                   'mode', 'var.dim', 'std.dim', 'var_mean.dim',
                   'std_mean.dim', 'logsumexp', 'cumsum', '_cumsum',
                   'cumprod', '_cumprod', 'cummax', 'cummin', 'logcumsumexp',
                   '_logcumsumexp', 'softmax.int', '_softmax',
                   'log_softmax.int', '_log_softmax', 'sort', 'diff')],
    *[(name, lambda op, x: op(x, 0, correction=0.5), (2, 3))
      for name in ('var.correction', 'std.correction', 'var_mean.correction',
                   'std_mean.correction')],
    ('sort.stable', lambda op, x: op(x, stable=True, descending=True),
     (2, 3)),
    ('topk', lambda op, x: op(x, 2), (2, 3)),
    ('kthvalue', lambda op, x: op(x, 2), (2, 3)),
    ('quantile.scalar', lambda op, x: op(x, 0.3, 1), (2, 3)),
    ('quantile', lambda op, x: op(
        x, lamina.tensor([0.2, 0.7], dtype=x.dtype, device=x.device)),
     (2, 3)),
    *[('linalg_vector_norm', lambda op, x, p=p: op(x, p, 1),
       ((2, 3), 'other'))
      for p in (2, 1, 0, 3, 0.5, -1, math.inf, -math.inf)],
    ('_norm', lambda op, x: op(x, None, False, None, 2), (2, 3)),
    ('dist', lambda op, x, y: op(x, y, 3), (2, 3), ((3,), 'other')),
    *[('_nuclear_norm', lambda op, x: op(x, (0, 1), False, dtype=None), shape)
      for shape in ((2, 3), (3, 2))],
    ('trapezoid.x', lambda op, x, y: op(x, y), (2, 3), (2, 3)),
    ('trapezoid.dx', lambda op, x: op(x, dx=2), (2, 3)),
    ('sum_to_size', lambda op, x: op(x, (1, 3)), (2, 3)),
    ('mse_loss', lambda op, x, y: op(x, y), (2, 3), (2, 3)),
    ('cumprod', lambda op, x: op(x, 0), ()),
    # with an index
    ('index.Tensor', lambda op, x: op(x, (ints(x, [1, 1]), ints(x, [0, 2]))),
     (2, 3)),
    ('index_put', lambda op, x, y: op(x, (ints(x, [0, 1]),), y), (2, 3),
     (3,)),
    ('index_put', lambda op, x, y: op(x, (ints(x, [1, 1]),), y, True),
     (2, 3), (2, 3)),
    ('take', lambda op, x: op(x, ints(x, [5, 0, 0])), (2, 3)),
    ('put', lambda op, x, y: op(x, ints(x, [5, 0]), y), (2, 3), (2,)),
    ('put', lambda op, x, y: op(x, ints(x, [5, 5]), y, True), (2, 3), (2,)),
    ('masked_select', lambda op, x: op(x, bools(x, MASK)), (2, 3)),
    ('masked_scatter', lambda op, x, y: op(x, bools(x, MASK), y),
     (2, 3), (4,)),
    ('gather', lambda op, x: op(x, 1, ints(x, PLACES)), (2, 3)),
    ('take_along_dim', lambda op, x: op(x, ints(x, PLACES), 1), (2, 3)),
    ('scatter.src', lambda op, x, y: op(x, 1, ints(x, [[2, 0], [1, 0]]), y),
     (2, 3), (2, 2)),
    ('scatter_add', lambda op, x, y: op(x, 1, ints(x, PLACES), y),
     (2, 3), (2, 2)),
    *[(name, lambda op, x, y: op(x, 1, ints(x, PLACES), y),
       (2, 3), ((2, 2), 'other'))
      for name in ('_scatter_prod', '_scatter_amax', '_scatter_amin')],
    *[('scatter_reduce.two', lambda op, x, y, how=how, own=own: op(
        x, 1, ints(x, PLACES), y, how, include_self=own),
       (2, 3), ((2, 2), 'other'))
      for how in ('sum', 'prod', 'mean', 'amax') for own in (True, False)],
    ('scatter.value', lambda op, x: op(x, 1, ints(x, PLACES), 2.0), (2, 3)),
    ('scatter.reduce', lambda op, x, y: op(
        x, 1, ints(x, PLACES), y, reduce='multiply'), (2, 3), (2, 2)),
    ('scatter.value_reduce', lambda op, x: op(
        x, 1, ints(x, PLACES), 2.0, reduce='add'), (2, 3)),
    ('index_select', lambda op, x: op(x, 1, ints(x, [2, 2])), (2, 3)),
    ('index_add', lambda op, x, y: op(x, 1, ints(x, [2, 2]), y, alpha=2),
     (2, 3), (2, 2)),
    ('index_copy', lambda op, x, y: op(x, 1, ints(x, [2, 0]), y),
     (2, 3), (2, 2)),
    ('index_fill.int_Scalar', lambda op, x: op(x, 1, ints(x, [2, 0]), 1.5),
     (2, 3)),
    ('index_fill.int_Tensor', lambda op, x, y: op(x, 1, ints(x, [2]), y),
     (2, 3), ()),
    ('repeat_interleave.self_int', lambda op, x: op(x, 2, 1), (2, 3)),
    ('repeat_interleave.self_Tensor', lambda op, x: op(
        x, ints(x, [0, 2, 1]), 1), (2, 3)),
    # products
    ('mm', lambda op, x, y: op(x, y), (2, 3), (3, 2)),
    ('_mm_nt', lambda op, x, y: op(x, y), (2, 3), (4, 3)),
    ('_mm_tn', lambda op, x, y: op(x, y), (3, 2), (3, 4)),
    ('bmm', lambda op, x, y: op(x, y), (2, 1, 3), (2, 3, 2)),
    ('matmul', lambda op, x, y: op(x, y), (2, 3), (2, 3, 1)),
    ('matmul', lambda op, x, y: op(x, y), (3,), (2, 3, 2)),
    *[(name, lambda op, x, y: op(x, y), (3,), (3,))
      for name in ('dot', 'vdot', 'inner', 'linalg_cross', 'cross',
                   'linalg_vecdot', 'outer', 'ger')],
    ('mv', lambda op, x, y: op(x, y), (2, 3), (3,)),
    ('linear', lambda op, *args: op(*args), (2, 3), (2, 3), (2,)),
    ('kron', lambda op, x, y: op(x, y), (2, 1), (1, 2)),
    ('addmm', lambda op, *args: op(*args, beta=2, alpha=3),
     (2,), (2, 3), (3, 2)),
    ('addmv', lambda op, *args: op(*args, beta=2, alpha=3),
     (2,), (2, 3), (3,)),
    ('addr', lambda op, *args: op(*args, beta=2, alpha=3),
     (2, 3), (2,), (3,)),
    *[(name, lambda op, *args: op(*args, beta=2, alpha=3),
       (1, 2), (2, 1, 2), (2, 2, 2)) for name in ('baddbmm', 'addbmm')],
    ('tensordot', lambda op, x, y: op(x, y, [1], [0]), (2, 3), (3, 2)),
    ('einsum', lambda op, x, y: op('ij,jk->ki', [x, y]), (2, 3), (3, 2)),
    ('einsum', lambda op, x: op('ii->i', [x]), (3, 3)),
    ('linalg_multi_dot', lambda op, *args: op(args),
     (2, 3), (3, 1), (1, 2)),
    ('cdist', lambda op, x, y: op(x, y), (2, 3), ((2, 3), 'other')),
    *[(name, lambda op, grad, y: op(grad, y, 1), (2, 3), ((2, 3), 'other'))
      for name in ('_softmax_backward_data', '_log_softmax_backward_data')],
    # square matrices
    *[(name, lambda op, x: op(positive_definite(x)), ((2, 2), 'unit'))
      for name in ('linalg_inv', 'linalg_slogdet', 'linalg_det', 'det',
                   'logdet', '_cholesky', 'linalg_cholesky')],
    *[(name, lambda op, x: op(x, 3), ((2, 2), 'unit'))
      for name in ('linalg_matrix_power', 'matrix_power')],
    *[(name, lambda op, x, y: op(positive_definite(x), y),
       ((2, 2), 'unit'), (2, 3)) for name in ('_solve', 'linalg_solve')],
    ('linalg_solve_triangular', lambda op, x, y: op(
        positive_definite(x), y, upper=True), ((2, 2), 'unit'), (2, 1)),
]
NONE = """
    _to_sparse _to_dense _coalesce sparse_mm
    isclose allclose equal isin count_nonzero argsort.stable
    where bincount histc repeat_interleave.Tensor searchsorted.Tensor
    searchsorted.Scalar bucketize.Tensor bucketize.Scalar
"""             # layouts without gradients; results that are bools and places
WRITES = ('copy_', 'fill_', 'float_power_.Tensor')      # tests of their own


def test_every_operator_is_tried():
    """Whoever adds an operator says here how its gradient is tested."""
    tried = {*ONE, *TWO, *(case[0] for case in CASES), *NONE.split(), *WRITES}
    layers = ('dispatch', 'broadcasting', 'reductions', 'matmul', 'autograd')
    there = {name for name, o in operators.items()
             if o.base is None and o.module.startswith('lamina.')
             and o.module.split('.')[1] in layers
             and derivatives.get(name) != {}}
    assert there - tried == set() and tried - there == set()


few = settings(max_examples=2, deadline=None, derandomize=True,
               phases=[Phase.generate])


def tensor_of(data, shape, domain='any'):
    """A random view of that shape; no two of its elements are one."""
    layout = data.draw(layouts(dtype=float64, shape=shape, overlap=False))
    return filled(layout, domain, data.draw(st.integers(0, 95)))


def verify(f, inputs, slow=True):
    """The gradients and their gradients: on cpu all slopes, on python
    those along one direction."""
    for device, fast_mode in (('cpu', not slow), ('python', True)):
        xs = [x.on(device).requires_grad_() for x in inputs]
        assert gradcheck(f, xs, fast_mode=fast_mode)
        assert gradgradcheck(f, xs, fast_mode=fast_mode,
                             gen_non_contig_grad_outputs=fast_mode)


small = shapes(max_dims=2, max_size=3, min_size=1)


@pytest.mark.parametrize('name', ONE)
@few
@given(data=st.data())
def test_one_input(name, data):
    op = operators[name]
    x = tensor_of(data, small, ONE[name])
    verify(op.call, [x])
    for form in op.forms:
        if form.schema.name.endswith('_'):
            verify(lambda x: form.call(x * 1.0), [x], slow=False)


@pytest.mark.parametrize('name', TWO)
@few
@given(data=st.data())
def test_two_inputs_broadcast(name, data):
    op = operators[name]
    shape = data.draw(small)
    less = tuple(data.draw(st.sampled_from([n, 1])) for n in shape)
    less = less[data.draw(st.integers(0, len(less))):]
    pair = [shape, less]
    if data.draw(st.booleans()):
        pair.reverse()
    x, y = [tensor_of(data, *args) for args in zip(pair, TWO[name])]
    verify(op.call, [x, y])
    for form in op.forms:
        if form.schema.name.endswith('_'):
            verify(lambda x, y: form.call(x + y * 0, y), [x, y], slow=False)


@pytest.mark.parametrize('case', CASES, ids=lambda case: case[0])
@few
@given(data=st.data())
def test_shaped(case, data):
    name, call, *wanted = case
    inputs = [tensor_of(data, *spec) if spec and isinstance(
        spec[0], tuple) else tensor_of(data, spec) for spec in wanted]
    verify(lambda *xs: call(operators[name].call, *xs), inputs)


ON_RESULTS = {      # in place, on a result that has a history
    'add_': lambda x, y: (x * 1.0).add_(y, alpha=2.0) * x,
    'sub_': lambda x, y: (x * 1.0).sub_(y) * x,
    'mul_': lambda x, y: (x * 1.0).mul_(y),
    'div_': lambda x, y: (x * 1.0).div_(y),
    'pow_': lambda x, y: (x * 1.0).pow_(y),
    'exp_': lambda x, y: (x * y).exp_(),
    'tanh_': lambda x, y: (x * y).tanh_(),
    'float_power_': lambda x, y: (x * 1.0).float_power_(y),
    'clamp_': lambda x, y: (x * 1.0).clamp_(y, y + 2),
    'copy_': lambda x, y: (x * 1.0).copy_(y * y) * x,
    'fill_': lambda x, y: (x * 1.0).fill_(2.0) * x * y,
}


def through_a_view(name):
    """The same write, to a row of a transposed result."""
    def f(x, y):
        z = (x * 2.0).t()
        row, other = z[1], y[:, 0] * 1.0
        args = {'exp_': (), 'tanh_': (), 'fill_': (2.0,),
                'clamp_': (other, other + 2)}.get(name, (other,))
        changed = getattr(row, name)(*args)
        return z * z + changed.sum()
    return f


@pytest.mark.parametrize('name', ON_RESULTS)
@few
@given(data=st.data())
def test_in_place(name, data):
    inputs = [tensor_of(data, (3, 2), domain)
              for domain in ('positive', 'share')]
    for f in (ON_RESULTS[name], through_a_view(name)):
        verify(f, inputs)


@few
@given(data=st.data())
def test_attention(data):
    def attention(q, k, v):
        q, k, v = (x.reshape(2, 2, 1).transpose(0, 1) for x in (q, k, v))
        weights = (q @ k.transpose(-2, -1) / 2).softmax(-1)
        return (weights @ v).transpose(0, 1).reshape(2, 2)
    verify(attention, [tensor_of(data, (2, 2)) for _ in range(3)])


# --- where a formula could divide by zero ------------------------------------

SPECIAL = {
    'prod': (lambda x: x.prod(1), [[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]]),
    'cumprod': (lambda x: x.cumprod(1), [[2.0, 0.0, 3.0], [0.0, 5.0, 0.0]]),
    'scatter prod': (lambda x: functions['_scatter_prod'](
        x[0], 0, ints(x, [0, 0, 2]), x[1]),
        [[1.0, 2.0, 3.0], [0.0, 4.0, 0.0]]),
    'sinc': (lambda x: x.sinc(), [0.0, 1.0, -0.5]),
    'logit': (lambda x: x.logit(0.25), [0.0, 1.0, 0.5]),
    'x ** 0': (lambda x: x ** 0, [0.0, 2.0]),
    'x ** 1': (lambda x: x ** 1, [0.0, 2.0]),
    'x ** 2.0': (lambda x: x ** lamina.tensor(
        [2.0, 3.0], dtype=x.dtype, device=x.device), [0.0, 2.0]),
    'xlogy': (lambda x: functions['xlogy'](0.0, x), [2.0, 0.5]),
    'logaddexp': (lambda x: x[0].logaddexp(x[1]),
                  [[900.0, 1.0], [-900.0, 1.0]]),
    'softmax': (lambda x: x.softmax(0), [900.0, -900.0]),
    'sigmoid': (lambda x: x.sigmoid(), [800.0, -800.0]),
    'empty': (lambda x: x.sum(0) * 2, [[], []]),
}


@pytest.mark.parametrize('name', SPECIAL)
@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_special_places(name, device):
    f, data = SPECIAL[name]
    for check in (gradcheck, gradgradcheck):
        assert check(f, leaf(data, device))


nan, inf = math.nan, math.inf
CHOICES = {     # at ties, corners and nan: PyTorch's answers
    'maximum': (lambda x, y: x.maximum(y), [1, 1, nan, 2], [1, 2, 0, nan],
                [.5, 0, 1, 1], [.5, 1, 1, 1]),
    'minimum': (lambda x, y: x.minimum(y), [1, 1, nan, 2], [1, 2, 0, nan],
                [.5, 1, 1, 1], [.5, 0, 1, 1]),
    'fmax': (lambda x, y: x.fmax(y), [nan, 1, 2, nan], [nan, 1, nan, 2],
             [1, 1, 1, 0], [0, 0, 0, 1]),
    'fmin': (lambda x, y: x.fmin(y), [nan, 1, 2, nan], [nan, 1, nan, 2],
             [1, 1, 1, 0], [0, 0, 0, 1]),
    'clamp_min': (lambda x, y: x.clamp_min(y), [nan, 1, 2], [1, 1, nan],
                  [0, 1, 0], [0, 0, 0]),
    'clamp_max': (lambda x, y: x.clamp_max(y), [nan, 1, 3], [1, 1, 2],
                  [0, 1, 0], [0, 0, 1]),
    'clamp': (lambda x, y: x.clamp(y, lamina.tensor(
        [0, 1, 3, 1], dtype=float64, device=x.device)),
        [nan, 1, 2, 3], [0, 1, nan, 2], [0, 1, 0, 0], [0, 0, 0, 0]),
    'clamp numbers': (lambda x, y: x.clamp(1, 3) + y, [nan, 1, 2, 3, 4],
                      [0] * 5, [0, 1, 1, 1, 0], [1] * 5),
    'copysign': (lambda x, y: x.copysign(y), [0, 1, -1, 2], [1, -1, -1, 0],
                 [0, -1, 1, 1], [0, 0, 0, 0]),
    'xlogy': (lambda x, y: functions['xlogy'](x, y), [0, 0, 1], [0, -1, 1],
              [0, 0, 0], [nan, 0, 1]),
    'abs': (lambda x, y: x.abs() + y.relu(), [0, -2, nan], [0, 1, nan],
            [0, -1, 0], [0, 1, 1]),
    'nan_to_num': (lambda x, y: x.nan_to_num() + y.frac(), [nan, inf, 1],
                   [0, 1, 2], [0, 0, 1], [1, 1, 1]),
    'amax': (lambda x, y: x.amax() + y.amin(), [3, 1, 3], [2, 2, 5],
             [.5, 0, .5], [.5, .5, 0]),
    'max of nan': (lambda x, y: x.max() + y.min(), [3, nan, 3],
                   [nan, nan, 5], [0, 1, 0], [.5, .5, 0]),
    'atan2': (lambda x, y: x.atan2(y), [0, 0, 1], [0, 1, 0], [0, 1, 0],
              [0, 0, -1]),
    'max dim': (lambda x, y: x.max(0).values + y.median(), [3, 1, 3],
                [2, 5, 1], [1, 0, 0], [1, 0, 0]),
    'norm': (lambda x, y: x.norm() + y.norm(inf), [0, 0], [-2, 2],
             [0, 0], [-.5, .5]),
    'logit': (lambda x, y: x.logit() + y.logit(0.25), [-1, 0.5, 2],
              [0, 0.5, nan], [nan, 4, nan], [0, 4, 0]),
    'poles': (lambda x, y: x.lgamma() + y.reciprocal(), [1, 2, inf],
              [inf, 2, -1], [-0.5772156649015329, 0.4227843350984671, inf],
              [0, -.25, -1]),
}


@pytest.mark.parametrize('name', CHOICES)
@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_choices(name, device):
    f, a, b, first, second = CHOICES[name]
    x, y = leaf([float(v) for v in a], device), leaf(
        [float(v) for v in b], device)
    f(x, y).sum().backward()
    assert x.grad.tolist() == pytest.approx(first, nan_ok=True)
    assert y.grad.tolist() == pytest.approx(second, nan_ok=True)


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('f', [
    lambda x: x.norm(), lambda x: x.norm(3), lambda x: x.norm(0.5),
    lambda x: x.norm(-1), lambda x: x.atan2(x * 2), lambda x: x.sinc(),
    lambda x: x.copysign(x + 1), lambda x: functions['dist'](x, x * 2)],
    ids=['2', '3', '0.5', '-1', 'atan2', 'sinc', 'copysign', 'dist'])
def test_at_zero_both_derivatives_are_numbers(f, device):
    x = leaf([0.0, 0.0], device)
    first, = lamina.autograd.grad(f(x).sum(), x, create_graph=True)
    second, = lamina.autograd.grad(first.sum(), x)
    assert first.isfinite().all() and second.isfinite().all()


def test_flat_operators_give_zeros_without_a_history():
    x = leaf([1.5, -2.5, inf])
    for name in ('floor', 'ceil', 'trunc', 'round', 'sign'):
        y = functions[name](x)
        found, = lamina.autograd.grad(
            y, x, lamina.tensor([inf, nan, 1.0], dtype=float64),
            create_graph=True)
        assert found.tolist() == [0, 0, 0] and not found.requires_grad
