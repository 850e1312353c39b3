"""Routes of reviews: correct values, withdraw corrections, and measure the accuracy of a rule."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import Path, Query, Response, status
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from penstock.access.domain import MAX_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import correction_export, review
from penstock.etl.accuracy import CorrectionQuery
from penstock.etl.api import actions
from penstock.etl.api.params import DepsParam, PlainInteger, RuleId, TaskId, error_responses, etl_router
from penstock.etl.correction_export import ExportFormat
from penstock.etl.domain.review import (
    MAX_CORRECTIONS_PER_CALL,
    MAX_NOTE_CHARS,
    BadCorrections,
    Correction,
    NewCorrection,
    ValueCounts,
)
from penstock.etl.domain.rule import MAX_VERSION
from penstock.etl.review import ReviewInput, ReviewResult
from penstock.kernel.http.fields import BadField
from penstock.kernel.http.problems import BadFields
from penstock.kernel.json_schema.pointers import MAX_POINTER_CHARS

router = etl_router()

PAGE = 100
MEDIA = {ExportFormat.JSONL: "application/x-ndjson", ExportFormat.CSV: "text/csv; charset=utf-8"}


class Form(StrEnum):
    """Response format of a list: a page as JSON, or all of it as a file."""

    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class CorrectionGiven(BaseModel):
    """A corrected value."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    pointer: str = Field(
        max_length=MAX_POINTER_CHARS,
        description="A JSON Pointer (RFC 6901) into the result, such as /items/0/price: to a value, to an object or "
        "list as a whole, or to a missing member that the schema describes.",
    )
    value: JsonValue = Field(description="The right value. A value equal to the original confirms it.")
    note: str | None = Field(default=None, max_length=MAX_NOTE_CHARS, description="Why, for later readers.")


class ReviewGiven(BaseModel):
    """Corrections of a result, and whether all of it was reviewed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"corrections": [{"pointer": "/total", "value": 90.0, "note": "The stamp covers it."}]}
        },
    )

    corrections: list[CorrectionGiven] = Field(default_factory=list, max_length=MAX_CORRECTIONS_PER_CALL)
    reviewed: bool | None = Field(
        default=None,
        description="true: every other value was reviewed and is right; without corrections, all of them. "
        "false revokes that. Omitted: unchanged.",
    )


class CorrectionView(BaseModel):
    """A correction: one value of a result, the original and the corrected one."""

    correction_id: int
    task_id: int
    run: int = Field(description="The run of the result; each retry opens the next run.")
    rule_id: int
    rule_version: int
    pointer: str
    field: str = Field(description="The pointer with * for each list index.")
    original: Any = Field(description="The original value; null also if it was missing.")
    missing: bool = Field(description="Whether the original value was missing.")
    corrected: Any
    confirmed: bool = Field(description="Whether both are equal: the correction confirms the original.")
    note: str | None
    stands: bool = Field(description="Whether it is active: neither superseded nor withdrawn.")
    created_by: str
    created_at: datetime
    superseded_at: datetime | None = Field(description="When a later correction superseded it.")
    withdrawn_at: datetime | None = Field(description="When it was withdrawn.")
    ended_by: str | None = Field(description="Who superseded or withdrew it.")


class ReviewView(BaseModel):
    """The review of a task's result."""

    task_id: int
    run: int = Field(description="The current run.")
    reviewed: bool = Field(description="Whether every value of this run's result was reviewed.")
    reviewed_by: str | None
    reviewed_at: datetime | None
    corrections: list[CorrectionView]


class ReviewPage(ReviewView):
    """A page of a task's corrections of every run, newest first, including superseded and withdrawn ones."""

    next_after: int | None = Field(description="The `after` of the next page; null on the last page.")


class CorrectionPage(BaseModel):
    """A page of a rule's active corrections, newest first."""

    corrections: list[CorrectionView]
    limit: int
    next_after: int | None = Field(description="The `after` of the next page; null on the last page.")


class AccuracyShare(BaseModel):
    """Counts of reviewed and wrong values."""

    values: int = Field(description="Number of reviewed values.")
    corrected: int = Field(description="Number of them that were wrong or missing.")
    accuracy: float | None = Field(description="Share of right values, 0 to 1; null if none was reviewed.")


class VersionShare(AccuracyShare):
    """Accuracy of one version of a rule."""

    version: int


class FieldShare(AccuracyShare):
    """Accuracy of one field."""

    field: str = Field(description="A JSON Pointer with * for each list index, such as /items/*/price.")


class AccuracyView(AccuracyShare):
    """Accuracy of a rule over its latest 1,000 reviews."""

    rule_id: int
    reviewed_tasks: int = Field(description="Tasks with at least one reviewed value.")
    reviewed_whole: int = Field(description="Tasks whose every value was reviewed.")
    versions: list[VersionShare] = Field(description="Latest version first.")
    fields: list[FieldShare] = Field(description="By name, at most 500; the totals include all.")
    is_all: bool = Field(description="false if earlier reviews were left out.")


CorrectionId = Annotated[int, PlainInteger, Path(ge=1, le=MAX_ID, description="Correction id.")]
PageSize = Annotated[
    int | None, PlainInteger, Query(ge=1, le=PAGE, description="Maximum number. A file has all by default.")
]
After = Annotated[
    int | None, PlainInteger, Query(ge=1, le=MAX_ID, description="Only those older than this correction_id.")
]
Version = Annotated[
    int | None, PlainInteger, Query(ge=1, le=MAX_VERSION, description="Only of this version of the rule.")
]
FormatParam = Annotated[
    Form, Query(alias="format", description="json: a page. jsonl, csv: all of it as a file; UTF-8, formulas escaped.")
]


@router.post(
    "/tasks/{task_id}/corrections",
    status_code=status.HTTP_201_CREATED,
    summary="Correct or confirm values of a result",
    responses={
        200: {"model": ReviewView, "description": "No new correction was stored."},
        **error_responses(
            {
                409: "The task is not completed, has the maximum number of corrections, or is corrected concurrently.",
                413: "The result is too large to review.",
            }
        ),
    },
    **requires(Scope.WRITE),
)
async def correct_task(
    task_id: TaskId, given: ReviewGiven, caller: CurrentCaller, deps: DepsParam, response: Response
) -> ReviewView:
    """Stores all corrections or none. The corrected result must satisfy the task's version of the rule's schema;
    violations that the original already has are ignored. A later correction of the same value, or of one that encloses
    it, supersedes an earlier one."""
    corrections = [
        NewCorrection(pointer=one.pointer, value=msgspec.json.encode(one.value).decode(), note=one.note)
        for one in given.corrections
    ]
    try:
        new = ReviewInput(corrections=corrections, reviewed=given.reviewed)
        stored = await actions.correct(deps, caller, task_id, new)
    except BadCorrections as error:
        raise BadFields(errors=_bad_fields(error)) from error
    if not stored.is_new:
        response.status_code = status.HTTP_200_OK
    return ReviewView(**_review_view(stored, stored.corrections))


@router.get("/tasks/{task_id}/corrections", summary="Corrections of a task's results", **requires(Scope.READ))
async def list_task_corrections(
    task_id: TaskId, caller: CurrentCaller, deps: DepsParam, limit: PageSize = None, after: After = None
) -> ReviewPage:
    """Newest first, of every run, including superseded and withdrawn ones."""
    size = limit or PAGE
    async with deps.db.read() as tx:
        found = await review.list_of_task(tx, caller, task_id, before=after, limit=size + 1)
    shown = found.corrections[:size]
    return ReviewPage(**_review_view(found, shown), next_after=_next_after(found.corrections, size))


@router.delete(
    "/tasks/{task_id}/corrections/{correction_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Withdraw a correction",
    responses=error_responses({409: "It is no longer active, others depend on it, or the task is not completed."}),
    **requires(Scope.WRITE),
)
async def withdraw_correction(
    task_id: TaskId, correction_id: CorrectionId, caller: CurrentCaller, deps: DepsParam
) -> None:
    """It stays in the list as withdrawn; the original value applies again. Idempotent."""
    await actions.withdraw_correction(deps, caller, task_id, correction_id)


@router.get(
    "/rules/{rule_id}/corrections",
    response_model=CorrectionPage,
    summary="Corrections of a rule's results",
    responses={200: {"content": {media.partition(";")[0]: {"schema": {}} for media in MEDIA.values()}}},
    **requires(Scope.READ),
)
async def list_rule_corrections(
    rule_id: RuleId,
    caller: CurrentCaller,
    deps: DepsParam,
    *,
    limit: PageSize = None,
    after: After = None,
    version: Version = None,
    form: FormatParam = Form.JSON,
) -> CorrectionPage | Response:
    """Active corrections of the caller's own tasks, newest first; an admin sees everyone's. A file has all of them,
    unless `limit` is given."""
    if form is Form.JSON:
        size = limit or PAGE
        query = CorrectionQuery(rule_id=rule_id, version=version, before=after, limit=size + 1)
        found = [one async for page in actions.iter_corrections(deps, caller, query) for one in page]
        views = [_correction_view(one) for one in found[:size]]
        return CorrectionPage(corrections=views, limit=size, next_after=_next_after(found, size))
    kind = ExportFormat(form.value)
    pages = actions.iter_corrections(
        deps, caller, CorrectionQuery(rule_id=rule_id, version=version, before=after, limit=limit)
    )
    first = await anext(pages)  # errors surface here, before the response has started
    name = f'attachment; filename="rule-{rule_id}-corrections.{kind}"'
    content = correction_export.export_corrections(_prepend(first, pages), kind)
    return StreamingResponse(content, media_type=MEDIA[kind], headers={"Content-Disposition": name})


@router.get("/rules/{rule_id}/accuracy", summary="Accuracy of a rule", **requires(Scope.READ))
async def get_rule_accuracy(
    rule_id: RuleId, caller: CurrentCaller, deps: DepsParam, version: Version = None
) -> AccuracyView:
    """Share of right values among the reviewed ones: all values of a result that was marked as reviewed, else those
    that corrections cover. Of the caller's own tasks; an admin sees everyone's."""
    found = await actions.measure_accuracy(deps, caller, rule_id, version=version)
    return AccuracyView(
        rule_id=rule_id,
        reviewed_tasks=found.reviewed_tasks,
        reviewed_whole=found.reviewed_whole,
        versions=[VersionShare(version=number, **_share(counts)) for number, counts in found.versions.items()],
        fields=[FieldShare(field=name, **_share(counts)) for name, counts in found.counts.by_field.items()],
        is_all=found.is_all,
        **_share(found.counts),
    )


def _bad_fields(error: BadCorrections) -> list[BadField]:
    return [BadField(field=one.where, reason=one.reason, reason_zh=one.reason_zh) for one in error.problems]


def _review_view(found: ReviewResult, shown: Sequence[Correction]) -> dict[str, Any]:
    known = found.review
    return {
        "task_id": found.task.id,
        "run": found.task.run,
        "reviewed": found.is_whole,
        "reviewed_by": known and known.reviewed_by,
        "reviewed_at": known and known.reviewed_at,
        "corrections": [_correction_view(one) for one in shown],
    }


def _correction_view(one: Correction) -> CorrectionView:
    return CorrectionView(
        correction_id=one.id,
        task_id=one.task_id,
        run=one.run,
        rule_id=one.rule_id,
        rule_version=one.rule_version,
        pointer=one.pointer,
        field=one.field,
        original=None if one.original is None else msgspec.json.decode(one.original),
        missing=one.original is None,
        corrected=msgspec.json.decode(one.corrected),
        confirmed=one.confirms,
        note=one.note,
        stands=one.is_active,
        created_by=one.created_by,
        created_at=one.created_at,
        superseded_at=one.superseded_at,
        withdrawn_at=one.withdrawn_at,
        ended_by=one.ended_by,
    )


def _next_after(found: Sequence[Correction], size: int) -> int | None:
    return found[size - 1].id if len(found) > size else None


def _share(counts: ValueCounts) -> dict[str, Any]:
    return {"values": counts.values, "corrected": counts.corrected, "accuracy": counts.accuracy}


async def _prepend(
    first: Sequence[Correction], rest: AsyncIterator[Sequence[Correction]]
) -> AsyncIterator[Sequence[Correction]]:
    yield first
    async for page in rest:
        yield page
