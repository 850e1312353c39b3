"""Relays killed with -9 and frozen at random points under load.

Every message has a handler, which writes a row and sends a second message, and a sink. The sink appends the ids it gets
to a file, its external system, and writes a row when messages are marked sent. The table has no unique constraint, so a
message that takes effect twice shows as two rows.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from sqlalchemy import Column, Integer, MetaData, String, Table, func, select

from penstock.kernel.db import Db, Tx
from penstock.kernel.message import Message
from penstock.kernel.outbox import OutboxMessage, outbox
from penstock.kernel.relay import Relay, Routes, SinkResult
from penstock.kernel.transitions import state_transitions
from tests.conftest import open_db
from tests.storms import processes

RELAYS = 2
WAVE = 500
ATTEMPTS = 1000  # a storm may hit one message many times; giving up is another test's subject

relay_effect = Table("relay_effect", MetaData(), Column("kind", String), Column("number", Integer))


@dataclass(frozen=True, kw_only=True)
class Question(Message):
    """Its handler sends an answer."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Answer(Question):
    """The second message."""


class FileSink:
    """Appends ids to a file, in one write, and writes rows in the settling transaction."""

    channels: Collection[str] = frozenset({Question.__name__, Answer.__name__})

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Append the ids."""
        os.write(self._file, "".join(f"{message.id}\n" for message in messages).encode())
        await asyncio.sleep(0.005)  # a moment in which a kill finds the entry made and the message not marked
        return SinkResult(write=self._write)

    async def _write(self, tx: Tx, messages: Sequence[OutboxMessage]) -> None:
        rows = [{"kind": f"sink {message.channel}", "number": message.payload["number"]} for message in messages]
        await tx.conn.execute(relay_effect.insert(), rows)


@dataclass(frozen=True, kw_only=True)
class RelayVerdict:
    """What a storm of killed relays left behind."""

    messages: int
    states: dict[str, int]
    wrong_effects: list[tuple[str, int, int]]  # kind, number, count
    wrong_deliveries: list[str]  # ids without exactly one recorded delivery
    not_in_sink: list[str]
    unknown_in_sink: list[str]
    sink_repeats: int
    kills: int


async def relay_storm(url: str, folder: Path, *, kills: int, freezes: int, seed: int) -> RelayVerdict:
    """Send messages while relays are killed, or frozen until another has their messages, until all have arrived."""
    db, chance, sink = open_db(url), random.Random(seed), folder / "sink"
    async with db.tx() as tx:
        await tx.conn.run_sync(relay_effect.metadata.create_all)
    names = (f"relay-{number}" for number in range(1000))
    crew = {name: processes.start(run_relay, url, name, str(sink)) for name in (next(names) for _ in range(RELAYS))}
    deeds = chance.sample(["kill"] * kills + ["freeze"] * freezes, k=kills + freezes)
    sent = 0
    for deed in deeds:
        if await _count_open(db) < WAVE:
            sent += await _send(db, start=sent)
        await asyncio.sleep(chance.uniform(0.01, 0.25))  # real time: the relays are other processes
        victim = chance.choice(list(crew))
        if deed == "freeze":
            await _freeze(db, crew[victim], alive=set(crew) - {victim})
            continue
        await asyncio.to_thread(processes.kill, crew.pop(victim))
        replacement = next(names)
        crew[replacement] = processes.start(run_relay, url, replacement, str(sink))
        await _expire(db, alive=crew)
    await _until_sent(db, alive=crew)
    for process in crew.values():
        processes.kill(process)
    verdict = await _judge(db, sink, sent, kills)
    await db.close()
    return verdict


def run_relay(url: str, owner: str, sink: str) -> None:
    """The life of one relay process: it delivers until it is killed."""
    asyncio.run(_relay(open_db(url), owner, Path(sink)).run())


def _relay(db: Db, owner: str, sink: Path) -> Relay:
    async def answer(tx: Tx, message: Question) -> None:
        await tx.conn.execute(relay_effect.insert().values(kind="handled Question", number=message.number))
        tx.send(Answer(number=message.number))

    async def take(tx: Tx, message: Answer) -> None:
        await tx.conn.execute(relay_effect.insert().values(kind="handled Answer", number=message.number))

    routes: Routes = {Question: [answer], Answer: [take]}
    return Relay(db, routes, sinks=[FileSink(sink)], owner=owner, max_attempts=ATTEMPTS)


async def _send(db: Db, *, start: int) -> int:
    async with db.tx() as tx:
        for number in range(start, start + WAVE):
            tx.send(Question(number=number))
    return WAVE


async def _freeze(db: Db, process: ForkServerProcess, *, alive: Collection[str]) -> None:
    """Freeze a relay until others have delivered its messages; thawed, it is late."""
    await processes.freeze_between_writes(process, db)
    await _expire(db, alive=alive)
    await asyncio.sleep(0.5)  # real time: the other relay is another process
    processes.thaw(process)


async def _expire(db: Db, *, alive: Collection[str]) -> None:
    """Let the leases of relays that are dead or frozen run out now; waiting for it would take a minute."""
    async with db.tx() as tx:
        held = select(outbox.c.id).where(outbox.c.state == "sending", outbox.c.lease_owner.not_in(alive))
        # A frozen relay may be settling the others, or the server has not noticed yet that their relay is dead.
        free = held.with_for_update(skip_locked=True)
        await tx.conn.execute(outbox.update().where(outbox.c.id.in_(free)).values(leased_until=tx.now))
        await Relay(db, {}, owner="rescuer").rescue(tx)


async def _count_open(db: Db) -> int:
    async with db.read() as tx:
        unsent = select(func.count()).select_from(outbox).where(outbox.c.state.in_(["waiting", "sending"]))
        return await tx.conn.scalar(unsent) or 0


async def _until_sent(db: Db, *, alive: Collection[str]) -> None:
    async with asyncio.timeout(120):
        while await _count_open(db):
            await _expire(db, alive=alive)
            await asyncio.sleep(0.1)  # the relays are other processes


async def _judge(db: Db, sink: Path, sent: int, kills: int) -> RelayVerdict:
    t = state_transitions.c
    async with db.read() as tx:
        rows = (await tx.conn.execute(select(outbox.c.id, outbox.c.state))).all()
        found = Counter(map(tuple, (await tx.conn.execute(select(relay_effect))).all()))
        delivered = Counter((await tx.conn.scalars(select(t.entity_id).where(t.trigger == "deliver"))).all())
    entries, ids = Counter(sink.read_text().split()), {row.id for row in rows}
    kinds = [f"{place} {name}" for place in ("handled", "sink") for name in ("Question", "Answer")]
    expected = {(kind, number) for kind in kinds for number in range(sent)}
    return RelayVerdict(
        messages=2 * sent,
        states=Counter(row.state for row in rows),
        wrong_effects=[(*effect, found[effect]) for effect in expected | set(found) if found[effect] != 1],
        wrong_deliveries=[message_id for message_id in ids if delivered[message_id] != 1],
        not_in_sink=sorted(ids - set(entries)),
        unknown_in_sink=sorted(set(entries) - ids),
        sink_repeats=sum(count - 1 for count in entries.values()),
        kills=kills,
    )
