// What an exercise's cell has beside Run: a check, hints, the solution.

import {asToolbar, button, element, plural, shape} from './dom.js';
import * as progress from './progress.js';

/** The hints and the solution of an exercise, from the page that has them. */
const pages = new Map();
async function help(exercise) {
  const address = new URL('../../book/solutions.html', import.meta.url);
  if (!pages.has(address.href))
    pages.set(address.href, fetch(address).then(async answer => {
      if (!answer.ok) throw new Error(`${answer.status}`);
      return new DOMParser().parseFromString(await answer.text(), 'text/html');
    }));
  let page;
  try {
    page = await pages.get(address.href);
  } catch (error) {
    pages.delete(address.href);
    throw error;
  }
  const section = page.getElementById(`exercise-${exercise.replace('.', '-')}`)
    .closest('section');
  const parts = [...section.querySelectorAll('details')].map(details =>
    details.querySelector('.sd-summary-content'));
  return {hints: parts.slice(0, -1), solution: parts.at(-1)};
}

const HEADS = {passed: ['passed', 'Passed'], open: ['open', 'Not answered yet'],
  wrong: ['wrong', 'Not right yet']};

/** A verdict's head, in words and in a shape. */
export function verdictHead({kind, passed}) {
  const [drawing, words] = HEADS[passed ? 'passed'
    : ['unanswered', 'missing'].includes(kind) ? 'open' : 'wrong'];
  return element('p', {class: `live-verdict is-${drawing}`},
    shape(drawing), words);
}

export class Exercise {
  #shown = 0;

  /** runner.check(cell) is called for Check. */
  constructor(cell, runner) {
    this.cell = cell;
    this.id = cell.exercise;
    this.panel = element('div', {class: 'live-help', hidden: true});
    cell.tools.after(this.panel);
    this.hintButton = button('Hint', () => this.#hint(),
      {'aria-label': `Hint to exercise ${this.id}`});
    this.solutionButton = button('Solution', () => this.#ask(),
      {'aria-label': `Solution of exercise ${this.id}`});
    this.mark = element('span', {class: 'live-passed'});
    const check = button('Check', () => runner.check(cell),
      {'aria-label': `Check exercise ${this.id}`, class: 'live-check'});
    cell.runButton.after(check, this.hintButton, this.solutionButton);
    cell.stateMark.after(this.mark);
    asToolbar(cell.tools);
    progress.onChange(() => this.#draw());
    this.#draw();
  }

  #draw() {
    const passed = progress.isPassed(this.id);
    this.mark.replaceChildren(
      ...passed ? [shape('passed'), 'Passed'] : []);
  }

  async #help() {
    try {
      return await help(this.id);
    } catch (error) {
      this.cell.say('The hints and solutions could not be fetched: '
        + error.message);
      return null;
    }
  }

  #show(node, before = null) {
    this.panel.hidden = false;
    this.panel.insertBefore(node, before);
    window.MathJax?.typesetPromise?.([node]);
  }

  async #hint() {
    const found = await this.#help();
    if (!found) return;
    const count = found.hints.length;
    if (this.#shown === count) {
      this.cell.say(`There are ${count} hints, and they are all here.`);
      return;
    }
    const content = document.importNode(found.hints[this.#shown], true);
    const words = content.textContent.trim();
    this.#shown += 1;
    const title = `Hint ${this.#shown} of ${count}`;
    this.#show(element('div', {class: 'live-hint'},
      element('p', {class: 'live-title'}, title), ...content.childNodes),
    this.panel.querySelector('.live-solution, .live-ask'));
    progress.countHint(this.id, this.#shown);
    this.cell.announce(`${title}: ${words}`);
    if (this.#shown === count) this.hintButton.classList.add('is-spent');
  }

  /** The solution is not shown to somebody who pressed by mistake. */
  async #ask() {
    const there = this.panel.querySelector('.live-solution');
    if (there) {
      there.hidden = !there.hidden;
      this.#nameSolution(there.hidden ? 'Solution' : 'Hide solution');
      return;
    }
    this.panel.querySelector('.live-ask')?.remove();
    const found = await this.#help();
    if (!found) return;
    const left = found.hints.length - this.#shown;
    const close = () => {
      ask.remove();
      this.panel.hidden = !this.panel.children.length;
      this.solutionButton.focus();
    };
    const yes = button('Show it', () => {
      close();
      this.#solution(found.solution);
    });
    const ask = element('div', {class: 'live-ask', role: 'group',
      'aria-label': `Solution of exercise ${this.id}`},
    element('p', {}, left
      ? `Show the solution? You have ${plural(left, 'hint')} left.`
      : 'Show the solution?'), yes, button('Not yet', close));
    this.#show(ask);
    yes.focus();
  }

  #solution(found) {
    const content = document.importNode(found, true);
    this.#show(element('div', {class: 'live-solution'},
      element('p', {class: 'live-title'}, 'Solution'),
      ...content.childNodes));
    this.#nameSolution('Hide solution');
    this.cell.announce(`The solution of ${this.id} is shown below the cell.`);
  }

  #nameSolution(word) {
    this.solutionButton.textContent = word;
    this.solutionButton.setAttribute(
      'aria-label', `${word} of exercise ${this.id}`);
  }
}
