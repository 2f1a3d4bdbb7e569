// The editor of a page's cells, bundled from CodeMirror: what book/_static/
// live.js imports when a reader first presses a button, and not before.

export { EditorState, Compartment, Prec } from '@codemirror/state';
export {
  EditorView, keymap, lineNumbers, drawSelection, highlightActiveLine,
} from '@codemirror/view';
export {
  defaultKeymap, history, historyKeymap, indentWithTab,
} from '@codemirror/commands';
export {
  bracketMatching, indentOnInput, indentUnit, syntaxHighlighting,
  HighlightStyle,
} from '@codemirror/language';
export { tags } from '@lezer/highlight';
export { python } from '@codemirror/lang-python';
