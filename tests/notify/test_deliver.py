"""A delivery arrives, or is tried again, or has failed; and whatever dies when, its row tells the truth."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from penstock.access.audit import list_lines
from penstock.kernel.events import event
from penstock.kernel.queue import Job, JobState, get_job
from penstock.kernel.transitions import list_transitions
from penstock.notify import webhooks
from penstock.notify.deliver import RESPONSE_CHARACTERS, deliver
from penstock.notify.delivery_jobs import BACKOFF, JITTER
from penstock.notify.domain import DELIVERY, DISABLE_AFTER, DISABLE_AFTER_FAILURES, SECRET_GRACE, DeliveryState, Webhook
from penstock.notify.signing import sign
from tests.fakes.receivers import (
    Posted,
    Receiver,
    ReceiverThatHangsUp,
    ReceiverThatNeverStops,
    ReceiverThatSays,
    ReceiverThatStalls,
)
from tests.notify.conftest import ANNA, BERT, MOST_ATTEMPTS, Paid, Room

LONGEST = max(BACKOFF).total_seconds() * (1 + JITTER)  # longer than any wait between two tries
MINE = Paid(user_id=5)


def signatures(posted: Posted) -> list[str]:
    return posted.headers["Penstock-Signature"].split(",")


def signed_by(*webhooks: Webhook, posted: Posted) -> list[str]:
    timestamp = int(posted.headers["Penstock-Timestamp"])
    return [f"v1={sign(webhook.secret, timestamp=timestamp, body=posted.body)}" for webhook in webhooks]


async def life(room: Room, webhook: Webhook) -> list[str]:
    """What became of its only delivery, move by move."""
    delivery = await room.delivery(webhook)
    async with room.db.read() as tx:
        return [step.trigger for step in await list_transitions(tx, DELIVERY.name, delivery.id)]


async def disabled_events(room: Room) -> list[tuple[str, str]]:
    async with room.db.read() as tx:
        rows = await tx.conn.execute(select(event.c.topic, event.c.audience).where(event.c.kind == "disabled"))
        return [(row.topic, row.audience) for row in rows]


async def fail_for_good(room: Room) -> None:
    """One more message that never arrives."""
    await room.send(MINE)
    for _ in range(MOST_ATTEMPTS - 1):
        await room.wait(LONGEST)


class TestArriving:
    async def test_what_is_sent_arrives_signed(self, room: Room):
        async with Receiver() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
        [posted] = receiver.heard
        delivery = await room.delivery(webhook)
        assert posted.headers["Penstock-Timestamp"] == str(int(room.clock.now().timestamp()))
        assert posted.headers["Penstock-Id"] == delivery.message_id
        assert posted.headers["User-Agent"] == "penstock/0"
        assert posted.headers["Content-Type"] == "application/json"
        assert signatures(posted) == signed_by(webhook, posted=posted)

    async def test_the_log_tells_what_the_receiver_said(self, room: Room):
        async with ReceiverThatSays(202, text="noted, mail me at anna@example.com") as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
        delivery = await room.delivery(webhook)
        assert (delivery.state, delivery.attempts, delivery.status_code) == (DeliveryState.DELIVERED, 1, 202)
        assert (delivery.error, delivery.next_try_at, delivery.finished_at) == (None, None, room.clock.now())
        assert delivery.response is not None
        assert delivery.response.startswith("noted, mail me at")
        assert "anna@" not in delivery.response

    async def test_a_secret_at_the_cut_is_not_kept_by_half(self, room: Room):
        text = "x" * (RESPONSE_CHARACTERS - 20) + " eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
        async with ReceiverThatSays(200, text=text) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
        assert "eyJ" not in ((await room.delivery(webhook)).response or "eyJ")

    async def test_of_a_long_answer_the_beginning_is_kept(self, room: Room):
        async with ReceiverThatNeverStops() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
        assert (await room.delivery(webhook)).response == "z" * RESPONSE_CHARACTERS

    async def test_a_new_secret_signs_at_once_and_the_old_one_for_a_while(self, room: Room):
        async with Receiver() as receiver:
            old = await room.add(ANNA, receiver.url)
            new = await webhooks.rotate_secret(room.deps, ANNA, old.id)
            await room.send(MINE)
            await room.wait(SECRET_GRACE.total_seconds())
            await room.send(MINE)
        first, second = receiver.heard
        assert signatures(first) == signed_by(new, old, posted=first)
        assert signatures(second) == signed_by(new, posted=second)


class TestTryingAgain:
    async def test_a_receiver_that_is_away_gets_it_when_it_is_back(self, room: Room):
        receiver = Receiver()
        async with receiver:
            webhook = await room.add(ANNA, receiver.url)
        await room.send(MINE)
        waiting = await room.delivery(webhook)
        assert (waiting.state, waiting.attempts, waiting.status_code) == (DeliveryState.PENDING, 1, None)
        assert waiting.error == "No response: no connection could be made."
        async with Receiver(port=receiver.port) as back:
            await room.wait(BACKOFF[0].total_seconds() - 1)
            assert back.heard == []
            await room.wait(BACKOFF[0].total_seconds() * JITTER + 1)
        assert len(back.heard) == 1
        assert (await room.delivery(webhook)).state is DeliveryState.DELIVERED
        assert await life(room, webhook) == ["retry", "deliver"]

    @pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 418, 429, 500, 503, 599])
    async def test_whatever_is_no_2xx_is_tried_again(self, room: Room, status: int):
        async with ReceiverThatSays(status, 204) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
            waiting = await room.delivery(webhook)
            assert (waiting.state, waiting.status_code) == (DeliveryState.PENDING, status)
            assert waiting.error == f"The receiver answered {status}."
            await room.wait(LONGEST)
        done = await room.delivery(webhook)
        assert (done.state, done.attempts, done.status_code, done.error) == (DeliveryState.DELIVERED, 2, 204, None)
        assert len({posted.headers["Penstock-Id"] for posted in receiver.heard}) == 1
        assert len({posted.body for posted in receiver.heard}) == 1

    async def test_a_slow_receiver_is_tried_again(self, hasty: Room):
        async with ReceiverThatStalls() as receiver:
            webhook = await hasty.add(ANNA, receiver.url)
            await hasty.send(MINE)
        assert (await hasty.delivery(webhook)).error == "No response: nothing came within 0.3 s."

    async def test_a_receiver_that_hangs_up_is_tried_again(self, room: Room):
        async with ReceiverThatHangsUp() as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
        assert (await room.delivery(webhook)).state is DeliveryState.PENDING

    async def test_it_is_not_tried_before_the_receiver_wants_it(self, room: Room):
        hour = timedelta(hours=1).total_seconds()
        async with ReceiverThatSays(429, 200, headers={"Retry-After": str(hour).removesuffix(".0")}) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
            assert (await room.delivery(webhook)).next_try_at == room.clock.now() + timedelta(hours=1)
            await room.wait(hour - 1)
            assert len(receiver.heard) == 1
            await room.wait(1)
            assert len(receiver.heard) == 2

    async def test_the_last_failed_try_ends_it(self, room: Room):
        async with ReceiverThatSays(500) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await fail_for_good(room)
            await room.wait(LONGEST)
        delivery = await room.delivery(webhook)
        assert (delivery.state, delivery.attempts) == (DeliveryState.FAILED, MOST_ATTEMPTS)
        assert delivery.finished_at is not None
        assert len(receiver.heard) == MOST_ATTEMPTS
        assert await life(room, webhook) == ["retry"] * (MOST_ATTEMPTS - 1) + ["fail"]

    async def test_one_webhook_that_fails_does_not_hold_up_another(self, room: Room):
        async with ReceiverThatSays(500) as broken, Receiver() as well:
            await room.add(ANNA, broken.url)
            await room.add(ANNA, well.url)
            await room.send(MINE)
        assert len(well.heard) == 1


class TestSwitchingOff:
    async def test_a_410_switches_the_webhook_off_at_once(self, room: Room):
        async with ReceiverThatSays(410) as receiver:
            webhook = await room.add(BERT, receiver.url)
            await room.send(Paid(user_id=6))
        assert (await room.delivery(webhook)).state is DeliveryState.FAILED
        off = await room.get(webhook)
        assert (off.active, "410" in (off.disabled_reason or "")) == (False, True)
        assert await disabled_events(room) == [(f"webhook:{webhook.id}", "merchant:9")]
        async with room.db.read() as tx:
            line = (await list_lines(tx, limit=1))[0]
        assert (line.actor, line.action, line.target) == ("notify", "webhook.switch_off", f"webhook:{webhook.id}")

    async def test_two_410s_at_once_switch_it_off_once(self, room: Room):
        async with ReceiverThatSays(410) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            async with room.db.tx() as tx:
                tx.send(MINE)
                tx.send(MINE)
            await room.relay.deliver()
            async with room.db.tx() as tx:
                jobs = await room.deps.queue.claim(tx, owner="two", seconds=60, limit=2, module="notify")
            for settle in [await deliver(room.deps, job) for job in jobs]:
                assert settle is not None
                async with room.db.tx() as tx:
                    await settle(tx)
        assert [delivery.status_code for delivery in await room.deliveries(webhook)] == [410, 410]
        assert len(await disabled_events(room)) == 1

    async def test_what_still_waits_for_it_then_fails_without_a_post(self, room: Room):
        async with ReceiverThatSays(500, 410) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
            await room.send(MINE)
            await room.wait(LONGEST)
        assert len(receiver.heard) == 2
        assert [delivery.error for delivery in await room.deliveries(webhook)] == [
            "The receiver answered 410.",
            "The webhook is disabled.",
        ]

    async def test_failures_in_a_row_over_days_switch_it_off_once(self, room: Room):
        async with ReceiverThatSays(500) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            for number in range(1, DISABLE_AFTER_FAILURES):
                await fail_for_good(room)
                assert (await room.get(webhook)).failed_in_row == number
            await room.wait(DISABLE_AFTER.total_seconds())
            assert (await room.get(webhook)).active
            await fail_for_good(room)
            await fail_for_good(room)
        off = await room.get(webhook)
        assert (off.active, off.disabled_reason) == (
            False,
            f"{DISABLE_AFTER_FAILURES} deliveries in a row failed, over days.",
        )
        assert await disabled_events(room) == [(f"webhook:{webhook.id}", "user:5")]
        assert len(receiver.heard) == DISABLE_AFTER_FAILURES * MOST_ATTEMPTS

    async def test_failures_in_a_row_on_one_bad_day_do_not(self, room: Room):
        quick = Room(replace(room.deps, max_attempts=1), room.clock)
        async with ReceiverThatSays(500) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            for _ in range(DISABLE_AFTER_FAILURES + 1):
                await quick.send(MINE)
        assert (await room.get(webhook)).active

    async def test_one_that_arrives_wipes_the_slate(self, room: Room):
        async with ReceiverThatSays(500, 200) as receiver:
            webhook = await room.add(ANNA, receiver.url)
            await room.send(MINE)
            assert (await room.get(webhook)).failing_since == room.clock.now()
            await room.wait(LONGEST)
        well = await room.get(webhook)
        assert (well.failing_since, well.failed_in_row) == (None, 0)


@pytest.fixture
async def held(room: Room) -> AsyncIterator[tuple[Webhook, Receiver, Job]]:
    """A webhook, its receiver, and the job of its first try, held by a worker that is about to be lost."""
    async with Receiver() as receiver:
        webhook = await room.add(ANNA, receiver.url)
        async with room.db.tx() as tx:
            tx.send(MINE)
        await room.relay.deliver()
        async with room.db.tx() as tx:
            [job] = await room.deps.queue.claim(tx, owner="lost", seconds=60, limit=1, module="notify")
        yield webhook, receiver, job


class TestDying:
    async def test_killed_between_post_and_settle_it_arrives_twice_under_one_id(self, room: Room, held):
        webhook, receiver, job = held
        settle = await deliver(room.deps, job)  # posted; and here the worker dies, with the settle in its hands
        room.clock.advance(seconds=61)
        async with room.db.tx() as tx:
            await room.deps.queue.rescue(tx)
        await room.work()
        assert settle is not None
        first, second = receiver.heard
        assert first.headers["Penstock-Id"] == second.headers["Penstock-Id"]
        assert first.body == second.body
        delivery = await room.delivery(webhook)
        assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 1)
        async with room.db.read() as tx:
            assert (await get_job(tx, job.id)).state is JobState.DONE

    async def test_a_job_that_runs_again_after_its_settle_posts_nothing(self, room: Room, held):
        webhook, receiver, job = held
        settle = await deliver(room.deps, job)
        assert settle is not None
        async with room.db.tx() as tx:
            await settle(tx)
        assert await deliver(room.deps, job) is None
        assert (len(receiver.heard), (await room.delivery(webhook)).attempts) == (1, 1)
