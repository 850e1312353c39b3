"""Every setting, read from the environment once.

The only file that looks at the environment. Everything else is given what it needs by `wiring.py`.
`docs/reference/settings.md` lists what is here; a test compares the two.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from penstock.kernel.errors import Invalid

YES, NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


class BadSetting(Invalid):
    """A setting in the environment cannot be used."""

    code = "BAD_SETTING"
    message = "{env} is {value!r}, but {reason}."
    message_zh = "{env} 的值为 {value!r}，但{reason}。"
    hint = "Every setting is described in docs/reference/settings.md."
    hint_zh = "每个设置的说明见 docs/reference/settings.md。"


def _setting(
    env: str,
    default: object,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    one_of: tuple[str, ...] = (),
    secret: bool = False,
    older: str = "",
) -> Any:
    """One setting; `older` is a name that is honoured too, and a secret is never shown."""
    notes = {"env": env, "doc": doc, "least": least, "most": most, "one_of": one_of, "older": older, "secret": secret}
    return field(default=default, repr=not secret, metadata=notes)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be set. Defaults are right for a laptop without any service."""

    data_dir: Path = _setting(  # noqa: RUF009  (it is dataclasses.field, with our metadata)
        "PENSTOCK_DATA_DIR", Path(".penstock"), "The folder for the SQLite database and local files."
    )
    database_url: str = _setting(
        "PENSTOCK_DATABASE_URL",
        "",
        "postgresql://… or sqlite:///…; when empty, a SQLite file in the data folder.",
        secret=True,
    )
    database_pooler: bool = _setting(
        "PENSTOCK_DATABASE_POOLER",
        False,
        "Set it when PostgreSQL is behind a transaction pooler (port 6543 is taken to be one by itself).",
    )
    database_connections: int = _setting(
        "PENSTOCK_DATABASE_CONNECTIONS", 10, "How many connections one process opens at the most.", least=1
    )
    redis_url: str = _setting(
        "PENSTOCK_REDIS_URL",
        "",
        "redis://…, rediss://… or unix://…; when set, run state, rates, wake-up and the job queue (ARQ) use it. "
        "The older name ETL_REDIS_URL is honoured.",
        secret=True,
        older="ETL_REDIS_URL",
    )
    job_queue: str = _setting(
        "PENSTOCK_JOB_QUEUE",
        "",
        "`arq` or `sql`: what hands jobs to workers; when empty, ARQ where there is a Redis.",
        one_of=("arq", "sql"),
    )
    local_gate_share: float = _setting(
        "PENSTOCK_LOCAL_GATE_SHARE",
        0.25,
        "The part of every rate that one process allows itself while Redis is away.",
        least=0.001,
        most=1,
    )
    blobs_url: str = _setting(
        "PENSTOCK_BLOBS_URL",
        "",
        "file:///… or s3://bucket/prefix for stored objects; when empty, the folder blobs in the data folder.",
    )
    aws_access_key_id: str = _setting("AWS_ACCESS_KEY_ID", "", "The key for s3://; when empty, the machine's own role.")
    aws_secret_access_key: str = _setting("AWS_SECRET_ACCESS_KEY", "", "The secret for s3://.", secret=True)
    aws_session_token: str = _setting("AWS_SESSION_TOKEN", "", "The session token for s3://, if any.", secret=True)
    aws_region: str = _setting("AWS_REGION", "us-east-1", "The region of the bucket.")
    aws_endpoint_url: str = _setting(
        "AWS_ENDPOINT_URL", "", "The address of an S3-compatible store; when empty, Amazon's own."
    )
    workers: int = _setting("PENSTOCK_WORKERS", 4, "How many jobs one process runs at the same time.", least=1)
    lease_seconds: float = _setting(
        "PENSTOCK_LEASE_SECONDS",
        60.0,
        "How long a job stays with a worker that fell silent; working ones renew it by themselves.",
        least=1,
    )
    grace_seconds: float = _setting(
        "PENSTOCK_GRACE_SECONDS", 5.0, "How long running jobs may go on after a stop is asked for.", least=0
    )
    drain_seconds: float = _setting(
        "PENSTOCK_DRAIN_SECONDS",
        0.0,
        "How long a server that was asked to stop still answers while /readyz says so, for load balancers to notice.",
        least=0,
    )
    outbox_attempts: int = _setting(
        "PENSTOCK_OUTBOX_ATTEMPTS", 10, "How often a message is tried before it becomes a dead letter.", least=1
    )
    history_days: float = _setting(
        "PENSTOCK_HISTORY_DAYS",
        30.0,
        "How long finished jobs, delivered messages and recorded moves are kept.",
        least=0,
    )
    dead_letter_days: float = _setting(
        "PENSTOCK_DEAD_LETTER_DAYS", 365.0, "How long messages are kept that could not be delivered.", least=0
    )
    event_days: float = _setting("PENSTOCK_EVENT_DAYS", 7.0, "How long events can be read again.", least=0)
    audit_days: float = _setting("PENSTOCK_AUDIT_DAYS", 365.0, "How long the audit log is kept.", least=0)
    run_state_seconds: float = _setting(
        "PENSTOCK_RUN_STATE_SECONDS", 604800.0, "How long the state of an unfinished run is kept.", least=1
    )
    run_state_final_seconds: float = _setting(
        "PENSTOCK_RUN_STATE_FINAL_SECONDS", 86400.0, "How long the state of a finished run is kept.", least=1
    )

    pull_timeout: float = _setting(
        "PULL_TIMEOUT",
        3600.0,
        "How many seconds a pulled task stays with a client that fell silent; then it is on offer again.",
        least=1,
    )
    pull_batch_size: int = _setting(
        "PULL_BATCH_SIZE", 100, "How many tasks one pull takes at the most.", least=1, most=1000
    )
    pull_max_attempts: int = _setting(
        "PULL_MAX_ATTEMPTS", 10, "How often a task is pulled without a push before it is put into error.", least=1
    )
    pull_wait_seconds: float = _setting(
        "PULL_WAIT_SECONDS", 60.0, "How long a pull with `wait=` may wait for a task at the most.", least=0, most=600
    )
    pull_rate_limit: str = _setting(
        "PULL_RATE_LIMIT",
        "600000/minute",
        "How often one key may pull: `60/minute`, `1000/hour`, or both with a comma between them; a bare number is per "
        "minute, and 0 is no limit. The default only stops a program that runs wild.",
    )
    pull_min_interval: float = _setting(
        "PULL_MIN_INTERVAL", 0.0, "How many seconds one key must leave between two pulls; 0 for none.", least=0
    )
    pull_quota: int = _setting(
        "PULL_QUOTA", 0, "How many tasks one key may pull in a day (UTC); 0 for any number.", least=0
    )
    pull_stats_seconds: float = _setting(
        "PULL_STATS_SECONDS", 10.0, "For how long statistics of tasks are remembered instead of counted anew.", least=0
    )
    pull_history_days: float = _setting(
        "PULL_HISTORY_DAYS", 365.0, "How long pulls that are over, and lines of the feed, are kept.", least=0
    )
    task_expiry_time: float = _setting(
        "TASK_EXPIRY_TIME",
        0.0,
        "After how many seconds a planned task that nobody pulled expires, if it does not say so itself; 0 for never.",
        least=0,
    )
    task_expired_action: str = _setting(
        "TASK_EXPIRED_ACTION",
        "keep",
        "What becomes of expired tasks: `keep` them, `archive` them (out of every list), or `delete` them.",
        one_of=("keep", "archive", "delete"),
    )
    reset_clear_pull_status: bool = _setting(
        "RESET_CLEAR_PULL_STATUS", True, "Whether a reset of a queue takes its tasks back from those who pulled them."
    )
    rerun_clear_pull_status: bool = _setting(
        "RERUN_CLEAR_PULL_STATUS", True, "Whether a re-run takes tasks back from those who pulled them."
    )
    pull_alert_success_rate: float = _setting(
        "PULL_ALERT_SUCCESS_RATE",
        80.0,
        "An alert is told when less than this percentage of the last hour's ended pulls were pushed; 0 for none.",
        least=0,
        most=100,
    )
    pull_alert_overdue: int = _setting(
        "PULL_ALERT_OVERDUE",
        100,
        "An alert is told when more pulls than this timed out in an hour; 0 for none.",
        least=0,
    )
    pull_alert_requests: int = _setting(
        "PULL_ALERT_REQUESTS",
        60000,
        "An alert is told when one project is pulled from more often than this in a minute; 0 for none.",
        least=0,
    )
    pull_alert_operations: int = _setting(
        "PULL_ALERT_OPERATIONS",
        100,
        "An alert is told when more queue operations than this are done in an hour; 0 for none.",
        least=0,
    )

    admin_key: str = _setting("PENSTOCK_ADMIN_KEY", "", "Presets the first admin key.", secret=True)
    jwt_secret: str = _setting(
        "PENSTOCK_JWT_SECRET", "", "Takes JWTs that are signed with this secret (HS256).", secret=True
    )
    jwks_url: str = _setting("PENSTOCK_JWKS_URL", "", "Takes JWTs that are signed by a key published there.")
    jwt_algorithms: str = _setting(
        "PENSTOCK_JWT_ALGORITHMS", "RS256,ES256,EdDSA", "The algorithms taken with PENSTOCK_JWKS_URL, and no others."
    )
    jwt_issuer: str = _setting("PENSTOCK_JWT_ISSUER", "", "When set, the `iss` that a JWT must carry.")
    jwt_audience: str = _setting("PENSTOCK_JWT_AUDIENCE", "", "When set, an `aud` that a JWT must carry.")
    jwt_skew_seconds: float = _setting(
        "PENSTOCK_JWT_SKEW_SECONDS", 30.0, "How far the clocks of those who sign may be off.", least=0
    )
    login_attempts: int = _setting(
        "PENSTOCK_LOGIN_ATTEMPTS", 5, "After so many wrong passwords in a row an account is locked.", least=1
    )
    login_lock_seconds: float = _setting(
        "PENSTOCK_LOGIN_LOCK_SECONDS", 900.0, "How long a locked account stays locked.", least=1
    )
    session_seconds: float = _setting("PENSTOCK_SESSION_SECONDS", 43200.0, "How long a console login lasts.", least=1)
    body_bytes: int = _setting(
        "PENSTOCK_BODY_BYTES", 10 * 1024 * 1024, "The largest request body that is not an upload.", least=1
    )
    body_seconds: float = _setting(
        "PENSTOCK_BODY_SECONDS", 30.0, "How long a request body may take to arrive.", least=0.1
    )
    cors_origins: str = _setting(
        "PENSTOCK_CORS_ORIGINS",
        "",
        "Web pages (origins, by comma) that may call the API from a browser; none by default.",
    )
    sse_connections: int = _setting(
        "PENSTOCK_SSE_CONNECTIONS", 1000, "How many live streams one process holds open.", least=1
    )
    sse_per_tenant: int = _setting(
        "PENSTOCK_SSE_PER_TENANT", 100, "How many of them may belong to one tenant.", least=1
    )
    sse_queue: int = _setting("PENSTOCK_SSE_QUEUE", 256, "How many events wait in memory for one slow stream.", least=1)
    sse_keepalive_seconds: float = _setting(
        "PENSTOCK_SSE_KEEPALIVE_SECONDS", 15.0, "How often a silent stream shows that it lives.", least=0.1
    )
    webhook_allow: str = _setting(
        "PENSTOCK_WEBHOOK_ALLOW",
        "",
        "Private networks (by comma, as 10.0.0.0/8) that webhooks may call; none by default.",
    )
    webhook_attempts: int = _setting(
        "PENSTOCK_WEBHOOK_ATTEMPTS", 8, "How often a webhook is tried before its delivery has failed.", least=1
    )
    webhook_seconds: float = _setting(
        "PENSTOCK_WEBHOOK_SECONDS", 10.0, "How long a webhook's receiver may take to answer.", least=0.1
    )
    stream_length: int = _setting(
        "PENSTOCK_STREAM_LENGTH", 100_000, "About how many messages a Redis Stream keeps.", least=1
    )
    log_format: str = _setting(
        "PENSTOCK_LOG_FORMAT", "text", "`text` for people or `json` for machines.", one_of=("text", "json")
    )
    log_level: str = _setting(
        "PENSTOCK_LOG_LEVEL", "INFO", "DEBUG, INFO, WARNING or ERROR.", one_of=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    otel_endpoint: str = _setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "", "When set, traces of requests and jobs are sent there (OTLP over HTTP)."
    )
    otel_service_name: str = _setting("OTEL_SERVICE_NAME", "penstock", "The name that traces carry.")

    @property
    def database(self) -> str:
        """The database's URL, worked out."""
        return self.database_url or f"sqlite:///{self.data_dir / 'penstock.db'}"

    @property
    def embedded(self) -> bool:
        """Whether the database is a local file of ours, so that any process may bring it up to date by itself."""
        return self.database.startswith("sqlite")


@dataclass(frozen=True, kw_only=True)
class Description:
    """A setting as the reference shows it."""

    env: str
    default: str
    doc: str


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process. Empty variables count as not set."""
    environ = os.environ if environ is None else environ
    given = {known: _given(known, environ) for known in fields(Settings)}
    values: dict[str, Any] = {known.name: _read(known, text) for known, text in given.items() if text}
    return Settings(**values)


def _given(known: Field[Any], environ: Mapping[str, str]) -> str:
    names = (known.metadata["env"], known.metadata["older"])
    return next((text for name in names if (text := environ.get(name, "").strip())), "")


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that look like ours and are not, each with the setting that may have been meant (or nothing)."""
    environ = os.environ if environ is None else environ
    known = [one.metadata["env"] for one in fields(Settings)]
    strangers = sorted(name for name in environ if name.startswith("PENSTOCK_") and name not in known)
    return {name: next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), "") for name in strangers}


def describe() -> list[Description]:
    """Every setting with its default and its sentence, in order."""
    return [
        Description(env=known.metadata["env"], default=_show(known.default), doc=known.metadata["doc"])
        for known in fields(Settings)
    ]


def _show(default: object) -> str:
    if default == "":
        return "(empty)"
    if isinstance(default, bool):
        return "true" if default else "false"
    return f"{default:g}" if isinstance(default, float) and default < 1e6 else str(default)


def _read(known: Field[Any], text: str) -> Any:
    env, least, most, one_of = (known.metadata[note] for note in ("env", "least", "most", "one_of"))
    kind: Any = type(known.default)
    try:
        value = {bool: _yes_or_no, float: _finite}.get(kind, kind)(text)
    except ValueError as error:
        wanted = {int: "a whole number", float: "a number", bool: "yes or no"}[kind]
        raise BadSetting(env=env, value=text, reason=f"it has to be {wanted}") from error
    if least is not None and not value >= least:
        raise BadSetting(env=env, value=text, reason=f"it has to be at least {least:g}")
    if most is not None and not value <= most:
        raise BadSetting(env=env, value=text, reason=f"it has to be at most {most:g}")
    if one_of and value not in one_of:
        raise BadSetting(env=env, value=text, reason=f"it has to be one of {', '.join(one_of)}")
    return value


def _finite(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(text)


def _yes_or_no(text: str) -> bool:
    if text.lower() in YES | NO:
        return text.lower() in YES
    raise ValueError(text)


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment that gives a child process the same settings."""
    given = {known.metadata["env"]: getattr(settings, known.name) for known in fields(Settings)}
    return {**os.environ, **{env: str(value) for env, value in given.items()}}
