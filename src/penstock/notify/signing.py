"""The body of a delivery and its signature.

The signature covers the timestamp and the body, so neither can be changed or replayed later; the body contains the
message id. While a secret is rotated there are two signatures, separated by a comma, and a receiver accepts either of
them. A receiver verifies the signature before it parses the body, and rejects old timestamps.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from penstock.kernel.columns import to_json
from penstock.kernel.outbox import OutboxMessage

MAX_BODY_BYTES = 256 * 1024  # a body is stored once per delivery; messages carry ids, not documents


def build_body(message: OutboxMessage) -> str:
    """The JSON to post, the same in every attempt."""
    envelope = {"id": message.id, "channel": message.channel, "created_at": message.created_at.isoformat()}
    text = to_json(envelope | {"payload": message.payload})
    if (size := len(text.encode())) <= MAX_BODY_BYTES:
        return text
    omitted = f"{size} bytes exceed the limit of {MAX_BODY_BYTES} for a webhook"
    return to_json(envelope | {"payload": None, "omitted": omitted})


def sign(secret: str, *, timestamp: int, body: bytes) -> str:
    """One signature: hex HMAC-SHA256 over `{timestamp}.{body}`."""
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), sha256).hexdigest()


def signed_headers(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers with which a receiver verifies the origin of a body."""
    signatures = (sign(secret, timestamp=timestamp, body=body) for secret in secrets)
    return {
        "Content-Type": "application/json",
        "Penstock-Id": message_id,
        "Penstock-Timestamp": str(timestamp),
        "Penstock-Signature": ",".join(f"v1={signature}" for signature in signatures),
    }
