"""Response shapes of tasks and rules."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints
from pydantic.config import JsonDict

from penstock.etl.api.params import Localizer
from penstock.etl.domain import CHINESE_TEXTS, EtlTask, Mode, ReviewReason, ReviewStatus, Rule, Status, Strategy

TASK: JsonDict = {
    "task_id": 42,
    "user_id": 7,
    "project_id": 1,
    "filename": "invoice.pdf",
    "rule_id": 3,
    "status": "completed",
    "progress": 100,
    "created_at": "2026-01-01T08:00:00Z",
    "updated_at": "2026-01-01T08:00:04Z",
    "result": {
        "output_path": "users/7/processed/1/invoice.pdf.json",
        "output_size": 812,
        "processing_time": 3.9,
        "provider_task_id": "local-9f86d081884c7d65",
        "mineru_task_id": "local-9f86d081884c7d65",
        "strategy": "fields",
    },
    "error": None,
    "review": None,
    "metadata": {
        "s3_key": "users/7/raw/1/invoice.pdf",
        "provider_task_id": "local-9f86d081884c7d65",
        "artifact_mineru_markdown_key": "users/7/etl_artifacts/1/42/mineru.md",
        "error_stage": None,
        "cache": {
            "ocr": {
                "hit": True,
                "task_id": 12,
                "key": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            }
        },
    },
}
SCHEMA: JsonDict = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "string", "title": "Invoice No."},
        "total": {"type": "number", "title": "Total"},
    },
    "required": ["invoice_number"],
}
METADATA = ("provider_task_id", "artifact_mineru_markdown_key", "error_stage")  # always present, null if unknown


# An id of the tasks module.
ProjectKey = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")
]


class Submitted(BaseModel):
    """The accepted task."""

    task_id: int
    status: Literal["pending"] = "pending"
    message: str

    model_config = {"json_schema_extra": {"example": {"task_id": 42, "status": "pending", "message": "Task accepted."}}}


class TaskView(BaseModel):
    """A task; while it runs, as its worker last reported it."""

    task_id: int
    user_id: int
    project_id: int
    filename: str = Field(description="As sent, or a variant that is valid in a blob key.")
    rule_id: int
    status: Status
    progress: int = Field(ge=0, le=100)
    created_at: datetime
    updated_at: datetime
    result: dict[str, Any] | None = Field(
        description="Of a completed task: output_path, output_size, processing_time, the provider's task id, strategy."
    )
    error: str | None = Field(description="Why a failed task failed.")
    review: ReviewStatus | None = Field(
        description="waiting: a person or an agent can pull the review that its rule asks for; answered: it was pushed."
    )
    metadata: dict[str, Any] = Field(
        description="s3_key, provider_task_id, artifact_mineru_markdown_key, error_stage, and more: "
        "`cache` says for each stage whether the artifacts of another task were reused, and of which."
    )

    model_config = {"json_schema_extra": {"example": TASK}}


class TaskStatusView(TaskView):
    """A task, and where it stands in the queue."""

    queue_position: int | None = Field(
        description="Of a pending task: 1 if it is next. null: it runs or has ended, or the place is unknown."
    )

    model_config = {"json_schema_extra": {"example": {**TASK, "queue_position": None}}}


class MovedTask(TaskView):
    """A task after it was cancelled or retried."""

    message: str


class TaskPage(BaseModel):
    """A page of tasks, newest first."""

    tasks: list[TaskView]
    total: int = Field(description="How many tasks match, on all pages; counting stops at 100,000.")
    total_is_exact: bool = Field(description="false: counting stopped, and more tasks match.")
    limit: int
    offset: int
    next_offset: int | None = Field(description="Offset of the next page; null on the last page.")


class TaskList(BaseModel):
    """The requested tasks that exist and belong to the caller, in the requested order."""

    tasks: list[TaskView]
    total: int = Field(description="How many they are.")


class RuleReview(BaseModel):
    """When a person or an agent reviews a task of the rule, and where they pull it from."""

    model_config = {"extra": "forbid"}

    when: Annotated[tuple[ReviewReason, ...], Field(min_length=1, max_length=len(ReviewReason))] = Field(
        description="ungrounded: a value was not found in the document; failed: a stage failed for good."
    )
    project_id: ProjectKey = Field(description="A project of the tasks module; created if it is missing.")
    queue_id: ProjectKey | None = Field(default=None, description="A queue of that project; created if it is missing.")


class RuleView(BaseModel):
    """One version of a rule."""

    rule_id: int
    id: int = Field(description="Same as rule_id.")
    version: int
    user_id: int | None = Field(description="Owner; null for system rules.")
    system: bool = Field(description="Whether it is a system rule: everyone may use it, nobody may change it.")
    is_system: bool = Field(description="Same as system.")
    is_default: bool = Field(description="Whether it is the default of tasks without a rule_id.")
    name: str
    description: str
    json_schema: dict[str, Any] | None
    system_prompt: str | None
    postprocess_mode: Mode
    postprocess_strategy: Strategy | None
    options: dict[str, Any]
    review: RuleReview | None = Field(description="When a person reviews a task, and where; null: never.")
    created_at: datetime
    updated_at: datetime = Field(description="When this version was created.")


class RulePage(BaseModel):
    """A page of rules: the built-in default first, then by id."""

    rules: list[RuleView]
    total: int = Field(description="How many rules the caller can use, on all pages; counting stops at 100,000.")
    total_is_exact: bool = Field(description="false: counting stopped, and there are more rules.")
    limit: int
    offset: int
    next_offset: int | None = Field(description="Offset of the next page; null on the last page.")


class RuleVersions(BaseModel):
    """A page of a rule's versions, latest first."""

    versions: list[RuleView]
    limit: int
    offset: int
    next_offset: int | None


def task_fields(task: EtlTask, localize: Localizer) -> dict[str, Any]:
    """The fields of a task's `TaskView`."""
    known = {"s3_key": task.s3_key, **dict.fromkeys(METADATA), **task.metadata}
    chinese, error = known.pop(CHINESE_TEXTS, {}), task.error
    if error is not None and chinese:
        error, known["hint"] = localize(error, chinese["error"]), localize(known["hint"], chinese["hint"])
    return {
        "task_id": task.id,
        "user_id": task.user_id,
        "project_id": task.project_id,
        "filename": task.filename,
        "rule_id": task.rule_id,
        "status": task.status,
        "progress": task.progress,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "result": task.result,
        "error": error,
        "review": task.review_status,
        "metadata": known,
    }


def task_view(task: EtlTask, localize: Localizer) -> TaskView:
    """The response shape of a task."""
    return TaskView(**task_fields(task, localize))


def rule_view(rule: Rule, *, default_id: int | None) -> RuleView:
    """The response shape of a rule."""
    body = rule.body
    return RuleView(
        rule_id=rule.id,
        id=rule.id,
        version=rule.version,
        user_id=rule.user_id,
        system=rule.is_system,
        is_system=rule.is_system,
        is_default=rule.id == default_id,
        name=body.name,
        description=body.description,
        json_schema=body.json_schema,
        system_prompt=body.system_prompt,
        postprocess_mode=body.postprocess_mode,
        postprocess_strategy=body.postprocess_strategy,
        options=body.options,
        review=None if body.review is None else RuleReview(**vars(body.review)),
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )


def next_offset(found: Sequence[object], *, limit: int, offset: int) -> int | None:
    """The offset of the next page, if one more item was found than a page holds."""
    return offset + limit if len(found) > limit else None
