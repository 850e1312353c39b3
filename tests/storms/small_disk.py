"""A disk that can be filled and freed again, so that processes meet the operating system's own refusal."""

import asyncio
import resource
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psutil

PIECE = bytes(64 * 1024)


class SmallDisk:
    """A file system in memory. Where the machine forbids to mount one, full means that the processes that write to the
    folder may not write files at all: the operating system refuses both in the same calls."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self._is_mounted = is_mounted

    @classmethod
    @contextmanager
    def mounted(cls, folder: Path, *, megabytes: int) -> Iterator["SmallDisk"]:
        """A small disk at this folder, as long as the block runs."""
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "penstock-test", str(folder)]
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        try:
            yield cls(folder, is_mounted=is_mounted)
        finally:
            if is_mounted:
                subprocess.run(["umount", "--lazy", str(folder)], check=True)

    @asynccontextmanager
    async def full(self, pid: int) -> AsyncIterator[None]:
        """The disk is full for the length of the block, for this process and its children."""
        if not self._is_mounted:
            with _no_files([pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]):
                yield
            return
        filling = asyncio.create_task(self._keep_full())
        try:
            yield
        finally:
            filling.cancel()
            await asyncio.wait([filling])
            (self.folder / "ballast").unlink()

    async def _keep_full(self) -> None:
        """What a process frees is taken at once."""
        while True:
            self._fill()
            await asyncio.sleep(0.05)

    def _fill(self) -> None:
        with suppress(OSError), (self.folder / "ballast").open("ab", buffering=0) as ballast:
            while ballast.write(PIECE):
                pass


@contextmanager
def _no_files(pids: Sequence[int]) -> Iterator[None]:
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    try:
        for pid, (_, hard) in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
