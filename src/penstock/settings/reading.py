"""From the environment to settings, and from settings to the reference page. No other file looks at the environment."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from typing import Any

from penstock.settings.entry import read, show
from penstock.settings.etl import EtlSettings
from penstock.settings.house import Settings
from penstock.settings.models import LlmSettings, MineruSettings

PARTS = {"etl": EtlSettings, "llm": LlmSettings, "mineru": MineruSettings}  # each under its name of `Settings`


@dataclass(frozen=True, kw_only=True)
class Description:
    """A setting as the reference shows it."""

    env: str
    default: str
    doc: str


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process. Empty variables count as not set."""
    environ = os.environ if environ is None else environ
    parts: dict[str, Any] = {name: kind(**_values(kind, environ)) for name, kind in PARTS.items()}
    return Settings(**_values(Settings, environ), **parts)


def _values(kind: type[Any], environ: Mapping[str, str]) -> dict[str, Any]:
    return {known.name: read(known, text) for known in _own(kind) if (text := _given(known, environ))}


def _own(kind: type[Any]) -> Iterator[Field[Any]]:
    return (known for known in fields(kind) if "env" in known.metadata)


def _all() -> list[Field[Any]]:
    return [known for kind in (Settings, *PARTS.values()) for known in _own(kind)]


def _given(known: Field[Any], environ: Mapping[str, str]) -> str:
    names = (known.metadata["env"], known.metadata["older"])
    return next((text for name in names if (text := environ.get(name, "").strip())), "")


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that look like ours and are not, each with the setting that may have been meant (or nothing)."""
    environ = os.environ if environ is None else environ
    known = [one.metadata["env"] for one in _all()]
    strangers = sorted(name for name in environ if name.startswith("PENSTOCK_") and name not in known)
    return {name: next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), "") for name in strangers}


def describe() -> list[Description]:
    """Every setting with its default and its sentence, in order."""
    return [
        Description(env=known.metadata["env"], default=show(known.default), doc=known.metadata["doc"])
        for known in _all()
    ]


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment that gives a child process the same settings."""
    parts = [settings, *(getattr(settings, name) for name in PARTS)]
    given = {known.metadata["env"]: getattr(part, known.name) for part in parts for known in _own(type(part))}
    return {**os.environ, **{env: str(value) for env, value in given.items()}}
