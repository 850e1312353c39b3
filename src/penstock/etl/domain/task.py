"""One document on its way to JSON."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from penstock.kernel.json_object import JsonObject
from penstock.kernel.machine import Machine


class Status(StrEnum):
    """What callers see. The two in the middle are run state's alone: no row ever has them."""

    PENDING = "pending"
    MINERU_PARSING = "mineru_parsing"
    LLM_PROCESSING = "llm_processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(StrEnum):
    """Which part of the way a run is on."""

    OCR = "ocr"
    POSTPROCESS = "postprocess"
    FINALIZE = "finalize"


class Stage(StrEnum):
    """Where a retry can begin, by the words of the API."""

    OCR = "mineru"
    POSTPROCESS = "postprocess"


IN_CHINESE = "zh"  # among the metadata of a failed task: its error and hint in Chinese
FROM_STAGE = "from_stage"  # among the metadata of a run that a retry opened
FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})

ETL_TASK = Machine(
    "etl task",
    {
        "read": ({Status.PENDING}, Status.MINERU_PARSING),
        "shape": ({Status.PENDING, Status.MINERU_PARSING}, Status.LLM_PROCESSING),
        "complete": ({Status.PENDING, Status.MINERU_PARSING, Status.LLM_PROCESSING}, Status.COMPLETED),
        "fail": ({Status.PENDING, Status.MINERU_PARSING, Status.LLM_PROCESSING}, Status.FAILED),
        "cancel": ({Status.PENDING}, Status.CANCELLED),
        "abort": ({Status.PENDING, Status.MINERU_PARSING, Status.LLM_PROCESSING}, Status.CANCELLED),
        "retry": ({Status.FAILED, Status.CANCELLED}, Status.PENDING),
        "redo": (FINAL, Status.PENDING),
    },
    start=Status.PENDING,
    words={
        Status.PENDING: "Accepted; it waits for a worker.",
        Status.MINERU_PARSING: "A worker reads the document. Run state only; the row still says pending.",
        Status.LLM_PROCESSING: "A worker makes JSON of what was read. Run state only, too.",
        Status.COMPLETED: "The result is stored. Only `force` tries it again.",
        Status.FAILED: "A stage failed for good, or too often. What OCR made is kept; a retry can begin after it.",
        Status.CANCELLED: "Taken back by its owner. A worker that comes late is refused.",
    },
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a task failed, and in which stage (`mineru`, `postprocess` or `stale`)."""

    code: str
    message: str
    stage: str
    hint: str = ""
    message_zh: str = ""  # where it is known
    hint_zh: str = ""


@dataclass(frozen=True, kw_only=True)
class EtlTask:
    """A task as its row has it, or, while it runs, as run state has it."""

    id: int
    user_id: int
    project_id: int
    filename: str
    s3_key: str
    rule_id: int
    rule_version: int
    status: Status
    run: int  # each retry opens the next
    ocr_run: int  # the run whose OCR counts: a retry that wants it anew sets it to its own
    progress: int
    created_at: datetime
    updated_at: datetime
    result: JsonObject | None = None
    error: str | None = None
    metadata: JsonObject = field(default_factory=dict)

    @property
    def begins_with(self) -> Phase:
        """The first phase of this run: a retry may have begun after OCR."""
        return Phase.POSTPROCESS if self.metadata.get(FROM_STAGE) == Stage.POSTPROCESS else Phase.OCR

    def is_same(self, other: "EtlTask") -> bool:
        """Whether both are one task. Numbers alone do not tell: two databases may share a Redis by mistake."""
        return (self.id, self.user_id, self.created_at) == (other.id, other.user_id, other.created_at)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.status in FINAL
