"""`penstock etl retry --status …`: retry all tasks that match, page by page, while the queue is not full."""

from collections.abc import Sequence
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.etl.session import caller, find_rule_id, run_on_existing
from penstock.cli.selection import window
from penstock.cli.text import shorten
from penstock.etl.api.bulk import retry_matching
from penstock.etl.domain import EtlTask, Stage, Status
from penstock.etl.retry import RetryOptions
from penstock.etl.store.tasks import EndedFilter
from penstock.kernel.errors import PenstockError
from penstock.wiring import Runtime

MAX_LISTED = 20  # tasks that could not be retried, printed one by one


@dataclass(frozen=True, kw_only=True)
class BulkOptions:
    """The filters of the command as they were typed."""

    status: str
    error_code: str | None
    project_id: int | None
    rule: str | None
    since: str | None
    until: str | None


def retry_tasks(options: BulkOptions, *, from_stage: Stage | None) -> int:
    """Retry the matching tasks and print how many; returns the exit status, 1 if some could not be retried."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("looking for tasks")

        async def retry_all(runtime: Runtime) -> tuple[int, list[tuple[EtlTask, PenstockError]]]:
            chosen = await _filter(runtime, options)
            retried, refused = 0, list[tuple[EtlTask, PenstockError]]()
            after: int | None = 0
            while after is not None:
                done = await retry_matching(
                    runtime.modules.etl, caller(), chosen, RetryOptions(from_stage=from_stage), after=after
                )
                after, retried = done.next_after, retried + done.retried
                refused += done.refused
                bar.update(shown, description=f"{retried} retried")
                if done.full is not None:  # until workers have finished some
                    bar.update(shown, description=f"{retried} retried, waiting: {done.full}")
                    await runtime.clock.sleep(done.full.wait_seconds)
            return retried, refused

        retried, refused = run_on_existing(retry_all)
    typer.echo(f"{retried} tasks will be retried" if retried != 1 else "1 task will be retried")
    _print_refused(refused)
    return 1 if refused else 0


async def _filter(runtime: Runtime, options: BulkOptions) -> EndedFilter:
    rule_id = None if options.rule is None else await find_rule_id(runtime, options.rule)
    return EndedFilter(
        status=Status(options.status),
        error_code=options.error_code,
        project_id=options.project_id,
        rule_id=rule_id,
        **window(options.since, options.until, runtime.clock.now()),
    )


def _print_refused(refused: Sequence[tuple[EtlTask, PenstockError]]) -> None:
    for task, error in refused[:MAX_LISTED]:
        typer.echo(f"{task.id}\t{error.code}\t{shorten(error, 100)}", err=True)
    if len(refused) > MAX_LISTED:
        typer.echo(f"and {len(refused) - MAX_LISTED} more that could not be retried", err=True)
