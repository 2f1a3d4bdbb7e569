"""Chapter 8: the graph, its gradients, and who holds whom."""

import gc
import math
import threading
import tracemalloc
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import given, settings

import lamina
import lamina.autograd as autograd
import lamina.dispatch as dispatch
from lamina.autograd import (
    AccumulateGrad, AutogradMeta, Function, Node, accumulate, backward,
    checkpoint, collides, derivative, derivatives, detect_anomaly, edge_of,
    enable_grad, extent, fit, forward_ad, functional, grad, gradcheck,
    gradgradcheck, graph, inverse_order, is_anomaly_enabled, is_grad_enabled,
    move, no_grad, once_differentiable, put_back, read_from, save, saved_list,
    set_detect_anomaly, set_grad_enabled, sum_to, unpack, unpack_list,
    version_of,
)
from lamina.dispatch import define, functions, impl, log_operators, operators
from lamina.storage import float32, float64
from lamina.strides import Geometry, offsets, row_major
from strategies import layouts, shapes

DEVICES = ('cpu', 'python')


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def leaf(data, device='cpu', dtype=float32):
    return lamina.tensor(data, device=device, dtype=dtype,
                         requires_grad=True)


# --- the table -------------------------------------------------------------
# tests/test_gradients.py has each operator against central differences.

@pytest.mark.parametrize('device', DEVICES)
def test_products_of_zeros(device):
    for row, others, scanned in (
            ([2.0, 0.0, 3.0], [0.0, 6.0, 0.0], [1.0, 8.0, 0.0]),
            ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0])):
        x = lamina.tensor(row, device=device, requires_grad=True)
        assert grad(x.prod(), x)[0].tolist() == others
        assert grad(x.cumprod(0).sum(), x)[0].tolist() == scanned


@pytest.mark.parametrize('dtype', ['float32', 'float64', 'float16'])
@pytest.mark.parametrize('shape', [
    (32, 10), (1, 1), (4, 32), (5, 33), (0, 5), (5, 0), (7000, 10), (4,),
    (2, 3, 4)])
def test_the_short_way_back_through_log_softmax_is_the_general_one(
        shape, dtype):
    back = functions['_log_softmax_backward_data']
    tolerance = {'float16': 1e-2, 'float32': 2e-6, 'float64': 1e-14}[dtype]
    rng = np.random.default_rng(0)
    given, x = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    odd = given.copy()
    for i, value in enumerate([math.inf, -math.inf, math.nan, 3e4]):
        odd.reshape(-1)[1 + 7 * i::50] = value
    grads = [given, odd, np.asfortranarray(given),
             np.broadcast_to(given[..., :1], shape).copy(),
             np.repeat(given, 2, -1)[..., ::2]]
    y = lamina.from_numpy(x).log_softmax(-1)
    for result in (y, lamina.from_numpy(np.asfortranarray(y.numpy()))):
        for grad_output in [*map(lamina.from_numpy, grads),
                            lamina.ones(1, dtype=y.dtype).expand(shape)]:
            found = back(grad_output, result, len(shape) - 1)
            wanted = autograd.log_softmax_back_of_any(
                *(t.to(float64) for t in (grad_output, result)), -1)
            assert found.dtype is y.dtype
            assert found.stride() == lamina.empty(shape).stride()
            np.testing.assert_allclose(
                found.numpy(), wanted.numpy(), tolerance, tolerance)


@pytest.mark.parametrize('p', [2, 1, 3.0, 0.5, math.inf, -math.inf, 0])
@pytest.mark.parametrize('device', DEVICES)
def test_the_norm_of_zeros_has_a_gradient(p, device):
    x = lamina.zeros(3, device=device, requires_grad=True)
    assert all(map(math.isfinite, grad(x.norm(p), x)[0].tolist()))


def test_every_operator_has_an_entry():
    """No operator of chapters 3 to 6 cuts the graph for want of one.

    Gradients stop at the layout sparse_coo, by an error.
    """
    layout = ('_to_sparse', '_to_dense', '_coalesce')
    missing = [name for name, o in operators.items()
               if not o.composite and not o.base
               and o.module.startswith('lamina.')
               and name not in derivatives and name not in layout
               and o.schema.returns != '()']        # refused, not recorded
    assert missing == []
    with pytest.raises(NotImplementedError, match='_to_sparse.*derivative'):
        leaf([0.0, 1.0], 'cpu').to_sparse()


@pytest.mark.parametrize('dtype', [float32, float64, lamina.bfloat16])
def test_products_with_one_matrix_transposed(dtype):
    """The three devices agree, and views and empty matrices are no case."""
    a, b = (lamina.arange(24.0).reshape(4, 6)[::step, 1:].to(dtype)
            for step in (1, 2))
    for x, y in ((a, b), (a[:, :0], b[:, :0])):
        for name, left, right in (('_mm_nt', x, y), ('_mm_tn', x.t(), y.t())):
            fast, slow, shape = (functions[name](
                left.to(device), right.to(device))
                for device in (*DEVICES, 'meta'))
            assert fast.tolist() == slow.tolist() == x.mm(y.t()).tolist()
            assert fast.dtype is slow.dtype is shape.dtype is dtype
            assert fast.shape == shape.shape


@pytest.mark.parametrize('name, other', [
    ('_mm_nt', (2, 4)), ('_mm_nt', (3,)), ('_mm_nt', (2, 3, 3)),
    ('_mm_tn', (3, 3)), ('_mm_tn', (2,)), ('_mm_tn', (2, 3, 3))])
def test_transposed_products_that_do_not_fit(name, other):
    for device in DEVICES:
        with pytest.raises((RuntimeError, IndexError)):
            functions[name](lamina.ones(2, 3, device=device),
                            lamina.ones(other, device=device))
    with pytest.raises(RuntimeError, match='one dtype'):
        functions[name](lamina.ones(2, 2),
                        lamina.ones(2, 2, dtype=float64))


def test_the_first_gradient_of_a_leaf_is_kept_and_not_cloned():
    w, b = (lamina.ones(*n).requires_grad_() for n in ((2, 3), (3,)))
    loss = (lamina.ones(4, 2) @ w + b).relu().log_softmax(1).sum()
    with log_operators() as log:
        loss.backward()
    assert 'clone' not in log
    assert w.grad.is_contiguous() and b.grad.is_contiguous()
    x = lamina.ones(2, 3).requires_grad_()      # two leaves, one gradient
    (x + w).sum().backward()
    assert x.grad is not w.grad and x.grad.data_ptr() != w.grad.data_ptr()


def test_meta_gives_shapes():
    x = lamina.ones(2, 3, device='meta').requires_grad_()
    y = (x[:, ::2] @ lamina.ones(2, 4, device='meta')).relu()
    y.backward(lamina.ones(2, 4, device='meta'))
    assert x.grad.shape == (2, 3) and str(x.grad.device) == 'meta'


# --- the worked example, and known cases ------------------------------------

def test_the_worked_example(device):
    w = leaf([0.5, -1.0, 2.0], device)
    x = lamina.tensor([4.0, 3.0, 2.0], device=device)
    b = leaf(0.5, device)
    prediction = w.dot(x) + b
    loss = (prediction - 2.5) ** 2
    loss.backward()
    assert (prediction.item(), loss.item()) == (3.5, 1.0)
    assert w.grad.tolist() == [8.0, 6.0, 4.0] and b.grad.item() == 2.0
    assert x.grad is None


def test_diamond(device):
    a = leaf(1.0, device)
    b = a + a
    (b + b).backward()
    assert a.grad.item() == 4.0


def test_no_stale_gradients_in_between(device):
    x = leaf(3.0, device)
    y = x * x * x
    y.backward(retain_graph=True)
    assert x.grad.item() == 27.0
    x.grad = None
    y.backward(retain_graph=True)
    assert x.grad.item() == 27.0
    y.backward()
    assert x.grad.item() == 54.0


def test_builtin_sum(device):
    a, b = leaf(1.0, device), leaf(2.0, device)
    total = sum([a, b])
    total.backward()
    assert total.item() == 3.0
    assert (a.grad.item(), b.grad.item()) == (1.0, 1.0)
    with pytest.raises(TypeError):
        a + 'text'


def test_broadcast_gradient_shape(device):
    a, b = leaf([1.0], device), leaf([[1.0, 1.0]], device)
    c = leaf(2.0, device)
    (a * b * c).sum().backward()
    assert a.grad.tolist() == [4.0] and b.grad.tolist() == [[2.0, 2.0]]
    assert c.grad.shape == () and c.grad.item() == 2.0


def test_mse_gradient_shapes(device):
    a, b = leaf([[1.0], [2.0], [3.0]], device), leaf([1.0, 2.0, 3.0], device)
    ((a - b) ** 2).mean().backward()
    np.testing.assert_allclose(a.grad.tolist(), [[-2 / 3], [0], [2 / 3]],
                               atol=1e-7)
    assert b.grad.shape == (3,)


def test_batched_matmul(device):
    a, b = leaf(np.arange(6.0).reshape(2, 3).tolist(), device), leaf(
        np.arange(24.0).reshape(4, 3, 2).tolist(), device)
    up = np.arange(16.0).reshape(4, 2, 2)
    (a @ b).backward(lamina.tensor(up.tolist(), device=device))
    np_a, np_b = np.array(a.tolist()), np.array(b.tolist())
    assert a.grad.tolist() == (up @ np_b.transpose(0, 2, 1)).sum(0).tolist()
    assert b.grad.tolist() == (np_a.T @ up).tolist()


def test_slice_gradient(device):
    x = leaf([1.0, 2.0, 3.0, 4.0], device)
    w = lamina.tensor([10.0, 20.0], device=device)
    (x[1:3] * w).sum().backward()
    assert x.grad.tolist() == [0.0, 10.0, 20.0, 0.0]


def test_slice_assignment(device):
    t, v = leaf([1.0, 2.0, 3.0, 4.0], device), leaf(5.0, device)
    a = t * t
    a[0] = v
    a.sum().backward()
    assert t.grad.tolist() == [0.0, 4.0, 6.0, 8.0] and v.grad.item() == 1.0
    fresh = lamina.zeros(3, device=device)
    fresh[1] = v
    v.grad = None
    (fresh * fresh).sum().backward()
    assert v.grad.item() == 10.0


def test_a_detached_alias_is_written_to(device):
    a = leaf([1.0, 2.0], device)
    out = a.tanh()
    out.detach().zero_()
    with pytest.raises(RuntimeError, match='TanhBackward0 needs its result'):
        out.sum().backward()


def test_rebound_parameter(device):
    w = leaf([1.0], device)
    (w * 3).sum().backward()
    new = w - 0.1 * w.grad
    assert not new.is_leaf
    (new * 3).sum().backward()
    with pytest.warns(UserWarning, match='retain_grad'):
        assert new.grad is None
    with no_grad():
        w -= 0.1 * w.grad
    assert w.is_leaf and w.requires_grad


def test_second_derivative(device):
    x = leaf([0.0, 1.0, 2.0], device)
    first, = grad((x ** 3).sum(), x, create_graph=True)
    second, = grad(first.sum(), x, create_graph=True)
    third, = grad(second.sum(), x)
    assert first.tolist() == [0.0, 3.0, 12.0]
    assert second.tolist() == [0.0, 6.0, 12.0]
    assert third.tolist() == [6.0, 6.0, 6.0]


def test_pow_at_zero(device):
    x, e = leaf([0.0, 2.0, 3.0], device), leaf([0.0, 1.0, 2.0], device)
    (x ** e).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 6.0]
    np.testing.assert_allclose(
        e.grad.tolist(), [0.0, 2 * np.log(2), 9 * np.log(3)], rtol=1e-6)
    x.grad = None
    (x ** 0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_gradient_dtype(device):
    x = leaf([1.0, 2.0], device)
    (x * 0.1 * np.float64(2)).mean().backward()
    assert x.grad.dtype is float32
    y = leaf([1.0, 2.0], device, float64)
    x.grad = None
    (x * y).sum().backward()
    assert x.grad.dtype is float32 and y.grad.dtype is float64


def test_only_one_operand_wants_a_gradient(device):
    a = lamina.tensor([1.0, 2.0], device=device)
    b, unused = leaf([2.0, 4.0], device), leaf(1.0, device)
    y = a / b
    y.sum().backward()
    assert b.grad.tolist() == [-0.25, -0.125]
    assert a.grad is None and unused.grad is None and y.requires_grad


def test_transpose_gradient(device):
    x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device)
    (x.t().reshape(-1) * lamina.arange(6.0, device=device)).sum().backward()
    assert x.grad.tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]


def test_in_place_through_a_view(device):
    x = leaf([1.0, 2.0, 3.0], device)
    y = x * 1
    v = y[1:]
    v *= 10
    y.sum().backward()
    assert y.tolist() == [1.0, 20.0, 30.0]
    assert x.grad.tolist() == [1.0, 10.0, 10.0]


def test_ties_share_the_gradient(device):
    x = leaf([[1.0, 2.0, 2.0]], device)
    x.amax(1).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.5, 0.5]]
    x.grad = None
    x.max(1).values.sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0]]


# --- grad mode ---------------------------------------------------------------

def test_grad_mode():
    x = leaf([1.0])
    with no_grad():
        assert not is_grad_enabled() and not (x * 2).requires_grad
        with enable_grad():
            assert (x * 2).requires_grad
        assert not is_grad_enabled()
    assert is_grad_enabled()
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert is_grad_enabled()


def test_set_grad_enabled():
    set_grad_enabled(False)
    try:
        assert not is_grad_enabled()
    finally:
        set_grad_enabled(True)
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_grad_mode_as_decorator():
    seen = []

    @no_grad()
    def f(n):
        seen.append(is_grad_enabled())
        if n:
            f(n - 1)
        seen.append(is_grad_enabled())

    @set_grad_enabled(False)
    def g():
        return is_grad_enabled()

    assert is_grad_enabled()
    f(2)
    assert seen == [False] * 6 and not g() and is_grad_enabled()
    assert f.__name__ == 'f'


def test_threads_have_their_own_mode():
    entered, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with no_grad():
            entered.set()
            leave.wait(10)
            seen.append(is_grad_enabled())

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(10)
    assert is_grad_enabled()
    leave.set()
    thread.join()
    assert seen == [False]


def test_threads_walk_their_own_graphs():
    found = {}

    def work(k):
        x = leaf([float(k)])
        for _ in range(20):
            x.grad = None
            y = x
            for _ in range(20):
                y = y * 1.0 + x
            y.sum().backward()
        found[k] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {k: [21.0] for k in range(4)}


# --- leaves, flags, properties -----------------------------------------------

def test_a_leaf():
    x = leaf([1.0])
    assert x.requires_grad and x.is_leaf and x.grad_fn is None
    assert x.grad is None and x.output_nr == 0
    plain = lamina.ones(1)
    assert plain.is_leaf and not plain.requires_grad
    assert plain.autograd is None
    y = x * 2
    assert not y.is_leaf and y.requires_grad
    assert y.grad_fn.name() == 'MulBackward0'
    assert repr(y) == 'tensor([2.], grad_fn=<MulBackward0>)'
    assert repr(x) == 'tensor([1.], requires_grad=True)'


def test_requires_grad_():
    x = lamina.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad = False
    assert not x.requires_grad and not (x * 2).requires_grad
    y = leaf([1.0]) * 2
    assert y.requires_grad_() is y
    with pytest.raises(RuntimeError, match='detach'):
        y.requires_grad_(False)


@pytest.mark.parametrize('dtype', ['bool', 'uint8', 'int32', 'int64'])
def test_integers_have_no_gradient(dtype):
    with pytest.raises(RuntimeError, match=f'floating-point.*{dtype}'):
        lamina.zeros(2, dtype=getattr(lamina.storage, dtype.replace(
            'bool', 'bool_'))).requires_grad_()
    assert not leaf([1.0]).long().requires_grad
    assert not (leaf([1.0]) > 0).requires_grad
    assert not leaf([1.0]).argmax().requires_grad


def test_setting_grad():
    x = leaf([1.0, 2.0])
    x.grad = lamina.ones(2)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]
    del x.grad
    assert x.grad is None
    with pytest.raises(TypeError, match='list'):
        x.grad = [1.0, 2.0]
    with pytest.raises(RuntimeError, match=r'\[2\].*\[3\]'):
        x.grad = lamina.ones(3)
    with pytest.raises(RuntimeError, match='float64'):
        x.grad = lamina.ones(2, dtype=float64)
    with pytest.raises(RuntimeError, match='python'):
        x.grad = lamina.ones(2, device='python')
    plain = lamina.ones(2)
    plain.grad = None
    plain.grad = lamina.ones(2)
    assert not plain.requires_grad and plain.grad.tolist() == [1.0, 1.0]


def test_leaves_do_not_share_a_gradient():
    a, b = leaf([1.0, 2.0]), leaf([1.0, 2.0])
    (a + b).sum().backward()
    a.grad.mul_(5)
    assert b.grad.tolist() == [1.0, 1.0]


def test_accumulation_keeps_the_tensor():
    x = leaf([1.0])
    (x * 2).sum().backward()
    first = x.grad
    (x * 2).sum().backward()
    assert x.grad is first and first.tolist() == [4.0]


@pytest.mark.parametrize('create_graph', [False, True])
@pytest.mark.parametrize('order', ['C', 'F', 'view', 'float64'])
def test_sums_on_the_way_write_to_no_gradient_but_their_own(
        device, order, create_graph):
    given = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    if order == 'F':
        given = given.t()
    elif order == 'view':
        given = given[0].expand(2, 2)
    elif order == 'float64':
        given = given.double()
    before = given.tolist()
    x = lamina.ones(2, 2, device=device, requires_grad=True)
    z, seen = x * 2, []
    for hooked in (y := [z * 1 for _ in range(3)]):
        hooked.register_hook(seen.append)
    total = z + z + sum(y) + z
    for times in (1, 2):
        total.backward(given, retain_graph=True, create_graph=create_graph)
        assert given.tolist() == before
        assert x.grad.tolist() == (given * 12 * times).tolist()
        assert len(seen) == 3 * times
        assert all(g.tolist() == before for g in seen)


def test_sums_on_the_way_for_each_of_several_results(device):
    x = lamina.ones(3, 2, device=device, requires_grad=True)
    a, b, c = x.unbind()
    (a + a + a + a * 2 + b * 3 + b + b).sum().backward()
    assert x.grad.tolist() == [[5.0, 5.0], [5.0, 5.0], [0.0, 0.0]]


def test_an_edge_leads_to_an_output_by_its_number(device):
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, low, high):
            return low * 2 + high * 3

    x = lamina.tensor([1.0, 5.0], device=device, requires_grad=True)
    low, high = Twice.apply(x)
    both = low.grad_fn
    assert (low * high).grad_fn.next_functions == ((both, 0), (both, 1))
    assert (high * 2).grad_fn.next_functions == ((both, 1),)
    assert (x * low).grad_fn.next_functions == ((edge_of(x)[0], 0),
                                                (both, 0))
    (low * 2 + high * 3 + high + high + high * low).sum().backward()
    assert x.grad.tolist() == [31.0, 79.0]


def test_the_slope_of_relu_has_a_gradient_of_zeros(device):
    x = lamina.tensor([1.0, -2.0, 3.0], device=device, requires_grad=True)
    slope, = lamina.autograd.grad(x.relu().sum(), x, create_graph=True)
    assert slope.tolist() == [1.0, 0.0, 1.0]
    (slope * slope).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    hidden = (x * 2).relu()
    slope, = lamina.autograd.grad((hidden * hidden).sum(), x,
                                  create_graph=True)
    x.grad = None
    slope.sum().backward()
    assert x.grad.tolist() == [8.0, 0.0, 8.0]


@pytest.mark.parametrize('rows', [0, 1, 5, 128, 129])
def test_the_sign_of_matmul_and_a_sum_of_rows_have_gradients(device, rows):
    x = lamina.ones(rows, 3, device=device, requires_grad=True)
    w = lamina.ones(3, 4, device=device, requires_grad=True)
    y = x @ w
    assert y.grad_fn.name() == 'MmBackward0'
    (y.sum(0) * 2).sum().backward()
    assert x.grad.tolist() == [[8.0] * 3] * rows
    assert w.grad.tolist() == [[2.0 * rows] * 4] * 3


def test_a_walk_from_nothing_does_nothing():
    assert lamina.autograd.backward([]) is None


def test_sums_on_the_way_are_logged():
    x = leaf([1.0, 2.0])
    y = (x + x + x + x).sum()
    with log_operators() as log:
        y.backward()
    assert sum('add' in str(line) for line in log) == 3


@pytest.mark.parametrize('own', [
    lambda add: lambda self, other, alpha: add(self, other, alpha),
    lambda add: lambda self, other, alpha, *, out=None:
        add(self, other, alpha, out=out)], ids=['plain', 'out'])
def test_sums_on_the_way_use_the_kernel_that_was_put_in_place(own):
    kernel = operators['add.Tensor'].kernels[dispatch.CPU]
    x, g = leaf([1.0, 2.0]), lamina.tensor([1.0, 2.0])
    y = x * 1
    z = y + y + y + y
    try:
        impl('add.Tensor', 'cpu')(own(kernel))
        z.backward(g)
    finally:
        impl('add.Tensor', 'cpu')(kernel)
    assert x.grad.tolist() == [4.0, 8.0] and g.tolist() == [1.0, 2.0]


def test_detach_and_detach_():
    x = leaf([1.0, 2.0])
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.storage is y.storage
    assert d.is_leaf and d.grad_fn is None
    assert y.detach_() is y and not y.requires_grad and y.is_leaf
    with pytest.raises(RuntimeError, match='view'):
        (x * 2)[0].detach_()


def test_detach_keeps_the_gradient():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.retain_grad()
    (y * 3).sum().backward()
    assert x.detach_().grad.tolist() == [6.0, 6.0] and not x.requires_grad
    assert y.detach_().grad.tolist() == [3.0, 3.0]


def test_a_frozen_leaf_gets_no_gradient():
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y, seen = (x * w).sum(), []
    w.register_post_accumulate_grad_hook(seen.append)
    w.requires_grad_(False)
    y.backward(retain_graph=True)
    assert x.grad.tolist() == [3.0, 4.0] and w.grad is None and not seen
    w.requires_grad_()
    y.backward()
    assert w.grad.tolist() == [1.0, 2.0] and seen == [w]


def test_a_frozen_leaf_is_saved_without_a_gradient():
    class Product(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            assert not b.requires_grad
            return g * b, None

    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    w.grad = lamina.zeros(2)
    w.requires_grad_(False)
    with graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        hooked = x * w
    for y in (Product.apply(x, w), hooked):
        x.grad = None
        first, = grad((y * y).sum(), x, create_graph=True)
        first.sum().backward()
        assert x.grad.tolist() == [18.0, 32.0]      # 2 w * w
        assert w.grad.tolist() == [0.0, 0.0]


def test_a_gradient_with_a_history_is_not_kept():
    x, w = leaf([1.0, 2.0], 'cpu'), leaf([3.0, 4.0], 'cpu')

    def hook(g):
        with enable_grad():
            return g * w

    x.register_hook(hook)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]
    assert not x.grad.requires_grad and x.grad.is_leaf


@pytest.mark.parametrize('write', [
    lambda c: c.t_(), lambda c: c.squeeze_(0), lambda c: c.unsqueeze_(0)])
def test_another_geometry_is_a_write_to_what_is_saved(write, device):
    x, c = leaf([[1.0], [2.0]], device), lamina.ones(1, 2, device=device)
    y = (x * c).sum()
    write(c)
    with pytest.raises(RuntimeError, match='version'):
        y.backward()


def test_retain_grad():
    x = leaf([1.0, 2.0])
    y = x * x
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    (y * 3).sum().backward()
    assert y.retains_grad and y.grad.tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [6.0, 12.0]
    x.retain_grad()
    assert not x.retains_grad
    with pytest.raises(RuntimeError, match='does not require'):
        lamina.ones(1).retain_grad()


def test_grad_of_no_leaf_warns():
    with pytest.warns(UserWarning, match='retain_grad'):
        assert (leaf([1.0]) * 2).grad is None
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert leaf([1.0]).grad is None
        y = leaf([1.0]) * 2
        y.grad = lamina.ones(1)         # as given, for a result too
        assert y.grad.item() == 1.0 and y.requires_grad


# --- backward and grad --------------------------------------------------------

def test_backward_of_several(device):
    x = leaf([1.0, 2.0], device)
    backward([(x * x).sum(), (x * 3).sum()])
    assert x.grad.tolist() == [5.0, 7.0]
    x.grad = None
    backward([x * x, (x * 3).sum()],
             [lamina.tensor([1.0, 10.0], device=device), None])
    assert x.grad.tolist() == [5.0, 43.0]


def test_backward_inputs():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    z = x * x
    (z * y).sum().backward(inputs=[x, z])
    assert x.grad.tolist() == [6.0, 16.0] and y.grad is None
    assert z.retains_grad and z.grad.tolist() == [3.0, 4.0]
    x.grad = None
    (x * y).sum().backward(inputs=[x, x])       # once
    assert x.grad.tolist() == [3.0, 4.0]
    with pytest.raises(RuntimeError, match='no inputs'):
        (x * y).sum().backward(inputs=[])


def test_backward_from_a_leaf():
    x = leaf(2.0)
    x.backward()
    assert x.grad.item() == 1.0
    assert grad(x, x)[0].item() == 1.0


def test_backward_with_create_graph():
    x = leaf([1.0, 2.0])
    (x ** 3).sum().backward(create_graph=True)
    first, x.grad = x.grad, None
    assert first.requires_grad
    first.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_grad_touches_no_leaf():
    x = leaf([1.0, 2.0])
    y = x * x
    by_y, by_x = grad((y * y).sum(), [y, x])
    assert by_y.tolist() == [2.0, 8.0] and by_x.tolist() == [4.0, 32.0]
    assert x.grad is None and not by_x.requires_grad


def test_grad_walks_only_what_leads_to_the_inputs():
    x, other = leaf([1.0]), leaf([1.0])
    y = x * x
    bad = other.exp()
    loss = (y + bad).sum()
    bad.detach().zero_()        # backward through exp would raise
    assert grad(loss, y)[0].tolist() == [1.0]
    assert grad(loss, x, retain_graph=True)[0].tolist() == [2.0]
    with pytest.raises(RuntimeError, match='ExpBackward0'):
        grad(loss, other)


def test_grad_calls_only_hooks_on_the_way():
    x, other, seen = leaf([1.0]), leaf([2.0]), []
    x.register_hook(lambda g: seen.append('x'))
    other.register_hook(lambda g: seen.append('other'))
    beside = other * 3
    beside.retain_grad()
    y = (x * beside).sum()
    assert grad(y, x, retain_graph=True)[0].tolist() == [6.0]
    assert seen == ['x'] and beside.grad is None
    y.backward()
    assert sorted(seen) == ['other', 'x', 'x'] and beside.grad.item() == 1.0


def test_grad_unused():
    x, unused = leaf([1.0]), leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match='input 1 of 2.*allow_unused'):
        grad((x * 2).sum(), [x, unused])
    assert grad((x * 2).sum(), [x, unused], allow_unused=True)[1] is None
    zeros, = grad((x * 2).sum(), [unused], materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match='input 0 does not require grad'):
        grad((x * 2).sum(), lamina.ones(1))


def test_no_gradient_is_passed_on_where_none_arrives():
    x = leaf([1.0, 2.0])

    class Stop(Node):
        def __init__(self, edge, output):
            self.start([edge], output)

        def apply(self, grads):
            return [None]

    y = x * 2
    z = y.detach().clone()
    lamina.autograd.set_history(z, Stop(edge_of(y), z))
    (z * 3).sum().backward()
    assert x.grad is None
    tail = y[1:]
    tail.mul_(2)                # a CopySlices and a view node in between
    z = tail.detach().clone()
    lamina.autograd.set_history(z, Stop(edge_of(tail), z))
    z.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize('call, error, words', [
    (lambda: lamina.ones(1).backward(), RuntimeError, 'does not require'),
    (lambda: leaf([1.0, 2.0]).backward(), RuntimeError, r'shape \[2\]'),
    (lambda: leaf([1.0]).backward(2.0), TypeError, 'float'),
    (lambda: leaf([1.0]).backward(lamina.ones(2)), RuntimeError,
     r'\[1\].*\[2\]'),
    (lambda: leaf([1.0]).backward(lamina.ones(1, device='python')),
     RuntimeError, "'cpu'.*'python'"),
    (lambda: backward([leaf([1.0])], [None, None]), RuntimeError,
     '1 tensors.*2 gradients'),
    (lambda: functions['add'](leaf([1.0]), 1, out=lamina.zeros(1)),
     RuntimeError, 'out='),
    (lambda: leaf([1.0]).numpy(), RuntimeError, 'detach'),
    (lambda: leaf([1.0]).add_(1), RuntimeError, 'a leaf that requires'),
    (lambda: leaf([1.0])[0].fill_(1), RuntimeError, 'a view of a leaf'),
])
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_backward_twice():
    x = leaf([1.0, 2.0])
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match='MulBackward0 a second.*retain'):
        loss.backward()
    kept = (x * x).sum()
    kept.backward(retain_graph=True)
    kept.backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_a_gradient_in_another_dtype_is_converted():
    x = leaf([1.0, 2.0])
    (x * 2).backward(lamina.tensor([1.0, 2.0], dtype=float64))
    assert x.grad.tolist() == [2.0, 4.0] and x.grad.dtype is float32


# --- versions, writes, views --------------------------------------------------

def test_a_saved_input_is_overwritten(device):
    x = leaf([1.0, 2.0], device)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match=r'MulBackward0.*version \d.*is at '
                                           r'version \d'):
        z.sum().backward()


def test_a_write_through_a_view_changes_the_version():
    z = (leaf([1.0, 2.0]) * 1).exp()
    z[:1].zero_()
    assert z._version == 1
    with pytest.raises(RuntimeError, match='ExpBackward0 needs its result'):
        z.sum().backward()


def test_a_write_to_its_own_argument(device):
    y = leaf([1.0, 2.0], device) * 1
    y.mul_(y)
    with pytest.raises(RuntimeError, match='MulBackward0 needs its other'):
        y.sum().backward()


def test_a_write_that_nobody_minds(device):
    x = leaf([1.0, 2.0], device)
    y = x + 1
    y.add_(1)
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_a_write_under_no_grad_is_caught_too():
    x = leaf([1.0, 2.0])
    loss = (x * x).sum()
    with no_grad():
        x.mul_(2)
    assert x.is_leaf and x.requires_grad
    with pytest.raises(RuntimeError, match='version'):
        loss.backward()


def test_filling_stops_the_gradient(device):
    x = leaf([1.0, 2.0], device)
    y = x * x
    y[0].fill_(7.0)
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 4.0]
    x.grad = None
    z = x * x
    z.zero_()
    z.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_a_plain_tensor_gets_a_history(device):
    buffer, w = lamina.ones(2, 2, device=device), leaf([1.0, 2.0], device)
    buffer[0] = w * 2
    buffer[1] = w * w
    assert buffer.requires_grad and not buffer.is_leaf
    (buffer * buffer).sum().backward()
    assert w.grad.tolist() == [8 + 4.0, 16 + 32.0]


def test_views_follow_their_base(device):
    x = leaf([1.0, 2.0, 3.0], device)
    y = x * 1
    head, tail = y[:2], y[1:]
    before = tail.grad_fn
    head *= 10
    assert tail.grad_fn is not before
    assert tail.grad_fn.name() == 'AsStridedBackward0'
    (tail * lamina.tensor([1.0, 5.0], device=device)).sum().backward()
    assert x.grad.tolist() == [0.0, 10.0, 5.0]


def test_a_view_of_a_transposed_result(device):
    x = leaf([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]], device)
    y = (x * 2).t()
    y[0] *= 3
    y.sum().backward()
    assert x.grad.tolist() == [[6.0, 2.0, 2.0], [6.0, 2.0, 2.0]]


def test_second_derivative_through_a_write(device):
    x, u = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    y = x * 1
    y.mul_(u * 1)
    first, = grad(y.sum(), u, create_graph=True)
    assert first.tolist() == [1.0, 2.0]
    assert grad(first.sum(), x)[0].tolist() == [1.0, 1.0]


def test_views_made_without_recording():
    y = leaf([1.0, 2.0]) * 1
    with no_grad():
        view = y[:1]
        part = view.unsqueeze(0)
        view.add_(1)
    for v in (view, part, view[0]):
        assert not v.requires_grad
        with pytest.raises(RuntimeError, match='made inside no_grad'):
            v.mul_(2)
    assert (view * 2).tolist() == [4.0]
    view.detach().mul_(2)


def test_detached_results_are_no_views():
    x = leaf([1.0, 2.0])
    y = x * 1
    y.detach()[0] = lamina.tensor(5.0)
    assert y.grad_fn.name() == 'MulBackward0'


# --- the table -----------------------------------------------------------------

def test_derivative_names_what_it_does_not_know():
    with pytest.raises(ValueError, match="'reslt'.*'result'"):
        derivative('exp', self=lambda grad, reslt: grad)
    with pytest.raises(ValueError, match="no argument 'othr'"):
        derivative('mul.Tensor', othr=lambda grad: grad)
    assert 'self' in derivatives['exp']


def test_a_new_operator():
    define('autograd_test_cube(Tensor self) -> Tensor', 'self ** 3.')
    impl('autograd_test_cube', 'cpu')(
        lambda self: lamina.from_numpy(self.detach().numpy() ** 3))
    try:
        x = leaf([1.0, 2.0])
        with pytest.raises(NotImplementedError, match='autograd_test_cube'):
            x.autograd_test_cube()
        with no_grad():
            assert x.autograd_test_cube().tolist() == [1.0, 8.0]
        derivative('autograd_test_cube',
                   self=lambda grad, self: 3 * grad * self * self)
        y = x.autograd_test_cube()
        assert y.grad_fn.name() == 'AutogradTestCubeBackward0'
        y.sum().backward()
        assert x.grad.tolist() == [3.0, 12.0]
    finally:
        for name in ('autograd_test_cube', 'autograd_test_cube.out'):
            operators.pop(name, None)
        functions.pop('autograd_test_cube', None)
        derivatives.pop('autograd_test_cube', None)
        del lamina.Tensor.autograd_test_cube


def test_only_what_a_formula_wants_is_saved():
    x, y = leaf([1.0, 2.0]), lamina.ones(2)
    node = (x * y).grad_fn
    assert node.recipe.names == ['other'] and not hasattr(node, 'self_')
    assert node.other_ is y             # an input as it is, and its version
    assert node.other_version == 0
    assert (x + y).grad_fn.recipe.names == []
    assert (x * 2.0).grad_fn.other_ == 2.0
    assert (x * x).grad_fn.next_functions == ((edge_of(x)[0], 0),) * 2


def test_to_save_a_tensor_makes_it_no_storage():
    x = leaf([1.0, 2.0])
    z = x * 2
    y = z * z
    assert z._storage is None and version_of(z) == z._version == 0
    z.detach().add_(1)                  # now there is one, and it is written
    assert version_of(z) == z._version == z.storage.version == 1
    with pytest.raises(RuntimeError, match='at version 0; .* at version 1'):
        y.sum().backward()


def test_plain_calls_are_not_recorded():
    x = lamina.ones(2)
    with log_operators() as log:
        y = x * 2
    assert log == ['mul.Tensor'] and y.autograd is None
    assert (leaf([1.0]) * 2).grad_fn is not None


def test_saved_tensor():
    x = leaf([1.0, 2.0])
    y = x * 1
    again = unpack(save(y), y.grad_fn, 'self')
    assert again is not y and again.storage is y.storage
    assert again.grad_fn is y.grad_fn
    (again,) = unpack_list(saved_list([x]), y.grad_fn, 'self')
    assert again is x                                   # an input stays itself
    view = (x * 1)[1:]              # a geometry, and no array yet
    assert unpack(save(view), view.grad_fn, 'self').tolist() == [2]
    with no_grad():                 # nobody asks for a gradient's gradient
        assert unpack(save(y), y.grad_fn, 'self').autograd is None


def test_a_leaf_takes_the_gradient_that_only_the_walk_holds():
    x, w, b = leaf([[1.0, 2.0]]), leaf([[3.0], [4.0]]), leaf([5.0])
    loss = (x @ w + b).sum()
    with log_operators() as log:
        loss.backward()
    assert 'clone' not in log and w.grad is not None
    y = x * 2
    y.retain_grad()                 # here somebody else holds it too
    (y + x).sum().backward()
    kept = y.grad.tolist()
    x.grad.add_(1)
    assert y.grad.tolist() == kept


def saved_bytes(root, others):
    """The bytes that the nodes behind a root have saved, each memory once,
    without that of `others`."""
    found, nodes, stack = {}, set(), [root]
    while stack:
        node = stack.pop()
        if node is None or node in nodes:
            continue
        nodes.add(node)
        stack += node.edges
        for _, entry in getattr(node, 'entries', lambda: ())():
            if isinstance(entry, tuple):
                storage = entry[2] if len(entry) == 5 else entry[0].storage
                found[storage.data_ptr()] = storage.nbytes()
    for x in others:
        found.pop(x.data_ptr(), None)
    return sum(found.values())


def test_the_memory_of_a_step_is_what_it_saves():
    size, depth = 256, 12
    x = lamina.ones(4 * size, size)
    weights = [lamina.full((size, size), 1 / size).requires_grad_()
               for _ in range(depth)]

    def forward():
        h = x
        for w in weights:
            h = (h @ w).relu()
        return h.sum()

    forward().backward()                # what is made once is there
    for w in weights:
        w.grad = None
    gc.collect()
    tracemalloc.start()
    loss = forward()
    held, _ = tracemalloc.get_traced_memory()
    needed = saved_bytes(loss.grad_fn, [x, *weights])
    loss.backward()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert needed == 4 * 4 * size * size * depth    # one result a layer
    assert held < 1.02 * needed
    assert peak < 1.2 * needed, peak / needed


def test_the_end_of_a_graph_outlives_the_name_of_its_leaf():
    x = leaf([1.0, 2.0])
    y = (x + x).sum()               # saves nothing, so nothing holds x
    end = y.grad_fn.next_functions[0][0].next_functions[0][0]
    assert end.variable is x
    del x
    y.backward()
    assert end.variable.grad.tolist() == [2, 2]
    assert end.variable.tolist() == [1, 2] and end.variable.is_leaf


@pytest.mark.parametrize('shape, target', [
    ((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3), (1, 1)), ((2, 3), ()),
    ((2, 3), (2, 3)), ((4, 1, 3), (1, 3)), ((0, 3), (1,)), ((), ())])
def test_sum_to(shape, target, device):
    found = sum_to(lamina.ones(shape, device=device), target)
    assert found.shape == target
    count = int(np.prod(shape, dtype=int)) / max(
        1, int(np.prod(target, dtype=int)))
    assert set(np.ravel(found.tolist())) == {float(count)}


@pytest.mark.parametrize('shape, target', [
    ((3,), (2, 3)), ((2, 3), (2,)), ((2,), (3,)), ((1,), (2,))])
def test_sum_to_refuses(shape, target):
    with pytest.raises(RuntimeError):
        sum_to(lamina.ones(shape), target)


def test_fit():
    found = fit(lamina.ones(2, 3, dtype=float64), (3,), float32)
    assert found.tolist() == [2.0, 2.0, 2.0] and found.dtype is float32


@settings(max_examples=40, deadline=None, derandomize=True)
@given(layouts(dtype=float64, overlap=False,
               shape=shapes(max_dims=3, max_size=3, min_size=1)))
def test_embed(layout):
    shape, strides, offset = layout.geometry
    size = len(layout.values)
    expected = np.zeros(size)
    np.add.at(expected, list(offsets(layout.geometry)),
              np.ravel(layout.array()))
    for on in DEVICES + ('meta',):
        found = functions['embed'](layout.on(on), (size,), strides, offset)
        assert found.shape == (size,) and str(found.device) == on
        if on != 'meta':
            np.testing.assert_allclose(found.tolist(), expected)
    x = lamina.from_numpy(expected)
    seen = read_from(x, layout.geometry)
    assert seen.tolist() == layout.array().tolist()
    assert put_back(seen, (size,), layout.geometry).tolist() == \
        expected.tolist()


def test_embed_adds_where_elements_meet(device):
    x = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert x.embed((3,), (1, 1), 0).tolist() == [1.0, 5.0, 4.0]
    assert x.embed((2,), (0, 1), 0).tolist() == [4.0, 6.0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(layouts(dtype=float32))
def test_collides_is_never_wrong_about_distinct_elements(layout):
    places = list(offsets(layout.geometry))
    if len(set(places)) < len(places):
        assert collides(layout.geometry)
    if layout.geometry == row_major(layout.geometry.shape):
        assert not collides(layout.geometry)
    if places:
        assert extent(layout.geometry) == max(places) + 1


def test_move_refuses_what_overlaps():
    twice = Geometry((2, 2), (0, 1), 0)
    with pytest.raises(RuntimeError, match='overlap.*clone'):
        move(lamina.ones(2), Geometry((2,), (1,), 0), twice)


def test_inverse_order():
    assert inverse_order((2, 0, 1)) == [1, 2, 0]


# --- ownership ------------------------------------------------------------------

@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def network():
    w, v = leaf([[0.5] * 3] * 3), leaf([0.1] * 3)

    def step(x):
        h = (x @ w + v).tanh()
        h = h * h.softmax(1)
        h[0] = h[0] * 2
        row = h[1:]
        row += v
        return ((h.exp() - 1) ** 2).mean() + h.amax(1).sum()

    return w, v, step


def test_a_graph_dies_with_its_result(without_collector):
    w, v, step = network()
    loss = step(lamina.ones(2, 3))
    watched, stack = {}, [loss.grad_fn]
    while stack:
        node = stack.pop()
        if id(node) not in watched:
            watched[id(node)] = weakref.ref(node)
            stack += [n for n, _ in node.next_functions if n is not None]
    node = None
    assert len(watched) > 15
    loss.backward()
    del loss
    left = [ref() for ref in watched.values() if ref() is not None]
    assert {id(node) for node in left} == {id(w.autograd), id(v.autograd)}
    assert w.grad is not None and v.grad is not None


def test_saved_memory_is_freed_by_backward(without_collector):
    x = leaf([1.0, 2.0])
    y = x.exp()
    storage = weakref.ref(y.storage)
    loss = (y * y).sum()
    del y
    assert storage() is not None
    loss.backward()
    assert storage() is None and loss.item() > 0


def test_no_garbage():
    w, v, step = network()
    gc.collect()
    for _ in range(3):
        step(lamina.ones(2, 3)).backward()
        first, = grad(step(lamina.ones(2, 3)), w, create_graph=True)
        first.sum().backward()
        w.grad = v.grad = None
    del first
    assert gc.collect() == 0


def test_ten_thousand_steps_do_not_grow(without_collector):
    w = leaf([0.5, -1.0])
    x = lamina.tensor([1.0, 2.0])

    def steps(count):
        for _ in range(count):
            ((w * x).exp() + w).sum().backward()
            w.grad = None

    steps(100)
    before = len(gc.get_objects())
    steps(10_000)
    assert len(gc.get_objects()) - before < 50


def test_a_leaf_and_its_node_die_together(without_collector):
    x = leaf([1.0])
    y = x * 2
    node, ref = weakref.ref(edge_of(x)[0]), weakref.ref(x)
    assert isinstance(node(), AccumulateGrad) and node().variable is x
    del x
    assert ref() is None and node() is not None     # y leads to it
    del y
    assert node() is None


def test_a_long_chain():
    x = y = leaf([1.0, 2.0])
    for _ in range(100_000):
        y = y + x
    y.sum().backward()
    assert x.grad.tolist() == [100_001.0, 100_001.0]
    del y


def test_accumulate_records_only_when_asked():
    meta = AutogradMeta(None)
    with no_grad():
        accumulate(meta, lamina.ones(1))
        first = meta.grad
        accumulate(meta, lamina.ones(1))
        assert meta.grad is first and first.tolist() == [2.0]
    accumulate(meta, leaf([1.0]) * 1)
    assert meta.grad is not first and meta.grad.requires_grad


def test_node_without_derivative():
    node = Node()
    assert repr(node) == '<Node>'
    with pytest.raises(NotImplementedError, match='Node'):
        node.apply([None])


@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_views_that_were_there_before_their_base_had_a_history(device):
    base = lamina.zeros(3, device=device)
    early, untouched = base[:2], base[2:]
    whole = base.view(3, 1)
    w = lamina.tensor(5.0, device=device, requires_grad=True)
    assert not early.requires_grad and early.is_leaf
    base[0] = w
    assert early.requires_grad and not early.is_leaf
    # torch 2.13: 3 * (d early.sum() + d (whole * 2).sum()) / dw = 9
    (3 * (early.sum() + (whole * 2).sum() + untouched.sum())).backward()
    assert w.grad.item() == 9
    early.mul_(w)                       # a write through a late view
    w.grad = None
    base.sum().backward()               # w * w + ...
    assert w.grad.item() == 10


def test_late_views_cost_nothing_once_their_base_is_gone():
    from lamina import dispatch
    before = dispatch.included
    base = lamina.zeros(3)
    w = lamina.tensor(5.0, requires_grad=True)
    base[0] = w
    assert dispatch.included != before
    base.sum().backward()
    del base
    assert dispatch.included == before


def test_a_tensor_is_not_its_own_gradient():
    x = leaf([1.])
    with pytest.raises(RuntimeError, match='its own gradient'):
        x.grad = x
    assert x.grad is None


def test_modes_around_generators():
    @no_grad()
    def steps():
        try:
            got = yield is_grad_enabled()
            yield got, is_grad_enabled()
        except KeyError:
            yield 'caught', is_grad_enabled()
        return 7
    it = steps()
    assert next(it) is False and is_grad_enabled()
    assert it.send(3) == (3, False) and is_grad_enabled()
    assert it.throw(KeyError()) == ('caught', False) and is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        next(it)
    assert end.value.value == 7

    @no_grad
    def bare(x):
        return x, is_grad_enabled()
    assert bare(2) == (2, False) and bare.__name__ == 'bare'


def test_relu_passes_the_gradient_at_nan(device):
    x = leaf([float('nan'), 0., -1., 2.], device)
    x.relu().sum().backward()
    assert x.grad.tolist() == [1., 0., 0., 1.]


@pytest.mark.parametrize('dtype', [lamina.float16, float32, float64])
@pytest.mark.parametrize('shape', [(), (0, 3), (6,), (7, 5), (2, 3, 4)])
def test_the_way_back_through_relu_chooses(shape, dtype, device):
    """Where the result is 0, no gradient passes, be it infinite or nan."""
    def filled(values):
        values = np.resize(values, math.prod(shape)).reshape(shape)
        return lamina.tensor(values.tolist(), dtype=dtype,
                             device=device).reshape(shape)
    y = filled([0., -0., math.nan, math.inf, 2.])
    grads = filled([math.inf, -math.inf, math.nan, 0., 1., -1.])
    views = [lambda x: x] if not shape else [
        lambda x: x, lambda x: x.movedim(0, -1), lambda x: x[..., ::2]]
    for view in views:
        a, b = view(grads), view(y)
        for grad_output in (a, a.clone(), lamina.full_like(a, math.inf)):
            found = functions['_relu_backward'](grad_output, b)
            assert found.dtype is dtype and found.shape == b.shape
            np.testing.assert_array_equal(found.tolist(), np.where(
                np.equal(b.tolist(), 0), 0, grad_output.tolist()))


def test_infinite_exponent_of_a_number(device):
    x = leaf([float('inf'), 2.], device)
    (0.5 ** x).sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), [0., .25 * np.log(.5)],
                               rtol=1e-6)


def test_retain_grad_survives_a_write(device):
    x = leaf([2.], device)
    y = x * 3
    y.retain_grad()
    y.mul_(5)
    (y * 7).sum().backward()
    assert y.retains_grad and y.grad.tolist() == [7.]
    assert x.grad.tolist() == [105.]


def test_an_operator_of_several_results_and_one_of_a_list():
    """`grad` is the first result's gradient, `grads` all of them; a list of
    tensors gets a list of gradients."""
    from lamina.autograd import derivative
    from lamina.dispatch import define, functions, operators

    def halves(self):
        return operators['halves'].result(self * 1, self * 10)

    def join(tensors, scale):
        total = tensors[0] * scale
        for x in tensors[1:]:
            total = total + x * scale
        return total

    define("halves(Tensor self) -> (Tensor low, Tensor high)",
           kernel=halves)
    define('join(Tensor[] tensors, float scale) -> Tensor', kernel=join)
    derivative('halves', self=lambda grads, high: sum(
        g * k for g, k in zip(grads, (1, 10)) if g is not None))
    derivative('join', tensors=lambda grad, tensors_shapes, scale: [
        grad * scale for _ in tensors_shapes])
    try:
        x = leaf([1.0, 2.0])
        low, high = functions['halves'](x)
        assert low.grad_fn is high.grad_fn and high.output_nr == 1
        (low + high * high).sum().backward()
        assert x.grad.tolist() == [1 + 2 * 10 * 10, 1 + 2 * 20 * 10]
        x.grad = None
        functions['halves'](x).high.sum().backward()
        assert x.grad.tolist() == [10, 10]
        x, y, z = leaf([1.0, 2.0]), lamina.ones(2), leaf([3.0, 4.0])
        functions['join']([x, y, z], 5.0).sum().backward()
        assert (x.grad.tolist(), z.grad.tolist()) == ([5, 5], [5, 5])
        with pytest.raises(TypeError, match='list or tuple of tensors'):
            functions['join'](x, 5.0)
        with pytest.raises(TypeError, match='list or tuple of tensors'):
            functions['join']([x, 3], 5.0)
    finally:
        for name in ('halves', 'join'):
            for table in (operators, functions, lamina.autograd.derivatives):
                table.pop(name, None)
            if hasattr(lamina.Tensor, name):
                delattr(lamina.Tensor, name)


# --- modes and classes of chapter 3 ------------------------------------------

def test_what_a_mode_does_is_recorded():
    class Tripled(lamina.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 3 if func.schema.name == 'mul' else result

    x = leaf([1.0, 2.0], 'cpu')
    with Tripled():
        y = x * x
    assert y.tolist() == [3.0, 12.0]
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_a_mode_sees_the_operators_of_backward():
    class Names(lamina.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.schema.name)
            return func(*args, **(kwargs or {}))

    names = []
    x = leaf([1.0, 2.0], 'cpu')
    y = x.exp().sum()
    with Names():
        y.backward()
    assert 'mul' in names and x.grad.tolist() == x.exp().tolist()


def test_gradients_flow_through_a_class_around_a_tensor():
    class Boxed:
        def __init__(self, value):
            self.value = value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            plain = [a.value if isinstance(a, cls) else a for a in args]
            return cls(func(*plain, **(kwargs or {})))

    x = leaf([1.0, -2.0], 'cpu')
    lamina.sum(lamina.abs(x + Boxed(x))).value.backward()
    assert x.grad.tolist() == [2.0, -2.0]


def test_a_view_that_became_a_leaf_is_not_written_to():
    x = lamina.arange(4.0).view(2, 2).requires_grad_()
    with pytest.raises(RuntimeError, match='a leaf'):
        x.mul_(2)
    with pytest.raises(RuntimeError, match='a view of a leaf'):
        x[0].mul_(2)


def test_gradients_of_joins_and_indices():
    def gradient(call):
        x = lamina.arange(6.0).view(2, 3).requires_grad_()
        y = call(x)
        weights = lamina.arange(float(y.numel())).view(y.shape)
        (y * weights).sum().backward()
        return x.grad.tolist()

    assert gradient(lambda x: x[[0, 0, 1]]) == [[3, 5, 7], [6, 7, 8]]
    assert gradient(lambda x: x[x > 3]) == [[0, 0, 0], [0, 0, 1]]
    assert gradient(lambda x: lamina.cat([x, x[:1]])) == [
        [6, 8, 10], [3, 4, 5]]
    assert gradient(lambda x: x.flip(1)) == [[2, 1, 0], [5, 4, 3]]
    assert gradient(lambda x: x.unfold(1, 2, 1)) == [[0, 3, 3], [4, 11, 7]]
    assert gradient(lambda x: x[:, :2].diagonal()) == [[0, 0, 0], [0, 1, 0]]
    assert gradient(lambda x: x.roll(1, 1)) == [[1, 2, 0], [4, 5, 3]]
    assert gradient(lambda x: x.split(2, 1)[1]) == [[0, 0, 0], [0, 0, 1]]

    def written(x):
        y = x * 1
        y[[0]] = x[1] * 2
        return y

    assert gradient(written) == [[0, 0, 0], [3, 6, 9]]


def test_std_of_equal_elements_has_no_slope():
    x = lamina.tensor([2.0, 2.0], requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    y = lamina.tensor([1.0, 3.0], requires_grad=True)
    y.std(correction=0).backward()
    assert y.grad.tolist() == [-0.5, 0.5]


# --- hooks -----------------------------------------------------------------


def test_hooks_on_tensors(device):
    x = leaf([1.0, 2.0], device)
    log = []
    first = x.register_hook(lambda g: log.append(g.tolist()))
    second = x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: log.append(g.tolist()))
    (x * x + x).sum().backward()
    assert log == [[3.0, 5.0], [6.0, 10.0]]     # the sum, once
    assert x.grad.tolist() == [6.0, 10.0]
    first.remove()
    second.remove()
    second.remove()
    log.clear()
    (x * x).sum().backward()
    assert log == [[2.0, 4.0]]


def test_a_hook_on_a_result_changes_what_goes_on():
    x = leaf([1.0, 2.0])
    y = x * 3
    with y.register_hook(lambda g: g * 10):
        y.retain_grad()
        g, = grad((y * y).sum(), [x], retain_graph=True)
        assert g.tolist() == [180.0, 360.0]
        assert grad((y * y).sum(), [y])[0].tolist() == [60.0, 120.0]
    (y * y).sum().backward()
    assert y.grad.tolist() == [126.0, 252.0]    # all three walks


def test_hooks_refuse():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="does not require grad"):
        lamina.ones(2).register_hook(print)
    with pytest.raises(TypeError, match="a hook is a function; got int"):
        x.register_hook(3)
    with x.register_hook(lambda g: g[:1]), pytest.raises(
            RuntimeError, match=r"shape \[2\].*returned \[1\]"):
        (x * x).sum().backward()
    with x.register_hook(lambda g: 1.0), pytest.raises(
            TypeError, match="returned float"):
        (x * x).sum().backward()
    with pytest.raises(RuntimeError, match="only a leaf"):
        (x * x).register_post_accumulate_grad_hook(print)


def test_post_accumulate_hooks():
    x = leaf([1.0, 2.0])
    seen = []

    def hook(p):
        assert p is x
        seen.append(p.grad.tolist())
        p.grad = None

    x.register_post_accumulate_grad_hook(hook)
    (x * x).sum().backward()
    (x * x).sum().backward(inputs=[x])
    grad((x * x).sum(), [x])
    assert seen == [[2.0, 4.0]] * 2 and x.grad is None


def test_hooks_on_nodes():
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    node = (y := x * w).grad_fn
    log = []
    node.register_prehook(lambda outputs: (outputs[0] * 2,))
    node.register_hook(lambda inputs, outputs: log.append(
        ([g.tolist() for g in inputs], outputs[0].tolist())))
    node.register_hook(lambda inputs, outputs: (inputs[0] + 1, None))
    y.sum().backward()
    assert log == [([[6.0, 8.0], [2.0, 4.0]], [2.0, 2.0])]
    assert x.grad.tolist() == [7.0, 9.0] and w.grad.tolist() == [2.0, 4.0]
    node = (y := x * w).grad_fn
    node.register_hook(lambda inputs, outputs: inputs[:1])
    with pytest.raises(RuntimeError, match="given 2 gradients, and retu"):
        y.sum().backward()


# --- data and inference mode -----------------------------------------------


def test_data_is_memory_without_history(device):
    x = leaf([1.0, 2.0], device)
    y = (x * x).sum()
    x.data.mul_(3)
    assert x._version == 0 and x.tolist() == [3.0, 6.0]
    y.backward()
    assert x.grad.tolist() == [6.0, 12.0]       # wrong, and on purpose
    x.data = lamina.tensor([[1.0, 2.0, 3.0]], device=device)
    x.grad = None
    assert x.shape == (1, 3) and x.requires_grad and x.is_leaf
    (x * 2).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3]
    x.data -= x.grad
    assert x.tolist() == [[-1.0, 0.0, 1.0]]
    with pytest.raises(TypeError, match="got float"):
        x.data = 3.0
    with pytest.raises(RuntimeError, match="int64"):
        x.data = lamina.tensor([1], device=device)


def test_inference_mode(device):
    x = leaf([1.0, 2.0], device)
    with lamina.inference_mode():
        y = x * 2
        assert lamina.is_inference_mode_enabled()
        assert not lamina.is_grad_enabled() and y.is_inference()
        y += 1
        with lamina.inference_mode(False):
            assert not lamina.is_inference_mode_enabled()
    assert lamina.is_grad_enabled() and not y.requires_grad
    assert not (x * 2).is_inference()
    with pytest.raises(RuntimeError, match="made in inference_mode"):
        x * y
    with pytest.raises(RuntimeError, match="outside of it"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="outside of it"):
        y[:1].add_(1)
    (x + y).sum().backward()                # saves nothing
    (x * y.clone()).sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]
    z = x * 1
    z.add_(y)[:1].add_(y[:1])               # nor does this
    assert z.tolist() == [7.0, 7.0]
    with pytest.raises(RuntimeError, match="would save"):
        (x * 1).mul_(y)
    with pytest.raises(RuntimeError, match="would save"):
        (x * 1)[:1].mul_(y[:1])
    with pytest.raises(RuntimeError, match="outside of it"):
        lamina.mul(y.clone(), 2, out=y)
    with pytest.raises(RuntimeError, match="would save"):
        Scaled.apply(y, x, [])

    @lamina.inference_mode
    def doubled(x):
        return x * 2

    assert doubled(x).is_inference()


# --- functions -------------------------------------------------------------


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor, note):
        ctx.save_for_backward(x, factor)
        ctx.note = note
        return x * factor

    @staticmethod
    def backward(ctx, g):
        x, factor = ctx.saved_tensors
        ctx.note.append(ctx.needs_input_grad)
        return g * factor, (g * x).sum(), None


def test_function(device):
    x, note = leaf([1.0, 2.0], device), []
    factor = lamina.tensor(3.0, device=device)
    y = Scaled.apply(x, factor, note)
    assert y.grad_fn.name() == "ScaledBackward" and not y.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and note == [(True, False, False)]
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()
    assert not Scaled.apply(factor, factor, note).requires_grad
    with pytest.raises(RuntimeError, match="call its apply"):
        Scaled()


def test_a_function_has_derivatives_of_every_order():
    x = leaf([1.0, 2.0], dtype=float64)
    f = leaf(3.0, dtype=float64)
    assert gradcheck(lambda x, f: Scaled.apply(x, f, []), [x, f])
    assert gradgradcheck(lambda x, f: Scaled.apply(x, f, []), [x, f])


def test_a_function_with_several_results(device):
    class SinCos(Function):
        @staticmethod
        def forward(ctx, x):
            s, c = x.sin(), x.cos()
            ctx.save_for_backward(s, c)
            return s, c, "note"

        @staticmethod
        def backward(ctx, gs, gc, _):
            s, c = ctx.saved_tensors
            return gs * c - gc * s

    x = leaf([0.3, 1.2], device, float64)
    s, c, note = SinCos.apply(x)
    assert note == "note" and s.grad_fn is c.grad_fn
    s.sum().backward()                      # c brings zeros
    assert x.grad.tolist() == pytest.approx(x.cos().tolist())
    assert gradcheck(lambda x: SinCos.apply(x)[:2], [x])


def test_what_a_function_saved_is_watched():
    x = leaf([1.0, 2.0])
    h = x * 1
    y = Scaled.apply(h, lamina.tensor(2.0), [])
    h.add_(1)
    with pytest.raises(RuntimeError, match="ScaledBackward needs its saved "
                       "tensor 0"):
        y.sum().backward()


def test_a_function_leaves_no_cycle(without_collector):
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return g * y

    x = leaf([1.0])
    y = Exp.apply(x)
    assert gradgradcheck(Exp.apply, [leaf([0.5], dtype=float64)])
    ref = weakref.ref(y.grad_fn)
    del y
    assert ref() is None


@pytest.mark.parametrize("answer, error, words", [
    (lambda g: (g, g), RuntimeError, "returned 2 gradients.*there are 1"),
    (lambda g: g[:1].expand(5), RuntimeError, r"shapes \[5\] and \[2\]"),
    (lambda g: 3.0, TypeError, "returned float"),
    (lambda g: {}["x"], KeyError, "x"),
])
def test_what_backward_may_return(answer, error, words):
    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return answer(g)

    x = leaf([1.0, 2.0])
    with pytest.raises(error, match=words):
        Made.apply(x).sum().backward()


def test_marks_of_a_function():
    class Write(Function):
        @staticmethod
        def forward(ctx, x, flag):
            i = x.argsort()
            x.mul_(2)
            ctx.mark_dirty(x)
            ctx.mark_non_differentiable(i)
            ctx.set_materialize_grads(flag)
            return x, i, x.sum()

        @staticmethod
        def backward(ctx, g, gi, gs):
            seen.append(gs if gs is None else gs.tolist())
            return g * 2, None

    seen, x = [], leaf([2.0, 1.0])
    for flag in (True, False):
        y = x * 1
        out, i, _ = Write.apply(y, flag)
        assert out is y and y.grad_fn.name() == "WriteBackward"
        assert not i.requires_grad
        out.sum().backward()
    assert seen == [0.0, None] and x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="a leaf that requires grad"):
        Write.apply(x, True)


def test_setup_context_and_passing_an_input_through():
    class Through(Function):
        @staticmethod
        def forward(x, k):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    x = leaf([1.0])
    y = Through.apply(x, 5)
    assert y is not x and x.is_leaf and not y.is_leaf
    y.backward()
    assert x.grad.tolist() == [5.0]


def test_once_differentiable():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return lamina.tensor([2 * a for a in x.tolist()]) * g

    x = leaf([3.0])
    g, = grad(Square.apply(x), [x], create_graph=True)
    assert g.tolist() == [6.0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.backward()
    Square.apply(x).backward()
    assert x.grad.tolist() == [6.0]


# --- forward mode, jacobians -----------------------------------------------


FORWARD_MODE = {
    "exp": lambda a: a.exp(),
    "mul": lambda a, b: a * b[0] + b / a[:, :1],
    "mm": lambda a, b: a.mm(b.t()),
    "softmax": lambda a: a.softmax(1),
    "cat": lambda a, b: lamina.cat([a, lamina.ones(2, 3, dtype=float64), b]),
    "stack of detached": lambda a, b: lamina.stack([a, b.detach()]),
    "sort": lambda a: a.sort(1)[0],
    "pow": lambda a, b: a ** b,
    "std": lambda a: a.std(),
    "round": lambda a: a.round() + a,
    "to": lambda a: a.to(lamina.float32),
    "index": lambda a: a[:, lamina.tensor([0, 0, 2])].t()[1:],
    "linear": lambda a: -a.cumsum(0).flip(1).tril().mean(0, keepdim=True),
    "triu": lambda a: a.triu().clone().sum(1),
}


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode(name, device):
    f = FORWARD_MODE[name]
    if device == "python" and name == "cat":
        pytest.skip("the ones in it are on the cpu")
    count = f.__code__.co_argcount
    numbers = [0.3, 0.9, 0.45, 0.7, 0.2, 0.6]
    xs = [lamina.tensor([numbers[k:] + numbers[:k]], dtype=float64,
                        device=device).reshape(2, 3) for k in range(count)]
    vs = [x.cos() for x in xs]
    if name == "index" and device == "python":
        return
    _, expected = functional.jvp(f, tuple(xs), tuple(vs))
    with forward_ad.dual_level():
        y = f(*map(forward_ad.make_dual, xs, vs))
        primal, tangent = forward_ad.unpack_dual(y)
        assert forward_ad.unpack_dual(primal).tangent is None
    assert not tangent.requires_grad and tangent.dtype is y.dtype
    assert tangent.reshape(-1).tolist() == pytest.approx(
        expected.reshape(-1).tolist(), rel=1e-6, abs=1e-9)


def test_forward_over_reverse():
    x = leaf([0.5, 1.5], dtype=float64)
    v = lamina.tensor([1.0, -1.0], dtype=float64)

    def f(x):
        return (x ** 3).sum() * x.exp().sum()

    with forward_ad.dual_level():
        slope = forward_ad.unpack_dual(f(forward_ad.make_dual(x, v))).tangent
        found, = grad(slope, [x])
    assert found.tolist() == pytest.approx(
        functional.hvp(f, x, v)[1].tolist())


def test_forward_mode_refuses():
    x = lamina.ones(2)
    with pytest.raises(RuntimeError, match="inside `with dual_level"):
        forward_ad.make_dual(x, x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x * 2)
        with pytest.raises(RuntimeError, match="open already"):
            forward_ad.dual_level().__enter__()
        with pytest.raises(NotImplementedError, match="add_.*dual tensor"):
            dual.add_(1)
        with pytest.raises(RuntimeError, match=r"\[2\].*\[3\]"):
            forward_ad.make_dual(x, lamina.ones(3))
        with pytest.raises(NotImplementedError, match="Scaled"):
            Scaled.apply(dual, dual, [])
    assert not dual.keys & autograd.FORWARD and not autograd.tangents
    assert forward_ad.unpack_dual(dual).tangent is None


def test_jacobian_and_hessian():
    x = lamina.tensor([1.0, 2.0], dtype=float64)
    y = lamina.tensor([3.0, 4.0, 5.0], dtype=float64)
    by_x, by_y = functional.jacobian(lambda x, y: x.sum() * y, (x, y))
    assert by_x.tolist() == [[3.0] * 2, [4.0] * 2, [5.0] * 2]
    assert by_y.tolist() == [[3.0, 0, 0], [0, 3.0, 0], [0, 0, 3.0]]
    a, b = functional.jacobian(lambda x: (x * 2, x.sum()), x)
    assert a.tolist() == [[2.0, 0], [0, 2.0]] and b.tolist() == [1.0, 1.0]
    (xx, xy), (yx, yy) = functional.hessian(
        lambda x, y: (x ** 2).sum() * y.sum(), (x, y))
    assert xx.tolist() == [[24.0, 0], [0, 24.0]]
    assert xy.tolist() == [[2.0] * 3, [4.0] * 3] == yx.t().tolist()
    assert yy.tolist() == [[0.0] * 3] * 3
    with pytest.raises(RuntimeError, match="a Hessian is that of one"):
        functional.hessian(lambda x: x * 2, x)
    with pytest.raises(NotImplementedError, match="vectorize"):
        functional.jacobian(lambda x: x, x, vectorize=True)
    with pytest.raises(RuntimeError, match="not depend on input"):
        functional.jacobian(lambda x, y: x * 2, (x, y), strict=True)


def test_products_with_the_jacobian_and_the_hessian():
    x = lamina.tensor([1.0, 2.0], dtype=float64)
    v = lamina.tensor([3.0, -1.0], dtype=float64)
    out, got = functional.vjp(lambda x: x * x, x, v)
    assert out.tolist() == [1.0, 4.0] and got.tolist() == [6.0, -4.0]
    assert not out.requires_grad and not got.requires_grad
    assert functional.jvp(lambda x: x.sum() * x, x, v)[1].tolist() == [
        11.0, 1.0]
    for product in (functional.hvp, functional.vhp):
        out, got = product(lambda x: (x ** 3).sum(), x, v)
        assert out.item() == 9.0 and got.tolist() == [18.0, -12.0]
    x.requires_grad_()
    _, got = functional.vjp(lambda x: (x * x).sum(), x, create_graph=True)
    assert grad(got.sum(), [x])[0].tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="v has to be given"):
        functional.vjp(lambda x: x, x)
    with pytest.raises(RuntimeError, match=r"\[\[3\]\].*\[\[2\]\]"):
        functional.hvp(lambda x: x.sum(), x, lamina.ones(3))


# --- anomaly mode, checkpoints ---------------------------------------------


def test_anomaly_mode_names_the_line(device):
    x = leaf([0.0, 4.0], device)
    with detect_anomaly():
        assert is_anomaly_enabled()
        y = x.sqrt() * 0.0              # this line
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
    words = str(caught.value)
    assert "SqrtBackward0 gave nan as its gradient 0" in words
    assert words.rstrip().endswith("y = x.sqrt() * 0.0              "
                                   "# this line")
    assert not is_anomaly_enabled()
    (x.sqrt() * 0.0).sum().backward()       # nobody looks
    y = x.sqrt() * 0.0
    with detect_anomaly(), pytest.raises(RuntimeError, match="not known"):
        y.sum().backward()
    with detect_anomaly(check_nan=False):
        y.sum().backward()


def test_anomaly_mode_says_where_what_failed_was_recorded():
    x = leaf([1.0])
    with set_detect_anomaly(True):
        y = x * 1
        z = y * y
        y += 1
        with pytest.raises(RuntimeError, match="version") as caught:
            z.backward()
    assert any("z = y * y" in note for note in caught.value.__notes__)
    assert not autograd.recorded_at or z.grad_fn in autograd.recorded_at


def test_python_reads_a_nodes_attributes_the_short_way():
    kind = type((leaf([1.0]) * 2).grad_fn)
    for name in ('__getattr__', '__getattribute__'):
        assert getattr(kind, name, None) is getattr(object, name, None)


def test_saved_tensors_can_be_seen():
    x = leaf([1.0, 2.0])
    y = (x * 3.0).exp()
    node = y.grad_fn
    assert node._saved_result.tolist() == y.tolist()
    assert node.next_functions[0][0]._saved_other == 3.0
    assert (x * x).grad_fn._saved_self is x
    with pytest.raises(AttributeError, match="no attribute '_saved_slef'"):
        (x * x).grad_fn._saved_slef
    assert [t.tolist() for t in lamina.atan2(x, x).grad_fn._saved_self
            ] == x.tolist()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        node._saved_result


def test_saved_tensors_hooks(device):
    x = leaf([1.0, 2.0], device, float64)
    packed = []

    def pack(t):
        packed.append(t.tolist())
        return t.detach()

    def f(x):
        y = x * 1
        y[:1].mul_(x[1:])
        return (y.exp() * y).sum() + lamina.cat([x, y]).prod()

    expected = grad(f(x), [x])[0].tolist()
    with graph.saved_tensors_hooks(pack, lambda t: t.clone()):
        y = f(x)
    assert packed and grad(y, [x])[0].tolist() == expected
    with graph.saved_tensors_hooks(pack, lambda t: t.clone()):
        assert gradgradcheck(f, [x])
    with graph.saved_tensors_hooks(pack, lambda t: None):
        y = x * x
    with pytest.raises(TypeError, match="returns a tensor; got NoneType"):
        y.sum().backward()


def test_checkpoint(device):
    calls = []

    def part(x, w):
        calls.append(1)
        return (x.exp() * w).tanh() * x

    x, w = leaf([0.1, 0.2], device), leaf([0.3, 0.4], device)
    expected = [g.tolist() for g in grad(part(x, w).sum(), [x, w])]
    calls.clear()
    y = checkpoint(part, checkpoint(part, x, w), w)
    assert len(calls) == 2
    y.sum().backward()
    assert len(calls) == 4
    plain = part(part(x, w), w).sum()
    for g, found in zip(grad(plain, [x, w]), (x.grad, w.grad)):
        assert g.tolist() == pytest.approx(found.tolist())
    nested = checkpoint(lambda x: checkpoint(part, x, w) * 1.0, x)
    for g, e in zip(grad(nested.sum(), [x, w]), expected):
        assert g.tolist() == pytest.approx(e)
    with lamina.no_grad():
        assert not checkpoint(part, x, w).requires_grad
    with pytest.raises(NotImplementedError, match="use_reentrant=False"):
        checkpoint(part, x, w, use_reentrant=True)


def test_checkpoint_keeps_nothing(without_collector):
    x = leaf([0.5] * 4)
    refs = []

    def part(x):
        y = x.exp()
        refs.append(weakref.ref(y.storage))
        return y.sin()

    y = checkpoint(part, x)
    assert refs[0]() is None
    y.sum().backward()
    assert refs[1]() is None


def test_checkpoint_of_a_function_that_changes():
    state = []

    def part(x):
        state.append(1)
        return x.exp() if len(state) > 1 else x.sin().exp()

    x = leaf([1.0])
    y = checkpoint(part, x)
    with pytest.raises(RuntimeError, match="the same each time"):
        y.backward()


@pytest.mark.parametrize('call', [
    lambda v: lamina.cat([v, v]), lambda v: lamina.stack((v, v)),
    lambda v: Scaled.apply(v, lamina.tensor(2.0, device=v.device), []),
    lambda v: v.requires_grad_() * 2], ids=['cat', 'stack', 'apply', 'mul'])
def test_a_view_made_before_its_base_had_a_history(call, device):
    w = leaf([2.0, 3.0], device)
    base = lamina.ones(2, 2, device=device)
    view = base[0]
    base.mul_(w)
    y = call(view)
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 2.0] and not view.is_leaf


def test_checkpoint_of_an_argument_that_is_written_to(device):
    x, c = leaf([1.0, 2.0], device), lamina.ones(2, device=device)
    y = checkpoint(lambda x, c: x.sin() * c, x, c)
    c.zero_()
    with pytest.raises(RuntimeError, match="argument of shape .2.*clone"):
        y.sum().backward()


def test_a_function_saves_views(device):
    class Product(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b                # looks at their arrays

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b.t(), g * a[:]

    x = leaf([1.0, 2.0, 3.0, 4.0], device)
    w = lamina.tensor([10.0, 20.0, 30.0, 40.0], device=device)
    Product.apply(x[2:], w[2:]).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 30.0, 40.0]
    x.grad = None
    Product.apply(x.view(2, 2).t()[1], w.view(2, 2).t()[1].detach()
                  ).sum().backward()
    assert x.grad.tolist() == [0.0, 20.0, 0.0, 40.0]


def test_saved_tensors_hooks_and_a_product_with_itself(device):
    x = leaf([1.0, 2.0], device)
    y = x * 1
    with graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        y.mul_(y)
    assert y.tolist() == [1.0, 4.0]
    with pytest.raises(RuntimeError, match='version'):
        y.sum().backward()


def test_saved_tensors_hooks_and_the_result_of_a_write_to_a_view(device):
    x = leaf([1.0, 4.0, 9.0], device)
    y = x * 1
    with graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        y[1:].sqrt_()
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([1.0, 1 / 4, 1 / 6])


def test_saved_tensors_hooks_see_writes_to_views():
    x, w, packed = leaf([1.0, 2.0]), leaf([3.0]), []
    y = x * 1
    with graph.saved_tensors_hooks(
            lambda x: packed.append(x.tolist()) or x, lambda x: x):
        y[:1].mul_(w)
    y.sum().backward()
    assert [3.0] in packed and x.grad.tolist() == [3.0, 1.0]


def test_modules_that_are_made():
    import lamina.autograd.functional as found
    from lamina.utils.checkpoint import checkpoint as other
    assert found is functional and other is checkpoint
    with pytest.raises(AttributeError, match="did you mean 'jacobian'"):
        found.jacobien


def test_is_grads_batched_is_refused():
    x = leaf([1.0])
    with pytest.raises(NotImplementedError, match="is_grads_batched"):
        grad(x * 2, x, is_grads_batched=True)
    with pytest.raises(ValueError, match="materialize_grads"):
        grad(x * 2, x, allow_unused=False, materialize_grads=True)


def test_pieces_of_a_split_are_written_to():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    y.unbind(0)[0].mul_(5)
    y.split(1)[1].mul_(x[0])
    y.sum().backward()
    assert x.grad.tolist() == [[5.0 + 3, 5.0 + 4], [1.0, 2.0]]


def test_after_an_error_in_backward_nothing_is_left(without_collector):
    x = leaf([1.0, 2.0])

    def boom(g):
        raise ValueError("boom")

    y = x.exp()
    memory = weakref.ref(y.storage)
    z = y.tanh()
    y.register_hook(boom)
    with pytest.raises(ValueError, match="boom"):
        z.sum().backward()
    node = weakref.ref(z.grad_fn)
    del y, z
    assert node() is None and memory() is None


def test_a_gradient_that_nobody_else_holds_is_not_copied():
    """And one that somebody holds is: `.grad` is written to later."""
    x, y = leaf([1.0, 2.0], 'cpu'), leaf([3.0, 4.0], 'cpu')
    (x * y).sum().backward()        # two products, each for one leaf
    made = [x.grad.array, y.grad.array]
    assert all(a.flags.owndata for a in made)
    z = x + y                       # one gradient for both, and ours too
    mine = lamina.ones(2)
    x.grad = y.grad = None
    z.backward(mine)
    held = [mine, x.grad, y.grad]
    assert len({a.storage.data_ptr() for a in held}) == 3
    w = leaf([1.0, 2.0], 'cpu')
    u = w * 2
    u.retain_grad()
    v = u * 3
    v.retain_grad()
    v.sum().backward()
    w.grad.zero_()
    assert u.grad.tolist() == [3, 3] and v.grad.tolist() == [1, 1]
    t = leaf([1.0, 2.0, 3.0], 'cpu')
    t.reshape(3, 1).backward(lamina.ones(3, 1))     # a view of ours
    t.grad.zero_()
    s = lamina.ones(3, 1)
    t.grad = None
    t.reshape(3, 1).backward(s)
    t.grad.zero_()
    assert s.tolist() == [[1], [1], [1]]


def test_only_a_write_that_backward_refuses_closes_a_circle():
    def graph(write):
        x = leaf([1.0, 2.0]) * 1
        w = leaf([3.0, 4.0])
        y = x * w                       # saves x and w
        if write:
            x.add_(y)
            with pytest.raises(RuntimeError, match='version'):
                x.sum().backward()
        return weakref.ref(x)

    gc.collect()
    gc.disable()
    try:
        assert graph(write=False)() is None
        circle = graph(write=True)
    finally:
        gc.enable()
    gc.collect()
    assert circle() is None
