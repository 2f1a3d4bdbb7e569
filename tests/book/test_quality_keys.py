"""Everything around the text is worked from the keyboard, and a chapter is
there quickly on a slow telephone."""

import gzip
import http.server
import re
import statistics
import threading
from functools import partial

import pytest

from test_browser import Reader

PHONE = {'width': 360}


@pytest.fixture
def reader(browser, site, request):
    reader = Reader(browser, site, **getattr(request, 'param', {}))
    yield reader
    reader.context.close()


def tab_to(page, selector, limit=150, key='Tab'):
    """Press Tab until something has the focus; fail if it never gets it."""
    for _ in range(limit):
        page.keyboard.press(key)
        if page.evaluate('selector => document.activeElement.matches('
                         'selector)', selector):
            return
    pytest.fail(f'{limit} times {key}, and {selector} has not the focus')


def expanded(page, selector):
    return page.evaluate('selector => document.querySelector(selector).open',
                         selector)


def test_the_first_key_skips_to_the_text(reader):
    reader.open('chapters/02_strides')
    page = reader.page
    page.keyboard.press('Tab')
    link = page.locator('.skip-link a')
    assert link.evaluate('link => link === document.activeElement')
    assert page.locator('.skip-link').bounding_box()['y'] >= 0
    page.keyboard.press('Enter')
    page.keyboard.press('Tab')
    assert page.evaluate('document.activeElement.closest("main") !== null')
    assert reader.wrong == []


def test_search_by_keys(reader):
    reader.open('book/howto')
    page = reader.page
    tab_to(page, '.search-button-field', 10)
    page.keyboard.press('Enter')
    field = page.locator('#pst-search-dialog input')
    assert field.is_visible()
    assert field.evaluate('field => field === document.activeElement')
    page.keyboard.press('Escape')
    assert not field.is_visible()
    page.keyboard.press('Control+k')
    page.keyboard.type('contiguous')
    page.keyboard.press('Enter')
    page.wait_for_url('**/search.html?q=contiguous*')
    page.wait_for_selector('#search-results li a')
    tab_to(page, '#search-results a', 100)
    page.keyboard.press('Enter')
    page.wait_for_url(lambda address: 'search.html' not in address)
    assert reader.wrong == []


def test_the_scheme_is_chosen_by_keys(reader):
    reader.open('book/howto')
    page = reader.page
    tab_to(page, '.theme-switch-button', 80)
    seen = set()
    for _ in range(3):
        page.keyboard.press('Enter')
        seen.add(page.evaluate('document.documentElement.dataset.theme'))
    assert seen == {'light', 'dark'}
    page.keyboard.press('Enter')
    chosen = page.evaluate('document.documentElement.dataset.mode')
    page.reload()
    assert page.evaluate('document.documentElement.dataset.mode') == chosen
    assert reader.wrong == []


def test_the_download_menu_by_keys(reader):
    reader.open('chapters/02_strides')
    page = reader.page
    tab_to(page, '.menu-download-buttons > summary', 80)
    assert not expanded(page, '.menu-download-buttons')
    page.keyboard.press('Enter')
    assert expanded(page, '.menu-download-buttons')
    tab_to(page, '.menu-download-buttons a', 1)
    # Not pressed: a download that has begun keeps the browser from closing.
    address = page.evaluate('document.activeElement.href')
    assert address.endswith('.ipynb')
    assert reader.context.request.get(address).ok


def test_code_is_copied_by_keys(reader):
    reader.open('book/build')
    page = reader.page
    page.wait_for_selector('button.copybtn', state='attached')
    page.evaluate("document.addEventListener('copy', () => {"
                  ' window.copied = document.activeElement.value ||'
                  ' getSelection().toString(); }, true)')
    tab_to(page, 'button.copybtn')
    page.wait_for_function('+getComputedStyle(document.activeElement).opacity'
                           ' > 0.9')
    code = page.evaluate('document.activeElement.parentElement'
                         '.querySelector("pre").textContent')
    page.keyboard.press('Enter')
    page.wait_for_selector('button.copybtn.success')
    assert page.evaluate('window.copied').strip() == code.strip()
    assert reader.wrong == []


def test_folds_open_by_keys(reader):
    reader.open('book/solutions')
    page = reader.page
    tab_to(page, 'article details > summary')
    for opened in True, False:
        page.keyboard.press('Enter')
        assert page.evaluate(
            'document.activeElement.parentElement.open') == opened
    assert reader.wrong == []


@pytest.mark.parametrize('reader', [PHONE], indirect=True, ids=['360px'])
def test_the_contents_on_a_telephone_by_keys(reader):
    reader.open('chapters/02_strides')
    page = reader.page
    link = page.locator('nav.bd-docs-nav a', has_text='Broadcasting').first
    assert not link.is_visible()
    tab_to(page, '.primary-toggle', 10)
    page.keyboard.press('Enter')
    link.wait_for(state='visible')
    page.keyboard.press('Escape')
    link.wait_for(state='hidden')
    page.keyboard.press('Enter')        # the focus is back on the button
    link.wait_for(state='visible')
    for _ in range(60):
        page.keyboard.press('Tab')
        if link.evaluate('link => link === document.activeElement'):
            break
    page.keyboard.press('Enter')
    page.wait_for_url('**/04_broadcasting.html')
    assert reader.wrong == []


# Runs in the page; returns what does not look different with the focus. One
# of a kind is tried.
FOCUS = '''() => {
  const look = element => JSON.stringify(
    [element, ...element.querySelectorAll('*')].map(part => {
      const s = getComputedStyle(part);
      return [s.outlineStyle !== 'none' && s.outlineWidth, s.outlineColor,
              s.boxShadow, s.backgroundColor, s.borderColor,
              s.textDecorationLine, s.opacity];
    }));
  const seen = new Set(), wrong = [];
  for (const element of document.querySelectorAll(
      'a[href], button, summary, input, select, textarea, [tabindex="0"]')) {
    const kind = [element.tagName, element.className,
                  element.parentElement.className].join();
    if (seen.has(kind) || !element.checkVisibility() || element.disabled)
      continue;
    seen.add(kind);
    element.style.transition = 'none';
    document.activeElement.blur();
    const before = look(element);
    element.focus({preventScroll: true});
    if (document.activeElement !== element) continue;
    if (!element.matches(':focus-visible') || look(element) === before)
      wrong.push(element.outerHTML.slice(0, 150));
  }
  return [seen.size, wrong];
}'''


@pytest.mark.parametrize('reader', [{}, PHONE], indirect=True,
                         ids=['1280px', '360px'])
def test_the_focus_can_be_seen(reader):
    for docname in ('book/welcome', 'chapters/02_strides', 'book/api/storage',
                    'book/solutions', 'search'):
        reader.open(docname)
        reader.page.keyboard.press('Tab')   # from now on: the keyboard's focus
        count, wrong = reader.page.evaluate(FOCUS)
        assert count > 5
        for element in wrong:
            reader.note(f'has the focus, and looks as before: {element}')
    assert reader.wrong == []


# ---- weight and speed -----------------------------------------------------

class Zipped(http.server.SimpleHTTPRequestHandler):
    """Compresses text, as static hosts do."""

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        path = self.translate_path(self.path)
        if path.endswith('/'):
            path += 'index.html'
        try:
            with open(path, 'rb') as file:
                body = file.read()
        except OSError:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header('Content-Type', self.guess_type(path))
        if re.search(r'[.](html|css|js|svg|json|ipynb)$', path):
            body = gzip.compress(body, 6)
            self.send_header('Content-Encoding', 'gzip')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope='module')
def zipped_site(html):
    server = http.server.ThreadingHTTPServer(
        ('127.0.0.1', 0), partial(Zipped, directory=str(html)))
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}/'
        server.shutdown()


# What Lighthouse calls "slow 4G": bytes per second, and milliseconds.
SLOW = {'offline': False, 'latency': 150,
        'downloadThroughput': 1.6e6 / 8, 'uploadThroughput': 0.75e6 / 8}
FIRST_PAINT = '''() => new Promise(done => new PerformanceObserver(
  list => done(list.getEntries()[0].startTime))
  .observe({type: 'largest-contentful-paint', buffered: true}))'''


@pytest.fixture(scope='module')
def loads(browser, zipped_site, html):
    """{chapter: (bytes sent, ms to the text)} on a slow telephone."""
    found = {}
    for path in sorted((html / 'chapters').glob('*.html')):
        context = browser.new_context(viewport={'width': 360, 'height': 740},
                                      device_scale_factor=2)
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        sent = []
        devtools.on('Network.loadingFinished',
                    lambda event: sent.append(event['encodedDataLength']))
        devtools.send('Network.enable')
        devtools.send('Network.emulateNetworkConditions', SLOW)
        devtools.send('Emulation.setCPUThrottlingRate', {'rate': 2})
        page.goto(f'{zipped_site}chapters/{path.name}', wait_until='load')
        shown = page.evaluate(FIRST_PAINT)
        page.wait_for_load_state('networkidle')
        found[path.stem] = sum(sent), shown
        context.close()
    return found


def test_a_chapter_weighs_little(loads):
    """What is sent, compressed; test_face.py has it unpacked."""
    heavy = {name: sent for name, (sent, _) in loads.items()
             if sent > 400_000}
    assert heavy == {} and all(sent > 30_000 for sent, _ in loads.values())


def test_a_chapter_is_there_soon(loads):
    """One second on a machine that does nothing else; a busy one gets
    three times as long."""
    shown = [ms for _, ms in loads.values()]
    print({name: round(ms) for name, (_, ms) in loads.items()})
    assert statistics.median(shown) < 3000


# What the time to the first paint is made of, and no machine's speed is in.

def test_little_is_sent_before_the_text(html):
    for path in sorted((html / 'chapters').glob('*.html')):
        page = path.read_text('utf-8')
        before = page[:page.index('</aside>', page.index('<h1>'))]
        assert len(gzip.compress(before.encode(), 6)) < 25_000, path.name
        # Each picture of the style is a document of its own.
        style = re.search('<style id="book-style.*?</style>', before, re.S)[0]
        assert style.count('data:image') <= 1, path.name


# Runs in the page: what its first paint waits for; which part of its
# elements that has; and how many wait once all has come.
PAINTED = '''async () => {
  const all = [...document.querySelectorAll('.bd-article *')];
  const shown = () => all.filter(element => element.checkVisibility(
    {contentVisibilityAuto: true})).length;
  const whole = shown();
  document.documentElement.classList.add('arriving');
  await new Promise(done => requestAnimationFrame(
    () => requestAnimationFrame(done)));
  const first = shown();
  document.documentElement.classList.remove('arriving');
  return [
    performance.getEntriesByType('resource')
      .filter(entry => entry.renderBlockingStatus === 'blocking')
      .map(entry => entry.name),
    [...document.querySelectorAll('link[rel=preload]')]
      .filter(link => matchMedia(link.media).matches).length,
    first / whole];
}'''


@pytest.mark.parametrize('reader', [PHONE], indirect=True, ids=['360px'])
def test_the_first_paint_is_of_the_first_screens(reader, html):
    for path in sorted((html / 'chapters').glob('*.html')):
        reader.open(f'chapters/{path.stem}')
        blocking, preloads, part = reader.page.evaluate(PAINTED)
        assert blocking == [] and preloads == 0 and part < 0.2, path.stem
    assert reader.wrong == []


def test_a_page_has_arrived_when_it_is_loaded(reader):
    """And who comes to a place in it finds all that is above."""
    page = reader.page
    page.add_init_script('''addEventListener('DOMContentLoaded', () => {
      window.early = document.documentElement.classList.contains('arriving');
    })''')
    classes = 'document.documentElement.className'
    for place, early in ('', True), ('#what-to-remember', False):
        page.goto('about:blank')
        page.goto(f'{reader.site}chapters/02_strides.html{place}')
        page.wait_for_function(f'!{classes}.includes("arriving")')
        assert page.evaluate('window.early') == early
    place = page.locator('#what-to-remember').bounding_box()
    assert -5 < place['y'] < 300
    page.reload()           # the browser goes back to where it was
    assert page.evaluate('window.early') is False
    assert reader.wrong == []


def test_a_page_says_its_width_once(html):
    for path in html.rglob('*.html'):
        if '_static' not in path.parts and path != html / 'index.html':
            assert path.read_text('utf-8').count('name="viewport"') == 1, path
