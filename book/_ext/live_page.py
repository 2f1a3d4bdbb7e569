"""What a page needs so that its reader can run cells and keep progress.

The scripts are book/_static/live.js and book/_static/cells/. What they fill
in is in the page from the start, so that nothing moves when they do.
"""

import re
from collections import Counter
from html import escape

from lamina_book import exercises

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


def prepare(app, pagename, templatename, context, doctree):
    total = counts()
    pairs = ' '.join(f'{number}:{n}' for number, n in sorted(total.items()))
    context['metatags'] = (context.get('metatags') or '') + (
        f'<meta name="lamina-exercises" content="{escape(pairs)}">')
    match = re.fullmatch(r'chapters/(\d\d)_\w+', pagename)
    # Without the cells' names, which live.py writes, there is nothing to run.
    if match and 'data-cell=' in context.get('body', ''):
        context['body'] = context['body'].replace(
            '</h1>', '</h1>' + TOP.format(count=total[match[1]]), 1)


def setup(app):
    app.add_css_file('live.css')
    app.add_js_file('live.js', loading_method='defer')
    app.connect('html-page-context', prepare, priority=600)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
