"""How long a reader waits for the first cell of a page that runs.

    python bench/live.py 08_autograd        (after `make book SERVE=0`)

Three visits in one browser: the first loads Python, the others have it in
the browser's cache.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / 'tools'), str(ROOT / 'tests' / 'book')]

import book  # noqa: E402
from conftest import CHROMIUM, FLAGS  # noqa: E402
from test_live_engine import Python  # noqa: E402


def main():
    chapter = sys.argv[1] if len(sys.argv) > 1 else '08_autograd'
    with (book.open_server(book.BUILT, 8300) as server,
          tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
          sync_playwright() as playwright):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, args=[*FLAGS, '--no-sandbox'])
        for visit in 1, 2, 3:
            page = browser.new_page()
            page.goto(f'http://localhost:{server.server_port}'
                      f'/chapters/{chapter}.html')
            begun = time.monotonic()
            python = Python(page, None, chapter)
            started = time.monotonic() - begun
            done, _ = python.run(
                f'from course import begin\nbegin("{chapter}")')
            assert done['ok'], done
            print(f'visit {visit}: Python after {started:.1f} s, the first'
                  f' cell after {time.monotonic() - begun:.1f} s')
        browser.close()
        server.shutdown()


if __name__ == '__main__':
    main()
