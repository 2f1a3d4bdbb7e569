"""Mutants of the references: a sample of each, which must be refused.

`course prove` judges all of them and writes the figures.
"""

import json

import pytest

from course import exercises, prove

ALL = exercises.load()
SAMPLE = 8


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_a_sample_of_the_mutants_is_refused(exercise):
    assert not prove.refused(exercise, exercise.solution)
    count, left = prove.survivors(exercise, SAMPLE)
    assert count >= 1
    assert set(left) <= prove.explained().get(exercise.id, {}).keys()


def test_what_survives_is_explained_and_still_there():
    known = {e.id: e for e in ALL}
    for ident, reasons in prove.explained().items():
        found = prove.mutants(known[ident].solution)
        for change, reason in reasons.items():
            assert change in found, (ident, change)
            assert len(reason) > 20


def test_the_figures_are_those_of_today(root):
    figures = json.loads(prove.FIGURES.read_text(encoding="utf-8"))
    assert prove.stale(figures) == [], "run `course prove`"
    page = (root / "book" / "checkers.md").read_text(encoding="utf-8")
    assert page == prove.page(figures, prove.explained())
    for ident, reasons in prove.explained().items():
        assert figures[ident]["survivors"] == len(reasons)


def test_a_mutant_has_one_fault():
    found = prove.mutants('def f(x):\n    """Text."""\n    n = 0\n'
                          "    while x < 3:\n        x += 1\n"
                          "    return max(x, -n)")
    assert {
        "n = 0 -> n = 1", "n = 0 -> pass",
        "while x < 3: -> while x <= 3:", "while x < 3: -> while False:",
        "x += 1 -> x -= 1", "x += 1 -> x = 1", "x += 1 -> x += 2",
        "return max(x, -n) -> return min(x, -n)",
        "return max(x, -n) -> return max(x, n)",
        "return max(x, -n) -> return None"} <= found.keys()
    assert len(set(found.values())) == len(found)
    assert not any("Text" in change for change in found)


def test_a_weak_judge_is_found():
    """With the inputs that it always tries alone, 02.1 lets one pass."""
    exercise = exercises.find("02.1")
    found = prove.mutants(exercise.solution)
    right = prove.expected(exercise)
    try:
        kept = [(args, due) for args, due in right if 0 not in args[0]]
        prove.expected.cache_clear()
        before, prove.expected = prove.expected, lambda exercise: kept
        left = [m for m in found if not prove.refused(exercise, found[m])]
    finally:
        prove.expected = before
    assert any("0 in shape" in m or "return True" in m or "if False" in m
               for m in left)
