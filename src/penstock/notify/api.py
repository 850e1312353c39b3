"""HTTP for webhooks: shapes and routes. A secret is in the answer that made it, and in no other."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, status
from pydantic import BaseModel, ConfigDict, Field

from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.notify import store, subscribe
from penstock.notify.deps import Deps
from penstock.notify.domain import EVERYTHING, MOST_URL_CHARACTERS, DeliveryNotFound, DeliveryState
from penstock.notify.resend import resend
from penstock.notify.subscribe import Changes

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
ID = r"^[A-Za-z0-9_]+$"  # what no database chokes on

WebhookId = Annotated[str, Path(pattern=ID, max_length=64)]
DeliveryId = Annotated[str, Path(pattern=ID, max_length=64)]
After = Annotated[str | None, Query(pattern=ID, max_length=64, description="The `next` of the page before.")]
PageSize = Annotated[int, Query(ge=1, le=100)]
Url = Annotated[str, Field(min_length=1, max_length=MOST_URL_CHARACTERS)]
Channels = Annotated[list[Annotated[str, Field(max_length=100)]], Field(min_length=1, max_length=100)]


async def _tools(request: Request) -> Deps:
    tools: Deps = request.app.state.notify
    return tools


ToolsHere = Annotated[Deps, Depends(_tools)]


class NewWebhook(BaseModel):
    """A webhook to be made."""

    model_config = ConfigDict(extra="forbid")

    url: Url
    channels: Channels = [EVERYTHING]


class WebhookChanges(BaseModel):
    """What is to be different; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    url: Url | None = None
    channels: Channels | None = None
    active: bool | None = None


class WebhookView(BaseModel):
    """A webhook without its secret."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    url: str
    channels: list[str]
    active: bool
    disabled_reason: str | None
    failing_since: datetime | None
    failed_in_row: int
    previous_until: datetime | None = Field(description="Until then the secret before this one signs as well.")
    user_id: int
    merchant_id: int | None
    sees_all: bool
    created_at: datetime
    created_by: str


class WebhookWithSecret(WebhookView):
    """A webhook whose secret was made just now; it is not shown again."""

    secret: str


class WebhookPage(BaseModel):
    """Some webhooks, by id."""

    items: list[WebhookView]
    next: str | None


class DeliveryView(BaseModel):
    """A delivery with what became of its last try."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    webhook_id: str
    message_id: str
    channel: str
    state: DeliveryState
    attempts: int
    status_code: int | None
    error: str | None
    response: str | None
    created_at: datetime
    last_tried_at: datetime | None
    next_try_at: datetime | None
    finished_at: datetime | None


class DeliveryWithBody(DeliveryView):
    """A delivery with what is posted."""

    body: str


class DeliveryPage(BaseModel):
    """Some deliveries, newest first."""

    items: list[DeliveryView]
    next: str | None


class Accepted(BaseModel):
    """It will be done; the deliveries show how it went."""

    status: Literal["accepted"] = "accepted"


@router.post("", status_code=status.HTTP_201_CREATED, **open_to(Scope.WRITE))
async def add_webhook(new: NewWebhook, caller: CallerHere, tools: ToolsHere) -> WebhookWithSecret:
    """Make a webhook. The answer shows its secret, this once."""
    return WebhookWithSecret.model_validate(await subscribe.add(tools, caller, url=new.url, channels=new.channels))


@router.get("", **open_to(Scope.READ))
async def list_webhooks(caller: CallerHere, tools: ToolsHere, after: After = None, limit: PageSize = 50) -> WebhookPage:
    """The caller's webhooks and their merchant's; an admin sees all."""
    async with tools.db.read() as tx:
        found = await store.list_webhooks(tx, caller=caller, after=after or "", limit=limit)
    last = found[-1].id if len(found) == limit else None
    return WebhookPage(items=[WebhookView.model_validate(webhook) for webhook in found], next=last)


@router.get("/{webhook_id}", **open_to(Scope.READ))
async def get_webhook(webhook_id: WebhookId, caller: CallerHere, tools: ToolsHere) -> WebhookView:
    """One webhook."""
    async with tools.db.read() as tx:
        return WebhookView.model_validate(await store.get_webhook(tx, webhook_id, caller=caller))


@router.patch("/{webhook_id}", **open_to(Scope.WRITE))
async def change_webhook(
    webhook_id: WebhookId, wanted: WebhookChanges, caller: CallerHere, tools: ToolsHere
) -> WebhookView:
    """Change its address or channels, or switch it on or off."""
    changes = Changes(url=wanted.url, channels=wanted.channels, active=wanted.active)
    return WebhookView.model_validate(await subscribe.change(tools, caller, webhook_id, changes))


@router.delete("/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT, **open_to(Scope.WRITE))
async def remove_webhook(webhook_id: WebhookId, caller: CallerHere, tools: ToolsHere) -> None:
    """Remove it with everything that was sent to it."""
    await subscribe.remove(tools, caller, webhook_id)


@router.post("/{webhook_id}/rotate-secret", **open_to(Scope.WRITE))
async def rotate_secret(webhook_id: WebhookId, caller: CallerHere, tools: ToolsHere) -> WebhookWithSecret:
    """Make a new secret and show it, this once. For a day the old one signs as well."""
    return WebhookWithSecret.model_validate(await subscribe.rotate_secret(tools, caller, webhook_id))


@router.post("/{webhook_id}/ping", status_code=status.HTTP_202_ACCEPTED, **open_to(Scope.WRITE))
async def ping_webhook(webhook_id: WebhookId, caller: CallerHere, tools: ToolsHere) -> Accepted:
    """Send a WebhookPing to this webhook alone."""
    await subscribe.ping(tools, caller, webhook_id)
    return Accepted()


@router.get("/{webhook_id}/deliveries", **open_to(Scope.READ))
async def list_deliveries(
    webhook_id: WebhookId,
    caller: CallerHere,
    tools: ToolsHere,
    state: DeliveryState | None = None,
    after: After = None,
    limit: PageSize = 50,
) -> DeliveryPage:
    """What was sent to it, newest first."""
    async with tools.db.read() as tx:
        await store.get_webhook(tx, webhook_id, caller=caller)
        found = await store.list_deliveries(tx, webhook_id, state=state, before=after or "", limit=limit)
    last = found[-1].id if len(found) == limit else None
    return DeliveryPage(items=[DeliveryView.model_validate(delivery) for delivery in found], next=last)


@router.get("/{webhook_id}/deliveries/{delivery_id}", **open_to(Scope.READ))
async def get_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, caller: CallerHere, tools: ToolsHere
) -> DeliveryWithBody:
    """One delivery, with the body that is posted."""
    async with tools.db.read() as tx:
        await store.get_webhook(tx, webhook_id, caller=caller)
        delivery = await store.get_delivery(tx, webhook_id, delivery_id)
        body = await store.find_body(tx, delivery)
    if body is None:
        raise DeliveryNotFound(id=delivery_id)
    return DeliveryWithBody(**DeliveryView.model_validate(delivery).model_dump(), body=body)


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/resend", status_code=status.HTTP_202_ACCEPTED, **open_to(Scope.WRITE)
)
async def resend_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, caller: CallerHere, tools: ToolsHere
) -> DeliveryView:
    """Send it again now, whatever became of it, with its tries counted from nothing."""
    return DeliveryView.model_validate(await resend(tools, caller, webhook_id, delivery_id))
