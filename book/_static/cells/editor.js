// The editor of a cell: CodeMirror, in the place and the look of the text
// that it replaces. This file is loaded when somebody edits.

import {
  Decoration, EditorState, EditorView, MatchDecorator, ViewPlugin,
  bracketMatching, defaultKeymap, highlightTree, history, historyKeymap,
  indentOnInput, indentUnit, indentWithTab, keymap, python,
  syntaxHighlighting, syntaxTree, tagHighlighter, tags as t,
} from '../live/editor.js';
import {element} from './dom.js';

// The classes of Pygments, so that the page's colours are the editor's.
const colours = tagHighlighter([
  {tag: t.comment, class: 'c1'},
  {tag: [t.controlKeyword, t.keyword, t.definitionKeyword], class: 'k'},
  {tag: t.moduleKeyword, class: 'kn'},
  {tag: t.operatorKeyword, class: 'ow'},
  {tag: [t.bool, t.null], class: 'kc'},
  {tag: t.string, class: 's2'},
  {tag: t.special(t.string), class: 's2'},
  {tag: t.escape, class: 'se'},
  {tag: t.number, class: 'mi'},
  {tag: [t.operator, t.compareOperator, t.arithmeticOperator,
    t.bitwiseOperator, t.updateOperator], class: 'o'},
  {tag: t.definitionOperator, class: 'o'},
  {tag: t.function(t.definition(t.variableName)), class: 'nf'},
  {tag: t.definition(t.className), class: 'nc'},
  {tag: t.meta, class: 'nd'},
  {tag: t.variableName, class: 'n'},
  {tag: t.propertyName, class: 'n'},
]);

// Python's own names, which Pygments sets apart and CodeMirror does not:
// those that the page has, {'len': 'nb', 'self': 'bp', ...}.
const special = new Map(
  [...document.querySelectorAll('.cell_input :is(.nb, .bp, .ne, .fm)')]
    .map(span => [span.textContent, span.className]));

const ownNames = new MatchDecorator({
  regexp: /\b[A-Za-z_]\w*/g,
  decorate(add, from, to, [name], view) {
    const kind = special.get(name);
    const {name: node} = syntaxTree(view.state).resolveInner(from, 1);
    if (kind && node === 'VariableName')
      add(from, to, Decoration.mark({class: kind}));
  },
});
const markOwnNames = ViewPlugin.define(view => ({
  names: ownNames.createDeco(view),
  update(update) {
    // The tree may come after the text.
    this.names = update.docChanged || update.viewportChanged
      || syntaxTree(update.startState) !== syntaxTree(update.state)
      ? ownNames.createDeco(update.view) : this.names;
  },
}), {decorations: plugin => plugin.names});

/** The text as [length, class] pairs. */
function runsOf(state) {
  const runs = [];
  let at = 0;
  highlightTree(syntaxTree(state), colours, (from, to, kind) => {
    if (from > at) runs.push([from - at, '']);
    const name = kind === 'n' && special.get(state.sliceDoc(from, to));
    runs.push([to - from, name || kind]);
    at = to;
  });
  return runs;
}

let help;

/** One text for all editors, which screen readers read on entry. */
function helpId() {
  if (!help) {
    help = element('p', {id: 'live-editor-help', class: 'live-unseen'},
      'Shift-Enter runs the cell and goes on to the next one, Ctrl-Enter '
      + 'runs it and stays. Tab indents. Escape leaves the editor; after it '
      + 'the Tab key moves on.');
    document.querySelector('.live-top').append(help);
  }
  return help.id;
}

/** Put an editor in the place of the cell's text. */
export function open(cell) {
  const act = name => () => {
    cell.dispatchEvent(new Event(name));
    return true;
  };
  const leave = () => {
    cell.runButton.focus();
    return true;
  };
  const onUpdate = EditorView.updateListener.of(update => {
    if (update.docChanged)
      cell.changed(update.state.doc.toString(), runsOf(update.state));
    // A stop of the Tab key only while it is in use: so Escape leads out.
    if (update.focusChanged) {
      const {hasFocus, contentDOM, scrollDOM} = update.view;
      contentDOM.tabIndex = hasFocus ? 0 : -1;
      if (!hasFocus) scrollDOM.scrollLeft = 0;
    }
  });
  const view = new EditorView({
    state: EditorState.create({
      doc: cell.text,
      extensions: [
        keymap.of([
          {key: 'Shift-Enter', run: act('run-and-go-on')},
          {key: 'Ctrl-Enter', mac: 'Cmd-Enter', run: act('run')},
          {mac: 'Ctrl-Enter', run: act('run')},
          {key: 'Escape', run: leave},
          indentWithTab, ...defaultKeymap, ...historyKeymap,
        ]),
        history(), indentOnInput(), indentUnit.of('    '), bracketMatching(),
        python(), markOwnNames, syntaxHighlighting(colours), onUpdate,
        EditorView.contentAttributes.of({
          'aria-label': `Code of ${cell.about}`,
          'aria-describedby': helpId(),
          autocapitalize: 'off', autocorrect: 'off', spellcheck: 'false',
        }),
      ],
    }),
  });
  const host = element('div', {class: 'live-editor'}, view.dom);
  // "/" and the arrows are the page's shortcuts, but not in here.
  host.addEventListener('keydown', event => event.stopPropagation());
  cell.pre.hidden = true;
  cell.pre.after(host);
  return {
    focus(place) {
      view.focus();
      const at = place && view.posAtCoords(place);
      if (at != null) view.dispatch({selection: {anchor: at}});
    },
    setText(text) {
      view.dispatch(
        {changes: {from: 0, to: view.state.doc.length, insert: text}});
    },
  };
}
