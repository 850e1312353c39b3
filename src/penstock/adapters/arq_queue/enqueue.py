"""Enqueue rows of the `job` table as ARQ jobs.

The ARQ job id is the id of the row, the function its kind, and the arguments those that the module names, so that ARQ's
own `Job` and `queued_jobs` show what waits. Jobs are written in ARQ's format as JSON, but in batches: ARQ's
`enqueue_job` needs three round trips each. Enqueuing is idempotent.

Two installations must not share one Redis database: their ARQ jobs would have the same ids.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import msgspec
from arq.constants import in_progress_key_prefix, job_key_prefix, result_key_prefix
from arq.jobs import serialize_job
from arq.utils import timestamp_ms

from penstock.adapters.redis.client import Argument, RedisClient, Script
from penstock.kernel.clock import Clock
from penstock.kernel.db import Tx
from penstock.kernel.job_dispatch import ArqFunction, JobsWaiting, WaitingJob
from penstock.kernel.json_object import JsonObject
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.relay import SinkResult

OWN = "penstock"  # a key of our ARQ jobs; those of other programs lack it
EXPIRY_SECONDS = 86400.0  # after its due time; the reconciler enqueues a job that waits longer again
# ARQ takes jobs by score, and only scores up to the present. The score of a due job is its due time minus three years
# per priority step: integers that a double holds exactly, and never zero, which ARQ ignores.
PRIORITY_MS = 10**11
PRIORITY_OFFSET = 40_000  # priorities are below 32,768

# A job that waits again is neither in progress nor complete.
PUSH = Script("""
local queue, jobs, marks, results, added = KEYS[1], ARGV[1], ARGV[2], ARGV[3], 0
for at = 4, #ARGV, 4 do
    local name, arq_job, expiry_ms, score = unpack(ARGV, at, at + 3)
    redis.call("SET", jobs .. name, arq_job, "PX", expiry_ms)
    redis.call("DEL", marks .. name, results .. name)
    added = added + redis.call("ZADD", queue, score, name)
end
return added
""")


QueueNames = Mapping[str, str]  # by module, where the ARQ queue name is configured
NO_NAMES: QueueNames = MappingProxyType({})
ArqFunctions = Mapping[str, ArqFunction]  # by job kind
NO_FUNCTIONS: ArqFunctions = MappingProxyType({})


def queue_name(module: str, names: QueueNames = NO_NAMES) -> str:
    """The ARQ queue of a module."""
    return names.get(module, f"penstock:jobs:{module}")


def wake_channel(module: str) -> str:
    """The wake-up channel of the workers of a module."""
    return f"tickets:{module}"


def score(job: WaitingJob, now: datetime) -> int:
    """The position in the queue: due jobs by priority and due time, later jobs by due time alone."""
    due_ms = math.ceil(job.due_at.timestamp() * 1000)  # rounded down, it would arrive before the table finds it due
    return due_ms if job.due_at > now else due_ms + (job.priority - PRIORITY_OFFSET) * PRIORITY_MS


def _encode_own(arq_job: JsonObject) -> bytes:
    return msgspec.json.encode({**arq_job, OWN: 1})


class ArqEnqueuer:
    """Enqueues ARQ jobs. As an outbox sink it handles `JobsWaiting`."""

    channels: Collection[str] = frozenset({JobsWaiting.__name__})

    def __init__(
        self,
        redis: RedisClient,
        clock: Clock,
        *,
        names: QueueNames = NO_NAMES,
        functions: ArqFunctions = NO_FUNCTIONS,
    ) -> None:
        self._redis = redis
        self._clock = clock
        self._names = names
        self._functions = functions

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Enqueue the jobs named in these messages and wake the workers of their modules."""
        jobs = [job for message in messages for job in JobsWaiting(**message.payload).waiting()]
        await self.push(jobs)
        channels = {wake_channel(job.module) for job in jobs}

        async def wake(tx: Tx, _sent: Sequence[OutboxMessage]) -> None:
            for channel in channels:
                tx.wake(channel)

        return SinkResult(write=wake)

    async def push(self, jobs: Iterable[WaitingJob]) -> int:
        """Ensure that these jobs are enqueued, in order; returns how many were not."""
        by_module: defaultdict[str, list[Argument]] = defaultdict(list)
        now, now_ms = self._clock.now(), timestamp_ms()
        for job in jobs:
            attempt, arguments = job.attempt + 1, self._arguments(job)
            arq_job = serialize_job(job.kind, arguments, {}, attempt, now_ms, serializer=_encode_own)
            expiry_ms = int((max(0.0, (job.due_at - now).total_seconds()) + EXPIRY_SECONDS) * 1000)
            by_module[job.module] += [job.id, arq_job, expiry_ms, score(job, now)]
        prefixes = (job_key_prefix, in_progress_key_prefix, result_key_prefix)
        return sum(
            [
                await self._redis.run_script(PUSH, [queue_name(module, self._names)], *prefixes, *arq_jobs)
                for module, arq_jobs in by_module.items()
            ]
        )

    def _arguments(self, job: WaitingJob) -> tuple[int, ...]:
        known = self._functions.get(job.kind)
        return () if known is None else tuple(job.numbers[name] for name in known.arguments if name in job.numbers)


class ArqQueuePositions:
    """Where waiting jobs stand: Redis knows the rank of a member of a sorted set."""

    def __init__(self, redis: RedisClient, *, names: QueueNames = NO_NAMES) -> None:
        self._redis = redis
        self._names = names

    async def find_position(self, module: str, job_id: str) -> int | None:
        """1 for the job that is next; None if it is not enqueued."""
        rank = await self._redis.execute("ZRANK", queue_name(module, self._names), job_id)
        return None if rank is None else int(rank) + 1
