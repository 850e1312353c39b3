"""`penstock etl`: documents become markdown and JSON, from the terminal.

It works on the house directly, as whoever set it up: no server has to run. What a script may want goes to standard
output; progress, and what people should know, to standard error.
"""

import logging
from pathlib import Path
from typing import Annotated

import typer

from penstock import settings as all_settings
from penstock.access.domain import MOST_ID
from penstock.cli import etl_files, etl_out, etl_show
from penstock.cli.etl_files import Found
from penstock.cli.etl_house import TaskNumber, caller, run
from penstock.cli.etl_review import reviews
from penstock.cli.etl_rules import rules
from penstock.cli.etl_show import Piece
from penstock.cli.etl_submit import Errand, Order
from penstock.cli.etl_words import plain
from penstock.cli.running import run_until_signal
from penstock.etl import advance, steer
from penstock.etl.domain import EtlTask, Stage
from penstock.etl.steer import Again

MOST_NAMED = 10  # files that were left out, by name

etl = typer.Typer(name="etl", help="Turn documents into markdown and JSON.", no_args_is_help=True)
etl.add_typer(reviews)
etl.add_typer(rules)


@etl.callback()
def _begin() -> None:
    """Turn documents into markdown and JSON."""
    if all_settings.load().log_level == "INFO":  # what a server notes by the way is noise to a person
        logging.getLogger("penstock").setLevel(logging.WARNING)
        logging.getLogger(advance.__name__).setLevel(logging.ERROR)  # why a document failed is told at the end


@etl.command("submit")
def submit(
    files: Annotated[list[Path], typer.Argument(help="Files, and folders whose files are meant.", exists=True)],
    rule: Annotated[str | None, typer.Option(help="The rule, by its number or name; else the default one.")] = None,
    project: Annotated[int, typer.Option(help="The project they belong to.", min=0, max=MOST_ID)] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all of them are over.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Make all of it anew, whatever was made before.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for results and markdown, or a table FILE.csv; waits, too.")
    ] = None,
) -> None:
    """Submit documents. With --wait, and no worker running, the work is done here."""
    if out is not None:
        _make_place(out)
    found = etl_files.find(files)
    _tell_left_out(found)
    if not found.documents:
        typer.echo("There is nothing here that can be read.", err=True)
        raise typer.Exit(1)
    wait = wait or out is not None
    order = Order(documents=found.documents, rule=rule, project_id=project, out=out, wait=wait, force=force)
    errand = Errand(order, caller())
    run_until_signal(errand.run(all_settings.load()))
    raise typer.Exit(errand.sum_up())


@etl.command("show")
def show(
    task_id: TaskNumber,
    piece: Annotated[
        Piece | None, typer.Option("--print", help="Print what was made, as it is stored, and nothing else.")
    ] = None,
) -> None:
    """Show a task: how far it is, what became of it, and where on the page each value came from."""
    if piece is not None:
        run(lambda house: etl_show.print_piece(house.rooms.etl, caller(), task_id, piece))
        return
    etl_show.print_task(run(lambda house: etl_show.look(house.rooms.etl, caller(), task_id)))


@etl.command("retry")
def retry(
    task_id: TaskNumber,
    from_stage: Annotated[
        Stage | None, typer.Option("--from", help="mineru reads again; postprocess begins with what was read.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also a completed task, and without the memory.")] = False,
) -> None:
    """Try a task again that failed or was cancelled. Whoever works next takes it up."""
    again = Again(from_stage=from_stage, force=force)
    _tell_moved(run(lambda house: steer.retry(house.rooms.etl, caller(), task_id, again)))


@etl.command("cancel")
def cancel(
    task_id: TaskNumber,
    force: Annotated[bool, typer.Option("--force", help="Also a running task: its worker stops.")] = False,
) -> None:
    """Take a task back that waits."""
    move = steer.abort if force else steer.cancel
    _tell_moved(run(lambda house: move(house.rooms.etl, caller(), task_id)))


def _make_place(out: Path) -> None:
    try:
        etl_out.make_place(out)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--out") from error


def _tell_left_out(found: Found) -> None:
    if not found.left_out:
        return
    names = [plain(path) for path in found.left_out[:MOST_NAMED]]
    more = len(found.left_out) - len(names)
    told = ", ".join(names) + (f" and {more} more" if more else "")
    typer.echo(f"left out, of no kind that can be read: {told}", err=True)


def _tell_moved(task: EtlTask) -> None:
    typer.echo(f"{task.id}\t{task.status}\t{plain(task.filename)}")
