"""Blobs on S3, beyond the suite in tests/conformance: multipart uploads, concurrent creates, foreign keys."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.adapters.s3 import S3Blobs, S3Bucket, writing
from penstock.adapters.s3.writing import ObjectTooLarge
from penstock.kernel.blobs import BlobExists, BlobNotFound, Blobs, BlobsUnavailable
from penstock.kernel.clock import SystemClock
from tests.conformance.objects import MIB, broken_off, everything, in_pieces
from tests.servers.seaweed import AnyS3

PART = writing.PART_BYTES
FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


def opened(bucket: S3Bucket) -> S3Blobs:
    return S3Blobs(bucket, clock=SystemClock())


@pytest.fixture
def blobs(s3_bucket: S3Bucket) -> S3Blobs:
    return opened(s3_bucket)


class Bucket:
    """What is in the bucket under this test's prefix, as the store itself reports."""

    def __init__(self, server: AnyS3, bucket: S3Bucket) -> None:
        self._server = server
        self._place = bucket

    def put(self, key: str, content: bytes = b"foreign") -> None:
        assert self._server.call("PUT", f"/{self._place.bucket}/{self._place.root}{key}", body=content)[0] == 200

    def begin_upload(self, key: str) -> None:
        path = f"/{self._place.bucket}/{self._place.root}{key}"
        assert self._server.call("POST", path, {"uploads": ""})[0] == 200

    def content_type_of(self, key: str) -> str | None:
        answer = self._server.head(f"/{self._place.bucket}/{self._place.root}{key}")
        return answer.get("content-type")

    def stored(self) -> list[str]:
        return self._told({"list-type": "2", "prefix": self._place.root})

    def unfinished(self) -> list[str]:
        return self._told({"uploads": "", "prefix": self._place.root})

    def _told(self, query: dict[str, str]) -> list[str]:
        status, answer = self._server.call("GET", f"/{self._place.bucket}", query)
        assert status == 200
        return [key.removeprefix(self._place.root) for key in re.findall(r"<Key>(.*?)</Key>", answer.decode())]


@pytest.fixture
def bucket(s3_server: AnyS3, s3_bucket: S3Bucket) -> Bucket:
    return Bucket(s3_server, s3_bucket)


class TestContentTypes:
    @pytest.mark.parametrize("size", [3, PART + 1], ids=["small", "large"])
    @pytest.mark.parametrize("verb", ["put", "create"])
    async def test_they_are_kept_with_an_object_and_its_copies(self, blobs, bucket, verb, size):
        await getattr(blobs, verb)("a", b"x" * size, content_type="text/markdown; charset=utf-8")
        await blobs.copy("a", "b")
        for key in ("a", "b"):
            assert bucket.content_type_of(key) == "text/markdown; charset=utf-8"

    async def test_a_new_object_has_its_own(self, blobs, bucket):
        await blobs.put("a", b"{}", content_type="application/json")
        await blobs.put("a", b"x")
        assert bucket.content_type_of("a") != "application/json"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * MIB


class TestLargeObjects:
    @pytest.mark.parametrize("size", [PART, PART + 1, 2 * PART + 5], ids=str)
    @pytest.mark.parametrize("verb", ["put", "create"])
    async def test_an_object_of_any_number_of_parts_comes_back_whole(self, blobs, bucket, verb, size):
        content = (hashlib.sha256(b"seed").digest() * (size // 32 + 1))[:size]
        for key, chunks in (("bytes", content), ("stream", in_pieces(content, 3 * MIB - 1)), ("one", one(content))):
            receipt = await getattr(blobs, verb)(key, chunks)
            assert (receipt.size_bytes, receipt.sha256) == (size, hashlib.sha256(content).hexdigest())
            streamed = [chunk async for chunk in blobs.stream(key)]
            assert hashlib.sha256(b"".join(streamed)).hexdigest() == receipt.sha256
            assert (await blobs.stat(key)).size_bytes == size
        assert sorted(bucket.stored()) == ["bytes", "one", "stream"]
        assert bucket.unfinished() == []

    @pytest.mark.parametrize("verb", ["put", "create"])
    @pytest.mark.parametrize("error", [ConnectionResetError("left"), FileNotFoundError("gone"), TimeoutError()])
    async def test_a_stream_that_breaks_off_late_leaves_nothing_at_the_store(self, blobs, bucket, verb, error):
        with pytest.raises(type(error)) as raised:
            await getattr(blobs, verb)("a", broken_off(error, b"x" * (4 * PART)))
        assert raised.value is error
        assert (bucket.stored(), bucket.unfinished()) == ([], [])

    @pytest.mark.parametrize("verb", ["put", "create"])
    async def test_a_stalled_upload_can_be_cancelled_and_leaves_nothing_at_the_store(self, blobs, bucket, verb):
        stalled = asyncio.Event()

        async def stalls() -> AsyncIterator[bytes]:
            yield b"x" * (2 * PART)
            stalled.set()
            await asyncio.Event().wait()

        storing = asyncio.create_task(getattr(blobs, verb)("a", stalls()))
        await stalled.wait()
        storing.cancel()
        await asyncio.sleep(0)
        storing.cancel()  # an impatient caller
        with pytest.raises(asyncio.CancelledError):
            await storing
        assert (bucket.stored(), bucket.unfinished()) == ([], [])

    @pytest.mark.parametrize("verb", ["put", "create"])
    async def test_a_put_cancelled_at_any_moment_is_whole_or_not_there(self, blobs, bucket, verb):
        content = bytes(range(256)) * (10 * MIB // 256)
        for hops in range(0, 60, 8):
            storing = asyncio.create_task(getattr(blobs, verb)(f"a{hops}", content))
            for _ in range(hops):
                await asyncio.sleep(0.001)
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
        for key in bucket.stored():
            assert await blobs.get(key) == content
        assert bucket.unfinished() == []

    async def test_more_than_s3_copies_in_one_request_is_refused_while_it_comes_in(self, blobs, bucket, monkeypatch):
        monkeypatch.setattr(writing, "MAX_OBJECT_BYTES", 2 * PART)
        for chunks in (b"x" * (2 * PART + 1), endless()):
            with pytest.raises(ObjectTooLarge, match=f"larger than {2 * PART} bytes"):
                await blobs.put("a", chunks)
        await blobs.put("b", b"x" * (2 * PART))
        assert (bucket.stored(), bucket.unfinished()) == (["b"], [])

    async def test_a_large_stream_takes_little_memory(self, blobs):
        held: list[int] = []

        async def much() -> AsyncIterator[bytes]:
            for number in range(200):
                held.append(resident_bytes())
                yield bytes([number]) * MIB

        receipt = await blobs.put("large", much())
        held += [resident_bytes() async for _chunk in blobs.stream("large")]
        assert receipt.size_bytes == 200 * MIB
        assert max(held) - held[0] < 6 * PART + 30 * MIB  # three parts under way, one filled, and what copies them


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def one(content: bytes) -> AsyncIterator[bytes]:
    yield content


class TestConcurrentCreates:
    """Each store object has its own locks, as each process has: here the store decides."""

    async def race(self, bucket: S3Bucket, racers: list[bytes]) -> list[object]:
        tries = [opened(bucket).create("prize", content) for content in racers]
        return list(await asyncio.gather(*tries, return_exceptions=True))

    @pytest.mark.parametrize("size", [1, PART + 1], ids=["small", "large"])
    async def test_one_of_many_processes_takes_a_key(self, blobs, bucket, s3_bucket, size):
        racers = [bytes([letter]) * size for letter in b"abcd"]
        results = await self.race(s3_bucket, racers)
        (winner,) = [number for number, result in enumerate(results) if not isinstance(result, BlobExists)]
        assert b"".join([chunk async for chunk in blobs.stream("prize")]) == racers[winner]
        assert (bucket.stored(), bucket.unfinished()) == (["prize"], [])

    async def test_a_small_and_a_large_create_race(self, blobs, bucket, s3_bucket):
        results = await self.race(s3_bucket, [b"a", b"b" * (PART + 1), b"c"])
        assert [isinstance(result, BlobExists) for result in results].count(False) == 1
        assert bucket.stored() == ["prize"]

    async def test_a_large_object_for_a_taken_key_is_refused_before_it_is_sent(self, blobs, bucket):
        await blobs.put("a", b"first")
        sent = 0

        async def counted() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(1000):
                sent += 1
                yield b"x" * MIB

        with pytest.raises(BlobExists):
            await blobs.create("a", counted())
        assert sent <= PART // MIB + 1
        assert (await blobs.get("a"), bucket.stored()) == (b"first", ["a"])


class TestSweep:
    async def test_what_a_crash_left_is_swept_when_it_is_old(self, blobs, bucket):
        await blobs.put("a", b"x")
        bucket.begin_upload("large one")
        bucket.put("incoming~/4f0c")
        now = datetime.now(UTC)
        assert await blobs.sweep(now - timedelta(hours=1)) == 0
        assert (bucket.unfinished(), "incoming~/4f0c" in bucket.stored()) == (["large one"], True)
        assert await blobs.sweep(FOREVER) == 2
        assert (bucket.unfinished(), bucket.stored()) == ([], ["a"])

    async def test_what_lies_outside_our_prefix_is_not_ours_to_sweep(self, blobs, s3_server, s3_bucket):
        neighbour = Bucket(s3_server, replace(s3_bucket, prefix=f"{s3_bucket.prefix}-neighbour"))
        neighbour.begin_upload("theirs")
        assert await blobs.sweep(FOREVER) == 0
        assert neighbour.unfinished() == ["theirs"]
        await opened(replace(s3_bucket, prefix=f"{s3_bucket.prefix}-neighbour")).sweep(FOREVER)

    async def test_a_swept_upload_fails_with_a_name_and_stores_nothing(self, blobs, bucket):
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * (2 * PART)
            begun.set()
            await go_on.wait()
            yield b"x" * (2 * PART)

        storing = asyncio.create_task(blobs.put("a", slow()))
        await begun.wait()
        while not bucket.unfinished():  # noqa: ASYNC110  (obstore begins the upload when it likes)
            await asyncio.sleep(0.01)
        assert await blobs.sweep(FOREVER) == 1
        go_on.set()
        with pytest.raises(BlobsUnavailable, match="404 NoSuchUpload"):
            await storing
        assert (bucket.stored(), bucket.unfinished()) == ([], [])


class TestNeighbours:
    async def test_a_prefix_is_a_store_of_its_own(self, s3_server, s3_bucket):
        stores: list[Blobs] = [
            opened(replace(s3_bucket, prefix=f"{s3_bucket.prefix}{end}")) for end in ("", "-b", "/sub")
        ]
        for store, content in zip(stores, (b"one", b"two", b"three"), strict=True):
            await store.put("a", content)
        assert [await store.get("a") for store in stores] == [b"one", b"two", b"three"]
        assert [await everything(store, "") for store in stores] == [["a", "sub/a"], ["a"], ["a"]]
        await stores[1].delete("a")
        assert await everything(stores[0], "") == ["a", "sub/a"]

    async def test_a_whole_bucket_is_a_store_too(self, s3_server):
        store = opened(s3_server.bucket_config(s3_server.bucket("penstock-whole")))
        await store.put("a/b", b"x")
        assert await everything(store, "") == ["a/b"]
        await store.check()
        await store.delete("a/b")
        assert await everything(store, "") == []

    async def test_foreign_keys_are_not_listed_and_hide_nothing(self, blobs, bucket):
        for key in ("a/", "b\nc", "c~", "incoming~/x", " d", "e /f", "z/"):
            bucket.put(key)
        for key in ("a/b/c", "d", "e/f", "z/z"):
            await blobs.put(key, b"mine")
        assert await everything(blobs, "", limit=2) == ["a/b/c", "d", "e/f", "z/z"]
        assert await everything(blobs, "a") == ["a/b/c"]
        for folder in ("a", "z", "e"):
            with pytest.raises(BlobNotFound):
                await blobs.get(folder)

    async def test_a_delete_of_a_folder_deletes_nothing(self, blobs):
        await blobs.put("a/b", b"x")
        await blobs.delete("a")
        assert await everything(blobs, "") == ["a/b"]


class TestReading:
    async def test_a_stream_is_one_version_or_says_that_it_cannot_be(self, blobs):
        old, new = b"o" * (20 * MIB), b"n" * (20 * MIB)
        await blobs.put("a", old)
        read = b""
        try:
            async with aclosing(blobs.stream("a")) as chunks:
                read = await anext(chunks)
                await blobs.put("a", new)
                async for chunk in chunks:
                    read += chunk
        except BlobsUnavailable:
            assert read == old[: len(read)]
        else:
            assert read == old
        assert b"".join([chunk async for chunk in blobs.stream("a")]) == new

    async def test_a_link_is_there(self, blobs, s3_bucket):
        url = await blobs.link("a b", seconds=60)
        assert url.startswith(f"{s3_bucket.endpoint}/{s3_bucket.bucket}/{s3_bucket.root}a%20b?")
        assert s3_bucket.keys.secret not in url
        assert "X-Amz-Expires=60" in await blobs.upload_link("a", seconds=60)


class TestMachinesOwnKeys:
    async def test_without_keys_of_our_own_those_of_the_machine_are_used(self, s3_server, s3_bucket, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
        store = opened(replace(s3_bucket, keys=None))
        await store.check()
        stored = ["a", "a-b", "a.b", "a/b", "a/b/c", "a0", "a/0", "b/1", "é/😀"]
        for key in stored:
            await store.put(key, key.encode())
        assert await everything(store, "", limit=2) == sorted(stored)
        for prefix in ("a", "a/", "a/b", "a0", "a/0", "b/", "é/😀", "a "):
            assert await everything(store, prefix) == [key for key in sorted(stored) if key.startswith(prefix)]
        await store.create("large", in_pieces(b"x" * (PART + 1), MIB))
        assert await store.sweep(FOREVER) == 0

    async def test_a_foreign_key_that_the_machines_role_cannot_list_is_told(
        self, s3_server, s3_bucket, bucket, monkeypatch
    ):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
        bucket.put("b\nc")
        with pytest.raises(BlobsUnavailable, match="cannot list"):
            await opened(replace(s3_bucket, keys=None)).list("")
