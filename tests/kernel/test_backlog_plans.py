"""Looks at the backlog, and claims by id, are served by an index however full the table is: the databases say so."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from penstock.kernel.backlog import SqlQueuePositions, list_module_backlogs, list_waiting_jobs
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue, NewJob
from tests.plans import Recorded, explain, reads_a_whole_table, recorded, sorts

ROWS = 5000


@pytest.fixture(params=[False, True], ids=["as_new", "looked_at"])
async def full(plan_db: Db, request: pytest.FixtureRequest) -> Db:
    """A job table with many waiting jobs in few modules, whose size the database knows or does not know."""
    async with plan_db.tx() as tx:
        await JobQueue().enqueue(
            tx, *(NewJob(kind="k", id=f"{n}", module=f"module{n % 3}", priority=n % 7) for n in range(ROWS))
        )
    if request.param:
        async with plan_db.autocommit() as tx:
            await tx.conn.execute(text("ANALYZE"))
    return plan_db


@contextmanager
def executed(db: Db) -> Iterator[Recorded]:
    """What SQLAlchemy executes during the block."""
    statements: Recorded = []

    def note(_conn: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        statements.append((statement, parameters))

    event.listen(db._reader.sync_engine, "before_cursor_execute", note)
    yield statements
    event.remove(db._reader.sync_engine, "before_cursor_execute", note)


async def steps_of(db: Db, statements: Recorded) -> list[str]:
    return [step for statement in statements for step in await explain(db, *statement)]


async def test_modules_and_pages_are_found_by_the_index_of_ready_jobs(full: Db):
    async with full.read() as tx:
        with executed(full) as statements:
            modules = await list_module_backlogs(tx)
            page = await list_waiting_jobs(tx, "module1", limit=100)
            await list_waiting_jobs(tx, "module1", after=page[-1], limit=100)
    assert len(modules) == 3
    said = [(statement, parameters) for statement, parameters in statements if "job" in statement]
    assert len(said) == 3
    for statement in said:
        steps = await steps_of(full, [statement])
        assert any("ix_job_ready" in step for step in steps), steps
        on_job = [step for step in steps if "job" in step]
        assert not [step for step in on_job if reads_a_whole_table(step)]
        assert not [step for step in steps if sorts(step)], steps


async def test_a_position_is_counted_in_the_index_of_ready_jobs_up_to_a_limit(full: Db):
    positions = SqlQueuePositions(full)
    async with full.read() as tx:
        [first, second] = await list_waiting_jobs(tx, "module1", limit=2)
    with executed(full) as statements:
        assert await positions.find_position("module1", first.id) == 1
        assert await positions.find_position("module1", second.id) == 2
        assert await positions.find_position("module1", "4990") is None  # of the last priority: more are ahead
    counts = [one for one in statements if "count" in one[0]]
    assert len(counts) == 3
    for statement in counts:
        steps = await steps_of(full, [statement])
        assert any("ix_job_ready" in step for step in steps), steps
        assert not [step for step in steps if sorts(step)], steps
    assert all("LIMIT" in statement for statement, _ in counts)


async def test_a_claim_by_id_looks_the_ids_up(full: Db):
    with recorded(full, "job") as statements:
        async with full.tx() as tx:
            assert await JobQueue().claim_ids(tx, ["1", "4", "7"], owner="w", seconds=60, module="module1")
    assert statements
    steps = await steps_of(full, statements)
    assert not [step for step in steps if reads_a_whole_table(step)], steps
    assert not [step for step in steps if "ix_job" in step], steps  # any of them would be walked over
