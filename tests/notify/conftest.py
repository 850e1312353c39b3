"""The notify module as wiring builds it, on both databases, with receivers on loopback."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock.access.domain import Caller, Scope
from penstock.adapters.addresses import AddressPolicy
from penstock.adapters.guarded_http import GuardedHttpClient
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.message import Message
from penstock.kernel.queue import JobQueue
from penstock.kernel.relay import Relay
from penstock.kernel.workers import Workers
from penstock.notify import api, store
from penstock.notify.api import NewWebhook, WebhookChanges, WebhookView
from penstock.notify.delivery_jobs import MODULE
from penstock.notify.deps import Deps
from penstock.notify.domain import Delivery, Webhook
from penstock.notify.worker import WebhookFanOut, handlers

MAX_ATTEMPTS = 3
ADMIN = Caller(name="root", user_id=1, scope=Scope.ADMIN)
ANNA = Caller(name="anna", user_id=5, scope=Scope.WRITE)
BERT = Caller(name="bert", user_id=6, scope=Scope.WRITE, merchant_id=9)  # of one merchant with Carla
CARLA = Caller(name="carla", user_id=7, scope=Scope.WRITE, merchant_id=9)
DORA = Caller(name="dora", user_id=8, scope=Scope.WRITE, merchant_id=10)


@dataclass(frozen=True, kw_only=True)
class Paid(Message):
    """A public message."""

    invoice: int = 1
    user_id: int | None = None
    merchant_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Shipped(Paid):
    """Another public message."""


@dataclass(frozen=True, kw_only=True)
class Internal(Paid):
    """An internal message."""


class NotifyHarness:
    """Everything that a message passes through until it is delivered, driven step by step."""

    def __init__(self, deps: Deps, clock: ManualClock) -> None:
        self.deps = deps
        self.db = deps.db
        self.clock = clock
        self.relay = Relay(self.db, {Internal: []}, sinks=[WebhookFanOut(deps)], owner="relay")
        self.workers = Workers(self.db, deps.queue, handlers(deps), owner="worker", modules=[MODULE], slots=1)

    async def send(self, *messages: Message) -> None:
        """Send messages and do what is due now."""
        async with self.db.tx() as tx:
            for message in messages:
                tx.send(message)
        await self.work()

    async def work(self) -> None:
        """Deliver what the outbox holds, and do the jobs that are due."""
        while await self.relay.deliver():
            pass
        await self.workers.run_until_empty()

    async def wait(self, seconds: float) -> None:
        """Advance the clock and do what is due."""
        self.clock.advance(seconds=seconds)
        await self.work()

    async def add(self, caller: Caller, url: str, channels: Sequence[str] = ("*",)) -> Webhook:
        """Create a webhook."""
        added = await api.add_webhook(NewWebhook(url=url, channels=list(channels)), caller, self.deps)
        return await self._stored(added)

    async def change(self, caller: Caller, webhook_id: str, **changes: Any) -> Webhook:
        """Change a webhook."""
        return await self._stored(await api.change_webhook(webhook_id, WebhookChanges(**changes), caller, self.deps))

    async def _stored(self, shown: WebhookView) -> Webhook:
        """The webhook that a response shows, which must be what is stored."""
        async with self.db.read() as tx:
            stored = await store.get_webhook(tx, shown.id, caller=ADMIN)
        assert type(shown).model_validate(stored) == shown
        return stored

    async def get(self, webhook: Webhook) -> Webhook:
        """The webhook as it is now."""
        async with self.db.read() as tx:
            return await store.get_webhook(tx, webhook.id, caller=ADMIN)

    async def deliveries(self, webhook: Webhook) -> list[Delivery]:
        """The deliveries of a webhook, newest first."""
        async with self.db.read() as tx:
            return await store.list_deliveries(tx, webhook.id, limit=1000)

    async def delivery(self, webhook: Webhook) -> Delivery:
        """The only delivery."""
        [only] = await self.deliveries(webhook)
        return only


@pytest.fixture
async def client() -> AsyncIterator[GuardedHttpClient]:
    """The real HTTP client; loopback is allowed for the receivers."""
    made = GuardedHttpClient(AddressPolicy.of(["127.0.0.0/8"]), seconds=30)
    yield made
    await made.close()


@pytest.fixture
def deps(db: Db, client: GuardedHttpClient) -> Deps:
    return Deps(
        db=db,
        queue=JobQueue(),
        client=client,
        channels=frozenset({"Paid", "Shipped"}),
        max_attempts=MAX_ATTEMPTS,
        user_agent="penstock/0",
    )


@pytest.fixture
def notify(deps: Deps, clock: ManualClock) -> NotifyHarness:
    return NotifyHarness(deps, clock)


@pytest.fixture
async def short_timeout(notify: NotifyHarness, clock: ManualClock) -> AsyncIterator[NotifyHarness]:
    """With an HTTP client that has a short timeout."""
    made = GuardedHttpClient(AddressPolicy.of(["127.0.0.0/8"]), seconds=0.3)
    yield NotifyHarness(replace(notify.deps, client=made), clock)
    await made.close()
