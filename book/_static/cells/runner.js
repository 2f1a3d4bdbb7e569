// Which cell runs when: one queue, from the top of the page down.

import {plural} from './dom.js';
import {verdictHead} from './exercise.js';
import {Stopped} from './python.js';

// How long a cell that is to stop may take to end by itself.
const PATIENCE = 1000;

/** Event: 'change' when a cell ends, and when the queue begins or ends. */
export class Runner extends EventTarget {
  #queue = [];
  #now = null;
  #count = 0;
  #verdict = null;
  #isWorking = false;
  #isStopping = false;
  #plan = '';
  done = 0;
  total = 0;

  constructor(cells, python, say) {
    super();
    this.cells = cells;
    this.python = python;
    this.say = say;
    python.addEventListener('verdict', event => this.#judge(event.detail));
    python.addEventListener('afresh', () => {
      this.#count = 0;
      for (const cell of cells) cell.forgetRun();
    });
  }

  get isBusy() {
    return this.#isWorking;
  }

  #canRun(cell) {
    return !cell.reason && (!cell.needsNumPy || this.python.hasNumPy);
  }

  /** Did it not run yet as it is now? */
  #isDue(cell) {
    const isIdle = cell.state !== 'waiting' && cell.state !== 'running';
    return this.#canRun(cell)
      && (cell.state === 'new' || (isIdle && cell.isStale));
  }

  /** The cells above that are due. What only checks an exercise makes
   * nothing that others need. */
  #above(cell) {
    return this.cells.slice(0, this.cells.indexOf(cell)).filter(c =>
      this.#isDue(c) && !c.checks);
  }

  /** Run a cell, and before it the cells above that are due. */
  run(cell) {
    if (cell.state === 'waiting') return;
    const above = this.#above(cell);
    this.#add([...above, cell].map(c => ({cell: c})), above.length
      ? `Running the ${plural(above.length, 'cell')} above ${cell.name} first`
      : `Running ${cell.name}`);
  }

  runAbove(cell) {
    const above = this.#above(cell);
    if (above.length)
      this.#add(above.map(c => ({cell: c})),
        `Running the ${plural(above.length, 'cell')} above ${cell.name}`);
    else
      this.say(`All cells above ${cell.name} have run.`);
  }

  runAll() {
    const all = this.cells.filter(c => this.#isDue(c));
    const left = this.cells.filter(c => !this.#canRun(c)).length;
    if (!all.length) {
      this.say('All cells have run. To run them again, start afresh.');
      return;
    }
    const jobs = all.map(c => ({cell: c}));
    jobs.at(-1).end = 'The chapter has run to its end'
      + (left ? `, without ${plural(left, 'cell')} that cannot run here.` : '.');
    this.#add(jobs,
      `Running ${plural(all.length, 'cell')}, to the end of the chapter`);
  }

  /** Run an exercise's cell if it has not run as it is, then check it. */
  check(cell) {
    if (this.#queue.some(job => job.check === cell.exercise)) return;
    const above = this.#above(cell);
    const isFresh = cell.state === 'done' && !cell.isStale;
    const cells = isFresh ? above : [...above, cell];
    this.#add([...cells.map(c => ({cell: c})), {cell, check: cell.exercise}],
      above.length
        ? `Running the ${plural(above.length, 'cell')} above first, then `
          + `checking exercise ${cell.exercise}`
        : `Checking exercise ${cell.exercise}`);
  }

  #add(jobs, words) {
    this.#plan = words;
    this.say(words);
    for (const job of jobs) job.cell.become('waiting');
    this.#queue.push(...jobs);
    this.total += jobs.length;
    if (!this.#isWorking) this.#work();
  }

  async #work() {
    this.#isWorking = true;
    this.dispatchEvent(new Event('change'));
    let last = null;
    try {
      if (this.python.state !== 'on') {
        await this.python.start();
        this.say(this.#plan);
      }
      while (this.#queue.length) {
        last = await this.#do(this.#queue.shift());
        this.done += 1;
        if (last.failed) this.#drop();
        this.dispatchEvent(new Event('change'));
      }
      this.say(this.#isStopping
        ? `Stopped. ${last.words}` : last?.words ?? 'Ready.');
    } catch (error) {
      this.#drop();
      this.say(error instanceof Stopped
        ? 'Stopped. What the cells had made is gone; the next Run begins '
          + 'again with the cells above.'
        : `Python could not go on: ${error.message.replace(/\.$/, '')}. `
          + 'Press Run to try again.');
    } finally {
      this.#now = null;
      this.#isWorking = this.#isStopping = false;
      this.done = this.total = 0;
      this.dispatchEvent(new Event('change'));
    }
  }

  async #do(job) {
    this.#now = job;
    const {cell} = job;
    const answer = await (job.check ? this.#check(job) : this.#run(job));
    this.#now = null;
    if (answer.failed) cell.scrollTo();
    return answer.failed || !job.end ? answer : {...answer, words: job.end};
  }

  async #run({cell}) {
    let error = null;
    const {area, add, finish, offerNumPy} = cell.receiver();
    this.#verdict = null;
    cell.begin();
    const done = await this.python.run(cell.id, cell.text, cell.name,
      output => {
        if (output.output_type === 'error') error = output;
        add(output);
      });
    finish();
    if (this.#verdict) this.#show(area);
    if (error?.ename === 'ModuleNotFoundError'
        && /'(numpy|matplotlib)/.test(error.evalue)) offerNumPy();
    const failed = !done.ok && !cell.raises;
    cell.end(++this.#count, failed);
    const took = `${(done.seconds ?? 0).toFixed(1)} s`;
    const name = cell.name[0].toUpperCase() + cell.name.slice(1);
    if (!failed)
      return {words: this.#verdict ? this.#verdictWords()
        : `${name} ran in ${took}.`};
    return {failed: true, words: `${name} ended with `
      + `${error ? error.ename : 'an error'}.${this.#dropped()}`};
  }

  /** What an error keeps from happening. */
  #dropped() {
    const checks = this.#queue.filter(job => job.check);
    const left = this.#queue.length - checks.length;
    return (left === 1 ? ' The cell behind it did not run.'
      : left ? ` The ${left} cells behind it did not run.` : '')
      + checks.map(job => ` Exercise ${job.check} was not checked.`).join('');
  }

  /** The verdict stands where the chapter's own check shows its: in the
   * cell that follows, if that is one. */
  async #check({cell, check}) {
    const next = this.cells[this.cells.indexOf(cell) + 1];
    const place = next?.checks === check ? next : cell;
    const {area, add, finish} = place.receiver();
    this.#verdict = null;
    cell.become('running');
    await this.python.check(check, add);
    finish();
    if (this.#verdict) this.#show(area);
    cell.become('done');
    return {failed: !this.#verdict, words: this.#verdict ? this.#verdictWords()
      : `Exercise ${check} could not be checked.`};
  }

  #judge(verdict) {
    this.#verdict = verdict;
  }

  #show(area) {
    area.prepend(verdictHead(this.#verdict));
    this.cells.find(cell => cell.exercise === this.#verdict.exercise)
      ?.judged(area);
  }

  #verdictWords() {
    const {exercise} = this.#verdict;
    const head = verdictHead(this.#verdict).textContent.toLowerCase();
    return `Exercise ${exercise}: ${head}.`;
  }

  #drop() {
    for (const {cell} of this.#queue.splice(0))
      if (cell.state === 'waiting')
        cell.become(cell.number === null ? 'new' : 'done');
    this.dispatchEvent(new Event('change'));
  }

  /** Stop what waits, and what runs: if it does not end soon, with Python. */
  stop() {
    this.#drop();
    const job = this.#now;
    if (!job) {
      if (this.#isWorking) this.python.stop();
      return;
    }
    this.#isStopping = true;
    this.say(`Stopping ${job.cell.name}`);
    setTimeout(() => {
      if (this.#now === job) this.python.stop();
    }, PATIENCE);
  }

  /** Python as it was before the first Run, and the book's outputs. */
  restart(withText) {
    this.#drop();
    this.python.stop();
    for (const cell of this.cells) {
      cell.forgetOutput();
      if (withText && cell.isEdited) cell.reset();
    }
  }
}
