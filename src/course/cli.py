"""The command `course`. Each command imports only what it needs."""

import argparse
import os
import os
import sys
from pathlib import Path


def parser():
    top = argparse.ArgumentParser(
        prog="course",
        description="Lamina's own tools: from the chapters to the library, "
        "and from an answer to a verdict.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def add(name, run, short, long):
        made = commands.add_parser(name, help=short, description=long)
        made.set_defaults(run=run)
        return made

    made = add("export", run_export, "write src/lamina/ from the marked cells",
               "Write src/lamina/ from the cells of chapters/*.ipynb that "
               "are tagged `export`. An error in any chapter writes nothing.")
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

    made = add("check", run_check, "check your answers",
               "Check an exercise (02.1), a chapter (02) or all of them: "
               "run the cells of your saved notebook, then compare your "
               "functions with the references.")
    made.add_argument("what", nargs="?", metavar="02.1",
                      help="an exercise or a chapter (default: all)")
    made.add_argument("--notebook", type=Path, metavar="FILE",
                      help="your notebook, if it is not the one in chapters/")

    made = add("hint", run_hint, "show the next hint to an exercise",
               "Show the next hint to an exercise, one step further each "
               "time.")
    made.add_argument("exercise", metavar="02.1")
    made.add_argument("--all", action="store_true", help="show all of them")

    made = add("solution", run_solution, "show an answer to an exercise",
               "Show an answer to an exercise.")
    made.add_argument("exercise", metavar="02.1")
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
    root = export.find_root()
    files = export.build(root / "chapters", args.upto)
    target = (args.to or root / "src") / "lamina"
    if args.check:
        diff = export.differences(files, target)
        if diff:
            print(diff, end="")
            print(paint("src/lamina/ is not what the chapters export: "
                        "run `course export`", "red"))
            return 1
        print(f"src/lamina/ is what the {len(files) - 1} chapters export")
        return 0
    changed = export.write(files, target, strict=args.to is not None)
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
    from course import exercises, progress, runner

    wanted, what = None, args.what
    if what is not None and "." in what:
        try:
            exercise = exercises.find(what)
        except LookupError as error:
            fail(error.args[0])
        wanted, what = {exercise.id}, f"{exercise.chapter:02d}"
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
            print(paint(str(error), "red") + "\n")
            continue
        for verdict in verdicts:
            kind = verdict["kind"]
            kinds.append(kind)
            head, _, rest = verdict["text"].partition("\n")
            colour = {"passed": "green", "unanswered": "yellow",
                      "missing": "yellow"}.get(kind, "red")
            print(paint(head, colour) + ("\n" + rest if rest else "") + "\n")
            progress.record(runner.as_verdict(verdict), path.parent)
        if not verdicts:
            print(f"{path.name} runs; it has no exercise\n")
    if len(kinds) > 1:
        later = sum(k in ("unanswered", "missing") for k in kinds)
        right = kinds.count("passed")
        print(f"{right} right, {later} not answered yet, "
              f"{len(kinds) - right - later} to mend")
    return 0 if all(k == "passed" for k in kinds) else 1


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
    from course import exercises

    try:
        print(exercises.find(args.exercise).solution, end="")
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
    except OSError as error:
        print(f"course {args.command}: {error}", file=sys.stderr)
        return 1
