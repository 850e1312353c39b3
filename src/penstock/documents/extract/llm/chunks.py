"""Chunks: the pages of a text, split to fit a model's context.

A chunk ends at a page boundary; within a page that is too long, before a heading, else after a paragraph, a line or a
word. Only a word that is too long is cut. Nothing is dropped: the concatenated chunks are the text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# Where a text may be split, best first. A part starts where a match ends, or with the heading itself.
BOUNDARIES = tuple(
    re.compile(boundary, re.MULTILINE) for boundary in (r"^(?=#{1,6}\s)", r"\n\n+", r"\n", r"[ \t\u3000]+")
)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of a text and its page range."""

    text: str
    first_page: int
    last_page: int

    @property
    def pages(self) -> list[int]:
        """First and last page, as reported."""
        return [self.first_page, self.last_page]


class TooManyChunks(Exception):
    """A text needs more chunks than allowed."""


def chunk_pages(pages: Iterable[tuple[int, str]], *, max_characters: int, max_chunks: int) -> list[Chunk]:
    """Split pages, given by number and text, into chunks. Raises `TooManyChunks` rather than dropping text."""
    chunks: list[Chunk] = []
    for chunk in _pack(_units(pages, max_characters), max_characters):
        if len(chunks) == max_chunks:
            raise TooManyChunks
        chunks.append(chunk)
    return chunks


def _units(pages: Iterable[tuple[int, str]], limit: int) -> Iterator[Chunk]:
    """Whole pages, and the parts of pages that are too long."""
    for number, text in pages:
        for part in _split(text, limit):
            yield Chunk(text=part, first_page=number, last_page=number)


def _pack(units: Iterable[Chunk], limit: int) -> Iterator[Chunk]:
    """Join consecutive units as long as they fit."""
    pending: list[Chunk] = []
    length = 0
    for unit in units:
        if pending and length + len(unit.text) > limit:
            yield _join(pending)
            pending, length = [], 0
        pending.append(unit)
        length += len(unit.text)
    if pending:
        yield _join(pending)


def _join(units: Sequence[Chunk]) -> Chunk:
    text = "".join(unit.text for unit in units)
    return Chunk(text=text, first_page=units[0].first_page, last_page=units[-1].last_page)


def _split(text: str, limit: int, boundaries: Sequence[re.Pattern[str]] = BOUNDARIES) -> Iterator[str]:
    """Split a text into parts within the limit, at the best possible boundaries."""
    if len(text) <= limit:
        yield text
        return
    if not boundaries:
        yield from (text[start : start + limit] for start in range(0, len(text), limit))
        return
    pending = ""
    for part in _split_at(text, boundaries[0]):
        if len(pending) + len(part) > limit:
            if pending:
                yield pending
            *done, pending = _split(part, limit, boundaries[1:])
            yield from done
        else:
            pending += part
    yield pending


def _split_at(text: str, boundary: re.Pattern[str]) -> Iterator[str]:
    start = 0
    for found in boundary.finditer(text):
        if found.end() > start:
            yield text[start : found.end()]
            start = found.end()
    if start < len(text):
        yield text[start:]
