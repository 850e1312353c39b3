"""The settings of a process. The defaults suit a laptop without any other service."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.settings.etl import EtlSettings
from penstock.settings.field import setting
from penstock.settings.gateway import GatewaySettings
from penstock.settings.models import LlmSettings, MineruSettings


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings."""

    data_dir: Path = setting(  # noqa: RUF009  (it is dataclasses.field, with our metadata)
        "PENSTOCK_DATA_DIR", Path(".penstock"), "The folder for the SQLite database and local files."
    )
    database_url: str = setting(
        "PENSTOCK_DATABASE_URL",
        "",
        "postgresql://… or sqlite:///…; if empty, a SQLite file in the data folder.",
        secret=True,
    )
    database_pooler: bool = setting(
        "PENSTOCK_DATABASE_POOLER",
        False,
        "Whether PostgreSQL is behind a transaction pooler (assumed for port 6543).",
    )
    database_connections: int = setting(
        "PENSTOCK_DATABASE_CONNECTIONS", 10, "The most database connections of one process.", least=1
    )
    redis_url: str = setting(
        "PENSTOCK_REDIS_URL",
        "",
        "redis://…, rediss://… or unix://…; if set, run state, rate limits, notifications and jobs (ARQ) use it. "
        "The former name ETL_REDIS_URL is accepted.",
        secret=True,
        former_name="ETL_REDIS_URL",
    )
    job_queue: str = setting(
        "PENSTOCK_JOB_QUEUE",
        "",
        "`arq` or `sql`: how jobs are distributed to workers; if empty, ARQ if Redis is set.",
        one_of=("arq", "sql"),
    )
    arq_result_seconds: float = setting(
        "PENSTOCK_ARQ_RESULT_SECONDS",
        3600.0,
        "How long ARQ's `Job` shows that a job is complete; 0: not at all.",
        least=0,
    )
    local_gate_share: float = setting(
        "PENSTOCK_LOCAL_GATE_SHARE",
        0.25,
        "The share of every rate limit that one process uses while Redis is unavailable.",
        least=0.001,
        most=1,
    )
    blobs_url: str = setting(
        "PENSTOCK_BLOBS_URL",
        "",
        "file:///… or s3://bucket/prefix for blobs; if empty, the folder blobs in the data folder.",
    )
    aws_access_key_id: str = setting(
        "AWS_ACCESS_KEY_ID", "", "The access key for s3://; if empty, the role of the machine."
    )
    aws_secret_access_key: str = setting("AWS_SECRET_ACCESS_KEY", "", "The secret key for s3://.", secret=True)
    aws_session_token: str = setting("AWS_SESSION_TOKEN", "", "The session token for s3://, if any.", secret=True)
    aws_region: str = setting("AWS_REGION", "us-east-1", "The region of the bucket.")
    aws_endpoint_url: str = setting("AWS_ENDPOINT_URL", "", "The URL of an S3-compatible store; if empty, Amazon S3.")
    workers: int = setting(
        "PENSTOCK_WORKERS", 4, "The worker slots of one process: how many jobs it runs at a time.", least=1
    )
    lease_seconds: float = setting(
        "PENSTOCK_LEASE_SECONDS",
        60.0,
        "The lease of a job or message: how long a process may be silent before another takes it over. It is renewed.",
        least=1,
    )
    grace_seconds: float = setting(
        "PENSTOCK_GRACE_SECONDS",
        5.0,
        "The grace period: how long running jobs may continue after a shutdown began.",
        least=0,
    )
    drain_seconds: float = setting(
        "PENSTOCK_DRAIN_SECONDS",
        0.0,
        "How long a stopping server still answers while /readyz reports it, so that load balancers notice.",
        least=0,
    )
    outbox_attempts: int = setting(
        "PENSTOCK_OUTBOX_ATTEMPTS",
        10,
        "The most delivery attempts of a message before it becomes a dead letter.",
        least=1,
    )
    history_days: float = setting(
        "PENSTOCK_HISTORY_DAYS",
        30.0,
        "How long finished jobs, delivered messages and state transitions are kept.",
        least=0,
    )
    dead_letter_days: float = setting("PENSTOCK_DEAD_LETTER_DAYS", 365.0, "How long dead letters are kept.", least=0)
    event_days: float = setting("PENSTOCK_EVENT_DAYS", 7.0, "How long events are kept.", least=0)
    audit_days: float = setting("PENSTOCK_AUDIT_DAYS", 365.0, "How long the audit log is kept.", least=0)
    run_state_seconds: float = setting(
        "PENSTOCK_RUN_STATE_SECONDS",
        604800.0,
        "How long a snapshot of run state is kept while its run is active (time to live).",
        least=1,
    )
    run_state_final_seconds: float = setting(
        "PENSTOCK_RUN_STATE_FINAL_SECONDS",
        21600.0,
        "How long the final snapshot of a run state is kept (time to live).",
        least=1,
    )

    pull_timeout: float = setting(
        "PULL_TIMEOUT",
        3600.0,
        "The lease of a pulled task in seconds: how long a client may be silent before the task can be pulled again.",
        least=1,
    )
    pull_batch_size: int = setting("PULL_BATCH_SIZE", 100, "The most tasks that one pull returns.", least=1, most=1000)
    pull_max_attempts: int = setting(
        "PULL_MAX_ATTEMPTS", 10, "The most pulls of a task without a push before it is set to error.", least=1
    )
    pull_wait_seconds: float = setting(
        "PULL_WAIT_SECONDS",
        60.0,
        "The longest time that a long poll (`wait=`) waits for a task to pull.",
        least=0,
        most=600,
    )
    pull_rate_limit: str = setting(
        "PULL_RATE_LIMIT",
        "600000/minute",
        "The rate limit of pulls per key: `60/minute`, `1000/hour`, or both separated by a comma; a bare number is per "
        "minute, and 0 means no limit. The default only stops a runaway client.",
    )
    pull_min_interval: float = setting(
        "PULL_MIN_INTERVAL",
        0.0,
        "The minimum interval between two pulls of one API key, in seconds; 0 for none.",
        least=0,
    )
    pull_quota: int = setting(
        "PULL_QUOTA",
        0,
        "The daily quota: the most tasks that one API key may pull per day (UTC); 0 for no limit.",
        least=0,
    )
    pull_stats_seconds: float = setting("PULL_STATS_SECONDS", 10.0, "How long task statistics are cached.", least=0)
    pull_history_days: float = setting(
        "PULL_HISTORY_DAYS", 365.0, "How long finished pulls and entries of the change feed are kept.", least=0
    )
    task_expiry_time: float = setting(
        "TASK_EXPIRY_TIME",
        0.0,
        "After how many seconds a planned task that nobody pulled expires, unless it has its own expiry; 0 for never.",
        least=0,
    )
    task_expired_action: str = setting(
        "TASK_EXPIRED_ACTION",
        "keep",
        "What to do with expired tasks: `keep`, `archive` (hide from lists) or `delete` them.",
        one_of=("keep", "archive", "delete"),
    )
    reset_clear_pull_status: bool = setting(
        "RESET_CLEAR_PULL_STATUS", True, "Whether a reset of a queue revokes the pulls of its tasks."
    )
    rerun_clear_pull_status: bool = setting(
        "RERUN_CLEAR_PULL_STATUS", True, "Whether a re-run of a queue revokes the pulls of its tasks."
    )
    task_operation_limit: int = setting(
        "TASK_OPERATION_LIMIT",
        1000,
        "How many tasks a reset or re-run of a queue changes inside its request; a longer one runs in the background.",
        least=0,
    )
    pull_alert_success_rate: float = setting(
        "PULL_ALERT_SUCCESS_RATE",
        80.0,
        "Alert when less than this percentage of the pulls that ended in the last hour were pushed; 0 for no alert.",
        least=0,
        most=100,
    )
    pull_alert_overdue: int = setting(
        "PULL_ALERT_OVERDUE",
        100,
        "Alert when more pulls than this timed out in an hour; 0 for no alert.",
        least=0,
    )
    pull_alert_requests: int = setting(
        "PULL_ALERT_REQUESTS",
        60000,
        "Alert when one project has more pull requests than this in a minute; 0 for no alert.",
        least=0,
    )
    pull_alert_operations: int = setting(
        "PULL_ALERT_OPERATIONS",
        100,
        "Alert when there are more queue operations than this in an hour; 0 for no alert.",
        least=0,
    )

    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    etl: EtlSettings = field(default_factory=EtlSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    mineru: MineruSettings = field(default_factory=MineruSettings)

    admin_key: str = setting(
        "PENSTOCK_ADMIN_KEY", "", "The preset admin key; if empty, the first start creates one.", secret=True
    )
    jwt_secret: str = setting("PENSTOCK_JWT_SECRET", "", "Accept JWTs signed with this secret (HS256).", secret=True)
    jwks_url: str = setting("PENSTOCK_JWKS_URL", "", "Accept JWTs signed with a key of the JWK Set at this URL.")
    jwt_algorithms: str = setting(
        "PENSTOCK_JWT_ALGORITHMS", "RS256,ES256,EdDSA", "The only algorithms accepted with PENSTOCK_JWKS_URL."
    )
    jwt_issuer: str = setting("PENSTOCK_JWT_ISSUER", "", "If set, the `iss` that a JWT must have.")
    jwt_audience: str = setting("PENSTOCK_JWT_AUDIENCE", "", "If set, an `aud` that a JWT must have.")
    jwt_skew_seconds: float = setting(
        "PENSTOCK_JWT_SKEW_SECONDS", 30.0, "The clock skew of issuers that is tolerated.", least=0
    )
    merchant_projects: str = setting(
        "PENSTOCK_MERCHANT_PROJECTS",
        "tokens",
        "Who may use the projects of a merchant (in tasks) by being of that merchant: `tokens` (JWTs), `keys` (also "
        "API keys, and those with a merchant no other project), or `none` (JWTs only what their `projects` name).",
        one_of=("tokens", "keys", "none"),
    )
    login_attempts: int = setting(
        "PENSTOCK_LOGIN_ATTEMPTS", 5, "The number of wrong passwords in a row that locks an account.", least=1
    )
    login_lock_seconds: float = setting(
        "PENSTOCK_LOGIN_LOCK_SECONDS", 900.0, "How long a locked account stays locked.", least=1
    )
    session_seconds: float = setting("PENSTOCK_SESSION_SECONDS", 43200.0, "How long a console login lasts.", least=1)
    body_bytes: int = setting(
        "PENSTOCK_BODY_BYTES", 10 * 1024 * 1024, "The largest request body in bytes, uploads aside.", least=1
    )
    body_seconds: float = setting(
        "PENSTOCK_BODY_SECONDS", 30.0, "How long a request body may take to arrive.", least=0.1
    )
    cors_origins: str = setting(
        "PENSTOCK_CORS_ORIGINS",
        "",
        "Origins (comma-separated) whose web pages may call the API from a browser; none by default.",
    )
    allowed_hosts: str = setting(
        "PENSTOCK_ALLOWED_HOSTS",
        "",
        "Host names (comma-separated) that requests without a key may use, such as the public name of a proxy; `*` for "
        "any. Loopback and the address that the server listens on are always allowed.",
    )
    trusted_proxies: str = setting(
        "PENSTOCK_TRUSTED_PROXIES",
        "",
        "Addresses or networks (comma-separated) of proxies whose X-Forwarded-For or Forwarded names the client; the "
        "audit log, the request log and login limits use it. None by default.",
    )
    idle_connections: int = setting(
        "PENSTOCK_IDLE_CONNECTIONS",
        250,
        "The most idle connections of one address to one server; more are closed. Trusted proxies are exempt.",
        least=1,
    )
    sse_connections: int = setting(
        "PENSTOCK_SSE_CONNECTIONS", 1000, "The most live event streams (SSE) of one process.", least=1
    )
    sse_per_tenant: int = setting(
        "PENSTOCK_SSE_PER_TENANT", 100, "The most event streams of one tenant in one process.", least=1
    )
    sse_queue: int = setting(
        "PENSTOCK_SSE_QUEUE",
        256,
        "The most events in the queue of one slow stream; older ones are read from the table later.",
        least=1,
    )
    sse_keepalive_seconds: float = setting(
        "PENSTOCK_SSE_KEEPALIVE_SECONDS",
        15.0,
        "The interval of keep-alive comments on an idle event stream.",
        least=0.1,
    )
    webhook_allow: str = setting(
        "PENSTOCK_WEBHOOK_ALLOW",
        "",
        "Private networks (comma-separated, like 10.0.0.0/8) that webhooks may call; none by default.",
    )
    webhook_attempts: int = setting("PENSTOCK_WEBHOOK_ATTEMPTS", 8, "The most attempts of a webhook delivery.", least=1)
    webhook_seconds: float = setting(
        "PENSTOCK_WEBHOOK_SECONDS", 10.0, "How long the receiver of a webhook may take to respond.", least=0.1
    )
    stream_length: int = setting(
        "PENSTOCK_STREAM_LENGTH", 100_000, "The approximate length of a Redis Stream.", least=1
    )
    log_format: str = setting(
        "PENSTOCK_LOG_FORMAT", "text", "`text` for people or `json` for machines.", one_of=("text", "json")
    )
    log_level: str = setting(
        "PENSTOCK_LOG_LEVEL", "INFO", "DEBUG, INFO, WARNING or ERROR.", one_of=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    otel_endpoint: str = setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "", "If set, traces of requests and jobs are sent to this OTLP endpoint (HTTP)."
    )
    otel_service_name: str = setting("OTEL_SERVICE_NAME", "penstock", "The service name in traces.")

    @property
    def database(self) -> str:
        """The URL of the database."""
        return self.database_url or f"sqlite:///{self.data_dir / 'penstock.db'}"

    @property
    def embedded(self) -> bool:
        """Whether the database is a local SQLite file, which any process may migrate at start."""
        return self.database.startswith("sqlite")
