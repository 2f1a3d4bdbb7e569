"""Makes .venv, or repairs it, with all that requirements.txt names.

`make` runs this. Where there is no make: `py tools/setup.py`.

The last step writes .venv/lamina.txt, which says what the environment was
made from. While it is missing or says something else, the environment is not
trusted: an interrupted set-up, a moved folder, another Python start afresh,
changed requirements are installed on top.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))
VENV = os.path.join(ROOT, '.venv')
STAMP = os.path.join(VENV, 'lamina.txt')
LOG = os.path.join(VENV, 'setup.log')
INPUTS = 'requirements.txt', 'pyproject.toml'


def place():
    """What an environment cannot survive a change of."""
    return ['python %d.%d' % sys.version_info[:2], 'root ' + ROOT]


def inputs():
    """What was installed: a hash of each file that says so."""
    lines = []
    for name in INPUTS:
        with open(os.path.join(ROOT, name), 'rb') as file:
            # A checkout on Windows may have other line ends.
            text = file.read().replace(b'\r\n', b'\n')
        lines.append('%s %s' % (name, hashlib.sha256(text).hexdigest()))
    return lines


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
        print('Starting .venv afresh: it is unfinished, was moved, or'
              ' belongs to another Python.', flush=True)
        if os.path.islink(VENV) or not os.path.isdir(VENV):
            os.remove(VENV)
        else:
            shutil.rmtree(VENV)
    print('Making .venv with Python %d.%d.%d (%s).'
          % (*sys.version_info[:3], sys.executable), flush=True)
    done = subprocess.run([sys.executable, '-m', 'venv', VENV],
                          capture_output=True, text=True)
    if done.returncode:
        fail('python -m venv failed:\n%s%s' % (done.stdout, done.stderr))


def install():
    print('Installing what requirements.txt names'
          ' (the first time: one to three minutes).', flush=True)
    command = [venv_python(), '-m', 'pip', 'install',
               '--disable-pip-version-check', '--no-input',
               '--progress-bar', 'off', '-r', 'requirements.txt']
    with open(LOG, 'w', encoding='utf-8', newline='\n') as log:
        code = subprocess.run(command, cwd=ROOT, stdout=log,
                              stderr=subprocess.STDOUT).returncode
    if code:
        fail('pip could not install everything. The end of %s:\n\n%s\n'
             'Is the network reachable? Call the same command again to go'
             ' on.' % (os.path.relpath(LOG, ROOT), tail(LOG)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--ready', action='store_true',
                        help='only say (exit code 0) that all is in place')
    ready_only = parser.parse_args().ready
    have = stamp()
    if have == place() + inputs() and runs(venv_python()):
        return
    if ready_only:
        sys.exit(1)

    start = time.monotonic()
    if have[:2] != place() or not runs(venv_python()):
        create()
    else:
        # From here to the end the environment counts as unfinished.
        os.remove(STAMP)
    install()
    with open(STAMP, 'w', encoding='utf-8', newline='\n') as file:
        file.write('\n'.join(place() + inputs()) + '\n')
    print('.venv is ready (%d s).' % (time.monotonic() - start), flush=True)


if __name__ == '__main__':
    main()
