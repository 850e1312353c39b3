"""What the etl commands share: the runtime they work on, the caller they act as, and how rules are referred to: by
number or name.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock import settings as all_settings
from penstock.access.domain import Caller, Scope
from penstock.access.store import FIRST_USER_ID
from penstock.cli.actor import cli_actor
from penstock.cli.database import require_database
from penstock.etl import stages
from penstock.etl.api import actions
from penstock.etl.domain import Rule
from penstock.etl.errors import RuleNotFound
from penstock.etl.worker import load_rule_files
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime

T = TypeVar("T")

PAGE = 1000


def run(action: Callable[[Runtime], Awaitable[T]]) -> T:
    """Open a runtime, run the action, and return its result."""

    async def run_in_runtime() -> T:
        async with open_runtime(load_settings()) as runtime:
            return await action(runtime)

    return asyncio.run(run_in_runtime())


def run_on_existing(action: Callable[[Runtime], Awaitable[T]]) -> T:
    """Run an action on what exists; without a database there is nothing, and none is created."""
    require_database(load_settings())
    return run(action)


def load_settings() -> Settings:
    """The settings of this process. Log lines that are useful in a server are noise in a terminal: turn them off."""
    settings = all_settings.load()
    if settings.log_level == "INFO":
        logging.getLogger("penstock").setLevel(logging.WARNING)
        logging.getLogger(stages.__name__).setLevel(logging.ERROR)  # failed documents are listed at the end
    return settings


def caller() -> Caller:
    """The first user with admin scope: anyone who can reach the database may do everything."""
    return Caller(name=cli_actor(), user_id=FIRST_USER_ID, scope=Scope.ADMIN)


async def list_all_rules(runtime: Runtime) -> list[Rule]:
    """All rules, after importing those in files, since no server may have done so yet."""
    etl = runtime.modules.etl
    await load_rule_files(etl, runtime.settings.data_dir / runtime.settings.etl.rules_dir)
    known: list[Rule] = []
    while page := await actions.list_rules(etl, caller(), limit=PAGE, offset=len(known)):
        known += page
    return known


async def find_rule_id(runtime: Runtime, reference: str) -> int:
    """The id of the rule that `reference`, an id or a name, refers to."""
    known = await list_all_rules(runtime)
    if reference.isdecimal() and int(reference) in {rule.id for rule in known}:
        return int(reference)
    namesakes = [rule for rule in known if rule.body.name == reference]
    if not namesakes:
        raise RuleNotFound(rule_id=reference)
    # Other users may have a rule of the same name: prefer our own and the system's, then the newest.
    return ([rule for rule in namesakes if rule.user_id in {None, FIRST_USER_ID}] or namesakes)[-1].id
