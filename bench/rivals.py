"""Eight processes race for a hundred thousand rows, on both databases. No row may have two holders at any time."""

import asyncio
import tempfile
from pathlib import Path

from bench import databases
from bench.rounds import Finding
from tests.storms.rivals import race

ROWS = 100_000
SEED = 20261116


def run() -> list[Finding]:
    """One race per database; the figure is the number of rows that went wrong, of all rows."""
    with databases.postgres() as server, databases.folder() as folder:
        asyncio.run(databases.new_database(server, "rivals"))
        url = f"sqlite:///{folder / 'rivals.db'}"
        asyncio.run(databases.migrated(url))
        return [_race("PostgreSQL", server.url("rivals")), _race("SQLite", url)]


def _race(database: str, url: str) -> Finding:
    with tempfile.TemporaryDirectory() as histories:
        verdict = asyncio.run(race(url, Path(histories), rows=ROWS, seed=SEED))
    wrong = len(verdict.held_by_two) + verdict.settled_twice + verdict.left_over
    return Finding(
        what=f"rows held by two, settled twice or lost among eight claimers, {database}",
        unit="of all rows",
        ours=wrong,
        reference=ROWS,
        ratio=wrong / ROWS,
        spread=(wrong / ROWS,) * 2,
        at_most=0.0,
    )
