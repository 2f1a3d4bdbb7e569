"""The library of chapters 1 to N works by itself, for every N.

With all chapters it is src/lamina, which all other tests are about.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course import export

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(path.stem for path in (ROOT / 'chapters').glob('*.ipynb'))


@pytest.mark.parametrize('count', range(1, len(NAMES)),
                         ids=lambda n: NAMES[n - 1])
def test_checkpoint(root, tmp_path, count):
    for path, content in export.build(root / 'chapters', count).items():
        target = tmp_path / 'lamina' / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    files = [root / 'tests' / f'test_{name[3:]}.py' for name in NAMES[:count]]
    if NAMES[count - 1] == '08_autograd':       # the table of derivatives
        files.append(root / 'tests' / 'test_gradients.py')
    assert all(file.exists() for file in files), files
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider',
         '--override-ini=addopts=', *map(str, files)],
        cwd=root, capture_output=True, text=True, encoding='utf-8',
        env={**os.environ, 'PYTHONPATH': str(tmp_path),
             'LAMINA_CHECKPOINT': str(tmp_path)})
    tail = done.stdout[-3000:] + done.stderr[-2000:]
    assert done.returncode == 0, tail
    assert re.search(r'\d+ passed', done.stdout), tail
    assert 'failed' not in done.stdout.splitlines()[-1]
