"""The notify module as a `ModuleSpec`, from its dependencies."""

from datetime import timedelta

from penstock.kernel.module import ModuleSpec
from penstock.notify import api, worker
from penstock.notify.delivery_jobs import MODULE
from penstock.notify.deps import Deps


def notify_module(deps: Deps, *, history: timedelta) -> ModuleSpec:
    """The notify module, which keeps deliveries for `history` (PENSTOCK_HISTORY_DAYS)."""
    return ModuleSpec(
        name=MODULE,
        routers=[api.router],
        state={"notify": deps},
        jobs=worker.handlers(deps),
        sinks=[worker.WebhookFanOut(deps)],
        periodic_tasks=worker.periodic_tasks(deps, history=history),
    )
