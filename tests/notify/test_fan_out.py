"""A message becomes one delivery per webhook that may receive it and subscribed to it."""

import json

import pytest

from penstock.access.domain import Caller
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.queue import JobState, get_job
from penstock.messages import WebhookPing
from penstock.notify import api, store
from penstock.notify.domain import DeliveryState
from penstock.notify.worker import WebhookFanOut
from tests.fakes.receivers import Receiver
from tests.notify.conftest import ADMIN, ANNA, BERT, CARLA, DORA, Internal, NotifyHarness, Paid, Shipped

CALLERS = {"admin": ADMIN, "anna": ANNA, "bert": BERT, "carla": CARLA, "dora": DORA}


class TestSubscribers:
    @pytest.mark.parametrize(
        ("message", "hear"),
        [
            (Paid(), {"admin"}),
            (Paid(user_id=5), {"admin", "anna"}),
            (Paid(user_id=6), {"admin", "bert"}),
            (Paid(merchant_id=9), {"admin", "bert", "carla"}),
            (Paid(user_id=5, merchant_id=10), {"admin", "anna", "dora"}),
            (Paid(user_id=99, merchant_id=99), {"admin"}),
            (Internal(user_id=5), set()),
        ],
    )
    async def test_owners_receive_their_messages_and_admins_receive_all(
        self, notify: NotifyHarness, message: Paid, hear: set[str]
    ):
        async with Receiver() as receiver:
            for name, caller in CALLERS.items():
                await notify.add(caller, f"{receiver.url}?{name}")
            await notify.send(message)
        assert {posted.path.partition("?")[2] for posted in receiver.heard} == hear

    async def test_a_webhook_receives_the_channels_it_subscribed_to(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            await notify.add(ANNA, receiver.url, channels=["Shipped"])
            await notify.send(Paid(user_id=5), Shipped(user_id=5))
        assert [json.loads(posted.body)["channel"] for posted in receiver.heard] == ["Shipped"]

    async def test_a_disabled_webhook_receives_nothing(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.change(ANNA, webhook.id, active=False)
            await notify.send(Paid(user_id=5))
            assert await notify.deliveries(webhook) == []
            await notify.change(ANNA, webhook.id, active=True)
            await notify.send(Paid(user_id=5))
        assert len(receiver.heard) == 1

    async def test_a_ping_goes_only_to_its_webhook_whatever_its_channels(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, f"{receiver.url}?one", channels=["Paid"])
            await notify.add(ANNA, f"{receiver.url}?two")
            await notify.add(ADMIN, f"{receiver.url}?three")
            await api.ping_webhook(webhook.id, ANNA, notify.deps)
            await notify.work()
        [posted] = receiver.heard
        assert posted.path.endswith("?one")
        assert json.loads(posted.body)["payload"] == {"webhook_id": webhook.id}

    async def test_a_ping_for_a_disabled_webhook_is_not_delivered(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await api.ping_webhook(webhook.id, ANNA, notify.deps)
            await notify.change(ANNA, webhook.id, active=False)
            await notify.work()
        assert await notify.deliveries(webhook) == []

    async def test_a_ping_for_a_removed_webhook_is_dropped(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await api.ping_webhook(webhook.id, ANNA, notify.deps)
            await api.remove_webhook(webhook.id, ANNA, notify.deps)
            await notify.work()
        assert receiver.heard == []


class TestDeliveries:
    async def test_a_delivery_is_written_with_its_job(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            async with notify.db.tx() as tx:
                tx.send(Paid(user_id=5))
            await notify.relay.deliver()
        delivery = await notify.delivery(webhook)
        assert (delivery.state, delivery.attempts, delivery.next_try_at) == (
            DeliveryState.PENDING,
            0,
            notify.clock.now(),
        )
        async with notify.db.read() as tx:
            job = await get_job(tx, f"notify:{delivery.id}:1")
        assert (job.kind, job.module, job.state) == ("notify.deliver", "notify", JobState.WAITING)

    async def test_a_message_that_is_handled_twice_is_delivered_once(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            message = OutboxMessage(
                id="msg_1", channel="Paid", dedup_key="", payload={"user_id": 5}, created_at=notify.clock.now()
            )
            for _ in range(2):
                result = await WebhookFanOut(notify.deps).deliver_many([message])
                assert result.write is not None
                async with notify.db.tx() as tx:
                    await result.write(tx, [message])
            await notify.work()
            assert len(await notify.deliveries(webhook)) == 1
        assert [posted.headers["Penstock-Id"] for posted in receiver.heard] == ["msg_1"]

    async def test_a_delivery_of_a_webhook_removed_meanwhile_is_deleted(self, notify: NotifyHarness):
        """On PostgreSQL a removal can commit between the look for listeners and the delivery's own commit."""
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            async with notify.db.tx() as tx:
                tx.send(Paid(user_id=5))
            await notify.relay.deliver()
            async with notify.db.tx() as tx:
                await store.delete_webhook(tx, webhook.id)
            await notify.work()
        assert receiver.heard == []
        assert await notify.deliveries(webhook) == []

    def test_it_handles_public_messages_and_pings(self, notify: NotifyHarness):
        assert set(WebhookFanOut(notify.deps).channels) == {"Paid", "Shipped", WebhookPing.__name__}


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_only_a_webhook_of_an_admin_receives_all_messages(notify: NotifyHarness, caller: Caller):
    async with Receiver() as receiver:
        assert (await notify.add(caller, receiver.url)).sees_all is caller.is_admin
