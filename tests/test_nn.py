"""Chapter 9: random numbers, modules and losses.

The numbers under "PyTorch" were computed with torch 2.13 in float64.
"""

import math

import numpy as np
import pytest

import lamina
from lamina import nn

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
    again = nn.CrossEntropyLoss(reduction)(x, target)
    assert again.tolist() == loss.tolist()
    close(nn.nll_loss(x.log_softmax(1), target, reduction).tolist(), value)


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
        nn.cross_entropy(x, lamina.zeros(2, 3))
    with pytest.raises(ValueError, match=r'\(N, C\)'):
        nn.cross_entropy(x[0], t)
    for dtype in (lamina.int32, lamina.float32):
        with pytest.raises(RuntimeError, match=rf'{dtype}.*target\.long'):
            nn.cross_entropy(x, t.to(dtype))
    with pytest.raises(ValueError, match="'avg'"):
        nn.cross_entropy(x, t, reduction='avg')
    with pytest.raises(TypeError, match='target must be a Tensor; got list'):
        nn.cross_entropy(x, [0, 1])
    with pytest.raises(TypeError):
        nn.cross_entropy(x, t, label_smoothing=0.1)
    meta = nn.cross_entropy(x.to('meta'), t.to('meta'))
    assert meta.shape == () and str(meta.device) == 'meta'


def test_mse_loss_module():
    a, b = lamina.tensor([1., 2.]), lamina.tensor([3., 2.])
    assert nn.MSELoss()(a, b).item() == 2
    assert nn.MSELoss('sum')(a, b).item() == 4
    assert nn.MSELoss(reduction='none')(a, b).tolist() == [4., 0.]


def test_modules_leave_no_cycles():
    import gc
    import weakref
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
    for loss, want in ((nn.cross_entropy(x, target, 'none').tolist(),
                        [first, 0., last]),
                       (nn.cross_entropy(x, target, 'sum').item(),
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
                           'sum', 1).item(), first)
