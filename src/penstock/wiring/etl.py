"""The etl room, put together: who reads documents, who shapes what was read, and what is set about both."""

from functools import partial
from pathlib import Path

from penstock.adapters.llm_shaper import AskingTerms, LlmShaper
from penstock.adapters.local_reader import LocalReader, ReaderLimits
from penstock.adapters.redis.link import RedisLink
from penstock.adapters.redis.runs import RedisRunState
from penstock.adapters.shapers import FieldsShaper, SkipShaper
from penstock.documents.postprocessor import PostProcessor
from penstock.etl.deps import Deps, Terms
from penstock.etl.domain import Mode
from penstock.kernel.db import Db
from penstock.kernel.retry import Backoff
from penstock.kernel.runstate import RunState, SqlRunState
from penstock.settings import Settings
from penstock.wiring.engines import Engines


def build_etl_runs(settings: Settings, db: Db, redis: RedisLink | None) -> RunState:
    """Run state with the room's own time to live; what is over is not kept longer than what still runs."""
    live = settings.etl.state_ttl_seconds
    seconds = {"live_seconds": live, "final_seconds": min(live, settings.run_state_final_seconds)}
    return RedisRunState(redis, db.clock, **seconds) if redis else SqlRunState(db, **seconds)


def build_etl(settings: Settings, db: Db, chosen: Engines) -> Deps:
    """The tools of the room."""
    scratch = settings.data_dir / settings.etl.cache_dir
    return Deps(
        db=db,
        queue=chosen.queue,
        runs=build_etl_runs(settings, db, chosen.redis),
        blobs=chosen.blobs,
        sandbox=chosen.sandbox,
        provider=chosen.mineru or _reader(settings, chosen, scratch),
        shapers=_shapers(settings, chosen, scratch),
        scratch=scratch,
        terms=_terms(settings),
        ping_redis=partial(chosen.redis.call, "PING") if chosen.redis else None,
    )


def _reader(settings: Settings, chosen: Engines, scratch: Path) -> LocalReader:
    etl, reading = settings.etl, chosen.reading
    return LocalReader(
        chosen.blobs,
        parsers=reading.parsers,
        engine=reading.engine,
        scratch=scratch,
        profile=etl.ocr_profile,
        limits=ReaderLimits(
            max_file_bytes=etl.max_file_bytes, max_pages=etl.max_pages, max_page_pixels=etl.max_page_pixels
        ),
    )


def _shapers(settings: Settings, chosen: Engines, scratch: Path) -> dict[Mode, PostProcessor]:
    etl = settings.etl
    terms = AskingTerms(
        threshold_characters=etl.postprocess_chunk_threshold_chars,
        chunk_characters=etl.postprocess_chunk_size_chars,
        most_chunks=etl.postprocess_max_chunks,
        chunk_strategy=etl.postprocess_chunk_strategy,
        repair_rounds=settings.llm.repair_rounds,
        side_by_side=settings.llm.concurrency,
    )
    return {
        Mode.SKIP: SkipShaper(),
        Mode.FIELDS: FieldsShaper(chosen.blobs, chosen.sandbox, scratch),
        Mode.LLM: LlmShaper(chosen.models, chosen.blobs, chosen.sandbox, scratch, terms=terms),
    }


def _terms(settings: Settings) -> Terms:
    etl = settings.etl
    return Terms(
        queue_size=etl.queue_size,
        task_timeout=etl.task_timeout,
        ocr_attempts=etl.ocr_max_attempts,
        postprocess_attempts=etl.postprocess_max_attempts,
        backoff=Backoff(first_seconds=etl.retry_backoff_base_seconds, most_seconds=etl.retry_backoff_max_seconds),
        global_rule_enabled=etl.global_rule_enabled,
        global_rule_id=etl.global_rule_id,
        key_prefix=etl.redis_prefix,
        max_file_bytes=etl.max_file_bytes,
        history_days=etl.history_days,
        most_patience_seconds=etl.patience_seconds,
    )
