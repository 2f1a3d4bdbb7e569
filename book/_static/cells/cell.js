// A code cell of the page: its text, its buttons, what it shows.

import {append} from './outputs.js';
import {asToolbar, button, element, shape} from './dom.js';
import * as store from './store.js';

/**
 * state: 'new', 'waiting', 'running', 'done' or 'failed'. number: in which
 * place it ran, or null. What the reader does comes as events: 'run',
 * 'run-and-go-on', 'stop', 'numpy'; words for the status line as 'say', for
 * screen readers alone as 'announce'.
 */
export class Cell extends EventTarget {
  state = 'new';
  number = null;
  #ranText = null;
  #editor = null;
  #output = null;
  #figure = null;
  #outdated = null;
  #verdict = null;

  constructor(node, index, chapter) {
    super();
    this.node = node;
    this.id = node.dataset.cell;
    this.index = index;
    this.key = `edit:${chapter}/${this.id}`;
    const {reason, differs, numpy} = node.dataset;
    this.isForNumPy = numpy !== undefined;   // what they say is over with it
    this.needsNumPy = Boolean(reason) && this.isForNumPy;
    this.reason = this.needsNumPy ? '' : reason ?? '';  // why it never runs
    this.differs = differs;
    this.raises = node.classList.contains('tag_raises-exception');
    this.input = node.querySelector('.cell_input');
    this.pre = this.input.querySelector('pre');
    this.original = this.text = this.pre.textContent.replace(/\n$/, '');
    this.book = this.pre.innerHTML;
    this.stored = [...node.querySelectorAll('.cell_output')];
    this.#figure = node.querySelector('.cell_output figure');
    const only = this.text.match(/^check\("(\d\d\.\d+)"\)$/);
    this.checks = only?.[1];
    this.exercise = node.classList.contains('tag_exercise')
      ? this.text.match(/exercise (\d\d\.\d+)/)?.[1] : undefined;
    this.#build();
    this.#recall();
  }

  get name() {
    return `cell ${this.index}`;
  }

  get isEdited() {
    return this.text !== this.original;
  }

  /** Was its text changed since it ran? */
  get isStale() {
    return this.#ranText !== null && this.text !== this.#ranText;
  }

  say(text) {
    this.dispatchEvent(new CustomEvent('say', {detail: text}));
  }

  /** Only for those who do not see what has come. */
  announce(text) {
    this.dispatchEvent(new CustomEvent('announce', {detail: text}));
  }

  #build() {
    const line = this.text.split('\n').find(l => l.trim() && l[0] !== '#')
      ?? this.text;
    const about = `${this.name}, ${line.trim().slice(0, 60)}`;
    this.tools = element('div', {class: 'live-tools', role: 'toolbar',
      'aria-label': about[0].toUpperCase() + about.slice(1)});
    this.nameMark = element('span', {class: 'live-name'}, this.name);
    this.stateMark = element('span', {class: 'live-state'});
    this.tools.append(this.nameMark);
    if (!this.reason) {
      this.runButton = button('', () => this.#press());
      this.editButton = button('Edit', () => this.edit(),
        {'aria-label': `Edit ${this.name}`});
      this.tools.append(this.runButton, this.editButton, this.stateMark);
      asToolbar(this.tools);
      this.pre.addEventListener('click', event => this.#click(event));
    }
    this.about = about;
    this.foot = element('div', {class: 'live-foot', hidden: true});
    if (this.exercise) this.input.after(this.tools);
    else this.node.prepend(this.tools);
    this.node.append(this.foot);
    this.node.dataset.live = this.exercise ? 'exercise' : 'cell';
    this.#draw();
  }

  #press() {
    const busy = this.state === 'waiting' || this.state === 'running';
    this.dispatchEvent(new Event(busy ? 'stop' : 'run'));
  }

  // ---- running ------------------------------------------------------------

  become(state) {
    this.state = state;
    this.#draw();
  }

  begin() {
    this.#ranText = this.text;
    this.become('running');
  }

  /** What now stands in `area` is the verdict on the text that has run. */
  judged(area) {
    this.#verdict = {area, text: this.#ranText};
    this.#drawVerdict();
  }

  end(number, failed) {
    this.number = number;
    this.become(failed ? 'failed' : 'done');
  }

  /** Python is gone, and with it what the cell had made. */
  forgetRun() {
    this.number = this.#ranText = null;
    this.become('new');
  }

  /** Returns a function that shows one output after the other.
   *
   * What was there stays until the first of them, or until `finish`: so
   * nothing jumps while a cell is at work.
   */
  receiver() {
    const area = element('div',
      {class: 'cell_output docutils container live-output'});
    let shown = false;
    const show = () => {
      if (shown) return;
      shown = true;
      this.#output?.remove();
      this.#output = area;
      (this.stored.at(-1) ?? this.tools).after(area);
      if (!this.stored.length) this.#afterInput().after(area);
      this.showBook(false);
    };
    return {
      area,
      add: output => {
        show();
        append(area, output);
      },
      finish: () => {
        show();
        this.#placeCaption(false);
      },
      offerNumPy: () => area.append(element('p', {class: 'live-offer'},
        'NumPy and matplotlib are no part of this page. ',
        button('Get them from another machine',
          () => this.dispatchEvent(new Event('numpy'))))),
    };
  }

  #afterInput() {
    if (this.exercise) return this.tools;
    return this.input.closest('details') ?? this.input;
  }

  /** Show the outputs of the book, or those of the last run. */
  showBook(book) {
    for (const stored of this.stored) stored.hidden = !book;
    if (this.#output) this.#output.hidden = book;
    this.#placeCaption(book);
    this.#drawFoot();
  }

  /** A picture of the reader's has the caption of the book's: links to it
   * and its number go on. */
  #placeCaption(book) {
    const image = this.#figure?.querySelector('img');
    if (!image) return;
    const live = !book && this.#output?.querySelector('img, svg');
    image.hidden = live;
    (live ? this.#output : this.stored[0]).append(this.#figure);
  }

  forgetOutput() {
    this.#output?.remove();
    this.#output = null;
    this.showBook(true);
  }

  scrollTo() {
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.node.scrollIntoView(
      {block: 'center', behavior: still ? 'auto' : 'smooth'});
  }

  // ---- its text -----------------------------------------------------------

  #click(event) {
    // On a touch screen a tap is for scrolling; there is a button.
    const isMouse = matchMedia('(pointer: fine)').matches;
    if (isMouse && getSelection().isCollapsed)
      this.edit({x: event.clientX, y: event.clientY});
  }

  async edit(place) {
    const folded = this.input.closest('details');
    if (folded) folded.open = true;
    try {
      if (!this.#editor) {
        const {open} = await import('./editor.js');
        this.#editor ??= open(this);
      }
      this.#editor.focus(place);
    } catch (error) {
      this.say(`The editor could not be loaded: ${error.message}`);
    }
  }

  /** Called by the editor. runs: [length, class] pairs that colour the text. */
  changed(text, runs) {
    this.text = text;
    this.pre.textContent = `${text}\n`;      // the copy button reads it
    if (this.isEdited)
      store.set(this.key, {of: store.hash(this.original), text, runs});
    else
      store.remove(this.key);
    this.#outdated = null;
    this.#draw();
  }

  reset() {
    if (this.#editor) this.#editor.setText(this.original);
    this.changed(this.original, []);
    this.pre.innerHTML = this.book;
  }

  /** Bring back what was written here before, unless the book's text is
   * another since: then only say so. */
  #recall() {
    const kept = store.get(this.key);
    if (typeof kept?.text !== 'string' || this.reason) return;
    if (kept.of === store.hash(this.original)) this.#take(kept);
    else this.#outdated = kept;
    this.#draw();
  }

  #take({text, runs}) {
    this.text = text;
    this.pre.replaceChildren();
    let at = 0;
    for (const [length, kind] of Array.isArray(runs) ? runs : []) {
      const part = text.slice(at, at += length);
      this.pre.append(kind ? element('span', {class: kind}, part) : part);
    }
    this.pre.append(`${text.slice(at)}\n`);
  }

  // ---- what is drawn ------------------------------------------------------

  #draw() {
    this.node.dataset.state = this.state;
    this.node.toggleAttribute('data-edited', this.isEdited);
    const {number, state} = this;
    this.stateMark.textContent = {waiting: 'waits', running: 'runs'}[state]
      ?? (number === null ? '' : `[${number}]`);
    if (this.runButton) {
      const busy = state === 'waiting' || state === 'running';
      const word = busy ? 'Stop' : 'Run';
      this.runButton.replaceChildren(shape(word.toLowerCase()), word);
      this.runButton.className = busy ? 'live-run is-busy' : 'live-run';
      this.runButton.setAttribute('aria-label', `${word} ${this.about}`);
    }
    this.#drawVerdict();
    this.#drawFoot();
  }

  /** A verdict on another text than the present one says that it is. */
  #drawVerdict() {
    if (!this.#verdict) return;
    const {area, text} = this.#verdict;
    const isFormer = this.text !== text;
    if (area.classList.contains('is-former') === isFormer) return;
    area.classList.toggle('is-former', isFormer);
    if (isFormer)
      area.querySelector('.live-verdict').after(element('p',
        {class: 'live-former'}, 'You have changed the code since: check it '
        + 'again.'));
    else
      area.querySelector('.live-former').remove();
  }

  #drawFoot() {
    if (!this.foot) return;
    const parts = [];
    if (this.#outdated)
      parts.push('You changed an earlier form of this cell.',
        button('Show your text', () => this.#useOutdated()),
        button('Forget it', () => {
          store.remove(this.key);
          this.#outdated = null;
          this.#draw();
          this.runButton.focus();
        }));
    if (this.isStale) parts.push('Changed since it ran.');
    else if (this.isEdited) parts.push('Changed by you.');
    if (this.isEdited)
      parts.push(button('Book’s text', () => {
        this.reset();
        this.runButton.focus();
        this.announce(`${this.name} has the book’s text again.`);
      },
        {'aria-label': `Book’s text again in ${this.name}`}));
    if (this.#output && this.stored.length) {
      const book = !this.#output.hidden;
      parts.push(button(book ? 'Book’s output' : 'Your output', () => {
        this.showBook(book);
        this.foot.querySelector('.live-swap').focus();
      }, {class: 'live-swap'}));
    }
    const hasNumPy = document.documentElement.classList.contains('has-numpy');
    if (this.differs && this.#output && !this.#output.hidden
        && !(this.isForNumPy && hasNumPy))
      parts.push(`This cell ${this.differs}.`);
    this.foot.replaceChildren(...parts.map(part =>
      typeof part === 'string' ? element('span', {}, part) : part));
    this.foot.hidden = !parts.length;
  }

  #useOutdated() {
    const kept = this.#outdated;
    this.#take(kept);
    this.changed(kept.text, kept.runs);
    this.#take(kept);
    this.runButton.focus();
  }
}
