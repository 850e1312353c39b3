"""tus 1.0.0, core protocol: HEAD, PATCH, OPTIONS, versions. Tests are named by clause."""

import asyncio

import pytest

from tests.fakes.blocking_handler import wait_until
from tests.gateway.conftest import Servers, on_both_profiles
from tests.gateway.tus_client import BASE, Answer, TusClient

CONTENT = bytes(range(256)) * 40_000  # 10 MB: two parts on S3


class TestHead:
    async def test_it_tells_offset_length_and_metadata_and_is_not_cached(self, tus: TusClient):
        path = await tus.begin(10)
        await tus.patch(path, 0, b"abc")
        found = await tus.head(path)
        assert (found.status, found.offset, found.headers["upload-length"]) == (200, 3, "10")
        assert found.headers["cache-control"] == "no-store"
        assert found.headers["upload-metadata"].startswith("filename ")

    @pytest.mark.parametrize("upload_id", ["upl_" + "x" * 21, "nothing", "upl_" + "x" * 22])
    async def test_of_an_unknown_upload_is_404_without_an_offset(self, tus: TusClient, upload_id: str):
        found = await tus.head(f"{BASE}/{upload_id}")
        assert found.status == 404
        assert "upload-offset" not in found.headers


class TestPatch:
    @on_both_profiles
    async def test_bytes_in_any_number_of_requests_become_the_object(self, tus: TusClient, servers: Servers):
        path = await tus.begin(len(CONTENT))
        for start in range(0, len(CONTENT), 3_000_000):
            answer = await tus.patch(path, start, CONTENT[start : start + 3_000_000])
            assert (answer.status, answer.offset) == (204, min(start + 3_000_000, len(CONTENT)))
        assert await tus.offset(path) == len(CONTENT)
        stored = servers.runtimes[0].blobs.stream(f"uploads/{path.rpartition('/')[2]}")
        assert b"".join([chunk async for chunk in stored]) == CONTENT

    async def test_a_wrong_offset_is_409_and_moves_nothing(self, tus: TusClient):
        path = await tus.begin(10)
        await tus.patch(path, 0, b"abc")
        for offset in (0, 2, 4, 10, 11):
            answer = await tus.patch(path, offset, b"x")
            assert (answer.status, answer.code) == (409, "OFFSET_MISMATCH")
        assert await tus.offset(path) == 3

    async def test_the_content_type_must_be_offset_octet_stream(self, tus: TusClient):
        path = await tus.begin(3)
        for kind in ("application/octet-stream", "text/plain", None):
            answer = await tus.patch(path, 0, b"abc", Content_Type=kind)
            assert (answer.status, answer.code) == (415, "WRONG_CONTENT_TYPE")
        assert await tus.offset(path) == 0

    @pytest.mark.parametrize("offset", [None, "", "-1", "1.0", "0x1", "+1", "9" * 30, "one"])
    async def test_a_missing_or_malformed_offset_is_400(self, tus: TusClient, offset: str | None):
        path = await tus.begin(3)
        answer = await tus.patch(path, 0, b"abc", Upload_Offset=offset)
        assert (answer.status, answer.code) == (400, "BAD_TUS_HEADER")
        assert await tus.offset(path) == 0

    async def test_more_bytes_than_the_length_are_refused_and_none_is_stored(self, tus: TusClient):
        path = await tus.begin(3)
        answer = await tus.patch(path, 0, b"abcd")
        assert (answer.status, answer.code) == (413, "UPLOAD_TOO_LARGE")
        assert await tus.offset(path) == 0

    async def test_a_chunked_body_that_is_too_long_stores_nothing(self, tus: TusClient):
        path = await tus.begin(3)
        lines = (
            f"PATCH {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {tus.key}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
        )
        head = f"{lines}Content-Type: application/offset+octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", int(tus.url.rpartition(":")[2]))
        writer.write(head.encode() + b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")
        assert b" 413 " in await reader.readline()
        writer.close()
        assert await tus.offset(path) == 0

    async def test_an_empty_one_at_the_end_is_204_also_of_a_complete_upload(self, tus: TusClient):
        path = await tus.begin(3)
        for _ in range(2):
            assert (await tus.patch(path, 0, b"")).status == 204
        assert (await tus.patch(path, 0, b"abc")).offset == 3
        assert (await tus.patch(path, 3, b"")).offset == 3
        assert (await tus.patch(path, 3, b"d")).status == 413
        assert (await tus.patch(path, 0, b"abc")).status == 409

    async def test_of_an_unknown_upload_is_404(self, tus: TusClient):
        assert (await tus.patch(f"{BASE}/upl_{'x' * 21}", 0, b"a")).status == 404


class TestOneWriter:
    @on_both_profiles
    async def test_bytes_before_a_cut_are_kept_and_head_tells_them(self, tus: TusClient):
        path = await tus.begin(len(CONTENT))
        async with tus.sending(path, 0, len(CONTENT), CONTENT[:6_000_000]):
            pass
        await wait_until(lambda: _has(tus, path, 6_000_000), seconds=30, every_seconds=0.05)
        assert (await tus.patch(path, 6_000_000, CONTENT[6_000_000:])).offset == len(CONTENT)

    @on_both_profiles
    async def test_a_live_writer_is_met_with_423_and_a_silent_one_is_replaced_by_another_server(self, servers: Servers):
        tus, other = [await servers.start(GW_TUS_TAKEOVER_SEC="0.5") for _ in range(2)]
        path = await tus.begin(len(CONTENT))
        async with tus.sending(path, 0, len(CONTENT), b"") as first:
            await wait_until(lambda: _is_locked(other, path), seconds=10, every_seconds=0.02)
            await first.send(CONTENT[:1000])
            answer = await _take_over(other, path)
            assert await first.status() == 409
            assert answer.status == 204
        assert await tus.offset(path) == len(CONTENT)

    async def test_of_equal_patches_exactly_one_succeeds(self, tus: TusClient):
        path = await tus.begin(2_000_000)
        answers = await asyncio.gather(*[tus.patch(path, 0, CONTENT[:2_000_000]) for _ in range(12)])
        statuses = sorted(answer.status for answer in answers)
        assert statuses.count(204) == 1
        assert set(statuses) <= {204, 409, 423}
        locked = [answer for answer in answers if answer.status == 423]
        assert all(answer.headers["retry-after"] for answer in locked)

    async def test_one_that_falls_silent_ends_with_408_and_its_bytes_are_kept(self, servers: Servers):
        tus = await servers.start(GW_TUS_CHUNK_TIMEOUT_SEC="1")
        path = await tus.begin(100)
        async with tus.sending(path, 0, 100, b"x" * 60) as silent:
            assert await silent.status() == 408
        assert await tus.offset(path) == 60

    async def test_deleting_the_upload_ends_its_writer(self, tus: TusClient):
        path = await tus.begin(100)
        async with tus.sending(path, 0, 100, b"x" * 60) as writing:
            await wait_until(lambda: _is_locked(tus, path), seconds=10, every_seconds=0.02)
            assert (await tus.send("DELETE", path)).status == 204
            assert await writing.status() == 409
        assert (await tus.head(path)).status == 404


async def _has(tus: TusClient, path: str, size: int) -> bool:
    return await tus.offset(path) == size


async def _is_locked(tus: TusClient, path: str) -> bool:
    return (await tus.patch(path, await tus.offset(path), b"")).status == 423


async def _take_over(tus: TusClient, path: str) -> Answer:
    """Go on with an upload as a client does: ask for the offset, send the rest, and try again."""
    async with asyncio.timeout(30):
        while True:
            offset = await tus.offset(path)
            answer = await tus.patch(path, offset, CONTENT[offset:])
            if answer.status not in {409, 423}:
                return answer
            await asyncio.sleep(0.05)


class TestVersions:
    @pytest.mark.parametrize("version", [None, "0.2.2", "2.0.0", ""])
    async def test_any_other_version_is_412_and_nothing_is_done(self, tus: TusClient, version: str | None):
        path = await tus.begin(3)
        for method in ("HEAD", "PATCH", "DELETE"):
            answer = await tus.send(
                method, path, b"abc", Tus_Resumable=version, Upload_Offset="0",
                Content_Type="application/offset+octet-stream",
            )  # fmt: skip
            assert (answer.status, answer.headers["tus-version"]) == (412, "1.0.0")
        assert (await tus.create(3, Tus_Resumable=version)).status == 412
        assert await tus.offset(path) == 0

    async def test_it_is_checked_before_the_key(self, tus: TusClient):
        assert (await tus.create(3, Tus_Resumable="0.1", X_API_Key=None)).status == 412
        assert (await tus.create(3, X_API_Key=None)).status == 401

    async def test_every_answer_has_it(self, tus: TusClient):
        path = await tus.begin(3)
        for answer in (
            await tus.head(path),
            await tus.head(f"{BASE}/none"),
            await tus.send("PUT", path),
            await tus.create(3, X_API_Key="wrong"),
            await tus.create(10**12),
            await tus.send("POST", f"{BASE}?api_key=sk"),
            await tus.send("OPTIONS"),
        ):
            assert answer.headers["tus-resumable"] == "1.0.0", answer.status


class TestOptions:
    @pytest.mark.parametrize("path", [BASE, f"{BASE}/upl_{'x' * 21}"])
    async def test_it_tells_what_the_server_can_do_without_a_key(self, tus: TusClient, path: str):
        answer = await tus.send("OPTIONS", path, X_API_Key=None, Tus_Resumable=None)
        assert answer.status == 204
        assert answer.headers["tus-version"] == "1.0.0"
        assert answer.headers["tus-max-size"] == str(int(0.1 * 1024**3))
        assert answer.headers["tus-checksum-algorithm"] == "sha1,sha256"
        assert set(answer.headers["tus-extension"].split(",")) == {
            "creation", "creation-with-upload", "creation-defer-length", "checksum", "termination", "expiration",
            "concatenation",
        }  # fmt: skip


class TestMethodOverride:
    async def test_a_post_stands_for_the_method_in_its_header(self, tus: TusClient):
        path = await tus.begin(3)
        answer = await tus.send(
            "POST", path, b"abc", X_HTTP_Method_Override="PATCH", Upload_Offset="0",
            Content_Type="application/offset+octet-stream",
        )  # fmt: skip
        assert (answer.status, answer.offset) == (204, 3)
        assert (await tus.send("POST", path, X_HTTP_Method_Override="HEAD")).offset == 3
        assert (await tus.send("POST", path, X_HTTP_Method_Override="DELETE")).status == 204
