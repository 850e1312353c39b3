"""The citation of each value, decided when all pages have been read.

A value is grounded where it occurs next to its label, or in the row of its item, or anywhere. It is not grounded when
it does not occur, or when its label clearly has another value next to it, or its row another value in its column. In
those cases it was taken from the wrong place: it is flagged as ungrounded, and the citation shows the text found there
instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from penstock.documents.extract.fields.candidates import Candidate
from penstock.documents.grounding.amounts import contains_number, digit_spans
from penstock.documents.grounding.dates import non_overlapping_dates
from penstock.documents.grounding.field_lookup import FieldLookup
from penstock.documents.grounding.items import ItemRows, RowCandidate, RowSlot, share_slot
from penstock.documents.grounding.nearby_labels import LabelledTexts, NearbyLabels
from penstock.documents.grounding.occurrences import Hits, Occurrence
from penstock.documents.grounding.page_text import PageText
from penstock.documents.grounding.result_leaves import ResultLeaf, Scalar
from penstock.documents.grounding.search_terms import SearchTerm
from penstock.documents.grounding.tokens import text_key
from penstock.documents.pages import Citation

BY_LABEL, NEAR, PLAIN, WEAK = range(4)  # quality of an occurrence, best first; NEAR a word of the property name
MAX_SAME_VALUES = 50  # labels are not checked for a value that occurs more often in the result
MAX_OCCURRENCES = 12  # checked per value and page
MAX_NUMBER = 20  # characters, with currency or unit
MIN_CLEAR_NUMBER = 100  # three digits are hardly part of an identifier by chance
MAX_MISSING_SHARE = 1 / 2  # of an array's items, whose value may be outside the expected slot
MAX_SLOTS = 20  # of one property; values in more slots form no column
MIN_AGREEING = 2  # items with a value in the same slot


@dataclass(kw_only=True)
class CitationFinder:
    """Collects the occurrences of all values page by page, then decides on the citations."""

    terms: list[SearchTerm]
    items: ItemRows
    labelled_texts: LabelledTexts
    best: dict[ResultLeaf, tuple[int, Occurrence]] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: list[SearchTerm]) -> "CitationFinder":
        """A finder for these terms, before the first page."""
        labelled_texts = LabelledTexts.of(leaf for term in terms for leaf in term.leaves)
        return cls(terms=terms, items=ItemRows.of(terms), labelled_texts=labelled_texts)

    def add_page(self, page: PageText, hits: Hits) -> None:
        """Collect the occurrences found on a page."""
        for term, occurrences in hits.items():
            for leaf in term.leaves:
                self._add(page, leaf, occurrences, is_frequent=len(term.leaves) > MAX_SAME_VALUES)
        self.items.add_page(page, hits)
        self.labelled_texts.add_page(page)

    def _add(self, page: PageText, leaf: ResultLeaf, occurrences: list[Occurrence], *, is_frequent: bool) -> None:
        known = self.best.get(leaf)
        if known is not None and (known[0] == BY_LABEL or is_frequent):
            return
        checked = occurrences[: 1 if is_frequent else MAX_OCCURRENCES]
        best = min(((_rank(page, leaf, occurrence), occurrence) for occurrence in checked), key=lambda each: each[0])
        if known is None or best[0] < known[0]:
            self.best[leaf] = best

    def citations(self, fields: FieldLookup) -> dict[ResultLeaf, Citation]:
        """The citation of each value."""
        found: dict[ResultLeaf, Citation] = {}
        rows = _ItemCitations.of(self.items)
        ambiguous = fields.ambiguous()
        for term in self.terms:
            for leaf in term.leaves:
                candidate = None if leaf.item else fields.candidate(leaf.node)
                citation = rows.citation(leaf) or (self._by_label(leaf, candidate) if candidate else None)
                if citation is None and candidate is None and leaf.node not in ambiguous:
                    citation = self._by_labelled_text(leaf, term)
                found[leaf] = citation or self._by_best_occurrence(leaf)
        return found

    def _by_label(self, leaf: ResultLeaf, candidate: Candidate) -> Citation | None:
        if agree(leaf.value, candidate.value):
            return _cite_candidate(leaf, candidate, grounded=True)
        if self._is_by_label(leaf) or _overlap(leaf.value, candidate.value):
            return None
        return _cite_candidate(leaf, candidate, grounded=False)

    def _by_labelled_text(self, leaf: ResultLeaf, term: SearchTerm) -> Citation | None:
        """For a date or number whose label has another one next to it."""
        texts = self.labelled_texts.texts.get(leaf, [])
        if self._is_by_label(leaf) or len({each.text for each in texts}) != 1:
            return None
        labelled = texts[0]
        if not (_is_other_date(labelled.text, term) or _is_other_number(labelled.text, term)):
            return None
        return Citation(pointer=leaf.pointer, grounded=False, page=labelled.page, box=labelled.box, text=labelled.text)

    def _is_by_label(self, leaf: ResultLeaf) -> bool:
        return leaf in self.best and self.best[leaf][0] == BY_LABEL

    def _by_best_occurrence(self, leaf: ResultLeaf) -> Citation:
        rank, occurrence = self.best.get(leaf, (WEAK, None))
        if occurrence is None or (isinstance(leaf.value, bool) and rank != BY_LABEL):
            return Citation(pointer=leaf.pointer, grounded=False)
        if rank == WEAK and not isinstance(leaf.value, str) and abs(leaf.value) < MIN_CLEAR_NUMBER:
            return Citation(pointer=leaf.pointer, grounded=False)
        return citation_at(leaf, occurrence)


def _rank(page: PageText, leaf: ResultLeaf, occurrence: Occurrence) -> int:
    if NearbyLabels(page, occurrence).has(leaf.labels):
        return BY_LABEL
    if leaf.name_words & page.vocabulary.get(occurrence.segment, set()):
        return NEAR
    return WEAK if occurrence.weak else PLAIN


def citation_at(leaf: ResultLeaf, occurrence: Occurrence) -> Citation:
    """The citation of a value at an occurrence."""
    return Citation(pointer=leaf.pointer, grounded=True, page=occurrence.page, box=occurrence.box, text=occurrence.text)


def agree(one: Scalar, other: Scalar) -> bool:
    """Whether two values are equal: numbers by value, text by key."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return Decimal(repr(one)) == Decimal(repr(other))
    return text_key(str(one)) == text_key(str(other))


def _overlap(one: Scalar, other: Scalar) -> bool:
    """Whether one text contains the other."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    left, right = text_key(one), text_key(other)
    return left in right or right in left


def _is_other_date(text: str, term: SearchTerm) -> bool:
    """Whether a text contains exactly one date, and another than the term's."""
    written = non_overlapping_dates(text) if term.dates else []
    return len(written) == 1 and not set(written[0].dates) & set(term.dates)


def _is_other_number(text: str, term: SearchTerm) -> bool:
    """Whether a text is one number, and another than the term's."""
    if term.number is None or isinstance(term.value, str) or len(text) > MAX_NUMBER:
        return False
    return len(digit_spans(text)) == 1 and not non_overlapping_dates(text) and not contains_number(text, term.number)


def _cite_candidate(leaf: ResultLeaf, candidate: Candidate, *, grounded: bool) -> Citation:
    source = candidate.source
    return Citation(pointer=leaf.pointer, grounded=grounded, page=source.page, box=source.box, text=candidate.text)


@dataclass(frozen=True, kw_only=True)
class _ItemCitations:
    """The row of each item, and the slot in which each of its values is expected."""

    rows: dict[str, RowCandidate]
    slots: dict[tuple[str, str], RowSlot]

    @classmethod
    def of(cls, items: ItemRows) -> "_ItemCitations":
        rows = dict(_assign_rows(items))
        return cls(rows=rows, slots=dict(_expected_slots(rows, items)))

    def citation(self, leaf: ResultLeaf) -> Citation | None:
        """The place of a value in its item's row, or the text there instead; None when the row does not decide."""
        row = self.rows.get(leaf.item)
        if row is None:
            return None
        slot = self._slot(leaf, row)
        inside = row.leaves.get(leaf, ())
        at_slot = [occurrence for here, occurrence in inside if slot is None or share_slot(here, slot)]
        if at_slot:
            return citation_at(leaf, at_slot[0])
        others = [cell for cell in row.cells if slot is not None and share_slot(cell.slot, slot)]
        if others and len(row.leaves) > 1 and (not inside or others[0].slot.is_exclusive):
            cell = others[0]
            return Citation(pointer=leaf.pointer, grounded=False, page=row.page, box=cell.box, text=cell.text)
        return citation_at(leaf, inside[0][1]) if inside else None

    def _slot(self, leaf: ResultLeaf, row: RowCandidate) -> RowSlot | None:
        """The slot where a value is expected: under its label, or where other items have it."""
        named = [cell.slot for cell in row.cells if cell.header and cell.header in leaf.labels]
        return named[0] if len(named) == 1 else self.slots.get((_array(leaf.item), leaf.path))


def _assign_rows(items: ItemRows) -> Iterator[tuple[str, RowCandidate]]:
    """The row of each item. The best matches choose first; a row is used twice only without an alternative."""
    taken: dict[tuple[int, int], str] = {}
    by_rank = sorted(items.candidates.items(), key=lambda each: each[1][0].rank, reverse=True)
    for item, candidates in by_rank:
        most = len(candidates[0].leaves)
        free = [row for row in candidates if (row.page, row.row) not in taken and len(row.leaves) == most]
        row = (free or candidates)[0]
        taken.setdefault((row.page, row.row), item)
        yield item, row


def _expected_slots(rows: dict[str, RowCandidate], items: ItemRows) -> Iterator[tuple[tuple[str, str], RowSlot]]:
    """The slot of each property, by (array, path), where most items agree."""
    slots: dict[tuple[str, str], list[tuple[RowSlot, ...]]] = {}
    for item, row in rows.items():
        for leaf, _ in items.members[item]:
            inside = tuple(slot for slot, _ in row.leaves.get(leaf, ()))
            slots.setdefault((_array(item), leaf.path), []).append(inside)
    taken: list[tuple[str, RowSlot]] = []
    best = {name: _most_frequent_slots(found) for name, found in slots.items()}
    for name, (count, ties) in sorted(best.items(), key=lambda each: -each[1][0]):
        if count >= MIN_AGREEING and count >= (1 - MAX_MISSING_SHARE) * len(slots[name]):
            free = [
                slot for slot in ties if not any(name[0] == array and share_slot(slot, other) for array, other in taken)
            ]
            taken.append((name[0], (free or ties)[0]))
            yield name, taken[-1][1]


def _most_frequent_slots(found: list[tuple[RowSlot, ...]]) -> tuple[int, list[RowSlot]]:
    """The slots that most items share, and the number of those items."""
    counted = list(_counted_slots(found))
    most = max((count for count, _ in counted), default=0)
    return most, [slot for count, slot in counted if count == most]


def _counted_slots(found: list[tuple[RowSlot, ...]]) -> Iterator[tuple[int, RowSlot]]:
    """Each slot with the number of items that have it."""
    counted: list[RowSlot] = []
    for slot in (slot for inside in found for slot in inside):
        if not any(share_slot(slot, other) for other in counted):
            counted.append(slot)
            if len(counted) > MAX_SLOTS:
                return
            yield sum(any(share_slot(slot, each) for each in inside) for inside in found), slot


def _array(item: str) -> str:
    return item.rpartition("/")[0]
