"""Builds the book into _build/html and serves it on this machine.

`make book` runs this; it needs the environment that `make setup` makes.
"""

import argparse
import functools
import http.server
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / '_build' / 'html'


def build(source, output=None, *options):
    """Run jupyter-book; returns its exit code and what it printed."""
    program = 'from jupyter_book.cli.main import main; main()'
    command = [sys.executable, '-c', program, 'build', str(source), *options]
    if output is not None:
        command += ['--path-output', str(output)]
    # jupyter-book's own messages are not ASCII.
    env = {**os.environ, 'PYTHONUTF8': '1', 'PYTHONIOENCODING': 'utf-8'}
    done = subprocess.run(command, env=env, cwd=source, encoding='utf-8',
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


class Handler(http.server.SimpleHTTPRequestHandler):
    # Not left to the system's table, which on Windows may name others.
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        '.css': 'text/css', '.js': 'text/javascript', '.mjs':
        'text/javascript', '.svg': 'image/svg+xml', '.json':
        'application/json', '.wasm': 'application/wasm', '.woff2':
        'font/woff2', '.ipynb': 'application/x-ipynb+json',
    }

    def end_headers(self):
        # A page that was built again must show at the next reload.
        self.send_header('Cache-Control', 'no-cache')
        super().end_headers()

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    # On Windows the option means: share a port that is in use.
    allow_reuse_address = os.name == 'posix'
    daemon_threads = True


def open_server(directory, first_port=8000):
    """A server of `directory` on the first free port from `first_port`."""
    handler = functools.partial(Handler, directory=str(directory))
    for port in range(first_port, first_port + 100):
        try:
            return Server(('127.0.0.1', port), handler)
        except OSError:
            continue
    sys.exit(f'make: no free port from {first_port} to {first_port + 99};'
             ' name another: make book PORT=9000')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--port', type=int, default=8000)
    parser.add_argument('--serve', type=int, default=1, choices=(0, 1))
    args = parser.parse_args()

    print('Building the book.', flush=True)
    start = time.monotonic()
    code, text = build(ROOT)
    warnings = [line for line in text.splitlines() if 'WARNING' in line
                or 'ERROR' in line]
    if code:
        sys.exit(text + '\nmake: the book could not be built.')
    for line in warnings:
        print(line)
    print(f'Built {BUILT.relative_to(ROOT)} in'
          f' {time.monotonic() - start:.0f} s.', flush=True)
    if not args.serve:
        return
    with open_server(BUILT, args.port) as server:
        print(f'\nRead it at  http://localhost:{server.server_port}/'
              '\nCtrl-C stops serving.', flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print('\nStopped.')


if __name__ == '__main__':
    main()
