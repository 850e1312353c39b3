"""The `penstock` command as a user runs it: a process of its own, with its own environment.

Importing the product takes seconds on a slow machine, so processes are forked from a fork server that has imported it.
`tests/journeys/test_commands.py` also starts the installed command itself.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import aiohttp

from penstock.cli.main import app
from tests.storms import processes

RUN_SECONDS = 100
READY_SECONDS = 40  # migrations on a loaded machine


def environment(**settings: str) -> dict[str, str]:
    """The environment of a child: ours without PENSTOCK_ variables, plus these settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return clean | settings


def run(*arguments: str, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "stdout"), Path(folder, "stderr")
        process = processes.start(_exec_command, arguments, environment(**settings), cwd or Path.cwd(), output)
        process.join(RUN_SECONDS)
        assert process.exitcode is not None, f"penstock {arguments} still runs after {RUN_SECONDS} s"
        return subprocess.CompletedProcess(arguments, process.exitcode, *(path.read_text() for path in output))


class Command:
    """A running command that can be signalled. Its output goes to a file, or is dropped."""

    def __init__(self, *arguments: str, output: str = os.devnull, **settings: str) -> None:
        files = (Path(output),) * 2
        self._process = processes.start(_exec_command, arguments, environment(**settings), Path.cwd(), files)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return _pid(self._process)

    def stop(self, *, timeout: float = 20) -> int:
        """Ask it to stop, as an operator does; returns its exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait(timeout=timeout)

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(_pid(self._process), number)

    def wait(self, *, timeout: float) -> int:
        """Its exit status; fails when it does not end in time."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still runs after {timeout} s"
        return self._process.exitcode

    def kill(self) -> None:
        """Kill -9."""
        processes.kill(self._process)


class Serving(Command):
    """A running `penstock serve`."""

    def __init__(self, *arguments: str, output: str = os.devnull, **settings: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__("serve", "--port", str(self.port), *arguments, output=output, **settings)

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Return when the health answers 200."""
        async with asyncio.timeout(READY_SECONDS):
            while await self._status(session) != 200:  # noqa: ASYNC110  (the server is another process)
                await asyncio.sleep(0.05)

    async def health(self, session: aiohttp.ClientSession, *, until: str) -> dict[str, Any]:
        """The health once its status is this. The server caches it for a second."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                async with session.get(f"{self.url}/api/v1/health") as answer:
                    body: dict[str, Any] = await answer.json()
                if body["status"] == until:
                    return body
                await asyncio.sleep(0.05)

    async def _status(self, session: aiohttp.ClientSession) -> int:
        try:
            async with session.get(f"{self.url}/api/v1/health") as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _exec_command(arguments: Sequence[str], env: Mapping[str, str], cwd: Path, output: Sequence[Path]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, path in enumerate(output, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.argv = ["penstock", *arguments]
    app()


def _pid(process: ForkServerProcess) -> int:
    assert process.pid is not None
    return process.pid
