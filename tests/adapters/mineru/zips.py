"""Result zips as MinerU makes them, and malicious ones."""

import io
import json
import stat
import zipfile
from typing import Any


def block(page: int, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "page_idx": page, "bbox": [100, 200, 900, 240], "text": text, **more}


def zipped(entries: dict[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def result_of(blocks: Any, *, markdown: str = "# From full.md") -> bytes:
    """A result of the cloud."""
    listed = blocks if isinstance(blocks, str) else json.dumps(blocks)
    extra: dict[str, bytes | str] = {
        "layout.json": "{}",
        "images/aa11.jpg": b"\xff\xd8",
        "3f_content_list_v2.json": "[]",
    }
    return zipped({"full.md": markdown, "3f_content_list.json": listed, **extra})


def result_of_server(blocks: Any) -> bytes:
    """A result of a self-hosted server."""
    folder = "part-0001/auto/part-0001"
    return zipped({f"{folder}.md": "# md", f"{folder}_content_list.json": json.dumps(blocks)})


def pages(*texts: str) -> bytes:
    """One paragraph on each page."""
    return result_of([block(page, text) for page, text in enumerate(texts)])


def without_list(markdown: str) -> bytes:
    return zipped({"full.md": markdown, "images/aa11.jpg": b"\xff\xd8"})


def named(name: str) -> bytes:
    """A valid result with one more entry."""
    good = {"full.md": "# md", "3f_content_list.json": json.dumps([block(0, "Text")])}
    return zipped({**good, name: b"boo"})


def with_link() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("full.md", "# md")
        link = zipfile.ZipInfo("images/passwd")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return out.getvalue()


def twice() -> bytes:
    first = zipped({"full.md": "# one", "fullxmd": "# two"})
    return first.replace(b"fullxmd", b"full.md")


def bomb(*, size_bytes: int) -> bytes:
    """Markdown that unpacks to much more than its compressed size."""
    return without_list(" " * size_bytes)


def lying_bomb(*, size_bytes: int) -> bytes:
    """A zip that declares a smaller size."""
    made, true = bomb(size_bytes=size_bytes), size_bytes.to_bytes(4, "little")
    assert made.count(true) == 2  # before the entry, and in the directory
    return made.replace(true, (100).to_bytes(4, "little"))


def many(*, entries: int) -> bytes:
    return zipped({f"images/{number}.jpg": b"" for number in range(entries)} | {"full.md": "# md"})
