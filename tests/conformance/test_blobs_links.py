"""What every blob store does with links and health, whatever holds the bytes.

A store without links (the disk) answers None to every question that it was allowed to be asked.
"""

import asyncio
import re
from io import BytesIO

import aiohttp
import pytest
from yarl import URL

from penstock.kernel.blobs import BadBlobLink, BlobNotFound
from tests.conformance.objects import GOOD_KEYS, MIB, everything

WEEK = 7 * 24 * 3600
SECONDS = 20.0  # far more than a link of one second should live


async def fetch(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """What somebody gets who has nothing but the link."""
    sent = None if body is None else BytesIO(body)
    async with (
        aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as session,
        session.request(method, URL(url, encoded=True), data=sent) as response,
    ):
        return response.status, await response.read()


class TestLink:
    @pytest.mark.parametrize("key", GOOD_KEYS, ids=lambda key: key[:20])
    async def test_a_link_gives_the_bytes_to_whoever_has_it(self, blobs, key):
        content = key.encode() * 100
        await blobs.put(key, content)
        url = await blobs.link(key, seconds=60)
        assert url is None or await fetch(url) == (200, content)

    async def test_a_link_shows_what_is_there_when_it_is_used(self, blobs):
        url = await blobs.link("a", seconds=60)
        if url is None:
            return
        assert (await fetch(url))[0] == 404
        await blobs.put("a", b"x" * MIB)
        assert await fetch(url) == (200, b"x" * MIB)

    async def test_a_link_is_good_for_its_own_key_method_and_signature_only(self, blobs):
        await blobs.put("mine", b"mine")
        await blobs.put("yours", b"yours")
        url = await blobs.link("mine", seconds=60)
        if url is None:
            return
        (signature,) = re.findall(r"X-Amz-Signature=(\w+)", url)
        flipped = signature[:-1] + ("0" if signature[-1] != "0" else "1")
        for changed in (url.replace("mine", "yours"), url.replace(signature, flipped), url.partition("?")[0]):
            status, said = await fetch(changed)
            assert status == 403
            assert b"yours" != said != b"mine"
        later = re.sub(r"X-Amz-Expires=\d+", "X-Amz-Expires=3600", url)
        assert (await fetch(later))[0] == 403
        for method in ("PUT", "DELETE"):
            assert (await fetch(url, method, b"changed" if method == "PUT" else None))[0] == 403
        assert await blobs.get("mine") == b"mine"

    async def test_a_link_ends(self, blobs):
        await blobs.put("a", b"x")
        url = await blobs.link("a", seconds=1)
        if url is None:
            return
        async with asyncio.timeout(SECONDS):
            while (await fetch(url))[0] == 200:  # noqa: ASYNC110  (the store goes by its own clock)
                await asyncio.sleep(0.1)
        assert (await fetch(url))[0] == 403

    @pytest.mark.parametrize("seconds", [-1, 0, WEEK + 1])
    async def test_a_link_for_no_time_or_too_long_is_refused(self, blobs, seconds):
        for attempt in (blobs.link("a", seconds=seconds), blobs.upload_link("a", seconds=seconds)):
            with pytest.raises(BadBlobLink, match=str(seconds)):
                await attempt

    @pytest.mark.parametrize("seconds", [1, WEEK])
    async def test_the_longest_and_the_shortest_link_are_made(self, blobs, seconds):
        url = await blobs.link("a", seconds=seconds)
        assert url is None or f"X-Amz-Expires={seconds}&" in url


class TestUploadLink:
    async def test_whoever_has_the_link_may_store_that_object(self, blobs):
        url = await blobs.upload_link("in/合同 1%.pdf", seconds=60)
        if url is None:
            return
        assert (await fetch(url, "PUT", b"new" * MIB))[0] == 200
        assert await blobs.get("in/合同 1%.pdf") == b"new" * MIB
        assert (await fetch(url.replace("%201%25", "%202%25"), "PUT", b"stolen"))[0] == 403
        assert (await fetch(url))[0] == 403
        assert await everything(blobs, "") == ["in/合同 1%.pdf"]


class TestCheck:
    async def test_a_store_that_works_says_nothing_and_keeps_nothing(self, blobs):
        await blobs.check()
        await blobs.put("a", b"x")
        await blobs.check()
        assert await everything(blobs, "") == ["a"]
        with pytest.raises(BlobNotFound):
            await blobs.get("check")
