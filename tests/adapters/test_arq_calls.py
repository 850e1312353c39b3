"""What other programs see and do with ARQ's own client: jobs that wait, run and are over, and those they enqueue."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from arq.connections import ArqRedis
from arq.jobs import Job as ArqJob
from arq.jobs import JobStatus

from penstock.adapters.arq_queue.enqueue import ArqFunctions, queue_name
from penstock.adapters.redis.client import RedisClient, RedisUnavailable
from penstock.kernel.db import Db
from penstock.kernel.errors import Conflict
from penstock.kernel.job_dispatch import ArqFunction
from penstock.kernel.queue import NewJob
from tests.conformance.shop import ArqShop, fails
from tests.fakes.blocking_handler import BlockingHandler, wait_until

QUEUE = queue_name("etl")


def to_json(arq_job: dict[str, Any]) -> bytes:
    return json.dumps(arq_job).encode()


class TaskGone(Conflict):
    """What a function raises."""

    code = "TASK_GONE"
    message = "Task {task_id} is gone."


class Functions:
    """A module that runs one function, `note(task_id)`."""

    shop: ArqShop

    async def start(self, *, task_id: int) -> str:
        if task_id == 404:
            raise TaskGone(task_id=task_id)
        if task_id == 503:
            raise RedisUnavailable(reason="gone")
        if task_id == 500:
            raise ZeroDivisionError
        [made] = await self.shop.add(NewJob(kind="note", id=f"note:{task_id}", module="etl"))
        return made

    @property
    def known(self) -> ArqFunctions:
        return {"note": ArqFunction(arguments=("task_id",), start=self.start)}


@pytest.fixture
def db_url(postgres_url: str) -> str:
    """One database: what ARQ shows does not depend on it."""
    return postgres_url


@pytest.fixture
async def shop(db: Db, redis_url: str) -> AsyncIterator[ArqShop]:
    functions = Functions()
    functions.shop = shop = ArqShop(db, RedisClient(redis_url), functions.known)
    yield shop
    await shop.redis_client.close()


@pytest.fixture
async def arq(redis_url: str) -> AsyncIterator[ArqRedis]:
    """ARQ's own client, with the serializers that the how-to names."""
    client = ArqRedis.from_url(redis_url)
    client.job_serializer, client.job_deserializer, client.default_queue_name = to_json, json.loads, QUEUE
    yield client
    await client.aclose()


def find(arq: ArqRedis, job_id: str) -> ArqJob:
    return ArqJob(job_id, arq, _queue_name=QUEUE, _deserializer=json.loads)


async def run_twice(shop: ArqShop) -> None:
    """Handle the ARQ jobs of other programs, then run the jobs that they start."""
    await shop.run(modules=["etl"])
    await shop.run(modules=["etl"])


class TestOurJobs:
    async def test_are_found_by_their_id_while_they_wait_run_and_are_over(self, shop: ArqShop, arq: ArqRedis):
        shop.handlers["note"] = gate = BlockingHandler()
        [name] = await shop.add(NewJob(kind="note", id="etl:42:1:ocr", payload={"task_id": 42}, module="etl"))
        await shop.deliver()
        found = find(arq, name)
        assert await found.status() is JobStatus.queued
        info = await found.info()
        assert info is not None
        assert (info.function, list(info.args), info.kwargs, info.job_try) == ("note", [42], {}, 1)

        working = asyncio.create_task(shop.crew(modules=["etl"]).run_until_empty())
        await wait_until(lambda: gate.entered == [name])
        assert await found.status() is JobStatus.in_progress
        assert (await found.info()) is not None
        gate.opened.set()
        await working
        assert await found.status() is JobStatus.complete
        result = await found.result_info()
        assert result is not None
        assert (result.success, result.function, list(result.args), result.job_id) == (True, "note", [42], name)
        assert result.start_time <= result.finish_time

    async def test_are_all_listed_in_the_order_of_their_turns(self, shop: ArqShop, arq: ArqRedis):
        for number, priority in ((1, 5), (2, 1)):
            await shop.add(NewJob(kind="note", payload={"task_id": number}, module="etl", priority=priority))
        await shop.deliver()
        assert [(job.function, list(job.args)) for job in await arq.queued_jobs()] == [("note", [2]), ("note", [1])]

    async def test_that_failed_for_good_say_why(self, shop: ArqShop, arq: ArqRedis):
        shop.handlers["note"] = fails(TaskGone(task_id=7))
        [name] = await shop.add(NewJob(kind="note", module="etl"))
        await shop.run(modules=["etl"])
        result = await find(arq, name).result_info()
        assert result is not None
        assert (result.success, result.result) == (False, "Task 7 is gone.")

    async def test_that_wait_for_another_attempt_are_deferred_under_the_same_id(self, shop: ArqShop, arq: ArqRedis):
        shop.handlers["note"] = fails(ValueError("again"))
        [name] = await shop.add(NewJob(kind="note", module="etl"))
        await shop.deliver()
        await shop.crew(modules=["etl"]).run_until_empty()
        await shop.deliver()
        info = await find(arq, name).info()
        assert info is not None
        assert info.job_try == 2
        assert await find(arq, name).status() is not JobStatus.complete


class TestJobsOfOtherPrograms:
    async def test_run_by_the_name_of_their_function(self, shop: ArqShop, arq: ArqRedis, caplog):
        caplog.set_level(logging.INFO, "penstock")
        by_position, by_name = await arq.enqueue_job("note", 7), await arq.enqueue_job("note", task_id=8)
        assert by_position is not None
        assert by_name is not None
        await run_twice(shop)
        assert sorted(shop.noted) == ["note:7", "note:8"]
        assert await find(arq, by_position.job_id).result(timeout=0) == "note:7"
        assert f"ARQ job {by_name.job_id} in {QUEUE}: note(task_id=8) runs as job note:8" in caplog.messages
        assert await arq.queued_jobs() == []

    @pytest.mark.parametrize(
        ("enqueue", "why"),
        [
            (lambda arq: arq.enqueue_job("etl_ocr", 7), "there is no function 'etl_ocr'; known functions: note"),
            (lambda arq: arq.enqueue_job("note"), "note takes the integers task_id"),
            (lambda arq: arq.enqueue_job("note", "7"), "note takes the integers task_id"),
            (lambda arq: arq.enqueue_job("note", 7, 8), "note takes task_id"),
            (lambda arq: arq.enqueue_job("note", 404), "Task 404 is gone."),
        ],
    )
    async def test_are_refused_with_a_line_in_the_log(
        self, shop: ArqShop, arq: ArqRedis, caplog, enqueue: Callable[[ArqRedis], Any], why: str
    ):
        job = await enqueue(arq)
        await shop.run(modules=["etl"])
        assert shop.noted == []
        [line] = [one for one in caplog.messages if one.startswith("refused ARQ job")]
        assert job.job_id in line
        assert line.endswith(why)
        result = await find(arq, job.job_id).result_info()
        assert result is not None
        assert (result.success, result.result) == (False, why)
        assert await arq.queued_jobs() == []

    async def test_that_are_pickled_are_refused_unread(self, shop: ArqShop, redis_url: str, caplog):
        plain = ArqRedis.from_url(redis_url)
        job = await plain.enqueue_job("note", 7, _queue_name=QUEUE)
        await plain.aclose()
        assert job is not None
        await shop.run(modules=["etl"])
        [line] = [one for one in caplog.messages if one.startswith("refused ARQ job")]
        assert line.endswith("it is not JSON: give ARQ a job_serializer and job_deserializer for JSON")
        assert shop.noted == []

    async def test_whose_function_breaks_do_not_stop_the_worker(self, shop: ArqShop, arq: ArqRedis):
        await arq.enqueue_job("note", 500)
        await arq.enqueue_job("note", 7)
        await run_twice(shop)
        assert shop.noted == ["note:7"]

    async def test_wait_while_something_that_they_need_is_down(self, shop: ArqShop, arq: ArqRedis):
        await arq.enqueue_job("note", 503)
        with pytest.raises(RedisUnavailable):
            await shop.run(modules=["etl"])
        assert len(await arq.queued_jobs()) == 1
