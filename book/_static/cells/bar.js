// The bar at the bottom of the page: what Python is doing, and what it can.

import {button, element} from './dom.js';

const MB = 1e6;

export class Bar {
  #since = 0;
  #timer = null;
  #part = null;

  constructor(actions, python) {
    this.python = python;
    // There from the start, and empty: only then are changes announced.
    this.status = element('p', {class: 'live-unseen', role: 'status',
      'aria-live': 'polite'});
    document.querySelector('.live-top').append(this.status);
    this.words = element('span', {class: 'live-words'});
    this.amount = element('span', {class: 'live-amount'});
    this.line = element('div', {class: 'live-line', hidden: true});
    this.stop = button('Stop', actions.stop, {class: 'live-stop', hidden: true});
    this.node = element('div', {class: 'live-bar', role: 'region', hidden: true,
      'aria-label': 'Python in this page'},
    this.line,
    element('p', {class: 'live-now'}, this.words, ' ', this.amount),
    element('div', {class: 'live-actions'}, this.stop,
      button('Run all above', actions.runAbove, {class: 'is-wide'}),
      button('Run this chapter', actions.runAll, {class: 'is-wide'}),
      this.#menu(actions)));
    const article = document.querySelector('.bd-article');
    new ResizeObserver(() => this.#follow()).observe(article);
    window.addEventListener('resize', () => this.#follow());
    // What is fetched while cells run already is no news.
    python.addEventListener('progress', event =>
      python.state !== 'on' && this.#fetching(event.detail));
  }

  #menu(actions) {
    const item = (text, about, action, attributes) => element('li', {},
      button(text, () => {
        menu.open = false;
        action();
      }, attributes), about ? element('small', {}, about) : null);
    const menu = element('details', {class: 'live-menu'},
      element('summary', {}, 'More'),
      element('ul', {},
        item('Run all above', '', actions.runAbove, {class: 'is-narrow'}),
        item('Run this chapter', '', actions.runAll, {class: 'is-narrow'}),
        item('Get NumPy and matplotlib', 'About 15 MB, and from another '
          + 'machine: cdn.jsdelivr.net. Without them the python device '
          + 'serves.', actions.numpy),
        item('Start afresh', 'Python forgets; the book’s outputs come back; '
          + 'your text stays.', () => actions.restart(false)),
        item('Start afresh with the book’s text', 'The same, and what you '
          + 'changed in this chapter is gone.', () => actions.restart(true)),
        item('Hide this bar', 'Until the next Run.', () => this.hide())));
    const close = () => {
      if (!menu.open) return;
      menu.open = false;
      menu.querySelector('summary').focus();
    };
    menu.addEventListener('keydown', event => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      close();
    });
    document.addEventListener('click', event => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    return menu;
  }

  /** Show the bar; after `cell`, so that the Tab key gets from there to it. */
  show(cell) {
    const isFocused = this.node.contains(document.activeElement);
    if (cell && !isFocused && cell.node.nextSibling !== this.node)
      cell.node.after(this.node);
    else if (!this.node.isConnected)
      document.querySelector('.bd-article').append(this.node);
    this.node.hidden = false;
    document.documentElement.classList.add('has-live-bar');
  }

  /** As wide as the text, and where that is. */
  #follow() {
    const article = document.querySelector('.bd-article');
    const {left, width} = article.getBoundingClientRect();
    const style = getComputedStyle(article);
    const [before, after] = [style.paddingLeft, style.paddingRight]
      .map(parseFloat);
    this.node.style.setProperty('--left', `${left + before}px`);
    this.node.style.setProperty('--width', `${width - before - after}px`);
  }

  hide() {
    this.node.hidden = true;
    document.documentElement.classList.remove('has-live-bar');
  }

  say(text) {
    this.announce(text);
    this.words.textContent = text;
    this.#tick();
  }

  announce(text) {
    this.status.textContent = text;
  }

  /** While it works there is a clock and something to stop. */
  setBusy(busy) {
    if (busy === !this.stop.hidden) return;
    const hadFocus = document.activeElement === this.stop;
    this.stop.hidden = !busy;
    this.line.hidden = !busy;
    this.node.toggleAttribute('data-busy', busy);
    if (hadFocus) this.node.querySelector('summary').focus();
    clearInterval(this.#timer);
    this.#since = busy ? performance.now() : 0;
    this.#tick();
    if (!busy) return;
    this.#timer = setInterval(() => this.#tick(), 250);
  }

  #tick() {
    const seconds = this.#since
      && Math.floor((performance.now() - this.#since) / 1000);
    this.amount.textContent = !this.#since ? ''
      : [this.#part, seconds && `${seconds} s`].filter(Boolean).join(', ');
  }

  /** How much of something is done; 0 of 0: nobody knows. */
  setPart(done, total, unit = '') {
    const known = total > (unit ? 0 : 1) && done <= total;
    this.#part = known && `${done} of ${total}${unit}`;
    this.line.style.setProperty('--done', known ? done / total : 0);
    this.line.toggleAttribute('data-known', known);
    this.#tick();
  }

  #fetching({text, done, total}) {
    if (this.words.textContent !== text) this.say(text);
    const inMB = bytes => Number((bytes / MB).toFixed(1));
    this.setPart(inMB(done), inMB(total), ' MB');
  }
}
