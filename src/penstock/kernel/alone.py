"""One transaction at a time, where what one reads decides what all may write."""

from sqlalchemy import func, select

from penstock.kernel.db import Tx


async def alone(tx: Tx, number: int) -> None:
    """Wait until no other transaction holds this number, and hold it until this one ends.

    What is read from here on has everything that those before have committed. SQLite has one writer anyway.
    """
    if tx.on_postgres:
        await tx.conn.execute(select(func.pg_advisory_xact_lock(number)))
