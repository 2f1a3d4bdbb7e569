"""The command `course`. Each command imports only what it needs."""

import argparse
import os
import sys
from pathlib import Path

from course import teaching


ABOUT = """\
From the chapters to the library, and from an answer to a verdict.

To read: check your answers in the notebooks of chapters/.
To build: `course start my-lamina` makes a workbook, in which your own code
becomes your own library; then `course next` says what to do."""

ENDINGS = """\
exit codes: 0 all is well; 1 an answer is wrong or missing, or something
failed; 2 the command was not understood.
NO_COLOR=1 turns colours off; they are for terminals only."""


def parser():
    top = argparse.ArgumentParser(
        prog="course", description=ABOUT, epilog=ENDINGS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", metavar="COMMAND",
                                  title="commands")

    def add(name, run, short, long, example=None):
        made = commands.add_parser(
            name, help=short, description=long,
            epilog=example and f"example: {example}")
        made.set_defaults(run=run)
        return made

    made = add("start", run_start, "make a workbook to build in",
               "Make a workbook: the chapters with the library's functions "
               "that the exercises ask for left open, and a package `lamina` "
               "that begins empty and grows by what you write.",
               "course start my-lamina")
    made.add_argument("folder", nargs="?", metavar="DIR", type=Path,
                      default=Path("my-lamina"),
                      help="a new folder (default: my-lamina)")

    add("next", run_next, "show what to do now",
        "Show the first exercise that is not done.")

    add("status", run_status, "show the map of chapters",
        "Show the map of chapters: what is done, and in a workbook whose "
        "code each layer is.")

    made = add("check", run_check, "check your answers",
               "Check an exercise (02.1), a chapter (02) or all of them: "
               "run the cells of your saved notebook, then compare your "
               "functions with the references. In a workbook the functions "
               "of the library are checked too, and the library is brought "
               "up to date.", "course check 02.1")
    made.add_argument("what", nargs="?", metavar="02.1",
                      help="an exercise or a chapter (default: all)")
    made.add_argument("--notebook", type=Path, metavar="FILE",
                      help="your notebook, if it is not the one in chapters/")

    made = add("hint", run_hint, "show the next hint to an exercise",
               "Show the next hint to an exercise, one step further each "
               "time.", "course hint 02.1")
    made.add_argument("exercise", metavar="02.1")
    made.add_argument("--all", action="store_true", help="show all of them")

    made = add("solution", run_solution, "show an answer to an exercise",
               "Show an answer to an exercise. In a workbook, show the "
               "library's function as well.", "course solution 02.1")
    made.add_argument("exercise", metavar="02.1")

    made = add("take", run_take, "take the reference for a chapter",
               "Fill the open parts of chapters of a workbook with the "
               "reference's functions, so that you can begin anywhere. "
               "Yours are replaced too; a backup is kept.",
               "course take 01-06")
    made.add_argument("chapters", nargs="+", metavar="NN",
                      help="chapters, as in 04 or 01-06")

    made = add("reset", run_reset, "bring a chapter back to its start",
               "Bring a chapter of a workbook back to its start. The "
               "notebook as it was is kept in .lamina/backup/.",
               "course reset 02")
    made.add_argument("chapter", metavar="NN")

    made = add("export", run_export, "write the library from the notebooks",
               "Write src/lamina/ (in a workbook: lamina/) from the cells "
               "of chapters/*.ipynb that are tagged `export`. An error in "
               "any chapter writes nothing.")
    made.add_argument(
        "--check", action="store_true",
        help="write nothing; show a diff and fail where the two differ")
    made.add_argument(
        "--upto", type=int, metavar="N",
        help="checkpoint N: only the chapters 1 to N (needs --to)")
    made.add_argument(
        "--to", type=Path, metavar="DIR", help="write DIR/lamina/ instead")

    made = add("run", run_run, "execute notebooks and store their outputs",
               "Execute notebooks in place and store their outputs in the "
               "form in which they stay the same on every machine. A "
               "notebook with an error is left as it is.")
    made.add_argument(
        "chapters", nargs="*", metavar="NN",
        help="chapters by number, as in 02 (default: all), or files")

    made = add("completion", run_completion, "complete commands in the shell",
               "Print a script that completes `course` in your shell. For "
               "bash or zsh: eval \"$(course completion bash)\" (or zsh) in "
               "~/.bashrc (~/.zshrc); for fish: course completion fish > "
               "~/.config/fish/completions/course.fish")
    made.add_argument("shell", choices=("bash", "zsh", "fish"))

    teaching.add_to(add)
    return top


def paint(text, colour, stream=None):
    """Colour on a terminal only, and never where NO_COLOR is set."""
    codes = {"red": 31, "green": 32, "yellow": 33}
    stream = stream or sys.stdout
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{codes[colour]}m{text}\033[0m"


def run_export(args, fail):
    from course import export

    if args.upto is not None and args.to is None:
        fail("--upto N writes a part of the library: say where with --to DIR")
    if args.check and args.to is not None:
        fail("--check compares src/lamina/: leave --to out")
    from course import workbook

    root = export.find_root()
    own = workbook.find()
    if own and args.upto is None:
        files, count = workbook.built(own)
        where = "lamina/"
    else:
        files = export.build(root / "chapters", args.upto)
        where, count = "src/lamina/", len(files) - 1
    target = (args.to or (own if own else root / "src")) / "lamina"
    if args.check:
        diff = export.differences(files, target)
        if diff:
            print(diff, end="")
            print(paint(f"{where} is not what the chapters export: "
                        "run `course export`", "red"))
            return 1
        print(f"{where} is what the {count} chapters export")
        return 0
    changed = export.write(files, target,
                           strict=bool(own) or args.to is not None)
    if own:
        print(library_line(own))
    for path in changed:
        print(f"  {path}")
    print(f"{target}: {len(changed)} of {len(files)} files changed")
    return 0


def chapter_files(wanted, fail):
    """{number: path} of the chapters asked for, or of all."""
    from course.export import FILE_NAME, find_root

    folder = find_root() / "chapters"
    found = {int(m[1]): p for p in sorted(folder.glob("*.ipynb"))
             if (m := FILE_NAME.match(p.stem))}
    if not wanted:
        return found
    chosen = {}
    for text in wanted:
        number = int(text) if text.isdigit() else None
        if number not in found:
            fail(f"there is no chapter {text!r}: the chapters are "
                 + (", ".join(f"{n:02d}" for n in found) or "none yet"))
        chosen[number] = found[number]
    return chosen


def run_run(args, fail):
    from course import notebooks

    files = [Path(c) for c in args.chapters if c.endswith(".ipynb")]
    numbers = [c for c in args.chapters if not c.endswith(".ipynb")]
    if numbers or not files:
        files += chapter_files(numbers, fail).values()
    source = Path(__file__).resolve().parents[1]
    failed = 0
    for path in files:
        try:
            changed = notebooks.run(path, source)
            print(f"{path.name}: " + ("outputs stored" if changed
                                      else "the same as before"), flush=True)
        except notebooks.NotebookError as error:
            failed += 1
            print(f"{error}\n{path.name} is left as it was", file=sys.stderr)
    return 1 if failed else 0


def run_check(args, fail):
    from course import exercises, progress, runner, workbook

    wanted, what = None, args.what
    if what is not None and "." in what:
        try:
            exercise = exercises.find(what)
        except LookupError as error:
            fail(error.args[0])
        wanted, what = {exercise.id}, f"{exercise.chapter:02d}"
    own = workbook.find()
    if args.notebook is not None:
        if what is None:
            digits = args.notebook.name[:2]
            what = digits if digits.isdigit() else fail(
                "say which exercise or chapter the notebook answers, as in "
                "`course check 02.1 --notebook FILE`")
        if not what.isdigit():
            fail(f"{what!r} is neither an exercise (02.1) nor a chapter (02)")
        if not args.notebook.is_file():
            fail(f"there is no file {args.notebook}")
        files = {int(what): args.notebook}
    else:
        files = chapter_files([what] if what else [], fail)
        if not files:
            fail("chapters/ holds no notebook yet")
    kinds = []
    for number, path in files.items():
        asked = exercises.load(number)
        try:
            verdicts = runner.check_notebook(path, asked, wanted)
        except runner.CheckError as error:
            kinds.append("error")
            print(paint(str(error), "red") + "\n" + after_error(
                error, number) + "\n")
            continue
        for verdict in verdicts:
            kind = verdict["kind"]
            kinds.append(kind)
            head, _, rest = verdict["text"].partition("\n")
            print(paint(head, COLOURS.get(kind, "red")) + ("\n" + rest if rest else "") + "\n")
            progress.record(runner.as_verdict(verdict), path.parent)
        if not verdicts:
            print(f"{path.name} runs; it has no exercise\n")
    if len(kinds) > 1:
        later = sum(k in ("unanswered", "missing") for k in kinds)
        right, taken = kinds.count("passed"), kinds.count("taken")
        print(f"{right} right, {later} not answered yet, "
              f"{len(kinds) - right - taken - later} to mend"
              + (f", {taken} the reference's" if taken else ""))
    if own and args.notebook is None:
        if workbook.is_stale(own):
            workbook.grow(own)
        print(library_line(own))
    return 0 if all(k in ("passed", "taken") for k in kinds) else 1


COLOURS = {"passed": "green", "taken": "green", "unanswered": "yellow",
           "missing": "yellow"}


def after_error(error, number):
    """The next step after a notebook that does not run."""
    text = str(error)
    if "needs chapter" in text:
        return "`course status` shows how far your library goes."
    if "ModuleNotFoundError" in text:
        return ("Is the name spelt as it is in the import you meant? What "
                "the course itself needs is there after `make setup`.")
    if "NameError" in text:
        return ("The cells run in order, from the top: does the cell that "
                "defines the name stand above this one?")
    if "still running" in text:
        return ("Does a loop in that cell come nearer to its end in every "
                "round? Mend it, save the notebook, and check again.")
    if "the process ended here" in text:
        return ("Take calls that end Python (exit, os._exit) out of that "
                "cell, or ask for less memory; save, and check again.")
    if "JSON" in text or "notebook" in text.lower() and "cell" not in text:
        return (f"`course reset {number:02d}` gives you the chapter anew, "
                "in a workbook.")
    return "Mend that line, save the notebook, and check again."


def library_line(root):
    """How far the reader's library goes, and what keeps it there."""
    from course import workbook

    count, left = workbook.reach(root)
    if left is None:
        return f"lamina/ holds all {count} chapters."
    far = f"chapters 1 to {count}" if count > 1 else (
        "chapter 1" if count else "no chapter yet")
    return (f"lamina/ holds {far}; next to write: {left.function} "
            f"({left.exercise.id}).")


def run_start(args, fail):
    from course import workbook

    root = workbook.start(args.folder)
    print(f"Your workbook is {root}\n\n"
          f"    cd {args.folder}\n"
          "    course next\n"
          "    jupyter lab chapters\n")
    return 0


def run_next(args, fail):
    from course import workbook
    from course.exercises.parts import PARTS

    found = workbook.upcoming()
    if found is None:
        print("All exercises are done. `course status` shows the map.")
        return 0
    exercise, what = found
    root = workbook.find()
    print(paint(f"{exercise.id} {exercise.title}", "yellow")
          + f"  (chapter {exercise.chapter:02d})\n")
    if what == "library":
        print(f"Your answer is right. Its place in the library is open: "
              f"write {PARTS[exercise.id].function} in its cell.\n")
    else:
        print(exercise.statement.replace("**", ""))
        if root and exercise.id in PARTS:
            print(f"\nThen write {PARTS[exercise.id].function}, its place "
                  "in the library." + (" It may call your answer."
                                       if workbook.is_free(exercise) else ""))
    print(f"\nSave the notebook, then: course check {exercise.id}   "
          f"(a first step: course hint {exercise.id})")
    return 0


def run_status(args, fail):
    from course import chart

    print(chart.table(), end="")
    return 0


def chapter_numbers(texts, known, fail):
    """[number] from texts like 04 or 01-06."""
    numbers = []
    for text in texts:
        first, _, last = text.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            fail(f"{text!r} is no chapter: write 04, or 01-06")
        span = range(int(first), int(last or first) + 1)
        lost = [n for n in span if n not in known] or (
            [] if span else [text])
        if lost:
            fail(f"there is no chapter {lost[0]}: the chapters are "
                 + ", ".join(f"{n:02d}" for n in known))
        numbers += span
    return numbers


def run_take(args, fail):
    from course import workbook

    root = workbook.need()
    known = workbook.chapter_paths(workbook.reference())
    for number in chapter_numbers(args.chapters, known, fail):
        taken, kept = workbook.take(root, number)
        print(f"chapter {number:02d}: " + (
            f"took {', '.join(taken)}" if taken else
            "all of it is the reference's already"))
        if kept:
            print(f"  the notebook as it was: {kept.relative_to(root)}")
    workbook.grow(root)
    print(library_line(root) + " Where a notebook is open, load it again.")
    return 0


def run_reset(args, fail):
    from course import workbook

    root = workbook.need()
    known = workbook.chapter_paths(workbook.reference())
    number, = chapter_numbers([args.chapter.partition("-")[0]], known, fail)
    path, kept = workbook.reset(root, number)
    print(f"{path.relative_to(root)} is as it was at the start. Where it is "
          "open, load it again.")
    if kept:
        print(f"  the notebook as it was: {kept.relative_to(root)}")
    workbook.grow(root)
    print(library_line(root))
    return 0


def run_completion(args, fail):
    from course import completion

    print(completion.script(args.shell, parser()), end="")
    return 0


def run_hint(args, fail):
    from course import checker, exercises, progress

    try:
        exercise = exercises.find(args.exercise)
    except LookupError as error:
        fail(error.args[0])
    count = len(exercise.hints)
    steps = range(count) if args.all else [
        progress.next_hint(exercise.id, count)]
    solution = f"`course solution {exercise.id}`"
    print("\n\n".join(checker.hint_text(exercise, s, solution)
                      for s in steps))
    return 0


def run_solution(args, fail):
    from course import checker

    try:
        checker.solution(args.exercise)
    except LookupError as error:
        fail(error.args[0])
    return 0


def main(argv=None):
    """Run a command; 0 all is well, 1 something is not, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    top = parser()
    args = top.parse_args(argv)
    if args.command is None:
        top.print_help()
        return 2
    from course.export import ExportError
    from course.workbook import WorkbookError

    try:
        return args.run(args, top.error)
    except ExportError as error:
        print(error, file=sys.stderr)
        count = len(error.problems)
        print(paint(f"{count} problem{'s' * (count > 1)}; nothing was "
                    "written", "red", sys.stderr), file=sys.stderr)
        return 1
    except BrokenPipeError:     # the reader of our output has read enough
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
        return 1
    except WorkbookError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"course {args.command}: {error}", file=sys.stderr)
        return 1
