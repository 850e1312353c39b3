"""What every blob store does with one object, whatever holds the bytes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.blobs import (
    MAX_READ_BYTES,
    BadBlobKey,
    BadBlobRange,
    BlobExists,
    BlobNotFound,
    Blobs,
    BlobStat,
    BlobTooLarge,
)
from tests.conformance.objects import BAD_KEYS, GOOD_KEYS, MIB, broken_off, everything, in_pieces, shared_store


class TestKeys:
    async def test_an_unusual_key_works_everywhere(self, blobs):
        for key in GOOD_KEYS:
            await blobs.put(key, b"x")
            await blobs.copy(key, "copy")
            assert await blobs.get(key) == await blobs.get("copy") == b"x"
            assert set(await everything(blobs, "")) == {key, "copy"}
            assert await everything(blobs, key) == [key]
            await blobs.delete(key)
            assert await everything(blobs, "") == ["copy"]
            await blobs.delete("copy")

    async def test_a_bad_key_is_refused_everywhere_with_its_reason(self, blobs):
        await blobs.put("a", b"x")
        for key, reason in BAD_KEYS.items():
            for attempt in (
                blobs.put(key, b"x"),
                blobs.create(key, b"x"),
                blobs.get(key),
                blobs.stat(key),
                blobs.read_range(key, 0, 1),
                anext(blobs.stream(key)),
                blobs.copy(key, "b"),
                blobs.copy("a", key),
                blobs.delete(key),
                blobs.list("", after=key),
                blobs.link(key, seconds=60),
                blobs.upload_link(key, seconds=60),
            ):
                with pytest.raises(BadBlobKey, match=reason) as refused:
                    await attempt
                assert len(str(refused.value)) < 2000
            assert await everything(blobs, "") == ["a"], key

    async def test_a_prefix_that_no_key_can_have_is_refused(self, blobs):
        for prefix in ("/", "a//", "../", "a/../b", "a\\", "a\n", "e\u0301", "x" * 513):
            with pytest.raises(BadBlobKey):
                await blobs.list(prefix)


class TestPut:
    @pytest.mark.parametrize("content", [b"", b"x", b"short", bytes(range(256)) * 8193], ids=["0", "1", "5", "2 MiB"])
    async def test_an_object_comes_back_as_it_was_put(self, blobs, content):
        receipt = await blobs.put("a/b", content)
        assert (receipt.key, receipt.size_bytes) == ("a/b", len(content))
        assert receipt.sha256 == hashlib.sha256(content).hexdigest()
        assert await blobs.get("a/b") == content

    @pytest.mark.parametrize("piece_bytes", [1000, MIB - 1, MIB, 3 * MIB], ids=str)
    @pytest.mark.parametrize("blocks", [0, 1, 70_000], ids=["nothing", "small", "large"])
    async def test_a_stream_is_stored_whole_whatever_its_chunks(self, blobs, blocks, piece_bytes):
        content = hashlib.sha256(b"seed").digest() * blocks
        receipt = await blobs.put("a", in_pieces(content, piece_bytes))
        assert (receipt.size_bytes, receipt.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert await blobs.get("a") == content

    @pytest.mark.parametrize("verb", ["put", "create"])
    @pytest.mark.parametrize("size", [3, 9 * MIB], ids=["small", "large"])
    async def test_a_content_type_changes_nothing_of_the_object(self, blobs, verb, size):
        receipt = await getattr(blobs, verb)("a", b"x" * size, content_type="application/json")
        assert receipt.size_bytes == (await blobs.stat("a")).size_bytes == size

    async def test_a_put_replaces_the_whole_object(self, blobs):
        await blobs.put("a", b"long and old")
        await blobs.put("a", b"new")
        assert await blobs.get("a") == b"new"

    @pytest.mark.parametrize("before_bytes", [4, 3 * MIB], ids=["early", "late"])
    async def test_a_stream_that_breaks_off_stores_nothing(self, blobs, before_bytes):
        await blobs.put("old", b"old")
        for key in ("old", "new"):
            with pytest.raises(ConnectionResetError, match=r"^the client left$"):
                await blobs.put(key, broken_off(ConnectionResetError("the client left"), b"x" * before_bytes))
        assert await blobs.get("old") == b"old"
        assert await everything(blobs, "") == ["old"]

    async def test_a_cancelled_put_leaves_the_old_object(self, blobs):
        await blobs.put("a", b"old")
        waiting = asyncio.Event()

        async def stalls() -> AsyncIterator[bytes]:
            yield b"x" * (2 * MIB)
            waiting.set()
            await asyncio.Event().wait()

        put = asyncio.create_task(blobs.put("a", stalls()))
        await waiting.wait()
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        assert await blobs.get("a") == b"old"

    async def test_readers_see_one_version_or_the_other_while_an_object_is_replaced(self, blobs):
        versions = [bytes([letter]) * (MIB + letter) for letter in b"abcd"]
        await blobs.put("a", versions[0])
        _, *seen = await asyncio.gather(
            asyncio.gather(*(blobs.put("a", version) for version in versions)), *(blobs.get("a") for _ in range(20))
        )
        assert set(seen) <= set(versions)


class TestCreate:
    async def test_a_free_key_is_taken(self, blobs):
        receipt = await blobs.create("a/b", in_pieces(b"first", 2))
        assert (receipt.size_bytes, receipt.sha256) == (5, hashlib.sha256(b"first").hexdigest())
        assert await blobs.get("a/b") == b"first"

    async def test_a_taken_key_is_refused_and_keeps_its_object(self, blobs):
        await blobs.put("a", b"first")
        with pytest.raises(BlobExists, match="a"):
            await blobs.create("a", b"second")
        assert await blobs.get("a") == b"first"

    async def test_exactly_one_of_many_racers_wins(self, blobs):
        for race in range(5):
            tries = [blobs.create(f"race/{race}", b"%d" % racer) for racer in range(16)]
            results = await asyncio.gather(*tries, return_exceptions=True)
            winners = [racer for racer, result in enumerate(results) if not isinstance(result, BlobExists)]
            assert len(winners) == 1
            assert await blobs.get(f"race/{race}") == b"%d" % winners[0]

    async def test_a_deleted_key_is_free_again(self, blobs):
        await blobs.create("a", b"first")
        await blobs.delete("a")
        await blobs.create("a", b"second")
        assert await blobs.get("a") == b"second"


class TestRead:
    async def test_what_was_never_stored_is_not_found(self, blobs):
        await blobs.put("a/b", b"x")
        for key in ("a", "a/b/c", "z/z"):
            for attempt in (
                blobs.get(key),
                blobs.stat(key),
                blobs.read_range(key, 0, 1),
                anext(blobs.stream(key)),
                blobs.copy(key, "target"),
            ):
                with pytest.raises(BlobNotFound, match=key):
                    await attempt

    async def test_get_refuses_more_than_it_was_told_to_hold(self, blobs):
        await blobs.put("a", b"12345")
        assert await blobs.get("a", max_bytes=5) == b"12345"
        with pytest.raises(BlobTooLarge, match=r"5 bytes of a .* limit is 4"):
            await blobs.get("a", max_bytes=4)

    async def test_stat_tells_size_and_time(self, blobs):
        await blobs.put("a", b"12345")
        await blobs.put("b", b"")
        first, second = await blobs.stat("a"), await blobs.stat("b")
        assert (first.key, first.size_bytes, second.size_bytes) == ("a", 5, 0)
        assert first.modified_at.utcoffset() == timedelta(0)
        assert first.modified_at <= second.modified_at

    @shared_store
    @given(content=st.binary(max_size=20), start=st.integers(0, 25), length=st.integers(0, 25))
    async def test_a_range_is_a_slice(self, blobs, content, start, length):
        await blobs.put("a", content)
        if start > len(content):
            with pytest.raises(BadBlobRange, match=f"has {len(content)} bytes"):
                await blobs.read_range("a", start, start + length)
            with pytest.raises(BadBlobRange):
                await anext(blobs.stream("a", start=start, stop=start + length))
        else:
            assert await blobs.read_range("a", start, start + length) == content[start : start + length]
            streamed = [chunk async for chunk in blobs.stream("a", start=start, stop=start + length)]
            assert b"".join(streamed) == content[start : start + length]

    @pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (-2, -1)])
    async def test_a_range_that_makes_no_sense_is_refused(self, blobs, start, stop):
        await blobs.put("a", b"12345")
        with pytest.raises(BadBlobRange):
            await blobs.read_range("a", start, stop)
        with pytest.raises(BadBlobRange):
            await anext(blobs.stream("a", start=start, stop=stop))

    async def test_a_range_larger_than_memory_should_hold_is_refused(self, blobs):
        await blobs.put("a", b"12345")
        assert await blobs.read_range("a", 0, MAX_READ_BYTES) == b"12345"
        with pytest.raises(BlobTooLarge):
            await blobs.read_range("a", 0, MAX_READ_BYTES + 1)

    async def test_a_large_object_streams_in_chunks_and_resumes_anywhere(self, blobs):
        content = hashlib.sha256(b"seed").digest() * 100_000
        await blobs.put("a", content)
        chunks = [chunk async for chunk in blobs.stream("a")]
        assert b"".join(chunks) == content
        assert all(0 < len(chunk) <= 2 * MIB for chunk in chunks)
        rest = [chunk async for chunk in blobs.stream("a", start=len(content) - 5)]
        assert b"".join(rest) == content[-5:]

    async def test_nothing_is_left_to_stream_at_the_end(self, blobs):
        await blobs.put("a", b"12345")
        await blobs.put("empty", b"")
        assert [chunk async for chunk in blobs.stream("a", start=5)] == []
        assert [chunk async for chunk in blobs.stream("empty")] == []

    async def test_a_stream_can_be_left_early(self, blobs):
        await blobs.put("a", b"x" * (3 * MIB))
        async with aclosing(blobs.stream("a")) as chunks:
            assert (await anext(chunks)).startswith(b"x")
        await blobs.delete("a")
        with pytest.raises(BlobNotFound):
            await blobs.stat("a")


class TestVersions:
    async def test_an_object_that_is_left_alone_is_the_same(self, blobs: Blobs):
        await blobs.put("a", b"first")
        first = await blobs.stat("a")
        await blobs.put("b", b"other")
        assert first.is_same_version(await blobs.stat("a"))

    async def test_an_object_that_is_replaced_at_once_by_one_of_its_size_is_another(self, blobs: Blobs):
        await blobs.put("a", b"first")
        first = await blobs.stat("a")
        await blobs.put("a", b"later")
        assert not first.is_same_version(await blobs.stat("a"))

    def test_times_in_whole_seconds_do_not_tell(self):
        at = datetime(2026, 11, 18, 7, 0, tzinfo=UTC)
        for moment, is_known in ((at, False), (at.replace(microsecond=1), True)):
            seen = BlobStat(key="a", size_bytes=1, modified_at=moment)
            assert seen.is_same_version(seen) is is_known


class TestCopy:
    async def test_a_copy_lives_on_its_own(self, blobs):
        await blobs.put("a", b"one")
        copied = await blobs.copy("a", "b/c")
        assert (copied.key, copied.size_bytes) == ("b/c", 3)
        await blobs.put("a", b"two!")
        assert await blobs.get("b/c") == b"one"
        await blobs.delete("a")
        assert await blobs.get("b/c") == b"one"

    async def test_a_copy_replaces_the_target(self, blobs):
        await blobs.put("a", b"one")
        await blobs.put("b", b"two!")
        await blobs.copy("a", "b")
        await blobs.copy("a", "b")
        assert await blobs.get("b") == b"one"

    async def test_a_copy_onto_itself_changes_nothing(self, blobs):
        await blobs.put("a", b"one")
        await blobs.copy("a", "a")
        assert await blobs.get("a") == b"one"
        assert await everything(blobs, "") == ["a"]

    async def test_a_copy_of_nothing_leaves_the_target(self, blobs):
        await blobs.put("b", b"two")
        with pytest.raises(BlobNotFound):
            await blobs.copy("a", "b")
        assert await blobs.get("b") == b"two"


class TestDelete:
    async def test_a_deleted_object_is_gone_and_may_be_deleted_again(self, blobs):
        await blobs.put("a/b", b"x")
        await blobs.put("a/c", b"y")
        await blobs.delete("a/b")
        await blobs.delete("a/b")
        await blobs.delete("never/was")
        with pytest.raises(BlobNotFound):
            await blobs.get("a/b")
        assert await everything(blobs, "") == ["a/c"]

    async def test_puts_and_deletes_in_one_place_do_not_hurt_each_other(self, blobs):
        async def come_and_go(name: int) -> None:
            for _ in range(15):
                await blobs.put(f"deep/down/{name % 4}/{name}", b"x")
                await blobs.delete(f"deep/down/{name % 4}/{name}")
            await blobs.put(f"deep/down/{name % 4}/{name}", b"stays")

        await asyncio.gather(*(come_and_go(name) for name in range(8)))
        assert len(await everything(blobs, "deep/")) == 8
