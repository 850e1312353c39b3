"""Deliver: post one message to one webhook, and write down what became of it.

Everything but a 2xx is tried again, as receivers that are being mended answer with anything; only a 410 ends it, and
the webhook with it. A redirect is not followed: it is a failed try like any other. The post itself may be made twice
when a worker dies before it settles; the receiver knows it by the message's id. What is written is written once.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.access.audit import note
from penstock.kernel.db import Tx
from penstock.kernel.errors import Invalid, Unavailable, in_words
from penstock.kernel.message import Event
from penstock.kernel.queue import Job
from penstock.kernel.redact import redact
from penstock.kernel.workers import Settle
from penstock.notify import store
from penstock.notify.deps import Deps
from penstock.notify.domain import Answer, Delivery, DeliveryState, Webhook
from penstock.notify.signing import signed_headers
from penstock.notify.tries import try_job, wait_after

RESPONSE_CHARACTERS = 1000  # enough to see what a receiver complains about


@dataclass(frozen=True, kw_only=True)
class Try:
    """One post: the answer, or why there is none."""

    answer: Answer | None = None
    error: str | None = None

    def columns(self, delivery: Delivery, tx: Tx) -> dict[str, Any]:
        """What the log keeps of it."""
        answer = self.answer
        return {
            "attempts": delivery.attempts + 1,
            "last_tried_at": tx.now,
            "status_code": answer.status if answer else None,
            "response": _snippet(answer.text) if answer else None,
            "error": self.error,
        }


def _snippet(text: str) -> str:
    """The beginning of an answer, masked; masked first, so that no half of a secret is left at the end."""
    return redact(text[: 2 * RESPONSE_CHARACTERS])[:RESPONSE_CHARACTERS]


async def deliver(tools: Deps, job: Job) -> Settle | None:
    """Make the try that a job is about. A job whose delivery was sent again or forgotten since has nothing to do."""
    async with tools.db.read() as tx:
        delivery = await store.find_delivery(tx, job.payload["webhook_id"], job.payload["delivery_id"])
        if delivery is None or delivery.turn != job.payload["turn"] or delivery.state is not DeliveryState.PENDING:
            return None
        webhook = await store.find_webhook(tx, delivery.webhook_id)
        body = await store.find_body(tx, delivery)
    if webhook is None or body is None:
        return partial(_drop, delivery)
    if not webhook.active:
        return partial(_give_up, delivery)
    return partial(_settle, tools, delivery, await _post(tools, delivery, webhook, body.encode()))


async def _post(tools: Deps, delivery: Delivery, webhook: Webhook, body: bytes) -> Try:
    now = tools.db.clock.now()
    headers = signed_headers(
        webhook.secrets_at(now), message_id=delivery.message_id, timestamp=int(now.timestamp()), body=body
    )
    try:
        answer = await tools.poster.post(webhook.url, headers=headers | {"User-Agent": tools.user_agent}, body=body)
    except (Invalid, Unavailable) as error:
        return Try(error=in_words(error))
    return Try(answer=answer, error=None if answer.taken else f"The receiver answered {answer.status}.")


async def _settle(tools: Deps, delivery: Delivery, tried: Try, tx: Tx) -> None:
    over = {"next_try_at": None, "finished_at": tx.now}
    columns = tried.columns(delivery, tx)
    if tried.answer is not None and tried.answer.taken:
        if await store.move_delivery(tx, delivery, "deliver", **columns, **over):
            await store.move_to_well(tx, delivery.webhook_id)
    elif (tried.answer is not None and tried.answer.gone) or columns["attempts"] >= tools.most_attempts:
        if await store.move_delivery(tx, delivery, "fail", **columns, **over):
            await _blame(tx, delivery.webhook_id, tried)
    else:
        await _try_again(tools, delivery, tried, tx)


async def _try_again(tools: Deps, delivery: Delivery, tried: Try, tx: Tx) -> None:
    columns, turn = tried.columns(delivery, tx), delivery.turn + 1
    wait = wait_after(columns["attempts"])
    if tried.answer is not None:
        wait = max(wait, tried.answer.asks_to_wait(tx.now))
    if await store.move_delivery(tx, delivery, "retry", **columns, turn=turn, next_try_at=tx.now + wait):
        await store.move_to_failing(tx, delivery.webhook_id, failed=0)
        await tools.queue.enqueue(tx, try_job(delivery, turn=turn, wait=wait))


async def _blame(tx: Tx, webhook_id: str, tried: Try) -> None:
    """Hold a failed delivery against its webhook, and switch it off when it is gone or has been lost for days."""
    webhook = await store.move_to_failing(tx, webhook_id, failed=1)
    if webhook is None or not webhook.active:
        return
    if tried.answer is not None and tried.answer.gone:
        await _switch_off(tx, webhook, "The receiver answered 410: it asks not to be called again.")
    elif webhook.is_lost(tx.now):
        await _switch_off(tx, webhook, f"{webhook.failed_in_row} deliveries in a row failed, over days.")


async def _switch_off(tx: Tx, webhook: Webhook, reason: str) -> None:
    await store.move_webhook(tx, webhook.switched_off(reason))
    off = Event(topic=f"webhook:{webhook.id}", kind="disabled", audience=webhook.audience, data={"reason": reason})
    tx.tell(off)
    await note(tx, "notify", "webhook.switch_off", f"webhook:{webhook.id}", reason=reason)


async def _give_up(delivery: Delivery, tx: Tx) -> None:
    over = {"next_try_at": None, "finished_at": tx.now, "error": "The webhook is switched off."}
    await store.move_delivery(tx, delivery, "fail", **over)


async def _drop(delivery: Delivery, tx: Tx) -> None:
    """Its webhook was removed while the message was being fanned out, or just now."""
    await store.delete_delivery(tx, delivery)
