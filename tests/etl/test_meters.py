"""What Prometheus is told about documents."""

from penstock.etl.meters import EtlFigures
from penstock.kernel.errors import Invalid
from penstock.kernel.metrics import Metrics
from tests.etl.workshop import Workshop
from tests.fakes.ocr import OcrThatFails


async def test_ends_stages_and_what_is_under_way_are_counted(shop: Workshop):
    await shop.submit("a.txt")
    await shop.work()
    shop.set(provider=OcrThatFails(shop.tools.blobs, Invalid(reason="no"), times=1))
    await shop.submit("b.txt")
    await shop.work()
    await shop.submit("c.txt")
    figures = EtlFigures(shop.db, queue_size=1000)
    page = (await Metrics(shop.db, version="1", more=[shop.tools.meters, figures]).page()).decode()
    lines = page.splitlines()
    assert 'penstock_etl_tasks_total{status="completed"} 1.0' in lines
    assert 'penstock_etl_tasks_total{status="failed"} 1.0' in lines
    assert 'penstock_etl_stage_seconds_count{stage="mineru"} 2.0' in lines
    assert 'penstock_etl_stage_seconds_count{stage="postprocess"} 1.0' in lines
    assert "penstock_etl_under_way 1.0" in lines
