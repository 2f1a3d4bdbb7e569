"""The map of chapters: a table in the terminal, a picture in a notebook."""

from xml.sax.saxutils import escape

from course import figures, workbook

ROW, TOP = 30, 46
FILLS = {"yours": "#8fd0a5", "reference": "#cfe8ef", "open": figures.EMPTY,
         "missing": figures.EMPTY}


def table(start=None):
    """The map as text."""
    root, rows = workbook.overview(start)
    head = ["chapter", "", "exercises"] + (["code", "in lamina"] if root
                                           else [])
    lines = [head]
    for row in rows:
        line = [f"{row.number:02d}", row.title, f"{row.passed} of {row.asked}"]
        if root:
            line += [row.whose, "yes" if row.inside else "not yet"]
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = "\n".join("  ".join(
        word.ljust(width) for word, width in zip(line, widths)).rstrip()
        for line in lines) + "\n"
    if root:
        text += "\n" + ending(root)
    return text


def ending(root):
    from course.cli import library_line

    found = workbook.upcoming(root)
    todo = (f"`course next`: {found[0].id} {found[0].title}." if found
            else "All exercises are done.")
    return f"{library_line(root)}\n{todo}\n"


def picture(start=None):
    """The map as a Drawing: a layer for each chapter, the first below; a
    dot for each exercise, full where it is passed."""
    root, rows = workbook.overview(start)
    words = table(start).rstrip()
    title = "Your library" if root else "The chapters"
    width, height = figures.WIDTH, TOP + ROW * len(rows) + 40
    parts = [figures._open_svg(width, height, f"0 0 {width} {height}", title,
                               words),
             _text(16, 28, title, "bold")]
    for k, row in enumerate(reversed(rows)):
        y = TOP + k * ROW
        states = [p.state for p in row.places] or ["reference"]
        each = 250 / len(states)
        for i, state in enumerate(states if root else ["reference"]):
            step = each if root else 250
            dash = ('stroke-dasharray="4 3" ' if state in ("open", "missing")
                    else "")
            parts.append(
                f'<rect x="{16 + i * step:.1f}" y="{y}" width="{step:.1f}" '
                f'height="{ROW - 4}" fill="{FILLS[state]}" '
                f'stroke="#6b6b6b" {dash}/>')
        parts.append(_text(24, y + 18, f"{row.number:02d} {row.title}"))
        for i in range(row.asked):
            fill = figures.INK if i < row.passed else figures.CARD
            parts.append(f'<circle cx="{284 + 13 * i}" cy="{y + 13}" r="4.5" '
                         f'fill="{fill}" stroke="{figures.INK}"/>')
        said = f"{row.passed} of {row.asked}"
        if root:
            said += f"; code: {row.whose}"
        parts.append(_text(width - 16, y + 18, said, anchor="end"))
    key = ("green: your code, blue: the reference's, dashed: open; "
           if root else "") + "dots: exercises, full when passed"
    parts.append(_text(16, height - 14, key, colour=figures.SOFT))
    return figures.Drawing("\n".join([*parts, "</svg>"]), words)


def _text(x, y, words, weight="normal", anchor="start", colour=figures.INK):
    return (f'<text x="{x}" y="{y}" font-family="{figures.SANS}" '
            f'font-size="12" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{colour}">{escape(words)}</text>')


def status():
    """The map of chapters, drawn: what is done, and whose code is where."""
    return picture()
