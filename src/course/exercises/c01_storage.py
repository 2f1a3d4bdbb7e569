"""Exercise of chapter 1: reading a number out of bytes."""

import struct

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 01.1.** A storage is bytes; a dtype says how to read them. Write
`read_int32(data, index)`: element `index` of the 32-bit integers that lie
in `data` one after the other. Each has its least significant byte first
(little-endian), and a negative number is stored in two's complement. Bytes
at the end that do not make a whole element do not count. An `index` that
is not one of `0, 1, ..., count - 1` raises `IndexError`: a storage has no
negative indices."""

STUB = '''\
def read_int32(data: bytes, index: int) -> int:
    """Element `index` of the little-endian int32 numbers in data."""
    raise NotImplementedError("exercise 01.1")'''


def read_int32(data, index):
    count = len(data) // 4
    if not 0 <= index < count:
        raise IndexError(f"index {index} is outside 0..{count - 1}")
    value = 0
    for i in range(4):
        value += data[4 * index + i] * 256 ** i
    return value - 2 ** 32 if value >= 2 ** 31 else value


# Known wrong answers


def bounds(data, index):
    if not 0 <= index < len(data) // 4:
        raise IndexError(index)
    return data[4 * index:4 * index + 4]


def unsigned(data, index):
    return int.from_bytes(bounds(data, index), "little")


def big_endian(data, index):
    return int.from_bytes(bounds(data, index), "big", signed=True)


def index_in_bytes(data, index):
    bounds(data, index)
    return int.from_bytes(data[index:index + 4], "little", signed=True)


def negative_index(data, index):
    count = len(data) // 4
    if not -count <= index < count:
        raise IndexError(index)
    return read_int32(data, index % count)


def no_bounds(data, index):
    part = data[4 * index:4 * index + 4]
    return int.from_bytes(part, "little", signed=True)


def partial_element(data, index):
    if not 0 <= 4 * index < len(data):
        raise IndexError(index)
    return no_bounds(data, index)


def sign_and_magnitude(data, index):
    value = unsigned(data, index)
    return -(value - 2 ** 31) if value >= 2 ** 31 else value


def ones_complement(data, index):
    value = unsigned(data, index)
    return value - (2 ** 32 - 1) if value >= 2 ** 31 else value


# Other right answers


def by_struct(data, index):
    if index < 0 or 4 * index + 4 > len(data):
        raise IndexError(index)
    return struct.unpack_from("<i", data, 4 * index)[0]


def by_from_bytes(data, index):
    return int.from_bytes(bounds(data, index), "little", signed=True)


def by_sign_bit(data, index):
    value = unsigned(data, index)
    return (value ^ 0x80000000) - 0x80000000


def inputs(st):
    def pack(values, rest):
        return b"".join(v.to_bytes(4, "little", signed=True)
                        for v in values) + rest

    number = st.integers(-300, 300) | st.integers(-2 ** 31, 2 ** 31 - 1)
    data = st.builds(pack, st.lists(number, max_size=3),
                     st.just(b"") | st.binary(max_size=3))
    return st.tuples(data, st.integers(-3, 4))


exercises = (Exercise(
    id="01.1",
    title="Read an integer out of bytes",
    name="read_int32",
    statement=STATEMENT,
    stub=STUB,
    reference=read_int32,
    inputs=inputs,
    examples=((b"\x00\x00\x00\x80", 0), (b"\xff\xff\xff\xff", 0),
              (b"\x01\x02\x03\x04\x05\x06\x07\x08", 1)),
    wrong=(
        Wrong(unsigned, "This reads the number without a sign: the highest "
              "bit counts +2**31. In two's complement it counts -2**31. "
              "Which number has all its 32 bits set?"),
        Wrong(big_endian, "This takes the first byte for the most "
              "significant one. Here the first byte is the least "
              "significant. What does b'\\x01\\x00\\x00\\x00' hold?"),
        Wrong(index_in_bytes, "This takes the index for a position in "
              "bytes. It counts elements, of four bytes each. At which byte "
              "does element 1 begin?"),
        Wrong(negative_index, "This counts negative indices from the end, "
              "as a list does. A storage has none: strides reach it with an "
              "offset, and a negative one is a bug. What should "
              "read_int32(data, -1) say?"),
        Wrong(no_bounds, "This reads past the end: a slice of bytes that is "
              "too long is cut short without a word. How many whole elements "
              "are in data?"),
        Wrong(partial_element, "This counts the bytes at the end as one more "
              "element, although they are fewer than four. How many whole "
              "elements are in six bytes?"),
        Wrong(sign_and_magnitude, "This takes the highest bit for a minus "
              "sign in front of the other 31. In two's complement that bit "
              "counts -2**31, and the others still add to it. What is -1 "
              "then, bit by bit?"),
        Wrong(ones_complement, "Every negative number is too large by one: "
              "this subtracts 2**32 - 1. There are 2**32 patterns of 32 "
              "bits. Which number comes just before 0 if you count down "
              "from 0?"),
    ),
    right=(by_struct, by_from_bytes, by_sign_bit),
    hints=(
        "Count the whole elements first: `count = len(data) // 4`. Refuse "
        "every index outside `range(count)`.",
        "Element `index` begins at byte `4 * index`. The byte at distance i "
        "from there counts 256**i.",
        "The sum lies between 0 and 2**32 - 1. The upper half stands for the "
        "negative numbers: where the sum is at least 2**31, take 2**32 away.",
    ),
    after="PyTorch reads element i of a storage in the same place, "
    "storage_offset + i times the item size. It leaves the byte order to "
    "the machine: nearly all are little-endian today.",
),)
