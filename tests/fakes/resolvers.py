"""Lookups of names, named by what they answer."""

import asyncio
import socket
from collections.abc import Sequence


class NamesThatAre:
    """Every name has these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.asked: list[str] = []
        self._addresses = addresses

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self._addresses

    async def close(self) -> None:
        pass


class NamesThatMove:
    """Every name has another address each time it is asked for; the last one stays."""

    def __init__(self, *addresses: str) -> None:
        self.asked: list[str] = []
        self._addresses = addresses

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return [self._addresses[min(len(self.asked), len(self._addresses)) - 1]]

    async def close(self) -> None:
        pass


class LookupThatFails:
    """No name can be looked up, for this reason."""

    def __init__(self, reason: int) -> None:
        self._reason = reason

    async def addresses(self, host: str) -> Sequence[str]:
        raise socket.gaierror(self._reason, "made up")

    async def close(self) -> None:
        pass


class LookupThatHangs:
    """No name is ever found, and no failure either."""

    async def addresses(self, host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async def close(self) -> None:
        pass
