"""Linux system calls that Python 3.11 lacks, through the C library.

Each raises OSError when the kernel refuses. No policy is decided here.
"""

import ctypes
import os
import signal
from contextlib import suppress
from functools import cache

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
CAPABILITY_VERSION = 0x20080522  # version 3; its sets are 64 bits wide, in two halves


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library that returns -1 when it fails."""
    result: int = getattr(_libc(), name)(*arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def system_call(number: int, *arguments: object) -> int:
    """Make a system call that the C library has no wrapper for. Plain integers are passed as longs."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return call("syscall", ctypes.c_long(number), *wide)


def prctl(option: int, *arguments: object) -> None:
    """Call prctl, which reads four more arguments whether they are given or not."""
    wide = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    call("prctl", ctypes.c_int(option), *wide, *[ctypes.c_ulong(0)] * (4 - len(wide)))


def trim_memory() -> None:
    """Return freed memory to the kernel, where the C library can. In a fork, writing to a page that is present copies
    it even when its content is free; an absent page is a fresh one."""
    with suppress(AttributeError):
        _libc().malloc_trim(ctypes.c_size_t(0))


def die_with_parent() -> None:
    """Be killed when the thread that forked this process ends. The caller must check for a parent already gone."""
    prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def set_no_new_privileges() -> None:
    """Rule out gaining privileges from now on; the kernel requires it for filters of unprivileged users."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Drop every capability. Files of the own user stay readable."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())


def unshare_network() -> None:
    """Move into a new network namespace, which has no devices. An unprivileged user needs a user namespace for it."""
    try:
        call("unshare", CLONE_NEWNET)
    except PermissionError:
        call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
