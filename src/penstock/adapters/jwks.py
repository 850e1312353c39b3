"""Fetches a key set (JWKS) over HTTP, with limits on time and size. It is rare, so no connection is kept."""

import logging
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from penstock.access.errors import BadTokenSettings, KeySetAway
from penstock.access.key_set import Fetch

log = logging.getLogger(__name__)

MOST_BYTES = 262_144  # a key set of a hundred keys has some 60,000
FETCH_SECONDS = 5.0


def jwks_over_http(url: str) -> Fetch:
    """What fetches the document at this address. A bad address is refused now, not with the first token."""
    _check(url)

    async def fetch() -> bytes:
        try:
            return await _get(url)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning("the key set at %s cannot be fetched: %r", url, error)  # callers need not know our addresses
            raise KeySetAway(reason="its server does not answer as it should") from error

    return fetch


def _check(url: str) -> None:
    try:
        address = urlsplit(url)
    except ValueError as error:
        raise BadTokenSettings(setting="PENSTOCK_JWKS_URL", reason="it is not a URL") from error
    if address.scheme not in ("http", "https") or not address.hostname:
        raise BadTokenSettings(setting="PENSTOCK_JWKS_URL", reason="it has to begin with https:// or http://")


async def _get(url: str) -> bytes:
    limits = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    # Redirects are not followed: whoever could bend one would choose the keys we trust.
    async with (
        aiohttp.ClientSession(timeout=limits, headers={"Accept-Encoding": "identity"}) as http,
        http.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != HTTPStatus.OK:
            raise KeySetAway(reason=f"the server answered {answer.status}")
        document = bytearray()
        async for chunk in answer.content.iter_chunked(65_536):
            document += chunk
            if len(document) > MOST_BYTES:
                raise KeySetAway(reason=f"the answer is longer than {MOST_BYTES} bytes")
        return bytes(document)
