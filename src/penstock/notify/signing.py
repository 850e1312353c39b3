"""What a delivery looks like on the wire, and how it is signed.

The signature covers the time and the body, so neither can be changed or replayed later; the message's id is in the body
and thereby signed too. While a secret is being replaced there are two signatures, and a receiver needs to find one of
them right.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from penstock.kernel.columns import to_json
from penstock.kernel.outbox import Parcel

MOST_BODY_BYTES = 256 * 1024  # a body is kept once per delivery; messages carry ids, not documents


def body_of(parcel: Parcel) -> str:
    """The JSON that is posted, the same at every try."""
    said = {"id": parcel.id, "channel": parcel.channel, "created_at": parcel.created_at.isoformat()}
    text = to_json(said | {"payload": parcel.payload})
    if (size := len(text.encode())) <= MOST_BODY_BYTES:
        return text
    return to_json(
        said | {"payload": None, "omitted": f"{size} bytes are more than the {MOST_BODY_BYTES} of a webhook"}
    )


def sign(secret: str, *, timestamp: int, body: bytes) -> str:
    """One signature: hex HMAC-SHA256 over `{timestamp}.{body}`."""
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), sha256).hexdigest()


def signed_headers(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that let a receiver check where a body comes from."""
    signatures = (sign(secret, timestamp=timestamp, body=body) for secret in secrets)
    return {
        "Content-Type": "application/json",
        "Penstock-Id": message_id,
        "Penstock-Timestamp": str(timestamp),
        "Penstock-Signature": ",".join(f"v1={signature}" for signature in signatures),
    }
