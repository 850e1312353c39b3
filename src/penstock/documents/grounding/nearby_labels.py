"""The labels next to a value, and the text next to a label.

A label belongs to a value when it precedes it in its line, is left of it in its row, or is the header of its column.
The text next to a label decides about dates and numbers, which cannot be confused with other text: when a label has
another date or number next to it, and never the value of the result, the value was taken from the wrong place.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.documents.extract.fields.label_keys import MAX_LABEL, label_key
from penstock.documents.grounding.occurrences import Occurrence
from penstock.documents.grounding.page_text import PageText
from penstock.documents.grounding.result_leaves import ResultLeaf
from penstock.documents.pages import Box

MAX_LEFT = 6  # segments left of a value that may be its label
MAX_TEXTS = 4  # kept per label
MAX_TEXT = 60  # characters next to a label; longer text is prose
MAX_IN_ROW = 500  # segments

_WORD = re.compile(r"[^\W_]+")
_COLON = re.compile(r"[:：]")


class NearbyLabels:
    """The labels next to an occurrence, as keys with the offsets of their word boundaries."""

    def __init__(self, page: PageText, occurrence: Occurrence) -> None:
        self._keys = [_words_of(text[-MAX_LABEL:]) for text in _nearby_texts(page, occurrence) if text.strip()]

    def has(self, labels: Collection[str]) -> bool:
        """Whether one of these labels is among them as whole words: "Total" is in "Total due", not in "Subtotal"."""
        return any(_is_whole_words_of(label, key, edges) for key, edges in self._keys for label in labels)


def _words_of(text: str) -> tuple[str, frozenset[int]]:
    words = [label_key(word) for word in _WORD.findall(text)]
    return "".join(words), frozenset(accumulate(map(len, words), initial=0))


def _is_whole_words_of(label: str, key: str, edges: frozenset[int]) -> bool:
    at = key.find(label)
    while at >= 0:
        if not label.isascii() or (at in edges and at + len(label) in edges):
            return True
        at = key.find(label, at + 1)
    return False


def _nearby_texts(page: PageText, occurrence: Occurrence) -> Iterator[str]:
    segment = page.segments[occurrence.segment]
    yield segment.text[: occurrence.start]
    row = page.rows[segment.row]
    at = row.index(occurrence.segment) if len(row) < MAX_IN_ROW else 0
    yield from (page.segments[left].text for left in row[max(0, at - MAX_LEFT) : at])
    if segment.table is not None and segment.column is not None:
        header = page.headers.get((segment.table, segment.column))
        if header is not None and header != occurrence.segment:
            yield page.segments[header].text
    elif occurrence.segment and not segment.text[: occurrence.start].strip():
        yield page.segments[occurrence.segment - 1].text  # the line above, where positions are unknown


@dataclass(frozen=True, kw_only=True)
class LabelledText:
    """The text next to a label."""

    text: str
    page: int
    box: Box | None


@dataclass(kw_only=True)
class LabelledTexts:
    """The text next to the labels of single values, collected page by page."""

    leaves_by_key: dict[str, ResultLeaf] = field(default_factory=dict)
    texts: dict[ResultLeaf, list[LabelledText]] = field(default_factory=dict)

    @classmethod
    def of(cls, leaves: Iterable[ResultLeaf]) -> "LabelledTexts":
        """An empty collection for these leaves. A label that two leaves share is ignored."""
        named: dict[str, list[ResultLeaf]] = {}
        for leaf in leaves:
            if not leaf.item:
                for key in leaf.labels:
                    named.setdefault(key, []).append(leaf)
        return cls(leaves_by_key={key: same[0] for key, same in named.items() if len(same) == 1})

    def add_page(self, page: PageText) -> None:
        """Collect the labelled texts of a page."""
        for at, segment in enumerate(page.segments):
            label, *rest = _COLON.split(segment.text, maxsplit=1)
            leaf = self.leaves_by_key.get(label_key(label))
            if leaf is None:
                continue
            text = _labelled_text(page, at, "".join(rest))
            kept = self.texts.setdefault(leaf, [])
            if text is not None and len(kept) < MAX_TEXTS:
                kept.append(text)


def _labelled_text(page: PageText, at: int, rest: str) -> LabelledText | None:
    """The rest of the label's segment, else the next segment of its row."""
    segment = page.segments[at]
    if not rest.strip():
        row = page.rows[segment.row]
        after = row.index(at) + 1 if len(row) < MAX_IN_ROW else len(row)
        if after >= len(row):
            return None
        segment = page.segments[row[after]]
        rest = segment.text
    return LabelledText(text=rest.strip(), page=page.number, box=segment.box) if len(rest.strip()) <= MAX_TEXT else None
