"""Submitting or uploading again with the same Idempotency-Key makes no second task."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel.db import Db
from tests.asgi import send_request
from tests.etl.api_client import EtlClient, form_of, open_client

FILE, PROJECT = 'name="file"; filename="invoice.md"', 'name="project_id"'
KEYED = {"idempotency_key": "k1"}


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def task_ids(client: EtlClient) -> list[int]:
    return [task["task_id"] for task in (await client.json("GET", "/tasks"))["tasks"]]


async def send_again(client: EtlClient, boundary: str, content: bytes) -> Any:
    """An upload as a client sends it: with a new boundary each time."""
    form = form_of({PROJECT: b"3", FILE: content}).replace(b"so-far-and-no-further", boundary.encode())
    headers = {"content_type": f"multipart/form-data; boundary={boundary}", "x_api_key": "anna", **KEYED}
    return await send_request(client.app, "POST", "/api/v1/etl/upload_and_submit", form, **headers)


async def test_an_upload_that_is_sent_again_makes_one_task_and_stores_one_document(client: EtlClient):
    answers = [await send_again(client, f"boundary-{number}", b"Total: 1") for number in range(3)]
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body for answer in answers}) == 1
    assert await task_ids(client) == [answers[0].json["task_id"]]
    assert await client.keys("users/5/raw/") == ["users/5/raw/3/invoice.md"]


async def test_uploads_at_once_with_one_key_make_one_task_and_leave_one_document(client: EtlClient):
    sent = (send_again(client, f"boundary-{number}", b"Total: 1") for number in range(4))
    answers = await asyncio.gather(*sent)
    assert [answer.status for answer in answers] == [202] * 4
    assert len(await task_ids(client)) == 1
    [key] = await client.keys("users/5/raw/")
    task = await client.json("GET", f"/tasks/{answers[0].json['task_id']}")
    assert task["metadata"]["s3_key"] == key


async def test_another_document_with_the_key_is_refused(client: EtlClient):
    await send_again(client, "one", b"Total: 1")
    answer = await send_again(client, "two", b"Total: 2")
    assert (answer.status, answer.json["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(await task_ids(client)) == 1


async def test_a_document_that_is_submitted_again_makes_one_task(client: EtlClient):
    await client.deps.blobs.put("users/5/raw/3/a.md", b"Total: 1")
    body = {"project_id": 3, "filename": "a.md"}
    answers = [await client.call("POST", "/submit", body, **KEYED) for _ in range(2)]
    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json == answers[1].json
    other = await client.call("POST", "/submit", {**body, "project_id": 4}, **KEYED)
    assert (other.status, other.json["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(await task_ids(client)) == 1


async def test_a_refused_request_leaves_its_key_unused(client: EtlClient):
    body = {"project_id": 3, "filename": "a.md"}
    assert (await client.call("POST", "/submit", body, **KEYED)).status == 404
    await client.deps.blobs.put("users/5/raw/3/a.md", b"Total: 1")
    assert (await client.call("POST", "/submit", body, **KEYED)).status == 202


async def test_a_rule_that_is_created_again_is_one_rule(client: EtlClient):
    body = {"name": "Mine", "postprocess_mode": "skip"}
    answers = [await client.call("POST", "/rules", body, **KEYED) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json["rule_id"] == answers[1].json["rule_id"]
