"""What the commands of `penstock etl` share: the house they work on, who they are, and how they name things."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from penstock import settings as all_settings
from penstock.access.domain import MOST_ID, Caller, Scope
from penstock.access.store import FIRST_USER_ID
from penstock.cli.actor import actor
from penstock.etl import rules
from penstock.etl.domain import Rule
from penstock.etl.errors import RuleNotFound
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime

T = TypeVar("T")

PAGE = 1000

TaskNumber = Annotated[int, typer.Argument(metavar="TASK", help="The task's number.", min=1, max=MOST_ID)]
RuleNamed = Annotated[str, typer.Argument(metavar="RULE", help="The rule, by its number or name.")]


def run(verb: Callable[[Runtime], Awaitable[T]]) -> T:
    """What a verb of the room returns."""
    return asyncio.run(_in_the_house(all_settings.load(), verb))


async def _in_the_house(settings: Settings, verb: Callable[[Runtime], Awaitable[T]]) -> T:
    async with open_runtime(settings) as house:
        return await verb(house)


def caller() -> Caller:
    """Whoever can reach the database is the one who set the house up."""
    return Caller(name=actor(), user_id=FIRST_USER_ID, scope=Scope.ADMIN)


async def list_all_rules(house: Runtime) -> list[Rule]:
    """The rules that can be named, those in files among them: no server need have taken these in."""
    etl = house.rooms.etl
    await rules.take_in(etl, house.settings.data_dir / house.settings.etl.rules_dir)
    known: list[Rule] = []
    while page := await rules.list_rules(etl, caller(), limit=PAGE, offset=len(known)):
        known += page
    return known


async def rule_number(house: Runtime, named: str) -> int:
    """The number of the rule that was named by its number or its name."""
    known = await list_all_rules(house)
    if named.isdecimal() and int(named) in {rule.id for rule in known}:
        return int(named)
    namesakes = [rule for rule in known if rule.body.name == named]
    if not namesakes:
        raise RuleNotFound(rule_id=named)
    # Others have theirs in this house, too. Of one's own and the system's the newest, else of all.
    return ([rule for rule in namesakes if rule.user_id in {None, FIRST_USER_ID}] or namesakes)[-1].id
