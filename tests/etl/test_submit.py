"""A stored document becomes a task, or is refused with a name for why."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import delete

from penstock.access.domain import Caller
from penstock.documents.errors import DocumentTooLarge
from penstock.etl.domain import Mode, Phase, RuleBody, Status
from penstock.etl.errors import (
    DefaultRuleMissing,
    ForeignSource,
    QueueFull,
    ReservedSource,
    RuleNotFound,
    RuleRequired,
    SourceNotFound,
)
from penstock.etl.store import rules
from penstock.etl.store.tables import etl_task
from penstock.etl.submit import NewTask, submit
from penstock.kernel.blobs import BadBlobKey
from penstock.kernel.db import Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.queue import JobQueue, JobState, NewJob, job
from tests.etl.workshop import ANNA, BERT, ROOT, Workshop

FIELDS = RuleBody(name="invoice", json_schema={"type": "object"}, postprocess_mode=Mode.FIELDS)


async def add_rule(shop: Workshop, *, user_id: int = 5) -> int:
    async with shop.db.tx() as tx:
        return (await rules.insert_rule(tx, FIELDS, user_id=user_id)).id


class TestTakingIn:
    async def test_the_row_the_job_and_run_state_are_there_at_once(self, shop: Workshop):
        task = await shop.submit()
        assert await shop.row(task) == task
        assert (task.status, task.run, task.progress) == (Status.PENDING, 1, 0)
        assert (await shop.job(task, "ocr")).state is JobState.WAITING
        shown = await shop.shown(task)
        assert shown.task == task
        assert shown.course.phase is Phase.OCR
        entry = await shop.tools.runs.get(f"etl:task:{task.id}")
        assert entry is not None
        assert entry.fields["arq_job_id_ocr"] == f"etl:{task.id}:1:ocr"

    async def test_numbers_grow_and_are_integers(self, shop: Workshop):
        first, second = await shop.submit("a.txt"), await shop.submit("b.txt")
        assert second.id > first.id

    async def test_the_relay_puts_run_state_when_nobody_else_could(self, shop: Workshop):
        task = await shop.submit()
        await shop.lose_run_state(task)
        await shop.deliver()
        assert (await shop.shown(task)).task.status is Status.PENDING

    async def test_a_key_of_ones_own_may_be_named(self, shop: Workshop):
        key = await shop.put("elsewhere.txt")
        task = await submit(shop.tools, ANNA, NewTask(project_id=9, filename="b.txt", s3_key=key))
        assert task.s3_key == key
        await shop.work()
        assert "users/5/processed/9/b.txt.json" in await shop.keys()

    async def test_an_admin_may_name_any_key(self, shop: Workshop):
        key = await shop.put()
        task = await submit(shop.tools, ROOT, NewTask(project_id=3, filename="a.txt", s3_key=key))
        assert (task.user_id, task.s3_key) == (1, key)


class TestRules:
    async def test_without_a_rule_the_default_is_used(self, shop: Workshop):
        task = await shop.submit()
        assert (task.rule_id, task.rule_version) == (0, 1)

    async def test_a_rule_is_pinned_in_the_version_it_has(self, shop: Workshop):
        rule_id = await add_rule(shop)
        task = await shop.submit(rule_id=rule_id)
        async with shop.db.tx() as tx:
            before = await rules.find_rule(tx, rule_id)
            assert before is not None
            await rules.move_rule(tx, before, RuleBody(name="other", postprocess_mode=Mode.SKIP))
        await shop.work()
        assert (task.rule_id, task.rule_version) == (rule_id, 1)
        assert [rule.json_schema for rule in shop.shaper.rules] == [{"type": "object"}]

    async def test_the_default_rule_can_be_another_one(self, shop: Workshop):
        shop.set(global_rule_id=await add_rule(shop, user_id=1))
        task = await shop.submit()
        assert task.rule_id == shop.tools.terms.global_rule_id

    async def test_a_default_that_does_not_exist_is_said(self, shop: Workshop):
        shop.set(global_rule_id=4711)
        with pytest.raises(DefaultRuleMissing, match="4711"):
            await shop.submit()
        with pytest.raises(RuleNotFound):
            await shop.submit(rule_id=4711 + 1)

    async def test_without_a_default_a_rule_is_required(self, shop: Workshop):
        shop.set(global_rule_enabled=False)
        with pytest.raises(RuleRequired):
            await shop.submit()
        assert (await shop.submit(rule_id=await add_rule(shop))).status is Status.PENDING

    async def test_somebody_elses_rule_is_not_found(self, shop: Workshop):
        foreign = await add_rule(shop, user_id=6)
        with pytest.raises(RuleNotFound):
            await shop.submit(rule_id=foreign)
        with pytest.raises(RuleNotFound):
            await shop.submit(rule_id=4711)


class TestRefusals:
    @pytest.mark.parametrize("by", [ANNA, ROOT])
    async def test_a_paper_of_a_task_is_no_document(self, shop: Workshop, by: Caller):
        task = await shop.submit()
        await shop.work()
        for key in (f"users/5/etl_artifacts/3/{task.id}/mineru.md", "users/5/processed/3/a.txt.json"):
            with pytest.raises(ReservedSource):
                await submit(shop.tools, by, NewTask(project_id=3, filename="b.txt", s3_key=key))

    async def test_a_key_of_somebody_else_is_refused(self, shop: Workshop):
        key = await shop.put()
        with pytest.raises(ForeignSource):
            await submit(shop.tools, BERT, NewTask(project_id=3, filename="a.txt", s3_key=key))
        assert await shop.count(etl_task) == 0

    @pytest.mark.parametrize("key", ["users/5/../6/raw/3/a.txt", "users/55/raw/3/a.txt", "users/5", "/users/5/a"])
    async def test_a_key_that_only_looks_like_ones_own_is_refused(self, shop: Workshop, key: str):
        with pytest.raises((ForeignSource, BadBlobKey)):
            await submit(shop.tools, ANNA, NewTask(project_id=3, filename="a.txt", s3_key=key))

    @pytest.mark.parametrize("name", ["../a.txt", "", "a\\b", "a" * 300, "a\nb"])
    async def test_a_name_that_cannot_be_part_of_a_key_is_refused(self, shop: Workshop, name: str):
        key = await shop.put()
        with pytest.raises(BadBlobKey):
            await submit(shop.tools, ANNA, NewTask(project_id=3, filename=name, s3_key=key))

    async def test_a_document_that_is_not_there_is_refused(self, shop: Workshop):
        with pytest.raises(SourceNotFound):
            await submit(shop.tools, ANNA, NewTask(project_id=3, filename="none.txt"))

    async def test_a_document_that_is_too_large_is_refused(self, shop: Workshop):
        shop.set(max_file_bytes=10)
        with pytest.raises(DocumentTooLarge):
            await shop.submit()

    async def test_a_full_queue_refuses_and_a_finished_task_makes_room(self, shop: Workshop):
        shop.set(queue_size=2)
        for name in ("a.txt", "b.txt"):
            await shop.submit(name)
        with pytest.raises(QueueFull) as refused:
            await shop.submit("c.txt")
        assert refused.value.wait_seconds > 0
        assert await shop.count(etl_task) == 2
        await shop.work()
        assert (await shop.submit("c.txt")).status is Status.PENDING

    async def test_a_queue_takes_no_more_when_many_come_at_once(self, shop: Workshop):
        shop.set(queue_size=2)
        names = [f"{number}.txt" for number in range(10)]
        for name in names:
            await shop.put(name)
        wanted = (submit(shop.tools, ANNA, NewTask(project_id=3, filename=name)) for name in names)
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert sum(isinstance(answer, QueueFull) for answer in answers) == 8
        assert await shop.count(etl_task) == 2

    async def test_a_job_that_cannot_be_written_leaves_no_task(self, shop: Workshop):
        class QueueThatFails(JobQueue):
            async def enqueue(self, tx: Tx, *jobs: NewJob) -> list[str]:
                raise Unavailable(reason="no")

        await shop.put()
        shop.tools = replace(shop.tools, queue=QueueThatFails())
        with pytest.raises(Unavailable):
            await submit(shop.tools, ANNA, NewTask(project_id=3, filename="a.txt"))
        assert (await shop.count(etl_task), await shop.count(job)) == (0, 0)


async def test_a_number_is_never_given_twice(shop: Workshop):
    task = await shop.submit()
    async with shop.db.tx() as tx:
        await tx.conn.execute(delete(etl_task))
    assert (await shop.submit()).id > task.id
