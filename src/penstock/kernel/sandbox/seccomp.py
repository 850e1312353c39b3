"""The seccomp filter that every child installs before it runs untrusted work.

It is an allow-list as a short classic BPF program: allow the system calls in the table, check one argument of a few,
and refuse the rest. A refused call fails with EPERM; recent ones fail with ENOSYS, because libraries then fall back to
older calls that are in the table. A call with the ABI of another architecture kills the process.
"""

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

from penstock.kernel.sandbox import linux, syscalls

ARCHITECTURES = {"x86_64": (syscalls.X86_64, 0xC000003E), "aarch64": (syscalls.AARCH64, 0xC00000B7)}

LOAD, JUMP_IF_EQUAL, JUMP_IF_GREATER_EQUAL, JUMP_IF_SET, JUMP, RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CLONE_THREAD = 0x10000
AF_UNIX = 1
OWN_PID = -1  # placeholder for the pid, which is filled in on install
ALLOWED_PRCTL = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
ALLOWED_FCNTL = (0, 1, 2, 3, 4, 1030)  # duplicate a descriptor, get and set its flags; no owner to be signalled
ALLOWED_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIO*CLEX


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One BPF instruction; jump targets count how many of the following instructions are skipped."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0

    def packed(self) -> bytes:
        """The instruction as struct sock_filter."""
        return struct.pack("=HBBI", self.code, self.then, self.otherwise, 0 if self.value == OWN_PID else self.value)


class SeccompFilter:
    """The program, complete but for the pid of the process that installs it."""

    def __init__(self, program: list[Instruction]) -> None:
        self.program = tuple(program)
        self._pid_offsets = [8 * at + 4 for at, step in enumerate(program) if step.value == OWN_PID]
        self._code = ctypes.create_string_buffer(b"".join(step.packed() for step in program), 8 * len(program))
        header = struct.pack("@HP", len(program), ctypes.addressof(self._code))
        self._sock_fprog = ctypes.create_string_buffer(header)

    def install(self) -> None:
        """Apply the filter to this process, irrevocably."""
        for offset in self._pid_offsets:
            struct.pack_into("=I", self._code, offset, os.getpid())
        linux.prctl(linux.PR_SET_SECCOMP, linux.SECCOMP_MODE_FILTER, self._sock_fprog)


def build(machine: str, *, allow_socketpair: bool = False) -> SeccompFilter | None:
    """The filter for an architecture; None for one that is not in the table."""
    known = ARCHITECTURES.get(machine)
    if known is None:
        return None
    architecture, name = known
    program = [
        Instruction(code=LOAD, value=AT_ARCHITECTURE),
        Instruction(code=JUMP_IF_EQUAL, value=name, then=1),
        Instruction(code=RETURN, value=KILL),
        Instruction(code=LOAD, value=AT_NUMBER),
        *_allow(list(_numbers(syscalls.ALLOWED, architecture).values())),
    ]
    table = syscalls.CONDITIONAL | (syscalls.SOCKETPAIR if allow_socketpair else {})
    for call, number in _numbers(table, architecture).items():
        check = _argument_check(call)
        program += [Instruction(code=JUMP_IF_EQUAL, value=number, otherwise=len(check)), *check]
    return SeccompFilter([*program, *_refuse_rest()])


def _numbers(calls: syscalls.Table, architecture: int) -> dict[str, int]:
    return {name: number for name, pair in calls.items() if (number := pair[architecture]) is not None}


def _allow(numbers: list[int]) -> list[Instruction]:
    """One test per number; a jump spans at most 255 instructions, and there are far fewer."""
    tests = [Instruction(code=JUMP_IF_EQUAL, value=each, then=len(numbers) - at) for at, each in enumerate(numbers)]
    return [*tests, Instruction(code=JUMP, value=1), Instruction(code=RETURN, value=ALLOW)]


def _refuse_rest() -> list[Instruction]:
    recent = Instruction(code=JUMP_IF_GREATER_EQUAL, value=syscalls.FIRST_RECENT_CALL, then=1)
    return [recent, _refusal(errno.EPERM), _refusal(errno.ENOSYS)]


def _argument_check(call: str) -> list[Instruction]:
    match call:
        case "open":
            return _unless_set(1, WRITE_FLAGS)
        case "openat":
            return _unless_set(2, WRITE_FLAGS)
        case "clone":
            return _if_set(0, CLONE_THREAD)
        case "kill" | "tgkill":
            return _if_in(0, (OWN_PID,))
        case "prctl":
            return _if_in(0, ALLOWED_PRCTL)
        case "prlimit64":
            return _if_in(0, (0,))
        case "fcntl":
            return _if_in(1, ALLOWED_FCNTL)
        case "ioctl":
            return _if_in(1, ALLOWED_IOCTL)
        case "socketpair":
            return _if_in(0, (AF_UNIX,))
    raise AssertionError(f"no argument check for {call}")


def _load(argument: int) -> Instruction:
    """Load the lower half of an argument; the kernel reads no more of those that are checked here."""
    return Instruction(code=LOAD, value=AT_ARGUMENTS + 8 * argument)


def _refusal(code: int) -> Instruction:
    return Instruction(code=RETURN, value=REFUSE | code)


def _if_set(argument: int, bits: int) -> list[Instruction]:
    test = Instruction(code=JUMP_IF_SET, value=bits, otherwise=1)
    return [_load(argument), test, Instruction(code=RETURN, value=ALLOW), _refusal(errno.EPERM)]


def _unless_set(argument: int, bits: int) -> list[Instruction]:
    test = Instruction(code=JUMP_IF_SET, value=bits, then=1)
    return [_load(argument), test, Instruction(code=RETURN, value=ALLOW), _refusal(errno.EACCES)]


def _if_in(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [Instruction(code=JUMP_IF_EQUAL, value=each, then=len(values) - at) for at, each in enumerate(values)]
    return [_load(argument), *tests, _refusal(errno.EPERM), Instruction(code=RETURN, value=ALLOW)]
