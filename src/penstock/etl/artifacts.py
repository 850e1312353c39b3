"""Artifacts of a task: blobs whose keys are derived from its id, so that they are found whatever else is lost.

While a stage runs, its provider stores checkpoints in a folder of that run. The finished artifacts are then copied to
the task's folder, and the commit marker `reading-{run}.json` is written last: if it exists, OCR is done and paid for.
Post-processing does the same: `result-{run}.json` first, its commit marker `grounding-{run}.json` last.

Each name contains its run, since a retry from OCR (`mineru`) starts over: a late worker writes under the names of its
old run, which nobody reads. Only the markdown has one name for all runs, since clients know it. Artifacts of earlier
runs are deleted along the way.

Commit markers contain the cache key of the artifacts, since only the stage that made them knows it.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec

from penstock.documents.ocr.provider import MARKDOWN, PAGES, Reading
from penstock.documents.pages import Citation
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import SourceNotFound
from penstock.kernel.blobs import JSON_TYPE, BlobNotFound, Blobs, BlobStat
from penstock.kernel.json_object import JsonObject
from penstock.kernel.stages.artifacts import Artifacts

RESERVED = re.compile(r"users/[^/]*/(etl_artifacts|processed)/")
OF_OCR = re.compile(r"reading-(\d+)\.json|pages-(\d+)\.jsonl|pages/(\d+)/.*")
OF_POSTPROCESS = re.compile(r"result-(\d+)\.json|grounding-(\d+)\.json|shapes/(\d+)/.*")
CACHE = "cache"  # metadata key of a task: the cache outcome of each stage
FORCE = "force"  # metadata key of a task: bypass the cache


class CacheOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The cache key of artifacts, and the task that they were copied from."""

    key: str | None = None
    task_id: int | None = None

    @property
    def shown(self) -> JsonObject:
        """The outcome as callers see it."""
        return {"hit": self.task_id is not None, "task_id": self.task_id, "key": self.key}


NOT_CACHED = CacheOutcome()


class OcrCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `reading-{run}.json`: the OCR result of a run."""

    run: int
    reading: Reading
    cache: CacheOutcome = msgspec.field(default=NOT_CACHED, name="memo")


class ResultCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `grounding-{run}.json`: how the result of a run was made, and the citations of its values."""

    run: int
    strategy: str
    output_size: int
    usage: JsonObject = msgspec.field(default_factory=dict)
    citations: Sequence[Citation] = msgspec.field(default=(), name="places")
    notes: JsonObject = msgspec.field(default_factory=dict)
    cache: CacheOutcome = msgspec.field(default=NOT_CACHED, name="memo")


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
    return folder_of(task) + _grounding(task)


def reading_key(task: EtlTask) -> str:
    """The key of the commit marker of the OCR that this run uses."""
    return folder_of(task) + _reading(task)


def pages_key(task: EtlTask) -> str:
    """The key of the pages of the OCR that this run uses."""
    path = PurePosixPath(PAGES)
    return f"{folder_of(task)}{path.stem}-{task.ocr_run}{path.suffix}"


def work_folder(task: EtlTask, phase: Phase) -> str:
    """The working folder of a stage of this run, for its checkpoints: pages of OCR, or model replies."""
    return folder_of(task) + (f"pages/{task.ocr_run}/" if phase is Phase.OCR else f"shapes/{task.run}/")


def run_of(task: EtlTask, phase: Phase) -> int:
    """The run in the names of a stage's artifacts."""
    return task.ocr_run if phase is Phase.OCR else task.run


async def find_ocr(blobs: Blobs, task: EtlTask) -> OcrCommit | None:
    """The OCR result that this run uses, if OCR is done."""
    return await _of_task(blobs, task).find(_reading(task), OcrCommit)


async def copy_ocr(blobs: Blobs, task: EtlTask, made: Reading) -> Reading:
    """Copy OCR artifacts to the task's own folder."""
    copied = replace(made, markdown_key=markdown_key(task), pages_key=pages_key(task))
    for source, target in ((made.markdown_key, copied.markdown_key), (made.pages_key, copied.pages_key)):
        if source != target:
            await blobs.copy(source, target)
    return copied


async def commit_ocr(blobs: Blobs, task: EtlTask, made: Reading, cache: CacheOutcome = NOT_CACHED) -> OcrCommit:
    """Store OCR artifacts in the task's own folder, the commit marker last."""
    done = OcrCommit(run=task.ocr_run, reading=await copy_ocr(blobs, task, made), cache=cache)
    await _of_task(blobs, task).commit(_reading(task), done)
    return done


async def find_result(blobs: Blobs, task: EtlTask) -> ResultCommit | None:
    """How this run's result was made, if it exists: an earlier attempt was killed before it could settle."""
    return await _of_task(blobs, task).find(_grounding(task), ResultCommit)


async def commit_result(
    blobs: Blobs, task: EtlTask, made: ExtractionResult, cache: CacheOutcome = NOT_CACHED
) -> ResultCommit:
    """Store a result in the task's folder, its commit marker last."""
    receipt = await blobs.put(result_key(task), msgspec.json.encode(made.value), content_type=JSON_TYPE)
    done = ResultCommit(
        run=task.run,
        strategy=made.strategy,
        output_size=receipt.size_bytes,
        usage=made.usage,
        citations=made.citations,
        notes=made.notes,
        cache=cache,
    )
    await commit_grounding(blobs, task, done)
    return done


async def commit_grounding(blobs: Blobs, task: EtlTask, done: ResultCommit) -> None:
    """Write the commit marker of a result."""
    await _of_task(blobs, task).commit(_grounding(task), done)


async def drop_finished(blobs: Blobs, task: EtlTask, phase: Phase) -> None:
    """Delete the checkpoints of a stage that is done, and the artifacts of earlier runs; not those of later runs."""
    await drop(blobs, work_folder(task, phase))
    if task.run > 1:
        await _of_task(blobs, task).drop(lambda name: _is_earlier(name, task))


async def drop(blobs: Blobs, prefix: str) -> None:
    """Delete every blob with this prefix. Idempotent, also after an interruption."""
    await Artifacts(blobs, prefix).drop()


def _of_task(blobs: Blobs, task: EtlTask) -> Artifacts:
    return Artifacts(blobs, folder_of(task))


def _reading(task: EtlTask) -> str:
    return f"reading-{task.ocr_run}.json"


def _grounding(task: EtlTask) -> str:
    return f"grounding-{task.run}.json"


def _is_earlier(name: str, task: EtlTask) -> bool:
    for pattern, run in ((OF_OCR, task.ocr_run), (OF_POSTPROCESS, task.run)):
        if found := pattern.fullmatch(name):
            return int(next(filter(None, found.groups()))) < run
    return False
