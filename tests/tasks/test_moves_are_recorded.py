"""Every move of a task leaves a row in the same transaction (decision 0019).

`task_pull` records pulls and how they ended, `task_change` every other change, and the audit log the removal of a whole
queue or project. A trigger of the database notes each change of `task.state`, whichever code makes it.
"""

from typing import Any

import pytest
from sqlalchemy import func, select, text

from penstock.kernel.db import Db
from penstock.tasks.domain import PULL
from penstock.tasks.store.tables import task, task_change, task_pull
from tests.tasks.conftest import PROJECT, TasksApi
from tests.tasks.records import audited

Move = tuple[str, str, str]  # task id, from, to
Rows = list[tuple[str, str]]  # task id, what is recorded

TRIGGERS = {
    "sqlite": [
        "CREATE TABLE moved (n INTEGER PRIMARY KEY, task_id TEXT, was TEXT, now TEXT)",
        "CREATE TRIGGER note_insert AFTER INSERT ON task BEGIN INSERT INTO moved (task_id, was, now) "
        "VALUES (NEW.task_id, 'idle', NEW.state); END",
        "CREATE TRIGGER note_update AFTER UPDATE OF state ON task WHEN OLD.state <> NEW.state BEGIN "
        "INSERT INTO moved (task_id, was, now) VALUES (NEW.task_id, OLD.state, NEW.state); END",
    ],
    "postgresql": [
        "CREATE TABLE moved (n SERIAL PRIMARY KEY, task_id TEXT, was TEXT, now TEXT)",
        "CREATE FUNCTION note_insert() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO moved (task_id, was, now) VALUES (NEW.task_id, ''idle'', NEW.state); RETURN NULL; END'",
        "CREATE FUNCTION note_update() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO moved (task_id, was, now) VALUES (NEW.task_id, OLD.state, NEW.state); RETURN NULL; END'",
        "CREATE TRIGGER note_insert AFTER INSERT ON task FOR EACH ROW EXECUTE FUNCTION note_insert()",
        "CREATE TRIGGER note_update AFTER UPDATE ON task FOR EACH ROW WHEN (OLD.state <> NEW.state) "
        "EXECUTE FUNCTION note_update()",
    ],
}


class Moves:
    """The moves since the last look, and what was recorded since then."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._seen = 0
        self._recorded: Rows = []

    async def watch(self) -> None:
        """Note every move from now on."""
        async with self._db.tx() as tx:
            for statement in TRIGGERS["postgresql" if self._db.on_postgres else "sqlite"]:
                await tx.conn.execute(text(statement))

    async def look(self) -> tuple[list[Move], Rows]:
        """What moved and what was recorded since the last look."""
        async with self._db.read() as tx:
            rows = (await tx.conn.execute(text("SELECT * FROM moved WHERE n > :n ORDER BY n"), {"n": self._seen})).all()
            recorded = await self._list_recorded(tx.conn)
        self._seen = rows[-1].n if rows else self._seen
        new = [row for row in recorded if row not in self._recorded]
        self._recorded = recorded
        return [(row.task_id, row.was, row.now) for row in rows if row.was != row.now], new

    async def _list_recorded(self, conn: Any) -> Rows:
        pull, change = task_pull.c, task_change.c
        outcome = func.coalesce(pull.outcome, "held")
        pulled = select(task.c.task_id, pull.id, outcome).join_from(task_pull, task, task.c.id == pull.task_pk)
        changed = select(change.task_id, change.kind, change.version)
        return [
            *((row[0], f"pull {row[1]} {row[2]}") for row in await conn.execute(pulled)),
            *((row[0], f"change {row[1]} {row[2]}") for row in await conn.execute(changed)),
        ]


@pytest.fixture
async def moves(api: TasksApi) -> Moves:
    moves = Moves(api.db)
    await moves.watch()
    return moves


async def step(api: TasksApi, name: str) -> None:
    """One step in the life of task `a`, by one verb."""
    post, status = {"taskId": "a", "name": "A", "prompt": "Do it."}, f"{PROJECT}/tasks/a/status"
    calls: dict[str, tuple[str, str, object]] = {
        "create": ("POST", f"{PROJECT}/queues/q1/tasks", post),
        "pull by id": ("POST", f"{PROJECT}/tasks/a/pull", None),
        "release": ("POST", f"{PROJECT}/tasks/a/pull/release", None),
        "reset the pull": ("POST", f"{PROJECT}/tasks/a/pull/reset", None),
        "edit": ("PUT", f"{PROJECT}/tasks/a", {"name": f"A {api.clock.now()}"}),
        "set a final status": ("PATCH", status, {"status": "done"}),
        "re-run": ("POST", f"{PROJECT}/tasks/a/re-run", None),
        "reset the queue": ("POST", f"{PROJECT}/queues/q1/reset", None),
        "delete": ("DELETE", f"{PROJECT}/tasks/a", None),
        "restore": ("POST", f"{PROJECT}/tasks/a/restore", None),
    }
    if name == "pull":
        assert await api.pull()
    elif name == "push":
        await api.submit({"id": "a", "status": "done"})
    elif name == "time out":
        api.clock.advance(seconds=3600)
        await api.run_periodic_tasks("time-out-pulls")
    else:
        method, path, body = calls[name]
        await api.data(method, path, body)


STEPS = [
    *("create", "pull", "release", "pull by id", "reset the pull", "pull", "time out", "pull", "edit", "pull", "push"),
    *("re-run", "set a final status", "reset the queue", "pull", "set a final status", "re-run", "pull", "delete"),
    *("restore", "delete", "restore", "pull", "reset the queue"),
]


async def test_every_move_leaves_its_row(api: TasksApi, moves: Moves):
    walked: set[tuple[str, str]] = set()
    for name in STEPS:
        await step(api, name)
        moved, recorded = await moves.look()
        assert moved, name
        assert {task_id for task_id, _, _ in moved} == {task_id for task_id, _ in recorded}, name
        for _, was, now in moved:
            walked.add((was, now))
            ends_a_pull = was == "held"
            begins_a_pull = now == "held"
            kinds = {what.split()[0] for _, what in recorded}
            assert kinds == ({"pull"} if begins_a_pull else {"pull", "change"} if ends_a_pull else {"change"}), name
    machine = {(was.value, to.value) for sources, to in PULL.verbs.values() for was in sources if was is not to}
    assert walked <= machine
    assert walked >= {("idle", "offered"), ("offered", "held"), ("held", "offered"), ("held", "closed")}


async def test_a_task_that_is_given_up_or_expires_leaves_its_row(api: TasksApi, moves: Moves):
    api = api.with_config(max_attempts=1)
    await api.plan("a")
    await api.plan("b", expires_at="2026-01-01T02:00:00Z")
    await api.pull("limit=1")
    await moves.look()
    api.clock.advance(seconds=3 * 3600)
    await api.run_periodic_tasks("time-out-pulls", "expire-tasks")
    moved, recorded = await moves.look()
    assert sorted(moved) == [("a", "held", "idle"), ("b", "offered", "idle")]
    assert sorted((task_id, what.split()[0], what.split()[2]) for task_id, what in recorded if "pull" in what) == [
        ("a", "pull", "timed_out")
    ]
    assert sorted(task_id for task_id, what in recorded if what.startswith("change")) == ["a", "b"]


@pytest.mark.parametrize(("path", "action"), [(f"{PROJECT}/queues/q1", "queue"), (PROJECT, "project")])
async def test_the_removal_of_a_queue_or_project_is_one_audit_line(api: TasksApi, moves: Moves, path: str, action: str):
    await api.plan("a", "b", "c", queue="q1")
    await api.pull("limit=1")
    await moves.look()
    await api.data("DELETE", path)
    moved, recorded = await moves.look()
    assert sorted((was, now) for _, was, now in moved) == [("held", "idle"), ("offered", "idle"), ("offered", "idle")]
    [ended] = recorded
    assert ended[1].endswith("revoked")
    [line] = await audited(api, f"tasks.delete_{action}")
    assert line.detail["tasks"] == 3
