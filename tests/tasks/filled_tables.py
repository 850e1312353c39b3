"""Full tables for query plan tests: three projects, tasks in every state, pulls and a change feed."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import insert

from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import WriteBatch, insert_rows
from penstock.tasks.domain import Project, PullOutcome, PullState, Side, Status, Task, TaskQueue
from penstock.tasks.store import offers, projects, pulls, queues, tasks
from penstock.tasks.store.claims import HISTORY
from penstock.tasks.store.feed import NAMES as CHANGE
from penstock.tasks.store.tables import project, project_tag, queue, task_change, task_pull
from tests.plans import NOW

ROWS = 12_000
QUEUES = 4  # of each project; a fifth of its tasks is in none
RARE = 500  # one task in so many has the rare tag
STATES = (
    *[PullState.OFFERED] * 4,
    PullState.HELD,
    *[PullState.CLOSED] * 2,
    *[PullState.IDLE] * 3,
)
OVER = (Status.DONE, Status.ERROR, Status.CANCELLED)


def project_pk(number: int) -> str:
    """Half of everything is in the first project."""
    return f"prj_{max(1, number % 4)}"


def queue_pk(number: int) -> str:
    """The queue of a task, or ""."""
    place = number // 4 % (QUEUES + 1)
    return f"que_{project_pk(number)[4:]}_{place}" if place else ""


def status_of(number: int, state: PullState) -> Status:
    """Most offered tasks are pending."""
    if state is PullState.OFFERED:
        return Status.ERROR if number % 7 == 0 else Status.PENDING
    if state is PullState.HELD:
        return Status.RUNNING
    return OVER[number % 3] if state is PullState.CLOSED else list(Status)[number % 5]


def task(number: int) -> Task:
    """The task with that number; a larger number is younger."""
    state = STATES[number // 20 % 10]
    at, pulled = NOW + timedelta(seconds=number - ROWS), state in {PullState.HELD, PullState.CLOSED}
    side = Side.CLIENT if state in {PullState.IDLE, PullState.CLOSED} else Side.SERVER
    status, held, idle = status_of(number, state), state is PullState.HELD, state is PullState.IDLE
    return Task(
        id=f"tsk_{number:06}",
        partition_key=project_pk(number),
        queue_pk=queue_pk(number),
        queue_id=queue_pk(number)[4:],
        task_id=f"t{number}",
        name=f"Task {number}",
        prompt="Do it.",
        status=status,
        source=side,
        origin=Side.CLIENT if idle else Side.SERVER,
        state=state,
        priority=1 + number // 200 % 10,
        tags=["usual", *(["rare"] if number % RARE == 0 else [])],
        scheduled_at=at,
        lease_owner="worker" if pulled else None,
        lease_token=f"token {number}" if held else None,
        leased_until=at + timedelta(hours=1) if held else None,
        created_at=at,
        created_by="me",
        updated_at=at,
        updated_by="me",
        server_modified_at=None if idle else at,
        version=number,
        pulled_at=at if pulled else None,
        finished_at=at if status.is_final else None,
        expires_at=NOW + timedelta(seconds=number - ROWS // 2) if number % 50 == 1 else None,
        expired_at=at if idle and number % 3 == 0 else None,
        archived_at=at if idle and number % 25 == 4 else None,
        deleted_at=at if idle and number % 25 == 5 else None,
    )


async def fill(db: Db) -> None:
    """Fill all tables of the tasks module."""
    all_tasks = [task(number) for number in range(ROWS)]
    async with db.tx() as tx:
        await _insert_projects(tx)
        await tasks.insert_tasks(tx, all_tasks)
        await offers.insert_offer_tags(tx, all_tasks)
        await _insert_history(tx, all_tasks)


async def _insert_projects(tx: Tx) -> None:
    project_rows, tag_rows, queue_rows = [], [], []
    for number in range(1, 1001):
        at = NOW - timedelta(seconds=number)
        one = Project(
            id=f"prj_{number}",
            project_id=f"p{number}",
            name=f"P {number}",
            merchant_id=number % 100 + 1 if number % 2 else None,
            created_at=at,
            updated_at=at,
        )
        project_rows.append(projects.values_of(one))
        tag_rows += [(tag, one.id) for tag in (f"tag {number % 100}", "shared")]
    for pk in ("1", "2", "3"):
        for number in range(1, 301):
            at, name = NOW - timedelta(seconds=number), f"{pk}_{number}"
            one_queue = TaskQueue(
                id=f"que_{name}", project_pk=f"prj_{pk}", queue_id=name, name=name, created_at=at, updated_at=at
            )
            queue_rows.append(queues.values_of(one_queue))
    await tx.conn.execute(insert(project), project_rows)
    await insert_rows(tx, project_tag, ("tag", "project_pk"), tag_rows)
    await tx.conn.execute(insert(queue), queue_rows)


async def _insert_history(tx: Tx, all_tasks: Sequence[Task]) -> None:
    pulled = [one for one in all_tasks if one.pulled_at is not None]
    rows = [
        (one.partition_key, one.queue_pk, one.id, f"pull_{one.id}", f"token {one.id}", one.pulled_at, "worker", "key")
        for one in pulled
    ]
    await insert_rows(tx, task_pull, HISTORY, rows)
    writes = WriteBatch(tx)
    pulls.end_pulls(writes, [(one, PullOutcome.PUSHED, "worker") for one in pulled if not one.is_held])
    await writes.write()
    lines = [
        (
            one.partition_key,
            one.version,
            one.task_id,
            one.queue_id,
            "edited",
            one.status.value,
            None,
            "me",
            one.created_at,
        )
        for one in all_tasks
    ]
    await insert_rows(tx, task_change, CHANGE, lines)
