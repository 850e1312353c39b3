"""The post-processor: turns a document and a rule into a value with citations and usage."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import msgspec

from penstock.adapters.llm_postprocessor.session import ModelSession, TargetSchema
from penstock.adapters.llm_postprocessor.strategies import (
    DIRECT,
    STRATEGIES,
    Extracted,
    ExtractionInput,
    LlmPostProcessorConfig,
)
from penstock.adapters.llm_postprocessor.validation import AnswerChecker, GroundFunction, ground_result
from penstock.documents import grounding
from penstock.documents.blob_files import local_file
from penstock.documents.chat_model import ChatModel
from penstock.documents.errors import DocumentUnreadable
from penstock.documents.extract.errors import (
    DocumentHasNoText,
    DocumentHasTooManyChunks,
    ModelRuleUnusable,
    ResultNotGrounded,
)
from penstock.documents.extract.llm.chunks import Chunk, TooManyChunks, chunk_pages
from penstock.documents.extract.llm.options import LlmOptions, read_options
from penstock.documents.extract.llm.prompts import PROMPT_VERSION
from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.pages import Citation, Page, page_marker
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule, pages_file
from penstock.kernel.blobs import Blobs
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox


class LlmPostProcessor:
    """Asks a model for a value that satisfies the rule's schema."""

    def __init__(
        self,
        model: ChatModel,
        blobs: Blobs,
        sandbox: Sandbox,
        scratch: Path,
        *,
        ground: GroundFunction = ground_result,
        config: LlmPostProcessorConfig | None = None,
    ) -> None:
        self._model = model
        self._blobs = blobs
        self._scratch = scratch
        self._checker = AnswerChecker(sandbox=sandbox, scratch=scratch, ground=ground)
        self._config = config or LlmPostProcessorConfig()

    def identity(self, rule: ExtractionRule) -> JsonObject:
        """What a result depends on: model, prompts, chunking and grounding."""
        options = read_options(rule.options)
        config = self._config_for(options)
        by_size = [config.threshold_characters, config.chunk_strategy] if rule.strategy is None else []
        return {
            "model": self._model.identity(options.which),
            "prompts": PROMPT_VERSION,
            "grounding": grounding.VERSION,
            "by_size": by_size,
            "chunk": None if rule.strategy == DIRECT else config.chunk_characters,
        }

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """A value that satisfies the schema; every leaf is looked up in the pages."""
        return await self._extract(filename, local_file(self._blobs, reading.pages_key, self._scratch), rule, context)

    async def extract_pages(
        self, filename: str, pages: Sequence[Page], rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """A value that satisfies the schema; every leaf is looked up in these pages."""
        return await self._extract(filename, pages_file(pages, self._scratch), rule, context)

    async def _extract(
        self, filename: str, file: AbstractAsyncContextManager[Path], rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        options = read_options(rule.options)
        config = self._config_for(options)
        target = await asyncio.to_thread(TargetSchema.of, rule.json_schema)
        self._model.identity(options.which)  # raises before anything is read if the model is unknown
        async with file as pages:
            strategy, chunks = await asyncio.to_thread(self._plan, filename, pages, rule, config)
            session = ModelSession(
                filename=filename,
                model=self._model,
                which=options.which,
                blobs=self._blobs,
                checker=self._checker,
                context=context,
                repair_rounds=self._config.repair_rounds,
            )
            source = ExtractionInput(chunks=chunks, target=target, system_prompt=rule.system_prompt, config=config)
            extracted = await STRATEGIES[strategy](session, source)
            found, citations = await self._ground(session, target, pages, extracted, options)
        await session.step()
        notes = {**found.notes, **({"mended": session.repaired} if session.repaired else {})}
        return ExtractionResult(
            value=found.value, strategy=strategy, citations=citations, usage=session.usage(strategy), notes=notes
        )

    def _plan(
        self, filename: str, pages: Path, rule: ExtractionRule, config: LlmPostProcessorConfig
    ) -> tuple[str, list[Chunk]]:
        """Choose the strategy, by the rule or the size of the document (direct-json if short), and chunks. Blocks."""
        most = max(config.threshold_characters, self._config.chunk_characters * config.max_chunks)
        try:
            text = read_text(filename, pages, max_characters=most)
            length = sum(len(words) for _, words in text)
            by_size = DIRECT if length <= config.threshold_characters else config.chunk_strategy
            strategy = by_size if rule.strategy is None else str(rule.strategy)
            if strategy not in STRATEGIES:
                raise ModelRuleUnusable(reason=f"there is no postprocess_strategy {strategy!r}")
            if strategy == DIRECT:
                whole = "".join(words for _, words in text)
                return strategy, [Chunk(text=whole, first_page=text[0][0], last_page=text[-1][0])]
            return strategy, chunk_pages(text, max_characters=config.chunk_characters, max_chunks=config.max_chunks)
        except (TextTooLong, TooManyChunks) as error:
            raise DocumentHasTooManyChunks(
                filename=filename, most=config.max_chunks, size=config.chunk_characters
            ) from error

    async def _ground(
        self, session: ModelSession, target: TargetSchema, pages: Path, extracted: Extracted, options: LlmOptions
    ) -> tuple[Extracted, tuple[Citation, ...]]:
        """The value with its citations. A value that is too large to ground is kept as it is, with a note."""
        nulls = options.null_ungrounded
        found = await self._checker.find(
            session.filename, extracted.value, pages, target.schema_json, null_ungrounded=nulls
        )
        if found.limit_exceeded is not None and nulls:
            raise ResultNotGrounded(filename=session.filename, reason=found.limit_exceeded)
        if found.limit_exceeded is not None:
            return replace(extracted, notes={**extracted.notes, "not_grounded": found.limit_exceeded}), ()
        if found.value != extracted.value and (await session.check_value(found.value, target)).is_valid:
            return replace(extracted, value=found.value), found.citations
        if nulls and not all(citation.grounded for citation in found.citations):
            return replace(
                extracted, notes={**extracted.notes, "not_nulled": "the schema requires these values"}
            ), found.citations
        return extracted, found.citations

    def _config_for(self, options: LlmOptions) -> LlmPostProcessorConfig:
        size = self._config.chunk_characters
        return replace(self._config, chunk_characters=min(size, options.chunk_characters or size))


class _PageText(msgspec.Struct, frozen=True):
    """The text of a page, without its spans."""

    number: int
    markdown: str


class TextTooLong(Exception):
    """The document has more text than a model may be asked about."""


def read_text(filename: str, pages: Path, *, max_characters: int) -> list[tuple[int, str]]:
    """The pages by number and text, each with its page mark. Blocks on the disk: call it in a thread."""
    try:
        with pages.open("rb") as file:
            lines = map(msgspec.json.Decoder(_PageText).decode, filter(bytes.strip, file))
            read = list(_bounded(lines, max_characters))
    except msgspec.MsgspecError as error:
        raise DocumentUnreadable(filename=filename, kind="a file of pages", reason=str(error)) from error
    if not any(page.markdown.strip() for page in read):
        raise DocumentHasNoText(filename=filename)
    return [(page.number, f"{page_marker(page.number)}\n\n{page.markdown}\n\n") for page in read]


def _bounded(pages: Iterator[_PageText], max_characters: int) -> Iterator[_PageText]:
    length = 0
    for page in pages:
        length += len(page.markdown)
        if length > max_characters:
            raise TextTooLong
        yield page
