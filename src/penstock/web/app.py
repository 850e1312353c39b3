"""The HTTP app: the routes of all modules behind one middleware.

`ROUTERS` lists what is served. Routes get the parts of the runtime from `app.state`, through the typed dependencies of
the files that declare them.
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
from penstock.etl.metrics import EtlQueueMetrics
from penstock.kernel.errors import PenstockError
from penstock.kernel.http.envelope import envelope_error
from penstock.kernel.http.in_flight import InFlight
from penstock.kernel.http.middleware import BodyLimits, RequestMiddleware
from penstock.kernel.http.problems import install_error_handlers, problem_response
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
ENVELOPED = tuple(  # paths whose errors are sent in the envelope format
    f"/api/v1/{path}" for path in ("api-keys", "auth/", "audit", "projects", "tasks/", "submit", "stats")
)
NO_TELEMETRY = TelemetryConfig(
    tracing=False, metrics=False, logs=False, auto_configure=False
)  # it would report query strings
# Cross-origin requests (CORS): headers that the origins in PENSTOCK_CORS_ORIGINS may send and read.
ALLOWED_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-API-Key", "X-Client-Id", "X-Lease-Token",
    "X-Request-Id",
)  # fmt: skip
LIMIT_HEADERS = tuple(f"X-{what}-{part}" for what in ("RateLimit", "Quota") for part in ("Limit", "Remaining", "Reset"))
EXPOSED_HEADERS = ("Content-Language", "Retry-After", "X-Request-Id", *LIMIT_HEADERS)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
UPLOADS: tuple[str, ...] = etl.UPLOADS  # paths below which routes limit bodies themselves


class App(FastAPI):
    """The FastAPI app, with our OpenAPI document."""

    index: RouteIndex

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, built once."""
        if not self.openapi_schema:
            self.openapi_schema = describe(self, self.index.routes)
        return self.openapi_schema


def build_app(runtime: Runtime, *, routers: Sequence[APIRouter] = ROUTERS) -> App:
    """The app of one process."""
    app = App(
        title="Penstock",
        version=version("penstock"),
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a trailing slash is a different path
        telemetry=NO_TELEMETRY,
    )
    _set_state(app, runtime)
    app.index = RouteIndex([*(route for router in routers for route in router.routes), *app.router.routes])
    app.router.routes[:] = [app.index]
    install_error_handlers(app, render=_render_error)
    _add_middleware(app, runtime)
    return app


def _render_error(request: Request, error: PenstockError) -> Response:
    """An error outside of a route, in the format of its path."""
    if request.url.path.startswith(ENVELOPED):
        return envelope_error(request, error)
    return problem_response(error, request)


def _set_state(app: App, runtime: Runtime) -> None:
    """Put the parts of the runtime that routes depend on into `app.state`."""
    app.state.db = runtime.db
    app.state.access = runtime.access
    app.state.logins = runtime.logins
    app.state.hub = runtime.hub
    app.state.notify = runtime.modules.notify
    app.state.tasks = runtime.modules.tasks
    app.state.etl = runtime.modules.etl
    app.state.in_flight = InFlight()
    app.state.request_log = RequestLog(runtime.clock)
    app.state.health = health.HealthChecker(_probes(runtime), version=app.version)
    collectors = [
        runtime.modules.tasks.metrics,
        PullHealthMetrics(runtime.db, pull_timeout=runtime.settings.pull_timeout),
        runtime.modules.etl.metrics,
        EtlQueueMetrics(runtime.db, queue_size=runtime.settings.etl.queue_size),
        runtime.models.metrics,
    ]
    app.state.metrics = Metrics(
        runtime.db, version=app.version, streams=runtime.hub, breakers=runtime.breakers, more=collectors
    )


def _probes(runtime: Runtime) -> list[health.Probe]:
    return [
        probes.database(runtime.db),
        probes.migrations(runtime.db),
        *([probes.redis(partial(runtime.redis.execute, "PING"))] if runtime.redis else []),
        probes.blobs(runtime.blobs),
        probes.disk(runtime.settings.data_dir),
        probes.workers(runtime.db),
        probes.modules(runtime.db),
        probes.periodic_tasks(runtime.db, runtime.scheduler.names),
        probes.breakers(runtime.breakers),
        probes.console(),
    ]


def _add_middleware(app: App, runtime: Runtime) -> None:
    settings = runtime.settings
    app.add_middleware(
        RequestMiddleware,
        body_limits=BodyLimits(max_bytes=settings.body_bytes, seconds=settings.body_seconds, exempt=UPLOADS),
        traffic=app.state.metrics.http,
        request_log=app.state.request_log,
        in_flight=app.state.in_flight,
        has_head_route=partial(app.index.has, "HEAD"),
        enveloped=ENVELOPED,
        tracing=runtime.tracing,
    )
    if origins := [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]:
        app.add_middleware(  # outermost, so that a page can read error responses too
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=ALLOWED_HEADERS,
            expose_headers=EXPOSED_HEADERS,
        )
