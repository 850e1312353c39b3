"""What every job queue does, whatever runs the jobs. The job table is the record in each of them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Invalid, TooMany, Unavailable
from penstock.kernel.job_search import JobFilter, list_ended_jobs
from penstock.kernel.leases import LeaseLost
from penstock.kernel.machine import WrongState
from penstock.kernel.queue import Job, JobNotFound, JobState, NewJob, delete_finished_jobs
from penstock.kernel.retry import Backoff
from penstock.kernel.runner import OUTAGE_WAIT_SECONDS, JobHandler, Settle
from penstock.kernel.transitions import list_transitions
from tests.conformance.shop import IMPLEMENTATIONS, OpenShop, Shop, fails


class StoreAway(Unavailable):
    """An internal outage."""

    code = "STORE_AWAY"
    internal_outage = True


LATE = {"code": "X", "error": "too late"}


@pytest.fixture(params=IMPLEMENTATIONS)
async def shop(db: Db, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    open_shop: OpenShop = request.param
    async with open_shop(db, request) as shop:
        yield shop


class TestEnqueue:
    async def test_a_job_runs_once_with_its_payload(self, shop: Shop):
        seen: list[Job] = []

        async def look(job: Job) -> None:
            seen.append(job)

        shop.handlers["look"] = look
        payload = {"path": "a/é/中.pdf", "pages": [1, 2.5, None, True], "deep": {"": "x"}}
        [job_id] = await shop.add(NewJob(kind="look", payload=payload))
        assert await shop.run() == 1
        assert await shop.run() == 0
        assert [(job.id, job.payload, job.attempts) for job in seen] == [(job_id, payload, 1)]
        assert (await shop.get(job_id)).state is JobState.DONE

    async def test_a_rolled_back_transaction_leaves_no_job(self, shop: Shop):
        async def enqueue_and_fail() -> None:
            async with shop.db.tx() as tx:
                await shop.queue.enqueue(tx, NewJob(kind="note", id="ghost"))
                raise Invalid(reason="the caller changed its mind")

        with pytest.raises(Invalid):
            await enqueue_and_fail()
        assert await shop.run() == 0
        with pytest.raises(JobNotFound, match="ghost"):
            await shop.get("ghost")

    async def test_a_job_is_not_seen_before_the_commit(self, shop: Shop):
        async with shop.db.tx() as tx:
            await shop.queue.enqueue(tx, NewJob(kind="note", id="a"))
            with pytest.raises(JobNotFound):
                await shop.get("a")
        assert (await shop.get("a")).state is JobState.WAITING

    async def test_the_same_id_is_one_job_however_often_it_is_enqueued(self, shop: Shop):
        assert await shop.add(NewJob(kind="note", id="a"), NewJob(kind="note", id="a")) == ["a"]
        assert await shop.add(NewJob(kind="note", id="a"), NewJob(kind="note", id="b")) == ["b"]
        await shop.run()
        assert await shop.add(NewJob(kind="note", id="a")) == []
        assert await shop.run() == 0
        assert sorted(shop.noted) == ["a", "b"]
        assert await shop.life("a") == ["claim", "finish"]

    async def test_many_jobs_are_added_at_once_in_their_order(self, shop: Shop):
        ids = await shop.add(*(NewJob(kind="note") for _ in range(2500)))
        assert ids == sorted(set(ids))
        assert len(ids) == 2500

    async def test_urgent_jobs_run_first_and_equals_in_the_order_they_came(self, shop: Shop):
        ids = await shop.add(*(NewJob(kind="note", priority=priority) for priority in (5, 9, 1, 5)))
        await shop.run(slots=1)
        assert shop.noted == [ids[2], ids[0], ids[3], ids[1]]

    async def test_a_deferred_job_runs_when_its_time_has_come(self, shop: Shop, clock: ManualClock):
        await shop.add(NewJob(kind="note", id="later", delay_seconds=60))
        assert await shop.run() == 0
        clock.advance(seconds=60)
        assert await shop.run() == 1

    async def test_workers_of_one_module_leave_the_jobs_of_others(self, shop: Shop):
        await shop.add(NewJob(kind="note", id="a", module="gateway"), NewJob(kind="note", id="b", module="etl"))
        await shop.run(modules=("gateway",))
        assert shop.noted == ["a"]
        await shop.run(modules=("gateway", "etl"))
        assert shop.noted == ["a", "b"]


class TestChain:
    def next_step(self, shop: Shop, error: Exception | None = None) -> JobHandler:
        async def handler(job: Job) -> Settle:
            async def settle(tx: Tx) -> None:
                await shop.queue.enqueue(tx, NewJob(kind="note", id=f"after-{job.id}"))
                if error is not None:
                    raise error

            return settle

        return handler

    async def test_the_first_jobs_end_and_the_second_job_are_written_together(self, shop: Shop):
        shop.handlers["first"] = self.next_step(shop)
        await shop.add(NewJob(kind="first", id="a"))
        assert await shop.run() == 2
        assert shop.noted == ["after-a"]

    async def test_when_the_settling_fails_neither_is_written_and_the_job_is_tried_again(
        self, shop: Shop, clock: ManualClock
    ):
        shop.handlers["first"] = self.next_step(shop, RuntimeError("the table is gone"))
        await shop.add(NewJob(kind="first", id="a"))
        await shop.run()
        job = await shop.get("a")
        assert (job.state, job.error_code, job.error) == (JobState.WAITING, "INTERNAL", "the table is gone")
        with pytest.raises(JobNotFound):
            await shop.get("after-a")
        shop.handlers["first"] = self.next_step(shop)
        clock.advance(seconds=2)
        assert await shop.run() == 2

    async def test_a_settling_that_can_never_succeed_fails_the_job(self, shop: Shop):
        shop.handlers["first"] = self.next_step(shop, Invalid(reason="no such column"))
        await shop.add(NewJob(kind="first", id="a"))
        await shop.run()
        job = await shop.get("a")
        assert (job.state, job.error_code, job.error) == (JobState.FAILED, "INVALID", "no such column")


class TestTryingAgain:
    async def test_a_failed_attempt_is_tried_again_later_and_then_succeeds(self, shop: Shop, clock: ManualClock):
        shop.handlers["shaky"] = fails(Unavailable(reason="the upstream sleeps"))
        await shop.add(NewJob(kind="shaky", id="a"))
        assert await shop.run() == 1
        job = await shop.get("a")
        assert (job.state, job.attempts, job.error_code) == (JobState.WAITING, 1, "UNAVAILABLE")
        assert job.error == "the upstream sleeps"
        assert await shop.run() == 0
        shop.handlers["shaky"] = shop.note
        clock.advance(seconds=2)
        assert await shop.run() == 1
        assert (await shop.get("a")).attempts == 2
        assert await shop.life("a") == ["claim", "retry", "claim", "finish"]

    async def test_the_waits_between_attempts_grow(self, shop: Shop, clock: ManualClock):
        shop.handlers["broken"] = fails(RuntimeError("boom"))
        await shop.add(NewJob(kind="broken", id="a", max_attempts=7))
        waits = []
        for _ in range(6):
            assert await shop.run() == 1
            waits.append((await shop.get("a")).scheduled_at - clock.now())
            clock.advance(seconds=waits[-1].total_seconds())
        assert waits == sorted(set(waits))
        assert timedelta(seconds=0.8) <= waits[0] <= timedelta(seconds=1.2)

    async def test_a_kind_of_job_may_have_waits_of_its_own(self, shop: Shop, clock: ManualClock):
        shop.handlers |= {"slow": fails(Unavailable(reason="no")), "quick": fails(Unavailable(reason="no"))}
        await shop.add(NewJob(kind="slow", id="a"), NewJob(kind="quick", id="b"))
        await shop.run(retries={"slow": Backoff(first_seconds=70, jitter=0)})
        assert (await shop.get("a")).scheduled_at == clock.now() + timedelta(seconds=70)
        assert (await shop.get("b")).scheduled_at <= clock.now() + timedelta(seconds=1.2)

    async def test_after_the_last_attempt_the_job_has_failed_with_the_last_error(self, shop: Shop, clock: ManualClock):
        shop.handlers["broken"] = fails(RuntimeError("boom"))
        await shop.add(NewJob(kind="broken", id="a", max_attempts=3))
        for _ in range(3):
            assert await shop.run() == 1
            clock.advance(seconds=10)
        assert await shop.run() == 0
        job = await shop.get("a")
        assert (job.state, job.attempts, job.error_code, job.error) == (JobState.FAILED, 3, "INTERNAL", "boom")
        assert (await shop.life("a"))[-1] == "fail"

    async def test_an_error_that_cannot_pass_fails_the_job_at_once(self, shop: Shop):
        shop.handlers["bad"] = fails(Invalid(reason="the file is no PDF"))
        await shop.add(NewJob(kind="bad", id="a"))
        await shop.run()
        job = await shop.get("a")
        assert (job.state, job.attempts, job.error) == (JobState.FAILED, 1, "the file is no PDF")

    async def test_too_many_is_tried_again_no_sooner_than_it_asks_for(self, shop: Shop, clock: ManualClock):
        shop.handlers["limited"] = fails(TooMany(wait_seconds=90))
        await shop.add(NewJob(kind="limited", id="a"))
        await shop.run()
        assert (await shop.get("a")).scheduled_at >= clock.now() + timedelta(seconds=90)

    async def test_a_job_that_takes_too_long_is_stopped_and_tried_again(self, shop: Shop):
        stopped = asyncio.Event()

        async def endless(job: Job) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        shop.handlers["endless"] = endless
        await shop.add(NewJob(kind="endless", id="a", timeout_seconds=0.01))
        await shop.run()
        assert stopped.is_set()
        job = await shop.get("a")
        assert (job.state, job.error_code) == (JobState.WAITING, "JOB_TIMED_OUT")

    async def test_a_timeout_inside_the_handler_is_the_handlers_own(self, shop: Shop):
        shop.handlers["waits"] = fails(TimeoutError("the upstream is slow"))
        await shop.add(NewJob(kind="waits", id="a"))
        await shop.run()
        assert (await shop.get("a")).error_code == "INTERNAL"

    async def test_a_kind_that_nobody_knows_here_is_left_for_a_newer_version(self, shop: Shop, clock: ManualClock):
        await shop.add(NewJob(kind="from the future", id="a"))
        await shop.run()
        job = await shop.get("a")
        assert (job.state, job.attempts) == (JobState.WAITING, 0)
        shop.handlers["from the future"] = shop.note
        clock.advance(seconds=5)
        assert await shop.run() == 1

    async def test_an_internal_outage_uses_up_no_attempt(self, shop: Shop, clock: ManualClock):
        shop.handlers["stores"] = fails(StoreAway(reason="restarting"))
        await shop.add(NewJob(kind="stores", id="a", max_attempts=1))
        for _ in range(3):
            assert await shop.run() == 1
            job = await shop.get("a")
            assert (job.state, job.attempts, job.error_code) == (JobState.WAITING, 0, "STORE_AWAY")
            assert job.error == "restarting"
            assert job.scheduled_at == clock.now() + timedelta(seconds=OUTAGE_WAIT_SECONDS)
            clock.advance(seconds=OUTAGE_WAIT_SECONDS)
        shop.handlers["stores"] = shop.note
        assert await shop.run() == 1
        assert await shop.life("a") == ["claim", "put_off"] * 3 + ["claim", "finish"]
        assert (await shop.get("a")).error is None


class TestSteering:
    async def test_a_job_can_be_cancelled_before_it_starts(self, shop: Shop):
        await shop.add(NewJob(kind="note", id="a"), NewJob(kind="note", id="later", delay_seconds=60))
        async with shop.db.tx(actor="ann") as tx:
            await shop.queue.cancel(tx, "a")
            await shop.queue.cancel(tx, "later")
        assert await shop.run() == 0
        assert (await shop.get("a")).state is JobState.CANCELLED
        assert await shop.life("a") == ["cancel"]

    @pytest.mark.parametrize("over", [False, True], ids=["running", "done"])
    async def test_a_job_cannot_be_cancelled_once_it_has_started(self, shop: Shop, over: bool):
        await shop.add(NewJob(kind="note", id="a"))
        await (shop.run() if over else shop.claim())
        before = await shop.get("a")
        with pytest.raises(WrongState, match="Cannot cancel"):
            async with shop.db.tx() as tx:
                await shop.queue.cancel(tx, "a")
        assert await shop.get("a") == before

    async def test_an_unknown_job_cannot_be_steered(self, shop: Shop):
        for verb in (shop.queue.cancel, shop.queue.revive):
            with pytest.raises(JobNotFound, match="nobody"):
                async with shop.db.tx() as tx:
                    await verb(tx, "nobody")

    async def test_a_failed_job_is_listed_and_can_be_revived_with_fresh_attempts(self, shop: Shop):
        shop.handlers["bad"] = fails(Invalid(reason="no"))
        await shop.add(NewJob(kind="bad", id="a"), NewJob(kind="note", id="fine"))
        await shop.run()
        async with shop.db.tx() as tx:
            assert [job.id for job in await list_ended_jobs(tx, JobFilter())] == ["a"]
            await shop.queue.revive(tx, "a")
            assert await list_ended_jobs(tx, JobFilter()) == []
        shop.handlers["bad"] = shop.note
        assert await shop.run() == 1
        job = await shop.get("a")
        assert (job.state, job.attempts) == (JobState.DONE, 1)

    async def test_a_cancelled_job_can_be_revived_and_is_due_at_once(self, shop: Shop):
        await shop.add(NewJob(kind="note", id="a", delay_seconds=60))
        async with shop.db.tx() as tx:
            await shop.queue.cancel(tx, "a")
            await shop.queue.revive(tx, "a")
        assert await shop.run() == 1

    async def test_jobs_are_deleted_after_their_retention(self, shop: Shop, clock: ManualClock):
        await shop.add(NewJob(kind="note", id="old"))
        await shop.run()
        await shop.add(NewJob(kind="note", id="waiting", delay_seconds=600))
        clock.advance(seconds=60)
        await shop.add(NewJob(kind="note", id="new"))
        await shop.run()
        async with shop.db.tx() as tx:
            assert await delete_finished_jobs(tx, before=tx.now) == 1
        with pytest.raises(JobNotFound):
            await shop.get("old")
        assert {(await shop.get(job_id)).state for job_id in ("waiting", "new")} == {JobState.WAITING, JobState.DONE}


class TestSilence:
    async def test_a_job_whose_worker_stopped_responding_is_rescued_and_run_by_another(
        self, shop: Shop, clock: ManualClock
    ):
        await shop.add(NewJob(kind="note", id="a"))
        [lost] = await shop.claim(seconds=60)
        clock.advance(seconds=59)
        assert await shop.rescue() == []
        clock.advance(seconds=1)
        assert await shop.rescue() == ["a"]
        assert await shop.run() == 1
        with pytest.raises(LeaseLost):
            async with shop.db.tx() as tx:
                await shop.queue.finish(tx, lost)
        job = await shop.get("a")
        assert (job.state, job.attempts) == (JobState.DONE, 2)
        assert await shop.life("a") == ["claim", "expire", "claim", "finish"]

    async def test_a_job_that_loses_its_worker_in_every_attempt_has_failed(self, shop: Shop, clock: ManualClock):
        await shop.add(NewJob(kind="note", id="a", max_attempts=2))
        for _ in range(2):
            assert len(await shop.claim(seconds=60)) == 1
            clock.advance(seconds=60)
            assert await shop.rescue() == ["a"]
        assert await shop.run() == 0
        job = await shop.get("a")
        assert (job.state, job.error_code, job.finished_at) == (JobState.FAILED, "WORKER_LOST", clock.now())
        assert (await shop.life("a"))[-2:] == ["expire", "give_up"]

    async def test_handing_a_job_back_costs_no_attempt(self, shop: Shop):
        await shop.add(NewJob(kind="note", id="a", max_attempts=1))
        [held] = await shop.claim()
        async with shop.db.tx(actor="worker-2") as tx:
            await shop.queue.release(tx, held)
        assert (await shop.get("a")).attempts == 0
        assert await shop.run() == 1
        assert await shop.life("a") == ["claim", "release", "claim", "finish"]

    @pytest.mark.parametrize(("verb", "more"), [("finish", {}), ("retry", {"wait_seconds": 1, **LATE}), ("fail", LATE)])
    async def test_nobody_settles_a_job_that_he_does_not_hold(self, shop: Shop, clock: ManualClock, verb, more):
        await shop.add(NewJob(kind="note", id="a"))
        [held] = await shop.claim(seconds=1)
        clock.advance(seconds=1)
        await shop.rescue()
        before = await shop.get("a"), await shop.life("a")
        for stale in (held, await shop.get("a")):
            with pytest.raises(LeaseLost):
                async with shop.db.tx() as tx:
                    await getattr(shop.queue, verb)(tx, stale, **more)
        assert (await shop.get("a"), await shop.life("a")) == before


async def test_the_history_says_who_did_what_and_when(shop: Shop, clock: ManualClock):
    await shop.add(NewJob(kind="note", id="a"))
    added_at = clock.now()
    clock.advance(seconds=3)
    await shop.run()
    made = await shop.get("a")
    assert (made.created_by, made.created_at) == ("ann", added_at)
    async with shop.db.read() as tx:
        life = await list_transitions(tx, "job", "a")
    assert [(step.actor, step.from_state, step.to_state, step.at) for step in life] == [
        ("worker-1", "waiting", "running", clock.now()),
        ("worker-1", "running", "done", clock.now()),
    ]
