"""Things to play with, as the output of a notebook's cell.

    strides(x)                      a view's geometry, moved by hand
    broadcasting(broadcast_shapes)  shapes, and what they broadcast to
    trace(dispatch, names, calls)   calls on their way to a kernel
    surface(losses, optimizers)     an optimiser's way down a loss

Each works in JupyterLab and in a page without a kernel, by keyboard, and
says in words what it shows. What it can reach is the library's own state:
recorded when the cell runs, or computed in the page by rules that a test
compares with the library, state by state.
"""

from course.explore.broadcasting import broadcasting
from course.explore.strides import strides
from course.explore.surface import surface
from course.explore.trace import trace

__all__ = ["broadcasting", "strides", "surface", "trace"]
