"""One call to run a function on foreign bytes: `await sandbox.run(function, *arguments, file=path)`.

The function runs in a child process of its own that is held by limits and walls, and is gone when the call is over,
however it is over. The zygote that makes the children is started by the first call, and again by the next call when it
has died. A cancelled call kills its child; closing kills all.
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
from penstock.kernel.sandbox.answer import Answer
from penstock.kernel.sandbox.ends import Bounds, SandboxLost, SandboxTooMuch, SandboxUnsupported, ended_of, judge
from penstock.kernel.sandbox.link import Link
from penstock.kernel.sandbox.orders import lent, name_of, new_ask, returned_by
from penstock.kernel.sandbox.session import SandboxSession, Seats

T = TypeVar("T")

log = logging.getLogger(__name__)

USUAL = Bounds()
MARKS = len(wire.RUNNING + wire.VALUE)


@dataclass(frozen=True, kw_only=True)
class Warm:
    """A call that makes a zygote ready, on nothing but our own files: there are no walls around it."""

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
        warm: Warm | None = None,
        pairs: bool = False,
        most_children: int = 4,
        patience_seconds: float = 10.0,
    ) -> None:
        """Nothing is started before the first call. `readable` folders are open to the children, beside those of
        Python and of this package; `warm` is called once in the zygote, so that each child finds done what it did;
        `pairs` allows what libraries with an event loop need; a zygote that is `patience_seconds` late with its report
        is given up."""
        self._setup = wire.Setup(
            preload=tuple(preload),
            readable=_folders(readable),
            pairs=pairs,
            warm=name_of(warm.function) if warm else "",
            warm_arguments=msgspec.msgpack.encode(warm.arguments if warm else ()),
        )
        self._seats = Seats(most_children)
        self._patience_seconds = patience_seconds
        self._starting = asyncio.Lock()
        self._link: Link | None = None
        self._guards: wire.Guards | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(
        self, function: Callable[..., T], *arguments: object, file: Path | None = None, limits: Bounds = USUAL
    ) -> T:
        """What the function returns, checked against its annotation; or how it ended, as an error of `ends`.

        The function stands at the top of a module and goes by name. Its arguments are plain values, and before them
        comes the file, opened to be read, where one is given."""
        ask, returns = new_ask(function, arguments, limits), returned_by(function)
        async with self._seats.taken():
            link = await self._started()
            order = wire.Order(
                number=link.new_number(),
                ask=ask,
                has_file=file is not None,
                memory_bytes=limits.memory_bytes,
                cpu_seconds=limits.cpu_seconds,
                seconds=limits.seconds,
            )
            ended, words = await self._carry_out(link, order, file, limits)
        return judge(ended, words, limits, returns)

    def sitting(self, file: Path) -> SandboxSession:
        """A child for several calls about one file, for the length of an `async with` block."""
        return SandboxSession(file, started=self._started, seats=self._seats, patience=self._patience_seconds)

    async def guards(self) -> wire.Guards:
        """What holds the children back on this machine. Starts the zygote, which tries it out."""
        await self._started()
        assert self._guards is not None
        return self._guards

    async def close(self) -> None:
        """Kill what runs and end the zygote. Calls that still wait end with SANDBOX_LOST."""
        self._closed = True
        async with self._starting:
            if self._link is not None:
                await self._link.close()

    async def _started(self) -> Link:
        if sys.platform != "linux":
            raise SandboxUnsupported(system=sys.platform)
        async with self._starting:
            if self._closed:
                raise SandboxLost(reason="it was closed")
            if self._link is None or self._link.lost:
                await self._start()
            assert self._link is not None
            return self._link

    async def _start(self) -> None:
        if self._link is not None:
            await self._link.kill()  # lost, but perhaps not buried yet
        self._link, guards = await Link.start(self._setup)
        if guards.missing and guards != self._guards:
            log.warning("the sandbox is weaker on this machine: there is no %s", ", no ".join(guards.missing))
        self._guards = guards

    async def _carry_out(
        self, link: Link, order: wire.Order, file: Path | None, limits: Bounds
    ) -> tuple[wire.Ended, bytes]:
        full = partial(link.stop, order.number)
        with lent(file) as given, Answer(most_bytes=limits.result_bytes + MARKS, when_full=full) as answer:
            call = link.call(order, [answer.sink, *given])
            await link.until_ended(order.number, call, seconds=limits.seconds, patience=self._patience_seconds)
            report, words = call.result(), answer.words()
        ended = ended_of(report)
        if answer.full:
            raise SandboxTooMuch(most_bytes=limits.result_bytes)
        return ended, words


def _folders(readable: Sequence[Path]) -> tuple[str, ...]:
    """Where Python, installed packages and our own code lie. The rest of `sys.path` may well hold the data folder."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = {each for each in sys.path if Path(each).name in {"site-packages", "dist-packages"}}
    ours = {str(Path(penstock.__file__).parent), *map(str, readable)}
    return tuple(str(Path(each).absolute()) for each in sorted(python | packages | ours))
