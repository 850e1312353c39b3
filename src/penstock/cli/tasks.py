"""`penstock tasks`: import tasks, for anyone who can reach the database."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.progress import Progress, TaskID

    from penstock.tasks.import_tasks import ImportLine

MAX_LISTED = 100  # bad lines that are printed one by one

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def _tasks() -> None:
    """Import tasks."""  # the callback makes `import` a subcommand although it is the only one


@app.command("import")
def import_tasks(
    file: Annotated[
        Path, typer.Argument(help="An export of the previous task store: JSON lines.", exists=True, dir_okay=False)
    ],
    project: Annotated[
        str | None, typer.Option(help="Import only this project; lines that name no project belong to it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be imported; write nothing.")] = False,
) -> None:
    """Import tasks from an export. Existing tasks are left unchanged, so the import can be repeated."""
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from penstock import settings as all_settings
    from penstock.cli.actor import cli_actor
    from penstock.tasks.api.import_format import read_lines
    from penstock.tasks.import_tasks import ImportCounts, import_lines
    from penstock.wiring import open_database
    from penstock.wiring.runtime import make_ready

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with file.open("rb") as export, Progress(*columns, console=Console(stderr=True)) as bar:
        reading = bar.add_task("reading", total=file.stat().st_size)
        lines = _show_progress(read_lines(export, project=project), bar, reading)

        def show_count(counts: ImportCounts) -> None:
            bar.update(reading, description=f"{counts.lines} lines")

        async def run() -> ImportCounts:
            settings = all_settings.load()
            db = open_database(settings)
            try:
                await make_ready(db, settings)
                return await import_lines(db, lines, by=cli_actor(), dry_run=dry_run, on_progress=show_count)
            finally:
                await db.close()

        counts = asyncio.run(run())
    imported = "would be imported" if dry_run else "imported"
    other_projects = f", {counts.left_out} of other projects" if project is not None else ""
    typer.echo(f"{counts.created} {imported}, {counts.skipped} already present, {counts.bad} bad lines{other_projects}")
    if counts.bad:
        raise typer.Exit(1)


def _show_progress(lines: "Iterable[ImportLine]", bar: "Progress", reading: "TaskID") -> "Iterator[ImportLine]":
    """The lines, with the progress bar advanced and problems printed as they are read."""
    bad = 0
    for line in lines:
        bar.advance(reading, line.size_bytes)
        if line.problem:
            bad += 1
            if bad <= MAX_LISTED:
                bar.console.print(f"line {line.number}: {line.problem}", markup=False, highlight=False, soft_wrap=True)
            if bad == MAX_LISTED:
                bar.console.print("further bad lines are only counted")
        yield line
