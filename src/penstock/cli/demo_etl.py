"""The demo's walk through the etl room, over HTTP: two invoices become markdown and fields, each with its place.

One has a text layer; the other is a scan, the picture of a page. Both are samples of the package.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from penstock.access import keys
from penstock.access.domain import NewKey, Scope
from penstock.cli.demo_tasks import DemoRefused
from penstock.cli.etl_show import page_sizes
from penstock.cli.etl_words import aligned, shortened, told_fields
from penstock.etl.domain import FINAL, Status
from penstock.etl.papers import ShapingPaper, pages_key
from penstock.etl.store.tasks import find_task
from penstock.wiring import Runtime

SAMPLES = files("penstock.cli") / "samples"
RULE = "invoice.rule.json"
PROJECT = 1
LOOK_SECONDS = 0.2
MARKDOWN_LINES = 8


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A document of the demo."""

    name: str
    what: str


INVOICES = (
    Sample(name="invoice.pdf", what="a PDF with a text layer"),
    Sample(name="scan.pdf", what="a picture of a page"),
)


class Office:
    """Somebody with documents, who calls the demo's server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session = session
        self._url = f"{url}/api/v1/etl"
        self._headers = {"X-API-Key": key}

    async def ask(self, method: str, path: str, **sent: Any) -> bytes:
        """One request; returns the body of its answer."""
        async with self._session.request(method, self._url + path, headers=self._headers, **sent) as answer:
            told = await answer.read()
        if not answer.ok:
            raise DemoRefused(method=method, path=path, status=answer.status, reason=told.decode(errors="replace"))
        return told

    async def send(self, sample: Sample, rule_id: int) -> int:
        """Upload and submit a sample; returns the number of its task."""
        form = aiohttp.FormData({"project_id": str(PROJECT), "rule_id": str(rule_id)})
        form.add_field("file", (SAMPLES / sample.name).read_bytes(), filename=sample.name)
        told = msgspec.json.decode(await self.ask("POST", "/upload_and_submit", data=form))
        return int(told["task_id"])

    async def task(self, task_id: int) -> dict[str, Any]:
        """How far a task is."""
        found: dict[str, Any] = msgspec.json.decode(await self.ask("GET", f"/tasks/{task_id}"))
        return found


async def tour(house: Runtime, port: int, console: Console) -> None:
    """Send both invoices, watch them, and show what was found where."""
    async with house.db.tx(actor="demo") as tx:
        issued = await keys.create(tx, NewKey(name="demo documents", scope=Scope.WRITE), by="demo")
    async with aiohttp.ClientSession() as session:
        office = Office(session, f"http://127.0.0.1:{port}", issued.secret)
        rule = msgspec.json.decode((SAMPLES / RULE).read_bytes())
        made = msgspec.json.decode(await office.ask("POST", "/rules", json=rule))
        console.print("[bold]6.[/] Two invoices are sent to be read, under a rule that names their fields.")
        sent = {await office.send(sample, made["rule_id"]): sample for sample in INVOICES}
        await _watch(office, sent, console)
        for task_id, sample in sent.items():
            await _show(house, office, task_id, sample, console)


async def _watch(office: Office, sent: dict[int, Sample], console: Console) -> None:
    columns = (TextColumn("   {task.description:<34}"), BarColumn(30), TextColumn("{task.completed:.0f} %"))
    with Progress(*columns, console=console) as bar:
        lines = {task_id: bar.add_task(sample.name, total=100) for task_id, sample in sent.items()}
        waiting = set(sent)
        while waiting:
            for task_id in sorted(waiting):
                task = await office.task(task_id)
                bar.update(lines[task_id], completed=task["progress"])
                if task["status"] in FINAL:
                    waiting.discard(task_id)
            await asyncio.sleep(LOOK_SECONDS)


async def _show(house: Runtime, office: Office, task_id: int, sample: Sample, console: Console) -> None:
    task = await office.task(task_id)
    if task["status"] != Status.COMPLETED:
        raise DemoRefused(method="reading", path=sample.name, status=task["status"], reason=task["error"])
    seconds = task["result"]["processing_time"]
    console.print(f"   [bold]{sample.name}[/], {sample.what}, in {seconds:.1f} s. Its markdown begins:")
    for line in _first_lines((await office.ask("GET", f"/tasks/{task_id}/markdown")).decode()):
        console.print(Text(f"     │ {line}", style="dim"))
    console.print("   Its fields, and where on the page each of them stands:")
    for line in await _fields(house, office, task):
        console.print(Text(f"     {line}"), soft_wrap=True)


async def _fields(house: Runtime, office: Office, task: dict[str, Any]) -> Iterable[str]:
    task_id = task["task_id"]
    value = msgspec.json.decode(await office.ask("GET", f"/tasks/{task_id}/result"))
    grounding = msgspec.json.decode(await office.ask("GET", f"/tasks/{task_id}/grounding"), type=ShapingPaper)
    async with house.db.read() as tx:
        row = await find_task(tx, task_id)
    sizes = {} if row is None else await page_sizes(house.blobs, pages_key(row))
    told = told_fields(value, grounding.places, sizes)
    return aligned([(path, found, f"← {where}") for path, found, where in told])


def _first_lines(markdown: str) -> Iterable[str]:
    """What a person would look at first: neither marks of pages nor empty lines."""
    lines = [line for line in markdown.splitlines() if line.strip() and not line.startswith("<!--")]
    return (shortened(line, 70) for line in lines[:MARKDOWN_LINES])
