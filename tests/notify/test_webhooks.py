"""Webhooks are created, changed and removed by their owners, within limits, and every change is audited."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.access.audit import list_lines
from penstock.access.domain import Caller
from penstock.notify import api, store
from penstock.notify.domain import (
    MAX_WEBHOOKS,
    AddressRefused,
    ChannelUnknown,
    DeliveryState,
    NotYourWebhook,
    TooManyWebhooks,
    UrlRefused,
    WebhookNotFound,
    WebhookOff,
)
from penstock.notify.worker import delete_old_deliveries, periodic_tasks
from tests.fakes.receivers import Receiver, ReceiverThatSays
from tests.notify.conftest import ADMIN, ANNA, BERT, CARLA, DORA, NotifyHarness, Paid

HISTORY = timedelta(days=30)
URL = "http://127.0.0.1:8000/"
ELSEWHERE = "http://127.0.0.2:8000/secret-path?token=abc"


async def actions(notify: NotifyHarness) -> list[str]:
    async with notify.db.read() as tx:
        return [line.action for line in await list_lines(tx, limit=100)][::-1]


class TestCreate:
    async def test_it_belongs_to_its_creator(self, notify: NotifyHarness):
        webhook = await notify.add(BERT, URL, channels=["Paid"])
        assert (webhook.user_id, webhook.merchant_id, webhook.sees_all) == (6, 9, False)
        assert (webhook.created_by, webhook.created_at) == ("bert", notify.clock.now())
        assert await notify.get(webhook) == webhook

    async def test_every_secret_is_different(self, notify: NotifyHarness):
        assert len({(await notify.add(ANNA, URL)).secret for _ in range(5)}) == 5

    @pytest.mark.parametrize(
        ("url", "channels", "error"),
        [
            ("http://10.0.0.1/", ["*"], AddressRefused),
            ("ftp://example.com/", ["*"], UrlRefused),
            (URL, ["Nobody"], ChannelUnknown),
        ],
    )
    async def test_an_invalid_webhook_is_refused_and_not_stored(self, notify: NotifyHarness, url, channels, error):
        with pytest.raises(error):
            await notify.add(ANNA, url, channels)
        async with notify.db.read() as tx:
            assert await store.list_webhooks(tx, caller=ADMIN, limit=10) == []
        assert await actions(notify) == []

    async def test_the_number_of_webhooks_per_owner_is_limited(self, notify: NotifyHarness):
        for number in range(MAX_WEBHOOKS):
            await notify.add(BERT if number % 2 else CARLA, URL)  # one merchant: they share the bound
        for caller in (BERT, CARLA):
            with pytest.raises(TooManyWebhooks, match=str(MAX_WEBHOOKS)):
                await notify.add(caller, URL)
        for caller in (ANNA, DORA, ADMIN):
            await notify.add(caller, URL)

    async def test_of_two_concurrent_creates_the_second_counts_the_first(self, notify: NotifyHarness):
        first, second = await notify.add(ANNA, URL), replace(await notify.add(ANNA, URL), id="whk_third")

        async def count() -> int:
            async with notify.db.tx() as tx:
                return await store.lock_and_count_webhooks(tx, first)

        async with notify.db.tx() as tx:
            assert await store.lock_and_count_webhooks(tx, first) == 2
            rival = asyncio.create_task(count())
            await asyncio.wait([rival], timeout=0.2)  # time enough for one that does not wait its turn
            await store.insert_webhook(tx, second)
        assert await rival == 3


class TestChange:
    async def test_given_fields_change_and_the_rest_stays(self, notify: NotifyHarness):
        before = await notify.add(ANNA, URL, channels=["Paid"])
        await notify.change(ANNA, before.id, channels=["Shipped"])
        after = await notify.change(ANNA, before.id, url=ELSEWHERE)
        assert (after.url, after.channels, after.secret) == (ELSEWHERE, ["Shipped"], before.secret)
        assert await notify.get(before) == after

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"url": "http://10.0.0.1/"}, AddressRefused),
            ({"channels": ["Nobody"]}, ChannelUnknown),
        ],
    )
    async def test_an_invalid_change_is_refused_and_nothing_changes(
        self, notify: NotifyHarness, changes: dict[str, Any], error
    ):
        before = await notify.add(ANNA, URL)
        with pytest.raises(error):
            await notify.change(ANNA, before.id, **changes)
        assert await notify.get(before) == before

    async def test_the_reason_names_who_disabled_it(self, notify: NotifyHarness):
        webhook = await notify.add(ANNA, URL)
        off = await notify.change(ANNA, webhook.id, active=False)
        assert (off.active, off.disabled_reason) == (False, "Disabled by anna.")
        again = await notify.change(ADMIN, webhook.id, active=False)
        assert again.disabled_reason == "Disabled by anna."
        on = await notify.change(ANNA, webhook.id, active=True)
        assert on == webhook

    async def test_a_new_url_resets_the_failures(self, notify: NotifyHarness):
        async with ReceiverThatSays(500) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(Paid(user_id=5))
        assert (await notify.get(webhook)).failing_since is not None
        assert (await notify.change(ANNA, webhook.id, url=URL)).failing_since is None

    async def test_a_disabled_webhook_cannot_be_pinged(self, notify: NotifyHarness):
        webhook = await notify.add(ANNA, URL)
        await notify.change(ANNA, webhook.id, active=False)
        with pytest.raises(WebhookOff):
            await api.ping_webhook(webhook.id, ANNA, notify.deps)


class TestRemove:
    async def test_its_deliveries_are_deleted_with_it_and_no_others(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            gone, stays = await notify.add(ANNA, receiver.url), await notify.add(ADMIN, receiver.url)
            await notify.send(Paid(user_id=5), Paid(user_id=5))
            await api.remove_webhook(gone.id, ANNA, notify.deps)
            await notify.work()
        with pytest.raises(WebhookNotFound):
            await notify.get(gone)
        assert (len(await notify.deliveries(gone)), len(await notify.deliveries(stays))) == (0, 2)

    async def test_old_deliveries_are_deleted_in_any_state(self, notify: NotifyHarness):
        [duty] = periodic_tasks(notify.deps, history=HISTORY)
        async with ReceiverThatSays(200, 500) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(Paid(user_id=5), Paid(user_id=5))
            notify.clock.advance(seconds=HISTORY.total_seconds())
            await notify.send(Paid(user_id=5))
            await duty.run()
            assert len(await notify.deliveries(webhook)) == 3
            notify.clock.advance(seconds=1)
            await delete_old_deliveries(notify.deps, HISTORY)
        assert [delivery.state for delivery in await notify.deliveries(webhook)] == [DeliveryState.PENDING]


class TestPermissions:
    async def test_a_colleague_sees_it_and_may_not_use_it(self, notify: NotifyHarness):
        webhook = await notify.add(BERT, URL)
        async with notify.db.read() as tx:
            assert [found.id for found in await store.list_webhooks(tx, caller=CARLA, limit=9)] == [webhook.id]
        for verb in (api.rotate_secret, api.remove_webhook, api.ping_webhook):
            with pytest.raises(NotYourWebhook):
                await verb(webhook.id, CARLA, notify.deps)
        with pytest.raises(NotYourWebhook):
            await notify.change(CARLA, webhook.id, url=ELSEWHERE)
        assert await notify.get(webhook) == webhook

    @pytest.mark.parametrize("caller", [ADMIN, BERT])
    async def test_an_owner_and_admins_may(self, notify: NotifyHarness, caller: Caller):
        webhook = await notify.add(BERT, URL)
        async with notify.db.read() as tx:
            assert [found.id for found in await store.list_webhooks(tx, caller=caller, limit=9)] == [webhook.id]
        await api.rotate_secret(webhook.id, caller, notify.deps)
        await api.remove_webhook(webhook.id, caller, notify.deps)

    @pytest.mark.parametrize("verb", [api.rotate_secret, api.remove_webhook, api.ping_webhook])
    @pytest.mark.parametrize("caller", [ANNA, DORA])
    async def test_for_everyone_else_it_is_not_found(self, notify: NotifyHarness, caller: Caller, verb):
        webhook = await notify.add(BERT, URL)
        with pytest.raises(WebhookNotFound):
            await verb(webhook.id, caller, notify.deps)
        with pytest.raises(WebhookNotFound):
            await notify.change(caller, webhook.id, active=False)
        with pytest.raises(WebhookNotFound):  # and no word about the address
            await notify.change(caller, webhook.id, url="http://10.0.0.1/")
        assert await notify.get(webhook) == webhook

    async def test_a_key_without_admin_scope_cannot_touch_a_webhook_that_receives_all_messages(
        self, notify: NotifyHarness
    ):
        webhook = await notify.add(ADMIN, URL)
        lesser = Caller(name="root's other key", user_id=ADMIN.user_id, scope=ANNA.scope)
        with pytest.raises(WebhookNotFound):
            await notify.change(lesser, webhook.id, url=ELSEWHERE)
        async with notify.db.read() as tx:
            assert await store.list_webhooks(tx, caller=lesser, limit=9) == []


async def test_every_change_is_in_the_audit_log_without_secrets(notify: NotifyHarness):
    webhook = await notify.add(ANNA, ELSEWHERE)
    await notify.change(ANNA, webhook.id, channels=["Paid"])
    rotated = await api.rotate_secret(webhook.id, ANNA, notify.deps)
    await api.ping_webhook(webhook.id, ANNA, notify.deps)
    await api.remove_webhook(webhook.id, ANNA, notify.deps)
    verbs = ["add", "change", "rotate_secret", "ping", "remove"]
    assert await actions(notify) == [f"webhook.{verb}" for verb in verbs]
    async with notify.db.read() as tx:
        lines = await list_lines(tx, limit=100)
    assert {line.target for line in lines} == {f"webhook:{webhook.id}"}
    for secret in (webhook.secret, rotated.secret, "secret-path", "token=abc"):
        assert secret not in str(lines)
    assert "127.0.0.2" in str(lines)
