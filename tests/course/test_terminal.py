"""`course check`, `hint` and `solution` in a terminal.

What is checked is the notebook that the reader saved, in a process of its
own, and an error in any of its cells fails the check.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import course
from course import cli, exercises, export, progress, runner
from notebooks_for_tests import cell, save

SOURCE = Path(course.__file__).parents[1]
EXERCISE = exercises.find("02.1")
RIGHT = EXERCISE.solution
BEGIN = cell("from course import begin, check, hint\nbegin('02_strides')")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A course of two chapters; the second one has an exercise."""
    folder = tmp_path / "chapters"
    save(folder, "01_storage", "class Storage: pass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exercises, "load", lambda chapter=None: (
        [EXERCISE] if chapter in (None, 2) else []))
    return folder


def chapter(folder, *cells, answer=RIGHT, name="02_strides"):
    last = [] if answer is None else [cell(answer, "exercise")]
    path = save(folder, name, BEGIN,
                "from lamina.storage import Storage\nx = Storage()",
                *cells, *last)
    if name == "02_strides":
        export.write(export.build(folder), folder.parent / "src" / "lamina")
    return path


def run(capsys, *args):
    code = cli.main(["check", *args])
    return code, capsys.readouterr().out


def test_a_right_answer(folder, capsys):
    chapter(folder)
    code, out = run(capsys, "02.1")
    assert code == 0 and out.startswith("02.1 is right: is_contiguous")
    assert progress.load(folder)["02.1"]["last"] == "passed"
    assert run(capsys, "2.1")[0] == 0
    assert run(capsys, "02")[0] == 0
    code, out = run(capsys)
    assert code == 0 and "01_storage.ipynb runs; it has no exercise" in out


def test_a_wrong_answer_and_the_line_in_the_notebook(folder, capsys):
    chapter(folder, answer="def is_contiguous(shape, strides):\n"
            "    return shape[0] == 1")
    code, out = run(capsys, "02.1")
    assert code == 1
    assert "smallest failing input  is_contiguous(" in out
    assert "in line 2               return shape[0] == 1" in out


@pytest.mark.parametrize("answer, words", [
    (EXERCISE.stub, "02.1 is not answered yet: write is_contiguous"),
    ("", "its cell is empty (02_strides.ipynb, cell 4 (code cell 3))"),
    ("# nothing", "its cell is empty"),
    ("x = 1", "does not define is_contiguous"),
    (None, "has no cell tagged `exercise`"),
    ("from lamina.storage import Storage as is_contiguous",
     "does not define is_contiguous"),
    ("import course.exercises.c02_strides as c\n"
     "is_contiguous = c.is_contiguous", "wants your own function"),
])
def test_no_answer(folder, capsys, answer, words):
    chapter(folder, answer=answer)
    code, out = run(capsys, "02.1")
    assert code == 1 and words in out
    assert "Traceback" not in out


def test_the_chapter_s_own_function_is_not_the_answer(folder, capsys):
    chapter(folder, RIGHT, answer="")
    assert "its cell is empty" in run(capsys, "02.1")[1]
    chapter(folder, RIGHT,
            answer="is_contiguous = globals()['is_contiguous']")
    code, out = run(capsys, "02.1")
    assert code == 1 and "is the one that the chapter defines" in out


def test_an_error_in_an_exported_cell_fails(folder, capsys):
    path = chapter(folder)
    save(folder, "02_strides", BEGIN, "y = 1\nraise RuntimeError('mine')",
         cell(RIGHT, "exercise"))
    code, out = run(capsys, "02.1")
    assert code == 1
    assert (f"{path.name}, cell 3 (code cell 2), line 2: RuntimeError: mine"
            in out)
    assert "is right" not in out


def test_an_error_in_any_cell_fails_the_chapter(folder, capsys):
    chapter(folder, cell("1\n\nraise RuntimeError('mine')"))
    code, out = run(capsys, "02")
    assert code == 1 and "cell 4 (code cell 3), line 3: RuntimeError" in out


def test_an_error_that_arises_in_another_cell(folder, capsys):
    chapter(folder, cell("def f():\n    return 1 / 0"), cell("f()"))
    out = run(capsys, "02")[1]
    assert "cell 5 (code cell 4), line 1: ZeroDivisionError" in out
    assert "return 1 / 0 (02_strides.ipynb, cell 4 (code cell 3), line" in out


def test_a_syntax_error_is_met_before_anything_runs(folder, capsys):
    ran = folder.parent / "ran"
    chapter(folder, cell(f"open({str(ran)!r}, 'w').close()"),
            cell("x = 1\ndef f(s): return isinstance(s, (tuple, list)"))
    for what in ("02.1", "02"):
        code, out = run(capsys, what)
        assert code == 1
        assert "cell 5 (code cell 4), line 2: syntax error" in out
    assert not ran.exists()


def test_cells_that_raise_on_purpose(folder, capsys):
    chapter(folder, cell("1 / 0", "raises-exception"),
            cell("def f(:", "raises-exception"))
    assert run(capsys, "02")[0] == 0
    chapter(folder, cell("1", "raises-exception"))
    code, out = run(capsys, "02")
    assert code == 1 and "nothing was raised" in out


def test_what_only_ipython_knows(folder, capsys):
    chapter(folder, cell("%matplotlib inline\nif x:\n    !ls\ndisplay(1)"),
            cell("%%html\n<b>text</b>"), cell("%%time\ny = 1"),
            cell("y\nx?"))
    assert run(capsys, "02") [0] == 0


@pytest.mark.parametrize("source, words", [
    ("import os\nos._exit(3)", "the process ended here (exit code 3)"),
    ("import sys\nsys.exit()", "SystemExit"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
])
def test_a_process_that_ends(folder, capsys, source, words):
    chapter(folder, cell(source))
    code, out = run(capsys, "02")
    assert code == 1 and words in out and "cell 4 (code cell 3)" in out


@pytest.mark.parametrize("source, words", [
    ("undefined_name", "does the cell that defines the name stand"),
    ("import nowhere", "there after `make setup`"),
    ("1 / 0", "Mend that line, save the notebook"),
    ("import os; os._exit(3)", "calls that end Python"),
    ("def broken(:", "Mend that line, save the notebook"),
])
def test_an_error_names_the_next_step(folder, capsys, source, words):
    chapter(folder, cell(source))
    code, out = run(capsys, "02")
    assert code == 1 and words in out


def test_a_cell_without_an_end(folder, capsys, monkeypatch):
    monkeypatch.setattr(runner, "EXERCISE_LIMIT", 3)
    chapter(folder, "while True: pass")
    code, out = run(capsys, "02.1")
    assert code == 1
    assert "cell 4 (code cell 3): still running after 3 seconds" in out


def test_another_notebook(folder, tmp_path, capsys):
    chapter(folder, answer=EXERCISE.stub)
    mine = chapter(tmp_path / "mine", name="answers")
    assert run(capsys, "02.1", "--notebook", str(mine))[0] == 0
    assert run(capsys, "02.1")[0] == 1


def test_a_file_that_is_no_notebook(folder, capsys):
    (folder / "02_strides.ipynb").write_text("{", encoding="utf-8")
    code, out = run(capsys, "02.1")
    assert code == 1 and "02_strides.ipynb: not valid JSON" in out


@pytest.mark.parametrize("args, words", [
    (["02.7"], "there is no exercise '02.7'; the exercises are"),
    (["09"], "there is no chapter '09': the chapters are 01, 02"),
    (["strides"], "there is no chapter 'strides'"),
    (["02.1", "--notebook", "none.ipynb"], "there is no file none.ipynb"),
    (["--notebook", "none.ipynb"], "say which exercise or chapter"),
])
def test_wrong_usage(folder, capsys, args, words):
    chapter(folder)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", *args])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_hints_and_solution(folder, capsys):
    for step in (1, 2, 3, 1):
        assert cli.main(["hint", "02.1"]) == 0
        assert f"Hint {step} of 3" in capsys.readouterr().out
    assert cli.main(["hint", "02.1", "--all"]) == 0
    assert capsys.readouterr().out.count("Hint") == 3
    assert cli.main(["solution", "02.1"]) == 0
    assert capsys.readouterr().out == RIGHT
    for command in ("hint", "solution"):
        with pytest.raises(SystemExit):
            cli.main([command, "9"])


def test_a_real_terminal_process(folder):
    """With the default encoding of no machine relied upon."""
    chapter(folder, cell("print('“►”')"))
    env = os.environ | {"PYTHONPATH": str(SOURCE), "NO_COLOR": "1",
                        "PYTHONIOENCODING": "ascii"}
    flags = ["-X", "warn_default_encoding", "-W",
             "error::EncodingWarning:course"]
    done = subprocess.run(
        [sys.executable, *flags, "-m", "course", "check", "02.1"],
        env=env, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "\033" not in done.stdout
    done = subprocess.run([sys.executable, "-m", "course"], env=env,
                          capture_output=True, encoding="utf-8")
    assert done.returncode == 2 and "export" in done.stdout


def test_help_is_quick_to_import():
    code = ("import sys, course.cli; course.cli.parser()\n"
            "assert not {'hypothesis', 'nbformat', 'nbclient', 'numpy', "
            "'matplotlib', 'pyflakes'} & set(sys.modules)\n"
            "from course import begin, check, hint, solution\n"
            "assert 'hypothesis' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", code], text=True,
                          capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(SOURCE)})
    assert done.returncode == 0, done.stderr


def test_the_builtins_are_given_back_before_the_exercise(tmp_path, capsys):
    """Chapter 1 hides int and bool; its exercise is plain Python again."""
    chapter = SOURCE.parent / "chapters" / "01_storage.ipynb"
    notebook = json.loads(chapter.read_text(encoding="utf-8"))
    for each in notebook["cells"]:
        if "exercise" in each["metadata"].get("tags", ()):
            each["source"] = """def read_int32(data: bytes, index: int):
    if not 0 <= index < len(data) // 4:
        raise IndexError(index)
    return int.from_bytes(data[4 * index:4 * index + 4], "little",
                          signed=True)"""
    path = tmp_path / "chapters" / "01_storage.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert cli.main(["check", "01.1", "--notebook", str(path)]) == 0, (
        capsys.readouterr().out)
