"""Rules in files: taken in at the start, as rules of the system."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.etl import rules
from penstock.kernel.db import Db
from tests.etl.asking import INVOICE, Room, open_room


@pytest.fixture
async def room(db: Db, tmp_path: Path) -> AsyncIterator[Room]:
    async with open_room(db, tmp_path) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rules"
    made.mkdir()
    return made


def write(folder: Path, file: str, /, **said: Any) -> None:
    (folder / file).write_text(json.dumps(said), encoding="utf-8")


async def listed(room: Room) -> list[tuple[str, int, bool]]:
    found = (await room.json("GET", "/rules"))["rules"]
    return [(rule["name"], rule["version"], rule["system"]) for rule in found[1:]]


async def test_each_file_becomes_a_rule_that_everyone_may_use(room: Room, folder: Path):
    write(folder, "invoice.json", json_schema=INVOICE, postprocess_mode="fields")
    write(folder, "letter.json", name="Letters", postprocess_mode="skip")
    (folder / "notes.txt").write_text("no rule")
    assert await rules.take_in(room.tools, folder) == 2
    assert await listed(room) == [("invoice", 1, True), ("Letters", 1, True)]


async def test_a_file_is_taken_in_once_and_again_when_it_changes(room: Room, folder: Path):
    write(folder, "letter.json", postprocess_mode="skip")
    assert [await rules.take_in(room.tools, folder) for _ in range(2)] == [1, 0]
    write(folder, "letter.json", postprocess_mode="skip", description="Now with words.")
    assert await rules.take_in(room.tools, folder) == 1
    assert await listed(room) == [("letter", 2, True)]


async def test_processes_that_start_together_take_a_file_in_once(room: Room, folder: Path):
    write(folder, "letter.json", postprocess_mode="skip")
    assert sum(await asyncio.gather(*(rules.take_in(room.tools, folder) for _ in range(4)))) == 1
    assert await listed(room) == [("letter", 1, True)]


async def test_a_file_that_is_gone_leaves_its_rule(room: Room, folder: Path, caplog: pytest.LogCaptureFixture):
    write(folder, "letter.json", postprocess_mode="skip")
    await rules.take_in(room.tools, folder)
    (folder / "letter.json").unlink()
    with caplog.at_level(logging.INFO):
        assert await rules.take_in(room.tools, folder) == 0
    assert "rules stay whose files are gone: letter.json" in caplog.text
    assert await listed(room) == [("letter", 1, True)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "does not fit"),
        (b"[]", "does not fit"),
        (b"\xff\xfe", "does not fit"),
        (b'{"postprocess_mode": "magic"}', "does not fit"),
        (b'{"postprocess_mode": "skip", "colour": "red"}', "does not fit"),
        (b'{"postprocess_mode": "skip", "description": "\\u0000"}', "NUL"),
        (b'{"name": "no schema"}', "json_schema is needed"),
        (b'{"json_schema": {"type": "string"}}', "object"),
        (b"[" * 100_000, "does not fit"),
        (b" " * (1024 * 1024 + 1), "longer than"),
    ],
)
async def test_a_bad_file_is_told_of_and_stops_nobody(
    room: Room, folder: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
):
    (folder / "bad.json").write_bytes(content)
    write(folder, "good.json", postprocess_mode="skip")
    assert await rules.take_in(room.tools, folder) == 1
    assert "bad.json is not taken in as a rule" in caplog.text
    assert reason in caplog.text
    assert await listed(room) == [("good", 1, True)]


async def test_no_folder_is_no_rules(room: Room, tmp_path: Path):
    assert await rules.take_in(room.tools, tmp_path / "nowhere") == 0
