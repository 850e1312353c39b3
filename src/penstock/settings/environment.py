"""Settings from the environment, and their descriptions for the reference. No other file reads the environment."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from typing import Any

from penstock.settings.field import parse, show
from penstock.settings.settings import Settings

# The sections by attribute of `Settings`: dataclasses with settings of their own.
PARTS: dict[str, Any] = {part.name: part.default_factory for part in fields(Settings) if "env" not in part.metadata}

PREFIXES = ("PENSTOCK_", "PULL_", "ETL_", "LLM_", "MINERU_")
SHARED_PREFIXES = ("TASK_", "RESET_", "RERUN_")


@dataclass(frozen=True, kw_only=True)
class SettingDescription:
    """A setting as the reference shows it."""

    env: str
    default: str
    doc: str


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process. An empty variable counts as not set."""
    environ = os.environ if environ is None else environ
    parts: dict[str, Any] = {name: kind(**_values(kind, environ)) for name, kind in PARTS.items()}
    return Settings(**_values(Settings, environ), **parts)


def _values(kind: type[Any], environ: Mapping[str, str]) -> dict[str, Any]:
    return {field.name: parse(field, text) for field in _fields(kind) if (text := _find_value(field, environ))}


def _fields(kind: type[Any]) -> Iterator[Field[Any]]:
    return (field for field in fields(kind) if "env" in field.metadata)


def _all_fields() -> list[Field[Any]]:
    return [field for kind in (Settings, *PARTS.values()) for field in _fields(kind)]


def _find_value(field: Field[Any], environ: Mapping[str, str]) -> str:
    names = (field.metadata["env"], field.metadata["former_name"])
    return next((text for name in names if (text := environ.get(name, "").strip())), "")


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Misspelt settings: variables with a prefix of ours that are no setting, with the most similar one, if any.

    A variable with a prefix that other programs use too is reported only if a setting is similar.
    """
    environ = os.environ if environ is None else environ
    known = [field.metadata["env"] for field in _all_fields()]
    accepted = {*known, *(field.metadata["former_name"] for field in _all_fields())}
    others = sorted(name for name in environ if name.startswith((*PREFIXES, *SHARED_PREFIXES)) and name not in accepted)
    similar = {name: next(iter(get_close_matches(name, known, n=1, cutoff=0.75)), "") for name in others}
    return {name: setting for name, setting in similar.items() if setting or name.startswith(PREFIXES)}


def describe() -> list[SettingDescription]:
    """Every setting with its default and description, in order."""
    return [
        SettingDescription(env=field.metadata["env"], default=show(field.default), doc=field.metadata["doc"])
        for field in _all_fields()
    ]


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment that gives a child process the same settings."""
    parts = [settings, *(getattr(settings, name) for name in PARTS)]
    values = {field.metadata["env"]: getattr(part, field.name) for part in parts for field in _fields(type(part))}
    return {**os.environ, **{env: str(value) for env, value in values.items()}}
