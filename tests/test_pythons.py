"""The `python` device works with the standard library alone, under every
supported Python that this machine has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / 'src'
SUPPORTED = '3.11', '3.12', '3.13', '3.14'

PROGRAM = '''
import sys
import lamina

x = lamina.tensor([[1., 2.], [3., 4.]], requires_grad=True, device='python')
loss = (x @ x.transpose(0, 1) + x.exp() * 0).sum()
loss.backward()
# d/dx of sum(x xT) is twice the column sums, in every row.
assert x.grad.tolist() == [[8., 12.], [8., 12.]], x.grad.tolist()
assert x[1, :].tolist() == [3., 4.]

model = lamina.Sequential(lamina.Linear(2, 3), lamina.ReLU(),
                          lamina.Linear(3, 2))
optimizer = lamina.SGD(model.parameters(), lr=0.1)
target = lamina.tensor([0, 1])
losses = []
for _ in range(20):
    loss = lamina.cross_entropy(model(x.detach()), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses

outside = sorted(name for name, module in sys.modules.items()
                 if 'site-packages' in (getattr(module, '__file__', '') or
                                        ''))
assert not outside, outside
print('%d.%d' % sys.version_info[:2])
'''


def interpreter(version):
    """A Python of that version on PATH which runs, or None."""
    if sys.version.startswith(version + '.'):
        return sys.executable
    python = shutil.which('python' + version)
    if python and subprocess.run([python, '-c', ''],
                                 capture_output=True).returncode == 0:
        return python
    return None


@pytest.mark.parametrize('version', SUPPORTED)
def test_python_device(version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f'python{version} is not on PATH')
    # -S: no site-packages; -I would take PYTHONPATH away too.
    done = subprocess.run(
        [python, '-S', '-c', PROGRAM], capture_output=True,
        encoding='utf-8', env={**os.environ, 'PYTHONPATH': str(SRC)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [version]
