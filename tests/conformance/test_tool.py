"""`make conformance` without torch: stand-ins for the judges."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

OPINFO = {
    'ops': {
        'add': {'missing': False, 'samples': 4, 'passed': 4,
                'first_failure': None,
                'forward': {'samples': 4, 'passed': 4, 'skipped': 0,
                            'first_failure': None}, 'info': {}},
        'div:floor': {'missing': False, 'samples': 4, 'passed': 3,
                      'first_failure': 'by zero',
                      'values': {'samples': 4, 'passed': 3, 'skipped': 0,
                                 'first_failure': 'by zero'}},
        'fft': {'missing': True, 'samples': 0, 'passed': 0,
                'first_failure': 'missing fft'}},
    'promotion': {'per_op': {
        'pow': {'samples': 2, 'passed': 1, 'first_failure': 'int8'},
        'eq': {'samples': 2, 'passed': 2, 'first_failure': None}}}}
VIEWS = {
    'results': [{'property': 'view', 'passed': True, 'failure': None},
                {'property': 'chain+t', 'passed': False, 'failure': 'x.t()'}],
    'summary': {'programs': {'programs': 9, 'passed': 8,
                             'first_failure': 'program 3'}}}
SCENARIOS = {'results': {
    'hooks': {'passed': False, 'failures': ['raised', 'not called']},
    'leaf': {'passed': True, 'failures': []}}}
ANSWERS = {'opinfo.py': OPINFO, 'views.py': VIEWS,
           'autograd_semantics.py': SCENARIOS}

ALL = {'opinfo': ['div/values', 'fft/missing', 'pow/promotion'],
       'views': ['chain+t', 'programs'], 'scenarios': ['hooks']}


def load(name):
    spec = importlib.util.spec_from_file_location(
        name, ROOT / 'tools' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool():
    return load('conformance')


@pytest.fixture
def run(tool, tmp_path, monkeypatch, capsys):
    """Run the tool with stand-ins for judges, Python and list."""
    judges = tmp_path / 'judges'
    judges.mkdir()
    for name, answer in ANSWERS.items():
        (judges / name).write_text(
            'import os, sys\n'
            'assert sys.argv[1:3] == ["--module", "lamina"]\n'
            'assert os.environ["PYTHONPATH"].endswith("src")\n'
            'print("FAIL something")\n'
            f'print("{name} has judged")\n'
            'path = sys.argv[sys.argv.index("--json") + 1]\n'
            f'open(path, "w", encoding="utf-8").write({json.dumps(answer)!r})',
            encoding='utf-8')
    monkeypatch.setattr(tool, 'environment',
                        lambda python: (sys.executable, 'none'))
    monkeypatch.setattr(tool, 'ROOT', tmp_path)
    monkeypatch.setattr(tool, 'LIST', tmp_path / 'differs.toml')

    def call(lists, *options):
        text = ''.join(f'[[differs]]\nwhy = "so"\n{name} = {names!r}\n'
                       for name, names in lists.items())
        (tmp_path / 'differs.toml').write_text(text, encoding='utf-8')
        code = tool.main(['--judges', str(judges), *options])
        return code, capsys.readouterr().out

    return call


def test_all_written_down(run):
    code, text = run(ALL)
    assert code == 0, text
    assert '6 disagreements, 6 of them in differs.toml' in text
    assert 'views.py has judged' in text and 'FAIL' not in text


def test_one_that_is_not_written_down(run):
    code, text = run({**ALL, 'opinfo': ALL['opinfo'][1:]})
    assert code == 1
    assert 'NEW   opinfo div/values: 3 of 4: by zero' in text
    assert text.count('NEW') == 1 and 'GONE' not in text


def test_one_that_is_no_more(run):
    code, text = run({**ALL, 'scenarios': ['hooks', 'leaf']})
    assert code == 1
    assert 'GONE  scenarios leaf' in text
    assert text.count('GONE') == 1 and 'NEW' not in text


def test_some_of_the_judges(run):
    code, text = run(ALL, '--only', 'views,scenarios')
    assert code == 0, text
    assert '3 disagreements' in text and 'opinfo.py' not in text


def test_no_judges(tool, tmp_path):
    with pytest.raises(SystemExit) as left:
        tool.main(['--judges', str(tmp_path)])
    assert 'no opinfo.py, views.py, autograd_semantics.py in' in str(
        left.value)
    assert 'JUDGES=' in str(left.value)


@pytest.mark.skipif(os.name == 'nt', reason='the stand-in is a shell script')
def test_a_python_without_torch(tool, tmp_path):
    python = tmp_path / 'python'
    python.write_text('#!/bin/sh\necho "No module named torch" >&2\nexit 1\n',
                      encoding='utf-8')
    python.chmod(0o755)
    with pytest.raises(SystemExit) as left:
        tool.environment(str(python))
    assert 'No module named torch' in str(left.value)
    assert '`make test` does not need it' in str(left.value)


def test_a_judge_that_fails(run, tool, tmp_path):
    (tmp_path / 'judges' / 'views.py').write_text('1 / 0', encoding='utf-8')
    with pytest.raises(SystemExit, match='(?s)views.py.*ZeroDivisionError'):
        run(ALL)


def test_the_environment_is_one_that_setup_makes(tool):
    setup = load('setup')
    assert os.path.basename(setup.VENV) == '.venv'
    setup.choose('conformance')
    assert Path(setup.VENV).joinpath(*tool.PYTHON.parts[-2:]).parts[-3:] == (
        '.venv-conformance', *tool.PYTHON.parts[-2:])
    assert os.path.dirname(setup.STAMP) == setup.VENV
    needs = Path(setup.ROOT, *setup.INPUTS).read_text(encoding='utf-8')
    assert 'torch==2.13.0' in needs
    ignored = (ROOT / '.gitignore').read_text(encoding='utf-8')
    assert '/.venv-conformance/' in ignored


def test_make_names_the_folder_and_the_python():
    rules = (ROOT / 'Makefile').read_text(encoding='utf-8')
    assert '--judges $(JUDGES)' in rules and "--python '$(TORCH)'" in rules
