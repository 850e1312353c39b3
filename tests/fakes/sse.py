"""Reads a stream of server-sent events, with the subset of the format that we use."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp


@dataclass(frozen=True, kw_only=True)
class Heard:
    """One block of a stream."""

    id: int | None = None
    kind: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    retry: int | None = None
    comment: str = ""


def parse(block: bytes) -> Heard:
    """A block without the empty line that ends it."""
    fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
    return Heard(
        id=int(fields["id"]) if "id" in fields else None,
        kind=fields.get("event", ""),
        data=json.loads(fields.get("data", "{}")),
        retry=int(fields["retry"]) if "retry" in fields else None,
        comment=fields.get("", ""),
    )


def parse_all(text: bytes) -> list[Heard]:
    """Parse complete blocks."""
    assert text.endswith(b"\n\n"), text[-100:]
    return [parse(block) for block in text.split(b"\n\n")[:-1]]


class Listener:
    """An open stream, read block by block."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.last_id: int | None = None
        self._rest = b""

    async def hear(self) -> Heard:
        """The next block; EOFError at the end of the stream."""
        while b"\n\n" not in self._rest:
            some = await self.response.content.readany()
            if not some:
                raise EOFError(self._rest)
            self._rest += some
        block, _, self._rest = self._rest.partition(b"\n\n")
        heard = parse(block)
        self.last_id = heard.id if heard.id is not None else self.last_id
        return heard

    async def hear_events(self, count: int) -> list[Heard]:
        """The next events, comments aside."""
        found: list[Heard] = []
        while len(found) < count:
            heard = await self.hear()
            found += [heard] if heard.kind else []
        return found


@asynccontextmanager
async def listening(session: aiohttp.ClientSession, url: str, **headers: str) -> AsyncIterator[Listener]:
    """Open a stream; names of headers have their hyphens as underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.get(url, headers=named) as response:
        yield Listener(response)
