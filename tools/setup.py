"""Makes .venv, or repairs it, with all that requirements.txt names.

`make` runs this. Where there is no make: `py tools/setup.py`. With
`--environment conformance` it is another one, for `make conformance`.

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
# The folder of each environment, and the files that say what is in it.
ENVIRONMENTS = {
    'course': ('.venv', 'requirements.txt', 'pyproject.toml'),
    'conformance': ('.venv-conformance',
                    os.path.join('tests', 'conformance', 'requirements.txt')),
}


def choose(name):
    global NAME, VENV, STAMP, LOG, INPUTS
    NAME, *INPUTS = ENVIRONMENTS[name]
    VENV = os.path.join(ROOT, NAME)
    STAMP = os.path.join(VENV, 'lamina.txt')
    LOG = os.path.join(VENV, 'setup.log')


choose('course')


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--ready', action='store_true',
                        help='only say (exit code 0) that all is in place')
    parser.add_argument('--environment', choices=ENVIRONMENTS,
                        default='course', help='which one: %(choices)s')
    args = parser.parse_args()
    choose(args.environment)
    ready_only = args.ready
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
    print('%s is ready (%d s).' % (NAME, time.monotonic() - start), flush=True)


if __name__ == '__main__':
    main()
