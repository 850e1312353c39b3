"""What a task has made, as it lies in the store: the result, the markdown, the pages, and where each value stands.

Small things come in one piece, so that they can be packed; large ones are passed on while they are read.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.documents.ocr.provider import MARKDOWN_TYPE, PAGES_TYPE
from penstock.etl import review, track
from penstock.etl.api.parts import TaskId, ToolsHere, new_router, refusals
from penstock.etl.deps import Deps
from penstock.kernel.blobs import JSON_TYPE

router = new_router()

Corrected = Annotated[bool, Query(description="Lay every correction over it that stands.")]
NOT_YET = refusals({409: "It is not there yet."})


def _paper(summary: str, media_type: str) -> dict[str, Any]:
    """What the routes below have in common."""
    found: dict[int | str, dict[str, Any]] = {200: {"content": {media_type.partition(";")[0]: {"schema": {}}}}}
    return {"summary": summary, "response_class": Response, "responses": found | NOT_YET, **requires(Scope.READ)}


@router.get("/tasks/{task_id}/result", **_paper("The JSON that was made", JSON_TYPE))
async def get_result(
    task_id: TaskId, caller: CurrentCaller, tools: ToolsHere, corrected: Corrected = False
) -> Response:
    """409 while there is none. With `corrected`, what people said about it is laid over."""
    if corrected and (mended := await review.corrected_result(tools, caller, task_id)) is not None:
        return Response(mended, media_type=JSON_TYPE)
    return await _stored(tools, caller, task_id, "result", JSON_TYPE)


@router.get("/tasks/{task_id}/markdown", **_paper("What was read, as markdown", MARKDOWN_TYPE))
async def get_markdown(task_id: TaskId, caller: CurrentCaller, tools: ToolsHere) -> Response:
    """A mark stands before each page. 409 while the document has not been read; it is there before the result."""
    return await _stored(tools, caller, task_id, "markdown", MARKDOWN_TYPE)


@router.get("/tasks/{task_id}/pages", **_paper("What was read, page by page, with boxes", PAGES_TYPE))
async def get_pages(task_id: TaskId, caller: CurrentCaller, tools: ToolsHere) -> Response:
    """One JSON object per line and page, with a box for each piece of text. 409 while the document has not been read;
    it is there before the result."""
    return await _stored(tools, caller, task_id, "pages", PAGES_TYPE)


@router.get("/tasks/{task_id}/grounding", **_paper("Where each value stands in the document", JSON_TYPE))
async def get_grounding(task_id: TaskId, caller: CurrentCaller, tools: ToolsHere) -> Response:
    """By JSON Pointers into the result: page, box and text. 409 while there is none."""
    return await _stored(tools, caller, task_id, "grounding", JSON_TYPE)


async def _stored(tools: Deps, caller: Caller, task_id: int, what: track.Paper, media_type: str) -> Response:
    chunks = tools.blobs.stream(await track.key_of(tools, caller, task_id, what))
    first = await anext(chunks, b"")  # what is wrong shows here, before an answer has begun
    second = await anext(chunks, None)
    if second is None:
        return Response(first, media_type=media_type)
    return StreamingResponse(_passed_on(first, second, chunks), media_type=media_type)


async def _passed_on(first: bytes, second: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        yield second
        async for chunk in rest:
            yield chunk
