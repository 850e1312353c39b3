"""Forget: deliveries whose webhook was removed, and those that are older than the history is kept."""

from datetime import timedelta
from functools import partial

from penstock.kernel.queue import Job
from penstock.kernel.upkeep import until_none
from penstock.notify import store
from penstock.notify.tools import Tools


async def forget_removed(tools: Tools, job: Job) -> None:
    """Delete what was sent to a webhook that is gone."""
    await until_none(partial(_some_of, tools, job.payload["webhook_id"]))


async def forget_old(tools: Tools, history: timedelta) -> None:
    """Delete deliveries that are older than the history is kept."""
    await until_none(partial(_some_old, tools, history))


async def _some_of(tools: Tools, webhook_id: str) -> int:
    async with tools.db.tx() as tx:
        return await store.delete_deliveries_of(tx, webhook_id)


async def _some_old(tools: Tools, history: timedelta) -> int:
    async with tools.db.tx() as tx:
        return await store.delete_old_deliveries(tx, before=tx.now - history)
