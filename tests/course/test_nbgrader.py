"""The chapters as nbgrader's assignments."""

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from course import checker, exercises, nbgrader, notebooks

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


@pytest.fixture(scope="module", params=CHAPTERS, ids=lambda p: p.stem)
def chapter(request):
    """(number, exercises, the chapter, its marked notebook)."""
    number = int(request.param.stem[:2])
    asked, book = exercises.load(number), notebooks.read(request.param)
    return number, asked, book, nbgrader.marked(book, number, asked)


def marks(book):
    return {c["metadata"]["nbgrader"]["grade_id"]: c for c in book["cells"]
            if "nbgrader" in c["metadata"]}


def test_the_marks(chapter):
    number, asked, book, made = chapter
    found = marks(made)
    assert len(found) == 2 * len(asked) + 1
    for exercise in asked:
        name = exercise.id.replace(".", "-")
        answer = found[f"answer-{name}"]["metadata"]["nbgrader"]
        tests = found[f"tests-{name}"]["metadata"]["nbgrader"]
        assert answer["solution"] and not answer["grade"]
        assert "points" not in answer
        assert tests["grade"] and tests["locked"] and tests["points"] == 5
        assert not tests["solution"]
    words = found[f"words-{number:02d}"]
    assert words["cell_type"] == "markdown"
    assert words["metadata"]["nbgrader"]["grade"]
    assert words["metadata"]["nbgrader"]["solution"]
    ids = [c["id"] for c in made["cells"]]
    assert len(ids) == len(set(ids))
    for cell in found.values():
        mark = cell["metadata"]["nbgrader"]
        assert mark["schema_version"] == 3
        assert re.fullmatch(r"[\w-]+", mark["grade_id"])


def cleared(source):
    """What nbgrader leaves of a cell of the student's."""
    return re.sub(r"(?ms)^( *)### BEGIN SOLUTION.*?### END SOLUTION",
                  r"\1# YOUR CODE HERE", source)


def test_the_student_gets_the_chapter_s_stub(chapter):
    _, asked, book, made = chapter
    before = [notebooks.joined(c["source"]) for c in book["cells"]]
    for exercise in asked:
        cell = marks(made)["answer-" + exercise.id.replace(".", "-")]
        source = notebooks.joined(cell["source"])
        assert cleared(source).replace(
            "    # YOUR CODE HERE\n", "") == exercise.stub
        assert exercise.stub in [b.rstrip() for b in before]
        names = {"__name__": "__main__"}
        exec(source, names)
        assert checker.examine(exercise, names[exercise.name]).passed


def test_it_is_a_pure_function(chapter):
    number, asked, book, made = chapter
    text = json.dumps(book)
    assert nbgrader.marked(book, number, asked) == made
    assert json.dumps(book) == text
    assert "nbgrader" not in text


def test_a_chapter_without_its_check_is_refused():
    book = {"cells": [], "metadata": {}}
    with pytest.raises(notebooks.NotebookError, match="02.1"):
        nbgrader.marked(book, 2, exercises.load(2))


def test_the_hidden_test_says_little(monkeypatch):
    exercise = exercises.find("02.1")
    names = {"is_contiguous": exercise.wrong[0].function}
    monkeypatch.setattr(checker, "namespace", lambda: names)
    monkeypatch.setattr(checker, "unfit", lambda *args: None)
    with pytest.raises(nbgrader.NotRight) as caught:
        nbgrader.hidden("02.1")
    assert str(caught.value) == (
        f"02.1 is not right yet. {exercise.wrong[0].message}")
    shown, = caught.value._render_traceback_()
    assert "is_contiguous(" not in shown and "expected" not in shown
    names["is_contiguous"] = exercise.right[0]
    monkeypatch.setenv(nbgrader.SEED, "7b")
    nbgrader.hidden("02.1")
    assert checker.SEED is None


TOOL = shutil.which(os.environ.get("NBGRADER", "nbgrader"))


@pytest.mark.skipif(TOOL is None, reason="nbgrader is not installed: "
                    "NBGRADER=/path/to/nbgrader names one")
@pytest.mark.parametrize("name", os.environ.get(
    "NBGRADER_CHAPTERS", "02_strides").split())
def test_nbgrader_s_own_commands(name, tmp_path):
    nbgrader.write(ROOT, tmp_path)
    tools = os.pathsep.join([str(Path(TOOL).parent), os.environ["PATH"]])
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PATH": tools}

    def call(*args):
        done = subprocess.run([TOOL, *args], cwd=tmp_path, env=env,
                              text=True, capture_output=True)
        assert done.returncode == 0, done.stderr[-2000:]

    call("generate_assignment", name, "--create")
    release = tmp_path / "release" / name / f"{name}.ipynb"
    text = release.read_text(encoding="utf-8")
    for word in ("BEGIN SOLUTION", "HIDDEN", "hidden("):
        assert word not in text
    for student, book in (
            ("anna", tmp_path / "source" / name / release.name),
            ("ben", release)):
        place = tmp_path / "submitted" / student / name
        place.mkdir(parents=True)
        shutil.copy(book, place)
    call("autograde", name, "--create")
    call("generate_feedback", name)
    call("export")
    asked = exercises.load(int(name[:2]))
    with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
        scores = {row["student_id"]: float(row["raw_score"])
                  for row in csv.DictReader(file)}
    assert scores == {"anna": 5.0 * len(asked), "ben": 0.0}
    for student in scores:
        page = (tmp_path / "feedback" / student / name / f"{name}.html"
                ).read_text(encoding="utf-8")
        for word in ("HIDDEN", "course.nbgrader", "lamina_hidden"):
            assert word not in page
