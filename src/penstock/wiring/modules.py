"""The modules of the product, and what they contribute together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TypeVar

from penstock.access.module import access_module
from penstock.etl.deps import Deps as EtlDeps
from penstock.gateway.deps import GIB
from penstock.gateway.deps import Config as GatewayConfig
from penstock.gateway.deps import Deps as GatewayDeps
from penstock.gateway.module import gateway_module
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import ArqFunction, JobsWaiting
from penstock.kernel.message import Message
from penstock.kernel.module import ModuleSpec, Router
from penstock.kernel.relay import MessageHandler, Routes
from penstock.kernel.retry import Backoff
from penstock.kernel.workers import JobHandler
from penstock.messages import PUBLIC
from penstock.notify.deps import Deps as NotifyDeps
from penstock.notify.module import notify_module
from penstock.settings import Settings
from penstock.tasks.deps import Deps as TasksDeps
from penstock.tasks.module import build_tasks
from penstock.wiring.backends import Backends, build_tokens
from penstock.wiring.etl import SANDBOX_PRELOAD, build_etl

T = TypeVar("T")
ModuleBuilder = Callable[[Settings, Db, Backends], ModuleSpec]


def build_access(settings: Settings, db: Db, _backends: Backends) -> ModuleSpec:
    """Access, with the verifier of JWTs."""
    return access_module(settings, db, build_tokens(settings, db.clock))


def build_notify(settings: Settings, db: Db, backends: Backends) -> ModuleSpec:
    """Notify, with the client that calls webhooks."""
    deps = NotifyDeps(
        db=db,
        queue=backends.queue,
        client=backends.webhook_client,
        channels=PUBLIC,
        max_attempts=settings.webhook_attempts,
        user_agent=f"penstock/{version('penstock')}",
    )
    return notify_module(deps, history=timedelta(days=settings.history_days))


def build_gateway(settings: Settings, db: Db, backends: Backends) -> ModuleSpec:
    """Gateway, with the staging area of the blob store."""
    gateway = settings.gateway
    config = GatewayConfig(
        max_bytes=int(gateway.tus_max_size_gb * GIB),
        expiry_seconds=gateway.tus_expiry_hours * 3600,
        silence_seconds=gateway.tus_chunk_timeout_sec,
        takeover_seconds=gateway.tus_takeover_sec,
        max_open=gateway.max_open_uploads,
        allowed_types=frozenset(kind.strip().lower().lstrip(".") for kind in gateway.allowed_types.split(",")),
    )
    deps = GatewayDeps(db=db, queue=backends.queue, blobs=backends.blobs, staging=backends.staging, config=config)
    return gateway_module(deps)


@dataclass(frozen=True)
class ModuleEntry:
    """How a module is built. A module that needs adapters is built by a function of wiring, any other by its own."""

    build: ModuleBuilder
    preload: Sequence[str] = ()  # Python modules that its calls import in the sandbox, imported once before it forks
    migrations: Path | None = None  # a folder of its own; the modules of the product share `kernel/migrations`


# Every module of the product.
MODULES: Mapping[str, ModuleEntry] = {
    "access": ModuleEntry(build_access),
    "notify": ModuleEntry(build_notify),
    "tasks": ModuleEntry(build_tasks),
    "gateway": ModuleEntry(build_gateway),
    "etl": ModuleEntry(build_etl, preload=SANDBOX_PRELOAD),
}


def migration_folders(modules: Mapping[str, ModuleEntry] = MODULES) -> list[Path]:
    """Folders of migrations besides `kernel/migrations`."""
    return [entry.migrations for entry in modules.values() if entry.migrations is not None]


@dataclass(frozen=True)
class Modules:
    """The modules of a process.

    `etl` and `tasks` are the dependencies of these modules with their types: commands and tests call verbs with them.
    """

    specs: tuple[ModuleSpec, ...]

    def __post_init__(self) -> None:
        for what in ("jobs", "state"):
            names = [name for spec in self.specs for name in getattr(spec, what)]
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"two modules have the same {what}: {sorted(twice)}")

    @property
    def tasks(self) -> TasksDeps:
        """The dependencies of the tasks module."""
        return self._state("tasks", TasksDeps)

    @property
    def etl(self) -> EtlDeps:
        """The dependencies of the etl module."""
        return self._state("etl", EtlDeps)

    @property
    def with_jobs(self) -> tuple[str, ...]:
        """The modules whose jobs a worker runs; the empty name is for jobs of no module."""
        return ("", *(spec.name for spec in self.specs if spec.jobs))

    @property
    def slots(self) -> Mapping[str, int]:
        """The modules with worker slots of their own."""
        return {spec.name: spec.slots for spec in self.specs if spec.slots is not None}

    @property
    def arq_queue_names(self) -> Mapping[str, str]:
        """The names of ARQ queues that modules choose."""
        return {spec.name: spec.arq_queue_name for spec in self.specs if spec.arq_queue_name is not None}

    @property
    def arq_functions(self) -> Mapping[str, ArqFunction]:
        """The kinds of jobs that other programs know as functions of an ARQ queue."""
        return {kind: function for spec in self.specs for kind, function in spec.arq_functions.items()}

    @property
    def jobs(self) -> Mapping[str, JobHandler]:
        """The job handlers by kind."""
        return {kind: handler for spec in self.specs for kind, handler in spec.jobs.items()}

    @property
    def retries(self) -> Mapping[str, Backoff]:
        """The backoff of job kinds that do not use the default."""
        return {kind: backoff for spec in self.specs for kind, backoff in spec.retries.items()}

    @property
    def routes(self) -> Routes:
        """The handlers of each message. JobsWaiting stays in the outbox when the queue changes from ARQ back to SQL."""
        routes: dict[type[Message], list[MessageHandler]] = {JobsWaiting: []}
        for spec in self.specs:
            for message, handlers in spec.messages.items():
                routes.setdefault(message, []).extend(handlers)
        return routes

    @property
    def routers(self) -> list[Router]:
        """The routers, in the order of the modules."""
        return list(chain.from_iterable(spec.routers for spec in self.specs))

    @property
    def state(self) -> Mapping[str, object]:
        """What routes find in `app.state`."""
        return {name: value for spec in self.specs for name, value in spec.state.items()}

    def replacing(self, spec: ModuleSpec) -> "Modules":
        """With another spec for the module of that name; for tests and benchmarks."""
        return Modules(tuple(spec if spec.name == old.name else old for old in self.specs))

    def _state(self, name: str, kind: type[T]) -> T:
        value = self.state[name]
        assert isinstance(value, kind)
        return value


def build_modules(
    settings: Settings, db: Db, backends: Backends, modules: Mapping[str, ModuleEntry] = MODULES
) -> Modules:
    """Build every module."""
    specs = {name: entry.build(settings, db, backends) for name, entry in modules.items()}
    if misnamed := [spec.name for name, spec in specs.items() if spec.name != name]:
        raise ValueError(f"modules are listed under another name than their own: {misnamed}")
    return Modules(tuple(specs.values()))
