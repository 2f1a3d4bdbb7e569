"""`course grade`: a folder of answered chapters, and what the class knows.

Each notebook runs in a process of its own, on a copy, within limits
(course.sandbox). Its cells stand on the reference's earlier chapters, so
that a fault in one chapter costs nothing in the next. A cell that fails is
passed over: the exercises that can be judged are judged. Where the process
ends or its time is over, what it was doing is put aside, and the rest is
done in a new one.
"""

import ast
import contextlib
import csv
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from course import exercises, runner
from course.export import FILE_NAME, defined, read_cells

# What a workbook has no need of, and a person should look at.
STRANGE = {"ctypes", "gc", "inspect", "signal", "subprocess", "socket",
           "multiprocessing", "threading", "shutil", "importlib"}
OWN = {"begin", "check", "hint", "solution"}


@dataclass
class Result:
    """What became of one exercise of one workbook."""

    student: str
    file: str
    exercise: str
    kind: str
    text: str = ""
    misconception: str | None = None
    seconds: float = 0.0
    look: str = ""

    @property
    def passed(self):
        return self.kind == "passed"


# Finding the workbooks


def workbooks(folder):
    """[(student, chapter, path)]: the student is the first folder below
    the given one, or what follows the chapter's name in the file's."""
    found = []
    for path in sorted(folder.rglob("*.ipynb")):
        inner = path.relative_to(folder)
        if any(part.startswith(".") for part in inner.parts):
            continue
        match = re.match(r"(\d\d)(?=\D)", path.stem)
        if not match or path.is_symlink() or not path.is_file():
            continue
        if len(inner.parts) > 1:
            student = inner.parts[0]
        else:
            student = re.sub(r"^\d\d_[a-z]+[-_ ]?", "", path.stem)
        found.append((student or path.stem, int(match[1]), path))
    return sorted(found, key=lambda f: (f[0], f[1], str(f[2])))


def parse(path):
    """[(cell, tree, source)] of the code cells, and what is no Python:
    {cell: why}; runner.CheckError where there is no notebook."""
    found, broken = [], {}
    try:
        cells = read_cells(path)
    except (ValueError, RecursionError) as error:
        raise runner.CheckError(f"{path.name}: {error}") from None
    for cell in cells:
        if cell.kind != "code":
            continue
        try:
            tree, source = runner.plain(cell.source)
            compile(source, cell.label, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
            tree, source = ast.parse(""), ""
            broken[cell.label] = f"{type(why).__name__}: {why}"
        found.append((cell, tree, source))
    return found, broken


def suspicions(parsed):
    """Names in a notebook that a person should look at."""
    found = set()
    for _, tree, _ in parsed:
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
                if node.module == "course" and OWN >= {
                        a.name for a in node.names}:
                    continue
                if node.module == "course.figures":
                    continue
            elif isinstance(node, ast.Attribute):
                names = [node.attr] if node.attr in (
                    "modules", "_getframe", "settrace", "_exit") else []
            found |= {n for n in names if n.partition(".")[0] in
                      STRANGE | {"course", "modules", "_getframe",
                                 "settrace", "_exit"}}
    return found


def chosen(parsed, number, root):
    """The cells to run: the library's, the exercises', and what the
    student has added; the chapter's own experiments are left out."""
    known, strange = set(), set()
    for path in (root / "chapters").glob(f"{number:02d}_*.ipynb"):
        cells = read_cells(path)
        known = {c.source.strip() for c in cells if c.kind == "code"
                 and not c.tags & {"export", "exercise"}}
        trees = []
        for cell in cells:
            with contextlib.suppress(SyntaxError):
                if cell.kind == "code":
                    trees.append((cell, *runner.plain(cell.source)))
        strange = suspicions(trees)
    return [(cell, tree, source) for cell, tree, source in parsed
            if cell.source.strip() not in known
            or runner.is_preparation(tree)], suspicions(parsed) - strange


# Running one


def grade_one(student, number, path, options):
    """The results of one workbook; whatever it holds, this comes back."""
    asked = exercises.load(number)
    name = path.relative_to(options.folder).as_posix()

    def result(exercise, kind, text, **more):
        return Result(student, name, exercise.id, kind, text, **more)

    with tempfile.TemporaryDirectory(
            prefix="grade-", ignore_cleanup_errors=True) as temporary:
        here = Path(temporary, "work")
        here.mkdir()
        copy = here / path.name
        try:
            if path.stat().st_size > 50 << 20:
                raise runner.CheckError(f"{path.name} is larger than 50 MB")
            shutil.copyfile(path, copy)
            parsed, broken = parse(copy)
        except (runner.CheckError, OSError) as error:
            return [result(e, "unreadable", str(error)) for e in asked]
        cells = runner.exercise_cells(parsed, asked)
        results, ask, places = {}, [], {}
        for exercise in asked:
            pair = cells[exercise.id]
            if pair is not None and pair[0].label in broken:
                results[exercise.id] = result(exercise, "syntax", (
                    f"{pair[0].label}: {broken[pair[0].label]}"))
            elif pair is None or exercise.name not in {
                    n for n, _ in defined(pair[1].body)}:
                told = runner.absent(path, exercise, pair)
                results[exercise.id] = result(exercise, told["kind"],
                                              told["text"])
            else:
                ask.append(exercise.id)
                places[exercise.id] = f"{path.name}, {pair[0].label}"
        run, strange = chosen(parsed, number, options.root)
        run = [{"label": f"{path.name}, {cell.label}", "source": source,
                "export": "export" in cell.tags,
                "raises": "raises-exception" in cell.tags}
               for cell, _, source in run]
        skip = []
        while ask:
            events, ending = process(
                run, {i: places[i] for i in ask}, skip, here,
                Path(temporary), options)
            at = None
            for event in events:
                at = event.get("at", at)
                if "kind" in event:
                    exercise = exercises.find(event["exercise"])
                    event.pop("exercise")
                    results[exercise.id] = result(exercise, **event)
                    ask.remove(exercise.id)
                    at = None
            if ending is None:
                break
            if at in ask:
                results[at] = result(exercises.find(at), *ending)
                ask.remove(at)
            elif at is not None and at not in skip and len(skip) < 3:
                skip.append(at)
            else:
                break
        for ident in ask:
            kind, text = ending or ("crashed", "nothing was judged")
            results[ident] = result(exercises.find(ident), kind, text)
    for found in results.values():
        found.look = " ".join(sorted(strange))
    return [results[e.id] for e in asked]


def process(cells, ask, skip, here, outside, options):
    """(events, None or how it ended before its end) of one process.

    ask: {exercise: its cell}. skip: cells that ended a process before.
    """
    token = secrets.token_hex(16)
    job = {"cells": cells, "ask": ask, "skip": skip, "token": token,
           "folder": str(here), "memory": options.memory << 20,
           "seconds": options.seconds}
    home = {k: str(here) for k in ("HOME", "USERPROFILE", "TMPDIR", "TEMP",
                                   "TMP", "IPYTHONDIR", "MPLCONFIGDIR")}
    keep = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "COMSPEC", "PATHEXT")
    paths = [str(options.root / "src"), str(Path(__file__).parents[1])]
    env = {k: os.environ[k] for k in keep if k in os.environ} | home | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg",
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if options.seed is not None:
        env["LAMINA_SEED"] = options.seed
    ending, out = None, outside / "events"
    with open(out, "wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-c", "from course.grade import child; child()"],
            cwd=here, env=env, stdin=subprocess.PIPE, stdout=file,
            stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            started.communicate(json.dumps(job).encode(), options.seconds)
        except subprocess.TimeoutExpired:
            ending = "timeout", f"still running after {options.seconds} s"
        except OSError:     # it ended before it read its job
            pass
        finally:
            kill(started)
    events = []
    with open(out, encoding="utf-8", errors="replace") as file:
        for row in file:
            with contextlib.suppress(ValueError):
                if row.startswith(token):
                    events.append(json.loads(row.removeprefix(token)))
    if ending is None and not (events and events[-1].get("done")):
        ending = "crashed", f"the process ended (code {started.returncode})"
    return events, ending


def kill(started):
    """End a process and what it has started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(started.pid, signal.SIGKILL)
        else:
            started.kill()
    started.wait()


def child():
    """In the process: limits first, then the cells, then the checks."""
    job = json.loads(sys.stdin.buffer.read())
    private = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    write, dumps, stop = os.write, json.dumps, os._exit

    def tell(**event):
        write(private, (job["token"] + dumps(event) + "\n").encode())

    from course import checker, sandbox

    tell(limits=sandbox.enter(job["folder"], job["memory"], job["seconds"]))
    with contextlib.suppress(ImportError):
        for ident in job["ask"]:
            checker.samples(exercises.find(ident))
    ours = [m for n, m in list(sys.modules.items())
            if n.partition(".")[0] == "course"]
    before = [dict(vars(m)) for m in ours]
    main = types.ModuleType("__main__")
    main.__dict__.update(display=print, get_ipython=lambda: None)
    sys.modules["__main__"] = main
    failed, answers = {}, {}
    for cell in job["cells"]:
        if cell["label"] in job["skip"]:
            failed[cell["label"]] = "it ended the process, or its time"
            continue
        tell(at=cell["label"])
        try:
            runner.run_cell(cell, main.__dict__)
        except runner.CheckError as error:
            failed[cell["label"]] = str(error)
        for ident, place in job["ask"].items():     # a later cell may
            if place == cell["label"]:              # use the name again
                answers[ident] = main.__dict__.get(
                    exercises.find(ident).name)
    for ident in job["ask"]:
        for module, names in zip(ours, before, strict=True):
            vars(module).update(names)  # whatever the cells made of them
        tell(at=ident)
        begun = time.monotonic()
        found = judge(exercises.find(ident), answers.get(ident), failed)
        tell(exercise=ident, kind=found.kind, text=found.text[:4000],
             misconception=found.misconception,
             seconds=round(time.monotonic() - begun, 2))
    tell(done=True)
    stop(0)


def judge(exercise, function, failed):
    from course import checker

    if function is None:
        why = "; ".join(failed.values()) or "its cell was not run"
        return checker.Verdict(exercise.id, "missing", (
            f"{exercise.id}: there is no {exercise.name}: {why}"))
    return checker.examine(exercise, function)


# Reports


def safe(text):
    """A cell of a table that no spreadsheet takes for a formula."""
    return "'" + text if text[:1] in tuple("=+-@\t\r") and text else text


def write_csv(results, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["student", "file", "exercise", "passed", "kind",
                       "misconception", "look", "seconds"])
        for r in results:
            rows.writerow([safe(r.student), safe(r.file), r.exercise,
                           int(r.passed), r.kind, r.misconception or "",
                           r.look, f"{r.seconds:.2f}"])


def printable(text):
    """Text that XML can hold."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]",
                  "\ufffd", text)


def write_junit(results, path):
    top = ElementTree.Element("testsuites", name="course grade")
    suites = {}
    for r in results:
        suites.setdefault((r.student, r.file), []).append(r)
    for (student, file), own in suites.items():
        bad = [r for r in own if not r.passed]
        skipped = [r for r in bad if r.kind in ("unanswered", "missing")]
        suite = ElementTree.SubElement(
            top, "testsuite", name=printable(f"{student}: {file}"),
            tests=str(len(own)), skipped=str(len(skipped)), errors="0",
            failures=str(len(bad) - len(skipped)),
            time=f"{sum(r.seconds for r in own):.2f}")
        for r in own:
            case = ElementTree.SubElement(
                suite, "testcase", name=r.exercise, time=f"{r.seconds:.2f}",
                classname=printable(student))
            if not r.passed:
                ElementTree.SubElement(
                    case, "skipped" if r in skipped else "failure",
                    message=r.kind).text = printable(r.text)
    ElementTree.indent(top)
    path.write_bytes(ElementTree.tostring(
        top, encoding="utf-8", xml_declaration=True) + b"\n")


def plain(text):
    """Text in a table of a Markdown page."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))


MARKS = {"passed": "yes", "unanswered": "", "missing": ""}


def report(results, seed, limits):
    """A page for the teacher: what the class believes, and who stands
    where."""
    students = list(dict.fromkeys(r.student for r in results))
    asked = list(dict.fromkeys(r.exercise for r in sorted(
        results, key=lambda r: [int(n) for n in r.exercise.split(".")])))
    held = Counter((r.exercise, r.misconception) for r in results
                   if r.misconception)
    many = "s" * (len(students) != 1)
    lines = ["# What the class knows", "",
             f"{len(students)} student{many}, {len(asked)} exercises, "
             f"{sum(r.passed for r in results)} of {len(results)} answers "
             "right.", "",
             "Seed of the generated inputs: "
             + (plain(seed) if seed is not None else "the course's own")
             + ". Limits in force: " + (", ".join(limits) or "none") + ".",
             "", "## Misconceptions", ""]
    if not held:
        lines += ["No answer was recognised as one of the known ones."]
    for (ident, message), count in sorted(
            held.items(), key=lambda item: (-item[1], item[0])):
        exercise = exercises.find(ident)
        who = [r.student for r in results if r.exercise == ident
               and r.misconception == message]
        lines += [f"### {ident} {exercise.title}: {count} of "
                  f"{len(students)}", "", message, "",
                  "Held by: " + ", ".join(map(plain, who)) + ".", ""]
    lines += ["", "## Exercises", "",
              "| exercise | right | wrong | open | broken |",
              "|---|---:|---:|---:|---:|"]
    for ident in asked:
        kinds = [r.kind for r in results if r.exercise == ident]
        right, left = kinds.count("passed"), sum(
            k in ("unanswered", "missing") for k in kinds)
        broken = sum(k in ("crashed", "timeout", "unreadable", "broken")
                     for k in kinds)
        lines += [f"| {ident} {exercises.find(ident).title} | {right} | "
                  f"{len(kinds) - right - left - broken} | {left} | "
                  f"{broken} |"]
    lines += ["", "## Students", "", "| student | right | to look at |",
              "|---|---:|---|"]
    for student in students:
        own = [r for r in results if r.student == student]
        look = [f"{r.exercise} {r.kind}" for r in own if r.kind not in (
            "passed", "unanswered", "missing", "value", "shape", "type")]
        look += [f"uses {r}" for r in sorted({r.look for r in own if r.look})]
        lines += [f"| {plain(student)} | {sum(r.passed for r in own)} of "
                  f"{len(own)} | {plain(', '.join(look))} |"]
    return "\n".join(lines) + "\n"


@dataclass
class Options:
    folder: Path
    root: Path
    seed: str | None = None
    seconds: int = 120      # for one process
    memory: int = 2048      # megabytes


def limits_here(options):
    """What holds on this machine, asked of a process that has nothing to
    do."""
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary, "work")
        here.mkdir()
        events, _ = process([], {}, [], here, Path(temporary), options)
    return next((e["limits"] for e in events if "limits" in e), [])


def grade(options, to, say=print):
    """Judge a folder of workbooks and write the three files."""
    found = workbooks(options.folder)
    known = {e.chapter for e in exercises.load()}
    results = []
    for student, number, path in found:
        if number not in known:
            continue
        own = grade_one(student, number, path, options)
        results += own
        say(f"{student}, {path.name}: "
            f"{sum(r.passed for r in own)} of {len(own)} right")
    if not results:
        return []
    to.mkdir(parents=True, exist_ok=True)
    write_csv(results, to / "grades.csv")
    write_junit(results, to / "grades.xml")
    (to / "report.md").write_text(
        report(results, options.seed, limits_here(options)),
        encoding="utf-8", newline="\n")
    return results


def run(args, fail):
    from course.export import find_root

    if not args.folder.is_dir():
        fail(f"there is no folder {args.folder}")
    # The course's own chapters: the folder may be anywhere.
    root = Path(__file__).resolve().parents[2]
    if not (root / "chapters").is_dir():
        root = find_root()
    options = Options(args.folder.resolve(), root, args.seed, args.seconds,
                      args.memory)
    results = grade(options, args.to)
    if not results:
        fail(f"{args.folder} holds no answered chapter: a file named as "
             "02_strides.ipynb, in a folder named as the student")
    print(f"{args.to}: grades.csv, grades.xml, report.md")
    return 0
