"""A session: one child for several calls about one file, `async with sandbox.session(path) as session`.

A fork is cheap, but the memory it fills is fresh each time: for a page of OCR that is a tenth of its cost. So a caller
with several calls about a file uses one child. Each call has its own limits and its own outcome; after any outcome but
a value the child is killed, and the next call gets another. A crash, an error or exhausted memory may have been caused
by an earlier call, so in a used child such a call is retried once, in a fresh one.

A file that takes over its child can falsify the results of its own pages, and nothing else. An idle session keeps its
child slot only until another call waits for one. The caller, not the zygote, enforces the timeouts of a session.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from penstock.kernel.errors import PenstockError, error_text
from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.errors import (
    SandboxBadAnswer,
    SandboxCrashed,
    SandboxedFailure,
    SandboxLost,
    SandboxOutOfMemory,
    SandboxTimedOut,
    SandboxTooMuch,
)
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.pipe import ReplyPipe
from penstock.kernel.sandbox.request import absolute_path, new_call, open_descriptors, return_type
from penstock.kernel.sandbox.result import decode_reply, exit_error, not_started, require_exit
from penstock.kernel.sandbox.zygote_client import ZygoteClient

T = TypeVar("T")

MAX_CALLS = 16  # per child, so that whatever it accumulates is freed


class SandboxSession:
    """One child at a time, for calls one after another. Nothing is started before the first call."""

    def __init__(
        self,
        file: Path,
        *,
        started: Callable[[], Awaitable[ZygoteClient]],
        slots: "ChildSlots",
        zygote_timeout_seconds: float,
    ) -> None:
        self.file = file
        self._started = started
        self._slots = slots
        self._zygote_timeout_seconds = zygote_timeout_seconds
        self._child: _SessionChild | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, function: Callable[..., T], *arguments: object, limits: SandboxLimits) -> T:
        """Run a function on the session's file; see `Sandbox.run`."""
        call, returns = new_call(function, arguments, limits), return_type(function)
        is_fresh = await self._ensure_child(limits)
        try:
            return await self._call(call, limits, returns)
        except (SandboxCrashed, SandboxOutOfMemory, SandboxedFailure):
            if is_fresh:
                raise
        await self._ensure_child(limits)
        return await self._call(call, limits, returns)

    async def close(self) -> None:
        """Kill the child, if there is one, and release its slot."""
        child, self._child = self._child, None
        if child is None:
            return
        self._slots.mark_busy(self)
        try:
            await child.kill(self._zygote_timeout_seconds)
        finally:
            self._slots.release()

    async def _ensure_child(self, limits: SandboxLimits) -> bool:
        """Have a live child; returns whether it is fresh. The death of an idle child is no outcome of any call."""
        self._slots.mark_busy(self)
        if self._child is not None and self._child.can_serve(limits):
            return False
        await self.close()
        await self._slots.acquire()
        try:
            self._child = _SessionChild(await self._started(), self.file, limits)
        except BaseException:
            self._slots.release()
            raise
        return True

    async def _call(self, call: wire.CallRequest, limits: SandboxLimits, returns: type[T]) -> T:
        assert self._child is not None
        try:
            value = decode_reply(await self._child.call(call, limits), limits, returns)
        except BaseException:
            await self.close()
            raise
        if self._slots.has_waiters:
            await self.close()
        else:
            self._slots.mark_idle(self)
        return value


class _SessionChild:
    """The caller's end of a session's child."""

    def __init__(self, zygote: ZygoteClient, file: Path, limits: SandboxLimits) -> None:
        self._zygote = zygote
        self._limits = limits
        self._calls = 0
        self._request = wire.SpawnRequest(
            number=zygote.new_number(),
            call=None,
            file=absolute_path(file),
            memory_bytes=limits.memory_bytes,
            cpu_seconds=(limits.cpu_seconds + 1) * MAX_CALLS,  # + 1: a call may use up the second that it begins
            seconds=None,
        )
        with ExitStack() as opened:
            descriptors = opened.enter_context(open_descriptors(file))
            kill = partial(zygote.kill_child, self._request.number)
            self._replies = opened.enter_context(ReplyPipe(on_overflow=kill))
            self._connection, theirs = map(opened.enter_context, wire.new_socketpair())
            self._exit_report = zygote.spawn(self._request, [self._replies.write_end, *descriptors, theirs.fileno()])
            self._opened = opened.pop_all()

    def can_serve(self, limits: SandboxLimits) -> bool:
        """Whether it lives and may serve another call: its memory and CPU limits were set when it was forked."""
        same_memory = limits.memory_bytes == self._limits.memory_bytes
        fits = same_memory and limits.cpu_seconds <= self._limits.cpu_seconds and self._calls < MAX_CALLS
        return fits and self._replies.is_empty and not self._exit_report.done() and not self._zygote.is_lost

    async def call(self, call: wire.CallRequest, limits: SandboxLimits) -> bytes:
        """The reply to one call; raises the child's failure. After a timeout the child still runs."""
        self._calls += 1
        reply = self._replies.expect(limits.result_bytes)
        try:
            self._connection.send(msgspec.msgpack.encode(call))
        except BlockingIOError as error:
            raise SandboxBadAnswer(reason="the child does not read its calls") from error
        except OSError as error:
            raise SandboxLost(reason=f"a child accepts no more calls ({error_text(error)})") from error
        await asyncio.wait((reply, self._exit_report), timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._exit_report.done() and not reply.done():
            output = self._replies.read_all()  # the reply may be part of it
            if not reply.done():
                raise self._exit_error(output, limits)
        if not self._replies.is_running:  # neither the child nor its zygote made progress
            raise not_started(self._replies.read_all())
        if not reply.done():
            raise SandboxTimedOut(seconds=limits.seconds)
        return reply.result()

    def _exit_error(self, output: bytes, limits: SandboxLimits) -> PenstockError:
        exited = require_exit(self._exit_report.result())
        if self._replies.overflowed:
            return SandboxTooMuch(most_bytes=limits.result_bytes)
        if not self._replies.is_running:
            return not_started(output)
        return exit_error(exited, limits, max_cpu_seconds=self._request.cpu_seconds)

    async def kill(self, timeout_seconds: float) -> None:
        """Kill it, and wait until it is reaped."""
        with self._opened:
            self._zygote.kill_child(self._request.number)
            await self._zygote.wait_exit(
                self._request.number, self._exit_report, seconds=0, timeout_seconds=timeout_seconds
            )


class ChildSlots:
    """Limits the number of concurrent children, and takes slots back from idle sessions."""

    def __init__(self, max_children: int) -> None:
        self._free = asyncio.Semaphore(max_children)
        self._waiting = 0
        self._idle: dict[SandboxSession, None] = {}  # longest idle first

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for a slot."""
        return self._waiting > 0

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A slot for the length of a block."""
        await self.acquire()
        try:
            yield
        finally:
            self.release()

    async def acquire(self) -> None:
        """Take a slot, closing the longest idle session when none is free."""
        self._waiting += 1
        try:
            if self._free.locked() and self._idle:
                await next(iter(self._idle)).close()
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def release(self) -> None:
        """Free a slot."""
        self._free.release()

    def mark_idle(self, session: SandboxSession) -> None:
        """Allow others to close this session for its slot."""
        self._idle[session] = None

    def mark_busy(self, session: SandboxSession) -> None:
        """No longer allow others to close this session."""
        self._idle.pop(session, None)
