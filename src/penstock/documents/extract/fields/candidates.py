"""Candidate values of leaves: the one with the best rank wins, if all candidates of that rank agree.

Only the best candidate per leaf is kept, so memory does not grow with the number of pages.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.documents.extract.fields.layout import LayoutText
from penstock.documents.extract.fields.schema_tree import LeafNode
from penstock.documents.extract.fields.values import ParsedValue, parse_value

Rank: TypeAlias = tuple[int, ...]  # lower is better


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A value with its source on the page."""

    value: Any
    text: str
    source: LayoutText

    def agrees_with(self, other: "Candidate") -> bool:
        """Whether both values are equal, also in type: True is not 1."""
        return type(self.value) is type(other.value) and self.value == other.value


def parse_candidate(leaf: LeafNode, text: str, source: LayoutText) -> Candidate | None:
    """The candidate that a text is for a leaf; None when it does not parse."""
    parsed: ParsedValue | None = parse_value(leaf, text)
    return None if parsed is None else Candidate(value=parsed.value, text=parsed.text, source=source)


def checkbox_candidate(leaf: LeafNode, source: LayoutText, *, is_checked: bool) -> Candidate | None:
    """The candidate that a checkbox is for a leaf; None when the leaf takes no boolean."""
    fits = leaf.is_boolean and leaf.validator.is_valid(is_checked)
    return Candidate(value=is_checked, text=source.text, source=source) if fits else None


@dataclass(kw_only=True)
class _Leader:
    rank: Rank
    candidate: Candidate
    ambiguous: bool = False


@dataclass(kw_only=True)
class CandidateSet:
    """The best candidate of each leaf."""

    _leaders: dict[LeafNode, _Leader] = field(default_factory=dict)

    def add(self, leaf: LeafNode, rank: Rank, candidate: Candidate) -> None:
        """Add a candidate with its rank."""
        leader = self._leaders.get(leaf)
        if leader is None or rank < leader.rank:
            self._leaders[leaf] = _Leader(rank=rank, candidate=candidate)
        elif rank == leader.rank and not candidate.agrees_with(leader.candidate):
            leader.ambiguous = True

    def best(self, leaf: LeafNode) -> Candidate | None:
        """The best candidate of a leaf; None when there is none, or several that disagree."""
        leader = self._leaders.get(leaf)
        return None if leader is None or leader.ambiguous else leader.candidate

    def ambiguous(self) -> list[LeafNode]:
        """The leaves whose best candidates disagree."""
        return [leaf for leaf, leader in self._leaders.items() if leader.ambiguous]
