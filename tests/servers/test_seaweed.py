import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.children import kill_child, start_child
from tests.servers.seaweed import AnyS3, S3Server, ServerFailed, shared_server

pytestmark = pytest.mark.storm

ROOT = Path(__file__).parents[2]
SECONDS = 30.0  # far more than anything here takes

RUN_UNTIL_KILLED = """
import signal
from tests.servers.seaweed import S3Server
server = S3Server.start()
print(server.pid, server._folder, *(server._folder / "ports").read_text().split(), flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server.start() as started:
        yield started


def sockets_of(ports: list[str]) -> list[Path]:
    return [path for path in Path("/tmp").glob("seaweedfs-*-grpc-*.sock") if path.stem.split("-")[-1] in ports]


def test_only_who_has_the_secret_gets_in(server: S3Server):
    bucket = server.bucket("doors")
    assert server.call("PUT", f"/{bucket}/a", body=b"x")[0] == 200
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        urllib.request.urlopen(f"{server.endpoint}/{bucket}/a", timeout=SECONDS)
    refused.value.close()
    status, answer = AnyS3(server.endpoint, server.access_key, "wrong").call("GET", f"/{bucket}/a")
    assert (status, b"SignatureDoesNotMatch" in answer) == (403, True)
    reader = AnyS3(server.endpoint, server.reader.key_id, server.reader.secret)
    assert reader.call("GET", f"/{bucket}/a") == (200, b"x")
    assert reader.call("PUT", f"/{bucket}/a", body=b"y")[0] == 403


def test_it_listens_on_the_loopback_only(server: S3Server):
    listening = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True)
    ports = {f"{int(port):04X}" for port in (server._folder / "ports").read_text().split()}
    hosts = {
        line.split()[1].split(":")[0]
        for line in listening.stdout.splitlines()
        if line.split()[1].split(":")[-1] in ports and line.split()[3] == "0A"
    }
    assert hosts == {"0100007F"}


def test_a_bucket_may_be_asked_for_again_and_a_bad_name_is_told(server: S3Server):
    assert server.bucket("again") == server.bucket("again") == "again"
    with pytest.raises(ServerFailed, match="InvalidBucketName"):
        server.bucket("x")


def test_what_was_stored_outlives_a_kill(server: S3Server):
    bucket = server.bucket("ledger")
    server.call("PUT", f"/{bucket}/a", body=b"42")
    first_pid = server.pid
    server.kill()
    with pytest.raises(urllib.error.URLError, match="refused"):
        server.call("GET", f"/{bucket}/a")

    server.start_again()

    assert server.pid != first_pid
    assert server.call("GET", f"/{bucket}/a") == (200, b"42")


def test_a_paused_server_answers_only_when_resumed(server: S3Server):
    bucket = server.bucket("paused")
    server.pause()
    with pytest.raises((TimeoutError, urllib.error.URLError), match="timed out"):
        urllib.request.urlopen(f"{server.endpoint}/{bucket}", timeout=0.3)
    server.resume()
    assert server.call("PUT", f"/{bucket}/a", body=b"x")[0] == 200


def test_a_killed_server_starts_again_and_one_that_runs_does_not(server: S3Server):
    server.kill()
    with pytest.raises(ServerFailed, match="not running"):
        server.pause()
    server.start_again()
    with pytest.raises(ServerFailed, match="already running"):
        server.start_again()


def test_a_failed_start_shows_the_log_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ServerFailed, match=r"did not start:(.|\n)*whiteList"):
        S3Server.start(volume_megabytes=-1)
    assert list(tmp_path.iterdir()) == []


def test_a_server_of_little_room_is_full_soon():
    with S3Server.start(volumes=2, volume_megabytes=1) as small:
        bucket = small.bucket("small")
        answers = [small.call("PUT", f"/{bucket}/{number}", body=b"x" * 1_000_000)[0] for number in range(5)]
    assert (answers[0], answers[-1]) == (200, 500)


def test_the_environment_can_name_another_server(server: S3Server, monkeypatch: pytest.MonkeyPatch):
    address = server.endpoint.replace("://", f"://{server.access_key}:{server.secret_key}@")
    monkeypatch.setenv("TEST_S3_URL", f"{address}?region=eu-central-1")
    with shared_server() as other:
        bucket = other.bucket("elsewhere")
    assert (other.endpoint, other.region) == (server.endpoint, "eu-central-1")
    assert server.call("GET", f"/{bucket}")[0] == 200


def test_a_server_dies_with_its_parent_and_the_next_start_sweeps_its_files():
    parent = start_child([sys.executable, "-c", RUN_UNTIL_KILLED], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    pid, folder, *ports = parent.stdout.readline().decode().split()
    assert _lives(int(pid))

    kill_child(parent)

    deadline = time.monotonic() + SECONDS
    while _lives(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(int(pid))
    assert Path(folder).exists()
    assert sockets_of(ports)
    S3Server.start().stop()
    assert not Path(folder).exists()
    assert not sockets_of(ports)


def _lives(pid: int) -> bool:
    """Whether a process is there and is more than a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
