"""Upload and submit in one request: where the file is stored, and that a rejected task leaves nothing."""

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.etl import upload
from penstock.etl.api import actions, form
from penstock.etl.upload import safe_name, task_name
from penstock.kernel.blobs import why_bad_key
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.asgi import DISCONNECT, STALL
from tests.etl.api_client import BOUNDARY, CALLERS, EtlClient, client_with, form_of, open_client

MEBIBYTE = 1024 * 1024
FILE = 'name="file"; filename="invoice.md"'
PROJECT = 'name="project_id"'


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """Forms are parsed before the database matters, so once is enough."""
    return sqlite_url


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path, max_file_bytes=100_000) as opened:
        yield opened


def nothing_is_left(client: EtlClient) -> bool:
    return not client.deps.scratch.exists() or list(client.deps.scratch.iterdir()) == []


async def test_a_document_is_stored_and_its_task_made(client: EtlClient):
    answer = await client.upload(b"Total: 12.5")
    assert answer.status == 202, answer.body
    assert set(answer.json) == {"task_id", "status", "message"}
    task = await client.json("GET", f"/tasks/{answer.json['task_id']}")
    assert (task["filename"], task["project_id"], task["rule_id"]) == ("invoice.md", 3, 0)
    assert task["metadata"]["s3_key"] == "users/5/raw/3/invoice.md"
    assert await client.deps.blobs.get("users/5/raw/3/invoice.md") == b"Total: 12.5"
    assert nothing_is_left(client)


@pytest.mark.parametrize("piece_bytes", [1, 7, 64 * 1024])
async def test_a_file_comes_whole_however_it_was_cut(client: EtlClient, piece_bytes: int):
    content = bytes(range(256)) * 8 + f"\r\n--{BOUNDARY[:-1]}\r\n--".encode()
    answer = await client.send_form(form_of({PROJECT: b"3", FILE: content}), chunk_bytes=piece_bytes)
    assert answer.status == 202, answer.body
    assert await client.deps.blobs.get("users/5/raw/3/invoice.md") == content


async def test_the_file_may_come_before_its_fields(client: EtlClient):
    rule = await client.json("POST", "/rules", {"name": "Mine", "postprocess_mode": "skip"})
    number = str(rule["rule_id"]).encode()
    answer = await client.send_form(form_of({FILE: b"a", 'name="rule_id"': number, PROJECT: b"9"}))
    task = await client.json("GET", f"/tasks/{answer.json['task_id']}")
    assert (task["project_id"], task["rule_id"]) == (9, rule["rule_id"])


async def test_a_second_document_of_one_name_leaves_the_first_alone(client: EtlClient):
    first, second = await client.upload(b"Total: 1"), await client.upload(b"Total: 2")
    tasks = [await client.json("GET", f"/tasks/{sent.json['task_id']}") for sent in (first, second)]
    assert [task["filename"] for task in tasks] == ["invoice.md", "invoice.md"]
    keys = [task["metadata"]["s3_key"] for task in tasks]
    assert keys[0] == "users/5/raw/3/invoice.md"
    assert keys[1].startswith("users/5/raw/3/invoice-")
    assert keys[1].endswith(".md")
    await client.work()
    totals = [(await client.call("GET", f"/tasks/{task['task_id']}/result")).json["total"] for task in tasks]
    assert totals == [1.0, 2.0]


async def test_documents_of_one_name_that_come_together_each_have_their_own_place(client: EtlClient):
    answers = await asyncio.gather(*(client.upload(f"Total: {number}".encode()) for number in range(5)))
    tasks = [await client.json("GET", f"/tasks/{answer.json['task_id']}") for answer in answers]
    stored = [await client.deps.blobs.get(task["metadata"]["s3_key"]) for task in tasks]
    assert stored == [f"Total: {number}".encode() for number in range(5)]


async def test_a_task_that_is_refused_keeps_no_file(client: EtlClient):
    foreign = await client.json("POST", "/rules", {"name": "B", "postprocess_mode": "skip"}, key="bert")
    for rule_id in ("999", str(foreign["rule_id"])):
        answer = await client.upload(b"a", rule_id=rule_id)
        assert (answer.status, answer.json["code"]) == (404, "RULE_NOT_FOUND")
    ruleless = client_with(client.deps, config=replace(client.deps.config, default_rule_id=None))
    answer = await ruleless.upload(b"a")
    assert (answer.status, answer.json["code"]) == (400, "RULE_REQUIRED")
    full = client_with(client.deps, config=replace(client.deps.config, queue_size=1))
    await full.upload(b"a", filename="first.md")
    answer = await full.upload(b"a")
    assert (answer.status, answer.json["code"]) == (429, "QUEUE_FULL")
    assert await client.keys("") == ["users/5/raw/3/first.md"]
    assert nothing_is_left(client)


@pytest.mark.parametrize(
    ("filename", "name"),
    [("Cafe\u0301.md", "Caf\u00e9.md"), ("C:\\temp\\a.md", "a.md"), ("x" * 195 + ".md", "x" * 157 + ".md")],
    ids=["decomposed", "backslashes", "long"],
)
async def test_a_name_that_no_store_takes_is_made_fit(client: EtlClient, tmp_path: Path, filename: str, name: str):
    (tmp_path / "sent").write_bytes(b"Total: 7")
    sent = upload.UploadedDocument(file=tmp_path / "sent", filename=filename, project_id=3)
    task = await actions.upload_task(client.deps, CALLERS["anna"], sent)
    assert (task.filename, task.s3_key) == (name, f"users/5/raw/3/{name}")
    await client.work()
    assert f"users/5/processed/3/{name}.json" in await client.keys("")


async def test_a_document_that_is_too_large_is_refused_by_its_length_or_by_its_bytes(client: EtlClient):
    large = form_of({PROJECT: b"3", FILE: b"x" * 200_000})
    for headers in ({"content_length": str(len(large))}, {}):
        answer = await client.send_form(large, chunk_bytes=10_000, **headers)
        assert (answer.status, answer.json["code"]) == (413, "UPLOAD_TOO_LARGE")
        assert answer.headers["connection"] == "close"
    assert (await client.keys(""), nothing_is_left(client)) == ([], True)


async def test_a_document_as_large_as_may_be_is_taken(client: EtlClient):
    assert (await client.upload(b"x" * 100_000)).status == 202


async def test_a_large_document_is_never_held_in_memory(client: EtlClient):
    large = client_with(client.deps, config=replace(client.deps.config, max_file_bytes=64 * MEBIBYTE))
    head, tail = form_of({PROJECT: b"3", FILE: b"|"}).split(b"|")
    pieces = [head, *[bytes(MEBIBYTE)] * 48, tail]
    tracemalloc.start()
    answer = await large.send_chunks(pieces)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status == 202, answer.body
    assert (await client.deps.blobs.stat("users/5/raw/3/invoice.md")).size_bytes == 48 * MEBIBYTE
    assert held < 16 * MEBIBYTE, f"{held / MEBIBYTE:.1f} MiB"


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({PROJECT: b"3"}, "file"),
        ({PROJECT: b"3", 'name="file"': b"not a file"}, "file"),
        ({PROJECT: b"3", 'name="file"; filename=""': b"x"}, "file"),
        ({PROJECT: b"3", 'name="file"; filename="a\x01b"': b"x"}, "file"),
        ({FILE: b"x"}, "project_id"),
        ({FILE: b"x", PROJECT: b"three"}, "project_id"),
        ({FILE: b"x", PROJECT: b"3", 'name="rule_id"': b"first"}, "rule_id"),
        ({FILE: b"x", PROJECT: b"3", 'name="colour"': b"red"}, "colour"),
    ],
)
async def test_fields_that_do_not_fit_are_named(client: EtlClient, parts: dict[str, bytes], field: str):
    answer = await client.send_form(form_of(parts))
    assert (answer.status, answer.json["code"]) == (400, "VALIDATION"), answer.body
    assert [wrong["field"] for wrong in answer.json["errors"]] == [field]
    assert (await client.keys(""), nothing_is_left(client)) == ([], True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not a form",
        form_of({FILE: b"x", PROJECT: b"3"})[:-6],
        form_of({FILE: b"x", 'name="file"; filename="two.md"': b"y", PROJECT: b"3"}),
        form_of({'name="picture"; filename="a.png"': b"y", PROJECT: b"3"}),
        form_of({FILE: b"x", PROJECT: b"3" * 2000}),
        form_of({FILE: b"x", PROJECT: b"\xff\xfe"}),
        form_of({FILE: b"x", **{f'name="n{number}"': b"" for number in range(20)}}),
        form_of({f'name="{"n" * 100_000}"': b"x"}),
    ],
)
async def test_a_form_that_is_none_is_refused(client: EtlClient, body: bytes):
    answer = await client.send_form(body)
    assert (answer.status, answer.json["code"]) == (400, "BAD_BODY"), answer.body
    assert (await client.keys(""), nothing_is_left(client)) == ([], True)


async def test_a_form_with_an_overlong_boundary_is_refused(client: EtlClient):
    form = form_of({FILE: b"x", PROJECT: b"3"}).replace(BOUNDARY.encode(), b"b" * 300)
    answer = await client.send_form(form, content_type=f"multipart/form-data; boundary={'b' * 300}")
    assert (answer.status, answer.json["code"]) == (400, "BAD_BODY"), answer.body
    assert (await client.keys(""), nothing_is_left(client)) == ([], True)


async def test_json_where_a_form_belongs_is_refused(client: EtlClient):
    answer = await client.call("POST", "/upload_and_submit", {"project_id": 3})
    assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(client: EtlClient):
    answer = await client.send_chunks([form_of({PROJECT: b"3", FILE: b"x" * 5000})[:3000], DISCONNECT])
    assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")
    assert (await client.keys(""), nothing_is_left(client)) == ([], True)


async def test_a_client_that_falls_silent_is_not_waited_for(client: EtlClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(form, "CHUNK_SECONDS", 0.1)
    answer = await client.send_chunks([form_of({PROJECT: b"3", FILE: b"x" * 5000})[:3000], STALL])
    assert (answer.status, answer.json["code"]) == (408, "BODY_TOO_SLOW")
    assert (await client.keys(""), nothing_is_left(client)) == ([], True)


async def test_what_a_dead_process_left_on_disk_is_swept_away_within_a_day(client: EtlClient, clock: ManualClock):
    client.deps.scratch.mkdir()
    old, new = client.deps.scratch / "old.part", client.deps.scratch / "new.part"
    for path, hours in ((old, 21), (new, 19)):
        path.write_bytes(b"left")
        at = clock.now().timestamp() - hours * 3600
        os.utime(path, (at, at))
    await upload.clean_scratch(client.deps)
    assert [path.name for path in client.deps.scratch.iterdir()] == ["new.part"]


@pytest.mark.parametrize(
    ("filename", "safe"),
    [
        ("invoice.pdf", "invoice.pdf"),
        ("发票 2026.pdf", "发票 2026.pdf"),
        ("Cafe\u0301.pdf", "Caf\u00e9.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.docx", "a.docx"),
        ("a\u202eb.pdf", "a_b.pdf"),
        ("draft.md~", "draft.md"),
        (" .pdf ", "document.pdf"),
        ("..", "document"),
        ("", "document"),
        ("%2e%2e", "document"),
    ],
)
def test_names_become_parts_of_keys(filename: str, safe: str):
    assert safe_name(filename) == safe
    assert why_bad_key(safe) is None


@pytest.mark.parametrize("filename", ["票" * 200 + ".pdf", "a" * 300, "a." + "b" * 300, "\u0301" * 200 + ".pdf"])
def test_long_names_are_cut_and_keep_their_ending(filename: str):
    made = safe_name(filename)
    assert why_bad_key(f"{made}.json") is None
    assert made.endswith(".pdf") == filename.endswith(".pdf")


def test_a_task_is_called_as_it_was_sent_wherever_that_can_be():
    assert task_name("发票 (2).pdf") == "发票 (2).pdf"
    assert task_name("Cafe\u0301.pdf") == "Caf\u00e9.pdf"
    assert task_name("a/b.pdf") == "b.pdf"
    assert task_name("票" * 100 + ".pdf").endswith(".pdf")
