"""Writes down PyTorch's answers, for tests that need no torch.

    .venv-conformance/bin/python tools/record.py FOLDER-OF-JUDGES

For each operator of the judges' list a few small calls out of PyTorch's own
samples, and what PyTorch gives. Calls on which Lamina still differs are left
out: `make conformance` has those. tests/conformance/test_answers.py replays
them.
"""

import argparse
import importlib
import json
import os
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / 'tests' / 'conformance'), str(ROOT / 'src')]
os.environ['OMP_NUM_THREADS'] = '1'
warnings.filterwarnings('ignore')

import torch                                            # noqa: E402
from torch.testing._internal.common_methods_invocations import (  # noqa: E402
    op_db)

import replay                                           # noqa: E402

PLAN = (('float64', 2), ('int64', 1), ('bool', 1))      # dtype, calls
LARGEST, CORNER = 30, 3                                 # elements, a side
# The function's own order of arguments, where the table has another.
ORDER = {'where': lambda x, condition, other: (condition, x, other),
         'einsum': lambda tensors, equation: (equation, *tensors),
         'nn.functional.embedding': lambda w, i: (i, w),
         'nn.functional.embedding_bag': lambda w, i: (i, w)}


def coarse(value):
    """The same call with numbers that are short to write."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_floating_point():
            value = (value * 8).round() / 8
        return value.contiguous()
    if isinstance(value, (list, tuple)) and not hasattr(value, '_fields'):
        return type(value)(map(coarse, value))
    if isinstance(value, dict):
        return {key: coarse(inner) for key, inner in value.items()}
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tensors(inner)


def corner(value):
    """The first elements along each dimension of every tensor."""
    if isinstance(value, torch.Tensor):
        return value[(slice(CORNER),) * value.dim()].contiguous()
    if isinstance(value, (list, tuple)) and not hasattr(value, '_fields'):
        return type(value)(map(corner, value))
    if isinstance(value, dict):
        return {key: corner(inner) for key, inner in value.items()}
    return value


def size(value):
    """Elements of the largest tensor in a value."""
    return max((x.numel() for x in tensors(value)), default=0)


def calls(op, dtype, method):
    """Small calls of one operator, as they are written down."""
    torch.manual_seed(0)
    for sample in op.sample_inputs('cpu', dtype, requires_grad=False):
        args = coarse((sample.input, *sample.args))
        kwargs = coarse(sample.kwargs)
        if size([args, kwargs]) > LARGEST:
            if len({x.shape for x in tensors([args, kwargs])}) > 1:
                continue            # their sizes may depend on each other
            args, kwargs = corner(args), corner(kwargs)
        try:
            if op.name in ORDER:
                args = ORDER[op.name](*args)
                result = replay.find(torch, op.name)(*args, **kwargs)
            else:
                result = op(*args, **kwargs)
            if size([args, kwargs, result]) > LARGEST:
                continue
            yield (size([args, kwargs, result]), len(args), sorted(kwargs)), {
                'name': op.name, 'method': method,
                'args': replay.encode(args), 'kwargs': replay.encode(kwargs),
                'result': replay.encode(result)}
        except Exception:       # what torch refuses, or has no plain form
            continue


def chosen(found, count):
    """`count` of the calls: of different signatures, real sizes first."""
    picked, seen = [], set()
    found.sort(key=lambda pair: (pair[0][0] < 2, pair[0][0]))
    for (_, *signature), call in found:
        if str(signature) not in seen:
            seen.add(str(signature))
            picked.append(call)
    return picked[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('judges', help='the folder of the judges')
    sys.path.append(parser.parse_args().judges)
    judge = importlib.import_module('opinfo')
    lamina = importlib.import_module('lamina')
    methods = {name for name in judge.ADAPT if name not in ORDER}
    names = dict.fromkeys(judge.CORE + judge.EXTRA)
    skipped = judge.VALUELESS | {'nn.functional.dropout', '__rdiv__', 'T',
                                 'mT', 'zero_'}
    lines = []
    for op in op_db:
        if op.name not in names or op.name in skipped:
            continue
        for name, count in PLAN:
            dtype = getattr(torch, name)
            if dtype not in op.supported_dtypes('cpu'):
                continue
            found = chosen(list(calls(op, dtype, op.name in methods)), count)
            for call in found:
                line = json.dumps(call, separators=(',', ':'))
                if replay.wrong(lamina, json.loads(line)) is None:
                    lines.append(line)
    lines = list(dict.fromkeys(lines))
    replay.FILE.write_text('\n'.join(lines) + '\n', encoding='utf-8',
                            newline='\n')
    print(f'{len(lines)} calls of {len({json.loads(x)["name"] for x in lines})}'
          f' operators, {replay.FILE.stat().st_size // 1024} KB')


if __name__ == '__main__':
    main()
