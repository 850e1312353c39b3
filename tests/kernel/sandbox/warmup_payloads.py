"""Functions for the warm-up of a zygote, and for what a sandbox can allow on request."""

import ctypes
import os
import socket
import threading
from functools import cache

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.getenv.restype = ctypes.c_char_p


@cache
def made_ready(name: str) -> tuple[str, int]:
    """Something slow to load; it records the process that loaded it."""
    return name, os.getpid()


def who_made(name: str) -> tuple[int, int]:
    """The process that loaded it, and this one."""
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
    """The errno of an attempt to create a pair of internet sockets."""
    pair = (ctypes.c_int * 2)()
    LIBC.socketpair(socket.AF_INET, socket.SOCK_STREAM, 0, pair)
    return ctypes.get_errno()


def environment(names: list[str]) -> list[str]:
    """These environment variables as a native library reads them."""
    return [(LIBC.getenv(name.encode()) or b"").decode() for name in names]
