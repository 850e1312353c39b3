"""Pages of a listing where the keys are the machine's own, which only obstore knows how to get.

A folder marker (`a/`) shows as an object `a` here, and a foreign key with an empty segment or an unprintable character
ends the listing with a named error. Give the store keys of its own where others write into its prefix.
"""

from typing import TYPE_CHECKING

from obstore import list as list_objects
from obstore.store import S3Store

from penstock.adapters.s3.faults import named
from penstock.adapters.s3.listing import LAST, Answer
from penstock.kernel.blobs import BlobStat

if TYPE_CHECKING:
    from obstore import ObjectMeta


class RolePages:
    """The one question of `asking.py` that obstore can be asked, as far as it can."""

    def __init__(self, store: S3Store, root: str) -> None:
        self._store = store
        self._root = root

    async def page(self, prefix: str, start: str, most: int) -> Answer:
        """Objects that begin with `prefix` and come after `start`, in the store's own order; keys without the root."""
        with named(prefix):
            found = await self._read(self._root + prefix, start and self._root + start, most + 1)
        return Answer(blobs=tuple(found[:most]), more=len(found) > most)

    async def _read(self, prefix: str, start: str, most: int) -> list[BlobStat]:
        folder, _, part = prefix.rpartition("/")
        found: list[BlobStat] = []
        stream = list_objects(self._store, folder or None, offset=start or _just_before(prefix, part), chunk_size=most)
        async for batch in stream:
            for listed in batch:
                path = listed["path"]
                if not path.startswith(prefix) and path > prefix:
                    return found
                if path.startswith(prefix):
                    found.append(_as_stat(listed, self._root))
            if len(found) >= most:
                break
        return found


def _as_stat(listed: "ObjectMeta", root: str) -> BlobStat:
    key = listed["path"].removeprefix(root)
    return BlobStat(key=key, size_bytes=listed["size"], modified_at=listed["last_modified"])


def _just_before(prefix: str, part: str) -> str | None:
    """A place in the listing before all that begins with `prefix`, and after what does not. None: the beginning."""
    if not part:
        return None
    before = chr(ord(part[-1]) - 1)
    if before == "/" and len(part) == 1:
        before = "."  # obstore takes no empty segment
    return prefix[:-1] if before == "\x1f" else f"{prefix[:-1]}{before}{LAST}"
