"""The routes of events: a live stream, and the same events as pages for those who rather ask.

Admins see everyone's events. Others see those of their own audiences; a topic narrows that, and never widens it.
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
from penstock.kernel.events import MOST_ID, NAME, Interest, list_events, oldest_id
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.sse import EventStream, Watch
from penstock.kernel.hub import Hub

router = APIRouter(prefix="/api/v1", tags=["events"])

DIGITS = re.compile("[0-9]{1,19}")
MOST_AT_ONCE = 1000
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "Server-sent events. `id` grows; come back with the last one in `Last-Event-ID`, and nothing is lost or "
            "told twice. `event` is the kind, `data` one line of JSON: the event's own fields, `topic` and `at`. "
            "`event: reset` with `{oldest}` says that events before the id `oldest` are no longer kept and some may be "
            "missing: read the state of what you watch again. Lines that begin with a colon only show that the stream "
            "lives. When it ends, connect again."
        ),
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 42\nevent: page_done\ndata: {"page":3,"topic":"job:7","at":"2026-01-01T00:00:00Z"}\n\n',
            }
        },
    },
    429: {"description": "As many streams are open, here or for this tenant, as may be."},
}


class BadEventQuery(Invalid):
    """A stream or a page of events was asked for by an id or a topic that cannot be one."""

    code = "BAD_EVENT_QUERY"
    message = "{name} is {value!r}, which cannot be."
    message_zh = "{name} 的值 {value!r} 无效。"
    hint = "Ids are the numbers that events carry; topics are short names such as job:7."
    hint_zh = "编号是事件所带的数字；主题是形如 job:7 的名称。"


class EventShown(BaseModel):
    """One event."""

    id: int = Field(description="Grows in the order in which events became visible.")
    topic: str
    kind: str
    at: datetime
    data: dict[str, Any]


class EventPage(BaseModel):
    """Some events, oldest first."""

    events: Sequence[EventShown]
    next: int = Field(description="Give it as `after` to go on; while there is nothing new it stays as it is.")
    oldest: int = Field(description="The id of the oldest event that is still kept; 0 when there never was one.")
    missed: bool = Field(description="Whether events after `after` may have been deleted before this page was read.")


async def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


async def _topic(topic: Annotated[str | None, Query(description="Only events of this thing.")] = None) -> str | None:
    if topic is not None and not NAME.fullmatch(topic):
        raise BadEventQuery(name="topic", value=topic[:50])
    return topic


async def _last_seen(
    last_event_id: Annotated[str, Query(description="Where to go on, if there is no header.")] = "",
    last_event_header: Annotated[str, Header(alias="Last-Event-ID", description="The id of the last event seen.")] = "",
) -> int | None:
    """The header first: a browser that comes back sends it, beside the address that it began with."""
    text = last_event_header or last_event_id
    return _number("Last-Event-ID", text) if text else None


async def _after(after: Annotated[str, Query(description="The id of the last event seen.")] = "0") -> int:
    return _number("after", after)


def _number(name: str, text: str) -> int:
    if DIGITS.fullmatch(text) and (number := int(text)) <= MOST_ID:
        return number
    raise BadEventQuery(name=name, value=text[:50])


HubHere = Annotated[Hub, Depends(_hub)]
TopicHere = Annotated[str | None, Depends(_topic)]
LastSeenHere = Annotated[int | None, Depends(_last_seen)]
AfterHere = Annotated[int, Depends(_after)]


@router.get(
    "/events",
    summary="Watch events as they happen",
    status_code=200,
    response_class=EventStream,
    responses=STREAM,
    **requires(Scope.READ, bound=True),
)
async def watch_events(
    request: Request, caller: CurrentCaller, hub: HubHere, topic: TopicHere, last_seen: LastSeenHere
) -> EventStream:
    """Events from now on, or after the last one seen, for as long as the connection is kept."""
    interest = _interest(caller, topic)
    allowed = _still_allowed(request, interest)
    return EventStream(hub, Watch(interest=interest, tenant=caller.tenant, after=last_seen, allowed=allowed))


@router.get("/events/log", summary="Read events page by page", **requires(Scope.READ, bound=True))
async def list_past_events(
    caller: CurrentCaller,
    db: DbHere,
    topic: TopicHere,
    after: AfterHere,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> EventPage:
    """Events after an id."""
    async with db.read() as tx:
        found = await list_events(tx, _interest(caller, topic), after=after, limit=limit)
        oldest = await oldest_id(tx)  # after the page: what it says to be kept was kept when the page was read
    return EventPage(
        events=[EventShown(id=e.id, topic=e.topic, kind=e.kind, at=e.at, data=e.data) for e in found],
        next=found[-1].id if found else after,
        oldest=oldest,
        missed=oldest > after + 1,
    )


def _interest(caller: Caller, topic: str | None) -> Interest:
    return Interest(topic=topic, audiences=None if caller.is_admin else frozenset(caller.audiences))


def _still_allowed(request: Request, interest: Interest) -> Callable[[], Awaitable[bool]]:
    """Asks the door again: a key that was revoked, or lost what it saw, must not go on watching."""

    async def ask() -> bool:
        try:
            caller: Caller = await request.app.state.access.authorize(request, Scope.READ, bound=True)
        except (Unauthenticated, Refused):
            return False
        except PenstockError:
            return True  # what knows callers is away, and so are events: it will be asked again
        return _interest(caller, interest.topic) == interest

    return ask
