"""`make links`, with a server on this machine in the place of the others."""

import http.server
import importlib.util
import sys
import threading
import time

import pytest

from book_build import ROOT, tools_book

PAGE = b'<!doctype html><title>Page</title><h2 id="here">Here</h2>'


class Others(http.server.BaseHTTPRequestHandler):
    """What the web does to a link."""

    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        where = self.path.split('?')[0]
        if where == '/slow':
            time.sleep(4)
        if where == '/gone':
            return self.answer(404)
        if where == '/moved':
            return self.answer(301, ('Location', '/page'))
        if where == '/elsewhere':
            return self.answer(302, ('Location', '/page'))
        self.answer(200)

    def answer(self, status, *headers):
        try:
            self.send_response(status)
            for header in headers:
                self.send_header(*header)
            self.send_header('Content-Type', 'text/html')
            self.end_headers()
            self.wfile.write(PAGE)
        except ConnectionError:     # nobody waits any more
            pass

    def log_message(self, *args):
        pass


@pytest.fixture
def others():
    Others.asked.clear()
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Others) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}'
        server.shutdown()


@pytest.fixture
def links(monkeypatch):
    monkeypatch.setitem(sys.modules, 'book', tools_book)
    spec = importlib.util.spec_from_file_location(
        'lamina_tools_links', ROOT / 'tools' / 'links.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_are_followed(links, others, small_book, tmp_path):
    config = small_book / '_config.yml'
    config.write_text(config.read_text('utf-8').replace(
        'linkcheck_timeout: 20', 'linkcheck_timeout: 2'), 'utf-8')
    (small_book / 'book/page.md').write_text('# Page\n\n' + '\n'.join(
        f'- [{path}]({others}{path})' for path in (
            '/page', '/page#here', '/page#nowhere', '/gone', '/moved',
            '/elsewhere', '/slow')) + '\n- [closed](http://127.0.0.1:9/x)\n'
        '- [inside](welcome.md)\n', 'utf-8')
    found = links.check(small_book, tmp_path / 'out')
    lines, wrong = links.report(found)
    text = '\n'.join(lines)
    assert wrong == 4, text
    for path in '/page#nowhere', '/gone', '/slow':
        assert f'{others}{path}\n    broken' in text or (
            f'{others}{path}\n    timeout' in text), text
    assert 'http://127.0.0.1:9/x' in text
    assert f'/moved\n    moved for good to {others}/page' in text
    assert '/elsewhere' not in text and '/page#here' not in text
    assert 'book/page.md' in text
    assert lines[-1] == '8 links followed, 4 lead nowhere.'


def test_a_link_inside_the_book_is_not_followed(links, others, small_book,
                                                tmp_path):
    lines, wrong = links.report(links.check(small_book, tmp_path / 'out'))
    assert lines == ['0 links followed, 0 lead nowhere.'] and not wrong
    assert Others.asked == []
