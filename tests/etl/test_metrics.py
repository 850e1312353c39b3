"""Prometheus metrics of the etl module."""

from penstock.etl.metrics import EtlQueueMetrics
from penstock.kernel.errors import Invalid
from penstock.kernel.metrics import Metrics
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.fakes.ocr import OcrThatFails


@on_both_profiles
async def test_ends_stages_and_what_is_under_way_are_counted(harness: EtlHarness):
    await harness.submit("a.txt")
    await harness.work()
    harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="no"), times=1))
    await harness.submit("b.txt")
    await harness.work()
    await harness.submit("c.txt")
    figures = EtlQueueMetrics(harness.db, queue_size=1000)
    page = (await Metrics(harness.db, version="1", more=[harness.deps.metrics, figures]).page()).decode()
    lines = page.splitlines()
    assert 'penstock_etl_tasks_total{status="completed"} 1.0' in lines
    assert 'penstock_etl_tasks_total{status="failed"} 1.0' in lines
    assert 'penstock_etl_stage_seconds_count{stage="mineru"} 2.0' in lines
    assert 'penstock_etl_stage_seconds_count{stage="postprocess"} 1.0' in lines
    assert "penstock_etl_under_way 1.0" in lines
