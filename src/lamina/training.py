"""Training: a classifier from nothing but your own code.

Exported from chapters/11_training.ipynb by `course export`; edit the chapter,
not this file.
"""

import json
import math
import os
import sys

from lamina.broadcasting import result_type
from lamina.nn import randperm
from lamina.storage import Storage, dtypes, get_default_device, int64
from lamina.strides import Tensor, arange, empty, row_major, tensor, wrap_dim

__all__ = [
    "Dataset",
    "TensorDataset",
    "Subset",
    "random_split",
    "default_collate",
    "DataLoader",
    "accuracy",
    "progress",
    "save_file",
    "load_file",
]


class Dataset:
    """Samples by number: write __getitem__ and __len__.

    __getitems__ takes a vector of numbers and gives their batch. It can
    be overridden where that is faster.
    """

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no "
                                  f"__getitem__(index)")

    def __len__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __len__()")

    def __getitems__(self, indices):
        return default_collate([self[i] for i in indices.tolist()])


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

    def __getitems__(self, indices):
        return tuple(x.index_select(0, indices.to(x.device))
                     for x in self.tensors)


def stack(tensors, dim=0):
    """Tensors of one shape as one tensor, with a new dimension."""
    first, d = tensors[0], wrap_dim(dim, tensors[0].ndim + 1)
    dtype = result_type(*tensors)
    shape = list(first.shape)
    shape.insert(d, len(tensors))
    out = empty(shape, dtype=dtype, device=first.device)
    for i, x in enumerate(tensors):
        if x.shape != first.shape:
            raise RuntimeError(f"stack(): expected tensors of one shape; "
                               f"number 0 has {list(first.shape)}, number "
                               f"{i} {list(x.shape)}")
        out.select(d, i).copy_(x)
    return out


def default_collate(samples):
    """A batch from a list of samples: tensors are stacked, numbers become
    a tensor, and tuples are collated place by place."""
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(samples)
    if isinstance(first, (tuple, list)):
        lengths = [len(sample) for sample in samples]
        if len(set(lengths)) > 1:
            raise RuntimeError(f"the samples of a batch are tuples of one "
                               f"length; got lengths {lengths}")
        return tuple(map(default_collate, zip(*samples)))
    if isinstance(first, (int, float)):
        return tensor(samples)
    raise TypeError(f"a batch is made of tensors, numbers and tuples of "
                    f"them; a sample is {type(first).__name__}")


class Subset(Dataset):
    """The samples of another data set that a vector of numbers, or a
    sequence of them, names."""

    def __init__(self, dataset, indices):
        if not isinstance(indices, Tensor):
            indices = tensor(list(indices), dtype=int64)
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return self.indices.shape[0]

    def __getitem__(self, index):
        return self.dataset[self.indices[index].item()]

    def __getitems__(self, indices):
        return self.dataset.__getitems__(
            self.indices.index_select(0, indices.to(self.indices.device)))


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
    order, start, parts = randperm(total, generator=generator), 0, []
    for length in lengths:
        parts.append(Subset(dataset, order.narrow(0, start, length)))
        start += length
    return parts


class DataLoader:
    """Batches of a data set, once through in each `for`.

    shuffle: in a new random order each time, drawn from `generator`, or
    the default one. drop_last: leave out a last batch that is smaller.
    """

    def __init__(self, dataset, batch_size=1, shuffle=False,
                 drop_last=False, generator=None):
        if (isinstance(batch_size, bool) or not isinstance(batch_size, int)
                or batch_size < 1):
            raise ValueError(f"batch_size is a whole number, 1 or more; got "
                             f"{batch_size!r}")
        if not hasattr(dataset, "__getitems__"):
            raise TypeError(f"a loader takes a Dataset; got "
                            f"{type(dataset).__name__}: derive it from "
                            f"Dataset, or use TensorDataset(x, y)")
        self.dataset, self.batch_size = dataset, batch_size
        self.shuffle, self.drop_last = shuffle, drop_last
        self.generator = generator

    def __len__(self):
        """The number of batches."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        count = len(self.dataset)
        order = (randperm(count, generator=self.generator)
                 if self.shuffle else arange(count))
        for i in range(len(self)):
            start = i * self.batch_size
            size = min(self.batch_size, count - start)
            yield self.dataset.__getitems__(order.narrow(0, start, size))


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


def progress(iterable, label="", note=None, file=None, width=24):
    """Go through something that has a length, and draw how far it is.

    The line goes to `file`, else to the error stream, and is written over
    itself when it changes. note() is asked for a text at its end.
    """
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


CODES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16",
         "int32": "I32", "int64": "I64", "float16": "F16",
         "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


def save_file(tensors, path):
    """Write {name: tensor} to a file in the safetensors format.

    Eight bytes hold the length of the header. The header, JSON, gives each
    name its dtype, shape and place. The bytes follow. A file that is
    there is replaced when the new one is complete, and not before.
    """
    header, parts, place = {}, [], 0
    for name, x in tensors.items():
        if not isinstance(name, str) or not isinstance(x, Tensor):
            raise TypeError(f"save_file() takes a dict of str to tensors; "
                            f"got {name!r}, with {type(x).__name__}")
        if name == "__metadata__":
            raise ValueError("'__metadata__' is no name for a tensor: the "
                             "format keeps it for notes; use another")
        data = bytes(x.detach().contiguous().clone().storage.bytes)
        header[name] = {"dtype": CODES[x.dtype.name],
                        "shape": list(x.shape),
                        "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)             # the bytes start aligned
    unfinished = f"{path}.part"
    with open(unfinished, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.writelines([text, *parts])
    os.replace(unfinished, path)


def load_file(path):
    """Read a file that save_file(), or safetensors, wrote: {name: tensor}.

    Nothing in it is run. ValueError if it is no such file.
    """
    with open(path, "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8:8 + size].decode("utf-8"),
                            object_pairs_hook=unique_names)
        header.pop("__metadata__", None)
        found = {name: read_entry(content[8 + size:], **entry)
                 for name, entry in header.items()}
        check_places(header, max(0, len(content) - 8 - size))
        return found
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{os.path.basename(path)} is no safetensors file, "
                         f"or it is damaged: {error}") from None


def unique_names(pairs):
    """The dict of a header; ValueError for a name that is there twice."""
    found = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} is there twice")
        found[name] = value
    return found


def check_places(header, length):
    """ValueError unless the entries fill all the bytes, each byte once."""
    place = 0
    for begin, end in sorted(e["data_offsets"] for e in header.values()):
        if begin != place:
            raise ValueError(f"a tensor begins at byte {begin}, and the "
                             f"one before it ends at {place}")
        place = end
    if place != length:
        raise ValueError(f"the tensors end at byte {place} of {length}")


def read_entry(body, dtype, shape, data_offsets):
    """One tensor of the file, on memory of its own."""
    found = next((d for d in dtypes.values() if CODES[d.name] == dtype),
                 None)
    if found is None:
        raise ValueError(f"{dtype!r} is none of Lamina's dtypes")
    begin, end = data_offsets
    wanted = math.prod(shape) * found.itemsize
    if (not all(type(n) is int and n >= 0 for n in shape)
            or not 0 <= begin <= end <= len(body) or end - begin != wanted):
        raise ValueError(f"bytes {begin} to {end} of {len(body)} do not "
                         f"hold shape {shape} of {found}")
    if dtype == "BOOL" and max(body[begin:end], default=0) > 1:
        raise ValueError(f"a bool is 0 or 1; got "
                         f"{max(body[begin:end])}")
    x = Tensor(Storage(bytearray(body[begin:end]), "python"),
               row_major(tuple(shape)), found)
    return x.to(get_default_device())
