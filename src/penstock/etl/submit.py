"""Submit: create a task for a stored document.

The row, its first job and its messages are one transaction: no task without a job, no job without a task. Run state is
written right after it. The rule is pinned in its current version.
"""

from dataclasses import dataclass

from penstock.access.domain import Caller
from penstock.documents.errors import DocumentTooLarge
from penstock.etl import lifecycle, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, Rule, Status
from penstock.etl.errors import ReservedSource, SourceNotOwned
from penstock.etl.store import tasks
from penstock.kernel.blobs import check_key
from penstock.kernel.db import Tx


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to be created. `s3_key` defaults to the key of uploads of that filename, `rule_id` to the default rule.

    `force` bypasses the cache of earlier results.
    """

    project_id: int
    filename: str
    rule_id: int | None = None
    s3_key: str | None = None
    force: bool = False


async def submit(deps: Deps, caller: Caller, new: NewTask) -> EtlTask:
    """Create a task and enqueue its first stage."""
    key = source_key(caller, new)
    await _check_source(deps, key, new.filename)
    async with deps.db.tx(actor=caller.name) as tx:
        rule = await lifecycle.get_rule_for_task(deps, tx, caller, new.rule_id)
        await lifecycle.check_queue_capacity(deps, tx)
        task = await tasks.insert_task(tx, _first_run(tx, caller, new, key, rule))
        await deps.queue.enqueue(tx, lifecycle.stage_job(deps, task, Phase.OCR))
        await lifecycle.record_submitted(tx, task, before=None, verb="submit")
    await runs.show_soon(deps, task)
    return task


def source_key(caller: Caller, new: NewTask) -> str:
    """The blob key of the document. A foreign `s3_key` is refused, and a filename that is invalid in a key."""
    raw = papers.raw_key(caller.user_id, new.project_id, new.filename)
    key = new.s3_key or raw
    for checked in (key, raw, papers.public_key(caller.user_id, new.project_id, new.filename)):
        check_key(checked)
    own = papers.own_prefix(caller.user_id)
    if not key.startswith(own) and not caller.is_admin:
        raise SourceNotOwned(key=key, own=own)
    if papers.is_reserved(key):
        raise ReservedSource(key=key)
    return key


async def _check_source(deps: Deps, key: str, filename: str) -> None:
    stat = await papers.get_source(deps.blobs, key)
    limit = deps.config.max_file_bytes
    if stat.size_bytes > limit:
        raise DocumentTooLarge(filename=filename, reason=f"{stat.size_bytes} bytes, the limit is {limit}")


def _first_run(tx: Tx, caller: Caller, new: NewTask, key: str, rule: Rule) -> EtlTask:
    forced = {papers.FORCE: True} if new.force else {}
    return EtlTask(
        id=0,  # assigned by the database
        user_id=caller.user_id,
        project_id=new.project_id,
        filename=new.filename,
        s3_key=key,
        rule_id=rule.id,
        rule_version=rule.version,
        status=Status.PENDING,
        run=1,
        ocr_run=1,
        progress=0,
        created_at=tx.now,
        updated_at=tx.now,
        metadata={"s3_key": key, "rule_version": rule.version, **forced},
    )
