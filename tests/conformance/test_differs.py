"""The page "Where Lamina differs" is true, and so is the list beside it."""

import doctest
import re
import tomllib
from pathlib import Path

import pytest

import lamina

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / 'book' / 'where-lamina-differs.md'
TEXT = PAGE.read_text(encoding='utf-8')
LIST = tomllib.loads((Path(__file__).parent / 'differs.toml').read_text(
    encoding='utf-8'))

SECTIONS = dict(part.split('\n', 1) for part in
                re.split(r'^## ', TEXT, flags=re.M)[1:])
FENCE = re.compile(r'^```pycon\n(.*?)^```$', re.M | re.S)


@pytest.mark.parametrize('heading', SECTIONS)
def test_its_examples(heading):
    """Each section has one, and it prints what is on the page."""
    blocks = FENCE.findall(SECTIONS[heading])
    assert blocks, 'a difference without an example'
    example = doctest.DocTestParser().get_doctest(
        '\n'.join(blocks), {'lamina': lamina}, heading, str(PAGE), 0)
    said = []
    doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(
        example, out=said.append)
    assert not said, ''.join(said)


def test_it_has_a_place_in_the_book():
    assert 'book/where-lamina-differs' in (ROOT / '_toc.yml').read_text(
        encoding='utf-8')
    assert 'where-lamina-differs.md' in (
        ROOT / 'book' / 'pytorch-map.md').read_text(encoding='utf-8')


def test_the_list():
    """Each entry has a reason, in a section or in words; nothing twice."""
    seen = []
    for entry in LIST['differs']:
        assert entry.keys() <= {'why', 'page', 'opinfo', 'views',
                                'scenarios'}
        assert entry['why'].endswith('.')
        if 'page' in entry:
            assert entry['page'] in SECTIONS
        for judge in 'opinfo', 'views', 'scenarios':
            seen += [(judge, name) for name in entry.get(judge, ())]
    assert len(seen) == len(set(seen))
    assert all('/' in name for judge, name in seen if judge == 'opinfo')
