"""Jobs and periodic tasks of the gateway module."""

import logging
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from penstock.gateway import create, end, store, write
from penstock.gateway.deps import Deps
from penstock.gateway.domain import UploadState, blob_key
from penstock.kernel.db import Tx
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.queue import Job
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.staging import STAGED_PREFIX
from penstock.kernel.workers import JobHandler, Settle

log = logging.getLogger(__name__)

MODULE = create.MODULE
CLEANER = "cleaner"
CLEAN_SECONDS = 3600
BATCH = 100
GONE_SECONDS = 24 * 3600  # how long an expired upload is answered with 410
ORPHAN_AGE = timedelta(days=1)  # staged bytes without a row: a process was killed while it created the upload


def handlers(deps: Deps) -> Mapping[str, JobHandler]:
    """The handler of each job kind."""
    return {create.ASSEMBLE: partial(assemble, deps)}


def periodic_tasks(deps: Deps) -> list[PeriodicTask]:
    """The module's periodic tasks."""
    return [PeriodicTask(name="clean-uploads", every_seconds=CLEAN_SECONDS, run=partial(clean, deps))]


async def assemble(deps: Deps, job: Job) -> Settle | None:
    """Join the partial uploads of a final one."""
    async with deps.db.read() as tx:
        final = await store.find_living(tx, job.payload["upload_id"])
    if final is None or final.state is not UploadState.ASSEMBLING:
        return None
    sources = [await deps.blobs.stat(blob_key(part)) for part in final.parts]
    await deps.staging.join(final.blob_key, sources)

    async def settle(tx: Tx) -> None:
        await write.finish(tx, deps, final)

    return settle


async def clean(deps: Deps) -> None:
    """Expire uploads, delete rows of those that are long gone, and discard staged bytes without a row."""
    await repeat_until_zero(partial(_expire_some, deps))

    async def delete_some() -> int:
        async with deps.db.tx(actor=CLEANER) as tx:
            return await store.delete_gone(tx, before=tx.now - timedelta(seconds=GONE_SECONDS), limit=BATCH)

    await repeat_until_zero(delete_some)
    await _discard_orphans(deps)


async def _expire_some(deps: Deps) -> int:
    async with deps.db.read() as tx:
        due = await store.list_expired(tx, limit=BATCH)
    for upload in due:
        async with deps.db.tx(actor=CLEANER) as tx:
            is_expired = await end.expire(tx, upload)
        if is_expired:
            await end.delete_bytes(deps, upload)
    return len(due)


async def _discard_orphans(deps: Deps) -> None:
    staged = await deps.staging.list_staged(older_than=deps.db.clock.now() - ORPHAN_AGE)
    async with deps.db.read() as tx:
        known = await store.list_known(tx, [one.key.removeprefix(STAGED_PREFIX) for one in staged])
    for one in staged:
        if one.key.removeprefix(STAGED_PREFIX) not in known:
            log.info("discarding %s: no upload has it", one.key)
            await deps.staging.discard(one)
