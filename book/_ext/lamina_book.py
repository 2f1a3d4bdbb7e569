"""What the book needs beyond _config.yml.

- nothing on a page comes from another machine: sphinx-thebe's script,
  which only loads others, is left out;
- hints and solutions are written from the exercises' own definitions.
"""

import re
import sys
from pathlib import Path

from sphinx.util import logging

import live

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = 'book/solutions'
MARK = '<!-- every exercise goes here -->'

# Names that signatures in the glossary or in docstrings may show, for which
# there is no page. Sphinx compares tuples, which YAML cannot write.
NITPICK_IGNORE = []


def configure(app, config):
    config.nitpick_ignore = [*config.nitpick_ignore, *NITPICK_IGNORE]
    # Setting html_theme_options in _config.yml would replace all of
    # jupyter-book's own.
    config.html_theme_options.update(
        navbar_persistent=[],           # the sidebar has a search field
        show_toc_level=1,
        use_fullscreen_button=False,
        logo={'text': 'Lamina'},
    )


def drop_thebe(app, config):
    """Take sphinx-thebe, which jupyter-book always loads, off the pages."""
    for listeners in app.events.listeners.values():
        listeners[:] = [listener for listener in listeners if
                        listener.handler.__module__ != 'sphinx_thebe']
    app.registry.css_files[:] = [
        entry for entry in app.registry.css_files
        if entry[0] != 'sphinx-thebe.css']


# ---- pages ----------------------------------------------------------------

def warn_of_strays(app, env, added, changed, removed):
    """Warn of a page that _toc.yml does not list, which is never built."""
    root = Path(app.srcdir)
    for path in sorted([*root.glob('chapters/*.ipynb'),
                        *root.glob('book/**/*.md')]):
        docname = path.relative_to(root).with_suffix('').as_posix()
        if docname not in env.found_docs:
            logging.getLogger(__name__).warning(
                '%s is not listed in _toc.yml, so no page is made of it',
                path.relative_to(root).as_posix())
    return []


# ---- hints and solutions --------------------------------------------------

def exercises():
    """Every exercise of the course, in order."""
    src = str(ROOT / 'src')
    if src not in sys.path:
        sys.path.insert(0, src)
    from course.exercises import load
    return load()


def anchor(exercise_id):
    """'02.1' -> 'exercise-02-1', the name other pages link to."""
    return 'exercise-' + exercise_id.replace('.', '-')


def fence(text):
    """A fence that no line of `text` closes."""
    ticks = [len(run) for run in re.findall('`{3,}', text)]
    return '`' * max([3, *(n + 1 for n in ticks)])


def solutions_markdown(items):
    """The page's text: each hint and each solution folded by itself."""
    parts = []
    for item in items:
        parts += [f'({anchor(item.id)})=', f'## {item.id} {item.title}', '']
        # In the chapter it begins with its number, here that is above it.
        statement = re.sub(r'^\*\*Exercise [\d.]+\*\*\s*', '',
                           item.statement.strip())
        parts += [statement, '']
        for number, hint in enumerate(item.hints, 1):
            parts += [f'::::::{{dropdown}} Hint {number}',
                      hint.strip(), '::::::', '']
        code = item.solution.strip('\n')
        ticks = fence(code)
        parts += ['::::::{dropdown} Solution',
                  f'{ticks}python', code, ticks, '::::::', '']
    return '\n'.join(parts)


def write_solutions(app, docname, source):
    if docname == SOLUTIONS:
        source[0] = source[0].replace(MARK, solutions_markdown(exercises()))


def solutions_are_outdated(app, env, added, changed, removed):
    # They come from Python files, which Sphinx does not watch.
    return [SOLUTIONS] if SOLUTIONS in env.found_docs else []


def let_markdown_find_exercises(app, doctree):
    """Make [...](../book/solutions.md#exercise-02-1) a valid link.

    In such links MyST knows only a heading's own anchor.
    """
    env = app.env
    if env.docname != SOLUTIONS:
        return
    slugs = env.metadata[SOLUTIONS].setdefault('myst_slugs', {})
    for section in doctree.findall(lambda n: n.tagname == 'section'):
        for name in section['ids']:
            if name.startswith('exercise-'):
                slugs[name] = (section.line, name, section[0].astext())


def setup(app):
    app.connect('config-inited', configure)
    app.connect('config-inited', drop_thebe)
    app.connect('source-read', write_solutions)
    app.connect('env-get-outdated', solutions_are_outdated)
    app.connect('env-get-outdated', warn_of_strays)
    app.connect('doctree-read', let_markdown_find_exercises)
    live.setup(app)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
