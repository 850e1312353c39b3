"""What is said in a transaction is delivered once, or listed as dead: never lost, never half."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Invalid
from penstock.kernel.message import Message
from penstock.kernel.outbox import DeadLetter, NoSuchMessage, delete_sent, list_dead_letters, outbox, resend
from penstock.kernel.queue import JobQueue, NewJob, job
from penstock.kernel.relay import Relay
from penstock.kernel.transitions import list_transitions

LEASE_SECONDS = 60
LONG = 3600  # longer than a lease and than any backoff


@dataclass(frozen=True, kw_only=True)
class Said(Message):
    number: int
    key: str | None = None

    def dedup_key(self) -> str | None:
        return self.key


@dataclass(frozen=True, kw_only=True)
class Heard(Said):
    pass


class Crash(BaseException):
    """The process is gone in the middle of something."""


class Listener:
    """Handlers whose effect is a row in the database; `moods` says which messages fail, after the row was written."""

    def __init__(self) -> None:
        self.moods: dict[int, BaseException] = {}
        self.order: list[int] = []

    async def __call__(self, tx: Tx, message: Said) -> None:
        self.order.append(message.number)
        await JobQueue().enqueue(tx, NewJob(kind=type(message).__name__, payload={"number": message.number}))
        if message.number in self.moods:
            raise self.moods[message.number]


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def relay(db: Db, listener: Listener) -> Relay:
    return Relay(db, {Said: [listener], Heard: [listener]}, owner="relay", max_attempts=3)


async def send(db: Db, *messages: Message) -> None:
    async with db.tx() as tx:
        for message in messages:
            tx.send(message)


async def effects(db: Db) -> list[tuple[str, int]]:
    """What the handlers did, as far as it was kept."""
    async with db.read() as tx:
        rows = await tx.conn.execute(select(job.c.kind, job.c.payload).order_by(job.c.id))
        return [(row.kind, row.payload["number"]) for row in rows]


async def states(db: Db) -> Counter[str]:
    async with db.read() as tx:
        return Counter((await tx.conn.scalars(select(outbox.c.state))).all())


async def dead(db: Db, **page: Any) -> Sequence[DeadLetter]:
    async with db.read() as tx:
        return await list_dead_letters(tx, **page)


async def expire(db: Db, relay: Relay) -> None:
    async with db.tx() as tx:
        await relay.leases.expire(tx)


async def test_a_message_reaches_its_handler_once(db: Db, relay: Relay):
    await send(db, Said(number=1))
    assert await relay.deliver() == 1
    assert await relay.deliver() == 0
    assert await effects(db) == [("Said", 1)]
    assert await states(db) == {"sent": 1}


async def test_messages_arrive_in_the_order_they_were_sent(
    db: Db, relay: Relay, listener: Listener, clock: ManualClock
):
    await send(db, *(Said(number=number) for number in range(5)))
    clock.advance(seconds=1)
    await send(db, *(Heard(number=number) for number in range(5, 10)))
    while await relay.deliver(limit=3):
        pass
    assert listener.order == list(range(10))


async def test_the_effect_of_a_handler_and_the_mark_sent_are_kept_together(
    db: Db, relay: Relay, listener: Listener, clock: ManualClock
):
    await send(db, Said(number=1))
    listener.moods[1] = RuntimeError("after the row was written")
    assert await relay.deliver() == 1
    assert (await effects(db), await states(db)) == ([], {"waiting": 1})
    assert await relay.deliver() == 0  # not before its wait is over
    listener.moods.clear()
    clock.advance(seconds=2)
    assert await relay.deliver() == 1
    assert (await effects(db), await states(db)) == ([("Said", 1)], {"sent": 1})


async def test_of_several_handlers_all_take_a_message_or_none_does(db: Db, clock: ManualClock):
    first, second = Listener(), Listener()
    second.moods[1] = RuntimeError("no")
    relay = Relay(db, {Said: [first, second]}, owner="relay")
    await send(db, Said(number=1))
    await relay.deliver()
    assert await effects(db) == []
    second.moods.clear()
    clock.advance(seconds=2)
    await relay.deliver()
    assert await effects(db) == [("Said", 1), ("Said", 1)]


async def test_a_relay_that_is_killed_loses_nothing_and_doubles_nothing(
    db: Db, relay: Relay, listener: Listener, clock: ManualClock
):
    await send(db, *(Said(number=number) for number in range(3)))
    listener.moods[1] = Crash()
    with pytest.raises(Crash):
        await relay.deliver()
    assert await states(db) == {"sending": 3}
    assert await effects(db) == []
    listener.moods.clear()
    clock.advance(seconds=LEASE_SECONDS)
    await expire(db, relay)
    assert await relay.deliver() == 3
    assert sorted(await effects(db)) == [("Said", 0), ("Said", 1), ("Said", 2)]


async def test_a_message_that_kills_every_relay_ends_as_a_dead_letter(
    db: Db, relay: Relay, listener: Listener, clock: ManualClock
):
    await send(db, Said(number=1))
    listener.moods[1] = Crash()
    for _ in range(3):
        with pytest.raises(Crash):
            await relay.deliver()
        clock.advance(seconds=LEASE_SECONDS)
        await expire(db, relay)
    await relay.deliver()
    [letter] = await dead(db)
    assert "stopped responding" in letter.error
    assert listener.order == [1, 1, 1]


async def test_what_a_handler_says_is_delivered_too(db: Db, listener: Listener):
    async def answer(tx: Tx, message: Said) -> None:
        tx.send(Heard(number=message.number + 1))

    relay = Relay(db, {Said: [answer], Heard: [listener]}, owner="relay")
    await send(db, Said(number=1))
    while await relay.deliver():
        pass
    assert await effects(db) == [("Heard", 2)]


async def test_two_messages_with_one_key_are_one_on_each_channel(db: Db, relay: Relay):
    await send(db, Said(number=1, key="a"), Said(number=2, key="a"), Heard(number=3, key="a"), Said(number=4, key="b"))
    await relay.deliver()
    await send(db, Said(number=5, key="a"), Heard(number=6))
    await relay.deliver()
    assert sorted(number for _, number in await effects(db)) == [1, 3, 4, 6]


async def test_a_message_that_fails_too_often_is_dead(db: Db, relay: Relay, listener: Listener, clock: ManualClock):
    await send(db, Said(number=1))
    listener.moods[1] = RuntimeError("boom")
    for _ in range(3):
        assert await relay.deliver() == 1
        clock.advance(seconds=LONG)
    assert await relay.deliver() == 0
    [letter] = await dead(db)
    assert (letter.channel, letter.payload["number"], letter.attempts) == ("Said", 1, 3)
    assert letter.error == "RuntimeError: boom"
    assert letter.died_at == clock.now() - timedelta(seconds=LONG)


async def test_a_failure_that_cannot_pass_is_dead_at_once(db: Db, relay: Relay, listener: Listener):
    await send(db, Said(number=1), Said(number=2))
    listener.moods[1] = Invalid(reason="there is no such page")
    assert await relay.deliver() == 2
    [letter] = await dead(db)
    assert (letter.attempts, letter.error) == (1, "Invalid: there is no such page")
    assert await effects(db) == [("Said", 2)]


async def test_a_message_that_nobody_knows_here_waits_an_hour_for_a_version_that_does(
    db: Db, listener: Listener, clock: ManualClock
):
    await send(db, Heard(number=1))
    relay = Relay(db, {Said: [listener]}, owner="relay", max_attempts=1)
    for _ in range(2):
        assert await relay.deliver() == 1
        clock.advance(seconds=5)
    assert await dead(db) == []
    clock.advance(seconds=3600)
    await relay.deliver()
    [letter] = await dead(db)
    assert letter.error.startswith("NoMessageHandler: No handler is routed for messages of class Heard")


async def test_dead_letters_are_listed_in_pages_and_sent_again(
    db: Db, relay: Relay, listener: Listener, clock: ManualClock
):
    listener.moods = {number: Invalid(reason="no") for number in range(7)}
    await send(db, *(Said(number=number) for number in range(8)))
    await relay.deliver()
    pages = [await dead(db, limit=3)]
    while pages[-1]:
        pages.append(await dead(db, limit=3, before=pages[-1][-1].id))
    assert [[letter.payload["number"] for letter in page] for page in pages] == [[6, 5, 4], [3, 2, 1], [0], []]
    listener.moods.clear()
    letters = list(itertools.chain(*pages))
    async with db.tx(actor="operator") as tx:
        for letter in letters:
            await resend(tx, letter.id)
    assert await relay.deliver() == 7
    assert sorted(number for _, number in await effects(db)) == list(range(8))
    assert await dead(db) == []
    async with db.read() as tx:
        life = await list_transitions(tx, "outbox message", letters[0].id)
    assert [(step.trigger, step.actor) for step in life] == [
        ("bury", "relay"),
        ("resend", "operator"),
        ("deliver", "relay"),
    ]


@pytest.mark.parametrize("message_id", ["nobody", "the one that was sent"])
async def test_only_a_dead_letter_can_be_sent_again(db: Db, relay: Relay, message_id: str):
    await send(db, Said(number=1))
    await relay.deliver()
    async with db.read() as tx:
        sent_id = (await tx.conn.scalars(select(outbox.c.id))).one()
    with pytest.raises(NoSuchMessage):
        async with db.tx() as tx:
            await resend(tx, sent_id if "sent" in message_id else message_id)
    assert await states(db) == {"sent": 1}


async def test_messages_are_deleted_after_their_retention_but_dead_letters_stay(
    db: Db, relay: Relay, listener: Listener, clock: ManualClock
):
    listener.moods[0] = Invalid(reason="no")
    await send(db, *(Said(number=number) for number in range(3)))
    await relay.deliver()
    clock.advance(seconds=1)
    await send(db, Said(number=3))
    await relay.deliver()
    async with db.tx() as tx:
        assert await delete_sent(tx, before=tx.now) == 2
    assert await states(db) == {"dead": 1, "sent": 1}


# Random lives. In the end everything is healed, and everything must have arrived once.

FATES = {"fail": RuntimeError("later"), "refuse": Invalid(reason="never"), "crash": Crash()}
keys = st.one_of(st.none(), st.sampled_from("ab"))
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([Said, Heard]), keys, st.booleans()),
    st.tuples(st.just("deliver"), st.integers(1, 4), st.sampled_from([None, *FATES])),
    st.tuples(st.just("claim and die"), st.integers(1, 3)),
    st.tuples(st.just("expire")),
    st.tuples(st.just("wait"), st.sampled_from([1, 10, LEASE_SECONDS])),
    st.tuples(st.just("resend")),
)
walks = st.lists(steps, max_size=25)
few, many = (
    settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    for count in (15, 60)
)


class World:
    """A database, relays that come and go, and what must have arrived when all is well again."""

    def __init__(self, db: Db, clock: ManualClock) -> None:
        self.db, self.clock, self.listener = db, clock, Listener()
        self.numbers = itertools.count()
        self.expected: list[tuple[str, int]] = []
        self._keys: set[tuple[str, str]] = set()
        self._new_relay()

    def _new_relay(self) -> None:
        self.relay = Relay(self.db, {Said: [self.listener], Heard: [self.listener]}, owner="relay", max_attempts=3)

    async def send(self, kind: type[Said], key: str | None, commit: bool) -> None:
        message = kind(number=next(self.numbers), key=key)
        try:
            await self._send(message, commit)
        except Invalid:
            return
        if key is None or (kind.__name__, key) not in self._keys:
            self.expected.append((kind.__name__, message.number))
        if key is not None:
            self._keys.add((kind.__name__, key))

    async def _send(self, message: Said, commit: bool) -> None:
        async with self.db.tx() as tx:
            tx.send(message)
            if not commit:
                raise Invalid(reason="changed my mind")

    async def deliver(self, limit: int, fate: str | None) -> None:
        self.listener.moods = dict.fromkeys(range(1000), FATES[fate]) if fate else {}
        try:
            await self.relay.deliver(limit=limit)
        except Crash:
            self._new_relay()

    async def claim_and_die(self, limit: int) -> None:
        async with self.db.tx() as tx:
            await self.relay.leases.claim(tx, owner="relay", seconds=LEASE_SECONDS, limit=limit)
        self._new_relay()

    async def expire(self) -> None:
        await expire(self.db, self.relay)

    async def wait(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    async def resend(self) -> None:
        async with self.db.tx() as tx:
            for letter in await list_dead_letters(tx):
                await resend(tx, letter.id)

    async def heal(self) -> None:
        while set(await states(self.db)) - {"sent"}:
            self.clock.advance(seconds=LONG)
            await self.expire()
            await self.resend()
            await self.deliver(100, None)


async def walk(db: Db, clock: ManualClock, life: Sequence[tuple[Any, ...]]) -> None:
    async with db.tx() as tx:
        await tx.conn.execute(delete(outbox))
        await tx.conn.execute(delete(job))
    world = World(db, clock)
    for word, *more in life:
        await getattr(world, word.replace(" ", "_"))(*more)
        done = await effects(db)
        assert len(done) == (await states(db))["sent"]
        assert set(done) <= set(world.expected)
    await world.heal()
    assert sorted(await effects(db)) == sorted(world.expected)


@pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
@many
@given(life=walks)
async def test_whatever_happens_every_committed_message_takes_effect_once(db: Db, clock: ManualClock, life):
    await walk(db, clock, life)


@pytest.mark.parametrize("db_url", ["postgres"], indirect=True)
@few
@given(life=walks)
async def test_the_same_holds_on_postgresql(db: Db, clock: ManualClock, life):
    await walk(db, clock, life)
