"""Blobs as local files, and local files as streams."""

import hashlib
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.documents.blob_files import CHUNK_BYTES, append_chunk, file_chunks, local_file, temporary_file
from tests.fakes.remote_blobs import RemoteBlobs

SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES]


@pytest.mark.parametrize("size_bytes", SIZES)
async def test_a_file_is_streamed_in_chunks_of_a_bounded_size(tmp_path: Path, size_bytes: int):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256))
    pieces = [piece async for piece in file_chunks(path)]
    assert b"".join(pieces) == path.read_bytes()
    assert all(0 < len(piece) <= CHUNK_BYTES for piece in pieces)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("is_local", [True, False])
async def test_a_blob_is_a_local_file_until_the_block_ends_and_is_hashed_on_the_way(
    tmp_path: Path, size_bytes: int, is_local: bool
):
    blobs = (DiskBlobs if is_local else RemoteBlobs)(tmp_path / "blobs")
    folder, digest = tmp_path / "not" / "there", hashlib.sha256()
    receipt = await blobs.put("a/b", b"x" * size_bytes)
    async with local_file(blobs, "a/b", folder, digest=digest) as path:
        assert path.read_bytes() == b"x" * size_bytes
        assert digest.hexdigest() == receipt.sha256
        assert len(list(folder.glob("*"))) == (0 if is_local else 1)
    assert [*folder.glob("*"), *(tmp_path / "blobs/incoming").glob("*")] == []


async def test_a_remote_blob_is_read_once_to_be_hashed_and_opened(tmp_path: Path):
    blobs = RemoteBlobs(tmp_path / "blobs")
    await blobs.put("a/b", b"x" * 5 * CHUNK_BYTES)
    async with local_file(blobs, "a/b", tmp_path / "scratch", digest=hashlib.sha256()):
        assert blobs.streamed_bytes == {"a/b": 5 * CHUNK_BYTES}


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
