"""What Lamina does in each workload of the side-by-side runner.

`WORK` maps a workload's name to a factory that gives (check, make): check()
returns floats that all libraries must agree on, make() gives run(n).
"""

import workloads as data

import lamina as L
from lamina.autograd import no_grad
from lamina.scalar import Value

VERSION = L.__version__


def parameter(array):
    return L.from_numpy(array.copy()).requires_grad_()


def constant(array):
    return L.from_numpy(array.copy())


def steps(make, count):
    """A factory for a training step that returns its loss."""
    def check():
        step = make()
        return [float(step()) for _ in range(count)]

    def repeat():
        step = make()

        def run(n):
            for _ in range(n):
                step()
        return run
    return lambda: (check, repeat)


def calls(function, sample):
    """A factory for one expression, computed again and again."""
    def run(n):
        for _ in range(n):
            function()
    return sample, lambda: run


def moons():
    xs, ys = data.moons()
    layers = [[([Value(w) for w in weights], Value(bias))
               for weights, bias in layer] for layer in data.moons_weights()]
    params = [p for layer in layers for weights, bias in layer
              for p in (*weights, bias)]
    count = 0

    def forward(values):
        for depth, layer in enumerate(layers):
            out = []
            for weights, bias in layer:
                total = bias
                for w, x in zip(weights, values):
                    total = total + w * x
                out.append(total.relu() if depth < 2 else total)
            values = out
        return values[0]

    def step():
        nonlocal count
        scores = [forward(list(map(Value, row))) for row in xs]
        losses = [(1 + -y * s).relu() for y, s in zip(ys, scores)]
        total = (sum(losses) * (1.0 / len(losses))
                 + 1e-4 * sum(p * p for p in params))
        for p in params:
            p.grad = None
        total.backward()
        rate = data.moons_lr(count)
        count += 1
        for p in params:
            p.data -= rate * p.grad
        return total.data
    return step


def digits(batch):
    def make():
        params = [parameter(a) for a in data.mlp_params()]
        batches = [(constant(x), constant(y)) for x, y in data.batches(batch)]
        optimizer = L.optim.SGD(params, lr=data.LR_MLP)
        count = 0

        def step():
            nonlocal count
            x, y = batches[count % len(batches)]
            count += 1
            optimizer.zero_grad()
            hidden = (x @ params[0] + params[1]).relu()
            hidden = (hidden @ params[2] + params[3]).relu()
            loss = L.nn.cross_entropy(hidden @ params[4] + params[5], y)
            loss.backward()
            optimizer.step()
            return loss
        return step
    return steps(make, 5)


def tiny(recorded):
    def factory():
        x, y = (parameter(a) if recorded else constant(a)
                for a in data.tiny())

        def run(n):
            for _ in range(n):
                x * y + x
        return lambda: (x * y + x).tolist(), lambda: run
    return factory


def chain():
    def once():
        x, y = map(parameter, data.tiny())
        z = x
        for _ in range(1000):
            z = z * y + z
        z.sum().backward()
        return z, x, y

    def sample():
        z, x, y = once()
        return (z.tolist() + x.grad.tolist()
                + [v / 1000 for v in y.grad.tolist()])
    return calls(once, sample)


def elementwise():
    x, y = map(constant, data.big4m())

    def once():
        return (x * 2 + 1).tanh() * y - y.exp()
    return calls(once, lambda: [once().double().sum() / 1e6])


def elementwise_backward():
    x, y = map(parameter, data.big4m())

    def once():
        x.grad = y.grad = None
        ((x * 2 + 1).tanh() * y - y.exp()).sum().backward()

    def sample():
        once()
        return [x.grad.double().sum() / 1e6, y.grad.double().sum() / 1e6]
    return calls(once, sample)


def norm(x):
    with no_grad():
        return (x.detach().double() ** 2).sum().sqrt()


def matmul(size):
    def factory():
        a, b, grad = data.mats(size)
        a, b, grad = parameter(a), parameter(b), constant(grad)

        def once():
            a.grad = b.grad = None
            product = a @ b
            product.backward(grad)
            return product
        return calls(once, lambda: list(map(norm, (once(), a.grad, b.grad))))
    return factory


def softmax():
    x = constant(data.rows()[0])
    return calls(lambda: x.softmax(1),
                 lambda: [(x.softmax(1).double() ** 2).sum()])


def transposed_sum(dim):
    def factory():
        x = constant(data.square4k()).T
        return calls(lambda: x.sum(dim), lambda: [
            x.sum(dim).double().sum() / 1e6, x.sum(dim)[7]])
    return factory


def views():
    x = constant(data.viewsrc())
    return calls(lambda: x[1:, ::2].T,
                 lambda: [x[1:, ::2].T.double().sum() / 1e6])


WORK = {
    "W1": steps(moons, 4),
    "W2_b32": digits(32), "W2_b512": digits(512),
    "W3_nograd": tiny(False), "W3_grad": tiny(True), "W3_chain": chain,
    "W4_fwd": elementwise, "W4_fwdbwd": elementwise_backward,
    "W5_512": matmul(512), "W5_1024": matmul(1024),
    "W5_bmm": matmul((32, 128, 128)),
    "W6_softmax": softmax, "W6_sumT0": transposed_sum(0),
    "W6_sumT1": transposed_sum(1), "W10": views,
}
