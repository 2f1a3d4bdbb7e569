"""The book is built once, with warnings as errors, for all of these tests."""

import os
import re
import shutil
import subprocess
import sys
import threading

import pytest

from book_build import ROOT, lacking, strict_build, tools_book


CHROMIUM = next(filter(None, [
    os.environ.get('CHROMIUM'),
    *map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome',
                        'google-chrome-stable', 'chrome', 'msedge'))]), None)
FLAGS = [
    '--disable-gpu', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--disable-quic',
    '--disable-dev-shm-usage',
    # The network is cut off.
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost ,'
    ' EXCLUDE 127.0.0.1',
]


@pytest.fixture(scope='session')
def chromium():
    """How playwright launches the browser."""
    if CHROMIUM is None:
        lacking('no Chromium on PATH (or CHROMIUM=/path/to/it)')
    flags = FLAGS
    if hasattr(os, 'geteuid') and os.geteuid() == 0:
        flags = [*FLAGS, '--no-sandbox']
    return {'executable_path': CHROMIUM, 'args': flags}


@pytest.fixture(scope='session')
def browser(chromium):
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium)
        yield browser
        browser.close()


@pytest.fixture(scope='session')
def build(tmp_path_factory):
    """The build itself, which may have failed."""
    return strict_build(ROOT, tmp_path_factory.mktemp('book'))


@pytest.fixture(scope='session')
def html(build):
    """The folder of the built book."""
    if build.code:
        pytest.fail('the book does not build; see test_build.py',
                    pytrace=False)
    return build.html


@pytest.fixture(scope='session')
def site(html):
    """The address of the built book, served as `make book` does."""
    with tools_book.open_server(html, 8100) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://localhost:{server.server_port}/'
        server.shutdown()


@pytest.fixture(scope='session')
def plain_site(html):
    """The address of the built book, served by a server that is not ours."""
    with subprocess.Popen(
            [sys.executable, '-u', '-m', 'http.server', '0', '--bind',
             '127.0.0.1', '--directory', str(html)], encoding='utf-8',
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        yield re.search(r'http://[\d.:]+/', server.stdout.readline())[0]
        server.kill()


@pytest.fixture
def small_book(tmp_path):
    """A book of two pages with this one's configuration, to break."""
    book = tmp_path / 'small'
    for folder in '_ext', '_static', '_templates':
        shutil.copytree(ROOT / 'book' / folder, book / 'book' / folder,
                        ignore=shutil.ignore_patterns('__pycache__'))
    for name in '_config.yml', 'pyproject.toml', 'book/references.bib', \
            'book/aids.toml':
        shutil.copy(ROOT / name, book / name)
    (book / '_toc.yml').write_text(
        'format: jb-book\nroot: book/welcome\nparts:\n- caption: Part\n'
        '  chapters:\n  - file: book/page\n', encoding='utf-8')
    (book / 'book' / 'welcome.md').write_text('# Welcome\n\nText.\n',
                                              encoding='utf-8')
    (book / 'book' / 'page.md').write_text('# Page\n\nText.\n',
                                           encoding='utf-8')
    return book
