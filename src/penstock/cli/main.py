"""The `penstock` command: its subcommands with their options. What a command does is imported when it runs."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from penstock import __version__
from penstock.cli.options import AsJson, DataDir
from penstock.kernel.errors import PenstockError

Port = Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535)]


class LazyGroup(TyperGroup):
    """A command group that imports `penstock.cli.<name>` when one of its commands is needed."""

    def _load(self) -> None:
        if not self.commands:
            group = get_group(import_module(f"penstock.cli.{self.name}").app)
            self.commands, self.callback = group.commands, group.callback

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in order of definition."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        self._load()
        return super().get_command(ctx, cmd_name)


cli = typer.Typer(
    name="penstock",
    help="Takes work in - files, upstream APIs, tasks - and carries each piece through to a result, once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rendering help with Rich takes longer than everything else that --help does
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@cli.callback()
def _set_up(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    import logging

    from penstock import settings as all_settings
    from penstock.kernel.logs import set_up_logs

    settings = all_settings.load()
    set_up_logs(style=settings.log_format, level=settings.log_level)
    for name, suggestion in all_settings.unknown().items():
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        logging.getLogger(__name__).warning("Unknown setting %s%s", name, hint)


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Port = 8080,
    data_dir: DataDir = None,
    workers: Annotated[bool, typer.Option(help="Run jobs in this process too.")] = True,
) -> None:
    """Serve the API. Ready when GET /api/v1/health answers 200."""
    from penstock.cli import process

    process.serve(host=host, port=port, data_dir=data_dir, workers=workers)


@cli.command()
def work(
    modules: Annotated[
        str, typer.Option(help="Run only the jobs of these modules, comma-separated, such as: etl,tasks.")
    ] = "",
    rooms: Annotated[str, typer.Option(hidden=True, help="The former name of --modules.")] = "",
    data_dir: DataDir = None,
) -> None:
    """Run jobs until stopped. Unfinished jobs return to the queue."""
    from penstock.cli import process

    process.work(modules or rooms, data_dir=data_dir)


@cli.command()
def migrate(data_dir: DataDir = None) -> None:
    """Migrate the database to the current schema. Safe to repeat and to run from several hosts at once."""
    from penstock.cli import process

    process.migrate(data_dir=data_dir)


cli.add_typer(
    typer.Typer(cls=LazyGroup), name="keys", help="Create, list, rotate and revoke API keys.", no_args_is_help=True
)
cli.add_typer(
    typer.Typer(cls=LazyGroup),
    name="users",
    help="Add, list and remove console users, reset passwords.",
    no_args_is_help=True,
)
cli.add_typer(
    typer.Typer(cls=LazyGroup), name="jobs", help="Look at jobs, and retry failed ones.", no_args_is_help=True
)
cli.add_typer(
    typer.Typer(cls=LazyGroup), name="messages", help="Look at dead letters, and resend them.", no_args_is_help=True
)
cli.add_typer(
    typer.Typer(cls=LazyGroup), name="periodic", help="Look at periodic tasks, and run one now.", no_args_is_help=True
)
cli.add_typer(typer.Typer(cls=LazyGroup), name="tasks", help="Import tasks.", no_args_is_help=True)
cli.add_typer(
    typer.Typer(cls=LazyGroup), name="etl", help="Turn documents into markdown and JSON.", no_args_is_help=True
)


@cli.command()
def processes(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the servers and workers of the cluster, with their last heartbeat."""
    from penstock.cli.periodic import print_processes

    print_processes(as_json=as_json, data_dir=data_dir)


@cli.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Check settings, connections, clocks and permissions. Exits with 1 when a check fails."""
    from penstock.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(as_json=as_json, data_dir=data_dir))


@cli.command()
def demo(
    port: Port = 8080,
    leave: Annotated[bool, typer.Option("--exit", help="Exit after the demo instead of serving on.")] = False,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
) -> None:
    """Run a guided demo on sample data: a killed worker, a pulled task, two invoices."""
    from penstock.cli.demo import tour

    tour.run_demo(port=port, leave=leave, worker=worker)


def app() -> None:
    """Run the command line. A known error is printed as a message with its hint, without a traceback."""
    try:
        cli()
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        if hint := error.terminal_hint or error.hint:
            print(f"  {hint}", file=sys.stderr)
        sys.exit(1)
