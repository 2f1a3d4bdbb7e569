"""The command `course`. Each command imports only what it needs."""

import argparse
import os
import sys
from pathlib import Path


def parser():
    top = argparse.ArgumentParser(
        prog="course",
        description="Lamina's own tools: from the chapters to the library, "
        "and from an answer to a verdict.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    export = commands.add_parser(
        "export", help="write src/lamina/ from the marked cells",
        description="Write src/lamina/ from the cells of chapters/*.ipynb "
        "that are tagged `export`. An error in any chapter writes nothing.")
    export.add_argument(
        "--check", action="store_true",
        help="write nothing; show a diff and fail where the two differ")
    export.add_argument(
        "--upto", type=int, metavar="N",
        help="checkpoint N: only the chapters 1 to N (needs --to)")
    export.add_argument(
        "--to", type=Path, metavar="DIR", help="write DIR/lamina/ instead")
    export.set_defaults(run=run_export)
    return top


def paint(text, colour):
    """Colour on a terminal only, and never where NO_COLOR is set."""
    codes = {"red": 31, "green": 32, "yellow": 33}
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
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


def main(argv=None):
    """Run a command; 0 all is well, 1 something is not, 2 wrong usage."""
    from course.export import ExportError

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    top = parser()
    args = top.parse_args(argv)
    if args.command is None:
        top.print_help()
        return 2
    try:
        return args.run(args, top.error)
    except ExportError as error:
        print(error, file=sys.stderr)
        count = len(error.problems)
        print(paint(f"{count} problem{'s' * (count > 1)}; nothing was "
                    "written", "red"), file=sys.stderr)
        return 1
    except (FileNotFoundError, PermissionError) as error:
        print(f"course {args.command}: {error}", file=sys.stderr)
        return 1
