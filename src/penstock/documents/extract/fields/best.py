"""Which offer wins for each leaf: the one of the best standing, if all of that standing agree.

Only the best is kept of each leaf, so a thousand pages take no more room than one.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.documents.extract.fields.layout import Text
from penstock.documents.extract.fields.tree import Leaf
from penstock.documents.extract.fields.values import Taken, take

Standing: TypeAlias = tuple[int, ...]  # less is better


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A value with the place where it stands."""

    value: Any
    text: str
    at: Text

    def agrees(self, other: "Offer") -> bool:
        """Whether both say the same. True is not 1."""
        return type(self.value) is type(other.value) and self.value == other.value


def offer_of(leaf: Leaf, text: str, at: Text) -> Offer | None:
    """What a text offers to a leaf."""
    taken: Taken | None = take(leaf, text)
    return None if taken is None else Offer(value=taken.value, text=taken.text, at=at)


def tick_of(leaf: Leaf, at: Text, *, is_ticked: bool) -> Offer | None:
    """What a box that is ticked or not offers to a leaf."""
    fits = leaf.is_yes_or_no and leaf.judge.is_valid(is_ticked)
    return Offer(value=is_ticked, text=at.text, at=at) if fits else None


@dataclass(kw_only=True)
class _Held:
    standing: Standing
    offer: Offer
    contested: bool = False


@dataclass(kw_only=True)
class Best:
    """The best offers so far."""

    _held: dict[Leaf, _Held] = field(default_factory=dict)

    def hear(self, leaf: Leaf, standing: Standing, offer: Offer) -> None:
        """Take note of an offer."""
        held = self._held.get(leaf)
        if held is None or standing < held.standing:
            self._held[leaf] = _Held(standing=standing, offer=offer)
        elif standing == held.standing and not offer.agrees(held.offer):
            held.contested = True

    def of(self, leaf: Leaf) -> Offer | None:
        """The offer that has won."""
        held = self._held.get(leaf)
        return None if held is None or held.contested else held.offer

    def contested(self) -> list[Leaf]:
        """The leaves whose best offers do not agree."""
        return [leaf for leaf, held in self._held.items() if held.contested]
