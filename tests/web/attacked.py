"""`served.py` as a process of its own, and what can be seen of it from outside."""

import asyncio
import itertools
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.journeys.command import free_port
from tests.servers.children import start_child
from tests.web.sockets import request, talk

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60
STOP_SECONDS = 30
MARKS = itertools.count(1)


class ServedHouse:
    """The process."""

    def __init__(self, folder: Path, *, drain_seconds: float = 0) -> None:
        self.port = free_port()
        self.log_file = folder / "log.txt"
        arguments = [str(self.port), str(folder / "data"), str(drain_seconds)]
        with self.log_file.open("wb") as out:
            command = [sys.executable, "-m", "tests.web.served", *arguments]
            self.child: subprocess.Popen[bytes] = start_child(command, stdout=out, cwd=ROOT)

    @property
    def memory_bytes(self) -> int:
        """How much it holds."""
        size: int = psutil.Process(self.child.pid).memory_info().rss
        return size

    async def is_well(self) -> bool:
        """Whether it lives and serves."""
        try:
            heard = await talk(self.port, request("GET /livez HTTP/1.1", "Connection: close"))
        except OSError:
            return False
        return heard.statuses == [200]

    async def ready(self) -> None:
        """Return when it serves."""
        async with asyncio.timeout(READY_SECONDS):
            while not await self.is_well():  # noqa: ASYNC110  (it is another process)
                await asyncio.sleep(0.05)

    async def log(self) -> str:
        """All that it told, once the lines about requests are out."""
        mark = f"/marked-{next(MARKS)}-here"
        await talk(self.port, request(f"GET {mark} HTTP/1.1", "Connection: close"))
        async with asyncio.timeout(10):
            while mark not in (told := self.log_file.read_text()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return told

    def ask_to_stop(self) -> None:
        """As an operator does."""
        self.child.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Its exit status, once it has one."""
        async with asyncio.timeout(STOP_SECONDS):
            while (status := self.child.poll()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return status
