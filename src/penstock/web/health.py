"""Health checks for people, load balancers and Prometheus: which dependency is unavailable, and when it is back.

    /livez           the process responds
    /readyz          it can serve: its database is reachable and migrated, its data folder and a blob store on the same
                     machine accept writes, and it is not shutting down
    /api/v1/health   every check; 503 when a required one fails
    /metrics         metrics in Prometheus format

These routes are public. Details are short texts of ours, never an address or a server's message: the log has those. A
caller without a key sees only those details that name nothing (`PUBLIC_TEXTS`). Checks run concurrently, each with a
timeout (`kernel/cache.py`), so none can block the others; results are cached for a second, so that a flood of requests
costs nothing.
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
from penstock.kernel.cache import CachedCheck, CheckTimedOut
from penstock.kernel.errors import PenstockError
from penstock.kernel.http.in_flight import InFlight
from penstock.kernel.metrics import CONTENT_TYPE, Metrics

log = logging.getLogger(__name__)

CACHE_SECONDS = 1.0
TIMEOUT_SECONDS = 1.5
TIMED_OUT = "no answer in time"
PUBLIC_DETAILS = {  # by error code; any other error shows its code alone
    "BLOBS_UNAVAILABLE": "unavailable",
    "BREAKER_OPEN": "circuit breaker open after failures",
    "DB_BROKEN": "database file unusable",
    "DB_BUSY": "too busy to answer",
    "DB_NEWER": "newer than this program",
    "DB_OCCUPIED": "tables of another application",
    "DB_NOT_MIGRATED": "not migrated",
    "DB_TIMED_OUT": "no answer in time",
    "DB_POOLER": "refused by a connection pooler",
    "DB_UNAVAILABLE": "cannot be reached",
    "DISK_FULL": "full",
    "REDIS_UNAVAILABLE": "does not answer",
}
CHECK_FAILED = "check failed"
PUBLIC_TEXTS = frozenset({*PUBLIC_DETAILS.values(), TIMED_OUT, CHECK_FAILED})


class Check(BaseModel):
    """The result of one check."""

    ok: bool
    needed: bool = Field(description="Whether the service is unwell when this check fails.")
    detail: str = Field(default="", description="Without a key, only texts that name nothing.")

    def public(self) -> "Check":
        """As a caller without a key sees it."""
        return self if self.detail in PUBLIC_TEXTS else self.model_copy(update={"detail": ""})


class Health(BaseModel):
    """The results of all checks."""

    status: str = Field(
        description="ok; degraded when a check that is not needed fails; unwell when a needed one does."
    )
    version: str
    checks: dict[str, Check]


class Word(BaseModel):
    """A status in one word."""

    status: str


class Readiness(Word):
    """Whether to send requests to this process."""

    failed: dict[str, str] = Field(default={}, description="The failed checks, each with its reason, such as full.")


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What a probe found."""

    ok: bool = True
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How to check one dependency. A probe that raises has failed."""

    name: str
    check: Callable[[], Coroutine[Any, Any, ProbeResult]]
    needed: bool = True
    for_readiness: bool = False  # whether this process cannot serve when the check fails


class HealthChecker:
    """Runs the probes and caches their results."""

    def __init__(self, probes: Sequence[Probe], *, version: str) -> None:
        self._probes = {probe.name: probe for probe in probes}
        self._version = version
        self._logged: dict[str, str] = {}
        self._cached_checks = {
            name: CachedCheck(partial(self._run, probe), ttl_seconds=CACHE_SECONDS, timeout_seconds=TIMEOUT_SECONDS)
            for name, probe in self._probes.items()
        }

    async def check_all(self) -> Health:
        """Run every check."""
        checks = await self._check(*self._probes)
        failed = [check for check in checks.values() if not check.ok]
        status = "unwell" if any(check.needed for check in failed) else "degraded" if failed else "ok"
        return Health(status=status, version=self._version, checks=checks)

    async def find_unready(self) -> dict[str, str]:
        """The checks for which requests cannot be served, with their public details; empty when they can."""
        names = [name for name, probe in self._probes.items() if probe.for_readiness]
        return {name: check.public().detail for name, check in (await self._check(*names)).items() if not check.ok}

    async def _check(self, *names: str) -> dict[str, Check]:
        known = [name for name in names if name in self._probes]
        results = await asyncio.gather(*map(self._cached, known))
        return {
            name: Check(ok=result.ok, needed=self._probes[name].needed, detail=result.detail)
            for name, result in zip(known, results, strict=True)
        }

    async def _cached(self, name: str) -> ProbeResult:
        try:
            return await self._cached_checks[name].result()
        except CheckTimedOut as error:
            return self._failed(name, TIMED_OUT, error)

    async def _run(self, probe: Probe) -> ProbeResult:
        try:
            result = await probe.check()
        except PenstockError as error:
            return self._failed(probe.name, PUBLIC_DETAILS.get(error.code, error.code), error)
        except Exception as error:  # noqa: BLE001  (a failing probe must not hide the results of the others)
            return self._failed(probe.name, CHECK_FAILED, error)
        self._logged.pop(probe.name, None)
        return result

    def _failed(self, name: str, detail: str, error: Exception) -> ProbeResult:
        """Log the error in full when it is new, and not at every check."""
        if self._logged.get(name) != detail:
            self._logged[name] = detail
            log.warning("health check %s failed: %r", name, error)
        return ProbeResult(ok=False, detail=detail)


async def _health(request: Request) -> HealthChecker:
    checker: HealthChecker = request.app.state.health
    return checker


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _stopping(request: Request) -> bool:
    in_flight: InFlight = request.app.state.in_flight
    return in_flight.stopping


async def _has_key(request: Request) -> bool:
    """Whether the caller is known. A wrong key counts as none, and so does any if the database is unavailable."""
    try:
        return await request.app.state.access.identify(request.headers) is not None
    except PenstockError:
        return False


HasKeyHere = Annotated[bool, Depends(_has_key)]
HealthHere = Annotated[HealthChecker, Depends(_health)]
MetricsHere = Annotated[Metrics, Depends(_metrics)]
StoppingHere = Annotated[bool, Depends(_stopping)]

router = APIRouter(tags=["health"])


@router.get(
    "/api/v1/health",
    summary="Run all health checks",
    response_model=Health,
    responses={503: {"model": Health, "description": "A required check fails."}},
    **public(),
)
async def health(checker: HealthHere, has_key: HasKeyHere) -> Response:
    """Every check with its result; with a key, also in detail."""
    found = await checker.check_all()
    if not has_key:
        found.checks = {name: check.public() for name, check in found.checks.items()}
    return JSONResponse(found.model_dump(), status_code=503 if found.status == "unwell" else 200)


@router.get("/livez", summary="Liveness probe", **public(any_host=True))
async def alive() -> Word:
    """The process responds."""
    return Word(status="ok")


@router.get(
    "/readyz",
    summary="Readiness probe",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Not ready."}},
    **public(any_host=True),
)
async def ready(checker: HealthHere, stopping: StoppingHere) -> Response:
    """Whether to send requests to this process."""
    if stopping:
        return JSONResponse({"status": "stopping"}, status_code=503)
    failed = await checker.find_unready()
    if failed:
        return JSONResponse({"status": "not ready", "failed": failed}, status_code=503)
    return JSONResponse({"status": "ready"})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    **public(),
)
async def show_metrics(metrics: MetricsHere) -> Response:
    """The metrics of this process and of the queues."""
    return Response(await metrics.page(), media_type=CONTENT_TYPE)
