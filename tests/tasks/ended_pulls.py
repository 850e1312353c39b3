"""Pulls that end in a push, a release or an expired lease, over the API."""

from tests.tasks.conftest import PROJECT, TasksApi

CLIENT = "worker-1"


async def end_pulls(api: TasksApi, prefix: str, *, pushed: int = 0, released: int = 0, timed_out: int = 0) -> None:
    """Pull new tasks in q1, one per request, and end them. An expired lease takes one second of the clock."""
    hasty = api.with_config(pull_timeout=1)
    for number, way in enumerate(["push"] * pushed + ["release"] * released + ["time out"] * timed_out):
        task_id = f"{prefix}-{number}"
        await api.plan(task_id, queue="q1")
        [task] = await hasty.pull("limit=1", client=CLIENT, queue="q1")
        assert task["id"] == task_id
        if way == "push":
            await api.data("PATCH", f"/tasks/p1/q1/{task_id}/status", {"status": "done"}, x_client_id=CLIENT)
            continue
        if way == "release":
            await api.data("POST", f"{PROJECT}/tasks/{task_id}/pull/release", x_client_id=CLIENT)
        else:
            api.clock.advance(seconds=1)
            await api.run_periodic_tasks("time-out-pulls")
        await api.data("DELETE", f"{PROJECT}/queues/q1/tasks/{task_id}")  # or the next pull would get it again
