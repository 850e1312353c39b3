"""How tasks and rules look on the wire."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from penstock.etl.api.parts import Words
from penstock.etl.domain import IN_CHINESE, EtlTask, Mode, Rule, Status, Strategy

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
POINTERS = ("provider_task_id", "artifact_mineru_markdown_key", "error_stage")  # there, known or not


class Submitted(BaseModel):
    """The task is made; a worker takes it up."""

    task_id: int
    status: Literal["pending"] = "pending"
    message: str

    model_config = {
        "json_schema_extra": {"example": {"task_id": 42, "status": "pending", "message": "The task is accepted."}}
    }


class TaskView(BaseModel):
    """A task: as its worker last told of it while it runs, as its record has it afterwards."""

    task_id: int
    user_id: int
    project_id: int
    filename: str = Field(description="As it was sent, or as a store can take it.")
    rule_id: int
    status: Status
    progress: int = Field(ge=0, le=100)
    created_at: datetime
    updated_at: datetime
    result: dict[str, Any] | None = Field(
        description="Of a completed task: output_path, output_size, processing_time, the provider's task id, strategy."
    )
    error: str | None = Field(description="Of a failed task: why.")
    metadata: dict[str, Any] = Field(
        description="s3_key, provider_task_id, artifact_mineru_markdown_key, error_stage, and what else is known: "
        "`cache` says for each stage whether another task's papers were taken, and whose."
    )

    model_config = {"json_schema_extra": {"example": TASK}}


class MovedTask(TaskView):
    """A task after it was cancelled or tried again."""

    message: str


class TaskPage(BaseModel):
    """Some tasks, the newest first."""

    tasks: list[TaskView]
    limit: int
    offset: int
    next_offset: int | None = Field(description="Where the next page begins; null when this was the last.")


class TaskList(BaseModel):
    """The tasks that were asked for, as far as they exist and are the caller's, in the order of the question."""

    tasks: list[TaskView]


class RuleView(BaseModel):
    """A rule in one of its versions."""

    rule_id: int
    id: int = Field(description="The same number.")
    version: int
    user_id: int | None = Field(description="Whose it is; null for rules of the system.")
    system: bool = Field(description="Whether it is the system's: everyone may use it, nobody change it.")
    is_system: bool = Field(description="The same.")
    is_default: bool = Field(description="Whether tasks without a rule_id get it.")
    name: str
    description: str
    json_schema: dict[str, Any] | None
    system_prompt: str | None
    postprocess_mode: Mode
    postprocess_strategy: Strategy | None
    options: dict[str, Any]
    created_at: datetime
    updated_at: datetime = Field(description="When this version was made.")


class RulePage(BaseModel):
    """Some rules: the built-in one first, then by their numbers."""

    rules: list[RuleView]
    limit: int
    offset: int
    next_offset: int | None = Field(description="Where the next page begins; null when this was the last.")


class RuleVersions(BaseModel):
    """What a rule has said, the latest version first."""

    versions: list[RuleView]
    limit: int
    offset: int
    next_offset: int | None


def shown_task(task: EtlTask, words: Words) -> dict[str, Any]:
    """A task as the fields of `TaskView`."""
    known = {"s3_key": task.s3_key, **dict.fromkeys(POINTERS), **task.metadata}
    chinese, error = known.pop(IN_CHINESE, {}), task.error
    if error is not None and chinese:
        error, known["hint"] = words(error, chinese["error"]), words(known["hint"], chinese["hint"])
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
        "metadata": known,
    }


def task_view(task: EtlTask, words: Words) -> TaskView:
    """A task."""
    return TaskView(**shown_task(task, words))


def rule_view(rule: Rule, *, default_id: int | None) -> RuleView:
    """A rule."""
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
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )


def next_offset(found: Sequence[object], *, limit: int, offset: int) -> int | None:
    """Where the next page begins, when one more was found than a page holds."""
    return offset + limit if len(found) > limit else None
