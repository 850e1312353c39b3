"""From a message to a receiver that verifies the signature as the how-to says, with everything running."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fastapi import FastAPI
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server.embed import Server

from penstock.access import keys
from penstock.access.authenticate import Authenticator
from penstock.access.domain import NewKey, Scope
from penstock.access.tokens import Tokens
from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.relay import Relay
from penstock.kernel.workers import Workers
from penstock.notify.api import router
from penstock.notify.delivery_jobs import MODULE
from penstock.notify.deps import Deps
from penstock.notify.worker import WebhookFanOut, handlers
from tests.conftest import open_db
from tests.fakes.receivers import Receiver
from tests.journeys.command import free_port
from tests.notify.conftest import Paid
from tests.notify.test_signing import shown_check

PATIENCE_SECONDS = 30


class ReceiverThatChecks(Receiver):
    """Takes what is signed with its secret, by the code of the how-to, and nothing else."""

    secret = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        right = shown_check()(self.secret, request.headers, self.heard[-1].body)
        return web.Response(status=204 if right else 401)


@pytest.fixture
async def live(db_url: str) -> AsyncIterator[Db]:
    """A database on the real clock: receivers look at the time."""
    db = open_db(db_url, SystemClock())
    yield db
    await db.close()


@asynccontextmanager
async def running(deps: Deps) -> AsyncIterator[str]:
    """The API, the relay and a worker; gives the API's address."""
    app = FastAPI()
    install_error_handlers(app)
    app.include_router(router)
    app.state.notify = deps
    app.state.access = Authenticator(
        deps.db, tokens=Tokens(deps.db.clock, secret="a secret of thirty-two bytes or more")
    )
    relay = Relay(deps.db, {}, sinks=[WebhookFanOut(deps)], owner="relay")
    workers = Workers(deps.db, deps.queue, handlers(deps), owner="worker", modules=[MODULE])
    port = free_port()
    server = Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_level=LogLevels.error)
    parts = [asyncio.ensure_future(part) for part in (relay.run(), workers.run())]
    serving = asyncio.ensure_future(server.serve())
    try:
        await answering(port)
        yield f"http://127.0.0.1:{port}/api/v1/webhooks"
    finally:
        server.stop()
        for part in parts:
            part.cancel()
        await asyncio.wait([serving, *parts])


async def answering(port: int) -> None:
    """Return when somebody listens there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_message_reaches_a_receiver_that_checks_it(deps: Deps, live: Db):
    async with live.tx() as tx:
        key = await keys.create(tx, NewKey(name="anna", scope=Scope.WRITE, user_id=5), by="test")
    headers = {"X-API-Key": key.secret}
    async with (
        running(replace(deps, db=live)) as url,
        ReceiverThatChecks() as receiver,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        async with session.post(url, json={"url": receiver.url, "channels": ["Paid"]}) as answer:
            webhook = await answer.json()
        receiver.secret = webhook["secret"]
        async with live.tx() as tx:
            tx.send(Paid(user_id=5, invoice=7))
        await asyncio.wait_for(receiver.rang.wait(), PATIENCE_SECONDS)
        delivery = await over(session, f"{url}/{webhook['id']}/deliveries")
        assert (delivery["state"], delivery["status_code"], delivery["attempts"]) == ("delivered", 204, 1)


async def over(session: aiohttp.ClientSession, url: str) -> Any:
    """The only delivery, once it has been tried."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with session.get(url) as answer:
                [delivery] = (await answer.json())["items"]
            if delivery["attempts"]:
                return delivery
            await asyncio.sleep(0.02)
