"""From an answer to a verdict.

The reader's function runs in a thread of its own, on copies of generated
arguments, against the reference. Whatever it does (wrong values, endless
loops, recursion, an exception) becomes a Verdict: text that a person can
read, and never a traceback from in here.
"""

import ast
import contextlib
import copy
import ctypes
import functools
import importlib.util
import inspect
import io
import linecache
import math
import os
import random
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from course import exercises, progress

CALL_LIMIT = 5.0  # seconds for one call
TOTAL_LIMIT = 20.0  # seconds for all of them
SHRINK_LIMIT = 4.0
GRACE = 1.5
EXAMPLES = 200
# Another seed generates other inputs, the same ones each time.
SEED = os.environ.get("LAMINA_SEED") or None
SHOWN = 240  # characters of a value
COLUMN = 26
MEMORY = 2 * 2 ** 30  # bytes that an answer may take, beside what is there
THREADS = sys.platform != "emscripten"  # a browser's Python has none


@dataclass(frozen=True, repr=False)
class Verdict:
    """What a check found. str() of it is what the reader sees."""

    id: str
    kind: str
    text: str
    misconception: str | None = None
    picture: Callable | None = field(default=None, compare=False)

    def _repr_html_(self):
        """In a notebook: the text, and the failing input drawn below it."""
        drawn = self.picture and self.picture()
        if drawn is None:
            return None
        from course import pictures

        return pictures.html(self.text, drawn)

    @property
    def passed(self):
        return self.kind == "passed"

    def __bool__(self):
        return self.passed

    def __str__(self):
        return self.text

    __repr__ = __str__


class TimeUp(BaseException):
    """Raised inside the reader's function when its time is over."""


@dataclass
class Outcome:
    """What one call did."""

    value: object = None
    error: BaseException | None = None
    changed: str | None = None  # the argument that it changed, before it
    printed: str = ""


# Comparing: types, then shapes, then values


def is_tensor(x):
    return all(hasattr(x, a) for a in ("shape", "dtype", "tolist"))


def kind_of(x):
    """A type's name with its article."""
    if x is None:
        return "None"
    cls = type(x)
    name = cls.__name__
    if cls.__module__ not in ("builtins", "__main__"):
        name = f"{cls.__module__.partition('.')[0]} {name}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def same_kind(expected, answer):
    if isinstance(expected, bool) or isinstance(answer, bool):
        return isinstance(expected, bool) and isinstance(answer, bool)
    if isinstance(expected, float):  # a whole number is a float's equal
        return isinstance(answer, float | int)
    if is_tensor(expected):
        return type(expected).__name__ == type(answer).__name__
    return isinstance(answer, type(expected))


def differs(expected, answer, exercise, path=""):
    """None if equal, else (kind, what is different)."""
    at = f" at {path}" if path else ""
    if not same_kind(expected, answer):
        return "type", (f"{kind_of(expected)} is due{at}, "
                        f"yours is {kind_of(answer)}")
    if is_tensor(expected):
        shapes = tuple(expected.shape), tuple(answer.shape)
        if shapes[0] != shapes[1]:
            return "shape", (f"the shape {shapes[0]} is due, yours is "
                             f"{shapes[1]}")
        if expected.dtype != answer.dtype:
            return "dtype", (f"the dtype {expected.dtype} is due, yours is "
                             f"{answer.dtype}")
        return differs(expected.tolist(), answer.tolist(), exercise)
    if isinstance(expected, list | tuple):
        if len(expected) != len(answer):
            return "shape", (f"{kind_of(expected)} of length {len(expected)} "
                             f"is due{at}, yours has length {len(answer)}")
        later = None
        for i, pair in enumerate(zip(expected, answer, strict=True)):
            found = differs(*pair, exercise, f"{path}[{i}]")
            if found and found[0] != "value":  # types and shapes go first
                return found
            later = later or found
        return later
    if isinstance(expected, dict):
        if expected.keys() != answer.keys():
            return "shape", f"the keys{at} differ"
        return next(filter(None, (
            differs(expected[k], answer[k], exercise, f"{path}[{k!r}]")
            for k in expected)), None)
    equal = (same_number(expected, answer, exercise)
             if isinstance(expected, float) else expected == answer)
    if equal:
        return None
    return "value", (f"they part{at}: {show(expected)} is due, yours is "
                     f"{show(answer)}" if path else "")


def same_number(expected, answer, exercise):
    if math.isnan(expected) or math.isnan(answer):
        return math.isnan(expected) and math.isnan(answer)
    if (exercise.signed_zero and expected == answer == 0
            and math.copysign(1, expected) != math.copysign(1, answer)):
        return False
    return expected == answer or (
        math.isfinite(expected) and math.isfinite(answer) and math.isclose(
            expected, answer, rel_tol=exercise.rtol, abs_tol=exercise.atol))


# Calling


class Output(io.TextIOBase):
    """Takes what the reader's function prints, and forgets most of it."""

    def __init__(self):
        self.text = ""

    def writable(self):
        return True

    def write(self, text):
        if len(self.text) < 500:
            self.text += text[:500]
        return len(text)


class Watch:
    """The clock of the thread in which the reader's function runs."""

    def __init__(self):
        self.lock = threading.Lock()
        self.begun = self.args = None
        self.limit = CALL_LIMIT
        self.output = Output()

    def over(self):
        return (self.begun is not None
                and time.monotonic() - self.begun > self.limit)

    def call(self, function, args):
        with self.lock:
            self.begun = time.monotonic()
        try:
            return function(*args)
        finally:
            with self.lock:
                self.begun = None


def freeze(x):
    """A copy in which a change can be seen."""
    if is_tensor(x):
        return ("tensor", tuple(x.shape), x.tolist())
    if isinstance(x, list | tuple):
        return type(x).__name__, [freeze(v) for v in x]
    if isinstance(x, dict):
        return "dict", [(k, freeze(v)) for k, v in x.items()]
    return repr(x)


def attempt(exercise, function, args, watch):
    """Call a function on fresh copies of the arguments."""
    given = exercise.prepare(*copy.deepcopy(args))
    before = [freeze(a) for a in given]
    outcome, watch.output.text = Outcome(), ""
    try:
        outcome.value = watch.call(function, given)
    except TimeUp:
        raise
    except NotImplementedError as error:
        outcome.error = error
    except (Exception, SystemExit, GeneratorExit) as error:
        outcome.error = error
    outcome.printed = watch.output.text
    for i, (a, b) in enumerate(zip(given, before, strict=True)):
        if freeze(a) != b:
            outcome.changed = parameter(exercise.reference, i)
            break
    return outcome


def parameter(function, index):
    return list(inspect.signature(function).parameters)[index]


def fault(exercise, args, expected, outcome):
    """None if the outcome is right, else (kind, explanation)."""
    if outcome.changed:
        return "mutation", (
            f"your function changes its argument `{outcome.changed}`: "
            "the caller still needs it as it was")
    if expected.error is not None:
        wanted = type(expected.error)
        if outcome.error is None:
            return "no error", ""
        if not isinstance(outcome.error, wanted):
            return "error", ""
        if exercise.judge_error:
            message = exercise.judge_error(args, outcome.error)
            return ("message", message) if message else None
        return None
    if outcome.error is not None:
        return "error", ""
    value = outcome.value
    if value is None and expected.value is not None:
        return "none", "your function returns None: is a `return` missing?"
    if inspect.isgenerator(value):
        return "generator", (
            "your function returns a generator, which has computed nothing "
            "yet: collect its values, as in list(...) or tuple(...)")
    if inspect.iscoroutine(value):
        value.close()
        return "generator", "your function is `async`: take that word out"
    if exercise.judge is None:
        return differs(expected.value, value, exercise)
    if not same_kind(expected.value, value):
        return differs(expected.value, value, exercise)
    message = exercise.judge(args, value, expected.value)
    return ("value", message) if message else None


def alike(exercise, args, expected, a, b):
    """Do two outcomes go wrong (or right) in one way?"""
    if (a.changed is None) != (b.changed is None):
        return False
    if a.error is not None or b.error is not None:
        return (type(a.error) is type(b.error) and (
            fault(exercise, args, expected, a) is None) == (
            fault(exercise, args, expected, b) is None))
    if exercise.judge is not None:
        faults = [fault(exercise, args, expected, x) for x in (a, b)]
        if None in faults:
            return faults[0] == faults[1]
        kinds = [(f[0], f[1].partition(":")[0]) for f in faults]
        return kinds[0] == kinds[1]
    try:
        return (differs(a.value, b.value, exercise) is None
                and type(a.value) is type(b.value))
    except Exception:
        return False


# Inputs


@functools.cache
def strategy(exercise):
    from hypothesis import strategies

    return exercise.inputs(strategies)


def settings(count):
    import hypothesis

    return hypothesis.settings(
        max_examples=count, derandomize=SEED is None,
        database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        report_multiple_bugs=False)


@contextlib.contextmanager
def nothing_local():
    """Keep Hypothesis from drawing constants that it finds in modules.

    It reads every loaded module that is not installed for them, and keeps
    them in a folder .hypothesis: the inputs would depend on what else the
    reader has imported.
    """
    from hypothesis.internal.conjecture import providers

    cls, name = providers.HypothesisProvider, "_maybe_draw_constant"
    real = cls.__dict__.get(name)
    if real is None:  # another release: the inputs differ, no more
        yield
        return
    setattr(cls, name, lambda self, *args, **kwargs: None)
    try:
        yield
    finally:
        setattr(cls, name, real)


@functools.cache
def samples(exercise):
    """The same inputs for everybody (of a class), the shortest first."""
    import hypothesis

    found = {}

    @settings(EXAMPLES)
    @hypothesis.given(strategy(exercise))
    def collect(args):
        found.setdefault(repr(args), args)

    if SEED is not None:
        collect = hypothesis.seed(SEED)(collect)
    with nothing_local():
        collect()
    for args in exercise.examples:
        found.setdefault(repr(args), args)
    return [found[key] for key in sorted(found, key=lambda k: (len(k), k))]


@contextlib.contextmanager
def seeded(seed):
    """Other inputs, for the duration of a block."""
    global SEED
    before, SEED = SEED, seed
    samples.cache_clear()
    try:
        yield
    finally:
        SEED = before
        samples.cache_clear()


def shrink(exercise, fails, start):
    """The smallest input that Hypothesis can find on which `fails`."""
    import hypothesis

    seen, end = {}, time.monotonic() + SHRINK_LIMIT

    def condition(args):
        key = repr(args)
        if key not in seen:
            seen[key] = time.monotonic() < end and fails(args)
        return seen[key]

    try:
        with nothing_local():
            found = hypothesis.find(
                strategy(exercise), condition, settings=settings(400),
                random=random.Random(SEED) if SEED else None)
    except (hypothesis.errors.HypothesisException,
            hypothesis.errors.NoSuchExample):
        return start
    return start if size(start) + 1 < size(found) else found


def size(x):
    """How many things a value holds, itself included."""
    if isinstance(x, str | bytes):
        return 1 + len(x)
    if isinstance(x, dict):
        return 1 + sum(size(k) + size(v) for k, v in x.items())
    return 1 + sum(map(size, x)) if isinstance(x, list | tuple) else 1


# Judging


@contextlib.contextmanager
def surroundings(output):
    """Where the reader's function runs: its output is caught, and a
    RuntimeWarning is an error. What overflows must not pass unseen.

    Entered by the caller's thread: a worker that is left behind would set
    the output and the warnings back at any time.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(output):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        yield


@contextlib.contextmanager
def little_memory():
    """More memory than any answer needs is refused, with a MemoryError:
    where the system can (Linux), before the whole machine stands still."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        old = resource.getrlimit(resource.RLIMIT_AS)
        most = pages * resource.getpagesize() + MEMORY
        if old[0] != resource.RLIM_INFINITY:
            most = min(most, old[0])
        resource.setrlimit(resource.RLIMIT_AS, (most, old[1]))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def strict_numpy():
    """NumPy warns of what overflows, whatever the reader has set."""
    numpy = sys.modules.get("numpy")
    return (numpy.errstate(divide="warn", over="warn", invalid="warn")
            if numpy else contextlib.nullcontext())


def examine(exercise, function):
    """The verdict on a function; it never raises, and always comes back."""
    refusal = unfit(exercise, function)
    if refusal is not None:
        return refusal
    if same_text(function, exercise.stub):
        return unanswered(exercise)
    watch, result = Watch(), []
    with contextlib.suppress(ImportError):
        samples(exercise)  # outside the clock, and the same for all

    def work():
        try:
            with strict_numpy():
                result.append(judged(exercise, function, watch))
        except TimeUp:
            result.append(endless(exercise, watch))
        except Exception as error:  # the checker's own fault: say so
            result.append(Verdict(exercise.id, "broken", (
                f"{exercise.id} could not be checked: "
                f"{type(error).__name__}: {error}")))

    with surroundings(watch.output), little_memory():
        if not THREADS:
            alone(work, watch)
            return result[0]
        size = threading.stack_size(16 * 1024 * 1024)
        try:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
        finally:
            threading.stack_size(size)
        return wait(exercise, thread, watch, result)


def wait(exercise, thread, watch, result):
    """Wait for the worker; stop it when one call takes too long."""
    late, last = None, 0.0
    try:
        while thread.is_alive():
            thread.join(0.02)
            now = time.monotonic()
            with watch.lock:
                if not watch.over():
                    late = None
                    continue
                late = late or now
                if now - last > 0.2:  # again, where the first was caught
                    stop(thread)
                    last = now
            if now - late > GRACE:
                return endless(exercise, watch, still=True)
    except KeyboardInterrupt:
        stop(thread)
        thread.join(GRACE)
        raise
    return result[0] if result else endless(exercise, watch)


def alone(work, watch):
    """Where no thread can watch (in a page): the clock is looked at in
    every round of the reader's loops, and at the start of every call.

    A loop inside a builtin, as in sum(itertools.count()), is not seen.
    """
    monitor, tool = sys.monitoring, 4
    events = monitor.events.JUMP, monitor.events.PY_START

    def look(code, *place):
        if os.path.isabs(code.co_filename):
            return monitor.DISABLE      # not a cell
        if watch.over():
            raise TimeUp

    monitor.use_tool_id(tool, "course check")
    for event in events:
        monitor.register_callback(tool, event, look)
    monitor.set_events(tool, sum(events))
    try:
        work()
    finally:
        monitor.free_tool_id(tool)


def stop(thread):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUp))


def endless(exercise, watch, still=False):
    text = (f"{exercise.id} is not right yet: {exercise.name} was stopped "
            f"after {watch.limit:g} seconds.\n\n"
            + row("the input", exercise.shown(watch.args)) + "\n\n"
            "Does the loop come nearer to its end in every round?")
    if still:
        text += ("\n\nIt could not be stopped and still runs: restart the "
                 "kernel.")
    return Verdict(exercise.id, "timeout", text)


def judged(exercise, function, watch):
    inputs = samples(exercise)
    end = time.monotonic() + TOTAL_LIMIT
    failing, outcomes, stubs = [], [], 0
    for count, args in enumerate(inputs, 1):
        watch.args = args
        expected = attempt(exercise, exercise.reference, args, watch)
        outcome = attempt(exercise, function, args, watch)
        outcomes.append((args, expected, outcome))
        stubs += is_stub(exercise, outcome)
        if count == stubs and count >= 20 or count == stubs == len(inputs):
            return unanswered(exercise)
        found = fault(exercise, args, expected, outcome)
        if found:
            failing.append((args, expected, outcome, found))
        if time.monotonic() > end:
            if failing:
                break
            return Verdict(exercise.id, "slow", (
                f"{exercise.id} is too slow: {count} inputs took more than "
                f"{TOTAL_LIMIT:g} seconds.\n\n"
                "How often does your code look at the same element?"))
    if not failing:
        return Verdict(exercise.id, "passed", (
            f"{exercise.id} is right: {exercise.name} agrees with the "
            f"reference on {len(inputs)} inputs."
            + "".join(f"\n\n{paragraph(words)}" for words in (
                exercise.after, further(exercise)) if words)))
    return wrong(exercise, function, watch, failing, outcomes)


def further(exercise):
    from course.exercises.further import TRY

    words = TRY.get(exercise.id)
    return words and f"One thing to try: {words}"


def is_stub(exercise, outcome):
    return (isinstance(outcome.error, NotImplementedError)
            and str(outcome.error) == f"exercise {exercise.id}")


def unanswered(exercise, what_next=None):
    what_next = what_next or (
        f"run that cell,\nthen run this one again. "
        f'hint("{exercise.id}") shows a first step.')
    return Verdict(exercise.id, "unanswered", (
        f"{exercise.id} is not answered yet: write {exercise.name} in its "
        f"cell, {what_next}"))


def wrong(exercise, function, watch, failing, outcomes):
    """The verdict on an answer that fails: smallest input, known idea."""
    first = failing[0]
    watch.limit = 1.0

    def both(args):
        watch.args = args
        expected = attempt(exercise, exercise.reference, args, watch)
        outcome = attempt(exercise, function, args, watch)
        return expected, outcome, fault(exercise, args, expected, outcome)

    smallest = first[0]
    message = None
    with contextlib.suppress(TimeUp):
        smallest = shrink(exercise, lambda a: bool(both(a)[2]), smallest)
        if smallest is not first[0]:
            result = both(smallest)
            if result[2]:  # the same answer as a moment ago
                first = (smallest, *result)
        message = misconception(exercise, failing, outcomes, watch)
    return report(exercise, function, *first, message)


def misconception(exercise, failing, outcomes, watch):
    """The message of the known wrong answer that behaves like this one."""
    inputs = {repr(f[0]) for f in failing}
    best, most = None, -1
    for known in exercise.wrong:
        agreed = 0
        for args, expected, outcome in outcomes:
            try:
                other = attempt(exercise, known.function, args, watch)
            except TimeUp:
                other = Outcome(error=TimeUp())
            if alike(exercise, args, expected, outcome, other):
                agreed += 1
            elif repr(args) in inputs:
                break
        else:
            if agreed > most:
                best, most = known.message, agreed
    return best


# Saying it


def show(value):
    try:
        text = repr(value)
    except Exception as error:
        text = f"({type(error).__name__} in its __repr__)"
    return cut(text)


def cut(text):
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return text


def row(name, text):
    text = cut(text).replace("\n", "\n" + " " * COLUMN)
    return f"  {name:<{COLUMN - 2}}{text}"


def raised(error):
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"raises {text}"


def told(outcome):
    if outcome.error is None:
        return show(outcome.value)
    return raised(outcome.error)


def due(expected):
    if expected.error is None:
        return show(expected.value)
    return f"raises {type(expected.error).__name__}"


def own_line(error, function):
    """(line, text) of the reader's code in which an exception arose."""
    function = getattr(function, "part", function)
    own = getattr(inspect.unwrap(function), "__code__", None)
    found = None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if own is not None and file == own.co_filename:
            found = trace.tb_lineno, linecache.getline(file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def report(exercise, function, args, expected, outcome, found, message):
    kind, detail = found
    name, error = exercise.name, outcome.error
    headline = {
        "type": "the answer has the wrong type",
        "shape": "the answer has the wrong shape",
        "dtype": "the answer has the wrong dtype",
        "mutation": "an argument was changed",
        "none": "nothing is returned",
        "generator": "nothing is computed",
        "no error": "an exception is due",
        "message": "the exception's message is not enough",
    }.get(kind, "there is a wrong answer")
    if kind == "error":
        if is_stub(exercise, outcome):
            headline = "the stub's last line is still reached"
        elif isinstance(error, RecursionError):
            kind = "recursion"
            headline = f"{name} calls itself too deeply"
            detail = ("Python allows about a thousand calls inside each "
                      "other: can a list hold what is still to be done?")
        elif isinstance(error, MemoryError):
            kind = "memory"
            headline = f"{name} asks for more memory than there is"
            detail = ("how long does the largest list or array become, "
                      "beside the input?")
        elif isinstance(error, SystemExit | GeneratorExit):
            kind = "exit"
            headline = f"{name} ends Python"
            detail = ("`exit()` leaves the whole program. Where the answer "
                      "is known, what leaves only the function")
        elif isinstance(error, NameError) and not isinstance(
                error, UnboundLocalError):
            headline = f"{name} uses a name that is not there"
            detail = (f"is {error.name} spelt as where it is defined? After "
                      "a restart of the kernel, or in another order, run "
                      "the cells above from the top")
        elif isinstance(error, ImportError):
            headline = f"{name} imports what is not there"
            detail = ("the exercise can be answered with what the chapter's "
                      "first cells import: which name do you need it for?")
        elif isinstance(error, RuntimeWarning):
            kind = "warning"
            headline = f"{name} warns"
            detail = ("a check takes a RuntimeWarning for an error: an "
                      "overflow or an invalid value must not pass unseen")
        else:
            headline = f"{name} raises {type(error).__name__}"
    lines = [f"{exercise.id} is not right yet: {headline}.", "",
             row("smallest failing input", exercise.shown(args)),
             row("expected", due(expected)), row("yours", told(outcome))]
    where = own_line(error, function) if error is not None else None
    if where:
        lines.append(row(f"in line {where[0]}", where[1].strip()))
    if outcome.printed:
        rows = outcome.printed.rstrip().split("\n")
        lines.append(row("it prints", "\n".join(
            rows[:10] + ["..."] * (len(rows) > 10))))
    if kind == "value" and detail.startswith("they part at "):
        long = is_tensor(expected.value) or size(expected.value) > 2
        place, _, values = detail.removeprefix("they part ").partition(": ")
        lines += [row(f"they part {place}", values)] * long
        detail = ""
    if detail:
        lines += ["", paragraph(f"{detail[0].upper()}{detail[1:]}"
                                + ("" if detail[-1] in ".?" else "."))]
    if message:
        lines += ["", paragraph(message)]
    return Verdict(exercise.id, kind, "\n".join(lines), message,
                   lambda: draw(exercise, args, expected, outcome))


def draw(exercise, args, expected, outcome):
    from course import pictures

    return pictures.picture(exercise, args, expected.value, outcome.value)


def paragraph(text):
    return textwrap.fill(text, 75, break_long_words=False,
                         break_on_hyphens=False)


# Finding the reader's function


def unfit(exercise, function):
    """A verdict on what is no answer at all, or None."""
    name, ident = exercise.name, exercise.id
    if not callable(function):
        return Verdict(ident, "type", (
            f"{ident} needs a function: {name} is {kind_of(function)}."))
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    home = getattr(inner, "__module__", None) or ""
    if home.partition(".")[0] in ("course", "lamina"):
        return Verdict(ident, "reference", (
            f"{ident} wants your own function: this {name} comes from "
            f"{home}. Write it in the exercise's cell, and run that cell."))
    if same_source(exercise, inner):
        return Verdict(ident, "reference", (
            f"{ident} wants your own function: this {name} is the one that "
            "the chapter defines. Run the exercise's cell."))
    try:
        signature = inspect.signature(function)
        wanted = list(inspect.signature(exercise.reference).parameters)
        signature.bind(*wanted)
    except TypeError:
        return Verdict(ident, "signature", (
            f"{ident} needs {name}({', '.join(wanted)}); yours is "
            f"{name}{signature}."))
    except ValueError:  # a builtin without a signature
        pass
    return None


def same_text(function, text):
    """Does that text define this very function?"""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        mine = ast.dump(ast.parse(source).body[0])
    except (OSError, TypeError, SyntaxError, IndexError):
        return False
    return mine in map(ast.dump, ast.parse(text).body)


def same_source(exercise, function):
    """Is this the function of that name that the chapter exports?"""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        mine = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return False
    # the reader's library may not hold the chapter yet
    folders = {library(), Path(__file__).resolve().parents[1] / "lamina"}
    for path in [p for f in folders if f for p in f.glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        if f"def {exercise.name}(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if (isinstance(node, ast.FunctionDef)
                    and node.name == exercise.name
                    and ast.dump(node) == ast.dump(mine)):
                return True
    return False


def library():
    """The folder of lamina, found without importing it."""
    loaded = sys.modules.get("lamina")
    places = list(getattr(loaded, "__path__", None) or ())
    if not places:
        with contextlib.suppress(ValueError, ImportError):
            spec = importlib.util.find_spec("lamina")
            places = list((spec and spec.submodule_search_locations) or ())
    return Path(places[0]) if places else None


def namespace():
    """The names of the notebook: IPython's, else those of __main__."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns if shell else vars(sys.modules["__main__"])


def check(ident):
    """Check your answer to an exercise, as in check("02.1").

    Takes your function from this notebook and compares it with the
    reference on many inputs. In a workbook its place in the library is
    checked with it. Returns a Verdict, which shows itself.
    """
    exercise = exercises.find(ident)
    names = namespace()
    if exercise.name in names:
        verdict = examine(exercise, names[exercise.name])
    else:
        verdict = Verdict(exercise.id, "missing", (
            f"{exercise.id} is not answered yet: there is no "
            f"{exercise.name} in this notebook. Write it in the exercise's "
            "cell, and run that cell. After a restart of the kernel, run "
            "the notebook again from its top."))
    progress.record(verdict)
    if not in_workbook():
        return verdict
    verdicts = with_part(exercise, names, verdict)
    if verdicts[-1] is not verdict:
        progress.record(verdicts[-1])
    worst = next((v for v in verdicts if not v.passed), verdicts[0])
    return replace(worst, text="\n\n".join(v.text for v in verdicts))


def in_workbook():
    from course import workbook

    return workbook.find() is not None


def with_part(exercise, names, verdict):
    """The verdict on an answer, and the one on its place in the library.

    A part that is right answers its exercise too.
    """
    from course.exercises.parts import PARTS

    if exercise.id not in PARTS or verdict.kind not in (
            "passed", "unanswered", "missing"):
        return [verdict]
    found = examine_part(exercise, names)
    answered = verdict.passed or found.kind not in ("passed", "taken")
    return [verdict, found] if answered else [found]


def examine_part(exercise, names):
    """The verdict on the function of the library that an exercise asks
    for in a workbook."""
    from course import workbook
    from course.exercises import parts

    name = parts.PARTS[exercise.id].function
    ident = f"{exercise.id} in the library"
    function = parts.answer(exercise, names)
    if function is None:
        return Verdict(ident, "missing", (
            f"{ident} is not there: no cell that was run defines {name}. "
            "Run the notebook from its top."))
    if workbook.is_reference(exercise, function.part):
        return Verdict(ident, "taken", (
            f"{ident} is the reference's: {name} reads as the course has "
            "it. There is nothing of yours to check."))
    verdict = examine(replace(
        exercise, id=ident, name=name, call=None, after="",
        describe=lambda args: parts.shown(exercise, args)), function)
    if verdict.kind == "unanswered":
        verdict = replace(verdict, text=(
            f"{ident} is still open: write {name} in the cell that is part "
            "of the library." + (f"\nIt may call your {exercise.name}."
                                 if workbook.is_free(exercise) else "")))
    return verdict


_hinted = {}


def hint(ident):
    """Print the next hint to an exercise; after the last, the first."""
    exercise = exercises.find(ident)
    step = _hinted.get(exercise.id, 0) % len(exercise.hints)
    _hinted[exercise.id] = step + 1
    print(hint_text(exercise, step, f'solution("{exercise.id}")'))


def hint_text(exercise, step, solution):
    count = len(exercise.hints)
    text = (f"Hint {step + 1} of {count} to {exercise.id}. "
            f"{exercise.hints[step]}")
    if step == count - 1:
        text += f" There is no further hint; {solution} shows an answer."
    return paragraph(text)


def solution(ident):
    """Print an answer to an exercise, in a workbook with the library's."""
    exercise = exercises.find(ident)
    print(exercise.solution + library_solution(exercise), end="")


def library_solution(exercise):
    """The library's function as a comment and its text; "" where it is
    not the reader's to write."""
    from course import workbook
    from course.exercises.parts import PARTS

    if exercise.id not in PARTS or not in_workbook():
        return ""
    return (f"\n\n# In the library: {PARTS[exercise.id].function}\n\n"
            f"{workbook.part_text(exercise)}\n")
