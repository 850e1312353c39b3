"""A small app behind the middleware, with a route for each kind of response."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from penstock.kernel.clock import ManualClock
from penstock.kernel.errors import PenstockError, Unavailable
from penstock.kernel.http.in_flight import InFlight
from penstock.kernel.http.middleware import BodyLimits, RequestMiddleware
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.request_log import RequestLog
from penstock.kernel.http.routes import RouteIndex
from penstock.kernel.logs import request_id
from penstock.kernel.metrics import HttpMetrics

MAX_BYTES = 2000
BODY_SECONDS = 0.2


class Colour(StrEnum):
    RED = "red"


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=2, max_length=5)
    count: int = Field(ge=1)
    colour: Colour = Colour.RED
    password: SecretStr = SecretStr("")
    parts: list["Thing"] = []


@dataclass(kw_only=True)
class ServedApp:
    """The app and the objects of its middleware."""

    app: FastAPI
    traffic: HttpMetrics = field(default_factory=HttpMetrics)
    in_flight: InFlight = field(default_factory=InFlight)
    log: RequestLog
    raises: Callable[[], None] = lambda: None


def new_app() -> ServedApp:
    """An app without routes."""
    return ServedApp(app=FastAPI(redirect_slashes=False), log=RequestLog(ManualClock(datetime(2026, 1, 1, tzinfo=UTC))))


def add_routes(made: ServedApp, router: APIRouter, *, max_bytes: int = MAX_BYTES) -> ServedApp:
    """The app with these routes behind the middleware."""
    index = RouteIndex(router.routes)
    made.app.router.routes[:] = [index]
    install_error_handlers(made.app)
    made.app.add_middleware(
        RequestMiddleware,
        body_limits=BodyLimits(max_bytes=max_bytes, seconds=BODY_SECONDS, exempt=("/uploads/",)),
        traffic=made.traffic,
        request_log=made.log,
        in_flight=made.in_flight,
        has_head_route=lambda path: index.has("HEAD", path),
    )
    return made


@pytest.fixture
def served() -> ServedApp:
    """The app behind the middleware."""
    made = new_app()
    return add_routes(made, _routes(made))


@pytest.fixture
def app(served: ServedApp) -> FastAPI:
    """The app alone."""
    return served.app


def _routes(served: ServedApp) -> APIRouter:  # noqa: C901  (a list of routes)
    router = APIRouter()

    @router.get("/things/{thing_id}")
    async def read(request: Request, thing_id: int, limit: Annotated[int, Query(le=10)] = 5) -> dict[str, Any]:
        request.state.caller = type("Caller", (), {"name": "ann"})
        return {"id": thing_id, "limit": limit, "request_id": request_id.get()}

    @router.post("/things")
    async def make(thing: Thing) -> dict[str, Any]:
        return {"name": thing.name}

    @router.delete("/things/{thing_id}")
    async def remove(thing_id: int) -> dict[str, Any]:
        return {"id": thing_id}

    @router.get("/raise")
    async def fail() -> None:
        served.raises()

    @router.get("/text")
    async def text(size: int, kind: str = "application/json") -> Response:
        return Response(b"a" * size, media_type=kind)

    @router.get("/packed")
    async def packed() -> Response:
        return Response(b"a" * 5000, media_type="application/json", headers={"Content-Encoding": "br"})

    @router.get("/page")
    async def page() -> Response:
        own = {"Content-Security-Policy": "default-src 'self'", "Cache-Control": "max-age=60"}
        return Response("<html>", media_type="text/html", headers=own)

    @router.get("/stream")
    async def stream() -> Response:
        return StreamingResponse(_events(), media_type="text/event-stream")

    @router.get("/broken-stream")
    async def broken() -> Response:
        return StreamingResponse(_broken(), media_type="text/plain")

    @router.get("/endless")
    async def endless() -> Response:
        return StreamingResponse(_endless(), media_type="text/event-stream")

    @router.get("/refused-stream")
    async def refused() -> Response:
        return StreamingResponse(_refused(), media_type="text/plain")

    @router.post("/raw")
    @router.post("/uploads/raw")
    async def raw(request: Request) -> dict[str, int]:
        return {"bytes": sum([len(part) async for part in request.stream()])}

    @router.head("/uploads/{name}")
    async def offset(name: str) -> Response:
        return Response(headers={"Upload-Offset": name})

    return router


async def _events() -> AsyncIterator[bytes]:
    yield b"data: " + b"a" * 5000 + b"\n\n"
    yield b"data: b\n\n"


async def _broken() -> AsyncIterator[bytes]:
    yield b"half"
    raise RuntimeError("in the middle")


async def _endless() -> AsyncIterator[bytes]:
    yield b"data: a\n\n"
    await asyncio.Event().wait()


async def _refused() -> AsyncIterator[bytes]:
    yield b"half"
    raise Unavailable(reason="in the middle")


def raising(error: PenstockError | Exception) -> Callable[[], None]:
    """A function that raises this error."""

    def fail() -> None:
        raise error

    return fail
