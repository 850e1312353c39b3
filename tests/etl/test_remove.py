"""A removed task takes its papers along and leaves the audit line."""

import asyncio

import pytest

from penstock.access import audit
from penstock.etl import remove, rules, steer, track
from penstock.etl.domain import EtlTask, Mode, RuleBody, Status
from penstock.etl.errors import EtlTaskNotFound, EtlTaskRunning, NamesakeUnderWay, WorkerStillThere
from penstock.etl.store.tables import etl_rule, etl_rule_version, etl_task
from penstock.etl.submit import NewTask, submit
from penstock.kernel.queue import Job
from tests.etl.workshop import ANNA, BERT, ROOT, Workshop
from tests.fakes.ocr import OcrThatWaits


async def completed(shop: Workshop, name: str = "a.txt") -> int:
    task = await shop.submit(name)
    await shop.work()
    assert (await shop.row(task)).status is Status.COMPLETED
    return task.id


async def settled(shop: Workshop, held: Job) -> None:
    """What a worker does with a job that it holds."""
    settle = await shop.do(held)
    await shop.settle(held, settle)


class TestDelete:
    async def test_everything_of_a_task_goes_and_the_audit_line_stays(self, shop: Workshop):
        number = await completed(shop)
        await remove.delete_task(shop.tools, ANNA, number)
        await shop.work()
        assert await shop.keys() == []
        assert await shop.count(etl_task) == 0
        async with shop.db.read() as tx:
            lines = await audit.list_lines(tx)
        assert [(line.action, line.target) for line in lines] == [("etl.delete_task", f"etl:{number}")]

    async def test_nobody_finds_it_any_more_not_even_in_run_state(self, shop: Workshop):
        number = await completed(shop)
        await remove.delete_task(shop.tools, ANNA, number)
        with pytest.raises(EtlTaskNotFound):
            await track.get_task(shop.tools, ANNA, number)
        await shop.deliver()
        with pytest.raises(EtlTaskNotFound):
            await track.get_task(shop.tools, ANNA, number)

    async def test_a_running_task_stays(self, shop: Workshop):
        task = await shop.submit()
        with pytest.raises(EtlTaskRunning):
            await remove.delete_task(shop.tools, ANNA, task.id)
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_somebody_elses_task_is_not_found(self, shop: Workshop):
        number = await completed(shop)
        with pytest.raises(EtlTaskNotFound):
            await remove.delete_task(shop.tools, BERT, number)

    async def test_a_document_stays_while_another_task_is_about_it(self, shop: Workshop):
        first, second = await completed(shop), await completed(shop)
        await remove.delete_task(shop.tools, ANNA, first)
        await shop.work()
        assert "users/5/raw/3/a.txt" in await shop.keys()
        await remove.delete_task(shop.tools, ANNA, second)
        await shop.work()
        assert await shop.keys() == []

    async def test_the_result_by_name_becomes_that_of_the_latest_task_that_is_left(self, shop: Workshop):
        first, second = await completed(shop), await completed(shop)
        public = "users/5/processed/3/a.txt.json"
        assert f"/{second}/".encode() in await shop.tools.blobs.get(public)
        await remove.delete_task(shop.tools, ANNA, second)
        await shop.work()
        assert f"/{first}/".encode() in await shop.tools.blobs.get(public)

    async def test_a_result_by_name_waits_for_the_namesake_that_is_under_way(self, shop: Workshop):
        old = await completed(shop)
        new = await shop.submit()
        await shop.deliver()
        await settled(shop, await shop.claim())
        shaping = await shop.claim()
        settle = await shop.do(shaping)  # its result lies there by name, and its row does not know yet
        assert settle is not None
        await remove.delete_task(shop.tools, ANNA, old)
        removal = await shop.claim()
        with pytest.raises(NamesakeUnderWay):
            await shop.do(removal)
        await shop.settle(shaping, settle)
        await settled(shop, removal)
        assert f"/{new.id}/".encode() in await shop.tools.blobs.get("users/5/processed/3/a.txt.json")
        assert not [key for key in await shop.keys() if f"/{old}/" in key]

    async def test_a_namesake_that_is_completed_meanwhile_gets_the_place(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ):
        old, public = await completed(shop), "users/5/processed/3/a.txt.json"
        await remove.delete_task(shop.tools, ANNA, old)
        removal = await shop.claim()
        delete = shop.tools.blobs.delete

        async def late(key: str) -> None:
            if key == public and not done:
                done.append(await completed(shop))
            await delete(key)

        done: list[int] = []
        monkeypatch.setattr(shop.tools.blobs, "delete", late)
        await settled(shop, removal)
        assert f"/{done[0]}/".encode() in await shop.tools.blobs.get(public)

    async def test_a_document_outside_the_owners_folder_is_left_alone(self, shop: Workshop):
        key = await shop.put()
        task = await submit(shop.tools, ROOT, NewTask(project_id=3, filename="a.txt", s3_key=key))
        await shop.work()
        await remove.delete_task(shop.tools, ROOT, task.id)
        await shop.work()
        assert await shop.keys() == [key]

    async def test_a_document_goes_with_its_owners_last_task_whoever_else_has_one_about_it(self, shop: Workshop):
        key = await shop.put()
        both = []
        for caller in (ANNA, ROOT):
            both.append(await submit(shop.tools, caller, NewTask(project_id=3, filename="a.txt", s3_key=key)))
            await shop.work()
        await remove.delete_task(shop.tools, ANNA, both[0].id)
        await shop.work()
        assert await shop.keys("users/5/") == []
        assert (await shop.row(both[1])).status is Status.COMPLETED

    async def check_nothing_is_left(
        self, shop: Workshop, task: EtlTask, ocr: OcrThatWaits, working: asyncio.Task[int]
    ) -> None:
        """The task is deleted while its worker still reads; what this one puts there goes with all else."""
        await remove.delete_task(shop.tools, ANNA, task.id)
        removal = await shop.claim()
        with pytest.raises(WorkerStillThere):
            await shop.do(removal)
        shop.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        await settled(shop, removal)
        assert await shop.keys() == []

    async def test_nothing_is_left_by_a_worker_that_stops_after_the_task_is_gone(self, shop: Workshop):
        ocr, task, working = await shop.caught(before_page=2)
        await steer.abort(shop.tools, ANNA, task.id)
        await self.check_nothing_is_left(shop, task, ocr, working)
        assert ocr.pages_read == {1: 1, 2: 1}

    async def test_nothing_is_left_by_a_worker_of_an_earlier_run(self, shop: Workshop):
        ocr, task, working = await shop.caught(before_page=2)
        await steer.abort(shop.tools, ANNA, task.id)
        await steer.retry(shop.tools, ANNA, task.id, steer.Again())
        await steer.abort(shop.tools, ANNA, task.id)
        await self.check_nothing_is_left(shop, task, ocr, working)

    async def test_doing_it_twice_is_harmless(self, shop: Workshop):
        number = await completed(shop)
        await remove.delete_task(shop.tools, ANNA, number)
        held = await shop.claim()
        await shop.do(held)
        await shop.do(held)
        assert await shop.keys() == []


class TestForget:
    async def test_old_tasks_go_and_young_and_running_ones_stay(self, shop: Workshop):
        old = await completed(shop, "old.txt")
        waiting = await shop.submit("waiting.txt")
        shop.clock.advance(seconds=364 * 86400)
        await steer.cancel(shop.tools, ANNA, (await shop.submit("young.txt")).id)
        shop.clock.advance(seconds=2 * 86400)
        await remove.forget(shop.tools)
        found = [task.filename for task in await track.list_tasks(shop.tools, ANNA, track.Wanted())]
        assert found == ["young.txt", "waiting.txt"]
        await shop.work()
        assert not [key for key in await shop.keys() if f"/{old}/" in key or "old.txt" in key]
        assert (await shop.row(waiting)).status is Status.COMPLETED

    async def test_a_deleted_rule_is_forgotten_once_no_task_has_it(self, shop: Workshop):
        used, unused = [
            await rules.add(shop.tools, ANNA, RuleBody(name=name, postprocess_mode=Mode.SKIP)) for name in "ab"
        ]
        kept = await rules.add(shop.tools, ANNA, RuleBody(name="c", postprocess_mode=Mode.SKIP))
        task = await shop.submit(rule_id=used.id)
        await shop.work()
        for rule in (used, unused):
            await rules.remove(shop.tools, ANNA, rule.id)
        await rules.forget(shop.tools)
        assert (await shop.count(etl_rule), await shop.count(etl_rule_version)) == (3, 3)
        shop.clock.advance(seconds=rules.GONE_FOR.total_seconds() + 1)
        await rules.forget(shop.tools)
        assert (await shop.count(etl_rule), await shop.count(etl_rule_version)) == (2, 2)
        await remove.delete_task(shop.tools, ANNA, task.id)
        await rules.forget(shop.tools)
        assert [rule.id for rule in await rules.list_rules(shop.tools, ANNA, limit=9, offset=0)] == [0, kept.id]
        assert (await shop.count(etl_rule), await shop.count(etl_rule_version)) == (1, 1)
