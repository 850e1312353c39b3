"""Bucket, endpoint, credentials and timeouts of the S3 store. URLs are path-style."""

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from penstock.kernel.blobs import why_bad_key
from penstock.kernel.errors import Invalid

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
MAX_PREFIX_BYTES = 400  # with the longest key and what a listing appends, below the S3 limit of 1,024


class BadS3Settings(Invalid):
    """The S3 settings cannot work."""

    code = "BAD_S3_PLACE"
    message = "Invalid S3 settings: {reason}."
    hint = "PENSTOCK_BLOBS_URL is s3://bucket or s3://bucket/prefix; AWS_ENDPOINT_URL begins with http:// or https://."
    message_zh = "S3 设置无效：{reason}。"
    hint_zh = (
        "PENSTOCK_BLOBS_URL 应为 s3://bucket 或 s3://bucket/prefix；AWS_ENDPOINT_URL 应以 http:// 或 https:// 开头。"
    )


@dataclass(frozen=True, kw_only=True)
class S3Credentials:
    """An access key. Its secret parts are not in the repr."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class S3Timeouts:
    """Timeouts of requests to the store. A part is at most 8 MiB, so a large body has to make progress."""

    connect_seconds: float = 2.0
    answer_seconds: float = 5.0  # of a small request, and between two chunks of a body
    claim_seconds: float = 15.0  # of a conditional create, which SeaweedFS serialises per key
    part_seconds: float = 60.0  # of one part of a large object, and of a copy made by the store


@dataclass(frozen=True, kw_only=True)
class S3Bucket:
    """A bucket, or one prefix of it."""

    bucket: str
    keys: S3Credentials | None  # None: the machine's IAM role, from the AWS_* variables and metadata services
    prefix: str = ""
    region: str = "us-east-1"
    endpoint: str = ""

    def __post_init__(self) -> None:
        reason = self._why_bad()
        if reason is not None:
            raise BadS3Settings(reason=reason)

    @classmethod
    def at(cls, url: str, *, keys: S3Credentials | None, region: str, endpoint: str = "") -> "S3Bucket":
        """The bucket that `s3://bucket/prefix` names; an empty endpoint means Amazon's."""
        if not url.startswith("s3://"):
            raise BadS3Settings(reason="the URL does not begin with s3://")
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return cls(bucket=bucket, prefix=prefix.strip("/"), keys=keys, region=region, endpoint=endpoint)

    @property
    def origin(self) -> str:
        """Scheme and host of the store. The bucket goes into the path (path-style), which every store supports."""
        amazon = f"https://s3.{self.region}.amazonaws.com" + (".cn" if self.region.startswith("cn-") else "")
        return self.endpoint.rstrip("/") or amazon

    @property
    def root(self) -> str:
        """The prefix of all our keys in the bucket."""
        return f"{self.prefix}/" if self.prefix else ""

    def _why_bad(self) -> str | None:
        if not BUCKET.fullmatch(self.bucket):
            return f"{self.bucket[:80]!r} is not a valid bucket name"
        if self.prefix and (reason := why_bad_key(self.prefix)):
            return f"the prefix is not allowed: {reason}"
        if len(self.prefix.encode()) > MAX_PREFIX_BYTES:
            return f"the prefix is longer than {MAX_PREFIX_BYTES} bytes"
        if not self.region:
            return "the region is missing"
        if self.keys is not None and not (self.keys.key_id and self.keys.secret):
            return "only one of access key and secret is set"
        return _why_bad_endpoint(self.endpoint)


def _why_bad_endpoint(endpoint: str) -> str | None:
    if not endpoint:
        return None
    url = _parsed(endpoint)
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        return "the endpoint must look like http://host:port or https://host:port"
    if url.username is not None or url.password is not None:
        return "the endpoint contains a user name or a password; set the access key instead"
    if url.path.strip("/") or url.query or url.fragment:
        return "the endpoint has a path; the bucket belongs in s3://bucket"
    return None


def _parsed(endpoint: str) -> SplitResult | None:
    try:
        url = urlsplit(endpoint)
        return url if url.port != 0 else None  # reading an invalid port raises
    except ValueError:
        return None
