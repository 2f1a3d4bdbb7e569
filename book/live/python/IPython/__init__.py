"""In a page: what a chapter or a reader asks of IPython, and no more."""

from .display import display

__all__ = ["display", "get_ipython"]


def get_ipython():
    return None
