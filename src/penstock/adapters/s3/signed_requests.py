"""Signed requests for what obstore does not support: bounded pages with foreign keys, and multipart uploads by id.

obstore lists in pages of 1,000 only, cuts prefixes at "/", and fails at a key with an empty segment. These requests can
be repeated without harm, so they are retried. `multipart.py` has those of multipart uploads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import BytesIO
from types import MappingProxyType
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
NONE: Mapping[str, str] = MappingProxyType({})
HASHED_AT_ONCE_BYTES = 64 * 1024  # the hash of a larger body is computed in a thread


@dataclass(frozen=True, kw_only=True)
class S3Answer:
    """A whole response of the store, without its body if it is an object."""

    status: int
    text: str
    etag: str

    @property
    def error_code(self) -> str | None:
        """The store's own code; some errors come with status 200."""
        return error_code_in(self.text) if "<Error>" in self.text else None


class SignedClient:
    """Signed requests over one session."""

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
        listed = await self.read("ListBucketResult", "", query)
        plain = unquote_plus if text_of(listed, "EncodingType") == "url" else str
        with parse_errors_mapped():
            blobs = tuple(_as_stat(found, root, plain) for found in children(listed, "Contents"))
        return S3Page(blobs=blobs, more=text_of(listed, "IsTruncated") == "true")

    async def read(
        self, kind: str, path: str, query: Mapping[str, str], *, method: str = "GET", headers: Mapping[str, str] = NONE
    ) -> Element:
        """Send a request whose answer is an XML document with this root."""
        answer = await self.send(method, path, query, headers=headers)
        if answer.status != 200 or answer.error_code:
            raise error_for_status(path or self._bucket.bucket, answer.status, answer.error_code)
        with parse_errors_mapped():
            document = fromstring(answer.text)  # noqa: S314  (our own store; expat itself stops entity expansion)
            if _name(document) != kind:
                raise ValueError(_name(document))
        return document

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: bytes = b"",
        headers: Mapping[str, str] = NONE,
    ) -> S3Answer:
        """Send a request, again if the store is busy or the connection breaks.

        An answer of any status is returned: the caller knows which are expected.
        """
        target = f"/{self._bucket.bucket}/{path}" if path else f"/{self._bucket.bucket}"
        request = S3Request(
            method=method, origin=self._bucket.origin, path=target, query=query, headers=headers, body=body
        )
        tries_left = TRIES
        while True:
            tries_left -= 1
            try:
                answer = await self._send_once(request)
            except TimeoutError as error:
                raise BlobsUnavailable(reason="timed out") from error
            except (aiohttp.ClientError, OSError) as error:
                if not tries_left:
                    unreachable = isinstance(error, aiohttp.ClientConnectorError)
                    raise BlobsUnavailable(
                        reason="cannot connect" if unreachable else "the connection broke"
                    ) from error
            else:
                if answer.status < 500 or not tries_left:
                    return answer
            await self._clock.sleep(PAUSE_SECONDS * 2 ** (TRIES - 1 - tries_left))

    async def _send_once(self, request: S3Request) -> S3Answer:
        sign = partial(signed_headers, request, keys=self._keys, region=self._bucket.region, at=self._clock.now())
        headers = await asyncio.to_thread(sign) if len(request.body) > HASHED_AT_ONCE_BYTES else sign()
        url, body = URL(request.url, encoded=True), BytesIO(request.body) if request.body else None
        async with self._session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as response:
            text = (await _read_bounded(response)).decode(errors="replace")
            return S3Answer(status=response.status, text=text, etag=response.headers.get("ETag", ""))


@asynccontextmanager
async def open_signed_client(
    bucket: S3Bucket, keys: S3Credentials, clock: Clock, timeouts: S3Timeouts, *, seconds: float | None = None
) -> AsyncIterator[SignedClient]:
    """Open a client whose requests may take so many seconds, and close its session afterwards."""
    total = timeouts.answer_seconds if seconds is None else seconds
    timeout = aiohttp.ClientTimeout(total=total, sock_connect=timeouts.connect_seconds)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield SignedClient(session, bucket, keys, clock)


@contextmanager
def parse_errors_mapped() -> Iterator[None]:
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
    key = plain(text_of(found, "Key")).removeprefix(root)
    size, modified = text_of(found, "Size"), text_of(found, "LastModified")
    return BlobStat(key=key, size_bytes=int(size), modified_at=datetime.fromisoformat(modified))


def children(element: Element, name: str) -> Iterator[Element]:
    """The children with this name, in whatever namespace the store uses."""
    return (child for child in element if _name(child) == name)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def text_of(element: Element, name: str) -> str:
    """The text of the first child with this name, or nothing."""
    return next((child.text or "" for child in children(element, name)), "")
