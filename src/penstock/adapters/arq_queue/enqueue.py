"""Enqueue rows of the `job` table as ARQ jobs.

The ARQ job id is `{job id}:{attempt}`, so enqueuing is idempotent and an attempt rescued from a dead worker gets an
ARQ job of its own. Jobs are written in ARQ's own format, but in batches: ARQ's `enqueue_job` needs three round trips
each.
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

from penstock.adapters.redis.client import Argument, RedisClient, Script
from penstock.kernel.clock import Clock
from penstock.kernel.db import Tx
from penstock.kernel.job_dispatch import JobsWaiting, WaitingJob
from penstock.kernel.outbox import Parcel

FUNCTION = "penstock.job"
EXPIRY_SECONDS = 86400.0  # after its due time; the reconciler enqueues a job that waits longer again
# ARQ takes jobs by score, and only scores up to the present. The score of a due job is its due time minus three years
# per priority step: integers that a double holds exactly, and never zero, which ARQ ignores.
PRIORITY_MS = 10**11
PRIORITY_OFFSET = 40_000  # priorities are below 32,768

PUSH = Script("""
local added = 0
for at = 2, #ARGV, 4 do
    local name, arq_job, expiry_ms, score = unpack(ARGV, at, at + 3)
    if redis.call("SET", ARGV[1] .. name, arq_job, "NX", "PX", expiry_ms) then
        added = added + 1
    end
    redis.call("ZADD", KEYS[1], score, name)
end
return added
""")


QueueNames = Mapping[str, str]  # by module, where the ARQ queue name is configured
NO_NAMES: QueueNames = MappingProxyType({})


def queue_name(module: str, names: QueueNames = NO_NAMES) -> str:
    """The ARQ queue of a module."""
    return names.get(module, f"penstock:jobs:{module}")


def wake_channel(module: str) -> str:
    """The wake-up channel of the workers of a module."""
    return f"tickets:{module}"


def arq_job_id(job: WaitingJob) -> str:
    """The ARQ job id. It is unique: job ids may contain colons, attempts do not."""
    return f"{job.id}:{job.attempt}"


def score(job: WaitingJob, now: datetime) -> int:
    """The position in the queue: due jobs by priority and due time, later jobs by due time alone."""
    due_ms = math.ceil(job.due_at.timestamp() * 1000)  # rounded down, it would arrive before the table finds it due
    return due_ms if job.due_at > now else due_ms + (job.priority - PRIORITY_OFFSET) * PRIORITY_MS


class ArqEnqueuer:
    """Enqueues ARQ jobs. As an outbox sink it handles `JobsWaiting`."""

    channels: Collection[str] = frozenset({JobsWaiting.__name__})

    def __init__(self, redis: RedisClient, clock: Clock, *, names: QueueNames = NO_NAMES) -> None:
        self._redis = redis
        self._clock = clock
        self._names = names

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]]:
        """Enqueue the jobs named in a message and wake the workers of their modules."""
        jobs = JobsWaiting(**parcel.payload).waiting()
        await self.push(jobs)
        channels = {wake_channel(job.module) for job in jobs}

        async def wake(tx: Tx) -> None:
            for channel in channels:
                tx.wake(channel)

        return wake

    async def push(self, jobs: Iterable[WaitingJob]) -> int:
        """Ensure that these jobs are enqueued, in order; returns how many were not."""
        by_module: defaultdict[str, list[Argument]] = defaultdict(list)
        now, now_ms = self._clock.now(), timestamp_ms()
        for job in jobs:
            arq_job = serialize_job(FUNCTION, (job.id,), {}, None, now_ms, serializer=msgspec.json.encode)
            expiry_ms = int((max(0.0, (job.due_at - now).total_seconds()) + EXPIRY_SECONDS) * 1000)
            by_module[job.module] += [arq_job_id(job), arq_job, expiry_ms, score(job, now)]
        return sum(
            [
                await self._redis.run_script(PUSH, [queue_name(module, self._names)], job_key_prefix, *arq_jobs)
                for module, arq_jobs in by_module.items()
            ]
        )
