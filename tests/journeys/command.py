"""The command `penstock` as a user runs it: a process of its own, with an environment of its own.

Importing everything takes seconds on a slow machine, so `run` forks from a process that has done so.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from penstock.cli.main import app
from tests.servers.children import kill_child, start_child
from tests.storms import processes

RUN_SECONDS = 100
READY_SECONDS = 40  # a loaded machine may take a while to import everything


def environment(**settings: str) -> dict[str, str]:
    """The environment of a child: ours without settings of our own, and these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return clean | settings


def run(*arguments: str, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder, name) for name in ("stdout", "stderr")]
        process = processes.start(_become_command, arguments, environment(**settings), cwd or Path.cwd(), said)
        process.join(RUN_SECONDS)
        assert process.exitcode is not None, f"penstock {arguments} still runs after {RUN_SECONDS} s"
        return subprocess.CompletedProcess(arguments, process.exitcode, *(path.read_text() for path in said))


def _become_command(arguments: Sequence[str], env: Mapping[str, str], cwd: Path, said: Sequence[Path]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["penstock", *arguments]
    app()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Serving:
    """A running `penstock serve`."""

    def __init__(self, *arguments: str, **settings: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "penstock", "serve", "--port", str(self.port), *arguments]
        self.child = start_child(command, env=environment(**settings))

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Return when the health answers 200."""
        async with asyncio.timeout(READY_SECONDS):
            while await self._status(session) != 200:  # noqa: ASYNC110  (the server is another process)
                await asyncio.sleep(0.05)

    async def health(self, session: aiohttp.ClientSession, *, until: str) -> dict[str, Any]:
        """What health says once its status is this. It keeps what it saw for a second."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                async with session.get(f"{self.url}/api/v1/health") as answer:
                    body: dict[str, Any] = await answer.json()
                if body["status"] == until:
                    return body
                await asyncio.sleep(0.05)

    def stop(self) -> int:
        """Ask it to stop, as an operator does; returns its exit status."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(timeout=20)

    def kill(self) -> None:
        """kill -9."""
        kill_child(self.child)

    async def _status(self, session: aiohttp.ClientSession) -> int:
        try:
            async with session.get(f"{self.url}/api/v1/health") as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0
