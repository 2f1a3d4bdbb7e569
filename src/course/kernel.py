"""Checkpoints in a kernel: `begin` makes `import lamina` hold N chapters."""

import ast
import importlib
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path

from course.export import FILE_NAME, init_text, nearest


class _Later:
    """Refuses the layers that the notebook has yet to build."""

    def __init__(self, modules, before):
        self.modules, self.before = modules, before

    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            chapter = self.modules[name]
            raise ModuleNotFoundError(
                f"{name} is built in chapter {chapter}; this kernel holds "
                f"the chapters before {self.before}", name=name)


def _library():
    """(spec, chapters) of the lamina on the path, without importing it."""
    found = (finder.find_spec("lamina", None) for finder in sys.meta_path
             if hasattr(finder, "find_spec"))
    spec = next(filter(None, found), None)
    if spec is None or not spec.origin:
        return None, ()
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for node in tree.body:
        if (isinstance(node, ast.Assign)
                and getattr(node.targets[0], "id", "") == "__chapters__"):
            return spec, ast.literal_eval(node.value)
    raise ImportError(
        f"the lamina at {spec.origin} was not written by `course export`: "
        "run `course export`, or take that folder off the path")


def begin(name):
    """Make `import lamina` hold the chapters before the one named.

    name: a notebook's name without its ending, as in "08_autograd".
    In a kernel that already holds them nothing happens. Raises ValueError
    for a name that is no chapter, ImportError if a layer is missing.
    """
    match = FILE_NAME.match(name) if isinstance(name, str) else None
    workbook = _own_library(int(match[1])) if match else None
    spec, chapters = _library()
    number = int(match[1]) if match else 0
    taken = any(int(c[:2]) == number for c in chapters)
    if not match or (taken and name not in chapters):
        near = nearest(str(name), chapters)
        raise ValueError(
            f"begin({name!r}): there is no such chapter; "
            + (f"did you mean {near!r}? " if near else "")
            + f"the chapters are: {', '.join(chapters) or 'none yet'}")
    before = tuple(c for c in chapters if int(c[:2]) < number)
    loaded = sys.modules.get("lamina")
    if loaded is not None and getattr(loaded, "__begun__", None) == name:
        return
    _complete(name, number, before, spec, workbook)
    if loaded is not None:
        for module in [m for m in sys.modules
                       if m == "lamina" or m.startswith("lamina.")]:
            del sys.modules[module]
        print(f"lamina now holds the chapters before {name}: "
              "run this notebook again from its top")
    _load(name, before, [c for c in chapters if c not in before], spec)


def _own_library(number):
    """In a workbook: the reader's library goes first, and is brought up to
    what the notebooks before this one hold."""
    from course import export, workbook

    root = workbook.find()
    if root is None:
        return None
    if sys.path[:1] != [str(root)]:
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
    if workbook.is_stale(root, number):
        try:
            workbook.grow(root)
        except export.ExportError as error:
            print(f"lamina/ stays as it was, for a notebook has an error:\n"
                  f"{error}")
    return root


def _complete(name, number, before, spec, workbook=None):
    """Every layer below must be exported, and its file be there."""
    missing = sorted(set(range(1, number)) - {int(c[:2]) for c in before})
    if missing and workbook:
        first = f"{missing[0]:02d}"
        raise ImportError(
            f"begin({name!r}) needs chapter {first}, and your library does "
            f"not reach it yet: write its parts and call `course check "
            f"{first}`, or begin with the reference's: `course take {first}`")
    if missing:
        where = spec.origin if spec else "nowhere on the path"
        raise ImportError(
            f"begin({name!r}) needs chapter {missing[0]:02d}, and lamina "
            f"({where}) does not have it: run `course export`")
    for chapter in before:
        module = f"lamina.{chapter[3:]}"
        if importlib.machinery.PathFinder.find_spec(
                module, spec.submodule_search_locations) is None:
            folder = list(spec.submodule_search_locations)[0]
            raise ImportError(
                f"{module} is missing: there is no {chapter[3:]}.py in "
                f"{folder}; run `course export` to write it again")


def _load(name, before, later, spec):
    if spec is None:  # chapter 1, before anything was exported
        module = types.ModuleType("lamina")
        module.__path__ = []
    else:
        module = importlib.util.module_from_spec(spec)
    sys.meta_path[:] = [f for f in sys.meta_path
                        if type(f).__name__ != _Later.__name__]
    sys.meta_path.insert(
        0, _Later({f"lamina.{c[3:]}": c for c in later}, name))
    sys.modules["lamina"] = module
    source = init_text(before)
    try:
        code = compile(source, f"<lamina before {name}>", "exec")
        exec(code, module.__dict__)
    except BaseException:
        for loaded in [m for m in sys.modules
                       if m == "lamina" or m.startswith("lamina.")]:
            del sys.modules[loaded]
        raise
    module.__begun__ = name
