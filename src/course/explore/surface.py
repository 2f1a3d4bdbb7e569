"""A loss of two numbers, and the way that an optimiser takes on it.

The page has the rules of four optimisers, and goes back through the loss,
which is recorded here as a list of its operations. A test compares every
path that can be chosen with those of lamina.optim. The optimisers' other
options are the library's defaults, read when the cell runs.
"""

import inspect

from course.explore.frame import Explorer, frame

WIDTH, HEIGHT = 1000, 500       # of the picture
ACROSS, UP = (-5.0, 5.0), (-2.5, 2.5)       # what it shows of u and v
RATES = [0.01, 0.03, 0.09, 0.11, 0.3, 1.0]
MOMENTA = [0.0, 0.5, 0.9]
STARTS = {"u": (-4, 4, 1), "v": (-2, 2, 0.5)}
STEPS = 40
CONTOURS = 10


def surface(losses, optimizers):
    """Choose an optimiser, its rate and a start; go down step by step.

    losses maps a name to a function of u and v that is made of +, - and *
    alone. optimizers are classes of lamina.optim, out of SGD, RMSprop,
    Adagrad and Adam.
    """
    known = {"SGD", "RMSprop", "Adagrad", "Adam"}
    unknown = [kind.__name__ for kind in optimizers
               if kind.__name__ not in known]
    if unknown:
        raise ValueError(f"surface() knows the rules of "
                         f"{', '.join(sorted(known))}; not {unknown[0]}")
    data = {"size": [WIDTH, HEIGHT], "across": ACROSS, "up": UP,
            "rates": RATES, "momenta": MOMENTA, "starts": STARTS,
            "steps": STEPS, "first": [-4, 1],
            "surfaces": {name: {"tape": recorded(loss),
                                "lines": contours(loss)}
                         for name, loss in losses.items()},
            "optimizers": {kind.__name__: defaults(kind)
                           for kind in optimizers}}
    name = next(iter(losses))
    body = f"""<div class="moves"></div>
<div class="picture"><svg xmlns="http://www.w3.org/2000/svg" role="img" \
viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="Lines of equal loss: {name}">\
<path class="line" d="{data['surfaces'][name]['lines']}"></path></svg></div>
<div class="bar"></div>
<p class="words" aria-live="polite">Lines of equal loss, each half as high \
above the lowest point as the one outside it.</p>
<details open><summary>The path in numbers</summary>
<div class="wide"><table><thead><tr><th>step</th><th>u</th><th>v</th>
<th>loss</th><th>gradient</th></tr></thead><tbody></tbody></table></div>
</details>"""
    return Explorer(
        frame("surface", "Loss-surface explorer", data, body), data,
        f"loss-surface explorer: {', '.join(losses)}; "
        f"{', '.join(data['optimizers'])}; {len(RATES)} rates, "
        f"{len(MOMENTA)} momenta, {STEPS} steps")


def defaults(kind):
    """The options of an optimiser that are not chosen on the page."""
    return {name: parameter.default for name, parameter
            in inspect.signature(kind).parameters.items()
            if name in ("alpha", "betas", "eps")}


class Traced:
    """A number that writes down what is done with it."""

    def __init__(self, tape, *entry):
        self.tape, self.place = tape, len(tape)
        tape.append(list(entry))

    def number(self, other):
        if isinstance(other, Traced):
            return other
        if isinstance(other, (int, float)):
            return Traced(self.tape, "number", other)
        raise TypeError(f"a loss is made of u, v and numbers; got "
                        f"{type(other).__name__}")

    def __add__(self, other):
        return Traced(self.tape, "+", self.place, self.number(other).place)

    def __sub__(self, other):
        return Traced(self.tape, "-", self.place, self.number(other).place)

    def __mul__(self, other):
        return Traced(self.tape, "*", self.place, self.number(other).place)

    def __rsub__(self, other):
        return self.number(other) - self

    __radd__, __rmul__ = __add__, __mul__


def recorded(loss):
    """The operations of a loss, each with the places of its operands; the
    first two are u and v."""
    tape = []
    u, v = Traced(tape, "u"), Traced(tape, "v")
    loss(u, v)
    return tape


def contours(loss, columns=100, rows=50):
    """Lines of equal loss, as the data of one SVG path."""
    def between(ends, n):
        return [ends[0] + (ends[1] - ends[0]) * i / n for i in range(n + 1)]

    heights = [[loss(u, v) for u in between(ACROSS, columns)]
               for v in between(UP[::-1], rows)]       # the top row first
    low = min(map(min, heights))
    high = max(map(max, heights))
    path = []
    for k in range(1, CONTOURS + 1):
        for line in lines(heights, low + (high - low) / 2 ** k):
            points = [(round(j * WIDTH / columns), round(i * HEIGHT / rows))
                      for i, j in line]
            path.append("M%d %d" % points[0])
            path += ["l%d %d" % (x - a, y - b) for (a, b), (x, y)
                     in zip(points, points[1:]) if (x, y) != (a, b)]
    return "".join(path)


def lines(heights, level):
    """Where a grid of heights has a level: lists of (row, column).

    Marching squares. A line enters and leaves a square of the grid through
    two of its edges; squares that share an edge continue each other.
    """
    links = {}
    for i in range(len(heights) - 1):
        for j in range(len(heights[0]) - 1):
            corners = (i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1)
            cut = [(a, b) for a, b in (corners[:2], corners[1::2],
                                       corners[2:], corners[::2])
                   if (heights[a[0]][a[1]] > level)
                   != (heights[b[0]][b[1]] > level)]
            for one, two in zip(cut[::2], cut[1::2]):
                links.setdefault(one, []).append(two)
                links.setdefault(two, []).append(one)

    def place(edge):
        (i, j), (k, m) = edge
        here, there = heights[i][j], heights[k][m]
        share = (level - here) / (there - here)
        return i + (k - i) * share, j + (m - j) * share

    while links:        # an end first, if there is one left
        line = [min(links, key=lambda edge: len(links[edge]))]
        near = links.pop(line[0])
        while ahead := [edge for edge in near if edge in links]:
            line.append(ahead[0])
            near = links.pop(ahead[0])
        if line[0] in near and len(line) > 2:
            line.append(line[0])        # it is closed
        yield [place(edge) for edge in line]
