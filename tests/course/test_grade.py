"""`course grade`: a class of workbooks, some of them hostile."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course import checker, exercises, grade

ROOT = Path(__file__).resolve().parents[2]


def workbook(folder, student, answers, extra=()):
    """Chapter 2 as a student has answered it."""
    path = ROOT / "chapters" / "02_strides.ipynb"
    book = json.loads(path.read_text(encoding="utf-8"))
    for exercise in exercises.load(2):
        for cell in book["cells"]:
            if "".join(cell["source"]).rstrip() == exercise.stub:
                cell["source"] = answers.get(exercise.id, exercise.stub)
    book["cells"][2:2] = [
        {"cell_type": "code", "id": f"extra{i:03d}", "metadata": {},
         "outputs": [], "execution_count": None, "source": source}
        for i, source in enumerate(extra)]
    place = folder / student / path.name
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(book), encoding="utf-8")


def head(ident):
    return f"def {exercises.find(ident).name}(*args):"


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    outside = folder.parent / "outside"
    right = {e.id: e.solution for e in exercises.load(2)}
    workbook(folder, "anna", right)
    workbook(folder, "=ben", right | {"02.1": (
        "def is_contiguous(shape, strides):\n    import math\n"
        "    due = [math.prod(shape[i + 1:]) for i in range(len(shape))]\n"
        "    return 0 in shape or list(strides) == due")})
    bodies = {
        "02.1": "import os; os._exit(0)",
        "02.2": "return bytearray(10 ** 12)",
        "02.3": f"open({str(outside)!r}, 'w')",
        "02.4": "import socket; socket.create_connection(('127.0.0.1', 9))",
        "02.5": "import os, signal; os.kill(os.getppid(), signal.SIGTERM)"}
    workbook(folder, "hostile", {
        ident: f"{head(ident)}\n    {body}" for ident, body in bodies.items()})
    workbook(folder, "sly", right | {"02.5": "def indexed_shape(:"})
    workbook(folder, "stops", right, ["import os; os._exit(0)"])
    workbook(folder, "cheat", {}, [
        "import course.checker as c\n"
        "c.judged = lambda e, f, w: c.Verdict(e.id, 'passed', '')"])
    (folder / "torn").mkdir()
    (folder / "torn" / "02_strides.ipynb").write_text("{", encoding="utf-8")
    to = folder.parent / "grades"
    options = grade.Options(folder, ROOT, seed="7b", seconds=60)
    results = grade.grade(options, to, say=lambda line: None)
    assert not outside.exists()
    return {(r.student, r.exercise): r for r in results}, to


def kinds(graded, student):
    return [r.kind for (s, _), r in graded[0].items() if s == student]


def test_right_answers_pass_and_a_known_wrong_one_is_named(graded):
    assert kinds(graded, "anna") == ["passed"] * 5
    assert kinds(graded, "=ben") == ["value"] + ["passed"] * 4
    found = graded[0]["=ben", "02.1"].misconception
    assert found == exercises.find("02.1").wrong[0].message


def test_hostile_code_harms_nobody_else(graded):
    assert kinds(graded, "hostile") == ["crashed", "memory"] + ["error"] * 3
    texts = [r.text for (s, _), r in graded[0].items() if s == "hostile"]
    assert "MemoryError" in texts[1]
    assert all("PermissionError" in t for t in texts[2:])
    assert kinds(graded, "stops") == ["passed"] * 5
    assert kinds(graded, "sly") == ["passed"] * 4 + ["syntax"]
    assert kinds(graded, "torn") == ["unreadable"] * 5
    assert "passed" not in kinds(graded, "cheat")
    assert graded[0]["cheat", "02.1"].look == "course.checker"


def test_the_files(graded):
    results, to = graded
    with open(to / "grades.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(results) == 35
    assert sum(int(r["passed"]) for r in rows) == 5 + 4 + 5 + 4
    assert "'=ben" in {r["student"] for r in rows}
    suites = ElementTree.parse(to / "grades.xml").getroot()
    assert len(suites) == 7
    assert len(suites.findall(".//failure")) == sum(
        r.kind not in ("passed", "missing", "unanswered")
        for r in results.values())
    page = (to / "report.md").read_text(encoding="utf-8")
    assert exercises.find("02.1").wrong[0].message in page
    assert "Held by: =ben." in page and "7b" in page


def test_a_seed_gives_other_inputs_and_the_same_again():
    code = ("from course import checker, exercises\n"
            "print(checker.samples(exercises.find('02.1')))")

    def drawn(seed):
        import os
        return subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True,
            text=True, env=os.environ | {"LAMINA_SEED": seed,
                                         "PYTHONPATH": str(ROOT / "src")},
        ).stdout

    assert drawn("7a") == drawn("7a") != drawn("7b")
    assert drawn("") == f"{checker.samples(exercises.find('02.1'))}\n"


def test_text_that_files_can_hold():
    assert grade.safe("=1+1") == "'=1+1" and grade.safe("anna") == "anna"
    assert grade.printable("a\x00b\ud800") == "a\ufffdb\ufffd"
    assert grade.plain("a|b\n*c*") == r"a\|b \*c\*"
