"""obstore clients of one bucket: with short or long timeouts, with or without retries."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from obstore.store import S3Store

from penstock.adapters.s3.config import S3Bucket, S3Timeouts

if TYPE_CHECKING:
    from obstore.store import RetryConfig, S3Config

SMALL_BYTES = 1024 * 1024  # the largest body sent with the short timeout
RETRIES = 3  # of a request that was refused temporarily or did not reach the store
RETRY_SHARE = 0.8  # of the answer timeout: a request that timed out is not retried
WHOLE_TIME = timedelta(days=1)  # a body may take long as long as it makes progress


@dataclass(frozen=True, kw_only=True)
class S3Clients:
    """Four clients of one bucket. `fast_no_retry` and `slow_no_retry` never retry.

    A conditional create must not be retried: if the first try succeeded and only its response was lost, the second
    would report that someone else has the key.
    """

    fast: S3Store
    slow: S3Store
    fast_no_retry: S3Store
    slow_no_retry: S3Store

    @classmethod
    def open(cls, bucket: S3Bucket, timeouts: S3Timeouts) -> Self:
        """Create the clients; each connects on its first request."""
        fast, slow, claim = timeouts.answer_seconds, timeouts.part_seconds, timeouts.claim_seconds
        return cls(
            fast=_open(bucket, timeouts, fast, RETRIES),
            slow=_open(bucket, timeouts, slow, RETRIES),
            fast_no_retry=_open(bucket, timeouts, claim, 0),
            slow_no_retry=_open(bucket, timeouts, max(claim, slow), 0),
        )

    def for_body(self, size_bytes: int) -> S3Store:
        """The client for a body that replaces an object."""
        return self.fast if size_bytes <= SMALL_BYTES else self.slow

    def for_new_body(self, size_bytes: int) -> S3Store:
        """The client for a body that creates an object."""
        return self.fast_no_retry if size_bytes <= SMALL_BYTES else self.slow_no_retry


def _open(bucket: S3Bucket, timeouts: S3Timeouts, answer_seconds: float, retries: int) -> S3Store:
    return S3Store(
        bucket.bucket,
        config=_config(bucket),
        client_options={
            "allow_http": bucket.origin.startswith("http://"),
            "connect_timeout": timedelta(seconds=timeouts.connect_seconds),
            "read_timeout": timedelta(seconds=answer_seconds),
            "timeout": WHOLE_TIME,
        },
        retry_config=_retries(timeouts, retries),
    )


def _config(bucket: S3Bucket) -> "S3Config":
    """Explicit settings, so that no AWS_* variable known only to obstore sends its requests elsewhere than ours."""
    config: S3Config = {
        "endpoint": bucket.origin,
        "aws_endpoint_url_s3": bucket.origin,
        "region": bucket.region,
        "virtual_hosted_style_request": False,
        "skip_signature": False,
        "disable_bulk_delete": True,  # a single DELETE, which every store supports
        "copy_if_not_exists": "header:if-none-match:*",
    }
    if bucket.keys is None:
        return config
    config |= {"access_key_id": bucket.keys.key_id, "secret_access_key": bucket.keys.secret}
    return config | {"session_token": bucket.keys.token} if bucket.keys.token else config


def _retries(timeouts: S3Timeouts, retries: int) -> "RetryConfig":
    soonest = timedelta(seconds=timeouts.answer_seconds / 100)
    return {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=timeouts.answer_seconds * RETRY_SHARE),
        "backoff": {"init_backoff": soonest, "max_backoff": soonest * 10, "base": 2},
    }
