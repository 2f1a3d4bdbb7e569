"""`course prove`: mutants of each reference, which its judge must refuse.

A mutant is the reference with one small fault. One that passes is either
equal to the reference, and survivors.json says why, or a sign that the
judge is too weak. mutmut and cosmic-ray change files and run a whole test
suite for each mutant; what is judged here is one function in memory, so
the few rules that make mutants stand below.
"""

import ast
import copy
import functools
import hashlib
import json
import threading
from pathlib import Path

from course import checker, exercises

HERE = Path(__file__).parent / "exercises"
SURVIVORS, FIGURES = HERE / "survivors.json", HERE / "figures.json"
LIMIT = 1.0         # seconds for one call

OPERATORS = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv), ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Mult, ast.Mod), ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult,), ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,), ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,)}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
INNER = {"reversed", "sorted", "abs", "set"}    # f(x) becomes x
DROPPED = (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Delete,
           ast.Assert)


def changes(node):
    """The nodes that may stand in the place of this one."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for new in OPERATORS.get(type(op), ()):
                made = copy.copy(node)
                made.ops = [*node.ops[:i], new(), *node.ops[i + 1:]]
                yield made
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        for new in OPERATORS.get(type(node.op), ()):
            made = copy.copy(node)
            made.op = new()
            yield made
        if isinstance(node, ast.AugAssign):
            yield ast.Assign([node.target], node.value, lineno=1)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
            if node.value not in (0, 1):
                yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        for value in (True, False):
            if not (value and isinstance(node, ast.While)):
                made = copy.copy(node)
                made.test = ast.Constant(value)
                yield made
    elif isinstance(node, ast.Slice):
        for part in ("lower", "upper", "step"):
            if getattr(node, part) is not None:
                made = copy.copy(node)
                setattr(made, part, None)
                yield made
    elif isinstance(node, ast.comprehension) and node.ifs:
        made = copy.copy(node)
        made.ifs = node.ifs[:-1]
        yield made
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name in CALLS:
            made = copy.copy(node)
            made.func = ast.Name(CALLS[name])
            yield made
        elif name in INNER and len(node.args) == 1:
            yield node.args[0]
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    if isinstance(node, DROPPED):
        yield ast.Pass()


def places(node):
    """(parent, field, index, child) of every node below this one, but for
    docstrings, signatures and what a message says."""
    for field, value in ast.iter_fields(node):
        if field in ("args", "returns", "decorator_list", "annotation") and (
                isinstance(node, ast.FunctionDef | ast.AnnAssign)):
            continue
        for i, child in enumerate(value if isinstance(value, list)
                                  else [value]):
            if not isinstance(child, ast.AST) or isinstance(
                    child, ast.JoinedStr):
                continue
            if (isinstance(child, ast.Expr)
                    and isinstance(child.value, ast.Constant)):
                continue
            yield node, field, i if isinstance(value, list) else None, child
            yield from places(child)


def line(node):
    """A statement's first line."""
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]


def mutants(source):
    """{what is changed: the source with that change}."""
    tree = ast.parse(source)
    found, whole = {}, ast.unparse(tree)
    statement = {}
    for parent, _, _, child in places(tree.body[-1]):
        statement[child] = (child if isinstance(child, ast.stmt)
                            else statement.get(parent, parent))
    for parent, field, i, child in list(places(tree.body[-1])):
        if isinstance(child, ast.expr_context | ast.operator | ast.cmpop):
            continue
        home = statement[child]
        before = line(home)
        for new in changes(child):
            put(parent, field, i, new)
            text = ast.unparse(ast.fix_missing_locations(tree))
            after = line(new if child is home else home)
            put(parent, field, i, child)
            name = label = f"{before} -> {after}"
            count = 1
            while label in found and found[label] != text:
                count += 1
                label = f"{name} ({count})"
            if text != whole:
                found[label] = text
    return found


def put(parent, field, i, node):
    if i is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[i] = node


@functools.cache
def expected(exercise):
    """[(input, what the reference does)]."""
    watch = checker.Watch()
    watch.limit = 60.0
    with checker.surroundings(watch.output), checker.strict_numpy():
        return [(args, checker.attempt(
            exercise, exercise.reference, args, watch))
            for args in checker.samples(exercise)]


def refused(exercise, source):
    """Does the judge refuse this source?"""
    names = {"__name__": "__main__"}
    watch, result = checker.Watch(), []
    watch.limit = LIMIT
    pairs = expected(exercise)

    def work():
        try:
            exec(compile(source, "a mutant", "exec"), names)
            function = names[exercise.name]
            with checker.strict_numpy():
                result.append(any(checker.fault(
                    exercise, args, due,
                    checker.attempt(exercise, function, args, watch))
                    for args, due in pairs))
        except (checker.TimeUp, Exception):
            result.append(True)

    with checker.surroundings(watch.output):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        found = checker.wait(exercise, thread, watch, result)
    return found is not False


def survivors(exercise, sample=None):
    """(how many mutants, those that pass); of a sample of that size, taken
    at even distances, if one is named."""
    found = mutants(exercise.solution)
    chosen = list(found)
    if sample is not None and len(chosen) > sample:
        chosen = [chosen[i * len(chosen) // sample] for i in range(sample)]
    return len(chosen), [m for m in chosen
                         if not refused(exercise, found[m])]


def explained():
    """{exercise: {mutant: why it is equal to the reference}}."""
    return json.loads(SURVIVORS.read_text(encoding="utf-8"))


def fingerprint(exercise):
    return hashlib.sha256(exercise.solution.encode()).hexdigest()[:16]


def count(exercise, made, left):
    return {"title": exercise.title, "wrong": len(exercise.wrong),
            "right": len(exercise.right), "mutants": made,
            "survivors": len(left), "solution": fingerprint(exercise)}


def stale(figures):
    """The exercises whose figures are not those of today."""
    today = {e.id: e for e in exercises.load()}
    return [i for i in sorted(today.keys() | figures.keys())
            if i not in today or i not in figures or figures[i] != count(
                today[i], figures[i]["mutants"],
                range(figures[i]["survivors"]))]


def page(figures, why):
    """The report in the book."""
    total = {k: sum(f[k] for f in figures.values())
             for k in ("wrong", "right", "mutants", "survivors")}
    lines = [
        "# How the checks are checked", "",
        "A check that passes a wrong answer teaches the wrong thing. So "
        "each check is an exercise of its own, with these questions:", "",
        "- Is the stub refused, as *not answered yet*?",
        "- Is the reference accepted, and every other right answer that we "
        "know?",
        "- Is each known wrong answer refused, with the message that names "
        "its own mistake and no other?",
        "- Is every *mutant* refused? A mutant is the reference with one "
        "small fault, made by a program: a `<` that becomes `<=`, a 1 that "
        "becomes a 2, a line that is left out.", "",
        f"Today there are {len(figures)} exercises with "
        f"{total['wrong']} wrong answers, {total['right']} other right ones "
        f"and {total['mutants']} mutants, of which {total['survivors']} "
        "survive. The tests ask all these questions but for the last, which "
        "they ask about a sample; `course prove` asks it about every mutant "
        "and writes this page.", "",
        "| exercise | wrong answers | other right ones | mutants | "
        "survivors |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {i} {f['title']} | {f['wrong']} | {f['right']} | "
              f"{f['mutants']} | {f['survivors']} |"
              for i, f in figures.items()]
    lines += ["", "## The survivors", "",
              "A mutant that computes the same as the reference on every "
              "input that the exercise allows is no mistake, and no check "
              "can refuse it. Each of them is listed with the reason.", ""]
    for ident, known in why.items():
        if known:
            lines += [f"### {ident} {figures[ident]['title']}", ""
                      ] if ident in figures else [f"### {ident}", ""]
            for change, reason in known.items():
                before, _, after = change.partition(" -> ")
                lines += [f"- `` {before} `` becomes `` {after} ``: "
                          f"{reason}"]
            lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def dump(data, path):
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n",
                    encoding="utf-8", newline="\n")


def run(args, fail):
    from course.export import find_root

    figures = {}
    if FIGURES.exists() and not args.all:
        figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    known = {e.id: e for e in exercises.load()}
    wanted = args.exercises or [i for i in stale(figures) if i in known]
    if any(i not in known for i in wanted):
        fail("the exercises are " + ", ".join(known))
    why, open_questions = explained(), 0
    for ident in wanted:
        exercise = known[ident]
        made, left = survivors(exercise)
        print(f"{ident}: {made} mutants, {len(left)} survive", flush=True)
        reasons = why.get(ident, {})
        odd = ([f"not explained: {m}" for m in left if m not in reasons]
               + [f"does not survive: {m}" for m in reasons if m not in left])
        print("".join(f"    {text}\n" for text in odd), end="", flush=True)
        open_questions += len(odd)
        if odd:
            figures.pop(ident, None)
        else:
            figures[ident] = count(exercise, made, left)
    figures = {i: figures[i] for i in known if i in figures}
    dump(figures, FIGURES)
    (find_root() / "book" / "checkers.md").write_text(
        page(figures, why), encoding="utf-8", newline="\n")
    print(f"book/checkers.md: {len(figures)} exercises, "
          f"{sum(f['mutants'] for f in figures.values())} mutants")
    if open_questions:
        print(f"{open_questions} to mend: make the judge stronger, or say "
              f"in {SURVIVORS.name} why the two are equal")
    return 1 if open_questions else 0
