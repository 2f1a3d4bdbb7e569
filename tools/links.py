"""Follows every link that leaves the book, and says which lead nowhere.

`make links` runs this. It needs the network, which no test does. A page that
is gone, a place on it that is gone, and a server that does not answer make it
fail; a page that has moved for good is told, with where to.
"""

import argparse
import json
import sys
from pathlib import Path

import book

ROOT = book.ROOT
OUTPUT = ROOT / '_build' / 'links'
WRONG = 'broken', 'timeout'
FOR_GOOD = 301, 308


def check(source, output):
    """Sphinx's linkcheck: what it found of each link, as dictionaries."""
    code, text = book.build(source, output, '--all', '--builder', 'linkcheck')
    found = list(Path(output).rglob('output.json'))
    if not found:
        sys.exit(text + '\nmake: the links could not be read.')
    return [json.loads(line) for line in
            found[0].read_text(encoding='utf-8').splitlines()]


def report(links):
    """What to print of them, and how many lead nowhere."""
    lines, wrong = [], 0
    for link in sorted(links, key=lambda link: link['uri']):
        place = f'{link["filename"]}:{link["lineno"]}'
        if link['status'] in WRONG:
            wrong += 1
            lines.append(f'{place}: {link["uri"]}\n    {link["status"]}:'
                         f' {link["info"]}')
        elif link['status'] == 'redirected' and link['code'] in FOR_GOOD:
            lines.append(f'{place}: {link["uri"]}\n    moved for good to'
                         f' {link["info"]}')
    followed = sum(link['status'] not in ('unchecked', 'local', 'ignored')
                   for link in links)
    lines.append(f'{followed} links followed, {wrong} lead nowhere.')
    return lines, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--source', type=Path, default=ROOT,
                        help='the book: %(default)s')
    parser.add_argument('--output', type=Path, default=OUTPUT,
                        help='where to put what was found: %(default)s')
    args = parser.parse_args()
    print('Following the links.', flush=True)
    lines, wrong = report(check(args.source, args.output))
    print('\n'.join(lines))
    sys.exit(bool(wrong))


if __name__ == '__main__':
    main()
