"""Alarms: what is out of order in a project is told once when it begins, and once when it is over.

Which alarms are raised stands in a table, so it is the same for all processes and survives them: whoever writes the row
tells of it. Prometheus can raise the same alarms from metrics (deploy/prometheus); these need no Prometheus.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from penstock.kernel.db import Db, Tx
from penstock.kernel.message import Event
from penstock.kernel.scheduler import PeriodicTask
from penstock.tasks.domain import Alarm, Outcome
from penstock.tasks.metrics import LEAST_ENDED, RECENT
from penstock.tasks.lifecycle import stream_name
from penstock.tasks.store import alerts
from penstock.tasks.store.alerts import Raised

log = logging.getLogger(__name__)

ACTOR = "timekeeper"
WATCH_SECONDS = 60
MINUTE = timedelta(minutes=1)
MOST_TOLD = 1000  # of each kind in one round; the others are told in the next
ACTIONS = ("tasks.reset", "tasks.reset_error", "tasks.rerun")  # what the audit log calls queue operations

Readings = dict[tuple[str, Alarm], float]  # by project and what was measured in it


@dataclass(frozen=True, kw_only=True)
class AlertRules:
    """From where on something is out of order; 0 is never."""

    success_rate: float = 80.0  # percent of the pulls that ended within an hour: fewer were pushed
    overdue: float = 100  # more pulls timed out within an hour
    requests: float = 60_000  # more pulls in a minute
    operations: float = 100  # more queue operations in an hour

    def threshold(self, rule: Alarm) -> float:
        """The number that a rule goes by."""
        numbers: dict[Alarm, float] = {
            Alarm.SUCCESS_RATE: self.success_rate,
            Alarm.OVERDUE: self.overdue,
            Alarm.REQUESTS: self.requests,
            Alarm.OPERATIONS: self.operations,
        }
        return numbers[rule]

    def is_broken(self, rule: Alarm, value: float) -> bool:
        """Whether that much is out of order."""
        threshold = self.threshold(rule)
        return bool(threshold) and (value < threshold if rule is Alarm.SUCCESS_RATE else value > threshold)


def duty(db: Db, rules: AlertRules) -> PeriodicTask:
    """The watch, for a timekeeper."""
    return PeriodicTask(name="watch-pulls", every_seconds=WATCH_SECONDS, run=partial(watch, db, rules))


async def watch(db: Db, rules: AlertRules) -> None:
    """Look at every project where something happened, and tell what is newly out of order, or in order again."""
    async with db.read() as tx:
        readings = await _measure(tx)
        raised = {(one.project_pk, one.rule): one for one in await alarms.list_alarms(tx)}
        names = await alarms.list_project_ids(tx, {pk for pk, _ in [*readings, *raised]})
    broken = {key for key, value in readings.items() if key[0] in names and rules.is_broken(key[1], value)}
    begun, over = sorted(broken - raised.keys())[:MOST_TOLD], sorted(raised.keys() - broken)[:MOST_TOLD]
    if not begun and not over:
        return
    async with db.tx(actor=ACTOR) as tx:
        for project_pk, rule in begun:
            new = Raised(project_pk=project_pk, rule=rule, since=tx.now, value=readings[project_pk, rule])
            if await alarms.insert_alarm(tx, new):
                _tell(tx, "alert", names[project_pk], new, rules, value=new.value)
        for key in over:
            if await alarms.delete_alarm(tx, raised[key]) and key[0] in names:
                _tell(tx, "alert_over", names[key[0]], raised[key], rules, value=readings.get(key))


async def _measure(tx: Tx) -> Readings:
    """What there is to say about each project where something happened."""
    readings: Readings = {}
    for project_pk, outcomes in (await alarms.count_outcomes_by_project(tx, since=tx.now - RECENT)).items():
        readings[project_pk, Alarm.OVERDUE] = outcomes.get(Outcome.TIMED_OUT, 0)
        if sum(outcomes.values()) >= LEAST_ENDED:
            readings[project_pk, Alarm.SUCCESS_RATE] = _percent_pushed(outcomes)
    for project_pk, number in (await alarms.count_requests_by_project(tx, since=tx.now - MINUTE)).items():
        readings[project_pk, Alarm.REQUESTS] = number
    operations = await alarms.count_operations_by_project(tx, ACTIONS, since=tx.now - RECENT)
    pks = await alarms.list_project_pks(tx, operations.keys())
    for project_id, project_pk in pks.items():
        readings[project_pk, Alarm.OPERATIONS] = operations[project_id]
    return readings


def _percent_pushed(outcomes: Mapping[str, int]) -> float:
    return round(100 * outcomes.get(Outcome.PUSHED, 0) / sum(outcomes.values()), 2)


def _tell(tx: Tx, kind: str, project_id: str, what: Raised, rules: AlertRules, *, value: float | None) -> None:
    name, threshold = stream_name(project_id), rules.threshold(what.rule)
    log.warning("%s %s: %s is %s, the limit is %s", name, kind, what.rule, value, threshold)
    data = {"rule": what.rule.value, "value": value, "threshold": threshold, "since": what.since.isoformat()}
    tx.tell(Event(topic=name, kind=kind, audience=name, data=data))
