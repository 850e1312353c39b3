"""Console users: added, removed, and their passwords changed and reset."""

import asyncio

import pytest

from penstock.access import audit
from penstock.access.api.logins import Logins
from penstock.access.domain import Scope
from penstock.access.errors import LoginLocked, WrongLogin
from penstock.access.login import Origin
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import ATTEMPTS, ROOT, AccessClient

USERS = "/api/v1/users"
PASSWORD, OTHER = "correct horse", "battery staple"
ANN = {"username": "ann", "password": PASSWORD}


@pytest.fixture
async def ann(logins: Logins) -> str:
    """The first user; the id."""
    return (await logins.init("ann", PASSWORD, by=ROOT)).id


async def log_in(client: AccessClient, name: str, password: str) -> str:
    answer = await client.request_anonymously("POST", "/api/v1/auth/login", {"username": name, "password": password})
    assert answer.status == 200, answer.body
    token: str = answer.data["token"]
    return token


async def test_an_added_user_logs_in_with_their_scope(client: AccessClient, ann: str):
    made = await client.request("POST", USERS, {"username": "Bob", "password": OTHER, "scope": "write"})
    assert (made.status, made.data["username"], made.data["scope"]) == (201, "Bob", "write")
    me = (await client.request("GET", "/api/v1/auth/me", bearer=await log_in(client, "bob", OTHER))).data
    assert (me["scope"], me["userId"]) == ("write", made.data["userId"])
    assert me["userId"] != 1
    listed = (await client.request("GET", USERS)).data
    assert [user["username"] for user in listed["items"]] == ["Bob", "ann"]
    assert PASSWORD not in str(listed)


async def test_a_name_is_taken_however_it_is_typed(client: AccessClient, ann: str):
    answer = await client.request("POST", USERS, {"username": " ANN", "password": OTHER})
    assert (answer.status, answer.error["details"]["code"]) == (409, "USERNAME_TAKEN")


async def test_of_two_who_add_the_same_name_one_does(logins: Logins, ann: str):
    added = await asyncio.gather(
        *(logins.add_user("bob", OTHER, scope=Scope.READ, by=ROOT) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in added) == ["User", "UsernameTaken"]


async def test_a_changed_password_ends_the_other_logins(client: AccessClient, ann: str, clock: ManualClock):
    here, elsewhere = await log_in(client, "ann", PASSWORD), await log_in(client, "ann", PASSWORD)
    change = {"oldPassword": PASSWORD, "newPassword": OTHER}
    assert (await client.request("POST", "/api/v1/auth/password", change, bearer=here)).status == 200
    clock.advance(seconds=2)
    assert (await client.request("GET", USERS, bearer=here)).status == 200
    assert (await client.request("GET", USERS, bearer=elsewhere)).status == 401
    await log_in(client, "ann", OTHER)
    refused = await client.request_anonymously("POST", "/api/v1/auth/login", ANN)
    assert refused.status == 401


async def test_a_stolen_login_cannot_guess_the_password(client: AccessClient, ann: str):
    stolen = await log_in(client, "ann", PASSWORD)
    for number in range(ATTEMPTS):
        guess = {"oldPassword": f"guess {number}", "newPassword": OTHER}
        assert (await client.request("POST", "/api/v1/auth/password", guess, bearer=stolen)).status == 401
    right = {"oldPassword": PASSWORD, "newPassword": OTHER}
    assert (await client.request("POST", "/api/v1/auth/password", right, bearer=stolen)).status == 429


async def test_only_a_login_has_a_password_to_change(client: AccessClient, ann: str):
    change = {"oldPassword": PASSWORD, "newPassword": OTHER}
    answer = await client.request("POST", "/api/v1/auth/password", change)
    assert (answer.status, answer.error["details"]["code"]) == (400, "NOT_A_LOGIN")


async def test_a_reset_password_ends_all_logins_and_unlocks_the_name(
    client: AccessClient, logins: Logins, ann: str, clock: ManualClock
):
    before, stranger = await log_in(client, "ann", PASSWORD), Origin(address="198.51.100.7")
    for _ in range(ATTEMPTS):
        with pytest.raises(WrongLogin):
            await logins.login("ann", "wrong", origin=stranger)
    with pytest.raises(LoginLocked):
        await logins.login("ann", PASSWORD, origin=stranger)
    reset = (await client.request("POST", f"{USERS}/{ann}/reset-password")).data
    clock.advance(seconds=2)
    assert (await client.request("GET", USERS, bearer=before)).status == 401
    await logins.login("ann", reset["password"], origin=stranger)
    given = (await client.request("POST", f"{USERS}/{ann}/reset-password", {"password": OTHER})).data
    assert given["password"] == OTHER
    await log_in(client, "ann", OTHER)


async def test_a_removed_user_is_logged_out_and_the_last_admin_stays(
    client: AccessClient, ann: str, clock: ManualClock
):
    bob = (await client.request("POST", USERS, {"username": "bob", "password": OTHER, "scope": "admin"})).data
    login = await log_in(client, "bob", OTHER)
    assert (await client.request("DELETE", f"{USERS}/{bob['id']}")).status == 200
    clock.advance(seconds=2)
    assert (await client.request("GET", USERS, bearer=login)).status == 401
    refused = await client.request("DELETE", f"{USERS}/{ann}")
    assert (refused.status, refused.error["details"]["code"]) == (409, "LAST_ADMIN")
    assert (await client.request("DELETE", f"{USERS}/{bob['id']}")).status == 404


async def test_what_admins_do_with_users_is_in_the_audit_log_without_passwords(client: AccessClient, db: Db, ann: str):
    bob = (await client.request("POST", USERS, {"username": "bob", "password": OTHER})).data["id"]
    reset = (await client.request("POST", f"{USERS}/{bob}/reset-password")).data["password"]
    await client.request("DELETE", f"{USERS}/{bob}")
    async with db.read() as tx:
        lines = await audit.list_lines(tx, actor=(await audit.list_lines(tx))[0].actor)
    assert [line.action for line in lines[:3]] == ["user.remove", "user.reset_password", "user.add"]
    assert OTHER not in str(lines)
    assert reset not in str(lines)
