"""A minimal markdown parser: headings, pipe tables, lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*")
_BOLD = re.compile(r"\s*(\*\*|__)(?P<text>[^*_]+)\1\s*")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*")
_PIPE = re.compile(r"(?<!\\)\|")
_BREAK = re.compile(r"\s*<br\s*/?>\s*", re.IGNORECASE)  # a line break within a cell
_MARK = re.compile(r"\s*<!--.*-->\s*")
BOLD_LINE_LEVEL = 7  # a line in bold is a heading below all real ones


@dataclass(frozen=True, kw_only=True)
class MarkdownLine:
    """A line of text with its heading level, or 0."""

    text: str
    level: int = 0


@dataclass(frozen=True, kw_only=True)
class MarkdownTable:
    """A pipe table without its delimiter row."""

    rows: tuple[tuple[str, ...], ...]


Block: TypeAlias = MarkdownLine | MarkdownTable


def blocks(text: str) -> Iterator[Block]:
    """The lines and tables of a text, in order."""
    rows: list[tuple[str, ...]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            if not _RULE.fullmatch(line):
                rows.append(_cells(line))
            continue
        if rows:
            yield MarkdownTable(rows=tuple(rows))
            rows = []
        if line.strip() and not _MARK.fullmatch(line):
            yield MarkdownLine(text=strip_heading(line), level=level(line))
    if rows:
        yield MarkdownTable(rows=tuple(rows))


def headings(text: str) -> dict[str, int]:
    """The level of each heading, by its normalized text."""
    found = {normalize(line): level(line) for line in text.splitlines() if level(line)}
    return {heading: at for heading, at in found.items() if heading}


def level(line: str) -> int:
    """The heading level of a line, or 0."""
    match = _HEADING.fullmatch(line)
    if match:
        return len(match[1])
    return BOLD_LINE_LEVEL if _BOLD.fullmatch(line) else 0


def strip_heading(line: str) -> str:
    """A line without heading markup."""
    match = _HEADING.fullmatch(line)
    return match[2] if match else line.strip()


def normalize(text: str) -> str:
    """A text without markup and whitespace, to compare it with other texts of the page."""
    return re.sub(r"[\s*_`\\]+", "", strip_heading(text))


def _cells(line: str) -> tuple[str, ...]:
    strip_heading = line.strip().removeprefix("|")
    strip_heading = (
        strip_heading[:-1] if strip_heading.endswith("|") and not strip_heading.endswith("\\|") else strip_heading
    )
    return tuple(_BREAK.sub("\n", cell).strip() for cell in _PIPE.split(strip_heading))
