"""Limits for a process that runs somebody else's code.

`enter` is called by the process itself, before it touches that code; from
then on there is no way back. What a system does not offer is left out,
and the answer names what is in force. An audit hook, which every system
has, stops accidents and pranks. On Linux the kernel itself keeps the
process to its folder (Landlock) and off the network (a namespace).
"""

import contextlib
import ctypes
import os
import struct
import sys

FILE_SIZE = 16 << 20
OPEN_FILES = 256

# Landlock's numbers, from linux/landlock.h: one row for each version of
# it, what that version can forbid and we do: all that writes.
WRITES = {1: (1 << 1) | sum(1 << bit for bit in range(4, 13)),
          2: 1 << 13, 3: 1 << 14}
TCP = 0b11              # bind and connect, since version 4
SCOPES = 0b11           # abstract sockets and signals, since version 6
CREATE, ADD, RESTRICT = 444, 445, 446
NO_NEW_PRIVS = 38
NEW_USER, NEW_NET = 0x10000000, 0x40000000

NEVER = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn",
         "os.spawn", "os.startfile", "os.kill", "os.killpg", "pty.spawn",
         "subprocess.Popen", "urllib.Request")
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link",
           "os.symlink", "os.truncate", "os.chmod", "os.chown",
           "os.utime", "shutil.rmtree", "shutil.move")


def enter(folder, memory, seconds):
    """Give up everything but reading, computing, and writing in `folder`.

    memory: bytes of address space. seconds: of processor time. Returns the
    names of the limits that this system offers and that now hold.
    """
    held = [name for name, limit in (
        ("memory and file sizes", lambda: resources(memory, seconds)),
        ("network", no_network),
        ("folder", lambda: landlock(folder))) if tried(limit)]
    audit(os.path.realpath(folder))
    return [*held, "audit hook"]


def tried(limit):
    """Does this system have that limit?"""
    try:
        limit()
    except (OSError, ImportError, AttributeError, ValueError):
        return False
    return True


def resources(memory, seconds):
    import resource

    for name, most in (("CPU", seconds), ("AS", memory), ("CORE", 0),
                       ("FSIZE", FILE_SIZE), ("NOFILE", OPEN_FILES)):
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (most, most))


def system(call, *args):
    """A call of the C library that must not fail."""
    function = getattr(ctypes.CDLL(None, use_errno=True), call)
    found = function(*args)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


def linux():
    if sys.platform != "linux":
        raise OSError("not on this system")


def no_network():
    """A network of its own, in which there is nothing."""
    linux()
    system("unshare", NEW_USER | NEW_NET)


def landlock(folder):
    """The kernel refuses to write outside the folder."""
    linux()
    number = ctypes.c_long
    version = system("syscall", number(CREATE), None, number(0), number(1))
    files = sum(bits for since, bits in WRITES.items() if since <= version)
    rules = struct.pack("QQQ", files, TCP if version >= 4 else 0,
                        SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = system("syscall", number(CREATE), rules, number(size),
                     number(0))
    try:
        for path, allowed in ((folder, files), (os.devnull, 1 << 1)):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                system("syscall", number(ADD), number(ruleset), number(1),
                       struct.pack("=Qi", allowed, place), number(0))
            finally:
                os.close(place)
        system("prctl", NO_NEW_PRIVS, number(1), number(0), number(0),
               number(0))
        system("syscall", number(RESTRICT), number(ruleset), number(0))
    finally:
        os.close(ruleset)


def audit(folder):
    """Python itself refuses what a workbook has no need of."""
    real, inside = os.path.realpath, folder + os.sep
    null, busy = os.devnull, []
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def allowed(path):
        if isinstance(path, int) or path is None:
            return True
        path = real(os.fsdecode(path))
        return path in (folder, null) or path.startswith(inside)

    def hook(event, args):
        if busy:                        # realpath asks the system too
            return
        if event in NEVER or (event.startswith("socket.")
                              and event != "socket.gethostname"):
            raise PermissionError(f"{event} is not allowed in a workbook")
        if event == "open" and not (args[2] or 0) & writing:
            return
        if event != "open" and event not in CHANGES:
            return
        count = 2 if event in ("os.rename", "os.link", "os.symlink",
                               "shutil.move") else 1
        busy.append(event)
        try:
            fine = all(allowed(a) for a in args[:count]
                       if isinstance(a, str | bytes | os.PathLike))
        finally:
            busy.clear()
        if not fine:
            raise PermissionError(
                f"{event} outside the workbook's folder is not allowed")

    with contextlib.suppress(RuntimeError):
        sys.addaudithook(hook)
