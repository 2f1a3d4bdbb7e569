"""The book is built once, with warnings as errors, for all of these tests."""

import shutil
import threading

import pytest

from book_build import ROOT, strict_build, tools_book


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


@pytest.fixture
def small_book(tmp_path):
    """A book of two pages with this one's configuration, to break."""
    book = tmp_path / 'small'
    for folder in '_ext', '_static':
        shutil.copytree(ROOT / 'book' / folder, book / 'book' / folder,
                        ignore=shutil.ignore_patterns('__pycache__'))
    for name in '_config.yml', 'book/references.bib':
        shutil.copy(ROOT / name, book / name)
    (book / '_toc.yml').write_text(
        'format: jb-book\nroot: book/welcome\nparts:\n- caption: Part\n'
        '  chapters:\n  - file: book/page\n', encoding='utf-8')
    (book / 'book' / 'welcome.md').write_text('# Welcome\n\nText.\n',
                                              encoding='utf-8')
    (book / 'book' / 'page.md').write_text('# Page\n\nText.\n',
                                           encoding='utf-8')
    return book
