"""The event routes: a live stream (SSE), and the same events page by page for clients that poll.

A client that resumes after an id whose events were deleted is told of the gap (`reset`, `missed`). Admins see all
events. Others see those of their own audiences; a topic narrows that, and never widens it.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, Field

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.errors import Invalid, PenstockError, Refused, Unauthenticated
from penstock.kernel.events import MAX_ID, NAME, Interest, list_events, oldest_id
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.sse import EventStream
from penstock.kernel.hub import Hub

router = APIRouter(prefix="/api/v1", tags=["events"])

DIGITS = re.compile("[0-9]{1,19}")
MAX_PAGE_SIZE = 1000
MAX_PASSES = 5  # of the sequencer before a page; what is still without an id is on a later page
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "Server-sent events. `id` increases; reconnect with the last one in `Last-Event-ID`, and no event is lost "
            "or repeated. `event` is the kind, `data` one line of JSON: the event's own fields, `topic` and `at`. "
            "`event: reset` with `{oldest}` means that events before the id `oldest` have been deleted and some may be "
            "missing: reload the state of what you watch. Lines that begin with a colon are keepalives. When the "
            "stream ends, reconnect."
        ),
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 42\nevent: page_done\ndata: {"page":3,"topic":"job:7","at":"2026-01-01T00:00:00Z"}\n\n',
            }
        },
    },
    429: {"description": "Too many open streams, on this server or for this tenant."},
}


class BadEventQuery(Invalid):
    """The event id or topic of a request is invalid."""

    code = "BAD_EVENT_QUERY"
    message = "Invalid {name}: {value!r}."
    message_zh = "{name} 的值无效：{value!r}。"
    hint = "Event ids are the integers in `id`; topics are short names such as job:7."
    hint_zh = "事件编号是 `id` 中的整数；主题是形如 job:7 的短名称。"


class EventShown(BaseModel):
    """One event."""

    id: int = Field(description="Increases in the order in which events became visible.")
    topic: str
    kind: str
    at: datetime
    data: dict[str, Any]


class EventPage(BaseModel):
    """A page of events, oldest first."""

    events: Sequence[EventShown]
    next: int = Field(description="Pass it as `after` for the next page; unchanged while there is nothing new.")
    oldest: int = Field(description="The id of the oldest stored event; 0 when there never was one.")
    missed: bool = Field(description="Whether events after `after` may have been deleted before this page was read.")


async def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


async def _topic(topic: Annotated[str | None, Query(description="Only events of this topic.")] = None) -> str | None:
    if topic is not None and not NAME.fullmatch(topic):
        raise BadEventQuery(name="topic", value=topic[:50])
    return topic


async def _last_seen(
    last_event_id: Annotated[str, Query(description="Where to resume, if there is no header.")] = "",
    last_event_header: Annotated[str, Header(alias="Last-Event-ID", description="The id of the last event seen.")] = "",
) -> int | None:
    """The header wins: a browser that reconnects sends it in addition to its original URL."""
    text = last_event_header or last_event_id
    return _event_id("Last-Event-ID", text) if text else None


async def _after(after: Annotated[str, Query(description="The id of the last event seen.")] = "0") -> int:
    return _event_id("after", after)


def _event_id(name: str, text: str) -> int:
    if DIGITS.fullmatch(text) and (event_id := int(text)) <= MAX_ID:
        return event_id
    raise BadEventQuery(name=name, value=text[:50])


HubHere = Annotated[Hub, Depends(_hub)]
TopicHere = Annotated[str | None, Depends(_topic)]
LastSeenHere = Annotated[int | None, Depends(_last_seen)]
AfterHere = Annotated[int, Depends(_after)]


@router.get(
    "/events",
    summary="Stream events",
    status_code=200,
    response_class=EventStream,
    responses=STREAM,
    **requires(Scope.READ, bound=True),
)
async def watch_events(
    request: Request, caller: CurrentCaller, hub: HubHere, topic: TopicHere, last_seen: LastSeenHere
) -> EventStream:
    """Stream events from now on, or after the last one seen, until the client disconnects."""
    interest = _interest(caller, topic)
    has_access = _access_check(request, interest)
    return EventStream(hub, interest, tenant=caller.tenant, after=last_seen, has_access=has_access)


@router.get("/events/log", summary="List past events", **requires(Scope.READ, bound=True))
async def list_past_events(
    caller: CurrentCaller,
    db: DbHere,
    hub: HubHere,
    topic: TopicHere,
    after: AfterHere,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)] = 100,
) -> EventPage:
    """List events after an id."""
    await hub.sequencer.catch_up(max_passes=MAX_PASSES)
    async with db.read() as tx:
        found = await list_events(tx, _interest(caller, topic), after=after, limit=limit)
        oldest = await oldest_id(
            tx
        )  # read after the page, so an event that it reports as stored was stored when the page was read
    return EventPage(
        events=[EventShown(id=e.id, topic=e.topic, kind=e.kind, at=e.at, data=e.data) for e in found],
        next=found[-1].id if found else after,
        oldest=oldest,
        missed=oldest > after + 1,
    )


def _interest(caller: Caller, topic: str | None) -> Interest:
    return Interest(topic=topic, audiences=None if caller.is_admin else frozenset(caller.audiences))


def _access_check(request: Request, interest: Interest) -> Callable[[], Awaitable[bool]]:
    """Authenticates the caller again: a key that was revoked or lost its scope must not go on watching."""

    async def has_access() -> bool:
        try:
            caller: Caller = await request.app.state.access.authorize(request, Scope.READ, bound=True)
        except (Unauthenticated, Refused):
            return False
        except PenstockError:
            return True  # authentication is unavailable, and so are events: checked again later
        return _interest(caller, interest.topic) == interest

    return has_access
