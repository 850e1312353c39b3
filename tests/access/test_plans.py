"""Frequent queries and queries on large tables use an index, according to the query plans."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.access import audit, login_attempts, store
from penstock.access.credentials import hash_secret
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from tests.plans import explain, look, reads_a_whole_table, recorded, sorts

Verb = Callable[[Tx], Awaitable[object]]
DAY = timedelta(days=1)
ROWS = 5000
VERBS: list[tuple[str, str, Verb]] = [
    ("api_key", "hash", lambda tx: store.find_key(tx, "x")),
    ("api_key", "api_key", lambda tx: store.list_keys(tx, limit=20)),
    ("api_key", "api_key", lambda tx: store.move_last_used(tx, {"key_1": tx.now}, apart=DAY)),
    ("api_key", "expires_at", lambda tx: store.delete_keys(tx, before=tx.now, limit=10)),
    ("api_key", "ix_api_key_user_id", store.claim_user_id),
    ("console_session", "console_session", lambda tx: store.find_session(tx, "x")),
    ("console_session", "ix_console_session_expires_at", lambda tx: store.delete_sessions(tx, before=tx.now, limit=10)),
    ("console_user", "login", lambda tx: store.find_user(tx, "ann")),
    ("login_attempt", "login_attempt", lambda tx: login_attempts.delete_one(tx, hash_secret("ann"))),
    ("login_attempt", "login_attempt", lambda tx: login_attempts.delete_of(tx, hash_secret("ann"))),
    ("setup_token", "setup_token", lambda tx: store.is_setup_token(tx, "x")),
    ("login_attempt", "ix_login_attempt_last_at", lambda tx: login_attempts.delete_old(tx, before=tx.now, limit=10)),
    ("audit_log", "audit_log", lambda tx: audit.list_lines(tx, before=100)),
    ("audit_log", "ix_audit_log_actor", lambda tx: audit.list_lines(tx, actor="actor 7", before=ROWS)),
    ("audit_log", "ix_audit_log_action", lambda tx: audit.list_lines(tx, action="action 7")),
    ("audit_log", "ix_audit_log_at", lambda tx: audit.delete_lines(tx, before=tx.now, limit=10)),
]


@pytest.fixture
async def full(plan_db: Db) -> Db:
    """Tables large enough that reading one whole, or sorting it, would not be the cheapest."""
    db = plan_db
    times = [db.clock.now() + timedelta(seconds=number - ROWS / 2) for number in range(ROWS)]
    async with db.tx() as tx:
        key = ("id", "name", "hash", "prefix", "user_id", "scope", "created_at", "created_by", "expires_at")
        rows: list[Any] = [(f"k{n}", "k", f"h{n}", "p", n + 1, "read", at, "t", at) for n, at in enumerate(times)]
        await insert_rows(tx, store.api_key, key, rows)
        user = ("id", "username", "login", "password_hash", "user_id", "role", "scope", "created_at")
        await insert_rows(
            tx,
            store.console_user,
            user,
            [(f"u{n}", "u", f"u{n}", "p", 1, "r", "read", at) for n, at in enumerate(times)],
        )
        session = ("hash", "user", "created_at", "expires_at")
        await insert_rows(
            tx, store.console_session, session, [(f"h{n}", f"u{n}", at, at) for n, at in enumerate(times)]
        )
        attempt = ("login_hash", "failures", "last_at", "locked_until")
        await insert_rows(
            tx, login_attempts.login_attempt, attempt, [(f"h{n}", 1, at, at) for n, at in enumerate(times)]
        )
        line = ("at", "actor", "action", "target", "detail", "request_id", "address")
        rows = [(at, f"actor {n % 50}", f"action {n % 20}", "t", {}, "", "") for n, at in enumerate(times)]
        await insert_rows(tx, audit.audit_log, line, rows)
    if db.database_name == "postgresql":
        await look(db)
    return db


async def test_each_is_served_by_its_index_and_sorts_nothing(full: Db):
    for table, index, verb in VERBS:
        with recorded(full, table) as statements:
            async with full.tx() as tx:
                await verb(tx)
        assert statements
        steps = [step for statement in statements for step in await explain(full, *statement)]
        assert [step for step in steps if reads_a_whole_table(step) or sorts(step)] == [], (table, steps)
        assert any(index in step for step in steps), (table, steps)
