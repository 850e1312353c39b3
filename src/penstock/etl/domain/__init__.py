"""Etl tasks and rules as values, without any I/O."""

from penstock.etl.domain.rule import DEFAULT_RULE, Mode, Rule, RuleBody, Strategy
from penstock.etl.domain.task import ETL_TASK, FINAL, FROM_STAGE, IN_CHINESE, EtlTask, Failure, Phase, Stage, Status

__all__ = [
    "DEFAULT_RULE",
    "ETL_TASK",
    "FINAL",
    "FROM_STAGE",
    "IN_CHINESE",
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
