"""A PostgreSQL transaction pooler that is as strict as a pooler may be.

It stands between clients and a few real connections to PostgreSQL, as pgbouncer and Supavisor do in transaction mode:
a client holds a server connection only until its transaction ends. A real pooler often gives back the same one; this
one never does if another is free, so whatever leans on a session (a named prepared statement, SET, a session lock, a
temporary table) fails in the test instead of in production. As in reality:

- nothing is cleaned between transactions: what one client leaves behind in a session, the next one finds;
- the session settings that a client asks for at start are not passed on;
- LISTEN is useless: notifications are dropped;
- who leaves inside a transaction takes the server connection along, so that PostgreSQL rolls back.

How it works: each connection is a ``Peer`` that cuts the stream into messages. A *batch* is what a client sends up to
Sync (or one simple query); PostgreSQL ends its answer with ReadyForQuery and a letter, "I" when no transaction is open.
Nothing of the next batch is passed on before that answer, so pipelined batches may land on different connections.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, cast

VERSION_3 = 196608
CANCEL, SSL, GSS = 80877102, 80877103, 80877104
NO_ENCRYPTION = b"N"

# Kinds of messages, from the client …
QUERY, SYNC, FUNCTION_CALL, TERMINATE, COPY_DONE, COPY_FAIL = b"Q", b"S", b"F", b"X", b"c", b"f"
# … and from the server; some letters mean another thing on the way back.
AUTHENTICATION, PARAMETER, KEY, READY, COPY_IN, NOTIFICATION = b"R", b"S", b"K", b"Z", b"G", b"A"

IDLE = b"I"
ENDS_BATCH = {QUERY, SYNC, FUNCTION_CALL}
ENDS_COPY = {COPY_DONE, COPY_FAIL}


@dataclass(frozen=True)
class Message:
    """One message; the first ones of a client have no kind."""

    kind: bytes
    body: bytes

    def packed(self) -> bytes:
        return self.kind + struct.pack("!i", len(self.body) + 4) + self.body

    @property
    def code(self) -> int:
        """The number at the start of the body: a protocol version, a request or a way to authenticate."""
        return int.from_bytes(self.body[:4], "big")


class Peer(asyncio.Protocol):
    """One end of a connection, as a stream of messages."""

    def __init__(self, *, starts_untyped: bool, on_open: Callable[["Peer"], None] = lambda peer: None) -> None:
        self.is_lost = False
        self._untyped = starts_untyped
        self._on_open = on_open
        self._bytes = bytearray()
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while (message := self._cut_message()) is not None:
            self._messages.put_nowait(message)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        self._closed.set()

    async def read(self) -> Message:
        """The next message; raises ConnectionError when there will be none. A cancelled read loses nothing."""
        message = await self._messages.get()
        if message is None:
            self._messages.put_nowait(None)
            raise ConnectionError("The other end is gone.")
        return message

    def send(self, message: Message) -> None:
        self._transport.write(message.packed())

    def send_bytes(self, raw: bytes) -> None:
        self._transport.write(raw)

    async def close(self) -> None:
        """Close without waiting for the other end; returns when the socket is closed."""
        self._transport.abort()
        await self._closed.wait()

    def _end(self) -> None:
        self.is_lost = True
        self._messages.put_nowait(None)

    def _cut_message(self) -> Message | None:
        head = 0 if self._untyped else 1
        if len(self._bytes) < head + 4:
            return None
        end = head + int.from_bytes(self._bytes[head : head + 4], "big")
        if len(self._bytes) < end:
            return None
        message = Message(bytes(self._bytes[:head]), bytes(self._bytes[head + 4 : end]))
        del self._bytes[:end]
        self._untyped = self._untyped and message.code in {CANCEL, SSL, GSS}
        return message


class Backend:
    """A slot in the pool: a connection to PostgreSQL, made on demand and again when it was lost."""

    def __init__(self, socket: Path, database: str) -> None:
        self._socket = socket
        self._database = database
        self._peer: Peer | None = None
        self.parameters: list[Message] = []
        self.key = Message(KEY, b"")

    @property
    def pid(self) -> int:
        return self.key.code

    async def connected(self) -> Peer:
        if self._peer is None or self._peer.is_lost:
            await self.drop()
            self._peer = await self._log_in()
        return self._peer

    async def drop(self) -> None:
        """Close the server connection, which rolls back what was open."""
        if self._peer is not None:
            await self._peer.close()
        self._peer = None

    async def ask_to_cancel(self) -> None:
        """Ask the server to cancel the query of this connection, over a short connection of its own."""
        peer = await self._open()
        peer.send(Message(b"", struct.pack("!i", CANCEL) + self.key.body))
        try:
            await peer.read()  # never an answer, only the end
        except ConnectionError:
            await peer.close()

    async def _log_in(self) -> Peer:
        peer = await self._open()
        words = ("user", "postgres", "database", self._database, "client_encoding", "UTF8")
        peer.send(
            Message(b"", struct.pack("!i", VERSION_3) + b"".join(word.encode() + b"\0" for word in words) + b"\0")
        )
        greeting = [await peer.read()]
        if greeting[0].kind != AUTHENTICATION or greeting[0].code != 0:
            await peer.close()
            raise ConnectionError(f"The server did not trust us: {greeting[0].body!r}")
        while greeting[-1].kind != READY:
            greeting.append(await peer.read())
        self.parameters = [message for message in greeting if message.kind == PARAMETER]
        self.key = next(message for message in greeting if message.kind == KEY)
        return peer

    async def _open(self) -> Peer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_unix_connection(lambda: Peer(starts_untyped=False), str(self._socket))
        return peer


class TransactionPooler:
    """Listens on a port of 127.0.0.1 while it is entered; clients go to ``url`` (SQLAlchemy) or ``dsn`` (asyncpg).

    The server must trust its Unix socket, as a ``PostgresServer`` does. ``transactions`` counts how often a connection
    was given back in good order, ``backend_pids`` tells which server processes clients have been given.
    """

    def __init__(self, socket_folder: Path, database: str, size: int = 3) -> None:
        self.transactions = 0
        self.backend_pids: set[int] = set()
        self._database = database
        self._backends = [Backend(socket_folder / ".s.PGSQL.5432", database) for _ in range(size)]
        self._free: asyncio.Queue[Backend] = asyncio.Queue()  # first in, first out: the longest unused comes next
        self._held: dict[bytes, Backend | None] = {}  # by the key that a client was given
        self._numbers = itertools.count(1)
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._backends[0].connected()
        for backend in self._backends:
            self._free.put_nowait(backend)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new_client, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for backend in self._backends:
            await backend.drop()
        await self._server.wait_closed()

    @property
    def dsn(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{self._database}"

    @property
    def url(self) -> str:
        return self.dsn.replace("postgresql:", "postgresql+asyncpg:", 1)

    def _new_client(self) -> Peer:
        return Peer(starts_untyped=True, on_open=self._start_serving)

    def _start_serving(self, client: Peer) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, client: Peer) -> None:
        key = struct.pack("!ii", next(self._numbers), 0)
        try:
            if await self._welcome(client, key):
                await self._serve_transactions(client, key)
        except* (ConnectionError, FileNotFoundError):
            pass  # the client left, or the server is down: either way the other end sees a closed connection
        finally:
            self._held.pop(key, None)
            await client.close()

    async def _welcome(self, client: Peer, key: bytes) -> bool:
        """Answer the startup as PostgreSQL would; False if the client only came to cancel another's query."""
        request = await client.read()
        while request.code in {SSL, GSS}:
            client.send_bytes(NO_ENCRYPTION)
            request = await client.read()
        if request.code == CANCEL:
            await self._cancel(request.body[4:])
            return False
        client.send(Message(AUTHENTICATION, struct.pack("!i", 0)))
        for parameter in self._backends[0].parameters:
            client.send(parameter)
        client.send(Message(KEY, key))
        client.send(Message(READY, IDLE))
        return True

    async def _cancel(self, key: bytes) -> None:
        backend = self._held.get(key)
        if backend is not None:
            await backend.ask_to_cancel()

    async def _serve_transactions(self, client: Peer, key: bytes) -> None:
        while (message := await client.read()).kind != TERMINATE:
            backend = await self._free.get()
            self._held[key] = backend
            try:
                await self._transaction(client, backend, message)
            except BaseException:
                await backend.drop()
                raise
            finally:
                self._held[key] = None
                self._free.put_nowait(backend)

    async def _transaction(self, client: Peer, backend: Backend, message: Message) -> None:
        server = await backend.connected()
        self.backend_pids.add(backend.pid)
        while await _batch(client, server, message) != IDLE:
            message = await client.read()
            if message.kind == TERMINATE:
                raise ConnectionError("The client left inside a transaction.")
        self.transactions += 1


async def _batch(client: Peer, server: Peer, first: Message) -> bytes:
    """Pass one batch to the server and its answers back; returns the state of the transaction after it."""
    async with asyncio.TaskGroup() as tasks:
        answers = tasks.create_task(_relay_answers(server, client))  # at once: a client may wait for one before Sync
        server.send(first)
        if first.kind not in ENDS_BATCH:
            await _relay(client, server, ENDS_BATCH)
    return answers.result()


async def _relay(client: Peer, server: Peer, last: set[bytes]) -> None:
    """Pass on what the client sends, up to a message of one of these kinds."""
    while True:
        message = await client.read()
        if message.kind == TERMINATE:
            raise ConnectionError("The client left inside a batch.")
        server.send(message)
        if message.kind in last:
            return


async def _relay_answers(server: Peer, client: Peer) -> bytes:
    """Pass responses back up to ReadyForQuery; a COPY in a simple query lets the client send meanwhile."""
    async with asyncio.TaskGroup() as tasks:
        copy: asyncio.Task[None] | None = None
        while (answer := await server.read()).kind != READY:
            if answer.kind == NOTIFICATION:
                continue
            client.send(answer)
            if answer.kind == COPY_IN:
                copy = tasks.create_task(_relay(client, server, ENDS_COPY))
        if copy is not None:
            copy.cancel()  # still waiting if the server gave up before the client did
        client.send(answer)
        return answer.body
