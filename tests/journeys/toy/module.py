"""The toy module as a `ModuleSpec`."""

from pathlib import Path

from penstock.kernel.db import Db
from penstock.kernel.module import ModuleSpec, Services
from penstock.settings import Settings
from tests.journeys.toy import worker
from tests.journeys.toy.api import router
from tests.journeys.toy.deps import Deps

MIGRATIONS = Path(__file__).parent / "migrations"


def build_toy(_settings: Settings, db: Db, services: Services) -> ModuleSpec:
    """The toy module."""
    deps = Deps(db=db, queue=services.queue)
    return ModuleSpec(
        name=worker.MODULE,
        routers=[router],
        state={"toy": deps},
        envelope=["/api/v1/toy/"],
        jobs=worker.jobs(deps),
        messages=worker.messages(deps),
        periodic_tasks=worker.periodic_tasks(deps),
        metrics=[deps.metrics],
    )
