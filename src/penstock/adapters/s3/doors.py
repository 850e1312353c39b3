"""The ways to the store through obstore: quick or patient, tried again or not."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from obstore.store import S3Store

from penstock.adapters.s3.place import Patience, S3Place

if TYPE_CHECKING:
    from obstore.store import RetryConfig, S3Config

SMALL_BYTES = 1024 * 1024  # what goes through the quick door
RETRIES = 3  # of a request that the store refused for now, or that did not reach it
RETRY_SHARE = 0.8  # of the time for an answer: who waited that long in vain is told so, and does not wait again
WHOLE_TIME = timedelta(days=1)  # a body may take long as long as it moves


@dataclass(frozen=True, kw_only=True)
class Doors:
    """Four clients of one bucket. Through the `_once` ones nothing is tried again.

    A request that says "only if the key is free" must not be: had the first try taken the key and only its answer been
    lost, the second would say that somebody else has it.
    """

    quick: S3Store
    patient: S3Store
    quick_once: S3Store
    patient_once: S3Store

    @classmethod
    def open(cls, place: S3Place, patience: Patience) -> Self:
        """Make the clients; none of them connects before its first request."""
        quick, patient, claim = patience.answer_seconds, patience.part_seconds, patience.claim_seconds
        return cls(
            quick=_open(place, patience, quick, RETRIES),
            patient=_open(place, patience, patient, RETRIES),
            quick_once=_open(place, patience, claim, 0),
            patient_once=_open(place, patience, max(claim, patient), 0),
        )

    def for_body(self, size_bytes: int) -> S3Store:
        """The door for a body that replaces what is there."""
        return self.quick if size_bytes <= SMALL_BYTES else self.patient

    def for_new_body(self, size_bytes: int) -> S3Store:
        """The door for a body that takes a free key."""
        return self.quick_once if size_bytes <= SMALL_BYTES else self.patient_once


def _open(place: S3Place, patience: Patience, answer_seconds: float, retries: int) -> S3Store:
    return S3Store(
        place.bucket,
        config=_config(place),
        client_options={
            "allow_http": place.origin.startswith("http://"),
            "connect_timeout": timedelta(seconds=patience.connect_seconds),
            "read_timeout": timedelta(seconds=answer_seconds),
            "timeout": WHOLE_TIME,
        },
        retry_config=_retries(patience, retries),
    )


def _config(place: S3Place) -> "S3Config":
    """Said outright, so that no AWS_… variable that only obstore knows leads one half of us elsewhere."""
    config: S3Config = {
        "endpoint": place.origin,
        "aws_endpoint_url_s3": place.origin,
        "region": place.region,
        "virtual_hosted_style_request": False,
        "skip_signature": False,
        "disable_bulk_delete": True,  # one plain DELETE, which every store knows
        "copy_if_not_exists": "header:if-none-match:*",
    }
    if place.keys is None:
        return config
    config |= {"access_key_id": place.keys.key_id, "secret_access_key": place.keys.secret}
    return config | {"session_token": place.keys.token} if place.keys.token else config


def _retries(patience: Patience, retries: int) -> "RetryConfig":
    soonest = timedelta(seconds=patience.answer_seconds / 100)
    return {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=patience.answer_seconds * RETRY_SHARE),
        "backoff": {"init_backoff": soonest, "max_backoff": soonest * 10, "base": 2},
    }
