"""The whole book as one PDF, as `make pdf` prints it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from html import unescape

import pytest

from book_build import ROOT, tools_book

MM = 72 / 25.4
LEFT, RIGHT = 17 * MM, (210 - 17) * MM


def squeeze(text):
    """Without spaces, which are lost where a line ends."""
    return ''.join(text.split())


@pytest.fixture(scope='module')
def tool():
    sys.modules['book'] = tools_book
    spec = importlib.util.spec_from_file_location(
        'lamina_tools_pdf', ROOT / 'tools' / 'pdf.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules['book']


@pytest.fixture(scope='module')
def printed(tool, chromium, html, tmp_path_factory):
    """The PDF's path, beside a copy of the pages."""
    copy = shutil.copytree(html, tmp_path_factory.mktemp('pdf') / 'html')
    environment = {**os.environ, 'CHROMIUM': chromium['executable_path']}
    subprocess.run([sys.executable, ROOT / 'tools' / 'pdf.py', '--built',
                    copy], env=environment, check=True)
    return copy / tool.PDF


@pytest.fixture(scope='module')
def reader(printed):
    from pypdf import PdfReader
    return PdfReader(printed)


@pytest.fixture(scope='module')
def outline(reader):
    """(depth, title, page from 0) of each bookmark."""
    found = []

    def walk(items, depth):
        for item in items:
            if isinstance(item, list):
                walk(item, depth + 1)
            else:
                found.append((depth, item.title,
                              reader.get_destination_page_number(item)))

    walk(reader.outline, 0)
    return found


@pytest.fixture(scope='module')
def text(printed):
    import pypdfium2
    document = pypdfium2.PdfDocument(printed)
    found = [' '.join(page.get_textpage().get_text_range().split())
             for page in document]
    document.close()
    return found


def first(reader):
    """The page after the contents."""
    return reader.page_labels.index('1')


def test_every_page_of_the_book_is_in_it(tool, reader, outline, html):
    titles = []
    for _, name in tool.entries():
        page = (html / f'{name}.html').read_text('utf-8')
        title = re.search('<h1>(.*?)<a class="headerlink"', page, re.S)[1]
        titles.append(unescape(re.sub('<[^>]*>', '', title)))
    assert [squeeze(title) for depth, title, _ in outline
            if depth == 0] == [squeeze(title) for title in titles]
    assert 300 < len(reader.pages) < 1500
    assert len(outline) > 300


def test_bookmarks_lead_to_their_headings(outline, text):
    wrong = [(title, page) for depth, title, page in outline if depth < 2 and
             squeeze(title)[:20]
             not in squeeze(text[page])]
    assert wrong == []


def test_pages_are_numbered_and_the_contents_know_them(
        reader, outline, text):
    start = first(reader)
    assert reader.page_labels[:2] == ['i', 'ii']
    for number in (0, 1, 50, len(reader.pages) - start - 1):
        assert text[start + number].endswith(str(number + 1)) or (
            text[start + number].startswith(str(number + 1)))
    contents = squeeze(' '.join(text[1:start]))
    for depth, title, page in outline:
        if depth < 2:
            assert (squeeze(title) + str(page - start + 1)) in contents


def links(reader):
    for number, page in enumerate(reader.pages):
        for annotation in page.get('/Annots') or []:
            yield number, annotation.get_object()


def test_links_lead_to_pages(reader):
    inside, start = 0, first(reader)
    known = reader.named_destinations
    for number, link in links(reader):
        address = link.get('/A', {}).get('/URI')
        if address is not None:
            assert re.match('https?://(?!localhost|127)', address), address
            continue
        target = link.get('/Dest') or link['/A'].get('/D')
        if isinstance(target, str):
            assert target in known or target.lstrip('/') in known, target
        inside += number >= start
    assert inside > 500


def test_fonts_are_in_it(reader):
    seen, fonts = set(), []
    for page in reader.pages:
        for font in (page['/Resources'].get('/Font') or {}).values():
            if getattr(font, 'idnum', id(font)) in seen:
                continue
            seen.add(getattr(font, 'idnum', id(font)))
            font = font.get_object()
            if '/DescendantFonts' in font:
                font = font['/DescendantFonts'][0].get_object()
            if font['/Subtype'] != '/Type3':      # drawn on the page itself
                fonts.append(font)
    assert fonts
    for font in fonts:
        names = set(font['/FontDescriptor'].get_object())
        assert names & {'/FontFile', '/FontFile2', '/FontFile3'}, font


def test_no_text_runs_off_the_page(printed):
    import pypdfium2
    document = pypdfium2.PdfDocument(printed)
    wrong = []
    for number, page in enumerate(document):
        words = page.get_textpage()
        for index in range(words.count_rects()):
            left, bottom, right, top = words.get_rect(index)
            if left < LEFT - 3 or right > RIGHT + 3 or bottom < 8 or top > 835:
                said = words.get_text_bounded(left, bottom, right, top)
                # PDFium places ligatures and accents by themselves, in
                # another measure than the text around them.
                if len(said) > 3:
                    wrong.append((number, said[:60], left, right))
    document.close()
    assert wrong == []


def test_figures_are_drawn_not_painted(reader):
    """SVG stays lines and letters: sharp at any size. Digits are images."""
    painted = sum(len(page.images) for page in reader.pages)
    assert painted < 40


def test_the_pages_offer_it(printed, html):
    page = (printed.parent / 'chapters/02_strides.html').read_text('utf-8')
    assert 'href="../lamina.pdf"' in page
    first_page = (printed.parent / 'genindex.html').read_text('utf-8')
    assert 'href="lamina.pdf"' in first_page
    assert 'lamina.pdf' not in (html / 'genindex.html').read_text('utf-8')


def test_without_a_browser_it_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / 'tools' / 'pdf.py', '--built', tmp_path],
        env={**os.environ, 'PATH': str(tmp_path), 'CHROMIUM': ''},
        capture_output=True, encoding='utf-8')
    assert done.returncode == 1
    assert 'make pdf CHROMIUM=/path/to/chromium' in done.stderr


def test_without_a_book_it_says_so(tool, chromium, tmp_path):
    with pytest.raises(SystemExit, match='build the book'):
        tool.make(tmp_path)
