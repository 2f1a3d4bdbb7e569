"""Exercise of chapter 10: one step with momentum."""

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 10.1.** Write one step of gradient descent with momentum for one
number, in PyTorch's form. `momentum_step(p, grad, velocity, lr, momentum)`
first computes the new velocity, `momentum` times the old one plus the
gradient; then it moves `p` against the new velocity, by `lr` times as much.
It returns the new `p` and the new velocity, in this order, as a tuple."""

STUB = '''\
def momentum_step(p: float, grad: float, velocity: float,
                  lr: float, momentum: float) -> tuple[float, float]:
    """The parameter and the velocity after one step."""
    raise NotImplementedError("exercise 10.1")'''


def momentum_step(p, grad, velocity, lr, momentum):
    velocity = momentum * velocity + grad
    return p - lr * velocity, velocity


# Known wrong answers


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


# Other right answers


def written_out(p, grad, velocity, lr, momentum):
    v = grad + velocity * momentum
    p -= v * lr
    return (p, v)


def in_two_moves(p, grad, velocity, lr, momentum):
    return (p - lr * momentum * velocity - lr * grad,
            velocity * momentum + grad)


def inputs(st):
    quarter = st.integers(-8, 8).map(lambda n: n / 4)
    rate = st.sampled_from([1.0, 0.5, 0.25, 0.0])
    return st.tuples(quarter, quarter, quarter, rate, rate)


exercises = (Exercise(
    id="10.1",
    title="One step with momentum",
    name="momentum_step",
    statement=STATEMENT,
    stub=STUB,
    reference=momentum_step,
    inputs=inputs,
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
),)
