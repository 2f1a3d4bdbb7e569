"""Notebooks as files: run them, and store outputs that stay the same.

`normalise` is a pure function on a notebook's JSON. What it cannot make
the same on every machine (an address, a path) it refuses.
"""

import copy
import json
import os
import re
import tempfile
from pathlib import Path

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python",
                   "name": "python3"},
    "language_info": {"name": "python"}}
KEPT = ("tags", "mystnb", "nbgrader", "lamina")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]{5,}")
ABSOLUTE = re.compile(
    r"(?<![\w./:])/(?:home|Users|root|tmp|var|usr|opt|private|mnt)/[\w.-]+"
    r"|(?<!\w)[A-Za-z]:\\\\?[\w.]+|ipykernel_\d+")
CELL_LIMIT = 300  # seconds


class NotebookError(Exception):
    """A notebook that cannot be stored; the message names the cell."""


def place(name, cells, index):
    """Where a cell is, both numbers counted from 1."""
    code = sum(c["cell_type"] == "code" for c in cells[:index + 1])
    return f"{name}, cell {index + 1} (code cell {code})"


def read(path):
    return json.loads(Path(path).read_bytes().decode("utf-8-sig"))


def text(book):
    """A notebook as the text that is stored."""
    return json.dumps(
        book, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def write(path, book):
    """Store a notebook in one step; False if it was the same already."""
    path, data = Path(path), text(book).encode("utf-8")
    if path.exists() and path.read_bytes() == data:
        return False
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def joined(value):
    return value if isinstance(value, str) else "".join(value)


def rows(value):
    """Text as a notebook stores it: a list of lines."""
    return joined(value).splitlines(keepends=True)


def normalise(book, name):
    """The same notebook without what changes from run to run.

    name: the notebook's file name. Raises NotebookError for outputs that
    hold a memory address or a path of this machine.
    """
    book = copy.deepcopy(book)
    number = name[:2] if name[:2].isdigit() else "00"
    seen, count = set(), 0
    for index, cell in enumerate(book["cells"]):
        ident = cell.get("id")
        if (not isinstance(ident, str) or not CELL_ID.match(ident)
                or ident in seen):
            ident = f"{number}-{index + 1:03d}"
            while ident in seen:
                ident += "x"
        seen.add(ident)
        cell["id"] = ident
        metadata = cell.get("metadata", {})
        cell["metadata"] = {k: metadata[k] for k in KEPT if metadata.get(k)}
        cell["source"] = rows(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if joined(cell["source"]).strip():
            count += 1
            cell["execution_count"] = count
        else:
            cell["execution_count"] = None
        cell["outputs"] = outputs(cell.get("outputs", []), count)
        for value in strings(cell["outputs"]):
            refuse(value, place(name, book["cells"], index))
    return {"cells": book["cells"], "metadata": copy.deepcopy(METADATA),
            "nbformat": 4, "nbformat_minor": 5}


def outputs(found, count):
    """Outputs without noise: merged streams, errors of one line."""
    kept = []
    for output in found:
        kind = output["output_type"]
        if kind == "stream":
            value = joined(output["text"])
            last = kept[-1] if kept else {}
            if last.get("name") == output["name"]:
                last["text"] += value
            else:
                kept.append({"output_type": kind, "name": output["name"],
                             "text": value})
        elif kind == "error":
            name = output["ename"]
            value = ANSI.sub("", output["evalue"])
            line = re.sub(r" \(\d+\.py, line (\d+)\)\Z", r" (line \1)", value)
            kept.append({
                "output_type": kind, "ename": name, "evalue": value,
                "traceback": [f"{name}: {line}" if line else name]})
        else:
            data = {mime: rows(value) if isinstance(value, str | list)
                    else value for mime, value in output["data"].items()
                    if "jupyter.widget" not in mime}
            if not data:
                continue
            metadata = {k: v for k, v in output.get("metadata", {}).items()
                        if k != "needs_background"}
            made = {"output_type": kind, "data": data, "metadata": metadata}
            if kind == "execute_result":
                made["execution_count"] = count
            kept.append(made)
    for output in kept:
        if output["output_type"] == "stream":
            output["text"] = rows(overwritten(output["text"]))
    return kept


def overwritten(value):
    """What a terminal shows: a carriage return starts the line again."""
    shown = []
    for line in value.replace("\r\n", "\n").split("\n"):
        parts = [part for part in line.split("\r") if part]
        shown.append(parts[-1] if parts else "")
    return "\n".join(shown)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for mime, inner in value.items():
            if not str(mime).startswith("image/p"):  # base64
                yield from strings(inner)
    elif isinstance(value, list):
        if value and all(isinstance(v, str) for v in value):
            yield "".join(value)
        else:
            for inner in value:
                yield from strings(inner)


def refuse(value, where):
    match = ADDRESS.search(value)
    if match:
        raise NotebookError(
            f"{where}: the output holds a memory address "
            f"({match[0]!r}), which changes with every run: print something "
            "else, or give the object a __repr__")
    folders = {str(Path.home()), str(Path.cwd()), tempfile.gettempdir(),
               str(Path(__file__).resolve().parents[2])}
    match = ABSOLUTE.search(value)
    found = match[0] if match else next(
        (f for f in folders if len(f) > 3 and f in value), None)
    if found:
        raise NotebookError(
            f"{where}: the output holds a path of this machine ({found!r}): "
            "print a relative path, or the name alone")


def environment(source):
    """A kernel's environment: the course's src/ and no other PYTHONPATH."""
    env = {k: v for k, v in os.environ.items()
           if k not in ("PYTHONPATH", "PYTHONSTARTUP", "MPLBACKEND")}
    return env | {"PYTHONPATH": str(source),
                  "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def execute(book, path, source, limit=CELL_LIMIT):
    """Run every cell in a fresh kernel; a new notebook with its outputs."""
    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import (
        CellExecutionError, CellTimeoutError, DeadKernelError,
    )

    name = Path(path).name
    made = normalise_input(book)
    node = nbformat.from_dict(made)
    state = {"index": 0}

    def started(cell, cell_index):
        state["index"] = cell_index

    client = NotebookClient(
        node, timeout=limit, kernel_name="python3", on_cell_start=started,
        extra_arguments=["--Application.log_level=ERROR"],
        resources={"metadata": {"path": str(Path(path).resolve().parent)}})
    where = lambda: place(name, made["cells"], state["index"])
    try:
        client.execute(env=environment(source))
    except CellExecutionError as error:
        shown = ANSI.sub("", error.traceback).strip()
        line = re.search(r"(?:Cell In\[\d+\]|\d+\.py), line (\d+)", shown)
        line = f", line {line[1]}" if line else ""
        raise NotebookError(
            f"{where()}{line}: {error.ename}: {ANSI.sub('', error.evalue)}"
            f"\n\n{shown}") from None
    except CellTimeoutError:
        raise NotebookError(
            f"{where()}: still running after {limit} seconds") from None
    except DeadKernelError:
        raise NotebookError(f"{where()}: the kernel died") from None
    except NoSuchKernel:
        raise NotebookError(
            "there is no Python kernel: install ipykernel") from None
    done = json.loads(nbformat.writes(node))
    for index, cell in enumerate(done["cells"]):
        if ("raises-exception" in cell["metadata"].get("tags", ())
                and not any(o["output_type"] == "error"
                            for o in cell["outputs"])):
            raise NotebookError(
                f"{place(name, done['cells'], index)}: tagged "
                "raises-exception, but nothing was raised")
    return done


def normalise_input(book):
    """A notebook fit to be run: no old outputs, every field there."""
    made = normalise({**book, "cells": [
        {**c, "outputs": []} if c["cell_type"] == "code" else c
        for c in book["cells"]]}, "00")
    for cell in made["cells"]:
        cell["source"] = joined(cell["source"])
    return made


def run(path, source):
    """Execute one notebook in place; True if the file changed."""
    path = Path(path)
    try:
        book = read(path)
    except ValueError as error:
        raise NotebookError(f"{path.name}: not a notebook: {error}") from None
    done = execute(book, path, source)
    for cell, old in zip(done["cells"], book["cells"], strict=True):
        cell["id"] = old.get("id")
        if "attachments" in old:
            cell["attachments"] = old["attachments"]
    return write(path, normalise(done, path.name))
