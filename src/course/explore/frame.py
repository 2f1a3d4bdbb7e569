"""The frame of an explorer: one piece of HTML with its style and script.

It works in a notebook's output and in a page without a kernel. Where
scripts do not run, the body is what there is. Several on one page, and one
that is run again, do not disturb each other: nothing has an id, and a
script takes only what is its own and has not been taken.
"""

import hashlib
import json
import pathlib
import re

HERE = pathlib.Path(__file__).parent


class Explorer:
    """The finished page; `data` is what it works with, `text` says it."""

    def __init__(self, html, data, text):
        self.html, self.data, self.text = html, data, text

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        return {"text/html": self.html, "text/plain": repr(self)}

    def __repr__(self):
        return self.text


def frame(kind, label, data, body, *more):
    """The page of one explorer.

    kind names its files, KIND.css and KIND.js; the script defines
    `start(root, data)`, with what is in the scripts named by `more`. label
    is read out when the focus comes in.
    """
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    packed = packed.replace("<", "\\u003c")
    style = shrink(read("frame.css") + read(f"{kind}.css"))
    script = "".join(map(read, ("frame.js", *more, f"{kind}.js")))
    ident = hashlib.sha256((body + packed).encode()).hexdigest()[:10]
    return f"""<div class="lamina-play lamina-{kind}" data-play="{ident}" \
data-lm-suppress-shortcuts="true" role="group" tabindex="0" \
aria-label="{label}">
<style>{style}</style>
{body}
<script type="application/json">{packed}</script>
</div>
<script>
(() => {{
{script}
for (const root of document.querySelectorAll(
    '[data-play="{ident}"]:not([data-ready])')) {{
  root.setAttribute('data-ready', '');
  start(root, JSON.parse(
    root.querySelector('script[type="application/json"]').textContent));
}}
}})();
</script>"""


def read(name):
    return (HERE / name).read_text(encoding="utf-8")


def shrink(style):
    """A style without comments and line ends."""
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.S)
    return " ".join(style.split())
