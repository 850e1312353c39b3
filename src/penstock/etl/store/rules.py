"""Statements on rules. A rule's row holds its owner and current version; its content is in the versions.

A version never changes, and is kept for as long as a task uses it, even if the rule is deleted. The built-in default
rule (id 0) has no row; these functions return it as if it had one.
"""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, delete, exists, func, insert, or_, select, union_all, update

from penstock.access.domain import Caller
from penstock.etl.domain import DEFAULT_RULE, Rule, RuleBody
from penstock.etl.errors import RuleNotFound
from penstock.etl.store.tables import etl_rule, etl_rule_version, etl_task
from penstock.kernel.db import Tx
from penstock.kernel.dialect.sql import upsert

r, v = etl_rule.c, etl_rule_version.c
_rules: Select[Any] = select(r.id, r.version, r.user_id, v.body, r.created_at, r.updated_at).select_from(
    etl_rule.join(etl_rule_version, (v.rule_id == r.id) & (v.version == r.version))
)
_not_deleted = r.deleted_at.is_(None)


async def find_rule(tx: Tx, rule_id: int) -> Rule | None:
    """The current version of a rule, whoever owns it; None if it was deleted."""
    if rule_id == DEFAULT_RULE.id:
        return DEFAULT_RULE
    return _rule((await tx.conn.execute(_rules.where(r.id == rule_id, _not_deleted))).one_or_none())


async def get_rule_version(tx: Tx, rule_id: int, version: int) -> Rule:
    """A version of a rule, even if it was changed or deleted since; `RuleNotFound` if it never existed."""
    if rule_id == DEFAULT_RULE.id:
        return DEFAULT_RULE
    rows = await tx.conn.execute(_versions(rule_id).where(v.version == version))
    found = _rule(rows.one_or_none())
    if found is None:
        raise RuleNotFound(rule_id=rule_id)
    return found


async def find_rule_for(tx: Tx, caller: Caller, rule_id: int, *, default_id: int | None = None) -> Rule | None:
    """A rule that the caller can use: their own, a system rule, or the default, whoever owns that one."""
    if rule_id == default_id:
        return as_shared(await find_rule(tx, rule_id), default_id)
    if rule_id == DEFAULT_RULE.id:
        return DEFAULT_RULE
    return _rule(
        (await tx.conn.execute(_rules.where(r.id == rule_id, _not_deleted, _visible_to(caller)))).one_or_none()
    )


async def claim_rule(tx: Tx, caller: Caller, rule_id: int, *, default_id: int | None = None) -> Rule | None:
    """Like `find_rule_for`, and locks the rule until this transaction ends."""
    if rule_id in {DEFAULT_RULE.id, default_id}:
        return await find_rule_for(tx, caller, rule_id, default_id=default_id)  # these cannot be changed
    mine = select(r.id).where(r.id == rule_id, _not_deleted, _visible_to(caller)).with_for_update()
    if await tx.conn.scalar(mine) is None:
        return None
    return await find_rule(tx, rule_id)  # read under the lock: it may have changed while we waited


async def find_rule_of_file(tx: Tx, file: str) -> Rule | None:
    """The rule that was loaded from a file, locked until this transaction ends."""
    rule_id = await tx.conn.scalar(select(r.id).where(r.file == file).with_for_update())
    return None if rule_id is None else await find_rule(tx, rule_id)


async def list_files(tx: Tx, *, limit: int) -> list[str]:
    """The files that rules were loaded from."""
    return list(await tx.conn.scalars(select(r.file).where(r.file.is_not(None)).order_by(r.file).limit(limit)))


async def list_rules(tx: Tx, caller: Caller, *, limit: int, offset: int, default_id: int | None = None) -> list[Rule]:
    """The rules that a caller can use, by id, without the built-in one."""
    numbers = _numbers_for(caller, default_id)
    [number] = numbers.selected_columns
    page = numbers.order_by(number).limit(limit).offset(offset).subquery()
    rows = await tx.conn.execute(_rules.where(r.id.in_(select(page.c.id))).order_by(r.id))
    return [found for row in rows if (found := as_shared(_rule(row), default_id))]


async def count_rules_for(tx: Tx, caller: Caller, *, limit: int, default_id: int | None = None) -> int:
    """How many rules a caller can use, without the built-in one; counting stops at `limit`."""
    some = _numbers_for(caller, default_id).limit(limit).subquery()
    return await tx.conn.scalar(select(func.count()).select_from(some)) or 0


def _numbers_for(caller: Caller, default_id: int | None) -> Select[tuple[int]]:
    """The ids of the rules that a caller can use."""
    numbers = select(r.id).where(_not_deleted)
    if caller.is_admin:
        return numbers
    # A union of index scans: with OR, SQLite would scan the rules of all users.
    others = (r.id == default_id) & (r.user_id != caller.user_id)
    whose = [r.user_id == caller.user_id, r.user_id.is_(None), *([others] if default_id else [])]
    return select(union_all(*(numbers.where(one) for one in whose)).subquery().c.id)


async def list_versions(tx: Tx, rule_id: int, *, limit: int, offset: int) -> list[Rule]:
    """The versions of a rule, latest first."""
    if rule_id == DEFAULT_RULE.id:
        return [DEFAULT_RULE][offset:]
    rows = await tx.conn.execute(_versions(rule_id).order_by(v.version.desc()).limit(limit).offset(offset))
    return [found for row in rows if (found := _rule(row))]


async def count_rules_of(tx: Tx, user_id: int, *, limit: int) -> int:
    """How many rules a user has; counting stops at `limit`."""
    some = select(r.id).where(r.user_id == user_id, _not_deleted).limit(limit).subquery()
    return await tx.conn.scalar(select(func.count()).select_from(some)) or 0


async def insert_rule(tx: Tx, body: RuleBody, *, user_id: int) -> Rule:
    """Add the first version of a user's rule."""
    new = insert(etl_rule).values(user_id=user_id, **_first(tx, body))
    rule_id = (await tx.conn.execute(new.returning(r.id))).scalar_one()
    await _insert_version(tx, rule_id, 1, body)
    return Rule(id=rule_id, version=1, user_id=user_id, body=body, created_at=tx.now, updated_at=tx.now)


async def insert_rule_of_file(tx: Tx, body: RuleBody, *, file: str) -> Rule | None:
    """Add the first version of a system rule; None if another process has just loaded this file."""
    new = upsert(etl_rule).values(file=file, **_first(tx, body)).on_conflict_do_nothing()
    rule_id = (await tx.conn.execute(new.returning(r.id))).scalar_one_or_none()
    if rule_id is None:
        return None
    await _insert_version(tx, rule_id, 1, body)
    return Rule(id=rule_id, version=1, user_id=None, body=body, created_at=tx.now, updated_at=tx.now)


async def move_rule(tx: Tx, before: Rule, body: RuleBody) -> Rule | None:
    """Add the next version of a rule; None if it was changed or deleted concurrently."""
    version = before.version + 1
    guarded = update(etl_rule).where(r.id == before.id, r.version == before.version, _not_deleted)
    moved = await tx.conn.execute(guarded.values(name=body.name, version=version, updated_at=tx.now))
    if moved.rowcount != 1:
        return None
    await _insert_version(tx, before.id, version, body)
    return Rule(
        id=before.id,
        version=version,
        user_id=before.user_id,
        body=body,
        created_at=before.created_at,
        updated_at=tx.now,
    )


def as_shared(rule: Rule | None, default_id: int | None) -> Rule | None:
    """A rule as everyone sees it: the default rule is shown as a system rule."""
    return replace(rule, user_id=None) if rule is not None and rule.id == default_id else rule


async def delete_rule(tx: Tx, rule_id: int) -> None:
    """Mark a rule as deleted; its versions are kept for tasks that use them."""
    await tx.conn.execute(update(etl_rule).where(r.id == rule_id, _not_deleted).values(deleted_at=tx.now))


async def delete_unused(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete rules for good that were deleted before `before` and that no task uses; returns how many."""
    used = exists(select(etl_task.c.id).where(etl_task.c.rule_id == r.id))
    unused = select(r.id).where(r.deleted_at < before, ~used).order_by(r.deleted_at).limit(limit)
    numbers = list(await tx.conn.scalars(unused))
    await tx.conn.execute(delete(etl_rule_version).where(v.rule_id.in_(numbers)))
    await tx.conn.execute(delete(etl_rule).where(r.id.in_(numbers)))
    return len(numbers)


async def _insert_version(tx: Tx, rule_id: int, version: int, body: RuleBody) -> None:
    new = insert(etl_rule_version).values(
        rule_id=rule_id, version=version, body=asdict(body), created_at=tx.now, created_by=tx.actor
    )
    await tx.conn.execute(new)


def _first(tx: Tx, body: RuleBody) -> dict[str, Any]:
    return {"name": body.name, "version": 1, "created_at": tx.now, "updated_at": tx.now}


def _versions(rule_id: int) -> Select[Any]:
    joined = etl_rule.join(etl_rule_version, v.rule_id == r.id)
    columns = select(r.id, v.version, r.user_id, v.body, r.created_at, v.created_at.label("updated_at"))
    return columns.select_from(joined).where(r.id == rule_id)


def _visible_to(caller: Caller) -> ColumnElement[bool]:
    return r.id > DEFAULT_RULE.id if caller.is_admin else or_(r.user_id == caller.user_id, r.user_id.is_(None))


def _rule(row: Row[Any] | None) -> Rule | None:
    if row is None:
        return None
    known = dict(row._mapping)
    return Rule(**{**known, "body": msgspec.convert(known["body"], RuleBody)})
