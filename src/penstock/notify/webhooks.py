"""Create, change, remove and ping webhooks, and rotate their secrets.

A URL is checked when it is set, so that its owner sees an error at once, and again at every request, since DNS records
can change. `check_target` resolves the host name, so callers run it before they open the transaction.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.messages import WebhookPing
from penstock.notify import store
from penstock.notify.delivery_jobs import cleanup_job
from penstock.notify.deps import Deps
from penstock.notify.domain import (
    MAX_WEBHOOKS,
    TooManyWebhooks,
    Webhook,
    WebhookOff,
    check_channels,
    new_secret,
)


async def check_target(deps: Deps, *, url: str | None, channels: Sequence[str] | None) -> None:
    """Raise if a webhook cannot have this URL or these channels; None is not checked. No transaction may be open."""
    if channels is not None:
        check_channels(channels, deps.channels)
    if url is not None:
        await deps.client.check(url)


async def add(tx: Tx, caller: Caller, *, url: str, channels: Sequence[str]) -> Webhook:
    """Create a webhook of the caller. Its secret is shown once, here."""
    new = _new_webhook(tx, caller, url, channels)
    if await store.lock_and_count_webhooks(tx, new) >= MAX_WEBHOOKS:
        raise TooManyWebhooks(most=MAX_WEBHOOKS)
    await store.insert_webhook(tx, new)
    await audit.record(tx, caller, "webhook.add", f"webhook:{new.id}", host=new.host, channels=new.channels)
    return new


async def change(
    tx: Tx,
    caller: Caller,
    webhook_id: str,
    *,
    url: str | None = None,
    channels: Sequence[str] | None = None,
    active: bool | None = None,
) -> Webhook:
    """Change the given fields; None leaves a field unchanged."""
    before = await store.claim_webhook(tx, webhook_id, caller=caller)
    after = _changed(before, url, channels)
    if active is True and not before.active:
        after = after.enabled()
    if active is False and before.active:
        after = after.disabled(f"Disabled by {caller.name}.")
    await store.move_webhook(tx, after)
    shown = {"host": after.host, "channels": after.channels, "active": after.active}
    await audit.record(tx, caller, "webhook.change", f"webhook:{webhook_id}", **shown)
    return after


async def rotate_secret(tx: Tx, caller: Caller, webhook_id: str) -> Webhook:
    """Create a new secret, shown once, here; during a grace period of 24 hours the old one signs as well."""
    before = await store.claim_webhook(tx, webhook_id, caller=caller)
    after = before.with_new_secret(now=tx.now)
    await store.move_webhook(tx, after)
    await audit.record(tx, caller, "webhook.rotate_secret", f"webhook:{webhook_id}")
    return after


async def remove(tx: Tx, deps: Deps, caller: Caller, webhook_id: str) -> None:
    """Delete a webhook and its secrets now, and its deliveries in a job, since there may be many."""
    await store.claim_webhook(tx, webhook_id, caller=caller)
    await store.delete_webhook(tx, webhook_id)
    await deps.queue.enqueue(tx, cleanup_job(webhook_id))
    await audit.record(tx, caller, "webhook.remove", f"webhook:{webhook_id}")


async def ping(tx: Tx, caller: Caller, webhook_id: str) -> None:
    """Send a ping message to this webhook only, through the outbox like every message."""
    webhook = await store.get_own_webhook(tx, webhook_id, caller=caller)
    if not webhook.active:
        raise WebhookOff(id=webhook_id)
    tx.send(WebhookPing(webhook_id=webhook_id))
    await audit.record(tx, caller, "webhook.ping", f"webhook:{webhook_id}")


def _new_webhook(tx: Tx, caller: Caller, url: str, channels: Sequence[str]) -> Webhook:
    return Webhook(
        id=tx.new_id("whk"),
        user_id=caller.user_id,
        merchant_id=caller.merchant_id,
        sees_all=caller.is_admin,
        url=url,
        channels=list(channels),
        secret=new_secret(),
        created_at=tx.now,
        created_by=caller.name,
    )


def _changed(before: Webhook, url: str | None, channels: Sequence[str] | None) -> Webhook:
    after = before
    if url is not None and url != before.url:
        after = replace(after, url=url, failing_since=None, failed_in_row=0)  # another receiver: failures start at zero
    if channels is not None:
        after = replace(after, channels=list(channels))
    return after
