"""State transitions: each guarded by the old state and recorded in the same transaction.

`move` changes a row's state if it is still the state the caller read, and records who did what. Of concurrent changes
exactly one wins; for the others no row matches, so `MovedAlready` is raised and nothing is written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, delete, select, update

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.errors import Conflict
from penstock.kernel.machine import Machine

State = TypeVar("State", bound=StrEnum)

state_transitions = Table(
    "state_transitions",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("entity", String, nullable=False),  # the machine's name
    Column("entity_id", Id, nullable=False),
    Column("from_state", String),  # NULL: it was created
    Column("to_state", String, nullable=False),
    Column("trigger", String, nullable=False),  # the verb
    Column("actor", String, nullable=False),
    Column("at", UtcTime, nullable=False),
    Index("ix_state_transitions_entity", "entity", "entity_id", "id"),
    Index("ix_state_transitions_at", "at"),
)
COLUMNS = ("entity", "entity_id", "from_state", "to_state", "trigger", "actor", "at")


class MovedAlready(Conflict):
    """The row is no longer in the state the caller read."""

    code = "MOVED_ALREADY"
    message = "The {entity} {id} is no longer {state}; it was changed in the meantime."
    message_zh = "{entity} {id} 已不再是 {state} 状态；其间已发生变更。"
    hint = "Read it again and decide again."
    hint_zh = "请重新读取后再决定。"


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A recorded state transition; ids grow with time."""

    id: int
    entity: str
    entity_id: str
    from_state: str | None
    to_state: str
    trigger: str
    actor: str
    at: datetime


async def move(
    tx: Tx, table: Table, machine: Machine[State], entity_id: str, *, state: State, verb: str, **values: object
) -> State:
    """Apply a verb to a row that the caller read in `state`; raises `WrongState` or `MovedAlready`."""
    after = machine.move(verb, state)
    guarded = update(table).where(table.c.id == entity_id, table.c.state == state.value)
    result = await tx.conn.execute(guarded.values(state=after.value, **values))
    if result.rowcount != 1:
        raise MovedAlready(entity=machine.name, id=entity_id, state=state.value)
    await record(tx, machine.name, [entity_id], state, after, verb)
    return after


async def record(tx: Tx, entity: str, ids: Iterable[str], before: str | None, after: str, verb: str) -> None:
    """Record the same transition for several rows. The rows themselves have already been updated and guarded."""
    rows = [(entity, entity_id, before, after, verb, tx.actor, tx.now) for entity_id in ids]
    await insert_rows(tx, state_transitions, COLUMNS, rows)


async def list_transitions(
    tx: Tx, entity: str, entity_id: str, *, after: int = 0, limit: int = 100
) -> Sequence[Transition]:
    """The history of one entity, oldest first; `after` is the id of the last transition of the page before."""
    t = state_transitions.c
    mine = select(state_transitions).where(t.entity == entity, t.entity_id == entity_id, t.id > after)
    rows = await tx.conn.execute(mine.order_by(t.id).limit(limit))
    return [Transition(**row._mapping) for row in rows]


async def delete_transitions(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest transitions; returns how many."""
    t = state_transitions.c
    old = select(t.id).where(t.at < before).order_by(t.at).limit(limit)
    return (await tx.conn.execute(delete(state_transitions).where(t.id.in_(old)))).rowcount
