"""The blob port: where bytes live that are too large for the database.

An object is stored under a key and never changes: a put replaces it whole or not at all. `adapters/` holds the
implementations; tests/conformance/test_blobs.py holds what each of them must do. This file does no I/O.

Keys differing only in case are different keys, so a disk that folds case is not supported.
"""

import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import unquote

from penstock.kernel.errors import Conflict, Invalid, NotFound, TooLarge, Unavailable

MOST_KEY_BYTES = 512  # S3 allows 1,024; the half leaves room for a bucket prefix
MOST_SEGMENT_BYTES = 200  # disks allow 255 per name; an adapter may add to it
MOST_READ_BYTES = 16 * 1024 * 1024  # what `get` and `read_range` hold in memory; larger things are streamed
MOST_LISTED = 1000  # S3 gives no longer page
MOST_LINK_SECONDS = 7 * 24 * 3600  # S3 signs for no longer
SHOWN_KEY_CHARACTERS = 120  # a refused key may be megabytes long; an error shows its beginning

JSON_TYPE = "application/json"

Chunks = bytes | AsyncIterable[bytes]


class BadBlobKey(Invalid):
    """A key that some store could misread."""

    code = "BAD_BLOB_KEY"
    message = "The key {key!r} is not allowed: {reason}."
    message_zh = "不允许使用键 {key!r}：{reason}。"
    hint = "Use printable segments joined by '/', such as 'uploads/42/source.pdf'."
    hint_zh = "请使用以“/”连接的可打印片段，例如“uploads/42/source.pdf”。"


class BadBlobRange(Invalid):
    """A range that the object does not have."""

    code = "BAD_BLOB_RANGE"
    message = "Bytes {start} to {stop} of {key} cannot be read: {reason}."
    message_zh = "无法读取 {key} 的第 {start} 至 {stop} 字节：{reason}。"
    hint = "A range is half-open, starts inside the object or at its end, and does not run backwards."
    hint_zh = "范围为左闭右开，须从对象内部或其末尾开始，且不能倒退。"


class BadBlobPage(Invalid):
    """A page of a listing that is empty or too long."""

    code = "BAD_BLOB_PAGE"
    message = "A page holds 1 to {most} objects; {limit} were asked for."
    message_zh = "每页可列出 1 至 {most} 个对象，请求的是 {limit} 个。"
    hint = "Ask for a smaller page and go on with `after`."
    hint_zh = "请缩小每页数量，并用 `after` 继续。"


class BadBlobLink(Invalid):
    """A link that would be good for too long, or for no time at all."""

    code = "BAD_BLOB_LINK"
    message = "A link is good for 1 to {most} seconds; {seconds} were asked for."
    message_zh = "链接的有效期为 1 至 {most} 秒，请求的是 {seconds} 秒。"
    hint = "Ask for a shorter time; a new link can be made whenever one is needed."
    hint_zh = "请缩短有效期；需要时可随时生成新链接。"


class BlobNotFound(NotFound):
    """No object is stored under the key."""

    code = "BLOB_NOT_FOUND"
    message = "No object is stored under {key}."
    message_zh = "没有以 {key} 存储的对象。"
    hint = "Check the key; the object may have been deleted or never finished."
    hint_zh = "请检查该键；对象可能已被删除，或从未写完。"


class BlobExists(Conflict):
    """The key is taken already."""

    code = "BLOB_EXISTS"
    message = "An object is already stored under {key}."
    message_zh = "{key} 下已存有对象。"
    hint = "Read the stored object, or choose another key."
    hint_zh = "请读取已有对象，或换一个键。"


class BlobTooLarge(TooLarge):
    """More would be read into memory than is good."""

    code = "BLOB_TOO_LARGE"
    message = "Reading {size_bytes} bytes of {key} at once is too much; the most is {most_bytes}."
    message_zh = "一次读取 {key} 的 {size_bytes} 字节过多，上限为 {most_bytes}。"
    hint = "Stream the object, or read it in smaller ranges."
    hint_zh = "请改用流式读取，或缩小读取范围。"


class BlobsUnavailable(Unavailable):
    """The object store does not answer as it should."""

    code = "BLOBS_UNAVAILABLE"
    message = "The object store does not answer as it should: {reason}."
    message_zh = "对象存储没有正常响应：{reason}。"
    hint = "Check that the store is mounted or reachable and that Penstock may read and write there."
    hint_zh = "请检查存储是否已挂载或可访问，以及 Penstock 是否有读写权限。"
    internal_outage = True


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

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        """Store an object and replace what was there; when this raises, what was there is still there.

        After BlobsUnavailable it may also be the new object, whole: a store far away can take it and not say so.

        The content type is for those who fetch the object past us; a copy has it too. Not every store keeps it.

        A cancelled put has not happened or has happened whole, and nothing of it goes on after it has returned.
        """
        ...

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
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

    async def link(self, key: str, *, seconds: int) -> str | None:
        """A URL by which whoever has it may read the object for so long, 7 days at the most; None where there is none.

        It is made whether there is an object or not.
        """
        ...

    async def upload_link(self, key: str, *, seconds: int) -> str | None:
        """A URL to which whoever has it may PUT the object for so long; None where there is none."""
        ...

    async def check(self) -> None:
        """Raise what a call would now, so that health can tell: the store is away, refuses us, or is full."""
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


def check_link(seconds: int) -> None:
    """Refuse a link that S3 could not sign."""
    if not 1 <= seconds <= MOST_LINK_SECONDS:
        raise BadBlobLink(seconds=seconds, most=MOST_LINK_SECONDS)


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


def _climbs_when_unescaped(segment: str) -> bool:
    """Whether a server on the way that unescapes paths, once or more, or folds look-alikes, would see a dot segment."""
    if segment.isascii() and "%" not in segment:
        return False
    seen = segment
    while (plain := unicodedata.normalize("NFKC", unquote(seen))) != seen:
        seen = plain
    return any(part in {".", ".."} for part in re.split(r"[/\\]", seen))


def _why_bad_segment(segment: str) -> str | None:
    if not segment:
        return "it has an empty segment"
    if segment in {".", ".."}:
        return "it has a segment '.' or '..'"
    if _climbs_when_unescaped(segment):
        return "it has a segment that means '.' or '..' to some readers"
    if segment != segment.strip(" "):
        return "it has a segment that begins or ends with a space"  # some readers of S3 listings drop it
    if segment.endswith("~"):
        return "it has a segment that ends with '~'"  # marks a folder in adapters/disk
    if len(segment.encode()) > MOST_SEGMENT_BYTES:
        return f"it has a segment longer than {MOST_SEGMENT_BYTES} bytes"
    return None
