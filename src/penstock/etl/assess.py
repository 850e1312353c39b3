"""Assess: how good a rule is by what people said of its results, and what they said.

Everybody sees what was said about their own tasks, an admin about everyone's: a rule of the system's is used by many.
A figure is made of the latest reviews, of which each row knows its sums, so its cost is bounded whatever there is.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from penstock.access.domain import Caller
from penstock.etl.deps import Deps
from penstock.etl.domain.review import Accuracy, Correction, Review, Tally
from penstock.etl.errors import RuleNotFound
from penstock.etl.store import reviews, rules
from penstock.etl.store.reviews import OfRule

MOST_REVIEWS = 1000  # that a figure is made of
REVIEWS_AT_ONCE = 100
MOST_FIELDS = 500
CORRECTIONS_AT_ONCE = 100  # of some 64 KB each at the most


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which corrections of a rule a caller wants: of one version, older than one that is known, at most so many."""

    rule_id: int
    version: int | None = None
    before: int | None = None
    limit: int | None = None


async def accuracy(tools: Deps, caller: Caller, rule_id: int, *, version: int | None = None) -> Accuracy:
    """How many values of a rule's results were right, over the latest reviews."""
    of = await _of_rule(tools, caller, rule_id, version)
    sums, last = _Sums(rule_id), None
    while sums.reviews < MOST_REVIEWS:
        async with tools.db.read() as tx:
            page = await reviews.list_reviews(tx, of, before=last, limit=REVIEWS_AT_ONCE)
        for review in page:
            sums.add(review)
        if len(page) < REVIEWS_AT_ONCE:
            return sums.accuracy(is_all=True)
        last = page[-1].id
    async with tools.db.read() as tx:
        return sums.accuracy(is_all=not await reviews.list_reviews(tx, of, before=last, limit=1))


async def walk(tools: Deps, caller: Caller, wanted: Wanted) -> AsyncIterator[list[Correction]]:
    """Corrections of a rule's results that stand, newest first, in pages; the first may be empty."""
    of = await _of_rule(tools, caller, wanted.rule_id, wanted.version)
    before, left = wanted.before, wanted.limit
    while left is None or left > 0:
        limit = CORRECTIONS_AT_ONCE if left is None else min(left, CORRECTIONS_AT_ONCE)
        async with tools.db.read() as tx:
            page = await reviews.list_of_rule(tx, of, before=before, limit=limit)
        yield page
        if len(page) < limit:
            return
        before, left = page[-1].id, None if left is None else left - limit


async def _of_rule(tools: Deps, caller: Caller, rule_id: int, version: int | None) -> OfRule:
    """What of a rule the caller may see, or `RuleNotFound`."""
    async with tools.db.read() as tx:
        if await rules.find_rule_for(tx, caller, rule_id, default_id=tools.terms.default_rule_id) is None:
            raise RuleNotFound(rule_id=rule_id)
    return OfRule(rule_id=rule_id, user_id=None if caller.is_admin else caller.user_id, version=version)


class _Sums:
    """Adds reviews up, one by one."""

    def __init__(self, rule_id: int) -> None:
        self.reviews = 0
        self._rule_id = rule_id
        self._sum = Tally()
        self._fields: dict[str, tuple[int, int]] = {}
        self._versions: dict[int, Tally] = {}
        self._tasks: dict[int, bool] = {}  # and whether one of their results was reviewed whole

    def add(self, review: Review) -> None:
        """One more. Where all that was said has been taken back, nothing was looked at."""
        self.reviews += 1
        tally, version = review.tally, review.rule_version
        if not tally.values and not review.is_whole:
            return
        self._sum = _sum(self._sum, tally)
        self._versions[version] = _sum(self._versions.get(version, Tally()), tally)
        self._tasks[review.task_id] = review.is_whole or self._tasks.get(review.task_id, False)
        for field, (values, corrected) in tally.fields.items():
            if field in self._fields or len(self._fields) < MOST_FIELDS:
                known = self._fields.get(field, (0, 0))
                self._fields[field] = (known[0] + values, known[1] + corrected)

    def accuracy(self, *, is_all: bool) -> Accuracy:
        """What it comes to."""
        return Accuracy(
            rule_id=self._rule_id,
            tally=replace(self._sum, fields=dict(sorted(self._fields.items()))),
            reviewed_tasks=len(self._tasks),
            reviewed_whole=sum(self._tasks.values()),
            versions=dict(sorted(self._versions.items(), reverse=True)),
            is_all=is_all,
        )


def _sum(one: Tally, other: Tally) -> Tally:
    """Both, without their fields."""
    return Tally(values=one.values + other.values, corrected=one.corrected + other.corrected)
