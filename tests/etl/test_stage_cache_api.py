"""`force` and the cache metadata, over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel.db import Db
from tests.etl.api_client import EtlClient, open_client
from tests.etl.harness import on_sqlite

TEXT = "Total: 12.5"


pytestmark = on_sqlite


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def metadata(client: EtlClient, task_id: int) -> dict[str, Any]:
    await client.work()
    task = await client.json("GET", f"/tasks/{task_id}")
    assert task["status"] == "completed"
    known: dict[str, Any] = task["metadata"]
    return known


async def uploaded(client: EtlClient, filename: str, **fields: str) -> int:
    answer = await client.upload(TEXT.encode(), filename=filename, **fields)
    assert answer.status == 202, answer.body
    task_id: int = answer.json["task_id"]
    return task_id


async def test_a_cached_document_names_the_task_of_its_artifacts(client: EtlClient):
    first = await client.submit()
    key = (await metadata(client, first))["cache"]["ocr"]["key"]
    second = await client.submit(name="b.md")
    known = await metadata(client, second)
    assert known["cache"] == {"ocr": {"hit": True, "task_id": first, "key": key}}
    assert "force" not in known
    assert client.ocr.calls == 1


async def test_a_document_that_is_submitted_by_force_is_read(client: EtlClient):
    await metadata(client, await client.submit())
    known = await metadata(client, await client.submit(name="b.md", force=True))
    assert (known["force"], known["cache"]["ocr"]["hit"]) == (True, False)
    assert client.ocr.calls == 2


@pytest.mark.parametrize(("given", "calls"), [("true", 2), ("1", 2), ("false", 1), ("", 1)])
async def test_so_is_one_that_is_uploaded_by_force(client: EtlClient, given: str, calls: int):
    await metadata(client, await uploaded(client, "a.md"))
    await metadata(client, await uploaded(client, "b.md", force=given))
    assert client.ocr.calls == calls


async def test_a_form_without_it_finds_what_was_read(client: EtlClient):
    first = await uploaded(client, "a.md")
    await metadata(client, first)
    assert (await metadata(client, await uploaded(client, "a.md")))["cache"]["ocr"]["task_id"] == first


async def test_what_is_no_yes_and_no_no_is_refused(client: EtlClient):
    await client.submit()
    asked = {"project_id": 3, "filename": "a.md", "force": "perhaps"}
    assert await client.refused("POST", "/submit", asked) == (400, "VALIDATION")
    assert (await client.upload(b"x", force="perhaps")).status == 400


async def test_a_retry_by_force_reads_again(client: EtlClient):
    task = await client.submit()
    await metadata(client, task)
    again = await client.json("POST", f"/tasks/{task}/retry", {"from_stage": "mineru", "force": True})
    assert again["metadata"]["force"] is True
    await metadata(client, task)
    assert client.ocr.calls == 2
