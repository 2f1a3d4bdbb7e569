"""What a page needs so that its reader can run cells and keep progress.

The scripts are book/_static/live.js and book/_static/cells/. What they fill
in is in the page from the start, so that nothing moves when they do.
"""

import re
from collections import Counter
from html import escape

import live
from lamina_book import ROOT, exercises

TOP = '''
<div class="live-top">
<p>These cells run in the page. Press Run, or click into the code and change
it.</p>
<div class="live-row"><details class="live-mine"><summary
>Exercises: 0 of {count} passed</summary></details></div>
</div>'''


def counts():
    """How many exercises each chapter has, by its number: {'01': 6, ...}."""
    return Counter(item.id.partition('.')[0] for item in exercises())


def say_why(body, cells):
    """Write into the box of a cell why it does not run in the page, or what
    is other there: what data-numpy has is so only until NumPy is there."""
    said = {cell['id']: cell for cell in cells
            if 'page' in cell or 'differs' in cell}

    def write(box):
        cell = said.get(box[2])
        if cell is None:
            return box[0]
        reason, differs = cell.get('page'), cell.get('differs')
        marks = ''.join(f' data-{name}="{escape(value)}"' for name, value in (
            ('reason', reason), ('differs', differs)) if value)
        marks += ' data-numpy' * bool(cell.get('numpy'))
        return (f'{box[1]}{marks}>' + (
            f'<p class="live-reason">{escape(reason)}</p>' if reason else ''))

    return re.sub(r'(<div class="cell[^>]*? data-cell="([^"]*)"[^>]*)>',
                  write, body)


def prepare(app, pagename, templatename, context, doctree):
    total = counts()
    pairs = ' '.join(f'{number}:{n}' for number, n in sorted(total.items()))
    context['metatags'] = (context.get('metatags') or '') + (
        f'<meta name="lamina-exercises" content="{escape(pairs)}">')
    match = re.fullmatch(r'chapters/(\d\d)_\w+', pagename)
    if match and (live.MODULES / 'pyodide').is_dir():
        body = say_why(context['body'],
                       live.cells_of(ROOT / f'{pagename}.ipynb'))
        context['body'] = body.replace(
            '</h1>', '</h1>' + TOP.format(count=total[match[1]]), 1)


def setup(app):
    app.add_css_file('live.css')
    app.add_js_file('live.js', loading_method='defer')
    app.connect('html-page-context', prepare, priority=600)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
