"""`penstock jobs`: look at jobs and retry failed ones, for anyone who can reach the database."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import All, AsJson, DataDir, Limit, Since, Until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernel.db import Db, Tx
    from penstock.kernel.queue import Job
    from penstock.kernel.transitions import Transition

app = typer.Typer(rich_markup_mode=None)

BATCH = 1000  # jobs that are retried in one transaction
HEADINGS = ("ID", "STATE", "MODULE", "KIND", "ATTEMPTS", "ENDED", "WORKER", "ERROR")

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, from `penstock jobs list`.")]
Module = Annotated[str | None, typer.Option(help="Only jobs of this module, such as etl.")]
Kind = Annotated[str | None, typer.Option(help="Only jobs of this kind, such as notify.deliver.")]
ErrorCode = Annotated[str | None, typer.Option(help="Only jobs that failed with this code, such as WORKER_LOST.")]


class JobsIn(StrEnum):
    """The states in which jobs are listed."""

    FAILED = "failed"
    CANCELLED = "cancelled"
    DONE = "done"
    RUNNING = "running"


@app.command("list")
def list_jobs(  # noqa: PLR0913  (each is an option of the command)
    *,
    state: Annotated[JobsIn, typer.Option(help="The state of the jobs.")] = JobsIn.FAILED,
    module: Module = None,
    kind: Kind = None,
    error_code: ErrorCode = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """List jobs, failed ones by default, latest end first."""
    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.selection import print_json, print_table, window
    from penstock.kernel.job_search import JobFilter, list_ended_jobs, list_running_jobs
    from penstock.kernel.queue import JobState

    async def read(tx: "Tx") -> "Sequence[Job]":
        chosen = JobFilter(
            state=JobState(state.value), module=module, kind=kind, error_code=error_code, **window(since, until, tx.now)
        )
        listed = list_running_jobs if state is JobsIn.RUNNING else list_ended_jobs
        return await listed(tx, chosen, limit=limit)

    found = run_in_tx(read, load_settings(data_dir))
    if as_json:
        print_json(found)
    else:
        print_table(HEADINGS, [_row(job) for job in found], nothing=f"no {state.value} jobs")


@app.command()
def show(job_id: JobId, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Show a job with its payload, its error and its state changes."""
    from dataclasses import asdict

    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.selection import print_fields, print_json
    from penstock.cli.text import show_time
    from penstock.kernel.queue import JOB, get_job
    from penstock.kernel.transitions import list_transitions

    async def read(tx: "Tx") -> "tuple[Job, Sequence[Transition]]":
        return await get_job(tx, job_id), await list_transitions(tx, JOB.name, job_id)

    job, history = run_in_tx(read, load_settings(data_dir))
    fields = {name: value for name, value in asdict(job).items() if name != "token"}
    if as_json:
        print_json(fields | {"history": [asdict(move) for move in history]})
        return
    print_fields(fields)
    for move in history:
        typer.echo(
            f"  {show_time(move.at)}  {move.from_state or '-'} → {move.to_state}  {move.trigger} by {move.actor}"
        )


@app.command()
def retry(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="JOB", help="The ids of jobs.")] = None,
    *,
    module: Module = None,
    kind: Kind = None,
    error_code: ErrorCode = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    data_dir: DataDir = None,
) -> None:
    """Retry jobs by id, or all failed ones that match the filters, with their attempts reset."""
    from penstock.access import audit
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_with_db
    from penstock.cli.selection import NOW, check_selection, repeat_bulk, window
    from penstock.kernel.job_search import JobFilter, revive_failed_jobs
    from penstock.wiring.backends import build_queue

    check_selection(job_ids, [module, kind, error_code, since, until], everything=everything)
    settings = load_settings(data_dir)
    queue = build_queue(settings)

    async def revive(db: "Db") -> int:
        for job_id in job_ids or ():
            async with db.tx(actor=cli_actor()) as tx:
                await queue.revive(tx, job_id)
                await audit.record(tx, cli_actor(), "job.retry", f"job:{job_id}")
        return len(job_ids or ())

    async def revive_matching(db: "Db") -> int:
        times = window(since, until or NOW, db.clock.now())
        chosen = JobFilter(module=module, kind=kind, error_code=error_code, **times)

        async def revive_some(tx: "Tx") -> int:
            revived = await revive_failed_jobs(tx, queue, chosen, limit=BATCH)
            await audit.record(tx, cli_actor(), "job.retry_many", "jobs", count=len(revived), **chosen.shown())
            return len(revived)

        return await repeat_bulk(db, revive_some, batch=BATCH)

    count = run_with_db(revive if job_ids else revive_matching, settings)
    typer.echo(f"{count} jobs will be retried" if count != 1 else "1 job will be retried")


def _row(job: "Job") -> tuple[str, ...]:
    from penstock.cli.text import printable, shorten, show_time

    error = f"{job.error_code or ''} {job.error or ''}".strip()
    who = (job.id, str(job.state), job.module or "-", job.kind, f"{job.attempts}/{job.max_attempts}")
    return (*map(printable, who), show_time(job.finished_at), printable(job.worker or "-"), shorten(error) or "-")
