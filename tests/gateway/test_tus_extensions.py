"""tus 1.0.0, extensions: creation, checksum, termination, expiration, concatenation. Tests are named by clause."""

import hashlib
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import pairwise

import pytest
from sqlalchemy import update

from penstock.gateway import worker
from penstock.gateway.deps import Deps
from penstock.gateway.store import upload as upload_table
from penstock.kernel.events import event
from tests.fakes.blocking_handler import wait_until
from tests.gateway.conftest import Servers, on_both_profiles
from tests.gateway.tus_client import BASE, BYTES, PDF, Answer, TusClient, metadata

CONTENT = bytes(range(256)) * 60_000  # 15 MB


def deps_of(servers: Servers) -> Deps:
    deps = servers.runtimes[0].modules.state["gateway"]
    assert isinstance(deps, Deps)
    return deps


async def stored(servers: Servers, path: str) -> bytes:
    """The object of a complete upload."""
    chunks = servers.runtimes[0].blobs.stream(f"uploads/{path.rpartition('/')[2]}")
    return b"".join([chunk async for chunk in chunks])


def sum_of(algorithm: str, body: bytes) -> str:
    return f"{algorithm} {b64encode(hashlib.new(algorithm, body).digest()).decode()}"


class TestCreation:
    async def test_location_is_a_relative_path_and_the_offset_is_zero(self, tus: TusClient):
        made = await tus.create(10)
        assert made.status == 201
        assert made.path.startswith(f"{BASE}/upl_")
        assert len(made.path.rpartition("/")[2]) == len("upl_") + 21
        assert await tus.offset(made.path) == 0

    async def test_a_trailing_slash_is_the_same(self, tus: TusClient):
        made = await tus.send("POST", f"{BASE}/", Upload_Length="3", Upload_Metadata=PDF)
        assert made.status == 201

    async def test_metadata_comes_back_exactly_as_sent(self, tus: TusClient):
        sent = f"{PDF},empty,  is_secret {b64encode('合同'.encode()).decode()}"
        made = await tus.create(10, Upload_Metadata=sent)
        assert (await tus.head(made.path)).headers["upload-metadata"] == sent

    @pytest.mark.parametrize(
        "headers",
        [{}, {"Upload_Length": "-1"}, {"Upload_Length": "1e3"}, {"Upload_Length": "3", "Upload_Defer_Length": "1"},
         {"Upload_Defer_Length": "2"}, {"Upload_Length": ""}, {"Upload_Length": "9" * 25}],
    )  # fmt: skip
    async def test_the_length_must_be_known_or_deferred(self, tus: TusClient, headers: dict[str, str]):
        refused = await tus.create(None, **headers)
        assert (refused.status, refused.code) == (400, "BAD_TUS_HEADER")

    async def test_over_the_largest_size_it_is_413(self, tus: TusClient):
        assert (await tus.create(10**9)).code == "UPLOAD_TOO_LARGE"
        made = await tus.create(None, Upload_Defer_Length="1")
        refused = await tus.patch(made.path, 0, b"abc", Upload_Length=str(10**9))
        assert (refused.status, await tus.offset(made.path)) == (413, 0)

    @pytest.mark.parametrize(
        "broken",
        ["filename", "filename a.pdf", f"{PDF},filename {b64encode(b'b.pdf').decode()}", "filename ====", f"{PDF},,",
         "", metadata(filename="a.exe", filetype="application/pdf"),
         metadata(filename="a.pdf"), metadata(filename="a.pdf", filetype="text/html"),
         metadata(filename="a\0.pdf", filetype="application/pdf")],
    )  # fmt: skip
    async def test_bad_metadata_is_400(self, tus: TusClient, broken: str):
        refused = await tus.create(3, Upload_Metadata=broken)
        assert refused.status == 400
        assert refused.code in {"BAD_TUS_HEADER", "INVALID_FILE_TYPE"}

    @on_both_profiles
    async def test_length_zero_is_complete_at_once(self, tus: TusClient, servers: Servers):
        made = await tus.create(0)
        assert (made.status, made.offset) == (201, 0)
        assert (await tus.head(made.path)).headers["upload-length"] == "0"
        assert await stored(servers, made.path) == b""

    @on_both_profiles
    async def test_a_deferred_length_follows_with_a_patch(self, tus: TusClient, servers: Servers):
        made = await tus.create(None, Upload_Defer_Length="1")
        assert (await tus.head(made.path)).headers["upload-defer-length"] == "1"
        await tus.patch(made.path, 0, CONTENT[:7_000_000])
        await tus.patch(made.path, 7_000_000, b"", Upload_Length=str(len(CONTENT)))
        found = await tus.head(made.path)
        assert found.headers["upload-length"] == str(len(CONTENT))
        assert "upload-defer-length" not in found.headers
        refused = await tus.patch(made.path, 7_000_000, b"", Upload_Length="5")
        assert refused.status == 400
        await tus.patch(made.path, 7_000_000, CONTENT[7_000_000:])
        assert await stored(servers, made.path) == CONTENT

    @on_both_profiles
    async def test_with_upload_it_takes_the_first_bytes(self, tus: TusClient, servers: Servers):
        made = await tus.send("POST", BASE, b"abc", Upload_Length="6", Upload_Metadata=PDF, Content_Type=BYTES)
        assert (made.status, made.offset) == (201, 3)
        assert (await tus.patch(made.path, 3, b"def")).offset == 6
        assert await stored(servers, made.path) == b"abcdef"
        whole = await tus.send("POST", BASE, b"abc", Upload_Length="3", Upload_Metadata=PDF, Content_Type=BYTES)
        assert (whole.offset, await stored(servers, whole.path)) == (3, b"abc")

    async def test_a_body_of_another_type_is_415_and_creates_nothing(self, tus: TusClient):
        made = await tus.send("POST", BASE, b"abc", Upload_Length="6", Upload_Metadata=PDF, Content_Type="text/plain")
        assert made.status == 415
        assert b'"items":[]' in (await tus.send("GET")).body

    async def test_too_many_unfinished_ones_are_429(self, tus: TusClient):
        for _ in range(20):
            await tus.begin(3)
        refused = await tus.create(3)
        assert (refused.status, refused.code) == (429, "TOO_MANY_UPLOADS")


class TestChecksum:
    @pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
    async def test_right_bytes_are_stored(self, tus: TusClient, algorithm: str):
        path = await tus.begin(6)
        assert (await tus.patch(path, 0, b"abc", Upload_Checksum=sum_of(algorithm, b"abc"))).offset == 3
        assert (await tus.patch(path, 3, b"def", Upload_Checksum=sum_of(algorithm, b"def"))).offset == 6

    @on_both_profiles
    async def test_wrong_bytes_are_460_and_none_is_stored(self, tus: TusClient, servers: Servers):
        path = await tus.begin(len(CONTENT))
        await tus.patch(path, 0, CONTENT[:1000])
        refused = await tus.patch(path, 1000, b"?" * 8_000_000, Upload_Checksum=sum_of("sha1", b"x"))
        assert (refused.status, refused.code) == (460, "CHECKSUM_FAILED")
        assert await tus.offset(path) == 1000
        right = CONTENT[1000:]
        assert (await tus.patch(path, 1000, right, Upload_Checksum=sum_of("sha1", right))).offset == len(CONTENT)
        assert await stored(servers, path) == CONTENT

    async def test_bytes_before_a_cut_are_not_stored(self, tus: TusClient):
        path = await tus.begin(3_000_000)
        async with tus.sending(path, 0, 3_000_000, CONTENT[:2_000_000], Upload_Checksum=sum_of("sha1", b"x")):
            await wait_until(lambda: _is_locked(tus, path), seconds=10, every_seconds=0.02)
        await wait_until(lambda: _is_free(tus, path), seconds=10, every_seconds=0.05)
        assert await tus.offset(path) == 0

    @pytest.mark.parametrize(
        ("given", "code"),
        [("md5 abc", "CHECKSUM_UNSUPPORTED"), ("sha1", "BAD_TUS_HEADER"), ("sha1 !!", "BAD_TUS_HEADER"),
         ("sha1 YWJj", "BAD_TUS_HEADER"), ("", "CHECKSUM_UNSUPPORTED")],
    )  # fmt: skip
    async def test_a_bad_header_is_400(self, tus: TusClient, given: str, code: str):
        path = await tus.begin(3)
        refused = await tus.patch(path, 0, b"abc", Upload_Checksum=given)
        assert (refused.status, refused.code) == (400, code)
        assert await tus.offset(path) == 0


async def _is_locked(tus: TusClient, path: str) -> bool:
    return (await tus.patch(path, await tus.offset(path), b"")).status == 423


async def _is_free(tus: TusClient, path: str) -> bool:
    return not await _is_locked(tus, path)


class TestTermination:
    @on_both_profiles
    async def test_a_deleted_upload_is_gone_with_its_bytes(self, tus: TusClient, servers: Servers):
        for size in (6, len(CONTENT)):
            path = await tus.begin(size)
            await tus.patch(path, 0, CONTENT[: size - 1])
            assert (await tus.send("DELETE", path)).status == 204
            for answer in (await tus.head(path), await tus.patch(path, 0, b"x"), await tus.send("DELETE", path)):
                assert answer.status == 404
        whole = await tus.begin(3)
        await tus.patch(whole, 0, b"abc")
        assert (await tus.send("DELETE", whole)).status == 204
        staged = await deps_of(servers).staging.list_staged(older_than=_tomorrow(servers))
        assert staged == []
        assert (await servers.runtimes[0].blobs.list("uploads/")).blobs == ()


def _tomorrow(servers: Servers) -> datetime:
    return servers.runtimes[0].clock.now() + timedelta(days=1)


class TestExpiration:
    async def test_unfinished_uploads_say_when(self, tus: TusClient, servers: Servers):
        made = await tus.create(6)
        patched = await tus.patch(made.path, 0, b"abc")
        found = await tus.head(made.path)
        for answer in (made, patched, found):
            left = parsedate_to_datetime(answer.headers["upload-expires"]) - servers.runtimes[0].clock.now()
            assert timedelta(hours=5, minutes=59) < left <= timedelta(hours=6)
        whole = await tus.patch(made.path, 3, b"def")
        assert "upload-expires" not in whole.headers

    @on_both_profiles
    async def test_an_expired_upload_is_410_for_a_day_and_then_404(self, tus: TusClient, servers: Servers):
        paths = [await tus.begin(6), await tus.begin(3)]
        await tus.patch(paths[0], 0, b"abc")
        await tus.patch(paths[1], 0, b"abc")
        kept = await tus.begin(3)
        await _age(servers, paths, "expires_at")
        await worker.clean(deps_of(servers))
        for path in paths:
            assert (await tus.head(path)).status == 410
            assert (await tus.patch(path, 0, b"x")).status == 410
        assert await tus.offset(kept) == 0
        await _age(servers, paths, "updated_at")
        await worker.clean(deps_of(servers))
        assert [(await tus.head(path)).status for path in paths] == [404, 404]


async def _age(servers: Servers, paths: list[str], column: str) -> None:
    """Let two days pass for these uploads."""
    ids = [path.rpartition("/")[2] for path in paths]
    async with servers.runtimes[0].db.tx() as tx:
        past = tx.now - timedelta(days=2)
        await tx.conn.execute(update(upload_table).where(upload_table.c.id.in_(ids)).values({column: past}))


class TestConcatenation:
    async def part(self, tus: TusClient, body: bytes) -> str:
        made = await tus.create(len(body), Upload_Concat="partial", Upload_Metadata=None)
        assert made.status == 201, made.body
        if body:
            await tus.patch(made.path, 0, body)
        return made.path

    @on_both_profiles
    async def test_partial_uploads_become_one_in_their_order(self, tus: TusClient, servers: Servers):
        cuts = [0, 6_000_000, 6_000_010, len(CONTENT)]
        parts = [await self.part(tus, CONTENT[start:stop]) for start, stop in pairwise(cuts)]
        urls = [parts[0], f"{tus.url}{parts[1]}", parts[2]]
        made = await tus.create(None, Upload_Concat=f"final;{' '.join(urls)}")
        assert made.status == 201, made.body
        waiting = await tus.head(made.path)
        assert waiting.headers["upload-concat"].startswith(f"final;{BASE}/upl_")
        assert "upload-offset" not in waiting.headers
        await servers.work()
        done = await tus.head(made.path)
        assert (done.offset, done.headers["upload-length"]) == (len(CONTENT), str(len(CONTENT)))
        assert await stored(servers, made.path) == CONTENT

    async def test_head_of_a_partial_upload_says_so(self, tus: TusClient):
        assert (await tus.head(await self.part(tus, b"abc"))).headers["upload-concat"] == "partial"

    async def test_bytes_cannot_be_sent_to_a_final_upload(self, tus: TusClient):
        made = await tus.create(None, Upload_Concat=f"final;{await self.part(tus, b'abc')}")
        refused = await tus.patch(made.path, 0, b"abc")
        assert (refused.status, refused.code) == (403, "FINAL_UPLOAD_READ_ONLY")

    async def test_only_complete_partial_uploads_are_joined(self, tus: TusClient):
        ordinary, open_part = await tus.begin(3), (await tus.create(3, Upload_Concat="partial")).path
        for urls, status in (
            (ordinary, 400), (open_part, 409), (f"{BASE}/upl_{'x' * 21}", 404), ("", 400), ("/else/where", 400),
        ):  # fmt: skip
            assert (await tus.create(None, Upload_Concat=f"final;{urls}")).status == status
        for bad in ("final", "partial;a", "whole", ""):
            assert (await tus.create(3, Upload_Concat=bad)).status == 400
        part = await self.part(tus, b"abc")
        assert (await tus.create(3, Upload_Concat=f"final;{part}")).status == 400, "a final upload has no length"


class TestTenants:
    async def test_another_users_upload_is_404_in_every_verb(
        self, tus: TusClient, new_user: Callable[[int], Awaitable[TusClient]]
    ):
        ann, ben = await new_user(71), await new_user(72)
        path = await ann.begin(6)
        part = (await ann.create(3, Upload_Concat="partial")).path
        await ann.patch(part, 0, b"abc")
        answers: list[Answer] = [
            await ben.head(path),
            await ben.patch(path, 0, b"abc"),
            await ben.send("DELETE", path),
            await ben.send("GET", path),
            await ben.create(None, Upload_Concat=f"final;{part}"),
        ]
        assert [answer.status for answer in answers] == [404] * 5
        assert await ann.offset(path) == 0
        assert b"upl_" not in (await ben.send("GET")).body
        assert path.rpartition("/")[2].encode() in (await ann.send("GET")).body


class TestEvents:
    async def test_progress_and_completion_are_published(self, tus: TusClient, servers: Servers):
        path = await tus.begin(6)
        await tus.patch(path, 0, b"abc")
        await tus.patch(path, 3, b"def")
        async with servers.runtimes[0].db.read() as tx:
            rows = (await tx.conn.execute(event.select().order_by(event.c.id))).all()
        kinds = [(row.kind, row.data["offset"]) for row in rows if row.topic.startswith("upload:")]
        assert kinds == [("upload_progress", 3), ("upload_completed", 6)]
