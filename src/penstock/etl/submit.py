"""Submit: a stored document becomes a task.

Its row, its first job and what is told of it are one transaction: no task without its job, no job without its task.
The rule is pinned in the version it has now.
"""

from dataclasses import dataclass

from penstock.access.domain import Caller
from penstock.documents.errors import DocumentTooLarge
from penstock.etl import moves, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, Rule, Status
from penstock.etl.errors import ForeignSource, ReservedSource
from penstock.etl.store import tasks
from penstock.kernel.blobs import check_key
from penstock.kernel.db import Tx


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A document to be read. Without `s3_key` it lies where uploads of that name do; without a rule the default is.

    With `force` it is read and shaped anew, whatever is remembered of it.
    """

    project_id: int
    filename: str
    rule_id: int | None = None
    s3_key: str | None = None
    force: bool = False


async def submit(tools: Deps, caller: Caller, new: NewTask) -> EtlTask:
    """Take a document in."""
    key = source_key(caller, new)
    await _check_source(tools, key, new.filename)
    async with tools.db.tx(actor=caller.name) as tx:
        rule = await moves.get_rule_for(tools, tx, caller, new.rule_id)
        await moves.check_room(tools, tx)
        task = await tasks.insert_task(tx, _first(tx, caller, new, key, rule))
        await tools.queue.enqueue(tx, moves.stage_job(tools, task, Phase.OCR))
        await moves.say_begun(tx, task, before=None, verb="submit")
    await runs.show_soon(tools, task)
    return task


def source_key(caller: Caller, new: NewTask) -> str:
    """Where the document lies; refused when it is not the caller's, or when its name cannot be part of a key."""
    raw = papers.raw_key(caller.user_id, new.project_id, new.filename)
    key = new.s3_key or raw
    for wanted in (key, raw, papers.public_key(caller.user_id, new.project_id, new.filename)):
        check_key(wanted)
    own = papers.own_prefix(caller.user_id)
    if not key.startswith(own) and not caller.is_admin:
        raise ForeignSource(key=key, own=own)
    if papers.is_reserved(key):
        raise ReservedSource(key=key)
    return key


async def _check_source(tools: Deps, key: str, filename: str) -> None:
    stat = await papers.get_source(tools.blobs, key)
    most = tools.terms.max_file_bytes
    if stat.size_bytes > most:
        raise DocumentTooLarge(filename=filename, reason=f"{stat.size_bytes} bytes, and at most {most} are read")


def _first(tx: Tx, caller: Caller, new: NewTask, key: str, rule: Rule) -> EtlTask:
    forced = {papers.FORCE: True} if new.force else {}
    return EtlTask(
        id=0,  # the database gives it a number
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
