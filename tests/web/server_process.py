"""`server_main.py` as a process of its own."""

import asyncio
import itertools
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.journeys.command import free_port
from tests.servers.children import start_child
from tests.web.sockets import request, send_raw

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60
STOP_SECONDS = 30
MARKS = itertools.count(1)


class ServerProcess:
    """A running server and its log file."""

    def __init__(self, folder: Path, *, drain_seconds: float = 0) -> None:
        self.port = free_port()
        self.log_file = folder / "log.txt"
        arguments = [str(self.port), str(folder / "data"), str(drain_seconds)]
        with self.log_file.open("wb") as out:
            command = [sys.executable, "-m", "tests.web.server_main", *arguments]
            self.child: subprocess.Popen[bytes] = start_child(command, stdout=out, cwd=ROOT)

    @property
    def memory_bytes(self) -> int:
        """Its resident memory."""
        size: int = psutil.Process(self.child.pid).memory_info().rss
        return size

    async def is_alive(self) -> bool:
        """Whether it responds to /livez."""
        try:
            response = await send_raw(self.port, request("GET /livez HTTP/1.1", "Connection: close"))
        except OSError:
            return False
        return response.statuses == [200]

    async def wait_ready(self) -> None:
        """Wait until it serves."""
        async with asyncio.timeout(READY_SECONDS):
            while not await self.is_alive():  # noqa: ASYNC110  (it is another process)
                await asyncio.sleep(0.05)

    async def log(self) -> str:
        """The whole log, once the lines of past requests are written."""
        mark = f"/marked-{next(MARKS)}-here"
        await send_raw(self.port, request(f"GET {mark} HTTP/1.1", "Connection: close"))
        async with asyncio.timeout(10):
            while mark not in (text := self.log_file.read_text()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return text

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.child.send_signal(signal.SIGTERM)

    async def wait_exit(self) -> int:
        """Its exit status, once it has exited."""
        async with asyncio.timeout(STOP_SECONDS):
            while (status := self.child.poll()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return status
