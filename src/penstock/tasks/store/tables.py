"""Tables of the tasks module.

Every list, filter and claim of tasks is served by an index. Partial indexes cover only offered or held tasks, so a pull
costs the same however many finished tasks there are. `task_offer_tag` has rows only while a task is offered.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    and_,
    literal_column,
)

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import metadata
from penstock.kernel.lease_sql import LeaseStates, lease_columns, lease_constraints
from penstock.tasks.domain import (
    UNPLACED,
    AlertRule,
    Operation,
    OperationKind,
    Policy,
    PullOutcome,
    PullState,
    Side,
    Status,
)

STATE_COUNTS = ("open_tasks", "closed_tasks", "idle_tasks")
DURATION_COLUMNS = ("under_1_minute", "under_5_minutes", "under_10_minutes", "over_10_minutes")
LEASE = LeaseStates(column="state", waiting=PullState.OFFERED, held=PullState.HELD)


def _one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    known = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({known})", name=column)


def _only(condition: ColumnElement[bool]) -> Any:
    """The options of a partial index."""
    return {"postgresql_where": condition, "sqlite_where": condition}


def _counts(prefix: str = "", names: Sequence[str] = tuple(Status)) -> list[Column[int]]:
    return [Column(f"{prefix}{name}", Integer, nullable=False, server_default="0") for name in names]


project = Table(
    "project",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("name", String, nullable=False),
    Column("custom_title", String),
    Column("notes", Text),
    Column("tags", Json, nullable=False),
    Column("search_text", Text, nullable=False),  # name and title, case folded
    Column("metadata_created_at", UtcTime),
    Column("metadata_updated_at", UtcTime),
    Column("username", String),
    Column("hostname", String),
    Column("project_path", String),
    Column("repository", String),
    Column("branch", String),
    Column("conflict_policy", String, nullable=False, server_default=Policy.OVERWRITE),
    Column("version", BigInteger, nullable=False, server_default="0"),
    Column("queue_count", Integer, nullable=False, server_default="0"),
    *_counts(),
    *_counts("unqueued_"),  # of these, those without a queue
    *_counts(names=STATE_COUNTS),
    Column("last_task_at", UtcTime),
    Column("active_at", UtcTime, nullable=False),  # last_task_at, or created_at: the sort order of lists
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    Column("merchant_id", BigInteger),  # the owner, whose tokens may use it; null for none
    _one_of("conflict_policy", Policy),
)
p = project.c
_project_is_active = p.deleted_at.is_(None)
Index("uq_project_project_id", p.project_id, unique=True, **_only(_project_is_active))
Index("ix_project_active", p.active_at, p.id, **_only(_project_is_active))
Index("ix_project_updated", p.updated_at)
_has_merchant = p.merchant_id.is_not(None)
Index("ix_project_merchant", p.merchant_id, **_only(_has_merchant))
_project_is_deleted = p.deleted_at.is_not(None)
Index("ix_project_deleted", p.deleted_at, **_only(_project_is_deleted))

project_tag = Table(
    "project_tag",
    metadata,
    Column("tag", Id, primary_key=True),
    Column("project_pk", Id, primary_key=True),
    Index("ix_project_tag_project", "project_pk"),
)

queue = Table(
    "queue",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_pk", Id, nullable=False),
    Column("queue_id", Id, nullable=False),
    Column("name", String, nullable=False),
    Column("search_text", Text, nullable=False),
    Column("meta", Json),
    *_counts(),
    *_counts(names=STATE_COUNTS),
    Column("last_task_at", UtcTime),
    Column("active_at", UtcTime, nullable=False),
    Column("last_reset_at", UtcTime),
    Column("last_operation", String),
    Column("last_operation_by", String),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    _one_of("last_operation", Operation),
)
q = queue.c
_queue_is_active = q.deleted_at.is_(None)
Index("uq_queue_queue_id", q.project_pk, q.queue_id, unique=True, **_only(_queue_is_active))
Index("ix_queue_active", q.project_pk, q.active_at, q.id, **_only(_queue_is_active))
Index("ix_queue_updated", q.project_pk, q.updated_at)
_queue_is_deleted = q.deleted_at.is_not(None)
Index("ix_queue_deleted", q.deleted_at, **_only(_queue_is_deleted))
Index("ix_queue_removed", q.project_pk, q.id, **_only(_queue_is_deleted))

task = Table(
    "task",
    metadata,
    Column("id", Id, primary_key=True),
    *lease_columns(),  # partition_key is the project's id; lease_owner is who pulled; lease_count is pulls since a push
    Column("queue_pk", Id, nullable=False, server_default=""),  # "" is no queue
    Column("queue_id", Id, nullable=False, server_default=""),
    Column("task_id", Id, nullable=False),
    Column("name", String, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("status", String, nullable=False),
    Column("source", String, nullable=False),
    Column("origin", String, nullable=False),
    Column("state", String, nullable=False),
    Column("spec_file", Json, nullable=False),
    Column("tags", Json, nullable=False),
    Column("report", Text),
    Column("result", Json),
    Column("result_schema", Json),
    Column("error_reason", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("updated_by", String, nullable=False),
    Column("server_modified_at", UtcTime),
    Column("version", BigInteger, nullable=False),
    Column("pulled_at", UtcTime),
    Column("confirmed_at", UtcTime),
    Column("pushed_at", UtcTime),
    Column("pushed_by", String),
    Column("status_at_pull", String),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("expires_at", UtcTime),
    Column("expired_at", UtcTime),
    Column("archived_at", UtcTime),
    Column("deleted_at", UtcTime),
    Column("message_count", Integer, nullable=False, server_default="0"),
    Column("log_count", Integer, nullable=False, server_default="0"),
    Column("position", Integer, nullable=False, server_default=str(UNPLACED)),  # in the last push of its queue
    _one_of("status", Status),
    _one_of("source", Side),
    _one_of("origin", Side),
    _one_of("state", PullState),
    CheckConstraint("priority BETWEEN 1 AND 11", name="priority"),  # 11: not set
    CheckConstraint(
        "state NOT IN ('offered', 'held') OR (deleted_at IS NULL AND archived_at IS NULL)", name="offered_lives"
    ),
    CheckConstraint("state <> 'offered' OR source = 'server'", name="offered_by_server"),
    CheckConstraint("(state IN ('held', 'closed')) = (pulled_at IS NOT NULL)", name="pulled_at"),
    *lease_constraints(LEASE),
)
t = task.c
# Constants, not parameters: a planner matches a partial index only against constants.
OFFERED = t.state == literal_column("'offered'")
# True of every offered task. A pull of any status says so, and only it may use the indexes without a status.
BY_SERVER = t.source == literal_column("'server'")
OF_ANY, IS_NAMED = and_(OFFERED, BY_SERVER), literal_column("task_pk != ''", Boolean)
HELD = t.state == literal_column("'held'")
IS_ACTIVE = and_(t.deleted_at.is_(None), t.archived_at.is_(None))
EXPIRING = and_(OFFERED, t.expires_at.is_not(None))
FINISHED = and_(t.finished_at.is_not(None), IS_ACTIVE)
Index("uq_task_identity", t.partition_key, t.task_id, t.queue_pk, unique=True)
_ranked = (t.partition_key, t.status, t.priority)
_ranges = {"created": t.created_at, "modified": t.server_modified_at, "version": t.version}
_ranked_here = (t.partition_key, t.queue_pk, t.status, t.priority)
for _name, _columns, _where in (
    ("offered_any", (t.partition_key, t.priority, t.scheduled_at, t.id), OF_ANY),
    ("offered_queue_any", (t.partition_key, t.queue_pk, t.priority, t.scheduled_at, t.id), OF_ANY),
    ("offered", (*_ranked, t.scheduled_at, t.id), OFFERED),
    ("offered_queue", (*_ranked_here, t.scheduled_at, t.id), OFFERED),
    *((f"offered_{name}", (*_ranked, column, t.id), OFFERED) for name, column in _ranges.items()),
    *((f"offered_queue_{name}", (*_ranked_here, column, t.id), OFFERED) for name, column in _ranges.items()),
    ("held", (t.leased_until,), HELD),
    ("pending", (t.partition_key, t.pulled_at, t.id), HELD),
    ("expiring", (t.expires_at,), EXPIRING),
    ("expired", (t.expired_at,), and_(t.expired_at.is_not(None), IS_ACTIVE)),
    ("list", (t.partition_key, t.queue_pk, t.id), IS_ACTIVE),
    ("list_status", (t.partition_key, t.queue_pk, t.status, t.id), IS_ACTIVE),
    ("placed", (t.partition_key, t.queue_pk, t.position, t.id), IS_ACTIVE),
    ("placed_status", (t.partition_key, t.queue_pk, t.status, t.position, t.id), IS_ACTIVE),
    ("list_state", (t.partition_key, t.queue_pk, t.state, t.position, t.id, t.origin), IS_ACTIVE),
    ("any", (t.partition_key, t.id), IS_ACTIVE),
    ("any_status", (t.partition_key, t.status, t.id), IS_ACTIVE),
    ("any_state", (t.partition_key, t.state, t.id, t.origin), IS_ACTIVE),
    ("finished", (t.partition_key, t.status, t.finished_at), FINISHED),
    ("finished_any", (t.status, t.finished_at), FINISHED),
):
    Index(f"ix_task_{_name}", *_columns, **_only(_where))
Index("ix_task_place", t.partition_key, t.queue_pk)  # deleted and archived tasks too: a queue is removed as a whole

# The texts of active tasks, in a narrow table of their own: a search reads all texts of a queue, and nothing else.
task_search = Table(
    "task_search",
    metadata,
    Column("project_pk", Id, primary_key=True),
    Column("queue_pk", Id, primary_key=True),
    Column("task_pk", Id, primary_key=True),
    Column("search_text", Text, nullable=False),  # task id and name, case folded
    Index("ix_task_search_task", "task_pk"),
    sqlite_with_rowid=False,  # the rows are stored in the order of a search
)

task_offer_tag = Table(
    "task_offer_tag",
    metadata,
    Column("task_pk", Id, primary_key=True),
    Column("tag", Id, primary_key=True),
    Column("project_pk", Id, nullable=False),
    Column("status", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("scheduled_at", UtcTime, nullable=False),
    Index("ix_task_offer_tag_due", "project_pk", "tag", "status", "priority", "scheduled_at", "task_pk"),
    Index("ix_task_offer_tag_any", "project_pk", "tag", "priority", "scheduled_at", "task_pk", **_only(IS_NAMED)),
)

task_pull = Table(
    "task_pull",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("project_pk", Id, nullable=False),
    Column("queue_pk", Id, nullable=False),
    Column("task_pk", Id, nullable=False),
    Column("pull_id", Id, nullable=False),  # shared by the tasks of one pull request
    Column("lease_token", String, nullable=False),
    Column("pulled_at", UtcTime, nullable=False),
    Column("pulled_by", String, nullable=False),
    Column("actor", String, nullable=False),  # the API key of that client
    Column("confirmed_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("ended_by", String),
    Column("outcome", String),
    Column("seconds", Float),  # from the pull to its end
    _one_of("outcome", PullOutcome),
    CheckConstraint("(ended_at IS NULL) = (outcome IS NULL)", name="ended"),
)
tp = task_pull.c
_open = tp.ended_at.is_(None)
# One open pull per task: pulls of one task never overlap, because the database itself rejects a second holder.
Index("uq_task_pull_open", tp.task_pk, unique=True, **_only(_open))
Index("ix_task_pull_task", tp.task_pk, tp.id)
Index("ix_task_pull_pull", tp.pull_id)
# Covering indexes for statistics, which count the latest pulls.
Index("ix_task_pull_latest", tp.project_pk, tp.id, tp.outcome, tp.pulled_by, tp.seconds)
Index("ix_task_pull_latest_queue", tp.project_pk, tp.queue_pk, tp.id, tp.outcome, tp.pulled_by, tp.seconds)
_ended = tp.ended_at.is_not(None)
Index("ix_task_pull_ended", tp.ended_at, **_only(_ended))

task_message = Table(
    "task_message",
    metadata,
    Column("task_pk", Id, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("role", String, nullable=False),
    Column("content", Text, nullable=False),
    Column("session_id", String),
    Column("created_at", UtcTime, nullable=False),
)
task_log = Table(
    "task_log",
    metadata,
    Column("task_pk", Id, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("content", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

task_change = Table(
    "task_change",
    metadata,
    Column("project_pk", Id, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("task_id", Id, nullable=False),
    Column("queue_id", Id, nullable=False),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("holder", String),  # who held the task at the time
    Column("by", String, nullable=False),
    Column("at", UtcTime, nullable=False),
    Index("ix_task_change_at", "at"),
)

task_execution = Table(  # executions per hour: tasks that clients reported as done or failed
    "task_execution",
    metadata,
    Column("project_pk", Id, primary_key=True),
    Column("hour", UtcTime, primary_key=True),
    Column("queue_id", Id, primary_key=True),
    Column("hostname", Id, primary_key=True),
    Column("kind", Id, primary_key=True),  # success, or the type of the error
    Column("count", Integer, nullable=False),
    Column("milliseconds", BigInteger, nullable=False),  # in all
    Column("shortest", BigInteger, nullable=False),
    Column("longest", BigInteger, nullable=False),
    *(Column(name, Integer, nullable=False) for name in DURATION_COLUMNS),
    Index("ix_task_execution_hour", "hour"),
)

task_day = Table(  # the tasks of a project by status, after its last execution of each day
    "task_day",
    metadata,
    Column("project_pk", Id, primary_key=True),
    Column("day", UtcTime, primary_key=True),
    *_counts(),
    Index("ix_task_day_day", "day"),
)

task_operation = Table(
    "task_operation",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_pk", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    Column("queue_pk", Id, nullable=False),
    Column("queue_id", Id, nullable=False),
    Column("kind", String, nullable=False),
    Column("by", String, nullable=False),
    Column("total", Integer, nullable=False),
    Column("done", Integer, nullable=False),
    Column("affected", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("cursor", Id, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Index("ix_task_operation_project", "project_pk", "id"),
    _one_of("kind", OperationKind),
    CheckConstraint("status IN ('running', 'completed', 'cancelled')", name="status"),
    CheckConstraint("(status = 'running') = (ended_at IS NULL)", name="ended"),
)
op = task_operation.c
OPERATION_IS_OPEN = op.ended_at.is_(None)
Index("ix_task_operation_open", op.queue_pk, **_only(OPERATION_IS_OPEN))
_operation_is_over = op.ended_at.is_not(None)
Index("ix_task_operation_ended", op.ended_at, **_only(_operation_is_over))

task_alarm = Table(
    "task_alarm",
    metadata,
    Column("project_pk", Id, primary_key=True),
    Column("rule", Id, primary_key=True),
    Column("since", UtcTime, nullable=False),
    Column("value", Float, nullable=False),  # the value that raised the alert
    _one_of("rule", AlertRule),
)

task_review = Table(
    "task_review",
    metadata,
    Column("request", Id, primary_key=True),  # the request's id, as its sender names it
    Column("origin", Id, nullable=False),  # what the question is about: "etl:42"
    Column("task_pk", Id),  # NULL: withdrawn before the request was delivered
    Column("created_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),  # answered, refused, or withdrawn
)
tr = task_review.c
_review_is_open = tr.ended_at.is_(None)
Index("uq_task_review_task", tr.task_pk, unique=True, **_only(_review_is_open))
_review_has_ended = tr.ended_at.is_not(None)
Index("ix_task_review_ended", tr.ended_at, **_only(_review_has_ended))
