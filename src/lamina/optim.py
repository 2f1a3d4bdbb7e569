"""Optim: from a gradient to a step.

Exported from chapters/10_optim.ipynb by `course export`; edit the chapter, not
this file.
"""

import math

from lamina.autograd import enable_grad, no_grad
from lamina.nn import clear_grad
from lamina.strides import Tensor

__all__ = [
    "Optimizer",
    "SGD",
    "Adam",
    "AdamW",
    "LRScheduler",
    "StepLR",
    "CosineAnnealingLR",
]


class Optimizer:
    """What all optimisers share: groups of parameters, and a state each.

    `params` is an iterable of tensors, or of dicts with "params" and
    options of their own. A subclass writes update().
    """

    def __init__(self, params, defaults):
        self.defaults = defaults
        self.param_groups = [{**defaults, **group}
                             for group in as_groups(params)]
        self.state = {}
        seen = set()
        for p in self.params():
            check_param(p, seen)

    def params(self):
        """All parameters, group after group."""
        return (p for group in self.param_groups for p in group["params"])

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros."""
        for p in self.params():
            clear_grad(p, set_to_none)

    def step(self, closure=None):
        """Move each parameter that has a gradient.

        A closure computes the loss and its gradients again; its result
        is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        state = self.state.setdefault(p, {})
                        self.update(p, p.grad, state, group)
        return loss

    def update(self, p, grad, state, group):
        """Move one parameter, in place."""
        raise NotImplementedError(f"{type(self).__name__} has no update()")

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            count = len(group["params"])
            lines.append(f"group {i}: {count} tensor{'s'[:count != 1]}")
            lines += [f"    {key}: {value}"
                      for key, value in sorted(group.items())
                      if key != "params"]
        return "\n".join(lines + [")"])


def as_groups(params):
    """The parameters as a list of dicts, each with its own list."""
    if isinstance(params, Tensor):
        raise TypeError(f"an optimiser takes an iterable of tensors; got one "
                        f"tensor of shape {list(params.shape)}: write "
                        f"[tensor]")
    found = list(params)
    if not found:
        raise ValueError("optimizer got an empty parameter list: was "
                         "model.parameters(), a generator, used up before?")
    if not any(isinstance(entry, dict) for entry in found):
        return [{"params": found}]
    groups = []
    for entry in found:
        if not isinstance(entry, dict) or "params" not in entry:
            raise TypeError(f"a group of parameters is a dict with the key "
                            f"'params'; got {entry!r}")
        inside = entry["params"]
        groups.append({**entry, "params": [inside] if isinstance(
            inside, Tensor) else list(inside)})
    return groups


def check_param(p, seen):
    """Refuse what an optimiser cannot move; note it as seen."""
    if not isinstance(p, Tensor):
        hint = (": give model.parameters(), not named_parameters()"
                if isinstance(p, tuple) else "")
        raise TypeError(f"an optimiser moves tensors; got "
                        f"{type(p).__name__}{hint}")
    if not p.is_leaf:
        raise ValueError(
            f"can't optimize a tensor that is no leaf: this one, of shape "
            f"{list(p.shape)}, was made by {p.grad_fn.name()}, and its "
            f".grad stays None")
    if not p.requires_grad:
        raise ValueError(f"a tensor of shape {list(p.shape)} does not "
                         f"require grad, so it will never have one: call "
                         f".requires_grad_() first, or leave it out")
    if id(p) in seen:
        raise ValueError(f"a parameter of shape {list(p.shape)} is given "
                         f"twice, and would be moved twice")
    seen.add(id(p))


INFINITE = float("inf")


class SGD(Optimizer):
    """p -= lr * grad, with momentum if you say.

    With momentum, p moves by a velocity: momentum times the old one, plus
    (1 - dampening) times the gradient; the first velocity is the first
    gradient. nesterov looks one step ahead. weight_decay adds that much
    of p to the gradient.
    """

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0,
                 weight_decay=0, nesterov=False):
        check_options(lr=(lr, 0, INFINITE), momentum=(momentum, 0, INFINITE),
                      weight_decay=(weight_decay, 0, INFINITE))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"nesterov needs a momentum, and no dampening; "
                             f"got momentum={momentum}, "
                             f"dampening={dampening}")
        super().__init__(params, dict(
            lr=lr, momentum=momentum, dampening=dampening,
            weight_decay=weight_decay, nesterov=nesterov))

    def update(self, p, grad, state, group):
        momentum = group["momentum"]
        if group["weight_decay"]:
            grad = grad.add(p, alpha=group["weight_decay"])
        if momentum:
            velocity = state.get("momentum_buffer")
            if velocity is None:
                velocity = state["momentum_buffer"] = grad.clone()
            else:
                velocity.mul_(momentum)
                velocity.add_(grad, alpha=1 - group["dampening"])
            grad = (grad.add(velocity, alpha=momentum)
                    if group["nesterov"] else velocity)
        p.add_(grad, alpha=-group["lr"])


def check_options(**limits):
    """ValueError for an option that is out of its range.

    limits: name=(value, low, high), where low <= value < high is right.
    """
    for name, (value, low, high) in limits.items():
        if not low <= value < high:
            upto = "" if high == INFINITE else f", and below {high}"
            raise ValueError(f"invalid {name}: {value}; expected at least "
                             f"{low}{upto}")


class Adam(Optimizer):
    """Each number at its own pace: the mean of its gradients over the root
    of the mean of their squares.

    betas say how slowly the two means forget. eps keeps the quotient
    finite. weight_decay adds that much of p to the gradient. D. Kingma
    and J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                 weight_decay=0):
        first, second = betas
        check_options(lr=(lr, 0, INFINITE), eps=(eps, 0, INFINITE),
                      weight_decay=(weight_decay, 0, INFINITE),
                      **{"betas[0]": (first, 0, 1),
                         "betas[1]": (second, 0, 1)})
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps,
                                      weight_decay=weight_decay))

    def update(self, p, grad, state, group):
        lr, (first, second) = group["lr"], group["betas"]
        decay = group["weight_decay"]
        if decay and self.decoupled:
            p.mul_(1 - lr * decay)
        elif decay:
            grad = grad.add(p, alpha=decay)
        if not state:
            state.update(step=0, exp_avg=grad.new_zeros(grad.shape),
                         exp_avg_sq=grad.new_zeros(grad.shape))
        state["step"] += 1
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.mul_(first).add_(grad, alpha=1 - first)
        square.mul_(second).add_(grad * grad, alpha=1 - second)
        # Both began at 0; so far they have seen these shares of a mean.
        low = 1 - first ** state["step"]
        root = math.sqrt(1 - second ** state["step"])
        size = square.sqrt().div_(root).add_(group["eps"])
        p.add_(mean / size, alpha=-lr / low)


class AdamW(Adam):
    """Adam whose weight decay shrinks p itself, apart from the gradient.

    I. Loshchilov and F. Hutter, "Decoupled weight decay regularization",
    ICLR 2019.
    """

    decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                 weight_decay=1e-2):
        super().__init__(params, lr, betas, eps, weight_decay)


class LRScheduler:
    """A plan for the learning rate: call step() once an epoch.

    A subclass says in rate(lr, base, epoch) what the rate becomes in an
    epoch. It goes on from the rate that the group has, so that schedules
    can share an optimiser, and the rate can be set by hand.
    """

    def __init__(self, optimizer):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a schedule takes an optimiser; got "
                            f"{type(optimizer).__name__}")
        self.optimizer = optimizer
        self.base_lrs = [group.setdefault("initial_lr", group["lr"])
                         for group in optimizer.param_groups]
        self.last_epoch = -1
        self.step()

    def step(self):
        """Go on to the next epoch."""
        self.last_epoch += 1
        for group, base in zip(self.optimizer.param_groups, self.base_lrs):
            group["lr"] = self.rate(group["lr"], base, self.last_epoch)

    def rate(self, lr, base, epoch):
        """The rate in an epoch, for a group that began with `base` and
        is at `lr`."""
        raise NotImplementedError(f"{type(self).__name__} has no rate()")

    def get_last_lr(self):
        """The rates that the optimiser has now, one a group."""
        return [group["lr"] for group in self.optimizer.param_groups]


class StepLR(LRScheduler):
    """Multiply the rate by gamma after every step_size epochs."""

    def __init__(self, optimizer, step_size, gamma=0.1):
        if not isinstance(step_size, int) or step_size < 1:
            raise ValueError(f"step_size is a number of epochs, 1 or more; "
                             f"got {step_size!r}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, lr, base, epoch):
        due = epoch > 0 and epoch % self.step_size == 0
        return lr * self.gamma if due else lr


class CosineAnnealingLR(LRScheduler):
    """From the rate down to eta_min in T_max epochs, along half a cosine.

    I. Loshchilov and F. Hutter, "SGDR: stochastic gradient descent with
    warm restarts", ICLR 2017.
    """

    def __init__(self, optimizer, T_max, eta_min=0.0):
        if not T_max > 0:
            raise ValueError(f"T_max is a number of epochs, 1 or more; got "
                             f"{T_max!r}")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, lr, base, epoch):
        if epoch == 0:
            return lr
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # at the lowest point there is nothing to multiply
            first = (1 - math.cos(math.pi / self.T_max)) / 2
            return lr + (base - self.eta_min) * first
        now, before = (1 + math.cos(math.pi * n / self.T_max)
                       for n in (epoch, epoch - 1))
        return self.eta_min + (lr - self.eta_min) * (now / before)
