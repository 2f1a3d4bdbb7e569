"""What nn computes, as cases that run with PyTorch and with Lamina alike.

Each case gives a dict of numbers: the result and the gradients. Run this
file where torch is installed, and it writes nn_values.json beside it, which
tests/test_nn.py compares with. All is computed in float64.
"""

import json
import math
from pathlib import Path

VALUES = Path(__file__).with_name('nn_values.json')
REDUCTIONS = 'none', 'mean', 'sum'


def spread(shape, shift=0.0):
    """Numbers without a pattern, between -2 and 2, as nested lists."""
    count = math.prod(shape)
    flat = [round(2 * math.sin(1.7 * k + shift + 0.3), 3)
            for k in range(count)]
    for size in reversed(shape[1:]):
        flat = [flat[i:i + size] for i in range(0, len(flat), size)]
    return flat if shape else flat[0]


class Bench:
    """One module, torch or lamina, on one device."""

    def __init__(self, T, device='cpu'):
        self.T, self.device = T, device

    def x(self, *shape, shift=0.0, grad=True):
        return self.T.tensor(spread(shape, shift), dtype=self.T.float64,
                             device=self.device, requires_grad=grad)

    def t(self, data, dtype='float64'):
        return self.T.tensor(data, dtype=getattr(self.T, dtype),
                             device=self.device)

    def module(self, made):
        """A module in float64, with fixed numbers as parameters."""
        made = made.to(self.device).double()
        with self.T.no_grad():
            for i, p in enumerate(made.parameters()):
                p.copy_(self.t(spread(tuple(p.shape), i)))
        return made

    def look(self, out, *leaves):
        """The result, and what its gradient makes of the leaves."""
        found = {'out': out.tolist()}
        if leaves:
            weights = self.t(spread(tuple(out.shape), 5.0))
            (out * weights).sum().backward()
            found['grads'] = [x.grad.tolist() for x in leaves]
        return found

    def run(self, f, *leaves):
        return self.look(f(*leaves), *leaves)

    def run_module(self, made, *inputs):
        made = self.module(made)
        leaves = [x for x in inputs if x.dtype == self.T.float64
                  and x.requires_grad]
        return self.look(made(*inputs), *leaves, *made.parameters())


ACTIVATIONS = {
    'relu': ('ReLU', {}), 'relu6': ('ReLU6', {}),
    'leaky_relu': ('LeakyReLU', {'negative_slope': 0.2}),
    'elu': ('ELU', {'alpha': 1.5}), 'selu': ('SELU', {}),
    'celu': ('CELU', {'alpha': 0.7}), 'gelu': ('GELU', {}),
    'silu': ('SiLU', {}), 'mish': ('Mish', {}),
    'softplus': ('Softplus', {'beta': 2.0, 'threshold': 3.0}),
    'hardtanh': ('Hardtanh', {'min_val': -0.5, 'max_val': 1.5}),
    'hardsigmoid': ('Hardsigmoid', {}), 'hardswish': ('Hardswish', {}),
    'logsigmoid': ('LogSigmoid', {}), 'softsign': ('Softsign', {}),
    'tanhshrink': ('Tanhshrink', {}),
    'hardshrink': ('Hardshrink', {'lambd': 0.6}),
    'softshrink': ('Softshrink', {'lambd': 0.6}),
    'threshold': ('Threshold', {'threshold': 0.1, 'value': 7.0}),
    'glu': ('GLU', {'dim': 0}), 'softmax': ('Softmax', {'dim': 1}),
    'log_softmax': ('LogSoftmax', {'dim': 1}),
    'softmin': ('Softmin', {'dim': 0}), 'sigmoid': ('Sigmoid', {}),
    'tanh': ('Tanh', {}),
}


def activations(b):
    F, nn = b.T.nn.functional, b.T.nn
    for name, (module, options) in ACTIVATIONS.items():
        yield name, lambda name=name, options=options: b.run(
            lambda x: getattr(F, name)(x, **options), b.x(4, 3))
        yield f'nn.{module}', lambda module=module, options=options: b.run(
            getattr(nn, module)(**options), b.x(4, 3, shift=1.0))
    yield 'gelu tanh', lambda: b.run(
        lambda x: F.gelu(x, approximate='tanh'), b.x(4, 3))
    yield 'prelu', lambda: b.run(F.prelu, b.x(2, 3, 2), b.x(3, shift=2.))
    yield 'nn.PReLU', lambda: b.run_module(nn.PReLU(3), b.x(2, 3))


def layers(b):
    nn = b.T.nn
    made = {
        'Linear': (lambda: nn.Linear(3, 2), (2, 4, 3)),
        'Linear without bias': (lambda: nn.Linear(3, 2, bias=False), (3,)),
        'LayerNorm': (lambda: nn.LayerNorm((3, 2)), (4, 3, 2)),
        'LayerNorm plain': (lambda: nn.LayerNorm(
            4, elementwise_affine=False), (2, 4)),
        'LayerNorm without bias': (lambda: nn.LayerNorm(4, bias=False),
                                   (2, 4)),
        'GroupNorm': (lambda: nn.GroupNorm(2, 4, eps=1e-3), (2, 4, 3)),
        'BatchNorm1d': (lambda: nn.BatchNorm1d(3), (5, 3)),
        'BatchNorm1d of three dimensions': (
            lambda: nn.BatchNorm1d(3, momentum=None), (2, 3, 4)),
        'BatchNorm1d without running': (lambda: nn.BatchNorm1d(
            3, track_running_stats=False, affine=False), (5, 3)),
        'BatchNorm1d in eval': (lambda: nn.BatchNorm1d(3).eval(), (2, 3)),
        'BatchNorm2d': (lambda: nn.BatchNorm2d(2), (2, 2, 2, 3)),
        'Flatten': (lambda: nn.Flatten(0, 1), (2, 3, 2)),
        'Identity': (lambda: nn.Identity(3, x=1), (2,)),
        'Dropout in eval': (lambda: nn.Dropout(0.5).eval(), (3,)),
        'Conv1d': (lambda: nn.Conv1d(2, 4, 3, padding='same', groups=2),
                   (2, 2, 5)),
        'Conv2d': (lambda: nn.Conv2d(2, 3, (2, 3), stride=(1, 2),
                                     padding=1, dilation=(2, 1)),
                   (2, 2, 5, 4)),
        'Conv2d without batch': (lambda: nn.Conv2d(1, 2, 2, bias=False),
                                 (1, 3, 3)),
        'MaxPool1d': (lambda: nn.MaxPool1d(2, ceil_mode=True), (1, 2, 5)),
        'MaxPool2d': (lambda: nn.MaxPool2d(3, 2, padding=1), (1, 2, 5, 5)),
        'AvgPool1d': (lambda: nn.AvgPool1d(3, 2, 1), (1, 2, 5)),
        'AvgPool2d': (lambda: nn.AvgPool2d(
            2, ceil_mode=True, padding=1, count_include_pad=False),
            (1, 2, 3, 4)),
        'Unfold': (lambda: nn.Unfold(2, padding=1, stride=2), (1, 2, 4, 3)),
        'PixelShuffle': (lambda: nn.PixelShuffle(2), (1, 4, 2, 3)),
        'PixelUnshuffle': (lambda: nn.PixelUnshuffle(2), (1, 1, 4, 2)),
    }
    for name, (make, shape) in made.items():
        yield name, lambda make=make, shape=shape: b.run_module(
            make(), b.x(*shape))
    yield 'Embedding', lambda: b.run_module(
        nn.Embedding(5, 2, padding_idx=-2), b.t([[0, 3], [3, 4]], 'int64'))
    yield 'Embedding by frequency', lambda: b.run_module(nn.Embedding(
        5, 2, scale_grad_by_freq=True), b.t([0, 3, 3, 3], 'int64'))
    yield 'Embedding of short rows', lambda: b.run_module(nn.Embedding(
        5, 2, max_norm=1.0), b.t([0, 3], 'int64'))


def running(b):
    """What batch norm remembers."""
    layer = b.module(b.T.nn.BatchNorm1d(3))
    for k in range(3):
        layer(b.x(4, 3, shift=float(k), grad=False))
    return {name: x.tolist() for name, x in layer.named_buffers()}


def functions(b):
    F = b.T.nn.functional
    q, k, v = (lambda: b.x(2, 3, 4)), (lambda: b.x(2, 3, 4, shift=1.)), (
        lambda: b.x(2, 3, 4, shift=2.))
    mask = [[True, False, True], [False] * 3, [True] * 3]
    attend = F.scaled_dot_product_attention
    yield 'attention', lambda: b.run(attend, q(), k(), v())
    yield 'attention causal', lambda: b.run(
        lambda *x: attend(*x, is_causal=True, scale=0.3), q(), k(), v())
    yield 'attention masked', lambda: b.run(
        lambda *x: attend(*x, attn_mask=b.t(mask, 'bool')), q(), k(), v())
    yield 'normalize', lambda: b.run(
        lambda x: F.normalize(x, 3.0, 0), b.x(3, 2))
    yield 'cosine_similarity', lambda: b.run(
        F.cosine_similarity, b.x(3, 2), b.x(3, 2, shift=1.))
    yield 'pairwise_distance', lambda: b.run(
        F.pairwise_distance, b.x(3, 2), b.x(3, 2, shift=1.))
    yield 'rms_norm', lambda: b.run(
        lambda x, w: F.rms_norm(x, (4,), w), b.x(3, 4), b.x(4, shift=1.))
    yield 'instance_norm', lambda: b.run(
        lambda x, w: F.instance_norm(x, weight=w), b.x(2, 3, 4),
        b.x(3, shift=1.))
    for mode in ('constant', 'reflect', 'replicate', 'circular'):
        yield f'pad {mode}', lambda mode=mode: b.run(
            lambda x: F.pad(x, (2, 1, 1, 0), mode), b.x(1, 2, 3, 4))
    yield 'pad cuts', lambda: b.run(
        lambda x: F.pad(x, (-1, 2, 0, -1), value=9.0), b.x(3, 4))
    yield 'one_hot', lambda: {'out': F.one_hot(
        b.t([[0, 2], [1, 1]], 'int64')).tolist()}
    yield 'places of max_pool2d', lambda: {'out': F.max_pool2d(
        b.x(1, 2, 5, 5, grad=False), 3, 2, 1, return_indices=True)[1]
        .tolist()}


def losses(b):
    nn, T = b.T.nn, b.T
    classes = lambda: b.t([0, 2, 1, 2], 'int64')
    chances = lambda: T.softmax(b.x(4, 3, shift=1., grad=False), 1)
    weight = lambda: b.t([1., 2., 0.5])
    near = lambda: b.x(4, 3, shift=1., grad=False)
    yes = lambda: b.t([[1., 0., 1.], [0., 0.25, 1.], [1., 1., 0.],
                       [0., 1., 0.]])
    sides = lambda: b.t([1., -1., 1., -1.])
    x = lambda: b.x(4, 3)
    p = lambda: T.sigmoid(x().detach()).requires_grad_()
    log_p = lambda: T.log_softmax(x().detach(), 1).requires_grad_()
    other = lambda: b.x(4, 3, shift=1.)
    made = {
        'CrossEntropyLoss': ({}, x, classes),
        'CrossEntropyLoss weight': ({'weight': weight}, x, classes),
        'CrossEntropyLoss ignore': ({'ignore_index': 2}, x, classes),
        'CrossEntropyLoss smooth': (
            {'label_smoothing': 0.1, 'weight': weight, 'ignore_index': 0},
            x, classes),
        'CrossEntropyLoss chances': (
            {'label_smoothing': 0.2, 'weight': weight}, x, chances),
        'CrossEntropyLoss places': (
            {}, lambda: b.x(2, 3, 2), lambda: b.t([[0, 2], [1, 1]],
                                                  'int64')),
        'CrossEntropyLoss one': ({}, lambda: b.x(3), lambda: b.t(
            1, 'int64')),
        'NLLLoss': ({'weight': weight, 'ignore_index': 1}, log_p, classes),
        'BCELoss': ({}, p, yes),
        'BCELoss weight': ({'weight': weight}, p, yes),
        'BCEWithLogitsLoss': ({}, x, yes),
        'BCEWithLogitsLoss weights': (
            {'weight': weight, 'pos_weight': weight}, x, yes),
        'MSELoss': ({}, x, near), 'L1Loss': ({}, x, near),
        'SmoothL1Loss': ({'beta': 0.5}, x, near),
        'HuberLoss': ({'delta': 0.5}, x, near),
        'KLDivLoss': ({}, log_p, chances),
        'KLDivLoss log': ({'log_target': True}, log_p, near),
        'PoissonNLLLoss': ({}, x, yes),
        'PoissonNLLLoss full': ({'log_input': False, 'full': True}, p,
                                lambda: b.t([[0., 1., 2.], [3., 4., 0.]] * 2
                                            )),
        'SoftMarginLoss': ({}, x, lambda: b.t([[1., -1., 1.]] * 4)),
        'HingeEmbeddingLoss': ({'margin': 0.5}, x,
                               lambda: b.t([[1., -1., -1.]] * 4)),
        'GaussianNLLLoss': ({'full': True}, x, near, p),
        'MarginRankingLoss': ({'margin': 0.5}, lambda: b.x(4),
                              lambda: b.x(4, shift=1.), sides),
        'CosineEmbeddingLoss': ({'margin': 0.2}, x, other, sides),
        'TripletMarginLoss': ({'swap': True}, x, other,
                              lambda: b.x(4, 3, shift=2.)),
    }
    for name, (options, *tensors) in made.items():
        for reduction in REDUCTIONS:
            yield f'{name} {reduction}', loss_case(
                b, getattr(nn, name.split()[0]), options, reduction, tensors)
    yield 'KLDivLoss batchmean', loss_case(
        b, nn.KLDivLoss, {}, 'batchmean', (log_p, chances))


def loss_case(b, kind, options, reduction, tensors):
    def run():
        made = kind(reduction=reduction, **{
            key: value() if callable(value) else value
            for key, value in options.items()})
        inputs = [make() for make in tensors]
        return b.look(made(*inputs), *[x for x in inputs if x.requires_grad])
    return run


def state_names(b):
    """What the modules call their parameters and buffers."""
    nn = b.T.nn
    made = [nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LayerNorm(2),
            nn.GroupNorm(1, 2), nn.Embedding(2, 2), nn.Conv1d(1, 1, 1),
            nn.Conv2d(1, 1, 1, bias=False), nn.PReLU(), nn.Dropout(),
            nn.CrossEntropyLoss(b.t([1.])), nn.ParameterList([b.t([1.])])]
    net = nn.Sequential(nn.ModuleList(made[:2]), nn.ModuleDict({
        'a': made[2], 'b': nn.Sequential(made[0])}), *made[3:])
    return {name: list(x.shape) for name, x in net.state_dict().items()}


def cases(b):
    """All cases by name."""
    found = {}
    for part in activations, layers, functions, losses:
        found.update(part(b))
    found['what batch norm remembers'] = lambda: running(b)
    found['names of the state'] = lambda: state_names(b)
    return found


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f'{value:.14g}') if isinstance(value, float) else value


if __name__ == '__main__':
    import torch
    rows = [f'{json.dumps(name)}: {json.dumps(rounded(case()))}'
            for name, case in cases(Bench(torch)).items()]
    VALUES.write_text('{\n' + ',\n'.join(rows) + '\n}\n', encoding='utf-8',
                      newline='\n')
    print(len(rows), 'cases')
