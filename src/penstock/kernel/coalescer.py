"""Request coalescing: concurrent calls for the same key share one run, usually one database statement.

While a run for a key is in progress, further calls for that key wait and go into the next batch. A single caller runs
at once; under load one run serves many callers.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

MAX_BATCH = 100  # requests per run, so that a run stays short

RunBatch = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
_Pending = deque[tuple[Any, asyncio.Future[Any]]]


class Coalescer:
    """Batches the calls of one process, by key."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, _Pending] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, key: Hashable, request: Any, run: RunBatch) -> Any:
        """Return the result of one request. `run` gets a batch of requests and returns one result each, in order.

        Callers that share a key must pass a `run` that does the same: the first caller's is used for the whole batch.
        """
        pending = self._pending.get(key)
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if pending is None:
            pending = self._pending[key] = deque([(request, result)])
            task = asyncio.create_task(self._run_all(key, pending, run))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        else:
            pending.append((request, result))
        return await result

    async def drain(self) -> None:
        """Wait until every run in progress has ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def _run_all(self, key: Hashable, pending: _Pending, run: RunBatch) -> None:
        """Run batch after batch until nothing is pending."""
        try:
            while pending:
                await self._run_batch(pending, run)
        finally:
            del self._pending[key]
            for _, result in pending:  # shutting down: nobody else will answer them
                result.cancel()

    async def _run_batch(self, pending: _Pending, run: RunBatch) -> None:
        batch = [pending.popleft() for _ in range(min(len(pending), MAX_BATCH))]
        batch = [(request, result) for request, result in batch if not result.done()]  # the others were cancelled
        if not batch:
            return
        try:
            answers = list(zip(batch, await run([request for request, _ in batch]), strict=True))
        except asyncio.CancelledError:
            for _, result in batch:
                result.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (raised in every caller of the batch)
            for _, result in batch:
                if not result.done():
                    result.set_exception(error)
            return
        for (_, result), value in answers:
            if not result.done():
                result.set_result(value)
