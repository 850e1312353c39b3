"""Figures: what is counted, and what a look at them costs."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, literal, select

from penstock.kernel import queue_stats
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.message import Event, Message
from penstock.kernel.metrics import DatabaseMetrics, Metrics, gauge
from penstock.kernel.outbox import outbox
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import JobQueue, NewJob
from penstock.kernel.queue_stats import get_queue_stats
from tests.conftest import open_db


@dataclass(frozen=True, kw_only=True)
class Said(Message):
    """Something to deliver."""


@dataclass
class FewStreams:
    """Streams of events."""

    streams: int = 3
    dropped: int = 7


@dataclass
class StuckBreaker:
    """A breaker that is open."""

    name: str = "redis"
    open: bool = True
    reason: str = "it failed"


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def read(metrics: Metrics) -> Samples:
    page = (await metrics.page()).decode()
    families = text_string_to_metric_families(page)
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, /, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def names(samples: Samples) -> set[str]:
    return {name for name, _ in samples}


async def fill(db: Db, clock: ManualClock) -> None:
    """Jobs and messages in every state."""
    queue = JobQueue()
    async with db.tx() as tx:
        await queue.enqueue(tx, *[NewJob(kind="k", module="etl") for _ in range(5)], NewJob(kind="k"))
        await queue.enqueue(tx, NewJob(kind="k", module="etl", delay_seconds=100))
        tx.send(Said())
        tx.send(Said())
        tx.publish(Event(topic="job:1", kind="done"))
        tx.publish(Event(topic="job:2", kind="done"))
    async with db.tx() as tx:
        [failed, _] = await queue.claim(tx, owner="o", seconds=60, limit=2, module="etl")
        await queue.fail(tx, failed, code="X", error="x")
    async with db.tx() as tx:
        some = outbox.select().limit(1)
        row = (await tx.conn.execute(some)).one()
        await tx.conn.execute(outbox.update().where(outbox.c.id == row.id).values(state="dead", finished_at=tx.now))
    clock.advance(seconds=30)
    await Heartbeat(db, owner="w:1", kind=ProcessKind.WORK, modules=["etl"], version="1").beat()


class TestTraffic:
    async def test_latencies_are_spread_over_buckets(self, db: Db):
        metrics = Metrics(db, version="1.2")
        for seconds in (0.001, 0.005, 0.2, 60.0):
            metrics.http.count("GET", "/x", 200, seconds)
        samples = await read(metrics)
        assert value(samples, "penstock_http_requests_total", method="GET", route="/x", status="200") == 4
        of = {"method": "GET", "route": "/x"}
        assert value(samples, "penstock_http_request_seconds_bucket", le="0.005", **of) == 2
        assert value(samples, "penstock_http_request_seconds_bucket", le="0.25", **of) == 3
        assert value(samples, "penstock_http_request_seconds_bucket", le="+Inf", **of) == 4
        assert value(samples, "penstock_http_request_seconds_count", **of) == 4
        assert value(samples, "penstock_http_request_seconds_sum", **of) == pytest.approx(60.206)


class TestWork:
    async def test_jobs_messages_and_processes_are_counted(self, db: Db, clock: ManualClock):
        await fill(db, clock)
        samples = await read(Metrics(db, version="1.2"))
        assert value(samples, "penstock_work_known") == 1
        assert value(samples, "penstock_jobs", state="waiting", room="etl") == 3
        assert value(samples, "penstock_jobs", state="waiting", room="") == 1
        assert value(samples, "penstock_jobs", state="deferred", room="etl") == 1
        assert value(samples, "penstock_jobs", state="running", room="etl") == 1
        assert value(samples, "penstock_jobs", state="failed", room="etl") == 1
        assert value(samples, "penstock_jobs_oldest_seconds", room="etl") == 30
        assert value(samples, "penstock_outbox", state="waiting") == 1
        assert value(samples, "penstock_outbox", state="dead") == 1
        assert value(samples, "penstock_outbox_oldest_seconds") == 30
        assert value(samples, "penstock_events_waiting") == (2 if db.database_name == "postgresql" else 0)
        assert value(samples, "penstock_processes", kind="work") == 1
        assert value(samples, "penstock_processes", kind="serve") == 0

    async def test_an_empty_database_has_empty_queues(self, db: Db):
        async with db.read() as tx:
            counted = await get_queue_stats(tx)
        assert not counted.jobs
        assert counted.messages == {"waiting": 0, "sending": 0, "dead": 0}
        assert counted.message_wait == 0

    async def test_a_count_has_an_end(self, db: Db, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(queue_stats, "MAX_COUNTED", 2)
        await fill(db, clock)
        async with db.read() as tx:
            assert (await get_queue_stats(tx)).jobs["waiting", "etl"] == 2

    async def test_concurrent_scrapes_query_the_database_once(self, db: Db, clock: ManualClock):
        statements: list[str] = []

        @event.listens_for(db._reader.sync_engine, "before_cursor_execute")
        def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
            statements.append(statement)

        metrics = Metrics(db, version="1.2")
        await metrics.page()
        first = len(statements)
        assert first
        await asyncio.gather(*(metrics.page() for _ in range(50)))
        event.remove(db._reader.sync_engine, "before_cursor_execute", note)
        assert len(statements) == first

    async def test_without_a_database_the_other_figures_are_shown(self):
        db = open_db("postgresql://nobody@127.0.0.1:1/nowhere", ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
        metrics = Metrics(db, version="1.2")
        metrics.http.count("GET", "/x", 200, 0.1)
        samples = await read(metrics)
        assert value(samples, "penstock_work_known") == 0
        assert value(samples, "penstock_http_requests_total", method="GET", route="/x", status="200") == 1
        assert "penstock_jobs" not in names(samples)
        await db.close()


class TestParts:
    async def test_streams_breakers_and_the_version_are_shown(self, db: Db):
        samples = await read(Metrics(db, version="1.2", streams=FewStreams(), breakers=[StuckBreaker()]))
        assert value(samples, "penstock_version", version="1.2") == 1
        assert value(samples, "penstock_sse_streams") == 3
        assert value(samples, "penstock_sse_dropped_total") == 7
        assert value(samples, "penstock_breaker_open", name="redis") == 1
        assert "process_resident_memory_bytes" in names(samples)

    async def test_two_registries_count_separately(self, db: Db):
        one, other = Metrics(db, version="1"), Metrics(db, version="2")
        one.http.count("GET", "/x", 200, 0.1)
        assert "penstock_http_requests_total" not in names(await read(other))


class Doors(DatabaseMetrics[int]):
    """The metrics of a module: how often it queried the database, and a number that needs no query."""

    def __init__(self, db: Db) -> None:
        self.asked = 0
        super().__init__(db, self._look_up)

    async def _look_up(self, tx: Tx) -> int:
        self.asked += 1
        return await tx.conn.scalar(select(literal(7))) or 0

    def collect(self) -> Iterable[Metric]:
        yield gauge("doors", "How many there are.", {} if self.value is None else {"": self.value})
        yield gauge("windows", "Known without asking.", {"": 2})


class TestModules:
    async def test_a_module_adds_its_own_metrics(self, db: Db):
        samples = await read(Metrics(db, version="1", more=[Doors(db)]))
        assert (value(samples, "doors"), value(samples, "windows")) == (7, 2)
        assert value(samples, "penstock_work_known") == 1

    async def test_a_module_metric_is_cached_for_a_moment(self, db: Db):
        doors = Doors(db)
        metrics = Metrics(db, version="1", more=[doors])
        await asyncio.gather(*(metrics.page() for _ in range(20)))
        assert doors.asked == 1

    async def test_a_failing_module_metric_does_not_hide_the_rest(self):
        away = open_db("postgresql://nobody@127.0.0.1:1/nowhere", ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
        samples = await read(Metrics(away, version="1", more=[Doors(away)]))
        assert "doors" not in names(samples)
        assert value(samples, "windows") == 2
        await away.close()
