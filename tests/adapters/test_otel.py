"""Traces of requests and jobs, as a collector receives them."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from fastapi import APIRouter
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.adapters.otel import CLOSE_SECONDS, OtelTracing
from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from penstock.kernel.logs import trace_id
from penstock.kernel.queue import Job, JobQueue, NewJob
from penstock.kernel.workers import Settle, Workers
from penstock.settings import Settings
from penstock.web import health
from penstock.web.app import App, build_app
from penstock.wiring import open_runtime
from tests.asgi import send_request
from tests.fakes.collector import Collector, attributes, collecting

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def exporters_end() -> Iterator[None]:
    """No exporter thread outlives its test: it draws random delays, which Hypothesis refuses in later tests."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("Otel"):
            thread.join(30)
            assert not thread.is_alive()


def tracing_to(url: str) -> OtelTracing:
    return OtelTracing(url, service_name="mill", version="1.2", owner="host:1")


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running


@pytest.fixture
async def tracing(collector: Collector) -> AsyncIterator[OtelTracing]:
    opened = tracing_to(collector.url)
    yield opened
    await opened.close()


def things(tracing: OtelTracing) -> APIRouter:
    router = APIRouter()

    @router.get("/things/{thing_id}")
    async def read(thing_id: int) -> dict[str, str]:
        return tracing.outgoing() | {"trace": trace_id.get()}

    @router.get("/fail")
    async def fail() -> None:
        raise RuntimeError("password=hunter2")

    return router


@pytest.fixture
async def app(tracing: OtelTracing, tmp_path: Path) -> AsyncIterator[App]:
    async with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        yield build_app(replace(runtime, tracing=tracing), routers=[health.router, things(tracing)])


class TestRequests:
    async def test_a_request_is_a_span_with_its_template_and_no_query(
        self, app: App, tracing: OtelTracing, collector: Collector
    ):
        await send_request(app, "GET", "/things/7?note=hunter2", x_request_id="mine")
        await tracing.flush()
        [span] = collector.spans
        assert (span.name, span.kind) == ("GET /things/{thing_id}", Span.SPAN_KIND_SERVER)
        assert attributes(span) == {
            "http.request.method": "GET",
            "http.route": "/things/{thing_id}",
            "http.response.status_code": 200,
            "penstock.request_id": "mine",
        }
        assert b"hunter2" not in b"".join(collector.bodies)
        assert collector.resource["service.name"] == "mill"
        assert collector.resource["service.instance.id"] == "host:1"

    async def test_a_callers_trace_is_continued(self, app: App, tracing: OtelTracing, collector: Collector):
        answer = await send_request(app, "GET", "/things/7", traceparent=f"00-{TRACE}-{PARENT}-01")
        await tracing.flush()
        [span] = collector.spans
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert answer.json == {"traceparent": f"00-{TRACE}-{span.span_id.hex()}-01", "trace": TRACE}

    @pytest.mark.parametrize("odd", ["nonsense", "00-0-0-01", f"00-{'0' * 32}-{PARENT}-01", "é", ""])
    async def test_a_malformed_trace_is_ignored(self, app: App, tracing: OtelTracing, collector: Collector, odd: str):
        assert (await send_request(app, "GET", "/things/7", traceparent=odd)).status == 200
        await tracing.flush()
        [span] = collector.spans
        assert span.parent_span_id == b""

    async def test_a_failure_is_marked_without_its_message(self, app: App, tracing: OtelTracing, collector: Collector):
        assert (await send_request(app, "GET", "/fail")).status == 500
        assert (await send_request(app, "GET", "/nope")).status == 404
        await tracing.flush()
        failed, unknown = collector.spans
        assert failed.status.code == Status.STATUS_CODE_ERROR
        assert attributes(failed)["http.response.status_code"] == 500
        assert (unknown.name, unknown.status.code) == ("GET unmatched", Status.STATUS_CODE_UNSET)
        assert b"hunter2" not in b"".join(collector.bodies)

    async def test_outside_of_a_trace_there_is_no_header(self, tracing: OtelTracing):
        assert tracing.outgoing() == {}
        assert trace_id.get() == ""


class TestJobs:
    async def test_a_job_is_a_span_and_a_failure_is_marked(self, db: Db, tracing: OtelTracing, collector: Collector):
        async def well(_job: Job) -> Settle | None:
            return None

        async def bad(_job: Job) -> Settle | None:
            raise Invalid(reason="password=hunter2")

        queue = JobQueue()
        workers = Workers(db, queue, tracing.jobs({"well": well, "bad": bad}), owner="o", slots=1)
        async with db.tx() as tx:
            await queue.enqueue(tx, NewJob(kind="well", id="a"), NewJob(kind="bad", id="b"))
        await workers.run_until_empty()
        await tracing.flush()
        spans = {span.name: span for span in collector.spans}
        assert attributes(spans["job well"]) == {
            "penstock.job.id": "a",
            "penstock.job.room": 0,  # an empty string comes back as nothing
            "penstock.job.attempt": 1,
        }
        assert spans["job bad"].status.code == Status.STATUS_CODE_ERROR
        assert attributes(spans["job bad"])["error.type"] == "Invalid"
        assert b"hunter2" not in b"".join(collector.bodies)


class TestAnUnreachableCollector:
    @pytest.mark.parametrize("silent", [False, True])
    async def test_it_slows_and_breaks_no_request_and_no_stop(self, collector: Collector, tmp_path: Path, silent: bool):
        collector.answering.clear()
        tracing = tracing_to(collector.url if silent else NOWHERE)
        async with open_runtime(Settings(data_dir=tmp_path)) as runtime:
            app = build_app(replace(runtime, tracing=tracing), routers=[health.router, things(tracing)])
            began = monotonic()
            for _ in range(3000):  # more than the queue of spans holds
                assert (await send_request(app, "GET", "/livez")).status == 200
            each = (monotonic() - began) / 3000
        assert each < 0.02
        began = monotonic()
        await tracing.close()
        assert monotonic() - began < CLOSE_SECONDS + 2


def test_it_is_imported_only_when_it_is_asked_for():
    script = "import sys, penstock.cli.main; sys.exit('opentelemetry.sdk.trace' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_queued_spans_are_exported_on_shutdown(collector: Collector):
    tracing = tracing_to(collector.url)
    run = tracing.jobs({"k": _nothing})["k"]
    await run(_job())
    await tracing.close()
    assert [span.name for span in collector.spans] == ["job k"]


async def _nothing(_job: Job) -> Settle | None:
    await asyncio.sleep(0)
    return None


def _job() -> Job:
    empty = dict.fromkeys(Job.__dataclass_fields__)
    return Job(**(empty | {"id": "a", "kind": "k", "module": "etl", "attempts": 1}))  # type: ignore[arg-type]
