"""Webhooks and their deliveries: values, states and errors, without I/O."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

from penstock.access.domain import Caller
from penstock.kernel.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from penstock.kernel.json_object import JsonObject
from penstock.kernel.machine import Machine

ALL_CHANNELS = "*"
MAX_WEBHOOKS = 20  # per owner: the most deliveries of one message
MAX_URL_CHARACTERS = 2048
SECRET_GRACE = timedelta(hours=24)  # the time a receiver has to switch to a new secret
# A webhook is disabled after this many failed deliveries in a row, over at least this time.
DISABLE_AFTER_FAILURES = 5
DISABLE_AFTER = timedelta(days=5)
MAX_RETRY_AFTER = timedelta(hours=12)  # a little more than the longest backoff


class DeliveryState(StrEnum):
    """The state of a delivery."""

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
        DeliveryState.PENDING: "Waiting for its first or next attempt.",
        DeliveryState.DELIVERED: "The receiver answered 2xx.",
        DeliveryState.FAILED: "All attempts failed, or the webhook is disabled. The delivery can be resent.",
    },
)


class UrlRefused(Invalid):
    """The URL of a webhook is not valid."""

    code = "WEBHOOK_URL_INVALID"
    message = "The field url cannot be used: {reason}."
    message_zh = "字段 url 无法使用：{reason_zh}。"
    hint = "Use an http or https URL without user name and password."
    hint_zh = "请提供不含用户名和密码的 http 或 https 地址。"


class AddressRefused(Invalid):
    """The host of a webhook is unknown, or resolves to a network that webhooks may not call.

    One error for both: two errors would let a caller probe which internal host names exist.
    """

    code = "WEBHOOK_ADDRESS_REFUSED"
    message = "The field url cannot be used: {host} is unknown or not a public address."
    message_zh = "字段 url 无法使用：{host} 无法解析，或不是公网地址。"
    hint = "Use a public address; the operator can allow private networks with PENSTOCK_WEBHOOK_ALLOW."
    hint_zh = "请使用公网地址；运维人员可通过 PENSTOCK_WEBHOOK_ALLOW 放行私有网络。"


class ChannelUnknown(Invalid):
    """A webhook subscribes to a message that does not exist or is internal."""

    code = "WEBHOOK_CHANNEL_UNKNOWN"
    message = "The field channels contains {channel!r}, which webhooks cannot subscribe to."
    message_zh = "字段 channels 中的 {channel!r} 不是 webhook 可以订阅的消息。"
    hint = 'Use "*" for all of them, or names from docs/reference/messages.md.'
    hint_zh = "可用 “*” 表示全部，或使用 docs/reference/messages.md 中的名称。"


class TooManyWebhooks(Conflict):
    """The owner has reached the limit of webhooks."""

    code = "WEBHOOK_LIMIT"
    message = "The limit of {most} webhooks per owner is reached."
    message_zh = "已达到每个所有者 {most} 个 webhook 的上限。"
    hint = "Delete one that is no longer needed."
    hint_zh = "请先删除不再需要的 webhook。"


class WebhookOff(Conflict):
    """The webhook is disabled."""

    code = "WEBHOOK_OFF"
    message = "The webhook {id} is disabled."
    message_zh = "webhook {id} 已停用。"
    hint = "Enable it first: PATCH it with active = true."
    hint_zh = "请先用 PATCH 将 active 设为 true 以启用。"


class WebhookNotFound(NotFound):
    """No webhook has this id, or it belongs to someone else."""

    code = "WEBHOOK_NOT_FOUND"
    message = "There is no webhook {id}."
    message_zh = "没有 webhook {id}。"


class NotYourWebhook(Refused):
    """The webhook belongs to a colleague: only its creator and admins may use it."""

    code = "WEBHOOK_NOT_YOURS"
    message = "The webhook {id} belongs to {owner}."
    message_zh = "webhook {id} 属于 {owner}。"
    hint = "Ask its creator or an admin, or create a webhook of your own."
    hint_zh = "请联系其创建者或管理员，或自行创建 webhook。"


class DeliveryNotFound(NotFound):
    """This webhook has no delivery with this id."""

    code = "WEBHOOK_DELIVERY_NOT_FOUND"
    message = "There is no delivery {id}."
    message_zh = "没有投递记录 {id}。"


class WebhookUnreachable(Unavailable):
    """The receiver could not be reached or did not respond in time."""

    code = "WEBHOOK_NO_ANSWER"
    message = "No response: {reason}."
    message_zh = "没有响应：{reason_zh}。"
    hint = "Try again later."
    hint_zh = "请稍后重试。"


@dataclass(frozen=True, kw_only=True)
class WebhookResponse:
    """The response of a receiver. `text` is the beginning of the body, if it is text."""

    status: int
    text: str = ""
    retry_after: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the receiver accepted the message."""
        return 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Whether the receiver must not be called again."""
        return self.status == 410

    def retry_delay(self, now: datetime) -> timedelta:
        """The delay that Retry-After asks for, within bounds; zero if there is none."""
        if self.status not in {429, 503}:
            return timedelta()
        return min(max(_parse_retry_after(self.retry_after, now), timedelta()), MAX_RETRY_AFTER)


def _parse_retry_after(retry_after: str, now: datetime) -> timedelta:
    try:
        if retry_after.isascii() and retry_after.isdigit():
            return timedelta(seconds=min(int(retry_after[:9]), MAX_RETRY_AFTER.total_seconds()))
        return parsedate_to_datetime(retry_after) - now
    except (ValueError, TypeError, IndexError, OverflowError):  # not a date, without a time zone, or out of range
        return timedelta()


class WebhookClient(Protocol):
    """The HTTP client for URLs that callers choose."""

    async def check(self, url: str) -> None:
        """Raise `UrlRefused`, `AddressRefused` or `WebhookUnreachable` if this URL may not be called."""
        ...

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Check and post once, without following redirects; raises what `check` raises."""
        ...


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A URL and the messages to post to it. Its secrets are stored in plain text, since they sign, and never shown."""

    id: str
    user_id: int
    merchant_id: int | None
    sees_all: bool  # created by an admin: receives the messages of all users, and only admins see it
    url: str
    channels: list[str]
    secret: str = field(repr=False)
    previous_secret: str | None = field(default=None, repr=False)
    previous_until: datetime | None = None
    active: bool = True
    disabled_reason: str | None = None
    failing_since: datetime | None = None  # the first failed attempt since the last success
    failed_in_row: int = 0
    created_at: datetime
    created_by: str

    @property
    def audience(self) -> str:
        """The audience of its events, besides admins."""
        if self.sees_all:
            return ""
        return f"user:{self.user_id}" if self.merchant_id is None else f"merchant:{self.merchant_id}"

    @property
    def host(self) -> str:
        """The part of its URL that others may see: the path may contain a secret."""
        return urlsplit(self.url).hostname or ""

    def belongs_to(self, caller: Caller) -> bool:
        """Whether the caller may use it: its creator, or an admin. Colleagues of the merchant see that it exists."""
        return caller.is_admin or caller.user_id == self.user_id

    def secrets_at(self, now: datetime) -> list[str]:
        """The secrets that sign at this time, newest first."""
        if self.previous_secret is None or self.previous_until is None or now >= self.previous_until:
            return [self.secret]
        return [self.secret, self.previous_secret]

    def is_subscribed_to(self, channel: str) -> bool:
        """Whether it receives messages of this channel."""
        return ALL_CHANNELS in self.channels or channel in self.channels

    def may_receive(self, *, user_id: int | None, merchant_id: int | None) -> bool:
        """Whether it may receive messages of this user and merchant.

        A webhook of a merchant only receives messages of that merchant, whatever its user's merchant is now.
        """
        if self.sees_all or (merchant_id is not None and self.merchant_id == merchant_id):
            return True
        other_merchant = merchant_id is not None and self.merchant_id is not None
        return user_id is not None and self.user_id == user_id and not other_merchant

    def with_new_secret(self, *, now: datetime) -> "Webhook":
        """With a new secret; during the grace period the old one signs as well."""
        until = now + SECRET_GRACE
        return replace(self, secret=new_secret(), previous_secret=self.secret, previous_until=until)

    def enabled(self) -> "Webhook":
        """Active, with its failures reset."""
        return replace(self, active=True, disabled_reason=None, failing_since=None, failed_in_row=0)

    def disabled(self, reason: str) -> "Webhook":
        """Inactive, with the reason."""
        return replace(self, active=False, disabled_reason=reason)

    def has_failed_for_days(self, now: datetime) -> bool:
        """Whether it failed often and long enough to be disabled."""
        since = self.failing_since
        return self.failed_in_row >= DISABLE_AFTER_FAILURES and since is not None and now - since >= DISABLE_AFTER


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The delivery of one message to one webhook, with the outcome of the last attempt."""

    id: str
    webhook_id: str
    message_id: str
    channel: str
    state: DeliveryState
    attempts: int
    turn: int  # the job that may make the next attempt; jobs of earlier turns are ignored
    status_code: int | None = None
    error: str | None = None
    response: str | None = None
    created_at: datetime
    last_tried_at: datetime | None = None
    next_try_at: datetime | None = None
    finished_at: datetime | None = None


def new_secret() -> str:
    """A signing secret: 256 random bits."""
    return f"whsec_{secrets.token_urlsafe(32)}"


def check_channels(channels: Collection[str], known: Collection[str]) -> None:
    """Raise `ChannelUnknown` for the first channel that webhooks cannot subscribe to."""
    for channel in channels:
        if channel != ALL_CHANNELS and channel not in known:
            raise ChannelUnknown(channel=channel)


def owners_of(payload: JsonObject) -> tuple[int | None, int | None]:
    """The user and the merchant of a message."""
    user_id, merchant_id = payload.get("user_id"), payload.get("merchant_id")
    return _integer(user_id), _integer(merchant_id)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
