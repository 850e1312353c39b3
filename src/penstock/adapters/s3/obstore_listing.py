"""List through obstore, for the machine's IAM role, whose credentials only obstore can obtain.

A directory marker (`a/`) shows as an object `a`, and a foreign key with an empty segment or a non-printable character
ends the listing with an error. Configure an access key where others write under the same prefix.
"""

from typing import TYPE_CHECKING

from obstore import list as list_objects
from obstore.store import S3Store

from penstock.adapters.s3.errors import mapped_errors
from penstock.adapters.s3.listing import LAST, S3Page
from penstock.kernel.blobs import BlobStat

if TYPE_CHECKING:
    from obstore import ObjectMeta


class ObstoreLister:
    """Lists pages as `SignedClient` does, as far as obstore supports it."""

    def __init__(self, store: S3Store, root: str) -> None:
        self._store = store
        self._root = root

    async def list_page(self, prefix: str, start: str, most: int) -> S3Page:
        """Objects that begin with `prefix` and come after `start`, in the store's own order; keys without the root."""
        with mapped_errors(prefix):
            found = await self._read(self._root + prefix, start and self._root + start, most + 1)
        return S3Page(blobs=tuple(found[:most]), more=len(found) > most)

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
    """A listing offset just before the first key that begins with `prefix`. None: the beginning."""
    if not part:
        return None
    before = chr(ord(part[-1]) - 1)
    if before == "/" and len(part) == 1:
        before = "."  # obstore accepts no empty segment
    return prefix[:-1] if before == "\x1f" else f"{prefix[:-1]}{before}{LAST}"
