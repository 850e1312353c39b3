"""Landlock: a process gives up access to all files but a few folders that it may read, and the file of its call.

Libraries that open files by name can thus open the file of their call and no other. The zygote opens the folders once;
each child makes its ruleset of them and of its file, in a tenth of a millisecond. Newer ABI versions also restrict TCP
and signals to other processes, which is requested where the kernel supports it. The numbers of these system calls are
the same on every architecture.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.kernel.sandbox import linux

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GET_VERSION = 1
PATH_BENEATH = 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
VERSION_1_RIGHTS = (1 << 13) - 1  # read, write, execute, create and remove
LATER_RIGHTS = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # move between folders, truncate, ioctl on devices
TCP_SINCE, TCP_RIGHTS = 4, 0b11  # bind and connect
SCOPES_SINCE, SCOPES = 6, 0b11  # abstract Unix sockets and signals


class Readable(NamedTuple):
    """An open folder or file, and the rights to it."""

    descriptor: int
    rights: int = READ_FILE


def version() -> int:
    """The Landlock ABI version of the kernel; 0 when it has none."""
    try:
        return linux.system_call(CREATE_RULESET, None, 0, GET_VERSION)
    except OSError:
        return 0


def open_readable(paths: Iterable[Path]) -> tuple[Readable, ...]:
    """Open folders and files for `restrict`. Missing ones are skipped."""
    return tuple(
        Readable(os.open(path, os.O_PATH | os.O_CLOEXEC), READ_FILE | READ_DIR if path.is_dir() else READ_FILE)
        for path in paths
        if path.exists()
    )


def restrict(readable: Sequence[Readable]) -> None:
    """Allow this process to read these folders and files, and nothing else, irrevocably."""
    attributes = _ruleset_attributes(version())
    rules = linux.system_call(CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    try:
        for descriptor, rights in readable:
            rule = ctypes.c_char_p(struct.pack("=Qi", rights, descriptor))
            linux.system_call(ADD_RULE, rules, PATH_BENEATH, rule, 0)
        linux.system_call(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _ruleset_attributes(abi: int) -> bytes:
    rights = VERSION_1_RIGHTS | sum(right for since, right in LATER_RIGHTS.items() if since <= abi)
    fields = [rights]
    if abi >= TCP_SINCE:
        fields.append(TCP_RIGHTS)
    if abi >= SCOPES_SINCE:
        fields.append(SCOPES)
    return struct.pack(f"={len(fields)}Q", *fields)
