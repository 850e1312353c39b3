"""Routes of dead letters for operators: messages of the outbox whose delivery failed for good."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query, status
from pydantic import BaseModel, ConfigDict, Field

from penstock.access import audit
from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.fields import NO_CONTROLS
from penstock.kernel.outbox import (
    DeadLetterFilter,
    get_dead_letter,
    list_dead_letters,
    resend,
    resend_dead_letters,
)
from penstock.web.ops.params import After, BulkSelection, PageSize, Since, Until, Word, ops_router

router = ops_router("messages")

MessageId = Annotated[str, Path(min_length=1, max_length=255, pattern=NO_CONTROLS)]
ErrorText = Annotated[Word | None, Query(description="Only those whose error contains this text.")]


class DeadLetterView(BaseModel):
    """A message that could not be delivered."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    channel: str = Field(description="The class of the message.")
    dedup_key: str
    attempts: int
    error: str
    created_at: datetime
    died_at: datetime


class DeadLetterWithPayload(DeadLetterView):
    """A dead letter with its payload."""

    hops: int = Field(description="How many messages led to this one, each sent by the handler of the one before.")
    payload: dict[str, Any]


class DeadLetterPage(BaseModel):
    """A page of dead letters, newest message first."""

    items: list[DeadLetterView]
    next: str | None


class DeadLetters(BulkSelection):
    """Which dead letters to send again."""

    channel: Word | None = None
    error: Word | None = Field(default=None, description="Only those whose error contains this text.")


class MessagesResent(BaseModel):
    """What a bulk resend did."""

    resent: int
    more: bool = Field(description="Whether there may be more: repeat the call with this `until`.")
    until: datetime


class MessageResent(BaseModel):
    """The message waits for delivery again."""

    id: str


@router.get("/messages", summary="List dead letters", **requires(Scope.ADMIN))
async def list_messages(
    *,
    db: DbHere,
    channel: Word | None = None,
    error: ErrorText = None,
    since: Since = None,
    until: Until = None,
    after: After = None,
    limit: PageSize = 50,
) -> DeadLetterPage:
    """List the messages whose delivery failed for good."""
    chosen = DeadLetterFilter(channel=channel, error=error, since=since, until=until)
    async with db.read() as tx:
        found = await list_dead_letters(tx, chosen, before=after, limit=limit)
    last = found[-1].id if len(found) == limit else None
    return DeadLetterPage(items=[DeadLetterView.model_validate(letter) for letter in found], next=last)


@router.post("/messages/resend", summary="Resend dead letters by filter", **requires(Scope.ADMIN))
async def resend_messages(body: DeadLetters, caller: CurrentCaller, db: DbHere) -> MessagesResent:
    """Send up to `limit` dead letters again, the oldest first, with their attempts reset."""
    filters = body.filters()
    async with db.tx(actor=caller.name) as tx:
        until = filters.setdefault("until", tx.now)
        chosen = DeadLetterFilter(**filters)
        resent = await resend_dead_letters(tx, chosen, limit=body.limit)
        await audit.record(tx, caller, "message.resend_many", "messages", count=len(resent), **chosen.shown())
    return MessagesResent(resent=len(resent), more=len(resent) == body.limit, until=until)


@router.get("/messages/{message_id}", summary="Get a dead letter", **requires(Scope.ADMIN))
async def get_message(message_id: MessageId, db: DbHere) -> DeadLetterWithPayload:
    """Get a dead letter with its payload."""
    async with db.read() as tx:
        letter = await get_dead_letter(tx, message_id)
    return DeadLetterWithPayload.model_validate(letter)


@router.post(
    "/messages/{message_id}/resend",
    summary="Resend a dead letter",
    status_code=status.HTTP_202_ACCEPTED,
    **requires(Scope.ADMIN),
)
async def resend_message(message_id: MessageId, caller: CurrentCaller, db: DbHere) -> MessageResent:
    """Send a dead letter again with its attempts reset."""
    async with db.tx(actor=caller.name) as tx:
        await resend(tx, message_id)
        await audit.record(tx, caller, "message.resend", f"message:{message_id}")
    return MessageResent(id=message_id)
