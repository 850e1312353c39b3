"""DNS resolvers, named by what they answer."""

import asyncio
import socket
from collections.abc import Sequence


class NamesThatAre:
    """Every name resolves to these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.asked: list[str] = []
        self._addresses = addresses

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self._addresses

    async def close(self) -> None:
        pass


class NamesThatMove:
    """Every name resolves to another address each time; the last one stays."""

    def __init__(self, *addresses: str) -> None:
        self.asked: list[str] = []
        self._addresses = addresses

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return [self._addresses[min(len(self.asked), len(self._addresses)) - 1]]

    async def close(self) -> None:
        pass


class ResolverThatFails:
    """Every lookup fails with this code."""

    def __init__(self, reason: int) -> None:
        self._reason = reason

    async def addresses(self, host: str) -> Sequence[str]:
        raise socket.gaierror(self._reason, "made up")

    async def close(self) -> None:
        pass


class ResolverThatHangs:
    """Never answers."""

    async def addresses(self, host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async def close(self) -> None:
        pass
