"""What triggers the notify module: messages of the outbox, jobs, and the periodic cleanup."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta
from functools import partial

from penstock.kernel.db import Tx
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.outbox import Parcel
from penstock.kernel.queue import Job
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.messages import WebhookPing
from penstock.notify import store
from penstock.notify.deliver import deliver
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

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]]:
        """Nothing is sent here: each webhook gets a job of its own, so that a slow one does not delay the others."""
        return partial(self._enqueue_deliveries, parcel)

    async def _enqueue_deliveries(self, parcel: Parcel, tx: Tx) -> None:
        deliveries = [_new_delivery(tx, parcel, webhook) for webhook in await _list_subscribers(tx, parcel)]
        added = await store.insert_deliveries(tx, deliveries, body=build_body(parcel))
        if jobs := [delivery_job(new, turn=new.turn) for new in deliveries if new.id in added]:
            await self._queue.enqueue(tx, *jobs)


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


async def _list_subscribers(tx: Tx, parcel: Parcel) -> list[Webhook]:
    if parcel.channel == PING:
        pinged = await store.find_webhook(tx, parcel.payload["webhook_id"])
        return [pinged] if pinged is not None and pinged.active else []
    user_id, merchant_id = owners_of(parcel.payload)
    allowed = await store.list_active_webhooks(tx, user_id=user_id, merchant_id=merchant_id)
    return [webhook for webhook in allowed if webhook.is_subscribed_to(parcel.channel)]


def _new_delivery(tx: Tx, parcel: Parcel, webhook: Webhook) -> Delivery:
    return Delivery(
        id=tx.new_id("whd"),
        webhook_id=webhook.id,
        message_id=parcel.id,
        channel=parcel.channel,
        state=DeliveryState.PENDING,
        attempts=0,
        turn=1,
        created_at=tx.now,
        next_try_at=tx.now,
    )
