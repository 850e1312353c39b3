"""The layout of a page: lines and tables in reading order.

Spans give texts and their boxes; markdown gives headings, and tables where the spans have none. A page without spans is
read from its markdown alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.documents.extract.fields import markdown
from penstock.documents.pages import Box, Page, Span

MAX_LINE = 4000  # characters of a line that are read; the rest is running text


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutText:
    """A line or a table cell. `heading` is its heading level, or 0."""

    text: str
    page: int
    box: Box | None = None
    heading: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutTable:
    """Rows of cells, all of the same length; an empty cell is None."""

    rows: tuple[tuple[LayoutText | None, ...], ...]

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.rows else 0


LayoutElement: TypeAlias = LayoutText | LayoutTable


def page_elements(page: Page) -> list[LayoutElement]:
    """The lines and tables of a page."""
    if not page.spans:
        return list(_from_markdown(page))
    headings = markdown.headings(page.markdown)
    tables = [block for block in markdown.blocks(page.markdown) if isinstance(block, markdown.MarkdownTable)]
    if not tables or any(span.table is not None for span in page.spans):
        return list(_from_spans(page, headings))
    return list(_from_both(page, headings, tables))


def text_lines(elements: list[LayoutElement]) -> list[LayoutText]:
    """The lines among the elements."""
    return [element for element in elements if isinstance(element, LayoutText)]


def in_same_row(one: Box, other: Box) -> bool:
    """Whether two boxes are in the same row of the page."""
    shared = min(one[3], other[3]) - max(one[1], other[1])
    return shared > 0.5 * min(one[3] - one[1], other[3] - other[1])


def _from_markdown(page: Page) -> Iterator[LayoutElement]:
    for block in markdown.blocks(page.markdown):
        if isinstance(block, markdown.MarkdownTable):
            yield _table([[LayoutText(text=cell, page=page.number) for cell in row] for row in block.rows])
        else:
            yield LayoutText(text=block.text[:MAX_LINE], page=page.number, heading=block.level)


def _from_spans(page: Page, headings: dict[str, int]) -> Iterator[LayoutElement]:
    cells: dict[int, list[Span]] = {}
    for span in page.spans:
        if span.table is not None:
            cells.setdefault(span.table, []).append(span)
    for span in page.spans:
        if span.table is None:
            yield _line(page, span, headings)
        elif span.table in cells:
            yield _table_from_spans(page, cells.pop(span.table))


def _from_both(page: Page, headings: dict[str, int], tables: list[markdown.MarkdownTable]) -> Iterator[LayoutElement]:
    """Lines from the spans, tables from the markdown. A span with the text of a cell is not a line."""
    spans = _spans_by_cell(page, tables)
    table_of_cell = {
        markdown.normalize(cell): at
        for at, table in reversed(list(enumerate(tables)))
        for row in table.rows
        for cell in row
    }
    remaining = dict(enumerate(tables))
    for span in page.spans:
        at = table_of_cell.get(markdown.normalize(span.text))
        if at is None:
            yield _line(page, span, headings)
        elif at in remaining:
            yield _table_with_boxes(page, remaining.pop(at), spans)
    for table in remaining.values():
        yield _table_with_boxes(page, table, spans)


def _spans_by_cell(page: Page, tables: list[markdown.MarkdownTable]) -> dict[str, Iterator[Span]]:
    """The spans of each cell text, in order; none for a text that also occurs outside of tables."""
    cells = Counter(markdown.normalize(cell) for table in tables for row in table.rows for cell in row)
    found: dict[str, list[Span]] = {}
    for span in page.spans:
        found.setdefault(markdown.normalize(span.text), []).append(span)
    return {text: iter(spans) for text, spans in found.items() if len(spans) == cells[text]}


def _table_with_boxes(page: Page, table: markdown.MarkdownTable, spans: dict[str, Iterator[Span]]) -> LayoutTable:
    """A table of the markdown, with the boxes of the spans that have the same text."""
    return _table([[_cell(page, cell, spans) for cell in row] for row in table.rows])


def _cell(page: Page, text: str, spans: dict[str, Iterator[Span]]) -> LayoutText:
    span = next(spans.get(markdown.normalize(text), iter(())), None)
    return LayoutText(text=(span.text if span else text)[:MAX_LINE], page=page.number, box=span.box if span else None)


def _line(page: Page, span: Span, headings: dict[str, int]) -> LayoutText:
    text = span.text[:MAX_LINE]
    level = markdown.level(text) or (headings.get(markdown.normalize(text), 0) if headings else 0)
    return LayoutText(text=markdown.strip_heading(text), page=page.number, box=span.box, heading=level)


def _table_from_spans(page: Page, spans: list[Span]) -> LayoutTable:
    """A table from cell spans. Row and column numbers are untrusted, so only those in use count."""
    columns = {column: at for at, column in enumerate(sorted({span.column or 0 for span in spans}))}
    rows: dict[int, list[LayoutText | None]] = {
        row: [None] * len(columns) for row in sorted({span.row or 0 for span in spans})
    }
    for span in spans:
        row, column = rows[span.row or 0], columns[span.column or 0]
        row[column] = row[column] or LayoutText(text=span.text[:MAX_LINE], page=page.number, box=span.box)
    return _table(list(rows.values()))


def _table(rows: "list[list[LayoutText]] | list[list[LayoutText | None]]") -> LayoutTable:
    width = max((len(row) for row in rows), default=0)
    kept = ([cell if cell and cell.text.strip() else None for cell in row] for row in rows)
    return LayoutTable(rows=tuple((*row, *[None] * (width - len(row))) for row in kept if any(row)))
