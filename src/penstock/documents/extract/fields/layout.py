"""A page as lines and tables, in reading order.

The page's spans say what stands where; its markdown says which lines are headings, and where tables are when the spans
do not. A page without spans is read from its markdown alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.documents.extract.fields import markdown
from penstock.documents.pages import Box, Page, Span

MOST_LINE = 4000  # characters of a line in which labels are looked for; what comes after is running text


@dataclass(frozen=True, kw_only=True, eq=False)
class Text:
    """A line or a cell as it stands on its page. `heading` is its level, 0 for none."""

    text: str
    page: int
    box: Box | None = None
    heading: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Rows of cells; all rows are of one length, and where there is nothing there is None."""

    rows: tuple[tuple[Text | None, ...], ...]

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.rows else 0


Piece: TypeAlias = Text | Table


def pieces(page: Page) -> list[Piece]:
    """What stands on a page."""
    if not page.spans:
        return list(_from_markdown(page))
    headings = markdown.headings(page.markdown)
    grids = [block for block in markdown.blocks(page.markdown) if isinstance(block, markdown.Grid)]
    if not grids or any(span.table is not None for span in page.spans):
        return list(_from_spans(page, headings))
    return list(_from_both(page, headings, grids))


def lines(found: list[Piece]) -> list[Text]:
    """The lines among the pieces."""
    return [piece for piece in found if isinstance(piece, Text)]


def share_row(one: Box, other: Box) -> bool:
    """Whether two boxes stand in one row of the page."""
    shared = min(one[3], other[3]) - max(one[1], other[1])
    return shared > 0.5 * min(one[3] - one[1], other[3] - other[1])


def _from_markdown(page: Page) -> Iterator[Piece]:
    for block in markdown.blocks(page.markdown):
        if isinstance(block, markdown.Grid):
            yield _table([[Text(text=cell, page=page.number) for cell in row] for row in block.rows])
        else:
            yield Text(text=block.text[:MOST_LINE], page=page.number, heading=block.level)


def _from_spans(page: Page, headings: dict[str, int]) -> Iterator[Piece]:
    cells: dict[int, list[Span]] = {}
    for span in page.spans:
        if span.table is not None:
            cells.setdefault(span.table, []).append(span)
    for span in page.spans:
        if span.table is None:
            yield _line(page, span, headings)
        elif span.table in cells:
            yield _grid(page, cells.pop(span.table))


def _from_both(page: Page, headings: dict[str, int], grids: list[markdown.Grid]) -> Iterator[Piece]:
    """Lines by the spans, tables by the markdown. A span that is a cell's text is no line of its own."""
    spans = _by_cell(page, grids)
    home = {
        markdown.bare(cell): at for at, grid in reversed(list(enumerate(grids))) for row in grid.rows for cell in row
    }
    left = dict(enumerate(grids))
    for span in page.spans:
        at = home.get(markdown.bare(span.text))
        if at is None:
            yield _line(page, span, headings)
        elif at in left:
            yield _placed(page, left.pop(at), spans)
    for grid in left.values():
        yield _placed(page, grid, spans)


def _by_cell(page: Page, grids: list[markdown.Grid]) -> dict[str, Iterator[Span]]:
    """The spans of each cell's text, in order; none where lines say it too, and it cannot be told which is which."""
    cells = Counter(markdown.bare(cell) for grid in grids for row in grid.rows for cell in row)
    found: dict[str, list[Span]] = {}
    for span in page.spans:
        found.setdefault(markdown.bare(span.text), []).append(span)
    return {text: iter(spans) for text, spans in found.items() if len(spans) == cells[text]}


def _placed(page: Page, grid: markdown.Grid, spans: dict[str, Iterator[Span]]) -> Table:
    """A table of the markdown, its cells in the boxes of the spans that say the same."""
    return _table([[_cell(page, cell, spans) for cell in row] for row in grid.rows])


def _cell(page: Page, text: str, spans: dict[str, Iterator[Span]]) -> Text:
    span = next(spans.get(markdown.bare(text), iter(())), None)
    return Text(text=(span.text if span else text)[:MOST_LINE], page=page.number, box=span.box if span else None)


def _line(page: Page, span: Span, headings: dict[str, int]) -> Text:
    text = span.text[:MOST_LINE]
    level = markdown.level(text) or (headings.get(markdown.bare(text), 0) if headings else 0)
    return Text(text=markdown.inner(text), page=page.number, box=span.box, heading=level)


def _grid(page: Page, spans: list[Span]) -> Table:
    """Cells by the rows and columns that there are: their numbers come from a file and could be any."""
    columns = {column: at for at, column in enumerate(sorted({span.column or 0 for span in spans}))}
    rows: dict[int, list[Text | None]] = {
        row: [None] * len(columns) for row in sorted({span.row or 0 for span in spans})
    }
    for span in spans:
        row, column = rows[span.row or 0], columns[span.column or 0]
        row[column] = row[column] or Text(text=span.text[:MOST_LINE], page=page.number, box=span.box)
    return _table(list(rows.values()))


def _table(rows: "list[list[Text]] | list[list[Text | None]]") -> Table:
    width = max((len(row) for row in rows), default=0)
    kept = ([cell if cell and cell.text.strip() else None for cell in row] for row in rows)
    return Table(rows=tuple((*row, *[None] * (width - len(row))) for row in kept if any(row)))
