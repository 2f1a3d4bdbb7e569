// What explorers of shapes share: writing them as Python does.

const tuple = list => '(' + list.join(', ') + (list.length === 1 ? ',' : '')
  + ')';
const index = list => '[' + list.join(', ') + ']';

// The words of an error, with what was given.
const fill = (text, values) =>
  text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

