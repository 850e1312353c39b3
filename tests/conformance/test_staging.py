"""What every staging area does with an object that is written in pieces, whatever holds the bytes."""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs, DiskStaging
from penstock.adapters.s3 import S3Blobs, S3Bucket, S3Staging
from penstock.kernel.blobs import BadBlobKey, Blobs
from penstock.kernel.clock import SystemClock
from penstock.kernel.staging import StagedObject, StagedObjectNotFound, StagingArea
from tests.conformance.objects import MIB, everything

KEY = "uploads/upl_1"
CONTENT = hashlib.sha256(b"seed").digest() * (12 * MIB // 32)  # two parts and a tail on S3
SIZES = [0, 1, 100_000, 5 * MIB, 5 * MIB + 1, 10 * MIB, 12 * MIB]  # of one part, at its edges, of several


@pytest.fixture(params=["disk", "s3"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[StagingArea, Blobs]]:
    """Opens the staging area and its blob store, as several processes would."""
    if request.param == "disk":
        return lambda: (DiskStaging(tmp_path / "blobs"), DiskBlobs(tmp_path / "blobs"))
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")

    def open_s3() -> tuple[StagingArea, Blobs]:
        blobs = S3Blobs(bucket, clock=SystemClock())
        return S3Staging(blobs, bucket, clock=SystemClock(), scratch=tmp_path), blobs

    return open_s3


@pytest.fixture
def staging(stores: Callable[[], tuple[StagingArea, Blobs]]) -> StagingArea:
    return stores()[0]


@pytest.fixture
def store(stores: Callable[[], tuple[StagingArea, Blobs]]) -> Blobs:
    return stores()[1]


async def begun(staging: StagingArea, key: str = KEY, *, size: int = len(CONTENT)) -> StagedObject:
    return await staging.begin(key, max_bytes=size, content_type="application/pdf")


async def add(staging: StagingArea, staged: StagedObject, start: int, stop: int, *, seal: bool = False) -> None:
    """Append the bytes [start, stop) of the content, in chunks of a MiB, by a writer of its own."""
    async with staging.append(staged, offset=start) as writer:
        for at in range(start, stop, MIB):
            await writer.write(CONTENT[at : min(at + MIB, stop)])
        await (writer.seal() if seal else writer.save())
        assert seal or writer.stored_bytes == stop


async def whole(store: Blobs, key: str = KEY) -> bytes:
    return b"".join([chunk async for chunk in store.stream(key)])


class TestAppendAndSeal:
    @pytest.mark.parametrize("size", SIZES)
    async def test_one_writer_makes_the_object(self, staging: StagingArea, store: Blobs, size: int):
        staged = await begun(staging, size=size)
        await add(staging, staged, 0, size, seal=True)
        assert await whole(store) == CONTENT[:size]
        assert await staging.stored_bytes(staged) == size

    @pytest.mark.parametrize(
        "cuts", [(0, 1, 5 * MIB, 12 * MIB), (0, 3 * MIB, 7 * MIB, 10 * MIB, 12 * MIB - 1, 12 * MIB)]
    )
    async def test_writers_of_several_processes_go_on_where_the_last_one_stopped(
        self, stores: Callable[[], tuple[StagingArea, Blobs]], store: Blobs, cuts: tuple[int, ...]
    ):
        staged = await begun(stores()[0])
        for start, stop in pairwise(cuts):
            await add(stores()[0], staged, start, stop)
            assert await stores()[0].stored_bytes(staged) == await stores()[0].stored_bytes(staged, saved=stop) == stop
        await stores()[0].seal(staged, size_bytes=len(CONTENT))
        assert await whole(store) == CONTENT
        assert await everything(store, "") == [KEY]

    async def test_nothing_is_visible_before_it_is_sealed(self, staging: StagingArea, store: Blobs):
        await add(staging, await begun(staging), 0, 6 * MIB)
        assert await everything(store, "") == []

    @pytest.mark.parametrize("size", SIZES)
    async def test_sealing_twice_is_harmless(self, staging: StagingArea, store: Blobs, size: int):
        staged = await begun(staging, size=size)
        await add(staging, staged, 0, size)
        await staging.seal(staged, size_bytes=size)
        await staging.seal(staged, size_bytes=size)
        assert await whole(store) == CONTENT[:size]

    async def test_a_key_that_the_sweep_would_reach_is_refused(self, staging: StagingArea):
        for key in ("users/1/raw/a", "uploads", "uploads/../a"):
            with pytest.raises(BadBlobKey):
                await begun(staging, key)

    async def test_the_object_that_a_sealed_one_replaces_is_there_until_then(self, staging: StagingArea, store: Blobs):
        await store.put(KEY, b"before")
        staged = await begun(staging)
        await add(staging, staged, 0, len(CONTENT) - 1)
        assert await whole(store) == b"before"
        await add(staging, staged, len(CONTENT) - 1, len(CONTENT), seal=True)
        assert await whole(store) == CONTENT


class TestAfterACrash:
    @pytest.mark.parametrize("written", [1, 5 * MIB, 8 * MIB])
    async def test_the_stored_size_is_true_and_the_next_writer_goes_on(
        self, staging: StagingArea, store: Blobs, written: int
    ):
        """The writer ends without saving, as a killed process does."""
        staged = await begun(staging)
        await add(staging, staged, 0, 2 * MIB)
        async with staging.append(staged, offset=2 * MIB) as writer:
            await writer.write(CONTENT[2 * MIB : 2 * MIB + written])
            stored_by_writer = writer.stored_bytes
        stored = await staging.stored_bytes(staged)
        assert 2 * MIB <= stored_by_writer <= stored <= 2 * MIB + written
        await add(staging, staged, stored, len(CONTENT), seal=True)
        assert await whole(store) == CONTENT

    async def test_a_writer_that_is_cancelled_leaves_no_more_than_is_told(self, staging: StagingArea, store: Blobs):
        staged, began = await begun(staging), asyncio.Event()

        async def write_forever() -> None:
            async with staging.append(staged, offset=0) as writer:
                for at in range(0, len(CONTENT), MIB):
                    await writer.write(CONTENT[at : at + MIB])
                    began.set()
                await asyncio.Event().wait()

        writing = asyncio.create_task(write_forever())
        await began.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await add(staging, staged, await staging.stored_bytes(staged), len(CONTENT), seal=True)
        assert await whole(store) == CONTENT


class TestHeldBytes:
    @pytest.mark.parametrize(("kept", "end"), [(0, 7 * MIB), (2 * MIB, 4 * MIB), (2 * MIB, 11 * MIB)])
    async def test_wrong_ones_are_never_stored(self, staging: StagingArea, store: Blobs, kept: int, end: int):
        staged = await begun(staging)
        await add(staging, staged, 0, kept)
        async with staging.append(staged, offset=kept, held=True) as writer:
            for _ in range(kept, end, MIB):
                await writer.write(b"?" * MIB)
            assert writer.stored_bytes == await staging.stored_bytes(staged) == kept
        assert await staging.stored_bytes(staged) == kept
        await add(staging, staged, kept, len(CONTENT), seal=True)
        assert await whole(store) == CONTENT

    async def test_right_ones_are_stored_when_they_are_saved_or_sealed(self, staging: StagingArea, store: Blobs):
        staged = await begun(staging)
        for start, stop in pairwise((0, 4 * MIB, 11 * MIB)):
            async with staging.append(staged, offset=start, held=True) as writer:
                await writer.write(CONTENT[start:stop])
                await writer.save()
            assert await staging.stored_bytes(staged) == stop
        async with staging.append(staged, offset=11 * MIB, held=True) as writer:
            await writer.write(CONTENT[11 * MIB :])
            await writer.seal()
        assert await whole(store) == CONTENT


class TestDiscard:
    @pytest.mark.parametrize("size", [100, 6 * MIB])
    async def test_nothing_is_left_and_twice_is_harmless(self, staging: StagingArea, store: Blobs, size: int):
        staged = await begun(staging, size=size)
        await add(staging, staged, 0, size - 1)
        await staging.discard(staged)
        await staging.discard(staged)
        assert await staging.list_staged(older_than=datetime.now(UTC) + timedelta(days=1)) == []
        assert await everything(store, "") == []

    async def test_a_sealed_object_stays(self, staging: StagingArea, store: Blobs):
        staged = await begun(staging)
        await add(staging, staged, 0, len(CONTENT), seal=True)
        await staging.discard(staged)
        assert await whole(store) == CONTENT

    async def test_there_is_nothing_to_append_to(self, staging: StagingArea):
        staged = await begun(staging)
        await add(staging, staged, 0, 6 * MIB)
        await staging.discard(staged)
        with pytest.raises(StagedObjectNotFound):
            await staging.seal(staged, size_bytes=6 * MIB)
        with pytest.raises(StagedObjectNotFound):
            await staging.stored_bytes(staged)


class TestLeftovers:
    async def test_a_sweep_of_the_store_leaves_a_staged_object_alone(self, staging: StagingArea, store: Blobs):
        staged = await begun(staging)
        await add(staging, staged, 0, 8 * MIB)
        await store.sweep(older_than=datetime.now(UTC) + timedelta(days=1))  # type: ignore[attr-defined]  # of both stores
        await add(staging, staged, 8 * MIB, len(CONTENT), seal=True)
        assert await whole(store) == CONTENT

    @pytest.mark.parametrize("size", [100, 6 * MIB])
    async def test_old_ones_are_listed_and_can_be_discarded(self, staging: StagingArea, size: int):
        staged = await begun(staging, size=size)
        await add(staging, staged, 0, size - 1)
        assert await staging.list_staged(older_than=datetime.now(UTC) - timedelta(hours=1)) == []
        [found] = await staging.list_staged(older_than=datetime.now(UTC) + timedelta(hours=1))
        assert found.key == KEY
        await staging.discard(found)
        assert await staging.list_staged(older_than=datetime.now(UTC) + timedelta(hours=1)) == []


class TestJoin:
    @pytest.mark.parametrize(
        "sizes", [(0,), (3, 4), (MIB, MIB, MIB), (6 * MIB, 6 * MIB), (1, 6 * MIB, 2, 5 * MIB, 10), (MIB,) * 9 + (3,)]
    )
    async def test_objects_become_one_in_their_order(self, staging: StagingArea, store: Blobs, sizes: tuple[int, ...]):
        start, sources = 0, []
        for number, size in enumerate(sizes):
            key = f"uploads/part-{number}"
            await store.put(key, CONTENT[start : start + size])
            sources.append(await store.stat(key))
            start += size
        await staging.join(KEY, sources, content_type="application/pdf")
        assert await whole(store) == CONTENT[:start]
