"""What people say about a result: that a value is wrong, that it is right, or that all of it was looked at.

A review belongs to one run of a task, since each run has a result of its own. The original is never changed: a
correction stands beside it until a later one takes its place, or somebody withdraws it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.kernel.errors import Conflict, Invalid, NotFound, TooLarge

MOST_AT_ONCE = 200  # corrections of one call
MOST_OF_TASK = 1000  # corrections of one task, those that stand no more among them
MOST_NOTE = 2000  # characters
MOST_VALUE_BYTES = 32 * 1024  # as JSON: of a value that is corrected, and of what takes its place
MOST_RESULT_BYTES = 8 * 1024 * 1024
WHOLE = "result"  # how the place of the whole is called: its pointer is empty


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a correction is not taken. `place` is a JSON Pointer into the result, or the field of the request."""

    place: str
    reason: str
    reason_zh: str

    @property
    def where(self) -> str:
        """The place by a name that is never empty."""
        return self.place or WHOLE

    @property
    def told(self) -> dict[str, str]:
        """As errors put it into words."""
        return {"place": self.where, "reason": self.reason, "reason_zh": self.reason_zh}


class BadCorrections(Invalid):
    """Corrections name nothing, contradict each other, or would make a result that the rule's schema does not take."""

    code = "BAD_CORRECTION"
    message = "The correction does not fit ({place}): {reason}"
    message_zh = "更正不符合要求（{place}）：{reason_zh}"
    hint = (
        "A pointer is a JSON Pointer (RFC 6901) into the result; the corrected result must satisfy the rule's schema."
    )
    hint_zh = "pointer 是指向结果的 JSON Pointer（RFC 6901）；更正后的结果须符合规则的 schema。"

    def __init__(self, *, problems: Sequence[Problem], **_told: object) -> None:
        """The first one is told of in words; who makes it anew elsewhere gives these words, too."""
        self.problems = problems
        super().__init__(problems=problems, **problems[0].told)


class CorrectionNotFound(NotFound):
    """The task has no such correction."""

    code = "CORRECTION_NOT_FOUND"
    message = "Task {task_id} has no correction {correction_id}."
    message_zh = "任务 {task_id} 没有更正 {correction_id}。"
    hint = "Look at the corrections of the task for those it has."
    hint_zh = "请查看该任务的更正列表。"


class CorrectionOver(Conflict):
    """A correction cannot be withdrawn: a later one took its place, or the task was tried again since."""

    code = "CORRECTION_OVER"
    message = "Correction {correction_id} does not stand any more."
    message_zh = "更正 {correction_id} 已不再有效。"
    hint = "Only corrections of the task's present run that no later one has replaced can be withdrawn."
    hint_zh = "只能撤回任务当前轮次中未被取代的更正。"


class CorrectionNeeded(Conflict):
    """Without this correction the others do not fit."""

    code = "CORRECTION_NEEDED"
    message = "Correction {correction_id} cannot be withdrawn: {place}: {reason}"
    message_zh = "无法撤回更正 {correction_id}：{place}：{reason_zh}"
    hint = "Withdraw or change the corrections that build on it first."
    hint_zh = "请先撤回或修改依赖于它的更正。"


class CorrectionsFull(Conflict):
    """A task has as many corrections as may be."""

    code = "CORRECTIONS_FULL"
    message = "Task {task_id} would have more than {most} corrections, which is the most."
    message_zh = "任务 {task_id} 的更正数将超过上限 {most}。"
    hint = "Earlier ones count, too. Correct whole parts at once, or try the task again with a better rule."
    hint_zh = "历史更正也计入。请一次更正整个部分，或改进规则后重试任务。"


class ResultNotReviewable(TooLarge):
    """A result is too large to be looked at and checked while somebody waits."""

    code = "RESULT_NOT_REVIEWABLE"
    message = "The result of task {task_id} cannot be reviewed: {reason}."
    message_zh = "无法审阅任务 {task_id} 的结果：{reason}。"
    hint = "Results of up to 8 MiB and 100,000 values can be reviewed."
    hint_zh = "可审阅的结果上限为 8 MiB 和 100,000 个值。"


class ReviewBusy(Conflict):
    """Others correct the same result at the same time, again and again."""

    code = "REVIEW_BUSY"
    message = "Others were quicker to correct the result of task {task_id}."
    message_zh = "其他人正在更正任务 {task_id} 的结果。"
    hint = "Look at what they said, then send it again."
    hint_zh = "请先查看他们的更正，然后重新提交。"
    retryable = True


@dataclass(frozen=True, kw_only=True)
class NewCorrection:
    """What somebody says a value should be. `value` is JSON as text."""

    pointer: str
    value: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Correction:
    """One value, what it was and what it should be, both as JSON. Without an original there was none."""

    id: int
    task_id: int
    run: int
    user_id: int  # whose task it is
    rule_id: int
    rule_version: int
    pointer: str
    field: str  # the pointer with * for each number in a list
    original: str | None
    corrected: str
    confirms: bool  # both are the same: the original is right
    note: str | None
    created_at: datetime
    created_by: str
    superseded_at: datetime | None = None
    withdrawn_at: datetime | None = None
    ended_by: str | None = None

    @property
    def stands(self) -> bool:
        """Whether it is laid over the result."""
        return self.superseded_at is None and self.withdrawn_at is None


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many values were looked at and how many of them were wrong, in all and by field."""

    values: int = 0
    corrected: int = 0
    fields: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The share that was right; none where nobody looked."""
        return (self.values - self.corrected) / self.values if self.values else None

    @property
    def by_field(self) -> dict[str, "Tally"]:
        """The same of each field."""
        return {name: Tally(values=values, corrected=wrong) for name, (values, wrong) in self.fields.items()}


@dataclass(frozen=True, kw_only=True)
class Review:
    """What was said about the result of one run."""

    id: int
    task_id: int
    run: int
    user_id: int
    rule_id: int
    rule_version: int
    revision: int  # grows with everything that is said
    reviewed_at: datetime | None  # when somebody said that all of it was looked at
    reviewed_by: str | None
    tally: Tally

    @property
    def is_whole(self) -> bool:
        """Whether somebody looked at every value."""
        return self.reviewed_at is not None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How good a rule is, by the latest reviews of its results."""

    rule_id: int
    tally: Tally
    reviewed_tasks: int
    reviewed_whole: int
    versions: Mapping[int, Tally]
    is_all: bool  # whether no review was left out
