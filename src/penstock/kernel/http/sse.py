"""Server-sent events: a subscription as a response that does not end.

A stream begins with `retry:` and the id it starts after, so a client that is disconnected before its first event knows
where to resume. Events follow, and a keepalive comment whenever the stream was silent for a while. It ends when the
client disconnects, when the hub closes, and when the caller loses access, which is checked periodically.

A proxy must not buffer event streams, and its idle timeout must be above the keepalive interval
(PENSTOCK_SSE_KEEPALIVE_SECONDS). A client that does not read: the server stops accepting data when about half a
megabyte is buffered for it, so `send` blocks and only the subscription's queue overflows. The stream keeps its slot and
is not ended: the server would keep the connection open anyway, and it would no longer be counted.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import Response
from starlette.types import Receive, Scope, Send

from penstock.kernel.events import Interest
from penstock.kernel.hub import Hub
from penstock.kernel.subscription import Subscription

RETRY_MILLISECONDS = 3000
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would buffer events
KEEPALIVE = b": alive\n\n"
STOPPING = b": the server is shutting down; reconnect to resume\n\n"
ACCESS_REVOKED = b": access revoked\n\n"


class EventStream(Response):
    """A stream of one caller's events. It subscribes when it is sent, so an unsent response takes no slot."""

    media_type = "text/event-stream"

    def __init__(
        self,
        hub: Hub,
        interest: Interest,
        *,
        tenant: str,
        after: int | None,
        has_access: Callable[[], Awaitable[bool]],
    ) -> None:
        """`has_access` tells whether the caller may still see these events."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._interest = interest
        self._tenant = tenant
        self._after = after
        self._has_access = has_access

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream ends. An error before its start is raised, and answered as any other."""
        async with self._hub.subscribed(self._interest, tenant=self._tenant, after=self._after) as subscription:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sending = asyncio.create_task(self._send(subscription, send))
            disconnect = asyncio.create_task(_wait_disconnect(receive))
            try:
                await asyncio.wait((sending, disconnect), return_when=asyncio.FIRST_COMPLETED)
            finally:
                disconnect.cancel()
                sending.cancel()
                await asyncio.wait((sending, disconnect))
        if not sending.cancelled():
            sending.result()

    async def _send(self, subscription: Subscription, send: Send) -> None:
        async for text in self._text(subscription):
            await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _text(self, subscription: Subscription) -> AsyncIterator[bytes]:
        yield b"retry: %d\nid: %d\n\n" % (RETRY_MILLISECONDS, max(subscription.after, 0))
        time, interval = asyncio.get_running_loop().time, self._hub.keepalive_seconds
        next_check = time() + interval
        while not subscription.closed:
            batch = await subscription.take(seconds=interval)
            if time() >= next_check:
                if not await self._has_access():
                    yield ACCESS_REVOKED
                    return
                next_check = time() + interval
            if batch is not None:
                yield batch.text
            elif not subscription.closed:
                yield KEEPALIVE
        yield STOPPING


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
