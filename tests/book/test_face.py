"""The face of the book: what a page loads, and how it looks."""

import re

import pytest

from test_browser import Reader

# Runs in the page; returns {address: bytes} of all that was loaded.
LOADED = '''() => Object.fromEntries(
  [...performance.getEntriesByType('navigation'),
   ...performance.getEntriesByType('resource')]
  .map(entry => [entry.name, entry.decodedBodySize]))'''


@pytest.fixture
def reader(browser, site, request):
    reader = Reader(browser, site, **getattr(request, 'param', {}))
    yield reader
    reader.context.close()


def pages(html):
    return [path for path in sorted(html.rglob('*.html'))
            if '_static' not in path.parts]


def chapters(html):
    return sorted((html / 'chapters').glob('*.html'))


# ---- what a page loads ----------------------------------------------------

def test_no_page_loads_a_megabyte(reader, html):
    for path in chapters(html):
        reader.open(f'chapters/{path.stem}')
        loaded = reader.page.evaluate(LOADED)
        assert sum(loaded.values()) < 1_000_000, loaded
    assert reader.wrong == []


def test_no_script_stands_in_the_way_of_the_text(html):
    for path in pages(html):
        page = path.read_text('utf-8')
        for script in re.findall(r'<script[^>]* src=[^>]*>', page):
            assert 'defer' in script or 'type="module"' in script, (
                f'{path.name}: {script}')
        sheets = re.findall(r'<link[^>]*rel="stylesheet"[^>]*>', page)
        assert len(sheets) <= 4, path.name


def test_the_rules_of_the_theme_are_few_and_whole(html):
    import tinycss2

    text = (html / '_static' / 'book.css').read_text('utf-8')
    assert 10_000 < len(text) < 90_000
    rules = tinycss2.parse_stylesheet(text)
    assert not [rule for rule in rules if rule.type == 'error']
    # each of these is asked for by some page
    for needed in '.bd-container', '.bd-article', '.table', '.sd-dropdown':
        assert needed in text


def test_formulas_are_there_without_a_script(html):
    page = (html / 'chapters' / '06_matmul.html').read_text('utf-8')
    assert '<munderover>' in page and '<mtable>' in page
    for path in pages(html):
        assert '\\(' not in re.sub(
            '<pre.*?</pre>', '', path.read_text('utf-8'), flags=re.S)


def test_a_fold_says_what_is_in_it(reader):
    reader.open('chapters/02_strides')
    said = reader.page.locator('details.hide > summary').all_inner_texts()
    assert any(text.split() == ['ints', 'wrap_dim', 'nearest', '28', 'lines']
               for text in said)
    assert all(re.search(r'\d+ lines?$', text) for text in said)
