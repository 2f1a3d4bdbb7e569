"""A reader's browser: the way through the book, and the search. What each
page must be is in test_quality.py.

It needs Chromium. Where there is none the tests are skipped, but in CI they
fail.
"""

import re

import pytest

from book_build import toc_entries

class Reader:
    """A page that remembers what went wrong on it."""

    def __init__(self, browser, site, width=1280, scheme='light'):
        self.site, self.wrong = site, []
        self.context = browser.new_context(
            viewport={'width': width, 'height': 800}, color_scheme=scheme)
        self.context.route('**/*', self.on_request)
        self.page = self.context.new_page()
        self.page.on('console', self.on_console)
        self.page.on('pageerror', lambda error: self.note(f'error: {error}'))
        self.page.on('response', self.on_response)

    def note(self, text):
        self.wrong.append(f'{self.page.url}: {text}')

    def on_request(self, route):
        address = route.request.url
        if address.startswith((self.site, 'data:', 'blob:')):
            route.continue_()
        else:
            self.note(f'a request that leaves the machine: {address}')
            route.abort()

    def on_console(self, message):
        if message.type in ('error', 'warning'):
            self.note(f'console: {message.text}')

    def on_response(self, response):
        if response.status >= 400:
            self.note(f'{response.status} {response.url}')

    def open(self, docname):
        self.page.goto(f'{self.site}{docname}.html', wait_until='load')
        self.settle()

    def settle(self, state='load'):
        self.page.wait_for_load_state(state)

    @property
    def docname(self):
        address = self.page.url.removeprefix(self.site)
        return address.split('#')[0].removesuffix('.html')


@pytest.fixture
def reader(browser, site, request):
    reader = Reader(browser, site, **getattr(request, 'param', {}))
    yield reader
    reader.context.close()


def test_walk_through_the_book(html):
    """The links to the next page go through all of them, in order."""
    path, visited = html / 'book' / 'welcome.html', []
    while path:
        visited.append(path.relative_to(html).with_suffix('').as_posix())
        assert len(visited) < 100, 'the next links go round in a circle'
        page = path.read_text('utf-8')
        following = re.search(
            r'<a class="right-next"\s+href="([^"#]+)', page)
        path = following and (path.parent / following[1]).resolve()
    assert visited == toc_entries()


def test_every_chapter_has_figures(html):
    for path in (html / 'chapters').glob('*.html'):
        assert path.read_text('utf-8').count('<img') > 1, path.name


def test_search_finds_a_word(reader):
    reader.page.goto(f'{reader.site}search.html?q=contiguous')
    reader.page.wait_for_selector('#search-results li a')
    results = reader.page.locator('#search-results li').all_inner_texts()
    assert any('Glossary' in text or 'contiguous' in text.lower()
               for text in results)
    assert reader.wrong == []


def test_one_search_field(reader):
    reader.open('book/welcome')
    visible = reader.page.locator('.search-button-field:visible,'
                                  ' .search-button:visible')
    assert visible.count() == 1
