"""A process that waits for hanging children until it is killed."""

import asyncio

from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits
from tests.kernel.sandbox import payloads

CALLS = 3
SHORT = SandboxLimits(seconds=0.2)


async def main() -> None:
    async with Sandbox(preload=[payloads.__name__]) as sandbox:
        await asyncio.gather(
            *(sandbox.run(payloads.hang_deaf, limits=SandboxLimits(seconds=600)) for _ in range(CALLS))
        )


if __name__ == "__main__":
    asyncio.run(main())
