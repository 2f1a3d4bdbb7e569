// What this browser keeps for the reader. Where it keeps nothing (private
// mode, storage full or forbidden), the page works and forgets on reload.

const PREFIX = 'lamina:';
const memory = new Map();

function attempt(action) {
  try {
    return action(window.localStorage);
  } catch {
    return undefined;
  }
}

/** Does what is written survive a reload? */
export function isLasting() {
  return attempt(storage => {
    storage.setItem(`${PREFIX}test`, '1');
    storage.removeItem(`${PREFIX}test`);
    return true;
  }) === true;
}

export function get(key, otherwise = null) {
  const text = attempt(storage => storage.getItem(PREFIX + key))
    ?? memory.get(key);
  if (text == null) return otherwise;
  try {
    return JSON.parse(text) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function set(key, value) {
  const text = JSON.stringify(value);
  const kept = attempt(storage => {
    storage.setItem(PREFIX + key, text);
    return true;
  });
  if (kept) memory.delete(key);
  else memory.set(key, text);
}

export function remove(key) {
  memory.delete(key);
  attempt(storage => storage.removeItem(PREFIX + key));
}

/** The keys that begin with `start`. */
export function keys(start = '') {
  const stored = attempt(storage => Object.keys(storage)) ?? [];
  return [...stored.filter(key => key.startsWith(PREFIX))
    .map(key => key.slice(PREFIX.length)), ...memory.keys()]
    .filter(key => key.startsWith(start));
}

/** Call `action` when another tab of this browser changes `key`. */
export function onChange(key, action) {
  window.addEventListener('storage', event => {
    if (event.key === null || event.key === PREFIX + key) action();
  });
}

/** A short number for a text, to see whether it is still the same. */
export function hash(text) {
  let h = 0x811c9dc5;  // FNV-1a
  for (let i = 0; i < text.length; i++)
    h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return (h >>> 0).toString(16).padStart(8, '0');
}
