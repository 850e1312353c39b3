"""List objects in the byte order of their keys, page by page, whatever order the store lists in.

Foreign keys under the prefix are not listed, but slow a listing down. S3 lists by bytes. SeaweedFS walks directories:
`a/x` comes before `a-b`, although "-" sorts before "/", and a listing that starts after `a` misses everything in `a/`.
So the unread keys are held as ranges. Each has a prefix, a start key and a floor, its lower bound. The range with the
lowest floor is read next, until no floor is below the smallest key read; that key is then the next one on any store.

After a page that ends with `u/42/x` these ranges remain: the rest of `u/42/`, what follows `42/` in `u/`, what follows
`u/` outside, and the keys below `u/42/x/`. On a store that lists by bytes the middle two find nothing new. A
listing costs up to about ten requests per page.
"""

import heapq
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from penstock.kernel.blobs import MAX_LISTED, BlobStat, BlobsUnavailable, why_bad_key

LAST = "\U0010ffff"  # sorts after every name: the last code point, and in no key
MAX_REQUESTS = 1000  # per page; only a mass of foreign keys needs so many
PROBE = 1  # page size for a range that is probably empty
GROWTH = 8  # factor of the next page size when it was not


@dataclass(frozen=True, kw_only=True)
class S3Page:
    """A page of a listing in the store's own order."""

    blobs: tuple[BlobStat, ...]
    more: bool  # whether the store reports more


ListPage = Callable[[str, str, int], Awaitable[S3Page]]  # prefix, start after, page size


@dataclass(frozen=True, order=True, kw_only=True)
class KeyRange:
    """Unread keys: those that begin with `prefix` and that the store lists after `start`."""

    floor: str
    prefix: str = field(compare=False)
    start: str = field(default="", compare=False)
    most: int = field(default=MAX_LISTED, compare=False)  # largest next page
    least: int = field(default=1, compare=False)  # smallest next page
    start_if_walking: str = field(default="", compare=False)  # the start if the store walks directories


async def first_keys(list_page: ListPage, *, prefix: str, after: str, most: int) -> list[BlobStat]:
    """The first `most` objects that begin with `prefix` and sort after `after`."""
    unread, merged, found = list(_initial_ranges(prefix, after)), MergedKeys(after), list[BlobStat]()
    heapq.heapify(unread)
    requests = 0
    while len(found) < most:
        if unread and unread[0].floor <= merged.lowest:
            requests += 1
            if requests > MAX_REQUESTS:
                raise BlobsUnavailable(reason=f"{MAX_REQUESTS} requests did not list one page of {prefix!r}")
            for key_range in await _read_range(list_page, heapq.heappop(unread), most - len(found), merged):
                heapq.heappush(unread, key_range)
        elif merged:
            found.append(merged.pop())
        else:
            break
    return found


class MergedKeys:
    """Objects read so far, smallest first, without duplicates and without keys that are invalid for us."""

    def __init__(self, after: str) -> None:
        self._after = after
        self._keys: list[str] = []
        self._blobs: dict[str, BlobStat] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def lowest(self) -> str:
        """The smallest key, or a string larger than all keys."""
        return self._keys[0] if self._keys else LAST

    def add(self, blob: BlobStat) -> bool:
        """Add an object unless it is a duplicate, sorts before the page, or has an invalid key."""
        if blob.key <= self._after or blob.key in self._blobs or why_bad_key(blob.key) is not None:
            return False
        heapq.heappush(self._keys, blob.key)
        self._blobs[blob.key] = blob
        return True

    def pop(self) -> BlobStat:
        """Take the smallest; it is not added again."""
        self._after = heapq.heappop(self._keys)
        return self._blobs.pop(self._after)


async def _read_range(list_page: ListPage, key_range: KeyRange, count: int, merged: MergedKeys) -> Iterator[KeyRange]:
    size = min(max(min(key_range.most, count), key_range.least), MAX_LISTED)
    page = await list_page(key_range.prefix, key_range.start, size)
    inside = [blob for blob in page.blobs if blob.key.startswith(key_range.prefix)]  # some stores normalise a prefix
    useful = sum(map(merged.add, inside))
    if not inside:
        return iter(())
    if key_range.start_if_walking and inside[0].key < key_range.floor:  # the store walks directories: skip ahead
        return iter([KeyRange(floor=key_range.floor, prefix=key_range.prefix, start=key_range.start_if_walking)])
    last = inside[-1].key
    if page.more:
        probe = PROBE if size >= min(count, MAX_LISTED) else size * GROWTH
        return _remaining_ranges(key_range.prefix, last, probe=probe, least=1 if useful else size * GROWTH)
    return iter([_range_below(last)] if len(page.blobs) >= size else [])  # SeaweedFS omits these at the end of a page


def _initial_ranges(prefix: str, after: str) -> Iterator[KeyRange]:
    """All ranges that can contain keys after `after`."""
    if not after.startswith(prefix):
        if after < prefix:
            yield KeyRange(floor=prefix, prefix=prefix)
        return
    inner = prefix
    for at in range(len(prefix), len(after)):
        if after[at] == "/":
            passed = after[:at]
            yield KeyRange(
                floor=f"{passed}0", prefix=inner, start=f"{passed}/{LAST}", start_if_walking=f"{passed}.{LAST}"
            )
            inner = f"{passed}/"
        elif after[at] < "/" and why_bad_key(after[:at]) is None:
            yield _range_below(after[:at])  # walked before `after`, but sorts after it
    yield KeyRange(floor=f"{after}\0", prefix=inner, start=after)
    yield _range_below(after)


def _remaining_ranges(prefix: str, last: str, *, probe: int, least: int) -> Iterator[KeyRange]:
    """The ranges that remain after a page that ended with `last`."""
    inner = prefix
    for at in range(len(prefix), len(last)):
        if last[at] == "/":
            yield KeyRange(floor=f"{last[:at]}\0", prefix=inner, start=f"{last[:at]}/{LAST}", most=probe)
            inner = last[: at + 1]
    yield KeyRange(floor=f"{last}\0", prefix=inner, start=last, least=least)
    yield _range_below(last)


def _range_below(key: str) -> KeyRange:
    """The keys below an object's key, as if it were a directory."""
    folder = key if key.endswith("/") else f"{key}/"
    return KeyRange(floor=folder, prefix=folder, start=folder if key.endswith("/") else "", most=PROBE)
