"""Blobs in a local directory: links, full disks, crashes, concurrent processes, and cleanup."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobsUnavailable
from penstock.kernel.errors import DiskFull

MIB = 1024 * 1024
CHILD = """
import asyncio, resource, sys
from pathlib import Path
from penstock.adapters.disk import DiskBlobs
from penstock.kernel.blobs import BlobExists
from penstock.kernel.errors import DiskFull
blobs = DiskBlobs(Path(sys.argv[1]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root: Path) -> DiskBlobs:
    return DiskBlobs(root)


def child(root: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    """A separate process that runs `script` with `blobs` open on the same root."""
    command = [sys.executable, "-c", CHILD + script, str(root), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def drafts(root: Path) -> list[Path]:
    return list((root / "incoming").iterdir())


async def stored(blobs: DiskBlobs) -> list[str]:
    return [blob.key for blob in (await blobs.list("")).blobs]


class TestLinks:
    """A planted link must not lead a read or a write out of the directory."""

    @pytest.fixture
    async def outside(self, blobs: DiskBlobs, root: Path, tmp_path: Path) -> Path:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_bytes(b"secret")
        await blobs.put("real/object", b"x")
        (root / "objects/folder~").symlink_to(outside)
        (root / "objects/object").symlink_to(outside / "secret")
        (root / "objects/dangling").symlink_to(outside / "new")
        return outside

    @pytest.mark.parametrize("key", ["folder/secret", "object", "dangling"])
    async def test_nothing_is_read_through_a_link(self, blobs, outside, key):
        for attempt in (blobs.get(key), blobs.stat(key), anext(blobs.stream(key)), blobs.copy(key, "copied")):
            with pytest.raises(BlobNotFound):
                await attempt
        assert (await blobs.list("folder/")).blobs == ()
        assert await stored(blobs) == ["real/object"]

    @pytest.mark.parametrize("key", ["object", "dangling"])
    async def test_a_put_replaces_the_link_and_not_what_it_points_to(self, blobs, outside, key):
        await blobs.put(key, b"mine")
        assert await blobs.get(key) == b"mine"
        assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("secret", b"secret")]

    async def test_nothing_is_written_or_deleted_through_a_linked_folder(self, blobs, outside):
        for write in (blobs.put, blobs.create):
            with pytest.raises(BlobsUnavailable):
                await write("folder/new", b"mine")
        with pytest.raises(BlobsUnavailable):
            await blobs.copy("real/object", "folder/new")
        await blobs.delete("folder/secret")
        assert [path.name for path in outside.iterdir()] == ["secret"]

    async def test_a_delete_removes_the_link_only(self, blobs, outside):
        await blobs.delete("object")
        assert (outside / "secret").read_bytes() == b"secret"

    @pytest.mark.parametrize("name", ["incoming", "objects"])
    async def test_the_two_top_folders_must_not_be_links(self, blobs, root, tmp_path, name):
        root.mkdir()
        (root / name).symlink_to(tmp_path)
        with pytest.raises(BlobsUnavailable):
            await blobs.put("a", b"x")
        assert [path.name for path in tmp_path.iterdir()] == ["blobs"]

    async def test_the_root_may_be_a_link(self, root, tmp_path):
        root.mkdir()
        (tmp_path / "link").symlink_to(root)
        await DiskBlobs(tmp_path / "link").put("a", b"x")
        assert await DiskBlobs(root).get("a") == b"x"


class TestForeignFiles:
    async def test_a_pipe_is_no_object_and_blocks_nobody(self, blobs, root):
        await blobs.put("a", b"x")
        os.mkfifo(root / "objects/pipe")
        with pytest.raises(BlobNotFound):
            await blobs.get("pipe")
        assert await stored(blobs) == ["a"]

    async def test_files_that_no_key_can_name_are_not_listed(self, blobs, root):
        await blobs.put("a", b"x")
        for name in ("b~", " c", "e\u0301", os.fsdecode(b"\xff"), "new\nline"):
            (root / "objects" / name).write_bytes(b"foreign")
        for name in ("lost+found", "~", " d~"):
            (root / "objects" / name).mkdir()
            (root / "objects" / name / "file").write_bytes(b"foreign")
        assert await stored(blobs) == ["a"]

    async def test_a_store_that_cannot_work_says_why_and_keeps_the_cause(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(BlobsUnavailable, match="Not a directory") as failed:
            await DiskBlobs(tmp_path / "file").put("a", b"x")
        assert isinstance(failed.value.__cause__, OSError)
        assert failed.value.retryable


class TestFullDisk:
    # The limit on file sizes makes the operating system refuse the write half-way, as a full disk does.
    SCRIPT = """
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
async def chunks():
    for _ in range(40):
        yield b"n" * 100_000
for key in ("old", "new"):
    for write in (blobs.put, blobs.create):
        for content in (b"n" * 4_000_000, chunks()):
            try:
                asyncio.run(write(key, content))
            except DiskFull as error:
                print(error, error.retryable, error.__cause__.errno)
"""

    async def test_a_full_disk_is_named_and_leaves_everything_as_it_was(self, blobs, root):
        await blobs.put("old", b"o" * 2_000_000)
        with child(root, self.SCRIPT) as process:
            said, _ = process.communicate()
        assert process.returncode == 0
        expected = [f"There is no space left to write {key}. True {errno.EFBIG}" for key in ("old", "new")]
        assert said.splitlines() == [line for line in expected for _ in range(4)]
        assert await blobs.get("old") == b"o" * 2_000_000
        assert await stored(blobs) == ["old"]
        assert drafts(root) == []

    @pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
    async def test_a_disk_that_fills_up_at_the_last_moment_is_full_too(self, blobs, root, monkeypatch, full):
        await blobs.put("a", b"old")

        def no_space(file: int) -> None:
            raise OSError(full, os.strerror(full))

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", no_space)
            with pytest.raises(DiskFull, match="write a"):
                await blobs.put("a", b"new")
        assert await blobs.get("a") == b"old"
        assert drafts(root) == []


class TestCrash:
    MID_PUT = """
async def chunks():
    for number in range(1000):
        yield b"n" * 1_000_000
        if number == int(sys.argv[2]):
            print("now", flush=True)
            sys.stdin.read()
asyncio.run(blobs.put("a", chunks()))
"""
    PUT_FOR_EVER = """
async def main():
    while True:
        for letter in (b"a", b"b"):
            await blobs.put("a", letter * 3_000_000)
            print("put", flush=True)
asyncio.run(main())
"""

    @pytest.mark.parametrize("chunk", [0, 1, 7])
    async def test_a_put_killed_midway_leaves_the_old_object_and_a_temporary_file_that_is_swept(
        self, blobs, root, chunk
    ):
        await blobs.put("a", b"old")
        with child(root, self.MID_PUT, str(chunk)) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        assert await blobs.get("a") == b"old"
        assert await stored(blobs) == ["a"]
        left = drafts(root)
        assert await blobs.sweep(datetime(9999, 1, 1, tzinfo=UTC)) == len(left) == (1 if chunk else 0)
        assert drafts(root) == []

    @pytest.mark.parametrize("puts", range(1, 9))
    async def test_a_put_killed_at_any_moment_leaves_a_whole_object(self, blobs, root, puts):
        with child(root, self.PUT_FOR_EVER) as process:
            assert process.stdout is not None
            for _ in range(puts):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        content = await blobs.get("a")
        assert content in {b"a" * 3_000_000, b"b" * 3_000_000}

    async def test_the_sweep_spares_what_is_still_being_written(self, blobs, root):
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * MIB
            arrived.set()
            await go_on.wait()
            yield b"y"

        put = asyncio.create_task(blobs.put("a", slow()))
        await arrived.wait()
        (draft,) = drafts(root)
        touched = datetime.fromtimestamp(draft.stat().st_ctime, tz=UTC)
        assert await blobs.sweep(touched - timedelta(hours=1)) == 0
        go_on.set()
        await put
        assert (await blobs.stat("a")).size_bytes == MIB + 1

    async def test_there_is_nothing_to_sweep_before_the_first_put(self, blobs):
        assert await blobs.sweep(datetime(9999, 1, 1, tzinfo=UTC)) == 0


class TestConcurrentProcesses:
    SCRIPT = """
async def main():
    won = []
    for race in range(100):
        try:
            await blobs.create(f"race/{race}/prize", sys.argv[2].encode())
            won.append(str(race))
        except BlobExists:
            pass
    return won
print("ready", flush=True)
sys.stdin.readline()
print(" ".join(asyncio.run(main())))
"""

    async def test_of_many_processes_exactly_one_creates_each_object(self, blobs, root):
        rivals = [child(root, self.SCRIPT, str(number)) for number in range(4)]
        for rival in rivals:
            assert rival.stdout is not None
            rival.stdout.readline()
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write("go\n")
            rival.stdin.flush()
        won = {number: rival.communicate()[0].split() for number, rival in enumerate(rivals)}
        assert sorted(int(race) for races in won.values() for race in races) == list(range(100))
        for number, races in won.items():
            for race in races:
                assert await blobs.get(f"race/{race}/prize") == str(number).encode()
        assert drafts(root) == []


class TestCancelling:
    async def test_a_put_cancelled_while_its_thread_works_leaves_nothing_running_behind(self, blobs, root, monkeypatch):
        await blobs.put("a", b"old")
        loop, syncing, may_sync = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        real_fsync = os.fsync

        def slow_fsync(file: int) -> None:
            loop.call_soon_threadsafe(syncing.set)
            may_sync.wait(timeout=10)  # so that a failure of this test does not hang it
            real_fsync(file)

        monkeypatch.setattr(os, "fsync", slow_fsync)
        put = asyncio.create_task(blobs.put("a", b"new"))
        await syncing.wait()
        put.cancel()
        await asyncio.sleep(0)
        put.cancel()  # an impatient caller
        await asyncio.sleep(0)
        assert not put.done()
        may_sync.set()
        with pytest.raises(asyncio.CancelledError):
            await put
        assert await blobs.get("a") == b"old"
        assert drafts(root) == []

    async def test_no_file_stays_open(self, blobs):
        await blobs.put("a/b", b"x" * (3 * MIB))
        before = set(Path("/dev/fd").iterdir())
        for attempt in range(20):
            await blobs.list("a/", limit=1)
            async with aclosing(blobs.stream("a/b")) as chunks:
                await anext(chunks)
            with pytest.raises(BlobExists):
                await blobs.create("a/b", b"x")
            reading = asyncio.ensure_future(anext(blobs.stream("a/b")))
            writing = asyncio.create_task(blobs.put("c", b"x" * MIB))
            for _ in range(attempt % 4):
                await asyncio.sleep(0)
            reading.cancel()
            writing.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
        assert set(Path("/dev/fd").iterdir()) == before


class TestFileSystemUse:
    async def test_a_delete_takes_the_folders_it_leaves_empty(self, blobs, root):
        await blobs.put("job/1/page/1", b"x")
        await blobs.put("job/2", b"x")
        await blobs.delete("job/1/page/1")
        assert sorted(path.name for path in (root / "objects").rglob("*")) == ["2", "job~"]
        await blobs.delete("job/2")
        assert list((root / "objects").iterdir()) == []

    async def test_writing_leaves_no_temporary_file(self, blobs, root):
        await blobs.put("a", b"x")
        await blobs.create("b", b"x")
        with pytest.raises(BlobExists):
            await blobs.create("a", b"y")
        for _ in range(2):
            await blobs.copy("a", "c")
        assert drafts(root) == []

    async def test_a_copy_needs_no_space(self, blobs, root):
        await blobs.put("a", b"x")
        await blobs.copy("a", "b")
        assert (root / "objects/a").samefile(root / "objects/b")

    async def test_a_copy_moves_bytes_where_links_are_not_allowed(self, blobs, root, monkeypatch):
        def no_links(*names: str, **folders: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        content = bytes(range(256)) * 9000
        await blobs.put("a", content)
        monkeypatch.setattr(os, "link", no_links)
        assert (await blobs.copy("a", "b")).size_bytes == len(content)
        assert await blobs.get("b") == content
        with pytest.raises(BlobNotFound):
            await blobs.copy("missing", "b")
        assert drafts(root) == []

    async def test_a_stream_goes_on_with_the_version_it_began_with(self, blobs):
        await blobs.put("a", b"o" * (2 * MIB))
        async with aclosing(blobs.stream("a")) as chunks:
            read = await anext(chunks)
            await blobs.put("a", b"n")
            read += b"".join([chunk async for chunk in chunks])
        assert read == b"o" * (2 * MIB)

    async def test_a_page_reads_only_the_folders_on_its_way(self, blobs, monkeypatch):
        for key in ("a/1/x", "b/1/x", "b/2/x", "b/2/y", "b/3/x", "c/1/x"):
            await blobs.put(key, b"")
        reads = []
        real_scandir = os.scandir

        def counted(folder: int) -> object:
            reads.append(folder)
            return real_scandir(folder)

        monkeypatch.setattr(os, "scandir", counted)
        page = await blobs.list("b/", after="b/2/x", limit=1)
        assert [blob.key for blob in page.blobs] == ["b/2/y"]
        assert len(reads) == 3  # b/, b/2/, and b/3/ to see that more follows

    async def test_many_entries_that_hold_no_object_do_not_hide_the_one_behind_them(self, blobs, root):
        await blobs.put("many/z", b"")
        for number in range(2500):
            (root / "objects/many~" / f"{number}~").mkdir()
        assert await stored(blobs) == ["many/z"]

    async def test_bytes_and_names_are_safe_on_the_disk_before_a_put_returns(self, blobs, root, monkeypatch):
        synced = []
        real_fsync = os.fsync

        def noted(file: int) -> None:
            synced.append(Path(f"/dev/fd/{file}").resolve().relative_to(root).parts[:2])
            real_fsync(file)

        monkeypatch.setattr(os, "fsync", noted)
        await blobs.put("a/b", b"x")
        top, (bytes_in, _name), *folders = synced
        assert (top, bytes_in) == ((), "incoming")  # the new incoming/, then the draft
        assert folders == [(), ("objects",), ("objects", "a~")]  # each folder after something new came into it
