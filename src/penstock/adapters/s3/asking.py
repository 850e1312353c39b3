"""What obstore cannot be asked: a bounded page of a listing with foreign keys in it, and unfinished uploads.

obstore asks for pages of no other size than 1,000, cuts prefixes at "/", and gives up at a key with an empty segment.
So these few small requests are signed and sent by ourselves. They only read, or end what nobody waits for, and so may
be tried again.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element, ParseError, fromstring

import aiohttp
from yarl import URL

from penstock.adapters.s3.faults import answered, code_in
from penstock.adapters.s3.listing import Answer
from penstock.adapters.s3.place import Keys, Patience, S3Place
from penstock.adapters.s3.signing import Request, signed_headers
from penstock.kernel.blobs import BlobStat, BlobsUnavailable
from penstock.kernel.clock import Clock

TRIES = 3
PAUSE_SECONDS = 0.1  # before the second try, and twice as long before the third
MOST_ANSWER_BYTES = 16 * 1024 * 1024  # a thousand of the longest keys, escaped, need less than five
MOST_UPLOADS = 1000


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A multipart upload that has not become an object."""

    path: str
    upload_id: str
    begun_at: datetime


class Asker:
    """Small signed requests over connections that are kept for as long as one call of ours takes."""

    def __init__(self, session: aiohttp.ClientSession, place: S3Place, keys: Keys, clock: Clock) -> None:
        self._session = session
        self._place = place
        self._keys = keys
        self._clock = clock

    async def page(self, prefix: str, start: str, most: int) -> Answer:
        """Objects that begin with `prefix` and come after `start`, in the store's own order; keys without the root."""
        root = self._place.root
        query = {"list-type": "2", "encoding-type": "url", "max-keys": str(most), "prefix": root + prefix}
        query |= {"start-after": root + start} if start else {}
        listed = await self._read("ListBucketResult", query)
        plain = unquote_plus if _text(listed, "EncodingType") == "url" else str
        with _understood():
            blobs = tuple(_as_stat(found, root, plain) for found in _children(listed, "Contents"))
        return Answer(blobs=blobs, more=_text(listed, "IsTruncated") == "true")

    async def abort_uploads(self, older_than: datetime) -> int:
        """Let the store forget uploads under our prefix that were begun before then, and say how many."""
        query = {"uploads": "", "max-uploads": str(MOST_UPLOADS), "prefix": self._place.root}
        listed = await self._read("ListMultipartUploadsResult", query)
        with _understood():
            uploads = [_as_unfinished(found) for found in _children(listed, "Upload")]
        old = [upload for upload in uploads if upload.begun_at < older_than]
        for upload in old:
            await self._abort(upload)
        return len(old)

    async def _abort(self, upload: Unfinished) -> None:
        status, answer = await self._send("DELETE", upload.path, {"uploadId": upload.upload_id})
        if status not in {200, 204, 404}:  # the last: it has ended meanwhile
            raise answered(upload.path, status, code_in(answer))

    async def _read(self, kind: str, query: Mapping[str, str]) -> Element:
        status, answer = await self._send("GET", "", query)
        if status != 200:
            raise answered(self._place.bucket, status, code_in(answer))
        with _understood():
            listed = fromstring(answer)  # noqa: S314  (our own store; expat itself stops entities that multiply)
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
                raise BlobsUnavailable(reason="it did not answer in time") from error
            except (aiohttp.ClientError, OSError) as error:
                if not tries_left:
                    away = isinstance(error, aiohttp.ClientConnectorError)
                    raise BlobsUnavailable(reason="it cannot be reached" if away else "the connection broke") from error
            else:
                if status < 500 or not tries_left:
                    return status, answer
            await self._clock.sleep(PAUSE_SECONDS * 2 ** (TRIES - 1 - tries_left))

    async def _send_once(self, method: str, path: str, query: Mapping[str, str]) -> tuple[int, str]:
        target = f"/{self._place.bucket}/{path}" if path else f"/{self._place.bucket}"
        request = Request(method=method, origin=self._place.origin, path=target, query=query)
        headers = signed_headers(request, keys=self._keys, region=self._place.region, at=self._clock.now())
        url = URL(request.url, encoded=True)
        async with self._session.request(method, url, headers=headers, allow_redirects=False) as response:
            return response.status, (await _read_bounded(response)).decode(errors="replace")


@asynccontextmanager
async def asking(place: S3Place, keys: Keys, clock: Clock, patience: Patience) -> AsyncIterator[Asker]:
    """An asker, whose connections are closed afterwards."""
    timeout = aiohttp.ClientTimeout(total=patience.answer_seconds, sock_connect=patience.connect_seconds)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Asker(session, place, keys, clock)


@contextmanager
def _understood() -> Iterator[None]:
    """An answer of some other server must not pass for an empty listing."""
    try:
        yield
    except (ParseError, ValueError) as error:
        raise BlobsUnavailable(reason="its answer is not one of S3") from error


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    answer = bytearray()
    async for piece in response.content.iter_any():
        answer += piece
        if len(answer) > MOST_ANSWER_BYTES:
            raise BlobsUnavailable(reason="its answer is too long")
    return bytes(answer)


def _as_stat(found: Element, root: str, plain: Callable[[str], str]) -> BlobStat:
    key = plain(_text(found, "Key")).removeprefix(root)
    size, modified = _text(found, "Size"), _text(found, "LastModified")
    return BlobStat(key=key, size_bytes=int(size), modified_at=datetime.fromisoformat(modified))


def _as_unfinished(found: Element) -> Unfinished:
    begun_at = datetime.fromisoformat(_text(found, "Initiated"))
    return Unfinished(path=_text(found, "Key"), upload_id=_text(found, "UploadId"), begun_at=begun_at)


def _children(element: Element, name: str) -> Iterator[Element]:
    """The children of a name, in whatever namespace the store puts its answers."""
    return (child for child in element if _name(child) == name)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: Element, name: str) -> str:
    return next((child.text or "" for child in _children(element, name)), "")
