"""Training: a classifier from nothing but your own code.

Exported from chapters/11_training.ipynb by `course export`; edit the chapter,
not this file.
"""

import contextlib
import copy
import functools
import gzip
import hashlib
import io
import json
import math
import multiprocessing
import os
import pickle
import secrets
import signal
import sys
import traceback
import types
import urllib.request
import zlib
from collections import deque, namedtuple
from itertools import islice, repeat

from lamina.autograd import no_grad
from lamina.dispatch import functions, np
from lamina.nn import (
    cross_entropy, default_generator, manual_seed, missing, multinomial,
    randint, randperm,
)
from lamina.storage import (
    Storage, dtypes, float64, get_default_device, int64, uint8,
)
from lamina.strides import Tensor, ones, row_major, tensor, zeros

__all__ = [
    "Dataset",
    "IterableDataset",
    "TensorDataset",
    "Subset",
    "random_split",
    "default_collate",
    "DataLoader",
    "accuracy",
    "confusion_matrix",
    "evaluate",
    "progress",
    "save_file",
    "load_file",
    "save",
    "load",
    "Trainer",
    "Callback",
    "EarlyStopping",
    "Progress",
    "Checkpoint",
    "MNIST",
]


class Dataset:
    """Samples by number: write __getitem__ and __len__."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no "
                                  f"__getitem__(index)")

    def __len__(self):
        # list() asks for a length, and takes this error alone for none
        raise TypeError(f"{type(self).__name__} has no __len__()")


class IterableDataset(Dataset):
    """Samples in a stream: write __iter__. They have no numbers."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no "
                                  f"__iter__()")


class TensorDataset(Dataset):
    """Sample i is (x[i], y[i], ...) of tensors of one length."""

    def __init__(self, *tensors):
        sizes = {x.shape[:1] for x in tensors}
        if len(sizes) != 1 or () in sizes:
            raise ValueError(f"TensorDataset takes tensors with the same "
                             f"first size; got shapes "
                             f"{[list(x.shape) for x in tensors]}")
        self.tensors = tensors

    def __len__(self):
        return self.tensors[0].shape[0]

    def __getitem__(self, index):
        return tuple(x[index] for x in self.tensors)

    def take(self, indices):
        """The batch of these numbers, in one go."""
        return [x.index_select(0, tensor(indices, dtype=int64,
                                         device=x.device))
                for x in self.tensors]


def default_collate(batch):
    """One batch of a list of samples: tensors are stacked, numbers become
    a tensor, and dicts, tuples and lists are collated place by place."""
    first = batch[0]
    if isinstance(first, Tensor):
        return functions["stack"](batch)
    if isinstance(first, float):
        return tensor(batch, dtype=float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, dict):
        return {key: default_collate([sample[key] for sample in batch])
                for key in first}
    if isinstance(first, (tuple, list)):
        lengths = [len(sample) for sample in batch]
        if len(set(lengths)) > 1:
            raise RuntimeError(f"the samples of a batch are tuples of one "
                               f"length; got lengths {lengths}")
        found = [default_collate(list(place)) for place in zip(*batch)]
        named = hasattr(first, "_fields")
        return type(first)(*found) if named else found
    if np is not None and isinstance(first, (np.ndarray, np.generic)):
        return functions["stack"]([tensor(sample) for sample in batch])
    raise TypeError(f"a batch is made of tensors, numbers, strings, and "
                    f"dicts, tuples and lists of them; a sample is "
                    f"{type(first).__name__}")


class Subset(Dataset):
    """The samples of another data set that a sequence of numbers names."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = (indices.tolist() if isinstance(indices, Tensor)
                        else list(indices))

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def take(self, indices):
        """The batch of these numbers."""
        return fetch(self.dataset, [self.indices[i] for i in indices])


def fetch(dataset, indices, collate_fn=default_collate):
    """A batch of the samples with these numbers."""
    if collate_fn is default_collate and hasattr(dataset, "take"):
        return dataset.take(indices)
    if hasattr(dataset, "__getitems__"):
        return collate_fn(dataset.__getitems__(indices))
    return collate_fn([dataset[i] for i in indices])


def random_split(dataset, lengths, generator=None):
    """Cut a data set into parts of these lengths, or of these fractions
    (which add up to 1), in a random order."""
    total, lengths = len(dataset), list(lengths)
    if any(isinstance(n, float) for n in lengths):
        if abs(sum(lengths) - 1) > 1e-9 or min(lengths) < 0:
            raise ValueError(f"fractions must be 0 or more and add up to 1; "
                             f"got {lengths}")
        lengths = [math.floor(total * share + 1e-9) for share in lengths]
        for i in range(total - sum(lengths)):       # what rounding left
            lengths[i % len(lengths)] += 1
    if sum(lengths) != total or min(lengths, default=0) < 0:
        raise ValueError(f"the parts must add up to the {total} samples; "
                         f"got {lengths}")
    order, parts = randperm(total, generator=generator).tolist(), []
    for length in lengths:
        parts.append(Subset(dataset, order[:length]))
        order = order[length:]
    return parts


class Sampler:
    """An order of sample numbers: write __iter__, and __len__ if known."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no "
                                  f"__iter__()")


class SequentialSampler(Sampler):
    """0, 1, 2, ..., one number for each sample."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """All numbers in a random order; with replacement=True, num_samples
    draws from all of them."""

    def __init__(self, data_source, replacement=False, num_samples=None,
                 generator=None):
        self.count = len(data_source)
        self.replacement = replacement
        self.num_samples = self.count if num_samples is None else num_samples
        self.generator = generator
        check_count("num_samples", self.num_samples, least=0)
        if self.num_samples and not self.count:
            raise ValueError("RandomSampler: there are no samples to draw")

    def __iter__(self):
        if self.replacement:
            yield from randint(0, max(1, self.count), (self.num_samples,),
                               generator=self.generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            order = randperm(self.count, generator=self.generator).tolist()
            yield from order[:left]
            left -= self.count

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The numbers given, in a random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = list(indices), generator

    def __iter__(self):
        order = randperm(len(self.indices), generator=self.generator)
        return iter([self.indices[i] for i in order.tolist()])

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """num_samples draws, each number as likely as its weight says."""

    def __init__(self, weights, num_samples, replacement=True,
                 generator=None):
        check_count("num_samples", num_samples)
        self.weights = tensor(weights, dtype=float64) if not isinstance(
            weights, Tensor) else weights.to(float64)
        self.num_samples, self.replacement = num_samples, replacement
        self.generator = generator

    def __iter__(self):
        return iter(multinomial(self.weights, self.num_samples,
                                self.replacement,
                                generator=self.generator).tolist())

    def __len__(self):
        return self.num_samples


def check_count(name, n, least=1):
    """ValueError unless n is a whole number, `least` or more."""
    if isinstance(n, bool) or not isinstance(n, int) or n < least:
        raise ValueError(f"{name} is a whole number, {least} or more; got "
                         f"{n!r}")


class BatchSampler(Sampler):
    """The numbers of another sampler, in lists of batch_size."""

    def __init__(self, sampler, batch_size, drop_last=False):
        check_count("batch_size", batch_size)
        self.sampler, self.batch_size = sampler, batch_size
        self.drop_last = drop_last

    def __iter__(self):
        numbers = iter(self.sampler)
        while batch := list(islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class DataLoader:
    """Batches of a data set, once through in each `for`.

    shuffle: in a new random order each time, drawn from `generator`, or
    the default one. drop_last: leave out a last batch that is smaller.
    sampler, batch_sampler: an order of your own. num_workers: so many
    processes fetch ahead, prefetch_factor batches each; with timeout,
    none is waited for longer than that many seconds.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None,
                 batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0,
                 worker_init_fn=None, multiprocessing_context=None,
                 generator=None, *, prefetch_factor=None):
        check_count("num_workers", num_workers, least=0)
        if prefetch_factor is not None:
            check_count("prefetch_factor", prefetch_factor)
        if pin_memory:
            raise ValueError("pin_memory=True is for copies to a graphics "
                             "card, and there is none here: leave it out")
        self.stream = isinstance(dataset, IterableDataset)
        check_order(dataset, self.stream, batch_size, shuffle, sampler,
                    batch_sampler, drop_last)
        if sampler is None and not self.stream:
            sampler = (RandomSampler(dataset, generator=generator)
                       if shuffle else SequentialSampler(dataset))
        if batch_sampler is None and not self.stream:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        check_count("batch_size", batch_size)
        self.dataset, self.batch_size = dataset, batch_size
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.drop_last, self.generator = drop_last, generator
        self.collate_fn = collate_fn or default_collate
        self.num_workers, self.timeout = num_workers, timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = prefetch_factor or 2
        self.begun, self.given, self.going_on = None, 0, None

    def __len__(self):
        """The number of batches."""
        if not self.stream:
            return len(self.batch_sampler)
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        state, self.going_on = self.going_on, None
        source, skip = self.source(), 0
        if state is not None:       # go on where load_state_dict() says
            source.set_state(state["begun"])
            skip = state["given"]
        self.begun, self.given = source.get_state(), skip
        self.seed = random_seed(source)     # of the workers
        if self.stream:
            found = self.fetched(repeat(None), 0)
            drop(found, skip)
        else:
            numbers = iter(self.batch_sampler)
            drop(numbers, skip)
            found = self.fetched(numbers, skip)
        if state is not None:
            source.set_state(state["now"])
        return self.counted(found)

    def fetched(self, batches, first):
        """The batches, the first of which has this number."""
        if self.num_workers:
            yield from from_workers(self, batches, first)
            return
        samples = iter(self.dataset) if self.stream else None
        for indices in batches:
            batch = make_batch(self, samples, indices)
            if batch is End:
                return
            yield batch

    def counted(self, found):
        """The batches, while it is known how many were given out."""
        for batch in found:
            self.given += 1
            yield batch
        self.begun, self.given = None, 0

    def source(self):
        """The generator that the order is drawn from."""
        sampler = getattr(self.batch_sampler, "sampler", self.batch_sampler)
        return (getattr(sampler, "generator", None) or self.generator
                or default_generator)

    def state_dict(self):
        """How far the loop is that is going on, and what decides its
        order."""
        now = self.source().get_state()
        begun = now if self.begun is None else self.begun
        return {"begun": begun, "given": self.given, "now": now}

    def load_state_dict(self, state):
        """Let the next loop go on from there."""
        self.source().set_state(state["now"])
        self.going_on = dict(state) if state["given"] else None


class End:
    """Comes after the last batch of a stream."""


def make_batch(loader, samples, indices):
    """The batch of these numbers, or the next one of a stream."""
    if indices is not None:
        return fetch(loader.dataset, indices, loader.collate_fn)
    found = list(islice(samples, loader.batch_size))
    if not found or loader.drop_last and len(found) < loader.batch_size:
        return End
    return loader.collate_fn(found)


def drop(iterator, count):
    """Leave out so many."""
    for _ in islice(iterator, count):
        pass


def random_seed(generator):
    """63 random bits."""
    return randint(0, 2 ** 63 - 1, (1,), generator=generator).item()


def check_order(dataset, stream, batch_size, shuffle, sampler,
                batch_sampler, drop_last):
    """ValueError for options that exclude each other."""
    if not stream and not (hasattr(dataset, "__getitem__")
                           and hasattr(dataset, "__len__")):
        raise TypeError(f"a loader takes a data set with __getitem__ and "
                        f"__len__, or an IterableDataset; got "
                        f"{type(dataset).__name__}")
    if stream and (shuffle or sampler is not None
                   or batch_sampler is not None):
        raise ValueError("an IterableDataset says itself what comes next: "
                         "leave out shuffle, sampler and batch_sampler")
    if sampler is not None and shuffle:
        raise ValueError("a sampler is an order already: give sampler or "
                         "shuffle=True, not both")
    if batch_sampler is not None and (
            batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("a batch_sampler makes the batches: leave out "
                         "batch_size, shuffle, sampler and drop_last")


def accuracy(output, target):
    """The share of rows whose largest entry is at the target."""
    if output.ndim != 2 or target.shape != output.shape[:1]:
        raise ValueError(f"expected outputs of shape (N, C) and targets of "
                         f"shape (N,); got {list(output.shape)} and "
                         f"{list(target.shape)}")
    if not target.numel():
        raise ValueError("accuracy() of no rows: there is no share of none")
    right = output.argmax(1) == target
    return right.sum().item() / target.numel()


def confusion_matrix(target, predicted, num_classes):
    """Counts of shape (C, C): [i, j] are of class i, and taken for j."""
    for name, x in (("target", target), ("predicted", predicted)):
        if x.shape != target.shape or x.ndim != 1:
            raise ValueError(f"expected two vectors of classes; got shapes "
                             f"{list(target.shape)} and "
                             f"{list(predicted.shape)}")
        if x.numel() and not (0 <= x.min().item()
                              and x.max().item() < num_classes):
            raise ValueError(f"{name} has a class that is not from 0 to "
                             f"{num_classes - 1}")
    cell = target.to(int64) * num_classes + predicted.to(int64)
    counts = zeros(num_classes ** 2, dtype=int64, device=target.device)
    counts.scatter_add_(0, cell, ones(cell.shape, dtype=int64,
                                       device=cell.device))
    return counts.view(num_classes, num_classes)


def evaluate(model, loader, loss_fn=cross_entropy):
    """Loss and accuracy over all batches, in evaluation mode."""
    was_training, total, right, seen = model.training, 0.0, 0, 0
    model.eval()
    try:
        with no_grad():
            for x, y in loader:
                output = model(x)
                total += loss_fn(output, y).item() * len(y)
                right += round(accuracy(output, y) * len(y))
                seen += len(y)
    finally:
        model.train(was_training)
    if not seen:
        raise ValueError("evaluate(): the loader has no batches")
    return {"loss": total / seen, "accuracy": right / seen}


def progress(iterable, label="", note=None, file=None, width=24):
    """Go through something that has a length, and draw how far it is.

    With tqdm installed the bar is tqdm's, on the error stream. Without
    it, or if a file is given, it is a plain line that is written over
    itself. note() is asked for a text at its end.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is not None and file is None:
        with tqdm(iterable, label) as bar:
            for item in bar:
                yield item
                if note:
                    bar.set_postfix_str(note(), refresh=False)
        return
    file = sys.stderr if file is None else file
    total, shown = len(iterable), ""
    for i, item in enumerate(iterable, 1):
        yield item
        bar = ("#" * (width * i // total)).ljust(width, ".")
        line = f"{label} [{bar}] {i}/{total} {note() if note else ''}"
        if line != shown:
            print("\r" + line.rstrip().ljust(len(shown)), end="",
                  file=file, flush=True)
            shown = line
    print(file=file, flush=True)


class Loop:
    """The training loop, with places to look in.

    loss_fn(output, target) is a mean over the batch. held_out: a loader
    to evaluate on after each epoch. schedule steps once an epoch, or with
    schedule_by="step" once a step. accumulate: so many batches to a step.
    """

    def __init__(self, model, optimizer, loader, *, loss_fn=cross_entropy,
                 held_out=None, schedule=None, schedule_by="epoch",
                 accumulate=1, callbacks=()):
        check_count("accumulate", accumulate)
        if schedule_by not in ("epoch", "step"):
            raise ValueError(f"schedule_by is 'epoch' or 'step'; got "
                             f"{schedule_by!r}")
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.loss_fn, self.held_out = loss_fn, held_out
        self.schedule, self.schedule_by = schedule, schedule_by
        self.accumulate = accumulate
        self.callbacks = sorted(callbacks, key=lambda one: one.last)
        self.epoch, self.step = 0, 0
        self.drained, self.stopped = False, False
        self.history, self.total, self.seen = [], 0.0, 0

    def fit(self, epochs):
        """Train until so many epochs are done; the history is returned."""
        self.tell("on_fit_begin")
        while self.epoch < epochs and not self.stopped:
            self.train_epoch()
        self.tell("on_fit_end")
        return self.history

    def train_epoch(self):
        """The rest of an epoch, which may have begun before."""
        self.model.train()
        batches = () if self.drained else iter(self.loader)
        while not self.drained:
            group = list(islice(batches, self.accumulate))
            self.drained = len(group) < self.accumulate
            if group:
                self.train_step(group)
                self.tell("on_step_end")
            if self.stopped:
                return
        self.end_epoch()

    def train_step(self, group):
        """One step, by the gradient of all batches of a group."""
        rows = sum(len(y) for _, y in group)
        self.optimizer.zero_grad()
        for x, y in group:
            loss = self.loss_fn(self.model(x), y)
            share = len(y) / rows
            (loss * share if share < 1 else loss).backward()
            self.total += loss.item() * len(y)
        self.seen += rows
        self.optimizer.step()
        self.step += 1
        if self.schedule is not None and self.schedule_by == "step":
            self.schedule.step()

    def end_epoch(self):
        """Write the record of an epoch, and go on to the next."""
        if not self.seen:
            raise ValueError("the loader has no batches")
        record = {"epoch": self.epoch, "loss": self.total / self.seen}
        if self.held_out is not None:
            found = evaluate(self.model, self.held_out, self.loss_fn)
            record |= {f"held_out_{k}": v for k, v in found.items()}
        self.history.append(record)
        self.epoch, self.total, self.seen = self.epoch + 1, 0.0, 0
        self.drained = False
        if self.schedule is not None and self.schedule_by == "epoch":
            self.schedule.step()
        self.tell("on_epoch_end")

    def tell(self, event):
        """Call one method of all callbacks."""
        for callback in self.callbacks:
            getattr(callback, event)(self)


class Callback:
    """Looks in at a Loop. One that is `last` is called after the others.
    What it remembers is in its state dict."""

    last = False

    def on_fit_begin(self, trainer):
        """Before the first epoch."""

    def on_step_end(self, trainer):
        """After each step of the optimiser."""

    def on_epoch_end(self, trainer):
        """After each epoch; trainer.history[-1] is its record."""

    def on_fit_end(self, trainer):
        """After the last epoch."""

    def state_dict(self):
        """What has to be saved: all attributes that begin with _."""
        return {name: value for name, value in vars(self).items()
                if name.startswith("_")}

    def load_state_dict(self, state):
        """Put a saved state back."""
        vars(self).update(state)


class EarlyStopping(Callback):
    """Stop when a number of the record has not improved for `patience`
    epochs."""

    def __init__(self, monitor="held_out_loss", patience=3, min_delta=0.0,
                 mode="min"):
        check_count("patience", patience)
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max'; got {mode!r}")
        self.monitor, self.patience = monitor, patience
        self.min_delta, self.sign = min_delta, 1 if mode == "min" else -1
        self._best, self._waited = math.inf, 0

    def on_epoch_end(self, trainer):
        record = trainer.history[-1]
        if self.monitor not in record:
            raise KeyError(f"EarlyStopping(monitor={self.monitor!r}): the "
                           f"record has {list(record)}")
        value = self.sign * record[self.monitor]
        if value < self._best - self.min_delta:
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        if self._waited >= self.patience:
            trainer.stopped = True


class Progress(Callback):
    """One line an epoch."""

    def __init__(self, file=None):
        self.file = file

    def on_epoch_end(self, trainer):
        record = dict(trainer.history[-1])
        text = "  ".join(f"{name} {value:.3f}"
                         for name, value in record.items()
                         if name != "epoch")
        print(f"epoch {record['epoch'] + 1}: {text}",
              file=self.file or sys.stderr, flush=True)


try:
    from multiprocessing import resource_tracker
    from multiprocessing.connection import wait
    from multiprocessing.shared_memory import SharedMemory
except ImportError:
    SharedMemory = None     # a browser's Python has no processes

WorkerInfo = namedtuple("WorkerInfo", "id num_workers seed dataset")
worker_info = None


def get_worker_info():
    """In a worker its number, how many there are, its seed and its copy of
    the data set; None in the process that reads."""
    return worker_info


def work(connection, loader, number, token):
    """A worker's whole life: make the batches that are asked for."""
    global worker_info
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # the reader's business
    seed = loader.seed
    worker_info = WorkerInfo(number, loader.num_workers, seed + number,
                             loader.dataset)
    reader = multiprocessing.parent_process().sentinel
    blocks, samples, failure = deque(), None, None
    try:
        manual_seed((seed + number) % 2 ** 64)
        if loader.worker_init_fn is not None:
            loader.worker_init_fn(number)
        samples = iter(loader.dataset) if loader.stream else None
    except Exception as error:
        failure = Failure(error, number)
    while connection in wait([connection, reader]):
        try:
            index, indices = connection.recv()
        except EOFError:
            return
        while len(blocks) >= loader.prefetch_factor:
            blocks.popleft().close()        # the reader has this one
        try:
            if not loader.stream:       # the same, whichever worker it is
                manual_seed((seed + index) % 2 ** 64)
            reply = failure or pack(make_batch(loader, samples, indices),
                                    f"{token}{index}", blocks)
        except Exception as error:
            reply = Failure(error, number)
        try:
            connection.send(reply)
        except OSError:                 # nobody reads any more
            return


class Failure:
    """An exception of a worker on its way to the reader."""

    def __init__(self, error, number):
        self.kind = type(error)
        try:
            pickle.dumps(self.kind)
        except Exception:       # a class that only the worker knows
            self.kind = RuntimeError
        self.text = (f"caught {type(error).__name__} in DataLoader worker "
                     f"process {number}.\nOriginal traceback:\n"
                     + "".join(traceback.format_exception(error)))

    def throw(self):
        """Raise it again, with the traceback of the worker as its text."""
        try:
            error = self.kind(Lines(self.text))
        except Exception:       # it wants other arguments
            error = RuntimeError(self.text)
        raise error


class Lines(str):
    """A text that a KeyError, too, shows line by line."""

    __repr__ = str.__str__


class Packer(pickle.Pickler):
    """Pickles a batch and leaves the bytes of its tensors out."""

    def __init__(self, file):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.parts, self.place = [], 0

    def persistent_id(self, value):
        if not isinstance(value, Tensor):
            return None
        data, start = bytes_of(value), self.place
        self.parts.append(data)
        self.place += len(data)
        return (start, len(data), tuple(value.shape), value.dtype,
                str(value.device))


class Unpacker(pickle.Unpickler):
    """Reads what Packer wrote, with the tensors' bytes from a block."""

    def __init__(self, file, memory):
        super().__init__(file)
        self.memory = memory

    def persistent_load(self, found):
        start, size, shape, dtype, device = found
        data = bytearray(self.memory[start:start + size])
        return Tensor(Storage(data, device), row_major(shape), dtype)


def bytes_of(x):
    """A tensor's elements in row-major order, as bytes."""
    x = x.detach().contiguous()
    start = x.storage_offset() * x.dtype.itemsize
    return x.storage.bytes[start:start + x.numel() * x.dtype.itemsize]


@contextlib.contextmanager
def unbroken():
    """A worker that is told to end does so after this, not within."""
    if not hasattr(signal, "pthread_sigmask"):      # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pack(batch, name, blocks):
    """Put the tensors of a batch into a new shared block."""
    file = io.BytesIO()
    packer = Packer(file)
    packer.dump(batch)
    if not packer.parts:
        return file.getvalue(), None
    with unbroken():        # half a block could not be found and given back
        block = SharedMemory(name, create=True, size=max(1, packer.place))
    blocks.append(block)
    place = 0
    for data in packer.parts:
        block.buf[place:place + len(data)] = data
        place += len(data)
    return file.getvalue(), name


def unpack(text, name):
    """The batch that pack() put there; the block is given back."""
    if name is None:
        return Unpacker(io.BytesIO(text), b"").load()
    block = SharedMemory(name)
    try:
        with memoryview(block.buf) as memory:
            return Unpacker(io.BytesIO(text), memory).load()
    finally:
        block.close()
        block.unlink()


class Crew:
    """The workers of one loop over a loader."""

    def __init__(self, loader):
        if SharedMemory is None:
            raise RuntimeError(
                f"num_workers={loader.num_workers} needs processes, which "
                f"this Python ({sys.platform}) does not have: "
                "num_workers=0 fetches in the one that reads")
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        if hasattr(resource_tracker, "ensure_running"):
            resource_tracker.ensure_running()   # one for all processes
        self.token = f"la{os.getpid()}-{secrets.token_hex(3)}-"
        self.timeout, self.missing = loader.timeout, set()
        self.connections, self.processes = [], []
        small = copy.copy(loader)       # what a worker needs, and no more
        small.sampler = small.batch_sampler = small.generator = None
        small.multiprocessing_context = small.begun = None
        try:
            for number in range(loader.num_workers):
                self.start(context, small, number)
        except BaseException:
            self.close()
            raise

    def start(self, context, loader, number):
        """One more worker."""
        mine, its = context.Pipe()
        self.connections.append(mine)
        process = context.Process(target=work, daemon=True, args=(
            its, loader, number, self.token))
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            error.add_note("A worker that is started afresh is sent the "
                           "data set and collate_fn: define them at the top "
                           "of a module, and keep open files out of them.")
            raise
        self.processes.append(process)
        its.close()         # so that its end is seen from here

    def ask(self, index, indices):
        """Have batch `index` made by the worker whose turn it is."""
        self.missing.add(index)
        with contextlib.suppress(OSError):      # receive() will tell
            self.connections[index % len(self.processes)].send(
                (index, indices))

    def receive(self, index):
        """Batch `index`, when it is there."""
        number = index % len(self.processes)
        connection = self.connections[number]
        try:
            if not connection.poll(self.timeout or None):
                raise RuntimeError(
                    f"DataLoader timed out: worker {number} did not give "
                    f"batch {index} in {self.timeout} seconds")
            reply = connection.recv()
        except (EOFError, ConnectionError):
            process = self.processes[number]
            process.join(5)
            raise RuntimeError(
                f"DataLoader worker {number} (pid {process.pid}) exited "
                f"unexpectedly, with exit code {process.exitcode}, before "
                f"it gave batch {index}") from None
        if isinstance(reply, Failure):
            reply.throw()
        batch = unpack(*reply)
        self.missing.discard(index)
        return batch

    def close(self):
        """End the workers, and give back what nobody will fetch."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
        for connection in self.connections:
            connection.close()
        for index in self.missing:
            with contextlib.suppress(OSError, ValueError):
                block = SharedMemory(f"{self.token}{index}")
                block.close()
                block.unlink()


def from_workers(loader, batches, first):
    """The batches in their order, from a crew that works ahead."""
    window = loader.num_workers * loader.prefetch_factor
    asked, given, ended = first, first, set()
    crew = Crew(loader)
    try:
        for indices in batches:
            crew.ask(asked, indices)
            asked += 1
            if asked - given < window:
                continue
            batch = crew.receive(given)
            if batch is not End:
                yield batch
            else:                       # this worker's part of a stream
                ended.add(given % loader.num_workers)
                if len(ended) == loader.num_workers:
                    return
            given += 1
        while given < asked:
            yield crew.receive(given)
            given += 1
    finally:
        crew.close()


CODES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16",
         "int32": "I32", "int64": "I64", "float16": "F16",
         "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
# The package safetensors writes the widest dtypes first, in this order.
FIRST = ["U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16",
         "I16", "I8", "U8", "BOOL"]


def file_order(tensors):
    """The names in the format's order: by dtype, then as strings."""
    return sorted(tensors, key=lambda name: (
        FIRST.index(CODES[tensors[name].dtype.name]), name))


def to_parts(tensors, metadata=None):
    """A file in the safetensors format, as a list of bytes.

    Eight bytes hold the length of the header. The header, JSON, gives each
    name its dtype, shape and place. The bytes follow.
    """
    for name, x in tensors.items():
        if not isinstance(name, str) or not isinstance(x, Tensor):
            raise TypeError(f"save_file() takes a dict of str to tensors; "
                            f"got {name!r}, with {type(x).__name__}")
        if name == "__metadata__":
            raise ValueError("'__metadata__' is no name for a tensor: the "
                             "format keeps it for notes; use another")
    header = {"__metadata__": metadata} if metadata else {}
    parts, place = [], 0
    for name in file_order(tensors):
        x = tensors[name]
        data = bytes_of(x)
        header[name] = {"dtype": CODES[x.dtype.name],
                        "shape": list(x.shape),
                        "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    text = text.encode("utf-8")
    text += b" " * (-len(text) % 8)             # the bytes start aligned
    return [len(text).to_bytes(8, "little"), text, *parts]


def write_file(path, parts):
    """Write a file whole or not at all.

    The bytes go into another file of the same folder, and to the disk.
    Then one call puts it in the place of the old one.
    """
    path = os.fspath(path)
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        with open(unfinished, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    if os.name == "posix":          # the name, too, goes to the disk
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def save_file(tensors, path, metadata=None):
    """Write {name: tensor} to a file in the safetensors format.

    metadata: a dict of str to str. A file that is there is replaced when
    the new one is complete, and not before.
    """
    write_file(path, to_parts(tensors, metadata))


LONGEST = 100_000_000       # of a header, as in the package safetensors


def from_bytes(content, name="these bytes"):
    """What a safetensors file holds: {name: tensor}, and its metadata.

    Nothing in it is run. ValueError if it is no such file.
    """
    content = memoryview(content)
    try:
        header, body = read_header(content)
        notes = header.pop("__metadata__", {})
        if not isinstance(notes, dict) or not all(
                isinstance(text, str) for text in notes.values()):
            raise ValueError("__metadata__ is no dict of str to str")
        entries = {key: check_entry(key, entry, len(body))
                   for key, entry in header.items()}
        check_places([entry[2] for entry in entries.values()], len(body))
        return {key: read_entry(body, *entry)
                for key, entry in entries.items()}, notes
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no safetensors file, or it is "
                         f"damaged: {error}") from None


def read_header(content):
    """The header as a dict, and the bytes after it."""
    if content[:4] == b"PK\3\4" or content[:1] == b"\x80" and (
            content[1:2] in b"\2\3\4\5"):
        raise ValueError("it looks like a pickle of torch.save, which may "
                         "run code when it is read; write it again, with "
                         "safetensors.torch.save_file")
    if len(content) < 8:
        raise ValueError(f"it has {len(content)} bytes, and 8 begin it")
    size = int.from_bytes(content[:8], "little")
    if size > min(LONGEST, len(content) - 8):
        raise ValueError(f"its header should have {size} bytes, and "
                         f"{len(content) - 8} are there")
    text = bytes(content[8:8 + size]).decode("utf-8")
    header = json.loads(text, object_pairs_hook=unique_names)
    if not isinstance(header, dict):
        raise ValueError("its header is no dict")
    return header, content[8 + size:]


def unique_names(pairs):
    """The dict of a header; ValueError for a name that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r:.60} is there twice")
    return found


BY_CODE = {CODES[one.name]: one for one in dtypes.values()}


def check_entry(name, entry, length):
    """dtype, shape and place of one tensor; ValueError if they are not
    what they should be."""
    if not isinstance(entry, dict) or set(entry) != {
            "dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r:.60} has no dtype, shape and data_offsets, "
                         f"or more than these")
    code, shape, place = (entry[key] for key in (
        "dtype", "shape", "data_offsets"))
    if not isinstance(code, str) or code not in BY_CODE:
        raise ValueError(f"{name!r:.60} has the dtype {code!r:.40}, which is "
                         f"none of Lamina's")
    for numbers in (shape, place):
        if not isinstance(numbers, list) or len(numbers) > 64 or not all(
                type(n) is int and 0 <= n < 2 ** 63 for n in numbers):
            raise ValueError(f"{name!r:.60} has {numbers!r:.40}, which is no "
                             f"list of sizes")
    wanted = math.prod(shape) * BY_CODE[code].itemsize
    if len(place) != 2 or not 0 <= place[0] <= place[1] <= length or (
            place[1] - place[0] != wanted):
        raise ValueError(f"bytes {' to '.join(map(str, place))} of {length} "
                         f"do not hold shape {shape!r:.200} of "
                         f"{BY_CODE[code]}")
    return BY_CODE[code], shape, place


def check_places(places, length):
    """ValueError unless the entries fill all the bytes, each byte once."""
    place = 0
    for begin, end in sorted(places):
        if begin != place:
            raise ValueError(f"a tensor begins at byte {begin}, and the "
                             f"one before it ends at {place}")
        place = end
    if place != length:
        raise ValueError(f"the tensors end at byte {place} of {length}")


def read_entry(body, dtype, shape, place):
    """One tensor of the file, on memory of its own."""
    data = bytearray(body[slice(*place)])
    if dtype.category == 0 and max(data, default=0) > 1:
        raise ValueError(f"a bool is 0 or 1; got {max(data)}")
    return Tensor(Storage(data, get_default_device()),
                  row_major(tuple(shape)), dtype)


def load_file(path):
    """Read a file that save_file(), or safetensors, wrote: {name: tensor}.

    Nothing in it is run. ValueError if it is no such file.
    """
    with open(path, "rb") as file:
        return from_bytes(file.read(), os.path.basename(path))[0]


def save(obj, f):
    """Write tensors, and dicts, lists and tuples of them, to a file.

    Numbers, strings, bools and None may be among them. The file has the
    safetensors format; its metadata say what is where. f is a path or a
    file that is open for writing bytes. A dict of names and tensors, in
    the format's own order, needs no metadata, and gives the file that
    save_file() writes.
    """
    flat = isinstance(obj, dict) and "__metadata__" not in obj and all(
        isinstance(name, str) and isinstance(x, Tensor)
        for name, x in obj.items()) and list(obj) == file_order(obj)
    tensors, metadata = (obj, None) if flat else ({}, {})
    if not flat:
        shape = take_apart(obj, tensors, "")
        metadata["lamina"] = json.dumps(shape, separators=(",", ":"))
    parts = to_parts(tensors, metadata)
    if hasattr(f, "write"):
        f.write(b"".join(parts))
    else:
        write_file(f, parts)


def take_apart(value, tensors, path):
    """Plain JSON for a value; its tensors go into a dict, by their path."""
    if isinstance(value, Tensor):
        name = path or "tensor"
        while name in tensors or name == "__metadata__":
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [
            [take_key(key), take_apart(x, tensors, joined(path, key))]
            for key, x in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [
            take_apart(x, tensors, joined(path, i))
            for i, x in enumerate(value)]}
    return take_key(value)


def take_key(value):
    """What JSON can say by itself."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    hint = (": save its state_dict()" if hasattr(value, "state_dict")
            else "")
    raise TypeError(f"save() writes tensors, numbers, strings, dicts, lists "
                    f"and tuples; got {type(value).__name__}{hint}")


def joined(path, key):
    """The path of what is inside."""
    return f"{path}.{key}" if path else str(key)


def load(f, map_location=None, *, weights_only=True):
    """Read what save() wrote, or any safetensors file. Nothing in it is
    run.

    f is a path or a file that is open for reading bytes; map_location a
    device. ValueError if it is no such file.
    """
    if not weights_only:
        raise ValueError("weights_only=False lets a pickle run its code; "
                         "there is no pickle here: leave it out")
    if hasattr(f, "read"):
        content, name = f.read(), "this file"
    else:
        with open(f, "rb") as file:
            content, name = file.read(), os.path.basename(f)
    tensors, notes = from_bytes(content, name)
    if map_location is not None:
        tensors = {key: x.to(map_location) for key, x in tensors.items()}
    if "lamina" not in notes:
        return tensors
    try:
        return put_together(json.loads(notes["lamina"]), tensors)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{name} is damaged: its metadata do not say what "
                         f"is where: {error}") from None


def put_together(said, tensors):
    """The value that take_apart() took apart."""
    if not isinstance(said, dict):
        return take_key(said)
    (kind, inside), = said.items()
    if kind == "tensor":
        if inside not in tensors:
            raise ValueError(f"there is no tensor {inside!r:.40}")
        return tensors[inside]
    if kind == "dict":
        return {key: put_together(x, tensors) for key, x in inside}
    if kind not in ("list", "tuple") or not isinstance(inside, list):
        raise ValueError(f"it has {kind!r:.40}, which is no dict, list, "
                         f"tuple or tensor")
    found = [put_together(x, tensors) for x in inside]
    return found if kind == "list" else tuple(found)


class Trainer(Loop):
    """A loop whose whole state can be saved, and that goes on from it to
    the same bits."""

    def state_dict(self):
        """All that decides how the run goes on."""
        return {
            **{name: part.state_dict() for name, part in self.parts()},
            "rng": default_generator.get_state(),
            "callbacks": [one.state_dict() for one in self.stateful()],
            **{name: getattr(self, name) for name in COUNTERS}}

    def load_state_dict(self, state):
        """Put a state back that state_dict() gave."""
        wanted = {*dict(self.parts()), "rng", "callbacks", *COUNTERS}
        if not isinstance(state, dict) or set(state) != wanted or (
                len(state["callbacks"]) != len(self.stateful())):
            found = sorted(state) if isinstance(state, dict) else state
            raise ValueError(f"this is no state of such a trainer: expected "
                             f"{sorted(wanted)}; got {found!r:.200}")
        for name, part in self.parts():
            part.load_state_dict(state[name])
        for one, its in zip(self.stateful(), state["callbacks"]):
            one.load_state_dict(its)
        for name in COUNTERS:
            setattr(self, name, state[name])
        default_generator.set_state(state["rng"])
        self.optimizer._opt_called = self.step > 0      # a schedule asks

    def stateful(self):
        """The callbacks that remember something."""
        return [one for one in self.callbacks if one.state_dict()]

    def parts(self):
        """What has a state of its own."""
        found = [("model", self.model), ("optimizer", self.optimizer),
                 ("loader", self.loader)]
        if self.schedule is not None:
            found.append(("schedule", self.schedule))
        return found


COUNTERS = ["epoch", "step", "drained", "stopped", "history", "total",
            "seen"]


class Checkpoint(Callback):
    """Write the trainer's state to a file: after each epoch, or after each
    `every` steps as well. A run that finds the file goes on from it."""

    last = True

    def __init__(self, path, every=None):
        if every is not None:
            check_count("every", every)
        self.path, self.every = path, every

    def on_fit_begin(self, trainer):
        if os.path.exists(self.path):
            trainer.load_state_dict(load(self.path))

    def on_step_end(self, trainer):
        if self.every is not None and trainer.step % self.every == 0:
            save(trainer.state_dict(), self.path)

    def on_epoch_end(self, trainer):
        save(trainer.state_dict(), self.path)


def read_idx(path):
    """The bytes of an idx file, or of one packed by gzip, as a tensor.

    Two zeros, the code 8 for bytes, and the number of dimensions begin
    the file. Four bytes for each size follow, the highest first.
    """
    with open(path, "rb") as file:
        content = file.read()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{os.path.basename(path)} is damaged: "
                             f"{error}") from None
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(f"{os.path.basename(path)} is no idx file of bytes")
    ndim = content[3]
    start = 4 + 4 * ndim
    shape = tuple(int.from_bytes(content[i:i + 4], "big")
                  for i in range(4, start, 4))
    if len(content) - start != math.prod(shape):
        raise ValueError(f"{os.path.basename(path)} should hold "
                         f"{list(shape)} bytes, and has "
                         f"{len(content) - start}")
    data = Storage(bytearray(content[start:]), get_default_device())
    return Tensor(data, row_major(shape), uint8)


MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
PUBLISHED = {       # by their MD5 sums
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c"}


class MNIST(TensorDataset):
    """Handwritten digits: an image is float32, of shape (1, 28, 28), from
    0 to 1, and a label int64.

    The four files are looked for in `root`, and in root/MNIST/raw, packed
    or not. With download=True, those that are missing are fetched. Y.
    LeCun and others, "Gradient-based learning applied to document
    recognition", Proceedings of the IEEE 1998.
    """

    def __init__(self, root, train=True, download=False):
        start = "train" if train else "t10k"
        self.data, self.targets = (
            read_idx(find_published(root, f"{start}-{kind}-ubyte", download))
            for kind in ("images-idx3", "labels-idx1"))
        super().__init__(self.data.unsqueeze(1).float() / 255,
                         self.targets.long())


def find_published(root, name, download):
    """The path of one of MNIST's files."""
    for folder in (root, os.path.join(root, "MNIST", "raw")):
        for path in (os.path.join(folder, name),
                     os.path.join(folder, name + ".gz")):
            if os.path.exists(path):
                return path
    if not download:
        raise FileNotFoundError(
            f"there is no {name} in {root!r}, packed or not; "
            f"MNIST(root, download=True) fetches it from {MIRROR}")
    os.makedirs(root, exist_ok=True)
    return fetch_published(root, name + ".gz")


def fetch_published(root, name):
    """Fetch one file, and keep it if it is the published one."""
    try:
        with urllib.request.urlopen(MIRROR + name, timeout=30) as answer:
            content = answer.read(20_000_000)
    except OSError as error:
        raise RuntimeError(
            f"{MIRROR + name} cannot be read: {error}. Without a network, "
            f"put the file into {root!r} yourself") from None
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != PUBLISHED[name]:
        raise RuntimeError(f"{MIRROR + name} has the MD5 sum {found}, and "
                           f"{PUBLISHED[name]} is published: it is not kept")
    path = os.path.join(root, name)
    write_file(path, [content])
    return path


def submodule(name, *members):
    """A module lamina.<name> with these members, as PyTorch has it."""
    full = f"lamina.{name}"
    made = sys.modules.get(full) or types.ModuleType(
        full, "Names where PyTorch keeps them.")
    made.__all__ = [member.__name__ for member in members]
    for member in members:
        setattr(made, member.__name__, member)
    made.__getattr__ = functools.partial(missing, full, made.__all__)
    sys.modules[full] = made
    parent, _, last = full.rpartition(".")
    setattr(sys.modules[parent], last, made)


def is_available():
    """False: there is no such device."""
    return False


submodule("utils")
submodule("utils.data", Dataset, IterableDataset, TensorDataset, Subset,
          random_split, Sampler, SequentialSampler, RandomSampler,
          SubsetRandomSampler, WeightedRandomSampler, BatchSampler,
          DataLoader, default_collate, get_worker_info)
submodule("cuda", is_available)
submodule("accelerator", is_available)
submodule("backends")
submodule("backends.mps", is_available)
