"""Every query on rules uses an index on large tables, as the query plans show."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.access.domain import Caller, Scope
from penstock.etl.store import rules
from penstock.etl.store.tables import etl_rule, etl_rule_version
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from tests.plans import explain, look, reads_a_whole_table, recorded

Verb = Callable[[Tx], Awaitable[object]]
ROWS = 20_000
ANNA = Caller(name="anna", user_id=5, scope=Scope.WRITE)
ROOT = Caller(name="root", user_id=1, scope=Scope.ADMIN)

VERBS: dict[str, Verb] = {
    "one": lambda tx: rules.find_rule(tx, 7),
    "one of theirs": lambda tx: rules.find_rule_for(tx, ANNA, 7),
    "held": lambda tx: rules.claim_rule(tx, ANNA, 6),
    "a version": lambda tx: rules.get_rule_version(tx, 7, 1),
    "versions": lambda tx: rules.list_versions(tx, 7, limit=20, offset=0),
    "of a user": lambda tx: rules.list_rules(tx, ANNA, limit=20, offset=0),
    "of a user and the default": lambda tx: rules.list_rules(tx, ANNA, limit=20, offset=0, default_id=6),
    "of all": lambda tx: rules.list_rules(tx, ROOT, limit=20, offset=0),
    "how many": lambda tx: rules.count_rules_of(tx, 5, limit=1000),
    "of a file": lambda tx: rules.find_rule_of_file(tx, "200.json"),
    "files": lambda tx: rules.list_files(tx, limit=1000),
}


@pytest.fixture
async def full(plan_db: Db) -> Db:
    """Twenty thousand rules, a hundred per user, and a few system rules."""
    db = plan_db
    now = db.clock.now()
    kept: list[tuple[Any, ...]] = []
    for n in range(1, ROWS + 1):
        is_file = n % 200 == 0
        kept.append((n, None if is_file else n % 200, f"{n}", 1, f"{n}.json" if is_file else None, now, now))
    said = [(n, 1, {"name": f"{n}"}, now, "test") for n in range(1, ROWS + 1)]
    async with db.tx() as tx:
        await insert_rows(tx, etl_rule, ("id", "user_id", "name", "version", "file", "created_at", "updated_at"), kept)
        await insert_rows(tx, etl_rule_version, ("rule_id", "version", "body", "created_at", "created_by"), said)
    if db.database_name == "postgresql":
        await look(db)
    return db


async def test_each_is_served_by_an_index(full: Db):
    for name, verb in VERBS.items():
        with recorded(full, "etl_rule") as statements:
            async with full.tx() as tx:
                await verb(tx)
        assert statements, name
        steps = [step for statement in statements for step in await explain(full, *statement)]
        if name == "of all" and "SCAN etl_rule" in steps:  # by its key, and no further than the page
            continue
        bad = [step for step in steps if reads_a_whole_table(step) and "etl_rule" in step]
        assert bad == [], (name, steps)
