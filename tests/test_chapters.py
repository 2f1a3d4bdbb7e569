"""The notebooks as they are stored. That their outputs are true is nbval's
part, which runs each of them: see [tool.pytest.ini_options]."""

import json
import re
from pathlib import Path

import pytest

CHAPTERS = Path(__file__).resolve().parent.parent / 'chapters'
NAMES = [
    '01_storage', '02_strides', '03_dispatch', '04_broadcasting',
    '05_reductions', '06_matmul', '07_scalar', '08_autograd', '09_nn',
    '10_optim', '11_training',
]
TAGS = {'export', 'exercise', 'raises-exception', 'nbval-ignore-output',
        'hide-input', 'hide-output', 'remove-input', 'remove-output'}


def test_the_chapters_are_these():
    assert sorted(path.stem for path in CHAPTERS.glob('*.ipynb')) == NAMES


@pytest.fixture(scope='module', params=NAMES)
def chapter(request):
    """A chapter's name and its notebook."""
    text = (CHAPTERS / f'{request.param}.ipynb').read_text(encoding='utf-8')
    return request.param, json.loads(text)


def code_cells(notebook):
    return [cell for cell in notebook['cells']
            if cell['cell_type'] == 'code']


def tags(cell):
    return set(cell['metadata'].get('tags', []))


def source(cell):
    return ''.join(cell['source'])


def test_metadata(chapter):
    _, notebook = chapter
    assert (notebook['nbformat'], notebook['nbformat_minor']) == (4, 5)
    assert notebook['metadata'] == {
        'kernelspec': {'display_name': 'Python 3', 'language': 'python',
                       'name': 'python3'},
        'language_info': {'name': 'python'}}
    for cell in code_cells(notebook):
        assert tags(cell) <= TAGS, source(cell)


def test_it_begins_with_a_title_and_the_checkpoint(chapter):
    name, notebook = chapter
    assert re.match(r'# \w', source(notebook['cells'][0]))
    first = code_cells(notebook)[0]
    assert f'begin("{name}")' in source(first)
    assert 'export' not in tags(first)


def test_it_exports_and_asks(chapter):
    _, notebook = chapter
    kinds = [tags(cell) for cell in code_cells(notebook)]
    assert any('export' in kind for kind in kinds)
    assert any('exercise' in kind for kind in kinds)
    assert not any({'export', 'exercise'} <= kind for kind in kinds)


def test_lines_fit_the_page(chapter):
    _, notebook = chapter
    wide = [line for cell in code_cells(notebook)
            for line in source(cell).splitlines() if len(line) > 79]
    assert wide == []


def test_every_error_is_meant(chapter):
    _, notebook = chapter
    for cell in code_cells(notebook):
        failed = any(output['output_type'] == 'error'
                     for output in cell['outputs'])
        assert failed == ('raises-exception' in tags(cell)), source(cell)


def test_the_outputs_name_no_machine(chapter):
    _, notebook = chapter
    for cell in code_cells(notebook):
        stored = json.dumps(cell['outputs'])
        found = re.search(r'/(home|Users|root|tmp|usr)/|site-packages'
                          r'|ipykernel_\d|\b0x[0-9a-f]{8,}', stored)
        assert not found, (source(cell), found)


def test_no_two_test_files_have_one_name():
    """They are all imported by their names alone."""
    names = [path.stem for path in Path(__file__).parent.rglob('*.py')
             if path.name != 'conftest.py']
    assert sorted(names) == sorted(set(names))
