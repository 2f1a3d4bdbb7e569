"""What a page of the book loads, and no more.

The theme sends 2 MB of styles and scripts, nearly all of it for things that
this book has not. A page here brings the rules that it can use in itself,
loads small scripts that wait until the text is there, and its figures as the
reader comes to them.

- formulas are written as MathML when the book is built: no script sets them;
- icons are drawn by lamina.css, not by a script of 1.5 MB;
- code is marked up only where it is coloured.
"""

import functools
import re
import shutil
from html import escape
from pathlib import Path

import tinycss2
from docutils import nodes
from latex2mathml import converter
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

log = logging.getLogger(__name__)

# Of others, in the order in which they apply.
THEIRS = ('basic.css', 'styles/pydata-sphinx-theme.css',
          'styles/sphinx-book-theme.css', 'copybutton.css',
          'sphinx-design.min.css')
# Nothing on the pages needs these.
UNUSED = re.compile('pygments|mystnb|togglebutton|toggleHint|toggleOpenOnPrint|design-tabs|'
                    'DOCUMENTATION_OPTIONS|documentation_options')
PLAIN = re.compile(r'<span class="(?:n|nn|nv|p|o|w|x)">'
                   r'([^<]*)</span>')
VIEWPORT = re.compile('<meta name="viewport"[^>]*>\n?')
# A long path goes on in the next line behind one of its slashes.
PATH = re.compile(r'(?<=<span class="pre">)[\w.-]+(?:/[\w.-]+){2,}(?=</span>)')
# A line could begin between a formula and the full stop behind it.
IN_TEXT = re.compile(r'([^\s<>]*)(<span class="math"><math>.*?</math></span>)'
                     r'([^\s<]*)', re.S)
EMPTY = re.compile('<span></span>')
FOLD = re.compile(r'<details class="admonition hide above-input">\s*'
                  r'<summary.*?</summary>(?P<code>.*?)</details>', re.S)
DEFINED = re.compile(r'^(?:<pre>)?<span class="k">(?:class|def)</span> '
                     r'<span class="[\w ]+">(\w+)</span>', re.M)
STYLE = re.compile(r'<style id="book-style" data-sheets="(?P<sheets>[^"]*)">'
                   '(?P<style>.*?)</style>', re.S)
# What lamina.css draws from nothing.
OURS = {'sd-dropdown', 'sd-card', 'sd-card-header', 'sd-summary-title',
        'sd-summary-content', 'sd-summary-text', 'above-input'}
# Names that the theme's scripts make.
KEEP = {'active', 'scrolled', 'hide', 'pst-sidebar-hidden', 'noprint'}


def configure(app, config):
    config.html_math_renderer = 'mathml'
    config.templates_path = [str(Path(__file__).parents[1] / '_templates'),
                             *config.templates_path]


# ---- formulas -------------------------------------------------------------

def mathml(tex, display='inline'):
    """MathML for a formula; what text calls a name stays one word."""
    tex = re.sub(r'\\(?:mathrm|operatorname)\{(\w+)\}', r'\\text{\1}', tex)
    written = converter.convert(tex, display=display)
    written = written.replace(' xmlns="http://www.w3.org/1998/Math/MathML"',
                              '').replace(' display="inline"', '')
    written = re.sub(r'&#x([0-9A-F]{5});',
                     lambda m: escape(chr(int(m[1], 16))), written)
    # bars stand close to what is between them
    written = re.sub(r'<mo( stretchy="false")?>\|</mo>',
                     r'<mo\1 lspace="0" rspace="0">|</mo>', written)
    # a function stands apart from what it is applied to
    return re.sub(r'(<mi>(?:sin|cos|tan|log|ln|exp|max|min)</mi>)'
                  r'(?!<mo|</)', r'\1<mspace width="0.167em"/>', written)


def checked(node, tex, display='inline'):
    """The same, with a warning of what the converter does not know."""
    written = mathml(tex, display)
    strange = re.findall(r'\\[A-Za-z]+', written)
    if strange:
        log.warning('%s in the formula %r has no MathML here',
                    ', '.join(strange), tex, location=node)
    return written


def visit_math(self, node):
    written = checked(node, node.astext())
    self.body.append(f'<span class="math">{written}</span>')
    raise nodes.SkipNode


def visit_math_block(self, node):
    self.body.append(self.starttag(node, 'div', CLASS='math'))
    parts = [part for part in node.astext().split('\n\n') if part.strip()]
    for part in parts:
        if '\\\\' in part and '\\begin' not in part:
            part = '\\begin{align}' + part + '\\end{align}'
        self.body.append(checked(node, part, 'block'))
    if node['number']:
        self.body.append('<span class="eqno">('
                         f'{get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, 'Link to this equation')
        self.body.append('</span>')
    self.body.append('</div>\n')
    raise nodes.SkipNode


# ---- a page ---------------------------------------------------------------

def slim(app, pagename, templatename, context, doctree):
    """Leave out of a page what it does not use."""
    if 'body' in context:
        body = EMPTY.sub('', context['body'])
        body = IN_TEXT.sub(hold, PLAIN.sub(r'\1', body))
        body = PATH.sub(lambda path: path[0].replace('/', '/<wbr>'), body)
        context['body'] = FOLD.sub(name_fold, body)
    # Sphinx says it, and docutils again.
    context['metatags'] = VIEWPORT.sub('', context.get('metatags') or '')
    sheets = [str(css.filename).partition('?')[0].removeprefix('_static/')
              for css in context['css_files']]
    context['sheets'] = ' '.join(
        name for name in dict.fromkeys(sheets)
        if name not in THEIRS and not UNUSED.search(name))
    context['css_files'] = []
    scripts = []
    for script in context['script_files']:
        if UNUSED.search(f"{script.filename} {script.attributes}"):
            continue
        if script.filename and 'type' not in script.attributes:
            script.attributes.setdefault('defer', 'defer')
        scripts.append(script)
    context['script_files'] = scripts


def hold(found):
    """A formula, and what stands beside it without a space, on one line."""
    before, formula, after = found.groups()
    if not before and not after:
        return formula
    return f'<span class="held">{before}{formula}{after}</span>'


def name_fold(fold):
    """A folded cell says what it defines, and in how many lines."""
    code = re.search('<pre>(.*?)</pre>', fold['code'], re.S)[1]
    names = list(dict.fromkeys(DEFINED.findall(code)))
    count = len([line for line in code.splitlines() if line.strip()])
    said = ' '.join(f'<code>{name}</code>' for name in names[:4])
    if len(names) > 4:
        said += f' and {len(names) - 4} more'
    return (f'<details class="hide above-input"><summary>{said or "Code"} '
            f'<span class="lines">{count} line{"s" * (count != 1)}</span>'
            f'</summary>{fold["code"]}</details>')


# ---- the style of a page ---------------------------------------------------

def write_styles(app, exception):
    """Give every page, in itself, the rules that it can use.

    So the text can be drawn as soon as it arrives, with no second request.
    """
    if exception or app.builder.format != 'html':
        return
    static = Path(app.outdir) / '_static'
    theirs = [rule for name in THEIRS for rule in parse(static / name)]
    ours = {}
    for path in sorted(Path(app.outdir).rglob('*.html')):
        page = path.read_text(encoding='utf-8')
        place = STYLE.search(page)
        if not place:
            continue
        up = '../' * len(path.relative_to(app.outdir).parent.parts)
        rules = used(theirs, *vocabulary(page, path))
        for name in place['sheets'].split():
            if name not in ours:
                ours[name] = parse(static / name)
            rules += used(ours[name])
        text = re.sub(r'url\("(?!data:)([^"]+)"\)',
                      rf'url("{up}_static/\1")',
                      without_unused_variables('\n'.join(rules), page))
        path.write_text(page[:place.start('style')] + text
                        + page[place.end('style'):], encoding='utf-8')


def drop_unused(app, exception):
    """What the theme copies and no page asks for: 8 MB of 12."""
    if exception or app.builder.format != 'html':
        return
    static = Path(app.outdir) / '_static'
    for pattern in ('scripts/fontawesome.js*', 'scripts/bootstrap.js*',
                    '**/*.map', 'vendor/fontawesome', 'locales', '*.html'):
        for path in list(static.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def vocabulary(page, path):
    """The tags of a page, and the names that it or its scripts may use."""
    tags = {tag.lower() for tag in re.findall(r'<([a-zA-Z][\w-]*)', page)}
    names = set(KEEP)
    for words in re.findall(r'\b(?:class|id)="([^"]*)"', page):
        names |= set(words.split())
    for source in re.findall(r'<script[^>]* src="([^"?]+)', page):
        script = (path.parent / source).resolve()
        if script.name != 'searchindex.js' and script.parent.name != 'scripts':
            names |= words_of(script)
    return tags, names


@functools.cache
def words_of(script):
    """The words in a script's strings, any of which could name a class."""
    text = script.read_text(encoding='utf-8') if script.is_file() else ''
    return {word for quoted in re.findall(r"""["'`]([^"'`\n]*)["'`]""", text)
            for word in re.findall(r'[A-Za-z][\w-]*', quoted)}


def parse(path):
    """A style sheet as rules: (what it asks for, its text).

    What a rule asks for is a list of (selector, tags, names); that of an
    at-rule is its head, and in place of its text it has the rules within.
    """
    return [read(rule) for rule in tinycss2.parse_stylesheet(
        path.read_text(encoding='utf-8'), skip_comments=True,
        skip_whitespace=True)]


def read(rule):
    if rule.type == 'qualified-rule':
        return [(compact(selector), *asked_for(selector))
                for selector in split(rule.prelude)], compact(rule.content)
    head = f'@{rule.at_keyword} {compact(rule.prelude)}'.strip()
    if rule.lower_at_keyword in ('media', 'supports', 'layer', 'container'):
        return head, [read(inner) for inner in tinycss2.parse_rule_list(
            rule.content, skip_comments=True, skip_whitespace=True)]
    return head, compact(rule.content or ())


def used(rules, tags=None, names=None):
    """The rules that can match, as text; all of them, if tags is None."""
    found = []
    for head, content in rules:
        if isinstance(content, list):
            # how theirs prints is said by lamina.css
            inner = [] if tags and head == '@media print' else used(
                content, tags, names)
            if inner:
                found.append(head + '{' + ''.join(inner) + '}')
        elif isinstance(head, str):
            if tags is None or head.startswith('@keyframes'):
                found.append(head + '{' + content + '}')
        else:
            selectors = [text for text, its_tags, its_names in head
                         if tags is None
                         or its_tags <= tags
                         and its_names <= names - OURS]
            if selectors and content:
                found.append(','.join(selectors) + '{' + content + '}')
    return found


def split(tokens):
    """The selectors of a rule, between its commas."""
    groups = [[]]
    for token in tokens:
        if token.type == 'literal' and token.value == ',':
            groups.append([])
        else:
            groups[-1].append(token)
    return groups


def asked_for(selector):
    """The tags, and the classes and ids, that a selector cannot do without."""
    tags, names, before = set(), set(), ''
    for token in selector:
        if token.type == 'hash':
            names.add(token.value)
        elif token.type == 'ident' and before == '.':
            names.add(token.value)
        elif token.type == 'ident' and before != ':':
            tags.add(token.value.lower())
        before = token.value if token.type == 'literal' else ''
    return tags, names


STRING = r'"[^"]*"|' + r"'[^']*'"


def compact(tokens):
    """Tokens as text, with one space where there was any."""
    text = tinycss2.serialize(
        [token for token in tokens if token.type != 'comment'])
    return re.sub(
        rf'/\*.*?\*/|({STRING})|\s*([{{}};,>])\s*|(?<=:)\s+|(\s+)',
        lambda m: m[1] or m[2] or (' ' if m[3] else ''), text,
        flags=re.S).strip()


DECLARED = re.compile(
    rf'(?<=[{{;])(--[\w-]+):(?:{STRING}|[^;{{}}"\'])*(?:;|(?=\}}))')


def without_unused_variables(text, page):
    """Custom properties and animations that nothing asks for are left out."""
    asked = r'var\(\s*(--[\w-]+)'
    by_page = set(re.findall(asked, page))
    while True:
        read_ = by_page | set(re.findall(asked, text))
        fewer = DECLARED.sub(lambda m: m[0] if m[1] in read_ else '', text)
        fewer = re.sub(r'(?m)^[^{}@\n]*\{\}\n?', '', fewer)
        if fewer == text:
            break
        text = fewer
    moving = ''.join(re.findall(r'animation[^;}]*', text))
    return '\n'.join(rule for rule in text.split('\n')
                     if not rule.startswith('@keyframes')
                     or rule[11:].partition('{')[0].strip() in moving)


def setup(app):
    app.add_html_math_renderer('mathml', (visit_math, None),
                               (visit_math_block, None))
    app.connect('config-inited', configure)
    app.connect('html-page-context', slim, priority=900)
    app.connect('build-finished', write_styles, priority=900)
    app.connect('build-finished', drop_unused, priority=901)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
