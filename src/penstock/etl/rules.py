"""Manage rules: add, change, delete, and load them from files.

A change makes a new version; tasks keep the version they started with. Rules without an owner are system rules: the
built-in default, those loaded from files, and a user's rule for as long as the settings make it the default. Callers
validate a rule first: its schema is compiled in the sandbox, so outside any transaction.
"""

import logging
from dataclasses import replace
from datetime import timedelta

from penstock.access import audit
from penstock.access.domain import Caller, Scope
from penstock.access.errors import ScopeTooSmall
from penstock.etl import rule_files
from penstock.etl.deps import Deps
from penstock.etl.domain import DEFAULT_RULE, ReviewPolicy, Rule, RuleBody
from penstock.etl.errors import RuleNotFound, RulesFull, SystemRule
from penstock.etl.store import rules as store
from penstock.kernel.db import Tx
from penstock.kernel.transitions import MovedAlready

log = logging.getLogger(__name__)

MAX_RULES = 1000  # of one user
MAX_VERSIONS = 1000  # of one rule
KEEP_DELETED = timedelta(days=1)  # by then no request that read the rule before its deletion is still running
BATCH = 100


async def add(tx: Tx, caller: Caller, body: RuleBody) -> Rule:
    """Create a rule owned by the caller."""
    _check_may_review(caller, body, None)
    if await store.count_rules_of(tx, caller.user_id, limit=MAX_RULES) >= MAX_RULES:
        raise RulesFull(most=MAX_RULES, what="rules", what_zh="规则数")
    made = await store.insert_rule(tx, body, user_id=caller.user_id)
    await audit.record(tx, caller, "etl_rule.add", f"etl_rule:{made.id}", name=body.name)
    return made


async def get_rule(tx: Tx, deps: Deps, caller: Caller, rule_id: int) -> Rule:
    """A rule that the caller can use."""
    return _found(await store.find_rule_for(tx, caller, rule_id, default_id=_default(deps)), rule_id)


async def list_rules(tx: Tx, deps: Deps, caller: Caller, *, limit: int, offset: int) -> list[Rule]:
    """The rules that the caller can use, by id; the built-in default comes first."""
    first = [DEFAULT_RULE] if offset == 0 else []
    page = {"limit": limit - len(first), "offset": max(offset - 1, 0)}
    return [*first, *await store.list_rules(tx, caller, default_id=_default(deps), **page)]


async def count_rules(tx: Tx, deps: Deps, caller: Caller, *, limit: int) -> int:
    """How many rules the caller can use, with the built-in default; counting stops at `limit`."""
    return 1 + await store.count_rules_for(tx, caller, limit=limit - 1, default_id=_default(deps))


async def list_versions(tx: Tx, deps: Deps, caller: Caller, rule_id: int, *, limit: int, offset: int) -> list[Rule]:
    """The versions of a rule, latest first."""
    now = await get_rule(tx, deps, caller, rule_id)
    found = await store.list_versions(tx, rule_id, limit=limit, offset=offset)
    return [replace(rule, user_id=now.user_id) for rule in found]


async def get_changeable_rule(tx: Tx, deps: Deps, caller: Caller, rule_id: int) -> Rule:
    """A rule that the caller can change."""
    return _changeable(await get_rule(tx, deps, caller, rule_id))


async def change(tx: Tx, caller: Caller, before: Rule, body: RuleBody) -> Rule:
    """Give a rule a new version, unless another request did since `before` was read."""
    _check_may_review(caller, body, before.body.review)
    if before.version >= MAX_VERSIONS:
        raise RulesFull(most=MAX_VERSIONS, what="versions of this rule", what_zh="该规则的版本数")
    after = await store.move_rule(tx, before, body)
    if after is None:
        raise MovedAlready(entity="rule", id=before.id, state=f"in version {before.version}")
    await audit.record(tx, caller, "etl_rule.change", f"etl_rule:{before.id}", version=after.version)
    return after


async def remove(tx: Tx, deps: Deps, caller: Caller, rule_id: int) -> None:
    """Delete a rule. Tasks keep the content of a deleted rule: the version they were submitted with."""
    held = await store.claim_rule(tx, caller, rule_id, default_id=_default(deps))
    _changeable(_found(held, rule_id))
    await store.delete_rule(tx, rule_id)
    await audit.record(tx, caller, "etl_rule.remove", f"etl_rule:{rule_id}")


async def delete_unused_rules(tx: Tx) -> int:
    """Delete some rules for good that were deleted and that no task uses any more; returns how many."""
    return await store.delete_unused(tx, before=tx.now - KEEP_DELETED, limit=BATCH)


async def find_missing_default(tx: Tx, deps: Deps) -> int | None:
    """The id of the default rule if it does not exist."""
    default_id = _default(deps)
    missing = default_id is not None and await store.find_rule(tx, default_id) is None
    return default_id if missing else None


async def list_files(tx: Tx) -> list[str]:
    """The names of the files that rules were loaded from."""
    return await store.list_files(tx, limit=rule_files.MAX_FILES)


async def load_rule(tx: Tx, body: RuleBody, *, file: str) -> bool:
    """Store the rule of a file; returns whether it is new or changed."""
    before = await store.find_rule_of_file(tx, file)
    if before is not None and before.body == body:
        return False
    if before is None:
        after = await store.insert_rule_of_file(tx, body, file=file)
    else:
        after = await store.move_rule(tx, before, body)
    if after is not None:
        log.info("loaded rule %d from %s as version %d", after.id, file, after.version)
    return after is not None


def _check_may_review(caller: Caller, body: RuleBody, before: ReviewPolicy | None) -> None:
    """A new review policy makes tasks in a project of the tasks module, so it needs the scope that creates them."""
    if body.review not in {None, before} and not caller.is_admin:
        raise ScopeTooSmall(needed=str(Scope.ADMIN), held=str(caller.scope))


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
