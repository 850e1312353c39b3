"""The gateway module as a `ModuleSpec`, from its dependencies, which `wiring/gateway.py` builds."""

from penstock.gateway import api, worker
from penstock.gateway.api.live_writers import LiveWriters
from penstock.gateway.api.uploads import RESPONSE_HEADERS
from penstock.gateway.deps import Deps
from penstock.kernel.module import ModuleSpec


def gateway_module(deps: Deps) -> ModuleSpec:
    """The gateway module."""
    return ModuleSpec(
        name=worker.MODULE,
        routers=api.ROUTERS,
        state={"gateway": deps, "upload_writers": LiveWriters(deps)},
        uploads=api.UPLOADS,
        headers=RESPONSE_HEADERS,
        method_override=api.UPLOADS,
        jobs=worker.handlers(deps),
        periodic_tasks=worker.periodic_tasks(deps),
        metrics=[deps.metrics],
    )
