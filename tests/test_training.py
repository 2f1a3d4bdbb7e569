"""Chapter 11: data sets, loaders, files, and training itself."""

import gc
import io
import json
import time
import tracemalloc

import numpy as np
import pytest

import lamina
from lamina import nn, optim, training

DTYPES = [lamina.bool, lamina.uint8, lamina.int32, lamina.int64,
          lamina.float32, lamina.float64]


# Data

@pytest.fixture
def data():
    return training.TensorDataset(
        lamina.arange(20.).view(10, 2), lamina.arange(10))


def test_tensor_dataset(data):
    assert len(data) == 10
    x, y = data[3]
    assert x.tolist() == [6., 7.] and y.item() == 3
    x, y = data.__getitems__(lamina.tensor([9, 0]))
    assert x.tolist() == [[18., 19.], [0., 1.]] and y.tolist() == [9, 0]
    with pytest.raises(IndexError):
        data[10]
    for wrong in ([], [lamina.zeros(2), lamina.zeros(3)],
                  [lamina.tensor(1.)]):
        with pytest.raises(ValueError, match='same first size'):
            training.TensorDataset(*wrong)


class Squares(training.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return {'x': lamina.full((2,), float(i))}['x'], i * i, (i / 2, i > 2)


def test_any_dataset_is_collated():
    loader = training.DataLoader(Squares(), batch_size=3)
    (x, y, (half, big)), (rest, *_) = loader
    assert x.tolist() == [[0., 0.], [1., 1.], [2., 2.]]
    assert y.tolist() == [0, 1, 4] and y.dtype is lamina.int64
    assert half.tolist() == [0., .5, 1.] and big.dtype is lamina.bool
    assert rest.tolist() == [[3., 3.], [4., 4.]]
    with pytest.raises(TypeError, match='a sample is str'):
        training.default_collate(['a'])
    for missing, call in ((r'__getitem__\(index\)', lambda d: d[0]),
                          (r'__len__\(\)', len)):
        with pytest.raises(NotImplementedError, match=missing):
            call(training.Dataset())


@pytest.mark.parametrize('device', ['cpu', 'python'])
@pytest.mark.parametrize('dim', [0, 1, 2, -1])
def test_stack(dim, device):
    arrays = [np.arange(6).reshape(2, 3) * k for k in (1, 2, 3)]
    found = training.stack([lamina.tensor(a, device=device).t()
                            for a in arrays], dim)
    assert found.tolist() == np.stack([a.T for a in arrays], dim).tolist()
    assert found.dtype is lamina.int64 and str(found.device) == device
    a = lamina.ones(2, requires_grad=True)
    (training.stack([a, a * 2]) * lamina.tensor([[1., 2.], [3., 4.]])
     ).sum().backward()
    assert a.grad.tolist() == [7., 10.]
    with pytest.raises(RuntimeError, match=r'\[2\], number 1 \[3\]'):
        training.stack([lamina.zeros(2), lamina.zeros(3)])


def test_subset_and_split(data):
    part = training.Subset(data, lamina.tensor([7, 2]))
    assert len(part) == 2 and part[1][1].item() == 2
    assert part.__getitems__(lamina.tensor([1, 0]))[1].tolist() == [2, 7]
    a, b, c = training.random_split(data, [5, 3, 2], nn.Generator(0))
    everything = [i for part in (a, b, c) for i in part.indices.tolist()]
    assert sorted(everything) == list(range(10))
    assert everything != list(range(10))
    again = training.random_split(data, [5, 3, 2], nn.Generator(0))
    assert again[1].indices.tolist() == b.indices.tolist()
    other = training.random_split(data, [5, 3, 2], nn.Generator(1))
    assert other[1].indices.tolist() != b.indices.tolist()
    assert [len(p) for p in training.random_split(data, [.85, .15])] == [9, 1]
    assert [len(p) for p in training.random_split(
        data, [1 / 3, 1 / 3, 1 / 3])] == [4, 3, 3]
    assert [len(p) for p in training.random_split(data, [1.0])] == [10]
    for wrong in ([5, 4], [11, -1], []):
        with pytest.raises(ValueError, match='add up to the 10 samples'):
            training.random_split(data, wrong)
    for wrong in ([.5, .4], [1.5, -.5]):
        with pytest.raises(ValueError, match='fractions'):
            training.random_split(data, wrong)


def test_loader(data):
    loader = training.DataLoader(data, batch_size=4)
    assert len(loader) == 3
    assert [y.tolist() for _, y in loader] == [[0, 1, 2, 3], [4, 5, 6, 7],
                                               [8, 9]]
    short = training.DataLoader(data, batch_size=4, drop_last=True)
    assert len(short) == 2
    assert [y.shape for _, y in short] == [(4,), (4,)]
    whole = training.DataLoader(data, batch_size=5, drop_last=True)
    assert len(whole) == len(list(whole)) == 2
    assert [y.tolist() for _, y in training.DataLoader(data)] == [
        [i] for i in range(10)]
    assert len(list(training.DataLoader(data, batch_size=99))) == 1
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=f'got {wrong!r}'):
            training.DataLoader(data, batch_size=wrong)
    with pytest.raises(TypeError, match='got list'):
        training.DataLoader([1, 2, 3])
    with pytest.raises(TypeError, match='num_workers'):
        training.DataLoader(data, num_workers=2)


def test_loader_shuffles(data):
    def epoch(loader):
        return [i for _, y in loader for i in y.tolist()]
    g = nn.Generator(5)
    loader = training.DataLoader(data, 3, shuffle=True, generator=g)
    first, second = epoch(loader), epoch(loader)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second and first != list(range(10))
    assert epoch(training.DataLoader(data, 3, shuffle=True,
                                     generator=nn.Generator(5))) == first
    nn.manual_seed(5)
    assert epoch(training.DataLoader(data, 7, shuffle=True)) == first


def test_rows_and_labels_stay_together(data):
    for x, y in training.DataLoader(data, 3, shuffle=True):
        assert (x[:, 0] == y * 2).all()


# What the loop prints

def test_accuracy():
    out = lamina.tensor([[1., 2.], [3., 0.], [0., 5.], [2., 1.]])
    assert training.accuracy(out, lamina.tensor([1, 0, 0, 0])) == .75
    with pytest.raises(ValueError, match=r'got \[4, 2\] and \[3\]'):
        training.accuracy(out, lamina.tensor([1, 0, 0]))
    with pytest.raises(ValueError, match=r'\[4\]'):
        training.accuracy(out[:, 0], lamina.tensor([1, 0, 0, 0]))
    with pytest.raises(ValueError, match='no rows'):
        training.accuracy(out[:0], lamina.tensor([], dtype=lamina.int64))


def test_progress():
    file, seen = io.StringIO(), []
    for i in training.progress(range(4), 'run', file=file, width=4,
                               note=lambda: f'at {i}'):
        seen.append(i)
    assert seen == [0, 1, 2, 3]
    lines = file.getvalue().split('\r')
    assert lines[1] == 'run [#...] 1/4 at 0'
    assert lines[-1] == 'run [####] 4/4 at 3\n'
    assert list(training.progress([], file=io.StringIO())) == []


def test_progress_goes_to_the_error_stream(capsys):
    list(training.progress('ab', 'x'))
    out, err = capsys.readouterr()
    assert out == '' and '2/2' in err


# Files

@pytest.mark.parametrize('dtype', DTYPES, ids=str)
def test_a_file_keeps_every_dtype_shape_and_view(dtype, tmp_path):
    x = lamina.tensor([[0, 1, 1], [1, 0, 3]]).to(dtype)
    tensors = {'x': x, 'turned': x.t(), 'part': x[:, 1:], 'row': x[1],
               'number': x[0, 1], 'nothing': x[:0],
               'python': x.to('python'), 'wide': x[0].expand(4, 3)}
    path = tmp_path / 'file.safetensors'
    training.save_file(tensors, path)
    found = training.load_file(path)
    assert list(found) == list(tensors)
    for name, y in found.items():
        assert y.dtype is dtype and y.shape == tensors[name].shape
        assert y.tolist() == tensors[name].tolist(), name
    assert not list(tmp_path.glob('*.part'))
    found['x'].fill_(1)             # on memory of its own, writable
    assert found['turned'].tolist() == x.t().tolist()


def test_the_format_is_safetensors(tmp_path):
    path = tmp_path / 'f'
    training.save_file({'a': lamina.tensor([1., 2.]),
                        'b': lamina.tensor([[7]])}, path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], 'little')
    header, body = json.loads(content[8:8 + size]), content[8 + size:]
    assert header == {
        'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]},
        'b': {'dtype': 'I64', 'shape': [1, 1], 'data_offsets': [8, 16]}}
    assert np.frombuffer(body[:8], '<f4').tolist() == [1., 2.]
    assert np.frombuffer(body[8:], '<i8').tolist() == [7]
    assert size % 8 == 0


def packed(header, body=b''):
    text = header if isinstance(header, bytes) else json.dumps(
        header).encode()
    return len(text).to_bytes(8, 'little') + text + body


def entry(**changes):
    return {'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8],
                  **changes}}


@pytest.mark.parametrize('content, message', [
    (b'', 'damaged'),
    (b'\xff' * 40, 'damaged'),
    (packed(b'{"a": '), 'damaged'),
    (packed([1, 2]), 'damaged'),
    (packed({'a': 3}), 'damaged'),
    (packed(b'[' * 50_000), 'damaged'),
    (packed(entry(), b'1234567'), 'bytes 0 to 8 of 7'),
    (packed(entry(shape=[3]), b'12345678'), r'shape \[3\]'),
    (packed(entry(shape=[-1, -2]), b'12345678'), r'\[-1, -2\]'),
    (packed(entry(shape=[2.0]), b'12345678'), r'\[2.0\]'),
    (packed(entry(shape='x'), b'12345678'), 'damaged'),
    (packed(entry(data_offsets=[8, 0]), b'12345678'), '8 to 0'),
    (packed(entry(data_offsets=[-8, 0]), b'12345678'), '-8 to 0'),
    (packed(entry(data_offsets=[0]), b'12345678'), 'damaged'),
    (packed(entry(dtype='F8'), b'12345678'), "'F8'"),
    (packed(entry(extra=1), b'12345678'), 'extra'),
], ids=range(16))
def test_a_damaged_file_is_refused(content, message, tmp_path):
    path = tmp_path / 'bad.safetensors'
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        training.load_file(path)
    assert 'bad.safetensors' in str(error.value)


def test_metadata_is_skipped(tmp_path):
    path = tmp_path / 'f'
    path.write_bytes(packed({'__metadata__': {'format': 'pt'}, **entry()},
                            np.array([1, 2], '<f4').tobytes()))
    assert training.load_file(path)['a'].tolist() == [1., 2.]


def test_a_model_goes_through_a_file(tmp_path):
    path = tmp_path / 'f'
    a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    training.save_file(a.state_dict(), path)
    b.load_state_dict(training.load_file(path))
    x = nn.rand(5, 3)
    assert (a(x) == b(x)).all()


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / 'f'
    training.save_file({'a': lamina.ones(2)}, path)
    with pytest.raises(NotImplementedError, match='meta'):
        training.save_file({'a': lamina.ones(2, device='meta')}, path)
    assert training.load_file(path)['a'].tolist() == [1., 1.]


# Training

def digits():
    datasets = pytest.importorskip('sklearn.datasets')
    found = datasets.load_digits()
    return training.random_split(training.TensorDataset(
        lamina.tensor(found.data / 16, dtype=lamina.float32),
        lamina.tensor(found.target)), [.8, .2], nn.Generator(0))


def fit(dataset, epochs):
    nn.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.Adam(model.parameters(), lr=.002)
    for _ in range(epochs):
        for x, y in training.DataLoader(dataset, 32, shuffle=True):
            loss = nn.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def test_digits_are_read():
    """97 % of a held-out fifth, in under 20 seconds."""
    train, held_out = digits()
    begin = time.perf_counter()
    model = fit(train, 20)
    assert time.perf_counter() - begin < 20
    x, y = held_out.__getitems__(lamina.arange(len(held_out)))
    assert len(held_out) == 359
    assert training.accuracy(model(x), y) >= .97


def test_training_repeats_to_the_bit():
    train, _ = digits()
    small = training.Subset(train, lamina.arange(200))
    a, b = fit(small, 1).state_dict(), fit(small, 1).state_dict()
    assert all((a[name] == b[name]).all() for name in a)


def test_memory_does_not_grow_without_the_collector():
    """Ten thousand steps with the garbage collector off."""
    nn.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(),
                          nn.Linear(3, 2, bias=False))
    optimizer = optim.SGD(model.parameters(), lr=.1)
    x, y = nn.rand(4, 2), lamina.tensor([0, 1, 1, 0])

    def steps(count):
        for _ in range(count):
            loss = nn.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    gc.collect()
    gc.disable()
    try:
        steps(1000)
        objects = len(gc.get_objects())
        steps(9000)
        assert abs(len(gc.get_objects()) - objects) < 50
        tracemalloc.start()
        steps(50)
        size, _ = tracemalloc.get_traced_memory()
        steps(150)
        grown = tracemalloc.get_traced_memory()[0] - size
        tracemalloc.stop()
        assert abs(grown) < 20_000, grown
    finally:
        gc.enable()


def test_collate_promotes_and_refuses_ragged_samples():
    x = training.default_collate([lamina.tensor([1, 2]),
                                  lamina.tensor([.5, .5])])
    assert x.dtype is lamina.float32
    assert x.tolist() == [[1., 2.], [.5, .5]]
    with pytest.raises(RuntimeError, match=r'lengths \[2, 1\]'):
        training.default_collate([(1, 2), (3,)])


def test_indices_of_any_kind():
    data = training.TensorDataset(lamina.arange(4., device='python'))
    part = training.Subset(data, [3, 1])
    assert len(part) == 2 and part[0][0].item() == 3.
    (batch,), = training.DataLoader(part, batch_size=2)
    assert batch.tolist() == [3., 1.]


def pack(path, text, body):
    path.write_bytes(len(text).to_bytes(8, 'little') + text.encode() + body)
    return path


@pytest.mark.parametrize('places, body, message', [
    ([(0, 1), (0, 1)], b'aa', 'begins at byte 0'),
    ([(0, 1), (2, 3)], b'aaa', 'begins at byte 2'),
    ([(0, 1), (1, 2)], b'aaa', 'end at byte 2 of 3')])
def test_files_are_filled_once(tmp_path, places, body, message):
    text = json.dumps({str(i): dict(dtype='U8', shape=[1], data_offsets=p)
                       for i, p in enumerate(places)})
    with pytest.raises(ValueError, match=message):
        training.load_file(pack(tmp_path / 'x', text, body))


def test_files_with_wrong_bools_or_names(tmp_path):
    entry = '"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}'
    path = tmp_path / 'x'
    with pytest.raises(ValueError, match='0 or 1; got 2'):
        training.load_file(pack(path, '{' + entry + '}', b'\2'))
    with pytest.raises(ValueError, match="'a' is there twice"):
        training.load_file(pack(path, f'{{{entry}, {entry}}}', b'\1'))
    x = lamina.ones(1)
    for error, wrong in ((ValueError, {'__metadata__': x}),
                         (TypeError, {1: x}), (TypeError, {'a': 1})):
        with pytest.raises(error):
            training.save_file(wrong, tmp_path / 'y')
    assert not (tmp_path / 'y').exists()
