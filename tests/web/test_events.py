"""The event routes, through a real server."""

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
from tests.conftest import open_db, sequence
from tests.fakes.authenticators import FixedCallers
from tests.fakes.sse import Heard, Listener, listening
from tests.servers.http import serving

pytestmark = pytest.mark.timeout(60)

ADMIN = Caller(name="admin", user_id=1, scope=Scope.ADMIN)
ANN = Caller(name="ann", user_id=5, scope=Scope.READ, merchant_id=9)
BOUND = Caller(name="bound", user_id=5, scope=Scope.ADMIN, merchant_id=9, project="p")
EVENTS = [("job:1", "user:5"), ("job:2", "merchant:9"), ("job:1", "user:6"), ("task:1", "project:p"), ("job:1", "")]


class ServedEvents:
    """A served app and its parts."""

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

    async def publish(self, *numbers: int, topic: str = "job:1", audience: str = "user:5") -> None:
        async with self.db.tx() as tx:
            for number in numbers:
                tx.publish(Event(topic=topic, kind="counted", audience=audience, data={"n": number}))

    async def publish_all(self) -> None:
        for number, (topic, audience) in enumerate(EVENTS, start=1):
            await self.publish(number, topic=topic, audience=audience)

    async def ids(self) -> list[int]:
        await sequence(self.db)
        async with self.db.read() as tx:
            return [event.id for event in await events.list_events(tx)]

    async def until_no_streams(self) -> None:
        async with asyncio.timeout(10):
            while self.hub.streams:  # noqa: ASYNC110  (there is no event for it)
                await asyncio.sleep(0.01)


@pytest.fixture
async def served(db_url: str) -> AsyncIterator[ServedEvents]:
    db = open_db(db_url)
    served = ServedEvents(db, Hub(db, max_streams=3, max_per_tenant=2, keepalive_seconds=0.2))
    running = asyncio.create_task(served.hub.run())
    async with serving(served.app()) as url:
        served.url = f"{url}/api/v1"
        yield served
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
    async def test_it_begins_with_a_retry_interval_and_the_id_to_resume_from(
        self, served: ServedEvents, session: aiohttp.ClientSession
    ):
        await served.publish(1)
        [last] = await served.ids()
        async with listening(session, f"{served.url}/events?last_event_id={last}", X_API_Key="ann") as listener:
            first = await listener.hear()
            assert (first.retry, first.id, first.kind) == (3000, last, "")
            headers = listener.response.headers
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Accel-Buffering"] == "no"

    async def test_events_come_as_they_happen(self, served: ServedEvents, session: aiohttp.ClientSession):
        async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            await served.publish(1)
            [heard] = await listener.hear_events(1)
        assert (heard.id, heard.kind) == ((await served.ids())[-1], "counted")
        assert (heard.data["n"], heard.data["topic"], set(heard.data)) == (1, "job:1", {"n", "topic", "at"})

    @pytest.mark.parametrize("how", ["header", "query", "header before query"])
    async def test_it_resumes_after_the_last_event_seen(
        self, served: ServedEvents, session: aiohttp.ClientSession, how: str
    ):
        await served.publish(1, 2, 3)
        first = (await served.ids())[0]
        query = {"header": "", "query": f"?last_event_id={first}", "header before query": "?last_event_id=0"}[how]
        header = {} if how == "query" else {"Last_Event_ID": str(first)}
        async with listening(session, f"{served.url}/events{query}", X_API_Key="ann", **header) as listener:
            assert numbers(await listener.hear_events(2)) == [2, 3]
            await served.publish(4)
            assert numbers(await listener.hear_events(1)) == [4]

    async def test_an_invalid_id_is_refused(self, served: ServedEvents, session: aiohttp.ClientSession):
        for bad in ("-1", "one", "1.5", "9223372036854775808", "0x1", "1" * 5000, "١"):
            status, problem = await get(session, f"{served.url}/events", last_event_id=bad)
            assert (status, problem["code"]) == (400, "BAD_EVENT_QUERY"), bad

    async def test_a_client_that_resumes_too_late_gets_a_reset(
        self, served: ServedEvents, session: aiohttp.ClientSession
    ):
        await served.publish(1, 2, 3)
        ids = await served.ids()
        async with served.db.tx() as tx:
            await tx.conn.execute(events.event.delete().where(events.event.c.id < ids[-1]))
        url = f"{served.url}/events?last_event_id={ids[0]}"
        async with listening(session, url, X_API_Key="ann") as listener:
            reset, last = await listener.hear_events(2)
        assert (reset.kind, reset.data, last.id) == ("reset", {"oldest": ids[-1]}, ids[-1])

    async def test_a_silent_stream_sends_keepalives(self, served: ServedEvents, session: aiohttp.ClientSession):
        async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
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
        self, served: ServedEvents, session: aiohttp.ClientSession, who: str, topic: str, seen: list[int]
    ):
        await served.publish_all()
        query = f"topic={topic}&" if topic else ""
        async with listening(session, f"{served.url}/events?{query}last_event_id=0", X_API_Key=who) as listener:
            await listener.hear()
            assert numbers(await listener.hear_events(len(seen))) == seen
            await served.publish_all()
            assert numbers(await listener.hear_events(len(seen))) == seen
            assert (await listener.hear()).comment == "alive"
        _, page = await get(session, f"{served.url}/events/log?{query}", who)
        assert [event["data"]["n"] for event in page["events"]] == seen * 2

    async def test_an_unknown_caller_sees_nothing(self, served: ServedEvents, session: aiohttp.ClientSession):
        for path in ("events", "events/log"):
            status, problem = await get(session, f"{served.url}/{path}", "stranger")
            assert (status, problem["code"]) == (401, "UNAUTHENTICATED")

    async def test_an_invalid_topic_is_refused(self, served: ServedEvents, session: aiohttp.ClientSession):
        for topic in ("", "job:\0", "x" * 256):
            for path in ("events", "events/log"):
                status, problem = await get(session, f"{served.url}/{path}", topic=topic)
                assert (status, problem["code"]) == (400, "BAD_EVENT_QUERY"), topic


class TestEnding:
    async def test_a_revoked_key_stops_watching(self, served: ServedEvents, session: aiohttp.ClientSession):
        async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            del served.door.callers["ann"]
            heard = await to_the_end(listener)
        assert heard[-1].comment == "access revoked"

    async def test_a_busy_stream_is_checked_too(self, served: ServedEvents, session: aiohttp.ClientSession):
        async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            del served.door.callers["ann"]
            publishing = asyncio.create_task(self._keep_publishing(served))
            heard = await to_the_end(listener)
            publishing.cancel()
        assert heard[-1].comment == "access revoked"
        assert "alive" not in [one.comment for one in heard]

    async def _keep_publishing(self, served: ServedEvents) -> None:
        while True:
            await served.publish(1)
            await asyncio.sleep(0.02)

    async def test_a_key_that_lost_its_rights_stops_watching(
        self, served: ServedEvents, session: aiohttp.ClientSession
    ):
        async with listening(session, f"{served.url}/events", X_API_Key="admin") as listener:
            await listener.hear()
            served.door.callers["admin"] = replace(ADMIN, scope=Scope.READ)
            await to_the_end(listener)

    async def test_unavailable_authentication_ends_no_stream(
        self, served: ServedEvents, session: aiohttp.ClientSession
    ):
        async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            served.door.away, served.door.asked = True, 0
            while served.door.asked < 2:
                await listener.hear()
            await served.publish(1)
            assert numbers(await listener.hear_events(1)) == [1]

    async def test_when_the_hub_closes_the_stream_ends_with_a_comment(
        self, served: ServedEvents, session: aiohttp.ClientSession
    ):
        async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
            await listener.hear()
            served.hub.close()
            heard = await asyncio.wait_for(to_the_end(listener), 1)
        assert heard[-1].comment == "the server is shutting down; reconnect to resume"
        status, problem = await get(session, f"{served.url}/events", "ann")
        assert (status, problem["code"], problem["retryable"]) == (503, "NO_LIVE_EVENTS", True)

    async def test_a_disconnected_client_frees_its_slot(self, served: ServedEvents, session: aiohttp.ClientSession):
        for _ in range(5):
            async with listening(session, f"{served.url}/events", X_API_Key="ann") as listener:
                await listener.hear()
            await served.until_no_streams()


class TestLimits:
    async def test_too_many_streams_are_refused_with_a_wait(self, served: ServedEvents, session: aiohttp.ClientSession):
        url = f"{served.url}/events"
        async with listening(session, url, X_API_Key="ann"), listening(session, url, X_API_Key="ann"):
            async with session.get(url, headers={"X-API-Key": "ann"}) as answer:
                problem = await answer.json(content_type=None)
                assert (answer.status, problem["code"]) == (429, "TOO_MANY_STREAMS")
                assert int(answer.headers["Retry-After"]) > 0
            async with listening(session, url, X_API_Key="admin"):
                status, problem = await get(session, url, "admin")
                assert (status, problem["code"]) == (429, "TOO_MANY_STREAMS")


class TestLog:
    async def test_it_is_read_page_by_page(self, served: ServedEvents, session: aiohttp.ClientSession):
        await served.publish(1, 2, 3)
        ids = await served.ids()
        _, first = await get(session, f"{served.url}/events/log", "ann", limit=2)
        assert [event["id"] for event in first["events"]] == ids[:2]
        assert first["events"][0].keys() == {"id", "topic", "kind", "at", "data"}
        _, second = await get(session, f"{served.url}/events/log", "ann", after=first["next"])
        assert ([event["data"] for event in second["events"]], second["next"]) == ([{"n": 3}], ids[-1])
        _, third = await get(session, f"{served.url}/events/log", "ann", after=second["next"])
        assert (third["events"], third["next"], third["oldest"], third["missed"]) == ([], ids[-1], ids[0], False)

    async def test_it_reports_missed_events(self, served: ServedEvents, session: aiohttp.ClientSession):
        await served.publish(1, 2, 3)
        ids = await served.ids()
        async with served.db.tx() as tx:
            await tx.conn.execute(events.event.delete().where(events.event.c.id < ids[-1]))
        _, page = await get(session, f"{served.url}/events/log", "ann", after=ids[0])
        assert (page["missed"], page["oldest"]) == (True, ids[-1])
        _, page = await get(session, f"{served.url}/events/log", "ann", after=ids[1])
        assert page["missed"] is False

    async def test_an_invalid_id_is_refused(self, served: ServedEvents, session: aiohttp.ClientSession):
        for bad in ("-1", "x", ""):
            status, problem = await get(session, f"{served.url}/events/log", "ann", after=bad)
            assert (status, problem["code"]) == (400, "BAD_EVENT_QUERY"), bad


def test_openapi_describes_the_stream_and_its_scope():
    app = FastAPI()
    app.include_router(router)
    paths = app.openapi()["paths"]
    stream = paths["/api/v1/events"]["get"]
    assert list(stream["responses"]["200"]["content"]) == ["text/event-stream"]
    assert "reset" in stream["responses"]["200"]["description"]
    assert {parameter["name"] for parameter in stream["parameters"]} == {"topic", "last_event_id", "Last-Event-ID"}
    assert [paths[path]["get"]["x-scope"] for path in paths] == ["read", "read"]
