"""The settings of the house. Defaults are right for a laptop without any service."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.settings.entry import setting
from penstock.settings.etl import EtlSettings
from penstock.settings.models import LlmSettings, MineruSettings


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be set."""

    data_dir: Path = setting(  # noqa: RUF009  (it is dataclasses.field, with our metadata)
        "PENSTOCK_DATA_DIR", Path(".penstock"), "The folder for the SQLite database and local files."
    )
    database_url: str = setting(
        "PENSTOCK_DATABASE_URL",
        "",
        "postgresql://… or sqlite:///…; when empty, a SQLite file in the data folder.",
        secret=True,
    )
    database_pooler: bool = setting(
        "PENSTOCK_DATABASE_POOLER",
        False,
        "Set it when PostgreSQL is behind a transaction pooler (port 6543 is taken to be one by itself).",
    )
    database_connections: int = setting(
        "PENSTOCK_DATABASE_CONNECTIONS", 10, "How many connections one process opens at the most.", least=1
    )
    redis_url: str = setting(
        "PENSTOCK_REDIS_URL",
        "",
        "redis://…, rediss://… or unix://…; when set, run state, rates, wake-up and the job queue (ARQ) use it. "
        "The older name ETL_REDIS_URL is honoured.",
        secret=True,
        older="ETL_REDIS_URL",
    )
    job_queue: str = setting(
        "PENSTOCK_JOB_QUEUE",
        "",
        "`arq` or `sql`: what hands jobs to workers; when empty, ARQ where there is a Redis.",
        one_of=("arq", "sql"),
    )
    local_gate_share: float = setting(
        "PENSTOCK_LOCAL_GATE_SHARE",
        0.25,
        "The part of every rate that one process allows itself while Redis is away.",
        least=0.001,
        most=1,
    )
    blobs_url: str = setting(
        "PENSTOCK_BLOBS_URL",
        "",
        "file:///… or s3://bucket/prefix for stored objects; when empty, the folder blobs in the data folder.",
    )
    aws_access_key_id: str = setting("AWS_ACCESS_KEY_ID", "", "The key for s3://; when empty, the machine's own role.")
    aws_secret_access_key: str = setting("AWS_SECRET_ACCESS_KEY", "", "The secret for s3://.", secret=True)
    aws_session_token: str = setting("AWS_SESSION_TOKEN", "", "The session token for s3://, if any.", secret=True)
    aws_region: str = setting("AWS_REGION", "us-east-1", "The region of the bucket.")
    aws_endpoint_url: str = setting(
        "AWS_ENDPOINT_URL", "", "The address of an S3-compatible store; when empty, Amazon's own."
    )
    workers: int = setting("PENSTOCK_WORKERS", 4, "How many jobs one process runs at the same time.", least=1)
    lease_seconds: float = setting(
        "PENSTOCK_LEASE_SECONDS",
        60.0,
        "How long a job stays with a worker that fell silent; working ones renew it by themselves.",
        least=1,
    )
    grace_seconds: float = setting(
        "PENSTOCK_GRACE_SECONDS", 5.0, "How long running jobs may go on after a stop is asked for.", least=0
    )
    drain_seconds: float = setting(
        "PENSTOCK_DRAIN_SECONDS",
        0.0,
        "How long a server that was asked to stop still answers while /readyz says so, for load balancers to notice.",
        least=0,
    )
    outbox_attempts: int = setting(
        "PENSTOCK_OUTBOX_ATTEMPTS", 10, "How often a message is tried before it becomes a dead letter.", least=1
    )
    history_days: float = setting(
        "PENSTOCK_HISTORY_DAYS",
        30.0,
        "How long finished jobs, delivered messages and recorded moves are kept.",
        least=0,
    )
    dead_letter_days: float = setting(
        "PENSTOCK_DEAD_LETTER_DAYS", 365.0, "How long messages are kept that could not be delivered.", least=0
    )
    event_days: float = setting("PENSTOCK_EVENT_DAYS", 7.0, "How long events can be read again.", least=0)
    audit_days: float = setting("PENSTOCK_AUDIT_DAYS", 365.0, "How long the audit log is kept.", least=0)
    run_state_seconds: float = setting(
        "PENSTOCK_RUN_STATE_SECONDS", 604800.0, "How long the state of an unfinished run is kept.", least=1
    )
    run_state_final_seconds: float = setting(
        "PENSTOCK_RUN_STATE_FINAL_SECONDS", 21600.0, "How long the state of a finished run is kept.", least=1
    )

    pull_timeout: float = setting(
        "PULL_TIMEOUT",
        3600.0,
        "How many seconds a pulled task stays with a client that fell silent; then it is on offer again.",
        least=1,
    )
    pull_batch_size: int = setting(
        "PULL_BATCH_SIZE", 100, "How many tasks one pull takes at the most.", least=1, most=1000
    )
    pull_max_attempts: int = setting(
        "PULL_MAX_ATTEMPTS", 10, "How often a task is pulled without a push before it is put into error.", least=1
    )
    pull_wait_seconds: float = setting(
        "PULL_WAIT_SECONDS", 60.0, "How long a pull with `wait=` may wait for a task at the most.", least=0, most=600
    )
    pull_rate_limit: str = setting(
        "PULL_RATE_LIMIT",
        "600000/minute",
        "How often one key may pull: `60/minute`, `1000/hour`, or both with a comma between them; a bare number is per "
        "minute, and 0 is no limit. The default only stops a program that runs wild.",
    )
    pull_min_interval: float = setting(
        "PULL_MIN_INTERVAL", 0.0, "How many seconds one key must leave between two pulls; 0 for none.", least=0
    )
    pull_quota: int = setting(
        "PULL_QUOTA", 0, "How many tasks one key may pull in a day (UTC); 0 for any number.", least=0
    )
    pull_stats_seconds: float = setting(
        "PULL_STATS_SECONDS", 10.0, "For how long statistics of tasks are remembered instead of counted anew.", least=0
    )
    pull_history_days: float = setting(
        "PULL_HISTORY_DAYS", 365.0, "How long pulls that are over, and lines of the feed, are kept.", least=0
    )
    task_expiry_time: float = setting(
        "TASK_EXPIRY_TIME",
        0.0,
        "After how many seconds a planned task that nobody pulled expires, if it does not say so itself; 0 for never.",
        least=0,
    )
    task_expired_action: str = setting(
        "TASK_EXPIRED_ACTION",
        "keep",
        "What becomes of expired tasks: `keep` them, `archive` them (out of every list), or `delete` them.",
        one_of=("keep", "archive", "delete"),
    )
    reset_clear_pull_status: bool = setting(
        "RESET_CLEAR_PULL_STATUS", True, "Whether a reset of a queue takes its tasks back from those who pulled them."
    )
    rerun_clear_pull_status: bool = setting(
        "RERUN_CLEAR_PULL_STATUS", True, "Whether a re-run takes tasks back from those who pulled them."
    )
    pull_alert_success_rate: float = setting(
        "PULL_ALERT_SUCCESS_RATE",
        80.0,
        "An alert is told when less than this percentage of the last hour's ended pulls were pushed; 0 for none.",
        least=0,
        most=100,
    )
    pull_alert_overdue: int = setting(
        "PULL_ALERT_OVERDUE",
        100,
        "An alert is told when more pulls than this timed out in an hour; 0 for none.",
        least=0,
    )
    pull_alert_requests: int = setting(
        "PULL_ALERT_REQUESTS",
        60000,
        "An alert is told when one project is pulled from more often than this in a minute; 0 for none.",
        least=0,
    )
    pull_alert_operations: int = setting(
        "PULL_ALERT_OPERATIONS",
        100,
        "An alert is told when more queue operations than this are done in an hour; 0 for none.",
        least=0,
    )

    etl: EtlSettings = field(default_factory=EtlSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    mineru: MineruSettings = field(default_factory=MineruSettings)

    admin_key: str = setting("PENSTOCK_ADMIN_KEY", "", "Presets the first admin key.", secret=True)
    jwt_secret: str = setting(
        "PENSTOCK_JWT_SECRET", "", "Takes JWTs that are signed with this secret (HS256).", secret=True
    )
    jwks_url: str = setting("PENSTOCK_JWKS_URL", "", "Takes JWTs that are signed by a key published there.")
    jwt_algorithms: str = setting(
        "PENSTOCK_JWT_ALGORITHMS", "RS256,ES256,EdDSA", "The algorithms taken with PENSTOCK_JWKS_URL, and no others."
    )
    jwt_issuer: str = setting("PENSTOCK_JWT_ISSUER", "", "When set, the `iss` that a JWT must carry.")
    jwt_audience: str = setting("PENSTOCK_JWT_AUDIENCE", "", "When set, an `aud` that a JWT must carry.")
    jwt_skew_seconds: float = setting(
        "PENSTOCK_JWT_SKEW_SECONDS", 30.0, "How far the clocks of those who sign may be off.", least=0
    )
    login_attempts: int = setting(
        "PENSTOCK_LOGIN_ATTEMPTS", 5, "After so many wrong passwords in a row an account is locked.", least=1
    )
    login_lock_seconds: float = setting(
        "PENSTOCK_LOGIN_LOCK_SECONDS", 900.0, "How long a locked account stays locked.", least=1
    )
    session_seconds: float = setting("PENSTOCK_SESSION_SECONDS", 43200.0, "How long a console login lasts.", least=1)
    body_bytes: int = setting(
        "PENSTOCK_BODY_BYTES", 10 * 1024 * 1024, "The largest request body that is not an upload.", least=1
    )
    body_seconds: float = setting(
        "PENSTOCK_BODY_SECONDS", 30.0, "How long a request body may take to arrive.", least=0.1
    )
    cors_origins: str = setting(
        "PENSTOCK_CORS_ORIGINS",
        "",
        "Web pages (origins, by comma) that may call the API from a browser; none by default.",
    )
    sse_connections: int = setting(
        "PENSTOCK_SSE_CONNECTIONS", 1000, "How many live streams one process holds open.", least=1
    )
    sse_per_tenant: int = setting("PENSTOCK_SSE_PER_TENANT", 100, "How many of them may belong to one tenant.", least=1)
    sse_queue: int = setting("PENSTOCK_SSE_QUEUE", 256, "How many events wait in memory for one slow stream.", least=1)
    sse_keepalive_seconds: float = setting(
        "PENSTOCK_SSE_KEEPALIVE_SECONDS", 15.0, "How often a silent stream shows that it lives.", least=0.1
    )
    webhook_allow: str = setting(
        "PENSTOCK_WEBHOOK_ALLOW",
        "",
        "Private networks (by comma, as 10.0.0.0/8) that webhooks may call; none by default.",
    )
    webhook_attempts: int = setting(
        "PENSTOCK_WEBHOOK_ATTEMPTS", 8, "How often a webhook is tried before its delivery has failed.", least=1
    )
    webhook_seconds: float = setting(
        "PENSTOCK_WEBHOOK_SECONDS", 10.0, "How long a webhook's receiver may take to answer.", least=0.1
    )
    stream_length: int = setting(
        "PENSTOCK_STREAM_LENGTH", 100_000, "About how many messages a Redis Stream keeps.", least=1
    )
    log_format: str = setting(
        "PENSTOCK_LOG_FORMAT", "text", "`text` for people or `json` for machines.", one_of=("text", "json")
    )
    log_level: str = setting(
        "PENSTOCK_LOG_LEVEL", "INFO", "DEBUG, INFO, WARNING or ERROR.", one_of=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    otel_endpoint: str = setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "", "When set, traces of requests and jobs are sent there (OTLP over HTTP)."
    )
    otel_service_name: str = setting("OTEL_SERVICE_NAME", "penstock", "The name that traces carry.")

    @property
    def database(self) -> str:
        """The database's URL, worked out."""
        return self.database_url or f"sqlite:///{self.data_dir / 'penstock.db'}"

    @property
    def embedded(self) -> bool:
        """Whether the database is a local file of ours, so that any process may bring it up to date by itself."""
        return self.database.startswith("sqlite")
