"""Two or three shapes, edited by hand, and what they broadcast to.

The page computes the result's shape and the strides with which each tensor
is read, by the rules of chapters 2 and 4; a test compares all shapes that
can be set with the library. What a refusal says, the library says when the
cell runs.
"""

from xml.sax.saxutils import escape

from course.explore.frame import Explorer, frame

# The largest size, and the most dimensions of each of the tensors.
MOST = {"size": 4, "dims": [3, 3, 1]}

PRESETS = [[[3], [2, 1]], [[2, 3], [3]], [[2, 3], [2]], [[2, 3], [2, 1]],
           [[4, 1, 3], [2, 1]], [[], [2, 2]], [[0, 3], [1, 3]],
           [[2, 1, 1], [3, 1], [4]]]


def broadcasting(broadcast_shapes):
    """Edit shapes by hand; broadcast_shapes is the library's rule."""
    presets = [[said(shapes), shapes] for shapes in PRESETS]
    rows = "\n".join(f"<tr><td>{text}</td><td>"
                     f"{escape(outcome(broadcast_shapes, shapes))}</td></tr>"
                     for text, shapes in presets)
    data = {"most": MOST, "presets": presets,
            "error": refusal(broadcast_shapes)}
    body = f"""<div class="moves"></div>
<ul class="rules"></ul>
<div class="bar"></div>
<p class="words" aria-live="polite">Shapes, and what they broadcast to.</p>
<div class="both"></div>
<details open><summary>The shapes of the list, in words</summary>
<table><thead><tr><th>shapes</th><th>result</th></tr></thead><tbody>
{rows}
</tbody></table></details>"""
    return Explorer(
        frame("broadcasting", "Broadcasting explorer", data, body, "shapes.js"),
        data,
        "broadcasting explorer: " + "; ".join(
            f"{text}: {outcome(broadcast_shapes, shapes)}"
            for text, shapes in presets[:4]))


def said(shapes):
    return " and ".join(str(tuple(shape)) for shape in shapes)


def outcome(broadcast_shapes, shapes):
    """The result's shape as text, or the library's refusal."""
    try:
        return str(broadcast_shapes(*map(tuple, shapes)))
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"


def refusal(broadcast_shapes):
    """What broadcast_shapes says, with {marks} in place of the numbers."""
    text = outcome(broadcast_shapes, [(1009,), (1, 1, 1, 1013)])
    for old, new in [("[1009] and [1, 1, 1, 1013]", "{shapes}"),
                     ("dimension 3", "dimension {dim}"), ("1009", "{first}"),
                     ("1013", "{second}")]:
        if text.count(old) != 1:
            raise ValueError(f"broadcast_shapes() says {text!r}: no {old!r}")
        text = text.replace(old, new)
    return text
