"""The command line's front door."""

import logging
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from penstock import settings as all_settings
from penstock.cli import demo, doctor, etl, keys, migrate, serve, tasks, work
from penstock.kernel.errors import PenstockError
from penstock.kernel.logs import set_up_logs

log = logging.getLogger(__name__)

cli = typer.Typer(
    name="penstock",
    help="Takes work in - files, upstream APIs, tasks - and carries each piece through to a result, once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
cli.command("serve")(serve.serve)
cli.command("work")(work.work)
cli.command("migrate")(migrate.migrate)
cli.add_typer(keys.keys)
cli.add_typer(tasks.tasks)
cli.add_typer(etl.etl)
cli.command("doctor")(doctor.doctor)
cli.command("demo")(demo.demo)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@cli.callback()
def _begin(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    settings = all_settings.load()
    set_up_logs(style=settings.log_format, level=settings.log_level)
    for name, meant in all_settings.unknown().items():
        log.warning("%s is no setting%s", name, f"; was {meant} meant?" if meant else "")


def app() -> None:
    """Run the command line. An error we can name is shown in words, not as a traceback."""
    try:
        cli()
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(1)
