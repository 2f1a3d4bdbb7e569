"""Chapter 6: products of matrices, vectors and batches."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from lamina.broadcasting import quiet
from lamina.dispatch import functions, log_operators
from lamina.matmul import chain_cuts, check_matrices, matmul_loops
from strategies import (
    HALF, any_dtypes, float_dtypes, int_dtypes, layouts, number_dtypes, same,
)

quick = settings(max_examples=60, deadline=None)
DEVICES = ('cpu', 'python')
sizes = st.sampled_from([1, 2, 3, 2, 4, 0])
inf, nan = math.inf, math.nan


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def agree(call, left, right):
    """The python device's answer, after cpu and meta gave the same.

    The numbers of the strategies are small and exact in binary, so the
    order of the additions changes nothing.
    """
    slow, fast, shapes = (call(left.on(d), right.on(d))
                          for d in ('python', 'cpu', 'meta'))
    assert slow.shape == fast.shape == shapes.shape
    assert slow.dtype is fast.dtype is shapes.dtype is left.dtype
    assert str(fast.device) == 'cpu' and str(shapes.device) == 'meta'
    assert same(fast.tolist(), slow.tolist())
    return slow


@st.composite
def pairs(draw, left, right, dtype=number_dtypes()):
    """Two layouts of one dtype; shapes are strategies for a pair."""
    dtype = draw(dtype)
    return (draw(layouts(dtype=dtype, shape=left)),
            draw(layouts(dtype=dtype, shape=right)))


@st.composite
def matrices(draw, batch=False, **options):
    n, k, m = draw(st.tuples(sizes, sizes, sizes))
    lead = (draw(st.integers(0, 3)),) if batch else ()
    return draw(pairs((*lead, n, k), (*lead, k, m), **options))


def check(found, left, right):
    expected = left.array() @ right.array()
    assert found.shape == expected.shape
    np.testing.assert_array_equal(
        np.array(found.tolist()).reshape(found.shape), expected)


@quick
@given(matrices())
def test_mm(case):
    check(agree(lambda a, b: a.mm(b), *case), *case)


@quick
@given(matrices(batch=True))
def test_bmm(case):
    check(agree(lambda a, b: a.bmm(b), *case), *case)


@st.composite
def products(draw):
    """Any two tensors that matmul takes; batches broadcast."""
    n, k, m = draw(st.tuples(sizes, sizes, sizes))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))

    def lead():
        some = batch[draw(st.integers(0, len(batch))):]
        return tuple(draw(st.sampled_from([1, size])) for size in some)

    left = draw(st.sampled_from([(k,), (*lead(), n, k)]))
    right = draw(st.sampled_from([(k,), (*lead(), k, m)]))
    return draw(pairs(left, right))


@settings(max_examples=150, deadline=None)
@given(products())
def test_matmul(case):
    check(agree(lambda a, b: a @ b, *case), *case)


@quick
@given(st.data(), sizes, sizes)
def test_mv_and_dot(data, n, k):
    case = data.draw(pairs((n, k), (k,)))
    check(agree(lambda a, b: a.mv(b), *case), *case)
    case = data.draw(pairs((k,), (k,)))
    check(agree(lambda a, b: lamina.dot(a, b), *case), *case)


@quick
@given(st.data(), sizes, sizes, st.sampled_from([(), (2,), (2, 3)]))
def test_linear(data, inputs, outputs, batch):
    case = data.draw(pairs((*batch, inputs), (outputs, inputs),
                           dtype=float_dtypes()))
    bias = data.draw(layouts(dtype=case[0].dtype, shape=(outputs,)))
    expected = case[0].array() @ case[1].array().T
    plain = agree(lambda x, w: lamina.linear(x, w), *case)
    np.testing.assert_array_equal(plain.numpy(), expected)
    full = agree(lambda x, w: lamina.linear(x, w, bias.on(str(x.device))),
                 *case)
    np.testing.assert_array_equal(full.numpy(), expected + bias.array())


@pytest.mark.parametrize('dtype', [lamina.float32, lamina.float64])
def test_rounded_sums_are_close(dtype):
    """Sizes at which BLAS works in tiles."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 300)).astype(dtype.name)
    b = rng.standard_normal((300, 30)).astype(dtype.name)
    exact = np.array([[math.fsum(float(x) * float(y)
                                 for x, y in zip(row, column))
                       for column in b.T] for row in a])
    x, y = lamina.from_numpy(a), lamina.from_numpy(b)
    rtol = 1e-4 if dtype is lamina.float32 else 1e-11
    for found in (x @ y, (y.t() @ x.t()).t(),
                  x.to('python') @ y.to('python'),
                  x.expand(2, 40, 300)[1] @ y):
        np.testing.assert_allclose(found.numpy(), exact, rtol=rtol,
                                   atol=rtol)


def test_the_worked_example(device):
    x = lamina.tensor([4.0, 3.0, 2.0], device=device)
    w = lamina.tensor([[0.5, -1.0, 2.0]], device=device)
    b = lamina.tensor([0.5], device=device)
    assert lamina.linear(x, w, b).tolist() == [3.5]
    assert w[0].dot(x).item() == 3.0


def test_loops_write_into_any_strides():
    a = lamina.tensor([[1, 2], [3, 4]], device='python')
    b = lamina.tensor([[5, 6, 7], [8, 9, 10]], device='python')
    out = lamina.zeros(3, 4, dtype=lamina.int64, device='python')
    matmul_loops(a, b, out.t()[1:3, :])
    assert out.tolist() == [[0, 21, 47, 0], [0, 24, 54, 0], [0, 27, 61, 0]]


@quick
@given(matrices(dtype=int_dtypes()))
def test_operands_are_left_alone(case):
    for device in DEVICES:
        a, b = (layout.on(device) for layout in case)
        before = a.tolist(), b.tolist()
        a @ b
        assert (a.tolist(), b.tolist()) == before


def test_no_products_add_up_to_zero(device):
    x = lamina.ones(2, 0, device=device) @ lamina.ones(0, 3, device=device)
    assert x.tolist() == [[0.0] * 3] * 2
    assert lamina.ones(0, device=device).dot(
        lamina.ones(0, device=device)).item() == 0.0


def test_integers_wrap_in_their_own_dtype(device):
    x = lamina.tensor([[20, 20]], dtype=lamina.uint8, device=device)
    assert (x @ x.t()).tolist() == [[32]]
    big = lamina.tensor([2 ** 62, 2 ** 62], device=device)
    two = lamina.tensor([2, 2], device=device)
    assert big.dot(two).item() == 0


def test_infinities(device):
    x = lamina.tensor([[inf, 1.0], [3e38, 3e38]], device=device)
    y = lamina.tensor([[0.0, 1.0], [1.0, 1.0]], device=device)
    assert same((x @ y).tolist(), [[nan, inf], [float(np.float32(3e38)),
                                               inf]])


def test_results_are_written_into_out(device):
    x = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    out = lamina.zeros(2, 2, device=device)
    assert lamina.mm(x, x, out=out.t()).tolist() == [[7.0, 10.0],
                                                     [15.0, 22.0]]
    assert out.tolist() == [[7.0, 15.0], [10.0, 22.0]]


# --- what is refused ---------------------------------------------------

@pytest.fixture(params=['cpu', 'python', 'meta'])
def ones(request):
    return lambda *shape, **options: lamina.ones(
        *shape, device=request.param, **options)


def test_sizes_that_differ(ones):
    with pytest.raises(RuntimeError, match=r'mm.*\[2, 3\].*\[2, 3\].*3.*2'):
        ones(2, 3).mm(ones(2, 3))
    with pytest.raises(RuntimeError, match=r'\[4, 2, 3\].*\[4, 2, 3\]'):
        ones(4, 2, 3).bmm(ones(4, 2, 3))
    with pytest.raises(RuntimeError, match=r'\[4, 2, 3\].*\[5, 3, 2\]'):
        ones(4, 2, 3).bmm(ones(5, 3, 2))
    for left, right in (((2,), (3,)), ((2, 3), (2,)), ((2,), (3, 2)),
                        ((5, 2, 3), (2, 3)), ((5, 2, 3), (5, 2, 3))):
        with pytest.raises(RuntimeError) as caught:
            ones(*left) @ ones(*right)
        assert f'{list(left)} times {list(right)}' in str(caught.value)
    with pytest.raises(RuntimeError, match=r'\[2\].*\[3\]'):
        ones(2, 1, 1) @ ones(3, 1, 1)


def test_numbers_of_dimensions(ones):
    with pytest.raises(RuntimeError, match=r'mm.*2 dim.*\[3\].*\[3, 2\]'):
        ones(3).mm(ones(3, 2))
    with pytest.raises(RuntimeError, match=r'bmm.*3 dim.*\[2, 3\]'):
        ones(2, 3).bmm(ones(2, 3))
    with pytest.raises(RuntimeError, match=r'matmul.*\[\].*\[2, 3\]'):
        ones(()) @ ones(2, 3)
    with pytest.raises(RuntimeError, match=r'dot.*\[2\].*\[3\]'):
        ones(2).dot(ones(3))
    with pytest.raises(RuntimeError, match=r'dot.*\[2, 2\]'):
        ones(2, 2).dot(ones(2, 2))
    for left, right in (((2, 2), (2, 2)), ((2,), (2,))):
        with pytest.raises(RuntimeError, match='mv.*matrix'):
            ones(*left).mv(ones(*right))
    with pytest.raises(RuntimeError, match=r'\[4\].*\[3, 2\]'):
        lamina.linear(ones(4), ones(2, 3))


def test_dtypes(ones):
    with pytest.raises(RuntimeError, match='float32.*int64'):
        ones(2, 2) @ ones(2, 2, dtype=lamina.int64)
    boolean = ones(2, 2, dtype=lamina.bool_)
    with pytest.raises(NotImplementedError, match='bool'):
        boolean @ boolean


def test_operands_that_are_no_tensors():
    x = lamina.ones(2, 2)
    for attempt in (lambda: x @ 2, lambda: 2 @ x, lambda: x @ 'a',
                    lambda: x @ None, lambda: lamina.mm(x, [[1.0]])):
        with pytest.raises(TypeError):
            attempt()


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match='cpu.*python|python.*cpu'):
        lamina.ones(2, 2, device='cpu') @ lamina.ones(2, 2, device='python')


@quick
@given(any_dtypes())
def test_check_matrices_gives_the_shape(dtype):
    a, b = (lamina.ones(*s, dtype=dtype) for s in ((2, 3), (3, 4)))
    if dtype.category:
        assert check_matrices('mm', a, b, 2) == (2, 4)
    else:
        with pytest.raises(NotImplementedError, match='mm.*bool'):
            check_matrices('mm', a, b, 2)


# --- a product and a sum -----------------------------------------------

SUMS = {'addmm': ((2, 3), (2, 4), (4, 3)), 'addmv': ((2,), (2, 4), (4,)),
        'baddbmm': ((5, 2, 3), (5, 2, 4), (5, 4, 3)),
        'addbmm': ((2, 3), (5, 2, 4), (5, 4, 3)),
        'addr': ((2, 3), (2,), (3,))}


def plain(name, c, a, b, beta, alpha):
    product = np.outer(a, b) if name == 'addr' else a @ b
    if name == 'addbmm':
        product = product.sum(0, dtype=product.dtype)
    return (beta * c + alpha * product).astype(c.dtype)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(sorted(SUMS)), number_dtypes(),
       st.sampled_from([(1, 1), (2, 3), (1, 0), (3, 1)]))
def test_a_product_and_a_sum(data, name, dtype, factors):
    beta, alpha = factors
    shape, *operands = SUMS[name]
    shape = data.draw(st.sampled_from([shape, shape[-1:], ()]))
    c, a, b = (data.draw(layouts(dtype=dtype, shape=s))
               for s in (shape, *operands))
    expected = plain(name, np.broadcast_to(c.array(), SUMS[name][0]),
                     a.array(), b.array(), beta, alpha)
    for device in (*DEVICES, 'meta'):
        found = getattr(lamina, name)(c.on(device), a.on(device),
                                      b.on(device), beta=beta, alpha=alpha)
        assert found.shape == expected.shape and found.dtype is dtype
        if device != 'meta':
            np.testing.assert_array_equal(np.array(found.tolist()), expected)


@pytest.mark.parametrize('name', sorted(SUMS))
def test_sums_in_place_and_out(name, device):
    c, a, b = (lamina.ones(*s, device=device) for s in SUMS[name])
    expected = getattr(lamina, name)(c, a, b, alpha=2)
    out = lamina.empty(0, device=device)
    assert getattr(lamina, name)(c, a, b, alpha=2, out=out) is out
    assert getattr(c, name + '_')(a, b, alpha=2) is c
    assert c.tolist() == out.tolist() == expected.tolist()
    with pytest.raises(RuntimeError, match='does not fit'):
        getattr(lamina.ones((), device=device), name + '_')(a, b)


@pytest.mark.parametrize('name', sorted(SUMS))
def test_a_beta_of_zero_reads_nothing(name, device):
    c, a, b = (lamina.ones(*s, device=device) for s in SUMS[name])
    c = c * nan
    found = getattr(lamina, name)(c, a, b, beta=0)
    assert not any(map(math.isnan, found.reshape(-1).tolist()))


def test_factors_of_integers_are_cut(device):
    c, a, b = (lamina.ones(2, 2, dtype=lamina.int64, device=device)
               for _ in range(3))
    assert lamina.addmm(c, a, b, beta=0.7, alpha=1.9).tolist() == [[2, 2]] * 2
    assert lamina.addmm(c, a, b, beta=-1.9).tolist() == [[1, 1]] * 2


def test_addr_promotes_and_takes_bools(device):
    one = lamina.ones(2, dtype=lamina.int64, device=device)
    c = lamina.ones(2, 2, dtype=lamina.int64, device=device)
    assert lamina.addr(c, one, one.float()).dtype is lamina.float32
    with pytest.raises(RuntimeError, match='addr.*beta.*0.5.*int64'):
        lamina.addr(c, one, one, beta=0.5)
    with pytest.raises(RuntimeError, match='addr.*alpha.*True'):
        lamina.addr(c, one, one, alpha=True)
    flags = lamina.addr(c.bool(), one.bool(), one.bool(), beta=2, alpha=0)
    assert flags.tolist() == [[True, True]] * 2
    with pytest.raises(RuntimeError, match='float32.*int64'):
        c.addr_(one.float(), one)


def test_sums_refuse(ones):
    a = ones(2, 2)
    with pytest.raises(RuntimeError, match='addmm.*one dtype.*int64'):
        lamina.addmm(ones(2, 2, dtype=lamina.int64), a, a)
    with pytest.raises(NotImplementedError, match='addmm.*bool'):
        lamina.addmm(ones(2, dtype=lamina.bool_), *[
            ones(*s, dtype=lamina.bool_) for s in ((2, 0), (0, 2))])
    for shape in ((3, 2), (1, 2, 2)):
        with pytest.raises(RuntimeError, match=r'\[2, 2\]'):
            lamina.addmm(ones(*shape), a, a)
    with pytest.raises(RuntimeError, match='addbmm'):
        lamina.addbmm(a, a, a)
    with pytest.raises(RuntimeError, match='outer.*vectors'):
        lamina.addr(a, a, a)


# --- products without a sum, and of any dimensions ----------------------

@quick
@given(st.data(), any_dtypes())
def test_outer_and_kron(data, dtype):
    a, b = (data.draw(layouts(dtype=dtype, shape=(n,))) for n in (3, 2))
    c, d = (data.draw(layouts(dtype=dtype)) for _ in range(2))
    for device in DEVICES:
        np.testing.assert_array_equal(
            np.array(a.on(device).outer(b.on(device)).tolist()),
            np.outer(a.array(), b.array()))
        found = lamina.kron(c.on(device), d.on(device))
        assert found.dtype is dtype
        np.testing.assert_array_equal(
            np.array(found.tolist()).reshape(found.shape),
            np.kron(c.array(), d.array()))


@quick
@given(st.data(), number_dtypes())
def test_tensordot_and_inner(data, dtype):
    a = data.draw(layouts(dtype=dtype, shape=(2, 3, 4)))
    b = data.draw(layouts(dtype=dtype, shape=(4, 2, 3)))
    c = data.draw(layouts(dtype=dtype, shape=(5, 4)))
    for x, y, dims in ((a, b, ([0, 1], [1, 2])), (a, b, 1), (a, c, 0),
                       (a, b, ([-1, 0, 1], [0, -2, -1])),
                       (a, c, (2, 1)), (a, c, [[2], [1]])):
        expected = np.tensordot(x.array(), y.array(), dims)
        for device in DEVICES:
            found = lamina.tensordot(x.on(device), y.on(device), dims)
            assert found.shape == expected.shape and found.dtype is dtype
            np.testing.assert_array_equal(
                np.array(found.tolist()).reshape(found.shape), expected)
    expected = np.inner(a.array(), c.array())
    check(agree(lambda x, y: x.inner(y), a, c), a,
          c._replace(geometry=c.geometry._replace(
              shape=(4, 5), strides=c.geometry.strides[::-1])))
    assert lamina.inner(a.on('cpu'), c.on('cpu')).shape == expected.shape


def test_tensordot_edges(ones):
    a, b = ones(2, 1), ones(3, 2)
    assert lamina.tensordot(a, b, ([1], [0])).shape == (2, 2)
    assert lamina.tensordot(a, b, lamina.tensor([[1], [0]])).shape == (2, 2)
    out = lamina.empty(0, device=str(a.device))
    assert lamina.tensordot(a, b, ([1], [0]), out=out) is out
    assert lamina.inner(ones(()), b).shape == (3, 2)
    for dims, word in ((3, '0 to 2'), (-1, '0 to 2'), (1.5, '1.5'),
                       (([1, 0], [0]), 'as many'), (([1, 1], [0, 0]), 'twice'),
                       (2, 'differ'), (([0], [0], [0]), 'list')):
        with pytest.raises(RuntimeError, match=word):
            lamina.tensordot(a, b, dims)
    with pytest.raises(IndexError, match='5'):
        lamina.tensordot(a, b, ([5], [0]))
    with pytest.raises(RuntimeError, match='outer.*vectors'):
        lamina.outer(b, b)


def test_a_size_of_one_meets_a_sum(device):
    a = lamina.ones(2, 1, dtype=lamina.int32, device=device)
    b = lamina.full((3, 2), 5, dtype=lamina.int32, device=device)
    found = lamina.tensordot(a, b, ([1], [0]))
    assert found.tolist() == [[15, 15]] * 2 and found.dtype is lamina.int32


# --- einsum --------------------------------------------------------------

EQUATIONS = ('i->', 'ij->', 'ij->ji', 'ii', 'ii->i', 'iij->j', 'iji->ij',
             'i,i', 'i,i->i', 'i,j->ij', 'i,j->ji', 'ij,jk', 'ij,jk->ki',
             'ij,jk->', 'ij,kj->ik', 'ij,ij->j', 'bij,bjk->bik',
             'bij,bjk->ikb', 'ij,jk->ij', 'ab,cd->abcd', 'ij,jk,kl->il',
             'i,i,i->i', 'ij,j,k->k', 'ba', 'Ab,bA', '...', '...->',
             'i...->...', '...i->i', '...ij,...jk', '...ij,...jk->...ik',
             'a...,a...->...', 'i...j->j...', '...,i->i...', 'ij,...j->...i')


def oracle(equation, arrays):
    """np.einsum, which says in another way that an ellipsis is summed."""
    left, arrow, right = equation.partition('->')
    if arrow and '...' in left and '...' not in right:
        found = np.einsum(f'{left}->...{right}', *arrays)
        extra = found.ndim - len(right)
        return found.sum(tuple(range(extra)), dtype=found.dtype)
    return np.einsum(equation, *arrays)


@settings(max_examples=250, deadline=None)
@given(st.data(), st.sampled_from(EQUATIONS),
       st.sampled_from([lamina.float64, lamina.int64]))
def test_einsum(data, equation, dtype):
    draw = data.draw
    terms = equation.partition('->')[0].split(',')
    size = {c: draw(st.sampled_from([1, 2, 3, 2])) for c in
            sorted({*equation} - {*'.,->'})}
    dots = draw(st.lists(st.integers(1, 3), max_size=2))

    def shape(term):
        front, found, back = term.partition('...')
        some = dots[draw(st.integers(0, len(dots))):] if found else []
        one = st.sampled_from([1, 0, 0, 0])
        return tuple([*(size[c] for c in front),
                      *(1 if draw(one) else n for n in some),
                      *(size[c] for c in back)])

    cases = [draw(layouts(dtype=dtype, shape=shape(term))) for term in terms]
    expected = oracle(equation, [case.array() for case in cases])
    for device in (*DEVICES, 'meta'):
        found = lamina.einsum(equation, *[case.on(device) for case in cases])
        assert found.shape == expected.shape and found.dtype is dtype
        if device != 'meta':
            np.testing.assert_array_equal(
                np.array(found.tolist()).reshape(found.shape), expected)


def test_einsum_broadcasts_ones_and_takes_numbers(device):
    a = lamina.tensor([[1.0], [2.0]], device=device)
    b = lamina.ones(4, 3, device=device)
    assert lamina.einsum('ij,jk->ik', a, b).tolist() == [[4.0] * 3, [8.0] * 3]
    c = lamina.ones(2, 4, device=device)
    for call in ((c, [0, 1], b, [1, 2]), (c, [0, 1], b, [1, 2], [0, 2]),
                 ('ij , jk -> i k', [c, b]), (c, [..., 1], b, [1, 2])):
        assert lamina.einsum(*call).tolist() == [[4.0] * 3] * 2


def test_a_diagonal_is_a_view(device):
    x = lamina.zeros(3, 3, device=device)
    lamina.einsum('ii->i', x).fill_(7)
    assert x.tolist() == [[7, 0, 0], [0, 7, 0], [0, 0, 7]]
    assert lamina.einsum('ij->ji', x)._base is not None


def test_sums_of_einsum_are_those_of_sum(device):
    x = lamina.ones(300, dtype=lamina.uint8, device=device)
    assert lamina.einsum('i->', x).item() == 300
    assert lamina.einsum('i,i->', x, x).item() == 300 % 256
    flags = x[:3].bool()
    assert lamina.einsum('i,i->i', flags, flags).tolist() == [True] * 3


@pytest.mark.parametrize('equation, shapes, word', [
    ('ij,jk', [(2, 3)], 'names 2 operands; got 1'),
    ('ij', [(2,)], "'ij' names 2 dimensions, and operand 0 has 1"),
    ('i', [(2, 3)], 'operand 0 has 2'),
    ('i..j', [(2, 3)], r"'\.' in 'i\.\.j'"),
    ('i...j...', [(2, 3)], 'one ellipsis'),
    ('i1,1k', [(2, 3), (3, 4)], "'1' in 'i1'"),
    ('ij->ji->ij', [(2, 3)], "the result 'ji->ij'"),
    ('ij->ijk', [(2, 3)], "'k' in the result"),
    ('ij->ii', [(2, 3)], "'i' in the result.*once"),
    ('ii', [(2, 3)], "'i' is 2 and 3 in operand 0"),
    ('ij,jk', [(2, 3), (4, 5)], "'j' has size 3 .* and 4")])
def test_einsum_refuses(ones, equation, shapes, word):
    with pytest.raises(RuntimeError, match=word):
        lamina.einsum(equation, *[ones(*shape) for shape in shapes])


def test_einsum_refuses_calls(ones):
    with pytest.raises(ValueError, match='equation'):
        lamina.einsum('ij')
    with pytest.raises(ValueError, match='60'):
        lamina.einsum(ones(2, 3), [0, 60])
    for call in ((2, ones(2)), ('i', 'a'), ('i', 3.0)):
        with pytest.raises(TypeError, match='einsum'):
            lamina.einsum(*call)


# --- chains, powers, inverses, vectors ----------------------------------

@quick
@given(st.lists(st.integers(1, 9), min_size=3, max_size=7))
def test_the_cheapest_order(sizes):
    def every(i, j):
        if i == j:
            return [0]
        return [a + b + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
                for a in every(i, k) for b in every(k + 1, j)]

    def cost(i, j):
        if i == j:
            return 0
        k = cuts[i, j]
        return (cost(i, k) + cost(k + 1, j)
                + sizes[i] * sizes[k + 1] * sizes[j + 1])

    last = len(sizes) - 2
    cuts = chain_cuts(sizes)
    assert cost(0, last) == min(every(0, last))


def test_multi_dot(ones):
    dot = lamina.linalg.multi_dot
    a, b, c = ones(2, 3), ones(3, 4), ones(4, 5)
    assert dot([a, b, c]).shape == (2, 5)
    assert dot((ones(2), a, b)).shape == (4,)
    assert dot([ones(2), a, ones(3)]).shape == dot([ones(2)] * 2).shape == ()
    if str(a.device) != 'meta':
        assert dot([a, b, c]).tolist() == [[12.0] * 5] * 2
    for bad, word in (([a], 'two'), ([a, ones(3), b], r'number 1 is \[3\]'),
                      ([a, a], r'\[2, 3\] times \[2, 3\]'),
                      ([a, b.long()], 'one dtype'),
                      ([ones(1, 2, 2), a], r'number 0 is \[1, 2, 2\]')):
        with pytest.raises(RuntimeError, match=word):
            dot(bad)
    with pytest.raises(TypeError, match='tensors'):
        dot(a)


@pytest.mark.parametrize('n', [0, 1, 2, 3, 13])
@pytest.mark.parametrize('dtype', [lamina.int64, lamina.float64])
def test_powers(n, dtype, device):
    x = lamina.tensor([[[1, 1], [1, 0]], [[2, 0], [1, 1]]], dtype=dtype,
                      device=device)
    found = lamina.linalg.matrix_power(x, n)
    assert found.dtype is dtype and x.matrix_power(n).tolist() == (
        found.tolist())
    np.testing.assert_array_equal(
        np.array(found.tolist()),
        np.linalg.matrix_power(np.array(x.tolist()), n))


@quick
@given(st.data(), st.integers(1, 4), st.sampled_from([(), (3,), (2, 1)]))
def test_equations(data, n, batch):
    """Inverses, solutions, determinants and powers below zero."""
    layout = data.draw(layouts(
        dtype=lamina.float64, shape=(*batch, n, n), overlap=False))
    values = layout.array() + 50 * np.eye(n)
    right = data.draw(layouts(dtype=lamina.float64, shape=(n, 2)))

    def near(found, expected):
        np.testing.assert_allclose(np.array(found.tolist()), expected,
                                   rtol=1e-9, atol=1e-9)

    for device in DEVICES:
        x = lamina.tensor(values.tolist(), dtype=lamina.float64,
                          device=device)
        turned = x.transpose(-1, -2)
        near(lamina.linalg.inv(turned).transpose(-1, -2),
             np.linalg.inv(values))
        near(lamina.linalg.matrix_power(x, -2) @ x @ x,
             np.broadcast_to(np.eye(n), values.shape))
        b = right.on(device)
        near(x @ lamina.linalg.solve(x, b), np.broadcast_to(
            right.array(), (*batch, n, 2)))
        near(lamina.linalg.solve(x, b.t(), left=False) @ x, np.broadcast_to(
            right.array().T, (*batch, 2, n)))
        near(x @ lamina.linalg.solve(x, b[:, :1]),
             np.broadcast_to(right.array()[:, :1], (*batch, n, 1)))
        sign, log = lamina.linalg.slogdet(x)
        near(sign * log.exp(), np.linalg.det(values))
        near(lamina.linalg.det(x), np.linalg.det(values))
        near(lamina.logdet(x), np.log(np.linalg.det(values)))


def test_triangles(device):
    a = lamina.tensor([[2.0, 9.0], [4.0, 8.0]], device=device)
    b = lamina.tensor([[4.0, 2.0], [8.0, 4.0]], device=device)
    solve = lamina.linalg.solve_triangular
    assert solve(a, b, upper=False).tolist() == [[2.0, 1.0], [0.0, 0.0]]
    assert solve(a, b, upper=True).tolist() == [[-2.5, -1.25], [1.0, 0.5]]
    assert solve(a, b, upper=False, unitriangular=True).tolist() == [
        [4.0, 2.0], [-8.0, -4.0]]
    assert solve(a, b, upper=False, left=False).tolist() == [
        [1.5, 0.25], [3.0, 0.5]]


def test_cholesky(device):
    rows = [[4.0, 99.0, 99.0], [2.0, 5.0, 99.0], [-2.0, 3.0, 14.0]]
    a = lamina.tensor(rows, dtype=lamina.float64, device=device)
    root = lamina.linalg.cholesky(a)
    assert root.tolist() == [[2, 0, 0], [1, 2, 0], [-1, 2, 3]]
    upper = lamina.linalg.cholesky(a.t().expand(2, 3, 3), upper=True)
    assert upper.tolist() == [root.t().tolist()] * 2
    with pytest.raises(RuntimeError, match='positive definite'):
        lamina.linalg.cholesky(-a)
    for bad in (a[:2], a.long()):
        with pytest.raises(RuntimeError, match='cholesky.*(square|floats)'):
            lamina.linalg.cholesky(bad)


def test_distances(ones, device):
    a = lamina.tensor([[0.0, 0.0], [3.0, 4.0]], device=device)
    assert lamina.cdist(a, a[1:]).tolist() == [[5.0], [0.0]]
    assert lamina.cdist(a, a[1:], p=1).tolist() == [[7.0], [0.0]]
    assert lamina.cdist(a, a[1:], inf).tolist() == [[4.0], [0.0]]
    assert lamina.cdist(a, a[1:], 0).tolist() == [[2.0], [0.0]]
    assert lamina.cdist(ones(5, 2, 3), ones(4, 3)).shape == (5, 2, 4)
    for bad in (lambda: lamina.cdist(a, a, -1), lambda: lamina.cdist(a[0], a),
                lambda: lamina.cdist(a, a[:, :1]),
                lambda: lamina.cdist(a.long(), a.long())):
        with pytest.raises(RuntimeError, match='cdist'):
            bad()
    with pytest.raises(ValueError, match="'quick'.*use_mm"):
        lamina.cdist(a, a, compute_mode='quick')


def test_equations_without_an_answer(ones, device):
    inv, solve = lamina.linalg.inv, lamina.linalg.solve
    assert inv(ones(0, 2, 2)).shape == (0, 2, 2)
    assert inv(ones(2, 0, 0)).shape == (2, 0, 0)
    assert solve(ones(3, 2, 2), ones(3, 2)).shape == (3, 2) if (
        str(ones(1).device) == 'meta') else True
    swapped = lamina.tensor([[0.0, 2.0], [1.0, 0.0]], device=device)
    assert inv(swapped).tolist() == [[0.0, 1.0], [0.5, 0.0]]
    assert lamina.linalg.det(swapped).item() == pytest.approx(-2)
    flat = lamina.ones(2, 2, device=device)
    assert [x.item() for x in lamina.linalg.slogdet(flat)] == [0, -inf]
    assert lamina.linalg.det(flat).item() == 0
    assert lamina.linalg.slogdet(flat).sign.item() == 0
    for call in (lambda: inv(flat), lambda: solve(flat, flat)):
        with pytest.raises(RuntimeError, match='singular'):
            call()
    for bad in (ones(2, 3), ones(2)):
        for call in (inv, lamina.linalg.det, lamina.linalg.slogdet,
                     lambda x: solve(x, x),
                     lambda x: lamina.linalg.matrix_power(x, 2)):
            with pytest.raises(RuntimeError, match='square'):
                call(bad)
    with pytest.raises(RuntimeError, match='int64'):
        inv(ones(2, 2).long())
    with pytest.raises(RuntimeError, match='one dtype'):
        solve(ones(2, 2), ones(2, 2).double())
    with pytest.raises(RuntimeError, match=r'\[2, 2\] times \[3, 2\]'):
        solve(ones(2, 2), ones(3, 2))
    with pytest.raises(RuntimeError, match='left=False'):
        solve(ones(2, 2), ones(2), left=False)


@quick
@given(st.data(), number_dtypes(), st.sampled_from([(3,), (2, 3), (4, 1, 3)]))
def test_cross(data, dtype, shape):
    a, b = (data.draw(layouts(dtype=dtype, shape=shape)) for _ in range(2))
    found = agree(lambda x, y: lamina.linalg.cross(x, y), a, b)
    x, y = a.array(), b.array()
    one, two = [1, 2, 0], [2, 0, 1]
    np.testing.assert_array_equal(
        np.array(found.tolist()).reshape(shape),
        x[..., one] * y[..., two] - x[..., two] * y[..., one])


def test_cross_and_vecdot_edges(ones):
    assert lamina.cross(ones(3, 3, 2), ones(3, 3, 2)).shape == (3, 3, 2)
    assert lamina.cross(ones(1, 3), ones(2, 3)).shape == (2, 3)
    assert ones(2, 3).cross(ones(2, 3), 1).shape == (2, 3)
    for call, word in (
            (lambda: lamina.cross(ones(2, 2), ones(2, 2)), 'size 3'),
            (lambda: lamina.cross(ones(3), ones(2, 3)), 'as many'),
            (lambda: lamina.linalg.cross(ones(2, 3), ones(2, 1)), 'size 3'),
            (lambda: ones(3).cross(ones(3).long()), 'one dtype')):
        with pytest.raises(RuntimeError, match=word):
            call()
    with pytest.raises(NotImplementedError, match='bool'):
        ones(3).bool().cross(ones(3).bool())
    dot = lamina.linalg.vecdot
    assert dot(ones(2, 3), ones(3)).shape == (2,)
    assert dot(ones(2, 3), ones(2, 3), dim=0).shape == (3,)
    assert dot(ones(()), ones(())).shape == ()
    with pytest.raises(RuntimeError, match='float.*int64'):
        dot(ones(3).long(), ones(3).long())


def test_bools_without_elements(device):
    a, b = (lamina.ones(*s, dtype=lamina.bool_, device=device)
            for s in ((2, 0), (0, 3)))
    assert (a @ b).tolist() == [[False] * 3] * 2
    with pytest.raises(NotImplementedError, match='dot.*bool'):
        b[:, 0].dot(b[:, 0])


def test_an_array_of_numpy_on_the_left():
    x = lamina.tensor([1.0, 2.0])
    found = np.ones((3, 2), np.float32) @ x
    assert isinstance(found, lamina.Tensor) and found.tolist() == [3.0] * 3
    assert x.__rmatmul__('a') is NotImplemented


# --- the second layout ------------------------------------------------

@pytest.mark.parametrize("device", ["python", "cpu"])
def test_a_sparse_matrix_times_a_strided_one(device):
    for dtype in ("int64", "float32", "float64", "bfloat16"):
        dtype = getattr(lamina, dtype)
        s = lamina.sparse_coo_tensor(
            [[0, 1, 1, 1], [2, 0, 2, 2]], [3, 4, 5, -1], (2, 4), dtype=dtype,
            device=device)
        x = lamina.tensor([[i * 3 - j for j in range(3)] for i in range(4)],
                          dtype=dtype, device=device)
        for y in (x, x.to(dtype, copy=True)[:, :1], x[:, 0]):
            expected = s.to_dense() @ y
            assert (s @ y).tolist() == expected.tolist()
            assert (s @ y).dtype is dtype and not (s @ y).is_sparse
        assert lamina.sparse.mm(s, x).tolist() == (s @ x).tolist()
        empty = s @ x[:, :0]
        assert empty.shape == (2, 0)
        with pytest.raises(NotImplementedError, match="to_dense"):
            x.t() @ x.to_sparse()
        with pytest.raises(RuntimeError, match=r"\[2, 4\].*\[3, 4\]"):
            s @ x.t()


@pytest.mark.parametrize('dtype', HALF)
@pytest.mark.parametrize('device', (*DEVICES, 'meta'))
def test_half_precision_is_rounded_once(dtype, device):
    """1 + 256 times 1/256 is 2; summed in the dtype itself it is less."""
    row = lamina.tensor([1.0] + [1 / 256] * 256).to(dtype).to(device)
    one = lamina.ones(257, dtype=dtype, device=device)
    for found in (row.dot(one), row @ one, lamina.einsum('i,i->', row, one),
                  lamina.addmm(one[:1], row[None], one[:, None], beta=0)):
        assert found.dtype is dtype
        if device != 'meta':
            assert found.item() == 2.0


def test_each_with_each(device):
    a, b = (lamina.arange(n, device=device) for n in (2, 3))
    assert lamina.cartesian_prod(a, b).tolist() == [
        [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert lamina.cartesian_prod(b).tolist() == [0, 1, 2]
    assert b.combinations().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert a.combinations(2, with_replacement=True).tolist() == [
        [0, 0], [0, 1], [1, 1]]
    assert b.combinations(0).shape == (0,)
    assert b.combinations(4).shape == (0, 4)
    for bad in (lambda: lamina.cartesian_prod(a[None], b), lambda:
                b.combinations(-1), lambda: a[None].combinations()):
        with pytest.raises(RuntimeError, match='takes a? ?vector'):
            bad()


def test_block_diag(device):
    a = lamina.ones(1, 2, dtype=lamina.int64, device=device)
    found = lamina.block_diag(a, a[0] * 2, (a[0, 0] * 3).float())
    assert found.tolist() == [[1, 1, 0, 0, 0], [0, 0, 2, 2, 0],
                              [0, 0, 0, 0, 3]]
    assert found.dtype is lamina.float32
    assert lamina.block_diag().shape == (1, 0)
    with pytest.raises(RuntimeError, match=r'block_diag.*\[1, 1, 2\]'):
        lamina.block_diag(a[None])
    with pytest.raises(TypeError, match='tensors'):
        lamina.block_diag([a])


def test_blocks_meet_as_operands_do():
    """A tensor without dimensions does not widen the others."""
    half = lamina.ones(1, 1, dtype=lamina.bfloat16)
    assert lamina.block_diag(half, lamina.tensor(1.)).dtype is lamina.bfloat16
    assert lamina.block_diag(half, lamina.ones(1)).dtype is lamina.float32


@pytest.mark.parametrize('make', [
    lambda: lamina.arange(6.).view(2, 3),
    lambda: lamina.arange(6.).view(3, 2).t(),
    lambda: lamina.arange(12.).view(2, 6)[:, ::2],
    lambda: lamina.ones(1, 3).expand(2, 3),
    lambda: lamina.tensor([[inf, nan, 0.0], [1e38, 1e38, -inf]]),
    lambda: lamina.arange(6).view(2, 3)], ids=str)
def test_the_sign_of_two_matrices_is_matmul(make, device):
    x = make().to(device)
    y = x.t()
    with warnings.catch_warnings():
        warnings.simplefilter('error')      # NumPy's, for inf - inf
        want = x.to('python').matmul(y.to('python')).tolist()
        for found in (x @ y, x.matmul(y), x.mm(y), quiet(lambda: x @ y)):
            assert same(found.tolist(), want)


@pytest.mark.parametrize('left, right, dtype', [
    ((2, 3), (2, 3), lamina.float32), ((2, 3), (3, 3), lamina.float64),
    ((0, 3), (2, 3), lamina.float32), ((2, 3), (3, 2), lamina.bool)])
def test_the_sign_refuses_as_matmul_does(left, right, dtype, device):
    x = lamina.ones(left, device=device)
    y = lamina.ones(right, device=device, dtype=dtype)
    if dtype is lamina.bool:
        x = x.bool()
    with pytest.raises((RuntimeError, NotImplementedError)) as want:
        functions['matmul'](x, y)
    with pytest.raises(want.type) as found:
        x @ y
    assert str(found.value) == str(want.value)


def test_the_sign_is_seen_as_mm_by_logs_and_classes():
    x, w = lamina.ones(2, 3), lamina.ones(3, 4)
    with log_operators() as sign:
        x @ w
    with log_operators() as name:
        x.matmul(w)
    assert sign == name == ['mm']

    class Mine:
        @classmethod
        def __torch_function__(cls, function, types, args, kwargs=None):
            return function.__name__

    assert x @ Mine() == 'matmul'
    assert (x @ np.ones((3, 2), 'float32')).tolist() == [[3.0, 3.0]] * 2
