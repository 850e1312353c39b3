"""A tus client that can misbehave: it sends half a body and cuts the connection, or falls silent."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from urllib.parse import urlsplit

import aiohttp
import msgspec

BASE = "/api/v1/uploads"
BYTES = "application/offset+octet-stream"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def offset(self) -> int:
        """What `Upload-Offset` says."""
        return int(self.headers["upload-offset"])

    @property
    def path(self) -> str:
        """The path of a created upload."""
        return self.headers["location"]

    @property
    def code(self) -> str:
        """The code of a problem."""
        return str(msgspec.json.decode(self.body)["code"])


def metadata(**pairs: str) -> str:
    """`Upload-Metadata` of these pairs."""
    return ",".join(f"{key} {b64encode(value.encode()).decode()}" for key, value in pairs.items())


PDF = metadata(filename="paper.pdf", filetype="application/pdf")


@dataclass(frozen=True, kw_only=True)
class TusClient:
    """Somebody with a key, at one server."""

    session: aiohttp.ClientSession
    url: str
    key: str
    version: str | None = "1.0.0"

    async def send(self, method: str, path: str = BASE, body: bytes | None = None, **headers: str | None) -> Answer:
        """A request; underscores in header names are hyphens, and None removes a header."""
        sent = self._headers(headers)
        data = None if body is None else BytesIO(body)
        async with self.session.request(
            method, self.url + path, data=data, headers=sent, skip_auto_headers=["Content-Type"]
        ) as answer:
            known = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(status=answer.status, headers=known, body=await answer.read())

    def _headers(self, more: dict[str, str | None]) -> dict[str, str]:
        given: dict[str, str | None] = {"X_API_Key": self.key, "Tus_Resumable": self.version, **more}
        return {name.replace("_", "-"): value for name, value in given.items() if value is not None}

    async def create(self, length: int | None = None, **headers: str | None) -> Answer:
        """Create an upload."""
        size = {} if length is None else {"Upload_Length": str(length)}
        return await self.send("POST", BASE, None, **{"Upload_Metadata": PDF, **size, **headers})

    async def begin(self, length: int) -> str:
        """Create an upload; returns its path."""
        made = await self.create(length)
        assert made.status == 201, made.body
        return made.path

    async def patch(self, path: str, offset: int, body: bytes, **headers: str | None) -> Answer:
        """Send bytes."""
        return await self.send("PATCH", path, body, **{"Upload_Offset": str(offset), "Content_Type": BYTES, **headers})

    async def head(self, path: str) -> Answer:
        """Ask for the offset."""
        return await self.send("HEAD", path)

    async def offset(self, path: str) -> int:
        """The stored bytes."""
        found = await self.head(path)
        assert found.status == 200, found.status
        return found.offset

    @asynccontextmanager
    async def sending(
        self, path: str, offset: int, announced: int, body: bytes, **headers: str
    ) -> AsyncIterator["OpenRequest"]:
        """A PATCH that announces more than it sends; the connection is cut at the end of the block."""
        target = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(target.hostname, target.port)
        lines = [f"PATCH {path} HTTP/1.1", f"Host: {target.netloc}", f"Content-Length: {announced}"]
        sent = {"Upload_Offset": str(offset), "Content_Type": BYTES, **headers}
        lines += [f"{name}: {value}" for name, value in self._headers({**sent}).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        try:
            yield OpenRequest(reader=reader, writer=writer)
        finally:
            writer.transport.abort()


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """A request whose body is not whole."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, body: bytes) -> None:
        """Send more of the body."""
        self.writer.write(body)
        await self.writer.drain()

    async def status(self) -> int:
        """The status of the answer."""
        async with asyncio.timeout(30):
            line = await self.reader.readline()
        return int(line.split()[1])
