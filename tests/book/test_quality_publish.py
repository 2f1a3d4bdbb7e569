"""What publishes the book, and the buttons that only a published one has."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from book_build import ROOT, strict_build

WORKFLOWS = sorted((ROOT / '.github' / 'workflows').glob('*.yml'))


def schema(name, path):
    return subprocess.run(
        [sys.executable, '-m', 'check_jsonschema', '--builtin-schema', name,
         str(path)], capture_output=True, encoding='utf-8')


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.name)
def test_github_understands_the_workflow(path):
    done = schema('vendor.github-workflows', path)
    assert done.returncode == 0, done.stdout


def test_a_wrong_workflow_is_refused(tmp_path):
    wrong = WORKFLOWS[0].read_text('utf-8').replace('runs-on:', 'runs-in:')
    (tmp_path / 'wrong.yml').write_text(wrong, encoding='utf-8')
    assert schema('vendor.github-workflows',
                  tmp_path / 'wrong.yml').returncode == 1


def test_the_citation_can_be_read():
    done = schema('vendor.citation-file-format', ROOT / 'CITATION.cff')
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_major_version(path):
    used = re.findall(r'uses: *(\S+)', path.read_text('utf-8'))
    assert used
    for action in used:
        assert re.fullmatch(r'actions/[\w-]+@v\d+', action), action


# ---- launch buttons -------------------------------------------------------

@pytest.fixture
def book_with_a_notebook(small_book):
    notebook = small_book / 'book' / 'page.ipynb'
    (small_book / 'book' / 'page.md').unlink()
    notebook.write_text(json.dumps({
        'nbformat': 4, 'nbformat_minor': 5, 'metadata': {'kernelspec': {
            'name': 'python3', 'display_name': 'Python 3'},
            'language_info': {'name': 'python', 'pygments_lexer': 'python'}},
        'cells': [
            {'cell_type': 'markdown', 'id': 'title-cell', 'metadata': {},
             'source': '# Page'},
            {'cell_type': 'code', 'id': 'begin-cell', 'metadata': {},
             'execution_count': None, 'outputs': [],
             'source': 'from course import begin'}]}), encoding='utf-8')
    return small_book


def page_of(book, tmp_path):
    built = strict_build(book, tmp_path / 'out')
    assert built.code == 0, built.text
    return (built.html / 'book' / 'page.html').read_text('utf-8')


def test_a_published_book_opens_in_binder_and_colab(
        book_with_a_notebook, tmp_path, monkeypatch):
    monkeypatch.setenv('LAMINA_REPOSITORY', 'https://github.com/some/body')
    page = page_of(book_with_a_notebook, tmp_path)
    assert ('href="https://mybinder.org/v2/gh/some/body/launch'
            '?urlpath=lab/tree/book/page.ipynb"') in page
    assert ('href="https://colab.research.google.com/github/some/body'
            '/blob/launch/book/page.ipynb"') in page


def test_any_other_book_has_no_such_button(book_with_a_notebook, tmp_path):
    page = page_of(book_with_a_notebook, tmp_path)
    assert 'mybinder' not in page and 'colab' not in page
    assert 'github.com/executablebooks' not in page


def test_an_address_that_is_none_is_refused(small_book, tmp_path,
                                            monkeypatch):
    monkeypatch.setenv('LAMINA_REPOSITORY', 'some/body')
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code != 0
    assert 'must be like https://github.com/owner/name' in built.text


def test_colab_installs_the_course_first(tmp_path):
    nbformat = pytest.importorskip('nbformat')
    chapters = shutil.copytree(ROOT / 'chapters', tmp_path / 'chapters',
                               ignore=shutil.ignore_patterns('.*'))
    address = 'https://github.com/some/body'
    for _ in range(2):      # once is enough
        subprocess.run([sys.executable, ROOT / 'tools' / 'launch.py', address,
                        '--chapters', chapters], check=True)
    for path in sorted(chapters.glob('*.ipynb')):
        before = json.loads((ROOT / 'chapters' / path.name).read_text('utf-8'))
        after = json.loads(path.read_text('utf-8'))
        nbformat.validate(after)
        code = [cell for cell in after['cells'] if cell['cell_type'] == 'code']
        assert f'"lamina[course] @ git+{address}"' in code[0]['source'][-1]
        assert 'begin(' in ''.join(code[1]['source'])
        after['cells'].remove(code[0])
        assert after == before


def test_what_colab_installs_is_whole(tmp_path):
    """What pyproject.toml packs begins a chapter, with no folder around."""
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text('utf-8'))
    packed = ['*.py', *project['tool']['setuptools']['package-data']['*']]
    for path in (ROOT / 'src').rglob('*.*'):
        inside = path.relative_to(ROOT / 'src')
        if any(map(path.match, packed)) and 'egg-info' not in str(inside):
            (tmp_path / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / inside)
    done = subprocess.run(
        [sys.executable, '-c', 'from course import begin, check\n'
         'begin("02_strides")\nimport course\nprint(course.__file__)'],
        cwd=tmp_path, capture_output=True, encoding='utf-8',
        env={**os.environ, 'PYTHONPATH': str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
