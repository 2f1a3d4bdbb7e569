// The line below a chapter's title: what runs, what was passed, where you
// were.

import {button, element, plural} from './dom.js';
import * as progress from './progress.js';
import * as store from './store.js';

export class Top {
  constructor(chapter, cells, goTo) {
    this.chapter = chapter;
    this.total = cells.filter(cell => cell.exercise).length;
    this.details = document.querySelector('.live-mine');
    this.count = this.details.querySelector('summary');
    this.#fill();
    this.#resume(cells, goTo);
    progress.onChange(() => this.#draw());
    this.#draw();
  }

  /** A way back to the last cell that ran when the page was last open. */
  #resume(cells, goTo) {
    const ran = store.get(`ran:${this.chapter}`, []);
    const last = cells.findLast(
      cell => ran.includes(cell.id) && !cell.reason);
    if (!last || last.index < 2) return;
    this.details.after(button(`Go on at ${last.name}`, event => {
      event.target.remove();
      goTo(last);
    }, {title: 'You ran the cells of this page up to there'}));
  }

  #fill() {
    const file = element('input', {type: 'file', hidden: true,
      accept: '.json,application/json', 'aria-label': 'A file of progress'});
    file.addEventListener('change', () => this.#takeIn(file));
    this.note = element('p', {role: 'status'});
    this.details.append(
      element('p', {}, store.isLasting()
        ? 'Which exercises you passed, and what you change in a cell, stays '
          + 'in this browser. Export gives the progress as a file, of the '
          + 'kind of the project’s .lamina/progress.json.'
        : 'This browser keeps nothing for this page: what you pass and '
          + 'change is gone when you leave. Export gives the progress as a '
          + 'file.'),
      element('p', {},
        button('Export', () => this.#give()),
        button('Import', () => file.click()),
        button('Forget', event => this.#forget(event.target)), file),
      this.note);
  }

  #draw() {
    const passed = progress.passedIn(this.chapter.slice(0, 2));
    this.count.textContent =
      `Exercises: ${Math.min(passed, this.total)} of ${this.total} passed`;
  }

  #give() {
    const address = URL.createObjectURL(
      new Blob([progress.asText()], {type: 'application/json'}));
    element('a', {href: address, download: 'progress.json'}).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    this.note.textContent = 'Exported as progress.json.';
  }

  async #takeIn(file) {
    try {
      const count = progress.takeIn(await file.files[0].text());
      this.note.textContent = `Imported ${plural(count, 'exercise')}.`;
    } catch (error) {
      this.note.textContent = error.message;
    }
    file.value = '';
  }

  #forget(asker) {
    const close = words => {
      ask.remove();
      asker.hidden = false;
      asker.focus();
      this.note.textContent = words;
    };
    const yes = button('Forget all', () => {
      progress.forget();
      close('Forgotten. Text that you changed on this page is here until '
        + 'you leave it.');
    });
    const ask = element('span', {},
      'What you passed and what you changed, in all chapters? ', yes,
      button('Keep it', () => close('Kept.')));
    asker.hidden = true;
    asker.after(ask);
    yes.focus();
  }
}
