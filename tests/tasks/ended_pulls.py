"""Pulls that come to their end in the ways they do, through the room's own doors."""

from tests.tasks.conftest import PROJECT, Room

CLIENT = "worker-1"


async def end_pulls(room: Room, prefix: str, *, pushed: int = 0, released: int = 0, timed_out: int = 0) -> None:
    """Pull so many new tasks in q1, a request each, and let them end so. A pull that times out takes a second."""
    hasty = room.with_rules(pull_timeout=1)
    for number, way in enumerate(["push"] * pushed + ["release"] * released + ["time out"] * timed_out):
        task_id = f"{prefix}-{number}"
        await room.plan(task_id, queue="q1")
        [task] = await hasty.pull("limit=1", client=CLIENT, queue="q1")
        assert task["id"] == task_id
        if way == "push":
            await room.data("PATCH", f"/tasks/p1/q1/{task_id}/status", {"status": "done"}, x_client_id=CLIENT)
            continue
        if way == "release":
            await room.data("POST", f"{PROJECT}/tasks/{task_id}/pull/release", x_client_id=CLIENT)
        else:
            room.clock.advance(seconds=1)
            await room.tidy("time-out-pulls")
        await room.data("DELETE", f"{PROJECT}/queues/q1/tasks/{task_id}")  # or the next pull would get it again
