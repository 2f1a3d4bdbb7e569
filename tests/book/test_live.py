"""Cells that run in the page, as a reader with a keyboard uses them.

Needs Chromium, and what tools/setup.py brings from npm.
"""

import json
import os
import re

import pytest

from book_build import ROOT

CHAPTER = 'chapters/01_storage'
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH = (
    '01-002', '01-004', '01-006', '01-009', '01-011', '01-013', '01-016')
STUB, CHECK = 'ex-01-1-stub', 'ex-01-1-check'
FIGURE = '01-061'
RIGHT = '''import struct


def read_int32(data: bytes, index: int) -> int:
    if not 0 <= index < len(data) // 4:
        raise IndexError(index)
    return struct.unpack_from("<i", data, 4 * index)[0]'''
WRONG = RIGHT.replace('"<i"', '">i"')


class Chapter:
    """A chapter's page, and what went wrong on it."""

    def __init__(self, context, site, docname=CHAPTER):
        self.site, self.requests, self.wrong = site, [], []
        self.page = context.new_page()
        self.page.on('request', lambda r: self.requests.append(r.url))
        self.page.on('response', lambda r: r.status < 400 or
                     self.wrong.append(f'{r.status} {r.url}'))
        self.page.on('pageerror', lambda e: self.wrong.append(str(e)))
        self.page.on('console', lambda m: m.type == 'error' and
                     self.wrong.append(m.text))
        self.page.goto(f'{site}{docname}.html')
        self.page.evaluate('localStorage.clear()')
        self.reload()

    def reload(self):
        self.page.reload()
        self.page.wait_for_selector('[data-live]')

    def cell(self, ident):
        return self.page.locator(f'[data-cell="{ident}"]')

    def button(self, ident, word):
        """A button of a cell, by the words that it begins with."""
        return self.cell(ident).get_by_role(
            'button', name=re.compile(f'^{word}'), include_hidden=True)

    def press(self, ident, word):
        """By keyboard: focus, then Enter."""
        self.button(ident, word).focus()
        self.page.keyboard.press('Enter')

    def wait(self, ident, *states):
        self.page.wait_for_selector(','.join(
            f'[data-cell="{ident}"][data-state="{s}"]' for s in states),
            timeout=60_000)

    def state(self, ident):
        return self.cell(ident).get_attribute('data-state')

    def has_focus(self, ident, word):
        return self.button(ident, word).evaluate(
            'e => e === document.activeElement')

    def run(self, ident):
        self.press(ident, 'Run')
        self.wait(ident, 'done', 'failed')

    def wait_for_focus(self, element):
        self.page.wait_for_function(
            'e => e === document.activeElement',
            arg=element.element_handle())

    def write(self, ident, text):
        """Open the editor from the keyboard and write something else."""
        self.press(ident, 'Edit')
        editor = self.cell(ident).get_by_role('textbox')
        editor.wait_for()
        self.wait_for_focus(editor)
        self.page.keyboard.press('ControlOrMeta+a')
        self.page.keyboard.insert_text(text)
        return editor

    def shown(self, ident):
        return self.cell(ident).locator('.cell_output:visible').inner_text()

    @property
    def status(self):
        return self.page.locator('.live-top > [role=status]').text_content()

    def wait_for_status(self, words):
        self.page.wait_for_function(
            'words => document.querySelector(".live-top > [role=status]")'
            '.textContent.includes(words)', arg=words, timeout=60_000)


@pytest.fixture(scope='module')
def context(browser, site, html):
    if not (html / '_static' / 'live' / 'worker.js').exists():
        reason = 'the book was built without Pyodide: make setup'
        if os.environ.get('CI'):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    context = browser.new_context(viewport={'width': 1280, 'height': 800})
    yield context
    context.close()


def closed(chapter):
    chapter.page.close()
    assert chapter.wrong == []
    outside = [url for url in chapter.requests
               if not url.startswith((chapter.site, 'data:', 'blob:'))]
    assert outside == [], 'requests that leave the machine'


@pytest.fixture
def chapter(context, site):
    """A chapter that nobody has touched."""
    chapter = Chapter(context, site)
    yield chapter
    closed(chapter)


@pytest.fixture(scope='module')
def started(context, site):
    """A chapter in which Python runs: what takes a while is done once.

    The tests with it stand in the order of the page: each takes cells that
    none before it has changed.
    """
    chapter = Chapter(context, site)
    chapter.page.mouse.wheel(0, 3000)
    chapter.page.wait_for_load_state('networkidle')
    chapter.before = list(chapter.requests)
    chapter.stored = chapter.shown(THIRD)
    chapter.page.evaluate('''() => {
      const status = document.querySelector('.live-top > [role=status]');
      window.said = [];
      new MutationObserver(() => window.said.push(status.textContent))
        .observe(status, {childList: true});
    }''')
    chapter.press(THIRD, 'Run')
    chapter.wait(THIRD, 'done')
    chapter.wait_for_status('Cell 3 ran in')
    yield chapter
    closed(chapter)


# ---- with Python ----------------------------------------------------------

def test_nothing_comes_before_the_press(started):
    assert not [url for url in started.before if '/_static/live/' in url]
    assert [url for url in started.requests if '/_static/live/' in url]


def test_the_cells_above_run_first(started):
    plan = 'Running the 2 cells above cell 3 first'
    said = started.page.evaluate('said')
    assert said[:4] == [plan, 'Loading Python', 'Python is ready', plan]
    assert re.fullmatch(r'Cell 3 ran in \d+\.\d s\.', said[-1])
    assert started.page.get_by_role(
        'region', name='Python in this page').is_visible()
    assert [started.state(i) for i in (FIRST, SECOND, THIRD, FOURTH)] \
        == ['done', 'done', 'done', 'new']
    # Now that they have, only the one that is asked for runs again.
    started.run(THIRD)
    assert [started.cell(i).locator('.live-state').inner_text()
            for i in (SECOND, THIRD)] == ['[2]', '[4]']


def test_the_tab_key_leads_from_the_cell_to_the_bar(started):
    started.button(THIRD, 'Run').focus()
    for _ in range(6):
        started.page.keyboard.press('Tab')
        if started.page.evaluate(
                'document.activeElement.closest(".live-bar") !== null'):
            return
    pytest.fail('the bar is far away')


def test_an_output_takes_the_place_of_the_books(started):
    own = started.cell(THIRD).locator('.live-output')
    assert own.count() == 1
    assert started.shown(THIRD).strip() == started.stored.strip()
    started.press(THIRD, 'Book’s output')
    assert own.is_hidden()
    started.press(THIRD, 'Your output')
    assert own.is_visible()


def test_an_editor_is_worked_by_keyboard(started):
    page, cell = started.page, started.cell(FOURTH)
    before = cell.locator('.cell_input').bounding_box()
    started.press(FOURTH, 'Edit')
    editor = cell.get_by_role('textbox')
    editor.wait_for()
    started.wait_for_focus(editor)
    after = cell.locator('.cell_input').bounding_box()
    assert abs(before['height'] - after['height']) < 1.5
    # The page's shortcuts are off in here, and Tab indents.
    page.keyboard.press('ControlOrMeta+a')
    page.keyboard.press('Delete')
    page.keyboard.type('if True:')
    page.keyboard.press('Enter')
    page.keyboard.press('Home')
    page.keyboard.press('Tab')
    page.keyboard.type('print(6 / 2)')
    assert page.locator('#pst-search-dialog[open]').count() == 0
    page.keyboard.press('Control+Enter')
    started.wait(FOURTH, 'done')
    assert started.shown(FOURTH).strip() == '3.0'
    assert editor.evaluate('e => e === document.activeElement')
    page.keyboard.type(' ')
    assert 'Changed since it ran' in cell.locator('.live-foot').inner_text()
    # Escape leaves, and Tab goes past the editor.
    page.keyboard.press('Escape')
    assert started.has_focus(FOURTH, 'Run')
    for _ in range(5):
        page.keyboard.press('Tab')
    assert not cell.evaluate('e => e.contains(document.activeElement)')
    # Shift-Enter goes on to the next cell.
    started.press(FOURTH, 'Edit')
    started.wait_for_focus(editor)
    page.keyboard.press('Shift+Enter')
    assert started.has_focus(FIFTH, 'Run')
    started.wait(FOURTH, 'done')


def test_an_error_stops_the_queue_and_comes_into_view(started):
    started.write(FIFTH, 'data = struct.pack("<i", 258)\nlen(5)')
    started.page.evaluate('scrollTo(0, document.body.scrollHeight)')
    started.press(SEVENTH, 'Run')
    started.wait(FIFTH, 'failed')
    started.wait_for_status('Cell 5 ended with TypeError. '
                            'The 2 cells behind it did not run.')
    assert started.state(SIXTH) == started.state(SEVENTH) == 'new'
    assert started.shown(FIFTH).startswith('TypeError: object of type')
    started.page.wait_for_function(
        '''ident => {
          const box = document.querySelector(`[data-cell="${ident}"]`)
            .getBoundingClientRect();
          return box.top >= 0 && box.bottom <= innerHeight;
        }''', arg=FIFTH)
    # Where it was: the name is the one that the cell carries.
    started.cell(FIFTH).locator('.live-where summary').press('Enter')
    assert 'cell 5, line 2' in started.shown(FIFTH)
    # As it was it is not tried again; mended, it comes before those below.
    started.write(FIFTH, 'data = struct.pack("<i", 258)  # not len(5)')
    started.press(SEVENTH, 'Run')
    started.wait(SEVENTH, 'done')
    assert started.state(FIFTH) == started.state(SIXTH) == 'done'


def test_an_exercise_is_checked(started):
    page = started.page
    top = page.locator('.live-mine summary')
    mark = page.locator('.bd-sidebar-primary a.internal .live-mark')
    started.press(STUB, 'Check')
    started.wait_for_status('Exercise 01.1: not answered yet')
    assert started.shown(CHECK).startswith('Not answered yet')
    started.write(STUB, WRONG)
    started.press(STUB, 'Check')
    started.wait_for_status('Exercise 01.1: not right yet')
    assert 'significant' in started.shown(CHECK)        # the misconception
    assert top.inner_text().startswith('Exercises: 0 of')
    started.write(STUB, '1 / 0')
    started.press(STUB, 'Check')
    started.wait_for_status('ended with ZeroDivisionError. '
                            'Exercise 01.1 was not checked.')
    # The verdict was on other code; on that again, it holds again.
    former = 'You have changed the code since'
    assert former in started.shown(CHECK)
    started.write(STUB, WRONG)
    assert former not in started.shown(CHECK)
    assert started.shown(CHECK).startswith('Not right yet')
    # The chapter's own check(...) gives a verdict in the same way.
    started.write(STUB, RIGHT)
    page.keyboard.press('Control+Enter')
    started.wait(STUB, 'done')
    started.run(CHECK)
    started.wait_for_status('Exercise 01.1: passed')
    assert started.shown(CHECK).startswith('Passed')
    assert former not in started.shown(CHECK)
    started.write(STUB, WRONG)
    assert former in started.shown(CHECK)
    assert top.inner_text().startswith('Exercises: 1 of')
    assert '1 of 6 exercises passed' in mark.inner_text()
    kept = json.loads(page.evaluate('localStorage["lamina:progress"]'))
    assert (kept['01.1']['tries'], kept['01.1']['last']) == (2, 'passed')
    assert re.fullmatch(r'\d{4}-\d\d-\d\d', kept['01.1']['passed'])


def test_an_endless_loop_is_stopped(started):
    started.write(SIXTH, 'while True:\n    pass')
    started.page.keyboard.press('Control+Enter')
    started.wait(SIXTH, 'running')
    started.press(SIXTH, 'Stop')
    started.wait_for_status('Stopped.')
    assert {started.state(i) for i in (FIRST, FOURTH, SIXTH)} == {'new'}


def test_start_afresh_gives_outputs_and_texts_back(started):
    menu = started.page.get_by_text('More', exact=True)
    menu.press('Enter')
    started.page.get_by_role('button', name='Start afresh', exact=True
                             ).press('Enter')
    started.wait_for_status('Started afresh')
    assert started.page.locator('.live-output').count() == 0
    text = started.cell(FIFTH).locator('.cm-content')
    assert 'len(5)' in text.inner_text()
    menu.press('Enter')
    started.page.get_by_role('button', name='with the book’s text'
                             ).press('Enter')
    assert 'byte * 256' in text.inner_text()


def test_a_figure_keeps_its_caption_and_its_links(started):
    caption = started.cell(FIGURE).locator('figcaption')
    words = caption.inner_text()
    assert words.startswith('Fig. 1.1')
    started.run(FIGURE)
    for swap in ('Book’s output', 'Your output', ''):
        assert started.cell(FIGURE).locator('img:visible').count() == 1
        assert caption.inner_text() == words and caption.is_visible()
        assert started.page.locator('#fig-storage-bytes').is_visible()
        if swap:
            started.press(FIGURE, swap)


def test_the_whole_chapter_says_what_it_left_out(started):
    started.page.get_by_role('button', name='Run this chapter').first.press(
        'Enter')
    started.wait_for_status('The chapter has run to its end, without ')
    states = started.page.locator('[data-state="new"]').count()
    assert states and f'without {states} cells' in started.status


def test_numpy_is_asked_for_only_when_pressed(started):
    asked = []
    started.page.route(
        lambda url: not url.startswith(started.site),
        lambda route: (asked.append(route.request.url), route.abort()))
    started.write(FOURTH, 'import numpy')
    started.page.keyboard.press('Control+Enter')
    started.wait(FOURTH, 'failed')
    assert asked == []
    started.press(FOURTH, 'Get them from another machine')
    started.wait_for_status('could not be fetched')
    assert asked and all('//cdn.jsdelivr.net/' in url for url in asked)
    started.run(SECOND)         # and Python goes on
    assert started.state(SECOND) == 'done'
    # What was refused is on purpose; nothing else may have gone wrong.
    started.requests[:] = [u for u in started.requests if u not in asked]
    started.wrong[:] = [w for w in started.wrong if 'ERR_FAILED' not in w]


# ---- without --------------------------------------------------------------

def test_what_was_changed_and_passed_is_there_after_a_reload(chapter):
    page, cell = chapter.page, chapter.cell(SECOND)
    pre = cell.locator('.cell_input pre')
    book = pre.text_content()
    chapter.write(SECOND, 'if True:\n    print(6 / 2)')
    page.evaluate('''localStorage["lamina:progress"] = JSON.stringify(
      {"01.1": {tries: 2, last: "passed", passed: "2026-01-31"}})''')
    chapter.requests.clear()
    chapter.reload()
    assert pre.text_content() == 'if True:\n    print(6 / 2)\n'
    # In colours, though no editor was fetched.
    assert pre.locator('.k').first.inner_text() == 'if'
    assert not [url for url in chapter.requests if '/_static/live/' in url]
    assert page.locator('.live-mine summary').inner_text().startswith(
        'Exercises: 1 of')
    assert chapter.cell(STUB).locator('.live-passed').inner_text() == 'Passed'
    page.goto(f'{chapter.site}book/welcome.html')
    page.wait_for_selector('.layers .live-mark')
    assert '1 of 6 exercises passed' in page.locator(
        '.layers a', has_text='Storage').inner_text()
    page.go_back()
    page.wait_for_selector('[data-live]')
    chapter.press(SECOND, 'Book’s text')
    assert pre.text_content() == book
    chapter.reload()
    assert pre.text_content() == book


def test_what_was_changed_in_another_text_is_not_shown_unasked(chapter):
    chapter.write(SECOND, 'mine = 1')
    chapter.page.evaluate('''() => {
      const key = Object.keys(localStorage).find(k => k.includes('edit:'));
      const kept = JSON.parse(localStorage[key]);
      localStorage[key] = JSON.stringify({...kept, of: '00000000'});
    }''')
    chapter.reload()
    pre = chapter.cell(SECOND).locator('.cell_input pre')
    assert 'import struct' in pre.text_content()
    chapter.press(SECOND, 'Show your text')
    assert pre.text_content() == 'mine = 1\n'


def test_a_cell_that_does_not_run_says_why(context, site):
    chapter = Chapter(context, site, 'chapters/11_training')
    book = json.loads((ROOT / 'chapters' / '11_training.ipynb').read_text(
        encoding='utf-8'))
    reasons = {cell['id']: cell['metadata']['lamina']['page']
               for cell in book['cells']
               if 'page' in cell['metadata'].get('lamina', {})}
    assert reasons
    for ident, reason in reasons.items():
        cell = chapter.cell(ident)
        assert cell.locator('.live-reason').inner_text() == reason
        runs_with_numpy = 'NumPy' in reason and 'scikit' not in reason
        assert cell.locator('.live-run').count() == runs_with_numpy
    assert chapter.page.locator('.live-reason').count() == len(reasons)
    closed(chapter)


def test_one_stop_of_the_tab_key_a_cell(chapter):
    chapter.button(FIRST, 'Run').focus()
    chapter.page.keyboard.press('ArrowRight')
    assert chapter.has_focus(FIRST, 'Edit')
    chapter.page.keyboard.press('Home')
    for _ in range(3):      # the copy button may lie between them
        chapter.page.keyboard.press('Tab')
        if chapter.has_focus(SECOND, 'Run'):
            return
    pytest.fail('the Tab key does not lead to the next cell')


def test_progress_goes_out_comes_in_and_is_forgotten(chapter, tmp_path):
    page = chapter.page
    top = page.locator('.live-mine')
    top.locator('summary').press('Enter')
    given = tmp_path / 'progress.json'
    given.write_text(json.dumps({
        '01.2': {'tries': 3, 'last': 'passed', 'passed': '2026-01-31'},
        '02.1': {'hints': 1}}), encoding='utf-8')
    page.locator('.live-mine input[type=file]').set_input_files(given)
    page.wait_for_function('document.querySelector(".live-mine summary")'
                           '.textContent.includes("1 of")')
    with page.expect_download() as download:
        top.get_by_role('button', name='Export').press('Enter')
    assert json.loads(download.value.path().read_text('utf-8')) \
        == json.loads(given.read_text('utf-8'))
    given.write_text('{"a chapter": 1}', encoding='utf-8')
    page.locator('.live-mine input[type=file]').set_input_files(given)
    page.wait_for_function('document.querySelector(".live-mine")'
                           '.textContent.includes("not one of progress")')
    top.get_by_role('button', name='Forget').press('Enter')
    page.keyboard.press('Enter')                        # "Forget all"
    assert top.locator('summary').inner_text().startswith('Exercises: 0 of')
    chapter.reload()
    assert top.locator('summary').inner_text().startswith('Exercises: 0 of')


def test_hints_one_by_one_and_the_solution_when_asked_twice(chapter):
    panel = chapter.cell(STUB).locator('.live-help')
    chapter.press(STUB, 'Hint')
    chapter.wait_for_status('Hint 1 of ')
    count = int(re.search(r'Hint 1 of (\d+)', chapter.status)[1])
    for number in range(2, count + 1):
        chapter.press(STUB, 'Hint')
        chapter.wait_for_status(f'Hint {number} of {count}')
    assert panel.locator('.live-hint').count() == count
    chapter.press(STUB, 'Hint')
    chapter.wait_for_status('they are all here')
    chapter.press(STUB, 'Solution')
    panel.get_by_role('button', name='Not yet').press('Enter')
    assert panel.locator('.live-solution').count() == 0
    chapter.press(STUB, 'Solution')
    panel.get_by_role('button', name='Show it').press('Enter')
    assert 'def read_int32' in panel.locator('.live-solution').inner_text()
    assert not [url for url in chapter.requests if '/_static/live/' in url]


def test_it_works_where_the_browser_keeps_nothing(browser, site, context):
    private = browser.new_context()
    private.add_init_script(
        'Object.defineProperty(Storage.prototype, "setItem",'
        ' {value() { throw new DOMException("full"); }})')
    chapter = Chapter(private, site)
    chapter.page.locator('.live-mine summary').press('Enter')
    assert 'keeps nothing' in chapter.page.locator('.live-mine').inner_text()
    chapter.press(STUB, 'Hint')
    chapter.wait_for_status('Hint 1 of ')
    private.close()


def test_from_a_file_it_says_how(browser, html, context):
    page = browser.new_page()
    wrong = []
    page.on('pageerror', lambda e: wrong.append(str(e)))
    page.goto((html / f'{CHAPTER}.html').as_uri())
    page.wait_for_function('document.querySelector(".live-top").textContent'
                           '.includes("python -m http.server")')
    assert page.locator('[data-live]').count() == 0
    assert page.locator('.live-tools').count() == 0
    assert wrong == []
    page.close()


def test_without_scripts_and_on_paper_there_is_none_of_it(browser, site,
                                                          context):
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(f'{site}{CHAPTER}.html')
    assert page.locator('.live-top').is_hidden()
    plain.close()
    chapter = Chapter(context, site)
    chapter.page.emulate_media(media='print')
    for part in '.live-top', '.live-tools':
        assert chapter.page.locator(f'{part}:visible').count() == 0
    chapter.page.close()


def test_nothing_moves_when_the_buttons_come(browser, site, context):
    page = browser.new_context(viewport={'width': 360, 'height': 740}
                               ).new_page()
    page.add_init_script('''
      window.shift = 0;
      new PerformanceObserver(list => {
        for (const entry of list.getEntries()) window.shift += entry.value;
      }).observe({type: 'layout-shift', buffered: true});''')
    page.goto(f'{site}{CHAPTER}.html')
    page.wait_for_selector('[data-live]')
    page.wait_for_load_state('networkidle')
    assert page.evaluate('shift') < 0.01
    heights = page.evaluate('''() => {
      const height = () => document.querySelector('.bd-article').offsetHeight;
      const after = height();
      for (const node of document.querySelectorAll('[data-live]')) {
        node.querySelector('.live-tools').remove();
        delete node.dataset.live;
      }
      return [height(), after];
    }''')
    assert abs(heights[0] - heights[1]) < 2
    assert page.evaluate('document.documentElement.scrollWidth') <= 360
    page.context.close()
