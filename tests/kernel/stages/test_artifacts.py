"""Artifacts: a marker that is written last, and what is deleted."""

from pathlib import Path

import msgspec
import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.kernel.stages.artifacts import Artifacts


class Marker(msgspec.Struct, frozen=True):
    """What a commit marker says."""

    pages: int


@pytest.fixture
def made(tmp_path: Path) -> Artifacts:
    return Artifacts(DiskBlobs(tmp_path), "runs/1/")


async def test_a_marker_is_found_as_it_was_committed(made: Artifacts):
    assert await made.find("done.json", Marker) is None
    assert await made.is_empty()
    await made.put("page-1", b"text")
    await made.commit("done.json", Marker(pages=1))
    assert await made.find("done.json", Marker) == Marker(pages=1)
    assert not await made.is_empty()


@pytest.mark.parametrize("broken", [b'{"pages": ', b'{"pages": "x"}', b"\xff"])
async def test_a_marker_that_cannot_be_decoded_counts_as_missing(made: Artifacts, broken: bytes):
    await made.put("done.json", broken)
    assert await made.find("done.json", Marker) is None


async def test_only_what_is_under_the_prefix_is_deleted(made: Artifacts):
    other = Artifacts(made.blobs, "runs/10/")
    await other.put("a", b"x")
    for number in range(40):
        await made.put(f"page-{number:02d}", b"x")
    await made.drop(lambda name: name < "page-30")
    assert [name async for page in made.names() for name in page] == [f"page-{number}" for number in range(30, 40)]
    await made.drop()
    await made.drop()
    assert await made.is_empty()
    assert not await other.is_empty()
