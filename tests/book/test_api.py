"""The reference in the built book: entries, links both ways, index, search."""

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from course import reference

from sweep import failure


class Page(HTMLParser):
    """What a page of the book says that these tests ask about."""

    VOID = {'br', 'hr', 'img', 'input', 'link', 'meta', 'source', 'col'}

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.cells = {}, [], {}
        self.entries, self.open, self.terms = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        classes = (attrs.get('class') or '').split()
        node = SimpleNamespace(tag=tag, classes=classes, attrs=attrs, text='')
        if tag not in self.VOID:
            self.open.append(node)
        if tag == 'dl' and 'api-entry' in classes:
            node.ids, node.sources, node.examples = [], [], 0
            self.entries.append(node)
        entry = self.above('api-entry')
        if attrs.get('id'):
            self.ids[attrs['id']] = self.ids.get(attrs['id'], 0) + 1
            if entry and not self.above('api-member'):
                entry.ids.append(attrs['id'])
            if attrs['id'].startswith('cell-') and 'tag_export' in classes:
                self.cells[attrs['id']] = node
                node.marks = []
        if tag == 'a':
            self.links.append(node)
            node.inside = [n.tag for n in self.open[:-1]] + [
                c for n in self.open[:-1] for c in n.classes]
            if 'api-source' in classes:
                entry.sources.append(attrs['href'])
            if 'exported-to' in classes:
                self.above('tag_export').marks.append(node)
        if 'api-example' in classes and entry:
            entry.examples += 1

    def above(self, name):
        return next((n for n in reversed(self.open) if name in n.classes),
                    None)

    def handle_data(self, data):
        for node in self.open:
            node.text += data

    def handle_endtag(self, tag):
        if any(node.tag == tag for node in self.open):
            while self.open.pop().tag != tag:
                pass


@pytest.fixture(scope='module')
def pages(html):
    """{page without .html: Page} of the reference and the chapters."""
    return {path.relative_to(html).with_suffix('').as_posix():
            Page(path.read_text('utf-8'))
            for folder in ('book/api', 'chapters')
            for path in (html / folder).glob('*.html')}


def cells_of(chapter):
    path = reference.ROOT / f'chapters/{chapter}.ipynb'
    return {f'cell-{cell["id"]}': ''.join(cell['source'])
            for cell in json.loads(path.read_text('utf-8'))['cells']
            if 'export' in cell['metadata'].get('tags', ())}


def split_link(page, href):
    """(page, anchor) of a link on a page of book/api or of chapters."""
    file, _, anchor = href.partition('#')
    if not file:
        return page, anchor
    parts = page.split('/')[:-1]
    for part in file.removesuffix('.html').split('/'):
        parts = parts[:-1] if part == '..' else [*parts, part]
    return '/'.join(parts), anchor


def test_every_name_has_one_anchor(pages):
    counts = {}
    for name, page in pages.items():
        if name.startswith('book/api/'):
            for id, count in page.ids.items():
                counts[id] = counts.get(id, 0) + count
    for name in reference.by_name():
        assert counts.get(f'lamina.{name}') == 1, name


def test_an_entry_has_an_example_and_a_source(pages):
    entries = [(name, entry) for name, page in pages.items()
               for entry in page.entries]
    assert len(entries) > 600
    for name, entry in entries:
        assert entry.examples == 1, (name, entry.ids[0])
        assert entry.sources, (name, entry.ids[0])


def test_a_source_is_the_cell_that_defines_the_name(pages):
    known, chapters = reference.by_name(), {}
    for name, page in pages.items():
        for entry in page.entries:
            owners = [known[id.removeprefix('lamina.')] for id in entry.ids
                      if id.removeprefix('lamina.') in known]
            owners = list({owner.name: owner for owner in owners}.values())
            assert len(owners) == len(entry.sources)
            for owner, href in zip(owners, entry.sources):
                target, anchor = split_link(name, href)
                assert anchor in pages[target].cells, href
                chapter = target.removeprefix('chapters/')
                source = chapters.setdefault(
                    chapter, cells_of(chapter))[anchor]
                assert source == reference.place_of(owner).source


def test_the_mark_of_an_exported_cell_leads_to_what_it_defines(pages):
    for name, page in pages.items():
        if not name.startswith('chapters/'):
            continue
        chapter = name.removeprefix('chapters/')
        cells = cells_of(chapter)
        assert set(cells) == set(page.cells)
        for id, cell in page.cells.items():
            assert len(cell.marks) == 1, (name, id)
            mark = cell.marks[0]
            assert mark.text == f'lamina/{chapter[3:]}.py'
            assert mark.attrs['aria-label'].startswith(mark.text)
            target, anchor = split_link(name, mark.attrs['href'])
            if not anchor:
                assert target == f'book/api/{chapter[3:]}'
                continue
            assert anchor in pages[target].ids
            entry = reference.by_name()[anchor.removeprefix('lamina.')]
            assert cells[id] == reference.place_of(entry).source


def test_the_pages_are_light(html):
    for path in [*(html / 'book/api').glob('*.html'), html / 'genindex.html']:
        assert path.stat().st_size < 1_000_000, path.name


def test_the_fold_of_the_pages_has_a_name(html):
    side = (html / 'book/howto.html').read_text('utf-8')
    assert '<summary aria-label="Pages below this one">' in side


# ---- the glossary ---------------------------------------------------------

def glossary(html):
    text = (html / 'book/glossary.html').read_text('utf-8')
    body = text[text.index('<dl class='):text.rindex('</dl>')]
    for part in body.split('<dt ')[1:]:
        yield re.search(r'id="(term-[^"]+)"', part)[1], part


def test_a_term_says_where_it_is_built(html):
    terms = list(glossary(html))
    assert len(terms) > 90
    # checkpoint: the whole course; batch: beside mini-batch.
    without = {id for id, part in terms if 'Built in chapter' not in ' '.join(part.split())}
    assert without == {'term-checkpoint', 'term-mini-batch'}
    for id, part in terms:
        if id not in without:
            assert re.search(r'href="\.\./chapters/\d\d_\w+\.html#', part), id


def test_a_chapter_leads_to_the_glossary_at_first_uses(html, pages):
    ids = {id for id, _ in glossary(html)}
    for name, page in pages.items():
        links = [link for link in page.links if 'term-link' in link.classes]
        targets = [split_link(name, link.attrs['href'])[1] for link in links]
        assert len(targets) == len(set(targets)), name
        assert set(targets) <= ids, name
        for link in links:
            assert link.attrs['title'], 'what it means'
            assert not {'h1', 'h2', 'h3', 'code', 'pre', 'cell_output', 'a'
                        } & set(link.inside), (name, link.text)
        assert name.startswith('book/api/') or len(links) > 12, name


@pytest.mark.parametrize('chapter, term', [
    ('02_strides', 'stride'), ('03_dispatch', 'schema'),
    ('06_matmul', 'tile'), ('07_scalar', 'finite-difference'),
    ('08_autograd', 'version-counter'), ('09_nn', 'fan-in'),
    ('10_optim', 'schedule'), ('11_training', 'safetensors')])
def test_a_term_is_linked_where_it_is_built(pages, chapter, term):
    assert [link for link in pages[f'chapters/{chapter}'].links
            if link.attrs.get('href', '').endswith(f'#term-{term}')]


# ---- the bibliography -----------------------------------------------------

def test_every_reference_is_cited():
    book = reference.ROOT / 'book'
    keys = re.findall(r'^@\w+\{([^,]+),',
                      (book / 'references.bib').read_text('utf-8'), re.M)
    text = ''.join(path.read_text('utf-8') for path in [
        *book.rglob('*.md'), *reference.ROOT.glob('chapters/*.ipynb')])
    cited = {key.strip() for keys in re.findall(r'\{cite(?::\w)?\}`([^`]+)`',
                                                text)
             for key in keys.split(',')}
    assert len(keys) > 20 and set(keys) == cited


# ---- index and search -----------------------------------------------------

def test_the_index_has_names_and_terms(html):
    text = (html / 'genindex.html').read_text('utf-8')
    for target in ('book/api/dispatch.html#lamina.unsqueeze',
                   'book/api/tensor.html#lamina.Tensor.backward',
                   'book/api/nn.html#lamina.nn.Module.state_dict',
                   'book/glossary.html#term-version-counter'):
        assert f'href="{target}"' in text
    for page in 'book/welcome', 'chapters/02_strides':
        side = (html / f'{page}.html').read_text('utf-8')
        assert re.search(r'<a class="[^"]*" href="(\.\./)+genindex.html"',
                         side), page


@pytest.fixture(scope='module')
def reader(browser, site):
    context = browser.new_context()
    page = context.new_page()
    wrong = []
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('requestfailed', lambda request: failure(request)
            and wrong.append(failure(request)))
    page.site = site
    yield page
    context.close()
    assert wrong == []


@pytest.mark.parametrize('words, first', [
    ('unsqueeze', 'book/api/dispatch.html#lamina.unsqueeze'),
    ('scaled_dot_product_attention', 'book/api/functional.html'
     '#lamina.nn.functional.scaled_dot_product_attention'),
    ('AdamW', 'book/api/optim.html#lamina.optim.AdamW'),
    ('version counter', 'book/glossary.html#term-version-counter'),
    ('register_hook', 'book/api/tensor.html#lamina.Tensor.register_hook'),
])
def test_search_finds_a_name_at_the_top(reader, words, first):
    reader.goto(f'{reader.site}search.html?q={words.replace(" ", "+")}')
    reader.wait_for_selector('#search-results li a')
    reader.wait_for_function(
        "!document.querySelector('#search-progress')?.textContent.trim()"
        " || !/Searching|Preparing/.test("
        "document.querySelector('#search-results h2').textContent)")
    links = reader.locator('#search-results li a').evaluate_all(
        'nodes => nodes.map(a => a.getAttribute("href"))')
    assert first in links[:3]


def test_the_filter_of_a_page(reader):
    reader.goto(f'{reader.site}book/api/reductions.html')
    field = reader.get_by_label('Filter')
    field.fill('cumprod')
    shown = reader.locator('.api-summary tr:visible:not(.api-group)')
    assert shown.count() == 1
    assert reader.locator('dl.api-entry:visible').count() == 1
    assert '1 of' in reader.locator('.api-count').inner_text()
    field.press('Enter')
    assert reader.url.endswith('#lamina.cumprod')
    field.fill('nothing has this name')
    assert reader.locator('dl.api-entry:visible').count() == 0
    field.fill('')
    assert reader.locator('dl.api-entry:visible').count() > 50


def test_the_filter_gives_way_to_a_link(reader):
    reader.goto(f'{reader.site}book/api/reductions.html')
    reader.get_by_label('Filter').fill('cumprod')
    reader.evaluate('location.hash = "#lamina.logsumexp"')
    reader.locator('[id="lamina.logsumexp"]').wait_for(state='visible')


def test_the_mark_is_reached_by_keyboard(reader):
    reader.goto(f'{reader.site}chapters/01_storage.html')
    mark = reader.locator('a.exported-to').first
    mark.focus()
    assert mark.evaluate('a => a === document.activeElement')
    reader.keyboard.press('Enter')
    reader.wait_for_url('**/book/api/storage.html*')
