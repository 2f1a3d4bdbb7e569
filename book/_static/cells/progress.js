// Which exercises were passed: the same shape as .lamina/progress.json,
// {"08.1": {"tries": 2, "last": "passed", "passed": "2026-11-30"}}, so that
// one can be taken to the other.

import * as store from './store.js';

const KEY = 'progress';
const NO_ANSWER = ['unanswered', 'missing', 'broken', 'taken'];
const changes = new EventTarget();

export const load = () => store.get(KEY, {});

function save(data) {
  store.set(KEY, data);
  changes.dispatchEvent(new Event('change'));
}

export function onChange(action) {
  changes.addEventListener('change', action);
  store.onChange(KEY, action);
}

/** Keep a verdict on a real answer: a stub leaves no trace. */
export function record({exercise, kind, passed}) {
  if (NO_ANSWER.includes(kind)) return;
  const data = load();
  const entry = data[exercise] ??= {};
  entry.tries = (entry.tries ?? 0) + 1;
  entry.last = kind;
  if (passed) entry.passed ??= today();
  save(data);
}

function today() {
  const now = new Date();
  const two = number => String(number).padStart(2, '0');
  return `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
}

export function countHint(exercise, step) {
  const data = load();
  (data[exercise] ??= {}).hints = step;
  save(data);
}

export const isPassed = exercise => Boolean(load()[exercise]?.passed);

/** How many exercises of chapter '08' were passed. */
export function passedIn(chapter) {
  return Object.entries(load()).filter(
    ([id, entry]) => id.startsWith(`${chapter}.`) && entry?.passed).length;
}

export const asText = () => {
  const data = load();
  return JSON.stringify(data, Object.keys(data).sort().concat(
    'hints', 'last', 'passed', 'tries'), 2) + '\n';
};

/** Take in what asText() or the terminal wrote; returns how many exercises.
 *
 * What either has is kept. Throws an Error that says what is wrong with it.
 */
export function takeIn(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    throw new Error('This file is not JSON.');
  }
  if (given === null || typeof given !== 'object' || Array.isArray(given))
    throw new Error('This file has no progress in it: it should be an object '
      + 'whose keys are exercises, such as "08.1".');
  const data = load();
  const ids = Object.keys(given);
  for (const id of ids) {
    const {tries, last, passed, hints} = given[id] ?? {};
    const count = n => n === undefined || (Number.isInteger(n) && n >= 0);
    const word = s => s === undefined || typeof s === 'string';
    if (!/^\d\d\.\d+( in the library)?$/.test(id) || !count(tries)
        || !count(hints) || !word(last) || !word(passed))
      throw new Error(`This file is not one of progress: "${id}" is no `
        + 'exercise, or what it says of it cannot be read.');
    const entry = data[id] ??= {};
    if (tries) entry.tries = Math.max(tries, entry.tries ?? 0);
    if (hints) entry.hints = Math.max(hints, entry.hints ?? 0);
    entry.last ??= last;
    const days = [passed, entry.passed].filter(Boolean).sort();
    if (days.length) entry.passed = days[0];
  }
  save(data);
  return ids.length;
}

/** Forget the progress, and what was written in the cells of all chapters. */
export function forget() {
  for (const start of ['edit:', 'ran:'])
    for (const key of store.keys(start)) store.remove(key);
  store.remove(KEY);
  changes.dispatchEvent(new Event('change'));
}

// ---- marks beside the names of chapters -----------------------------------

/** '01:6 02:5' from the page's head -> {'01': 6, '02': 5} */
function counts() {
  const text = document.querySelector('meta[name="lamina-exercises"]')?.content;
  return Object.fromEntries((text ?? '').split(' ').filter(Boolean)
    .map(pair => pair.split(':')));
}

/** Show in the sidebar and on the stack of layers what was passed. */
export function showMarks() {
  const total = counts();
  const draw = () => {
    const links = document.querySelectorAll(
      '.bd-sidebar-primary .bd-links a.internal, .layers a');
    for (const link of links) {
      const chapter = link.pathname.match(/chapters\/(\d\d)_[^/]*$/)?.[1];
      if (link.pathname && chapter in total)
        mark(link, passedIn(chapter), total[chapter]);
    }
  };
  onChange(draw);
  draw();
}

function mark(link, passed, total) {
  let span = link.querySelector('.live-mark');
  if (!passed) {
    span?.remove();
    return;
  }
  if (!span) {
    span = document.createElement('span');
    span.className = 'live-mark';
    (link.querySelector('.time') ?? link).append(span);
  }
  passed = Math.min(passed, total);
  link.style.setProperty('--part-done', passed / total);
  span.classList.toggle('is-whole', passed === Number(total));
  span.title = `${passed} of ${total} exercises passed`;
  span.innerHTML = `<span class="live-unseen">, ${span.title}</span>`;
}
