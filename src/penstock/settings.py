"""Every setting, read from the environment once.

The only file that looks at the environment. Everything else is given what it needs by `wiring.py`.
`docs/reference/settings.md` lists what is here; a test compares the two.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.kernel.errors import Invalid

YES, NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


class BadSetting(Invalid):
    """A setting in the environment cannot be used."""

    code = "BAD_SETTING"
    message = "{env} is {value!r}, but {reason}."
    hint = "Every setting is described in docs/reference/settings.md."


def _setting(env: str, default: object, doc: str, *, least: float | None = None, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"env": env, "doc": doc, "least": least})


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
    blobs_url: str = _setting(
        "PENSTOCK_BLOBS_URL", "", "file:///… for stored objects; when empty, the folder blobs in the data folder."
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
    run_state_seconds: float = _setting(
        "PENSTOCK_RUN_STATE_SECONDS", 604800.0, "How long the state of an unfinished run is kept.", least=1
    )
    run_state_final_seconds: float = _setting(
        "PENSTOCK_RUN_STATE_FINAL_SECONDS", 86400.0, "How long the state of a finished run is kept.", least=1
    )

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
    given = {known: environ.get(known.metadata["env"], "").strip() for known in fields(Settings)}
    values: dict[str, Any] = {known.name: _read(known, text) for known, text in given.items() if text}
    return Settings(**values)


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
    env, least = known.metadata["env"], known.metadata["least"]
    kind: Any = type(known.default)
    try:
        value = {bool: _yes_or_no, float: _finite}.get(kind, kind)(text)
    except ValueError as error:
        wanted = {int: "a whole number", float: "a number", bool: "yes or no"}[kind]
        raise BadSetting(env=env, value=text, reason=f"it has to be {wanted}") from error
    if least is not None and not value >= least:
        raise BadSetting(env=env, value=text, reason=f"it has to be at least {least:g}")
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
