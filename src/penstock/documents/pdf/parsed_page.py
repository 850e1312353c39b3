"""The text runs of a parsed page as regions in reading order.

The parser's blocks give the reading order and the tables. They do not decide on paragraphs, because they join some and
split others at the first bold word. If the box of a block is too small for its text, the missing lines are found by
their words. Runs outside all blocks go below the region they stand under.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from penstock.documents.layout.lines import PageRegion, TableCell, TextLine, bounding_box, merge_runs, without_spaces
from penstock.documents.pages import Box
from penstock.documents.pdf.aligned_tables import merge_aligned_regions
from penstock.documents.pdf.missing_runs import restore_missing_runs
from penstock.documents.pdf.tables import table_regions

GUTTER = 1.0  # smallest gap between columns, in font sizes
LIKELY_SIZES = (0.5, 1.6)  # font size relative to run height; some files scale text of size 1
USUAL_SIZE = 0.85  # of the run height
LARGEST = 10_000.0  # run height; some files contain nonsense
MANY = 200  # runs outside blocks; with more, none is placed one by one
NOWHERE: Box = (0, 0, -1, -1)

FontCounts = dict[tuple[float, str], int]  # number of characters by font size and name


@dataclass(kw_only=True, slots=True)
class ParsedPage:
    """A page as regions in reading order."""

    width: float
    height: float
    text: str
    regions: list[PageRegion]
    letters: FontCounts


def parse_page(parsed: Any) -> ParsedPage:
    """Convert a page of the parser."""
    blocks = parsed.blocks or ()
    boxes = [_box_of(block.bbox) or NOWHERE for block in blocks]
    runs, letters = _runs(parsed.text_items)
    runs = restore_missing_runs(parsed.text, runs)
    runs_by_box, rest = _assign_runs(boxes, runs)
    regions: list[PageRegion] = []
    for block, box, box_runs in zip(blocks, boxes, runs_by_box, strict=True):
        regions += _regions_of(block, box, box_runs, rest)
    if len(rest) > MANY or (rest and not regions):
        regions.append(PageRegion(box=bounding_box([run.box for run in rest]), runs=rest, lines=list(merge_runs(rest))))
    else:
        for line in rest:
            _insert_below(regions, line)
    text = "".join([run.text for run in runs])
    return ParsedPage(
        width=parsed.width, height=parsed.height, text=text, regions=merge_aligned_regions(regions), letters=letters
    )


def _box_of(bbox: Any) -> Box | None:
    if bbox is None:
        return None
    left, top = bbox.x, bbox.y
    return left, top, left + bbox.width, top + bbox.height


def _runs(items: Iterable[Any]) -> tuple[list[TextLine], FontCounts]:
    runs: list[TextLine] = []
    letters: FontCounts = {}
    least, most = LIKELY_SIZES
    for item in items:
        text = item.text.strip()
        if not text:
            continue
        left, top, height, font, size = item.x, item.y, item.height, item.font_name or "", item.font_size or 0.0
        if not least * height < size < most * height:
            size = USUAL_SIZE * height if 0 < height < LARGEST else 1.0
        letters[size, font] = letters.get((size, font), 0) + len(text)
        runs.append(TextLine(text, left, top, left + item.width, top + height, size, font))
    return runs, letters


def _assign_runs(boxes: Sequence[Box], runs: Iterable[TextLine]) -> tuple[list[list[TextLine]], list[TextLine]]:
    """The runs inside each box, and those in none. Most runs are in the box of the run before."""
    runs_by_box: list[list[TextLine]] = [[] for _ in boxes]
    rest: list[TextLine] = []
    box_runs, (left, top, right, bottom) = rest, NOWHERE
    for run in runs:
        x, y = (run.left + run.right) / 2, (run.top + run.bottom) / 2
        if not (left <= x <= right and top <= y <= bottom):
            at = _box_at(boxes, x, y)
            box_runs, (left, top, right, bottom) = (runs_by_box[at], boxes[at]) if at is not None else (rest, NOWHERE)
        box_runs.append(run)
    return runs_by_box, rest


def _box_at(boxes: Iterable[Box], x: float, y: float) -> int | None:
    for at, (left, top, right, bottom) in enumerate(boxes):
        if left <= x <= right and top <= y <= bottom:
            return at
    return None


def _regions_of(block: Any, box: Box, runs: list[TextLine], rest: list[TextLine]) -> Iterator[PageRegion]:
    kind = block.kind
    if kind == "table" and (rows := block.rows):
        head = [block.header] if block.header else []
        cells = [[TableCell(each.text.strip(), _box_of(each.bbox)) for each in row] for row in (*head, *rows)]
        yield from table_regions(cells, runs, box)
    elif kind == "rule":
        yield PageRegion(box=box, markdown="---")
    elif kind == "code" and block.lines:
        yield PageRegion(box=box, runs=runs, markdown="\n".join(("```", *block.lines, "```")))
    else:
        if kind == "heading" and 0 < len(rest) <= MANY:
            runs += _missing_lines(runs, block.text or "", rest)
        if runs:
            yield from _columns_of(runs, box, block)


def _missing_lines(runs: Iterable[TextLine], text: str, rest: list[TextLine]) -> list[TextLine]:
    """The lines of a heading that its box leaves out."""
    found: list[TextLine] = []
    left = without_spaces(text).removeprefix(without_spaces("".join(run.text for run in runs)))
    for run in [*rest]:
        if left.startswith(without_spaces(run.text)):
            left = left.removeprefix(without_spaces(run.text))
            found.append(run)
            rest.remove(run)
    return found


def _insert_below(regions: list[PageRegion], line: TextLine) -> None:
    """Insert a line below the lowest region that it stands under."""
    above = [
        (region.box[3], at)
        for at, region in enumerate(regions)
        if region.box[1] < line.top and region.box[0] < line.right and line.left < region.box[2]
    ]
    at = max(above)[1] + 1 if above else 0
    regions.insert(at, PageRegion(box=line.box, runs=[line], lines=[line]))


def _columns_of(runs: list[TextLine], box: Box, block: Any) -> Iterator[PageRegion]:
    """The lines of a block. Runs side by side are one line, unless they are in columns."""
    if all(
        below.top + below.bottom > 2 * above.bottom and below.left < above.right and above.left < below.right
        for above, below in pairwise(runs)
    ):
        yield PageRegion(box=box, runs=runs, lines=runs)
        return
    columns = _columns(runs)
    if len(columns) > 1 and _starts_with(block.text or "", columns[0]):
        yield from (
            PageRegion(box=bounding_box([run.box for run in column]), runs=column, lines=list(merge_runs(column)))
            for column in columns
        )
    else:
        yield PageRegion(box=box, runs=runs, lines=list(merge_runs(runs)))


def _columns(runs: Sequence[TextLine]) -> list[list[TextLine]]:
    """Split a paragraph that continues in the next column: it is one block, with lines of both columns interleaved."""
    ends: list[float] = []  # right edge of each column, from left to right
    for run in sorted(runs, key=lambda each: each.left):
        if ends and run.left < ends[-1] + GUTTER * run.size:
            ends[-1] = max(ends[-1], run.right)
        else:
            ends.append(run.right)

    def column(run: TextLine) -> int:
        return bisect_left(ends, run.right)

    return [list(found) for _, found in groupby(sorted(runs, key=column), key=column)]


def _starts_with(text: str, column: Sequence[TextLine]) -> bool:
    """Whether the text of a block starts with this column; two lines are enough to decide."""
    start = "".join(run.text for run in column[:2])
    return len(column) > 1 and without_spaces(text).replace("-", "").startswith(without_spaces(start).replace("-", ""))
