"""Signatures, and receivers that verify them as the how-to says."""

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.kernel.outbox import OutboxMessage
from penstock.notify.signing import MAX_BODY_BYTES, build_body, sign, signed_headers
from tests.checks import tree

Check = Callable[[str, Mapping[str, str], bytes], bool]
BODY = b'{"id":"msg_1"}'


def shown_check() -> Check:
    """The function that the how-to shows to receivers in Python."""
    page = (tree.ROOT / "docs" / "howto" / "webhooks.md").read_text(encoding="utf-8")
    [script] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(script, names)
    check: Check = names["is_from_penstock"]
    return check


def headers(*secrets: str, age_seconds: int = 0, body: bytes = BODY) -> dict[str, str]:
    return signed_headers(secrets, message_id="msg_1", timestamp=int(time.time()) - age_seconds, body=body)


def message(**payload: object) -> OutboxMessage:
    return OutboxMessage(
        id="msg_1", channel="Paid", dedup_key="", payload=payload, created_at=datetime(2026, 1, 1, tzinfo=UTC)
    )


def test_the_signature_is_hmac_sha256_over_the_time_a_dot_and_the_body():
    """The figure was worked out with `printf '1.{}' | openssl dgst -sha256 -hmac whsec_one`."""
    assert (
        sign("whsec_one", timestamp=1, body=b"{}") == "2eeea2d0933637057c84c5d4843123c25f55c7631b030cad452196a0ed217a64"
    )


def test_a_receiver_that_follows_the_howto_accepts_our_signature():
    assert shown_check()("whsec_one", headers("whsec_one"), BODY)


@pytest.mark.parametrize("secret", ["whsec_new", "whsec_old"])
def test_while_a_secret_is_replaced_a_receiver_may_hold_either(secret: str):
    both = headers("whsec_new", "whsec_old")
    assert both["Penstock-Signature"].count("v1=") == 2
    assert shown_check()(secret, both, BODY)


@pytest.mark.parametrize(
    ("secret", "changes", "body"),
    [
        pytest.param("whsec_two", {}, BODY, id="another secret"),
        pytest.param("whsec_one", {}, b'{"id":"msg_2"}', id="another body"),
        pytest.param("whsec_one", {"Penstock-Timestamp": str(int(time.time()) + 9)}, BODY, id="another time"),
        pytest.param("whsec_one", {"Penstock-Timestamp": "now"}, BODY, id="no time"),
        pytest.param("whsec_one", {"Penstock-Signature": "v1="}, BODY, id="no signature"),
        pytest.param("whsec_one", {"Penstock-Signature": "v1=é"}, BODY, id="an odd signature"),
    ],
)
def test_a_receiver_that_follows_the_howto_refuses(secret: str, changes: dict[str, str], body: bytes):
    assert not shown_check()(secret, headers("whsec_one") | changes, body)


def test_a_receiver_that_follows_the_howto_refuses_a_replay():
    assert not shown_check()("whsec_one", headers("whsec_one", age_seconds=301), BODY)


def test_the_body_has_the_message_and_its_channel():
    assert json.loads(build_body(message(invoice=7))) == {
        "id": "msg_1",
        "channel": "Paid",
        "created_at": "2026-01-01T00:00:00+00:00",
        "payload": {"invoice": 7},
    }


def test_a_payload_over_the_limit_is_omitted_with_a_note():
    body = build_body(message(text="é" * (MAX_BODY_BYTES // 2)))
    assert len(body) < 1000
    said = json.loads(body)
    assert (said["id"], said["payload"]) == ("msg_1", None)
    assert str(MAX_BODY_BYTES) in said["omitted"]
