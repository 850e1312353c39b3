"""Subscribe: make, change and remove webhooks, replace their secrets, and try them out.

An address is checked here so that its owner learns at once what is wrong with it, and again at every post, since what a
name means can change. The check asks the DNS, so it is done before the transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from penstock.access.audit import note
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.messages import WebhookPing
from penstock.notify import store
from penstock.notify.deps import Deps
from penstock.notify.domain import (
    MOST_WEBHOOKS,
    TooManyWebhooks,
    Webhook,
    WebhookOff,
    new_secret,
    refuse_unknown_channels,
)
from penstock.notify.tries import forget_job


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be different about a webhook; None leaves it as it is."""

    url: str | None = None
    channels: Sequence[str] | None = None
    active: bool | None = None


async def add(tools: Deps, caller: Caller, *, url: str, channels: Sequence[str]) -> Webhook:
    """A new webhook of the caller's. The value that is returned is the only one to show the secret."""
    refuse_unknown_channels(channels, tools.channels)
    await tools.poster.check(url)
    async with tools.db.tx(actor=caller.name) as tx:
        new = _new_webhook(tx, caller, url, channels)
        if await store.count_webhooks_beside(tx, new) >= MOST_WEBHOOKS:
            raise TooManyWebhooks(most=MOST_WEBHOOKS)
        await store.insert_webhook(tx, new)
        await note(tx, caller, "webhook.add", f"webhook:{new.id}", host=_host(url), channels=new.channels)
    return new


async def change(tools: Deps, caller: Caller, webhook_id: str, changes: Changes) -> Webhook:
    """Change what is given."""
    async with tools.db.read() as tx:  # before the DNS is asked: it is nobody's business with a foreign id
        await store.get_webhook(tx, webhook_id, caller=caller)
    if changes.channels is not None:
        refuse_unknown_channels(changes.channels, tools.channels)
    if changes.url is not None:
        await tools.poster.check(changes.url)
    async with tools.db.tx(actor=caller.name) as tx:
        before = await store.claim_webhook(tx, webhook_id, caller=caller)
        after = _changed(before, changes, caller)
        await store.move_webhook(tx, after)
        shown = {"host": _host(after.url), "channels": after.channels, "active": after.active}
        await note(tx, caller, "webhook.change", f"webhook:{webhook_id}", **shown)
    return after


async def rotate_secret(tools: Deps, caller: Caller, webhook_id: str) -> Webhook:
    """A new secret, shown this once; for a day the old one signs as well."""
    async with tools.db.tx(actor=caller.name) as tx:
        before = await store.claim_webhook(tx, webhook_id, caller=caller)
        after = before.rotated(now=tx.now)
        await store.move_webhook(tx, after)
        await note(tx, caller, "webhook.rotate_secret", f"webhook:{webhook_id}")
    return after


async def remove(tools: Deps, caller: Caller, webhook_id: str) -> None:
    """Delete a webhook and its secrets now, and what was sent to it by a job: that may be a lot."""
    async with tools.db.tx(actor=caller.name) as tx:
        await store.claim_webhook(tx, webhook_id, caller=caller)
        await store.delete_webhook(tx, webhook_id)
        await tools.queue.enqueue(tx, forget_job(webhook_id))
        await note(tx, caller, "webhook.remove", f"webhook:{webhook_id}")


async def ping(tools: Deps, caller: Caller, webhook_id: str) -> None:
    """Send a message to this webhook alone, the way every message goes."""
    async with tools.db.tx(actor=caller.name) as tx:
        webhook = await store.get_webhook(tx, webhook_id, caller=caller)
        if not webhook.active:
            raise WebhookOff(id=webhook_id)
        tx.send(WebhookPing(webhook_id=webhook_id))
        await note(tx, caller, "webhook.ping", f"webhook:{webhook_id}")


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


def _changed(before: Webhook, changes: Changes, caller: Caller) -> Webhook:
    after = before
    if changes.url is not None and changes.url != before.url:
        after = replace(after, url=changes.url, failing_since=None, failed_in_row=0)  # another receiver: a new start
    if changes.channels is not None:
        after = replace(after, channels=list(changes.channels))
    if changes.active is True and not before.active:
        after = after.switched_on()
    if changes.active is False and before.active:
        after = after.switched_off(f"Switched off by {caller.name}.")
    return after


def _host(url: str) -> str:
    """What the audit log may know of an address: its path may be a secret."""
    return urlsplit(url).hostname or ""
