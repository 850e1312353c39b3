"""Stubs of grounding for the sandbox, addressed by name."""

import time
from typing import Any, BinaryIO

import msgspec

from penstock.documents.grounding import Grounded
from penstock.documents.pages import Citation, read_pages

ENDLESS = "too much to look for"


def ground_by_letters(file: BinaryIO, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Grounds each top-level string on the page that contains it; ignores numbers."""
    value: dict[str, Any] = msgspec.json.decode(file.readline())
    pages = list(read_pages(file))
    citations = []
    for name, text in list(value.items()):
        page = next((page.number for page in pages if str(text) in page.markdown), None)
        if isinstance(text, str):
            citations.append(Citation(pointer=f"/{name}", grounded=page is not None, page=page))
            value[name] = text if page is not None or not null_ungrounded else None
    return Grounded(value=value, citations=tuple(citations))


def ground_nothing_for_its_size(file: BinaryIO, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Reports that there is too much to ground."""
    return Grounded(limit_exceeded=ENDLESS)


def ground_late(file: BinaryIO, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Hangs."""
    time.sleep(1000)
    return Grounded()


def ground_without_end(file: BinaryIO, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Exhausts the memory."""
    held = bytearray()
    while True:
        held += bytes(1 << 24)
