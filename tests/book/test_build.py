"""The book builds without a warning, and refuses what it must refuse."""

import json

from book_build import strict_build, toc_entries

CHAPTERS = [
    '01_storage', '02_strides', '03_dispatch', '04_broadcasting',
    '05_reductions', '06_matmul', '07_scalar', '08_autograd', '09_nn',
    '10_optim', '11_training',
]


def test_builds_without_a_warning(build):
    assert build.code == 0, build.text
    assert 'WARNING' not in build.text


def test_every_entry_has_a_page(html):
    missing = [entry for entry in toc_entries()
               if not (html / f'{entry}.html').is_file()]
    assert missing == []
    assert (html / 'index.html').is_file()


def test_the_chapters_are_all_there(root):
    listed = [entry.removeprefix('chapters/') for entry in toc_entries()
              if entry.startswith('chapters/')]
    stored = sorted(path.stem for path in root.glob('chapters/*.ipynb'))
    assert listed == CHAPTERS
    assert stored == CHAPTERS


def test_a_chapter_can_be_downloaded(html):
    for chapter in CHAPTERS:
        page = (html / f'chapters/{chapter}.html').read_text('utf-8')
        assert f'href="../_sources/chapters/{chapter}.ipynb"' in page
        copy = html / f'_sources/chapters/{chapter}.ipynb'
        assert json.loads(copy.read_text('utf-8'))['nbformat'] == 4


def test_exported_cells_name_their_module(html):
    for chapter in CHAPTERS:
        page = (html / f'chapters/{chapter}.html').read_text('utf-8')
        assert f'>lamina/{chapter[3:]}.py</a>' in page
        assert 'tag_export' in page, f'{chapter} exports nothing'
        assert 'tag_exercise' in page, f'{chapter} has no exercise'


def test_every_exercise_has_a_section_of_hints(html):
    from course.exercises import load
    page = (html / 'book/solutions.html').read_text('utf-8')
    ids = [exercise.id for exercise in load()]
    assert {number[:2] for number in ids} == {c[:2] for c in CHAPTERS}
    for number in ids:
        assert f'id="exercise-{number.replace(".", "-")}"' in page


def test_no_chapter_page_holds_a_solution(html):
    from course.exercises import load
    for exercise in load():
        body = [line.strip() for line in exercise.solution.splitlines()
                if len(line.strip()) > 30
                and not line.strip().startswith(('def ', 'class '))]
        for page in html.glob(f'_sources/chapters/{exercise.id[:2]}_*'):
            cells = json.loads(page.read_text('utf-8'))['cells']
            answers = [''.join(cell['source']) for cell in cells if
                       'exercise' in cell['metadata'].get('tags', [])]
            for answer in answers:
                assert not [line for line in body if line in answer]


# ---- what a small book shows ----------------------------------------------

def test_the_small_book_is_sound(small_book, tmp_path):
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code == 0, built.text


def test_a_page_that_starts_too_deep_is_refused(small_book, tmp_path):
    (small_book / 'book/page.md').write_text('## Page\n\nText.\n', 'utf-8')
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code != 0
    assert 'book/page.md:1: WARNING' in built.text


def test_a_page_without_a_title_is_refused(small_book, tmp_path):
    (small_book / 'book/page.md').write_text('Text.\n', 'utf-8')
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code != 0
    assert "doesn't have a title" in built.text


def test_a_page_outside_the_contents_is_refused(small_book, tmp_path):
    (small_book / 'book/stray.md').write_text('# Stray\n\nText.\n', 'utf-8')
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code != 0
    assert 'book/stray.md is not listed in _toc.yml' in built.text


def test_a_broken_link_is_refused(small_book, tmp_path):
    (small_book / 'book/page.md').write_text(
        '# Page\n\n[there](#nowhere) and [there](none.md).\n', 'utf-8')
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code != 0
    assert 'nowhere' in built.text and 'none.md' in built.text


def test_notebooks_of_an_environment_are_not_pages(small_book, tmp_path):
    for folder in '.venv/lib/package', 'tests', '.pytest_cache':
        path = small_book / folder / 'theirs.ipynb'
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({
            'nbformat': 4, 'nbformat_minor': 5, 'metadata': {}, 'cells': [
                {'cell_type': 'code', 'id': 'a', 'metadata': {},
                 'execution_count': None, 'outputs': [],
                 'source': 'open("ran.txt", "w").close()'}]}), 'utf-8')
        path.with_name('README.md').write_text('## Theirs\n', 'utf-8')
    built = strict_build(small_book, tmp_path / 'out')
    assert built.code == 0, built.text
    assert not list(built.html.rglob('*theirs*'))
    assert not list(small_book.rglob('ran.txt'))
