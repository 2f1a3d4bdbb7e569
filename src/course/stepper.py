"""Backward as a picture that moves: one node a step, in a notebook's output.

    stepper(loss)       a scalar Value, or a tensor with a grad_fn
    stepper(node)       anything that speaks the protocol below

What it returns is HTML with an SVG picture, a style and a small script, all
in one piece: it works in JupyterLab and in a page without a kernel, with
the buttons and with the arrow keys. Every state is said in words and signs
as well as in colour. Where scripts do not run, or a notebook is not trusted
yet, the first picture (an <img>, which is let through) and a table of all
steps are there; the script makes the buttons, and a picture that it can
change out of the first one.

The protocol. A node has

    name                a few words, unique in the graph
    inputs              the nodes that it was made from
    value               a number, or text
    contributions(g)    for its gradient g, one gradient for each input
                        (None for an input that gets none)

and may have `op` (what made it), `factors` (a text for each input, shown
on the edge) and `show(g)` (a gradient as text). Gradients are added with
`+`, so tensors may be gradients too; the first one is `root.seed`, or 1.0.
"""

import math
import re
import urllib.parse
from xml.sax.saxutils import escape

from course.explore.frame import Explorer, frame
from course.figures import CARD, INK, SANS, SOFT, _flow, _render, _short

__all__ = ["stepper", "Stepper"]

MOST = 60       # values in one picture
MINUS, TIMES = "\u2212", "\u00d7"
SIGNS = {"none": "\u2013", "some": "\u2026", "now": "\u2192", "done": "="}
WORDS = {"none": "no gradient yet", "some": "still collecting",
         "now": "its turn: it hands its gradient on", "done": "complete"}


def stepper(root, *, names=None, seed=1.0):
    """Backward from root, one node a step.

    root is a scalar Value, a tensor with a grad_fn, or a node of the
    protocol that this module names. names, {"w": w, ...}, labels values.
    It computes the gradients itself, from the local derivatives or by the
    graph's nodes, and leaves the graph as it is: show it before backward()
    frees what was saved.
    """
    if hasattr(root, "parents") and hasattr(root, "locals"):
        root = _scalars(root, names or {}, seed)
    elif getattr(root, "grad_fn", None) is not None:
        root = _tensors(root, names or {})
    missing = [part for part in ("name", "inputs", "value", "contributions")
               if not hasattr(root, part)]
    if missing:
        raise TypeError(
            f"stepper() takes a Value, or a node with name, inputs, value "
            f"and contributions; this {type(root).__name__} has no "
            f"{missing[0]!r}")
    nodes = _order(root)
    if len(nodes) > MOST:
        raise ValueError(f"stepper() draws at most {MOST} values, and there "
                         f"are {len(nodes)}; graph(root) draws more")
    return Stepper(nodes, _steps(nodes))


class _Scalar:
    """A Value as a node of the protocol."""

    def __init__(self, value, name, inputs, seed):
        self.name, self.inputs, self.seed = name, inputs, seed
        self.value, self.op = value.data, value.op if inputs else ""
        self.locals = value.locals
        self.factors = [f"{TIMES} {_text(f)}" for f in self.locals]

    def contributions(self, grad):
        return [grad * local for local in self.locals]


def _scalars(root, names, seed):
    """The graph behind a Value, as nodes; who has no name gets a number."""
    named = {id(v): name for name, v in names.items()}
    order, made = _order(root, lambda v: v.parents), {}
    taken = set(named.values()) | {getattr(v, "label", "") for v in order}
    count = 0
    for value in reversed(order):       # in the order of the computation
        name = named.get(id(value)) or getattr(value, "label", "")
        while not name:
            count += 1
            if f"v{count}" not in taken:
                name = f"v{count}"
        made[id(value)] = _Scalar(
            value, name, [made[id(p)] for p in value.parents], seed)
    return made[id(root)]


class _Node:
    """A node of a tensor graph as a node of the protocol."""

    def __init__(self, node, name, inputs):
        self.node, self.name, self.inputs = node, name, inputs
        leaf = getattr(node, "variable", None)
        self.value = (f"shape {list(node.shape)}" if leaf is None
                      else _elements(leaf))

    def contributions(self, grad):
        found = []
        for (after, _), g in zip(self.node.next_functions,
                                 self.node.apply([grad])):
            if after is not None:       # broadcasting is undone here
                found.append(g if g is None or g.shape == after.shape
                             else g.sum_to_size(after.shape))
        return found

    def show(self, grad):
        return _elements(grad)


def _elements(x):
    """The elements of a small tensor as text, the shape of another."""
    values = x.tolist()
    if not isinstance(values, list):
        return _text(values)
    if len(x.shape) > 2 or math.prod(x.shape) > 6:
        return f"shape {list(x.shape)}"

    def row(v):
        return "[" + ", ".join(map(row, v)) + "]" if isinstance(
            v, list) else _text(v)
    return row(values)


def _tensors(root, names):
    """The graph behind a tensor, as nodes; operators of one kind are
    numbered, leaves have the names that they are given."""
    def after(node):
        return [n for n, _ in node.next_functions if n is not None]

    named = {id(x): name for name, x in names.items()}
    order, made, counts = _order(root.grad_fn, after), {}, {}
    for node in reversed(order):
        if isinstance(node.shape, list):
            raise ValueError(f"stepper() takes operators of one result; "
                             f"{node.name()} has {len(node.shape)}")
        leaf = getattr(node, "variable", None)
        name = "leaf" if leaf is not None else (
            node.name().removesuffix("Backward0").lower())
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:
            name += f" {counts[name]}"
        made[id(node)] = _Node(node, named.get(id(leaf), name),
                               [made[id(n)] for n in after(node)])
    made[id(root.grad_fn)].seed = root.new_ones(root.shape)
    return made[id(root.grad_fn)]


def _order(root, inputs=lambda node: node.inputs):
    """All nodes behind root, each before its inputs; root is first."""
    order, seen, stack = [], set(), [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(source, False) for source in reversed(inputs(node))]
    order.reverse()
    place = {id(node): i for i, node in enumerate(order)}
    for node in order:
        for source in inputs(node):
            if place[id(source)] <= place[id(node)]:
                raise ValueError("the graph goes in a circle: a value "
                                 "cannot be its own input")
    return order


def _text(value):
    """A number, or whatever stands in its place, as short text."""
    text = value if isinstance(value, str) else _short(value)
    return text.replace("-", MINUS) if isinstance(value, float) else text


def _steps(nodes):
    """What is to be seen before the walk, and after each of its steps.

    A step: words; grads, a text for each node or None; states, one of
    SIGNS for each node; edges, {"node-input": text of what went along}.
    """
    number = {id(node): i for i, node in enumerate(nodes)}
    show = getattr(nodes[0], "show", _text)
    waits = [0] * len(nodes)
    for node in nodes:
        for source in node.inputs:
            waits[number[id(source)]] += 1
    grads = [None] * len(nodes)
    grads[0] = getattr(nodes[0], "seed", 1.0)
    turn = [False] * len(nodes)

    def state(i):
        if grads[i] is None:
            return "none"
        return "now" if turn[i] else "some" if waits[i] else "done"

    def seen(words, edges):
        return {"words": words, "edges": edges,
                "grads": [None if g is None else show(g) for g in grads],
                "states": [state(i) for i in range(len(nodes))]}

    steps = [seen(f"Before the first step: {nodes[0].name} has gradient "
                  f"{show(grads[0])}, and nothing else has one.", {})]
    for i, node in enumerate(nodes):
        places = [number[id(source)] for source in node.inputs]
        for j in places:
            waits[j] -= 1
        if not node.inputs or grads[i] is None:
            continue
        edges, said, got = {}, [], node.contributions(grads[i])
        for k, (source, j, share) in enumerate(
                zip(node.inputs, places, got, strict=True)):
            if share is None:
                said.append(f"nothing to {source.name}")
                continue
            before = grads[j]
            grads[j] = share if before is None else before + share
            edges[f"{i}-{k}"] = f"+ {show(share)}"
            said.append(f"{_share(node, k, show(grads[i]), show(share))} to "
                        f"{source.name}" + (
                            "" if before is None else
                            f", which had {show(before)} and now has "
                            f"{show(grads[j])}"))
        turn[i] = True
        steps.append(seen(f"{_head(node)} has gradient {show(grads[i])}. "
                          f"It hands {'; '.join(said)}.", edges))
        turn[i] = False
    leaves = [f"{n.name} {show(g)}" for n, g in zip(nodes, grads)
              if not n.inputs and g is not None]
    steps.append(seen("Done. The gradients of the leaves: "
                      + (", ".join(leaves[::-1]) or "none") + ".", {}))
    return steps


def _share(node, k, grad, share):
    """What goes to input k, with the product that it is."""
    factors = getattr(node, "factors", None)
    return f"{grad} {factors[k]} = {share}" if factors else share


# --- the page -----------------------------------------------------------

class Stepper(Explorer):
    """The finished page; `steps` is what it shows, as plain data."""

    def __init__(self, nodes, steps):
        self.steps, self.names = steps, [node.name for node in nodes]
        super().__init__(_page(nodes, steps), steps, (
            f"stepper: {len(nodes)} values, {len(steps) - 2} steps. "
            f"{steps[-1]['words']}"))


def _page(nodes, steps):
    picture = _picture(nodes, steps)
    rows = "\n".join(
        f"<tr><td>{_when(i, steps)}</td><td>{escape(s['words'])}</td></tr>"
        for i, s in enumerate(steps))
    legend = "&ensp; ".join(f"<span><b>{SIGNS[s]}</b> {WORDS[s]}</span>"
                            for s in SIGNS)
    words = escape(steps[0]["words"])
    source = urllib.parse.quote(picture, safe=" =:/;,.(){}")
    return frame(
        "stepper", "Backward step by step: arrow keys, Home and End move",
        {"steps": steps, "signs": SIGNS}, f"""<div class="bar"></div>
<div class="picture"><img alt="The graph. {words}" \
src="data:image/svg+xml,{source}"></div>
<p class="words" aria-live="polite">{words}</p>
<p class="legend">{legend}</p>
<details open><summary>All steps in words</summary>
<table><thead><tr><th>Step</th><th>What happens</th></tr></thead><tbody>
{rows}
</tbody></table></details>""")


def _when(i, steps):
    return {0: "start", len(steps) - 1: "end"}.get(i, str(i))


def _picture(nodes, steps):
    """The graph at its first step, with a mark on all that will change.

    Graphviz finds the places. The widest text that a step will show is
    what it is asked to make room for.
    """
    number = {id(node): i for i, node in enumerate(nodes)}
    dot = _flow()
    dot.graph_attr.update(nodesep="0.16", ranksep="0.12")
    # in the order of the computation, which then goes from top to bottom
    for i, node in reversed([*enumerate(nodes)]):
        widest = max((s["grads"][i] or "" for s in steps), key=len)
        lines = [_head(node) + "M", _text(node.value), f"grad {widest} MM"]
        dot.node(f"n{i}", _plain("\\n".join(lines)), margin="0.08,0.05")
    for i, node in reversed([*enumerate(nodes)]):
        for k, source in enumerate(node.inputs):
            label = max((_factor(node, k), *(
                s["edges"].get(f"{i}-{k}", "") for s in steps)), key=len)
            dot.edge(f"n{number[id(source)]}", f"n{i}", label=_plain(label),
                     id=f"e{i}_{k}")
    svg = _render(dot)
    box = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', svg)
    shift = re.search(r"translate\(([-\d. ]+)\)", svg)[1]
    parts, first = [], steps[0]
    for group in re.findall(r'<g id="[^"]*" class="edge">.*?</g>', svg, re.S):
        parts.append(_edge(group, nodes))
    for group in re.findall(r'<g id="[^"]*" class="node">.*?</g>', svg, re.S):
        i = int(re.search(r"<title>n(\d+)</title>", group)[1])
        parts.append(_box(group, i, nodes[i], first))
    width, height = (float(n) for n in box.groups())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'class="lamina-steps" width="{width * 1.25:.0f}" '
        f'height="{height * 1.25:.0f}" '
        f'viewBox="0 0 {width:g} {height:g}">\n'
        f"<title>Computation graph with its gradients</title>\n"
        f"<style>{DRAWN}</style>\n"
        f'<g transform="translate({shift})" font-family="{SANS}" '
        f'font-size="12" text-anchor="middle">\n'
        + "\n".join(parts) + "\n</g></svg>")


def _head(node):
    op = getattr(node, "op", "")
    return f"{node.name} ({op})" if op else node.name


def _factor(node, k):
    factors = getattr(node, "factors", None)
    return factors[k] if factors else ""


def _plain(text):
    """Room for a text: letters that Graphviz's fonts are sure to have."""
    return re.sub(r"[^\x20-\x7e]", "-", text)


def _edge(group, nodes):
    i, k = map(int, re.search(r'id="e(\d+)_(\d+)"', group).groups())
    path = re.search(r' d="([^"]+)"', group)[1]
    tip = re.search(r'<polygon[^>]* points="([^"]+)"', group)[1]
    at = re.search(r'<text[^>]* x="([-\d.]+)" y="([-\d.]+)"', group)
    label = ""
    if at:
        text = escape(_factor(nodes[i], k))
        label = (f'<text class="share" x="{at[1]}" y="{at[2]}" '
                 f'data-rest="{text}">{text}</text>')
    return (f'<g class="edge" data-edge="{i}-{k}"><path d="{path}"/>'
            f'<polygon points="{tip}"/>{label}</g>')


def _box(group, i, node, step):
    points = re.search(r'points="([^"]+)"', group)[1]
    xs, ys = zip(*(map(float, p.split(",")) for p in points.split()))
    x, y, w = min(xs), min(ys), max(xs) - min(xs)
    middle, state = x + w / 2, step["states"][i]
    height = max(ys) - y
    third = (height - 7) / 3
    grad = step["grads"][i]
    text = SIGNS[state] if grad is None else f"{grad} {SIGNS[state]}"
    op = getattr(node, "op", "")
    op = f" ({escape(op)})" if op else ""
    return (
        f'<g class="node" data-node="{i}" data-state="{state}">'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" '
        f'height="{height:.1f}" rx="3"/>'
        f'<text x="{middle:.1f}" y="{y + third - 1:.1f}">'
        f"<tspan class=\"name\">{escape(node.name)}</tspan>{op}</text>"
        f'<text x="{middle:.1f}" y="{y + 2 * third:.1f}">'
        f"{escape(_text(node.value))}</text>"
        f'<text class="grad" x="{middle:.1f}" '
        f'y="{y + 3 * third:.1f}">grad {escape(text)}</text></g>')


# Of the picture: inside it, since it may stand alone. On a page, the frame's
# names say the colours for light and dark.
DRAWN = f"""
.lamina-steps {{ background: var(--card, {CARD}); }}
.lamina-steps rect {{ fill: var(--box, #ffffff); stroke: var(--line, #6b6b6b); }}
.lamina-steps text {{ fill: var(--ink, {INK}); }}
.lamina-steps .name {{ font-weight: bold; }}
.lamina-steps .grad, .lamina-steps .moves .share {{ fill: var(--mark, #8a3a00);
  font-weight: bold; }}
.lamina-steps .edge path {{ fill: none; stroke: var(--line, #6b6b6b); }}
.lamina-steps .edge polygon {{ fill: var(--line, #6b6b6b);
  stroke: var(--line, #6b6b6b); }}
.lamina-steps .share {{ font-size: 11px; fill: var(--soft, {SOFT});
  stroke: var(--card, {CARD}); stroke-width: 3px; paint-order: stroke; }}
.lamina-steps .moves path {{ stroke: var(--mark, #8a3a00); stroke-width: 2.6;
  stroke-dasharray: 6 3; }}
.lamina-steps [data-state=none] rect {{ stroke-dasharray: 2 3; }}
.lamina-steps [data-state=none] .grad {{ fill: var(--soft, {SOFT});
  font-weight: normal; }}
.lamina-steps [data-state=some] rect {{ stroke-dasharray: 7 3;
  stroke-width: 1.8; fill: var(--some, #fff8e0); }}
.lamina-steps [data-state=now] rect {{ stroke: var(--ink, {INK});
  stroke-width: 3.2;
  fill: var(--now, #ffe2a8); }}
.lamina-steps [data-state=done] rect {{ fill: var(--done, #e3f1f5); }}
"""
