"""MinerU's list of blocks as pages: markdown, and a span with its box for each line and cell.

A block has a type, a page from 0, and a box in thousandths of the page. Tables come as HTML and are read as web pages
are. What stands at the edges of a page (headers, footers, page numbers) is left out of the markdown, but its spans are
there. Nothing is taken for granted: whatever is not as it should be is left out, or stands without a box.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.documents.blocks import Block, Heading, ListItem, RawMarkdown, TextBlock, to_pages
from penstock.documents.pages import Box, Page, Span
from penstock.documents.text.html import html_blocks

SCALE = 1000.0
EDGES = frozenset({"header", "footer", "page_number"})
ENDLESS = 1_000_000_000  # pages are MinerU's here, so none is cut for being long

Entry = Mapping[str, Any]


def entries_by_page(listed: object, pages: int) -> dict[int, list[Entry]]:
    """The blocks of each page, from 0, in reading order. With `pages`, one behind the last page stands on the last."""
    found: dict[int, list[Entry]] = {}
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict):
            continue
        told = entry.get("page_idx")
        index = max(told, 0) if isinstance(told, int) else 0
        found.setdefault(min(index, pages - 1) if pages else index, []).append(entry)
    return found


def page_of(number: int, entries: Iterable[Entry]) -> Page:
    """One page of the document."""
    pieces: list[str] = []
    spans: list[Span] = []
    tables = 0
    for entry in entries:
        box = _box(entry.get("bbox"))
        for written in _written(_blocks(entry)):
            found = [_placed(span, box, tables) for span in written.spans]
            tables = max((span.table + 1 for span in found if span.table is not None), default=tables)
            spans += found
            if written.markdown and _kind(entry) not in EDGES:
                pieces.append(written.markdown)
    side = SCALE if any(span.box for span in spans) else 0.0
    markdown = "\n\n".join(pieces)
    return Page(number=number, origin="ocr", markdown=markdown, spans=tuple(spans), width=side, height=side)


def plain_page(number: int, markdown: str) -> Page:
    """A text of which nobody said what stands on which page."""
    written = next(_written([RawMarkdown(text=markdown)]))
    return Page(number=number, origin="ocr", markdown=written.markdown, spans=written.spans)


def _blocks(entry: Entry) -> Iterator[Block]:
    kind = _kind(entry)
    if kind == "table":
        yield from _told(entry, "table_caption")
        for html in _texts(entry.get("table_body")):
            yield from html_blocks(html)
        yield from _told(entry, "table_footnote")
    elif kind == "list":
        yield from _items(entry)
    elif kind == "code":
        yield from _told(entry, "code_caption")
        yield from (RawMarkdown(text=_fenced(body)) for body in _texts(entry.get("code_body")))
        yield from _told(entry, "code_footnote")
    elif kind == "equation":
        yield from (RawMarkdown(text=_formula(text)) for text in _texts(entry.get("text")))
    elif kind in {"image", "chart"}:
        for name in (f"{kind}_caption", "text", "content", f"{kind}_footnote"):
            yield from _told(entry, name)
    else:
        yield from _paragraph(entry)


def _kind(entry: Entry) -> str:
    kind = entry.get("type")
    return kind if isinstance(kind, str) else ""


def _paragraph(entry: Entry) -> Iterator[Block]:
    level = entry.get("text_level")
    is_heading = isinstance(level, int) and level > 0
    for text in _texts(entry.get("text")):
        yield Heading(text=text, level=min(int(level or 1), 6)) if is_heading else TextBlock(text=text)


def _items(entry: Entry) -> Iterator[Block]:
    """A list, whose items may have marks of their own already."""
    for text in _texts(entry.get("list_items")) or _texts(entry.get("text")):
        mark, _, rest = text.lstrip().partition(" ")
        number = mark[:-1] if mark[-1:] in {".", ")"} else ""
        if rest and number.isdecimal() and len(number) < 6 and number.isascii():
            yield ListItem(text=rest, number=int(number))
        else:
            yield ListItem(text=rest if rest and mark in {"-", "*", "•", "·"} else text)


def _told(entry: Entry, name: str) -> Iterator[Block]:
    return (TextBlock(text=text) for text in _texts(entry.get(name)))


def _texts(value: object) -> list[str]:
    """A text, or a list of them, without what is empty or no text."""
    texts: Sequence[object] = value if isinstance(value, list) else [value]
    return [text.replace("\0", "") for text in texts if isinstance(text, str) and text.strip("\0 \t\r\n")]


def _fenced(body: str) -> str:
    if body.lstrip().startswith("```"):
        return body.strip()
    fence = "```" if "```" not in body else "````"
    return f"{fence}\n{body.strip()}\n{fence}"


def _formula(text: str) -> str:
    stripped = text.strip()
    return stripped if stripped.startswith("$") else f"$$\n{stripped}\n$$"


def _written(blocks: Iterable[Block]) -> Iterator[Page]:
    return (page for page, _ in to_pages(blocks, first=1, longest=ENDLESS))


def _placed(span: Span, box: Box | None, tables: int) -> Span:
    table = None if span.table is None else span.table + tables
    return msgspec.structs.replace(span, box=box, table=table)


def _box(value: object) -> Box | None:
    """Left, top, right, bottom inside the page; None when it is not that."""
    if not isinstance(value, list) or len(value) != 4:
        return None
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in value):
        return None
    left, top, right, bottom = (min(max(float(each), 0.0), SCALE) for each in value)
    return (left, top, right, bottom) if left <= right and top <= bottom else None
