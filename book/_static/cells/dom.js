// The few helpers with which the page's parts are made.

/** element('p', {class: 'x', onclick: f}, 'text', child) */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child != null));
  return made;
}

export const button = (text, onclick, attributes = {}) =>
  element('button', {type: 'button', onclick, ...attributes}, text);

const SHAPES = {
  run: '<path d="M2.5 1.2v9.6L10.8 6z"/>',
  stop: '<path d="M2 2h8v8H2z"/>',
  passed: '<path d="M6 0a6 6 0 1 1 0 12A6 6 0 0 1 6 0ZM3 6.3l2.2 2.2L9.2 4.3'
    + ' 8.2 3.3l-3 3.1L4 5.2Z" fill-rule="evenodd"/>',
  wrong: '<path d="M6 0 12 6 6 12 0 6ZM5.3 2.7v4h1.4v-4Zm0 5v1.4h1.4V7.7Z"'
    + ' fill-rule="evenodd"/>',
  open: '<circle cx="6" cy="6" r="5" fill="none" stroke="currentColor"'
    + ' stroke-width="1.6" stroke-dasharray="2.6 1.6"/>',
};

/** A small drawing that needs no font. */
export function shape(name) {
  const span = element('span', {class: 'live-shape', 'aria-hidden': 'true'});
  span.innerHTML = `<svg viewBox="0 0 12 12">${SHAPES[name]}</svg>`;
  return span;
}

export const plural = (count, one, many = `${one}s`) =>
  `${count} ${count === 1 ? one : many}`;

/** Arrow keys move inside a toolbar, which is one stop of the Tab key. */
export function asToolbar(bar) {
  const buttons = () => [...bar.querySelectorAll('button')]
    .filter(b => !b.hidden && b.getClientRects().length);
  const choose = chosen => {
    for (const b of bar.querySelectorAll('button'))
      b.tabIndex = b === chosen ? 0 : -1;
  };
  bar.addEventListener('focusin', event => {
    if (event.target.tagName === 'BUTTON') choose(event.target);
  });
  bar.addEventListener('keydown', event => {
    const all = buttons();
    const at = all.indexOf(document.activeElement);
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0,
      End: all.length - 1}[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    all[(to + all.length) % all.length].focus();
  });
  choose(bar.querySelector('button'));
}
