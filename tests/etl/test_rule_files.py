"""Rules in files: loaded at start as system rules."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.etl import worker
from penstock.kernel.db import Db
from tests.etl.api_client import INVOICE, EtlClient, open_client
from tests.etl.harness import on_sqlite


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rules"
    made.mkdir()
    return made


def write(folder: Path, file: str, /, **said: Any) -> None:
    (folder / file).write_text(json.dumps(said), encoding="utf-8")


async def listed(client: EtlClient) -> list[tuple[str, int, bool]]:
    found = (await client.json("GET", "/rules"))["rules"]
    return [(rule["name"], rule["version"], rule["system"]) for rule in found[1:]]


async def test_each_file_becomes_a_rule_that_everyone_may_use(client: EtlClient, folder: Path):
    write(folder, "invoice.json", json_schema=INVOICE, postprocess_mode="fields")
    write(folder, "letter.json", name="Letters", postprocess_mode="skip")
    (folder / "notes.txt").write_text("no rule")
    assert await worker.load_rule_files(client.deps, folder) == 2
    assert await listed(client) == [("invoice", 1, True), ("Letters", 1, True)]


async def test_a_file_is_taken_in_once_and_again_when_it_changes(client: EtlClient, folder: Path):
    write(folder, "letter.json", postprocess_mode="skip")
    assert [await worker.load_rule_files(client.deps, folder) for _ in range(2)] == [1, 0]
    write(folder, "letter.json", postprocess_mode="skip", description="Now with words.")
    assert await worker.load_rule_files(client.deps, folder) == 1
    assert await listed(client) == [("letter", 2, True)]


async def test_processes_that_start_together_take_a_file_in_once(client: EtlClient, folder: Path):
    write(folder, "letter.json", postprocess_mode="skip")
    assert sum(await asyncio.gather(*(worker.load_rule_files(client.deps, folder) for _ in range(4)))) == 1
    assert await listed(client) == [("letter", 1, True)]


@on_sqlite
async def test_a_file_that_is_gone_leaves_its_rule(client: EtlClient, folder: Path, caplog: pytest.LogCaptureFixture):
    write(folder, "letter.json", postprocess_mode="skip")
    await worker.load_rule_files(client.deps, folder)
    (folder / "letter.json").unlink()
    with caplog.at_level(logging.INFO):
        assert await worker.load_rule_files(client.deps, folder) == 0
    assert "keeping rules whose files were deleted: letter.json" in caplog.text
    assert await listed(client) == [("letter", 1, True)]


@on_sqlite
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "invalid rule file"),
        (b"[]", "invalid rule file"),
        (b"\xff\xfe", "invalid rule file"),
        (b'{"postprocess_mode": "magic"}', "invalid rule file"),
        (b'{"postprocess_mode": "skip", "colour": "red"}', "invalid rule file"),
        (b'{"postprocess_mode": "skip", "description": "\\u0000"}', "NUL"),
        (b'{"name": "no schema"}', "json_schema is required"),
        (b'{"json_schema": {"type": "string"}}', "object"),
        (b"[" * 100_000, "invalid rule file"),
        (b" " * (1024 * 1024 + 1), "longer than"),
    ],
)
async def test_a_bad_file_is_told_of_and_stops_nobody(
    client: EtlClient, folder: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
):
    (folder / "bad.json").write_bytes(content)
    write(folder, "good.json", postprocess_mode="skip")
    assert await worker.load_rule_files(client.deps, folder) == 1
    assert "skipping rule file bad.json" in caplog.text
    assert reason in caplog.text
    assert await listed(client) == [("good", 1, True)]


@on_sqlite
async def test_no_folder_is_no_rules(client: EtlClient, tmp_path: Path):
    assert await worker.load_rule_files(client.deps, tmp_path / "nowhere") == 0
