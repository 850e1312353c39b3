"""Rules: make, change and delete what callers want made of their documents.

A change makes a new version; tasks keep the one they began with. Rules without an owner are the system's: the built-in
default, those that `take_in` finds in files, and one that a user made for as long as the settings make it the default.
A schema is checked in the sandbox, so before any transaction.
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
from penstock.etl.schemas import check_rule
from penstock.etl.store import rules as store
from penstock.kernel.errors import PenstockError
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.transitions import MovedAlready

log = logging.getLogger(__name__)

MOST_RULES = 1000  # of one user
MOST_VERSIONS = 1000  # of one rule
GONE_FOR = timedelta(days=1)  # by then nobody is left who read the rule before it was deleted and has not used it yet
FORGOTTEN_AT_ONCE = 100


async def add(tools: Deps, caller: Caller, body: RuleBody) -> Rule:
    """A new rule of the caller's."""
    await check_rule(body, tools.sandbox)
    async with tools.db.tx(actor=caller.name) as tx:
        if await store.count_rules_of(tx, caller.user_id, most=MOST_RULES) >= MOST_RULES:
            raise RulesFull(most=MOST_RULES, what="rules", what_zh="规则数")
        made = await store.insert_rule(tx, body, user_id=caller.user_id)
        await audit.record(tx, caller, "etl_rule.add", f"etl_rule:{made.id}", name=body.name)
    return made


async def get_rule(tools: Deps, caller: Caller, rule_id: int) -> Rule:
    """A rule that the caller may use."""
    async with tools.db.read() as tx:
        return _found(await store.find_rule_for(tx, caller, rule_id, default_id=_default(tools)), rule_id)


async def list_rules(tools: Deps, caller: Caller, *, limit: int, offset: int) -> list[Rule]:
    """The rules that the caller may use, by their numbers: the built-in one is the first."""
    first = [DEFAULT_RULE] if offset == 0 else []
    async with tools.db.read() as tx:
        page = {"limit": limit - len(first), "offset": max(offset - 1, 0)}
        rest = await store.list_rules(tx, caller, default_id=_default(tools), **page)
    return [*first, *rest]


async def list_versions(tools: Deps, caller: Caller, rule_id: int, *, limit: int, offset: int) -> list[Rule]:
    """What a rule has said, the latest first."""
    async with tools.db.read() as tx:
        now = _found(await store.find_rule_for(tx, caller, rule_id, default_id=_default(tools)), rule_id)
        found = await store.list_versions(tx, rule_id, limit=limit, offset=offset)
    return [replace(rule, user_id=now.user_id) for rule in found]


async def change(tools: Deps, caller: Caller, rule_id: int, changes: dict[str, Any]) -> Rule:
    """Let a rule say something else in these fields; what it says already makes no new version."""
    before = _changeable(await get_rule(tools, caller, rule_id))
    body = replace(before.body, **changes)
    if body == before.body:
        return before
    await check_rule(body, tools.sandbox)
    if before.version >= MOST_VERSIONS:
        raise RulesFull(most=MOST_VERSIONS, what="versions of this rule", what_zh="该规则的版本数")
    async with tools.db.tx(actor=caller.name) as tx:
        after = await store.move_rule(tx, before, body)
        if after is None:
            raise MovedAlready(entity="rule", id=rule_id, state=f"in version {before.version}")
        await audit.record(tx, caller, "etl_rule.change", f"etl_rule:{rule_id}", version=after.version)
    return after


async def remove(tools: Deps, caller: Caller, rule_id: int) -> None:
    """Delete a rule; tasks that began with it keep what it said."""
    async with tools.db.tx(actor=caller.name) as tx:
        held = await store.claim_rule(tx, caller, rule_id, default_id=_default(tools))
        _changeable(_found(held, rule_id))
        await store.delete_rule(tx, rule_id)
        await audit.record(tx, caller, "etl_rule.remove", f"etl_rule:{rule_id}")


async def forget(tools: Deps) -> None:
    """Forget deleted rules that no task has any more."""
    await repeat_until_zero(partial(_forget_some, tools))


async def check_default(tools: Deps) -> None:
    """Say at the start when tasks that name no rule will be refused, because the default does not exist."""
    default_id = _default(tools)
    if default_id is None:
        return
    async with tools.db.read() as tx:
        if await store.find_rule(tx, default_id) is None:
            log.error("%s", DefaultRuleMissing(rule_id=default_id))


async def take_in(tools: Deps, folder: Path) -> int:
    """Make rules of the system of the files of a folder; returns how many are new or changed.

    A file that cannot be used is told of in the log and stops nobody. One that is gone leaves its rule as it is.
    """
    found = await asyncio.to_thread(rule_files.list_files, folder)
    changed = 0
    for path in found:
        try:
            changed += await _take_in(tools, path)
        except (PenstockError, OSError) as error:
            log.warning("%s is not taken in as a rule: %s", path.name, error)
    async with tools.db.read() as tx:
        known = await store.list_files(tx, limit=rule_files.MOST_FILES)
    if gone := sorted(set(known) - {path.name for path in found}):
        log.info("rules stay whose files are gone: %s", ", ".join(gone))
    return changed


async def _take_in(tools: Deps, path: Path) -> bool:
    body = await asyncio.to_thread(rule_files.read_rule, path)
    await check_rule(body, tools.sandbox)
    async with tools.db.tx() as tx:
        before = await store.find_rule_of_file(tx, path.name)
        if before is not None and before.body == body:
            return False
        if before is None:
            after = await store.insert_rule_of_file(tx, body, file=path.name)
        else:
            after = await store.move_rule(tx, before, body)
        if after is not None:
            log.info("rule %d (%s) is in version %d by its file", after.id, path.name, after.version)
    return after is not None


async def _forget_some(tools: Deps) -> int:
    async with tools.db.tx() as tx:
        return await store.delete_unused(tx, before=tx.now - GONE_FOR, limit=FORGOTTEN_AT_ONCE)


def _default(tools: Deps) -> int | None:
    return tools.terms.default_rule_id


def _found(rule: Rule | None, rule_id: int) -> Rule:
    if rule is None:
        raise RuleNotFound(rule_id=rule_id)
    return rule


def _changeable(rule: Rule) -> Rule:
    if rule.is_system:
        raise SystemRule(rule_id=rule.id)
    return rule
