const start = (root, data) => {
  const part = name => root.querySelector('.' + name);
  const {surfaces, optimizers, steps} = data;

  // ---- the loss, and its gradient by going back -------------------------
  const evaluate = (tape, u, v) => {
    const values = tape.map(() => 0), grads = tape.map(() => 0);
    tape.forEach(([op, a, b], i) => {
      const [x, y] = [values[a], values[b]];
      values[i] = op === 'u' ? u : op === 'v' ? v : op === 'number' ? a
        : op === '+' ? x + y : op === '-' ? x - y : x * y;
    });
    grads[tape.length - 1] = 1;
    for (let i = tape.length - 1; i > 1; i--) {
      const [op, a, b] = tape[i], grad = grads[i];
      if (op === 'number') continue;
      grads[a] += op === '*' ? grad * values[b] : grad;
      grads[b] += op === '*' ? grad * values[a] : op === '+' ? grad : -grad;
    }
    return {loss: values.at(-1), grad: [grads[0], grads[1]]};
  };

  // ---- the optimisers, for one number: (number, gradient) => number -----
  const follow = (mean, x, keep) => mean * keep + (1 - keep) * x;
  const rules = {
    SGD(options, {lr, momentum}) {
      let velocity;
      return (p, grad) => {
        if (momentum) {
          velocity = velocity === undefined ? grad
            : velocity * momentum + grad;
          grad = velocity;
        }
        return p + -lr * grad;
      };
    },
    Adagrad({eps}, {lr}) {
      let sum = 0;
      return (p, grad) => {
        sum += grad * grad;
        return p + -lr * (grad / (Math.sqrt(sum) + eps));
      };
    },
    RMSprop({alpha, eps}, {lr, momentum}) {
      let square = 0, velocity = 0;
      return (p, grad) => {
        square = follow(square, grad * grad, alpha);
        grad = grad / (Math.sqrt(square) + eps);
        if (momentum) grad = velocity = velocity * momentum + grad;
        return p + -lr * grad;
      };
    },
    Adam({betas, eps}, {lr, momentum}) {
      const [first, second] = [momentum, betas[1]];
      let mean = 0, square = 0, step = 0;
      return (p, grad) => {
        step += 1;
        mean = follow(mean, grad, first);
        square = follow(square, grad * grad, second);
        const low = 1 - first ** step, root = Math.sqrt(1 - second ** step);
        return p + -lr * root / low
          * (mean / (Math.sqrt(square) + eps * root));
      };
    }};
  // The points from a start on: where, how high, which slope.
  const path = ({surface, kind, lr, momentum, u, v}) => {
    const {tape} = surfaces[surface];
    const [moveU, moveV] = [0, 1].map(() =>
      rules[kind](optimizers[kind], {lr, momentum}));
    const found = [];
    for (let step = 0; step <= steps; step++) {
      const at = {u, v, ...evaluate(tape, u, v)};
      found.push(at);
      [u, v] = [moveU(u, at.grad[0]), moveV(v, at.grad[1])];
    }
    return found;
  };
  root.path = path;       // a test asks it for all settings

  const now = {surface: Object.keys(surfaces)[0],
               kind: Object.keys(optimizers)[0], lr: 0.09, momentum: 0,
               u: data.first[0], v: data.first[1]};
  let points, before = [], on;        // before: on the same surface

  // ---- the fields -------------------------------------------------------
  const choose = (label, name, values) => {
    const select = make('select');
    select.append(...values.map(value =>
      make('option', {value, text: String(value)})));
    select.value = now[name];
    select.addEventListener('change', () => {
      now[name] = typeof values[0] === 'number' ? Number(select.value)
        : select.value;
      changed();
    });
    part('moves').append(make('label', {text: label}, select));
    return select;
  };
  const field = name => {
    const [low, high, step] = data.starts[name];
    const input = make('input', {type: 'number', min: low, max: high, step});
    input.value = now[name];
    const take = () => {
      const value = Math.round(Number(input.value) / step) * step;
      const kept = Math.max(low, Math.min(high, value));
      if (kept === now[name]) return;
      now[name] = kept;
      changed();
    };
    input.addEventListener('input', () => {
      if (input.value !== '' && input.validity.valid) take();
    });
    input.addEventListener('change', () => {
      take();
      input.value = now[name];
    });
    part('moves').append(make('label', {text: 'start ' + name}, input));
    return input;
  };
  choose('loss', 'surface', Object.keys(surfaces));
  choose('optimiser', 'kind', Object.keys(optimizers));
  choose('rate', 'lr', data.rates);
  const momentum = choose('momentum', 'momentum', data.momenta);
  const starts = {u: field('u'), v: field('v')};

  // ---- the picture ------------------------------------------------------
  const svg = root.querySelector('svg');
  const draw = (tag, attributes) => {
    const made = document.createElementNS(svg.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) {
      made.setAttribute(name, value);
    }
    return svg.appendChild(made);
  };
  const lines = svg.querySelector('.line');
  const old = draw('polyline', {class: 'before'});
  const line = draw('polyline', {class: 'path'});
  const dots = draw('g', {class: 'dots'});
  const here = draw('circle', {class: 'here', r: 10});
  const label = draw('text', {});
  label.textContent = 'start';
  const [width, height] = data.size;
  const clip = x => Math.max(-1e4, Math.min(1e4, x));     // SVG's numbers
  const place = ({u, v}) => [
    (u - data.across[0]) / (data.across[1] - data.across[0]) * width,
    (data.up[1] - v) / (data.up[1] - data.up[0]) * height].map(clip);
  const finite = list => list.filter(({u, v}) =>
    Number.isFinite(u) && Number.isFinite(v));
  const joined = list => finite(list).map(at =>
    place(at).map(x => x.toFixed(1)).join()).join(' ');
  svg.addEventListener('click', event => {
    const box = svg.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width,
                   (event.clientY - box.top) / box.height];
    starts.u.value = data.across[0]
      + share[0] * (data.across[1] - data.across[0]);
    starts.v.value = data.up[1] - share[1] * (data.up[1] - data.up[0]);
    for (const input of Object.values(starts)) {
      input.dispatchEvent(new Event('change'));
    }
  });

  // ---- in words ---------------------------------------------------------
  const text = x => (Number.isFinite(x) ? Math.abs(x) < 1e-12 ? '0'
    : String(Number(x.toPrecision(3))) : Number.isNaN(x) ? 'nan'
    : x < 0 ? '-inf' : 'inf').replace('-', '\u2212');
  const pair = (x, y) => `(${text(x)}, ${text(y)})`;
  const outside = ({u, v}) => !(u >= data.across[0] && u <= data.across[1]
    && v >= data.up[0] && v <= data.up[1]);
  const words = step => {
    const at = points[step];
    return `${step ? `After step ${step}` : 'Start'}: at ${pair(at.u, at.v)}`
      + ` the loss is ${text(at.loss)}, its gradient ${pair(...at.grad)}.`
      + (outside(at) ? ' The path has left the picture.' : '');
  };
  const rows = () => {
    root.querySelector('tbody').replaceChildren(...points.map((at, i) =>
      make('tr', {}, ...[String(i), text(at.u), text(at.v), text(at.loss),
                         pair(...at.grad)].map(text => make('td', {text})))));
  };
  const walked = walk(root, {
    last: () => steps, play: true,
    show: step => {
      const so = points.slice(0, step + 1);
      line.setAttribute('points', joined(so));
      dots.replaceChildren();
      for (const at of finite(so)) {
        const [cx, cy] = place(at);
        dots.append(draw('circle', {cx, cy, r: 6}));
      }
      const last = finite(so).at(-1);
      const [cx, cy] = place(last);
      here.setAttribute('cx', cx);
      here.setAttribute('cy', cy);
      say(part('words'), words(step));
      [...root.querySelectorAll('tbody tr')].forEach((row, i) => i === step
        ? row.setAttribute('aria-current', 'step')
        : row.removeAttribute('aria-current'));
    }});

  const changed = () => {
    const at = points ? walked.at : steps;
    before = on === now.surface ? points : [];
    on = now.surface;
    points = path(now);
    momentum.disabled = now.kind === 'Adagrad';
    lines.setAttribute('d', surfaces[now.surface].lines);
    old.setAttribute('points', joined(before));
    const [x, y] = place(points[0]);
    label.setAttribute('x', x + 14);
    label.setAttribute('y', y - 14);
    svg.setAttribute('aria-label', `Lines of equal loss: ${now.surface}. `
      + `The path of ${now.kind} from ${pair(now.u, now.v)} to `
      + `${pair(points[steps].u, points[steps].v)}`);
    rows();
    walked.to(at);
  };
  part('picture').append(make('p', {class: 'legend', text:
    `Across: u, from ${data.across.map(text).join(' to ')}; up: v, from ${
      data.up.map(text).join(' to ')}. Each line is half as high above the `
    + 'lowest point as the one outside it. Dashed: the path of the settings '
    + 'before. A click sets the start.'}));
  root.querySelector('details').open = false;
  changed();
};
