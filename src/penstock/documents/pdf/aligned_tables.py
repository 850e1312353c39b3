"""Merges regions of a page that are one table.

The parser reads a borderless table column by column if the columns are far apart, cuts another in half, and ends a
third at a row that differs. Figures reveal such regions: figures that stand line by line beside other regions form a
table with them, together with the row above that fits the columns. If no region is beside another after that, the page
is read from top to bottom. Figures beside running text are line numbers, not a table.
"""

import re
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

from penstock.documents.layout.columns import columns_of
from penstock.documents.layout.lines import PageRegion, TableCell, TextLine, bounding_box
from penstock.documents.pages import Box
from penstock.documents.pdf.tables import group_by_height, rebuild_table

FIGURE = re.compile(r"(?:[A-Z]{3}\s)?[^\w\s]*\d[\d.,:/'\s-]*[^\w\s]*(?:\s?[A-Z]{3})?")  # "18.0", "($187.25)", "EUR 4"
MIN_FIGURES = 0.6  # share of the runs of a column of figures
MANY_PARTS, MANY_RUNS = 200, 1500  # a page with more is a drawing
LONGEST = 40  # median characters of a line that is not running text
OFF = 0.35  # vertical tolerance in one row, in font sizes
ALIGNED = 0.8  # share of the lines of a column that are beside others
NEAR = 1.5  # distance from a table to its next row, in font sizes
SLACK = 1.0  # points by which regions below each other may overlap
MIN_ROWS = 2

Group = frozenset[int]  # indexes of regions that are one table


def merge_aligned_regions(regions: list[PageRegion]) -> list[PageRegion]:
    """The regions of a page, with those merged that are one table."""
    if (
        not _may_be_apart(regions)
        or len(regions) > MANY_PARTS
        or sum(len(region.runs) for region in regions) > MANY_RUNS
    ):
        return regions
    groups = _groups({at: region for at, region in enumerate(regions) if _may_be_in_table(region)})
    if not groups:
        return regions
    heads = {min(group): group for group in groups}
    taken = frozenset().union(*groups)
    boxes = [bounding_box([_box_of(regions[at]) for at in group]) for group in groups]
    found: list[PageRegion] = []
    for at, region in enumerate(regions):
        if at in heads:
            found += _rebuilt([regions[each] for each in sorted(heads[at])])
        elif at not in taken and (region.runs or not any(_is_within(region.box, box) for box in boxes)):
            found.append(region)
    in_order = sorted(found, key=lambda region: region.box[1])
    return found if _are_beside(in_order) else in_order


def _may_be_apart(regions: Iterable[PageRegion]) -> bool:
    """Whether a region is beside the one before it, or right below a table."""
    bottom, end_of_table = float("-inf"), float("-inf")
    for region in regions:
        if region.runs:
            top, size = region.box[1], region.runs[0].size
            if top < bottom - size / 2 or top - end_of_table < NEAR * size:
                return True
            bottom = region.box[3]
            end_of_table = bottom if region.cells else float("-inf")
    return False


def _may_be_in_table(region: PageRegion) -> bool:
    return bool(region.runs) and not region.pieces and (bool(region.cells) or not region.markdown)


def _is_within(inner: Box, outer: Box) -> bool:
    return outer[1] <= (inner[1] + inner[3]) / 2 <= outer[3]


def _are_beside(regions: Sequence[PageRegion]) -> bool:
    return any(below.box[1] < above.box[3] - SLACK for above, below in pairwise(regions))


def _box_of(region: PageRegion) -> Box:
    """The bounding box of the runs: the box of the parser's block may be too large."""
    return bounding_box([run.box for run in region.runs])


def _rebuilt(regions: Sequence[PageRegion]) -> Iterable[PageRegion]:
    """Regions as one table. Regions that are not tables contribute their lines as rows."""
    rows = [row for region in regions for row in region.cells]
    lines = group_by_height([run for region in regions if not region.cells for run in region.runs])
    rows += [[TableCell(run.text, run.box) for run in line] for line in lines]
    return rebuild_table(sorted(rows, key=_top_of), [run for region in regions for run in region.runs])


def _top_of(row: Iterable[TableCell]) -> float:
    return min((cell.box[1] for cell in row if cell.box), default=0.0)


def _groups(regions: dict[int, PageRegion]) -> list[Group]:
    boxes = {at: _box_of(region) for at, region in regions.items()}
    groups: list[Group] = []
    for at, region in regions.items():
        rows = _rows_beside(at, regions, boxes) if _has_figures(region) else frozenset()
        if rows or region.cells:
            groups = _united(groups, rows | {at})
    grown: list[Group] = []
    for group in groups:
        grown = _united(grown, _grown(group, regions, boxes))
    return [group for group in grown if len(group) > 1 and _is_table([regions[at] for at in group])]


def _rows_beside(at: int, regions: dict[int, PageRegion], boxes: dict[int, Box]) -> Group:
    """The regions whose lines form rows with those of this one."""
    _, top, _, bottom = boxes[at]
    levels = {other: (max(top, box[1]), min(bottom, box[3])) for other, box in boxes.items() if other != at}
    return frozenset(
        other
        for other, level in levels.items()
        if level[0] < level[1] and _are_rows(regions[at], regions[other], level)
    )


def _united(groups: Iterable[Group], other: Group) -> list[Group]:
    """The groups, with those merged that share a region with the other."""
    groups = [*groups]
    for group in groups:
        other = other | group if group & other else other
    return [*(group for group in groups if not group & other), other]


def _has_figures(region: PageRegion) -> bool:
    figures = sum(1 for run in region.runs if FIGURE.fullmatch(run.text))
    return figures >= MIN_FIGURES * len(region.runs) if not region.cells else figures > 0


def _are_rows(one: PageRegion, other: PageRegion, level: tuple[float, float]) -> bool:
    """Whether the lines of two regions are at the same heights, side by side, where the regions overlap vertically."""
    if not other.cells and statistics.median(len(line.text) for line in other.lines) > LONGEST:
        return False
    top, bottom = level
    few, many = sorted(([run for run in each.runs if top < _middle(run) < bottom] for each in (one, other)), key=len)
    beside = sum(1 for run in few if any(_is_beside(run, each) for each in many))
    return bool(few) and beside >= ALIGNED * len(few)


def _is_beside(one: TextLine, other: TextLine) -> bool:
    is_level = abs(_middle(one) - _middle(other)) <= OFF * one.size
    return is_level and (one.right <= other.left or other.right <= one.left)


def _middle(run: TextLine) -> float:
    return (run.top + run.bottom) / 2


def _is_table(regions: Sequence[PageRegion]) -> bool:
    lines = group_by_height([run for region in regions for run in region.runs])
    return sum(1 for line in lines if len(line) > 1) >= MIN_ROWS


def _grown(group: Group, regions: dict[int, PageRegion], boxes: dict[int, Box]) -> Group:
    """The group with the rows right above and below that fit its columns."""
    more: Group | None = None
    while more is None or more:
        runs = [run for at in group for run in regions[at].runs]
        box, near = bounding_box([boxes[at] for at in group]), NEAR * runs[0].size
        columns = columns_of([run.box for run in runs])
        above = frozenset(at for at in regions if at not in group and 0 <= box[1] - boxes[at][3] <= near)
        below = frozenset(at for at in regions if at not in group and 0 <= boxes[at][1] - box[3] <= near)
        more = frozenset(
            at for side in (above, below) if _fit([regions[each] for each in side], columns) for at in side
        )
        group |= more
    return group


def _fit(regions: Sequence[PageRegion], columns: Sequence[tuple[float, float]]) -> bool:
    """Whether every line has several runs, each in a column of its own."""
    lines = group_by_height([run for region in regions for run in region.runs])
    return bool(lines) and all(len(line) > 1 and _are_in_columns(line, columns) for line in lines)


def _are_in_columns(line: Sequence[TextLine], columns: Sequence[tuple[float, float]]) -> bool:
    met = [[at for at, (left, right) in enumerate(columns) if left < run.right and run.left < right] for run in line]
    return all(len(each) == 1 for each in met) and all(one < other for one, other in pairwise(met))
