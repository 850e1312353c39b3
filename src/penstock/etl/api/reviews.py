"""What people say about results, over HTTP: correct a value, take it back, and see how good a rule is."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import Path, Query, Response, status
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from penstock.access.domain import MOST_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import assess, review, review_files
from penstock.etl.api.parts import Plainly, RuleId, TaskId, ToolsHere, new_router, refusals
from penstock.etl.assess import Wanted
from penstock.etl.domain.review import MOST_AT_ONCE, MOST_NOTE, BadCorrections, Correction, NewCorrection, Tally
from penstock.etl.domain.rule import MOST_VERSION
from penstock.etl.pointers import MOST_POINTER
from penstock.etl.review import Reviewed, Said
from penstock.etl.review_files import FileKind
from penstock.kernel.http.fields import BadField
from penstock.kernel.http.problems import BadFields

router = new_router()

PAGE = 100
MEDIA = {FileKind.JSONL: "application/x-ndjson", FileKind.CSV: "text/csv; charset=utf-8"}


class Form(StrEnum):
    """How a list is answered: a page of it, or all of it as a file."""

    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class CorrectionGiven(BaseModel):
    """What a value should be."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    pointer: str = Field(
        max_length=MOST_POINTER,
        description="A JSON Pointer (RFC 6901) into the result, such as /items/0/price: to a value, to an object or "
        "list as a whole, or to a member that is missing and that the schema knows.",
    )
    value: JsonValue = Field(description="What should stand there. What stands there already says that it is right.")
    note: str | None = Field(default=None, max_length=MOST_NOTE, description="Why; for whoever reads it later.")


class ReviewGiven(BaseModel):
    """What a person says about a result."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"corrections": [{"pointer": "/total", "value": 90.0, "note": "The stamp covers it."}]}
        },
    )

    corrections: list[CorrectionGiven] = Field(default_factory=list, max_length=MOST_AT_ONCE)
    reviewed: bool | None = Field(
        default=None,
        description="true: every other value was looked at and is right; with no corrections, all of them. "
        "false takes that back. Without it, that stays as it was.",
    )


class CorrectionView(BaseModel):
    """One value of a result, what it was and what somebody says it should be."""

    correction_id: int
    task_id: int
    run: int = Field(description="The run whose result it is about; each retry is the next.")
    rule_id: int
    rule_version: int
    pointer: str
    field: str = Field(description="The pointer with * for each number in a list.")
    original: Any = Field(description="What was there; null also where nothing was.")
    missing: bool = Field(description="Whether nothing was there.")
    corrected: Any
    confirmed: bool = Field(description="Whether both are the same: somebody says that the value is right.")
    note: str | None
    stands: bool = Field(description="Whether it is laid over the result of its run.")
    created_by: str
    created_at: datetime
    superseded_at: datetime | None = Field(description="When a later correction took its place.")
    withdrawn_at: datetime | None = Field(description="When somebody took it back.")
    ended_by: str | None = Field(description="Who did either.")


class ReviewView(BaseModel):
    """What was said about a task's results."""

    task_id: int
    run: int = Field(description="The run that counts now.")
    reviewed: bool = Field(description="Whether somebody looked at every value of this run's result.")
    reviewed_by: str | None
    reviewed_at: datetime | None
    corrections: list[CorrectionView]


class ReviewPage(ReviewView):
    """The same, page by page: of every run, the newest correction first, with what stands no more."""

    next_after: int | None = Field(description="The `after` of the next page; null when this was the last.")


class CorrectionPage(BaseModel):
    """Corrections of a rule's results that stand, the newest first."""

    corrections: list[CorrectionView]
    limit: int
    next_after: int | None = Field(description="The `after` of the next page; null when this was the last.")


class Share(BaseModel):
    """How much was right."""

    values: int = Field(description="How many values somebody looked at.")
    corrected: int = Field(description="How many of them were wrong, or missing.")
    accuracy: float | None = Field(description="The share that was right, 0 to 1; null when nobody looked.")


class VersionShare(Share):
    """The same of one version of the rule."""

    version: int


class FieldShare(Share):
    """The same of one field."""

    field: str = Field(description="A JSON Pointer with * for each number in a list, such as /items/*/price.")


class AccuracyView(Share):
    """How good a rule is by what people said of its results, over the latest 1,000 that somebody spoke of."""

    rule_id: int
    reviewed_tasks: int = Field(description="Tasks of which somebody looked at a value at least.")
    reviewed_whole: int = Field(description="Those of them of which somebody looked at every value.")
    versions: list[VersionShare] = Field(description="The latest version first.")
    fields: list[FieldShare] = Field(description="By name, 500 at the most; the sums have all.")
    is_all: bool = Field(description="Whether no earlier review was left out.")


CorrectionId = Annotated[int, Plainly, Path(ge=1, le=MOST_ID, description="The number of a correction.")]
PageSize = Annotated[int | None, Plainly, Query(ge=1, le=PAGE, description="How many at the most. A file has all.")]
After = Annotated[int | None, Plainly, Query(ge=1, le=MOST_ID, description="Only those older than this correction_id.")]
Version = Annotated[int | None, Plainly, Query(ge=1, le=MOST_VERSION, description="Only of this version of the rule.")]
FormAsked = Annotated[
    Form, Query(alias="format", description="json: a page. jsonl, csv: all of it as a file; UTF-8, formulas defused.")
]


@router.post(
    "/tasks/{task_id}/corrections",
    status_code=status.HTTP_201_CREATED,
    summary="Correct values of a result, or say that it is right",
    responses={
        200: {"model": ReviewView, "description": "Nothing of it is a new correction."},
        **refusals(
            {
                409: "The task is not completed, has as many corrections as may be, or others are quicker.",
                413: "The result is too large to be reviewed.",
            }
        ),
    },
    **requires(Scope.WRITE),
)
async def correct_task(
    task_id: TaskId, given: ReviewGiven, caller: CurrentCaller, tools: ToolsHere, response: Response
) -> ReviewView:
    """All of it is kept, or nothing. The result with every correction that stands must satisfy the rule's schema in the
    version that the task has; what the original itself lacks there is not held against anybody. A later correction of
    the same place, or of something around it, takes the place of an earlier one."""
    corrections = [
        NewCorrection(pointer=one.pointer, value=msgspec.json.encode(one.value).decode(), note=one.note)
        for one in given.corrections
    ]
    try:
        said = Said(corrections=corrections, reviewed=given.reviewed)
        told = await review.correct(tools, caller, task_id, said)
    except BadCorrections as error:
        raise BadFields(errors=_bad_fields(error)) from error
    if not told.is_new:
        response.status_code = status.HTTP_200_OK
    return ReviewView(**_review_view(told, told.corrections))


@router.get("/tasks/{task_id}/corrections", summary="What was said about a task's results", **requires(Scope.READ))
async def list_task_corrections(
    task_id: TaskId, caller: CurrentCaller, tools: ToolsHere, limit: PageSize = None, after: After = None
) -> ReviewPage:
    """The newest first, of every run, with what stands no more: superseded, or withdrawn."""
    size = limit or PAGE
    told = await review.list_of_task(tools, caller, task_id, before=after, limit=size + 1)
    shown = told.corrections[:size]
    return ReviewPage(**_review_view(told, shown), next_after=_next_after(told.corrections, size))


@router.delete(
    "/tasks/{task_id}/corrections/{correction_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Take a correction back",
    responses=refusals({409: "It stands no more, others build on it, or the task is not completed."}),
    **requires(Scope.WRITE),
)
async def withdraw_correction(
    task_id: TaskId, correction_id: CorrectionId, caller: CurrentCaller, tools: ToolsHere
) -> None:
    """It stays in the list, as withdrawn; the original value shows again. To do it twice is harmless."""
    await review.withdraw(tools, caller, task_id, correction_id)


@router.get(
    "/rules/{rule_id}/corrections",
    response_model=CorrectionPage,
    summary="What was corrected in the results of a rule",
    responses={200: {"content": {media.partition(";")[0]: {"schema": {}} for media in MEDIA.values()}}},
    **requires(Scope.READ),
)
async def list_rule_corrections(
    rule_id: RuleId,
    caller: CurrentCaller,
    tools: ToolsHere,
    *,
    limit: PageSize = None,
    after: After = None,
    version: Version = None,
    form: FormAsked = Form.JSON,
) -> CorrectionPage | Response:
    """Those that stand, the newest first, of the caller's own tasks; an admin sees everyone's. As a file it has all of
    them, unless there is a `limit`."""
    if form is Form.JSON:
        size = limit or PAGE
        wanted = Wanted(rule_id=rule_id, version=version, before=after, limit=size + 1)
        found = [one async for page in assess.walk(tools, caller, wanted) for one in page]
        views = [_correction_view(one) for one in found[:size]]
        return CorrectionPage(corrections=views, limit=size, next_after=_next_after(found, size))
    kind = FileKind(form.value)
    pages = assess.walk(tools, caller, Wanted(rule_id=rule_id, version=version, before=after, limit=limit))
    first = await anext(pages)  # what is wrong shows here, before an answer has begun
    name = f'attachment; filename="rule-{rule_id}-corrections.{kind}"'
    content = review_files.written(_joined(first, pages), kind)
    return StreamingResponse(content, media_type=MEDIA[kind], headers={"Content-Disposition": name})


@router.get("/rules/{rule_id}/accuracy", summary="How good a rule is", **requires(Scope.READ))
async def get_rule_accuracy(
    rule_id: RuleId, caller: CurrentCaller, tools: ToolsHere, version: Version = None
) -> AccuracyView:
    """The share of values that were right, of those that somebody looked at: all values of a result that was said to be
    reviewed, else those that a correction is about. Of the caller's own tasks; an admin's are everyone's."""
    found = await assess.accuracy(tools, caller, rule_id, version=version)
    return AccuracyView(
        rule_id=rule_id,
        reviewed_tasks=found.reviewed_tasks,
        reviewed_whole=found.reviewed_whole,
        versions=[VersionShare(version=number, **_share(tally)) for number, tally in found.versions.items()],
        fields=[FieldShare(field=name, **_share(tally)) for name, tally in found.tally.by_field.items()],
        is_all=found.is_all,
        **_share(found.tally),
    )


def _bad_fields(error: BadCorrections) -> list[BadField]:
    return [BadField(field=one.where, reason=one.reason, reason_zh=one.reason_zh) for one in error.problems]


def _review_view(told: Reviewed, shown: Sequence[Correction]) -> dict[str, Any]:
    known = told.review
    return {
        "task_id": told.task.id,
        "run": told.task.run,
        "reviewed": told.is_whole,
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
        stands=one.stands,
        created_by=one.created_by,
        created_at=one.created_at,
        superseded_at=one.superseded_at,
        withdrawn_at=one.withdrawn_at,
        ended_by=one.ended_by,
    )


def _next_after(found: Sequence[Correction], size: int) -> int | None:
    return found[size - 1].id if len(found) > size else None


def _share(tally: Tally) -> dict[str, Any]:
    return {"values": tally.values, "corrected": tally.corrected, "accuracy": tally.accuracy}


async def _joined(
    first: Sequence[Correction], rest: AsyncIterator[Sequence[Correction]]
) -> AsyncIterator[Sequence[Correction]]:
    yield first
    async for page in rest:
        yield page
