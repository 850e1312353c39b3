"""OCR providers and post-processors named by their behaviour, without an engine."""

import asyncio
from collections import Counter
from typing import Any

from penstock.documents.ocr.provider import MARKDOWN, PAGES, Reading, Source, StageContext
from penstock.documents.pages import Citation, Page, page_marker, write_page
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.kernel.blobs import BlobNotFound, Blobs
from penstock.kernel.json_object import JsonObject

PAGE_BREAK = "\f"


class NoOcr:
    """Fails the test if it is called."""

    name = "none"
    identity: JsonObject = {}  # noqa: RUF012  (nobody changes it)

    async def read(self, source: Source, context: StageContext) -> Reading:
        raise AssertionError(f"{source.key} was not to be read")


class EchoOcr:
    """Reads text documents whose pages are separated by form feeds, and stores each page as soon as it is read."""

    name = "echo"

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.calls = 0
        self.pages_read: Counter[int] = Counter()
        self.version = "1"

    @property
    def identity(self) -> JsonObject:
        """The cache identity; a test may change the version."""
        return {"reader": self.name, "version": self.version}

    async def read(self, source: Source, context: StageContext) -> Reading:
        self.calls += 1
        texts = (await self._blobs.get(source.key)).decode().split(PAGE_BREAK)
        pages = []
        for number, text in enumerate(texts, 1):
            pages.append(await self._page(context, number, text))
            await context.progress(number, len(texts))
        markdown = "".join(f"{page_marker(number)}\n{text}\n" for number, text in enumerate(pages, 1))
        lines = [write_page(Page(number=n, origin="file", markdown=text)) for n, text in enumerate(pages, 1)]
        await self._blobs.put(context.folder + MARKDOWN, markdown.encode())
        await self._blobs.put(context.folder + PAGES, b"".join(lines))
        return Reading(
            markdown_key=context.folder + MARKDOWN,
            pages_key=context.folder + PAGES,
            provider_task_id=f"echo-{source.filename}",
            page_count=len(pages),
            metadata={"pages": len(pages), "version": "1"},
        )

    async def _page(self, context: StageContext, number: int, text: str) -> str:
        key = f"{context.folder}page-{number}.md"
        try:
            return (await self._blobs.get(key)).decode()
        except BlobNotFound:
            await self.before_page(number)
            self.pages_read[number] += 1
            await self._blobs.put(key, text.encode())
            return text

    async def before_page(self, number: int) -> None:
        """Called before each page that is read."""


class OcrThatFails(EchoOcr):
    """Fails so many times, then succeeds."""

    def __init__(self, blobs: Blobs, error: Exception, *, times: int) -> None:
        super().__init__(blobs)
        self._errors = [error] * times

    async def read(self, source: Source, context: StageContext) -> Reading:
        if self._errors:
            self.calls += 1
            raise self._errors.pop()
        return await super().read(source, context)


class OcrThatBreaksOff(EchoOcr):
    """Fails once before a page; earlier pages are stored."""

    def __init__(self, blobs: Blobs, *, before_page: int) -> None:
        super().__init__(blobs)
        self._breaks = [before_page]

    async def before_page(self, number: int) -> None:
        if number in self._breaks:
            self._breaks.remove(number)
            raise OSError("the line went dead")


class OcrThatWaits(EchoOcr):
    """Blocks before a page until `go_on` is set."""

    def __init__(self, blobs: Blobs, *, before_page: int) -> None:
        super().__init__(blobs)
        self._before_page = before_page
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()

    async def before_page(self, number: int) -> None:
        if number == self._before_page:
            self.waits.set()
            await self.go_on.wait()


class OcrThatTimesOut(OcrThatWaits):
    """Reads the first page, then hangs."""

    def __init__(self, blobs: Blobs) -> None:
        super().__init__(blobs, before_page=2)


class RemoteOcr(EchoOcr):
    """Gets a task id from a remote service, and polls the same task on every attempt."""

    def __init__(self, blobs: Blobs, *, breaks: int = 0) -> None:
        super().__init__(blobs)
        self.begun: list[str] = []
        self._breaks = breaks

    async def read(self, source: Source, context: StageContext) -> Reading:
        task_id = context.provider_task_id
        if task_id is None:
            task_id = f"far-{len(self.begun) + 1}"
            self.begun.append(task_id)
            await context.remember(task_id)
        if self._breaks:
            self._breaks -= 1
            raise OSError("the line went dead")
        return await super().read(source, context)


class EchoPostProcessor:
    """Returns its input, with a citation."""

    def __init__(self) -> None:
        self.calls = 0
        self.rules: list[ExtractionRule] = []

    def identity(self, rule: ExtractionRule) -> JsonObject | None:
        """Not cached: its result contains the task's own keys."""
        return None

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        self.calls += 1
        self.rules.append(rule)
        await context.progress(1, 2)
        value: dict[str, Any] = {"markdown_s3_key": reading.markdown_key, "provider_task_id": reading.provider_task_id}
        value |= {"metadata": reading.metadata, "filename": filename, "page_count": reading.page_count}
        citation = Citation(pointer="/filename", grounded=False)
        return ExtractionResult(value=value, strategy=rule.strategy or "echo", citations=(citation,))


class PostProcessorThatFails(EchoPostProcessor):
    """Fails so many times, then succeeds."""

    def __init__(self, error: Exception, *, times: int) -> None:
        super().__init__()
        self._errors = [error] * times

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        if self._errors:
            self.calls += 1
            raise self._errors.pop()
        return await super().extract(filename, reading, rule, context)


class PostProcessorThatCosts(EchoPostProcessor):
    """Returns the same result for the same pages, at a cost."""

    def __init__(self, model: str = "large") -> None:
        super().__init__()
        self.model = model

    def identity(self, rule: ExtractionRule) -> JsonObject | None:
        """Cached by model."""
        return {"model": self.model}

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        self.calls += 1
        self.rules.append(rule)
        citation = Citation(pointer="/pages", grounded=True, page=1)
        usage = {"model": self.model, "cost": 0.25}
        value = {"pages": reading.page_count}
        return ExtractionResult(
            value=value, strategy="direct-json", citations=(citation,), usage=usage, notes={"rounds": 1}
        )
