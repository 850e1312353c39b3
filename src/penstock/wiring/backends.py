"""The backends that the settings choose: SQLite or PostgreSQL, disk or S3, SQL or Redis.

What processes share (events, jobs, blobs) is in these backends, so any server can answer any client, and a load
balancer needs no sticky sessions.
"""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.access.jwks import JwkSet
from penstock.access.tokens import Tokens, parse_algorithms
from penstock.adapters.addresses import AddressPolicy
from penstock.adapters.disk import DiskBlobs, DiskStaging
from penstock.adapters.guarded_http import GuardedHttpClient
from penstock.adapters.jwks import jwks_over_http
from penstock.adapters.llm import ChatCompletions
from penstock.adapters.local_reader import engine_sandbox, parser_sandbox
from penstock.adapters.mineru.reader import MineruReader
from penstock.adapters.postgres_notifier import PostgresNotifier
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import RedisNotifier
from penstock.adapters.redis.rate_limits import RedisRateLimits
from penstock.adapters.redis.runs import RedisRunState
from penstock.adapters.s3 import S3Blobs, S3Bucket, S3Credentials, S3Staging
from penstock.kernel import events, outbox
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.db import Db
from penstock.kernel.dialect.engines import behind_pooler
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.http.client_address import TrustedProxies
from penstock.kernel.ids import TimeIds
from penstock.kernel.job_dispatch import dispatch_by_outbox
from penstock.kernel.notifier import Notifier
from penstock.kernel.queue import JobQueue
from penstock.kernel.rate_limits import SqlRateLimits
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.side_loop import SideLoop
from penstock.settings import BadSetting, Settings
from penstock.wiring.models import build_mineru, build_models

if TYPE_CHECKING:
    from penstock.adapters.otel import OtelTracing

SIDE_CONNECTIONS = 2  # large requests run one at a time


@dataclass(frozen=True, kw_only=True)
class DocumentSandboxes:
    """The sandboxes that read documents. No child is started before the first document."""

    parsers: Sandbox
    engine: Sandbox

    async def close(self) -> None:
        """Stop their children."""
        try:
            await self.engine.close()
        finally:
            await self.parsers.close()


@dataclass(frozen=True, kw_only=True)
class Backends:
    """The backends of one runtime."""

    redis: RedisClient | None
    notifier: Notifier | None
    blobs: DiskBlobs | S3Blobs
    staging: DiskStaging | S3Staging
    queue: JobQueue
    runs: SqlRunState | RedisRunState
    limits: FallbackLimits
    limit_engine: SqlRateLimits | RedisRateLimits
    webhook_client: GuardedHttpClient
    sandbox: Sandbox
    document_sandboxes: DocumentSandboxes
    models: ChatCompletions
    mineru: MineruReader | None  # set when MinerU reads documents instead of this machine
    tracing: "OtelTracing | None"
    side_loop: SideLoop

    async def close(self) -> None:
        """Close everything that was opened."""
        async with AsyncExitStack() as closing:  # a failing close does not skip the others
            for part in (
                self.side_loop,
                self.models,
                self.mineru,
                self.document_sandboxes,
                self.sandbox,
                self.webhook_client,
                self.notifier,
                self.redis,
                self.tracing,
            ):
                if part is not None:
                    closing.push_async_callback(part.close)


def build_backends(settings: Settings, db: Db, *, owner: str, preload: Sequence[str]) -> Backends:
    """The backends that the settings choose. Nothing is connected yet. `preload` is imported by the sandbox."""
    redis = RedisClient(settings.redis_url, db.clock) if settings.redis_url else None
    quotas = SqlRateLimits(db)
    rates = RedisRateLimits(redis, db.clock, quotas) if redis else quotas
    limits = FallbackLimits(rates, clock=db.clock, share=settings.local_gate_share)
    blobs, sandboxes = build_blobs(settings, db.clock), build_document_sandboxes(settings)
    return Backends(
        redis=redis,
        notifier=build_notifier(settings, redis, owner=owner),
        blobs=blobs,
        queue=build_queue(settings),
        staging=build_staging(settings, db.clock, blobs),
        runs=build_runs(settings, db, redis),
        limits=limits,
        limit_engine=rates,
        webhook_client=build_webhook_client(settings),
        sandbox=Sandbox(preload=preload),
        document_sandboxes=sandboxes,
        models=build_models(settings, db.clock, limits),
        mineru=build_mineru(settings, db.clock, blobs, sandboxes.parsers),
        tracing=build_tracing(settings, owner=owner),
        side_loop=SideLoop(db, partial(open_db, settings, db.clock, connections=SIDE_CONNECTIONS)),
    )


def open_db(settings: Settings, clock: Clock, *, connections: int | None = None) -> Db:
    """The database with its outbox and its events."""
    return Db.open(
        settings.database,
        clock=clock,
        ids=TimeIds(clock),
        post=outbox.post,
        publish=events.insert_events,
        pooled=settings.database_pooler,
        connections=connections or settings.database_connections,
    )


def open_database(settings: Settings) -> Db:
    """The database by itself, for commands that need nothing else."""
    return open_db(settings, SystemClock())


def build_blobs(settings: Settings, clock: Clock) -> DiskBlobs | S3Blobs:
    """The blob store: a folder, or an S3 bucket."""
    url = urlsplit(settings.blobs_url)
    if url.scheme == "s3":
        return S3Blobs(_s3_place(settings), clock=clock)
    if not settings.blobs_url:
        return DiskBlobs(settings.data_dir / "blobs")
    if url.scheme != "file" or url.netloc or not url.path:
        reason = "expected file:///absolute/path or s3://bucket/prefix"
        raise BadSetting(
            env="PENSTOCK_BLOBS_URL", value=f"{url.scheme}:…", reason=reason
        )  # the URL may contain a password
    return DiskBlobs(Path(url.path))


def build_staging(settings: Settings, clock: Clock, blobs: DiskBlobs | S3Blobs) -> DiskStaging | S3Staging:
    """The staging area of the blob store."""
    if isinstance(blobs, DiskBlobs):
        return DiskStaging(blobs.folder)
    scratch, parts = settings.data_dir / "uploads", settings.gateway.s3_max_parts
    return S3Staging(blobs, _s3_place(settings), clock=clock, scratch=scratch, max_parts=parts)


def _s3_place(settings: Settings) -> S3Bucket:
    given = settings.aws_access_key_id or settings.aws_secret_access_key
    keys = S3Credentials(
        key_id=settings.aws_access_key_id,
        secret=settings.aws_secret_access_key,
        token=settings.aws_session_token,
    )
    endpoint, region = settings.aws_endpoint_url, settings.aws_region
    return S3Bucket.at(settings.blobs_url, keys=keys if given else None, region=region, endpoint=endpoint)


def build_runs(settings: Settings, db: Db, redis: RedisClient | None) -> SqlRunState | RedisRunState:
    """The run state store."""
    seconds = {"live_seconds": settings.run_state_seconds, "final_seconds": settings.run_state_final_seconds}
    return RedisRunState(redis, db.clock, **seconds) if redis else SqlRunState(db, **seconds)


def build_document_sandboxes(settings: Settings) -> DocumentSandboxes:
    """One OCR child per processor, but no more than there are worker slots to use them."""
    children = min(settings.etl.worker_count, os.cpu_count() or 1)
    return DocumentSandboxes(
        parsers=parser_sandbox(), engine=engine_sandbox(settings.etl.ocr_profile, max_children=children)
    )


def build_webhook_client(settings: Settings) -> GuardedHttpClient:
    """The HTTP client for webhooks, whose addresses callers choose: it calls only allowed networks."""
    try:
        reach = AddressPolicy.of(settings.webhook_allow.split(","))
    except ValueError as error:
        reason = f"expected networks like 10.0.0.0/8: {error}"
        raise BadSetting(env="PENSTOCK_WEBHOOK_ALLOW", value=settings.webhook_allow, reason=reason) from error
    return GuardedHttpClient(reach, seconds=settings.webhook_seconds)


def build_notifier(settings: Settings, redis: RedisClient | None, *, owner: str) -> Notifier | None:
    """The notifier that wakes other processes; without one, processes poll once a second."""
    if redis is not None:
        return RedisNotifier(redis, owner=owner)
    if settings.embedded or settings.database_pooler or behind_pooler(settings.database):
        return None  # SQLite has no LISTEN, and a transaction pooler forbids it
    return PostgresNotifier(settings.database, owner=owner)


def uses_arq(settings: Settings) -> bool:
    """Whether ARQ distributes jobs to workers."""
    if settings.job_queue == "arq" and not settings.redis_url:
        reason = "ARQ needs Redis: set PENSTOCK_REDIS_URL too"
        raise BadSetting(env="PENSTOCK_JOB_QUEUE", value=settings.job_queue, reason=reason)
    return bool(settings.redis_url) and settings.job_queue != "sql"


def build_queue(settings: Settings) -> JobQueue:
    """The job queue. With ARQ, a job that waits is also a message, which the relay of some process passes to ARQ."""
    return JobQueue(dispatch=dispatch_by_outbox) if uses_arq(settings) else JobQueue()


def build_tracing(settings: Settings, *, owner: str) -> "OtelTracing | None":
    """OpenTelemetry tracing, if an endpoint is set. Imported only then: the import takes a third of a second."""
    if not settings.otel_endpoint:
        return None
    from penstock.adapters.otel import OtelTracing

    name, endpoint = settings.otel_service_name, settings.otel_endpoint
    return OtelTracing(endpoint, service_name=name, version=version("penstock"), owner=owner)


def build_proxies(settings: Settings) -> TrustedProxies:
    """The proxies that the settings trust."""
    try:
        return TrustedProxies.of(settings.trusted_proxies)
    except ValueError as error:
        reason = "expected addresses or networks like 10.0.0.0/8"
        raise BadSetting(env="PENSTOCK_TRUSTED_PROXIES", value=settings.trusted_proxies, reason=reason) from error


def build_tokens(settings: Settings, clock: Clock) -> Tokens:
    """The verifier of JWTs."""
    key_set = None
    if settings.jwks_url:
        algorithms = parse_algorithms(settings.jwt_algorithms)
        key_set = JwkSet(jwks_over_http(settings.jwks_url), clock, algorithms=algorithms)
    return Tokens(
        clock,
        secret=settings.jwt_secret,
        key_set=key_set,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        skew_seconds=settings.jwt_skew_seconds,
        merchant_projects=settings.merchant_projects != "none",
    )
