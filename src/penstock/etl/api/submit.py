"""Routes that submit documents: by the key of a stored object, or together with the file."""

from typing import Annotated, Any

from fastapi import Request, status
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import submit, upload
from penstock.etl.api.form import FILE, UploadForm, read_form
from penstock.etl.api.params import (
    BASE,
    BlobKey,
    DepsParam,
    Filename,
    Localizer,
    LocalizerParam,
    Number,
    error_responses,
    etl_router,
)
from penstock.etl.api.shapes import Submitted
from penstock.etl.domain import EtlTask
from penstock.etl.submit import NewTask
from penstock.etl.upload import UploadedDocument

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
    """A document that is already stored."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"project_id": 1, "filename": "invoice.pdf", "rule_id": 3}}
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
    new: NewDocument, caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam
) -> Submitted:
    """Responds immediately; GET /tasks/{task_id} returns the progress."""
    task = await submit.submit(deps, caller, NewTask(**new.model_dump()))
    return _submitted(task, localize)


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
    request: Request, caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam
) -> Submitted:
    """A multipart form: `file`, `project_id`, and optionally `rule_id` and `force`. A rejected task stores no file."""
    async with read_form(request, deps.scratch, max_bytes=deps.config.max_file_bytes) as form:
        given = _fields(form)
        document = UploadedDocument(
            file=form.path, filename=given.file, project_id=given.project_id, rule_id=given.rule_id
        )
        async with upload.stored_document(deps, caller, document) as stored:
            new = NewTask(
                project_id=given.project_id,
                filename=stored.filename,
                rule_id=given.rule_id,
                s3_key=stored.key,
                force=given.force,
            )
            task = await submit.submit(deps, caller, new)
    return _submitted(task, localize)


def _fields(form: UploadForm) -> _UploadFields:
    given: dict[str, str | None] = {**form.fields, FILE: form.filename}
    try:
        return _UploadFields.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error


def _submitted(task: EtlTask, localize: Localizer) -> Submitted:
    return Submitted(task_id=task.id, message=localize("Task accepted.", "任务已提交。"))
