"""Ids in paths that are out of range are not found, like any id that does not exist."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.kernel.db import Db
from tests.etl.api_client import EtlClient, open_client
from tests.etl.harness import on_sqlite

NOBODY_S = ["-1", "-9223372036854775809", str(2**63), "1" * 60, "9" * 5000]
TASK_ROUTES = [
    ("GET", ""),
    ("DELETE", ""),
    ("POST", "/cancel"),
    ("POST", "/retry"),
    ("GET", "/result"),
    ("GET", "/markdown"),
    ("GET", "/pages"),
    ("GET", "/grounding"),
    ("GET", "/corrections"),
    ("DELETE", "/corrections/1"),
]
RULE_ROUTES = [
    ("GET", "", None),
    ("PUT", "", {"name": "x"}),
    ("DELETE", "", None),
    ("GET", "/versions", None),
    ("GET", "/corrections", None),
    ("GET", "/accuracy", None),
]


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def test_no_task_has_them(client: EtlClient):
    for number in ("0", str(2**63 - 1), *NOBODY_S):
        for method, path in TASK_ROUTES:
            answer = await client.call(method, f"/tasks/{number}{path}")
            assert (answer.status, answer.json["detail"]) == (404, "Task not found"), (method, number[:30], path)


async def test_no_rule_has_them(client: EtlClient):
    for number in NOBODY_S:
        for method, path, body in RULE_ROUTES:
            told = await client.refused(method, f"/rules/{number}{path}", body)
            assert told == (404, "RULE_NOT_FOUND"), (method, number[:30], path)
        tried = await client.refused("POST", f"/rules/{number}/try", {"markdown": "Total: 7"})
        assert tried == (404, "RULE_NOT_FOUND")


@on_sqlite
async def test_an_endless_number_is_not_told_back_whole(client: EtlClient):
    assert len((await client.call("GET", f"/rules/{'9' * 5000}")).json["detail"]) < 100


@on_sqlite
async def test_the_built_in_rule_is_number_0(client: EtlClient):
    assert (await client.json("GET", "/rules/0"))["name"] == "default"


@on_sqlite
@pytest.mark.parametrize("text", ["x", "1.5", "+1", "01", "1_0", "true", "١", "--1", "-"])
async def test_what_is_no_number_is_refused(client: EtlClient, text: str):
    for kind in ("tasks", "rules"):
        assert await client.refused("GET", f"/{kind}/{text}") == (400, "VALIDATION")
