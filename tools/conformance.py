"""Compares Lamina with PyTorch, and with what is written down of it.

`make conformance` runs this. The judges are three programs in a folder of
their own; they need torch, which lives in an environment of its own. Every
disagreement that they find must be in tests/conformance/differs.toml, with
its reason, and everything there must still be one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / 'tests' / 'conformance' / 'differs.toml'
PYTHON = ROOT / '.venv-conformance' / (
    'Scripts/python.exe' if os.name == 'nt' else 'bin/python')
JUDGES = {'opinfo': ('opinfo.py', '--tier', 'extended'),
          'views': ('views.py',),
          'scenarios': ('autograd_semantics.py',)}


def of_opinfo(found):
    """{what disagrees: how} of an answer of opinfo.py."""
    result = {}
    for name, judged in found['ops'].items():
        name = name.partition(':')[0]       # all variants under one name
        if judged['missing']:
            result[f'{name}/missing'] = judged['first_failure']
        for section, count in judged.items():
            if isinstance(count, dict) and 'samples' in count and (
                    count['passed'] < count['samples']):
                result[f'{name}/{section}'] = (
                    f'{count["passed"]} of {count["samples"]}: '
                    f'{count["first_failure"]}')
    promotion = found['promotion'] or {'per_op': {}}
    for name, count in promotion['per_op'].items():
        if count['passed'] < count['samples']:
            result[f'{name}/promotion'] = count['first_failure']
    return result


def of_views(found):
    result = {judged['property']: judged['failure']
              for judged in found['results'] if not judged['passed']}
    programs = found['summary']['programs']
    if programs and programs['passed'] < programs['programs']:
        result['programs'] = programs['first_failure']
    return result


def of_scenarios(found):
    return {name: '; '.join(judged['failures'])
            for name, judged in found['results'].items()
            if not judged['passed']}


READERS = {'opinfo': of_opinfo, 'views': of_views,
           'scenarios': of_scenarios}


def judge(name, python, folder, scratch):
    """Run one judge: ({what disagrees: how}, its last lines)."""
    answer = Path(scratch, f'{name}.json')
    program, *options = JUDGES[name]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT / 'src'),
                   'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'}
    done = subprocess.run(
        [str(python), str(folder / program), '--module', 'lamina', *options,
         '--json', str(answer)], cwd=scratch, env=environment,
        encoding='utf-8', stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode or not answer.exists():
        sys.exit(f'make conformance: {program} did not finish:\n\n'
                 + done.stdout[-3000:])
    found = json.loads(answer.read_text(encoding='utf-8'))
    summary = [line for line in done.stdout.splitlines()
               if not line.startswith(('FAIL', 'MISSING', 'SCORE', 'info'))]
    return READERS[name](found), summary


def written():
    """{'judge what': why} of the list."""
    entries = tomllib.loads(LIST.read_text(encoding='utf-8'))
    return {f'{name} {what}': entry['why']
            for entry in entries.get('differs', ())
            for name in JUDGES for what in entry.get(name, ())}


def compare(found, known):
    """(disagreements that nobody wrote down, entries that are no more)."""
    return (sorted(found.keys() - known.keys()),
            sorted(known.keys() - found.keys()))


def environment(python):
    """The Python that has torch; made or repaired if none is named."""
    if not python:
        done = subprocess.run([sys.executable, str(ROOT / 'tools/setup.py'),
                               '--environment', 'conformance'])
        if done.returncode:
            sys.exit('make conformance: without torch there is nothing to '
                     'compare with. `make test` does not need it.')
        python = PYTHON
    asked = subprocess.run([str(python), '-c', 'import torch, numpy, '
                            'hypothesis; print(torch.__version__)'],
                           capture_output=True, encoding='utf-8')
    if asked.returncode:
        sys.exit(f'make conformance: {python} cannot import what the judges '
                 f'need:\n{asked.stderr.strip().splitlines()[-1]}\n`make test`'
                 f' does not need it.')
    return python, asked.stdout.strip()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--judges', type=Path,
                        default=ROOT.parent / 'shared' / 'conformance',
                        help='the folder of the judges')
    parser.add_argument('--python', help='a Python that has torch already')
    parser.add_argument('--only', help='some of: ' + ', '.join(JUDGES))
    args = parser.parse_args(arguments)
    folder = args.judges.resolve()
    names = args.only.split(',') if args.only else list(JUDGES)
    lacking = [JUDGES[name][0] for name in names
               if not (folder / JUDGES[name][0]).exists()]
    if lacking:
        sys.exit(f'make conformance: no {", ".join(lacking)} in {folder}.\n'
                 f'Name the folder of the judges:'
                 f' make conformance JUDGES=folder')
    python, version = environment(args.python)
    print(f'Comparing with torch {version}; this takes some minutes.',
          flush=True)

    found = {}
    with tempfile.TemporaryDirectory() as scratch, \
            ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {name: pool.submit(judge, name, python, folder, scratch)
                   for name in names}
        for name, job in running.items():
            disagree, summary = job.result()
            print(f'\n{name}\n' + '\n'.join('  ' + s for s in summary),
                  flush=True)
            found |= {f'{name} {what}': how
                      for what, how in disagree.items()}
    known = {what: why for what, why in written().items()
             if what.split()[0] in names}
    new, gone = compare(found, known)
    print(f'\n{len(found)} disagreements, {len(found) - len(new)} of them '
          f'in {LIST.relative_to(ROOT).as_posix()}.')
    for what in new:
        print(f'  NEW   {what}: {found[what]}')
    for what in gone:
        print(f'  GONE  {what}: take it out of the list')
    return 1 if new or gone else 0


if __name__ == '__main__':
    sys.exit(main())
