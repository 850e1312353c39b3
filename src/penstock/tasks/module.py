"""The tasks module as a `ModuleSpec`: built from the settings and the services of a process."""

from penstock.kernel.coalescer import Coalescer
from penstock.kernel.db import Db
from penstock.kernel.module import ModuleSpec, Services
from penstock.settings import BadSetting, Settings
from penstock.tasks import worker
from penstock.tasks.alerts import AlertThresholds
from penstock.tasks.api import ROUTERS
from penstock.tasks.deps import Config, Deps
from penstock.tasks.metrics import PullHealthMetrics, TaskMetrics
from penstock.tasks.pull_limits import BadRate, PullLimiter, Rate, read_rates

ENVELOPE = tuple(f"/api/v1/{path}" for path in ("projects", "tasks/", "submit", "stats"))


def build_tasks(settings: Settings, db: Db, services: Services) -> ModuleSpec:
    """The tasks module."""
    deps = _deps(settings, db, services)
    return ModuleSpec(
        name=worker.MODULE,
        routers=ROUTERS,
        state={"tasks": deps},
        envelope=ENVELOPE,
        jobs=worker.handlers(deps),
        messages=worker.message_handlers(deps),
        periodic_tasks=[*worker.periodic_tasks(deps), worker.alert_task(db, _alert_thresholds(settings))],
        metrics=[deps.metrics, PullHealthMetrics(db, pull_timeout=deps.config.pull_timeout)],
    )


def _deps(settings: Settings, db: Db, services: Services) -> Deps:
    config = Config(
        pull_timeout=settings.pull_timeout,
        batch_size=settings.pull_batch_size,
        max_attempts=settings.pull_max_attempts,
        wait_seconds=settings.pull_wait_seconds,
        stats_seconds=settings.pull_stats_seconds,
        history_days=settings.pull_history_days,
        expiry_time=settings.task_expiry_time,
        expired_action=settings.task_expired_action,
        reset_clears_pulls=settings.reset_clear_pull_status,
        rerun_clears_pulls=settings.rerun_clear_pull_status,
        operation_limit=settings.task_operation_limit,
    )
    limiter = PullLimiter(
        services.limits,
        db.clock,
        rates=_rates(settings.pull_rate_limit),
        min_interval=settings.pull_min_interval,
        quota=settings.pull_quota,
    )
    return Deps(
        db=db,
        queue=services.queue,
        config=config,
        limiter=limiter,
        metrics=TaskMetrics(),
        side_loop=services.side_loop,
        coalescer=Coalescer(),
    )


def _rates(text: str) -> list[Rate]:
    try:
        return read_rates(text)
    except BadRate as error:
        reason = "expected a value like 60/minute, 1000/hour, or both separated by a comma"
        raise BadSetting(env="PULL_RATE_LIMIT", value=text, reason=reason) from error


def _alert_thresholds(settings: Settings) -> AlertThresholds:
    return AlertThresholds(
        success_rate=settings.pull_alert_success_rate,
        overdue=settings.pull_alert_overdue,
        requests=settings.pull_alert_requests,
        operations=settings.pull_alert_operations,
    )
