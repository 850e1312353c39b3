"""The table of the toy module and its statements."""

from typing import Any

from sqlalchemy import Boolean, Column, MetaData, Row, Table, Text, insert, select, update

from penstock.kernel.columns import Id
from penstock.kernel.db import Tx

note = Table(
    "toy_note",
    MetaData(),  # not the product's: a test compares that with `kernel/migrations`
    Column("id", Id, primary_key=True),
    Column("text", Text, nullable=False),
    Column("archived", Boolean, nullable=False),
)


async def insert_note(tx: Tx, text: str) -> str:
    """Add a note; returns its id."""
    note_id = tx.new_id("note")
    await tx.conn.execute(insert(note).values(id=note_id, text=text, archived=False))
    return note_id


async def find_note(tx: Tx, note_id: str) -> Row[Any] | None:
    """The note of this id."""
    return (await tx.conn.execute(select(note).where(note.c.id == note_id))).one_or_none()


async def move_upper(tx: Tx, note_id: str, text: str) -> None:
    """Replace the text."""
    await tx.conn.execute(update(note).where(note.c.id == note_id).values(text=text))


async def archive_notes(tx: Tx, note_ids: list[str]) -> None:
    """Archive these notes."""
    await tx.conn.execute(update(note).where(note.c.id.in_(note_ids)).values(archived=True))


async def list_open(tx: Tx) -> list[Row[Any]]:
    """The notes that are not archived."""
    return list((await tx.conn.execute(select(note).where(~note.c.archived))).all())
