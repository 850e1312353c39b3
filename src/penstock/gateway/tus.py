"""The headers of tus 1.0.0: read strictly, before anything is written. Pure functions."""

import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from urllib.parse import urlsplit

from penstock.gateway.domain import UploadKind
from penstock.gateway.errors import BadTusHeader, ChecksumUnsupported, TusVersionUnsupported

VERSION = "1.0.0"
EXTENSIONS = (
    "creation", "creation-with-upload", "creation-defer-length", "checksum", "termination", "expiration",
    "concatenation",
)  # fmt: skip
CHECKSUMS = ("sha1", "sha256")
OFFSET_STREAM = "application/offset+octet-stream"
MAX_METADATA_BYTES = 16 * 1024
MAX_PARTS = 1000  # of a final upload
NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
KEY = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,255}")  # printable ASCII without space and comma
UPLOAD_ID = re.compile(r"upl_[A-Za-z0-9_-]{21}")


@dataclass(frozen=True, kw_only=True)
class Checksum:
    """What `Upload-Checksum` says."""

    algorithm: str
    digest: bytes

    def new_hash(self) -> "hashlib._Hash":
        """A hash to update with the bytes of the request."""
        return hashlib.new(self.algorithm, usedforsecurity=False)


@dataclass(frozen=True, kw_only=True)
class Concat:
    """What `Upload-Concat` says."""

    kind: UploadKind = UploadKind.ORDINARY
    parts: Sequence[str] = ()


def check_version(given: str | None) -> None:
    """Raise `TusVersionUnsupported` unless the request is for our version."""
    if given != VERSION:
        raise TusVersionUnsupported(version=given)


def read_number(header: str, given: str | None) -> int:
    """A size or an offset; `BadTusHeader` if it is missing or no plain number."""
    if given is None:
        raise BadTusHeader(header=header, reason="the header is missing")
    if not NUMBER.fullmatch(given):
        raise BadTusHeader(header=header, reason="expected a number of bytes")
    return int(given)


def read_metadata(given: str | None) -> dict[str, str]:
    """The pairs of `Upload-Metadata`: keys, and values in base64."""
    if given is None or not given.strip():
        return {}
    if len(given) > MAX_METADATA_BYTES:
        raise BadTusHeader(header="Upload-Metadata", reason=f"it is longer than {MAX_METADATA_BYTES} bytes")
    pairs: dict[str, str] = {}
    for pair in given.split(","):
        key, _, value = pair.strip().partition(" ")
        if not KEY.fullmatch(key):
            raise BadTusHeader(header="Upload-Metadata", reason="a key is empty or not printable ASCII")
        if key in pairs:
            raise BadTusHeader(header="Upload-Metadata", reason=f"the key {key} is repeated")
        pairs[key] = _read_value(key, value.strip())
    return pairs


def _read_value(key: str, value: str) -> str:
    try:
        return b64decode(value, validate=True).decode()
    except ValueError as error:
        raise BadTusHeader(header="Upload-Metadata", reason=f"the value of {key} is not base64 of UTF-8") from error


def read_checksum(given: str | None) -> Checksum | None:
    """The checksum of a request, if it has one."""
    if given is None:
        return None
    algorithm, _, encoded = given.strip().partition(" ")
    if algorithm not in CHECKSUMS:
        raise ChecksumUnsupported(algorithm=algorithm[:32])
    try:
        digest = b64decode(encoded.strip(), validate=True)
    except ValueError as error:
        raise BadTusHeader(header="Upload-Checksum", reason="the checksum is not base64") from error
    checksum = Checksum(algorithm=algorithm, digest=digest)
    if len(digest) != checksum.new_hash().digest_size:
        raise BadTusHeader(header="Upload-Checksum", reason=f"it is no {algorithm} checksum")
    return checksum


def read_concat(given: str | None) -> Concat:
    """Whether the upload is partial, or final and of which partial ones."""
    if given is None:
        return Concat()
    if given.strip() == "partial":
        return Concat(kind=UploadKind.PARTIAL)
    kind, semicolon, urls = given.strip().partition(";")
    if kind != "final" or not semicolon or not urls.split():
        raise BadTusHeader(header="Upload-Concat", reason="expected partial, or final; and the URLs of partial uploads")
    parts = [_upload_id(url) for url in urls.split()]
    if len(parts) > MAX_PARTS:
        raise BadTusHeader(header="Upload-Concat", reason=f"more than {MAX_PARTS} uploads")
    return Concat(kind=UploadKind.FINAL, parts=parts)


def _upload_id(url: str) -> str:
    """The id in the URL of an upload, which may be absolute or relative."""
    try:
        last = urlsplit(url).path.rpartition("/")[2]
    except ValueError:
        last = ""
    if not UPLOAD_ID.fullmatch(last):
        raise BadTusHeader(header="Upload-Concat", reason="it has a URL that is no upload")
    return last


def options_headers(*, max_bytes: int) -> Mapping[str, str]:
    """What the server can do."""
    return {
        "Tus-Version": VERSION,
        "Tus-Max-Size": str(max_bytes),
        "Tus-Extension": ",".join(EXTENSIONS),
        "Tus-Checksum-Algorithm": ",".join(CHECKSUMS),
    }


def http_date(at: datetime) -> str:
    """A time as `Upload-Expires` has it."""
    return format_datetime(at.replace(microsecond=0), usegmt=True)
