"""The chapters' cells run in a browser and give there what they give here."""

import inspect
import json
import re

import pytest

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
    """The worker of one chapter, in a page of its own."""

    def __init__(self, page, site, chapter):
        self.page = page
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


def test_magics(python):
    assert python.run('%matplotlib inline\n1')[0]['ok']
    done, (output,) = python.run('%%bash\nls')
    assert not done['ok'] and 'only Python' in output['evalue']


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
