"""Papers that go."""

from pathlib import Path

from penstock.adapters.disk import DiskBlobs
from penstock.etl.papers import drop
from penstock.kernel.blobs import BlobPage


class BlobsInShortPages(DiskBlobs):
    """Lists two objects at a time."""

    async def list(self, prefix: str, *, after: str | None = None, limit: int = 2) -> BlobPage:
        return await super().list(prefix, after=after, limit=limit)


async def test_everything_below_a_prefix_goes_however_many_pages_it_takes_to_list(tmp_path: Path):
    blobs = BlobsInShortPages(tmp_path)
    for name in ("1/a", "1/b", "1/c/d", "1/c/e", "1/f", "10/a"):
        await blobs.put(f"papers/{name}", b"x")
    await drop(blobs, "papers/1/")
    assert [blob.key for blob in (await blobs.list("papers/")).blobs] == ["papers/10/a"]
    await drop(blobs, "papers/1/")
