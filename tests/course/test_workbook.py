"""`course start`: a workbook in which the reader's code becomes a library."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import course
from course import (cli, completion, exercises, export, progress, runner,
                    workbook)
from course.exercises.parts import PARTS

SOURCE = Path(course.__file__).parents[1]
WITH_PARTS = [e for e in exercises.load() if e.id in PARTS]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return workbook.start(tmp_path_factory.mktemp("made") / "book")


@pytest.fixture
def book(fresh, tmp_path, monkeypatch):
    root = tmp_path / "book"
    shutil.copytree(fresh, root)
    monkeypatch.chdir(root)
    return root


def course_says(capsys, *args, code=0):
    assert cli.main(list(args)) == code
    return capsys.readouterr().out


def notebook(root, number):
    return workbook.chapter_paths(root)[number]


def fill(path, ident, source):
    """Write a function into the cell where its stub stands, as a reader
    would: the cell is found by what the stub raises."""
    words = f'raise NotImplementedError("exercise {ident}")'
    data = json.loads(path.read_text(encoding="utf-8"))
    cell = next(c for c in data["cells"] if c["cell_type"] == "code"
                and words in "".join(c["source"]))
    rows = "".join(cell["source"]).split("\n")
    at = next(i for i, row in enumerate(rows) if words in row)
    whole = ast.parse("\n".join(rows))
    node = next(n for n in ast.walk(whole) if isinstance(n, ast.FunctionDef)
                and n.lineno <= at + 1 <= n.end_lineno)
    indent = " " * node.col_offset
    new = [indent + row if row else row
           for row in source.rstrip("\n").split("\n")]
    if "library" not in ident:  # with what it imports
        new = source.rstrip("\n").split("\n")
    rows[export.first_line(node) - 1:node.end_lineno] = new
    cell["source"] = "\n".join(rows)
    path.write_text(json.dumps(data), encoding="utf-8", newline="\n")


def solve(root, number):
    for exercise in exercises.load(number):
        fill(notebook(root, number), exercise.id, exercise.solution)
        if exercise.id in PARTS:
            fill(notebook(root, number), f"{exercise.id} in the library",
                 workbook.part_text(exercise))


def test_it_begins_empty(fresh):
    assert [p.name for p in sorted((fresh / "lamina").glob("*.py"))] == [
        "__init__.py"]
    assert workbook.find(fresh / "chapters") == fresh
    for number, path in workbook.chapter_paths(fresh).items():
        assert {p.state for p in workbook.places(path)} <= {"open"}
        text = path.read_text(encoding="utf-8")
        assert not any(c.get("outputs") for c in json.loads(text)["cells"])


@pytest.mark.parametrize("exercise", WITH_PARTS, ids=lambda e: e.id)
def test_a_part_is_taken_out_and_nothing_else(fresh, exercise):
    """Signature and docstring stay; the body is one line."""
    cells = export.read_cells(notebook(fresh, exercise.chapter))
    _, _, node = workbook.locate(cells, PARTS[exercise.id].function)
    _, whole = workbook.reference_part(exercise)
    assert ast.dump(node.args) == ast.dump(whole.args)
    assert ast.get_docstring(node) == ast.get_docstring(whole)
    assert len(node.body) == 1 + (ast.get_docstring(node) is not None)
    assert workbook.is_open(node, exercise.id)
    assert not workbook.is_open(whole, exercise.id)


@pytest.mark.parametrize("exercise", WITH_PARTS, ids=lambda e: e.id)
def test_a_part_answers_its_exercise(exercise):
    """The library's own function, asked the exercise's question."""
    import importlib

    from course import checker
    from course.exercises import parts

    name, = [p.stem[3:] for p in (SOURCE.parent / "chapters").glob(
        f"{exercise.chapter:02d}_*.ipynb")]
    names = vars(importlib.import_module(f"lamina.{name}"))
    function = parts.answer(exercise, names)
    found = checker.examine(exercise, function)
    assert found.passed, str(found)
    found = checker.examine_part(exercise, names)
    assert found.kind == "taken" and "is the reference's" in str(found)
    args = checker.samples(exercise)[0]
    assert "=" not in parts.shown(exercise, args).replace("dtype=int64", "") \
        .replace("device=", "")


def test_filled_with_the_solutions_it_is_the_library(book, root):
    """Byte for byte, chapter by chapter. test_checkpoints.py runs each
    chapter's tests on these bytes."""
    whole = export.build(root / "chapters")
    names = [p.stem for p in sorted((root / "chapters").glob("*.ipynb"))]
    for count, name in enumerate(names, 1):
        before = workbook.reach(book)[0]
        assert before in (count - 1, count)     # or it has no part
        solve(book, count)
        reached, _ = workbook.reach(book)
        assert reached >= count
        if count not in (1, 3, len(names)):
            continue
        count = workbook.grow(book)
        due = {f"{n[3:]}.py": whole[f"{n[3:]}.py"] for n in names[:count]}
        due["__init__.py"] = export.init_text(names[:count]).encode()
        assert export.present(book / "lamina") == due
    assert export.present(book / "lamina") == whole
    assert {r.whose for r in workbook.overview(book)[1]} == {"reference"}


OWN = '''\
def pack(value):
    """Mine."""
    bits, = struct.unpack("=I", struct.pack("=f", value))
    return struct.pack("=H", to_bfloat16(bits))
'''


def test_the_library_is_the_reader_s_own(book, capsys):
    """A part calls the reader's answer, which is exported with it."""
    path, exercise = notebook(book, 1), exercises.find("01.3")
    assert "01.3 in the library is still open" in course_says(
        capsys, "check", "01.3", code=1)
    mine = exercise.solution + "# mine\n"
    fill(path, "01.3", mine)
    fill(path, "01.3 in the library", OWN)
    out = course_says(capsys, "check", "01.3")
    assert "01.3 in the library is right: BFloat16.pack agrees" in out
    assert "next to write: wrap (01.4)" in out
    fill(path, "01.4 in the library",
         workbook.part_text(exercises.find("01.4")))
    assert "lamina/ holds chapter 1" in course_says(capsys, "export")
    assert "lamina/ is what the 1 chapters export" in course_says(
        capsys, "export", "--check")
    text = (book / "lamina" / "storage.py").read_text(encoding="utf-8")
    assert "# mine" in text and '"""Mine."""' in text
    assert "01       Storage          1 of 6     1 yours, 1 reference" in (
        course_says(capsys, "status"))
    code = ("from course import begin; begin('02_strides'); import lamina; "
            "print(lamina.__file__); from lamina.storage import bfloat16, wrap; "
            "print(wrap(bfloat16, 0.1))")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=book / "chapters", text=True,
        capture_output=True, env=os.environ | {"PYTHONPATH": str(SOURCE)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(book / "lamina" / "__init__.py"), "0.10009765625"]
    course_says(capsys, "take", "01")
    assert [p.state for p in workbook.places(path)] == ["reference"] * 2
    assert "# mine" not in (book / "lamina" / "storage.py").read_text(
        encoding="utf-8")


def test_a_name_that_the_chapter_has_given_away(book, capsys):
    """Chapter 2 has an is_contiguous of its own."""
    assert not workbook.is_free(exercises.find("02.1"))
    course_says(capsys, "take", "01-02")
    path = notebook(book, 2)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(
        "if 0 in geometry.shape:", "return is_contiguous(*geometry[:2])\\n"
        "    if 0 in geometry.shape:", 1), encoding="utf-8")
    assert cli.main(["export"]) == 1
    assert "is_row_major calls is_contiguous, and in the library that is" in (
        capsys.readouterr().err)


def test_a_wrong_part_is_shown_as_it_is_called(book, capsys):
    course_says(capsys, "take", "01")
    fill(notebook(book, 2), "02.1 in the library", '''\
def is_row_major(geometry):
    """Mine."""
    return 0 in geometry.shape or (
        geometry.strides == row_major(geometry.shape).strides)
''')
    out = course_says(capsys, "check", "02.1", code=1)
    assert "02.1 in the library is not right yet" in out
    assert "smallest failing input  is_row_major(Geometry((" in out
    assert "This compares the strides of all dimensions" in out
    assert progress.load()["02.1 in the library"]["last"] == "value"


def test_an_open_part_stops_only_what_calls_it(book, capsys):
    course_says(capsys, "take", "01")
    exercise = exercises.find("02.4")
    fill(notebook(book, 2), "02.4", exercise.solution)
    out = course_says(capsys, "check", "02", code=1)
    assert "02.4 is right" in out
    assert "02.1 in the library is still open" in out


def test_a_layer_that_is_not_there_yet(book, capsys):
    out = course_says(capsys, "check", "03.1", code=1)
    assert "needs chapter 01, and your library does not reach it" in out
    assert "`course take 01`" in out


def test_start_anywhere(book, capsys):
    out = course_says(capsys, "take", "01-02", "03")
    assert "lamina/ holds chapters 1 to 3; next to write: meet" in out
    assert "04.1 is not answered yet" in course_says(
        capsys, "check", "04.1", code=1)
    assert "took" not in course_says(capsys, "take", "3")


def test_reset_keeps_a_backup(book, capsys):
    path = notebook(book, 1)
    start = path.read_bytes()
    course_says(capsys, "take", "01")
    taken = path.read_bytes()
    out = course_says(capsys, "reset", "01")
    assert path.read_bytes() == start != taken
    kept = [book / row.split(": ")[1] for row in out.splitlines()
            if "as it was:" in row]
    assert [k.read_bytes() for k in kept] == [taken]
    path.unlink()
    assert cli.main(["take", "01"]) == 1
    assert "`course reset 01` brings it back" in capsys.readouterr().err
    course_says(capsys, "reset", "01")
    assert path.read_bytes() == start


def test_next_goes_from_answer_to_library(book, capsys):
    assert course_says(capsys, "next").startswith("01.1 Read an integer")
    for ident in ("01.1", "01.2"):
        progress.store(progress.load() | {ident: {"passed": "2026-01-01"}})
    out = course_says(capsys, "next")
    assert out.startswith("01.3") and "Then write BFloat16.pack" in out
    progress.store(progress.load() | {"01.3": {"passed": "2026-01-01"}})
    assert "Its place in the library is open: write BFloat16.pack" in (
        course_says(capsys, "next"))
    fill(notebook(book, 1), "01.3 in the library",
         workbook.part_text(exercises.find("01.3")))
    assert course_says(capsys, "next").startswith("01.4")


def test_the_solution_holds_the_library_s_function(book, capsys):
    out = course_says(capsys, "solution", "02.1")
    assert "def is_contiguous" in out and "def is_row_major" in out


@pytest.mark.parametrize("args, words", [
    (["take", "04"], "this is no workbook"),
    (["reset", "04"], "this is no workbook"),
])
def test_outside_a_workbook(tmp_path, monkeypatch, capsys, args, words):
    monkeypatch.chdir(tmp_path)
    assert cli.main(args) == 1
    assert words in capsys.readouterr().err


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
    assert cli.main(["start", str(tmp_path)]) == 1
    assert "not empty" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_files_of_one_s_own_in_the_library_are_kept(book, capsys):
    (book / "lamina" / "storage.py").write_text("x = 1\n", encoding="utf-8")
    assert cli.main(["take", "01"]) == 1
    assert "move it away first" in capsys.readouterr().err


def test_the_map_is_drawn(book):
    drawn = course.status()
    assert drawn.svg.startswith("<svg") and "Storage" in drawn.svg
    assert repr(drawn).startswith("chapter")
    import xml.dom.minidom

    xml.dom.minidom.parseString(drawn.svg)


def test_the_map_outside_a_workbook(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    out = course_says(capsys, "status")
    assert "Strides" in out and "in lamina" not in out


def test_what_the_shell_completes():
    found = completion.candidates(cli.parser())
    assert "02.1" in found["check"][1] and "--upto" in found["export"][1]
    for shell in ("bash", "zsh", "fish"):
        text = completion.script(shell, cli.parser())
        assert all(name in text for name in found)
    bash = shutil.which("bash")
    if bash is None or os.name == "nt":
        pytest.skip("no bash")
    script = completion.script("bash", cli.parser()) + (
        'COMP_WORDS=(course hint 02.); COMP_CWORD=2; _course; '
        'echo "${COMPREPLY[@]}"; COMP_WORDS=(course sta); COMP_CWORD=1; '
        '_course; echo "${COMPREPLY[@]}"')
    done = subprocess.run([bash, "-c", script], capture_output=True,
                          text=True)
    rows = done.stdout.splitlines()
    assert rows[0].split()[:2] == ["02.1", "02.2"]
    assert set(rows[1].split()) == {"start", "status"}


# In a notebook of the workbook


TOOLS = """
import io, contextlib, json, sys, types, warnings
from course import checker, export, runner, workbook
main = types.ModuleType("__main__")
sys.modules["__main__"] = main

def run(number, *, until=None, times=1):
    path = workbook.chapter_paths(workbook.find())[number]
    for cell, tree, source in runner.parse(path):
        if until and until in source:
            return
        if runner.is_needed(cell, tree):
            for _ in range(times):
                runner.run_cell({"label": cell.label, "source": source,
                                 "raises": False}, main.__dict__)

def check(ident):
    found = checker.check(ident)
    print(found.kind, "|", found)
"""


def in_notebook(book, code, code_is=0):
    done = subprocess.run(
        [sys.executable, "-c", TOOLS + code], cwd=book / "chapters",
        text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)})
    assert done.returncode == code_is, done.stderr
    return done.stdout


def test_a_check_in_the_notebook(book):
    """Both functions in one verdict; the second run of a cell does no
    harm; after a restart nothing is there, and the verdict says so."""
    workbook.take(book, 1)
    out = in_notebook(book, "check('02.1')")
    assert out.startswith("missing | 02.1 is not answered yet")
    assert "After a restart of the kernel" in out
    out = in_notebook(book, "run(2, until='def sliced', times=2)\n"
                      "check('02.1')")
    assert out.startswith("reference | 02.1 wants your own function")
    out = in_notebook(book, "run(2, until='def is_contiguous(self', times=2)\n"
                      "check('02.1')")
    assert out.startswith("unanswered | 02.1 is not answered yet")
    assert "02.1 in the library is still open: write is_row_major" in out
    assert "It may call your is_contiguous" not in out
    fill(notebook(book, 2), "02.1 in the library",
         workbook.part_text(exercises.find("02.1")))
    out = in_notebook(book, "run(2, until='def is_contiguous(self')\n"
                      "check('02.1')")
    assert out.startswith("taken | 02.1 in the library is the reference's")


def test_begin_in_a_workbook_brings_the_library_up_to_date(book):
    out = in_notebook(book, """
try:
    run(2)
except runner.CheckError as error:
    print(error)
workbook.take(workbook.find(), 1)
from course import begin
begin("02_strides")
import lamina
print(lamina.__file__, hasattr(lamina, "Storage"), hasattr(lamina, "zeros"))
""")
    assert "your library does not reach it yet" in out
    assert out.split()[-3:] == [str(book / "lamina" / "__init__.py"),
                                "True", "False"]
    broken = notebook(book, 1)
    text = broken.read_text(encoding="utf-8")
    broken.write_text(text.replace("class Storage:", "class Storage"),
                      encoding="utf-8")
    os.utime(broken, (2e9, 2e9))
    out = in_notebook(book, "from course import begin; begin('02_strides')")
    assert "lamina/ stays as it was" in out and "syntax error" in out


@pytest.mark.parametrize("number", [2, 6])
def test_what_is_taken_is_found_where_it_stands(book, number):
    """Chapter 6 gives an exercise and a function of its own one name."""
    for chapter in range(1, number + 1):
        workbook.take(book, chapter)
    workbook.grow(book)
    asked = exercises.load(number)
    found = runner.check_notebook(notebook(book, number), asked,
                                  {e.id for e in asked})
    assert {v["id"]: v["kind"] for v in found} == {
        f"{e.id} in the library" if e.id in PARTS else e.id:
        "taken" if e.id in PARTS else "unanswered" for e in asked}
