"""Dry run: apply a rule to a sample as a task would, without keeping anything.

Post-processors read blobs, so the sample is stored for the duration of the dry run. A periodic task deletes samples
that a killed process left behind.
"""

import asyncio
import secrets
from dataclasses import dataclass
from datetime import timedelta

from penstock.access.domain import Caller
from penstock.documents.ocr.provider import MARKDOWN, PAGES, Reading
from penstock.documents.pages import Page, write_page
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl import artifacts, lifecycle
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Rule
from penstock.etl.errors import DryRunTimedOut, OcrResultMissing
from penstock.kernel.db import Tx

PREFIX = "etl_tries/"
MAX_SAMPLE_CHARS = 1_000_000
DRY_RUN_SECONDS = 60.0  # a client waits for the response
LEFTOVER_AGE = timedelta(hours=1)  # no dry run lasts as long
SAMPLE_NAME = "sample.md"


@dataclass(frozen=True, kw_only=True)
class RuleSample:
    """The input of a dry run: a text, or the OCR result of a task."""

    markdown: str | None = None
    task_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class DryRunContext:
    """A stage context that ignores progress."""

    folder: str
    provider_task_id: str | None = None

    async def progress(self, done: int, of: int) -> None:
        """Ignore it: nobody watches a dry run."""

    async def remember(self, provider_task_id: str) -> None:
        """Ignore it: a dry run is never resumed."""


async def get_rule_and_task(
    tx: Tx, deps: Deps, caller: Caller, rule_id: int, sample: RuleSample
) -> tuple[Rule, EtlTask | None]:
    """The rule to try, and the task whose OCR result is the sample, if one is."""
    rule = await lifecycle.get_rule_for_task(tx, deps, caller, rule_id)
    task_id = sample.task_id
    return rule, None if task_id is None else await lifecycle.get_owned_task(tx, caller, task_id)


async def try_rule(deps: Deps, rule: Rule, sample: RuleSample, task: EtlTask | None) -> ExtractionResult:
    """Apply a rule to a sample."""
    folder = f"{PREFIX}{secrets.token_hex(8)}/"
    try:
        filename, reading = await _read(deps, sample, task, folder)
        async with asyncio.timeout(DRY_RUN_SECONDS):
            post_processor, context = lifecycle.get_post_processor(deps, rule), DryRunContext(folder=folder)
            return await post_processor.extract(filename, reading, rule.body.extraction_rule, context)
    except TimeoutError as error:
        raise DryRunTimedOut(seconds=DRY_RUN_SECONDS) from error
    finally:
        await artifacts.drop(deps.blobs, folder)


async def delete_leftovers(deps: Deps) -> None:
    """Delete samples of dry runs whose process was killed."""
    before, after = deps.db.clock.now() - LEFTOVER_AGE, ""
    while found := (await deps.blobs.list(PREFIX, after=after or None)).blobs:
        for blob in found:
            if blob.modified_at < before:
                await deps.blobs.delete(blob.key)
        after = found[-1].key


async def _read(deps: Deps, sample: RuleSample, task: EtlTask | None, folder: str) -> tuple[str, Reading]:
    if task is not None:
        done = await artifacts.find_ocr(deps.blobs, task)
        if done is None:
            raise OcrResultMissing(task_id=task.id)
        return task.filename, done.reading
    text = sample.markdown or ""
    await deps.blobs.put(folder + MARKDOWN, text.encode())
    await deps.blobs.put(folder + PAGES, write_page(Page(number=1, origin="file", markdown=text)))
    reading = Reading(markdown_key=folder + MARKDOWN, pages_key=folder + PAGES, provider_task_id="sample", page_count=1)
    return SAMPLE_NAME, reading
