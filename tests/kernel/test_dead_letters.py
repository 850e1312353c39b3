"""Dead letters as operators handle them: found by filter, and sent again in batches."""

from dataclasses import dataclass
from typing import Any

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from penstock.kernel.message import Message
from penstock.kernel.outbox import DeadLetterFilter, list_dead_letters, resend_dead_letters
from penstock.kernel.relay import Relay


@dataclass(frozen=True, kw_only=True)
class Said(Message):
    number: int
    why: str = "no"


@dataclass(frozen=True, kw_only=True)
class Heard(Said):
    pass


async def refuse(_tx: object, said: Said) -> None:
    raise Invalid(reason=said.why)


async def send(db: Db, relay: Relay, *messages: Message) -> None:
    async with db.tx() as tx:
        for message in messages:
            tx.send(message)
    await relay.deliver()


async def test_dead_letters_are_found_by_filter_and_sent_again_in_batches(db: Db, clock: ManualClock):
    relay = Relay(db, {Said: [refuse], Heard: [refuse]}, owner="relay")
    await send(db, relay, Said(number=1, why="100% odd"), Said(number=2))
    clock.advance(seconds=60)
    await send(db, relay, Heard(number=3))

    async def numbers(**chosen: Any) -> list[int]:
        async with db.read() as tx:
            return [letter.payload["number"] for letter in await list_dead_letters(tx, DeadLetterFilter(**chosen))]

    assert await numbers() == [3, 2, 1]
    assert await numbers(channel="Said") == [2, 1]
    assert (await numbers(error="0% ODD"), await numbers(error="_")) == ([1], [])
    assert (await numbers(since=clock.now()), await numbers(until=clock.now())) == ([3], [2, 1])

    async def resend_some() -> int:
        async with db.tx(actor="operator") as tx:
            return len(await resend_dead_letters(tx, DeadLetterFilter(until=clock.now()), limit=1))

    assert [await resend_some(), await resend_some(), await resend_some()] == [1, 1, 0]
    assert await relay.deliver() == 2
    assert await resend_some() == 0  # they died again, after `until`
    assert await numbers(since=clock.now()) == [3, 2, 1]
