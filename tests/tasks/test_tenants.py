"""Tenants: which projects a token or a key may use, tried on every route of the tasks module."""

from typing import Any

import jwt
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select

from penstock.access import keys
from penstock.access.authenticate import Authenticator
from penstock.access.domain import NewKey, Scope
from penstock.access.tokens import Tokens
from penstock.tasks.api import ROUTERS
from penstock.tasks.store.tables import project, queue, task, task_pull
from tests.asgi import Response, call
from tests.journeys.task_routes import PROJECT, QUEUE, SUBMIT, TASK, TASK_ROUTES
from tests.tasks.conftest import TasksApi, on_sqlite

SECRET = "a shared secret of more than thirty-two bytes"
OWNER, FOREIGN = 41, 42
NOT_PULLS = ("stats", "pending", "history", "reset")  # routes below /pull that claim nothing
PATH = {"project_id": PROJECT, "queue_id": QUEUE, "task_id": TASK, "operation_id": "none"}
Operation = tuple[str, str]


class Tenants:
    """The tasks module with real tokens and keys."""

    def __init__(self, api: TasksApi, *, merchant_projects: bool = True, confine_keys: bool = False) -> None:
        self.api = api
        self.app = api.app
        tokens = Tokens(api.clock, secret=SECRET, merchant_projects=merchant_projects)
        self.app.state.access = Authenticator(api.db, tokens=tokens, confine_keys=confine_keys)

    async def call(self, token: str, method: str, path: str, body: object = None) -> Response:
        """Send a request with this token or key."""
        return await call(self.app, method, path, body, headers=[("Authorization", f"Bearer {token}")])

    def token(self, **claims: Any) -> str:
        """A token with these claims."""
        return jwt.encode({"user_id": 7, "exp": self.api.clock.now().timestamp() + 3600, **claims}, SECRET, "HS256")

    async def key(self, scope: Scope, **more: Any) -> str:
        """A key, as an admin creates it."""
        async with self.api.db.tx() as tx:
            return (await keys.create(tx, NewKey(name="a key", scope=scope, **more), by="test")).secret

    async def fill(self) -> str:
        """A project of the owner's with a task of the server's; the token that made it."""
        owner = self.token(merchant_id=OWNER, scope="write")
        assert (await self.call(owner, "POST", "/api/v1/submit", SUBMIT)).status == 200
        admin = self.token(scope="admin")
        place, planned = (
            f"/api/v1/projects/{PROJECT}/queues/{QUEUE}/tasks",
            {"taskId": TASK, "name": "T", "prompt": "P"},
        )
        assert (await self.call(admin, "POST", place, planned)).status == 201
        return owner

    async def stored(self) -> list[list[Any]]:
        """Everything that a foreign caller could have changed."""
        async with self.api.db.read() as tx:
            return [
                [tuple(row) for row in await tx.conn.execute(select(table).order_by(table.c.id))]
                for table in (project, queue, task, task_pull)
            ]


@pytest.fixture
def tenants(api: TasksApi) -> Tenants:
    return Tenants(api)


def operations() -> dict[Operation, dict[str, Any]]:
    """Every route of the module with what it requires, read from the route table."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {(method, route.path): route.openapi_extra or {} for route in routes for method in route.methods or ()}


def example(operation: Operation) -> tuple[str, str, object]:
    """A valid request to a route, about the owner's project."""
    method, path = operation
    body = TASK_ROUTES["GET" if method == "HEAD" else method, path]
    return method, path.format(**PATH), body


def names_a_project(operation: Operation) -> bool:
    """Whether a request names a project: in the path, or in the body."""
    body = TASK_ROUTES["GET" if operation[0] == "HEAD" else operation[0], operation[1]]
    return "{project_id}" in operation[1] or (isinstance(body, dict) and body.get("project_id") == PROJECT)


async def test_a_foreign_merchant_is_refused_on_every_route(tenants: Tenants):
    """A new route is walked as soon as it exists: without an example of a request, this fails."""
    await tenants.fill()
    before = await tenants.stored()
    foreign = {
        "write": tenants.token(merchant_id=FOREIGN, scope="write"),
        "admin": tenants.token(merchant_id=FOREIGN, scope="admin", projects=["own"]),
        "named": tenants.token(scope="write", projects=["own"]),
        "nobody": tenants.token(scope="write"),
    }
    wrong: list[object] = []
    for operation, known in operations().items():
        for name, token in foreign.items():
            answer = await tenants.call(token, *example(operation))
            held = Scope.ADMIN if name == "admin" else Scope.WRITE
            expected = 404 if held.covers(Scope(known["x-scope"])) else 403
            if names_a_project(operation):
                if answer.status != expected:
                    wrong.append((operation, name, answer.status))
            elif PROJECT.encode() in answer.body and operation != ("POST", "/api/v1/projects"):
                wrong.append((operation, name, answer.body))
    assert not wrong
    assert await tenants.stored() == before


@on_sqlite
async def test_every_route_that_names_a_project_answers_a_foreign_one_like_a_missing_one(tenants: Tenants):
    await tenants.fill()
    foreign = tenants.token(merchant_id=FOREIGN, scope="write")
    there = await tenants.call(foreign, "GET", f"/api/v1/projects/{PROJECT}")
    missing = await tenants.call(foreign, "GET", "/api/v1/projects/missing")
    assert there.error["code"] == missing.error["code"] == "RESOURCE_NOT_FOUND"
    assert there.body.replace(PROJECT.encode(), b"missing") == missing.body


async def test_a_token_uses_the_projects_of_its_merchant(tenants: Tenants):
    owner = await tenants.fill()
    found = await tenants.call(owner, "GET", f"/api/v1/projects/{PROJECT}")
    assert (found.status, found.data["merchant_id"]) == (200, OWNER)
    pulled = await tenants.call(owner, "GET", f"/api/v1/projects/{PROJECT}/tasks/pull")
    assert [one["task_id"] for one in pulled.data["tasks"]] == [TASK]


async def test_lists_and_tags_show_the_projects_that_a_caller_may_use(tenants: Tenants):
    await tenants.fill()
    admin = tenants.token(scope="admin")
    for name, merchant in (("theirs", FOREIGN), ("named", None)):
        body = {"project_id": name, "name": name, "merchant_id": merchant}
        assert (await tenants.call(admin, "POST", "/api/v1/projects", body)).status == 201
        await tenants.call(admin, "PUT", f"/api/v1/projects/{name}/metadata", {"tags": [f"tag-{name}"]})
    foreign = tenants.token(merchant_id=FOREIGN, scope="read", projects=["named"])
    listed = (await tenants.call(foreign, "GET", "/api/v1/projects")).data
    assert [one["project_id"] for one in listed["items"]] == ["named", "theirs"]
    assert listed["pagination"]["total"] == 2
    assert set((await tenants.call(foreign, "GET", "/api/v1/projects/tags")).data["tags"]) == {
        "tag-named",
        "tag-theirs",
    }
    only = tenants.token(merchant_id=OWNER)
    assert (await tenants.call(only, "GET", "/api/v1/projects/tags")).data["tags"] == []
    counted = (await tenants.call(foreign, "GET", "/api/v1/stats/projects")).data
    assert PROJECT not in str(counted)


@on_sqlite
async def test_statistics_of_all_projects_are_for_callers_who_may_use_all(tenants: Tenants):
    await tenants.fill()
    foreign = tenants.token(merchant_id=FOREIGN, scope="read")
    refused = await tenants.call(foreign, "GET", "/api/v1/stats")
    assert (refused.status, refused.error["details"]["code"]) == (400, "PROJECT_REQUIRED")
    one = tenants.token(projects=[PROJECT])
    assert (await tenants.call(one, "GET", "/api/v1/stats")).status == 200


async def test_a_claim_opens_the_projects_that_it_names(tenants: Tenants):
    await tenants.fill()
    named = tenants.token(scope="admin", projects=[PROJECT])
    renamed = await tenants.call(named, "PUT", f"/api/v1/projects/{PROJECT}", {"name": "Renamed"})
    assert renamed.data["name"] == "Renamed"
    given = await tenants.call(named, "PUT", f"/api/v1/projects/{PROJECT}", {"merchant_id": FOREIGN})
    assert (given.status, given.error["details"]["code"]) == (403, "OWNER_REFUSED")
    assert (await tenants.call(named, "POST", "/api/v1/projects", {"project_id": "x", "name": "X"})).status == 404


@on_sqlite
async def test_without_a_scope_claim_a_token_reads_and_neither_pulls_nor_pushes(tenants: Tenants):
    await tenants.fill()
    plain = tenants.token(merchant_id=OWNER)
    for operation, known in operations().items():
        answer = await tenants.call(plain, *example(operation))
        allowed = known["x-scope"] == "read" and not known.get("x-pull")
        assert (answer.status == 403) is not allowed, (operation, answer.body)
    pulled = await tenants.call(plain, "GET", f"/api/v1/projects/{PROJECT}/tasks/pull")
    assert pulled.error["details"]["code"] == "PULL_NOT_IN_SCOPE"


@on_sqlite
@pytest.mark.parametrize("scope", ["read", "write", "admin"])
async def test_a_token_pulls_when_its_scope_says_so(tenants: Tenants, scope: str):
    await tenants.fill()
    token = tenants.token(merchant_id=OWNER, scope=scope, projects=[PROJECT])
    assert (await tenants.call(token, "GET", f"/api/v1/projects/{PROJECT}/tasks/pull")).data["pulled_count"] == 1


@on_sqlite
async def test_a_read_key_may_pull(tenants: Tenants):
    await tenants.fill()
    read = await tenants.key(Scope.READ)
    assert (await tenants.call(read, "GET", f"/api/v1/projects/{PROJECT}/tasks/pull")).data["pulled_count"] == 1


def test_every_route_that_claims_or_works_on_a_claim_says_so():
    for (_, path), known in operations().items():
        below = path.partition("/pull")[2].strip("/").split("/")[0]
        claims = "/pull" in path and below not in NOT_PULLS
        assert known.get("x-pull", False) is claims, path


@on_sqlite
async def test_an_unbound_key_uses_all_projects_whatever_its_merchant(tenants: Tenants):
    await tenants.fill()
    foreign = await tenants.key(Scope.WRITE, merchant_id=FOREIGN)
    assert (await tenants.call(foreign, "GET", f"/api/v1/projects/{PROJECT}")).status == 200


@on_sqlite
async def test_by_policy_a_key_with_a_merchant_uses_only_its_projects(api: TasksApi):
    tenants = Tenants(api, confine_keys=True)
    await tenants.fill()
    foreign, owner = [await tenants.key(Scope.WRITE, merchant_id=merchant) for merchant in (FOREIGN, OWNER)]
    admin = await tenants.key(Scope.ADMIN, merchant_id=FOREIGN)
    for key, status in ((foreign, 404), (owner, 200), (admin, 200), (await tenants.key(Scope.READ), 200)):
        assert (await tenants.call(key, "GET", f"/api/v1/projects/{PROJECT}")).status == status


@on_sqlite
async def test_by_policy_a_token_uses_only_the_projects_that_it_names(api: TasksApi):
    tenants = Tenants(api, merchant_projects=False)
    await Tenants(api).fill()
    tenants = Tenants(api, merchant_projects=False)
    own = tenants.token(merchant_id=OWNER, scope="read")
    assert (await tenants.call(own, "GET", f"/api/v1/projects/{PROJECT}")).status == 404
    named = tenants.token(merchant_id=OWNER, scope="read", projects=[PROJECT])
    assert (await tenants.call(named, "GET", f"/api/v1/projects/{PROJECT}")).status == 200


async def test_a_push_cannot_take_a_project_that_another_merchant_created_meanwhile(tenants: Tenants):
    """The first push creates the project of its merchant; a push of another merchant's does not reach it."""
    foreign = tenants.token(merchant_id=FOREIGN, scope="write")
    assert (await tenants.call(foreign, "POST", "/api/v1/submit", {**SUBMIT, "project_id": "new"})).status == 200
    owner = tenants.token(merchant_id=OWNER, scope="write")
    refused = await tenants.call(
        owner, "POST", "/api/v1/submit", {**SUBMIT, "project_id": "new", "project_name": "Mine"}
    )
    assert refused.status == 404
    found = await tenants.call(foreign, "GET", "/api/v1/projects/new")
    assert (found.data["name"], found.data["merchant_id"]) == (SUBMIT["project_name"], FOREIGN)
