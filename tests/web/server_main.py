"""A server to be attacked: a process of its own, with routes that read bodies, are slow, or fail.

Run as `python -m tests.web.server_main PORT FOLDER DRAIN_SECONDS`.
"""

import asyncio
import gc
import logging
import sys
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from penstock.cli.process import ensure_admin_key
from penstock.cli.signals import run_until_signal
from penstock.kernel.logs import set_up_logs
from penstock.kernel.processes import ProcessKind
from penstock.settings import Settings
from penstock.web import server
from penstock.web.app import App, build_app, list_routers
from penstock.wiring import open_runtime

BODY_BYTES = 1_000_000
BODY_SECONDS = 1.0
GRACE_SECONDS = 2.0
HEADER_SECONDS = 1.0
ADMIN_KEY = "an-admin-key-for-tests"

log = logging.getLogger(__name__)
router = APIRouter()


class Note(BaseModel):
    """A JSON body."""

    text: str
    more: dict[str, Any] = {}


@router.post("/notes")
async def take(note: Note) -> dict[str, int]:
    """Read a JSON body."""
    return {"characters": len(note.text)}


@router.post("/raw")
async def count(request: Request) -> dict[str, int]:
    """Count the bytes of any body."""
    return {"bytes": sum([len(part) async for part in request.stream()])}


@router.get("/slow")
async def wait(seconds: float) -> dict[str, float]:
    """Respond after a delay."""
    log.info("slow request started")
    await asyncio.sleep(seconds)
    return {"seconds": seconds}


@router.get("/fail")
async def fail(request: Request) -> None:
    """A bug whose message contains a header."""
    raise RuntimeError(f"token={request.headers.get('x-note')}")


async def _serve(port: int, folder: Path, drain_seconds: float) -> None:
    settings = Settings(data_dir=folder, body_bytes=BODY_BYTES, body_seconds=BODY_SECONDS, admin_key=ADMIN_KEY)
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as tasks:
        await ensure_admin_key(runtime)
        tasks.create_task(runtime.run_background(kind=ProcessKind.SERVE))
        tasks.create_task(_answer(build_app(runtime, routers=[*list_routers(runtime), router]), port, drain_seconds))


async def _answer(app: App, port: int, drain_seconds: float) -> None:
    try:
        await server.serve_app(
            app, host="127.0.0.1", port=port, grace_seconds=GRACE_SECONDS, drain_seconds=drain_seconds
        )
    finally:
        app.state.request_log.flush()


if __name__ == "__main__":
    gc.disable()  # closing a connection must not depend on the garbage collector
    set_up_logs(style="text", level="INFO", stream=sys.stdout)
    server.HEADER_MILLISECONDS = int(HEADER_SECONDS * 1000)
    run_until_signal(_serve(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
