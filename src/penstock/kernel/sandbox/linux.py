"""The few calls of Linux that Python 3.11 does not have, by way of the C library.

Each raises OSError when the kernel says no. Nothing here decides anything.
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
CAPABILITY_VERSION = 0x20080522  # the third and last; its sets are 64 bits wide, in two halves


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library that answers -1 when it fails."""
    answer: int = getattr(_c_library(), name)(*arguments)
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return answer


def system_call(number: int, *arguments: object) -> int:
    """Make a system call that the C library has no name for. Plain integers are passed as longs."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return call("syscall", ctypes.c_long(number), *wide)


def control(option: int, *arguments: object) -> None:
    """prctl, which reads four more words whether they are given or not."""
    words = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    call("prctl", ctypes.c_int(option), *words, *[ctypes.c_ulong(0)] * (4 - len(words)))


def give_back_memory() -> None:
    """Return what was freed to the kernel, where the C library can. In a fork, a page that is there is copied before it
    is written to, even when nobody needs what is on it; a page that is not there is a fresh one."""
    with suppress(AttributeError):
        _c_library().malloc_trim(ctypes.c_size_t(0))


def die_with_parent() -> None:
    """Be killed when the thread that made this process ends. A parent that is gone already must be looked for."""
    control(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def gain_no_privileges() -> None:
    """From here on nothing can add rights; the kernel asks for it before it takes filters from plain users."""
    control(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """What makes root more than a plain user is given up. Files of the own user stay readable."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())


def leave_network() -> None:
    """Move into a network of our own, which has no devices. A plain user needs a user namespace for it."""
    try:
        call("unshare", CLONE_NEWNET)
    except PermissionError:
        call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
