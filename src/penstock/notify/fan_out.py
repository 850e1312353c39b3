"""Fan out: a message of the outbox becomes one delivery per webhook that may have it and asked for it.

The deliveries and their first jobs are written in the transaction that marks the message sent. Carried twice, a message
still has one delivery per webhook.
"""

from collections.abc import Awaitable, Callable, Collection
from functools import partial

from penstock.kernel.db import Tx
from penstock.kernel.outbox import Parcel
from penstock.messages import WebhookPing
from penstock.notify import store
from penstock.notify.deps import Deps
from penstock.notify.domain import Delivery, DeliveryState, Webhook, owners_of
from penstock.notify.signing import body_of
from penstock.notify.tries import try_job

PING = WebhookPing.__name__


class FanOut:
    """The carrier of every message that may leave the house."""

    def __init__(self, tools: Deps) -> None:
        self.channels: Collection[str] = tools.channels | {PING}
        self._queue = tools.queue

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]]:
        """Nothing is taken outside here; posting is a job for each webhook, so that one cannot delay another."""
        return partial(self._address, parcel)

    async def _address(self, parcel: Parcel, tx: Tx) -> None:
        listeners = await _listeners(tx, parcel)
        deliveries = [_new_delivery(tx, parcel, webhook) for webhook in listeners]
        added = await store.insert_deliveries(tx, deliveries, body=body_of(parcel))
        if jobs := [try_job(new, turn=new.turn) for new in deliveries if new.id in added]:
            await self._queue.enqueue(tx, *jobs)


async def _listeners(tx: Tx, parcel: Parcel) -> list[Webhook]:
    if parcel.channel == PING:
        pinged = await store.find_webhook(tx, parcel.payload["webhook_id"])
        return [pinged] if pinged is not None and pinged.active else []
    user_id, merchant_id = owners_of(parcel.payload)
    may_hear = await store.list_listeners(tx, user_id=user_id, merchant_id=merchant_id)
    return [webhook for webhook in may_hear if webhook.wants(parcel.channel)]


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
