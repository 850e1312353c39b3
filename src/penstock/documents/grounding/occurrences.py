"""Where a value occurs on a page."""

from typing import NamedTuple, TypeAlias

from penstock.documents.grounding.page_text import PageText, enclosing_box
from penstock.documents.grounding.search_terms import SearchTerm
from penstock.documents.pages import Box

MAX_OCCURRENCES = 40  # of one value on one page
MAX_SHOWN = 300  # characters of the cited text


class WordRange(NamedTuple):
    """A range of words of a page, the last one included."""

    first: int
    last: int


class Occurrence(NamedTuple):
    """A match on a page. `weak`: the text may well be there for another reason."""

    page: int
    segment: int  # index of the first segment
    start: int  # offset in that segment
    row: int
    text: str
    box: Box | None = None
    weak: bool = False


Hits: TypeAlias = dict[SearchTerm, list[Occurrence]]


def occurrence_in_segment(page: PageText, at: int, start: int, end: int) -> Occurrence:
    """An occurrence inside one segment."""
    segment = page.segments[at]
    return Occurrence(page.number, at, start, segment.row, segment.text[start:end][:MAX_SHOWN], segment.box)


def occurrence_of_words(page: PageText, words: WordRange) -> Occurrence:
    """An occurrence of a range of words, which may cross segments."""
    first, last = page.words[words.first], page.words[words.last]
    if page.segment_of_word[words.first] == page.segment_of_word[words.last]:
        return occurrence_in_segment(page, page.segment_of_word[words.first], first.start, last.end)
    segments = dict.fromkeys(page.segment_of_word[words.first : words.last + 1])
    texts = [page.segments[at].text for at in segments]
    texts[-1] = texts[-1][: last.end]
    texts[0] = texts[0][first.start :]
    return occurrence_over_segments(page, list(segments), " ".join(texts), first.start)


def occurrence_over_segments(page: PageText, segments: list[int], text: str, start: int = 0) -> Occurrence:
    """One occurrence made of several segments."""
    box = enclosing_box(page.segments[at].box for at in segments)
    return Occurrence(page.number, segments[0], start, page.segments[segments[0]].row, text[:MAX_SHOWN], box)
