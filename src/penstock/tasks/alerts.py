"""Alerts on pulls of a project: a violation of an alert rule publishes one event `alert`, and `alert_over` at its end.

Active alerts are rows of a table, shared by all processes and kept across restarts: the process that inserts or deletes
the row sends the event. Prometheus can raise the same alerts from metrics (deploy/prometheus); these need none.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from penstock.kernel.db import Tx
from penstock.kernel.message import Event
from penstock.tasks.domain import AlertRule, PullOutcome
from penstock.tasks.lifecycle import event_topic
from penstock.tasks.metrics import MIN_ENDED_PULLS, RECENT
from penstock.tasks.store import alerts
from penstock.tasks.store.alerts import ActiveAlert

log = logging.getLogger(__name__)

ACTOR = "timekeeper"  # stored in events and state transitions, so the word stays
MINUTE = timedelta(minutes=1)
MAX_EVENTS = 1000  # of each kind per run; the rest follows in the next run
ACTIONS = ("tasks.reset", "tasks.reset_error", "tasks.rerun")  # audit log actions of queue operations

Readings = dict[tuple[str, AlertRule], float]  # by project and rule


@dataclass(frozen=True, kw_only=True)
class AlertThresholds:
    """Thresholds of the alert rules; 0 disables a rule."""

    success_rate: float = 80.0  # minimum percent of the pulls that ended within an hour and were pushed
    overdue: float = 100  # maximum expired leases within an hour
    requests: float = 60_000  # maximum pull requests per minute
    operations: float = 100  # maximum queue operations per hour

    def threshold(self, rule: AlertRule) -> float:
        """The threshold of a rule."""
        numbers: dict[AlertRule, float] = {
            AlertRule.SUCCESS_RATE: self.success_rate,
            AlertRule.OVERDUE: self.overdue,
            AlertRule.REQUESTS: self.requests,
            AlertRule.OPERATIONS: self.operations,
        }
        return numbers[rule]

    def is_broken(self, rule: AlertRule, value: float) -> bool:
        """Whether a value violates a rule."""
        threshold = self.threshold(rule)
        return bool(threshold) and (value < threshold if rule is AlertRule.SUCCESS_RATE else value > threshold)


@dataclass(frozen=True, kw_only=True)
class AlertState:
    """The current values of the rules, the active alerts, and the ids of their projects."""

    readings: Readings
    active: Mapping[tuple[str, AlertRule], ActiveAlert]
    project_ids: Mapping[str, str]  # by primary key

    def broken(self, thresholds: AlertThresholds) -> set[tuple[str, AlertRule]]:
        """The projects and rules whose value violates the threshold."""
        known = ((key, value) for key, value in self.readings.items() if key[0] in self.project_ids)
        return {key for key, value in known if thresholds.is_broken(key[1], value)}

    def is_current(self, thresholds: AlertThresholds) -> bool:
        """Whether no alert starts or ends."""
        return self.active.keys() == self.broken(thresholds)


async def read_state(tx: Tx) -> AlertState:
    """Evaluate the alert rules of every project with activity."""
    readings = await _measure(tx)
    active = {(one.project_pk, one.rule): one for one in await alerts.list_alerts(tx)}
    project_ids = await alerts.list_project_ids(tx, {pk for pk, _ in [*readings, *active]})
    return AlertState(readings=readings, active=active, project_ids=project_ids)


async def update_alerts(tx: Tx, thresholds: AlertThresholds, state: AlertState) -> None:
    """Start and end alerts. Of several processes, the one that inserts or deletes the row sends the event."""
    readings, active, names = state.readings, state.active, state.project_ids
    broken = state.broken(thresholds)
    for project_pk, rule in sorted(broken - active.keys())[:MAX_EVENTS]:
        new = ActiveAlert(project_pk=project_pk, rule=rule, since=tx.now, value=readings[project_pk, rule])
        if await alerts.insert_alert(tx, new):
            _send_event(tx, "alert", names[project_pk], new, thresholds, value=new.value)
    for key in sorted(active.keys() - broken)[:MAX_EVENTS]:
        if await alerts.delete_alert(tx, active[key]) and key[0] in names:
            _send_event(tx, "alert_over", names[key[0]], active[key], thresholds, value=readings.get(key))


async def _measure(tx: Tx) -> Readings:
    """The current values of the rules for each project with activity."""
    readings: Readings = {}
    for project_pk, outcomes in (await alerts.count_outcomes_by_project(tx, since=tx.now - RECENT)).items():
        readings[project_pk, AlertRule.OVERDUE] = outcomes.get(PullOutcome.TIMED_OUT, 0)
        if sum(outcomes.values()) >= MIN_ENDED_PULLS:
            readings[project_pk, AlertRule.SUCCESS_RATE] = _percent_pushed(outcomes)
    for project_pk, number in (await alerts.count_requests_by_project(tx, since=tx.now - MINUTE)).items():
        readings[project_pk, AlertRule.REQUESTS] = number
    operations = await alerts.count_operations_by_project(tx, ACTIONS, since=tx.now - RECENT)
    pks = await alerts.list_project_pks(tx, operations.keys())
    for project_id, project_pk in pks.items():
        readings[project_pk, AlertRule.OPERATIONS] = operations[project_id]
    return readings


def _percent_pushed(outcomes: Mapping[str, int]) -> float:
    return round(100 * outcomes.get(PullOutcome.PUSHED, 0) / sum(outcomes.values()), 2)


def _send_event(
    tx: Tx, kind: str, project_id: str, alert: ActiveAlert, thresholds: AlertThresholds, *, value: float | None
) -> None:
    topic, threshold = event_topic(project_id), thresholds.threshold(alert.rule)
    log.warning("%s %s: %s is %s, threshold %s", topic, kind, alert.rule, value, threshold)
    data = {"rule": alert.rule.value, "value": value, "threshold": threshold, "since": alert.since.isoformat()}
    tx.publish(Event(topic=topic, kind=kind, audience=topic, data=data))
