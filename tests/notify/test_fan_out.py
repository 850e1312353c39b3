"""A message becomes one delivery per webhook that may have it and asked for it."""

import json

import pytest

from penstock.access.domain import Caller
from penstock.kernel.outbox import Parcel
from penstock.kernel.queue import JobState, get_job
from penstock.messages import WebhookPing
from penstock.notify import store, webhooks
from penstock.notify.domain import DeliveryState
from penstock.notify.worker import WebhookFanOut
from tests.fakes.receivers import Receiver
from tests.notify.conftest import ADMIN, ANNA, BERT, CARLA, DORA, Paid, Room, Secretly, Shipped

CALLERS = {"admin": ADMIN, "anna": ANNA, "bert": BERT, "carla": CARLA, "dora": DORA}


class TestWhoHears:
    @pytest.mark.parametrize(
        ("message", "hear"),
        [
            (Paid(), {"admin"}),
            (Paid(user_id=5), {"admin", "anna"}),
            (Paid(user_id=6), {"admin", "bert"}),
            (Paid(merchant_id=9), {"admin", "bert", "carla"}),
            (Paid(user_id=5, merchant_id=10), {"admin", "anna", "dora"}),
            (Paid(user_id=99, merchant_id=99), {"admin"}),
            (Secretly(user_id=5), set()),
        ],
    )
    async def test_owners_hear_what_is_theirs_and_admins_hear_all(self, room: Room, message: Paid, hear: set[str]):
        async with Receiver() as receiver:
            for name, caller in CALLERS.items():
                await room.add(caller, f"{receiver.url}?{name}")
            await room.send(message)
        assert {posted.path.partition("?")[2] for posted in receiver.heard} == hear

    async def test_a_webhook_gets_the_channels_it_asked_for(self, room: Room):
        async with Receiver() as receiver:
            await room.add(ANNA, receiver.url, channels=["Shipped"])
            await room.send(Paid(user_id=5), Shipped(user_id=5))
        assert [json.loads(posted.body)["channel"] for posted in receiver.heard] == ["Shipped"]

    async def test_a_webhook_that_is_off_gets_nothing(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await webhooks.change(room.deps, ANNA, webhook.id, active=False)
            await room.send(Paid(user_id=5))
            assert await room.deliveries(webhook) == []
            await webhooks.change(room.deps, ANNA, webhook.id, active=True)
            await room.send(Paid(user_id=5))
        assert len(receiver.heard) == 1

    async def test_a_ping_goes_to_its_webhook_alone_whatever_that_asked_for(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, f"{receiver.url}?one", channels=["Paid"])
            await room.add(ANNA, f"{receiver.url}?two")
            await room.add(ADMIN, f"{receiver.url}?three")
            await webhooks.ping(room.deps, ANNA, webhook.id)
            await room.work()
        [posted] = receiver.heard
        assert posted.path.endswith("?one")
        assert json.loads(posted.body)["payload"] == {"webhook_id": webhook.id}

    async def test_a_ping_for_a_webhook_that_is_off_meanwhile_is_not_delivered(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await webhooks.ping(room.deps, ANNA, webhook.id)
            await webhooks.change(room.deps, ANNA, webhook.id, active=False)
            await room.work()
        assert await room.deliveries(webhook) == []

    async def test_a_ping_for_a_webhook_that_is_gone_meanwhile_ends_quietly(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await webhooks.ping(room.deps, ANNA, webhook.id)
            await webhooks.remove(room.deps, ANNA, webhook.id)
            await room.work()
        assert receiver.heard == []


class TestWhatIsWritten:
    async def test_a_delivery_waits_with_its_job(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            async with room.db.tx() as tx:
                tx.send(Paid(user_id=5))
            await room.relay.deliver()
        delivery = await room.delivery(webhook)
        assert (delivery.state, delivery.attempts, delivery.next_try_at) == (
            DeliveryState.PENDING,
            0,
            room.clock.now(),
        )
        async with room.db.read() as tx:
            job = await get_job(tx, f"notify:{delivery.id}:1")
        assert (job.kind, job.module, job.state) == ("notify.deliver", "notify", JobState.WAITING)

    async def test_a_message_that_is_carried_twice_is_delivered_once(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            parcel = Parcel(
                id="msg_1", channel="Paid", dedup_key="", payload={"user_id": 5}, created_at=room.clock.now()
            )
            for _ in range(2):
                write = await WebhookFanOut(room.deps).carry(parcel)
                async with room.db.tx() as tx:
                    await write(tx)
            await room.work()
            assert len(await room.deliveries(webhook)) == 1
        assert [posted.headers["Penstock-Id"] for posted in receiver.heard] == ["msg_1"]

    async def test_a_delivery_whose_webhook_went_while_it_was_written_leaves_nothing(self, room: Room):
        """On PostgreSQL a removal can commit between the look for listeners and the delivery's own commit."""
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            async with room.db.tx() as tx:
                tx.send(Paid(user_id=5))
            await room.relay.deliver()
            async with room.db.tx() as tx:
                await store.delete_webhook(tx, webhook.id)
            await room.work()
        assert receiver.heard == []
        assert await room.deliveries(webhook) == []

    def test_it_carries_what_may_leave_the_house_and_pings(self, room: Room):
        assert set(WebhookFanOut(room.deps).channels) == {"Paid", "Shipped", WebhookPing.__name__}


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_only_an_admins_webhook_gets_everyones(room: Room, caller: Caller):
    async with Receiver() as receiver:
        assert (await room.add(caller, receiver.url)).sees_all is caller.is_admin
