const start = (root, {cells, most, errors, names, presets}) => {
  const all = query => [...root.querySelectorAll(query)];
  const part = name => root.querySelector('.' + name);

  // What as_strided makes of a geometry: an error, or the cells it reads.
  const read = (shape, strides, offset) => {
    const said = {size: index(shape), stride: index(strides), offset};
    if (Math.min(0, offset, ...strides) < 0) {
      return {error: fill(errors.negative, said)};
    }
    const end = shape.reduce((at, n, d) => at + (n - 1) * strides[d], offset);
    if (!shape.includes(0) && end >= cells) {
      return {error: fill(errors.outside, {...said, last: end, have: cells})};
    }
    let places = [{at: [], cell: offset}];
    shape.forEach((n, d) => {
      places = places.flatMap(({at, cell}) => Array.from({length: n}, (_, i) =>
        ({at: [...at, i], cell: cell + i * strides[d]})));
    });
    let step = 1, contiguous = true;
    for (let d = shape.length - 1; d >= 0; d--) {
      if (shape[d] !== 1 && strides[d] !== step) contiguous = false;
      step *= shape[d];
    }
    const first = new Map();
    const twice = places.find(place => {
      if (first.has(place.cell)) return true;
      first.set(place.cell, place);
      return false;
    });
    return {places, contiguous: contiguous || shape.includes(0),
            twice: twice && [first.get(twice.cell), twice]};
  };
  root.read = read;       // a test asks it for all geometries

  let now = {shape: [3, 4], strides: [4, 1], offset: 0}, seen;

  // ---- the fields -------------------------------------------------------
  const field = (label, low, high, value, set) => {
    const input = make('input', {type: 'number', min: low, max: high,
                                 'aria-label': label, inputmode: 'numeric'});
    input.value = value;
    const take = (value, clamp) => {
      if (!Number.isInteger(value) || (value < low || value > high) && !clamp)
        return;
      set(Math.max(low, Math.min(high, value)));
    };
    input.addEventListener('input', () => {
      if (input.value !== '') take(Number(input.value), false);
    });
    input.addEventListener('change', () => {
      take(Math.round(Number(input.value)), true);
      fields();
    });
    const button = (text, by) => {
      const made = make('button', {type: 'button', tabindex: -1, text,
        'aria-label': (by < 0 ? 'Less: ' : 'More: ') + label});
      made.addEventListener('click', () => take(Number(input.value) + by));
      return made;
    };
    return make('span', {class: 'number'},
                button('\u2212', -1), input, button('+', 1));
  };

  const chosen = make('select');
  const count = make('select');
  const setup = () => {
    chosen.append(make('option', {value: '', text: 'your own'}));
    presets.forEach(([name], i) =>
      chosen.append(make('option', {value: i, text: name})));
    chosen.value = 0;
    for (const n of Object.keys(most)) {
      count.append(make('option', {value: n, text: n}));
    }
    const table = make('table', {role: 'presentation'});
    part('moves').append(
      make('label', {text: 'View'}, chosen),
      make('label', {text: 'Dimensions'}, count), table);
    chosen.addEventListener('change', () => {
      if (chosen.value === '') return;
      const [, shape, strides, offset] = presets[chosen.value];
      now = {shape: [...shape], strides: [...strides], offset};
      build();
      changed();
    });
    count.addEventListener('change', () => {
      const n = Number(count.value), [size, stride] = most[n];
      const grown = n - now.shape.length;
      now.shape = (grown > 0 ? [...Array(grown).fill(1), ...now.shape]
        : now.shape.slice(-n)).map(value => Math.min(value, size));
      now.strides = (grown > 0 ? [...Array(grown).fill(0), ...now.strides]
        : now.strides.slice(-n)).map(value => Math.min(value, stride));
      build();
      changed();
    });
  };

  // The fields of one number of dimensions.
  const build = () => {
    const dims = now.shape.length, [size, stride] = most[dims];
    count.value = dims;
    const row = (name, values, low, high) => make('tr', {},
      make('td', {text: name}), ...values.map((value, d) => make('td', {},
        field(`${name} of dimension ${d}`, low, high, value, set => {
          values[d] = set;
          changed();
        }))));
    part('moves').querySelector('table').replaceChildren(
      row('size', now.shape, 0, size), row('stride', now.strides, -1, stride),
      make('tr', {}, make('td', {text: 'offset'}), make('td', {},
        field('offset', -1, cells - 1, now.offset, set => {
          now.offset = set;
          changed();
        }))));
  };

  // What the fields show, after a value was set in another way.
  const fields = () => {
    const values = [...now.shape, ...now.strides, now.offset];
    all('.number input').forEach((input, k) => {
      if (input.value !== String(values[k])) input.value = values[k];
    });
  };

  // ---- the two pictures -------------------------------------------------
  const memory = make('div', {class: 'cells', role: 'img'});
  const blocks = make('div', {class: 'blocks', role: 'img'});
  part('both').append(
    make('div', {class: 'memory'},
         make('p', {class: 'heading', text:
           'The storage. Under each cell: when it is read'}), memory),
    make('div', {class: 'view'},
         make('p', {class: 'heading', text: 'The view'}), blocks));
  for (let i = 0; i < cells; i++) {
    memory.append(make('div', {class: 'square'},
                       make('b', {text: i}), make('span')));
  }

  const grid = () => {
    const {shape} = now;
    const rows = shape.at(-2) ?? 1, columns = shape.at(-1);
    const total = seen.places?.length ?? 0;
    blocks.replaceChildren(...Array.from(
      {length: rows * columns ? total / (rows * columns) : 0}, (_, k) => {
        const block = make('div', {class: columns > 6 ? 'cells long'
                                                       : 'cells'});
        for (let i = 0; i < rows * columns; i++) {
          block.append(make('div', {class: 'square', style:
            `grid-row:${Math.floor(i / columns) + 1};`
            + `grid-column:${i % columns + 1}`}));
        }
        return block;
      }));
  };

  const paint = (cell, order, at) => {
    const total = seen.places.length;
    cell.classList.toggle('read', order !== undefined);
    cell.classList.toggle('at', at);
    cell.style.background = order === undefined ? ''
      : shade(total > 1 ? order / (total - 1) : 0);
  };

  const facts = () => {
    const {places, contiguous, twice} = seen;
    const order = places.map(place => place.cell).join(' ');
    return (places.length ? `Reads the cells ${order}. ` : 'Reads nothing. ')
      + (contiguous ? 'Contiguous. ' : 'Not contiguous. ')
      + (twice ? `Two indices, one cell: ${index(twice[0].at)} and `
        + `${index(twice[1].at)} are both cell ${twice[0].cell}.`
        : 'No cell is read twice.');
  };

  const words = step => {
    if (step === seen.places.length) return facts();
    if (step === 0) return 'Nothing is read yet.';
    const {at, cell} = seen.places[step - 1];
    const sum = at.map((i, d) => `${i} \u00d7 ${now.strides[d]}`);
    return `Index ${index(at)}: ${[now.offset, ...sum].join(' + ')} = `
      + `cell ${cell}.`;
  };

  const show = step => {
    part('words').classList.toggle('refused', 'error' in seen);
    part('both').hidden = 'error' in seen;
    if (seen.error) {
      say(part('words'), seen.error);
      return;
    }
    const {places} = seen, orders = new Map();
    places.slice(0, step).forEach(({cell}, k) =>
      orders.set(cell, [...orders.get(cell) ?? [], k]));
    const whole = step === places.length;
    const last = whole ? undefined : places[step - 1]?.cell;
    [...memory.children].forEach((cell, i) => {
      const order = orders.get(i);
      paint(cell, order?.at(-1), i === last);
      const shown = (order ?? []).map(k => k + 1);
      cell.lastChild.textContent = shown.length > 3
        ? `${shown[0]} ... ${shown.at(-1)}` : shown.join(', ');
    });
    all('.view .square').forEach((cell, k) => {
      paint(cell, k < step ? k : undefined, !whole && k === step - 1);
      cell.textContent = k < step ? places[k].cell : '';
    });
    memory.setAttribute('aria-label', `Cells read so far: ` + (places
      .slice(0, step).map(place => place.cell).join(' ') || 'none'));
    blocks.setAttribute('aria-label', `The view, of shape ${
      tuple(now.shape)}, ${step} of ${places.length} elements read`);
    say(part('words'), words(step));
  };

  const walked = walk(root, {
    last: () => seen.places?.length ?? 0, show, play: true,
    names: ['First: nothing is read', 'One read back', 'Next cell is read',
            'Last: all are read'],
    place: (at, last) => `Read ${at} of ${last}`});

  const changed = () => {
    const {shape, strides, offset} = now;
    seen = read(shape, strides, offset);
    fields();
    const at = presets.findIndex(([, ...geometry]) =>
      JSON.stringify(geometry) === JSON.stringify([shape, strides, offset]));
    chosen.value = at < 0 ? '' : at;
    const name = names[[shape, strides, offset].join(';')];
    part('code').replaceChildren(
      make('div', {}, make('code', {text: `x.as_strided(${tuple(shape)}, ${
        tuple(strides)}, ${offset})`})),
      make('div', {class: 'note', text: seen.error ? 'refused'
        : name ? 'the same as ' : '\u00a0'},
        ...!seen.error && name ? [make('code', {text: name})] : []));
    if (!seen.error) grid();
    walked.to(seen.places?.length ?? 0);
  };

  root.querySelector('details').open = false;
  setup();
  build();
  changed();
};
