"""Deliveries: success, retries, failure, and crashes at any point."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from penstock.access.audit import list_lines
from penstock.kernel.events import event
from penstock.kernel.queue import Job, JobState, get_job
from penstock.kernel.transitions import list_transitions
from penstock.notify import api
from penstock.notify.deliver import RESPONSE_CHARACTERS
from penstock.notify.delivery_jobs import BACKOFF, JITTER
from penstock.notify.domain import DELIVERY, DISABLE_AFTER, DISABLE_AFTER_FAILURES, SECRET_GRACE, DeliveryState, Webhook
from penstock.notify.signing import sign
from penstock.notify.worker import deliver
from tests.conftest import sequence
from tests.fakes.receivers import (
    Posted,
    Receiver,
    ReceiverThatHangsUp,
    ReceiverThatNeverStops,
    ReceiverThatSays,
    ReceiverThatStalls,
)
from tests.notify.conftest import ANNA, BERT, MAX_ATTEMPTS, NotifyHarness, Paid

LONGEST = max(BACKOFF).total_seconds() * (1 + JITTER)  # longer than any wait between two tries
MINE = Paid(user_id=5)


def signatures(posted: Posted) -> list[str]:
    return posted.headers["Penstock-Signature"].split(",")


def signed_by(*webhooks: Webhook | api.WebhookWithSecret, posted: Posted) -> list[str]:
    timestamp = int(posted.headers["Penstock-Timestamp"])
    return [f"v1={sign(webhook.secret, timestamp=timestamp, body=posted.body)}" for webhook in webhooks]


async def life(notify: NotifyHarness, webhook: Webhook) -> list[str]:
    """What became of its only delivery, move by move."""
    delivery = await notify.delivery(webhook)
    async with notify.db.read() as tx:
        return [step.trigger for step in await list_transitions(tx, DELIVERY.name, delivery.id)]


async def disabled_events(notify: NotifyHarness) -> list[tuple[str, str]]:
    await sequence(notify.db)
    async with notify.db.read() as tx:
        rows = await tx.conn.execute(select(event.c.topic, event.c.audience).where(event.c.kind == "disabled"))
        return [(row.topic, row.audience) for row in rows]


async def fail_for_good(notify: NotifyHarness) -> None:
    """One more message that never arrives."""
    await notify.send(MINE)
    for _ in range(MAX_ATTEMPTS - 1):
        await notify.wait(LONGEST)


class TestDelivered:
    async def test_a_delivery_is_signed(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
        [posted] = receiver.heard
        delivery = await notify.delivery(webhook)
        assert posted.headers["Penstock-Timestamp"] == str(int(notify.clock.now().timestamp()))
        assert posted.headers["Penstock-Id"] == delivery.message_id
        assert posted.headers["User-Agent"] == "penstock/0"
        assert posted.headers["Content-Type"] == "application/json"
        assert signatures(posted) == signed_by(webhook, posted=posted)

    async def test_the_log_shows_the_response(self, notify: NotifyHarness):
        async with ReceiverThatSays(202, text="noted, mail me at anna@example.com") as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
        delivery = await notify.delivery(webhook)
        assert (delivery.state, delivery.attempts, delivery.status_code) == (DeliveryState.DELIVERED, 1, 202)
        assert (delivery.error, delivery.next_try_at, delivery.finished_at) == (None, None, notify.clock.now())
        assert delivery.response is not None
        assert delivery.response.startswith("noted, mail me at")
        assert "anna@" not in delivery.response

    async def test_a_secret_at_the_cut_is_redacted(self, notify: NotifyHarness):
        text = "x" * (RESPONSE_CHARACTERS - 20) + " eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
        async with ReceiverThatSays(200, text=text) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
        assert "eyJ" not in ((await notify.delivery(webhook)).response or "eyJ")

    async def test_the_beginning_of_a_long_response_is_stored(self, notify: NotifyHarness):
        async with ReceiverThatNeverStops() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
        assert (await notify.delivery(webhook)).response == "z" * RESPONSE_CHARACTERS

    async def test_a_new_secret_signs_at_once_and_the_old_one_for_a_while(self, notify: NotifyHarness):
        async with Receiver() as receiver:
            old = await notify.add(ANNA, receiver.url)
            new = await api.rotate_secret(old.id, ANNA, notify.deps)
            await notify.send(MINE)
            await notify.wait(SECRET_GRACE.total_seconds())
            await notify.send(MINE)
        first, second = receiver.heard
        assert signatures(first) == signed_by(new, old, posted=first)
        assert signatures(second) == signed_by(new, posted=second)


class TestRetries:
    async def test_a_receiver_that_was_down_gets_it_later(self, notify: NotifyHarness):
        receiver = Receiver()
        async with receiver:
            webhook = await notify.add(ANNA, receiver.url)
        await notify.send(MINE)
        waiting = await notify.delivery(webhook)
        assert (waiting.state, waiting.attempts, waiting.status_code) == (DeliveryState.PENDING, 1, None)
        assert waiting.error == "No response: cannot connect."
        async with Receiver(port=receiver.port) as back:
            await notify.wait(BACKOFF[0].total_seconds() - 1)
            assert back.heard == []
            await notify.wait(BACKOFF[0].total_seconds() * JITTER + 1)
        assert len(back.heard) == 1
        assert (await notify.delivery(webhook)).state is DeliveryState.DELIVERED
        assert await life(notify, webhook) == ["retry", "deliver"]

    @pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 418, 429, 500, 503, 599])
    async def test_every_response_but_2xx_is_retried(self, notify: NotifyHarness, status: int):
        async with ReceiverThatSays(status, 204) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
            waiting = await notify.delivery(webhook)
            assert (waiting.state, waiting.status_code) == (DeliveryState.PENDING, status)
            assert waiting.error == f"The receiver answered {status}."
            await notify.wait(LONGEST)
        done = await notify.delivery(webhook)
        assert (done.state, done.attempts, done.status_code, done.error) == (DeliveryState.DELIVERED, 2, 204, None)
        assert len({posted.headers["Penstock-Id"] for posted in receiver.heard}) == 1
        assert len({posted.body for posted in receiver.heard}) == 1

    async def test_a_slow_receiver_is_retried(self, short_timeout: NotifyHarness):
        async with ReceiverThatStalls() as receiver:
            webhook = await short_timeout.add(ANNA, receiver.url)
            await short_timeout.send(MINE)
        assert (await short_timeout.delivery(webhook)).error == "No response: timed out after 0.3 s."

    async def test_a_closed_connection_is_retried(self, notify: NotifyHarness):
        async with ReceiverThatHangsUp() as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
        assert (await notify.delivery(webhook)).state is DeliveryState.PENDING

    async def test_retry_after_is_respected(self, notify: NotifyHarness):
        hour = timedelta(hours=1).total_seconds()
        async with ReceiverThatSays(429, 200, headers={"Retry-After": str(hour).removesuffix(".0")}) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
            assert (await notify.delivery(webhook)).next_try_at == notify.clock.now() + timedelta(hours=1)
            await notify.wait(hour - 1)
            assert len(receiver.heard) == 1
            await notify.wait(1)
            assert len(receiver.heard) == 2

    async def test_the_last_failed_attempt_ends_it(self, notify: NotifyHarness):
        async with ReceiverThatSays(500) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await fail_for_good(notify)
            await notify.wait(LONGEST)
        delivery = await notify.delivery(webhook)
        assert (delivery.state, delivery.attempts) == (DeliveryState.FAILED, MAX_ATTEMPTS)
        assert delivery.finished_at is not None
        assert len(receiver.heard) == MAX_ATTEMPTS
        assert await life(notify, webhook) == ["retry"] * (MAX_ATTEMPTS - 1) + ["fail"]

    async def test_a_failing_webhook_does_not_delay_another(self, notify: NotifyHarness):
        async with ReceiverThatSays(500) as broken, Receiver() as well:
            await notify.add(ANNA, broken.url)
            await notify.add(ANNA, well.url)
            await notify.send(MINE)
        assert len(well.heard) == 1


class TestDisabling:
    async def test_a_410_disables_the_webhook_at_once(self, notify: NotifyHarness):
        async with ReceiverThatSays(410) as receiver:
            webhook = await notify.add(BERT, receiver.url)
            await notify.send(Paid(user_id=6))
        assert (await notify.delivery(webhook)).state is DeliveryState.FAILED
        off = await notify.get(webhook)
        assert (off.active, "410" in (off.disabled_reason or "")) == (False, True)
        assert await disabled_events(notify) == [(f"webhook:{webhook.id}", "merchant:9")]
        async with notify.db.read() as tx:
            line = (await list_lines(tx, limit=1))[0]
        assert (line.actor, line.action, line.target) == ("notify", "webhook.switch_off", f"webhook:{webhook.id}")

    async def test_two_concurrent_410s_disable_it_once(self, notify: NotifyHarness):
        async with ReceiverThatSays(410) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            async with notify.db.tx() as tx:
                tx.send(MINE)
                tx.send(MINE)
            await notify.relay.deliver()
            async with notify.db.tx() as tx:
                jobs = await notify.deps.queue.claim(tx, owner="two", seconds=60, limit=2, module="notify")
            for settle in [await deliver(notify.deps, job) for job in jobs]:
                assert settle is not None
                async with notify.db.tx() as tx:
                    await settle(tx)
        assert [delivery.status_code for delivery in await notify.deliveries(webhook)] == [410, 410]
        assert len(await disabled_events(notify)) == 1

    async def test_pending_deliveries_of_a_disabled_webhook_fail_without_a_request(self, notify: NotifyHarness):
        async with ReceiverThatSays(500, 410) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
            await notify.send(MINE)
            await notify.wait(LONGEST)
        assert len(receiver.heard) == 2
        assert [delivery.error for delivery in await notify.deliveries(webhook)] == [
            "The receiver answered 410.",
            "The webhook is disabled.",
        ]

    async def test_failures_in_a_row_over_days_disable_it_once(self, notify: NotifyHarness):
        async with ReceiverThatSays(500) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            for number in range(1, DISABLE_AFTER_FAILURES):
                await fail_for_good(notify)
                assert (await notify.get(webhook)).failed_in_row == number
            await notify.wait(DISABLE_AFTER.total_seconds())
            assert (await notify.get(webhook)).active
            await fail_for_good(notify)
            await fail_for_good(notify)
        off = await notify.get(webhook)
        assert (off.active, off.disabled_reason) == (
            False,
            f"{DISABLE_AFTER_FAILURES} deliveries in a row failed, over days.",
        )
        assert await disabled_events(notify) == [(f"webhook:{webhook.id}", "user:5")]
        assert len(receiver.heard) == DISABLE_AFTER_FAILURES * MAX_ATTEMPTS

    async def test_failures_in_a_row_on_one_bad_day_do_not(self, notify: NotifyHarness):
        quick = NotifyHarness(replace(notify.deps, max_attempts=1), notify.clock)
        async with ReceiverThatSays(500) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            for _ in range(DISABLE_AFTER_FAILURES + 1):
                await quick.send(MINE)
        assert (await notify.get(webhook)).active

    async def test_a_success_resets_the_failures(self, notify: NotifyHarness):
        async with ReceiverThatSays(500, 200) as receiver:
            webhook = await notify.add(ANNA, receiver.url)
            await notify.send(MINE)
            assert (await notify.get(webhook)).failing_since == notify.clock.now()
            await notify.wait(LONGEST)
        well = await notify.get(webhook)
        assert (well.failing_since, well.failed_in_row) == (None, 0)


@pytest.fixture
async def held(notify: NotifyHarness) -> AsyncIterator[tuple[Webhook, Receiver, Job]]:
    """A webhook, its receiver, and the job of its first try, held by a worker that is about to be lost."""
    async with Receiver() as receiver:
        webhook = await notify.add(ANNA, receiver.url)
        async with notify.db.tx() as tx:
            tx.send(MINE)
        await notify.relay.deliver()
        async with notify.db.tx() as tx:
            [job] = await notify.deps.queue.claim(tx, owner="lost", seconds=60, limit=1, module="notify")
        yield webhook, receiver, job


class TestCrashes:
    async def test_killed_between_post_and_settle_it_arrives_twice_under_one_id(self, notify: NotifyHarness, held):
        webhook, receiver, job = held
        settle = await deliver(notify.deps, job)  # posted; and here the worker dies, with the settle in its hands
        notify.clock.advance(seconds=61)
        async with notify.db.tx() as tx:
            await notify.deps.queue.rescue(tx)
        await notify.work()
        assert settle is not None
        first, second = receiver.heard
        assert first.headers["Penstock-Id"] == second.headers["Penstock-Id"]
        assert first.body == second.body
        delivery = await notify.delivery(webhook)
        assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 1)
        async with notify.db.read() as tx:
            assert (await get_job(tx, job.id)).state is JobState.DONE

    async def test_a_job_that_runs_again_after_its_settle_posts_nothing(self, notify: NotifyHarness, held):
        webhook, receiver, job = held
        settle = await deliver(notify.deps, job)
        assert settle is not None
        async with notify.db.tx() as tx:
            await settle(tx)
        assert await deliver(notify.deps, job) is None
        assert (len(receiver.heard), (await notify.delivery(webhook)).attempts) == (1, 1)
