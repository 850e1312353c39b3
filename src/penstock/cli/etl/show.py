"""`penstock etl show`, `retry` and `cancel`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec
import typer

from penstock.cli.etl.commands import Output
from penstock.cli.etl.session import caller, run_on_existing
from penstock.cli.etl.text import PageSizes, describe_fields
from penstock.cli.text import align, printable, shorten, show_time
from penstock.documents.pages import Citation, read_pages
from penstock.etl.api import actions, status
from penstock.etl.artifacts import ResultCommit, grounding_key, pages_key, result_key
from penstock.etl.domain import EtlTask, Stage, Status
from penstock.etl.retry import RetryOptions
from penstock.etl.store.tasks import OrphanedUpload
from penstock.kernel.blobs import BlobNotFound, Blobs, BlobTooLarge
from penstock.wiring import Runtime

MAX_LINES = 200  # values of a result that are shown
MAX_PATH = 40  # characters of a path


def print_output(task_id: int, output: Output) -> None:
    """Copy a stored output to standard output, for a file or a pipe."""

    async def copy(runtime: Runtime) -> None:
        etl = runtime.modules.etl
        async for chunk in etl.blobs.stream(await actions.artifact_key(etl, caller(), task_id, output.value)):
            sys.stdout.buffer.write(chunk)

    run_on_existing(copy)


def print_orphans() -> None:
    """Print uploaded documents that have no task, oldest first."""

    async def list_all(runtime: Runtime) -> list[OrphanedUpload]:
        return await actions.list_orphans(runtime.modules.etl, offset=0, limit=MAX_LINES)

    found = run_on_existing(list_all)
    rows = [
        ("uploaded", "user", "key"),
        *((show_time(one.created_at), one.user_id, one.key) for one in found),
    ]
    for line in align([tuple(map(printable, map(str, row))) for row in rows] if found else []):
        typer.echo(line)
    if not found:
        typer.echo("every uploaded document has a task.")


def print_task(task_id: int) -> None:
    """Print the state of a task and, once it is completed, its values."""

    async def read(runtime: Runtime) -> tuple[EtlTask, list[str]]:
        task = await status.get_task(runtime.modules.etl, caller(), task_id)
        if task.status is not Status.COMPLETED:
            return task, []
        blobs = runtime.blobs
        value = msgspec.json.decode(await blobs.get(result_key(task)))
        grounding = msgspec.json.decode(await blobs.get(grounding_key(task)), type=ResultCommit)
        sizes = await read_page_sizes(blobs, pages_key(task))
        return task, list(_field_lines(value, grounding.citations, sizes))

    task, fields = run_on_existing(read)
    for line in (*_task_lines(task), *fields):
        typer.echo(line)


def retry_task(task_id: int, *, from_stage: Stage | None, force: bool) -> None:
    """Retry a task and print its new status."""
    options = RetryOptions(from_stage=from_stage, force=force)
    _print_status(run_on_existing(lambda runtime: actions.retry_task(runtime.modules.etl, caller(), task_id, options)))


def cancel_task(task_id: int, *, force: bool) -> None:
    """Cancel a task and print its new status."""
    end = actions.abort_task if force else actions.cancel_task
    _print_status(run_on_existing(lambda runtime: end(runtime.modules.etl, caller(), task_id)))


async def read_page_sizes(blobs: Blobs, key: str) -> PageSizes:
    """The sizes of a document's pages by number; empty if the document is too long to hold in memory."""
    with suppress(BlobNotFound, BlobTooLarge):
        lines = (await blobs.get(key)).splitlines()
        return {page.number: (page.width, page.height) for page in read_pages(lines)}
    return {}


def _print_status(task: EtlTask) -> None:
    typer.echo(f"{task.id}\t{task.status}\t{printable(task.filename)}")


def _task_lines(task: EtlTask) -> Iterator[str]:
    metadata = task.metadata
    yield f"task {task.id}: {printable(task.filename)}, project {task.project_id}, rule {task.rule_id}"
    yield f"{task.status}, {task.progress} %, since {show_time(task.updated_at)}"
    if task.error:
        code = metadata.get("error_code", "")
        yield f"failed in {metadata.get('error_stage')}: {code} {printable(task.error)}"
        if hint := metadata.get("hint"):
            yield f"  {printable(hint)}"
    for name in ("provider_task_id", "artifact_mineru_markdown_key"):
        if metadata.get(name):
            yield f"{name}: {printable(metadata[name])}"


def _field_lines(value: Any, places: Sequence[Citation], sizes: PageSizes) -> Iterator[str]:
    """The values of a result, each with its place on the page."""
    fields = describe_fields(value, places, sizes)
    yield from align([(shorten(path, MAX_PATH), text, where) for path, text, where in islice(fields, MAX_LINES)])
    if next(fields, None) is not None:
        yield "…"
