"""Chapter 10: optimisers and schedules.

The numbers under EXPECTED were computed with torch 2.13 in float64.
"""

import math

import numpy as np
import pytest

import lamina
from lamina import nn, optim

F64 = lamina.float64

# 20 steps of each, on the loss of `run`: three weights, then the bias.
EXPECTED = [
    ('SGD', dict(lr=0.1),
     [0.9225522267631333, -1.0787921785346277,
      1.160181791821062, 0.4714977937350256]),
    ('SGD', dict(lr=0.1, momentum=0.9),
     [1.1997260293105054, 0.9839791224579947,
      -0.16475486047112922, 0.9529857009091077]),
    ('SGD', dict(lr=0.1, momentum=0.9, dampening=0.3),
     [0.9462105822574229, 1.2555539845057957,
      -0.9654463254036055, 0.9115766329797085]),
    ('SGD', dict(lr=0.1, momentum=0.9, nesterov=True),
     [1.0363069455396885, 0.8734392564221636,
      -0.7302034644867547, 1.0989666910897036]),
    ('SGD', dict(lr=0.1, weight_decay=0.2),
     [0.7800125559510191, -0.6840238224131006,
      0.7949590892039134, 0.36532871060006755]),
    ('SGD', dict(lr=0.1, momentum=0.9, weight_decay=0.2, nesterov=True),
     [0.7672497113643055, 0.230688395137748,
      0.08930423730349053, 0.31425607422064983]),
    ('Adam', dict(lr=0.1),
     [0.7188900364659315, -0.5349471775421673,
      1.3479633481123297, -0.7866698216239273]),
    ('Adam', dict(lr=0.1, betas=(0.8, 0.95), eps=1e-3),
     [0.7351178556281877, -0.6673800143212938,
      1.4397361311714612, -0.726037242468375]),
    ('Adam', dict(lr=0.1, weight_decay=0.2),
     [0.5722906259084349, -0.4457548490449907,
      1.2958215783211575, -0.6324140745514961]),
    ('AdamW', dict(lr=0.1),
     [0.7196391049840055, -0.5179218584656172,
      1.315661263301982, -0.7736596865385095]),
    ('AdamW', dict(lr=0.1, weight_decay=0.2),
     [0.8977234027203709, -0.1261661932253122,
      0.7987127372449357, -0.24723022449871773]),
]
SCHEDULES = {
    'step': [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05],
    'cosine': [0.2, 0.19276855558857225, 0.172175144212722,
               0.14135492607468356, 0.105, 0.06864507392531648,
               0.03782485578727799, 0.01723144441142776, 0.01]}


def start(device='cpu'):
    options = dict(dtype=F64, device=device)
    w = lamina.tensor([1., -2., 3.], requires_grad=True, **options)
    b = lamina.tensor(0.5, requires_grad=True, **options)
    x = lamina.tensor([[1., 2., -1.], [.5, -1., 2.], [3., 0., 1.],
                       [-2., 1., 1.]], **options)
    y = lamina.tensor([1., 0., 2., -1.], **options)
    return w, b, lambda: ((((x @ w + b).tanh() - y) ** 2).mean()
                          + 0.1 * (w ** 4).mean())


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('kind, options, expected', EXPECTED)
def test_twenty_steps_are_pytorchs(kind, options, expected, device):
    w, b, loss = start(device)
    optimizer = getattr(optim, kind)([w, b], **options)
    for _ in range(20):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    np.testing.assert_allclose([*w.tolist(), b.item()], expected,
                               rtol=1e-12, atol=1e-13)


def test_weight_decay_where_it_belongs():
    found = {}
    for name, make in {
            'SGD': lambda p: optim.SGD(p, lr=.1, weight_decay=.5),
            'momentum': lambda p: optim.SGD(p, lr=.1, weight_decay=.5,
                                            momentum=.9),
            'Adam': lambda p: optim.Adam(p, lr=.1, weight_decay=.5),
            'AdamW': lambda p: optim.AdamW(p, lr=.1, weight_decay=.5),
    }.items():
        w = lamina.tensor([2.], dtype=F64, requires_grad=True)
        optimizer, found[name] = make([w]), []
        for _ in range(3):
            w.grad = lamina.ones(1, dtype=F64)
            optimizer.step()
            found[name].append(w.item())
    for name, path in {'SGD': [1.8, 1.61, 1.4295],
                       'momentum': [1.8, 1.43, 0.9255],
                       'Adam': [1.9, 1.800074, 1.700274],
                       'AdamW': [1.8, 1.61, 1.4295]}.items():
        np.testing.assert_allclose(found[name], path, atol=1e-6)


@pytest.mark.parametrize('kind', [optim.SGD, optim.Adam, optim.AdamW])
def test_dtypes_stay(kind):
    for dtype in (lamina.float32, F64):
        w = lamina.ones(3, dtype=dtype, requires_grad=True)
        optimizer = kind([w], lr=np.float64(0.1))
        (w * w).sum().backward()
        optimizer.step()
        assert w.dtype is dtype and w.grad.dtype is dtype
        assert abs(w[0].item() - (0.8 if kind is optim.SGD else 0.9)) < 2e-3


def test_adam_first_step_is_the_rate():
    w = lamina.zeros(3, requires_grad=True)
    optimizer = optim.Adam([w], lr=0.1)
    w.grad = lamina.tensor([1e-3, -1., 1e3])
    optimizer.step()
    np.testing.assert_allclose(w.tolist(), [-.1, .1, -.1], rtol=1e-4)


def test_a_step_writes_in_place_and_unrecorded():
    w, b, loss = start()
    memory, version = w.storage, w._version
    optimizer = optim.SGD([w, b], lr=0.1)
    loss().backward()
    gradient = w.grad.tolist()
    optimizer.step()
    assert w.is_leaf and w.requires_grad and w.storage is memory
    assert w._version > version and w.grad.tolist() == gradient
    assert lamina.is_grad_enabled()
    value = loss()
    optimizer.step()                    # after the graph was recorded
    with pytest.raises(RuntimeError, match='written to in place'):
        value.backward()


def test_the_rebound_parameter_has_no_gradient():
    w = first = lamina.tensor([1., 2.], requires_grad=True)
    (w * 3).sum().backward()
    w = w - 0.1 * w.grad
    (w * 3).sum().backward()
    assert not w.is_leaf
    with pytest.warns(UserWarning, match='no leaf'):
        assert w.grad is None
    assert first.grad.tolist() == [6., 6.]
    with pytest.raises(ValueError, match='no leaf.*made by SubBackward0'):
        optim.SGD([w], lr=0.1)


def test_gradients_add_up_until_forgotten():
    w = lamina.tensor([1., 2.], requires_grad=True)
    optimizer = optim.SGD([w], lr=0.)
    for times in (1, 2, 3):
        (w * 3).sum().backward()
        assert w.grad.tolist() == [3. * times] * 2
    kept = w.grad.storage
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0., 0.] and w.grad.storage is kept
    optimizer.zero_grad()
    assert w.grad is None


def test_what_has_no_gradient_stays():
    a = lamina.ones(2, requires_grad=True)
    b = lamina.ones(2, requires_grad=True)
    optimizer = optim.Adam([a, b], lr=1.)
    a.sum().backward()
    optimizer.step()
    assert b.tolist() == [1., 1.] and a.tolist() != [1., 1.]
    assert list(optimizer.state) == [a]


def test_groups():
    a = lamina.ones(1, requires_grad=True)
    b = lamina.ones(1, requires_grad=True)
    optimizer = optim.SGD([{'params': [a]}, {'params': b, 'lr': 1.}], lr=.5)
    (a + b).backward()
    optimizer.step()
    assert (a.item(), b.item()) == (.5, 0.)
    assert [g['lr'] for g in optimizer.param_groups] == [.5, 1.]
    assert repr(optimizer).startswith('SGD (\ngroup 0: 1 tensor\n')
    with pytest.raises(TypeError, match="'params'"):
        optim.SGD([{'params': [a]}, b])


def test_parameters_are_checked():
    w = lamina.ones(2, requires_grad=True)
    model = nn.Linear(2, 1)
    used = model.parameters()
    list(used)
    for empty in ([], used):
        with pytest.raises(ValueError, match='empty parameter list'):
            optim.SGD(empty)
    with pytest.raises(TypeError, match=r'shape \[2\]: write \[tensor\]'):
        optim.SGD(w)
    with pytest.raises(TypeError, match='not named_parameters'):
        optim.SGD(model.named_parameters())
    with pytest.raises(TypeError, match='got int'):
        optim.SGD([w, 1])
    with pytest.raises(ValueError, match='does not require grad'):
        optim.SGD([lamina.ones(2)])
    with pytest.raises(ValueError, match=r'\[2\] is given twice'):
        optim.SGD([w, w])
    assert len(optim.SGD(model.parameters()).param_groups[0]['params']) == 2


@pytest.mark.parametrize('kind, options, message', [
    ('SGD', dict(lr=-1), 'invalid lr: -1'),
    ('SGD', dict(lr=math.nan), 'invalid lr: nan'),
    ('SGD', dict(momentum=-.1), 'invalid momentum: -0.1'),
    ('SGD', dict(weight_decay=-2), 'invalid weight_decay: -2'),
    ('SGD', dict(nesterov=True), 'nesterov needs a momentum'),
    ('SGD', dict(nesterov=True, momentum=.9, dampening=.1), 'dampening=0.1'),
    ('Adam', dict(lr=-1), 'invalid lr: -1'),
    ('Adam', dict(eps=-1), 'invalid eps: -1'),
    ('Adam', dict(betas=(1., .9)), r'betas\[0\]: 1.0.*below 1'),
    ('Adam', dict(betas=(.9, -1)), r'betas\[1\]: -1'),
    ('AdamW', dict(weight_decay=-1), 'invalid weight_decay: -1')])
def test_options_are_checked(kind, options, message):
    w = lamina.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=message):
        getattr(optim, kind)([w], **options)


def test_unknown_options_are_errors():
    w = lamina.ones(2, requires_grad=True)
    for kind, option in ((optim.SGD, 'maximize'), (optim.Adam, 'amsgrad')):
        with pytest.raises(TypeError, match=option):
            kind([w], **{option: True})


def test_closure():
    w = lamina.ones(1, requires_grad=True)
    optimizer = optim.SGD([w], lr=.1)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss
    with lamina.no_grad():
        assert optimizer.step(closure).item() == 1
    assert abs(w.item() - .8) < 1e-6
    assert optimizer.step() is None


def test_base_class_has_no_rule():
    w = lamina.ones(1, requires_grad=True)
    optimizer = optim.Optimizer([w], {})
    w.sum().backward()
    with pytest.raises(NotImplementedError, match='Optimizer has no update'):
        optimizer.step()


@pytest.mark.parametrize('name', list(SCHEDULES))
def test_schedules_are_pytorchs(name):
    w = lamina.ones(1, requires_grad=True)
    other = lamina.ones(1, requires_grad=True)
    optimizer = optim.SGD([{'params': [w]}, {'params': other, 'lr': .4}],
                          lr=.2)
    scheduler = (optim.StepLR(optimizer, 3, gamma=.5) if name == 'step' else
                 optim.CosineAnnealingLR(optimizer, 8, eta_min=.01))
    rates = []
    for epoch in range(9):
        assert scheduler.last_epoch == epoch
        rates.append(scheduler.get_last_lr()[0])
        assert optimizer.param_groups[0]['lr'] == rates[-1]
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(rates, SCHEDULES[name], rtol=1e-12)
    assert name == 'cosine' or abs(
        optimizer.param_groups[1]['lr'] - .05) < 1e-15


def test_schedules_are_checked():
    w = lamina.ones(1, requires_grad=True)
    optimizer = optim.SGD([w])
    with pytest.raises(ValueError, match='step_size.*got 0'):
        optim.StepLR(optimizer, 0)
    with pytest.raises(ValueError, match='T_max.*got -1'):
        optim.CosineAnnealingLR(optimizer, -1)
    with pytest.raises(TypeError, match='got Tensor'):
        optim.StepLR(w, 1)
    with pytest.raises(NotImplementedError, match='no rate'):
        optim.LRScheduler(optimizer)


@pytest.mark.parametrize('lr, grows', [(.19, False), (.21, True)])
def test_a_rate_above_two_over_the_curvature_diverges(lr, grows):
    w = lamina.tensor(1., dtype=F64, requires_grad=True)
    optimizer = optim.SGD([w], lr=lr)
    for _ in range(50):
        optimizer.zero_grad()
        (5 * w * w).backward()
        optimizer.step()
    np.testing.assert_allclose(w.item(), (1 - 10 * lr) ** 50)
    assert (abs(w.item()) > 1) == grows


def test_schedules_share_an_optimiser():
    w = lamina.ones(1, requires_grad=True)
    optimizer = optim.SGD([w], lr=1.)
    both = optim.StepLR(optimizer, 1, .5), optim.StepLR(optimizer, 2, .1)
    rates = []
    for _ in range(4):
        for scheduler in both:
            scheduler.step()
        rates += both[0].get_last_lr()
    np.testing.assert_allclose(rates, [.5, .025, .0125, .000625])
    assert both[1].base_lrs == [1.]
    optimizer = optim.SGD([w], lr=1.)
    scheduler, rates = optim.StepLR(optimizer, 3, .5), []
    optimizer.param_groups[0]['lr'] = .01
    for _ in range(4):
        scheduler.step()
        rates += scheduler.get_last_lr()
    np.testing.assert_allclose(rates, [.01, .01, .005, .005])


def test_a_cosine_comes_back_up():
    w = lamina.ones(1, requires_grad=True)
    scheduler = optim.CosineAnnealingLR(optim.SGD([w], lr=1.), 2)
    rates = []
    for _ in range(4):
        scheduler.step()
        rates += scheduler.get_last_lr()
    np.testing.assert_allclose(rates, [.5, 0, .5, 1], atol=1e-12)
