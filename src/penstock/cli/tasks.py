"""`penstock tasks`: what is done to tasks from the terminal, by whoever can reach the database."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from penstock import settings as all_settings
from penstock.cli.actor import actor
from penstock.settings import Settings
from penstock.tasks.api.exported import read_lines
from penstock.tasks.load import Line, Loaded, load
from penstock.wiring import open_database
from penstock.wiring.runtime import make_ready

MOST_SHOWN = 100  # bad lines that are told one by one

tasks = typer.Typer(name="tasks", help="Take tasks in from elsewhere.", no_args_is_help=True)


@tasks.callback()
def _tasks() -> None:
    """Take tasks in from elsewhere."""


@tasks.command("import")
def import_tasks(
    file: Annotated[
        Path, typer.Argument(help="An export of the older store: JSON lines.", exists=True, dir_okay=False)
    ],
    project: Annotated[
        str | None, typer.Option(help="Only this project's tasks; a line that names none belongs to it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would become of the lines.")] = False,
) -> None:
    """Take in an export. What is there already is left alone, so it can be run again at any time."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with file.open("rb") as export, Progress(*columns, console=Console(stderr=True)) as bar:
        reading = bar.add_task("reading", total=file.stat().st_size)
        lines = _watched(read_lines(export, project=project), bar, reading)

        def tell(loaded: Loaded) -> None:
            bar.update(reading, description=f"{loaded.lines} lines")

        loaded = asyncio.run(_import(all_settings.load(), lines, dry_run=dry_run, tell=tell))
    made = "would be imported" if dry_run else "imported"
    left_out = f", {loaded.left_out} of other projects" if project is not None else ""
    typer.echo(f"{loaded.created} {made}, {loaded.skipped} there already, {loaded.bad} bad lines{left_out}")
    if loaded.bad:
        raise typer.Exit(1)


async def _import(
    settings: Settings, lines: Iterable[Line], *, dry_run: bool, tell: Callable[[Loaded], None]
) -> Loaded:
    db = open_database(settings)
    try:
        await make_ready(db, settings)
        return await load(db, lines, by=actor(), dry_run=dry_run, tell=tell)
    finally:
        await db.close()


def _watched(lines: Iterable[Line], bar: Progress, reading: TaskID) -> Iterator[Line]:
    """The lines, shown as they are read; what is wrong with one is told at once."""
    bad = 0
    for line in lines:
        bar.advance(reading, line.size_bytes)
        if line.problem:
            bad += 1
            if bad <= MOST_SHOWN:
                bar.console.print(f"line {line.number}: {line.problem}", markup=False, highlight=False, soft_wrap=True)
            if bad == MOST_SHOWN:
                bar.console.print("more bad lines are only counted")
        yield line
