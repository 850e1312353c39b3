"""Tables of the tasks module.

`task` holds every task of every project. Every list, filter and claim is served by an index, so no statement scans many
rows. Partial indexes cover only offered or held tasks, so a pull costs the same however many finished tasks there are.
`task_offer_tag` has rows only while a task is offered.
"""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
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
from penstock.tasks.domain import AlertRule, Operation, Policy, PullOutcome, PullState, Side, Status

LEASE = LeaseStates(column="state", waiting=PullState.OFFERED, held=PullState.HELD)


def _one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    known = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({known})", name=column)


def _counts() -> list[Column[int]]:
    return [Column(status.value, Integer, nullable=False, server_default="0") for status in Status]


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
    Column("last_task_at", UtcTime),
    Column("active_at", UtcTime, nullable=False),  # last_task_at, or created_at: the sort order of lists
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    _one_of("conflict_policy", Policy),
)
p = project.c
_project_is_active = p.deleted_at.is_(None)
Index(
    "uq_project_project_id",
    p.project_id,
    unique=True,
    postgresql_where=_project_is_active,
    sqlite_where=_project_is_active,
)
Index("ix_project_active", p.active_at, p.id, postgresql_where=_project_is_active, sqlite_where=_project_is_active)
Index("ix_project_updated", p.updated_at)
_project_is_deleted = p.deleted_at.is_not(None)
Index("ix_project_deleted", p.deleted_at, postgresql_where=_project_is_deleted, sqlite_where=_project_is_deleted)

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
Index(
    "uq_queue_queue_id",
    q.project_pk,
    q.queue_id,
    unique=True,
    postgresql_where=_queue_is_active,
    sqlite_where=_queue_is_active,
)
Index(
    "ix_queue_active", q.project_pk, q.active_at, q.id, postgresql_where=_queue_is_active, sqlite_where=_queue_is_active
)
Index("ix_queue_updated", q.project_pk, q.updated_at)
_queue_is_deleted = q.deleted_at.is_not(None)
Index("ix_queue_deleted", q.deleted_at, postgresql_where=_queue_is_deleted, sqlite_where=_queue_is_deleted)

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
    Column("search_text", Text, nullable=False),
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
    _one_of("status", Status),
    _one_of("source", Side),
    _one_of("origin", Side),
    _one_of("state", PullState),
    CheckConstraint("priority BETWEEN 1 AND 10", name="priority"),
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
HELD = t.state == literal_column("'held'")
IS_ACTIVE = and_(t.deleted_at.is_(None), t.archived_at.is_(None))
EXPIRING = and_(OFFERED, t.expires_at.is_not(None))
FINISHED = and_(t.finished_at.is_not(None), IS_ACTIVE)
Index("uq_task_identity", t.partition_key, t.task_id, t.queue_pk, unique=True)
_ranked = (t.partition_key, t.status, t.priority)
_ranked_here = (t.partition_key, t.queue_pk, t.status, t.priority)
for _name, _columns, _where in (
    ("offered", (*_ranked, t.scheduled_at, t.id), OFFERED),
    ("offered_queue", (*_ranked_here, t.scheduled_at, t.id), OFFERED),
    ("offered_created", (*_ranked, t.created_at, t.id), OFFERED),
    ("offered_queue_created", (*_ranked_here, t.created_at, t.id), OFFERED),
    ("offered_modified", (*_ranked, t.server_modified_at, t.id), OFFERED),
    ("offered_queue_modified", (*_ranked_here, t.server_modified_at, t.id), OFFERED),
    ("offered_version", (*_ranked, t.version, t.id), OFFERED),
    ("offered_queue_version", (*_ranked_here, t.version, t.id), OFFERED),
    ("held", (t.leased_until,), HELD),
    ("pending", (t.partition_key, t.pulled_at, t.id), HELD),
    ("expiring", (t.expires_at,), EXPIRING),
    ("expired", (t.expired_at,), and_(t.expired_at.is_not(None), IS_ACTIVE)),
    ("list", (t.partition_key, t.queue_pk, t.id), IS_ACTIVE),
    ("list_status", (t.partition_key, t.queue_pk, t.status, t.id), IS_ACTIVE),
    ("list_state", (t.partition_key, t.queue_pk, t.state, t.id, t.origin), IS_ACTIVE),
    ("any", (t.partition_key, t.id), IS_ACTIVE),
    ("any_status", (t.partition_key, t.status, t.id), IS_ACTIVE),
    ("any_state", (t.partition_key, t.state, t.id, t.origin), IS_ACTIVE),
    ("finished", (t.partition_key, t.status, t.finished_at), FINISHED),
    ("finished_any", (t.status, t.finished_at), FINISHED),
):
    Index(f"ix_task_{_name}", *_columns, postgresql_where=_where, sqlite_where=_where)
Index("ix_task_place", t.partition_key, t.queue_pk)  # deleted and archived tasks too: a queue is removed as a whole

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
_pushed = tp.outcome == literal_column("'pushed'")
# One open pull per task: pulls of one task never overlap, because the database itself rejects a second holder.
Index("uq_task_pull_open", tp.task_pk, unique=True, postgresql_where=_open, sqlite_where=_open)
Index("ix_task_pull_task", tp.task_pk, tp.id)
Index("ix_task_pull_pull", tp.pull_id)
# Covering indexes for statistics.
Index("ix_task_pull_project", tp.project_pk, tp.queue_pk, tp.outcome, tp.pulled_by, tp.seconds)
Index("ix_task_pull_seconds", tp.project_pk, tp.seconds, tp.queue_pk, postgresql_where=_pushed, sqlite_where=_pushed)
_ended = tp.ended_at.is_not(None)
Index("ix_task_pull_ended", tp.ended_at, postgresql_where=_ended, sqlite_where=_ended)

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

pull_receipt = Table(
    "pull_receipt",
    metadata,
    Column("actor", Id, primary_key=True),
    Column("key", Id, primary_key=True),
    Column("asked", String, nullable=False),  # fingerprint of the request: a reused key must repeat it
    Column("pull_id", Id, nullable=False),
    Column("at", UtcTime, nullable=False),
    Index("ix_pull_receipt_at", "at"),
)

task_alarm = Table(
    "task_alarm",
    metadata,
    Column("project_pk", Id, primary_key=True),
    Column("rule", Id, primary_key=True),
    Column("since", UtcTime, nullable=False),
    Column("value", Float, nullable=False),  # the value that raised the alert
    _one_of("rule", AlertRule),
)
