"""Chunks: a text by pages, in parts that a model can take in.

A chunk ends at the border of a page; where a page is too long for one, before a heading, else after a paragraph, a line
or a word, and only a word that is too long is cut. Nothing is dropped: the chunks, one after another, are the text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# Where a text may be cut, best first: each part begins where a match ends, or with the heading itself.
BORDERS = tuple(re.compile(border, re.MULTILINE) for border in (r"^(?=#{1,6}\s)", r"\n\n+", r"\n", r"[ \t\u3000]+"))


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of a text, and the pages that it is of."""

    text: str
    first_page: int
    last_page: int

    @property
    def pages(self) -> list[int]:
        """First and last, as they are shown."""
        return [self.first_page, self.last_page]


class TooManyChunks(Exception):
    """A text is cut into more parts than there may be."""


def cut(pages: Iterable[tuple[int, str]], *, most_characters: int, most_chunks: int) -> list[Chunk]:
    """The chunks of pages, which are given by number and text. `TooManyChunks` instead of leaving anything out."""
    chunks: list[Chunk] = []
    for chunk in _packed(_units(pages, most_characters), most_characters):
        if len(chunks) == most_chunks:
            raise TooManyChunks
        chunks.append(chunk)
    return chunks


def _units(pages: Iterable[tuple[int, str]], most: int) -> Iterator[Chunk]:
    """Whole pages, and the parts of those that are too long."""
    for number, text in pages:
        for part in _parts(text, most):
            yield Chunk(text=part, first_page=number, last_page=number)


def _packed(units: Iterable[Chunk], most: int) -> Iterator[Chunk]:
    """As many units together as fit."""
    held: list[Chunk] = []
    length = 0
    for unit in units:
        if held and length + len(unit.text) > most:
            yield _joined(held)
            held, length = [], 0
        held.append(unit)
        length += len(unit.text)
    if held:
        yield _joined(held)


def _joined(units: Sequence[Chunk]) -> Chunk:
    text = "".join(unit.text for unit in units)
    return Chunk(text=text, first_page=units[0].first_page, last_page=units[-1].last_page)


def _parts(text: str, most: int, borders: Sequence[re.Pattern[str]] = BORDERS) -> Iterator[str]:
    """A text in parts that are short enough, by the best border that makes them so."""
    if len(text) <= most:
        yield text
        return
    if not borders:
        yield from (text[start : start + most] for start in range(0, len(text), most))
        return
    held = ""
    for piece in _pieces(text, borders[0]):
        if len(held) + len(piece) > most:
            if held:
                yield held
            *done, held = _parts(piece, most, borders[1:])
            yield from done
        else:
            held += piece
    yield held


def _pieces(text: str, border: re.Pattern[str]) -> Iterator[str]:
    start = 0
    for found in border.finditer(text):
        if found.end() > start:
            yield text[start : found.end()]
            start = found.end()
    if start < len(text):
        yield text[start:]
