"""Etl tasks, rules and reviews as values, without I/O."""

from penstock.etl.domain.rule import DEFAULT_RULE, Mode, Rule, RuleBody, Strategy
from penstock.etl.domain.task import CHINESE_TEXTS, ETL_TASK, FINAL, FROM_STAGE, EtlTask, Failure, Phase, Stage, Status

__all__ = [
    "CHINESE_TEXTS",
    "DEFAULT_RULE",
    "ETL_TASK",
    "FINAL",
    "FROM_STAGE",
    "EtlTask",
    "Failure",
    "Mode",
    "Phase",
    "Rule",
    "RuleBody",
    "Stage",
    "Status",
    "Strategy",
]
