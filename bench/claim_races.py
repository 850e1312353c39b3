"""Eight processes claim a hundred thousand rows concurrently, on both databases. No row may ever have two holders.

The reference is the number of all rows, so the ratio is the share of rows that went wrong.
"""

import asyncio
import tempfile
from pathlib import Path

from bench import databases
from bench.comparison import Finding
from tests.storms.rivals import race

ROWS = 100_000
SEED = 20261116


def run() -> list[Finding]:
    """One race per database; the result is the share of rows that went wrong."""
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
