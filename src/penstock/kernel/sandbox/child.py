"""The life of one child: walls up, one function, one answer, gone. A child that sits is asked again and again.

A child is a copy of the zygote, and by the time foreign bytes are touched it has nothing of it but memory: other
descriptors are closed, limits are set, system calls and files are fenced in. It leaves by `os._exit`, so nothing of the
zygote's own code runs on in a copy.
"""

import gc
import importlib
import math
import os
import resource
import signal
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import NoReturn

import msgspec

from penstock.kernel.errors import in_words
from penstock.kernel.sandbox import landlock, linux, wire
from penstock.kernel.sandbox.walls import Walls

MOST_OPEN_FILES = 64
HIGHEST_DESCRIPTOR = 1024  # the zygote itself is held to it, so there is nothing above to close
MOST_TASKS = 1024  # of the whole user, threads included; enough for native libraries, and an end to a bomb


@dataclass(frozen=True, kw_only=True)
class Errand:
    """One order with what came along."""

    order: wire.Order
    answer: int  # descriptor to write the answer to
    file: int | None
    asks: int | None  # descriptor to read from what else is asked, for a child that sits
    mapped_bytes: int  # what the zygote has mapped already and every child shares


def live(errand: Errand, walls: Walls) -> NoReturn:
    """Run the errand and leave. Only a child may call this."""
    try:
        if _is_fenced_in(errand, walls):
            _work(errand)
    finally:
        os._exit(0)


def _is_fenced_in(errand: Errand, walls: Walls) -> bool:
    try:
        fence_in(errand, walls)
    except Exception as error:  # noqa: BLE001  (whatever it is, the work must not begin without its walls)
        _say(errand.answer, in_words(error).encode())  # with no RUNNING before it: nothing was run, the caller knows
        return False
    _say(errand.answer, wire.RUNNING)
    return True


def _work(errand: Errand) -> None:
    if errand.order.ask is not None:
        _say(errand.answer, _reply(errand.order.ask, errand.file))
    if errand.asks is None:
        return
    while words := os.read(errand.asks, wire.MOST_MESSAGE_BYTES):
        _answer(errand, msgspec.msgpack.decode(words, type=wire.Ask))


def _answer(errand: Errand, ask: wire.Ask) -> None:
    """One of several answers. The reply does not stay, so that the next one finds its memory free."""
    _allow_cpu(ask.cpu_seconds)
    reply = _reply(ask, errand.file)
    _say(errand.answer, len(reply).to_bytes(wire.REPLY_LENGTH_BYTES))
    _say(errand.answer, reply)


def _allow_cpu(seconds: int) -> None:
    """So much more than was used so far, within what all of this life may use."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = math.ceil(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _reply(ask: wire.Ask, file: int | None) -> bytes:
    try:
        return wire.VALUE + msgspec.msgpack.encode(_call(ask, file))
    except MemoryError:
        return wire.OUT_OF_MEMORY
    except BaseException as error:  # noqa: BLE001  (SystemExit and the like are answers too; nobody above would hear them)
        return _in_words(error)


def _call(ask: wire.Ask, file: int | None) -> object:
    module, _, path = ask.function.partition(":")
    function = attrgetter(path)(importlib.import_module(module))
    arguments = msgspec.msgpack.decode(ask.arguments)
    if file is None:
        return function(*arguments)
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "rb", closefd=False) as opened:
        return function(opened, *arguments)


def _in_words(error: BaseException) -> bytes:
    try:
        return wire.RAISED + msgspec.msgpack.encode((type(error).__name__, in_words(error)))
    except MemoryError:
        return wire.OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001  (foreign errors may fail even at being told)
        return wire.RAISED + msgspec.msgpack.encode(("Exception", ""))


def _say(answer: int, words: bytes) -> None:
    left = memoryview(words)
    while left:
        left = left[os.write(answer, left) :]


def fence_in(errand: Errand, walls: Walls) -> None:
    """Give up all that the errand does not need. The filter comes last, since it refuses what the others use."""
    os.setsid()
    linux.die_with_parent()
    if os.getppid() != walls.zygote:
        raise OSError("the zygote was gone before its child could be tied to it")
    _forget_signals()
    _limit(errand, most_tasks=MOST_TASKS if walls.filter is not None else 0)
    if walls.rules is not None:
        landlock.restrict(walls.rules)
    _close_all_but(errand)
    gc.enable()
    if walls.filter is not None:
        walls.filter.put_on()


def _forget_signals() -> None:
    """SIGTERM and its like stay ignored: a stop of the service must not look as if the file had crashed us."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _limit(errand: Errand, *, most_tasks: int) -> None:
    order = errand.order
    limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_NOFILE: (MOST_OPEN_FILES, MOST_OPEN_FILES),
        resource.RLIMIT_NPROC: (most_tasks, most_tasks),  # 0 where no filter refuses forks
        resource.RLIMIT_CPU: (order.cpu_seconds, order.cpu_seconds + 1),  # asked first, with SIGXCPU, then killed
        resource.RLIMIT_AS: (errand.mapped_bytes + order.memory_bytes,) * 2,
    }
    for limit, (soft, hard) in limits.items():
        _, most = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(limit, (soft, hard))


def _close_all_but(errand: Errand) -> None:
    """The answer, the file, the asks, and three times nothing in place of the standard streams."""
    os.dup2(0, 1)  # the zygote's own input is /dev/null
    os.dup2(0, 2)
    lent = {each for each in (errand.file, errand.asks) if each is not None}
    kept = sorted({0, 1, 2, errand.answer} | lent)
    for low, high in zip(kept, [*kept[1:], HIGHEST_DESCRIPTOR], strict=True):
        os.closerange(low + 1, high)
