"""The caller's end of a zygote: start it, send requests, receive exit reports, notice when it is gone.

Everything happens on the event loop that started the zygote, by its readers and writers; there is no thread. A spawned
child is represented by a future of its exit report, or of None when the zygote is lost before it could report.
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
from penstock.kernel.sandbox.errors import SandboxNotStarted

T = TypeVar("T")

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # importing large libraries from a cold disk is slow
CLOSE_SECONDS = 2.0
KILL_SECONDS = 5.0  # a killed process that lives longer hangs in the kernel, and is abandoned
# Large arrays of a child come in huge pages where the kernel has them. In small pages, each one is faulted in again in
# every fork: a page of OCR took 54,000 faults, a fifth of its time.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from penstock.kernel.sandbox.zygote import main; main(int(sys.argv[1]), caller=int(sys.argv[2]))"
)

ExitReport = asyncio.Future[wire.ChildExited | wire.SpawnFailed | None]


class ZygoteClient:
    """One zygote process, from its start to its end."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._numbers = count(1)
        self._exit_reports: dict[int, ExitReport] = {}
        self._outgoing: deque[tuple[wire.ToZygote, Sequence[int]]] = deque()
        self._ready: asyncio.Future[wire.ZygoteReady | wire.ZygoteFailed | None] = self._loop.create_future()
        self._exited = asyncio.Event()
        self._disconnected = False
        self._loop.add_reader(connection.fileno(), self._receive)
        self._loop.add_reader(self._pidfd, self._reap)

    @classmethod
    async def start(cls, setup: wire.ZygoteSetup) -> tuple["ZygoteClient", wire.Guards]:
        """A zygote that has imported its modules and accepts requests, and the isolation that works on this machine."""
        zygote = cls._launch()
        try:
            zygote._send(setup)
            async with asyncio.timeout(START_SECONDS):
                ready = await zygote._ready
        except TimeoutError as error:
            await zygote.kill()
            raise SandboxNotStarted(reason=f"it was not ready within {START_SECONDS:g} s") from error
        except BaseException:
            await zygote.kill()
            raise
        if isinstance(ready, wire.ZygoteReady):
            return zygote, ready.guards
        await zygote.kill()
        raise SandboxNotStarted(reason=ready.reason if ready else "its process exited; stderr may say why")

    @classmethod
    def _launch(cls) -> "ZygoteClient":
        connection, process = _new_process()
        try:
            return cls(connection, process)
        except OSError as error:
            connection.close()
            process.kill()
            process.wait()
            raise SandboxNotStarted(reason=f"Linux 5.3 or newer is needed ({error})") from error

    @property
    def is_lost(self) -> bool:
        """Whether it accepts no more requests. Polls the process, whose death may not have been noticed yet."""
        return self._disconnected or self._process.poll() is not None

    def new_number(self) -> int:
        """A number for the next request, never used before."""
        return next(self._numbers)

    def spawn(self, request: wire.SpawnRequest, descriptors: Sequence[int]) -> ExitReport:
        """Have a child forked. The descriptors must stay open until the exit report is done."""
        exit_report: ExitReport = self._loop.create_future()
        if self._disconnected:
            exit_report.set_result(None)
            return exit_report
        self._exit_reports[request.number] = exit_report
        self._send(request, descriptors)
        return exit_report

    def kill_child(self, number: int) -> None:
        """Have that child killed; its exit is reported as usual."""
        if number in self._exit_reports:
            self._send(wire.KillRequest(number=number))

    async def wait_exit(self, number: int, exit_report: ExitReport, *, seconds: float, timeout_seconds: float) -> None:
        """Wait for the exit of a child, and kill it when the wait is cancelled. A zygote whose report is
        `timeout_seconds` late is killed, and its children with it."""
        try:
            await asyncio.wait((exit_report,), timeout=seconds + timeout_seconds)
        except asyncio.CancelledError:
            self.kill_child(number)
            await asyncio.wait((exit_report,), timeout=timeout_seconds)
            raise
        finally:
            if not exit_report.done():
                await self.kill()

    async def close(self) -> None:
        """Disconnect, upon which the zygote kills and reaps its children and exits; kill it when it does not."""
        self._disconnect()
        if not await self._wait_exited(CLOSE_SECONDS):
            await self.kill()

    async def kill(self) -> None:
        """Kill the zygote. The kernel kills its children with it."""
        self._disconnect()
        self._process.kill()
        if not await self._wait_exited(KILL_SECONDS):
            log.error("sandbox zygote %d does not die", self._process.pid)

    async def _wait_exited(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _send(self, message: wire.ToZygote, descriptors: Sequence[int] = ()) -> None:
        self._outgoing.append((message, descriptors))
        self._flush()

    def _flush(self) -> None:
        """Send queued messages in order; what the socket does not accept now is sent when it is writable."""
        try:
            while self._outgoing and not self._disconnected:
                wire.send(self._connection, *self._outgoing[0])
                self._outgoing.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._connection.fileno(), self._flush)
            return
        except OSError as error:
            self._abandon(error)
        if not self._disconnected:
            self._loop.remove_writer(self._connection.fileno())

    def _receive(self) -> None:
        try:
            while (report := wire.receive_report(self._connection)) is not None:
                self._handle(report)
        except BlockingIOError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            self._abandon(error)
            return
        self._abandon("it disconnected")

    def _handle(self, report: wire.ToCaller) -> None:
        if isinstance(report, wire.ZygoteReady | wire.ZygoteFailed):
            _resolve(self._ready, report)
        elif exit_report := self._exit_reports.pop(report.number, None):
            _resolve(exit_report, report)

    def _abandon(self, reason: object) -> None:
        log.warning("sandbox zygote %d lost: %s", self._process.pid, reason)
        self._disconnect()
        self._process.kill()

    def _disconnect(self) -> None:
        """Close the socket: every pending call has lost its zygote."""
        if self._disconnected:
            return
        self._disconnected = True
        self._loop.remove_reader(self._connection.fileno())
        self._loop.remove_writer(self._connection.fileno())
        self._connection.close()
        self._outgoing.clear()
        _resolve(self._ready, None)
        for exit_report in self._exit_reports.values():
            _resolve(exit_report, None)
        self._exit_reports.clear()

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        if not self._disconnected:
            self._receive()  # its last reports may still be in the socket
        self._disconnect()
        self._exited.set()


def _new_process() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a zygote that inherits one socket and nothing else: no environment, no other descriptor, no working folder,
    no terminal. It can import what the caller can; `site` is left out, so nothing else decides."""
    ours, theirs = wire.new_socketpair()
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


def _resolve(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)
