"""`course export`: from notebooks to modules, or to a clear refusal."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from course import cli, export
from notebooks_for_tests import cell, markdown, save


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "chapters"


def built(folder, name="layer.py"):
    return export.build(folder)[name].decode()


def problems(folder):
    with pytest.raises(export.ExportError) as caught:
        export.build(folder)
    return str(caught.value)


def names_of(text):
    for node in ast.parse(text).body:
        if getattr(getattr(node, "targets", [None])[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)


# What a module looks like


def test_a_module_word_for_word(folder):
    save(folder, "01_storage", "class Storage: pass", heading="# Storage")
    save(
        folder, "02_strides",
        "from __future__ import annotations\n\nimport sys",
        cell("import math  # only for the eye"),
        "from lamina.storage import Storage\n"
        "import math\n"
        "from collections import namedtuple\n\n"
        "# Geometry\n\n"
        "# A pair.\n"
        "Pair = namedtuple('Pair', 'a b')\n"
        "def f(x):\n"
        "    return math.floor(x)\n"
        "\n"
        "x, (y, *_rest) = 1, (2, 3)",
        "from collections import abc, namedtuple\n"
        "import numpy as np\n\n"
        "class Tensor(Storage):\n"
        "    text = '''\n\n\nimport os\n'''\n",
        heading="# Strides: shape, strides and offset")
    assert built(folder, "strides.py") == '''\
"""Strides: shape, strides and offset.

Exported from chapters/02_strides.ipynb by `course export`; edit the chapter,
not this file.
"""

from __future__ import annotations

import math
import sys
from collections import abc, namedtuple

import numpy as np

from lamina.storage import Storage

__all__ = ["Pair", "f", "x", "y", "Tensor"]


# Geometry

# A pair.
Pair = namedtuple('Pair', 'a b')
def f(x):
    return math.floor(x)


x, (y, *_rest) = 1, (2, 3)


class Tensor(Storage):
    text = \'\'\'


import os
\'\'\'
'''


def test_a_comment_goes_with_its_import(folder):
    save(folder, "01_layer", "import struct\nx = struct.calcsize('i')",
         "# Bytes as numbers.\nimport array  # of one type\n\ny = array")
    text = built(folder)
    assert ("# Bytes as numbers.\nimport array  # of one type\n"
            "import struct\n\n__all__") in text
    assert text.endswith("\n\n\ny = array\n")


def test_a_semicolon_for_jupyter_stays_in_the_notebook(folder):
    save(folder, "01_layer", "def f():\n    return ';'\n\n\nf();\n",
         "x = 1; y = f()")
    assert built(folder).endswith(
        "def f():\n    return ';'\n\n\nf()\n\n\nx = 1; y = f()\n")


def test_long_import_and_long_all_are_wrapped(folder):
    names = [f"name_number_{i}" for i in range(12)]
    save(folder, "01_lower", *(f"{n} = {i}" for i, n in enumerate(names)))
    save(folder, "02_layer",
         f"from lamina.lower import {', '.join(names)}\nx = name_number_0")
    assert max(map(len, built(folder).split("\n"))) < 80
    assert names_of(built(folder, "lower.py")) == names
    assert '__all__ = [\n    "name_number_0",\n' in built(folder, "lower.py")


def test_imports_in_branches_stay(folder):
    source = ("try:\n    import numpy\nexcept ImportError:\n"
              "    numpy = None")
    save(folder, "01_layer", source)
    assert source in built(folder)
    assert names_of(built(folder)) == ["numpy"]


def test_a_list_of_its_own_decides_what_is_public(folder):
    save(folder, "01_storage", "def read(): pass\ndef helper(): pass",
         '__all__ = [\n    "read",\n]')
    save(folder, "02_strides", "from lamina.storage import helper as _h\n\n"
         "def helper(): return _h()")
    text = built(folder, "storage.py")
    assert names_of(text) == ["read"]
    assert text.count("__all__") == 1 and text.endswith("pass\n")
    assert names_of(built(folder, "strides.py")) == ["helper"]


@pytest.mark.parametrize("listed, words", [
    ('["raed"]', "'raed'"), ("[read]", "in quotes")])
def test_a_wrong_list_is_refused(folder, listed, words):
    save(folder, "01_storage", "def read(): pass", f"__all__ = {listed}")
    assert words in problems(folder)


def test_all_holds_public_definitions_once(folder):
    save(folder, "01_layer",
         "a: int = 1\nb: int\n_c = 2\nd = e = 3",
         "def wrap(f):\n    return f\n\n\ndef g():\n    return 1",
         "g = wrap(g)\nfor i in range(3):\n    pass",
         "gone = 1\ndel gone")
    assert names_of(built(folder)) == ["a", "d", "e", "wrap", "g"]


def test_deterministic_to_the_byte_and_lf(folder):
    path = save(folder, "01_layer", "x = 'é“►'\r\ny = 2\r\n")
    first = export.build(folder)
    assert b"\r" not in b"".join(first.values())
    assert "é“►".encode() in first["layer.py"]
    book = json.loads(path.read_text(encoding="utf-8"))
    for c in book["cells"]:
        c["source"] = c["source"].splitlines(True)
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False),
                    encoding="utf-8-sig")
    assert export.build(folder) == first


# What is refused, and where it says so


@pytest.mark.parametrize("source, line, words", [
    ("x = 1\ndef f(shape): return (shape, (1)", 2, "syntax error"),
    ("x = 1\nreturn x", 2, "syntax error: 'return' outside function"),
    ("x = 1\n%timeit x", 2, "'%timeit x' is IPython's"),
    ("x = 1\n!ls", 2, "is IPython's"),
    ("files = !ls", 1, "is IPython's"),
    ("%%time\nx = 1", 1, "is IPython's"),
    ("x = 1\nx?", 2, "is IPython's"),
    ("\ny = missing", 2, "'missing' is not defined"),
    ("def f():\n    return missing", 2, "'missing' is not defined"),
    ("import math\nmath = 1", 2, "already imported above in this cell"),
    ("x = later", 1, "'later' is not defined"),
    ("import lamina", 1, "depends on the layers to come"),
    ("import lamina.storage", 1, "depends on the layers to come"),
    ("def f():\n    import lamina\n    return lamina", 2, "to come"),
    ("from lamina import Storage", 1, "name the layer"),
    ("from lamina.layer import x", 1, "is this chapter itself"),
    ("from lamina.later import x", 1, "not a layer below 02_layer"),
    ("def f():\n    from lamina.later import x\n    return x", 2,
     "not a layer below"),
    ("from lamina.storage import Storag\nx = Storag", 1,
     "the nearest name is 'Storage'"),
    ("from .storage import Storage", 1, "a relative import"),
    ("from math import *", 1, "hides where a name comes from"),
    ("import math; x = 1", 1, "shares its line"),
    ("import numpy.linalg as math\nimport math", 2, "imported from"),
    ("def f(): pass\nf = 1", 2, "already defined above in this cell"),
])
def test_an_error_names_notebook_cell_and_line(folder, source, line, words):
    save(folder, "01_storage", "class Storage: pass")
    save(folder, "02_layer", cell("1"), "first = 1", source, "later = 1")
    save(folder, "03_later", "z = 1")
    text = problems(folder)
    assert f"02_layer.ipynb, cell 4 (code cell 3), line {line}: " in text
    assert words in text
    assert len(text.splitlines()) == 1


def test_a_name_from_a_cell_that_is_not_exported(folder):
    save(folder, "01_layer", cell("import math"),
         "def f(x):\n    return math.exp(x)")
    text = problems(folder)
    assert "01_layer.ipynb, cell 3 (code cell 2), line 2" in text
    assert "'math' is not defined: cell 2 (code cell 1) defines it" in text


def test_a_name_of_a_lower_layer_that_is_not_imported(folder):
    save(folder, "01_storage", "class Storage: pass")
    save(folder, "02_layer", "x = Storage()")
    assert "`from lamina.storage import Storage`" in problems(folder)


@pytest.mark.parametrize("bad, words", [
    (markdown("text", "export"), "cell 2 (markdown cell): only a code cell"),
    (cell("text", "export", kind="raw"), "cell 2 (raw cell): only a code"),
    (cell("1", "export", "exercise"), "either `export` or `exercise`"),
    (cell("1", "export", "raises-exception"), "could not be imported"),
])
def test_a_mark_on_a_cell_that_cannot_be_exported(folder, bad, words):
    save(folder, "01_layer", bad)
    assert words in problems(folder)


def test_a_redefinition_in_another_cell(folder):
    save(folder, "01_layer", "def f(): pass", "def f(): return 1")
    assert "'f' is already defined in cell 2 (code cell 1)" in problems(folder)


def test_a_redefinition_on_purpose(folder):
    save(folder, "01_layer",
         "def door(f):\n    return f",
         "@door\ndef f(): return 1", "@door\ndef f(): return 2")
    assert names_of(built(folder)) == ["door", "f"]


def test_a_public_name_of_two_layers(folder):
    save(folder, "01_first", "def f(): pass")
    save(folder, "02_second", "x = 1\ndef f(): pass")
    text = problems(folder)
    assert "02_second.ipynb, cell 2 (code cell 1), line 2: 'f'" in text
    assert "public in 01_first.ipynb already" in text


def test_files_that_are_no_chapters(folder):
    save(folder, "01_layer", "x = 1")
    save(folder, "01_other", "y = 1")
    save(folder, "02_layer", "z = 1")
    save(folder, "Untitled", "x = 1")
    save(folder, "03_class", "x = 1")
    (folder / "04_broken.ipynb").write_text("{", encoding="utf-8")
    (folder / "05_binary.ipynb").write_bytes(b"\xff\xfe\x00")
    (folder / "06_list.ipynb").write_text("[]", encoding="utf-8")
    text = problems(folder)
    for words in ("01_other.ipynb: has the same number as 01_layer.ipynb",
                  "02_layer.ipynb: has the same name as 01_layer.ipynb",
                  "Untitled.ipynb: the name is not of the form",
                  "03_class.ipynb: the name is not of the form",
                  "04_broken.ipynb: not valid JSON at line 1",
                  "05_binary.ipynb: not UTF-8",
                  "06_list.ipynb: no list of cells"):
        assert words in text


def test_a_chapter_without_a_heading(folder):
    save(folder, "01_layer", "x = 1", heading="## Not the title")
    assert "no heading `# Title`" in problems(folder)


def test_all_problems_at_once(folder):
    save(folder, "01_first", "x = (", "y = missing")
    save(folder, "02_second", "z = missing")
    assert len(problems(folder).splitlines()) == 2  # 01: syntax comes first


# Writing


@pytest.fixture
def course_root(tmp_path, folder, monkeypatch):
    save(folder, "01_storage", "class Storage: pass")
    save(folder, "02_strides",
         "from lamina.storage import Storage\n\n\nclass Tensor(Storage): pass")
    save(folder, "03_dispatch", "functions = {}\ndef add(a, b): return a + b",
         "functions['add'] = add")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {p.name: p.read_bytes() for p in Path(folder).glob("*")
            if p.is_file()}


def test_export_writes_what_build_says(course_root, folder, capsys):
    assert cli.main(["export"]) == 0
    assert contents("src/lamina") == export.build(folder)
    assert cli.main(["export"]) == 0
    assert "0 of 4 files changed" in capsys.readouterr().out
    assert cli.main(["export", "--check"]) == 0
    assert sorted(p.name for p in Path("src").iterdir()) == ["lamina"]


def test_an_error_writes_nothing(course_root, folder, capsys):
    cli.main(["export"])
    before = contents("src/lamina")
    save(folder, "01_storage", "class Storage: changed = 1")
    save(folder, "03_dispatch", "functions = {")
    assert cli.main(["export"]) == 1
    assert contents("src/lamina") == before
    error = capsys.readouterr().err
    assert "03_dispatch.ipynb, cell 2 (code cell 1), line 1" in error
    assert "nothing was written" in error


def test_a_write_that_fails_is_undone(course_root, folder, monkeypatch):
    cli.main(["export"])
    before = contents("src/lamina")
    save(folder, "01_storage", "class Storage: changed = 1")
    save(folder, "02_strides", "x = 1")
    replace, calls = export.os.replace, []

    def fails_second(a, b):
        calls.append(b)
        if len(calls) == 2:
            raise PermissionError("in use")
        replace(a, b)

    monkeypatch.setattr(export.os, "replace", fails_second)
    assert cli.main(["export"]) == 1
    assert len(calls) == 2
    assert contents("src/lamina") == before


def test_check_shows_a_diff(course_root, folder, capsys):
    assert cli.main(["export", "--check"]) == 1  # nothing there yet
    cli.main(["export"])
    target = Path("src/lamina")
    with open(target / "strides.py", "a", encoding="utf-8") as file:
        file.write("edited = 1\n")
    (target / "old.py").write_bytes(
        (target / "storage.py").read_bytes())
    (target / "storage.py").unlink()
    capsys.readouterr()
    assert cli.main(["export", "--check"]) == 1
    out = capsys.readouterr().out
    assert "-edited = 1\n" in out
    assert "--- lamina/old.py (on disk)\n+++ /dev/null" in out
    assert "--- /dev/null\n+++ lamina/storage.py (from the chapters)" in out
    assert "run `course export`" in out


def test_a_removed_chapter_goes_and_own_files_stay(course_root, folder):
    cli.main(["export"])
    (folder / "03_dispatch.ipynb").unlink()
    own = Path("src/lamina/mine.py")
    own.write_text("x = 1\n", encoding="utf-8")
    assert cli.main(["export"]) == 0
    assert not Path("src/lamina/dispatch.py").exists()
    assert own.read_text(encoding="utf-8") == "x = 1\n"
    assert "mine.py" in export.differences(export.build(folder), "src/lamina")


def test_a_file_of_ones_own_is_not_overwritten(course_root, capsys):
    Path("src/lamina").mkdir(parents=True)
    Path("src/lamina/strides.py").write_text("mine = 1\n", encoding="utf-8")
    assert cli.main(["export"]) == 1
    assert contents("src/lamina") == {"strides.py": b"mine = 1\n"}
    assert "move it away" in capsys.readouterr().err


def test_a_checkpoint_works_by_itself(course_root, tmp_path):
    assert cli.main(["export", "--upto", "2", "--to", "point"]) == 0
    assert set(contents("point/lamina")) == {
        "__init__.py", "storage.py", "strides.py"}
    code = ("import lamina; print(lamina.Tensor.__mro__[1].__module__, "
            "lamina.__chapters__)")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "point", text=True,
        capture_output=True, env={"PYTHONPATH": str(tmp_path / "point")})
    assert done.stdout == "lamina.storage ('01_storage', '02_strides')\n"


def test_a_checkpoint_never_destroys_work(course_root, capsys):
    own = Path("point/lamina/notes.txt")
    own.parent.mkdir(parents=True)
    own.write_text("mine", encoding="utf-8")
    assert cli.main(["export", "--upto", "2", "--to", "point"]) == 1
    assert contents("point/lamina") == {"notes.txt": b"mine"}
    own.unlink()
    assert cli.main(["export", "--upto", "3", "--to", "point"]) == 0
    assert cli.main(["export", "--upto", "1", "--to", "point"]) == 0
    assert set(contents("point/lamina")) == {"__init__.py", "storage.py"}


def test_wrong_usage(course_root, capsys):
    for args in (["export", "--upto", "2"], ["export", "--upto", "x"],
                 ["export", "--check", "--to", "here"], ["nothing"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(args)
        assert caught.value.code == 2
    assert cli.main(["export", "--upto", "9", "--to", "p"]) == 1
    assert "the chapters are 01, 02, 03" in capsys.readouterr().err


def test_outside_a_course(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "__file__", str(tmp_path / "a/b/c.py"))
    with pytest.raises(FileNotFoundError, match="no folder chapters/"):
        export.find_root(tmp_path)


# The package


def test_the_package_finds_operators_and_near_names(course_root, tmp_path):
    cli.main(["export"])
    code = """
import lamina
assert lamina.add(1, 2) == 3
lamina.dispatch.functions['later'] = lambda: 7
assert lamina.later() == 7 and 'later' in dir(lamina)
try:
    lamina.Tenser
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True,
        env={"PYTHONPATH": str(tmp_path / "src")})
    assert done.stdout == ("module 'lamina' has no attribute 'Tenser'; the "
                           "nearest name is 'Tensor'; what is left out is told "
                           "on the page 'Where Lamina differs'\n"), (
                               done.stderr)


def test_an_operator_wins_over_a_module_of_its_name(tmp_path, folder):
    save(folder, "01_dispatch", "functions = {}")
    save(folder, "02_matmul", "from lamina.dispatch import functions\n\n"
         "functions['matmul'] = lambda a, b: a * b")
    export.write(export.build(folder), tmp_path / "lamina")
    code = ("import lamina, lamina.matmul\nassert lamina.matmul(2, 3) == 6\n"
            "from lamina.matmul import functions")
    done = subprocess.run([sys.executable, "-c", code], text=True,
                          capture_output=True,
                          env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_version_is_the_project_s():
    import tomllib

    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    assert export.VERSION == project["version"]


def test_the_library_is_what_the_chapters_export():
    root = Path(__file__).parents[2]
    diff = export.differences(
        export.build(root / "chapters"), root / "src" / "lamina")
    assert not diff, diff


def test_every_file_is_opened_with_its_encoding(course_root):
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-W",
         "error::EncodingWarning", "-m", "course", "export"],
        text=True, capture_output=True, encoding="utf-8",
        env={"PYTHONPATH": str(Path(cli.__file__).parents[1])})
    assert done.returncode == 0, done.stderr
