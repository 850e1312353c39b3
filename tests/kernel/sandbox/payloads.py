"""Functions to run in the sandbox: benign ones, and one for every way to misbehave."""

import ctypes
import fcntl
import mmap
import os
import random
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class Page:
    """The result of a benign payload."""

    number: int
    text: str
    image: bytes
    boxes: tuple[tuple[float, float], ...]


def read_page(number: int, text: str) -> Page:
    return Page(number=number, text=text, image=b"\x00\xff", boxes=((0.5, 1.0), (2.0, 3.5)))


def echo(value: object) -> object:
    return value


def nothing() -> None:
    return None


def unannotated(value):
    return value


def read_tail(file: BinaryIO, size: int) -> bytes:
    file.seek(-size, os.SEEK_END)
    return file.read()


def sum_of_mapped(file: BinaryIO) -> int:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return sum(mapped[:100])


def import_late() -> str:
    import colorsys

    return colorsys.__name__


def in_threads(count: int) -> int:
    done: list[int] = []
    threads = [threading.Thread(target=done.append, args=(each,)) for each in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done)


def random_number() -> int:
    return random.getrandbits(64)


# The environment of a child.


def environment() -> dict[str, str]:
    return dict(os.environ)


def descriptors() -> dict[int, str]:
    found = {}
    for number in range(1024):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        found[number] = "pipe" if stat.S_ISFIFO(mode) else "device" if stat.S_ISCHR(mode) else "file"
    return found


def folder() -> str:
    return str(Path.cwd())


def ids() -> tuple[int, int, int]:
    return os.getpid(), os.getsid(0), os.getppid()


def limits() -> dict[str, int]:
    names = ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CPU")
    return {name: resource.getrlimit(getattr(resource, name))[0] for name in names}


def ignored_signals() -> list[str]:
    return [each.name for each in signal.Signals if signal.getsignal(each) is signal.SIG_IGN]


# Attempts to escape. Each returns its outcome.


def attempt(step: Callable[[], object]) -> str:
    try:
        return f"done: {step()}"
    except Exception as error:  # noqa: BLE001  (the test wants to know which)
        return type(error).__name__


def connect(port: int) -> list[str]:
    def tcp() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass

    def udp() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hello", ("127.0.0.1", port))

    def unix() -> None:
        socket.socket(socket.AF_UNIX)

    def pair() -> None:
        socket.socketpair()

    return [attempt(each) for each in (tcp, udp, unix, pair)]


def connect_by_hand() -> tuple[int, int]:
    return LIBC.socket(2, 1, 0), ctypes.get_errno()


def change_files(folder: str) -> dict[str, str]:
    here = Path(folder)
    kept = here / "kept"
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: kept.write_text("gone"),
        "truncate": lambda: os.truncate(kept, 0),
        "open truncating": lambda: os.open(kept, os.O_RDONLY | os.O_TRUNC),
        "append": lambda: os.open(kept, os.O_WRONLY | os.O_APPEND),
        "create": (here / "new").touch,
        "in tmp": lambda: Path("/tmp/penstock-sandbox-was-here").touch(),
        "remove": kept.unlink,
        "rename": lambda: kept.rename(here / "other"),
        "folder": (here / "folder").mkdir,
        "link": lambda: (here / "link").symlink_to(kept),
        "hard link": lambda: (here / "hard").hardlink_to(kept),
        "mode": lambda: kept.chmod(0o777),
        "owner": lambda: os.chown(kept, 1, 1),
        "time": lambda: os.utime(kept),
        "attribute": lambda: os.setxattr(kept, "user.x", b"1"),
        "pipe": lambda: os.mkfifo(here / "pipe"),
        "nothing": lambda: os.open("/dev/null", os.O_WRONLY),
    }
    return {name: attempt(step) for name, step in steps.items()}


def change_own_file(file: BinaryIO) -> dict[str, str]:
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: os.write(file.fileno(), b"x"),
        "truncate": lambda: os.ftruncate(file.fileno(), 0),
        "mode": lambda: os.fchmod(file.fileno(), 0o777),
        "again": lambda: os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDWR),
        "mapped": lambda: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE),
    }
    return {name: attempt(step) for name, step in steps.items()}


def read_files(paths: list[str]) -> dict[str, str]:
    return {path: attempt(lambda path=path: len(Path(path).read_bytes())) for path in paths}  # type: ignore[misc]  # bound per path


def list_folder(path: str) -> str:
    return attempt(lambda: sorted(each.name for each in Path(path).iterdir()))


def touch_others(pid: int) -> dict[str, str]:
    steps: dict[str, Callable[[], object]] = {
        "signal": lambda: os.kill(pid, signal.SIGUSR1),
        "is it there": lambda: os.kill(pid, 0),
        "signal the parent": lambda: os.kill(os.getppid(), signal.SIGUSR1),
        "signal all": lambda: os.kill(-1, 0),
        "limit": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (10, 10)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "handle": lambda: os.pidfd_open(pid),
        "own group": os.setsid,
    }
    by_hand: dict[str, Callable[[], int]] = {
        "trace": lambda: LIBC.ptrace(16, pid, 0, 0),
        "read memory": lambda: LIBC.process_vm_readv(pid, None, 0, None, 0, 0),
        "thread signal": lambda: LIBC.tgkill(pid, pid, 10),
        "outlive": lambda: LIBC.prctl(1, 0, 0, 0, 0),
        "shared memory": lambda: LIBC.shmget(0, 4096, 0o1600),
        "namespace": lambda: LIBC.unshare(0x10000000),
        "mount": lambda: LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "memory file": lambda: LIBC.memfd_create(b"x", 0),
        "user": lambda: LIBC.setuid(65534),
        "root": lambda: LIBC.chroot(b"/tmp"),
        "fork": LIBC.fork,
    }
    return {name: attempt(step) for name, step in steps.items()} | {
        name: f"returned {step()}" for name, step in by_hand.items()
    }


def send_signals_by_a_pipe(pid: int) -> str:
    source, _ = os.pipe()
    return attempt(lambda: fcntl.fcntl(source, fcntl.F_SETOWN, pid))


# Ways to misbehave.


def raise_with(text: str) -> None:
    raise ValueError(text)


def raise_escapes() -> None:
    raise ValueError("\x1b[2J\nERROR forged\r\0\u202e{code}\ud800" + "x" * 5000)


def raise_unspeakable() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Unspeakable


def hang() -> None:
    time.sleep(3600)


def spin() -> None:
    while True:
        pass


def hang_deaf() -> None:
    """Hang, ignoring and blocking every signal it can."""
    for each in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(1)


def spin_deaf() -> None:
    """Spin, ignoring the soft CPU limit (SIGXCPU)."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    spin()


def hang_in_threads() -> None:
    for _ in range(8):
        threading.Thread(target=time.sleep, args=(3600,)).start()


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def allocate() -> int:
    held = []
    while True:
        held.append(bytearray(8 * 1024 * 1024))


def allocate_in_small_pieces() -> int:
    held: list[object] = []
    while True:
        held.append([held])


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def die_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def be_killed() -> None:
    """Die as by the OOM killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def vanish(status: int) -> None:
    os._exit(status)


def leave() -> None:
    sys.exit(5)


def recurse() -> None:
    recurse()


def overflow_the_stack() -> None:
    """Recurse in C, where Python does not count frames."""
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    @compare
    def deeper(_left: int, _right: int) -> int:
        LIBC.qsort((ctypes.c_int * 2)(), 2, 4, deeper)
        return 0

    sys.setrecursionlimit(10**9)
    LIBC.qsort((ctypes.c_int * 2)(), 2, 4, deeper)


def fork_bomb() -> None:
    while True:
        os.fork()


def leave_a_child_behind() -> int:
    """The pid of a process that sleeps for an hour; 0 when none can be forked."""
    try:
        pid = os.fork()
    except OSError:
        return 0
    if pid == 0:
        hang()
    return pid


def run_a_program() -> None:
    os.execv("/bin/true", ["true"])


def thread_bomb() -> int:
    while True:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


def flood_output() -> None:
    while True:
        sys.stdout.write("x" * 65536)
        os.write(2, b"y" * 65536)


def answer_pipe() -> int:
    return next(number for number, kind in descriptors().items() if kind == "pipe")


def flood_answer() -> None:
    pipe = answer_pipe()
    while True:
        os.write(pipe, b"z" * 65536)


def answer_by_hand(words: bytes) -> None:
    os.write(answer_pipe(), words)
    os._exit(0)


def answer_and_hang(words: bytes) -> None:
    os.write(answer_pipe(), words)
    hang()


def close_everything() -> None:
    os.closerange(0, 1024)


def exhaust_descriptors() -> None:
    while True:
        os.dup(0)


def return_much(size_bytes: int) -> bytes:
    return bytes(size_bytes)


def return_wrong() -> int:
    return "not a number"  # type: ignore[return-value]  # the point


def return_unspeakable() -> object:
    return socket.timeout
