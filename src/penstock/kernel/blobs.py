"""The blob port: where bytes live that are too large for the database.

An object is stored under a key and never changes: a put replaces it whole or not at all. `adapters/` holds the
implementations; tests/conformance/test_blobs.py holds what each of them must do. This file does no I/O.

Keys differing only in case are different keys, so a disk that folds case is not supported.
"""

import unicodedata
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.kernel.errors import Conflict, Invalid, NotFound, TooLarge, Unavailable

MOST_KEY_BYTES = 512  # S3 allows 1,024; the half leaves room for a bucket prefix
MOST_SEGMENT_BYTES = 200  # disks allow 255 per name; an adapter may add to it
MOST_READ_BYTES = 16 * 1024 * 1024  # what `get` and `read_range` hold in memory; larger things are streamed
MOST_LISTED = 1000  # S3 gives no longer page
SHOWN_KEY_CHARACTERS = 120  # a refused key may be megabytes long; an error shows its beginning

Chunks = bytes | AsyncIterable[bytes]


class BadBlobKey(Invalid):
    """A key that some store could misread."""

    code = "BAD_BLOB_KEY"
    message = "The key {key!r} is not allowed: {reason}."
    hint = "Use printable segments joined by '/', such as 'uploads/42/source.pdf'."


class BadBlobRange(Invalid):
    """A range that the object does not have."""

    code = "BAD_BLOB_RANGE"
    message = "Bytes {start} to {stop} of {key} cannot be read: {reason}."
    hint = "A range is half-open, starts inside the object or at its end, and does not run backwards."


class BadBlobPage(Invalid):
    """A page of a listing that is empty or too long."""

    code = "BAD_BLOB_PAGE"
    message = "A page holds 1 to {most} objects; {limit} were asked for."
    hint = "Ask for a smaller page and go on with `after`."


class BlobNotFound(NotFound):
    """No object is stored under the key."""

    code = "BLOB_NOT_FOUND"
    message = "No object is stored under {key}."
    hint = "Check the key; the object may have been deleted or never finished."


class BlobExists(Conflict):
    """The key is taken already."""

    code = "BLOB_EXISTS"
    message = "An object is already stored under {key}."
    hint = "Read the stored object, or choose another key."


class BlobTooLarge(TooLarge):
    """More would be read into memory than is good."""

    code = "BLOB_TOO_LARGE"
    message = "Reading {size_bytes} bytes of {key} at once is too much; the most is {most_bytes}."
    hint = "Stream the object, or read it in smaller ranges."


class BlobsUnavailable(Unavailable):
    """The object store does not answer as it should."""

    code = "BLOBS_UNAVAILABLE"
    message = "The object store does not answer as it should: {reason}."
    hint = "Check that the store is mounted or reachable and that Penstock may read and write there."


@dataclass(frozen=True, kw_only=True)
class BlobStat:
    """What the store knows about an object without reading it."""

    key: str
    size_bytes: int
    modified_at: datetime  # when the bytes were written; a copy may keep the time of its source


@dataclass(frozen=True, kw_only=True)
class BlobReceipt:
    """What was stored, as counted and hashed on the way in."""

    key: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BlobPage:
    """A part of a listing; `after` fetches the next part, None means that this was the last."""

    blobs: tuple[BlobStat, ...]
    after: str | None


class Blobs(Protocol):
    """A store of objects. Whatever fails is an error of this file, or DiskFull."""

    async def put(self, key: str, chunks: Chunks) -> BlobReceipt:
        """Store an object and replace what was there; when this raises, what was there is still there.

        A cancelled put has not happened or has happened whole, and nothing of it goes on after it has returned.
        """
        ...

    async def create(self, key: str, chunks: Chunks) -> BlobReceipt:
        """Store an object unless the key is taken (BlobExists); of many racers exactly one succeeds."""
        ...

    async def get(self, key: str, *, most_bytes: int = MOST_READ_BYTES) -> bytes:
        """The whole of a small object; BlobTooLarge when it has more than `most_bytes`."""
        ...

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        """The bytes [start, stop), fewer where the object ends earlier; at most MOST_READ_BYTES."""
        ...

    def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes [start, stop) in chunks of about 1 MiB, all of one version; errors come with the first chunk."""
        ...

    async def stat(self, key: str) -> BlobStat:
        """Size and time of an object."""
        ...

    async def copy(self, source: str, target: str) -> BlobStat:
        """Store the object of `source` under `target` too, and replace what was there."""
        ...

    async def delete(self, key: str) -> None:
        """Forget an object; harmless when there is none."""
        ...

    async def list(self, prefix: str, *, after: str | None = None, limit: int = MOST_LISTED) -> BlobPage:
        """The objects whose keys begin with `prefix` and come after `after`, in the byte order of their keys."""
        ...


def check_key(key: str) -> None:
    """Refuse a key that some store could misread."""
    reason = why_bad_key(key)
    if reason is not None:
        raise BadBlobKey(key=key[:SHOWN_KEY_CHARACTERS], reason=reason)


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that no allowed key begins with. Its last segment may be a part of one, or empty."""
    folder, slash, _part = prefix.rpartition("/")
    reason = _why_bad_text(prefix) or (_why_bad_segments(folder) if slash else None)
    if reason is not None:
        raise BadBlobKey(key=prefix[:SHOWN_KEY_CHARACTERS], reason=reason)


def check_range(key: str, start: int, stop: int | None) -> None:
    """Refuse a range that is wrong whatever the size of the object."""
    if start < 0:
        raise BadBlobRange(key=key, start=start, stop=stop, reason="it starts before the object")
    if stop is not None and stop < start:
        raise BadBlobRange(key=key, start=start, stop=stop, reason="it ends before it starts")


def check_read(key: str, size_bytes: int, *, most_bytes: int = MOST_READ_BYTES) -> None:
    """Refuse to hold more in memory than the caller is ready for."""
    if size_bytes > most_bytes:
        raise BlobTooLarge(key=key, size_bytes=size_bytes, most_bytes=most_bytes)


def check_limit(limit: int) -> None:
    """Refuse an empty or an overlong page."""
    if not 1 <= limit <= MOST_LISTED:
        raise BadBlobPage(limit=limit, most=MOST_LISTED)


def end_of_range(key: str, start: int, stop: int | None, *, size_bytes: int) -> int:
    """Where a checked range ends in an object of this size."""
    if start > size_bytes:
        raise BadBlobRange(key=key, start=start, stop=stop, reason=f"the object has {size_bytes} bytes")
    return size_bytes if stop is None else min(stop, size_bytes)


def why_bad_key(key: str) -> str | None:
    """The rule that a key breaks, or None for an allowed key."""
    return _why_bad_text(key) or _why_bad_segments(key)


def _why_bad_text(text: str) -> str | None:
    if len(text) > MOST_KEY_BYTES:  # counted in characters first, so that the rest looks at short texts only
        return f"it is longer than {MOST_KEY_BYTES} bytes"
    if not text.isprintable():  # also catches lone surrogates, which are no UTF-8, and invisible direction marks
        return "it has a character that cannot be printed"
    if "\\" in text:
        return "it has a backslash"
    if not unicodedata.is_normalized("NFC", text):
        return "it is not in Unicode normal form C"
    if len(text.encode()) > MOST_KEY_BYTES:
        return f"it is longer than {MOST_KEY_BYTES} bytes"
    return None


def _why_bad_segments(key: str) -> str | None:
    for segment in key.split("/"):
        reason = _why_bad_segment(segment)
        if reason is not None:
            return reason
    return None


def _why_bad_segment(segment: str) -> str | None:
    if not segment:
        return "it has an empty segment"
    if segment in {".", ".."}:
        return "it has a segment '.' or '..'"
    if segment != segment.strip(" "):
        return "it has a segment that begins or ends with a space"  # some readers of S3 listings drop it
    if segment.endswith("~"):
        return "it has a segment that ends with '~'"  # marks a folder in adapters/disk
    if len(segment.encode()) > MOST_SEGMENT_BYTES:
        return f"it has a segment longer than {MOST_SEGMENT_BYTES} bytes"
    return None
