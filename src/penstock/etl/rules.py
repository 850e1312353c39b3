"""Manage rules: add, change, delete, and load them from files.

A change makes a new version; tasks keep the version they started with. Rules without an owner are system rules: the
built-in default, those loaded from files, and a user's rule for as long as the settings make it the default. Schemas
are checked in the sandbox, so before any transaction.
"""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.etl import rule_files
from penstock.etl.deps import Deps
from penstock.etl.domain import DEFAULT_RULE, Rule, RuleBody
from penstock.etl.errors import DefaultRuleMissing, RuleNotFound, RulesFull, SystemRule
from penstock.etl.rule_validation import validate_rule
from penstock.etl.store import rules as store
from penstock.kernel.errors import PenstockError
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.transitions import MovedAlready

log = logging.getLogger(__name__)

MAX_RULES = 1000  # of one user
MAX_VERSIONS = 1000  # of one rule
KEEP_DELETED = timedelta(days=1)  # by then no request that read the rule before its deletion is still running
BATCH = 100


async def add(deps: Deps, caller: Caller, body: RuleBody) -> Rule:
    """Create a rule owned by the caller."""
    await validate_rule(body, deps.sandbox)
    async with deps.db.tx(actor=caller.name) as tx:
        if await store.count_rules_of(tx, caller.user_id, limit=MAX_RULES) >= MAX_RULES:
            raise RulesFull(most=MAX_RULES, what="rules", what_zh="规则数")
        made = await store.insert_rule(tx, body, user_id=caller.user_id)
        await audit.record(tx, caller, "etl_rule.add", f"etl_rule:{made.id}", name=body.name)
    return made


async def get_rule(deps: Deps, caller: Caller, rule_id: int) -> Rule:
    """A rule that the caller can use."""
    async with deps.db.read() as tx:
        return _found(await store.find_rule_for(tx, caller, rule_id, default_id=_default(deps)), rule_id)


async def list_rules(deps: Deps, caller: Caller, *, limit: int, offset: int) -> list[Rule]:
    """The rules that the caller can use, by id; the built-in default comes first."""
    first = [DEFAULT_RULE] if offset == 0 else []
    async with deps.db.read() as tx:
        page = {"limit": limit - len(first), "offset": max(offset - 1, 0)}
        rest = await store.list_rules(tx, caller, default_id=_default(deps), **page)
    return [*first, *rest]


async def list_versions(deps: Deps, caller: Caller, rule_id: int, *, limit: int, offset: int) -> list[Rule]:
    """The versions of a rule, latest first."""
    async with deps.db.read() as tx:
        now = _found(await store.find_rule_for(tx, caller, rule_id, default_id=_default(deps)), rule_id)
        found = await store.list_versions(tx, rule_id, limit=limit, offset=offset)
    return [replace(rule, user_id=now.user_id) for rule in found]


async def change(deps: Deps, caller: Caller, rule_id: int, changes: dict[str, Any]) -> Rule:
    """Change these fields of a rule. Without an effective change there is no new version."""
    before = _changeable(await get_rule(deps, caller, rule_id))
    body = replace(before.body, **changes)
    if body == before.body:
        return before
    await validate_rule(body, deps.sandbox)
    if before.version >= MAX_VERSIONS:
        raise RulesFull(most=MAX_VERSIONS, what="versions of this rule", what_zh="该规则的版本数")
    async with deps.db.tx(actor=caller.name) as tx:
        after = await store.move_rule(tx, before, body)
        if after is None:
            raise MovedAlready(entity="rule", id=rule_id, state=f"in version {before.version}")
        await audit.record(tx, caller, "etl_rule.change", f"etl_rule:{rule_id}", version=after.version)
    return after


async def remove(deps: Deps, caller: Caller, rule_id: int) -> None:
    """Delete a rule. Tasks keep the content of a deleted rule: the version they were submitted with."""
    async with deps.db.tx(actor=caller.name) as tx:
        held = await store.claim_rule(tx, caller, rule_id, default_id=_default(deps))
        _changeable(_found(held, rule_id))
        await store.delete_rule(tx, rule_id)
        await audit.record(tx, caller, "etl_rule.remove", f"etl_rule:{rule_id}")


async def delete_unused_rules(deps: Deps) -> None:
    """Delete rules for good that were deleted and that no task uses any more."""
    await repeat_until_zero(partial(_delete_some_unused, deps))


async def check_default_rule(deps: Deps) -> None:
    """Log an error at start if the default rule does not exist, since tasks without a rule_id will be rejected."""
    default_id = _default(deps)
    if default_id is None:
        return
    async with deps.db.read() as tx:
        if await store.find_rule(tx, default_id) is None:
            log.error("%s", DefaultRuleMissing(rule_id=default_id))


async def load_rule_files(deps: Deps, folder: Path) -> int:
    """Load system rules from the files of a folder; returns how many are new or changed.

    An invalid file is logged and skipped. A deleted file leaves its rule in place.
    """
    found = await asyncio.to_thread(rule_files.list_files, folder)
    changed = 0
    for path in found:
        try:
            changed += await _load_rule_file(deps, path)
        except (PenstockError, OSError) as error:
            log.warning("skipping rule file %s: %s", path.name, error)
    async with deps.db.read() as tx:
        known = await store.list_files(tx, limit=rule_files.MAX_FILES)
    if gone := sorted(set(known) - {path.name for path in found}):
        log.info("keeping rules whose files were deleted: %s", ", ".join(gone))
    return changed


async def _load_rule_file(deps: Deps, path: Path) -> bool:
    body = await asyncio.to_thread(rule_files.read_rule, path)
    await validate_rule(body, deps.sandbox)
    async with deps.db.tx() as tx:
        before = await store.find_rule_of_file(tx, path.name)
        if before is not None and before.body == body:
            return False
        if before is None:
            after = await store.insert_rule_of_file(tx, body, file=path.name)
        else:
            after = await store.move_rule(tx, before, body)
        if after is not None:
            log.info("loaded rule %d from %s as version %d", after.id, path.name, after.version)
    return after is not None


async def _delete_some_unused(deps: Deps) -> int:
    async with deps.db.tx() as tx:
        return await store.delete_unused(tx, before=tx.now - KEEP_DELETED, limit=BATCH)


def _default(deps: Deps) -> int | None:
    return deps.config.default_rule_id


def _found(rule: Rule | None, rule_id: int) -> Rule:
    if rule is None:
        raise RuleNotFound(rule_id=rule_id)
    return rule


def _changeable(rule: Rule) -> Rule:
    if rule.is_system:
        raise SystemRule(rule_id=rule.id)
    return rule
