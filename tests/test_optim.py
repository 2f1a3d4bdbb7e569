"""Chapter 10: optimisers and schedules.

The numbers under EXPECTED and SCHEDULES were computed with torch 2.13 in float64.
"""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest

import lamina
from lamina import nn, optim
from lamina.optim import lr_scheduler

F64 = lamina.float64

# 100 steps of each, on the loss of `run`: three weights, then the bias.
EXPECTED = [
    ('SGD', dict(lr=0.1),
     [0.7998558104378884, 0.1282896733517419,
      -0.35991609231565264, 0.4550694136488812]),
    ('SGD', dict(lr=0.1, momentum=0.9),
     [0.7844031978084716, 0.07554292903249353,
      -0.39772606979176023, 0.4829283236727022]),
    ('SGD', dict(lr=0.1, momentum=0.9, dampening=0.3),
     [0.7857122051034984, 0.08365501150507121,
      -0.3774448877512456, 0.44643637722442864]),
    ('SGD', dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2),
     [0.6726044251992506, 0.14877972439686818,
      -0.14584430233916143, 0.12462058978794156]),
    ('SGD', dict(lr=0.001, maximize=True, momentum=0.5, weight_decay=0.1),
     [0.8294482880833333, -2.1009273964032382,
      4.14038474868839, 0.5762473402013757]),
    ('RMSprop', dict(lr=0.01),
     [0.7290641022941535, -0.8365776410238256,
      1.6120526494154563, -0.6330563581767693]),
    ('RMSprop', dict(lr=0.01, alpha=0.9, momentum=0.8),
     [0.8376113839019451, 0.4014569076199349,
      0.050172461148373385, -0.1275754714875648]),
    ('RMSprop', dict(lr=0.01, centered=True, weight_decay=0.1, momentum=0.5),
     [0.9027710343319011, 0.3233451666661066,
      0.6005920458766152, -0.016258109483111394]),
    ('Adagrad', dict(lr=0.1),
     [0.7461224119726126, -0.9096913219017246,
      1.7089609005859556, -0.5705714325353837]),
    ('Adagrad', dict(lr=0.1, lr_decay=0.01, weight_decay=0.1, initial_accumulator_value=0.5),
     [0.8086256426681661, -1.0350204802548089,
      1.882623047495489, -0.15014267936743197]),
    ('Adagrad', dict(lr=0.01, maximize=True),
     [0.7701870385838796, -2.182953364292031,
      3.194847410839047, 0.7205327613312124]),
    ('Adam', dict(lr=0.1),
     [0.8228692437827264, 0.4086150620690369,
      0.050815847085812924, -0.07950008436714202]),
    ('Adam', dict(lr=0.1, betas=(0.8, 0.95), eps=0.001, weight_decay=0.2),
     [0.672962175916126, 0.14888284343424252,
      -0.14589306008468936, 0.12385858733274059]),
    ('Adam', dict(lr=0.1, amsgrad=True),
     [0.8231123231942896, 0.4092303029580982,
      0.051702757605619286, -0.08154063660650594]),
    ('Adam', dict(lr=0.01, maximize=True, weight_decay=0.1),
     [0.16377408259466905, -3.3164097715085266,
      4.145751189084601, 1.2131732713153887]),
    ('AdamW', dict(lr=0.1),
     [0.8196147212071032, 0.3867548834846521,
      0.02832598873738391, -0.04815165823061581]),
    ('AdamW', dict(lr=0.1, weight_decay=0.2, amsgrad=True),
     [0.7885391630457288, 0.2341427461106986,
      -0.1372355086394776, 0.12150330213468609]),
]
SCHEDULES = [
    ('StepLR', dict(step_size=3, gamma=0.5),
     [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05]),
    ('MultiStepLR', dict(milestones=[2, 5, 5], gamma=0.5),
     [0.2, 0.2, 0.1, 0.1, 0.1, 0.025, 0.025, 0.025, 0.025]),
    ('ExponentialLR', dict(gamma=0.9),
     [0.2, 0.18, 0.162, 0.1458, 0.13122, 0.118098, 0.1062882, 0.09565938,
      0.086093442]),
    ('CosineAnnealingLR', dict(T_max=8, eta_min=0.01),
     [0.2, 0.192768555589, 0.172175144213, 0.141354926075, 0.105,
      0.0686450739253, 0.0378248557873, 0.0172314444114, 0.01]),
    ('LinearLR', dict(start_factor=0.1, end_factor=0.8, total_iters=5),
     [0.02, 0.048, 0.076, 0.104, 0.132, 0.16, 0.16, 0.16, 0.16]),
    ('ConstantLR', dict(factor=0.2, total_iters=4),
     [0.04, 0.04, 0.04, 0.04, 0.2, 0.2, 0.2, 0.2, 0.2]),
    ('PolynomialLR', dict(total_iters=6, power=2.0),
     [0.2, 0.138888888889, 0.0888888888889, 0.05, 0.0222222222222,
      0.00555555555556, 0.0, 0.0, 0.0]),
    ('CosineAnnealingWarmRestarts', dict(T_0=2, T_mult=2, eta_min=0.01),
     [0.2, 0.105, 0.2, 0.172175144213, 0.105, 0.0378248557873, 0.2,
      0.192768555589, 0.172175144213]),
    ('OneCycleLR', dict(max_lr=1.0, total_steps=9),
     [0.04, 0.651358235235, 0.994415435451, 0.898566659346, 0.705644728991,
      0.462637102667, 0.22872995316, 0.060892969758, 4e-06]),
    ('OneCycleLR', dict(max_lr=1.0, epochs=3, steps_per_epoch=3, three_phase=True, anneal_strategy='linear', pct_start=0.4),
     [0.04, 0.409230769231, 0.778461538462, 0.852307692308, 0.483076923077,
      0.113846153846, 0.0285725714286, 0.0142882857143, 4e-06]),
]


def start(device='cpu'):
    options = dict(dtype=F64, device=device)
    w = lamina.tensor([1., -2., 3.], requires_grad=True, **options)
    b = lamina.tensor(0.5, requires_grad=True, **options)
    x = lamina.tensor([[1., 2., -1.], [.5, -1., 2.], [3., 0., 1.],
                       [-2., 1., 1.]], **options)
    y = lamina.tensor([1., 0., 2., -1.], **options)
    return w, b, lambda: ((((x @ w + b).tanh() - y) ** 2).mean()
                          + 0.1 * (w ** 4).mean())


def train(optimizer, loss, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


@pytest.mark.parametrize('kind, options, expected', EXPECTED)
def test_a_hundred_steps_are_pytorchs(kind, options, expected):
    w, b, loss = start()
    train(getattr(optim, kind)([w, b], **options), loss, 100)
    np.testing.assert_allclose([*w.tolist(), b.item()], expected,
                               rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize('kind, options, expected', EXPECTED)
def test_devices_agree(kind, options, expected):
    found = []
    for device in 'cpu', 'python':
        w, b, loss = start(device)
        train(getattr(optim, kind)([w, b], **options), loss, 5)
        found.append([*w.tolist(), b.item()])
    np.testing.assert_allclose(*found, rtol=1e-13)
    w = lamina.ones(3, device='meta', requires_grad=True)
    optimizer = getattr(optim, kind)([w], **options)
    w.grad = lamina.ones(3, device='meta')
    optimizer.step()
    for x in optimizer.state[w].values():
        assert isinstance(x, int) or str(x.device) == 'meta'


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
    optimizer = optim.SGD([a], lr=1.)
    optimizer.step()
    assert not optimizer.state          # nothing to remember


def test_groups():
    a = lamina.ones(1, requires_grad=True)
    b = lamina.ones(1, requires_grad=True)
    optimizer = optim.SGD([{'params': [a]}, {'params': b, 'lr': 1.}], lr=.5)
    (a + b).backward()
    optimizer.step()
    assert (a.item(), b.item()) == (.5, 0.)
    assert [g['lr'] for g in optimizer.param_groups] == [.5, 1.]
    assert repr(optimizer).startswith(
        'SGD (\nParameter Group 0\n    dampening: 0\n    lr: 0.5\n')
    assert repr(optimizer).endswith('weight_decay: 0\n)')
    with pytest.raises(TypeError, match="'params'; got Tensor"):
        optim.SGD([{'params': [a]}, b])


def test_add_param_group():
    a, b, c = (lamina.ones(1, requires_grad=True) for _ in range(3))
    optimizer = optim.SGD([a], lr=.5, momentum=.9)
    given = {'params': b, 'lr': 1.}
    optimizer.add_param_group(given)
    assert given['params'] is b         # ours is a copy
    assert optimizer.param_groups[1]['params'] == [b]
    assert optimizer.param_groups[1]['lr'] == 1
    assert optimizer.param_groups[1]['momentum'] == .9
    for wrong, error, message in (
            ([b], TypeError, 'got list'),
            ({'lr': 1}, KeyError, r"'params'; got \['lr'\]"),
            ({'params': {c}}, TypeError, 'a set'),
            ({'params': [c, 1]}, TypeError, 'got int'),
            ({'params': [a]}, ValueError, 'given twice'),
            ({'params': [c, c]}, ValueError, 'given twice'),
            ({'params': [('c', c)]}, ValueError, 'name their parameters'),
            ({'params': [c * 2]}, ValueError, 'no leaf')):
        with pytest.raises(error, match=message):
            optimizer.add_param_group(wrong)
    assert len(optimizer.param_groups) == 2


def test_names_of_parameters_are_kept():
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.named_parameters(), lr=.1)
    group = optimizer.param_groups[0]
    assert group['param_names'] == ['weight', 'bias']
    assert group['params'] == list(model.parameters())
    state = optimizer.state_dict()
    assert state['param_groups'][0]['param_names'] == ['weight', 'bias']
    with pytest.raises(ValueError, match='1 of 2 parameters have names'):
        optim.SGD([('weight', model.weight), model.bias])


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
    with pytest.raises(TypeError, match=r'one module: write its param'):
        optim.SGD(model)
    with pytest.raises(TypeError, match='got str'):
        optim.SGD(model.state_dict())
    with pytest.raises(TypeError, match='got int'):
        optim.SGD([w, 1])
    with pytest.raises(ValueError, match=r'\[2\] is given twice'):
        optim.SGD([w, w])
    assert len(optim.SGD(model.parameters()).param_groups[0]['params']) == 2
    model.bias.requires_grad_(False)    # frozen: a passenger
    before = model.bias.item()
    optimizer = optim.SGD(model.parameters(), lr=1., weight_decay=1.)
    model(lamina.ones(1, 2)).sum().backward()
    optimizer.step()
    assert model.bias.item() == before


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
    ('AdamW', dict(weight_decay=-1), 'invalid weight_decay: -1'),
    ('RMSprop', dict(alpha=-1), 'invalid alpha: -1'),
    ('RMSprop', dict(momentum=-1), 'invalid momentum: -1'),
    ('Adagrad', dict(lr_decay=-1), 'invalid lr_decay: -1'),
    ('Adagrad', dict(initial_accumulator_value=-1), 'invalid initial_acc')])
def test_options_are_checked(kind, options, message):
    w = lamina.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=message):
        getattr(optim, kind)([w], **options)


def test_options_are_numbers():
    w = lamina.ones(2, requires_grad=True)
    for wrong in ('0.1', lamina.tensor(.1)):
        with pytest.raises(TypeError, match='lr is a number; got'):
            optim.SGD([w], lr=wrong)
    with pytest.raises(TypeError, match='betas are two numbers; got 0.9'):
        optim.Adam([w], betas=.9)
    with pytest.raises(TypeError, match='foreach'):
        optim.SGD([w], foreach=True)


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


def rates(scheduler, epochs):
    found = []
    for _ in range(epochs):
        found += scheduler.get_last_lr()
        scheduler.optimizer.step()
        scheduler.step()
    return found


def sgd(lr=.2, **options):
    return optim.SGD([lamina.ones(1, requires_grad=True)], lr, **options)


@pytest.mark.parametrize('kind, options, expected', SCHEDULES)
def test_schedules_are_pytorchs(kind, options, expected):
    optimizer = sgd(momentum=.9)
    scheduler = getattr(lr_scheduler, kind)(optimizer, **options)
    assert scheduler.last_epoch == 0
    np.testing.assert_allclose(rates(scheduler, 9), expected, rtol=1e-10)
    assert scheduler.last_epoch == 9
    assert scheduler.get_last_lr() == [optimizer.param_groups[0]['lr']]


@pytest.mark.parametrize('kind, options, expected', SCHEDULES)
def test_schedules_go_on_from_their_state(kind, options, expected):
    first = getattr(lr_scheduler, kind)(sgd(momentum=.9), **options)
    rates(first, 4)
    saved = copy.deepcopy((first.state_dict(), first.optimizer.state_dict()))
    assert 'optimizer' not in saved[0]
    second = getattr(lr_scheduler, kind)(sgd(momentum=.9), **options)
    second.load_state_dict(saved[0])
    second.optimizer.load_state_dict(saved[1])
    copied = pickle.loads(pickle.dumps(first))
    left = rates(first, 5)
    assert rates(second, 5) == left == rates(copied, 5)
    np.testing.assert_allclose(left, expected[4:], rtol=1e-10)


def test_each_group_has_its_own_rate():
    a, b = (lamina.ones(1, requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([{'params': a}, {'params': b, 'lr': .4}], lr=.2)
    scheduler = lr_scheduler.LambdaLR(
        optimizer, [lambda epoch: epoch + 1, lambda epoch: 1])
    assert rates(scheduler, 2) == [.2, .4, .4, .4]
    assert scheduler.base_lrs == [.2, .4]
    assert scheduler.state_dict()['lr_lambdas'] == [None, None]
    with pytest.raises(ValueError, match='2 groups; got 1 functions'):
        lr_scheduler.LambdaLR(optimizer, [abs])
    optimizer.add_param_group({'params': lamina.ones(1)})
    with pytest.raises(ValueError, match='3 groups, and had 2'):
        lr_scheduler.StepLR.step(lr_scheduler_of(optimizer, 2))


def lr_scheduler_of(optimizer, groups):
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    scheduler.base_lrs = scheduler.base_lrs[:groups]
    return scheduler


def test_multiplicative():
    scheduler = lr_scheduler.MultiplicativeLR(sgd(), lambda epoch: .5)
    np.testing.assert_allclose(rates(scheduler, 3), [.2, .1, .05])


def test_a_callable_object_is_saved_with_a_schedule():
    scheduler = lr_scheduler.LambdaLR(sgd(), Slow(4))
    other = lr_scheduler.LambdaLR(sgd(), Slow(1))
    other.load_state_dict(scheduler.state_dict())
    assert other.lr_lambdas[0].by == 4


class Slow:
    def __init__(self, by):
        self.by = by

    def __call__(self, epoch):
        return 1 / (1 + epoch / self.by)


def warm_up(optimizer):
    return lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, .1, 1., 3),
                    lr_scheduler.CosineAnnealingLR(optimizer, 5)], [3])


def chained(optimizer):
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, .1, 4),
         lr_scheduler.ExponentialLR(optimizer, .9)])


@pytest.mark.parametrize('make, expected', [
    (warm_up, [.05, .2, .35, .5, .452254248594, .327254248594,
               .172745751406, .0477457514063, 0.]),
    (chained, [.05, .045, .0405, .03645, .32805, .295245, .2657205,
               .23914845, .215233605])])
def test_schedules_of_schedules_are_pytorchs(make, expected):
    scheduler = make(sgd(.5))
    np.testing.assert_allclose(rates(scheduler, 9), expected, rtol=1e-10,
                               atol=1e-12)
    first, second = make(sgd(.5)), make(sgd(.5))
    rates(first, 5)
    saved = copy.deepcopy((first.state_dict(), first.optimizer.state_dict()))
    second.load_state_dict(saved[0])
    second.optimizer.load_state_dict(saved[1])
    assert rates(second, 4) == rates(first, 4)


def test_a_chain_begins_where_a_sequence_starts_it():
    optimizer = sgd(1.)
    inner = chained(optimizer)
    scheduler = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.StepLR(optimizer, 1), inner], [2])
    np.testing.assert_allclose(rates(scheduler, 4), [1, .1, .1, .09])


@pytest.mark.parametrize('options, expected', [
    (dict(factor=.5, patience=1),
     [.5, .5, .5, .25, .25, .25, .25, .125, .125]),
    (dict(factor=.1, patience=0, cooldown=2, min_lr=.02),
     [.5, .5, .05, .05, .05, .05, .02, .02, .02]),
    (dict(mode='max', factor=.5, patience=0, threshold=.2,
          threshold_mode='abs'),
     [.5, .25, .125, .0625, .03125, .015625, .0078125, .00390625,
      .001953125])])
def test_plateau_is_pytorchs(options, expected):
    optimizer = sgd(.5)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    found = []
    for loss in (1.0, 0.9, 0.9, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9):
        scheduler.step(lamina.tensor(loss))
        found += scheduler.get_last_lr()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    other = lr_scheduler.ReduceLROnPlateau(sgd(.5))
    other.load_state_dict(scheduler.state_dict())
    assert other.state_dict() == scheduler.state_dict()


def test_one_cycle_turns_the_momentum_round():
    optimizer = optim.Adam([lamina.ones(1, requires_grad=True)])
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1., total_steps=10)
    found = []
    for _ in range(10):
        found.append(optimizer.param_groups[0]['betas'][0])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(found[:4], [.95, .9, .85, .85495155660487885])
    assert optimizer.param_groups[0]['betas'][1] == .999
    with pytest.raises(ValueError, match='step.. number 11 of a cycle'):
        scheduler.step()


def test_schedules_are_checked():
    optimizer = sgd()
    s = lr_scheduler
    for make, error, message in (
            (lambda: s.StepLR(optimizer, 0), ValueError, 'step_size.*got 0'),
            (lambda: s.CosineAnnealingLR(optimizer, -1), ValueError,
             'T_max.*got -1'),
            (lambda: s.StepLR(1, 1), TypeError, 'got int'),
            (lambda: s.LRScheduler(optimizer), NotImplementedError,
             'no rate'),
            (lambda: s.StepLR(sgd(), 1, last_epoch=3), KeyError,
             "no 'initial_lr'"),
            (lambda: s.LinearLR(optimizer, 0), ValueError, 'start_factor'),
            (lambda: s.LinearLR(optimizer, 1, 2), ValueError, 'end_factor'),
            (lambda: s.ConstantLR(optimizer, 2), ValueError, 'factor.*got 2'),
            (lambda: s.CosineAnnealingWarmRestarts(optimizer, 0), ValueError,
             'T_0'),
            (lambda: s.OneCycleLR(optimizer, 1.), ValueError, 'total_steps'),
            (lambda: s.OneCycleLR(optimizer, 1., 0), ValueError, 'got 0'),
            (lambda: s.OneCycleLR(optimizer, [1., 2.], 3), ValueError,
             'max_lr.*1 groups; got 2'),
            (lambda: s.OneCycleLR(optimizer, 1., 3, pct_start=2), ValueError,
             'pct_start'),
            (lambda: s.OneCycleLR(optimizer, 1., 3, anneal_strategy='no'),
             ValueError, "'no'"),
            (lambda: s.OneCycleLR(optim.Adagrad([lamina.ones(1)]), 1., 3),
             ValueError, 'neither momentum nor betas'),
            (lambda: s.ReduceLROnPlateau(optimizer, 'low'), ValueError,
             "'low'"),
            (lambda: s.ReduceLROnPlateau(optimizer, factor=1), ValueError,
             'below 1'),
            (lambda: s.ReduceLROnPlateau(optimizer, threshold_mode='x'),
             ValueError, "'x'"),
            (lambda: s.ChainedScheduler([]), ValueError, 'got none'),
            (lambda: s.ChainedScheduler([1], optimizer), TypeError,
             'got int'),
            (lambda: s.SequentialLR(optimizer, [s.StepLR(sgd(), 1)], []),
             ValueError, 'another optimiser'),
            (lambda: s.SequentialLR(optimizer, [s.StepLR(optimizer, 1)],
                                    [2]), ValueError, '0 milestones; got 1'),
            (lambda: s.SequentialLR(
                optimizer, [s.ReduceLROnPlateau(optimizer)], []),
             ValueError, 'by itself')):
        with pytest.raises(error, match=message):
            make()


def test_the_first_rate_must_be_used():
    scheduler = lr_scheduler.StepLR(sgd(), 1)
    with pytest.warns(UserWarning, match='call optimizer.step.. first'):
        scheduler.step()
    scheduler = lr_scheduler.StepLR(sgd(), 1)
    scheduler.optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        scheduler.step()


def test_names():
    from lamina.optim.lr_scheduler import StepLR
    assert StepLR is lr_scheduler.StepLR is optim.StepLR
    with pytest.raises(AttributeError, match="no attribute 'Stepper'"):
        lr_scheduler.Stepper
    with pytest.raises(AttributeError, match="'Adamw'.*mean 'Adam"):
        optim.Adamw


@pytest.mark.parametrize('kind, options, expected', EXPECTED)
def test_a_state_is_gone_on_from(kind, options, expected):
    w, b, loss = start()
    optimizer = getattr(optim, kind)([w, b], **options)
    train(optimizer, loss, 40)
    state = copy.deepcopy(optimizer.state_dict())
    assert state['param_groups'][0]['params'] == [0, 1]
    v, c, other_loss = start()
    with lamina.no_grad():
        v.copy_(w), c.copy_(b)
    other = getattr(optim, kind)([v, c], lr=7.)
    other.load_state_dict(state)
    assert other.param_groups[0]['params'][0] is v
    train(optimizer, loss, 60)
    train(other, other_loss, 60)
    assert v.tolist() == w.tolist() and c.item() == b.item()
    np.testing.assert_allclose([*v.tolist(), c.item()], expected,
                               rtol=1e-11, atol=1e-13)


def test_a_state_is_copied_and_counted_through_all_groups():
    a, b, c = (lamina.ones(2, requires_grad=True) for _ in range(3))
    groups = [{'params': [a]}, {'params': [b, c], 'lr': 1.}]
    optimizer = optim.Adam(groups)
    c.grad = lamina.ones(2)
    optimizer.step()
    state = optimizer.state_dict()
    assert list(state['state']) == [2]
    assert [g['params'] for g in state['param_groups']] == [[0], [1, 2]]
    assert state['state'][2]['exp_avg'] is optimizer.state[c]['exp_avg']
    wide = [lamina.ones(2, dtype=F64, requires_grad=True) for _ in range(3)]
    other = optim.Adam([{'params': wide[:1]}, {'params': wide[1:]}])
    state['state'][2]['step'] = lamina.tensor(1.)       # as PyTorch has it
    state['state']['mine'] = [1]
    other.load_state_dict(state)
    assert other.param_groups[1]['lr'] == 1.
    kept = other.state[wide[2]]
    assert kept['step'] == 1 and kept['exp_avg'].dtype is F64
    assert other.state['mine'] == [1]
    optimizer.step()
    assert abs(kept['exp_avg'][0].item() - .1) < 1e-6


def test_a_state_that_does_not_fit_changes_nothing():
    a, b = (lamina.ones(2, requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([a], lr=.1)
    for other in ([a, b], [{'params': a}, {'params': b}]):
        state = optim.SGD(other, lr=.5).state_dict()
        with pytest.raises(ValueError, match=r'groups of \[.*has groups'):
            optimizer.load_state_dict(state)
        assert optimizer.param_groups[0]['lr'] == .1
    with pytest.raises(KeyError, match='param_groups'):
        optimizer.load_state_dict({'state': {}})


def test_options_that_a_state_lacks_stay():
    a = lamina.ones(2, requires_grad=True)
    optimizer = optim.SGD([a], lr=.1)
    optimizer.load_state_dict(
        {'state': {}, 'param_groups': [{'lr': .3, 'params': [0]}]})
    assert optimizer.param_groups[0]['lr'] == .3
    assert optimizer.param_groups[0]['nesterov'] is False


@pytest.mark.parametrize('kind', ['SGD', 'RMSprop', 'Adagrad', 'Adam'])
@pytest.mark.parametrize('how', ['copy', 'pickle'])
def test_optimisers_are_copied(kind, how):
    options = {'momentum': .9} if kind == 'SGD' else {}
    model = nn.Linear(2, 1)
    optimizer = getattr(optim, kind)(model.parameters(), lr=.1, **options)

    def go(model, optimizer):
        optimizer.zero_grad()
        model(lamina.ones(3, 2)).square().sum().backward()
        optimizer.step()
        return model.weight.tolist()
    go(model, optimizer)
    both = model, optimizer
    twin, other = (copy.deepcopy(both) if how == 'copy'
                   else pickle.loads(pickle.dumps(both)))
    assert other.param_groups[0]['params'][0] is twin.weight
    assert set(other.state) == set(twin.parameters())
    first = go(model, optimizer)
    assert twin.weight.tolist() != first
    assert go(twin, other) == first


def test_one_call_a_parameter():
    """SGD without momentum is one add_ a parameter."""
    w = lamina.ones(3, requires_grad=True)
    optimizer = optim.SGD([w], lr=.5)
    w.grad = lamina.ones(3)
    version = w._version
    optimizer.step()
    assert w._version == version + 1 and w.tolist() == [.5] * 3


def gradients():
    a = lamina.tensor([3., 4.], dtype=F64, requires_grad=True)
    b = lamina.tensor([[12.]], dtype=F64, requires_grad=True)
    ((a * a).sum() / 2 + (b * b).sum() / 2).backward()
    return a, b


@pytest.mark.parametrize('order, norm, first', [
    (2.0, 13.0, 0.46153842603550564), (math.inf, 12.0, 0.4999999583333368),
    (1.0, 19.0, 0.3157894570637128), ('inf', 12.0, 0.4999999583333368)])
def test_clipping_by_norm(order, norm, first):
    a, b = gradients()
    memory = a.grad.storage
    total = nn.utils.clip_grad_norm_([a, b], 2.0, order)
    assert total.item() == norm and a.grad.storage is memory
    np.testing.assert_allclose(
        [*a.grad.tolist(), b.grad.item()],
        [first, first * 4 / 3, first * 4], rtol=1e-12)


def test_clipping_leaves_what_is_small():
    a, b = gradients()
    assert nn.utils.clip_grad_norm_((p for p in (a, b)), 100.).item() == 13
    assert a.grad.tolist() == [3., 4.]
    assert nn.utils.clip_grad_norm_(a, 1.).item() == 5
    b.grad = None
    assert nn.utils.clip_grad_norm_([b], 1.).item() == 0
    with pytest.warns(UserWarning, match='nothing is clipped'):
        nn.utils.clip_grad_norm_(iter([]), 1.)


def test_clipping_what_is_not_finite():
    a, b = gradients()
    a.grad[0] = math.inf
    with pytest.raises(RuntimeError, match='order 2.0 .* is inf'):
        nn.utils.clip_grad_norm_([a, b], 1., error_if_nonfinite=True)
    assert b.grad.item() == 12
    assert nn.utils.clip_grad_norm_([a, b], 1.).item() == math.inf
    assert b.grad.item() == 0 and math.isnan(a.grad[0].item())


def test_clipping_by_value():
    a, b = gradients()
    with lamina.no_grad():
        b.grad.neg_()
    assert nn.utils.clip_grad_value_([a, b], 3.5) is None
    assert a.grad.tolist() == [3., 3.5] and b.grad.item() == -3.5


def test_parameters_as_a_vector():
    model = nn.Linear(2, 2)
    flat = nn.utils.parameters_to_vector(model.parameters())
    assert flat.shape == (6,)
    flat.sum().backward()
    assert model.bias.grad.tolist() == [1., 1.]
    nn.utils.vector_to_parameters(lamina.arange(6.), model.parameters())
    assert model.weight.tolist() == [[0., 1.], [2., 3.]]
    assert model.bias.tolist() == [4., 5.] and model.bias.is_leaf
    with pytest.raises(RuntimeError, match=r'6 numbers; got.*\[5\]'):
        nn.utils.vector_to_parameters(lamina.ones(5), model.parameters())
    with pytest.raises(TypeError, match='got list'):
        nn.utils.vector_to_parameters([1.], model.parameters())


def test_find_lr_leaves_all_as_it_was():
    w = lamina.tensor([1., -1.], dtype=F64, requires_grad=True)
    optimizer = optim.SGD([w], lr=.3, momentum=.9)

    def closure():
        optimizer.zero_grad()
        loss = (5 * w * w).sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    before = w.tolist(), optimizer.state[w]['momentum_buffer'].tolist()
    grad = w.grad
    found, losses = optim.find_lr(optimizer, closure, 1e-4, 10., 31)
    assert (w.tolist(),
            optimizer.state[w]['momentum_buffer'].tolist()) == before
    assert w.grad is grad and optimizer.param_groups[0]['lr'] == .3
    assert len(found) == len(losses) < 31       # it diverged, and stopped
    np.testing.assert_allclose(found[1] / found[0], 10 ** (1 / 6))
    assert losses[-1] > 4 * min(losses)


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
    optimizer = sgd(1.)
    optimizer.step()
    both = optim.StepLR(optimizer, 1, .5), optim.StepLR(optimizer, 2, .1)
    found = []
    for _ in range(4):
        for scheduler in both:
            scheduler.step()
        found.append(optimizer.param_groups[0]['lr'])
    np.testing.assert_allclose(found, [.5, .025, .0125, .000625])
    assert both[1].base_lrs == [1.]


def test_a_rate_that_is_set_by_hand():
    scheduler = optim.StepLR(sgd(1.), 3, .5)
    scheduler.optimizer.param_groups[0]['lr'] = .01
    np.testing.assert_allclose(rates(scheduler, 5)[1:],
                               [.01, .01, .005, .005])


def test_a_cosine_comes_back_up():
    scheduler = optim.CosineAnnealingLR(sgd(1.), 2)
    np.testing.assert_allclose(rates(scheduler, 5), [1, .5, 0, .5, 1],
                               atol=1e-12)


def test_adding_to_a_list_is_refused_where_it_would_be_recorded():
    add = lamina.dispatch.functions['_foreach_add_']
    x, y = lamina.ones(2).requires_grad_(), lamina.ones(2)
    with pytest.raises(NotImplementedError, match='no derivative'):
        add([x], [y], alpha=2)
    with lamina.no_grad():
        add([x], [y], alpha=2)
    assert x.tolist() == [3, 3] and x._version == 1


@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_adding_to_a_list_takes_what_add_takes(device):
    add = lamina.dispatch.functions['_foreach_add_']
    x = [lamina.ones(2, 3, device=device).t(),
         lamina.ones(2, device=device, dtype=lamina.float16),
         lamina.ones(2, 2, device=device)]
    y = [lamina.ones(3, 2, device=device), lamina.ones(2, device=device),
         lamina.ones(2, device=device)]
    want = [a.clone().add_(b, alpha=-0.5).tolist() for a, b in zip(x, y)]
    add(x, y, alpha=-0.5)
    assert [a.tolist() for a in x] == want


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('alpha', [1, -0.5, 0.0, 1e30])
def test_adding_to_a_list_is_add_of_each(device, alpha):
    def make():
        base = lamina.arange(12.).view(3, 4).to(device)
        return [base[1:], base[:, 1:3], lamina.tensor(2.).to(device),
                lamina.ones(2, 0).to(device), lamina.ones(3, 2).to(device),
                lamina.ones(2, dtype=F64, device=device)], base
    others = [lamina.tensor([[math.inf, math.nan, -0.0, 1e30]] * 2),
              lamina.ones(2, 3).t(), lamina.tensor(3.), lamina.ones(0),
              lamina.arange(3.).view(3, 1),
              lamina.tensor([1e-3, 3.0], dtype=F64)]
    others = [o.to(device) for o in others]
    (found, base), (want, other) = make(), make()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        lamina.dispatch.functions['_foreach_add_'](found, others, alpha=alpha)
        for a, b in zip(want, others):
            a.add_(b, alpha=alpha)
    for a, b in zip(found, want):
        np.testing.assert_array_equal(a.tolist(), b.tolist())
        assert a._version == b._version
    assert base._version == 2       # two views of it were written to


def test_what_cannot_be_added_leaves_the_rest_added_once():
    x = [lamina.zeros(2), lamina.zeros(2), lamina.zeros(1).expand(2)]
    add = lamina.dispatch.functions['_foreach_add_']
    with pytest.raises(RuntimeError, match='shape|broadcast|fit'):
        add(x[:2], [lamina.ones(2), lamina.ones(3)], alpha=2)
    with pytest.raises(RuntimeError):
        add(x[::2], [lamina.ones(2), lamina.ones(2)], alpha=3)
    assert [v.tolist() for v in x] == [[5, 5], [0, 0], [0, 0]]
    assert [v._version for v in x] == [2, 0, 0]


def test_sgd_moves_parameters_of_several_kinds():
    params = [lamina.ones(2), lamina.ones(2, dtype=F64),
              lamina.ones(2, device='python'),
              lamina.ones(2, dtype=lamina.float16),
              lamina.ones(3, 2).t(), lamina.ones(2)]
    for p in params[:-1]:
        p.requires_grad_().grad = lamina.ones_like(p) * 2
    for chosen in (params, params[:2], params[-1:]):
        optimizer = optim.SGD(chosen, lr=0.25)
        optimizer.step()
    for p, want in zip(params, (0, 0, 0.5, 0.5, 0.5, 1)):
        np.testing.assert_array_equal(p.tolist(), np.full(p.shape, want))
    assert [p._version for p in params] == [2, 2, 1, 1, 1, 0]


def test_a_step_is_seen_by_logs_and_modes():
    p = lamina.from_numpy(np.ones(2)).requires_grad_()
    p.grad = lamina.from_numpy(np.ones(2))
    assert p.sum().item() == p.grad.sum().item()    # both have an array
    optimizer = optim.SGD([p], lr=0.5)
    with lamina.dispatch.log_operators() as log:
        optimizer.step()
    seen = []

    class Mode(lamina.dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((func.schema.full_name, kwargs))
            return func(*args, **kwargs or {})

    with Mode():
        optimizer.step()
    assert log == ['_foreach_add_.List'] and p.tolist() == [0, 0]
    assert seen == [('_foreach_add_.List', {'alpha': -0.5})]
    assert p._version == 2


@pytest.mark.parametrize('x', [
    lamina.ones(3) * 1, lamina.ones(3, 2)[:, 0]], ids=['new', 'strided'])
def test_adding_to_a_list_goes_from_left_to_right(x):
    """What was added to may be added next, however each is added."""
    add = lamina.dispatch.functions['_foreach_add_']
    y = lamina.zeros(3).add_(0)         # it has both array and storage
    add([x, y, x], [lamina.ones(3), x, y])
    assert y.tolist() == [2.0] * 3 and x.tolist() == [4.0] * 3


@pytest.mark.parametrize('lr', [lamina.tensor([0.1, 0.2]), 1j, 'much'])
def test_a_rate_that_is_no_number_is_refused_in_each_step(lr):
    p = lamina.ones(2).add_(0).requires_grad_()
    p.grad = lamina.ones(2).add_(0)
    optimizer = optim.SGD([p])
    optimizer.param_groups[0]['lr'] = lr
    with pytest.raises((RuntimeError, TypeError), match='number|element|str'):
        optimizer.step()
    assert p.tolist() == [1.0, 1.0]
