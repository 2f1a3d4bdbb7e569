"""What the tests of explorers in a browser share."""

import functools

import pytest

import lamina

from course import explore
from course.stepper import stepper

FRAME = ('<!doctype html><html lang="en"><meta charset="utf-8">'
         '<meta name="viewport" content="width=device-width">'
         '<title>Test</title><main><h1>Test</h1>{}</main>')


# What JupyterLab does with an output: markup first, scripts made anew.
AS_IN_JUPYTERLAB = '''html => {
  const host = document.createElement('div');
  host.innerHTML = html;
  for (const old of host.querySelectorAll('script')) {
    const made = document.createElement('script');
    for (const {name, value} of old.attributes) made.setAttribute(name, value);
    made.textContent = old.textContent;
    old.parentNode.replaceChild(made, old);
  }
  document.body.append(host);
}'''


def valley(u, v):
    return 0.5 * u * u + 10.0 * v * v


def wells(u, v):
    t = u * u - 4.0
    return 0.1 * t * t + 0.3 * u + 2.0 * v * v


def bend(u, v):
    off = v + 1.0 - 0.2 * u * u
    return 5.0 * off * off + 0.1 * (u - 3.0) * (u - 3.0)


SURFACES = {'a valley': valley, 'two wells': wells, 'a bend': bend}
OPTIMIZERS = [lamina.optim.SGD, lamina.optim.RMSprop, lamina.optim.Adagrad,
              lamina.optim.Adam]


def traced():
    x = lamina.tensor([1.0, 2.0])
    w = lamina.tensor([3.0, 4.0], requires_grad=True)
    return explore.trace(
        lamina.dispatch, dict(x=x, w=w, half=x.half(), p=x.to('python')),
        {'two tensors': 'x * x', 'a gradient': 'w * x', 'half': 'half * x',
         'two devices': 'x * p'})


def stepped():
    w = lamina.tensor([1.0, 2.0], requires_grad=True)
    return stepper((w * w).sum(), names={'w': w})


MADE = {'strides': lambda: explore.strides(lamina.arange(12).view(3, 4)),
        'broadcasting': lambda: explore.broadcasting(
            lamina.broadcast_shapes),
        'trace': traced,
        'surface': lambda: explore.surface(SURFACES, OPTIMIZERS),
        'stepper': stepped}


@functools.cache
def html(kind):
    return MADE[kind]().html


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
