"""HTTP of the room: shapes and routes, in the envelope of its family. It translates and decides nothing."""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.tasks.api import (
    feed,
    leases,
    history,
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

# Paths with fixed words stand before those where a name can be anything: the first that fits is taken.
ROUTERS: Sequence[APIRouter] = (
    push.router,
    pull.quick,
    pull.router,
    history.router,
    hand_back.router,
    feed.router,
    operations.router,
    stats.router,
    projects.router,
    queues.router,
    tasks.router,
    progress.router,
    manage.router,
)
