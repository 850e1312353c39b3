"""Large bodies: one at a time, refused when many wait, and validated in a thread with the same errors."""

import asyncio
import json
import threading
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, field_validator

from penstock.kernel.db import Db
from penstock.kernel.http.envelope import ERRORS, Said, SayHere
from penstock.kernel.http.large_bodies import MAX_WAITING, LargeBodies, LargeBodyRoute, LargeRequestsBusy
from penstock.kernel.http.request_body import THREAD_BYTES
from tests.asgi import Response, call
from tests.kernel.http.conftest import add_routes, new_app

THREADS: list[int] = []
on_sqlite = pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)


class Item(BaseModel):
    """One of many."""

    name: str

    @field_validator("name")
    @classmethod
    def noted(cls, name: str) -> str:
        THREADS.append(threading.get_ident())
        return name


class Items(BaseModel):
    """Many."""

    items: list[Item]


class ItemsRoute(LargeBodyRoute):
    """Takes many."""

    model = Items


@pytest.fixture
def app(db: Db) -> FastAPI:
    THREADS.clear()
    router = APIRouter(route_class=ItemsRoute, responses=ERRORS)

    @router.post("/items")
    async def put(body: Items, say: SayHere) -> Said[int]:
        return say(len(body.items), "Taken.", "已接收。")

    app = add_routes(new_app(), router, max_bytes=THREAD_BYTES * 10).app
    app.state.db = db
    return app


async def put(app: FastAPI, count: int, **last: Any) -> Response:
    items = [{"name": "x" * 100} for _ in range(count)]
    body = json.dumps({"items": [*items, last]}).encode()
    return await call(app, "POST", "/items", body, headers=[("content-length", str(len(body)))])


@on_sqlite
async def test_a_large_body_is_validated_in_a_thread_and_a_small_one_is_not(app: FastAPI) -> None:
    assert (await put(app, 3, name="n")).data == 4
    assert set(THREADS) == {threading.get_ident()}
    THREADS.clear()
    assert (await put(app, 3000, name="n")).data == 3001
    assert len(THREADS) == 3001
    assert threading.get_ident() not in THREADS


@on_sqlite
async def test_a_bad_field_of_a_large_body_is_named(app: FastAPI) -> None:
    small, large = await put(app, 3, name=7), await put(app, 3000, name=7)
    assert (small.status, large.status) == (400, 400)
    assert large.error["details"]["field"] == "items[3000].name"
    assert large.error["details"]["reason"] == small.error["details"]["reason"]


async def test_large_requests_run_one_at_a_time_in_their_order() -> None:
    turns, order, running = LargeBodies(), [], 0

    async def request(number: int) -> None:
        nonlocal running
        async with turns.turn():
            running += 1
            await asyncio.sleep(0)
            assert running == 1
            order.append(number)
            running -= 1

    await asyncio.gather(*map(request, range(5)))
    assert order == [0, 1, 2, 3, 4]


async def test_more_than_a_few_waiting_large_requests_are_refused() -> None:
    turns, go_on = LargeBodies(), asyncio.Event()

    async def request() -> None:
        async with turns.turn():
            await go_on.wait()

    running = [asyncio.create_task(request()) for _ in range(1 + MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(LargeRequestsBusy) as refused:
        await request()
    assert (refused.value.status, refused.value.retry_seconds) == (503, 5)
    go_on.set()
    await asyncio.gather(*running)
    await request()
