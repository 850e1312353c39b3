"""The blob store port, for data that is too large for the database.

An object is immutable: a put replaces it as a whole or not at all. `adapters/` has the implementations, and
tests/conformance/test_blobs.py what each of them must do. This file does no I/O.

Keys that differ only in case are different keys, so case-insensitive file systems are not supported.
"""

import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import unquote

from penstock.kernel.errors import Conflict, Invalid, NotFound, TooLarge, Unavailable

MAX_KEY_BYTES = 512  # S3 allows 1,024; half of it leaves space for a bucket prefix
MAX_SEGMENT_BYTES = 200  # file systems allow 255 per name; an adapter may add a suffix
MAX_READ_BYTES = 16 * 1024 * 1024  # what `get` and `read_range` hold in memory; stream larger objects
MAX_LISTED = 1000  # the page size limit of S3
MAX_LINK_SECONDS = 7 * 24 * 3600  # the limit of S3 signatures
SHOWN_KEY_CHARACTERS = 120  # an invalid key may be megabytes long; the error shows its beginning

JSON_TYPE = "application/json"

Chunks = bytes | AsyncIterable[bytes]


class BadBlobKey(Invalid):
    """The blob key is not valid in every blob store."""

    code = "BAD_BLOB_KEY"
    message = "Invalid key {key!r}: {reason}."
    message_zh = "无效的键 {key!r}：{reason}。"
    hint = "Use printable segments joined by '/', such as 'uploads/42/source.pdf'."
    hint_zh = "请使用以“/”连接的可打印片段，例如“uploads/42/source.pdf”。"


class BadBlobRange(Invalid):
    """The byte range is not inside the stored object."""

    code = "BAD_BLOB_RANGE"
    message = "Invalid range {start} to {stop} of {key}: {reason}."
    message_zh = "{key} 的范围 {start} 至 {stop} 无效：{reason}。"
    hint = "A range is half-open, starts inside the object or at its end, and its stop is not before its start."
    hint_zh = "范围为左闭右开，须从对象内部或其末尾开始，且终点不得早于起点。"


class BadBlobPage(Invalid):
    """The page size of a blob listing is out of range."""

    code = "BAD_BLOB_PAGE"
    message = "Invalid page size {limit}: expected 1 to {most}."
    message_zh = "每页数量 {limit} 无效：应为 1 至 {most}。"
    hint = "Request a smaller page and continue with `after`."
    hint_zh = "请缩小每页数量，并用 `after` 继续。"


class BadBlobLink(Invalid):
    """The lifetime of a blob link is out of range."""

    code = "BAD_BLOB_LINK"
    message = "Invalid link lifetime of {seconds} seconds: expected 1 to {most}."
    message_zh = "链接有效期 {seconds} 秒无效：应为 1 至 {most} 秒。"
    hint = "Request a shorter lifetime; a new link can be created at any time."
    hint_zh = "请缩短有效期；需要时可随时生成新链接。"


class BlobNotFound(NotFound):
    """No object is stored under the key."""

    code = "BLOB_NOT_FOUND"
    message = "No object is stored under {key}."
    message_zh = "没有以 {key} 存储的对象。"
    hint = "Check the key; the object may have been deleted, or its upload never finished."
    hint_zh = "请检查该键；对象可能已被删除，或从未写完。"


class BlobExists(Conflict):
    """The blob key is already in use."""

    code = "BLOB_EXISTS"
    message = "An object is already stored under {key}."
    message_zh = "{key} 下已存有对象。"
    hint = "Read the stored object, or choose another key."
    hint_zh = "请读取已有对象，或换一个键。"


class BlobTooLarge(TooLarge):
    """A single read of a blob exceeds the memory limit."""

    code = "BLOB_TOO_LARGE"
    message = "Cannot read {size_bytes} bytes of {key} at once; the limit is {most_bytes}."
    message_zh = "一次读取 {key} 的 {size_bytes} 字节过多，上限为 {most_bytes}。"
    hint = "Stream the object, or read it in smaller ranges."
    hint_zh = "请改用流式读取，或缩小读取范围。"


class BlobsUnavailable(Unavailable):
    """The blob store is unreachable or fails."""

    code = "BLOBS_UNAVAILABLE"
    message = "The object store is unavailable: {reason}."
    message_zh = "对象存储不可用：{reason}。"
    hint = "Check that the store is mounted or reachable and that Penstock has read and write access."
    hint_zh = "请检查存储是否已挂载或可访问，以及 Penstock 是否有读写权限。"
    internal_outage = True


@dataclass(frozen=True, kw_only=True)
class BlobStat:
    """The metadata of an object."""

    key: str
    size_bytes: int
    modified_at: datetime  # when the data was written; a copy may keep the time of its source
    etag: str | None = field(default=None, compare=False)  # names a version; it is no content hash

    def is_same_version(self, other: "BlobStat") -> bool:
        """Whether two looks at a key saw the same object. Times in whole seconds cannot tell, so they say no."""
        if self.etag is not None and other.etag is not None:
            return self.etag == other.etag
        return self == other and self.modified_at.microsecond != 0


@dataclass(frozen=True, kw_only=True)
class BlobReceipt:
    """The size and hash of a stored object, computed during the upload."""

    key: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BlobPage:
    """A page of a listing; `after` fetches the next page, None marks the last."""

    blobs: tuple[BlobStat, ...]
    after: str | None


class Blobs(Protocol):
    """A blob store. It raises the errors of this file and DiskFull only."""

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        """Store an object, replacing any previous one. If this raises, the previous object is still there.

        After BlobsUnavailable it may also be the new object, complete: a remote store can accept it and fail to answer.

        The content type is for clients that fetch the object directly; a copy keeps it. Not every store supports it.

        A cancelled put has either not happened or has happened completely, and has stopped when it returns.
        """
        ...

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        """Store an object unless the key is in use (BlobExists); of concurrent calls exactly one succeeds."""
        ...

    async def get(self, key: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """A whole small object; raises BlobTooLarge when it is larger than `max_bytes`."""
        ...

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        """The bytes [start, stop), fewer if the object ends earlier; at most MAX_READ_BYTES."""
        ...

    def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes [start, stop) in chunks of about 1 MiB, all of one version; errors come with the first chunk."""
        ...

    async def stat(self, key: str) -> BlobStat:
        """The metadata of an object."""
        ...

    async def copy(self, source: str, target: str) -> BlobStat:
        """Copy the object of `source` to `target`, replacing any previous one."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; no error when there is none."""
        ...

    async def list(self, prefix: str, *, after: str | None = None, limit: int = MAX_LISTED) -> BlobPage:
        """The objects whose keys start with `prefix` and follow `after`, in byte order of their keys."""
        ...

    async def link(self, key: str, *, seconds: int) -> str | None:
        """A presigned URL to read the object, valid for up to 7 days; None if the store has no links.

        It is created whether or not the object exists.
        """
        ...

    async def upload_link(self, key: str, *, seconds: int) -> str | None:
        """A presigned URL to PUT the object; None if the store has no links."""
        ...

    async def check(self) -> None:
        """Health check: raise the error that a call would get now (unreachable, access denied, full)."""
        ...


@runtime_checkable
class LocalFiles(Protocol):
    """A blob store whose objects are files of this machine, so that they need not be copied to be parsed."""

    def open_file(self, key: str, *, suffix: str) -> AbstractAsyncContextManager[Path | None]:
        """A path of the object, with this suffix, for the length of a block. It keeps its content even if the object is
        replaced or deleted meanwhile. None where the file system cannot do that."""
        ...


def check_key(key: str) -> None:
    """Refuse a key that some store could misread, so that no key reaches outside the blob store."""
    reason = why_bad_key(key)
    if reason is not None:
        raise BadBlobKey(key=key[:SHOWN_KEY_CHARACTERS], reason=reason)


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that no valid key starts with. Its last segment may be partial or empty."""
    folder, slash, _part = prefix.rpartition("/")
    reason = _why_bad_text(prefix) or (_why_bad_segments(folder) if slash else None)
    if reason is not None:
        raise BadBlobKey(key=prefix[:SHOWN_KEY_CHARACTERS], reason=reason)


def check_range(key: str, start: int, stop: int | None) -> None:
    """Refuse a range that is invalid for any object size."""
    if start < 0:
        raise BadBlobRange(key=key, start=start, stop=stop, reason="it starts before the object")
    if stop is not None and stop < start:
        raise BadBlobRange(key=key, start=start, stop=stop, reason="it ends before it starts")


def check_read(key: str, size_bytes: int, *, max_bytes: int = MAX_READ_BYTES) -> None:
    """Refuse to read more into memory than the limit."""
    if size_bytes > max_bytes:
        raise BlobTooLarge(key=key, size_bytes=size_bytes, most_bytes=max_bytes)


def check_limit(limit: int) -> None:
    """Refuse a page size out of range."""
    if not 1 <= limit <= MAX_LISTED:
        raise BadBlobPage(limit=limit, most=MAX_LISTED)


def check_link(seconds: int) -> None:
    """Refuse a link lifetime that S3 cannot sign."""
    if not 1 <= seconds <= MAX_LINK_SECONDS:
        raise BadBlobLink(seconds=seconds, most=MAX_LINK_SECONDS)


def end_of_range(key: str, start: int, stop: int | None, *, size_bytes: int) -> int:
    """The end of a checked range in an object of this size."""
    if start > size_bytes:
        raise BadBlobRange(key=key, start=start, stop=stop, reason=f"the object has {size_bytes} bytes")
    return size_bytes if stop is None else min(stop, size_bytes)


def why_bad_key(key: str) -> str | None:
    """The rule that a key violates, or None for a valid key."""
    return _why_bad_text(key) or _why_bad_segments(key)


def _why_bad_text(text: str) -> str | None:
    if len(text) > MAX_KEY_BYTES:  # characters first, so that the checks below see short texts only
        return f"it is longer than {MAX_KEY_BYTES} bytes"
    if not text.isprintable():  # also catches lone surrogates, which are not UTF-8, and invisible direction marks
        return "it has an unprintable character"
    if "\\" in text:
        return "it has a backslash"
    if not unicodedata.is_normalized("NFC", text):
        return "it is not in Unicode normal form C"
    if len(text.encode()) > MAX_KEY_BYTES:
        return f"it is longer than {MAX_KEY_BYTES} bytes"
    return None


def _why_bad_segments(key: str) -> str | None:
    for segment in key.split("/"):
        reason = _why_bad_segment(segment)
        if reason is not None:
            return reason
    return None


def _climbs_when_unescaped(segment: str) -> bool:
    """Whether a proxy that unescapes paths, once or more, or folds look-alike characters, would see a dot segment."""
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
        return "it has a segment that begins or ends with a space"  # some S3 clients drop it
    if segment.endswith("~"):
        return "it has a segment that ends with '~'"  # marks a folder in adapters/disk
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        return f"it has a segment longer than {MAX_SEGMENT_BYTES} bytes"
    return None
