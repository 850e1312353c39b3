"""Accuracy of a rule by the reviews of its results, and the list of its corrections.

Users see the reviews of their own tasks, admins of all tasks: a system rule is used by many. Accuracy is computed over
the latest reviews, and each review row stores its counts, so the cost is bounded.
"""

from dataclasses import dataclass, replace

from penstock.access.domain import Caller
from penstock.etl.deps import Deps
from penstock.etl.domain.review import Accuracy, Correction, Review, ValueCounts
from penstock.etl.errors import RuleNotFound
from penstock.etl.store import reviews, rules
from penstock.etl.store.reviews import RuleFilter
from penstock.kernel.db import Tx

MAX_REVIEWS = 1000  # the latest ones count
REVIEWS_PAGE = 100
MAX_FIELDS = 500
CORRECTIONS_PAGE = 100  # of up to 64 KB each


@dataclass(frozen=True, kw_only=True)
class CorrectionQuery:
    """Which corrections of a rule to list: of one version, with an id below `before`, at most `limit`."""

    rule_id: int
    version: int | None = None
    before: int | None = None
    limit: int | None = None


async def add_page(tx: Tx, chosen: RuleFilter, sums: "AccuracySums") -> None:
    """Add the next page of reviews; the sums are complete after the last page, or when enough were added."""
    limit = min(REVIEWS_PAGE, MAX_REVIEWS - sums.reviews)
    page = await reviews.list_reviews(tx, chosen, before=sums.last_id, limit=limit + 1)
    for review in page[:limit]:
        sums.add(review)
    sums.is_all = len(page) <= limit
    sums.is_complete = sums.is_all or sums.reviews >= MAX_REVIEWS


async def list_corrections(
    tx: Tx, chosen: RuleFilter, query: CorrectionQuery
) -> tuple[list[Correction], CorrectionQuery | None]:
    """A page of a rule's active corrections, newest first, and the query of the next page, if any."""
    limit = CORRECTIONS_PAGE if query.limit is None else min(query.limit, CORRECTIONS_PAGE)
    page = await reviews.list_of_rule(tx, chosen, before=query.before, limit=limit)
    left = None if query.limit is None else query.limit - limit
    if len(page) < limit or left == 0:
        return page, None
    return page, replace(query, before=page[-1].id, limit=left)


async def get_rule_filter(tx: Tx, deps: Deps, caller: Caller, rule_id: int, version: int | None) -> RuleFilter:
    """The reviews of a rule that the caller can access, or `RuleNotFound`."""
    if await rules.find_rule_for(tx, caller, rule_id, default_id=deps.config.default_rule_id) is None:
        raise RuleNotFound(rule_id=rule_id)
    return RuleFilter(rule_id=rule_id, user_id=None if caller.is_admin else caller.user_id, version=version)


class AccuracySums:
    """Sums up reviews, newest first."""

    def __init__(self, rule_id: int) -> None:
        self.reviews = 0
        self.last_id: int | None = None
        self.is_all = False  # no earlier review is left out
        self.is_complete = False
        self._rule_id = rule_id
        self._sum = ValueCounts()
        self._fields: dict[str, tuple[int, int]] = {}
        self._versions: dict[int, ValueCounts] = {}
        self._tasks: dict[int, bool] = {}  # by task: whether one of its results was reviewed as a whole

    def add(self, review: Review) -> None:
        """Add one review. One whose corrections were all withdrawn counts as not reviewed."""
        self.reviews += 1
        self.last_id = review.id
        counts, version = review.counts, review.rule_version
        if not counts.values and not review.is_whole:
            return
        self._sum = _sum(self._sum, counts)
        self._versions[version] = _sum(self._versions.get(version, ValueCounts()), counts)
        self._tasks[review.task_id] = review.is_whole or self._tasks.get(review.task_id, False)
        for field, (values, corrected) in counts.fields.items():
            if field in self._fields or len(self._fields) < MAX_FIELDS:
                known = self._fields.get(field, (0, 0))
                self._fields[field] = (known[0] + values, known[1] + corrected)

    def accuracy(self) -> Accuracy:
        """The sums as a value."""
        return Accuracy(
            rule_id=self._rule_id,
            counts=replace(self._sum, fields=dict(sorted(self._fields.items()))),
            reviewed_tasks=len(self._tasks),
            reviewed_whole=sum(self._tasks.values()),
            versions=dict(sorted(self._versions.items(), reverse=True)),
            is_all=self.is_all,
        )


def _sum(one: ValueCounts, other: ValueCounts) -> ValueCounts:
    """Both counts together, without their fields."""
    return ValueCounts(values=one.values + other.values, corrected=one.corrected + other.corrected)
