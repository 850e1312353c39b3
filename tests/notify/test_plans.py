"""Every query on the webhook tables uses an index when they are full."""

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.notify import store
from penstock.notify.domain import Delivery, DeliveryState, Webhook
from tests import plans
from tests.conftest import open_db
from tests.notify.conftest import ADMIN, ANNA, BERT
from tests.plans import NOW, explain, reads_a_whole_table, recorded
from tests.servers.postgres import Databases

FULL = "penstock_webhook_plans_full"
WEBHOOKS, DELIVERIES = 5_000, 20_000
Query = Callable[[Tx], Awaitable[object]]


def webhook(number: int) -> Webhook:
    return Webhook(
        id=f"whk_{number:06}",
        user_id=number % 1000,
        merchant_id=number % 500 if number % 2 else None,
        sees_all=number % 1000 == 999,
        url="https://a.example/",
        channels=["*"],
        secret="s",
        created_at=NOW,
        created_by="me",
    )


def delivery(number: int) -> Delivery:
    pending = number % 100 == 0
    return Delivery(
        id=f"whd_{number:06}",
        webhook_id=f"whk_{number % 20:06}",
        message_id=f"msg_{number:06}",
        channel="Paid",
        state=DeliveryState.PENDING if pending else DeliveryState.DELIVERED,
        attempts=0,
        turn=1,
        created_at=NOW + timedelta(seconds=number - DELIVERIES + 100),
        next_try_at=NOW if pending else None,
        finished_at=None if pending else NOW,
    )


async def fill(db: Db) -> None:
    async with db.tx() as tx:
        names = [known.name for known in fields(Webhook)]
        await insert_rows(tx, store.webhook, names, [row(webhook(number)) for number in range(WEBHOOKS)])
        rows = [(*row(delivery(number)), "{}") for number in range(DELIVERIES)]
        await insert_rows(tx, store.webhook_delivery, [*store.DELIVERY_NAMES, "body"], rows)


def row(value: Webhook | Delivery) -> tuple[object, ...]:
    """Its fields, in order; `astuple` would copy each of them."""
    return tuple(vars(value).values())


@pytest.fixture(scope="module")
def full_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.full_postgres(postgres_server, FULL, fill) as url:
        yield url


@pytest.fixture(scope="module")
def full_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, fill)


async def deliveries(tx: Tx, **options: DeliveryState | str) -> None:
    await store.list_deliveries(tx, "whk_000000", limit=50, **options)  # type: ignore[arg-type]  # its keywords


BY_USER, BY_MERCHANT, SEES_ALL = "ix_webhook_user", "ix_webhook_merchant", "ix_webhook_(user|merchant)"
PRIMARY = "pk_|sqlite_autoindex_"
QUERIES: dict[str, tuple[str, Query]] = {
    "a user's webhooks": (BY_USER, lambda tx: store.list_webhooks(tx, caller=ANNA, limit=50)),
    "a merchant's webhooks": (BY_MERCHANT, lambda tx: store.list_webhooks(tx, caller=BERT, limit=50)),
    "all webhooks": (PRIMARY, lambda tx: store.list_webhooks(tx, caller=ADMIN, after="whk_000100", limit=50)),
    "subscribers": (BY_MERCHANT, lambda tx: store.list_active_webhooks(tx, user_ids=[5, 6], merchant_ids=[9, 10])),
    "admin subscribers": (SEES_ALL, store.list_active_webhooks),
    "pinged webhooks": (PRIMARY, lambda tx: store.list_active_webhooks(tx, user_ids=[5], ids=["whk_000003"])),
    "count a merchant's": (BY_MERCHANT, lambda tx: store.lock_and_count_webhooks(tx, webhook(7))),
    "count a user's": (BY_USER, lambda tx: store.lock_and_count_webhooks(tx, webhook(8))),
    "count admins'": (SEES_ALL, lambda tx: store.lock_and_count_webhooks(tx, webhook(999))),
    "deliveries": (PRIMARY, deliveries),
    "older deliveries": (PRIMARY, lambda tx: deliveries(tx, before="whd_010000")),
    "pending deliveries": ("ix_webhook_delivery_state", lambda tx: deliveries(tx, state=DeliveryState.PENDING)),
    "delete old": (
        "ix_webhook_delivery_created_at",
        lambda tx: store.delete_old_deliveries(tx, before=NOW, limit=10),
    ),
    "delete a webhook's": (PRIMARY, lambda tx: store.delete_deliveries_of(tx, "whk_000003", limit=10)),
}


@pytest.fixture(params=["sqlite", "postgres", "pooled"])
def full(request: pytest.FixtureRequest) -> Db:
    pooled = request.param == "pooled"
    url = request.getfixturevalue("full_postgres" if pooled else f"full_{request.param}")
    return open_db(url, ManualClock(NOW), pooled=pooled)


@pytest.mark.parametrize("name", QUERIES)
async def test_it_is_served_by_an_index(full: Db, name: str):
    index, query = QUERIES[name]
    db = full
    with recorded(db, "webhook(_delivery)?") as statements:
        async with db.tx() as tx:
            await query(tx)
    assert statements
    steps = [step for statement in statements for step in await explain(db, *statement)]
    await db.close()
    assert [step for step in steps if reads_a_whole_table(step)] == []
    assert any(re.search(index, step) for step in steps), steps
