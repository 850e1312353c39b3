"""The zygote: a small process that makes the children.

It is started with an empty environment, imports what the functions need, and from then on forks one child per order. It
has one thread, because a fork of several leaves locks behind that nobody will open. It never reads a byte that a child
wrote: it kills who is late, buries who is dead, and reports how each ended. When the caller is gone, so are all.
"""

import gc
import importlib
import math
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import msgspec

from penstock.kernel.errors import in_words
from penstock.kernel.sandbox import child, linux, walls, wire

# What native libraries look up when they are loaded. Left to themselves, those for numbers start a thread for each
# processor, the one for models starts one that reports to its maker, and an allocator wants a GiB of room in one piece:
# where its bound does not leave that, it asks the kernel for every block anew, and a parser takes a seventh longer.
WORDS_TO_LIBRARIES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "MIMALLOC_ARENA_RESERVE": "131072",  # KiB
}


@dataclass(kw_only=True)
class Running:
    """A child that is not buried yet."""

    number: int
    pid: int
    due: float  # when it is late, by the monotonic clock; never for one that sits
    late: bool = False

    def kill(self) -> None:
        """Its number cannot have passed to another process: it is ours until it is buried."""
        os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """The loop: orders in, children out, reports back."""

    def __init__(self, line: socket.socket, around: walls.Walls) -> None:
        self._line = line
        self._walls = around
        self._children: dict[int, Running] = {}  # by the descriptor that tells of their end
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def run(self) -> None:
        """Until the caller is gone; then no child is left."""
        try:
            while self._turn():
                pass
        finally:
            for descriptor, running in list(self._children.items()):
                running.kill()
                self._bury(descriptor)

    def _turn(self) -> bool:
        for descriptor, _ in self._poll.poll(self._wait_milliseconds()):
            if descriptor != self._line.fileno():
                wire.send(self._line, self._bury(descriptor))
            elif not self._hear():
                return False
        self._kill_late()
        return True

    def _wait_milliseconds(self) -> float | None:
        dues = [running.due for running in self._children.values() if not running.late]
        soonest = min(dues, default=math.inf)
        return max(0.0, soonest - time.monotonic()) * 1000 if soonest < math.inf else None

    def _hear(self) -> bool:
        heard = wire.hear_order(self._line)
        match heard:
            case (wire.Order() as order, descriptors):
                self._begin(order, descriptors)
            case (wire.Stop(number=number), _):
                for running in self._children.values():
                    if running.number == number:
                        running.kill()
        return heard is not None

    def _begin(self, order: wire.Order, descriptors: Sequence[int]) -> None:
        answer, *others = descriptors
        mapped_bytes = int(os.pread(self._memory, 64, 0).split()[0]) * self._page_bytes
        errand = child.Errand(
            order=order,
            answer=answer,
            file=others.pop(0) if order.has_file else None,
            asks=others[0] if others else None,
            mapped_bytes=mapped_bytes,
        )
        due = math.inf if order.seconds is None else time.monotonic() + order.seconds
        try:
            pid = os.fork()
            if pid == 0:
                child.live(errand, self._walls)
            self._watch(Running(number=order.number, pid=pid, due=due))
        except OSError as error:
            wire.send(self._line, wire.NotBegun(number=order.number, reason=in_words(error)))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _watch(self, running: Running) -> None:
        try:
            descriptor = os.pidfd_open(running.pid)
        except OSError:
            running.kill()
            os.waitpid(running.pid, 0)
            raise
        self._children[descriptor] = running
        self._poll.register(descriptor, select.POLLIN)

    def _kill_late(self) -> None:
        now = time.monotonic()
        for running in self._children.values():
            if not running.late and running.due <= now:
                running.late = True
                running.kill()

    def _bury(self, descriptor: int) -> wire.Ended:
        running = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(running.pid, signal.SIGKILL)  # whom it made, where no filter kept it from making any
        _, status, cost = os.wait4(running.pid, 0)
        return wire.Ended(
            number=running.number,
            exit_code=os.waitstatus_to_exitcode(status),
            cpu_seconds=cost.ru_utime + cost.ru_stime,
            late=running.late,
        )


def main(descriptor: int, caller: int) -> None:
    """The whole life of a zygote on this descriptor, for the process `caller`."""
    gc.disable()
    linux.die_with_parent()
    if os.getppid() != caller:
        return
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)  # meant for the service, which ends us by leaving
    with socket.socket(fileno=_settle(descriptor)) as line:
        match wire.hear_order(line):
            case (wire.Setup() as setup, _):
                _serve(line, setup)


def _settle(descriptor: int) -> int:
    """Empty the environment, and hold all descriptors to numbers that a child can quickly close."""
    os.environ.clear()  # noqa: TID251  (emptied, not read: Python itself puts a locale into an empty one)
    for name, value in WORDS_TO_LIBRARIES.items():
        os.putenv(name, value)  # for native libraries, which ask the system and not Python
    low = os.dup(descriptor)
    os.close(descriptor)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = min(most, child.HIGHEST_DESCRIPTOR) if most != resource.RLIM_INFINITY else child.HIGHEST_DESCRIPTOR
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
    return low


def _serve(line: socket.socket, setup: wire.Setup) -> None:
    try:
        _import_all(setup.preload)
        _warm_up(setup)
        around, guards = walls.make(setup.readable, pairs=setup.pairs)
    except Exception as error:  # noqa: BLE001  (whatever keeps us from being ready is told, and ends us)
        wire.send(line, wire.NotReady(reason=f"{type(error).__name__}: {in_words(error)}"))
        return
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page, and each page written is a page copied
    linux.give_back_memory()
    zygote = Zygote(line, around)
    wire.send(line, wire.Ready(guards=guards))
    zygote.run()


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
        _check_threads(f"{name} starts a thread when it is imported")


def _warm_up(setup: wire.Setup) -> None:
    """Make ready what every child shall find ready: a model takes a second to load, and a fork almost nothing."""
    if not setup.warm:
        return
    module, _, path = setup.warm.partition(":")
    attrgetter(path)(importlib.import_module(module))(*msgspec.msgpack.decode(setup.warm_arguments))
    _check_threads(f"{setup.warm} starts a thread")


def _check_threads(what: str) -> None:
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError(f"{what}, and then a fork is not safe")
