"""Opens every page of the built book, in light and dark, on a wide screen
and on a telephone, and writes down what is wrong with it.

Each page is opened once in each combination; all that is asked of it is
asked then. Two pages are open at a time.
"""

import asyncio
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

WIDTHS = 1440, 360
SCHEMES = 'light', 'dark'
AT_ONCE = 3

# Where a fault was found: what is wrong, and on which page of which kind.
Fault = namedtuple('Fault', 'kind page width scheme text')


def failure(request):
    """Why a request failed; None where the page was left before its answer,
    which is nobody's fault."""
    if request.failure != 'net::ERR_ABORTED':
        return f'{request.failure} {request.url}'


# Runs in the page; waits until all is there that it shows.
SETTLE = '''async () => {
  for (const fold of document.querySelectorAll('details')) fold.open = true;
  for (const image of document.images) image.loading = 'eager';
  await document.fonts.ready;
  await Promise.all([...document.images].map(
    image => image.decode().catch(() => null)));
  await new Promise(done => requestAnimationFrame(
    () => requestAnimationFrame(done)));
}'''

# Runs in the page; returns [kind, text] of what is wrong with its looks.
LOOK = '''() => {
  const wrong = [];
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth)
    wrong.push(['width', `${page.scrollWidth} px`]);
  for (const image of document.querySelectorAll(
      'img, .cell_output svg, object, embed')) {
    // The theme keeps a second copy, for the other scheme, out of sight.
    const hidden = !image.checkVisibility() &&
      image.closest('.only-light, .only-dark, .header-article, dialog');
    const box = image.getBoundingClientRect();
    if (!hidden && (box.width < 1 || box.height < 1 ||
        image.tagName === 'IMG' && !image.naturalWidth))
      wrong.push(['image', image.outerHTML.slice(0, 200)]);
  }
  if (innerWidth > 1000)
    for (const pre of document.querySelectorAll('.cell_input pre'))
      if (pre.scrollWidth > pre.clientWidth && Math.max(
          ...pre.textContent.split('\\n').map(line => line.length)) <= 79)
        wrong.push(['code', pre.textContent]);
  const theme = page.dataset.theme;
  const asked = matchMedia('(prefers-color-scheme: dark)').matches ?
    'dark' : 'light';
  if (theme !== asked) wrong.push(['theme', `${theme}, not ${asked}`]);
  return wrong;
}'''

# Runs in the page. A chapter has 30,000 coloured words of code, of a dozen
# kinds. For axe, which takes its time with each, one of a kind is kept.
ONE_OF_A_KIND = '''() => {
  const seen = new Set(), again = [];
  for (const word of document.querySelectorAll('.highlight pre span')) {
    const style = getComputedStyle(word);
    const place = word.closest('.highlight').parentElement.className;
    const kind = [word.className, style.color, style.backgroundColor,
                  style.fontWeight, place].join();
    if (seen.has(kind)) again.push(word);
    seen.add(kind);
  }
  for (const word of again) word.replaceWith(...word.childNodes);
  document.body.normalize();
}'''

AXE = '''async () => {
  const found = await axe.run(
    document, {resultTypes: ['violations'], preload: false});
  return found.violations.flatMap(rule => rule.nodes.map(node =>
    `${rule.id}: ${node.html.slice(0, 200)} (${node.failureSummary})`));
}'''


async def visit(context, site, name, axe, note):
    """Open one page, and note what is wrong with it."""
    page = await context.new_page()

    def on_console(message):
        if message.type in ('error', 'warning'):
            note('console', message.text)

    def on_request(request):
        if not request.url.startswith((site, 'data:', 'blob:')):
            note('outside', request.url)

    def on_response(response):
        if response.status >= 400:
            note('request', f'{response.status} {response.url}')

    page.on('console', on_console)
    page.on('pageerror', lambda error: note('console', str(error)))
    page.on('request', on_request)
    page.on('response', on_response)
    page.on('requestfailed', lambda request: failure(request) and note(
        'request', failure(request)))
    try:
        await page.goto(site + name, wait_until='load')
        await page.evaluate(SETTLE)
        for kind, text in await page.evaluate(LOOK):
            note(kind, text)
        await page.evaluate(ONE_OF_A_KIND)
        await page.evaluate(axe)
        for text in await page.evaluate(AXE):
            note('axe', text)
    finally:
        await page.close()


async def visit_all(options, site, names, axe, combinations):
    from playwright.async_api import async_playwright
    faults = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**options)
        for width, scheme in combinations:
            context = await browser.new_context(
                viewport={'width': width, 'height': 800},
                color_scheme=scheme)
            waiting = list(names)

            async def work():
                while waiting:
                    name = waiting.pop(0)
                    await visit(context, site, name, axe, lambda kind, text:
                                faults.append(Fault(kind, name, width,
                                                    scheme, text)))

            await asyncio.gather(*[work() for _ in range(AT_ONCE)])
            await context.close()
        await browser.close()
    return faults


def sweep(options, site, names, axe, combinations=None):
    """All faults of the pages, in a browser launched with `options`."""
    combinations = combinations or [(width, scheme) for width in WIDTHS
                                    for scheme in SCHEMES]
    # Tests in this thread have a browser, and with it a loop, of their own.
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, visit_all(
            options, site, names, axe, combinations)).result()
