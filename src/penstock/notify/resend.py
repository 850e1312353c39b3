"""Send a delivery again, whatever became of it, with its tries counted from nothing."""

from penstock.access.audit import note
from penstock.access.domain import Caller
from penstock.kernel.transitions import MovedAlready
from penstock.notify import store
from penstock.notify.deps import Deps
from penstock.notify.domain import DELIVERY, Delivery, WebhookOff
from penstock.notify.tries import try_job


async def resend(tools: Deps, caller: Caller, webhook_id: str, delivery_id: str) -> Delivery:
    """Let a delivery have a new turn now; a try that is still under way then has no say any more."""
    async with tools.db.tx(actor=caller.name) as tx:
        webhook = await store.get_webhook(tx, webhook_id, caller=caller)
        before = await store.get_delivery(tx, webhook_id, delivery_id)
        if not webhook.active:
            raise WebhookOff(id=webhook_id)
        fresh = {"attempts": 0, "turn": before.turn + 1, "next_try_at": tx.now, "finished_at": None}
        if not await store.move_delivery(tx, before, "resend", **fresh):
            raise MovedAlready(entity=DELIVERY.name, id=delivery_id, state=before.state.value)
        await tools.queue.enqueue(tx, try_job(before, turn=before.turn + 1))
        await note(tx, caller, "webhook.resend", f"webhook:{webhook_id}", delivery_id=delivery_id)
        return await store.get_delivery(tx, webhook_id, delivery_id)
