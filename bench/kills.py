"""Two hundred kills (SIGKILL) and freezes of workers under load, on both databases.

No job may be lost, duplicated or settled late; the reference is the number of all jobs.
"""

import asyncio
import tempfile
from pathlib import Path

from bench import databases
from bench.comparison import Finding
from tests.storms.kills import Verdict, storm

KILLS, FREEZES = 200, 20
SEED = 20261115


def run() -> list[Finding]:
    """One storm per database; the result is the share of jobs that went wrong."""
    with databases.postgres() as server, databases.folder() as folder:
        asyncio.run(databases.new_database(server, "kills"))
        url = f"sqlite:///{folder / 'kills.db'}"
        asyncio.run(databases.migrated(url))
        return [_storm("PostgreSQL", server.url("kills")), _storm("SQLite", url)]


def _storm(database: str, url: str) -> Finding:
    with tempfile.TemporaryDirectory() as logs:
        verdict = asyncio.run(storm(url, Path(logs), kills=KILLS, freezes=FREEZES, seed=SEED))
    wrong = _wrong(verdict)
    return Finding(
        what=f"jobs lost, duplicated or settled late in {KILLS} kills and {FREEZES} freezes, {database}",
        unit="of all jobs",
        ours=wrong,
        reference=verdict.jobs,
        ratio=wrong / verdict.jobs,
        spread=(wrong / verdict.jobs,) * 2,
        at_most=0.0,
        notes={"late workers refused": verdict.late_workers_refused},
    )


def _wrong(verdict: Verdict) -> int:
    lost = verdict.not_done + verdict.without_effect
    return lost + verdict.with_two_effects + len(verdict.wrong_histories)
