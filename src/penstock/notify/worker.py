"""What triggers the notify module: messages of the outbox, jobs, and the periodic cleanup."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial

from penstock.kernel.db import Tx
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.queue import Job
from penstock.kernel.relay import SinkResult
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler, Settle
from penstock.messages import WebhookPing
from penstock.notify import store
from penstock.notify.deliver import fail_disabled, find_due, post, settle
from penstock.notify.delivery_jobs import DELIVER, FORGET, delivery_job
from penstock.notify.deps import Deps
from penstock.notify.domain import Delivery, DeliveryState, Webhook, owners_of
from penstock.notify.signing import build_body

PING = WebhookPing.__name__
CLEANUP_SECONDS = 60


def handlers(deps: Deps) -> Mapping[str, JobHandler]:
    """The job handlers by kind."""
    return {DELIVER: partial(deliver, deps), FORGET: partial(delete_deliveries_of_removed, deps)}


def periodic_tasks(deps: Deps, *, history: timedelta) -> list[PeriodicTask]:
    """The cleanup of old deliveries."""
    delete = partial(delete_old_deliveries, deps, history)
    return [PeriodicTask(name="forget-deliveries", every_seconds=CLEANUP_SECONDS, run=delete)]


class WebhookFanOut:
    """The outbox sink that turns a message into one delivery per webhook that may receive it and subscribed to it.

    The deliveries and their first jobs are written in the transaction that marks the message as sent. A message that is
    handled twice still has one delivery per webhook.
    """

    def __init__(self, deps: Deps) -> None:
        self.channels: Collection[str] = deps.channels | {PING}
        self._queue = deps.queue

    async def deliver_many(self, _messages: Sequence[OutboxMessage]) -> SinkResult:
        """Nothing is sent here: each webhook gets a job of its own, so that a slow one does not delay the others."""
        return SinkResult(write=self._enqueue_deliveries)

    async def _enqueue_deliveries(self, tx: Tx, messages: Sequence[OutboxMessage]) -> None:
        deliveries = [
            (_new_delivery(tx, message, webhook), body)
            for message, subscribers in await _list_subscribers(tx, messages)
            for body in [build_body(message)]
            for webhook in subscribers
        ]
        added = await store.insert_deliveries(tx, deliveries)
        if jobs := [delivery_job(new, turn=new.turn) for new, _ in deliveries if new.id in added]:
            await self._queue.enqueue(tx, *jobs)


async def deliver(deps: Deps, job: Job) -> Settle | None:
    """Make the attempt of a job, with no transaction open while the receiver answers."""
    async with deps.db.read() as tx:
        due = await find_due(tx, job)
    if due is None:
        return None
    delivery, webhook, body = due
    if webhook is None or body is None:  # the webhook was removed in the meantime
        return partial(store.delete_delivery, delivery=delivery)
    if not webhook.active:
        return partial(fail_disabled, delivery=delivery)
    attempt = await post(deps, delivery, webhook, body.encode())
    return partial(settle, deps=deps, delivery=delivery, attempt=attempt)


async def delete_deliveries_of_removed(deps: Deps, job: Job) -> None:
    """Delete the deliveries of a removed webhook."""

    async def delete_some() -> int:
        async with deps.db.tx() as tx:
            return await store.delete_deliveries_of(tx, job.payload["webhook_id"])

    await repeat_until_zero(delete_some)


async def delete_old_deliveries(deps: Deps, history: timedelta) -> None:
    """Delete deliveries older than the retention time."""

    async def delete_some() -> int:
        async with deps.db.tx() as tx:
            return await store.delete_old_deliveries(tx, before=tx.now - history)

    await repeat_until_zero(delete_some)


async def _list_subscribers(tx: Tx, messages: Sequence[OutboxMessage]) -> list[tuple[OutboxMessage, list[Webhook]]]:
    """The messages that have subscribers, with these, read in one query."""
    owners = [owners_of(message.payload) for message in messages]
    active = await store.list_active_webhooks(
        tx,
        user_ids={user_id for user_id, _ in owners if user_id is not None},
        merchant_ids={merchant_id for _, merchant_id in owners if merchant_id is not None},
        ids={message.payload["webhook_id"] for message in messages if message.channel == PING},
    )
    found = [(message, [webhook for webhook in active if _receives(webhook, message)]) for message in messages]
    return [(message, subscribers) for message, subscribers in found if subscribers]


def _receives(webhook: Webhook, message: OutboxMessage) -> bool:
    """A ping goes to its webhook alone."""
    if message.channel == PING:
        return bool(webhook.id == message.payload["webhook_id"])
    user_id, merchant_id = owners_of(message.payload)
    return webhook.is_subscribed_to(message.channel) and webhook.may_receive(user_id=user_id, merchant_id=merchant_id)


def _new_delivery(tx: Tx, message: OutboxMessage, webhook: Webhook) -> Delivery:
    return Delivery(
        id=tx.new_id("whd"),
        webhook_id=webhook.id,
        message_id=message.id,
        channel=message.channel,
        state=DeliveryState.PENDING,
        attempts=0,
        turn=1,
        created_at=tx.now,
        next_try_at=tx.now,
    )
