"""Submit: create a task for a stored document.

The row, its first job and its messages are one transaction: no task without a job, no job without a task. The rule is
pinned in its current version.
"""

from dataclasses import dataclass

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.documents.errors import DocumentTooLarge
from penstock.etl import artifacts, lifecycle
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, Rule, Status
from penstock.etl.errors import ReservedSource, SourceNotFound, SourceNotOwned
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


async def submit(tx: Tx, deps: Deps, caller: Caller, new: NewTask) -> EtlTask:
    """Create a task and enqueue its first stage. `check_source` has found its document."""
    key = source_key(caller, new)
    if not await tasks.claim_upload(tx, key):
        raise SourceNotFound(key=key)
    rule = await lifecycle.get_rule_for_task(tx, deps, caller, new.rule_id)
    await lifecycle.check_queue_capacity(tx, deps, caller, owner=caller.user_id)
    task = await tasks.insert_task(tx, _first_run(tx, caller, new, rule))
    await deps.queue.enqueue(tx, lifecycle.stage_job(deps, task, Phase.OCR))
    await lifecycle.record_submitted(tx, task, before=None, verb="submit")
    await audit.record(tx, caller, "etl.submit", f"etl:{task.id}", project_id=task.project_id, rule_id=task.rule_id)
    return task


async def check_source(deps: Deps, caller: Caller, new: NewTask) -> None:
    """Raise if the document of a new task is not the caller's, does not exist or is too large."""
    stat = await artifacts.get_source(deps.blobs, source_key(caller, new))
    limit = deps.config.max_file_bytes
    if stat.size_bytes > limit:
        raise DocumentTooLarge(filename=new.filename, reason=f"{stat.size_bytes} bytes, the limit is {limit}")


def source_key(caller: Caller, new: NewTask) -> str:
    """The blob key of the document. A foreign `s3_key` is refused, and a filename that is invalid in a key."""
    raw = artifacts.raw_key(caller.user_id, new.project_id, new.filename)
    key = new.s3_key or raw
    for checked in (key, raw, artifacts.public_key(caller.user_id, new.project_id, new.filename)):
        check_key(checked)
    own = artifacts.own_prefix(caller.user_id)
    if not key.startswith(own) and not caller.is_admin:
        raise SourceNotOwned(key=key, own=own)
    if artifacts.is_reserved(key):
        raise ReservedSource(key=key)
    return key


def _first_run(tx: Tx, caller: Caller, new: NewTask, rule: Rule) -> EtlTask:
    key, forced = source_key(caller, new), {artifacts.FORCE: True} if new.force else {}
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
