const start = (root, calls) => {
  const part = name => root.querySelector('.' + name);
  const tables = [...root.querySelectorAll('table')];
  const chosen = make('select');
  const code = make('pre');
  tables.forEach((table, k) => chosen.append(make('option', {
    value: k, text: table.caption.firstChild.data.replace(/: $/, '')})));
  part('moves').append(make('label', {text: 'A call'}, chosen));
  part('moves').after(code);

  const now = () => calls[chosen.value];
  const words = step =>
    tables[chosen.value].rows[step].cells[1].textContent;
  const draw = () => {
    code.textContent = now().code;
    part('way').replaceChildren(...now().steps.map((step, i) => make('li', {
      style: `--depth:${step.depth}`, 'data-step': i},
      make('span', {class: 'name', text: step.title}),
      make('span', {class: 'op', text: step.op}),
      make('span', {class: 'keys'}, ...step.keys.map(
        text => make('span', {text}))))));
  };
  const walked = walk(root, {
    last: () => now().steps.length - 1,
    show: at => {
      say(part('words'), words(at));
      part('words').classList.toggle('refused',
                                     Boolean(now().steps[at].refused));
      [...part('way').children].forEach((item, i) => {
        item.classList.toggle('taken', i <= at);
        item.classList.toggle('refused', i <= at
                              && Boolean(now().steps[i].refused));
        if (i === at) item.setAttribute('aria-current', 'step');
        else item.removeAttribute('aria-current');
      });
    }});
  part('way').addEventListener('click', event => {
    const item = event.target.closest('li');
    if (item) walked.to(Number(item.dataset.step));
  });
  chosen.addEventListener('change', () => {
    draw();
    walked.to(0);
  });
  root.querySelector('details').open = false;
  draw();
  walked.to(0);
};
