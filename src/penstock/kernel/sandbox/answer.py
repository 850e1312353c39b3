"""The pipe on which a child gives its answer, or one reply after another, read as it comes and never past a bound."""

import asyncio
import os
from collections.abc import Callable
from typing import Self

from penstock.kernel.sandbox import wire

CHUNK_BYTES = 64 * 1024  # what a pipe holds


class Answer:
    """Collects what a child writes. When that is too much, reading stops and `when_full` is called once."""

    def __init__(self, *, most_bytes: int, when_full: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._most_bytes = most_bytes
        self._when_full = when_full
        self._words = bytearray()
        self._source, self.sink = os.pipe()  # a copy of the sink goes to the child
        os.set_blocking(self._source, False)
        self._loop.add_reader(self._source, self._read)

    @property
    def full(self) -> bool:
        """Whether more came than may."""
        return len(self._words) > self._most_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Read no more."""
        self._loop.remove_reader(self._source)
        os.close(self._source)
        os.close(self.sink)

    def words(self) -> bytes:
        """All that was written, when the writer is dead."""
        while self._read():
            pass
        return bytes(self._words)

    def _read(self) -> bool:
        try:
            chunk = b"" if self.full else os.read(self._source, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._words += chunk
        if self.full:
            self._loop.remove_reader(self._source)
            self._when_full()
        return bool(chunk)


class Replies(Answer):
    """What a child says that sits: first that its walls stand, then a reply for each ask, with its length before it."""

    def __init__(self, *, when_full: Callable[[], None]) -> None:
        super().__init__(most_bytes=len(wire.RUNNING), when_full=when_full)
        self._reply: asyncio.Future[bytes] | None = None
        self.begun = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing was said that nobody asked for."""
        return not self._words

    def expect(self, most_bytes: int) -> "asyncio.Future[bytes]":
        """The next reply, when it is here."""
        before = 0 if self.begun else len(wire.RUNNING)
        self._most_bytes = before + wire.REPLY_LENGTH_BYTES + len(wire.VALUE) + most_bytes
        self._reply = self._loop.create_future()
        return self._reply

    def _read(self) -> bool:
        went_on = super()._read()
        self._find()
        return went_on

    def _find(self) -> None:
        if not self.begun and self._words.startswith(wire.RUNNING):
            self.begun = True
            del self._words[: len(wire.RUNNING)]
            self._most_bytes -= len(wire.RUNNING)
        if not self.begun or self.full or self._reply is None or self._reply.done():
            return
        end = wire.REPLY_LENGTH_BYTES + int.from_bytes(self._words[: wire.REPLY_LENGTH_BYTES])
        if len(self._words) >= end:
            self._reply.set_result(bytes(self._words[wire.REPLY_LENGTH_BYTES : end]))
            del self._words[:end]
