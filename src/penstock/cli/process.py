"""`penstock serve`, `penstock work` and `penstock migrate`.

The first `serve` on an empty database creates an admin key and prints it once.
"""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import typer

from penstock.access import keys, login
from penstock.cli.database import describe_database, load_settings, require_database
from penstock.cli.signals import run_until_signal
from penstock.kernel import migrations
from penstock.kernel.processes import ProcessKind
from penstock.settings import Settings
from penstock.web.server import check_port, serve_http
from penstock.wiring import MODULES, Runtime, migration_folders, open_database, open_runtime


def serve(*, host: str, port: int, data_dir: Path | None, workers: bool) -> None:
    """Serve the API, with workers in the same process unless they are turned off."""
    run_until_signal(_serve(load_settings(data_dir), host=host, port=port, workers=workers))


def work(modules: str, *, data_dir: Path | None) -> None:
    """Run jobs of the given modules, comma-separated; of all modules when empty. The database must exist."""
    names = tuple(dict.fromkeys(name.strip() for name in modules.split(",") if name.strip()))
    if unknown := [name for name in names if name not in MODULES]:
        known = ", ".join(MODULES)
        raise typer.BadParameter(f"no module {unknown[0]!r}; the modules are: {known}", param_hint="--modules")
    run_until_signal(_work(load_settings(data_dir), names))


def migrate(*, data_dir: Path | None) -> None:
    """Apply the pending migrations."""
    settings = load_settings(data_dir)

    async def apply() -> list[str]:
        db = open_database(settings)
        try:
            return await migrations.migrate(db, migration_folders())
        finally:
            await db.close()

    typer.echo(f"using {describe_database(settings)}", err=True)
    applied = asyncio.run(apply())
    typer.echo(f"migrated: {', '.join(applied)}" if applied else "the database is up to date")


async def _serve(settings: Settings, *, host: str, port: int, workers: bool) -> None:
    check_port(host, port)
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as tasks:
        new_key, setup_token = await ensure_admin_key(runtime), await create_setup_token(runtime)
        gc.collect()
        gc.freeze()  # what is loaded now stays: a full collection would stop every request for 0.1 s to look at it
        modules = runtime.modules.with_jobs if workers else ()
        tasks.create_task(runtime.run_background(kind=ProcessKind.SERVE, modules=modules))
        tasks.create_task(serve_http(runtime, host=host, port=port))
        if workers:
            tasks.create_task(runtime.work())
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        typer.echo(f"penstock listens on {url}  (data in {settings.data_dir.absolute()}; stop with Ctrl-C)")
        if setup_token:
            typer.echo(f"setup token (creates the first console user, once, within a day): {setup_token}")
        if new_key:
            typer.echo(f"admin key (shown only once): {new_key}")


async def _work(settings: Settings, names: Sequence[str]) -> None:
    require_database(settings)
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as tasks:
        modules = names or runtime.modules.with_jobs
        tasks.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=modules))
        tasks.create_task(runtime.work(modules))
        where = f"{describe_database(settings)}, data in {settings.data_dir.absolute()}"
        typer.echo(f"penstock works as {runtime.owner}  ({where}; stop with Ctrl-C)")


async def create_setup_token(runtime: Runtime) -> str | None:
    """A token for the creation of the first console user; None if there is a user."""
    async with runtime.db.tx(actor="serve") as tx:
        return await login.create_setup_token(tx)


async def ensure_admin_key(runtime: Runtime) -> str | None:
    """Store the admin key of the settings. Without one, create and return the first key if there are no keys yet."""
    async with runtime.db.tx(actor="serve") as tx:
        if runtime.settings.admin_key:
            await keys.ensure_admin_key(tx, runtime.settings.admin_key)
            return None
        return await keys.first_admin_key(tx)
