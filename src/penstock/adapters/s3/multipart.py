"""Multipart uploads by id, so that another process can go on with one: begin, put and list parts, complete, abort."""

import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote
from xml.sax.saxutils import escape

from penstock.adapters.s3.errors import error_for_status
from penstock.adapters.s3.signed_requests import S3Answer, SignedClient, children, parse_errors_mapped, text_of
from penstock.kernel.errors import PenstockError

PAGE = 1000  # the most that S3 lists at once
MIN_PART_BYTES = 5 * 1024 * 1024  # of every part but the last
MAX_COPY_BYTES = 5 * 1024**3  # of one part that is copied
NO_UPLOAD = "NoSuchUpload"


class UploadGone(Exception):
    """The multipart upload was completed or aborted."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedUpload:
    """A multipart upload that has not become an object."""

    path: str
    upload_id: str
    initiated_at: datetime


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    """A part that the store has."""

    number: int
    size_bytes: int
    etag: str


async def begin_upload(client: SignedClient, path: str, *, content_type: str | None) -> str:
    """Begin a multipart upload; returns its id."""
    headers = {"content-type": content_type} if content_type else {}
    begun = await client.read("InitiateMultipartUploadResult", path, {"uploads": ""}, method="POST", headers=headers)
    return text_of(begun, "UploadId")


async def put_part(client: SignedClient, path: str, upload_id: str, number: int, body: bytes) -> str:
    """Store a part, replacing an earlier one of that number; returns its etag."""
    query = {"partNumber": str(number), "uploadId": upload_id}
    answer = await client.send("PUT", path, query, body=body)
    _check(answer, path)
    return answer.etag


async def copy_part(
    client: SignedClient, path: str, upload_id: str, number: int, *, source: str, start: int, stop: int
) -> None:
    """Make a part of the bytes [start, stop) of an object in the same store."""
    query = {"partNumber": str(number), "uploadId": upload_id}
    copied = {"x-amz-copy-source": quote(source), "x-amz-copy-source-range": f"bytes={start}-{stop - 1}"}
    await client.read("CopyPartResult", path, query, method="PUT", headers=copied)


async def list_parts(client: SignedClient, path: str, upload_id: str) -> list[StoredPart]:
    """All stored parts in order, one of each number; `UploadGone` if the upload has ended."""
    parts: dict[int, StoredPart] = {}
    while True:
        query = {"uploadId": upload_id, "max-parts": str(PAGE)}
        query |= {"part-number-marker": str(max(parts))} if parts else {}
        try:
            listed = await client.read("ListPartsResult", path, query)
        except PenstockError as error:
            if NO_UPLOAD in str(error):
                raise UploadGone from error
            raise
        with parse_errors_mapped():
            found = [
                StoredPart(
                    number=int(text_of(part, "PartNumber")),
                    size_bytes=int(text_of(part, "Size") or 0),
                    etag=text_of(part, "ETag"),
                )
                for part in children(listed, "Part")
            ]
        parts |= {part.number: part for part in found}
        if text_of(listed, "IsTruncated") != "true" or not found:
            return [parts[number] for number in sorted(parts)]


async def complete_upload(client: SignedClient, path: str, upload_id: str, parts: Sequence[StoredPart]) -> None:
    """Make the object of these parts; `UploadGone` if the upload has ended."""
    listed = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.etag)}</ETag></Part>" for part in parts
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    checksum = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    headers = {"content-type": "application/xml", "content-md5": checksum}
    answer = await client.send("POST", path, {"uploadId": upload_id}, body=body, headers=headers)
    if answer.error_code == NO_UPLOAD:
        raise UploadGone
    _check(answer, path)


async def abort_upload(client: SignedClient, path: str, upload_id: str) -> None:
    """Drop a multipart upload; no error when it has ended."""
    answer = await client.send("DELETE", path, {"uploadId": upload_id})
    if answer.status != 404:
        _check(answer, path)


async def list_uploads(client: SignedClient, prefix: str) -> AsyncIterator[UnfinishedUpload]:
    """The unfinished uploads of keys that begin with `prefix`, page by page."""
    query = {"uploads": "", "max-uploads": str(PAGE), "prefix": prefix}
    while True:
        listed = await client.read("ListMultipartUploadsResult", "", query)
        with parse_errors_mapped():
            uploads = [
                UnfinishedUpload(
                    path=text_of(found, "Key"),
                    upload_id=text_of(found, "UploadId"),
                    initiated_at=datetime.fromisoformat(text_of(found, "Initiated")),
                )
                for found in children(listed, "Upload")
            ]
        for upload in uploads:
            yield upload
        if text_of(listed, "IsTruncated") != "true" or not uploads:
            return
        query |= {"key-marker": uploads[-1].path, "upload-id-marker": uploads[-1].upload_id}


def _check(answer: S3Answer, path: str) -> None:
    if answer.status not in {200, 204} or answer.error_code:
        raise error_for_status(path, answer.status, answer.error_code)
