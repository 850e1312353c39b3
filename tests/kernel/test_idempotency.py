"""A request that is repeated with its Idempotency-Key takes effect once."""

import asyncio
from dataclasses import replace

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.idempotency import (
    RETENTION,
    IdempotencyKeyReused,
    IdempotentRequest,
    create_once,
    delete_keys,
    find_outcome,
    fingerprint,
)
from penstock.kernel.json_object import JsonObject

REQUEST = IdempotentRequest(actor="key:1", key="k1", fingerprint=fingerprint("POST", "/things", {"name": "a"}))


class Maker:
    """Creates a thing, and counts how often."""

    def __init__(self) -> None:
        self.made = 0

    async def create(self) -> JsonObject:
        self.made += 1
        return {"id": self.made, "b": 1, "a": 2}


async def send(db: Db, maker: Maker, request: IdempotentRequest | None = REQUEST) -> JsonObject:
    async with db.tx() as tx:
        return await create_once(tx, request, maker.create)


async def test_a_repeated_request_takes_effect_once_and_gets_the_same_answer(db: Db):
    maker = Maker()
    answers = [await send(db, maker) for _ in range(3)]
    assert maker.made == 1
    assert [list(answer.items()) for answer in answers] == [[("id", 1), ("b", 1), ("a", 2)]] * 3


async def test_requests_at_once_wait_for_the_first(db: Db):
    maker = Maker()
    assert await asyncio.gather(*(send(db, maker) for _ in range(5))) == [{"id": 1, "b": 1, "a": 2}] * 5
    assert maker.made == 1


async def test_a_request_that_waited_for_one_that_failed_takes_effect(db: Db):
    maker = Maker()
    claimed = asyncio.Event()

    async def fail() -> JsonObject:
        claimed.set()
        await asyncio.sleep(0)
        raise RuntimeError("no")

    async def first() -> None:
        async with db.tx() as tx:
            await create_once(tx, REQUEST, fail)

    failing = asyncio.create_task(first())
    await claimed.wait()
    assert (await send(db, maker))["id"] == 1
    with pytest.raises(RuntimeError):
        await failing


async def test_a_key_with_another_request_is_refused(db: Db):
    maker = Maker()
    await send(db, maker)
    other = replace(REQUEST, fingerprint=fingerprint("POST", "/things", {"name": "b"}))
    with pytest.raises(IdempotencyKeyReused) as refused:
        await send(db, maker, other)
    assert (refused.value.status, maker.made) == (422, 1)


async def test_keys_belong_to_their_caller(db: Db):
    maker = Maker()
    assert (await send(db, maker), await send(db, maker, replace(REQUEST, actor="key:2"))) == (
        {"id": 1, "b": 1, "a": 2},
        {"id": 2, "b": 1, "a": 2},
    )


async def test_without_a_key_every_request_takes_effect(db: Db):
    maker = Maker()
    await send(db, maker, None)
    await send(db, maker, None)
    assert maker.made == 2


async def test_keys_are_kept_for_a_day(db: Db, clock: ManualClock):
    await send(db, Maker())
    for seconds, kept in ((RETENTION.total_seconds(), True), (1, False)):
        clock.advance(seconds=seconds)
        async with db.tx() as tx:
            await delete_keys(tx, before=tx.now - RETENTION)
            assert (await find_outcome(tx, REQUEST) is not None) == kept


def test_the_order_of_members_does_not_matter():
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
