"""The relay: delivers outbox messages to their handlers and sinks, in batches.

1. Claim: one statement holds up to `BATCH` due messages under one lease token.
2. Sinks: each `Sink` (webhooks, Redis Streams, ARQ, run state) gets its messages of the batch in one call, with no
   transaction open. The lease is renewed meanwhile.
3. Settle: one transaction marks the messages sent, runs their handlers, then what the sinks want to write, and records
   the transitions. Messages whose lease was lost are left out: another relay has them.

If the settling transaction fails, it is repeated for each message alone, so that one bad message neither blocks nor
rolls back the others. A message that fails is retried with backoff, or is a dead letter.

Killed at any point, the relay loses nothing: the lease expires and the messages are claimed again. Database writes of
handlers and sinks are not doubled, since they commit with the mark. A sink gets the same messages, with the same ids,
again, so it must be idempotent. A message that was claimed before may be what killed its relay: it is claimed again
alone, so that no other message loses an attempt with it.

Order: the messages of a batch are delivered in the order of their ids, which is the order in which one process sent
them. A message that is retried comes later than messages that were sent after it, and two relays deliver side by side.
There is one message per channel and dedup key at a time, so nothing overtakes a message with the same key.

Hops: a message that a handler sends has one hop more than the message it handles (`Tx.hops`). A message with handlers
and more than `MAX_HOPS` is a dead letter, so that two modules cannot answer each other for ever.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import Any, Protocol

from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.compiled_statement import LeasedRow
from penstock.kernel.errors import PenstockError, Unavailable, error_text
from penstock.kernel.leases import Leases
from penstock.kernel.message import Message
from penstock.kernel.outbox import LEASE_STATES, OUTBOX, OutboxMessage, OutboxState, outbox
from penstock.kernel.retry import Backoff, poll_forever, wait_before_retry, worth_retrying
from penstock.kernel.shielding import run_shielded
from penstock.kernel.transitions import record

log = logging.getLogger(__name__)

RETRIES = Backoff(first_seconds=1, max_seconds=600)
BATCH = 100  # CPU per message hardly falls beyond; the settling transaction stays short
LEASE_SECONDS = 60
RENEWALS_PER_LEASE = 3  # two renewals may fail
MAX_HOPS = 8
UNKNOWN_AGE = timedelta(hours=1)  # longer than a rolling upgrade takes
OUTAGE_WAIT_SECONDS = 5  # before the next try during an internal outage

MessageHandler = Callable[[Tx, Any], Awaitable[None]]
Routes = Mapping[type[Message], Sequence[MessageHandler]]
SinkWrite = Callable[[Tx, Sequence[OutboxMessage]], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class SinkResult:
    """What a sink did with a batch.

    `write` runs in the transaction that marks messages sent, and gets those messages: the ones that did not fail, all
    at once or in parts.
    """

    failed: Mapping[str, Exception] = field(default_factory=dict)  # by message id; they are retried or dead
    write: SinkWrite | None = None


class Sink(Protocol):
    """Delivers messages of some channels to an external system.

    It may get a message twice, with the same id, so it must be idempotent. It has timeouts of its own.
    """

    channels: Collection[str]

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Deliver messages in order, with no transaction open.

        Failures of single messages belong in the result. After an `Unavailable` the whole batch waits; after any other
        exception the sink is called for each message alone.
        """
        ...


class NoMessageHandler(PenstockError):
    """No handler is routed for the class of a message: it was renamed or removed while messages were waiting."""

    code = "NOBODY_LISTENS"
    message = "No handler is routed for messages of class {channel}."
    message_zh = "没有为 {channel} 类消息配置处理程序。"
    hint = "Add a handler for the class to the spec of a module (module.py), then send the dead letters again."
    hint_zh = "请在某个模块的规格（module.py）中为该类添加处理程序，然后重新发送死信。"


class RelayStopped(PenstockError):
    """The lease of a message expired in every attempt."""

    code = "RELAY_LOST"
    message = "The relay stopped responding in each of {attempts} attempts."
    message_zh = "在全部 {attempts} 次尝试中，转发进程都失去了响应。"
    hint = "Find out what kills the process while it handles this message, then send it again."
    hint_zh = "请找出处理该消息时导致进程终止的原因，然后重新发送。"


class TooManyHops(PenstockError):
    """A message is the last of a long chain in which each message was sent by the handler of the one before."""

    code = "TOO_MANY_HOPS"
    message = "The message {channel} is {hops} hops away from the request that caused it; the limit is {most}."
    message_zh = "消息 {channel} 距离最初的请求已有 {hops} 跳，上限为 {most} 跳。"
    hint = "Two modules probably answer each other in a loop. Fix it, then send the dead letter again."
    hint_zh = "很可能有两个模块在循环应答。请先修复，然后重新发送死信。"


class Relay:
    """Delivers outbox messages to their handlers and sinks."""

    def __init__(
        self,
        db: Db,
        routes: Routes,
        *,
        sinks: Sequence[Sink] = (),
        owner: str,
        max_attempts: int = 10,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.leases = Leases(outbox, LEASE_STATES)
        self._db = db
        self._routes = {cls.__name__: (cls, handlers) for cls, handlers in routes.items()}
        self._sinks = sinks
        self._owner = owner
        self._max_attempts = max_attempts
        self._lease_seconds = lease_seconds

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        listener = self._db.wakeups.listen([self.leases.channel])

        async def wait(delivered: int) -> None:
            if delivered < BATCH:  # that was all; what is sent meanwhile notifies
                await listener.wait(seconds=self.leases.seconds_until_poll(self._db.clock.now()))

        try:
            await poll_forever(self._db.clock, self.deliver, wait, warning="relay: cannot deliver messages")
        finally:
            self._db.wakeups.unlisten(listener)

    async def deliver(self, *, limit: int = BATCH) -> int:
        """Claim up to `limit` due messages and deliver them; returns how many were claimed."""
        claim = self.leases.claim_autocommit(self._db, owner=self._owner, seconds=self._lease_seconds, limit=limit)
        claimed = await run_shielded(claim, undo=self._hand_back)
        held = sorted(claimed, key=attrgetter("id"))
        again = [row for row in held if row.lease_count > 1]
        if not again or len(held) == 1:
            await self._deliver(held)
            return len(held)
        await self._hand_back(again)
        await self._deliver([row for row in held if row.lease_count == 1])
        for row in again:
            await self._deliver(await run_shielded(self._claim_alone(row.id), undo=self._hand_back))
        return len(held)

    async def rescue(self, tx: Tx) -> None:
        """Requeue messages whose lease expired."""
        await self.leases.expire(tx)

    async def _claim_alone(self, message_id: str) -> Sequence[LeasedRow]:
        async with self._db.autocommit(actor=self._owner) as tx:
            return await self.leases.claim_ids(tx, [message_id], owner=self._owner, seconds=self._lease_seconds)

    async def _deliver(self, rows: Sequence[LeasedRow]) -> None:
        """Deliver messages that are held under one token."""
        batch = RelayBatch(rows)
        try:
            for row in rows:
                if error := self._refusal(row):
                    batch.failed[row.id] = error
            await self._call_sinks(batch)
            await self._settle(batch)
            await self._put_off(batch)
        except (asyncio.CancelledError, Unavailable):
            await self._hand_back(list(batch.held.values()))
            raise

    def _refusal(self, row: LeasedRow) -> Exception | None:
        """Why a message cannot be delivered at all."""
        if row.lease_count > self._max_attempts:  # it kills its relays, so no failure was ever recorded
            return RelayStopped(attempts=self._max_attempts)
        _, handlers = self._routes.get(row.channel, (None, None))
        if handlers is None and not any(row.channel in sink.channels for sink in self._sinks):
            return NoMessageHandler(channel=row.channel)
        if handlers and row.hops > MAX_HOPS:
            return TooManyHops(channel=row.channel, hops=row.hops, most=MAX_HOPS)
        return None

    async def _call_sinks(self, batch: "RelayBatch") -> None:
        async with self._renewing(batch):
            for sink in self._sinks:
                if messages := batch.messages_of(sink.channels):
                    await _call_sink(sink, messages, batch)

    async def _settle(self, batch: "RelayBatch") -> None:
        """Mark messages sent in one transaction; if it fails, in one for each."""
        rows = batch.deliverable()
        if not rows:
            return
        try:
            await self._mark_sent(rows, batch)
        except Exception as error:  # noqa: BLE001  (any error of a handler decides what happens to the message)
            if len(rows) == 1:
                batch.failed[rows[0].id] = error
                return
            log.info("relay: settling %d messages one by one after %r", len(rows), error)
            await self._settle_one_by_one(rows, batch)

    async def _settle_one_by_one(self, rows: Sequence[LeasedRow], batch: "RelayBatch") -> None:
        renew_at = self._db.clock.now()
        for row in rows:
            if self._db.clock.now() >= renew_at:
                renew_at = self._db.clock.now() + timedelta(seconds=self._lease_seconds / RENEWALS_PER_LEASE)
                await self._renew(batch)
            try:
                await self._mark_sent([row], batch)
            except Exception as error:  # noqa: BLE001  (any error of a handler decides what happens to the message)
                batch.failed[row.id] = error
                await self._put_off(batch)

    async def _mark_sent(self, rows: Sequence[LeasedRow], batch: "RelayBatch") -> None:
        """Mark first: a lease that was lost is noticed before a handler runs, and none is lost while they run."""
        async with self._db.tx(actor=self._owner) as tx:
            ids = [row.id for row in rows]
            sent = await self.leases.try_settle(
                tx, ids, rows[0].lease_token, state=OutboxState.SENT, finished_at=tx.now
            )
            rows = [row for row in rows if row.id in sent]
            for row in rows:
                await self._handle(tx, row)
            tx.hops = 0
            for write, written in batch.writes:
                if messages := [batch.messages[row.id] for row in rows if row.id in written]:
                    await write(tx, messages)
            await record(tx, OUTBOX.name, [row.id for row in rows], OutboxState.SENDING, OutboxState.SENT, "deliver")
        if lost := len(ids) - len(rows):
            log.warning("relay: the lease on %d messages was lost; another relay delivers them", lost)
        batch.close(ids)

    async def _handle(self, tx: Tx, row: LeasedRow) -> None:
        if row.channel not in self._routes:
            return
        cls, handlers = self._routes[row.channel]
        tx.hops = row.hops + 1
        for handler in handlers:
            await handler(tx, cls(**row.payload))

    @asynccontextmanager
    async def _renewing(self, batch: "RelayBatch") -> AsyncIterator[None]:
        """Renew the leases of a batch while the block runs."""

        async def renew() -> None:
            while True:
                await self._db.clock.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
                await self._renew(batch)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, batch: "RelayBatch") -> None:
        try:
            async with self._db.autocommit(actor=self._owner) as tx:
                await self.leases.renew(tx, list(batch.held), batch.token, seconds=self._lease_seconds)
        except Unavailable as error:  # the settle finds out what was lost
            log.warning("relay: cannot renew the lease on %d messages: %s", len(batch.held), error)

    async def _hand_back(self, rows: Sequence[LeasedRow]) -> None:
        """Return messages that were not tried, without waiting for their lease and without using up an attempt."""
        if not rows:
            return
        try:
            async with self._db.autocommit(actor=self._owner) as tx:
                await self.leases.release(tx, [row.id for row in rows], rows[0].lease_token, uncounted=1)
        except Unavailable as error:
            log.warning("relay: cannot hand back %d messages: %s", len(rows), error)

    async def _put_off(self, batch: "RelayBatch") -> None:
        """Retry the failed messages later, or bury them."""
        failed = [(row, batch.failed[row.id]) for row in batch.held.values() if row.id in batch.failed]
        if not failed:
            return
        async with self._db.tx(actor=self._owner) as tx:
            for row, error in failed:
                await self._put_off_one(tx, row, error)
        batch.close([row.id for row, _ in failed])

    async def _put_off_one(self, tx: Tx, row: LeasedRow, error: Exception) -> None:
        text = f"{type(error).__name__}: {error_text(error)}"
        # A message class that this version does not know waits for a newer version that runs at the same time.
        young = isinstance(error, NoMessageHandler) and tx.now - row.created_at < UNKNOWN_AGE
        outage = young or (isinstance(error, PenstockError) and error.internal_outage)
        if outage or (worth_retrying(error) and row.lease_count < self._max_attempts):
            wait = wait_before_retry(error, attempt=max(1, row.lease_count), backoff=RETRIES)
            due_at = tx.now + timedelta(seconds=OUTAGE_WAIT_SECONDS if outage else wait)
            await self.leases.release(tx, [row.id], row.lease_token, due_at=due_at, uncounted=int(outage), error=text)
            return
        why = {"finished_at": tx.now, "error": text}
        if await self.leases.try_settle(tx, [row.id], row.lease_token, state=OutboxState.DEAD, **why):
            await record(tx, OUTBOX.name, [row.id], OutboxState.SENDING, OutboxState.DEAD, "bury")


class RelayBatch:
    """The messages that a relay holds under one token, in the order of their ids, and what became of them so far."""

    def __init__(self, rows: Sequence[LeasedRow]) -> None:
        self.held = {row.id: row for row in rows}  # neither sent nor put off
        self.token = rows[0].lease_token if rows else ""
        self.messages = {row.id: _outbox_message(row) for row in rows}
        self.failed: dict[str, Exception] = {}
        self.writes: list[tuple[SinkWrite, Collection[str]]] = []  # with the ids of the messages they are for

    def deliverable(self) -> list[LeasedRow]:
        """Those that did not fail."""
        return [row for row in self.held.values() if row.id not in self.failed]

    def messages_of(self, channels: Collection[str]) -> list[OutboxMessage]:
        """Those of some channels that did not fail."""
        return [self.messages[row.id] for row in self.deliverable() if row.channel in channels]

    def add(self, messages: Sequence[OutboxMessage], result: SinkResult) -> None:
        """Note what a sink did."""
        self.failed |= result.failed
        if result.write is not None:
            self.writes.append((result.write, {message.id for message in messages}))

    def close(self, ids: Collection[str]) -> None:
        """Forget messages that are no longer held."""
        for message_id in ids:
            self.held.pop(message_id, None)


async def _call_sink(sink: Sink, messages: Sequence[OutboxMessage], batch: RelayBatch) -> None:
    try:
        batch.add(messages, await sink.deliver_many(messages))
    except Exception as error:  # noqa: BLE001  (any error of a sink decides what happens to its messages)
        if len(messages) == 1 or isinstance(error, Unavailable):
            batch.failed |= dict.fromkeys((message.id for message in messages), error)
            return
        for message in messages:
            await _call_sink(sink, [message], batch)


def _outbox_message(row: LeasedRow) -> OutboxMessage:
    return OutboxMessage(
        id=row.id, channel=row.channel, dedup_key=row.dedup_key, payload=row.payload, created_at=row.created_at
    )
