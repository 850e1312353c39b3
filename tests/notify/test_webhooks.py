"""Webhooks are made, changed and removed by their owners, within bounds, and every change is written down."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.access.audit import list_lines
from penstock.access.domain import Caller
from penstock.notify import store, webhooks
from penstock.notify.domain import (
    MOST_WEBHOOKS,
    AddressRefused,
    ChannelUnknown,
    DeliveryState,
    TooManyWebhooks,
    UrlRefused,
    WebhookNotFound,
    WebhookOff,
)
from penstock.notify.worker import delete_old_deliveries, periodic_tasks
from tests.fakes.receivers import Receiver, ReceiverThatSays
from tests.notify.conftest import ADMIN, ANNA, BERT, CARLA, DORA, Paid, Room

HISTORY = timedelta(days=30)
URL = "http://127.0.0.1:8000/"
ELSEWHERE = "http://127.0.0.2:8000/secret-path?token=abc"


async def actions(room: Room) -> list[str]:
    async with room.db.read() as tx:
        return [line.action for line in await list_lines(tx, limit=100)][::-1]


class TestAdding:
    async def test_it_belongs_to_who_made_it(self, room: Room):
        webhook = await room.add(BERT, URL, channels=["Paid"])
        assert (webhook.user_id, webhook.merchant_id, webhook.sees_all) == (6, 9, False)
        assert (webhook.created_by, webhook.created_at) == ("bert", room.clock.now())
        assert await room.get(webhook) == webhook

    async def test_every_secret_is_another(self, room: Room):
        assert len({(await room.add(ANNA, URL)).secret for _ in range(5)}) == 5

    @pytest.mark.parametrize(
        ("url", "channels", "error"),
        [
            ("http://10.0.0.1/", ["*"], AddressRefused),
            ("ftp://example.com/", ["*"], UrlRefused),
            (URL, ["Nobody"], ChannelUnknown),
        ],
    )
    async def test_what_cannot_work_is_refused_and_nothing_is_kept(self, room: Room, url, channels, error):
        with pytest.raises(error):
            await room.add(ANNA, url, channels)
        async with room.db.read() as tx:
            assert await store.list_webhooks(tx, caller=ADMIN, limit=10) == []
        assert await actions(room) == []

    async def test_an_owner_has_so_many_and_no_more(self, room: Room):
        for number in range(MOST_WEBHOOKS):
            await room.add(BERT if number % 2 else CARLA, URL)  # one merchant: they share the bound
        for caller in (BERT, CARLA):
            with pytest.raises(TooManyWebhooks, match=str(MOST_WEBHOOKS)):
                await room.add(caller, URL)
        for caller in (ANNA, DORA, ADMIN):
            await room.add(caller, URL)

    async def test_of_two_that_are_made_at_once_the_second_counts_the_first(self, room: Room):
        first, second = await room.add(ANNA, URL), replace(await room.add(ANNA, URL), id="whk_third")

        async def count() -> int:
            async with room.db.tx() as tx:
                return await store.lock_and_count_webhooks(tx, first)

        async with room.db.tx() as tx:
            assert await store.lock_and_count_webhooks(tx, first) == 2
            rival = asyncio.create_task(count())
            await asyncio.wait([rival], timeout=0.2)  # time enough for one that does not wait its turn
            await store.insert_webhook(tx, second)
        assert await rival == 3


class TestChanging:
    async def test_what_is_given_changes_and_the_rest_stays(self, room: Room):
        before = await room.add(ANNA, URL, channels=["Paid"])
        await webhooks.change(room.deps, ANNA, before.id, channels=["Shipped"])
        after = await webhooks.change(room.deps, ANNA, before.id, url=ELSEWHERE)
        assert (after.url, after.channels, after.secret) == (ELSEWHERE, ["Shipped"], before.secret)
        assert await room.get(before) == after

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"url": "http://10.0.0.1/"}, AddressRefused),
            ({"channels": ["Nobody"]}, ChannelUnknown),
        ],
    )
    async def test_what_cannot_work_is_refused_and_nothing_changes(self, room: Room, changes: dict[str, Any], error):
        before = await room.add(ANNA, URL)
        with pytest.raises(error):
            await webhooks.change(room.deps, ANNA, before.id, **changes)
        assert await room.get(before) == before

    async def test_who_switched_it_off_is_told(self, room: Room):
        webhook = await room.add(ANNA, URL)
        off = await webhooks.change(room.deps, ANNA, webhook.id, active=False)
        assert (off.active, off.disabled_reason) == (False, "Disabled by anna.")
        again = await webhooks.change(room.deps, ADMIN, webhook.id, active=False)
        assert again.disabled_reason == "Disabled by anna."
        on = await webhooks.change(room.deps, ANNA, webhook.id, active=True)
        assert on == webhook

    async def test_another_address_is_a_new_start(self, room: Room):
        async with ReceiverThatSays(500) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(Paid(user_id=5))
        assert (await room.get(webhook)).failing_since is not None
        assert (await webhooks.change(room.deps, ANNA, webhook.id, url=URL)).failing_since is None

    async def test_what_is_off_cannot_be_pinged(self, room: Room):
        webhook = await room.add(ANNA, URL)
        await webhooks.change(room.deps, ANNA, webhook.id, active=False)
        with pytest.raises(WebhookOff):
            await webhooks.ping(room.deps, ANNA, webhook.id)


class TestRemoving:
    async def test_what_was_sent_to_it_goes_with_it_and_nothing_else(self, room: Room):
        async with Receiver() as receiver:
            gone, stays = await room.add(ANNA, receiver.url), await room.add(ADMIN, receiver.url)
            await room.send(Paid(user_id=5), Paid(user_id=5))
            await webhooks.remove(room.deps, ANNA, gone.id)
            await room.work()
        with pytest.raises(WebhookNotFound):
            await room.get(gone)
        assert (len(await room.deliveries(gone)), len(await room.deliveries(stays))) == (0, 2)

    async def test_deliveries_are_forgotten_after_their_time_whatever_became_of_them(self, room: Room):
        [duty] = periodic_tasks(room.deps, history=HISTORY)
        async with ReceiverThatSays(200, 500) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(Paid(user_id=5), Paid(user_id=5))
            room.clock.advance(seconds=HISTORY.total_seconds())
            await room.send(Paid(user_id=5))
            await duty.run()
            assert len(await room.deliveries(webhook)) == 3
            room.clock.advance(seconds=1)
            await delete_old_deliveries(room.deps, HISTORY)
        assert [delivery.state for delivery in await room.deliveries(webhook)] == [DeliveryState.PENDING]


class TestWhoMay:
    @pytest.mark.parametrize("caller", [ADMIN, BERT, CARLA])
    async def test_an_owner_their_merchant_and_admins_may(self, room: Room, caller: Caller):
        webhook = await room.add(BERT, URL)
        async with room.db.read() as tx:
            assert [found.id for found in await store.list_webhooks(tx, caller=caller, limit=9)] == [webhook.id]
        await webhooks.rotate_secret(room.deps, caller, webhook.id)
        await webhooks.remove(room.deps, caller, webhook.id)

    @pytest.mark.parametrize("verb", [webhooks.rotate_secret, webhooks.remove, webhooks.ping])
    @pytest.mark.parametrize("caller", [ANNA, DORA])
    async def test_for_everyone_else_it_is_not_there(self, room: Room, caller: Caller, verb):
        webhook = await room.add(BERT, URL)
        with pytest.raises(WebhookNotFound):
            await verb(room.deps, caller, webhook.id)
        with pytest.raises(WebhookNotFound):
            await webhooks.change(room.deps, caller, webhook.id, active=False)
        with pytest.raises(WebhookNotFound):  # and no word about the address
            await webhooks.change(room.deps, caller, webhook.id, url="http://10.0.0.1/")
        assert await room.get(webhook) == webhook

    async def test_a_lesser_key_of_the_same_user_cannot_touch_what_gets_everyones_messages(self, room: Room):
        webhook = await room.add(ADMIN, URL)
        lesser = Caller(name="root's other key", user_id=ADMIN.user_id, scope=ANNA.scope)
        with pytest.raises(WebhookNotFound):
            await webhooks.change(room.deps, lesser, webhook.id, url=ELSEWHERE)
        async with room.db.read() as tx:
            assert await store.list_webhooks(tx, caller=lesser, limit=9) == []


async def test_every_change_is_written_down_without_secrets(room: Room):
    webhook = await room.add(ANNA, ELSEWHERE)
    await webhooks.change(room.deps, ANNA, webhook.id, channels=["Paid"])
    rotated = await webhooks.rotate_secret(room.deps, ANNA, webhook.id)
    await webhooks.ping(room.deps, ANNA, webhook.id)
    await webhooks.remove(room.deps, ANNA, webhook.id)
    verbs = ["add", "change", "rotate_secret", "ping", "remove"]
    assert await actions(room) == [f"webhook.{verb}" for verb in verbs]
    async with room.db.read() as tx:
        lines = await list_lines(tx, limit=100)
    assert {line.target for line in lines} == {f"webhook:{webhook.id}"}
    for secret in (webhook.secret, rotated.secret, "secret-path", "token=abc"):
        assert secret not in str(lines)
    assert "127.0.0.2" in str(lines)
