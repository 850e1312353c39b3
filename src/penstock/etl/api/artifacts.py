"""Artifacts of a task as they are stored: result, markdown, pages and grounding.

Small artifacts are sent as one body, so that it can be compressed; large ones are streamed.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.documents.ocr.provider import MARKDOWN_TYPE, PAGES_TYPE
from penstock.etl.api import actions
from penstock.etl.api.params import DepsParam, TaskId, error_responses, etl_router
from penstock.etl.deps import Deps
from penstock.kernel.blobs import JSON_TYPE

router = etl_router()

Corrected = Annotated[bool, Query(description="Apply the active corrections.")]
NOT_YET = error_responses({409: "It does not exist yet."})


def _artifact_route(summary: str, media_type: str) -> dict[str, Any]:
    """Route parameters that the routes below share."""
    found: dict[int | str, dict[str, Any]] = {200: {"content": {media_type.partition(";")[0]: {"schema": {}}}}}
    return {"summary": summary, "response_class": Response, "responses": found | NOT_YET, **requires(Scope.READ)}


@router.get("/tasks/{task_id}/result", **_artifact_route("Result of a task", JSON_TYPE))
async def get_result(task_id: TaskId, caller: CurrentCaller, deps: DepsParam, corrected: Corrected = False) -> Response:
    """The JSON result. 409 until the task is completed. `corrected` applies the active corrections."""
    if corrected and (content := await actions.corrected_result(deps, caller, task_id)) is not None:
        return Response(content, media_type=JSON_TYPE)
    return await _send(deps, caller, task_id, "result", JSON_TYPE)


@router.get("/tasks/{task_id}/markdown", **_artifact_route("OCR text as markdown", MARKDOWN_TYPE))
async def get_markdown(task_id: TaskId, caller: CurrentCaller, deps: DepsParam) -> Response:
    """A marker precedes each page. 409 until OCR is done; available before the result."""
    return await _send(deps, caller, task_id, "markdown", MARKDOWN_TYPE)


@router.get("/tasks/{task_id}/pages", **_artifact_route("OCR text by page, with bounding boxes", PAGES_TYPE))
async def get_pages(task_id: TaskId, caller: CurrentCaller, deps: DepsParam) -> Response:
    """One JSON object per line and page, with a bounding box for each span of text. 409 until OCR is done; available
    before the result."""
    return await _send(deps, caller, task_id, "pages", PAGES_TYPE)


@router.get(
    "/tasks/{task_id}/grounding", **_artifact_route("Citations: where each value stands in the document", JSON_TYPE)
)
async def get_grounding(task_id: TaskId, caller: CurrentCaller, deps: DepsParam) -> Response:
    """By JSON Pointer into the result: page, bounding box and text. 409 until the task is completed."""
    return await _send(deps, caller, task_id, "grounding", JSON_TYPE)


async def _send(deps: Deps, caller: Caller, task_id: int, what: actions.ArtifactName, media_type: str) -> Response:
    chunks = deps.blobs.stream(await actions.artifact_key(deps, caller, task_id, what))
    first = await anext(chunks, b"")  # errors surface here, before the response has started
    second = await anext(chunks, None)
    if second is None:
        return Response(first, media_type=media_type)
    return StreamingResponse(_stream(first, second, chunks), media_type=media_type)


async def _stream(first: bytes, second: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        yield second
        async for chunk in rest:
            yield chunk
