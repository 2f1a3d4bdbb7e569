"""The checkpoint exercises: what each asks, and what is known about it.

A chapter's exercises are in one module here, in the tuple `exercises`.
Nothing in it needs Hypothesis until a check runs.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A known wrong answer, and what to say to somebody who gives it.

    message: which idea is wrong, and the question that unmakes it.
    """

    function: Callable
    message: str


def same(*args):
    return args


@dataclass(frozen=True, eq=False)
class Exercise:
    """One function that the reader writes.

    id: "02.1", the chapter and the place in it. name: the function.
    statement: the text before the exercise's cell, stub: that cell.
    inputs: from hypothesis.strategies to a strategy of argument tuples,
    plain data only. examples: argument tuples that are always tried.
    prepare: from such a tuple to the real arguments. call: a format
    string that shows the call; describe(args): words in its place, or
    None. judge(args, answer, expected): None, or what is wrong ("kind:
    detail"), where an answer is not unique. judge_error(args, error): the
    same for an exception that is due. rtol, atol: for floats, both 0 by
    default. imports: what the solution needs before it. hints: steps.
    after: what PyTorch does, shown once the answer is right.
    """

    id: str
    title: str
    name: str
    statement: str
    stub: str
    reference: Callable
    inputs: Callable
    wrong: tuple
    right: tuple
    hints: tuple
    after: str
    examples: tuple = ()
    prepare: Callable = same
    call: str | None = None
    describe: Callable | None = None
    judge: Callable | None = None
    judge_error: Callable | None = None
    rtol: float = 0.0
    atol: float = 0.0
    signed_zero: bool = False
    imports: str = ""

    @property
    def chapter(self):
        return int(self.id.partition(".")[0])

    @property
    def solution(self):
        source = inspect.getsource(self.reference)
        return f"{self.imports}\n\n\n{source}" if self.imports else source

    def shown(self, args):
        """The call as a reader would type it."""
        words = self.describe(args) if self.describe else None
        if words:
            return words
        texts = [repr(a) for a in args]
        if self.call:
            return self.call.format(*texts)
        return f"{self.name}({', '.join(texts)})"


def load(chapter=None):
    """The exercises of one chapter, or of all, in order."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        match = re.match(r"c(\d\d)_", module.name)
        if match and chapter in (None, int(match[1])):
            found += importlib.import_module(
                f"{__name__}.{module.name}").exercises
    return sorted(found, key=lambda e: [int(n) for n in e.id.split(".")])


def find(ident):
    """The exercise of that number; KeyError names the ones that are there."""
    match = re.fullmatch(r"(\d\d?)\.(\d\d?)", str(ident))
    if match:
        wanted = f"{int(match[1]):02d}.{int(match[2])}"
        for exercise in load(int(match[1])):
            if exercise.id == wanted:
                return exercise
    raise LookupError(
        f"there is no exercise {ident!r}; the exercises are "
        + ", ".join(e.id for e in load()))
