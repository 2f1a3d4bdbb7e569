"""Chapter 1: bytes, dtypes, devices, storages. NumPy is the oracle."""

import array
import copy
import gc
import math
import mmap
import pickle
import struct
import subprocess
import sys
import weakref
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina import storage as module
from lamina.storage import Storage, device, dtypes, wrap

DTYPES = list(dtypes.values())
NUMPYS = [d for d in DTYPES if d is not lamina.bfloat16]
DEVICES = ['python', 'cpu']
ids = dict(ids=lambda value: getattr(value, 'name', str(value)))


# --- dtypes -----------------------------------------------------------

@pytest.mark.parametrize('dtype', DTYPES, **ids)
def test_dtype_agrees_with_numpy(dtype):
    if dtype is lamina.bfloat16:
        theirs = np.dtype(np.float16)       # NumPy has none: like float16
    else:
        theirs = np.dtype(dtype.name)
    assert dtype.itemsize == theirs.itemsize
    assert dtype.is_floating_point == (theirs.kind == 'f')
    assert dtype.is_signed == (theirs.kind in 'if')
    assert dtype.category == {'b': 0, 'u': 1, 'i': 1, 'f': 2}[theirs.kind]
    assert repr(dtype) == f'lamina.{dtype.name}'


def test_categories_order_the_kinds():
    kinds = {d.name: d.category for d in DTYPES}
    assert kinds == {'bool': 0, 'uint8': 1, 'int8': 1, 'int16': 1,
                     'int32': 1, 'int64': 1, 'float16': 2, 'bfloat16': 2,
                     'float32': 2, 'float64': 2}
    assert not any(d.is_complex for d in DTYPES)


@pytest.mark.parametrize('dtype', DTYPES, **ids)
def test_a_copied_dtype_is_the_same_object(dtype):
    assert copy.deepcopy(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype


def test_other_names():
    assert lamina.bool is lamina.bool_ and lamina.bool.name == 'bool'
    assert lamina.int is lamina.int32 and lamina.long is lamina.int64
    assert lamina.short is lamina.int16
    assert lamina.half is lamina.float16
    assert lamina.float is lamina.float32
    assert lamina.double is lamina.float64


def test_as_dtype():
    assert module.as_dtype(None) is None
    assert module.as_dtype(lamina.int32) is lamina.int32
    for wrong in ('float32', float, 3, np.float32):
        with pytest.raises(TypeError, match='lamina.float32') as error:
            module.as_dtype(wrong)
        assert repr(wrong) in str(error.value)


# --- what a dtype keeps ----------------------------------------------

@pytest.mark.parametrize('name', ['uint8', 'int8', 'int16', 'int32', 'int64'])
@given(value=st.integers(-2 ** 70, 2 ** 70))
def test_integers_wrap_as_the_low_bytes_say(name, value):
    dtype = dtypes[name]
    low = (value % 2 ** (8 * dtype.itemsize)).to_bytes(
        dtype.itemsize, 'little')
    assert wrap(dtype, value) == int.from_bytes(
        low, 'little', signed=dtype.is_signed)


@pytest.mark.parametrize('name', ['float16', 'float32', 'float64'])
@given(value=st.floats() | st.integers(-10 ** 400, 10 ** 400))
def test_floats_round_to_the_nearest(name, value):
    kept = wrap(dtypes[name], value)
    try:
        value = float(value)
    except OverflowError:               # an int beyond every float
        value = math.inf if value > 0 else -math.inf
    with np.errstate(over='ignore'):
        expected = float(np.dtype(name).type(value))
    assert kept == expected or kept != kept and expected != expected
    assert math.copysign(1, kept) == math.copysign(1, expected)


@pytest.mark.parametrize('name, value, kept', [
    ('uint8', 300, 44), ('uint8', -1, 255), ('uint8', 2.9, 2),
    ('uint8', -0.5, 0), ('int32', 2 ** 31, -2 ** 31),
    ('int32', -2.9, -2), ('int64', 2 ** 63, -2 ** 63),
    ('int64', math.nan, -2 ** 63), ('int32', math.inf, -2 ** 31),
    ('uint8', -math.inf, 0), ('float32', 16777217, 16777216.0),
    ('float32', 1e39, math.inf), ('float32', -1e39, -math.inf),
    ('int8', 200, -56), ('int8', -129, 127), ('int16', 2 ** 15, -2 ** 15),
    ('int8', math.nan, 0), ('int16', math.inf, 0), ('float16', 65519.99, 65504.0),
    ('float16', 65520, math.inf), ('float16', -65520, -math.inf),
    ('float16', 2049, 2048.0), ('float16', 2051, 2052.0),
    ('float16', 2 ** -25, 0.0), ('float16', 1.01 * 2 ** -25, 2.0 ** -24),
    ('float16', 0.1, 0.0999755859375), ('bfloat16', 0.1, 0.10009765625),
    ('bfloat16', 257, 256.0), ('bfloat16', 259, 260.0),
    ('bfloat16', 65520, 65536.0), ('bfloat16', 3.39e38, 255 * 2.0 ** 120),
    ('bfloat16', 3.4e38, math.inf), ('bfloat16', -3.4e38, -math.inf),
    ('bfloat16', 1e39, math.inf), ('bfloat16', math.inf, math.inf),
    ('bfloat16', 2 ** -133, 2.0 ** -133), ('bfloat16', 10 ** 400, math.inf),
    ('float64', 1e39, 1e39), ('bool', 0.5, True), ('bool', -0.0, False),
    ('bool', math.nan, True), ('int64', True, 1)])
def test_wrap(name, value, kept):
    found = wrap(dtypes[name], value)
    assert found == kept
    assert type(found) is {0: bool, 1: int, 2: float}[dtypes[name].category]


@given(st.floats(width=32))
def test_bfloat16_is_the_nearest_upper_half_of_a_float32(value):
    kept = wrap(lamina.bfloat16, value)
    if value != value:
        assert kept != kept
        return
    bits, = struct.unpack('=I', struct.pack('=f', value))
    below, above = [struct.unpack('=f', struct.pack('=I', half << 16))[0]
                    for half in (bits >> 16, (bits >> 16) + 1)]
    if math.isnan(above):           # value is infinite
        above = below
    distance = [abs(value - x) if abs(x) != math.inf or x == value
                else abs(value - math.copysign(2.0 ** 128, value))
                for x in (below, above)]
    if distance[0] == distance[1]:
        assert struct.unpack('=H', lamina.bfloat16.format.pack(kept))[0] % 2 \
            == 0 or below == above
    assert kept == (below, above)[distance[1] < distance[0]] \
        or distance[0] == distance[1] and kept in (below, above)


@pytest.mark.parametrize('name', ['float16', 'bfloat16'])
def test_every_pattern_of_sixteen_bits_comes_back(name):
    dtype = dtypes[name]
    for pattern in range(2 ** 16):
        data = struct.pack('=H', pattern)
        value, = dtype.format.unpack(data)
        assert value != value or dtype.format.pack(value) == data
        assert not math.isnan(value) or math.isnan(wrap(dtype, value))


@pytest.mark.parametrize('dtype', NUMPYS, **ids)
def test_limits_agree_with_numpy(dtype):
    if dtype.category == 2:
        ours, theirs = lamina.finfo(dtype), np.finfo(dtype.name)
        for name in ('max', 'min', 'eps', 'tiny', 'smallest_normal'):
            assert getattr(ours, name) == float(getattr(theirs, name)), name
        assert ours.resolution == pytest.approx(
            float(theirs.resolution), rel=1e-3)     # NumPy rounds it to dtype
    elif dtype.category == 1:
        ours, theirs = lamina.iinfo(dtype), np.iinfo(dtype.name)
        assert (ours.min, ours.max) == (theirs.min, theirs.max)
    else:
        for wrong in (lamina.finfo, lamina.iinfo):
            with pytest.raises(TypeError, match='bool'):
                wrong(dtype)
        return
    assert ours.bits == 8 * dtype.itemsize and ours.dtype == dtype.name


def test_limits():
    info = lamina.finfo(lamina.bfloat16)
    assert (info.max, info.eps, info.tiny, info.resolution) == (
        3.3895313892515355e+38, 2.0 ** -7, 2.0 ** -126, 0.01)
    assert repr(lamina.finfo(lamina.float16)) == (
        'finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, '
        'smallest_normal=6.10352e-05, tiny=6.10352e-05, dtype=float16)')
    assert repr(lamina.iinfo(lamina.int8)) == (
        'iinfo(min=-128, max=127, dtype=int8)')
    assert lamina.finfo().dtype == 'float32'
    with pytest.raises(TypeError, match='iinfo'):
        lamina.finfo(lamina.int8)
    with pytest.raises(TypeError, match='finfo'):
        lamina.iinfo(lamina.float32)
    with pytest.raises(TypeError, match='got 3'):
        lamina.finfo(3)
    with pytest.raises(TypeError):
        lamina.iinfo(None)


# --- devices ----------------------------------------------------------

def test_one_object_for_each_device():
    assert device('cpu') is module.cpu is device(module.cpu)
    assert module.as_device('meta') is module.meta
    assert str(module.python) == 'python'
    assert repr(module.cpu) == "device(type='cpu')"
    assert pickle.loads(pickle.dumps(module.meta)) is module.meta
    assert device.register('cpu') is module.cpu     # no second one


def test_bits_are_apart():
    bits = [d.bit for d in device.known.values()]
    assert len(set(bits)) == len(bits)
    assert all(bit.bit_count() == 1 for bit in bits)


@pytest.mark.parametrize('wrong', ['gpu', 'CPU', 3, None])
def test_an_unknown_device_names_those_there_are(wrong):
    with pytest.raises(RuntimeError, match="'python', 'cpu', 'meta'") as e:
        device(wrong)
    assert repr(wrong) in str(e.value)


def test_default_device():
    assert lamina.get_default_device() is module.cpu
    lamina.set_default_device('python')
    try:
        assert lamina.get_default_device() is module.python
        with pytest.raises(RuntimeError, match='gpu'):
            lamina.set_default_device('gpu')
        assert lamina.get_default_device() is module.python
    finally:
        lamina.set_default_device('cpu')


def test_default_dtype():
    assert lamina.get_default_dtype() is lamina.float32
    lamina.set_default_dtype(lamina.float64)
    try:
        assert lamina.get_default_dtype() is lamina.float64
    finally:
        lamina.set_default_dtype(lamina.float32)


@pytest.mark.parametrize('wrong', [lamina.int64, lamina.bool_, 'float32'])
def test_a_default_dtype_is_a_float(wrong):
    with pytest.raises(TypeError, match='floating-point') as error:
        lamina.set_default_dtype(wrong)
    assert repr(wrong) in str(error.value)
    assert lamina.get_default_dtype() is lamina.float32


# --- storages ---------------------------------------------------------

@pytest.mark.parametrize('where', DEVICES)
def test_new_bytes_are_zero(where):
    storage = Storage(24, where)
    assert bytes(storage.bytes) == bytes(24)
    assert storage.nbytes() == 24 and storage.device is device(where)
    assert repr(storage) == f"Storage(24 bytes, device='{where}')"


def test_the_default_is_the_cpu():
    assert Storage(1).device is module.cpu


@pytest.mark.parametrize('dtype', DTYPES, **ids)
@pytest.mark.parametrize('where', DEVICES)
@given(data=st.binary(max_size=40))
def test_read_agrees_with_numpy(where, dtype, data):
    storage = Storage(bytearray(data), where)
    count = len(data) // dtype.itemsize
    if dtype is lamina.bfloat16:
        upper = np.frombuffer(data, np.uint16, count).astype(np.uint32)
        array = (upper << 16).view(np.float32)
    else:
        array = np.frombuffer(data, dtype.name, count)
    for i in range(count):
        found = storage.read(dtype, i)
        assert np.array(found, array.dtype).tobytes() == array[i].tobytes() \
            or dtype.category != 1      # any true byte is True; NaN's bits
        assert found == array[i] or found != found and array[i] != array[i]
    assert storage.elements(dtype).nbytes == count * dtype.itemsize


@pytest.mark.parametrize('dtype', DTYPES, **ids)
def test_write_touches_one_element(dtype):
    storage = Storage(bytearray(b'\xaa' * 24))
    storage.write(dtype, 1, 1)
    size = dtype.itemsize
    expected = bytearray(b'\xaa' * 24)
    expected[size:2 * size] = (
        np.ones(1, np.float32).tobytes()[2:] if dtype is lamina.bfloat16
        else np.ones(1, dtype.name).tobytes())
    assert storage.bytes == expected
    assert storage.read(dtype, 1) == 1


def test_write_keeps_what_the_dtype_keeps():
    storage = Storage(8)
    storage.write(lamina.uint8, 0, 300)
    storage.write(lamina.float32, 1, 16777217)
    assert storage.read(lamina.uint8, 0) == 44
    assert storage.read(lamina.float32, 1) == 16777216


def test_bytes_have_the_order_of_the_machine():
    storage = Storage(4)
    storage.write(lamina.int32, 0, 258)
    assert storage.bytes == (258).to_bytes(4, sys.byteorder)
    assert lamina.int32.format.pack(258) == bytes(storage.bytes)


@pytest.mark.parametrize('index', [-1, 3, 4, 10 ** 20])
def test_bounds(index):
    storage = Storage(15)       # three int32 and three bytes
    for use in (lambda: storage.read(lamina.int32, index),
                lambda: storage.write(lamina.int32, index, 0)):
        with pytest.raises(IndexError, match='from 0 to 2') as error:
            use()
        assert f'element {index} ' in str(error.value)
        assert 'int32' in str(error.value)
    assert storage.version == 0


def test_an_empty_storage_has_no_element():
    with pytest.raises(IndexError, match='holds 0 of int64'):
        Storage(7).read(lamina.int64, 0)
    storage = Storage(0)
    assert storage.nbytes() == 0 and len(storage.elements(lamina.int64)) == 0
    assert not storage.bytes.readonly


def test_an_index_is_an_int():
    with pytest.raises(TypeError):
        Storage(8).read(lamina.uint8, 1.0)
    with pytest.raises(TypeError, match='float32'):
        Storage(8).read('float32', 0)


def test_version_counts_writes():
    storage = Storage(8)
    for i in range(5):
        storage.write(lamina.uint8, i, i)
    storage.read(lamina.uint8, 0)
    assert storage.version == 5


@pytest.mark.parametrize('name', ['float16', 'bfloat16'])
def test_elements_without_a_cast_are_a_window_too(name):
    storage = Storage(7)
    window = storage.elements(dtypes[name])
    window[0], window[-1] = 1.5, -2
    assert list(window) == window.tolist() == [1.5, 0.0, -2.0]
    assert len(window) == 3 and window.nbytes == 6
    assert storage.read(dtypes[name], 2) == -2
    for index in (3, -4):
        with pytest.raises(IndexError):
            window[index]
        with pytest.raises(IndexError):
            window[index] = 1


# --- memory that somebody else owns ----------------------------------

@pytest.mark.parametrize('where', DEVICES)
def test_shared_with_numpy_both_ways(where):
    ours = np.arange(6, dtype=np.float64)
    storage = Storage(ours, where)
    storage.write(lamina.float64, 2, -1.5)
    ours[5] = 8
    assert ours[2] == -1.5 and storage.read(lamina.float64, 5) == 8

    theirs = np.frombuffer(storage.bytes, np.float64)
    theirs[0] = 4
    assert ours[0] == 4 and np.shares_memory(ours, theirs)


@pytest.mark.parametrize('make', [
    lambda: bytearray(16), lambda: np.zeros((2, 2), np.int32),
    lambda: np.zeros((), np.complex128), lambda: array.array('q', [0, 0]),
    lambda: memoryview(bytearray(16)), lambda: mmap.mmap(-1, 16),
    lambda: np.zeros(16, np.bool_)])
def test_whatever_lends_its_memory(make):
    buffer = make()
    storage = Storage(buffer)
    assert storage.nbytes() == 16 and storage.buffer is buffer
    storage.write(lamina.int64, 1, 1)
    assert bytes(memoryview(buffer).cast('B'))[8:] == (1).to_bytes(
        8, sys.byteorder)


def test_a_file_is_memory(tmp_path):
    path = tmp_path / 'numbers'
    path.write_bytes(bytes(16))
    with open(path, 'r+b') as file:
        with mmap.mmap(file.fileno(), 16) as mapped:
            Storage(mapped).write(lamina.int64, 1, -2)
    assert path.read_bytes() == struct.pack('=2q', 0, -2)


def test_the_owner_lives_as_long_as_the_storage():
    owner = bytearray(8)
    window = Storage(owner).elements(lamina.uint8)
    with pytest.raises(BufferError):
        owner.extend(b'more')
    del window
    owner.extend(b'more')


def test_two_processes_share_memory():
    block = SharedMemory(create=True, size=16)
    try:
        storage = Storage(block.buf)
        storage.write(lamina.uint8, 0, 41)
        program = """if True:
            from multiprocessing.shared_memory import SharedMemory
            block = SharedMemory(name)
            block.buf[0] += 1
            block.close()
        """
        child = get_context('spawn').Process(
            target=exec, args=(program, {'name': block.name}))
        child.start()
        child.join()
        assert storage.read(lamina.uint8, 0) == 42
        del storage
    finally:
        block.close()
        block.unlink()


@pytest.mark.parametrize('where', DEVICES)
def test_data_ptr(where):
    memory = np.zeros(8, np.int16)
    assert Storage(memory, where).data_ptr() == memory.ctypes.data
    assert Storage(memory[3:], where).data_ptr() == memory.ctypes.data + 6
    assert Storage(0, where).data_ptr() == 0
    owner = bytearray(8)
    Storage(owner, where).data_ptr()
    owner.extend(b'more')               # nobody holds on to it


@pytest.mark.parametrize('buffer, fault', [
    (b'12345678', 'bytes is read-only'),
    (np.arange(8)[::2], 'ndarray is not contiguous'),
    (memoryview(b'1234'), 'memoryview is read-only')])
def test_memory_that_cannot_be_used(buffer, fault):
    with pytest.raises(TypeError, match=fault):
        Storage(buffer)


@pytest.mark.parametrize('wrong', [1.5, 'text', None, [1, 2]])
def test_no_memory_at_all(wrong):
    with pytest.raises(TypeError):
        Storage(wrong)


@pytest.mark.parametrize('where', [*DEVICES, 'meta'])
def test_a_negative_size(where):
    with pytest.raises(RuntimeError, match='-1 bytes'):
        Storage(-1, where)


# --- DLPack -----------------------------------------------------------

class Lender:
    """What speaks DLPack: NumPy's from_dlpack wants an object."""

    def __init__(self, *parts):
        self.parts = parts

    def __dlpack__(self, **options):
        return module.lend_dlpack(*self.parts)

    def __dlpack_device__(self):
        return 1, 0


@pytest.fixture
def no_collector():
    module._sweep()
    gc.disable()
    yield
    gc.enable()
    module._sweep()
    assert not module._lent


@pytest.mark.parametrize('dtype', NUMPYS, **ids)
@pytest.mark.parametrize('where', DEVICES)
def test_numpy_takes_what_we_lend(where, dtype, no_collector):
    memory = np.arange(24).astype(dtype.name)
    storage = Storage(memory, where)
    for shape, strides, offset in [
            ((24,), (1,), 0), ((2, 3), (3, 1), 4), ((3, 2), (1, 3), 0),
            ((2, 2), (12, 5), 1), ((), (), 7), ((3, 4), (0, 1), 2),
            ((0, 3), (3, 1), 0)]:
        found = np.from_dlpack(Lender(storage, dtype, shape, strides, offset))
        size = dtype.itemsize
        expected = np.ndarray(shape, memory.dtype, memory, offset * size,
                              [s * size for s in strides])
        assert found.dtype == memory.dtype and found.shape == shape
        assert (found == expected).all()
        assert not found.size or found.ctypes.data == expected.ctypes.data
        del found
    storage.write(dtype, 0, 1)


@pytest.mark.parametrize('dtype', NUMPYS, **ids)
@pytest.mark.parametrize('where', DEVICES)
def test_we_take_what_numpy_lends(where, dtype):
    memory = np.arange(24).astype(dtype.name).reshape(2, 3, 4)
    for given in (memory, memory.T, memory[:, 1:, ::2], memory[1, 2, 3],
                  memory[:0], memory[0, 0]):
        given = np.asarray(given)
        if not given.flags.writeable or given.base is None:
            given = given.copy()
        storage, found, shape, strides = module.take_dlpack(
            given.__dlpack__(), where)
        assert found is dtype and shape == given.shape
        assert storage.device is device(where)
        assert not given.size or strides == tuple(
            s // dtype.itemsize for s in given.strides)
        assert not given.size or storage.data_ptr() == given.ctypes.data
        ends = [(n - 1) * s for n, s in zip(shape, strides)]
        count = 1 + sum(ends) if given.size else 0
        assert storage.nbytes() == count * dtype.itemsize
        if count:
            last = storage.read(dtype, count - 1)
            assert last == given.flat[-1].item()


@pytest.mark.parametrize('dtype', DTYPES, **ids)
def test_our_own_capsules_come_back(dtype, no_collector):
    storage = Storage(64)
    capsule = module.lend_dlpack(storage, dtype, (2, 2), (3, 1), 1)
    taken, found, shape, strides = module.take_dlpack(capsule)
    assert (found, shape, strides) == (dtype, (2, 2), (3, 1))
    taken.write(dtype, 4, 1)
    assert storage.read(dtype, 5) == 1
    assert taken.nbytes() == 5 * dtype.itemsize


def test_a_capsule_is_taken_once(no_collector):
    capsule = module.lend_dlpack(Storage(8), lamina.float32, (2,), (1,))
    taken = module.take_dlpack(capsule)
    with pytest.raises(RuntimeError, match='PyCapsule was taken before'):
        module.take_dlpack(capsule)
    with pytest.raises(RuntimeError, match='int is none'):
        module.take_dlpack(3)
    del taken, capsule


def test_lent_memory_lives_until_the_deleter(no_collector):
    owner = np.zeros(4, np.float32)
    alive = weakref.ref(owner)
    storage = Storage(owner)
    found = np.from_dlpack(Lender(storage, lamina.float32, (4,), (1,)))
    again = found[1:]
    del owner, storage, found
    assert alive() is not None and len(module._lent) == 1
    alive()[3] = 7
    assert again[2] == 7
    del again                           # the deleter runs here, once
    assert alive() is None and not module._lent


def test_taken_memory_is_given_back_once(no_collector):
    theirs = np.zeros(4, np.float32)
    alive = weakref.ref(theirs)
    storage, *_ = module.take_dlpack(theirs.__dlpack__())
    window = storage.elements(lamina.float32)[1:]
    del theirs, storage
    assert alive() is not None
    window[2] = 5.0
    assert alive()[3] == 5
    del window
    assert alive() is None


def test_a_lent_bytearray_cannot_move(no_collector):
    owner = bytearray(8)
    capsule = module.lend_dlpack(Storage(owner), lamina.uint8, (8,), (1,))
    with pytest.raises(BufferError):
        owner.extend(b'more')
    del capsule
    module._sweep()
    owner.extend(b'more')


def test_capsules_that_nobody_takes_are_swept(no_collector):
    owner = np.zeros(4, np.float32)
    alive = weakref.ref(owner)
    held = module.lend_dlpack(Storage(owner), lamina.float32, (4,), (1,))
    module.lend_dlpack(Storage(8), lamina.float32, (2,), (1,))
    del owner
    module.lend_dlpack(Storage(4), lamina.float32, (1,), (1,))
    assert len(module._lent) == 2       # this one and the one that is held
    assert alive() is not None
    del held
    module._sweep()
    assert alive() is None and not module._lent and not module._waiting


def test_sweeping_is_quick_however_much_is_lent(no_collector):
    storage = Storage(4)
    arrays = [np.from_dlpack(Lender(storage, lamina.uint8, (4,), (1,)))
              for _ in range(100)]
    assert len(module._lent) == 100 and len(module._waiting) == 1
    del arrays
    assert not module._lent


def test_an_error_of_the_taker_is_not_lost():
    storage = Storage(8)
    with pytest.raises((RuntimeError, BufferError), match='dtype|type'):
        np.from_dlpack(Lender(storage, lamina.bfloat16, (4,), (1,)))


@pytest.mark.parametrize('given, fault', [
    (np.zeros(2, np.complex64), 'code 5 with 64 bits'),
    (np.zeros(2, np.uint16), 'code 1 with 16 bits'),
    (np.arange(4.0)[::-1], r'strides \(-1,\)')])
def test_capsules_that_a_storage_cannot_hold(given, fault):
    capsule = given.__dlpack__()
    with pytest.raises(BufferError, match=fault):
        module.take_dlpack(capsule)


def test_a_tensor_elsewhere_is_refused():
    row = module.DLTensor(device_type=2, code=2, bits=32, lanes=1)
    with pytest.raises(BufferError, match='device 2'):
        module.read_dlpack(row)
    row.device_type, row.lanes = 1, 4
    with pytest.raises(BufferError, match='4 lanes'):
        module.read_dlpack(row)


def test_strides_may_be_left_out():
    import ctypes
    sizes = (ctypes.c_int64 * 3)(2, 3, 4)
    row = module.DLTensor(None, 1, 0, 3, 0, 8, 1, ctypes.addressof(sizes),
                          None, 0)
    assert module.read_dlpack(row) == (lamina.int8, (2, 3, 4), (12, 4, 1))


def test_meta_lends_nothing():
    with pytest.raises(BufferError, match='meta'):
        module.lend_dlpack(Storage(8, 'meta'), lamina.uint8, (8,), (1,))


def test_no_numpy_is_needed():
    program = (
        'import sys; sys.modules["numpy"] = None\n'
        'import lamina.storage as s\n'
        'a = s.Storage(8, "python"); a.write(s.bfloat16, 3, 1.5)\n'
        'b, *_ = s.take_dlpack(s.lend_dlpack(a, s.bfloat16, (4,), (1,)))\n'
        'assert b.read(s.bfloat16, 3) == 1.5; del b\n'
        'assert not s._lent')
    subprocess.run([sys.executable, '-c', program], check=True)


# --- meta -------------------------------------------------------------

def test_meta_has_a_size_and_no_memory():
    storage = Storage(8 * 10 ** 12, 'meta')
    assert storage.nbytes() == 8 * 10 ** 12
    for use in (lambda: storage.bytes,
                lambda: storage.elements(lamina.uint8),
                lambda: storage.read(lamina.uint8, 0),
                lambda: storage.write(lamina.uint8, 0, 1)):
        with pytest.raises(NotImplementedError, match='8000000000000 bytes'):
            use()
    assert storage.version == 0


def test_meta_takes_no_memory():
    with pytest.raises(TypeError, match='not 4 real ones'):
        Storage(bytearray(4), 'meta')


def test_the_public_names_are_the_librarys():
    for name in module.__all__:
        assert hasattr(lamina, name)
