"""Deliver: post one message to one webhook and record the outcome; resend a delivery on request.

`worker.py` reads the delivery, posts the signed body with no transaction open, and settles in one afterwards.

Every response except 2xx is retried, since a receiver that is being repaired may return anything; only a 410 ends the
delivery and disables the webhook. Redirects are not followed: they count as failed attempts. If the worker is killed
between the post and the settle, the delivery arrives twice: the receiver deduplicates by the message id, and the
delivery log has one row.
"""

from dataclasses import dataclass
from typing import Any

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.errors import Invalid, Unavailable, error_text
from penstock.kernel.message import Event
from penstock.kernel.queue import Job
from penstock.kernel.redact import redact
from penstock.kernel.transitions import MovedAlready
from penstock.notify import store
from penstock.notify.delivery_jobs import backoff_after, delivery_job
from penstock.notify.deps import Deps
from penstock.notify.domain import DELIVERY, Delivery, DeliveryState, Webhook, WebhookOff, WebhookResponse
from penstock.notify.signing import signed_headers

RESPONSE_CHARACTERS = 1000  # enough to see what a receiver complains about


@dataclass(frozen=True, kw_only=True)
class DeliveryAttempt:
    """One request: its response, or the error."""

    response: WebhookResponse | None = None
    error: str | None = None

    def columns(self, delivery: Delivery, tx: Tx) -> dict[str, Any]:
        """The columns of the delivery log."""
        response = self.response
        return {
            "attempts": delivery.attempts + 1,
            "last_tried_at": tx.now,
            "status_code": response.status if response else None,
            "response": _snippet(response.text) if response else None,
            "error": self.error,
        }


def _snippet(text: str) -> str:
    """The beginning of a response. Redacted before the cut, so that no part of a secret is left at the end."""
    return redact(text[: 2 * RESPONSE_CHARACTERS])[:RESPONSE_CHARACTERS]


async def find_due(tx: Tx, job: Job) -> tuple[Delivery, Webhook | None, str | None] | None:
    """The delivery that a job is for, its webhook and its body; None if it was resent or deleted since."""
    delivery = await store.find_delivery(tx, job.payload["webhook_id"], job.payload["delivery_id"])
    if delivery is None or delivery.turn != job.payload["turn"] or delivery.state is not DeliveryState.PENDING:
        return None
    return delivery, await store.find_webhook(tx, delivery.webhook_id), await store.find_body(tx, delivery)


async def resend(tx: Tx, deps: Deps, caller: Caller, webhook_id: str, delivery_id: str) -> Delivery:
    """Restart a delivery now with its attempts reset; an attempt in progress no longer counts."""
    webhook = await store.get_own_webhook(tx, webhook_id, caller=caller)
    before = await store.get_delivery(tx, webhook_id, delivery_id)
    if not webhook.active:
        raise WebhookOff(id=webhook_id)
    restarted = {"attempts": 0, "turn": before.turn + 1, "next_try_at": tx.now, "finished_at": None}
    if not await store.move_delivery(tx, before, "resend", **restarted):
        raise MovedAlready(entity=DELIVERY.name, id=delivery_id, state=before.state.value)
    await deps.queue.enqueue(tx, delivery_job(before, turn=before.turn + 1))
    await audit.record(tx, caller, "webhook.resend", f"webhook:{webhook_id}", delivery_id=delivery_id)
    return await store.get_delivery(tx, webhook_id, delivery_id)


async def post(deps: Deps, delivery: Delivery, webhook: Webhook, body: bytes) -> DeliveryAttempt:
    """Post the signed body once. No transaction may be open."""
    now = deps.db.clock.now()
    headers = signed_headers(
        webhook.secrets_at(now), message_id=delivery.message_id, timestamp=int(now.timestamp()), body=body
    )
    try:
        response = await deps.client.post(webhook.url, headers=headers | {"User-Agent": deps.user_agent}, body=body)
    except (Invalid, Unavailable) as error:
        return DeliveryAttempt(error=error_text(error))
    refusal = None if response.accepted else f"The receiver answered {response.status}."
    return DeliveryAttempt(response=response, error=refusal)


async def settle(tx: Tx, deps: Deps, delivery: Delivery, attempt: DeliveryAttempt) -> None:
    """Record the outcome of an attempt: the delivery ends, or its next attempt is enqueued."""
    finished = {"next_try_at": None, "finished_at": tx.now}
    columns, response = attempt.columns(delivery, tx), attempt.response
    if response is not None and response.accepted:
        if await store.move_delivery(tx, delivery, "deliver", **columns, **finished):
            await store.move_to_healthy(tx, delivery.webhook_id)
    elif (response is not None and response.gone) or columns["attempts"] >= deps.max_attempts:
        if await store.move_delivery(tx, delivery, "fail", **columns, **finished):
            await _count_failure(tx, delivery.webhook_id, response)
    else:
        await _retry_later(tx, deps, delivery, attempt)


async def _retry_later(tx: Tx, deps: Deps, delivery: Delivery, attempt: DeliveryAttempt) -> None:
    columns, turn = attempt.columns(delivery, tx), delivery.turn + 1
    delay = backoff_after(columns["attempts"])
    if attempt.response is not None:
        delay = max(delay, attempt.response.retry_delay(tx.now))
    if await store.move_delivery(tx, delivery, "retry", **columns, turn=turn, next_try_at=tx.now + delay):
        await store.move_to_failing(tx, delivery.webhook_id, failed=0)
        await deps.queue.enqueue(tx, delivery_job(delivery, turn=turn, delay=delay))


async def _count_failure(tx: Tx, webhook_id: str, response: WebhookResponse | None) -> None:
    """Count a failed delivery of a webhook; disable it if the receiver is gone or has failed for days."""
    webhook = await store.move_to_failing(tx, webhook_id, failed=1)
    if webhook is None or not webhook.active:
        return
    if response is not None and response.gone:
        await _disable(tx, webhook, "The receiver answered 410: it must not be called again.")
    elif webhook.has_failed_for_days(tx.now):
        await _disable(tx, webhook, f"{webhook.failed_in_row} deliveries in a row failed, over days.")


async def _disable(tx: Tx, webhook: Webhook, reason: str) -> None:
    await store.move_webhook(tx, webhook.disabled(reason))
    tx.publish(
        Event(topic=f"webhook:{webhook.id}", kind="disabled", audience=webhook.audience, data={"reason": reason})
    )
    await audit.record(tx, "notify", "webhook.switch_off", f"webhook:{webhook.id}", reason=reason)


async def fail_disabled(tx: Tx, delivery: Delivery) -> None:
    """End a delivery whose webhook is disabled."""
    finished = {"next_try_at": None, "finished_at": tx.now, "error": "The webhook is disabled."}
    await store.move_delivery(tx, delivery, "fail", **finished)
