"""Chapter 9: random numbers, modules and losses.

The numbers under "PyTorch" were computed with torch 2.13 in float64.
"""

import copy
import gc
import json
import math
import pickle
import sys
import warnings
import weakref

import nn_cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import float_dtypes, layouts, shapes

import lamina
import lamina.nn as nn
import lamina.nn.functional as F

F64 = lamina.float64


def close(a, b, tol=1e-12):
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=tol, atol=tol)


# Random numbers

# From kat_vectors of the authors' library, Random123: counter, key, result.
KNOWN = [
    ((0,) * 4, (0,) * 2, '6627e8d5 e169c58d bc57ac4c 9b00dbd8'),
    ((0xffffffff,) * 4, (0xffffffff,) * 2,
     '408f276d 41c83b0e a20bc7c6 6d5451fd'),
    ((0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
     (0xa4093822, 0x299f31d0), 'd16cfe09 94fdcceb 5001e420 24126ea1'),
]


@pytest.mark.parametrize('counter, key, result', KNOWN)
def test_philox_gives_the_published_words(counter, key, result):
    words = nn.philox(counter, key)
    assert ' '.join(f'{w:08x}' for w in words) == result
    arrays = nn.philox([np.array([c, 0], np.uint64) for c in counter], key)
    assert ' '.join(f'{w[0]:08x}' for w in arrays) == result


@pytest.mark.parametrize('seed', [0, 1, 2 ** 64 - 1, 0x0123456789abcdef])
@pytest.mark.parametrize('count', [0, 1, 4, 7, 1000])
def test_words_are_the_same_without_numpy(seed, count, monkeypatch):
    def draw():
        g = nn.Generator(seed)
        g.position = 2 ** 32 - 2        # the counter carries over
        return (list(nn.random_words(g, count)),
                list(nn.random_pairs(g, count)),
                list(nn.uniform_values(g, count, F64)),
                list(nn.uniform_values(g, count, lamina.float32, -1.5, 2.)),
                list(nn.normal_values(g, count)), g.position)
    fast = draw()
    monkeypatch.setattr(nn, 'np', None)
    assert draw() == fast


def test_the_stream_is_read_in_order():
    whole = list(nn.random_words(nn.Generator(5), 40))
    g = nn.Generator(5)
    assert [*nn.random_words(g, 16), *nn.random_words(g, 24)] == whole
    assert g.position == 10
    assert len(set(whole)) == 40


def test_seeds():
    for seed in (0, 7, -1, -2 ** 63, 2 ** 64 - 1):
        assert nn.Generator(seed).initial_seed() == seed % 2 ** 64
    assert nn.manual_seed(3) is nn.default_generator
    assert nn.manual_seed(3).position == 0
    for wrong in (1.0, 'x', None, True):
        with pytest.raises(TypeError, match='seed is an int'):
            nn.manual_seed(wrong)
    for wrong in (2 ** 64, -2 ** 63 - 1):
        with pytest.raises(ValueError, match='64 bits'):
            nn.manual_seed(wrong)


def test_a_state_goes_on_from_where_it_was():
    g = nn.Generator(12)
    nn.rand(5, generator=g)
    state = g.get_state()
    assert state.dtype is lamina.uint8 and state.shape == (16,)
    first = nn.randn(9, generator=g).tolist()
    assert nn.randn(9, generator=g).tolist() != first
    other = nn.Generator(0).set_state(state)
    assert other.initial_seed() == 12
    assert nn.randn(9, generator=other).tolist() == first
    for wrong in (lamina.zeros(16), state[:15], None):
        with pytest.raises(RuntimeError, match='uint8 tensor of 16'):
            g.set_state(wrong)


@pytest.mark.parametrize('draw', [nn.rand, nn.randn])
@pytest.mark.parametrize('dtype', [lamina.float32, F64])
def test_draws_are_the_same_on_both_devices(draw, dtype):
    nn.manual_seed(4)
    a = draw(3, 5, dtype=dtype)
    nn.manual_seed(4)
    b = draw(3, 5, dtype=dtype, device='python')
    assert a.tolist() == b.tolist()
    assert (a.dtype, a.shape, str(b.device)) == (dtype, (3, 5), 'python')
    before = nn.default_generator.position
    assert draw(2, device='meta').shape == (2,)
    assert nn.default_generator.position == before


def test_rand_is_even():
    for dtype, unit in ((lamina.float32, 2 ** -24), (F64, 2 ** -53)):
        x = nn.rand(20_000, dtype=dtype, generator=nn.Generator(1)).numpy()
        assert 0 <= x.min() < 1e-3 and 1 - 1e-3 < x.max() < 1
        assert np.array_equal(x / unit, np.round(x / unit))
        counts = np.histogram(x, 20, (0, 1))[0]
        assert counts.min() > 850 and counts.max() < 1150   # 5 sigma


def test_randn_is_normal():
    z = nn.randn(40_000, dtype=F64, generator=nn.Generator(2)).numpy()
    assert abs(z.mean()) < .03 and abs(z.std() - 1) < .02
    assert abs((z ** 3).mean()) < .08 and abs((z ** 4).mean() - 3) < .2
    assert abs((z < -1).mean() - 0.1587) < .01
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < .03


def test_in_place_draws():
    x = lamina.zeros(4, 6)
    view = x.t()[1:3]
    assert view.uniform_(2, 3, generator=nn.Generator(0)) is view
    found = x.numpy()
    assert (found[:, 1:3] >= 2).all() and (found[:, 1:3] <= 3).all()
    assert (np.delete(found, [1, 2], 1) == 0).all()
    rows = nn.rand(2, 4, generator=nn.Generator(0)).numpy()
    close(found[:, 1:3].T, rows + 2, 1e-6)
    version = x._version
    x.normal_(10, 0)
    assert x._version > version and x.tolist() == [[10.] * 6] * 4
    with pytest.raises(RuntimeError, match='low=1, high=0'):
        x.uniform_(1, 0)
    with pytest.raises(RuntimeError, match='got -1'):
        x.normal_(0, -1)
    with pytest.raises(NotImplementedError, match='int64'):
        lamina.zeros(2, dtype=lamina.int64).uniform_()
    with pytest.raises(NotImplementedError, match='int32'):
        nn.rand(2, dtype=lamina.int32)
    w = lamina.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match='no_grad'):
        w.uniform_()
    assert nn.rand(2, requires_grad=True).requires_grad


def test_randint_and_randperm():
    x = nn.randint(-3, 4, (2000,), generator=nn.Generator(0))
    assert x.dtype is lamina.int64
    counts = np.unique(x.numpy(), return_counts=True)
    assert counts[0].tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert counts[1].min() > 200
    assert set(nn.randint(2, (50,)).tolist()) == {0, 1}
    with pytest.raises(RuntimeError, match='low=3, high=3'):
        nn.randint(3, 3, (2,))
    for n in (0, 1, 2, 100):
        p = nn.randperm(n)
        assert p.dtype is lamina.int64 and sorted(p.tolist()) == [*range(n)]
    g = nn.Generator(3)
    seen = [tuple(nn.randperm(3, generator=g).tolist()) for _ in range(1200)]
    assert min(seen.count(order) for order in set(seen)) > 140
    assert len(set(seen)) == 6
    with pytest.raises(RuntimeError, match=r'randperm\(-1\)'):
        nn.randperm(-1)


# Parameters and modules

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(lamina.ones(2))
        self.body = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        self.register_buffer('seen', lamina.zeros(1))
        self.note = 'plain'

    def forward(self, x, shift=0.0):
        return self.body(x) * self.scale + shift


def test_parameter():
    x = lamina.ones(2, 3)
    p = nn.Parameter(x)
    assert isinstance(p, lamina.Tensor) and p.requires_grad and p.is_leaf
    assert p.storage is x.storage and not x.requires_grad
    assert repr(p).startswith('Parameter containing:\ntensor(')
    for made in (p * 2, p.t(), p.detach(), p.clone(), p.sum()):
        assert type(made) is lamina.Tensor
    with lamina.no_grad():
        p.add_(1)
    assert type(p) is nn.Parameter and x.tolist() == [[2.] * 3] * 2
    assert not nn.Parameter(x, requires_grad=False).requires_grad
    (p * p).sum().backward()
    assert p.grad.tolist() == [[4.] * 3] * 2
    with pytest.raises(TypeError, match='list'):
        nn.Parameter([1.])
    with pytest.raises(RuntimeError, match='floating'):
        nn.Parameter(lamina.tensor([1]))
    assert type(lamina.ones(1, 2) @ nn.Parameter(lamina.ones(2, 3))) is (
        lamina.Tensor)


def test_attributes_register():
    net = Net()
    names = ['scale', 'body.0.weight', 'body.0.bias']
    assert [n for n, _ in net.named_parameters()] == names
    assert [id(p) for p in net.parameters()] == [
        id(net.scale), id(net.body[0].weight), id(net.body[0].bias)]
    assert [n for n, _ in net.named_buffers()] == ['seen']
    assert list(net.buffers())[0] is net.seen
    assert [n for n, _ in net.named_children()] == ['body']
    assert [n for n, _ in net.named_modules()] == ['', 'body', 'body.0',
                                                   'body.1']
    assert list(net.modules())[0] is net
    assert [n for n, _ in net.named_parameters('net', recurse=False)] == [
        'net.scale']
    assert net.note == 'plain' and {'scale', 'seen', 'body'} <= set(dir(net))


def test_assignment_over_what_is_there():
    net = Net()
    with pytest.raises(TypeError, match="Tensor as parameter 'scale'"):
        net.scale = lamina.ones(2)
    with pytest.raises(TypeError, match="int as module 'body'"):
        net.body = 3
    with pytest.raises(TypeError, match="float as buffer 'seen'"):
        net.seen = 1.0
    net.seen = new = lamina.ones(1)
    assert net.seen is new and net.state_dict()['seen'].item() == 1
    net.scale = None
    assert net.scale is None and 'scale' not in net.state_dict()
    net.scale = nn.Parameter(lamina.zeros(2))
    assert [n for n, _ in net.named_parameters()][0] == 'scale'
    net.note = nn.Parameter(lamina.zeros(1))    # the plain one is gone
    assert 'note' in dict(net.named_parameters())
    assert 'note' not in vars(net)
    net.note = nn.ReLU()                        # a name has one place
    assert 'note' not in dict(net.named_parameters())
    del net.note
    with pytest.raises(AttributeError, match="no attribute 'note'"):
        net.note
    with pytest.raises(AttributeError, match="did you mean 'scale'"):
        net.scales
    with pytest.raises(AttributeError):
        del net.nothing


@pytest.mark.parametrize('what', ['parameter', 'module'])
def test_without_init(what):
    class Forgetful(nn.Module):
        def __init__(self):
            self.x = (nn.Parameter(lamina.ones(1)) if what == 'parameter'
                      else nn.ReLU())
    with pytest.raises(AttributeError, match=(
            rf'cannot assign {what}s? before Module.__init__\(\) call')):
        Forgetful()


def test_registering_by_name():
    m = nn.Module()
    m.register_parameter('bias', None)
    m.register_buffer('mean', None)
    m.add_module('inner', nn.ReLU())
    assert m.bias is None and m.mean is None
    assert list(m.parameters()) == [] and list(m.state_dict()) == []
    for name in ('a.b', '', 3):
        with pytest.raises(KeyError, match='cannot be a name'):
            m.register_buffer(name, None)
    with pytest.raises(KeyError, match='already exists'):
        m.register_buffer('forward', None)
    for call, wrong in ((m.register_parameter, lamina.ones(1)),
                        (m.register_buffer, 1), (m.add_module, 1)):
        with pytest.raises(TypeError, match="'x' must be"):
            call('x', wrong)


def test_shared_parameters_come_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert set(net.state_dict()) == {'0.weight', '0.bias', '1.weight',
                                     '1.bias'}
    twice = nn.Sequential(net, net)
    assert len(list(twice.modules())) == 4
    assert len(list(twice.parameters())) == 3


def test_modes_and_gradients():
    net = Net()
    assert net.training
    assert net.eval() is net and not any(m.training for m in net.modules())
    assert net.train() is net and all(m.training for m in net.modules())
    net(lamina.ones(2, 3)).sum().backward()
    grad = net.scale.grad
    assert grad.shape == (2,)
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0., 0.]
    assert net.scale.grad.storage is grad.storage
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert net.scale.grad is None
    assert net.requires_grad_(False) is net
    assert not net(lamina.ones(2, 3)).requires_grad
    order = []
    assert net.apply(lambda m: order.append(type(m).__name__)) is net
    assert order == ['Linear', 'ReLU', 'Sequential', 'Net']


def test_call():
    net = Net()
    x = lamina.ones(2, 3)
    assert (net(x, shift=1.0) == net(x) + 1).all()
    with pytest.raises(NotImplementedError, match='Module has no forward'):
        nn.Module()(x)


def test_repr():
    assert repr(Net()) == '''\
Net(
  (body): Sequential(
    (0): Linear(in_features=3, out_features=2, bias=True)
    (1): ReLU()
  )
)'''
    assert repr(nn.Flatten()) == 'Flatten(start_dim=1, end_dim=-1)'


# State

def test_state_goes_over():
    nn.manual_seed(0)
    a, b = Net(), Net()
    x = nn.rand(4, 3)
    assert (a.body[0].weight == b.body[0].weight).all().item() is False
    state = a.state_dict()
    assert list(state) == ['scale', 'seen', 'body.0.weight', 'body.0.bias']
    assert state['scale'].storage is a.scale.storage
    assert not state['scale'].requires_grad
    held = b.scale
    keys = b.load_state_dict(state)
    assert keys == ([], []) and keys.missing_keys == []
    assert b.scale is held and (a(x) == b(x)).all()
    with lamina.no_grad():
        a.scale.fill_(7)
    assert state['scale'].tolist() == [7., 7.]      # shared
    assert b.scale.tolist() == [1., 1.]             # copied


def test_what_does_not_fit_is_listed_and_changes_nothing():
    net = Net()
    before = {k: v.tolist() for k, v in net.state_dict().items()}
    state = {'scale': lamina.zeros(2), 'body.0.weight': lamina.zeros(2, 4),
             'body.0.bais': lamina.zeros(2), 'seen': 3}
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    for part in ("fit Net", "missing: 'body.0.bias', of shape [2]",
                 "unexpected: 'body.0.bais'; did you mean 'body.0.bias'?",
                 "shape: 'body.0.weight' is [2, 4] in the state, and "
                 "[2, 3] in the module", "no tensor: 'seen' is of type int"):
        assert part in str(error.value)
    assert {k: v.tolist() for k, v in net.state_dict().items()} == before
    with pytest.raises(RuntimeError, match='shape'):
        net.load_state_dict(state, strict=False)
    keys = net.load_state_dict({'scale': lamina.zeros(2), 'more': 1},
                               strict=False)
    assert keys.unexpected_keys == ['more'] and len(keys.missing_keys) == 3
    assert net.scale.tolist() == [0., 0.]


# Layers

@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_linear(device):
    layer = nn.Linear(3, 2, dtype=F64, device=device)
    w, b = np.array(layer.weight.tolist()), np.array(layer.bias.tolist())
    x = np.arange(24.).reshape(2, 4, 3)
    out = layer(lamina.tensor(x, device=device))
    close(out.tolist(), x @ w.T + b)
    out.sum().backward()
    close(layer.weight.grad.tolist(), [x.sum((0, 1))] * 2)
    close(layer.bias.grad.tolist(), [8., 8.])
    free = nn.Linear(3, 2, bias=False)
    assert free.bias is None and len(list(free.parameters())) == 1
    assert 'bias=False' in repr(free)
    with pytest.raises(RuntimeError, match=(
            r'in_features=3.*shape \[\.\.\., 3\]; got \[3, 4\]')):
        layer(lamina.ones(3, 4, device=device))
    assert layer(lamina.ones(3, dtype=F64, device=device)).shape == (2,)


def test_linear_begins_at_the_right_scale():
    nn.manual_seed(1)
    layer = nn.Linear(400, 300)
    for p in layer.parameters():
        x = p.detach().numpy()
        assert np.abs(x).max() <= 1 / 20
        assert abs(x.std() - 1 / 20 / math.sqrt(3)) < 3e-3
    nn.manual_seed(1)
    assert (nn.Linear(400, 300).weight == layer.weight).all()


def test_small_layers():
    x = lamina.tensor([[-1., 2.], [0., -3.]], requires_grad=True)
    assert nn.ReLU()(x).tolist() == [[0., 2.], [0., 0.]]
    close(nn.Tanh()(x).tolist(), np.tanh(x.detach().numpy()), 1e-6)
    y = lamina.zeros(2, 3, 4)
    assert nn.Flatten()(y).shape == (2, 12)
    assert nn.Flatten(0, 1)(y).shape == (6, 4)


def test_sequential():
    a, b = nn.Linear(2, 3), nn.ReLU()
    net = nn.Sequential(a, b)
    assert len(net) == 2 and list(net) == [a, b]
    assert net[0] is a and net[-1] is b
    assert list(net[1:]) == [b] and type(net[:1]) is nn.Sequential
    x = lamina.ones(4, 2)
    assert (net(x) == a(x).relu()).all()
    assert net.append(nn.Linear(3, 1)) is net and net(x).shape == (4, 1)
    with pytest.raises(IndexError, match='3 of a Sequential of 3'):
        net[3]
    named = nn.Sequential({'first': a, 'second': b})
    assert list(named.state_dict()) == ['first.weight', 'first.bias']
    assert named.second is b
    with pytest.raises(TypeError, match='must be a Module'):
        nn.Sequential(a, len)
    assert nn.Sequential()(x) is x
    assert net.pop() and len(net) == 2
    assert net.insert(0, b) is net and list(net) == [b, a, b]
    del net[0]
    net[1] = c = nn.Tanh()
    assert list(net) == [a, c] and list(net._modules) == ['0', '1']
    assert len(net.extend([b, b])) == 4


# Losses

LOGITS = [[1., -2., .5], [0., 3., -1.]]
PYTORCH = {
    'mean': (2.0352404030498565, 0.5), 'sum': (4.070480806099713, 1.0),
    'none': ([1.0045969023422834, 3.0658839037574293], 1.0)}
GRADIENT = [[0.6037488961486258, 0.030058887569574023, -0.6338077837181998],
            [-0.9533873774220261, 0.9362395518765058, 0.017147825545520388]]


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('reduction', list(PYTORCH))
def test_cross_entropy_is_pytorchs(reduction, device):
    x = lamina.tensor(LOGITS, dtype=F64, device=device, requires_grad=True)
    target = lamina.tensor([2, 0], device=device)
    loss = nn.cross_entropy(x, target, reduction=reduction)
    value, factor = PYTORCH[reduction]
    close(loss.tolist(), value)
    loss.sum().backward()
    close(x.grad.tolist(), np.array(GRADIENT) * factor)
    again = nn.CrossEntropyLoss(reduction=reduction)(x, target)
    assert again.tolist() == loss.tolist()
    close(nn.nll_loss(x.log_softmax(1), target,
                      reduction=reduction).tolist(), value)


def test_cross_entropy_does_not_overflow():
    x = lamina.tensor([[1000., -1000.], [-1000., 1000.], [200., 0.]],
                      requires_grad=True)
    loss = nn.cross_entropy(x, lamina.tensor([0, 0, 1]), reduction='none')
    assert loss.tolist() == [0., 2000., 200.]
    loss.sum().backward()
    assert x.grad.tolist() == [[0., 0.], [-1., 1.], [1., -1.]]
    x = lamina.tensor([[-math.inf, 1., 2.]], requires_grad=True)  # ruled out
    loss = nn.cross_entropy(x, lamina.tensor([1]))
    loss.backward()
    close(loss.item(), 1.3132617, 1e-6)
    close(x.grad.tolist(), [[0., -.7310586, .7310586]], 1e-6)


def test_cross_entropy_against_finite_differences():
    x = np.array(LOGITS)
    target = lamina.tensor([1, 1])

    def loss(values):
        return nn.cross_entropy(lamina.tensor(values), target).item()
    t = lamina.tensor(x, requires_grad=True)
    nn.cross_entropy(t, target).backward()
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        slope = (loss(up) - loss(down)) / 2e-6
        assert abs(slope - t.grad.numpy()[i]) < 1e-8


def test_cross_entropy_refuses():
    x, t = lamina.zeros(2, 3), lamina.tensor([0, 1])
    for bad, found in (([0, 3], 3), ([-1, 0], -1)):
        with pytest.raises(IndexError, match=(
                f'target {found} is out of range: there are 3 classes')):
            nn.cross_entropy(x, lamina.tensor(bad))
    with pytest.raises(ValueError, match=r'one target.*\[2, 3\] and \[3\]'):
        nn.cross_entropy(x, lamina.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match=r'\(N, C\).*got \[2, 3\]'):
        nn.cross_entropy(x, lamina.zeros(2, 3, dtype=lamina.int64))
    with pytest.raises(ValueError, match=r'\(N, C\)'):
        nn.cross_entropy(x[0], t)
    for dtype in (lamina.int32, lamina.float32):
        with pytest.raises(RuntimeError, match=rf'{dtype}.*target\.long'):
            nn.cross_entropy(x, t.to(dtype))
    with pytest.raises(ValueError, match="'avg'"):
        nn.cross_entropy(x, t, reduction='avg')
    with pytest.raises(TypeError, match="'target' must be a Tensor, not list"):
        nn.cross_entropy(x, [0, 1])
    with pytest.raises(TypeError):
        nn.cross_entropy(x, t, smoothing=0.1)
    meta = nn.cross_entropy(x.to('meta'), t.to('meta'))
    assert meta.shape == () and str(meta.device) == 'meta'


def test_mse_loss_module():
    a, b = lamina.tensor([1., 2.]), lamina.tensor([3., 2.])
    assert nn.MSELoss()(a, b).item() == 2
    assert nn.MSELoss(reduction='sum')(a, b).item() == 4
    assert nn.MSELoss(reduction='none')(a, b).tolist() == [4., 0.]


def test_modules_leave_no_cycles():
    gc.collect()
    gc.disable()
    try:
        net = Net()
        nn.cross_entropy(net(lamina.ones(2, 3)),
                         lamina.tensor([0, 1])).backward()
        gone = [weakref.ref(net), weakref.ref(net.scale)]
        del net
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


def test_a_state_that_cannot_be_loaded():
    layer = nn.Linear(2, 1)
    before = layer.weight.tolist()
    state = {'weight': lamina.ones(1, 2, device='python'),
             'bias': lamina.empty(1, device='meta')}
    with pytest.raises(RuntimeError, match="'bias' is on 'meta'"):
        layer.load_state_dict(state)
    assert layer.weight.tolist() == before
    state['bias'] = lamina.zeros(1, device='python')
    layer.load_state_dict(state)
    assert layer.weight.tolist() == [[1., 1.]]
    for wrong in [('weight', 1)], {1: lamina.ones(1)}:
        with pytest.raises(TypeError, match='dict of str'):
            layer.load_state_dict(wrong)


@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_draws_refuse_overlap(device):
    x = lamina.zeros(1, device=device).expand(3)
    for draw in x.uniform_, x.normal_:
        with pytest.raises(RuntimeError, match='one element in memory'):
            draw()


@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_ignored_targets(device):
    x = lamina.tensor([[1., 2.], [3., 5.], [0., 0.]], dtype=F64,
                      device=device, requires_grad=True)
    target = lamina.tensor([0, -100, 1], device=device)
    first, last = math.log(1 + math.e), math.log(2)
    for loss, want in ((nn.cross_entropy(x, target,
                                          reduction='none').tolist(),
                        [first, 0., last]),
                       (nn.cross_entropy(x, target,
                                         reduction='sum').item(),
                        first + last),
                       (nn.cross_entropy(x, target).item(),
                        (first + last) / 2)):
        close(loss, want)
    nn.cross_entropy(x, target).backward()
    assert x.grad[1].tolist() == [0., 0.]
    close(x.grad[2].tolist(), [.25, -.25])
    none = lamina.full((3,), -100, device=device, dtype=lamina.int64)
    assert math.isnan(nn.cross_entropy(x, none).item())
    close(nn.cross_entropy(x, lamina.tensor([0, 1, 1], device=device),
                           reduction='sum', ignore_index=1).item(), first)


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('reduction', list(PYTORCH))
@pytest.mark.parametrize('ignored', [-100, 1])
@pytest.mark.parametrize('shape', [(6, 3), (1, 1), (3,), (2, 3, 4), (0, 3)])
def test_numpys_losses_are_the_loops(shape, ignored, reduction, dtype):
    """The kernels of nll_loss on cpu, by those of the device python."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(*shape, 2)).astype(dtype)
    logits[..., :1, :1] = math.inf
    classes = rng.integers(0, min(shape[-1], 3), shape[:1] + shape[2:] + (2,))
    if len(shape) == 1:
        classes = classes[0]
    for place in (0, 1):            # with an infinity, or without; strided
        x = lamina.from_numpy(logits)[..., place].requires_grad_()
        target = lamina.from_numpy(classes)[..., place]
        both = []
        for device in ('cpu', 'python'):
            loss = F.nll_loss(x.to(device), target.to(device),
                              ignore_index=ignored, reduction=reduction)
            found, = lamina.autograd.grad(loss.sum() * -3, x)
            both.append((loss.tolist(), found.tolist()))
        for fast, slow in zip(*both):
            np.testing.assert_allclose(fast, slow, 1e-6)


# Against PyTorch's numbers: see nn_cases.py

WANT = json.loads(nn_cases.VALUES.read_text(encoding='utf-8'))
SHORT_CONSTANTS = 'celu', 'CELU', 'ardsigmoid'  # PyTorch's are float32


def agrees(got, want, tol):
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(
            agrees(got[key], want[key], tol) for key in want)
    if isinstance(want, list):
        return len(got) == len(want) and all(
            agrees(a, b, tol) for a, b in zip(got, want))
    if want != want:
        return got != got
    return got == want or abs(got - want) <= 1e-12 + tol * abs(want)


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('name', list(WANT))
def test_it_is_pytorchs(name, device):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        found = nn_cases.cases(nn_cases.Bench(lamina, device))[name]()
    tol = 1e-6 if any(part in name for part in SHORT_CONSTANTS) else 1e-11
    assert agrees(found, WANT[name], tol), (found, WANT[name])


def test_every_case_has_its_numbers():
    assert list(nn_cases.cases(nn_cases.Bench(lamina))) == list(WANT)


class OnMeta(nn_cases.Bench):
    """Only the shapes of the results."""

    def x(self, *shape, **options):
        return super().x(*shape, **options).to(self.device)

    def t(self, *args):
        return nn_cases.Bench(self.T).t(*args).to(self.device)

    def module(self, made):
        return made.to(self.device).double()

    def look(self, out, *leaves):
        return out.shape


def test_meta_knows_the_shapes():
    here, there = (nn_cases.cases(OnMeta(lamina, device))
                   for device in ('cpu', 'meta'))
    for name in here:
        if name not in ('what batch norm remembers', 'one_hot',
                        'places of max_pool2d'):
            assert there[name]() == here[name](), name


VIEWED = {name: (getattr(F, name), options)
          for name, (_, options) in nn_cases.ACTIVATIONS.items()
          if name != 'glu'}
VIEWED |= {
    'normalize': (F.normalize, {'dim': 0}), 'l1': (F.l1_loss, None),
    'mse': (F.mse_loss, None), 'smooth': (F.smooth_l1_loss, None),
    'huber': (F.huber_loss, None), 'logits': (
        F.binary_cross_entropy_with_logits, None),
    'pad': (F.pad, {'pad': (2, -1, 1, 0), 'value': 3.0}),
    'layer_norm': (lambda x: F.layer_norm(x, x.shape[-1:]), {}),
    'rms_norm': (lambda x: F.rms_norm(x, x.shape[-1:]), {}),
    'group_norm': (lambda x: F.group_norm(x, 1), {}),
}


@given(st.data())
@settings(max_examples=150)
def test_devices_agree_on_strided_views(data):
    name = data.draw(st.sampled_from(list(VIEWED)))
    function, options = VIEWED[name]
    layout = data.draw(layouts(dtype=float_dtypes(),
                               shape=shapes(min_dims=2, max_dims=3,
                                            min_size=1)))
    found = []
    for device in ('cpu', 'python', 'meta'):
        x = layout.on(device)
        args = (x, x.flip(0)) if options is None else (x,)
        found.append(function(*args, **options or {}))
    cpu, python, meta = found
    assert cpu.shape == python.shape == meta.shape
    assert cpu.dtype is python.dtype is meta.dtype
    tol = {2: 2e-2, 4: 1e-5, 8: 1e-11}[cpu.dtype.itemsize]
    np.testing.assert_allclose(np.array(cpu.tolist()),
                               np.array(python.tolist()), tol, tol * 10)


# Modules that can be imported

def test_submodules_are_found():
    assert sys.modules['lamina.nn.functional'] is nn.functional is F
    from lamina.nn.functional import gelu
    from lamina.nn.init import zeros_
    assert gelu is F.gelu and zeros_ is nn.init.zeros_
    assert 'gelu' in F.__all__ and F.gelu.__doc__.startswith('x times')
    assert lamina.nn.functional.linear(
        lamina.ones(2), lamina.ones(1, 2)).tolist() == [2.]


def test_a_name_that_is_not_there():
    for module, name, near in (
            (F, 'gelo', "did you mean 'gelu'"), (nn, 'Linaer', "'Linear'"),
            (nn.init, 'kaiming_unform_', "'kaiming_uniform_'")):
        with pytest.raises(AttributeError, match=near) as error:
            getattr(module, name)
        assert 'Where Lamina differs' in str(error.value)
    with pytest.raises(ImportError):
        from lamina.nn.functional import fold   # noqa: F401
    assert not hasattr(F, '__path__')


@pytest.mark.parametrize('name', ['relu', 'gelu', 'cross_entropy', 'conv2d',
                                  'layer_norm', 'dropout'])
def test_functions_want_tensors(name):
    for wrong in ('abc', None, [1.]):
        with pytest.raises(TypeError, match=(
                rf"{name}\(\): argument 'input' must be a Tensor, not "
                rf"{type(wrong).__name__}")):
            getattr(F, name)(wrong)


@pytest.mark.parametrize('name', ['elu', 'gelu', 'softplus', 'mish', 'glu'])
def test_functions_of_floats(name):
    with pytest.raises(NotImplementedError, match=rf'{name}.*int64'):
        getattr(F, name)(lamina.tensor([1, 2]))


def test_a_branch_that_is_not_taken_gives_no_nan():
    for f in (F.elu, F.selu, F.celu, F.softplus, F.silu, F.mish,
              F.logsigmoid, F.gelu):
        x = lamina.tensor([-800., -90., 0., 90., 800.], requires_grad=True)
        y = f(x)
        y.sum().backward()
        for values in (y.tolist(), x.grad.tolist()):
            assert all(map(math.isfinite, values)), (f, values)


def test_inplace_activations():
    for f in (F.relu, F.elu, F.leaky_relu, F.silu, F.relu6, F.hardtanh,
              F.hardswish):
        w = lamina.tensor([-2., 0.3, 8.], requires_grad=True)
        x = w * 1
        want = f(w)
        assert f(x, inplace=True) is x and x.tolist() == want.tolist()
        x.sum().backward()
        grad = w.grad.tolist()
        w.grad = None
        want.sum().backward()
        assert w.grad.tolist() == grad
    x = lamina.tensor([-1., 1.])
    assert F.elu(x, 1.0, False) is not x and F.elu(x, 2.0, True) is x
    assert nn.LeakyReLU(0.2, True)(x) is x and nn.SELU(True)(x) is x
    x = lamina.tensor([-1., 1.])
    assert F.threshold(x, 0., 5., inplace=True) is x
    assert x.tolist() == [5., 1.]


def test_softmax_without_a_dimension():
    with pytest.warns(UserWarning, match='dimension 1'):
        out = F.softmax(lamina.zeros(2, 4))
    assert out.tolist() == [[.25] * 4] * 2
    with pytest.warns(UserWarning, match='dimension 0'):
        assert nn.Softmax()(lamina.zeros(2)).tolist() == [.5, .5]


# Initialisation

def test_gains():
    gain = nn.init.calculate_gain
    assert [gain(name) for name in ('linear', 'conv2d', 'sigmoid')] == [1] * 3
    assert (gain('tanh'), gain('selu')) == (5 / 3, .75)
    assert gain('relu') == gain('leaky_relu', 0) == math.sqrt(2)
    assert gain('leaky_relu') == math.sqrt(2 / 1.0001)
    with pytest.raises(ValueError, match="did you mean 'tanh'"):
        gain('tahn')
    with pytest.raises(ValueError, match='slope'):
        gain('leaky_relu', True)


@pytest.mark.parametrize('rule, options, spread', [
    ('xavier_uniform_', {}, math.sqrt(2 / 3000)),
    ('xavier_normal_', {'gain': 2}, 2 * math.sqrt(2 / 3000)),
    ('kaiming_uniform_', {'nonlinearity': 'relu'}, math.sqrt(2 / 1200)),
    ('kaiming_normal_', {'a': 1}, math.sqrt(1 / 1200)),
    ('kaiming_normal_', {'mode': 'fan_out', 'nonlinearity': 'linear'},
     math.sqrt(1 / 1800)),
])
def test_rules_of_initialisation(rule, options, spread):
    w = nn.Parameter(lamina.zeros(300, 200, 2, 3))
    found = getattr(nn.init, rule)(w, generator=nn.Generator(3), **options)
    assert found is w and w.requires_grad and w.is_leaf
    values = w.detach().numpy()[:20].reshape(-1)
    assert abs(values.mean()) < spread / 40
    assert abs(values.std() / spread - 1) < .02
    if 'uniform' in rule:
        assert np.abs(values).max() <= spread * math.sqrt(3)
    else:
        assert np.abs(values).max() > spread * 3


def test_other_rules_of_initialisation():
    w = nn.Parameter(lamina.zeros(3, 5))
    init = nn.init
    assert init.ones_(w).sum().item() == 15
    assert init.zeros_(w).sum().item() == 0
    assert init.constant_(w, 2.5).mean().item() == 2.5
    assert init.eye_(w).tolist() == np.eye(3, 5).tolist()
    init.uniform_(w, 2, 3, nn.Generator(0))
    assert 2 <= w.min().item() <= w.max().item() <= 3
    init.normal_(w, 5, 0)
    assert w.tolist() == [[5.] * 5] * 3
    for shape in ((3, 5), (5, 3), (2, 2, 3)):
        q = init.orthogonal_(lamina.zeros(*shape, dtype=F64), gain=2)
        a = q.numpy().reshape(shape[0], -1)
        a = a if a.shape[0] <= a.shape[1] else a.T
        close(a @ a.T, 4 * np.eye(len(a)))
    for call in (init.kaiming_uniform_, init.xavier_normal_,
                 init.orthogonal_, init.eye_):
        with pytest.raises(ValueError):
            call(lamina.zeros(3))
    with pytest.raises(ValueError, match="'fan_in' or 'fan_out'"):
        init.kaiming_normal_(w, mode='in')


def test_trunc_normal():
    x = nn.init.trunc_normal_(lamina.zeros(20_000, dtype=F64), 1., 2., -1.,
                              2., generator=nn.Generator(5)).numpy()
    assert x.min() >= -1 and x.max() <= 2
    # of the normal distribution with mean 1, std 2, cut to [-1, 2]
    assert abs(x.mean() - 0.58567) < .02
    assert abs(x.std() - 0.83856) < .02
    with pytest.raises(ValueError, match='nearly nothing'):
        nn.init.trunc_normal_(lamina.zeros(2), 0., 1., 50., 60.)


# Chance

@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_bernoulli(device):
    p = lamina.tensor([[0., 1.], [.25, .75]], device=device)
    rows = p.expand(4000, 2, 2).contiguous()
    x = nn.bernoulli(rows, generator=nn.Generator(1))
    assert x.dtype is lamina.float32 and set(x.flatten().tolist()) == {0, 1}
    mean = x.mean(0).tolist()
    assert mean[0] == [0., 1.] and abs(mean[1][0] - .25) < .03
    assert abs(mean[1][1] - .75) < .03
    y = lamina.zeros(2000, dtype=lamina.int64, device=device)
    assert y.bernoulli_(.5, generator=nn.Generator(2)) is y
    assert 900 < y.sum().item() < 1100
    assert lamina.bernoulli(y, 1.0).sum().item() == 2000
    for wrong in (-.1, 1.5, lamina.tensor([.5, 2.], device=device)):
        with pytest.raises(RuntimeError, match='from 0 to 1'):
            lamina.zeros(2, device=device).bernoulli_(wrong)
    with pytest.raises(NotImplementedError, match='int64'):
        nn.bernoulli(y)


@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_multinomial(device):
    weights = lamina.tensor([[1., 0., 3., 6.], [0., 2., 0., 0.]],
                            device=device)
    x = weights.multinomial(3000, True, generator=nn.Generator(0))
    assert x.shape == (2, 3000) and x.dtype is lamina.int64
    counts = np.bincount(x[0].tolist(), minlength=4) / 3000
    assert counts[1] == 0 and np.abs(counts - [.1, 0, .3, .6]).max() < .04
    assert set(x[1].tolist()) == {1}
    g = nn.Generator(1)
    drawn = [tuple(lamina.multinomial(weights[0], 3, generator=g).tolist())
             for _ in range(300)]
    assert all(sorted(row) == [0, 2, 3] for row in drawn)
    assert sum(row[0] == 3 for row in drawn) > 140
    assert str(weights.to('meta').multinomial(1).device) == 'meta'
    for bad, error in (([-1., 1.], 'from 0 on'), ([0., 0.], 'not all 0'),
                       ([math.inf, 1.], 'finite'),
                       ([1., 0.], 'replacement=True')):
        with pytest.raises(RuntimeError, match=error):
            lamina.tensor(bad, device=device).multinomial(2)
    with pytest.raises(RuntimeError, match='num_samples=0'):
        weights.multinomial(0)
    with pytest.raises(RuntimeError, match='one or two dimensions'):
        lamina.ones(1, 1, 1).multinomial(1)


def test_draws_like_a_tensor():
    x = lamina.zeros(2, 3, dtype=F64, device='python')
    for draw in (nn.rand_like, nn.randn_like):
        y = draw(x, requires_grad=True)
        assert (y.dtype, y.shape, y.device) == (F64, (2, 3), x.device)
        assert y.requires_grad and len(set(sum(y.tolist(), []))) == 6
    y = nn.randint_like(lamina.zeros(50), 3, 5)
    assert y.dtype is lamina.float32 and set(y.tolist()) == {3., 4.}
    assert set(nn.randint_like(y, 2, dtype=lamina.int32).tolist()) == {0, 1}
    z = nn.normal(lamina.tensor([100., -100.]), .5)
    assert abs(z[0].item() - 100) < 5 and abs(z[1].item() + 100) < 5
    assert nn.normal(3., 0., (2,)).tolist() == [3., 3.]
    with pytest.raises(TypeError, match='needs a size'):
        nn.normal(0., 1.)


def test_the_state_of_the_default_generator():
    nn.manual_seed(9)
    assert nn.initial_seed() == 9
    nn.rand(3)
    state = lamina.get_rng_state()
    first = nn.rand(4).tolist()
    lamina.set_rng_state(state)
    assert nn.rand(4).tolist() == first


def test_half_floats_are_drawn():
    for dtype in (lamina.float16, lamina.bfloat16):
        x = nn.rand(100, dtype=dtype)
        assert x.dtype is dtype and 0 <= x.min().item() < x.max().item() <= 1
        assert nn.Linear(2, 2, dtype=dtype).weight.dtype is dtype


def test_dropout():
    nn.manual_seed(0)
    x = lamina.ones(5000, requires_grad=True)
    y = F.dropout(x, .25)
    assert set(y.tolist()) == {0., np.float32(1) / np.float32(.75)}
    assert abs((y == 0).float().mean().item() - .25) < .03
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert F.dropout(x, .5, training=False) is x and F.dropout(x, 0.) is x
    assert F.dropout(x, 1.).sum().item() == 0
    layer = nn.Dropout(.5)
    assert layer.eval()(x) is x
    z = lamina.ones(100)
    assert layer.train()(z).sum().item() != 100
    assert F.dropout(z, .5, inplace=True) is z and 0 in z.tolist()
    for wrong in (-.1, 1.5):
        for call in (nn.Dropout, lambda p: F.dropout(x, p)):
            with pytest.raises(ValueError, match=f'p={wrong}'):
                call(wrong)


# The tree

def test_paths_lead_to_what_they_name():
    net = Net()
    assert net.get_submodule('') is net
    assert net.get_submodule('body.0') is net.body[0]
    assert net.get_parameter('body.0.weight') is net.body[0].weight
    assert net.get_buffer('seen') is net.seen
    for path, name in (('body.7', "no module '7'"),
                       ('bodi', "did you mean 'body'")):
        with pytest.raises(AttributeError, match=name):
            net.get_submodule(path)
    with pytest.raises(AttributeError, match="did you mean 'weight'"):
        net.get_parameter('body.0.weigth')
    with pytest.raises(AttributeError, match='no buffer'):
        net.get_buffer('scale')


def test_shared_ones_can_be_listed_twice():
    a = nn.Linear(2, 2)
    net = nn.Sequential(a, a)
    assert [n for n, _ in net.named_modules()] == ['', '0']
    assert [n for n, _ in net.named_modules(remove_duplicate=False)] == [
        '', '0', '1']
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert len(list(net.children())) == 1


def test_buffers_that_are_not_saved():
    m = nn.Module()
    m.register_buffer('a', lamina.ones(1), persistent=False)
    m.register_buffer('b', lamina.ones(2))
    assert list(m.state_dict()) == ['b']
    assert [n for n, _ in m.named_buffers()] == ['a', 'b']
    assert m.load_state_dict({'b': lamina.zeros(2)}) == ([], [])
    m.register_buffer('a', lamina.ones(1))
    assert list(m.state_dict()) == ['a', 'b']
    outer = nn.Sequential(m)
    assert list(outer.state_dict(prefix='x.')) == ['x.0.a', 'x.0.b']
    layer = nn.Linear(1, 1)
    assert layer.state_dict(keep_vars=True)['bias'] is layer.bias


def test_moving_a_module():
    net = Net()
    net(lamina.ones(1, 3)).sum().backward()
    net.register_buffer('count', lamina.tensor(3))
    held = list(net.parameters())
    assert net.double() is net
    assert all(a is b for a, b in zip(held, net.parameters()))
    assert {p.dtype for p in held} == {p.grad.dtype for p in held} == {F64}
    assert net.seen.dtype is F64 and net.count.dtype is lamina.int64
    out = net(lamina.ones(1, 3, dtype=F64))
    net.zero_grad()
    out.sum().backward()
    assert net.scale.grad.dtype is F64
    net.to('python', lamina.float32)
    assert str(net.scale.device) == 'python' == str(net.count.device)
    assert net.scale.dtype is lamina.float32
    x = lamina.ones(1, 3, device='python')
    net.zero_grad()
    net(x).sum().backward()
    assert str(net.scale.grad.device) == 'python'
    net.cpu().to(lamina.zeros(1, dtype=F64))
    assert net.scale.dtype is F64 and str(net.scale.device) == 'cpu'
    net.half()
    assert net(lamina.ones(1, 3, dtype=lamina.float16)).dtype is (
        lamina.float16)
    net.float().bfloat16().float()
    assert net(lamina.ones(1, 3)).dtype is lamina.float32
    with pytest.raises(TypeError, match='int64'):
        net.to(lamina.int64)


def test_copies_and_pickles():
    net = Net()
    x = lamina.ones(2, 3)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert (other(x) == net(x)).all()
        with lamina.no_grad():
            other.scale.zero_()
        assert net.scale.tolist() == [1., 1.]
        assert isinstance(other.scale, nn.Parameter)


# Hooks

def test_forward_hooks():
    layer, log = nn.ReLU(), []
    first = layer.register_forward_pre_hook(
        lambda m, args: log.append(('before', m is layer, len(args))))
    double = layer.register_forward_pre_hook(lambda m, args: args[0] * 2)
    after = layer.register_forward_hook(
        lambda m, args, out: log.append((args[0].tolist(), out.tolist())))
    add = layer.register_forward_hook(lambda m, args, out: out + 1)
    assert layer(lamina.tensor([-1., 1.])).tolist() == [1., 3.]
    assert log == [('before', True, 1), ([-2., 2.], [0., 2.])]
    for handle in (first, double, after, add):
        handle.remove()
        handle.remove()
    assert layer(lamina.tensor([-1., 1.])).tolist() == [0., 1.]
    with layer.register_forward_hook(lambda *_: lamina.zeros(1)):
        assert layer(lamina.ones(2)).tolist() == [0.]
    assert layer(lamina.ones(2)).tolist() == [1., 1.] and len(log) == 2
    with pytest.raises(TypeError, match='a hook is a function; got int'):
        layer.register_forward_hook(3)


class Product(nn.Module):
    def forward(self, x, scale, y):
        return x * y * scale, x + y


def test_backward_hooks():
    layer, log = Product(), []
    x, y = (lamina.tensor([v], requires_grad=True) for v in (3., 4.))
    z = lamina.tensor([1.])
    pre = layer.register_full_backward_pre_hook(
        lambda m, out: log.append(('pre', [g.tolist() for g in out])))
    hook = layer.register_full_backward_hook(
        lambda m, into, out: log.append((
            [g.tolist() for g in into], [g.tolist() for g in out])))
    out, total = layer(x, 2, y)
    (out + 5 * total).sum().backward()
    assert log == [('pre', [[1.], [5.]]), ([[13.], [11.]], [[1.], [5.]])]
    assert (x.grad.item(), y.grad.item()) == (13., 11.)
    hook.remove()
    pre.remove()
    layer.register_full_backward_hook(
        lambda m, into, out: tuple(g * 10 if g is not None else None
                                   for g in into))
    x.grad = None
    layer(x, 2, z)[0].sum().backward()
    assert x.grad.item() == 20.
    with lamina.no_grad():
        layer(x, 2, y)


def test_backward_hooks_without_an_input_to_go_to():
    layer, log = nn.Linear(2, 1), []
    layer.register_full_backward_hook(
        lambda m, into, out: log.append((into, out[0].tolist())))
    layer(lamina.ones(1, 2)).sum().backward()
    assert log == [((None,), [[1.]])]
    assert layer.weight.grad.tolist() == [[1., 1.]]


def test_hooks_leave_no_cycles():
    gc.collect()
    gc.disable()
    try:
        layer = nn.Linear(2, 1)
        layer.register_full_backward_hook(lambda m, into, out: None)
        x = lamina.ones(1, 2, requires_grad=True)
        layer(x).sum().backward()
        gone = weakref.ref(layer)
        del layer
        assert gone() is None
    finally:
        gc.enable()


# Containers and reprs

def test_module_list():
    a, b, c = nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)
    found = nn.ModuleList([a, b])
    found.append(c)
    assert list(found) == [a, b, c] and found[-1] is c and len(found) == 3
    assert list(found.state_dict()) == ['0.weight', '0.bias', '2.weight',
                                        '2.bias']
    found.insert(0, c)
    del found[-1]
    assert list(found) == [c, a, b] and list(found._modules) == ['0', '1',
                                                                '2']
    found[1] = b
    assert found[1] is b and list(found[1:]) == [b, b]
    with pytest.raises(IndexError, match='3 of a ModuleList of 3'):
        found[3]
    with pytest.raises(NotImplementedError, match='ModuleList'):
        found(1)
    with pytest.raises(TypeError):
        nn.ModuleList([1])


def test_module_dict():
    found = nn.ModuleDict({'a': nn.Linear(1, 1), 'b': nn.ReLU()})
    assert list(found) == list(found.keys()) == ['a', 'b'] and 'a' in found
    assert list(found.items())[1] == ('b', found['b']) and len(found) == 2
    found['c'] = nn.Tanh()
    assert found.pop('a') and list(found.values()) == [found['b'],
                                                       found['c']]
    del found['b']
    found.update([('d', nn.ReLU())])
    assert list(found) == ['c', 'd']


def test_parameter_list():
    found = nn.ParameterList([nn.Parameter(lamina.ones(2)), lamina.zeros(1)])
    assert len(found) == 2 and all(p.requires_grad for p in found)
    found[0] = lamina.zeros(3)
    assert list(found.state_dict()) == ['0', '1'] and found[0].shape == (3,)
    assert len(list(nn.Sequential(found).parameters())) == 2
    assert len(found[1:]) == 1


@pytest.mark.parametrize('made, text', [
    (nn.ELU(), 'ELU(alpha=1.0)'), (nn.ReLU(), 'ReLU()'),
    (nn.Softmax(dim=1), 'Softmax(dim=1)'),
    (nn.Dropout(), 'Dropout(p=0.5, inplace=False)'),
    (nn.GELU('tanh'), "GELU(approximate='tanh')"),
    (nn.Embedding(5, 3, 0), 'Embedding(5, 3, padding_idx=0)'),
    (nn.LayerNorm(4), 'LayerNorm((4,), eps=1e-05, elementwise_affine=True)'),
    (nn.GroupNorm(2, 4), 'GroupNorm(2, 4, eps=1e-05, affine=True)'),
    (nn.BatchNorm1d(3), 'BatchNorm1d(3, eps=1e-05, momentum=0.1, '
     'affine=True, track_running_stats=True)'),
    (nn.Conv2d(1, 2, 3, padding=1, bias=False), 'Conv2d(1, 2, '
     'kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)'),
    (nn.MSELoss(), 'MSELoss()'), (nn.Identity(3), 'Identity()'),
])
def test_reprs(made, text):
    assert repr(made) == text


def test_the_options_have_pytorchs_order():
    pool = nn.MaxPool2d(2, 1, 0, 1, True)       # return_indices
    values, places = pool(lamina.arange(4.).reshape(1, 1, 2, 2))
    assert values.item() == places.item() == 3
    assert 'ceil_mode=False' in repr(pool)
    assert nn.Softmax(1).dim == 1 and nn.AvgPool2d(2, 1, 1).padding == 1
    assert nn.Softplus(2., 3.).threshold == 3.
    assert nn.BCEWithLogitsLoss(None, None, None, 'sum').reduction == 'sum'
    assert nn.PoissonNLLLoss(False, True, None, 1e-3).eps == 1e-3


def test_options_of_modules_are_checked():
    with pytest.raises(TypeError, match=r"ELU\(\): .*'beta'"):
        nn.ELU(beta=2)
    loss = nn.CrossEntropyLoss(lamina.ones(3))
    assert loss.weight.tolist() == [1.] * 3
    assert list(loss.state_dict()) == ['weight']
    assert loss.double().weight.dtype is F64
    with pytest.raises(TypeError, match="'weight' must be a Tensor"):
        nn.CrossEntropyLoss('mean')


# Losses

def test_the_flags_before_reduction():
    x, t = lamina.tensor([1., 2.]), lamina.zeros(2)
    assert F.l1_loss(x, t, None, None, 'sum').item() == 3
    assert F.l1_loss(x, t, False).item() == 3
    assert F.mse_loss(x, t, True, False).tolist() == [1., 4.]
    assert F.mse_loss(x, t, size_average=True).item() == 2.5
    assert nn.L1Loss(reduce=False)(x, t).tolist() == [1., 2.]
    rows = lamina.zeros(2, 3)
    classes = lamina.tensor([0, 1])
    close(F.cross_entropy(rows, classes, None, None, 1).item(), math.log(3),
          1e-6)
    with pytest.raises(TypeError, match='by position'):
        F.l1_loss(x, t, None, size_average=True)
    with pytest.raises(TypeError):
        F.l1_loss(x, t, 1, 2, 'sum', None, 3, 4)


def test_losses_that_do_not_overflow():
    z = lamina.tensor([1000., -1000., 20., 200.], requires_grad=True)
    t = lamina.tensor([0., 1., 0., 0.])
    loss = F.binary_cross_entropy_with_logits(z, t, reduction='none')
    assert loss.tolist() == [1000., 1000., 20., 200.]
    loss.sum().backward()
    assert z.grad.tolist() == [1., -1., 1., 1.]
    p = lamina.tensor([0., 1., 1., 0.], requires_grad=True)
    loss = F.binary_cross_entropy(p, t, reduction='none')
    assert loss.tolist() == [0., 0., 100., 0.]
    loss.sum().backward()
    assert all(map(math.isfinite, p.grad.tolist()))
    x = lamina.tensor([-500., 500.], requires_grad=True)
    loss = F.soft_margin_loss(x, lamina.ones(2), reduction='sum')
    loss.backward()
    assert loss.item() == 500 and x.grad.tolist() == [-1., 0.]


def test_losses_refuse():
    x = lamina.tensor([[.5, .5]])
    with pytest.raises(RuntimeError, match='input has -1.0 to 0.5'):
        F.binary_cross_entropy(lamina.tensor([[-1., .5]]), x)
    for name in ('binary_cross_entropy', 'binary_cross_entropy_with_logits'):
        with pytest.raises(ValueError, match=r'got \[1, 2\] and \[2\]'):
            getattr(F, name)(x, x[0])
    with pytest.raises(RuntimeError, match='beta=-1'):
        F.smooth_l1_loss(x, x, beta=-1)
    with pytest.raises(RuntimeError, match='delta=0'):
        F.huber_loss(x, x, delta=0)
    with pytest.raises(RuntimeError, match='label_smoothing'):
        F.cross_entropy(x, lamina.tensor([0]), label_smoothing=2.)
    with pytest.raises(RuntimeError, match='2 classes; got shape \\[3\\]'):
        F.cross_entropy(x, lamina.tensor([0]), lamina.ones(3))
    with pytest.raises(ValueError, match='variance is below 0'):
        F.gaussian_nll_loss(x, x, -x)
    with pytest.warns(UserWarning, match='broadcast'):
        F.l1_loss(x, x[0])


# Layers

def test_embedding_refuses():
    layer = nn.Embedding(5, 3, padding_idx=1)
    assert layer.weight[1].tolist() == [0.] * 3
    assert layer.weight[0].abs().sum().item() > 0
    with pytest.raises(IndexError):
        layer(lamina.tensor([5]))
    with pytest.raises(RuntimeError, match='float32'):
        layer(lamina.zeros(1))
    with pytest.raises(RuntimeError, match='no row of a table of 5'):
        nn.Embedding(5, 3, padding_idx=7)
    with pytest.raises(NotImplementedError, match='sparse'):
        F.embedding(lamina.tensor([0]), layer.weight, sparse=True)


def test_one_hot():
    x = F.one_hot(lamina.tensor([[0], [2]]))
    assert x.tolist() == [[[1, 0, 0]], [[0, 0, 1]]]
    assert F.one_hot(lamina.tensor(1), 4).tolist() == [0, 1, 0, 0]
    for wrong, count in (([3], 3), ([-1], -1), ([0], 0)):
        with pytest.raises(RuntimeError):
            F.one_hot(lamina.tensor(wrong), count)
    with pytest.raises(RuntimeError, match='float32'):
        F.one_hot(lamina.ones(1))


def test_normalisation_refuses():
    x = lamina.ones(2, 3)
    with pytest.raises(RuntimeError, match=r'\[4\] does not fit'):
        F.layer_norm(x, (4,))
    with pytest.raises(ValueError, match='more than one number'):
        nn.BatchNorm1d(3)(x[:1])
    with pytest.raises(ValueError, match='2 or 3 dimensions'):
        nn.BatchNorm1d(3)(lamina.ones(3))
    with pytest.raises(RuntimeError, match='3 channels do not make 2'):
        F.group_norm(x, 2)
    with pytest.raises(RuntimeError, match='needs running_mean'):
        F.batch_norm(x, None, None)
    with pytest.raises(RuntimeError, match='weight has a number for each'):
        F.batch_norm(x, None, None, lamina.ones(2), training=True)


def test_convolution_against_its_definition():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 6, 5))
    w = rng.normal(size=(6, 2, 3, 2))
    found = F.conv2d(lamina.tensor(x), lamina.tensor(w), stride=(2, 1),
                     padding=1, groups=2).numpy()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for n, o, i, j in np.ndindex(*found.shape):
        c = o // 3 * 2
        part = padded[n, c:c + 2, 2 * i:2 * i + 3, j:j + 2]
        assert abs(found[n, o, i, j] - (part * w[o]).sum()) < 1e-12


def test_windows_refuse():
    x, w = lamina.ones(1, 2, 3, 3), lamina.ones(4, 2, 2, 2)
    for call, word in (
            (lambda: F.conv2d(x, w, groups=2), 'do not fit a weight'),
            (lambda: F.conv2d(x[0, 0], w), 'got \\[3, 3\\]'),
            (lambda: F.conv2d(x, lamina.ones(4, 2, 9, 2)), 'does not fit'),
            (lambda: F.conv2d(x, w, lamina.ones(3)), 'got \\[3\\]'),
            (lambda: F.conv2d(x, w, padding='same', stride=2), 'stride'),
            (lambda: F.max_pool2d(x, 2, padding=2), 'half of the window'),
            (lambda: F.max_pool2d(x, 0), '1 or more'),
            (lambda: F.pad(x, (1,)), 'two sizes'),
            (lambda: F.pad(x, (-2, -2)), 'leaves nothing'),
            (lambda: F.pad(x, (3, 0, 0, 0), 'reflect'), 'more than'),
            (lambda: F.pixel_shuffle(x, 2), 'no multiple'),
            (lambda: F.pixel_unshuffle(x, 2), 'do not divide')):
        with pytest.raises(RuntimeError, match=word):
            call()
    with pytest.raises(NotImplementedError, match="did you mean 'reflect'"):
        F.pad(x, (1, 1), 'relfect')
    with pytest.raises(RuntimeError, match='two masks'):
        F.scaled_dot_product_attention(x, x, x, x, is_causal=True)


def test_second_derivatives_of_composites():
    x = lamina.tensor([[.3, -.8, 1.2]], dtype=F64, requires_grad=True)
    for f in (F.gelu, F.silu, lambda x: F.layer_norm(x, (3,)), F.logsigmoid,
              lambda x: F.cross_entropy(x, lamina.tensor([1]))):
        def slope(at):
            y = f(at).sum() if f(at).dim() else f(at)
            return lamina.autograd.grad(
                (y * y), at, create_graph=True)[0]
        g = slope(x)
        second = lamina.autograd.grad((g * g).sum(), x)[0].numpy()
        for i in range(3):
            step = np.zeros((1, 3))
            step[0, i] = 1e-5
            up, down = ((slope(lamina.tensor(
                x.detach().numpy() + s, requires_grad=True)) ** 2)
                .sum().item() for s in (step, -step))
            assert abs((up - down) / 2e-5 - second[0, i]) < 1e-6
