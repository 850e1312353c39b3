"""Where values stand."""

from typing import NamedTuple, TypeAlias

from penstock.documents.grounding.sheet import Sheet, around_known
from penstock.documents.grounding.sought import Sought
from penstock.documents.pages import Box

MOST_SPOTS = 40  # of one value on one page
MOST_SHOWN = 300  # characters of what stands there


class Run(NamedTuple):
    """Words of a page, the last included."""

    first: int
    last: int


class Spot(NamedTuple):
    """A place on a page. `weak`: the text may well stand there for another reason."""

    page: int
    bit: int  # the first that it stands in
    start: int  # where in that bit
    row: int
    text: str
    box: Box | None = None
    weak: bool = False


Hits: TypeAlias = dict[Sought, list[Spot]]


def piece_of(sheet: Sheet, at: int, start: int, end: int) -> Spot:
    """A piece of one bit."""
    bit = sheet.bits[at]
    return Spot(sheet.number, at, start, bit.row, bit.text[start:end][:MOST_SHOWN], bit.box)


def spot_of(sheet: Sheet, run: Run) -> Spot:
    """A run of words, that may go over several bits."""
    first, last = sheet.words[run.first], sheet.words[run.last]
    if sheet.homes[run.first] == sheet.homes[run.last]:
        return piece_of(sheet, sheet.homes[run.first], first.start, last.end)
    bits = dict.fromkeys(sheet.homes[run.first : run.last + 1])
    texts = [sheet.bits[at].text for at in bits]
    texts[-1] = texts[-1][: last.end]
    texts[0] = texts[0][first.start :]
    return whole_of(sheet, list(bits), " ".join(texts), first.start)


def whole_of(sheet: Sheet, bits: list[int], text: str, start: int = 0) -> Spot:
    """Several bits in one."""
    box = around_known(sheet.bits[at].box for at in bits)
    return Spot(sheet.number, bits[0], start, sheet.bits[bits[0]].row, text[:MOST_SHOWN], box)
