"""What a module contributes to a process: one `ModuleSpec` per module.

`wiring` and `web` read every field in the same way for every module and know nothing else about a module. A field that
a module does not need keeps its default.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.registry import Collector

from penstock.kernel.blobs import Blobs
from penstock.kernel.job_dispatch import ArqFunction
from penstock.kernel.message import Message
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import JobQueue
from penstock.kernel.rate_limits import RateLimits
from penstock.kernel.relay import MessageHandler, Sink
from penstock.kernel.retry import Backoff
from penstock.kernel.runner import JobHandler
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.side_loop import SideLoop


class Router(Protocol):
    """Routes of the HTTP app; an `APIRouter` is one."""

    @property
    def routes(self) -> Sequence[Any]:
        """The routes, in the order in which they are matched."""
        ...


class Services(Protocol):
    """The services of a process that a module is built from, besides the database and the settings."""

    @property
    def queue(self) -> JobQueue:
        """The job queue."""
        ...

    @property
    def blobs(self) -> Blobs:
        """The blob store."""
        ...

    @property
    def runs(self) -> RunState:
        """Run state with the default time to live."""
        ...

    @property
    def limits(self) -> RateLimits:
        """Rate limits and quotas."""
        ...

    @property
    def side_loop(self) -> SideLoop:
        """The event loop for transactions that compute for long."""
        ...

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox for code that handles untrusted input."""
        ...


@dataclass(frozen=True, kw_only=True)
class BackgroundTask:
    """Work that runs in every process of these kinds from start to stop. It handles its own failures."""

    run: Callable[[], Coroutine[Any, Any, None]]
    kinds: frozenset[ProcessKind] = frozenset(ProcessKind)


@dataclass(frozen=True, kw_only=True)
class ModuleSpec:
    """One module: a part of the product with its own tables."""

    name: str  # also the module of its jobs, in the queue and in `penstock work --modules`
    # HTTP
    routers: Sequence[Router] = ()
    state: Mapping[str, object] = field(default_factory=dict)  # what its routes find in `app.state`
    envelope: Sequence[str] = ()  # path prefixes whose errors outside of a route use the envelope format
    uploads: Sequence[str] = ()  # path prefixes whose routes limit request bodies themselves
    headers: Mapping[str, Sequence[tuple[bytes, bytes]]] = field(default_factory=dict)  # of all responses below a path
    method_override: Sequence[str] = ()  # path prefixes where X-HTTP-Method-Override is read
    # Jobs
    jobs: Mapping[str, JobHandler] = field(default_factory=dict)  # by kind
    retries: Mapping[str, Backoff] = field(default_factory=dict)  # by kind, where the default does not fit
    slots: int | None = None  # worker slots of its own; without, its jobs share slots with other modules
    arq_queue_name: str | None = None  # where ARQ distributes jobs; without, a name made from the module's
    arq_functions: Mapping[str, ArqFunction] = field(default_factory=dict)  # by kind: what other programs know of it
    # Messages
    messages: Mapping[type[Message], Sequence[MessageHandler]] = field(default_factory=dict)  # those it handles
    sinks: Sequence[Sink] = ()
    # Time
    periodic_tasks: Sequence[PeriodicTask] = ()  # once in the cluster
    background: Sequence[BackgroundTask] = ()  # in every process
    # Operation
    metrics: Sequence[Collector] = ()
