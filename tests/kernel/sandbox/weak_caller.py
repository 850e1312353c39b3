"""A process that runs as on a machine without isolation: a filter refuses seccomp, Landlock and namespaces to it."""

import asyncio
import errno
import json
import logging
import platform

from penstock.kernel.errors import PenstockError
from penstock.kernel.sandbox import landlock, linux, seccomp, syscalls
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.seccomp import Instruction
from tests.kernel.sandbox import payloads

UNSHARE = (272, 97)
TIGHT = SandboxLimits(memory_bytes=64 * 1024 * 1024, seconds=0.5)


def refuse_guards() -> None:
    """Install a filter that answers as a kernel without these features does."""
    architecture, _ = seccomp.ARCHITECTURES[platform.machine()]
    refusal = Instruction(code=seccomp.RETURN, value=seccomp.REFUSE | errno.ENOSYS)
    refused = [
        step
        for number in (landlock.CREATE_RULESET, UNSHARE[architecture])
        for step in (Instruction(code=seccomp.JUMP_IF_EQUAL, value=number, otherwise=1), refusal)
    ]
    control = syscalls.CONDITIONAL["prctl"][architecture]
    assert control is not None
    linux.set_no_new_privileges()
    seccomp.SeccompFilter(
        [
            Instruction(code=seccomp.LOAD, value=seccomp.AT_NUMBER),
            *refused,
            Instruction(code=seccomp.JUMP_IF_EQUAL, value=control, otherwise=3),
            Instruction(code=seccomp.LOAD, value=seccomp.AT_ARGUMENTS),
            Instruction(code=seccomp.JUMP_IF_EQUAL, value=linux.PR_SET_SECCOMP, otherwise=1),
            refusal,
            Instruction(code=seccomp.RETURN, value=seccomp.ALLOW),
        ]
    ).install()


async def main() -> None:
    async with Sandbox(preload=[payloads.__name__]) as sandbox:
        report = {
            "missing": (await sandbox.guards()).missing,
            "value": await sandbox.run(payloads.echo, 1),
            "ends": [
                await end_of(sandbox, each) for each in (payloads.hang_deaf, payloads.allocate, payloads.segfault)
            ],
            "orphan": await sandbox.run(payloads.leave_a_child_behind, limits=TIGHT),
        }
    print(json.dumps(report))  # noqa: T201  (the test reads it)


async def end_of(sandbox: Sandbox, function) -> str:
    try:
        return repr(await sandbox.run(function, limits=TIGHT))
    except PenstockError as error:
        return error.code


if __name__ == "__main__":
    logging.basicConfig()
    refuse_guards()
    asyncio.run(main())
