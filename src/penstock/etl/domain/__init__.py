"""Etl tasks, rules and reviews as values, without I/O."""

from penstock.etl.domain.rule import DEFAULT_RULE, Mode, ReviewPolicy, ReviewReason, Rule, RuleBody, Strategy
from penstock.etl.domain.task import (
    CHINESE_TEXTS,
    ETL_TASK,
    FINAL,
    FROM_STAGE,
    REVIEW,
    EtlTask,
    Failure,
    Phase,
    ReviewStatus,
    Stage,
    Status,
)

__all__ = [
    "CHINESE_TEXTS",
    "DEFAULT_RULE",
    "ETL_TASK",
    "FINAL",
    "FROM_STAGE",
    "REVIEW",
    "EtlTask",
    "Failure",
    "Mode",
    "Phase",
    "ReviewPolicy",
    "ReviewReason",
    "ReviewStatus",
    "Rule",
    "RuleBody",
    "Stage",
    "Status",
    "Strategy",
]
