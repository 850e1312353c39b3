"""Every delivery can be resent, and an attempt in progress then no longer counts."""

import pytest

from penstock.access.audit import list_lines
from penstock.notify import api
from penstock.notify.domain import DeliveryNotFound, DeliveryState, WebhookNotFound, WebhookOff
from penstock.notify.worker import deliver
from tests.fakes.receivers import Receiver, ReceiverThatSays
from tests.notify.conftest import ANNA, BERT, MAX_ATTEMPTS, NotifyHarness, Paid
from tests.notify.test_deliver import LONGEST, fail_for_good, life

MINE = Paid(user_id=5)


async def test_a_failed_delivery_is_resent_with_its_attempts_reset(notify: NotifyHarness):
    async with ReceiverThatSays(*[500] * (2 * MAX_ATTEMPTS - 1), 200) as receiver:
        webhook = await notify.add(ANNA, receiver.url)
        await fail_for_good(notify)
        failed = await notify.delivery(webhook)
        assert failed.state is DeliveryState.FAILED
        again = await api.resend_delivery(webhook.id, failed.id, ANNA, notify.deps)
        assert (again.state, again.attempts, again.finished_at) == (DeliveryState.PENDING, 0, None)
        for _ in range(MAX_ATTEMPTS):
            await notify.wait(LONGEST)
    done = await notify.delivery(webhook)
    assert (done.state, done.attempts) == (DeliveryState.DELIVERED, MAX_ATTEMPTS)
    assert len(receiver.heard) == 2 * MAX_ATTEMPTS
    assert len({posted.headers["Penstock-Id"] for posted in receiver.heard}) == 1


async def test_a_delivered_one_can_be_resent_too(notify: NotifyHarness):
    async with Receiver() as receiver:
        webhook = await notify.add(ANNA, receiver.url)
        await notify.send(MINE)
        await api.resend_delivery(webhook.id, (await notify.delivery(webhook)).id, ANNA, notify.deps)
        await notify.work()
    assert len(receiver.heard) == 2
    assert await life(notify, webhook) == ["deliver", "resend", "deliver"]


async def test_a_pending_one_is_sent_at_once_and_the_older_job_does_nothing(notify: NotifyHarness):
    async with ReceiverThatSays(500) as receiver:
        webhook = await notify.add(ANNA, receiver.url)
        await notify.send(MINE)
        await api.resend_delivery(webhook.id, (await notify.delivery(webhook)).id, ANNA, notify.deps)
        await notify.work()
        assert len(receiver.heard) == 2
        await notify.wait(LONGEST)  # now both the older job and the new one are due
        assert len(receiver.heard) == 3
    assert (await notify.delivery(webhook)).attempts == 2


async def test_an_attempt_in_progress_no_longer_counts(notify: NotifyHarness):
    async with ReceiverThatSays(500, 200) as receiver:
        webhook = await notify.add(ANNA, receiver.url)
        async with notify.db.tx() as tx:
            tx.send(MINE)
        await notify.relay.deliver()
        async with notify.db.tx() as tx:
            [job] = await notify.deps.queue.claim(tx, owner="slow", seconds=60, limit=1, module="notify")
        late = await deliver(notify.deps, job)
        assert late is not None
        await api.resend_delivery(webhook.id, (await notify.delivery(webhook)).id, ANNA, notify.deps)
        async with notify.db.tx() as tx:
            await late(tx)
        assert (await notify.delivery(webhook)).attempts == 0
        await notify.work()
    delivery = await notify.delivery(webhook)
    assert (delivery.state, delivery.attempts, delivery.status_code) == (DeliveryState.DELIVERED, 1, 200)


async def test_a_resend_is_in_the_audit_log(notify: NotifyHarness):
    async with Receiver() as receiver:
        webhook = await notify.add(ANNA, receiver.url)
        await notify.send(MINE)
        delivery = await notify.delivery(webhook)
        await api.resend_delivery(webhook.id, delivery.id, ANNA, notify.deps)
    async with notify.db.read() as tx:
        line = (await list_lines(tx, limit=1))[0]
    assert (line.action, line.target) == ("webhook.resend", f"webhook:{webhook.id}")
    assert line.detail["delivery_id"] == delivery.id


async def test_a_resend_needs_its_own_webhook_and_its_owner(notify: NotifyHarness):
    async with Receiver() as receiver:
        mine, other = await notify.add(ANNA, receiver.url), await notify.add(ANNA, receiver.url, channels=["Shipped"])
        await notify.send(MINE)
        delivery = await notify.delivery(mine)
        with pytest.raises(DeliveryNotFound):
            await api.resend_delivery(other.id, delivery.id, ANNA, notify.deps)
        with pytest.raises(WebhookNotFound):
            await api.resend_delivery(mine.id, delivery.id, BERT, notify.deps)
        await notify.change(ANNA, mine.id, active=False)
        with pytest.raises(WebhookOff):
            await api.resend_delivery(mine.id, delivery.id, ANNA, notify.deps)
        await notify.work()
    assert len(receiver.heard) == 1
