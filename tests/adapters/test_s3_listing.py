"""Listings in byte order, from stores that list by bytes and from stores that walk their folders.

The suite in tests/conformance lists on a real store that walks. Here the same code meets both orders, with many keys,
and what it asks is counted.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.adapters.s3.listing import S3Page, first_keys
from penstock.kernel.blobs import BlobStat, BlobsUnavailable, why_bad_key

segments = st.text(st.sampled_from(list("ab0-.! é😀")), min_size=1, max_size=3)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join).filter(lambda key: why_bad_key(key) is None)
AT = datetime(2026, 1, 1, tzinfo=UTC)


class StoreInByteOrder:
    """Answers as S3 documents it."""

    def __init__(self, stored: Iterable[str]) -> None:
        self.stored = sorted(stored, key=self.place)
        self.asked = 0
        self.told = 0

    def place(self, key: str) -> str:
        return key

    def comes_after(self, key: str, start: str) -> bool:
        return self.place(key) > self.place(start)

    async def ask(self, prefix: str, start: str, most: int) -> S3Page:
        assert 1 <= most <= 1000
        self.asked += 1
        left = [key for key in self.stored if key.startswith(prefix) and (not start or self.comes_after(key, start))]
        page = left[:most]
        self.told += len(page)
        blobs = tuple(BlobStat(key=key, size_bytes=0, modified_at=AT) for key in page)
        return S3Page(blobs=blobs, more=self.says_more(page, left[most:]))

    def says_more(self, page: list[str], rest: list[str]) -> bool:
        return bool(rest)


class StoreThatWalks(StoreInByteOrder):
    """Answers as SeaweedFS does: directory by directory, with omissions."""

    def place(self, key: str) -> str:
        return key.replace("/", "\0")

    def comes_after(self, key: str, start: str) -> bool:
        return super().comes_after(key, start) and not key.startswith(f"{start}/")

    def says_more(self, page: list[str], rest: list[str]) -> bool:
        return any(not key.startswith(f"{page[-1]}/") for key in rest)


STORES = pytest.mark.parametrize("store_of", [StoreInByteOrder, StoreThatWalks])


async def read_to_the_end(store: StoreInByteOrder, *, page: int) -> tuple[list[str], int]:
    """All keys, page by page, and the most requests that one page needed."""
    found: list[str] = []
    worst, more = 0, True
    while more:
        asked = store.asked
        keys = [blob.key for blob in await first_keys(store.ask, prefix="", after=(found or [""])[-1], most=page + 1)]
        found += keys[:page]
        more = len(keys) > page
        worst = max(worst, store.asked - asked)
    return found, worst


@STORES
@settings(max_examples=150, deadline=None)
@given(stored=st.sets(keys, max_size=30), other=keys, cut=st.integers(0, 6), most=st.integers(1, 6), data=st.data())
def test_the_first_keys_after_any_key_come_in_byte_order(store_of, stored, other, cut, most, data):
    after = data.draw(st.sampled_from(["", other, *sorted(stored)]))
    prefix = data.draw(st.sampled_from(["", other, *sorted(stored)]))[:cut]
    found = asyncio.run(first_keys(store_of(stored).ask, prefix=prefix, after=after, most=most))
    expected = [key for key in sorted(stored) if key > after and key.startswith(prefix)]
    assert [blob.key for blob in found] == expected[:most]


@STORES
@pytest.mark.parametrize(
    "stored",
    [
        pytest.param([f"uploads/{number:06}" for number in range(5000)], id="one folder"),
        pytest.param([f"uploads/{number:06}/source (1).pdf" for number in range(5000)], id="a folder each"),
        pytest.param([f"u/{d:03}-x/{n:02}.pdf" for d in range(200) for n in range(25)], id="some in each folder"),
        pytest.param([f"u{c}{number:04}" for c in "-./0" for number in range(1250)], id="a name before and after '/'"),
    ],
)
async def test_a_page_costs_a_few_requests_however_many_keys_there_are(store_of, stored):
    store = store_of(stored)
    found, worst = await read_to_the_end(store, page=500)
    assert found == sorted(stored)
    assert worst <= 14
    assert store.told <= 1.5 * len(stored)


@STORES
async def test_a_narrow_prefix_is_one_request(store_of):
    store = store_of([f"uploads/{number:03}/{name}" for number in range(100) for name in ("a", "b.pdf", "c/d")])
    found = await first_keys(store.ask, prefix="uploads/042/", after="", most=1001)
    assert [blob.key for blob in found] == ["uploads/042/a", "uploads/042/b.pdf", "uploads/042/c/d"]
    assert store.asked == 1


@STORES
async def test_what_no_key_can_name_is_passed_over(store_of):
    foreign = ["a//b", "b/", "c/", "c/x/", " d", "incoming~/1", "new\nline", *(f"sea/{n}~" for n in range(2500)), "z/"]
    store = store_of([*foreign, "b", "c/x/y", "z"])
    found = await first_keys(store.ask, prefix="", after="", most=10)
    assert [blob.key for blob in found] == ["b", "c/x/y", "z"]
    assert store.asked < 60


async def test_a_store_that_never_ends_is_not_followed_for_ever():
    async def same_again(prefix: str, start: str, most: int) -> S3Page:
        return S3Page(blobs=(BlobStat(key="bad~", size_bytes=0, modified_at=AT),), more=True)

    with pytest.raises(BlobsUnavailable, match="1000 requests"):
        await first_keys(same_again, prefix="", after="", most=10)
