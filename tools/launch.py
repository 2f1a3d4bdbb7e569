"""Gives each chapter a first cell that installs the course, in Colab.

The workflow that publishes the book runs this in a checkout whose notebooks
become the branch `launch`, which Binder and Colab open. Colab has the
notebook alone; everywhere else the cell does nothing.
"""

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELL = '''# Colab has this notebook alone: there, install the course first.
import sys
if "google.colab" in sys.modules:
    %pip install --quiet "lamina[course] @ git+{}"'''


def prepare(path, address):
    """Put the cell before the first cell of code."""
    notebook = json.loads(path.read_text(encoding='utf-8'))
    cells = notebook['cells']
    first = next(number for number, cell in enumerate(cells)
                 if cell['cell_type'] == 'code')
    if cells[first]['id'] == 'install-course':
        return
    cells.insert(first, {
        'cell_type': 'code', 'id': 'install-course', 'metadata': {},
        'execution_count': None, 'outputs': [],
        'source': CELL.format(address).splitlines(keepends=True)})
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False,
                               sort_keys=True) + '\n', encoding='utf-8',
                    newline='\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('address', help='https://github.com/owner/name')
    parser.add_argument('--chapters', type=Path, default=ROOT / 'chapters')
    args = parser.parse_args()
    for path in sorted(args.chapters.glob('*.ipynb')):
        prepare(path, args.address)


if __name__ == '__main__':
    main()
