"""What keeps the tables of access from growing: each duty is done once in the cluster."""

from datetime import timedelta
from functools import partial

from penstock.access import audit, store
from penstock.kernel.db import Db
from penstock.kernel.maintenance import ACTOR, TIDY_SECONDS, Forget, until_none
from penstock.kernel.scheduler import PeriodicTask


def periodic_tasks(db: Db, *, audit_age: timedelta, lock: timedelta) -> list[PeriodicTask]:
    """Forget old lines of the audit log, and with them keys that open nothing; logins when they end; attempts when
    they no longer count."""
    ages: list[tuple[Forget, timedelta]] = [
        (audit.delete_lines, audit_age),
        (store.delete_keys, audit_age),
        (store.delete_sessions, timedelta()),
        (store.delete_attempts, lock),
    ]

    async def forget_some(forget: Forget, age: timedelta) -> int:
        async with db.tx(actor=ACTOR) as tx:
            return await forget(tx, before=tx.now - age)

    async def forget_all() -> None:
        for forget, age in ages:
            await until_none(partial(forget_some, forget, age))

    return [PeriodicTask(name="forget-access", every_seconds=TIDY_SECONDS, run=forget_all)]
