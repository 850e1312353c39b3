"""Child processes that die with us.

``start_child`` does not start the program itself but a bare Python that runs this very file: it drops root's rights,
asks the kernel to be killed when its parent dies, and only then becomes the program (exec, so the pid stays the same).

Why not ``preexec_fn``: it runs Python between fork and exec, where a lock held by any other thread is held for ever,
and newer Pythons warn about it. Why not ``setpriv --pdeathsig``: not every machine has it. The price is some 30 ms.
"""

import ctypes
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
KEEP_USER = -1
NOT_STARTED = 125  # the exit code of a child whose parent was gone before it could become the program


def start_child(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    as_nobody: bool = False,
    stdout: int | IO[bytes] | None = subprocess.DEVNULL,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group; it is killed when this process dies, however it dies.

    Its error output goes where its output goes. ``as_nobody`` takes root's rights away and means nothing to a user who
    has none. A program that cannot be executed shows as a child that ends at once with code 1.
    """
    if threading.current_thread() is not threading.main_thread():
        # The kernel ties the child to the thread that started it: it would be killed when that thread ends.
        raise RuntimeError("Start children from the main thread.")
    uid, gid = _nobody() if as_nobody and os.getuid() == 0 else (KEEP_USER, KEEP_USER)
    # The system's own Python with this file as text: neither needs this checkout to be readable for the child's user.
    launcher = [os.path.realpath(sys.executable), "-I", "-S", "-c", Path(__file__).read_text()]
    return subprocess.Popen(
        [*launcher, str(os.getpid()), str(uid), str(gid), *map(str, argv)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        process_group=0,
    )


def kill_child(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and all of its process group with SIGKILL, and wait until it is gone."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def give_to_nobody(folder: Path) -> None:
    """Make a folder belong to the user whom ``as_nobody`` children run as; nothing to do unless we are root."""
    if os.getuid() == 0:
        os.chown(folder, *_nobody())


def may_act_for(folder: Path) -> bool:
    """Whether a folder is ours, or belongs to the user whom our ``as_nobody`` children run as."""
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        return False
    return owner == (_nobody()[0] if os.getuid() == 0 else os.getuid())


def _nobody() -> tuple[int, int]:
    user = pwd.getpwnam("nobody")
    return user.pw_uid, user.pw_gid


def _become(parent_pid: int, uid: int, gid: int, argv: list[str]) -> None:
    """Turn this process into the program; runs in the child only."""
    if uid != KEEP_USER:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    _die_with_parent()  # after setuid, which would clear it
    if os.getppid() != parent_pid:  # it died before we asked, so the signal will never come
        sys.exit(NOT_STARTED)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execvp(argv[0], argv)


def _die_with_parent() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(value) for value in (signal.SIGKILL, 0, 0, 0)]
    if libc.prctl(PR_SET_PDEATHSIG, *arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
