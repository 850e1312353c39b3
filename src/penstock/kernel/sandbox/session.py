"""A child that stays for several calls about one file: `async with sandbox.sitting(path) as sitting`.

A fork is cheap, but what it fills with numbers is fresh memory each time: for a page of OCR that is a tenth of its
cost. So whoever has several questions about a file asks them of one child. Each call has its own bounds and its own
end; after any end but a value the child is gone, and the next call gets another. A crash, an error or full memory may
be an earlier call's doing: in a child that was used already, such a call is tried once more, in a fresh one.

A child that sits idle holds one of the sandbox's seats only until somebody else wants it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from penstock.kernel.errors import PenstockError, in_words
from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.answer import Replies
from penstock.kernel.sandbox.ends import (
    Bounds,
    SandboxBadAnswer,
    SandboxCrashed,
    SandboxedFailure,
    SandboxLost,
    SandboxOutOfMemory,
    SandboxTimedOut,
    SandboxTooMuch,
    death,
    ended_of,
    not_begun,
    value_of,
)
from penstock.kernel.sandbox.link import Link
from penstock.kernel.sandbox.orders import lent, new_ask, returned_by

T = TypeVar("T")

MOST_CALLS = 16  # of one child, so that whatever it piles up has an end


class SandboxSession:
    """One child at a time, for calls one after another. Nothing is started before the first."""

    def __init__(self, file: Path, *, started: Callable[[], Awaitable[Link]], seats: "Seats", patience: float) -> None:
        self.file = file
        self._started = started
        self._seats = seats
        self._patience = patience
        self._child: _Child | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def run(self, function: Callable[..., T], *arguments: object, limits: Bounds) -> T:
        """As `Sandbox.run` does it, with the file of the sitting."""
        ask, returns = new_ask(function, arguments, limits), returned_by(function)
        is_fresh = await self._seat(limits)
        try:
            return await self._asked(ask, limits, returns)
        except (SandboxCrashed, SandboxOutOfMemory, SandboxedFailure):
            if is_fresh:
                raise
        await self._seat(limits)
        return await self._asked(ask, limits, returns)

    async def leave(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is None:
            return
        self._seats.withdraw(self)
        try:
            await child.end(self._patience)
        finally:
            self._seats.give_back()

    async def _seat(self, limits: Bounds) -> bool:
        """Have a child; returns whether it is a fresh one. That an idle one ended was no answer to anything."""
        self._seats.withdraw(self)
        if self._child is not None and self._child.is_good_for(limits):
            return False
        await self.leave()
        await self._seats.take()
        try:
            self._child = _Child(await self._started(), self.file, limits)
        except BaseException:
            self._seats.give_back()
            raise
        return True

    async def _asked(self, ask: wire.Ask, limits: Bounds, returns: type[T]) -> T:
        assert self._child is not None
        try:
            value = value_of(await self._child.reply_to(ask, limits), limits, returns)
        except BaseException:
            await self.leave()
            raise
        if self._seats.wanted:
            await self.leave()
        else:
            self._seats.offer(self)
        return value


class _Child:
    """The caller's end of a child that sits."""

    def __init__(self, link: Link, file: Path, limits: Bounds) -> None:
        self._link = link
        self._limits = limits
        self._calls = 0
        self._order = wire.Order(
            number=link.new_number(),
            ask=None,
            has_file=True,
            memory_bytes=limits.memory_bytes,
            cpu_seconds=(limits.cpu_seconds + 1) * MOST_CALLS,  # each call may use up the second that it begins
            seconds=None,
        )
        with ExitStack() as opened:
            given = opened.enter_context(lent(file))
            self._replies = opened.enter_context(Replies(when_full=partial(link.stop, self._order.number)))
            self._line, theirs = map(opened.enter_context, wire.new_line())
            self._ended = link.call(self._order, [self._replies.sink, *given, theirs.fileno()])
            self._opened = opened.pop_all()

    def is_good_for(self, limits: Bounds) -> bool:
        """Whether it lives and may be asked once more: some of its bounds were set once and for all."""
        same_memory = limits.memory_bytes == self._limits.memory_bytes
        fits = same_memory and limits.cpu_seconds <= self._limits.cpu_seconds and self._calls < MOST_CALLS
        return fits and self._replies.is_silent and not self._ended.done() and not self._link.lost

    async def reply_to(self, ask: wire.Ask, limits: Bounds) -> bytes:
        """What it says, or how it ended. Late is whoever says nothing in time; it is still there then."""
        self._calls += 1
        reply = self._replies.expect(limits.result_bytes)
        try:
            self._line.send(msgspec.msgpack.encode(ask))
        except BlockingIOError as error:
            raise SandboxBadAnswer(reason="it does not read what it is asked") from error
        except OSError as error:
            raise SandboxLost(reason=f"a child takes no more asks ({in_words(error)})") from error
        await asyncio.wait((reply, self._ended), timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done() and not reply.done():
            words = self._replies.words()  # the reply may be among them
            if not reply.done():
                raise self._end(words, limits)
        if not self._replies.begun:  # neither it nor its zygote has got anywhere
            raise not_begun(self._replies.words())
        if not reply.done():
            raise SandboxTimedOut(seconds=limits.seconds)
        return reply.result()

    def _end(self, words: bytes, limits: Bounds) -> PenstockError:
        ended = ended_of(self._ended.result())
        if self._replies.full:
            return SandboxTooMuch(most_bytes=limits.result_bytes)
        if not self._replies.begun:
            return not_begun(words)
        return death(ended, limits, most_cpu_seconds=self._order.cpu_seconds)

    async def end(self, patience: float) -> None:
        """Kill it, and wait until it is buried."""
        with self._opened:
            self._link.stop(self._order.number)
            await self._link.until_ended(self._order.number, self._ended, seconds=0, patience=patience)


class Seats:
    """How many children there may be at once, and who holds a seat without needing it just now."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._waiting = 0
        self._idle: dict[SandboxSession, None] = {}  # the longest idle comes first

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a seat."""
        return self._waiting > 0

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """A seat for the length of a block."""
        await self.take()
        try:
            yield
        finally:
            self.give_back()

    async def take(self) -> None:
        """Have a seat, if need be that of a child that is idle."""
        self._waiting += 1
        try:
            if self._free.locked() and self._idle:
                await next(iter(self._idle)).leave()
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        """Leave a seat to others."""
        self._free.release()

    def offer(self, sitting: SandboxSession) -> None:
        """Let others have the seat of an idle one."""
        self._idle[sitting] = None

    def withdraw(self, sitting: SandboxSession) -> None:
        """No longer let others have it."""
        self._idle.pop(sitting, None)
