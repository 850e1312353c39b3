"""Run a function on untrusted bytes: `await sandbox.run(function, *arguments, file=path)`.

The function runs in a child process under resource limits and isolation; the child is gone when the call is over,
however it ends, and leaves no process behind. The first call starts the zygote that forks the children, and the next
call restarts it when it has died. Cancelling a call kills its child; closing the sandbox kills all.
"""

import asyncio
import logging
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import msgspec

import penstock
from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.errors import SandboxLost, SandboxTooMuch, SandboxUnsupported
from penstock.kernel.sandbox.limits import DEFAULT_LIMITS, SandboxLimits
from penstock.kernel.sandbox.pipe import OutputPipe
from penstock.kernel.sandbox.request import absolute_path, new_call, open_descriptors, qualified_name, return_type
from penstock.kernel.sandbox.result import require_exit, result_of
from penstock.kernel.sandbox.session import ChildSlots, SandboxSession
from penstock.kernel.sandbox.zygote_client import ZygoteClient

T = TypeVar("T")

log = logging.getLogger(__name__)

MARK_BYTES = len(wire.RUNNING + wire.VALUE)


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """A call made once in the zygote. It runs without isolation, so it may only touch our own files."""

    function: Callable[..., object]
    arguments: tuple[object, ...] = ()


class Sandbox:
    """Runs functions in children of a zygote. `preload` names the modules whose functions will be run.

    It belongs to the event loop of its first call, and dies with the thread of that loop."""

    def __init__(
        self,
        *,
        preload: Sequence[str] = (),
        readable: Sequence[Path] = (),
        warmup: Warmup | None = None,
        allow_socketpair: bool = False,
        max_children: int = 4,
        zygote_timeout_seconds: float = 10.0,
    ) -> None:
        """Start nothing yet. Children may read the `readable` folders beside those of Python and of this package;
        `warmup` is called once in the zygote, so each child inherits what it loaded; `allow_socketpair` permits what
        libraries with an event loop need; a zygote whose report is `zygote_timeout_seconds` late is killed."""
        self._setup = wire.ZygoteSetup(
            preload=tuple(preload),
            readable=_readable_folders(readable),
            allow_socketpair=allow_socketpair,
            warmup=qualified_name(warmup.function) if warmup else "",
            warmup_arguments=msgspec.msgpack.encode(warmup.arguments if warmup else ()),
        )
        self._slots = ChildSlots(max_children)
        self._zygote_timeout_seconds = zygote_timeout_seconds
        self._starting = asyncio.Lock()
        self._zygote: ZygoteClient | None = None
        self._guards: wire.Guards | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(
        self,
        function: Callable[..., T],
        *arguments: object,
        file: Path | None = None,
        limits: SandboxLimits = DEFAULT_LIMITS,
    ) -> T:
        """The function's return value, checked against its annotation; raises an error of `errors.py` otherwise.

        The function is defined at the top of a module and is passed by name. Its arguments are plain values; where a
        file is given, it comes first, opened for reading; its `name` is the path, which the function may open too."""
        call, returns = new_call(function, arguments, limits), return_type(function)
        async with self._slots.held():
            zygote = await self._started()
            request = wire.SpawnRequest(
                number=zygote.new_number(),
                call=call,
                file=absolute_path(file),
                memory_bytes=limits.memory_bytes,
                cpu_seconds=limits.cpu_seconds,
                seconds=limits.seconds,
            )
            exited, output = await self._run_child(zygote, request, file, limits)
        return result_of(exited, output, limits, returns)

    def session(self, file: Path) -> SandboxSession:
        """One child for several calls about one file, for the length of an `async with` block."""
        return SandboxSession(
            file, started=self._started, slots=self._slots, zygote_timeout_seconds=self._zygote_timeout_seconds
        )

    async def guards(self) -> wire.Guards:
        """The isolation mechanisms that work on this machine. Starts the zygote, which tests them."""
        await self._started()
        assert self._guards is not None
        return self._guards

    async def close(self) -> None:
        """Kill what runs and stop the zygote. Pending calls fail with SANDBOX_LOST."""
        self._closed = True
        async with self._starting:
            if self._zygote is not None:
                await self._zygote.close()

    async def _started(self) -> ZygoteClient:
        if sys.platform != "linux":
            raise SandboxUnsupported(system=sys.platform)
        async with self._starting:
            if self._closed:
                raise SandboxLost(reason="it was closed")
            if self._zygote is None or self._zygote.is_lost:
                await self._start()
            assert self._zygote is not None
            return self._zygote

    async def _start(self) -> None:
        if self._zygote is not None:
            await self._zygote.kill()  # lost, but perhaps not reaped yet
        self._zygote, guards = await ZygoteClient.start(self._setup)
        if guards.missing and guards != self._guards:
            log.warning("sandbox isolation is incomplete on this machine: no %s", ", no ".join(guards.missing))
        self._guards = guards

    async def _run_child(
        self, zygote: ZygoteClient, request: wire.SpawnRequest, file: Path | None, limits: SandboxLimits
    ) -> tuple[wire.ChildExited, bytes]:
        kill = partial(zygote.kill_child, request.number)
        max_bytes = limits.result_bytes + MARK_BYTES
        with open_descriptors(file) as opened, OutputPipe(max_bytes=max_bytes, on_overflow=kill) as pipe:
            exit_report = zygote.spawn(request, [pipe.write_end, *opened])
            await zygote.wait_exit(
                request.number, exit_report, seconds=limits.seconds, timeout_seconds=self._zygote_timeout_seconds
            )
            report, output = exit_report.result(), pipe.read_all()
        exited = require_exit(report)
        if pipe.overflowed:
            raise SandboxTooMuch(most_bytes=limits.result_bytes)
        return exited, output


def _readable_folders(readable: Sequence[Path]) -> tuple[str, ...]:
    """The folders of Python, of installed packages and of our own code. The rest of `sys.path` may hold the data
    folder."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = {each for each in sys.path if Path(each).name in {"site-packages", "dist-packages"}}
    ours = {str(Path(penstock.__file__).parent), *map(str, readable)}
    return tuple(str(Path(each).absolute()) for each in sorted(python | packages | ours))
