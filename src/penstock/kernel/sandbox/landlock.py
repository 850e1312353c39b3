"""Landlock: a process gives up access to all files but a few folders that it may read.

The zygote builds the ruleset once; each child applies it with one system call. Newer ABI versions also restrict TCP and
signals to other processes, which is requested where the kernel supports it. The numbers of these system calls are the
same on every architecture.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from penstock.kernel.sandbox import linux

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GET_VERSION = 1
PATH_BENEATH = 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
VERSION_1_RIGHTS = (1 << 13) - 1  # read, write, execute, create and remove
LATER_RIGHTS = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # move between folders, truncate, ioctl on devices
TCP_SINCE, TCP_RIGHTS = 4, 0b11  # bind and connect
SCOPES_SINCE, SCOPES = 6, 0b11  # abstract Unix sockets and signals


def version() -> int:
    """The Landlock ABI version of the kernel; 0 when it has none."""
    try:
        return linux.system_call(CREATE_RULESET, None, 0, GET_VERSION)
    except OSError:
        return 0


def make_rules(readable: Iterable[Path]) -> int:
    """A descriptor of a ruleset that allows reading these folders and files, and nothing else. Missing ones are
    skipped."""
    attributes = _ruleset_attributes(version())
    rules = linux.system_call(CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    for path in readable:
        if path.exists():
            _allow_reading(rules, path)
    return rules


def restrict(rules: int) -> None:
    """Apply the ruleset to this process, irrevocably."""
    linux.system_call(RESTRICT_SELF, rules, 0)


def _ruleset_attributes(abi: int) -> bytes:
    rights = VERSION_1_RIGHTS | sum(right for since, right in LATER_RIGHTS.items() if since <= abi)
    fields = [rights]
    if abi >= TCP_SINCE:
        fields.append(TCP_RIGHTS)
    if abi >= SCOPES_SINCE:
        fields.append(SCOPES)
    return struct.pack(f"={len(fields)}Q", *fields)


def _allow_reading(rules: int, path: Path) -> None:
    right = READ_FILE | READ_DIR if path.is_dir() else READ_FILE
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        linux.system_call(ADD_RULE, rules, PATH_BENEATH, ctypes.c_char_p(struct.pack("=Qi", right, folder)), 0)
    finally:
        os.close(folder)
