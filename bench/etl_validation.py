"""Cost of validating a model's response. The reference is the whole post-processing stage.

The model is a real one, small and local, so its stage is about as short as a model stage can be. The stage is
`LlmPostProcessor` from the pages to the grounded result; validation is decoding the answer in the sandbox and checking
it against the schema.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.llm import DEFAULT, ChatCompletions, ChatConfig, ModelServer
from penstock.adapters.llm_postprocessor import PRELOAD, LlmPostProcessor
from penstock.adapters.llm_postprocessor.validation import AnswerChecker
from penstock.documents.ocr.provider import PAGES, Reading
from penstock.documents.pages import Page, Span, write_page
from penstock.documents.postprocessor import ExtractionRule
from penstock.kernel.clock import SystemClock
from penstock.kernel.rate_limits import SqlRateLimits
from penstock.kernel.sandbox.call import Sandbox
from tests.conftest import open_db
from tests.servers.small_model import SmallModel

TARGET = 0.01
CHECKS = 20
FOLDER = "bench/"
LINES = ("Invoice 4711 of Brook & Sons Ltd", "Date: 3 March 2026", "Total: 12.50 EUR", "Paid: yes")
TEXT = {"type": "string", "maxLength": 40}
SCHEMA = {
    "type": "object",
    "properties": {"vendor": TEXT, "number": TEXT, "date": TEXT, "total": {"type": "number"}, "currency": TEXT},
    "required": ["vendor", "number", "date", "total", "currency"],
    "additionalProperties": False,
}


class SilentContext:
    """A stage context that ignores progress and has no earlier attempt."""

    provider_task_id = None

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def progress(self, done: int, of: int) -> None:
        """Ignore it."""

    async def remember(self, provider_task_id: str) -> None:
        """Ignore it."""


def run() -> list[Finding]:
    """Three documents, without the cache."""
    with databases.folder() as folder, SmallModel.start() as model:
        asyncio.run(databases.migrated(f"sqlite:///{folder / 'checks.db'}"))
        return [asyncio.run(_measured(folder, model))]


async def _measured(folder: Path, model: SmallModel) -> Finding:
    async with _opened(folder, model) as (post_processor, checker):
        rounds = [await _round(post_processor, checker, f"{FOLDER}{number}/") for number in range(ROUNDS)]
    return summary("checking a model's answer beside the whole stage", "s", rounds, at_most=TARGET)


@asynccontextmanager
async def _opened(folder: Path, model: SmallModel) -> AsyncIterator[tuple[LlmPostProcessor, AnswerChecker]]:
    clock, blobs = SystemClock(), DiskBlobs(folder / "blobs")
    db = open_db(f"sqlite:///{folder / 'checks.db'}", clock)
    server = ModelServer(name=DEFAULT, base_url=model.base_url, api_key=model.api_key, model=model.model)
    chat = ChatCompletions([server], ChatConfig(temperature=0), limits=SqlRateLimits(db), clock=clock)
    spans = tuple(Span(text=line) for line in LINES)
    page = Page(number=1, origin="file", markdown="\n\n".join(LINES), spans=spans)
    await blobs.put(FOLDER + PAGES, write_page(page))
    async with Sandbox(preload=PRELOAD) as sandbox:
        yield LlmPostProcessor(chat, blobs, sandbox, folder), AnswerChecker(sandbox=sandbox, scratch=folder)
    await chat.close()
    await db.close()


async def _round(post_processor: LlmPostProcessor, checker: AnswerChecker, folder: str) -> tuple[float, float]:
    """Seconds of the stage, and of the validation in it."""
    key = FOLDER + PAGES
    reading = Reading(markdown_key=key, pages_key=key, provider_task_id="bench", page_count=1)
    began = time.perf_counter()
    extracted = await post_processor.extract(
        "invoice.txt", reading, ExtractionRule(json_schema=SCHEMA), SilentContext(folder)
    )
    stage = time.perf_counter() - began
    answer, schema = msgspec.json.encode(extracted.value).decode(), msgspec.json.encode(SCHEMA)
    checks = []
    for _ in range(CHECKS):
        began = time.perf_counter()
        assert (await checker.validate("invoice.txt", answer, schema)).problems == ()
        checks.append(time.perf_counter() - began)
    return stage, statistics.median(checks) * extracted.usage["calls"]
