"""Every statement that runs often, or on a large table, is served by an index: the databases' own plans say so.

The statements are recorded while the kernel's verbs run, so what is explained here is what runs there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import literal, select

from penstock.kernel import idempotency, outbox, queue, transitions
from penstock.kernel.clock import ManualClock
from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Db
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.job_search import (
    JobFilter,
    list_ended_jobs,
    list_running_jobs,
    position_of,
    revive_failed_jobs,
)
from penstock.kernel.leases import EPOCH, Leases
from penstock.kernel.partitions import set_ceiling
from penstock.kernel.runstate import SqlRunState, run_state
from tests import plans
from tests.conftest import open_db, rolled_back
from tests.plans import NOW, explain, kept_plan, look, reads_a_whole_table, recorded, sorts
from tests.servers.postgres import Databases

ROWS = 20_000
FEW = 100
FULL = "penstock_plans_full"
FILTERS = (
    JobFilter(module="module1", kind="k"),
    JobFilter(error_code="WORKER_LOST"),
    JobFilter(since=NOW - timedelta(hours=1), until=NOW),
)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Something the kernel does, the table it does it on and the index that must serve it."""

    name: str
    table: str
    index: str
    run: Callable[[Db], Awaitable[object]]


async def claim(db: Db) -> None:
    async with db.tx() as tx:
        await Leases(queue.job, queue.LEASE_STATES).claim(tx, owner="me", seconds=60, limit=10, partition="module1")


async def claim_under_a_ceiling(db: Db) -> None:
    async with db.tx() as tx:
        await set_ceiling(tx, "job", "module2", ROWS)
        await Leases(queue.job, queue.LEASE_STATES).claim(tx, owner="me", seconds=60, limit=10, partition="module2")


async def claim_messages(db: Db) -> None:
    async with db.tx() as tx:
        await Leases(outbox.outbox, outbox.LEASE_STATES).claim(tx, owner="me", seconds=60, limit=10)


async def promote(db: Db) -> None:
    async with db.tx() as tx:
        await Leases(queue.job, queue.LEASE_STATES).promote(tx)


async def next_due(db: Db) -> None:
    async with db.tx() as tx:
        await Leases(queue.job, queue.LEASE_STATES).next_due_at(tx)


async def rescue(db: Db) -> None:
    async with db.tx() as tx:
        await queue.JobQueue().rescue(tx)


async def look_for_jobs(db: Db) -> None:
    await Leases(queue.job, queue.LEASE_STATES).may_have_due(db, ["module1", "module2"])
    await asyncio.sleep(0)  # PostgreSQL's driver tells of a statement after it


async def look_for_lapsed(db: Db) -> None:
    lapsed = Leases(queue.job, queue.LEASE_STATES).has_expired(literal(EPOCH, UtcTime), literal(NOW, UtcTime))
    async with db.read() as tx:
        await tx.conn.scalar(select(lapsed))


async def list_failed(db: Db) -> None:
    async with db.tx() as tx:
        if page := await list_ended_jobs(tx, JobFilter(), limit=FEW):
            await list_ended_jobs(tx, JobFilter(), limit=FEW, after=position_of(page[-1]))
        for chosen in FILTERS:
            await list_ended_jobs(tx, chosen, limit=FEW)


async def revive_failed(db: Db) -> None:
    async with rolled_back(db) as tx:
        await revive_failed_jobs(tx, queue.JobQueue(), FILTERS[-1], limit=FEW)


async def list_running(db: Db) -> None:
    async with db.read() as tx:
        await list_running_jobs(tx, JobFilter(module="module1"))


async def list_dead(db: Db) -> None:
    async with db.tx() as tx:
        await outbox.list_dead_letters(tx, before="msg_010000", limit=FEW)
        await outbox.list_dead_letters(tx, outbox.DeadLetterFilter(channel="Said", since=NOW), limit=FEW)


async def resend_dead(db: Db) -> None:
    async with rolled_back(db) as tx:
        await outbox.resend_dead_letters(tx, outbox.DeadLetterFilter(until=NOW), limit=FEW)


async def forget_jobs(db: Db) -> None:
    async with db.tx() as tx:
        await queue.delete_finished_jobs(tx, before=NOW, limit=FEW)


async def forget_messages(db: Db) -> None:
    async with db.tx() as tx:
        await outbox.delete_sent(tx, before=NOW, limit=FEW)


async def forget_moves(db: Db) -> None:
    async with db.tx() as tx:
        await transitions.delete_transitions(tx, before=NOW, limit=FEW)


async def forget_keys(db: Db) -> None:
    async with db.tx() as tx:
        await idempotency.delete_keys(tx, before=NOW, limit=FEW)


async def list_moves(db: Db) -> None:
    async with db.tx() as tx:
        await transitions.list_transitions(tx, "job", "job_000001")


def runs(db: Db) -> SqlRunState:
    return SqlRunState(db, live_seconds=60, final_seconds=60)


VERBS = [
    Verb(name="claim", table="job", index="ix_job_ready", run=claim),
    Verb(name="count held", table="job", index="ix_job_held", run=claim_under_a_ceiling),
    Verb(name="claim messages", table="outbox", index="ix_outbox_ready", run=claim_messages),
    Verb(name="promote", table="job", index="ix_job_deferred", run=promote),
    Verb(name="next due", table="job", index="ix_job_deferred", run=next_due),
    Verb(name="rescue", table="job", index="ix_job_held", run=rescue),
    Verb(name="look for ready", table="job", index="ix_job_ready", run=look_for_jobs),
    Verb(name="look for deferred", table="job", index="ix_job_deferred", run=look_for_jobs),
    Verb(name="look for lapsed", table="job", index="ix_job_held", run=look_for_lapsed),
    Verb(name="list failed jobs", table="job", index="ix_job_over", run=list_failed),
    Verb(name="revive failed jobs", table="job", index="ix_job_over", run=revive_failed),
    Verb(name="list running jobs", table="job", index="ix_job_held", run=list_running),
    Verb(name="resend dead letters", table="outbox", index="ix_outbox_dead", run=resend_dead),
    Verb(name="list dead letters", table="outbox", index="ix_outbox_dead", run=list_dead),
    Verb(name="forget jobs", table="job", index="ix_job_over", run=forget_jobs),
    Verb(name="forget messages", table="outbox", index="ix_outbox_sent", run=forget_messages),
    Verb(name="forget moves", table="state_transitions", index="ix_state_transitions_at", run=forget_moves),
    Verb(name="forget keys", table="idempotency_key", index="ix_idempotency_key_at", run=forget_keys),
    Verb(name="list moves", table="state_transitions", index="ix_state_transitions_entity", run=list_moves),
    Verb(
        name="list runs",
        table="run_state",
        index="ix_run_state_status",
        run=lambda db: runs(db).list_by_status("rare", after="run_001"),
    ),
    Verb(
        name="sweep runs", table="run_state", index="ix_run_state_expires_at", run=lambda db: runs(db).sweep(limit=FEW)
    ),
]
every_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name.replace(" ", "_"))


# The databases: new (never looked at), empty (looked at while nothing was in it), full. The pooled ones are PostgreSQL
# as it is behind a transaction pooler: without settings of the session.
DATABASES = ("new sqlite", "full sqlite", "new postgres", "empty postgres", "full postgres")


@pytest.fixture(scope="module")
def full_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.full_postgres(postgres_server, FULL, _fill) as url:
        yield url


@pytest.fixture(scope="module")
def full_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, _fill)


@pytest.fixture(params=[*DATABASES, "new pooled", "empty pooled", "full pooled"])
def tables_at(request: pytest.FixtureRequest) -> tuple[str, str, bool]:
    state, kind = request.param.split()
    pooled = kind == "pooled"
    kind = "postgres" if pooled else kind
    return state, request.getfixturevalue(f"full_{kind}" if state == "full" else f"{kind}_url"), pooled


@pytest.fixture
async def tables(tables_at: tuple[str, str, bool]) -> AsyncIterator[Db]:
    state, url, pooled = tables_at
    db = open_db(url, ManualClock(NOW), pooled=pooled)
    if state == "empty":
        await look(db)
    yield db
    await db.close()


async def _fill(db: Db) -> None:
    async with db.tx() as tx:
        await insert_rows(tx, queue.job, JOB_COLUMNS, [_job(number) for number in range(ROWS)])
        await insert_rows(tx, outbox.outbox, MESSAGE_COLUMNS, [_message(number) for number in range(ROWS)])
        moves = [
            ("job", f"job_{number:06}", None, "waiting", "enqueue", "me", _moment(number)) for number in range(ROWS)
        ]
        await insert_rows(tx, transitions.state_transitions, transitions.COLUMNS, moves)
        keys = [("key:1", f"k{number:06}", "f", {"id": number}, _moment(number)) for number in range(ROWS)]
        await insert_rows(tx, idempotency.idempotency_key, idempotency.COLUMNS, keys)
        await insert_rows(tx, run_state, RUN_COLUMNS, [_run(number) for number in range(ROWS)])


LEASE_COLUMNS = ("id", "state", "scheduled_at", "deferred", "lease_token", "leased_until", "created_at", "finished_at")
JOB_COLUMNS = (
    *LEASE_COLUMNS,
    "kind",
    "payload",
    "partition_key",
    "priority",
    "most_attempts",
    "timeout_seconds",
    "created_by",
)
MESSAGE_COLUMNS = (*LEASE_COLUMNS, "channel", "dedup_key", "payload")
RUN_COLUMNS = ("key", "run", "order", "status", "final", "fields", "updated_at", "expires_at")
JOB_STATES = ["waiting", "waiting", "waiting", "running", "done", "done", "done", "done", "failed", "cancelled"]
MESSAGE_STATES = ["waiting", "waiting", "sending", "sent", "sent", "sent", "sent", "sent", "sent", "dead"]


def _moment(number: int) -> datetime:
    """Half of the rows lie before `NOW`."""
    return NOW + timedelta(seconds=number - ROWS // 2)


def _leased(prefix: str, number: int, state: str) -> tuple[Any, ...]:
    at, held = _moment(number), state in {"running", "sending"}
    over = state in {"done", "failed", "cancelled", "sent", "dead"}
    lease = ("token", at) if held else (None, None)
    return (f"{prefix}_{number:06}", state, at, number % 10 == 1, *lease, at, at if over else None)


def _job(number: int) -> tuple[Any, ...]:
    own: tuple[Any, ...] = ("k", {}, f"module{number // 10 % 5}", number // 10 % 9, 5, 60.0, "me")
    return (*_leased("job", number, JOB_STATES[number % 10]), *own)


def _message(number: int) -> tuple[Any, ...]:
    return (*_leased("msg", number, MESSAGE_STATES[number % 10]), "Said", str(number), {})


def _run(number: int) -> tuple[Any, ...]:
    status = "rare" if number % 50 == 0 else "usual"
    return (f"run_{number:06}", 1, 1, status, False, {}, NOW, _moment(number))


@every_verb
async def test_it_is_served_by_its_index(tables: Db, verb: Verb):
    with recorded(tables, verb.table) as statements:
        await verb.run(tables)
    assert statements
    steps = [step for statement in statements for step in await explain(tables, *statement)]
    assert [step for step in steps if reads_a_whole_table(step) and step != "SCAN CONSTANT ROW"] == []
    assert any(verb.index in step for step in steps), steps


@every_verb
async def test_it_sorts_nothing_on_a_full_table(full_sqlite: str, full_postgres: str, verb: Verb):
    for url in (full_sqlite, full_postgres):
        db = open_db(url, ManualClock(NOW))
        with recorded(db, verb.table) as statements:
            await verb.run(db)
        steps = [step for statement in statements for step in await explain(db, *statement)]
        await db.close()
        assert [step for step in steps if sorts(step)] == []


@pytest.mark.parametrize("tables_at", ["new postgres", "empty postgres", "full postgres"], indirect=True)
@pytest.mark.parametrize("verb", VERBS[:9], ids=lambda verb: verb.name.replace(" ", "_"))
async def test_the_plan_that_postgres_keeps_is_good_too(tables: Db, verb: Verb):
    """After five runs PostgreSQL may keep a plan for any parameters, and use it while the table grows."""
    with recorded(tables, verb.table) as statements:
        await verb.run(tables)
    kept = [await kept_plan(tables, f"kept_{number}", statement) for number, (statement, _) in enumerate(statements)]
    for steps in kept:
        assert [step for step in steps if reads_a_whole_table(step) or sorts(step)] == []
        assert any("ix_" in step or "pk_job" in step for step in steps), steps  # a job that was rescued, by its key
    assert any(verb.index in step for steps in kept for step in steps), kept
