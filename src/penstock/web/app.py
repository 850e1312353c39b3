"""The HTTP app: the routes of all rooms behind one front.

`ROUTERS` says what is served. Routes find the parts of the house in `app.state`, by the typed dependencies of the files
that declare them.
"""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.telemetry import TelemetryConfig

from penstock.access import api as access
from penstock.etl import api as etl
from penstock.etl.meters import EtlFigures
from penstock.kernel.errors import PenstockError
from penstock.kernel.http.envelope import refusal
from penstock.kernel.http.in_flight import InFlight
from penstock.kernel.http.middleware import BodyRules, Front
from penstock.kernel.http.problems import install_error_handlers, problem
from penstock.kernel.http.request_log import RequestLog
from penstock.kernel.http.routes import RouteIndex
from penstock.kernel.metrics import Metrics
from penstock.notify import api as webhooks
from penstock.tasks import api as tasks
from penstock.tasks.metrics import PullHealthMetrics
from penstock.web import events, health, probes
from penstock.web.openapi import describe
from penstock.wiring import Runtime

ROUTERS: Sequence[APIRouter] = (
    health.router, access.router, events.router, webhooks.router, *tasks.ROUTERS, *etl.ROUTERS,
)  # fmt: skip
OPENAPI = "/api/v1/openapi.json"
ENVELOPED = tuple(  # whose clients know another shape of error
    f"/api/v1/{family}" for family in ("api-keys", "auth/", "audit", "projects", "tasks/", "submit", "stats")
)
NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)  # it would tell queries
# What pages of other origins may send and read, where PENSTOCK_CORS_ORIGINS lets them in.
THEY_SEND = (
    "Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-API-Key", "X-Client-Id", "X-Lease-Token",
    "X-Request-Id",
)  # fmt: skip
LIMITS = tuple(f"X-{what}-{part}" for what in ("RateLimit", "Quota") for part in ("Limit", "Remaining", "Reset"))
THEY_READ = ("Content-Language", "Retry-After", "X-Request-Id", *LIMITS)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
UPLOADS: tuple[str, ...] = etl.UPLOADS  # paths below which routes bound their bodies themselves


class App(FastAPI):
    """The framework's app, with our document of its routes."""

    index: RouteIndex

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if not self.openapi_schema:
            self.openapi_schema = describe(self, self.index.routes)
        return self.openapi_schema


def build_app(house: Runtime, *, routers: Sequence[APIRouter] = ROUTERS) -> App:
    """The app of one process."""
    app = App(
        title="Penstock",
        version=version("penstock"),
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    _furnish(app, house)
    app.index = RouteIndex([*(route for router in routers for route in router.routes), *app.router.routes])
    app.router.routes[:] = [app.index]
    install_error_handlers(app, tell=_tell)
    _put_front(app, house)
    return app


def _tell(request: Request, error: PenstockError) -> Response:
    """What no route could answer, in the form of the family that its path belongs to."""
    return refusal(request, error) if request.url.path.startswith(ENVELOPED) else problem(error, request)


def _furnish(app: App, house: Runtime) -> None:
    """Put into `app.state` what routes ask for."""
    app.state.db = house.db
    app.state.access = house.access
    app.state.logins = house.logins
    app.state.hub = house.hub
    app.state.notify = house.modules.notify
    app.state.tasks = house.modules.tasks
    app.state.etl = house.modules.etl
    app.state.under_way = InFlight()
    app.state.request_log = RequestLog(house.clock)
    app.state.checkup = health.Checkup(_probes(house), version=app.version)
    rooms = [
        house.modules.tasks.metrics,
        PullHealthMetrics(house.db, pull_timeout=house.settings.pull_timeout),
        house.modules.etl.meters,
        EtlFigures(house.db, queue_size=house.settings.etl.queue_size),
        house.models.meters,
    ]
    app.state.metrics = Metrics(house.db, version=app.version, streams=house.hub, breakers=house.breakers, more=rooms)


def _probes(house: Runtime) -> list[health.Probe]:
    return [
        probes.database(house.db),
        probes.migrations(house.db),
        *([probes.redis(partial(house.redis.call, "PING"))] if house.redis else []),
        probes.blobs(house.blobs),
        probes.disk(house.settings.data_dir),
        probes.workers(house.db),
        probes.rooms(house.db),
        probes.periodic_tasks(house.db, house.scheduler.names),
        probes.breakers(house.breakers),
        probes.console(),
    ]


def _put_front(app: App, house: Runtime) -> None:
    settings = house.settings
    app.add_middleware(
        Front,
        bodies=BodyRules(most_bytes=settings.body_bytes, seconds=settings.body_seconds, own_limits=UPLOADS),
        traffic=app.state.metrics.traffic,
        request_log=app.state.request_log,
        under_way=app.state.under_way,
        own_head=partial(app.index.has, "HEAD"),
        enveloped=ENVELOPED,
        tracing=house.tracing,
    )
    if origins := [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]:
        app.add_middleware(  # around the front, so that a page can read its refusals too
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=THEY_SEND,
            expose_headers=THEY_READ,
        )
