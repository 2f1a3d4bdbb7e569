// A chapter's page: finds its cells and puts the parts together.

import {Bar} from './bar.js';
import {Cell} from './cell.js';
import {Exercise} from './exercise.js';
import {Python} from './python.js';
import {Runner} from './runner.js';
import {Top} from './top.js';
import * as progress from './progress.js';
import * as store from './store.js';

const chapter = document.querySelector('[data-chapter]')?.dataset.chapter;
const nodes = [...document.querySelectorAll('div.cell[data-cell]')];
if (chapter && nodes.length) live();

function live() {
  const cells = nodes.map((node, i) => new Cell(node, i + 1, chapter));
  const runnable = cells.filter(cell => !cell.reason);
  const python = new Python(chapter);
  const bar = new Bar({
    stop: () => runner.isBusy ? runner.stop() : python.stop(),
    runAbove: () => runner.runAbove(here()),
    runAll: () => runner.runAll(),
    restart: withText => {
      runner.restart(withText);
      bar.say('Started afresh: no cell has run.');
    },
    numpy: getNumPy,
  }, python);
  const runner = new Runner(cells, python, text => bar.say(text));
  const top = new Top(chapter, cells, cell => {
    bar.show(cell);
    runner.run(cell);
    cell.runButton.focus();
    cell.scrollTo();
  });
  let current = null;
  runnable[0]?.node.classList.add('is-first');

  for (const cell of cells) {
    const run = () => {
      current = cell;
      bar.show(cell);
      runner.run(cell);
    };
    cell.addEventListener('run', run);
    cell.addEventListener('run-and-go-on', () => {
      run();
      const next = runnable[runnable.indexOf(cell) + 1] ?? cell;
      next.runButton.focus();
    });
    cell.addEventListener('stop', () => runner.stop());
    cell.addEventListener('numpy', getNumPy);
    cell.addEventListener('say', event => {
      bar.show(cell);
      bar.say(event.detail);
    });
    cell.addEventListener('announce', event => bar.announce(event.detail));
    cell.node.addEventListener('focusin', () => current = cell);
    if (cell.exercise && !cell.reason) new Exercise(cell, {
      check: () => {
        bar.show(cell);
        runner.check(cell);
      },
    });
  }

  python.addEventListener('verdict', event => progress.record(event.detail));
  runner.addEventListener('change', () => {
    bar.setBusy(runner.isBusy);
    bar.setPart(runner.done, runner.total);
    const ran = cells.filter(c => c.number !== null).map(c => c.id);
    if (ran.length) store.set(`ran:${chapter}`, ran);
  });

  /** The cell that the reader is at: the one with the focus, else the first
   * one in view. */
  function here() {
    if (current) return current;
    return runnable.find(cell =>
      cell.node.getBoundingClientRect().bottom > 80) ?? runnable.at(-1);
  }

  async function getNumPy() {
    bar.say('Asking for NumPy and matplotlib');
    bar.setBusy(true);
    try {
      await python.numpy();
      bar.say('NumPy and matplotlib are here. The chapter begins again: '
        + 'press Run.');
      document.documentElement.classList.add('has-numpy');
    } catch (error) {
      bar.say(error.message);
    } finally {
      bar.setPart(0, 0);
      bar.setBusy(runner.isBusy);
    }
  }
}
