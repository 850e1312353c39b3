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

WORDS = re.compile(r"\S+(?: \S+)*")  # words separated by single spaces
LETTER = 0.5  # character width, in font sizes


class _TextPosition(NamedTuple):
    """A text in the page text, and the run that contains it."""

    line: int
    begin: int
    text: str
    run: int | None  # index of the run


def restore_missing_runs(text: str, runs: list[TextLine]) -> list[TextLine]:
    """The runs, and those that only the page text contains."""
    known_text = "".join([run.text for run in runs])
    missing_count = len(text) - text.count(" ") - text.count("\n") - len(known_text) + known_text.count(" ")
    if missing_count <= 0 or not runs:
        return runs
    lines = _without_page_number(text.rstrip().splitlines(), {run.text for run in runs})
    missing = Counter(" ".join(lines).split()) - Counter(" ".join([run.text for run in runs]).split())
    return _insert_missing(missing, list(_positions(lines, runs)), runs) if missing else runs


def _without_page_number(lines: list[str], known: set[str]) -> list[str]:
    """The lines without a number alone on the first or the last line that no run contains."""
    edges = {at for at in (0, len(lines) - 1) if lines[at].strip().isdecimal() and lines[at].strip() not in known}
    return ["" if at in edges else line for at, line in enumerate(lines)] if edges else lines


def _positions(lines: Sequence[str], runs: Sequence[TextLine]) -> Iterator[_TextPosition]:
    at: dict[str, list[int]] = {}
    for position, run in enumerate(runs):
        at.setdefault(" ".join(run.text.split()), []).append(position)
    for number, line in enumerate(lines):
        for match in WORDS.finditer(line):
            known = at.get(match[0])
            yield _TextPosition(number, match.start(), match[0], known.pop(0) if known else None)


def _insert_missing(
    missing: Counter[str], positions: Sequence[_TextPosition], runs: Sequence[TextLine]
) -> list[TextLine]:
    """Insert missing runs, whose words are all missing, after the run before them."""
    after: dict[int, list[TextLine]] = {}
    line, at = 0, 0
    for position in positions:
        words = Counter(position.text.split())
        if position.run is not None:
            line, at = position.line, position.run
        elif not words - missing:
            missing -= words
            down = 0.0 if position.line == line else runs[at].bottom - runs[at].top
            after.setdefault(at, []).append(_place_run(runs[at], position, _left(position, positions, runs), down))
    return [each for at, run in enumerate(runs) for each in (run, *after.get(at, ()))]


def _left(position: _TextPosition, positions: Sequence[_TextPosition], runs: Sequence[TextLine]) -> float | None:
    """The left edge of the nearest run that starts in the same character column."""
    below = [(abs(each.line - position.line), each.run) for each in positions if each.begin == position.begin]
    known = [(off, run) for off, run in below if run is not None]
    return runs[min(known)[1]].left if known else None


def _place_run(run: TextLine, position: _TextPosition, left: float | None, down: float) -> TextLine:
    """A missing run to the right of this one, or below it if it is on another line."""
    left = run.right + run.size if left is None else left
    right = left + LETTER * run.size * len(position.text)
    return run._replace(text=position.text, left=left, right=right, top=run.top + down, bottom=run.bottom + down)
