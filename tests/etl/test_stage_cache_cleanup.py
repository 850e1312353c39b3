"""Cache entries expire, are deleted with their task, and are found by an index."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock.etl import remove, worker
from penstock.etl.api import actions
from penstock.etl.domain import Phase
from penstock.etl.store import tasks
from penstock.etl.store.tables import etl_memory
from penstock.etl.store.tasks import CachedStage
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from tests.etl.harness import ANNA, EtlHarness, on_both_profiles
from tests.plans import explain, look, reads_a_whole_table, recorded, sorts

ROWS = 20_000
COLUMNS = ("user_id", "key", "stage", "task_id", "run", "made_at")
VERBS: dict[str, Callable[[Tx], Awaitable[object]]] = {
    "one": lambda tx: tasks.find_cached_stage(tx, 7, key_of(7)),
    "of tasks": lambda tx: tasks.delete_cached_stages(tx, [7, 8, 9]),
    "old ones": lambda tx: tasks.delete_old_cached_stages(tx, before=tx.now - timedelta(days=1), limit=100),
}


def key_of(number: int) -> str:
    return f"{number:064x}"


async def remember(db: Db, number: int, *, days_ago: float) -> CachedStage:
    """An entry of this age."""
    async with db.tx() as tx:
        made_at = tx.now - timedelta(days=days_ago)
        new = CachedStage(user_id=5, key=key_of(number), stage=Phase.OCR, task_id=number, run=1, made_at=made_at)
        await tasks.insert_cached_stage(tx, new)
    return new


async def test_a_key_has_one_row_and_the_latest_stands(db: Db):
    first = await remember(db, 7, days_ago=3)
    later = replace(first, task_id=9, run=2, made_at=db.clock.now())
    async with db.tx() as tx:
        await tasks.insert_cached_stage(tx, later)
    async with db.read() as tx:
        assert await tasks.find_cached_stage(tx, 5, first.key) == later
        assert await tasks.find_cached_stage(tx, 6, first.key) is None


@on_both_profiles
async def test_what_is_old_is_forgotten_in_bites_and_what_is_young_stays(harness: EtlHarness):
    harness.set(history_days=30)
    for number in range(remove.BATCH + 5):
        await remember(harness.db, number, days_ago=31)
    await remember(harness.db, 4711, days_ago=29)
    async with harness.db.tx() as tx:
        old = tx.now - timedelta(days=30)
        assert await tasks.delete_old_cached_stages(tx, before=old, limit=3) == 3
    await worker.remove_expired(harness.deps)
    assert await harness.count(etl_memory) == 1


@on_both_profiles
async def test_what_is_known_of_a_task_goes_in_the_transaction_that_removes_it(harness: EtlHarness):
    task, other = await harness.submit(), await harness.submit("b.txt")
    await harness.work()
    assert await harness.count(etl_memory) == 2
    await actions.delete_task(harness.deps, ANNA, task.id)  # its objects are there still
    async with harness.db.read() as tx:
        assert (await tx.conn.scalars(etl_memory.select().with_only_columns(etl_memory.c.task_id))).all() == [other.id]
    harness.clock.advance(seconds=86400 * 400)
    await worker.remove_expired(harness.deps)
    assert await harness.count(etl_memory) == 0


async def test_each_look_is_served_by_an_index(db: Db):
    now = db.clock.now()
    rows: list[tuple[Any, ...]] = [
        (n % 200, key_of(n), "ocr", n, 1, now + timedelta(minutes=n - ROWS / 2)) for n in range(ROWS)
    ]
    async with db.tx() as tx:
        await insert_rows(tx, etl_memory, COLUMNS, rows)
    if db.database_name == "postgresql":
        await look(db)
    for name, verb in VERBS.items():
        with recorded(db, "etl_memory") as statements:
            async with db.tx() as tx:
                await verb(tx)
        assert statements, name
        steps = [step for statement in statements for step in await explain(db, *statement)]
        bad = [step for step in steps if sorts(step) or (reads_a_whole_table(step) and "etl_memory" in step)]
        assert bad == [], (name, steps)
