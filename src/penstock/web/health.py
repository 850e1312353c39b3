"""Whether the house is well: for people, for load balancers, and for whoever draws graphs.

    /livez           the process answers
    /readyz          it can serve: its database is there and migrated, and it is not stopping
    /api/v1/health   every part, one by one; 503 when a part that is needed is unwell
    /metrics         figures for Prometheus

Anybody may ask, so details are short words of ours: never an address, a name or what a server said. The log has that.
Each part is looked at beside the others and given up on after a moment (`kernel/looks.py`), so that nothing that hangs
can hang this; what was seen is kept for a second, so that a flood of questions costs nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from penstock.access.guard import public
from penstock.kernel.errors import PenstockError
from penstock.kernel.http.in_flight import InFlight
from penstock.kernel.looks import Look, NoAnswer
from penstock.kernel.metrics import PAGE_TYPE, Metrics

log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 1.5
READY_NEEDS = ("database", "migrations")
LATE = "no answer in time"
IN_SHORT = {  # what an error says to everybody; any other shows its code alone
    "BLOBS_UNAVAILABLE": "does not answer as it should",
    "BREAKER_OPEN": "left alone for a moment after failures",
    "DB_BROKEN": "its file cannot be used",
    "DB_BUSY": "too busy to answer",
    "DB_NEWER": "newer than this program",
    "DB_NOT_MIGRATED": "not migrated",
    "DB_UNAVAILABLE": "cannot be reached",
    "DISK_FULL": "full",
    "REDIS_UNAVAILABLE": "does not answer",
}


class Check(BaseModel):
    """One part of the house, and whether it is well."""

    ok: bool
    needed: bool = Field(description="Whether the house is unwell without it.")
    detail: str = ""


class Health(BaseModel):
    """Every part of the house."""

    status: str = Field(description="ok; degraded when a part that is not needed is unwell; unwell.")
    version: str
    checks: dict[str, Check]


class Word(BaseModel):
    """A short answer."""

    status: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a probe found."""

    ok: bool = True
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How to look at one part. What it raises is found unwell."""

    name: str
    look: Callable[[], Coroutine[Any, Any, Finding]]
    needed: bool = True


class Checkup:
    """Looks at every part."""

    def __init__(self, probes: Sequence[Probe], *, version: str) -> None:
        self._probes = {probe.name: probe for probe in probes}
        self._version = version
        self._said: dict[str, str] = {}
        self._looks = {
            name: Look(partial(self._see, probe), fresh_seconds=FRESH_SECONDS, patience_seconds=PATIENCE_SECONDS)
            for name, probe in self._probes.items()
        }

    async def everything(self) -> Health:
        """How every part is."""
        checks = await self._check(*self._probes)
        unwell = [check for check in checks.values() if not check.ok]
        status = "unwell" if any(check.needed for check in unwell) else "degraded" if unwell else "ok"
        return Health(status=status, version=self._version, checks=checks)

    async def is_ready(self) -> bool:
        """Whether requests can be served."""
        return all(check.ok for check in (await self._check(*READY_NEEDS)).values())

    async def _check(self, *names: str) -> dict[str, Check]:
        known = [name for name in names if name in self._probes]
        found = await asyncio.gather(*map(self._find, known))
        return {
            name: Check(ok=finding.ok, needed=self._probes[name].needed, detail=finding.detail)
            for name, finding in zip(known, found, strict=True)
        }

    async def _find(self, name: str) -> Finding:
        try:
            return await self._looks[name].answer()
        except NoAnswer as error:
            return self._unwell(name, LATE, error)

    async def _see(self, probe: Probe) -> Finding:
        try:
            found = await probe.look()
        except PenstockError as error:
            return self._unwell(probe.name, IN_SHORT.get(error.code, error.code), error)
        except Exception as error:  # noqa: BLE001  (a probe that fails must not hide what the others found)
            return self._unwell(probe.name, "could not be looked at", error)
        self._said.pop(probe.name, None)
        return found

    def _unwell(self, name: str, detail: str, error: Exception) -> Finding:
        """Say it to the log in full, once and not at every look."""
        if self._said.get(name) != detail:
            self._said[name] = detail
            log.warning("%s is unwell: %r", name, error)
        return Finding(ok=False, detail=detail)


async def _checkup(request: Request) -> Checkup:
    checkup: Checkup = request.app.state.checkup
    return checkup


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _stopping(request: Request) -> bool:
    under_way: InFlight = request.app.state.under_way
    return under_way.stopping


CheckupHere = Annotated[Checkup, Depends(_checkup)]
MetricsHere = Annotated[Metrics, Depends(_metrics)]
StoppingHere = Annotated[bool, Depends(_stopping)]

router = APIRouter(tags=["health"])


@router.get(
    "/api/v1/health",
    summary="Is everything well?",
    response_model=Health,
    responses={503: {"model": Health, "description": "A part that is needed is unwell."}},
    **public(),
)
async def health(checkup: CheckupHere) -> Response:
    """Every part, one by one."""
    found = await checkup.everything()
    return JSONResponse(found.model_dump(), status_code=503 if found.status == "unwell" else 200)


@router.get("/livez", summary="Does the process answer?", **public())
async def alive() -> Word:
    """It does."""
    return Word(status="ok")


@router.get(
    "/readyz",
    summary="Can it serve requests?",
    response_model=Word,
    responses={503: {"model": Word, "description": "Not now."}},
    **public(),
)
async def ready(checkup: CheckupHere, stopping: StoppingHere) -> Response:
    """Whether to send requests here."""
    if stopping:
        return JSONResponse({"status": "stopping"}, status_code=503)
    is_ready = await checkup.is_ready()
    return JSONResponse({"status": "ready" if is_ready else "not ready"}, status_code=200 if is_ready else 503)


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    **public(),
)
async def show_metrics(metrics: MetricsHere) -> Response:
    """The figures of this process, and of the work that waits."""
    return Response(await metrics.page(), media_type=PAGE_TYPE)
