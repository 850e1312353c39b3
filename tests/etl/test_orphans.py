"""Uploaded documents without a task, after kills and lost databases, are listed and swept."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.etl import upload, worker
from penstock.etl.store import tasks
from penstock.etl.store.tasks import OrphanedUpload
from penstock.etl.upload import ORPHAN_AGE, SWEEP_AGE, UploadedDocument
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.etl.api_client import CALLERS, EtlClient, client_with, open_client
from tests.plans import explain, reads_a_whole_table, recorded, sorts

KEY = "users/5/raw/3/lost.md"


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def store_and_die(client: EtlClient, folder: Path, name: str = "lost.md") -> None:
    """An upload whose process dies after the document is stored, before its task is created."""

    async def reserve(key: str) -> bool:
        async with client.deps.db.autocommit() as tx:
            return await tasks.insert_upload(tx, key, user_id=5)

    (folder / "sent").write_bytes(b"Total: 1")
    document = UploadedDocument(file=folder / "sent", filename=name, project_id=3)
    await upload.store_document(client.deps, CALLERS["anna"], document, reserve)


async def orphans(client: EtlClient) -> list[str]:
    listed: dict[str, Any] = await client.json("GET", "/orphans", key="root")
    return [one["key"] for one in listed["documents"]]


async def rows(db: Db, clock: ManualClock) -> list[OrphanedUpload]:
    clock.advance(seconds=1)
    async with db.read() as tx:
        return await tasks.list_orphans(tx, before=tx.now)


async def test_a_document_without_a_task_is_listed_and_after_hours_deleted(
    client: EtlClient, clock: ManualClock, tmp_path: Path
):
    await store_and_die(client, tmp_path)
    assert await orphans(client) == []  # its task may still come
    clock.advance(seconds=ORPHAN_AGE.total_seconds() + 1)
    assert await orphans(client) == [KEY]
    await worker.sweep_uploads(client.deps)
    assert await client.keys("users/5/raw/") == [KEY]
    clock.advance(seconds=SWEEP_AGE.total_seconds())
    await worker.sweep_uploads(client.deps)
    assert await client.keys("users/5/raw/") == []
    assert await orphans(client) == []


async def test_a_document_with_a_task_is_no_orphan(client: EtlClient, db: Db, clock: ManualClock):
    assert (await client.upload(b"Total: 1", filename="kept.md")).status == 202
    assert await rows(db, clock) == []


async def test_a_rejected_upload_leaves_no_orphan(client: EtlClient, db: Db, clock: ManualClock):
    await client.upload(b"Total: 1")
    full = client_with(client.deps, config=replace(client.deps.config, queue_size=1))
    assert (await full.upload(b"Total: 2")).status == 429
    assert await rows(db, clock) == []


async def test_an_orphan_that_its_owner_submits_is_kept(client: EtlClient, clock: ManualClock, tmp_path: Path):
    await store_and_die(client, tmp_path)
    clock.advance(seconds=2 * SWEEP_AGE.total_seconds())
    body = {"project_id": 3, "filename": "lost.md", "s3_key": KEY}
    assert (await client.call("POST", "/submit", body)).status == 202
    await worker.sweep_uploads(client.deps)
    assert await client.keys("users/5/raw/") == [KEY]


async def test_an_orphan_that_is_being_swept_cannot_be_submitted(client: EtlClient, clock: ManualClock, tmp_path: Path):
    await store_and_die(client, tmp_path)
    clock.advance(seconds=2 * SWEEP_AGE.total_seconds())
    async with client.deps.db.tx() as tx:
        assert await upload.claim_orphans(tx) == ([KEY], [KEY])
    body = {"project_id": 3, "filename": "lost.md", "s3_key": KEY}
    answer = await client.call("POST", "/submit", body)
    assert (answer.status, answer.json["code"]) == (404, "SOURCE_NOT_FOUND")
    await worker.sweep_uploads(client.deps)  # goes on where a killed sweeper stopped
    assert await client.keys("users/5/raw/") == []


async def test_a_name_whose_upload_was_lost_can_be_uploaded_again(client: EtlClient, tmp_path: Path):
    await store_and_die(client, tmp_path)
    assert (await client.upload(b"Total: 2", filename="lost.md")).status == 202
    assert len(await client.keys("users/5/raw/")) == 2


async def test_orphans_are_found_by_an_index(db: Db):
    with recorded(db, "etl_upload") as statements:
        async with db.tx() as tx:
            await tasks.list_orphans(tx, before=tx.now)
            await tasks.claim_orphans(tx, ["a"])
            await tasks.claim_upload(tx, "a")
    steps = [step for statement in statements for step in await explain(db, *statement)]
    assert steps
    assert [step for step in steps if reads_a_whole_table(step) or sorts(step)] == []
