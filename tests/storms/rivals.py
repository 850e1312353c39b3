"""Rival claimers: processes that race for the same rows, each writing down what it held and when.

Some settle, some give rows back, some fall silent and let their leases run out. Afterwards all histories are laid side
by side: no row may have been held by two at any moment. A hold counts from the moment the claim came back until
the moment before the row was given up, or until the lease's end for those who fell silent.
"""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sqlalchemy import func, select

from penstock.kernel.db import Db
from penstock.kernel.dialect.compiled_statement import LeasedRow
from penstock.kernel.errors import Unavailable
from penstock.kernel.leases import LeaseLost
from penstock.kernel.queue import JobQueue, NewJob, job
from tests.conftest import open_db
from tests.fakes.blocking_handler import wait_until
from tests.storms import processes

RIVALS = 8
BATCH = 50
GO = "go"
PATIENCE_SECONDS = 60  # until all have come
LEASE_SECONDS = 3.0
SILENT, GIVES_BACK = 0.02, 0.05  # how often a claimer does so with a batch


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the histories say."""

    rows: int
    holds: int
    settled: int
    settled_twice: int
    held_by_two: list[str]
    left_over: int
    claimers_that_settled: int


async def race(url: str, folder: Path, *, rows: int, seed: int) -> Verdict:
    """Let the rivals work off the rows and judge what they wrote down."""
    db, queue = open_db(url), JobQueue()
    for start in range(0, rows, 10_000):
        async with db.tx() as tx:
            wave = range(start, min(rows, start + 10_000))
            await queue.enqueue(tx, *(NewJob(id=f"row{n:07}", kind="k", max_attempts=1000) for n in wave))
    rivals = [processes.start(run_rival, url, n, str(folder / f"rival-{n}.jsonl"), seed + n) for n in range(RIVALS)]
    await _until_all_are_there(folder)
    (folder / GO).touch()
    while any(rival.is_alive() for rival in rivals):
        with suppress(Unavailable):
            async with db.tx(actor="timekeeper") as tx:
                await queue.rescue(tx)
        await asyncio.sleep(0.2)  # the rivals are other processes
    assert all(rival.exitcode == 0 for rival in rivals), "a rival died of an error"
    left_over = await _count_left(db)
    await db.close()
    return judge(folder, rows=rows, left_over=left_over)


def run_rival(url: str, number: int, history: str, seed: int) -> None:
    """The life of one claimer: until no row is left."""
    asyncio.run(_rival(url, f"rival-{number}", Path(history), random.Random(seed)))


async def _rival(url: str, owner: str, history: Path, chance: random.Random) -> None:
    db, queue = open_db(url, connections=2), JobQueue()
    with history.open("w") as written:
        await wait_until(history.with_name(GO).exists, seconds=PATIENCE_SECONDS, every_seconds=0.02)
        while True:
            try:
                async with db.tx(actor=owner) as tx:
                    held = await queue.leases.claim(tx, owner=owner, seconds=LEASE_SECONDS, limit=BATCH)
            except Unavailable:
                continue
            since = time.time()
            if held:
                end, how = await _end(db, queue, held, chance)
                record = {"ids": [row.id for row in held], "since": since, "end": end, "how": how, "who": owner}
                written.write(json.dumps(record) + "\n")
                await asyncio.sleep(chance.random() * 0.02)  # SQLite's lock is not fair: let starved claimers in
            elif await _count_left(db) == 0:
                break
            else:
                await asyncio.sleep(0.1)  # what is left is held by others
    await db.close()


async def _until_all_are_there(folder: Path) -> None:
    """Nobody begins before the last one has come: on a slow machine all might be over by then."""
    await wait_until(
        lambda: len([*folder.glob("rival-*.jsonl")]) == RIVALS, seconds=PATIENCE_SECONDS, every_seconds=0.02
    )


async def _end(db: Db, queue: JobQueue, held: Sequence[LeasedRow], chance: random.Random) -> tuple[float, str]:
    """Give the batch up in one of three ways; returns the moment before, and how."""
    ids, token, luck = [row.id for row in held], held[0].lease_token, chance.random()
    if luck < SILENT:
        return held[0].leased_until.timestamp(), "silent"
    while True:
        end = time.time()
        try:
            async with db.tx() as tx:
                if luck < SILENT + GIVES_BACK:
                    await queue.leases.release(tx, ids, token)
                else:
                    await queue.leases.settle(tx, ids, token, state="done", finished_at=tx.now)
        except LeaseLost:
            return held[0].leased_until.timestamp(), "late"
        except Unavailable:
            continue
        return end, "gave back" if luck < SILENT + GIVES_BACK else "settled"


async def _count_left(db: Db) -> int:
    async with db.read() as tx:
        left = select(job.c.id).where(job.c.state.in_(("waiting", "running"))).limit(1)
        return await tx.conn.scalar(select(func.count()).select_from(left.subquery())) or 0


def judge(folder: Path, *, rows: int, left_over: int) -> Verdict:
    """Lay the histories side by side."""
    holds = defaultdict(list)
    settled: defaultdict[str, int] = defaultdict(int)
    claimers = set()
    for path in folder.glob("rival-*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            for row_id in record["ids"]:
                holds[row_id].append((record["since"], record["end"], record["who"]))
                settled[row_id] += record["how"] == "settled"
            if record["how"] == "settled":
                claimers.add(record["who"])
    return Verdict(
        rows=rows,
        holds=sum(map(len, holds.values())),
        settled=sum(1 for count in settled.values() if count == 1),
        settled_twice=sum(1 for count in settled.values() if count > 1),
        held_by_two=[f"{row_id}: {held}" for row_id, held in holds.items() if _overlap(held)],
        left_over=left_over,
        claimers_that_settled=len(claimers),
    )


def _overlap(holds: list[tuple[float, float, str]]) -> bool:
    ordered = sorted(holds)
    return any(later[0] < earlier[1] for earlier, later in pairwise(ordered))
