"""One object, read. A body comes from one request, and so is one version of the object to its end."""

from typing import TYPE_CHECKING

import obstore
from obstore.store import S3Store

from penstock.adapters.s3.faults import OUTSIDE, name, named, status_of
from penstock.kernel.blobs import BlobNotFound, BlobStat, BlobsUnavailable, end_of_range

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

CHUNK_BYTES = 1024 * 1024
RANGE_NOT_SATISFIABLE = 416


async def stat_of(store: S3Store, path: str, key: str) -> BlobStat:
    """Size and time of an object."""
    try:
        found = await obstore.head_async(store, path)
    except FileNotFoundError:
        with named(key):  # an answer without a body does not say what is missing, the object or the bucket
            await obstore.get_async(store, path, options={"range": (0, 1)})
        raise BlobNotFound(key=key) from None  # it has come since
    except OUTSIDE as error:
        raise name(key, error) from error
    return BlobStat(key=key, size_bytes=found["size"], modified_at=found["last_modified"])


async def open_range(store: S3Store, path: str, key: str, start: int, stop: int | None) -> "GetResult | None":
    """The bytes of a checked range, about to be read; None when there are none."""
    if stop != start:
        try:
            return await obstore.get_async(store, path, options=_options(start, stop))
        except OUTSIDE as error:
            if status_of(error) != RANGE_NOT_SATISFIABLE:
                raise name(key, error) from error
    size_bytes = (await stat_of(store, path, key)).size_bytes
    if start < end_of_range(key, start, stop, size_bytes=size_bytes):
        raise BlobsUnavailable(reason=f"{key} was replaced while it was read")
    return None


def _options(start: int, stop: int | None) -> "GetOptions | None":
    if stop is not None:
        return {"range": (start, stop)}
    return {"range": {"offset": start}} if start else None
