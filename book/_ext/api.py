"""The reference pages, and the links between them and the chapters.

- `{lamina-api}` lists names, one entry a line, and says of each what the
  library itself knows: signature, forms, devices, derivative, example;
- `{lamina-summary}` is the table of a page's entries, `{lamina-names}` the
  list of all names, `{lamina-commands}` what `course` understands;
- the mark of a chapter's exported cell leads to the entry of what it defines;
- a chapter's first use of a word of the glossary leads there.
"""

import html
import inspect
import re
import sys
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.domains.python._annotations import _parse_arglist
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
PAGES = 'book/api/'
INDEX = 'book/api/index'
OBJECT_TYPES = {'operator': 'function'}     # of Sphinx, for kinds of ours
log = logging.getLogger(__name__)


def reference():
    """course.reference, of this folder."""
    src = str(ROOT / 'src')
    if src not in sys.path:
        sys.path.insert(0, src)
    from course import reference
    return reference


@cache
def all_examples():
    return reference().examples()


# ---- pieces of a page -----------------------------------------------------

class goto(nodes.reference):
    """A link to an anchor of a page, written down when pages are."""


def link(docname, anchor, text, **attributes):
    found = goto('', '', *([text] if isinstance(text, nodes.Node)
                           else [nodes.Text(text)]),
                 internal=True, **attributes)
    found['docname'], found['anchor'] = docname, anchor
    return found


def resolve_links(app, doctree, docname):
    for node in list(doctree.findall(goto)):
        if app.builder.format != 'html':
            node.replace_self(node.children)
            continue
        uri = app.builder.get_relative_uri(docname, node['docname'])
        plain = nodes.reference('', '', *node.children, **{
            key: value for key, value in node.attributes.items()
            if key not in ('docname', 'anchor', 'label')})
        plain['refuri'] = (uri if docname != node['docname'] else '') + (
            f'#{node["anchor"]}' if node['anchor'] else '')
        if 'label' in node:     # which docutils would not write
            plain = labelled(plain, node['label'])
        node.replace_self(plain)


def labelled(node, label):
    """A link with a name for those who hear the page."""
    attributes = {'href': node['refuri'], 'title': label,
                  'aria-label': f'{node.astext()}: {label}',
                  'class': ' '.join(node['classes'])}
    text = ''.join(f' {key}="{html.escape(value)}"'
                   for key, value in attributes.items())
    return nodes.raw('', f'<a{text}>{node.astext()}</a>', format='html')


def code(text):
    return nodes.literal(text, text)


def parsed(directive, text):
    """Markdown, as nodes."""
    box = nodes.Element()
    directive.state.nested_parse(
        StringList(text.splitlines(), directive.get_source_info()[0]),
        0, box)
    return box.children


# ---- signatures -----------------------------------------------------------

def schema_signature(operator):
    """An operator's parameters as Python writes them."""
    parts, named = [], False
    arguments = operator.schema.arguments
    for n, argument in enumerate(arguments):
        if argument.kwarg_only and not named:
            parts.append('*')
            named = True
        part = argument.name
        if (n == 1 and argument.type == 'int[]' and not argument.default
                and arguments[0].name == 'self'):
            part = '*' + part
            named = True
        if argument.default is not None:
            part += f'={argument.default}'
        parts.append(part)
    if any(not form.schema.name.endswith('_') for form in operator.forms) or (
            operator.schema.outputs):
        parts += [*(['*'] if not named else []), 'out=None']
    return ', '.join(parts)


def python_signature(thing, skip_self=False):
    """A function's parameters, or None if Python does not know them."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    parameters = list(found.parameters.values())[skip_self:]
    parameters = [p.replace(annotation=p.empty, default=(
        p.default if p.default is p.empty else Plain(p.default)))
        for p in parameters]
    return str(inspect.Signature(parameters))[1:-1]


class Plain:
    """A default value that is written without an address."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        if isinstance(self.value, type) or callable(self.value):
            return self.value.__name__
        text = repr(self.value)
        return '...' if ' at 0x' in text or '<' in text else text


def signature_of(name, thing, kind):
    """What stands in brackets behind a name; None for none."""
    if kind in ('data', 'property'):
        return None
    method = kind == 'method'
    return python_signature(thing, method)


def signature_node(env, full, arguments, prefix=''):
    node = addnodes.desc_signature('', '')
    owner, _, name = full.rpartition('.')
    if prefix:
        node += addnodes.desc_annotation('', '', nodes.Text(prefix + ' '))
    if owner:
        node += addnodes.desc_addname('', owner + '.')
    node += addnodes.desc_name('', name)
    if arguments is not None:
        try:
            node += _parse_arglist(arguments, env)
        except SyntaxError:
            node += addnodes.desc_parameterlist('', '', nodes.Text(arguments))
    return node


# ---- an entry -------------------------------------------------------------

class Entries(SphinxDirective):
    """A list of names: each line is an entry, of one name or of several
    that belong together."""

    has_content = True

    def run(self):
        found = []
        for line in self.content:
            if line.strip():
                found += self.entry(*reference().read_line(line))
        return found

    def entry(self, names, note):
        known = reference().entries()
        wrong = [name for name in names if name not in known]
        if wrong:
            log.warning('no public name %s', ', '.join(wrong),
                        location=self.get_location())
            return []
        entries = [known[name] for name in names]
        first = entries[0]
        objtype = OBJECT_TYPES.get(first.kind, first.kind)
        node = addnodes.desc(domain='py', objtype=objtype, desctype=objtype,
                             no_index=True, no_index_entry=True,
                             no_contents_entry=True,
                             classes=['py', objtype, 'api-entry'])
        index = addnodes.index(entries=[])
        for entry in entries:
            self.signatures(node, index, entry)
        content = addnodes.desc_content()
        content += parsed(self, linked(note, first))
        for entry in entries:
            content += self.description(entry)
        content += self.example(first)
        if first.kind == 'class' and first.name != 'Tensor':
            content += self.members(first, index)
        node += content
        node['api'], node['note'] = names, note
        return [index, node]

    def signatures(self, node, index, entry):
        signs = []
        if entry.kind == 'operator':
            for operator in entry.operators:
                text = schema_signature(operator)
                if text not in signs:
                    signs.append(text)
        else:
            signs.append(signature_of(entry.name, entry.object, entry.kind))
        prefix = 'class' if entry.kind == 'class' else ''
        for n, text in enumerate(signs):
            sign = signature_node(self.env, f'lamina.{entry.name}', text,
                                  prefix)
            if n == 0:
                for name in entry.names:
                    self.register(sign, index, name, entry.kind)
                sign.insert(0, self.source(entry))
            node += sign

    def register(self, sign, index, name, kind):
        """Give a name its anchor, and put it into search and index."""
        full = f'lamina.{name}'
        owner, _, word = full.rpartition('.')
        if kind in ('operator', 'function', 'method') and owner == (
                'lamina.Tensor'):
            objtype = 'method'
        else:
            objtype = OBJECT_TYPES.get(kind, kind)
        sign['ids'].append(full)
        self.env.get_domain('py').note_object(full, objtype, full,
                                              location=sign)
        call = '()' if objtype in ('function', 'method') else ''
        index['entries'].append(
            ('single', f'{word}{call} ({owner})', full, '', None))

    def source(self, entry):
        place = reference().place_of(entry)
        number = int(place.chapter[:2])
        return link(f'chapters/{place.chapter}', f'cell-{place.id}',
                    f'chapter {number}', classes=['api-source'],
                    label=f'{entry.name} is defined in chapter {number}')

    def description(self, entry):
        if entry.kind != 'operator':
            text = inspect.cleandoc(entry.doc)
            box = [self.names_beside(entry)] if len(entry.names) > 1 else []
            return parsed(self, linked(text, entry)) + box
        found, docs = [], {}
        for operator in entry.operators:
            docs.setdefault(inspect.cleandoc(operator.doc),
                            []).append(operator)
        for doc, operators in docs.items():
            found += parsed(self, linked(doc, entry))
            found.append(nodes.paragraph('', '', *(
                part for o in operators for part in
                (code(str(o.schema)), nodes.Text('\n'))),
                classes=['api-schema']))
        return [*found, self.facts(entry)]

    def names_beside(self, entry):
        others = [n for n in entry.names if n != entry.name]
        box = nodes.bullet_list(classes=['api-facts'])
        box += fact('Also', *spread(code(f'lamina.{n}') for n in others))
        return box

    def facts(self, entry):
        api, box = reference(), nodes.bullet_list(classes=['api-facts'])
        names = [n for n in entry.names if not n.startswith('Tensor.')]
        methods = [n for n in entry.names if n.startswith('Tensor.')]
        forms = [code(f'lamina.{entry.name}')]
        own = entry.name.rpartition('.')[2]
        if f'Tensor.{own}' in methods:
            forms.append(code(f'x.{own}'))
        if any(n in entry.names for n in (own + '_', f'Tensor.{own}_')):
            forms.append(code(f'x.{own}_'))
        if any(o.schema.outputs or any(
                not f.schema.name.endswith('_') for f in o.forms)
                for o in entry.operators):
            forms.append(code('out='))
        forms += [code(api.signs()[o.schema.full_name])
                  for o in entry.operators
                  if o.schema.full_name in api.signs()]
        box += fact('Forms', *spread(forms))
        rest = [n for n in names if n.rstrip('_') != own
                and n != entry.name and not n.endswith('_')]
        if rest:
            box += fact('Also', *spread(code(f'lamina.{n}') for n in rest))
        devices = dict.fromkeys(d for o in entry.operators
                                for d in api.devices_of(o))
        box += fact('Devices', nodes.Text(', '.join(devices) or (
            'all: it is written in other operators')))
        said = dict.fromkeys(map(api.derivative_of, entry.operators))
        if len(said) > 1:       # a form that only calls another one
            said.pop(api.WRITTEN, None)
        parts = []
        for text in said:
            parts += [nodes.Text('; ')] * bool(parts)
            for n, piece in enumerate(text.split('`')):
                if piece:
                    parts.append(code(piece) if n % 2 else nodes.Text(piece))
        box += fact('Derivative', *parts)
        return box

    def example(self, entry):
        text = all_examples().get(entry.name)
        if text is None:
            return []
        prose, _, session = text.partition('>>>')
        session = f'>>>{session}'
        block = nodes.literal_block(session, session, language='pycon',
                                    classes=['api-example'])
        return [*parsed(self, prose.strip()), block]

    def members(self, entry, index):
        """The public methods and properties that a class adds."""
        found = []
        for name, thing in members_of(entry.object):
            raw = thing.__func__ if isinstance(
                thing, (staticmethod, classmethod)) else thing
            kind = 'property' if isinstance(thing, property) else 'method'
            arguments = None if kind == 'property' else python_signature(
                raw, not isinstance(thing, staticmethod))
            node = addnodes.desc(
                domain='py', objtype=kind, desctype=kind, no_index=True,
                no_index_entry=True, no_contents_entry=True,
                classes=['py', kind, 'api-member'])
            sign = signature_node(self.env, name, arguments)
            self.register(sign, index, f'{entry.name}.{name}', kind)
            node += sign
            content = addnodes.desc_content()
            content += parsed(self, linked(inspect.getdoc(raw), entry))
            node += content
            found.append(node)
        return found


def fact(title, *parts):
    return nodes.list_item('', nodes.paragraph(
        '', '', nodes.strong(title, title), nodes.Text(' '), *parts))


def spread(parts):
    """The parts with commas between them."""
    found = []
    for part in parts:
        found += [*([nodes.Text(', ')] if found else []), part]
    return found


def members_of(cls):
    """(name, function or property) of what a class adds to its bases."""
    known = {id(e.object) for e in reference().entries().values()}
    found = {}
    for base in cls.__mro__:
        if base is not cls and id(base) in known or (
                not base.__module__.startswith('lamina')):
            break
        for name, thing in vars(base).items():
            raw = getattr(thing, '__func__', thing)
            if not name.startswith('_') and (
                    inspect.isfunction(raw) or isinstance(raw, property)):
                found.setdefault(name, thing)
    lamina = reference().library()
    if issubclass(cls, lamina.Module) and cls is not lamina.Module:
        found.pop('forward', None), found.pop('extra_repr', None)
    return [(name, thing) for name, thing in found.items()
            if (getattr(thing, '__func__', thing).__doc__ or '').strip()]


WORDS = re.compile(
    r'''(?P<code>`[^`]+`)'''                     # as it is
    r'''|(?P<quoted>(?<!\w)'[^'\s]+'|"[^"\n]+")'''
    r'''|(?P<call>\b[\w.]+\([\w, =*]*\)(?:\.\w+\(\))?)'''
    r'''|(?P<name>\b\w+(?:\.\w+)*_\w*\b)''')
FORMULA = re.compile(r'[-+*/@<>=!&|^]|\w\(')


def linked(text, entry):
    """A docstring as Markdown: its code is marked as such, and leads to
    the entry of what it names."""
    def mark(match):
        text = match[0].strip('`')
        name = re.fullmatch(r'(?:lamina\.)?([\w.]+)(\([\w, =*]*\))?', text)
        target = name and not match['quoted'] and named(name[1], entry)
        return f'{{py:obj}}`{text} <lamina.{target}>`' if target else (
            f'`{text}`')

    lines = text.split('\n')
    length = formula(lines[0], [
        a.name for o in entry.operators for a in o.schema.arguments])
    if length:
        lines[0] = f'`{lines[0][:length]}`{lines[0][length:]}'
    return '\n'.join(line if line.startswith('    ')
                     else WORDS.sub(mark, line) for line in lines)


def named(name, entry):
    """The entry that a docstring means by a name; None is none, or itself."""
    owners = [entry.name.rpartition('.')[0] + '.']
    if entry.name.startswith('nn.'):
        owners.append('nn.functional.')
    for owner in [*owners, '']:
        found = reference().by_name().get(owner.lstrip('.') + name)
        if found and found is not entry:
            return found.name
    return None


def formula(line, arguments):
    """How much of a line, from its start, is a formula: `self + other`."""
    for end in '.', ';', ',':
        part = line.rpartition(end)[0] if end == '.' else (
            line.partition(end)[0])
        words = re.findall(r'[A-Za-z_]\w*', part)
        if (words and FORMULA.search(part) and '`' not in part
                and all(w in arguments or w in FORMULA_WORDS for w in words)):
            return len(part)
    return 0


FORMULA_WORDS = {'exp', 'log', 'log2', 'sqrt', 'sin', 'cos', 'pi', 'n',
                 'beta', 'alpha', 'value'}


def first_line(entry):
    """The first sentence of what is said of an entry."""
    doc = (entry.operators[0].doc if entry.kind == 'operator'
           else entry.doc)
    doc = re.split(r'\n\s*\n', inspect.cleandoc(doc))[0]
    text = ' '.join(doc.split())
    sentence = re.match(r'.+?[.;:](?= [A-Z(]|$)', text)
    return sentence[0] if sentence else text


# ---- tables and lists -----------------------------------------------------

class summary(nodes.General, nodes.Element):
    """Where the table of the page's entries goes."""


class Summary(SphinxDirective):
    def run(self):
        return [summary()]


def write_summaries(app, doctree):
    """The table at the top: each group with its entries, a line each."""
    for place in list(doctree.findall(summary)):
        known = reference().entries()
        page = doctree.next_node(nodes.title).astext()
        body = nodes.tbody()
        for section in doctree.findall(nodes.section):
            inside = [n for n in section.children
                      if isinstance(n, addnodes.desc) and 'api' in n]
            if not inside:
                continue
            title = nodes.Text(section.next_node(nodes.title).astext())
            body += nodes.row('', nodes.entry(
                '', nodes.paragraph('', '', nodes.reference(
                    '', '', title, internal=True,
                    refuri='#' + section['ids'][0])), morecols=1),
                classes=['api-group'])
            for desc in inside:
                entries = [known[name] for name in desc['api']]
                names = spread(nodes.reference(
                    '', '', code(shortened(e.name, title, page)),
                    internal=True, refuri=f'#lamina.{e.name}')
                    for e in entries)
                body += nodes.row(
                    '', nodes.entry('', nodes.paragraph('', '', *names)),
                    nodes.entry('', nodes.paragraph(
                        '', '', *marked(entries[0], desc['note']))))
        group = nodes.tgroup('', nodes.colspec(colwidth=30),
                             nodes.colspec(colwidth=70), body, cols=2)
        place.replace_self(nodes.table('', group,
                                       classes=['api-summary']))


def shortened(name, *owners):
    """A name without the owner that a heading above it names."""
    for owner in owners:
        prefix = owner.removeprefix('lamina.') + '.'
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def marked(entry, note):
    """The first sentence of an entry, its code marked."""
    text = linked(note or first_line(entry), entry)
    text = re.sub(r'\{py:obj\}`(.+?) <.+?>`', r'`\1`', text)
    return [code(piece) if n % 2 else nodes.Text(piece)
            for n, piece in enumerate(text.split('`')) if piece]


class names_list(nodes.General, nodes.Element):
    """Where the list of all names goes."""


class Names(SphinxDirective):
    """All names, or those of a class that are entries of other pages."""

    optional_arguments = 1

    def run(self):
        return [names_list(owner=self.arguments[0] if self.arguments else '')]


def write_names(app, doctree, docname):
    """All names from A to Z, each a link."""
    for place in list(doctree.findall(names_list)):
        objects = app.env.get_domain('py').objects
        letters, owner = {}, place['owner']
        for name, entry in reference().by_name().items():
            if owner and (not name.startswith(owner + '.')
                          or entry.name.startswith(owner + '.')):
                continue
            word = name.rpartition('.')[2]
            letters.setdefault(word[0].upper(), []).append(
                (word.lower(), len(name), name))
        box = nodes.container(classes=['api-names'])
        for letter in sorted(letters):
            box += nodes.rubric('', letter)
            items = nodes.bullet_list()
            for *_, name in sorted(letters[letter]):
                found = objects.get(f'lamina.{name}')
                if found is None:       # the builder has warned
                    continue
                items += nodes.list_item('', nodes.paragraph('', '', link(
                    found.docname, found.node_id,
                    code(shortened(name, owner)) if owner else code(name))))
            box += items
        place.replace_self(box)


class Commands(SphinxDirective):
    """The commands of `course`, as its own help tells them."""

    def run(self):
        reference()
        from course import cli
        top = cli.parser()
        subparsers = next(a for a in top._actions if hasattr(a, 'choices')
                          and isinstance(a.choices, dict))
        short = {a.dest: a.help for a in subparsers._choices_actions}
        found = []
        for name, made in subparsers.choices.items():
            if name not in short:
                continue
            usage = ' '.join(made.format_usage().split()).removeprefix(
                'usage: ')
            section = nodes.section(ids=[f'course-{name}'],
                                    names=[f'course {name}'])
            section += nodes.title('', f'course {name}')
            section += nodes.literal_block(usage, usage, language='text')
            section += parsed(self, made.description)
            for action in made._actions:
                if action.dest == 'help':
                    continue
                flag = ', '.join(action.option_strings) or action.metavar
                item = nodes.definition_list_item(
                    '', nodes.term('', '', code(flag)),
                    nodes.definition('', *parsed(
                        self, (action.help or 'which one') % {
                            'default': action.default})))
                section += nodes.definition_list('', item)
            if made.epilog:
                section += parsed(self, '`' + made.epilog.partition(
                    ': ')[2] + '`')
            self.state.document.note_implicit_target(section)
            found.append(section)
        return found


def reference_is_outdated(app, env, added, changed, removed):
    # It comes from the library, which Sphinx does not watch.
    return [name for name in env.found_docs if name.startswith(PAGES)]


# ---- all names are there, once --------------------------------------------

def check_all_names(app, env):
    """Warn of a public name that no page of the reference has."""
    if INDEX not in env.found_docs:
        return
    objects = env.get_domain('py').objects
    missing = [name for name in reference().by_name()
               if f'lamina.{name}' not in objects]
    if missing:
        log.warning('no page of book/api lists %s', ' '.join(missing))


# ---- from a chapter's cell to the reference -------------------------------

@cache
def entries_of_cells():
    """{(chapter, cell's id): entries that it defines, in order}."""
    found = {}
    api = reference()
    for entry in api.entries().values():
        place = api.place_of(entry)
        found.setdefault((place.chapter, place.id), []).append(entry)
    return found


def link_cells(app, doctree, docname):
    """Write the mark of each exported cell: the module, as a link."""
    if not docname.startswith('chapters/') or app.builder.format != 'html':
        return
    chapter = docname.removeprefix('chapters/')
    module = chapter[3:]
    page, objects = PAGES + module, app.env.get_domain('py').objects
    for node in doctree.findall(nodes.container):
        if 'tag_export' not in node.get('classes', ()):
            continue
        id = node['ids'][0].removeprefix('cell-')   # given by live.py
        entries = [e for e in entries_of_cells().get((chapter, id), ())
                   if f'lamina.{e.name}' in objects]
        if entries:
            target = objects[f'lamina.{entries[0].name}']
            where = target.docname, target.node_id
            names = [e.name for e in entries]
            label = 'reference of ' + ', '.join(names[:4]) + (
                ' and more' if len(names) > 4 else '')
        else:
            where, label = (page, ''), f'reference of lamina.{module}'
        if where[0] not in app.env.found_docs:
            continue
        mark = link(*where, f'lamina/{module}.py', label=label,
                    classes=['exported-to'])
        node.insert(0, mark)


# ---- from a chapter's words to the glossary ------------------------------

GLOSSARY = 'book/glossary'
# Where no word is a link: there it is a name, or already one.
NO_TERMS = (nodes.reference, nodes.literal, nodes.math, nodes.title,
            nodes.raw, nodes.rubric, nodes.term, addnodes.pending_xref)


# Words whose forms are not made by the rules of word_forms.
FORMS = {
    'backward': '[Bb]ackward',              # and not: read it backwards
    'contiguous': '[Cc]ontiguous',
    'leaf': '[Ll]eaf|(?<=the )leaves|(?<=all )leaves',   # nor: it leaves
    'logits': '[Ll]ogits?',
}


def word_forms(term):
    """A pattern of a term's singular and plural, capitalised or not."""
    if term in FORMS:
        return FORMS[term]
    word = re.escape(term).replace(r'\ ', r'\s+')
    if term[0].islower():
        word = f'[{term[0]}{term[0].upper()}]{word[1:]}'
    if re.search('[^aeiou]y$', term):
        return f'{word}|{word[:-1]}ies'
    return word + ('(?:es)?' if term.endswith(('s', 'x', 'ch')) else 's?')


@cache
def term_pattern(terms):
    """One pattern for all terms, longer ones first, and not in a word."""
    parts = [f'(?P<t{n}>{word_forms(term)})' for n, term in sorted(
        enumerate(terms), key=lambda pair: -len(pair[1]))]
    return re.compile(rf"(?<![\w`.'-])(?:{'|'.join(parts)})(?![\w-])")


@cache
def glossary(env):
    """{term: (anchor, what it means)}, from the page's own tree."""
    found = {}
    for item in env.get_doctree(GLOSSARY).findall(
            nodes.definition_list_item):
        meaning = item[-1].astext().partition(' Built in chapter')[0]
        for term in item.findall(nodes.term):
            found[term.astext()] = term['ids'][0], ' '.join(meaning.split())
    return found


def has_terms(docname):
    return docname.startswith('chapters/') or docname in (
        'book/pytorch-map', 'book/contribute-pytorch', 'book/play',
        'book/where-lamina-differs')


def link_terms(app, doctree, docname):
    """Lead from the first use of each term on a page to the glossary."""
    if not has_terms(docname) or GLOSSARY not in app.env.found_docs or (
            app.builder.format != 'html'):
        return
    known = glossary(app.env)
    terms = tuple(known)
    pattern = term_pattern(terms)
    used = {known[term][0] for term, chapter in NOT_BEFORE.items()
            if term in known and docname < f'chapters/{chapter:02d}'}
    for paragraph in list(doctree.findall(nodes.paragraph)):
        if inside(paragraph, (nodes.container, *NO_TERMS), doctree):
            continue
        for text in list(paragraph.findall(nodes.Text)):
            if not inside(text, NO_TERMS, paragraph):
                found = list(cut_up(str(text), pattern, terms, known, used))
                if len(found) > 1:
                    text.parent.replace(text, found)


def inside(node, kinds, top):
    """Whether a node stands in one of those kinds, below `top`."""
    while node is not top:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def cut_up(text, pattern, terms, known, used):
    """A text in pieces: words, and links for terms that are new."""
    done = 0
    for match in pattern.finditer(text):
        term = terms[int(match.lastgroup[1:])]
        anchor, meaning = known[term]
        if anchor in used or not is_meant(term, text, match):
            continue
        used.add(anchor)
        yield nodes.Text(text[done:match.start()])
        yield link(GLOSSARY, anchor, match[0], classes=['term-link'],
                   reftitle=meaning)
        done = match.end()
    yield nodes.Text(text[done:])


# What stands before a word where it means something else.
OTHER_SENSES = {
    'loss': 'lays the',                 # of digits
    'recipe': 'the',                    # in general
    'tangent': 'from its',              # a line beside a curve
}


NOT_BEFORE = {'module': 9}              # until then, a file of code


def is_meant(term, text, match):
    other = OTHER_SENSES.get(term)
    return not (other and re.search(rf'\b(?:{other})\s+$',
                                    text[:match.start()]))


# ---- the general index, in the contents -----------------------------------

def list_index(app, doctree):
    """Put the general index at the end of the part with the reference."""
    for tree in doctree.findall(addnodes.toctree):
        if any(entry[1] == INDEX for entry in tree['entries']):
            tree['entries'].append(('Index', 'genindex'))


def name_fold_of_pages(app, pagename, templatename, context, doctree):
    """Give the fold of the pages below another a name to be heard."""
    plain = context.get('generate_toctree_html')
    if plain:
        context['generate_toctree_html'] = lambda *args, **kwargs: str(
            plain(*args, **kwargs)).replace(
                '<summary>', '<summary aria-label="Pages below this one">')


def load_on_pages(app, pagename, templatename, context, doctree):
    if pagename.startswith(PAGES):
        app.add_js_file('api.js', loading_method='defer')


def copy_without_prompts(app, config):
    """The copy button of an example gives what can be typed."""
    config.copybutton_prompt_text = r'>>> |\.\.\. ?'
    config.copybutton_prompt_is_regexp = True


def setup(app):
    app.connect('config-inited', copy_without_prompts)
    app.add_node(goto)
    app.add_node(summary)
    app.add_node(names_list)
    app.add_directive('lamina-api', Entries)
    app.add_directive('lamina-summary', Summary)
    app.add_directive('lamina-names', Names)
    app.add_directive('lamina-commands', Commands)
    app.add_css_file('api.css')
    app.connect('env-get-outdated', reference_is_outdated)
    app.connect('doctree-read', write_summaries)
    app.connect('doctree-read', list_index, priority=400)
    app.connect('doctree-resolved', write_names, priority=400)
    app.connect('doctree-resolved', link_cells, priority=400)
    app.connect('doctree-resolved', link_terms, priority=450)
    app.connect('doctree-resolved', resolve_links, priority=600)
    app.connect('env-check-consistency', check_all_names)
    app.connect('html-page-context', load_on_pages)
    app.connect('html-page-context', name_fold_of_pages, priority=900)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
