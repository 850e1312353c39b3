"""What triggers the toy module: its message, its job and its periodic task."""

from collections.abc import Mapping
from functools import partial

from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, NewJob
from penstock.kernel.relay import Routes
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler, Settle
from tests.journeys.toy import store
from tests.journeys.toy.deps import Deps, NoteTaken

MODULE = "toy"
UPPER = "toy.upper"


def jobs(deps: Deps) -> Mapping[str, JobHandler]:
    """The handler of each job kind."""
    return {UPPER: partial(_write_upper, deps)}


def messages(deps: Deps) -> Routes:
    """The handlers of each message."""

    async def enqueue_upper(tx: Tx, taken: NoteTaken) -> None:
        await deps.queue.enqueue(tx, NewJob(kind=UPPER, module=MODULE, payload={"note_id": taken.note_id}))

    return {NoteTaken: [enqueue_upper]}


def periodic_tasks(deps: Deps) -> list[PeriodicTask]:
    """The archiver."""
    return [PeriodicTask(name="toy-archive", every_seconds=1, run=partial(_archive_upper, deps))]


async def _write_upper(deps: Deps, job: Job) -> Settle | None:
    """Write a note in upper case, in the transaction that marks the job done."""
    note_id = job.payload["note_id"]
    async with deps.db.read() as tx:
        note = await store.find_note(tx, note_id)
    return None if note is None else partial(store.move_upper, note_id=note_id, text=note.text.upper())


async def _archive_upper(deps: Deps) -> None:
    """Archive the notes in upper case."""
    async with deps.db.tx() as tx:
        done = [note.id for note in await store.list_open(tx) if note.text.isupper()]
        await store.archive_notes(tx, done)
