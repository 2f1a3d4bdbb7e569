"""The explorers in a real browser: equal to the library in every state that
can be reached, by keyboard, in words, light and dark, on a telephone."""

import base64
import functools
import importlib.util
import itertools
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.strides import is_row_major, offsets, row_major

from book_build import ROOT
from course.explore.surface import MOMENTA, RATES, STARTS, STEPS
from course.explore.broadcasting import MOST as SHAPES
from course.explore.strides import MOST
from explore_pages import (
    AS_IN_JUPYTERLAB, FRAME, MADE, OPTIMIZERS, SURFACES, html, page, words)


# --- strides ---------------------------------------------------------------

# For all strides and offsets of one shape, a line each; its CRC.
ALL_OF_A_SHAPE = '''([shape, most]) => {
  const {read} = document.querySelector('.lamina-strides');
  const table = Array.from({length: 256}, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? n >>> 1 ^ 0xedb88320 : n >>> 1;
    return n;
  });
  let crc = -1, lines = [];
  const each = strides => {
    if (strides.length < shape.length) {
      for (let s = -1; s <= most; s++) each([...strides, s]);
      return;
    }
    for (let offset = -1; offset < 12; offset++) {
      const {error, places, contiguous, twice} = read(shape, strides, offset);
      const line = error ?? [places.map(place => place.cell).join(' '),
                             contiguous, Boolean(twice)].join('|');
      lines.push(line);
      for (let i = 0; i < line.length; i++) {
        crc = crc >>> 8 ^ table[(crc ^ line.charCodeAt(i)) & 255];
      }
    }
  };
  each([]);
  return WANTED;
}'''


def line(storage, shape, strides, offset):
    """What the library makes of a geometry, as the page says it."""
    try:
        view = lamina.strides.as_strided(storage, shape, strides, offset)
    except RuntimeError as error:
        return f'RuntimeError: {error}'
    cells = offsets(view.geometry)
    return '|'.join([' '.join(map(str, cells)),
                     str(is_row_major(view.geometry)).lower(),
                     str(len(set(cells)) < len(cells)).lower()])


@pytest.mark.parametrize('dims', MOST)
def test_every_geometry_is_read_as_the_library_reads_it(page, dims):
    page.set_content(FRAME.format(html('strides')))
    size, stride = MOST[dims]
    storage = lamina.arange(12)
    for shape in itertools.product(range(size + 1), repeat=dims):
        expected = [line(storage, shape, steps, offset)
                    for steps in itertools.product(range(-1, stride + 1),
                                                   repeat=dims)
                    for offset in range(-1, 12)]
        asked = [list(shape), stride]
        found = page.evaluate(
            ALL_OF_A_SHAPE.replace('WANTED', '(crc ^ -1) >>> 0'), asked)
        if found != zlib.crc32(''.join(expected).encode()):
            lines = page.evaluate(
                ALL_OF_A_SHAPE.replace('WANTED', 'lines'), asked)
            assert lines == expected


# --- broadcasting ----------------------------------------------------------

ALL_WITH_ONE = '''([one, seconds, thirds]) => {
  const {meet} = document.querySelector('.lamina-broadcasting');
  return seconds.flatMap(two => thirds.map(third => {
    const {error, shape, strides} = meet([one, two, ...third]);
    return error ?? [shape, ...strides].join('|');
  })).join('\\n');
}'''


def shapes_up_to(dims):
    return [shape for n in range(dims + 1)
            for shape in itertools.product(range(5), repeat=n)]


@functools.cache
def stretched(shape, target):
    view = lamina.strides.expand(row_major(shape), target)
    return ','.join(map(str, view.strides))


def met(*shapes):
    """What the library makes of some shapes, as the page says it."""
    try:
        shape = lamina.broadcast_shapes(*shapes)
    except RuntimeError as error:
        return f'RuntimeError: {error}'
    return '|'.join([','.join(map(str, shape)),
                     *(stretched(each, shape) for each in shapes)])


def test_every_set_of_shapes_meets_as_in_the_library(page):
    page.set_content(FRAME.format(html('broadcasting')))
    assert SHAPES == {'size': 4, 'dims': [3, 3, 1]}
    pairs, thirds = shapes_up_to(3), [[], *([x] for x in shapes_up_to(1))]
    for one in pairs:
        found = page.evaluate(ALL_WITH_ONE, [one, pairs, thirds])
        assert found.splitlines() == [met(one, two, *third) for two in pairs
                                      for third in thirds]


# --- the loss surface ------------------------------------------------------

# All paths of one surface, optimiser, rate and momentum, as float64.
ALL_STARTS = '''([surface, kind, lr, momentum, starts]) => {
  const {path} = document.querySelector('.lamina-surface');
  const numbers = new Float64Array(starts.flatMap(([u, v]) =>
    path({surface, kind, lr, momentum, u, v}).flatMap(({u, v}) => [u, v])));
  let text = '';
  for (const byte of new Uint8Array(numbers.buffer)) {
    text += String.fromCharCode(byte);
  }
  return btoa(text);
}'''


def started(kind, p, lr, momentum):
    """An optimiser as the page means it."""
    if kind is lamina.optim.Adam:
        return kind([p], lr=lr, betas=(momentum, 0.999))
    if kind is lamina.optim.Adagrad:
        return kind([p], lr=lr)
    return kind([p], lr=lr, momentum=momentum)


def paths(loss, kind, lr, momentum, starts):
    """Where the library's optimiser goes, from all starts at a time."""
    p = lamina.tensor(starts, dtype=lamina.float64, requires_grad=True)
    optimizer, seen = started(kind, p, lr, momentum), []
    for _ in range(STEPS + 1):
        seen.append(p.detach().clone().numpy())
        optimizer.zero_grad()
        loss(p[:, 0], p[:, 1]).sum().backward()
        optimizer.step()
    return np.stack(seen, 1)


@pytest.mark.parametrize('kind', OPTIMIZERS, ids=lambda k: k.__name__)
@pytest.mark.parametrize('name', SURFACES)
def test_every_path_is_the_one_of_the_library(page, name, kind):
    page.set_content(FRAME.format(html('surface')))
    starts = list(itertools.product(*(
        np.arange(low, high + step / 2, step).tolist()
        for low, high, step in STARTS.values())))
    assert len(starts) == 81
    momenta = MOMENTA if kind is not lamina.optim.Adagrad else [0.0]
    for lr, momentum in itertools.product(RATES, momenta):
        text = page.evaluate(
            ALL_STARTS, [name, kind.__name__, lr, momentum, starts])
        found = np.frombuffer(base64.b64decode(text)).reshape(81, -1, 2)
        with np.errstate(all='ignore'):
            due = paths(SURFACES[name], kind, lr, momentum, starts)
        assert due.shape == found.shape
        np.testing.assert_allclose(found, due, rtol=1e-12, atol=1e-12)


# --- what all of them can do -----------------------------------------------

AXE = Path(sys.prefix) / 'npm/node_modules/axe-core/axe.min.js'


@pytest.mark.parametrize('kind', MADE)
@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_nothing_in_the_way_of_anybody(page, kind, theme):
    """axe-core finds nothing, at the beginning, in the middle, refused."""
    if not AXE.exists():
        pytest.skip('axe-core is not there: make setup')
    back = {'light': '#ffffff', 'dark': '#14181e'}[theme]
    ink = {'light': '#1a1a1a', 'dark': '#e3e7eb'}[theme]
    page.set_content(FRAME.format(html(kind)).replace(
        '<html', f'<html data-theme="{theme}" style="background:{back};'
        f'color:{ink}"'))
    page.add_script_tag(content=AXE.read_text(encoding='utf-8'))
    for state in STATES[kind]:
        for what, label, value in state:
            use(page, what, label, value)
        found = page.evaluate('axe.run()')['violations']
        assert [(each['id'], [node['html'] for node in each['nodes']])
                for each in found] == []


def use(page, what, label, value):
    if what == 'select':
        page.get_by_role('combobox', name=label, exact=True).select_option(
            label=value)
    elif what == 'fill':
        page.get_by_label(label, exact=True).fill(value)
    elif what == 'open':
        page.locator('summary').click()
    else:
        page.get_by_role('button', name=label).click()


STATES = {
    'strides': [[], [('select', 'View', 'x.t()'),
                     ('press', 'One read back', None)],
                [('fill', 'offset', '7'), ('open', '', None)]],
    'broadcasting': [[], [('select', 'Shapes', '(4, 1, 3) and (2, 1)'),
                          ('press', 'Next element', None)],
                     [('select', 'Shapes', '(2, 3) and (2,)'),
                      ('press', 'Add a third', None),
                      ('open', '', None)]],
    'trace': [[], [('select', 'A call', 'half'),
                   ('press', 'Next step', None)],
              [('select', 'A call', 'two devices'),
               ('press', 'Last step', None), ('open', '', None)]],
    'surface': [[], [('select', 'optimiser', 'Adagrad')],
                [('press', 'Step back', None), ('open', '', None)]],
    'stepper': [[], [('press', 'Next step', None), ('open', '', None)]]}


@pytest.mark.parametrize('page', [
    {'viewport': {'width': 360, 'height': 700}}], indirect=True,
    ids=['360px'])
@pytest.mark.parametrize('kind', MADE)
def test_a_telephone_is_wide_enough_for_all(page, kind):
    page.set_content(FRAME.format(html(kind)))
    for state in STATES[kind]:
        for what, label, value in state:
            use(page, what, label, value)
        assert page.evaluate('document.documentElement.scrollWidth') <= 360


@pytest.mark.parametrize('page', [{'java_script_enabled': False}],
                         indirect=True, ids=['no script'])
@pytest.mark.parametrize('kind', MADE)
def test_without_scripts_there_is_no_dead_button(page, kind):
    page.set_content(FRAME.format(html(kind)))
    assert not page.locator('button, select, input').count()
    assert words(page)
    if kind == 'surface':
        assert page.locator('svg path').get_attribute('d')
    else:
        assert page.locator('tbody tr').count() > 2


def test_several_on_one_page_as_jupyterlab_puts_them(page):
    """All kinds, each twice, the second as if its cell ran again."""
    page.set_content(FRAME.format(''))
    for kind in [*MADE, *MADE]:
        page.evaluate(AS_IN_JUPYTERLAB, html(kind))
    roots = page.locator('.lamina-play')
    before = [words(page, k) for k in range(10)]
    bars = [roots.nth(k).locator('.bar button') for k in range(10)]
    for kind, buttons in zip([*MADE, *MADE], bars):
        assert buttons.count() == (4 if kind in ('trace', 'stepper') else 5)
    for k in range(10):
        # two begin at their end, the others at their beginning
        end = [*MADE][k % 5] in ('strides', 'surface')
        roots.nth(k).locator(f'[data-go={"back" if end else "next"}]').click()
        now = [words(page, other) for other in range(10)]
        assert now[k] != before[k]
        assert now[k + 1:] == before[k + 1:]
        before = now


# --- by keyboard alone -----------------------------------------------------

def focused(page):
    return page.evaluate("""() => {
      const at = document.activeElement;
      return at.getAttribute('aria-label') ?? (at.labels?.length
        ? at.labels[0].firstChild.data : at.textContent);
    }""")


def tab_to(page, name, most=30):
    for _ in range(most):
        if focused(page) == name:
            return
        page.keyboard.press('Tab')
    raise AssertionError(f'Tab does not lead to {name!r}')


@pytest.fixture
def opened(page):
    """A page with one explorer that notes what the page sees of its keys."""
    def open_page(kind):
        page.set_content(FRAME.format(
            '<script>addEventListener("keydown", e => '
            '["Tab", "Enter"].includes(e.key) || (document.title += e.key))'
            '</script>' + html(kind)))
        live = page.locator('.words')
        assert live.get_attribute('aria-live') == 'polite'
        return page
    return open_page


def test_strides_by_keyboard(opened):
    page = opened('strides')
    tab_to(page, 'Stride explorer')
    page.keyboard.press('Home')
    assert words(page) == 'Nothing is read yet.'
    page.keyboard.press('ArrowRight')
    assert words(page) == 'Index [0, 0]: 0 + 0 \u00d7 4 + 0 \u00d7 1 = cell 0.'
    tab_to(page, 'View')
    page.keyboard.press('x')        # the next that begins so
    page.keyboard.press('ArrowDown')
    assert focused(page) == 'View'
    tab_to(page, 'size of dimension 0')
    page.keyboard.press('ArrowDown')
    page.keyboard.press('ArrowDown')
    assert focused(page) == 'size of dimension 0'
    tab_to(page, 'stride of dimension 0')
    before = page.locator('code').first.inner_text()
    page.keyboard.press('ArrowUp')
    assert page.locator('code').first.inner_text() != before
    tab_to(page, 'offset')
    page.keyboard.press('Control+a')
    page.keyboard.type('11')
    assert words(page).startswith('RuntimeError: as_strided(): size')
    assert 'of a storage of 12' in words(page)
    page.keyboard.press('Control+a')
    page.keyboard.type('0')
    assert words(page).startswith('Reads the cells')
    assert focused(page) == 'offset'
    tab_to(page, 'One read back')
    page.keyboard.press('Enter')
    assert words(page).startswith('Index')
    assert focused(page) == 'One read back'
    assert page.title() == 'Test'       # the page saw none of it


def test_the_geometry_is_shown_as_it_is(opened):
    page = opened('strides')
    use(page, 'select', 'View', 'x[1:, ::2]')
    assert page.locator('code').all_inner_texts()[:2] == [
        'x.as_strided((2, 2), (4, 2), 4)', 'x[1:, ::2]']
    assert words(page) == ('Reads the cells 4 6 8 10. Not contiguous. '
                           'No cell is read twice.')
    assert page.locator('.view .square').all_inner_texts() == [
        '4', '6', '8', '10']
    read = page.locator('.memory .square').all_inner_texts()
    assert [text.split() for text in read[4:7]] == [['4', '1'], ['5'],
                                                    ['6', '2']]
    use(page, 'fill', 'stride of dimension 0', '2')
    assert words(page).endswith(
        'Two indices, one cell: [0, 1] and [1, 0] are both cell 6.')
    use(page, 'fill', 'stride of dimension 0', '-1')
    assert words(page) == (
        'RuntimeError: as_strided(): size [2, 2], stride [-1, 2] and offset '
        '4 must be of one length and not negative')
    assert not page.locator('.both').is_visible()
    use(page, 'select', 'Dimensions', '3')
    assert page.locator('code').first.inner_text() == (
        'x.as_strided((1, 2, 2), (0, -1, 2), 4)')


def test_play_reads_all_and_stops(page):
    page.clock.install()
    page.set_content(FRAME.format(html('strides')))
    page.get_by_role('button', name='Play').click()
    page.clock.run_for(2 * 700)
    assert page.locator('.place').inner_text() == 'Read 2 of 12'
    page.get_by_role('button', name='Pause').click()
    page.clock.run_for(7000)
    assert page.locator('.place').inner_text() == 'Read 2 of 12'
    page.get_by_role('button', name='Play').click()
    page.clock.run_for(20_000)
    assert page.locator('.place').inner_text() == 'Read 12 of 12'
    assert page.get_by_role('button', name='Play').count() == 1


def test_broadcasting_by_keyboard(opened):
    page = opened('broadcasting')
    tab_to(page, 'Broadcasting explorer')
    assert words(page) == (
        '(3,) and (2, 1) give (2, 3): 6 elements from 5 cells.')
    page.keyboard.press('End')
    assert words(page) == 'result[1, 2] = a[2] + b[1, 0] = 30 + 2 = 32.'
    tab_to(page, 'b: last dimension')
    page.keyboard.press('2')
    assert words(page) == (
        'RuntimeError: shapes [3] and [2, 2] do not broadcast: at dimension '
        '1 sizes 3 and 2 differ and neither is 1')
    assert focused(page) == 'b: last dimension'
    page.keyboard.press('ArrowDown')
    assert words(page).startswith('(3,) and (2, 3) give (2, 3)')
    tab_to(page, 'Add a third tensor')
    page.keyboard.press('Enter')
    assert focused(page) == 'Take c away'
    assert words(page).startswith('(3,), (2, 3) and (1,) give (2, 3)')
    tab_to(page, 'Next element')
    page.keyboard.press('Enter')
    assert focused(page) == 'Next element'
    assert words(page) == ('result[0, 0] = a[0] + b[0, 0] + c[0] = '
                           '10 + 1 + 100 = 111.')
    assert page.title() == 'Test'


def test_the_sums_are_the_librarys(page):
    page.set_content(FRAME.format(html('broadcasting')))
    for text, (one, two) in [
            ('(3,) and (2, 1)', ((3,), (2, 1))),
            ('(4, 1, 3) and (2, 1)', ((4, 1, 3), (2, 1))),
            ('() and (2, 2)', ((), (2, 2))),
            ('(0, 3) and (1, 3)', ((0, 3), (1, 3)))]:
        use(page, 'select', 'Shapes', text)
        a, b = (unit * lamina.arange(1, lamina.zeros(shape).numel() + 1)
                .view(shape) for unit, shape in ((10, one), (1, two)))
        assert page.locator('.result .square').all_inner_texts() == [
            str(n) for n in (a + b).flatten().tolist()]
    # a 1 that is stretched says so, and the pointer reads like the keys
    use(page, 'select', 'Shapes', '(3,) and (2, 1)')
    assert page.locator('.to').all_inner_texts() == [
        '', '\u2192 2', '', '', '', '\u2192 3']
    assert page.locator('tbody .strides').all_inner_texts()[:2] == [
        '(0, 1)', '(1, 0)']
    page.locator('.result .square').nth(4).hover()
    assert words(page) == 'result[1, 1] = a[1] + b[1, 0] = 20 + 2 = 22.'
    assert [cell.inner_text() for cell in page.locator(
        '.square.at').all()] == ['20', '2', '22']


def test_a_trace_by_keyboard(opened):
    page = opened('trace')
    tab_to(page, 'Dispatch trace')
    page.keyboard.press('ArrowRight')
    assert 'the kernel filed under cpu computes' in words(page)
    tab_to(page, 'A call')
    page.keyboard.press('h')
    assert focused(page) == 'A call'
    assert words(page) == 'Nothing has run yet.'
    page.keyboard.press('Tab')
    tab_to(page, 'Next step')
    page.keyboard.press('Enter')
    assert 'The highest key is wrap_half: self has it.' in words(page)
    assert focused(page) == 'Next step'
    assert page.locator('.way [aria-current]').inner_text().split() == [
        'wrap_half', 'mul.Tensor', 'wrap_half', 'cpu']
    page.keyboard.press('End')
    assert words(page).startswith('Back in wrap_half. It gives float32')
    assert page.title() == 'Test'


def test_a_surface_by_keyboard(opened):
    page = opened('surface')
    tab_to(page, 'Loss-surface explorer')
    page.keyboard.press('Home')
    assert words(page) == ('Start: at (\u22124, 1) the loss is 18, its '
                           'gradient (\u22124, 20).')
    tab_to(page, 'rate')
    page.keyboard.press('ArrowDown')
    assert focused(page) == 'rate'
    tab_to(page, 'start v')
    page.keyboard.press('ArrowUp')
    assert focused(page) == 'start v'
    assert words(page).startswith('Start: at (\u22124, 1.5) the loss is 30.5')
    tab_to(page, 'Last step')
    page.keyboard.press('Enter')
    assert words(page).endswith('The path has left the picture.')
    assert focused(page) == 'Last step'
    assert page.locator('tbody tr').count() == 41
    assert page.title() == 'Test'


def test_a_click_sets_the_start(page):
    page.set_content(FRAME.format(html('surface')))
    box = page.locator('svg').bounding_box()
    page.mouse.click(box['x'] + 0.79 * box['width'],
                     box['y'] + 0.11 * box['height'])
    page.get_by_role('button', name='First step').click()
    assert words(page).startswith('Start: at (3, 2)')


# --- the page that shows them all ------------------------------------------

def extension():
    path = ROOT / 'book' / '_ext' / 'play.py'
    spec = importlib.util.spec_from_file_location('lamina_play', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_the_chapters_have_put_out():
    play = extension()
    text = (ROOT / 'book' / 'play.md').read_text(encoding='utf-8')
    marks = play.MARK.findall(text)
    assert len(marks) == text.count('<!-- explorer') == 6
    for chapter, cell in marks:
        assert play.output(chapter, cell).startswith(
            '<div class="lamina-play')
    source = [text]
    play.show_explorers(None, play.PAGE, source)
    assert source[0].count('<div class="lamina-play') == 6
    assert '<!--' not in source[0]
    with pytest.raises(ValueError, match='03_dispatch.ipynb has no cell'):
        play.output('chapters/03_dispatch', 'nothing')
