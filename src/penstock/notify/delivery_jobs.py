"""The jobs of notify, and the retry schedule of deliveries.

Each attempt is a job of its own, enqueued in the transaction that settles the attempt before it. So the delivery log
and the next attempt never disagree, and a receiver that is down has its own backoff and does not count as a failed job.
"""

import random
from datetime import timedelta

from penstock.kernel.queue import NewJob
from penstock.notify.domain import Delivery

MODULE = "notify"
DELIVER = "notify.deliver"
FORGET = "notify.forget"
JITTER = 0.2  # up to a fifth longer, so that deliveries that failed together are not retried together
# Short for a hiccup, then as long as a lunch break, a working day, a night: 27 hours for eight attempts.
BACKOFF = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
)


def backoff_after(attempts: int) -> timedelta:
    """The delay after this many failed attempts."""
    delay = BACKOFF[min(max(attempts, 1), len(BACKOFF)) - 1]
    return delay * (1 + JITTER * random.random())  # noqa: S311  (jitter, not a secret)


def delivery_job(delivery: Delivery, *, turn: int, delay: timedelta = timedelta()) -> NewJob:
    """The job for one attempt of a delivery."""
    return NewJob(
        id=f"notify:{delivery.id}:{turn}",
        kind=DELIVER,
        payload={"webhook_id": delivery.webhook_id, "delivery_id": delivery.id, "turn": turn},
        module=MODULE,
        delay_seconds=delay.total_seconds(),
    )


def cleanup_job(webhook_id: str) -> NewJob:
    """The job that deletes the deliveries of a removed webhook."""
    return NewJob(id=f"notify:forget:{webhook_id}", kind=FORGET, payload={"webhook_id": webhook_id}, module=MODULE)
