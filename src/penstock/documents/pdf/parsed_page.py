"""The runs of a text layer as lines, in the order in which they are read.

The parser's blocks say in which order, and where tables are; which lines are one paragraph is decided later, since
blocks glue paragraphs together and cut others at their first bold word. Where a block's box is too small for what it
says, its lines are found again by their words; what belongs to no block goes below what it stands under.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from penstock.documents.layout.lines import Cell, Line, Part, around, bare, lines_of
from penstock.documents.pages import Box
from penstock.documents.pdf.aligned_tables import with_aligned
from penstock.documents.pdf.missing_runs import with_lost
from penstock.documents.pdf.tables import tables_of

GUTTER = 1.0  # the least space between columns, in sizes of their letters
LIKELY_SIZES = (0.5, 1.6)  # of letters, as parts of their run's height; some files draw letters of size 1, enlarged
USUAL_SIZE = 0.85  # of a run's height
LARGEST = 10_000.0  # height of a run; some files say anything
MANY = 200  # runs that belong to no block; of so many, none is looked for
NOWHERE: Box = (0, 0, -1, -1)

Letters = dict[tuple[float, str], int]  # how many there are of each size and font


@dataclass(kw_only=True, slots=True)
class Sheet:
    """A page in its parts."""

    width: float
    height: float
    text: str
    parts: list[Part]
    letters: Letters


def sheet_of(parsed: Any) -> Sheet:
    """What stands on a page."""
    blocks = parsed.blocks or ()
    boxes = [_box_of(block.bbox) or NOWHERE for block in blocks]
    runs, letters = _runs(parsed.text_items)
    runs = with_lost(parsed.text, runs)
    shares, rest = _shared_out(boxes, runs)
    parts: list[Part] = []
    for block, box, share in zip(blocks, boxes, shares, strict=True):
        parts += _parts_of(block, box, share, rest)
    if len(rest) > MANY or (rest and not parts):
        parts.append(Part(box=around([run.box for run in rest]), runs=rest, lines=list(lines_of(rest))))
    else:
        for line in rest:
            _put(parts, line)
    text = "".join([run.text for run in runs])
    return Sheet(width=parsed.width, height=parsed.height, text=text, parts=with_aligned(parts), letters=letters)


def _box_of(place: Any) -> Box | None:
    if place is None:
        return None
    left, top = place.x, place.y
    return left, top, left + place.width, top + place.height


def _runs(items: Iterable[Any]) -> tuple[list[Line], Letters]:
    runs: list[Line] = []
    letters: Letters = {}
    least, most = LIKELY_SIZES
    for item in items:
        text = item.text.strip()
        if not text:
            continue
        left, top, height, font, size = item.x, item.y, item.height, item.font_name or "", item.font_size or 0.0
        if not least * height < size < most * height:
            size = USUAL_SIZE * height if 0 < height < LARGEST else 1.0
        letters[size, font] = letters.get((size, font), 0) + len(text)
        runs.append(Line(text, left, top, left + item.width, top + height, size, font))
    return runs, letters


def _shared_out(boxes: Sequence[Box], runs: Iterable[Line]) -> tuple[list[list[Line]], list[Line]]:
    """The runs in each of the boxes, and those in none. Most stand in the box of the run before them."""
    shares: list[list[Line]] = [[] for _ in boxes]
    rest: list[Line] = []
    share, (left, top, right, bottom) = rest, NOWHERE
    for run in runs:
        x, y = (run.left + run.right) / 2, (run.top + run.bottom) / 2
        if not (left <= x <= right and top <= y <= bottom):
            at = _home(boxes, x, y)
            share, (left, top, right, bottom) = (shares[at], boxes[at]) if at is not None else (rest, NOWHERE)
        share.append(run)
    return shares, rest


def _home(boxes: Iterable[Box], x: float, y: float) -> int | None:
    for at, (left, top, right, bottom) in enumerate(boxes):
        if left <= x <= right and top <= y <= bottom:
            return at
    return None


def _parts_of(block: Any, box: Box, runs: list[Line], rest: list[Line]) -> Iterator[Part]:
    kind = block.kind
    if kind == "table" and (rows := block.rows):
        head = [block.header] if block.header else []
        cells = [[Cell(each.text.strip(), _box_of(each.bbox)) for each in row] for row in (*head, *rows)]
        yield from tables_of(cells, runs, box)
    elif kind == "rule":
        yield Part(box=box, markdown="---")
    elif kind == "code" and block.lines:
        yield Part(box=box, runs=runs, markdown="\n".join(("```", *block.lines, "```")))
    else:
        if kind == "heading" and 0 < len(rest) <= MANY:
            runs += _gone_on(runs, block.text or "", rest)
        if runs:
            yield from _columns_of(runs, box, block)


def _gone_on(runs: Iterable[Line], said: str, rest: list[Line]) -> list[Line]:
    """The lines of a heading that its box leaves out."""
    found: list[Line] = []
    left = bare(said).removeprefix(bare("".join(run.text for run in runs)))
    for run in [*rest]:
        if left.startswith(bare(run.text)):
            left = left.removeprefix(bare(run.text))
            found.append(run)
            rest.remove(run)
    return found


def _put(parts: list[Part], line: Line) -> None:
    """Below the lowest of those that it stands under."""
    above = [
        (part.box[3], at)
        for at, part in enumerate(parts)
        if part.box[1] < line.top and part.box[0] < line.right and line.left < part.box[2]
    ]
    at = max(above)[1] + 1 if above else 0
    parts.insert(at, Part(box=line.box, runs=[line], lines=[line]))


def _columns_of(runs: list[Line], box: Box, block: Any) -> Iterator[Part]:
    """The lines of a block: runs beside each other are one line, unless they stand in columns."""
    if all(
        below.top + below.bottom > 2 * above.bottom and below.left < above.right and above.left < below.right
        for above, below in pairwise(runs)
    ):
        yield Part(box=box, runs=runs, lines=runs)
        return
    columns = _columns(runs)
    if len(columns) > 1 and _says(block.text or "", columns[0]):
        yield from (
            Part(box=around([run.box for run in column]), runs=column, lines=list(lines_of(column)))
            for column in columns
        )
    else:
        yield Part(box=box, runs=runs, lines=list(lines_of(runs)))


def _columns(runs: Sequence[Line]) -> list[list[Line]]:
    """A paragraph that goes on in the next column is one block; its lines come from both columns in turn."""
    ends: list[float] = []  # where each column of the block ends, from left to right
    for run in sorted(runs, key=lambda each: each.left):
        if ends and run.left < ends[-1] + GUTTER * run.size:
            ends[-1] = max(ends[-1], run.right)
        else:
            ends.append(run.right)

    def column(run: Line) -> int:
        return bisect_left(ends, run.right)

    return [list(found) for _, found in groupby(sorted(runs, key=column), key=column)]


def _says(text: str, column: Sequence[Line]) -> bool:
    """Whether a block says first what stands in this column: two lines of it are enough to know."""
    said = "".join(run.text for run in column[:2])
    return len(column) > 1 and bare(text).replace("-", "").startswith(bare(said).replace("-", ""))
