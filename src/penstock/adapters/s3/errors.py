"""Map errors of the store to those of the Blobs port: it is down, paused, denies access, or is full.

Without `s3:ListBucket`, S3 answers 403 instead of 404 for a missing object: that is denied access, so the store is
unavailable. obstore reports most failures as text. The HTTP status and the store's error code are parsed from it with
care: the text also contains the key, which may be crafted to look like a response. Only these two reach our messages;
the text stays available as the cause.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobsUnavailable
from penstock.kernel.errors import DiskFull, PenstockError

OBSTORE_ERRORS = (BaseError, FileNotFoundError)  # everything obstore raises for a failed request
STATUSES = {FileNotFoundError: 404, PermissionDeniedError: 403, UnauthenticatedError: 401, PreconditionError: 412}
STATUS = re.compile(r"Generic S3 error: [^<]*? - Server returned non-2xx status code: (\d{3})\b")
CODE = re.compile(r"\s*<Code>(\w{1,80})</Code>")
HTTP_ERROR_KIND = re.compile(r"HttpError \{\s+kind: (\w+)")
FULL_STATUS = 507
FULL_CODES = {  # of several stores, each with an HTTP status of its own
    "InsufficientCapacity", "InsufficientStorage", "NoSpaceLeft", "QuotaExceeded", "StorageFull",
    "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded",
}  # fmt: skip


@contextmanager
def mapped_errors(key: str) -> Iterator[None]:
    """Map obstore errors in the block to errors about `key`."""
    try:
        yield
    except OBSTORE_ERRORS as error:
        raise map_error(key, error) from error


def map_error(key: str, error: Exception) -> PenstockError:
    """The Blobs error for an obstore error."""
    status, code = status_of(error), _code_of(error)
    if isinstance(error, AlreadyExistsError):
        return BlobExists(key=key)
    if isinstance(error, InvalidPathError):
        return BlobsUnavailable(reason="the bucket contains a key that obstore cannot list")
    if status == 404 and code == "NoSuchKey":  # any other 404: no such bucket, or not an S3 server
        return BlobNotFound(key=key)
    if status is not None:
        return error_for_status(key, status, code)
    return BlobsUnavailable(reason=_connection_failure(str(error)))


def error_for_status(key: str, status: int, code: str | None) -> PenstockError:
    """The Blobs error for an unsuccessful response."""
    if status == FULL_STATUS or code in FULL_CODES:
        return DiskFull(what=key)
    return BlobsUnavailable(reason=f"HTTP {status} {code}" if code else f"HTTP {status}")


def status_of(error: Exception) -> int | None:
    """The HTTP status behind an obstore error, if there was a response."""
    known = STATUSES.get(type(error))
    if known is not None:
        return known
    found = STATUS.match(str(error))
    return int(found.group(1)) if found else None


def error_code_in(answer: str) -> str | None:
    """The code in an S3 error document. Echoes of the request come later in it and are escaped."""
    found = CODE.match(answer.rpartition("<Error>")[2])
    return found.group(1) if found else None


def _code_of(error: Exception) -> str | None:
    text, _, _details = str(error).partition("\n\nDebug source:")
    return error_code_in(text)


def _connection_failure(text: str) -> str:
    found = HTTP_ERROR_KIND.search(text)
    kind = found.group(1) if found else ""
    return {"Timeout": "timed out", "Connect": "cannot connect"}.get(kind, "the connection broke")
