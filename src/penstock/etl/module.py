"""The etl module as a `ModuleSpec`, from its dependencies, which `wiring/etl.py` builds."""

from functools import partial

from penstock.etl import api, worker
from penstock.etl.deps import Deps
from penstock.etl.metrics import EtlQueueMetrics
from penstock.etl.upload import clean_scratch_periodically
from penstock.kernel.module import BackgroundTask, ModuleSpec


def etl_module(deps: Deps) -> ModuleSpec:
    """The etl module."""
    return ModuleSpec(
        name=worker.MODULE,
        routers=api.ROUTERS,
        state={"etl": deps},
        uploads=api.UPLOADS,
        jobs=worker.handlers(deps),
        retries=worker.retries(deps),
        messages=worker.message_handlers(deps),
        slots=deps.config.slots,
        arq_queue_name=deps.config.arq_queue_name,
        arq_functions=worker.arq_functions(deps),
        sinks=[worker.RunStateSink(deps)],
        periodic_tasks=worker.periodic_tasks(deps),
        background=[
            BackgroundTask(run=partial(worker.import_rules, deps)),
            BackgroundTask(run=partial(clean_scratch_periodically, deps)),
        ],
        metrics=[deps.metrics, EtlQueueMetrics(deps.db, queue_size=deps.config.queue_size)],
    )
