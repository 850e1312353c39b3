"""A document is sent to a server, read by a worker in another process, and comes back as JSON that can be traced."""

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from io import BytesIO

import aiohttp
import pytest
from msgspec import json
from PIL import Image, ImageDraw, ImageFont

from tests.journeys import documents
from tests.journeys.command import Serving, run
from tests.journeys.documents import SOON, Client, new_client
from tests.journeys.profiles import Profile

SAMPLES = files("penstock.cli") / "samples"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def serving(profile: Profile, session: aiohttp.ClientSession) -> AsyncIterator[Serving]:
    async with documents.serving(profile, session) as server:
        yield server


@pytest.fixture
async def ann(serving: Serving, session: aiohttp.ClientSession) -> Client:
    return await new_client(serving, session, user_id=71)


@pytest.fixture
async def ben(serving: Serving, session: aiohttp.ClientSession) -> Client:
    return await new_client(serving, session, user_id=72)


BELOW = ["The harbour took in more ships than in any year before"] * 18


def scan_of(*pages: str) -> bytes:
    """Pages as pictures, in one file. Each takes longer to read than pages are shown together."""
    font = ImageFont.load_default(size=34)
    drawn = []
    for text in pages:
        page = Image.new("L", (900, 1200), 255)
        for at, line in enumerate((text, *BELOW)):
            ImageDraw.Draw(page).text((30, 50 + 55 * at), line, font=font, fill=0)
        drawn.append(page)
    file = BytesIO()
    drawn[0].save(file, format="TIFF", compression="tiff_deflate", save_all=True, append_images=drawn[1:])
    return file.getvalue()


async def test_an_invoice_comes_back_as_fields_with_their_places_and_is_nobody_elses(
    ann: Client, ben: Client, profile: Profile
):
    status, body = await ann.ask("POST", "/etl/rules", json=json.decode((SAMPLES / "invoice.rule.json").read_bytes()))
    assert status == 201, body
    rule_id = json.decode(body)["rule_id"]
    task_id = await ann.send("invoice.pdf", (SAMPLES / "invoice.pdf").read_bytes(), rule_id=rule_id)
    task = (await ann.watch(task_id))[-1]
    assert (task["status"], task["progress"], task["error"]) == ("completed", 100, None)
    assert task["result"]["output_path"] == "users/71/processed/1/invoice.pdf.json"
    await the_papers_are_right(ann, task_id)
    await the_events_are_told(ann, ben, task_id)
    await nobody_else_sees_it(ben, task_id)
    shown = run("etl", "show", str(task_id), cwd=None, **profile.settings)
    assert shown.returncode == 0, shown.stderr
    assert "MS-2026-0117" in shown.stdout
    assert "page 1, top left" in shown.stdout


async def the_papers_are_right(ann: Client, task_id: int) -> None:
    result = await ann.get(f"/etl/tasks/{task_id}/result")
    assert (result["number"], result["date"], result["total"]) == ("MS-2026-0117", "2026-03-12", 387.2)
    assert result["seller"] == "Mill Street Paper Works"
    assert [line["amount"] for line in result["lines"]] == [222.0, 110.0, 55.2]
    status, markdown = await ann.ask("GET", f"/etl/tasks/{task_id}/markdown")
    assert status == 200
    assert markdown.startswith(b"<!-- page 1 -->")
    places = {place["pointer"]: place for place in (await ann.get(f"/etl/tasks/{task_id}/grounding"))["places"]}
    number = places["/number"]
    assert (number["grounded"], number["page"]) == (True, 1)
    left, top, right, bottom = number["box"]
    assert 0 < left < right < 595
    assert 0 < top < bottom < 842 / 3  # it stands in the upper third of the page


async def the_events_are_told(ann: Client, ben: Client, task_id: int) -> None:
    """To their owner, on the stream from the beginning; to nobody else."""
    headers = ann.headers | {"Last-Event-ID": "0"}
    wanted = {"topic": f"etl:{task_id}"}
    async with ann.session.get(f"{ann.url}/events", params=wanted, headers=headers) as stream, asyncio.timeout(SOON):
        heard = b""
        while b"event: etl_completed" not in heard:
            heard += await stream.content.readany()
    assert heard.index(b"event: etl_pending") < heard.index(b"event: etl_completed")
    assert (await ben.get(f"/events/log?topic=etl:{task_id}"))["events"] == []


async def nobody_else_sees_it(ben: Client, task_id: int) -> None:
    paths = ("", "/result", "/markdown", "/grounding")
    asked = [("GET", path) for path in paths] + [("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")]
    for method, path in asked:
        status, body = await ben.ask(method, f"/etl/tasks/{task_id}{path}")
        assert (status, json.decode(body)["code"]) == (404, "ETL_TASK_NOT_FOUND"), (method, path)
    assert (await ben.get("/etl/tasks"))["tasks"] == []
    assert (await ben.get(f"/etl/tasks/batch?task_ids={task_id}"))["tasks"] == []
    assert len((await ben.get("/etl/rules"))["rules"]) == 1


async def test_a_scan_is_read_page_by_page_and_its_progress_shows_that(ann: Client):
    texts = [f"This is sheet {number} of the scan" for number in range(1, 5)]
    task_id = await ann.send("scan.tiff", scan_of(*texts))
    seen = await ann.watch(task_id)
    assert seen[-1]["status"] == "completed", seen[-1]["error"]
    in_ocr = [task["progress"] for task in seen if task["status"] == "mineru_parsing"]
    assert len({progress for progress in in_ocr if 1 < progress < 80}) >= 2, "pages were not shown one by one"
    progress = [task["progress"] for task in seen]
    assert progress == sorted(progress)
    statuses = list(dict.fromkeys(task["status"] for task in seen))
    assert statuses == [one for one in ("pending", "mineru_parsing", "llm_processing", "completed") if one in statuses]
    _, markdown = await ann.ask("GET", f"/etl/tasks/{task_id}/markdown")
    for text in texts:
        assert text in markdown.decode()
    result = await ann.get(f"/etl/tasks/{task_id}/result")
    assert result["page_count"] == len(texts)
