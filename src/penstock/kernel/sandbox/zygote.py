"""The zygote: a small process that forks the children.

It starts with an empty environment, imports the modules of the functions, and then forks one child per request, which
is cheap, since all is already imported. It has one thread, because a fork of a multi-threaded process copies locks that
no thread will release. It never reads a byte that a child wrote: it enforces the timeout of a call by killing late
children, reaps them, and reports how each exited. When the caller exits, the zygote and all children are killed.
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

from penstock.kernel.errors import error_text
from penstock.kernel.sandbox import child, isolation, linux, wire

# Read by native libraries when they are loaded. By default, numeric libraries start a thread per CPU, ONNX Runtime
# starts one for telemetry, and mimalloc reserves a GiB in one piece: where the memory limit does not leave that, it
# asks the kernel for every block separately, and a parser takes a seventh longer.
LIBRARY_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "MIMALLOC_ARENA_RESERVE": "131072",  # KiB
}


@dataclass(kw_only=True)
class RunningChild:
    """A child that has not been reaped yet."""

    number: int
    pid: int
    deadline: float  # by the monotonic clock; infinite in a session
    timed_out: bool = False

    def kill(self) -> None:
        """Send SIGKILL. The pid cannot have been reused: it is ours until it is reaped."""
        os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """The event loop: receive requests, fork and reap children, send reports."""

    def __init__(self, connection: socket.socket, isolated: isolation.Isolation) -> None:
        self._connection = connection
        self._isolation = isolated
        self._children: dict[int, RunningChild] = {}  # by pidfd
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def run(self) -> None:
        """Serve requests until the caller is gone; then kill and reap every child."""
        try:
            while self._run_once():
                pass
        finally:
            for pidfd, running in list(self._children.items()):
                running.kill()
                self._reap(pidfd)

    def _run_once(self) -> bool:
        for descriptor, _ in self._poll.poll(self._wait_milliseconds()):
            if descriptor != self._connection.fileno():
                wire.send(self._connection, self._reap(descriptor))
            elif not self._handle_request():
                return False
        self._kill_overdue()
        return True

    def _wait_milliseconds(self) -> float | None:
        deadlines = [running.deadline for running in self._children.values() if not running.timed_out]
        soonest = min(deadlines, default=math.inf)
        return max(0.0, soonest - time.monotonic()) * 1000 if soonest < math.inf else None

    def _handle_request(self) -> bool:
        received = wire.receive_request(self._connection)
        match received:
            case (wire.SpawnRequest() as request, descriptors):
                self._spawn(request, descriptors)
            case (wire.KillRequest(number=number), _):
                for running in self._children.values():
                    if running.number == number:
                        running.kill()
        return received is not None

    def _spawn(self, request: wire.SpawnRequest, descriptors: Sequence[int]) -> None:
        output, *others = descriptors
        mapped_bytes = int(os.pread(self._statm, 64, 0).split()[0]) * self._page_bytes
        job = child.ChildJob(
            request=request,
            output=output,
            file=others.pop(0) if request.file else None,
            calls=others[0] if others else None,
            mapped_bytes=mapped_bytes,
        )
        deadline = math.inf if request.seconds is None else time.monotonic() + request.seconds
        try:
            pid = os.fork()
            if pid == 0:
                child.run_child(job, self._isolation)
            self._watch(RunningChild(number=request.number, pid=pid, deadline=deadline))
        except OSError as error:
            wire.send(self._connection, wire.SpawnFailed(number=request.number, reason=error_text(error)))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _watch(self, running: RunningChild) -> None:
        try:
            pidfd = os.pidfd_open(running.pid)
        except OSError:
            running.kill()
            os.waitpid(running.pid, 0)
            raise
        self._children[pidfd] = running
        self._poll.register(pidfd, select.POLLIN)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for running in self._children.values():
            if not running.timed_out and running.deadline <= now:
                running.timed_out = True
                running.kill()

    def _reap(self, pidfd: int) -> wire.ChildExited:
        running = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(running.pid, signal.SIGKILL)  # its own children, where no filter refuses forks
        _, status, usage = os.wait4(running.pid, 0)
        return wire.ChildExited(
            number=running.number,
            exit_code=os.waitstatus_to_exitcode(status),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            timed_out=running.timed_out,
        )


def main(descriptor: int, caller: int) -> None:
    """Run the zygote on this socket, for the process `caller`."""
    gc.disable()
    linux.die_with_parent()
    if os.getppid() != caller:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the service, which stops us by closing the socket
    with socket.socket(fileno=_clean_process(descriptor)) as connection:
        match wire.receive_request(connection):
            case (wire.ZygoteSetup() as setup, _):
                _serve(connection, setup)


def _clean_process(descriptor: int) -> int:
    """Clear the environment, and keep all descriptors below a number up to which a child can quickly close them."""
    os.environ.clear()  # noqa: TID251  (emptied, not read: Python itself puts a locale into an empty one)
    for name, value in LIBRARY_ENVIRONMENT.items():
        os.putenv(name, value)  # for native libraries, which ask the C library and not Python
    low = os.dup(descriptor)
    os.close(descriptor)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = min(hard, child.MAX_DESCRIPTOR) if hard != resource.RLIM_INFINITY else child.MAX_DESCRIPTOR
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
    return low


def _serve(connection: socket.socket, setup: wire.ZygoteSetup) -> None:
    try:
        _import_all(setup.preload)
        _warm_up(setup)
        isolated, guards = isolation.prepare(setup.readable, allow_socketpair=setup.allow_socketpair)
    except Exception as error:  # noqa: BLE001  (whatever prevents the start is reported, and ends the process)
        wire.send(connection, wire.ZygoteFailed(reason=f"{type(error).__name__}: {error_text(error)}"))
        return
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page, and each page written is a page copied
    linux.trim_memory()
    zygote = Zygote(connection, isolated)
    wire.send(connection, wire.ZygoteReady(guards=guards))
    zygote.run()


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
        _check_threads(f"{name} starts a thread when it is imported")


def _warm_up(setup: wire.ZygoteSetup) -> None:
    """Load once what every child inherits: loading a model takes a second, a fork almost nothing."""
    if not setup.warmup:
        return
    module, _, path = setup.warmup.partition(":")
    attrgetter(path)(importlib.import_module(module))(*msgspec.msgpack.decode(setup.warmup_arguments))
    _check_threads(f"{setup.warmup} starts a thread")


def _check_threads(cause: str) -> None:
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError(f"{cause}, and then a fork is not safe")
