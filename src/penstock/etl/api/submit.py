"""Routes that submit documents: by the key of a stored object, or together with the file."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Request, status
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.access.idempotent import IdempotentHere, KeyHeader, idempotent
from penstock.etl.api import actions
from penstock.etl.api.form import FILE, UploadForm, read_form
from penstock.etl.api.params import (
    BASE,
    BlobKey,
    DepsParam,
    Filename,
    Limit,
    Localizer,
    LocalizerParam,
    Number,
    Offset,
    error_responses,
    etl_router,
)
from penstock.etl.api.shapes import Submitted, next_offset
from penstock.etl.domain import EtlTask
from penstock.etl.submit import NewTask
from penstock.etl.upload import SWEEP_AGE, UploadedDocument
from penstock.kernel.http.fields import BadField
from penstock.kernel.http.headers import add_warning
from penstock.kernel.http.problems import BadFields
from penstock.kernel.http.query_string import MAX_NAME_LENGTH, MAX_REPORTED, letters_of
from penstock.kernel.logs import clean

router = etl_router()

UPLOAD = f"{BASE}/upload_and_submit"


def _empty_to_none(given: object) -> object:
    return None if given == "" else given


def _empty_to_false(given: object) -> object:
    return False if given == "" else given


RuleNumber = Annotated[Number | None, BeforeValidator(_empty_to_none), Field(description="Default: the default rule.")]


FORCE = "Run all stages, even if a cached result of the same document exists."
Forced = Annotated[bool, BeforeValidator(_empty_to_false), Field(description=FORCE)]


class NewDocument(BaseModel):
    """A document that is already stored. Other fields, which clients of earlier versions send, are ignored."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"example": {"project_id": 1, "filename": "invoice.pdf", "rule_id": 3}}
    )

    project_id: Number
    filename: Filename
    rule_id: RuleNumber = None
    s3_key: BlobKey | None = Field(
        default=None,
        description="Its key, below users/{user_id}/; default: users/{user_id}/raw/{project_id}/{filename}.",
    )
    force: Forced = False


class _UploadFields(BaseModel):
    """The fields of the upload form."""

    model_config = ConfigDict(extra="forbid")

    project_id: Number
    rule_id: RuleNumber = None
    force: Forced = False
    file: Filename


FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "project_id"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "The document, with its filename.",
                        },
                        "project_id": {"type": "integer", "minimum": 0},
                        "rule_id": {"type": "integer", "minimum": 0, "description": "Default: the default rule."},
                        "force": {"type": "boolean", "default": False, "description": FORCE},
                    },
                }
            }
        },
    }
}


@router.post(
    "/submit",
    status_code=status.HTTP_202_ACCEPTED,
    summary="Submit a document",
    responses=error_responses({404: "The object or the rule does not exist."}),
    **requires(Scope.WRITE),
)
async def submit_document(
    *,
    http: Request,
    new: NewDocument,
    caller: CurrentCaller,
    deps: DepsParam,
    localize: LocalizerParam,
    request: IdempotentHere,
) -> Submitted:
    """Responds immediately; GET /tasks/{task_id} returns the progress. A `Warning` header names ignored fields."""
    _warn_of_ignored(http, new)
    given = new.model_dump(include=set(NewDocument.model_fields))
    task = await actions.submit_task(deps, caller, NewTask(**given), request=request)
    return _submitted(task, localize)


def _warn_of_ignored(request: Request, new: NewDocument) -> None:
    """Warn of unknown fields. Another spelling of a known one is refused: ignored, it would change the result."""
    spellings = {letters_of(name): name for name in NewDocument.model_fields}
    names = list(new.model_extra or ())
    for name in names:
        if (meant := spellings.get(letters_of(name))) is not None:
            reason, reason_zh = f"Unknown field; did you mean {meant}?", f"未知的字段；是否想用 {meant}？"
            raise BadFields(errors=[BadField(field=clean(name, MAX_NAME_LENGTH), reason=reason, reason_zh=reason_zh)])
    for name in names[:MAX_REPORTED]:
        add_warning(request.scope, f"Unknown field ignored: {clean(name, MAX_NAME_LENGTH)}")


def _open_with_form() -> dict[str, Any]:
    given = requires(Scope.WRITE)
    return {**given, "openapi_extra": {**given["openapi_extra"], **FORM}}


@router.post(
    "/upload_and_submit",
    status_code=status.HTTP_202_ACCEPTED,
    summary="Upload and submit a document",
    responses=error_responses({404: "The rule does not exist."}),
    **_open_with_form(),
)
async def upload_and_submit(
    request: Request, caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam, key: KeyHeader = None
) -> Submitted:
    """A multipart form: `file`, `project_id`, and optionally `rule_id` and `force`. A rejected task stores no file."""
    async with read_form(request, deps.scratch, max_bytes=deps.config.max_file_bytes) as form:
        given = _fields(form)
        document = UploadedDocument(
            file=form.path, filename=given.file, project_id=given.project_id, rule_id=given.rule_id
        )
        once = idempotent(request, caller, key, given.model_dump(), form.sha256)
        task = await actions.upload_task(deps, caller, document, force=given.force, request=once)
    return _submitted(task, localize)


class OrphanView(BaseModel):
    """An uploaded document that has no task."""

    key: str
    user_id: int
    created_at: datetime
    deleted_after: datetime = Field(description="When it will be deleted, unless a task is created for it.")


class OrphanPage(BaseModel):
    """A page of documents without a task, oldest first."""

    documents: list[OrphanView]
    limit: int
    offset: int
    next_offset: int | None


@router.get("/orphans", summary="List uploaded documents without a task", **requires(Scope.ADMIN))
async def list_orphans(deps: DepsParam, limit: Limit = 20, offset: Offset = 0) -> OrphanPage:
    """Documents whose task was never created, since the server died or lost its database; they are swept."""
    found = await actions.list_orphans(deps, offset=offset, limit=limit + 1)
    views = [OrphanView(**asdict(one), deleted_after=one.created_at + SWEEP_AGE) for one in found[:limit]]
    following = next_offset(found, limit=limit, offset=offset)
    return OrphanPage(documents=views, limit=limit, offset=offset, next_offset=following)


def _fields(form: UploadForm) -> _UploadFields:
    given: dict[str, str | None] = {**form.fields, FILE: form.filename}
    try:
        return _UploadFields.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error


def _submitted(task: EtlTask, localize: Localizer) -> Submitted:
    return Submitted(task_id=task.id, message=localize("Task accepted.", "任务已提交。"))
