"""A storm of clients that pull: each is a process that works, dawdles, gives back, comes late, pushes twice, or dies.

Clients write down what they were given and what was taken from them, line by line, so that the end of the storm can be
judged by their own journals and by the history that the product kept.
"""

import asyncio
import json
import os
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import aiohttp
from sqlalchemy import select

from penstock.kernel.db import Db
from penstock.tasks.store.tables import task, task_pull
from tests.storms import processes

QUEUE = "/api/v1/projects/p/queues/q"
LEASE_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Storm:
    """How large it is."""

    tasks: int
    clients: int
    kills: int
    seed: int
    kill_every_seconds: float = 0.5


@dataclass(kw_only=True)
class Verdict:
    """What became of it."""

    kills: int = 0
    refused: int = 0  # pushes that came too late
    given_back: int = 0
    not_done: list[str] = field(default_factory=list)
    pushed_not_once: list[str] = field(default_factory=list)  # by the history
    taken_from_two: list[str] = field(default_factory=list)  # by the journals
    held_by_two: list[str] = field(default_factory=list)  # by the history


async def plan(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """A queue full of tasks, in a project that refuses late pushes."""
    project = {"project_id": "p", "name": "P", "conflict_policy": "reject"}
    await _must(session.post(f"{url}/api/v1/projects", json=project))
    await _must(session.post(f"{url}/api/v1/projects/p/queues", json={"queue_id": "q", "name": "Q"}))
    for first in range(0, number, 1000):
        some = range(first, min(first + 1000, number))
        body = {"tasks": [{"taskId": f"t{n}", "name": f"Task {n}", "prompt": "Count."} for n in some]}
        await _must(session.post(f"{url}{QUEUE}/tasks/batch", json=body))


async def _must(asking: Any) -> Any:
    async with asking as answer:
        body = await answer.json()
        assert answer.status < 300, body
        return body["data"]


async def storm(session: aiohttp.ClientSession, urls: list[str], key: str, folder: Path, size: Storm) -> Verdict:
    """Let clients loose until every task is done; kill some of them on the way."""
    dice, verdict, number = random.Random(size.seed), Verdict(), 0
    running: list[ForkServerProcess] = []
    while not await _is_done(session, urls[0], size.tasks):
        running = [child for child in running if child.is_alive()]
        while len(running) < size.clients:
            name = f"client-{number}"
            number += 1
            journal, seed = folder / f"{name}.jsonl", dice.randrange(2**32)
            running.append(processes.start(client, dice.choice(urls), key, name, str(journal), seed))
        await asyncio.sleep(size.kill_every_seconds)
        if verdict.kills < size.kills:
            processes.kill(dice.choice(running))
            verdict.kills += 1
    await _let_end(running)  # those who are late still have something to say
    _read_journals(folder, verdict)
    return verdict


async def _let_end(running: list[ForkServerProcess]) -> None:
    """Clients go when the queue stays empty; who does not is killed."""
    async with asyncio.timeout(60):
        while any(child.is_alive() for child in running):  # noqa: ASYNC110  (they are other processes)
            await asyncio.sleep(0.1)
    for child in running:
        processes.kill(child)


async def _is_done(session: aiohttp.ClientSession, url: str, tasks: int) -> bool:
    found = await _must(session.get(f"{url}{QUEUE}"))
    return bool(found["task_stats"]["done"] == tasks)


def _read_journals(folder: Path, verdict: Verdict) -> None:
    takers: defaultdict[str, set[str]] = defaultdict(set)
    for journal in folder.glob("*.jsonl"):
        for line in journal.read_text().splitlines():
            if not line.endswith("}"):
                continue  # the pen was taken from its hand
            said = json.loads(line)
            if said["did"] == "pushed":
                takers[said["task"]].add(journal.stem)
            verdict.refused += said["did"] == "refused"
            verdict.given_back += said["did"] == "released"
    verdict.taken_from_two = sorted(name for name, who in takers.items() if len(who) > 1)


async def judge(db: Db, verdict: Verdict) -> None:
    """Lay the history of every task beside what must be true of it."""
    pulls: defaultdict[str, list[tuple[datetime, datetime | None, str | None]]] = defaultdict(list)
    async with db.read() as tx:
        p = task_pull.c
        for row in await tx.conn.execute(select(p.task_pk, p.pulled_at, p.ended_at, p.outcome).order_by(p.id)):
            pulls[row.task_pk].append((row.pulled_at, row.ended_at, row.outcome))
        rows = (await tx.conn.execute(select(task.c.id, task.c.task_id, task.c.status, task.c.state))).all()
    for row in rows:
        mine = pulls[row.id]
        if row.status != "done" or row.state != "closed":
            verdict.not_done.append(row.task_id)
        if [outcome for _, _, outcome in mine].count("pushed") != 1 or mine[-1][2] != "pushed":
            verdict.pushed_not_once.append(row.task_id)
        overlaps = (before[1] is None or before[1] > after[0] for before, after in pairwise(mine))
        if any(overlaps):
            verdict.held_by_two.append(row.task_id)


def client(url: str, key: str, name: str, journal: str, seed: int) -> None:
    """One client, until it is killed or nothing is left."""
    asyncio.run(Client(url, name, journal, seed).work(key))


class Client:
    """A client of mixed habits."""

    def __init__(self, url: str, name: str, journal: str, seed: int) -> None:
        self._url = url
        self._name = name
        self._dice = random.Random(seed)
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def work(self, key: str) -> None:
        """Pull and work until the queue stays empty."""
        headers = {"X-API-Key": key, "X-Client-Id": self._name}
        async with aiohttp.ClientSession(headers=headers) as session:
            self._session = session
            while tasks := await self._pull():
                for pulled in tasks:
                    await self._handle(pulled)

    async def _pull(self) -> list[dict[str, Any]]:
        query = {"limit": str(self._dice.choice((1, 5, 20))), "wait": "5"}
        headers = {"Idempotency-Key": f"{self._name}-{self._dice.random()}"} if self._dice.random() < 0.2 else {}
        path = f"{self._url}{QUEUE}/tasks/pull"
        found = await _must(self._session.get(path, params=query, headers=headers))
        if headers:  # as if the first answer had been lost
            found = await _must(self._session.get(path, params=query, headers=headers))
        tasks: list[dict[str, Any]] = found["tasks"]
        for pulled in tasks:
            self._write("pulled", pulled["task_id"])
        return tasks

    async def _handle(self, pulled: dict[str, Any]) -> None:
        task_id, token = pulled["task_id"], pulled["lease_token"]
        habit = self._dice.random()
        if habit < 0.05:
            path = f"{self._url}{QUEUE}/tasks/{task_id}/pull/release"
            async with self._session.post(path, json={"lease_token": token}) as answer:
                self._write("released" if answer.status == 200 else "refused", task_id)
            return
        if habit < 0.08:
            await asyncio.sleep(LEASE_SECONDS + 1)  # too long: by now the task is another's, or on offer again
        with_token = {"X-Lease-Token": token} if habit < 0.6 else {}
        for _ in range(2 if habit > 0.9 else 1):
            await self._push(task_id, with_token)

    async def _push(self, task_id: str, headers: dict[str, str]) -> None:
        path = f"{self._url}/api/v1/tasks/p/q/{task_id}/status"
        async with self._session.patch(path, json={"status": "done"}, headers=headers) as answer:
            body = await answer.json()
            assert answer.status in (200, 409), body
            changed = answer.status == 200 and body["data"]["previous_status"] != "DONE"  # to repeat it changes nothing
            self._write("pushed" if changed else "repeated" if answer.status == 200 else "refused", task_id)

    def _write(self, did: str, task_id: str) -> None:
        os.write(self._journal, (json.dumps({"did": did, "task": task_id}) + "\n").encode())
