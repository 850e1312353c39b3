"""The papers of a task: objects whose keys follow from its number, so that they are found whatever was lost.

While OCR runs, its provider works in a folder of that run. What it made is then put in the task's own folder, and
`reading.json` is written last: where it is, OCR is done and paid for. It carries the run that it belongs to, since a
retry from OCR starts anew; a reading from before that retry does not count. A worker that comes too late writes into
the folder of its old run, where nobody looks.

Shaping does the same: `result.json` first, `grounding.json` last.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from penstock.documents.ground import Place
from penstock.documents.ocr import MARKDOWN, PAGES, Reading
from penstock.documents.shape import Shaped
from penstock.etl.domain import EtlTask
from penstock.kernel.blobs import BlobNotFound, Blobs, BlobTooLarge
from penstock.kernel.columns import Plain

DELETED_AT_ONCE = 16

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ReadingPaper:
    """What `reading.json` says."""

    run: int
    reading: Reading


@dataclass(frozen=True, kw_only=True)
class ShapingPaper:
    """What `grounding.json` says: how the result of a run was made, and where its values stand."""

    run: int
    strategy: str
    output_size: int
    usage: Plain = field(default_factory=dict)
    places: Sequence[Place] = ()


def own_prefix(user_id: int) -> str:
    """What the keys of a user's objects begin with."""
    return f"users/{user_id}/"


def raw_key(user_id: int, project_id: int, filename: str) -> str:
    """Where a document is looked for when nobody says where it is."""
    return f"users/{user_id}/raw/{project_id}/{filename}"


def public_key(user_id: int, project_id: int, filename: str) -> str:
    """Where the result of the latest task of that name lies."""
    return f"users/{user_id}/processed/{project_id}/{filename}.json"


def folder(user_id: int, project_id: int, task_id: int) -> str:
    """What the keys of a task's papers begin with."""
    return f"users/{user_id}/etl_artifacts/{project_id}/{task_id}/"


def folder_of(task: EtlTask) -> str:
    """The same, of a task."""
    return folder(task.user_id, task.project_id, task.id)


def public_key_of(task: EtlTask) -> str:
    """Where callers find the result of a task."""
    return public_key(task.user_id, task.project_id, task.filename)


def markdown_key(task: EtlTask) -> str:
    """The markdown."""
    return folder_of(task) + MARKDOWN


def result_key(task: EtlTask) -> str:
    """The task's own copy of the result."""
    return f"{folder_of(task)}result.json"


def grounding_key(task: EtlTask) -> str:
    """Where each value of the result stands in the document."""
    return f"{folder_of(task)}grounding.json"


def reading_folder(task: EtlTask) -> str:
    """Where the OCR of this run works."""
    return f"{folder_of(task)}pages/{task.ocr_run}/"


def shaping_folder(task: EtlTask) -> str:
    """Where the post-processing of this run works."""
    return f"{folder_of(task)}shapes/{task.run}/"


async def find_reading(blobs: Blobs, task: EtlTask) -> Reading | None:
    """What OCR made of the document, when it is done and counts for this run."""
    paper = await _find(blobs, f"{folder_of(task)}reading.json", ReadingPaper)
    return paper.reading if paper is not None and paper.run >= task.ocr_run else None


async def keep_reading(blobs: Blobs, task: EtlTask, made: Reading) -> Reading:
    """Put what a provider made in its place."""
    kept = replace(made, markdown_key=markdown_key(task), pages_key=folder_of(task) + PAGES)
    for source, target in ((made.markdown_key, kept.markdown_key), (made.pages_key, kept.pages_key)):
        if source != target:
            await blobs.copy(source, target)
    paper = ReadingPaper(run=task.ocr_run, reading=kept)
    await blobs.put(f"{folder_of(task)}reading.json", msgspec.json.encode(paper))
    return kept


async def find_shaping(blobs: Blobs, task: EtlTask) -> ShapingPaper | None:
    """How this very run's result was made, when it is there: a worker died before it could say so."""
    paper = await _find(blobs, grounding_key(task), ShapingPaper)
    return paper if paper is not None and paper.run == task.run else None


async def keep_shaping(blobs: Blobs, task: EtlTask, shaped: Shaped) -> ShapingPaper:
    """Store a result in the task's folder."""
    receipt = await blobs.put(result_key(task), msgspec.json.encode(shaped.value))
    paper = ShapingPaper(
        run=task.run,
        strategy=shaped.strategy,
        output_size=receipt.size_bytes,
        usage=shaped.usage,
        places=shaped.places,
    )
    await blobs.put(grounding_key(task), msgspec.json.encode(paper))
    return paper


async def drop(blobs: Blobs, prefix: str) -> None:
    """Delete every object whose key begins so; it can be done again, or begun anew in the middle."""
    while found := (await blobs.list(prefix)).blobs:
        for start in range(0, len(found), DELETED_AT_ONCE):
            await asyncio.gather(*(blobs.delete(blob.key) for blob in found[start : start + DELETED_AT_ONCE]))


async def _find(blobs: Blobs, key: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(await blobs.get(key), type=kind)
    except (BlobNotFound, BlobTooLarge):
        return None
