"""The tasks module behind its HTTP routes, called without a server, on SQLite and on PostgreSQL.

With PostgreSQL, pull rates are counted in Redis. The ARQ queue and the Redis notifier have conformance suites of their
own.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI

from penstock.access.domain import Caller, Scope
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.rate_limits import RedisRateLimits
from penstock.kernel.clock import ManualClock
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.db import Db
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.routes import RouteIndex
from penstock.kernel.queue import JobQueue
from penstock.kernel.rate_limits import RateLimits, SqlRateLimits
from penstock.kernel.side_loop import SideLoop
from penstock.kernel.workers import Workers
from penstock.tasks import worker
from penstock.tasks.api import ROUTERS
from penstock.tasks.deps import Config, Deps
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.pull_limits import PullLimiter, read_rates
from tests.asgi import Response, call
from tests.conftest import open_db
from tests.contract import RouteContract
from tests.fakes.authenticators import FixedCallers

PROJECT = "/api/v1/projects/p1"
CONTRACT = RouteContract([route for router in ROUTERS for route in router.routes])
# For tests of validation, response bodies and permissions, which are the same on both databases.
on_sqlite = pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
CALLERS = {
    "root": Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k-root"),
    "anna": Caller(name="anna", user_id=5, scope=Scope.WRITE, key_id="k-anna"),
    "bert": Caller(name="bert", user_id=6, scope=Scope.WRITE, key_id="k-bert"),
    "bound": Caller(name="bound", user_id=7, scope=Scope.WRITE, key_id="k-bound", project="p1"),
    "warden": Caller(name="warden", user_id=9, scope=Scope.ADMIN, key_id="k-warden", project="p1"),
    "elsewhere": Caller(name="elsewhere", user_id=8, scope=Scope.ADMIN, key_id="k-else", project="p2"),
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What the tasks module uses besides its database."""

    limits: RateLimits


class TasksApi:
    """The tasks module and its callers."""

    def __init__(self, deps: Deps, clock: ManualClock, profile: Profile) -> None:
        self.deps = deps
        self.db = deps.db
        self.clock = clock
        self.profile = profile
        self.app = FastAPI()
        self.app.state.db = deps.db
        self.app.state.tasks = deps
        self.app.state.access = FixedCallers(**CALLERS)
        self.app.router.routes[:] = [RouteIndex([route for router in ROUTERS for route in router.routes])]
        install_error_handlers(self.app)

    async def call(self, method: str, path: str, body: object = None, *, key: str = "root", **headers: str) -> Response:
        """Send a request. Header names use underscores for hyphens; paths may omit /api/v1."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        target = path if path.startswith("/api/") else f"/api/v1{path}"
        response = await call(self.app, method, target, body, headers=[("x-api-key", key), *named])
        CONTRACT.check(method, target, response)
        return response

    async def data(self, method: str, path: str, body: object = None, *, key: str = "root", **headers: str) -> Any:
        """The data of a response that must be successful."""
        answer = await self.call(method, path, body, key=key, **headers)
        assert answer.status < 300, answer.body
        return answer.data

    async def error(
        self, method: str, path: str, body: object = None, *, key: str = "root", **headers: str
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and error of a response that must be an error."""
        answer = await self.call(method, path, body, key=key, **headers)
        assert answer.status >= 400, answer.body
        return answer.status, answer.error

    async def submit(self, *tasks: Mapping[str, Any], queue: str = "q1", key: str = "root", **more: Any) -> Any:
        """Push tasks into p1, with required fields filled in; the data of the response. Without any, make the queue."""
        if not tasks:
            return await self.call("POST", f"{PROJECT}/queues", {"queue_id": queue, "name": "Q", **more}, key="root")
        full = [{"name": "n", "prompt": "p", "status": "pending", **task} for task in tasks]
        body = {"project_id": "p1", "project_name": "P", "queue_id": queue, "queue_name": "Q", "tasks": full, **more}
        return await self.data("POST", "/submit", body, key=key)

    async def make_project(self, project_id: str, name: str = "A name") -> Any:
        """Create another project; its data."""
        return await self.data("POST", "/projects", {"project_id": project_id, "name": name})

    async def plan(self, *task_ids: str, queue: str | None = None, **fields: Any) -> list[Any]:
        """Create server tasks in p1, or in a queue of it; their data."""
        place = f"{PROJECT}/queues/{queue}/tasks" if queue else f"{PROJECT}/tasks"
        made = []
        for task_id in task_ids:
            body = {"taskId": task_id, "name": f"Task {task_id}", "prompt": "Do it.", **fields}
            made.append(await self.data("POST", place, body))
        return made

    async def pull(self, query: str = "", *, client: str = "worker-1", key: str = "root", queue: str = "") -> list[Any]:
        """Pull tasks from p1 as a client."""
        place = f"{PROJECT}/queues/{queue}/tasks/pull" if queue else f"{PROJECT}/tasks/pull"
        data = await self.data("GET", f"{place}?{query}", key=key, x_client_id=client)
        tasks: list[Any] = data["tasks"]
        return tasks

    async def run_jobs(self) -> None:
        """Run the jobs of the module that are due."""
        handlers, modules = worker.handlers(self.deps), [worker.MODULE]
        await Workers(self.db, self.deps.queue, handlers, owner="w", modules=modules, slots=1).run_until_empty()

    async def run_periodic_tasks(self, *names: str) -> None:
        """Run the periodic tasks of the module once, or those with these names."""
        for task in worker.periodic_tasks(self.deps):
            if not names or task.name in names:
                await task.run()

    def with_config(self, **changes: Any) -> "TasksApi":
        """The module under other settings."""
        return self.with_deps(config=replace(self.deps.config, **changes))

    def with_limits(self, rates: str = "", *, interval: float = 0, quota: int = 0) -> "TasksApi":
        """The module with pull limits."""
        counted = read_rates(rates) if rates else []
        limiter = PullLimiter(self.profile.limits, self.clock, rates=counted, min_interval=interval, quota=quota)
        return self.with_deps(limiter=limiter)

    def with_deps(self, **deps: Any) -> "TasksApi":
        """The module with other dependencies."""
        return TasksApi(replace(self.deps, **deps), self.clock, self.profile)


@pytest.fixture
async def profile(db: Db, db_url: str, clock: ManualClock, request: pytest.FixtureRequest) -> AsyncIterator[Profile]:
    """Rate limits in the database on SQLite, in Redis on PostgreSQL."""
    if db_url.startswith("sqlite"):
        yield Profile(limits=FallbackLimits(SqlRateLimits(db), clock=clock))
        return
    link = RedisClient(request.getfixturevalue("redis_url"))
    yield Profile(limits=FallbackLimits(RedisRateLimits(link, clock, SqlRateLimits(db)), clock=clock))
    await link.close()


@pytest.fixture
async def deps(db: Db, db_url: str, clock: ManualClock, profile: Profile) -> AsyncIterator[Deps]:
    limiter = PullLimiter(profile.limits, clock, rates=[], min_interval=0, quota=0)
    side_loop = SideLoop(db, partial(open_db, db_url, clock))
    yield Deps(
        db=db,
        queue=JobQueue(),
        config=Config(),
        limiter=limiter,
        metrics=TaskMetrics(),
        side_loop=side_loop,
        coalescer=Coalescer(),
    )
    await side_loop.close()


@pytest.fixture
async def api(deps: Deps, clock: ManualClock, profile: Profile) -> TasksApi:
    """The module with an empty project p1 and an empty queue q1 in it."""
    api = TasksApi(deps, clock, profile)
    await api.make_project("p1", "P")
    await api.data("POST", f"{PROJECT}/queues", {"queue_id": "q1", "name": "Q"})
    return api
