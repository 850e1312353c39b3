"""Server-sent events: a subscription as a response that does not end.

A stream begins with `retry:` and the id it starts after, so that a client that is cut before its first event still
knows where to go on. Then come the events, and a comment whenever it was silent for a while. It ends when the client
leaves, when the hub closes, and when the caller may no longer watch, which is asked again every so often.

A client that does not read: the server stops taking what we send when about half a megabyte waits for it, so `send`
does not return and the subscription's queue overflows, nothing else. The stream keeps its place and is not ended for
that: the server would keep the connection all the same, and it would no longer be counted by anyone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from fastapi import Response
from starlette.types import Receive, Scope, Send

from penstock.kernel.events import Interest
from penstock.kernel.hub import Hub
from penstock.kernel.subscription import Subscription

RETRY_MILLISECONDS = 3000
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would collect events before passing them on
ALIVE = b": alive\n\n"
STOPPING = b": this server stops; come back and go on\n\n"
NOT_ALLOWED = b": the caller may no longer watch\n\n"


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What a stream shows to whom. `allowed` tells whether the caller may still watch it."""

    interest: Interest
    tenant: str
    after: int | None
    allowed: Callable[[], Awaitable[bool]]


class EventStream(Response):
    """The response. It subscribes when it is sent and not before, so that none that is never sent keeps a place."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, watch: Watch) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._watch = watch

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until it ends. What keeps it from beginning is raised, and answered as any other error."""
        watch = self._watch
        async with self._hub.subscribed(watch.interest, tenant=watch.tenant, after=watch.after) as subscription:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sending = asyncio.create_task(self._send(subscription, send))
            leaving = asyncio.create_task(_until_gone(receive))
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                sending.cancel()
                await asyncio.wait((sending, leaving))
        if not sending.cancelled():
            sending.result()

    async def _send(self, subscription: Subscription, send: Send) -> None:
        async for text in self._text(subscription):
            await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _text(self, subscription: Subscription) -> AsyncIterator[bytes]:
        yield b"retry: %d\nid: %d\n\n" % (RETRY_MILLISECONDS, max(subscription.after, 0))
        time, pause = asyncio.get_running_loop().time, self._hub.keepalive_seconds
        ask_at = time() + pause
        while not subscription.closed:
            batch = await subscription.take(seconds=pause)
            if time() >= ask_at:
                if not await self._watch.allowed():
                    yield NOT_ALLOWED
                    return
                ask_at = time() + pause
            if batch is not None:
                yield batch.text
            elif not subscription.closed:
                yield ALIVE
        yield STOPPING


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
