"""An app with the routes of access and of a sample module, on the test's database and clock."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from argon2 import PasswordHasher
from fastapi import APIRouter, FastAPI

from penstock.access import api, keys
from penstock.access.allowed_hosts import AllowedHosts
from penstock.access.api.logins import Logins
from penstock.access.authenticate import Authenticator
from penstock.access.domain import Caller, IssuedKey, NewKey, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.access.passwords import Passwords
from penstock.access.tokens import Tokens
from penstock.kernel.db import Db
from penstock.kernel.http.envelope import EnvelopeRoute, Said, SayHere
from tests.asgi import Headers, Response, call
from tests.contract import RouteContract

SECRET = "a shared secret of more than thirty-two bytes"
ROOT = Caller(name="root", user_id=1, scope=Scope.ADMIN)
ATTEMPTS, LOCK_SECONDS, SESSION_SECONDS = 3, 60.0, 3600.0

sample = APIRouter(prefix="/api/v1/sample", route_class=EnvelopeRoute)


@sample.get("/inside", **requires(Scope.READ, bound=True))
async def inside(caller: CurrentCaller, say: SayHere) -> Said[str | None]:
    return say(caller.project, "Inside.", "在里面。")


@sample.post("/push", **requires(Scope.WRITE))
async def push(caller: CurrentCaller, say: SayHere) -> Said[int]:
    return say(caller.user_id, "Pushed.", "已推送。")


Make = Callable[..., Awaitable[IssuedKey]]


CONTRACT = RouteContract([route for router in api.ROUTERS for route in router.routes])


@dataclass
class AccessClient:
    """The app, and requests to it."""

    app: FastAPI
    admin: str

    async def request(self, method: str, path: str, body: object = None, *, key: str = "", **headers: str) -> Response:
        """Send a request with this key, or with the first admin's; `bearer` goes to Authorization instead."""
        given = [(name.replace("_", "-"), value) for name, value in headers.items() if name != "bearer"]
        if "bearer" in headers:
            given.append(("Authorization", f"Bearer {headers['bearer']}"))
        else:
            given.append(("X-API-Key", key or self.admin))
        return await self._call(method, path, body, given)

    async def request_anonymously(self, method: str, path: str, body: object = None, **headers: str) -> Response:
        """Send a request without a credential."""
        given = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return await self._call(method, path, body, given)

    async def _call(self, method: str, path: str, body: object, headers: Headers) -> Response:
        response = await call(self.app, method, path, body, headers=headers)
        CONTRACT.check(method, path, response)
        return response


@pytest.fixture
def passwords() -> Passwords:
    """Real argon2, as cheap as it gets."""
    return Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@pytest.fixture
def access(db: Db) -> Authenticator:
    return Authenticator(db, tokens=Tokens(db.clock, secret=SECRET))


@pytest.fixture
def logins(db: Db, passwords: Passwords) -> Logins:
    return Logins(db, passwords, attempts=ATTEMPTS, lock_seconds=LOCK_SECONDS, session_seconds=SESSION_SECONDS)


@pytest.fixture
def make(db: Db) -> Make:
    """Create keys as the command line does."""

    async def make_key(scope: Scope = Scope.WRITE, **more: object) -> IssuedKey:
        async with db.tx() as tx:
            return await keys.create(tx, NewKey(**{"name": f"a {scope} key", "scope": scope, **more}), by="test")  # type: ignore[arg-type]  # the fields of a new key

    return make_key


@pytest.fixture
async def client(db: Db, access: Authenticator, logins: Logins) -> AccessClient:
    app = FastAPI()
    app.state.db, app.state.access, app.state.logins, app.state.hosts = db, access, logins, AllowedHosts()
    for router in (*api.ROUTERS, sample):  # as wiring does; including them would build each anew
        app.router.routes += router.routes
    async with db.tx() as tx:
        admin = await keys.first_admin_key(tx)
    assert admin is not None
    return AccessClient(app=app, admin=admin)
