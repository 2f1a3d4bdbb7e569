"""The stepper in a real browser: buttons, keys, words, and no script."""

import types

import pytest

from course.stepper import stepper
from explore_pages import AS_IN_JUPYTERLAB, page  # noqa: F401

FRAME = '<!doctype html><meta charset="utf-8"><title>Test</title>{}'


def node(name, value, inputs=(), locals=()):
    return types.SimpleNamespace(
        name=name, value=value, inputs=inputs,
        contributions=lambda grad: [grad * local for local in locals])


def shared():
    """d = b * (b + a) with b = a * a, at 3: a waits for three shares."""
    a = node('a', 3.0)
    b = node('b', 9.0, (a, a), (3.0, 3.0))
    c = node('c', 12.0, (b, a), (1.0, 1.0))
    return node('d', 108.0, (b, c), (12.0, 9.0))


def state(page, nth=0):
    """What is to be seen: the words, the place, the gradients' lines."""
    root = page.locator('.lamina-stepper').nth(nth)
    return (root.locator('.words').inner_text(),
            root.locator('.place').inner_text(),
            root.locator('.grad').all_text_contents())


def test_all_steps_by_button(page):
    stepped = stepper(shared())
    page.set_content(FRAME.format(stepped.html))
    for i, step in enumerate(stepped.steps):
        words, place, grads = state(page)
        assert words == step['words']
        assert place == f'Step {i} of {len(stepped.steps) - 1}'
        for grad, due in zip(grads[::-1], step['grads'], strict=True):
            assert (due or '\u2013') in grad
        assert page.locator('.moves').count() == len(step['edges'])
        assert page.locator('[data-state=now]').count() == (
            0 < i < len(stepped.steps) - 1)
        # forced: at the end the button has no effect, and says so
        page.get_by_role('button', name='Next step').click(force=True)
    assert state(page)[0] == stepped.steps[-1]['words']
    page.get_by_role('button', name='Step back').click()
    assert state(page)[0] == stepped.steps[-2]['words']
    page.get_by_role('button', name='First step').click()
    assert state(page)[0] == stepped.steps[0]['words']
    page.get_by_role('button', name='Last step').click()
    assert state(page)[0] == stepped.steps[-1]['words']


def test_keys_alone(page):
    stepped = stepper(shared())
    page.set_content(FRAME.format(
        '<script>addEventListener("keydown", e => '
        'document.title = "page saw " + e.key)</script>' + stepped.html))
    page.keyboard.press('Tab')
    assert page.evaluate('document.activeElement.className') == (
        'lamina-play lamina-stepper')
    page.keyboard.press('ArrowRight')
    page.keyboard.press('ArrowRight')
    assert state(page)[0] == stepped.steps[2]['words']
    page.keyboard.press('ArrowLeft')
    assert state(page)[0] == stepped.steps[1]['words']
    page.keyboard.press('End')
    assert state(page)[0] == stepped.steps[-1]['words']
    page.keyboard.press('Home')
    assert state(page)[0] == stepped.steps[0]['words']
    # a page that turns with the arrow keys does not turn
    assert 'Arrow' not in page.title() and 'Home' not in page.title()
    for _ in range(3):      # First, Back, Next
        page.keyboard.press('Tab')
    page.keyboard.press('Enter')
    assert state(page)[0] == stepped.steps[1]['words']
    page.keyboard.press('ArrowRight')       # from a button, too
    assert state(page)[0] == stepped.steps[2]['words']


def test_the_words_are_announced(page):
    page.set_content(FRAME.format(stepper(shared()).html))
    assert page.locator('.words').get_attribute('aria-live') == 'polite'
    assert page.get_by_role('group', name='Backward step by step').count()
    first = page.get_by_role('button', name='First step')
    assert first.get_attribute('aria-disabled') == 'true'
    first.focus()
    page.keyboard.press('ArrowRight')
    assert first.get_attribute('aria-disabled') == 'false'


def test_two_on_a_page_do_not_disturb_each_other(page):
    html = stepper(shared()).html
    page.set_content(FRAME.format(html + html))
    page.get_by_role('button', name='Next step').nth(1).click()
    assert state(page, 0)[1].startswith('Step 0')
    assert state(page, 1)[1].startswith('Step 1')


def test_as_jupyterlab_puts_it_on_the_page(page):
    page.set_content(FRAME.format('<body></body>'))
    html = stepper(shared()).html
    page.evaluate(AS_IN_JUPYTERLAB, html)
    page.evaluate(AS_IN_JUPYTERLAB, html)       # a cell that ran again
    page.get_by_role('button', name='Next step').nth(1).click()
    assert [state(page, k)[1][:6] for k in (0, 1)] == ['Step 0', 'Step 1']
    assert page.locator('.lamina-stepper').first.get_attribute(
        'data-lm-suppress-shortcuts') == 'true'


@pytest.mark.parametrize('page', [{'java_script_enabled': False}],
                         indirect=True, ids=['no script'])
def test_without_scripts_all_steps_are_there(page):
    stepped = stepper(shared())
    page.set_content(FRAME.format(stepped.html))
    assert page.locator('img').evaluate('image => image.naturalWidth') > 200
    assert page.locator('img').get_attribute('alt').endswith(
        stepped.steps[0]['words'])
    assert not page.get_by_role('button').count()
    shown = page.locator('table').inner_text()
    for step in stepped.steps:
        assert step['words'] in shown


@pytest.mark.parametrize('page', [
    {'viewport': {'width': 360, 'height': 700}}], indirect=True,
    ids=['360px'])
def test_a_telephone_is_wide_enough(page):
    page.set_content(FRAME.format(
        '<meta name="viewport" content="width=device-width">'
        + stepper(shared()).html))
    assert page.evaluate('document.documentElement.scrollWidth') <= 360
    box = page.locator('.picture').bounding_box()
    for _ in range(len(stepper(shared()).steps) - 2):
        page.get_by_role('button', name='Next step').click()
        its = page.locator('.node[data-state=now]').bounding_box()
        assert box['x'] <= its['x'] + 1
        assert its['x'] + its['width'] <= box['x'] + box['width'] + 1
