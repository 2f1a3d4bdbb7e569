"""Exercise of chapter 3: which kernel runs."""

from course.exercises import Exercise, Wrong

STATEMENT = """\
**Exercise 03.1.** A table maps `(device, dtype)` to a kernel. An entry
`(device, None)` serves every dtype of its device. Write
`find_kernel(table, device, dtype)`: the exact entry wins; without it, the
entry for the whole device; without both, `NotImplementedError` with a
message that names the device and the dtype."""

STUB = '''\
def find_kernel(table: dict, device: str, dtype: str):
    """The kernel of the table that serves this device and dtype."""
    raise NotImplementedError("exercise 03.1")'''


def find_kernel(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    raise NotImplementedError(f"no kernel for {dtype} on device {device}")


# Known wrong answers


def fail(device, dtype):
    raise NotImplementedError(f"{device} {dtype}")


def device_first(table, device, dtype):
    for key in ((device, None), (device, dtype)):
        if key in table:
            return table[key]
    fail(device, dtype)


def returns_none(table, device, dtype):
    return table.get((device, dtype), table.get((device, None)))


def key_error(table, device, dtype):
    if (device, dtype) in table:
        return table[device, dtype]
    return table[device, None]


def exact_only(table, device, dtype):
    if (device, dtype) in table:
        return table[device, dtype]
    fail(device, dtype)


def other_device(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    for (_, other), kernel in table.items():
        if other in (dtype, None):
            return kernel
    fail(device, dtype)


def other_dtype(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    for (other, _), kernel in table.items():
        if other == device:
            return kernel
    fail(device, dtype)


def silent(table, device, dtype):
    for key in ((device, dtype), (device, None)):
        if key in table:
            return table[key]
    raise NotImplementedError("no kernel")


def adds_entry(table, device, dtype):
    return table.setdefault(
        (device, dtype), find_kernel(table, device, dtype))


# Other right answers


def by_nested_try(table, device, dtype):
    try:
        return table[device, dtype]
    except KeyError:
        pass
    try:
        return table[device, None]
    except KeyError:
        raise NotImplementedError(
            f"{device!r} has no kernel for {dtype!r}") from None


def by_get(table, device, dtype):
    kernel = table.get((device, dtype)) or table.get((device, None))
    if kernel is None:
        raise NotImplementedError(f"device={device}, dtype={dtype}")
    return kernel


def names_both(args, error):
    _, device, dtype = args
    missing = [word for word in (device, dtype) if word not in str(error)]
    if missing:
        return "The message must name " + " and ".join(map(repr, missing))


def inputs(st):
    devices = st.sampled_from(["cpu", "meta", "python"])
    dtypes = st.sampled_from(["int64", "bool"])

    def table(keys):
        return {(d, t): f"abs_{d}_{t or 'any'}" for d, t in keys}

    keys = st.lists(st.tuples(devices, st.none() | dtypes), max_size=5,
                    unique=True)
    return st.tuples(keys.map(table), devices, dtypes)


exercises = (Exercise(
    id="03.1",
    title="Which kernel runs?",
    name="find_kernel",
    statement=STATEMENT,
    stub=STUB,
    reference=find_kernel,
    inputs=inputs,
    judge_error=names_both,
    wrong=(
        Wrong(device_first, "This asks for the whole device before the exact "
              "entry. Who would ever call a kernel that was written for one "
              "dtype?"),
        Wrong(returns_none, "Without a kernel, this returns None, and the "
              "caller fails later: 'NoneType' object is not callable. Where "
              "should a reader of that message begin to look?"),
        Wrong(key_error, "This lets the dictionary's KeyError out. A caller "
              "sees a key, and no word about kernels. Which exception says "
              "that something may be added later?"),
        Wrong(exact_only, "This never asks for (device, None). How many "
              "entries would `meta` need, which treats all dtypes alike?"),
        Wrong(other_device, "Where the device has no kernel, this takes one "
              "of another device. Can a kernel for the memory of `cpu` read "
              "a `meta` tensor, which has none?"),
        Wrong(other_dtype, "This takes a kernel of the right device for "
              "another dtype. What does a kernel for int64 read in eight "
              "bytes that hold a float64?"),
        Wrong(silent, "The exception is right, its message is not enough. "
              "What must a person know who wants to add the kernel?"),
        Wrong(adds_entry, "This writes what it found into the table. If "
              "somebody replaces the entry for the whole device later, which "
              "kernel runs?"),
    ),
    right=(by_nested_try, by_get),
    hints=(
        "There are two keys to ask for, one after the other: which first?",
        "`key in table` tells whether there is an entry. Raise only after "
        "both keys have failed.",
        "Put the values into the message: "
        'f"no kernel for {dtype} on device {device}".',
    ),
    after="PyTorch asks in the same order, first for the device (a dispatch "
    "key, in c10/core/DispatchKeySet.h), then for the dtype (the "
    "AT_DISPATCH macros inside the kernel). It says: Could not run "
    "'aten::abs' with arguments from the 'X' backend.",
),)
