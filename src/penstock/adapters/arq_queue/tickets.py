"""Tickets: jobs of the ledger as ARQ sees them.

A ticket is called `{job id}:{attempt}`, so pushing it twice is pushing it once, and an attempt that was rescued from a
dead worker has a ticket of its own. It is written in ARQ's own format, but many at once: ARQ's `enqueue_job` needs
three round trips for each.
"""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec
from arq.constants import job_key_prefix
from arq.jobs import serialize_job
from arq.utils import timestamp_ms

from penstock.adapters.redis.link import Argument, RedisLink, Script
from penstock.kernel.clock import Clock
from penstock.kernel.db import Tx
from penstock.kernel.job_dispatch import JobsWaiting, WaitingJob
from penstock.kernel.outbox import Parcel

FUNCTION = "penstock.job"
LASTS_SECONDS = 86400.0  # after its due time; the reconciler gives a job that waits longer another one
# ARQ hands out by score, and only scores up to the present. The score of what is due is its due time, less three years
# for each step of priority: whole numbers that a float holds exactly, and never zero, which means nothing to ARQ.
PRIORITY_MS = 10**11
BELOW_ALL = 40_000  # priorities are below 32,768

PUSH = Script("""
local added = 0
for at = 2, #ARGV, 4 do
    local name, ticket, lasts_ms, score = unpack(ARGV, at, at + 3)
    if redis.call("SET", ARGV[1] .. name, ticket, "NX", "PX", lasts_ms) then
        added = added + 1
    end
    redis.call("ZADD", KEYS[1], score, name)
end
return added
""")


QueueNames = Mapping[str, str]  # of rooms whose ARQ queue has a name that was set
NO_NAMES: QueueNames = MappingProxyType({})


def queue_name(room: str, names: QueueNames = NO_NAMES) -> str:
    """The ARQ queue of a room."""
    return names.get(room, f"penstock:jobs:{room}")


def ticket_channel(room: str) -> str:
    """The wake-up channel of those who take a room's tickets."""
    return f"tickets:{room}"


def ticket_name(job: WaitingJob) -> str:
    """The ARQ job id. Ids may hold colons; attempts do not, so no two names are alike."""
    return f"{job.id}:{job.attempt}"


def score(job: WaitingJob, now: datetime) -> int:
    """Where a ticket stands: what is due by priority and due time, what is not due yet by its due time alone."""
    due_ms = math.ceil(job.due_at.timestamp() * 1000)  # rounded down, it would come before the ledger finds it due
    return due_ms if job.due_at > now else due_ms + (job.priority - BELOW_ALL) * PRIORITY_MS


class Tickets:
    """Puts tickets into ARQ's queues. As a carrier, it takes `JobsWaiting` there."""

    channels: Collection[str] = frozenset({JobsWaiting.__name__})

    def __init__(self, link: RedisLink, clock: Clock, *, names: QueueNames = NO_NAMES) -> None:
        self._link = link
        self._clock = clock
        self._names = names

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]]:
        """Push tickets for the jobs that a message names, and wake the workers of their rooms."""
        jobs = JobsWaiting(**parcel.payload).waiting()
        await self.push(jobs)
        channels = {ticket_channel(job.module) for job in jobs}

        async def wake(tx: Tx) -> None:
            for channel in channels:
                tx.wake(channel)

        return wake

    async def push(self, jobs: Iterable[WaitingJob]) -> int:
        """Make sure that these jobs have tickets, and in their order; returns how many had none."""
        by_room: defaultdict[str, list[Argument]] = defaultdict(list)
        now, now_ms = self._clock.now(), timestamp_ms()
        for job in jobs:
            ticket = serialize_job(FUNCTION, (job.id,), {}, None, now_ms, serializer=msgspec.json.encode)
            lasts_ms = int((max(0.0, (job.due_at - now).total_seconds()) + LASTS_SECONDS) * 1000)
            by_room[job.module] += [ticket_name(job), ticket, lasts_ms, score(job, now)]
        return sum(
            [
                await self._link.run(PUSH, [queue_name(room, self._names)], job_key_prefix, *tickets)
                for room, tickets in by_room.items()
            ]
        )
