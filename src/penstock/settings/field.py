"""One setting: its variable, default, description and bounds, and how its value is parsed."""

import math
from dataclasses import Field, field
from typing import Any

from penstock.kernel.errors import Invalid

YES, NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


class BadSetting(Invalid):
    """A setting has an invalid value."""

    code = "BAD_SETTING"
    message = "Invalid {env} {value!r}: {reason}."
    message_zh = "{env} 的值 {value!r} 无效：{reason}。"
    hint = "docs/reference/settings.md describes every setting."
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
    former_name: str = "",
) -> Any:
    """Declare a setting. `former_name` is a variable that is accepted too; a secret is never shown."""
    metadata = {
        "env": env,
        "doc": doc,
        "least": least,
        "most": most,
        "one_of": one_of,
        "former_name": former_name,
        "secret": secret,
    }
    return field(default=default, repr=not secret, metadata=metadata)


def show(default: object) -> str:
    """A default as the reference shows it."""
    if default == "":
        return "(empty)"
    if isinstance(default, bool):
        return "true" if default else "false"
    return f"{default:g}" if isinstance(default, float) and default < 1e6 else str(default)


def parse(setting: Field[Any], text: str) -> Any:
    """The value of a text, or `BadSetting`."""
    env, least, most, one_of = (setting.metadata[name] for name in ("env", "least", "most", "one_of"))
    kind: Any = type(setting.default)
    try:
        value = {bool: _parse_bool, float: _parse_float}.get(kind, kind)(text)
    except ValueError as error:
        expected = {int: "an integer", float: "a number", bool: "yes or no"}[kind]
        raise BadSetting(env=env, value=text, reason=f"expected {expected}") from error
    if least is not None and not value >= least:
        raise BadSetting(env=env, value=text, reason=f"expected at least {least:g}")
    if most is not None and not value <= most:
        raise BadSetting(env=env, value=text, reason=f"expected at most {most:g}")
    if one_of and value not in one_of:
        raise BadSetting(env=env, value=text, reason=f"expected one of {', '.join(one_of)}")
    return value


def _parse_float(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(text)


def _parse_bool(text: str) -> bool:
    if text.lower() in YES | NO:
        return text.lower() in YES
    raise ValueError(text)
