"""One page against all that is looked for.

From each word of the page on, a few letters are looked up; where some key begins with them, so is the piece of its
length. A match begins and ends with a word. So the time it takes grows with the page, and with what is found there.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.documents.grounding import amounts
from penstock.documents.grounding.days import Day, apart, days
from penstock.documents.grounding.loosely import Loosely
from penstock.documents.grounding.sheet import Sheet
from penstock.documents.grounding.sought import Sought
from penstock.documents.grounding.spelled import NUMERALS
from penstock.documents.grounding.spots import MOST_SPOTS, Hits, Run, Spot, piece_of, spot_of
from penstock.documents.grounding.tokens import has_no_spaces

FEW = (0, 1)  # "one" and "no" are in every text
HEAD = 3  # letters by which most of a page is passed over
PROBE = 8  # letters by which the beginning of a key is known

_HOUR = re.compile(r"(?<!\d)(\d{1,2})\s?[:.时点h]\s?(\d{2})(?!\d)\s?(?:([ap])\.?m)?", re.IGNORECASE)


@dataclass(kw_only=True)
class Index:
    """All that is looked for, by what it is looked up by."""

    wholes: dict[str, list[Sought]] = field(default_factory=dict)
    digits: dict[str, list[Sought]] = field(default_factory=dict)
    days: dict[Day, list[Sought]] = field(default_factory=dict)
    signs: dict[str, list[Sought]] = field(default_factory=dict)
    probes: dict[str, set[int]] = field(default_factory=dict)
    loosely: Loosely = field(default_factory=Loosely)

    @classmethod
    def of(cls, wanted: Iterable[Sought]) -> "Index":
        """An index of these."""
        made = cls()
        for sought in wanted:
            made._add(sought)
        for key in (*made.wholes, *made.loosely.parts):
            made.probes.setdefault(key[:PROBE], set()).add(len(key))
        return made

    def _add(self, sought: Sought) -> None:
        for key in sought.keys:
            self.wholes.setdefault(key, []).append(sought)
        if sought.number is not None:
            self.digits.setdefault(amounts.digits_of(sought.number), []).append(sought)
        for day in sought.days:
            self.days.setdefault(day, []).append(sought)
        for sign in sought.signs:
            self.signs.setdefault(sign, []).append(sought)
        self.loosely.add(sought)

    def look(self, sheet: Sheet) -> Hits:
        """What of all this stands on a page, and where."""
        hits: Hits = {}
        runs = self._runs(sheet)
        for key, found in runs.items():
            for sought in self.wholes.get(key, ()):
                _keep(hits, sought, [spot for run in found if (spot := _read(sheet, sought, key, run))])
        self._look_in_bits(sheet, hits)
        for sought, spot in self.loosely.look(sheet, runs, hits):
            _keep(hits, sought, [spot])
        for sought in hits:
            sought.is_found = True
        return hits

    def _runs(self, sheet: Sheet) -> dict[str, list[Run]]:
        """Where keys stand on a page."""
        found: dict[str, list[Run]] = {}
        letters, ends, probes = sheet.letters, sheet.ends, self.probes
        sizes = sorted({len(probe) for probe in probes})
        heads = {probe[:HEAD] for probe in probes}
        for first, start in enumerate(sheet.starts):
            if heads.isdisjoint((letters[start : start + HEAD], letters[start : start + 2], letters[start])):
                continue
            for size in sizes:
                for length in probes.get(letters[start : start + size], ()):
                    last = ends.get(start + length) if length >= size else None
                    if last is None:
                        continue
                    key = letters[start : start + length]
                    if key in self.wholes or key in self.loosely.parts:
                        _add_run(found.setdefault(key, []), Run(first, last))
        return found

    def _look_in_bits(self, sheet: Sheet, hits: Hits) -> None:
        for at, bit in enumerate(sheet.bits):
            for sign, wanted in self.signs.items():
                place = bit.text.find(sign)
                if place >= 0:
                    spot = piece_of(sheet, at, place, place + len(sign))
                    for sought in wanted:
                        _keep(hits, sought, [spot])
            if any(map(str.isdigit, bit.text)):
                self._look_for_days(sheet, at, hits)
                self._look_for_numbers(sheet, at, hits)

    def _look_for_days(self, sheet: Sheet, at: int, hits: Hits) -> None:
        if not self.days:
            return
        for written in days(sheet.bits[at].text):
            spot = piece_of(sheet, at, written.start, written.end)
            for sought in (sought for day in written.days for sought in self.days.get(day, ())):
                if not sought.hour or _says_hour(sheet, sought.hour):
                    _keep(hits, sought, [spot])

    def _look_for_numbers(self, sheet: Sheet, at: int, hits: Hits) -> None:
        text = sheet.bits[at].text
        wanted = [
            (figure, self.digits[figure.digits]) for figure in amounts.figures(text) if figure.digits in self.digits
        ]
        if not wanted:
            return
        row, written = sheet.row_text(at), apart(text)
        starts = [day.start for day in written]
        for figure, those in wanted:
            amount = amounts.amount_of(text, figure)
            said = [sought for sought in those if sought.number is not None and amount.is_of(sought.number, row)]
            if not said:
                continue
            before = bisect_right(starts, figure.start) - 1
            is_of_day = before >= 0 and figure.start < written[before].end
            spot = piece_of(sheet, at, figure.start, figure.end)
            is_count = sheet.bits[at].table is None and amounts.is_count(text, figure.start, figure.end)
            spot = spot._replace(weak=is_of_day or is_count or amounts.is_glued(text, figure.start, figure.end))
            for sought in said:
                _keep(hits, sought, [spot])


def _add_run(runs: list[Run], run: Run) -> None:
    if len(runs) < MOST_SPOTS and (not runs or runs[-1] != run):
        runs.append(run)


def _keep(hits: Hits, sought: Sought, spots: list[Spot]) -> None:
    if spots:
        kept = hits.setdefault(sought, [])
        kept += spots[: MOST_SPOTS - len(kept)]


def _read(sheet: Sheet, sought: Sought, key: str, run: Run) -> Spot | None:
    """A match of letters, if it is one of the value too: 1250 is not 12.50, and the word "a" is not the grade A."""
    spot = spot_of(sheet, run)
    if isinstance(sought.value, str):
        if any(map(str.isdigit, key)) and not amounts.same(sought.value, spot.text):
            return None
        if len(key) == 1 and not has_no_spaces(key):
            return spot._replace(weak=True) if _is_letter_for_letter(sheet, sought.value, spot) else None
        return spot
    if key[0] in NUMERALS and _goes_on(sheet, run):
        return None
    return spot._replace(weak=sought.value in FEW)


def _is_letter_for_letter(sheet: Sheet, value: str, spot: Spot) -> bool:
    """Whether a single letter stands there with its case and its marks: the grade A- is not A, nor a."""
    text = sheet.bits[spot.bit].text[spot.start :]
    return text.startswith(value.strip()) and text[len(value.strip()) :][:1] not in ("+", "-", "*")


def _goes_on(sheet: Sheet, run: Run) -> bool:
    """Whether a number in Chinese words is a part of a longer one, or counts clauses."""
    before = sheet.words[run.first - 1].key if run.first else ""
    after = sheet.words[run.last + 1].key if run.last + 1 < len(sheet.words) else ""
    return (before and before[-1] in NUMERALS) or before == "第" or after[:1] in NUMERALS


def _says_hour(sheet: Sheet, wanted: str) -> bool:
    for bit in sheet.bits:
        for hour, minute, half in _HOUR.findall(bit.text):
            hours = int(hour) % 12 + (12 if half in "pP" else 0) if half else int(hour)
            if f"{hours:02}:{minute}" == wanted:
                return True
    return False
