"""The banks of known answers test the checker, and it tests them."""

import ast
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from course import checker, exercises

ALL = exercises.load()


def own(function, name):
    """The same code, as if it had been written in a notebook."""
    made = types.FunctionType(
        function.__code__, function.__globals__, name,
        function.__defaults__, function.__closure__)
    made.__module__ = "__main__"
    return made


def pairs(of):
    def label(x):
        return getattr(x, "function", x).__name__

    return [pytest.param(e, x, id=f"{e.id}-{label(x)}")
            for e in ALL for x in of(e)]


def ready(exercise):
    """An exercise on tensors needs the library."""
    if exercise.chapter == 8:
        lamina = pytest.importorskip("lamina")
        assert hasattr(lamina, "tensor")


@pytest.mark.parametrize("exercise, wrong", pairs(lambda e: e.wrong))
def test_a_wrong_answer_is_refused_by_name(exercise, wrong):
    ready(exercise)
    verdict = checker.examine(exercise, own(wrong.function, exercise.name))
    assert not verdict.passed
    assert verdict.misconception == wrong.message, str(verdict)
    assert "smallest failing input" in str(verdict)
    assert len(str(verdict)) < 2000


@pytest.mark.parametrize(
    "exercise, right", pairs(lambda e: (e.reference, *e.right)))
def test_a_right_answer_is_accepted(exercise, right):
    ready(exercise)
    verdict = checker.examine(exercise, own(right, exercise.name))
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_stub_is_no_answer_and_no_error(exercise):
    ready(exercise)
    names = {"__name__": "__main__"}
    exec(exercise.stub, names)
    verdict = checker.examine(exercise, names[exercise.name])
    assert verdict.kind == "unanswered"
    assert "Error" not in str(verdict)


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_solution_passes(exercise):
    ready(exercise)
    names = {"__name__": "__main__"}
    exec(compile(exercise.solution, "the solution", "exec"), names)
    assert checker.examine(exercise, names[exercise.name]).passed


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_definition_is_whole(exercise):
    assert exercise.id.startswith(f"{exercise.chapter:02d}.")
    assert exercise.statement.startswith(f"**Exercise {exercise.id}.**")
    assert f"`{exercise.name}(" in exercise.statement
    function, = ast.parse(exercise.stub).body
    assert function.name == exercise.name
    assert isinstance(function.body[-1], ast.Raise)
    assert exercise.stub.endswith(
        f'raise NotImplementedError("exercise {exercise.id}")')
    assert len(function.args.args) == (
        exercise.reference.__code__.co_argcount)
    assert len(exercise.wrong) >= 3 and exercise.right
    assert len({w.message for w in exercise.wrong}) == len(exercise.wrong)
    assert all("?" in w.message for w in exercise.wrong)
    assert len(exercise.hints) >= 2 and exercise.after
    for text in (exercise.statement, exercise.stub):
        assert max(map(len, text.split("\n"))) <= 79
    assert "!" not in exercise.statement + exercise.after


def test_the_same_inputs_for_everybody(tmp_path):
    """Whatever else is loaded, and without a trace on the disk."""
    code = """
import hashlib
from course import checker, exercises
for e in exercises.load():
    found = repr(checker.samples(e))
    assert len(checker.samples(e)) >= 50
    print(e.id, hashlib.sha256(found.encode()).hexdigest())
"""
    (tmp_path / "mine.py").write_text(
        f"numbers = {list(range(2, 400, 7))}\nx = 123456.5, 'cpu', b'abc'\n",
        encoding="utf-8")
    source = Path(checker.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": str(source)}
    outs = {subprocess.run([sys.executable, "-c", start + code],
                           cwd=tmp_path, env=env, text=True, check=True,
                           capture_output=True).stdout
            for start in ("", "import mine")}
    assert len(outs) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) in (
        ["mine.py"], ["__pycache__", "mine.py"])


def test_each_exercise_has_one_thing_to_try():
    from course.exercises.further import TRY

    assert list(TRY) == [e.id for e in ALL]
    assert "\n\nOne thing to try: read the same" in str(checker.examine(
        ALL[0], own(ALL[0].right[0], ALL[0].name)))
