"""Mends what others' markup says wrongly to those who hear a page.

The theme, docutils and MyST-NB write it; each line below is one of their
faults, as axe-core names it. tests/book/test_quality.py has it look again.
"""

import re
from pathlib import Path

MENDS = [(re.compile(pattern, re.S), mended) for pattern, mended in (
    # region: the sidebar is no landmark
    (r'<div id="pst-primary-sidebar" class=',
     r'<div id="pst-primary-sidebar" role="region" aria-label="Book" class='),
    # label-content-name-mismatch: what is shown is not what is said
    (r'(<button class="btn search-button-field[^>]*?) title="Search"'
     r' aria-label="Search"', r'\1'),
    (r'<button class="btn btn-sm nav-link[^>]*theme-switch-button.*?</button>',
     lambda found: re.sub(r' title="[^"]*"(?=></i>)', '', found[0])),
    (r'<summary aria-label="Toggle hidden content">', '<summary>'),
    # summary-name: an arrow alone
    (r'<summary>(?=<span class="toctree-toggle")',
     '<summary aria-label="Pages of this part">'),
    # aria-allowed-role, aria-deprecated-role, aria-required-children: a
    # bibliography is a list
    (r' role="doc-biblioentry"', ' role="listitem"'),
    # empty-table-header: the corner of a table heads nothing
    (r'<th class="head">(?:<p></p>)?</th>', '<td></td>'),
    # scrollable-region-focusable: only a pointer could move it
    (r'<div class="picture">',
     '<div class="picture" tabindex="0" role="group" aria-label="Picture">'),
    (r'(?<!aria-label="Figure">)(<img [^>]*class="[^"]*\bwid(?:e|est)\b[^>]*>)',
     r'<div class="moved" tabindex="0" role="group" aria-label="Figure">\1'
     r'</div>'),
    (r'<div class="wide">',
     '<div class="wide" tabindex="0" role="group" aria-label="Table">'),
    (r'<div class="math"(?=[ >])(?! tabindex)',
     '<div class="math" tabindex="0" role="group" aria-label="Formula"'),
)]


# The theme's script takes the focus away from a button that was pressed, and
# leaves who works by keys at no place at all.
THEME = Path('_static') / 'scripts' / 'sphinx-book-theme.js'
BLUR = re.compile(r'\(\)=>\{\w+\.blur\(\)\}')


def mend(text):
    for pattern, mended in MENDS:
        text = pattern.sub(mended, text)
    return text


def mend_pages(app, exception):
    if exception or app.builder.format != 'html':
        return
    for path in Path(app.outdir).rglob('*.html'):
        text = path.read_text(encoding='utf-8')
        mended = mend(text)
        if mended != text:
            path.write_text(mended, encoding='utf-8', newline='\n')
    script = Path(app.outdir) / THEME
    if script.exists():
        script.write_text(BLUR.sub('()=>{}', script.read_text('utf-8')),
                          encoding='utf-8', newline='\n')


def setup(app):
    app.connect('build-finished', mend_pages)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
