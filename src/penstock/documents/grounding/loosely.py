"""Text that does not stand in one piece: an address whose lines stand apart, a name with its parts turned round, a long
passage with a word between its lines that is not its own.

Short text needs every word of it, close together. Of long text nine letters in ten are enough, in their order, but no
number and no name of it may be missing.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.documents.grounding.sheet import Sheet
from penstock.documents.grounding.sought import Sought
from penstock.documents.grounding.spots import Run, Spot, spot_of, whole_of
from penstock.documents.grounding.tokens import has_no_spaces

MOST_TRIES = 200_000  # for a whole document
MOST_WORDS = 2000  # of a text
MOST_PLACES = 60  # of one word on a page
MOST_STARTS = 8
LONG = 80  # letters; from here on not every one of them is needed
ENOUGH = 0.9
WIDEST_STEP = 40  # words between two that follow each other in the text
SLACK = 2  # words that may stand between those of a short text
FARTHEST = 30  # bits between two parts of one text
JOINING = frozenset(
    ("and", "und", "et", "or", "oder", "of", "the", "der", "die", "das", "de", "la", "le", "和", "与", "及", "的")
)


@dataclass(kw_only=True)
class Loosely:
    """The texts that may be found so, by their longest part and by their longest word."""

    parts: dict[str, list[Sought]] = field(default_factory=dict)
    words: dict[str, list[Sought]] = field(default_factory=dict)
    vocabulary: set[str] = field(default_factory=set)
    tries: int = 0

    def add(self, sought: Sought) -> None:
        """Look for this text too."""
        for part in sought.parts:
            self.parts.setdefault(part, [])
        if sought.parts:
            self.parts[max(sought.parts, key=len)].append(sought)
        words = sought.words[:MOST_WORDS]
        if len(words) > 1:
            self.words.setdefault(max(words, key=len), []).append(sought)
            self.vocabulary.update(words)

    def look(
        self, sheet: Sheet, runs: Mapping[str, list[Run]], found: Mapping[Sought, object]
    ) -> Iterator[tuple[Sought, Spot]]:
        """What of all this stands on a page and is not found yet."""
        done: set[Sought] = set()
        for sought in self._open([key for key in runs if key in self.parts], self.parts, found):
            if spot := _by_parts(sheet, sought, runs):
                done.add(sought)
                yield sought, spot
        places = _places(sheet, self.vocabulary) if self.words else {}
        for sought in self._open([word for word in places if word in self.words], self.words, found):
            if sought not in done and (spot := _by_words(sheet, sought, places)):
                yield sought, spot

    def _open(
        self, keys: list[str], known: Mapping[str, list[Sought]], found: Mapping[Sought, object]
    ) -> Iterator[Sought]:
        for sought in (sought for key in keys for sought in known[key]):
            if self.tries >= MOST_TRIES:
                return
            if not sought.is_found and sought not in found:
                self.tries += 1
                yield sought


def _places(sheet: Sheet, vocabulary: set[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, word in enumerate(sheet.words):
        if word.key in vocabulary:
            places = found.setdefault(word.key, [])
            if len(places) < MOST_PLACES:
                places.append(at)
    return found


def _by_parts(sheet: Sheet, sought: Sought, runs: Mapping[str, list[Run]]) -> Spot | None:
    """All parts, near the longest of them."""
    if any(part not in runs for part in sought.parts):
        return None
    for anchor in runs[max(sought.parts, key=len)]:
        here = sheet.homes[anchor.first]
        near = [min(runs[part], key=lambda run: abs(sheet.homes[run.first] - here)) for part in sought.parts]
        bits = [sheet.homes[run.first] for run in near]
        if max(bits) - min(bits) <= FARTHEST:
            text = ", ".join(spot_of(sheet, run).text for run in near)
            return whole_of(sheet, sorted(set(bits)), text)
    return None


def _by_words(sheet: Sheet, sought: Sought, places: Mapping[str, list[int]]) -> Spot | None:
    words = sought.words[:MOST_WORDS]
    letters = sum(map(len, words))
    needed = [word for word in dict.fromkeys(words) if word not in JOINING]
    missing = sum(len(word) for word in needed if word not in places)
    if missing > (0 if letters <= LONG else (1 - ENOUGH) * letters):
        return None
    anchor = max(words, key=len)
    if letters <= LONG and any(map(has_no_spaces, needed)):
        return None  # what is left out of a Chinese name makes another name
    for start in places[anchor][:MOST_STARTS]:
        found = _close(words, places, start) if letters <= LONG else _in_order(words, places, start)
        if found is not None:
            return spot_of(sheet, found)
    return None


def _close(words: tuple[str, ...], places: Mapping[str, list[int]], start: int) -> Run | None:
    """All words around a place, in whatever order."""
    reach = len(words) + SLACK
    near = {start}
    for word in words:
        after = [at for at in places.get(word, ()) if abs(at - start) < reach and at not in near]
        if after:
            near.add(min(after, key=lambda at: abs(at - start)))
        elif word not in JOINING and not any(at in near for at in places.get(word, ())):
            return None
    return Run(min(near), max(near)) if max(near) - min(near) < reach else None


def _in_order(words: tuple[str, ...], places: Mapping[str, list[int]], start: int) -> Run | None:
    """Most of the words one after another. `start` is where the longest stands."""
    before = words.index(max(words, key=len))
    current = first = max(start - 2 * before - SLACK, 0)
    matched: list[int] = []
    lost = 0
    for word in words:
        known = places.get(word, [])
        at = bisect_left(known, current)
        if at < len(known) and known[at] - current <= WIDEST_STEP + (2 * before if not matched else 0):
            current = known[at] + 1
            matched.append(known[at])
        elif any(map(str.isdigit, word)):
            return None
        else:
            lost += len(word)
    if not matched or lost > (1 - ENOUGH) * sum(map(len, words)):
        return None
    return Run(max(matched[0], first), matched[-1])
