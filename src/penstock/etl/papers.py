"""Artifacts of a task: blobs whose keys are derived from its id, so that they are found whatever else is lost.

While a stage runs, its provider stores checkpoints in a folder of that run. The finished artifacts are then copied to
the task's folder, and the commit marker `reading-{run}.json` is written last: if it exists, OCR is done and paid for.
Post-processing does the same: `result-{run}.json` first, its commit marker `grounding-{run}.json` last.

Each name contains its run, since a retry from OCR starts over: a late worker writes under the names of its old run,
which nobody reads. Only the markdown has one name for all runs, since clients know it. Artifacts of earlier runs are
deleted along the way.

Artifacts contain their cache key, since only the stage that made them knows it.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import msgspec

from penstock.documents.blob_files import find_json
from penstock.documents.ocr.provider import MARKDOWN, PAGES, Reading
from penstock.documents.pages import Citation
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import SourceNotFound
from penstock.kernel.blobs import JSON_TYPE, BlobNotFound, Blobs, BlobStat
from penstock.kernel.json_object import JsonObject

DELETED_AT_ONCE = 16
RESERVED = re.compile(r"users/[^/]*/(etl_artifacts|processed)/")
OF_OCR = re.compile(r"reading-(\d+)\.json|pages-(\d+)\.jsonl|pages/(\d+)/.*")
OF_SHAPING = re.compile(r"result-(\d+)\.json|grounding-(\d+)\.json|shapes/(\d+)/.*")
CACHE = "cache"  # metadata key of a task: the cache outcome of each stage
FORCE = "force"  # metadata key of a task: bypass the cache


@dataclass(frozen=True, kw_only=True)
class Memo:
    """The cache key of artifacts, and the task that they were copied from."""

    key: str | None = None
    task_id: int | None = None

    @property
    def shown(self) -> JsonObject:
        """The cache outcome as callers see it."""
        return {"hit": self.task_id is not None, "task_id": self.task_id, "key": self.key}


UNKNOWN = Memo()


@dataclass(frozen=True, kw_only=True)
class ReadingPaper:
    """The content of `reading-{run}.json`: the OCR result of a run."""

    run: int
    reading: Reading
    memo: Memo = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class ShapingPaper:
    """The content of `grounding-{run}.json`: how the result of a run was made, and the citations of its values."""

    run: int
    strategy: str
    output_size: int
    usage: JsonObject = field(default_factory=dict)
    places: Sequence[Citation] = ()
    notes: JsonObject = field(default_factory=dict)
    memo: Memo = UNKNOWN


async def get_source(blobs: Blobs, key: str) -> BlobStat:
    """The blob metadata of a document, or `SourceNotFound`."""
    try:
        return await blobs.stat(key)
    except BlobNotFound as error:
        raise SourceNotFound(key=key) from error


def own_prefix(user_id: int) -> str:
    """The key prefix of a user's blobs."""
    return f"users/{user_id}/"


def is_reserved(key: str) -> bool:
    """Whether a key is under a prefix that only tasks write to."""
    return RESERVED.match(key) is not None


def raw_key(user_id: int, project_id: int, filename: str) -> str:
    """The default key of a source document."""
    return f"users/{user_id}/raw/{project_id}/{filename}"


def public_key(user_id: int, project_id: int, filename: str) -> str:
    """The key of the published result: that of the latest task of the filename."""
    return f"users/{user_id}/processed/{project_id}/{filename}.json"


def folder(user_id: int, project_id: int, task_id: int) -> str:
    """The key prefix of a task's artifacts."""
    return f"users/{user_id}/etl_artifacts/{project_id}/{task_id}/"


def folder_of(task: EtlTask) -> str:
    """The key prefix of a task's artifacts, by task."""
    return folder(task.user_id, task.project_id, task.id)


def public_key_of(task: EtlTask) -> str:
    """The key of a task's published result."""
    return public_key(task.user_id, task.project_id, task.filename)


def markdown_key(task: EtlTask) -> str:
    """The key of the markdown."""
    return folder_of(task) + MARKDOWN


def result_key(task: EtlTask) -> str:
    """The key of this run's result in the task's own folder."""
    return f"{folder_of(task)}result-{task.run}.json"


def grounding_key(task: EtlTask) -> str:
    """The key of the citations of this run's result."""
    return f"{folder_of(task)}grounding-{task.run}.json"


def reading_key(task: EtlTask) -> str:
    """The key of the commit marker of the OCR that this run uses."""
    return f"{folder_of(task)}reading-{task.ocr_run}.json"


def pages_key(task: EtlTask) -> str:
    """The key of the pages of the OCR that this run uses."""
    path = PurePosixPath(PAGES)
    return f"{folder_of(task)}{path.stem}-{task.ocr_run}{path.suffix}"


def reading_folder(task: EtlTask) -> str:
    """The working folder of this run's OCR, for its checkpoints."""
    return f"{folder_of(task)}pages/{task.ocr_run}/"


def shaping_folder(task: EtlTask) -> str:
    """The working folder of this run's post-processing, for its checkpoints (model replies)."""
    return f"{folder_of(task)}shapes/{task.run}/"


def run_of(task: EtlTask, phase: Phase) -> int:
    """The run in the names of a stage's artifacts."""
    return task.ocr_run if phase is Phase.OCR else task.run


async def find_reading(blobs: Blobs, task: EtlTask) -> Reading | None:
    """The OCR result that this run uses, if OCR is done."""
    paper = await find_reading_paper(blobs, task)
    return None if paper is None else paper.reading


async def find_reading_paper(blobs: Blobs, task: EtlTask) -> ReadingPaper | None:
    """The OCR result that this run uses, with its cache key, if OCR is done."""
    return await find_json(blobs, reading_key(task), ReadingPaper)


async def lay_reading(blobs: Blobs, task: EtlTask, made: Reading) -> Reading:
    """Copy OCR artifacts to the task's own folder."""
    laid = replace(made, markdown_key=markdown_key(task), pages_key=pages_key(task))
    for source, target in ((made.markdown_key, laid.markdown_key), (made.pages_key, laid.pages_key)):
        if source != target:
            await blobs.copy(source, target)
    return laid


async def keep_reading(blobs: Blobs, task: EtlTask, made: Reading, memo: Memo = UNKNOWN) -> ReadingPaper:
    """Store OCR artifacts in the task's own folder, the commit marker last."""
    paper = ReadingPaper(run=task.ocr_run, reading=await lay_reading(blobs, task, made), memo=memo)
    await blobs.put(reading_key(task), msgspec.json.encode(paper), content_type=JSON_TYPE)
    return paper


async def find_shaping(blobs: Blobs, task: EtlTask) -> ShapingPaper | None:
    """How this run's result was made, if it exists: an earlier attempt was killed before it could settle."""
    return await find_json(blobs, grounding_key(task), ShapingPaper)


async def keep_shaping(blobs: Blobs, task: EtlTask, shaped: ExtractionResult, memo: Memo = UNKNOWN) -> ShapingPaper:
    """Store a result in the task's folder, its commit marker last."""
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
    """Write the commit marker of a result."""
    await blobs.put(grounding_key(task), msgspec.json.encode(paper), content_type=JSON_TYPE)


async def drop_earlier(blobs: Blobs, task: EtlTask) -> None:
    """Delete the artifacts of earlier runs. Those of later runs are not touched."""
    if task.run == 1:
        return
    start, after = folder_of(task), None
    while found := (await blobs.list(start, after=after)).blobs:
        for blob in found:
            if _is_earlier(blob.key.removeprefix(start), task):
                await blobs.delete(blob.key)
        after = found[-1].key


async def drop(blobs: Blobs, prefix: str) -> None:
    """Delete every blob with this prefix. Idempotent, also after an interruption."""
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
