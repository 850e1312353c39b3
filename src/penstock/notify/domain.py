"""Webhooks and their deliveries: values, states, rules and errors; nothing here touches a database or the network."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol

from penstock.kernel.errors import Conflict, Invalid, NotFound, Unavailable
from penstock.kernel.machine import Machine
from penstock.kernel.plain import Plain

EVERYTHING = "*"
MOST_WEBHOOKS = 20  # per owner: one message is posted at most that often for each
MOST_URL_CHARACTERS = 2048
BOTH_SECRETS = timedelta(hours=24)  # how long a receiver has to take over a new secret
FAILED_IN_ROW = 5  # deliveries that failed for good, with none in between that arrived, …
FAILING_FOR = timedelta(days=5)  # … over that long: nobody is at home any more
MOST_RETRY_AFTER = timedelta(hours=12)  # a little more than our own longest wait


class DeliveryState(StrEnum):
    """Where a delivery is."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


DELIVERY = Machine(
    "webhook delivery",
    {
        "deliver": ({DeliveryState.PENDING}, DeliveryState.DELIVERED),
        "retry": ({DeliveryState.PENDING}, DeliveryState.PENDING),
        "fail": ({DeliveryState.PENDING}, DeliveryState.FAILED),
        "resend": (set(DeliveryState), DeliveryState.PENDING),
    },
    start=DeliveryState.PENDING,
    words={
        DeliveryState.PENDING: "It will be posted, or posted again, when due.",
        DeliveryState.DELIVERED: "The receiver answered with a 2xx.",
        DeliveryState.FAILED: "Tried often enough, or its webhook is off. It can be sent again.",
    },
)


class UrlRefused(Invalid):
    """The address of a webhook is not one that can be called."""

    code = "WEBHOOK_URL_INVALID"
    message = "The field url cannot be used: {reason}."
    message_zh = "字段 url 无法使用：{reason_zh}。"
    hint = "Give an http or https address without user name and password."
    hint_zh = "请提供不含用户名和密码的 http 或 https 地址。"


class AddressRefused(Invalid):
    """The host of a webhook is not known, or leads to a network that webhooks may not call.

    One error for both: two would let a caller ask which names exist inside.
    """

    code = "WEBHOOK_ADDRESS_REFUSED"
    message = "The field url cannot be used: {host} is not known, or is no public address."
    message_zh = "字段 url 无法使用：{host} 无法解析，或不是公网地址。"
    hint = "Use a public address; the operator can allow private networks with PENSTOCK_WEBHOOK_ALLOW."
    hint_zh = "请使用公网地址；运维人员可通过 PENSTOCK_WEBHOOK_ALLOW 放行私有网络。"


class ChannelUnknown(Invalid):
    """A webhook asks for messages that do not exist or do not leave the house."""

    code = "WEBHOOK_CHANNEL_UNKNOWN"
    message = "The field channels names {channel!r}, which is no message that webhooks can get."
    message_zh = "字段 channels 中的 {channel!r} 不是 webhook 可以接收的消息。"
    hint = 'Use "*" for all of them, or names from docs/reference/messages.md.'
    hint_zh = "可用 “*” 表示全部，或使用 docs/reference/messages.md 中的名称。"


class TooManyWebhooks(Conflict):
    """An owner has as many webhooks as one may have."""

    code = "WEBHOOK_LIMIT"
    message = "There are {most} webhooks already, which is the most one owner may have."
    message_zh = "已有 {most} 个 webhook，达到单个所有者的上限。"
    hint = "Delete one that is no longer needed."
    hint_zh = "请先删除不再需要的 webhook。"


class WebhookOff(Conflict):
    """Something was to be sent to a webhook that is switched off."""

    code = "WEBHOOK_OFF"
    message = "The webhook {id} is switched off."
    message_zh = "webhook {id} 已停用。"
    hint = "Switch it on first: PATCH it with active = true."
    hint_zh = "请先用 PATCH 将 active 设为 true 以启用。"


class WebhookNotFound(NotFound):
    """There is no webhook by that id, or it is someone else's."""

    code = "WEBHOOK_NOT_FOUND"
    message = "There is no webhook {id}."
    message_zh = "没有 webhook {id}。"


class DeliveryNotFound(NotFound):
    """There is no delivery by that id in this webhook."""

    code = "WEBHOOK_DELIVERY_NOT_FOUND"
    message = "There is no delivery {id}."
    message_zh = "没有投递记录 {id}。"


class NoAnswer(Unavailable):
    """A receiver could not be reached, or did not answer in time."""

    code = "WEBHOOK_NO_ANSWER"
    message = "There is no answer: {reason}."
    message_zh = "没有应答：{reason_zh}。"
    hint = "Try again in a moment."
    hint_zh = "请稍后重试。"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a receiver said. `text` is the beginning of it, as far as it is text."""

    status: int
    text: str = ""
    retry_after: str = ""

    @property
    def taken(self) -> bool:
        """Whether the receiver has it."""
        return 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Whether the receiver asks never to be called again."""
        return self.status == 410

    def asks_to_wait(self, now: datetime) -> timedelta:
        """What Retry-After asks for, within a bound; nothing when it says nothing that can be understood."""
        if self.status not in {429, 503}:
            return timedelta()
        return min(max(_wait(self.retry_after, now), timedelta()), MOST_RETRY_AFTER)


def _wait(retry_after: str, now: datetime) -> timedelta:
    try:
        if retry_after.isascii() and retry_after.isdigit():
            return timedelta(seconds=min(int(retry_after[:9]), MOST_RETRY_AFTER.total_seconds()))
        return parsedate_to_datetime(retry_after) - now
    except (ValueError, TypeError, IndexError, OverflowError):  # no date, one without a zone, one out of all bounds
        return timedelta()


class Poster(Protocol):
    """Posts to addresses that outsiders gave us, and to nothing else."""

    async def check(self, url: str) -> None:
        """Whether this address may be called now: `UrlRefused`, `AddressRefused` or `NoAnswer` when not."""
        ...

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Answer:
        """Post once, checked again, following no redirect; raises what `check` raises."""
        ...


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Where to post which messages. The secrets are kept in clear, since they sign; nothing shows them again."""

    id: str
    user_id: int
    merchant_id: int | None
    sees_all: bool  # an admin's: gets everyone's messages, and only admins see it
    url: str
    channels: list[str]
    secret: str = field(repr=False)
    previous_secret: str | None = field(default=None, repr=False)
    previous_until: datetime | None = None
    active: bool = True
    disabled_reason: str | None = None
    failing_since: datetime | None = None  # the first failed try after the last that arrived
    failed_in_row: int = 0
    created_at: datetime
    created_by: str

    @property
    def audience(self) -> str:
        """Who may watch what happens to it, beside admins."""
        if self.sees_all:
            return ""
        return f"user:{self.user_id}" if self.merchant_id is None else f"merchant:{self.merchant_id}"

    def secrets_at(self, now: datetime) -> list[str]:
        """The secrets that sign now, the newest first."""
        if self.previous_secret is None or self.previous_until is None or now >= self.previous_until:
            return [self.secret]
        return [self.secret, self.previous_secret]

    def wants(self, channel: str) -> bool:
        """Whether it asked for messages of this channel."""
        return EVERYTHING in self.channels or channel in self.channels

    def rotated(self, *, now: datetime) -> "Webhook":
        """With a new secret; the old one signs too for a while."""
        until = now + BOTH_SECRETS
        return replace(self, secret=new_secret(), previous_secret=self.secret, previous_until=until)

    def switched_on(self) -> "Webhook":
        """Active, with nothing held against it."""
        return replace(self, active=True, disabled_reason=None, failing_since=None, failed_in_row=0)

    def switched_off(self, reason: str) -> "Webhook":
        """Gets nothing any more, and says why."""
        return replace(self, active=False, disabled_reason=reason)

    def is_lost(self, now: datetime) -> bool:
        """Whether it has failed so often and for so long that posting to it is only noise."""
        since = self.failing_since
        return self.failed_in_row >= FAILED_IN_ROW and since is not None and now - since >= FAILING_FOR


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One message on its way to one webhook, with what became of the last try."""

    id: str
    webhook_id: str
    message_id: str
    channel: str
    state: DeliveryState
    attempts: int
    turn: int  # which job may try next; a job of an earlier turn has no say any more
    status_code: int | None = None
    error: str | None = None
    response: str | None = None
    created_at: datetime
    last_tried_at: datetime | None = None
    next_try_at: datetime | None = None
    finished_at: datetime | None = None


def new_secret() -> str:
    """A secret to sign with: 256 random bits."""
    return f"whsec_{secrets.token_urlsafe(32)}"


def refuse_unknown_channels(channels: Collection[str], known: Collection[str]) -> None:
    """`ChannelUnknown` names the first that webhooks cannot get."""
    for channel in channels:
        if channel != EVERYTHING and channel not in known:
            raise ChannelUnknown(channel=channel)


def owners_of(payload: Plain) -> tuple[int | None, int | None]:
    """The user and the merchant that a message says it belongs to."""
    user_id, merchant_id = payload.get("user_id"), payload.get("merchant_id")
    return _whole(user_id), _whole(merchant_id)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
