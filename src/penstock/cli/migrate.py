"""`penstock migrate`: bring the database to the newest form."""

import asyncio

import typer

from penstock import settings as all_settings
from penstock.kernel import migrations
from penstock.settings import Settings
from penstock.wiring import open_database


def migrate() -> None:
    """Take every step the database is missing. Safe to run at any time, from anywhere, twice."""
    steps = asyncio.run(_migrate(all_settings.load()))
    typer.echo(f"migrated: {', '.join(steps)}" if steps else "the database is up to date")


async def _migrate(settings: Settings) -> list[str]:
    db = open_database(settings)
    try:
        return await migrations.migrate(db)
    finally:
        await db.close()
