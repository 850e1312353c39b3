"""Two hundred workers killed -9 at random points under load, on both databases. Nothing may be lost or doubled."""

import asyncio
import tempfile
from pathlib import Path

from bench import databases
from bench.rounds import Finding
from tests.storms.kills import Verdict, storm

KILLS, FREEZES = 200, 20
SEED = 20261115


def run() -> list[Finding]:
    """One long storm per database; the figure is the number of jobs that went wrong, of all jobs."""
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
        what=f"jobs lost, doubled or settled late in {KILLS} kills and {FREEZES} freezes, {database}",
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
