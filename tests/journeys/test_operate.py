"""Operators at the terminal: failed jobs, dead letters, processes and periodic tasks, on both profiles."""

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from penstock.kernel.message import Message
from penstock.kernel.queue import Job, JobQueue, JobState, NewJob, get_job
from penstock.kernel.relay import Relay
from penstock.kernel.scheduler import PeriodicTaskReport, list_periodic_tasks
from penstock.kernel.workers import Workers
from tests.conftest import open_db
from tests.journeys.command import Command, Serving, run
from tests.journeys.profiles import ADMIN_KEY, Profile

ISO_MILLIS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
PATIENCE_SECONDS = 40


@dataclass(frozen=True, kw_only=True)
class Whispered(Message):
    """A message that no running process has a handler for."""

    number: int


async def refuse(*_: object) -> None:
    raise Invalid(reason="no such page")


async def fail_jobs(db: Db, *jobs: NewJob) -> None:
    """Jobs that failed in a process that is gone."""
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, *jobs)
    handlers = {job.kind: refuse for job in jobs}
    await Workers(db, JobQueue(), handlers, owner="gone", modules=["notify"]).run_until_empty()


async def bury(db: Db, count: int) -> None:
    """Messages that died in a process that is gone."""
    async with db.tx() as tx:
        for number in range(count):
            tx.send(Whispered(number=number))
    await Relay(db, {Whispered: [refuse]}, owner="gone").deliver()


def told(*arguments: str, profile: Profile) -> str:
    """What a command prints."""
    ended = run(*arguments, cwd=None, **profile.settings)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def told_json(*arguments: str, profile: Profile) -> Any:
    return json.loads(told(*arguments, "--json", profile=profile))


async def until_state(db: Db, job_id: str, state: JobState) -> Job:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with db.read() as tx:
                job = await get_job(tx, job_id)
            if job.state is state:
                return job
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_failed_jobs_are_found_and_retried_and_a_worker_runs_them(profile: Profile):
    db = open_db(profile.database_url)
    await fail_jobs(
        db, *(NewJob(kind="notify.forget", id=f"{n}", module="notify", payload={"webhook_id": "w"}) for n in "abc")
    )
    listed = told("jobs", "list", "--module", "notify", "--since", "1h", profile=profile)
    assert re.search(
        rf"^c +failed +notify +notify.forget +1/5 +{ISO_MILLIS} +gone +INVALID no such page$", listed, re.MULTILINE
    )
    assert told_json("jobs", "list", "--until", "1h", profile=profile) == []
    shown = told("jobs", "show", "a", profile=profile)
    assert 'payload: {"webhook_id":"w"}' in shown
    assert re.search(rf"{ISO_MILLIS}  running → failed  fail by gone", shown)
    assert told("jobs", "retry", "a", profile=profile) == "1 job will be retried\n"
    again = run("jobs", "retry", "a", cwd=None, **profile.settings)
    assert (again.returncode, "the job is waiting" in again.stderr) == (1, True)
    assert told("jobs", "retry", "--error-code", "INVALID", profile=profile) == "2 jobs will be retried\n"
    worker = Command("work", "--modules", "notify", **profile.settings)
    try:
        for job_id in "abc":
            assert (await until_state(db, job_id, JobState.DONE)).attempts == 1
        [process] = told_json("processes", profile=profile)
        assert (process["kind"], process["modules"], process["alive"]) == ("work", ["notify"], True)
    finally:
        worker.kill()
    await db.close()


async def test_dead_letters_are_found_and_sent_again(profile: Profile):
    db = open_db(profile.database_url)
    await bury(db, 3)
    listed = told("messages", "list", profile=profile).splitlines()
    assert len(listed) == 4
    assert re.fullmatch(rf"msg_\w+ +Whispered +1 +{ISO_MILLIS} +Invalid: no such page", listed[1])
    oldest = told_json("messages", "list", "--channel", "Whispered", profile=profile)[-1]["id"]
    assert told_json("messages", "show", oldest, profile=profile)["payload"] == {"number": 0}
    assert told("messages", "resend", oldest, profile=profile) == "1 message will be sent again\n"
    assert told("messages", "resend", "--error", "SUCH PAGE", profile=profile) == "2 messages will be sent again\n"
    assert told_json("messages", "list", profile=profile) == []
    for wrong in ([], [oldest, "--all"], ["--since", "yesterday"]):
        refused = run("messages", "resend", *wrong, cwd=None, **profile.settings)
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    await db.close()


async def test_a_periodic_task_is_run_now_by_a_process_of_the_cluster(profile: Profile, session: aiohttp.ClientSession):
    db = open_db(profile.database_url)
    serving = Serving("--no-workers", **profile.settings)
    try:
        await serving.ready(session)
        name = "sweep-blobs"  # once in an hour

        async def until_run_since(moment: datetime) -> PeriodicTaskReport:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    [task] = [task for task in await list_periodic_tasks(db) if task.name == name]
                    if task.finished_at is not None and task.finished_at >= moment:
                        return task
                    await asyncio.sleep(0.05)

        before = await until_run_since(datetime.min.replace(tzinfo=UTC))
        asked_at = db.clock.now()
        assert f"{name} is due now" in told("periodic", "run", name, profile=profile)
        assert (await until_run_since(asked_at)).requested_at is None
        [shown] = [task for task in told_json("periodic", "list", profile=profile) if task["name"] == name]
        assert (shown["error"], shown["state"], shown["worker"]) == (None, "resting", before.worker)
        headers = {"X-API-Key": ADMIN_KEY}
        async with session.get(f"{serving.url}/api/v1/audit", headers=headers) as answer:
            lines = (await answer.json())["data"]["items"]
        assert [line["target"] for line in lines if line["action"] == "periodic_task.run"] == [f"periodic_task:{name}"]
    finally:
        serving.kill()
        await db.close()
