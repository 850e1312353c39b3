"""Runs that the parser leaves out, though it tells of them in the text of the page.

A number that stands alone in a cell may be lost so. The text is set as the page is: what stands in one line of it is at
one height, and what begins at the same letter of two lines is below each other. So a lost run is put beside the run
before it, as far right as the others that begin where it does. The number of a page is lost as well, and stays so: it
is not written anyway.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.documents.layout.lines import Line

WIDE_APART = re.compile(r"\S+(?: \S+)*")  # words with one space between them
LETTER = 0.5  # of a size, in width


class _Place(NamedTuple):
    """What stands in a line of the text, and which run says so."""

    line: int
    begin: int
    text: str
    run: int | None  # by its place among the runs


def with_lost(text: str, runs: list[Line]) -> list[Line]:
    """The runs, and those that only the text of the page has."""
    said = "".join([run.text for run in runs])
    more = len(text) - text.count(" ") - text.count("\n") - len(said) + said.count(" ")
    if more <= 0 or not runs:
        return runs
    lines = _without_page_number(text.rstrip().splitlines(), {run.text for run in runs})
    lost = Counter(" ".join(lines).split()) - Counter(" ".join([run.text for run in runs]).split())
    return _put_back(lost, list(_places(lines, runs)), runs) if lost else runs


def _without_page_number(lines: list[str], known: set[str]) -> list[str]:
    """The lines but for a number that stands alone in the first or the last, where no run says it."""
    edges = {at for at in (0, len(lines) - 1) if lines[at].strip().isdecimal() and lines[at].strip() not in known}
    return ["" if at in edges else line for at, line in enumerate(lines)] if edges else lines


def _places(lines: Sequence[str], runs: Sequence[Line]) -> Iterator[_Place]:
    at: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        at.setdefault(" ".join(run.text.split()), []).append(place)
    for number, line in enumerate(lines):
        for match in WIDE_APART.finditer(line):
            known = at.get(match[0])
            yield _Place(number, match.start(), match[0], known.pop(0) if known else None)


def _put_back(lost: Counter[str], places: Sequence[_Place], runs: Sequence[Line]) -> list[Line]:
    """The runs, and after those before them the ones whose words are all lost."""
    after: dict[int, list[Line]] = {}
    line, at = 0, 0
    for place in places:
        words = Counter(place.text.split())
        if place.run is not None:
            line, at = place.line, place.run
        elif not words - lost:
            lost -= words
            down = 0.0 if place.line == line else runs[at].bottom - runs[at].top
            after.setdefault(at, []).append(_beside(runs[at], place, _left(place, places, runs), down))
    return [each for at, run in enumerate(runs) for each in (run, *after.get(at, ()))]


def _left(place: _Place, places: Sequence[_Place], runs: Sequence[Line]) -> float | None:
    """Of the nearest run that begins at the same letter of a line."""
    below = [(abs(each.line - place.line), each.run) for each in places if each.begin == place.begin]
    known = [(off, run) for off, run in below if run is not None]
    return runs[min(known)[1]].left if known else None


def _beside(run: Line, place: _Place, left: float | None, down: float) -> Line:
    """A lost run, right of this one, or below it when it stands in another line."""
    left = run.right + run.size if left is None else left
    right = left + LETTER * run.size * len(place.text)
    return run._replace(text=place.text, left=left, right=right, top=run.top + down, bottom=run.bottom + down)
