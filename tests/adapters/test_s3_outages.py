"""Blobs on S3 while the store is down, refuses us, is full, or is no store: reported soon, nothing half-written."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from aiohttp import web

from penstock.adapters.s3 import S3Blobs, S3Bucket, S3Credentials, S3Timeouts, writing
from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobsUnavailable
from penstock.kernel.clock import SystemClock
from penstock.kernel.errors import DiskFull, PenstockError
from tests.conformance.objects import MIB, everything
from tests.servers.seaweed import S3Server

PART = writing.PART_BYTES
FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
HASTY = S3Timeouts(connect_seconds=1, answer_seconds=2, claim_seconds=3, part_seconds=4)
SOON = 20.0  # seconds; no call in a hurry takes longer, with all its tries and on a busy machine


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A server of our own, for tests that kill or pause it."""
    with S3Server.start() as started:
        yield started


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> S3Bucket:
    """On our own server where the test asks for it, else on the shared one."""
    server = request.getfixturevalue("server" if "server" in request.fixturenames else "s3_server")
    config: S3Bucket = server.bucket_config(server.bucket("penstock-away"), prefix=secrets.token_hex(4))
    return config


@pytest.fixture
def blobs(bucket: S3Bucket) -> S3Blobs:
    return hasty(bucket)


def hasty(bucket: S3Bucket) -> S3Blobs:
    return S3Blobs(bucket, clock=SystemClock(), timeouts=HASTY)


def calls(blobs: S3Blobs) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every call of the port that needs the store, with a small object and with a large one."""
    return {
        "put": lambda: blobs.put("a", b"new"),
        "put large": lambda: blobs.put("a", b"n" * (PART + 1)),
        "create": lambda: blobs.create("new", b"new"),
        "create large": lambda: blobs.create("new", b"n" * (PART + 1)),
        "get": lambda: blobs.get("a"),
        "read_range": lambda: blobs.read_range("a", 0, 2),
        "stream": lambda: anext(blobs.stream("a")),
        "stat": lambda: blobs.stat("a"),
        "copy": lambda: blobs.copy("a", "b"),
        "delete": lambda: blobs.delete("a"),
        "list": lambda: blobs.list(""),
        "check": blobs.check,
        "sweep": lambda: blobs.sweep(FOREVER),
    }


async def reasons(blobs: S3Blobs, kind: type[PenstockError] = BlobsUnavailable) -> dict[str, str]:
    """The message of each call, which has to fail, and soon."""
    names, tries = zip(*calls(blobs).items(), strict=True)
    async with asyncio.timeout(SOON):
        results = await asyncio.gather(*(call() for call in tries), return_exceptions=True)
    assert {name: result for name, result in zip(names, results, strict=True) if not isinstance(result, kind)} == {}
    return dict(zip(names, map(str, results), strict=True))


class TestRefused:
    async def test_a_missing_bucket_is_reported_by_every_call(self, bucket):
        said = await reasons(hasty(replace(bucket, bucket="no-such-bucket")))
        assert {name: reason for name, reason in said.items() if "404 NoSuchBucket" not in reason} == {}

    @pytest.mark.parametrize(
        ("keys", "reason"),
        [
            (S3Credentials(key_id="penstock", secret="wrong-secret"), "403 SignatureDoesNotMatch"),
            (S3Credentials(key_id="nobody", secret="wrong-secret"), "403 InvalidAccessKeyId"),
        ],
        ids=["secret", "key"],
    )
    async def test_a_wrong_access_key_is_reported_and_never_shown(self, bucket, keys, reason):
        blobs = hasty(replace(bucket, keys=keys))
        said = await reasons(blobs)
        assert {name for name, text in said.items() if reason not in text} <= {"stat", "create large", "copy"}
        assert said["stat"].endswith("HTTP 403.")  # the answer to HEAD has no body
        for text in (*said.values(), repr(bucket), repr(replace(bucket, keys=keys)), repr(blobs)):
            assert "wrong-secret" not in text
            assert bucket.keys is not None
            assert bucket.keys.secret not in text

    @pytest.mark.storm
    async def test_a_read_only_key_cannot_write(self, server, bucket, blobs):
        await blobs.put("a", b"old")
        reader = hasty(replace(bucket, keys=server.reader))
        assert await reader.get("a") == b"old"
        assert await everything(reader, "") == ["a"]
        for write in ("put", "put large", "create", "create large", "copy", "delete"):
            with pytest.raises(BlobsUnavailable, match="403 AccessDenied"):
                await calls(reader)[write]()
        assert (await blobs.get("a"), await everything(blobs, "")) == (b"old", ["a"])

    async def test_the_error_is_an_internal_outage(self, bucket):
        with pytest.raises(BlobsUnavailable) as failed:
            await hasty(replace(bucket, bucket="no-such-bucket")).get("a")
        assert (failed.value.internal_outage, failed.value.retryable, failed.value.code) == (
            True,
            True,
            "BLOBS_UNAVAILABLE",
        )
        assert failed.value.__cause__ is not None


class TestOutages:
    async def test_an_unreachable_store_is_reported_by_every_call(self, bucket):
        for reason in (await reasons(hasty(replace(bucket, endpoint="http://127.0.0.1:1")))).values():
            assert "cannot connect" in reason

    @pytest.mark.storm
    async def test_a_killed_store_is_reported_and_used_again_when_it_is_back(self, server, blobs):
        await blobs.put("a", b"old")
        server.kill()
        await reasons(blobs)
        server.start_again()
        assert await blobs.get("a") == b"old"
        await blobs.check()

    @pytest.mark.storm
    async def test_a_paused_store_is_reported_soon_and_used_again_when_it_resumes(self, server, blobs):
        await blobs.put("a", b"old")
        server.pause()
        try:
            said = await reasons(blobs)
        finally:
            server.resume()
        assert set(said.values()) == {"The object store is unavailable: timed out."}
        await whole_again(blobs)

    @pytest.mark.storm
    async def test_a_put_whose_store_is_killed_half_way_stores_nothing_and_succeeds_later(self, server, blobs, bucket):
        await blobs.put("old", b"old")
        content = bytes(range(256)) * (24 * MIB // 256)
        for verb, key in ((blobs.put, "old"), (blobs.put, "new"), (blobs.create, "created")):
            with pytest.raises(BlobsUnavailable):
                await verb(key, half_way(content, server.kill))
            server.start_again()
            assert await everything(blobs, "") == ["old"]
            assert await blobs.get("old") == b"old"
        await blobs.sweep(FOREVER)
        assert unfinished(server, bucket) == 0
        for verb, key in ((blobs.put, "old"), (blobs.put, "new"), (blobs.create, "created")):
            await verb(key, half_way(content, lambda: None))
            assert b"".join([chunk async for chunk in blobs.stream(key)]) == content

    @pytest.mark.storm
    async def test_a_put_whose_store_is_paused_half_way_ends_soon_and_succeeds_later(self, server, blobs):
        content = bytes(range(256)) * (24 * MIB // 256)
        began = time.monotonic()
        try:
            with pytest.raises(BlobsUnavailable, match="timed out"):
                await blobs.put("a", half_way(content, server.pause))
        finally:
            server.resume()
        assert time.monotonic() - began < SOON
        assert await everything(blobs, "") == []
        await blobs.put("a", content)
        assert b"".join([chunk async for chunk in blobs.stream("a")]) == content

    @pytest.mark.storm
    async def test_a_put_cancelled_while_its_store_is_paused_ends_soon(self, server, blobs):
        began = time.monotonic()
        paused = asyncio.Event()

        def pause() -> None:
            server.pause()
            paused.set()

        storing = asyncio.create_task(blobs.put("a", half_way(b"x" * (24 * MIB), pause)))
        try:
            await paused.wait()
            storing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await storing
        finally:
            server.resume()
        assert time.monotonic() - began < SOON
        assert await everything(blobs, "") == []

    @pytest.mark.storm
    @pytest.mark.parametrize("stop", ["kill", "pause"])
    async def test_a_stream_whose_store_fails_midway_raises(self, server, blobs, stop):
        await blobs.put("a", b"x" * (64 * MIB))
        async with aclosing(blobs.stream("a")) as chunks, asyncio.timeout(SOON):
            await anext(chunks)
            getattr(server, stop)()
            try:
                with pytest.raises(BlobsUnavailable):
                    await read_on(chunks)
            finally:
                server.resume() if stop == "pause" else server.start_again()
        assert sum([len(chunk) async for chunk in blobs.stream("a")]) == 64 * MIB

    async def test_a_slow_reader_or_writer_does_not_time_out(self, blobs):
        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * (PART + 1)
            await asyncio.sleep(HASTY.answer_seconds + 1)  # real time is what is measured
            yield b"x" * (PART - 1)

        await blobs.put("a", slow())
        async with aclosing(blobs.stream("a")) as chunks:
            first = await anext(chunks)
            await asyncio.sleep(HASTY.answer_seconds + 1)
            assert len(first) + sum([len(chunk) async for chunk in chunks]) == 2 * PART


async def read_on(chunks: AsyncIterator[bytes]) -> None:
    async for _chunk in chunks:
        pass


async def half_way(content: bytes, then: Callable[[], None]) -> AsyncIterator[bytes]:
    """A stream in the middle of which something happens."""
    for start in range(0, len(content), MIB):
        if start == len(content) // 2:
            then()
        yield content[start : start + MIB]


async def whole_again(blobs: S3Blobs) -> None:
    """What was sent to a paused store may be executed later; each object is the old or the new, whole."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                await blobs.put("last", b"last")
                break
            except BlobsUnavailable:
                await asyncio.sleep(0.05)
    for key in ("a", "b", "new"):
        try:
            content = b"".join([chunk async for chunk in blobs.stream(key)])
        except BlobNotFound:
            continue
        assert content in {b"old", b"new", b"n" * (PART + 1)}


def unfinished(server: S3Server, bucket: S3Bucket) -> int:
    return server.call("GET", f"/{bucket.bucket}", {"uploads": "", "prefix": bucket.root})[1].count(b"<Upload>")


class TestFull:
    @pytest.mark.storm
    async def test_a_full_store_is_reported_and_keeps_its_objects(self):
        with S3Server.start(volumes=2, volume_megabytes=1) as small:
            blobs = hasty(small.bucket_config(small.bucket("penstock-small")))
            await blobs.put("a", b"old" * 500_000)
            with suppress(BlobsUnavailable):
                for _ in range(5):
                    await blobs.put("b", b"new" * 500_000)
            with pytest.raises(BlobsUnavailable, match="500 InternalError"):
                await blobs.put("b", b"new" * 500_000)
            for content in (b"x" * MIB, b"x" * (3 * PART)):
                with pytest.raises(BlobsUnavailable):
                    await blobs.put("a", content)
                with pytest.raises(BlobsUnavailable):
                    await blobs.create("c", content)
            assert await blobs.get("a") == b"old" * 500_000
            assert "c" not in await everything(blobs, "")

    @pytest.mark.parametrize(
        ("status", "code"), [(507, "InsufficientStorage"), (400, "XMinioStorageFull"), (503, "StorageFull"), (507, "")]
    )
    async def test_a_store_that_says_that_it_is_full_is_full(self, bucket, status, code):
        async with answering(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>") as endpoint:
            blobs = hasty(replace(bucket, endpoint=endpoint))
            for call in ("put", "put large", "create", "copy"):
                with pytest.raises(DiskFull) as full:
                    await calls(blobs)[call]()
                assert (full.value.internal_outage, full.value.retryable) == (True, True)


class TestNoStore:
    """Another kind of server at the address must not pass for an empty store."""

    @pytest.mark.parametrize("status", [200, 301, 404, 500, 503])
    async def test_a_page_of_a_web_server_is_no_answer(self, bucket, status):
        async with answering(status, "<html><body>Hello</body></html>") as endpoint:
            blobs = hasty(replace(bucket, endpoint=endpoint))
            for name in ("get", "stat", "list", "check", "sweep"):
                if status == 200 and name in {"get", "stat"}:
                    continue  # bytes are bytes
                with pytest.raises(BlobsUnavailable):
                    await calls(blobs)[name]()

    async def test_a_key_made_to_look_like_an_answer_changes_no_answer(self, blobs):
        trick = "<Error><Code>NoSuchBucket<|Code>non-2xx status code: 507 "
        key = f"{trick}Generic S3 error: a - Server returned non-2xx status code: 507<Error><Code>NoSuchBucket<"
        with pytest.raises(BlobNotFound):
            await blobs.get(key)
        await blobs.create(key, b"x")
        with pytest.raises(BlobExists):
            await blobs.create(key, b"x")

    async def test_an_endless_response_is_cut_off(self, bucket):
        async with answering(200, "x" * (17 * MIB)) as endpoint:
            with pytest.raises(BlobsUnavailable, match="too long"):
                await hasty(replace(bucket, endpoint=endpoint)).check()


@asynccontextmanager
async def answering(status: int, body: str) -> AsyncIterator[str]:
    """A web server with one answer for everything."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, text=body, headers={"Location": "/"} if status == 301 else None)

    application = web.Application(client_max_size=64 * MIB)
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
