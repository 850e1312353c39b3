import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import NoScriptError
from redis.exceptions import TimeoutError as NoAnswer

from tests.servers.children import kill_child, start_child
from tests.servers.valkey import ServerFailed, ValkeyServer, server_program, shared_server

pytestmark = pytest.mark.storm

ROOT = Path(__file__).parents[2]
SECONDS = 30.0  # far more than anything here takes

RUN_UNTIL_KILLED = """
import signal
from tests.servers.valkey import ValkeyServer
server = ValkeyServer.start()
server.pause()
print(server.pid, server.url, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer.start() as started:
        yield started


def ask(server: ValkeyServer, *command: str, seconds: float = SECONDS) -> object:
    with Redis.from_url(server.url, socket_timeout=seconds, decode_responses=True) as client:
        return client.execute_command(*command)


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("unix://")).parent


def test_a_server_listens_on_no_port(server: ValkeyServer):
    assert ask(server, "CONFIG", "GET", "port") == ["port", "0"]


def test_a_flushed_server_has_forgotten_every_database_and_script(server: ValkeyServer):
    ask(server, "SET", "word", "kept")
    ask(server, "COPY", "word", "word", "DB", "1")
    sha = str(ask(server, "SCRIPT", "LOAD", "return 1"))
    assert ask(server, "EVALSHA", sha, "0") == 1

    server.flush()

    with Redis.from_url(server.url) as client:
        assert client.info("keyspace") == {}
    with pytest.raises(NoScriptError):
        ask(server, "EVALSHA", sha, "0")


def test_a_killed_server_is_gone_and_starts_again_empty_at_the_same_address(server: ValkeyServer):
    ask(server, "SET", "word", "lost")
    first_pid = server.pid
    server.kill()
    server.kill()
    with pytest.raises(NotConnected):
        ask(server, "PING")

    server.start_again()

    assert server.pid != first_pid
    assert ask(server, "GET", "word") is None


def test_what_an_appending_server_said_yes_to_outlives_a_kill():
    with ValkeyServer.start(appendonly=True) as server:
        for number in range(100):
            ask(server, "SET", f"word {number}", "kept")
        server.kill()
        server.start_again()
        assert ask(server, "DBSIZE") == 100


def test_a_paused_server_answers_only_when_resumed(server: ValkeyServer):
    server.pause()
    with pytest.raises(NoAnswer):
        ask(server, "PING", seconds=0.2)
    server.resume()
    assert ask(server, "PING") is True


def test_only_a_server_that_runs_is_paused_and_only_one_that_does_not_is_started(server: ValkeyServer):
    with pytest.raises(ServerFailed, match="already running"):
        server.start_again()
    server.kill()
    with pytest.raises(ServerFailed, match="not running"):
        server.pause()
    server.start_again()


def test_the_environment_can_name_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program, mark = tmp_path / "other-server", tmp_path / "started"
    real = shlex.quote(str(server_program()))
    program.write_text(f'#!/bin/sh\ntouch {shlex.quote(str(mark))}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TEST_REDIS_SERVER", str(program))
    with ValkeyServer.start() as other:
        assert ask(other, "PING") is True
    assert mark.exists()


def test_a_program_that_is_not_there_or_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEST_REDIS_SERVER", str(tmp_path / "nowhere"))
    with pytest.raises(ServerFailed, match="nowhere, which is not a program"):
        ValkeyServer.start()
    program = tmp_path / "broken-server"
    program.write_text("#!/bin/sh\necho the disk is on fire\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("TEST_REDIS_SERVER", str(program))
    with pytest.raises(ServerFailed, match="the disk is on fire"):
        ValkeyServer.start()


def test_the_environment_can_name_another_server_which_keeps_running(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TEST_REDIS_URL", f"{server.url}?db=3")
    ask(server, "SET", "word", "kept")
    with shared_server() as other:
        with Redis.from_url(other.url) as client:
            client.set("word", "lost")
        other.flush()
        with Redis.from_url(other.url) as client:
            assert client.get("word") is None
    assert ask(server, "GET", "word") == "kept"


def test_a_stopped_server_leaves_nothing():
    server = ValkeyServer.start()
    pid = server.pid
    server.stop()
    server.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert not folder_of(server.url).exists()


def test_a_server_dies_with_its_parent_even_when_paused_and_the_next_start_sweeps_its_folder():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = start_child([sys.executable, "-c", RUN_UNTIL_KILLED], env=environment, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid, url = parent.stdout.readline().decode().split()
    assert _lives(int(pid))

    kill_child(parent)

    deadline = time.monotonic() + SECONDS
    while _lives(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(int(pid))
    assert folder_of(url).exists()
    ValkeyServer.start().stop()
    assert not folder_of(url).exists()


def _lives(pid: int) -> bool:
    """Whether a process is there and is more than a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
