"""A workbook: the chapters with parts of the library left open.

`course start` copies the chapters into a folder of the reader's and takes
out of the exported cells the functions that the exercises ask for
(exercises/parts.py). The folder's own package `lamina` is exported from
these notebooks: it holds the chapters up to the first one with an open
part. Nothing is kept of what was taken or written: whose a function is,
its code says.

    chapters/NN_name.ipynb    the reader's notebooks
    lamina/                   the reader's library, as far as it goes
    .lamina/progress.json     what was passed
    .lamina/backup/           notebooks as they were before a reset
"""

import ast
import datetime
import functools
import inspect
import json
import os
import symtable
import textwrap
from dataclasses import dataclass
from pathlib import Path

from course import exercises, export, progress
from course.exercises.parts import PARTS

README = """\
# Your Lamina

The notebooks in `chapters/` are yours: each one lacks the functions of the
library that its exercises ask for. What you write there becomes the package
`lamina/` beside them, chapter by chapter.

    course next            what to do now
    course check 02.1      check an answer, and its place in the library
    course hint 02.1       one step
    course take 04         the reference's functions for a chapter
    course reset 02        a chapter as it was at the start (keeps a backup)
    course status          what is done, and whose code each layer is
"""


class WorkbookError(Exception):
    """What cannot be done in a workbook, and what can."""


def reference():
    """The folder of the course itself."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "chapters").is_dir():
        raise WorkbookError(
            f"{root} does not hold the course's chapters: call `course` "
            "from the course's own environment, as `make setup` makes it")
    return root


def find(start=None):
    """The workbook at or above a folder, else None."""
    start = Path(start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if ((folder / "chapters").is_dir()
                and (folder / "lamina" / "__init__.py").is_file()):
            return folder
    return None


def need(start=None):
    root = find(start)
    if root is None:
        raise WorkbookError(
            "this is no workbook: `course start DIR` makes one; call "
            "`course` again from inside it")
    return root


# Functions in cells


def function_in(tree, name):
    """The node of a function in a cell, `Class.name` for a method."""
    body, node = tree.body, None
    for part in name.split("."):
        node = next((n for n in reversed(body) if isinstance(
            n, ast.FunctionDef | ast.ClassDef) and n.name == part), None)
        body = getattr(node, "body", ())
    return node if isinstance(node, ast.FunctionDef) else None


def locate(cells, name):
    """(place, cell, function) of an exported function; else None."""
    for i, cell in enumerate(cells):
        if name.rpartition(".")[2] not in cell.source:
            continue
        if "export" in cell.tags:
            try:
                node = function_in(ast.parse(cell.source), name)
            except (SyntaxError, ValueError):
                continue
            if node is not None:
                return i, cell, node
    return None


def first_line(node):
    """The first line below a function's signature and docstring."""
    words = ast.get_docstring(node, clean=False) is not None
    last = node.body[0].end_lineno if words else node.body[0].lineno - 1
    return last + 1


def emptied(source, node, ident):
    """A cell's source with one function's body taken out."""
    rows = source.split("\n")
    indent = " " * node.body[0].col_offset
    stub = f'{indent}raise NotImplementedError("{stub_words(ident)}")'
    return "\n".join([*rows[:first_line(node) - 1], stub,
                      *rows[node.end_lineno:]])


def stub_words(ident):
    return f"exercise {ident} in the library"


def is_open(node, ident):
    return stub_words(ident) in {
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}


def core(node):
    """What a function does, its docstring left aside."""
    body = node.body[ast.get_docstring(node) is not None:]
    return ast.dump(node.args), [ast.dump(n) for n in body]


@functools.cache
def reference_cells(number):
    path = next((reference() / "chapters").glob(f"{number:02d}_*.ipynb"))
    return path, export.read_cells(path)


def reference_part(exercise):
    """(cell, function) as the course has it."""
    found = locate(reference_cells(exercise.chapter)[1],
                   PARTS[exercise.id].function)
    return found[1:]


def is_reference(exercise, function):
    """Does a function read as the reference does?"""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        mine = ast.parse(source).body[0]
        return core(mine) == core(reference_part(exercise)[1])
    except (OSError, TypeError, SyntaxError, IndexError, AttributeError,
            WorkbookError):
        return False


def part_text(exercise):
    """The library's function, as its cell has it."""
    cell, node = reference_part(exercise)
    return textwrap.dedent("\n".join(cell.source.split("\n")[
        export.first_line(node) - 1:node.end_lineno]))


# Making one


def opened(path):
    """A chapter's notebook as JSON, its parts open, its outputs gone."""
    book = json.loads(path.read_text(encoding="utf-8"))
    cells = export.read_cells(path)
    for exercise in exercises.load(int(path.name[:2])):
        if exercise.id in PARTS:
            i, _, _ = locate(cells, PARTS[exercise.id].function)
            source = "".join(book["cells"][i]["source"])
            node = function_in(ast.parse(source), PARTS[exercise.id].function)
            set_source(book["cells"][i], emptied(source, node, exercise.id))
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return book


def set_source(cell, text):
    cell["source"] = text.splitlines(keepends=True)


def save(path, book):
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False,
                               sort_keys=True) + "\n",
                    encoding="utf-8", newline="\n")


def start(folder):
    """Make a workbook. An existing folder must be empty."""
    folder = Path(folder).resolve()
    source = reference() / "chapters"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WorkbookError(
            f"{folder} is there already, and not empty: name another "
            "folder, as in `course start my-lamina`")
    (folder / "chapters").mkdir(parents=True)
    for path in sorted(source.glob("*.ipynb")):
        save(folder / "chapters" / path.name, opened(path))
    (folder / "README.md").write_text(README, encoding="utf-8", newline="\n")
    grow(folder)
    return folder


# What is in it


@dataclass(frozen=True)
class Place:
    """A part in a workbook. state: open, yours, reference or missing."""

    exercise: exercises.Exercise
    state: str

    @property
    def function(self):
        return PARTS[self.exercise.id].function


def places(path):
    """The parts of a chapter's notebook, and what stands in them."""
    cells, found = export.read_cells(path), []
    for exercise in exercises.load(int(path.name[:2])):
        if exercise.id not in PARTS:
            continue
        at = locate(cells, PARTS[exercise.id].function)
        state = "missing"
        if at is not None:
            node = at[2]
            state = ("open" if is_open(node, exercise.id) else "reference"
                     if core(node) == core(reference_part(exercise)[1])
                     else "yours")
        found.append(Place(exercise, state))
    return found


def chapter_paths(root):
    return {int(m[1]): p for p in sorted((root / "chapters").glob("*.ipynb"))
            if (m := export.FILE_NAME.match(p.stem))}


def reach(root):
    """How many chapters from the first on have no open part, and the
    first part that is open, or None."""
    last = 0
    for number, path in chapter_paths(root).items():
        left = next((p for p in places(path)
                     if p.state in ("open", "missing")), None)
        if left is not None:
            return last, left
        last = number
    return last, None


def adopt(chapter):
    """The reader's answers that the exported cells call are exported too.

    So a part of the library can be one line that calls the answer to its
    exercise.
    """
    cells = list(chapter.cells)
    refuse_doubles(chapter)
    grown = True
    while grown:
        grown = False
        kept = [c for c in cells if "export" in c.tags]
        used = set().union(*map(wanted_names, kept))
        own = set().union(*map(bound_names, kept))
        for i, cell in enumerate(cells):
            if ("exercise" in cell.tags and bound_names(cell) & used - own
                    and "NotImplementedError(\"exercise " not in cell.source):
                tags = cell.tags - {"exercise"} | {"export"}
                cells[i] = export.replace(cell, tags=frozenset(tags))
                grown = True
    return export.replace(chapter, cells=tuple(cells))


def refuse_doubles(chapter):
    """A part calls an answer whose name the chapter has given away."""
    own = {name: cell for cell in chapter.cells if "export" in cell.tags
           for name in bound_names(cell)}
    for exercise in exercises.load(chapter.number):
        at = exercise.id in PARTS and locate(
            chapter.cells, PARTS[exercise.id].function)
        if not at or exercise.name not in own or core(at[2]) == core(
                reference_part(exercise)[1]):
            continue
        if exercise.name in called_names(at[2]):
            raise export.ExportError([export.Problem(
                chapter.path.name, f"{PARTS[exercise.id].function} calls "
                f"{exercise.name}, and in the library that is the chapter's "
                f"own, of {own[exercise.name].label}: write your code in "
                "place of the call", at[1], at[2].lineno)])


def called_names(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_free(exercise):
    """May a part call the answer: is its name the exercise's alone?"""
    return not any("export" in c.tags and exercise.name in bound_names(c)
                   for c in reference_cells(exercise.chapter)[1])


def wanted_names(cell):
    """The names that a cell looks up outside itself."""
    def globals_of(table):
        found = {s.get_name() for s in table.get_symbols()
                 if s.is_referenced() and (
                     s.is_global() or table.get_type() == "module")}
        return found.union(*map(globals_of, table.get_children()))

    try:
        return globals_of(symtable.symtable(cell.source, "", "exec"))
    except (SyntaxError, ValueError):
        return set()


def bound_names(cell):
    try:
        return {name for name, _ in export.defined(
            ast.parse(cell.source).body)}
    except (SyntaxError, ValueError):
        return set()


def built(root):
    """({path: bytes} of the reader's library, the chapters in it)."""
    count, _ = reach(root)
    if not count:
        return {"__init__.py": export.init_text([]).encode()}, 0
    return export.build(root / "chapters", count, adopt), count


def grow(root):
    """Write the reader's library as far as it goes: how many chapters."""
    files, count = built(root)
    export.write(files, root / "lamina", strict=True)
    for name in files:  # newer than the notebooks that they come from
        os.utime(root / "lamina" / name)
    return count


def is_stale(root, before=100):
    """Was a chapter before this one saved after the library was written?"""
    written = root / "lamina" / "__init__.py"
    return any(path.stat().st_mtime >= written.stat().st_mtime
               for number, path in chapter_paths(root).items()
               if number < before)


# Changing it


def backup(path):
    """Keep a notebook as it is now; where."""
    folder = path.parent.parent / ".lamina" / "backup"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    kept = folder / f"{path.stem}-{stamp}.ipynb"
    count = 1
    while kept.exists():
        count += 1
        kept = folder / f"{path.stem}-{stamp}-{count}.ipynb"
    kept.write_bytes(path.read_bytes())
    return kept


def reset(root, number):
    """Bring a chapter back to its start; where the old one is kept."""
    source, _ = reference_cells(number)
    path = chapter_paths(root).get(number, root / "chapters" / source.name)
    kept = backup(path) if path.exists() else None
    save(path, opened(source))
    return path, kept


def take(root, number):
    """Put the reference's functions into a chapter: [function, ...].

    Only functions change; the rest of the notebook stays the reader's.
    """
    path = chapter_paths(root).get(number)
    if path is None:
        raise WorkbookError(f"chapter {number:02d} has no notebook here: "
                            f"`course reset {number:02d}` brings it back")
    book = json.loads(path.read_text(encoding="utf-8"))
    taken = []
    for place in places(path):
        if place.state == "missing":
            raise WorkbookError(
                f"{path.name} has no exported cell that defines "
                f"{place.function}: `course reset {number:02d}` brings it "
                "back, and keeps a backup")
        if place.state != "reference":
            put(book, export.read_cells(path), place)
            taken.append(place.function)
    if taken:
        kept = backup(path)
        save(path, book)
        return taken, kept
    return [], None


def put(book, cells, place):
    """One function of the reference in the place of the reader's."""
    i, _, _ = locate(cells, place.function)
    source = "".join(book["cells"][i]["source"])
    mine = function_in(ast.parse(source), place.function)
    cell, node = reference_part(place.exercise)
    rows, new = source.split("\n"), cell.source.split("\n")
    set_source(book["cells"][i], "\n".join([
        *rows[:export.first_line(mine) - 1],
        *new[export.first_line(node) - 1:node.end_lineno],
        *rows[mine.end_lineno:]]))


# The map


@dataclass(frozen=True)
class Row:
    """A chapter on the map."""

    number: int
    title: str
    passed: int
    asked: int
    places: tuple
    inside: bool

    @property
    def whose(self):
        """Whose code the layer is, in words."""
        if not self.places:
            return "reference"
        count = {s: sum(p.state == s for p in self.places)
                 for s in ("yours", "reference", "open", "missing")}
        words = [f"{n} {s}" for s, n in count.items() if n]
        return words[0].split()[1] if len(words) == 1 else ", ".join(words)


def overview(start=None):
    """(the workbook or None, [Row of each chapter])."""
    root = find(start)
    home = root or export.find_root(start)
    data = progress.load(home)
    count = reach(root)[0] if root else None
    rows = []
    for number, path in chapter_paths(home).items():
        asked = exercises.load(number)
        heading = next((c.source.split("\n")[0].lstrip("# ") for c in
                        export.read_cells(path) if c.kind == "markdown"
                        and c.source.startswith("# ")), path.stem)
        rows.append(Row(
            number, heading.partition(":")[0],
            sum("passed" in data.get(e.id, {}) for e in asked), len(asked),
            tuple(places(path)) if root else (),
            count is None or number <= count))
    return root, rows


def upcoming(start=None):
    """The first exercise to do: (exercise, "answer" or "library"), or
    None when all is done."""
    root = find(start)
    data = progress.load(root or start)
    for exercise in exercises.load():
        open_ = []
        if root and exercise.id in PARTS:
            path = chapter_paths(root).get(exercise.chapter)
            open_ = path and [p for p in places(path)
                              if p.exercise is exercise
                              and p.state in ("open", "missing")]
            if not open_ and open_ is not None:
                continue    # the library holds an answer to it
        if "passed" not in data.get(exercise.id, {}):
            return exercise, "answer"
        if open_:
            return exercise, "library"
    return None
