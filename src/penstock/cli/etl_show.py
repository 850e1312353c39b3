"""One task, as a person wants to see it."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec
import typer

from penstock.access.domain import Caller
from penstock.cli.etl_words import aligned, plain, shortened, told_fields
from penstock.documents.ground import Place, read_pages
from penstock.etl import track
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Status
from penstock.etl.papers import ShapingPaper, grounding_key, pages_key, result_key
from penstock.kernel.blobs import BlobNotFound, Blobs, BlobTooLarge

MOST_LINES = 200  # values of a result that are shown
MOST_PATH = 40
Sizes = dict[int, tuple[float, float]]


class Piece(StrEnum):
    """What is stored of a task."""

    RESULT = "result"
    MARKDOWN = "markdown"
    GROUNDING = "grounding"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A task, its result, and where the values of it stand."""

    task: EtlTask
    value: Any = None
    places: Sequence[Place] = ()
    sizes: Sizes


async def print_piece(tools: Deps, caller: Caller, task_id: int, piece: Piece) -> None:
    """What is stored, as it is, for a file or a pipe; or `NotThereYet`."""
    async for chunk in tools.blobs.stream(await track.key_of(tools, caller, task_id, piece.value)):
        sys.stdout.buffer.write(chunk)


async def look(tools: Deps, caller: Caller, task_id: int) -> Seen:
    """All there is to see of a task."""
    task = await track.get_task(tools, caller, task_id)
    if task.status is not Status.COMPLETED:
        return Seen(task=task, sizes={})
    value = msgspec.json.decode(await tools.blobs.get(result_key(task)))
    grounding = msgspec.json.decode(await tools.blobs.get(grounding_key(task)), type=ShapingPaper)
    return Seen(task=task, value=value, places=grounding.places, sizes=await page_sizes(tools.blobs, pages_key(task)))


async def page_sizes(blobs: Blobs, pages_key: str) -> Sizes:
    """How large the pages of a document are; of one that is too long to hold, nothing is said."""
    with suppress(BlobNotFound, BlobTooLarge):
        lines = (await blobs.get(pages_key)).splitlines()
        return {page.number: (page.width, page.height) for page in read_pages(lines)}
    return {}


def print_task(seen: Seen) -> None:
    """What people want to know of a task."""
    task, known = seen.task, seen.task.metadata
    typer.echo(f"task {task.id}: {plain(task.filename)}, project {task.project_id}, rule {task.rule_id}")
    typer.echo(f"{task.status}, {task.progress} %, since {task.updated_at:%Y-%m-%d %H:%M:%S} UTC")
    if task.error:
        typer.echo(f"failed in {known.get('error_stage')}: {known.get('error_code', '')} {plain(task.error)}")
        if hint := known.get("hint"):
            typer.echo(f"  {plain(hint)}")
    for name in ("provider_task_id", "artifact_mineru_markdown_key"):
        if known.get(name):
            typer.echo(f"{name}: {plain(known[name])}")
    if task.status is Status.COMPLETED:
        for line in field_lines(seen):
            typer.echo(line)


def field_lines(seen: Seen) -> Iterator[str]:
    """The values of a result, each with its place on the page."""
    told = told_fields(seen.value, seen.places, seen.sizes)
    rows = [(shortened(path, MOST_PATH), value, where) for path, value, where in islice(told, MOST_LINES)]
    yield from aligned(rows)
    if next(told, None) is not None:
        yield "…"
