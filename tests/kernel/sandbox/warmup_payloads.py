"""Functions for what a zygote makes ready, and for what one sandbox may allow and others do not."""

import ctypes
import os
import socket
import threading
from functools import cache

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.getenv.restype = ctypes.c_char_p


@cache
def made_ready(name: str) -> tuple[str, int]:
    """Something that takes long to make; it remembers who made it."""
    return name, os.getpid()


def who_made(name: str) -> tuple[int, int]:
    """The process that made it ready, and this one."""
    return made_ready(name)[1], os.getpid()


def make_badly() -> None:
    raise FileNotFoundError("no model of that name")


def start_a_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def use_a_pair() -> bytes:
    one, other = socket.socketpair()
    os.write(one.fileno(), b"hello")
    return os.read(other.fileno(), 5)


def pair_of_another_family() -> int:
    """The error of the attempt to make a pair that is not of this machine alone."""
    pair = (ctypes.c_int * 2)()
    LIBC.socketpair(socket.AF_INET, socket.SOCK_STREAM, 0, pair)
    return ctypes.get_errno()


def told(names: list[str]) -> list[str]:
    """What the system says of these variables, as a native library would ask it."""
    return [(LIBC.getenv(name.encode()) or b"").decode() for name in names]
