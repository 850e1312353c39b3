"""Blobs as local files, and local files as streams."""

from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.documents.blob_files import CHUNK_BYTES, append_chunk, file_chunks, local_copy, temporary_file

SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES]


@pytest.mark.parametrize("size_bytes", SIZES)
async def test_a_file_is_streamed_in_chunks_of_a_bounded_size(tmp_path: Path, size_bytes: int):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256))
    pieces = [piece async for piece in file_chunks(path)]
    assert b"".join(pieces) == path.read_bytes()
    assert all(0 < len(piece) <= CHUNK_BYTES for piece in pieces)


@pytest.mark.parametrize("size_bytes", SIZES)
async def test_a_blob_is_a_local_file_until_the_block_ends(tmp_path: Path, size_bytes: int):
    blobs, folder = DiskBlobs(tmp_path / "blobs"), tmp_path / "not" / "there"
    await blobs.put("a/b", b"x" * size_bytes)
    async with local_copy(blobs, "a/b", folder) as path:
        assert path.read_bytes() == b"x" * size_bytes
    assert list(folder.iterdir()) == []


async def test_a_temporary_file_is_empty_and_deleted_with_its_block(tmp_path: Path):
    async with temporary_file(tmp_path / "not" / "there") as path:
        assert path.read_bytes() == b""
        path.write_bytes(b"something")
    assert not path.exists()


async def test_a_deleted_file_is_not_created_again_by_a_late_append(tmp_path: Path):
    async with temporary_file(tmp_path) as path:
        append_chunk(path, b"one ")
        append_chunk(path, b"two")
        assert path.read_bytes() == b"one two"
    with pytest.raises(FileNotFoundError):
        append_chunk(path, b"three")
    assert list(tmp_path.iterdir()) == []
