"""Reviews and corrections of results: a value is wrong, a value is right, or the whole result was reviewed.

A review belongs to one run of a task, since each run has its own result. The original result is never changed: a
correction is stored beside it and stays active until a later correction supersedes it or somebody withdraws it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.kernel.errors import Conflict, Invalid, NotFound, TooLarge

MAX_CORRECTIONS_PER_CALL = 200
MAX_CORRECTIONS_PER_TASK = 1000  # including superseded and withdrawn ones
MAX_NOTE_CHARS = 2000
MAX_VALUE_BYTES = 32 * 1024  # size as JSON of the original and of the corrected value
MAX_RESULT_BYTES = 8 * 1024 * 1024
WHOLE_RESULT = "result"  # shown instead of the empty pointer to the whole result


@dataclass(frozen=True, kw_only=True)
class CorrectionProblem:
    """Why a correction is rejected. `place` is a JSON Pointer into the result, or a field of the request."""

    place: str
    reason: str
    reason_zh: str

    @property
    def where(self) -> str:
        """The place, by a name that is never empty."""
        return self.place or WHOLE_RESULT

    @property
    def message_values(self) -> dict[str, str]:
        """The values for the placeholders of error messages."""
        return {"place": self.where, "reason": self.reason, "reason_zh": self.reason_zh}


class BadCorrections(Invalid):
    """Corrections point nowhere, contradict each other, or would make the result violate the rule's schema."""

    code = "BAD_CORRECTION"
    message = "Invalid correction ({place}): {reason}"
    message_zh = "更正无效（{place}）：{reason_zh}"
    hint = (
        "A pointer is a JSON Pointer (RFC 6901) into the result; the corrected result must satisfy the rule's schema."
    )
    hint_zh = "pointer 是指向结果的 JSON Pointer（RFC 6901）；更正后的结果须符合规则的 schema。"

    def __init__(self, *, problems: Sequence[CorrectionProblem], **_values: object) -> None:
        """The message describes the first problem. Unpickling passes the message's values too; they are ignored."""
        self.problems = problems
        super().__init__(problems=problems, **problems[0].message_values)


class CorrectionNotFound(NotFound):
    """The task has no such correction."""

    code = "CORRECTION_NOT_FOUND"
    message = "Task {task_id} has no correction {correction_id}."
    message_zh = "任务 {task_id} 没有更正 {correction_id}。"
    hint = "List the corrections of the task."
    hint_zh = "请查看该任务的更正列表。"


class CorrectionNotActive(Conflict):
    """A correction cannot be withdrawn: a later one superseded it, or the task was retried since."""

    code = "CORRECTION_OVER"
    message = "Correction {correction_id} is no longer active."
    message_zh = "更正 {correction_id} 已不再有效。"
    hint = "Only active corrections of the task's current run can be withdrawn."
    hint_zh = "只能撤回任务当前轮次中仍有效的更正。"


class CorrectionRequired(Conflict):
    """Other corrections are only valid together with this one."""

    code = "CORRECTION_NEEDED"
    message = "Correction {correction_id} cannot be withdrawn: {place}: {reason}"
    message_zh = "无法撤回更正 {correction_id}：{place}：{reason_zh}"
    hint = "Withdraw or change the corrections that depend on it first."
    hint_zh = "请先撤回或修改依赖于它的更正。"


class CorrectionsFull(Conflict):
    """A task has reached the maximum number of corrections."""

    code = "CORRECTIONS_FULL"
    message = "Task {task_id} would have more than {most} corrections, the maximum."
    message_zh = "任务 {task_id} 的更正数将超过上限 {most}。"
    hint = "Superseded and withdrawn ones count too. Correct whole objects at once, or improve the rule and retry."
    hint_zh = "已被取代和已撤回的更正也计入。请一次更正整个对象，或改进规则后重试任务。"


class ResultNotReviewable(TooLarge):
    """A result is too large to be checked within a request."""

    code = "RESULT_NOT_REVIEWABLE"
    message = "Cannot review the result of task {task_id}: {reason}."
    message_zh = "无法审阅任务 {task_id} 的结果：{reason}。"
    hint = "Results of up to 8 MiB and 100,000 values can be reviewed."
    hint_zh = "可审阅的结果上限为 8 MiB 和 100,000 个值。"


class ReviewBusy(Conflict):
    """Concurrent corrections of the same result kept changing it."""

    code = "REVIEW_BUSY"
    message = "The result of task {task_id} is being corrected by others at the same time."
    message_zh = "其他人正在更正任务 {task_id} 的结果。"
    hint = "Read their corrections, then send yours again."
    hint_zh = "请先查看他们的更正，然后重新提交。"
    retryable = True


@dataclass(frozen=True, kw_only=True)
class NewCorrection:
    """A correction to be stored. `value` is JSON text."""

    pointer: str
    value: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Correction:
    """One value of a result: the original and the corrected one as JSON text. `original` is None if it was missing."""

    id: int
    task_id: int
    run: int
    user_id: int  # owner of the task
    rule_id: int
    rule_version: int
    pointer: str
    field: str  # the pointer with * for each list index
    original: str | None
    corrected: str
    confirms: bool  # original and corrected are equal: the value is right
    note: str | None
    created_at: datetime
    created_by: str
    superseded_at: datetime | None = None
    withdrawn_at: datetime | None = None
    ended_by: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether it applies to the result: neither superseded nor withdrawn."""
        return self.superseded_at is None and self.withdrawn_at is None


@dataclass(frozen=True, kw_only=True)
class ValueCounts:
    """How many values were reviewed and how many of them were wrong, in total and by field."""

    values: int = 0
    corrected: int = 0
    fields: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The share of values that was right; None if none was reviewed."""
        return (self.values - self.corrected) / self.values if self.values else None

    @property
    def by_field(self) -> dict[str, "ValueCounts"]:
        """The counts of each field."""
        return {name: ValueCounts(values=values, corrected=wrong) for name, (values, wrong) in self.fields.items()}


@dataclass(frozen=True, kw_only=True)
class Review:
    """The review of one run's result."""

    id: int
    task_id: int
    run: int
    user_id: int
    rule_id: int
    rule_version: int
    revision: int  # grows with every change
    reviewed_at: datetime | None  # when somebody marked the whole result as reviewed
    reviewed_by: str | None
    counts: ValueCounts

    @property
    def is_whole(self) -> bool:
        """Whether every value was reviewed."""
        return self.reviewed_at is not None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Accuracy of a rule by the latest reviews of its results."""

    rule_id: int
    counts: ValueCounts
    reviewed_tasks: int
    reviewed_whole: int
    versions: Mapping[int, ValueCounts]
    is_all: bool  # False if older reviews were left out
