"""Tables of the etl module.

A row of `etl_task` has owner, file, rule and rule version, final state, result or error, and pointers
to artifacts (`metadata`). It is written when a task is submitted and when it ends. Active tasks are found through a
partial index, so the cost does not depend on how many have ended. Rows of `etl_memory` are cache entries that refer to
artifacts of tasks.

An `etl_review` belongs to one run of a task. It stores how many values were reviewed, by field, so that a rule's
accuracy is a sum over rows. Reviews and corrections repeat the task's owner and rule, so that lists by rule need no
join.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Index, Integer, String, Table, Text, literal_column

from penstock.kernel.columns import Id, Json, OrderedJson, UtcTime
from penstock.kernel.db import metadata

Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite auto-increments INTEGER only

etl_task = Table(
    "etl_task",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("user_id", BigInteger, nullable=False),
    Column("project_id", BigInteger, nullable=False),
    Column("filename", String, nullable=False),
    Column("s3_key", String, nullable=False),
    Column("rule_id", BigInteger, nullable=False),
    Column("rule_version", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("run", Integer, nullable=False),
    Column("ocr_run", Integer, nullable=False),
    Column("progress", Integer, nullable=False),
    Column("result", Json),
    Column("error", Text),
    Column("metadata", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    CheckConstraint("status IN ('pending', 'completed', 'failed', 'cancelled')", name="status"),
    CheckConstraint("progress BETWEEN 0 AND 100", name="progress"),
    CheckConstraint("run >= 1 AND ocr_run BETWEEN 1 AND run", name="run"),
    CheckConstraint("(status = 'completed') = (result IS NOT NULL)", name="result"),
    sqlite_autoincrement=True,  # ids are never reused
)
t = etl_task.c
Index("ix_etl_task_user", t.user_id, t.id)
Index("ix_etl_task_user_project", t.user_id, t.project_id, t.id)
Index("ix_etl_task_user_status", t.user_id, t.status, t.id)
Index("ix_etl_task_user_project_status", t.user_id, t.project_id, t.status, t.id)
Index("ix_etl_task_project", t.project_id, t.id)
Index("ix_etl_task_project_status", t.project_id, t.status, t.id)
Index("ix_etl_task_status", t.status, t.id)
Index("ix_etl_task_s3_key", t.s3_key)
Index("ix_etl_task_rule", t.rule_id)
Index("ix_etl_task_name", t.user_id, t.project_id, t.filename, t.id)
_under_way = t.status == literal_column("'pending'")
Index("ix_etl_task_under_way", t.id, postgresql_where=_under_way, sqlite_where=_under_way)
_over = t.status != literal_column("'pending'")
Index("ix_etl_task_over", t.updated_at, postgresql_where=_over, sqlite_where=_over)

etl_rule = Table(
    "etl_rule",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("user_id", BigInteger),  # NULL: a system rule
    Column("name", String, nullable=False),
    Column("version", Integer, nullable=False),  # the current one
    Column("file", String),  # the file of ETL_RULES_DIR that it was loaded from
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    CheckConstraint("version >= 1", name="version"),
    sqlite_autoincrement=True,
)
r = etl_rule.c
_rule_lives = r.deleted_at.is_(None)
Index("ix_etl_rule_user", r.user_id, r.id, postgresql_where=_rule_lives, sqlite_where=_rule_lives)
_rule_gone = r.deleted_at.is_not(None)
Index("ix_etl_rule_deleted", r.deleted_at, postgresql_where=_rule_gone, sqlite_where=_rule_gone)
_from_file = r.file.is_not(None)
Index("uq_etl_rule_file", r.file, unique=True, postgresql_where=_from_file, sqlite_where=_from_file)

etl_rule_version = Table(
    "etl_rule_version",
    metadata,
    Column("rule_id", BigInteger, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column(
        "body", OrderedJson, nullable=False
    ),  # keeps the order of the schema's properties, which is the order of results
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
)

etl_upload = Table(
    "etl_upload",
    metadata,
    Column("key", Id, primary_key=True),  # of the document's blob
    Column("user_id", BigInteger, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("swept_at", UtcTime),  # its document is being deleted, or is deleted already
    Index("ix_etl_upload_created", "created_at", "key"),
)

etl_memory = Table(
    "etl_memory",
    metadata,
    Column("user_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Id, primary_key=True),  # SHA-256 of everything that the artifacts depend on
    Column("stage", String, nullable=False),
    Column("task_id", BigInteger, nullable=False),  # which made the artifacts
    Column("run", Integer, nullable=False),  # part of the artifacts' names
    Column("made_at", UtcTime, nullable=False),
    CheckConstraint("length(key) = 64", name="key"),
    CheckConstraint("stage IN ('ocr', 'postprocess')", name="stage"),
    CheckConstraint("run >= 1", name="run"),
)
m = etl_memory.c
Index("ix_etl_memory_task", m.task_id)
Index("ix_etl_memory_made_at", m.made_at)

etl_review = Table(
    "etl_review",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("task_id", BigInteger, nullable=False),
    Column("run", Integer, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("rule_id", BigInteger, nullable=False),
    Column("rule_version", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("reviewed_at", UtcTime),
    Column("reviewed_by", String),
    Column("looked_at", Integer, nullable=False),
    Column("corrected", Integer, nullable=False),
    Column("fields", Json, nullable=False),  # by field: how many were reviewed, and how many were wrong
    Column("updated_at", UtcTime, nullable=False),
    CheckConstraint("revision >= 1", name="revision"),
    CheckConstraint("corrected BETWEEN 0 AND looked_at", name="corrected"),
    CheckConstraint("(reviewed_at IS NULL) = (reviewed_by IS NULL)", name="reviewed"),
    sqlite_autoincrement=True,
)
v = etl_review.c
Index("uq_etl_review_task", v.task_id, v.run, unique=True)
Index("ix_etl_review_rule", v.rule_id, v.id)
Index("ix_etl_review_rule_user", v.rule_id, v.user_id, v.id)
Index("ix_etl_review_rule_version", v.rule_id, v.rule_version, v.id)
Index("ix_etl_review_rule_user_version", v.rule_id, v.user_id, v.rule_version, v.id)

etl_correction = Table(
    "etl_correction",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("task_id", BigInteger, nullable=False),
    Column("run", Integer, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("rule_id", BigInteger, nullable=False),
    Column("rule_version", Integer, nullable=False),
    Column("pointer", Text, nullable=False),
    Column("field", Text, nullable=False),
    Column("original", Text),  # JSON text: PostgreSQL's jsonb reorders the members of objects
    Column("corrected", Text, nullable=False),
    Column("confirms", Boolean, nullable=False),
    Column("note", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
    Column("superseded_at", UtcTime),
    Column("withdrawn_at", UtcTime),
    Column("ended_by", String),
    CheckConstraint("superseded_at IS NULL OR withdrawn_at IS NULL", name="one_end"),
    CheckConstraint("(superseded_at IS NULL AND withdrawn_at IS NULL) = (ended_by IS NULL)", name="ended_by"),
    sqlite_autoincrement=True,
)
c = etl_correction.c
correction_is_active = c.superseded_at.is_(None) & c.withdrawn_at.is_(None)
_of_those: Any = {"postgresql_where": correction_is_active, "sqlite_where": correction_is_active}
Index("ix_etl_correction_task", c.task_id, c.id)
Index("ix_etl_correction_rule", c.rule_id, c.id, **_of_those)
Index("ix_etl_correction_rule_user", c.rule_id, c.user_id, c.id, **_of_those)
Index("ix_etl_correction_rule_version", c.rule_id, c.rule_version, c.id, **_of_those)
Index("ix_etl_correction_rule_user_version", c.rule_id, c.user_id, c.rule_version, c.id, **_of_those)
