"""What goes wrong at the store, given the names of the port.

obstore tells most failures as text only. The status and the store's own code are read from there, with care: the text
also holds the key, which may have been made to look like an answer. Nothing of the text reaches a message of ours but
these two; it stays readable as the cause.
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

OUTSIDE = (BaseError, FileNotFoundError)  # all that obstore raises when a request fails
STATUSES = {FileNotFoundError: 404, PermissionDeniedError: 403, UnauthenticatedError: 401, PreconditionError: 412}
STATUS = re.compile(r"Generic S3 error: [^<]*? - Server returned non-2xx status code: (\d{3})\b")
CODE = re.compile(r"\s*<Code>(\w{1,80})</Code>")
SILENCE = re.compile(r"HttpError \{\s+kind: (\w+)")
FULL_STATUS = 507
FULL_CODES = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}


@contextmanager
def named(key: str) -> Iterator[None]:
    """Give what fails inside the block its name; `key` is what it was about."""
    try:
        yield
    except OUTSIDE as error:
        raise name(key, error) from error


def name(key: str, error: Exception) -> PenstockError:
    """The error of the port that a failure of obstore is."""
    status, code = status_of(error), _code_of(error)
    if isinstance(error, AlreadyExistsError):
        return BlobExists(key=key)
    if isinstance(error, InvalidPathError):
        return BlobsUnavailable(reason="it holds a key that obstore cannot list")
    if status == 404 and code == "NoSuchKey":  # any other 404: no such bucket, or this is no S3 at all
        return BlobNotFound(key=key)
    if status is not None:
        return answered(key, status, code)
    return BlobsUnavailable(reason=_why_silent(str(error)))


def answered(key: str, status: int, code: str | None) -> PenstockError:
    """The error that an answer other than "yes" is."""
    if status == FULL_STATUS or code in FULL_CODES:
        return DiskFull(what=key)
    return BlobsUnavailable(reason=f"it answered {status} {code}" if code else f"it answered {status}")


def status_of(error: Exception) -> int | None:
    """The HTTP status behind a failure of obstore, if the store answered at all."""
    known = STATUSES.get(type(error))
    if known is not None:
        return known
    found = STATUS.match(str(error))
    return int(found.group(1)) if found else None


def code_in(answer: str) -> str | None:
    """The code in an error that the store sent. What it repeats of the request comes later and is escaped."""
    found = CODE.match(answer.rpartition("<Error>")[2])
    return found.group(1) if found else None


def _code_of(error: Exception) -> str | None:
    said, _, _details = str(error).partition("\n\nDebug source:")
    return code_in(said)


def _why_silent(text: str) -> str:
    found = SILENCE.search(text)
    kind = found.group(1) if found else ""
    return {"Timeout": "it did not answer in time", "Connect": "it cannot be reached"}.get(kind, "the connection broke")
