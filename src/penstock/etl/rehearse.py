"""Rehearse: a rule is tried on a sample, as a task would use it, and nothing is kept.

Post-processors work with objects of the store, so a sample lies there for as long as the try takes. What a process that
died left behind is swept away later.
"""

import asyncio
import secrets
from dataclasses import dataclass
from datetime import timedelta

from penstock.access.domain import Caller
from penstock.documents.ocr.provider import MARKDOWN, PAGES, Reading
from penstock.documents.pages import Page, write_page
from penstock.documents.postprocessor import Shaped
from penstock.etl import moves, papers
from penstock.etl.deps import Deps
from penstock.etl.domain import Rule
from penstock.etl.errors import NoReading, TryTimedOut

PREFIX = "etl_tries/"
MOST_SAMPLE = 1_000_000  # characters of a text
TRY_SECONDS = 60.0  # somebody waits for the answer
LEFT = timedelta(hours=1)  # after which no try can still be going on
SAMPLE_NAME = "sample.md"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a rule is tried on: a text, or what was read for a task."""

    markdown: str | None = None
    task_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class QuietDesk:
    """A desk where nobody asks how far the work is."""

    folder: str
    provider_task_id: str | None = None

    async def progress(self, done: int, of: int) -> None:
        """Nobody looks."""

    async def remember(self, provider_task_id: str) -> None:
        """Nobody goes on later."""


async def try_rule(tools: Deps, caller: Caller, rule_id: int, sample: Sample) -> tuple[Rule, Shaped]:
    """What a rule makes of a sample."""
    async with tools.db.read() as tx:
        rule = await moves.get_rule_for(tools, tx, caller, rule_id)
    folder = f"{PREFIX}{secrets.token_hex(8)}/"
    try:
        filename, reading = await _read(tools, caller, sample, folder)
        async with asyncio.timeout(TRY_SECONDS):
            shaper, desk = moves.shaper_of(tools, rule), QuietDesk(folder=folder)
            return rule, await shaper.shape(filename, reading, rule.body.asked, desk)
    except TimeoutError as error:
        raise TryTimedOut(seconds=TRY_SECONDS) from error
    finally:
        await papers.drop(tools.blobs, folder)


async def sweep(tools: Deps) -> None:
    """Delete what tries left behind whose process died."""
    before, after = tools.db.clock.now() - LEFT, ""
    while found := (await tools.blobs.list(PREFIX, after=after or None)).blobs:
        for blob in found:
            if blob.modified_at < before:
                await tools.blobs.delete(blob.key)
        after = found[-1].key


async def _read(tools: Deps, caller: Caller, sample: Sample, folder: str) -> tuple[str, Reading]:
    if sample.task_id is not None:
        return await _reading_of(tools, caller, sample.task_id)
    text = sample.markdown or ""
    await tools.blobs.put(folder + MARKDOWN, text.encode())
    await tools.blobs.put(folder + PAGES, write_page(Page(number=1, origin="file", markdown=text)))
    made = Reading(markdown_key=folder + MARKDOWN, pages_key=folder + PAGES, provider_task_id="sample", page_count=1)
    return SAMPLE_NAME, made


async def _reading_of(tools: Deps, caller: Caller, task_id: int) -> tuple[str, Reading]:
    async with tools.db.read() as tx:
        task = await moves.get_own(tx, caller, task_id)
    reading = await papers.find_reading(tools.blobs, task)
    if reading is None:
        raise NoReading(task_id=task_id)
    return task.filename, reading
