"""The filter, interpreted instruction by instruction as the kernel would, for both architectures."""

import errno
import os

import pytest

from penstock.kernel.sandbox import seccomp, syscalls

ALLOWED = seccomp.ALLOW
NOT_PERMITTED = seccomp.REFUSE | errno.EPERM
NO_ACCESS = seccomp.REFUSE | errno.EACCES
NO_SUCH_CALL = seccomp.REFUSE | errno.ENOSYS
MACHINES = ["x86_64", "aarch64"]
NAMED = {name: pair for table in (syscalls.ALLOWED, syscalls.CONDITIONAL) for name, pair in table.items()}

# Number on x86_64, on aarch64. None where there is no such call.
DANGEROUS = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat2": (316, 276),
    "mkdirat": (258, 34),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fchmod": (91, 52),
    "fchown": (93, 55),
    "setxattr": (188, 5),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "mount": (165, 40),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "setuid": (105, 146),
    "setresuid": (117, 147),
    "capset": (126, 91),
    "setsid": (112, 157),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "seccomp": (317, 277),
    "init_module": (175, 105),
    "reboot": (169, 142),
    "sched_setaffinity": (203, 122),
}
RECENT = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "open_tree": 428,
    "clone3": 435,
    "openat2": 437,
    "landlock": 444,
}


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """The action of a machine's filter for a call, with `OWN_PID` as the pid of the process."""
    built = seccomp.build(machine)
    assert built is not None
    shown = {seccomp.AT_NUMBER: number, seccomp.AT_ARCHITECTURE: architecture or seccomp.ARCHITECTURES[machine][1]}
    shown |= {seccomp.AT_ARGUMENTS + 8 * at: argument for at, argument in enumerate(arguments)}
    loaded, at = 0, 0
    while True:
        step = built.program[at]
        at += 1
        match step.code:
            case seccomp.LOAD:
                loaded = shown[step.value]
            case seccomp.JUMP_IF_EQUAL:
                at += step.then if loaded == step.value else step.otherwise
            case seccomp.JUMP_IF_GREATER_EQUAL:
                at += step.then if loaded >= step.value else step.otherwise
            case seccomp.JUMP_IF_SET:
                at += step.then if loaded & step.value else step.otherwise
            case seccomp.JUMP:
                at += step.value
            case _:
                return step.value


def number_of(name: str, machine: str) -> int | None:
    return NAMED[name][MACHINES.index(machine)]


@pytest.mark.parametrize("machine", MACHINES)
class TestTheFilter:
    def test_refuses_what_a_pure_function_does_not_need(self, machine: str):
        numbers = {name: pair[MACHINES.index(machine)] for name, pair in DANGEROUS.items()}
        said = {name: verdict(machine, number) for name, number in numbers.items() if number is not None}
        assert said == dict.fromkeys(said, NOT_PERMITTED)

    def test_answers_recent_calls_with_enosys(self, machine: str):
        assert {verdict(machine, number) for number in RECENT.values()} == {NO_SUCH_CALL}
        assert verdict(machine, 10_000) == NO_SUCH_CALL

    def test_allows_harmless_calls(self, machine: str):
        numbers = [pair[MACHINES.index(machine)] for pair in syscalls.ALLOWED.values()]
        assert {verdict(machine, number) for number in numbers if number is not None} == {ALLOWED}

    def test_allows_nothing_else(self, machine: str):
        known = {number_of(name, machine) for name in NAMED}
        others = [number for number in range(600) if number not in known]
        assert {verdict(machine, number) for number in others} == {NOT_PERMITTED, NO_SUCH_CALL}

    def test_allows_opening_files_for_reading_only(self, machine: str):
        number = number_of("openat", machine)
        assert number is not None
        assert verdict(machine, number, 0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY) == ALLOWED
        for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE | os.O_RDWR):
            assert verdict(machine, number, 0, 0, flag) == NO_ACCESS

    def test_allows_threads_but_no_processes(self, machine: str):
        number = number_of("clone", machine)
        assert number is not None
        assert verdict(machine, number, 0x3D0F00) == ALLOWED  # pthread_create
        assert verdict(machine, number, 0x1200011) == NOT_PERMITTED  # fork

    @pytest.mark.parametrize(
        ("name", "good", "bad"),
        [
            ("kill", (seccomp.OWN_PID,), (1,)),
            ("tgkill", (seccomp.OWN_PID,), (1,)),
            ("prlimit64", (0,), (1,)),
            ("prctl", (15,), (1,)),
            ("fcntl", (3, 1030), (3, 8)),
            ("ioctl", (1, 0x5401), (1, 0x40086602)),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_checks_an_argument_of_some_calls(
        self, machine: str, name: str, good: tuple[int, ...], bad: tuple[int, ...]
    ):
        number = number_of(name, machine)
        assert number is not None
        assert verdict(machine, number, *good) == ALLOWED
        assert verdict(machine, number, *bad) == NOT_PERMITTED

    def test_kills_a_process_that_uses_the_abi_of_another_machine(self, machine: str):
        assert verdict(machine, 0, architecture=0x40000003) == seccomp.KILL

    def test_has_every_number_once(self, machine: str):
        numbers = [number for name in NAMED if (number := number_of(name, machine)) is not None]
        assert len(set(numbers)) == len(numbers)


def test_an_unknown_machine_gets_no_filter():
    assert seccomp.build("riscv64") is None
