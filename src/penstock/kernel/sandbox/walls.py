"""The walls that stand around every child, made ready once by the zygote.

What can be given up for all children at once is given up by the zygote itself: capabilities, the network, its place in
the queue when memory runs out. What a zygote still needs (to fork, to talk to its caller) is taken from each child by a
filter and by rules. Both are first tried on a child of no account, so `Guards` tells what holds and not what was hoped.
"""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.kernel.sandbox import landlock, linux, seccomp, wire

FIRST_TO_GO = "500"  # of 1000: when memory runs out the kernel takes the zygote or a child before the service
# What native libraries look up on their own; there is nothing of ours among it. Fonts are left out: a parser that takes
# letters from those which a machine happens to have reads a document differently on another.
SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom", "/dev/zero")
SYSTEM_FACTS = ("/proc/cpuinfo", "/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Walls:
    """What a child puts around itself."""

    zygote: int  # the process that it must not outlive
    filter: seccomp.Filter | None
    rules: int | None  # descriptor of the Landlock rules


def make(readable: Sequence[str], *, pairs: bool = False) -> tuple[Walls, wire.Guards]:
    """Give up what no child needs, and make ready what each child will put on."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
    network_namespace = _holds_here(linux.leave_network)
    linux.drop_capabilities()
    linux.gain_no_privileges()
    filter_, rules = _filter(pairs), _rules(readable)
    guards = wire.Guards(
        seccomp=filter_ is not None,
        landlock=landlock.version() if rules is not None else 0,
        network_namespace=network_namespace,
    )
    return Walls(zygote=os.getpid(), filter=filter_, rules=rules), guards


def _filter(pairs: bool) -> seccomp.Filter | None:
    filter_ = seccomp.build(platform.machine(), pairs=pairs)
    return filter_ if filter_ is not None and _holds_in_a_child(filter_.put_on) else None


def _rules(readable: Sequence[str]) -> int | None:
    if not landlock.version():
        return None
    rules = landlock.make_rules([Path(each) for each in (*SYSTEM_FOLDERS, *SYSTEM_FILES, *SYSTEM_FACTS, *readable)])
    if _holds_in_a_child(lambda: landlock.restrict(rules)):
        return rules
    os.close(rules)
    return None


def _holds_here(step: Callable[[], None]) -> bool:
    try:
        step()
    except OSError:
        return False
    return True


def _holds_in_a_child(step: Callable[[], None]) -> bool:
    """A step that cannot be taken back is tried by someone who ends with it."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if _holds_here(step) else 1)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return status == 0
