"""The dependencies of the etl module: its document reader, its shapers and their settings."""

from functools import partial
from pathlib import Path

from penstock.adapters.llm_shaper import LlmShaper, LlmShaperConfig
from penstock.adapters.local_reader import LocalReader, ReaderLimits
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.runs import RedisRunState
from penstock.adapters.shapers import FieldsShaper, SkipShaper
from penstock.documents.postprocessor import PostProcessor
from penstock.etl.deps import Config, Deps
from penstock.etl.domain import Mode
from penstock.kernel.db import Db
from penstock.kernel.retry import Backoff
from penstock.kernel.runstate import RunState, SqlRunState
from penstock.settings import Settings
from penstock.wiring.backends import Backends


def build_etl_runs(settings: Settings, db: Db, redis: RedisClient | None) -> RunState:
    """Run state with the etl module's own time to live. A finished run is not kept longer than a running one."""
    live = settings.etl.state_ttl_seconds
    seconds = {"live_seconds": live, "final_seconds": min(live, settings.run_state_final_seconds)}
    return RedisRunState(redis, db.clock, **seconds) if redis else SqlRunState(db, **seconds)


def build_etl(settings: Settings, db: Db, backends: Backends) -> Deps:
    """The dependencies of the etl module."""
    scratch = settings.data_dir / settings.etl.cache_dir
    return Deps(
        db=db,
        queue=backends.queue,
        runs=build_etl_runs(settings, db, backends.redis),
        blobs=backends.blobs,
        sandbox=backends.sandbox,
        provider=backends.mineru or _reader(settings, backends, scratch),
        shapers=_shapers(settings, backends, scratch),
        scratch=scratch,
        config=_config(settings),
        ping_redis=partial(backends.redis.execute, "PING") if backends.redis else None,
    )


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


def _shapers(settings: Settings, backends: Backends, scratch: Path) -> dict[Mode, PostProcessor]:
    etl = settings.etl
    terms = LlmShaperConfig(
        threshold_characters=etl.postprocess_chunk_threshold_chars,
        chunk_characters=etl.postprocess_chunk_size_chars,
        max_chunks=etl.postprocess_max_chunks,
        chunk_strategy=etl.postprocess_chunk_strategy,
        repair_rounds=settings.llm.repair_rounds,
        side_by_side=settings.llm.concurrency,
    )
    return {
        Mode.SKIP: SkipShaper(),
        Mode.FIELDS: FieldsShaper(backends.blobs, backends.sandbox, scratch),
        Mode.LLM: LlmShaper(backends.models, backends.blobs, backends.sandbox, scratch, config=terms),
    }


def _config(settings: Settings) -> Config:
    etl = settings.etl
    return Config(
        queue_size=etl.queue_size,
        task_timeout=etl.task_timeout,
        ocr_attempts=etl.ocr_max_attempts,
        postprocess_attempts=etl.postprocess_max_attempts,
        backoff=Backoff(first_seconds=etl.retry_backoff_base_seconds, max_seconds=etl.retry_backoff_max_seconds),
        global_rule_enabled=etl.global_rule_enabled,
        global_rule_id=etl.global_rule_id,
        key_prefix=etl.redis_prefix,
        max_file_bytes=etl.max_file_bytes,
        history_days=etl.history_days,
        max_deferred_seconds=etl.patience_seconds,
    )
