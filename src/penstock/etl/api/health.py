"""Health of the etl module: queue depth, workers, Redis, database and object store.

The checks run concurrently, each with a timeout, so a hanging dependency cannot hang this route.
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
from penstock.etl.api.params import DepsParam, etl_router
from penstock.etl.deps import Deps
from penstock.etl.lifecycle import MODULE
from penstock.etl.store.tasks import count_active
from penstock.kernel.cache import CachedCheck, CheckTimedOut
from penstock.kernel.errors import PenstockError
from penstock.kernel.processes import list_processes

log = logging.getLogger(__name__)
router = etl_router()

CHECK_SECONDS = 1.5
Word = Literal["ok", "unwell", "unused"]


class EtlHealth(BaseModel):
    """Health of the etl module."""

    status: str = Field(description="ok; degraded if no worker is alive; unwell if a dependency is unavailable (503).")
    queue_depth: int | None = Field(description="Number of active tasks; null if the database is unavailable.")
    queue_size: int = Field(description="Maximum number of active tasks: ETL_QUEUE_SIZE.")
    workers: int | None = Field(description="Live worker processes of this module.")
    redis: Word = Field(description="`unused` if run state is kept in the database.")
    database: Word
    object_store: Word


@router.get(
    "/health",
    summary="Health of the etl module",
    response_model=EtlHealth,
    responses={503: {"model": EtlHealth, "description": "A dependency is unavailable."}},
    **requires(Scope.READ),
)
async def health(deps: DepsParam) -> Response:
    """Queue depth, workers, Redis, database, object store."""
    counts, redis, store = await asyncio.gather(
        _try(lambda: _counts(deps)), _check(deps.ping_redis), _check(deps.blobs.check)
    )
    depth, workers = counts if counts is not None else (None, None)
    database: Word = "ok" if counts is not None else "unwell"
    unwell = "unwell" in (redis, database, store)
    found = EtlHealth(
        status="unwell" if unwell else "ok" if workers else "degraded",
        queue_depth=depth,
        queue_size=deps.config.queue_size,
        workers=workers,
        redis=redis,
        database=database,
        object_store=store,
    )
    return JSONResponse(found.model_dump(), status_code=503 if unwell else 200)


async def _counts(deps: Deps) -> tuple[int, int]:
    async with deps.db.read() as tx:
        depth = await count_active(tx, limit=deps.config.queue_size)
        alive = [known for known in await list_processes(tx) if known.alive and MODULE in known.modules]
    return depth, len(alive)


async def _check(check: Callable[[], Awaitable[object]] | None) -> Word:
    if check is None:
        return "unused"

    async def is_available() -> bool:
        await check()
        return True

    return "ok" if await _try(is_available) else "unwell"


async def _try(check: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The answer of a check; None if it failed or timed out."""
    try:
        return await CachedCheck(check, ttl_seconds=0, timeout_seconds=CHECK_SECONDS).result()
    except (PenstockError, CheckTimedOut) as error:
        log.warning("etl health check failed: %r", error)
        return None
