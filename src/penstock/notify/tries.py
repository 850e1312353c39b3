"""When a delivery is tried, and the job that tries it.

A try is a job of its own, written in the transaction that settles the try before: so the log and what comes next can
never disagree, and the waits are those of a receiver that is being mended, not those of our own jobs. A receiver that
is away is thereby no failed job of ours; jobs that fail are faults of the house.
"""

import random
from datetime import timedelta

from penstock.kernel.queue import NewJob
from penstock.notify.domain import Delivery

ROOM = "notify"
DELIVER = "notify.deliver"
FORGET = "notify.forget"
SPREAD = 0.2  # up to a fifth later, so that what failed together does not come back together
# Quick for a hiccup, then the length of a lunch, a working day, a night: with eight tries 27 hours.
WAITS = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
)


def wait_after(attempts: int) -> timedelta:
    """How long to wait after that many failed tries."""
    wait = WAITS[min(max(attempts, 1), len(WAITS)) - 1]
    return wait * (1 + SPREAD * random.random())  # noqa: S311  (spread, not secrecy)


def try_job(delivery: Delivery, *, turn: int, wait: timedelta = timedelta()) -> NewJob:
    """The job of one turn of a delivery."""
    return NewJob(
        id=f"notify:{delivery.id}:{turn}",
        kind=DELIVER,
        payload={"webhook_id": delivery.webhook_id, "delivery_id": delivery.id, "turn": turn},
        room=ROOM,
        delay_seconds=wait.total_seconds(),
    )


def forget_job(webhook_id: str) -> NewJob:
    """The job that deletes what was sent to a webhook that is gone."""
    return NewJob(id=f"notify:forget:{webhook_id}", kind=FORGET, payload={"webhook_id": webhook_id}, room=ROOM)
