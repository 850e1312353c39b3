"""The routes of events, through the real server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI

from penstock.access.domain import Caller, Scope
from penstock.kernel import events
from penstock.kernel.db import Db
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.hub import Hub
from penstock.kernel.message import Event
from penstock.web.events import router
from tests.conftest import open_db
from tests.fakes.authenticators import FixedCallers
from tests.fakes.listeners import Heard, Listener, listening
from tests.servers.http import serving

pytestmark = pytest.mark.timeout(60)

ADMIN = Caller(name="admin", user_id=1, scope=Scope.ADMIN)
ANN = Caller(name="ann", user_id=5, scope=Scope.READ, merchant_id=9)
BOUND = Caller(name="bound", user_id=5, scope=Scope.ADMIN, merchant_id=9, project="p")
TOLD = [("job:1", "user:5"), ("job:2", "merchant:9"), ("job:1", "user:6"), ("task:1", "project:p"), ("job:1", "")]


class Runtime:
    """What a test needs: an app that is served, and its parts."""

    def __init__(self, db: Db, hub: Hub) -> None:
        self.db = db
        self.hub = hub
        self.door = FixedCallers(admin=ADMIN, ann=ANN, bound=BOUND)
        self.url = ""

    def app(self) -> FastAPI:
        app = FastAPI()
        install_error_handlers(app)
        app.include_router(router)
        app.state.db, app.state.hub, app.state.access = self.db, self.hub, self.door
        return app

    async def tell(self, *numbers: int, topic: str = "job:1", audience: str = "user:5") -> None:
        async with self.db.tx() as tx:
            for number in numbers:
                tx.tell(Event(topic=topic, kind="counted", audience=audience, data={"n": number}))

    async def tell_everyone(self) -> None:
        for number, (topic, audience) in enumerate(TOLD, start=1):
            await self.tell(number, topic=topic, audience=audience)

    async def ids(self) -> list[int]:
        async with self.db.read() as tx:
            return [told.id for told in await events.list_events(tx)]

    async def until_nobody_watches(self) -> None:
        async with asyncio.timeout(10):
            while self.hub.streams:  # noqa: ASYNC110  (leaving is told to nobody)
                await asyncio.sleep(0.01)


@pytest.fixture
async def house(db_url: str) -> AsyncIterator[Runtime]:
    db = open_db(db_url)
    house = Runtime(db, Hub(db, most_streams=3, most_per_tenant=2, keepalive_seconds=0.2))
    running = asyncio.create_task(house.hub.run())
    async with serving(house.app()) as url:
        house.url = f"{url}/api/v1"
        yield house
        running.cancel()
        await asyncio.wait([running])
    await db.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


def numbers(heard: list[Heard]) -> list[int]:
    return [one.data["n"] for one in heard]


async def get(session: aiohttp.ClientSession, url: str, who: str = "admin", **params: Any) -> tuple[int, Any]:
    async with session.get(url, params=params, headers={"X-API-Key": who}) as answer:
        return answer.status, await answer.json(content_type=None)


async def to_the_end(listener: Listener) -> list[Heard]:
    heard = []
    while True:
        try:
            heard.append(await listener.hear())
        except EOFError:
            return heard


class TestStream:
    async def test_it_begins_with_when_to_come_back_and_where_to_go_on(
        self, house: Runtime, session: aiohttp.ClientSession
    ):
        await house.tell(1)
        [last] = await house.ids()
        async with listening(session, f"{house.url}/events?last_event_id={last}", X_API_Key="ann") as listener:
            first = await listener.hear()
            assert (first.retry, first.id, first.kind) == (3000, last, "")
            headers = listener.response.headers
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Accel-Buffering"] == "no"

    async def test_events_come_as_they_happen(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            await house.tell(1)
            [heard] = await listener.hear_events(1)
        assert (heard.id, heard.kind) == ((await house.ids())[-1], "counted")
        assert (heard.data["n"], heard.data["topic"], set(heard.data)) == (1, "job:1", {"n", "topic", "at"})

    @pytest.mark.parametrize("how", ["header", "query", "header before query"])
    async def test_one_goes_on_after_the_last_event_seen(
        self, house: Runtime, session: aiohttp.ClientSession, how: str
    ):
        await house.tell(1, 2, 3)
        first = (await house.ids())[0]
        query = {"header": "", "query": f"?last_event_id={first}", "header before query": "?last_event_id=0"}[how]
        header = {} if how == "query" else {"Last_Event_ID": str(first)}
        async with listening(session, f"{house.url}/events{query}", X_API_Key="ann", **header) as listener:
            assert numbers(await listener.hear_events(2)) == [2, 3]
            await house.tell(4)
            assert numbers(await listener.hear_events(1)) == [4]

    @pytest.mark.parametrize("bad", ["-1", "one", "1.5", "9223372036854775808", "0x1", "1" * 5000, "١"])
    async def test_an_id_that_is_no_number_is_refused(self, house: Runtime, session: aiohttp.ClientSession, bad: str):
        status, problem = await get(session, f"{house.url}/events", last_event_id=bad)
        assert (status, problem["code"]) == (400, "BAD_EVENT_QUERY")

    async def test_who_comes_back_too_late_is_told_so(self, house: Runtime, session: aiohttp.ClientSession):
        await house.tell(1, 2, 3)
        ids = await house.ids()
        async with house.db.tx() as tx:
            await tx.conn.execute(events.event.delete().where(events.event.c.id < ids[-1]))
        url = f"{house.url}/events?last_event_id={ids[0]}"
        async with listening(session, url, X_API_Key="ann") as listener:
            reset, last = await listener.hear_events(2)
        assert (reset.kind, reset.data, last.id) == ("reset", {"oldest": ids[-1]}, ids[-1])

    async def test_a_silent_stream_shows_that_it_lives(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            assert [(await listener.hear()).comment for _ in range(2)] == ["alive", "alive"]


class TestWhoSeesWhat:
    @pytest.mark.parametrize(
        ("who", "topic", "seen"),
        [
            ("admin", "", [1, 2, 3, 4, 5]),
            ("admin", "job:1", [1, 3, 5]),
            ("ann", "", [1, 2]),
            ("ann", "job:1", [1]),
            ("ann", "task:1", []),
            ("bound", "", [4]),
            ("bound", "job:1", []),
        ],
    )
    async def test_the_stream_and_the_log_show_the_same(
        self, house: Runtime, session: aiohttp.ClientSession, who: str, topic: str, seen: list[int]
    ):
        await house.tell_everyone()
        asked = f"topic={topic}&" if topic else ""
        async with listening(session, f"{house.url}/events?{asked}last_event_id=0", X_API_Key=who) as listener:
            await listener.hear()
            assert numbers(await listener.hear_events(len(seen))) == seen
            await house.tell_everyone()
            assert numbers(await listener.hear_events(len(seen))) == seen
            assert (await listener.hear()).comment == "alive"
        _, page = await get(session, f"{house.url}/events/log?{asked}", who)
        assert [event["data"]["n"] for event in page["events"]] == seen * 2

    async def test_a_stranger_sees_nothing(self, house: Runtime, session: aiohttp.ClientSession):
        for path in ("events", "events/log"):
            status, problem = await get(session, f"{house.url}/{path}", "stranger")
            assert (status, problem["code"]) == (401, "UNAUTHENTICATED")

    @pytest.mark.parametrize("topic", ["", "job:\0", "x" * 256])
    async def test_a_topic_that_can_be_none_is_refused(
        self, house: Runtime, session: aiohttp.ClientSession, topic: str
    ):
        for path in ("events", "events/log"):
            status, problem = await get(session, f"{house.url}/{path}", topic=topic)
            assert (status, problem["code"]) == (400, "BAD_EVENT_QUERY")


class TestEnding:
    async def test_a_revoked_key_stops_watching(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            del house.door.callers["ann"]
            heard = await to_the_end(listener)
        assert heard[-1].comment == "the caller may no longer watch"

    async def test_a_busy_stream_is_asked_too(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            del house.door.callers["ann"]
            telling = asyncio.create_task(self._tell_on(house))
            heard = await to_the_end(listener)
            telling.cancel()
        assert heard[-1].comment == "the caller may no longer watch"
        assert "alive" not in [one.comment for one in heard]

    async def _tell_on(self, house: Runtime) -> None:
        while True:
            await house.tell(1)
            await asyncio.sleep(0.02)

    async def test_a_key_that_lost_its_rights_stops_watching(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="admin") as listener:
            await listener.hear()
            house.door.callers["admin"] = replace(ADMIN, scope=Scope.READ)
            await to_the_end(listener)

    async def test_a_door_that_is_away_stops_nobody(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            house.door.away, house.door.asked = True, 0
            while house.door.asked < 2:
                await listener.hear()
            await house.tell(1)
            assert numbers(await listener.hear_events(1)) == [1]

    async def test_when_the_hub_ends_the_stream_ends_with_a_word(self, house: Runtime, session: aiohttp.ClientSession):
        async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            house.hub.close()
            heard = await asyncio.wait_for(to_the_end(listener), 1)
        assert heard[-1].comment == "this server stops; come back and go on"
        status, problem = await get(session, f"{house.url}/events", "ann")
        assert (status, problem["code"], problem["retryable"]) == (503, "NO_LIVE_EVENTS", True)

    async def test_whoever_leaves_gives_the_place_back(self, house: Runtime, session: aiohttp.ClientSession):
        for _ in range(5):
            async with listening(session, f"{house.url}/events", X_API_Key="ann") as listener:
                await listener.hear()
            await house.until_nobody_watches()


class TestLimits:
    async def test_too_many_streams_are_refused_with_a_wait(self, house: Runtime, session: aiohttp.ClientSession):
        url = f"{house.url}/events"
        async with listening(session, url, X_API_Key="ann"), listening(session, url, X_API_Key="ann"):
            async with session.get(url, headers={"X-API-Key": "ann"}) as answer:
                problem = await answer.json(content_type=None)
                assert (answer.status, problem["code"]) == (429, "TOO_MANY_STREAMS")
                assert int(answer.headers["Retry-After"]) > 0
            async with listening(session, url, X_API_Key="admin"):
                status, problem = await get(session, url, "admin")
                assert (status, problem["code"]) == (429, "TOO_MANY_STREAMS")


class TestLog:
    async def test_it_is_read_page_by_page(self, house: Runtime, session: aiohttp.ClientSession):
        await house.tell(1, 2, 3)
        ids = await house.ids()
        _, first = await get(session, f"{house.url}/events/log", "ann", limit=2)
        assert [event["id"] for event in first["events"]] == ids[:2]
        assert first["events"][0].keys() == {"id", "topic", "kind", "at", "data"}
        _, second = await get(session, f"{house.url}/events/log", "ann", after=first["next"])
        assert ([event["data"] for event in second["events"]], second["next"]) == ([{"n": 3}], ids[-1])
        _, third = await get(session, f"{house.url}/events/log", "ann", after=second["next"])
        assert (third["events"], third["next"], third["oldest"], third["missed"]) == ([], ids[-1], ids[0], False)

    async def test_it_tells_what_was_missed(self, house: Runtime, session: aiohttp.ClientSession):
        await house.tell(1, 2, 3)
        ids = await house.ids()
        async with house.db.tx() as tx:
            await tx.conn.execute(events.event.delete().where(events.event.c.id < ids[-1]))
        _, page = await get(session, f"{house.url}/events/log", "ann", after=ids[0])
        assert (page["missed"], page["oldest"]) == (True, ids[-1])
        _, page = await get(session, f"{house.url}/events/log", "ann", after=ids[1])
        assert page["missed"] is False

    @pytest.mark.parametrize("bad", [{"after": "-1"}, {"after": "x"}, {"after": ""}])
    async def test_an_id_that_is_no_number_is_refused(
        self, house: Runtime, session: aiohttp.ClientSession, bad: dict[str, str]
    ):
        status, problem = await get(session, f"{house.url}/events/log", "ann", **bad)
        assert (status, problem["code"]) == (400, "BAD_EVENT_QUERY")


def test_the_document_tells_of_the_stream_and_of_who_may_call():
    app = FastAPI()
    app.include_router(router)
    paths = app.openapi()["paths"]
    stream = paths["/api/v1/events"]["get"]
    assert list(stream["responses"]["200"]["content"]) == ["text/event-stream"]
    assert "reset" in stream["responses"]["200"]["description"]
    assert {parameter["name"] for parameter in stream["parameters"]} == {"topic", "last_event_id", "Last-Event-ID"}
    assert [paths[path]["get"]["x-scope"] for path in paths] == ["read", "read"]
