"""Convert MinerU's list of blocks to pages: markdown, and a span with its bounding box for each line and cell.

A block has a type, a zero-based page index, and a box in thousandths of the page. Tables are HTML and parsed like web
pages. Headers, footers and page numbers are left out of the markdown but have spans, so that they can be cited.
Malformed blocks are dropped, malformed boxes ignored.
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
NO_PAGE_LIMIT = 1_000_000_000  # MinerU's pages are kept whole, however long

Entry = Mapping[str, Any]


def entries_by_page(listed: object, pages: int) -> dict[int, list[Entry]]:
    """The blocks of each page index, in reading order. With `pages`, blocks past the last page go to the last."""
    found: dict[int, list[Entry]] = {}
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict):
            continue
        value = entry.get("page_idx")
        index = max(value, 0) if isinstance(value, int) else 0
        found.setdefault(min(index, pages - 1) if pages else index, []).append(entry)
    return found


def page_of(number: int, entries: Iterable[Entry]) -> Page:
    """Convert one page."""
    pieces: list[str] = []
    spans: list[Span] = []
    tables = 0
    for entry in entries:
        box = _box(entry.get("bbox"))
        for rendered in _rendered(_blocks(entry)):
            found = [_with_box(span, box, tables) for span in rendered.spans]
            tables = max((span.table + 1 for span in found if span.table is not None), default=tables)
            spans += found
            if rendered.markdown and _kind(entry) not in EDGES:
                pieces.append(rendered.markdown)
    side = SCALE if any(span.box for span in spans) else 0.0
    markdown = "\n\n".join(pieces)
    return Page(number=number, origin="ocr", markdown=markdown, spans=tuple(spans), width=side, height=side)


def plain_page(number: int, markdown: str) -> Page:
    """A page for text without page information."""
    rendered = next(_rendered([RawMarkdown(text=markdown)]))
    return Page(number=number, origin="ocr", markdown=rendered.markdown, spans=rendered.spans)


def _blocks(entry: Entry) -> Iterator[Block]:
    kind = _kind(entry)
    if kind == "table":
        yield from _progress(entry, "table_caption")
        for html in _texts(entry.get("table_body")):
            yield from html_blocks(html)
        yield from _progress(entry, "table_footnote")
    elif kind == "list":
        yield from _items(entry)
    elif kind == "code":
        yield from _progress(entry, "code_caption")
        yield from (RawMarkdown(text=_fenced(body)) for body in _texts(entry.get("code_body")))
        yield from _progress(entry, "code_footnote")
    elif kind == "equation":
        yield from (RawMarkdown(text=_formula(text)) for text in _texts(entry.get("text")))
    elif kind in {"image", "chart"}:
        for name in (f"{kind}_caption", "text", "content", f"{kind}_footnote"):
            yield from _progress(entry, name)
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
    """A list, whose items may already have bullets or numbers."""
    for text in _texts(entry.get("list_items")) or _texts(entry.get("text")):
        mark, _, rest = text.lstrip().partition(" ")
        number = mark[:-1] if mark[-1:] in {".", ")"} else ""
        if rest and number.isdecimal() and len(number) < 6 and number.isascii():
            yield ListItem(text=rest, number=int(number))
        else:
            yield ListItem(text=rest if rest and mark in {"-", "*", "•", "·"} else text)


def _progress(entry: Entry, name: str) -> Iterator[Block]:
    return (TextBlock(text=text) for text in _texts(entry.get(name)))


def _texts(value: object) -> list[str]:
    """A string or a list of strings, without blank or invalid ones."""
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


def _rendered(blocks: Iterable[Block]) -> Iterator[Page]:
    return (page for page, _ in to_pages(blocks, first=1, longest=NO_PAGE_LIMIT))


def _with_box(span: Span, box: Box | None, tables: int) -> Span:
    table = None if span.table is None else span.table + tables
    return msgspec.structs.replace(span, box=box, table=table)


def _box(value: object) -> Box | None:
    """Left, top, right, bottom, clamped to the page; None if malformed."""
    if not isinstance(value, list) or len(value) != 4:
        return None
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in value):
        return None
    left, top, right, bottom = (min(max(float(each), 0.0), SCALE) for each in value)
    return (left, top, right, bottom) if left <= right and top <= bottom else None
