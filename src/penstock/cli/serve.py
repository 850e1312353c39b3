"""`penstock serve`: the API and, unless told otherwise, workers in the same process."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from penstock import settings as all_settings
from penstock.access import keys
from penstock.cli.running import run_until_signal
from penstock.kernel.processes import ProcessKind
from penstock.settings import Settings
from penstock.web.server import check_port, serve_http
from penstock.wiring import MODULES, Runtime, open_runtime


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535)] = 8080,
    data_dir: Annotated[Path | None, typer.Option(help="The data folder; PENSTOCK_DATA_DIR by default.")] = None,
    workers: Annotated[bool, typer.Option(help="Run jobs in this process too.")] = True,
) -> None:
    """Serve the API; ready when GET /api/v1/health answers 200."""
    settings = all_settings.load()
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir)
    run_until_signal(_serve(settings, host=host, port=port, workers=workers))


async def _serve(settings: Settings, *, host: str, port: int, workers: bool) -> None:
    check_port(host, port)
    async with open_runtime(settings) as house, asyncio.TaskGroup() as tasks:
        first = await first_key(house)
        tasks.create_task(house.keep(kind=ProcessKind.SERVE, rooms=MODULES if workers else ()))
        tasks.create_task(serve_http(house, host=host, port=port))
        if workers:
            tasks.create_task(house.work())
        place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        typer.echo(f"penstock serves {place}  (data in {settings.data_dir}; stop with Ctrl-C)")
        if first:
            typer.echo(f"admin key (shown this once): {first}")
            typer.echo(f"console: {place}/#key={first}")


async def first_key(house: Runtime) -> str | None:
    """Let the preset admin key in; where none is preset and there is no key at all, the one that is made now."""
    async with house.db.tx(actor="serve") as tx:
        if house.settings.admin_key:
            await keys.ensure_admin_key(tx, house.settings.admin_key)
            return None
        return await keys.first_admin_key(tx)
