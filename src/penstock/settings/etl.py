"""The settings of the etl module."""

from dataclasses import dataclass
from pathlib import Path

from penstock.settings.field import setting


@dataclass(frozen=True, kw_only=True)
class EtlSettings:
    """Settings of reading and post-processing documents."""

    queue_size: int = setting("ETL_QUEUE_SIZE", 1000, "The most active etl tasks; more are refused with 429.", least=1)
    queue_share: float = setting(
        "ETL_QUEUE_SHARE",
        0.5,
        "The share of ETL_QUEUE_SIZE that the active tasks of one user may take; more are refused with 429. "
        "Admins have no share.",
        least=0.001,
        most=1,
    )
    worker_count: int = setting(
        "ETL_WORKER_COUNT",
        3,
        "The worker slots of the etl module: how many stages one process runs at a time.",
        least=1,
    )
    task_timeout: float = setting(
        "ETL_TASK_TIMEOUT",
        600.0,
        "How many seconds a stage may run without progress before it is stopped as stalled.",
        least=1,
    )
    cache_dir: Path = setting(  # noqa: RUF009  (it is dataclasses.field, with our metadata)
        "ETL_CACHE_DIR",
        Path(".mineru_cache"),
        "The scratch folder for files that are being read; inside the data folder.",
    )
    rules_dir: Path = setting(  # noqa: RUF009  (as above)
        "ETL_RULES_DIR",
        Path(".etl_rules"),
        "The folder of rules in JSON files, imported at start; inside the data folder.",
    )
    redis_prefix: str = setting("ETL_REDIS_PREFIX", "etl:", "The key prefix of run state in Redis.")
    state_ttl_seconds: float = setting(
        "ETL_STATE_TTL_SECONDS",
        86400.0,
        "How long a snapshot of a task's run state is kept without an update.",
        least=1,
    )
    arq_queue_name: str = setting(
        "ETL_ARQ_QUEUE_NAME", "penstock:jobs:etl", "The ARQ queue of etl jobs, if ARQ is used."
    )
    ocr_max_attempts: int = setting("ETL_OCR_MAX_ATTEMPTS", 3, "The most attempts of the OCR stage.", least=1)
    postprocess_max_attempts: int = setting(
        "ETL_POSTPROCESS_MAX_ATTEMPTS", 3, "The most attempts of the post-processing stage.", least=1
    )
    retry_backoff_base_seconds: float = setting(
        "ETL_RETRY_BACKOFF_BASE_SECONDS",
        5.0,
        "The delay before the second attempt of a stage; it doubles with each attempt.",
        least=0,
    )
    retry_backoff_max_seconds: float = setting(
        "ETL_RETRY_BACKOFF_MAX_SECONDS", 300.0, "The longest delay between two attempts of a stage.", least=0
    )
    ocr_retry_backoff_base_seconds: float = setting(
        "ETL_OCR_RETRY_BACKOFF_BASE_SECONDS",
        -1.0,
        "The delay before the second attempt of the OCR stage; -1: as for both stages.",
        least=-1,
    )
    ocr_retry_backoff_max_seconds: float = setting(
        "ETL_OCR_RETRY_BACKOFF_MAX_SECONDS",
        -1.0,
        "The longest delay between two attempts of the OCR stage; -1: as for both stages.",
        least=-1,
    )
    postprocess_retry_backoff_base_seconds: float = setting(
        "ETL_POSTPROCESS_RETRY_BACKOFF_BASE_SECONDS",
        -1.0,
        "The delay before the second attempt of the post-processing stage; -1: as for both stages.",
        least=-1,
    )
    postprocess_retry_backoff_max_seconds: float = setting(
        "ETL_POSTPROCESS_RETRY_BACKOFF_MAX_SECONDS",
        -1.0,
        "The longest delay between two attempts of the post-processing stage; -1: as for both stages.",
        least=-1,
    )
    patience_seconds: float = setting(
        "ETL_PATIENCE_SECONDS",
        86400.0,
        "How long a deferred run may wait, without progress, for a dependency that is unavailable.",
        least=1,
    )
    postprocess_chunk_threshold_chars: int = setting(
        "ETL_POSTPROCESS_CHUNK_THRESHOLD_CHARS",
        30_000,
        "Markdown longer than this is split into chunks for a model, unless the rule says otherwise.",
        least=1,
    )
    postprocess_chunk_size_chars: int = setting(
        "ETL_POSTPROCESS_CHUNK_SIZE_CHARS", 12_000, "The most characters of a chunk.", least=1
    )
    postprocess_max_chunks: int = setting(
        "ETL_POSTPROCESS_MAX_CHUNKS", 50, "A document with more chunks fails instead of being truncated.", least=1
    )
    global_rule_enabled: bool = setting(
        "ETL_GLOBAL_RULE_ENABLED", True, "Whether a task without a rule gets the default rule; otherwise it is refused."
    )
    global_rule_id: int = setting(
        "ETL_GLOBAL_RULE_ID", 0, "The id of the default rule; 0 is the built-in default.", least=0
    )
    postprocess_chunk_strategy: str = setting(
        "ETL_POSTPROCESS_CHUNK_STRATEGY",
        "chunked-summarize",
        "The strategy for markdown that is split into chunks.",
        one_of=("chunked-summarize", "chunked-extract"),
    )
    ocr_provider: str = setting(
        "ETL_OCR_PROVIDER",
        "local",
        "The OCR provider that reads documents: `local` (this machine) or `mineru`.",
        one_of=("local", "mineru"),
    )
    ocr_profile: str = setting(
        "ETL_OCR_PROFILE", "accurate", "`accurate`, or `fast` with smaller models.", one_of=("accurate", "fast")
    )
    max_file_bytes: int = setting(
        "ETL_MAX_FILE_BYTES", 512 * 1024 * 1024, "The largest document in bytes that is accepted.", least=1
    )
    max_pages: int = setting("ETL_MAX_PAGES", 5000, "The most pages of a document.", least=1)
    max_page_pixels: int = setting(
        "ETL_MAX_PAGE_PIXELS", 50_000_000, "The most pixels of an image; larger ones are refused.", least=1
    )
    history_days: float = setting(
        "ETL_HISTORY_DAYS", 365.0, "How long ended etl tasks are kept, with their artifacts and results.", least=0
    )
