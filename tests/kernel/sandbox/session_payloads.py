"""Functions for a session. Each takes the file first, though few read it."""

import fcntl
import os
import signal
import stat
import sys
import termios
import threading
import time
from typing import BinaryIO

from penstock.kernel.sandbox import wire
from tests.kernel.sandbox import payloads

SEEN: list[int] = []  # by this process
NOTHING = (2).to_bytes(wire.REPLY_LENGTH_BYTES) + wire.VALUE + b"\xc0"  # a reply


def who(_: BinaryIO) -> int:
    return os.getpid()


def first_byte(file: BinaryIO) -> bytes:
    return file.read(1)


def read_by_name(file: BinaryIO, others: list[str]) -> dict[str, str]:
    """Open the file by its name, and others."""
    return payloads.read_files([file.name, *others])


def close_it(file: BinaryIO) -> bool:
    file.close()
    return True


def echo(_: BinaryIO, value: object) -> object:
    return value


def spin_for(_: BinaryIO, seconds: float) -> int:
    begun = time.process_time()
    while time.process_time() < begun + seconds:
        pass
    return os.getpid()


def sleep_for(_: BinaryIO, seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def hang(_: BinaryIO) -> None:
    payloads.hang()


def fork(_: BinaryIO) -> int:
    return os.fork()


def fail(_: BinaryIO) -> None:
    raise ValueError("no")


def return_much(_: BinaryIO, size: int) -> bytes:
    return bytes(size)


def return_wrong(_: BinaryIO) -> int:
    return "seven"  # type: ignore[return-value]  # the point


def allocate(_: BinaryIO) -> int:
    payloads.allocate()
    return os.getpid()


def crash(_: BinaryIO) -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def crash_when_used(_: BinaryIO) -> int:
    """A crash caused by an earlier call."""
    if SEEN:
        os.kill(os.getpid(), signal.SIGSEGV)
    SEEN.append(1)
    return os.getpid()


def fill_when_used(_: BinaryIO) -> int:
    """Memory exhaustion caused by an earlier call."""
    if SEEN:
        payloads.allocate()
    SEEN.append(1)
    return os.getpid()


def kill_when_used(_: BinaryIO) -> int:
    if SEEN:
        os.kill(os.getpid(), signal.SIGKILL)
    SEEN.append(1)
    return os.getpid()


def flood_later(_: BinaryIO, seconds: float) -> int:
    """Return a value, and flood the pipe afterwards."""

    def flood() -> None:
        time.sleep(seconds)
        while True:
            os.write(_pipe(), b"\x00" * 65536)

    threading.Thread(target=flood, daemon=True).start()
    return os.getpid()


def say_by_hand(_: BinaryIO, words: bytes) -> None:
    os.write(_pipe(), words)
    time.sleep(1000)


def answer_unasked(_: BinaryIO, times: int) -> None:
    """Write replies to calls that were not made yet."""
    os.write(_pipe(), times * NOTHING)
    time.sleep(1000)


def answer_without_reading(_: BinaryIO) -> None:
    """Reply to each call without reading any."""
    asks = next(number for number in payloads.descriptors() if stat.S_ISSOCK(os.fstat(number).st_mode))
    seen = -1
    while True:
        waiting = int.from_bytes(fcntl.ioctl(asks, termios.FIONREAD, bytes(4)), sys.byteorder)
        if waiting > seen:
            seen = waiting
            os.write(_pipe(), NOTHING)
        time.sleep(0.001)


def _pipe() -> int:
    return next(number for number, kind in payloads.descriptors().items() if kind == "pipe")
