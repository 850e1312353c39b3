"""Routes of rules: create, change, delete, and access."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.access.audit import list_lines
from penstock.etl import rules, worker
from penstock.etl.store.rules import find_rule, get_rule_version, move_rule
from penstock.kernel.db import Db
from tests.etl.api_client import INVOICE, EtlClient, client_with, open_client
from tests.etl.harness import on_sqlite

FIELDS = {"name": "Invoices", "json_schema": INVOICE, "postprocess_mode": "fields"}
SKIP = {"name": "Letters", "postprocess_mode": "skip"}


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def names(client: EtlClient, key: str = "anna") -> list[str]:
    return [rule["name"] for rule in (await client.json("GET", "/rules", key=key))["rules"]]


async def test_a_rule_that_is_made_can_be_read_again(client: EtlClient):
    made = await client.json("POST", "/rules", {**FIELDS, "description": "For us.", "system_prompt": "Be exact."})
    assert made["rule_id"] >= 1
    assert made == await client.json("GET", f"/rules/{made['rule_id']}")
    assert (made["version"], made["user_id"], made["system"], made["is_default"]) == (1, 5, False, False)
    assert (made["json_schema"], made["postprocess_mode"]) == (INVOICE, "fields")
    assert (made["description"], made["system_prompt"], made["postprocess_strategy"]) == ("For us.", "Be exact.", None)


async def test_a_schema_keeps_the_order_of_its_fields(client: EtlClient):
    fields = {name: {"type": "string"} for name in ("zeta", "invoice_number", "a", "total")}
    made = await client.json("POST", "/rules", {**FIELDS, "json_schema": {"type": "object", "properties": fields}})
    read = await client.json("GET", f"/rules/{made['rule_id']}")
    assert list(read["json_schema"]["properties"]) == list(fields)


@on_sqlite
async def test_without_a_mode_a_rule_asks_a_model_and_needs_a_schema(client: EtlClient):
    made = await client.json("POST", "/rules", {"name": "Ask", "json_schema": INVOICE})
    assert made["postprocess_mode"] == "llm"
    assert await client.refused("POST", "/rules", {"name": "Ask"}) == (400, "BAD_RULE")
    assert await client.refused("POST", "/rules", {"name": "Ask", "json_schema": {}}) == (400, "BAD_RULE")


@on_sqlite
async def test_a_rule_that_skips_needs_no_schema(client: EtlClient):
    made = await client.json("POST", "/rules", {"name": "Skip", "postprocess_mode": "skip", "json_schema": {}})
    assert (made["postprocess_mode"], made["json_schema"]) == ("skip", None)


@on_sqlite
@pytest.mark.parametrize(
    "schema", [{"type": "array"}, {"type": "banana"}, {"$ref": "https://example.org/x.json"}, {"anything": [1, None]}]
)
async def test_a_rule_that_skips_may_carry_any_schema_until_it_is_used(client: EtlClient, schema: dict[str, object]):
    made = await client.json("POST", "/rules", {**SKIP, "json_schema": schema})
    assert made["json_schema"] == schema
    used = {"postprocess_mode": "fields"}
    assert await client.refused("PUT", f"/rules/{made['rule_id']}", used) == (400, "BAD_RULE")
    long = {"description": "x" * 70_000}
    assert await client.refused("POST", "/rules", {**SKIP, "json_schema": long}) == (400, "BAD_RULE")


async def test_the_default_rule_is_listed_first_and_is_the_systems(client: EtlClient):
    await client.json("POST", "/rules", SKIP)
    [default, own] = (await client.json("GET", "/rules"))["rules"]
    assert (default["rule_id"], default["system"], default["is_system"], default["is_default"]) == (0, True, True, True)
    assert default["postprocess_mode"] == "skip"
    assert (own["name"], own["system"]) == ("Letters", False)


async def test_a_users_rule_that_is_made_the_default_is_everyones_and_stays_as_it_is(client: EtlClient):
    made = await client.json("POST", "/rules", SKIP)
    path = f"/rules/{made['rule_id']}"
    with_default = client_with(client.deps, config=replace(client.deps.config, default_rule_id=made["rule_id"]))
    for key in ("anna", "bert", "root"):
        [_, listed] = (await with_default.json("GET", "/rules", key=key))["rules"]
        assert (listed["name"], listed["system"], listed["is_default"], listed["user_id"]) == (
            "Letters", True, True, None,
        )  # fmt: skip
        assert await with_default.json("GET", path, key=key) == listed
        assert (await with_default.json("GET", f"{path}/versions", key=key))["versions"] == [listed]
        for method, body in (("PUT", {"name": "Mine"}), ("DELETE", None)):
            assert await with_default.refused(method, path, body, key=key) == (403, "SYSTEM_RULE")
        assert await with_default.submit(key=key) > 0
        assert await with_default.submit(key=key, rule_id=made["rule_id"]) > 0
    assert await names(client, "bert") == ["default"]
    await client.json("DELETE", path)
    answer = await with_default.upload(b"x")
    assert (answer.status, answer.json["code"]) == (409, "DEFAULT_RULE_MISSING")


@on_sqlite
async def test_a_default_that_does_not_exist_is_told_of_at_the_start(
    client: EtlClient, caplog: pytest.LogCaptureFixture
):
    await worker.check_default_rule(client.deps)
    assert caplog.messages == []
    await worker.check_default_rule(replace(client.deps, config=replace(client.deps.config, default_rule_id=4711)))
    assert "4711" in caplog.text


@on_sqlite
@pytest.mark.parametrize(("method", "body"), [("PUT", {"name": "Mine"}), ("DELETE", None)])
async def test_a_rule_of_the_system_stays_as_it_is(client: EtlClient, tmp_path: Path, method: str, body: object):
    write(tmp_path / "rules", "shared.json", '{"postprocess_mode": "skip"}')
    await worker.load_rule_files(client.deps, tmp_path / "rules")
    shared = (await client.json("GET", "/rules"))["rules"][1]["rule_id"]
    for rule_id in (0, shared):
        for key in ("anna", "root"):
            assert await client.refused(method, f"/rules/{rule_id}", body, key=key) == (403, "SYSTEM_RULE")


async def test_a_change_makes_a_new_version_and_leaves_the_old_one(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", FIELDS))["rule_id"]
    changed = await client.json("PUT", f"/rules/{rule_id}", {"name": "Bills", "description": "New."})
    assert (changed["version"], changed["name"], changed["json_schema"]) == (2, "Bills", INVOICE)
    versions = (await client.json("GET", f"/rules/{rule_id}/versions"))["versions"]
    assert [(one["version"], one["name"]) for one in versions] == [(2, "Bills"), (1, "Invoices")]
    assert (await names(client))[1:] == ["Bills"]


async def test_of_changes_at_once_each_is_a_version_of_its_own_or_is_refused(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    asked = (client.call("PUT", f"/rules/{rule_id}", {"name": f"n{number}"}) for number in range(6))
    answers = await asyncio.gather(*asked)
    changed = [answer for answer in answers if answer.status == 200]
    refused = {(answer.status, answer.json["code"]) for answer in answers if answer.status != 200}
    assert changed
    assert refused <= {(409, "MOVED_ALREADY")}
    assert sorted(answer.json["version"] for answer in changed) == list(range(2, len(changed) + 2))


async def test_a_change_of_what_was_changed_meanwhile_is_none(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    async with client.deps.db.read() as tx:
        before = await find_rule(tx, rule_id)
    assert before is not None
    await client.json("PUT", f"/rules/{rule_id}", {"name": "Quicker"})
    async with client.deps.db.tx() as tx:
        assert await move_rule(tx, before, before.body) is None
    assert (await client.json("GET", f"/rules/{rule_id}"))["version"] == 2


@on_sqlite
async def test_a_change_to_what_is_there_makes_no_version(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    assert (await client.json("PUT", f"/rules/{rule_id}", SKIP))["version"] == 1


@on_sqlite
async def test_a_change_is_held_to_what_a_new_rule_is_held_to(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", FIELDS))["rule_id"]
    bad: list[dict[str, Any]] = [{"json_schema": None}, {"json_schema": {"type": "string"}}]
    for changes in bad:
        assert await client.refused("PUT", f"/rules/{rule_id}", changes) == (400, "BAD_RULE")
    for changes in ({"name": " "}, {"colour": "red"}):
        assert await client.refused("PUT", f"/rules/{rule_id}", changes) == (400, "VALIDATION")
    assert (await client.json("GET", f"/rules/{rule_id}"))["version"] == 1


async def test_a_deleted_rule_is_gone_but_tasks_keep_what_it_said(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    answer = await client.call("DELETE", f"/rules/{rule_id}")
    assert (answer.status, answer.body) == (204, b"")
    for method in ("GET", "DELETE"):
        assert await client.refused(method, f"/rules/{rule_id}") == (404, "RULE_NOT_FOUND")
    assert await client.refused("GET", f"/rules/{rule_id}/versions") == (404, "RULE_NOT_FOUND")
    assert await names(client) == ["default"]
    async with client.deps.db.read() as tx:
        assert (await get_rule_version(tx, rule_id, 1)).body.name == "Letters"


async def test_a_foreign_rule_is_as_good_as_none(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    asked: list[tuple[str, str, object]] = [
        ("GET", "", None),
        ("PUT", "", {"name": "Mine"}),
        ("DELETE", "", None),
        ("GET", "/versions", None),
        ("POST", "/try", {"markdown": "Total: 1"}),
    ]
    for method, path, body in asked:
        told = await client.refused(method, f"/rules/{rule_id}{path}", body, key="bert")
        assert told == (404, "RULE_NOT_FOUND"), (method, path)
    assert await names(client, "bert") == ["default"]


async def test_an_admin_sees_and_changes_everyones_rules(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    assert await names(client, "root") == ["default", "Letters"]
    changed = await client.json("PUT", f"/rules/{rule_id}", {"name": "Seen"}, key="root")
    assert (changed["name"], changed["user_id"]) == ("Seen", 5)


async def test_rules_come_in_pages_with_the_default_in_the_first(client: EtlClient):
    for number in range(4):
        await client.json("POST", "/rules", {"name": f"r{number}", "postprocess_mode": "skip"})
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await client.json("GET", f"/rules?limit=2&offset={offset}")
        assert len(page["rules"]) <= 2
        assert (page["total"], page["total_is_exact"]) == (5, True)
        seen += [rule["name"] for rule in page["rules"]]
        offset = page["next_offset"]
    assert seen == ["default", "r0", "r1", "r2", "r3"]


@on_sqlite
@pytest.mark.parametrize(
    "body",
    [
        {"json_schema": INVOICE},
        {"name": "", "json_schema": INVOICE},
        {"name": "  ", "json_schema": INVOICE},
        {"name": "n" * 256, "json_schema": INVOICE},
        {"name": "n", "json_schema": "object"},
        {"name": "n", "json_schema": INVOICE, "postprocess_mode": "magic"},
        {"name": "n", "json_schema": INVOICE, "postprocess_strategy": "guess"},
        {"name": "n", "json_schema": INVOICE, "colour": "red"},
    ],
)
async def test_fields_that_do_not_fit_are_named(client: EtlClient, body: object):
    answer = await client.call("POST", "/rules", body)
    assert (answer.status, answer.json["code"]) == (400, "VALIDATION")
    assert answer.json["errors"][0]["field"] in {
        "name", "json_schema", "postprocess_mode", "postprocess_strategy", "colour"
    }  # fmt: skip


async def test_a_user_has_so_many_rules_and_no_more(client: EtlClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "MAX_RULES", 1)
    await client.json("POST", "/rules", SKIP)
    assert await client.refused("POST", "/rules", SKIP) == (409, "RULES_FULL")
    told = await client.call("POST", "/rules", SKIP, accept_language="zh")
    assert told.json["detail"] == "规则数已达上限 1。"
    await client.json("POST", "/rules", SKIP, key="bert")


async def test_a_rule_has_so_many_versions_and_no_more(client: EtlClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "MAX_VERSIONS", 2)
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    await client.json("PUT", f"/rules/{rule_id}", {"name": "Second"})
    assert await client.refused("PUT", f"/rules/{rule_id}", {"name": "Third"}) == (409, "RULES_FULL")


async def test_rules_are_written_into_the_audit_log(client: EtlClient):
    rule_id = (await client.json("POST", "/rules", SKIP))["rule_id"]
    await client.json("PUT", f"/rules/{rule_id}", {"name": "Bills"})
    await client.call("DELETE", f"/rules/{rule_id}")
    async with client.deps.db.read() as tx:
        lines = await list_lines(tx)
    assert [line.action for line in lines] == ["etl_rule.remove", "etl_rule.change", "etl_rule.add"]
    assert {line.target for line in lines} == {f"etl_rule:{rule_id}"}


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
