"""Extraction rules: what to extract from documents, and how."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from penstock.documents.postprocessor import ExtractionRule
from penstock.kernel.json_object import JsonObject

MAX_VERSION = 2**31 - 1  # fits the integer column


class Mode(StrEnum):
    """Which post-processor turns the OCR text into JSON."""

    LLM = "llm"  # a language model
    SKIP = "skip"  # none: the result refers to the markdown
    FIELDS = "fields"  # labels, tables and formats in the document, without a model


class Strategy(StrEnum):
    """How the document is sent to the model."""

    DIRECT_JSON = "direct-json"
    CHUNKED_SUMMARIZE = "chunked-summarize"
    CHUNKED_EXTRACT = "chunked-extract"


class ReviewReason(StrEnum):
    """Why a task needs a person."""

    UNGROUNDED = "ungrounded"  # a value of the result was not found in the document
    FAILED = "failed"  # a stage failed for good


@dataclass(frozen=True, kw_only=True)
class ReviewPolicy:
    """When a person or an agent reviews a task, and the project and queue of the tasks module that they pull from."""

    when: tuple[ReviewReason, ...]
    project_id: str
    queue_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class RuleBody:
    """The content of a rule; each change makes a new version."""

    name: str
    description: str = ""
    json_schema: JsonObject | None = None
    system_prompt: str | None = None
    postprocess_mode: Mode = Mode.LLM
    postprocess_strategy: Strategy | None = None
    options: JsonObject = field(default_factory=dict)
    review: ReviewPolicy | None = None

    @property
    def extraction_rule(self) -> ExtractionRule:
        """The part that the post-processor gets."""
        return ExtractionRule(
            json_schema=self.json_schema,
            system_prompt=self.system_prompt,
            strategy=self.postprocess_strategy,
            options=self.options,
        )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One version of a rule. A rule without an owner is a system rule: everyone may use it, nobody may change it."""

    id: int
    version: int
    user_id: int | None
    body: RuleBody
    created_at: datetime
    updated_at: datetime

    @property
    def is_system(self) -> bool:
        """Whether it has no owner."""
        return self.user_id is None


_BUILT_IN_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_RULE = Rule(
    id=0,
    version=1,
    user_id=None,
    body=RuleBody(
        name="default",
        description="Runs OCR and returns a reference to the markdown; calls no model.",
        postprocess_mode=Mode.SKIP,
    ),
    created_at=_BUILT_IN_SINCE,
    updated_at=_BUILT_IN_SINCE,
)
