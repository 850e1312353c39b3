"""A server of streams for storms: the routes of events and nothing else, in a process of its own."""

import asyncio

from fastapi import FastAPI

from penstock.access.domain import Caller, Scope
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.hub import Hub
from penstock.web.events import router
from tests.conftest import open_db
from tests.fakes.authenticators import FixedCallers
from tests.servers.http import serving

MAX_STREAMS = 2000
MAX_WAITING = 256
KEEPALIVE_SECONDS = 2.0
TENANTS = 20


def callers() -> dict[str, Caller]:
    """An admin, and users who each see their own."""
    users = {f"user{n}": Caller(name=f"user{n}", user_id=n, scope=Scope.READ) for n in range(TENANTS)}
    return {"admin": Caller(name="admin", user_id=1000, scope=Scope.ADMIN), **users}


def run_server(url: str, port: int) -> None:
    """Serve until killed."""
    asyncio.run(_serve(url, port))


async def _serve(url: str, port: int) -> None:
    db = open_db(url)
    limits = {"max_streams": MAX_STREAMS, "max_per_tenant": MAX_STREAMS, "max_queued": MAX_WAITING}
    hub = Hub(db, **limits, keepalive_seconds=KEEPALIVE_SECONDS)
    app = FastAPI()
    install_error_handlers(app)
    app.include_router(router)
    app.state.db, app.state.hub, app.state.access = db, hub, FixedCallers(**callers())

    @app.get("/dropped")
    async def dropped() -> int:
        return hub.dropped

    async with serving(app, port):
        await hub.run()
