"""Landlock: a process gives up all files but a few folders that it may read.

The rules are made once, by the zygote; each child takes them upon itself with one call. Newer versions of Landlock also
refuse TCP and signals to those outside, so those are asked for where the kernel knows them. The numbers of these
system calls are the same on every architecture.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from penstock.kernel.sandbox import linux

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
FIRST_RIGHTS = (1 << 13) - 1  # read, write, execute, make and remove, since version 1
LATER_RIGHTS = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # move between folders, truncate, control a device
TCP_SINCE, TCP_RIGHTS = 4, 0b11  # bind and connect
SCOPES_SINCE, SCOPES = 6, 0b11  # abstract Unix sockets and signals


def version() -> int:
    """Which version the kernel speaks; 0 when it does not."""
    try:
        return linux.system_call(CREATE_RULESET, None, 0, ASK_VERSION)
    except OSError:
        return 0


def make_rules(readable: Iterable[Path]) -> int:
    """A descriptor of rules that allow to read these folders and files, and nothing else. Missing ones are left out."""
    attributes = _attributes(version())
    rules = linux.system_call(CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    for path in readable:
        if path.exists():
            _allow_reading(rules, path)
    return rules


def restrict(rules: int) -> None:
    """Take the rules upon this process, for ever."""
    linux.system_call(RESTRICT_SELF, rules, 0)


def _attributes(known: int) -> bytes:
    rights = FIRST_RIGHTS | sum(right for since, right in LATER_RIGHTS.items() if since <= known)
    words = [rights]
    if known >= TCP_SINCE:
        words.append(TCP_RIGHTS)
    if known >= SCOPES_SINCE:
        words.append(SCOPES)
    return struct.pack(f"={len(words)}Q", *words)


def _allow_reading(rules: int, path: Path) -> None:
    right = READ_FILE | READ_FOLDER if path.is_dir() else READ_FILE
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        linux.system_call(ADD_RULE, rules, PATH_BENEATH, ctypes.c_char_p(struct.pack("=Qi", right, folder)), 0)
    finally:
        os.close(folder)
