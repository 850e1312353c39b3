"""Signed requests for what obstore does not support: bounded pages with foreign keys, and unfinished uploads.

obstore lists in pages of 1,000 only, cuts prefixes at "/", and fails at a key with an empty segment. These few requests
only read, or abort uploads that nobody waits for, so they may be retried.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element, ParseError, fromstring

import aiohttp
from yarl import URL

from penstock.adapters.s3.config import S3Bucket, S3Credentials, S3Timeouts
from penstock.adapters.s3.errors import error_code_in, error_for_status
from penstock.adapters.s3.listing import S3Page
from penstock.adapters.s3.signing import S3Request, signed_headers
from penstock.kernel.blobs import BlobStat, BlobsUnavailable
from penstock.kernel.clock import Clock

TRIES = 3
PAUSE_SECONDS = 0.1  # before the second try, doubled before the third
MAX_ANSWER_BYTES = 16 * 1024 * 1024  # a thousand of the longest keys, escaped, need less than 5 MiB
MAX_UPLOADS = 1000


@dataclass(frozen=True, kw_only=True)
class UnfinishedUpload:
    """A multipart upload that has not become an object."""

    path: str
    upload_id: str
    initiated_at: datetime


class SignedClient:
    """Small signed requests over a session that lives for one call of the port."""

    def __init__(self, session: aiohttp.ClientSession, bucket: S3Bucket, keys: S3Credentials, clock: Clock) -> None:
        self._session = session
        self._bucket = bucket
        self._keys = keys
        self._clock = clock

    async def list_page(self, prefix: str, start: str, most: int) -> S3Page:
        """Objects that begin with `prefix` and come after `start`, in the store's own order; keys without the root."""
        root = self._bucket.root
        query = {"list-type": "2", "encoding-type": "url", "max-keys": str(most), "prefix": root + prefix}
        query |= {"start-after": root + start} if start else {}
        listed = await self._read("ListBucketResult", query)
        plain = unquote_plus if _text(listed, "EncodingType") == "url" else str
        with _parse_errors_mapped():
            blobs = tuple(_as_stat(found, root, plain) for found in _children(listed, "Contents"))
        return S3Page(blobs=blobs, more=_text(listed, "IsTruncated") == "true")

    async def abort_uploads(self, older_than: datetime) -> int:
        """Abort uploads under our prefix that were initiated before then; returns how many."""
        query = {"uploads": "", "max-uploads": str(MAX_UPLOADS), "prefix": self._bucket.root}
        listed = await self._read("ListMultipartUploadsResult", query)
        with _parse_errors_mapped():
            uploads = [_as_unfinished(found) for found in _children(listed, "Upload")]
        old = [upload for upload in uploads if upload.initiated_at < older_than]
        for upload in old:
            await self._abort(upload)
        return len(old)

    async def _abort(self, upload: UnfinishedUpload) -> None:
        status, answer = await self._send("DELETE", upload.path, {"uploadId": upload.upload_id})
        if status not in {200, 204, 404}:  # 404: it ended in the meantime
            raise error_for_status(upload.path, status, error_code_in(answer))

    async def _read(self, kind: str, query: Mapping[str, str]) -> Element:
        status, answer = await self._send("GET", "", query)
        if status != 200:
            raise error_for_status(self._bucket.bucket, status, error_code_in(answer))
        with _parse_errors_mapped():
            listed = fromstring(answer)  # noqa: S314  (our own store; expat itself stops entity expansion)
            if _name(listed) != kind:
                raise ValueError(_name(listed))
        return listed

    async def _send(self, method: str, path: str, query: Mapping[str, str]) -> tuple[int, str]:
        tries_left = TRIES
        while True:
            tries_left -= 1
            try:
                status, answer = await self._send_once(method, path, query)
            except TimeoutError as error:
                raise BlobsUnavailable(reason="timed out") from error
            except (aiohttp.ClientError, OSError) as error:
                if not tries_left:
                    unreachable = isinstance(error, aiohttp.ClientConnectorError)
                    raise BlobsUnavailable(
                        reason="cannot connect" if unreachable else "the connection broke"
                    ) from error
            else:
                if status < 500 or not tries_left:
                    return status, answer
            await self._clock.sleep(PAUSE_SECONDS * 2 ** (TRIES - 1 - tries_left))

    async def _send_once(self, method: str, path: str, query: Mapping[str, str]) -> tuple[int, str]:
        target = f"/{self._bucket.bucket}/{path}" if path else f"/{self._bucket.bucket}"
        request = S3Request(method=method, origin=self._bucket.origin, path=target, query=query)
        headers = signed_headers(request, keys=self._keys, region=self._bucket.region, at=self._clock.now())
        url = URL(request.url, encoded=True)
        async with self._session.request(method, url, headers=headers, allow_redirects=False) as response:
            return response.status, (await _read_bounded(response)).decode(errors="replace")


@asynccontextmanager
async def open_signed_client(
    bucket: S3Bucket, keys: S3Credentials, clock: Clock, timeouts: S3Timeouts
) -> AsyncIterator[SignedClient]:
    """Open a client and close its session afterwards."""
    timeout = aiohttp.ClientTimeout(total=timeouts.answer_seconds, sock_connect=timeouts.connect_seconds)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield SignedClient(session, bucket, keys, clock)


@contextmanager
def _parse_errors_mapped() -> Iterator[None]:
    """Map parse errors: a response from another kind of server must not pass for an empty listing."""
    try:
        yield
    except (ParseError, ValueError) as error:
        raise BlobsUnavailable(reason="the response is not a valid S3 response") from error


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    answer = bytearray()
    async for piece in response.content.iter_any():
        answer += piece
        if len(answer) > MAX_ANSWER_BYTES:
            raise BlobsUnavailable(reason="the response is too long")
    return bytes(answer)


def _as_stat(found: Element, root: str, plain: Callable[[str], str]) -> BlobStat:
    key = plain(_text(found, "Key")).removeprefix(root)
    size, modified = _text(found, "Size"), _text(found, "LastModified")
    return BlobStat(key=key, size_bytes=int(size), modified_at=datetime.fromisoformat(modified))


def _as_unfinished(found: Element) -> UnfinishedUpload:
    initiated_at = datetime.fromisoformat(_text(found, "Initiated"))
    return UnfinishedUpload(path=_text(found, "Key"), upload_id=_text(found, "UploadId"), initiated_at=initiated_at)


def _children(element: Element, name: str) -> Iterator[Element]:
    """The children with this name, in whatever namespace the store uses."""
    return (child for child in element if _name(child) == name)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: Element, name: str) -> str:
    return next((child.text or "" for child in _children(element, name)), "")
