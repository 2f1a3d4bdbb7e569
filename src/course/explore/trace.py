"""Calls on their way through the dispatcher, recorded while they run.

The dispatcher asks its `watchers` about each function that it finds, and
this one puts a recorder around it. So every step is one that the library
took: which keys, which layer, which kernel, with what, and what came back.
"""

from html import escape

from course.explore.frame import Explorer, frame


def trace(dispatch, names, calls):
    """Record some calls; one is chosen on the page, and walked through.

    dispatch is the module of the dispatcher, or a notebook that holds it.
    calls maps a few words to a line of code, which is run with `names`.
    """
    recorded = {title: Recorder(dispatch).run(code, names)
                for title, code in calls.items()}
    data = [{"code": calls[title], "steps": [
        {k: v for k, v in step.items() if k != "words"} for step in steps]}
        for title, steps in recorded.items()]
    tables = "\n".join(
        f"<table><caption>{escape(title)}: <code>{escape(calls[title])}"
        f"</code></caption><tbody>" + "".join(
            f"<tr><td>{i}</td><td>{escape(step['words'])}</td></tr>"
            for i, step in enumerate(steps)) + "</tbody></table>"
        for title, steps in recorded.items())
    body = f"""<div class="moves"></div>
<div class="bar"></div>
<p class="words" aria-live="polite">{len(calls)} calls, step by step.</p>
<ol class="way"></ol>
<details open><summary>All calls in words</summary>
{tables}
</details>"""
    return Explorer(
        frame("trace", "Dispatch trace", data, body), recorded,
        "dispatch trace: " + "; ".join(
            f"{calls[title]}: " + ", ".join(
                step["title"] for step in steps[1:])
            for title, steps in recorded.items()))


class Recorder:
    """A watcher: it writes down each step of one call."""

    def __init__(self, dispatch):
        self.dispatch = dispatch
        self.steps, self.open = [], []

    def run(self, code, names):
        """The steps of a line of code."""
        operators = self.dispatch.operators
        self.note("the call", "Nothing has run yet.")
        clear(operators)        # what is in the tables is not watched
        self.dispatch.watchers.append(self.watch)
        try:
            exec(code, dict(names))
        except Exception as error:
            self.note("refused", f"{type(error).__name__}: {error}",
                      refused=True)
        finally:
            self.dispatch.watchers.remove(self.watch)
            clear(operators)
        return self.steps

    def note(self, title, words, operator=None, keys=0, **more):
        step = {"title": title, "words": words, "depth": len(self.open),
                "op": operator.schema.full_name if operator else "",
                "keys": [name for _, name in self.bits(keys)], **more}
        self.steps.append(step)
        return step

    def watch(self, operator, keys, found):
        """Put the recorder around a function that was found."""
        top = 1 << keys.bit_length() - 1
        kind = ("layer" if top == self.dispatch.FUNCTION else
                "composite" if operator.composite else
                "kernel" if top < self.dispatch.FIRST_LAYER else
                "aside" if hasattr(found, "is_watched") else "layer")
        make = getattr(self, kind)

        def watched(*args, **kwargs):
            step = make(operator, keys, found, args)
            self.open.append((operator, keys, step["title"], kind))
            try:
                result = found(*args, **kwargs)
            finally:
                self.open.pop()
            if kind == "kernel":
                step["words"] += f" The result: {self.said(result)}."
            elif kind != "aside":
                self.note(f"back in {step['title']}",
                          f"Back in {step['title']}. It gives "
                          f"{self.said(result)}.", operator,
                          result.keys if is_tensor(result) else 0)
            return result

        watched.is_watched = True
        return watched

    def layer(self, operator, keys, found, args):
        bit, name = self.bits(keys)[0]
        return self.note(name, (
            f"{self.asked(operator, keys)}. The highest key is {name}: "
            f"{self.why(bit, operator, args)}. {self.doc(bit)} "
            f"{self.given(operator, args)}"), operator, keys)

    def aside(self, operator, keys, found, args):
        bit, name = self.bits(keys)[0]
        return self.note(f"{name} steps aside", (
            f"{self.asked(operator, keys)}. The highest key is {name}: "
            f"{self.why(bit, operator, args)}. But the layer has nothing to "
            f"do for {operator.schema.name}, so what is below it is called "
            f"at once."), operator, keys)

    def composite(self, operator, keys, found, args):
        return self.note(f"composite {called(found)}", (
            f"{self.asked(operator, keys)}. It has no kernel, and no layer is "
            f"asked: it is composed of other operators, and calls them. "
            f"{self.given(operator, args)}"), operator, keys)

    def kernel(self, operator, keys, found, args):
        return self.note("kernel for " + self.named(keys), (
            f"{self.asked(operator, keys)}. No layer is left: the kernel "
            f"{self.filed(operator, keys)} computes; its name is "
            f"{called(found)}. {self.given(operator, args)}"),
            operator, keys)

    def asked(self, operator, keys):
        """Who looks up what."""
        name = operator.schema.full_name
        if not self.open:
            return f"{name} is looked up for {self.named(keys)}"
        other, above, title, kind = self.open[-1]
        if other is operator and kind in ("layer", "aside") and (
                above != keys | self.dispatch.FUNCTION) and (
                above ^ 1 << above.bit_length() - 1) == keys:
            return f"Below {title.split()[0]}, {self.named(keys)} is left"
        return f"Inside {title}, {name} is looked up for {self.named(keys)}"

    def given(self, operator, args):
        return " ".join(f"{a.name}: {self.said(x)}." for a, x in zip(
            operator.schema.arguments, args) if is_tensor(x))

    def named(self, keys):
        return " + ".join(name for _, name in self.bits(keys))

    def bits(self, keys):
        """(bit, name) of each key in a set, the highest first."""
        d = self.dispatch
        known = {each.bit: str(each) for each in d.device.known.values()}
        known |= {each.bit: each.name for each in d.layouts.values()}
        known |= {bit: wrap.__name__ for bit, wrap in d.layers.items()}
        known[d.FUNCTION] = "__torch_function__"
        return [(bit, known[bit]) for bit in sorted(known, reverse=True)
                if bit & keys]

    def why(self, bit, operator, args):
        """Who brought a key into the set."""
        if bit == self.dispatch.FUNCTION:
            kinds = {type(x).__name__: None for x in flat(args)
                     if hasattr(type(x), "__torch_function__")}
            return f"{' and '.join(kinds)} has such a method"
        who = [a.name for a, given in zip(operator.schema.arguments, args)
               if any(getattr(x, "keys", getattr(x, "bit", 0)) & bit
                      for x in flat([given]) if not isinstance(x, int))]
        if who:
            return f"{' and '.join(who)} {'has' if len(who) < 2 else 'have'} it"
        return "it is in every call while its context is open"

    def doc(self, bit):
        if bit == self.dispatch.FUNCTION:
            return self.dispatch.overridden.__doc__
        return (self.dispatch.layers[bit].__doc__ or "").split("\n")[0]

    def filed(self, operator, keys):
        """Where a kernel was found, in words."""
        kernels, kind = operator.kernels, keys & self.dispatch.LAYOUTS
        if keys in kernels:
            return f"filed under {self.named(keys)}"
        if kind in kernels:
            return "filed under " + " + ".join(
                [name for _, name in self.bits(kind)] + ["every device"])
        if operator.base and not kind:
            return f"made from that of {operator.base.schema.full_name}"
        return "the fallback of these keys"

    def said(self, x):
        """A value in a few words; nothing of the library is called."""
        if isinstance(x, tuple):
            return " and ".join(map(self.said, x))
        if not is_tensor(x):
            return repr(x) if isinstance(x, (int, float, str)) else (
                f"a {type(x).__name__}")
        shown = f"of shape {list(x.shape)}"
        if x.device.type != "meta" and x.layout is self.dispatch.strided:
            shown = x.tolist()
        return f"{x.dtype.name} {shown}, keys {self.named(x.keys)}"


def clear(operators):
    for operator in operators.values():
        operator.table.clear()


def is_tensor(x):
    return all(hasattr(x, part) for part in ("geometry", "dtype", "keys"))


def flat(args):
    for x in args:
        yield from flat(x) if isinstance(x, (list, tuple)) else [x]


def called(function):
    return getattr(getattr(function, "func", function), "__name__",
                   type(function).__name__)
