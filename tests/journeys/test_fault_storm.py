"""A data folder that is full, and a database that is frozen, for 40 seconds under load: nothing is lost or doubled.

Both outages happen at the same time, each to a product of its own, so that they take their time once.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from sqlalchemy import select

from penstock.kernel.transitions import state_transitions
from tests.conftest import open_db
from tests.fakes.blocking_handler import wait_until
from tests.journeys import profiles
from tests.journeys.command import Command, Serving
from tests.journeys.profiles import ADMIN_KEY, Profile
from tests.servers.postgres import PostgresServer
from tests.storms.small_disk import SmallDisk

OUTAGE_SECONDS = 40
ANSWER_SECONDS = 10  # within which a request is answered, whatever the database does
PATIENCE_SECONDS = 120
CLIENTS = 4
BEFORE, MEANWHILE = 12, 24  # documents that each product is sent before and during its outage
ETL, PROJECT = "/api/v1/etl", "/api/v1/projects/p1"
DISK_MEGABYTES = 48

pytestmark = [pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]


@dataclass(kw_only=True)
class Load:
    """Clients that repeat a request with its Idempotency-Key until it is accepted, and what they were told."""

    url: str
    session: aiohttp.ClientSession
    accepted: dict[str, int] = field(default_factory=dict)  # the task of each document, by its name
    planned: set[str] = field(default_factory=set)  # tasks of the tasks module
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    longest_seconds: float = 0.0

    async def until_ready(self) -> None:
        """Wait until the server is ready; its health minds how small the disk is."""

        async def is_ready() -> bool:
            with suppress(aiohttp.ClientConnectionError):
                async with self.session.get(f"{self.url}/readyz") as answer:
                    return answer.status == 200
            return False

        await wait_until(is_ready, seconds=PATIENCE_SECONDS, every_seconds=0.1)

    async def upload(self, name: str) -> None:
        """Upload a document until it is accepted."""

        def form() -> aiohttp.FormData:
            sent = aiohttp.FormData({"project_id": "3"})
            sent.add_field("file", f"# {name}\n\nTotal: 12.50\n".encode() * 100, filename=name)
            return sent

        answer = await self._repeat(f"{ETL}/upload_and_submit", name, lambda: {"data": form()})
        self.accepted[name] = answer["task_id"]

    async def create_project(self) -> None:
        """Create the project of the tasks."""
        body, headers = {"project_id": "p1", "name": "One"}, {"X-API-Key": ADMIN_KEY}
        async with self.session.post(f"{self.url}/api/v1/projects", json=body, headers=headers) as answer:
            assert answer.status == 201, await answer.text()

    async def plan(self, name: str) -> None:
        """Create a task, whose id the server chooses, until it is accepted."""
        body = {"name": name, "prompt": "Do it."}
        answer = await self._repeat(f"{PROJECT}/tasks", f"plan-{name}", lambda: {"json": body})
        self.planned.add(answer["data"]["task_id"])

    async def _repeat(self, path: str, key: str, content: Callable[[], dict[str, Any]]) -> Any:
        headers = {"X-API-Key": ADMIN_KEY, "Idempotency-Key": key}
        while True:
            began = monotonic()
            async with self.session.post(self.url + path, headers=headers, **content()) as answer:
                body = await answer.json()
            self.longest_seconds = max(self.longest_seconds, monotonic() - began)
            if answer.status in {201, 202}:
                return body
            self.answers[answer.status, body.get("code") or body["error"]["code"]] += 1
            assert answer.status == 503, body
            assert int(answer.headers["Retry-After"]) >= 1
            await asyncio.sleep(1)

    async def send(self, names: list[str], act: Callable[[str], Any]) -> None:
        """A few clients send these one after another."""
        waiting = iter(names)

        async def client() -> None:
            for name in waiting:
                await act(name)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))

    async def statuses(self) -> Counter[str]:
        """How many documents have each status."""
        found: Counter[str] = Counter()
        for status in ("pending", "failed", "cancelled", "completed"):
            url = f"{self.url}{ETL}/tasks?status={status}&limit=100"
            async with self.session.get(url, headers={"X-API-Key": ADMIN_KEY}) as answer:
                found[status] = len((await answer.json()).get("tasks", ()))
        return found

    async def until_completed(self) -> None:
        """Wait until every accepted document is completed or failed."""

        async def are_over() -> bool:
            found = await self.statuses()
            return found["completed"] + found["failed"] >= len(self.accepted)

        await wait_until(are_over, seconds=PATIENCE_SECONDS, every_seconds=0.3)


@dataclass(kw_only=True)
class Outcome:
    """How an outage ended."""

    load: Load
    statuses: Counter[str]
    ready: tuple[int, Any]  # status and body of /readyz during the outage
    task_count: int = 0  # tasks of the tasks module


async def weather(server: Serving, load: Load, outage: AbstractAsyncContextManager[None], *, plans: int) -> Outcome:
    """Send documents before and during an outage, and wait until all are processed."""
    await load.until_ready()
    await load.create_project()
    await load.send([f"before-{number}.md" for number in range(BEFORE)], load.upload)
    sending = [asyncio.create_task(load.send([f"during-{number}.md" for number in range(MEANWHILE)], load.upload))]
    async with outage:
        sending.append(asyncio.create_task(load.send([f"task-{number}" for number in range(plans)], load.plan)))
        await asyncio.sleep(OUTAGE_SECONDS / 2)
        async with load.session.get(f"{server.url}/readyz") as answer:
            ready = answer.status, await answer.json()
        await asyncio.sleep(OUTAGE_SECONDS / 2)
    await asyncio.gather(*sending)
    await load.until_completed()
    return Outcome(load=load, statuses=await load.statuses(), ready=ready, task_count=await _count_tasks(load))


async def _count_tasks(load: Load) -> int:
    async with load.session.get(f"{load.url}{PROJECT}/tasks", headers={"X-API-Key": ADMIN_KEY}) as answer:
        total: int = (await answer.json())["data"]["pagination"]["total"]
        return total


@asynccontextmanager
async def frozen(postgres: PostgresServer) -> AsyncIterator[None]:
    postgres.pause()
    try:
        yield
    finally:
        postgres.resume()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> AsyncIterator[tuple[Outcome, Outcome]]:
    """A full data folder with all that a laptop keeps in it, and at the same time a frozen PostgreSQL."""
    folder = tmp_path_factory.mktemp("outages")
    async with AsyncExitStack() as open_things:
        disk = open_things.enter_context(SmallDisk.mounted(folder / "disk", megabytes=DISK_MEGABYTES))
        shutil.copy(sqlite_template, disk.folder / "penstock.db")
        postgres = open_things.enter_context(PostgresServer.start())
        postgres.create_database("frozen")
        timeout = aiohttp.ClientTimeout(total=60)
        session = await open_things.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        shared = profiles.common(folder / "served") | {"PENSTOCK_DATABASE_URL": postgres.url("frozen")}
        migrated = Command("migrate", **shared)
        assert migrated.wait(timeout=PATIENCE_SECONDS) == 0
        full, hung = Serving(**profiles.common(disk.folder)), Serving(**shared)
        yield await asyncio.gather(
            weather(full, Load(url=full.url, session=session), disk.full(full.pid), plans=0),
            weather(hung, Load(url=hung.url, session=session), frozen(postgres), plans=MEANWHILE),
        )


async def test_every_document_completes_after_the_data_folder_was_full(outcomes: tuple[Outcome, Outcome]):
    outcome, _ = outcomes
    assert len(outcome.load.accepted) == BEFORE + MEANWHILE
    assert outcome.statuses == Counter(completed=BEFORE + MEANWHILE, failed=0, cancelled=0, pending=0)
    assert outcome.load.answers[503, "DISK_FULL"] >= 1
    assert set(outcome.load.answers) <= {(503, "DISK_FULL"), (503, "DB_UNAVAILABLE"), (503, "DB_BUSY")}
    status, ready = outcome.ready
    assert (status, ready["failed"]["data_folder"]) == (503, "full")


async def test_nothing_is_doubled_after_the_database_was_frozen(outcomes: tuple[Outcome, Outcome]):
    _, outcome = outcomes
    assert len(set(outcome.load.accepted.values())) == BEFORE + MEANWHILE
    assert outcome.statuses == Counter(completed=BEFORE + MEANWHILE, failed=0, cancelled=0, pending=0)
    assert outcome.task_count == len(outcome.load.planned) == MEANWHILE
    assert outcome.load.answers[503, "DB_TIMED_OUT"] >= 1
    assert outcome.load.longest_seconds < ANSWER_SECONDS
    assert outcome.ready[0] == 503


@pytest.mark.parametrize("profile", ["scale"], indirect=True)
async def test_a_worker_whose_folder_is_full_leaves_all_documents_to_the_other(profile: Profile, tmp_path: Path):
    count = 10
    with SmallDisk.mounted(tmp_path / "full", megabytes=1) as disk:
        async with aiohttp.ClientSession() as session:
            server = Serving("--no-workers", **profile.settings)
            full = Command("work", **profile.settings | {"PENSTOCK_DATA_DIR": str(disk.folder)})
            load = Load(url=server.url, session=session)
            await load.until_ready()
            async with disk.full(full.pid):
                await load.send([f"{number}.md" for number in range(count)], load.upload)
                await wait_until(lambda: _has_put_off(profile), seconds=PATIENCE_SECONDS, every_seconds=0.1)
                healthy = Command("work", **profile.settings | {"PENSTOCK_DATA_DIR": str(tmp_path / "healthy")})
                await load.until_completed()
                assert await load.statuses() == Counter(completed=count, failed=0, cancelled=0, pending=0)
    assert await _jobs_of(profile, "finish") == Counter({healthy.pid: 2 * count})
    assert set(await _jobs_of(profile, "put_off")) == {full.pid}


async def _has_put_off(profile: Profile) -> bool:
    return bool(await _jobs_of(profile, "put_off"))


async def _jobs_of(profile: Profile, verb: str) -> Counter[int]:
    """How often each process has done this to a job."""
    t = state_transitions.c
    db = open_db(profile.database_url)
    async with db.read() as tx:
        actors = (await tx.conn.scalars(select(t.actor).where(t.entity == "job", t.trigger == verb))).all()
    await db.close()
    return Counter(int(actor.split(":")[-2]) for actor in actors)
