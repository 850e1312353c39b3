"""`penstock work`: a process that only works. Start as many as you like."""

import asyncio

import typer

from penstock import settings as all_settings
from penstock.cli.running import run_until_signal
from penstock.settings import Settings
from penstock.wiring import all_handlers, open_house


def work() -> None:
    """Run jobs until stopped; a stop hands back what is not finished."""
    run_until_signal(_work(all_settings.load()))


async def _work(settings: Settings) -> None:
    async with open_house(settings) as house, asyncio.TaskGroup() as tasks:
        tasks.create_task(house.keep())
        tasks.create_task(house.workers(all_handlers(house)).run())
        typer.echo(f"penstock works as {house.owner}  (data in {settings.data_dir}; stop with Ctrl-C)")
