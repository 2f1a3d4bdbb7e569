"""A reader's browser: every page, its figures, and nothing from elsewhere.

It needs Chromium. Where there is none the tests are skipped, but in CI they
fail.
"""

import pytest

from book_build import toc_entries

# Runs in the page; returns what is wrong with its figures.
FIGURES = '''() => {
  const figures = [...document.querySelectorAll(
    '.bd-article img, .bd-article .cell_output svg')];
  const wrong = figures.filter(figure => {
    const box = figure.getBoundingClientRect();
    return box.width < 1 || box.height < 1 ||
      (figure.tagName === 'IMG' &&
       !(figure.complete && figure.naturalWidth > 0));
  });
  return [figures.length, wrong.map(figure => figure.outerHTML)];
}'''

# Runs in the page; returns elements whose text is hard to read.
CONTRAST = '''() => {
  const canvas = document.createElement('canvas').getContext(
    '2d', {willReadFrequently: true});
  const known = {};
  const parse = colour => known[colour] ??= (() => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  })();
  const luminance = rgb => {
    const [r, g, b] = rgb.map(c => {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] > 250) return colour.slice(0, 3);
    }
    return parse('white').slice(0, 3);
  };
  const hard = [];
  const elements = document.querySelectorAll(
    '.bd-article p, .bd-article a:not(.headerlink), .bd-article code, .bd-article pre span,' +
    '.bd-article td, .bd-article dd, .bd-sidebar-primary a');
  for (const element of elements) {
    const own = [...element.childNodes].some(
      n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const a = luminance(parse(getComputedStyle(element).color).slice(0, 3));
    const b = luminance(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5)
      hard.push(ratio.toFixed(1) + ': ' + element.outerHTML.slice(0, 120));
  }
  return hard;
}'''

# Runs in the page; returns lines of code, short enough, that scroll.
SCROLLING = '''() => [...document.querySelectorAll('.cell_input pre')]
  .filter(pre => pre.scrollWidth > pre.clientWidth &&
    Math.max(...pre.textContent.split('\\n').map(l => l.length)) <= 79)
  .map(pre => pre.textContent)'''


class Reader:
    """A page that remembers what went wrong on it."""

    def __init__(self, browser, site, width=1280, scheme='light'):
        self.site, self.wrong = site, []
        self.context = browser.new_context(
            viewport={'width': width, 'height': 800}, color_scheme=scheme)
        self.context.route('**/*', self.on_request)
        self.page = self.context.new_page()
        self.page.on('console', self.on_console)
        self.page.on('pageerror', lambda error: self.note(f'error: {error}'))
        self.page.on('response', self.on_response)

    def note(self, text):
        self.wrong.append(f'{self.page.url}: {text}')

    def on_request(self, route):
        address = route.request.url
        if address.startswith((self.site, 'data:', 'blob:')):
            route.continue_()
        else:
            self.note(f'a request that leaves the machine: {address}')
            route.abort()

    def on_console(self, message):
        if message.type in ('error', 'warning'):
            self.note(f'console: {message.text}')

    def on_response(self, response):
        if response.status >= 400:
            self.note(f'{response.status} {response.url}')

    def open(self, docname):
        self.page.goto(f'{self.site}{docname}.html', wait_until='load')
        self.settle()

    def settle(self, state='load'):
        self.page.wait_for_load_state(state)

    @property
    def docname(self):
        address = self.page.url.removeprefix(self.site)
        return address.split('#')[0].removesuffix('.html')


@pytest.fixture
def reader(browser, site, request):
    reader = Reader(browser, site, **getattr(request, 'param', {}))
    yield reader
    reader.context.close()


def test_walk_through_the_book(reader):
    reader.page.goto(reader.site)
    reader.page.wait_for_url('**/book/welcome.html')
    visited, without = [], []
    while True:
        reader.settle('networkidle')
        visited.append(reader.docname)
        assert len(visited) < 100, 'the next links go round in a circle'
        count, wrong = reader.page.evaluate(FIGURES)
        for figure in wrong:
            reader.note(f'a figure that does not show: {figure}')
        if reader.docname.startswith('chapters/') and not count:
            without.append(reader.docname)
        for code in reader.page.evaluate(SCROLLING):
            reader.note(f'code of 79 columns scrolls: {code}')
        following = reader.page.locator('a.right-next')
        if not following.count():
            break
        address = following.get_attribute('href')
        following.click()
        reader.page.wait_for_url('**/' + address.split('/')[-1])
    assert visited == toc_entries()
    assert without == [], 'chapters without a figure'
    assert reader.wrong == []


@pytest.mark.parametrize('reader, theme', [
    ({'scheme': 'light'}, 'light'), ({'scheme': 'dark'}, 'dark'),
], indirect=['reader'], ids=['light', 'dark'])
def test_text_can_be_read(reader, theme):
    for docname in toc_entries():
        reader.open(docname)
        assert reader.page.evaluate(
            'document.documentElement.dataset.theme') == theme
        for text in reader.page.evaluate(CONTRAST):
            reader.note(f'too little contrast, {text}')
    assert reader.wrong == []


@pytest.mark.parametrize('reader', [{'width': 360}], indirect=True,
                         ids=['360px'])
def test_a_telephone_is_wide_enough(reader):
    for docname in toc_entries():
        reader.open(docname)
        width = reader.page.evaluate('document.documentElement.scrollWidth')
        if width > 360:
            reader.note(f'is {width} px wide on a screen of 360')
    assert reader.wrong == []


def test_search_finds_a_word(reader):
    reader.page.goto(f'{reader.site}search.html?q=contiguous')
    reader.page.wait_for_selector('#search-results li a')
    results = reader.page.locator('#search-results li').all_inner_texts()
    assert any('Glossary' in text or 'contiguous' in text.lower()
               for text in results)
    assert reader.wrong == []


def test_one_search_field(reader):
    reader.open('book/welcome')
    visible = reader.page.locator('.search-button-field:visible,'
                                  ' .search-button:visible')
    assert visible.count() == 1
