"""Submitting a stored document creates a task, or is rejected with a code."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import delete

from penstock.access.domain import Caller
from penstock.documents.errors import DocumentTooLarge
from penstock.etl.api import actions
from penstock.etl.domain import Mode, Phase, RuleBody, Status
from penstock.etl.errors import (
    DefaultRuleMissing,
    QueueFull,
    QueueShareFull,
    ReservedSource,
    RuleNotFound,
    RuleRequired,
    SourceNotFound,
    SourceNotOwned,
)
from penstock.etl.store import rules
from penstock.etl.store.tables import etl_task
from penstock.etl.submit import NewTask
from penstock.kernel.blobs import BadBlobKey
from penstock.kernel.db import Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.queue import JobQueue, JobState, NewJob, job
from tests.etl.harness import ANNA, BERT, ROOT, EtlHarness, on_both_profiles

FIELDS = RuleBody(name="invoice", json_schema={"type": "object"}, postprocess_mode=Mode.FIELDS)


async def add_rule(harness: EtlHarness, *, user_id: int = 5) -> int:
    async with harness.db.tx() as tx:
        return (await rules.insert_rule(tx, FIELDS, user_id=user_id)).id


class TestTakingIn:
    @on_both_profiles
    async def test_the_row_the_job_and_run_state_are_there_at_once(self, harness: EtlHarness):
        task = await harness.submit()
        assert await harness.row(task) == task
        assert (task.status, task.run, task.progress) == (Status.PENDING, 1, 0)
        assert (await harness.job(task, "ocr")).state is JobState.WAITING
        shown = await harness.shown(task)
        assert shown.task == task
        assert shown.details.phase is Phase.OCR
        entry = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert entry is not None
        assert entry.fields["arq_job_id_ocr"] == f"etl:{task.id}:1:ocr"

    async def test_numbers_grow_and_are_integers(self, harness: EtlHarness):
        first, second = await harness.submit("a.txt"), await harness.submit("b.txt")
        assert second.id > first.id

    @on_both_profiles
    async def test_the_relay_puts_run_state_when_nobody_else_could(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.lose_run_state(task)
        await harness.deliver()
        assert (await harness.shown(task)).task.status is Status.PENDING

    async def test_a_key_of_ones_own_may_be_named(self, harness: EtlHarness):
        key = await harness.put("elsewhere.txt")
        task = await actions.submit_task(harness.deps, ANNA, NewTask(project_id=9, filename="b.txt", s3_key=key))
        assert task.s3_key == key
        await harness.work()
        assert "users/5/processed/9/b.txt.json" in await harness.keys()

    async def test_an_admin_may_name_any_key(self, harness: EtlHarness):
        key = await harness.put()
        task = await actions.submit_task(harness.deps, ROOT, NewTask(project_id=3, filename="a.txt", s3_key=key))
        assert (task.user_id, task.s3_key) == (1, key)


class TestRules:
    async def test_without_a_rule_the_default_is_used(self, harness: EtlHarness):
        task = await harness.submit()
        assert (task.rule_id, task.rule_version) == (0, 1)

    async def test_a_rule_is_pinned_in_the_version_it_has(self, harness: EtlHarness):
        rule_id = await add_rule(harness)
        task = await harness.submit(rule_id=rule_id)
        async with harness.db.tx() as tx:
            before = await rules.find_rule(tx, rule_id)
            assert before is not None
            await rules.move_rule(tx, before, RuleBody(name="other", postprocess_mode=Mode.SKIP))
        await harness.work()
        assert (task.rule_id, task.rule_version) == (rule_id, 1)
        assert [rule.json_schema for rule in harness.post_processor.rules] == [{"type": "object"}]

    async def test_the_default_rule_can_be_another_one(self, harness: EtlHarness):
        harness.set(default_rule_id=await add_rule(harness, user_id=1))
        task = await harness.submit()
        assert task.rule_id == harness.deps.config.default_rule_id

    async def test_a_default_that_does_not_exist_is_said(self, harness: EtlHarness):
        harness.set(default_rule_id=4711)
        with pytest.raises(DefaultRuleMissing, match="4711"):
            await harness.submit()
        with pytest.raises(RuleNotFound):
            await harness.submit(rule_id=4711 + 1)

    async def test_without_a_default_a_rule_is_required(self, harness: EtlHarness):
        harness.set(default_rule_id=None)
        with pytest.raises(RuleRequired):
            await harness.submit()
        assert (await harness.submit(rule_id=await add_rule(harness))).status is Status.PENDING

    async def test_somebody_elses_rule_is_not_found(self, harness: EtlHarness):
        foreign = await add_rule(harness, user_id=6)
        with pytest.raises(RuleNotFound):
            await harness.submit(rule_id=foreign)
        with pytest.raises(RuleNotFound):
            await harness.submit(rule_id=4711)


class TestRefusals:
    @pytest.mark.parametrize("by", [ANNA, ROOT])
    async def test_an_artifact_of_a_task_cannot_be_submitted(self, harness: EtlHarness, by: Caller):
        task = await harness.submit()
        await harness.work()
        for key in (f"users/5/etl_artifacts/3/{task.id}/mineru.md", "users/5/processed/3/a.txt.json"):
            with pytest.raises(ReservedSource):
                await actions.submit_task(harness.deps, by, NewTask(project_id=3, filename="b.txt", s3_key=key))

    async def test_a_key_of_somebody_else_is_refused(self, harness: EtlHarness):
        key = await harness.put()
        with pytest.raises(SourceNotOwned):
            await actions.submit_task(harness.deps, BERT, NewTask(project_id=3, filename="a.txt", s3_key=key))
        assert await harness.count(etl_task) == 0

    @pytest.mark.parametrize("key", ["users/5/../6/raw/3/a.txt", "users/55/raw/3/a.txt", "users/5", "/users/5/a"])
    async def test_a_key_that_only_looks_like_ones_own_is_refused(self, harness: EtlHarness, key: str):
        with pytest.raises((SourceNotOwned, BadBlobKey)):
            await actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename="a.txt", s3_key=key))

    @pytest.mark.parametrize("name", ["../a.txt", "", "a\\b", "a" * 300, "a\nb"])
    async def test_a_name_that_cannot_be_part_of_a_key_is_refused(self, harness: EtlHarness, name: str):
        key = await harness.put()
        with pytest.raises(BadBlobKey):
            await actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename=name, s3_key=key))

    async def test_a_document_that_is_not_there_is_refused(self, harness: EtlHarness):
        with pytest.raises(SourceNotFound):
            await actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename="none.txt"))

    async def test_a_document_that_is_too_large_is_refused(self, harness: EtlHarness):
        harness.set(max_file_bytes=10)
        with pytest.raises(DocumentTooLarge):
            await harness.submit()

    @on_both_profiles
    async def test_a_full_queue_refuses_and_a_finished_task_makes_room(self, harness: EtlHarness):
        harness.set(queue_size=2, queue_share=1)
        for name in ("a.txt", "b.txt"):
            await harness.submit(name)
        with pytest.raises(QueueFull) as refused:
            await harness.submit("c.txt")
        assert refused.value.wait_seconds > 0
        assert await harness.count(etl_task) == 2
        await harness.work()
        assert (await harness.submit("c.txt")).status is Status.PENDING

    @on_both_profiles
    async def test_a_queue_takes_no_more_when_many_come_at_once(self, harness: EtlHarness):
        harness.set(queue_size=2, queue_share=1)
        names = [f"{number}.txt" for number in range(10)]
        for name in names:
            await harness.put(name)
        wanted = (actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename=name)) for name in names)
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert sum(isinstance(answer, QueueFull) for answer in answers) == 8
        assert await harness.count(etl_task) == 2

    @on_both_profiles
    async def test_one_user_cannot_fill_the_queue_and_an_admin_can(self, harness: EtlHarness):
        harness.set(queue_size=5, queue_share=0.4)
        names = [f"{number}.txt" for number in range(6)]
        for name in names:
            await harness.put(name)
        wanted = (actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename=name)) for name in names)
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert sum(isinstance(answer, QueueShareFull) for answer in answers) == 4
        assert (await harness.submit("b.txt", by=BERT)).user_id == BERT.user_id
        for name in ("c.txt", "d.txt"):
            await harness.submit(name, by=ROOT)
        with pytest.raises(QueueFull):
            await harness.submit("e.txt", by=ROOT)

    @on_both_profiles
    async def test_a_job_that_cannot_be_written_leaves_no_task(self, harness: EtlHarness):
        class QueueThatFails(JobQueue):
            async def enqueue(self, tx: Tx, *jobs: NewJob) -> list[str]:
                raise Unavailable(reason="no")

        await harness.put()
        harness.deps = replace(harness.deps, queue=QueueThatFails())
        with pytest.raises(Unavailable):
            await actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename="a.txt"))
        assert (await harness.count(etl_task), await harness.count(job)) == (0, 0)


@on_both_profiles
async def test_a_number_is_never_given_twice(harness: EtlHarness):
    task = await harness.submit()
    async with harness.db.tx() as tx:
        await tx.conn.execute(delete(etl_task))
    assert (await harness.submit()).id > task.id
