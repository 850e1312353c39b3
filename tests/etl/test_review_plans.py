"""Every query on reviews and corrections uses an index on large tables, as the query plans show."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.etl.domain import EtlTask, Status
from penstock.etl.store import reviews
from penstock.etl.store.reviews import RuleFilter
from penstock.etl.store.tables import etl_correction, etl_review
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from tests.plans import explain, look, reads_a_whole_table, recorded, sorts

Verb = Callable[[Tx], Awaitable[object]]
ROWS = 6_000

WANTED = {
    "rule": RuleFilter(rule_id=3),
    "rule_user": RuleFilter(rule_id=3, user_id=7),
    "rule_version": RuleFilter(rule_id=3, version=2),
    "rule_user_version": RuleFilter(rule_id=3, user_id=7, version=2),
}


def corrections(of: RuleFilter) -> Verb:
    return lambda tx: reviews.list_of_rule(tx, of, before=ROWS // 2, limit=20)


def reviewed(of: RuleFilter) -> Verb:
    return lambda tx: reviews.list_reviews(tx, of, before=ROWS // 2, limit=20)


VERBS: dict[str, Verb] = {
    "a review": lambda tx: reviews.find_review(tx, task_id=7, run=1),
    "a correction": lambda tx: reviews.find_correction(tx, 7, 7),
    "what stands": lambda tx: reviews.list_active_corrections(tx, task_id=7, run=1),
    "of a task": lambda tx: reviews.list_of_task(tx, 7, before=ROWS, limit=20),
    "how many": lambda tx: reviews.count_of_task(tx, 7),
    "superseded": lambda tx: reviews.move_superseded(tx, [7, 8]),
    "withdrawn": lambda tx: reviews.move_withdrawn(tx, 9),
    "forgotten": lambda tx: reviews.delete_of_tasks(tx, [11, 12]),
}


@pytest.fixture
async def full(plan_db: Db) -> Db:
    """Reviews and corrections of twenty rules in five versions and a hundred users."""
    db = plan_db
    now = db.clock.now()
    said: list[tuple[Any, ...]] = []
    kept: list[tuple[Any, ...]] = []
    for n in range(ROWS):
        of = (n // 4, 1, n % 100, n // 7 % 20, n // 3 % 5)
        said.append((n, *of[1:], 1, 4, 1, {"/a": [4, 1]}, now))
        over = now if n % 10 == 0 else None
        kept.append((*of, "/a", "/a", "1", "2", False, now, "test", over, "test" if over else None))
    where = ("task_id", "run", "user_id", "rule_id", "rule_version")
    of_review = (*where, "revision", "looked_at", "corrected", "fields", "updated_at")
    of_correction = (
        *where, "pointer", "field", "original", "corrected", "confirms", "created_at", "created_by", "superseded_at",
        "ended_by",
    )  # fmt: skip
    async with db.tx() as tx:
        await insert_rows(tx, etl_review, of_review, said)
        await insert_rows(tx, etl_correction, of_correction, kept)
    if db.database_name == "postgresql":
        await look(db)
    return db


async def plan(db: Db, verb: Verb) -> list[str]:
    with recorded(db, "etl_(review|correction)") as statements:
        async with db.tx() as tx:
            await verb(tx)
    assert statements
    return [step for statement in statements for step in await explain(db, *statement)]


async def test_each_is_served_by_an_index(full: Db):
    for name, verb in VERBS.items():
        steps = await plan(full, verb)
        assert not [step for step in steps if reads_a_whole_table(step)], (name, steps)


async def test_lists_of_a_rule_walk_its_own_index_and_sort_nothing(full: Db):
    for name, of in WANTED.items():
        for table, verb in (("etl_correction", corrections(of)), ("etl_review", reviewed(of))):
            steps = await plan(full, verb)
            assert not [step for step in steps if sorts(step) or reads_a_whole_table(step)], (name, steps)
            assert any(f"ix_{table}_{name}" in step.split() for step in steps), (name, steps)


async def test_a_task_is_held_by_its_number(full: Db):
    now = full.clock.now()
    task = EtlTask(
        id=1, user_id=1, project_id=1, filename="a", s3_key="a", rule_id=1, rule_version=1, status=Status.COMPLETED,
        run=1, ocr_run=1, progress=100, created_at=now, updated_at=now,
    )  # fmt: skip
    with recorded(full, "etl_task") as statements:
        async with full.tx() as tx:
            assert not await reviews.claim_completed(tx, task)
    [statement] = statements
    assert not [step for step in await explain(full, *statement) if step.startswith("SCAN")]
