"""Sending documents: by the key of an object that is there already, or together with the file itself."""

from typing import Annotated, Any

from fastapi import Request, status
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import receive, submit
from penstock.etl.api.form import FILE, Form, read_form
from penstock.etl.api.parts import BASE, BlobKey, Filename, Number, ToolsHere, Words, WordsHere, new_router, refusals
from penstock.etl.api.shapes import Submitted
from penstock.etl.domain import EtlTask
from penstock.etl.receive import Sent
from penstock.etl.submit import NewTask

router = new_router()

UPLOAD = f"{BASE}/upload_and_submit"


def _or_none(given: object) -> object:
    return None if given == "" else given


def _or_not(given: object) -> object:
    return False if given == "" else given


RuleNumber = Annotated[Number | None, BeforeValidator(_or_none), Field(description="Without it, the default rule.")]


ANEW = "Read and shape it anew, whatever was made of the same before."
Forced = Annotated[bool, BeforeValidator(_or_not), Field(description=ANEW)]


class NewDocument(BaseModel):
    """A document that is in the store already."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"project_id": 1, "filename": "invoice.pdf", "rule_id": 3}}
    )

    project_id: Number
    filename: Filename
    rule_id: RuleNumber = None
    s3_key: BlobKey | None = Field(
        default=None,
        description="Its key, below users/{user_id}/; without it, users/{user_id}/raw/{project_id}/{filename}.",
    )
    force: Forced = False


class _Fields(BaseModel):
    """What stands beside the file."""

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
                        "file": {"type": "string", "format": "binary", "description": "The document, with its name."},
                        "project_id": {"type": "integer", "minimum": 0},
                        "rule_id": {"type": "integer", "minimum": 0, "description": "Without it, the default rule."},
                        "force": {"type": "boolean", "default": False, "description": ANEW},
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
    responses=refusals({404: "No such object, or no such rule."}),
    **requires(Scope.WRITE),
)
async def submit_document(new: NewDocument, caller: CurrentCaller, tools: ToolsHere, words: WordsHere) -> Submitted:
    """Answers at once; GET /tasks/{task_id} tells how far it is."""
    wanted = NewTask(**new.model_dump())
    return _submitted(await submit.submit(tools, caller, wanted), words)


def _open_with_form() -> dict[str, Any]:
    given = requires(Scope.WRITE)
    return {**given, "openapi_extra": {**given["openapi_extra"], **FORM}}


@router.post(
    "/upload_and_submit",
    status_code=status.HTTP_202_ACCEPTED,
    summary="Send a document and submit it",
    responses=refusals({404: "No such rule."}),
    **_open_with_form(),
)
async def upload_and_submit(request: Request, caller: CurrentCaller, tools: ToolsHere, words: WordsHere) -> Submitted:
    """A multipart form with `file`, `project_id`, and perhaps `rule_id` and `force`. A refused task keeps no file."""
    async with read_form(request, tools.scratch, most_bytes=tools.terms.max_file_bytes) as form:
        given = _fields(form)
        sent = Sent(file=form.path, filename=given.file, project_id=given.project_id, rule_id=given.rule_id)
        async with receive.kept(tools, caller, sent) as kept:
            wanted = NewTask(
                project_id=given.project_id,
                filename=kept.filename,
                rule_id=given.rule_id,
                s3_key=kept.key,
                force=given.force,
            )
            task = await submit.submit(tools, caller, wanted)
    return _submitted(task, words)


def _fields(form: Form) -> _Fields:
    given: dict[str, str | None] = {**form.fields, FILE: form.filename}
    try:
        return _Fields.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error


def _submitted(task: EtlTask, words: Words) -> Submitted:
    return Submitted(task_id=task.id, message=words("The task is accepted.", "任务已提交。"))
