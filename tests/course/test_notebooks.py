"""`course run`: outputs that are the same on every machine."""

import copy
import json
from pathlib import Path

import pytest

import course
from course import cli, notebooks
from notebooks_for_tests import cell, markdown, notebook, save

SOURCE = Path(course.__file__).parents[1]


def with_outputs(*outputs, source="1"):
    return notebook(cell(source) | {"outputs": list(outputs)})


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def result(text, mime="text/plain", **metadata):
    return {"output_type": "execute_result", "execution_count": 9,
            "data": {mime: text}, "metadata": metadata}


def outputs(*found):
    book = notebooks.normalise(with_outputs(*found), "02_strides.ipynb")
    return book["cells"][0]["outputs"]


def test_streams_of_one_name_are_merged():
    found = outputs(stream("a\n"), stream(["b", "\nc"]),
                    stream("d", "stderr"), stream("e"))
    assert [(o["name"], o["text"]) for o in found] == [
        ("stdout", ["a\n", "b\n", "c"]), ("stderr", ["d"]), ("stdout", ["e"])]


def test_a_progress_bar_keeps_its_last_state():
    assert outputs(stream("0 %\r50 %\r"), stream("100 %\ndone\n"))[0][
        "text"] == ["100 %\n", "done\n"]


def test_an_error_is_one_line():
    found = outputs({
        "output_type": "error", "ename": "ValueError",
        "evalue": "\x1b[31mno\x1b[0m",
        "traceback": ["\x1b[31m/home/me/x.py\x1b[0m", "more"]})
    assert found[0]["traceback"] == ["ValueError: no"]
    assert found[0]["evalue"] == "no"


def test_counts_metadata_and_ids():
    book = notebook(cell("1", "export"), cell(""), markdown("x"), cell("2"))
    book["cells"][0]["metadata"] |= {
        "collapsed": True, "mystnb": {"figure": {}}, "nbgrader": {}}
    book["cells"][1]["id"] = "bad id"
    book["cells"][2]["id"] = book["cells"][0]["id"]
    book["metadata"]["widgets"] = {"x": 1}
    book["nbformat_minor"] = 2
    before = copy.deepcopy(book)
    made = notebooks.normalise(book, "02_strides.ipynb")
    assert book == before
    assert [c.get("execution_count") for c in made["cells"]] == [
        1, None, None, 2]
    assert made["cells"][0]["metadata"] == {
        "tags": ["export"], "mystnb": {"figure": {}}}
    assert [c["id"] for c in made["cells"]] == [
        "cell-0", "02-002", "02-003", "cell-3"]
    assert made["metadata"] == notebooks.METADATA
    assert made["nbformat_minor"] == 5
    assert notebooks.normalise(made, "02_strides.ipynb") == made


@pytest.mark.parametrize("text, words", [
    ("<object object at 0x7f21bcd0>", "memory address"),
    ("/home/me/lamina/x.py:3: Warning", "path of this machine"),
    ("C:\\Users\\me\\x.py", "path of this machine"),
    ("/tmp/ipykernel_12/34.py", "path of this machine"),
    (str(Path.cwd()) + "/x", "path of this machine"),
])
def test_what_changes_is_refused(text, words):
    for found in (stream(text), result(text), result([text], "text/html")):
        with pytest.raises(notebooks.NotebookError, match=words) as caught:
            outputs(found)
        assert "02_strides.ipynb, cell 1 (code cell 1)" in str(caught.value)


def test_what_does_not_change_is_kept():
    for text in ("0x3f800000 at 0x04", "a/home/x", "https://x.org/usr/y",
                 "“curly” ► ½", "1/2/3"):
        assert outputs(result(text))[0]["data"] == {"text/plain": [text]}


def test_text_is_sorted_utf8_and_ends_in_a_newline():
    made = notebooks.text(notebooks.normalise(
        notebook(markdown("“►”")), "02_x.ipynb"))
    assert "“►”" in made and made.endswith("}\n") and '\n "cells"' in made
    assert made == json.dumps(json.loads(made), indent=1, sort_keys=True,
                              ensure_ascii=False) + "\n"


def test_run_stores_the_same_twice(tmp_path):
    path = save(
        tmp_path / "chapters", "01_layer",
        cell("print('“►”')\nprint(1)"), cell("1 / 0", "raises-exception"),
        cell("import sys\n'course' in sys.modules, __name__"))
    assert notebooks.run(path, SOURCE)
    book = notebooks.read(path)
    assert [c["outputs"][0]["output_type"] for c in book["cells"][1:]] == [
        "stream", "error", "execute_result"]
    assert not notebooks.run(path, SOURCE)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_failing_cell_leaves_the_notebook(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "chapters"
    bad = save(folder, "01_first", cell("x = 1"), cell("x\nx.missing"))
    good = save(folder, "02_second", cell("print(2)"))
    calm = save(folder, "03_third", cell("3", "raises-exception"))
    before = bad.read_bytes(), calm.read_bytes()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run"]) == 1
    error = capsys.readouterr().err
    assert "01_first.ipynb, cell 3 (code cell 2), line 2: AttributeErr" in error
    assert "03_third.ipynb, cell 2 (code cell 1): tagged raises-exc" in error
    assert (bad.read_bytes(), calm.read_bytes()) == before
    assert '"2\\n"' in good.read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        cli.main(["run", "07"])
    assert "the chapters are 01, 02, 03" in capsys.readouterr().err
