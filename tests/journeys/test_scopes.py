"""Every kind of caller on every route, as the OpenAPI document declares it. A route without an example here fails."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from sqlalchemy import delete, insert

from penstock.access import keys
from penstock.access.domain import NewKey, Scope
from penstock.kernel.clock import ManualClock
from penstock.kernel.outbox import outbox
from penstock.kernel.queue import JobQueue, NewJob, job
from tests.asgi import Response
from tests.conftest import open_db
from tests.contract import Contract
from tests.gateway.tus_client import BASE as UPLOADS
from tests.gateway.tus_client import BYTES, PDF
from tests.journeys.command import Serving
from tests.journeys.etl_routes import DOCUMENT, ETL, ETL_ROUTES, RULE
from tests.journeys.profiles import ADMIN_KEY, Profile
from tests.journeys.task_routes import PROJECT, QUEUE, SUBMIT, TASK, TASK_ROUTES

OWNER, STRANGER = 701, 702
ANOTHER = "another-project"
URL = "http://127.0.0.1:9/hook"
CREDENTIALS = {"username": "ann", "password": "correct horse battery"}
KEY = {"name": "made by the matrix", "scope": "read"}

# The headers of a tus client, on every request to uploads.
TUS = {
    "Tus-Resumable": "1.0.0",
    "Upload-Length": "3",
    "Upload-Metadata": PDF,
    "Upload-Offset": "0",
    "Content-Type": BYTES,
}

# Every route once, with a body that it takes. What a path names is made for each caller who may change it.
BODIES: dict[tuple[str, str], object] = {
    ("GET", "/api/v1/health"): None,
    ("GET", "/livez"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): None,
    ("GET", "/api/v1/auth/check-init"): None,
    ("POST", "/api/v1/auth/init"): CREDENTIALS,
    ("POST", "/api/v1/auth/login"): CREDENTIALS,
    ("POST", "/api/v1/auth/logout"): None,
    ("GET", "/api/v1/auth/me"): None,
    ("POST", "/api/v1/auth/password"): {"oldPassword": "old", "newPassword": "a new password"},
    ("GET", "/api/v1/users"): None,
    ("POST", "/api/v1/users"): {"username": "made by the matrix", "password": "a new password"},
    ("POST", "/api/v1/users/{user}/reset-password"): None,
    ("DELETE", "/api/v1/users/{user}"): None,
    ("GET", "/api/v1/api-keys"): None,
    ("POST", "/api/v1/api-keys"): KEY,
    ("GET", "/api/v1/api-keys/{key_id}"): None,
    ("PUT", "/api/v1/api-keys/{key_id}"): {"name": "renamed"},
    ("POST", "/api/v1/api-keys/{key_id}/rotate"): None,
    ("DELETE", "/api/v1/api-keys/{key_id}"): None,
    ("GET", "/api/v1/audit"): None,
    ("GET", "/api/v1/events"): None,
    ("GET", "/api/v1/events/log"): None,
    ("GET", "/api/v1/webhooks"): None,
    ("POST", "/api/v1/webhooks"): {"url": URL, "channels": ["*"]},
    ("GET", "/api/v1/webhooks/{webhook_id}"): None,
    ("PATCH", "/api/v1/webhooks/{webhook_id}"): {"active": True},
    ("POST", "/api/v1/webhooks/{webhook_id}/rotate-secret"): None,
    ("POST", "/api/v1/webhooks/{webhook_id}/ping"): None,
    ("GET", "/api/v1/webhooks/{webhook_id}/deliveries"): None,
    ("GET", "/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}"): None,
    ("POST", "/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend"): None,
    ("DELETE", "/api/v1/webhooks/{webhook_id}"): None,
    ("GET", "/api/v1/ops/jobs"): None,
    ("POST", "/api/v1/ops/jobs/retry"): {"kind": "nothing"},
    ("GET", "/api/v1/ops/jobs/{job_id}"): None,
    ("POST", "/api/v1/ops/jobs/{job_id}/retry"): None,
    ("GET", "/api/v1/ops/messages"): None,
    ("POST", "/api/v1/ops/messages/resend"): {"channel": "Nothing"},
    ("GET", "/api/v1/ops/messages/{message_id}"): None,
    ("POST", "/api/v1/ops/messages/{message_id}/resend"): None,
    ("GET", "/api/v1/ops/processes"): None,
    ("GET", "/api/v1/ops/periodic-tasks"): None,
    ("POST", "/api/v1/ops/periodic-tasks/{name}/run"): None,
    ("OPTIONS", UPLOADS): None,
    ("POST", UPLOADS): None,
    ("GET", UPLOADS): None,
    ("GET", f"{UPLOADS}/{{upload_id}}"): None,
    ("HEAD", f"{UPLOADS}/{{upload_id}}"): None,
    ("PATCH", f"{UPLOADS}/{{upload_id}}"): None,
    ("DELETE", f"{UPLOADS}/{{upload_id}}"): None,
    **TASK_ROUTES,
    **ETL_ROUTES,
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A route and what it says it asks of a caller."""

    method: str
    path: str
    scope: str
    bound: bool

    @property
    def owned(self) -> bool:
        """Whether it names a thing that belongs to someone."""
        return "{webhook_id}" in self.path or "{upload_id}" in self.path or (self.in_etl and "{" in self.path)

    @property
    def in_etl(self) -> bool:
        """Whether it belongs to the etl module, whose tasks are not those of the tasks module."""
        return self.path.startswith(ETL)

    @property
    def in_project(self) -> bool:
        """Whether it is about one project: the path says which, or the body."""
        return "{project_id}" in self.path or self.is_push

    @property
    def is_push(self) -> bool:
        """Whether existing clients push with it: there a key of another project is an invalid key."""
        return self.path == "/api/v1/submit" or self.path.startswith("/api/v1/tasks/")

    @property
    def makes_project(self) -> bool:
        """Whether it makes another project, which is in nobody's hands yet."""
        return (self.method, self.path) == ("POST", "/api/v1/projects")


class Shop:
    """A served product with a thing of the owner's in it, and a key for every kind of caller."""

    def __init__(
        self, serving: Serving, session: aiohttp.ClientSession, callers: dict[str, str], database_url: str
    ) -> None:
        self.serving = serving
        self.database_url = database_url
        self.callers = callers
        self.operations: list[Operation] = []
        self.contract: Contract | None = None
        self.things: dict[str, str] = {}
        self.documents: dict[str, str] = {}
        self._session = session

    async def status(self, caller: str, method: str, path: str, body: object = None) -> int:
        """What a caller is told; of a stream only its beginning is awaited."""
        async with self._call(caller, method, path, body) as answer:
            status: int = answer.status
            return status

    async def json(self, caller: str, method: str, path: str, body: object = None) -> Any:
        """What a caller is answered."""
        async with self._call(caller, method, path, body) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def read_operations(self) -> None:
        document = await self.json("nobody", "GET", "/api/v1/openapi.json")
        self.contract = Contract(document)
        self.operations = [
            Operation(method=method.upper(), path=path, scope=known["x-scope"], bound=known.get("x-bound", False))
            for path, methods in document["paths"].items()
            for method, known in methods.items()
        ]
        # What is deleted is needed before, and what is inside of it too.
        self.operations.sort(key=lambda one: (one.method == "DELETE", -len(one.path) if one.method == "DELETE" else 0))

    async def make_things(self) -> None:
        """A webhook of the owner's with a delivery in its log, and a key."""
        webhook = await self.json("write", "POST", "/api/v1/webhooks", {"url": URL, "channels": ["*"]})
        key = await self.json("admin", "POST", "/api/v1/api-keys", KEY)
        self.things = {"webhook_id": webhook["id"], "key_id": key["data"]["id"]}
        user = {"username": f"user {key['data']['id']}", "password": "a new password"}
        self.things["user"] = (await self.json("admin", "POST", "/api/v1/users", user))["data"]["id"]
        self.things |= {"project_id": PROJECT, "queue_id": QUEUE, "task_id": TASK, "operation_id": "none"}
        self.things |= {"job_id": "stopped", "message_id": "msg_dead", "name": "forget-history"}
        async with self._call("write", "POST", UPLOADS, None) as answer:
            self.things["upload_id"] = answer.headers["Location"].rpartition("/")[2]
        await self.make_failures()
        await self.make_task()
        await self.make_documents()
        deliveries = f"/api/v1/webhooks/{webhook['id']}/deliveries"
        await self.status("write", "POST", f"/api/v1/webhooks/{webhook['id']}/ping")
        async with asyncio.timeout(60):
            while not (page := await self.json("write", "GET", deliveries))["items"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # the relay is in another process
        self.things["delivery_id"] = page["items"][0]["id"]

    async def make_failures(self) -> None:
        """A cancelled job and a dead letter, whatever became of those before."""
        db = open_db(self.database_url)
        async with db.tx() as tx:
            await tx.conn.execute(delete(job).where(job.c.id == self.things["job_id"]))
            await tx.conn.execute(delete(outbox).where(outbox.c.id == self.things["message_id"]))
            await JobQueue().enqueue(tx, NewJob(kind="stopped", id=self.things["job_id"]))
            await JobQueue().cancel(tx, self.things["job_id"])
            dead = {"state": "dead", "scheduled_at": tx.now, "created_at": tx.now, "finished_at": tx.now, "error": "no"}
            new = {"id": self.things["message_id"], "channel": "JobsWaiting", "dedup_key": "k", "payload": {}}
            await tx.conn.execute(insert(outbox).values(**new, **dead))
        await db.close()

    async def make_task(self) -> None:
        """A task in a queue of a project, whatever became of the one before."""
        for project in (PROJECT, ANOTHER):
            await self.json("admin", "POST", "/api/v1/submit", {**SUBMIT, "project_id": project})
        place = f"/api/v1/projects/{PROJECT}/queues/{QUEUE}/tasks"
        await self.status("admin", "POST", place, {"taskId": TASK, "name": "Task", "prompt": "Do it."})
        await self.json("admin", "POST", f"{place}/{TASK}/restore")

    async def make_documents(self) -> None:
        """A document of everyone's who may submit one, and a task and a rule of the owner's."""
        made = {name: await self.upload(name) for name in ("foreign", "admin", "write")}
        rule = await self.json("write", "POST", f"{ETL}/rules", RULE)
        self.documents = {"task_id": str(made["write"]), "rule_id": str(rule["rule_id"]), "correction_id": "1"}

    async def upload(self, caller: str) -> int:
        """Send a small document; the number of its task."""
        form = aiohttp.FormData({"project_id": str(DOCUMENT["project_id"])})
        form.add_field("file", b"Total: 12.50", filename=str(DOCUMENT["filename"]))
        address, headers = f"{self.serving.url}{ETL}/upload_and_submit", {"X-API-Key": self.callers[caller]}
        async with self._session.post(address, data=form, headers=headers) as answer:
            assert answer.status == 202, await answer.text()
            task_id: int = (await answer.json())["task_id"]
            return task_id

    async def try_all(self, caller: str) -> dict[Operation, int]:
        """Every route as one caller."""
        if caller in {"write", "admin", "mine"}:
            await self.make_things()  # they may delete them
        told = {}
        for operation in self.operations:
            if operation.in_project and caller in {"admin", "mine"}:
                await self.make_task()
            path = operation.path.format(**(self.documents if operation.in_etl else self.things))
            told[operation] = await self._try(caller, operation, path)
        return told

    async def _try(self, caller: str, operation: Operation, path: str) -> int:
        """What a caller is told, which must be as the OpenAPI document says."""
        body = BODIES[operation.method, operation.path]
        async with self._call(caller, operation.method, path, body) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            text = b"" if answer.content_type == "text/event-stream" else await answer.read()
            response = Response(status=answer.status, headers=headers, body=text)
        assert self.contract is not None
        self.contract.check(operation.method, operation.path, response)
        return response.status

    def _call(self, caller: str, method: str, path: str, body: object) -> Any:
        headers = {"X-API-Key": self.callers[caller]} if caller in self.callers else {}
        headers |= TUS if path.startswith(UPLOADS) else {}
        return self._session.request(method, f"{self.serving.url}{path}", json=body, headers=headers)


async def make_keys(profile: Profile) -> dict[str, str]:
    """A key for every kind of caller; the expired one was made long ago."""
    now, long_ago = datetime.now(UTC), datetime(2020, 1, 1, tzinfo=UTC)
    made = {"admin": ADMIN_KEY, "wrong": "sk-" + "x" * 43}
    wanted = {
        "read": NewKey(name="read", scope=Scope.READ, user_id=OWNER),
        "write": NewKey(name="write", scope=Scope.WRITE, user_id=OWNER),
        "revoked": NewKey(name="revoked", scope=Scope.ADMIN, user_id=OWNER),
        "foreign": NewKey(name="foreign", scope=Scope.WRITE, user_id=STRANGER),
        "bound": NewKey(name="bound", scope=Scope.ADMIN, user_id=OWNER, project=ANOTHER),
        "mine": NewKey(name="mine", scope=Scope.ADMIN, user_id=OWNER, project=PROJECT),
        "expired": NewKey(name="expired", scope=Scope.ADMIN, user_id=OWNER, expires_at=long_ago + timedelta(days=1)),
    }
    for name, new in wanted.items():
        db = open_db(profile.database_url, ManualClock(long_ago if name == "expired" else now))
        async with db.tx(actor="test") as tx:
            issued = await keys.create(tx, new, by="test")
            if name == "revoked":
                await keys.revoke(tx, issued.key.id, by="test")
        await db.close()
        made[name] = issued.secret
    return made


@pytest.fixture
async def shop(profile: Profile, session: aiohttp.ClientSession) -> AsyncIterator[Shop]:
    serving = Serving("--no-workers", **profile.settings)
    try:
        await serving.ready(session)
        shop = Shop(serving, session, await make_keys(profile), profile.database_url)
        await shop.read_operations()
        await shop.json("admin", "POST", "/api/v1/auth/init", CREDENTIALS)
        await shop.make_things()
        yield shop
    finally:
        serving.kill()


def expected(caller: str, operation: Operation) -> set[int] | None:
    """The statuses a caller must be told; None where the door lets them in."""
    if operation.scope == "public":
        checked = operation.path == "/api/v1/auth/init" and caller in {"wrong", "expired", "revoked"}
        return {401} if checked else None
    if caller in {"nobody", "wrong", "expired", "revoked"}:
        return {401}
    if caller in {"bound", "mine"}:
        elsewhere = operation.makes_project or (caller == "bound" and operation.in_project)
        return None if operation.bound and not elsewhere else {401 if elsewhere and operation.is_push else 403}
    held = Scope.WRITE if caller == "foreign" else Scope(caller)
    if not held.covers(Scope(operation.scope)):
        return {403}
    return {404} if caller == "foreign" and operation.owned else None


CALLERS = ("nobody", "wrong", "expired", "revoked", "bound", "foreign", "read", "write", "mine", "admin")
LET_IN = set(range(200, 300)) | {400, 409}  # logging a key out is no login; the first user is made once


@pytest.mark.timeout(180)
async def test_every_caller_at_every_route_is_told_what_the_document_says(shop: Shop):
    listed = {(operation.method, operation.path) for operation in shop.operations}
    assert listed == set(BODIES), "the matrix and the OpenAPI document differ"
    wrong = []
    for caller in CALLERS:
        for operation, status in (await shop.try_all(caller)).items():
            missing = {404} if "{operation_id}" in operation.path else set()  # only long operations are kept
            if status not in (expected(caller, operation) or LET_IN | missing):
                wrong.append((caller, operation, status))
    assert not wrong, wrong


async def test_lists_show_nothing_that_is_foreign(shop: Shop):
    assert (await shop.json("foreign", "GET", "/api/v1/webhooks"))["items"] == []
    tasks = (await shop.json("foreign", "GET", f"{ETL}/tasks"))["tasks"]
    assert {task["user_id"] for task in tasks} == {STRANGER}
    events = (await shop.json("foreign", "GET", "/api/v1/events/log"))["events"]
    assert {event["topic"] for event in events} == {f"etl:{task['task_id']}" for task in tasks}
    assert [rule["rule_id"] for rule in (await shop.json("foreign", "GET", f"{ETL}/rules"))["rules"]] == [0]
    mine = await shop.json("read", "GET", "/api/v1/webhooks")
    assert [webhook["id"] for webhook in mine["items"]] == [shop.things["webhook_id"]]
