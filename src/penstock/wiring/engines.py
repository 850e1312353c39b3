"""Which engine stands behind which port: chosen by the settings, once."""

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.access.key_set import KeySet
from penstock.access.tokens import Tokens, algorithms_of
from penstock.adapters.addresses import Reach
from penstock.adapters.arq_queue import QueueNames, Tickets
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.guarded_http import GuardedPoster
from penstock.adapters.jwks import jwks_over_http
from penstock.adapters.llm import ChatCompletions
from penstock.adapters.llm_shaper import PRELOAD as ASKING
from penstock.adapters.local_reader import engine_sandbox, parser_sandbox
from penstock.adapters.mineru.reader import MineruReader
from penstock.adapters.postgres_notifier import PostgresNotifier
from penstock.adapters.redis.limits import RedisRateLimits
from penstock.adapters.redis.link import RedisLink
from penstock.adapters.redis.notifier import RedisNotifier
from penstock.adapters.redis.runs import RedisRunState
from penstock.adapters.s3 import Keys, S3Blobs, S3Place
from penstock.etl import overlay, schemas
from penstock.etl import worker as etl_worker
from penstock.kernel import events, outbox
from penstock.kernel.announce import announce_by_message, announce_nothing
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.db import Db
from penstock.kernel.engines import behind_pooler
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.ids import TimeIds
from penstock.kernel.notifier import Notifier
from penstock.kernel.queue import Queue
from penstock.kernel.rate_limits import SqlRateLimits
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.settings import BadSetting, Settings
from penstock.wiring.models import build_mineru, build_models

if TYPE_CHECKING:
    from penstock.adapters.otel import OtelTracing

# What works on rules, on what they ask for, and on what people say about it.
CHECKS = (*schemas.PRELOAD, *overlay.PRELOAD, *ASKING, "penstock.documents.extract.fields.find")


@dataclass(frozen=True, kw_only=True)
class ReadingRooms:
    """The sandboxes in which documents are read. Nothing is started before the first document."""

    parsers: Sandbox
    engine: Sandbox

    async def close(self) -> None:
        """Stop both."""
        try:
            await self.engine.close()
        finally:
            await self.parsers.close()


@dataclass(frozen=True, kw_only=True)
class Engines:
    """What stands behind the ports of one house."""

    redis: RedisLink | None
    bell: Notifier | None
    blobs: DiskBlobs | S3Blobs
    queue: Queue
    tickets: Tickets | None  # where ARQ hands jobs out
    runs: SqlRunState | RedisRunState
    limits: FallbackLimits
    limit_engine: SqlRateLimits | RedisRateLimits
    poster: GuardedPoster
    sandbox: Sandbox
    reading: ReadingRooms
    models: ChatCompletions
    mineru: MineruReader | None  # who reads documents, where this machine does not
    tracing: "OtelTracing | None"

    async def close(self) -> None:
        """Give everything back that was opened."""
        async with AsyncExitStack() as closing:  # one that fails does not keep the others open
            for part in (
                self.models,
                self.mineru,
                self.reading,
                self.sandbox,
                self.poster,
                self.bell,
                self.redis,
                self.tracing,
            ):
                if part is not None:
                    closing.push_async_callback(part.close)


def choose(settings: Settings, db: Db, *, owner: str) -> Engines:
    """The engines that the settings ask for. Nothing is connected yet."""
    redis = RedisLink(settings.redis_url, db.clock) if settings.redis_url else None
    arq = redis is not None and uses_arq(settings)
    quotas = SqlRateLimits(db)
    rates = RedisRateLimits(redis, db.clock, quotas) if redis else quotas
    limits = FallbackLimits(rates, clock=db.clock, share=settings.local_gate_share)
    blobs, reading = build_blobs(settings, db.clock), build_reading_rooms(settings)
    return Engines(
        redis=redis,
        bell=build_notifier(settings, redis, owner=owner),
        blobs=blobs,
        queue=Queue(announce=announce_by_message if arq else announce_nothing),
        tickets=Tickets(redis, db.clock, names=queue_names(settings)) if redis and arq else None,
        runs=build_runs(settings, db, redis),
        limits=limits,
        limit_engine=rates,
        poster=build_poster(settings),
        sandbox=Sandbox(preload=CHECKS),
        reading=reading,
        models=build_models(settings, db.clock, limits),
        mineru=build_mineru(settings, db.clock, blobs, reading.parsers),
        tracing=build_tracing(settings, owner=owner),
    )


def open_db(settings: Settings, clock: Clock) -> Db:
    """The database with its outbox and its events."""
    return Db.open(
        settings.database,
        clock=clock,
        ids=TimeIds(clock),
        post=outbox.post,
        publish=events.publish,
        pooled=settings.database_pooler,
        connections=settings.database_connections,
    )


def open_database(settings: Settings) -> Db:
    """The database alone, for commands that need nothing else."""
    return open_db(settings, SystemClock())


def build_blobs(settings: Settings, clock: Clock) -> DiskBlobs | S3Blobs:
    """Where objects are kept: a folder, or a bucket."""
    url = urlsplit(settings.blobs_url)
    if url.scheme == "s3":
        return S3Blobs(_s3_place(settings), clock=clock)
    if not settings.blobs_url:
        return DiskBlobs(settings.data_dir / "blobs")
    if url.scheme != "file" or url.netloc or not url.path:
        reason = "it has to be file:///absolute/path or s3://bucket/prefix"
        raise BadSetting(env="PENSTOCK_BLOBS_URL", value=f"{url.scheme}:…", reason=reason)  # it may hold a password
    return DiskBlobs(Path(url.path))


def _s3_place(settings: Settings) -> S3Place:
    given = settings.aws_access_key_id or settings.aws_secret_access_key
    keys = Keys(
        key_id=settings.aws_access_key_id,
        secret=settings.aws_secret_access_key,
        token=settings.aws_session_token,
    )
    endpoint, region = settings.aws_endpoint_url, settings.aws_region
    return S3Place.at(settings.blobs_url, keys=keys if given else None, region=region, endpoint=endpoint)


def build_runs(settings: Settings, db: Db, redis: RedisLink | None) -> SqlRunState | RedisRunState:
    """How far runs are."""
    seconds = {"live_seconds": settings.run_state_seconds, "final_seconds": settings.run_state_final_seconds}
    return RedisRunState(redis, db.clock, **seconds) if redis else SqlRunState(db, **seconds)


def build_reading_rooms(settings: Settings) -> ReadingRooms:
    """As many engines as there are processors to run them, and no more than stages that could ask for one."""
    engines = min(settings.etl.worker_count, os.cpu_count() or 1)
    return ReadingRooms(
        parsers=parser_sandbox(), engine=engine_sandbox(settings.etl.ocr_profile, most_children=engines)
    )


def build_poster(settings: Settings) -> GuardedPoster:
    """What posts to addresses that outsiders gave us."""
    try:
        reach = Reach.of(settings.webhook_allow.split(","))
    except ValueError as error:
        reason = f"networks look like 10.0.0.0/8: {error}"
        raise BadSetting(env="PENSTOCK_WEBHOOK_ALLOW", value=settings.webhook_allow, reason=reason) from error
    return GuardedPoster(reach, seconds=settings.webhook_seconds)


def build_notifier(settings: Settings, redis: RedisLink | None, *, owner: str) -> Notifier | None:
    """What wakes other processes. Without one everybody looks once a second."""
    if redis is not None:
        return RedisNotifier(redis, owner=owner)
    if settings.embedded or settings.database_pooler or behind_pooler(settings.database):
        return None  # SQLite has none, and a transaction pooler forbids LISTEN
    return PostgresNotifier(settings.database, owner=owner)


def queue_names(settings: Settings) -> QueueNames:
    """The ARQ queues whose names are set."""
    return {etl_worker.ROOM: settings.etl.arq_queue_name}


def uses_arq(settings: Settings) -> bool:
    """Whether ARQ hands jobs to workers."""
    if settings.job_queue == "arq" and not settings.redis_url:
        reason = "ARQ needs a Redis: set PENSTOCK_REDIS_URL too"
        raise BadSetting(env="PENSTOCK_JOB_QUEUE", value=settings.job_queue, reason=reason)
    return bool(settings.redis_url) and settings.job_queue != "sql"


def build_tracing(settings: Settings, *, owner: str) -> "OtelTracing | None":
    """Who is told about requests and jobs, where someone is. Imported only then: it takes a third of a second."""
    if not settings.otel_endpoint:
        return None
    from penstock.adapters.otel import OtelTracing

    name, endpoint = settings.otel_service_name, settings.otel_endpoint
    return OtelTracing(endpoint, service_name=name, version=version("penstock"), owner=owner)


def build_tokens(settings: Settings, clock: Clock) -> Tokens:
    """Who signs JWTs that we take."""
    key_set = None
    if settings.jwks_url:
        algorithms = algorithms_of(settings.jwt_algorithms)
        key_set = KeySet(jwks_over_http(settings.jwks_url), clock, algorithms=algorithms)
    return Tokens(
        clock,
        secret=settings.jwt_secret,
        key_set=key_set,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        skew_seconds=settings.jwt_skew_seconds,
    )
