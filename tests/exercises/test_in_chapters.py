"""Each chapter asks its exercises, to the letter, and answers none."""

import ast
import json
import textwrap

import pytest

from course import exercises, runner
from course.export import read_cells

ALL = exercises.load()


def notebook(root, exercise):
    """The chapter's file; a skip only while chapters are being added."""
    folder = root / "chapters"
    found = list(folder.glob(f"{exercise.chapter:02d}_*.ipynb"))
    if not found:
        written = len(list(folder.glob("*.ipynb")))
        chapters = len({e.chapter for e in ALL})
        assert written < chapters, f"no chapter for {exercise.id}"
        pytest.skip(f"chapter {exercise.chapter} is not written yet")
    return found[0]


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_chapter_holds_statement_and_stub(root, exercise):
    cells = read_cells(notebook(root, exercise))
    texts = [c.source for c in cells if c.kind == "markdown"]
    assert any(exercise.statement in t for t in texts), exercise.statement
    stubs = [c.source.rstrip() for c in cells if "exercise" in c.tags]
    assert exercise.stub in stubs
    place = next(i for i, c in enumerate(cells)
                 if c.source.rstrip() == exercise.stub)
    assert any(f'check("{exercise.id}")' in c.source
               for c in cells[place + 1:] if c.kind == "code")


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_chapter_shows_the_stub_s_verdict(root, exercise):
    text = notebook(root, exercise).read_text(encoding="utf-8")
    assert f"{exercise.id} is not answered yet" in text


def solution_body(exercise):
    """The solution's lines below its signature and docstring."""
    function = ast.parse(exercise.solution).body[-1]
    lines = exercise.solution.split("\n")[function.body[0].lineno - 1:]
    return textwrap.dedent("\n".join(lines)).strip()


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        if value and all(isinstance(v, str) for v in value):
            yield "".join(value)
        for inner in value:
            yield from strings(inner)


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_answer_is_nowhere_in_the_chapter(root, exercise):
    """Not in a cell, an output, a metadata field or an attachment."""
    path = notebook(root, exercise)
    body = solution_body(exercise)
    body = "".join(body.split())
    book = json.loads(path.read_text(encoding="utf-8"))
    for text in strings(book):
        assert body not in "".join(text.split())
    for cell in read_cells(path):
        if "exercise" in cell.tags:
            assert cell.source.rstrip() in {e.stub for e in ALL}


@pytest.mark.parametrize("number", sorted({e.chapter for e in ALL}))
def test_an_exercise_is_checked_without_the_experiments(root, number):
    """What exported cells use, they import: `course check 08.1` runs them
    and leaves the cells between them out."""
    asked = exercises.load(number)
    found = runner.check_notebook(notebook(root, asked[0]), asked,
                                  {e.id for e in asked})
    assert {v["kind"] for v in found} == {"unanswered"}, found
