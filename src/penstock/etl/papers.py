"""The papers of a task: objects whose keys follow from its number, so that they are found whatever was lost.

While OCR runs, its provider works in a folder of that run. What it made is then put in the task's own folder, and
`reading-{run}.json` is written last: where it is, OCR is done and paid for. Shaping does the same: `result-{run}.json`
first, `grounding-{run}.json` last.

Each name carries its run, since a retry from OCR starts anew: a worker that comes too late writes under the names of
its old run, where nobody looks. Only the markdown has one name for all runs; callers know it. What earlier runs have
left is deleted on the way.

Papers know the key under which the memory has them, since it is their makers who write it down, and not who finds them.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import msgspec

from penstock.documents.blob_files import find_value
from penstock.documents.ocr.provider import MARKDOWN, PAGES, Reading
from penstock.documents.pages import Citation
from penstock.documents.postprocessor import Shaped
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import SourceNotFound
from penstock.kernel.blobs import JSON_TYPE, BlobNotFound, Blobs, BlobStat
from penstock.kernel.json_object import JsonObject

DELETED_AT_ONCE = 16
RESERVED = re.compile(r"users/[^/]*/(etl_artifacts|processed)/")
OF_OCR = re.compile(r"reading-(\d+)\.json|pages-(\d+)\.jsonl|pages/(\d+)/.*")
OF_SHAPING = re.compile(r"result-(\d+)\.json|grounding-(\d+)\.json|shapes/(\d+)/.*")
CACHE = "cache"  # among the metadata of a task: for each stage, what the memory had to say
FORCE = "force"  # among them, too: everything is to be made anew


@dataclass(frozen=True, kw_only=True)
class Memo:
    """What papers have to do with the memory: their key there, and the task that they are a copy from."""

    key: str | None = None
    task_id: int | None = None

    @property
    def shown(self) -> JsonObject:
        """As callers see it."""
        return {"hit": self.task_id is not None, "task_id": self.task_id, "key": self.key}


UNKNOWN = Memo()


@dataclass(frozen=True, kw_only=True)
class ReadingPaper:
    """What `reading-{run}.json` says."""

    run: int
    reading: Reading
    memo: Memo = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class ShapingPaper:
    """What `grounding-{run}.json` says: how the result of a run was made, and where its values stand."""

    run: int
    strategy: str
    output_size: int
    usage: JsonObject = field(default_factory=dict)
    places: Sequence[Citation] = ()
    notes: JsonObject = field(default_factory=dict)
    memo: Memo = UNKNOWN


async def get_source(blobs: Blobs, key: str) -> BlobStat:
    """What the store knows of a document, or `SourceNotFound`."""
    try:
        return await blobs.stat(key)
    except BlobNotFound as error:
        raise SourceNotFound(key=key) from error


def own_prefix(user_id: int) -> str:
    """What the keys of a user's objects begin with."""
    return f"users/{user_id}/"


def is_reserved(key: str) -> bool:
    """Whether a key lies where only tasks put something."""
    return RESERVED.match(key) is not None


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
    """The task's own copy of this run's result."""
    return f"{folder_of(task)}result-{task.run}.json"


def grounding_key(task: EtlTask) -> str:
    """Where each value of that result stands in the document."""
    return f"{folder_of(task)}grounding-{task.run}.json"


def reading_key(task: EtlTask) -> str:
    """What says that the OCR which counts for this run is done."""
    return f"{folder_of(task)}reading-{task.ocr_run}.json"


def pages_key(task: EtlTask) -> str:
    """What that OCR made, by pages."""
    path = PurePosixPath(PAGES)
    return f"{folder_of(task)}{path.stem}-{task.ocr_run}{path.suffix}"


def reading_folder(task: EtlTask) -> str:
    """Where the OCR of this run works."""
    return f"{folder_of(task)}pages/{task.ocr_run}/"


def shaping_folder(task: EtlTask) -> str:
    """Where the post-processing of this run works."""
    return f"{folder_of(task)}shapes/{task.run}/"


def run_of(task: EtlTask, phase: Phase) -> int:
    """The run that the names of a stage's papers carry."""
    return task.ocr_run if phase is Phase.OCR else task.run


async def find_reading(blobs: Blobs, task: EtlTask) -> Reading | None:
    """What OCR made of the document, when it is done and counts for this run."""
    paper = await find_reading_paper(blobs, task)
    return None if paper is None else paper.reading


async def find_reading_paper(blobs: Blobs, task: EtlTask) -> ReadingPaper | None:
    """The same, and how it came to be."""
    return await find_value(blobs, reading_key(task), ReadingPaper)


async def lay_reading(blobs: Blobs, task: EtlTask, made: Reading) -> Reading:
    """Put what was made, wherever that is, in the task's own places."""
    laid = replace(made, markdown_key=markdown_key(task), pages_key=pages_key(task))
    for source, target in ((made.markdown_key, laid.markdown_key), (made.pages_key, laid.pages_key)):
        if source != target:
            await blobs.copy(source, target)
    return laid


async def keep_reading(blobs: Blobs, task: EtlTask, made: Reading, memo: Memo = UNKNOWN) -> ReadingPaper:
    """Put what was made in its place, and last that it is there."""
    paper = ReadingPaper(run=task.ocr_run, reading=await lay_reading(blobs, task, made), memo=memo)
    await blobs.put(reading_key(task), msgspec.json.encode(paper), content_type=JSON_TYPE)
    return paper


async def find_shaping(blobs: Blobs, task: EtlTask) -> ShapingPaper | None:
    """How this very run's result was made, when it is there: a worker died before it could say so."""
    return await find_value(blobs, grounding_key(task), ShapingPaper)


async def keep_shaping(blobs: Blobs, task: EtlTask, shaped: Shaped, memo: Memo = UNKNOWN) -> ShapingPaper:
    """Store a result in the task's folder."""
    receipt = await blobs.put(result_key(task), msgspec.json.encode(shaped.value), content_type=JSON_TYPE)
    paper = ShapingPaper(
        run=task.run,
        strategy=shaped.strategy,
        output_size=receipt.size_bytes,
        usage=shaped.usage,
        places=shaped.citations,
        notes=shaped.notes,
        memo=memo,
    )
    await keep_grounding(blobs, task, paper)
    return paper


async def keep_grounding(blobs: Blobs, task: EtlTask, paper: ShapingPaper) -> None:
    """Say that the result is there, and how it was made."""
    await blobs.put(grounding_key(task), msgspec.json.encode(paper), content_type=JSON_TYPE)


async def drop_earlier(blobs: Blobs, task: EtlTask) -> None:
    """Delete what runs before this one have left. What a later run has made is not even looked at."""
    if task.run == 1:
        return
    start, after = folder_of(task), None
    while found := (await blobs.list(start, after=after)).blobs:
        for blob in found:
            if _is_earlier(blob.key.removeprefix(start), task):
                await blobs.delete(blob.key)
        after = found[-1].key


async def drop(blobs: Blobs, prefix: str) -> None:
    """Delete every object whose key begins so; it can be done again, or begun anew in the middle."""
    after: str | None = None
    while True:
        page = await blobs.list(prefix, after=after)
        for start in range(0, len(page.blobs), DELETED_AT_ONCE):
            await asyncio.gather(*(blobs.delete(blob.key) for blob in page.blobs[start : start + DELETED_AT_ONCE]))
        if (after := page.after) is None:
            return


def _is_earlier(name: str, task: EtlTask) -> bool:
    for pattern, run in ((OF_OCR, task.ocr_run), (OF_SHAPING, task.run)):
        if found := pattern.fullmatch(name):
            return int(next(filter(None, found.groups()))) < run
    return False
