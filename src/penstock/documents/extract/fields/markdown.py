"""As much of markdown as fields need: headings, pipe tables, lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*")
_BOLD = re.compile(r"\s*(\*\*|__)(?P<text>[^*_]+)\1\s*")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*")
_PIPE = re.compile(r"(?<!\\)\|")
_BREAK = re.compile(r"\s*<br\s*/?>\s*", re.IGNORECASE)  # a cell of several lines
_MARK = re.compile(r"\s*<!--.*-->\s*")
BELOW_HEADINGS = 7  # the level of a line in bold: a heading of what is below every real one


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of text; `level` is that of a heading, or 0."""

    text: str
    level: int = 0


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A pipe table, without the line under its first row."""

    rows: tuple[tuple[str, ...], ...]


Block: TypeAlias = Row | Grid


def blocks(text: str) -> Iterator[Block]:
    """The lines and tables of a text, in order."""
    rows: list[tuple[str, ...]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            if not _RULE.fullmatch(line):
                rows.append(_cells(line))
            continue
        if rows:
            yield Grid(rows=tuple(rows))
            rows = []
        if line.strip() and not _MARK.fullmatch(line):
            yield Row(text=inner(line), level=level(line))
    if rows:
        yield Grid(rows=tuple(rows))


def headings(text: str) -> dict[str, int]:
    """The bare text of each heading, and its level."""
    found = {bare(line): level(line) for line in text.splitlines() if level(line)}
    return {heading: at for heading, at in found.items() if heading}


def level(line: str) -> int:
    """The level of a heading, 0 when the line is none."""
    match = _HEADING.fullmatch(line)
    if match:
        return len(match[1])
    return BELOW_HEADINGS if _BOLD.fullmatch(line) else 0


def inner(line: str) -> str:
    """A line without the marks of a heading."""
    match = _HEADING.fullmatch(line)
    return match[2] if match else line.strip()


def bare(text: str) -> str:
    """A text without its marks and spaces, to find it again in what a page says elsewhere."""
    return re.sub(r"[\s*_`\\]+", "", inner(text))


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(_BREAK.sub("\n", cell).strip() for cell in _PIPE.split(inner))
