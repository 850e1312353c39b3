"""What every blob store does when it lists, whatever holds the bytes."""

from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.blobs import BadBlobPage, why_bad_key
from tests.conformance.objects import everything, shared_store

CASES = count()  # a fresh prefix per Hypothesis example: the store is one for all of them
# Neighbours of "/" in byte order, and characters that UTF-16 would sort otherwise than UTF-8.
segments = st.text(st.sampled_from(list("aB0-.!+~ é中～😀")), min_size=1, max_size=3)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join).filter(lambda key: why_bad_key(key) is None)


class TestList:
    async def test_an_empty_store_lists_nothing(self, blobs):
        page = await blobs.list("")
        assert (page.blobs, page.after) == ((), None)
        assert (await blobs.list("a/b", after="a/c")).blobs == ()

    async def test_a_key_may_be_an_object_and_the_beginning_of_others(self, blobs):
        keys = ["a", "a-b", "a.b", "a/b", "a/b/c", "a0"]
        for key in reversed(keys):
            await blobs.put(key, key.encode())
        assert await everything(blobs, "") == keys
        assert [await blobs.get(key) for key in keys] == [key.encode() for key in keys]
        await blobs.delete("a")
        assert await everything(blobs, "") == keys[1:]
        await blobs.delete("a/b")
        assert await everything(blobs, "a/") == ["a/b/c"]

    async def test_the_listing_carries_size_and_time(self, blobs):
        await blobs.put("a", b"12345")
        (listed,), known = (await blobs.list("")).blobs, await blobs.stat("a")
        assert (listed.key, listed.size_bytes) == (known.key, known.size_bytes) == ("a", 5)
        assert abs(listed.modified_at - known.modified_at) < timedelta(seconds=1)  # S3 rounds one of the two

    @shared_store
    @given(stored=st.sets(keys, max_size=8), limit=st.integers(1, 9), start=keys, cut=st.integers(1, 6))
    async def test_keys_come_in_byte_order_page_by_page_from_anywhere(self, blobs, stored, limit, start, cut):
        case = f"case{next(CASES):06}/"
        for key in stored:
            await blobs.put(case + key, b"")
        in_order = sorted((case + key for key in stored), key=str.encode)
        assert await everything(blobs, case, limit=limit) == in_order

        after, prefix = case + start, case + start[:cut]
        expected = [key for key in in_order if key.encode() > after.encode()]
        assert [blob.key for blob in (await blobs.list(case, after=after)).blobs] == expected
        if not any(segment == "" or why_bad_key(segment) for segment in prefix.split("/")[:-1]):
            assert await everything(blobs, prefix, limit=limit) == [key for key in in_order if key.startswith(prefix)]

    async def test_after_may_lie_outside_the_prefix(self, blobs):
        for key in ("a/1", "b/1", "b/2", "c/1"):
            await blobs.put(key, b"")
        assert [blob.key for blob in (await blobs.list("b/", after="a/9")).blobs] == ["b/1", "b/2"]
        assert (await blobs.list("b/", after="c")).blobs == ()

    @pytest.mark.parametrize("limit", [-1, 0, 1001])
    async def test_a_page_without_a_sensible_bound_is_refused(self, blobs, limit):
        with pytest.raises(BadBlobPage, match=str(limit)):
            await blobs.list("", limit=limit)
