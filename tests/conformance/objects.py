"""What the suites of the blob port share: keys that every store takes or refuses, streams that end well or badly."""

from collections.abc import AsyncIterator

from hypothesis import HealthCheck, settings

from penstock.kernel.blobs import Blobs

MIB = 1024 * 1024
# A deadline would measure the store, not us.
shared_store = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

GOOD_KEYS = [
    "a",
    "uploads/42/source (1) final.pdf",
    "合同/第1页.pdf",
    ".hidden/..a/b..",
    "100%/a%2Fb/%2e%2e%2e/…/c%00d+e f",
    "t=1@x+y,z;!$&'*:?#%[]{}<>|^`\"/~a",
    "/".join(["s" * 200, "é" * 100, "x" * 110]),  # 512 bytes
    "/".join("d" * 256),  # as deep as can be
]
BAD_KEYS = {
    "": "empty segment",
    "/a": "empty segment",
    "a/": "empty segment",
    "a//b": "empty segment",
    "a/./b": "'.' or '..'",
    "..": "'.' or '..'",
    "a/../../etc/passwd": "'.' or '..'",
    "%2e%2e/a": "means '.' or '..'",
    "a/%2E./b": "means '.' or '..'",
    "a/%252e%252e/b": "means '.' or '..'",
    "a/..%2fb": "means '.' or '..'",
    "a/..%5c..%5cb": "means '.' or '..'",
    "．．/a": "means '.' or '..'",
    "a/‥/b": "means '.' or '..'",
    "a/․": "means '.' or '..'",
    "a\\..\\b": "backslash",
    "a\0b": "unprintable",
    "a\nb": "unprintable",
    "a\u202eb": "unprintable",
    "a\ud800b": "unprintable",
    "e\u0301": "normal form C",
    " a": "space",
    "a /b": "space",
    "a~/b": "'~'",
    "s" * 201: "segment longer than 200",
    "é" * 101: "segment longer than 200",
    "/".join(["é" * 86] * 3): "longer than 512",
    "x" * 5_000_000: "longer than 512",
}


async def in_pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def broken_off(error: BaseException, content: bytes = b"half") -> AsyncIterator[bytes]:
    yield content
    raise error


async def everything(blobs: Blobs, prefix: str, *, limit: int = 1000) -> list[str]:
    """All keys under a prefix, page by page."""
    page = await blobs.list(prefix, limit=limit)
    found = [blob.key for blob in page.blobs]
    while page.after is not None:
        assert len(page.blobs) == limit
        page = await blobs.list(prefix, after=page.after, limit=limit)
        found += [blob.key for blob in page.blobs]
    return found
