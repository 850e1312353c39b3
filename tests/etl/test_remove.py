"""Removing a task deletes its artifacts; the audit log entry stays."""

import asyncio

import pytest

from penstock.access import audit
from penstock.etl import retry, rules, worker
from penstock.etl.api import actions, status
from penstock.etl.domain import EtlTask, Mode, RuleBody, Status
from penstock.etl.errors import EtlTaskNotFound, EtlTaskRunning, SameNameRunning, WorkerStillRunning
from penstock.etl.store.tables import etl_rule, etl_rule_version, etl_task
from penstock.etl.submit import NewTask
from penstock.kernel.queue import Job
from tests.etl.harness import ANNA, BERT, LEASE_SECONDS, ROOT, EtlHarness, on_both_profiles
from tests.fakes.ocr import OcrThatWaits


async def completed(harness: EtlHarness, name: str = "a.txt") -> int:
    task = await harness.submit(name)
    await harness.work()
    assert (await harness.row(task)).status is Status.COMPLETED
    return task.id


async def settled(harness: EtlHarness, held: Job) -> None:
    """Run and settle a claimed job as a worker does."""
    settle = await harness.do(held)
    await harness.settle(held, settle)


class TestDelete:
    @on_both_profiles
    async def test_everything_of_a_task_goes_and_the_audit_line_stays(self, harness: EtlHarness):
        number = await completed(harness)
        await actions.delete_task(harness.deps, ANNA, number)
        await harness.work()
        assert await harness.keys() == []
        assert await harness.count(etl_task) == 0
        async with harness.db.read() as tx:
            lines = await audit.list_lines(tx)
        assert [(line.action, line.target) for line in lines] == [
            ("etl.delete_task", f"etl:{number}"),
            ("etl.submit", f"etl:{number}"),
        ]

    @on_both_profiles
    async def test_nobody_finds_it_any_more_not_even_in_run_state(self, harness: EtlHarness):
        number = await completed(harness)
        await actions.delete_task(harness.deps, ANNA, number)
        with pytest.raises(EtlTaskNotFound):
            await status.get_status(harness.deps, ANNA, number)
        await harness.deliver()
        with pytest.raises(EtlTaskNotFound):
            await status.get_status(harness.deps, ANNA, number)

    async def test_a_running_task_stays(self, harness: EtlHarness):
        task = await harness.submit()
        with pytest.raises(EtlTaskRunning):
            await actions.delete_task(harness.deps, ANNA, task.id)
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_somebody_elses_task_is_not_found(self, harness: EtlHarness):
        number = await completed(harness)
        with pytest.raises(EtlTaskNotFound):
            await actions.delete_task(harness.deps, BERT, number)

    async def test_a_document_stays_while_another_task_is_about_it(self, harness: EtlHarness):
        first, second = await completed(harness), await completed(harness)
        await actions.delete_task(harness.deps, ANNA, first)
        await harness.work()
        assert "users/5/raw/3/a.txt" in await harness.keys()
        await actions.delete_task(harness.deps, ANNA, second)
        await harness.work()
        assert await harness.keys() == []

    @on_both_profiles
    async def test_the_result_by_name_becomes_that_of_the_latest_task_that_is_left(self, harness: EtlHarness):
        first, second = await completed(harness), await completed(harness)
        public = "users/5/processed/3/a.txt.json"
        assert f"/{second}/".encode() in await harness.deps.blobs.get(public)
        await actions.delete_task(harness.deps, ANNA, second)
        await harness.work()
        assert f"/{first}/".encode() in await harness.deps.blobs.get(public)

    @on_both_profiles
    async def test_a_published_result_stays_while_a_task_of_that_name_is_active(self, harness: EtlHarness):
        old = await completed(harness)
        new = await harness.submit()
        await harness.deliver()
        await settled(harness, await harness.claim())
        shaping = await harness.claim()
        settle = await harness.do(shaping)  # its result lies there by name, and its row does not know yet
        assert settle is not None
        await actions.delete_task(harness.deps, ANNA, old)
        removal = await harness.claim()
        with pytest.raises(SameNameRunning):
            await harness.do(removal)
        await harness.settle(shaping, settle)
        await settled(harness, removal)
        assert f"/{new.id}/".encode() in await harness.deps.blobs.get("users/5/processed/3/a.txt.json")
        assert not [key for key in await harness.keys() if f"/{old}/" in key]

    @on_both_profiles
    async def test_a_task_of_that_name_that_completes_meanwhile_is_published(
        self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch
    ):
        old, public = await completed(harness), "users/5/processed/3/a.txt.json"
        await actions.delete_task(harness.deps, ANNA, old)
        removal = await harness.claim()
        delete = harness.deps.blobs.delete

        async def late(key: str) -> None:
            if key == public and not done:
                done.append(await completed(harness))
            await delete(key)

        done: list[int] = []
        monkeypatch.setattr(harness.deps.blobs, "delete", late)
        await settled(harness, removal)
        assert f"/{done[0]}/".encode() in await harness.deps.blobs.get(public)

    async def test_a_document_outside_the_owners_folder_is_left_alone(self, harness: EtlHarness):
        key = await harness.put()
        task = await actions.submit_task(harness.deps, ROOT, NewTask(project_id=3, filename="a.txt", s3_key=key))
        await harness.work()
        await actions.delete_task(harness.deps, ROOT, task.id)
        await harness.work()
        assert await harness.keys() == [key]

    @on_both_profiles
    async def test_a_document_goes_with_its_owners_last_task_whoever_else_has_one_about_it(self, harness: EtlHarness):
        key = await harness.put()
        both = []
        for caller in (ANNA, ROOT):
            both.append(
                await actions.submit_task(harness.deps, caller, NewTask(project_id=3, filename="a.txt", s3_key=key))
            )
            await harness.work()
        await actions.delete_task(harness.deps, ANNA, both[0].id)
        await harness.work()
        assert await harness.keys("users/5/") == []
        assert (await harness.row(both[1])).status is Status.COMPLETED

    async def check_nothing_is_left(
        self, harness: EtlHarness, task: EtlTask, ocr: OcrThatWaits, working: asyncio.Task[int]
    ) -> None:
        """The task is deleted while its worker still reads; what this one puts there goes with all else."""
        await actions.delete_task(harness.deps, ANNA, task.id)
        removal = await harness.claim()
        with pytest.raises(WorkerStillRunning):
            await harness.do(removal)
        harness.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        harness.clock.advance(seconds=LEASE_SECONDS)  # a worker that hangs would have lost its lease by now
        await settled(harness, removal)
        assert await harness.keys() == []

    @on_both_profiles
    async def test_nothing_is_left_by_a_worker_that_stops_after_the_task_is_gone(self, harness: EtlHarness):
        ocr, task, working = await harness.paused(before_page=2)
        await actions.abort_task(harness.deps, ANNA, task.id)
        await self.check_nothing_is_left(harness, task, ocr, working)
        assert ocr.pages_read == {1: 1, 2: 1}

    @on_both_profiles
    async def test_nothing_is_left_by_a_worker_of_an_earlier_run(self, harness: EtlHarness):
        ocr, task, working = await harness.paused(before_page=2)
        await actions.abort_task(harness.deps, ANNA, task.id)
        await actions.retry_task(harness.deps, ANNA, task.id, retry.RetryOptions())
        await actions.abort_task(harness.deps, ANNA, task.id)
        await self.check_nothing_is_left(harness, task, ocr, working)

    @on_both_profiles
    async def test_doing_it_twice_is_harmless(self, harness: EtlHarness):
        number = await completed(harness)
        await actions.delete_task(harness.deps, ANNA, number)
        held = await harness.claim()
        await harness.do(held)
        await harness.do(held)
        assert await harness.keys() == []


class TestForget:
    @on_both_profiles
    async def test_old_tasks_go_and_young_and_running_ones_stay(self, harness: EtlHarness):
        old = await completed(harness, "old.txt")
        waiting = await harness.submit("waiting.txt")
        harness.clock.advance(seconds=364 * 86400)
        await actions.cancel_task(harness.deps, ANNA, (await harness.submit("young.txt")).id)
        harness.clock.advance(seconds=2 * 86400)
        await worker.remove_expired(harness.deps)
        found = [task.filename for task in (await actions.list_tasks(harness.deps, ANNA, actions.TaskQuery()))[0]]
        assert found == ["young.txt", "waiting.txt"]
        await harness.work()
        assert not [key for key in await harness.keys() if f"/{old}/" in key or "old.txt" in key]
        assert (await harness.row(waiting)).status is Status.COMPLETED

    @on_both_profiles
    async def test_a_deleted_rule_is_forgotten_once_no_task_has_it(self, harness: EtlHarness):
        used, unused = [
            await actions.add_rule(harness.deps, ANNA, RuleBody(name=name, postprocess_mode=Mode.SKIP)) for name in "ab"
        ]
        kept = await actions.add_rule(harness.deps, ANNA, RuleBody(name="c", postprocess_mode=Mode.SKIP))
        task = await harness.submit(rule_id=used.id)
        await harness.work()
        for rule in (used, unused):
            await actions.remove_rule(harness.deps, ANNA, rule.id)
        await worker.delete_unused_rules(harness.deps)
        assert (await harness.count(etl_rule), await harness.count(etl_rule_version)) == (3, 3)
        harness.clock.advance(seconds=rules.KEEP_DELETED.total_seconds() + 1)
        await worker.delete_unused_rules(harness.deps)
        assert (await harness.count(etl_rule), await harness.count(etl_rule_version)) == (2, 2)
        await actions.delete_task(harness.deps, ANNA, task.id)
        await worker.delete_unused_rules(harness.deps)
        assert [rule.id for rule in await actions.list_rules(harness.deps, ANNA, limit=9, offset=0)] == [0, kept.id]
        assert (await harness.count(etl_rule), await harness.count(etl_rule_version)) == (1, 1)
