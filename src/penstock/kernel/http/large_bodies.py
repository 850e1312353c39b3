"""Large JSON bodies: one at a time in a process, and parsed and validated in a thread.

A push of twenty thousand tasks takes seconds of CPU. Several at once would keep all their objects in memory, and every
small request would wait for each of them. So a request with a large body waits for its turn, and is refused when too
many wait already.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from penstock.kernel.errors import Unavailable
from penstock.kernel.http.envelope import EnvelopeRoute, from_validation
from penstock.kernel.http.request_body import PARSED_JSON

MAX_WAITING = 8  # about half a minute of work
# A full garbage collection stops the process for 0.25 s while a million objects of a large request exist, and none of
# them is garbage. It is put off until the request is over.
NO_FULL_COLLECTION = 1_000_000


class LargeRequestsBusy(Unavailable):
    """Too many requests with a large body are waiting."""

    code = "LARGE_REQUESTS_BUSY"
    message = "The server is busy with large requests; {waiting} are waiting."
    message_zh = "服务器正在处理大型请求，另有 {waiting} 个在等待。"
    hint = "Send it again after Retry-After, or split it into smaller requests."
    hint_zh = "请在 Retry-After 之后重试，或拆分为更小的请求。"
    retry_seconds = 5


class LargeBodies:
    """The turns of requests with a large body, first come first served."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn. Raises `LargeRequestsBusy`."""
        if self._waiting >= MAX_WAITING:
            raise LargeRequestsBusy(waiting=self._waiting)
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], NO_FULL_COLLECTION)
        try:
            yield
        finally:
            gc.set_threshold(*thresholds)
            self._turn.release()


class LargeBodyRoute(EnvelopeRoute):
    """A route whose body is validated in a thread if it is large. A subclass names the model of the body."""

    model: ClassVar[type[BaseModel]]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler."""
        handle, model = super().get_route_handler(), self.model

        async def respond(request: Request) -> Response:
            parsed = request.scope.get("state", {}).pop(PARSED_JSON, None)
            if parsed is None:
                return await handle(request)
            return await handle(_LargeRequest(request, model, parsed))

        return respond


class _LargeRequest(Request):
    """A request whose JSON is an instance of its model: the framework takes it as it is."""

    def __init__(self, request: Request, model: type[BaseModel], parsed: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._model = model
        self._parsed = parsed

    async def json(self) -> Any:
        """The validated body."""
        parsed, self._parsed = self._parsed, None
        try:
            return await asyncio.to_thread(self._model.model_validate, parsed)
        except ValidationError as error:
            found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
            raise from_validation(RequestValidationError(found)) from error
