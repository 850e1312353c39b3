"""Anything that was sent can be sent again, and what was still under way then has no say any more."""

import pytest

from penstock.access.audit import list_lines
from penstock.notify import webhooks
from penstock.notify.deliver import deliver, resend
from penstock.notify.domain import DeliveryNotFound, DeliveryState, WebhookNotFound, WebhookOff
from tests.fakes.receivers import Receiver, ReceiverThatSays
from tests.notify.conftest import ANNA, BERT, MOST_ATTEMPTS, Paid, Room
from tests.notify.test_deliver import LONGEST, fail_for_good, life

MINE = Paid(user_id=5)


async def test_what_failed_is_sent_again_with_its_tries_counted_from_nothing(room: Room):
    async with ReceiverThatSays(*[500] * (2 * MOST_ATTEMPTS - 1), 200) as receiver:
        webhook = await room.add(ANNA, receiver.url)
        await fail_for_good(room)
        failed = await room.delivery(webhook)
        assert failed.state is DeliveryState.FAILED
        again = await resend(room.deps, ANNA, webhook.id, failed.id)
        assert (again.state, again.attempts, again.finished_at) == (DeliveryState.PENDING, 0, None)
        for _ in range(MOST_ATTEMPTS):
            await room.wait(LONGEST)
    done = await room.delivery(webhook)
    assert (done.state, done.attempts) == (DeliveryState.DELIVERED, MOST_ATTEMPTS)
    assert len(receiver.heard) == 2 * MOST_ATTEMPTS
    assert len({posted.headers["Penstock-Id"] for posted in receiver.heard}) == 1


async def test_what_arrived_can_be_sent_again_too(room: Room):
    async with Receiver() as receiver:
        webhook = await room.add(ANNA, receiver.url)
        await room.send(MINE)
        await resend(room.deps, ANNA, webhook.id, (await room.delivery(webhook)).id)
        await room.work()
    assert len(receiver.heard) == 2
    assert await life(room, webhook) == ["deliver", "resend", "deliver"]


async def test_what_waits_for_its_next_try_goes_at_once_and_the_older_job_does_nothing(room: Room):
    async with ReceiverThatSays(500) as receiver:
        webhook = await room.add(ANNA, receiver.url)
        await room.send(MINE)
        await resend(room.deps, ANNA, webhook.id, (await room.delivery(webhook)).id)
        await room.work()
        assert len(receiver.heard) == 2
        await room.wait(LONGEST)  # now both the older job and the new one are due
        assert len(receiver.heard) == 3
    assert (await room.delivery(webhook)).attempts == 2


async def test_a_try_that_was_under_way_has_no_say_any_more(room: Room):
    async with ReceiverThatSays(500, 200) as receiver:
        webhook = await room.add(ANNA, receiver.url)
        async with room.db.tx() as tx:
            tx.send(MINE)
        await room.relay.deliver()
        async with room.db.tx() as tx:
            [job] = await room.deps.queue.claim(tx, owner="slow", seconds=60, limit=1, module="notify")
        late = await deliver(room.deps, job)
        assert late is not None
        await resend(room.deps, ANNA, webhook.id, (await room.delivery(webhook)).id)
        async with room.db.tx() as tx:
            await late(tx)
        assert (await room.delivery(webhook)).attempts == 0
        await room.work()
    delivery = await room.delivery(webhook)
    assert (delivery.state, delivery.attempts, delivery.status_code) == (DeliveryState.DELIVERED, 1, 200)


async def test_it_is_written_down_who_sent_it_again(room: Room):
    async with Receiver() as receiver:
        webhook = await room.add(ANNA, receiver.url)
        await room.send(MINE)
        delivery = await room.delivery(webhook)
        await resend(room.deps, ANNA, webhook.id, delivery.id)
    async with room.db.read() as tx:
        line = (await list_lines(tx, limit=1))[0]
    assert (line.action, line.target) == ("webhook.resend", f"webhook:{webhook.id}")
    assert line.detail["delivery_id"] == delivery.id


async def test_only_through_its_own_webhook_and_only_by_its_owner(room: Room):
    async with Receiver() as receiver:
        mine, other = await room.add(ANNA, receiver.url), await room.add(ANNA, receiver.url, channels=["Shipped"])
        await room.send(MINE)
        delivery = await room.delivery(mine)
        with pytest.raises(DeliveryNotFound):
            await resend(room.deps, ANNA, other.id, delivery.id)
        with pytest.raises(WebhookNotFound):
            await resend(room.deps, BERT, mine.id, delivery.id)
        await webhooks.change(room.deps, ANNA, mine.id, active=False)
        with pytest.raises(WebhookOff):
            await resend(room.deps, ANNA, mine.id, delivery.id)
        await room.work()
    assert len(receiver.heard) == 1
