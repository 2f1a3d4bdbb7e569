"""Lamina: a deep learning framework, one layer a chapter.

Exported from chapters/ by `course export`; edit the chapters,
not this file.
"""

from lamina.storage import *
from lamina.strides import *
from lamina.dispatch import *
from lamina.broadcasting import *
from lamina.reductions import *
from lamina.matmul import *
from lamina.scalar import *
from lamina.autograd import *
from lamina.nn import *
from lamina.optim import *
from lamina.training import *

from lamina.dispatch import functions as _functions

__version__ = "0.1.0"
__chapters__ = (
    "01_storage",
    "02_strides",
    "03_dispatch",
    "04_broadcasting",
    "05_reductions",
    "06_matmul",
    "07_scalar",
    "08_autograd",
    "09_nn",
    "10_optim",
    "11_training",
)

# An operator wins over a module or a kernel of its name.
globals().update(_functions)


def __getattr__(name):
    if name in _functions:  # declared after the import
        return _functions[name]
    import difflib

    near = difflib.get_close_matches(name, __dir__(), 1)
    raise AttributeError(
        f"module 'lamina' has no attribute {name!r}"
        + (f"; the nearest name is {near[0]!r}" if near else "")
        + ("" if name.startswith("__") else
           "; what is left out is told on the page 'Where Lamina differs'"))


def __dir__():
    return sorted({*globals(), *_functions})
