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
from penstock.etl import lifecycle, papers
from penstock.etl.deps import Deps
from penstock.etl.domain import Rule
from penstock.etl.errors import DryRunTimedOut, OcrResultMissing

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
class DryRunDesk:
    """A stage context that ignores progress."""

    folder: str
    provider_task_id: str | None = None

    async def progress(self, done: int, of: int) -> None:
        """Ignore it: nobody watches a dry run."""

    async def remember(self, provider_task_id: str) -> None:
        """Ignore it: a dry run is never resumed."""


async def try_rule(deps: Deps, caller: Caller, rule_id: int, sample: RuleSample) -> tuple[Rule, ExtractionResult]:
    """Apply a rule to a sample; returns the rule and its result."""
    async with deps.db.read() as tx:
        rule = await lifecycle.get_rule_for_task(deps, tx, caller, rule_id)
    folder = f"{PREFIX}{secrets.token_hex(8)}/"
    try:
        filename, reading = await _read(deps, caller, sample, folder)
        async with asyncio.timeout(DRY_RUN_SECONDS):
            post_processor, desk = lifecycle.get_post_processor(deps, rule), DryRunDesk(folder=folder)
            return rule, await post_processor.shape(filename, reading, rule.body.extraction_rule, desk)
    except TimeoutError as error:
        raise DryRunTimedOut(seconds=DRY_RUN_SECONDS) from error
    finally:
        await papers.drop(deps.blobs, folder)


async def delete_leftovers(deps: Deps) -> None:
    """Delete samples of dry runs whose process was killed."""
    before, after = deps.db.clock.now() - LEFTOVER_AGE, ""
    while found := (await deps.blobs.list(PREFIX, after=after or None)).blobs:
        for blob in found:
            if blob.modified_at < before:
                await deps.blobs.delete(blob.key)
        after = found[-1].key


async def _read(deps: Deps, caller: Caller, sample: RuleSample, folder: str) -> tuple[str, Reading]:
    if sample.task_id is not None:
        return await _ocr_result(deps, caller, sample.task_id)
    text = sample.markdown or ""
    await deps.blobs.put(folder + MARKDOWN, text.encode())
    await deps.blobs.put(folder + PAGES, write_page(Page(number=1, origin="file", markdown=text)))
    reading = Reading(markdown_key=folder + MARKDOWN, pages_key=folder + PAGES, provider_task_id="sample", page_count=1)
    return SAMPLE_NAME, reading


async def _ocr_result(deps: Deps, caller: Caller, task_id: int) -> tuple[str, Reading]:
    async with deps.db.read() as tx:
        task = await lifecycle.get_owned_task(tx, caller, task_id)
    reading = await papers.find_reading(deps.blobs, task)
    if reading is None:
        raise OcrResultMissing(task_id=task_id)
    return task.filename, reading
