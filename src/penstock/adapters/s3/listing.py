"""Many objects in the byte order of their keys, a page at a time, whatever order the store lists in.

S3 lists by bytes. SeaweedFS walks its folders: `a/x` comes before `a-b`, though "-" is less than "/", and who starts
after `a` misses everything in `a/`. So the keys that are still to be read are held as stretches. Each is a prefix and a
place to start after, and has a floor: nothing in it is below. The stretch with the lowest floor is read next, until no
floor is below the first key that was read; that key is then the next one on any store.

After a page that ends with `u/42/x` there are left: what follows in `u/42/`, what follows `42/` in `u/`, what follows
`u/` outside, and what lies in `u/42/x/`. On a store that lists by bytes the looks at the middle two find nothing new.
"""

import heapq
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from penstock.kernel.blobs import MOST_LISTED, BlobStat, BlobsUnavailable, why_bad_key

LAST = "\U0010ffff"  # sorts after every name: the last code point, and in no key
MOST_ASKED = 1000  # requests for one page; only a sea of foreign keys needs so many
LOOK = 1  # how much is read of a stretch that is probably empty
GROWTH = 8  # of the next look when it was not


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A page in the store's own order."""

    blobs: tuple[BlobStat, ...]
    more: bool  # whether the store says that it has more


Ask = Callable[[str, str, int], Awaitable[Answer]]  # prefix, start after, how many


@dataclass(frozen=True, order=True, kw_only=True)
class Stretch:
    """Keys still to be read: those that begin with `prefix` and that the store lists after `start`."""

    floor: str
    prefix: str = field(compare=False)
    start: str = field(default="", compare=False)
    most: int = field(default=MOST_LISTED, compare=False)  # read of it next, if that many are wanted
    least: int = field(default=1, compare=False)  # read of it next, even if fewer are wanted
    beyond: str = field(default="", compare=False)  # where to start instead when the store walks


async def first_keys(ask: Ask, *, prefix: str, after: str, most: int) -> list[BlobStat]:
    """The first `most` objects that begin with `prefix` and come after `after`."""
    unread, ready, found = list(_beginning(prefix, after)), Ready(after), list[BlobStat]()
    heapq.heapify(unread)
    asked = 0
    while len(found) < most:
        if unread and unread[0].floor <= ready.lowest:
            asked += 1
            if asked > MOST_ASKED:
                raise BlobsUnavailable(reason=f"{MOST_ASKED} requests did not list one page of {prefix!r}")
            for stretch in await _read(ask, heapq.heappop(unread), most - len(found), ready):
                heapq.heappush(unread, stretch)
        elif ready:
            found.append(ready.pop())
        else:
            break
    return found


class Ready:
    """Objects that were read, smallest first, each once, and none that no key can name."""

    def __init__(self, after: str) -> None:
        self._after = after
        self._keys: list[str] = []
        self._blobs: dict[str, BlobStat] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def lowest(self) -> str:
        """The smallest key, or what is larger than all keys."""
        return self._keys[0] if self._keys else LAST

    def add(self, blob: BlobStat) -> bool:
        """Keep an object unless it was seen before, lies before the page, or was put there by somebody else."""
        if blob.key <= self._after or blob.key in self._blobs or why_bad_key(blob.key) is not None:
            return False
        heapq.heappush(self._keys, blob.key)
        self._blobs[blob.key] = blob
        return True

    def pop(self) -> BlobStat:
        """Take the smallest; it will not be added again."""
        self._after = heapq.heappop(self._keys)
        return self._blobs.pop(self._after)


async def _read(ask: Ask, stretch: Stretch, wanted: int, ready: Ready) -> Iterator[Stretch]:
    size = min(max(min(stretch.most, wanted), stretch.least), MOST_LISTED)
    answer = await ask(stretch.prefix, stretch.start, size)
    inside = [blob for blob in answer.blobs if blob.key.startswith(stretch.prefix)]  # some stores mend a prefix
    useful = sum(map(ready.add, inside))
    if not inside:
        return iter(())
    if stretch.beyond and inside[0].key < stretch.floor:  # it walks: what is below the floor may be long
        return iter([Stretch(floor=stretch.floor, prefix=stretch.prefix, start=stretch.beyond)])
    last = inside[-1].key
    if answer.more:
        look = LOOK if size >= min(wanted, MOST_LISTED) else size * GROWTH
        return _rest(stretch.prefix, last, look=look, least=1 if useful else size * GROWTH)
    return iter([_below(last)] if len(answer.blobs) >= size else [])  # SeaweedFS forgets them at the end of a page


def _beginning(prefix: str, after: str) -> Iterator[Stretch]:
    """All that can hold keys after `after`."""
    if not after.startswith(prefix):
        if after < prefix:
            yield Stretch(floor=prefix, prefix=prefix)
        return
    inner = prefix
    for at in range(len(prefix), len(after)):
        if after[at] == "/":
            passed = after[:at]
            yield Stretch(floor=f"{passed}0", prefix=inner, start=f"{passed}/{LAST}", beyond=f"{passed}.{LAST}")
            inner = f"{passed}/"
        elif after[at] < "/" and why_bad_key(after[:at]) is None:
            yield _below(after[:at])  # walked before `after`, but larger
    yield Stretch(floor=f"{after}\0", prefix=inner, start=after)
    yield _below(after)


def _rest(prefix: str, last: str, *, look: int, least: int) -> Iterator[Stretch]:
    """What a stretch still holds after a page that ended with `last`."""
    inner = prefix
    for at in range(len(prefix), len(last)):
        if last[at] == "/":
            yield Stretch(floor=f"{last[:at]}\0", prefix=inner, start=f"{last[:at]}/{LAST}", most=look)
            inner = last[: at + 1]
    yield Stretch(floor=f"{last}\0", prefix=inner, start=last, least=least)
    yield _below(last)


def _below(key: str) -> Stretch:
    """What lies in the folder that has the name of an object."""
    folder = key if key.endswith("/") else f"{key}/"
    return Stretch(floor=folder, prefix=folder, start=folder if key.endswith("/") else "", most=LOOK)
