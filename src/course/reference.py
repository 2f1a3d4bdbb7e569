"""The library's public names: what each is, and which cell defines it.

The reference pages of the book are made from this. A name is found where
a reader would look for it: `nn.GELU`, `optim.SGD`, `Tensor.backward`; what
is also there under other names (`abs`, `abs_`, `absolute`) is one entry.
All names are without `lamina.` in front.
"""

import ast
import functools
import inspect
import json
import re
import subprocess
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

from course import export

ROOT = Path(__file__).resolve().parents[2]

# Namespaces from the one that names a thing best to the one that does least.
NAMESPACES = (
    "optim.lr_scheduler", "utils.data", "utils.checkpoint", "nn.functional",
    "nn.init", "nn.utils", "autograd.forward_ad", "autograd.functional",
    "autograd.graph", "autograd.function", "cuda", "accelerator",
    "backends.mps", "nn", "optim", "autograd", "")
# What these modules hold beside their __all__: PyTorch's names for what a
# reader uses there, and not the helpers of the chapter.
MORE = {
    "autograd": ("backward", "grad", "gradcheck", "gradgradcheck", "Function",
                 "set_detect_anomaly", "detect_anomaly", "GradcheckError",
                 "is_anomaly_enabled", "is_anomaly_check_nan_enabled"),
    "optim": ("Adagrad", "RMSprop", "find_lr"),
    "dispatch": ("DisableTorchFunctionSubclass",),
    "training": ("Loop",),
}
# Of two names for one method, the one that is less used.
OTHER_NAMES = ("nelement", "mH")
# Classes of nn that only other classes are made from.
BASES = ("Gate", "Border", "Row", "Affine", "Pool", "Convolution")


@dataclass
class Entry:
    """One thing to look up. `names` are all names it goes by."""

    name: str
    object: object
    kind: str           # operator, function, class, method, property, data
    names: list = field(default_factory=list)

    @property
    def operators(self):
        """The operators that it stands for: one for each schema."""
        name = self.name
        if name.startswith(("linalg.", "sparse.")):
            name = name.replace(".", "_")
        return operators_named(name) if self.kind == "operator" else []

    @property
    def doc(self):
        """Its own docstring, for all that is not an operator."""
        if self.kind == "data":
            return ""
        return inspect.getdoc(self.object) or ""


def library():
    """lamina, from this folder's src/."""
    src = str(ROOT / "src")
    if src not in sys.path:
        sys.path.insert(0, src)
    import lamina
    return lamina


def walk(path):
    """The object with that name, as it is written in its class."""
    found = library()
    for part in filter(None, path.split(".")):
        if inspect.isclass(found):
            found = inspect.getattr_static(found, part)
        else:
            found = getattr(found, part)
    return found


def chapter_modules():
    return [name.partition("_")[2] for name in library().__chapters__]


def public(namespace):
    """The public names of a namespace, in the order of its module."""
    lamina, module = library(), walk(namespace)
    if not namespace:       # as the chapters list them, then the rest
        names = dict.fromkeys(n for name in chapter_modules() for n in
                              sys.modules[f"lamina.{name}"].__all__)
        names = [*sorted(names, key=lambda n: n.endswith("_")), *(
            n for n in dir(lamina) if n not in names and n[0] != "_")]
    elif namespace == "nn":
        names = ["Parameter", *(
            n for n, v in vars(module).items() if not n.startswith("_")
            and n not in BASES and inspect.isclass(v)
            and issubclass(v, module.Module))]
    elif namespace == "autograd":
        names = MORE[namespace]
    elif namespace == "Tensor":
        names = [n for n in dir(module) if not n.startswith("_")]
    else:
        names = [*getattr(module, "__all__", ()), *MORE.get(namespace, ())]
    return [n for n in names if not isinstance(
        getattr(module, n), types.ModuleType)]


def kind_of(thing, inside_class):
    if inspect.isclass(thing):
        return "class"
    if isinstance(thing, property | types.MemberDescriptorType):
        return "property"
    if callable(thing):
        return "method" if inside_class else "function"
    return "data"


@functools.cache
def entries():
    """{name: Entry} of every public name, each object once."""
    functions = library().functions
    of_object, found = {}, {}

    def put(path, thing, kind=None):
        home = of_object.get(id(thing))
        if home is None:
            home = of_object[id(thing)] = found[path] = Entry(
                path, thing, kind or kind_of(thing, "Tensor." in path))
        home.names.append(path)

    for name in sorted(functions, key=lambda name: name.endswith("_")):
        own = plain_name(name)
        if not own or name.startswith("_"):
            continue
        if name.endswith("_") and own[:-1] in functions:    # beside abs: abs_
            of_object[id(functions[name])] = of_object[
                id(functions[own[:-1]])]
        prefix, _, rest = own.partition("_")
        if prefix in ("linalg", "sparse") and rest:
            put(f"{prefix}.{rest}", functions[name], "operator")
        put(name, functions[name], "operator")
    for namespace in NAMESPACES:
        for name in public(namespace):
            path = f"{namespace}.{name}".lstrip(".")
            if path not in functions:
                put(path, walk(path))
    for module in ("dispatch", "training"):
        for name in MORE[module]:
            put(f"{module}.{name}", walk(f"{module}.{name}"))
    for name in sorted(public("Tensor"), key=OTHER_NAMES.__contains__):
        path, thing = f"Tensor.{name}", walk(f"Tensor.{name}")
        if name in functions and id(thing) not in of_object:
            of_object[id(thing)] = of_object[id(functions[name])]
        put(path, thing)
    return found


@functools.cache
def by_name():
    """{any name: the Entry that it leads to}."""
    return {name: entry for entry in entries().values()
            for name in entry.names}


def namespaces():
    """The modules that a reader can name, each with its docstring."""
    lamina = library()
    names = set(chapter_modules())
    for path in [*NAMESPACES, *names]:
        parts = path.split(".")
        names.update(".".join(parts[:n + 1]) for n in range(len(parts)))
    return sorted(n for n in names if n and isinstance(
        walk(n), types.ModuleType) or n in dir(lamina) and isinstance(
            getattr(lamina, n, None), types.ModuleType))


def listed(text):
    """The entries of a page: a list of (names, note), from its Markdown.

    A line is `name name: note`; the note is for what has no docstring.
    """
    found = []
    for body in re.findall(r"^```\{lamina-api\}\n(.*?)^```", text,
                           re.M | re.S):
        found += map(read_line, filter(str.strip, body.splitlines()))
    return found


def read_line(line):
    names, _, note = line.partition(":")
    return names.split(), note.strip()


# ---- operators ------------------------------------------------------------

@functools.cache
def operator_table():
    """{name: the operators of that name}, derived forms left out."""
    found = {}
    for operator in library().operators.values():
        kept = found.setdefault(operator.schema.name, [])
        if not operator.base:
            kept.append(operator)
    return found


@functools.cache
def plain_name(name):
    """An operator's own name, of an alias: absolute -> abs."""
    functions = library().functions
    if name in operator_table():
        return name
    return next((n for n in operator_table() if n in functions
                 and functions[n] is functions[name]), None)


def operators_named(name):
    return operator_table()[plain_name(name)]


def devices_of(operator):
    """The devices and layouts that it has kernels for; none for what is
    written in other operators."""
    from lamina import storage
    if operator.composite:
        return []
    devices = {d.bit: d.type for d in vars(storage).values()
               if isinstance(d, storage.device)}
    found, sparse = [], False
    for bits in sorted(operator.kernels):
        sparse = sparse or bits >= 1 << 12
        name = devices.get(bits)
        if bits == 0:
            found = list(devices.values())
        elif name and name not in found:
            found.append(name)
    return [*found, *["sparse_coo"] * sparse]


SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//",
    "mod": "%", "pow": "**", "matmul": "@", "and": "&", "or": "|", "xor": "^",
    "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">="}


@functools.cache
def signs():
    """{operator's full name: how it is written with a sign}."""
    tensor, found = library().Tensor, {"bitwise_not": "~x", "getitem": "x[i]",
                                       "index.Tensor": "x[i]"}
    for name, text in {"neg": "-x", "pos": "+x", "abs": "abs(x)", **{
            name: f"x {sign} y" for name, sign in SIGNS.items()}}.items():
        operator = getattr(tensor, f"__{name}__").operator
        found[operator.schema.full_name] = text
    return found


WRITTEN = "that of the operators it is written in"


def derivative_of(operator):
    """What chapter 8's table says of an operator, in words."""
    formulas = library().derivatives.get(operator.schema.full_name)
    if formulas:
        return "for " + ", ".join(f"`{name}`" for name in formulas)
    if formulas is None and operator.composite:
        return WRITTEN
    return "none"


# ---- where a name is defined ----------------------------------------------

@dataclass(frozen=True)
class Place:
    """A cell of a chapter."""

    chapter: str        # 02_strides
    id: str
    source: str


@functools.cache
def sources():
    """For each module: the places of its lines, and its exported cells."""
    chapters, _ = export.read_chapters(ROOT / "chapters")
    found = {}
    for chapter in chapters:
        book = json.loads(chapter.path.read_text("utf-8"))
        ids = [cell["id"] for cell in book["cells"]]
        cells = {c.number: Place(chapter.name, ids[c.number - 1], c.source)
                 for c in chapter.exported()}
        pieces = [export.take_apart(chapter, c) for c in chapter.exported()
                  if c.source.strip()]
        _, places = export.module_text(chapter, pieces,
                                       export.title(chapter))
        lines = [at and cells[at[0].number] for at in places]
        names = {}
        for piece in pieces:
            for name, _ in export.defined(piece.tree.body):
                names.setdefault(name, cells[piece.cell.number])
        found[chapter.module] = lines, names, list(cells.values())
    return found


# Run by itself, before lamina is imported: who calls define, and on which
# line of its module.
DECLARATIONS = """
import json, sys
try:
    import numpy
except ImportError:
    pass
found = {}
def watch(frame, event, arg):
    if event == 'call' and frame.f_code.co_name == 'define':
        schema = frame.f_locals['schema']
        while frame.f_code.co_name != '<module>':
            frame = frame.f_back
        name = ' '.join(schema.split()).partition('(')[0]
        found[name] = frame.f_globals['__name__'], frame.f_lineno
sys.setprofile(watch)
import lamina
sys.setprofile(None)
print(json.dumps(found))
"""


@functools.cache
def declarations():
    """{schema's name: (module, line)} of every operator."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, "
         f"{str(ROOT / 'src')!r})\n{DECLARATIONS}"],
        capture_output=True, encoding="utf-8", check=True)
    return json.loads(done.stdout)


def place_at(module, line):
    lines, _, _ = sources()[module.removeprefix("lamina.")]
    return lines[line - 1]


def line_of(thing):
    """(module, line) where Python says that a function was written."""
    thing = getattr(thing, "fget", None) or thing
    code = getattr(inspect.unwrap(thing) if callable(thing) else thing,
                   "__code__", None)
    name = Path(code.co_filename) if code else Path()
    if name.parent.name == "lamina" and name.stem in sources():
        return name.stem, code.co_firstlineno
    return None


def place_of(entry):
    """The cell that defines an entry, and word for word names it."""
    return places()[entry.name]


@functools.cache
def places():
    return {entry.name: find_place(entry) for entry in entries().values()}


def find_place(entry):
    word = entry.name.rpartition(".")[2]
    if entry.kind == "operator":
        schema = entry.operators[0].schema
        module, line = declarations()[schema.full_name]
        cell, named = place_at(module, line), rf"\b{schema.name}\b"
        if re.search(named, cell.source):
            return cell
        # The loop that declares it reads a text in another cell.
        return next((other for other in
                     sources()[module.removeprefix("lamina.")][2]
                     if re.search(named + r"[.(]", code_of(other.source))),
                    cell)
    home = getattr(entry.object, "__module__", None) or ""
    homes = [home.removeprefix("lamina."), *sources()]
    names = [word, getattr(entry.object, "__name__", word)]
    if entry.kind in ("method", "property"):
        at = line_of(entry.object)
        if at:
            return place_at(*at)
        homes.insert(0, "strides")
    else:
        for module in filter(sources().__contains__, homes):
            for name in names:
                if name in sources()[module][1]:
                    return sources()[module][1][name]
    for module in filter(sources().__contains__, homes):
        for cell in sources()[module][2]:
            if re.search(rf"\b{word}\b", code_of(cell.source)):
                return cell
    raise LookupError(f"no exported cell defines {entry.name}")


@functools.cache
def code_of(source):
    """A cell without its docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if ast.get_docstring(node) if isinstance(node, (
                ast.FunctionDef, ast.ClassDef)) else None:
            node.body[0].value.value = ""
    return ast.unparse(tree)


# ---- examples -------------------------------------------------------------

PREAMBLE = """\
import lamina
import lamina.nn.functional as F
from lamina import nn, optim, tensor
"""


def examples(folder=ROOT / "book" / "api" / "examples"):
    """{name: its example} from the files of book/api/examples.

    A file is a list of names at the start of a line, each followed by
    its indented example.
    """
    found = {}
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text("utf-8")
        for name, body in re.findall(r"^(\S+)\n((?:(?: +.*)?\n)+)", text,
                                     re.M):
            if name in found:
                raise ValueError(f"{path.name}: a second example of {name}")
            found[name] = inspect.cleandoc("\n" + body).strip("\n")
    return found
