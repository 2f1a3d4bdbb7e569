"""Export: chapters/*.ipynb to src/lamina/, and nothing else.

`build` is a pure function from notebooks to {path: bytes}. Writing and
comparing are separate, so that an error in any chapter writes nothing.
A notebook is read as the JSON that it is: nbformat would cost more time
than the whole export.
"""

import ast
import difflib
import io
import json
import keyword
import os
import re
import sys
import tempfile
import textwrap
import tokenize
from dataclasses import dataclass, field, replace
from pathlib import Path

VERSION = "0.1.0"
WIDTH = 79
MARK = "by `course export`;"
FILE_NAME = re.compile(r"(\d\d)_([a-z][a-z0-9_]*)\Z")
HEADING = re.compile(r"#\s+(.+?)\s*#*\s*\Z")
MAGIC = re.compile(r"\s*(?:[\w\s,.]+=\s*)?(?:%%?|!!?)\s*[A-Za-z./~]")
HELP = re.compile(r"\s*(?:\?{1,2}[\w.]+|[\w.]+\?{1,2})\s*\Z")


# What was read


@dataclass(frozen=True)
class Cell:
    """A cell with its place: both numbers count from 1."""

    number: int
    code_number: int
    kind: str
    tags: frozenset
    source: str

    @property
    def label(self):
        if self.kind != "code":
            return f"cell {self.number} ({self.kind} cell)"
        return f"cell {self.number} (code cell {self.code_number})"


@dataclass(frozen=True)
class Chapter:
    path: Path
    number: int
    module: str
    cells: tuple

    @property
    def name(self):
        return self.path.stem

    def exported(self):
        return [c for c in self.cells if "export" in c.tags]


@dataclass(frozen=True)
class Problem:
    """One thing to mend, and where it is."""

    notebook: str
    message: str
    cell: Cell | None = None
    line: int | None = None

    def __str__(self):
        place = [self.notebook]
        if self.cell is not None:
            place.append(self.cell.label)
        if self.line is not None:
            place.append(f"line {self.line}")
        return f"{', '.join(place)}: {self.message}"


class ExportError(Exception):
    """The chapters cannot be exported; nothing was written."""

    def __init__(self, problems):
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def find_root(start=None):
    """The folder that holds chapters/: upward from start, else ours."""
    start = Path.cwd() if start is None else Path(start).resolve()
    for folder in (start, *start.parents):
        if folder.name == "chapters" and any(folder.glob("*.ipynb")):
            return folder.parent
        if (folder / "chapters").is_dir():
            return folder
    own = Path(__file__).resolve().parents[2]
    if (own / "chapters").is_dir():
        return own
    raise FileNotFoundError(
        f"no folder chapters/ in {start} or above it: "
        "run this inside the course's folder")


def read_cells(path):
    """The cells of a notebook; ValueError says why it is not one."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error.reason} at byte "
                         f"{error.start}): save it again in Jupyter") from None
    try:
        book = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON at line {error.lineno}, column "
                         f"{error.colno} ({error.msg}): restore the file, "
                         "or open and save it in Jupyter") from None
    cells = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no list of cells: a notebook of format 4 is wanted")
    found, code = [], 0
    for number, cell in enumerate(cells, 1):
        kind = cell.get("cell_type", "?")
        code += kind == "code"
        source = cell.get("source", "")
        source = source if isinstance(source, str) else "".join(source)
        source = source.replace("\r\n", "\n").replace("\r", "\n")
        tags = frozenset(cell.get("metadata", {}).get("tags", ()))
        found.append(Cell(number, code, kind, tags, source))
    return tuple(found)


def read_chapters(folder):
    """All chapters in order, and the problems met while reading."""
    chapters, problems = [], []
    for path in sorted(Path(folder).glob("*.ipynb")):
        match = FILE_NAME.match(path.stem)
        if not match or keyword.iskeyword(match[2]):
            problems.append(Problem(path.name, (
                "the name is not of the form NN_name.ipynb "
                "(two digits, then a module's name, as in 02_strides.ipynb): "
                "rename the file, or move it out of chapters/")))
            continue
        try:
            cells = read_cells(path)
        except ValueError as error:
            problems.append(Problem(path.name, str(error)))
            cells = ()
        chapters.append(Chapter(path, int(match[1]), match[2], cells))
    for what in ("number", "module"):
        seen = {}
        for chapter in chapters:
            first = seen.setdefault(getattr(chapter, what), chapter)
            if first is not chapter:
                problems.append(Problem(chapter.path.name, (
                    f"has the same {'name' if what == 'module' else what} "
                    f"as {first.path.name}: rename one of them")))
    return chapters, problems


# One cell


@dataclass
class Piece:
    """An exported cell: its imports taken out, the rest as (line, text).

    `public` is its own list of public names, `__all__`, if it has one.
    """

    cell: Cell
    tree: ast.Module
    imports: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    public: list | None = None


@dataclass(frozen=True)
class Import:
    """One imported name; `block` is its source if it carries a comment."""

    module: str
    name: str | None
    alias: str | None
    cell: Cell
    line: int
    block: str | None = None

    @property
    def bound(self):
        return self.alias or self.name or self.module.partition(".")[0]

    @property
    def target(self):
        if self.name is None and self.alias is None:
            return self.bound, None
        return self.module, self.name


def parse_cell(chapter, cell):
    """The cell's tree; a Problem is raised as ExportError."""
    try:
        tree = ast.parse(cell.source)
        compile(cell.source, cell.label, "exec", dont_inherit=True)
        return tree
    except SyntaxError as error:
        line = error.lineno or 1
        rows = cell.source.split("\n")
        text = rows[line - 1] if line <= len(rows) else ""
        if MAGIC.match(text) or HELP.match(text):
            message = (f"{text.strip()!r} is IPython's, not Python's: take "
                       "the line out, or take the tag `export` away")
        else:
            message = f"syntax error: {error.msg}"
            if text.strip():
                message += f": {text.strip()}"
        raise ExportError([
            Problem(chapter.path.name, message, cell, line)]) from None
    except ValueError as error:  # null bytes
        raise ExportError([
            Problem(chapter.path.name, str(error), cell, 1)]) from None


def comment_lines(source):
    """Numbers of the lines on which a comment stands."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {t.start[0] for t in tokens if t.type == tokenize.COMMENT}


def first_line(node):
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def take_apart(chapter, cell):
    """Split a cell into hoisted imports and the lines that stay."""
    tree = parse_cell(chapter, cell)
    # a semicolon at the end only tells Jupyter to show no value
    rows = cell.source.rstrip().removesuffix(";").split("\n")
    comments = comment_lines(cell.source)
    inside = {line for node in tree.body
              for line in range(first_line(node), node.end_lineno + 1)}
    alone = {line for line in comments if line not in inside}
    piece, gone = Piece(cell, tree), set()
    for node in tree.body:
        if is_all(node):
            piece.public = listed_names(chapter, cell, node)
            gone.update(range(node.lineno, node.end_lineno + 1))
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        span = range(node.lineno, node.end_lineno + 1)
        if any(other is not node and other.lineno <= span[-1]
               and other.end_lineno >= span[0] for other in tree.body):
            raise ExportError([Problem(chapter.path.name, (
                "an import shares its line with another statement: "
                "give it a line of its own"), cell, node.lineno)])
        start = span[0]
        while start - 1 in alone:
            start -= 1
        block = None
        if comments & set(range(start, span[-1] + 1)):
            block = "\n".join(rows[start - 1:span[-1]])
        gone.update(range(start, span[-1] + 1))
        for name in node.names:
            if isinstance(node, ast.Import):
                found = (name.name, None, name.asname)
            else:
                module = "." * node.level + (node.module or "")
                found = (module, name.name, name.asname)
            piece.imports.append(Import(*found, cell, node.lineno, block))
    piece.lines = tidy(tree, rows, gone)
    return piece


def is_all(node):
    return isinstance(node, ast.Assign) and any(
        getattr(target, "id", None) == "__all__" for target in node.targets)


def listed_names(chapter, cell, node):
    """The names in `__all__ = [...]`."""
    try:
        names = list(ast.literal_eval(node.value))
    except (ValueError, TypeError):
        names = [None]
    if not all(isinstance(name, str) for name in names):
        raise ExportError([Problem(
            chapter.path.name, "__all__ must be a list of names in quotes",
            cell, node.lineno)])
    return names


def tidy(tree, rows, gone):
    """The lines that stay, two blank lines around top-level definitions."""
    owner = {}
    for node in tree.body:
        for line in range(first_line(node), node.end_lineno + 1):
            owner.setdefault(line, node)
    kept = [(n, text) for n, text in enumerate(rows, 1) if n not in gone]

    def is_def(node):
        return isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)

    out, i = [], 0
    while i < len(kept):
        number, text = kept[i]
        if number in owner or text.strip():
            out.append(kept[i])
            i += 1
            continue
        j = i
        while (j < len(kept) and kept[j][0] not in owner
               and not kept[j][1].strip()):
            j += 1
        if out and j < len(kept):
            before = owner.get(out[-1][0])
            after = next((owner[n] for n, _ in kept[j:] if n in owner), None)
            wide = is_def(before) or (before is not None and is_def(after))
            joined = kept[j][0] - out[-1][0] - 1 != j - i
            count = 2 if wide else min(j - i, 2) if joined else j - i
            out += [(number, "")] * count
        i = j
    return out


# One module


def defined(body):
    """(name, node) of each definition at the top level, in order."""
    for node in body:
        if isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from ((n, node) for n in target_names(target))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from ((n, node) for n in target_names(node.target))
        elif sys.version_info >= (3, 12) and isinstance(node, ast.TypeAlias):
            yield node.name.id, node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(node, part, []):
                    branch = (inner.body if isinstance(
                        inner, ast.ExceptHandler) else [inner])
                    yield from defined(branch)


def target_names(target):
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Starred):
        yield from target_names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from target_names(element)


def public_names(pieces):
    """The module's `__all__`: its own list, or each name without a `_`."""
    listed = [n for p in pieces if p.public is not None for n in p.public]
    if any(p.public is not None for p in pieces):
        return listed
    names = {}
    for piece in pieces:
        for name, _ in defined(piece.tree.body):
            if not name.startswith("_"):
                names.setdefault(name)
        for node in piece.tree.body:
            if isinstance(node, ast.Delete):
                for target in node.targets:
                    names.pop(getattr(target, "id", None), None)
    return list(names)


def uses(node, name):
    """Does a definition build on the name that it redefines?"""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return bool(node.decorator_list)
    return any(isinstance(n, ast.Name) and n.id == name
               and isinstance(n.ctx, ast.Load) for n in ast.walk(node))


def listed_problems(chapter, pieces):
    """Names in `__all__` that are not there."""
    known = {n for p in pieces for n, _ in defined(p.tree.body)}
    for piece in pieces:
        for name in piece.public or ():
            if name not in known:
                near = nearest(name, known)
                yield Problem(
                    chapter.path.name, f"__all__ lists {name!r}, which no "
                    "exported cell defines" + (
                        f"; the nearest name is {near!r}" if near else ""),
                    piece.cell)


def redefinitions(chapter, pieces):
    """A name that two top-level statements define, the later unaware.

    A decorated definition registers itself, and `f = wrap(f)` builds on
    the former: these are repeated on purpose. So are the branches of an
    `if` or a `try`.
    """
    seen = {i.bound: (i.cell, i) for p in pieces for i in p.imports}
    for piece in pieces:
        for node in piece.tree.body:
            for name, _ in defined([node]):
                if name == "_":
                    continue
                first = seen.setdefault(name, (piece.cell, node))
                if first[1] is not node and not uses(node, name):
                    where = ("above in this cell" if first[0] is piece.cell
                             else f"in {first[0].label}")
                    how = ("imported" if isinstance(first[1], Import)
                           else "defined")
                    yield Problem(chapter.path.name, (
                        f"{name!r} is already {how} {where}: rename one, "
                        "or export only one of them"), piece.cell, node.lineno)


def import_problems(chapter, pieces, names_of):
    """Imports that the library's layers do not allow.

    names_of: {module: names} of the earlier chapters, None where a
    module's names cannot be known from its text.
    """
    own = chapter.module
    for piece in pieces:
        for node in ast.walk(piece.tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue

            def problem(message, node=node, cell=piece.cell):
                return Problem(
                    chapter.path.name, message, cell, node.lineno)

            if isinstance(node, ast.Import):
                for name in node.names:
                    top, _, layer = name.name.partition(".")
                    if top == "lamina" and not (
                            name.asname and layer in names_of):
                        yield problem(
                            f"`import {name.name}` depends on the layers to "
                            "come: import from one earlier layer, as in "
                            "`from lamina.storage import Storage` or "
                            "`import lamina.storage as storage`")
                continue
            if node.level:
                yield problem(
                    "a relative import does not work in a notebook: "
                    f"write `from lamina.{node.module or 'name'} import ...`")
                continue
            if any(name.name == "*" for name in node.names):
                yield problem(f"`from {node.module} import *` hides where a "
                              "name comes from: name what is needed")
                continue
            top, _, layer = node.module.partition(".")
            if top != "lamina":
                continue
            layer = layer.partition(".")[0]
            if not layer:
                yield problem(
                    "`from lamina import ...` depends on the layers to come: "
                    "name the layer, as in `from lamina.storage import "
                    "Storage`")
            elif layer == own:
                yield problem(f"lamina.{own} is this chapter itself: its "
                              "names are there without an import")
            elif layer not in names_of:
                below = ", ".join(names_of) or "none"
                yield problem(
                    f"lamina.{layer} is not a layer below {chapter.name} "
                    f"(those are: {below})")
            elif names_of[layer] is not None:
                known = names_of[layer]
                for name in node.names:
                    if name.name not in known:
                        near = nearest(name.name, known)
                        yield problem(
                            f"lamina.{layer} has no {name.name!r}"
                            + (f"; the nearest name is {near!r}" if near
                               else " in an exported cell"))


def nearest(name, names):
    found = difflib.get_close_matches(name, names, 1)
    return found[0] if found else None


def all_names(pieces):
    """Every name that a module's text binds, or None if it cannot say."""
    names = {i.bound for p in pieces for i in p.imports}
    for piece in pieces:
        for node in ast.walk(piece.tree):
            if isinstance(node, ast.Name) and node.id == "globals":
                return None
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
        names.update(n for n, _ in defined(piece.tree.body))
    return None if "__getattr__" in names else names


def group(module):
    top = module.partition(".")[0]
    if top == "__future__":
        return 0
    if top == "lamina":
        return 3
    return 1 if top in sys.stdlib_module_names else 2


def import_text(imports):
    """The import statements of a module, merged, grouped and sorted."""
    entries, merged, blocks = set(), {}, {}
    for item in imports:
        if item.block is not None:
            blocks.setdefault(item.block, item)
    covered = {(i.module, i.name, i.alias) for i in imports if i.block}
    for item in imports:
        if item.block or (item.module, item.name, item.alias) in covered:
            continue
        if item.name is None:
            text = f"import {item.module}"
            text += f" as {item.alias}" if item.alias else ""
            entries.add((group(item.module), 0, item.module, text))
        else:
            text = item.name + (f" as {item.alias}" if item.alias else "")
            merged.setdefault(item.module, set()).add(text)
    for module, names in merged.items():
        text = f"from {module} import {', '.join(sorted(names))}"
        if len(text) > WIDTH:
            inner = textwrap.fill(
                ", ".join(sorted(names)) + ",", WIDTH, initial_indent="    ",
                subsequent_indent="    ", break_long_words=False)
            text = f"from {module} import (\n{inner}\n)"
        entries.add((group(module), 1, module, text))
    for block, item in blocks.items():
        entries.add(
            (group(item.module), int(item.name is not None), item.module,
             block))
    text, last = "", None
    for entry in sorted(entries):
        if last is not None and entry[0] != last:
            text += "\n"
        text += entry[3] + "\n"
        last = entry[0]
    return text


def import_conflicts(chapter, pieces):
    seen = {}
    for piece in pieces:
        for item in piece.imports:
            first = seen.setdefault(item.bound, item)
            if first.target != item.target:
                yield Problem(chapter.path.name, (
                    f"the name {item.bound!r} is imported from "
                    f"{item.module!r} here and from {first.module!r} in "
                    f"{first.cell.label}: give one of them another name"),
                    item.cell, item.line)


def title(chapter):
    """The first heading of the first markdown cells, as plain text."""
    for cell in chapter.cells:
        if cell.kind != "markdown":
            continue
        for row in cell.source.split("\n"):
            match = HEADING.match(row)
            if match:
                text = match[1].replace("\\", "\\\\").replace('"""', "'''")
                return text if text[-1] in ".?" else text + "."
    return None


def docstring(heading, source):
    note = textwrap.fill(f"Exported from {source} {MARK} edit the chapter, "
                         "not this file.", WIDTH, break_on_hyphens=False)
    heading = textwrap.fill(heading, WIDTH, initial_indent='"""')
    return f'{heading}\n\n{note}\n"""\n'


def all_text(names):
    line = f"__all__ = [{', '.join(map(json.dumps, names))}]"
    if len(line) <= WIDTH:
        return line + "\n"
    return "__all__ = [\n" + "".join(f'    "{n}",\n' for n in names) + "]\n"


def module_text(chapter, pieces, heading):
    """The module's source, and for each of its lines the (cell, line)."""
    head = docstring(heading, f"chapters/{chapter.path.name}")
    imports = import_text([i for p in pieces for i in p.imports])
    future, rest = split_future(imports)
    for part in (future, rest, all_text(public_names(pieces))):
        if part:
            head += "\n" + part
    rows = [(row, None) for row in head.split("\n")[:-1]]
    for piece in pieces:
        if piece.lines:
            rows += [("", None)] * 2
            rows += [(text, (piece.cell, n)) for n, text in piece.lines]
    text = "\n".join(row for row, _ in rows) + "\n"
    return text, [place for _, place in rows]


def split_future(imports):
    first, _, rest = imports.partition("\n\n")
    if first.startswith("from __future__") and rest:
        return first + "\n", rest
    return "", imports


def undefined_names(chapter, pieces, text, places, names_of):
    """Names that no exported cell defines, inside functions too."""
    from pyflakes import checker, messages

    elsewhere = {}
    for cell in chapter.cells:
        if cell.kind == "code" and "export" not in cell.tags:
            for name in bound_names(cell.source):
                elsewhere.setdefault(name, cell)
    bad = (messages.UndefinedName, messages.UndefinedLocal)
    tree = ast.parse(text)
    found = checker.Checker(tree, chapter.path.name).messages
    for message in sorted(found, key=lambda m: (m.lineno, m.col)):
        place = places[message.lineno - 1]
        if not isinstance(message, bad):
            continue
        name = message.message_args[0]
        if name in elsewhere:
            hint = (f"{elsewhere[name].label} defines it, but is not "
                    "exported: tag it `export`, or import the name in an "
                    "exported cell")
        else:
            layer = next((m for m, names in names_of.items()
                          if names and name in names), None)
            hint = (f"did you mean `from lamina.{layer} import {name}`?"
                    if layer else "no exported cell defines or imports it "
                    "before this line")
        cell, line = place or (None, None)
        yield Problem(chapter.path.name, f"the name {name!r} is not defined: "
                      f"{hint}", cell, line)


def bound_names(source):
    """Names that a cell which is not exported binds, magics or not."""
    rows = ["pass" if MAGIC.match(r) and not r[:1].isspace() else r
            for r in source.split("\n")]
    try:
        tree = ast.parse("\n".join(rows))
    except (SyntaxError, ValueError):
        return set()
    names = {name for name, _ in defined(tree.body)}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update((n.asname or n.name).partition(".")[0]
                         for n in node.names)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(
                    inner.ctx, ast.Store):
                names.add(inner.id)
    return names


def tag_problems(chapter):
    for cell in chapter.exported():
        def problem(message, cell=cell):
            return Problem(chapter.path.name, message, cell)

        if cell.kind != "code":
            yield problem("only a code cell can be exported: take the tag "
                          "`export` away")
        elif "exercise" in cell.tags:
            yield problem("a cell is either `export` or `exercise`: the "
                          "library must not hold a stub")
        elif "raises-exception" in cell.tags:
            yield problem("a cell that raises cannot be exported: the "
                          "library could not be imported")


def export_chapter(chapter, names_of):
    """(text, pieces, problems) of one chapter's module."""
    problems = list(tag_problems(chapter))
    pieces = []
    for cell in chapter.exported():
        if cell.kind == "code" and cell.source.strip():
            try:
                pieces.append(take_apart(chapter, cell))
            except ExportError as error:
                problems += error.problems
    heading = title(chapter)
    if heading is None:
        problems.append(Problem(
            chapter.path.name, "no heading `# Title` in a markdown cell: the "
            "module's first line comes from it"))
    if not problems:
        problems += import_problems(chapter, pieces, names_of)
        problems += import_conflicts(chapter, pieces)
        problems += redefinitions(chapter, pieces)
        problems += listed_problems(chapter, pieces)
        text, places = module_text(chapter, pieces, heading)
        problems += undefined_names(chapter, pieces, text, places, names_of)
        return text, pieces, problems
    return None, pieces, problems


# The package


def shadowed(chapters, pieces_of):
    """Public names of two layers: `lamina.name` could be only one."""
    seen = {}
    for chapter in chapters:
        names = set(public_names(pieces_of[chapter.name]))
        for piece in pieces_of[chapter.name]:
            for name, node in defined(piece.tree.body):
                if name not in names:
                    continue
                first = seen.setdefault(name, chapter)
                if first is not chapter and not uses(node, name):
                    yield Problem(chapter.path.name, (
                        f"{name!r} is public in {first.path.name} already, "
                        f"and `lamina.{name}` can be only one of them: rename "
                        f"it, or make it private (_{name})"),
                        piece.cell, node.lineno)


def init_text(names):
    """src/lamina/__init__.py for the chapters named, in order."""
    modules = [name.partition("_")[2] for name in names]
    chapters = "".join(f'    "{name}",\n' for name in names)
    imports = "".join(f"from lamina.{m} import *\n" for m in modules)
    text = ('"""Lamina: a deep learning framework, one layer a chapter.\n\n'
            f"Exported from chapters/ {MARK} edit the chapters,\n"
            'not this file.\n"""\n\n')
    text += imports + ("\n" if imports else "")
    if "dispatch" in modules:
        text += ("from lamina.dispatch import functions as _functions\n\n")
    text += f'__version__ = "{VERSION}"\n'
    text += f"__chapters__ = (\n{chapters})\n" if names else (
        "__chapters__ = ()\n")
    if "dispatch" in modules:
        text += ("\n# An operator wins over a module or a kernel of its name."
                 "\nglobals().update(_functions)\n")
        find = ("    if name in _functions:  # declared after the import\n"
                "        return _functions[name]\n")
        also = ", *_functions"
    else:
        find = also = ""
    return text + f'''

def __getattr__(name):
{find}    import difflib

    near = difflib.get_close_matches(name, __dir__(), 1)
    raise AttributeError(
        f"module 'lamina' has no attribute {{name!r}}"
        + (f"; the nearest name is {{near[0]!r}}" if near else "")
        + ("" if name.startswith("__") else
           "; what is left out is told on the page 'Where Lamina differs'"))


def __dir__():
    return sorted({{*globals(){also}}})
'''


def build(folder, upto=None, prepare=None):
    """The library of chapters/: {path under lamina/: bytes}.

    upto: leave out the chapters with a greater number (a checkpoint).
    prepare: from a chapter to the one to export in its place. Raises ExportError with all problems of all chapters.
    """
    chapters, problems = read_chapters(folder)
    if upto is not None:
        numbers = [c.number for c in chapters]
        if upto not in numbers:
            raise ExportError([Problem(str(folder), (
                f"there is no chapter {upto}: the chapters are "
                + (", ".join(f"{n:02d}" for n in numbers) or "none")))])
        chapters = [c for c in chapters if c.number <= upto]
    if not chapters and not problems:
        raise ExportError([Problem(str(folder), "holds no chapter "
                                   "(NN_name.ipynb)")])
    if problems:
        raise ExportError(problems)
    files, names_of, pieces_of = {}, {}, {}
    for chapter in map(prepare, chapters) if prepare else chapters:
        text, pieces, found = export_chapter(chapter, names_of)
        problems += found
        names_of[chapter.module] = all_names(pieces)
        pieces_of[chapter.name] = pieces
        if text is not None:
            files[f"{chapter.module}.py"] = text.encode("utf-8")
    problems += shadowed(chapters, pieces_of)
    if problems:
        raise ExportError(problems)
    files["__init__.py"] = init_text([c.name for c in chapters]).encode()
    return dict(sorted(files.items()))


# Writing and comparing


def is_exported(data):
    """Did an export write these bytes? An empty file is nobody's work."""
    return not data.strip() or MARK.encode() in data[:600]


def present(target):
    """{path: bytes} of what stands in a folder, caches left aside."""
    target = Path(target)
    return {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts}


def write(files, target, strict=False):
    """Bring a folder to the files given, all or nothing.

    Modules of chapters that are gone are removed, but only if an export
    wrote them. A file of somebody's own in the place of an exported one
    is an error; with strict, so is any other file of somebody's own.
    Returns the paths that changed.
    """
    target = Path(target)
    if target.exists() and not target.is_dir():
        raise ExportError([Problem(str(target), "is a file, not a folder")])
    old = present(target)
    own = [p for p, data in old.items() if not is_exported(data)]
    foreign = own if strict else [p for p in own if p in files]
    if foreign:
        raise ExportError([
            Problem(str(target / p), "was not written by `course export`: "
                    "move it away first, it would be lost")
            for p in foreign])
    change = {p: d for p, d in files.items() if old.get(p) != d}
    stale = [p for p, d in old.items() if p not in files and p not in own
             and d.strip()]
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
            prefix=".lamina-", dir=target.parent) as temporary:
        ready = {}
        for i, (path, data) in enumerate(change.items()):
            ready[path] = Path(temporary) / str(i)
            ready[path].write_bytes(data)
        done = []
        try:
            for path, source in ready.items():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                done.append(path)
                os.replace(source, target / path)
            for path in stale:
                done.append(path)
                (target / path).unlink()
        except OSError:
            for path in done:
                if path in old:
                    (target / path).write_bytes(old[path])
                else:
                    (target / path).unlink(missing_ok=True)
            raise
    return sorted([*change, *stale])


def differences(files, target):
    """A unified diff from what stands in a folder to what is exported."""
    old = present(target) if Path(target).is_dir() else {}
    text = ""
    for path in sorted({*files, *old}):
        a, b = old.get(path), files.get(path)
        if a == b or (b is None and not a.strip()):
            continue
        name = f"{Path(target).name}/{path}"
        rows = list(difflib.unified_diff(
            *((d or b"").decode("utf-8", "replace").splitlines(True)
              for d in (a, b)),
            "/dev/null" if a is None else f"{name} (on disk)",
            "/dev/null" if b is None else f"{name} (from the chapters)"))
        if not rows:  # only an empty file, or line ends
            rows = [f"{name}: differs in its bytes only (line ends?)\n"]
        text += "".join(r if r.endswith("\n") else r + "\n" for r in rows)
    return text
