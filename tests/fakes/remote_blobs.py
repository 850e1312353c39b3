"""A blob store that is not local: it counts what is read, and offers no files."""

from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

from penstock.adapters.disk import DiskBlobs


class RemoteBlobs(DiskBlobs):
    """Objects must be streamed."""

    open_file = None  # type: ignore[assignment]  # hides that of the base class

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.streamed_bytes: Counter[str] = Counter()  # by key

    async def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        async for chunk in super().stream(key, start=start, stop=stop):
            self.streamed_bytes[key] += len(chunk)
            yield chunk
