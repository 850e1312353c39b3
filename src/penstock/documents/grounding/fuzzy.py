"""Fuzzy matching of text that is not contiguous: an address whose lines are apart, a name in another order, a passage
interrupted by a foreign word.

A short text needs all its words, close together. A long text needs nine letters in ten, in order, and all its numbers.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.documents.grounding.occurrences import (
    Occurrence,
    WordRange,
    occurrence_of_words,
    occurrence_over_segments,
)
from penstock.documents.grounding.page_text import PageText
from penstock.documents.grounding.search_terms import SearchTerm
from penstock.documents.grounding.tokens import is_unspaced_script

MAX_ATTEMPTS = 200_000  # per document
MAX_WORDS = 2000  # of one text
MAX_POSITIONS = 60  # of one word on a page
MAX_STARTS = 8
LONG_TEXT = 80  # letters; a longer text need not match in full
MIN_COVERAGE = 0.9
MAX_WORD_GAP = 40  # words between two consecutive words of the text
EXTRA_WORDS = 2  # other words allowed inside a short text
MAX_SEGMENT_DISTANCE = 30  # segments between two parts of one text
STOP_WORDS = frozenset(
    ("and", "und", "et", "or", "oder", "of", "the", "der", "die", "das", "de", "la", "le", "和", "与", "及", "的")
)


@dataclass(kw_only=True)
class FuzzyMatcher:
    """Texts to match, indexed by their longest part and by their longest word."""

    parts: dict[str, list[SearchTerm]] = field(default_factory=dict)
    words: dict[str, list[SearchTerm]] = field(default_factory=dict)
    vocabulary: set[str] = field(default_factory=set)
    attempts: int = 0

    def add(self, term: SearchTerm) -> None:
        """Index a term."""
        for part in term.parts:
            self.parts.setdefault(part, [])
        if term.parts:
            self.parts[max(term.parts, key=len)].append(term)
        words = term.words[:MAX_WORDS]
        if len(words) > 1:
            self.words.setdefault(max(words, key=len), []).append(term)
            self.vocabulary.update(words)

    def search(
        self, page: PageText, ranges: Mapping[str, list[WordRange]], found: Mapping[SearchTerm, object]
    ) -> Iterator[tuple[SearchTerm, Occurrence]]:
        """The indexed terms that occur on a page and were not found before."""
        done: set[SearchTerm] = set()
        for term in self._unmatched([key for key in ranges if key in self.parts], self.parts, found):
            if occurrence := _by_parts(page, term, ranges):
                done.add(term)
                yield term, occurrence
        positions = _positions(page, self.vocabulary) if self.words else {}
        for term in self._unmatched([word for word in positions if word in self.words], self.words, found):
            if term not in done and (occurrence := _by_words(page, term, positions)):
                yield term, occurrence

    def _unmatched(
        self, keys: list[str], known: Mapping[str, list[SearchTerm]], found: Mapping[SearchTerm, object]
    ) -> Iterator[SearchTerm]:
        for term in (term for key in keys for term in known[key]):
            if self.attempts >= MAX_ATTEMPTS:
                return
            if not term.is_found and term not in found:
                self.attempts += 1
                yield term


def _positions(page: PageText, vocabulary: set[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, word in enumerate(page.words):
        if word.key in vocabulary:
            positions = found.setdefault(word.key, [])
            if len(positions) < MAX_POSITIONS:
                positions.append(at)
    return found


def _by_parts(page: PageText, term: SearchTerm, ranges: Mapping[str, list[WordRange]]) -> Occurrence | None:
    """All parts, each near the longest one."""
    if any(part not in ranges for part in term.parts):
        return None
    for anchor in ranges[max(term.parts, key=len)]:
        here = page.segment_of_word[anchor.first]
        near = [
            min(ranges[part], key=lambda words: abs(page.segment_of_word[words.first] - here)) for part in term.parts
        ]
        segments = [page.segment_of_word[words.first] for words in near]
        if max(segments) - min(segments) <= MAX_SEGMENT_DISTANCE:
            text = ", ".join(occurrence_of_words(page, words).text for words in near)
            return occurrence_over_segments(page, sorted(set(segments)), text)
    return None


def _by_words(page: PageText, term: SearchTerm, positions: Mapping[str, list[int]]) -> Occurrence | None:
    words = term.words[:MAX_WORDS]
    letters = sum(map(len, words))
    needed = [word for word in dict.fromkeys(words) if word not in STOP_WORDS]
    missing = sum(len(word) for word in needed if word not in positions)
    if missing > (0 if letters <= LONG_TEXT else (1 - MIN_COVERAGE) * letters):
        return None
    anchor = max(words, key=len)
    if letters <= LONG_TEXT and any(map(is_unspaced_script, needed)):
        return None  # a Chinese name without one character is another name
    for start in positions[anchor][:MAX_STARTS]:
        match_words = _words_nearby if letters <= LONG_TEXT else _words_in_order
        found = match_words(words, positions, start)
        if found is not None:
            return occurrence_of_words(page, found)
    return None


def _words_nearby(words: tuple[str, ...], positions: Mapping[str, list[int]], start: int) -> WordRange | None:
    """All words around a position, in any order."""
    reach = len(words) + EXTRA_WORDS
    near = {start}
    for word in words:
        after = [at for at in positions.get(word, ()) if abs(at - start) < reach and at not in near]
        if after:
            near.add(min(after, key=lambda at: abs(at - start)))
        elif word not in STOP_WORDS and not any(at in near for at in positions.get(word, ())):
            return None
    return WordRange(min(near), max(near)) if max(near) - min(near) < reach else None


def _words_in_order(words: tuple[str, ...], positions: Mapping[str, list[int]], start: int) -> WordRange | None:
    """Most of the words, in order. `start` is the position of the longest one."""
    before = words.index(max(words, key=len))
    current = first = max(start - 2 * before - EXTRA_WORDS, 0)
    matched: list[int] = []
    missing = 0
    for word in words:
        known = positions.get(word, [])
        at = bisect_left(known, current)
        if at < len(known) and known[at] - current <= MAX_WORD_GAP + (2 * before if not matched else 0):
            current = known[at] + 1
            matched.append(known[at])
        elif any(map(str.isdigit, word)):
            return None
        else:
            missing += len(word)
    if not matched or missing > (1 - MIN_COVERAGE) * sum(map(len, words)):
        return None
    return WordRange(max(matched[0], first), matched[-1])
