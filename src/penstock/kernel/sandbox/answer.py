"""The pipe on which a child gives its answer, read as it comes and never past its bound."""

import asyncio
import os
from collections.abc import Callable
from typing import Self

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
