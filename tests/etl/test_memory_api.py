"""`force` and what is said of the memory, over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel.db import Db
from tests.etl.asking import Room, open_room

TEXT = "Total: 12.5"


@pytest.fixture
async def room(db: Db, tmp_path: Path) -> AsyncIterator[Room]:
    async with open_room(db, tmp_path) as opened:
        yield opened


async def metadata(room: Room, task_id: int) -> dict[str, Any]:
    await room.work()
    task = await room.json("GET", f"/tasks/{task_id}")
    assert task["status"] == "completed"
    known: dict[str, Any] = task["metadata"]
    return known


async def uploaded(room: Room, filename: str, **fields: str) -> int:
    answer = await room.upload(TEXT.encode(), filename=filename, **fields)
    assert answer.status == 202, answer.body
    task_id: int = answer.json["task_id"]
    return task_id


async def test_a_known_document_says_whose_papers_it_has(room: Room):
    first = await room.submit()
    key = (await metadata(room, first))["cache"]["ocr"]["key"]
    second = await room.submit(name="b.md")
    known = await metadata(room, second)
    assert known["cache"] == {"ocr": {"hit": True, "task_id": first, "key": key}}
    assert "force" not in known
    assert room.ocr.calls == 1


async def test_a_document_that_is_submitted_by_force_is_read(room: Room):
    await metadata(room, await room.submit())
    known = await metadata(room, await room.submit(name="b.md", force=True))
    assert (known["force"], known["cache"]["ocr"]["hit"]) == (True, False)
    assert room.ocr.calls == 2


@pytest.mark.parametrize(("given", "calls"), [("true", 2), ("1", 2), ("false", 1), ("", 1)])
async def test_so_is_one_that_is_uploaded_by_force(room: Room, given: str, calls: int):
    await metadata(room, await uploaded(room, "a.md"))
    await metadata(room, await uploaded(room, "b.md", force=given))
    assert room.ocr.calls == calls


async def test_a_form_without_it_finds_what_was_read(room: Room):
    first = await uploaded(room, "a.md")
    await metadata(room, first)
    assert (await metadata(room, await uploaded(room, "a.md")))["cache"]["ocr"]["task_id"] == first


async def test_what_is_no_yes_and_no_no_is_refused(room: Room):
    await room.submit()
    asked = {"project_id": 3, "filename": "a.md", "force": "perhaps"}
    assert await room.refused("POST", "/submit", asked) == (400, "VALIDATION")
    assert (await room.upload(b"x", force="perhaps")).status == 400


async def test_a_retry_by_force_reads_again(room: Room):
    task = await room.submit()
    await metadata(room, task)
    again = await room.json("POST", f"/tasks/{task}/retry", {"from_stage": "mineru", "force": True})
    assert again["metadata"]["force"] is True
    await metadata(room, task)
    assert room.ocr.calls == 2
