"""Coalescer to the database that many callers share.

While one trip for a key is under way, whoever else asks for that key waits and is taken along on the next one. Alone,
a caller travels at once; in a crowd a trip serves them all, so the crowd costs little more than one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_ABOARD = 100  # callers on one trip: it should stay short

Run = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]


@dataclass
class _Line:
    """Who waits for the next trip of one key."""

    waiting: deque[tuple[Any, asyncio.Future[Any]]] = field(default_factory=deque)


class Coalescer:
    """The trips of one process."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, key: Hashable, wish: Any, run: Run) -> Any:
        """Travel with a wish; returns what `run` gave for it. `run` gets wishes and returns as many answers, in order.

        All who share a key must give a `run` that does the same: the one who asked first is called for everyone.
        """
        line = self._lines.get(key)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if line is None:
            line = self._lines[key] = _Line()
            line.waiting.append((wish, answer))
            trip = asyncio.create_task(self._travel(key, line, run))
            self._under_way.add(trip)
            trip.add_done_callback(self._under_way.discard)
        else:
            line.waiting.append((wish, answer))
        return await answer

    async def home(self) -> None:
        """Until every trip that is under way has ended, whoever it was for."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _travel(self, key: Hashable, line: _Line, run: Run) -> None:
        """One trip after another until nobody waits."""
        try:
            while line.waiting:
                await self._trip(line, run)
        finally:
            del self._lines[key]
            for _, answer in line.waiting:  # we are stopping: nobody else will answer them
                answer.cancel()

    async def _trip(self, line: _Line, run: Run) -> None:
        aboard = [line.waiting.popleft() for _ in range(min(len(line.waiting), MOST_ABOARD))]
        aboard = [(wish, answer) for wish, answer in aboard if not answer.done()]  # the others went home
        if not aboard:
            return
        try:
            answers = list(zip(aboard, await run([wish for wish, _ in aboard]), strict=True))
        except asyncio.CancelledError:
            for _, answer in aboard:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (it is raised for each who asked)
            for _, answer in aboard:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), given in answers:
            if not answer.done():
                answer.set_result(given)
