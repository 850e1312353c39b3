"""The etl step: over HTTP, two invoices become markdown and fields, each field with its place on the page.

One invoice has a text layer, the other is a scan. Both are samples of the package.
"""

import asyncio
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from penstock.access import keys
from penstock.access.domain import NewKey, Scope
from penstock.cli.demo.tasks import DemoRefused
from penstock.cli.etl.show import read_page_sizes
from penstock.cli.etl.text import describe_fields
from penstock.cli.text import align, shorten
from penstock.etl.artifacts import ResultCommit, pages_key
from penstock.etl.domain import FINAL, Status
from penstock.etl.store.tasks import find_task
from penstock.wiring import Runtime

SAMPLES = files("penstock.cli") / "samples"
RULE = "invoice.rule.json"
INVOICES = {"invoice.pdf": "a PDF with a text layer", "scan.pdf": "a scanned page"}
PROJECT = 1
POLL_SECONDS = 0.2
MARKDOWN_LINES = 8


class EtlClient:
    """An HTTP client of the etl API."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session = session
        self._url = f"{url}/api/v1/etl"
        self._headers = {"X-API-Key": key}

    async def request(self, method: str, path: str, **arguments: Any) -> bytes:
        """Send one request; returns the body of its response."""
        async with self._session.request(method, self._url + path, headers=self._headers, **arguments) as response:
            body = await response.read()
        if not response.ok:
            raise DemoRefused(method=method, path=path, status=response.status, reason=body.decode(errors="replace"))
        return body

    async def submit(self, name: str, rule_id: int) -> int:
        """Upload and submit a sample; returns the id of its task."""
        form = aiohttp.FormData({"project_id": str(PROJECT), "rule_id": str(rule_id)})
        form.add_field("file", (SAMPLES / name).read_bytes(), filename=name)
        reply = msgspec.json.decode(await self.request("POST", "/upload_and_submit", data=form))
        return int(reply["task_id"])

    async def get_task(self, task_id: int) -> dict[str, Any]:
        """A task with its progress."""
        task: dict[str, Any] = msgspec.json.decode(await self.request("GET", f"/tasks/{task_id}"))
        return task


async def run_step(runtime: Runtime, port: int, console: Console) -> None:
    """Submit both invoices, wait for them, and show what was extracted."""
    async with runtime.db.tx(actor="demo") as tx:
        issued = await keys.create(tx, NewKey(name="demo documents", scope=Scope.WRITE), by="demo")
    async with aiohttp.ClientSession() as session:
        client = EtlClient(session, f"http://127.0.0.1:{port}", issued.secret)
        rule = msgspec.json.decode((SAMPLES / RULE).read_bytes())
        created = msgspec.json.decode(await client.request("POST", "/rules", json=rule))
        console.print("[bold]6.[/] Two invoices are submitted with a rule that names their fields.")
        names = {await client.submit(name, created["rule_id"]): name for name in INVOICES}
        await _show_progress(client, names, console)
        for task_id, name in names.items():
            await _show(runtime, client, task_id, name, console)


async def _show_progress(client: EtlClient, names: Mapping[int, str], console: Console) -> None:
    columns = (TextColumn("   {task.description:<34}"), BarColumn(30), TextColumn("{task.completed:.0f} %"))
    with Progress(*columns, console=console) as bar:
        lines = {task_id: bar.add_task(name, total=100) for task_id, name in names.items()}
        unfinished = set(names)
        while unfinished:
            for task_id in sorted(unfinished):
                task = await client.get_task(task_id)
                bar.update(lines[task_id], completed=task["progress"])
                if task["status"] in FINAL:
                    unfinished.discard(task_id)
            await asyncio.sleep(POLL_SECONDS)


async def _show(runtime: Runtime, client: EtlClient, task_id: int, name: str, console: Console) -> None:
    task = await client.get_task(task_id)
    if task["status"] != Status.COMPLETED:
        raise DemoRefused(method="reading", path=name, status=task["status"], reason=task["error"])
    seconds = task["result"]["processing_time"]
    console.print(f"   [bold]{name}[/], {INVOICES[name]}, in {seconds:.1f} s. Its markdown begins:")
    for line in _first_lines((await client.request("GET", f"/tasks/{task_id}/markdown")).decode()):
        console.print(Text(f"     │ {line}", style="dim"))
    console.print("   Its fields, each with its place on the page:")
    for line in await _field_lines(runtime, client, task_id):
        console.print(Text(f"     {line}"), soft_wrap=True)


async def _field_lines(runtime: Runtime, client: EtlClient, task_id: int) -> Iterable[str]:
    value = msgspec.json.decode(await client.request("GET", f"/tasks/{task_id}/result"))
    grounding = msgspec.json.decode(await client.request("GET", f"/tasks/{task_id}/grounding"), type=ResultCommit)
    async with runtime.db.read() as tx:
        task = await find_task(tx, task_id)
    sizes = {} if task is None else await read_page_sizes(runtime.blobs, pages_key(task))
    fields = describe_fields(value, grounding.citations, sizes)
    return align([(path, text, f"← {where}") for path, text, where in fields])


def _first_lines(markdown: str) -> Iterable[str]:
    """The first lines with text, without page markers."""
    lines = [line for line in markdown.splitlines() if line.strip() and not line.startswith("<!--")]
    return (shorten(line, 70) for line in lines[:MARKDOWN_LINES])
