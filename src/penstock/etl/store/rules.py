"""Statements on rules. A rule is a row that says whose it is and which version counts; what it says is in its versions.

A version is never changed, and stays for as long as a task has it, whatever becomes of the rule itself.
The built-in default rule (number 0) is no row: it is found here as if it were one.
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
from penstock.kernel.bulk import upsert
from penstock.kernel.db import Tx

r, v = etl_rule.c, etl_rule_version.c
_rules: Select[Any] = select(r.id, r.version, r.user_id, v.body, r.created_at, r.updated_at).select_from(
    etl_rule.join(etl_rule_version, (v.rule_id == r.id) & (v.version == r.version))
)
_lives = r.deleted_at.is_(None)


async def find_rule(tx: Tx, rule_id: int) -> Rule | None:
    """A rule as it is now, whoever's it is; none when it was deleted."""
    if rule_id == DEFAULT_RULE.id:
        return DEFAULT_RULE
    return _rule((await tx.conn.execute(_rules.where(r.id == rule_id, _lives))).one_or_none())


async def get_rule_version(tx: Tx, rule_id: int, version: int) -> Rule:
    """What a rule said in a version, also when it was changed or deleted since; `RuleNotFound` when it never did."""
    if rule_id == DEFAULT_RULE.id:
        return DEFAULT_RULE
    rows = await tx.conn.execute(_versions(rule_id).where(v.version == version))
    found = _rule(rows.one_or_none())
    if found is None:
        raise RuleNotFound(rule_id=rule_id)
    return found


async def find_rule_for(tx: Tx, caller: Caller, rule_id: int, *, default_id: int | None = None) -> Rule | None:
    """A rule that this caller may see: their own, the system's, or the default, whoever made that."""
    if rule_id == default_id:
        return as_shared(await find_rule(tx, rule_id), default_id)
    if rule_id == DEFAULT_RULE.id:
        return DEFAULT_RULE
    return _rule((await tx.conn.execute(_rules.where(r.id == rule_id, _lives, _seen_by(caller)))).one_or_none())


async def claim_rule(tx: Tx, caller: Caller, rule_id: int, *, default_id: int | None = None) -> Rule | None:
    """Like `find_rule_for`, and nobody else can change it before this transaction ends."""
    if rule_id in {DEFAULT_RULE.id, default_id}:
        return await find_rule_for(tx, caller, rule_id, default_id=default_id)  # nobody can change these
    mine = select(r.id).where(r.id == rule_id, _lives, _seen_by(caller)).with_for_update()
    if await tx.conn.scalar(mine) is None:
        return None
    return await find_rule(tx, rule_id)  # read once it is held: a rival may have changed it while we waited


async def find_rule_of_file(tx: Tx, file: str) -> Rule | None:
    """The rule that was taken in from a file; nobody else can change it before this transaction ends."""
    rule_id = await tx.conn.scalar(select(r.id).where(r.file == file).with_for_update())
    return None if rule_id is None else await find_rule(tx, rule_id)


async def list_files(tx: Tx, *, limit: int) -> list[str]:
    """The files that rules were taken in from."""
    return list(await tx.conn.scalars(select(r.file).where(r.file.is_not(None)).order_by(r.file).limit(limit)))


async def list_rules(tx: Tx, caller: Caller, *, limit: int, offset: int, default_id: int | None = None) -> list[Rule]:
    """The rules a caller may see, by their numbers, without the built-in one."""
    numbers = select(r.id).where(_lives)
    if not caller.is_admin:  # two walks of the index: asked for both owners at once, SQLite reads everyone's
        others = (r.id == default_id) & (r.user_id != caller.user_id)
        whose = [r.user_id == caller.user_id, r.user_id.is_(None), *([others] if default_id else [])]
        seen = union_all(*(numbers.where(one) for one in whose)).subquery()
        numbers = select(seen.c.id)
    [number] = numbers.selected_columns
    page = numbers.order_by(number).limit(limit).offset(offset).subquery()
    rows = await tx.conn.execute(_rules.where(r.id.in_(select(page.c.id))).order_by(r.id))
    return [found for row in rows if (found := as_shared(_rule(row), default_id))]


async def list_versions(tx: Tx, rule_id: int, *, limit: int, offset: int) -> list[Rule]:
    """What a rule has said, the latest first."""
    if rule_id == DEFAULT_RULE.id:
        return [DEFAULT_RULE][offset:]
    rows = await tx.conn.execute(_versions(rule_id).order_by(v.version.desc()).limit(limit).offset(offset))
    return [found for row in rows if (found := _rule(row))]


async def count_rules_of(tx: Tx, user_id: int, *, most: int) -> int:
    """How many rules a user has; it stops counting at `most`."""
    some = select(r.id).where(r.user_id == user_id, _lives).limit(most).subquery()
    return await tx.conn.scalar(select(func.count()).select_from(some)) or 0


async def insert_rule(tx: Tx, body: RuleBody, *, user_id: int) -> Rule:
    """Add a rule of a user's in its first version."""
    new = insert(etl_rule).values(user_id=user_id, **_first(tx, body))
    rule_id = (await tx.conn.execute(new.returning(r.id))).scalar_one()
    await _insert_version(tx, rule_id, 1, body)
    return Rule(id=rule_id, version=1, user_id=user_id, body=body, created_at=tx.now, updated_at=tx.now)


async def insert_rule_of_file(tx: Tx, body: RuleBody, *, file: str) -> Rule | None:
    """Add a rule of the system's in its first version; none when another process has just taken this file in."""
    new = upsert(tx, etl_rule).values(file=file, **_first(tx, body)).on_conflict_do_nothing()
    rule_id = (await tx.conn.execute(new.returning(r.id))).scalar_one_or_none()
    if rule_id is None:
        return None
    await _insert_version(tx, rule_id, 1, body)
    return Rule(id=rule_id, version=1, user_id=None, body=body, created_at=tx.now, updated_at=tx.now)


async def move_rule(tx: Tx, before: Rule, body: RuleBody) -> Rule | None:
    """Let a rule say something else from now on, in its next version; none when it is not what we read."""
    version = before.version + 1
    guarded = update(etl_rule).where(r.id == before.id, r.version == before.version, _lives)
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
    """A rule as everyone sees it: while it is the default it belongs to nobody."""
    return replace(rule, user_id=None) if rule is not None and rule.id == default_id else rule


async def delete_rule(tx: Tx, rule_id: int) -> None:
    """Nobody finds it any more; its versions stay for the tasks that began with them."""
    await tx.conn.execute(update(etl_rule).where(r.id == rule_id, _lives).values(deleted_at=tx.now))


async def delete_unused(tx: Tx, *, before: datetime, limit: int) -> int:
    """Forget rules that were deleted before then and that no task has any more; returns how many."""
    used = exists(select(etl_task.c.id).where(etl_task.c.rule_id == r.id))
    unused = select(r.id).where(r.deleted_at < before, ~used).order_by(r.deleted_at).limit(limit)
    numbers = list(await tx.conn.scalars(unused))
    await tx.conn.execute(delete(etl_rule_version).where(v.rule_id.in_(numbers)))
    await tx.conn.execute(delete(etl_rule).where(r.id.in_(numbers)))
    return len(numbers)


async def _insert_version(tx: Tx, rule_id: int, version: int, body: RuleBody) -> None:
    said = insert(etl_rule_version).values(
        rule_id=rule_id, version=version, body=asdict(body), created_at=tx.now, created_by=tx.actor
    )
    await tx.conn.execute(said)


def _first(tx: Tx, body: RuleBody) -> dict[str, Any]:
    return {"name": body.name, "version": 1, "created_at": tx.now, "updated_at": tx.now}


def _versions(rule_id: int) -> Select[Any]:
    joined = etl_rule.join(etl_rule_version, v.rule_id == r.id)
    said = select(r.id, v.version, r.user_id, v.body, r.created_at, v.created_at.label("updated_at"))
    return said.select_from(joined).where(r.id == rule_id)


def _seen_by(caller: Caller) -> ColumnElement[bool]:
    return r.id > DEFAULT_RULE.id if caller.is_admin else or_(r.user_id == caller.user_id, r.user_id.is_(None))


def _rule(row: Row[Any] | None) -> Rule | None:
    if row is None:
        return None
    known = dict(row._mapping)
    return Rule(**{**known, "body": msgspec.convert(known["body"], RuleBody)})
