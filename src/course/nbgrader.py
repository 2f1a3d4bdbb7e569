"""`course nbgrader DIR`: the chapters as assignments of nbgrader.

The chapters themselves carry no marks: an nbgrader source holds the
solutions and the hidden tests, and the pages that everybody reads must
hold neither. So the marked notebooks are made from the chapters: a pure
function, `marked`, of a chapter and its exercises.

    DIR/nbgrader_config.py
    DIR/source/02_strides/02_strides.ipynb

An exercise becomes a cell with its solution and a cell of tests. The tests
hidden in it draw other inputs, from a seed that lies with the grader and
not in the notebook, and their failure tells nothing of them.
"""

import ast
import copy
import os
import textwrap
from pathlib import Path

from course import exercises, notebooks
from course.export import FILE_NAME

POINTS = 5
SEED = "LAMINA_HIDDEN_SEED"

# What each chapter asks for in words.
QUESTIONS = {
    1: "Two tensors share one storage. Describe an operation on the first "
       "that you can see through the second, one that you cannot, and what "
       "decides between the two.",
    2: "Why can a transpose be made without a copy, and a flattened "
       "transpose not? Argue with shape, strides and offset.",
    3: "An operator works on the device `python` and you want it on another "
       "one. What do you write, what do you not write, and what finds your "
       "code when the operator is called?",
    4: "Explain to somebody who has never seen it why adding a row to a "
       "matrix needs no copy of the row. What goes wrong if one writes into "
       "such an expanded view?",
    5: "The sum of the same numbers in another order may differ. Say why, "
       "and when it matters to a person who trains a model.",
    6: "Two loop orders multiply the same matrices with the same number of "
       "multiplications. Why is one faster, and how would you find out on a "
       "machine that you do not know?",
    7: "Why does the gradient of a value that is used twice have two parts, "
       "and why must the walk back visit a value after all its users?",
    8: "What has to be kept from the forward pass for the backward one? Take "
       "one operator, say what it keeps, and what happens if that is changed "
       "in place.",
    9: "A module finds its own parameters. Say how, and describe a model in "
       "which a parameter is not found.",
    10: "What does momentum change about a step in a long narrow valley? "
        "What does it cost?",
    11: "The loss falls on the training data and rises on the rest. What do "
        "you conclude, and what do you do next?",
}

CONFIG = '''\
"""nbgrader's settings for Lamina, written by `course nbgrader`."""

import os

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "lamina"
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE"}
c.Execute.timeout = 300
# What the hidden tests draw. Choose a text of your own for each class: with
# it the results repeat exactly. The students do not get this file.
os.environ.setdefault("LAMINA_HIDDEN_SEED", "lamina")
# The feedback does not show the hidden tests.
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.GetGrades",
    "nbgrader.preprocessors.ClearHiddenTests",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
'''

TESTS = '''\
check("{id}")
### BEGIN HIDDEN TESTS
from course.nbgrader import hidden
hidden("{id}")
### END HIDDEN TESTS'''


class NotRight(Exception):
    """An answer that the hidden tests refuse, in one line."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}"]


def hidden(ident):
    """Judge an answer on inputs that the notebook does not show."""
    from course import checker

    exercise = exercises.find(ident)
    function = checker.namespace().get(exercise.name)
    if function is None:
        raise NotRight(f"{exercise.id}: there is no {exercise.name}")
    found = checker.examine(exercise, function)
    if found.passed:
        with checker.seeded(os.environ.get(SEED) or None):
            found = checker.examine(exercise, function)
    if not found.passed:
        raise NotRight(f"{exercise.id} is not right yet" + (
            f". {found.misconception}" if found.misconception else ""))


def solved(exercise):
    """The stub's cell with the solution in nbgrader's marks."""
    function = ast.parse(exercise.solution).body[-1]
    rows = exercise.solution.rstrip("\n").split("\n")
    first = function.body[0].lineno - 1
    body = textwrap.dedent("\n".join(rows[first:])).split("\n")
    before = [r for r in exercise.imports.split("\n") if r.strip()]
    if not isinstance(function.body[-1], ast.Return | ast.Raise):
        body.append("return")           # not on to the stub's last line
    stub = exercise.stub.split("\n")
    inner = ["### BEGIN SOLUTION", *before, *body, "### END SOLUTION"]
    return "\n".join([*stub[:-1], *(
        textwrap.indent(r, "    ") for r in inner), stub[-1]])


def mark(ident, kind, points=None):
    """nbgrader's metadata of a cell."""
    grade = kind != "solution"
    made = {"grade": grade, "grade_id": ident.replace(".", "-"),
            "locked": kind == "tests", "schema_version": 3,
            "solution": kind != "tests", "task": False}
    return made | ({"points": points} if grade else {})


def marked(book, number, asked):
    """A chapter's notebook as a source of nbgrader's."""
    book = copy.deepcopy(book)
    stubs = {e.stub: e for e in asked}
    cells, done = [], set()
    for cell in book["cells"]:
        source = notebooks.joined(cell["source"])
        exercise = stubs.get(source.rstrip())
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if exercise is not None:
            cell["source"] = notebooks.rows(solved(exercise))
            cell["metadata"]["nbgrader"] = mark(
                f"answer-{exercise.id}", "solution")
        else:
            exercise = next((
                e for e in asked if cell["cell_type"] == "code"
                and f'check("{e.id}")' in source and e.id not in done), None)
            if exercise is not None:
                done.add(exercise.id)
                cell["source"] = notebooks.rows(
                    TESTS.format(id=exercise.id))
                cell["metadata"] = {"nbgrader": mark(
                    f"tests-{exercise.id}", "tests", POINTS)}
        cells.append(cell)
    left = [e.id for e in asked if e.id not in done]
    if left:
        raise notebooks.NotebookError(
            f"chapter {number:02d} has no cell check(\"{left[0]}\")")
    question = QUESTIONS.get(number)
    if question:
        cells += [
            {"cell_type": "markdown", "id": f"words-{number:02d}-asked",
             "metadata": {}, "source": notebooks.rows(
                 f"## In your own words\n\n{question}")},
            {"cell_type": "markdown", "id": f"words-{number:02d}-answer",
             "metadata": {"nbgrader": mark(
                 f"words-{number:02d}", "words", POINTS)},
             "source": ["Your answer, in three to six sentences."]}]
    return book | {"cells": cells}


def files(root):
    """{path: text} of the nbgrader folder of the chapters in root."""
    made = {"nbgrader_config.py": CONFIG}
    for path in sorted((root / "chapters").glob("*.ipynb")):
        match = FILE_NAME.match(path.stem)
        if match:
            number = int(match[1])
            made[f"source/{path.stem}/{path.name}"] = notebooks.text(marked(
                notebooks.read(path), number, exercises.load(number)))
    return made


def write(root, to):
    """Write the folder; the settings that are there stay."""
    for name, text in files(root).items():
        path = to / name
        if name == "nbgrader_config.py" and path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def run(args, fail):
    from course.export import find_root

    root = Path(__file__).resolve().parents[2]
    if not (root / "chapters").is_dir():
        root = find_root()
    write(root, args.folder)
    print(f"{args.folder}: nbgrader_config.py and source/, for `nbgrader "
          "generate_assignment 02_strides`")
    return 0
