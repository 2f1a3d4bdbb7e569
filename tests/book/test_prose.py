"""What the text tells a reader to type exists."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import codespell_lib
import pytest

from book_build import ROOT, markdown

OURS = {'lamina', 'course'}
PYTORCHS = set(re.findall(r'^file = "(.*)"$', (
    ROOT / 'book' / 'pytorch-facts.toml').read_text('utf-8'), re.M))
# Named in the text as what Lamina is compared with, and not installed.
NOT_OURS = {'torch'}


def pieces_of_code(text):
    """The lines of fenced blocks, and the code spans."""
    fence = re.compile(r'^(`{3,}|~{3,})[^\n]*\n(.*?)^\1', re.M | re.S)
    for _, block in fence.findall(text):
        yield from (line.strip() for line in block.splitlines())
    for _, span in re.findall(r'(`+)(.+?)\1(?!`)', fence.sub('', text),
                              re.S):
        yield ' '.join(span.split())


SOURCES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md',
           *sorted((ROOT / 'book').glob('*.md')),
           *sorted((ROOT / 'chapters').glob('*.ipynb'))]
PIECES = [(path.name, piece) for path in SOURCES
          for piece in pieces_of_code(markdown(path))]


def found(pattern):
    """(page, match) for each piece of code that begins with the pattern."""
    return sorted({(page, match.group()) for page, piece in PIECES
                   if (match := re.match(pattern, piece))})


def test_the_reader_of_prose_sees_code():
    text = 'Type `make book`, or\n\n```sh\ncourse check 02.1\n```\n'
    assert set(pieces_of_code(text)) == {'make book', 'course check 02.1'}
    assert len(found(r'course \w+')) > 5 and len(found(r'make \w+')) > 5


def course_help(*words):
    return subprocess.run(
        [sys.executable, '-m', 'course', *words, '--help'], cwd=ROOT,
        capture_output=True, encoding='utf-8',
        env={**os.environ, 'PYTHONPATH': str(ROOT / 'src')})


@pytest.mark.parametrize('command', sorted(
    {match for _, match in found(r'course +[a-z-]+')}))
def test_command_course(command):
    name = command.split()[1]
    done = course_help(name)
    assert done.returncode == 0, done.stderr
    for _, whole in found(rf'course +{name}\b.*'):
        for option in re.findall(r'(?<=\s)--?[a-z][a-z-]*', whole):
            assert option in done.stdout, f'{whole}: no option {option}'


@pytest.mark.skipif(not shutil.which('make'), reason='make is not here')
@pytest.mark.parametrize('command', sorted(
    {match for _, match in found(r'make +[a-z]+')}))
def test_command_make(command):
    done = subprocess.run(['make', '-n', *command.split()[1:]], cwd=ROOT,
                          capture_output=True, encoding='utf-8')
    assert done.returncode == 0, done.stderr


IMPORTS = found(r'(from +[\w.]+ +import +[\w, *]+|import +[\w.]+)')


@pytest.mark.parametrize('page, line', IMPORTS)
def test_import(page, line):
    words = line.replace(',', ' ').split()
    module = words[1]
    top = module.split('.')[0]
    if top in NOT_OURS:
        return
    loaded = importlib.import_module(module)
    for name in words[3:] if words[0] == 'from' else []:
        if name == 'as':
            break
        if name == '*' or hasattr(loaded, name):
            continue
        importlib.import_module(f'{module}.{name}')


def test_files_that_are_named():
    missing = [f'{page}: {name}' for page, name in found(
        r'(chapters|src|tests|tools|book|bench)/[\w./-]*\w\.\w+')
        if not (ROOT / name).exists()
        and name not in PYTORCHS]
    assert missing == []


def test_the_example_of_the_readme(capsys):
    text = markdown(ROOT / 'README.md')
    blocks = re.findall(r'^```python\n(.*?)^```', text, re.M | re.S)
    assert len(blocks) == 1
    exec(blocks[0], {})
    assert '2' in capsys.readouterr().out


# ---- spelling -------------------------------------------------------------

# American words that are British too, or names: a linker's, a file's, an option's, a
# parameter's of PyTorch, a word in the title of a paper.
BRITISH_TOO = {'program', 'programs', 'writable', 'math', 'LICENSE', 'COLOR',
               'centered', 'maximize', 'Optimization', 'Regularization',
               'optimization', 'regularization', 'mold', 'story'}
# What codespell takes for a slip of the pen: a function's parameter, a slip
# that is made on purpose.
MEANT = 'fro,alhpa,notin,nd'


def words_alone(text):
    """Markdown without its code, formulas and addresses."""
    for piece in (r'^(`{3,}|~{3,})[^\n]*\n.*?^\1', r'(`+).+?\1(?!`)',
                  r'\$\$?[^$]+\$\$?', r'https?://\S+', r'\]\([^)]*\)'):
        text = re.sub(piece, ' ', text, flags=re.M | re.S)
    return text


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ''


def prose():
    """(name, text) of all that is written in words."""
    for path in SOURCES + sorted((ROOT / 'book/api').glob('*.md')):
        yield path.name, words_alone(markdown(path))
    for path in sorted((ROOT / 'src').rglob('*.py')):
        yield path.name, words_alone('\n\n'.join(docstrings(path)))
    from course.exercises import load
    for item in load():
        yield item.id, words_alone('\n\n'.join(
            [item.title, item.statement, *item.hints]))


def american():
    """{'color': 'colour', ...}, from codespell's list of British words."""
    path = Path(codespell_lib.__file__).with_name('data')
    path /= 'dictionary_en-GB_to_en-US.txt'
    pairs = [line.split('->') for line in
             path.read_text(encoding='utf-8').splitlines()]
    british = {word for word, _ in pairs}
    return {theirs.strip(): word for word, list_ in pairs
            for theirs in list_.split(',')
            if theirs.strip() and theirs.strip() not in british}


def test_the_spelling_is_british():
    ours = american()
    assert ours['color'] == 'colour' and ours['initialize'] == 'initialise'
    wrong = {f'{name}: {word} is spelt {ours[word.lower()]}'
             for name, text in prose() for word in re.findall(r'\b[A-Za-z]+\b', text)
             if word.lower() in ours and word not in BRITISH_TOO}
    assert sorted(wrong) == []


def test_no_word_is_misspelt(tmp_path):
    text = dict(prose())
    assert len(text) > 100
    for name, words in {**text, 'proof': 'This is teh proof.'}.items():
        (tmp_path / f'{name}.txt').write_text(words, encoding='utf-8')
    done = subprocess.run(
        [sys.executable, '-m', 'codespell_lib', '-L', MEANT, str(tmp_path)],
        capture_output=True, encoding='utf-8')
    wrong = [line.removeprefix(f'{tmp_path}{os.sep}')
             for line in done.stdout.splitlines()]
    assert wrong == ['proof.txt:1: teh ==> the'], wrong + [done.stderr]
