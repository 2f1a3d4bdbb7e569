const start = (root, {most, presets, error}) => {
  const part = name => root.querySelector('.' + name);
  const and = list => list.length < 3 ? list.join(' and ')
    : list.slice(0, -1).join(', ') + ' and ' + list.at(-1);
  const NAMES = ['a', 'b', 'c'], UNITS = [10, 1, 100];
  const COLUMNS = ['last dimension', 'second dimension from the right',
                   'third dimension from the right'];

  // ---- the rules --------------------------------------------------------
  const rowMajor = shape => {
    let step = 1;
    return shape.map((_, k) => shape.length - 1 - k).map(d => {
      const stride = step;
      step *= Math.max(shape[d], 1);
      return stride;
    }).reverse();
  };
  const expand = (shape, strides, target) => {
    const fresh = target.length - shape.length, found = [];
    let step = shape.length ? 1 : 0;
    for (let d = target.length - 1; d >= 0; d--) {
      let had = 1;
      if (d >= fresh) [had, step] = [shape[d - fresh], strides[d - fresh]];
      found[d] = target[d] === had ? step : 0;
      step = target[d] * found[d];
    }
    return found;
  };
  // The shape that all expand to, and the strides of each; or an error.
  const meet = shapes => {
    const dims = Math.max(...shapes.map(shape => shape.length));
    const result = Array(dims).fill(1);
    for (const shape of shapes) {
      for (let i = 1; i <= shape.length; i++) {
        const had = result[dims - i], size = shape[shape.length - i];
        if (had === 1) result[dims - i] = size;
        else if (size !== 1 && size !== had) {
          return {dim: dims - i, error: fill(error, {
            shapes: shapes.map(index).join(' and '), dim: dims - i,
            first: had, second: size})};
        }
      }
    }
    return {shape: result, strides: shapes.map(shape =>
      expand(shape, rowMajor(shape), result))};
  };
  root.meet = meet;       // a test asks it for all shapes

  let shapes, seen;

  // ---- the fields -------------------------------------------------------
  const chosen = make('select');
  const table = make('table');
  const more = make('button', {type: 'button'});
  chosen.append(make('option', {value: '', text: 'your own'}),
                ...presets.map(([text], i) =>
                  make('option', {value: i, text})));
  part('moves').append(table, make('label', {text: 'Shapes'}, chosen), more);
  chosen.addEventListener('change', () => {
    if (chosen.value === '') return;
    shapes = presets[chosen.value][1].map(shape => [...shape]);
    build();
    changed();
  });
  more.addEventListener('click', () => {
    if (shapes.length === 3) shapes.pop();
    else shapes.push([1]);
    build();
    changed();
  });

  // A row of sizes, the last one at the right; '' is no dimension.
  const sizes = (name, k) => [2, 1, 0].map(column => {
    if (column >= most.dims[k]) return make('td');
    const select = make('select', {
      'aria-label': `${name}: ${COLUMNS[column]}`, 'data-column': column});
    select.append(make('option', {value: '', text: '\u2013'}));
    for (let size = 0; size <= most.size; size++) {
      select.append(make('option', {value: size, text: size}));
    }
    select.addEventListener('change', () => {
      const shape = [...shapes[k]].reverse();
      if (select.value === '') shape.length = Math.min(shape.length, column);
      else {
        while (shape.length < column) shape.push(1);    // no gaps
        shape[column] = Number(select.value);
      }
      shapes[k] = shape.reverse();
      changed();
    });
    return make('td', {}, select, make('span', {class: 'to'}));
  });
  const build = () => {
    const head = make('tr', {}, make('td'),
      make('th', {colspan: 3, scope: 'colgroup', text: 'sizes'}),
      make('th', {scope: 'col', text: 'strides'}));
    const row = (name, ...cells) => make('tr', {},
      make('th', {scope: 'row', text: name}), ...cells,
      make('td', {class: 'strides'}));
    table.replaceChildren(
      make('thead', {}, head),
      make('tbody', {}, ...shapes.map((_, k) =>
        row(NAMES[k], ...sizes(NAMES[k], k)))),
      make('tfoot', {}, row('result', ...[2, 1, 0].map(() =>
        make('td', {class: 'size'})))));
    more.textContent = shapes.length === 3 ? 'Take c away'
      : 'Add a third tensor';
  };
  const fields = () => {
    [...table.tBodies[0].rows].forEach((row, k) => {
      for (const select of row.querySelectorAll('select')) {
        const column = Number(select.dataset.column);
        const size = shapes[k].at(-1 - column), due = seen.shape?.at(
          -1 - column);
        select.value = size ?? '';
        select.nextSibling.textContent = due === undefined
          || (size ?? 1) === due ? '' : '\u2192 ' + due;
      }
      row.querySelector('.strides').textContent = seen.error ? ''
        : tuple(seen.strides[k]);
    });
    [...table.tFoot.querySelectorAll('.size')].forEach((cell, k) => {
      cell.textContent = seen.shape?.at(k - 3) ?? '';
    });
  };

  // ---- the rule, dimension by dimension ---------------------------------
  const rule = column => {
    const sizes = shapes.map(shape => shape.at(-1 - column));
    const given = sizes.map((size, k) => NAMES[k] + ' has ' + (
      size ?? 'none, which counts as 1')).join(', ');
    const others = [...new Set(sizes.map(size => size ?? 1)
      .filter(size => size !== 1))];
    if (others.length > 1) {
      return [given, `${and(others)} differ, and neither is 1.`];
    }
    const due = others[0] ?? 1;
    const stretched = NAMES.filter((_, k) => k < shapes.length
      && (sizes[k] ?? 1) !== due);
    return [given, stretched.length
      ? `${and(stretched)} ${stretched.length > 1 ? 'are' : 'is'} stretched `
        + `to ${due}: stride 0.` : `All agree: ${due}.`];
  };
  const rules = () => {
    const dims = Math.max(...shapes.map(shape => shape.length));
    part('rules').replaceChildren(...Array.from({length: dims}, (_, c) => {
      const [given, verdict] = rule(c);
      const name = COLUMNS[c][0].toUpperCase() + COLUMNS[c].slice(1);
      return make('li', {}, make('b', {text: name + ': '}),
                  `${given}. ${verdict}`);
    }));
  };

  // ---- the tensors ------------------------------------------------------
  const total = shape => shape.reduce((n, size) => n * size, 1);
  // The index of an element, from its number.
  const unravel = (number, shape) => {
    const at = [];
    for (let d = shape.length - 1; d >= 0; d--) {
      at[d] = number % shape[d];
      number = Math.floor(number / shape[d]);
    }
    return at;
  };
  // Which cell of each tensor the element of that index reads.
  const cells = at => seen.strides.map(strides =>
    at.reduce((cell, i, d) => cell + i * strides[d], 0));
  const values = at => cells(at).map((cell, k) => UNITS[k] * (cell + 1));
  const sum = list => list.reduce((a, b) => a + b);

  const grid = (name, shape, heading, value) => {
    const rows = shape.at(-2) ?? 1, columns = shape.at(-1) ?? 1;
    const blocks = make('div', {class: 'blocks', role: 'img'});
    for (let k = 0, n = 0; n < total(shape); k++) {
      const block = blocks.appendChild(make('div', {class: 'cells'}));
      for (let i = 0; i < rows * columns; i++, n++) {
        block.append(make('div', {class: 'square', 'data-n': n, text: value(n),
          style: `grid-row:${Math.floor(i / columns) + 1};`
            + `grid-column:${i % columns + 1}`}));
      }
    }
    return make('div', {class: name},
                make('p', {class: 'heading', text: heading}), blocks);
  };
  const count = n => n === 1 ? '1 cell' : n + ' cells';
  const draw = () => {
    if (seen.error) return;
    part('both').replaceChildren(
      ...shapes.map((shape, k) => grid(
        NAMES[k], shape, `${NAMES[k]}, ${count(total(shape))} of memory`,
        n => UNITS[k] * (n + 1))),
      grid('result', seen.shape, `${NAMES.slice(0, shapes.length)
        .join(' + ')}, of shape ${tuple(seen.shape)}`,
        n => sum(values(unravel(n, seen.shape)))));
  };
  part('both').addEventListener('pointerover', event => {
    const cell = event.target.closest('.result .square');
    if (cell) walked.to(Number(cell.dataset.n) + 1);
  });

  const whole = () => {
    const n = total(seen.shape);
    const from = sum(shapes.map(total));
    return `${and(shapes.map(tuple))} give ${tuple(seen.shape)}: ` + (n
      ? `${n} element${n > 1 ? 's' : ''} from ${count(from)}.`
      : 'no elements, so nothing is read.');
  };
  const show = step => {
    part('words').classList.toggle('refused', 'error' in seen);
    part('both').hidden = 'error' in seen;
    if (seen.error) {
      say(part('words'), seen.error);
      return;
    }
    const at = step ? unravel(step - 1, seen.shape) : null;
    const read = at ? cells(at) : [];
    const mark = (name, n) => {
      const blocks = part('both').querySelector(`.${name} .blocks`);
      for (const cell of blocks.querySelectorAll('.square')) {
        cell.classList.toggle('at', Number(cell.dataset.n) === n);
      }
      return blocks;
    };
    const terms = shapes.map((shape, k) => {
      const where = at && NAMES[k] + index(unravel(read[k], shape));
      mark(NAMES[k], read[k]).setAttribute('aria-label', at
        ? `Tensor ${NAMES[k]}, ${where} is read` : `Tensor ${NAMES[k]}, ${
          count(total(shape))}`);
      return where;
    });
    mark('result', step - 1).setAttribute('aria-label', at
      ? `The result at ${index(at)}` : `The result, ${
        count(total(seen.shape))}`);
    say(part('words'), at ? `result${index(at)} = ${terms.join(' + ')} = ${
      values(at).join(' + ')} = ${sum(values(at))}.` : whole());
  };
  const walked = walk(root, {
    last: () => seen.error ? 0 : total(seen.shape), show, play: true,
    names: ['First: all elements', 'One element back', 'Next element',
            'Last element'],
    place: (at, last) => at ? `Element ${at} of ${last}` : 'All elements'});

  const changed = () => {
    seen = meet(shapes);
    const at = presets.findIndex(([, preset]) =>
      JSON.stringify(preset) === JSON.stringify(shapes));
    chosen.value = at < 0 ? '' : at;
    fields();
    rules();
    draw();
    walked.to(0);
  };
  root.querySelector('details').open = false;
  shapes = presets[0][1].map(shape => [...shape]);
  build();
  changed();
};
