"""What the book says of PyTorch's files is in the data file, and only that.

Whether the data file is right needs PyTorch: `make facts TORCH=...`.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

import lamina
from lamina.dispatch import operators

from book_build import ROOT, markdown

_spec = importlib.util.spec_from_file_location(
    'lamina_tools_facts', ROOT / 'tools' / 'facts.py')
tools = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tools)

VERSION, FACTS = tools.load()
PATH = tools.stations()
FILES = {fact.file for fact in FACTS}
NAMES = {word for fact in FACTS for name in fact.names
         for word in re.findall(r'\w+', name)}
NOTEBOOKS = tools.notebooks()

# Named in the text, and no file of PyTorch's repository.
OTHERS = {'dlpack.h', 'torch/lib', 'nbgrader_config.py',
          '/etc/jupyter/nbgrader_config.py'}
# Written by torchgen when PyTorch is built, so never in the repository.
GENERATED = r'(Register(CPU|CompositeExplicitAutograd)|VariableType|Functions' \
            r'|python_torch_functions)(_\d)?\.(cpp|h)'
# This repository's own files, by name.
OWN = {path.name for folder in ('book', 'src', 'tests', 'tools')
       for path in (ROOT / folder).rglob('*.*')}
ROOTS = 'aten', 'c10', 'torch', 'torchgen', 'tools/autograd', 'caffe2'


PAGES = {path.name: markdown(path) for path in [
    *sorted((ROOT / 'book').rglob('*.md')), *NOTEBOOKS.values()]}


def spans(text):
    """What stands between backticks in running text."""
    text = re.sub(r'^(`{3,}|~{3,}).*?^\1', '', text, flags=re.M | re.S)
    return [' '.join(span.split()) for span in re.findall(
        r'(?<!`)`([^`]+)`(?!`)', text)]


def is_of_pytorch(span):
    """Whether a span names a file or a folder of PyTorch."""
    if re.search(r'[\s(*]', span) or span in OTHERS or re.fullmatch(
            rf'(.*/)?{GENERATED}', span):
        return False
    top = re.match(r'(tools/autograd|\w+)/', span)
    if top and top[1] in ROOTS:
        return True
    if not re.search(r'\w\.(cpp|h|cu|yaml|py)$', span):
        return False
    return Path(span).name not in OWN


def is_known(span, files=FILES):
    if span.endswith('/'):
        return any(file.startswith(span) for file in files)
    return any(file == span or file.endswith('/' + span) for file in files)


def test_files_are_told_from_other_words():
    text = 'See `c10/core/X.h`, `engine.cpp`, `lamina/strides.py`.\n\n' \
           '```\n`a.cpp`\n```\n'
    assert [s for s in spans(text) if is_of_pytorch(s)] == [
        'c10/core/X.h', 'engine.cpp']
    assert is_known('c10/core/') and not is_known('c10/nowhere/')
    assert is_known('engine.cpp') and not is_known('gine.cpp')


@pytest.mark.parametrize('page', sorted(PAGES))
def test_every_file_that_a_page_names_is_a_fact(page):
    unknown = [span for span in spans(PAGES[page])
               if is_of_pytorch(span) and not is_known(span)]
    assert unknown == []


@pytest.mark.parametrize('page', sorted(PAGES))
def test_links_to_the_source_are_facts_at_the_version(page):
    links = re.findall(r'github\.com/pytorch/pytorch/(?:blob|tree)/'
                       r'([^/\s]+)/([^\s)>#]+)', PAGES[page])
    assert [link for link in links
            if link[0] != f'v{VERSION}' or not is_known(link[1])] == []


@pytest.mark.parametrize('page', sorted(PAGES))
def test_the_version_is_the_one_of_the_data(page):
    found = re.findall(r'PyTorch (\d+\.\d+\.\d+)', PAGES[page])
    assert set(found) <= {VERSION}


def test_the_facts_are_whole():
    assert re.fullmatch(r'\d+\.\d+\.\d+', VERSION)
    assert {fact.chapter for fact in FACTS} == {*NOTEBOOKS, 'pages'}
    places = [(fact.chapter, fact.file) for fact in FACTS]
    assert len(places) == len(set(places))
    for fact in FACTS:
        assert fact.names and fact.what and '|' not in fact.what, fact
        assert fact.checked in ('wheel', 'library', 'source'), fact
        if fact.checked == 'source' or fact.commit:
            assert re.fullmatch(r'[0-9a-f]{40}', fact.commit), fact


def test_what_is_in_no_table_is_on_a_page():
    named = {span for text in PAGES.values() for span in spans(text)}
    named |= {at['file'] for at in PATH if 'file' in at}
    assert [fact.file for fact in FACTS if fact.chapter == 'pages' and not any(
        fact.file == span or fact.file.endswith('/' + span)
        for span in named)] == []


@pytest.mark.parametrize('module', sorted(NOTEBOOKS))
def test_our_names_are_there(module):
    loaded = importlib.import_module(f'lamina.{module}')
    lost = [name for fact in FACTS if fact.chapter == module
            for name in fact.ours
            if not hasattr(loaded, name) and name not in operators]
    assert lost == []


@pytest.mark.parametrize('module', sorted(NOTEBOOKS))
def test_each_chapter_has_its_section(module):
    book = json.loads(NOTEBOOKS[module].read_text(encoding='utf-8'))
    facts = [fact for fact in FACTS if fact.chapter == module]
    cells = tools.sections_of(book)
    assert ([''.join(cell['source']) for cell in cells]
            == [tools.section(VERSION, facts)]), 'tools/facts.py --write'
    after = book['cells'][book['cells'].index(cells[0]) + 1]
    assert ''.join(after['source']).startswith('## What to remember')


def test_the_map_has_all_tables():
    text = tools.MAP.read_text(encoding='utf-8')
    assert set(re.findall(r'<!-- facts: (\w+) -->', text)) == set(NOTEBOOKS)
    assert tools.in_map(text, VERSION, FACTS) == text, 'tools/facts.py --write'


# ---- the picture of one call ----------------------------------------------

def test_the_picture_is_the_one_of_the_data():
    assert tools.PICTURE.read_text(encoding='utf-8') == tools.picture(PATH)
    xml = ElementTree.fromstring(tools.picture(PATH))
    rects = xml.findall('{*}rect')
    assert len(rects) == len(PATH) + sum('ours' in at for at in PATH)


def test_pytorchs_side_of_the_picture_is_in_the_facts():
    for at in PATH:
        if 'file' in at:
            found = [fact for fact in FACTS if fact.file == at['file']]
            assert found, at


@pytest.mark.skipif(not lamina.get_default_device().type == 'cpu',
                    reason='the picture shows the device cpu')
def test_our_side_of_the_picture_is_what_is_called():
    x = lamina.tensor([-1., 2.], requires_grad=True)
    lamina.abs(x)                       # the table is filled by a first call
    called = []

    def note(frame, event, argument):
        if event == 'call':
            called.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = lamina.abs(x)
    finally:
        sys.setprofile(before)
    shown = [name for at in PATH for name in at.get('calls', [])]
    assert [name for name in called if name in shown] == shown
    assert result.grad_fn is not None


@pytest.mark.parametrize('block', re.findall(
    r'^```python\n(.*?)^```', PAGES['contribute-pytorch.md'], re.M | re.S))
def test_python_for_contributors_is_python(block):
    compile(block, 'contribute-pytorch.md', 'exec')


EXAMPLE = """
import doctest, re, sys
import numpy as np
import lamina
from lamina.autograd import derivative, gradcheck
from lamina.broadcasting import elementwise

text = open(sys.argv[1], encoding="utf-8").read()
blocks = re.findall(r"^```pycon\\n(.*?)^```", text, re.M | re.S)
test = doctest.DocTestParser().get_doctest(
    "\\n".join(blocks), globals(), "page", sys.argv[1], 0)
done = doctest.DocTestRunner().run(test)
sys.exit(done.failed or not done.attempted)
"""


def test_laminas_part_for_contributors_has_run():
    # In a process of its own: it declares an operator.
    done = subprocess.run(
        [sys.executable, '-c', EXAMPLE,
         str(ROOT / 'book' / 'contribute-pytorch.md')], cwd=ROOT,
        capture_output=True, encoding='utf-8',
        env={**os.environ, 'PYTHONPATH': str(ROOT / 'src'),
             'PYTHONIOENCODING': 'utf-8'})
    assert done.returncode == 0, done.stdout + done.stderr


# ---- names in the chapters' comparisons ------------------------------------

# Of PyTorch's Python interface, or words of C++ and of Python.
WORDS = set('''
    torch accumulate ctx switch empty clear step foreach fused capturable
    differentiable torchdata StatefulDataLoader dltensor_versioned result
    AutogradCUDA SparseCPU forward_ad torchgen next_functions
    '''.split())


def comparison(module):
    text = PAGES[NOTEBOOKS[module].name]
    return re.search(r'^## What PyTorch does differently$(.*?)^## ', text,
                     re.M | re.S)[1]


@pytest.mark.parametrize('module', sorted(NOTEBOOKS))
def test_names_of_pytorch_in_a_comparison_are_facts(module):
    ours = '\n'.join(path.read_text(encoding='utf-8')
                     for path in (ROOT / 'src' / 'lamina').glob('*.py'))
    ours += NOTEBOOKS[module].read_text(encoding='utf-8').partition(
        '## What PyTorch does differently')[0]
    known = NAMES | WORDS | set(re.findall(r'\w+', ours))
    unknown = {word for span in spans(comparison(module))
               if not re.search(r'[/\s]|\.(cpp|h|py|yaml)$', span)
               for word in re.findall(r'[A-Za-z_]\w+', span)
               if word not in known and not hasattr(lamina, word)}
    assert unknown == set()


# ---- the checker ------------------------------------------------------------

@pytest.fixture
def wheel(tmp_path):
    header = tmp_path / 'torch' / 'include' / 'c10' / 'core' / 'A.h'
    header.parent.mkdir(parents=True)
    header.write_text('struct TORCH_API Alpha {};\n', encoding='utf-8')
    library = (b'\0/x/aten/src/ATen/native/B.cpp\0_ZN2at6native4betaEv\0'
               b'?gamma@native@at@@\0delta_cpu\0xdelta\0'
               b'_ZTIN2at6native19structured_zeta_outE\0')
    return tmp_path, [library]


def fact(file, *names, checked='wheel'):
    return tools.Fact('pages', file, names, 'something', checked)


def test_the_checker_accepts_what_is_there(wheel):
    assert tools.failure(fact('c10/core/A.h', 'Alpha', 'struct TORCH_API'),
                         *wheel) == ''
    assert tools.failure(
        fact('aten/src/ATen/native/B.cpp', 'beta', 'gamma', 'delta_cpu',
             'zeta_out', checked='library'), *wheel) == ''


def test_the_checker_refuses_what_is_not(wheel):
    assert 'no such file' in tools.failure(fact('c10/core/B.h', 'A'), *wheel)
    assert 'no such file' in tools.failure(fact('docs/B.h', 'A'), *wheel)
    assert 'not there: Alph' in tools.failure(
        fact('c10/core/A.h', 'Alpha', 'Alph'), *wheel)
    in_library = 'aten/src/ATen/native/B.cpp'
    for name in 'bet', 'eta', 'delta', 'zeta', 'epsilon':
        assert f'not there: {name}' in tools.failure(
            fact(in_library, name, checked='library'), *wheel)
    assert 'no library' in tools.failure(
        fact('aten/src/ATen/native/C.cpp', 'beta', checked='library'), *wheel)


def test_every_kind_of_place_has_a_rule():
    for fact in FACTS:
        if fact.checked == 'wheel':
            assert tools.place(Path(), fact.file), fact.file


def test_a_spelling_mistake_in_the_data_is_an_error(tmp_path):
    path = tmp_path / 'facts.toml'
    path.write_text('version = "1.2.3"\n[[nn]]\nfile = "x"\nnmaes = []\n'
                    'what = "x"\nchecked = "wheel"\n', encoding='utf-8')
    with pytest.raises(TypeError, match='nmaes'):
        tools.load(path)
    assert tomllib.loads(path.read_text('utf-8'))['version'] == '1.2.3'
