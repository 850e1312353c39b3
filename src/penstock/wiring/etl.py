"""The etl module with its document reader, its post-processors and their settings."""

from functools import partial
from pathlib import Path

from penstock.adapters.arq_queue import ArqQueuePositions
from penstock.adapters.llm_postprocessor import PRELOAD, LlmPostProcessor, LlmPostProcessorConfig
from penstock.adapters.local_reader import LocalReader, ReaderLimits
from penstock.adapters.postprocessors import FieldsPostProcessor, SkipPostProcessor
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.runs import RedisRunState
from penstock.documents.postprocessor import PostProcessor
from penstock.etl import correction_check, rule_validation
from penstock.etl.deps import Config, Deps
from penstock.etl.domain import Mode
from penstock.etl.module import etl_module
from penstock.etl.worker import MODULE
from penstock.kernel.backlog import SqlQueuePositions
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import QueuePositions
from penstock.kernel.module import ModuleSpec
from penstock.kernel.retry import Backoff
from penstock.kernel.runstate import RunState, SqlRunState
from penstock.kernel.stages.run_waits import RunWaits
from penstock.settings import Settings
from penstock.settings.etl import EtlSettings
from penstock.wiring.backends import Backends, uses_arq

# What checks of rules, post-processing and checks of corrections import in the sandbox.
SANDBOX_PRELOAD = (
    *rule_validation.PRELOAD,
    *correction_check.PRELOAD,
    *PRELOAD,
    "penstock.documents.extract.fields.find",
)


def build_etl_runs(settings: Settings, db: Db, redis: RedisClient | None) -> RunState:
    """Run state with the etl module's own time to live. A finished run is not kept longer than a running one."""
    live = settings.etl.state_ttl_seconds
    seconds = {"live_seconds": live, "final_seconds": min(live, settings.run_state_final_seconds)}
    return RedisRunState(redis, db.clock, **seconds) if redis else SqlRunState(db, **seconds)


def build_etl(settings: Settings, db: Db, backends: Backends) -> ModuleSpec:
    """The etl module."""
    return etl_module(_deps(settings, db, backends))


def _deps(settings: Settings, db: Db, backends: Backends) -> Deps:
    scratch, runs = settings.data_dir / settings.etl.cache_dir, build_etl_runs(settings, db, backends.redis)
    return Deps(
        db=db,
        queue=backends.queue,
        runs=runs,
        blobs=backends.blobs,
        sandbox=backends.sandbox,
        provider=backends.mineru or _reader(settings, backends, scratch),
        post_processors=_post_processors(settings, backends, scratch),
        scratch=scratch,
        config=_config(settings),
        waits=RunWaits(runs, db.wakeups),
        positions=_positions(settings, db, backends.redis),
        ping_redis=partial(backends.redis.execute, "PING") if backends.redis else None,
    )


def _positions(settings: Settings, db: Db, redis: RedisClient | None) -> QueuePositions:
    if redis is None or not uses_arq(settings):
        return SqlQueuePositions(db)
    return ArqQueuePositions(redis, names={MODULE: settings.etl.arq_queue_name})


def _reader(settings: Settings, backends: Backends, scratch: Path) -> LocalReader:
    etl, sandboxes = settings.etl, backends.document_sandboxes
    return LocalReader(
        backends.blobs,
        parsers=sandboxes.parsers,
        engine=sandboxes.engine,
        scratch=scratch,
        profile=etl.ocr_profile,
        limits=ReaderLimits(
            max_file_bytes=etl.max_file_bytes, max_pages=etl.max_pages, max_page_pixels=etl.max_page_pixels
        ),
    )


def _post_processors(settings: Settings, backends: Backends, scratch: Path) -> dict[Mode, PostProcessor]:
    etl = settings.etl
    terms = LlmPostProcessorConfig(
        threshold_characters=etl.postprocess_chunk_threshold_chars,
        chunk_characters=etl.postprocess_chunk_size_chars,
        max_chunks=etl.postprocess_max_chunks,
        chunk_strategy=etl.postprocess_chunk_strategy,
        repair_rounds=settings.llm.repair_rounds,
        concurrency=settings.llm.concurrency,
    )
    return {
        Mode.SKIP: SkipPostProcessor(),
        Mode.FIELDS: FieldsPostProcessor(backends.blobs, backends.sandbox, scratch),
        Mode.LLM: LlmPostProcessor(backends.models, backends.blobs, backends.sandbox, scratch, config=terms),
    }


def _backoff(etl: EtlSettings, first_seconds: float, max_seconds: float) -> Backoff:
    """The delays of a stage; what is negative is that of both stages."""
    return Backoff(
        first_seconds=first_seconds if first_seconds >= 0 else etl.retry_backoff_base_seconds,
        max_seconds=max_seconds if max_seconds >= 0 else etl.retry_backoff_max_seconds,
    )


def _config(settings: Settings) -> Config:
    etl = settings.etl
    return Config(
        queue_size=etl.queue_size,
        queue_share=etl.queue_share,
        task_timeout=etl.task_timeout,
        ocr_attempts=etl.ocr_max_attempts,
        postprocess_attempts=etl.postprocess_max_attempts,
        ocr_backoff=_backoff(etl, etl.ocr_retry_backoff_base_seconds, etl.ocr_retry_backoff_max_seconds),
        postprocess_backoff=_backoff(
            etl, etl.postprocess_retry_backoff_base_seconds, etl.postprocess_retry_backoff_max_seconds
        ),
        default_rule_id=etl.global_rule_id if etl.global_rule_enabled else None,
        key_prefix=etl.redis_prefix,
        max_file_bytes=etl.max_file_bytes,
        history_days=etl.history_days,
        slots=etl.worker_count,
        arq_queue_name=etl.arq_queue_name,
        rules_folder=settings.data_dir / etl.rules_dir,
        max_deferred_seconds=etl.patience_seconds,
    )
