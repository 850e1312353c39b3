"""Attacks on the first admin: who may create the first user, and from where."""

import pytest

from penstock.access import login
from penstock.access.allowed_hosts import AllowedHosts
from penstock.access.domain import Scope
from penstock.access.login import SETUP_TIME
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import AccessClient, Make
from tests.asgi import Response, call

INIT = "/api/v1/auth/init"
ANN = {"username": "ann", "password": "correct horse"}


async def printed(db: Db) -> str:
    """The token that a server prints at its start."""
    async with db.tx(actor="serve") as tx:
        token = await login.create_setup_token(tx)
    assert token is not None
    return token


async def initialised(client: AccessClient) -> bool:
    found: bool = (await client.request_anonymously("GET", "/api/v1/auth/check-init")).data["initialized"]
    return found


async def visit(client: AccessClient, *, client_address: str = "127.0.0.1", **headers: str) -> Response:
    """A request to create the first user, without a key and without the token."""
    given = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await call(client.app, "POST", INIT, ANN, headers=given, client=client_address)


class TestRefused:
    async def test_by_dns_rebinding(self, client: AccessClient):
        """The page's name now resolves to 127.0.0.1: the browser sends its name, and thinks it talks to the page."""
        for path in (INIT, "/api/v1/auth/login"):
            given = [("host", "evil.example:8080"), ("origin", "http://evil.example:8080")]
            answer = await _with_host(client, "POST", path, given)
            assert (answer.status, answer.error["details"]["code"]) == (403, "FOREIGN_HOST")
        read = await _with_host(client, "GET", "/api/v1/auth/check-init", [("host", "evil.example")])
        assert read.status == 403
        assert not await initialised(client)

    async def test_by_dns_rebinding_with_the_token_or_a_made_up_key(self, client: AccessClient, db: Db):
        token = await printed(db)
        given = [("host", "evil.example")]
        shown = await _with_host(client, "POST", INIT, given, ANN | {"setupToken": token})
        assert shown.error["details"]["code"] == "FOREIGN_HOST"
        forged = await _with_host(client, "POST", INIT, [*given, ("x-api-key", "sk-made-up")], ANN)
        assert (forged.status, forged.error["code"]) == (401, "INVALID_API_KEY")
        assert not await initialised(client)

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "file://"])
    async def test_by_a_page_that_posts_to_the_address(self, client: AccessClient, origin: str):
        answer = await visit(client, Origin=origin)
        assert (answer.status, answer.error["details"]["code"]) == (403, "FOREIGN_ORIGIN")
        assert not await initialised(client)

    async def test_by_a_proxy_on_the_same_host(self, client: AccessClient):
        """A proxy calls from 127.0.0.1, whether or not it says for whom."""
        for headers in ({}, {"X_Forwarded_For": "198.51.100.7"}, {"X_Real_IP": "198.51.100.7"}):
            answer = await visit(client, **headers)
            assert (answer.status, answer.error["details"]["code"]) == (403, "INIT_REFUSED")
        assert not await initialised(client)

    async def test_from_elsewhere(self, client: AccessClient):
        assert (await visit(client, client_address="198.51.100.7")).error["details"]["code"] == "INIT_REFUSED"

    @pytest.mark.parametrize("scope", [Scope.READ, Scope.WRITE])
    async def test_with_a_key_of_another_scope(self, client: AccessClient, make: Make, scope: Scope):
        answer = await client.request("POST", INIT, ANN, key=(await make(scope)).secret)
        assert (answer.status, answer.error["details"]["code"]) == (403, "INIT_REFUSED")

    async def test_with_an_admin_key_that_is_bound_to_a_project(self, client: AccessClient, make: Make):
        bound = await make(Scope.ADMIN, project="p1")
        assert (await client.request("POST", INIT, ANN, key=bound.secret)).status == 403

    async def test_with_a_wrong_or_an_expired_token(self, client: AccessClient, db: Db, clock: ManualClock):
        token = await printed(db)
        wrong = await client.request_anonymously("POST", INIT, ANN | {"setupToken": f"{token}x"})
        clock.advance(seconds=SETUP_TIME.total_seconds())
        late = await client.request_anonymously("POST", INIT, ANN | {"setupToken": token})
        assert (wrong.status, late.status) == (403, 403)
        assert token.encode() not in wrong.body


class TestCreated:
    async def test_with_the_token_once_and_every_other_token_ends(self, client: AccessClient, db: Db):
        first, second = await printed(db), await printed(db)  # two servers
        made = await client.request_anonymously("POST", INIT, ANN | {"setupToken": second})
        assert (made.status, made.data["scope"]) == (200, "admin")
        for token in (first, second):
            again = await client.request_anonymously("POST", INIT, ANN | {"setupToken": token})
            assert again.error["details"]["code"] == "ALREADY_INITIALISED"
        async with db.tx() as tx:
            assert await login.create_setup_token(tx) is None

    async def test_with_an_admin_key_from_anywhere(self, client: AccessClient):
        shown = [("X-API-Key", client.admin), ("host", "penstock.example")]
        made = await call(client.app, "POST", INIT, ANN, headers=shown, client="198.51.100.7")
        assert made.status == 200


class TestHosts:
    """Which hosts and origins are ours."""

    @pytest.mark.parametrize(
        ("bound", "host", "ours"),
        [
            ("127.0.0.1", "localhost:8080", True),
            ("127.0.0.1", "127.0.0.1", True),
            ("127.0.0.1", "[::1]:8080", True),
            ("127.0.0.1", "LOCALHOST.", True),
            ("127.0.0.1", "a.localhost", True),
            ("127.0.0.1", "10.0.0.5:8080", False),
            ("127.0.0.1", "localhost.evil.example", False),
            ("127.0.0.1", "127.0.0.1.evil.example", False),
            ("127.0.0.1", "", False),
            ("10.0.0.5", "10.0.0.5:8080", True),
            ("10.0.0.5", "10.0.0.6", False),
            ("0.0.0.0", "10.0.0.6:8080", True),
            ("::", "[2001:db8::1]:8080", True),
            ("0.0.0.0", "evil.example", False),
            ("db.internal", "db.internal:80", True),
            ("127.0.0.1", "penstock.example:443", True),
            ("127.0.0.1", "other.example", False),
        ],
    )
    async def test_a_host(self, client: AccessClient, bound: str, host: str, ours: bool):
        client.app.state.hosts = AllowedHosts.of("penstock.example, Second.Example").bound_to(bound)
        answer = await _with_host(client, "GET", "/api/v1/auth/check-init", [("host", host)])
        assert (answer.status == 200) is ours

    @pytest.mark.parametrize(
        ("origin", "ours"),
        [
            ("http://localhost:8080", True),
            ("https://penstock.example", True),
            ("https://pages.example", True),
            ("https://pages.example.evil", False),
            ("http://localhost:9", False),
        ],
    )
    async def test_an_origin(self, client: AccessClient, origin: str, ours: bool):
        client.app.state.hosts = AllowedHosts.of("penstock.example", "https://pages.example")
        given = [("host", "localhost:8080"), ("origin", origin)]
        assert ((await _with_host(client, "GET", "/api/v1/auth/check-init", given)).status == 200) is ours

    async def test_a_star_allows_any(self, client: AccessClient):
        client.app.state.hosts = AllowedHosts.of("*")
        given = [("host", "any.example"), ("origin", "http://other.example")]
        assert (await _with_host(client, "GET", "/api/v1/auth/check-init", given)).status == 200


async def _with_host(
    client: AccessClient, method: str, path: str, headers: list[tuple[str, str]], body: object = None
) -> Response:
    """A request whose only Host is the given one."""
    body = ANN if body is None and method == "POST" else body
    return await call(client.app, method, path, body, headers=headers, host=None)
