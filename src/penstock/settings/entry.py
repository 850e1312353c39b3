"""One setting: its variable, its default, its sentence, and how its text is read."""

import math
from dataclasses import Field, field
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


def setting(
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


def show(default: object) -> str:
    """A default as the reference shows it."""
    if default == "":
        return "(empty)"
    if isinstance(default, bool):
        return "true" if default else "false"
    return f"{default:g}" if isinstance(default, float) and default < 1e6 else str(default)


def read(known: Field[Any], text: str) -> Any:
    """The value that a text means, or `BadSetting`."""
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
