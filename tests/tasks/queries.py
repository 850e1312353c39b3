"""Every query of the tasks module, each with the index it should use."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import literal, select

from penstock.access.domain import Caller, ProjectAccess, Scope
from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch
from penstock.kernel.leases import EPOCH
from penstock.kernel.scheduler import Condition
from penstock.tasks.domain import PullOutcome, PullState, Status, Task
from penstock.tasks.store import (
    claims,
    executions,
    expiry,
    feed,
    locations,
    projects,
    pulls,
    queues,
    statistics,
    task_lists,
    task_messages,
    tasks,
)
from penstock.tasks.store.claims import ClaimTime, LeaseGrant
from penstock.tasks.store.executions import ExecutionScope
from penstock.tasks.store.offers import PullFilter, ValueRange
from penstock.tasks.store.task_lists import KnownTotals, TaskListFilter
from penstock.tasks.store.tasks import QueueScope
from tests.plans import NOW
from tests.tasks.filled_tables import ROWS, task

FEW = 10
PRIMARY = r"(pk_\w+|sqlite_autoindex_\w+|INTEGER PRIMARY KEY)"
HERE = QueueScope(project_pk="prj_1", queue_pk="que_1_2")
BESIDE = QueueScope(project_pk="prj_1", queue_pk="")
ANYWHERE = QueueScope(project_pk="prj_1")
CALLER = Caller(name="me", user_id=1, scope=Scope.READ, key_id="k")
HAND = LeaseGrant(caller=CALLER, owner="me", limit=FEW, token="token", pull_id="pull")
ONE = ProjectAccess(ids=frozenset({"p7"}))
MERCHANT = ProjectAccess(ids=frozenset({"p7"}), merchant_id=12)
MOMENT = ClaimTime(project_id="p1", now=NOW, until=NOW + timedelta(hours=1))
UNPULLED = (PullState.IDLE, PullState.OFFERED)

Run = Callable[[Tx], Awaitable[object]]


@dataclass(frozen=True, kw_only=True)
class PlanQuery:
    """A query and its index. `whole`: it has to read all rows of its scope, because it counts, searches or sums.

    `unseen` is the index that is acceptable while PostgreSQL has no statistics of full tables yet.
    """

    name: str
    index: str
    run: Run
    whole: bool = False
    unseen: str | None = None
    most_rows: int = 250  # read by each of its statements, of thousands


def moment(number: int) -> datetime:
    """When the task with that number was created."""
    return NOW + timedelta(seconds=number - ROWS)


def _asks(need: Condition) -> Run:
    moments = literal(EPOCH, UtcTime), literal(NOW, UtcTime)
    return lambda tx: tx.conn.scalar(select(need(*moments)))


def _claims() -> Iterator[PlanQuery]:
    spans = {name: ValueRange(start=moment(9000), end=moment(9100)) for name in ("created", "modified")}
    spans["version"], since = ValueRange(start=9000, end=9100), ValueRange(start=moment(9000))
    kinds = {
        "anything": ("ix_task_offered", PullFilter(project_pk="prj_1")),
        "tagged": ("ix_task_offer_tag_due", PullFilter(project_pk="prj_1", tags=("rare",))),
        "tagged twice": ("ix_task_offer_tag_due", PullFilter(project_pk="prj_1", tags=("usual", "rare"))),
        "tagged and new": ("ix_task_offer_tag_due", PullFilter(project_pk="prj_1", tags=("rare",), created=since)),
        "created": ("ix_task_offered_created", PullFilter(project_pk="prj_1", created=spans["created"])),
        "modified": ("ix_task_offered_modified", PullFilter(project_pk="prj_1", modified=spans["modified"])),
        "of a version": ("ix_task_offered_version", PullFilter(project_pk="prj_1", version=spans["version"])),
        "since": ("ix_task_offered_modified", PullFilter(project_pk="prj_1", modified=since)),
        "before": ("ix_task_offered_created", PullFilter(project_pk="prj_1", created=ValueRange(end=moment(9000)))),
    }
    asked: dict[str, dict[str, Any]] = {
        "": {},
        " pending": {"statuses": (Status.PENDING,)},
        " of some ranks": {"first_rank": 3, "last_rank": 5},
    }
    for name, (index, wanted) in kinds.items():
        for place, queue_pk in (("", None), (" in a queue", "que_1_2")):
            for words, more in (asked | {" in error": {"statuses": (Status.ERROR,)}}).items():
                its = index.replace("ix_task_offered", "ix_task_offered_queue") if queue_pk else index
                if "statuses" not in more and its.endswith(("_offered", "_offered_queue", "_due")):
                    its = f"{its.removesuffix('_due')}_any"
                run, most = _claim(replace(wanted, queue_pk=queue_pk, **more)), 250 * max(1, len(wanted.tags))
                yield PlanQuery(name=f"claim {name}{words}{place}", index=its, run=run, most_rows=most)


def _claim(wanted: PullFilter) -> Run:
    return lambda tx: claims.claim_offered(tx, wanted, [HAND], MOMENT)


def _lists() -> Iterator[PlanQuery]:
    for place, kind, where in (
        ("a queue", "placed", HERE),
        ("no queue", "placed", BESIDE),
        ("a project", "any", ANYWHERE),
    ):
        some = r"ix_task_(list|any|place|pending)\w*"
        state = (
            "ix_task_list_state" if kind == "placed" else "ix_task_(any|list)_state"
        )  # both have few rows of a state
        for name, index, which, whole in (
            ("all", f"ix_task_{kind}", TaskListFilter(where=where), False),
            ("one status", f"ix_task_{kind}_status", TaskListFilter(where=where, status=Status.CANCELLED), False),
            ("held", state, TaskListFilter(where=where, states=(PullState.HELD,)), False),
            ("unpulled", state, TaskListFilter(where=where, states=UNPULLED), False),
        ):
            yield PlanQuery(name=f"list {name} in {place}", index=index, run=_list(which), whole=whole, unseen=some)
            yield PlanQuery(name=f"count {name} in {place}", index=some, run=_count(which), whole=True)
        for words, search in (
            ("found by name", TaskListFilter(where=where, search="task 77")),
            ("found by name in a status", TaskListFilter(where=where, search="task 77", status=Status.DONE)),
        ):
            texts = (
                r"(pk_task_search|SEARCH task_search USING (COVERING INDEX sqlite_autoindex_task_search_1|PRIMARY KEY))"
            )
            yield PlanQuery(name=f"list {words} in {place}", index=texts, run=_search(search), whole=True)
        last = TaskListFilter(where=where)
        yield PlanQuery(name=f"list the last in {place}", index=f"ix_task_{kind}", run=_last(last), unseen=some)


def _executions() -> Iterator[PlanQuery]:
    for place, project_pk, index in (
        ("a project", "prj_1", r"(pk_task_(execution|day)|sqlite_autoindex_task_(execution|day)_1)"),
        ("all projects", None, r"ix_task_(execution_hour|day_day)"),
    ):
        scope = ExecutionScope(project_pk=project_pk, start=NOW - timedelta(days=1), end=NOW)
        for name, run in (
            ("hours", executions.sum_by_hour),
            ("queues", executions.sum_by_queue),
            ("errors", executions.sum_errors),
            ("durations", executions.sum_durations),
            ("days", executions.list_days),
        ):
            yield PlanQuery(name=f"{name} of executions of {place}", index=index, run=_with(run, scope), whole=True)


def _with(count: Callable[[Tx, ExecutionScope], Awaitable[object]], scope: ExecutionScope) -> Run:
    return lambda tx: count(tx, scope)


def _list(which: TaskListFilter) -> Run:
    return lambda tx: task_lists.list_tasks(tx, which, total=None, offset=FEW, limit=FEW)


def _last(which: TaskListFilter) -> Run:
    return lambda tx: task_lists.list_tasks(tx, which, total=1000, offset=1000 - FEW, limit=FEW)


def _search(which: TaskListFilter) -> Run:
    return lambda tx: task_lists.list_page(tx, which, KnownTotals(), offset=0, limit=FEW)


def _count(which: TaskListFilter) -> Run:
    return lambda tx: task_lists.count_tasks(tx, which)


NAMES = [f"t{number}" for number in range(0, 400, 4)]
PKS = [f"tsk_{number:06}" for number in range(0, 40, 4)]
HELD = [one for one in map(task, range(0, 400, 4)) if one.state is PullState.HELD]
OFFERED = [one for one in map(task, range(0, 400, 4)) if one.state is PullState.OFFERED]


def _holds(tx: Tx) -> list[tuple[object, ...]]:
    """Values in the order of HOLD_NAMES."""
    return [(one.id, "held", "me", "token", tx.now, 1, tx.now, one.status.value) for one in OFFERED]


def _written(put: Callable[[WriteBatch], None]) -> Run:
    async def run(tx: Tx) -> None:
        writes = WriteBatch(tx)
        put(writes)
        await writes.write()

    return run


def _moved(one: Task) -> Task:
    return replace(one, name="Another")


TASKS = [
    PlanQuery(
        name="namesakes",
        index="uq_task_identity",
        run=lambda tx: tasks.list_by_task_id(tx, "prj_1", NAMES),
        unseen="(uq_task_identity|ix_task_place)",
    ),
    PlanQuery(
        name="claim namesakes",
        index="uq_task_identity",
        run=lambda tx: tasks.claim_by_task_id(tx, "prj_1", NAMES),
        unseen="(uq_task_identity|ix_task_place)",
    ),
    PlanQuery(
        name="move tasks",
        index=PRIMARY,
        run=_written(lambda writes: tasks.move_tasks(writes, [(one, _moved(one)) for one in OFFERED])),
    ),
    PlanQuery(name="lock by our id", index=PRIMARY, run=lambda tx: tasks.claim_by_pk(tx, PKS)),
    PlanQuery(
        name="claim pushed tasks elsewhere",
        index="uq_task_identity",
        run=lambda tx: tasks.claim_elsewhere(tx, HERE, NAMES),
        unseen="(uq_task_identity|ix_task_place)",
    ),
    PlanQuery(
        name="pulls that a client lost",
        index="ix_task_pull_task",
        run=lambda tx: pulls.list_lost_by(tx, "me", PKS),
    ),
    PlanQuery(name="touch tasks", index=PRIMARY, run=lambda tx: tasks.touch_tasks(tx, PKS, by="me")),
    PlanQuery(
        name="place tasks",
        index=PRIMARY,
        run=lambda tx: tasks.place_tasks(tx, [(pk, number) for number, pk in enumerate(PKS)]),
    ),
    PlanQuery(name="touch a queue", index=PRIMARY, run=lambda tx: queues.touch_queue(tx, "que_1_2")),
    *_executions(),
    PlanQuery(name="claim by our id", index=PRIMARY, run=lambda tx: claims.claim_offered_by_pk(tx, PKS, HAND, MOMENT)),
    PlanQuery(
        name="claim a part of a queue",
        index="ix_task_list",
        run=lambda tx: tasks.claim_page(tx, HERE, after="tsk_010000", limit=FEW),
        unseen=r"ix_task_(list\w*|place)",
    ),
    PlanQuery(
        name="claim a part of the errors of a queue",
        index="ix_task_list_status",
        run=lambda tx: tasks.claim_page(tx, HERE, after="tsk_010000", limit=FEW, also=tasks.in_status(Status.ERROR)),
        unseen=r"ix_task_(list\w*|place)",
    ),
    PlanQuery(name="lapsed leases", index="ix_task_held", run=expiry.list_expired_leases, whole=True),
    PlanQuery(name="expiring", index="ix_task_expiring", run=expiry.list_expiring, whole=True),
    PlanQuery(name="expired", index="ix_task_expired", run=expiry.list_expired, whole=True),
    PlanQuery(name="any lapsed lease", index="ix_task_held", run=_asks(expiry.LEASES.has_expired)),
    PlanQuery(name="any expiring", index="ix_task_expiring", run=_asks(expiry.has_expiring)),
    PlanQuery(name="any expired", index="ix_task_expired", run=_asks(expiry.has_expired_tasks)),
    PlanQuery(
        name="held for long",
        index="ix_task_pending",
        run=lambda tx: statistics.list_held(tx, "prj_1", pulled_before=moment(300), offset=0, limit=FEW),
    ),
    PlanQuery(name="messages", index=PRIMARY, run=lambda tx: task_messages.list_messages(tx, PKS[0])),
    PlanQuery(name="log", index=PRIMARY, run=lambda tx: task_messages.list_log(tx, PKS[0])),
]
PLACES = [
    PlanQuery(name="find a project", index="uq_project_project_id", run=lambda tx: projects.find_project(tx, "p7")),
    PlanQuery(name="claim a project", index="uq_project_project_id", run=lambda tx: projects.claim_project(tx, "p7")),
    PlanQuery(
        name="place of a pull", index="uq_project_project_id", run=lambda tx: locations.get_location(tx, "p1", "1_2")
    ),
    PlanQuery(
        name="list projects", index="ix_project_active", run=lambda tx: projects.list_projects(tx, offset=0, limit=FEW)
    ),
    PlanQuery(
        name="list one project",
        index="uq_project_project_id",
        run=lambda tx: projects.list_projects(tx, only=ONE, offset=0, limit=FEW),
    ),
    PlanQuery(
        name="list projects of a merchant",
        index="ix_project_merchant",
        run=lambda tx: projects.list_projects(tx, only=MERCHANT, offset=0, limit=FEW),
    ),
    PlanQuery(
        name="count projects of a merchant",
        index="ix_project_merchant",
        run=lambda tx: projects.count_projects(tx, only=MERCHANT),
    ),
    PlanQuery(
        name="tags of projects of a merchant",
        index="ix_project_merchant",
        run=lambda tx: projects.list_tags(tx, only=MERCHANT, limit=FEW),
    ),
    PlanQuery(
        name="merchant of a project", index="uq_project_project_id", run=lambda tx: projects.find_merchant(tx, "p7")
    ),
    PlanQuery(
        name="list projects by tags",
        index=PRIMARY,
        run=lambda tx: projects.list_projects(tx, tags=["shared", "tag 7"], offset=0, limit=FEW),
        whole=True,
    ),
    PlanQuery(
        name="search projects",
        index=r"(ix_project_active|uq_project_project_id)",
        run=lambda tx: projects.list_projects(tx, search="p 77", offset=0, limit=FEW),
        whole=True,
    ),
    PlanQuery(
        name="count projects",
        index=r"(ix_project_active|uq_project_project_id)",
        run=projects.count_projects,
        whole=True,
    ),
    PlanQuery(
        name="tags of projects",
        index=PRIMARY,
        run=lambda tx: projects.list_tags(tx, only=None, limit=FEW),
        whole=True,
    ),
    PlanQuery(
        name="tags of one project",
        index="ix_project_tag_project",
        run=lambda tx: projects.list_tags(tx, only=ONE, limit=FEW),
    ),
    PlanQuery(
        name="last change of projects",
        index="ix_project_updated",
        run=lambda tx: projects.find_last_change(tx, only=None),
    ),
    PlanQuery(
        name="last change of one project",
        index="uq_project_project_id",
        run=lambda tx: projects.find_last_change(tx, only=ONE),
    ),
    PlanQuery(
        name="list queues",
        index="ix_queue_active",
        run=lambda tx: queues.list_queues(tx, "prj_1", offset=0, limit=FEW),
    ),
    PlanQuery(
        name="search queues",
        index=r"(ix_queue_active|uq_queue_queue_id)",
        run=lambda tx: queues.list_queues(tx, "prj_1", search="77", offset=0, limit=FEW),
        whole=True,
    ),
    PlanQuery(
        name="count queues",
        index=r"(ix_queue_active|uq_queue_queue_id)",
        run=lambda tx: queues.count_queues(tx, "prj_1", search="7"),
        whole=True,
    ),
    PlanQuery(
        name="last change of queues", index="ix_queue_updated", run=lambda tx: queues.find_last_change(tx, "prj_1")
    ),
    PlanQuery(
        name="queues by our id", index=PRIMARY, run=lambda tx: queues.list_queues_by_pk(tx, ["que_1_2", "que_1_3"])
    ),
]
HISTORY = [
    PlanQuery(
        name="changes",
        index=PRIMARY,
        run=lambda tx: feed.list_changes(tx, "prj_1", after=9000, upto=ROWS, limit=FEW),
    ),
    PlanQuery(name="oldest change", index=PRIMARY, run=lambda tx: feed.find_oldest_version(tx, "prj_1")),
    PlanQuery(
        name="forget changes", index="ix_task_change_at", run=lambda tx: feed.delete_changes(tx, before=NOW, limit=FEW)
    ),
    PlanQuery(
        name="pulls of a task",
        index="ix_task_pull_task",
        run=lambda tx: pulls.list_pulls(tx, PKS[0], offset=0, limit=FEW),
    ),
    PlanQuery(
        name="count pulls of a task",
        index=r"(ix_task_pull_task|uq_task_pull_open)",
        run=lambda tx: pulls.count_pulls(tx, PKS[0]),
    ),
    PlanQuery(
        name="end pulls",
        index="uq_task_pull_open",
        run=_written(lambda writes: pulls.end_pulls(writes, [(one, PullOutcome.REVOKED, "me") for one in HELD])),
        unseen="uq_task_pull_open",
    ),
    PlanQuery(
        name="confirm pulls",
        index="uq_task_pull_open",
        run=lambda tx: pulls.confirm_pulls(tx, [one.id for one in HELD]),
    ),
    PlanQuery(
        name="forget pulls",
        index="ix_task_pull_ended",
        run=lambda tx: pulls.delete_old_pulls(tx, before=NOW + timedelta(days=1), limit=FEW),
    ),
]
QUERIES = [*_claims(), *_lists(), *TASKS, *PLACES, *HISTORY]
