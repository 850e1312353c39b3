"""Every figure is on its page, and the page invents none."""

from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from penstock.adapters.llm import LlmMetrics
from penstock.etl.metrics import EtlQueueMetrics
from penstock.etl.metrics import Metrics as EtlMetrics
from penstock.kernel.clock import ManualClock
from penstock.kernel.metrics import Metrics
from penstock.tasks.metrics import PullHealthMetrics, TaskMetrics
from tests.checks import tree
from tests.conftest import open_db


@dataclass
class NoStreams:
    """Streams that nobody opened."""

    streams: int = 0
    dropped: int = 0


async def shown_names(url: str) -> set[str]:
    """All metric names."""
    db = open_db(url, ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    modules = [
        TaskMetrics(),
        PullHealthMetrics(db, pull_timeout=1),
        EtlMetrics(),
        EtlQueueMetrics(db, queue_size=1),
        LlmMetrics(),
    ]
    metrics = Metrics(db, version="1", streams=NoStreams(), more=modules)
    page = (await metrics.page()).decode()
    await db.close()
    return {_name(family.name, family.type) for family in text_string_to_metric_families(page)}


def _name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def documented_names() -> set[str]:
    rows = tree.rows(tree.reference("http.md"))
    return {row[0] for row in rows if row[0].startswith(("penstock_", "process_"))}


async def test_every_figure_is_documented(sqlite_url: str):
    missing = await shown_names(sqlite_url) - documented_names()
    assert not missing, f"missing in the table of docs/reference/http.md: {missing}"


async def test_the_page_names_no_figure_that_does_not_exist(sqlite_url: str):
    invented = documented_names() - await shown_names(sqlite_url)
    assert not invented, f"docs/reference/http.md names what does not exist: {invented}"
