"""`course check` in a terminal: the reader's notebook in a child process.

What is checked is the file that the reader saved, never the reference:
its cells run in order in one namespace, and an error in any of them fails
the check. The child cannot hang or crash the terminal.
"""

import ast
import contextlib
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from course import workbook
from course.exercises.parts import PARTS
from course.export import HELP, MAGIC, defined, read_cells
from course.workbook import locate

EXERCISE_LIMIT, CHAPTER_LIMIT = 120, 900  # seconds


class CheckError(Exception):
    """A notebook that does not run; the message names cell and line."""


class OpenPart(CheckError):
    """A cell calls a part of the library that is still to be written."""

    def __init__(self, ident, text):
        super().__init__(text)
        self.ident = ident


OPEN = re.compile(r"exercise (\S+ in the library)")


# In the parent: what to run


def plain(source):
    """(tree, source) of a cell with IPython's lines taken out."""
    if re.match(r"\s*%%(?!time|timeit|capture|prun)", source):
        source = ""
    rows = source.split("\n")
    while True:
        try:
            tree = ast.parse("\n".join(rows))
            return tree, "\n".join(rows)
        except SyntaxError as error:
            line = (error.lineno or 1) - 1
            text = rows[line] if line < len(rows) else ""
            if not (MAGIC.match(text) or HELP.match(text)):
                raise
            rows[line] = re.match(r"\s*", text)[0] + "pass"


def parse(path):
    """[(cell, tree, source)] of the code cells, or a CheckError."""
    name, found = Path(path).name, []
    try:
        cells = read_cells(path)
    except ValueError as error:
        raise CheckError(f"{name}: {error}") from None
    for cell in cells:
        if cell.kind != "code":
            continue
        try:
            tree, source = plain(cell.source)
            compile(source, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            if "raises-exception" in cell.tags:
                continue  # shown on purpose
            rows = cell.source.split("\n")
            line = getattr(error, "lineno", None) or 1
            text = rows[line - 1].strip() if line <= len(rows) else ""
            message = getattr(error, "msg", None) or str(error)
            raise CheckError(
                f"{name}, {cell.label}, line {line}: syntax error: {message}"
                + (f": {text}" if text else "")) from None
        found.append((cell, tree, source))
    return found


def is_preparation(tree):
    """Only imports, calls of begin, and names given back with del."""
    def calls_begin(node):
        return (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and node.value.func.id == "begin")

    return bool(tree.body) and all(
        isinstance(n, ast.Import | ast.ImportFrom | ast.Delete)
        or calls_begin(n)
        for n in tree.body)


def is_needed(cell, tree):
    """Must a cell run before an exercise can be checked?"""
    return bool(cell.tags & {"export", "exercise"}) or is_preparation(tree)


def exercise_cells(parsed, chapter_exercises):
    """{id: (cell, tree) or None}: by the name defined, else by place."""
    cells = [(c, t) for c, t, _ in parsed if "exercise" in c.tags]
    found, left = {}, list(cells)
    for exercise in chapter_exercises:
        for pair in cells:
            if exercise.name in {n for n, _ in defined(pair[1].body)}:
                found[exercise.id] = pair
                if pair in left:
                    left.remove(pair)
                break
    for exercise in chapter_exercises:
        if exercise.id not in found:
            found[exercise.id] = left.pop(0) if left else None
    return found


def check_notebook(path, chapter_exercises, wanted=None):
    """Run a notebook and check its exercises: [{id, kind, text}].

    wanted: the ids to check after running the cells that they need; None
    runs every cell and checks them all. Raises CheckError where a cell
    fails.
    """
    path = Path(path)
    root = workbook.find(path.parent)
    parsed = parse(path)
    cells = exercise_cells(parsed, chapter_exercises)
    verdicts, ask = [], []
    for exercise in chapter_exercises:
        if wanted is not None and exercise.id not in wanted:
            continue
        pair = cells[exercise.id]
        if root and exercise.id in PARTS:
            ask.append(exercise.id)     # the part may answer it
        elif pair is None or exercise.name not in {
                n for n, _ in defined(pair[1].body)}:
            verdicts.append(absent(path, exercise, pair))
        else:
            ask.append(exercise.id)
    chosen = [
        {"label": f"{path.name}, {cell.label}", "source": source,
         "answer": ("exercise" in cell.tags
                    and [name for name, _ in defined(tree.body)]),
         "number": cell.number, "needed": is_needed(cell, tree),
         "export": "export" in cell.tags,
         "raises": "raises-exception" in cell.tags}
        for cell, tree, source in parsed
        if wanted is None or is_needed(cell, tree)]
    if wanted is not None and root:
        last = last_cell(parsed, [e for e in chapter_exercises
                                  if e.id in wanted], cells)
        chosen = [c for c in chosen if c["number"] <= last]
    verdicts += run_child(path, chosen, ask, (
        CHAPTER_LIMIT if wanted is None else EXERCISE_LIMIT), root)
    order = [e.id for e in chapter_exercises]
    return sorted(verdicts, key=lambda v: order.index(v["id"].split()[0]))


def last_cell(parsed, asked, cells):
    """The last cell that these exercises of a workbook need: what comes
    later may call parts that are still open."""
    found = [locate([c for c, _, _ in parsed], PARTS[e.id].function)
             for e in asked if e.id in PARTS]
    return max([at[1].number for at in found if at]
               + [cells[e.id][0].number for e in asked if cells[e.id]],
               default=0)


def absent(path, exercise, pair):
    if pair is None:
        text = f"{path.name} has no cell tagged `exercise` for it"
    elif not pair[1].body:
        text = f"its cell is empty ({path.name}, {pair[0].label})"
    else:
        text = (f"its cell ({path.name}, {pair[0].label}) does not define "
                f"{exercise.name}")
    return {"id": exercise.id, "kind": "missing", "text": (
        f"{exercise.id} is not answered yet: {text}. Write {exercise.name} "
        "there, and save the notebook.")}


def run_child(path, cells, ask, limit, own_root=None):
    root = path.resolve().parent.parent
    own = Path(__file__).resolve().parents[1]
    places = [root / "src"] if (root / "src" / "lamina").is_dir() else []
    if own_root:
        places = [own_root]
    paths = [*map(str, places), str(own), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUTF8": "1", "MPLBACKEND": "Agg"}
    with tempfile.TemporaryDirectory(
            ignore_cleanup_errors=True) as temporary:
        job, out = Path(temporary, "job.json"), Path(temporary, "out.jsonl")
        job.write_text(json.dumps({"cells": cells, "ask": ask,
                                   "workbook": bool(own_root)}),
                       encoding="utf-8", newline="\n")
        out.touch()
        command = [sys.executable, "-c",
                   "from course.runner import child; child()",
                   str(job), str(out)]
        late = False
        try:
            done = subprocess.run(
                command, cwd=path.resolve().parent, env=env, timeout=limit,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
        except subprocess.TimeoutExpired:
            late = True
        events = [json.loads(row) for row in
                  out.read_text(encoding="utf-8").splitlines()]
    at = next((e["at"] for e in reversed(events) if "at" in e), path.name)
    if late:
        raise CheckError(f"{at}: still running after {limit} seconds")
    error = next((e["error"] for e in events if "error" in e), None)
    if error:
        raise CheckError(error)
    if "done" not in (events[-1] if events else {}):
        last = done.stderr.strip().split("\n")[-1]
        raise CheckError(
            f"{at}: the process ended here (exit code {done.returncode})"
            + (f": {last}" if last else ""))
    return [e["verdict"] for e in events if "verdict" in e]


def as_verdict(told):
    """A Verdict again, from what the child told."""
    from course.checker import Verdict

    return Verdict(told["id"], told["kind"], told["text"])


# In the child: running it


def child():
    """Run a job; what happens goes to a file, one JSON object a line."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with open(sys.argv[2], "a", encoding="utf-8", newline="\n") as out:
        def tell(**event):
            out.write(json.dumps(event) + "\n")
            out.flush()

        try:
            run_job(job, tell)
        except CheckError as error:
            tell(error=str(error))
        else:
            tell(done=True)
    sys.stderr.flush()
    os._exit(0)  # a thread that could not be stopped must not hold us


def run_job(job, tell):
    from course import checker, exercises

    # Not the child's own: pickles and checks look for the reader's names.
    main = types.ModuleType("__main__")
    main.__dict__.update(display=print, get_ipython=lambda: None)
    sys.modules["__main__"] = main
    exported = {c["label"] for c in job["cells"] if c["export"]}

    def tell_all(exercise, verdict):
        found = [verdict]
        if job.get("workbook"):
            tell(at=f"the check of {exercise.id}")
            found = checker.with_part(exercise, main.__dict__, verdict)
        for one in found:
            tell(verdict={"id": one.id, "kind": one.kind, "text": one.text})

    waits, answers = None, {}
    asked = {e.name for e in map(exercises.find, job["ask"])}
    for cell in job["cells"]:
        if waits and not cell["needed"]:
            continue
        tell(at=cell["label"])
        try:
            run_cell(cell, main.__dict__)
        except OpenPart as error:   # go on with what does not call it
            waits = waits or error
        except CheckError:
            if waits is None or not cell["needed"]:
                raise
        if cell["answer"]:  # a later cell may define the same name
            answers.update((name, main.__dict__[name]) for name
                           in asked & {*cell["answer"]} & {*main.__dict__})
    for ident in job["ask"]:
        exercise = exercises.find(ident)
        function = (answers.get(exercise.name)
                    or main.__dict__.get(exercise.name))
        if function is None:
            verdict = checker.Verdict(ident, "missing", (
                f"{ident} is not answered yet: no cell defines "
                f"{exercise.name}. Write it in the exercise's cell, and "
                "save the notebook."))
            if waits:
                verdict = checker.Verdict(ident, "missing", (
                    f"{ident} waits for {waits.ident}, which its chapter "
                    f"calls above it: write that first.\n{waits}"))
            tell_all(exercise, verdict)
            continue
        code = getattr(function, "__code__", None)
        if code is not None and code.co_filename in exported:
            verdict = checker.Verdict(ident, "reference", (
                f"{ident} wants your own function: {exercise.name} is the "
                "one that the chapter defines."))
        else:
            tell(at=f"the check of {ident}")
            verdict = checker.examine(exercise, function)
            if verdict.kind == "unanswered":
                verdict = checker.unanswered(exercise, (
                    f"save the notebook,\nthen call `course check {ident}` "
                    f"again. `course hint {ident}` shows a first step."))
        tell_all(exercise, verdict)


def run_cell(cell, names):
    label, source = cell["label"], cell["source"]
    linecache.cache[label] = (
        len(source), None, source.splitlines(True), label)
    try:
        exec(compile(source, label, "exec", dont_inherit=True), names)
    except BaseException as error:
        if cell["raises"] and isinstance(error, Exception):
            return
        found = OPEN.fullmatch(str(error))
        if found and isinstance(error, NotImplementedError):
            raise OpenPart(found[1], failure(label, error)) from None
        raise CheckError(failure(label, error)) from None
    if cell["raises"]:
        raise CheckError(
            f"{label}: tagged raises-exception, but nothing was raised")


def failure(label, error):
    """Where a cell failed, and in which line of another cell, if it did."""
    line, deepest = None, None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file == label and line is None:
            line = trace.tb_lineno
        if file in linecache.cache and ".ipynb, cell " in file:
            deepest = file, trace.tb_lineno
        trace = trace.tb_next
    text = f"{label}, line {line}: {type(error).__name__}: {error}"
    with contextlib.suppress(TypeError):
        row = linecache.getline(*deepest).strip()
        where = ("" if deepest == (label, line)
                 else f" ({deepest[0]}, line {deepest[1]})")
        text += f"\n    {row}{where}"
    return text
