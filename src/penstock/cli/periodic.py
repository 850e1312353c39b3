"""`penstock periodic`, and `penstock processes`: what runs in the cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AsJson, DataDir

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.kernel.db import Tx
    from penstock.kernel.processes import Process
    from penstock.kernel.scheduler import PeriodicTaskReport

app = typer.Typer(rich_markup_mode=None)

HEADINGS = ("NAME", "STATE", "DUE", "LAST RUN", "WORKER", "ERROR")
PROCESS_HEADINGS = ("ID", "KIND", "ALIVE", "VERSION", "STARTED", "LAST HEARTBEAT", "MODULES")


@app.command("list")
def list_tasks(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the periodic tasks with their next due time and their last run."""
    from penstock.cli.database import load_settings, run_with_db
    from penstock.cli.selection import print_json, print_table
    from penstock.cli.text import printable, shorten, show_time
    from penstock.kernel.scheduler import list_periodic_tasks

    found = run_with_db(list_periodic_tasks, load_settings(data_dir))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            task.name,
            str(task.state),
            show_time(task.due_at),
            show_time(task.finished_at),
            printable(task.worker or "-"),
            shorten(task.error or "-"),
        )
        for task in found
    ]
    print_table(HEADINGS, rows, nothing="no periodic tasks: no process has run yet")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="The task's name, from `penstock periodic list`.")],
    data_dir: DataDir = None,
) -> None:
    """Make a periodic task due now. A process of the cluster runs it within seconds."""
    from penstock.access import audit
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_in_tx
    from penstock.kernel.processes import list_processes
    from penstock.kernel.scheduler import PeriodicTaskState, request_run

    async def request(tx: "Tx") -> "tuple[PeriodicTaskReport, int]":
        task = await request_run(tx, name)
        await audit.record(tx, cli_actor(), "periodic_task.run", f"periodic_task:{name}")
        return task, sum(process.alive for process in await list_processes(tx))

    task, alive = run_in_tx(request, load_settings(data_dir))
    if task.state is PeriodicTaskState.RUNNING:
        typer.echo(f"{name} runs already, in {task.worker}")
    elif alive:
        typer.echo(f"{name} is due now; `penstock periodic list` shows its run")
    else:
        typer.echo(f"{name} is due now, and no process is alive: it runs when one starts")


def print_processes(*, as_json: bool, data_dir: "Path | None") -> None:
    """Print the processes of the last day, latest heartbeat first."""
    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.selection import print_json, print_table
    from penstock.cli.text import printable, show_time
    from penstock.kernel.processes import list_processes

    async def read(tx: "Tx") -> "list[Process]":
        return await list_processes(tx)

    found = run_in_tx(read, load_settings(data_dir))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            printable(process.id),
            str(process.kind),
            "yes" if process.alive else "no",
            process.version,
            show_time(process.started_at),
            show_time(process.seen_at),
            ", ".join(module or "(none)" for module in process.modules) or "-",
        )
        for process in found
    ]
    print_table(PROCESS_HEADINGS, rows, nothing="no process has run within the last day")
