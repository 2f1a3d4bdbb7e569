"""PyTorch's answers as text: how a call is written down and replayed."""

import functools
import math
from pathlib import Path

FILE = Path(__file__).parent / 'answers.jsonl'


def find(module, name):
    return functools.reduce(getattr, name.split('.'), module)


def encode(value):
    """A value of torch's as JSON; TypeError where it has no such form."""
    if hasattr(value, 'tolist') and hasattr(value, 'stride'):
        if not str(value.dtype).startswith(('torch.float', 'torch.int',
                                            'torch.uint8', 'torch.bool')):
            raise TypeError(value.dtype)
        digits = '.8g' if str(value.dtype) == 'torch.float32' else '.11g'
        flat = [float(format(x, digits)) if isinstance(x, float) else x
                for x in value.reshape(-1).tolist()]
        return {'tensor': [str(value.dtype).removeprefix('torch.'),
                           list(value.shape), flat]}
    if type(value).__module__ == 'torch' and type(value).__name__ == 'dtype':
        return {'dtype': str(value).removeprefix('torch.')}
    if isinstance(value, dict):
        return {key: encode(inner) for key, inner in value.items()}
    if isinstance(value, slice):
        return {'slice': [value.start, value.stop, value.step]}
    if isinstance(value, tuple):
        return {'tuple': [encode(inner) for inner in value]}
    if isinstance(value, list):
        return [encode(inner) for inner in value]
    if value is ...:
        return {'...': None}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(type(value))


def decode(module, value):
    """The value for a module that is like torch."""
    again = functools.partial(decode, module)
    if isinstance(value, list):
        return list(map(again, value))
    if not isinstance(value, dict):
        return value
    if 'tensor' in value:
        dtype, shape, flat = value['tensor']
        return module.tensor(flat, dtype=getattr(module, dtype)).reshape(
            tuple(shape))
    if 'dtype' in value:
        return getattr(module, value['dtype'])
    if 'slice' in value:
        return slice(*value['slice'])
    if 'tuple' in value:
        return tuple(map(again, value['tuple']))
    if '...' in value:
        return ...
    return {key: again(inner) for key, inner in value.items()}


def differs(found, expected):
    """What is different about a result, or None."""
    if isinstance(expected, dict) and 'tensor' in expected:
        dtype, shape, flat = expected['tensor']
        if not hasattr(found, 'tolist'):
            return f'{type(found).__name__} for a tensor'
        if list(found.shape) != shape:
            return f'shape {list(found.shape)} for {shape}'
        if str(found.dtype).rpartition('.')[2] != dtype:
            return f'{found.dtype} for {dtype}'
        values = found.reshape(-1).tolist()
        close = 1e-4 if dtype == 'float32' else 1e-8
        for i, (x, y) in enumerate(zip(values, flat)):
            if not (x == y or x != x and y != y or math.isfinite(y)
                    and math.isclose(x, y, rel_tol=close, abs_tol=close)):
                return f'element {i} is {x} for {y}'
        return None
    if isinstance(expected, dict) and 'tuple' in expected:
        expected = expected['tuple']
    if isinstance(expected, list):
        if not isinstance(found, (tuple, list)):
            return f'{type(found).__name__} for a sequence'
        if len(found) != len(expected):
            return f'{len(found)} results for {len(expected)}'
        return next(filter(None, map(differs, found, expected)), None)
    if isinstance(expected, dict) and 'dtype' in expected:
        found, expected = str(found).rpartition('.')[2], expected['dtype']
    if type(found) is not type(expected) or (
            found != expected and not (found != found)):
        return f'{found!r} for {expected!r}'
    return None


def wrong(module, call):
    """What a module answers wrongly to a call, or None."""
    try:
        args = decode(module, call['args'])
        if call['method']:
            function = getattr(args[0], call['name'])
            args = args[1:]
        else:
            function = find(module, call['name'])
        found = function(*args, **decode(module, call['kwargs']))
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return differs(found, call['result'])
