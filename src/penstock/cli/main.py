"""The command line's front door."""

import logging
import sys

import typer

from penstock.cli import demo, migrate, serve, work
from penstock.kernel.errors import PenstockError

cli = typer.Typer(
    name="penstock",
    help="Takes work in - files, upstream APIs, tasks - and carries each piece through to a result, once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
cli.command("serve")(serve.serve)
cli.command("work")(work.work)
cli.command("migrate")(migrate.migrate)
cli.command("demo")(demo.demo)


def app() -> None:
    """Run the command line. An error we can name is shown in words, not as a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        cli()
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(1)
