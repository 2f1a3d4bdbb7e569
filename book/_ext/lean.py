"""What a page of the book loads, and no more.

The theme sends 2 MB of styles and scripts, nearly all of it for things that
this book has not. A page here loads its text, one style sheet of the rules
that some page can use, small scripts that wait until the text is there, and
the figures as the reader comes to them.

- formulas are written as MathML when the book is built: no script sets them;
- icons are drawn by lamina.css, not by a script of 1.5 MB;
- code is marked up only where it is coloured.
"""

import re
from html import escape
from pathlib import Path

import tinycss2
from docutils import nodes
from latex2mathml import converter
from sphinx.util.math import get_node_equation_number

BUNDLE = 'book.css'
# Of others, in the order in which they apply; one file is made of them.
THEIRS = ('basic.css', 'styles/pydata-sphinx-theme.css',
          'styles/sphinx-book-theme.css', 'copybutton.css',
          'sphinx-design.min.css')
# Nothing on the pages needs these.
UNUSED = re.compile('pygments|mystnb|togglebutton|toggleHint|toggleOpenOnPrint|design-tabs|'
                    'DOCUMENTATION_OPTIONS|documentation_options')
PLAIN = re.compile(r'<span class="(?:n|nn|nv|nf-call|p|o|w|x|fm-call)">'
                   r'([^<]*)</span>')
EMPTY = re.compile('<span></span>')
FOLD = re.compile(r'<details class="admonition hide above-input">\s*'
                  r'<summary.*?</summary>(?P<code>.*?)</details>', re.S)
DEFINED = re.compile(r'^(?:<pre>)?<span class="k">(?:class|def)</span> '
                     r'<span class="[\w ]+">(\w+)</span>', re.M)
# Styles that a script, not the page, gives a name that is not in the page.
KEEP = {'show', 'active', 'scrolled', 'hide'}


def configure(app, config):
    config.html_math_renderer = 'mathml'
    config.templates_path = [*config.templates_path,
                             str(Path(__file__).parents[1] / '_templates')]


# ---- formulas -------------------------------------------------------------

def mathml(tex, display='inline'):
    """MathML for a formula; what text calls a name stays one word."""
    tex = re.sub(r'\\(?:mathrm|operatorname)\{(\w+)\}', r'\\text{\1}', tex)
    written = converter.convert(tex, display=display)
    written = written.replace(' xmlns="http://www.w3.org/1998/Math/MathML"',
                              '').replace(' display="inline"', '')
    return re.sub(r'&#x([0-9A-F]{5});',
                  lambda m: escape(chr(int(m[1], 16))), written)


def visit_math(self, node):
    self.body.append(f'<span class="math">{mathml(node.astext())}</span>')
    raise nodes.SkipNode


def visit_math_block(self, node):
    self.body.append(self.starttag(node, 'div', CLASS='math'))
    parts = [part for part in node.astext().split('\n\n') if part.strip()]
    for part in parts:
        if '\\\\' in part and '\\begin' not in part:
            part = '\\begin{align}' + part + '\\end{align}'
        self.body.append(mathml(part, 'block'))
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
        context['body'] = FOLD.sub(name_fold, PLAIN.sub(r'\1', body))
    theirs = {name.rsplit('/', 1)[-1] for name in THEIRS}
    context['css_files'] = [
        css for css in context['css_files']
        if not any(Path(str(css.filename)).match(name) for name in theirs)
        and not UNUSED.search(str(css.filename))]
    scripts = []
    for script in context['script_files']:
        if UNUSED.search(f"{script.filename} {script.attributes}"):
            continue
        if script.filename and 'type' not in script.attributes:
            script.attributes.setdefault('defer', 'defer')
        scripts.append(script)
    context['script_files'] = scripts


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


# ---- one style sheet ------------------------------------------------------

def bundle(app, exception):
    """Write the rules that the built pages, or their scripts, can use."""
    if exception or app.builder.format != 'html':
        return
    static = Path(app.outdir) / '_static'
    tags, names = set(), set(KEEP)
    for path in sorted(Path(app.outdir).rglob('*.html')):
        if '_static' in path.relative_to(app.outdir).parts:
            continue
        page = path.read_text(encoding='utf-8')
        tags |= {tag.lower() for tag in re.findall(r'<([a-zA-Z][\w-]*)', page)}
        for words in re.findall(r'\b(?:class|id)="([^"]*)"', page):
            names |= set(words.split())
        loaded = re.findall(r'<script[^>]* src="([^"?]+)', page)
        for source in loaded:
            script = (path.parent / source).resolve()
            if script.suffix == '.js' and 'searchindex' not in script.name:
                names |= words_of(script)
    # The theme's rules for blocks are written for tags that may come later.
    tags |= {'table', 'blockquote', 'figure', 'figcaption', 'ol', 'dl', 'kbd'}
    rules = []
    for name in THEIRS:
        for path in sorted(static.glob(name)):
            sheet = tinycss2.parse_stylesheet(
                path.read_text(encoding='utf-8'), skip_comments=True,
                skip_whitespace=True)
            rules += used(sheet, tags, names)
    ours = ''.join(path.read_text(encoding='utf-8')
                   for path in static.glob('*.css') if path.name != BUNDLE)
    rules = [rule for rule in rules if not rule.startswith('@keyframes') or
             re.search(rf'animation[^;}}]*\b{rule.split()[1].split("{")[0]}\b',
                       ''.join(rules))]
    text = without_unused_variables('\n'.join(rules), ours)
    (static / BUNDLE).write_text(text + '\n', encoding='utf-8')


_words = {}


def words_of(script):
    """Everything in a script that could name a class."""
    if script not in _words:
        text = script.read_text(encoding='utf-8') if script.is_file() else ''
        _words[script] = {
            word for quoted in re.findall(r'''["'`]([^"'`\n]*)["'`]''', text)
            for word in re.findall(r'[A-Za-z][\w-]*', quoted)}
    return _words[script]


def used(rules, tags, names):
    """The rules whose selectors can match, as text without comments."""
    found = []
    for rule in rules:
        if rule.type == 'qualified-rule':
            groups = [group for group in split(rule.prelude)
                      if can_match(group, tags, names)]
            content = compact(rule.content)
            if groups and content:
                found.append(','.join(map(compact, groups))
                             + '{' + content + '}')
        elif rule.type == 'at-rule' and rule.lower_at_keyword in (
                'media', 'supports', 'layer') and rule.content:
            if compact(rule.prelude) == 'print':
                continue        # lamina.css says how it prints
            inner = used(tinycss2.parse_rule_list(
                rule.content, skip_comments=True, skip_whitespace=True),
                tags, names)
            if inner:
                found.append(f'@{rule.at_keyword} {compact(rule.prelude)}'
                             '{' + '\n'.join(inner) + '}')
        elif rule.type == 'at-rule' and rule.lower_at_keyword == 'keyframes':
            found.append(f'@keyframes {compact(rule.prelude)}'
                         '{' + compact(rule.content) + '}')
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


def can_match(selector, tags, names):
    """Whether every tag, class and id that a selector asks for exists."""
    before = ''
    for token in selector:
        if token.type == 'hash' and token.value not in names:
            return False
        if token.type == 'ident':
            if before == '.' and token.value not in names:
                return False
            if before != '.' and before != ':' and (
                    token.value.lower() not in tags):
                return False
        if token.type == 'function' and token.lower_name in ('is', 'where'):
            if not any(can_match(part, tags, names)
                       for part in split(token.arguments)):
                return False
        before = token.value if token.type == 'literal' else ''
    return True


STRING = r'"[^"]*"|' + r"'[^']*'"


def compact(tokens):
    """Tokens as text, with one space where there was any."""
    text = tinycss2.serialize(
        [token for token in tokens if token.type != 'comment'])
    return re.sub(
        rf'({STRING})|\s*([{{}};,>])\s*|(?<=:)\s+|(\s+)',
        lambda m: m[1] or m[2] or (' ' if m[3] else ''), text).strip()


def without_unused_variables(text, others):
    """Custom properties that nothing reads are left out."""
    declared = re.compile(
        rf'(?<=[{{;])(--[\w-]+):(?:{STRING}|[^;{{}}"\'])*(?:;|(?=\}}))')
    while True:
        read = set(re.findall(r'var\(\s*(--[\w-]+)', text + others))
        fewer = declared.sub(lambda m: m[0] if m[1] in read else '', text)
        fewer = re.sub(r'(?m)^[^{}@\n]*\{\}\n?', '', fewer)
        if fewer == text:
            return text
        text = fewer


def setup(app):
    app.add_html_math_renderer('mathml', (visit_math, None),
                               (visit_math_block, None))
    app.connect('config-inited', configure)
    app.connect('html-page-context', slim, priority=900)
    app.connect('build-finished', bundle, priority=900)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
