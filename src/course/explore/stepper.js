const start = (root, {steps, signs}) => {
  const image = root.querySelector('.picture img');
  image.outerHTML = decodeURIComponent(image.getAttribute('src')
    .slice('data:image/svg+xml,'.length));
  const all = query => [...root.querySelectorAll(query)];
  const rows = all('tbody tr');
  const box = root.querySelector('.picture');
  const show = at => {
    const {words, grads, states, edges} = steps[at];
    for (const node of all('.node')) {
      const i = node.dataset.node, sign = signs[states[i]];
      node.dataset.state = states[i];
      node.querySelector('.grad').textContent =
        'grad ' + (grads[i] === null ? sign : grads[i] + ' ' + sign);
    }
    for (const edge of all('.edge')) {
      const share = edges[edge.dataset.edge];
      edge.classList.toggle('moves', share !== undefined);
      const label = edge.querySelector('.share');
      if (label) label.textContent = share ?? label.dataset.rest;
    }
    // Where the graph is wider than its frame, the node whose turn it is
    // comes to the middle.
    const turn = root.querySelector('.node[data-state=now]')
      ?? root.querySelector('.node[data-state=done]');
    const [its, frame] = [turn, box].map(e => e.getBoundingClientRect());
    box.scrollLeft += its.left + its.width / 2 - frame.left - frame.width / 2;
    say(root.querySelector('.words'), words);
    rows.forEach((row, i) => i === at ?
      row.setAttribute('aria-current', 'step') :
      row.removeAttribute('aria-current'));
  };
  root.querySelector('details').open = false;
  walk(root, {last: () => steps.length - 1, show}).to(0);
};
