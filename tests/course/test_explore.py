"""The explorers: what is recorded is so, small, and the same everywhere."""

import math
import os
import re
import subprocess
import sys

import pytest

lamina = pytest.importorskip('lamina')
if not hasattr(lamina, 'optim'):
    pytest.skip('chapter 10 is not there', allow_module_level=True)

from course import explore      # noqa: E402
from course.explore.strides import MOST, PRESETS        # noqa: E402
from course.explore.surface import lines, recorded      # noqa: E402


def matrix():
    return lamina.arange(12).view(3, 4)


def saddle(u, v):
    return u * u - 2 * v * v + (3 - u) * 0.5


def all_of_them():
    x = lamina.tensor([1.0, 2.0])
    return [explore.strides(matrix()),
            explore.broadcasting(lamina.broadcast_shapes),
            explore.trace(lamina.dispatch, {'x': x}, {'a call': 'x * x'}),
            explore.surface({'a saddle': saddle},
                            [lamina.optim.SGD, lamina.optim.Adam])]


def test_each_is_small_and_whole():
    for shown in all_of_them():
        bundle = shown._repr_mimebundle_()
        html = bundle['text/html']
        assert len(html) < 100_000
        assert bundle['text/plain'] == repr(shown)
        assert set(re.findall(r'https?://[^"\'% ]+', html)) <= {
            'http://www.w3.org/2000/svg'}
        assert ' id=' not in html       # there may be two on a page
        assert html.count('</script>') == 2
        assert 'import(' not in html and 'fetch(' not in html
        before = html.split('<script')[0]
        assert '<button' not in before      # none without effect
        assert 'aria-live="polite"' in before


def test_the_same_everywhere():
    code = ('import sys; sys.path[:0] = sys.argv[1:]\n'
            'from test_explore import all_of_them\n'
            'print([shown.html for shown in all_of_them()])\n')
    made = {subprocess.run(
        [sys.executable, '-c', code, os.path.dirname(__file__)], text=True,
        check=True, capture_output=True, encoding='utf-8',
        env=os.environ | {'PYTHONHASHSEED': seed, 'PYTHONUTF8': '1'}).stdout
        for seed in ('0', '1')}
    assert len(made) == 1


# --- strides ---------------------------------------------------------------

def test_each_name_makes_its_geometry_and_none_is_shorter():
    x = matrix()
    data = explore.strides(x).data
    for key, text in data['names'].items():
        shape, steps, offset = key.split(';')
        view = eval(text)
        assert view.storage is x.storage
        assert (shape, steps, int(offset)) == (
            ','.join(map(str, view.shape)),
            ','.join(map(str, view.stride())), view.storage_offset())
    names = data['names']
    assert names['3,4;4,1;0'] == 'x'
    assert names['4,3;1,4;0'] == 'x.t()'
    assert names['2,2;4,2;4'] == 'x[1:, ::2]'
    assert names['3,4;0,1;4'] == 'x[1].expand(3, 4)'
    assert names['3;5;0'] == 'x.diagonal()'
    assert names['5,4;2,1;0'] == 'x.view(12).unfold(0, 4, 2)'


def test_each_view_of_the_list_can_be_reached():
    data = explore.strides(matrix()).data
    assert [text for text, *_ in data['presets']] == PRESETS
    for _, shape, steps, offset in data['presets']:
        size, stride = MOST[len(shape)]
        assert max(shape) <= size and max(steps) <= stride and offset < 12


def test_refusals_are_the_librarys_with_places_for_numbers():
    said = explore.strides(matrix()).data['errors']
    for mark, size, stride, offset, last in [
            ('negative', [2, 3], [4, -1], 5, None),
            ('outside', [2, 3], [8, 2], 5, 17)]:
        with pytest.raises(RuntimeError) as refused:
            matrix().as_strided(size, stride, offset)
        assert f'RuntimeError: {refused.value}' == said[mark].format(
            size=size, stride=stride, offset=offset, last=last, have=12)


@pytest.mark.parametrize('wrong', [lamina.arange(12), lamina.zeros(3, 4), 3])
def test_only_a_matrix_of_its_own_places(wrong):
    with pytest.raises(ValueError, match='arange.12..view.3, 4'):
        explore.strides(wrong)


# --- broadcasting ----------------------------------------------------------

def test_a_refusal_of_shapes_is_the_librarys():
    said = explore.broadcasting(lamina.broadcast_shapes).data['error']
    with pytest.raises(RuntimeError) as refused:
        lamina.broadcast_shapes((4, 3), (1, 2))
    assert f'RuntimeError: {refused.value}' == said.format(
        shapes='[4, 3] and [1, 2]', dim=1, first=3, second=2)


def test_another_wording_of_the_refusal_is_noticed():
    def refuse(*shapes):
        raise RuntimeError('no')
    with pytest.raises(ValueError, match="says 'RuntimeError: no'"):
        explore.broadcasting(refuse)


# --- dispatch --------------------------------------------------------------

def steps(code, **names):
    shown = explore.trace(lamina.dispatch, names, {'it': code})
    return shown.data['it']


def way(found):
    return [(step['depth'], step['op'], step['title']) for step in found[1:]]


def test_a_kernel_and_nothing_else():
    x = lamina.tensor([1.0, 2.0], device='python')
    found = steps('x * x', x=x)
    assert way(found) == [(0, 'mul.Tensor', 'kernel for python')]
    assert found[1]['keys'] == ['python']
    assert found[1]['words'].endswith(
        'The result: float32 [1.0, 4.0], keys python.')


def test_half_precision_is_planned_on_meta_and_widened():
    x = lamina.tensor([1.0, 2.0], dtype=lamina.float16)
    assert way(steps('x * x', x=x)) == [
        (0, 'mul.Tensor', 'wrap_half'),
        (1, 'mul.Tensor', 'kernel for meta'),
        (1, '_to_copy', 'kernel for cpu'), (1, '_to_copy', 'kernel for cpu'),
        (1, 'mul.Tensor', 'kernel for cpu'),
        (1, '_to_copy', 'kernel for cpu'),
        (0, 'mul.Tensor', 'back in wrap_half')]


def test_a_layer_says_who_brought_its_key():
    w = lamina.tensor([1.0], requires_grad=True)
    x = lamina.tensor([2.0])
    found = steps('x * w', x=x, w=w)
    assert way(found) == [
        (0, 'mul.Tensor', 'wrap_autograd'),
        (1, 'mul.Tensor', 'kernel for cpu'),
        (0, 'mul.Tensor', 'back in wrap_autograd')]
    assert 'is wrap_autograd: other has it.' in found[1]['words']
    assert found[2]['words'].startswith('Below wrap_autograd, cpu is left.')
    assert found[3]['keys'] == ['wrap_autograd', 'cpu']
    both = steps('w * w', w=w)
    assert 'self and other have it.' in both[1]['words']
    named = dict(log=lamina.log_operators, x=x)
    logged = steps('with log():\n    x * x', **named)
    assert 'in every call while its context is open' in logged[1]['words']
    moved = steps('w.half()', w=w)
    assert way(moved)[1] == (1, '_to_copy', 'wrap_half steps aside')
    assert 'dtype has it' in moved[2]['words']


def test_who_ends_a_call_early():
    class Answer(lamina.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return args[0]

    class Own:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 'mine'

    x = lamina.tensor([1.0])
    assert way(steps('with Answer():\n    x * x', Answer=Answer, x=x)) == [
        (0, 'mul.Tensor', 'wrap_mode'), (0, 'mul.Tensor', 'back in wrap_mode')]
    own = steps('lamina.mul(x, own)', lamina=lamina, x=x, own=Own())
    assert way(own) == [(0, 'mul.Tensor', '__torch_function__'),
                        (0, 'mul.Tensor', 'back in __torch_function__')]
    assert 'Own has such a method.' in own[1]['words']
    assert own[2]['words'].endswith("It gives 'mine'.")
    refused = steps('x * y', x=x, y=x.to('python'))
    assert way(refused) == [(0, '', 'refused')]
    assert refused[1]['refused']
    assert refused[1]['words'].startswith('RuntimeError: mul.Tensor(): expec')


def test_a_composite_calls_others():
    x = lamina.tensor([1.0, 2.0])
    found = steps('x.dot(x)', x=x)
    assert way(found)[0] == (0, 'dot', 'composite dot')
    assert 'Inside composite dot, mm is looked up' in ' '.join(
        step['words'] for step in found)


def test_recording_leaves_the_dispatcher_as_it_was():
    x = lamina.tensor([1.0, 2.0])
    x * x
    steps('x * x', x=x)
    assert lamina.dispatch.watchers == []
    for operator in lamina.dispatch.operators.values():
        assert not operator.table
    assert (x * x).tolist() == [1.0, 4.0]
    table = lamina.dispatch.operators['mul.Tensor'].table
    assert not any(hasattr(found, 'is_watched') for found in table.values())


# --- the loss surface ------------------------------------------------------

def test_a_loss_is_recorded_operation_by_operation():
    assert recorded(lambda u, v: 2 * u - v) == [
        ['u'], ['v'], ['number', 2], ['*', 0, 2], ['-', 3, 1]]
    assert recorded(lambda u, v: 1 - u)[2:] == [['number', 1], ['-', 2, 0]]
    with pytest.raises(TypeError):
        recorded(lambda u, v: u ** 2)
    with pytest.raises(TypeError, match='made of u, v and numbers; got str'):
        recorded(lambda u, v: u + 'v')


def test_the_lines_lie_where_the_loss_is_what_they_say():
    def bowl(u, v):
        return u * u + 4 * v * v

    lines = explore.surface({'bowl': bowl}, [lamina.optim.SGD]).data[
        'surfaces']['bowl']['lines']
    levels = [50 / 2 ** k for k in range(1, 11)]
    starts = re.findall(r'M(\d+) (\d+)', lines)
    assert len(starts) >= 10
    for x, y in starts:
        height = bowl(int(x) / 100 - 5, 2.5 - int(y) / 100)
        assert min(abs(math.log(height / level)) for level in levels) < 0.2


def test_lines_are_whole():
    hill = [[0, 0, 0, 0], [0, 2, 2, 0], [0, 0, 0, 0]]
    ring, = lines(hill, 1)
    assert ring[0] == ring[-1] and len(ring) == 7
    assert set(ring) == {(0.5, 1), (0.5, 2), (1, 2.5), (1.5, 2), (1.5, 1),
                         (1, 0.5)}
    across, = lines([[0, 0], [4, 4]], 1)
    assert across in ([(0.25, 0), (0.25, 1)], [(0.25, 1), (0.25, 0)])
    assert list(lines(hill, 3)) == []
    assert len(list(lines([[0, 2], [2, 0]], 1))) == 2       # a saddle


def test_only_optimisers_whose_rule_the_page_knows():
    with pytest.raises(ValueError, match='not AdamW'):
        explore.surface({'a saddle': saddle}, [lamina.optim.AdamW])
