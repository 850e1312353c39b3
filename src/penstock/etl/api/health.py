"""Whether documents are worked on: what waits, who works, and the parts that the room cannot do without.

Each part is looked at beside the others and given up on after a moment, so that nothing that hangs can hang this.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.etl.api.parts import ToolsHere, new_router
from penstock.etl.deps import Deps
from penstock.etl.store.tasks import count_under_way
from penstock.kernel.errors import PenstockError
from penstock.kernel.looks import Look, LookTimedOut
from penstock.kernel.processes import list_processes

log = logging.getLogger(__name__)
router = new_router()

ROOM = "etl"
PATIENCE_SECONDS = 1.5
Word = Literal["ok", "unwell", "unused"]


class EtlHealth(BaseModel):
    """How the room is."""

    status: str = Field(description="ok; degraded when nobody works; unwell when a part is away (503).")
    queue_depth: int | None = Field(description="Tasks that are under way; null when nobody could count them.")
    queue_size: int = Field(description="How many may be: ETL_QUEUE_SIZE.")
    workers: int | None = Field(description="Processes alive that take up work of this room.")
    redis: Word = Field(description="`unused` where run state is kept in the database.")
    database: Word
    object_store: Word


@router.get(
    "/health",
    summary="How the room is",
    response_model=EtlHealth,
    responses={503: {"model": EtlHealth, "description": "A part is away."}},
    **requires(Scope.READ),
)
async def health(tools: ToolsHere) -> Response:
    """Queue depth, workers, Redis, database, object store."""
    figures, redis, store = await asyncio.gather(
        _looked(lambda: _figures(tools)), _is_there(tools.ping_redis), _is_there(tools.blobs.check)
    )
    depth, workers = figures if figures is not None else (None, None)
    database: Word = "ok" if figures is not None else "unwell"
    unwell = "unwell" in (redis, database, store)
    found = EtlHealth(
        status="unwell" if unwell else "ok" if workers else "degraded",
        queue_depth=depth,
        queue_size=tools.terms.queue_size,
        workers=workers,
        redis=redis,
        database=database,
        object_store=store,
    )
    return JSONResponse(found.model_dump(), status_code=503 if unwell else 200)


async def _figures(tools: Deps) -> tuple[int, int]:
    async with tools.db.read() as tx:
        depth = await count_under_way(tx, most=tools.terms.queue_size)
        alive = [known for known in await list_processes(tx) if known.alive and ROOM in known.modules]
    return depth, len(alive)


async def _is_there(ask: Callable[[], Awaitable[object]] | None) -> Word:
    if ask is None:
        return "unused"

    async def asked() -> bool:
        await ask()
        return True

    return "ok" if await _looked(asked) else "unwell"


async def _looked(ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What was seen; None when there was no answer, or none in time."""
    try:
        return await Look(ask, fresh_seconds=0, patience_seconds=PATIENCE_SECONDS).answer()
    except (PenstockError, LookTimedOut) as error:
        log.warning("a part of the etl room is unwell: %r", error)
        return None
