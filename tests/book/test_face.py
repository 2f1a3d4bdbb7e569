"""The face of the book: what a page loads, and how it looks."""

import json
import os
import re
import subprocess
import sys
from xml.dom import minidom

import pytest
import tinycss2

from book_build import ROOT, toc_entries
from test_browser import Reader

sys.path.insert(0, str(ROOT / 'book' / '_ext'))
import aids  # noqa: E402
import lean  # noqa: E402

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


def test_a_page_brings_its_style_whole(html):
    for path in chapters(html):
        page = path.read_text('utf-8')
        assert '<link rel="stylesheet"' not in page
        text = re.search('<style id="book-style"[^>]*>(.*?)</style>', page,
                         re.S)[1]
        assert 20_000 < len(text) < 130_000
        rules = tinycss2.parse_stylesheet(text)
        assert not [rule for rule in rules if rule.type == 'error']
        for needed in '.bd-container', '.bd-article', '.prev-next-area':
            assert needed in text
        for address in re.findall(r'url\("?(?!data:)([^")]+)', text):
            assert (path.parent / address).is_file(), address


def test_formulas_are_there_without_a_script(html):
    page = (html / 'chapters' / '06_matmul.html').read_text('utf-8')
    assert '<munderover>' in page and '<mtable>' in page
    for path in pages(html):
        assert '\\(' not in re.sub(
            '<pre.*?</pre>', '', path.read_text('utf-8'), flags=re.S)


def test_formulas_are_mathml(caplog):
    assert lean.mathml('x < 1') == (
        '<math><mrow><mi>x</mi><mo>&lt;</mo><mn>1</mn></mrow></math>')
    # bars are no operators
    assert '<mo lspace="0" rspace="0">|</mo><mi>x</mi>' in lean.mathml(
        '\\lvert x \\rvert')
    assert '<mtext>softmax</mtext>' in lean.mathml('\\mathrm{softmax}(x)')
    assert 'display="block"' in lean.mathml('x', 'block')
    # a function is set apart from a number, and not from its parenthesis
    assert '<mi>cos</mi><mspace' in lean.mathml('\\cos 1')
    assert '<mi>cos</mi><mo' in lean.mathml('\\cos(1)')
    lean.checked(None, '\\unheard{x}')
    assert '\\unheard' in caplog.text


# Runs in the page; returns how many signs follow a formula, and those that
# stand on another line than it.
APART = '''() => {
  let count = 0;
  const apart = [];
  for (const formula of document.querySelectorAll('.bd-article span.math')) {
    const text = formula.nextSibling;
    if (text?.nodeType !== 3 || !/^[^\\s]/.test(text.data)
        || !formula.checkVisibility()) continue;
    count += 1;
    const range = document.createRange();
    range.setStart(text, 0);
    range.setEnd(text, 1);
    const sign = range.getBoundingClientRect();
    const box = formula.getBoundingClientRect();
    if (sign.left < box.right - 2) apart.push(
      formula.textContent + text.data.slice(0, 20));
  }
  return [count, apart];
}'''


@pytest.mark.parametrize('reader', [{'width': 360}], indirect=True)
def test_no_line_begins_with_the_full_stop_of_a_formula(reader, html):
    seen = 0
    for path in chapters(html):
        reader.open(f'chapters/{path.stem}')
        for width in 360, 420, 800:
            reader.page.set_viewport_size({'width': width, 'height': 800})
            count, apart = reader.page.evaluate(APART)
            assert apart == [], path.stem
            seen += count
    assert seen > 100


def test_a_rule_is_kept_where_it_can_match(tmp_path):
    sheet = tmp_path / 'sheet.css'
    sheet.write_text('''/* c */ a.b , .d:hover { color: red; --x: 1; }
        @media print { p { top: 0 } }
        @media (min-width: 9px) { p.q { top: var(--y) } .d { left: 0 } }
        p::before { content: "a ; b" ; }''', 'utf-8')
    rules = lean.parse(sheet)
    assert lean.used(rules, {'a', 'p'}, {'d'}) == [
        '.d:hover{color:red;--x:1;}', '@media (min-width:9px){.d{left:0}}',
        'p::before{content:"a ; b";}']
    assert len(lean.used(rules)) == 4
    assert lean.without_unused_variables('.d{--x:1;--y:2;top:var(--y)}', '') \
        == '.d{--y:2;top:var(--y)}'


def test_a_fold_says_what_is_in_it(reader):
    reader.open('chapters/02_strides')
    said = reader.page.locator('details.hide > summary').all_inner_texts()
    assert any(text.split() == ['ints', 'wrap_dim', 'nearest', '28', 'lines']
               for text in said)
    assert all(re.search(r'\d+ lines?$', text) for text in said)


# ---- figures --------------------------------------------------------------

def stored_figures():
    for path in sorted(ROOT.glob('chapters/*.ipynb')):
        for cell in json.loads(path.read_text('utf-8'))['cells']:
            for output in cell.get('outputs', []):
                for kind, data in output.get('data', {}).items():
                    if kind.startswith('image/'):
                        yield f'{path.stem} {cell["id"]}', kind, ''.join(data)


def test_stored_figures_are_small_and_described():
    figures = list(stored_figures())
    assert len(figures) > 30
    for place, kind, data in figures:
        assert kind == 'image/svg+xml', place
        assert len(data.encode()) < 100_000, place
        svg = minidom.parseString(data).documentElement
        assert svg.getAttribute('role') == 'img', place
        title, words = (svg.getElementsByTagName(tag)[0].firstChild.data
                        for tag in ('title', 'desc'))
        assert title and len(words.split()) > 2, place
        # nothing that another machine or another day would write elsewise
        assert not re.search(r'<dc:date|0x[0-9a-f]{8}|Matplotlib v', data)
        # ids only where something refers to them
        ids = set(re.findall(r' id="([^"]+)"', data))
        assert ids <= set(re.findall(r'#([^)"]+)', data)), place


REDRAWN = """
import sys; sys.path.insert(0, 'src')
import lamina
from course.figures import graph, memory
x = lamina.arange(12.).reshape(3, 4)
print(memory(x, x.t(), names=['x', 'x.t()']).svg)
w = lamina.ones(4).requires_grad_()
print(graph(((x @ w) ** 2).sum(), names={'w': w}).svg())
"""


def test_figures_are_drawn_the_same_twice():
    drawn = {subprocess.run(
        [sys.executable, '-c', REDRAWN], cwd=ROOT, text=True, check=True,
        capture_output=True, encoding='utf-8',
        env={**os.environ, 'PYTHONHASHSEED': seed}).stdout for seed in '12'}
    assert len(drawn) == 1


def test_every_figure_of_a_page_says_what_it_shows(html):
    for path in chapters(html):
        for image in re.findall('<img [^>]*_images[^>]*>',
                                path.read_text('utf-8')):
            words = re.search('alt="([^"]*)"', image)[1]
            assert len(words.split()) > 2, f'{path.name}: {image}'


@pytest.mark.parametrize('reader', [{'width': 360}], indirect=True)
def test_the_letters_of_a_figure_are_not_too_small(reader, html):
    """On a telephone none is drawn much smaller than half of its size."""
    for path in chapters(html):
        reader.open(f'chapters/{path.stem}')
        parts = reader.page.evaluate('''async () => {
          const images = [...document.querySelectorAll('.cell_output img')];
          for (const image of images) image.loading = 'eager';
          await Promise.all(images.map(image => image.decode()));
          return images.map(image => image.width / image.naturalWidth);
        }''')
        assert min(parts) > 0.4, (path.stem, parts)
    assert reader.wrong == []


# ---- reading aids ---------------------------------------------------------

def test_what_is_folded_is_counted_apart():
    cells = [
        ('markdown', [], 'one two three\n\n:::{dropdown} More\n'
                         'four five\n:::\n\nsix\n'),
        ('code', [], 'from lamina.storage import Storage\n\nx = 1\n'),
        ('code', ['hide-input'], 'y = 2\n'),
        ('code', ['remove-cell'], 'z = 3\nz = 4\n'),
        ('code', [], 'check("02.1")\n')]
    notebook = {'cells': [
        {'cell_type': kind, 'metadata': {'tags': tags}, 'source': source}
        for kind, tags, source in cells]}
    found = aids.count(notebook, {'storage': '01_storage'})
    assert found == dict(
        words=4, folded_words=2, lines=3, folded_lines=1,
        exercises=['02.1'], rests_on=['01_storage'])


def test_durations_are_as_round_as_a_guess():
    assert [aids.duration(m) for m in (1, 52, 58, 60, 128)] == [
        '5 min', '50 min', '1 h', '1 h', '2 h 10 min']
    assert [aids.running(s) for s in (0.4, 11, 61)] == [
        'about 5 seconds', 'about 15 seconds', 'about 2 minutes']


def test_the_aids_agree_with_the_course():
    from course.exercises import load

    chapters = aids.chapters()
    assert [f'chapters/{c.name}' for c in chapters] == [
        name for name in toc_entries() if name.startswith('chapters/')]
    asked = [item.id for item in load()]
    assert [i for c in chapters for i in c.exercises] == asked
    for chapter in chapters:
        # what its module imports is what its code rests on
        module = (ROOT / 'src/lamina' / f'{chapter.name[3:]}.py')
        imports = re.findall(r'^(?:from|import) lamina\.(\w+)',
                             module.read_text('utf-8'), re.M)
        assert set(imports) <= {name[3:] for name in chapter.rests_on}
        assert all(name < chapter.name for name in chapter.rests_on)
    # the first page says so
    assert chapters[6].name == '07_scalar' and not chapters[6].rests_on


def test_the_glossary_has_the_ideas(html):
    glossary = (html / 'book' / 'glossary.html').read_text('utf-8')
    for chapter in aids.chapters():
        for idea in chapter.ideas:
            assert f'id="term-{idea.replace(" ", "-")}"' in glossary, idea


def test_a_chapter_begins_with_its_aids(html):
    for chapter in aids.chapters():
        page = (html / 'chapters' / f'{chapter.name}.html').read_text('utf-8')
        box = re.search('</h1>\n<aside class="aids".*?</aside>', page, re.S)[0]
        assert aids.duration(chapter.minutes) in box
        assert f'Layer {chapter.number} of' in box
        assert box.count('here"') == 1


@pytest.mark.parametrize('reader', [{'width': 1440}, {'width': 360}],
                         indirect=True, ids=['1440px', '360px'])
def test_the_first_page_is_the_stack(reader):
    reader.page.set_viewport_size(
        {**reader.page.viewport_size, 'height': 900})
    reader.open('book/welcome')
    rows = reader.page.locator('.layers a')
    assert rows.count() == 11
    if reader.page.viewport_size['width'] == 1440:      # on one screen
        for row in [rows.first, rows.last,
                    reader.page.get_by_text('You teach', exact=True)]:
            box = row.bounding_box()
            assert 0 <= box['y'] and box['y'] + box['height'] <= 900
    rows.last.focus()
    reader.page.keyboard.press('Enter')
    reader.page.wait_for_url('**/01_storage.html')
    assert reader.wrong == []


# ---- version and date -----------------------------------------------------

def test_every_page_has_a_version_and_a_date(html):
    for path in pages(html):
        if path.name != 'index.html' or path.parent != html:
            assert re.search(
                r'<p>Lamina \d+\.\d+\.\d+, <time datetime="[\d-]{10}">\d+ '
                r'\w+ \d{4}</time></p>', path.read_text('utf-8')), path.name


def test_the_date_can_be_set(monkeypatch):
    monkeypatch.setenv('SOURCE_DATE_EPOCH', '86400')
    assert str(aids.date()) == '1970-01-02'


def test_without_git_there_is_a_date_still(monkeypatch):
    monkeypatch.delenv('SOURCE_DATE_EPOCH', raising=False)
    monkeypatch.setenv('PATH', '')
    assert aids.date().year >= 2024


# ---- keyboard, paper ------------------------------------------------------

def test_code_is_copied_by_keyboard(reader):
    reader.context.grant_permissions(['clipboard-read', 'clipboard-write'])
    reader.open('chapters/01_storage')
    button = reader.page.locator('button.copybtn').first
    button.focus()
    reader.page.wait_for_function(
        'getComputedStyle(document.activeElement).opacity === "1"')
    reader.page.keyboard.press('Enter')
    copied = reader.page.evaluate('navigator.clipboard.readText()')
    assert copied.startswith('from course import')


def test_on_paper_there_is_only_the_text(reader):
    reader.page.emulate_media(media='print')
    reader.open('chapters/02_strides')
    for hidden in ('.bd-sidebar-primary', '.bd-sidebar-secondary',
                   '.bd-header-article', '.prev-next-footer', '.copybtn'):
        assert not reader.page.locator(f'{hidden}:visible').count(), hidden
    cut = reader.page.evaluate('''() => [...document.querySelectorAll("pre")]
      .filter(pre => pre.scrollWidth > pre.clientWidth + 1).length''')
    assert cut == 0
    reader.page.evaluate('dispatchEvent(new Event("beforeprint"))')
    assert not reader.page.locator('.bd-article details:not([open])').count()
    reader.page.evaluate('dispatchEvent(new Event("afterprint"))')
    assert reader.page.locator('.bd-article details.hide:not([open])').count()


def test_a_menu_is_worked_by_keyboard(reader):
    reader.open('chapters/01_storage')
    summary = reader.page.locator('details.menu > summary').first
    summary.focus()
    reader.page.keyboard.press('Enter')
    items = reader.page.locator('details.menu li > *')
    assert items.first.is_visible()
    reader.page.keyboard.press('Tab')
    assert items.first.evaluate('item => item === document.activeElement')
    reader.page.keyboard.press('Escape')
    assert not items.first.is_visible()
    assert summary.evaluate('item => item === document.activeElement')


def test_the_contents_follow_the_reader(reader):
    reader.open('book/solutions')
    for number in '08.2', '01.3':
        reader.page.evaluate(
            'place => document.getElementById(place).scrollIntoView()',
            'exercise-' + number.replace('.', '-'))
        link = reader.page.locator(
            '.bd-sidebar-secondary a.active', has_text=number)
        link.wait_for()
        reader.page.wait_for_function(
            '''link => {
              const {top, bottom} = link.getBoundingClientRect();
              return top > 0 && bottom < innerHeight;
            }''', arg=link.element_handle())
    assert reader.wrong == []


def test_the_marks_of_a_cell_are_on_one_line(reader):
    reader.open('chapters/02_strides')
    reader.page.wait_for_selector('.live-name')
    apart = reader.page.evaluate('''() => [...document.querySelectorAll(
      'div.cell.tag_export:not(.tag_hide-input)')].map(cell => {
        const middle = mark => {
          const {top, bottom} = cell.querySelector(mark)
            .getBoundingClientRect();
          return (top + bottom) / 2;
        };
        return Math.abs(middle('.live-name') - middle('.exported-to'));
      })''')
    assert len(apart) > 3 and max(apart) < 1


def test_a_long_path_is_broken_at_its_slashes(html):
    page = (html / 'book' / 'pytorch-map.html').read_text('utf-8')
    assert 'aten/<wbr>src/<wbr>ATen/<wbr>' in page


def test_what_no_page_asks_for_is_not_in_the_book(html):
    static = html / '_static'
    assert not [*static.rglob('*.map'), *static.rglob('fontawesome*'),
                *static.rglob('bootstrap*')]
