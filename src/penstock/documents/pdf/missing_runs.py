"""Restores text runs that the parser drops, though its page text contains them.

A number alone in a table cell can get lost this way. The page text preserves the layout: one line of it is one height,
and equal columns of characters are below each other. So a missing run is placed after the run before it, at the left
edge of other runs that start in the same character column. Page numbers are dropped as well and are not restored, since
they are not written anyway.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.documents.layout.lines import TextLine

WIDE_APART = re.compile(r"\S+(?: \S+)*")  # words separated by single spaces
LETTER = 0.5  # character width, in font sizes


class _TextPosition(NamedTuple):
    """A text in the page text, and the run that contains it."""

    line: int
    begin: int
    text: str
    run: int | None  # index of the run


def restore_missing_runs(text: str, runs: list[TextLine]) -> list[TextLine]:
    """The runs, and those that only the page text contains."""
    said = "".join([run.text for run in runs])
    more = len(text) - text.count(" ") - text.count("\n") - len(said) + said.count(" ")
    if more <= 0 or not runs:
        return runs
    lines = _without_page_number(text.rstrip().splitlines(), {run.text for run in runs})
    lost = Counter(" ".join(lines).split()) - Counter(" ".join([run.text for run in runs]).split())
    return _put_back(lost, list(_places(lines, runs)), runs) if lost else runs


def _without_page_number(lines: list[str], known: set[str]) -> list[str]:
    """The lines without a number alone on the first or the last line that no run contains."""
    edges = {at for at in (0, len(lines) - 1) if lines[at].strip().isdecimal() and lines[at].strip() not in known}
    return ["" if at in edges else line for at, line in enumerate(lines)] if edges else lines


def _places(lines: Sequence[str], runs: Sequence[TextLine]) -> Iterator[_TextPosition]:
    at: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        at.setdefault(" ".join(run.text.split()), []).append(place)
    for number, line in enumerate(lines):
        for match in WIDE_APART.finditer(line):
            known = at.get(match[0])
            yield _TextPosition(number, match.start(), match[0], known.pop(0) if known else None)


def _put_back(lost: Counter[str], places: Sequence[_TextPosition], runs: Sequence[TextLine]) -> list[TextLine]:
    """Insert missing runs, whose words are all missing, after the run before them."""
    after: dict[int, list[TextLine]] = {}
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


def _left(place: _TextPosition, places: Sequence[_TextPosition], runs: Sequence[TextLine]) -> float | None:
    """The left edge of the nearest run that starts in the same character column."""
    below = [(abs(each.line - place.line), each.run) for each in places if each.begin == place.begin]
    known = [(off, run) for off, run in below if run is not None]
    return runs[min(known)[1]].left if known else None


def _beside(run: TextLine, place: _TextPosition, left: float | None, down: float) -> TextLine:
    """A missing run to the right of this one, or below it if it is on another line."""
    left = run.right + run.size if left is None else left
    right = left + LETTER * run.size * len(place.text)
    return run._replace(text=place.text, left=left, right=right, top=run.top + down, bottom=run.bottom + down)
