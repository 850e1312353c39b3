"""The isolation of every child, prepared once by the zygote.

What no child needs is dropped by the zygote itself: capabilities, the network, its priority when memory runs out. What
the zygote still needs (fork, its socket) is taken from each child by a seccomp filter and Landlock rules. Both are
first tried in a throwaway child, so `Guards` reports what works and not what was requested.
"""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.kernel.sandbox import landlock, linux, seccomp, wire

OOM_SCORE_ADJ = "500"  # of 1000: when memory runs out the kernel kills the zygote or a child before the service
# What native libraries look up on their own; nothing of ours is among it. Fonts are left out: a parser that substitutes
# the fonts of its machine reads a document differently on another.
SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom", "/dev/zero")
CPU_INFO = ("/proc/cpuinfo", "/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """What a child applies to itself."""

    zygote: int  # pid of the parent, which the child must not outlive
    filter: seccomp.SeccompFilter | None
    readable: tuple[landlock.Readable, ...] | None  # the folders that every child may read; None without Landlock


def prepare(readable: Sequence[str], *, allow_socketpair: bool = False) -> tuple[Isolation, wire.Guards]:
    """Drop what no child needs, and build what each child will apply."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)
    network_namespace = _works(linux.unshare_network)
    linux.drop_capabilities()
    linux.set_no_new_privileges()
    filter_, opened = _build_filter(allow_socketpair), _open_readable(readable)
    guards = wire.Guards(
        seccomp=filter_ is not None,
        landlock=landlock.version() if opened is not None else 0,
        network_namespace=network_namespace,
    )
    return Isolation(zygote=os.getpid(), filter=filter_, readable=opened), guards


def _build_filter(allow_socketpair: bool) -> seccomp.SeccompFilter | None:
    filter_ = seccomp.build(platform.machine(), allow_socketpair=allow_socketpair)
    return filter_ if filter_ is not None and _works_in_child(filter_.install) else None


def _open_readable(readable: Sequence[str]) -> tuple[landlock.Readable, ...] | None:
    if not landlock.version():
        return None
    opened = landlock.open_readable(Path(each) for each in (*SYSTEM_FOLDERS, *SYSTEM_FILES, *CPU_INFO, *readable))
    return opened if _works_in_child(lambda: landlock.restrict(opened)) else None


def _works(step: Callable[[], None]) -> bool:
    try:
        step()
    except OSError:
        return False
    return True


def _works_in_child(step: Callable[[], None]) -> bool:
    """Try an irreversible step in a throwaway child."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if _works(step) else 1)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return status == 0
