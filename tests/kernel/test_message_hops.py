"""Messages count how many messages led to them, so that a loop between handlers ends."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from penstock.kernel.db import Db, Tx
from penstock.kernel.message import Message
from penstock.kernel.outbox import OutboxMessage, list_dead_letters, outbox, resend
from penstock.kernel.relay import MAX_HOPS, Relay, SinkResult


@dataclass(frozen=True, kw_only=True)
class Asked(Message):
    """A message whose handler sends the next one."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Answered(Asked):
    """A message with a handler that sends none."""


class AcceptingSink:
    """Accepts every message."""

    channels: Collection[str] = frozenset({Answered.__name__})

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Nothing to do."""
        return SinkResult()


async def ignore(tx: Tx, message: Message) -> None:
    """A handler that does nothing."""


async def states(db: Db) -> list[str]:
    async with db.read() as tx:
        return list((await tx.conn.scalars(select(outbox.c.state))).all())


async def test_a_loop_of_messages_ends_in_a_dead_letter(db: Db):
    numbers = []

    async def ask_again(tx: Tx, message: Asked) -> None:
        numbers.append(message.number)
        tx.send(Asked(number=message.number + 1))

    relay = Relay(db, {Asked: [ask_again]}, owner="relay")
    async with db.tx() as tx:
        tx.send(Asked(number=0))
    while await relay.deliver():
        pass
    assert numbers == list(range(MAX_HOPS + 1))
    async with db.read() as tx:
        [letter] = await list_dead_letters(tx)
    assert letter.payload["number"] == MAX_HOPS + 1
    assert letter.error.startswith("TooManyHops: The message Asked is 9 hops away")


async def test_every_message_of_a_batch_counts_its_own_hops(db: Db):
    async def answer(tx: Tx, message: Asked) -> None:
        tx.send(Answered(number=message.number))

    relay = Relay(db, {Asked: [answer], Answered: [ignore]}, owner="relay")
    async with db.tx() as tx:
        for number, tx.hops in ((0, 0), (1, 5), (2, MAX_HOPS)):
            tx.send(Asked(number=number))
    assert await relay.deliver() == 3
    async with db.read() as tx:
        found = await tx.conn.execute(
            select(outbox.c.payload, outbox.c.hops).where(outbox.c.channel == "Answered").order_by(outbox.c.id)
        )
        assert [(row.payload["number"], row.hops) for row in found] == [(0, 1), (1, 6), (2, MAX_HOPS + 1)]
    await relay.deliver()
    async with db.read() as tx:
        assert [letter.payload["number"] for letter in await list_dead_letters(tx)] == [2]


async def test_a_message_without_handlers_may_have_any_number_of_hops(db: Db):
    """Nothing can loop through a sink; jobs for ARQ go this way."""
    relay = Relay(db, {Answered: []}, sinks=[AcceptingSink()], owner="relay")
    async with db.tx() as tx:
        tx.hops = MAX_HOPS + 1
        tx.send(Answered(number=0))
    await relay.deliver()
    assert await states(db) == ["sent"]


async def test_a_dead_letter_that_is_resent_starts_at_zero(db: Db):
    relay = Relay(db, {Answered: [ignore]}, owner="relay")
    async with db.tx() as tx:
        tx.hops = MAX_HOPS + 1
        tx.send(Answered(number=0))
    await relay.deliver()
    async with db.tx() as tx:
        [letter] = await list_dead_letters(tx)
        await resend(tx, letter.id)
    await relay.deliver()
    assert await states(db) == ["sent"]
