"""HTTP API of the tasks module: request models, routes and responses. It translates and decides nothing."""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.tasks.api import (
    feed,
    history,
    leases,
    manage,
    operations,
    progress,
    projects,
    pull,
    push,
    queues,
    stats,
    tasks,
)

# Order matters: the first matching path wins, so fixed paths come before paths with parameters.
ROUTERS: Sequence[APIRouter] = (
    push.router,
    pull.fast_router,
    pull.router,
    history.router,
    leases.router,
    feed.router,
    operations.router,
    stats.router,
    projects.router,
    queues.router,
    tasks.router,
    progress.router,
    manage.router,
)
