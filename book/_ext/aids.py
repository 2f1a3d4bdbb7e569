"""Reading aids: what a chapter takes and needs, and where you are.

All numbers are counted in the notebooks when the book is built; what cannot
be counted there is in book/aids.toml.

- the top of each chapter: its place in the stack, its time, its needs;
- the directive `layers`, the stack as a picture that is the navigation, and
  {chapters}, {exercises}, {hours} in the text of the first page;
- figures that say in words what they show, as they say in themselves;
- the version and the date, at the foot of every page.
"""

import datetime
import functools
import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / 'book' / 'aids.toml'
WELCOME = 'book/welcome'
# A reader's pace, as round as the times that come of it.
WORDS, LINES = 200, 20      # a minute


@dataclass
class Chapter:
    name: str               # '02_strides'
    part: str               # 'Tensors'
    title: str              # 'Strides'
    words: int              # of text, outside folds
    lines: int              # of code, outside folds
    folded_words: int
    folded_lines: int
    exercises: list         # '02.1', ...
    rests_on: list          # names of chapters
    line: str
    ideas: list
    seconds: float

    @property
    def number(self):
        return int(self.name[:2])

    @property
    def minutes(self):
        return self.words / WORDS + self.lines / LINES

    @property
    def folded_minutes(self):
        return self.folded_words / WORDS + self.folded_lines / LINES


# ---- counted in a notebook ------------------------------------------------

def count(notebook, modules=()):
    """What a reader meets in a notebook, as fields of a Chapter.

    modules: {module: chapter} of what it may rest on.
    """
    found = dict(words=0, lines=0, folded_words=0, folded_lines=0,
                 exercises=[], rests_on=[])
    used = set()
    for cell in notebook['cells']:
        source = ''.join(cell['source'])
        tags = cell['metadata'].get('tags', [])
        if {'remove-cell', 'remove-input'} & set(tags):
            continue
        if cell['cell_type'] == 'markdown':
            shown, folded = without_folds(source)
            found['words'] += len(shown.split())
            found['folded_words'] += len(folded.split())
        elif cell['cell_type'] == 'code':
            where = 'folded_lines' if {'hide-input', 'hide-cell'} & set(
                tags) else 'lines'
            found[where] += sum(bool(line.strip())
                                for line in source.splitlines())
            found['exercises'] += re.findall(
                r'^check\("(\d\d\.\d+)"\)', source, re.M)
            used |= set(re.findall(
                r'^\s*(?:from|import) lamina\.(\w+)', source, re.M))
    found['rests_on'] = [modules[m] for m in modules if m in used]
    return found


def without_folds(markdown):
    """The text that is seen at once, and that of its dropdowns."""
    shown, folded, fence = [], [], None
    for line in markdown.splitlines():
        opening = re.match(r'\s*([:`]{3,})\{dropdown\}', line)
        if fence is None and opening:
            fence = opening[1]
        elif fence is not None and line.strip() == fence:
            fence = None
        else:
            (shown if fence is None else folded).append(line)
    return '\n'.join(shown), '\n'.join(folded)


@functools.cache
def chapters():
    """Every chapter that _toc.yml lists, in order."""
    data = tomllib.loads(DATA.read_text(encoding='utf-8'))
    toc = yaml.safe_load((ROOT / '_toc.yml').read_text(encoding='utf-8'))
    found, modules = [], {}
    for part in toc['parts']:
        for entry in part['chapters']:
            folder, _, name = entry['file'].partition('/')
            if folder != 'chapters':
                continue
            text = (ROOT / 'chapters' / f'{name}.ipynb').read_text('utf-8')
            found.append(Chapter(
                name=name, part=part['caption'], title=entry['title'],
                **count(json.loads(text), modules), **data[name]))
            modules[name[3:]] = name
    return found


# ---- said in words --------------------------------------------------------

def duration(minutes):
    """'55 min', '2 h 10 min': to five minutes, as a guess should be."""
    minutes = max(5, 5 * round(minutes / 5))
    hours, rest = divmod(minutes, 60)
    return ' '.join([f'{hours} h'] * bool(hours) + [f'{rest} min']
                    * bool(rest))


def running(seconds):
    """'about 10 seconds', 'about 2 minutes'."""
    if seconds < 60:
        return f'about {max(5, 5 * -(-seconds // 5)):.0f} seconds'
    minutes = -(-seconds // 60)
    return f'about {minutes:.0f} minute{"s" * (minutes > 1)}'


# ---- the stack, drawn -----------------------------------------------------

def plate(width, height, thick):
    """A layer as the logo draws it: a rhombus with an edge."""
    w, h = width, height
    return (f'<path class="side" d="M0 {h / 2:g} {w / 2:g} {h:g} {w:g} '
            f'{h / 2:g} v{thick:g} L{w / 2:g} {h + thick:g} 0 '
            f'{h / 2 + thick:g}Z"/>'
            f'<path class="top" d="M{w / 2:g} 0 {w:g} {h / 2:g} {w / 2:g} '
            f'{h:g} 0 {h / 2:g}Z"/>')


def layers_html(uri, current=None):
    """The stack as navigation: uri gives a chapter's address."""
    rows = []
    for chapter in reversed(chapters()):
        rows.append(
            f'<li class="{chapter.part.lower()}"><a href="'
            f'{escape(uri("chapters/" + chapter.name))}">'
            f'<svg viewBox="0 0 140 82" width="140" height="82" '
            f'aria-hidden="true">{plate(140, 70, 12)}</svg>'
            f'<span class="title"><span class="number">{chapter.number}'
            f'</span> {escape(chapter.title)}</span> '
            f'<code>{escape(chapter.line)}</code> '
            f'<span class="time">{duration(chapter.minutes)}</span>'
            '</a></li>')
    return ('<nav class="layers" aria-label="The layers, the last on top">'
            f'<ol reversed>{"".join(rows)}</ol></nav>')


def small_stack(chapter):
    """The stack in miniature, with one layer marked."""
    pitch, count_ = 9, len(chapters())
    parts = []
    for layer in chapters():
        y = (count_ - layer.number) * pitch
        here = ' here' * (layer is chapter)
        parts.append(f'<g class="{layer.part.lower()}{here}" transform='
                     f'"translate(4 {y})">{plate(88, 34, 5)}</g>')
    height = (count_ - 1) * pitch + 40
    words = f'Layer {chapter.number} of {count_}'
    return (f'<svg viewBox="0 0 96 {height}" width="96" height="{height}" '
            f'role="img" aria-label="{words}">{"".join(parts)}</svg>')


class Layers(Directive):
    """The stack of layers, each a link to its chapter."""

    def run(self):
        env = self.state.document.settings.env
        for chapter in chapters():
            env.note_dependency(str(ROOT / 'chapters' /
                                    f'{chapter.name}.ipynb'))
        env.note_dependency(str(DATA))

        def uri(docname):
            return env.app.builder.get_relative_uri(env.docname, docname)
        return [nodes.raw('', layers_html(uri), format='html')]


def fill_in(app, docname, source):
    """Numbers in the text of the first page."""
    if docname == WELCOME:
        minutes = sum(chapter.minutes for chapter in chapters())
        for name, value in {
                'chapters': spelt(len(chapters())).capitalize(),
                'exercises': sum(len(c.exercises) for c in chapters()),
                'hours': round(minutes / 60)}.items():
            source[0] = source[0].replace('{' + name + '}', str(value))


def spelt(number):
    words = ('none one two three four five six seven eight nine ten eleven '
             'twelve').split()
    return words[number] if number < len(words) else str(number)


# ---- the top of a chapter -------------------------------------------------

def aids_html(chapter, uri):
    """The box below a chapter's heading."""
    def links(found):
        return ', '.join(f'<a href="{address}">{escape(text)}</a>'
                         for address, text in found)

    layers = {layer.name: layer for layer in chapters()}
    whole = chapter.minutes + chapter.folded_minutes
    read = duration(chapter.minutes)
    if duration(whole) != read:
        read += f'; with every fold opened, {duration(whole)}'
    needs = links(
        (uri(f'chapters/{name}'), f'{layers[name].number} '
         f'{layers[name].title}') for name in chapter.rests_on)
    ideas = links((f'{uri("book/glossary")}#term-{idea.replace(" ", "-")}',
                   idea) for idea in chapter.ideas)
    hints = f'{uri("book/solutions")}#exercise-{chapter.number:02d}-1'
    rows = [
        ('You are here', f'<a href="{uri(WELCOME)}">layer {chapter.number} of'
                         f' {len(layers)}</a>, {chapter.part}'),
        ('To read', read),
        ('To run', running(chapter.seconds)),
        ('Exercises', f'{len(chapter.exercises)}, with '
                      f'<a href="{hints}">hints</a>'),
        ('Code it needs', needs or 'of no other layer'),
        ('Ideas it needs', ideas or 'none')]
    return (f'<aside class="aids" aria-label="About this chapter">'
            f'{small_stack(chapter)}<dl>' + ''.join(
                f'<div><dt>{name}</dt><dd>{said}</dd></div>'
                for name, said in rows) + '</dl></aside>')


def add_aids(app, pagename, templatename, context, doctree):
    """Put the aids below the heading of a chapter."""
    for chapter in chapters():
        if pagename == f'chapters/{chapter.name}':
            box = aids_html(chapter, lambda docname: escape(
                app.builder.get_relative_uri(pagename, docname)))
            context['body'] = context['body'].replace(
                '</h1>', '</h1>\n' + box, 1)


# ---- figures --------------------------------------------------------------

def describe_figures(app, doctree, docname):
    """A stored figure's own description is the alternative to it; and its
    size says whether a telephone is wide enough for it."""
    for image in doctree.findall(nodes.image):
        image['loading'] = 'lazy'
        path = Path(app.srcdir) / image['uri']
        if path.suffix != '.svg' or not path.is_file():
            continue
        svg = path.read_text(encoding='utf-8')
        words = re.search('<desc>(.*?)</desc>', svg, re.S)
        if words and image.get('alt', image['uri']) == image['uri']:
            image['alt'] = unescape(' '.join(words[1].split()))
        width = re.match(r'[^>]*? width="(\d+)', svg)
        if width and int(width[1]) > 650:
            image['classes'].append(
                'wide' if int(width[1]) < 900 else 'widest')


# ---- version and date -----------------------------------------------------

def version():
    text = (ROOT / 'pyproject.toml').read_text(encoding='utf-8')
    return tomllib.loads(text)['project']['version']


def date():
    """The day of the last commit; without git, of pyproject.toml."""
    stamp = os.environ.get('SOURCE_DATE_EPOCH')
    if not stamp:
        try:
            stamp = subprocess.run(
                ['git', 'log', '-1', '--format=%ct'], cwd=ROOT, check=True,
                capture_output=True, text=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            stamp = ''
    if not stamp:
        stamp = (ROOT / 'pyproject.toml').stat().st_mtime
    day = datetime.datetime.fromtimestamp(int(stamp), datetime.UTC)
    return day.date()


def sign(app, config):
    """The version and the date, in the footer of every page."""
    day = date()
    config.html_theme_options['extra_footer'] = (
        f'<p>Lamina {version()}, <time datetime="{day}">{day.day} {day:%B %Y}'
        '</time></p>\n' + config.html_theme_options.get('extra_footer', ''))


def first_page_is_outdated(app, env, added, changed, removed):
    return [WELCOME] if WELCOME in env.found_docs else []


def setup(app):
    app.add_directive('layers', Layers)
    app.connect('config-inited', sign, priority=600)
    app.connect('source-read', fill_in)
    app.connect('env-get-outdated', first_page_is_outdated)
    app.connect('html-page-context', add_aids, priority=700)
    app.connect('doctree-resolved', describe_figures)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
