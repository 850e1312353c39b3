"""Webhooks as values: subscriptions, backoff, and when one is disabled."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.kernel.machine import WrongState
from penstock.notify.delivery_jobs import BACKOFF, JITTER, backoff_after
from penstock.notify.domain import (
    DELIVERY,
    DISABLE_AFTER,
    DISABLE_AFTER_FAILURES,
    MAX_RETRY_AFTER,
    SECRET_GRACE,
    ChannelUnknown,
    DeliveryState,
    Webhook,
    WebhookResponse,
    check_channels,
    owners_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def webhook(**values: object) -> Webhook:
    plain = {"id": "whk_1", "user_id": 5, "merchant_id": None, "sees_all": False, "url": "https://a.example/"}
    plain |= {"channels": ["*"], "secret": "whsec_one", "created_at": NOW, "created_by": "anna"}
    return Webhook(**plain | values)  # type: ignore[arg-type]  # the fields of Webhook


@pytest.mark.parametrize("state", DeliveryState)
@pytest.mark.parametrize("verb", DELIVERY.verbs)
def test_only_pending_deliveries_move_on_and_all_can_be_resent(verb: str, state: DeliveryState):
    after = {"deliver": "delivered", "retry": "pending", "fail": "failed", "resend": "pending"}[verb]
    if verb == "resend" or state is DeliveryState.PENDING:
        assert DELIVERY.move(verb, state) == after
    else:
        with pytest.raises(WrongState):
            DELIVERY.move(verb, state)


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("120", 120),
            ("0", 0),
            ("Thu, 01 Jan 2026 00:10:00 GMT", 600),
            ("Wed, 31 Dec 2025 00:00:00 GMT", 0),
            ("99999999999999999999", MAX_RETRY_AFTER.total_seconds()),
            ("Thu, 01 Jan 2099 00:00:00 GMT", MAX_RETRY_AFTER.total_seconds()),
            ("Thu, 01 Jan 2026 00:10:00 -0000", 0),
            ("Thu, 99 Foo 2026", 0),
            ("-5", 0),
            ("1e9", 0),
            ("²", 0),
            (" ", 0),
            ("", 0),
        ],
    )
    def test_it_is_parsed_within_bounds(self, text: str, seconds: float):
        assert WebhookResponse(status=503, retry_after=text).retry_delay(NOW).total_seconds() == seconds

    def test_it_is_ignored_with_another_status(self):
        waits = [WebhookResponse(status=status, retry_after="60").retry_delay(NOW) for status in (429, 503, 500, 200)]
        assert waits == [timedelta(minutes=1), timedelta(minutes=1), timedelta(), timedelta()]


class TestBackoff:
    def test_they_grow_and_the_last_one_stays(self):
        for attempts in range(1, 20):
            middle = BACKOFF[min(attempts, len(BACKOFF)) - 1]
            assert middle <= backoff_after(attempts) <= middle * (1 + JITTER)


class TestSecrets:
    def test_the_old_one_signs_beside_the_new_one_for_a_while(self):
        before = webhook()
        after = before.with_new_secret(now=NOW)
        assert before.secrets_at(NOW) == ["whsec_one"]
        assert after.secrets_at(NOW + SECRET_GRACE - timedelta(seconds=1)) == [after.secret, "whsec_one"]
        assert after.secrets_at(NOW + SECRET_GRACE) == [after.secret]
        assert after.secret.startswith("whsec_")

    def test_they_are_in_no_repr(self):
        assert "whsec" not in repr(webhook().with_new_secret(now=NOW))


class TestDisablingRule:
    @pytest.mark.parametrize(
        ("failed", "since", "lost"),
        [
            (DISABLE_AFTER_FAILURES, NOW - DISABLE_AFTER, True),
            (DISABLE_AFTER_FAILURES - 1, NOW - DISABLE_AFTER, False),
            (DISABLE_AFTER_FAILURES, NOW - DISABLE_AFTER + timedelta(seconds=1), False),
            (0, None, False),
        ],
    )
    def test_it_needs_both_many_failures_and_days(self, failed: int, since: datetime | None, lost: bool):
        assert webhook(failed_in_row=failed, failing_since=since).has_failed_for_days(NOW) is lost

    def test_enabling_resets_the_failures(self):
        off = webhook(failed_in_row=9, failing_since=NOW).disabled("gone")
        assert (off.active, off.disabled_reason) == (False, "gone")
        assert off.enabled() == webhook()


class TestSubscribers:
    @pytest.mark.parametrize(
        ("payload", "owners"),
        [
            ({"user_id": 5, "merchant_id": 9}, (5, 9)),
            ({"user_id": 5}, (5, None)),
            ({}, (None, None)),
            ({"user_id": "5", "merchant_id": True}, (None, None)),
        ],
    )
    def test_the_owners_of_a_message(self, payload: dict[str, object], owners: tuple[int | None, int | None]):
        assert owners_of(payload) == owners

    def test_channels_are_subscribed_by_name_or_all_at_once(self):
        assert webhook().is_subscribed_to("Paid")
        assert webhook(channels=["Paid"]).is_subscribed_to("Paid")
        assert not webhook(channels=["Shipped"]).is_subscribed_to("Paid")

    def test_an_unknown_channel_is_named(self):
        check_channels(["*", "Paid"], {"Paid"})
        with pytest.raises(ChannelUnknown, match="channels contains 'Lost'"):
            check_channels(["Paid", "Lost"], {"Paid"})

    @pytest.mark.parametrize(
        ("owner", "audience"),
        [({}, "user:5"), ({"merchant_id": 9}, "merchant:9"), ({"merchant_id": 9, "sees_all": True}, "")],
    )
    def test_the_audience_of_its_events(self, owner: dict[str, object], audience: str):
        assert webhook(**owner).audience == audience
