"""Exercises of chapter 10: steps, their length, their rate, their memory.
"""

import math

from course.exercises import Exercise, Wrong

# 10.1: momentum

MOMENTUM_STATEMENT = """\
**Exercise 10.1.** Write one step of gradient descent with momentum for one
number, in PyTorch's form. `momentum_step(p, grad, velocity, lr, momentum)`
first computes the new velocity, `momentum` times the old one plus the
gradient; then it moves `p` against the new velocity, by `lr` times as much.
It returns the new `p` and the new velocity, in this order, as a tuple."""

MOMENTUM_STUB = '''\
def momentum_step(p: float, grad: float, velocity: float,
                  lr: float, momentum: float) -> tuple[float, float]:
    """The parameter and the velocity after one step."""
    raise NotImplementedError("exercise 10.1")'''


def momentum_step(p, grad, velocity, lr, momentum):
    velocity = momentum * velocity + grad
    return p - lr * velocity, velocity


def lr_inside(p, grad, velocity, lr, momentum):
    velocity = momentum * velocity - lr * grad
    return p + velocity, velocity


def old_velocity(p, grad, velocity, lr, momentum):
    return p - lr * velocity, momentum * velocity + grad


def damped(p, grad, velocity, lr, momentum):
    velocity = momentum * velocity + (1 - momentum) * grad
    return p - lr * velocity, velocity


def nesterov(p, grad, velocity, lr, momentum):
    velocity = momentum * velocity + grad
    return p - lr * (grad + momentum * velocity), velocity


def no_momentum(p, grad, velocity, lr, momentum):
    return p - lr * grad, momentum * velocity + grad


def uphill(p, grad, velocity, lr, momentum):
    velocity = momentum * velocity + grad
    return p + lr * velocity, velocity


def exchanged(p, grad, velocity, lr, momentum):
    return momentum_step(p, grad, velocity, lr, momentum)[::-1]


def velocity_forgotten(p, grad, velocity, lr, momentum):
    new, _ = momentum_step(p, grad, velocity, lr, momentum)
    return new, velocity


def written_out(p, grad, velocity, lr, momentum):
    v = grad + velocity * momentum
    p -= v * lr
    return (p, v)


def in_two_moves(p, grad, velocity, lr, momentum):
    return (p - lr * momentum * velocity - lr * grad,
            velocity * momentum + grad)


def momentum_inputs(st):
    quarter = st.integers(-8, 8).map(lambda n: n / 4)
    rate = st.sampled_from([1.0, 0.5, 0.25, 0.0])
    return st.tuples(quarter, quarter, quarter, rate, rate)


MOMENTUM = Exercise(
    id="10.1",
    title="One step with momentum",
    name="momentum_step",
    statement=MOMENTUM_STATEMENT,
    stub=MOMENTUM_STUB,
    reference=momentum_step,
    inputs=momentum_inputs,
    rtol=1e-12,
    atol=1e-12,
    examples=((1.0, 2.0, 4.0, 0.5, 0.5), (0.0, 1.0, 0.0, 0.5, 0.5),
              (0.0, 0.0, 1.0, 0.25, 0.5)),
    wrong=(
        Wrong(lr_inside, "This puts the learning rate into the velocity. The "
              "path is the same only while lr is constant. What does the "
              "velocity remember of an old lr when a schedule lowers it?"),
        Wrong(old_velocity, "This moves p by the old velocity: the gradient "
              "counts one step too late. Where does p go in the very first "
              "step, with velocity 0?"),
        Wrong(damped, "This weighs the gradient by 1 - momentum, as Adam's "
              "mean does. In PyTorch's SGD that factor is called dampening "
              "and is 0 by default. With a constant gradient g, where does "
              "the velocity settle: at g, or at g / (1 - momentum)?"),
        Wrong(nesterov, "This is Nesterov's form, which looks one step "
              "ahead. The question asks for the plain one: by which quantity "
              "is p moved?"),
        Wrong(no_momentum, "The velocity is computed, and p does not use it. "
              "What then differs from plain gradient descent?"),
        Wrong(uphill, "This moves p with the gradient. Does the loss grow or "
              "fall in that direction?"),
        Wrong(exchanged, "The two numbers are right, in the other order. "
              "Which one does the caller take first?"),
        Wrong(velocity_forgotten, "p is right, but the old velocity is "
              "returned. What does the next step start from?"),
    ),
    right=(written_out, in_two_moves),
    hints=(
        "Two lines: the velocity first, then p, which uses the new velocity.",
        "velocity = momentum * velocity + grad. The learning rate is not in "
        "it.",
        "p - lr * velocity is the new p. Return the pair (p, velocity).",
    ),
    after="torch.optim.SGD does the same (torch/optim/sgd.py). In its first "
    "step the velocity is the gradient itself, and dampening, nesterov and "
    "weight_decay change the formula.",
)


# 10.2: Adam

ADAM_STATEMENT = """\
**Exercise 10.2.** Write one step of Adam for one number:
`adam_step(p, grad, m, s, t, lr)`, with betas of 0.9 and 0.99 and without
eps. `m` and `s` are the running means of the gradient and of its square
*before* this step, and this is step number `t`, counted from 1. Let both
means follow; divide each by the share of a whole mean that it has seen after
`t` steps, 1 - 0.9 ** t and 1 - 0.99 ** t; move `p` against the first over
the root of the second, times `lr`. Return the new `p`, `m` and `s` as a
tuple: the means as they are, not divided. `grad` is never 0."""

ADAM_STUB = '''\
def adam_step(p: float, grad: float, m: float, s: float, t: int,
              lr: float) -> tuple[float, float, float]:
    """The parameter and its two means after step number t of Adam."""
    raise NotImplementedError("exercise 10.2")'''


def adam_step(p, grad, m, s, t, lr):
    m = 0.9 * m + 0.1 * grad
    s = 0.99 * s + 0.01 * grad * grad
    step = (m / (1 - 0.9 ** t)) / math.sqrt(s / (1 - 0.99 ** t))
    return p - lr * step, m, s


def not_corrected(p, grad, m, s, t, lr):
    m = 0.9 * m + 0.1 * grad
    s = 0.99 * s + 0.01 * grad * grad
    return p - lr * m / math.sqrt(s), m, s


def corrected_means_kept(p, grad, m, s, t, lr):
    m = (0.9 * m + 0.1 * grad) / (1 - 0.9 ** t)
    s = (0.99 * s + 0.01 * grad * grad) / (1 - 0.99 ** t)
    return p - lr * m / math.sqrt(s), m, s


def old_means(p, grad, m, s, t, lr):
    new = 0.9 * m + 0.1 * grad, 0.99 * s + 0.01 * grad * grad
    if s == 0:
        return p, *new
    step = (m / (1 - 0.9 ** t)) / math.sqrt(s / (1 - 0.99 ** t))
    return p - lr * step, *new


def no_root(p, grad, m, s, t, lr):
    m = 0.9 * m + 0.1 * grad
    s = 0.99 * s + 0.01 * grad * grad
    return p - lr * (m / (1 - 0.9 ** t)) / (s / (1 - 0.99 ** t)), m, s


def shares_exchanged(p, grad, m, s, t, lr):
    m = 0.1 * m + 0.9 * grad
    s = 0.01 * s + 0.99 * grad * grad
    step = (m / (1 - 0.1 ** t)) / math.sqrt(s / (1 - 0.01 ** t))
    return p - lr * step, m, s


def counted_from_zero(p, grad, m, s, t, lr):
    m = 0.9 * m + 0.1 * grad
    s = 0.99 * s + 0.01 * grad * grad
    step = (m / (1 - 0.9 ** (t + 1))) / math.sqrt(s / (1 - 0.99 ** (t + 1)))
    return p - lr * step, m, s


def square_not_averaged(p, grad, m, s, t, lr):
    m = 0.9 * m + 0.1 * grad
    s = s + grad * grad
    step = (m / (1 - 0.9 ** t)) / math.sqrt(s / (1 - 0.99 ** t))
    return p - lr * step, m, s


def one_factor(p, grad, m, s, t, lr):
    m += (grad - m) * 0.1
    s += (grad ** 2 - s) * 0.01
    rate = lr * math.sqrt(1 - 0.99 ** t) / (1 - 0.9 ** t)
    return p - rate * m / s ** 0.5, m, s


def with_names(p, grad, m, s, t, lr):
    m, s = (beta * mean + (1 - beta) * x for beta, mean, x in (
        (0.9, m, grad), (0.99, s, grad ** 2)))
    mean, square = m / (1 - 0.9 ** t), s / (1 - 0.99 ** t)
    return p - lr * mean / math.sqrt(square), m, s


def adam_inputs(st):
    half = st.integers(-8, 8).map(lambda n: n / 2)
    grad = half.filter(bool)
    square = st.integers(0, 9).map(lambda n: n / 4)
    return st.tuples(half, grad, half, square, st.integers(1, 20),
                     st.sampled_from([1.0, 0.5, 0.1]))


ADAM = Exercise(
    id="10.2",
    title="One step of Adam",
    name="adam_step",
    statement=ADAM_STATEMENT,
    stub=ADAM_STUB,
    reference=adam_step,
    inputs=adam_inputs,
    rtol=1e-9,
    atol=1e-12,
    examples=((0.0, 2.0, 0.0, 0.0, 1, 1.0), (1.0, -4.0, 1.0, 1.0, 3, 0.5),
              (0.0, 1.0, 1.0, 1.0, 20, 1.0)),
    imports="import math",
    wrong=(
        Wrong(not_corrected, "The means are used as they are. They began at "
              "0: after one step, which share of the gradient is in m, and "
              "which share of its square in s?"),
        Wrong(corrected_means_kept, "The divided means are kept. What "
              "happens to a number that is divided in every step anew?"),
        Wrong(old_means, "The step uses the means from before this gradient. "
              "Where does p go in the very first step?"),
        Wrong(no_root, "The mean is divided by the mean square itself. If "
              "all gradients were ten times as large, by how much would your "
              "step change?"),
        Wrong(shares_exchanged, "The shares of old and new are exchanged: "
              "this mean keeps a tenth of itself. How much of itself should "
              "a mean with a beta of 0.9 keep?"),
        Wrong(counted_from_zero, "This counts one step too many. The first "
              "step has t = 1: which share of a mean is 1 - 0.9 ** t there?"),
        Wrong(square_not_averaged, "The squares are added up and never "
              "forgotten, as in Adagrad. What does s become after a thousand "
              "steps?"),
    ),
    right=(one_factor, with_names),
    hints=(
        "Five lines at most: m, s, the two divided means, the new p.",
        "m = 0.9 * m + 0.1 * grad, and s alike with 0.99 and the square of "
        "grad.",
        "Divide m by 1 - 0.9 ** t and s by 1 - 0.99 ** t for the step, and "
        "return m and s without that.",
    ),
    after="torch/optim/adam.py adds eps to the root, and puts the two "
    "divisions into the step size. In the first step all of them cancel, "
    "and p moves by lr.",
)


# 10.3: clipping

CLIP_STATEMENT = """\
**Exercise 10.3.** Write `clip(grads, max_norm)`. `grads` is a list of
gradients, each a list of floats. Take all their numbers as one vector, and
its norm as the root of the sum of squares. Where the norm is larger than
`max_norm`, scale all numbers by one factor, so that it becomes `max_norm`;
where it is not, leave them. Return the new gradients as a list of lists, and
change nothing of what was given. (PyTorch adds 1e-6 to the norm before it
divides; leave that out.)"""

CLIP_STUB = '''\
def clip(grads: list[list[float]], max_norm: float) -> list[list[float]]:
    """The gradients, scaled to a common norm of at most max_norm."""
    raise NotImplementedError("exercise 10.3")'''


def clip(grads, max_norm):
    norm = math.sqrt(sum(x * x for grad in grads for x in grad))
    scale = min(1.0, max_norm / norm) if norm else 1.0
    return [[x * scale for x in grad] for grad in grads]


def each_by_itself(grads, max_norm):
    return [clip([grad], max_norm)[0] for grad in grads]


def number_by_number(grads, max_norm):
    return [[max(-max_norm, min(max_norm, x)) for x in grad]
            for grad in grads]


def always_scaled(grads, max_norm):
    norm = math.sqrt(sum(x * x for grad in grads for x in grad))
    scale = max_norm / norm if norm else 1.0
    return [[x * scale for x in grad] for grad in grads]


def root_forgotten(grads, max_norm):
    norm = sum(x * x for grad in grads for x in grad)
    scale = min(1.0, max_norm / norm) if norm else 1.0
    return [[x * scale for x in grad] for grad in grads]


def largest_number(grads, max_norm):
    norm = max((abs(x) for grad in grads for x in grad), default=0)
    scale = min(1.0, max_norm / norm) if norm else 1.0
    return [[x * scale for x in grad] for grad in grads]


def sum_of_norms(grads, max_norm):
    norm = sum(math.hypot(*grad) for grad in grads)
    scale = min(1.0, max_norm / norm) if norm else 1.0
    return [[x * scale for x in grad] for grad in grads]


def made_unit(grads, max_norm):
    norm = math.sqrt(sum(x * x for grad in grads for x in grad))
    scale = 1 / norm if norm > max_norm else 1.0
    return [[x * scale for x in grad] for grad in grads]


def norm_of_norms(grads, max_norm):
    norm = math.hypot(*(math.hypot(*grad) for grad in grads))
    if norm <= max_norm:
        return [list(grad) for grad in grads]
    return [[x / norm * max_norm for x in grad] for grad in grads]


def laid_flat(grads, max_norm):
    flat = [x for grad in grads for x in grad]
    norm = sum(x ** 2 for x in flat) ** 0.5
    if norm > max_norm:
        flat = [x * (max_norm / norm) for x in flat]
    flat = iter(flat)
    return [[next(flat) for _ in grad] for grad in grads]


def clip_inputs(st):
    number = st.integers(-6, 6).map(float)
    grads = st.lists(st.lists(number, min_size=1, max_size=3), min_size=1,
                     max_size=3)
    return st.tuples(grads, st.sampled_from([0.5, 2.0, 5.0, 13.0]))


CLIP = Exercise(
    id="10.3",
    title="Clip gradients by their common norm",
    name="clip",
    statement=CLIP_STATEMENT,
    stub=CLIP_STUB,
    reference=clip,
    inputs=clip_inputs,
    rtol=1e-12,
    atol=1e-12,
    examples=(([[3.0, 4.0], [12.0]], 2.0), ([[3.0], [4.0]], 13.0),
              ([[0.0]], 2.0), ([[6.0], [6.0]], 5.0)),
    imports="import math",
    wrong=(
        Wrong(each_by_itself, "Each gradient is scaled by a factor of its "
              "own. Does the step then still point where the whole gradient "
              "points?"),
        Wrong(number_by_number, "This cuts each number, as clip_grad_value_ "
              "does. What happens to the direction of [3, 4] when only the 4 "
              "is cut?"),
        Wrong(always_scaled, "Gradients that are short are made longer. What "
              "should become of a gradient that is small because the minimum "
              "is near?"),
        Wrong(root_forgotten, "This divides by the sum of squares. Which "
              "norm does the result have if you compute it again?"),
        Wrong(largest_number, "This takes the largest number for the norm: "
              "that is the norm of order infinity. Which one do you get for "
              "[3, 4], and which is asked?"),
        Wrong(sum_of_norms, "The norms of the gradients are added up. Is the "
              "norm of one long vector the sum of the norms of its parts, or "
              "the root of the sum of their squares?"),
        Wrong(made_unit, "Long gradients get norm 1. Which norm should they "
              "get?"),
    ),
    right=(norm_of_norms, laid_flat),
    hints=(
        "One norm for all: add up the squares of all numbers in all lists.",
        "The factor is max_norm / norm, and never more than 1.",
        "A norm of 0 needs no factor, and cannot be divided by.",
    ),
    after="torch.nn.utils.clip_grad_norm_ takes the norm of the norms of "
    "each gradient, which is the same number "
    "(torch/nn/utils/clip_grad.py). It returns the norm that they had: log "
    "it, and you see how often it clips.",
)


# 10.4: a warm-up and a cosine

PLAN_STATEMENT = """\
**Exercise 10.4.** Write `planned(step, warmup, total, top)`: the rate in
step number `step`, counted from 0. In the first `warmup` steps it climbs
along a line: step 0 has `top / warmup`, and step `warmup - 1` has `top`
itself. From there it falls along half a cosine: `top` again in step
`warmup`, the mean of `top` and 0 half-way between `warmup` and `total`, and
0 in step `total` and in all steps after it. `warmup` may be 0."""

PLAN_STUB = '''\
def planned(step: int, warmup: int, total: int, top: float) -> float:
    """The rate of one step: a warm-up, then half a cosine."""
    raise NotImplementedError("exercise 10.4")'''


def planned(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    done = min(1.0, (step - warmup) / (total - warmup))
    return top * (1 + math.cos(math.pi * done)) / 2


def begins_at_zero(step, warmup, total, top):
    if step < warmup:
        return top * step / warmup
    return planned(step, warmup, total, top)


def cosine_from_zero(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    return top * (1 + math.cos(math.pi * min(1.0, step / total))) / 2


def comes_back_up(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    done = (step - warmup) / (total - warmup)
    return top * (1 + math.cos(math.pi * done)) / 2


def whole_cosine(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    done = min(1.0, (step - warmup) / (total - warmup))
    return top * (1 + math.cos(2 * math.pi * done)) / 2


def quarter_cosine(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    done = min(1.0, (step - warmup) / (total - warmup))
    return top * math.cos(math.pi * done / 2)


def along_a_line(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    return top * (1 - min(1.0, (step - warmup) / (total - warmup)))


def swings_below(step, warmup, total, top):
    if step < warmup:
        return top * (step + 1) / warmup
    done = min(1.0, (step - warmup) / (total - warmup))
    return top * math.cos(math.pi * done)


def by_the_sine(step, warmup, total, top):
    if step < warmup:
        return (step + 1) * (top / warmup)
    if step >= total:
        return 0.0
    left = (total - step) / (total - warmup)
    return top * math.sin(math.pi / 2 * left) ** 2


def as_factors(step, warmup, total, top):
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    past = max(0, min(step, total) - warmup)
    fall = 0.5 + 0.5 * math.cos(past * math.pi / (total - warmup))
    return top * rise * fall


def plan_inputs(st):
    return st.tuples(st.integers(0, 24), st.integers(0, 6),
                     st.integers(8, 20), st.sampled_from([1.0, 0.5, 3.0]))


PLAN = Exercise(
    id="10.4",
    title="A warm-up and a cosine",
    name="planned",
    statement=PLAN_STATEMENT,
    stub=PLAN_STUB,
    reference=planned,
    inputs=plan_inputs,
    rtol=1e-9,
    atol=1e-12,
    examples=((0, 4, 12, 1.0), (3, 4, 12, 1.0), (8, 4, 12, 1.0),
              (6, 4, 12, 1.0), (12, 4, 12, 1.0), (14, 4, 12, 1.0),
              (0, 0, 12, 1.0)),
    imports="import math",
    wrong=(
        Wrong(begins_at_zero, "Step 0 has a rate of 0 here. What does a step "
              "with that rate do, and what did its gradient cost?"),
        Wrong(cosine_from_zero, "The cosine counts from step 0, so the rate "
              "jumps where the warm-up ends. How many steps has the cosine "
              "for itself, and how many of them are over?"),
        Wrong(comes_back_up, "After `total` the rate grows again. What does "
              "a cosine do beyond half a turn?"),
        Wrong(whole_cosine, "This goes down and up again, a whole turn. "
              "Where on its way is a cosine lowest?"),
        Wrong(quarter_cosine, "This is a quarter of a turn, from 1 to 0. "
              "Which rate should it have half-way, and which has it?"),
        Wrong(along_a_line, "This falls along a line. Where does half a "
              "cosine fall fastest, and where slowest?"),
        Wrong(swings_below, "A cosine goes from 1 to -1, and so does your "
              "rate. What does a step with a negative rate do?"),
    ),
    right=(by_the_sine, as_factors),
    hints=(
        "Two cases: step < warmup, and the rest.",
        "In the rest, how far is it from warmup (0) to total (1)? No further "
        "than 1.",
        "Half a cosine from 1 to 0 is (1 + cos(pi * done)) / 2.",
    ),
    after="In PyTorch this is SequentialLR of LinearLR and "
    "CosineAnnealingLR, or one function in a LambdaLR "
    "(torch/optim/lr_scheduler.py).",
)


# 10.5: a plateau

PLATEAU_STATEMENT = """\
**Exercise 10.5.** Write `rates(losses, lr, patience)`: the rate after each
epoch, as a list as long as `losses`. It begins at `lr`. An epoch is good if
its loss is lower than all losses before it, and bad otherwise; the first one
is good. After more than `patience` bad epochs in a row, the rate is halved,
and the count of bad epochs begins at 0 again. A good epoch sets the count to
0 too."""

PLATEAU_STUB = '''\
def rates(losses: list[float], lr: float, patience: int) -> list[float]:
    """The rate after each epoch: halved where the loss got stuck."""
    raise NotImplementedError("exercise 10.5")'''


def rates(losses, lr, patience):
    best, bad, found = math.inf, 0, []
    for loss in losses:
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad > patience:
            lr, bad = lr / 2, 0
        found.append(lr)
    return found


def against_the_last(losses, lr, patience):
    last, bad, found = math.inf, 0, []
    for loss in losses:
        bad = 0 if loss < last else bad + 1
        last = loss
        if bad > patience:
            lr, bad = lr / 2, 0
        found.append(lr)
    return found


def one_too_soon(losses, lr, patience):
    best, bad, found = math.inf, 0, []
    for loss in losses:
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad and bad >= patience:
            lr, bad = lr / 2, 0
        found.append(lr)
    return found


def count_goes_on(losses, lr, patience):
    best, bad, found = math.inf, 0, []
    for loss in losses:
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad > patience:
            lr = lr / 2
        found.append(lr)
    return found


def never_forgiven(losses, lr, patience):
    best, bad, found = math.inf, 0, []
    for loss in losses:
        if loss < best:
            best = loss
        else:
            bad += 1
        if bad > patience:
            lr, bad = lr / 2, 0
        found.append(lr)
    return found


def equal_is_good(losses, lr, patience):
    best, bad, found = math.inf, 0, []
    for loss in losses:
        if loss <= best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad > patience:
            lr, bad = lr / 2, 0
        found.append(lr)
    return found


def best_forgotten(losses, lr, patience):
    best, bad, found = math.inf, 0, []
    for loss in losses:
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad > patience:
            lr, bad, best = lr / 2, 0, math.inf
        found.append(lr)
    return found


def rate_before(losses, lr, patience):
    return [lr, *rates(losses, lr, patience)][:len(losses)]


def with_a_place(losses, lr, patience):
    found, since = [], 0
    for i, loss in enumerate(losses):
        if i == 0 or loss < min(losses[:i]):
            since = i
        elif i - since > patience:
            since, lr = i, lr * 0.5
        found.append(lr)
    return found


def as_a_generator(losses, lr, patience):
    def walk(lr):
        best, left = None, patience
        for loss in losses:
            if best is None or loss < best:
                best, left = loss, patience
            elif left == 0:
                lr, left = lr / 2, patience
            else:
                left -= 1
            yield lr
    return list(walk(lr))


def plateau_inputs(st):
    losses = st.lists(st.integers(1, 5).map(float), min_size=1, max_size=9)
    return st.tuples(losses, st.sampled_from([1.0, 8.0]), st.integers(0, 2))


PLATEAU = Exercise(
    id="10.5",
    title="Halve the rate on a plateau",
    name="rates",
    statement=PLATEAU_STATEMENT,
    stub=PLATEAU_STUB,
    reference=rates,
    inputs=plateau_inputs,
    rtol=1e-12,
    examples=(([3.0, 3.0], 8.0, 0), ([3.0, 2.0, 3.0], 8.0, 0),
              ([5.0, 4.0, 5.0, 4.5, 4.4], 8.0, 1),
              ([2.0, 3.0, 1.0, 3.0], 8.0, 1),
              ([2.0, 3.0, 3.0, 3.0, 3.0], 8.0, 1),
              ([3.0, 4.0, 3.5, 3.0], 8.0, 0)),
    imports="import math",
    wrong=(
        Wrong(against_the_last, "Each loss is compared with the one before. "
              "A loss that swings between 4 and 5 is then good every second "
              "time: does it get anywhere?"),
        Wrong(one_too_soon, "The rate falls one epoch too soon. With a "
              "patience of 2, how many bad epochs are put up with?"),
        Wrong(count_goes_on, "The count is not set to 0 after a cut, so the "
              "rate is halved in every bad epoch from there. How long does "
              "the new rate get to show what it can do?"),
        Wrong(never_forgiven, "A good epoch leaves the count as it is. What "
              "does in a row mean?"),
        Wrong(equal_is_good, "A loss that equals the best counts as good "
              "here. Is a loss that stays the same for ever getting "
              "better?"),
        Wrong(best_forgotten, "After a cut the best loss is forgotten, and "
              "the next epoch is good whatever it is. With which losses "
              "should it be compared?"),
        Wrong(rate_before, "These are the rates before each epoch. The loss "
              "of an epoch is known at its end: which rate is there then?"),
    ),
    right=(with_a_place, as_a_generator),
    hints=(
        "Go through the losses with three variables: the best loss, the "
        "count of bad epochs, the rate.",
        "First good or bad, then the cut, then append the rate.",
        "After a cut, set the count to 0 and keep the best loss.",
    ),
    after="torch.optim.lr_scheduler.ReduceLROnPlateau also wants a loss to "
    "be lower by a threshold, and can wait (cooldown) after a cut.",
)


# 10.6: a state in PyTorch's form

PACK_STATEMENT = """\
**Exercise 10.6.** Write `pack(groups, state)`, which puts the state of an
optimiser into PyTorch's form. `groups` is a list of dicts; under `"params"`
each has a list of parameters, which are str here, beside options such as
`"lr"`. `state` is a dict from parameters to what is remembered of them; not
every parameter is in it. Return a dict with two keys. `"param_groups"` is a
list of the groups, in which each parameter is replaced by its number:
counted from 0, through all groups. `"state"` is a dict from these numbers to
what is remembered. Change nothing of what was given."""

PACK_STUB = '''\
def pack(groups: list[dict], state: dict) -> dict:
    """The state of an optimiser, with numbers for its parameters."""
    raise NotImplementedError("exercise 10.6")'''


def pack(groups, state):
    number = {}
    for group in groups:
        for p in group["params"]:
            number[p] = len(number)
    return {"state": {number[p]: kept for p, kept in state.items()},
            "param_groups": [
                {**group, "params": [number[p] for p in group["params"]]}
                for group in groups]}


def each_group_from_zero(groups, state):
    number = {p: i for group in groups
              for i, p in enumerate(group["params"])}
    return {"state": {number[p]: kept for p, kept in state.items()},
            "param_groups": [
                {**group, "params": [number[p] for p in group["params"]]}
                for group in groups]}


def numbered_by_state(groups, state):
    packed = pack(groups, state)
    packed["state"] = dict(enumerate(state.values()))
    return packed


def from_one(groups, state):
    packed = pack(groups, state)
    return {"state": {i + 1: kept for i, kept in packed["state"].items()},
            "param_groups": [
                {**group, "params": [i + 1 for i in group["params"]]}
                for group in packed["param_groups"]]}


def options_lost(groups, state):
    packed = pack(groups, state)
    packed["param_groups"] = [{"params": group["params"]}
                              for group in packed["param_groups"]]
    return packed


def empty_states(groups, state):
    every = [p for group in groups for p in group["params"]]
    packed = pack(groups, state)
    packed["state"] = {i: state.get(p, {}) for i, p in enumerate(every)}
    return packed


def names_in_state(groups, state):
    return {**pack(groups, state), "state": dict(state)}


def names_in_groups(groups, state):
    return {**pack(groups, state),
            "param_groups": [dict(group) for group in groups]}


def by_index(groups, state):
    every = sum((group["params"] for group in groups), [])
    return {"state": {every.index(p): state[p] for p in state},
            "param_groups": [dict(group, params=[
                every.index(p) for p in group["params"]])
                for group in groups]}


def with_a_counter(groups, state):
    packed, kept, i = [], {}, 0
    for group in groups:
        new = dict(group)
        new["params"] = []
        for p in group["params"]:
            new["params"].append(i)
            if p in state:
                kept[i] = state[p]
            i += 1
        packed.append(new)
    return {"param_groups": packed, "state": kept}


def pack_inputs(st):
    def build(sizes, rates, kept):
        names = iter("abcdefghi")
        groups = [{"params": [next(names) for _ in range(n)], "lr": lr}
                  for n, lr in zip(sizes, rates)]
        every = [p for group in groups for p in group["params"]]
        return groups, {p: {"step": steps} for p, steps in zip(every, kept)
                        if steps}
    return st.builds(
        build, st.lists(st.integers(1, 3), min_size=1, max_size=3),
        st.lists(st.sampled_from([0.1, 0.5]), min_size=3, max_size=3),
        st.lists(st.integers(0, 3), min_size=9, max_size=9))


PACK = Exercise(
    id="10.6",
    title="A state in PyTorch's form",
    name="pack",
    statement=PACK_STATEMENT,
    stub=PACK_STUB,
    reference=pack,
    inputs=pack_inputs,
    examples=(([{"params": ["a"], "lr": 0.1}, {"params": ["b"], "lr": 1.0}],
               {"b": {"step": 2}}),
              ([{"params": ["a", "b"], "lr": 0.1}], {"b": {"step": 1}}),
              ([{"params": ["a"], "lr": 0.1}], {})),
    wrong=(
        Wrong(each_group_from_zero, "The numbers begin at 0 in every group, "
              "so two parameters share one. Whose state is state[0] then?"),
        Wrong(numbered_by_state, "The states are numbered by themselves. If "
              "only the second parameter has a state, which number does it "
              "get, and which does it have in its group?"),
        Wrong(from_one, "These numbers begin at 1. Where do PyTorch's "
              "begin?"),
        Wrong(options_lost, "The options of the groups are gone. Which rate "
              "does the run go on with after loading?"),
        Wrong(empty_states, "Parameters of which nothing is remembered get "
              "an empty state. What does SGD without momentum save in "
              "PyTorch: one entry a parameter, or none?"),
        Wrong(names_in_state, "The state still has the parameters for keys. "
              "Will the same objects be there when it is loaded in another "
              "process?"),
        Wrong(names_in_groups, "The groups still hold the parameters "
              "themselves. Should the weights be saved twice, here and with "
              "the model?"),
    ),
    right=(by_index, with_a_counter),
    hints=(
        "First a dict from each parameter to its number: one loop over the "
        "groups, one over their parameters.",
        "A parameter's number is the count of those before it, in all "
        "groups.",
        "{**group, 'params': [...]} is a new dict with all options.",
    ),
    after="torch/optim/optimizer.py does this in state_dict(). "
    "load_state_dict() pairs the numbers with the parameters of the new "
    "optimiser, in order. So the order in which a model makes its layers is "
    "part of a checkpoint.",
)

exercises = (MOMENTUM, ADAM, CLIP, PLAN, PLATEAU, PACK)
