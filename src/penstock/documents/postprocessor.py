"""The shaping port: what was read becomes JSON, under a rule."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.pages import Place
from penstock.kernel.plain import Plain


@dataclass(frozen=True, kw_only=True)
class ShapeRule:
    """What is wanted: the schema of the result, and how to get there."""

    json_schema: Plain | None = None
    system_prompt: str | None = None
    strategy: str | None = None
    options: Plain = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Shaped:
    """A result, how it was made, and where each of its values stands in the document."""

    value: Any
    strategy: str
    places: tuple[Place, ...] = ()
    usage: Plain = field(default_factory=dict)  # what a model cost; empty where there was none
    notes: Plain = field(default_factory=dict)  # what else a reader of the result should know, such as conflicts


class PostProcessor(Protocol):
    """The port: leave it as it is (`skip`), find fields by their labels (`fields`), ask a model (`llm`)."""

    def identity(self, rule: ShapeRule) -> Plain | None:
        """What a result depends on beside the pages and the rule; none when making it again costs next to nothing."""
        ...

    async def shape(self, filename: str, reading: Reading, rule: ShapeRule, desk: Desk) -> Shaped:
        """Make a value that satisfies the rule's schema."""
        ...
