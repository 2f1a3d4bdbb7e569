"""A view's geometry, moved by hand; the cells light up as they are read.

What a view is, is computed in the page, by the rules of chapter 2; a test
compares every geometry that the page can reach with the library. What a
refusal says, and which index or method makes a geometry, the library says
when the cell runs.
"""

import itertools
import math
import re
from xml.sax.saxutils import escape

from course.explore.frame import Explorer, frame

# The largest size and stride that can be set, by the number of dimensions.
MOST = {1: (12, 12), 2: (6, 12), 3: (4, 6)}

PRESETS = ["x", "x.t()", "x[1]", "x[:, 2]", "x[1:, ::2]",
           "x[0].expand(3, 4)", "x.diagonal()", "x.view(12)",
           "x.view(12).unfold(0, 4, 2)", "x.view(2, 2, 3)"]


def strides(x):
    """Move shape, strides and offset of a view of x by hand.

    x is a matrix of 3 x 4 whose elements are their own places: the view's
    grid then names the cells of memory.
    """
    if getattr(x, "shape", None) != (3, 4) or x.tolist() != [
            [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]:
        raise ValueError("strides() explores arange(12).view(3, 4)")
    data = {"cells": math.prod(x.shape), "most": MOST,
            "errors": refusals(x), "names": names(x),
            "presets": [[text, *geometry(x, text)] for text in PRESETS]}
    rows = "\n".join(
        f"<tr><td><code>{escape(text)}</code></td><td>{shape}</td>"
        f"<td>{steps}</td><td>{offset}</td><td>{reads(x, text)}</td></tr>"
        for text, shape, steps, offset in data["presets"])
    body = f"""<div class="moves"></div>
<div class="code"></div>
<div class="bar"></div>
<p class="words" aria-live="polite">12 cells of memory, and ten ways to \
read them.</p>
<div class="both"></div>
<details open><summary>The views of the list, in numbers</summary>
<div class="wide"><table><thead><tr><th>view</th><th>shape</th>
<th>strides</th><th>offset</th><th>reads the cells</th></tr></thead><tbody>
{rows}
</tbody></table></div></details>"""
    return Explorer(
        frame("strides", "Stride explorer", data, body, "shapes.js"),
        data,
        f"stride explorer: {data['cells']} cells, "
        f"{len(data['presets'])} views to begin with, "
        f"{len(data['names'])} geometries with a name")


def geometry(x, text):
    """Shape, strides and offset of the view that `text` makes of x."""
    view = eval(text, {"x": x})
    return [list(part) for part in (view.shape, view.stride())] + [
        view.storage_offset()]


def reads(x, text):
    """The elements of the view that `text` makes of x, in order."""
    return re.sub(r"[^\d ]", "", str(eval(text, {"x": x}).tolist()))


def refusals(x):
    """What as_strided says, with {marks} in place of the numbers."""
    def said(size, stride, offset):
        try:
            x.as_strided(size, stride, offset)
        except RuntimeError as error:
            return "RuntimeError: " + str(error).replace(
                str(list(size)), "{size}").replace(
                str(list(stride)), "{stride}").replace(
                f"offset {offset}", "offset {offset}")
        raise AssertionError("as_strided() refuses what is not there")
    far = said((3,), (101,), 1007)
    return {"negative": said((103,), (-102,), 1007),
            "outside": far.replace("1209", "{last}").replace("12", "{have}")}


def names(x):
    """{"shape;strides;offset": text}, for views with an ordinary name; the
    shortest one where there are several."""
    found = {}
    for text in sorted(expressions(), key=len):
        key = ";".join(",".join(map(str, part)) if isinstance(part, list)
                       else str(part) for part in geometry(x, text))
        found.setdefault(key, text)
    return found


def expressions():
    """Views that are made by an index, or by one or two methods."""
    rows, columns = list(slices(3)), list(slices(4))
    for row, column in itertools.product(
            rows + [str(i) for i in range(3)],
            columns + [str(j) for j in range(4)]):
        text = "x" if (row, column) == (":", ":") else (
            f"x[{row}]" if column == ":" else f"x[{row}, {column}]")
        yield text
        if row in rows and column in columns:
            yield text + ".t()"
            yield from (f"{text}.unsqueeze({d})" for d in range(3))
    flat = "x.view(12)"
    yield flat
    yield from (f"{flat}[{part}]" for part in slices(12))
    yield from (f"{flat}.unfold(0, {size}, {step})" for size in range(1, 7)
                for step in range(1, 12 - size + 1)
                if (12 - size) // step < 6)
    for size in [(12, 1), (1, 12), (2, 6), (6, 2), (4, 3), (2, 2, 3),
                 (2, 3, 2), (3, 2, 2), (3, 4, 1), (3, 1, 4), (1, 3, 4)]:
        if max(size) <= MOST[len(size)][0]:
            yield f"x.view{size}"
            if len(size) == 2:
                yield f"x.view{size}.t()"
                yield f"x.view{size}.diagonal()"
    yield from (f"x.diagonal({k})" for k in (-2, -1, 1, 2, 3))
    yield "x.diagonal()"
    for n in range(2, 7):
        yield from (f"x[{i}].expand({n}, 4)" for i in range(3))
        yield from (f"x[:, {j}:{j + 1}].expand(3, {n})" for j in range(4))
        yield from (f"x[{i}, {j}].expand({n})" for i in range(3)
                    for j in range(4))
    yield from (f"x.expand({n}, 3, 4)" for n in range(2, 5))
    yield from (f"x.unfold({d}, {size}, 1)" for d in (0, 1)
                for size in range(1, 4 + d))


def slices(size):
    """Each way to slice a dimension, as text, the shortest for its kind."""
    seen = set()
    for step, start in itertools.product(range(1, size), range(size)):
        for stop in [None, *range(start + 1, size + 1)]:
            found = range(size)[slice(start, stop, step)]
            if (len(found) > 1 or step == 1) and found not in seen:
                seen.add(found)
                yield (f"{start or ''}:{'' if stop is None else stop}"
                       + (f":{step}" if step > 1 else ""))
