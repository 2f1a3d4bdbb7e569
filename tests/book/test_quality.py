"""Every page in a browser: nothing fails, nothing leaves the machine, and
nobody is shut out.

The pages come from `python -m http.server`, in light and dark, on a wide
screen and on a telephone. It needs Chromium, as test_browser.py does.
"""

import sys
from pathlib import Path

import pytest

from book_build import lacking
from sweep import failure, sweep

AXE = Path(sys.prefix, 'npm', 'node_modules', 'axe-core', 'axe.min.js')

# A page with one fault of each kind.
FAULTY = '''<!doctype html><html lang="en" data-theme="light"><title>Faulty</title>
<main><h1>Faulty</h1><img src="none.png" alt="None">
<p style="width: 2000px; color: #999; background: #fff">Text</p>
<script>console.warn('careful'); fetch('http://example.org/').catch(() => 0)
</script></main></html>'''


@pytest.fixture(scope='session')
def axe():
    """axe-core's script."""
    if not AXE.is_file():
        lacking('axe-core is not installed: `make setup` brings it from npm')
    return AXE.read_text('utf-8')


@pytest.fixture(scope='session')
def pages(html):
    """The address of every page, with something to search for, and of two
    in which it was found."""
    names = [path.relative_to(html).as_posix() for path in
             sorted(html.rglob('*.html')) if '_static' not in path.parts]
    names.remove('index.html')      # leads to the first page
    names[names.index('search.html')] += '?q=contiguous'
    return names + [f'{name}?highlight=contiguous+shape+strides+the+return'
                    for name in ('genindex.html', 'chapters/02_strides.html')]


@pytest.fixture(scope='session')
def faults(chromium, plain_site, pages, axe):
    return sweep(chromium, plain_site, pages, axe)


def report(faults, *kinds):
    """Each fault once, with the first place where it was found."""
    found = {}
    for fault in faults:
        if fault.kind in kinds:
            found.setdefault((fault.kind, fault.text), fault)
    return [f'{fault.page} ({fault.width} px, {fault.scheme}): {fault.text}'
            for fault in found.values()]


def test_a_faulty_page_is_found_out(chromium, axe, html, plain_site):
    path = html / '_static' / 'faulty.html'
    path.write_text(FAULTY, encoding='utf-8')
    found = sweep(chromium, plain_site, ['_static/faulty.html'], axe,
                  [(360, 'dark')])
    path.unlink()
    kinds = {fault.kind for fault in found}
    assert kinds == {'console', 'request', 'outside', 'width', 'image',
                     'theme', 'axe'}
    assert any('color-contrast' in fault.text for fault in found)


def test_leaving_a_page_is_no_failure(browser, plain_site):
    page, seen = browser.new_page(), {}
    page.on('requestfailed', lambda request: seen.update(
        {request.url.rsplit('/', 1)[1]: failure(request)}))
    page.route('**/slow.png', lambda route: None)       # never answered
    page.route('**/broken.png', lambda route: route.abort('failed'))
    page.goto(f'{plain_site}genindex.html')
    with page.expect_event('requestfailed'):
        page.evaluate('new Image().src = "/broken.png"')
    with page.expect_request('**/slow.png'):
        page.evaluate('new Image().src = "/slow.png"')
    with page.expect_event('requestfailed'):
        page.goto(f'{plain_site}search.html')
    page.close()
    assert seen.pop('broken.png') == f'net::ERR_FAILED {plain_site}broken.png'
    assert 'slow.png' in seen and set(seen.values()) == {None}


def test_every_page_was_opened(pages):
    assert len(pages) > 30 and 'genindex.html' in pages
    assert 'chapters/11_training.html' in pages


def test_nothing_fails(faults):
    assert report(faults, 'console', 'request') == []


def test_nothing_leaves_the_machine(faults):
    assert report(faults, 'outside') == []


def test_everything_shows(faults):
    assert report(faults, 'image', 'theme') == []


def test_no_page_scrolls_sideways(faults):
    assert report(faults, 'width', 'code') == []


def test_axe_finds_no_violation(faults):
    assert report(faults, 'axe') == []
