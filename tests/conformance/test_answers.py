"""PyTorch's own samples, with the answers that PyTorch gave.

tools/record.py wrote them down; nothing here needs torch.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import lamina

sys.path.insert(0, str(Path(__file__).parent))

import replay                                           # noqa: E402

CALLS = defaultdict(list)
for line in replay.FILE.read_text(encoding='utf-8').splitlines():
    call = json.loads(line)
    CALLS[call['name']].append(call)


@pytest.mark.parametrize('name', sorted(CALLS))
def test_an_operator(name):
    for call in CALLS[name]:
        assert replay.wrong(lamina, call) is None, call


def test_a_wrong_answer_is_seen():
    call = {'name': 'add', 'method': False, 'kwargs': {}, 'args': {'tuple': [
        {'tensor': ['float64', [2], [1.0, 2.0]]}, 1]}}
    for result, said in (
            (['float64', [2], [2.0, 3.0]], None),
            (['float64', [2], [2.0, 3.5]], 'element 1 is 3.0 for 3.5'),
            (['float64', [2], [2.0, float('nan')]], 'element 1'),
            (['float64', [1, 2], [2.0, 3.0]], 'shape'),
            (['float32', [2], [2.0, 3.0]], 'lamina.float64 for float32')):
        found = replay.wrong(lamina, {**call, 'result': {'tensor': result}})
        assert (found is None) == (said is None)
        assert said is None or said in found
    assert 'TypeError' in replay.wrong(
        lamina, {**call, 'args': {'tuple': []}, 'result': None})


def test_there_are_many():
    assert len(CALLS) > 300 and sum(map(len, CALLS.values())) > 800
