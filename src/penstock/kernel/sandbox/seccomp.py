"""The filter for system calls that every child puts on before it runs foreign work.

It is a short program for the kernel (classic BPF): allow what is in the table, weigh a few calls by one argument, and
refuse the rest. A refused call fails with "not permitted"; young ones fail with "no such call", because libraries then
fall back to older ones that are in the table. A call in the manner of another architecture ends the process.
"""

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

from penstock.kernel.sandbox import linux, syscalls

ARCHITECTURES = {"x86_64": (syscalls.X86_64, 0xC000003E), "aarch64": (syscalls.AARCH64, 0xC00000B7)}

LOAD, JUMP_IF_EQUAL, JUMP_IF_LEAST, JUMP_IF_SET, JUMP, RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS = 0, 4, 16  # places in what the kernel shows of a call

TO_CHANGE_A_FILE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
A_THREAD = 0x10000  # CLONE_THREAD: the same process goes on in one more thread
AF_UNIX = 1
ITSELF = -1  # stands for the number of the process until that is known
NAMES_OF_THREADS = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
PLAIN_FCNTL = (0, 1, 2, 3, 4, 1030)  # copy a descriptor, read and set its flags; no owner who would get signals
PLAIN_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # is it a terminal, how wide, how much to read, flags


@dataclass(frozen=True, kw_only=True)
class Step:
    """One instruction; jumps count how many of those that follow are left out."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0

    def packed(self) -> bytes:
        """As the kernel reads it."""
        return struct.pack("=HBBI", self.code, self.then, self.otherwise, 0 if self.value == ITSELF else self.value)


class Filter:
    """The program, ready but for the number of the process that it will guard."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = tuple(steps)
        self._places = [8 * at + 4 for at, step in enumerate(steps) if step.value == ITSELF]
        self._code = ctypes.create_string_buffer(b"".join(step.packed() for step in steps), 8 * len(steps))
        self._program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(self._code)))

    def put_on(self) -> None:
        """Guard this process by it from here on. It cannot be taken off."""
        for place in self._places:
            struct.pack_into("=I", self._code, place, os.getpid())
        linux.control(linux.PR_SET_SECCOMP, linux.SECCOMP_MODE_FILTER, self._program)


def build(machine: str, *, pairs: bool = False) -> Filter | None:
    """The filter for a kind of machine; None where its architecture is not known here. `pairs` of sockets are refused
    unless asked for."""
    known = ARCHITECTURES.get(machine)
    if known is None:
        return None
    architecture, name = known
    steps = [
        Step(code=LOAD, value=AT_ARCHITECTURE),
        Step(code=JUMP_IF_EQUAL, value=name, then=1),
        Step(code=RETURN, value=KILL),
        Step(code=LOAD, value=AT_NUMBER),
        *_allowed(list(_numbers(syscalls.ALLOWED, architecture).values())),
    ]
    table = syscalls.WEIGHED | (syscalls.PAIRS if pairs else {})
    for call, number in _numbers(table, architecture).items():
        weighed = _weighed(call)
        steps += [Step(code=JUMP_IF_EQUAL, value=number, otherwise=len(weighed)), *weighed]
    return Filter([*steps, *_refused()])


def _numbers(calls: syscalls.Table, architecture: int) -> dict[str, int]:
    return {name: number for name, pair in calls.items() if (number := pair[architecture]) is not None}


def _allowed(numbers: list[int]) -> list[Step]:
    """One test for each; a jump spans 255 steps at most, and there are far fewer."""
    tests = [Step(code=JUMP_IF_EQUAL, value=each, then=len(numbers) - at) for at, each in enumerate(numbers)]
    return [*tests, Step(code=JUMP, value=1), Step(code=RETURN, value=ALLOW)]


def _refused() -> list[Step]:
    young = Step(code=JUMP_IF_LEAST, value=syscalls.FIRST_YOUNG_CALL, then=1)
    return [young, _refusal(errno.EPERM), _refusal(errno.ENOSYS)]


def _weighed(call: str) -> list[Step]:
    match call:
        case "open":
            return _unless_set(1, TO_CHANGE_A_FILE)
        case "openat":
            return _unless_set(2, TO_CHANGE_A_FILE)
        case "clone":
            return _if_set(0, A_THREAD)
        case "kill" | "tgkill":
            return _if_among(0, (ITSELF,))
        case "prctl":
            return _if_among(0, NAMES_OF_THREADS)
        case "prlimit64":
            return _if_among(0, (0,))
        case "fcntl":
            return _if_among(1, PLAIN_FCNTL)
        case "ioctl":
            return _if_among(1, PLAIN_IOCTL)
        case "socketpair":
            return _if_among(0, (AF_UNIX,))
    raise AssertionError(f"nobody says how to weigh {call}")


def _load(argument: int) -> Step:
    """The lower half of an argument; the kernel itself reads no more of the ones weighed here."""
    return Step(code=LOAD, value=AT_ARGUMENTS + 8 * argument)


def _refusal(code: int) -> Step:
    return Step(code=RETURN, value=REFUSE | code)


def _if_set(argument: int, bits: int) -> list[Step]:
    test = Step(code=JUMP_IF_SET, value=bits, otherwise=1)
    return [_load(argument), test, Step(code=RETURN, value=ALLOW), _refusal(errno.EPERM)]


def _unless_set(argument: int, bits: int) -> list[Step]:
    test = Step(code=JUMP_IF_SET, value=bits, then=1)
    return [_load(argument), test, Step(code=RETURN, value=ALLOW), _refusal(errno.EACCES)]


def _if_among(argument: int, values: tuple[int, ...]) -> list[Step]:
    tests = [Step(code=JUMP_IF_EQUAL, value=each, then=len(values) - at) for at, each in enumerate(values)]
    return [_load(argument), *tests, _refusal(errno.EPERM), Step(code=RETURN, value=ALLOW)]
