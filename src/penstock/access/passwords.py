"""Passwords: hashed with argon2id, off the event loop, a few at a time.

A hash takes tens of milliseconds and 64 MiB on purpose. Two threads do the work, so that logins cannot starve the
process of memory; a bounded number may wait for them, and the rest are asked to come back. A name that nobody has is
checked against a hash of nothing: how long the answer takes does not tell who exists.
"""

import asyncio
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from penstock.access.errors import LoginBusy

AT_ONCE = 2
MOST_WAITING = 32
BUSY_SECONDS = 1.0

T = TypeVar("T")


class Passwords:
    """Makes and checks hashes of passwords."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="passwords")
        self._under_way = 0
        self._of_nothing = ""

    async def hash(self, password: str) -> str:
        """What is kept of a password."""
        return await self._run(lambda: self._hasher.hash(_same_everywhere(password)))

    async def check(self, kept: str | None, password: str) -> bool:
        """Whether it is the password; for nobody's password it takes as long and is always wrong."""
        return await self._run(lambda: self._check(kept, _same_everywhere(password)))

    def outdated(self, kept: str) -> bool:
        """Whether it was hashed with other parameters than are used now."""
        return self._hasher.check_needs_rehash(kept)

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among those who wait, for as long as the block takes; `LoginBusy` when there is none."""
        if self._under_way >= MOST_WAITING:
            raise LoginBusy(wait_seconds=BUSY_SECONDS)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def _check(self, kept: str | None, password: str) -> bool:
        if not self._of_nothing:  # made by whoever comes first, so that it takes everyone after them the same time
            self._of_nothing = self._hasher.hash("")
        try:
            self._hasher.verify(kept or self._of_nothing, password)
        except (VerificationError, InvalidHashError):
            return False
        return kept is not None

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _same_everywhere(password: str) -> str:
    """Keyboards send `é` as one character or as two; it is one password."""
    return unicodedata.normalize("NFKC", password)
