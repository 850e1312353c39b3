"""`penstock tasks`: import tasks from an older store, for anyone who can reach the database."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.access.domain import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.progress import Progress, TaskID

    from penstock.tasks.api.import_file import ImportItem, ImportReport

MAX_LISTED = 100  # problems that are printed one by one
SUFFIXES = (".json", ".jsonl")  # of the files of a folder that are imported

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def _tasks() -> None:
    """Import tasks."""  # the callback makes `import` a subcommand although it is the only one


@app.command("import")
def import_tasks(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Exports of the older store, or a folder of them: JSON lines or arrays.", exists=True),
    ],
    *,
    project: Annotated[
        str | None, typer.Option(help="Import only this project; tasks that name no project belong to it.")
    ] = None,
    encryption_key: Annotated[
        str | None,
        typer.Option(envvar="ENCRYPTION_KEY", help="Decrypts API keys. Set it in the environment.", show_default=False),
    ] = None,
    key_scope: Annotated[Scope, typer.Option(help="The scope of imported API keys.")] = Scope.WRITE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be imported; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Import projects, queues, tasks and API keys. What exists is kept, so the import can be repeated."""
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from penstock import settings as all_settings
    from penstock.cli.actor import cli_actor
    from penstock.tasks.api.import_file import ImportOptions, ImportReport, import_items, read_files
    from penstock.tasks.import_tasks import Importer
    from penstock.wiring import open_database
    from penstock.wiring.runtime import make_ready

    files = _list_files(paths)
    options = ImportOptions(project=project, encryption_key=encryption_key, key_scope=key_scope, dry_run=dry_run)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        reading = bar.add_task("reading", total=sum(file.stat().st_size for file in files))

        def show_count(report: ImportReport) -> None:
            bar.update(reading, description=f"{report.read} read")

        async def run() -> ImportReport:
            settings = all_settings.load()
            db = open_database(settings)
            try:
                await make_ready(db, settings)
                items = _show_progress(read_files(files, options), bar, reading)
                importer = Importer(by=cli_actor(), lease_seconds=settings.pull_timeout)
                return await import_items(db, items, options, importer, show_count)
            finally:
                await db.close()

        report = asyncio.run(run())
    _print_report(report, as_json=as_json, dry_run=dry_run)
    if report.bad:
        raise typer.Exit(1)


def _list_files(paths: "Sequence[Path]") -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"{path} has no file that ends in {' or '.join(SUFFIXES)}")
        files += inside
    return files


def _show_progress(items: "Iterable[ImportItem]", bar: "Progress", reading: "TaskID") -> "Iterator[ImportItem]":
    """The items, with the progress bar advanced and problems printed as they are read."""
    bad = 0
    for item in items:
        bar.advance(reading, item.size_bytes)
        if item.problem:
            bad += 1
            if bad <= MAX_LISTED:
                text = f"{item.file} line {item.line}: {item.problem}"
                bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            if bad == MAX_LISTED:
                bar.console.print("further problems are only counted")
        yield item


def _print_report(report: "ImportReport", *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        import json
        from dataclasses import asdict

        shown = {name: asdict(one) | {"skipped": dict(one.skipped)} for name, one in report.items()}
        typer.echo(json.dumps({"dry_run": dry_run, "collections": shown}))
        return
    headings = ("COLLECTION", "READ", "CREATED", "UPDATED", "SKIPPED", "BAD")
    rows = [(name, one.read, one.created, one.updated, one.skipped.total(), one.bad) for name, one in report.items()]
    for row in (headings, *rows):
        typer.echo(f"{row[0]:<18}" + "".join(f"{number:>9}" for number in row[1:]))
    for name, one in report.items():
        for reason, count in one.skipped.items():
            typer.echo(f"{count} of {name} skipped: {reason}")
    if dry_run:
        typer.echo("Dry run: nothing was written.")
