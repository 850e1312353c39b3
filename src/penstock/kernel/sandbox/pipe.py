"""The pipe on which a child writes its result or replies, read as data arrives and never past a limit."""

import asyncio
import os
from collections.abc import Callable
from typing import Self

from penstock.kernel.sandbox import wire

CHUNK_BYTES = 64 * 1024  # the capacity of a pipe


class OutputPipe:
    """Collects what a child writes. Past `max_bytes`, reading stops and `on_overflow` is called once."""

    def __init__(self, *, max_bytes: int, on_overflow: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_bytes = max_bytes
        self._on_overflow = on_overflow
        self._buffer = bytearray()
        self._read_end, self.write_end = os.pipe()  # a copy of the write end goes to the child
        os.set_blocking(self._read_end, False)
        self._loop.add_reader(self._read_end, self._read)

    @property
    def overflowed(self) -> bool:
        """Whether the child wrote more than `max_bytes`."""
        return len(self._buffer) > self._max_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading and close both ends."""
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self.write_end)

    def read_all(self) -> bytes:
        """Everything that was written. Call it when the child is dead."""
        while self._read():
            pass
        return bytes(self._buffer)

    def _read(self) -> bool:
        try:
            chunk = b"" if self.overflowed else os.read(self._read_end, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._buffer += chunk
        if self.overflowed:
            self._loop.remove_reader(self._read_end)
            self._on_overflow()
        return bool(chunk)


class ReplyPipe(OutputPipe):
    """The output of a session's child: the RUNNING mark, then one length-prefixed reply per call."""

    def __init__(self, *, on_overflow: Callable[[], None]) -> None:
        super().__init__(max_bytes=len(wire.RUNNING), on_overflow=on_overflow)
        self._reply: asyncio.Future[bytes] | None = None
        self.is_running = False  # whether the RUNNING mark has arrived

    @property
    def is_empty(self) -> bool:
        """Whether the child has written nothing beyond the replies to its calls."""
        return not self._buffer

    def expect(self, max_bytes: int) -> "asyncio.Future[bytes]":
        """A future of the next reply."""
        before = 0 if self.is_running else len(wire.RUNNING)
        self._max_bytes = before + wire.REPLY_LENGTH_BYTES + len(wire.VALUE) + max_bytes
        self._reply = self._loop.create_future()
        return self._reply

    def _read(self) -> bool:
        has_read = super()._read()
        self._parse()
        return has_read

    def _parse(self) -> None:
        if not self.is_running and self._buffer.startswith(wire.RUNNING):
            self.is_running = True
            del self._buffer[: len(wire.RUNNING)]
            self._max_bytes -= len(wire.RUNNING)
        if not self.is_running or self.overflowed or self._reply is None or self._reply.done():
            return
        end = wire.REPLY_LENGTH_BYTES + int.from_bytes(self._buffer[: wire.REPLY_LENGTH_BYTES])
        if len(self._buffer) >= end:
            self._reply.set_result(bytes(self._buffer[wire.REPLY_LENGTH_BYTES : end]))
            del self._buffer[:end]
