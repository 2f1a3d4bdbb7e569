"""The explorers on a page of their own, out of the chapters' outputs.

A line `<!-- explorer: chapters/02_strides 02-explore -->` becomes what the
cell of that id has put out, so that nothing is stored twice.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = 'book/play'
MARK = re.compile(r'<!-- explorer: (\S+) (\S+) -->')


def output(chapter, cell_id):
    """The HTML that a cell of a chapter has put out."""
    path = ROOT / f'{chapter}.ipynb'
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        if cell['id'] == cell_id:
            for found in cell['outputs']:
                if 'text/html' in found.get('data', {}):
                    return ''.join(found['data']['text/html'])
    raise ValueError(f'{PAGE}.md: {chapter}.ipynb has no cell {cell_id!r} '
                     f'with an HTML output')


def show_explorers(app, docname, source):
    if docname == PAGE:
        source[0] = MARK.sub(lambda mark: (
            '``````{raw} html\n' + output(mark[1], mark[2]) + '\n``````'),
            source[0])


def chapters_are_its_source(app, env, added, changed, removed):
    return [PAGE] if PAGE in env.found_docs else []


def setup(app):
    app.connect('source-read', show_explorers)
    app.connect('env-get-outdated', chapters_are_its_source)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
