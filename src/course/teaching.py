"""The teacher's commands: their options, and where their code is."""

import importlib
from pathlib import Path


def later(module):
    """A module's `run`, which is imported when it is called."""
    def run(args, fail):
        return importlib.import_module(f"course.{module}").run(args, fail)

    return run


def add_to(add):
    """Add the commands; `add` makes one of `course`."""
    made = add("grade", later("grade"), "grade a folder of workbooks",
               "Grade a folder of answered chapters, as in "
               "FOLDER/anna/02_strides.ipynb: each runs in a process of its "
               "own, without network, within limits of time, memory and "
               "files. Writes grades.csv, grades.xml (JUnit) and report.md, "
               "which says what the class has misunderstood.")
    made.add_argument("folder", type=Path, metavar="FOLDER")
    made.add_argument("--to", type=Path, metavar="DIR",
                      default=Path("grades"),
                      help="where the files go (default: grades)")
    made.add_argument("--seed", metavar="TEXT",
                      help="generate other inputs, the same for each TEXT")
    made.add_argument("--seconds", type=int, metavar="N", default=120,
                      help="for one process (default: 120)")
    made.add_argument("--memory", type=int, metavar="MB", default=2048,
                      help="for one process (default: 2048)")

    made = add("nbgrader", later("nbgrader"),
               "make assignments for nbgrader",
               "Write the chapters as assignments of nbgrader: "
               "DIR/source/02_strides/02_strides.ipynb and so on, with "
               "points, hidden tests and a question in words each, and "
               "DIR/nbgrader_config.py.")
    made.add_argument("folder", type=Path, metavar="DIR")

    made = add("prove", later("prove"), "prove the checks by mutants",
               "Make every mutant of each exercise's reference and have it "
               "judged: it must be refused, or survivors.json must say why "
               "it is equal. Only what has changed is proved again. Writes "
               "the page book/checkers.md.")
    made.add_argument("exercises", nargs="*", metavar="02.1",
                      help="exercises (default: those that have changed)")
    made.add_argument("--all", action="store_true",
                      help="prove every exercise again")
