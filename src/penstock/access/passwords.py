"""Passwords, hashed with argon2id in a small thread pool.

People choose passwords, so a hash takes tens of milliseconds and 64 MiB on purpose, off the event loop. Two threads do
the work, so that logins cannot exhaust memory; a bounded number of requests may wait for them, others get `LoginBusy`.
The password of an unknown user is checked against a dummy hash, so that timing does not reveal which users exist.
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

THREADS = 2
MAX_WAITING = 32
BUSY_SECONDS = 1.0

T = TypeVar("T")


class Passwords:
    """Hashes and verifies passwords."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="passwords")
        self._waiting = 0
        self._dummy_hash = ""

    async def hash(self, password: str) -> str:
        """The hash under which a password is stored."""
        return await self._run(lambda: self._hasher.hash(_normalized(password)))

    async def check(self, hashed: str | None, password: str) -> bool:
        """Whether the password matches. Without a hash it takes as long and is always False."""
        return await self._run(lambda: self._check(hashed, _normalized(password)))

    def is_outdated(self, hashed: str) -> bool:
        """Whether the hash uses other parameters than the current ones."""
        return self._hasher.check_needs_rehash(hashed)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the bounded waiting slots; raises `LoginBusy` if all are taken."""
        if self._waiting >= MAX_WAITING:
            raise LoginBusy(wait_seconds=BUSY_SECONDS)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _check(self, hashed: str | None, password: str) -> bool:
        if not self._dummy_hash:  # made by the first check, so that all later ones take the same time
            self._dummy_hash = self._hasher.hash("")
        try:
            self._hasher.verify(hashed or self._dummy_hash, password)
        except (VerificationError, InvalidHashError):
            return False
        return hashed is not None

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _normalized(password: str) -> str:
    """Keyboards send `é` as one character or as two; both are the same password."""
    return unicodedata.normalize("NFKC", password)
