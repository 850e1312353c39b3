"""Batches: one bad message does not stop the others, sinks get each batch once, and a late relay is refused."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy import select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Invalid, Unavailable
from penstock.kernel.message import Message
from penstock.kernel.outbox import OutboxMessage, list_dead_letters, outbox
from penstock.kernel.queue import JobQueue, NewJob, job
from penstock.kernel.relay import BATCH, LEASE_SECONDS, Relay, SinkResult
from penstock.kernel.transitions import list_transitions


@dataclass(frozen=True, kw_only=True)
class Counted(Message):
    """A message with a number."""

    number: int
    key: str | None = None

    def dedup_key(self) -> str | None:
        return self.key


class Killed(BaseException):
    """The process is killed."""


class Writes:
    """A handler that writes a row, and then fails for some numbers."""

    def __init__(self) -> None:
        self.errors: dict[int, BaseException] = {}
        self.calls: list[int] = []

    async def __call__(self, tx: Tx, message: Counted) -> None:
        self.calls.append(message.number)
        await JobQueue().enqueue(tx, NewJob(kind="handled", payload={"number": message.number}))
        if message.number in self.errors:
            raise self.errors[message.number]


class RecordingSink:
    """A sink that notes each call, fails as told, and writes a row per message that is marked sent."""

    channels: Collection[str] = frozenset({Counted.__name__})

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.ids: Counter[str] = Counter()
        self.failed: dict[int, Exception] = {}  # reported in the result
        self.raised: dict[int, BaseException] = {}  # raised
        self.work: Callable[[], Awaitable[None]] | None = None

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Deliver a batch."""
        numbers = [message.payload["number"] for message in messages]
        self.calls.append(numbers)
        self.ids.update(message.id for message in messages)
        for error in (self.raised[number] for number in numbers if number in self.raised):
            raise error
        if self.work is not None:
            await self.work()
        by_id = {message.id: message.payload["number"] for message in messages}
        failed = {message_id: self.failed[number] for message_id, number in by_id.items() if number in self.failed}
        return SinkResult(failed=failed, write=self._write)

    async def _write(self, tx: Tx, messages: Sequence[OutboxMessage]) -> None:
        new = [NewJob(kind="written", payload={"number": message.payload["number"]}) for message in messages]
        await JobQueue().enqueue(tx, *new)


@pytest.fixture
def handler() -> Writes:
    return Writes()


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def relay(db: Db, handler: Writes, sink: RecordingSink) -> Relay:
    return Relay(db, {Counted: [handler]}, sinks=[sink], owner="relay", max_attempts=3)


async def send(db: Db, count: int, *, start: int = 0) -> None:
    async with db.tx() as tx:
        for number in range(start, start + count):
            tx.send(Counted(number=number))


async def rows(db: Db, kind: str) -> list[int]:
    """The numbers that handlers ("handled") or sinks ("written") wrote, in order."""
    async with db.read() as tx:
        found = await tx.conn.execute(select(job.c.payload).where(job.c.kind == kind).order_by(job.c.id))
        return [row.payload["number"] for row in found]


async def states(db: Db) -> dict[int, str]:
    async with db.read() as tx:
        found = await tx.conn.execute(select(outbox.c.payload, outbox.c.state).order_by(outbox.c.id))
        return {row.payload["number"]: row.state for row in found}


async def expire(db: Db, relay: Relay) -> None:
    async with db.tx() as tx:
        await relay.rescue(tx)


class TestOneBatch:
    async def test_each_sink_is_called_once_and_everything_is_settled_together(
        self, db: Db, relay: Relay, sink: RecordingSink
    ):
        await send(db, 20)
        assert await relay.deliver() == 20
        assert sink.calls == [list(range(20))]
        assert await rows(db, "handled") == await rows(db, "written") == list(range(20))
        async with db.read() as tx:
            ids = (await tx.conn.scalars(select(outbox.c.id))).all()
            finished = set((await tx.conn.scalars(select(outbox.c.finished_at))).all())
            lives = [await list_transitions(tx, "outbox message", message_id) for message_id in ids]
        assert len(finished) == 1
        assert [[(step.from_state, step.to_state, step.trigger) for step in life] for life in lives] == [
            [("sending", "sent", "deliver")]
        ] * 20

    async def test_a_batch_is_bounded(self, db: Db, relay: Relay):
        await send(db, BATCH + 1)
        assert [await relay.deliver() for _ in range(3)] == [BATCH, 1, 0]

    async def test_messages_are_delivered_in_the_order_they_were_sent(
        self, db: Db, relay: Relay, handler: Writes, sink: RecordingSink, clock: ManualClock
    ):
        for number in range(30):
            await send(db, 1, start=number)
            clock.advance(seconds=0.001)
        while await relay.deliver(limit=7):
            pass
        assert handler.calls == list(range(30))
        assert [number for call in sink.calls for number in call] == list(range(30))

    async def test_no_message_overtakes_another_with_its_dedup_key(
        self, db: Db, relay: Relay, handler: Writes, clock: ManualClock
    ):
        """While one waits for its retry, or is a dead letter, there is no second one."""
        handler.errors[0] = RuntimeError("not yet")
        for number in range(3):
            async with db.tx() as tx:
                tx.send(Counted(number=number, key="invoice 7"))
            await relay.deliver()
        assert handler.calls == [0]
        handler.errors.clear()
        clock.advance(seconds=10)
        await relay.deliver()
        assert (handler.calls, await states(db)) == ([0, 0], {0: "sent"})


class TestOneBadMessage:
    @pytest.mark.parametrize("bad", [0, 3, 9])
    async def test_the_others_are_delivered_and_the_bad_one_is_retried(
        self, db: Db, relay: Relay, handler: Writes, sink: RecordingSink, bad: int, clock: ManualClock
    ):
        handler.errors[bad] = RuntimeError("boom")
        await send(db, 10)
        assert await relay.deliver() == 10
        others = [number for number in range(10) if number != bad]
        assert await rows(db, "handled") == await rows(db, "written") == others
        assert [number for number, state in (await states(db)).items() if state == "waiting"] == [bad]
        assert sink.calls == [list(range(10))]  # the sinks are not called again
        handler.errors.clear()
        clock.advance(seconds=2)
        assert await relay.deliver() == 1
        assert set((await states(db)).values()) == {"sent"}

    async def test_each_of_several_bad_messages_gets_what_its_error_says(self, db: Db, relay: Relay, handler: Writes):
        handler.errors |= {1: Invalid(reason="no such page"), 2: RuntimeError("boom"), 4: Unavailable(reason="away")}
        await send(db, 6)
        await relay.deliver()
        assert await states(db) == {0: "sent", 1: "dead", 2: "waiting", 3: "sent", 4: "waiting", 5: "sent"}
        assert await rows(db, "handled") == [0, 3, 5]

    async def test_a_message_of_a_killed_relay_is_delivered_after_the_lease_that_was_set(
        self, db: Db, handler: Writes, clock: ManualClock
    ):
        relay = Relay(db, {Counted: [handler]}, owner="relay", lease_seconds=2)
        handler.errors[0] = Killed()
        await send(db, 1)
        with pytest.raises(Killed):
            await relay.deliver()
        del handler.errors[0]
        clock.advance(seconds=2)
        await expire(db, relay)
        assert await relay.deliver() == 1

    async def test_a_message_that_kills_its_relay_takes_no_other_with_it(
        self, db: Db, relay: Relay, handler: Writes, clock: ManualClock
    ):
        handler.errors[2] = Killed()
        await send(db, 5)
        for _ in range(5):
            try:
                while await relay.deliver():
                    pass
            except Killed:
                clock.advance(seconds=LEASE_SECONDS)
                await expire(db, relay)
        assert await states(db) == {0: "sent", 1: "sent", 2: "dead", 3: "sent", 4: "sent"}
        async with db.read() as tx:
            [letter] = await list_dead_letters(tx)
        assert letter.error.startswith("RelayStopped: The relay stopped responding in each of 3 attempts")


class TestSinks:
    async def test_a_sink_reports_failures_of_single_messages(
        self, db: Db, relay: Relay, sink: RecordingSink, handler: Writes
    ):
        sink.failed = {1: Invalid(reason="too large"), 3: RuntimeError("slow down")}
        await send(db, 5)
        assert await relay.deliver() == 5
        assert await states(db) == {0: "sent", 1: "dead", 2: "sent", 3: "waiting", 4: "sent"}
        assert await rows(db, "written") == [0, 2, 4]
        assert handler.calls == [0, 2, 4]
        assert sink.calls == [[0, 1, 2, 3, 4]]

    async def test_after_an_unknown_error_a_sink_gets_each_message_alone(
        self, db: Db, relay: Relay, sink: RecordingSink
    ):
        sink.raised[1] = KeyError("page")
        await send(db, 3)
        await relay.deliver()
        assert sink.calls == [[0, 1, 2], [0], [1], [2]]
        assert await states(db) == {0: "sent", 1: "waiting", 2: "sent"}
        assert await rows(db, "written") == [0, 2]

    async def test_while_a_sink_is_unavailable_it_is_called_once_per_batch(
        self, db: Db, relay: Relay, sink: RecordingSink, handler: Writes
    ):
        sink.raised[1] = Unavailable(reason="away")
        await send(db, 3)
        await relay.deliver()
        assert sink.calls == [[0, 1, 2]]
        assert await states(db) == {0: "waiting", 1: "waiting", 2: "waiting"}
        assert handler.calls == []

    async def test_a_message_that_one_sink_refused_is_not_written_by_another(self, db: Db):
        first, second = RecordingSink(), RecordingSink()
        second.failed[0] = RuntimeError("full")
        relay = Relay(db, {}, sinks=[first, second], owner="relay")
        await send(db, 2)
        await relay.deliver()
        assert await rows(db, "written") == [1, 1]

    async def test_a_killed_relay_delivers_the_same_ids_again_and_writes_once(
        self, db: Db, relay: Relay, sink: RecordingSink, handler: Writes, clock: ManualClock
    ):
        handler.errors[0] = Killed()
        await send(db, 4)
        with pytest.raises(Killed):
            await relay.deliver()
        handler.errors.clear()
        clock.advance(seconds=LEASE_SECONDS)
        await expire(db, relay)
        while await relay.deliver():
            pass
        assert set(sink.ids.values()) == {2}
        assert len(sink.ids) == 4
        assert await rows(db, "handled") == await rows(db, "written") == [0, 1, 2, 3]


class TestLeases:
    async def test_the_lease_is_renewed_while_a_sink_works(
        self, db: Db, relay: Relay, sink: RecordingSink, clock: ManualClock
    ):
        async def slow() -> None:
            for _ in range(10):
                clock.advance(seconds=LEASE_SECONDS / 2)
                async with asyncio.timeout(10):
                    while await self._leased_until(db) <= clock.now():  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                await expire(db, relay)

        sink.work = slow
        await send(db, 3)
        assert await relay.deliver() == 3
        assert await rows(db, "written") == [0, 1, 2]
        assert set((await states(db)).values()) == {"sent"}

    async def test_a_late_relay_is_refused(
        self, db: Db, relay: Relay, sink: RecordingSink, handler: Writes, clock: ManualClock
    ):
        """Its lease expired while its sink worked, and another relay has delivered the messages."""
        other_handler = Writes()
        other = Relay(db, {Counted: [other_handler]}, owner="other")

        async def overtaken() -> None:
            async with db.tx() as tx:
                await tx.conn.execute(outbox.update().values(leased_until=clock.now() - timedelta(seconds=1)))
            await expire(db, other)
            while await other.deliver():
                pass

        sink.work = overtaken
        await send(db, 3)
        assert await relay.deliver() == 3
        assert (handler.calls, other_handler.calls) == ([], [0, 1, 2])
        assert await rows(db, "handled") == [0, 1, 2]
        assert await rows(db, "written") == []
        assert set((await states(db)).values()) == {"sent"}

    async def test_a_relay_that_lost_a_part_of_its_batch_settles_the_rest(
        self, db: Db, relay: Relay, sink: RecordingSink, handler: Writes, clock: ManualClock
    ):
        async def lose_one() -> None:
            async with db.tx() as tx:
                first = select(outbox.c.id).order_by(outbox.c.id).limit(1).scalar_subquery()
                past = clock.now() - timedelta(seconds=1)
                await tx.conn.execute(outbox.update().where(outbox.c.id == first).values(leased_until=past))
            await expire(db, relay)

        sink.work = lose_one
        await send(db, 3)
        await relay.deliver()
        assert await states(db) == {0: "waiting", 1: "sent", 2: "sent"}
        assert await rows(db, "handled") == await rows(db, "written") == [1, 2]

    async def test_a_relay_that_is_cancelled_hands_its_batch_back(
        self, db: Db, relay: Relay, sink: RecordingSink, handler: Writes
    ):
        started = asyncio.Event()

        async def hang() -> None:
            started.set()
            await asyncio.Event().wait()

        sink.work = hang
        await send(db, 3)
        delivering = asyncio.create_task(relay.deliver())
        await started.wait()
        delivering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivering
        assert set((await states(db)).values()) == {"waiting"}
        sink.work = None
        assert await relay.deliver() == 3
        assert sink.calls[1] == [0, 1, 2]  # in one batch: no attempt was counted

    async def _leased_until(self, db: Db):
        async with db.read() as tx:
            return (await tx.conn.scalars(select(outbox.c.leased_until).limit(1))).one()
