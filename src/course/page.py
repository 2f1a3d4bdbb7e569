"""A chapter's cells in a page: what a notebook's kernel does, for Pyodide.

book/live/worker.js calls `start`, `run`, `check`, `hint`, `solution`. Each
gets `send`, which takes one message as JSON; worker.js says which there
are. Where there are no threads, processes or files of the reader's, the
course's own tools know it: nothing here repeats them.
"""

import ast
import base64
import builtins
import io
import json
import linecache
import marshal
import random
import re
import sys
import time
import types
from pathlib import Path

from course import checker, export, figures, kernel, progress

MOST = 200_000          # characters that a cell may print
FREE = 50               # lines that are sent at once; then there is
PAUSE = 0.05            # at least so long (seconds) between two messages
# What a rich display is made of: a method's name to its type.
MIMES = {"_repr_html_": "text/html", "_repr_markdown_": "text/markdown",
         "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png",
         "_repr_jpeg_": "image/jpeg", "_repr_latex_": "text/latex",
         "_repr_json_": "application/json"}


class Stream(io.TextIOBase):
    """stdout or stderr: what a cell prints, sent in a few messages."""

    def __init__(self, cell, name):
        self.cell, self.name = cell, name
        self.waiting, self.count, self.sent, self.last = [], 0, 0, 0.0

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() takes a str, not {type(text).__name__}")
        room = MOST - self.count
        self.count += len(text)
        if 0 <= room < len(text):
            text = text[:room] + (
                f"\n[this cell prints more than {MOST:,} characters: the"
                " rest is not shown]\n")
        elif room < 0:
            return len(text)
        self.waiting.append(text)
        if text.endswith("\n") and (
                self.sent < FREE or time.monotonic() - self.last > PAUSE):
            self.flush()
        return len(text)

    def flush(self):
        text, self.waiting = "".join(self.waiting), []
        self.last = time.monotonic()
        if text:
            self.sent += 1
            self.cell.output({"output_type": "stream", "name": self.name,
                              "text": text})


class Cell:
    """One call of the page, and where its output goes."""

    current = None

    def __init__(self, ident, send):
        self.ident, self.send = ident, send
        self.streams = [Stream(self, name) for name in ("stdout", "stderr")]

    def __enter__(self):
        Cell.current = self
        self.before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self.streams
        return self

    def __exit__(self, *error):
        for stream in self.streams:
            stream.flush()
        sys.stdout, sys.stderr = self.before

    def output(self, output):
        self.send(json.dumps({"op": "output", "id": self.ident,
                              "output": output}))

    def rich(self, kind, value):
        data = bundle(value)
        if data is None:
            return
        for stream in self.streams:     # what was printed before it
            stream.flush()
        output = {"output_type": kind, "data": data, "metadata": {}}
        self.output(output)


# Showing a value


def bundle(value):
    """What a notebook shows of a value, {type: text}; None for nothing."""
    from IPython.lib.pretty import pretty

    show = method(value, "_ipython_display_")
    if show:
        show()
        return None
    data = {}
    whole = method(value, "_repr_mimebundle_")
    if whole:
        data = whole(include=None, exclude=None) or {}
        data = dict(data[0] if isinstance(data, tuple) else data)
    for name, mime in MIMES.items():
        made = mime not in data and method(value, name)
        made = made() if made else None
        if isinstance(made, tuple):     # with metadata, which no page needs
            made = made[0]
        if made is not None:
            data[mime] = made
    if "text/plain" not in data:
        data["text/plain"] = pretty(value)
    return {mime: base64.b64encode(made).decode("ascii")
            if isinstance(made, bytes) else made
            for mime, made in data.items()}


def method(value, name):
    """A display method of an instance, or None."""
    if isinstance(value, type):
        return None
    found = getattr(value, name, None)
    return found if callable(found) else None


def display(*values, **options):
    for value in values:
        Cell.current.rich("display_data", value)


def no_input(prompt=""):
    raise RuntimeError("input() has nowhere to ask in the page: write the "
                       "value into the cell")


# Running a cell


# What would work in place of a line of IPython's, by how that begins.
INSTEAD = [(re.compile(pattern), advice) for pattern, advice in (
    (r"[%!]+\s*(pip|conda)\b",
     "nothing can be installed in it beside the standard library, lamina, "
     "hypothesis and what the button for NumPy fetches"),
    (r"%%?timeit\b",
     "import timeit, then timeit.timeit(lambda: f(x), number=1000) gives the "
     "seconds of 1000 calls"),
    (r"%%?time\b",
     "import time, then take time.perf_counter() before and after"),
    (r"!|%%?(bash|sh|script|system|sx|ls|cd|pwd|cat)\b",
     "there is no shell; import os, then os.listdir() names the files, and "
     "open(name).read() gives one"),
    (r"", "write it in Python"))]


def refused(row):
    """The error for a line that only IPython understands."""
    row = row.strip()
    if export.HELP.match(row):
        instead = f"help({row.strip('?')}) says what it is"
    else:
        begun = re.search(r"[%!].*", row)[0]
        instead = next(advice for pattern, advice in INSTEAD
                       if pattern.match(begun))
    return SyntaxError(f"{row!r} is IPython's, and only Python runs in the "
                       f"page: {instead}")


def parsed(source, file):
    """A cell's tree. Of IPython's lines, %matplotlib has nothing to do in a
    page; the others are refused."""
    while True:
        try:
            return ast.parse(source, file)
        except SyntaxError as error:
            rows = source.split("\n")
            at = (error.lineno or 1) - 1
            row = rows[at] if at < len(rows) else ""
            if re.match(r"\s*%matplotlib\b", row):
                rows[at] = row.replace(row.lstrip(), "pass")
                source = "\n".join(rows)
            elif export.MAGIC.match(row) or export.HELP.match(row):
                raise refused(row) from None
            else:
                raise


def compiled(source, file):
    """(the statements, the last expression or None) as code."""
    tree = parsed(source, file)
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    last = None
    if (tree.body and isinstance(tree.body[-1], ast.Expr)
            and not source.rstrip().endswith(";")):
        last = compile(ast.Expression(tree.body.pop().value), file, "eval",
                       dont_inherit=True)
    return compile(tree, file, "exec", dont_inherit=True), last


def run(ident, source, file, send):
    """Run a cell; whether it ended without an exception."""
    names = vars(sys.modules["__main__"])
    with Cell(ident, send) as cell:
        try:
            code, last = compiled(source, file)
            exec(code, names)
            if last is not None:
                value = eval(last, names)
                if value is not None:
                    names["_"] = value
                    cell.rich("execute_result", value)
        except BaseException as error:
            cell.output(told(error))
            return False
    return True


def told(error):
    """An exception as a notebook's output: where it passed through cells,
    and its last line."""
    name = type(error).__name__
    words = str(error)
    if isinstance(error, SyntaxError) and error.lineno:
        words = f"{error.msg} (line {error.lineno})"
    lines, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith("cell "):
            row = linecache.getline(code.co_filename, trace.tb_lineno)
            where = code.co_name.removeprefix("<module>")
            lines.append(f"{code.co_filename}, line {trace.tb_lineno}"
                         + (f", in {where}" if where else "")
                         + f"\n    {row.strip()}")
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.text:
        lines.append(error.text.rstrip())
    if len(lines) > 8:
        lines[4:-4] = [f"[{len(lines) - 8} more of them]"]
    return {"output_type": "error", "ename": name, "evalue": words,
            "traceback": [*lines, f"{name}: {words}" if words else name]}


# What the page asks for


def ready_made(load):
    """kernel._load, with the functions of operators compiled beforehand."""
    path = Path(__file__).parents[1] / "compiled.bin"
    found, plain = marshal.loads(path.read_bytes()), builtins.compile

    def compile(*given, **options):
        code = None if options else found.get(given)
        return code or plain(*given, **options)

    def load_quickly(*given):
        builtins.compile = compile
        try:
            load(*given)
        finally:
            builtins.compile = plain

    return load_quickly


def start(chapter, send, draw):
    """A new notebook of that chapter; draw is a function from DOT to SVG."""
    main = types.ModuleType("__main__")
    # Not this module's: pickles and checks look for the reader's names.
    sys.modules["__main__"] = main
    builtins.display, builtins.input = display, no_input
    figures.renderer = draw
    for name in [n for n in sys.modules if n.partition(".")[0] == "lamina"]:
        del sys.modules[name]
    if kernel._load.__module__ == kernel.__name__:
        kernel._load = ready_made(kernel._load)
    random.seed()       # else everybody's numbers are those of the snapshot

    def record(verdict, start=None):
        send(json.dumps({"op": "verdict", "exercise": verdict.id,
                         "kind": verdict.kind, "passed": verdict.passed}))

    progress.record = record    # the page keeps it, there is no file


def check(ident, exercise, send):
    with Cell(ident, send) as cell:
        verdict = checker.check(exercise)
        cell.rich("execute_result", verdict)
    return verdict.passed


def hint(ident, exercise, send):
    with Cell(ident, send):
        checker.hint(exercise)
    return True


def solution(ident, exercise, send):
    with Cell(ident, send):
        checker.solution(exercise)
    return True
