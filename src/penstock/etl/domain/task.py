"""An etl task: one document that is converted to JSON."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from penstock.kernel.json_object import JsonObject
from penstock.kernel.machine import Machine


class Status(StrEnum):
    """The status that callers see. `mineru_parsing` and `llm_processing` exist in run state only, never in a row."""

    PENDING = "pending"
    MINERU_PARSING = "mineru_parsing"
    LLM_PROCESSING = "llm_processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(StrEnum):
    """The phase of a run."""

    OCR = "ocr"
    POSTPROCESS = "postprocess"
    FINALIZE = "finalize"


class ReviewStatus(StrEnum):
    """Whether the review that a task asked for was answered."""

    WAITING = "waiting"
    ANSWERED = "answered"


class Stage(StrEnum):
    """The stage at which a retry can start, as the API names it."""

    OCR = "mineru"
    POSTPROCESS = "postprocess"


CHINESE_TEXTS = "zh"  # metadata key of a failed task: its error and hint in Chinese
FROM_STAGE = "from_stage"  # metadata key of a run that a retry opened
REVIEW = "review"  # metadata key of a task that asked for a review: the request, its reason and its state
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
        "answer": ({Status.FAILED}, Status.COMPLETED),
    },
    start=Status.PENDING,
    words={
        Status.PENDING: "Accepted; waiting for a worker.",
        Status.MINERU_PARSING: "A worker runs OCR. Run state only; the row still says pending.",
        Status.LLM_PROCESSING: "A worker runs post-processing. Run state only; the row still says pending.",
        Status.COMPLETED: "The result is stored. A retry needs `force`.",
        Status.FAILED: "A stage failed permanently or ran out of attempts. OCR artifacts are kept for a retry, and the "
        "answer of a review can complete the task.",
        Status.CANCELLED: "Cancelled by its owner. A late worker cannot settle the task.",
    },
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a task failed, and in which stage: `mineru`, `postprocess` or `stale`."""

    code: str
    message: str
    stage: str
    hint: str = ""
    message_zh: str = ""  # empty if unknown
    hint_zh: str = ""


@dataclass(frozen=True, kw_only=True)
class EtlTask:
    """A task, read from its row or, while it runs, from run state."""

    id: int
    user_id: int
    project_id: int
    filename: str
    s3_key: str
    rule_id: int
    rule_version: int
    status: Status
    run: int  # 1, and one more with each retry
    ocr_run: int  # the run whose OCR artifacts are used; a retry from OCR sets it to its own run
    progress: int
    created_at: datetime
    updated_at: datetime
    result: JsonObject | None = None
    error: str | None = None
    metadata: JsonObject = field(default_factory=dict)

    @property
    def first_phase(self) -> Phase:
        """The first phase of this run; a retry may start after OCR."""
        return Phase.POSTPROCESS if self.metadata.get(FROM_STAGE) == Stage.POSTPROCESS else Phase.OCR

    @property
    def review_status(self) -> ReviewStatus | None:
        """The state of its review; None if it needs none."""
        known = self.metadata.get(REVIEW)
        return None if known is None else ReviewStatus(known["state"])

    def is_same_task(self, other: "EtlTask") -> bool:
        """Whether both are the same task. Ids alone are not enough: two databases may share one Redis by mistake."""
        return (self.id, self.user_id, self.created_at) == (other.id, other.user_id, other.created_at)

    @property
    def is_final(self) -> bool:
        """Whether the task has ended: completed, failed or cancelled."""
        return self.status in FINAL
