"""What the tests of explorers in a browser share."""

import pytest

FRAME = ('<!doctype html><html lang="en"><meta charset="utf-8">'
         '<meta name="viewport" content="width=device-width">'
         '<title>Test</title><main><h1>Test</h1>{}</main>')


def words(page, nth=0):
    return page.locator('.lamina-play').nth(nth).locator(
        '.words').inner_text()


@pytest.fixture
def page(browser, request):
    """A page on which anything that is written to the console, and any
    request, is an error."""
    context = browser.new_context(**getattr(request, 'param', {}))
    page = context.new_page()
    wrong = []
    page.on('console', lambda m: wrong.append(m.text))
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('request', lambda r: wrong.append(r.url)
            if not r.url.startswith(('about:', 'data:')) else None)
    yield page
    context.close()
    assert wrong == []
