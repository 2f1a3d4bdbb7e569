"""Exercises of chapter 1: numbers in bytes, and who reads which."""

import math
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


read_an_integer = Exercise(
    id="01.1",
    title="Read an integer out of bytes",
    name="read_int32",
    statement=STATEMENT,
    stub=STUB,
    reference=read_int32,
    inputs=inputs,
    examples=((b"\x00\x00\x00\x40", 0), (b"\xff\xff\xff\x7f", 0),
              (b"\x00\x00\x00\x80", 0), (b"\xff\xff\xff\xff", 0),
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
)


# 01.2: a float of two bytes

FLOAT16 = """\
**Exercise 01.2.** A float16 has one bit for the sign, five for the exponent
and ten for the fraction, from the highest bit to the lowest. Write
`read_float16(bits)`: the number that a pattern means, given as an `int`
from 0 to 65535. The exponent is stored with 15 added to it. The stored
exponent 0 means a number without the leading 1, times $2^{-14}$. The stored
exponent 31 means infinity if the fraction is 0, and NaN if it is not. Do it
without `struct` and NumPy, by arithmetic alone."""

FLOAT16_STUB = '''\
def read_float16(bits: int) -> float:
    """The number that a pattern of 16 bits means as a float16."""
    raise NotImplementedError("exercise 01.2")'''


def float16_parts(bits):
    return -1.0 if bits >> 15 else 1.0, bits >> 10 & 31, bits & 1023


def read_float16(bits):
    sign = -1.0 if bits >> 15 else 1.0
    exponent, fraction = bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * fraction / 1024 * 2.0 ** -14
    return sign * (1 + fraction / 1024) * 2.0 ** (exponent - 15)


def no_leading_one(bits):
    sign, exponent, fraction = float16_parts(bits)
    if exponent in (0, 31):
        return read_float16(bits)
    return sign * fraction / 1024 * 2.0 ** (exponent - 15)


def no_small_ones(bits):
    sign, exponent, fraction = float16_parts(bits)
    if exponent:
        return read_float16(bits)
    return sign * (1 + fraction / 1024) * 2.0 ** -15


def small_ones_halved(bits):
    sign, exponent, fraction = float16_parts(bits)
    if exponent:
        return read_float16(bits)
    return sign * fraction / 1024 * 2.0 ** -15


def small_ones_are_zero(bits):
    sign, exponent, fraction = float16_parts(bits)
    return read_float16(bits) if exponent else sign * 0.0


def bias_of_float32(bits):
    sign, exponent, fraction = float16_parts(bits)
    if exponent in (0, 31):
        return read_float16(bits)
    return sign * (1 + fraction / 1024) * 2.0 ** (exponent - 127)


def no_infinity(bits):
    sign, exponent, fraction = float16_parts(bits)
    if exponent < 31:
        return read_float16(bits)
    return sign * (1 + fraction / 1024) * 2.0 ** 16


def no_nan(bits):
    sign, exponent, fraction = float16_parts(bits)
    return sign * math.inf if exponent == 31 else read_float16(bits)


def infinity_has_one_sign(bits):
    value = read_float16(bits)
    return math.inf if value == -math.inf else value


def one_zero(bits):
    return read_float16(bits) + 0.0 if bits & 0x7fff else 0.0


def fields_of_bfloat16(bits):
    sign, exponent, fraction = bits >> 15, bits >> 7 & 255, bits & 127
    if exponent == 255:
        return math.nan if fraction else (-1.0) ** sign * math.inf
    if exponent == 0:
        return (-1.0) ** sign * fraction / 128 * 2.0 ** -126
    return (-1.0) ** sign * (1 + fraction / 128) * 2.0 ** (exponent - 127)


def float16_by_ldexp(bits):
    exponent, fraction = bits >> 10 & 31, bits & 1023
    if exponent == 31:
        size = math.nan if fraction else math.inf
    else:
        whole = fraction + 1024 if exponent else fraction
        size = math.ldexp(whole, max(exponent, 1) - 25)
    return math.copysign(size, -1 if bits >> 15 else 1)


def float16_by_text(bits):
    text = f"{bits:016b}"
    sign = "-" if text[0] == "1" else ""
    exponent, fraction = int(text[1:6], 2), int(text[6:], 2)
    if exponent == 31:
        return float("nan" if fraction else sign + "inf")
    lead = 0 if exponent == 0 else 1024
    digits = f"{sign}0x{lead + fraction:x}p{max(exponent, 1) - 25}"
    return float.fromhex(digits)


def float16_inputs(st):
    ends = st.sampled_from([0, 1, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00,
                            0x7c01, 0x7e00])
    return st.tuples(st.builds(
        int.__add__, ends | st.integers(0, 0x7fff),
        st.sampled_from([0, 0x8000])))


read_a_float16 = Exercise(
    id="01.2",
    title="Read a float out of bits",
    name="read_float16",
    statement=FLOAT16,
    stub=FLOAT16_STUB,
    reference=read_float16,
    imports="import math",
    inputs=float16_inputs,
    signed_zero=True,
    examples=((0x3c00,), (0xc000,), (0x0001,), (0x7c00,), (0xfc00,),
              (0x7c01,), (0x8000,), (0x3e00,), (0x0400,), (0x8200,)),
    wrong=(
        Wrong(no_leading_one, "This leaves out the leading 1 of an ordinary "
              "number. It is not stored, because it is always there. What "
              "does the pattern of 1.0 have for a fraction?"),
        Wrong(no_small_ones, "This gives a leading 1 to the stored exponent "
              "0 too. Then no pattern is left for zero. What does a pattern "
              "of sixteen zeros mean?"),
        Wrong(small_ones_halved, "Below the smallest ordinary number your "
              "values are half of what they should be: the stored exponent 0 "
              "means 2**-14, as the stored exponent 1 does. Which number "
              "comes just below 2**-14?"),
        Wrong(small_ones_are_zero, "This takes every pattern with the stored "
              "exponent 0 for zero. Only one fraction means zero: what do "
              "the other 1023 mean?"),
        Wrong(bias_of_float32, "This takes 127 away from the exponent, as "
              "float32 does. Five bits count to 31: which number is in the "
              "middle of their range?"),
        Wrong(no_infinity, "This reads the stored exponent 31 as one more "
              "power of two. It is kept for something else. What comes after "
              "the largest number, 65504?"),
        Wrong(no_nan, "Every pattern with the stored exponent 31 is infinite "
              "here. What does its fraction tell you?"),
        Wrong(infinity_has_one_sign, "Your negative infinity is positive. "
              "To which patterns does the sign bit apply?"),
        Wrong(one_zero, "This has one zero, and a float has two. What is the "
              "sign of the pattern 0x8000?"),
        Wrong(fields_of_bfloat16, "This splits the bits as a bfloat16 does, "
              "eight for the exponent and seven for the fraction. How many "
              "of each has a float16?"),
    ),
    right=(float16_by_ldexp, float16_by_text),
    hints=(
        "Cut the pattern into its fields with shifts: the sign is "
        "`bits >> 15`, the exponent `bits >> 10 & 31`, the fraction "
        "`bits & 1023`.",
        "An ordinary number is `(1 + fraction / 1024) * 2.0 ** (exponent - "
        "15)`, with the sign in front. Settle the stored exponents 0 and 31 "
        "before that.",
        "With the stored exponent 0 the number is `fraction / 1024 * 2.0 ** "
        "-14`. Multiply by `-1.0` rather than subtracting, so that zero "
        "keeps its sign.",
    ),
    after="PyTorch's c10::Half does this on hardware that has no float16 of "
    "its own: see torch/headeronly/util/Half.h.",
)


# 01.3: rounding a float32 to a bfloat16

BFLOAT16 = """\
**Exercise 01.3.** A bfloat16 is the upper half of a float32. Write
`to_bfloat16(bits)`: the 16 bits of the bfloat16 nearest to a float32 whose
32 bits are given as an `int`. Where two are equally near, take the one whose
last bit is 0. Beyond the largest bfloat16 comes infinity. A NaN must stay
one: take the upper half of its bits and set the highest bit of the
fraction, which is `0x40`."""

BFLOAT16_STUB = '''\
def to_bfloat16(bits: int) -> int:
    """The 16 bits of the bfloat16 nearest to a float32, given as bits."""
    raise NotImplementedError("exercise 01.3")'''


def is_nan32(bits):
    return bits & 0x7fffffff > 0x7f800000


def to_bfloat16(bits):
    if bits & 0x7fffffff > 0x7f800000:      # NaN
        return bits >> 16 | 0x40
    return bits + 0x7fff + (bits >> 16 & 1) >> 16


def cut_off(bits):
    return bits >> 16 | (0x40 if is_nan32(bits) else 0)


def half_up(bits):
    return bits + 0x8000 >> 16 if not is_nan32(bits) else to_bfloat16(bits)


def half_down(bits):
    return bits + 0x7fff >> 16 if not is_nan32(bits) else to_bfloat16(bits)


def half_to_odd(bits):
    if is_nan32(bits):
        return to_bfloat16(bits)
    return bits + 0x8000 - (bits >> 16 & 1) >> 16


def always_up(bits):
    return bits + 0xffff >> 16 if not is_nan32(bits) else to_bfloat16(bits)


def nan_rounded(bits):
    return (bits + 0x7fff + (bits >> 16 & 1) >> 16) & 0xffff


def nan_cut_off(bits):
    return bits >> 16 if is_nan32(bits) else to_bfloat16(bits)


def nan_without_sign(bits):
    return 0x7fc0 if is_nan32(bits) else to_bfloat16(bits)


def no_overflow(bits):
    found = to_bfloat16(bits)
    infinite = found & 0x7fff == 0x7f80 and bits & 0x7fffffff != 0x7f800000
    return found - 1 if infinite else found


def lower_half(bits):
    return bits & 0xffff


def bfloat16_by_remainder(bits):
    upper, rest = divmod(bits, 65536)
    if is_nan32(bits):
        return upper | 64
    up = rest > 32768 or rest == 32768 and upper % 2 == 1
    return upper + up


def bfloat16_by_round(bits):
    if is_nan32(bits):
        return bits // 65536 | 0x40
    return round(bits / 65536)      # Python's round takes ties to even


def bfloat16_inputs(st):
    upper = st.integers(0, 0xffff) | st.sampled_from(
        [0x3f80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fff, 0xffff])
    lower = st.sampled_from([0, 1, 0x7fff, 0x8000, 0x8001, 0xffff]
                            ) | st.integers(0, 0xffff)
    return st.tuples(st.builds(lambda u, w: u << 16 | w, upper, lower))


round_to_bfloat16 = Exercise(
    id="01.3",
    title="Round a float32 to a bfloat16",
    name="to_bfloat16",
    statement=BFLOAT16,
    stub=BFLOAT16_STUB,
    reference=to_bfloat16,
    inputs=bfloat16_inputs,
    examples=((0x3f808000,), (0x3f818000,), (0x3f808001,), (0x3f807fff,),
              (0x7f7fffff,), (0x7f800001,), (0x7fffffff,), (0xff800001,),
              (0xffffffff,), (0x00000001,), (0x7f800000,)),
    wrong=(
        Wrong(cut_off, "This cuts the lower half off, which rounds towards "
              "zero. How far below the next bfloat16 is a float32 whose "
              "lower half is 0xffff?"),
        Wrong(half_up, "Exactly halfway between two, this goes up every "
              "time, and long sums drift upwards. Which of the two has a 0 "
              "for its last bit?"),
        Wrong(half_down, "Exactly halfway between two, this goes down every "
              "time. Which of the two has a 0 for its last bit?"),
        Wrong(half_to_odd, "Exactly halfway, this takes the one whose last "
              "bit is 1. Which bit of the upper half decides, and what "
              "should it be after rounding?"),
        Wrong(always_up, "This goes up as soon as the lower half is not "
              "zero. Is the next bfloat16 the nearest one when the lower "
              "half is 0x0001?"),
        Wrong(nan_rounded, "This rounds a NaN as if it were a number. The "
              "carry runs through its exponent into its sign: what is "
              "0x7fffffff afterwards?"),
        Wrong(nan_cut_off, "This may lose all the bits that made a NaN. "
              "What does 0x7f800001 become, and what does 0x7f80 mean?"),
        Wrong(nan_without_sign, "This gives one NaN for all of them. The "
              "upper half of the bits, its sign included, is to be kept: "
              "which single bit has to be set?"),
        Wrong(no_overflow, "This stops at the largest bfloat16. Rounding up "
              "from there gives the pattern of infinity by itself: is a "
              "special case needed?"),
        Wrong(lower_half, "This takes the lower sixteen bits. Where are the "
              "sign and the exponent of a float32?"),
    ),
    right=(bfloat16_by_remainder, bfloat16_by_round),
    hints=(
        "The patterns of positive floats count up with the numbers. So "
        "rounding is a matter of integers: add something to the pattern, "
        "then shift it right by 16.",
        "Adding 0x7fff carries into the upper half if the lower half is "
        "more than 0x8000. Exactly at 0x8000 it falls short by one.",
        "Add the lowest bit of the upper half, `bits >> 16 & 1`, as well. "
        "Test for NaN before all this: `bits & 0x7fffffff > 0x7f800000`.",
    ),
    after="torch/headeronly/util/BFloat16.h rounds with the same sum, in "
    "round_to_nearest_even.",
)


# 01.4: what an integer dtype keeps

FIT = """\
**Exercise 01.4.** Write `fit(value, bits, signed)`: what an integer dtype of
so many bits keeps of a whole number. It keeps the lowest `bits` bits, and
reads them in two's complement if it is signed. So `fit(300, 8, False)` is
44, and `fit(200, 8, True)` is -56."""

FIT_STUB = '''\
def fit(value: int, bits: int, signed: bool) -> int:
    """What an integer dtype of so many bits keeps of a number."""
    raise NotImplementedError("exercise 01.4")'''


def fit(value, bits, signed):
    span = 2 ** bits
    kept = value % span
    return kept - span if signed and kept >= span // 2 else kept


def clamped(value, bits, signed):
    low = -(2 ** (bits - 1)) if signed else 0
    return min(max(value, low), low + 2 ** bits - 1)


def never_negative(value, bits, signed):
    return value % 2 ** bits


def always_signed(value, bits, signed):
    return fit(value, bits, True)


def remainder_of_c(value, bits, signed):
    span = 2 ** bits
    kept = abs(value) % span * (-1 if value < 0 else 1)
    return kept - span if signed and kept >= span // 2 else kept


def one_pattern_too_few(value, bits, signed):
    span = 2 ** bits - 1
    low = -(2 ** (bits - 1)) if signed else 0
    return (value - low) % span + low


def boundary_stays(value, bits, signed):
    span = 2 ** bits
    kept = value % span
    return kept - span if signed and kept > span // 2 else kept


def once_around(value, bits, signed):
    low = -(2 ** (bits - 1)) if signed else 0
    if value < low:
        return value + 2 ** bits
    return value - 2 ** bits if value >= low + 2 ** bits else value


def sign_bit_aside(value, bits, signed):
    if not signed:
        return value % 2 ** bits
    return abs(value) % 2 ** (bits - 1) * (-1 if value < 0 else 1)


def fit_by_mask(value, bits, signed):
    kept, top = value & (1 << bits) - 1, 1 << bits - 1
    return (kept ^ top) - top if signed else kept


def fit_by_shift(value, bits, signed):
    low = -(1 << bits - 1) if signed else 0
    return (value - low) % (1 << bits) + low


def fit_inputs(st):
    def near(bits):
        edges = [0, 2 ** (bits - 1), -(2 ** (bits - 1)), 2 ** bits,
                 -(2 ** bits), 3 * 2 ** bits]
        value = st.builds(int.__add__, st.sampled_from(edges),
                          st.integers(-2, 2)) | st.integers(-999, 999)
        return st.tuples(value, st.just(bits), st.booleans())

    return st.sampled_from([8, 8, 16, 32, 64]).flatmap(near)


fit_an_integer = Exercise(
    id="01.4",
    title="Wrap around",
    name="fit",
    statement=FIT,
    stub=FIT_STUB,
    reference=fit,
    inputs=fit_inputs,
    examples=((300, 8, False), (200, 8, True), (-1, 8, False),
              (128, 8, True), (-129, 8, True), (255, 8, True),
              (255, 8, False), (1000, 8, True), (-300, 8, False)),
    wrong=(
        Wrong(clamped, "This stops at the end of the range. That is called "
              "saturation, and image formats do it; a processor's addition "
              "wraps around. What are the lowest eight bits of 300?"),
        Wrong(never_negative, "This keeps the right bits and reads them "
              "without a sign. In a signed dtype the highest bit counts "
              "down. What does 0xff mean as an int8?"),
        Wrong(always_signed, "This reads the bits in two's complement even "
              "if the dtype has no sign. What is the largest number that a "
              "uint8 holds?"),
        Wrong(remainder_of_c, "Your remainder of a negative number is "
              "negative, as in C. Python's % is never below zero here: what "
              "is -1 % 256, and which eight bits does -1 end with?"),
        Wrong(one_pattern_too_few, "This comes back to the start one number "
              "too early. How many patterns do 8 bits have, and what is the "
              "largest of them?"),
        Wrong(boundary_stays, "Just at the boundary this does not wrap: it "
              "gives 128 for an int8. Which numbers have the highest bit "
              "set, and is 128 one of them?"),
        Wrong(once_around, "This goes around once at most. 1000 passes the "
              "end of a byte three times: which operator goes round as "
              "often as it is needed?"),
        Wrong(sign_bit_aside, "This keeps the sign apart from the digits. "
              "In two's complement the highest bit is the sign, and it is "
              "one of the bits that are kept: which is it in 200?"),
    ),
    right=(fit_by_mask, fit_by_shift),
    hints=(
        "The lowest `bits` bits of a number are its remainder by "
        "`2 ** bits`. Python's remainder is not negative, even if the number "
        "is.",
        "That settles an unsigned dtype. In a signed one, the upper half of "
        "the patterns stands for negative numbers.",
        "Where the remainder is at least `2 ** (bits - 1)`, take "
        "`2 ** bits` away.",
    ),
    after="In C, converting to an unsigned type is defined as this "
    "remainder; PyTorch's kernels rely on it.",
)


# 01.5: bytes under elements

TOUCHED = """\
**Exercise 01.5.** Somebody overwrites the bytes `start`, `start + 1`, ...,
`stop - 1` of a storage of `nbytes` bytes. Write `touched(start, stop,
itemsize, nbytes)`: the list of the indices of all elements of `itemsize`
bytes that have at least one of these bytes, in rising order. Bytes at the
end of the storage that do not make a whole element belong to no element. You
can rely on `0 <= start <= stop <= nbytes`."""

TOUCHED_STUB = '''\
def touched(start: int, stop: int, itemsize: int, nbytes: int) -> list:
    """The indices of the elements that a write to bytes changes."""
    raise NotImplementedError("exercise 01.5")'''


def touched(start, stop, itemsize, nbytes):
    if start == stop:
        return []
    last = min((stop - 1) // itemsize, nbytes // itemsize - 1)
    return list(range(start // itemsize, last + 1))


def whole_ones_only(start, stop, itemsize, nbytes):
    return list(range(-(-start // itemsize), stop // itemsize))


def last_one_missed(start, stop, itemsize, nbytes):
    return list(range(start // itemsize, stop // itemsize))


def one_too_many(start, stop, itemsize, nbytes):
    if start == stop:
        return []
    last = min(stop // itemsize, nbytes // itemsize - 1)
    return list(range(start // itemsize, last + 1))


def nothing_touches(start, stop, itemsize, nbytes):
    last = min(-(-stop // itemsize), nbytes // itemsize)
    return list(range(start // itemsize, last))


def ragged_end(start, stop, itemsize, nbytes):
    if start == stop:
        return []
    return list(range(start // itemsize, (stop - 1) // itemsize + 1))


def bytes_not_elements(start, stop, itemsize, nbytes):
    return list(range(start, stop))


def first_one_missed(start, stop, itemsize, nbytes):
    found = touched(start, stop, itemsize, nbytes)
    return [i for i in found if i * itemsize >= start]


def touched_by_bytes(start, stop, itemsize, nbytes):
    found = {byte // itemsize for byte in range(start, stop)}
    return sorted(i for i in found if i < nbytes // itemsize)


def touched_by_overlap(start, stop, itemsize, nbytes):
    return [i for i in range(nbytes // itemsize)
            if max(start, i * itemsize) < min(stop, (i + 1) * itemsize)]


def touched_inputs(st):
    def parts(nbytes):
        place = st.integers(0, nbytes)
        return st.tuples(place, place).flatmap(lambda ends: st.tuples(
            st.just(min(ends)), st.just(max(ends)),
            st.sampled_from([4, 2, 8, 1]), st.just(nbytes)))

    return st.integers(0, 20).flatmap(parts)


touched_elements = Exercise(
    id="01.5",
    title="Whose bytes are these",
    name="touched",
    statement=TOUCHED,
    stub=TOUCHED_STUB,
    reference=touched,
    inputs=touched_inputs,
    examples=((0, 4, 4, 12), (3, 5, 4, 12), (5, 6, 4, 12), (5, 5, 4, 12),
              (4, 8, 4, 12), (8, 11, 4, 11), (9, 10, 4, 10), (0, 12, 8, 12),
              (1, 8, 4, 8), (0, 7, 4, 8)),
    wrong=(
        Wrong(whole_ones_only, "This counts only the elements that are "
              "overwritten as a whole. Change one byte of a float32: is it "
              "still the same number?"),
        Wrong(last_one_missed, "This misses the last element if the write "
              "ends inside it. To which element does byte `stop - 1` "
              "belong?"),
        Wrong(one_too_many, "Where the write ends between two elements, this "
              "counts the one after it too. `stop` itself is not written: "
              "which byte is the last?"),
        Wrong(nothing_touches, "Nothing is written where start equals stop, "
              "and this still names an element. Which byte of it changed?"),
        Wrong(ragged_end, "This names an element that the storage does not "
              "have: the bytes left over at its end are too few for one. "
              "How many whole elements are there?"),
        Wrong(bytes_not_elements, "These are bytes, not elements. With "
              "itemsize 4, to which element does byte 5 belong?"),
        Wrong(first_one_missed, "This misses the first element if the write "
              "begins inside it. To which element does byte `start` "
              "belong?"),
    ),
    right=(touched_by_bytes, touched_by_overlap),
    hints=(
        "Byte k belongs to element `k // itemsize`. The first byte that is "
        "written is `start`, the last is `stop - 1`.",
        "So the elements run from `start // itemsize` to "
        "`(stop - 1) // itemsize`, both included, and no further than "
        "`nbytes // itemsize - 1`.",
        "If `start == stop`, no byte is written: answer with an empty list "
        "before you compute anything.",
    ),
    after="This is why x.view(torch.uint8) and a float32 tensor over the "
    "same storage share one version counter: a write through one changes "
    "the other.",
)


# 01.6: how much memory a capsule lends

REACH = """\
**Exercise 01.6.** A DLPack capsule gives an address, a shape and strides,
but no size in bytes. Write `reach(shape, strides, itemsize)`: how many bytes
lie from the first byte of the first element to the last byte of the furthest
element, both included. `strides` is a tuple of as many whole numbers, none
below 0: how many elements one step of each dimension goes forward. Or it is
`None`: then the elements lie one after the other. A tensor without elements
needs no memory."""

REACH_STUB = '''\
def reach(shape: tuple, strides, itemsize: int) -> int:
    """The bytes from the first element to the end of the furthest one."""
    raise NotImplementedError("exercise 01.6")'''


def reach(shape, strides, itemsize):
    if 0 in shape:
        return 0
    if strides is None:
        return math.prod(shape) * itemsize
    return (1 + sum((n - 1) * s for n, s in zip(shape, strides))) * itemsize


def product(shape, strides, itemsize):
    return math.prod(shape) * itemsize


def nothing_has_a_byte(shape, strides, itemsize):
    if strides is None:
        return math.prod(shape) * itemsize
    return max(0, 1 + sum((n - 1) * s for n, s in zip(shape, strides))
               ) * itemsize


def size_not_steps(shape, strides, itemsize):
    if 0 in shape or strides is None:
        return reach(shape, strides, itemsize)
    return max([n * s for n, s in zip(shape, strides)], default=1) * itemsize


def strides_in_bytes(shape, strides, itemsize):
    if 0 in shape or strides is None:
        return reach(shape, strides, itemsize)
    return sum((n - 1) * s for n, s in zip(shape, strides)) + itemsize


def last_one_without_itself(shape, strides, itemsize):
    return max(0, reach(shape, strides, itemsize) - itemsize)


def last_one_is_a_byte(shape, strides, itemsize):
    return max(0, reach(shape, strides, itemsize) - itemsize + 1) if (
        0 not in shape) else 0


def none_is_all_ones(shape, strides, itemsize):
    return reach(shape, strides or (1,) * len(shape), itemsize)


def longest_dimension(shape, strides, itemsize):
    if 0 in shape or strides is None:
        return reach(shape, strides, itemsize)
    steps = [(n - 1) * s for n, s in zip(shape, strides)]
    return (1 + max(steps, default=0)) * itemsize


def in_elements(shape, strides, itemsize):
    return reach(shape, strides, 1)


def reach_by_visiting(shape, strides, itemsize):
    if strides is None:
        strides = tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))
    places = [0]
    for n, s in zip(shape, strides):
        places = [p + i * s for p in places for i in range(n)]
    return (max(places) + 1) * itemsize if places else 0


def reach_by_steps(shape, strides, itemsize):
    if any(n == 0 for n in shape):
        return 0
    step, last = 1, 0
    for d in reversed(range(len(shape))):
        last += (shape[d] - 1) * (step if strides is None else strides[d])
        step *= shape[d]
    return last * itemsize + itemsize


def reach_inputs(st):
    def geometry(shape):
        free = st.tuples(*(st.integers(0, 9) for _ in shape))
        return st.tuples(st.just(shape), st.none() | free,
                         st.sampled_from([4, 8, 2, 1]))

    size = st.sampled_from([2, 3, 1, 4, 0])
    return st.lists(size, max_size=3).map(tuple).flatmap(geometry)


lent_memory = Exercise(
    id="01.6",
    title="How far a capsule reaches",
    name="reach",
    statement=REACH,
    stub=REACH_STUB,
    reference=reach,
    imports="import math",
    inputs=reach_inputs,
    examples=(((3,), (1,), 4), ((3,), (2,), 4), ((2, 3), None, 4),
              ((2, 3), (1, 2), 4), ((4, 3), (0, 1), 4), ((), (), 4),
              ((), None, 8), ((2, 0), (3, 1), 4), ((0,), None, 4),
              ((2, 2), (9, 4), 8), ((1, 1), (5, 5), 2), ((2, 2), None, 1),
              ((3, 0), (8, 1), 2)),
    wrong=(
        Wrong(product, "This multiplies the sizes, and never looks at the "
              "strides. With shape (3,) and strides (2,), where does the "
              "third element lie?"),
        Wrong(nothing_has_a_byte, "A tensor without elements reaches "
              "nowhere, whatever its strides are. What is the furthest "
              "element of shape (2, 0)?"),
        Wrong(size_not_steps, "This takes one dimension alone and counts "
              "its steps once too often: from the first of n elements to the "
              "last, how many steps are there? And who adds the other "
              "dimensions?"),
        Wrong(strides_in_bytes, "This takes the strides for bytes, as NumPy "
              "gives them. DLPack's count elements: how many bytes is one "
              "step?"),
        Wrong(last_one_without_itself, "This ends where the furthest element "
              "begins. How many bytes does that element have itself?"),
        Wrong(last_one_is_a_byte, "This counts one byte of the furthest "
              "element. Its last byte is to be included: how many has it?"),
        Wrong(none_is_all_ones, "Without strides, your elements lie on top "
              "of each other: one step of every dimension is not 1. With "
              "shape (2, 3), how far is it from one row to the next?"),
        Wrong(longest_dimension, "This takes the dimension that reaches "
              "furthest. The furthest element is the last one in every "
              "dimension at once: what are its steps together?"),
        Wrong(in_elements, "This counts elements. The memory is lent in "
              "bytes: how many bytes has each element?"),
    ),
    right=(reach_by_visiting, reach_by_steps),
    hints=(
        "Answer with 0 if any size is 0. Otherwise the furthest element is "
        "the one with the last index in every dimension.",
        "A dimension of size n and stride s takes it (n - 1) * s elements "
        "further. Add these up over all dimensions.",
        "The element at that place has `itemsize` bytes itself. With `None` "
        "for strides, the answer is the number of elements times "
        "`itemsize`.",
    ),
    after="PyTorch computes the same in computeStorageNbytes "
    "(aten/src/ATen/EmptyTensor.cpp), to know how large the storage under "
    "given strides must be.",
)

exercises = (read_an_integer, read_a_float16, round_to_bfloat16,
             fit_an_integer, touched_elements, lent_memory)
