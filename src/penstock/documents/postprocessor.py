"""The postprocessor port: extracts JSON from the pages of a document, as a rule demands."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.pages import Citation
from penstock.kernel.json_object import JsonObject


@dataclass(frozen=True, kw_only=True)
class ExtractionRule:
    """The schema of the result, and how to produce it."""

    json_schema: JsonObject | None = None
    system_prompt: str | None = None
    strategy: str | None = None
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExtractionResult:
    """A result, how it was produced, and a citation for each of its values."""

    value: Any
    strategy: str
    citations: tuple[Citation, ...] = ()
    usage: JsonObject = field(default_factory=dict)  # tokens and cost; empty without a model
    notes: JsonObject = field(default_factory=dict)  # remarks on the result, such as conflicting values


class PostProcessor(Protocol):
    """Implemented by `skip` (no extraction), `fields` (values by their labels) and `llm` (a language model)."""

    def identity(self, rule: ExtractionRule) -> JsonObject | None:
        """What a result depends on besides the pages and the rule; None when the result is too cheap to cache."""
        ...

    async def shape(self, filename: str, reading: Reading, rule: ExtractionRule, desk: Desk) -> ExtractionResult:
        """Extract a value that satisfies the schema of the rule."""
        ...
