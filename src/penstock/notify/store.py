"""The tables of notify and every statement on them.

`webhook` stores its secrets in plain text, since they sign. `webhook_delivery` is the delivery log: one row per message
and webhook, with the outcome of the last attempt.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Index,
    Integer,
    Row,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    delete,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    true,
    tuple_,
    update,
)

from penstock.access.domain import Caller
from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_new
from penstock.kernel.transitions import record
from penstock.notify.domain import (
    DELIVERY,
    Delivery,
    DeliveryNotFound,
    DeliveryState,
    NotYourWebhook,
    Webhook,
    WebhookNotFound,
)

webhook = Table(
    "webhook",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", BigInteger, nullable=False),
    Column("merchant_id", BigInteger),
    Column("sees_all", Boolean, nullable=False),
    Column("url", String, nullable=False),
    Column("channels", Json, nullable=False),
    Column("secret", String, nullable=False),
    Column("previous_secret", String),
    Column("previous_until", UtcTime),
    Column("active", Boolean, nullable=False),
    Column("disabled_reason", String),
    Column("failing_since", UtcTime),
    Column("failed_in_row", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
    CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="previous"),
    CheckConstraint("NOT active OR disabled_reason IS NULL", name="reason_while_off"),
    CheckConstraint("failed_in_row >= 0", name="failed_in_row"),
)
w = webhook.c
# sees_all comes first in both: such webhooks are never found by owner, only all together.
Index("ix_webhook_user", w.sees_all, w.user_id, w.id)
Index("ix_webhook_merchant", w.sees_all, w.merchant_id, w.id)

webhook_delivery = Table(
    "webhook_delivery",
    metadata,
    Column(
        "webhook_id", Id, primary_key=True
    ),  # first, so that listing one webhook's deliveries does not scan those of others
    Column("id", Id, primary_key=True),
    Column("message_id", Id, nullable=False),
    Column("channel", String, nullable=False),
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("status_code", Integer),
    Column("error", String),
    Column("response", String),
    Column("body", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_tried_at", UtcTime),
    Column("next_try_at", UtcTime),
    Column("finished_at", UtcTime),
    UniqueConstraint("webhook_id", "message_id"),
    CheckConstraint("state IN ('pending', 'delivered', 'failed')", name="state"),
    CheckConstraint("(state = 'pending') = (next_try_at IS NOT NULL)", name="next_try_while_pending"),
    CheckConstraint("(state = 'pending') = (finished_at IS NULL)", name="finished_when_over"),
    CheckConstraint("attempts >= 0 AND turn >= 1", name="counts"),
)
d = webhook_delivery.c
Index("ix_webhook_delivery_state", d.webhook_id, d.state, d.id)
Index("ix_webhook_delivery_created_at", d.created_at)

DELIVERY_NAMES = tuple(known.name for known in fields(Delivery))
_delivery_values = attrgetter(*DELIVERY_NAMES)
_delivery = select(*(d[name] for name in DELIVERY_NAMES))  # all but the body, which may be large


async def insert_webhook(tx: Tx, new: Webhook) -> None:
    """Insert a webhook."""
    await tx.conn.execute(insert(webhook).values(asdict(new)))


async def find_webhook(tx: Tx, webhook_id: str) -> Webhook | None:
    """A webhook of any owner; not for callers."""
    row = (await tx.conn.execute(select(webhook).where(w.id == webhook_id))).one_or_none()
    return None if row is None else Webhook(**row._mapping)


async def get_webhook(tx: Tx, webhook_id: str, *, caller: Caller) -> Webhook:
    """A webhook that this caller may see; another tenant's is a 404, `WebhookNotFound`."""
    return await _get(tx, webhook_id, select(webhook).where(w.id == webhook_id, _seen_by(caller)))


async def get_own_webhook(tx: Tx, webhook_id: str, *, caller: Caller) -> Webhook:
    """A webhook of the caller; a colleague's is a 403, `NotYourWebhook`."""
    return _own(await get_webhook(tx, webhook_id, caller=caller), caller)


async def claim_webhook(tx: Tx, webhook_id: str, *, caller: Caller) -> Webhook:
    """A webhook of the caller, locked until this transaction ends."""
    mine = select(webhook).where(w.id == webhook_id, _seen_by(caller))
    return _own(await _get(tx, webhook_id, mine.with_for_update()), caller)


def _own(found: Webhook, caller: Caller) -> Webhook:
    if not found.belongs_to(caller):
        raise NotYourWebhook(id=found.id, owner=found.created_by)
    return found


async def _get(tx: Tx, webhook_id: str, statement: Select[Any]) -> Webhook:
    row = (await tx.conn.execute(statement)).one_or_none()
    if row is None:
        raise WebhookNotFound(id=webhook_id)
    return Webhook(**row._mapping)


async def list_webhooks(tx: Tx, *, caller: Caller, after: str = "", limit: int) -> list[Webhook]:
    """The webhooks a caller may see, by id, from the one after `after`."""
    mine = select(webhook).where(_seen_by(caller), w.id > after).order_by(w.id).limit(limit)
    return [Webhook(**row._mapping) for row in await tx.conn.execute(mine)]


async def list_active_webhooks(
    tx: Tx, *, user_ids: Collection[int] = (), merchant_ids: Collection[int] = (), ids: Collection[str] = ()
) -> list[Webhook]:
    """The active webhooks of these users and merchants, those of admins, and those with these ids, by id.

    `Webhook.may_receive` says which of them may receive a message.
    """
    allowed: list[ColumnElement[bool]] = [w.sees_all]
    if user_ids:
        allowed.append(and_(not_(w.sees_all), w.user_id.in_(user_ids)))
    if merchant_ids:
        allowed.append(and_(not_(w.sees_all), w.merchant_id.in_(merchant_ids)))
    if ids:
        allowed.append(w.id.in_(ids))
    rows = await tx.conn.execute(select(webhook).where(w.active, or_(*allowed)))
    return sorted((Webhook(**row._mapping) for row in rows), key=attrgetter("id"))


async def lock_and_count_webhooks(tx: Tx, new: Webhook) -> int:
    """The number of webhooks of the same owner, locked: until this transaction ends the owner cannot add another."""
    owned = _same_owner(new)
    # Lock first, then count: on PostgreSQL the count sees what was added while we waited for the lock.
    await tx.conn.execute(select(w.id).where(owned).order_by(w.id).with_for_update())
    return await tx.conn.scalar(select(func.count()).select_from(webhook).where(owned)) or 0


async def move_webhook(tx: Tx, after: Webhook) -> None:
    """Update a webhook that this transaction has claimed."""
    values = {name: value for name, value in asdict(after).items() if name != "id"}
    await tx.conn.execute(update(webhook).where(w.id == after.id).values(values))


async def move_to_failing(tx: Tx, webhook_id: str, *, failed: int) -> Webhook | None:
    """Record a failed attempt, and with `failed` = 1 a failed delivery; returns the webhook unless it was removed."""
    since = func.coalesce(w.failing_since, literal(tx.now, UtcTime))
    statement = (
        update(webhook).where(w.id == webhook_id).values(failing_since=since, failed_in_row=w.failed_in_row + failed)
    )
    row = (await tx.conn.execute(statement.returning(*webhook.c))).one_or_none()
    return None if row is None else Webhook(**row._mapping)


async def move_to_healthy(tx: Tx, webhook_id: str) -> None:
    """Record a success; writes only if the webhook was failing."""
    failing = update(webhook).where(w.id == webhook_id, w.failing_since.is_not(None))
    await tx.conn.execute(failing.values(failing_since=None, failed_in_row=0))


async def delete_webhook(tx: Tx, webhook_id: str) -> None:
    """Delete a webhook with its secrets; its deliveries are deleted separately."""
    await tx.conn.execute(delete(webhook).where(w.id == webhook_id))


async def insert_deliveries(tx: Tx, deliveries: Sequence[tuple[Delivery, str]]) -> set[str]:
    """Insert deliveries with their bodies; returns the ids of those that did not exist yet."""
    rows = [(*_delivery_values(new), body) for new, body in deliveries]
    return await insert_new(tx, webhook_delivery, (*DELIVERY_NAMES, "body"), rows)


async def find_delivery(tx: Tx, webhook_id: str, delivery_id: str) -> Delivery | None:
    """A delivery of this webhook."""
    row = (await tx.conn.execute(_delivery.where(d.webhook_id == webhook_id, d.id == delivery_id))).one_or_none()
    return None if row is None else _to_delivery(row)


async def get_delivery(tx: Tx, webhook_id: str, delivery_id: str) -> Delivery:
    """A delivery of this webhook, or `DeliveryNotFound`."""
    found = await find_delivery(tx, webhook_id, delivery_id)
    if found is None:
        raise DeliveryNotFound(id=delivery_id)
    return found


async def find_body(tx: Tx, delivery: Delivery) -> str | None:
    """The body to post; None if the delivery was deleted."""
    body: str | None = await tx.conn.scalar(select(d.body).where(*_is(delivery)))
    return body


async def list_deliveries(
    tx: Tx, webhook_id: str, *, state: DeliveryState | None = None, before: str = "", limit: int
) -> list[Delivery]:
    """The deliveries of a webhook, newest first, older than `before`."""
    newest = _delivery.where(d.webhook_id == webhook_id).order_by(d.id.desc()).limit(limit)
    if state is not None:
        newest = newest.where(d.state == state.value)
    if before:
        newest = newest.where(d.id < before)
    return [_to_delivery(row) for row in await tx.conn.execute(newest)]


async def move_delivery(tx: Tx, before: Delivery, verb: str, **values: object) -> bool:
    """Move a delivery by a verb; False, and nothing is written, if it has had another turn since it was read."""
    after = DELIVERY.move(verb, before.state)
    same = (*_is(before), d.state == before.state.value, d.turn == before.turn)
    moved = await tx.conn.execute(update(webhook_delivery).where(*same).values(state=after.value, **values))
    if moved.rowcount != 1:
        return False
    await record(tx, DELIVERY.name, [before.id], before.state, after, verb)
    return True


async def delete_delivery(tx: Tx, delivery: Delivery) -> None:
    """Delete one delivery."""
    await tx.conn.execute(delete(webhook_delivery).where(*_is(delivery)))


async def delete_deliveries_of(tx: Tx, webhook_id: str, *, limit: int = 10_000) -> int:
    """Delete some deliveries of a webhook; returns how many."""
    some = select(d.id).where(d.webhook_id == webhook_id).order_by(d.id).limit(limit)
    mine = delete(webhook_delivery).where(d.webhook_id == webhook_id, d.id.in_(some))
    return (await tx.conn.execute(mine)).rowcount


async def delete_old_deliveries(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest deliveries in any state; returns how many."""
    old = select(d.webhook_id, d.id).where(d.created_at < before).order_by(d.created_at).limit(limit)
    return (await tx.conn.execute(delete(webhook_delivery).where(tuple_(d.webhook_id, d.id).in_(old)))).rowcount


def _is(delivery: Delivery) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return d.webhook_id == delivery.webhook_id, d.id == delivery.id


def _to_delivery(row: Row[Any]) -> Delivery:
    return Delivery(**{**row._mapping, "state": DeliveryState(row.state)})


def _seen_by(caller: Caller) -> ColumnElement[bool]:
    """Admins see all; others see their own and their merchant's, but never one that receives all messages."""
    if caller.is_admin:
        return true()
    own = and_(not_(w.sees_all), w.user_id == caller.user_id)
    if caller.merchant_id is None:
        return own
    return or_(own, and_(not_(w.sees_all), w.merchant_id == caller.merchant_id))


def _same_owner(new: Webhook) -> ColumnElement[bool]:
    """Webhooks that share a limit: those of all admins, of one merchant, or of one user without a merchant."""
    if new.sees_all:
        return w.sees_all
    if new.merchant_id is not None:
        return and_(not_(w.sees_all), w.merchant_id == new.merchant_id)
    return and_(not_(w.sees_all), w.user_id == new.user_id, w.merchant_id.is_(None))
