"""`begin`: a kernel that holds the chapters before one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import course
from course import export
from notebooks_for_tests import save


@pytest.fixture
def run(tmp_path):
    """Run code where a lamina of three small chapters is on the path."""
    folder = tmp_path / "chapters"
    save(folder, "01_storage", "class Storage: pass")
    save(folder, "02_strides",
         "from lamina.storage import Storage\n\n\nclass Tensor(Storage): pass")
    save(folder, "03_dispatch", "functions = {}")
    export.write(export.build(folder), tmp_path / "src" / "lamina")
    # A copy, and no site-packages (-S): no other lamina lies beside it.
    shutil.copytree(Path(course.__file__).parent, tmp_path / "tools/course",
                    ignore=shutil.ignore_patterns("__pycache__"))

    def run(code, extra="src"):
        paths = [str(tmp_path / extra), str(tmp_path / "tools")]
        done = subprocess.run(
            [sys.executable, "-S", "-X", "warn_default_encoding", "-W",
             "error::EncodingWarning", "-c",
             f"from course import begin\n{code}"],
            text=True, capture_output=True, encoding="utf-8", cwd=tmp_path,
            env={"PYTHONPATH": os.pathsep.join(paths)})
        return done.stdout + done.stderr.strip().split("\n")[-1]

    run.path = tmp_path / "src" / "lamina"
    return run


def test_it_holds_the_chapters_before(run):
    assert run("""
assert begin("03_dispatch") is None
import lamina
from lamina.strides import Tensor
assert lamina.Tensor is Tensor and not hasattr(lamina, "functions")
print(lamina.__chapters__)
""") == "('01_storage', '02_strides')\n"


def test_a_later_layer_cannot_be_imported(run):
    assert "lamina.dispatch is built in chapter 03_dispatch" in run(
        'begin("03_dispatch"); import lamina.dispatch')


def test_the_first_chapter_holds_nothing(run):
    assert run("""
begin("01_storage")
import lamina
print(lamina.__chapters__)
""") == "()\n"


def test_twice_is_once(run):
    assert run("""
begin("03_dispatch")
from lamina import Tensor
begin("03_dispatch")
import lamina
print(lamina.Tensor is Tensor)
""") == "True\n"


def test_another_checkpoint_loads_afresh(run):
    assert run("""
import lamina
begin("02_strides")
import lamina
print(lamina.__chapters__)
begin("03_dispatch")
import lamina.strides
""") == (
        "lamina now holds the chapters before 02_strides: run this notebook "
        "again from its top\n('01_storage',)\n"
        "lamina now holds the chapters before 03_dispatch: run this notebook "
        "again from its top\n")


def test_the_next_chapter_need_not_be_exported(run):
    assert run('begin("04_next"); import lamina; print(lamina.functions)') == (
        "{}\n")


@pytest.mark.parametrize("name", ["02_stride", "strides", "", 2, None])
def test_an_unknown_name(run, name):
    out = run(f"begin({name!r})")
    assert out.startswith(f"ValueError: begin({name!r}): there is no such")
    assert out.endswith("are: 01_storage, 02_strides, 03_dispatch")


def test_near_name(run):
    assert "did you mean '02_strides'?" in run('begin("02_stride")')


def test_a_gap_in_the_chapters(run):
    out = run('begin("06_matmul")')
    assert "ImportError: begin('06_matmul') needs chapter 04" in out
    assert "run `course export`" in out


def test_a_missing_module(run):
    (run.path / "strides.py").unlink()
    out = run('begin("03_dispatch")')
    assert "lamina.strides is missing: there is no strides.py in" in out
    assert "run `course export`" in out


def test_no_library_at_all(run):
    assert run('begin("01_storage"); import lamina', "nowhere") == ""
    assert "nowhere on the path" in run('begin("02_strides")', "nowhere")


def test_a_foreign_lamina(run):
    (run.path / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    assert "was not written by `course export`" in run('begin("02_strides")')


def test_a_layer_that_fails_leaves_nothing_loaded(run):
    with open(run.path / "strides.py", "a", encoding="utf-8") as file:
        file.write("1 / 0\n")
    assert run("""
try:
    begin("03_dispatch")
except ZeroDivisionError:
    import sys
    print([m for m in sys.modules if m.startswith("lamina")])
""") == "[]\n"
