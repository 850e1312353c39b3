"""The HTTP app: the routes of all rooms, and the health of the house."""

import asyncio
import os
import socket
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server.embed import Server
from pydantic import BaseModel

from penstock.kernel.errors import Conflict, PenstockError
from penstock.kernel.http.problems import speak_problems
from penstock.kernel.migrations import pending
from penstock.kernel.timekeeper import list_duties
from penstock.wiring import House

STOP_SECONDS = 2  # how long open connections may keep a stop waiting


class Check(BaseModel):
    """One part of the house, and whether it is well."""

    ok: bool
    detail: str = ""


class Health(BaseModel):
    """The answer of /api/v1/health."""

    status: str
    version: str
    checks: dict[str, Check]


def build_app(house: House) -> FastAPI:
    """The app of one process."""
    app = FastAPI(
        title="Penstock", version=version("penstock"), openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None
    )
    speak_problems(app)

    @app.get("/api/v1/health", summary="Is everything well?")
    async def health() -> JSONResponse:
        checks = {"database": await _database(house), "duties": await _duties(house)}
        well = checks["database"].ok  # a duty that failed is tried again; it does not make the house unfit
        body = Health(status="ok" if well else "unwell", version=app.version, checks=checks)
        return JSONResponse(body.model_dump(), status_code=200 if well else 503)

    @app.get("/livez", summary="Does the process answer?")
    async def alive() -> dict[str, str]:
        return {"status": "ok"}

    return app


class PortTaken(Conflict):
    """Something else listens on the port, or the address is not ours."""

    code = "PORT_TAKEN"
    message = "{host}:{port} cannot be listened on ({reason})."
    hint = "Stop what listens there, or choose another address with --host and --port."


def check_port(host: str, port: int) -> None:
    """Refuse a port that is taken: the server itself would share it with the other one, to everyone's surprise."""
    try:
        with socket.create_server((host, port), reuse_port=False):
            return
    except OSError as error:
        raise PortTaken(
            host=host, port=port, reason=os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        ) from error


async def serve_http(house: House, *, host: str, port: int) -> None:
    """Answer HTTP until cancelled."""
    check_port(host, port)
    server = Server(build_app(house), address=host, port=port, interface=Interfaces.ASGI, log_level=LogLevels.error)
    serving = asyncio.ensure_future(server.serve())
    try:
        await asyncio.shield(serving)
    finally:
        server.stop()  # type: ignore[no-untyped-call]  # granian gives this method no types
        await asyncio.wait([serving], timeout=STOP_SECONDS)
        serving.cancel()


async def _database(house: House) -> Check:
    try:
        steps = await pending(house.db)
    except PenstockError as error:
        return Check(ok=False, detail=str(error))
    return Check(ok=not steps, detail=f"steps to take: {', '.join(steps)}" if steps else "")


async def _duties(house: House) -> Check:
    try:
        known = house.timekeeper.names
        failing = [duty.name for duty in await list_duties(house.db) if duty.error and duty.name in known]
    except PenstockError as error:
        return Check(ok=False, detail=str(error))
    return Check(ok=not failing, detail=f"failed last time: {', '.join(failing)}" if failing else "")
