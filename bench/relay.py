"""CPU and time per outbox message that the relay delivers to a handler and a sink which do no work of their own.

CPU is user and system time of this process, so on PostgreSQL it is the relay without the server. The reference is the
limit of 0.2 ms. The notes show the time by the clock, the same messages claimed and settled one at a time, and batches
that each contain a message that fails. The second measurement adds a webhook that receives every message: one more row
in the delivery log and one job each.
"""

import asyncio
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Invalid
from penstock.kernel.message import Message
from penstock.kernel.outbox import OutboxMessage, outbox
from penstock.kernel.queue import JobQueue
from penstock.kernel.relay import MessageHandler, Relay, Sink, SinkResult
from penstock.notify import store
from penstock.notify.deps import Deps
from penstock.notify.domain import Webhook, WebhookResponse
from penstock.notify.worker import WebhookFanOut
from tests.conftest import open_db

MESSAGES = 5_000
ALONE = 500  # messages that are relayed one at a time
LIMIT_MS = 0.2


@dataclass(frozen=True, kw_only=True)
class PageRead(Message):
    """As small as most messages."""

    task_id: int
    page: int
    user_id: int = 7


class NoSink:
    """Accepts every message."""

    channels: Collection[str] = frozenset({PageRead.__name__})

    async def deliver_many(self, _messages: Sequence[OutboxMessage]) -> SinkResult:
        """Nothing to do."""
        return SinkResult()


class NoClient:
    """Never called: deliveries are posted by jobs, and none runs here."""

    async def check(self, url: str) -> None:
        """Never called."""
        raise NotImplementedError

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Never called."""
        raise NotImplementedError


async def ignore(_tx: Tx, _message: PageRead) -> None:
    """A handler that does nothing."""


async def fail_once_in_100(_tx: Tx, message: PageRead) -> None:
    """A handler that refuses one message of each batch for good."""
    if message.page % 100 == 50:
        raise Invalid(reason="no such page")


def run() -> list[Finding]:
    """On a durable PostgreSQL and on SQLite."""
    with databases.postgres() as server, databases.folder() as folder:
        asyncio.run(databases.new_database(server, "relay"))
        sqlite = f"sqlite:///{folder / 'relay.db'}"
        asyncio.run(databases.migrated(sqlite))
        return [*asyncio.run(_measure("PostgreSQL", server.url("relay"))), *asyncio.run(_measure("SQLite", sqlite))]


async def _measure(name: str, url: str) -> list[Finding]:
    db = open_db(url)
    fan_out = WebhookFanOut(_notify(db))
    plain = [await _relay(db, MESSAGES, [NoSink()]) for _ in range(ROUNDS)]
    alone = [await _relay(db, ALONE, [NoSink()], limit=1) for _ in range(ROUNDS)]
    bad = [await _relay(db, MESSAGES, [NoSink()], handler=fail_once_in_100) for _ in range(ROUNDS)]
    async with db.tx() as tx:
        await store.insert_webhook(tx, _webhook(tx))
    webhooks = [await _relay(db, MESSAGES, [NoSink(), fan_out]) for _ in range(ROUNDS)]
    await db.close()
    return [
        _finding(f"CPU per relayed message, {name}", plain).noted(
            clock_ms=_median(plain)[1],
            one_at_a_time_ms=_median(alone)[0],
            one_at_a_time_clock_ms=_median(alone)[1],
            one_in_100_fails_ms=_median(bad)[0],
        ),
        _finding(f"CPU per relayed message with a webhook, {name}", webhooks).noted(clock_ms=_median(webhooks)[1]),
    ]


def _finding(what: str, rounds: list[tuple[float, float]]) -> Finding:
    return summary(what, "ms", [(LIMIT_MS, cpu_ms) for cpu_ms, _ in rounds], at_most=1.0)


def _median(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    cpu_ms, clock_ms = zip(*rounds, strict=True)
    return statistics.median(cpu_ms), statistics.median(clock_ms)


async def _relay(
    db: Db, messages: int, sinks: Sequence[Sink], *, handler: MessageHandler = ignore, **limit: int
) -> tuple[float, float]:
    """The CPU and the time by the clock per message, in milliseconds."""
    async with db.tx() as tx:
        await tx.conn.execute(delete(outbox))
        for number in range(messages):
            tx.send(PageRead(task_id=number // 10, page=number))
    relay = Relay(db, {PageRead: [handler]}, sinks=sinks, owner="bench")
    began, cpu = time.perf_counter(), time.process_time()
    delivered = 0
    while found := await relay.deliver(**limit):
        delivered += found
    assert delivered == messages
    per_ms = 1000 / messages
    return (time.process_time() - cpu) * per_ms, (time.perf_counter() - began) * per_ms


def _notify(db: Db) -> Deps:
    channels = frozenset(NoSink.channels)
    return Deps(db=db, queue=JobQueue(), client=NoClient(), channels=channels, max_attempts=3, user_agent="bench")


def _webhook(tx: Tx) -> Webhook:
    return Webhook(
        id="whk_1",
        user_id=7,
        merchant_id=None,
        sees_all=False,
        url="https://example.com",
        channels=["*"],
        secret="-",
        created_at=tx.now,
        created_by="bench",
    )
