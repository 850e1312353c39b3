"""What a child cannot do, with hostile code already running in it."""

import errno
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from penstock.kernel.sandbox.call import Sandbox
from tests.kernel.sandbox import payloads
from tests.kernel.sandbox.processes import zygote

REFUSED = {"PermissionError", "OSError"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that the service can read, such as one of the data folder."""
    path = tmp_path / "secret"
    path.write_text("of another tenant")
    return path


async def test_every_guard_works_on_the_machine_that_runs_the_tests(sandbox: Sandbox):
    guards = await sandbox.guards()
    assert guards.missing == ()
    assert guards.landlock >= 1


class TestTheNetwork:
    async def test_cannot_be_reached(self, sandbox: Sandbox):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            attempts = await sandbox.run(payloads.connect, listener.getsockname()[1])
            assert attempts == ["PermissionError"] * 4
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()

    async def test_cannot_be_reached_from_native_code(self, sandbox: Sandbox):
        assert await sandbox.run(payloads.connect_by_hand) == (-1, errno.EPERM)

    async def test_of_the_zygote_is_a_namespace_of_its_own(self, sandbox: Sandbox):
        await sandbox.guards()
        ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{zygote().pid}/ns/net")
        assert ours.readlink() != theirs.readlink()


class TestWhatAChildHas:
    async def test_is_no_environment(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("PENSTOCK_ADMIN_KEY", "secret")
        assert await sandbox.run(payloads.environment) == {}
        started = Path(f"/proc/{zygote().pid}/environ").read_bytes()
        assert started == b"GLIBC_TUNABLES=glibc.malloc.hugetlb=1\0", (
            "one tunable of the C library, and nothing of ours"
        )

    async def test_is_no_descriptor_but_its_own(self, sandbox: Sandbox, secret: Path):
        with secret.open() as held, socket.create_server(("127.0.0.1", 0)) as listener:
            os.set_inheritable(held.fileno(), True)
            os.set_inheritable(listener.fileno(), True)
            found = await sandbox.run(payloads.descriptors)
        assert sorted(found.values()) == ["device", "device", "device", "pipe"]

    async def test_is_a_session_of_its_own_in_no_folder_of_ours(self, sandbox: Sandbox):
        pid, session, parent = await sandbox.run(payloads.ids)
        assert pid == session
        assert parent == zygote().pid
        assert await sandbox.run(payloads.folder) == "/"

    async def test_is_a_set_of_hard_limits(self, sandbox: Sandbox):
        limits = await sandbox.run(payloads.limits)
        assert limits == {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 64, "RLIMIT_CPU": 10}

    async def test_is_no_capability(self, sandbox: Sandbox):
        await sandbox.guards()
        status = Path(f"/proc/{zygote().pid}/status").read_text()
        sets = {line.split()[0]: line.split()[1] for line in status.splitlines() if line.startswith("Cap")}
        assert int(sets["CapEff:"], 16) == int(sets["CapPrm:"], 16) == 0
        assert "NoNewPrivs:\t1" in status

    async def test_is_immunity_to_the_signals_of_a_shutdown(self, sandbox: Sandbox):
        """Otherwise a shutdown would look like a crash caused by the file."""
        assert {"SIGTERM", "SIGINT", "SIGHUP"} <= set(await sandbox.run(payloads.ignored_signals))

    async def test_is_what_it_needs_to_import_and_to_use_threads(self, sandbox: Sandbox):
        assert await sandbox.run(payloads.import_late) == "colorsys"
        assert await sandbox.run(payloads.in_threads, 8) == 8


class TestFiles:
    async def test_cannot_be_changed(self, sandbox: Sandbox, tmp_path: Path):
        kept = tmp_path / "kept"
        kept.write_text("kept")
        before = kept.stat()
        attempts = await sandbox.run(payloads.change_files, str(tmp_path))
        assert set(attempts.values()) <= REFUSED, attempts
        assert kept.read_text() == "kept"
        assert (kept.stat().st_mode, kept.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
        assert [each.name for each in tmp_path.iterdir()] == ["kept"]

    async def test_that_are_passed_cannot_be_changed_either(self, sandbox: Sandbox, tmp_path: Path):
        given = tmp_path / "given"
        given.write_text("given")
        mode = given.stat().st_mode
        attempts = await sandbox.run(payloads.change_own_file, file=given)
        assert set(attempts.values()) <= REFUSED, attempts
        assert (given.read_text(), given.stat().st_mode) == ("given", mode)

    async def test_of_ours_cannot_be_read(self, sandbox: Sandbox, secret: Path):
        of_the_caller = [f"/proc/{os.getpid()}/{name}" for name in ("environ", "maps", "mem", "cmdline")]
        of_the_parent = [f"/proc/{os.getppid()}/environ"]
        attempts = await sandbox.run(payloads.read_files, [str(secret), "/etc/passwd", *of_the_caller, *of_the_parent])
        assert set(attempts.values()) == {"PermissionError"}, attempts
        assert await sandbox.run(payloads.list_folder, str(secret.parent)) == "PermissionError"

    async def test_that_differ_between_machines_cannot_be_read(self, sandbox: Sandbox):
        assert await sandbox.run(payloads.list_folder, "/usr/share") == "PermissionError"

    async def test_behind_our_open_descriptors_cannot_be_read(self, sandbox: Sandbox, secret: Path):
        with secret.open() as held:
            path = f"/proc/{os.getpid()}/fd/{held.fileno()}"
            assert (await sandbox.run(payloads.read_files, [path]))[path] == "PermissionError"

    async def test_in_readable_folders_can_be_read(self, secret: Path):
        async with Sandbox(preload=[payloads.__name__], readable=[secret.parent]) as sandbox:
            assert await sandbox.run(payloads.read_files, [str(secret)]) == {str(secret): "done: 17"}


class TestOtherProcesses:
    async def test_cannot_be_touched_and_none_can_be_started(self, sandbox: Sandbox):
        heard: list[int] = []
        old = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
        try:
            attempts = await sandbox.run(payloads.touch_others, os.getpid())
        finally:
            signal.signal(signal.SIGUSR1, old)
        assert set(attempts.values()) <= REFUSED | {"returned -1"}, attempts
        assert heard == []
        assert psutil.Process().is_running()

    async def test_cannot_be_sent_signals_by_way_of_a_descriptor(self, sandbox: Sandbox):
        assert await sandbox.run(payloads.send_signals_by_a_pipe, os.getpid()) == "PermissionError"
