"""The status of one task.

Clients poll it while a task runs, so it is cheap: one read of Redis where run state is there, else one read of run
state and one of the row, by primary key. The row is used where run state has no entry or is unavailable. A client may
wait for the end of the task instead of polling; meanwhile no transaction is open.
"""

from datetime import timedelta

from penstock.access.domain import Caller
from penstock.etl import lifecycle, run_state
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Status
from penstock.etl.errors import EtlTaskNotFound
from penstock.kernel.errors import PenstockError
from penstock.kernel.stages.run_handle import skip_outage


async def get_status(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """The current state of a task, or `EtlTaskNotFound`; without the database where run state answers."""
    snapshot = await run_state.find_snapshot(deps, task_id)
    task = None if snapshot is None else run_state.find_answer(deps, snapshot)
    if task is None:
        run = None if snapshot is None else run_state.decode(snapshot)
        return await _get_row(deps, caller, task_id, run)
    if not lifecycle.can_access(caller, task):
        raise EtlTaskNotFound
    return task


async def get_task(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """The current state of a task, or `EtlTaskNotFound`. The row decides who owns it and whether it has ended."""
    return await _get_row(deps, caller, task_id, await run_state.find(deps, task_id))


async def wait_for_end(deps: Deps, caller: Caller, task_id: int, *, seconds: float) -> EtlTask:
    """The state of a task when it has ended, or after `seconds`."""
    task = await get_status(deps, caller, task_id)
    if task.is_final or seconds <= 0:
        return task
    clock = deps.db.clock
    until = clock.now() + timedelta(seconds=seconds)
    with deps.waits.listening(run_state.key(deps, task_id)) as listener:
        while not (task := await get_task(deps, caller, task_id)).is_final:
            left = (until - clock.now()).total_seconds()
            if listener is None or left <= 0:
                break
            await listener.wait(seconds=left)
    return task


async def find_position(deps: Deps, task: EtlTask) -> int | None:
    """The place of a pending task among the jobs that wait for a worker; None if unknown, or if it does not wait."""
    if task.status is not Status.PENDING:
        return None
    try:
        return await deps.positions.find_position(lifecycle.MODULE, run_state.job_id(task, task.first_phase))
    except PenstockError as error:
        skip_outage(error)
        return None


async def _get_row(deps: Deps, caller: Caller, task_id: int, run: run_state.TaskRun | None) -> EtlTask:
    """The row, with its run state applied. Run state of a task of another database is not shown."""
    async with deps.db.read() as tx:
        return run_state.apply(await lifecycle.get_owned_task(tx, caller, task_id), run)
