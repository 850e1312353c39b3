"""The periodic task of access: it deletes audit rows and inactive keys after PENSTOCK_AUDIT_DAYS, sessions when they
end, and login attempts when they no longer count.
"""

from datetime import timedelta
from functools import partial

from penstock.access import audit, login_attempts, store
from penstock.kernel.db import Db
from penstock.kernel.maintenance import ACTOR, CLEANUP_SECONDS, DeleteOld, repeat_until_zero
from penstock.kernel.scheduler import PeriodicTask


def cleaner(db: Db, *, audit_age: timedelta, lock: timedelta) -> PeriodicTask:
    """Delete old audit lines and keys, expired sessions, and login attempts that no longer count."""
    ages: list[tuple[DeleteOld, timedelta]] = [
        (audit.delete_lines, audit_age),
        (store.delete_keys, audit_age),
        (store.delete_sessions, timedelta()),
        (login_attempts.delete_old, lock),
        (store.delete_setup_tokens, timedelta()),
    ]

    async def delete_some(delete: DeleteOld, age: timedelta) -> int:
        async with db.tx(actor=ACTOR) as tx:
            return await delete(tx, before=tx.now - age)

    async def run() -> None:
        for delete, age in ages:
            await repeat_until_zero(partial(delete_some, delete, age))

    return PeriodicTask(name="forget-access", every_seconds=CLEANUP_SECONDS, run=run)
