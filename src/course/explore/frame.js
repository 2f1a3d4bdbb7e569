// What all explorers share: making elements, and walking through steps.

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'text') made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};

// A live region is read out when its text changes, not when it is set.
const say = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

// Pale first, dark last: the order of reading survives without hue.
const SCALE = [[255, 255, 204], [199, 233, 180], [127, 205, 187],
               [86, 180, 211]];
const shade = share => {
  const at = share * (SCALE.length - 1);
  const k = Math.min(Math.floor(at), SCALE.length - 2);
  return 'rgb(' + SCALE[k].map(
    (a, i) => Math.round(a + (SCALE[k + 1][i] - a) * (at - k))) + ')';
};

// Buttons and keys that walk from step 0 to step last(). show(step) draws.
// Arrow keys, Home and End belong to a field while it has the focus.
const walk = (root, {last, show, place, names, play}) => {
  const bar = root.querySelector('.bar');
  const [first, back, next, end] = names ?? [
    'First step', 'Step back', 'Next step', 'Last step'];
  for (const [name, text, label] of [
      ['first', 'First', first], ['back', '\u2039 Back', back],
      ['next', 'Next \u203a', next], ['last', 'Last', end],
      ...play ? [['play', 'Play', 'Play']] : []]) {
    bar.append(make('button', {
      type: 'button', 'data-go': name, 'aria-label': label, text}));
  }
  const where = bar.appendChild(make('span', {class: 'place'}));
  const button = name => bar.querySelector(`[data-go=${name}]`);
  let at = 0, timer = null;
  const pause = () => {
    clearInterval(timer);
    timer = null;
    if (play) {
      button('play').textContent = 'Play';
      button('play').setAttribute('aria-label', 'Play');
    }
  };
  const to = step => {
    at = Math.max(0, Math.min(last(), step));
    show(at);
    where.textContent = place ? place(at, last()) :
      'Step ' + at + ' of ' + last();
    for (const [name, off] of [
        ['first', at === 0], ['back', at === 0],
        ['next', at === last()], ['last', at === last()]]) {
      button(name).setAttribute('aria-disabled', off);
    }
  };
  const go = {
    first: () => to(0), back: () => to(at - 1),
    next: () => to(at + 1), last: () => to(last()),
    play: () => {
      if (at === last()) to(0);
      button('play').textContent = 'Pause';
      button('play').setAttribute('aria-label', 'Pause');
      timer = setInterval(() => {
        if (!root.isConnected || at === last()) pause();
        else to(at + 1);
      }, 700);
    }};
  const press = name => {
    const playing = timer !== null;
    pause();
    if (!(name === 'play' && playing)) go[name]();
  };
  const keys = {ArrowLeft: 'back', ArrowRight: 'next',
                Home: 'first', End: 'last'};
  bar.addEventListener('click', event => {
    const button = event.target.closest('[data-go]');
    if (button) press(button.dataset.go);
  });
  root.addEventListener('keydown', event => {
    if (event.target.closest('input, select')) {
      event.stopPropagation();    // "/" is a search elsewhere
      return;
    }
    const name = keys[event.key];
    if (!name || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    press(name);
  });
  return {to: step => { pause(); to(step); }, get at() { return at; }};
};
