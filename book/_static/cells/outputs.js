// What a cell shows, in the markup of the book's stored outputs.

import {element} from './dom.js';

// Colours of terminals are for terminals.
const ANSI = /\x1b\[[0-9;]*[A-Za-z]/g;

export const joined = text => Array.isArray(text) ? text.join('') : text ?? '';

function block(kind, text) {
  const pre = element('pre', {}, text.replace(ANSI, ''));
  return element('div', {class: `output ${kind} notranslate`},
    element('div', {class: 'highlight'}, pre));
}

/** What comes after what was there: a stream goes on where it stopped. */
export function append(area, output) {
  const last = area.lastElementChild;
  if (output.output_type === 'stream'
      && last?.dataset.stream === output.name) {
    last.querySelector('pre').append(joined(output.text).replace(ANSI, ''));
    return;
  }
  area.append(node(output));
}

function node(output) {
  if (output.output_type === 'stream') {
    const drawn = block('stream highlight-myst-ansi', joined(output.text));
    drawn.dataset.stream = output.name;
    return drawn;
  }
  if (output.output_type === 'error') return error(output);
  return rich(output.data ?? {});
}

/** The last line, as in the book; below it, folded, where it happened. */
function error({ename, evalue, traceback}) {
  const pre = element('pre', {},
    element('span', {class: 'ne'}, ename), evalue ? `: ${evalue}` : '');
  const drawn = element(
    'div', {class: 'output traceback highlight-ipythontb notranslate'},
    element('div', {class: 'highlight'}, pre));
  const whole = (traceback ?? []).map(joined).join('\n')
    .replace(ANSI, '').trim();
  if (whole)
    drawn.append(element('details', {class: 'live-where'},
      element('summary', {}, 'Where it happened'),
      element('pre', {}, whole)));
  return drawn;
}

/** The richest of a result's forms. */
function rich(data) {
  const words = joined(data['text/plain']);
  if (data['text/html']) {
    const drawn = element('div', {class: 'output text_html'});
    drawn.innerHTML = joined(data['text/html']);
    // A script that came in as text is not run until it is made anew.
    for (const script of drawn.querySelectorAll('script')) {
      const copy = document.createElement('script');
      for (const {name, value} of script.attributes)
        copy.setAttribute(name, value);
      copy.textContent = script.textContent;
      script.replaceWith(copy);
    }
    return drawn;
  }
  if (data['image/svg+xml'])
    return element('img', {alt: words, src: 'data:image/svg+xml;charset=utf-8,'
      + encodeURIComponent(joined(data['image/svg+xml']))});
  for (const type of ['image/png', 'image/jpeg'])
    if (data[type])
      return element('img', {alt: words, src:
        `data:${type};base64,${joined(data[type]).replace(/\s/g, '')}`});
  return block('text_plain highlight-myst-ansi', words);
}
