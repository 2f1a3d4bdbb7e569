"""Measures what running each chapter takes, and writes it to book/aids.toml.

    python tools/times.py [NN ...]

The seconds are a processor's, from the start of the kernel to its end, so
that what else the machine does changes little.
"""

import re
import resource
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / 'book' / 'aids.toml'


def seconds(path):
    """Processor seconds of a kernel that runs all cells of a notebook."""
    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, allow_errors=True,
                   resources={'metadata': {'path': str(path.parent)}}
                   ).execute()
    return spent() - before


def main():
    wanted = sys.argv[1:]
    for path in sorted(ROOT.glob('chapters/*.ipynb')):
        if wanted and path.name[:2] not in wanted:
            continue
        took = seconds(path)
        text = DATA.read_text(encoding='utf-8')
        text = re.sub(rf'(\["{path.stem}"\].*?seconds = )[\d.]+',
                      rf'\g<1>{took:.1f}', text, flags=re.S)
        DATA.write_text(text, encoding='utf-8')
        print(f'{path.stem}: {took:.1f} s', flush=True)


if __name__ == '__main__':
    main()
