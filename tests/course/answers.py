"""Functions as a reader's notebook would hold them."""

import types


def own(function, name):
    """The same code, as if it had been written in a notebook."""
    made = types.FunctionType(
        function.__code__, function.__globals__, name,
        function.__defaults__, function.__closure__)
    made.__module__ = "__main__"
    return made


def written(source, name):
    """A function from source, as a notebook's cell would define it."""
    names = {"__name__": "__main__"}
    exec(compile(source, "a cell", "exec"), names)
    return names[name]
