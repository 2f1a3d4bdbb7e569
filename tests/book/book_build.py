"""Builds the book as CI does, for the tests."""

import importlib.util
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location(
    'lamina_tools_book', ROOT / 'tools' / 'book.py')
tools_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tools_book)

STRICT = '--all', '-W', '-n', '--keep-going'


def toc_entries(path=ROOT / '_toc.yml'):
    """The pages that _toc.yml lists, in reading order."""
    toc = yaml.safe_load(path.read_text(encoding='utf-8'))

    def below(entries):
        for entry in entries:
            yield entry['file']
            yield from below(entry.get('sections', ()))

    return [toc['root'], *(file for part in toc['parts']
                           for file in below(part['chapters']))]


def markdown(path):
    """The Markdown of a page or of a notebook's text cells."""
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.ipynb':
        text = '\n\n'.join(''.join(cell['source'])
                           for cell in json.loads(text)['cells']
                           if cell['cell_type'] == 'markdown')
    return text


def strict_build(source, output):
    """Build as CI does. Returns .code, .text and .html, the pages' folder."""
    code, text = tools_book.build(source, output, *STRICT)
    return SimpleNamespace(code=code, text=text,
                           html=Path(output) / '_build' / 'html')


def lacking(what):
    """Skip a test that needs what is not here. CI has it, or fails."""
    if os.environ.get('CI'):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)
