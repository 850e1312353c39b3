"""The post-processor: a document and a rule in, a value with its places and its price out."""

import asyncio
from dataclasses import replace
from pathlib import Path

from penstock.adapters.llm_shaper.asker import Asker, Wanted
from penstock.adapters.llm_shaper.checking import Checker, Ground, ground_result
from penstock.adapters.llm_shaper.strategies import DIRECT, STRATEGIES, AskingTerms, Matter, Outcome
from penstock.adapters.llm_shaper.text import TextTooLong, read_text
from penstock.documents import grounding
from penstock.documents.blob_files import borrowed
from penstock.documents.chat_model import ChatModel
from penstock.documents.extract.errors import DocumentHasTooManyChunks, ModelRuleUnusable, ResultNotGrounded
from penstock.documents.extract.llm.chunks import Chunk, TooManyChunks, chunk_pages
from penstock.documents.extract.llm.options import LlmOptions, read_options
from penstock.documents.extract.llm.prompts import PROMPT_VERSION
from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.pages import Citation
from penstock.documents.postprocessor import Shaped, ShapeRule
from penstock.kernel.blobs import Blobs
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox


class LlmShaper:
    """Asks a model for what the rule's schema wants."""

    def __init__(
        self,
        model: ChatModel,
        blobs: Blobs,
        sandbox: Sandbox,
        scratch: Path,
        *,
        ground: Ground = ground_result,
        terms: AskingTerms | None = None,
    ) -> None:
        self._model = model
        self._blobs = blobs
        self._scratch = scratch
        self._checker = Checker(sandbox=sandbox, scratch=scratch, ground=ground)
        self._terms = terms or AskingTerms()

    def identity(self, rule: ShapeRule) -> JsonObject:
        """The model, the words it is asked with, what decides where a document is cut, and who judges the values."""
        options = read_options(rule.options)
        terms = self._terms_for(options)
        by_size = [terms.threshold_characters, terms.chunk_strategy] if rule.strategy is None else []
        return {
            "model": self._model.identity(options.which),
            "prompts": PROMPT_VERSION,
            "grounding": grounding.VERSION,
            "by_size": by_size,
            "chunk": None if rule.strategy == DIRECT else terms.chunk_characters,
        }

    async def shape(self, filename: str, reading: Reading, rule: ShapeRule, desk: Desk) -> Shaped:
        """A value that satisfies the schema; every leaf is looked for in the pages."""
        options = read_options(rule.options)
        terms = self._terms_for(options)
        wanted = await asyncio.to_thread(Wanted.by, rule.json_schema)
        self._model.identity(options.which)  # none by that name is known before anything is read
        async with borrowed(self._blobs, reading.pages_key, self._scratch) as pages:
            strategy, chunks = await asyncio.to_thread(self._plan, filename, pages, rule, terms)
            asker = Asker(
                filename=filename,
                model=self._model,
                which=options.which,
                blobs=self._blobs,
                checker=self._checker,
                desk=desk,
                repair_rounds=self._terms.repair_rounds,
            )
            matter = Matter(chunks=chunks, wanted=wanted, system_prompt=rule.system_prompt, terms=terms)
            made = await STRATEGIES[strategy](asker, matter)
            found, citations = await self._ground(asker, wanted, pages, made, options)
        await asker.step()
        notes = {**found.notes, **({"mended": asker.mended} if asker.mended else {})}
        return Shaped(
            value=found.value, strategy=strategy, citations=citations, usage=asker.usage(strategy), notes=notes
        )

    def _plan(self, filename: str, pages: Path, rule: ShapeRule, terms: AskingTerms) -> tuple[str, list[Chunk]]:
        """How to ask, by the rule or by the size of the document, and about which chunks. It blocks."""
        most = max(terms.threshold_characters, self._terms.chunk_characters * terms.most_chunks)
        try:
            text = read_text(filename, pages, most_characters=most)
            length = sum(len(words) for _, words in text)
            by_size = DIRECT if length <= terms.threshold_characters else terms.chunk_strategy
            strategy = by_size if rule.strategy is None else str(rule.strategy)
            if strategy not in STRATEGIES:
                raise ModelRuleUnusable(reason=f"there is no postprocess_strategy {strategy!r}")
            if strategy == DIRECT:
                whole = "".join(words for _, words in text)
                return strategy, [Chunk(text=whole, first_page=text[0][0], last_page=text[-1][0])]
            return strategy, chunk_pages(text, max_characters=terms.chunk_characters, max_chunks=terms.most_chunks)
        except (TextTooLong, TooManyChunks) as error:
            raise DocumentHasTooManyChunks(
                filename=filename, most=terms.most_chunks, size=terms.chunk_characters
            ) from error

    async def _ground(
        self, asker: Asker, wanted: Wanted, pages: Path, made: Outcome, options: LlmOptions
    ) -> tuple[Outcome, tuple[Citation, ...]]:
        """The value with its places. A value that nobody can look for stands as it is, and that is told."""
        nulls = options.null_ungrounded
        found = await self._checker.find(asker.filename, made.value, pages, wanted.written, null_ungrounded=nulls)
        if found.limit_exceeded is not None and nulls:
            raise ResultNotGrounded(filename=asker.filename, reason=found.limit_exceeded)
        if found.limit_exceeded is not None:
            return replace(made, notes={**made.notes, "not_grounded": found.limit_exceeded}), ()
        if found.value != made.value and (await asker.check_value(found.value, wanted)).is_valid:
            return replace(made, value=found.value), found.citations
        if nulls and not all(citation.grounded for citation in found.citations):
            return replace(made, notes={**made.notes, "not_nulled": "the schema wants these values"}), found.citations
        return made, found.citations

    def _terms_for(self, options: LlmOptions) -> AskingTerms:
        size = self._terms.chunk_characters
        return replace(self._terms, chunk_characters=min(size, options.chunk_characters or size))
