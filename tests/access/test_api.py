"""The routes of access."""

import re
from datetime import timedelta
from typing import Any

import jwt
import pytest

from penstock.access import keys
from penstock.access.domain import Scope
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import ATTEMPTS, LOCK_SECONDS, SECRET, SESSION_SECONDS, AccessClient, Make

KEYS = "/api/v1/api-keys"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ANN = {"username": "ann", "password": "correct horse"}
SHOWN = {
    "id", "name", "key", "prefix", "state", "scope", "projectId", "userId", "merchantId", "role", "createdAt",
    "createdBy", "expiresAt", "lastUsedAt", "revokedAt", "replacedBy",
    "project_id", "is_active", "created_at", "updated_at", "key_masked",
}  # fmt: skip


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """Requests and responses are the same on both databases; the store tests cover the statements on each."""
    return sqlite_url


async def made(client: AccessClient, **more: Any) -> dict[str, Any]:
    answer = await client.request("POST", KEYS, {"name": "a key", "scope": "read", **more})
    assert answer.status == 201, answer.body
    data: dict[str, Any] = answer.data
    return data


async def code_of(client: AccessClient, *request: Any, **headers: str) -> tuple[int, str]:
    answer = await client.request(*request, **headers)
    return answer.status, answer.error["code"]


class TestAuthorization:
    async def test_a_request_without_a_credential_is_refused(self, client: AccessClient):
        answer = await client.request_anonymously("GET", KEYS)
        assert (answer.status, answer.error["code"]) == (401, "INVALID_API_KEY")
        assert answer.error["details"]["code"] == "NO_CREDENTIAL"
        assert answer.headers["www-authenticate"] == 'Bearer realm="penstock"'

    async def test_an_unknown_key_is_refused(self, client: AccessClient):
        answer = await client.request("GET", KEYS, key="sk-nope")
        assert (answer.status, answer.error["code"]) == (401, "INVALID_API_KEY")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert "sk-nope" not in answer.body.decode()

    async def test_an_invalid_token_is_refused(self, client: AccessClient):
        answer = await client.request("GET", KEYS, bearer="a.b.c")
        assert (answer.status, answer.error["code"]) == (401, "INVALID_API_KEY")
        assert answer.error["details"] == {
            "code": "INVALID_TOKEN",
            "hint": answer.error["details"]["hint"],
        }

    async def test_an_expired_and_a_revoked_key_are_refused(
        self, client: AccessClient, db: Db, make: Make, clock: ManualClock
    ):
        ends, revoked = await make(Scope.ADMIN, expires_at=clock.now() + timedelta(seconds=1)), await make(Scope.ADMIN)
        async with db.tx() as tx:
            await keys.revoke(tx, revoked.key.id, by="test")
        clock.advance(seconds=1)
        for issued in (ends, revoked):
            assert await code_of(client, "GET", KEYS, key=issued.secret) == (401, "INVALID_API_KEY")

    @pytest.mark.parametrize(
        ("scope", "reads", "pushes", "administers"),
        [(Scope.READ, 200, 403, 403), (Scope.WRITE, 200, 200, 403), (Scope.ADMIN, 200, 200, 200)],
    )
    async def test_each_scope_includes_the_lower_ones(
        self, client: AccessClient, make: Make, scope: Scope, reads: int, pushes: int, administers: int
    ):
        secret = (await make(scope)).secret
        assert (await client.request("GET", "/api/v1/sample/inside", key=secret)).status == reads
        assert (await client.request("POST", "/api/v1/sample/push", key=secret)).status == pushes
        assert (await client.request("GET", KEYS, key=secret)).status == administers

    async def test_an_insufficient_scope_is_forbidden_with_the_needed_one(self, client: AccessClient, make: Make):
        answer = await client.request("GET", KEYS, key=(await make(Scope.READ)).secret)
        assert answer.error["code"] == "FORBIDDEN"
        assert (answer.error["details"]["needed"], answer.error["details"]["held"]) == ("admin", "read")

    @pytest.mark.parametrize("scope", list(Scope))
    async def test_a_bound_key_is_admitted_only_where_bound_keys_are(
        self, client: AccessClient, make: Make, scope: Scope
    ):
        secret = (await make(scope, project="p")).secret
        assert (await client.request("GET", "/api/v1/sample/inside", key=secret)).data == "p"
        for method, path in [("POST", "/api/v1/sample/push"), ("GET", KEYS), ("GET", "/api/v1/auth/me")]:
            answer = await client.request(method, path, key=secret)
            assert (answer.status, answer.error["details"]["code"]) == (403, "KEY_IS_BOUND")

    async def test_two_credentials_are_refused(self, client: AccessClient):
        answer = await client.request("GET", KEYS, X_API_Key="sk-other")
        assert (answer.status, answer.error["details"]["code"]) == (400, "TWO_CREDENTIALS")

    async def test_the_caller_is_checked_before_the_body(self, client: AccessClient, make: Make):
        assert (await client.request_anonymously("POST", KEYS, {"odd": 1})).status == 401
        secret = (await make(Scope.WRITE)).secret
        assert (await client.request("POST", KEYS, {"odd": 1}, key=secret)).status == 403

    async def test_a_jwt_is_authorized_by_its_scope(self, client: AccessClient, clock: ManualClock):
        claims = {"user_id": 8, "exp": clock.now().timestamp() + 60}
        plain = jwt.encode(claims, SECRET, algorithm="HS256")
        assert (await client.request("POST", "/api/v1/sample/push", bearer=plain)).data == 8
        assert (await client.request("GET", KEYS, bearer=plain)).status == 403
        admin = jwt.encode(claims | {"scope": "admin"}, SECRET, algorithm="HS256")
        assert (await client.request("GET", KEYS, bearer=admin)).status == 200

    async def test_refusals_come_in_chinese(self, client: AccessClient):
        answer = await client.request_anonymously("GET", KEYS, Accept_Language="zh-CN")
        assert answer.error["message"] == "此操作需要密钥或令牌，但请求中没有提供。"

    def test_every_route_declares_who_may_call_it(self, client: AccessClient):
        paths = client.app.openapi()["paths"]
        routes = {(method, path): route for path, methods in paths.items() for method, route in methods.items()}
        assert all(route["x-scope"] in {"public", "read", "write", "admin"} for route in routes.values())
        public = {path for (_, path), route in routes.items() if route["x-scope"] == "public"}
        assert public == {"/api/v1/auth/check-init", "/api/v1/auth/init", "/api/v1/auth/login"}
        assert [path for (_, path), route in routes.items() if route.get("x-bound")] == ["/api/v1/sample/inside"]


class TestApiKeys:
    async def test_a_new_key_is_shown_once_and_masked_afterwards(self, client: AccessClient):
        key = await made(client, name="robot", scope="write", merchantId=4, role="editor")
        assert set(key) == SHOWN
        assert re.fullmatch(r"sk-[\w-]{43}", key["key"])
        assert (key["name"], key["scope"], key["state"], key["userId"]) == ("robot", "write", "active", 1)
        assert STAMP.fullmatch(key["createdAt"])
        listed = await client.request("GET", KEYS)
        assert key["key"] not in listed.body.decode()
        [found] = [item for item in listed.data["items"] if item["id"] == key["id"]]
        assert found == key | {"key": key["key_masked"]}
        assert found["key"] == f"sk-****{key['id'][-4:]}"
        for query in ("", "?show_key=true"):
            assert (await client.request("GET", f"{KEYS}/{key['id']}{query}")).data == found

    async def test_an_existing_client_makes_lists_and_switches_off_keys_as_it_knows_them(self, client: AccessClient):
        answer = await client.request("POST", KEYS, {"name": "older", "project_id": "p"})
        key = answer.data
        assert (answer.status, key["scope"], key["project_id"], key["is_active"]) == (201, "admin", "p", True)
        assert key["created_at"] == key["updated_at"] == key["createdAt"]
        for query, names in (("project_id=p", ["older"]), ("is_active=false", []), ("is_active=true&project_id=q", [])):
            data = (await client.request("GET", f"{KEYS}?{query}")).data
            assert ([item["name"] for item in data["items"]], data["pagination"]["total"]) == (names, len(names))
        unbound = (await client.request("PUT", f"{KEYS}/{key['id']}", {"project_id": None, "is_active": True})).data
        assert (unbound["project_id"], unbound["is_active"]) == (None, True)
        off = (await client.request("PUT", f"{KEYS}/{key['id']}", {"is_active": False})).data
        assert (off["id"], off["is_active"], off["state"]) == (key["id"], False, "revoked")
        assert (await client.request("PUT", f"{KEYS}/{key['id']}", {"is_active": True})).status == 409
        assert (await client.request("DELETE", f"{KEYS}/{key['id']}")).data["id"] == key["id"]

    async def test_keys_are_listed_in_pages(self, client: AccessClient):
        made_keys = [await made(client, name=str(number)) for number in range(4)]
        data = (await client.request("GET", f"{KEYS}?page=2&pageSize=3")).data
        assert data["pagination"] == {"page": 2, "pageSize": 3, "total": 5, "totalPages": 2}
        assert [item["name"] for item in data["items"]] == [made_keys[0]["name"], "first admin"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"scope": "read"}, "name"),
            ({"name": "", "scope": "read"}, "name"),
            ({"name": " ", "scope": "read"}, "name"),
            ({"name": "a" * 256, "scope": "read"}, "name"),
            ({"name": "a\u0000b", "scope": "read"}, "name"),
            ({"name": "a\ud800b", "scope": "read"}, "name"),
            ({"name": 5, "scope": "read"}, "name"),
            ({"name": "a", "scope": "root"}, "scope"),
            ({"name": "a", "scope": "read", "userId": 0}, "userId"),
            ({"name": "a", "scope": "read", "userId": 2**63}, "userId"),
            ({"name": "a", "scope": "read", "merchantId": "x"}, "merchantId"),
            ({"name": "a", "scope": "read", "expiresAt": "tomorrow"}, "expiresAt"),
            ({"name": "a", "scope": "read", "expiresAt": "2030-01-01T00:00:00"}, "expiresAt"),
            ({"name": "a", "scope": "read", "expiresAt": "2020-01-01T00:00:00Z"}, "expiresAt"),
            ({"name": "a", "scope": "read", "expiresAt": "9999-12-31T23:59:59-12:00"}, "expiresAt"),
            ({"name": "a", "scope": "read", "expiresat": "2030-01-01T00:00:00Z"}, "expiresat"),
            ([], "body"),
        ],
        ids=lambda value: str(value)[:60].encode("ascii", "replace").decode(),
    )
    async def test_an_invalid_field_is_named(self, client: AccessClient, body: object, field: str):
        answer = await client.request("POST", KEYS, body)
        assert (answer.status, answer.error["code"]) == (400, "VALIDATION_ERROR")
        assert answer.error["details"]["field"] == field

    async def test_an_expiry_is_stored_in_utc(self, client: AccessClient):
        key = await made(client, expiresAt="2030-01-01T08:00:00+08:00")
        assert key["expiresAt"] == "2030-01-01T00:00:00.000Z"

    async def test_a_change_changes_what_is_sent_and_nothing_else(self, client: AccessClient):
        key = await made(client, projectId="p", role="editor")
        changed = (await client.request("PUT", f"{KEYS}/{key['id']}", {"scope": "write", "projectId": None})).data
        masked = {"key": key["key_masked"], "scope": "write", "projectId": None, "project_id": None}
        assert changed == key | masked
        assert (await client.request("PUT", f"{KEYS}/{key['id']}", {})).data == changed

    async def test_the_owner_of_a_key_cannot_be_changed(self, client: AccessClient):
        key = await made(client)
        answer = await client.request("PUT", f"{KEYS}/{key['id']}", {"userId": 9})
        assert (answer.status, answer.error["details"]["field"]) == (400, "userId")
        answer = await client.request("PUT", f"{KEYS}/{key['id']}", {"name": None})
        assert (answer.status, answer.error["details"]["field"]) == (400, "name")

    async def test_a_deleted_key_is_revoked_and_stays_in_the_list(self, client: AccessClient):
        key = await made(client)
        gone = (await client.request("DELETE", f"{KEYS}/{key['id']}")).data
        assert gone["state"] == "revoked"
        assert STAMP.fullmatch(gone["revokedAt"])
        assert (await client.request("DELETE", f"{KEYS}/{key['id']}")).data == gone
        assert await code_of(client, "PUT", f"{KEYS}/{key['id']}", {"name": "x"}) == (409, "CONFLICT")

    async def test_a_rotated_key_has_a_new_secret_and_the_old_one_a_grace(
        self, client: AccessClient, clock: ManualClock
    ):
        old = await made(client, scope="admin")
        new = (await client.request("POST", f"{KEYS}/{old['id']}/rotate", {"graceSeconds": 60})).data
        assert new["key"] != old["key"]
        for secret in (old["key"], new["key"]):
            assert (await client.request("GET", KEYS, key=secret)).status == 200
        clock.advance(seconds=60)
        assert (await client.request("GET", KEYS, key=old["key"])).status == 401
        assert (await client.request("GET", KEYS, key=new["key"])).status == 200
        assert (await client.request("GET", f"{KEYS}/{old['id']}")).data["replacedBy"] == new["id"]

    async def test_without_a_body_a_rotation_has_no_grace(self, client: AccessClient):
        old = await made(client)
        assert (await client.request("POST", f"{KEYS}/{old['id']}/rotate")).status == 200
        assert (await client.request("GET", f"{KEYS}/{old['id']}")).data["state"] == "revoked"

    @pytest.mark.parametrize("grace", [-1, 10**9, "x"])
    async def test_an_invalid_grace_is_refused(self, client: AccessClient, grace: object):
        key = await made(client)
        answer = await client.request("POST", f"{KEYS}/{key['id']}/rotate", {"graceSeconds": grace})
        assert (answer.status, answer.error["details"]["field"]) == (400, "graceSeconds")

    @pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/rotate")])
    async def test_a_missing_key_is_not_found(self, client: AccessClient, method: str, suffix: str):
        answer = await client.request(method, f"{KEYS}/key_nope{suffix}", {})
        assert (answer.status, answer.error["code"]) == (404, "RESOURCE_NOT_FOUND")
        assert answer.error["details"]["id"] == "key_nope"

    @pytest.mark.parametrize("odd", ["%00", "a%20b", "a" * 65, "é"])
    async def test_an_invalid_id_is_refused(self, client: AccessClient, odd: str):
        assert (await client.request("GET", f"{KEYS}/{odd}")).status == 400


class TestAuth:
    async def test_init_login_me_logout(self, client: AccessClient, clock: ManualClock):
        assert (await client.request_anonymously("GET", "/api/v1/auth/check-init")).data == {"initialized": False}
        user = (await client.request("POST", "/api/v1/auth/init", ANN)).data
        assert (user["username"], user["userId"], user["role"], user["scope"]) == ("ann", 1, "admin", "admin")
        assert (await client.request_anonymously("GET", "/api/v1/auth/check-init")).data == {"initialized": True}
        login = (await client.request_anonymously("POST", "/api/v1/auth/login", ANN)).data
        assert set(login) == {"token", "expiresAt", "user"}
        assert login["user"]["id"] == user["id"]
        token = login["token"]
        me = (await client.request("GET", "/api/v1/auth/me", bearer=token)).data
        assert me == {"name": "ann", "userId": 1, "merchantId": None, "role": "admin", "scope": "admin"}
        assert (await client.request("GET", KEYS, bearer=token)).status == 200
        assert (await client.request("POST", "/api/v1/auth/logout", bearer=token)).data is None
        clock.advance(seconds=2)
        assert await code_of(client, "GET", KEYS, bearer=token) == (401, "INVALID_API_KEY")

    async def test_a_login_expires(self, client: AccessClient, clock: ManualClock):
        await client.request("POST", "/api/v1/auth/init", ANN)
        login = (await client.request_anonymously("POST", "/api/v1/auth/login", ANN)).data
        clock.advance(seconds=SESSION_SECONDS)
        answer = await client.request("GET", KEYS, bearer=login["token"])
        assert answer.error["details"]["code"] == "SESSION_OVER"

    async def test_a_second_init_is_invalid(self, client: AccessClient):
        assert (await client.request("POST", "/api/v1/auth/init", ANN)).status == 200
        answer = await client.request("POST", "/api/v1/auth/init", ANN)
        assert (answer.status, answer.error["code"]) == (400, "VALIDATION_ERROR")
        assert answer.error["details"]["code"] == "ALREADY_INITIALISED"

    @pytest.mark.parametrize("password", ["", "1234567", "a" * 1025, 5, None])
    async def test_a_password_has_8_to_1024_characters_and_is_not_repeated(
        self, client: AccessClient, password: object
    ):
        answer = await client.request("POST", "/api/v1/auth/init", {"username": "ann", "password": password})
        assert (answer.status, answer.error["details"]["field"]) == (400, "password")
        assert "1234567" not in answer.body.decode()
        assert (await client.request_anonymously("GET", "/api/v1/auth/check-init")).data == {"initialized": False}

    async def test_the_longest_password_works(self, client: AccessClient):
        ann = {"username": "ann", "password": "ü" * 1024}
        await client.request("POST", "/api/v1/auth/init", ann)
        assert (await client.request_anonymously("POST", "/api/v1/auth/login", ann)).status == 200

    async def test_wrong_passwords_lock_the_name_and_say_for_how_long(self, client: AccessClient):
        await client.request("POST", "/api/v1/auth/init", ANN)
        wrong = ANN | {"password": "wrong"}
        for _ in range(ATTEMPTS):
            answer = await client.request_anonymously("POST", "/api/v1/auth/login", wrong)
            assert (answer.status, answer.error["code"]) == (401, "VALIDATION_ERROR")
        answer = await client.request_anonymously("POST", "/api/v1/auth/login", ANN)
        assert (answer.status, answer.error["code"]) == (429, "RATE_LIMIT_EXCEEDED")
        assert answer.headers["retry-after"] == f"{LOCK_SECONDS:.0f}"

    async def test_a_key_cannot_be_logged_out(self, client: AccessClient):
        answer = await client.request("POST", "/api/v1/auth/logout")
        assert (answer.status, answer.error["details"]["code"]) == (400, "NOT_A_LOGIN")


class TestAudit:
    async def test_lines_are_read_newest_first_page_by_page_by_id(self, client: AccessClient):
        for number in range(5):
            await made(client, name=str(number))
        first = (await client.request("GET", "/api/v1/audit?pageSize=4")).data
        second = (await client.request("GET", f"/api/v1/audit?pageSize=4&before={first['next']}")).data
        names = [line["detail"]["name"] for line in [*first["items"], *second["items"]]]
        assert names == ["4", "3", "2", "1", "0", "first admin"]
        assert second["next"] is None

    async def test_a_line_tells_who_what_when_and_from_where(self, client: AccessClient):
        key = await made(client, name="robot")
        [line] = (await client.request("GET", "/api/v1/audit?pageSize=1")).data["items"]
        assert set(line) == {"id", "at", "actor", "action", "target", "detail", "requestId", "address"}
        assert (line["action"], line["target"], line["address"]) == ("key.create", f"key:{key['id']}", "127.0.0.1")
        assert line["actor"].startswith("key:key_")
        assert STAMP.fullmatch(line["at"])

    async def test_lines_can_be_asked_for_by_actor_and_by_action(self, client: AccessClient):
        key = await made(client)
        await client.request("DELETE", f"{KEYS}/{key['id']}")
        revoked = (await client.request("GET", "/api/v1/audit?action=key.revoke")).data["items"]
        assert [line["target"] for line in revoked] == [f"key:{key['id']}"]
        by_start = (await client.request("GET", "/api/v1/audit?actor=first%20start")).data["items"]
        assert [line["action"] for line in by_start] == ["key.create"]
        none = (await client.request("GET", "/api/v1/audit?actor=first%20start&action=key.revoke")).data
        assert none == {"items": [], "next": None}

    @pytest.mark.parametrize(
        "query", ["before=0", "before=x", f"before={2**63}", "pageSize=0", "pageSize=101", "actor=%01"]
    )
    async def test_odd_questions_are_refused(self, client: AccessClient, query: str):
        assert (await client.request("GET", f"/api/v1/audit?{query}")).status == 400

    async def test_only_admins_read_it(self, client: AccessClient, make: Make):
        assert await code_of(client, "GET", "/api/v1/audit", key=(await make(Scope.WRITE)).secret) == (403, "FORBIDDEN")

    async def test_no_secret_is_in_it_whatever_was_done(self, client: AccessClient):
        await client.request("POST", "/api/v1/auth/init", ANN)
        login = (await client.request_anonymously("POST", "/api/v1/auth/login", ANN)).data
        old = await made(client)
        new = (await client.request("POST", f"{KEYS}/{old['id']}/rotate", {"graceSeconds": 5})).data
        await client.request("PUT", f"{KEYS}/{new['id']}", {"name": "renamed"})
        await client.request("DELETE", f"{KEYS}/{new['id']}")
        text = (await client.request("GET", "/api/v1/audit?pageSize=100")).body.decode()
        assert "key.rotate" in text
        assert not [secret for secret in (login["token"], old["key"], new["key"], ANN["password"]) if secret in text]
