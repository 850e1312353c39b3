"""The HTTP app: the routes of all modules behind one middleware.

A `ModuleSpec` says what a module adds to the app. Routes get the parts of the runtime from `app.state`, through the
typed dependencies of the files that declare them.
"""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse
from fastapi.telemetry import TelemetryConfig

from penstock.access.guard import public
from penstock.kernel.errors import PenstockError
from penstock.kernel.http.client_address import ClientAddress
from penstock.kernel.http.envelope import envelope_error
from penstock.kernel.http.in_flight import InFlight
from penstock.kernel.http.language import language_tag
from penstock.kernel.http.middleware import BodyLimits, PathRules, RequestMiddleware
from penstock.kernel.http.problems import install_error_handlers, problem_response
from penstock.kernel.http.request_log import RequestLog
from penstock.kernel.http.routes import RouteIndex
from penstock.kernel.metrics import Metrics
from penstock.kernel.module import Router
from penstock.web import events, health, ops, probes
from penstock.web.openapi import describe
from penstock.wiring import Runtime
from penstock.wiring.backends import build_proxies

OPENAPI = "/api/v1/openapi.json"
NO_TELEMETRY = TelemetryConfig(
    tracing=False, metrics=False, logs=False, auto_configure=False
)  # it would report query strings
# Cross-origin requests (CORS): headers that the origins in PENSTOCK_CORS_ORIGINS may send and read.
ALLOWED_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-API-Key", "X-Client-Id", "X-Lease-Token",
    "X-Request-Id", "X-HTTP-Method-Override", "Tus-Resumable", "Upload-Length", "Upload-Defer-Length", "Upload-Offset",
    "Upload-Metadata", "Upload-Concat", "Upload-Checksum",
)  # fmt: skip
LIMIT_HEADERS = tuple(f"X-{what}-{part}" for what in ("RateLimit", "Quota") for part in ("Limit", "Remaining", "Reset"))
EXPOSED_HEADERS = ("Content-Language", "Retry-After", "Warning", "X-Request-Id", *LIMIT_HEADERS)
INDEX_TEXTS = {  # by language tag
    "en": ("Penstock", "The API is ready. It has no web console yet; these pages describe it:"),
    "zh-CN": ("Penstock", "API 已就绪。目前还没有网页控制台；以下页面说明该 API："),
}
INDEX_LINKS = (OPENAPI, "/api/v1/health", "/metrics")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class App(FastAPI):
    """The FastAPI app, with our OpenAPI document."""

    index: RouteIndex

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, built once."""
        if not self.openapi_schema:
            self.openapi_schema = describe(self, self.index.routes)
        return self.openapi_schema


index = APIRouter()


@index.get("/", include_in_schema=False, **public())
async def show_index(request: Request) -> HTMLResponse:
    """A plain page for people who open the address of the server in a browser."""
    language = language_tag(request)
    title, intro = INDEX_TEXTS[language]
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in INDEX_LINKS)
    page = f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>{title}</title>'
    page += f"<h1>{title} {request.app.version}</h1><p>{intro}</p><ul>{links}</ul></html>"
    return HTMLResponse(page, headers={"Content-Language": language, "Vary": "Accept-Language"})


def list_routers(runtime: Runtime) -> list[Router]:
    """The routers of the web package and of every module, in the order in which they are matched."""
    return [index, health.router, events.router, *ops.ROUTERS, *runtime.modules.routers]


def build_app(runtime: Runtime, *, routers: Sequence[Router] | None = None) -> App:
    """The app of one process, with all routers or with those that a test or benchmark chooses."""
    if routers is None:
        routers = list_routers(runtime)
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
    enveloped = tuple(chain.from_iterable(spec.envelope for spec in runtime.modules.specs))
    install_error_handlers(app, render=partial(_render_error, enveloped))
    _add_middleware(app, runtime, enveloped)
    return app


def _render_error(enveloped: tuple[str, ...], request: Request, error: PenstockError) -> Response:
    """An error outside of a route, in the format of its path."""
    if request.url.path.startswith(enveloped):
        return envelope_error(request, error)
    return problem_response(error, request)


def _set_state(app: App, runtime: Runtime) -> None:
    """Put the parts of the runtime that routes depend on into `app.state`."""
    app.state.db = runtime.db
    app.state.hub = runtime.hub
    app.state.job_queue, app.state.scheduler = runtime.queue, runtime.scheduler
    for name, value in runtime.modules.state.items():
        setattr(app.state, name, value)
    app.state.in_flight = InFlight()
    app.state.request_log = RequestLog(runtime.clock)
    app.state.health = health.HealthChecker(_probes(runtime), version=app.version)
    collectors = [*chain.from_iterable(spec.metrics for spec in runtime.modules.specs), runtime.models.metrics]
    app.state.metrics = Metrics(
        runtime.db, version=app.version, streams=runtime.hub, breakers=runtime.breakers, more=collectors
    )


def _probes(runtime: Runtime) -> list[health.Probe]:
    return [
        probes.database(runtime.db),
        probes.migrations(runtime.db, runtime.migrations),
        *([probes.redis(partial(runtime.redis.execute, "PING"))] if runtime.redis else []),
        probes.blobs(runtime.blobs),
        probes.data_folder(runtime.settings.data_dir),
        probes.disk(runtime.settings.data_dir),
        probes.workers(runtime.db),
        probes.modules(runtime.db),
        probes.periodic_tasks(runtime.db, runtime.scheduler.names),
        probes.breakers(runtime.breakers),
        probes.console(),
    ]


def _add_middleware(app: App, runtime: Runtime, enveloped: tuple[str, ...]) -> None:
    settings = runtime.settings
    uploads = tuple(chain.from_iterable(spec.uploads for spec in runtime.modules.specs))
    app.add_middleware(
        RequestMiddleware,
        body_limits=BodyLimits(max_bytes=settings.body_bytes, seconds=settings.body_seconds, exempt=uploads),
        traffic=app.state.metrics.http,
        request_log=app.state.request_log,
        in_flight=app.state.in_flight,
        has_head_route=partial(app.index.has, "HEAD"),
        paths=PathRules(
            enveloped=enveloped,
            headers={path: own for spec in runtime.modules.specs for path, own in spec.headers.items()},
            method_override=tuple(chain.from_iterable(spec.method_override for spec in runtime.modules.specs)),
        ),
        tracing=runtime.tracing,
    )
    if (proxies := build_proxies(settings)).networks:
        app.add_middleware(ClientAddress, proxies=proxies)
    if origins := [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]:
        app.add_middleware(  # outermost, so that a page can read error responses too
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=ALLOWED_HEADERS,
            expose_headers=EXPOSED_HEADERS,
        )
