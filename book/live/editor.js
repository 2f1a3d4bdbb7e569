// The editor of a page's cells, bundled from CodeMirror: what book/_static/
// cells/editor.js imports when a reader first edits, and not before.

export { EditorState } from '@codemirror/state';
export {
  Decoration, EditorView, MatchDecorator, ViewPlugin, keymap,
} from '@codemirror/view';
export {
  defaultKeymap, history, historyKeymap, indentWithTab,
} from '@codemirror/commands';
export {
  bracketMatching, indentOnInput, indentUnit, syntaxHighlighting, syntaxTree,
} from '@codemirror/language';
export { highlightTree, tagHighlighter, tags } from '@lezer/highlight';
export { python } from '@codemirror/lang-python';
