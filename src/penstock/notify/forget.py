"""Forget: deliveries whose webhook was removed, and those that are older than the history is kept."""

from datetime import timedelta
from functools import partial

from penstock.kernel.maintenance import until_none
from penstock.kernel.queue import Job
from penstock.notify import store
from penstock.notify.deps import Deps


async def forget_removed(tools: Deps, job: Job) -> None:
    """Delete what was sent to a webhook that is gone."""
    await until_none(partial(_some_of, tools, job.payload["webhook_id"]))


async def forget_old(tools: Deps, history: timedelta) -> None:
    """Delete deliveries that are older than the history is kept."""
    await until_none(partial(_some_old, tools, history))


async def _some_of(tools: Deps, webhook_id: str) -> int:
    async with tools.db.tx() as tx:
        return await store.delete_deliveries_of(tx, webhook_id)


async def _some_old(tools: Deps, history: timedelta) -> int:
    async with tools.db.tx() as tx:
        return await store.delete_old_deliveries(tx, before=tx.now - history)
