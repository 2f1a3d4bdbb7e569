"""Storage: bytes, and how a dtype reads them.

Exported from chapters/01_storage.ipynb by `course export`; edit the chapter,
not this file.
"""

import ctypes
import math
import operator
import struct
import sys
import weakref
from importlib.util import find_spec

__all__ = [
    "Storage",
    "dtype",
    "device",
    "bool_",
    "bool",
    "uint8",
    "int8",
    "int16",
    "short",
    "int32",
    "int",
    "int64",
    "long",
    "float16",
    "half",
    "bfloat16",
    "float32",
    "float",
    "float64",
    "double",
    "get_default_device",
    "set_default_device",
    "get_default_dtype",
    "set_default_dtype",
    "finfo",
    "iinfo",
]


class dtype:
    """How one element is read from bytes: its name, size and format.

    `code` is the letter of the standard library's `struct`, or None with
    a `format` of its own, which packs and unpacks as a `struct.Struct`
    does; `category` orders the kinds of number: 0 bool, 1 integer,
    2 floating point.
    """

    __slots__ = ("name", "code", "category", "itemsize", "format", "bit")

    is_complex = False          # no dtype here is

    def __init__(self, name, code, category, format=None):
        self.name = name
        self.code = code
        self.category = category
        # "=": little or big end first, as the machine has it
        self.format = format or struct.Struct("=" + code)
        self.itemsize = self.format.size
        self.bit = 0            # of a layer that such tensors have to pass

    def __repr__(self):
        return f"lamina.{self.name}"

    def __reduce__(self):
        return self.name        # a copy or a pickle is the object itself

    @property
    def is_floating_point(self):
        return self.category == 2

    @property
    def is_signed(self):
        return self.category == 2 or self.code in "bhiq"


class BFloat16:
    """The format of a bfloat16: the upper half of a float32."""

    size = 2

    @staticmethod
    def pack(value):
        """Two bytes: float32's upper sixteen bits, rounded to nearest."""
        bits, = struct.unpack("=I", struct.pack("=f", value))
        if value != value:
            bits |= 0x400000        # a digit that is kept: NaN stays NaN
        else:
            # more than half of the last place kept carries into it, and
            # exactly half does where the place is odd
            bits += 0x7fff + (bits >> 16 & 1)
        return struct.pack("=H", bits >> 16)

    @staticmethod
    def unpack(data):
        """The number of two bytes: sixteen zero bits complete it."""
        bits, = struct.unpack("=H", data)
        return struct.unpack("=f", struct.pack("=I", bits << 16))


bool_ = dtype("bool", "?", 0)
uint8 = dtype("uint8", "B", 1)
int8 = dtype("int8", "b", 1)
int16 = dtype("int16", "h", 1)
int32 = dtype("int32", "i", 1)
int64 = dtype("int64", "q", 1)
float16 = dtype("float16", "e", 2)
bfloat16 = dtype("bfloat16", None, 2, BFloat16)
float32 = dtype("float32", "f", 2)
float64 = dtype("float64", "d", 2)
dtypes = {d.name: d for d in (
    bool_, uint8, int8, int16, int32, int64,
    float16, bfloat16, float32, float64)}


def wrap(dtype, value):
    """The number that `dtype` keeps of `value`.

    A bool keeps whether it is zero; an integer drops the fraction and
    wraps around at the end of its range (two's complement); a float
    rounds to the nearest that it has. NaN and infinity have no integer:
    they give what x86 processors give, the smallest one of four or eight
    bytes, and 0 in fewer (PyTorch leaves that undefined).
    """
    if dtype.category == 0:
        return value != 0
    if dtype.category == 2:
        try:
            packed = dtype.format.pack(value * 1.0)     # ints overflow too
            return dtype.format.unpack(packed)[0]
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    span = 1 << 8 * dtype.itemsize
    low = -span // 2 if dtype.is_signed else 0
    if value != value or value in (math.inf, -math.inf):
        return low if dtype.itemsize >= 4 else 0
    return (math.trunc(value) - low) % span + low


class device:
    """Where a storage lives: `device("cpu")`; one object for each name.

    `python` is read and written element by element, by Python alone;
    `cpu` is the same memory under NumPy's loops; `meta` has sizes and no
    memory. Each has a `bit` of its own, so that an int holds a set.
    """

    __slots__ = ("type", "bit")
    known = {}

    def __new__(cls, type):
        if isinstance(type, cls):
            return type
        if not isinstance(type, str) or type not in cls.known:
            raise RuntimeError(f"no device {type!r}: expected one of "
                               f"{', '.join(map(repr, cls.known))}")
        return cls.known[type]

    @classmethod
    def register(cls, type):
        """Make `type` known as a device, once."""
        if type not in cls.known:
            new = cls.known[type] = object.__new__(cls)
            new.type = type
            new.bit = 1 << len(cls.known) - 1
        return cls.known[type]

    def __repr__(self):
        return f"device(type={self.type!r})"

    def __str__(self):
        return self.type

    def __reduce__(self):
        return device, (self.type,)


python = device.register("python")
cpu = device.register("cpu")
meta = device.register("meta")


def as_device(device_or_name):
    """The device itself, given it or its name."""
    return device(device_or_name)


def as_dtype(value):
    """The dtype itself; TypeError for what is none. None stays None."""
    if value is not None and not isinstance(value, dtype):
        raise TypeError(f"expected a dtype, one of "
                        f"{', '.join(map(repr, dtypes.values()))}; "
                        f"got {value!r}")
    return value


def check_index(storage, dtype, index):
    """Refuse an element that the storage does not have."""
    count = storage.nbytes() // as_dtype(dtype).itemsize
    if not 0 <= operator.index(index) < count:
        raise IndexError(
            f"element {index} of a storage that holds {count} of "
            f"{dtype.name} ({storage.nbytes()} bytes): expected an index "
            + (f"from 0 to {count - 1}" if count else "into a larger one"))


def _allocate(nbytes, device):
    """So many new bytes; on meta, their number."""
    if nbytes < 0:
        raise RuntimeError(
            f"cannot allocate {nbytes} bytes: expected 0 or more")
    return nbytes if device is meta else bytearray(nbytes)


def _lend(buffer, device):
    """The object itself, if a storage can use its memory."""
    view = memoryview(buffer)
    if device is meta:
        raise TypeError("a storage on 'meta' has no memory: give it a "
                        f"number of bytes, not {view.nbytes} real ones")
    if view.readonly or not view.c_contiguous:
        fault = "read-only" if view.readonly else "not contiguous"
        raise TypeError(
            f"this {type(buffer).__name__} is {fault}: a storage needs "
            f"one run of writable bytes; a copy is one: bytearray(...)")
    return buffer


class Elements:
    """A window on memory for the dtypes that memoryview cannot cast to."""

    __slots__ = ("memory", "dtype")

    def __init__(self, memory, dtype):
        self.memory = memory
        self.dtype = dtype

    def _bytes(self, index):
        size = self.dtype.itemsize
        start = range(len(self))[index] * size      # -1 is the last one
        return slice(start, start + size)

    def __getitem__(self, index):
        data = self.memory[self._bytes(index)]
        return self.dtype.format.unpack(data)[0]

    def __setitem__(self, index, value):
        packed = self.dtype.format.pack(value)
        self.memory[self._bytes(index)] = packed

    def __len__(self):
        return self.memory.nbytes // self.dtype.itemsize

    @property
    def nbytes(self):
        return self.memory.nbytes

    def tolist(self):
        return list(self)


class Storage:
    """A flat run of bytes on a device; dtypes read it, tensors share it.

    `buffer` is a number of bytes to allocate, all zero, or any object
    with a writable buffer, which is then used where it lies: a bytearray,
    a NumPy array, a memory-mapped file. `version` counts the writes.
    """

    __slots__ = ("buffer", "device", "version", "__weakref__")

    def __init__(self, buffer, device=cpu):
        self.device = device = as_device(device)
        self.version = 0
        self.buffer = (_allocate(operator.index(buffer), device)
                       if hasattr(buffer, "__index__")
                       and not hasattr(buffer, "__len__")
                       else _lend(buffer, device))

    @property
    def bytes(self):
        """The memory itself, as a memoryview of unsigned bytes."""
        if self.device is meta:
            raise NotImplementedError(
                f"a storage on 'meta' is {self.buffer} bytes in name "
                f"only: there is no data to read or write")
        view = memoryview(self.buffer)
        return view.cast("B") if view.nbytes else memoryview(bytearray())

    def nbytes(self):
        """Size in bytes."""
        return self.buffer if self.device is meta else self.bytes.nbytes

    def data_ptr(self):
        """The address of the first byte; 0 if there is none."""
        if not self.nbytes():
            return 0
        return ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))

    def elements(self, dtype):
        """The bytes as a flat sequence of `dtype` elements: no copy.

        Bytes left over at the end, fewer than an element, are not in it.
        """
        whole = self.nbytes() // dtype.itemsize * dtype.itemsize
        memory = self.bytes[:whole]
        return (Elements(memory, dtype) if dtype in (float16, bfloat16)
                else memory.cast(dtype.code))

    def read(self, dtype, index):
        """Element `index`, as a Python number."""
        check_index(self, dtype, index)
        return self.elements(dtype)[index]

    def write(self, dtype, index, value):
        """Set element `index` to what `dtype` keeps of `value`."""
        check_index(self, dtype, index)
        self.elements(dtype)[index] = wrap(dtype, value)
        self.version += 1

    def __repr__(self):
        return f"Storage({self.nbytes()} bytes, device='{self.device}')"


_default = {"device": cpu if find_spec("numpy") else python,
            "dtype": float32}


def get_default_device():
    """Where tensors are made unless you say: cpu, or python where NumPy is
    not installed."""
    return _default["device"]


def set_default_device(device):
    """Make `device` the one where tensors are made unless you say."""
    _default["device"] = as_device(device)


def get_default_dtype():
    """The dtype of Python floats: float32 unless you say."""
    return _default["dtype"]


def set_default_dtype(dtype):
    """Make `dtype`, a floating-point one, that of Python floats."""
    if getattr(dtype, "category", None) != 2:
        raise TypeError(f"only a floating-point dtype, such as float32, "
                        f"can be the default; got {dtype!r}")
    _default["dtype"] = dtype


class finfo:
    """The limits of a floating-point dtype, read off its bit patterns."""

    def __init__(self, type=None):
        dtype = as_dtype(type) or get_default_dtype()
        if dtype.category != 2:
            raise TypeError(f"finfo() is for floating-point dtypes; for "
                            f"{dtype} there is iinfo({dtype})")
        pack, unpack = dtype.format.pack, dtype.format.unpack

        pattern = struct.Struct("=" + {2: "H", 4: "I", 8: "Q"}[
            dtype.itemsize])        # the unsigned integer of that size

        def number(bits):
            return unpack(pattern.pack(bits))[0]

        one, infinity = (pattern.unpack(pack(x))[0] for x in (1.0, math.inf))
        self.bits = 8 * dtype.itemsize
        self.max = number(infinity - 1)
        self.min = -self.max
        self.eps = number(one + 1) - 1
        # the lowest bit of the exponent alone
        self.tiny = self.smallest_normal = number(infinity & -infinity)
        self.resolution = 1 / 10 ** math.floor(-math.log10(self.eps))
        self.dtype = dtype.name

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, "
                f"max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, "
                f"dtype={self.dtype})")


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type):
        dtype = as_dtype(type)
        if getattr(dtype, "category", None) != 1:
            raise TypeError(f"iinfo() is for integer dtypes; for floats "
                            f"there is finfo(); got {dtype}")
        self.bits = 8 * dtype.itemsize
        self.min = -2 ** (self.bits - 1) if dtype.is_signed else 0
        self.max = self.min + 2 ** self.bits - 1
        self.dtype = dtype.name

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


class DLTensor(ctypes.Structure):
    """What DLPack says of a tensor; the field names are dlpack.h's."""

    _fields_ = [("data", ctypes.c_void_p),
                ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.c_void_p),         # int64_t *
                ("strides", ctypes.c_void_p),       # int64_t *, or null
                ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    """A DLTensor, and the function that says it is no longer needed."""

    _fields_ = [("tensor", DLTensor),
                ("manager_ctx", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


def dlpack_type(dtype):
    """(code, bits) of a dtype: an int is 0, unsigned 1, a float 2,
    a bfloat 4, a bool 6."""
    code = (6 if dtype.category == 0 else 4 if dtype is bfloat16
            else 2 if dtype.category == 2 else 0 if dtype.is_signed else 1)
    return code, 8 * dtype.itemsize


dlpack_types = {dlpack_type(d): d for d in dtypes.values()}
DLPACK_CPU = 1          # the device type of memory that the CPU reads


def _capsule_function(name, result, *arguments):
    """A function of Python's C interface."""
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    return prototype((f"PyCapsule_{name}", ctypes.pythonapi))


_new = _capsule_function("New", ctypes.py_object, ctypes.c_void_p,
                         ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _capsule_function("IsValid", ctypes.c_int, ctypes.py_object,
                              ctypes.c_char_p)
_pointer = _capsule_function("GetPointer", ctypes.c_void_p,
                             ctypes.py_object, ctypes.c_char_p)
_rename = _capsule_function("SetName", ctypes.c_int, ctypes.py_object,
                            ctypes.c_char_p)
FRESH, USED = b"dltensor", b"used_dltensor"     # a capsule keeps no copy


_lent = {}      # address of a DLManagedTensor -> what must stay alive
_waiting = {}   # the same address -> its capsule, which nobody took yet
_deleter_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@_deleter_type
def _give_back(address):
    """The deleter of all that we lend: the taker is done with it."""
    _lent.pop(address, None)


def _sweep():
    """Forget the capsules that were taken, and those that nobody can take:
    of these, what they lend as well."""
    for address in list(_waiting):
        if _is_valid(_waiting[address], FRESH):
            if sys.getrefcount(_waiting[address]) > 2:
                continue        # more than our own and the argument's
            _lent.pop(address, None)
        _waiting.pop(address, None)


def lend_dlpack(storage, dtype, shape, strides, offset=0):
    """A capsule that lends a storage's memory, without a copy.

    Shape, strides and offset count elements. BufferError on meta.
    """
    _sweep()
    if storage.device is meta:
        raise BufferError("a storage on 'meta' has no memory to lend")
    row = ctypes.c_int64 * len(shape)
    sizes, steps = row(*shape), row(*strides)
    managed = DLManagedTensor(DLTensor(
        storage.data_ptr() + offset * dtype.itemsize, DLPACK_CPU, 0,
        len(shape), *dlpack_type(dtype), 1, ctypes.addressof(sizes),
        ctypes.addressof(steps), 0),
        None, ctypes.cast(_give_back, ctypes.c_void_p).value)
    address = ctypes.addressof(managed)
    capsule = _new(address, FRESH, None)
    _lent[address] = managed, sizes, steps, storage.bytes
    _waiting[address] = capsule
    return capsule


def read_dlpack(tensor):
    """(dtype, shape, strides) of a DLTensor, if a storage can hold it."""
    found = tensor.code, tensor.bits
    if found not in dlpack_types or tensor.lanes != 1:
        raise BufferError(
            f"no dtype for DLPack's code {tensor.code} with {tensor.bits} "
            f"bits and {tensor.lanes} lanes: expected one of "
            f"{', '.join(dtypes)}")
    if tensor.device_type != DLPACK_CPU:
        raise BufferError(f"memory on DLPack's device {tensor.device_type}: "
                          f"expected {DLPACK_CPU}, the CPU's")
    row = ctypes.c_int64 * tensor.ndim
    shape = tuple(row.from_address(tensor.shape)) if tensor.ndim else ()
    if tensor.strides and tensor.ndim:
        strides = tuple(row.from_address(tensor.strides))
    else:
        strides = tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))
    if 0 not in shape and min(strides, default=0) < 0:
        raise BufferError(f"strides {strides}: expected none below zero; "
                          f"a copy has none")
    return dlpack_types[found], shape, strides


def take_dlpack(capsule, device=cpu):
    """(storage, dtype, shape, strides) of what a capsule lends: no copy.

    RuntimeError for a capsule that was taken before, BufferError for what
    a storage cannot hold.
    """
    if not _is_valid(capsule, FRESH):
        fault = "was taken before" if _is_valid(capsule, USED) else "is none"
        raise RuntimeError(
            f"expected a capsule named 'dltensor', and this "
            f"{type(capsule).__name__} {fault}; each can be taken once: "
            f"x.__dlpack__() makes another")
    address = _pointer(capsule, FRESH)
    managed = DLManagedTensor.from_address(address)
    tensor, deleter = managed.tensor, managed.deleter
    dtype, shape, strides = read_dlpack(tensor)
    count = 0 if 0 in shape else 1 + sum(
        (n - 1) * step for n, step in zip(shape, strides))
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(
        (tensor.data or 0) + tensor.byte_offset)
    storage = Storage(memory, device)
    _rename(capsule, USED)
    if deleter:
        weakref.finalize(
            memory, _deleter_type(deleter), address).atexit = False
    return storage, dtype, shape, strides


# PyTorch's other names. Three of them hide a builtin, so they come last,
# and nothing in this module calls bool, int or float.
bool = bool_
short = int16
int = int32
long = int64
half = float16
float = float32
double = float64
