"""A second event loop, in a thread of its own, for transactions that compute for long.

A transaction that compares and writes twenty thousand rows keeps its event loop busy for seconds, and every other
request of the process would wait for it. `SideLoop.run` runs it on another loop, with database connections of its own.
The threads take turns every few milliseconds, so the first loop stays responsive.

What a commit triggers (metrics, wake-ups) runs on the first loop, as after any other transaction.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.kernel.db import Db

T = TypeVar("T")
Work = Callable[[Db], Coroutine[Any, Any, T]]


class SideLoop:
    """Runs long transactions of one process. The thread starts with the first one."""

    def __init__(self, db: Db, open_db: Callable[[], Db]) -> None:
        self._db = db
        self._open_db = open_db
        self._loop: asyncio.AbstractEventLoop | None = None
        self._side_db: Db | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Work[T]) -> T:
        """The result of `work`, which gets a database of its own. A cancelled caller cancels it."""
        async with self._db.writer_turn():
            return await self._run(work)

    async def _run(self, work: Work[T]) -> T:
        loop, side_db = self._started()
        result: Future[T] = Future()
        context = contextvars.copy_context()  # log lines of the work carry the id of the request

        def begin() -> None:
            task = loop.create_task(work(side_db), context=context)
            task.add_done_callback(lambda done: _hand_over(done, result))
            result.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel) if result.cancelled() else None)

        loop.call_soon_threadsafe(begin)
        return await asyncio.wrap_future(result)

    async def close(self) -> None:
        """Close its connections and end its thread."""
        loop, side_db, thread = self._loop, self._side_db, self._thread
        if loop is None or side_db is None or thread is None:
            return
        self._loop = self._side_db = self._thread = None
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(side_db.close(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    def _started(self) -> tuple[asyncio.AbstractEventLoop, Db]:
        if self._loop is None or self._side_db is None:
            self._loop, self._side_db = asyncio.new_event_loop(), self._open_db()
            self._side_db.report_commits_to(self._db, asyncio.get_running_loop())
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="side-loop", daemon=True)
            self._thread.start()
        return self._loop, self._side_db


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _hand_over(done: asyncio.Task[T], result: Future[T]) -> None:
    """Hand the outcome of a task over to the thread that waits for it."""
    if done.cancelled():
        result.cancel()
    elif result.set_running_or_notify_cancel():
        error = done.exception()
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())
    else:
        done.exception()  # the caller is gone; marks it retrieved
