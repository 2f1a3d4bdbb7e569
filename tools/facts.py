"""What the book says about PyTorch's files, compared with PyTorch.

book/pytorch-facts.toml has every fact, and says what can be checked.

    python tools/facts.py --python /path/to/python    of an installed PyTorch
    python tools/facts.py --write                     the tables in the book
"""

import argparse
import json
import mmap
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / 'book' / 'pytorch-facts.toml'
MAP = ROOT / 'book' / 'pytorch-map.md'
PICTURE = ROOT / 'book' / '_static' / 'one-call.svg'
HEADING = '## Where this lives in PyTorch'
MARKS = '<!-- facts: {} -->', '<!-- end of facts -->'


@dataclass(frozen=True)
class Fact:
    """A file of PyTorch, names in it, and what they are."""

    chapter: str
    file: str
    names: tuple
    what: str
    checked: str
    ours: tuple = ()
    commit: str = ''


def load(path=FACTS):
    """(version, facts) of the data file."""
    data = tomllib.loads(path.read_text(encoding='utf-8'))
    version = data.pop('version')
    data.pop('path', None)
    return version, [
        Fact(chapter, **{key: tuple(value) if isinstance(value, list)
                         else value for key, value in entry.items()})
        for chapter, entries in data.items() for entry in entries]


# ---- tables -----------------------------------------------------------------

def address(version, file):
    return f'https://github.com/pytorch/pytorch/blob/v{version}/{file}'


def code(names):
    return ', '.join(f'`{name}`' for name in names)


def table(version, facts):
    """The facts as a table in Markdown."""
    lines = ['| PyTorch | what it is | here |', '|---|---|---|']
    for fact in facts:
        lines.append(
            f'| [`{fact.file}`]({address(version, fact.file)})<br>'
            f'{code(fact.names)} | {fact.what} | {code(fact.ours)} |')
    return '\n'.join(lines)


def section(version, facts):
    """The text of a chapter's cell."""
    return (f'{HEADING}\n\n'
            f'Compare what you have built with the original, PyTorch '
            f'{version}. Each line has a\nfile of its source, names to '
            f'search for in that file, and at the right what\nplays their '
            f'part in this chapter. One or two are enough for an evening.'
            f'\n\n{table(version, facts)}')


def notebooks():
    """{module: path} of the chapters."""
    return {path.stem[3:]: path
            for path in sorted((ROOT / 'chapters').glob('*.ipynb'))}


def sections_of(book):
    """The cells of a notebook that begin with the heading."""
    return [cell for cell in book['cells'] if cell['cell_type'] == 'markdown'
            and ''.join(cell['source']).startswith(HEADING)]


def in_map(text, version, facts):
    """The map's text with its tables made anew."""
    def fresh(match):
        chosen = [fact for fact in facts if fact.chapter == match[1]]
        start, end = MARKS
        return (f'{start.format(match[1])}\n\n{table(version, chosen)}\n\n'
                f'{end}')
    pattern = re.escape(MARKS[0]).replace(r'\{\}', r'(\w+)')
    return re.sub(pattern + '.*?' + re.escape(MARKS[1]), fresh, text,
                  flags=re.S)


def write():
    version, facts = load()
    for module, path in notebooks().items():
        book = json.loads(path.read_text(encoding='utf-8'))
        text = section(version, [f for f in facts if f.chapter == module])
        cells = sections_of(book)
        if len(cells) != 1:
            raise SystemExit(f'{path.name}: {len(cells)} cells begin with '
                             f'{HEADING!r}; one has to')
        cells[0]['source'] = text.splitlines(keepends=True)
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False,
                                   sort_keys=True) + '\n',
                        encoding='utf-8', newline='\n')
    MAP.write_text(in_map(MAP.read_text(encoding='utf-8'), version, facts),
                   encoding='utf-8', newline='\n')
    PICTURE.write_text(picture(stations()), encoding='utf-8', newline='\n')


# ---- the picture of one call ------------------------------------------------

LEFT, RIGHT, WIDTH, HEIGHT, STEP = 8, 412, 360, 44, 72


def stations(path=FACTS):
    """The stations of one call, in order."""
    return tomllib.loads(path.read_text(encoding='utf-8'))['path']


def picture(path):
    """The way of one call in PyTorch and in Lamina, side by side, as SVG.

    Colours are those of the page around it, so that it suits both modes.
    """
    height = 40 + STEP * len(path)
    words = '; '.join(
        f'{at["what"]}: in PyTorch {at["theirs"]}, in Lamina '
        f'{at.get("ours", "nothing")}' for at in path)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" '
             f'role="img" viewBox="0 0 780 {height}" '
             f'aria-labelledby="one-call-title one-call-words">',
             '<title id="one-call-title">The way of abs(x)</title>',
             f'<desc id="one-call-words">{escape(words)}</desc>',
             f'<text class="head" x="{LEFT}" y="20">PyTorch</text>',
             f'<text class="head" x="{RIGHT}" y="20">Lamina</text>']
    for column, side in (LEFT, 'theirs'), (RIGHT, 'ours'):
        last = None
        for number, at in enumerate(path):
            y = 50 + STEP * number
            if side not in at:
                continue
            if last is not None:
                x, way = column + WIDTH - 24, ' class="back"' * at.get('back', 0)
                parts.append(f'<path{way} d="M{x} {last + HEIGHT}V{y - 7}"/>')
                parts.append(f'<path class="tip" d="M{x - 4} {y - 8}h8l-4 7z"/>')
            parts += station(column, y, at, side)
            last = y
    return '\n'.join([*parts, '</svg>', ''])


def station(x, y, at, side):
    """A box: what happens, and under it where."""
    second = at.get('file', '') if side == 'theirs' else ''
    middle = HEIGHT // 2 + 5
    yield (f'<rect class="{side}" x="{x}" y="{y}" width="{WIDTH}" '
           f'height="{HEIGHT}" rx="4"/>')
    yield (f'<text class="code" x="{x + 10}" '
           f'y="{y + (18 if second else middle)}">'
           f'{escape(at[side])}</text>')
    if second:
        yield f'<text class="file" x="{x + 10}" y="{y + 35}">{second}</text>'
    if side == 'theirs':
        yield f'<text class="what" x="{x}" y="{y - 8}">{at["what"]}</text>'


# ---- an installed PyTorch ---------------------------------------------------

# Where the wheel keeps what the repository has elsewhere.
PLACES = [
    ('aten/src/ATen/native/native_functions.yaml',
     'torchgen/packaged/ATen/native/native_functions.yaml'),
    ('aten/src/ATen/templates/', 'torchgen/packaged/ATen/templates/'),
    ('tools/autograd/', 'torchgen/packaged/autograd/'),
    ('aten/src/ATen/', 'torch/include/ATen/'),
    ('c10/', 'torch/include/c10/'),
    ('torch/headeronly/', 'torch/include/torch/headeronly/'),
    ('torch/csrc/', 'torch/include/torch/csrc/'),
    ('torch/', 'torch/'), ('torchgen/', 'torchgen/')]


def place(site, file):
    """The path in a wheel of a file of the repository, or None."""
    for ours, theirs in PLACES:
        if file.startswith(ours):
            return site / (theirs + file[len(ours):])
    return None


def stands_in(name, text):
    """Whether a name is in a text, as words of their own."""
    return re.search(rf'(?<!\w){re.escape(name)}(?!\w)', text) is not None


def compiled(name, library):
    """Whether a name is in a library: in a symbol or as a text.

    C++ writes a name into a symbol with its length before it, `3abs`;
    Microsoft's compiler puts it between `?` and `@`. The second half of a
    structured kernel is a class: TORCH_IMPL_FUNC(mul_out) in the file.
    """
    name = name.encode()
    for symbol in name, b'structured_' + name:
        if library.find(b'%d%s' % (len(symbol), symbol)) >= 0:
            return True
    start = library.find(name)
    while start >= 0:
        around = (library[start - 1:start]
                  + library[start + len(name):start + len(name) + 1])
        if not re.search(rb'\w', around):
            return True
        start = library.find(name, start + 1)
    return False


def failure(fact, site, libraries):
    """What is wrong with a fact, in words; '' if nothing is."""
    if fact.checked == 'wheel':
        path = place(site, fact.file)
        if path is None or not path.is_file():
            return 'no such file in the wheel'
        text = path.read_text(encoding='utf-8')
        lost = [n for n in fact.names if not stands_in(n, text)]
    elif fact.checked == 'library':
        if not any(each.find(b'/' + fact.file.encode()) >= 0
                   for each in libraries):
            return 'compiled into no library'
        lost = [n for n in fact.names
                if not any(compiled(n, each) for each in libraries)]
    else:
        lost = []
    return f'not there: {", ".join(lost)}' if lost else ''


def find_torch(python):
    """(version, site-packages) of the PyTorch that a Python has."""
    program = ('import importlib.util as u; s = u.find_spec("torch"); '
               'print(s.origin if s else "")')
    found = subprocess.run([python, '-c', program], capture_output=True,
                           encoding='utf-8')
    origin = found.stdout.strip()
    if found.returncode or not origin:
        raise SystemExit(f'{python} has no torch{found.stderr}')
    folder = Path(origin).parent
    text = (folder / 'version.py').read_text(encoding='utf-8')
    version = re.search(r"__version__ = '([^'+]+)", text)[1]
    return version, folder.parent


def check(python):
    """The number of facts that an installed PyTorch contradicts."""
    version, facts = load()
    theirs, site = find_torch(python)
    if theirs != version:
        print(f'The book speaks of PyTorch {version}; this is {theirs}.')
    paths = [path for path in sorted((site / 'torch' / 'lib').iterdir())
             if re.fullmatch(r'(lib)?(torch_cpu|torch_python|c10)'
                             r'\.(so|dylib|dll)', path.name)]
    wrong = 0
    files = [path.open('rb') for path in paths]
    libraries = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                 for file in files]
    for fact in facts:
        if why := failure(fact, site, libraries):
            wrong += 1
            print(f'{fact.chapter}: {fact.file}: {why}')
    count = {kind: sum(fact.checked == kind for fact in facts)
             for kind in ('wheel', 'library', 'source')}
    print(f'{len(facts)} facts, {wrong} wrong; {count["wheel"]} seen in '
          f'files, {count["library"]} in libraries, {count["source"]} not '
          f'to be seen in an installation')
    return wrong + (theirs != version)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--python', metavar='PATH',
                        help='a Python that has torch')
    parser.add_argument('--write', action='store_true',
                        help='write the tables into the book')
    args = parser.parse_args()
    if args.write:
        write()
    elif args.python:
        sys.exit(bool(check(args.python)))
    else:
        parser.error('give --python or --write')


if __name__ == '__main__':
    main()
