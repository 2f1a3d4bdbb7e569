"""Memory shared with PyTorch itself, both ways; where it is installed."""

import gc
import weakref

import numpy as np
import pytest

import lamina
from lamina import storage

torch = pytest.importorskip('torch')

VIEWS = {
    'all of it': lambda x: x, 'transposed': lambda x: x.T,
    'with steps': lambda x: x[1:, ::2], 'empty': lambda x: x[:, :0],
    'one element': lambda x: x[1, 2],
    'expanded': lambda x: x[1].expand(3, 4)}


@pytest.fixture(autouse=True)
def nothing_stays():
    storage._sweep()
    gc.disable()
    yield
    gc.enable()
    storage._sweep()
    assert not storage._lent


def same_view(a, b):
    """Whether a tensor of each library reads the same memory alike."""
    assert tuple(a.shape) == tuple(b.shape)
    assert a.tolist() == b.tolist()
    assert str(a.dtype).split('.')[1] == str(b.dtype).split('.')[1]
    if a.numel() > 1:
        assert a.stride() == b.stride()
    if a.numel():
        assert a.data_ptr() == b.data_ptr()


@pytest.mark.parametrize('view', VIEWS)
@pytest.mark.parametrize('dtype', storage.dtypes)
@pytest.mark.parametrize('device', ['cpu', 'python'])
def test_there_and_back(device, dtype, view):
    ours = VIEWS[view](lamina.arange(12, device=device).to(
        storage.dtypes[dtype]).reshape(3, 4))
    theirs = torch.from_dlpack(ours)
    same_view(ours, theirs)
    same_view(lamina.from_dlpack(theirs, device=device), theirs)
    del ours, theirs

    theirs = VIEWS[view](torch.arange(12).to(
        getattr(torch, dtype)).reshape(3, 4))
    same_view(lamina.from_dlpack(theirs), theirs)
    same_view(lamina.from_dlpack(torch.utils.dlpack.to_dlpack(theirs)),
              theirs)


def test_the_owner_lives_as_long_as_pytorch_looks():
    owner = np.zeros(4, np.float32)
    alive = weakref.ref(owner)
    theirs = torch.from_dlpack(lamina.from_numpy(owner))
    del owner
    theirs[0] = 3
    assert alive()[0] == 3
    del theirs
    assert alive() is None


def test_pytorch_s_memory_lives_as_long_as_lamina_looks():
    theirs = torch.arange(4.0)
    row = lamina.from_dlpack(theirs)[1:]
    address = theirs.data_ptr()
    del theirs
    torch.full((4,), 9.0)               # would take freed memory
    assert row.tolist() == [1, 2, 3]
    assert row.data_ptr() == address + 4


def test_a_capsule_is_taken_once_by_either():
    capsule = lamina.ones(2).__dlpack__()
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match='taken before'):
        lamina.from_dlpack(capsule)
    capsule = torch.ones(2).__dlpack__()
    lamina.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match='only once'):
        torch.from_dlpack(capsule)
