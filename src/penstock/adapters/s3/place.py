"""Which bucket, where it is, and as whom we come: all that is known before the first request."""

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from penstock.kernel.blobs import why_bad_key
from penstock.kernel.errors import Invalid

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
MOST_PREFIX_BYTES = 400  # with the longest key and what a listing adds to it, still under S3's 1,024


class BadS3Place(Invalid):
    """The S3 store is set in a way that cannot work."""

    code = "BAD_S3_PLACE"
    message = "The S3 store cannot be used as it is set: {reason}."
    hint = "PENSTOCK_BLOBS_URL is s3://bucket or s3://bucket/prefix; AWS_ENDPOINT_URL begins with http:// or https://."
    message_zh = "S3 存储的设置无法使用：{reason}。"
    hint_zh = (
        "PENSTOCK_BLOBS_URL 应为 s3://bucket 或 s3://bucket/prefix；AWS_ENDPOINT_URL 应以 http:// 或 https:// 开头。"
    )


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Who we are to the store. The secret parts are never shown."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the store may take. A part is 8 MiB at the most, so a large body has to make progress."""

    connect_seconds: float = 2.0
    answer_seconds: float = 5.0  # to a small request, and between two pieces of what is read
    claim_seconds: float = 15.0  # to a request that takes a free key, for which SeaweedFS makes racers wait in line
    part_seconds: float = 60.0  # to a part of a large object, sent and answered, and to a copy made by the store


@dataclass(frozen=True, kw_only=True)
class S3Place:
    """A bucket, or what lies under one prefix of it."""

    bucket: str
    keys: Keys | None  # none: the machine's own role, as the AWS_* variables and services of the machine give it
    prefix: str = ""
    region: str = "us-east-1"
    endpoint: str = ""

    def __post_init__(self) -> None:
        reason = self._why_bad()
        if reason is not None:
            raise BadS3Place(reason=reason)

    @classmethod
    def at(cls, url: str, *, keys: Keys | None, region: str, endpoint: str = "") -> "S3Place":
        """The place that `s3://bucket/prefix` names; an empty endpoint is Amazon's own."""
        if not url.startswith("s3://"):
            raise BadS3Place(reason="the address does not begin with s3://")
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return cls(bucket=bucket, prefix=prefix.strip("/"), keys=keys, region=region, endpoint=endpoint)

    @property
    def origin(self) -> str:
        """Scheme and host of the store. The bucket goes into the path, which every store understands."""
        amazon = f"https://s3.{self.region}.amazonaws.com" + (".cn" if self.region.startswith("cn-") else "")
        return self.endpoint.rstrip("/") or amazon

    @property
    def root(self) -> str:
        """What every key of ours begins with in the bucket."""
        return f"{self.prefix}/" if self.prefix else ""

    def _why_bad(self) -> str | None:
        if not BUCKET.fullmatch(self.bucket):
            return f"{self.bucket[:80]!r} is no name of a bucket"
        if self.prefix and (reason := why_bad_key(self.prefix)):
            return f"the prefix is not allowed: {reason}"
        if len(self.prefix.encode()) > MOST_PREFIX_BYTES:
            return f"the prefix is longer than {MOST_PREFIX_BYTES} bytes"
        if not self.region:
            return "the region is missing"
        if self.keys is not None and not (self.keys.key_id and self.keys.secret):
            return "of the access key and its secret only one is given"
        return _why_bad_endpoint(self.endpoint)


def _why_bad_endpoint(endpoint: str) -> str | None:
    if not endpoint:
        return None
    url = _parsed(endpoint)
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        return "the endpoint is no address of the form http://host:port or https://host:port"
    if url.username is not None or url.password is not None:
        return "the endpoint carries a name or a password; keys are set apart from it"
    if url.path.strip("/") or url.query or url.fragment:
        return "the endpoint has a path; the bucket belongs into the address s3://bucket"
    return None


def _parsed(endpoint: str) -> SplitResult | None:
    try:
        url = urlsplit(endpoint)
        return url if url.port != 0 else None  # asking for a port that is none raises
    except ValueError:
        return None
