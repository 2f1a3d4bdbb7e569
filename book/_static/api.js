// A filter above the table or the list of a page's names.

function addFilter(list, entries) {
  const label = document.createElement('label');
  label.className = 'api-filter';
  label.textContent = 'Filter ';
  const input = document.createElement('input');
  input.type = 'search';
  input.placeholder = 'a part of a name, or a word';
  input.autocomplete = 'off';
  input.spellcheck = false;
  const count = document.createElement('span');
  count.className = 'api-count';
  count.setAttribute('role', 'status');
  label.append(input, count);
  list.before(label);

  const rows = [...list.querySelectorAll('tr, li')];
  const isGroup = (row) => row.classList.contains('api-group');
  const names = rows.filter((row) => !isGroup(row));

  function filter() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (node) => {
      const text = node.textContent.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const shown = new Set();
    for (const row of names) {
      row.hidden = !has(row);
      if (!row.hidden) {
        for (const a of row.querySelectorAll('a')) shown.add(a.hash);
      }
    }
    // A heading with nothing below it goes too.
    rows.forEach((row, i) => {
      if (!isGroup(row)) return;
      const next = rows.findIndex((other, j) => j > i && isGroup(other));
      row.hidden = rows.slice(i + 1, next < 0 ? undefined : next)
        .every((other) => other.hidden);
    });
    for (const letter of list.querySelectorAll('p.rubric')) {
      letter.hidden = [...letter.nextElementSibling.children]
        .every((row) => row.hidden);
    }
    for (const entry of entries) {
      const ids = [...entry.querySelectorAll(':scope > dt, :scope > dt [id]')];
      entry.hidden = words.length > 0 &&
        !ids.some((node) => shown.has('#' + node.id));
    }
    for (const section of document.querySelectorAll('.bd-article section section')) {
      const inside = section.querySelectorAll('dl.api-entry');
      section.hidden = inside.length > 0 &&
        [...inside].every((entry) => entry.hidden);
    }
    const found = names.filter((row) => !row.hidden).length;
    count.textContent = words.length ? `${found} of ${names.length}` : '';
  }

  input.addEventListener('input', filter);
  input.addEventListener('keydown', (event) => {
    event.stopPropagation();      // a letter is no shortcut of the page here
    if (event.key === 'Enter') {
      const first = names.find((row) => !row.hidden);
      first?.querySelector('a').click();
    }
  });
  // Who comes by a link, to what is filtered away, sees it.
  window.addEventListener('hashchange', () => {
    const target = document.getElementById(
      decodeURIComponent(location.hash.slice(1)));
    if (target?.closest('[hidden]')) {
      input.value = '';
      filter();
      target.scrollIntoView();
    }
  });
}

const table = document.querySelector('.api-summary');
const list = document.querySelector('.api-names');
if (table) {
  addFilter(table.closest('.pst-scrollable-table-container') ?? table,
    [...document.querySelectorAll('dl.api-entry')]);
} else if (list) {
  addFilter(list, []);
}
