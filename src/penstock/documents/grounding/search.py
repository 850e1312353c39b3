"""Search one page for all terms at once.

At each word, the next few letters are looked up among the prefixes of all keys; on a hit, the text of the key's length
is compared. A match starts and ends at word boundaries. The cost grows with the page and its hits, not with the terms.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.documents.grounding import amounts
from penstock.documents.grounding.dates import DateParts, find_dates, non_overlapping_dates
from penstock.documents.grounding.fuzzy import FuzzyMatcher
from penstock.documents.grounding.occurrences import (
    MAX_OCCURRENCES,
    Hits,
    Occurrence,
    WordRange,
    occurrence_in_segment,
    occurrence_of_words,
)
from penstock.documents.grounding.page_text import PageText
from penstock.documents.grounding.search_terms import SearchTerm
from penstock.documents.grounding.spellings import HAN_NUMERALS
from penstock.documents.grounding.tokens import is_unspaced_script

AMBIGUOUS_NUMBERS = (0, 1)  # the words "one" and "no" are in every text
HEAD_LENGTH = 3  # letters of the first, cheapest check
PREFIX_LENGTH = 8  # letters of a key that are indexed

_TIME = re.compile(r"(?<!\d)(\d{1,2})\s?[:.时点h]\s?(\d{2})(?!\d)\s?(?:([ap])\.?m)?", re.IGNORECASE)


@dataclass(kw_only=True)
class TermIndex:
    """All search terms, indexed by what they are looked up by."""

    by_key: dict[str, list[SearchTerm]] = field(default_factory=dict)
    by_digits: dict[str, list[SearchTerm]] = field(default_factory=dict)
    by_date: dict[DateParts, list[SearchTerm]] = field(default_factory=dict)
    by_symbol: dict[str, list[SearchTerm]] = field(default_factory=dict)
    prefixes: dict[str, set[int]] = field(default_factory=dict)  # with the lengths of their keys
    fuzzy: FuzzyMatcher = field(default_factory=FuzzyMatcher)

    @classmethod
    def of(cls, terms: Iterable[SearchTerm]) -> "TermIndex":
        """Index these terms."""
        index = cls()
        for term in terms:
            index._add(term)
        for key in (*index.by_key, *index.fuzzy.parts):
            index.prefixes.setdefault(key[:PREFIX_LENGTH], set()).add(len(key))
        return index

    def _add(self, term: SearchTerm) -> None:
        for key in term.keys:
            self.by_key.setdefault(key, []).append(term)
        if term.number is not None:
            self.by_digits.setdefault(amounts.digits_of(term.number), []).append(term)
        for date in term.dates:
            self.by_date.setdefault(date, []).append(term)
        for symbol in term.symbols:
            self.by_symbol.setdefault(symbol, []).append(term)
        self.fuzzy.add(term)

    def search(self, page: PageText) -> Hits:
        """The terms that occur on a page, with their occurrences."""
        hits: Hits = {}
        ranges = self._word_ranges(page)
        for key, found in ranges.items():
            for term in self.by_key.get(key, ()):
                verified = (_verified(page, term, key, words) for words in found)
                _add_occurrences(hits, term, [occurrence for occurrence in verified if occurrence])
        self._search_segments(page, hits)
        for term, occurrence in self.fuzzy.search(page, ranges, hits):
            _add_occurrences(hits, term, [occurrence])
        for term in hits:
            term.is_found = True
        return hits

    def _word_ranges(self, page: PageText) -> dict[str, list[WordRange]]:
        """The word ranges at which keys occur on a page."""
        found: dict[str, list[WordRange]] = {}
        tokens, ends, prefixes = page.joined_tokens, page.ends, self.prefixes
        sizes = sorted({len(prefix) for prefix in prefixes})
        heads = {prefix[:HEAD_LENGTH] for prefix in prefixes}
        for first, start in enumerate(page.starts):
            if heads.isdisjoint((tokens[start : start + HEAD_LENGTH], tokens[start : start + 2], tokens[start])):
                continue
            for size in sizes:
                for length in prefixes.get(tokens[start : start + size], ()):
                    last = ends.get(start + length) if length >= size else None
                    if last is None:
                        continue
                    key = tokens[start : start + length]
                    if key in self.by_key or key in self.fuzzy.parts:
                        _add_range(found.setdefault(key, []), WordRange(first, last))
        return found

    def _search_segments(self, page: PageText, hits: Hits) -> None:
        for at, segment in enumerate(page.segments):
            for symbol, terms in self.by_symbol.items():
                start = segment.text.find(symbol)
                if start >= 0:
                    occurrence = occurrence_in_segment(page, at, start, start + len(symbol))
                    for term in terms:
                        _add_occurrences(hits, term, [occurrence])
            if any(map(str.isdigit, segment.text)):
                self._search_dates(page, at, hits)
                self._search_numbers(page, at, hits)

    def _search_dates(self, page: PageText, at: int, hits: Hits) -> None:
        if not self.by_date:
            return
        for written in find_dates(page.segments[at].text):
            occurrence = occurrence_in_segment(page, at, written.start, written.end)
            for term in (term for date in written.dates for term in self.by_date.get(date, ())):
                if not term.time_of_day or _has_time(page, term.time_of_day):
                    _add_occurrences(hits, term, [occurrence])

    def _search_numbers(self, page: PageText, at: int, hits: Hits) -> None:
        text = page.segments[at].text
        hit_spans = [
            (span, self.by_digits[span.digits]) for span in amounts.number_spans(text) if span.digits in self.by_digits
        ]
        if not hit_spans:
            return
        row, dates = page.row_text(at), non_overlapping_dates(text)
        starts = [date.start for date in dates]
        for span, terms in hit_spans:
            amount = amounts.amount_of(text, span)
            matching = [term for term in terms if term.number is not None and amount.matches(term.number, row)]
            if not matching:
                continue
            before = bisect_right(starts, span.start) - 1
            is_in_date = before >= 0 and span.start < dates[before].end
            is_list_number = page.segments[at].table is None and amounts.is_list_number(text, span.start, span.end)
            is_weak = is_in_date or is_list_number or amounts.is_part_of_identifier(text, span.start, span.end)
            occurrence = occurrence_in_segment(page, at, span.start, span.end)._replace(weak=is_weak)
            for term in matching:
                _add_occurrences(hits, term, [occurrence])


def _add_range(ranges: list[WordRange], words: WordRange) -> None:
    if len(ranges) < MAX_OCCURRENCES and (not ranges or ranges[-1] != words):
        ranges.append(words)


def _add_occurrences(hits: Hits, term: SearchTerm, occurrences: list[Occurrence]) -> None:
    if occurrences:
        kept = hits.setdefault(term, [])
        kept += occurrences[: MAX_OCCURRENCES - len(kept)]


def _verified(page: PageText, term: SearchTerm, key: str, words: WordRange) -> Occurrence | None:
    """The occurrence, if the value matches and not only the key: 1250 is not 12.50, the word "a" is not the grade A."""
    occurrence = occurrence_of_words(page, words)
    if isinstance(term.value, str):
        if any(map(str.isdigit, key)) and not amounts.numbers_agree(term.value, occurrence.text):
            return None
        if len(key) == 1 and not is_unspaced_script(key):
            return occurrence._replace(weak=True) if _is_exact_letter(page, term.value, occurrence) else None
        return occurrence
    if key[0] in HAN_NUMERALS and _is_part_of_longer_numeral(page, words):
        return None
    return occurrence._replace(weak=term.value in AMBIGUOUS_NUMBERS)


def _is_exact_letter(page: PageText, value: str, occurrence: Occurrence) -> bool:
    """Whether a single letter has the same case and sign: neither the grade A- nor an "a" is A."""
    text = page.segments[occurrence.segment].text[occurrence.start :]
    return text.startswith(value.strip()) and text[len(value.strip()) :][:1] not in ("+", "-", "*")


def _is_part_of_longer_numeral(page: PageText, words: WordRange) -> bool:
    """Whether a Chinese numeral is part of a longer one, or numbers a clause."""
    before = page.words[words.first - 1].key if words.first else ""
    after = page.words[words.last + 1].key if words.last + 1 < len(page.words) else ""
    return (before and before[-1] in HAN_NUMERALS) or before == "第" or after[:1] in HAN_NUMERALS


def _has_time(page: PageText, time_of_day: str) -> bool:
    for segment in page.segments:
        for hour, minute, meridiem in _TIME.findall(segment.text):
            hours = int(hour) % 12 + (12 if meridiem in "pP" else 0) if meridiem else int(hour)
            if f"{hours:02}:{minute}" == time_of_day:
                return True
    return False
