"""`penstock serve`, `penstock work` and `penstock migrate`.

The first `serve` on an empty database creates an admin key and prints it once.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import typer

from penstock import settings as all_settings
from penstock.access import keys
from penstock.cli.signals import run_until_signal
from penstock.kernel import migrations
from penstock.kernel.processes import ProcessKind
from penstock.settings import Settings
from penstock.web.server import check_port, serve_http
from penstock.wiring import MODULES, Runtime, open_database, open_runtime


def serve(*, host: str, port: int, data_dir: Path | None, workers: bool) -> None:
    """Serve the API, with workers in the same process unless they are turned off."""
    settings = all_settings.load()
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir)
    run_until_signal(_serve(settings, host=host, port=port, workers=workers))


def work(modules: str) -> None:
    """Run jobs of the given modules, comma-separated; of all modules when empty."""
    names = tuple(dict.fromkeys(name.strip() for name in modules.split(",") if name.strip()))
    if unknown := [name for name in names if name not in MODULES]:
        known = ", ".join(filter(None, MODULES))
        raise typer.BadParameter(f"no module {unknown[0]!r}; the modules are: {known}", param_hint="--modules")
    run_until_signal(_work(all_settings.load(), names or tuple(MODULES)))


def migrate() -> None:
    """Apply the pending migrations."""

    async def apply() -> list[str]:
        db = open_database(all_settings.load())
        try:
            return await migrations.migrate(db)
        finally:
            await db.close()

    applied = asyncio.run(apply())
    typer.echo(f"migrated: {', '.join(applied)}" if applied else "the database is up to date")


async def _serve(settings: Settings, *, host: str, port: int, workers: bool) -> None:
    check_port(host, port)
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as tasks:
        new_key = await ensure_admin_key(runtime)
        tasks.create_task(runtime.run_background(kind=ProcessKind.SERVE, modules=MODULES if workers else ()))
        tasks.create_task(serve_http(runtime, host=host, port=port))
        if workers:
            tasks.create_task(runtime.work())
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        typer.echo(f"penstock listens on {url}  (data in {settings.data_dir}; stop with Ctrl-C)")
        if new_key:
            typer.echo(f"admin key (shown only once): {new_key}")
            typer.echo(f"console: {url}/#key={new_key}")


async def _work(settings: Settings, modules: Sequence[str]) -> None:
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=modules))
        tasks.create_task(runtime.work(modules))
        typer.echo(f"penstock works as {runtime.owner}  (data in {settings.data_dir}; stop with Ctrl-C)")


async def ensure_admin_key(runtime: Runtime) -> str | None:
    """Store the admin key of the settings. Without one, create and return the first key if there are no keys yet."""
    async with runtime.db.tx(actor="serve") as tx:
        if runtime.settings.admin_key:
            await keys.ensure_admin_key(tx, runtime.settings.admin_key)
            return None
        return await keys.first_admin_key(tx)
