"""The chapters' cells run in a browser and give there what they give here."""

import ast
import builtins
import inspect
import json
import re
from collections import OrderedDict
from types import SimpleNamespace

import nbformat
import pytest
from nbval import plugin as nbval

from book_build import ROOT

CHAPTERS = sorted(path.stem for path in ROOT.glob('chapters/*.ipynb'))

# Starts a worker; `ask` gives a message's end and what came before it.
WORKER = '''() => {
  const worker = new Worker('../_static/live/worker.js', {type: 'module'});
  let ended, came = [], number = 0;
  window.trouble = [];
  worker.onerror = event => window.trouble.push(event.message);
  worker.onmessage = ({data}) => {
    if (data.op === 'done') ended({...data, came});
    else if (data.op !== 'progress') came.push(data);
  };
  window.worker = worker;
  window.ask = message => new Promise(resolve => {
    came = [];
    ended = resolve;
    worker.postMessage({id: ++number, ...message});
  });
}'''


class Python:
    """The worker of one chapter, in a page of its own.

    site: where the book is, or None if the page shows the chapter.
    """

    def __init__(self, page, site, chapter):
        self.page = page
        if site:
            page.goto(f'{site}chapters/{chapter}.html')
        page.evaluate(WORKER)
        done = self.ask(op='start', chapter=chapter)
        assert done['ok'], done

    def ask(self, **message):
        return self.page.evaluate('message => ask(message)', message)

    def run(self, source, cell='new'):
        done = self.ask(op='run', cell=cell, source=source)
        return done, [m['output'] for m in done['came']
                      if m['op'] == 'output']


@pytest.fixture(scope='module')
def python(browser, site):
    context = browser.new_context()
    yield Python(context.new_page(), site, '01_storage')
    context.close()


def cells(html, chapter):
    return json.loads((html / '_static' / 'live' / 'cells' /
                       f'{chapter}.json').read_text('utf-8'))


# ---- which code block is which cell ---------------------------------------

@pytest.mark.parametrize('chapter', CHAPTERS)
def test_every_code_block_knows_its_cell(html, chapter):
    text = (html / 'chapters' / f'{chapter}.html').read_text('utf-8')
    assert f'<article data-chapter="{chapter}"' in text
    shown = re.findall(r'data-cell="([^"]+)"', text)
    assert shown == [cell['id'] for cell in cells(html, chapter)]


# ---- like a notebook ------------------------------------------------------

def test_the_last_expression_is_shown(python):
    done, outputs = python.run('x = [1, 2]\nx')
    assert done['ok'] and done['seconds'] < 5
    assert outputs == [{'output_type': 'execute_result', 'metadata': {},
                        'data': {'text/plain': '[1, 2]'}}]
    assert python.run('x;')[1] == python.run('None')[1] == []


def test_printed_text_comes_while_a_cell_runs(python):
    done, outputs = python.run(
        'import sys, time\nprint("a")\ntime.sleep(0.2)\nprint("b")\n'
        'print("c", file=sys.stderr)')
    assert [(o['name'], o['text']) for o in outputs] == [
        ('stdout', 'a\n'), ('stdout', 'b\n'), ('stderr', 'c\n')]
    _, outputs = python.run('for i in range(10**5): print(i)')
    text = ''.join(o['text'] for o in outputs)
    assert len(text) < 210_000 and 'not shown' in text


def test_rich_values(python):
    source = ('from IPython.display import SVG, display\n'
              'class Both:\n'
              '    def _repr_html_(self): return "<b>1</b>"\n'
              '    def __repr__(self): return "one"\n'
              'display(Both(), 2)\nSVG("<svg/>")')
    _, outputs = python.run(source)
    assert [(o['output_type'], sorted(o['data'])) for o in outputs] == [
        ('display_data', ['text/html', 'text/plain']),
        ('display_data', ['text/plain']),
        ('execute_result', ['image/svg+xml', 'text/plain'])]


def test_errors_name_the_cell_and_the_line(python):
    python.run('def f(x):\n    return 1 / x', 'first')
    done, outputs = python.run('y = 1\nf(0)', 'second')
    assert not done['ok']
    assert outputs == [{
        'output_type': 'error', 'ename': 'ZeroDivisionError',
        'evalue': 'division by zero', 'traceback': [
            'cell second, line 2\n    f(0)',
            'cell first, line 2, in f\n    return 1 / x',
            'ZeroDivisionError: division by zero']}]
    _, (output,) = python.run('a = 1\nb = (')
    assert output['ename'] == 'SyntaxError' and '2' in output['evalue']
    # The next cell runs.
    assert python.run('1')[0]['ok']


def test_an_endless_recursion_is_an_error(python):
    done, (output,) = python.run('def f(): return f()\nf()')
    assert output['ename'] == 'RecursionError'
    assert len(output['traceback']) < 15
    assert python.run('1')[0]['ok']


def test_input_says_what_to_do_instead(python):
    _, (output,) = python.run('name = input("name? ")')
    assert output['ename'] == 'RuntimeError'
    assert 'write the value into the cell' in output['evalue']


def test_magics_are_refused(python):
    assert python.run('%matplotlib inline\n1')[0]['ok']
    assert python.run('text = """\n%time\n!ls"""')[0]['ok']
    for source, instead in [
            ('%timeit x', 'timeit.timeit('), ('x = 1\n%%timeit', 'timeit('),
            ('%%time\nx = 1', 'perf_counter'), ('!ls', 'os.listdir'),
            ('files = !ls', 'os.listdir'), ('%%bash\nls', 'os.listdir'),
            ('if 1:\n    %cd ..', 'os.listdir'), ('%pip install x', 'install'),
            ('!pip install x', 'install'), ('%who', 'write it in Python'),
            ('len?', 'help(len)')]:
        done, (output,) = python.run(source)
        assert not done['ok'] and 'only Python runs' in output['evalue']
        assert instead in output['evalue'], output


def test_a_graph_is_drawn(python):
    _, (output,) = python.run(
        'from course import figures\nd = figures._flow()\n'
        'd.edge("a", "b")\nd')
    assert output['data']['image/svg+xml'].startswith('<svg')


# ---- the checks -----------------------------------------------------------

def test_checks(python):
    from course.exercises import find

    python.run('from course import begin, check, hint, solution\n'
               'begin("01_storage")')
    exercise = find('01.1')
    done = python.ask(op='check', exercise='01.1')
    assert 'not answered yet' in str(done['came'])
    wrong = exercise.solution.replace('return ', 'return 1 + ')
    done, _ = python.run(wrong + '\ncheck("01.1")')
    assert any(m['op'] == 'verdict' and m['exercise'] == '01.1'
               and not m['passed'] for m in done['came'])
    assert 'smallest failing input' in str(done['came'])
    python.run(exercise.solution)
    done = python.ask(op='check', exercise='01.1')
    assert done['ok']
    assert {'op': 'verdict', 'exercise': '01.1', 'kind': 'passed',
            'passed': True} in done['came']
    done = python.ask(op='hint', exercise='01.1')
    assert 'Hint 1 of' in str(done['came'])


def test_an_answer_that_never_ends_is_stopped(python):
    from course.exercises import find

    exercise = find('01.2')
    names = ', '.join(inspect.signature(exercise.reference).parameters)
    python.run(f'def {exercise.name}({names}):\n    while True: pass')
    done = python.ask(op='check', exercise='01.2')
    assert not done['ok'] and 'was stopped' in str(done['came'])
    assert python.run('1')[0]['ok']


# ---- the same outputs as under nbval --------------------------------------

# Runs chapters, two at a time, each in a worker of its own: first what a
# reader runs, in order, then what does not run in a page, to see that it
# does not. A chain of numbers that is too long for the stack goes last.
RUN_ALL = '''async chapters => {
  const waiting = [...chapters], results = {};
  const runChapter = async chapter => {
    const cells = await (await fetch(
      `../_static/live/cells/${chapter}.json`)).json();
    const worker = new Worker('../_static/live/worker.js', {type: 'module'});
    let ended, came;
    worker.onmessage = ({data}) => {
      if (data.op === 'done') ended(data);
      else if (data.op === 'output') came.push(data.output);
    };
    const ask = message => new Promise(resolve => {
      came = [];
      ended = resolve;
      worker.postMessage({id: 0, ...message});
      setTimeout(() => resolve({ok: false, text: 'too slow'}), 150_000);
    });
    const found = {};
    const run = async ({id, source}) => {
      const {ok, text} = await ask({op: 'run', cell: id, source});
      found[id] = {ok, text, outputs: came};
      return !text;
    };
    let alive = (await ask({op: 'start', chapter})).ok;
    const long = cell => cell.page?.startsWith('takes down');
    const slow = cell => cell.page?.includes('minutes');
    for (const cell of [
      ...cells.filter(c => !c.page),
      ...cells.filter(c => c.page && !long(c) && !slow(c)).reverse(),
      ...cells.filter(long)]) {
      alive = alive && await run(cell);
      if (alive && long(cell)) {      // it is there until it is let go
        const {text} = await ask({op: 'run', cell: 'end',
          source: 'globals().clear()'});
        alive = !text;
        found[cell.id].text = text;
      }
    }
    worker.terminate();
    results[chapter] = found;
  };
  const line = async () => {
    while (waiting.length) await runChapter(waiting.shift());
  };
  await Promise.all([line(), line()]);
  return results;
}'''


class Rules:
    """nbval's comparison of outputs, without a cell to run."""

    compare_outputs = nbval.IPyNbCell.compare_outputs
    sanitize = nbval.IPyNbCell.sanitize
    colors = nbval.nocolors

    def __init__(self):
        self.parent = SimpleNamespace(
            skip_compare=('metadata', 'traceback', 'output_type', 'name',
                          'execution_count'),
            sanitize_patterns=OrderedDict(nbval.get_sanitize_patterns(
                (ROOT / 'tests' / 'nbval_sanitize.cfg').read_text('utf-8'))))
        self.found = []

    def format_output_compare(self, key, left, right):
        self.found.append(
            f'{key}: {left[:300]!r} is due, here {right[:300]!r}')

    def equal(self, due, came):
        self.found.clear()
        return self.compare_outputs(*(nbval.coalesce_streams([
            drawn(nbformat.from_dict(output)) for output in outputs])
            for outputs in (came, due)))


def drawn(output):
    """A picture counts as there, whatever it looks like."""
    data = output.get('data', {})
    data.update((kind, 'a picture') for kind in data if 'image/' in kind)
    return output


@pytest.fixture(scope='module')
def ran(browser, site, request):
    # The session's other items are cells of notebooks, without fixtures.
    wanted = {item.callspec.params['chapter'] for item in
              request.session.items
              if 'ran' in getattr(item, 'fixturenames', ())}
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(0)
    page.goto(f'{site}chapters/01_storage.html')
    # The longest first.
    yield page.evaluate(RUN_ALL, sorted(
        wanted, key=lambda name: name[:2] not in ('07', '10')))
    context.close()


def stored(chapter):
    book = nbformat.read(ROOT / 'chapters' / f'{chapter}.ipynb', 4)
    return [cell for cell in book.cells if cell.cell_type == 'code']


def errors(outputs):
    return [output['ename'] for output in outputs
            if output['output_type'] == 'error']


def wrong_with(cell, result):
    """What is wrong with what a cell gave in a page, or None."""
    reason = cell.metadata.get('lamina', {})
    came, due = errors(result['outputs']), errors(cell.outputs)
    # Another output is no excuse for an error that the book has not.
    if 'page' not in reason and came and came != due:
        return f'errors: {due} are due, here {result["outputs"]}'
    rules = Rules()
    if 'nbval-ignore-output' in cell.metadata.get('tags', ()):
        equal = not result['text'] and came == due
    else:
        equal = not result['text'] and rules.equal(
            cell.outputs, result['outputs'])
    if equal and reason:
        return f'equal, but it says {reason}'
    if not equal and not reason:
        return (result['text'] or rules.found
                or f'other outputs: {result["outputs"]}')
    return None


@pytest.mark.parametrize('chapter', CHAPTERS)
def test_outputs_are_equal_or_the_cell_says_why_not(ran, chapter):
    wrong = []
    for cell in stored(chapter):
        reason = cell.metadata.get('lamina', {}).get('page', '')
        if cell.id in ran[chapter]:
            found = wrong_with(cell, ran[chapter][cell.id])
        elif 'minutes' not in reason and 'takes down' not in reason:
            found = 'it was not reached'
        else:
            continue
        if found:
            wrong.append(f'{cell.id}: {found}')
    assert not wrong, '\n'.join(wrong)


def test_the_comparison_finds_what_is_wrong():
    def result(*outputs, text=None):
        return {'text': text, 'outputs': list(outputs)}

    def cell(*outputs, tags=(), **reason):
        return nbformat.v4.new_code_cell(outputs=list(outputs), metadata={
            'tags': list(tags), **({'lamina': reason} if reason else {})})

    def error(name):
        return nbformat.v4.new_output('error', ename=name, evalue='x')

    one, two = (nbformat.v4.new_output('stream', text=text) for text in '12')
    ignored = {'tags': ['nbval-ignore-output']}
    differs = {'differs': 'has other numbers'}
    for stored_, came in [
            (cell(one), result(one)), (cell(one, **differs), result(two)),
            (cell(one, **ignored), result(two)),
            (cell(error('KeyError')), result(error('KeyError'))),
            (cell(error('KeyError'), **differs), result(one)),
            (cell(one, page='needs NumPy'), result(error('ImportError')))]:
        assert wrong_with(stored_, came) is None
    for stored_, came in [
            (cell(one), result(two)), (cell(one, **differs), result(one)),
            (cell(one), result(one, text='Python died')),
            (cell(one, page='needs NumPy'), result(one)),
            (cell(error('KeyError')), result()),
            (cell(error('KeyError'), **differs), result(error('NameError'))),
            *((cell(one, **marks), result(one, error('NameError')))
              for marks in ({}, ignored, differs))]:
        assert wrong_with(stored_, came)


def test_what_depends_on_the_machine_says_so(html):
    for chapter in CHAPTERS:
        told = {cell['id']: cell for cell in cells(html, chapter)}
        for cell in stored(chapter):
            if ('nbval-ignore-output' in cell.metadata.get('tags', ())
                    and cell.outputs):
                assert {'page', 'differs'} & set(told[cell.id]), cell.id


def test_most_cells_run():
    for chapter in CHAPTERS[:9]:
        reasons = [cell.metadata.get('lamina', {}) for cell in stored(chapter)]
        assert sum('page' in r for r in reasons) < 0.13 * len(reasons)
        assert sum(bool(r) for r in reasons) < 0.21 * len(reasons)


def test_reasons_are_the_end_of_a_sentence():
    for chapter in CHAPTERS:
        for cell in stored(chapter):
            reason = cell.metadata.get('lamina', {})
            assert len(reason) <= 1 and set(reason) <= {'page', 'differs'}
            for words in reason.values():
                assert re.fullmatch(r'[a-z][^\n]*[\w)]', words), cell.id


def bound_and_used(source):
    bound, used = set(), set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(
                    name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=short):
                bound.add(short or name.partition('.')[0])
    return bound, used


@pytest.mark.parametrize('chapter', CHAPTERS)
def test_no_cell_needs_a_name_of_one_that_is_not_run(chapter):
    """Exported code may: its functions are called further down."""
    known, lost = set(dir(builtins)), set()
    for cell in stored(chapter):
        bound, used = bound_and_used(cell.source)
        if 'page' in cell.metadata.get('lamina', {}):
            lost |= bound
            continue
        if 'export' not in cell.metadata.get('tags', ()):
            assert not (used - bound - known) & lost, cell.id
        known |= bound


# ---- what may be missing --------------------------------------------------

def test_without_the_network_python_goes_on(python):
    python.page.context.set_offline(True)
    done = python.ask(op='numpy')
    python.page.context.set_offline(False)
    assert not done['ok'] and 'python device goes on' in done['text']
    assert python.run('1 + 1')[0]['ok']


def test_a_server_that_knows_no_types(browser, site):
    """Neither .wasm nor .zip need a type, and nothing need be kept."""
    context = browser.new_context()

    def plain(route):
        answer = route.fetch()
        route.fulfill(response=answer, headers={
            'Content-Type': 'application/octet-stream'})

    for ending in 'wasm', 'zip', 'bin':
        context.route(f'**/_static/live/*.{ending}?*', plain)
    python = Python(context.new_page(), site, '02_strides')
    assert python.run('1')[0]['ok']
    context.close()


def test_python_comes_from_the_cache_the_second_time(browser, site):
    context = browser.new_context()
    for visit in 1, 2:
        page, asked = context.new_page(), []
        page.on('request', lambda request: asked.append(request.url))
        Python(page, site, '01_storage')
        heavy = [url for url in asked if '.wasm' in url or '.bin' in url]
        assert bool(heavy) == (visit == 1), asked
        # Python's memory is kept as it is: to unpack it takes its time.
        page.wait_for_function('''async () => {
          const cache = await caches.open('lamina-live');
          for (const request of await cache.keys())
            if (request.url.includes('snapshot.bin')) {
              const kept = await (await cache.match(request)).blob();
              return kept.size > 3e7;
            }
        }''')
    context.close()


def test_the_first_cell_waits_for_nothing_that_it_does_not_need(browser, site):
    context = browser.new_context()
    python = Python(context.new_page(), site, '08_autograd')
    is_there = 'import os\nos.path.exists("/page/hypothesis/core.pyc")'
    for first, due in (True, 'False'), (False, 'True'):
        begin = 'from course import begin\nbegin("08_autograd")\n' * first
        done, (output,) = python.run(begin + is_there)
        assert done['ok'] and output['data'] == {'text/plain': due}
    assert python.run('import hypothesis.extra.array_api')[0]['ok']
    context.close()
