"""Every link of the built book leads somewhere, and none is loaded from
elsewhere."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from book_build import ROOT

# What a browser loads by itself, as opposed to what a reader may follow.
LOADED = {('script', 'src'), ('img', 'src'), ('source', 'src'),
          ('iframe', 'src'), ('embed', 'src'), ('object', 'data'),
          ('video', 'src'), ('audio', 'src'), ('link', 'href'),
          ('image', 'href'), ('use', 'href')}


class Page(HTMLParser):
    """The ids, the links and the loaded addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if 'id' in attrs:
            self.ids.add(attrs['id'])
        if tag == 'a' and attrs.get('name'):
            self.ids.add(attrs['name'])
        if tag == 'a' and attrs.get('href'):
            self.links.append(attrs['href'])
        for name in 'src', 'href', 'data', 'srcset', 'style':
            value = attrs.get(name)
            if not value:
                continue
            if (tag, name) in LOADED:
                self.loaded.append(value)
            elif name == 'srcset':
                self.loaded += [part.split()[0] for part in value.split(',')]
            elif name == 'style':
                self.loaded += css_addresses(value)


def css_addresses(text):
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    return [a or b for a, b in re.findall(
        r'''url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)''', text)]


def is_outside(address):
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ('', 'data')


@pytest.fixture(scope='module')
def pages(html):
    return {path: Page(path.read_text('utf-8'))
            for path in html.rglob('*.html')
            # Pieces of templates, which the theme copies.
            if '_static' not in path.parts}


def test_the_checker_sees_what_it_must():
    page = Page('<p id="a"><a href="#b">x</a><img src="https://h/i.png">'
                '<i style="background: url(//h/j.png)"></i>')
    assert page.ids == {'a'} and page.links == ['#b']
    assert all(map(is_outside, page.loaded)) and len(page.loaded) == 2
    assert css_addresses('@import "a.css"; b { src: url("c.woff2") }') == [
        'a.css', 'c.woff2']
    assert not is_outside('../_static/a.css?v=1')
    assert not is_outside('data:image/svg+xml;utf8,<svg/>')


def test_links_inside_the_book(pages):
    wrong = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            address, fragment = urldefrag(link)
            if urlsplit(link).scheme or urlsplit(link).netloc:
                continue
            target = path
            file = unquote(urlsplit(address).path)
            if file:
                target = (path.parent / file).resolve()
            if not target.is_file():
                wrong.append(f'{path.name}: {link} (no such file)')
            elif fragment and target in pages and (
                    unquote(fragment) not in pages[target].ids):
                wrong.append(f'{path.name}: {link} (no such place)')
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere(html, pages):
    outside = [f'{path.name}: {address}' for path, page in pages.items()
               for address in page.loaded if is_outside(address)]
    for path in html.rglob('*.css'):
        outside += [f'{path.name}: {address}' for address in
                    css_addresses(path.read_text('utf-8'))
                    if is_outside(address)]
    assert outside == []


def test_the_pages_are_not_empty(pages):
    assert len(pages) > 15
    assert sum(len(page.links) for page in pages.values()) > 500


# ---- links that are not in a page -----------------------------------------

def search_index(html):
    text = (html / 'searchindex.js').read_text('utf-8')
    return json.loads(text.removeprefix('Search.setIndex(').removesuffix(')'))


def test_what_the_search_finds_is_there(html, pages):
    index = search_index(html)
    found = {html / f'{name}.html' for name in index['docnames']}
    assert found <= set(pages) and len(found) > 30
    places = [(number, anchor) for kind in ('alltitles', 'indexentries')
              for entries in index[kind].values()
              for number, anchor, *_ in entries]
    for objects in index['objects'].values():
        for number, _, _, anchor, name in objects:
            if anchor not in ('', '-'):     # '-' stands for the full name
                places.append((number, anchor))
    assert len(places) > 300
    wrong = [(index['docnames'][number], anchor) for number, anchor in places
             if anchor and anchor not in
             pages[html / f'{index["docnames"][number]}.html'].ids]
    assert wrong == []


def test_links_in_drawings(html):
    drawings = list(html.rglob('*.svg'))
    assert len(drawings) > 20
    for path in drawings:
        text = path.read_text('utf-8')
        ids = set(re.findall(r'\bid="([^"]*)"', text))
        for address in re.findall(r'\bhref="([^"]*)"', text):
            assert address.startswith('data:') or (
                address.startswith('#') and address[1:] in ids), (
                f'{path.name}: {address}')
        assert set(re.findall(r'url\(#([^)]+)\)', text)) <= ids, path.name


@pytest.mark.parametrize('name', ['README.md', 'CONTRIBUTING.md'])
def test_links_on_the_way_in(name):
    text = (ROOT / name).read_text('utf-8')
    links = re.findall(r'\]\(([^)\s]+)\)', text)
    assert links or name != 'README.md'
    for link in links:
        if not urlsplit(link).scheme:
            assert (ROOT / urldefrag(link)[0]).exists(), link
