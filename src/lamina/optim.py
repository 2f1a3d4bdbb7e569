"""Optim: from a gradient to a step.

Exported from chapters/10_optim.ipynb by `course export`; edit the chapter, not
this file.
"""

import copy
import math
import numbers
import types
import warnings
from bisect import bisect_right
from collections import Counter, defaultdict

import lamina.dispatch as dispatch
from lamina.autograd import enable_grad, missing, no_grad, part_of, submodule
from lamina.broadcasting import quiet
from lamina.dispatch import define, functions, impl, lookup, np, numpy_dtypes
from lamina.nn import Module, clear_grad
from lamina.reductions import vector_norm
from lamina.storage import float32, float64
from lamina.strides import Tensor, tensor

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

    `params` is an iterable of tensors, of pairs (name, tensor), or of
    dicts with "params" and options of their own. A subclass writes
    update().
    """

    def __init__(self, params, defaults):
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        for group in as_groups(params):
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Take on more parameters. Options that the group does not name
        are the optimiser's defaults."""
        group = read_group(param_group)
        check_names(group, self.param_groups)
        seen = set(all_params(self.param_groups))
        for p in group["params"]:
            check_param(p, seen)
        self.param_groups.append({**self.defaults, **group})

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
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
        self._opt_called = True         # a schedule asks
        with no_grad():
            for group in self.param_groups:
                self.update_group(group)
        return loss

    def update_group(self, group):
        """Move the parameters of a group."""
        for p in group["params"]:
            grad = p.grad
            if grad is not None:
                self.update(p, grad, group)

    def update(self, p, grad, group):
        """Move one parameter, in place. What is to be remembered of it
        goes into self.state[p]."""
        raise NotImplementedError(f"{type(self).__name__} has no update()")

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {value}"
                      for key, value in sorted(group.items())
                      if key != "params"]
        return "\n".join(lines + [")"])


def all_params(groups):
    """All parameters, group after group."""
    return (p for group in groups for p in group["params"])


def as_groups(params):
    """The parameters as a list of groups."""
    if isinstance(params, (Tensor, Module)):
        what, give = (
            ("module", "its parameters()") if isinstance(params, Module)
            else (f"tensor of shape {list(params.shape)}", "[tensor]"))
        raise TypeError(f"an optimiser takes an iterable of tensors; got "
                        f"one {what}: write {give}")
    found = list(params)
    if not found:
        raise ValueError("optimizer got an empty parameter list: was "
                         "model.parameters(), a generator, used up before?")
    return found if isinstance(found[0], dict) else [{"params": found}]


def read_group(group):
    """A group with its parameters in a list, and their names apart."""
    if not isinstance(group, dict):
        raise TypeError(f"a group of parameters is a dict with the key "
                        f"'params'; got {type(group).__name__}")
    if "params" not in group:
        raise KeyError(f"a group of parameters has the key 'params'; got "
                       f"{list(group)}")
    inside = group["params"]
    if isinstance(inside, set):
        raise TypeError("parameters need an order, which a set has not: "
                        "give a list")
    inside = [inside] if isinstance(inside, Tensor) else list(inside)
    names = [p[0] for p in inside if isinstance(p, tuple)]
    if not names:
        return {**group, "params": inside}
    if len(names) < len(inside):
        raise ValueError(f"{len(names)} of {len(inside)} parameters have "
                         f"names: name all of them, or none")
    return {**group, "params": [p for _, p in inside], "param_names": names}


def check_names(group, others):
    """ValueError if some groups have names for parameters, others none."""
    if any(("param_names" in group) != ("param_names" in other)
           for other in others):
        raise ValueError("some groups name their parameters and others do "
                         "not: give named_parameters() for all, or for none")


def check_param(p, seen):
    """Refuse what an optimiser cannot move; note it as seen."""
    if not isinstance(p, Tensor):
        raise TypeError(f"an optimiser moves tensors; got "
                        f"{type(p).__name__}")
    if not (p.is_leaf or p.retains_grad):
        raise ValueError(
            f"can't optimize a tensor that is no leaf: this one, of shape "
            f"{list(p.shape)}, was made by {p.grad_fn.name()}, and its "
            f".grad stays None")
    if p in seen:
        raise ValueError(f"a parameter of shape {list(p.shape)} is given "
                         f"twice, and would be moved twice")
    seen.add(p)


foreach_add = define(
    "_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, "
    "Scalar alpha=1) -> ()", "self[i] += alpha * other[i], for all i.")


@impl("_foreach_add_.List")
def foreach_add_(self, other, alpha):
    for x, y in zip(self, other):
        x.add_(y, alpha=alpha)


def add_arrays(pairs, dtype, alpha):
    """Take pairs from an iterator as long as NumPy can add their arrays as
    they are; give the one that it cannot."""
    add, multiply = np.add, np.multiply
    if dtype in (float32, float64) and isinstance(alpha, (float, int)):
        factor = np.array(alpha, numpy_dtypes[dtype])   # is read once
    else:
        dtype = None
    for x, y in pairs:
        a, b, storage = x.array, y.array, x._storage
        if (x.dtype is y.dtype is dtype and a is not None and b is not None
                and storage is not None and a.flags.c_contiguous):
            try:
                add(a, multiply(b, factor), a)
                storage.version += 1
                continue
            except ValueError:          # they are not of one shape
                pass
        return x, y


@impl("_foreach_add_.List", "cpu")
def cpu_foreach_add_(self, other, alpha):
    pairs = zip(self, other)
    while pair := quiet(add_arrays, pairs, self[0].dtype, alpha):
        pair[0].add_(pair[1], alpha=alpha)


def add_to_each(tensors, others, alpha):
    """x += alpha * y for each; at once, if they are of one kind. There is
    nothing to check in an optimiser's lists, so the kernel is called."""
    kinds = {x.keys for x in tensors}
    if len(kinds) == 1:
        kernel = lookup(foreach_add, kinds.pop() | dispatch.included)
        kernel(tensors, others, alpha)
    else:
        for x, y in zip(tensors, others):
            x.add_(y, alpha=alpha)


class SGD(Optimizer):
    """p -= lr * grad, with momentum if you say.

    With momentum, p moves by a velocity: momentum times the old one, plus
    (1 - dampening) times the gradient; the first velocity is the first
    gradient. nesterov looks one step ahead. weight_decay adds that much
    of p to the gradient. maximize goes up.
    """

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0,
                 weight_decay=0, nesterov=False, *, maximize=False):
        check_options(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"nesterov needs a momentum, and no dampening; "
                             f"got momentum={momentum}, "
                             f"dampening={dampening}")
        super().__init__(params, dict(
            lr=lr, momentum=momentum, dampening=dampening,
            weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize))

    def update_group(self, group):
        params, grads = [], []
        for p in group["params"]:
            grad = p.grad
            if grad is not None:
                params.append(p)
                grads.append(grad)
        if group["momentum"] or group["weight_decay"] or group["maximize"]:
            grads = [self.direction(p, grad, group)
                     for p, grad in zip(params, grads)]
        add_to_each(params, grads, -group["lr"])

    def direction(self, p, grad, group):
        """What a parameter moves against."""
        grad = slope(p, grad, group["maximize"], group["weight_decay"])
        momentum = group["momentum"]
        if momentum:
            state = self.state[p]
            velocity = state.get("momentum_buffer")
            if velocity is None:
                velocity = state["momentum_buffer"] = grad.clone()
            else:
                velocity.mul_(momentum)
                velocity.add_(grad, alpha=1 - group["dampening"])
            grad = (grad.add(velocity, alpha=momentum)
                    if group["nesterov"] else velocity)
        return grad


def slope(p, grad, maximize, weight_decay):
    """What a step goes against: the gradient, turned round to go up, and
    the pull of weight decay towards 0."""
    if maximize:
        grad = -grad
    return grad.add(p, alpha=weight_decay) if weight_decay else grad


def check_options(**options):
    """ValueError for an option that is below 0; betas are below 1 too."""
    for name, value in options.items():
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is a number; got "
                            f"{type(value).__name__}")
        high = 1 if name.startswith("betas") else float("inf")
        if not 0 <= value < high:
            upto = ", and below 1" if high == 1 else ""
            raise ValueError(f"invalid {name}: {value}; expected at least "
                             f"0{upto}")


class Adagrad(Optimizer):
    """A rate for each number: divided by the root of the sum of all its
    squared gradients so far.

    lr_decay also lowers the rate of all, as 1 / (1 + step * lr_decay).
    J. Duchi, E. Hazan and Y. Singer, "Adaptive subgradient methods",
    JMLR 2011.
    """

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0,
                 initial_accumulator_value=0, eps=1e-10, *,
                 maximize=False):
        check_options(
            lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps,
            initial_accumulator_value=initial_accumulator_value)
        super().__init__(params, dict(
            lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            maximize=maximize))

    def update(self, p, grad, group):
        grad = slope(p, grad, group["maximize"], group["weight_decay"])
        state = self.state[p]
        if not state:
            state.update(step=0, sum=p.new_full(
                p.shape, group["initial_accumulator_value"]))
        lr = group["lr"] / (1 + state["step"] * group["lr_decay"])
        state["step"] += 1
        size = state["sum"].add_(grad * grad).sqrt().add_(group["eps"])
        p.add_(grad / size, alpha=-lr)


class RMSprop(Optimizer):
    """A rate for each number: divided by the root of the mean of its
    squared gradients of late.

    alpha says how slowly the mean forgets. centered takes the variance
    in place of the mean square; momentum is as in SGD. T. Tieleman and
    G. Hinton, lecture 6.5 of "Neural networks for machine learning",
    2012.
    """

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8,
                 weight_decay=0, momentum=0, centered=False, *,
                 maximize=False):
        check_options(lr=lr, eps=eps, momentum=momentum,
                      weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, dict(
            lr=lr, momentum=momentum, alpha=alpha, eps=eps,
            centered=centered, weight_decay=weight_decay,
            maximize=maximize))

    def update(self, p, grad, group):
        grad = slope(p, grad, group["maximize"], group["weight_decay"])
        state, momentum = self.state[p], group["momentum"]
        if not state:
            remember(state, p, "square_avg", momentum and "momentum_buffer",
                     group["centered"] and "grad_avg")
        state["step"] += 1
        square = follow(state["square_avg"], grad * grad, group["alpha"])
        if group["centered"]:
            mean = follow(state["grad_avg"], grad, group["alpha"])
            square = square - mean * mean
        grad = grad / square.sqrt().add_(group["eps"])
        if momentum:
            grad = state["momentum_buffer"].mul_(momentum).add_(grad)
        p.add_(grad, alpha=-group["lr"])


def remember(state, p, *names):
    """Begin a state: no steps, and zeros like p under each name."""
    state["step"] = 0
    state.update((name, p.new_zeros(p.shape)) for name in names if name)


def follow(mean, x, keep):
    """Let a running mean follow x, in place: it keeps that share of
    itself."""
    return mean.mul_(keep).add_(x, alpha=1 - keep)


class Adam(Optimizer):
    """Each number at its own pace: the mean of its gradients over the root
    of the mean of their squares.

    betas say how slowly the two means forget. eps keeps the quotient
    finite. weight_decay adds that much of p to the gradient, or shrinks p
    itself if it is decoupled. amsgrad divides by the largest mean square
    so far. D. Kingma and J. Ba, "Adam: a method for stochastic
    optimization", ICLR 2015.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                 weight_decay=0, amsgrad=False, *, maximize=False,
                 decoupled_weight_decay=False):
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"betas are two numbers; got {betas!r}")
        first, second = betas
        check_options(lr=lr, eps=eps, weight_decay=weight_decay,
                      **{"betas[0]": first, "betas[1]": second})
        super().__init__(params, dict(
            lr=lr, betas=(first, second), eps=eps,
            weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
            decoupled_weight_decay=decoupled_weight_decay))

    def update(self, p, grad, group):
        lr, (first, second) = group["lr"], group["betas"]
        decay = group["weight_decay"]
        if decay and group["decoupled_weight_decay"]:
            p.mul_(1 - lr * decay)
            decay = 0
        grad = slope(p, grad, group["maximize"], decay)
        state = self.state[p]
        if not state:
            remember(state, p, "exp_avg", "exp_avg_sq",
                     group["amsgrad"] and "max_exp_avg_sq")
        state["step"] += 1
        mean = follow(state["exp_avg"], grad, first)
        square = follow(state["exp_avg_sq"], grad * grad, second)
        if group["amsgrad"]:
            top = state["max_exp_avg_sq"]
            square = top.copy_(top.maximum(square))
        # Both began at 0; so far they have seen these shares of a mean.
        low = 1 - first ** state["step"]
        root = math.sqrt(1 - second ** state["step"])
        size = square.sqrt().add_(group["eps"] * root)
        p.add_(mean / size, alpha=-lr * root / low)


class AdamW(Adam):
    """Adam whose weight decay shrinks p itself, apart from the gradient.

    I. Loshchilov and F. Hutter, "Decoupled weight decay regularization",
    ICLR 2019.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                 weight_decay=1e-2, amsgrad=False, *, maximize=False):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad,
                         maximize=maximize, decoupled_weight_decay=True)


utils = submodule("utils", "Gradients clipped, parameters as one vector.",
                  "lamina.nn")


@part_of(utils)
@no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False):
    """The norm of all numbers in all tensors, as if they were one vector."""
    tensors = as_list(tensors)
    if not tensors:
        return tensor(0.0)
    norms = [vector_norm(x, float(norm_type)).to(tensors[0].device)
             for x in tensors]
    total = vector_norm(functions["stack"](norms), float(norm_type))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"the norm of order {norm_type} of these "
                           f"gradients is {total.item()}, and cannot be "
                           f"scaled; error_if_nonfinite=False goes on")
    return total


@part_of(utils)
@no_grad()
def clip_grads_with_norm_(parameters, max_norm, total_norm):
    """Scale the gradients, whose norm is known, down to max_norm."""
    scale = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for p in as_list(parameters):
        if p.grad is not None:
            p.grad.mul_(scale.to(p.grad.device))


@part_of(utils)
def clip_grad_norm_(parameters, max_norm, norm_type=2.0,
                    error_if_nonfinite=False):
    """Scale all gradients by one factor, so that their common norm is at
    most max_norm. Returns the norm that they had."""
    parameters = as_list(parameters)
    if not parameters:
        warnings.warn("no parameters, so nothing is clipped: was "
                      "model.parameters(), a generator, used up before?",
                      stacklevel=2)
    total = get_total_norm([p.grad for p in parameters
                            if p.grad is not None],
                           norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


@part_of(utils)
@no_grad()
def clip_grad_value_(parameters, clip_value):
    """Cut each number of each gradient to -clip_value..clip_value."""
    for p in as_list(parameters):
        if p.grad is not None:
            p.grad.clamp_(-clip_value, clip_value)


def as_list(tensors):
    """One tensor, or an iterable of them, as a list."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


@part_of(utils)
def parameters_to_vector(parameters):
    """All parameters, flat, one after the other in one tensor."""
    return functions["cat"]([p.reshape(-1) for p in parameters])


@part_of(utils)
@no_grad()
def vector_to_parameters(vec, parameters):
    """Write a vector that parameters_to_vector() gave into parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters() takes a tensor; got "
                        f"{type(vec).__name__}")
    parameters = list(parameters)
    sizes = [p.numel() for p in parameters]
    if vec.shape != (sum(sizes),):
        raise RuntimeError(f"these parameters are {sum(sizes)} numbers; got "
                           f"a tensor of shape {list(vec.shape)}")
    for p, part in zip(parameters, vec.split(sizes)):
        p.copy_(part.reshape(p.shape))


lr_scheduler = submodule("lr_scheduler", "Plans for the learning rate.",
                         "lamina.optim")


@part_of(lr_scheduler)
class LRScheduler:
    """A plan for the learning rate: call step() once an epoch.

    A subclass says in rate(lr, base, epoch) what the rate becomes in an
    epoch. It goes on from the rate that the group has, so that schedules
    can share an optimiser, and the rate can be set by hand. last_epoch is
    the epoch that is over, if a run is taken up again.
    """

    def __init__(self, optimizer, last_epoch=-1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"group {i} has no 'initial_lr', which a schedule needs "
                    f"to go on from epoch {last_epoch}: load the "
                    f"optimiser's state first")
        self.base_lrs = [group["initial_lr"]
                         for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._first()

    def _first(self):
        """The step that a schedule takes when it is made."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def _begin(self):
        """Go to epoch 0, from the rates that the groups have."""
        self.last_epoch = -1
        self._first()

    def step(self):
        """Go on to the next epoch."""
        if self._step_count == 1:
            warn_of_order(self.optimizer)
        self._step_count += 1
        self.last_epoch += 1
        self._set(self.get_lr())

    def get_lr(self):
        """The rates of this epoch, computed from those of the last."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            raise ValueError(f"the optimiser has {len(groups)} groups, and "
                             f"had {len(self.base_lrs)} when this schedule "
                             f"was made: make it after add_param_group()")
        return [self.rate(group["lr"], base, self.last_epoch)
                for group, base in zip(groups, self.base_lrs)]

    def rate(self, lr, base, epoch):
        """The rate in an epoch, for a group that began with `base` and
        is at `lr`."""
        raise NotImplementedError(f"{type(self).__name__} has no rate()")

    def _set(self, rates):
        for group, lr in zip(self.optimizer.param_groups, rates):
            group["lr"] = lr
        self._last_lr = rates

    def get_last_lr(self):
        """The rates that the last step() set, one a group."""
        return self._last_lr

    def state_dict(self):
        """All that the schedule knows, but for its optimiser."""
        return {key: value for key, value in vars(self).items()
                if key != "optimizer"}

    def load_state_dict(self, state_dict):
        """Go on from a state that state_dict() gave."""
        vars(self).update(copy.deepcopy(state_dict))


def check_optimizer(optimizer):
    """TypeError for what a schedule cannot steer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"a schedule takes an optimiser; got "
                        f"{type(optimizer).__name__}")


def warn_of_order(optimizer):
    """Say that the first rate has not been used."""
    if (type(optimizer).step is Optimizer.step
            and not getattr(optimizer, "_opt_called", False)):
        warnings.warn("scheduler.step() comes before the first "
                      "optimizer.step(), so the first rate of the schedule "
                      "is never used: call optimizer.step() first",
                      stacklevel=3)


@part_of(lr_scheduler)
class StepLR(LRScheduler):
    """Multiply the rate by gamma after every step_size epochs."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        check_count("step_size", step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        due = epoch > 0 and epoch % self.step_size == 0
        return lr * self.gamma if due else lr


@part_of(lr_scheduler)
class CosineAnnealingLR(LRScheduler):
    """From the rate down to eta_min in T_max epochs, along half a cosine.

    I. Loshchilov and F. Hutter, "SGDR: stochastic gradient descent with
    warm restarts", ICLR 2017.
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        check_count("T_max", T_max)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        if self._is_initial:
            return lr
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # at the lowest point there is nothing to multiply
            first = (1 - math.cos(math.pi / self.T_max)) / 2
            return lr + (base - self.eta_min) * first
        now, before = (1 + math.cos(math.pi * n / self.T_max)
                       for n in (epoch, epoch - 1))
        return self.eta_min + (lr - self.eta_min) * (now / before)


def check_count(name, value):
    """ValueError for what is no number of epochs."""
    if not isinstance(value, numbers.Real) or not value > 0:
        raise ValueError(f"{name} is a number of epochs, 1 or more; got "
                         f"{value!r}")


@part_of(lr_scheduler)
class MultiStepLR(LRScheduler):
    """Multiply the rate by gamma at each of the milestones."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        return lr * self.gamma ** self.milestones[epoch]


@part_of(lr_scheduler)
class ExponentialLR(LRScheduler):
    """Multiply the rate by gamma each epoch."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        return lr if self._is_initial else lr * self.gamma


@part_of(lr_scheduler)
class LinearLR(LRScheduler):
    """From start_factor times the rate to end_factor times the rate, in
    total_iters epochs, along a line. It is the usual warm-up."""

    def __init__(self, optimizer, start_factor=1 / 3, end_factor=1.0,
                 total_iters=5, last_epoch=-1):
        if not 0 < start_factor <= 1:
            raise ValueError(f"start_factor is above 0 and at most 1; got "
                             f"{start_factor}")
        check_share("end_factor", end_factor)
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        if epoch == 0:
            return lr * self.start_factor
        if self._is_initial or epoch > self.total_iters:
            return lr
        rise = self.end_factor - self.start_factor
        return lr * (1 + rise / (self.total_iters * self.start_factor
                                 + (epoch - 1) * rise))


def check_share(name, value):
    """ValueError for what is not between 0 and 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is between 0 and 1; got {value}")


@part_of(lr_scheduler)
class ConstantLR(LRScheduler):
    """factor times the rate for total_iters epochs, then the rate."""

    def __init__(self, optimizer, factor=1 / 3, total_iters=5,
                 last_epoch=-1):
        check_share("factor", factor)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        if epoch == 0:
            return lr * self.factor
        return lr / self.factor if epoch == self.total_iters else lr


@part_of(lr_scheduler)
class PolynomialLR(LRScheduler):
    """Down to 0 in total_iters epochs, as a power of what is left."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        if self._is_initial or epoch > self.total_iters:
            return lr
        left = self.total_iters - epoch
        return lr * (left / (left + 1)) ** self.power


@part_of(lr_scheduler)
class LambdaLR(LRScheduler):
    """The rate that a group began with, times a function of the epoch.
    lr_lambda may be a list: one function a group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        check_optimizer(optimizer)
        count = len(optimizer.param_groups)
        several = isinstance(lr_lambda, (list, tuple))
        self.lr_lambdas = list(lr_lambda) if several else [
            lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"the optimiser has {count} groups; got "
                             f"{len(self.lr_lambdas)} functions")
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [base * function(self.last_epoch)
                for function, base in zip(self.lr_lambdas, self.base_lrs)]

    def state_dict(self):
        """As always; of a function only the attributes, if it is an object
        of a class. A lambda is not saved."""
        kept = [None if isinstance(f, types.FunctionType)
                else dict(vars(f)) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict):
        own = self.lr_lambdas
        super().load_state_dict(state_dict)
        for function, kept in zip(own, self.lr_lambdas):
            if kept is not None:
                vars(function).update(kept)
        self.lr_lambdas = own


@part_of(lr_scheduler)
class MultiplicativeLR(LambdaLR):
    """The last rate, times a function of the epoch."""

    def get_lr(self):
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return rates if self._is_initial else [
            lr * function(self.last_epoch)
            for function, lr in zip(self.lr_lambdas, rates)]


@part_of(lr_scheduler)
class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to eta_min in T_0 epochs, then back up at once
    and down again, each time T_mult times as long."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0,
                 last_epoch=-1):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is an int, 1 or more; got "
                                 f"{value!r}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def rate(self, lr, base, epoch):
        return self.eta_min + (base - self.eta_min) * (
            1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2

    def step(self, epoch=None):
        """Go on to the next epoch, or to any, which may be a fraction."""
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise ValueError(f"epochs count from 0; got {epoch}")
            self.T_cur, self.T_i = epoch, self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())


@part_of(lr_scheduler)
class OneCycleLR(LRScheduler):
    """Up to max_lr and down again to next to nothing, once, in total_steps
    calls of step(): one after every batch. The momentum, or the first of
    the betas, goes the other way.

    It begins at max_lr / div_factor, and ends at that divided by
    final_div_factor. L. Smith and N. Topin, "Super-convergence", 2017.
    """

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None,
                 steps_per_epoch=None, pct_start=0.3, anneal_strategy="cos",
                 cycle_momentum=True, base_momentum=0.85, max_momentum=0.95,
                 div_factor=25.0, final_div_factor=1e4, three_phase=False,
                 last_epoch=-1):
        check_optimizer(optimizer)
        total_steps = cycle_length(total_steps, epochs, steps_per_epoch)
        check_share("pct_start", pct_start)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy is 'cos' or 'linear'; got "
                             f"{anneal_strategy!r}")
        self.total_steps, self._anneal = total_steps, anneal_strategy
        self._phases = phases(total_steps, pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if cycle_momentum and not (
                self.use_beta1 or "momentum" in optimizer.defaults):
            raise ValueError(f"{type(optimizer).__name__} has neither "
                             f"momentum nor betas: cycle_momentum=False "
                             f"leaves them alone")
        if last_epoch == -1:
            limits = {"max_lr": max_lr}
            if cycle_momentum:
                limits |= {"max_momentum": max_momentum,
                           "base_momentum": base_momentum}
            for name, value in limits.items():
                for group, one in zip(optimizer.param_groups, one_a_group(
                        optimizer, name, value)):
                    group[name] = one
            for group in optimizer.param_groups:
                first = group["max_lr"] / div_factor
                group.update(initial_lr=first,
                             min_lr=first / final_div_factor)
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch > self.total_steps:
            raise ValueError(f"step() number {self.last_epoch} of a cycle "
                             f"of {self.total_steps} steps")
        return [self.in_phase(group) for group in
                self.optimizer.param_groups]

    def in_phase(self, group):
        """Set the momentum of a group; give its rate."""
        begin = 0.0
        for end, *names in self._phases:
            if self.last_epoch <= end:
                break
            begin = end
        else:
            begin = self._phases[-2][0]
        done = ((self.last_epoch - begin) / (end - begin) if end > begin
                else 1.0)
        share = (done if self._anneal == "linear"
                 else (1 - math.cos(math.pi * done)) / 2)

        def between(start, stop):
            return group[start] + (group[stop] - group[start]) * share
        if self.cycle_momentum:
            momentum = between(*(MIRROR[name] for name in names))
            if self.use_beta1:
                group["betas"] = (momentum, *group["betas"][1:])
            else:
                group["momentum"] = momentum
        return between(*names)


def cycle_length(total_steps, epochs, steps_per_epoch):
    """The number of steps of a cycle, however it is given."""
    if total_steps is None:
        if epochs is None or steps_per_epoch is None:
            raise ValueError("one cycle of how many steps? Give "
                             "total_steps, or epochs and steps_per_epoch")
        total_steps = epochs * steps_per_epoch
    if not isinstance(total_steps, int) or total_steps < 1:
        raise ValueError(f"the number of steps is an int, 1 or more; got "
                         f"{total_steps!r}")
    return total_steps


MIRROR = {"max_lr": "base_momentum", "initial_lr": "max_momentum",
          "min_lr": "max_momentum"}


def phases(steps, share, three):
    """[last step, rate at the beginning, rate at the end] of each phase."""
    up = [share * steps - 1, "initial_lr", "max_lr"]
    if not three:
        return [up, [steps - 1, "max_lr", "min_lr"]]
    return [up, [2 * share * steps - 2, "max_lr", "initial_lr"],
            [steps - 1, "initial_lr", "min_lr"]]


def one_a_group(optimizer, name, value):
    """An option as a list with an entry for each group."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} is a number, or one for each of {count} "
                         f"groups; got {len(value)}")
    return list(value)


@part_of(lr_scheduler)
class ReduceLROnPlateau(LRScheduler):
    """Multiply the rate by factor when a measure has not got better for
    more than `patience` epochs. step() takes the measure.

    Better is lower, or higher with mode="max", by more than threshold: a
    share of the best so far, or with threshold_mode="abs" a difference.
    After a cut, `cooldown` epochs do not count.
    """

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10,
                 threshold=1e-4, threshold_mode="rel", cooldown=0, min_lr=0,
                 eps=1e-8):
        check_optimizer(optimizer)
        if not factor < 1:
            raise ValueError(f"factor is below 1; got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max'; got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold_mode is 'rel' or 'abs'; got "
                             f"{threshold_mode!r}")
        self.optimizer, self.factor, self.patience = (
            optimizer, factor, patience)
        self.mode, self.threshold, self.threshold_mode = (
            mode, threshold, threshold_mode)
        self.cooldown, self.eps = cooldown, eps
        self.min_lr = min_lr
        one_a_group(optimizer, "min_lr", min_lr)        # checks it
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics):
        """Tell it the measure of an epoch, such as a loss."""
        self.last_epoch += 1
        now = float(metrics)
        if self.better(now):
            self.best, self.num_bad_epochs = now, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            self.reduce()
        self._last_lr = [group["lr"]
                         for group in self.optimizer.param_groups]

    def reduce(self):
        """Lower the rates, down to min_lr, unless it is by next to
        nothing."""
        lows = one_a_group(self.optimizer, "min_lr", self.min_lr)
        for group, low in zip(self.optimizer.param_groups, lows):
            new = max(group["lr"] * self.factor, low)
            if group["lr"] - new > self.eps:
                group["lr"] = new

    def better(self, now):
        """Is this measure better than the best so far?"""
        sign = 1 if self.mode == "max" else -1
        bar = (self.best + sign * self.threshold
               if self.threshold_mode == "abs"
               else self.best * (1 + sign * self.threshold))
        return sign * now > sign * bar


class Several(LRScheduler):
    """What schedules made of schedules share."""

    def __init__(self, optimizer, schedulers):
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise ValueError(f"{type(self).__name__} takes at least one "
                             f"schedule; got none")
        self.optimizer = optimizer or self._schedulers[0].optimizer
        for i, scheduler in enumerate(self._schedulers):
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"number {i} is no schedule: got "
                                f"{type(scheduler).__name__}")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"number {i} is ReduceLROnPlateau, whose "
                                 f"step() wants a loss: call it by itself")
            if scheduler.optimizer is not self.optimizer:
                raise ValueError(f"number {i} has another optimiser")

    def state_dict(self):
        return {**super().state_dict(), "_schedulers": [
            scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict):
        schedulers = self._schedulers
        super().load_state_dict(state_dict)
        for scheduler, kept in zip(schedulers, self._schedulers):
            scheduler.load_state_dict(kept)
        self._schedulers = schedulers


@part_of(lr_scheduler)
class SequentialLR(Several):
    """One schedule after the other: the next begins at each milestone."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        super().__init__(optimizer, schedulers)
        if len(milestones) != len(self._schedulers) - 1:
            raise ValueError(f"{len(self._schedulers)} schedules change "
                             f"over at {len(self._schedulers) - 1} "
                             f"milestones; got {len(milestones)}")
        self._milestones = list(milestones)
        # Each schedule has set its first rate, and only one of them is to.
        self._begin()
        self.last_epoch = last_epoch + 1

    def _begin(self):
        for scheduler in self._schedulers:
            scheduler.last_epoch = -1
        self.last_epoch = 0
        self._change()

    def _change(self):
        """Start the schedule that is due, from the first rates."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        current = self._current()
        current._begin()
        self._last_lr = current.get_last_lr()

    def _current(self):
        return self._schedulers[bisect_right(self._milestones,
                                             self.last_epoch)]

    def step(self):
        """Go on to the next epoch, and to the next schedule if due."""
        self.last_epoch += 1
        if self.last_epoch in self._milestones:
            self._change()
        else:
            current = self._current()
            current.step()
            self._last_lr = current.get_last_lr()


@part_of(lr_scheduler)
class ChainedScheduler(Several):
    """Several schedules at once: each goes on from what the last set."""

    def __init__(self, schedulers, optimizer=None):
        super().__init__(optimizer, schedulers)
        self._last_lr = self._schedulers[-1].get_last_lr()

    def _begin(self):
        for scheduler in self._schedulers:
            scheduler._begin()
        self._last_lr = scheduler.get_last_lr()

    def step(self):
        """Go on to the next epoch in all of them."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def optimizer_method(function):
    """Make a function a method of all optimisers."""
    setattr(Optimizer, function.__name__, function)
    return function


@optimizer_method
def state_dict(self):
    """{"state": ..., "param_groups": ...}, where each parameter is its
    number, counted through all groups.

    What is remembered is shared, not copied: copy.deepcopy keeps it.
    """
    number = {p: i for i, p in enumerate(all_params(self.param_groups))}
    return {"state": {number.get(p, p): kept
                      for p, kept in self.state.items()},
            "param_groups": [
                {**group, "params": [number[p] for p in group["params"]]}
                for group in self.param_groups]}


@optimizer_method
def load_state_dict(self, state_dict):
    """Go on from a state that state_dict() gave; all of it is copied.

    The first parameter there is the first one here, and so on. ValueError
    if the groups are of other sizes; then nothing has changed.
    """
    for key in ("state", "param_groups"):
        if key not in state_dict:
            raise KeyError(f"a state has 'state' and 'param_groups'; got "
                           f"{list(state_dict)}")
    groups = state_dict["param_groups"]
    saved, own = ([len(group["params"]) for group in found]
                  for found in (groups, self.param_groups))
    if saved != own:
        raise ValueError(f"this state has groups of {saved} parameters, and "
                         f"the optimiser has groups of {own}")
    owner = dict(zip(all_params(groups), all_params(self.param_groups)))
    state = defaultdict(dict)
    for i, kept in state_dict["state"].items():
        state[owner.get(i, i)] = (fitted(kept, owner[i]) if i in owner
                                  else copy.deepcopy(kept))
    self.state = state
    self.param_groups = [
        {**self.defaults, **copy.deepcopy(group), "params": mine["params"]}
        for group, mine in zip(groups, self.param_groups)]


def fitted(kept, p, name=None):
    """A copy of what was kept, on the device of p and in its dtype. The
    number of steps is an int, even if it was saved as a tensor."""
    if name == "step":
        return int(kept)
    if isinstance(kept, dict):
        return {key: fitted(x, p, key) for key, x in kept.items()}
    if not isinstance(kept, Tensor):
        return copy.deepcopy(kept)
    dtype = p.dtype if kept.dtype.category == 2 else kept.dtype
    return kept.detach().to(p.device).to(dtype).clone()


def find_lr(optimizer, closure, low=1e-6, high=10.0, steps=100):
    """The losses of a run whose rate grows from low to high by the same
    factor each step: two lists, (rates, losses).

    closure computes the loss and its gradients, as for step(). The run
    ends early where the loss is four times the best so far, or infinite.
    Parameters, their gradients and the optimiser are then as they were
    before. L. Smith, "Cyclical learning rates for training neural
    networks", WACV 2017.
    """
    saved = copy.deepcopy(optimizer.state_dict())
    before = [(p, p.detach().clone(), p.grad)
              for p in all_params(optimizer.param_groups)]
    rates, losses = [], []
    try:
        for i in range(steps):
            lr = low * (high / low) ** (i / max(steps - 1, 1))
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.zero_grad()
            loss = float(optimizer.step(closure))
            if not math.isfinite(loss):
                break
            rates.append(lr)
            losses.append(loss)
            if loss > 4 * min(losses):
                break
    finally:
        optimizer.load_state_dict(saved)
        with no_grad():
            for p, value, grad in before:
                p.copy_(value)
                p.grad = grad
    return rates, losses


def __getattr__(name):
    missing("lamina.optim", list(globals()), name)
