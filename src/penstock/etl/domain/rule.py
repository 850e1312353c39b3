"""What callers want made of their documents."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from penstock.documents.postprocessor import ShapeRule
from penstock.kernel.json_object import JsonObject

MOST_VERSION = 2**31 - 1  # what a database takes for one


class Mode(StrEnum):
    """Who makes JSON of what was read."""

    LLM = "llm"  # a model
    SKIP = "skip"  # nobody: the result points to the markdown
    FIELDS = "fields"  # labels, tables and formats of the document itself


class Strategy(StrEnum):
    """How a model is asked."""

    DIRECT_JSON = "direct-json"
    CHUNKED_SUMMARIZE = "chunked-summarize"
    CHUNKED_EXTRACT = "chunked-extract"


@dataclass(frozen=True, kw_only=True)
class RuleBody:
    """What a rule says; a change makes a new version."""

    name: str
    description: str = ""
    json_schema: JsonObject | None = None
    system_prompt: str | None = None
    postprocess_mode: Mode = Mode.LLM
    postprocess_strategy: Strategy | None = None
    options: JsonObject = field(default_factory=dict)

    @property
    def asked(self) -> ShapeRule:
        """What a post-processor is told of it."""
        return ShapeRule(
            json_schema=self.json_schema,
            system_prompt=self.system_prompt,
            strategy=self.postprocess_strategy,
            options=self.options,
        )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule in one of its versions. Without an owner it is the system's: everyone may use it, nobody change it."""

    id: int
    version: int
    user_id: int | None
    body: RuleBody
    created_at: datetime
    updated_at: datetime

    @property
    def is_system(self) -> bool:
        """Whether it belongs to nobody."""
        return self.user_id is None


_ALWAYS = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_RULE = Rule(
    id=0,
    version=1,
    user_id=None,
    body=RuleBody(
        name="default",
        description="Reads the document and points to its markdown; no model is asked.",
        postprocess_mode=Mode.SKIP,
    ),
    created_at=_ALWAYS,
    updated_at=_ALWAYS,
)
