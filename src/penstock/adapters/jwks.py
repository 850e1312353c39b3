"""Fetch a JWK Set over HTTP, with limits on time and size. Fetches are rare, so no connection is kept open."""

import logging
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from penstock.access.errors import BadTokenSettings, JwksUnavailable
from penstock.access.jwks import Fetch

log = logging.getLogger(__name__)

MAX_BYTES = 262_144  # a set of a hundred keys has about 60,000
FETCH_SECONDS = 5.0


def jwks_over_http(url: str) -> Fetch:
    """A function that fetches the document. An invalid address is refused now, not with the first token."""
    _check(url)

    async def fetch() -> bytes:
        try:
            return await _get(url)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning("cannot fetch the JWKS at %s: %r", url, error)  # callers must not learn our addresses
            raise JwksUnavailable(reason="the server does not respond as expected") from error

    return fetch


def _check(url: str) -> None:
    try:
        address = urlsplit(url)
    except ValueError as error:
        raise BadTokenSettings(setting="PENSTOCK_JWKS_URL", reason="it is not a URL") from error
    if address.scheme not in ("http", "https") or not address.hostname:
        raise BadTokenSettings(
            setting="PENSTOCK_JWKS_URL", reason="expected a URL that starts with https:// or http://"
        )


async def _get(url: str) -> bytes:
    limits = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    # Redirects are not followed: an attacker who controls one could choose the keys we trust.
    async with (
        aiohttp.ClientSession(timeout=limits, headers={"Accept-Encoding": "identity"}) as http,
        http.get(url, allow_redirects=False) as response,
    ):
        if response.status != HTTPStatus.OK:
            raise JwksUnavailable(reason=f"the server answered {response.status}")
        document = bytearray()
        async for chunk in response.content.iter_chunked(65_536):
            document += chunk
            if len(document) > MAX_BYTES:
                raise JwksUnavailable(reason=f"the response is longer than {MAX_BYTES} bytes")
        return bytes(document)
