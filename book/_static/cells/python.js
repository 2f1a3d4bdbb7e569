// The page's end of the worker in which Python runs.

/** Why a request has no answer: Python was stopped. */
export class Stopped extends Error {}

/**
 * Events: 'progress' (detail {text, done, total}) while something is
 * fetched, 'verdict' (detail {exercise, kind, passed}), 'afresh' when what
 * the cells had made is gone.
 */
export class Python extends EventTarget {
  #worker = null;
  #started = null;
  #waiting = new Map();
  #last = 0;
  state = 'off';           // or 'starting', 'on'
  hasNumPy = false;

  constructor(chapter) {
    super();
    this.chapter = chapter;
  }

  /** Starts Python if it is off. */
  start() {
    this.#started ??= this.#open();
    return this.#started;
  }

  async #open() {
    this.state = 'starting';
    this.#worker = new Worker(
      new URL('../live/worker.js', import.meta.url), {type: 'module'});
    this.#worker.onmessage = event => this.#receive(event.data);
    this.#worker.onerror = event => this.#fail(new Error(event.message
      || 'its files cannot be fetched. Is the server there?'));
    const answer = await this.#ask({op: 'start', chapter: this.chapter});
    if (!answer.ok) {
      const error = new Error(answer.text ?? 'it could not begin.');
      this.#fail(error);
      throw error;
    }
    // It was asked for once; another start does not lose it.
    if (this.hasNumPy) this.hasNumPy = (await this.#ask({op: 'numpy'})).ok;
    this.state = 'on';
  }

  /** Runs a cell's source; onOutput gets each output as nbformat has it. */
  run(cell, source, name, onOutput) {
    return this.#request({op: 'run', cell, source, name}, onOutput);
  }

  check(exercise, onOutput) {
    return this.#request({op: 'check', exercise}, onOutput);
  }

  /** Fetches NumPy from another machine. All names are gone after it. */
  async numpy() {
    const answer = await this.#request({op: 'numpy'});
    if (!answer.ok) throw new Error(answer.text);
    this.hasNumPy = true;
    this.dispatchEvent(new Event('afresh'));
  }

  async #request(message, onOutput) {
    await this.start();
    return this.#ask(message, onOutput);
  }

  #ask(message, onOutput = () => {}) {
    if (!this.#worker) throw new Stopped('Python was stopped');
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, {resolve, reject, onOutput});
      this.#worker.postMessage({...message, id});
    });
  }

  #receive(message) {
    const {op, id} = message;
    const request = this.#waiting.get(id);
    if (op === 'output') {
      request?.onOutput(message.output);
    } else if (op === 'done') {
      this.#waiting.delete(id);
      request?.resolve(message);
    } else if (op === 'dead') {
      this.#fail(new Error(message.text));
    } else {
      this.dispatchEvent(new CustomEvent(op, {detail: message}));
    }
  }

  /** Ends Python at once: nothing else stops an endless loop. */
  stop() {
    this.#fail(new Stopped('Python was stopped'));
  }

  #fail(error) {
    this.#worker?.terminate();
    this.#worker = this.#started = null;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const {reject} of waiting) reject(error);
    this.state = 'off';
    this.dispatchEvent(new Event('afresh'));
  }
}
