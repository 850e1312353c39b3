"""The caller's end of a zygote: start it, send orders, hear how children end, notice when it is gone.

All of it happens on the event loop that started the zygote, by its readers and writers; there is no thread. A call gets
a future that will hold the report of its end, or None when the zygote went away before it could report.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.ends import SandboxNotStarted

T = TypeVar("T")

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # importing large libraries from a cold disk takes its time
LEAVE_SECONDS = 2.0
KILL_SECONDS = 5.0  # after which even a killed process is left to its fate, for it hangs in the kernel
# What a child fills with numbers comes from the kernel in large pages where it has them. In small ones, each of them is
# asked for anew in every fork: a page of OCR took 54,000, a fifth of its time.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from penstock.kernel.sandbox.zygote import main; main(int(sys.argv[1]), caller=int(sys.argv[2]))"
)

Report = wire.Ended | wire.NotBegun
Call = asyncio.Future[Report | None]


class Link:
    """One zygote, from its start to its end."""

    def __init__(self, line: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = line
        self._process = process
        self._life = os.pidfd_open(process.pid)
        self._numbers = count(1)
        self._calls: dict[int, Call] = {}
        self._outgoing: deque[tuple[wire.ToZygote, Sequence[int]]] = deque()
        self._ready: asyncio.Future[wire.Ready | wire.NotReady | None] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._hung_up = False
        self._loop.add_reader(line.fileno(), self._hear)
        self._loop.add_reader(self._life, self._bury)

    @classmethod
    async def start(cls, setup: wire.Setup) -> tuple["Link", wire.Guards]:
        """A zygote that has imported everything and takes orders, and what it found to hold its children."""
        link = cls._spawn()
        try:
            link._post(setup)
            async with asyncio.timeout(START_SECONDS):
                ready = await link._ready
        except TimeoutError as error:
            await link.kill()
            raise SandboxNotStarted(reason=f"it was not ready within {START_SECONDS:g} s") from error
        except BaseException:
            await link.kill()
            raise
        if isinstance(ready, wire.Ready):
            return link, ready.guards
        await link.kill()
        raise SandboxNotStarted(reason=ready.reason if ready else "its process ended; it may have told why on stderr")

    @classmethod
    def _spawn(cls) -> "Link":
        line, process = _new_process()
        try:
            return cls(line, process)
        except OSError as error:
            line.close()
            process.kill()
            process.wait()
            raise SandboxNotStarted(reason=f"Linux 5.3 or newer is needed ({error})") from error

    @property
    def lost(self) -> bool:
        """Whether it takes no more orders. It is looked after, for its death may not have been heard of yet."""
        return self._hung_up or self._process.poll() is not None

    def new_number(self) -> int:
        """A number for the next order, never given before."""
        return next(self._numbers)

    def call(self, order: wire.Order, descriptors: Sequence[int]) -> Call:
        """Give an order. The descriptors must stay open until the call is done."""
        done: Call = self._loop.create_future()
        if self._hung_up:
            done.set_result(None)
            return done
        self._calls[order.number] = done
        self._post(order, descriptors)
        return done

    def stop(self, number: int) -> None:
        """Have that child killed; its call then ends as usual."""
        if number in self._calls:
            self._post(wire.Stop(number=number))

    async def until_ended(self, number: int, call: Call, *, seconds: float, patience: float) -> None:
        """Wait for the end of a child, and see to it that it ends: also when nobody wants to know any more. A zygote
        that is `patience` seconds late with its report is killed, and takes its children with it."""
        try:
            await asyncio.wait((call,), timeout=seconds + patience)
        except asyncio.CancelledError:
            self.stop(number)
            await asyncio.wait((call,), timeout=patience)
            raise
        finally:
            if not call.done():
                await self.kill()

    async def close(self) -> None:
        """Leave the zygote, which then kills and buries its children and ends; it is killed when it does not."""
        self._hang_up()
        if not await self._is_gone(LEAVE_SECONDS):
            await self.kill()

    async def kill(self) -> None:
        """End the zygote hard. The kernel takes its children with it."""
        self._hang_up()
        self._process.kill()
        if not await self._is_gone(KILL_SECONDS):
            log.error("the sandbox process %d does not die", self._process.pid)

    async def _is_gone(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    def _post(self, message: wire.ToZygote, descriptors: Sequence[int] = ()) -> None:
        self._outgoing.append((message, descriptors))
        self._flush()

    def _flush(self) -> None:
        """Send what waits, in order; what the socket does not take now is sent when it does."""
        try:
            while self._outgoing and not self._hung_up:
                wire.send(self._line, *self._outgoing[0])
                self._outgoing.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._line.fileno(), self._flush)
            return
        except OSError as error:
            self._give_up(error)
        if not self._hung_up:
            self._loop.remove_writer(self._line.fileno())

    def _hear(self) -> None:
        try:
            while (report := wire.hear_report(self._line)) is not None:
                self._take(report)
        except BlockingIOError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            self._give_up(error)
            return
        self._give_up("it left")

    def _take(self, report: wire.ToCaller) -> None:
        if isinstance(report, wire.Ready | wire.NotReady):
            _settle(self._ready, report)
        elif done := self._calls.pop(report.number, None):
            _settle(done, report)

    def _give_up(self, reason: object) -> None:
        log.warning("the sandbox process %d is lost: %s", self._process.pid, reason)
        self._hang_up()
        self._process.kill()

    def _hang_up(self) -> None:
        """Stop talking: every call that still waits has lost its zygote."""
        if self._hung_up:
            return
        self._hung_up = True
        self._loop.remove_reader(self._line.fileno())
        self._loop.remove_writer(self._line.fileno())
        self._line.close()
        self._outgoing.clear()
        _settle(self._ready, None)
        for done in self._calls.values():
            _settle(done, None)
        self._calls.clear()

    def _bury(self) -> None:
        self._loop.remove_reader(self._life)
        os.close(self._life)
        self._process.wait()
        if not self._hung_up:
            self._hear()  # its last words may still wait on the line
        self._hang_up()
        self._gone.set()


def _new_process() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Nothing is handed down but one end of the line: no environment of ours, no other descriptor, no folder, no
    terminal. What the caller can import the zygote can, and nothing else decides: `site` is left out."""
    ours, theirs = wire.new_line()
    options = ["-I", "-S", "-B", "-X", "utf8", "-c", BOOT]
    numbers = [str(theirs.fileno()), str(os.getpid())]
    paths = [str(Path(each).absolute()) for each in sys.path]
    try:
        process = subprocess.Popen(  # noqa: S603  (our own interpreter on our own code)
            [sys.executable, *options, *numbers, *paths],
            env=HUGE_PAGES,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            umask=0o077,
        )
    except OSError as error:
        ours.close()
        raise SandboxNotStarted(reason=str(error)) from error
    finally:
        theirs.close()
    return ours, process


def _settle(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)
