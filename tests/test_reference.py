"""Every public name has an example that is run, and a cell it comes from."""

import inspect
import re
import subprocess
import sys
import types

import pytest

import lamina
from course import reference

ROOT = reference.ROOT


def listed():
    """(names, note) of each entry that the pages of book/api list."""
    return [entry for path in sorted((ROOT / 'book/api').glob('*.md'))
            for entry in reference.listed(path.read_text('utf-8'))]


def test_the_pages_list_every_name_once():
    names = [name for line, _ in listed() for name in line]
    assert sorted(names) == sorted(set(names))
    assert set(names) == set(reference.entries())


def test_a_note_stands_where_there_is_no_docstring():
    for (first, *_), note in listed():
        entry = reference.entries()[first]
        said = [o.doc for o in entry.operators] or [entry.doc]
        assert bool(note) != all(said), first


def test_every_name_is_an_entry():
    known = reference.by_name()
    wanted = {name for name in dir(lamina) if not name.startswith('_')}
    wanted |= {f'Tensor.{name}' for name in dir(lamina.Tensor)
               if not name.startswith('_')}
    inside = [name for name in sys.modules if re.match(
        r'lamina\.(nn|optim|utils|autograd|cuda|accelerator|backends)\.',
        name)]
    assert len(inside) > 10
    for module in inside:
        wanted |= {f'{module[7:]}.{name}'
                   for name in sys.modules[module].__all__}
    wanted |= {f'linalg.{name}' for name in dir(lamina.linalg)}
    wanted = {name for name in wanted if not isinstance(
        reference.walk(name), types.ModuleType)}
    assert sorted(wanted - set(known)) == []
    assert len(known) > 1000


def test_a_class_of_nn_is_public_or_a_base():
    nn = lamina.nn
    for name, cls in vars(nn).items():
        if inspect.isclass(cls) and issubclass(cls, nn.Module) and (
                f'nn.{name}' not in reference.by_name()):
            assert name in reference.BASES or name.startswith('_')


@pytest.mark.parametrize('name, place', [
    ('unsqueeze', 'unsqueeze(Tensor(a) self'),  # of a list of schemas
    ('sin', 'elementwise('),            # in a loop
    ('Tensor.backward', 'def tensor_backward'),
    ('nn.GELU', 'GELU = '),
    ('optim.SGD', 'class SGD'),
    ('float32', 'float32 = '),
])
def test_places(name, place):
    assert place in reference.place_of(reference.entries()[name]).source


# Made of pieces where they are declared, as in f"logical_{name}".
COMPOSED = {
    'logical_and': '"and"', 'logical_or': '"or"', 'logical_xor': '"xor"',
    'var_mean': 'with_mean', 'std_mean': 'with_mean',
    **{f'Tensor.{name}_': name for name in (
        'as_strided', 'squeeze', 'swapaxes', 'swapdims', 't', 'transpose',
        'unsqueeze')}}


def test_every_entry_has_a_cell_that_names_it():
    for entry in reference.entries().values():
        source = reference.place_of(entry).source
        words = {name.rpartition('.')[2] for name in entry.names}
        words.add(getattr(entry.object, '__name__', ''))
        thing = getattr(entry.object, 'fget', None)
        words.add(getattr(thing, '__name__', ''))
        if entry.name in COMPOSED:
            words = {COMPOSED[entry.name]}
        assert any(re.search(rf'(?<!\w){word}(?!\w)', source)
                   for word in words if word), entry.name


def test_every_entry_has_an_example():
    examples = reference.examples()
    firsts = {line[0] for line, _ in listed()}
    assert sorted(firsts - set(examples)) == []
    assert sorted(set(examples) - firsts) == [], 'of names that are not there'


# Examples declare operators, which the other tests must not see.
RUN = f'''
import doctest, sys
sys.path.insert(0, {str(ROOT / "src")!r})
from course import reference
runner = doctest.DocTestRunner()
parser = doctest.DocTestParser()
for name, text in reference.examples().items():
    space = {{"__name__": "__main__"}}
    exec(reference.PREAMBLE, space)
    runner.run(parser.get_doctest(text, space, name, name, 0))
print(runner.summarize().attempted, "run")
sys.exit(runner.failures > 0)
'''


def test_the_examples():
    done = subprocess.run([sys.executable, '-c', RUN], capture_output=True,
                          encoding='utf-8')
    assert done.returncode == 0, done.stdout + done.stderr
    attempted = int(re.search(r'(\d+) run', done.stdout)[1])
    assert attempted > 1000


def test_an_example_that_is_wrong_fails(tmp_path):
    (tmp_path / 'one.txt').write_text('add\n    >>> 1 + 1\n    3\n', 'utf-8')
    assert reference.examples(tmp_path) == {'add': '>>> 1 + 1\n3'}
    wrong = RUN.replace('reference.examples()', '{"add": ">>> 1 + 1\\n3\\n"}')
    done = subprocess.run([sys.executable, '-c', wrong], capture_output=True,
                          encoding='utf-8')
    assert done.returncode == 1 and 'Expected' in done.stdout


def test_two_examples_of_a_name_are_refused(tmp_path):
    (tmp_path / 'one.txt').write_text(
        'add\n    >>> 1\n    1\n\nadd\n    >>> 2\n    2\n', 'utf-8')
    with pytest.raises(ValueError, match='a second example of add'):
        reference.examples(tmp_path)


def test_namespaces_that_two_chapters_fill():
    assert lamina.utils.checkpoint.checkpoint
    assert lamina.utils.data.DataLoader is lamina.DataLoader
