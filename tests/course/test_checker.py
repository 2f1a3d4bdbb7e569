"""Verdicts: whatever an answer does, a person can read what is wrong."""

import dataclasses
import functools
import inspect
import sys
import threading
import time
import types

import pytest

from answers import own, written
from course import checker, exercises, progress
from course.exercises import Exercise, Wrong


def doubled(values):
    return [2.0 * v for v in values]


def squared(values):
    return [v * v for v in values]


TOY = Exercise(
    id="99.1", title="Toy", name="doubled", statement="", stub="",
    reference=doubled,
    inputs=lambda st: st.tuples(st.lists(
        st.integers(0, 9).map(float), max_size=4)),
    wrong=(Wrong(squared, "This squares."),), right=(), hints=("h",),
    after="After.")


def verdict(source, exercise=TOY):
    return checker.examine(exercise, written(source, exercise.name))


def test_a_right_answer():
    found = verdict("def doubled(values): return [v + v for v in values]")
    assert found.passed and found and found.kind == "passed"
    assert str(found) == repr(found)
    assert str(found).startswith("99.1 is right: doubled agrees")
    assert str(found).endswith("After.")


def test_the_smallest_input_and_the_idea():
    found = verdict("def doubled(values): return [v ** 2 for v in values]")
    assert not found
    assert str(found) == """\
99.1 is not right yet: there is a wrong answer.

  smallest failing input  doubled([1.0])
  expected                [2.0]
  yours                   [1.0]

This squares."""


def test_an_unknown_mistake_gets_no_idea():
    found = verdict("def doubled(values): return [v + 3 for v in values]")
    assert found.misconception is None
    assert "doubled([0.0])" in str(found)


def test_a_mistake_of_one_s_own_beside_a_known_one():
    """Squares, but not always: still like squaring where it fails."""
    found = verdict("def doubled(values):\n"
                    "    n = 2 if len(values) > 1 else None\n"
                    "    return [v ** n if n else v + v for v in values]")
    assert found.misconception == "This squares."


@pytest.mark.parametrize("body, kind, words", [
    ("return None", "none", "returns None: is a `return` missing?"),
    ("return tuple(2 * v for v in values)", "type",
     "A list is due, yours is a tuple"),
    ("return (2 * v for v in values)", "generator", "list(...)"),
    ("return [2 * v for v in values] + [0.0]", "shape",
     "length 0 is due, yours has length 1"),
    ("return [str(2 * v) for v in values]", "type",
     "A float is due at [0], yours is a str"),
    ("return [v > 1 for v in values]", "type", "yours is a bool"),
    ("values.append(1.0)\n    return [2 * v for v in values[:-1]]",
     "mutation", "changes its argument `values`"),
    ("return doubled(values)", "recursion", "calls itself too deeply"),
    ("return [2 * v for v in values][0]", "error", "raises IndexError"),
    ("import warnings\n    warnings.warn('x', RuntimeWarning)\n"
     "    return [2 * v for v in values]", "warning", "must not pass unseen"),
    ("raise SystemExit", "exit", "raises SystemExit"),
    ("exit()", "exit", "leaves the whole program"),
    ("import nowhere", "error", "imports what is not there"),
    ("return [dobule(v) for v in values]", "error",
     "from the top"),
    ("print('many\\n' * 10**6)\n    return 1", "type", "..."),
    ("return values and [2 * values[0]] + values[1:]", "value",
     "they part at [1]        2.0 is due, yours is 1.0"),
    ("print('seen', values)\n    return 1", "type", "seen []"),
    ("return 'x' * 10**5", "type", "xxx ... xxx"),
])
def test_what_else_an_answer_can_do(body, kind, words):
    found = verdict(f"def doubled(values):\n    {body}")
    assert found.kind == kind
    assert words in str(found)
    assert len(str(found)) < 1500
    assert "checker.py" not in str(found)


@pytest.mark.skipif(not sys.platform.startswith("linux"),
                    reason="other systems do not limit memory")
def test_a_huge_allocation_is_refused():
    found = verdict("def doubled(values): return [0] * 10**11")
    assert found.kind == "memory"
    assert "asks for more memory than there is" in str(found)
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)
    verdict("def doubled(values): return bytearray(3 * 2**30)")
    assert resource.getrlimit(resource.RLIMIT_AS) == limit


@pytest.mark.parametrize("ident, body, words", [
    ("02.1", "return not shape", "numbered cell"),
    ("05.1", "return sum(values) + len(values)", "memory: "),
    ("05.3", "return 0 if values else values[0]", "number cells"),
    ("07.4", "return {}", "graph: "),
    ("08.1", "return grad", "float32 cell"),
])
def test_a_failing_input_is_drawn(ident, body, words):
    exercise = exercises.find(ident)
    names = ", ".join(inspect.signature(exercise.reference).parameters)
    found = checker.examine(exercise, written(
        f"def {exercise.name}({names}):\n    {body}", exercise.name))
    assert not found
    page = found._repr_html_()
    assert page.startswith("<pre>") and "<svg" in page and "</svg>" in page
    assert words in repr(found.picture())
    assert checker.Verdict("02.1", "passed", "x")._repr_html_() is None


def test_the_reader_s_own_line_is_shown():
    found = checker.examine(TOY, own(lambda values: values["key"], "doubled"))
    assert "raises TypeError" in str(found)
    assert 'own(lambda values: values["key"]' in str(found)


def test_an_async_function():
    assert verdict("async def doubled(values): return 1").kind == "generator"


def test_an_object_whose_repr_fails():
    found = verdict("def doubled(values):\n    class A:\n"
                    "        def __repr__(self): 1 / 0\n    return A()")
    assert "(ZeroDivisionError in its __repr__)" in str(found)


@pytest.mark.parametrize("source, kind, words", [
    ("def doubled(): return []", "signature",
     "needs doubled(values); yours is doubled()"),
    ("doubled = [1]", "type", "needs a function: doubled is a list"),
])
def test_no_answer_at_all(source, kind, words):
    found = verdict(source)
    assert found.kind == kind and words in str(found)


@pytest.mark.parametrize("function", [
    exercises.find("02.1").reference,
    functools.partial(exercises.find("02.1").reference),
    functools.wraps(exercises.find("02.1").reference)(lambda *a: True),
])
def test_the_reference_passed_off(function):
    found = checker.examine(exercises.find("02.1"), function)
    assert found.kind == "reference"
    assert "wants your own function" in str(found)


def test_the_chapter_s_own_function_passed_off(tmp_path, monkeypatch):
    source = "def is_contiguous(shape, strides):\n    return True\n"
    (tmp_path / "strides.py").write_text(source, encoding="utf-8")
    fake = types.ModuleType("lamina")
    fake.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "lamina", fake)
    import linecache

    linecache.cache["a cell"] = (
        len(source), None, source.splitlines(True), "a cell")
    function = written(source, "is_contiguous")
    found = checker.examine(exercises.find("02.1"), function)
    del linecache.cache["a cell"]
    assert found.kind == "reference"
    assert "is the one that the chapter defines" in str(found)


# Loops without an end


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(checker, "CALL_LIMIT", 0.3)
    monkeypatch.setattr(checker, "GRACE", 0.5)


@pytest.fixture(autouse=True)
def quick_watch(monkeypatch):
    real = checker.Watch.__init__

    def init(self):
        real(self)
        self.limit = checker.CALL_LIMIT

    monkeypatch.setattr(checker.Watch, "__init__", init)


@pytest.mark.parametrize("body", [
    "while True: pass",
    "while True:\n        try: values\n        except Exception: pass",
    "while True:\n        try: values\n        except: pass",
])
def test_a_loop_is_stopped(quick, body):
    before, start = threading.active_count(), time.monotonic()
    found = verdict(f"def doubled(values):\n    {body}")
    assert found.kind == "timeout"
    assert "was stopped after 0.3 seconds" in str(found)
    assert "doubled([])" in str(found)
    assert time.monotonic() - start < 3
    assert threading.active_count() == before
    assert sys.stdout.__class__ is not checker.Output


def test_what_cannot_be_stopped_is_left_behind(quick):
    found = verdict("def doubled(values):\n    import time\n"
                    "    time.sleep(3)\n    return []")
    assert found.kind == "timeout"
    assert "restart the kernel" in str(found)
    ours = sys.stdout
    assert verdict("def doubled(v): return [x + x for x in v]").passed
    for thread in threading.enumerate():
        if thread.daemon and thread.name.endswith("(work)"):
            thread.join()
    assert sys.stdout is ours  # the one left behind took nothing with it


def test_a_loop_only_on_some_inputs_keeps_the_wrong_value(quick):
    found = verdict("def doubled(values):\n"
                    "    while len(values) > 3: pass\n    return []")
    assert found.kind in ("shape", "timeout")


def test_too_slow_altogether(monkeypatch):
    monkeypatch.setattr(checker, "TOTAL_LIMIT", 0.1)
    found = verdict("def doubled(values):\n    import time\n"
                    "    time.sleep(0.02)\n    return [2 * v for v in values]")
    assert found.kind == "slow"


# Comparing


class Tensor:
    def __init__(self, values, shape, dtype="float32"):
        self.values, self.shape, self.dtype = values, shape, dtype

    def tolist(self):
        return self.values


@pytest.mark.parametrize("expected, answer, kind", [
    (1, True, "type"), (True, 1, "type"), (1, 1.0, "type"), (1.0, 1, None),
    ([1], (1,), "type"), ((1,), [1], "type"), ((1, 2), (1,), "shape"),
    ([[1.0], [2.0]], [[1.0], [2.0, 3.0]], "shape"),
    ([1.0, 2.0], [9.0, "2"], "type"), ([1.0], [2.0], "value"),
    (float("nan"), float("nan"), None), (float("nan"), 1.0, "value"),
    (float("inf"), 1e308, "value"), (0.0, -0.0, None), ("a", "b", "value"),
    (Tensor([1.0] * 5, (5,)), Tensor([[1.0]] * 5, (5, 1)), "shape"),
    (Tensor([1.0], (1,)), Tensor([], (0,)), "shape"),
    (Tensor([1.0], (1,)), 1.0, "type"),
    (Tensor([1.0], (1,)), Tensor([1.0], (1,), "float64"), "dtype"),
    (Tensor([1.0], (1,)), Tensor([1.5], (1,)), "value"),
    (Tensor([1.0], (1,)), Tensor([1.0], (1,)), None),
    ({"a": 1}, {"a": 2}, "value"), ({"a": 1}, {"b": 1}, "shape"),
])
def test_types_and_shapes_come_before_values(expected, answer, kind):
    found = checker.differs(expected, answer, TOY)
    assert (found and found[0]) == kind
    if kind in ("shape", "dtype"):
        assert "due" in found[1] and "yours" in found[1] or kind == "shape"


def test_nothing_broadcasts():
    numpy = pytest.importorskip("numpy")
    for answer in (numpy.ones((5, 1)), numpy.zeros(0), numpy.float64(1)):
        found = checker.differs([1.0] * 5, answer, TOY)
        assert found[0] == "type" and "numpy" in found[1]
    assert checker.differs(1.0, numpy.float64(1), TOY) is None
    assert checker.differs(1, numpy.int64(1), TOY)[0] == "type"


def test_tolerance_and_signed_zero():
    near = dataclasses.replace(TOY, rtol=1e-6, signed_zero=True)
    assert checker.differs(1.0, 1.0 + 1e-9, near) is None
    assert checker.differs(1.0, 1.0 + 1e-9, TOY)[0] == "value"
    assert checker.differs(0.0, -0.0, near)[0] == "value"


def test_numpy_s_warnings_are_not_hidden():
    numpy = pytest.importorskip("numpy")
    with numpy.errstate(all="ignore"):
        found = verdict(
            "import numpy\ndef doubled(values):\n"
            "    numpy.log(numpy.array(-1.0))\n"
            "    return [2 * v for v in values]")
    assert found.kind == "warning"
    assert "invalid value" in str(found)


# In a notebook


@pytest.fixture
def notebook_names(tmp_path, monkeypatch):
    (tmp_path / "chapters").mkdir()
    monkeypatch.chdir(tmp_path / "chapters")
    names = {}
    monkeypatch.setattr(checker, "namespace", lambda: names)
    checker._hinted.clear()
    return names


def answer(source, names):
    exec(compile(source, "a cell", "exec"), names | {}, names)


def test_missing_then_stub_then_right(notebook_names):
    exercise = exercises.find("02.1")
    assert checker.check("02.1").kind == "missing"
    names = {"__name__": "__main__"}
    exec(exercise.stub, names)
    notebook_names.update(names)
    found = checker.check("02.1")
    assert found.kind == "unanswered"
    assert str(found).startswith("02.1 is not answered yet: write is_cont")
    assert "Error" not in str(found)
    assert progress.load() == {}  # a stub leaves no trace
    assert progress.folder().exists() is False
    right = own(exercise.right[0], "is_contiguous")
    notebook_names["is_contiguous"] = lambda shape, strides: True
    assert not checker.check("02.1")
    notebook_names["is_contiguous"] = right
    assert checker.check("2.1").passed
    kept = progress.load()["02.1"]
    assert kept["tries"] == 2 and kept["last"] == "passed"
    assert (progress.folder() / ".gitignore").read_text("utf-8") == "*\n"


def test_the_stub_s_last_line_is_still_reached():
    exercise = exercises.find("02.1")
    source = exercise.stub.replace(
        "    raise", "    if not shape: return True\n    raise")
    found = checker.examine(exercise, written(source, "is_contiguous"))
    assert found.kind in ("error", "unanswered")


def test_an_exercise_that_is_not_there(notebook_names):
    with pytest.raises(LookupError, match="the exercises are 01.1, .*02.1"):
        checker.check("02.9")


def test_hints_go_one_step_further(notebook_names, capsys):
    for step in (1, 2, 3, 1):
        checker.hint("02.1")
        assert f"Hint {step} of 3 to 02.1." in capsys.readouterr().out


def test_a_solution_is_a_right_answer(notebook_names, capsys):
    checker.solution("02.1")
    source = capsys.readouterr().out
    function = written(source, "is_contiguous")
    assert checker.examine(exercises.find("02.1"), function).passed


def test_a_broken_progress_file_is_no_error(notebook_names):
    place = progress.folder()
    place.mkdir()
    (place / "progress.json").write_text("{", encoding="utf-8")
    notebook_names["is_contiguous"] = lambda shape, strides: True
    assert checker.check("02.1").kind == "value"
    assert progress.load()["02.1"]["tries"] == 1
