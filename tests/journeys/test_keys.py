"""`penstock keys`, as an operator uses it, and what a running process sees of it."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from penstock.access.api.logins import Logins
from penstock.access.authenticate import Authenticator
from penstock.access.domain import Caller, Scope
from penstock.access.errors import InvalidApiKey, WrongLogin
from penstock.access.passwords import Passwords
from penstock.access.tokens import Tokens
from tests.conftest import open_db
from tests.journeys.command import run
from tests.servers.postgres import PostgresServer

ISO_MILLIS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SECRET = re.compile(r"sk-[\w-]{43}\n")


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, Any]:
    """A fresh data folder, or a PostgreSQL database that is migrated as one has to be."""
    if request.param == "sqlite":
        return {"PENSTOCK_DATA_DIR": str(tmp_path / "data")}
    return {"PENSTOCK_DATABASE_URL": request.getfixturevalue("postgres_url")}


def database(settings: Mapping[str, Any]) -> str:
    folder = settings.get("PENSTOCK_DATA_DIR", "")
    return settings.get("PENSTOCK_DATABASE_URL") or f"sqlite:///{folder}/penstock.db"


def rows(settings: Mapping[str, Any]) -> list[list[str]]:
    """The list, cell by cell, without its headings."""
    shown = run("keys", "list", **settings)
    assert shown.returncode == 0, shown.stderr
    return [re.split(r"  +", line) for line in shown.stdout.splitlines()[1:]]


async def caller_with(access: Authenticator, secret: str) -> Caller | None:
    return await access.identify(Headers({"X-API-Key": secret}))


async def refused(access: Authenticator, secret: str) -> bool:
    try:
        await caller_with(access, secret)
    except InvalidApiKey:
        return True
    return False


async def test_a_key_is_made_listed_rotated_and_revoked(settings: Mapping[str, Any]):
    made = run("keys", "create", "--name", "robot", "--scope", "write", "--merchant-id", "9", "--days", "1", **settings)
    assert made.returncode == 0, made.stderr
    assert SECRET.fullmatch(made.stdout), "nothing but the key, so that a script can take it"
    assert "robot" in made.stderr
    assert "using SQLite in " in made.stderr or "using PostgreSQL at " in made.stderr

    db = open_db(database(settings))
    access = Authenticator(db, tokens=Tokens(db.clock))
    secret = made.stdout.strip()
    caller = await caller_with(access, secret)
    assert caller is not None
    assert (caller.name, caller.scope, caller.user_id, caller.merchant_id) == ("robot", Scope.WRITE, 2, 9)

    [[key_id, state, scope, prefix, *_, expires, _, name]] = rows(settings)
    assert ISO_MILLIS.fullmatch(expires), expires
    assert (state, scope, prefix, name) == ("active", "write", f"{secret[:7]}…{secret[-4:]}", "robot")

    rotated = run("keys", "rotate", key_id, "--grace-seconds", "600", **settings)
    assert SECRET.fullmatch(rotated.stdout)
    assert run("keys", "revoke", key_id, **settings).returncode == 0
    async with asyncio.timeout(30):
        while not await refused(access, secret):  # noqa: ASYNC110  (it remembers for two seconds of real time)
            await asyncio.sleep(0.05)
    assert await caller_with(access, rotated.stdout.strip()) is not None
    assert [row[1] for row in rows(settings)] == ["active", "revoked"]
    await db.close()


def test_what_goes_wrong_is_said_in_words(tmp_path: Path):
    assert run("migrate", PENSTOCK_DATA_DIR=str(tmp_path)).returncode == 0
    missing = run("keys", "revoke", "key_nope", PENSTOCK_DATA_DIR=str(tmp_path))
    assert missing.returncode == 1
    assert "There is no API key key_nope." in missing.stderr
    assert "Traceback" not in missing.stderr
    for name, scope in (("a", "root"), ("two\nlines", "read")):
        wrong = run("keys", "create", "--name", name, "--scope", scope, PENSTOCK_DATA_DIR=str(tmp_path))
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "Traceback" not in wrong.stderr


def test_a_database_that_is_not_migrated_says_what_to_run():
    with PostgresServer.start() as postgres:
        postgres.create_database("bare")
        refused = run("keys", "list", PENSTOCK_DATABASE_URL=postgres.url("bare"))
    assert refused.returncode == 1
    assert "penstock migrate" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_a_user_is_added_listed_reset_and_removed(settings: Mapping[str, Any]):
    added = run("users", "add", "Ann", "--scope", "admin", **settings)
    assert added.returncode == 0, added.stderr
    assert re.fullmatch(r"\S{20}\n", added.stdout), "nothing but the password, so that a script can take it"
    db = open_db(database(settings))
    logins = Logins(db, Passwords())
    assert (await logins.login("ann", added.stdout.strip())).user.scope is Scope.ADMIN
    reset = run("users", "reset-password", "ann", **settings)
    with pytest.raises(WrongLogin):
        await logins.login("ann", added.stdout.strip())
    assert (await logins.login("ann", reset.stdout.strip())).user.username == "Ann"
    last = run("users", "remove", "ann", **settings)
    assert (last.returncode, "only admin" in last.stderr) == (1, True)
    assert run("users", "add", "bob", "--scope", "admin", **settings).returncode == 0
    assert run("users", "remove", "ann", **settings).returncode == 0
    listed = run("users", "list", **settings)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["NAME", "bob"]
    await db.close()
