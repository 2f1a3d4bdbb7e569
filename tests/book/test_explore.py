"""The explorers in a real browser: equal to the library in every state that
can be reached, by keyboard, in words, light and dark, on a telephone."""

import functools
import itertools
import zlib

import pytest

import lamina
from lamina.strides import is_row_major, offsets, row_major

from course import explore
from course.explore.broadcasting import MOST as SHAPES
from course.explore.strides import MOST
from explore_pages import FRAME, page, words    # noqa: F401


def matrix():
    return lamina.arange(12).view(3, 4)


# --- strides ---------------------------------------------------------------

# For all strides and offsets of one shape, a line each; its CRC.
ALL_OF_A_SHAPE = '''([shape, most]) => {
  const {read} = document.querySelector('.lamina-strides');
  const table = Array.from({length: 256}, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? n >>> 1 ^ 0xedb88320 : n >>> 1;
    return n;
  });
  let crc = -1, lines = [];
  const each = strides => {
    if (strides.length < shape.length) {
      for (let s = -1; s <= most; s++) each([...strides, s]);
      return;
    }
    for (let offset = -1; offset < 12; offset++) {
      const {error, places, contiguous, twice} = read(shape, strides, offset);
      const line = error ?? [places.map(place => place.cell).join(' '),
                             contiguous, Boolean(twice)].join('|');
      lines.push(line);
      for (let i = 0; i < line.length; i++) {
        crc = crc >>> 8 ^ table[(crc ^ line.charCodeAt(i)) & 255];
      }
    }
  };
  each([]);
  return WANTED;
}'''


def line(storage, shape, strides, offset):
    """What the library makes of a geometry, as the page says it."""
    try:
        view = lamina.strides.as_strided(storage, shape, strides, offset)
    except RuntimeError as error:
        return f'RuntimeError: {error}'
    cells = offsets(view.geometry)
    return '|'.join([' '.join(map(str, cells)),
                     str(is_row_major(view.geometry)).lower(),
                     str(len(set(cells)) < len(cells)).lower()])


@pytest.mark.parametrize('dims', MOST)
def test_every_geometry_is_read_as_the_library_reads_it(page, dims):
    page.set_content(FRAME.format(explore.strides(matrix()).html))
    size, stride = MOST[dims]
    storage = lamina.arange(12)
    for shape in itertools.product(range(size + 1), repeat=dims):
        expected = [line(storage, shape, steps, offset)
                    for steps in itertools.product(range(-1, stride + 1),
                                                   repeat=dims)
                    for offset in range(-1, 12)]
        asked = [list(shape), stride]
        found = page.evaluate(
            ALL_OF_A_SHAPE.replace('WANTED', '(crc ^ -1) >>> 0'), asked)
        if found != zlib.crc32(''.join(expected).encode()):
            lines = page.evaluate(
                ALL_OF_A_SHAPE.replace('WANTED', 'lines'), asked)
            assert lines == expected


# --- broadcasting ----------------------------------------------------------

ALL_WITH_ONE = '''([one, seconds, thirds]) => {
  const {meet} = document.querySelector('.lamina-broadcasting');
  return seconds.flatMap(two => thirds.map(third => {
    const {error, shape, strides} = meet([one, two, ...third]);
    return error ?? [shape, ...strides].join('|');
  })).join('\\n');
}'''


def shapes_up_to(dims):
    return [shape for n in range(dims + 1)
            for shape in itertools.product(range(5), repeat=n)]


@functools.cache
def stretched(shape, target):
    view = lamina.strides.expand(row_major(shape), target)
    return ','.join(map(str, view.strides))


def met(*shapes):
    """What the library makes of some shapes, as the page says it."""
    try:
        shape = lamina.broadcast_shapes(*shapes)
    except RuntimeError as error:
        return f'RuntimeError: {error}'
    return '|'.join([','.join(map(str, shape)),
                     *(stretched(each, shape) for each in shapes)])


def test_every_set_of_shapes_meets_as_in_the_library(page):
    page.set_content(FRAME.format(
        explore.broadcasting(lamina.broadcast_shapes).html))
    assert SHAPES == {'size': 4, 'dims': [3, 3, 1]}
    pairs, thirds = shapes_up_to(3), [[], *([x] for x in shapes_up_to(1))]
    for one in pairs:
        found = page.evaluate(ALL_WITH_ONE, [one, pairs, thirds])
        assert found.splitlines() == [met(one, two, *third) for two in pairs
                                      for third in thirds]
