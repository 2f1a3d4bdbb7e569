"""What was passed, in a file that a person can read: .lamina/progress.json

It lies beside chapters/. Where there is no such folder, or it cannot be
written, nothing is kept and nothing fails.
"""

import contextlib
import datetime
import json
import os
from pathlib import Path


def folder(start=None):
    start = Path(start or Path.cwd()).resolve()
    for place in (start, *start.parents):
        if (place / "chapters").is_dir():
            return place / ".lamina"
    return None


def load(start=None):
    place = folder(start)
    try:
        data = json.loads((place / "progress.json").read_text("utf-8"))
    except (OSError, TypeError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def store(data, start=None):
    place = folder(start)
    if place is None:
        return
    with contextlib.suppress(OSError):
        place.mkdir(exist_ok=True)
        ignore = place / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8", newline="\n")
        new = place / f"progress.{os.getpid()}"
        new.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n",
                       encoding="utf-8", newline="\n")
        os.replace(new, place / "progress.json")


def record(verdict, start=None):
    """Keep a verdict on a real answer: a stub leaves no trace."""
    if verdict.kind in ("unanswered", "missing", "broken", "taken"):
        return
    data = load(start)
    entry = data.setdefault(verdict.id, {})
    entry["tries"] = entry.get("tries", 0) + 1
    entry["last"] = verdict.kind
    if verdict.passed and "passed" not in entry:
        entry["passed"] = datetime.date.today().isoformat()
    store(data, start)


def next_hint(ident, count, start=None):
    """The step of the hint to show now; the next call gives the next, and
    after the last the first."""
    data = load(start)
    entry = data.setdefault(ident, {})
    step = entry.get("hints", 0) % count
    entry["hints"] = step + 1
    store(data, start)
    return step
