"""HTML: headings, paragraphs, lists and tables in source order. Scripts and styles are dropped.

The parser builds no tree, so nesting depth costs nothing. Nothing is fetched, and links become their text. A table that
contains another table is layout, so its cells are read as paragraphs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import BinaryIO

from penstock.documents.blocks import Block, Heading, ListItem, Row, TableBlock, TextBlock
from penstock.documents.rejections import too_large, unreadable
from penstock.documents.text.encoding import SAMPLE_BYTES, declared_encoding, decode_text, detect_encoding

MAX_BYTES = 32 * 1024 * 1024
MAX_SPAN = 100
DROPPED = frozenset({"script", "style", "template", "title", "svg", "math", "iframe", "object", "select", "noscript"})
HEADINGS = {f"h{level}": level for level in range(1, 7)}
LISTS = frozenset({"ul", "ol", "menu"})
PARAGRAPHS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div", "dl"}
    | {"dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "legend", "main", "nav"}
    | {"p", "pre", "section", "summary"}
)
META_CHARSET = re.compile(rb"charset\s{0,9}=\s{0,9}[\"']?([\w-]{1,40})", re.IGNORECASE)
META_BYTES = 2048


def read_html(file: BinaryIO, _resume: str) -> Iterator[Block]:
    """Yield the blocks of an HTML file."""
    source = file.read(MAX_BYTES + 1)
    if len(source) > MAX_BYTES:
        raise too_large(f"it has more than {MAX_BYTES} bytes")
    codec = detect_encoding(source[:SAMPLE_BYTES])
    if codec is None:
        raise unreadable("it is not text")
    if codec == "utf-8":
        codec = detect_encoding(source) or codec  # the first other character may come late, after scripts
    if not codec.startswith("utf"):
        codec = _declared_codec(source) or codec
    yield from html_blocks(decode_text(source, codec))


def html_blocks(source: str) -> list[Block]:
    """The blocks of decoded HTML."""
    reader = _HtmlReader()
    reader.feed(source)
    reader.close()
    reader.finish()
    return reader.blocks


def _declared_codec(source: bytes) -> str | None:
    """The encoding that the page declares."""
    found = META_CHARSET.search(source, 0, META_BYTES)
    return declared_encoding(found[1].decode("ascii", errors="replace")) if found else None


@dataclass(kw_only=True)
class _OpenTable:
    """A table whose end tag has not been read."""

    rows: list[Row] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    covered: dict[int, int] = field(default_factory=dict)  # columns covered by a rowspan, and for how many rows
    is_layout: bool = False


class _HtmlReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self._text: list[str] = []
        self._dropped = ""  # the open tag whose content is dropped
        self._dropped_depth = 0
        self._level: int | None = None  # of the open heading
        self._lists: list[int | None] = []  # of each open list: the last number, None for bullets
        self._in_item = False
        self._verbatim = 0
        self._tables: list[_OpenTable] = []
        self._span: tuple[int, int] | None = None  # colspan and rowspan of the open cell

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropped or tag in DROPPED:
            self._dropped = self._dropped or tag
            self._dropped_depth += tag == self._dropped
        elif tag == "br":
            self._text.append("\n")
        elif tag in HEADINGS:
            self._end_block()
            self._level = HEADINGS[tag] if self._span is None else None
        elif tag in LISTS:
            self._end_block()
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._begin_item()
        elif tag in {"table", "tr", "td", "th"}:
            self._begin_in_table(tag, dict(attrs))
        elif tag in PARAGRAPHS:
            self._end_block()
            self._verbatim += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            self._dropped_depth -= tag == self._dropped
            self._dropped = self._dropped if self._dropped_depth else ""
        elif tag in HEADINGS or tag == "li":
            self._end_block()
            self._level, self._in_item = None, False
        elif tag in LISTS:
            self._end_block()
            del self._lists[-1:]
            self._in_item = False
        elif tag in {"table", "tr", "td", "th"}:
            self._end_in_table(tag)
        elif tag in PARAGRAPHS:
            self._end_block()
            self._verbatim -= tag == "pre" and self._verbatim > 0

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self._text.append(data if self._verbatim else _single_line(data))

    def finish(self) -> None:
        """Close everything that is still open at the end of the source."""
        self._dropped = ""
        while self._tables:
            self._end_in_table("table")
        self._end_block()

    def _begin_item(self) -> None:
        self._end_block()
        self._in_item = self._span is None
        if self._lists and self._lists[-1] is not None:
            self._lists[-1] += 1

    def _take_text(self) -> str:
        text = "".join(self._text)
        self._text.clear()
        if self._verbatim:
            return text.strip("\n")
        lines = (" ".join(line.split()) for line in text.split("\n"))
        return "\n".join(lines).strip()

    def _end_block(self) -> None:
        """Emit the collected text as a block; inside a cell, end the line."""
        if self._span is not None:
            self._text.append("\n")
            return
        text = self._take_text()
        if not text:
            return
        if self._level is not None:
            self.blocks.append(Heading(text=text, level=self._level))
        elif self._in_item:
            number = self._lists[-1] if self._lists else None
            self.blocks.append(ListItem(text=text, level=max(len(self._lists) - 1, 0), number=number))
            self._in_item = False  # further text of the item is a paragraph below it
        else:
            self.blocks.append(TextBlock(text=text))

    def _begin_in_table(self, tag: str, attrs: dict[str, str | None]) -> None:
        if tag == "table":
            if self._tables:
                self._treat_as_layout(self._tables[-1])
            self._end_block()
            self._tables.append(_OpenTable())
        elif self._tables and tag == "tr":
            self._end_row(self._tables[-1])
        elif self._tables:
            self._end_cell(self._tables[-1])
            self._end_block()
            self._span = _count(attrs.get("colspan")), _count(attrs.get("rowspan"))

    def _end_in_table(self, tag: str) -> None:
        if not self._tables:
            return
        table = self._tables[-1]
        if tag in {"td", "th"}:
            self._end_cell(table)
        else:
            self._end_row(table)
        if tag == "table":
            self._end_block()
            self._tables.pop()
            if any(any(row) for row in table.rows):
                self.blocks.append(TableBlock(rows=tuple(table.rows)))

    def _end_cell(self, table: _OpenTable) -> None:
        if self._span is None:
            return
        (across, down), self._span = self._span, None
        text = "\n".join(filter(None, self._take_text().split("\n")))
        if table.is_layout:
            self._text.append(text)
            self._end_block()
            return
        self._skip_covered(table)
        at = len(table.cells)
        table.cells += [text, *[""] * (across - 1)]
        if down > 1:
            table.covered.update(dict.fromkeys(range(at, at + across), down))

    def _end_row(self, table: _OpenTable) -> None:
        self._end_cell(table)
        if not table.cells:
            return
        self._skip_covered(table)
        table.rows.append(tuple(table.cells))
        table.cells = []
        table.covered = {at: left - 1 for at, left in table.covered.items() if left > 1}

    def _skip_covered(self, table: _OpenTable) -> None:
        while table.covered.get(len(table.cells)):
            table.cells.append("")

    def _treat_as_layout(self, table: _OpenTable) -> None:
        """Treat a table that contains another one as layout: emit its cells as paragraphs."""
        table.is_layout = True
        cells = [cell for row in (*table.rows, table.cells) for cell in row if cell]
        table.rows, table.cells, table.covered = [], [], {}
        self.blocks += [TextBlock(text=cell) for cell in cells]
        self._end_cell(table)


def _single_line(data: str) -> str:
    """Replace line breaks of the source by spaces."""
    return data.replace("\n", " ").replace("\r", " ")


def _count(written: str | None) -> int:
    if not written or not written.isdecimal():
        return 1
    return min(max(int(written[:5]), 1), MAX_SPAN)
