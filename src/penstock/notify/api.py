"""The routes of webhooks. A secret is only in the response that creates it."""

from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Path, Query, Request, status
from pydantic import BaseModel, ConfigDict, Field

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.notify import store, webhooks
from penstock.notify.deliver import resend
from penstock.notify.deps import Deps
from penstock.notify.domain import ALL_CHANNELS, MAX_URL_CHARACTERS, DeliveryNotFound, DeliveryState, Webhook

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
ID = r"^[A-Za-z0-9_]+$"  # valid in both databases

WebhookId = Annotated[str, Path(pattern=ID, max_length=64)]
DeliveryId = Annotated[str, Path(pattern=ID, max_length=64)]
After = Annotated[str | None, Query(pattern=ID, max_length=64, description="The `next` of the previous page.")]
PageSize = Annotated[int, Query(ge=1, le=100)]
Url = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]
Channels = Annotated[list[Annotated[str, Field(max_length=100)]], Field(min_length=1, max_length=100)]


async def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.notify
    return deps


NotifyDeps = Annotated[Deps, Depends(_deps)]


class NewWebhook(BaseModel):
    """A webhook to create."""

    model_config = ConfigDict(extra="forbid")

    url: Url
    channels: Channels = [ALL_CHANNELS]


class WebhookChanges(BaseModel):
    """Changes to a webhook; absent fields stay."""

    model_config = ConfigDict(extra="forbid")

    url: Url | None = None
    channels: Channels | None = None
    active: bool | None = None


class WebhookView(BaseModel):
    """A webhook without its secret."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    url: str = Field(description="Of a colleague's webhook only scheme and host are shown: the path may hold a secret.")
    channels: list[str]
    active: bool
    disabled_reason: str | None
    failing_since: datetime | None
    failed_in_row: int
    previous_until: datetime | None = Field(description="Until then the previous secret signs as well.")
    user_id: int
    merchant_id: int | None
    sees_all: bool
    created_at: datetime
    created_by: str

    @classmethod
    def of(cls, webhook: Webhook, caller: Caller) -> Self:
        """A webhook as this caller may see it."""
        shown = cls.model_validate(webhook)
        if not webhook.belongs_to(caller):
            shown.url = f"{webhook.url.partition('://')[0]}://{webhook.host}"
        return shown


class WebhookWithSecret(WebhookView):
    """A webhook with its new secret, which is shown only once."""

    secret: str


class WebhookPage(BaseModel):
    """A page of webhooks, by id."""

    items: list[WebhookView]
    next: str | None


class DeliveryView(BaseModel):
    """A delivery with the outcome of its last attempt."""

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
    """A delivery with its body."""

    body: str


class DeliveryPage(BaseModel):
    """A page of deliveries, newest first."""

    items: list[DeliveryView]
    next: str | None


class Accepted(BaseModel):
    """Accepted; the deliveries show the outcome."""

    status: Literal["accepted"] = "accepted"


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses={409: {"description": "The limit of webhooks is reached."}},
    **requires(Scope.WRITE),
)
async def add_webhook(new: NewWebhook, caller: CurrentCaller, deps: NotifyDeps) -> WebhookWithSecret:
    """Create a webhook. Its secret is shown only in this response."""
    await webhooks.check_target(deps, url=new.url, channels=new.channels)
    async with deps.db.tx(actor=caller.name) as tx:
        added = await webhooks.add(tx, caller, url=new.url, channels=new.channels)
    return WebhookWithSecret.model_validate(added)


@router.get("", **requires(Scope.READ))
async def list_webhooks(
    caller: CurrentCaller, deps: NotifyDeps, after: After = None, limit: PageSize = 50
) -> WebhookPage:
    """List the webhooks of the caller and of their merchant; an admin sees all. Only its creator may use one."""
    async with deps.db.read() as tx:
        found = await store.list_webhooks(tx, caller=caller, after=after or "", limit=limit)
    last = found[-1].id if len(found) == limit else None
    return WebhookPage(items=[WebhookView.of(webhook, caller) for webhook in found], next=last)


@router.get("/{webhook_id}", **requires(Scope.READ))
async def get_webhook(webhook_id: WebhookId, caller: CurrentCaller, deps: NotifyDeps) -> WebhookView:
    """Get a webhook."""
    async with deps.db.read() as tx:
        return WebhookView.of(await store.get_webhook(tx, webhook_id, caller=caller), caller)


@router.patch("/{webhook_id}", **requires(Scope.WRITE))
async def change_webhook(
    webhook_id: WebhookId, body: WebhookChanges, caller: CurrentCaller, deps: NotifyDeps
) -> WebhookView:
    """Change the URL or the channels of a webhook, or enable or disable it."""
    async with deps.db.read() as tx:  # before the DNS lookup: only the owner may cause one
        await store.get_own_webhook(tx, webhook_id, caller=caller)
    await webhooks.check_target(deps, url=body.url, channels=body.channels)
    async with deps.db.tx(actor=caller.name) as tx:
        changed = await webhooks.change(
            tx, caller, webhook_id, url=body.url, channels=body.channels, active=body.active
        )
    return WebhookView.model_validate(changed)


@router.delete("/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT, **requires(Scope.WRITE))
async def remove_webhook(webhook_id: WebhookId, caller: CurrentCaller, deps: NotifyDeps) -> None:
    """Remove a webhook and its deliveries."""
    async with deps.db.tx(actor=caller.name) as tx:
        await webhooks.remove(tx, deps, caller, webhook_id)


@router.post("/{webhook_id}/rotate-secret", **requires(Scope.WRITE))
async def rotate_secret(webhook_id: WebhookId, caller: CurrentCaller, deps: NotifyDeps) -> WebhookWithSecret:
    """Create a new secret, shown only in this response. For a day the old one signs as well."""
    async with deps.db.tx(actor=caller.name) as tx:
        rotated = await webhooks.rotate_secret(tx, caller, webhook_id)
    return WebhookWithSecret.model_validate(rotated)


@router.post("/{webhook_id}/ping", status_code=status.HTTP_202_ACCEPTED, **requires(Scope.WRITE))
async def ping_webhook(webhook_id: WebhookId, caller: CurrentCaller, deps: NotifyDeps) -> Accepted:
    """Send a WebhookPing to this webhook only."""
    async with deps.db.tx(actor=caller.name) as tx:
        await webhooks.ping(tx, caller, webhook_id)
    return Accepted()


@router.get("/{webhook_id}/deliveries", **requires(Scope.READ))
async def list_deliveries(
    webhook_id: WebhookId,
    caller: CurrentCaller,
    deps: NotifyDeps,
    state: DeliveryState | None = None,
    after: After = None,
    limit: PageSize = 50,
) -> DeliveryPage:
    """List the deliveries of a webhook, newest first."""
    async with deps.db.read() as tx:
        await store.get_own_webhook(tx, webhook_id, caller=caller)
        found = await store.list_deliveries(tx, webhook_id, state=state, before=after or "", limit=limit)
    last = found[-1].id if len(found) == limit else None
    return DeliveryPage(items=[DeliveryView.model_validate(delivery) for delivery in found], next=last)


@router.get("/{webhook_id}/deliveries/{delivery_id}", **requires(Scope.READ))
async def get_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, caller: CurrentCaller, deps: NotifyDeps
) -> DeliveryWithBody:
    """Get a delivery with its body."""
    async with deps.db.read() as tx:
        await store.get_own_webhook(tx, webhook_id, caller=caller)
        delivery = await store.get_delivery(tx, webhook_id, delivery_id)
        body = await store.find_body(tx, delivery)
    if body is None:
        raise DeliveryNotFound(id=delivery_id)
    return DeliveryWithBody(**DeliveryView.model_validate(delivery).model_dump(), body=body)


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/resend", status_code=status.HTTP_202_ACCEPTED, **requires(Scope.WRITE)
)
async def resend_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, caller: CurrentCaller, deps: NotifyDeps
) -> DeliveryView:
    """Send a delivery again now, whatever its state, with its attempts reset."""
    async with deps.db.tx(actor=caller.name) as tx:
        resent = await resend(tx, deps, caller, webhook_id, delivery_id)
    return DeliveryView.model_validate(resent)
