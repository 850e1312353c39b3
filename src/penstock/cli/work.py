"""`penstock work`: a process that only works. Start as many as you like."""

import asyncio
from typing import Annotated

import typer

from penstock import settings as all_settings
from penstock.cli.running import run_until_signal
from penstock.kernel.processes import ProcessKind
from penstock.settings import Settings
from penstock.wiring import MODULES, open_runtime


def work(
    rooms: Annotated[str, typer.Option(help=f"Modules to work in, by comma: {', '.join(filter(None, MODULES))}.")] = "",
) -> None:
    """Run jobs until stopped; a stop hands back what is not finished."""
    run_until_signal(_work(all_settings.load(), _chosen(rooms)))


def _chosen(rooms: str) -> tuple[str, ...]:
    """The rooms that were named; all of them when none is."""
    named = tuple(dict.fromkeys(room.strip() for room in rooms.split(",") if room.strip()))
    if strangers := [room for room in named if room not in MODULES]:
        known = ", ".join(filter(None, MODULES))
        raise typer.BadParameter(f"there is no room {strangers[0]!r}; there are: {known}", param_hint="--rooms")
    return named or tuple(MODULES)


async def _work(settings: Settings, rooms: tuple[str, ...]) -> None:
    async with open_runtime(settings) as house, asyncio.TaskGroup() as tasks:
        tasks.create_task(house.keep(kind=ProcessKind.WORK, rooms=rooms))
        tasks.create_task(house.work(rooms))
        typer.echo(f"penstock works as {house.owner}  (data in {settings.data_dir}; stop with Ctrl-C)")
