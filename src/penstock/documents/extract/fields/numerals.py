"""How a document writes its numbers: with a decimal point as in "1,234.50", or a decimal comma as in "1.234,50".

A number such as "1.234" does not tell, so the document's other numbers have to. Where most of these have a comma and
some a point, it is left alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.documents.extract.fields.best import Offer
from penstock.documents.extract.fields.tree import Leaf
from penstock.documents.extract.fields.values import take
from penstock.documents.pages import Page

_MONEY = r"[$€£¥￥]|[A-Z]{3}\b"
_END = r"(?!\d|[.,:]\d)"
_POINT = re.compile(rf"(?<![\d.,])(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d{{1,2}}|,\d{{3}})|\d+\.\d{{2}}(?!\s?Uhr)){_END}")
_COMMA = re.compile(
    rf"(?<![\d.,])(?:\d{{1,3}}(?:[. ]\d{{3}})+,\d{{1,2}}|\d{{1,3}}(?:\.\d{{3}}){{2,}}){_END}"
    rf"|(?<![\d.,])\d+,\d{{2}}{_END}(?=\s*(?:{_MONEY}|[%|]|$))",  # "Figures 1,20 and 1,21" are no numbers
    re.MULTILINE,
)
_MARK = re.compile(r"(?<=\d)[.,](?=\d)")
_OTHER = {".": ",", ",": "."}


@dataclass(kw_only=True)
class Numerals:
    """How many numbers of a document have a decimal point, and how many a decimal comma."""

    points: int = 0
    commas: int = 0

    def read(self, page: Page) -> None:
        """Count those of a page."""
        for text in [span.text for span in page.spans] or [page.markdown]:
            self.points += sum(1 for _ in _POINT.finditer(text))
            self.commas += sum(1 for _ in _COMMA.finditer(text))

    def settle(self, leaf: Leaf, offer: Offer | None) -> Offer | None:
        """An offer that was read as English has numbers, as this document has them; None where that cannot be told."""
        if offer is None or self.commas <= self.points or isinstance(offer.value, str | bool):
            return offer
        taken = take(leaf, _MARK.sub(lambda mark: _OTHER[mark[0]], offer.text))
        if taken is not None and taken.value == offer.value:
            return offer
        return replace(offer, value=taken.value) if taken is not None and not self.points else None

    def settled(self, won: Callable[[Leaf], Offer | None]) -> Callable[[Leaf], Offer | None]:
        """What has won, settled."""
        return lambda leaf: self.settle(leaf, won(leaf))
